/* SPDX-License-Identifier: Apache-2.0 */
/* test_device_cpu.c - host memory as a device; how devices are opened by words. */
#include <stdio.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/fault.h"
#include "kernels/sys.h"
#include "quant/quantize.h"
#include "tests/fault.h"
#include "tests/rig.h"
#include "tests/t.h"

/* ----------------------------------------------------------------------------- words */

static void
check_refused(const char *words, berth_status expected, const char *why)
{
    berthi_devices *devices = NULL;
    berth_memory_summary memory;
    berth_context *context;
    berth_error error;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    devices = (berthi_devices *)(void *)context;
    CHECK_EQ(berthi_devices_open(context, words, &devices, &error), expected);
    CHECK(devices == NULL);
    CHECK_EQ(error.status, expected);
    CHECK_STR(error.message, why);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
}

static void
test_words(void)
{
    static const char neither[] = "is neither cpu nor cpu*2, cpu*3, ... cpu*64";
    static const char *const wrong[] = { "cpu:1",  "cpu*0", "cpu*65", "cpu*", "cpu;cpu",
                                         "cpu*2x", "cpu*02" };
    char message[128];

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(message, sizeof message, "\"%s\" %s", wrong[i], neither);
        check_refused(wrong[i], BERTH_EINVAL, message);
    }
    check_refused("", BERTH_EINVAL, "\"\" is none of cpu, sim:... and cuda");
    check_refused("cpux", BERTH_EINVAL, "\"cpux\" is none of cpu, sim:... and cuda");
    check_refused("sims", BERTH_EINVAL, "\"sims\" is none of cpu, sim:... and cuda");
    check_refused("sim:x", BERTH_EINVAL, "\"x\" is not a size as 24GiB");
}

/* Whatever this build and this machine have: GPUs, or the reason why there are none. */
static void
test_words_for_gpus(void)
{
    berthi_devices *devices = NULL;
    berth_context *context;
    berth_error error;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    berthi_error_clear(&error);
    if (berthi_devices_open(context, "cuda", &devices, &error) == BERTH_OK) {
        T_NOTE("%u GPUs", berthi_devices_count(devices));
        CHECK_GT(berthi_devices_count(devices), 0);
        CHECK_STR(berthi_devices_at(devices, 0)->table->kind, "cuda");
    } else {
        T_NOTE("%s", error.message);
        CHECK(devices == NULL);
        CHECK_EQ(error.reason, BERTH_REASON_NO_DEVICE);
        CHECK_NE(error.message[0], '\0');
    }
    berthi_devices_close(devices);
    berth_context_destroy(context);
}

static void
test_several(void)
{
    berthi_device_properties p;
    rig r;

    T_REQUIRE(rig_open(&r, "cpu*64"));
    CHECK_EQ(berthi_devices_count(r.devices), 64);
    rig_at(&r, 63)->table->describe(rig_at(&r, 63), &p);
    CHECK_STR(p.name, "cpu:63");
    CHECK_EQ(rig_at(&r, 63)->number, 63);
    rig_close(&r);
}

static void
test_describes(void)
{
    berthi_device_properties p;
    rig r;

    T_REQUIRE(rig_open(&r, "cpu"));
    CHECK_EQ(berthi_devices_count(r.devices), 1);
    CHECK_STR(r.device->table->kind, "cpu");
    r.device->table->describe(r.device, &p);
    CHECK_STR(p.name, "cpu");
    CHECK_CONTAINS(p.description, "host memory, ");
    CHECK_CONTAINS(p.description, berthi_cpu_level_name(berthi_cpu_best_level()));
    CHECK_GT(p.memory_bytes, UINT64_C(1) << 20);
    /* UINT64_MAX: nobody knows, as where no /proc is mounted in full */
    CHECK(p.free_bytes == UINT64_MAX || p.memory_bytes >= p.free_bytes);
    CHECK_EQ(p.numa_node, -1);
    CHECK(p.is_host && !p.is_simulated);
    rig_close(&r);
}

/* ------------------------------------------------------------------------------ work */

static void
test_memory_is_counted(void)
{
    berth_memory_summary memory;
    uint64_t before;
    uint8_t *slab;
    rig r;

    T_REQUIRE(rig_open(&r, "cpu"));
    berth_context_memory(r.context, &memory);
    before = memory.current_bytes;
    slab = rig_alloc(r.device, (UINT64_C(4) << 20) + 1);
    berth_context_memory(r.context, &memory);
    CHECK_EQ(memory.current_bytes - before, (UINT64_C(4) << 20) + 1);
    CHECK_EQ(r.context->ledger.by_purpose[BERTHI_PURPOSE_WEIGHTS],
             (UINT64_C(4) << 20) + 1);
    CHECK_EQ((uintptr_t)slab % berthi_sys_page_bytes(), 0);
    slab[UINT64_C(4) << 20] = 1;
    r.device->table->free(r.device, slab, (UINT64_C(4) << 20) + 1);
    r.device->table->free(r.device, NULL, 7);
    rig_close(&r);
}

