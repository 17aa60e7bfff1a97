/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_faults.c - every call of the CUDA runtime fails in turn. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda_device.h"
#include "kernels/sys.h"
#include "kernels/tables.h"
#include "tests/fake_cuda.h"
#include "tests/fault.h"
#include "tests/late.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"
#include "tests/vacant.h"

/*
 * Where threads are watched, each kind of error befalls every 16th call, where memory is every
 * fourth, and all of them together each call: one thread makes them all, and a run takes twenty
 * times as long, or five times.
 */
#define STRIDE (T_HAS_THREADS_WATCHED ? 16u : T_IS_SANITIZED ? 4u : 1u)

#define LEAST_INJECTIONS (2000u / STRIDE)
#define SLAB_BYTES UINT64_C(65536)

/* ---------------------------------------------------------------- every call in turn */

typedef struct scene {
    berthi_device *device;
    berthi_stream *stream;
    berthi_event *event;
    uint8_t *memory;
    uint8_t *host; /* a page, the same for both */
    uint64_t page;
    bool is_pinned;
} scene;

static berth_status
set_up(scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    void *memory;
    berth_status status = t->alloc(s->device, SLAB_BYTES, &memory, error);

    s->memory = memory;
    CHECK_EQ(memory == NULL, status != BERTH_OK);
    if (status == BERTH_OK)
        status = t->pin(s->device, s->host, s->page, error);
    s->is_pinned = status == BERTH_OK;
    if (status == BERTH_OK)
        status = t->stream_create(s->device, &s->stream, error);
    CHECK_EQ(s->stream == NULL, status != BERTH_OK);
    if (status == BERTH_OK)
        status = t->event_create(s->device, &s->event, error);
    CHECK_EQ(s->event == NULL, status != BERTH_OK);
    return status;
}

static berth_status
move_bytes(const scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    const berthi_copy pinned = { .kind = BERTHI_COPY_TO_DEVICE, .is_pinned = true,
                                 .to = s->memory, .from = s->host, .bytes = 1024 };
    const berthi_copy unpinned = { .kind = BERTHI_COPY_TO_DEVICE, .to = s->memory + 1024,
                                   .from = s->host, .bytes = 64 };
    const berthi_copy within = { .kind = BERTHI_COPY_WITHIN, .to = s->memory + 2048,
                                 .from = s->memory, .bytes = 64 };
    berth_status status = t->copy(s->device, &pinned, s->stream, error);

    if (status == BERTH_OK)
        status = t->copy(s->device, &unpinned, s->stream, error);
    if (status == BERTH_OK)
        status = t->copy(s->device, &within, s->stream, error);
    if (status == BERTH_OK)
        status = t->clear(s->device, s->memory + 4096, 4096, NULL, error);
    return status;
}

/* Where the other is not reached there is nothing to be asked for. */
static berth_status
move_to_peer(const scene *s, const scene *other, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    const berthi_copy copy = { .kind = BERTHI_COPY_TO_PEER, .peer = other->device,
                               .to = other->memory + 3072, .from = s->memory, .bytes = 64 };

    if (!t->reaches(s->device, other->device))
        return BERTH_OK;
    return t->copy(s->device, &copy, s->stream, error);
}

static void
do_nothing(void *user)
{
    (void)user;
}

static berth_status
compute(const scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    float *const floats = (float *)(void *)(s->memory + 8192);
    const berthi_request call = { .operation = BERTHI_OPERATION_CALL,
                                  .arguments.call.call = do_nothing };
    const berthi_request rows = {
        .operation = BERTHI_OPERATION_ENCODE_ROWS,
        .arguments.rows = { .values = s->memory, .dtype = BERTH_F32, .rows = 1, .columns = 64,
                            .codes = (int8_t *)s->memory + 4096, .row_maximum = floats },
    };
    const berthi_request twice = {
        .operation = BERTHI_OPERATION_ENCODE_DOUBLE,
        .arguments.offset = { .absmax = (float *)(void *)s->memory, .count = 16,
                              .codes = s->memory + 4096, .absmax2 = floats,
                              .offset = floats + 64, .scratch = floats + 128 },
    };
    const berthi_request product = {
        .operation = BERTHI_OPERATION_MULTIPLY_NF4,
        .arguments.multiply = { .codes = s->memory, .absmax = floats, .block_size = 64,
                                .count = 1, .rows = 16, .columns = 64, .dtype = BERTH_BF16,
                                .inputs = s->memory, .outputs = s->memory + 4096 },
    };
    berth_status status = t->launch(s->device, &call, s->stream, error);

    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &rows, s->stream, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &product, s->stream, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &twice, s->stream, error);
    return status;
}

