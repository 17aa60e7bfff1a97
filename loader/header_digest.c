/* SPDX-License-Identifier: Apache-2.0 */
/* header_digest.c - headers on the conveyor, one chunk after the other; see header_digest.h. */
#include "loader/header_digest.h"

#include "kernels/digest.h"
#include "loader/conveyor.h"
#include "loader/shard.h"

#define CHUNK_BYTES (UINT64_C(64) << 10) /* most headers are one */
#define RING_BYTES  (4 * CHUNK_BYTES)

typedef struct headers {
    berth_context *context;
    const berth_checkpoint *checkpoint;
    berthi_file *files; /* copies: the checkpoint keeps the descriptors */
    berthi_piece *pieces;
    uint32_t count; /* of the pieces */
    uint32_t *crcs;
} headers;

static berth_status
digest_chunk(void *user, const berthi_chunk *chunk, const uint8_t *bytes, berth_error *error)
{
    headers *const h = user;
    uint32_t *const crc = &h->crcs[chunk->file];

    (void)error;
    *crc = berthi_digest_crc32(chunk->number_in_file > 0 ? *crc : 0, bytes,
                               (size_t)(chunk->end - chunk->begin));
    return BERTH_OK;
}

static berth_status
list(headers *h, const bool *wanted, berth_error *error)
{
    const uint32_t shards = h->checkpoint->shard_count;

    h->files = berthi_memory_array(h->context, BERTHI_PURPOSE_CHUNKS, shards, sizeof *h->files);
    h->pieces =
        berthi_memory_array(h->context, BERTHI_PURPOSE_CHUNKS, shards, sizeof *h->pieces);
    if (h->files == NULL || h->pieces == NULL)
        return berthi_fail_memory(error, "verifying headers");
    berthi_checkpoint_copy_files(h->checkpoint, h->files);
    for (uint32_t i = 0; i < shards; i++)
        if (wanted[i])
            h->pieces[h->count++] = (berthi_piece){
                .bytes = BERTHI_HEADER_PREFIX + h->checkpoint->shards[i].header_bytes,
                .tag = BERTHI_NO_TAG,
                .file = i,
            };
    return BERTH_OK;
}

static berth_status
read_all(headers *h, const berthi_header_reads *reads, berth_error *error)
{
    const berthi_conveyor_options options = {
        .io = BERTH_IO_BUFFERED, /* they have just been read to be parsed */
        .no_uring = reads->no_uring,
        .readers = 2,
        .workers = 1,
        .ring_bytes = RING_BYTES,
        .wait_ns = reads->wait_ns,
    };
    const berthi_consumer consumer = { .user = h, .consume_in_order = digest_chunk };
    berthi_chunks chunks;
    berth_status status = berthi_chunks_build(h->context, h->pieces, h->count, CHUNK_BYTES, 0,
                                              &chunks, error);

    if (status != BERTH_OK)
        return status;
    status = berthi_conveyor_run(&(berthi_freight){ .context = h->context,
                                                    .job = reads->job,
                                                    .is_uncounted = true,
                                                    .files = h->files,
                                                    .file_count = h->checkpoint->shard_count,
                                                    .chunks = &chunks },
                                 &options, &consumer, NULL, error);
    berthi_chunks_fini(&chunks);
    return status;
}

berth_status
berthi_header_digest(berth_context *context, const berth_checkpoint *checkpoint,
                     const bool *wanted, const berthi_header_reads *reads, uint32_t *crcs,
                     berth_error *error)
{
    const uint32_t shards = checkpoint->shard_count;
    headers h = { .context = context, .checkpoint = checkpoint, .crcs = crcs };
    berth_status status = list(&h, wanted, error);

    if (status == BERTH_OK)
        status = read_all(&h, reads, error);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, h.files, shards * sizeof *h.files);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, h.pieces, shards * sizeof *h.pieces);
    return status;
}
