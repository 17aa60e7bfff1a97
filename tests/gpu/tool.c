/* SPDX-License-Identifier: Apache-2.0 */
/* tool.c - see tool.h */
#include "tests/gpu/tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/found.h"
#include "tests/gpu/rows.h"

#define MOST_BYTES (UINT64_C(1) << 20)

/* What the command found, in GB/s and seconds; 0: it does not say. */
typedef struct found {
    double disk; /* the files, cold */
    double warm; /* the same from the page cache */
    double link; /* pinned memory of the host to the device */
    double load_bytes;
    double load_seconds;
    double pass_bytes; /* copied */
    double pass_seconds;
    double predicted;   /* of a pass, or of a token */
    double tokens_per_second;
    bool is_simulated;
    char bottleneck[32];
} found;

static bool
is_true(const berthi_json_value *value, const char *key)
{
    bool is = false;

    return berthi_json_can_read_bool(berthi_json_get(value, key), &is) && is;
}

static void
find_limits(const berthi_json_value *root, found *f)
{
    for (const berthi_json_value *limit = berthi_json_first(berthi_json_get(root, "limits"));
         limit != NULL; limit = berthi_json_next(limit)) {
        const double gbps = gpu_number_of(limit, "bytes_per_second") / 1e9;

        if (strcmp(gpu_text_of(limit, "kind"), "read_cold") == 0)
            f->disk = gbps;
        if (strcmp(gpu_text_of(limit, "kind"), "read_warm") == 0)
            f->warm = gbps;
        if (strcmp(gpu_text_of(limit, "kind"), "to_device") == 0 && is_true(limit, "is_pinned"))
            f->link = gbps;
        f->is_simulated = f->is_simulated || is_true(limit, "is_simulated");
    }
}

static void
find_load(const berthi_json_value *load, found *f)
{
    f->load_bytes = gpu_number_of(load, "bytes_read");
    f->load_seconds = gpu_number_of(load, "seconds");
    snprintf(f->bottleneck, sizeof f->bottleneck, "%s", gpu_text_of(load, "bottleneck"));
}

static void
find_bench(const berthi_json_value *root, found *f)
{
    const berthi_json_value *const pass = berthi_json_get(root, "pass");

    find_limits(root, f);
    find_load(berthi_json_get(root, "load"), f);
    f->pass_bytes = gpu_number_of(pass, "copied_bytes");
    f->pass_seconds = gpu_number_of(pass, "seconds");
    f->predicted = gpu_number_of(pass, "predicted_seconds");
}

/* What `berth quantize --json` says. */
static void
find_conversion(const berthi_json_value *root, found *f)
{
    find_load(berthi_json_get(root, "result"), f);
    f->is_simulated = is_true(berthi_json_get(root, "device"), "is_simulated");
}

/* What `berth-llama --json` says; a token is a pass, and the prompt has one, too. */
static void
find_tokens(const berthi_json_value *root, found *f)
{
    f->tokens_per_second = gpu_number_of(root, "tokens_per_second");
    if (f->tokens_per_second > 0)
        f->pass_seconds = 1.0 / f->tokens_per_second;
    f->pass_bytes = gpu_number_of(root, "streamed_bytes")
                    / (gpu_number_of(root, "generate_passes") + 1.0);
    f->is_simulated = f->is_simulated || is_true(root, "is_simulated");
}

/* ------------------------------------------------------------------------------ rows */

static void
tell(FILE *out, const found *f, const gpu_row *row, const gpu_timing *timing)
{
    gpu_row its = *row;

    its.group = "the whole";
    its.timing = timing;
    gpu_rows_speed(out, &its, f->is_simulated);
}

static gpu_timing
timing_of(double seconds)
{
    return (gpu_timing){ .us = seconds * 1e6, .low = seconds * 1e6, .high = seconds * 1e6,
                         .samples = 1, .launches = 1 };
}

