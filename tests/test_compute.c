/* SPDX-License-Identifier: Apache-2.0 */
/* test_compute.c - memory of devices, copies to it and from it, and steps in it. */
#include <string.h>

#include "kernels/sim.h"
#include "tests/fault.h"
#include "tests/t.h"
#include "tests/vacant.h"

static berth_context *context;

static berth_devices *
opened(const char *words)
{
    berth_devices *devices = NULL;

    CHECK_EQ(berth_devices_open(context, words, &devices, NULL), BERTH_OK);
    return devices;
}

/* What a device holds for computing now. */
static uint64_t
booked(berth_context *of, const char *name)
{
    for (uint32_t i = 0; i < berth_memory_tiers(of); i++) {
        berth_memory m;

        CHECK_EQ(berth_memory_get(of, i, BERTH_MEMORY_COMPUTING, &m), BERTH_OK);
        if (strcmp(m.tier, name) == 0)
            return m.current_bytes;
    }
    return 0;
}

/* ------------------------------------------------------------------------- memory */

static void
test_arguments(void)
{
    berth_devices *const devices = opened("sim:8MiB*2");
    berth_error error;
    void *memory = context;
    char byte = 0;

    CHECK_EQ(berth_device_alloc(NULL, 0, 256, &memory, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "devices");
    CHECK(memory == NULL);
    CHECK_EQ(berth_device_alloc(devices, 2, 256, &memory, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "number");
    CHECK_EQ(berth_device_alloc(devices, 0, 256, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "out_memory");
    CHECK_EQ(berth_device_alloc(devices, 0, 0, &memory, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "bytes");
    CHECK_EQ(berth_device_alloc(devices, 0, 128, &memory, &error), BERTH_EINVAL);
    CHECK_EQ(berth_device_alloc(devices, 0, 257, &memory, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_device_alloc(devices, 0, UINT64_C(16) << 20, &memory, &error),
             BERTH_ENOFIT);
    CHECK(memory == NULL);
    CHECK_EQ(berth_device_write(NULL, 0, &byte, &byte, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_device_write(devices, 2, &byte, &byte, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_device_write(devices, 0, NULL, &byte, 1, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "to");
    CHECK_EQ(berth_device_read(devices, 0, &byte, NULL, 1, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "from");
    CHECK_EQ(berth_device_read(devices, 0, NULL, NULL, 0, NULL, &error), BERTH_OK);
    CHECK_EQ(error.status, BERTH_OK); /* what was said before is gone */
    CHECK_EQ(berth_device_alloc(devices, 0, 257, &memory, &error), BERTH_EINVAL);
    CHECK_EQ(berth_device_alloc(devices, 0, 256, &memory, &error), BERTH_OK);
    CHECK_EQ(error.status, BERTH_OK);
    berth_device_free(devices, 0, memory, 256);
    berth_device_free(NULL, 0, &byte, 256);
    berth_device_free(devices, 2, &byte, 256);
    berth_device_free(devices, 0, NULL, 256);
    CHECK_EQ(booked(context, "sim:0"), 0);
    vacant_close(devices);
}

/* There and back, in order of a stream; told while it is there. */
static void
check_memory(const char *words, uint32_t number, const char *name)
{
    berth_devices *const devices = opened(words);
    uint8_t sent[256];
    uint8_t got[256] = { 0 };
    void *stream = NULL;
    void *memory;
    void *other;

    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (uint8_t)(7 * i + 1);
    CHECK_EQ(berth_stream_create(devices, number, &stream, NULL), BERTH_OK);
    T_REQUIRE(berth_device_alloc(devices, number, 512, &memory, NULL) == BERTH_OK);
    CHECK_EQ(booked(context, name), 512);
    T_REQUIRE(berth_device_alloc(devices, number, 256, &other, NULL) == BERTH_OK);
    CHECK_EQ(booked(context, name), 768);
    CHECK_EQ((uintptr_t)memory % 256, 0);
    CHECK_EQ(berth_device_write(devices, number, (char *)memory + 256, sent, sizeof sent,
                                stream, NULL),
             BERTH_OK);
    CHECK_EQ(berth_device_read(devices, number, got, (char *)memory + 256, sizeof got, stream,
                               NULL),
             BERTH_OK);
    CHECK_MEM(sent, got, sizeof sent);
    berth_device_free(devices, number, memory, 512);
    CHECK_EQ(booked(context, name), 256);
    berth_device_free(devices, number, other, 256);
    CHECK_EQ(booked(context, name), 0);
    berth_stream_destroy(devices, number, stream);
    vacant_close(devices);
}

static void
test_memory(void)
{
    check_memory("cpu", 0, "cpu");
    check_memory("cpu*2", 1, "cpu:1");
    check_memory("sim:8MiB,backing=sealed*2", 1, "sim:1");
}

/* Digests are not enough: it is read. */
static void
test_memory_is_kept(void)
{
    const uint64_t bytes = UINT64_C(64) << 20;
    berth_devices *const devices = opened("sim:128MiB,backing=digest");
    const char sent = 5;
    char got = 0;
    void *memory;

    T_REQUIRE(berth_device_alloc(devices, 0, bytes, &memory, NULL) == BERTH_OK);
    CHECK_EQ(berth_device_write(devices, 0, (char *)memory + 3, &sent, 1, NULL, NULL),
             BERTH_OK);
    CHECK_EQ(berth_device_read(devices, 0, &got, (char *)memory + 3, 1, NULL, NULL),
             BERTH_OK);
    CHECK_EQ(got, sent);
    berth_device_free(devices, 0, memory, bytes);
    vacant_close(devices);
}

/* A simulated device knows what is its own. */
static void
test_memory_of_another(void)
{
    berth_devices *const devices = opened("sim:8MiB*2");
    berth_error error;
    char byte = 0;
    void *memory;

    T_REQUIRE(berth_device_alloc(devices, 1, 256, &memory, NULL) == BERTH_OK);
    CHECK_EQ(berth_device_write(devices, 0, memory, &byte, 1, NULL, &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "outside");
    CHECK_EQ(berth_device_read(devices, 0, &byte, memory, 1, NULL, &error), BERTH_EINTERNAL);
    CHECK_EQ(berth_device_write(devices, 1, (char *)memory + 256, &byte, 1, NULL, NULL),
             BERTH_EINTERNAL);
    CHECK_EQ(berth_device_write(devices, 1, memory, &byte, 1, NULL, NULL), BERTH_OK);
    berth_device_free(devices, 1, memory, 256);
    vacant_close(devices);
}

/* Nothing is copied any more; what was allocated can be given back. */
static void
test_lost(void)
{
    berth_devices *const devices = opened("sim:8MiB");
    berth_error error;
    char byte = 0;
    void *memory;
    void *none;

    T_REQUIRE(berth_device_alloc(devices, 0, 256, &memory, NULL) == BERTH_OK);
    berthi_devices_stop(devices);
    CHECK_EQ(berth_device_write(devices, 0, memory, &byte, 1, NULL, &error), BERTH_ENODEV);
    CHECK_EQ(error.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_EQ(berth_device_read(devices, 0, &byte, memory, 1, NULL, &error), BERTH_ENODEV);
    CHECK_EQ(berth_device_alloc(devices, 0, 256, &none, &error), BERTH_ENODEV);
    CHECK(none == NULL);
    berth_device_free(devices, 0, memory, 256);
    CHECK_EQ(booked(context, "sim:0"), 0);
    vacant_close(devices);
}

/* --------------------------------------------------------------------------- steps */

/* A step of each kind, with what it works on in `memory`. */
typedef struct steps {
    berth_take take;
    berth_norm norm;
    berth_rotate rotate;
    berth_attend attend;
    berth_gate gate;
    berth_add add;
    berth_choose choose;
    berth_largest largest;
} steps;

/* 256 bytes for each member are more than enough. */
static steps
steps_in(char *memory)
{
    float *const at = (float *)(void *)memory;

    return (steps){
        .take = { .table = at, .numbers = (uint32_t *)(void *)(memory + 256),
                  .outputs = at + 128, .table_dtype = BERTH_F32, .dtype = BERTH_F32,
                  .rows = 2, .columns = 4, .count = 3 },
        .norm = { .inputs = at, .weight = at + 64, .outputs = at + 128,
                  .inputs_dtype = BERTH_F32, .weight_dtype = BERTH_F32, .dtype = BERTH_F32,
                  .epsilon = 1e-5f, .count = 2, .columns = 4 },
        .rotate = { .queries = at, .keys = at + 64, .values = at + 128, .angles = at + 192,
                    .key_cache = at + 256, .value_cache = at + 320, .dtype = BERTH_F32,
                    .cache_dtype = BERTH_F32, .count = 1, .heads = 2, .kv_heads = 1,
                    .width = 4, .capacity = 2 },
        .attend = { .queries = at, .key_cache = at + 256, .value_cache = at + 320,
                    .outputs = at, .dtype = BERTH_F32, .cache_dtype = BERTH_F32, .count = 1,
                    .heads = 2, .kv_heads = 1, .width = 4, .capacity = 2 },
        .gate = { .gate = at, .up = at + 64, .elements = 8, .dtype = BERTH_F32 },
        .add = { .sums = at, .values = at + 64, .dtype = BERTH_F32, .count = 2,
                 .sum_rows = 2, .columns = 4 },
        .choose = { .logits = at, .numbers = (uint32_t *)(void *)(memory + 256),
                    .weights = at + 128, .dtype = BERTH_F32, .count = 2, .experts = 4,
                    .used = 2 },
        .largest = { .values = at, .numbers = (uint32_t *)(void *)(memory + 256),
                     .dtype = BERTH_F32, .count = 2, .columns = 4 },
    };
}

/* Each of them, or (without steps) none; all have to end like this. */
static void
check_steps(berth_devices *devices, uint32_t number, const steps *s, berth_status status,
            const char *words)
{
    berth_error errors[8];
    const berth_status got[8] = {
        berth_device_take(devices, number, s != NULL ? &s->take : NULL, NULL, &errors[0]),
        berth_device_norm(devices, number, s != NULL ? &s->norm : NULL, NULL, &errors[1]),
        berth_device_rotate(devices, number, s != NULL ? &s->rotate : NULL, NULL, &errors[2]),
        berth_device_attend(devices, number, s != NULL ? &s->attend : NULL, NULL, &errors[3]),
        berth_device_gate(devices, number, s != NULL ? &s->gate : NULL, NULL, &errors[4]),
        berth_device_add(devices, number, s != NULL ? &s->add : NULL, NULL, &errors[5]),
        berth_device_choose(devices, number, s != NULL ? &s->choose : NULL, NULL, &errors[6]),
        berth_device_largest(devices, number, s != NULL ? &s->largest : NULL, NULL,
                             &errors[7]),
    };

    for (size_t i = 0; i < 8; i++)
        if (!CHECK_EQ(got[i], status) || !CHECK_CONTAINS(errors[i].message, words))
            t_note("step %u", (unsigned)i);
}

/* Memory with numbers in it, of which some are small integers to whom they are. */
static char *
filled(berth_devices *devices, uint32_t number)
{
    float numbers[512];
    void *memory = NULL;

    for (size_t i = 0; i < 512; i++)
        numbers[i] = (float)((i * 37) % 23) / 8.0f - 1.0f;
    memset(numbers + 64, 0, 3 * sizeof *numbers);
    CHECK_EQ(berth_device_alloc(devices, number, sizeof numbers, &memory, NULL), BERTH_OK);
    CHECK_EQ(berth_device_write(devices, number, memory, numbers, sizeof numbers, NULL, NULL),
             BERTH_OK);
    return memory;
}

/* What all steps have left. */
static void
run_steps(const char *words, float out[512])
{
    berth_devices *const devices = opened(words);
    char *const memory = filled(devices, 0);
    const steps s = steps_in(memory);

    check_steps(devices, 0, &s, BERTH_OK, "");
    CHECK_EQ(berth_device_read(devices, 0, out, memory, 512 * sizeof *out, NULL, NULL),
             BERTH_OK);
    berth_device_free(devices, 0, memory, 512 * sizeof *out);
    vacant_close(devices);
}

static void
test_steps(void)
{
    float host[512];
    float sim[512];

    run_steps("cpu", host);
    run_steps("sim:8MiB,backing=sealed", sim);
    CHECK_MEM(host, sim, sizeof host);
}

static void
test_steps_refused(void)
{
    berth_devices *const devices = opened("sim:8MiB*2");
    char *const memory = filled(devices, 0);
    steps s = steps_in(memory);

    check_steps(devices, 0, NULL, BERTH_EINVAL, "step");
    check_steps(NULL, 0, &s, BERTH_EINVAL, "devices");
    check_steps(devices, 2, &s, BERTH_EINVAL, "number");
    check_steps(devices, 1, &s, BERTH_EINTERNAL, "outside");
    s.take.dtype = s.norm.dtype = s.rotate.dtype = s.attend.dtype = BERTH_I8;
    s.gate.dtype = s.add.dtype = s.choose.dtype = s.largest.dtype = BERTH_I8;
    check_steps(devices, 0, &s, BERTH_EINVAL, "");
    s = steps_in(memory);
    berthi_devices_stop(devices);
    check_steps(devices, 0, &s, BERTH_ENODEV, "");
    berth_device_free(devices, 0, memory, 512 * sizeof(float));
    vacant_close(devices);
}

/* ------------------------------------------------------------------------- faults */

/* Everything once, on devices of this context. */
static berth_status
use_memory(void *user, berth_context *of, berth_error *error)
{
    const char *const words = user;
    berth_devices *devices;
    void *memory = NULL;
    char byte = 1;
    berth_status status = berth_devices_open(of, words, &devices, error);

    if (status == BERTH_OK)
        status = berth_device_alloc(devices, 0, 256, &memory, error);
    CHECK_EQ(memory == NULL, status != BERTH_OK);
    if (status == BERTH_OK)
        status = berth_device_write(devices, 0, memory, &byte, 1, NULL, error);
    if (status == BERTH_OK)
        status = berth_device_read(devices, 0, &byte, memory, 1, NULL, error);
    if (status == BERTH_OK)
        CHECK_EQ(byte, 1);
    berth_device_free(devices, 0, memory, 256);
    CHECK_EQ(booked(of, "cpu") + booked(of, "sim:0"), 0);
    vacant_close(devices);
    return status;
}

/* What is refused after it has been allocated is given back. */
static berth_status
keep_memory(void *user, berth_context *of, berth_error *error)
{
    const uint64_t bytes = UINT64_C(64) << 20; /* of less all bytes are kept */
    const char *const words = user;
    berth_devices *devices;
    void *memory = NULL;
    berth_device device;
    berth_status status = berth_devices_open(of, words, &devices, error);

    if (status != BERTH_OK)
        return status;
    status = berth_device_alloc(devices, 0, bytes, &memory, error);
    berth_devices_get(devices, 0, &device);
    CHECK_EQ(device.free_bytes, device.memory_bytes - (status == BERTH_OK ? bytes : 0));
    CHECK_EQ(memory == NULL, status != BERTH_OK);
    berth_device_free(devices, 0, memory, bytes);
    vacant_close(devices);
    return status;
}

static void
test_faults(void)
{
    /* A processor is described by what the system says, as far as it says it. */
    const fault_counts host = fault_loop("memory of the processor", use_memory, "cpu");
    const fault_counts sim =
        fault_loop("memory of a simulated device", use_memory, "sim:8MiB");

    CHECK_GT(host.memory, 2);
    CHECK_EQ(host.survived, host.system);
    CHECK_GT(sim.memory, 4);
    CHECK_EQ(sim.survived, 0);
    CHECK_GT(fault_loop("memory that is kept", keep_memory, "sim:128MiB,backing=digest").memory,
             3);
    CHECK_GT(fault_loop_devices("memory of the processor", use_memory, "cpu").device, 2);
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_arguments);
    T_RUN(test_memory);
    T_RUN(test_memory_is_kept);
    T_RUN(test_memory_of_another);
    T_RUN(test_lost);
    T_RUN(test_steps);
    T_RUN(test_steps_refused);
    T_RUN(test_faults);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    T_MAIN_END;
}
