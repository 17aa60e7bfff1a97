/* SPDX-License-Identifier: Apache-2.0 */
/* test_diff.c - berth_diff_start() against naive sums over whole weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/core.h"
#include "loader/diff_sum.h"
#include "tests/converted.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/weights.h"

#define GOLDEN "../shared/golden/quant"
#define TENSORS 64

/* ------------------------------------------------------------------ comparing */

typedef struct compared {
    berth_diff_options options; /* compared_begin() fills it */
    berth_diff_report report;
    berth_error error;
    uint32_t count;
    berth_diff_tensor tensors[TENSORS]; /* names as `names` */
    char names[TENSORS][128];
} compared;

static void
keep_tensor(void *user, const berth_diff_tensor *tensor)
{
    compared *const c = user;

    if (!CHECK_LT(c->count, TENSORS) || !CHECK_LT(tensor->name_length, 128))
        return;
    c->tensors[c->count] = *tensor;
    memcpy(c->names[c->count], tensor->name, tensor->name_length);
    c->names[c->count][tensor->name_length] = '\0';
    c->tensors[c->count].name = NULL;
    if (c->count > 0)
        CHECK_LE(strcmp(c->names[c->count - 1], c->names[c->count]), 0);
    c->count++;
}

static void
compared_begin(compared *c)
{
    memset(c, 0, sizeof *c);
    berth_diff_options_init(&c->options);
    c->options.tensor = keep_tensor;
    c->options.tensor_user = c;
    c->options.report = &c->report;
}

static berth_status
compared_run_in(compared *c, berth_context *context, const char *a, const char *b)
{
    berth_checkpoint *checkpoints[2] = { NULL, NULL };
    berth_job *job = NULL;
    berth_status status = berth_checkpoint_open(context, a, NULL, &checkpoints[0], &c->error);

    c->count = 0;
    memset(c->tensors, 0, sizeof c->tensors);
    if (status == BERTH_OK)
        status = berth_checkpoint_open(context, b, NULL, &checkpoints[1], &c->error);
    if (status == BERTH_OK) {
        status = berth_diff_start(context, checkpoints[0], checkpoints[1], &c->options,
                                  &job, &c->error);
        CHECK_EQ(status == BERTH_OK, job != NULL);
    }
    if (status == BERTH_OK)
        status = berth_job_finish(job, &c->error);
    berth_checkpoint_close(checkpoints[0]);
    berth_checkpoint_close(checkpoints[1]);
    CHECK_EQ(c->error.status, status);
    return status;
}

static berth_status
compared_run(compared *c, const char *a, const char *b)
{
    const int fds = fixture_open_fds();
    berth_memory_summary memory;
    berth_context *context;
    berth_status status = berth_context_create(NULL, &context, &c->error);

    if (!CHECK_EQ(status, BERTH_OK))
        return status;
    status = compared_run_in(c, context, a, b);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    if (status == BERTH_OK)
        CHECK_LE(memory.peak_bytes, c->report.planned_memory + (UINT64_C(1) << 20));
    berth_context_destroy(context);
    CHECK_EQ(fixture_open_fds(), fds);
    return status;
}

static const berth_diff_tensor *
find(const compared *c, const char *name)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (strcmp(c->names[i], name) == 0)
            return &c->tensors[i];
    CHECK_STR("", name);
    return &c->tensors[0];
}

/* ---------------------------------------------------------------- the oracle */

/* The checkpoint's weights as plain F32, by a conversion. */
static const char *
decode(const char *path)
{
    const char *const out = fixture_format("%s/out", fixture_folder());
    converted c;

    converted_begin(&c, out, BERTH_ENCODING_NATIVE);
    c.options.dtype = BERTH_F32;
    c.options.verify = BERTH_LOAD_VERIFY_NONE; /* some bytes are changed behind a manifest */
    if (!CHECK_EQ(converted_run(&c, path), BERTH_OK))
        T_NOTE("%s: %s %s", path, c.error.tensor, c.error.message);
    return out;
}

static float *
read_values(berth_checkpoint *checkpoint, const char *name, uint64_t elements)
{
    float *const values = weights_alloc(elements * sizeof *values);
    const uint64_t index = berth_checkpoint_find(checkpoint, name, strlen(name));
    berth_tensor tensor;

    if (!CHECK_EQ(berth_checkpoint_tensor(checkpoint, index, &tensor), BERTH_OK)
        || !CHECK_EQ(tensor.dtype, BERTH_F32) || !CHECK_EQ(tensor.elements, elements))
        T_NOTE("%s", name);
    else
        CHECK_EQ(berth_checkpoint_read(checkpoint, index, 0, UINT64_MAX, values,
                                       tensor.bytes, NULL),
                 BERTH_OK);
    return values;
}

static bool
is_near(double got, double expected)
{
    return got == expected || fabs(got - expected) <= 1e-12 * fabs(expected);
}

/* `ends`: of the buckets 1 to 30, the last one has none. */
static uint32_t
bucket_of(double error, const double ends[31])
{
    uint32_t bucket = 1;

    if (error == 0)
        return 0;
    while (bucket < 31 && error >= ends[bucket])
        bucket++;
    return bucket;
}

