/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bench_faults.c - links that are measured while allocations, system calls and devices fail:
 * nothing is kept, and whoever measures is told why. How long anything takes is not asked here.
 */
#include <string.h>

#include "kernels/fault.h"
#include "tests/benched.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/vacant.h"

#define MIB (UINT64_C(1) << 20)

static berth_status
use_bench(void *user, berth_context *context, berth_error *error)
{
    const char *const *const what = user; /* words, folder */
    berth_bench_options options;
    berth_devices *devices = NULL;
    berth_bench *bench = (berth_bench *)(void *)context;
    berth_job *job = NULL;
    berth_status status = BERTH_OK;

    if (what[0] != NULL)
        status = berth_devices_open(context, what[0], &devices, error);
    if (status != BERTH_OK)
        return status;
    berth_bench_options_init(&options);
    options.devices = devices;
    options.folder = what[1];
    options.seconds = 1e-6;
    options.memory_bytes = MIB;
    options.file_bytes = MIB;
    options.ring_bytes = MIB;
    options.no_uring = 1;
    options.readers = 1;
    status = berth_bench_start(context, &options, &job, error);
    CHECK((status == BERTH_OK) == (job != NULL));
    if (status == BERTH_OK) {
        status = berth_bench_finish(job, &bench, error);
        CHECK((status == BERTH_OK) == (bench != NULL));
        berth_bench_destroy(bench);
    }
    vacant_close(devices);
    return status;
}

static void
test_faults(void)
{
    const char *what[] = { NULL, fixture_folder() };
    fault_counts counts = fault_loop("bench of a folder", use_bench, what);

    CHECK_GT(counts.memory, 20);
    CHECK_GT(counts.system, 20);
    CHECK_EQ(fixture_count(what[1]), 0);
    what[0] = "sim:64MiB*2";
    what[1] = NULL;
    counts = fault_loop("bench of devices", use_bench, what);
    CHECK_GT(counts.memory, 20);
}

static void
test_faults_of_devices(void)
{
    const char *what[] = { "sim:64MiB*2", NULL };
    const fault_counts counts = fault_loop_devices("bench of devices", use_bench, what);

    CHECK_GT(counts.device, 60);
    /* Memory that is not pinned, and no room, are nothing to fail for. */
    CHECK_LT(counts.survived, 40);
}

/* A device that is lost at any call. */
static void
test_lost(void)
{
    uint32_t lost = 0;

    for (uint32_t at = 1;; at++) {
        benched b;
        berth_status status;

        benched_begin(&b, fixture_format("sim:64MiB,lose=%u;sim:64MiB", at));
        b.options.memory_bytes = MIB;
        status = benched_measure(&b, &b.bench);
        if (status != BERTH_OK) {
            lost++;
            CHECK_EQ(status, BERTH_ENODEV);
            CHECK_EQ(b.error.reason, BERTH_REASON_DEVICE_LOST);
        }
        benched_end(&b);
        if (status == BERTH_OK || at > 200)
            break;
    }
    CHECK_GT(lost, 20);
}

/* The error is of the folder: its file has no name yet. */
static void
test_a_folder_that_takes_no_file(void)
{
    uint64_t refused = 0;
    uint64_t nth = 0;
    uint64_t failures;
    benched b;

    benched_begin(&b, NULL);
    b.options.folder = fixture_folder();
    do {
        berth_status status;

        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth++, false);
        status = benched_measure(&b, &b.bench);
        failures = berthi_fault_failures(BERTHI_FAULT_SYSTEM);
        berthi_fault_disarm();
        berth_bench_destroy(b.bench);
        b.bench = NULL;
        if (status == BERTH_OK || strstr(b.error.message, "a temporary file") == NULL)
            continue;
        refused++;
        CHECK_STR(b.error.file, b.options.folder);
        CHECK_CONTAINS(b.error.message, "creating a temporary file in the folder");
    } while (failures > 0 && refused == 0);
    CHECK_EQ(refused, 1);
    benched_end(&b);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_faults);
    T_RUN(test_faults_of_devices);
    T_RUN(test_lost);
    T_RUN(test_a_folder_that_takes_no_file);
    T_MAIN_END;
}
