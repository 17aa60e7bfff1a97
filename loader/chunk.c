/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk.c - the chunk table: which bytes of which file go into which buffer.
 *
 *   file    |0       |C       |2C      |3C      |      windows of C bytes
 *   pieces     [ a  ][  b  ]   [c]           [ d ]
 *   chunks     [0   |1     ]   [2|    ]      [3 ]      (gap before c too large)
 *
 * A chunk is a run of neighbouring pieces within one window, from the first
 * byte wanted to the last. Windows are multiples of any alignment that direct
 * reads ask for, so a chunk widened to that alignment stays in its window and
 * a buffer of C bytes always holds it. Where all chunks are smaller, so are the
 * buffers: whole blocks of 64 KiB, with room for reads that are aligned to them,
 * or large pages.
 */
#include <inttypes.h>
#include <string.h>

#include "loader/conveyor.h"

#define CHUNK_BYTES_MIN UINT64_C(4096)
#define CHUNK_BYTES_MAX (UINT64_C(1) << 30)
#define BLOCK_BYTES (UINT64_C(64) << 10) /* no device is known that reads larger ones */
#define MAPPED_BYTES (UINT64_C(1) << 20) /* such buffers are mapped, in large pages */
#define LARGE_PAGE (UINT64_C(2) << 20)
/* Rounded up to pages it is still a number. */
#define FILE_END_MAX (UINT64_C(1) << 63)

static berth_status
fail_pieces(berth_error *error, uint64_t piece, const char *wrong)
{
    return berthi_fail(error, BERTH_REASON_INTERNAL, NULL, "piece %" PRIu64 " %s", piece,
                       wrong);
}

/* Pieces come from checked headers: what is refused here is berth's own mistake. */
static berth_status
check_pieces(const berthi_piece *pieces, uint64_t piece_count, berth_error *error)
{
    uint64_t last_end = 0;
    uint32_t file = 0;

    for (uint64_t i = 0; i < piece_count; i++) {
        uint64_t end;

        if (!berthi_can_add(pieces[i].offset, pieces[i].bytes, &end))
            return fail_pieces(error, i, "ends beyond 2^64");
        if (pieces[i].file < file)
            return fail_pieces(error, i, "belongs to an earlier file");
        if (pieces[i].file == file && pieces[i].offset < last_end)
            return fail_pieces(error, i, "overlaps the one before it");
        file = pieces[i].file;
        last_end = end;
    }
    return BERTH_OK;
}

/* Where the walk over the pieces stands: the chunk that could be continued. */
typedef struct position {
    bool is_open;
    uint32_t file;
    uint64_t window;
    uint64_t end;
} position;

/* True when a piece that begins at `offset` joins the chunk before it. */
static bool
is_joined(const position *at, const berthi_piece *piece, uint64_t chunk_bytes,
          uint64_t gap)
{
    return at->is_open && at->file == piece->file
           && at->window == piece->offset / chunk_bytes && piece->offset - at->end <= gap;
}

static void
move_behind(position *at, const berthi_piece *piece, uint64_t chunk_bytes)
{
    at->is_open = true;
    at->file = piece->file;
    at->end = piece->offset + piece->bytes;
    at->window = (at->end - 1) / chunk_bytes;
}

/* By arithmetic, not chunk by chunk: a sparse file can promise 2^63 bytes. */
static bool
can_count(const berthi_piece *pieces, uint64_t piece_count, uint64_t gap,
          berthi_chunks *out)
{
    position at = { .is_open = false };

    for (uint64_t i = 0; i < piece_count; i++) {
        const berthi_piece *const piece = &pieces[i];
        const uint64_t first = piece->offset / out->chunk_bytes;
        uint64_t windows;

        if (piece->bytes == 0)
            continue;
        windows = (piece->offset + piece->bytes - 1) / out->chunk_bytes - first + 1;
        out->span_count += windows;
        out->chunk_count +=
            is_joined(&at, piece, out->chunk_bytes, gap) ? windows - 1 : windows;
        /* Chunks are numbered in 32 bits; more would not fit into memory either. */
        if (out->span_count > UINT32_MAX
            || !berthi_can_add(out->span_bytes, piece->bytes, &out->span_bytes))
            return false;
        move_behind(&at, piece, out->chunk_bytes);
    }
    return true;
}

