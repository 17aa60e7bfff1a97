/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intake.c - from chunks to reads and back.
 *
 *   window of the file   |        chunk_bytes         |   = one staging buffer
 *   chunk                    [begin .......... end)
 *   direct reads          [ widened to alignment A ]      A divides the window
 *   parts                 [ 512 KiB | 512 KiB | ... ]     each its own read
 *
 * A byte at file offset x lies at memory[x - origin], whatever the way it was
 * read: the address is aligned whenever the offset is.
 */
#include "loader/intake.h"

#include <inttypes.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kernels/sys.h"
#include "kernels/trace.h"
#include "loader/stranded.h"

#define READ_BYTES_MIN UINT64_C(524288) /* a direct one: devices are given less at once */
#define READ_BYTES_MAX UINT64_C(4194304)
#define READS_MAX 64u /* so many are a ring, unless that makes them smaller or larger */
#define CACHED_READ_BYTES_MIN UINT64_C(262144) /* a buffered one: its target fits */
#define CACHED_READ_BYTES_MAX UINT64_C(1048576) /* into a core's own cache */
#define DEFAULT_READERS 16u
#define RETRY_LIMIT 64u /* of reads that the kernel asks to repeat */
#define DRAIN_WAIT_NS UINT64_C(100000000)

struct berthi_intake_part {
    berthi_read read; /* first: a read that comes back is its part */
    berthi_intake_transfer *transfer;
    uint64_t position; /* next byte wanted */
    uint64_t end;      /* last byte wanted, exclusive */
    uint32_t retries;
    bool is_in_flight;
};

struct berthi_intake_transfer {
    berthi_stage_buffer *buffer;
    uint32_t parts_left; /* 0: nothing in flight */
    uint32_t in_flight;  /* reads, of parts that nobody waits for any more, too */
    bool is_registered;  /* the reader knows the buffer by its number */
    bool is_known;       /* it has been asked */
    bool is_buffered;    /* some of it came through the page cache */
};

/* -------------------------------------------------------------------- set-up */

/*
 * Bytes of the largest direct read. Small ones begin to arrive sooner; the few threads that have
 * to fill a large ring need large ones: half of it is under way, whatever its size.
 */
static uint64_t
direct_bytes(const berthi_intake *intake)
{
    const uint64_t chunk_bytes = intake->chunks->chunk_bytes;
    const uint64_t ring = chunk_bytes * intake->stage->limit;
    uint64_t bytes = READ_BYTES_MIN;

    while (bytes < READ_BYTES_MAX && 2 * intake->reads * bytes <= ring)
        bytes *= 2;
    return berthi_min_u64(bytes, chunk_bytes);
}

/* How many parts at most a buffer is read in. */
static void
choose_sizes(berthi_intake *intake)
{
    const uint64_t chunk_bytes = intake->chunks->chunk_bytes;
    const uint64_t buffer_bytes = intake->stage->buffer_bytes;
    uint64_t cached = chunk_bytes / 8;
    uint64_t step;

    cached = berthi_max_u64(cached, CACHED_READ_BYTES_MIN);
    cached = berthi_min_u64(cached, CACHED_READ_BYTES_MAX);
    intake->buffered_bytes = berthi_min_u64(cached, chunk_bytes);
    step = berthi_min_u64(intake->buffered_bytes, READ_BYTES_MIN);
    intake->parts_per_buffer = (uint32_t)((buffer_bytes - 1) / step + 1);
    /* Cut at multiples of the file: a chunk that begins between two has one more. */
    if (!intake->chunks->is_windowed || buffer_bytes < chunk_bytes)
        intake->parts_per_buffer++;
}

/* False: out of memory. */
static bool
alloc_tables(berthi_intake *intake)
{
    const uint64_t buffers = intake->stage->capacity;
    const uint64_t parts = buffers * intake->parts_per_buffer;

    intake->shares = berthi_memory_zalloc(intake->context, BERTHI_PURPOSE_CHUNKS,
                                          intake->chunks->chunk_count);
    intake->sources = berthi_memory_zalloc(intake->context, BERTHI_PURPOSE_CHUNKS,
                                           intake->file_count * sizeof *intake->sources);
    intake->transfers = berthi_memory_zalloc(intake->context, BERTHI_PURPOSE_CHUNKS,
                                             buffers * sizeof *intake->transfers);
    intake->parts = berthi_memory_zalloc(intake->context, BERTHI_PURPOSE_CHUNKS,
                                         parts * sizeof *intake->parts);
    intake->stranded = berthi_stranded_prepare(intake->context, intake->stage->capacity,
                                               intake->stage->buffer_bytes);
    return intake->shares != NULL && intake->sources != NULL && intake->transfers != NULL
           && intake->parts != NULL && intake->stranded != NULL;
}

