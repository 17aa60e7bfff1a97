/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_open - how long opening and listing takes, and how much memory
 *
 *   bench_open [-o ROWS] [-p PYTHON] [-n NOTE] FOLDER     shapes of make_shapes below FOLDER
 *   bench_open --child MODEL TIMES                        one process that is measured
 *
 * What is timed is what a program does that wants to know a model: create a
 * context, open, ask for each tensor, close. Memory is the peak resident set of
 * a process that does this once and nothing else. -p names a Python that has
 * safetensors; -n says why there is none.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/berth.h"
#include "tests/bench/bench.h"

#define ROUNDS 9
#define PEER "tests/bench/peer_open.py"

/* ------------------------------------------------------------------ the child */

/* Opens, lists, closes; `listing` NULL: without the sums, which are not berth's time. */
static berth_status
open_and_list(const char *path, bench_listing *listing, uint64_t *out_total,
              berth_error *error)
{
    berth_context *context = NULL;
    berth_checkpoint *checkpoint = NULL;
    berth_checkpoint_summary summary;
    berth_tensor tensor;
    berth_status status = berth_context_create(NULL, &context, error);

    *out_total = 0;
    if (status != BERTH_OK)
        return status;
    status = berth_checkpoint_open(context, path, NULL, &checkpoint, error);
    if (status == BERTH_OK) {
        berth_checkpoint_get(checkpoint, &summary);
        for (uint64_t i = 0; i < summary.tensor_count; i++) {
            if (berth_checkpoint_tensor(checkpoint, i, &tensor) != BERTH_OK)
                bench_die("tensor %" PRIu64 " of %s", i, path);
            *out_total += tensor.bytes + tensor.name_length;
            if (listing != NULL)
                bench_listing_add(listing, tensor.name, tensor.name_length, tensor.bytes);
        }
    }
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
    return status;
}

/* Times first, so that the sums do not warm or fill anything. */
static int
run_child(const char *path, int times)
{
    bench_listing listing = { 0, 0, 0, 0 };
    uint64_t total = 0;
    uint64_t again;
    berth_error error;
    berth_status status = BERTH_OK;

    printf("{");
    for (int i = 0; i < times; i++) {
        const double begin = bench_now();

        status = open_and_list(path, NULL, &total, &error);
        printf("\"seconds%d\":%.9f,", i, bench_now() - begin);
    }
    /* The names are summed by a process of its own: see check_answer(). */
    if (times == 0) {
        status = open_and_list(path, &listing, &again, &error);
        printf("\"tensors\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"name_bytes\":%" PRIu64
               ",\"name_sum\":%" PRIu64 ",",
               listing.tensors, listing.bytes, listing.name_bytes, listing.name_sum);
    }
    printf("\"total\":%" PRIu64 ",\"reason\":%d}\n", total,
           status == BERTH_OK ? 0 : error.reason);
    return 0;
}

/* ----------------------------------------------------------------- the parent */

static const char *self;
static const char *python;
static const char *no_python = "not asked for";

static void
run_self(const char *model, int times, bench_result *result)
{
    char text[16];
    const char *const argv[] = { self, "--child", model, text, NULL };

    snprintf(text, sizeof text, "%d", times);
    bench_command(argv, result);
    if (result->status != 0)
        bench_die("opening %s ended with %d", model, result->status);
}

static bool
is_number(const char *json, const char *key, uint64_t expected)
{
    char pattern[96];

    snprintf(pattern, sizeof pattern, "\"%s\":%" PRIu64 ",", key, expected);
    if (strstr(json, pattern) != NULL)
        return true;
    fprintf(stderr, "bench: %s is not %" PRIu64 " in %s", key, expected, json);
    return false;
}

/* Before any speed is told: every name and every byte is there. */
static bench_listing
check_answer(const char *model)
{
    static bench_result result;
    bench_listing expected;

    bench_listing_read(model, &expected);
    run_self(model, 0, &result);
    if (!is_number(result.output, "tensors", expected.tensors)
        || !is_number(result.output, "bytes", expected.bytes)
        || !is_number(result.output, "name_bytes", expected.name_bytes)
        || !is_number(result.output, "name_sum", expected.name_sum))
        bench_die("%s is not listed as it was made", model);
    return expected;
}