/* Plain sums over the whole weight. */
static void
check_errors(const berth_diff_errors *got, const float *a, const float *b, uint64_t count)
{
    long double wide[3] = { 0, 0, 0 }; /* a million additions cost six digits */
    double signal;
    double noise;
    double sum;
    double maximum = 0;
    double unit = 1;
    uint64_t finite = 0;
    uint64_t different = 0;
    uint64_t nonfinite = 0;
    uint64_t histogram[BERTH_DIFF_BUCKETS] = { 0 };
    double ends[31];

    for (uint64_t i = 0; i < count; i++) {
        const double error = fabs((double)a[i] - (double)b[i]);

        if (!isfinite(a[i]) || !isfinite(b[i])) {
            nonfinite += !(isnan(a[i]) && isnan(b[i])) && a[i] != b[i];
            continue;
        }
        finite++;
        different += error != 0;
        wide[0] += (long double)((double)a[i] * (double)a[i]);
        wide[1] += (long double)(error * error);
        wide[2] += (long double)error;
        maximum = error > maximum ? error : maximum;
    }
    signal = (double)wide[0];
    noise = (double)wide[1];
    sum = (double)wide[2];
    if (signal > 0) {
        const double rms = sqrt(signal / (double)finite);

        while (unit > rms)
            unit /= 2;
        while (unit * 2 <= rms)
            unit *= 2;
        CHECK(is_near(got->rms_a, rms));
    } else {
        CHECK(got->rms_a == 0);
    }
    for (int i = 0; i < 31; i++)
        ends[i] = ldexp(unit, i - 25);
    for (uint64_t i = 0; i < count; i++)
        if (isfinite(a[i]) && isfinite(b[i]))
            histogram[bucket_of(fabs((double)a[i] - (double)b[i]), ends)]++;
    CHECK_EQ(got->count, finite);
    CHECK_EQ(got->different, different);
    CHECK_EQ(got->nonfinite, nonfinite);
    CHECK(got->maximum == maximum);
    CHECK(got->unit == unit);
    CHECK(is_near(got->mean, finite > 0 ? sum / (double)finite : 0));
    CHECK(is_near(got->rms_error, finite > 0 ? sqrt(noise / (double)finite) : 0));
    CHECK(is_near(got->relative, noise > 0 ? sqrt(noise / signal) : 0));
    CHECK(is_near(got->snr, noise > 0 ? 20 * log10(sqrt(signal / noise)) : INFINITY));
    CHECK_MEM(got->histogram, histogram, sizeof histogram);
}

static bool
has_compared_values(const berth_diff_tensor *t)
{
    return t->kind == BERTH_DIFF_COMPARED && t->has_values;
}

/* Each weight with values of a comparison; returns how many. */
static uint32_t
check_against_oracle(const compared *c, const char *a, const char *b)
{
    berth_checkpoint *checkpoints[2];
    berth_context *context;
    uint32_t checked = 0;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, decode(a), NULL, &checkpoints[0], NULL),
             BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, decode(b), NULL, &checkpoints[1], NULL),
             BERTH_OK);
    for (uint32_t i = 0; i < c->count; i++) {
        const berth_diff_tensor *const t = &c->tensors[i];
        float *values[2];

        if (!has_compared_values(t))
            continue;
        values[0] = read_values(checkpoints[0], c->names[i], t->elements);
        values[1] = read_values(checkpoints[1], c->names[i], t->elements);
        check_errors(&t->errors, values[0], values[1], t->elements);
        free(values[0]);
        free(values[1]);
        checked++;
    }
    berth_checkpoint_close(checkpoints[0]);
    berth_checkpoint_close(checkpoints[1]);
    berth_context_destroy(context);
    return checked;
}

/*
 * Returns how many weights with values were compared. What their numbers are is not asked
 * where threads are watched: decoding both models and adding up takes most of the time there.
 */
static uint32_t
check_models(compared *c, const char *a, const char *b)
{
    uint32_t count = 0;

    compared_begin(c);
    if (!CHECK_EQ(compared_run(c, a, b), BERTH_OK)) {
        T_NOTE("%s, %s: %s %s", a, b, c->error.tensor, c->error.message);
        return 0;
    }
    for (uint32_t i = 0; i < c->count; i++)
        count += has_compared_values(&c->tensors[i]);
    if (!T_HAS_THREADS_WATCHED)
        CHECK_EQ(check_against_oracle(c, a, b), count);
    return count;
}

/* ---------------------------------------------------------------------- models */

typedef struct model {
    const char *folder;
    fixture_builder *builder;
} model;

static model
model_begin(const char *config)
{
    const model m = { fixture_folder(), fixture_begin() };

    if (config != NULL)
        fixture_text(fixture_format("%s/config.json", m.folder), config);
    return m;
}

static void
add(const model *m, const char *name, int32_t dtype, uint64_t rows, uint64_t columns,
    const void *values)
{
    const uint64_t shape[2] = { rows, columns };

    fixture_add(m->builder, name, berth_dtype_name(dtype), 2, shape, values);
}

static const char *
model_end(const model *m)
{
    fixture_finish(m->builder, fixture_format("%s/model.safetensors", m->folder));
    return m->folder;
}

static const char *
quantize(const char *path, int32_t type, bool is_double)
{
    const char *const out = fixture_format("%s/out", fixture_folder());
    converted c;

    converted_begin(&c, out, type);
    c.options.double_quant = is_double;
    if (!CHECK_EQ(converted_run(&c, path), BERTH_OK))
        T_NOTE("%s: %s %s", path, c.error.tensor, c.error.message);
    return out;
}

#define GPT2 "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\"}\n"

/* Two models of a weight of each size, B a little beside A. */
static void
make_near(int32_t a_dtype, int32_t b_dtype, bool is_odd, const char **a, const char **b)
{
    static const uint64_t shapes[][2] = { { 1, 1 },   { 7, 73 },    { 1, 512 },
                                          { 3, 171 }, { 128, 128 }, { 1027, 1031 } };
    const model models[2] = { model_begin(NULL), model_begin(NULL) };

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const uint64_t count = shapes[i][0] * shapes[i][1];
        void *const first = weights_values(a_dtype, count, i + 1, is_odd);
        void *const second = weights_values(b_dtype, count, i + 1, is_odd);
        uint64_t state = i;

        for (uint64_t k = 0; k < count; k++) {
            const uint64_t random = weights_random(&state);
            const float value = berthi_core_load(first, a_dtype, k);

            if (random % 3 == 0)
                berthi_core_store(second, b_dtype, k,
                                  value * (1 + (float)(random >> 40) * 0x1p-28f));
            else
                berthi_core_store(second, b_dtype, k, value);
            if (is_odd && random % 41 == 0)
                berthi_core_store(second, b_dtype, k, random % 2 == 0 ? NAN : INFINITY);
        }
        add(&models[0], fixture_format("m%d.weight", (int)i), a_dtype, shapes[i][0],
            shapes[i][1], first);
        add(&models[1], fixture_format("m%d.weight", (int)i), b_dtype, shapes[i][0],
            shapes[i][1], second);
        free(first);
        free(second);
    }
    *a = model_end(&models[0]);
    *b = model_end(&models[1]);
}