/* Gives each source the stretch of the table in which its chunks lie. */
static void
fill_sources(berthi_intake *intake)
{
    for (uint32_t i = 0; i < intake->file_count; i++)
        berthi_source_init(&intake->sources[i], &intake->files[i], i);
    for (uint64_t i = 0; i < intake->chunks->chunk_count; i++) {
        const berthi_chunk *const chunk = &intake->chunks->chunks[i];
        berthi_source *const source = &intake->sources[chunk->file];

        if (source->chunks == NULL) {
            source->chunks = chunk;
            source->shares = intake->shares + i;
        }
        source->chunk_count = (uint64_t)(chunk - source->chunks) + 1;
        source->chunks_left++;
    }
}

berth_status
berthi_intake_init(berthi_intake *intake, const berthi_freight *freight,
                   const berthi_conveyor_options *options, berthi_stage *stage,
                   berthi_conveyor_stats *stats, berth_error *error)
{
    berthi_reader_options reader_options;
    berth_status status;

    memset(intake, 0, sizeof *intake);
    intake->context = freight->context;
    intake->job = freight->job;
    intake->files = freight->files;
    intake->file_count = freight->file_count;
    intake->chunks = freight->chunks;
    intake->stage = stage;
    intake->stats = stats;
    intake->io = (berth_io)options->io;
    intake->wait_ns = options->wait_ns > 0 ? options->wait_ns : UINT64_MAX;
    choose_sizes(intake);
    if (!alloc_tables(intake)) {
        status = berthi_fail_memory(error, "the table of reads");
        goto fail;
    }
    fill_sources(intake);
    reader_options = (berthi_reader_options){
        .threads = options->readers > 0 ? options->readers : DEFAULT_READERS,
        .depth = stage->capacity * intake->parts_per_buffer,
        .buffer_count = stage->capacity,
    };
    status = berthi_reader_open(freight->context, options->reader, options->no_uring,
                                &reader_options, &intake->reader, error);
    if (status != BERTH_OK)
        goto fail;
    intake->reads = READS_MAX;
    if (intake->reader->table == &berthi_reader_threads && reader_options.threads < READS_MAX / 2)
        intake->reads = 2 * reader_options.threads;
    return BERTH_OK;

fail:
    berthi_intake_fini(intake);
    return status;
}

/* Reader, reads and the buffers they are read into stay until they have come back. */
static void
strand(berthi_intake *intake)
{
    const uint64_t parts =
        (uint64_t)intake->stage->capacity * intake->parts_per_buffer * sizeof *intake->parts;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < intake->stage->capacity; i++)
        if (intake->transfers[i].in_flight > 0) {
            berthi_stranded_add(intake->stranded,
                                berthi_stage_detach(intake->stage,
                                                    &intake->stage->buffers[i]));
            bytes += intake->stage->buffer_bytes;
        }
    berthi_log(intake->context, BERTH_LOG_WARNING,
               "%u reads have not come back: %llu bytes of staging stay with them",
               (unsigned)intake->in_flight, (unsigned long long)bytes);
    berthi_stranded_leave(intake->stranded, intake->reader, intake->in_flight,
                          intake->parts, parts);
    intake->stranded = NULL;
    intake->reader = NULL;
    intake->parts = NULL;
}

void
berthi_intake_fini(berthi_intake *intake)
{
    const bool has_sources = intake->reader != NULL;

    if (intake->in_flight > 0)
        strand(intake);
    if (intake->reader != NULL)
        intake->reader->table->close(intake->reader);
    /* Without a reader nothing was opened, and sources may not be filled. */
    for (uint32_t i = 0; has_sources && i < intake->file_count; i++)
        berthi_source_close(&intake->sources[i]);
    berthi_stranded_free(intake->stranded);
    if (intake->stage != NULL) {
        const uint64_t buffers = intake->stage->capacity;
        const uint64_t parts = buffers * intake->parts_per_buffer;

        berthi_memory_free(intake->context, BERTHI_PURPOSE_CHUNKS, intake->shares,
                           intake->chunks->chunk_count);
        berthi_memory_free(intake->context, BERTHI_PURPOSE_CHUNKS, intake->sources,
                           intake->file_count * sizeof *intake->sources);
        berthi_memory_free(intake->context, BERTHI_PURPOSE_CHUNKS, intake->transfers,
                           buffers * sizeof *intake->transfers);
        berthi_memory_free(intake->context, BERTHI_PURPOSE_CHUNKS, intake->parts,
                           parts * sizeof *intake->parts);
    }
    memset(intake, 0, sizeof *intake);
}

