/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intake.c - from chunks to reads and back.
 *
 *   window of the file   |        chunk_bytes         |   = one staging buffer
 *   chunk                    [begin .......... end)
 *   direct reads          [ widened to alignment A ]      A divides the window
 *   parts                 [ 4 MiB | 4 MiB | ... ]         each its own read
 *
 * A byte at file offset x lies at memory[x % chunk_bytes], whatever the way it
 * was read: the address is aligned whenever the offset is.
 */
#include "loader/intake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kernels/sys.h"

#define READ_BYTES UINT64_C(4194304)          /* a direct read: link latency is hidden */
#define CACHED_READ_BYTES_MIN UINT64_C(262144) /* a buffered one: its target fits */
#define CACHED_READ_BYTES_MAX UINT64_C(1048576) /* into a core's own cache */
#define WARM_PER_CENT 90u  /* cached: copying is faster than reading the disk again */
#define GUEST_PER_CENT 50u /* cached before: less, and berth's pages are dropped again */
#define UNKNOWN_PER_CENT 255u /* others' files: read as cold, left alone as warm */
#define DEFAULT_READERS 16u
#define RETRY_LIMIT 64u /* of reads that the kernel asks to repeat */
#define DRAIN_WAIT_NS UINT64_C(100000000)

struct berthi_intake_source {
    uint64_t first_chunk;
    uint64_t chunk_count;
    uint64_t chunks_left; /* not read yet */
    uint64_t alignment;   /* of direct reads */
    int direct_fd;        /* -1: none */
    int buffered_fd;      /* -1: none of its own */
    bool is_surveyed;     /* cached_shares of its chunks are known */
    bool is_prepared;     /* opened for direct reads, or not possible */
    bool is_refused;      /* a direct read failed: the next ones are buffered */
    bool is_buffered;     /* something was read through the page cache */
};

struct berthi_intake_part {
    berthi_read read; /* first: a read that comes back is its part */
    berthi_intake_transfer *transfer;
    uint64_t position; /* next byte wanted */
    uint64_t end;      /* last byte wanted, exclusive */
    uint32_t retries;
};

struct berthi_intake_transfer {
    berthi_stage_buffer *buffer;
    uint32_t parts_left; /* 0: nothing in flight */
    bool is_registered;  /* the reader knows the buffer by its number */
    bool is_known;       /* it has been asked */
    bool is_buffered;    /* some of it came through the page cache */
};

/* -------------------------------------------------------------------- set-up */

/* How many parts at most a buffer is read in. */
static void
choose_sizes(berthi_intake *intake)
{
    const uint64_t chunk_bytes = intake->chunks->chunk_bytes;
    uint64_t cached = chunk_bytes / 8;

    cached = berthi_max_u64(cached, CACHED_READ_BYTES_MIN);
    cached = berthi_min_u64(cached, CACHED_READ_BYTES_MAX);
    intake->buffered_bytes = berthi_min_u64(cached, chunk_bytes);
    intake->direct_bytes = berthi_min_u64(READ_BYTES, chunk_bytes);
    intake->parts_per_buffer = (uint32_t)(chunk_bytes / intake->buffered_bytes);
}

static bool
has_tables(berthi_intake *intake)
{
    const uint64_t buffers = intake->stage->capacity;
    const uint64_t parts = buffers * intake->parts_per_buffer;

    intake->cached_shares = berthi_memory_zalloc(intake->context, BERTHI_PURPOSE_CHUNKS,
                                                 intake->chunks->chunk_count);
    intake->sources = berthi_memory_zalloc(intake->context, BERTHI_PURPOSE_CHUNKS,
                                           intake->file_count * sizeof *intake->sources);
    intake->transfers = berthi_memory_zalloc(intake->context, BERTHI_PURPOSE_CHUNKS,
                                             buffers * sizeof *intake->transfers);
    intake->parts = berthi_memory_zalloc(intake->context, BERTHI_PURPOSE_CHUNKS,
                                         parts * sizeof *intake->parts);
    return intake->cached_shares != NULL && intake->sources != NULL
           && intake->transfers != NULL && intake->parts != NULL;
}