/* ------------------------------------------------------------------- comparing */

static void
test_plain_values(void)
{
    static const int32_t numbers[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

    for (int i = 0; i < 9; i++) {
        const char *a;
        const char *b;
        compared c;

        make_near(numbers[i / 3], numbers[i % 3], i % 2 == 1, &a, &b);
        CHECK_EQ(check_models(&c, a, b), 6);
        CHECK_EQ(c.report.compared, 6);
        CHECK_EQ(c.report.same, 0 + (c.tensors[0].is_same != 0));
        CHECK_EQ(c.tensors[3].has_codes, i / 3 == i % 3);
        CHECK_EQ(c.tensors[3].has_same_statistics, i / 3 == i % 3);
        CHECK_EQ(c.tensors[3].a.dtype, numbers[i / 3]);
        CHECK_EQ(c.tensors[3].b.dtype, numbers[i % 3]);
        CHECK_EQ(c.tensors[3].is_same, 0);
        if (i / 3 == i % 3)
            CHECK_GE(c.tensors[5].codes, c.tensors[5].errors.different);
        else
            CHECK_EQ(c.tensors[5].codes, 0);
        CHECK_EQ(c.tensors[5].a.nan + c.tensors[5].a.infinite > 0, i % 2 == 1);
    }
}

static void
test_the_same(void)
{
    const char *a;
    const char *b;
    compared c;

    make_near(BERTH_BF16, BERTH_BF16, true, &a, &b);
    compared_begin(&c);
    c.options.requires_same = 1;
    c.options.has_max_relative = 1;
    c.options.has_min_snr = 1;
    c.options.min_snr = 1e9;
    CHECK_EQ(compared_run(&c, a, a), BERTH_OK);
    CHECK_EQ(c.count, 6);
    CHECK_EQ(c.report.same, 6);
    CHECK_EQ(c.report.equal, 6);
    CHECK_EQ(c.report.rejected, 0);
    CHECK_EQ(c.report.worst, BERTH_NO_TENSOR);
    CHECK_EQ(c.report.errors.different, 0);
    CHECK(c.report.errors.relative == 0);
    CHECK(isinf(c.report.errors.snr) && c.report.errors.snr > 0);
    CHECK_EQ(c.report.nan_a, c.report.nan_b);
    CHECK_GT(c.report.nan_a, 0);
    CHECK_GT(c.report.infinite_a, 0);
    CHECK_EQ(c.report.elements, c.report.errors.count + c.report.nan_a + c.report.infinite_a);
    for (uint32_t i = 0; i < c.count; i++) {
        CHECK_EQ(c.tensors[i].is_same, 1);
        CHECK_EQ(c.tensors[i].codes, 0);
        CHECK_EQ(c.tensors[i].errors.nonfinite, 0);
    }
}

static void
test_quantized(void)
{
    static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                     BERTH_ENCODING_INT8 };
    static const uint64_t shapes[][2] = { { 1031, 1033 }, { 65, 63 }, { 3, 700 } };
    const model m = model_begin(FIXTURE_CONFIG);
    const char *plain;
    const char *encoded[5];
    compared c;

    for (int i = 0; i < 3; i++) {
        void *const values =
            weights_values(BERTH_BF16, shapes[i][0] * shapes[i][1], 3, false);

        add(&m, fixture_format("model.layers.%d.a.weight", i), BERTH_BF16, shapes[i][0],
            shapes[i][1], values);
        free(values);
    }
    fixture_add_lines(m.builder, "BF16 5 model.norm.weight\nI64 3 model.numbers\n");
    plain = model_end(&m);
    for (int i = 0; i < 5; i++)
        encoded[i] = quantize(plain, types[i % 3], i > 2);
    for (int i = 0; i < 5; i++)
        for (int k = -1; k <= i; k++) {
            const char *const other = k < 0 ? plain : encoded[k];
            const berth_diff_tensor *t;

            CHECK_EQ(check_models(&c, i % 2 == 0 ? other : encoded[i],
                                  i % 2 == 0 ? encoded[i] : other),
                     4);
            t = find(&c, "model.layers.0.a.weight");
            CHECK_EQ(t->has_codes, k >= 0 && k % 3 == i % 3);
            CHECK_EQ(t->is_same, k == i);
            CHECK_EQ(t->has_same_statistics, k == i);
            if (k == i - 3) /* one level or two: the same codes */
                CHECK_EQ(t->codes, 0);
            t = find(&c, "model.numbers");
            CHECK_EQ(t->has_values, 0);
            CHECK_EQ(t->is_same, 1);
            CHECK_EQ(c.report.equal, k == i ? 5 : 2);
            CHECK_EQ(c.report.same, k == i ? 5 : 2);
        }
}

static void
test_turned(void)
{
    static const uint64_t shapes[][2] = { { 1201, 1507 }, { 7, 5 }, { 100, 1 }, { 1, 99 } };
    const model m = model_begin(GPT2);
    const char *plain;
    compared c;

    for (int i = 0; i < 4; i++) {
        void *const values =
            weights_values(BERTH_BF16, shapes[i][0] * shapes[i][1], 3, false);

        add(&m, fixture_format("transformer.h.%d.attn.c_attn.weight", i), BERTH_BF16,
            shapes[i][0], shapes[i][1], values);
        free(values);
    }
    plain = model_end(&m);
    for (int i = 0; i < 4; i++) {
        static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_INT8 };
        const char *const encoded = quantize(plain, types[i % 2], i == 2);

        CHECK_EQ(check_models(&c, plain, encoded), 4);
        CHECK_EQ(c.tensors[0].is_turned, 1);
        CHECK_EQ(c.tensors[0].a.shape[0], 1201);
        CHECK_EQ(c.tensors[0].b.shape[0], 1507);
        CHECK(c.tensors[0].errors.relative < 0.2);
        CHECK_EQ(check_models(&c, encoded, plain), 4);
        CHECK_EQ(c.tensors[0].is_turned, 1);
        CHECK(c.tensors[0].errors.relative < 0.2);
        /* Without a configuration its own codes are still its own codes. */
        fixture_remove(fixture_format("%s/config.json", encoded));
        compared_begin(&c);
        CHECK_EQ(compared_run(&c, encoded, quantize(plain, types[i % 2], i == 2)), BERTH_OK);
        CHECK_EQ(c.report.same, 4);
        CHECK_EQ(c.tensors[0].is_turned, 0);
    }
}

