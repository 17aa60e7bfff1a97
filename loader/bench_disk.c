/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_disk.c - reads as loads do them: the same readers, requests and ring, with a
 * consumer that drops the bytes.
 *
 * A run is timed from the moment at which the ring has been filled once: what it takes to
 * get going is no property of the disk. A few rings are read after that, or else what
 * happened to lie in the ring by then would count.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/bench.h"
#include "loader/conveyor.h"
#include "loader/temporary.h"
#include "loader/tune.h"

#define CHUNK_MIN    (UINT64_C(64) << 10)
#define WARM_BYTES   (UINT64_C(512) << 20)
#define WARM_MIN     (UINT64_C(16) << 20)
#define WARM_STEP    (UINT64_C(1) << 20)
#define RINGS        3u
#define WRITE_STEP   (UINT64_C(16) << 20)
#define WRITE_NS     UINT64_C(2000000000)

/* ------------------------------------------------------------------------ the file */

static uint64_t
total_bytes(const berthi_bench *b)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < b->file_count; i++)
        bytes += b->files[i].identity.bytes;
    return bytes;
}

/* As many bytes as are written in two seconds, at least a step. */
static berth_status
write_file(berthi_bench *b, const berthi_target *target, berth_error *error)
{
    const uint64_t begin_ns = berthi_sys_now_ns();
    const int fd = b->temporary.fd;
    const uint64_t step = berthi_min_u64(WRITE_STEP, b->half);
    uint64_t at = 0;
    berth_status status = BERTH_OK;

    while (status == BERTH_OK && at < b->options.file_bytes
           && (at == 0 || berthi_sys_now_ns() - begin_ns < WRITE_NS)) {
        const uint64_t bytes = berthi_min_u64(step, b->options.file_bytes - at);

        status = berthi_temporary_write(target, fd, b->memory + at % b->half / step * step,
                                        bytes, at, error);
        if (status == BERTH_OK && berthi_sys_fsync(fd) != 0)
            status = berthi_fail_system(error, errno, target->path, "flushing");
        if (status == BERTH_OK)
            status = berthi_bench_check(b, error);
        at += bytes;
    }
    return status;
}

/* The name is gone as soon as it is there: whatever happens, nothing is left behind. */
static berth_status
create_file(berthi_bench *b, const berthi_target *target, berthi_arena *arena,
            berth_error *error)
{
    const char *name;
    berth_status status = berthi_folder_check(target->folder, target->path, error);

    if (status == BERTH_OK)
        status = berthi_target_check_space(target, b->options.file_bytes, error);
    if (status == BERTH_OK)
        status = berthi_temporary_create(target, arena, &name, &b->temporary.fd, error);
    if (status == BERTH_OK && berthi_sys_unlink(target->folder, name) != 0)
        status = berthi_fail_system(error, errno, target->path, "removing the file");
    return status == BERTH_OK ? write_file(b, target, error) : status;
}

static berth_status
make_file(berthi_bench *b, berth_error *error)
{
    const char *const folder = b->options.folder;
    berthi_target target = { .name = "bench", .path = folder };
    berthi_arena arena;
    berth_status status;

    target.folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, folder);
    if (target.folder < 0)
        return berthi_fail_system(error, errno, folder, "opening the folder");
    berthi_arena_init(&arena, b->context, BERTHI_PURPOSE_OBJECT, 256);
    status = create_file(b, &target, &arena, error);
    if (status == BERTH_OK
        && berthi_sys_fstat(b->temporary.fd, &b->temporary.identity) != 0)
        status = berthi_fail_system(error, errno, folder, "looking at the file");
    b->temporary.path = folder;
    berthi_arena_fini(&arena);
    (void)berthi_sys_close(target.folder);
    return status;
}

berth_status
berthi_bench_open_files(berthi_bench *b, berth_error *error)
{
    const berth_checkpoint *const checkpoint = b->options.checkpoint;
    berth_status status = BERTH_OK;

    if (checkpoint == NULL && b->options.folder == NULL)
        return BERTH_OK;
    b->file_count = checkpoint != NULL ? checkpoint->shard_count : 1;
    b->files = berthi_memory_array(b->context, BERTHI_PURPOSE_CHUNKS, b->file_count,
                                   sizeof *b->files);
    if (b->files == NULL)
        return berthi_fail_memory(error, "starting a bench");
    if (checkpoint != NULL) {
        berthi_checkpoint_copy_files(checkpoint, b->files);
    } else {
        status = make_file(b, error);
        b->files[0] = b->temporary;
    }
    b->file_system = b->files[0].identity.device;
    return status;
}

static void
make_cold(berthi_bench *b)
{
    for (uint32_t i = 0; i < b->file_count; i++)
        (void)berthi_sys_drop_cache(b->files[i].fd, 0, 0);
}

/* What was brought into the page cache must not make the next load faster. */
void
berthi_bench_close_files(berthi_bench *b)
{
    if (b->files != NULL)
        make_cold(b);
    berthi_memory_free(b->context, BERTHI_PURPOSE_CHUNKS, b->files,
                       b->file_count * sizeof *b->files);
    b->files = NULL;
    if (b->temporary.fd >= 0)
        (void)berthi_sys_close(b->temporary.fd);
    b->temporary.fd = -1;
}

