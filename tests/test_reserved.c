/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reserved.c - words of option structs that are reserved: a newer header may have
 * made a field of one, so it is refused when it is set, and never ignored.
 */
#include <string.h>

#include "tests/loaded.h"
#include "tests/t.h"

/* Refused while the word is set, by a call that would else go further. */
#define CHECK_REFUSED(word, name, call)                                                    \
    do {                                                                                   \
        (word) = 1;                                                                        \
        memset(&error, 0, sizeof error);                                                   \
        CHECK_EQ(call, BERTH_EINVAL);                                                      \
        CHECK_STR(error.message,                                                           \
                  "argument `" name "` sets a field that this library does not know");     \
        (word) = 0;                                                                        \
    } while (0)

/* The same for each of an array of words. */
#define CHECK_ALL_REFUSED(words, name, call)                                               \
    do {                                                                                   \
        for (size_t at = 0; at < sizeof(words) / sizeof(words)[0]; at++)                   \
            CHECK_REFUSED((words)[at], name, call);                                        \
    } while (0)

static void
test_opening(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);
    berth_checkpoint *checkpoint;
    berth_context_options options;
    berth_open_options opening;
    berth_context *context;
    berth_shape *shape;
    berth_error error;

    berth_context_options_init(&options);
    CHECK_REFUSED(options.reserved32, "options",
                  berth_context_create(&options, &context, &error));
    CHECK(context == NULL);
    CHECK_EQ(berth_context_create(&options, &context, &error), BERTH_OK);
    berth_open_options_init(&opening);
    CHECK_REFUSED(opening.reserved32, "options",
                  berth_checkpoint_open(context, folder, &opening, &checkpoint, &error));
    CHECK_REFUSED(opening.reserved32, "options",
                  berth_shape_open(context, folder, &opening, &shape, &error));
    berth_context_destroy(context);
}

static void
test_planning_and_loading(void)
{
    berth_plan_options options = loaded_options("cpu=64MiB");
    berth_slices_options slices;
    berth_check_options check;
    berth_bench_options bench;
    berth_load_options load;
    berth_move_options move;
    berth_job *job;
    berth_plan *plan;
    berth_error error;
    loaded l;

    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, NULL);
    CHECK_ALL_REFUSED(options.reserved, "options",
                      berth_plan_create(l.p.context, l.p.checkpoint, &options, &plan, &error));
    berth_load_options_init(&load);
    CHECK_REFUSED(load.reserved32, "options",
                  berth_load_start(l.p.context, l.p.checkpoint, l.p.plan, &load, &job, &error));
    CHECK_ALL_REFUSED(
        load.reserved, "options",
        berth_load_start(l.p.context, l.p.checkpoint, l.p.plan, &load, &job, &error));
    berth_slices_options_init(&slices);
    CHECK_ALL_REFUSED(slices.reserved, "options",
                      berth_slices_start(l.p.context, l.p.checkpoint, NULL, 0, &slices, &job,
                                         &error));
    berth_bench_options_init(&bench);
    CHECK_REFUSED(bench.reserved32, "options",
                  berth_bench_start(l.p.context, &bench, &job, &error));
    CHECK_ALL_REFUSED(bench.reserved, "options",
                      berth_bench_start(l.p.context, &bench, &job, &error));
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_OK);
    berth_check_options_init(&check);
    CHECK_ALL_REFUSED(check.reserved, "options",
                      berth_check_start(l.model, &check, &job, &error));
    berth_move_options_init(&move);
    CHECK_REFUSED(move.reserved32, "options",
                  berth_model_sleep_start(l.model, &move, &job, &error));
    CHECK_ALL_REFUSED(move.reserved, "options",
                      berth_model_sleep_start(l.model, &move, &job, &error));
    CHECK_EQ(berth_model_get_state(l.model), BERTH_MODEL_AWAKE);
    loaded_unload(&l);
    loaded_end(&l);
}