/* Warm: the first of each process's opens is left out. */
static void
measure_warm(const char *model, double scale, double samples[ROUNDS])
{
    static bench_result result;

    run_self(model, ROUNDS + 1, &result);
    for (int i = 0; i < ROUNDS; i++) {
        char key[16];

        snprintf(key, sizeof key, "seconds%d", i + 1);
        samples[i] = scale * bench_json_number(result.output, key);
    }
}

static uint64_t
measure_peak(const char *model)
{
    static bench_result result;
    double peaks[5];

    for (size_t i = 0; i < 5; i++) {
        run_self(model, 1, &result);
        peaks[i] = (double)result.peak_bytes;
    }
    return (uint64_t)bench_median(peaks, 5);
}

typedef struct peer_answer {
    double seconds;
    double peak_bytes;
} peer_answer;

/* Zeros when there is no peer. */
static peer_answer
measure_peer(const char *model, const bench_listing *expected)
{
    const char *const argv[] = { python, PEER, model, "5", NULL };
    peer_answer answer = { 0, 0 };
    static bench_result result;

    if (python == NULL)
        return answer;
    bench_command(argv, &result);
    if (result.status != 0)
        bench_die("the peer ended with %d", result.status);
    if (!is_number(result.output, "tensors", expected->tensors)
        || !is_number(result.output, "name_sum", expected->name_sum))
        bench_die("the peer lists something else");
    answer.seconds = bench_json_number(result.output, "seconds");
    answer.peak_bytes = (double)result.peak_bytes;
    return answer;
}

static void
report_model(const char *root, const char *shape, double target_ms, double target_mb)
{
    double samples[ROUNDS];
    char model[4096];
    char name[128];
    bench_listing expected;
    peer_answer peer;

    snprintf(model, sizeof model, "%s/%s", root, shape);
    expected = check_answer(model);
    peer = measure_peer(model, &expected);
    measure_warm(model, 1e3, samples);
    snprintf(name, sizeof name, "open and list %s", shape);
    bench_report(&(bench_row){ .name = name,
                               .unit = "ms",
                               .target = target_ms,
                               .peer = 1e3 * peer.seconds,
                               .peer_note = no_python,
                               .samples = samples,
                               .sample_count = ROUNDS });
    if (target_mb <= 0)
        return;
    snprintf(name, sizeof name, "open and list %s, peak memory", shape);
    bench_report(&(bench_row){ .name = name,
                               .unit = "MB",
                               .value = (double)measure_peak(model) / 1e6,
                               .target = target_mb,
                               .peer = peer.peak_bytes / 1e6,
                               .peer_note = no_python });
}

/* ----------------------------------------------------------------- many tensors */

static const char *const many_shapes[] = { "many250000", "many500000", "many1000000" };
#define MANY 3

/* What one size needs, medians of processes that take turns. */
typedef struct many {
    double tensors;
    double seconds;    /* a tensor */
    double above_name; /* bytes a tensor */
} many;

/*
 * The first open of a process: later ones find the memory of those before them
 * where it was small enough for the C library to keep, and sizes cannot be
 * compared any more.
 */
static void
measure_many(const char *root, many sizes[MANY])
{
    const double nothing = (double)measure_peak("/dev/null");
    double seconds[MANY][ROUNDS];
    double peaks[MANY][ROUNDS];
    bench_listing expected[MANY];
    char models[MANY][4096];

    for (int i = 0; i < MANY; i++) {
        snprintf(models[i], sizeof models[i], "%s/%s", root, many_shapes[i]);
        expected[i] = check_answer(models[i]);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < MANY; i++) {
            static bench_result result;

            run_self(models[i], 1, &result);
            seconds[i][round] = bench_json_number(result.output, "seconds0");
            peaks[i][round] = (double)result.peak_bytes;
        }
    for (int i = 0; i < MANY; i++) {
        sizes[i].tensors = (double)expected[i].tensors;
        sizes[i].seconds = bench_median(seconds[i], ROUNDS) / sizes[i].tensors;
        sizes[i].above_name = (bench_median(peaks[i], ROUNDS) - nothing
                               - (double)expected[i].name_bytes)
                              / sizes[i].tensors;
    }
}

