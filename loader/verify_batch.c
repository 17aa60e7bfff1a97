/* SPDX-License-Identifier: Apache-2.0 */
/* verify_batch.c - pieces of whole shards, and the digests of what arrives. */
#include "loader/verify_batch.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/digest.h"
#include "loader/checkpoint.h"

#define CHUNK_BYTES (UINT64_C(4) << 20)
#define CHUNK_BYTES_MIN (UINT64_C(64) << 10)
/* The conveyor needs three chunks at least; with more of them reads overlap. */
#define RING_CHUNKS 4u
/* Whole shards up to one of these: at most some 3 MB of tables. */
#define BATCH_PIECES 32768u
#define BATCH_BYTES (UINT64_C(16) << 30)
/* Tag of bytes no tensor has: the index takes theirs from another file. */
#define GAP_TAG (BERTHI_NO_TAG - 1)

/* ------------------------------------------------------------------ digesting */

/* Adds what a span contributes to the digest of its tensor or header. */
static void
digest_span(const berthi_verify_batch *b, uint32_t file, const berthi_span *span,
            const uint8_t *bytes)
{
    berth_shard shard;
    uint64_t behind;

    if (span->tag == GAP_TAG)
        return;
    if (span->tag != BERTHI_NO_TAG) {
        berthi_crcs_add(b->crcs, span->tag, span->tag_offset, bytes, span->bytes);
        return;
    }
    berth_checkpoint_shard(b->checkpoint, b->first_shard + file, &shard);
    behind = BERTHI_HEADER_PREFIX + shard.header_bytes - span->tag_offset - span->bytes;
    atomic_fetch_xor(
        &b->crcs->headers[b->first_shard + file],
        berthi_digest_shift(berthi_digest_crc32(0, bytes, (size_t)span->bytes), behind));
}

static berth_status
digest_chunk(void *user, const berthi_chunk *chunk, const berthi_span *spans,
             const uint8_t *bytes, berth_error *error)
{
    const berthi_verify_batch *const b = user;

    (void)error;
    if (b->crcs == NULL)
        return BERTH_OK; /* reading was all that was asked for */
    for (uint32_t i = 0; i < chunk->span_count; i++)
        digest_span(b, chunk->file, &spans[i], bytes + spans[i].chunk_offset);
    return BERTH_OK;
}

static berth_status
hash_chunk(void *user, const berthi_chunk *chunk, const uint8_t *bytes,
           berth_error *error)
{
    const berthi_verify_batch *const b = user;
    berthi_blob *const blob = &b->blobs[chunk->file];
    const uint64_t size = chunk->end - chunk->begin;
    berth_status status = BERTH_OK;

    if (blob->promised == NULL)
        return BERTH_OK;
    if (blob->digest == NULL)
        status = berthi_sha256_create(b->sha256, &blob->digest, error);
    if (status == BERTH_OK)
        status = berthi_sha256_update(blob->digest, bytes, (size_t)size, error);
    blob->bytes += size;
    if (status == BERTH_OK && chunk->is_last_of_file)
        status = berthi_sha256_finish(blob->digest, blob->hex, error);
    return status;
}

/* ---------------------------------------------------------------------- what */

/* How many shards; returns the pieces they need at most. */
static uint64_t
choose_shards(berthi_verify_batch *b)
{
    berth_checkpoint_summary summary;
    uint64_t pieces = 0;

    berth_checkpoint_get(b->checkpoint, &summary);
    while (b->first_shard + b->count < summary.shard_count) {
        berth_shard shard;

        berth_checkpoint_shard(b->checkpoint, b->first_shard + b->count, &shard);
        if (b->count > 0
            && (pieces + 1 + shard.tensor_count > BATCH_PIECES
                || b->bytes + shard.file_bytes > BATCH_BYTES))
            break;
        b->count++;
        pieces += 1 + shard.tensor_count;
        b->bytes += shard.file_bytes;
    }
    return 2 * pieces; /* a gap may lie behind each */
}

/* Bytes of the file that belong to no tensor of the checkpoint: one piece, if any. */
static bool
has_gap(uint64_t begin, uint64_t end, uint32_t file, berthi_piece *out)
{
    if (begin < end)
        *out = (berthi_piece){ .offset = begin, .bytes = end - begin, .tag = GAP_TAG,
                               .file = file };
    return begin < end;
}

/* Pieces of one shard, in the order of its bytes and all of them; how many. */
static uint64_t
list_pieces(const berthi_verify_batch *b, const berth_shard *shard, uint32_t file,
            berthi_piece *pieces)
{
    uint64_t at = BERTHI_HEADER_PREFIX + shard->header_bytes;
    uint64_t count = 0;

    pieces[count++] = (berthi_piece){ .bytes = at, .tag = BERTHI_NO_TAG, .file = file };
    for (uint64_t i = 0; i < shard->tensor_count; i++) {
        berth_tensor tensor;

        berth_checkpoint_tensor(b->checkpoint, shard->first_tensor + i, &tensor);
        if (tensor.bytes == 0)
            continue;
        count += has_gap(at, tensor.file_offset, file, &pieces[count]);
        pieces[count++] = (berthi_piece){ .offset = tensor.file_offset,
                                          .bytes = tensor.bytes,
                                          .tag = shard->first_tensor + i,
                                          .file = file };
        at = tensor.file_offset + tensor.bytes;
    }
    return count + has_gap(at, shard->file_bytes, file, &pieces[count]);
}

