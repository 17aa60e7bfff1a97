/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.c - how a file can be read, and what reading leaves in the page cache.
 *
 *   cached before     0 ........ 50 ........ 90 ..... 100 %    nobody can say
 *   read by itself      directly              through the cache  directly
 *   if through cache  dropped    left alone                      left alone
 */
#include "loader/source.h"

#include <string.h>

#include "kernels/sys.h"
#include "loader/stage.h"

#define WARM_PER_CENT 90u     /* from here on copying is the faster way */
#define RESIDENT_PER_CENT 50u /* below: a guest, here only for berth */
#define UNKNOWN_PER_CENT 255u /* somebody else's file */

void
berthi_source_init(berthi_source *source, const berthi_file *file, uint32_t number)
{
    memset(source, 0, sizeof *source);
    source->file = file;
    source->number = number;
    source->direct_fd = -1;
    source->buffered_fd = -1;
}

/* ---------------------------------------------------------------- descriptors */

uint64_t
berthi_source_alignment(uint32_t memory, uint32_t offset, uint64_t chunk_bytes)
{
    /* Whole pages even where less would do. */
    const uint64_t alignment = berthi_max_u64(offset, BERTHI_STAGE_ALIGNMENT);

    if (memory == 0 || offset == 0 || memory > BERTHI_STAGE_ALIGNMENT
        || (alignment & (alignment - 1)) != 0 || alignment > chunk_bytes)
        return 0;
    return alignment;
}

static uint64_t
find_alignment(int fd, uint64_t chunk_bytes)
{
    uint32_t memory;
    uint32_t offset;

    if (berthi_sys_direct_alignment(fd, &memory, &offset) != 0)
        return BERTHI_STAGE_ALIGNMENT; /* an older kernel: the first read will tell */
    return berthi_source_alignment(memory, offset, chunk_bytes);
}

bool
berthi_source_has_direct(berthi_source *source, uint64_t chunk_bytes)
{
    if (!source->is_prepared) {
        source->is_prepared = true;
        source->alignment = find_alignment(source->file->fd, chunk_bytes);
        if (source->alignment != 0)
            source->direct_fd = berthi_sys_reopen_direct(source->file->fd);
    }
    return source->direct_fd >= 0 && !source->is_refused;
}

int
berthi_source_buffered_fd(berthi_source *source)
{
    if (source->buffered_fd < 0) {
        source->buffered_fd = berthi_sys_reopen_read(source->file->fd);
        /* Requests are large and many: read-ahead would only fill the cache. */
        if (source->buffered_fd >= 0)
            (void)berthi_sys_advise_random(source->buffered_fd);
    }
    return source->buffered_fd >= 0 ? source->buffered_fd : source->file->fd;
}

/* ----------------------------------------------------------------- page cache */

/* Per cent of the chunk's pages in the page cache. */
static uint8_t
measure_share(const berthi_source *source, const berthi_chunk *chunk)
{
    const uint64_t page = berthi_sys_page_bytes();
    const uint64_t pages = (chunk->end - 1) / page - chunk->begin / page + 1;
    const int64_t cached = berthi_sys_cached_pages(source->file->fd, chunk->begin,
                                                   chunk->end - chunk->begin);

    if (cached < 0)
        return UNKNOWN_PER_CENT;
    return (uint8_t)(berthi_min_u64((uint64_t)cached, pages) * 100 / pages);
}

/*
 * Asks for all chunks of the file how much is in the cache, before anything of it is read: reading
 * one through the cache can bring in the next ones (read-ahead reaches megabytes).
 */
static void
survey(berthi_source *source)
{
    source->is_surveyed = true;
    for (uint64_t i = 0; i < source->chunk_count; i++)
        if (source->chunks[i].file == source->number)
            source->shares[i] = measure_share(source, &source->chunks[i]);
}

bool
berthi_source_is_warm(berthi_source *source, const berthi_chunk *chunk)
{
    uint8_t share;

    if (!source->is_surveyed)
        survey(source);
    share = source->shares[chunk - source->chunks];
    return share >= WARM_PER_CENT && share != UNKNOWN_PER_CENT;
}

bool
berthi_source_is_still_warm(berthi_source *source, const berthi_chunk *chunk)
{
    source->shares[chunk - source->chunks] = measure_share(source, chunk);
    return berthi_source_is_warm(source, chunk);
}

/* Most of it was not cached before berth came: what is there now is berth's. */
static bool
is_guest(const berthi_source *source, const berthi_chunk *chunk)
{
    return chunk->file == source->number
           && source->shares[chunk - source->chunks] < RESIDENT_PER_CENT;
}

/* Drops the pages of chunks that follow each other without a gap. */
static void
drop(const berthi_source *source, const berthi_chunk *first, const berthi_chunk *last)
{
    /* Whole pages: of a page that is cut nothing would be dropped. */
    const uint64_t page = berthi_sys_page_bytes();
    const uint64_t begin = berthi_round_down(first->begin, page);
    uint64_t end;

    if (berthi_can_round_up(last->end, page, &end))
        (void)berthi_sys_drop_cache(source->file->fd, begin, end - begin);
}

void
berthi_source_drop(const berthi_source *source, const berthi_chunk *chunk)
{
    if (is_guest(source, chunk))
        drop(source, chunk, chunk);
}

/*
 * Read-ahead can have brought back what had been dropped, and in blocks that
 * reach over the borders of chunks, which are dropped as a whole or not at all.
 */
static void
drop_guests(const berthi_source *source)
{
    const berthi_chunk *const end = source->chunks + source->chunk_count;
    const berthi_chunk *first = source->chunks;

    while (first < end) {
        const berthi_chunk *last = first;

        while (last + 1 < end && is_guest(source, first) && is_guest(source, last + 1)
               && last[0].end == last[1].begin)
            last++;
        if (is_guest(source, first))
            drop(source, first, last);
        first = last + 1;
    }
}

void
berthi_source_close(berthi_source *source)
{
    if (source->is_buffered)
        drop_guests(source);
    source->is_buffered = false;
    if (source->direct_fd >= 0)
        berthi_sys_close(source->direct_fd);
    if (source->buffered_fd >= 0)
        berthi_sys_close(source->buffered_fd);
    source->direct_fd = -1;
    source->buffered_fd = -1;
}