static void
count_call(void *user)
{
    ++*(int *)user;
}

static void
test_everything_at_once(void)
{
    uint8_t from[300];
    uint8_t *slab;
    berthi_event *event;
    berthi_stream *stream;
    bool past = false;
    uint64_t before;
    uint32_t crc = 0;
    int calls = 0;
    rig r;

    T_REQUIRE(rig_open(&r, "cpu"));
    slab = rig_alloc(r.device, 1000);
    stream = rig_stream(r.device);
    event = rig_event(r.device);
    memset(from, 5, sizeof from);
    memset(slab, 7, 1000);
    rig_to_device(r.device, slab, from, 300, stream);
    CHECK_EQ(slab[299], 5);
    CHECK_EQ(slab[300], 7);
    rig_to_device(r.device, slab, from, 0, stream);
    CHECK_EQ(r.device->table->clear(r.device, slab + 1, 2, stream, NULL), BERTH_OK);
    CHECK_EQ(r.device->table->clear(r.device, slab, 0, NULL, NULL), BERTH_OK);
    CHECK(slab[0] == 5 && slab[1] == 0 && slab[2] == 0 && slab[3] == 5);
    rig_call(r.device, count_call, &calls, 1000000000000, stream);
    CHECK_EQ(calls, 1);
    rig_record(r.device, event, stream);
    rig_wait(r.device, NULL, event);
    CHECK_EQ(r.device->table->query(r.device, event, &past, NULL), BERTH_OK);
    CHECK(past);
    CHECK_EQ(r.device->table->await(r.device, event, 0, NULL), BERTH_OK);
    CHECK_EQ(r.device->table->digest(r.device, slab, 300, &crc, NULL), BERTH_OK);
    CHECK_EQ(crc, berthi_digest_crc32(0, slab, 300));
    CHECK(r.device->table->keep == NULL);
    CHECK(!r.device->table->has_operation(r.device, -1));
    CHECK(!r.device->table->has_operation(r.device, BERTHI_OPERATION_COUNT));
    CHECK(r.device->table->has_operation(r.device, BERTHI_OPERATION_ENCODE_NF4));
    CHECK_EQ(r.device->table->pin(r.device, slab, 1000, NULL), BERTH_OK);
    r.device->table->unpin(r.device, slab, 1000);
    before = rig_now(&r);
    CHECK_GE(berthi_sys_now_ns(), before);
    r.device->table->event_destroy(r.device, event);
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->stream_destroy(r.device, NULL);
    r.device->table->free(r.device, slab, 1000);
    rig_close(&r);
}

/* -------------------------------------------------------------------- operations */

#define ROWS 48u
#define COLUMNS 512u
#define COUNT (ROWS * COLUMNS)
#define BLOCKS (COUNT / 64)

typedef struct stored {
    uint8_t codes[COUNT];
    float maxima[BLOCKS];
    uint8_t second[BLOCKS];
    float absmax2[BLOCKS / 256 + 1];
    float offset;
} stored;

static float values[COUNT];

static void
launch(berthi_device *device, const berthi_request *what)
{
    CHECK_EQ(device->table->launch(device, what, NULL, NULL), BERTH_OK);
}

/* By the device's operations. */
static void
encode(berthi_device *device, const berthi_storage *storage, stored *out)
{
    static float scratch[1 << 16];
    const bool is_rows = storage->encoding == BERTH_ENCODING_INT8;
    berthi_request what = { .operation = storage->encoding == BERTH_ENCODING_NF4
                                             ? BERTHI_OPERATION_ENCODE_NF4
                                             : BERTHI_OPERATION_ENCODE_FP4 };

    memset(out, 0, sizeof *out);
    if (is_rows) {
        what.operation = BERTHI_OPERATION_ENCODE_ROWS;
        what.arguments.rows = (berthi_rows_arguments){
            .values = values, .dtype = BERTH_F32, .rows = ROWS, .columns = COLUMNS,
            .codes = (int8_t *)out->codes, .row_maximum = out->maxima };
        launch(device, &what);
        return;
    }
    what.arguments.encode = (berthi_encode_arguments){
        .values = values, .dtype = BERTH_F32, .block_size = 64, .count = COUNT,
        .codes = out->codes, .absmax = out->maxima };
    launch(device, &what);
    what.operation = BERTHI_OPERATION_ENCODE_DOUBLE;
    what.arguments.offset = (berthi_offset_arguments){
        .absmax = out->maxima, .count = BLOCKS, .codes = out->second,
        .absmax2 = out->absmax2, .offset = &out->offset, .scratch = scratch };
    CHECK_LE(berthi_offset_scratch(BLOCKS), sizeof scratch / sizeof *scratch);
    launch(device, &what);
}

