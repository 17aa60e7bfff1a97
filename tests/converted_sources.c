/* SPDX-License-Identifier: Apache-2.0 */
/* converted_sources.c - a manifest's digests of the source, against its bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "loader/checkpoint.h"
#include "loader/manifest.h"
#include "tests/converted.h"
#include "tests/t.h"

typedef struct listing {
    berth_checkpoint *checkpoint;
    uint32_t shards;  /* seen so far */
    uint64_t tensors; /* the same, of all shards */
    bool is_good;
} listing;

static berth_status
see_source(void *user, const berthi_manifest_source *source, berth_error *error)
{
    listing *const l = user;
    berth_shard shard;

    (void)error;
    l->is_good =
        l->is_good
        && CHECK_EQ(berth_checkpoint_shard(l->checkpoint, l->shards++, &shard), BERTH_OK)
        && CHECK_EQ(source->file_length, strlen(shard.file))
        && CHECK_MEM(source->file, shard.file, strlen(shard.file))
        && CHECK_EQ(source->bytes, shard.file_bytes);
    return BERTH_OK;
}

/* By zlib, of all bytes at once. */
static uint32_t
crc_of(berth_checkpoint *checkpoint, uint64_t number, const berth_tensor *tensor)
{
    uint8_t *const bytes = malloc(tensor->bytes + 1);
    uint32_t crc;

    CHECK_EQ(berth_checkpoint_read(checkpoint, number, 0, UINT64_MAX, bytes,
                                   tensor->bytes, NULL),
             BERTH_OK);
    crc = (uint32_t)crc32_z(0, bytes, tensor->bytes);
    free(bytes);
    return crc;
}

static berth_status
see_tensor(void *user, const berthi_manifest_tensor *entry, berth_error *error)
{
    listing *const l = user;
    const uint64_t number =
        berth_checkpoint_find(l->checkpoint, entry->name, (size_t)entry->name_length);
    berth_tensor tensor;

    (void)error;
    l->tensors++;
    l->is_good =
        l->is_good
        && CHECK_EQ(berth_checkpoint_tensor(l->checkpoint, number, &tensor), BERTH_OK)
        && CHECK_EQ(tensor.shard, l->shards - 1)
        && CHECK_EQ(entry->crc32, crc_of(l->checkpoint, number, &tensor));
    if (!l->is_good)
        T_NOTE("%.*s", (int)entry->name_length, entry->name);
    return BERTH_OK;
}

static bool
has_all(listing *l, const char *manifest)
{
    const berthi_manifest_visitor visitor = { .user = l, .source = see_source,
                                              .source_tensor = see_tensor };
    berth_checkpoint_summary summary;
    berth_error error;

    berth_checkpoint_get(l->checkpoint, &summary);
    return CHECK_EQ(berthi_manifest_read(l->checkpoint->context,
                                         berthi_manifest_at(manifest), &visitor, &error),
                    BERTH_OK)
           && l->is_good && CHECK_EQ(l->shards, summary.shard_count)
           && CHECK_EQ(l->tensors, summary.tensor_count);
}

bool
converted_has_sources(const char *folder, const char *path)
{
    listing l = { .is_good = true };
    berth_context *context;
    berth_error error;
    bool is_good = false;
    char manifest[4096];

    if (!CHECK_EQ(berth_context_create(NULL, &context, &error), BERTH_OK))
        return false;
    snprintf(manifest, sizeof manifest, "%s/berth.manifest.json", folder);
    if (CHECK_EQ(berth_checkpoint_open(context, path, NULL, &l.checkpoint, &error),
                 BERTH_OK)) {
        is_good = has_all(&l, manifest);
        berth_checkpoint_close(l.checkpoint);
    }
    if (!is_good)
        T_NOTE("%s does not tell the digests of %s", manifest, path);
    berth_context_destroy(context);
    return is_good;
}
