/* SPDX-License-Identifier: Apache-2.0 */
/* compared.c - see compared.h. */
#include "tests/compared.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/weights.h"

static void
keep_tensor(void *user, const berth_diff_tensor *tensor)
{
    compared *const c = user;

    if (!CHECK_LT(c->count, COMPARED_TENSORS) || !CHECK_LT(tensor->name_length, 128))
        return;
    c->tensors[c->count] = *tensor;
    memcpy(c->names[c->count], tensor->name, tensor->name_length);
    c->names[c->count][tensor->name_length] = '\0';
    c->tensors[c->count].name = NULL;
    if (c->count > 0)
        CHECK_LE(strcmp(c->names[c->count - 1], c->names[c->count]), 0);
    c->count++;
}

void
compared_begin(compared *c)
{
    memset(c, 0, sizeof *c);
    berth_diff_options_init(&c->options);
    c->options.tensor = keep_tensor;
    c->options.tensor_user = c;
    c->options.report = &c->report;
}

berth_status
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

berth_status
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

const berth_diff_tensor *
compared_find(const compared *c, const char *name)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (strcmp(c->names[i], name) == 0)
            return &c->tensors[i];
    CHECK_STR("", name);
    return &c->tensors[0];
}

/* ---------------------------------------------------------------- the oracle */

const char *
compared_decode(const char *path)
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
    CHECK_EQ(berth_checkpoint_open(context, compared_decode(a), NULL, &checkpoints[0], NULL),
             BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, compared_decode(b), NULL, &checkpoints[1], NULL),
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

uint32_t
compared_check(compared *c, const char *a, const char *b)
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

compared_model
compared_model_begin(const char *config)
{
    const compared_model m = { fixture_folder(), fixture_begin() };

    if (config != NULL)
        fixture_text(fixture_format("%s/config.json", m.folder), config);
    return m;
}

void
compared_model_add(const compared_model *m, const char *name, int32_t dtype, uint64_t rows,
                   uint64_t columns, const void *values)
{
    const uint64_t shape[2] = { rows, columns };

    fixture_add(m->builder, name, berth_dtype_name(dtype), 2, shape, values);
}

const char *
compared_model_end(const compared_model *m)
{
    fixture_finish(m->builder, fixture_format("%s/model.safetensors", m->folder));
    return m->folder;
}

const char *
compared_quantize(const char *path, int32_t type, bool is_double)
{
    const char *const out = fixture_format("%s/out", fixture_folder());
    converted c;

    converted_begin(&c, out, type);
    c.options.double_quant = is_double;
    if (!CHECK_EQ(converted_run(&c, path), BERTH_OK))
        T_NOTE("%s: %s %s", path, c.error.tensor, c.error.message);
    return out;
}

void
compared_make_near(int32_t a_dtype, int32_t b_dtype, bool is_odd, const char **a,
                   const char **b)
{
    static const uint64_t shapes[][2] = { { 1, 1 },   { 7, 73 },    { 1, 512 },
                                          { 3, 171 }, { 128, 128 }, { 1027, 1031 } };
    const compared_model models[2] = { compared_model_begin(NULL), compared_model_begin(NULL) };

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
        compared_model_add(&models[0], fixture_format("m%d.weight", (int)i), a_dtype, shapes[i][0],
                           shapes[i][1], first);
        compared_model_add(&models[1], fixture_format("m%d.weight", (int)i), b_dtype, shapes[i][0],
                           shapes[i][1], second);
        free(first);
        free(second);
    }
    *a = compared_model_end(&models[0]);
    *b = compared_model_end(&models[1]);
}
