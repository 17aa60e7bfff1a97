/* SPDX-License-Identifier: Apache-2.0 */
/* benched.c - see benched.h. */
#include "tests/benched.h"

#include <string.h>

#include "tests/t.h"
#include "tests/vacant.h"

#define MIB (UINT64_C(1) << 20)

void
benched_begin(benched *b, const char *words)
{
    memset(b, 0, sizeof *b);
    CHECK_EQ(berth_context_create(NULL, &b->context, NULL), BERTH_OK);
    if (words != NULL)
        CHECK_EQ(berth_devices_open(b->context, words, &b->devices, &b->error), BERTH_OK);
    berth_bench_options_init(&b->options);
    b->options.devices = b->devices;
    b->options.seconds = 1e-6;
    b->options.memory_bytes = 4 * MIB;
    b->options.file_bytes = 4 * MIB;
    b->options.ring_bytes = 1 * MIB;
}

berth_status
benched_measure(benched *b, berth_bench **out)
{
    berth_job *job = NULL;
    berth_status status = berth_bench_start(b->context, &b->options, &job, &b->error);

    *out = NULL;
    CHECK_EQ(status, b->error.status);
    if (status != BERTH_OK) {
        CHECK(job == NULL);
        return status;
    }
    *out = (berth_bench *)(void *)b; /* to be set in any case */
    status = berth_bench_finish(job, out, &b->error);
    CHECK_EQ(status, b->error.status);
    CHECK((status == BERTH_OK) == (*out != NULL));
    return status;
}

void
benched_end(benched *b)
{
    berth_memory_summary memory;

    berth_bench_destroy(b->bench);
    vacant_close(b->devices);
    berth_context_memory(b->context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(b->context);
}