static void
begin_chunk(berthi_chunks *out, uint32_t file, uint64_t begin, uint64_t origin)
{
    berthi_chunk *const chunk = &out->chunks[out->chunk_count];
    const berthi_chunk *const before = out->chunk_count > 0 ? chunk - 1 : NULL;

    memset(chunk, 0, sizeof *chunk);
    chunk->begin = begin;
    chunk->origin = origin;
    chunk->file = file;
    chunk->first_span = out->span_count;
    if (before != NULL && before->file == file)
        chunk->number_in_file = before->number_in_file + 1;
    out->chunk_count++;
}

static void
add_span(berthi_chunks *out, const berthi_piece *piece, uint64_t begin, uint64_t end)
{
    berthi_chunk *const chunk = &out->chunks[out->chunk_count - 1];

    out->spans[out->span_count++] = (berthi_span){
        .tag = piece->tag,
        .tag_offset = begin - piece->offset,
        .bytes = end - begin,
        .chunk_offset = begin - chunk->begin,
    };
    chunk->span_count++;
    chunk->end = end;
}

static void
mark_last(berthi_chunks *out)
{
    for (uint64_t i = 0; i < out->chunk_count; i++)
        out->chunks[i].is_last_of_file = i + 1 == out->chunk_count
                                         || out->chunks[i + 1].file != out->chunks[i].file;
}

/* The same walk as can_count(), writing. */
static void
fill_tables(const berthi_piece *pieces, uint64_t piece_count, uint64_t gap,
            berthi_chunks *out)
{
    const uint64_t block_bytes = berthi_min_u64(out->chunk_bytes, BLOCK_BYTES);
    position at = { .is_open = false };

    out->chunk_count = 0;
    out->span_count = 0;
    for (uint64_t i = 0; i < piece_count; i++) {
        const berthi_piece *const piece = &pieces[i];
        const uint64_t piece_end = piece->offset + piece->bytes;
        uint64_t begin = piece->offset;

        if (piece->bytes == 0)
            continue;
        if (!is_joined(&at, piece, out->chunk_bytes, gap))
            begin_chunk(out, piece->file, begin, berthi_round_down(begin, block_bytes));
        while (begin < piece_end) {
            /* What is left of the window, without overflow in the last one. */
            const uint64_t room = out->chunk_bytes - begin % out->chunk_bytes;
            const uint64_t end = begin + berthi_min_u64(room, piece_end - begin);

            if (begin > piece->offset)
                begin_chunk(out, piece->file, begin, begin);
            add_span(out, piece, begin, end);
            begin = end;
        }
        move_behind(&at, piece, out->chunk_bytes);
    }
    mark_last(out);
}

berth_status
berthi_chunks_build(berth_context *context, const berthi_piece *pieces,
                    uint64_t piece_count, uint64_t chunk_bytes, uint64_t gap,
                    berthi_chunks *out, berth_error *error)
{
    berth_status status;

    memset(out, 0, sizeof *out);
    out->context = context;
    out->chunk_bytes = chunk_bytes;
    out->is_ordered = true;
    out->is_windowed = true;
    if (chunk_bytes < CHUNK_BYTES_MIN || chunk_bytes > CHUNK_BYTES_MAX
        || (chunk_bytes & (chunk_bytes - 1)) != 0)
        return berthi_fail_argument(error, "chunk_bytes",
                                    "is no power of two between 4 KiB and 1 GiB");
    status = check_pieces(pieces, piece_count, error);
    if (status != BERTH_OK)
        return status;
    if (!can_count(pieces, piece_count, gap, out))
        goto no_memory;
    out->chunks = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, out->chunk_count,
                                      sizeof *out->chunks);
    out->spans = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, out->span_count,
                                     sizeof *out->spans);
    if (out->chunks == NULL || out->spans == NULL)
        goto no_memory;
    fill_tables(pieces, piece_count, gap, out);
    return BERTH_OK;

