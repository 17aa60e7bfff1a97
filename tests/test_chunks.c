/* SPDX-License-Identifier: Apache-2.0 */
/* test_chunks.c - the chunk table: every byte once, cut where it should be. */
#include <stdlib.h>
#include <string.h>

#include "loader/conveyor.h"
#include "tests/fault.h"
#include "tests/t.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)

static berth_context *context;

static berth_status
build(const berthi_piece *pieces, uint64_t count, uint64_t chunk_bytes, uint64_t gap,
      berthi_chunks *out, berth_error *error)
{
    berthi_error_clear(error);
    return berthi_chunks_build(context, pieces, count, chunk_bytes, gap, out, error);
}

/* The block of the file, or the smaller window, in which a buffer begins. */
static uint64_t
block_of(const berthi_chunks *chunks, uint64_t begin)
{
    const uint64_t block = chunks->chunk_bytes < 64 * KIB ? chunks->chunk_bytes : 64 * KIB;

    return begin - begin % block;
}

/* One chunk, in words that a failing check can print. */
static void
check_chunk(const berthi_chunks *chunks, uint64_t number, uint32_t file, uint64_t begin,
            uint64_t end, uint32_t number_in_file, bool is_last)
{
    const berthi_chunk *const chunk = &chunks->chunks[number];

    if (!CHECK_LT(number, chunks->chunk_count))
        return;
    CHECK_EQ(chunk->file, file);
    CHECK_EQ(chunk->begin, begin);
    CHECK_EQ(chunk->end, end);
    CHECK_EQ(chunk->number_in_file, number_in_file);
    CHECK_EQ(chunk->is_last_of_file, is_last);
    CHECK_EQ(chunk->origin, block_of(chunks, begin));
}

static void
check_span(const berthi_chunks *chunks, uint64_t number, uint64_t tag, uint64_t tag_offset,
           uint64_t bytes, uint64_t chunk_offset)
{
    const berthi_span *const span = &chunks->spans[number];

    if (!CHECK_LT(number, chunks->span_count))
        return;
    CHECK_EQ(span->tag, tag);
    CHECK_EQ(span->tag_offset, tag_offset);
    CHECK_EQ(span->bytes, bytes);
    CHECK_EQ(span->chunk_offset, chunk_offset);
}

static void
test_cuts_at_windows(void)
{
    /* A header, a tensor over three windows, one in the last window's rest. */
    const berthi_piece pieces[] = {
        { 0, 100, BERTHI_NO_TAG, 0 },
        { 100, 4096 + 4096, 7, 0 },
        { 100 + 8192, 50, 8, 0 },
    };
    berthi_chunks chunks;
    berth_error error;

    T_REQUIRE(build(pieces, 3, 4096, 0, &chunks, &error) == BERTH_OK);
    CHECK_EQ(chunks.chunk_bytes, 4096);
    CHECK_EQ(chunks.chunk_count, 3);
    CHECK_EQ(chunks.span_count, 5);
    CHECK_EQ(chunks.span_bytes, 8342);
    check_chunk(&chunks, 0, 0, 0, 4096, 0, false);
    check_chunk(&chunks, 1, 0, 4096, 8192, 1, false);
    check_chunk(&chunks, 2, 0, 8192, 8342, 2, true);
    CHECK_EQ(chunks.chunks[0].first_span, 0);
    CHECK_EQ(chunks.chunks[0].span_count, 2);
    CHECK_EQ(chunks.chunks[1].first_span, 2);
    CHECK_EQ(chunks.chunks[1].span_count, 1);
    CHECK_EQ(chunks.chunks[2].first_span, 3);
    CHECK_EQ(chunks.chunks[2].span_count, 2);
    check_span(&chunks, 0, BERTHI_NO_TAG, 0, 100, 0);
    check_span(&chunks, 1, 7, 0, 3996, 100);
    check_span(&chunks, 2, 7, 3996, 4096, 0);
    check_span(&chunks, 3, 7, 8092, 100, 0);
    check_span(&chunks, 4, 8, 0, 50, 100);
    berthi_chunks_fini(&chunks);
    CHECK(chunks.chunks == NULL && chunks.spans == NULL);
}