/* Fills files, blobs and `pieces`. */
static berth_status
list_shards(berthi_verify_batch *b, berthi_piece *pieces, uint64_t *piece_count,
            berth_error *error)
{
    for (uint32_t i = 0; i < b->count; i++) {
        const uint32_t number = b->first_shard + i;
        const berthi_file *file;
        berth_shard shard;
        const berth_status status =
            berthi_checkpoint_file(b->checkpoint, number, &file, error);

        if (status != BERTH_OK)
            return status;
        b->files[i] = *file;
        berth_checkpoint_shard(b->checkpoint, number, &shard);
        *piece_count += list_pieces(b, &shard, i, pieces + *piece_count);
        if (b->sha256 != NULL && shard.blob_sha256[0] != '\0') {
            b->blobs[i].promised = shard.blob_sha256;
            b->has_blobs = true;
        }
    }
    return BERTH_OK;
}

/* A small ring gets small chunks. */
static uint64_t
choose_chunk_bytes(uint64_t ring_bytes)
{
    uint64_t bytes = CHUNK_BYTES;

    while (bytes * RING_CHUNKS > ring_bytes && bytes > CHUNK_BYTES_MIN)
        bytes /= 2;
    return bytes;
}

berth_status
berthi_verify_batch_init(berthi_verify_batch *batch, berth_context *context,
                         const berth_checkpoint *checkpoint, uint32_t first_shard,
                         const berthi_crcs *crcs, berthi_sha256 *sha256,
                         uint64_t ring_bytes, berth_error *error)
{
    berthi_piece *pieces;
    uint64_t capacity;
    uint64_t piece_count = 0;
    berth_status status = BERTH_OK;

    memset(batch, 0, sizeof *batch);
    batch->context = context;
    batch->checkpoint = checkpoint;
    batch->crcs = crcs;
    batch->sha256 = sha256;
    batch->first_shard = first_shard;
    capacity = choose_shards(batch);
    pieces = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, capacity, sizeof *pieces);
    batch->files = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, batch->count,
                                       sizeof *batch->files);
    batch->blobs = berthi_memory_zalloc(context, BERTHI_PURPOSE_CHUNKS,
                                        batch->count * sizeof *batch->blobs);
    if (pieces == NULL || batch->files == NULL || batch->blobs == NULL)
        status = berthi_fail_memory(error, "the table of chunks");
    if (status == BERTH_OK)
        status = list_shards(batch, pieces, &piece_count, error);
    if (status == BERTH_OK)
        status = berthi_chunks_build(context, pieces, piece_count,
                                     choose_chunk_bytes(ring_bytes), 0, &batch->chunks,
                                     error);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, pieces, capacity * sizeof *pieces);
    /* The one addition that says: the pieces are the whole files. */
    if (status == BERTH_OK && batch->chunks.span_bytes != batch->bytes)
        status = berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                             "%" PRIu64 " bytes of %" PRIu64 " would be read",
                             batch->chunks.span_bytes, batch->bytes);
    if (status != BERTH_OK)
        berthi_verify_batch_fini(batch);
    return status;
}

void
berthi_verify_batch_fini(berthi_verify_batch *batch)
{
    for (uint32_t i = 0; batch->blobs != NULL && i < batch->count; i++)
        berthi_sha256_destroy(batch->blobs[i].digest);
    berthi_chunks_fini(&batch->chunks);
    berthi_memory_free(batch->context, BERTHI_PURPOSE_CHUNKS, batch->files,
                       batch->count * sizeof *batch->files);
    berthi_memory_free(batch->context, BERTHI_PURPOSE_CHUNKS, batch->blobs,
                       batch->count * sizeof *batch->blobs);
    memset(batch, 0, sizeof *batch);
}

berth_status
berthi_verify_batch_run(berthi_verify_batch *batch, berth_job *job,
                        const berthi_conveyor_options *options,
                        berthi_conveyor_stats *stats, berth_error *error)
{
    const berthi_consumer consumer = {
        .user = batch,
        .consume = digest_chunk,
        .consume_in_order = batch->has_blobs ? hash_chunk : NULL,
    };
    const berthi_freight freight = { .context = batch->context,
                                     .job = job,
                                     .files = batch->files,
                                     .file_count = batch->count,
                                     .chunks = &batch->chunks };
    berth_status status =
        berthi_conveyor_run(&freight, options, &consumer, stats, error);

    for (uint32_t i = 0; i < batch->count && status == BERTH_OK; i++)
        if (batch->blobs[i].promised != NULL
            && batch->blobs[i].bytes != batch->files[i].identity.bytes)
            status = berthi_fail(error, BERTH_REASON_INTERNAL,
                                 &(berthi_about){ .file = batch->files[i].path },
                                 "%" PRIu64 " bytes of the blob were digested",
                                 batch->blobs[i].bytes);
    return status;
}