/* By the quantizer, with the reference's operations. */
static void
quantize(const berthi_storage *storage, stored *out)
{
    static float scratch[1 << 16];
    const uint64_t shape[] = { ROWS, COLUMNS };
    berthi_quantizer q;

    memset(out, 0, sizeof *out);
    T_REQUIRE(berthi_quantizer_can_init(&q, &berthi_scalar_operations, storage, shape, 2));
    berthi_quantizer_encode(&q, values, COUNT, out->codes, out->maxima);
    if (storage->encoding == BERTH_ENCODING_INT8)
        return;
    CHECK_EQ(berthi_quantizer_scratch(&q), berthi_offset_scratch(BLOCKS));
    out->offset =
        berthi_quantizer_finish(&q, out->maxima, out->second, out->absmax2, scratch);
}

static void
test_operations(void)
{
    static const int32_t encodings[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                         BERTH_ENCODING_INT8 };
    static stored made[2];
    uint32_t state = 1;
    rig r;

    T_REQUIRE(rig_open(&r, "cpu"));
    for (uint32_t i = 0; i < COUNT; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = ((float)(state >> 8) / 16777216.0f - 0.5f) * 4.0f;
    }
    for (size_t e = 0; e < sizeof encodings / sizeof *encodings; e++) {
        const bool is_rows = encodings[e] == BERTH_ENCODING_INT8;
        const berthi_storage storage = { .encoding = encodings[e],
                                         .dtype = BERTH_F32,
                                         .storage = BERTH_U8,
                                         .block_size = is_rows ? 0 : 64,
                                         .is_double = !is_rows };

        encode(r.device, &storage, &made[0]);
        quantize(&storage, &made[1]);
        CHECK_MEM(&made[0], &made[1], sizeof made[0]);
        CHECK_NE(made[0].codes[0], made[0].codes[1]);
    }
    rig_close(&r);
}

/* ------------------------------------------------------------------------- failures */

static berth_status
run(void *user, berth_context *context, berth_error *error)
{
    berthi_devices *devices;
    berthi_device *d;
    berthi_stream *stream = NULL;
    berthi_event *event = NULL;
    void *slab = NULL;
    bool past;
    uint32_t crc;
    uint8_t bytes[8] = { 0 };
    berth_status status = berthi_devices_open(context, "cpu*2", &devices, error);

    (void)user;
    if (status != BERTH_OK)
        return status;
    d = berthi_devices_at(devices, 1);
    status = d->table->alloc(d, 100, &slab, error);
    CHECK_EQ(slab == NULL, status != BERTH_OK);
    if (status == BERTH_OK)
        status = d->table->stream_create(d, &stream, error);
    CHECK_EQ(stream == NULL, status != BERTH_OK);
    if (status == BERTH_OK)
        status = d->table->event_create(d, &event, error);
    CHECK_EQ(event == NULL, status != BERTH_OK);
    if (status == BERTH_OK)
        status = d->table->pin(d, slab, 100, error);
    if (status == BERTH_OK)
        status = d->table->copy(
            d, &(berthi_copy){ .to = slab, .from = bytes, .bytes = 8 }, stream, error);
    if (status == BERTH_OK)
        status = d->table->clear(d, slab, 8, stream, error);
    if (status == BERTH_OK)
        status = d->table->launch(
            d,
            &(berthi_request){ .operation = BERTHI_OPERATION_CALL,
                               .arguments.call = { .call = count_call,
                                                   .user = &(int){ 0 } } },
            stream, error);
    if (status == BERTH_OK)
        status = d->table->record(d, event, stream, error);
    if (status == BERTH_OK)
        status = d->table->wait(d, NULL, event, error);
    if (status == BERTH_OK)
        status = d->table->query(d, event, &past, error);
    if (status == BERTH_OK)
        status = d->table->await(d, event, 0, error);
    if (status == BERTH_OK)
        status = d->table->digest(d, slab, 8, &crc, error);
    d->table->event_destroy(d, event);
    d->table->stream_destroy(d, stream);
    d->table->free(d, slab, 100);
    berthi_devices_close(devices);
    return status;
}

static void
test_faults(void)
{
    static const berth_status expected[] = { BERTH_ENOFIT, BERTH_ENODEV, BERTH_ENODEV,
                                             BERTH_ENOMEM, BERTH_ENODEV };
    const fault_counts counts = fault_loop("the processor", run, NULL);

    CHECK_EQ(counts.survived, 0);
    CHECK_EQ(counts.memory, 12);
    CHECK_EQ(counts.system, 0);
    for (uint64_t nth = 0; nth <= 12; nth++) {
        berth_context *context;
        berth_error error;

        T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
        berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, false);
        CHECK_EQ(run(NULL, context, &error),
                 nth == 12 ? BERTH_OK : expected[nth < 4 ? nth : 4]);
        berthi_fault_disarm();
        berth_context_destroy(context);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_words);
    T_RUN(test_words_for_gpus);
    T_RUN(test_several);
    T_RUN(test_describes);
    T_RUN(test_memory_is_counted);
    T_RUN(test_everything_at_once);
    T_RUN(test_operations);
    T_RUN(test_faults);
    T_MAIN_END;
}