static void
test_ends_exactly_at_a_window(void)
{
    const berthi_piece pieces[] = { { 0, 4096, 1, 0 }, { 4096, 4096, 2, 0 } };
    berthi_chunks chunks;
    berth_error error;

    T_REQUIRE(build(pieces, 2, 4096, 9999, &chunks, &error) == BERTH_OK);
    CHECK_EQ(chunks.chunk_count, 2);
    CHECK_EQ(chunks.span_count, 2);
    check_chunk(&chunks, 0, 0, 0, 4096, 0, false);
    check_chunk(&chunks, 1, 0, 4096, 8192, 1, true);
    berthi_chunks_fini(&chunks);
}

static void
test_reads_small_gaps_through(void)
{
    const berthi_piece pieces[] = {
        { 10, 10, 1, 0 }, { 30, 10, 2, 0 }, /* a gap of 10 */
        { 51, 10, 3, 0 },                   /* of 11: too large */
        { 4100, 10, 4, 0 },                 /* the next window */
    };
    berthi_chunks chunks;
    berth_error error;

    T_REQUIRE(build(pieces, 4, 4096, 10, &chunks, &error) == BERTH_OK);
    CHECK_EQ(chunks.chunk_count, 3);
    check_chunk(&chunks, 0, 0, 10, 40, 0, false);
    check_chunk(&chunks, 1, 0, 51, 61, 1, false);
    check_chunk(&chunks, 2, 0, 4100, 4110, 2, true);
    check_span(&chunks, 1, 2, 0, 10, 20);
    berthi_chunks_fini(&chunks);
    /* However large: nothing is read of a window in which nothing is wanted. */
    T_REQUIRE(build(pieces, 4, 4096, UINT64_MAX, &chunks, &error) == BERTH_OK);
    CHECK_EQ(chunks.chunk_count, 2);
    check_chunk(&chunks, 0, 0, 10, 61, 0, false);
    check_chunk(&chunks, 1, 0, 4100, 4110, 1, true);
    berthi_chunks_fini(&chunks);
}

static void
test_files_are_apart(void)
{
    const berthi_piece pieces[] = {
        { 0, 10, 1, 1 }, { 10, 10, 2, 1 }, { 20, 10, 3, 4 }, { 30, 0, 4, 5 }, { 0, 1, 5, 6 },
    };
    berthi_chunks chunks;
    berth_error error;

    T_REQUIRE(build(pieces, 5, 4096, 100, &chunks, &error) == BERTH_OK);
    CHECK_EQ(chunks.chunk_count, 3);
    CHECK_EQ(chunks.span_count, 4);
    check_chunk(&chunks, 0, 1, 0, 20, 0, true);
    check_chunk(&chunks, 1, 4, 20, 30, 0, true);
    check_chunk(&chunks, 2, 6, 0, 1, 0, true);
    berthi_chunks_fini(&chunks);
}

static void
test_nothing_wanted(void)
{
    const berthi_piece empty[] = { { 5, 0, 1, 0 }, { 5, 0, 2, 0 } };
    berthi_chunks chunks;
    berth_error error;

    T_REQUIRE(build(NULL, 0, 4096, 0, &chunks, &error) == BERTH_OK);
    CHECK_EQ(chunks.chunk_count, 0);
    CHECK_EQ(chunks.span_bytes, 0);
    berthi_chunks_fini(&chunks);
    T_REQUIRE(build(empty, 2, 4096, 0, &chunks, &error) == BERTH_OK);
    CHECK_EQ(chunks.chunk_count, 0);
    CHECK_EQ(chunks.span_count, 0);
    berthi_chunks_fini(&chunks);
}

/* An empty piece between two others does not part them. */
static void
test_empty_pieces_do_not_cut(void)
{
    const berthi_piece pieces[] = {
        { 0, 10, 1, 0 }, { 10, 0, 2, 0 }, { 10, 10, 3, 0 }, { 20, 0, 4, 0 },
    };
    berthi_chunks chunks;
    berth_error error;

    T_REQUIRE(build(pieces, 4, 4096, 0, &chunks, &error) == BERTH_OK);
    CHECK_EQ(chunks.chunk_count, 1);
    CHECK_EQ(chunks.span_count, 2);
    check_chunk(&chunks, 0, 0, 0, 20, 0, true);
    berthi_chunks_fini(&chunks);
}