static void
report_many(const char *root)
{
    many sizes[MANY];
    char name[128];

    measure_many(root, sizes);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%.0f tensors, memory above the name",
                 sizes[i].tensors);
        bench_report(&(bench_row){ .name = name,
                                   .unit = "B a tensor",
                                   .value = sizes[i].above_name,
                                   .target = 200 });
    }
    for (int i = 1; i < MANY; i++) {
        snprintf(name, sizeof name, "%.0f tensors, time a tensor", sizes[i].tensors);
        bench_report(&(bench_row){ .name = name,
                                   .unit = "x of 250000",
                                   .value = sizes[i].seconds / sizes[0].seconds,
                                   .target = 1.25 });
        snprintf(name, sizeof name, "%.0f tensors, memory a tensor", sizes[i].tensors);
        bench_report(&(bench_row){ .name = name,
                                   .unit = "x of 250000",
                                   .value = sizes[i].above_name / sizes[0].above_name,
                                   .target = 1.1 });
    }
}

/* ----------------------------------------------------------- worst-case headers */

static const struct worst {
    const char *id;
    int reason;
} worst[] = {
    { "X01", BERTH_REASON_NONE }, { "X02", BERTH_REASON_NONE },
    { "R1", BERTH_REASON_NONE },  { "R2", BERTH_REASON_NONE },
    { "R3", BERTH_REASON_RANK },  { "R4", BERTH_REASON_NONE },
    { "R6", BERTH_REASON_DUPLICATE }, { "R7", BERTH_REASON_NONE },
};

static void
report_worst(const char *root, const struct worst *w)
{
    static bench_result result;
    double seconds[5];
    double megabytes[5];
    char model[4096];
    char name[64];

    snprintf(model, sizeof model, "%s/%s/model.safetensors", root, w->id);
    for (int i = 0; i < 5; i++) {
        run_self(model, 1, &result);
        if ((int)bench_json_number(result.output, "reason") != w->reason)
            bench_die("%s: another verdict than %s: %s", w->id,
                      berth_reason_name(w->reason), result.output);
        seconds[i] = bench_json_number(result.output, "seconds0");
        megabytes[i] = (double)result.peak_bytes / 1e6;
    }
    snprintf(name, sizeof name, "worst header %s", w->id);
    bench_report(&(bench_row){ .name = name,
                               .unit = "s",
                               .target = 1.5,
                               .samples = seconds,
                               .sample_count = 5 });
    snprintf(name, sizeof name, "worst header %s, peak memory", w->id);
    bench_report(&(bench_row){ .name = name,
                               .unit = "MB",
                               .target = 300,
                               .samples = megabytes,
                               .sample_count = 5 });
}

int
main(int argc, char **argv)
{
    const char *rows = NULL;
    int option;

    self = argv[0];
    if (argc == 4 && strcmp(argv[1], "--child") == 0)
        return run_child(argv[2], atoi(argv[3]));
    while ((option = getopt(argc, argv, "o:p:n:")) != -1)
        switch (option) {
        case 'o': rows = optarg; break;
        case 'p': python = optarg; break;
        case 'n': no_python = optarg; break;
        default: return 2;
        }
    if (optind != argc - 1)
        bench_die("usage: bench_open [-o ROWS] [-p PYTHON] [-n NOTE] FOLDER");
    if (python != NULL)
        no_python = NULL;
    bench_begin(rows);
    report_model(argv[optind], "llama70b", 0.9, 0);
    report_model(argv[optind], "deepseek", 40, 25);
    report_many(argv[optind]);
    for (size_t i = 0; i < sizeof worst / sizeof worst[0]; i++)
        report_worst(argv[optind], &worst[i]);
    return 0;
}