/* Experts are decoded as a whole; plain ones are read beside them. */
static void
test_experts(void)
{
    const char *const folder = fixture_folder();
    const char *const other = fixture_folder();
    const char *plain;
    compared c;

    fixture_model(folder, "[model.safetensors]\n"
                          "U8 5x48x3x16 model.layers.0.experts.x_blocks\n"
                          "U8 5x48x3 model.layers.0.experts.x_scales = 120\n"
                          "U8 3x1100x32x16 model.layers.1.experts.x_blocks\n"
                          "U8 3x1100x32 model.layers.1.experts.x_scales = 125\n"
                          "BF16 5 model.layers.0.experts.x_bias\n");
    fixture_copy_folder(folder, other);
    plain = decode(folder);
    CHECK_EQ(check_models(&c, folder, plain), 3);
    CHECK_STR(c.names[0], "model.layers.0.experts.x");
    CHECK_STR(c.names[1], "model.layers.0.experts.x_bias");
    CHECK_EQ(c.tensors[0].a.encoding, BERTH_ENCODING_MXFP4);
    CHECK_EQ(c.report.equal, 3);
    CHECK_EQ(check_models(&c, plain, folder), 3);
    CHECK_EQ(c.report.equal, 3);
    fixture_flip(fixture_format("%s/model.safetensors", other),
                 fixture_size(fixture_format("%s/model.safetensors", other)) - 7, 0x21);
    fixture_flip(fixture_format("%s/model.safetensors", plain),
                 fixture_size(fixture_format("%s/model.safetensors", plain)) - 9, 0x21);
    CHECK_EQ(check_models(&c, plain, other), 3);
    CHECK_EQ(check_models(&c, other, plain), 3);
    CHECK_LT(c.report.equal, 3);
    CHECK_EQ(check_models(&c, folder, other), 3);
    CHECK_EQ(c.report.same, 2);
}

/* --------------------------------------------------------------- what is found */

static void
test_kinds(void)
{
    const char *const a = fixture_folder();
    const char *const b = fixture_folder();
    static const struct {
        const char *name;
        int32_t kind;
        int32_t is_same;
        int32_t has_codes;
        int32_t has_values;
    } known[] = {
        { "a", BERTH_DIFF_ONLY_A, 0, 0, 0 },       { "aa", BERTH_DIFF_COMPARED, 1, 1, 1 },
        { "b", BERTH_DIFF_ONLY_B, 0, 0, 0 },       { "c", BERTH_DIFF_SHAPE, 0, 0, 0 },
        { "d", BERTH_DIFF_DTYPE, 0, 0, 0 },        { "e", BERTH_DIFF_COMPARED, 0, 1, 0 },
        { "empty", BERTH_DIFF_COMPARED, 1, 1, 1 }, { "f", BERTH_DIFF_SHAPE, 0, 0, 0 },
        { "g", BERTH_DIFF_COMPARED, 1, 1, 0 },     { "h", BERTH_DIFF_DTYPE, 0, 0, 0 },
        { "i", BERTH_DIFF_COMPARED, 0, 0, 1 },     { "s", BERTH_DIFF_COMPARED, 1, 1, 1 },
        { "z", BERTH_DIFF_ONLY_B, 0, 0, 0 },
    };
    compared c;

    fixture_model(a, "[model.safetensors]\nF32 3 a\nF32 2x3 aa\nF32 2x3 c\nI64 4 d\n"
                     "U8 5 e = 1 2 3 4 5\nBF16 0x7 empty\nBF16 4x2 f\nBOOL 9 g\n"
                     "I32 4 h\nF32 2 i = 1 2\nF16 - s\n");
    fixture_model(b, "[model.safetensors]\nF32 2x3 aa\nF32 3 b\nF32 3x2 c\nBF16 4 d\n"
                     "U8 5 e = 1 0 3 4 255\nBF16 0x7 empty\nBF16 8 f\nBOOL 9 g\n"
                     "I64 4 h\nBF16 2 i\nF16 - s\nF32 3 z\n");
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, a, b), BERTH_OK);
    T_REQUIRE(CHECK_EQ(c.count, sizeof known / sizeof known[0]));
    for (uint32_t i = 0; i < c.count; i++) {
        const berth_diff_tensor *const t = &c.tensors[i];

        CHECK_STR(c.names[i], known[i].name);
        if (!CHECK_EQ(t->kind, known[i].kind) || !CHECK_EQ(t->is_same, known[i].is_same)
            || !CHECK_EQ(t->has_codes, known[i].has_codes)
            || !CHECK_EQ(t->has_values, known[i].has_values))
            T_NOTE("%s", known[i].name);
        CHECK_EQ(t->is_rejected, 0);
    }
    CHECK_EQ(find(&c, "e")->codes, 2);
    CHECK_EQ(find(&c, "i")->errors.different, 2);
    CHECK_EQ(find(&c, "a")->a.bytes, 12);
    CHECK_EQ(find(&c, "a")->b.bytes, 0);
    CHECK_EQ(find(&c, "z")->b.bytes, 12);
    CHECK_EQ(find(&c, "z")->elements, 3);
    CHECK_EQ(find(&c, "c")->b.shape[0], 3);
    CHECK_EQ(find(&c, "c")->b.rank, 2);
    CHECK_EQ(find(&c, "s")->elements, 1);
    CHECK_EQ(find(&c, "s")->a.rank, 0);
    CHECK_EQ(find(&c, "empty")->errors.count, 0);
    CHECK_EQ(c.report.compared, 6);
    CHECK_EQ(c.report.same, 4);
    CHECK_EQ(c.report.equal, 4);
    CHECK_EQ(c.report.only_a, 1);
    CHECK_EQ(c.report.only_b, 2);
    CHECK_EQ(c.report.other_shape, 2);
    CHECK_EQ(c.report.other_dtype, 2);
    CHECK_EQ(c.report.elements, 6 + 5 + 0 + 9 + 2 + 1);
    CHECK_EQ(c.report.codes, 2);
    CHECK_EQ(c.report.errors.count, 6 + 2 + 1);
    CHECK_EQ(c.report.errors.histogram[0], 6 + 1);
    CHECK(c.report.errors.unit == 0);
    CHECK_NE(c.report.io_path[0], '\0');
    CHECK_GT(c.report.bytes_read, 0);
}