static void
check_refused(const berthi_piece *pieces, uint64_t count, const char *words)
{
    berthi_chunks chunks;
    berth_error error;

    CHECK_EQ(build(pieces, count, 4096, 0, &chunks, &error), BERTH_EINTERNAL);
    CHECK_EQ(error.reason, BERTH_REASON_INTERNAL);
    CHECK_CONTAINS(error.message, words);
    CHECK(chunks.chunks == NULL && chunks.spans == NULL);
    berthi_chunks_fini(&chunks);
}

static void
test_refuses_disorder(void)
{
    const berthi_piece overlap[] = { { 0, 10, 1, 0 }, { 9, 10, 2, 0 } };
    const berthi_piece backward[] = { { 100, 10, 1, 0 }, { 0, 10, 2, 0 } };
    const berthi_piece earlier[] = { { 0, 10, 1, 3 }, { 10, 10, 2, 2 } };
    const berthi_piece overflow[] = { { 2, UINT64_MAX - 1, 1, 0 } };

    check_refused(overlap, 2, "piece 1 overlaps");
    check_refused(backward, 2, "piece 1 overlaps");
    check_refused(earlier, 2, "piece 1 belongs to an earlier file");
    check_refused(overflow, 1, "piece 0 ends beyond");
}

static void
test_refuses_odd_chunks(void)
{
    const uint64_t wrong[] = { 0, 1, 2048, 4097, 12288, UINT64_C(2) << 30 };
    const uint64_t right[] = { 4096, 8192, 4 * MIB, UINT64_C(1) << 30 };
    const berthi_piece piece = { 0, 10, 1, 0 };
    berthi_chunks chunks;
    berth_error error;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_EQ(build(&piece, 1, wrong[i], 0, &chunks, &error), BERTH_EINVAL);
        CHECK_CONTAINS(error.message, "chunk_bytes");
        berthi_chunks_fini(&chunks);
    }
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        CHECK_EQ(build(&piece, 1, right[i], 0, &chunks, &error), BERTH_OK);
        berthi_chunks_fini(&chunks);
    }
}

/* Sizes that only sparse files reach: an answer at once, and no overflow. */
static void
test_impossible_sizes(void)
{
    const berthi_piece huge[] = { { 0, UINT64_MAX, 1, 0 } };
    const berthi_piece sum[] = { { 0, UINT64_MAX, 1, 0 }, { 0, 1, 2, 1 } };
    const berthi_piece last[] = { { UINT64_MAX - 10, 10, 1, 0 } };
    berthi_chunks chunks;
    berth_error error;

    CHECK_EQ(build(huge, 1, 4096, 0, &chunks, &error), BERTH_ENOMEM);
    CHECK_EQ(error.reason, BERTH_REASON_NO_MEMORY);
    CHECK_EQ(chunks.chunk_count, 0);
    berthi_chunks_fini(&chunks);
    CHECK_EQ(build(sum, 2, 1 << 30, 0, &chunks, &error), BERTH_ENOMEM);
    berthi_chunks_fini(&chunks);
    T_REQUIRE(build(last, 1, 1 << 30, 0, &chunks, &error) == BERTH_OK);
    check_chunk(&chunks, 0, 0, UINT64_MAX - 10, UINT64_MAX, 0, true);
    berthi_chunks_fini(&chunks);
}

/* ------------------------------------------------------------------- buffers */

