/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_big_headers.c - the headers of header_load in full size: verdict, time, and
 * memory including the text itself.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "loader/safetensors.h"
#include "tests/header_case.h"
#include "tests/t.h"

/* A sanitizer multiplies time and memory: a tenth of the size shows the same. */
#define DIVISOR (T_IS_SANITIZED ? 10u : 1u)

/*
 * On a core of its own a header of 100 MB is to take a second at most. The rest is for
 * a busy machine, where waiting for memory takes many times as long. Anything quadratic
 * would take minutes.
 */
#define MILLISECONDS_LIMIT 10000
#define FIXED_BYTES (64u * 1024u)

static double
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void
check_load(header_load load, berth_reason reason, uint64_t entry_count, uint64_t pair_count)
{
    berth_memory_summary memory;
    berth_context *context;
    berthi_header header;
    berth_error error;
    uint64_t data_bytes;
    uint64_t length;
    char *const text = header_load_create(load, DIVISOR, &length, &data_bytes);
    double seconds;

    berthi_error_clear(&error);
    CHECK_LE(length, 100000000u);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    seconds = now();
    berthi_header_parse(context, text, length, data_bytes, "f", &header, &error);
    seconds = now() - seconds;
    CHECK_EQ(error.reason, (int32_t)reason);
    CHECK_EQ(header.entry_count, entry_count > 1 ? entry_count / DIVISOR : entry_count);
    CHECK_EQ(header.pair_count, pair_count > 1 ? pair_count / DIVISOR : pair_count);
    if (reason == BERTH_REASON_NONE)
        CHECK_STR(header_case_table_problem(&header, data_bytes), NULL);
    berth_context_memory(context, &memory);
    CHECK_LE(length + memory.peak_bytes, 3 * length + FIXED_BYTES);
    CHECK_LE((int)(seconds * 1000), MILLISECONDS_LIMIT);
    T_NOTE("%-8s %5.1f MB  %4.0f ms  %.2f x its size", header_load_name(load),
           (double)length / 1e6, seconds * 1000,
           (double)(length + memory.peak_bytes) / (double)length);
    berthi_header_fini(&header);
    berth_context_destroy(context);
    free(text);
}

static void
test_many_tensors(void)
{
    check_load(HEADER_LOAD_X01, BERTH_REASON_NONE, 200000, 0);
    check_load(HEADER_LOAD_X02, BERTH_REASON_NONE, 1200000, 0);
    check_load(HEADER_LOAD_R4, BERTH_REASON_NONE, 1720000, 0);
    check_load(HEADER_LOAD_R6, BERTH_REASON_DUPLICATE, 0, 0);
    check_load(HEADER_LOAD_SHUFFLED, BERTH_REASON_NONE, 1150000, 0);
}

static void
test_long_values(void)
{
    check_load(HEADER_LOAD_R1, BERTH_REASON_NONE, 1, 0);
    check_load(HEADER_LOAD_R2, BERTH_REASON_NONE, 1, 0);
    check_load(HEADER_LOAD_R3, BERTH_REASON_RANK, 0, 0);
    check_load(HEADER_LOAD_L09, BERTH_REASON_NONE, 1, 0);
}

static void
test_much_metadata(void)
{
    check_load(HEADER_LOAD_M22, BERTH_REASON_NONE, 0, 1);
    check_load(HEADER_LOAD_R7, BERTH_REASON_NONE, 0, 5000000);
    check_load(HEADER_LOAD_PAIRS, BERTH_REASON_NONE, 0, 8200000);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_many_tensors);
    T_RUN(test_long_values);
    T_RUN(test_much_metadata);
    T_MAIN_END;
}