static void
test_estimating(void)
{
    berth_plan_options options = loaded_options("cpu=64MiB");
    berth_estimate_options wanted;
    berth_train_options train;
    berth_estimate *estimate;
    berth_shape *shape;
    berth_error error;
    loaded l;

    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, NULL);
    CHECK_EQ(berth_shape_open(l.p.context, loaded_llama(1, "BF16", 1), NULL, &shape, &error),
             BERTH_OK);
    berth_estimate_options_init(&wanted);
    berth_train_options_init(&train);
    CHECK_REFUSED(wanted.reserved32, "options",
                  berth_estimate_create(l.p.context, shape, &wanted, &estimate, &error));
    wanted.train = &train;
    CHECK_REFUSED(train.reserved32, "train",
                  berth_estimate_create(l.p.context, shape, &wanted, &estimate, &error));
    berth_shape_close(shape);
    loaded_end(&l);
}

static void
test_values(void)
{
    const uint64_t shape[2] = { 2, 64 };
    unsigned char codes[64];
    uint16_t values[128] = { 0 };
    float absmax[2];
    berth_values_options options;
    berth_values_buffers buffers;
    berth_values_product product;
    berth_context *context;
    berth_error error;

    CHECK_EQ(berth_context_create(NULL, &context, &error), BERTH_OK);
    berth_values_options_init(&options);
    options.encoding = BERTH_ENCODING_NF4;
    options.dtype = BERTH_BF16;
    options.shape = shape;
    options.rank = 2;
    berth_values_buffers_init(&buffers);
    buffers.codes = codes;
    buffers.codes_bytes = sizeof codes;
    buffers.absmax = absmax;
    buffers.absmax_bytes = sizeof absmax;
    CHECK_EQ(berth_values_quantize(context, &options, values, sizeof values, &buffers, &error),
             BERTH_OK);
    CHECK_REFUSED(
        options.reserved32, "options",
        berth_values_quantize(context, &options, values, sizeof values, &buffers, &error));
    CHECK_REFUSED(
        buffers.reserved32, "buffers",
        berth_values_quantize(context, &options, values, sizeof values, &buffers, &error));
    berth_values_product_init(&product);
    CHECK_REFUSED(product.reserved32, "product",
                  berth_values_multiply(context, &options, &buffers, &product, &error));
    berth_context_destroy(context);
}

static void
test_optimizers(void)
{
    const uint64_t shape[1] = { 64 };
    float values[64] = { 0 };
    const berth_gradient gradient = { .values = values, .dtype = BERTH_F32 };
    berth_optimizer_options options;
    berth_optimizer_group group;
    berth_parameter parameter = { .name = "w", .shape = shape, .rank = 1,
                                  .dtype = BERTH_F32, .values = values };
    berth_optimizer *optimizer;
    berth_step_options step;
    berth_context *context;
    berth_error error;

    CHECK_EQ(berth_context_create(NULL, &context, &error), BERTH_OK);
    CHECK_EQ(berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW), BERTH_OK);
    berth_optimizer_options_init(&options);
    CHECK_REFUSED(options.reserved32, "options",
                  berth_optimizer_create(context, &group, 1, &parameter, 1, &options,
                                         &optimizer, &error));
    CHECK_ALL_REFUSED(options.reserved, "options",
                      berth_optimizer_create(context, &group, 1, &parameter, 1, &options,
                                             &optimizer, &error));
    CHECK_ALL_REFUSED(group.reserved, "groups",
                      berth_optimizer_create(context, &group, 1, &parameter, 1, &options,
                                             &optimizer, &error));
    CHECK_EQ(berth_optimizer_create(context, &group, 1, &parameter, 1, &options, &optimizer,
                                    &error),
             BERTH_OK);
    CHECK_ALL_REFUSED(group.reserved, "group",
                      berth_optimizer_set_group(optimizer, 0, &group, &error));
    berth_step_options_init(&step);
    CHECK_ALL_REFUSED(step.reserved, "options",
                      berth_optimizer_step(optimizer, &gradient, &step, &error));
    berth_optimizer_destroy(optimizer);
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_opening);
    T_RUN(test_planning_and_loading);
    T_RUN(test_estimating);
    T_RUN(test_values);
    T_RUN(test_optimizers);
    return t_end();
}