no_memory:
    berthi_chunks_fini(out);
    return berthi_fail_memory(error, "the table of chunks");
}

/* Counts the pieces that are not empty, and the largest buffer they need. */
static berth_status
measure_list(const berthi_piece *pieces, uint64_t piece_count, berthi_chunks *out,
             berth_error *error)
{
    for (uint64_t i = 0; i < piece_count; i++) {
        const berthi_piece *const piece = &pieces[i];
        uint64_t end;

        if (!berthi_can_add(piece->offset, piece->bytes, &end) || end > FILE_END_MAX
            || !berthi_can_add(out->span_bytes, piece->bytes, &out->span_bytes))
            return fail_pieces(error, i, "ends beyond 2^63");
        if (piece->bytes == 0)
            continue;
        out->chunk_count++;
        /* Widened to whole pages on both sides, as direct reads are. */
        end = berthi_round_down(end + CHUNK_BYTES_MIN - 1, CHUNK_BYTES_MIN)
              - berthi_round_down(piece->offset, CHUNK_BYTES_MIN);
        out->chunk_bytes = berthi_max_u64(out->chunk_bytes, end);
    }
    return BERTH_OK;
}

berth_status
berthi_chunks_list(berth_context *context, const berthi_piece *pieces,
                   uint64_t piece_count, berthi_chunks *out, berth_error *error)
{
    berth_status status;

    memset(out, 0, sizeof *out);
    out->context = context;
    out->chunk_bytes = CHUNK_BYTES_MIN;
    status = measure_list(pieces, piece_count, out, error);
    if (status != BERTH_OK)
        return status;
    out->span_count = out->chunk_count;
    out->chunks = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, out->chunk_count,
                                      sizeof *out->chunks);
    out->spans = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, out->span_count,
                                     sizeof *out->spans);
    if (out->chunks == NULL || out->spans == NULL) {
        berthi_chunks_fini(out);
        return berthi_fail_memory(error, "the table of chunks");
    }
    out->chunk_count = 0;
    for (uint64_t i = 0; i < piece_count; i++) {
        const berthi_piece *const piece = &pieces[i];

        if (piece->bytes == 0)
            continue;
        out->spans[out->chunk_count] =
            (berthi_span){ .tag = piece->tag, .bytes = piece->bytes };
        out->chunks[out->chunk_count] = (berthi_chunk){
            .begin = piece->offset,
            .end = piece->offset + piece->bytes,
            .origin = berthi_round_down(piece->offset, CHUNK_BYTES_MIN),
            .first_span = out->chunk_count,
            .span_count = 1,
            .file = piece->file,
        };
        out->chunk_count++;
    }
    return BERTH_OK;
}

/* ---------------------------------------------------------------- whole pieces */

/* What [begin, end) takes of a chunk's room, whose buffer begins at a page of the file. */
static uint64_t
room_needed(uint64_t begin, uint64_t end)
{
    return berthi_round_down(end + CHUNK_BYTES_MIN - 1, CHUNK_BYTES_MIN)
           - berthi_round_down(begin, CHUNK_BYTES_MIN);
}

/* True when the piece joins the chunk [begin, at->end). */
static bool
is_packed(const position *at, uint64_t begin, const berthi_piece *piece,
          uint64_t chunk_bytes, uint64_t gap)
{
    return at->is_open && at->file == piece->file && piece->offset - at->end <= gap
           && room_needed(begin, piece->offset + piece->bytes) <= chunk_bytes;
}

