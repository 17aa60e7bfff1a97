/* SPDX-License-Identifier: Apache-2.0 */
/* test_diff_job.c - limits, jobs, faults and recordings of berth_diff_start(). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/compared.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/weights.h"

#define GOLDEN "../shared/golden/quant"

#define GPT2 "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\"}\n"

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
    CHECK_EQ(compared_find(&c, "o")->is_rejected, 1);
    CHECK_EQ(compared_find(&c, "p")->is_rejected, 0);
    CHECK_EQ(compared_find(&c, "m")->is_rejected, 0);
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
    CHECK(isinf(compared_find(&c, "m")->errors.relative));
    CHECK_EQ(c.report.worst, compared_find(&c, "m")->a.tensor);
    CHECK_EQ(compared_find(&c, "n")->errors.nonfinite, 1);
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

    compared_make_near(BERTH_BF16, BERTH_F32, true, &a, &b);
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

    compared_make_near(BERTH_F32, BERTH_F32, false, &a, &b);
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
    const char *const huge = fixture_folder();
    compared c;

    /* An expert of 17 million values. */
    compared_begin(&c);
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
    const compared_model m = compared_model_begin(GPT2);
    void *const values = weights_values(BERTH_BF16, 40 * 33, 3, false);
    const char *paths[2];
    fault_counts counts;

    for (int i = 0; i < 2; i++)
        compared_model_add(&m, fixture_format("transformer.h.%d.attn.c_attn.weight", i),
                           BERTH_BF16, 40, 33, values);
    free(values);
    fixture_add_lines(m.builder, "BF16 5 transformer.ln_f.weight\nI64 3 numbers\n");
    paths[0] = compared_model_end(&m);
    paths[1] = compared_quantize(paths[0], BERTH_ENCODING_NF4, true);
    counts = fault_loop("turned", compare_twice, paths);
    CHECK_GT(counts.memory, 20);
    CHECK_GT(counts.system, 20);
    paths[0] = compared_quantize(paths[0], BERTH_ENCODING_FP4, false);
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
    T_MAIN_BEGIN(argc, argv);
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
