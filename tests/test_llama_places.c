/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_llama_places.c - each family that the decoder knows, in each encoding, wherever its
 * layers lie: the bits that it has in host memory.
 */
#include <string.h>

#include "tests/decoded.h"
#include "tests/fixture.h"
#include "tests/t.h"

typedef struct family {
    const char *name;
    const char *model; /* whose weights and prompt it has */
    const char *folder;
} family;

typedef struct encoding {
    int32_t type;
    int32_t double_quant;
    bool has_int8_inputs;
} encoding;

typedef struct place {
    const char *max_memory;
    const char *devices;
    const char *pin; /* where layers lie */
    bool is_streamed;
    bool is_from_disk;
    uint32_t batch;
} place;

#define FAMILIES 6u
/* Every second encoding of each where threads are watched, which takes its time. */
#define EACH (T_HAS_THREADS_WATCHED ? 2u : 1u)

static void
list_families(family families[FAMILIES])
{
    const char *const window = "\"model_type\": \"mistral\", \"sliding_window\": 8";

    families[0] = (family){ "llama", "llama", NULL };
    families[1] = (family){ "mistral", "llama",
                            decoded_rewritten("\"model_type\": \"llama\"", window) };
    families[2] = (family){ "qwen2", "llama", decoded_biased() };
    families[3] = (family){ "qwen3", "qwen3", NULL };
    families[4] = (family){ "mixtral", "mixtral", NULL };
    families[5] = (family){ "qwen3_moe", "qwen3_moe", NULL };
}

static const encoding encodings[] = {
    { BERTH_ENCODING_NATIVE, 0, false }, { BERTH_ENCODING_NF4, 0, false },
    { BERTH_ENCODING_NF4, 1, false },    { BERTH_ENCODING_FP4, 0, false },
    { BERTH_ENCODING_INT8, 0, false },   { BERTH_ENCODING_INT8, 0, true },
};

#define DEVICE "0=64MiB,cpu=1GiB,disk=inf"
#define HOST "cpu=1GiB,disk=inf"

static const place resident = { DEVICE, "sim:64MiB", NULL, false, false, 0 };
static const place streamed[] = {
    { DEVICE, "sim:64MiB,jitter=50%,seed=5", "model.layers=cpu", true, false, 7 },
    { DEVICE, "sim:64MiB,pin=0B", "model.layers=cpu", true, false, 0 },
    { DEVICE, "sim:64MiB,clock=real,h2d=8GB/s", "model.layers=disk", true, true, 7 },
    { HOST, NULL, "model.layers=disk", true, true, 0 },
};

static void
check_same(const family *f, const encoding *e, const place *p)
{
    decoded_setup here = { .model = f->model, .folder = f->folder, .type = e->type,
                           .double_quant = e->double_quant, .cache_dtype = BERTH_F32,
                           .has_int8_inputs = e->has_int8_inputs };
    decoded_setup there = here;
    berth_lease_summary leases = { .copied_bytes = 0 };

    there.max_memory = p->max_memory;
    there.devices = p->devices;
    there.pins[0] = p->pin;
    there.batch = p->batch;
    there.offload_dir = p->is_from_disk ? fixture_folder() : NULL;
    decoded_check_same(&here, &there, &leases);
    if (!CHECK_EQ(leases.copied_bytes > 0, p->is_streamed)
        || !CHECK_EQ(leases.disk_bytes > 0, p->is_from_disk))
        T_NOTE("%s, encoding %d", f->name, (int)e->type);
}

static void
check_place(const place *p)
{
    family families[FAMILIES];

    list_families(families);
    for (size_t f = 0; f < FAMILIES; f++)
        for (size_t e = f % EACH; e < sizeof encodings / sizeof *encodings; e += EACH)
            check_same(&families[f], &encodings[e], p);
}

static void
test_resident(void)
{
    check_place(&resident);
}

static void
test_streamed_from_host(void)
{
    check_place(&streamed[0]);
}

static void
test_streamed_from_pageable_memory(void)
{
    check_place(&streamed[1]);
}

static void
test_streamed_from_disk(void)
{
    check_place(&streamed[2]);
}

static void
test_processor_with_disk(void)
{
    check_place(&streamed[3]);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_resident);
    T_RUN(test_streamed_from_host);
    T_RUN(test_streamed_from_pageable_memory);
    T_RUN(test_streamed_from_disk);
    T_RUN(test_processor_with_disk);
    T_MAIN_END;
}
