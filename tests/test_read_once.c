/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_read_once.c - each byte of the files is read once, for one device, two or eight:
 * counted byte by byte where the system is asked for it, or an io_uring has it.
 */
#define _GNU_SOURCE /* SYS_pread64 */

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loader/model.h"
#include "loader/reader.h"
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
    uint64_t ring_reads; /* by io_uring */
    bool is_on;
} counting = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
note_read(int fd, uint64_t offset, int64_t got, bool is_ring)
{
    struct stat state;

    pthread_mutex_lock(&counting.lock);
    if (counting.is_on && got > 0 && fstat(fd, &state) == 0)
        for (uint32_t i = 0; i < SHARDS; i++)
            if (counting.shards[i].inode == state.st_ino) {
                counting.shards[i].reads[offset]++;
                counting.shards[i].reads[offset + (uint64_t)got]--;
                counting.ring_reads += is_ring;
            }
    pthread_mutex_unlock(&counting.lock);
}

/* Stands before the C library's. */
ssize_t
pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    const ssize_t got = syscall(SYS_pread64, fd, buffer, bytes, offset);

    note_read(fd, (uint64_t)offset, got, false);
    return got;
}

/* berthi_reader_uring, each of whose reads is noted when it comes back. */
static berthi_reader_table ring;

static berth_status
open_ring(berth_context *context, const berthi_reader_options *options,
          berthi_reader **out_reader, berth_error *error)
{
    const berth_status status =
        berthi_reader_uring.open(context, options, out_reader, error);

    if (status == BERTH_OK)
        (*out_reader)->table = &ring;
    return status;
}

static berthi_read *
complete_from_ring(berthi_reader *reader, uint64_t deadline_ns)
{
    berthi_read *const read = berthi_reader_uring.complete(reader, deadline_ns);

    if (read != NULL)
        note_read(read->fd, read->offset, read->result, true);
    return read;
}

static void
count(bool is_on)
{
    pthread_mutex_lock(&counting.lock);
    counting.is_on = is_on;
    counting.ring_reads = is_on ? 0 : counting.ring_reads;
    for (uint32_t i = 0; !is_on && i < SHARDS; i++)
        for (uint64_t b = 1; b < counting.shards[i].bytes; b++)
            counting.shards[i].reads[b] =
                (int8_t)(counting.shards[i].reads[b] + counting.shards[i].reads[b - 1]);
    pthread_mutex_unlock(&counting.lock);
}

static bool
has_uring(void)
{
    const berthi_reader_options options = { .threads = 1, .depth = 1, .buffer_count = 1 };
    berth_context *context;
    berthi_reader *reader = NULL;

    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return false;
    if (berthi_reader_uring.open(context, &options, &reader, NULL) == BERTH_OK)
        reader->table->close(reader);
    berth_context_destroy(context);
    return reader != NULL;
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
            wrong += shard->reads[offset + b] != 1
                     && !(is_direct && shard->reads[offset + b] == 2);
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

typedef struct load_case {
    const char *folder;
    int32_t type;
    bool is_direct;
    bool has_ring;
} load_case;

/* Of 14 MiB of layers, as much for each as it takes to fill them. */
static const char *
memory_of(uint32_t devices)
{
    const char *text = "";

    for (uint32_t d = 0; d < devices; d++)
        text = fixture_format("%s%s%u=%uMiB", text, d > 0 ? "," : "", d,
                              devices == 1   ? 64
                              : devices == 2 ? 8
                                             : 2);
    return text;
}

/* What is encoded needs scratch that is larger than its layers: they are told where. */
static void
spread_layers(berth_plan_options *options, const char **pins, uint32_t devices)
{
    const char *memory = "";

    for (uint32_t d = 0; d < devices; d++)
        memory = fixture_format("%s%s%u=64MiB", memory, d > 0 ? "," : "", d);
    for (uint32_t i = 0; i < LAYERS; i++)
        pins[i] = fixture_format("model.layers.%u=cuda:%u", i, i * devices / LAYERS);
    options->max_memory = memory;
    options->pins = pins;
    options->pin_count = LAYERS;
}

static void
check_load(const load_case *c, uint32_t devices)
{
    berth_plan_options options = loaded_options(memory_of(devices));
    const char *pins[LAYERS];
    const char *folder = c->folder;
    loaded l;

    if (c->type != BERTH_ENCODING_NATIVE) {
        options.type = c->type;
        options.double_quant = 1;
        spread_layers(&options, pins, devices);
        folder = loaded_quantized(folder, &options);
    }
    loaded_begin(&l, c->folder, &options, fixture_format("sim:64MiB*%u", devices));
    l.options.io = c->is_direct ? BERTH_IO_DIRECT : BERTH_IO_BUFFERED;
    l.options.no_uring = !c->has_ring;
    l.options.verify = BERTH_LOAD_VERIFY_NONE;
    T_REQUIRE(has_begun(c->folder));
    count(true);
    loaded_load(&l);
    count(false);
    if (CHECK_EQ(l.status, BERTH_OK)) {
        CHECK_EQ(counting.ring_reads > 0, c->has_ring);
        check_tensors(&l, c->is_direct);
        check_files(&l, c->is_direct);
        check_devices(&l, devices);
        loaded_check(&l, folder);
    } else {
        t_note("%s", l.error.message);
    }
    end();
    loaded_end(&l);
}

static void
check_devices_of_all_numbers(const load_case *c)
{
    load_case direct = *c;

    direct.is_direct = true;
    check_load(c, 1);
    check_load(c, 2);
    check_load(c, DEVICES);
    check_load(&direct, DEVICES);
}

static void
test_each_byte_is_read_once(void)
{
    check_devices_of_all_numbers(
        &(load_case){.folder = loaded_llama(LAYERS, "BF16", SHARDS)});
}

/* The first device has the embedding, the last one is at the head. */
static void
test_tied_tensors_are_read_once(void)
{
    check_devices_of_all_numbers(&(load_case){.folder = loaded_tied(LAYERS, SHARDS)});
}

static void
test_what_is_encoded_is_read_once(void)
{
    check_devices_of_all_numbers(&(load_case){
        .folder = loaded_llama(LAYERS, "BF16", SHARDS), .type = BERTH_ENCODING_NF4});
}

/* Plain and encoded. */
static void
test_a_ring_reads_once(void)
{
    load_case c = {.folder = loaded_llama(LAYERS, "BF16", SHARDS), .has_ring = true};

    if (!has_uring())
        T_SKIP("io_uring is not to be had");
    ring = berthi_reader_uring;
    ring.open = open_ring;
    ring.complete = complete_from_ring;
    atomic_store(&berthi_reader_instead, &ring);
    check_devices_of_all_numbers(&c);
    c.type = BERTH_ENCODING_NF4;
    check_devices_of_all_numbers(&c);
    atomic_store(&berthi_reader_instead, NULL);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_each_byte_is_read_once);
    T_RUN(test_tied_tensors_are_read_once);
    T_RUN(test_what_is_encoded_is_read_once);
    T_RUN(test_a_ring_reads_once);
    T_MAIN_END;
}