/* Bytes of codes, absmax and state that are turned one by one. */
static void
test_codes(void)
{
    const model m = model_begin(FIXTURE_CONFIG);
    void *const values = weights_values(BERTH_BF16, 33 * 33, 3, false);
    static const struct {
        const char *tensor;
        uint64_t from_end; /* 1: its last byte */
        unsigned mask;
        uint64_t codes;
        int32_t has_same_statistics;
    } known[] = {
        { "model.layers.0.a.weight", 545, 0x10, 1, 1 },
        { "model.layers.0.a.weight", 545, 0x31, 2, 1 },
        { "model.layers.0.a.weight", 300, 0x0F, 1, 1 },
        { "model.layers.0.a.weight", 1, 0x40, 1, 1 },
        { "model.layers.0.a.weight", 1, 0x04, 0, 1 }, /* no code: 33 * 33 is odd */
        { "model.layers.0.a.weight.absmax", 4, 0x01, 0, 0 },
        { "model.layers.0.a.weight.quant_map", 1, 0x01, 0, 1 },
        { "model.layers.0.a.weight.nested_absmax", 1, 0x01, 0, 0 },
    };
    const char *encoded;

    add(&m, "model.layers.0.a.weight", BERTH_BF16, 33, 33, values);
    free(values);
    encoded = quantize(model_end(&m), BERTH_ENCODING_NF4, true);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *const other = fixture_folder();
        const char *const file = fixture_format("%s/model.safetensors", other);
        berth_checkpoint *checkpoint;
        berth_context *context;
        berth_tensor tensor;
        compared c;

        fixture_copy_folder(encoded, other);
        CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
        CHECK_EQ(berth_checkpoint_open(context, other, NULL, &checkpoint, NULL), BERTH_OK);
        CHECK_EQ(berth_checkpoint_tensor(checkpoint,
                                         berth_checkpoint_find(checkpoint, known[i].tensor,
                                                               strlen(known[i].tensor)),
                                         &tensor),
                 BERTH_OK);
        fixture_flip(file, tensor.file_offset + tensor.bytes - known[i].from_end,
                     known[i].mask);
        berth_checkpoint_close(checkpoint);
        berth_context_destroy(context);
        compared_begin(&c);
        c.options.requires_same = 1;
        CHECK_EQ(compared_run(&c, encoded, other), BERTH_EPOLICY);
        CHECK_CONTAINS(c.error.message, "not the same bytes");
        if (!CHECK_EQ(c.tensors[0].codes, known[i].codes)
            || !CHECK_EQ(c.tensors[0].has_same_statistics, known[i].has_same_statistics)
            || !CHECK_EQ(c.tensors[0].is_same, 0))
            T_NOTE("%s, %d", known[i].tensor, (int)i);
        CHECK_EQ(c.report.codes, known[i].codes);
        CHECK_EQ(c.tensors[0].errors.different > 0,
                 known[i].codes > 0 || !known[i].has_same_statistics);
    }
}

/* The same absmax, rounded to another dtype as they are recovered. */
static void
test_nested_dtype(void)
{
    static const char from[] = "\"nested_dtype\": \"float32\"";
    const model m = model_begin(FIXTURE_CONFIG);
    void *const values = weights_values(BERTH_BF16, 33 * 33, 3, false);
    const char *const other = fixture_folder();
    const char *const file = fixture_format("%s/model.safetensors", other);
    const char *encoded;
    compared c;
    size_t length;
    char *bytes;
    size_t at;

    add(&m, "model.layers.0.a.weight", BERTH_BF16, 33, 33, values);
    free(values);
    encoded = quantize(model_end(&m), BERTH_ENCODING_NF4, true);
    fixture_copy_folder(encoded, other);
    bytes = fixture_read(file, &length);
    for (at = 0; at + sizeof from <= length && memcmp(bytes + at, from, sizeof from - 1) != 0;)
        at++;
    memcpy(bytes + at + sizeof from - 4, "16", 2);
    fixture_write(file, bytes, length);
    free(bytes);
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, encoded, other), BERTH_OK);
    CHECK_EQ(c.tensors[0].codes, 0);
    CHECK_EQ(c.tensors[0].has_same_statistics, 0);
    CHECK_EQ(c.tensors[0].is_same, 0);
}

/* Blocks of an odd size begin inside bytes: a unit's codes then come with some before them. */
static void
test_codes_of_other_blocks(void)
{
    static const char *const scales[] = { "300x6", "300x3" };
    const char *folders[2];
    compared c;

    for (uint32_t i = 0; i < 2; i++) {
        folders[i] = fixture_folder();
        fixture_model(folders[i],
                      fixture_format("[model.safetensors]\nI8 300x2193 a.weight\n"
                                     "F8_E8M0 %s a.weight_scale_inv = 127\n", scales[i]));
    }
    for (uint32_t i = 0; i < 2; i++) {
        compared_begin(&c);
        CHECK_EQ(compared_run(&c, folders[i], folders[1 - i]), BERTH_OK);
        T_REQUIRE(c.count == 1);
        CHECK_EQ(c.tensors[0].a.encoding, BERTH_ENCODING_FP4_PACKED);
        CHECK_EQ(c.tensors[0].codes, 0);
        CHECK_EQ(c.tensors[0].has_same_statistics, 0);
        CHECK_EQ(c.tensors[0].errors.different, 0);
    }
    fixture_flip(fixture_format("%s/model.safetensors", folders[1]),
                 fixture_size(fixture_format("%s/model.safetensors", folders[1])) - 2000, 0x11);
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, folders[0], folders[1]), BERTH_OK);
    CHECK_EQ(c.tensors[0].codes, 2);
}

