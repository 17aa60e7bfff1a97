/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_write.c - few words of the host on each kind of device: there in the stream's
 * order, as they were when they were handed over, and nothing beside them. A GPU gets them with
 * a launch: nobody waits, and a graph may have them.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/kernel_arguments.h"
#include "tests/fake_cuda.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"

#define BYTES 8192u /* of memory */

static const fake_cuda_machine gpu = { .count = 1, .driver = 13000, .architecture = 90,
                                       .memory_bytes = UINT64_C(64) << 20, .is_late = true };

static void
carry(const rig *r, void *to, const void *from, int32_t kind)
{
    const berthi_copy copy = { .kind = kind, .to = to, .from = from, .bytes = BYTES };

    CHECK_EQ(r->device->table->copy(r->device, &copy, NULL, NULL), BERTH_OK);
    rig_sync(r->device, NULL);
}

/* What is handed over is something else by the time that it is there. */
static void
check_bytes(const rig *r, uint8_t *memory, uint32_t at, uint32_t bytes)
{
    uint8_t expected[BYTES];
    uint8_t found[BYTES];
    uint8_t words[BERTHI_WRITE_BYTES];

    memset(expected, 0x5A, sizeof expected);
    carry(r, memory, expected, BERTHI_COPY_TO_DEVICE);
    for (uint32_t i = 0; i < bytes; i++)
        words[i] = expected[at + i] = (uint8_t)(7 * i + bytes);
    CHECK_EQ(berthi_device_write(r->device, memory + at, words, bytes, NULL, NULL), BERTH_OK);
    memset(words, 0xEE, sizeof words);
    rig_sync(r->device, NULL);
    carry(r, found, memory, BERTHI_COPY_TO_HOST);
    CHECK_MEM(found, expected, sizeof found);
}

static void
check_device(const rig *r)
{
    static const uint32_t lengths[] = { 0, 4, 192, 1020, 1024, 1028, BERTHI_WRITE_BYTES };
    uint8_t *const memory = rig_alloc(r->device, BYTES);

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        check_bytes(r, memory, 0, lengths[i]);
        check_bytes(r, memory, 1004, lengths[i]);
    }
    r->device->table->free(r->device, memory, BYTES);
}

static void
test_processors_and_simulations(void)
{
    static const char *const words[] = { "cpu", "sim:64MiB,h2d=1GB/s,backing=sealed" };

    for (size_t i = 0; i < 2; i++) {
        rig r;

        T_REQUIRE(rig_open(&r, words[i]));
        check_device(&r);
        rig_close(&r);
    }
}

static void
test_gpus(void)
{
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    fake_cuda_begin(&gpu);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    check_device(&r);
    CHECK_GT(fake_cuda_read().launched[KERNEL_write_words], 0);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
}

/* A copy of the host's memory would wait for the stream, which ends a capture. */
static void
test_graphs(void)
{
    const uint32_t words[3] = { 1, 2, 3 };
    uint8_t *memory;
    void *stream;
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    fake_cuda_begin(&gpu);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    memory = rig_alloc(r.device, BYTES);
    stream = fake_cuda_stream();
    fake_cuda_begin_capture(stream);
    CHECK_EQ(berthi_device_write(r.device, memory, words, sizeof words, stream, NULL), BERTH_OK);
    fake_cuda_end_capture(stream);
    rig_sync(r.device, stream);
    r.device->table->free(r.device, memory, BYTES);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
}

static void
refuse(const rig *r, void *to, uint64_t bytes, const char *words)
{
    static const uint8_t from[2 * BERTHI_WRITE_BYTES];
    berth_error error;

    CHECK_EQ(r->device->table->write(r->device, to, from, bytes, NULL, &error),
             BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(error.message, words);
}

static void
test_refused(void)
{
    uint8_t *memory;
    rig r;

    fake_cuda_begin(&gpu);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    memory = rig_alloc(r.device, BYTES);
    refuse(&r, memory, BERTHI_WRITE_BYTES + 4, "no kernel brings 2052 bytes along");
    refuse(&r, memory, 6, "no kernel brings 6 bytes along");
    refuse(&r, memory + 2, 8, "words at an address that is no multiple of 4");
    CHECK_EQ(fake_cuda_read().under_way, 0);
    r.device->table->free(r.device, memory, BYTES);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
}

/* Rings have sums in an order of their own: experts of such weights are no group. */
static void
test_groups(void)
{
    berthi_request request = {
        .operation = BERTHI_OPERATION_EXPERTS_NF4,
        .arguments.experts = { .expert_count = 1, .most_inputs = 1, .codes_alignment = 256,
                               .block_size = 64, .rows = 64, .columns = 4096,
                               .dtype = BERTH_BF16 },
    };
    berthi_experts_arguments *const a = &request.arguments.experts;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB"));
    CHECK(berthi_device_groups_experts(r.device, &request));
    rig_close(&r);
    fake_cuda_begin(&gpu);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    CHECK(!berthi_device_groups_experts(r.device, &request));
    a->is_double = true;
    CHECK(!berthi_device_groups_experts(r.device, &request));
    a->columns = 4096 - 256;
    CHECK(berthi_device_groups_experts(r.device, &request));
    a->columns = 4096;
    a->block_size = 128;
    CHECK(berthi_device_groups_experts(r.device, &request));
    a->block_size = 64;
    a->dtype = BERTH_F32;
    CHECK(berthi_device_groups_experts(r.device, &request));
    request.operation = BERTHI_OPERATION_COUNT;
    CHECK(!berthi_device_groups_experts(r.device, &request));
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_processors_and_simulations);
    T_RUN(test_gpus);
    T_RUN(test_graphs);
    T_RUN(test_refused);
    T_RUN(test_groups);
    T_MAIN_END;
}