/* ------------------------------------------------------------------- reading */

/* Once for all files. */
static void
notice_buffered(berthi_intake *intake, const char *path)
{
    if (!intake->has_notice)
        berthi_log(intake->context, BERTH_LOG_INFO,
                   "%s: no direct reads here, reading through the page cache", path);
    intake->has_notice = true;
}

/* True when the chunk fits its buffer after it was widened. */
static bool
can_widen(const berthi_intake *intake, const berthi_source *source,
          const berthi_chunk *chunk)
{
    uint64_t end;

    return berthi_round_down(chunk->begin, source->alignment) >= chunk->origin
           && berthi_can_round_up(chunk->end, source->alignment, &end)
           && end - chunk->origin <= intake->stage->buffer_bytes;
}

/* How the chunk is to be read. */
static bool
is_direct(berthi_intake *intake, const berthi_chunk *chunk)
{
    berthi_source *const source = &intake->sources[chunk->file];
    bool is_warm = berthi_source_is_warm(source, chunk);

    /* What was cached when reading began need not be in the next pass. */
    if (is_warm && intake->is_endless)
        is_warm = berthi_source_is_still_warm(source, chunk);
    if (intake->io == BERTH_IO_BUFFERED || (intake->io == BERTH_IO_AUTO && is_warm))
        return false;
    if (berthi_source_has_direct(source, intake->chunks->chunk_bytes)
        && can_widen(intake, source, chunk))
        return true;
    notice_buffered(intake, source->file->path);
    return false;
}

/* The file whose bytes are waited for longest. */
static void
show_file(berthi_intake *intake)
{
    const berthi_chunk *oldest = NULL;

    if (intake->job == NULL)
        return;
    for (uint32_t i = 0; i < intake->stage->capacity; i++) {
        const berthi_intake_transfer *const transfer = &intake->transfers[i];

        if (transfer->parts_left > 0
            && (oldest == NULL || transfer->buffer->chunk < oldest))
            oldest = transfer->buffer->chunk;
    }
    if (oldest != NULL)
        berthi_job_set_file(intake->job, intake->files[oldest->file].path);
}

/* Submits what is left of a part. */
static void
submit(berthi_intake *intake, berthi_intake_part *part)
{
    const berthi_intake_transfer *const transfer = part->transfer;
    const berthi_stage_buffer *const buffer = transfer->buffer;
    const uint32_t file = buffer->chunk->file;
    berthi_read *const read = &part->read;
    uint64_t begin = part->position;
    uint64_t end = part->end;

    if (read->is_direct) {
        const uint64_t alignment = intake->sources[file].alignment;

        begin = berthi_round_down(begin, alignment);
        (void)berthi_can_round_up(end, alignment, &end); /* it can: see can_widen() */
    }
    read->fd = read->is_direct ? intake->sources[file].direct_fd
                               : berthi_source_buffered_fd(&intake->sources[file]);
    read->memory = buffer->memory + (begin - buffer->chunk->origin);
    read->offset = begin;
    read->bytes = (uint32_t)(end - begin);
    read->buffer = transfer->is_registered ? buffer->number : BERTHI_READER_NO_BUFFER;
    if (intake->in_flight++ == 0)
        intake->moved_ns = berthi_sys_now_ns();
    intake->transfers[buffer->number].in_flight++;
    part->is_in_flight = true;
    intake->reader->table->submit(intake->reader, read);
}

/* Tells the reader once that a buffer is there. */
static void
announce_buffer(berthi_intake *intake, berthi_intake_transfer *transfer)
{
    const berthi_reader_table *const table = intake->reader->table;

    if (transfer->is_known)
        return;
    transfer->is_known = true;
    transfer->is_registered =
        table->add_buffer != NULL
        && table->add_buffer(intake->reader, transfer->buffer->number,
                             transfer->buffer->memory, intake->stage->buffer_bytes);
}