static void
fill_sources(berthi_intake *intake)
{
    for (uint32_t i = 0; i < intake->file_count; i++) {
        intake->sources[i].direct_fd = -1;
        intake->sources[i].buffered_fd = -1;
    }
    for (uint64_t i = 0; i < intake->chunks->chunk_count; i++) {
        const berthi_chunk *const chunk = &intake->chunks->chunks[i];
        berthi_intake_source *const source = &intake->sources[chunk->file];

        if (chunk->number_in_file == 0)
            source->first_chunk = i;
        source->chunk_count++;
        source->chunks_left++;
    }
}

berth_status
berthi_intake_init(berthi_intake *intake, berth_context *context, berth_job *job,
                   const berthi_file *files, uint32_t file_count,
                   const berthi_chunks *chunks, const berthi_conveyor_options *options,
                   berthi_stage *stage, berthi_conveyor_stats *stats, berth_error *error)
{
    berthi_reader_options reader_options;
    berth_status status;
    bool has_all;

    memset(intake, 0, sizeof *intake);
    intake->context = context;
    intake->job = job;
    intake->files = files;
    intake->file_count = file_count;
    intake->chunks = chunks;
    intake->stage = stage;
    intake->stats = stats;
    intake->io = (berth_io)options->io;
    choose_sizes(intake);
    has_all = has_tables(intake);
    if (intake->sources != NULL)
        fill_sources(intake); /* also what fini needs: no descriptor is 0 */
    if (!has_all) {
        status = berthi_fail_memory(error, "the table of reads");
        goto fail;
    }
    reader_options = (berthi_reader_options){
        .threads = options->readers > 0 ? options->readers : DEFAULT_READERS,
        .depth = stage->capacity * intake->parts_per_buffer,
        .buffer_count = stage->capacity,
        .probe_fd = files[chunks->chunks[0].file].fd,
        .probe_offset = chunks->chunks[0].begin,
    };
    status = berthi_reader_open(context, options->reader, options->no_uring,
                                &reader_options, &intake->reader, error);
    if (status != BERTH_OK)
        goto fail;
    return BERTH_OK;

fail:
    berthi_intake_fini(intake);
    return status;
}

static void
close_source(berthi_intake_source *source)
{
    if (source->direct_fd >= 0)
        berthi_sys_close(source->direct_fd);
    if (source->buffered_fd >= 0)
        berthi_sys_close(source->buffered_fd);
    source->direct_fd = -1;
    source->buffered_fd = -1;
}