/* --------------------------------------------------------------------------- a run */

/* Who takes the bytes, and the clock. */
typedef struct reading {
    berthi_bench *b;
    pthread_mutex_t lock;
    uint64_t lead;     /* bytes before the clock starts */
    uint64_t bytes;    /* consumed */
    uint64_t begin_ns; /* of the run */
    uint64_t mark_ns;  /* the clock has started; 0: not yet */
    uint64_t mark;     /* bytes that were consumed then */
    uint64_t last_ns;
    bool is_enough;    /* the run was ended from here */
} reading;

/* Since the clock has started. */
static bool
has_measured(const reading *r)
{
    return r->mark_ns != 0 && r->bytes - r->mark >= RINGS * r->b->options.ring_bytes;
}

static berth_status
drop_bytes(void *user, const berthi_chunk *chunk, const berthi_span *spans,
           const uint8_t *bytes, berth_error *error)
{
    reading *const r = user;
    const uint64_t now_ns = berthi_sys_now_ns();
    bool is_enough;

    (void)spans;
    (void)bytes;
    pthread_mutex_lock(&r->lock);
    r->bytes += chunk->end - chunk->begin;
    r->last_ns = now_ns;
    if (r->mark_ns == 0 && r->bytes > r->lead) {
        r->mark_ns = now_ns;
        r->mark = r->bytes;
    }
    r->is_enough = r->is_enough || (has_measured(r) && now_ns >= r->b->end_ns);
    is_enough = r->is_enough;
    pthread_mutex_unlock(&r->lock);
    return is_enough ? berthi_job_fail_cancelled(error) : BERTH_OK;
}

/* The first `bytes` of the files. */
static berth_status
cut_files(berthi_bench *b, uint64_t bytes, uint64_t chunk_bytes, berthi_chunks *out,
          berth_error *error)
{
    berthi_piece *const pieces = berthi_memory_array(
        b->context, BERTHI_PURPOSE_CHUNKS, b->file_count, sizeof *pieces);
    uint32_t count = 0;
    berth_status status;

    if (pieces == NULL)
        return berthi_fail_memory(error, "reading for a bench");
    while (count < b->file_count && bytes > 0) {
        const uint64_t part = berthi_min_u64(bytes, b->files[count].identity.bytes);

        pieces[count] =
            (berthi_piece){ .bytes = part, .tag = BERTHI_NO_TAG, .file = count };
        bytes -= part;
        count++;
    }
    status = berthi_chunks_build(b->context, pieces, count, chunk_bytes, 0, out, error);
    berthi_memory_free(b->context, BERTHI_PURPOSE_CHUNKS, pieces,
                       b->file_count * sizeof *pieces);
    return status;
}

static uint64_t
choose_chunk(const berthi_bench *b)
{
    uint64_t bytes = BERTHI_CHUNK_BYTES;

    while (bytes > CHUNK_MIN && bytes > b->options.ring_bytes / 4)
        bytes /= 2;
    return bytes;
}

/*
 * Reads the first `bytes` of the files, or what of them there is time for, into so many
 * buffers.
 */
static berth_status
read_files(berthi_bench *b, uint64_t bytes, uint32_t stages, reading *r,
           berthi_conveyor_stats *stats, berth_error *error)
{
    const berthi_conveyor_options options = {
        .io = b->options.io,
        .no_uring = b->options.no_uring != 0,
        .readers = b->options.readers,
        .workers = 1,
        .ring_bytes = b->options.ring_bytes,
        .stages = stages,
    };
    const berthi_consumer consumer = { .user = r, .consume = drop_bytes };
    berthi_chunks chunks;
    berth_status status = cut_files(b, bytes, choose_chunk(b), &chunks, error);

    if (status != BERTH_OK)
        return status;
    *r = (reading){ .b = b,
                    .lock = PTHREAD_MUTEX_INITIALIZER,
                    .lead = b->options.ring_bytes - 1,
                    .begin_ns = berthi_sys_now_ns() };
    status = berthi_conveyor_run(&(berthi_freight){ .context = b->context,
                                                    .job = b->job,
                                                    .files = b->files,
                                                    .file_count = b->file_count,
                                                    .chunks = &chunks },
                                 &options, &consumer, stats, error);
    pthread_mutex_destroy(&r->lock);
    berthi_chunks_fini(&chunks);
    if (r->is_enough && !berthi_job_is_cancelled(b->job)) {
        berthi_error_clear(error);
        return BERTH_OK;
    }
    return status;
}

/*
 * Runs until the time is over. `prepare` is not timed. As many buffers are found as loads would
 * find: what fewer, or too many, have reached counts only where there is no time for another
 * run.
 */
