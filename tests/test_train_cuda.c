/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_train_cuda.c - optimizers on GPUs of a fake runtime that does everything late: updates by
 * the kernels' bodies, states on the device, in pinned memory of the host and on the disk. Every
 * value and every state are what the processor's are.
 */
#include "loader/optimizer.h"
#include "tests/fake_cuda.h"
#include "tests/fixture.h"
#include "tests/simt.h"
#include "tests/t.h"
#include "tests/trained.h"

#define ALL UINT32_MAX
#define MIB UINT64_C(1048576)
/* Of what is known to hang; all else has the time that it takes. */
#define HUNG_NS UINT64_C(100000000)

static const char *folder;
static berth_context *context;

static const trained_parameter mixed[] = {
    { 8193, BERTH_F32, BERTH_BF16, 0, 0 },  { 1025, BERTH_BF16, BERTH_BF16, 0, 1 },
    { 999, BERTH_BF16, BERTH_F32, 0, 0 },   { 4097, BERTH_F16, BERTH_F16, 1, 1 },
    { 9000, BERTH_BF16, BERTH_BF16, 1, 0 }, { 5000, BERTH_BF16, BERTH_BF16, 2, 0 },
};
#define MIXED ((uint32_t)(sizeof mixed / sizeof *mixed))

/* On two GPUs; `place` is that of all states that may be elsewhere. */
static void
check_place(int32_t place)
{
    const fake_cuda_machine machine = { .count = 2, .driver = 13000, .architecture = 90,
                                        .memory_bytes = 16 * MIB, .is_late = true };
    berth_optimizer_group groups[3] = { trained_group(BERTH_UPDATE_ADAMW, 8, place),
                                        trained_group(BERTH_UPDATE_LION, 8, place),
                                        trained_group(BERTH_UPDATE_ADEMAMIX, 32, place) };
    berth_optimizer_options options;
    trained t;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    groups[0].has_master = 1;
    berth_optimizer_options_init(&options);
    options.states_dir = folder;
    options.page_elements = 4096;
    options.slots = 2;
    fake_cuda_begin(&machine);
    if (trained_open(&t, context,
                     &(trained_options){ .devices = "cuda", .cuda = fake_cuda_calls(),
                                         .groups = groups, .group_count = 3,
                                         .parameters = mixed, .count = MIXED,
                                         .optimizer = &options, .seed = (uint64_t)place })) {
        trained_step(&t, ALL, false);
        trained_step(&t, 0x2D, true);
        trained_check(&t);
        CHECK_EQ(berth_optimizer_move(t.optimizer, 0, (place + 1) % BERTH_STATES_PLACE_COUNT,
                                      NULL),
                 BERTH_OK);
        trained_step(&t, ALL, false);
        trained_check(&t);
        CHECK_GT(fake_cuda_read().launches, 0);
    }
    trained_close(&t);
    fake_cuda_check_empty();
    CHECK_EQ(fake_cuda_error_left(), 0);
    fake_cuda_end();
}

static void
test_states_on_the_device(void)
{
    check_place(BERTH_STATES_DEVICE);
}

static void
test_states_of_the_host(void)
{
    check_place(BERTH_STATES_HOST);
}

static void
test_states_on_the_disk(void)
{
    check_place(BERTH_STATES_DISK);
}

/* Whoever reads, or moves, behind a step that hangs gives up in time: nothing is pinned before. */
static void
test_behind_a_step(void)
{
    const fake_cuda_machine machine = { .count = 1, .driver = 13000, .architecture = 90,
                                        .memory_bytes = 16 * MIB, .is_late = true };
    static const trained_parameter one[] = { { 9000, BERTH_BF16, BERTH_BF16, 0, 0 } };
    const berth_optimizer_group group = trained_group(BERTH_UPDATE_ADAMW, 8,
                                                      BERTH_STATES_DEVICE);
    berth_optimizer_options options;
    uint64_t patience_ns;
    berth_error error;
    float number;
    trained t;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    berth_optimizer_options_init(&options);
    options.states_dir = folder;
    fake_cuda_begin(&machine);
    if (trained_open(&t, context,
                     &(trained_options){ .devices = "cuda", .cuda = fake_cuda_calls(),
                                         .groups = &group, .group_count = 1,
                                         .parameters = one, .count = 1,
                                         .optimizer = &options })) {
        trained_step(&t, ALL, false);
        fake_cuda_hang(true);
        patience_ns = t.optimizer->wait_ns;
        t.optimizer->wait_ns = HUNG_NS;
        CHECK_EQ(berth_optimizer_read(t.optimizer, 0, 0, 0, 1, &number, &error), BERTH_EIO);
        CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
        for (int32_t place = BERTH_STATES_HOST; place <= BERTH_STATES_DISK; place++) {
            CHECK_EQ(berth_optimizer_move(t.optimizer, 0, place, &error), BERTH_EIO);
            CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
        }
        CHECK_EQ(fake_cuda_read().stuck, 0);
        fake_cuda_hang(false);
        t.optimizer->wait_ns = patience_ns;
        trained_check(&t);
    }
    trained_close(&t);
    fake_cuda_check_empty();
    fake_cuda_end();
}

/* Refused when it is made, not in a step. */
static void
test_without_kernels(void)
{
    const fake_cuda_machine machine = { .count = 1, .driver = 13000, .architecture = 75,
                                        .memory_bytes = 16 * MIB };
    const berth_optimizer_group group = trained_group(BERTH_UPDATE_ADAMW, 32,
                                                      BERTH_STATES_DEVICE);
    const uint64_t shape[] = { 64 };
    float values[64] = { 0 };
    const berth_parameter parameter = { .name = "p", .shape = shape, .rank = 1,
                                        .dtype = BERTH_F32, .values = values };
    berth_optimizer_options options;
    berth_optimizer *optimizer;
    berth_error error;

    berth_optimizer_options_init(&options);
    fake_cuda_begin(&machine);
    T_REQUIRE(berthi_devices_open_cuda(context, fake_cuda_calls(), "cuda", &options.devices,
                                       NULL) == BERTH_OK);
    CHECK_EQ(berth_optimizer_create(context, &group, 1, &parameter, 1, &options, &optimizer,
                                    &error),
             BERTH_EUNSUPPORTED);
    CHECK(optimizer == NULL);
    CHECK_STR(error.message, "device cuda:0 (Fake GPU, sm_75, 0000:3b:00.0, no kernels) cannot "
                             "update parameters");
    berth_devices_close(options.devices);
    fake_cuda_check_empty();
    fake_cuda_end();
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    folder = fixture_folder();
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_RUN(test_states_on_the_device);
    T_RUN(test_states_of_the_host);
    T_RUN(test_states_on_the_disk);
    T_RUN(test_behind_a_step);
    T_RUN(test_without_kernels);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.allocations, memory.frees);
    berth_context_destroy(context);
    T_MAIN_END;
}