static berth_status
check_whole(const berthi_piece *pieces, uint64_t piece_count, berthi_chunks *out,
            berth_error *error)
{
    for (uint64_t i = 0; i < piece_count; i++) {
        const uint64_t end = pieces[i].offset + pieces[i].bytes;

        if (end > FILE_END_MAX || room_needed(pieces[i].offset, end) > out->chunk_bytes)
            return fail_pieces(error, i, "does not fit into a chunk");
        out->span_count += pieces[i].bytes > 0;
        out->span_bytes += pieces[i].bytes;
    }
    return BERTH_OK;
}

/* Counts chunks, or writes them with their spans. */
static void
pack(const berthi_piece *pieces, uint64_t piece_count, uint64_t gap, bool is_written,
     berthi_chunks *out)
{
    position at = { .is_open = false };
    uint64_t begin = 0;

    out->chunk_count = 0;
    for (uint64_t i = 0; i < piece_count; i++) {
        const berthi_piece *const piece = &pieces[i];
        const bool is_new =
            piece->bytes > 0 && !is_packed(&at, begin, piece, out->chunk_bytes, gap);

        if (piece->bytes == 0)
            continue;
        if (is_new)
            begin = piece->offset;
        if (is_new && is_written)
            begin_chunk(out, piece->file, begin,
                        berthi_round_down(begin, CHUNK_BYTES_MIN));
        else
            out->chunk_count += is_new;
        if (is_written)
            add_span(out, piece, piece->offset, piece->offset + piece->bytes);
        move_behind(&at, piece, out->chunk_bytes);
    }
}

berth_status
berthi_chunks_pack(berth_context *context, const berthi_piece *pieces,
                   uint64_t piece_count, uint64_t chunk_bytes, uint64_t gap,
                   berthi_chunks *out, berth_error *error)
{
    berth_status status = check_pieces(pieces, piece_count, error);

    memset(out, 0, sizeof *out);
    out->context = context;
    out->chunk_bytes = chunk_bytes;
    out->is_ordered = true;
    if (status == BERTH_OK)
        status = check_whole(pieces, piece_count, out, error);
    if (status != BERTH_OK)
        return status;
    pack(pieces, piece_count, gap, false, out);
    out->spans = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, out->span_count,
                                     sizeof *out->spans);
    out->chunks = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, out->chunk_count,
                                      sizeof *out->chunks);
    if (out->chunks == NULL || out->spans == NULL) {
        berthi_chunks_fini(out);
        return berthi_fail_memory(error, "the table of chunks");
    }
    out->span_count = 0;
    pack(pieces, piece_count, gap, true, out);
    mark_last(out);
    return BERTH_OK;
}

void
berthi_chunks_fini(berthi_chunks *chunks)
{
    berthi_memory_free(chunks->context, BERTHI_PURPOSE_CHUNKS, chunks->chunks,
                       chunks->chunk_count * sizeof *chunks->chunks);
    berthi_memory_free(chunks->context, BERTHI_PURPOSE_CHUNKS, chunks->spans,
                       chunks->span_count * sizeof *chunks->spans);
    memset(chunks, 0, sizeof *chunks);
}

uint64_t
berthi_chunks_buffer_bytes(const berthi_chunks *chunks, const berth_context *context)
{
    uint64_t bytes = 0;

    if (context->spare_limit > 0)
        return chunks->chunk_bytes;
    for (uint64_t i = 0; i < chunks->chunk_count; i++)
        bytes = berthi_max_u64(bytes, chunks->chunks[i].end - chunks->chunks[i].origin);
    bytes = berthi_round_up(bytes, BLOCK_BYTES);
    if (bytes >= MAPPED_BYTES)
        bytes = berthi_round_up(bytes, LARGE_PAGE);
    return berthi_min_u64(bytes, chunks->chunk_bytes);
}