static berth_status
repeat(berthi_bench *b, berth_bench_line *line, uint64_t bytes,
       void (*prepare)(berthi_bench *b), berth_error *error)
{
    berthi_bench_samples samples = { .count = 0 };
    berthi_tune_sample so_far = { .now_ns = 0 };
    berthi_conveyor_stats stats;
    berthi_tune tune;
    bool has_room = true;
    reading r;
    berth_status status = BERTH_OK;

    berthi_tune_begin(&tune, BERTHI_TUNE_STAGES,
                      (uint32_t)(b->options.ring_bytes / choose_chunk(b)), 0);
    while (status == BERTH_OK && has_room) {
        const bool is_tried = !tune.is_settled;
        uint64_t read;
        uint64_t ns;

        prepare(b);
        status = read_files(b, bytes, tune.stages, &r, &stats, error);
        if (status != BERTH_OK)
            break;
        read = r.bytes - (has_measured(&r) ? r.mark : 0);
        ns = r.last_ns - (has_measured(&r) ? r.mark_ns : r.begin_ns);
        has_room = berthi_bench_sample(b, line, &samples, read, ns)
                   && !berthi_bench_is_late(b);
        if (!is_tried)
            continue;
        so_far.bytes += read;
        so_far.now_ns += ns;
        so_far.idle_ns = so_far.now_ns; /* nothing is done with what is read */
        (void)berthi_tune_look(&tune, &so_far);
        if (has_room)
            samples.count = 0;
    }
    berthi_bench_settle(line, &samples);
    if (samples.count > 0)
        snprintf(line->words, sizeof line->words, "%.30s", stats.path);
    return status;
}

/* --------------------------------------------------------------------- cold and warm */

static void
leave_as_it_is(berthi_bench *b)
{
    (void)b;
}

/* The per cent of all pages that could not be dropped. */
static uint64_t
cached_percent(const berthi_bench *b)
{
    const uint64_t page = berthi_sys_page_bytes();
    uint64_t cached = 0;
    uint64_t all = 0;

    for (uint32_t i = 0; i < b->file_count; i++) {
        const uint64_t bytes = b->files[i].identity.bytes;
        const int64_t pages =
            bytes > 0 ? berthi_sys_cached_pages(b->files[i].fd, 0, bytes) : 0;

        all += berthi_divide_up(bytes, page);
        cached += pages > 0 ? (uint64_t)pages : 0;
    }
    return berthi_min_u64(cached * 100 / berthi_max_u64(all, 1), 100);
}

/* Reads the next bytes of a file through the cache. */
static berth_status
touch(berthi_bench *b, const berthi_file *file, uint64_t at, uint64_t *out_bytes,
      berth_error *error)
{
    const uint64_t step = berthi_min_u64(WARM_STEP, b->half);
    const int64_t n = berthi_sys_pread(file->fd, b->memory + b->half, step, at);

    *out_bytes = n > 0 ? (uint64_t)n : 0;
    if (n < 0)
        return berthi_file_fail_read(file, errno, at, "the bytes", error);
    if (n == 0)
        return berthi_file_fail_truncated(file, at, file->identity.bytes, "the bytes",
                                          error);
    return berthi_bench_check(b, error);
}

/* How many of the first bytes now are in the cache: what there was time to read. */
static berth_status
make_warm(berthi_bench *b, uint64_t *out_bytes, berth_error *error)
{
    const uint64_t end_ns = b->begin_ns + (b->end_ns - b->begin_ns) / 2;
    berth_status status = BERTH_OK;

    *out_bytes = 0;
    for (uint32_t i = 0; i < b->file_count; i++)
        for (uint64_t at = 0; at < b->files[i].identity.bytes;) {
            uint64_t n;

            status = touch(b, &b->files[i], at, &n, error);
            at += n;
            *out_bytes += n;
            if (status != BERTH_OK || *out_bytes >= WARM_BYTES
                || (*out_bytes >= WARM_MIN && berthi_sys_now_ns() > end_ns))
                return status;
        }
    return status;
}

static berth_status
read_warm(berthi_bench *b, berth_bench_line *line, berth_error *error)
{
    uint64_t bytes;
    berth_status status = make_warm(b, &bytes, error);

    return status == BERTH_OK ? repeat(b, line, bytes, leave_as_it_is, error) : status;
}

static berth_status
read_cold(berthi_bench *b, berth_bench_line *line, berth_error *error)
{
    char path[31];
    uint64_t cached;
    berth_status status;

    make_cold(b);
    cached = cached_percent(b);
    status = repeat(b, line, total_bytes(b), make_cold, error);
    if (status == BERTH_OK && cached > 0) {
        snprintf(path, sizeof path, "%.30s", line->words);
        snprintf(line->words, sizeof line->words, "%s, %" PRIu64 "%% cached", path, cached);
    }
    return status;
}

berth_status
berthi_bench_read(berthi_bench *b, berth_bench_line *line, berth_error *error)
{
    if (total_bytes(b) == 0) {
        berthi_bench_skip(line, "there are no bytes to read");
        return BERTH_OK;
    }
    return line->kind == BERTH_BENCH_READ_WARM ? read_warm(b, line, error)
                                               : read_cold(b, line, error);
}
