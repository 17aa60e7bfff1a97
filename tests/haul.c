/* SPDX-License-Identifier: Apache-2.0 */
/* haul.c - see haul.h. */
#define _GNU_SOURCE

#include "tests/haul.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/vacant.h"

/* -------------------------------------------------------------------- files */

static void
take_notice(void *user, int32_t level, const char *line)
{
    haul *const h = user;

    (void)level;
    atomic_fetch_add(&h->notices, 1);
    snprintf(h->last_notice, sizeof h->last_notice, "%s", line);
}

const char *
haul_path(const haul *h, uint32_t file)
{
    return fixture_format("%s/haul-%u", h->folder, (unsigned)file);
}

static void
add_file(haul *h, uint32_t file, uint64_t size)
{
    const char *const path = haul_path(h, file);
    uint64_t state = 88172645463325252u + file;

    h->sizes[file] = size;
    h->contents[file] = malloc(size + 1);
    h->deliveries[file] = calloc(1, size + 1);
    h->ordered[file] = calloc(1, size + 1);
    if (!h->contents[file] || !h->deliveries[file] || !h->ordered[file])
        exit(70);
    for (uint64_t i = 0; i < size; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        h->contents[file][i] = (uint8_t)(state >> 56);
    }
    fixture_write(path, h->contents[file], size);
    if (berthi_file_open(&h->files[file], BERTHI_SYS_AT_CWD, path, path, BERTHI_FILE_ANYWHERE,
                         NULL)
        != 0)
        exit(70);
}

void
haul_begin(haul *h, const char *folder, const uint64_t *sizes, uint32_t count)
{
    berth_context_options options;

    memset(h, 0, sizeof *h);
    berth_context_options_init(&options);
    options.log = take_notice;
    options.log_user = h;
    if (berth_context_create(&options, &h->context, NULL) != BERTH_OK)
        exit(70);
    h->folder = folder;
    h->file_count = count;
    h->chunk_bytes = 4096;
    h->is_any = true;
    for (uint32_t i = 0; i < count; i++)
        add_file(h, i, sizes[i]);
    atomic_store(&haul_reads, 0);
}

void
haul_want(haul *h, uint32_t file, uint64_t offset, uint64_t bytes)
{
    h->pieces[h->piece_count] = (berthi_piece){ offset, bytes, h->piece_count, file };
    h->piece_count++;
}

void
haul_want_all(haul *h)
{
    for (uint32_t i = 0; i < h->file_count; i++)
        haul_want(h, i, 0, h->sizes[i]);
}

void
haul_reset(haul *h)
{
    for (uint32_t i = 0; i < h->file_count; i++) {
        memset(h->deliveries[i], 0, h->sizes[i]);
        memset(h->ordered[i], 0, h->sizes[i]);
        h->ordered_up_to[i] = 0;
        h->ordered_chunks[i] = 0;
    }
    atomic_store(&h->calls, 0);
    atomic_store(&h->notices, 0);
    atomic_store(&haul_reads, 0);
    atomic_store(&haul_buffers, 0);
    atomic_store(&haul_misnamed, 0);
}

void
haul_end(haul *h)
{
    for (uint32_t i = 0; i < h->file_count; i++) {
        berthi_file_close(&h->files[i]);
        fixture_remove(haul_path(h, i));
        free(h->contents[i]);
        free(h->deliveries[i]);
        free(h->ordered[i]);
    }
    vacant_check_memory(h->context);
    berth_context_destroy(h->context);
}

/* Of the kernel's flags of a thread, in its `stat`. */
#define FLAG_EXITING   0x4u
#define FLAG_IO_WORKER 0x10u

/*
 * Whether a thread of the list is at work for this process. One that was joined has passed the
 * point behind which it is exiting, and is listed until it gets a processor once more, on a busy
 * machine for seconds; io_uring has threads for a moment after its ring has been closed.
 */