void
berthi_intake_start(berthi_intake *intake, berthi_stage_buffer *buffer)
{
    const berthi_chunk *const chunk = buffer->chunk;
    berthi_intake_transfer *const transfer = &intake->transfers[buffer->number];
    berthi_intake_part *const parts =
        &intake->parts[(uint64_t)buffer->number * intake->parts_per_buffer];
    const bool goes_direct = is_direct(intake, chunk);
    const uint64_t step = goes_direct ? direct_bytes(intake) : intake->buffered_bytes;
    uint32_t count = 0;

    transfer->buffer = buffer;
    transfer->is_buffered = false;
    announce_buffer(intake, transfer);
    for (uint64_t begin = chunk->begin; begin < chunk->end; count++) {
        berthi_intake_part *const part = &parts[count];
        const uint64_t room = step - begin % step;

        memset(part, 0, sizeof *part);
        part->transfer = transfer;
        part->position = begin;
        part->end = begin + berthi_min_u64(room, chunk->end - begin);
        part->read.is_direct = goes_direct;
        begin = part->end;
    }
    transfer->parts_left = count;
    show_file(intake);
    for (uint32_t i = 0; i < count; i++)
        submit(intake, &parts[i]);
}

/* A part has arrived; with the last one the buffer is full. */
static berth_status
end_part(berthi_intake *intake, berthi_intake_transfer *transfer, berth_error *error)
{
    const berthi_chunk *const chunk = transfer->buffer->chunk;
    berthi_source *const source = &intake->sources[chunk->file];
    berth_status status;

    transfer->parts_left--;
    if (transfer->parts_left > 0)
        return BERTH_OK;
    if (transfer->is_buffered)
        berthi_source_drop(source, chunk);
    show_file(intake);
    if (!intake->is_endless)
        source->chunks_left--;
    if (source->chunks_left == 0)
        berthi_source_close(source);
    if (source->chunks_left == 0 || intake->is_endless) {
        /* Before anybody gets the last chunk: a changed file is never complete. */
        status = berthi_file_check_content(source->file, error);
        if (status != BERTH_OK)
            return status;
    }
    berthi_stage_fill(intake->stage, transfer->buffer);
    intake->filled++;
    return BERTH_OK;
}

static berth_status
handle_failure(berthi_intake *intake, berthi_intake_part *part, int failure,
               berth_error *error)
{
    const uint32_t file = part->transfer->buffer->chunk->file;

    if (part->read.is_direct && (failure == EINVAL || failure == EFAULT)) {
        /* The file system took O_DIRECT at open and does not mean it. Reads in
           flight still use the descriptor; new chunks will not. */
        intake->sources[file].is_refused = true;
        notice_buffered(intake, intake->files[file].path);
        part->read.is_direct = false;
        submit(intake, part);
        return BERTH_OK;
    }
    if ((failure == EAGAIN || failure == EINTR || failure == ECANCELED)
        && part->retries < RETRY_LIMIT) {
        part->retries++;
        submit(intake, part);
        return BERTH_OK;
    }
    return berthi_file_fail_read(&intake->files[file], failure, part->position, "reading",
                                 error);
}

/* Each part has one read in flight at a time: a lane of its own. */
static void
trace_read(const berthi_intake *intake, const berthi_intake_part *part, uint64_t bytes)
{
    const berthi_read *const read = &part->read;
    const berth_trace_event event = {
        .kind = BERTH_TRACE_READ,
        .lane = BERTH_LANE_READ,
        .number = berthi_sys_thread_id() << 16 | (uint64_t)(part - intake->parts),
        .name = read->is_direct ? "direct read" : "buffered read",
        .begin_ns = read->begin_ns,
        .end_ns = read->begin_ns + read->busy_ns,
        .bytes = bytes,
    };

    berthi_trace_tell(intake->context, &event,
                      (berthi_trace_of){ .tensor = BERTH_NO_TENSOR,
                                         .layer = BERTH_NO_INDEX,
                                         .shard = part->transfer->buffer->chunk->file });
}

static void
count(berthi_intake *intake, berthi_intake_part *part, uint64_t bytes)
{
    if (berthi_trace_is_on(intake->context))
        trace_read(intake, part, bytes);
    intake->stats->bytes_read += bytes;
    if (part->read.is_direct) {
        intake->stats->direct_bytes += bytes;
    } else {
        intake->stats->buffered_bytes += bytes;
        part->transfer->is_buffered = true;
        intake->sources[part->transfer->buffer->chunk->file].is_buffered = true;
    }
}

/* `reached`: where a read ended before the part's end. */
static berth_status
handle_short(berthi_intake *intake, berthi_intake_part *part, uint64_t reached,
             berth_error *error)
{
    const uint32_t file = part->transfer->buffer->chunk->file;

    if (!part->read.is_direct && reached == part->position)
        return berthi_file_fail_truncated(&intake->files[file], reached, part->end,
                                          "reading", error);
    /* A direct read that ended within its first aligned block would only end there
       again: the page cache knows whether the file does, too. */
    if (part->read.is_direct
        && reached - part->read.offset < intake->sources[file].alignment)
        part->read.is_direct = false;
    /* Direct reads begin again at the last aligned byte: see submit(). */
    part->position = berthi_max_u64(reached, part->position);
    submit(intake, part);
    return BERTH_OK;
}

