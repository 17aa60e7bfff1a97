/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_order.c - reads that arrive in any order: nobody waits for what
 * another worker would have to bring, and the files stay the same.
 *
 * The C library's pread stands here: some calls take long.
 */
#define _GNU_SOURCE

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/t.h"

static _Atomic uint32_t reads;
static uint32_t slow_every; /* so many reads one is slow; 0: none */

ssize_t
pread(int fd, void *bytes, size_t size, off_t offset)
{
    if (slow_every > 0 && atomic_fetch_add(&reads, 1) % slow_every == 0)
        usleep(2000);
    return syscall(SYS_pread64, fd, bytes, size, offset);
}

static void
check_order(const char *model, int32_t double_quant, uint64_t pool)
{
    const char *const whole = fixture_format("%s/whole", fixture_folder());
    converted c;

    converted_begin(&c, whole, BERTH_ENCODING_NF4);
    c.options.double_quant = double_quant;
    c.options.max_shard_bytes = 9000;
    slow_every = 0;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    for (uint32_t round = 0; round < 12; round++) {
        converted_begin(&c, fixture_format("%s/out", fixture_folder()),
                        BERTH_ENCODING_NF4);
        c.options.double_quant = double_quant;
        c.options.max_shard_bytes = 9000;
        c.options.no_uring = 1;
        c.options.io = BERTH_IO_BUFFERED;
        c.options.readers = 8;
        c.options.workers = 1 + round % 4;
        converted_shrink(&c, 4096);
        c.sizes.pool = pool;
        slow_every = 2 + round % 5;
        if (!CHECK_EQ(converted_run(&c, model), BERTH_OK)
            || !CHECK(converted_is_same(whole, c.options.output)))
            break;
        fixture_remove(c.options.output);
    }
    slow_every = 0;
}

static void
test_reads_that_arrive_late(void)
{
    alarm(120); /* whoever waits for ever is ended */
    for (uint64_t seed = 20; seed < 23; seed++) {
        const char *const model =
            converted_make_model(seed, 5, false, seed % 2 > 0);

        check_order(model, 1, 1 << 20);
        check_order(model, 1, 1); /* one weight at a time */
        check_order(model, 0, 1);
    }
    alarm(0);
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_reads_that_arrive_late);
    T_MAIN_END;
}
