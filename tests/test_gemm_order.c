/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gemm_order.c - what is before what while slabs of a weight are decoded and multiplied
 * in two streams: by what the streams are asked for, in whatever order a GPU does it.
 *
 * A clock is how far each stream has come for certain where another one is: a record notes
 * its stream's, a wait takes over what was noted.
 */
#include <string.h>

#include "kernels/gemm_lt.h"
#include "kernels/tables.h"
#include "tests/fake_cuda.h"
#include "tests/fake_gemm.h"
#include "tests/gpu_faults.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)
#define MOST 16u
#define COLUMNS 256u
#define SLAB_ROWS (BERTHI_GEMM_SLAB_BYTES / 2 / COLUMNS)

static const fake_cuda_machine late = { .count = 1, .driver = 13000, .architecture = 86,
                                        .memory_bytes = 16 * MIB, .is_late = true };

typedef struct moment {
    uint32_t stream;
    uint64_t time; /* 0: never */
} moment;

typedef struct place {
    const void *address;
    moment written;
    moment read;
} place;

static struct {
    const void *streams[MOST];
    uint64_t clocks[MOST][MOST]; /* of each stream, of all */
    const void *events[MOST];
    uint64_t noted[MOST][MOST];
    place places[MOST];
    uint64_t decoded;
    uint64_t multiplied;
    uint64_t beside; /* decoded in another stream than the product's */
    uint64_t early;  /* began before something that it needs was over */
    berthi_gemm_calls library;
} seen;

static uint32_t
index_of(const void **list, const void *what)
{
    uint32_t i = 0;

    while (i < MOST - 1 && list[i] != NULL && list[i] != what)
        i++;
    list[i] = what;
    return i;
}

static place *
place_of(const void *address)
{
    place *p = seen.places;

    while (p < seen.places + MOST - 1 && p->address != NULL && p->address != address)
        p++;
    p->address = address;
    return p;
}

static uint32_t
stream_of(const void *stream)
{
    /* NULL is one, too. */
    return index_of(seen.streams, stream == NULL ? &seen : stream);
}

static moment
begin_on(const void *stream)
{
    const uint32_t s = stream_of(stream);

    return (moment){ s, ++seen.clocks[s][s] };
}

static void
need(moment now, moment before)
{
    seen.early += before.time > seen.clocks[now.stream][before.stream];
}

/* ------------------------------------------------------------------------------- calls */

/* What fails has not been asked for. */
static int
seen_wait(void *stream, void *event)
{
    const int code = fake_cuda_calls()->stream_wait(stream, event);
    const uint32_t s = stream_of(stream);
    const uint32_t e = index_of(seen.events, event);

    for (uint32_t i = 0; i < MOST && code == BERTHI_CUDA_OK; i++)
        if (seen.clocks[s][i] < seen.noted[e][i])
            seen.clocks[s][i] = seen.noted[e][i];
    return code;
}

static int
seen_record(void *event, void *stream)
{
    const int code = fake_cuda_calls()->event_record(event, stream);

    if (code == BERTHI_CUDA_OK)
        memcpy(seen.noted[index_of(seen.events, event)], seen.clocks[stream_of(stream)],
               sizeof seen.noted[0]);
    return code;
}

static int
seen_launch(const berthi_launch *launch, berthi_cuda_tiles *tiles, bool overlaps, void *stream)
{
    const moment now = begin_on(stream);
    place *const p = place_of(launch->argument.decode.values);

    need(now, p->read);
    p->written = now;
    seen.decoded++;
    seen.beside += now.stream != 0;
    return fake_cuda_calls()->launch(launch, tiles, overlaps, stream);
}

static int
seen_multiply(void *handle, void *operation, const void *alpha, const void *a, void *a_layout,
              const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
              void *d, void *d_layout, const berthi_gemm_algorithm *algorithm,
              void *workspace, size_t workspace_bytes, void *stream)
{
    const moment now = begin_on(stream);
    place *const p = place_of(a);

    need(now, p->written);
    p->read = now;
    seen.multiplied++;
    CHECK_EQ(now.stream, 0);
    return seen.library.multiply(handle, operation, alpha, a, a_layout, b, b_layout, beta, c,
                                 c_layout, d, d_layout, algorithm, workspace,
                                 workspace_bytes, stream);
}