static berth_status
handle_success(berthi_intake *intake, berthi_intake_part *part, uint64_t bytes,
               berth_error *error)
{
    const uint64_t reached = part->read.offset + bytes;

    count(intake, part, bytes);
    if (reached < part->end)
        return handle_short(intake, part, reached, error);
    return end_part(intake, part->transfer, error);
}

/* -------------------------------------------------------------- hanging reads */

/* When it is too late for a read to come back. */
static uint64_t
late_ns(const berthi_intake *intake, uint64_t wait_ns)
{
    return intake->in_flight > 0 ? berthi_add_capped(intake->moved_ns, wait_ns)
                                 : UINT64_MAX;
}

/* The first part, in the order of the chunks, that is waited for. */
static const berthi_intake_part *
find_first(const berthi_intake *intake)
{
    const uint64_t count = (uint64_t)intake->stage->capacity * intake->parts_per_buffer;
    const berthi_intake_part *first = NULL;

    for (uint64_t i = 0; i < count; i++) {
        const berthi_intake_part *const part = &intake->parts[i];

        if (part->is_in_flight
            && (first == NULL
                || part->transfer->buffer->chunk < first->transfer->buffer->chunk))
            first = part;
    }
    return first;
}

static berth_status
fail_late(berthi_intake *intake, berth_error *error)
{
    const berthi_intake_part *const part = find_first(intake);
    const berthi_about about = {
        .file = intake->files[part->transfer->buffer->chunk->file].path,
        .has = BERTH_HAS_POSITION,
        .position = part->position,
    };

    intake->is_late = true;
    return berthi_fail(error, BERTH_REASON_TIMEOUT, &about,
                       "a read has not come back for %" PRIu64 " milliseconds",
                       intake->wait_ns / 1000000);
}

/*
 * None has come by `until_ns`. Who was away for a while then does not know of those that have
 * come meanwhile, and has their threads to wait for: from now on, once more.
 */
static berth_status
check_late(berthi_intake *intake, uint64_t until_ns, uint64_t late, berth_error *error)
{
    const uint64_t now_ns = berthi_sys_now_ns();
    const uint64_t due_ns = berthi_max_u64(intake->looked_ns, until_ns);

    intake->looked_ns = now_ns;
    if (late == UINT64_MAX || now_ns < late)
        return BERTH_OK;
    if (now_ns - due_ns < BERTHI_AWAY_NS)
        return fail_late(intake, error);
    intake->moved_ns = now_ns;
    return BERTH_OK;
}

berth_status
berthi_intake_wait(berthi_intake *intake, uint64_t deadline_ns, berth_error *error)
{
    const bool is_watched = !intake->is_late && !intake->is_cancelled;
    const uint64_t late = is_watched ? late_ns(intake, intake->wait_ns) : UINT64_MAX;
    const uint64_t until_ns = berthi_min_u64(deadline_ns, late);
    berthi_read *const read = intake->reader->table->complete(intake->reader, until_ns);
    berthi_intake_part *const part = (berthi_intake_part *)read;

    if (read == NULL)
        return check_late(intake, until_ns, late, error);
    intake->looked_ns = berthi_sys_now_ns();
    intake->in_flight--;
    if (!intake->is_cancelled || read->result != -ECANCELED) { /* it had not begun */
        intake->moved_ns = intake->looked_ns;
        intake->is_late = false;
    }
    intake->transfers[part->transfer->buffer->number].in_flight--;
    part->is_in_flight = false;
    intake->stats->read_ns += read->busy_ns;
    if (intake->is_cancelled)
        return BERTH_OK;
    if (read->result < 0)
        return handle_failure(intake, part, (int)-read->result, error);
    return handle_success(intake, part, (uint64_t)read->result, error);
}

void
berthi_intake_drain(berthi_intake *intake)
{
    const uint64_t patience_ns = berthi_patience(intake->context, intake->wait_ns);

    intake->is_cancelled = true;
    intake->reader->table->cancel(intake->reader);
    for (;;) {
        const uint64_t late = late_ns(intake, patience_ns);
        const uint64_t now_ns = berthi_sys_now_ns();

        if (intake->in_flight == 0)
            return;
        (void)berthi_intake_wait(intake, berthi_min_u64(late, now_ns + DRAIN_WAIT_NS),
                                 NULL);
        /* What was there all the same has been taken before. */
        if (now_ns >= late && late == late_ns(intake, patience_ns))
            return;
    }
}