/* What the largest chunk takes, in whole blocks or large pages, wherever it lies. */
static void
test_buffers_are_as_large_as_chunks(void)
{
    static const struct {
        berthi_piece pieces[2];
        uint64_t chunk_bytes;
        uint64_t bytes;
    } cases[] = {
        { { { 0, 100, 1, 0 }, { 0, 3000, 2, 1 } }, 4 * MIB, 64 * KIB },
        { { { 0, 64 * KIB, 1, 0 }, { 0, 1, 2, 1 } }, 4 * MIB, 64 * KIB },
        { { { 0, 64 * KIB + 1, 1, 0 }, { 0, 1, 2, 1 } }, 4 * MIB, 128 * KIB },
        { { { 64 * KIB - 1, 2, 1, 0 }, { 0, 1, 2, 1 } }, 4 * MIB, 128 * KIB },
        { { { 11 * MIB, 100 * KIB, 1, 0 }, { 0, 1, 2, 1 } }, 4 * MIB, 128 * KIB },
        { { { 0, 9, 1, 0 }, { 3 * MIB, 4 * MIB, 2, 1 } }, 4 * MIB, 4 * MIB },
        { { { 0, 9, 1, 0 }, { 0, MIB - 64 * KIB, 2, 1 } }, 4 * MIB, MIB - 64 * KIB },
        { { { 0, 9, 1, 0 }, { 0, MIB - 1, 2, 1 } }, 4 * MIB, 2 * MIB },
        { { { 0, 9, 1, 0 }, { 0, MIB, 2, 1 } }, 4 * MIB, 2 * MIB },
        { { { 0, 9, 1, 0 }, { 7, 2 * MIB, 2, 1 } }, 4 * MIB, 4 * MIB },
        { { { 0, 9, 1, 0 }, { 0, MIB, 2, 1 } }, MIB, MIB },
        { { { 0, 9, 1, 0 }, { 0, 5 * MIB, 2, 1 } }, 4 * MIB, 4 * MIB },
        { { { 0, 9, 1, 0 }, { 5000, 20, 2, 1 } }, 4 * KIB, 4 * KIB },
        { { { 0, 9, 1, 0 }, { 0, 9, 2, 1 } }, 32 * KIB, 32 * KIB },
    };
    berthi_chunks chunks;
    berth_error error;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        T_REQUIRE(build(cases[i].pieces, 2, cases[i].chunk_bytes, 0, &chunks, &error)
                  == BERTH_OK);
        CHECK_EQ(berthi_chunks_buffer_bytes(&chunks, context), cases[i].bytes);
        /* Kept for later jobs they are all alike. */
        context->spare_limit = 1;
        CHECK_EQ(berthi_chunks_buffer_bytes(&chunks, context), cases[i].chunk_bytes);
        context->spare_limit = 0;
        berthi_chunks_fini(&chunks);
    }
}

/* ------------------------------------------------------------- in any order */

static void
test_list(void)
{
    const berthi_piece pieces[] = {
        { 5000, 10, 1, 2 }, { 4095, 2, 2, 0 }, { 9, 0, 3, 1 }, { 0, 4096, 4, 0 }, { 100, 7, 5, 2 },
    };
    const uint64_t origins[] = { 4096, 0, 0, 0 };
    const uint32_t from[] = { 0, 1, 3, 4 };
    berthi_chunks chunks;
    berth_error error;

    T_REQUIRE(berthi_chunks_list(context, pieces, 5, &chunks, &error) == BERTH_OK);
    CHECK_EQ(chunks.chunk_count, 4);
    CHECK_EQ(chunks.span_count, 4);
    CHECK_EQ(chunks.span_bytes, 10 + 2 + 4096 + 7);
    CHECK_EQ(chunks.chunk_bytes, 8192); /* the second lies on two pages */
    CHECK(!chunks.is_ordered);
    for (uint64_t i = 0; i < 4; i++) {
        const berthi_chunk *const chunk = &chunks.chunks[i];
        const berthi_piece *const piece = &pieces[from[i]];

        CHECK_EQ(chunk->begin, piece->offset);
        CHECK_EQ(chunk->end, piece->offset + piece->bytes);
        CHECK_EQ(chunk->origin, origins[i]);
        CHECK_EQ(chunk->file, piece->file);
        CHECK_EQ(chunk->first_span, i);
        CHECK_EQ(chunk->span_count, 1);
        CHECK_EQ(chunk->number_in_file, 0);
        CHECK(!chunk->is_last_of_file);
        check_span(&chunks, i, piece->tag, 0, piece->bytes, 0);
    }
    berthi_chunks_fini(&chunks);
    T_REQUIRE(berthi_chunks_list(context, pieces + 2, 1, &chunks, &error) == BERTH_OK);
    CHECK_EQ(chunks.chunk_count, 0);
    CHECK_EQ(chunks.chunk_bytes, 4096);
    berthi_chunks_fini(&chunks);
}