/* Weights that are not of 4 bits. */
static berth_status
compute_plain(const scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    const berthi_request numbers = {
        .operation = BERTHI_OPERATION_MULTIPLY_PLAIN,
        .arguments.plain = { .weight = s->memory, .inputs = s->memory + 2048,
                             .outputs = s->memory + 4096, .weight_dtype = BERTH_BF16,
                             .dtype = BERTH_BF16, .count = 1, .rows = 16, .columns = 64 },
    };
    const berthi_request codes = {
        .operation = BERTHI_OPERATION_MULTIPLY_INT8,
        .arguments.int8 = { .weights = (const int8_t *)s->memory,
                            .inputs = (const int8_t *)s->memory,
                            .sums = (int32_t *)(void *)(s->memory + 4096), .count = 1,
                            .rows = 16, .columns = 64 },
    };
    uint32_t *const room = (uint32_t *)(void *)(s->memory + 6144);
    const berthi_request inputs = {
        .operation = BERTHI_OPERATION_INT8_INPUT,
        .arguments.int8_input = { .inputs = s->memory, .dtype = BERTH_BF16, .threshold = 6.0f,
                                  .count = 3, .columns = 64,
                                  .codes = (int8_t *)s->memory + 4096,
                                  .input_maximum = (float *)(void *)(room + 16),
                                  .outliers = { room, room + 2, room + 10, 8 } },
    };
    berth_status status = BERTH_OK;

    if (simt_has_fibers())
        status = t->launch(s->device, &numbers, s->stream, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &codes, s->stream, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &inputs, s->stream, error);
    return status;
}

/* Each in several launches: it begins within a block, or a row. */
static berth_status
decode(const scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    float *const floats = (float *)(void *)(s->memory + 8192);
    const berthi_request blocks = {
        .operation = BERTHI_OPERATION_DECODE_NF4,
        .arguments.decode = { .codes = s->memory, .absmax = floats,
                              .absmax_codes = s->memory + 1024, .map = berthi_signed_map,
                              .block_size = 32, .first = 32 * 255 - 2, .count = 130,
                              .values = s->memory + 4096, .dtype = BERTH_F32 },
    };
    const berthi_request rows = {
        .operation = BERTHI_OPERATION_DECODE_ROWS,
        .arguments.decode_rows = { .codes = (const int8_t *)s->memory, .row_maximum = floats,
                                   .columns = 64, .first = 63, .count = 130,
                                   .values = s->memory + 4096, .dtype = BERTH_BF16 },
    };
    berth_status status = BERTH_OK;

    if (simt_has_fibers())
        status = t->launch(s->device, &blocks, s->stream, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &rows, s->stream, error);
    return status;
}

static berth_status
compute_experts(const scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    float *const floats = (float *)(void *)(s->memory + 8192);
    const berthi_request outputs = {
        .operation = BERTHI_OPERATION_INT8_OUTPUT,
        .arguments.int8_output = { .sums = (int32_t *)(void *)s->memory,
                                   .input_maximum = floats, .weight_maximum = floats,
                                   .outputs = s->memory + 4096, .dtype = BERTH_BF16,
                                   .count = 3, .rows = 16 },
    };
    static const uint32_t ranges[4] = { 0, 0, 0, 0 };
    /* Of memory that is all 0: no expert has an input. */
    const berthi_request experts = {
        .operation = BERTHI_OPERATION_EXPERTS_NF4,
        .arguments.experts = { .experts = (void *)s->memory,
                               .ranges = (uint32_t *)(void *)(s->memory + 128),
                               .expert_count = 3, .most_inputs = 2, .codes_alignment = 16,
                               .block_size = 64, .rows = 16, .columns = 64,
                               .dtype = BERTH_BF16, .inputs = s->memory + 1024,
                               .outputs = s->memory + 4096 },
    };
    berth_status status = BERTH_OK;

    if (simt_has_fibers())
        status = t->launch(s->device, &outputs, s->stream, error);
    if (status == BERTH_OK)
        status = t->clear(s->device, s->memory, 256, s->stream, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = berthi_device_write(s->device, s->memory + 128, ranges, sizeof ranges, s->stream,
                                     error);
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &experts, s->stream, error);
    return status;
}