void
berthi_intake_fini(berthi_intake *intake)
{
    if (intake->reader != NULL)
        intake->reader->table->close(intake->reader);
    if (intake->sources != NULL)
        for (uint32_t i = 0; i < intake->file_count; i++)
            close_source(&intake->sources[i]);
    if (intake->stage != NULL) {
        const uint64_t buffers = intake->stage->capacity;
        const uint64_t parts = buffers * intake->parts_per_buffer;

        berthi_memory_free(intake->context, BERTHI_PURPOSE_CHUNKS, intake->cached_shares,
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

/* -------------------------------------------------------- direct or buffered */

static void
notice_buffered(berthi_intake *intake, const char *path)
{
    if (!intake->has_notice)
        berthi_log(intake->context, BERTH_LOG_INFO,
                   "%s: no direct reads here, reading through the page cache", path);
    intake->has_notice = true;
}

/*
 * The alignment that direct reads of `fd` need, 0 if there can be none. Whole
 * pages are asked for even where less would do.
 */
static uint64_t
find_alignment(const berthi_intake *intake, int fd)
{
    uint32_t memory;
    uint32_t offset;
    uint64_t alignment;

    if (berthi_sys_direct_alignment(fd, &memory, &offset) != 0)
        return BERTHI_STAGE_ALIGNMENT; /* an older kernel: the first read will tell */
    alignment = berthi_max_u64(offset, BERTHI_STAGE_ALIGNMENT);
    if (memory == 0 || offset == 0 || memory > BERTHI_STAGE_ALIGNMENT
        || (alignment & (alignment - 1)) != 0 || alignment > intake->chunks->chunk_bytes)
        return 0;
    return alignment;
}

/* True when the file can be read directly; opens it for that once. */
static bool
has_direct(berthi_intake *intake, uint32_t file)
{
    berthi_intake_source *const source = &intake->sources[file];

    if (!source->is_prepared) {
        source->is_prepared = true;
        source->alignment = find_alignment(intake, intake->files[file].fd);
        if (source->alignment != 0)
            source->direct_fd = berthi_sys_reopen_direct(intake->files[file].fd);
        if (source->direct_fd < 0)
            notice_buffered(intake, intake->files[file].path);
    }
    return source->direct_fd >= 0 && !source->is_refused;
}

/* A descriptor whose advice concerns nobody else; the file's own if need be. */
static int
find_buffered_fd(berthi_intake *intake, uint32_t file)
{
    berthi_intake_source *const source = &intake->sources[file];

    if (source->buffered_fd < 0) {
        source->buffered_fd = berthi_sys_reopen_read(intake->files[file].fd);
        /* Requests are large and many: read-ahead would only fill the cache. */
        if (source->buffered_fd >= 0)
            (void)berthi_sys_advise_random(source->buffered_fd);
    }
    return source->buffered_fd >= 0 ? source->buffered_fd : intake->files[file].fd;
}

/* Per cent of the chunk's pages in the page cache. */
static uint8_t
measure_share(const berthi_intake *intake, const berthi_chunk *chunk)
{
    const uint64_t page = berthi_sys_page_bytes();
    const uint64_t pages = (chunk->end - 1) / page - chunk->begin / page + 1;
    const int64_t cached = berthi_sys_cached_pages(
        intake->files[chunk->file].fd, chunk->begin, chunk->end - chunk->begin);

    if (cached < 0)
        return UNKNOWN_PER_CENT;
    return (uint8_t)(berthi_min_u64((uint64_t)cached, pages) * 100 / pages);
}

/*
 * How much of the chunk was cached before berth read anything of the file: of
 * the whole file at once, because reading one chunk through the cache can
 * bring in the next ones as well (read-ahead reaches many megabytes).
 */
static uint8_t
cached_share(berthi_intake *intake, const berthi_chunk *chunk)
{
    berthi_intake_source *const source = &intake->sources[chunk->file];

    if (!source->is_surveyed) {
        source->is_surveyed = true;
        for (uint64_t i = 0; i < source->chunk_count; i++)
            intake->cached_shares[source->first_chunk + i] =
                measure_share(intake, &intake->chunks->chunks[source->first_chunk + i]);
    }
    return intake->cached_shares[chunk - intake->chunks->chunks];
}

/* Most of it was not cached before berth came: what is there now is berth's. */
static bool
is_guest(const berthi_intake *intake, uint64_t chunk)
{
    return intake->cached_shares[chunk] < GUEST_PER_CENT;
}

/* Drops the pages of chunks that follow each other without a gap. */
static void
drop(const berthi_intake *intake, uint64_t first, uint64_t last)
{
    /* Whole pages: of a page that is cut nothing would be dropped. */
    const berthi_chunk *const chunks = intake->chunks->chunks;
    const uint64_t page = berthi_sys_page_bytes();
    const uint64_t begin = berthi_round_down(chunks[first].begin, page);
    uint64_t end;

    if (berthi_can_round_up(chunks[last].end, page, &end))
        (void)berthi_sys_drop_cache(intake->files[chunks[first].file].fd, begin,
                                    end - begin);
}

/*
 * At the end of a file of which something was read through the cache: read-
 * ahead can have brought back what had been dropped, and in blocks that reach
 * over the borders of chunks, which are dropped as a whole or not at all.
 */
static void
drop_all_guests(const berthi_intake *intake, const berthi_intake_source *source)
{
    const berthi_chunk *const chunks = intake->chunks->chunks;
    const uint64_t end = source->first_chunk + source->chunk_count;
    uint64_t first = source->first_chunk;

    if (!source->is_buffered)
        return;
    while (first < end) {
        uint64_t last = first;

        while (last + 1 < end && is_guest(intake, first) && is_guest(intake, last + 1)
               && chunks[last].end == chunks[last + 1].begin)
            last++;
        if (is_guest(intake, first))
            drop(intake, first, last);
        first = last + 1;
    }
}

/* ------------------------------------------------------------------- reading */

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
        /* Within the window, hence no overflow but in the last window of all. */
        if (!berthi_can_round_up(end, alignment, &end))
            end = part->end;
    }
    read->fd = read->is_direct ? intake->sources[file].direct_fd
                               : find_buffered_fd(intake, file);
    read->memory = buffer->memory + begin % intake->chunks->chunk_bytes;
    read->offset = begin;
    read->bytes = (uint32_t)(end - begin);
    read->buffer = transfer->is_registered ? buffer->number : BERTHI_READER_NO_BUFFER;
    intake->in_flight++;
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
                             transfer->buffer->memory, intake->chunks->chunk_bytes);
}