static void
tell_load(FILE *out, const char *name, const found *f)
{
    const double slowest = f->disk > 0 && (f->link <= 0 || f->disk < f->link) ? f->disk : f->link;
    const gpu_timing t = timing_of(f->load_seconds);
    char text[120];

    snprintf(text, sizeof text, "%s: load, quantized on the way", name);
    if (f->load_seconds <= 0 || slowest <= 0) {
        gpu_rows_skip(out, text, "nothing was measured");
        return;
    }
    tell(out, f, &(gpu_row){ .name = text, .unit = "of its slowest link", .relation = ">=",
                             .target = 0.95, .gbps = f->load_bytes / f->load_seconds / 1e9,
                             .value = f->load_bytes / f->load_seconds / 1e9 / slowest }, &t);
    snprintf(text, sizeof text, "%s: bytes that were loaded", name);
    tell(out, f, &(gpu_row){ .name = text, .unit = "GB", .value = f->load_bytes / 1e9 }, NULL);
    snprintf(text, sizeof text, "%s: what the load waited for", name);
    gpu_rows_fact(out, text, f->bottleneck);
}

static void
tell_pass(FILE *out, const char *name, const found *f)
{
    const gpu_timing t = timing_of(f->pass_seconds);
    char text[120];

    snprintf(text, sizeof text, "%s: layers streamed, a pass", name);
    if (f->pass_seconds <= 0 || f->pass_bytes <= 0 || f->link <= 0) {
        gpu_rows_skip(out, text, "nothing was streamed");
        return;
    }
    tell(out, f, &(gpu_row){ .name = text, .unit = "of pinned copies", .relation = ">=",
                             .target = 0.95, .gbps = f->pass_bytes / f->pass_seconds / 1e9,
                             .value = f->pass_bytes / f->pass_seconds / 1e9 / f->link }, &t);
    snprintf(text, sizeof text, "%s: a pass, over the prediction", name);
    if (f->predicted > 0)
        tell(out, f, &(gpu_row){ .name = text, .unit = "x predicted", .relation = "<=",
                                 .target = 1.1, .value = f->pass_seconds / f->predicted }, NULL);
}

static void
tell_tokens(FILE *out, const char *name, const found *f)
{
    const gpu_timing t = timing_of(f->pass_seconds);
    const double gbps = t.us > 0 ? f->pass_bytes / f->pass_seconds / 1e9 : 0.0;
    char text[120];

    snprintf(text, sizeof text, "%s: tokens generated", name);
    if (f->tokens_per_second <= 0) {
        gpu_rows_skip(out, text, "nothing was measured");
        return;
    }
    tell(out, f, &(gpu_row){ .name = text, .unit = "tokens/s", .value = f->tokens_per_second },
         &t);
    snprintf(text, sizeof text, "%s: a token, over the prediction", name);
    if (f->predicted > 0)
        tell(out, f, &(gpu_row){ .name = text, .unit = "x predicted", .relation = "<=",
                                 .target = 1.1, .value = f->pass_seconds / f->predicted }, NULL);
    snprintf(text, sizeof text, "%s: layers streamed, a token", name);
    if (gbps > 0 && f->link > 0)
        tell(out, f, &(gpu_row){ .name = text, .unit = "of pinned copies", .relation = ">=",
                                 .target = 0.95, .gbps = gbps, .value = gbps / f->link }, &t);
}

static void
tell_warm(FILE *out, const char *name, const found *f)
{
    found its = *f;
    char text[120];

    snprintf(text, sizeof text, "%s: its files, read from the page cache", name);
    if (f->warm > 0)
        tell(out, f, &(gpu_row){ .name = text, .unit = "GB/s", .value = f->warm }, NULL);
    its.disk = f->warm;
    tell_load(out, name, &its);
}

static void
tell_conversion(FILE *out, const char *name, const found *f)
{
    const gpu_timing t = timing_of(f->load_seconds);
    char text[120];

    snprintf(text, sizeof text, "%s: a checkpoint quantized", name);
    if (f->load_seconds <= 0) {
        gpu_rows_skip(out, text, "nothing was measured");
        return;
    }
    tell(out, f, &(gpu_row){ .name = text, .unit = "GB/s read",
                             .value = f->load_bytes / f->load_seconds / 1e9 }, &t);
    snprintf(text, sizeof text, "%s: what the conversion waited for", name);
    gpu_rows_fact(out, text, f->bottleneck);
}

