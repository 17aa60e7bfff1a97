/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_cycles.c - models that come and go, ten thousand times: memory, descriptors
 * and threads do not grow.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/leased.h"
#include "tests/loaded.h"
#include "tests/t.h"

/* Sanitizers make a cycle ten times slower, and keep memory that was freed for a while. */
#define CYCLES (T_IS_SANITIZED ? 200u : 5000u) /* of each of two kinds */
#define GROWTH_KIB (T_IS_SANITIZED ? 524288u : 1024u)

/* What the process has. */
typedef struct holdings {
    long resident_kib;
    int descriptors;
    uint64_t threads;
    uint64_t ledger;
} holdings;

static long
resident_kib(void)
{
    FILE *const status = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;

    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    if (status != NULL)
        fclose(status);
    return kib;
}

static holdings
count(const loaded *l)
{
    berth_memory_summary memory;

    berth_context_memory(l->p.context, &memory);
    return (holdings){resident_kib(), fixture_open_fds(), haul_threads(),
                      memory.current_bytes};
}

/* All layers once, then everything is given back. */
static bool
has_cycled(loaded *l, uint32_t number)
{
    l->options.no_uring = number % 2 == 0;
    loaded_load(l);
    for (uint32_t i = 0; i < l->p.summary.layer_count && l->status == BERTH_OK; i++) {
        l->status = berth_layer_acquire(l->model, i, NULL, &l->error);
        if (l->status == BERTH_OK)
            l->status = berth_layer_release(l->model, i, NULL, &l->error);
    }
    loaded_unload(l);
    return CHECK_EQ(l->status, BERTH_OK);
}

static void
check_cycles(const char *memory, const char *const *pins, uint32_t pin_count,
             const char *words)
{
    berth_plan_options options = loaded_options(memory);
    uint32_t done = 0;
    holdings early;
    holdings late;
    loaded l;

    options.pins = pins;
    options.pin_count = pin_count;
    loaded_begin(&l, leased_llama(1, 1), &options, words);
    l.options.workers = 1;
    l.options.readers = 1;
    while (done < CYCLES / 10 && has_cycled(&l, done))
        done++;
    early = count(&l);
    while (done < CYCLES && has_cycled(&l, done))
        done++;
    CHECK_EQ(done, CYCLES);
    CHECK_LE(haul_threads(), early.threads);
    late = count(&l);
    CHECK_EQ(late.descriptors, early.descriptors);
    CHECK_EQ(late.ledger, early.ledger);
    CHECK_LE(late.resident_kib, early.resident_kib + (long)GROWTH_KIB);
    T_NOTE("%u cycles: %ld KiB resident after a tenth of them, %ld after all; %d "
           "descriptors, %llu threads",
           done, early.resident_kib, late.resident_kib, late.descriptors,
           (unsigned long long)late.threads);
    loaded_end(&l);
}

static void
test_cycles_in_host_memory(void)
{
    check_cycles("cpu=64MiB", NULL, 0, NULL);
}

/* With layers from the disk: slots, a feeder and its ring. */
static void
test_cycles_on_a_device(void)
{
    static const char *const pins[] = {"model.layers=disk"};

    check_cycles("0=8MiB,cpu=64MiB,disk=inf", pins, 1, "sim:8MiB");
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_cycles_in_host_memory);
    T_RUN(test_cycles_on_a_device);
    return t_end();
}