static bool
seen_open(berthi_gemm_calls *out, char why[BERTHI_GEMM_WHY_CAPACITY])
{
    const bool is_open = fake_gemm_open(out, why);

    seen.library = *out;
    out->multiply = seen_multiply;
    return is_open;
}

/* ------------------------------------------------------------------------------- tests */

static uint8_t *
open_seen(rig *r)
{
    static berthi_cuda_calls calls;
    uint8_t *memory;

    memset(&seen, 0, sizeof seen);
    fake_gemm_begin();
    fake_cuda_begin(&late);
    calls = *fake_cuda_calls();
    calls.stream_wait = seen_wait;
    calls.event_record = seen_record;
    calls.launch = seen_launch;
    calls.open_gemm = seen_open;
    if (!rig_open_cuda(r, &calls, "cuda"))
        return NULL;
    memory = rig_alloc(r->device, 4 * MIB);
    memset(memory, 0, 4 * MIB); /* the fake's memory is the host's */
    (void)stream_of(NULL);
    return memory;
}

static void
close_seen(rig *r, void *memory)
{
    r->device->table->free(r->device, memory, 4 * MIB);
    rig_close(r);
    fake_gemm_check_empty();
    fake_cuda_check_empty();
    fake_gemm_begin();
    fake_cuda_end();
}

static berth_status
multiply_slabs(berthi_device *device, uint8_t *memory, uint64_t slabs)
{
    const berthi_gemm_4bit task = {
        .codes = memory, .absmax = (float *)(void *)(memory + MIB),
        .values = berthi_nf4_values, .block_size = 64, .dtype = BERTH_BF16,
        .rows = slabs * SLAB_ROWS, .columns = COLUMNS, .count = 2,
        .inputs = memory + 2 * MIB, .outputs = memory + 3 * MIB
    };

    return fake_gemm_multiply_4bit(device, &task, NULL, NULL);
}

/* Whatever comes next in the caller's stream comes after all of it. */
static void
check_joined(void)
{
    CHECK_EQ(seen.early, 0);
    for (uint32_t i = 0; i < MOST; i++)
        CHECK_EQ(seen.clocks[0][i], seen.clocks[i][i]);
}

/* One, two, and slabs that are used again, also by the next product. */
static void
test_order(void)
{
    static const uint64_t slabs[] = { 1, 2, 3, 4, 7, 2, 1 };
    void *memory;
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    memory = open_seen(&r);
    T_REQUIRE(memory != NULL);
    for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++) {
        const uint64_t decoded = seen.decoded;

        CHECK_EQ(multiply_slabs(r.device, memory, slabs[i]), BERTH_OK);
        CHECK_EQ(seen.decoded - decoded, slabs[i]);
        CHECK_EQ(seen.multiplied, seen.decoded);
        check_joined();
        rig_sync(r.device, NULL);
    }
    CHECK_EQ(seen.beside, seen.decoded - sizeof slabs / sizeof *slabs);
    close_seen(&r, memory);
}

/* Also where a call fails half way, of the runtime or of the library. */
static void
test_order_of_what_fails(void)
{
    uint64_t failures[2] = { 0, 0 };
    void *memory;
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    memory = open_seen(&r);
    T_REQUIRE(memory != NULL);
    CHECK_EQ(multiply_slabs(r.device, memory, 4), BERTH_OK);
    for (int of_library = 0; of_library < 2; of_library++)
        for (uint64_t nth = 0, failed = 1; failed > 0; nth++) {
            gpu_faults_arm(of_library != 0, nth, 1, false);
            (void)multiply_slabs(r.device, memory, 4);
            failed = gpu_faults_disarm();
            failures[of_library] += failed;
            check_joined();
            CHECK_EQ(multiply_slabs(r.device, memory, 4), BERTH_OK);
            check_joined();
            rig_sync(r.device, NULL);
        }
    CHECK_GE(failures[0], 15);
    CHECK_GE(failures[1], 4);
    close_seen(&r, memory);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_order);
    T_RUN(test_order_of_what_fails);
    T_MAIN_END;
}