/* A shard by itself, whose scales lie in another one: no values, and codes as they are. */
static void
test_codes_without_scales(void)
{
    const char *folders[2];
    compared c;

    for (uint32_t i = 0; i < 2; i++) {
        const char *const folder = fixture_folder();

        folders[i] = fixture_format("%s/model-00001-of-00002.safetensors", folder);
        fixture_file(folders[i], i == 0 ? "F8_E4M3 4x8 a.weight = 1\nBF16 4 b\n"
                                        : "F8_E4M3 4x8 a.weight = 1 2\nBF16 4 b\n");
        fixture_text(fixture_format("%s/config.json", folder),
                     "{\"quantization_config\": {\"quant_method\": \"fp8\"}}");
    }
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, folders[0], folders[1]), BERTH_OK);
    T_REQUIRE(c.count == 2);
    CHECK_EQ(c.tensors[0].has_values, 0);
    CHECK_EQ(c.tensors[0].is_same, 0);
    CHECK_EQ(c.tensors[0].codes, 31);
    CHECK_EQ(c.tensors[1].has_values, 1);
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, folders[0], folders[0]), BERTH_OK);
    CHECK_EQ(c.tensors[0].is_same, 1);
}

/* Numbers of 6 bits are counted one by one, also where a unit ends. */
static void
test_sixes(void)
{
    const char *const folders[2] = { fixture_folder(), fixture_folder() };
    const char *const file = fixture_format("%s/model.safetensors", folders[1]);
    uint64_t end;
    compared c;

    for (uint32_t i = 0; i < 2; i++)
        fixture_model(folders[i], "[model.safetensors]\nF6_E3M2 3000x2000 a\n");
    end = fixture_size(file);
    for (uint64_t i = 0; i < 6; i++) /* two groups on both sides of 4 MiB */
        fixture_flip(file, end - 4500000 + (UINT64_C(4) << 20) - 4 + i, 0xFF);
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, folders[0], folders[1]), BERTH_OK);
    T_REQUIRE(c.count == 1);
    CHECK_EQ(c.tensors[0].has_values, 0);
    CHECK_EQ(c.tensors[0].codes, 8);
    fixture_flip(file, end - 1, 0x80);
    fixture_flip(file, end - 3, 0xC0);
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, folders[0], folders[1]), BERTH_OK);
    CHECK_EQ(c.tensors[0].codes, 10);
}

/* Numbers of every width, against a loop over them. */
static void
test_count_codes(void)
{
    static const uint32_t widths[] = { 0, 1, 2, 4, 8 };
    uint8_t a[80];
    uint8_t b[80];
    uint64_t state = 1;

    for (int round = 0; round < 2000; round++) {
        const uint32_t width = widths[round % 5];
        const uint64_t bytes = weights_random(&state) % 10 * (width > 0 ? width : 1);
        const bool is_odd = width == 0 && round % 2 == 1;
        uint64_t expected = 0;

        for (size_t i = 0; i < sizeof a; i++) {
            a[i] = (uint8_t)weights_random(&state);
            b[i] = a[i];
            if (weights_random(&state) % 3 == 0)
                b[i] ^= (uint8_t)(weights_random(&state) & weights_random(&state));
        }
        for (uint64_t i = 0; i < bytes && width > 0; i += width)
            expected += memcmp(a + i, b + i, width) != 0;
        for (uint64_t i = 0; i < 2 * bytes && width == 0; i++)
            expected += !(is_odd && i == 2 * bytes - 1)
                        && (((a[i / 2] ^ b[i / 2]) >> (i % 2 == 0 ? 4 : 0)) & 15) != 0;
        if (!CHECK_EQ(berthi_diff_count_codes(a, b, bytes, width, is_odd), expected))
            T_NOTE("%u bytes each, %u bytes", width, (unsigned)bytes);
    }
}

/* ---------------------------------------------------------------------- limits */

/* Returns the status; `words` is part of the error's message where there is one. */
static void
check_limit(compared *c, const char *a, const char *b, const char *tensor,
            const char *words, uint64_t rejected)
{
    const berth_status status = compared_run(c, a, b);

    CHECK_EQ(status, rejected > 0 ? BERTH_EPOLICY : BERTH_OK);
    CHECK_EQ(c->report.rejected, rejected);
    if (status == BERTH_OK)
        return;
    CHECK_EQ(c->error.reason, BERTH_REASON_DIFFERENCE);
    CHECK_STR(c->error.tensor, tensor);
    CHECK_CONTAINS(c->error.message, words);
    CHECK_CONTAINS(c->error.file, "model.safetensors");
    for (uint32_t i = 0; i < c->count && rejected > 0; i++)
        rejected -= c->tensors[i].is_rejected ? 1 : 0;
    CHECK_EQ(rejected, 0);
}

