/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/shard.h"

#include <errno.h>
#include <string.h>

#include "loader/hub.h"
#include "loader/sniff.h"

#define TARGET_CAPACITY 4096u

/* ------------------------------------------------------------------- opening */

/* Where a link points to, "" for a file that is none. */
static berth_status
note_target(berthi_shard *shard, berthi_location *location, berth_error *error)
{
    char target[TARGET_CAPACITY];
    const int64_t length =
        berthi_sys_readlink(location->folder, shard->name, target, sizeof target);

    shard->target = "";
    if (length < 0)
        return errno == EINVAL ? BERTH_OK /* no link */
                               : berthi_fail_system(error, errno, shard->file.path,
                                                    "reading a link");
    shard->target = berthi_arena_text(&location->arena, target, (uint64_t)length);
    return shard->target != NULL ? BERTH_OK : berthi_fail_memory(error, "a path");
}

/* A file that lies in a cache's `blobs` is named by its digest. */
static berth_status
note_digest(berthi_shard *shard, berthi_location *location, berth_error *error)
{
    char path[TARGET_CAPACITY];
    const int64_t length = berthi_sys_path_of(shard->file.fd, path, sizeof path);
    const char *digest = length < 0 ? NULL : berthi_hub_blob_digest(path);

    shard->blob_sha256 = "";
    if (digest == NULL)
        return BERTH_OK;
    shard->blob_sha256 = berthi_arena_text(&location->arena, digest, BERTHI_HUB_DIGEST);
    return shard->blob_sha256 != NULL ? BERTH_OK : berthi_fail_memory(error, "a path");
}

berth_status
berthi_shard_open(berthi_shard *shard, berthi_location *location, const char *name,
                  berth_reason missing, const char *why, berth_error *error)
{
    berth_status status;

    memset(shard, 0, sizeof *shard);
    shard->name = name;
    status = berthi_location_open(location, name, missing, why, &shard->file, error);
    if (status == BERTH_OK)
        status = note_target(shard, location, error);
    if (status == BERTH_OK)
        status = note_digest(shard, location, error);
    return status;
}

/* --------------------------------------------------------------- strict mode */

/* Tensors that do not begin at a multiple of their element's size in the file. */
static uint64_t
count_unaligned(const berthi_header *header, uint64_t header_bytes)
{
    const uint64_t data = BERTHI_HEADER_PREFIX + header_bytes;
    uint64_t count = 0;

    for (uint64_t i = 0; i < header->entry_count; i++) {
        const uint32_t bits = berth_dtype_bits(header->entries[i].dtype);

        if (bits % 8 == 0 && (data + header->entries[i].begin) % (bits / 8) != 0)
            count++;
    }
    return count;
}

/* One thing that strict mode refuses. */
typedef struct strict_rule {
    bool is_broken;
    const char *what;
} strict_rule;

static berth_status
check_strict(const berthi_shard *shard, const berthi_header *header,
             berthi_findings *findings, berth_error *error)
{
    const strict_rule rules[] = {
        { header->has_leading_space, "white space before the header" },
        { header->has_other_trailing, "white space other than blanks after the header" },
        { shard->header_bytes % 8 != 0, "the header's length is no multiple of 8" },
        { header->has_unknown_member, "members that the format does not know" },
        { header->has_null_metadata, "metadata that is null" },
        { header->is_out_of_order, "tensors not listed in the order of their bytes" },
        { count_unaligned(header, shard->header_bytes) > 0,
          "tensors that do not begin at a multiple of their element's size" },
    };

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!rules[i].is_broken)
            continue;
        berthi_fail(error, BERTH_REASON_STRICT,
                    &(berthi_about){ .file = shard->file.path }, "%s", rules[i].what);
        if (!berthi_findings_can_go_on(findings, error))
            return error->status;
    }
    return BERTH_OK;
}

/* ------------------------------------------------------------------- reading */