/* Of memory that is all 0: in one grid, then each its own. */
static berth_status
compute_together(const scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    const berthi_request product = {
        .operation = BERTHI_OPERATION_MULTIPLY_NF4,
        .arguments.multiply = { .codes = s->memory, .absmax = (float *)(void *)s->memory,
                                .block_size = 64, .count = 1, .rows = 16, .columns = 64,
                                .inputs = s->memory + 1024, .outputs = s->memory + 4096,
                                .dtype = BERTH_BF16 },
    };
    berthi_request requests[2] = { product, product };
    berth_status status = t->clear(s->device, s->memory, 2048, s->stream, error);

    requests[1].arguments.multiply.outputs = s->memory + 8192;
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch_together(s->device, requests, 2, s->stream, error);
    requests[1].arguments.multiply.inputs = s->memory + 1536;
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch_together(s->device, requests, 2, s->stream, error);
    return status;
}

static berth_status
wait_for_all(const scene *s, const scene *other, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    const uint64_t soon = berthi_sys_now_ns() + UINT64_C(60000000000);
    uint32_t crc = 1;
    bool past;
    berth_status status = t->record(s->device, s->event, s->stream, error);

    if (status == BERTH_OK)
        status = t->wait(other->device, NULL, s->event, error);
    if (status == BERTH_OK)
        status = t->query(s->device, s->event, &past, error);
    if (status == BERTH_OK)
        status = t->await(s->device, s->event, soon, error);
    if (status == BERTH_OK)
        status = t->digest(s->device, s->memory, 4096, &crc, error);
    CHECK(status == BERTH_OK || crc <= 1);
    return status;
}

static void
clean_up(scene *s)
{
    const berthi_device_table *const t = s->device->table;

    t->stream_destroy(s->device, s->stream);
    t->event_destroy(s->device, s->event);
    if (s->is_pinned)
        t->unpin(s->device, s->host, s->page);
    t->free(s->device, s->memory, SLAB_BYTES);
}

/* Which two GPUs, and what the calling thread has current; `NONE`: it has never chosen one. */
typedef struct start {
    const fake_cuda_machine *machine;
    const char *words;
    int current;
} start;

#define NONE (-1)

static const start both = { &late_small_machine, "cuda", NONE };

/* All there is, from opening to closing, on both GPUs. */
static berth_status
run_scene(void *user, berth_context *context, berth_error *error)
{
    const start *const its = user;
    const uint64_t page = berthi_sys_page_bytes();
    uint8_t *const host = berthi_memory_aligned(context, BERTHI_PURPOSE_RING, page, page);
    scene scenes[2];
    berthi_devices *devices = NULL;
    berth_status status;

    if (host == NULL)
        return berthi_fail_memory(error, "a page");
    memset(host, 0, page);
    status = berthi_devices_open_cuda(context, fake_cuda_calls(), its->words, &devices, error);
    CHECK_EQ(devices == NULL, status != BERTH_OK);
    for (uint32_t i = 0; i < 2 && devices != NULL; i++) {
        scenes[i] = (scene){ .device = berthi_devices_at(devices, i), .host = host,
                             .page = page };
        if (status == BERTH_OK)
            status = set_up(&scenes[i], error);
    }
    for (uint32_t i = 0; i < 2 && status == BERTH_OK; i++) {
        status = move_bytes(&scenes[i], error);
        if (status == BERTH_OK)
            status = move_to_peer(&scenes[i], &scenes[1 - i], error);
        if (status == BERTH_OK)
            status = compute(&scenes[i], error);
        if (status == BERTH_OK)
            status = compute_plain(&scenes[i], error);
        if (status == BERTH_OK)
            status = decode(&scenes[i], error);
        if (status == BERTH_OK)
            status = compute_experts(&scenes[i], error);
        if (status == BERTH_OK)
            status = compute_together(&scenes[i], error);
        if (status == BERTH_OK)
            status = wait_for_all(&scenes[i], &scenes[1 - i], error);
    }
    for (uint32_t i = 0; i < 2 && devices != NULL; i++)
        clean_up(&scenes[i]);
    berthi_devices_close(devices);
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_RING, host, page, page);
    return status;
}

typedef struct tally {
    uint64_t injections; /* runs in which a call failed */
    uint64_t failures;   /* calls that did */
    uint64_t survived;   /* runs that succeeded all the same */
    uint64_t lost;       /* runs that ended with a lost device */
} tally;