static void
test_limits(void)
{
    const char *const a = fixture_folder();
    const char *const b = fixture_folder();
    const char *const d = fixture_folder();
    compared c;

    /* ||a|| = 2, error 0.002: 60 dB */
    fixture_model(a, "[model.safetensors]\nF32 4 m = 1\nF32 4 n = 1\nU8 2 o = 1\n");
    fixture_model(b, "[model.safetensors]\nF32 4 m = 1\nF32 4 n = 1 1 1.002 1\n"
                     "U8 2 o = 1\n");
    fixture_model(d, "[model.safetensors]\nF32 4 m = 1\nF32 2x2 n = 1\nU8 2 o = 2\n"
                     "F32 1 p\n");
    compared_begin(&c);
    check_limit(&c, a, b, "", "", 0);
    check_limit(&c, a, d, "", "", 0);
    c.options.has_min_snr = 1;
    c.options.min_snr = 59.9;
    check_limit(&c, a, b, "", "", 0);
    c.options.min_snr = 60.1;
    check_limit(&c, a, b, "n", "has an SNR of 60.00 dB", 1);
    c.options.min_snr = -1e300;
    check_limit(&c, a, d, "n", "has another shape", 3);
    c.options.allows_missing = 1;
    check_limit(&c, a, d, "n", "has another shape", 2);
    CHECK_EQ(find(&c, "o")->is_rejected, 1);
    CHECK_EQ(find(&c, "p")->is_rejected, 0);
    CHECK_EQ(find(&c, "m")->is_rejected, 0);
    c.options.has_min_snr = 0;
    c.options.has_max_relative = 1;
    c.options.max_relative = 0.0011;
    check_limit(&c, a, b, "", "", 0);
    c.options.max_relative = 0.0009;
    check_limit(&c, a, b, "n", "has a relative error of 0.000999987, more", 1);
    c.options.max_relative = 0;
    check_limit(&c, a, b, "n", "has a relative error", 1);
    check_limit(&c, a, a, "", "", 0);
    c.options.has_max_relative = 0;
    c.options.requires_same = 1;
    check_limit(&c, a, b, "n", "is not the same bytes", 1);
    check_limit(&c, a, d, "n", "has another shape", 2);
    c.options.allows_missing = 0;
    check_limit(&c, d, a, "n", "has another shape", 3);
}

static void
test_more_limits(void)
{
    const char *const a = fixture_folder();
    const char *const b = fixture_folder();
    compared c;

    fixture_model(a, "[model.safetensors]\nF32 2 m = 0\nF32 2 n = 1\nU8 2 o = 1\n");
    fixture_model(b, "[model.safetensors]\nF32 2 m = 1\nF32 2 n = nan 1\nBF16 2 o\n");
    compared_begin(&c);
    c.options.has_min_snr = 1;
    c.options.min_snr = 3;
    check_limit(&c, a, b, "m", "has an SNR of -infinite dB", 3);
    CHECK(isinf(find(&c, "m")->errors.relative));
    CHECK_EQ(c.report.worst, find(&c, "m")->a.tensor);
    CHECK_EQ(find(&c, "n")->errors.nonfinite, 1);
    c.options.has_min_snr = 0;
    c.options.has_max_relative = 1;
    c.options.max_relative = 1e9;
    check_limit(&c, a, b, "m", "has a relative error of infinite", 3);
    c.options.max_relative = INFINITY;
    check_limit(&c, a, b, "n", "has other NaN or infinities", 2);
}

/* ----------------------------------------------------------------- the same bits */

static void
test_determinism(void)
{
    static const struct {
        uint32_t workers;
        uint64_t ring_bytes;
        int32_t io;
    } ways[] = { { 1, 1, BERTH_IO_BUFFERED },        { 2, 0, BERTH_IO_DIRECT },
                 { 16, 1, BERTH_IO_BUFFERED },       { 5, 20 << 20, BERTH_IO_AUTO },
                 { 16, 256 << 20, BERTH_IO_DIRECT } };
    const char *a;
    const char *b;
    compared *const c = weights_alloc(2 * sizeof *c);

    make_near(BERTH_BF16, BERTH_F32, true, &a, &b);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        for (int repeat = 0; repeat < 3; repeat++) {
            compared *const now = &c[i + (size_t)repeat == 0 ? 0 : 1];

            compared_begin(now);
            now->options.workers = ways[i].workers;
            now->options.ring_bytes = ways[i].ring_bytes;
            now->options.io = ways[i].io;
            now->options.no_uring = repeat == 2;
            CHECK_EQ(compared_run(now, a, b), BERTH_OK);
            CHECK_EQ(now->count, 6);
            CHECK_MEM(now->tensors, c[0].tensors, 6 * sizeof now->tensors[0]);
            CHECK_MEM(&now->report.errors, &c[0].report.errors,
                      sizeof now->report.errors);
        }
    free(c);
}

/* ------------------------------------------------------------------------ the job */

static int
cancel(void *user, const berth_progress *progress)
{
    (void)user;
    (void)progress;
    return 1;
}

static int
note_progress(void *user, const berth_progress *progress)
{
    berth_progress *const last = user;

    CHECK_GE(progress->done, last->done);
    CHECK_STR(progress->phase, "compare");
    *last = *progress;
    return 0;
}

static void
test_progress(void)
{
    berth_progress last;
    const char *a;
    const char *b;
    compared c;

    make_near(BERTH_F32, BERTH_F32, false, &a, &b);
    memset(&last, 0, sizeof last);
    compared_begin(&c);
    c.options.progress = note_progress;
    c.options.progress_user = &last;
    CHECK_EQ(compared_run(&c, a, b), BERTH_OK);
    CHECK_EQ(last.done, last.total);
    CHECK_EQ(last.total, 2 * 4 * c.report.elements);
    c.options.progress = cancel;
    CHECK_EQ(compared_run(&c, a, b), BERTH_ECANCELLED);
}

