/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_read_once.c - each byte of the files is read once, for one device, two or eight:
 * counted byte by byte where the system is asked for it.
 */
#define _GNU_SOURCE /* SYS_pread64 */

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loader/model.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define SHARDS  2u
#define DEVICES 8u
#define LAYERS  8u
#define PAGE    UINT64_C(4096)

/* -------------------------------------------------------------------- what is read */

/*
 * A shard, and how often each byte of it was read: while it is read, how many reads begin
 * at a byte less those that end before it.
 */
typedef struct counted {
    uint64_t inode;
    uint64_t bytes;
    int8_t *reads;
} counted;

static struct {
    pthread_mutex_t lock;
    counted shards[SHARDS];
    bool is_on;
} counting = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Stands before the C library's. */
ssize_t
pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    const ssize_t got = syscall(SYS_pread64, fd, buffer, bytes, offset);
    struct stat state;

    pthread_mutex_lock(&counting.lock);
    if (counting.is_on && got > 0 && fstat(fd, &state) == 0)
        for (uint32_t i = 0; i < SHARDS; i++)
            if (counting.shards[i].inode == state.st_ino) {
                counting.shards[i].reads[offset]++;
                counting.shards[i].reads[offset + got]--;
            }
    pthread_mutex_unlock(&counting.lock);
    return got;
}

static void
count(bool is_on)
{
    pthread_mutex_lock(&counting.lock);
    counting.is_on = is_on;
    for (uint32_t i = 0; !is_on && i < SHARDS; i++)
        for (uint64_t b = 1; b < counting.shards[i].bytes; b++)
            counting.shards[i].reads[b] =
                (int8_t)(counting.shards[i].reads[b] + counting.shards[i].reads[b - 1]);
    pthread_mutex_unlock(&counting.lock);
}

static bool
has_begun(const char *folder)
{
    for (uint32_t i = 0; i < SHARDS; i++) {
        counted *const c = &counting.shards[i];
        struct stat state;

        if (!CHECK_EQ(stat(fixture_format("%s/model-%05u-of-%05u.safetensors", folder,
                                          i + 1, SHARDS),
                           &state),
                      0))
            return false;
        c->inode = state.st_ino;
        c->bytes = (uint64_t)state.st_size;
        c->reads = calloc(c->bytes + 1, 1);
        if (!CHECK(c->reads != NULL))
            return false;
    }
    return true;
}

static void
end(void)
{
    for (uint32_t i = 0; i < SHARDS; i++) {
        free(counting.shards[i].reads);
        counting.shards[i] = (counted){.inode = 0};
    }
}

/* --------------------------------------------------------------------------- loads */

/*
 * Tensors with a berth of their own once. Direct reads begin and end with a page: the one
 * that two of them share is read by both.
 */
static void
check_tensors(const loaded *l, bool is_direct)
{
    const berth_checkpoint *const c = l->p.checkpoint;
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < c->table.entry_count; i++) {
        const berthi_entry *const entry = &c->table.entries[i];
        const uint32_t berth = l->model->berth_of[i];
        const counted *const shard = &counting.shards[entry->shard];
        const uint64_t offset = berthi_checkpoint_offset(c, entry);
        berth_tensor tensor;

        CHECK_EQ(berth_checkpoint_tensor(c, i, &tensor), BERTH_OK);
        if (!CHECK_NE(berth, BERTHI_NO_BERTH) || l->p.plan->berths[berth].is_tied)
            continue;
        for (uint64_t b = 0; b < tensor.bytes; b++)
            wrong += shard->reads[offset + b] != 1 &&
                     !(is_direct && shard->reads[offset + b] == 2);
    }
    CHECK_EQ(wrong, 0);
}

/* What no tensor holds comes with its neighbours, but not again and again. */
static void
check_files(const loaded *l, bool is_direct)
{
    uint64_t again = 0;
    uint64_t read = 0;

    for (uint32_t i = 0; i < SHARDS; i++)
        for (uint64_t b = 0; b < counting.shards[i].bytes; b++) {
            again += counting.shards[i].reads[b] > 1;
            read += (uint64_t)counting.shards[i].reads[b];
        }
    CHECK_EQ(again % PAGE, 0);
    CHECK_LE(again * 1000, is_direct ? read : 0);
    CHECK_EQ(l->report.bytes_read, read);
}

/* All devices have something of it. */
static void
check_devices(const loaded *l, uint32_t devices)
{
    uint32_t used = 0;

    for (uint32_t t = 0; t < l->model->tier_count; t++)
        used += l->model->tiers[t].kind == BERTH_TIER_GPU && l->model->tiers[t].slots > 0;
    CHECK_EQ(used, devices);
}

static void
check_load(const char *folder, uint32_t devices, int32_t type, bool is_direct)
{
    char memory[DEVICES * 24 + 1] = "";
    berth_plan_options options;
    loaded l;

    /* 14 MiB in all: as much for each as it takes to fill them. */
    for (uint32_t d = 0; d < devices; d++)
        strcat(memory, fixture_format("%s%u=%uMiB", d > 0 ? "," : "", d,
                                      devices == 1   ? 64
                                      : devices == 2 ? 8
                                                     : 2));
    options = loaded_options(memory);
    options.type = type;
    loaded_begin(&l, folder, &options, fixture_format("sim:64MiB*%u", devices));
    l.options.io = is_direct ? BERTH_IO_DIRECT : BERTH_IO_BUFFERED;
    l.options.no_uring = 1;
    l.options.verify = BERTH_LOAD_VERIFY_NONE;
    T_REQUIRE(has_begun(folder));
    count(true);
    loaded_load(&l);
    count(false);
    if (CHECK_EQ(l.status, BERTH_OK)) {
        check_tensors(&l, is_direct);
        check_files(&l, is_direct);
        check_devices(&l, devices);
    } else {
        t_note("%s", l.error.message);
    }
    end();
    loaded_end(&l);
}

static void
check_devices_of_all_numbers(const char *folder)
{
    check_load(folder, 1, BERTH_ENCODING_NATIVE, false);
    check_load(folder, 2, BERTH_ENCODING_NATIVE, false);
    check_load(folder, 8, BERTH_ENCODING_NATIVE, false);
    check_load(folder, 8, BERTH_ENCODING_NATIVE, true);
}

static void
test_each_byte_is_read_once(void)
{
    check_devices_of_all_numbers(loaded_llama(LAYERS, "BF16", SHARDS));
}

/* The first device has the embedding, the last one is at the head. */
static void
test_tied_tensors_are_read_once(void)
{
    check_devices_of_all_numbers(loaded_tied(LAYERS, SHARDS));
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_each_byte_is_read_once);
    T_RUN(test_tied_tensors_are_read_once);
    T_MAIN_END;
}