static void
tell_all(FILE *out, const char *name, const found *f)
{
    char text[120];

    snprintf(text, sizeof text, "%s: its files, read cold", name);
    if (f->disk > 0)
        tell(out, f, &(gpu_row){ .name = text, .unit = "GB/s", .value = f->disk }, NULL);
    snprintf(text, sizeof text, "%s: host to device, pinned", name);
    if (f->link > 0)
        tell(out, f, &(gpu_row){ .name = text, .unit = "GB/s", .value = f->link }, NULL);
    tell_load(out, name, f);
    tell_pass(out, name, f);
}

/* ----------------------------------------------------------------- what bitsandbytes needs */

typedef struct comparison {
    const char *row; /* ours */
    const char *key; /* theirs, of the weight */
    double target;   /* times as fast; 0: nothing is to be reached */
} comparison;

static void
tell_beside(FILE *out, const char *name, double value, double target)
{
    if (value > 0.0 && isfinite(value))
        gpu_rows_speed(out, &(gpu_row){ .group = "beside bitsandbytes", .name = name,
                                        .unit = "x its speed",
                                        .relation = target > 0.0 ? ">=" : NULL,
                                        .target = target, .value = value }, false);
}

/* How much longer they take than the row of this name; 0: one of the two is not there. */
static double
times_as_fast(const gpu_found *rows, const char *name, const berthi_json_value *theirs,
              const char *key)
{
    const double us = gpu_number_of(gpu_found_speed(rows, name), "us");

    return us > 0 ? gpu_number_of(theirs, key) / us : 0.0;
}

/*
 * A load that finds its files in the page cache, beside theirs, which finds them there, too. By
 * their seconds: who reads which bytes of the files is not what a user waits for.
 */
static void
compare_load(FILE *out, const gpu_found *rows, const char *name, const berthi_json_value *theirs,
             double target)
{
    const double us =
        gpu_number_of(gpu_found_speed(rows, "warm: load, quantized on the way"), "us");

    if (us > 0)
        tell_beside(out, name, gpu_number_of(theirs, "seconds") * 1e6 / us, target);
}

/* Kernels of the same weight, and whole loads, as far as it tells of them. */
static void
compare(FILE *out, const gpu_found *rows, const berthi_json_value *theirs)
{
    static const comparison comparisons[] =
        { { "quantize NF4, 8192 x 28672, block 64", "quantize_nf4_us", 4.0 },
          { "quantize NF4 with double quantization", "quantize_nf4_dq_us", 0.0 },
          { "dequantize NF4 to BF16, 8192 x 28672, block 64", "dequantize_nf4_us", 2.0 },
          { "NF4 product, 8192 x 28672, m = 1", "nf4_m1_us", 1.6 },
          { "NF4 product, 8192 x 28672, m = 2", "nf4_m2_us", 0.0 },
          { "NF4 product, 8192 x 28672, m = 4", "nf4_m4_us", 0.0 },
          { "NF4 product, 8192 x 28672, m = 8", "nf4_m8_us", 3.0 },
          { "NF4 product, 8192 x 28672, m = 16", "nf4_m16_us", 0.0 },
          { "NF4 product, 8192 x 28672, m = 32", "nf4_m32_us", 2.0 },
          { "NF4, 8192 x 28672, m = 64", "nf4_m64_us", 0.0 },
          { "NF4, 8192 x 28672, m = 128", "nf4_m128_us", 0.0 } };
    const berthi_json_value *const weight = berthi_json_get(theirs, "8192x28672");

    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++) {
        const comparison *const c = &comparisons[i];

        tell_beside(out, c->row, times_as_fast(rows, c->row, weight, c->key), c->target);
    }
    compare_load(out, rows, "a load with NF4, beside from_pretrained(), the first of a process",
                 berthi_json_get(theirs, "from_pretrained_nf4_dq_first"), 10.0);
    compare_load(out, rows, "a load with NF4, beside from_pretrained(), its second",
                 berthi_json_get(theirs, "from_pretrained_nf4_dq_second"), 0.0);
}