void
berthi_intake_start(berthi_intake *intake, berthi_stage_buffer *buffer)
{
    const berthi_chunk *const chunk = buffer->chunk;
    berthi_intake_transfer *const transfer = &intake->transfers[buffer->number];
    berthi_intake_part *const parts =
        &intake->parts[(uint64_t)buffer->number * intake->parts_per_buffer];
    const uint8_t share = cached_share(intake, chunk);
    const bool is_cold = share < WARM_PER_CENT || share == UNKNOWN_PER_CENT;
    const bool is_direct = (intake->io == BERTH_IO_DIRECT
                            || (intake->io == BERTH_IO_AUTO && is_cold))
                           && has_direct(intake, chunk->file);
    const uint64_t step = is_direct ? intake->direct_bytes : intake->buffered_bytes;
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
        part->read.is_direct = is_direct;
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
    const uint64_t chunk = (uint64_t)(transfer->buffer->chunk - intake->chunks->chunks);
    const uint32_t file = transfer->buffer->chunk->file;
    berthi_intake_source *const source = &intake->sources[file];
    berth_status status;

    transfer->parts_left--;
    if (transfer->parts_left > 0)
        return BERTH_OK;
    if (transfer->is_buffered && is_guest(intake, chunk))
        drop(intake, chunk, chunk);
    show_file(intake);
    source->chunks_left--;
    if (source->chunks_left == 0) {
        drop_all_guests(intake, source);
        close_source(source);
        /* Before anybody gets the last chunk: a changed file is never complete. */
        status = berthi_file_check(&intake->files[file], error);
        if (status != BERTH_OK)
            return status;
    }
    berthi_stage_fill(intake->stage, transfer->buffer);
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

static void
count(berthi_intake *intake, berthi_intake_part *part, uint64_t bytes)
{
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

berth_status
berthi_intake_wait(berthi_intake *intake, uint64_t deadline_ns, berth_error *error)
{
    berthi_read *const read =
        intake->reader->table->complete(intake->reader, deadline_ns);

    if (read == NULL)
        return BERTH_OK;
    intake->in_flight--;
    intake->stats->read_ns += read->busy_ns;
    if (intake->is_cancelled)
        return BERTH_OK;
    if (read->result < 0)
        return handle_failure(intake, (berthi_intake_part *)read, (int)-read->result,
                              error);
    return handle_success(intake, (berthi_intake_part *)read, (uint64_t)read->result,
                          error);
}

void
berthi_intake_drain(berthi_intake *intake)
{
    intake->is_cancelled = true;
    intake->reader->table->cancel(intake->reader);
    while (intake->in_flight > 0)
        (void)berthi_intake_wait(intake, berthi_sys_now_ns() + DRAIN_WAIT_NS, NULL);
}