/* False: no call was left to fail. */
static bool
has_injected(const start *its, uint64_t nth, int code, bool is_persistent, bool is_half,
             tally *count)
{
    berth_context *context;
    uint64_t failures;
    berth_status status;
    berth_error error;

    fake_cuda_begin(its->machine);
    if (its->current != NONE)
        fake_cuda_make_current(its->current);
    fake_cuda_fail_half(is_half);
    /* Nobody looks at what they write, and only sanitizers at memory that they still use. */
    if (!T_IS_SANITIZED)
        fake_cuda_skip_kernels();
    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return false;
    berthi_error_clear(&error);
    fake_cuda_fail(nth, code, is_persistent);
    status = run_scene((void *)(uintptr_t)its, context, &error);
    failures = fake_cuda_failures();
    fake_cuda_disarm();
    vacant_check_memory(context);
    berth_context_destroy(context);
    late_check_books();
    /* A runtime that never lets it be set again cannot be helped. */
    if (!is_persistent || is_half)
        CHECK_EQ(fake_cuda_current(), its->current != NONE ? its->current : 0);
    fake_cuda_make_none_current();
    fake_cuda_end();
    if (failures == 0) {
        CHECK_EQ(status, BERTH_OK);
        return false;
    }
    count->injections++;
    count->failures += failures;
    count->survived += status == BERTH_OK;
    count->lost += status != BERTH_OK && error.reason == BERTH_REASON_DEVICE_LOST;
    if (status == BERTH_OK)
        return true;
    CHECK_NE(status, BERTH_EINTERNAL);
    CHECK_EQ(error.status, status);
    CHECK_EQ(berthi_reason_status(error.reason), status);
    CHECK_NE(error.message[0], '\0');
    return true;
}

/*
 * Each of them with every kind of error, alone and with all later calls failing too, by a
 * set_device() that has or has not done it.
 */
static void
test_every_call_fails(void)
{
    static const int codes[] = { 1, BERTHI_CUDA_NO_MEMORY, BERTHI_CUDA_NO_IMAGE,
                                 BERTHI_CUDA_ILLEGAL_ADDRESS, BERTHI_CUDA_LAUNCH,
                                 BERTHI_CUDA_ECC, 999 };
    tally count = { 0 };

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        for (int mode = 0; mode < 4; mode++) {
            uint64_t nth = (5 * i + (uint64_t)mode) % STRIDE; /* all there are */

            while (has_injected(&both, nth, codes[i], mode % 2 != 0, mode / 2 != 0, &count))
                nth += STRIDE;
            CHECK_GT(nth, 50);
        }
    T_NOTE("%" PRIu64 " injections, %" PRIu64 " failing calls, %" PRIu64 " survived, %" PRIu64
           " times a device was lost",
           count.injections, count.failures, count.survived, count.lost);
    CHECK_GE(count.injections, LEAST_INJECTIONS);
    CHECK_GT(count.lost, 0);
    /* Giving back goes on whatever fails there; most calls are none of that. */
    CHECK_LT(count.survived, count.injections / 2);
}

/* Some of them where the thread has another GPU current, one of these or a third, or none. */
static void
test_every_call_fails_elsewhere(void)
{
    static const int codes[] = { 999, BERTHI_CUDA_ILLEGAL_ADDRESS };
    fake_cuda_machine three = late_small_machine;
    const start starts[] = { { &three, "cuda:0;cuda:1", 1 },
                             { &three, "cuda:0;cuda:1", 2 },
                             { &three, "cuda:1;cuda:2", NONE } };
    tally count = { 0 };

    three.count = 3;
    for (uint64_t i = 0; i < 24; i++) {
        const start *const its = &starts[i / 8];
        uint64_t nth = i % (4 * STRIDE);

        while (has_injected(its, nth, codes[i / 4 % 2], i % 2 != 0, i / 2 % 2 != 0, &count))
            nth += 4 * STRIDE;
        CHECK_GT(nth, 50);
    }
    T_NOTE("%" PRIu64 " injections, %" PRIu64 " survived, %" PRIu64 " times a device was lost",
           count.injections, count.survived, count.lost);
    CHECK_GE(count.injections, LEAST_INJECTIONS / 4);
    CHECK_GT(count.lost, 0);
}

/* Host memory that is refused, and the system's calls. */
static void
test_memory_fails(void)
{
    fault_counts counts;

    fake_cuda_begin(&late_small_machine);
    counts = fault_loop("GPUs", run_scene, (void *)(uintptr_t)&both);
    CHECK_GT(counts.memory, 10);
    CHECK_GT(counts.system, 0);
    CHECK_EQ(counts.survived, 0);
    late_check_books();
    fake_cuda_end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_every_call_fails);
    T_RUN(test_every_call_fails_elsewhere);
    T_RUN(test_memory_fails);
    T_MAIN_END;
}