static void
compare_update(FILE *out, const gpu_found *rows, const berthi_json_value *theirs)
{
    static const char row[] = "AdamW in 8 bits, 134 M parameters";

    tell_beside(out, row, times_as_fast(rows, row, theirs, "adamw8_134M_us"), 1.2);
}

/* ------------------------------------------------------------------------------- files */

/* NULL, and said why, when it is none. */
static berthi_json *
parse(berth_context *context, const char *path)
{
    const berthi_json_origin origin = { BERTH_REASON_UNSUPPORTED, path };
    char *const text = malloc(MOST_BYTES);
    FILE *const in = fopen(path, "r");
    berthi_json *document = NULL;
    berth_error error = { 0 };

    if (text == NULL || in == NULL
        || berthi_json_parse(context, text, fread(text, 1, MOST_BYTES, in),
                             BERTHI_JSON_NONFINITE, &origin, &document, &error)
               != BERTH_OK)
        fprintf(stderr, "gpu_check: %s: %s\n", path, in == NULL ? "no such file" : error.message);
    if (in != NULL)
        fclose(in);
    free(text);
    return document;
}

int
gpu_tool_rows(const char *rows, const char *name, const char *printed)
{
    gpu_found before = { 0 };
    const bool is_open = gpu_found_open(&before, rows);
    berthi_json *const document = is_open ? parse(before.context, printed) : NULL;
    const berthi_json_value *const root = document != NULL ? berthi_json_root(document) : NULL;
    FILE *const out = document != NULL ? fopen(rows, "a") : NULL;
    found f = { 0 };

    if (out != NULL && strcmp(name, "bitsandbytes") == 0) {
        compare(out, &before, root);
    } else if (out != NULL && strcmp(name, "update") == 0) {
        compare_update(out, &before, root);
    } else if (out != NULL) {
        find_bench(root, &f);
        tell_all(out, name, &f);
    }
    berthi_json_destroy(document);
    gpu_found_close(&before);
    return out != NULL && fclose(out) == 0 ? 0 : 1;
}

/* What `read` finds in the file joins the rest. */
static bool
has_read(berth_context *context, const char *path,
         void (*read)(const berthi_json_value *root, found *f), found *f)
{
    berthi_json *const document = parse(context, path);

    if (document != NULL)
        read(berthi_json_root(document), f);
    berthi_json_destroy(document);
    return document != NULL;
}

static void
find_prediction(const berthi_json_value *plan, found *f)
{
    f->predicted = gpu_number_of(berthi_json_get(plan, "predicted"), "nanoseconds") / 1e9;
}

/* Rows of what `read` and limits and prediction, where these are given, have found. */
static int
append(const char *rows, const char *name, const gpu_tool_files *files,
       void (*read)(const berthi_json_value *root, found *f),
       void (*print)(FILE *out, const char *name, const found *f))
{
    berth_context *context = NULL;
    berth_error error;
    found f = { 0 };
    bool is_read = berth_context_create(NULL, &context, &error) == BERTH_OK
                   && has_read(context, files->printed, read, &f);
    FILE *out;

    if (is_read && files->bench != NULL)
        is_read = has_read(context, files->bench, find_limits, &f);
    if (is_read && files->plan != NULL)
        is_read = has_read(context, files->plan, find_prediction, &f);
    berth_context_destroy(context);
    out = is_read ? fopen(rows, "a") : NULL;
    if (out == NULL)
        return 1;
    print(out, name, &f);
    return fclose(out) == 0 ? 0 : 1;
}

int
gpu_tool_load(const char *rows, const char *name, const gpu_tool_files *files)
{
    return append(rows, name, files, find_load, tell_warm);
}

int
gpu_tool_convert(const char *rows, const char *name, const gpu_tool_files *files)
{
    return append(rows, name, files, find_conversion, tell_conversion);
}

int
gpu_tool_tokens(const char *rows, const char *name, const gpu_tool_files *files)
{
    return append(rows, name, files, find_tokens, tell_tokens);
}