static void
test_list_of_impossible_sizes(void)
{
    const uint64_t end = UINT64_C(1) << 63;
    const berthi_piece around[] = { { UINT64_MAX, 2, 1, 0 } };
    const berthi_piece behind[] = { { end, 1, 1, 0 } };
    const berthi_piece last[] = { { end - 1, 1, 1, 0 }, { end, 0, 2, 0 } };
    const berthi_piece sum[] = { { 0, end, 1, 0 }, { 0, end, 1, 0 } };
    berthi_chunks chunks;
    berth_error error;

    CHECK_EQ(berthi_chunks_list(context, around, 1, &chunks, &error), BERTH_EINTERNAL);
    CHECK_EQ(berthi_chunks_list(context, behind, 1, &chunks, &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "piece 0");
    CHECK_EQ(berthi_chunks_list(context, sum, 2, &chunks, &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "piece 1");
    T_REQUIRE(berthi_chunks_list(context, last, 2, &chunks, &error) == BERTH_OK);
    CHECK_EQ(chunks.chunk_bytes, 4096);
    berthi_chunks_fini(&chunks);
}

/* ------------------------------------------------------------ many, at random */

static uint32_t seed;

static uint64_t
below(uint64_t limit)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % limit;
}

#define PIECES 40

static uint64_t
make_pieces(berthi_piece *pieces)
{
    uint64_t count = 1 + below(PIECES);
    uint64_t at = below(5000);
    uint32_t file = 0;

    for (uint64_t i = 0; i < count; i++) {
        if (below(8) == 0) {
            file += 1 + (uint32_t)below(3);
            at = below(5000);
        }
        if (below(3) == 0)
            at += below(2) ? below(300) : below(20000);
        pieces[i] = (berthi_piece){ at, below(4) ? below(9000) : below(3), i, file };
        at += pieces[i].bytes;
    }
    return count;
}

/* Widened as direct reads are, whatever the device's blocks: it stays in its buffer. */
static void
check_buffer(const berthi_chunks *chunks, const berthi_chunk *chunk)
{
    const uint64_t bytes = berthi_chunks_buffer_bytes(chunks, context);

    CHECK_EQ(chunk->origin, block_of(chunks, chunk->begin));
    CHECK_LE(bytes, chunks->chunk_bytes);
    for (uint64_t block = 512; block <= 64 * KIB && block <= chunks->chunk_bytes; block *= 2) {
        CHECK_GE(chunk->begin / block * block, chunk->origin);
        CHECK_LE((chunk->end + block - 1) / block * block - chunk->origin, bytes);
    }
}

/* What must hold for any table, checked the slow way. */
static void
check_table(const berthi_chunks *chunks, const berthi_piece *pieces, uint64_t count,
            uint64_t gap)
{
    uint64_t arrived[PIECES] = { 0 };
    uint64_t span_number = 0;
    uint64_t wanted = 0;

    for (uint64_t c = 0; c < chunks->chunk_count; c++) {
        const berthi_chunk *const chunk = &chunks->chunks[c];
        const berthi_chunk *const next = c + 1 < chunks->chunk_count ? chunk + 1 : NULL;
        uint64_t at = chunk->begin;

        check_buffer(chunks, chunk);
        CHECK_LT(chunk->begin, chunk->end);
        CHECK_EQ(chunk->begin / chunks->chunk_bytes, (chunk->end - 1) / chunks->chunk_bytes);
        CHECK_EQ(chunk->first_span, span_number);
        CHECK_GE(chunk->span_count, 1);
        for (uint32_t i = 0; i < chunk->span_count; i++, span_number++) {
            const berthi_span *const span = &chunks->spans[span_number];
            const berthi_piece *const piece = &pieces[span->tag];
            const uint64_t begin = chunk->begin + span->chunk_offset;

            CHECK_GE(begin, at);
            CHECK_LE(begin - at, gap);
            CHECK_EQ(begin, piece->offset + span->tag_offset);
            CHECK_EQ(chunk->file, piece->file);
            CHECK_EQ(span->tag_offset, arrived[span->tag]);
            CHECK_GE(span->bytes, 1);
            arrived[span->tag] += span->bytes;
            at = begin + span->bytes;
        }
        CHECK_EQ(at, chunk->end);
        CHECK_EQ(chunk->is_last_of_file, next == NULL || next->file != chunk->file);
        if (next != NULL && next->file == chunk->file) {
            CHECK_EQ(next->number_in_file, chunk->number_in_file + 1);
            /* Not cut without need. */
            CHECK(next->begin - chunk->end > gap
                  || next->begin / chunks->chunk_bytes != chunk->begin / chunks->chunk_bytes);
        } else if (next != NULL) {
            CHECK_EQ(next->number_in_file, 0);
        }
    }
    CHECK_EQ(span_number, chunks->span_count);
    for (uint64_t i = 0; i < count; i++) {
        CHECK_EQ(arrived[i], pieces[i].bytes);
        wanted += pieces[i].bytes;
    }
    CHECK_EQ(chunks->span_bytes, wanted);
}

static void
test_every_byte_once(void)
{
    berthi_piece pieces[PIECES];
    berthi_chunks chunks;
    berth_error error;

    for (seed = 1; seed < 2000; seed += 1) {
        const uint32_t first_seed = seed;
        const uint64_t count = make_pieces(pieces);
        const uint64_t gap = below(3) == 0 ? 0 : below(400);

        T_REQUIRE(build(pieces, count, KIB << (2 + below(8)), gap, &chunks, &error)
                  == BERTH_OK);
        check_table(&chunks, pieces, count, gap);
        berthi_chunks_fini(&chunks);
        seed = first_seed;
    }
}

/* ------------------------------------------------------------------ whole pieces */

static berth_status
packed(const berthi_piece *pieces, uint64_t count, uint64_t chunk_bytes, uint64_t gap,
       berthi_chunks *out, berth_error *error)
{
    return berthi_chunks_pack(context, pieces, count, chunk_bytes, gap, out, error);
}

/* As large as a buffer is from the page of its first byte to that of its last. */
static uint64_t
pages(uint64_t begin, uint64_t end)
{
    return (end + 4095) / 4096 * 4096 - begin / 4096 * 4096;
}

static void
check_packed(const berthi_chunks *chunks, const berthi_piece *pieces, uint64_t count,
             uint64_t gap)
{
    uint64_t next = 0;

    for (uint64_t c = 0; c < chunks->chunk_count; c++) {
        const berthi_chunk *const chunk = &chunks->chunks[c];
        uint64_t end = chunk->begin;

        CHECK_EQ(chunk->origin, chunk->begin / 4096 * 4096);
        CHECK_LE(pages(chunk->begin, chunk->end), chunks->chunk_bytes);
        CHECK_LE(pages(chunk->begin, chunk->end),
                 berthi_chunks_buffer_bytes(chunks, context));
        for (uint32_t i = 0; i < chunk->span_count; i++, next++) {
            const berthi_span *const span = &chunks->spans[chunk->first_span + i];

            while (pieces[next].bytes == 0)
                next++;
            CHECK_EQ(span->tag, pieces[next].tag);
            CHECK_EQ(span->tag_offset, 0);
            CHECK_EQ(span->bytes, pieces[next].bytes);
            CHECK_EQ(chunk->begin + span->chunk_offset, pieces[next].offset);
            CHECK_EQ(chunk->file, pieces[next].file);
            CHECK_LE(pieces[next].offset - end, gap);
            end = pieces[next].offset + span->bytes;
        }
        CHECK_EQ(end, chunk->end);
        if (c + 1 < chunks->chunk_count && chunk[1].file == chunk->file) {
            /* Not cut without need. */
            CHECK(chunk[1].begin - chunk->end > gap
                  || pages(chunk->begin,
                           chunk[1].begin + chunks->spans[chunk[1].first_span].bytes)
                         > chunks->chunk_bytes);
            CHECK_EQ(chunk[1].number_in_file, chunk->number_in_file + 1);
        }
        CHECK_EQ(chunk->is_last_of_file, c + 1 == chunks->chunk_count
                                             || chunk[1].file != chunk->file);
    }
    while (next < count && pieces[next].bytes == 0)
        next++;
    CHECK_EQ(next, count);
}

static void
test_pieces_stay_whole(void)
{
    berthi_piece pieces[PIECES];
    berthi_chunks chunks;
    berth_error error;

    for (uint32_t round = 1; round < 2000; round++) {
        uint64_t count, total = 0;
        const uint64_t gap = round % 3 == 0 ? 0 : round % 400;

        seed = round;
        count = make_pieces(pieces);
        for (uint64_t i = 0; i < count; i++) {
            if (pieces[i].bytes > 12 * KIB)
                pieces[i].bytes = 12 * KIB;
            total += pieces[i].bytes;
        }
        T_REQUIRE(packed(pieces, count, 16 * KIB + round % 5 * 4 * KIB, gap, &chunks,
                         &error) == BERTH_OK);
        CHECK_EQ(chunks.span_bytes, total);
        CHECK(chunks.is_ordered);
        check_packed(&chunks, pieces, count, gap);
        berthi_chunks_fini(&chunks);
    }
}

static void
test_packing_is_refused(void)
{
    const berthi_piece large[] = { { 4095, 8192, 1, 0 } }; /* touches three pages */
    const berthi_piece unordered[] = { { 10, 5, 1, 0 }, { 9, 1, 2, 0 } };
    const berthi_piece far[] = { { (UINT64_C(1) << 63) - 1, 2, 1, 0 } };
    berthi_chunks chunks;
    berth_error error;

    CHECK_EQ(packed(large, 1, 8192, 0, &chunks, &error), BERTH_EINTERNAL);
    CHECK(chunks.chunks == NULL && chunks.spans == NULL);
    CHECK_EQ(packed(large, 1, 12288, 0, &chunks, &error), BERTH_OK);
    berthi_chunks_fini(&chunks);
    CHECK_EQ(packed(unordered, 2, 8192, 0, &chunks, &error), BERTH_EINTERNAL);
    CHECK_EQ(packed(far, 1, 8192, 0, &chunks, &error), BERTH_EINTERNAL);
    CHECK_EQ(packed(large, 0, 8192, 0, &chunks, &error), BERTH_OK);
    CHECK_EQ(chunks.chunk_count, 0);
    berthi_chunks_fini(&chunks);
}

static berth_status
pack_once(void *user, berth_context *own_context, berth_error *error)
{
    const berthi_piece pieces[] = { { 0, 4000, 1, 0 }, { 3, 5, 2, 1 } };
    berthi_chunks chunks;
    berth_status status;

    (void)user;
    status = berthi_chunks_pack(own_context, pieces, 2, 4096, 0, &chunks, error);
    if (status != BERTH_OK)
        CHECK(chunks.chunks == NULL && chunks.spans == NULL && chunks.chunk_count == 0);
    berthi_chunks_fini(&chunks);
    return status;
}

static berth_status
build_once(void *user, berth_context *own_context, berth_error *error)
{
    const berthi_piece pieces[] = { { 0, 100000, 1, 0 }, { 3, 5, 2, 1 } };
    berthi_chunks chunks;
    berth_status status;

    (void)user;
    status = berthi_chunks_build(own_context, pieces, 2, 4096, 0, &chunks, error);
    if (status != BERTH_OK)
        CHECK(chunks.chunks == NULL && chunks.spans == NULL && chunks.chunk_count == 0);
    berthi_chunks_fini(&chunks);
    return status;
}

static void
test_every_allocation_can_fail(void)
{
    const fault_counts counts = fault_loop("chunks", build_once, NULL);

    CHECK_EQ(counts.memory, 2 * 2);
    CHECK_EQ(counts.survived, 0);
    CHECK_EQ(fault_loop("packed chunks", pack_once, NULL).memory, 2 * 2);
}

/* After all the others: tables are freed with the sizes they were allocated with. */
static void
test_nothing_is_left(void)
{
    berth_memory_summary memory;

    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_cuts_at_windows);
    T_RUN(test_ends_exactly_at_a_window);
    T_RUN(test_reads_small_gaps_through);
    T_RUN(test_files_are_apart);
    T_RUN(test_nothing_wanted);
    T_RUN(test_empty_pieces_do_not_cut);
    T_RUN(test_refuses_disorder);
    T_RUN(test_refuses_odd_chunks);
    T_RUN(test_impossible_sizes);
    T_RUN(test_buffers_are_as_large_as_chunks);
    T_RUN(test_list);
    T_RUN(test_list_of_impossible_sizes);
    T_RUN(test_every_byte_once);
    T_RUN(test_pieces_stay_whole);
    T_RUN(test_packing_is_refused);
    T_RUN(test_every_allocation_can_fail);
    T_RUN(test_nothing_is_left);
    berth_context_destroy(context);
    T_MAIN_END;
}