static void
test_arguments(void)
{
    const char *const folder = fixture_folder();
    berth_checkpoint *checkpoint;
    berth_context *context;
    berth_diff_options options;
    berth_error error;
    berth_job *job = (berth_job *)(void *)&options;

    fixture_model(folder, "[model.safetensors]\nF32 3 a\n");
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL), BERTH_OK);
    CHECK_EQ(berth_diff_start(NULL, checkpoint, checkpoint, NULL, &job, &error),
             BERTH_EINVAL);
    CHECK(job == NULL);
    CHECK_EQ(berth_diff_start(context, NULL, checkpoint, NULL, &job, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`a`");
    CHECK_EQ(berth_diff_start(context, checkpoint, NULL, NULL, &job, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`b`");
    CHECK_EQ(berth_diff_start(context, checkpoint, checkpoint, NULL, NULL, &error),
             BERTH_EINVAL);
    berth_diff_options_init(&options);
    options.io = 3;
    CHECK_EQ(berth_diff_start(context, checkpoint, checkpoint, &options, &job, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "unknown io");
    options.io = -1;
    CHECK_EQ(berth_diff_start(context, checkpoint, checkpoint, &options, &job, &error),
             BERTH_EINVAL);
    berth_diff_options_init(&options);
    options.has_min_snr = 1;
    options.min_snr = NAN;
    CHECK_EQ(berth_diff_start(context, checkpoint, checkpoint, &options, &job, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "min_snr");
    berth_diff_options_init(&options);
    options.has_max_relative = 1;
    options.max_relative = -0.1;
    CHECK_EQ(berth_diff_start(context, checkpoint, checkpoint, &options, &job, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "max_relative");
    options.max_relative = NAN;
    CHECK_EQ(berth_diff_start(context, checkpoint, checkpoint, &options, &job, &error),
             BERTH_EINVAL);
    options.struct_size = 0;
    CHECK_EQ(berth_diff_start(context, checkpoint, checkpoint, &options, &job, &error),
             BERTH_EINVAL);
    /* Without options: no report, nobody told. */
    CHECK_EQ(berth_diff_start(context, checkpoint, checkpoint, NULL, &job, &error),
             BERTH_OK);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}

static void
test_refused_sources(void)
{
    const char *const folder = fixture_folder();
    const char *const huge = fixture_folder();
    compared c;

    fixture_model(folder, "[model.safetensors]\nI32 8x16 m.qweight\nI32 1x2 m.qzeros\n"
                          "F16 1x16 m.scales\nI32 64 m.g_idx\n");
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}");
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, folder, folder), BERTH_EUNSUPPORTED);
    CHECK_EQ(c.error.reason, BERTH_REASON_QUANT_METHOD);
    /* An expert of 17 million values. */
    fixture_model(huge, "[model.safetensors]\nU8 1x4400x128x16 m.x_blocks = 1\n"
                        "U8 1x4400x128 m.x_scales = 120\n");
    CHECK_EQ(compared_run(&c, huge, huge), BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(c.error.message, "16 million values");
    CHECK_STR(c.error.tensor, "m.x");
}

/* A weight goes on in the next batch, and many small ones fill more than one. */
static void
test_batches(void)
{
    fixture_builder *const b = fixture_begin();
    const char *const folder = fixture_folder();
    const uint64_t shape[1] = { 3 };
    compared c;

    for (int i = 0; i < 5000; i++)
        fixture_add(b, fixture_format("w%04d", i), "F32", 1, shape, NULL);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    compared_begin(&c);
    c.options.tensor = NULL;
    CHECK_EQ(compared_run(&c, folder, folder), BERTH_OK);
    CHECK_EQ(c.report.compared, 5000);
    CHECK_EQ(c.report.same, 5000);
    CHECK_EQ(c.report.errors.count + c.report.nan_a + c.report.infinite_a, 15000);
}

static berth_status
compare_twice(void *user, berth_context *context, berth_error *error)
{
    const char *const *const paths = user;
    compared *const c = weights_alloc(sizeof *c);
    berth_status status;

    compared_begin(c);
    c->options.workers = 2;
    status = compared_run_in(c, context, paths[0], paths[1]);
    *error = c->error;
    free(c);
    return status;
}

static void
test_faults(void)
{
    const model m = model_begin(GPT2);
    void *const values = weights_values(BERTH_BF16, 40 * 33, 3, false);
    const char *paths[2];
    fault_counts counts;

    for (int i = 0; i < 2; i++)
        add(&m, fixture_format("transformer.h.%d.attn.c_attn.weight", i), BERTH_BF16, 40,
            33, values);
    free(values);
    fixture_add_lines(m.builder, "BF16 5 transformer.ln_f.weight\nI64 3 numbers\n");
    paths[0] = model_end(&m);
    paths[1] = quantize(paths[0], BERTH_ENCODING_NF4, true);
    counts = fault_loop("turned", compare_twice, paths);
    CHECK_GT(counts.memory, 20);
    CHECK_GT(counts.system, 20);
    paths[0] = quantize(paths[0], BERTH_ENCODING_FP4, false);
    counts = fault_loop("paired", compare_twice, paths);
    CHECK_GT(counts.memory, 20);
    CHECK_GT(counts.system, 20);
}

/* ----------------------------------------------------------------- recordings */

static void
test_recorded(void)
{
    static const char *const models[] = { "llama", "gpt2", "mixtral", "opt", "t5", "qwen3" };
    static const char *const variants[] = { "nf4", "nf4_dq", "fp4", "int8" };

    if (access(GOLDEN, R_OK) != 0)
        T_SKIP("the recorded checkpoints are not there");
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++)
        for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
            const char *const b = fixture_format(GOLDEN "/%s/%s", models[m], variants[v]);
            compared c;

            if (access(b, R_OK) != 0)
                continue;
            compared_begin(&c);
            if (!CHECK_EQ(compared_run(&c, fixture_format(GOLDEN "/%s/source", models[m]), b),
                          BERTH_OK))
                T_NOTE("%s: %s %s", b, c.error.tensor, c.error.message);
            CHECK_EQ(c.report.only_a + c.report.only_b + c.report.other_shape
                         + c.report.other_dtype,
                     0);
            CHECK_GT(c.report.compared, 20);
            CHECK_LT(c.report.equal, c.report.compared);
            CHECK(c.report.worst_relative > 0);
            CHECK(c.report.worst_relative
                  < (strcmp(variants[v], "int8") == 0  ? 0.01
                     : strcmp(variants[v], "fp4") == 0 ? 0.13
                                                       : 0.1));
        }
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_plain_values);
    T_RUN(test_the_same);
    T_RUN(test_quantized);
    T_RUN(test_turned);
    T_RUN(test_experts);
    T_RUN(test_kinds);
    T_RUN(test_codes);
    T_RUN(test_nested_dtype);
    T_RUN(test_codes_of_other_blocks);
    T_RUN(test_codes_without_scales);
    T_RUN(test_sixes);
    T_RUN(test_count_codes);
    T_RUN(test_limits);
    T_RUN(test_more_limits);
    T_RUN(test_determinism);
    T_RUN(test_progress);
    T_RUN(test_arguments);
    T_RUN(test_refused_sources);
    T_RUN(test_batches);
    T_RUN(test_faults);
    T_RUN(test_recorded);
    T_MAIN_END;
}