static bool
is_ours(const char *thread)
{
    char path[300];
    char text[512];
    const char *behind_name;
    unsigned flags;
    ssize_t got;
    int fd;

    snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false; /* it has just ended */
    got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    behind_name = strrchr(text, ')');
    if (behind_name == NULL
        || sscanf(behind_name, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1)
        return true;
    return (flags & (FLAG_EXITING | FLAG_IO_WORKER)) == 0;
}

uint64_t
haul_threads(void)
{
    DIR *const folder = opendir("/proc/self/task");
    const struct dirent *entry;
    uint64_t count = 0;

    if (folder == NULL)
        return 0;
    while ((entry = readdir(folder)) != NULL)
        count += entry->d_name[0] != '.' && is_ours(entry->d_name);
    closedir(folder);
    return count;
}

bool
haul_has_at_most(uint64_t count)
{
    for (int i = 0; t_is_emulated() && i < 10000 && haul_threads() > count; i++)
        haul_pause(1000000);
    return haul_threads() <= count;
}

void
haul_pause(uint64_t ns)
{
    const struct timespec time = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

    nanosleep(&time, NULL);
}

berth_status
haul_slowly(haul *h, const berthi_chunk *chunk, bool is_in_order, berth_error *error)
{
    (void)h;
    (void)chunk;
    (void)is_in_order;
    (void)error;
    haul_pause(200000);
    return BERTH_OK;
}

berth_status
haul_very_slowly(haul *h, const berthi_chunk *chunk, bool is_in_order, berth_error *error)
{
    (void)h;
    (void)chunk;
    (void)is_in_order;
    (void)error;
    haul_pause(20000000);
    return BERTH_OK;
}

uint64_t
haul_total(const haul *h)
{
    uint64_t total = 0;

    for (uint64_t i = 0; i < h->piece_count; i++)
        total += h->pieces[i].bytes;
    return total;
}

uint64_t
haul_cached(const haul *h, uint32_t file)
{
    const int64_t pages = berthi_sys_cached_pages(h->files[file].fd, 0, h->sizes[file]);

    return pages < 0 ? UINT64_MAX : (uint64_t)pages * berthi_sys_page_bytes();
}

void
haul_drop(const haul *h, uint32_t file)
{
    fsync(h->files[file].fd);
    posix_fadvise(h->files[file].fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* ------------------------------------------------------------------ consuming */

/* Eight bytes at a time: where each access is watched, one of them costs as much as one byte. */
#define EACH_OF_8 UINT64_C(0x0101010101010101)

static uint64_t
eight_at(const uint8_t *bytes)
{
    uint64_t eight;

    memcpy(&eight, bytes, sizeof eight);
    return eight;
}

/* None is counted as often as 255 times. */
static void
count_each(uint8_t *times, uint64_t count)
{
    for (; count >= 8; count -= 8, times += 8) {
        const uint64_t eight = eight_at(times) + EACH_OF_8;

        memcpy(times, &eight, sizeof eight);
    }
    while (count-- > 0)
        (*times++)++;
}

/* Are all of them `wanted`, whatever their bits of `rest`? */
static bool
are_all(const uint8_t *times, uint64_t count, uint8_t wanted, uint8_t rest)
{
    for (; count >= 8; count -= 8, times += 8)
        if ((eight_at(times) & ~(rest * EACH_OF_8)) != wanted * EACH_OF_8)
            return false;
    for (; count > 0; count--, times++)
        if ((*times & ~rest) != wanted)
            return false;
    return true;
}

static void
compare(haul *h, uint32_t file, uint64_t offset, const uint8_t *bytes, uint64_t count,
        uint8_t *deliveries)
{
    if (offset + count > h->sizes[file]
        || memcmp(bytes, h->contents[file] + offset, count) != 0) {
        atomic_store(&h->has_wrong_bytes, true);
        return;
    }
    count_each(deliveries + offset, count);
}

static berth_status
consume(void *user, const berthi_chunk *chunk, const berthi_span *spans,
        const uint8_t *bytes, berth_error *error)
{
    haul *const h = user;
    const berth_status status = h->each ? h->each(h, chunk, false, error) : BERTH_OK;

    atomic_fetch_add(&h->calls, 1);
    for (uint32_t i = 0; i < chunk->span_count; i++) {
        const uint64_t offset = chunk->begin + spans[i].chunk_offset;

        if (offset != h->pieces[spans[i].tag].offset + spans[i].tag_offset)
            atomic_store(&h->has_wrong_bytes, true);
        compare(h, chunk->file, offset, bytes + spans[i].chunk_offset, spans[i].bytes,
                h->deliveries[chunk->file]);
    }
    return status;
}

static berth_status
consume_in_order(void *user, const berthi_chunk *chunk, const uint8_t *bytes,
                 berth_error *error)
{
    haul *const h = user;
    const uint32_t file = chunk->file;
    const bool is_alone = atomic_fetch_add(&h->ordering[file], 1) == 0;
    const berth_status status = h->each ? h->each(h, chunk, true, error) : BERTH_OK;

    atomic_fetch_add(&h->calls, 1);
    if (!is_alone || chunk->begin < h->ordered_up_to[file]
        || chunk->number_in_file != h->ordered_chunks[file])
        atomic_store(&h->has_wrong_order, true);
    compare(h, file, chunk->begin, bytes, chunk->end - chunk->begin, h->ordered[file]);
    h->ordered_up_to[file] = chunk->end;
    h->ordered_chunks[file]++;
    atomic_fetch_sub(&h->ordering[file], 1);
    return status;
}

static void
count_stop(void *user)
{
    haul *const h = user;

    atomic_fetch_add(&h->stops, 1);
}

static berth_status
list_shuffled(haul *h, berthi_chunks *chunks)
{
    berthi_piece pieces[HAUL_PIECES];
    uint32_t random = h->shuffle;

    memcpy(pieces, h->pieces, sizeof pieces);
    for (uint64_t i = h->piece_count; i > 1; i--) {
        uint64_t other;
        berthi_piece piece;

        random = random * UINT32_C(1664525) + UINT32_C(1013904223);
        other = (random >> 8) % i;
        piece = pieces[other];
        pieces[other] = pieces[i - 1];
        pieces[i - 1] = piece;
    }
    return berthi_chunks_list(h->context, pieces, h->piece_count, chunks, &h->error);
}

berth_status
haul_run(haul *h, berth_job *job)
{
    const berthi_consumer consumer = {
        .user = h,
        .consume = h->is_any ? consume : NULL,
        .consume_in_order = h->is_in_order ? consume_in_order : NULL,
        .stop = count_stop,
    };
    const int fds = fixture_open_fds();
    berthi_chunks chunks;
    berth_status status;

    memset(&h->error, 0, sizeof h->error);
    memset(&h->stats, 0xff, sizeof h->stats);
    status = h->shuffle != 0 ? list_shuffled(h, &chunks)
             : h->is_packed  ? berthi_chunks_pack(h->context, h->pieces, h->piece_count,
                                                  h->chunk_bytes, h->gap, &chunks, &h->error)
                             : berthi_chunks_build(h->context, h->pieces, h->piece_count,
                                                   h->chunk_bytes, h->gap, &chunks,
                                                   &h->error);
    if (status == BERTH_OK)
        status = berthi_conveyor_run(&(berthi_freight){ .context = h->context,
                                                        .job = job,
                                                        .files = h->files,
                                                        .file_count = h->file_count,
                                                        .chunks = &chunks },
                                     &h->options, &consumer, &h->stats, &h->error);
    berthi_chunks_fini(&chunks);
    CHECK_EQ(fixture_open_fds(), fds);
    return status;
}

/* True when [0, size) of `times` is 1 where something is wanted, else at most `rest`. */
static bool
is_right(const haul *h, uint32_t file, const uint8_t *times, uint8_t rest)
{
    uint64_t at = 0;

    for (uint64_t p = 0; p <= h->piece_count; p++) {
        const bool is_mine = p < h->piece_count && h->pieces[p].file == file;
        const uint64_t begin = is_mine                 ? h->pieces[p].offset
                               : p == h->piece_count ? h->sizes[file]
                                                       : at;

        if (at < begin && !are_all(times + at, begin - at, 0, rest))
            return false;
        at = at < begin ? begin : at;
        if (is_mine && at < begin + h->pieces[p].bytes) {
            if (!are_all(times + at, begin + h->pieces[p].bytes - at, 1, 0))
                return false;
            at = begin + h->pieces[p].bytes;
        }
    }
    return true;
}

void
haul_check(haul *h)
{
    CHECK(!atomic_load(&h->has_wrong_bytes));
    CHECK(!atomic_load(&h->has_wrong_order));
    for (uint32_t i = 0; i < h->file_count; i++) {
        if (h->is_any)
            CHECK(is_right(h, i, h->deliveries[i], 0));
        if (h->is_in_order) /* gaps are part of what comes in order */
            CHECK(is_right(h, i, h->ordered[i], 1));
    }
}

/* --------------------------------------------------------------- misbehaviour */

haul_tricks haul_trick;
static pthread_mutex_t trick_lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic bool haul_is_hung;
_Atomic uint32_t haul_hurried;
_Atomic uint64_t haul_reads;
_Atomic uint64_t haul_buffers;
_Atomic uint64_t haul_misnamed;

#define TRICK_BUFFERS 64

void
haul_set(haul_tricks next)
{
    pthread_mutex_lock(&trick_lock);
    haul_trick = next;
    pthread_mutex_unlock(&trick_lock);
}

static haul_tricks
tricks(void)
{
    haul_tricks now;

    pthread_mutex_lock(&trick_lock);
    now = haul_trick;
    pthread_mutex_unlock(&trick_lock);
    return now;
}

typedef struct trick_reader {
    berthi_reader reader; /* first: what the callers see */
    uint8_t *memory[TRICK_BUFFERS];
    uint64_t bytes[TRICK_BUFFERS];
    berth_context *context;
    berthi_read_list finished;
    berthi_read_list hung;
    uint64_t direct_reads;
    _Atomic bool is_woken;
    bool was_away;
} trick_reader;

static berth_status
open_tricks(berth_context *context, const berthi_reader_options *options,
            berthi_reader **out_reader, berth_error *error)
{
    trick_reader *const r =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *r);

    (void)options;
    *out_reader = NULL;
    if (r == NULL)
        return berthi_fail_memory(error, "tricks");
    r->reader.table = &haul_reader;
    r->context = context;
    *out_reader = &r->reader;
    return BERTH_OK;
}

static bool
add_trick_buffer(berthi_reader *reader, uint32_t number, void *memory, uint64_t bytes)
{
    trick_reader *const r = (trick_reader *)reader;

    atomic_fetch_add(&haul_buffers, 1);
    if (tricks().add_ns > 0)
        berthi_sys_sleep(tricks().add_ns);
    if (!tricks().knows_buffers || number >= TRICK_BUFFERS || r->memory[number] != NULL)
        return false;
    r->memory[number] = memory;
    r->bytes[number] = bytes;
    return true;
}

static bool
is_named_right(const trick_reader *r, const berthi_read *read)
{
    const uint32_t number = read->buffer;

    if (!tricks().knows_buffers)
        return number == BERTHI_READER_NO_BUFFER;
    return number < TRICK_BUFFERS && r->memory[number] != NULL
           && read->memory >= r->memory[number]
           && read->memory + read->bytes <= r->memory[number] + r->bytes[number];
}

static int64_t
read_with_tricks(trick_reader *r, const berthi_read *read)
{
    const uint64_t number =
        tricks().only_direct ? r->direct_reads : atomic_load(&haul_reads);
    const uint64_t block =
        read->is_direct ? tricks().direct_block : tricks().buffered_block;
    uint64_t bytes = read->bytes;
    ssize_t got;

    if (!is_named_right(r, read))
        atomic_fetch_add(&haul_misnamed, 1);
    atomic_fetch_add(&haul_reads, 1);
    r->direct_reads += read->is_direct;
    if (tricks().fails_every_second && number % 2 == 0)
        return -tricks().failure;
    if (tricks().failure != 0 && (read->is_direct || !tricks().only_direct)
        && number >= tricks().failure_first
        && number - tricks().failure_first < tricks().failure_count)
        return -tricks().failure;
    /* What a direct read must look like, on a file system that takes anything. */
    if (read->is_direct
        && (read->offset % 4096 != 0 || read->bytes % 4096 != 0
            || (uintptr_t)read->memory % 4096 != 0))
        return -EINVAL;
    if (tricks().end != 0 && read->offset >= tricks().end)
        return 0;
    if (tricks().end != 0)
        bytes = berthi_min_u64(bytes, tricks().end - read->offset);
    if (block != 0)
        bytes = berthi_min_u64(bytes, block);
    got = pread(read->fd, read->memory, read->bytes, (off_t)read->offset);
    if (got < 0)
        return -errno;
    if ((uint64_t)got <= bytes)
        return got;
    /* Whatever a device may have written there: only the result counts. */
    memset(read->memory + bytes, 0xee, read->bytes - bytes);
    return (int64_t)bytes;
}

static void
submit_tricks(berthi_reader *reader, berthi_read *read)
{
    trick_reader *const r = (trick_reader *)reader;
    berthi_read_list after = { read, read };

    if (tricks().hangs && atomic_load(&haul_is_hung)
        && atomic_load(&haul_reads) >= tricks().hang_first) {
        atomic_fetch_add(&haul_reads, 1);
        berthi_read_list_add(&r->hung, read);
        return;
    }
    read->result = read_with_tricks(r, read);
    read->begin_ns = berthi_sys_now_ns();
    read->busy_ns = 1;
    if (!tricks().is_backward) {
        berthi_read_list_add(&r->finished, read);
        return;
    }
    read->next = r->finished.first;
    if (r->finished.first != NULL)
        after.last = r->finished.last;
    r->finished = after;
}

/* They come back after all: what a disk writes then must not be anybody else's. */
static void
end_hanging(trick_reader *r)
{
    berthi_read *read;

    if (atomic_load(&haul_is_hung))
        return;
    while ((read = berthi_read_list_take(&r->hung)) != NULL) {
        memset(read->memory, 0xdd, read->bytes);
        read->result = -EIO;
        read->busy_ns = 1;
        berthi_read_list_add(&r->finished, read);
    }
}

/* Until the delay is over, or somebody hurries. */
static void
wait_delay(uint64_t delay_ns)
{
    const struct timespec moment = { 0, 1000000 };
    const uint64_t end_ns = berthi_sys_now_ns() + delay_ns;

    while (berthi_sys_now_ns() < end_ns && atomic_load(&haul_hurried) == 0)
        nanosleep(&moment, NULL);
    if (atomic_load(&haul_hurried) > 0)
        atomic_fetch_sub(&haul_hurried, 1);
}

static bool
has_come(const trick_reader *r)
{
    const berthi_read *const first = r->finished.first;

    return first != NULL && berthi_sys_now_ns() >= first->begin_ns + tricks().latency_ns;
}

static berthi_read *
complete_tricks(berthi_reader *reader, uint64_t deadline_ns)
{
    trick_reader *const r = (trick_reader *)reader;
    const struct timespec moment = { 0, 1000000 };

    end_hanging(r);
    if (tricks().away_ns > 0 && !r->was_away) {
        r->was_away = true;
        while (berthi_sys_now_ns() < deadline_ns)
            nanosleep(&moment, NULL);
        berthi_sys_sleep(tricks().away_ns);
        return NULL;
    }
    if (r->finished.first != NULL && tricks().delay_ns > 0)
        wait_delay(tricks().delay_ns);
    while (!has_come(r) && !atomic_exchange(&r->is_woken, false)
           && berthi_sys_now_ns() < deadline_ns)
        nanosleep(&moment, NULL);
    end_hanging(r);
    return has_come(r) ? berthi_read_list_take(&r->finished) : NULL;
}

static void
wake_tricks(berthi_reader *reader)
{
    atomic_store(&((trick_reader *)reader)->is_woken, true);
}

static void
cancel_tricks(berthi_reader *reader)
{
    trick_reader *const r = (trick_reader *)reader;

    for (berthi_read *read = r->finished.first; read != NULL; read = read->next)
        read->result = -ECANCELED;
}

static void
close_tricks(berthi_reader *reader)
{
    trick_reader *const r = (trick_reader *)reader;

    CHECK(r->finished.first == NULL);
    CHECK(r->hung.first == NULL);
    berthi_memory_free(r->context, BERTHI_PURPOSE_OBJECT, r, sizeof *r);
}

const berthi_reader_table haul_reader = {
    .name = "tricks",
    .open = open_tricks,
    .add_buffer = add_trick_buffer,
    .submit = submit_tricks,
    .complete = complete_tricks,
    .wake = wake_tricks,
    .cancel = cancel_tricks,
    .close = close_tricks,
};
