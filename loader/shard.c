/* SPDX-License-Identifier: Apache-2.0 */
/* shard.c - a file opened, its header read and taken into the table; see shard.h. */
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
count_unaligned(const berthi_shard_header *h)
{
    const berthi_header *const header = &h->header;
    const uint64_t data = BERTHI_HEADER_PREFIX + h->bytes;
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
check_strict(const berthi_shard *shard, const berthi_shard_header *h,
             berthi_findings *findings, berth_error *error)
{
    const berthi_header *const header = &h->header;
    const strict_rule rules[] = {
        { header->has_leading_space, "white space before the header" },
        { header->has_other_trailing, "white space other than blanks after the header" },
        { h->bytes % 8 != 0, "the header's length is no multiple of 8" },
        { header->has_unknown_member, "members that the format does not know" },
        { header->has_null_metadata, "metadata that is null" },
        { header->is_out_of_order, "tensors not listed in the order of their bytes" },
        { count_unaligned(h) > 0,
          "tensors that do not begin at a multiple of their element's size" },
    };

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!rules[i].is_broken)
            continue;
        berthi_fail(error, BERTH_REASON_STRICT,
                    &(berthi_about){ .file = shard->file.path }, "%s", rules[i].what);
        if (!berthi_findings_note(findings, error))
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

/* The length that the file begins with. */
static berth_status
read_length(const berthi_file *file, uint64_t *out_bytes, berth_error *error)
{
    uint8_t prefix[BERTHI_HEADER_PREFIX];
    berth_status status;

    status = berthi_file_read(file, prefix,
                              berthi_min_u64(sizeof prefix, file->identity.bytes), 0,
                              "reading the header's length", error);
    if (status != BERTH_OK)
        return status;
    status = berthi_header_length(prefix, file->identity.bytes, file->path, out_bytes,
                                  error);
    return status == BERTH_OK ? BERTH_OK : explain(file, error);
}

/* `findings` NULL: nobody will tell what is wrong. */
static berth_status
parse_header(const berthi_shard *shard, berth_context *context, berthi_shard_header *h,
             berthi_findings *findings, berth_error *error)
{
    const berthi_file *const file = &shard->file;
    const uint64_t bytes = h->bytes;
    char *text = berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, bytes);
    berth_status status;

    if (text == NULL)
        return berthi_fail_memory(error, "reading a header");
    status = berthi_file_read(file, text, bytes, BERTHI_HEADER_PREFIX,
                              "reading the header", error);
    if (status == BERTH_OK) {
        status = berthi_header_parse_listed(
            context, text, bytes, file->identity.bytes - BERTHI_HEADER_PREFIX - bytes,
            &shard->listed, file->path, &h->header, error);
        if (status != BERTH_OK && findings != NULL)
            berthi_findings_keep_name(findings, h->header.blamed.name, h->header.blamed.length);
        if (status == BERTH_EFORMAT)
            status = explain(file, error);
    }
    berthi_memory_free(context, BERTHI_PURPOSE_HEADER, text, bytes);
    if (status == BERTH_OK)
        status = berthi_file_check(file, error);
    if (status != BERTH_OK) {
        berthi_header_fini(&h->header);
        h->header.blamed.name = NULL; /* it was in `text` */
    }
    return status;
}

berth_status
berthi_shard_read(const berthi_shard *shard, berth_context *context,
                  berthi_shard_header *out, berthi_findings *findings, berth_error *error)
{
    berth_status status;

    memset(out, 0, sizeof *out);
    status = read_length(&shard->file, &out->bytes, error);
    if (status == BERTH_OK)
        status = parse_header(shard, context, out, findings, error);
    return status;
}

bool
berthi_shard_can_read(const berthi_shard *shard, berth_context *context, uint64_t limit,
                      berthi_shard_header *out)
{
    berth_error ignored;

    memset(out, 0, sizeof *out);
    return read_length(&shard->file, &out->bytes, &ignored) == BERTH_OK
           && out->bytes <= limit
           && parse_header(shard, context, out, NULL, &ignored) == BERTH_OK;
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
berthi_shard_check(const berthi_shard *shard, uint32_t number,
                   const berthi_shard_header *h, berthi_findings *findings,
                   berth_error *error)
{
    if (number == 0)
        remark_format(shard, &h->header, findings);
    return findings->is_strict ? check_strict(shard, h, findings, error) : BERTH_OK;
}

berth_status
berthi_shard_take(berthi_shard *shard, uint32_t number, berthi_shard_header *h,
                  berthi_table *table, berth_error *error)
{
    const uint64_t first_entry = table->entry_count;
    const uint64_t entry_count = h->header.entry_count;
    const berth_status status =
        berthi_table_take(table, &h->header, number, &shard->text, error);

    if (status != BERTH_OK)
        return status;
    shard->header_bytes = h->bytes;
    shard->first_entry = first_entry;
    shard->entry_count = entry_count;
    shard->pairs = h->header.pairs;
    shard->pair_count = h->header.pair_count;
    shard->is_as_listed = h->header.is_as_listed;
    shard->is_read = true;
    h->header.pairs = NULL;
    return BERTH_OK;
}

void
berthi_shard_close(berthi_shard *shard, berth_context *context)
{
    berthi_file_close(&shard->file);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, shard->pairs,
                       shard->pair_count * sizeof *shard->pairs);
    shard->pairs = NULL;
}