/* Replaces a refusal by what the file is, when its first bytes tell. */
static berth_status
explain(const berthi_file *file, berth_error *error)
{
    uint8_t head[BERTHI_SNIFF_BYTES];
    const uint64_t bytes = berthi_min_u64(sizeof head, file->identity.bytes);
    berth_error ignored;

    if (berthi_file_read(file, head, bytes, 0, "reading the file", &ignored) != BERTH_OK)
        return error->status;
    return berthi_sniff_explain(head, bytes, file->identity.bytes, file->path, error);
}

static berth_status
parse_header(const berthi_shard *shard, berth_context *context, berthi_header *header,
             berthi_findings *findings, berth_error *error)
{
    const berthi_file *const file = &shard->file;
    const uint64_t bytes = shard->header_bytes;
    char *text = berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, bytes);
    berth_status status;

    if (text == NULL)
        return berthi_fail_memory(error, "reading a header");
    status = berthi_file_read(file, text, bytes, BERTHI_HEADER_PREFIX,
                              "reading the header", error);
    if (status == BERTH_OK) {
        status = berthi_header_parse(context, text, bytes,
                                     file->identity.bytes - BERTHI_HEADER_PREFIX - bytes,
                                     file->path, header, error);
        if (status != BERTH_OK)
            berthi_findings_keep_name(findings, header->blamed, header->blamed_length);
        if (status == BERTH_EFORMAT)
            status = explain(file, error);
    }
    berthi_memory_free(context, BERTHI_PURPOSE_HEADER, text, bytes);
    return status;
}

static berth_status
read_header(berthi_shard *shard, berth_context *context, berthi_header *header,
            berthi_findings *findings, berth_error *error)
{
    const berthi_file *const file = &shard->file;
    uint8_t prefix[BERTHI_HEADER_PREFIX];
    berth_status status;

    memset(header, 0, sizeof *header);
    status = berthi_file_read(file, prefix,
                              berthi_min_u64(sizeof prefix, file->identity.bytes), 0,
                              "reading the header's length", error);
    if (status != BERTH_OK)
        return status;
    status = berthi_header_length(prefix, file->identity.bytes, file->path,
                                  &shard->header_bytes, error);
    if (status != BERTH_OK)
        return explain(file, error);
    status = parse_header(shard, context, header, findings, error);
    if (status == BERTH_OK)
        status = berthi_file_check(file, error);
    return status;
}

/* Frameworks that store some weights the other way round. */
static void
remark_format(const berthi_shard *shard, const berthi_header *header,
              berthi_findings *findings)
{
    for (uint64_t i = 0; i < header->pair_count; i++) {
        const berthi_pair pair = berthi_header_pair(header, i);

        if (strcmp(pair.key, "format") == 0
            && (strcmp(pair.value, "tf") == 0 || strcmp(pair.value, "flax") == 0))
            berthi_findings_remark(findings, BERTH_SEVERITY_WARNING,
                                   BERTH_REASON_UNSUPPORTED,
                                   &(berthi_about){ .file = shard->file.path },
                                   "written for %s: weights may be transposed",
                                   pair.value);
    }
}

berth_status
berthi_shard_read(berthi_shard *shard, uint32_t number, berthi_table *table,
                  berthi_findings *findings, berth_error *error)
{
    berthi_header header;
    berth_status status = read_header(shard, table->context, &header, findings, error);

    if (status != BERTH_OK)
        goto done;
    if (number == 0)
        remark_format(shard, &header, findings);
    if (findings->is_strict) {
        status = check_strict(shard, &header, findings, error);
        if (status != BERTH_OK)
            goto done;
    }
    shard->first_entry = table->entry_count;
    shard->entry_count = header.entry_count;
    status = berthi_table_take(table, &header, number, &shard->text, error);
    if (status != BERTH_OK)
        goto done;
    shard->pairs = header.pairs;
    shard->pair_count = header.pair_count;
    shard->is_read = true;
    header.pairs = NULL;
done:
    berthi_header_fini(&header);
    return status;
}

void
berthi_shard_close(berthi_shard *shard, berth_context *context)
{
    berthi_file_close(&shard->file);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, shard->pairs,
                       shard->pair_count * sizeof *shard->pairs);
    shard->pairs = NULL;
}
