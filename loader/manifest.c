/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.c - reads and writes the manifest; berth-manifest(5) describes it. */
#include "loader/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/digits.h"
#include "kernels/utf8.h"
#include "loader/file.h"
#include "loader/safetensors.h"
#include "quant/scan.h"

/* ------------------------------------------------------------------ reading */

typedef struct reader {
    berthi_scan scan;
    const char *file;
    const berthi_manifest_visitor *visitor;
    berth_error *error;
    berth_status status;     /* of what the scanner does not know about */
    berthi_scan_text shard;  /* the one before, or source, for the order; */
    berthi_scan_text tensor; /* no bytes: there was none */
} reader;

/* The functions below return false after a failure: the scanner's or this one. */
static bool
stop(reader *r, berth_reason reason, const berthi_scan_text *name, const char *message)
{
    berthi_about about = {
        .file = r->file, .has = BERTH_HAS_POSITION, .position = r->scan.position
    };

    if (name != NULL) {
        about.tensor = name->bytes;
        about.tensor_length = (size_t)name->length;
    }
    r->status = berthi_fail(r->error, reason, &about, "%s", message);
    return false;
}

/*
 * Schema 1 has one order of members, so there is one that can come next, or
 * `optional` before it, if that is not NULL: *out_is_optional.
 */
static bool
can_read_either(reader *r, const char *optional, const char *key, bool *out_is_optional)
{
    const berthi_about about = {
        .file = r->file, .has = BERTH_HAS_POSITION, .position = r->scan.position
    };
    berthi_scan_text found;

    *out_is_optional = false;
    if (berthi_scan_has_next_member(&r->scan, &found)) {
        *out_is_optional = optional != NULL && berthi_scan_text_is(&found, optional);
        if (*out_is_optional || berthi_scan_text_is(&found, key))
            return true;
    } else if (r->scan.problem != NULL) {
        return false;
    }
    r->status = berthi_fail(r->error, BERTH_REASON_MANIFEST_JSON, &about,
                            "the next member should be \"%s\"", key);
    return false;
}

static bool
can_read_key(reader *r, const char *key)
{
    bool is_optional;

    return can_read_either(r, NULL, key, &is_optional);
}

static bool
is_at_end(reader *r)
{
    const uint64_t position = r->scan.position;
    berthi_scan_text found;

    if (!berthi_scan_has_next_member(&r->scan, &found))
        return r->scan.problem == NULL;
    r->scan.position = position;
    return stop(r, BERTH_REASON_MANIFEST_JSON, NULL, "the next member has no meaning");
}

/* A string of exactly eight digits of lower case. */
static bool
can_read_crc32(reader *r, uint32_t *out)
{
    berthi_scan_text text;

    if (!berthi_scan_can_read_string(&r->scan, &text))
        return false;
    if (text.length != BERTHI_HEX32_DIGITS)
        return stop(r, BERTH_REASON_MANIFEST_JSON, NULL, "a crc32 without eight digits");
    if (!berthi_hex32_can_parse(text.bytes, out))
        return stop(r, BERTH_REASON_MANIFEST_JSON, NULL,
                    "a crc32 with another character than 0-9, a-f");
    return true;
}

/* Names ascend strictly; `before` becomes `name`. */
static bool
is_in_order(reader *r, berthi_scan_text *before, const berthi_scan_text *name)
{
    if (before->bytes != NULL) {
        const int order = berthi_name_compare(before->bytes, before->length, name->bytes,
                                              name->length);

        if (order == 0)
            return stop(r, BERTH_REASON_DUPLICATE, name, "named twice");
        if (order > 0)
            return stop(r, BERTH_REASON_MANIFEST_JSON, name,
                        "not in bytewise order of names");
    }
    *before = *name;
    return true;
}

static bool
can_read_tensors(reader *r,
                 berth_status (*tell)(void *user, const berthi_manifest_tensor *tensor,
                                      berth_error *error))
{
    berthi_scan_text name;

    r->tensor = (berthi_scan_text){ .bytes = NULL };
    while (berthi_scan_has_next_member(&r->scan, &name)) {
        berthi_manifest_tensor tensor = { name.bytes, name.length, 0 };

        if (!can_read_crc32(r, &tensor.crc32) || !is_in_order(r, &r->tensor, &name))
            return false;
        if (tell != NULL)
            r->status = tell(r->visitor->user, &tensor, r->error);
        if (r->status != BERTH_OK)
            return false;
    }
    return r->scan.problem == NULL;
}

/* What shards, sources and other files begin with. */
static bool
can_read_file(reader *r, berthi_scan_text *out_file, uint64_t *out_bytes)
{
    return berthi_scan_can_enter_object(&r->scan) && can_read_key(r, "file")
           && berthi_scan_can_read_string(&r->scan, out_file)
           && is_in_order(r, &r->shard, out_file) && can_read_key(r, "bytes")
           && berthi_scan_can_read_unsigned(&r->scan, out_bytes);
}

static bool
can_read_shard(reader *r)
{
    berthi_manifest_shard shard;
    berthi_scan_text file;

    if (!can_read_file(r, &file, &shard.bytes) || !can_read_key(r, "header_crc32")
        || !can_read_crc32(r, &shard.header_crc32) || !can_read_key(r, "tensor_crc32")
        || !berthi_scan_can_enter_object(&r->scan))
        return false;
    shard.file = file.bytes;
    shard.file_length = file.length;
    if (r->visitor->shard != NULL)
        r->status = r->visitor->shard(r->visitor->user, &shard, r->error);
    return r->status == BERTH_OK && can_read_tensors(r, r->visitor->tensor)
           && is_at_end(r);
}

static bool
can_read_source(reader *r)
{
    berthi_manifest_source source;
    berthi_scan_text file;

    if (!can_read_file(r, &file, &source.bytes) || !can_read_key(r, "tensor_crc32")
        || !berthi_scan_can_enter_object(&r->scan))
        return false;
    source.file = file.bytes;
    source.file_length = file.length;
    if (r->visitor->source != NULL)
        r->status = r->visitor->source(r->visitor->user, &source, r->error);
    return r->status == BERTH_OK && can_read_tensors(r, r->visitor->source_tensor)
           && is_at_end(r);
}

/* What is neither shard nor source. */
static bool
can_read_other(reader *r)
{
    berthi_manifest_file other;
    berthi_scan_text file;

    if (!can_read_file(r, &file, &other.bytes) || !can_read_key(r, "crc32")
        || !can_read_crc32(r, &other.crc32))
        return false;
    other.file = file.bytes;
    other.file_length = file.length;
    if (r->visitor->file != NULL)
        r->status = r->visitor->file(r->visitor->user, &other, r->error);
    return r->status == BERTH_OK && is_at_end(r);
}

static bool
can_read_job(reader *r)
{
    berthi_scan_text text;

    if (!berthi_scan_can_read_string(&r->scan, &text))
        return false;
    if (r->visitor->job != NULL)
        r->status = r->visitor->job(r->visitor->user, text.bytes, text.length, r->error);
    return r->status == BERTH_OK;
}

/* Shards, sources or other files; the array comes next. */
static bool
can_read_files(reader *r, bool (*can_read_one)(reader *r))
{
    r->shard = (berthi_scan_text){ .bytes = NULL };
    if (!berthi_scan_can_enter_array(&r->scan))
        return false;
    while (berthi_scan_has_next_element(&r->scan))
        if (!can_read_one(r))
            return false;
    return r->scan.problem == NULL;
}

/* A later version may mean anything by its members: nothing of it is used. */
static bool
can_read_version(reader *r)
{
    uint64_t version;

    if (!can_read_key(r, "schema_version")
        || !berthi_scan_can_read_unsigned(&r->scan, &version))
        return false;
    if (version == 0)
        return stop(r, BERTH_REASON_MANIFEST_JSON, NULL, "there is no schema version 0");
    if (version > BERTHI_MANIFEST_VERSION) {
        const berthi_about about = {
            .file = r->file,
            .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL,
            .expected = BERTHI_MANIFEST_VERSION,
            .actual = version,
        };

        r->status = berthi_fail(r->error, BERTH_REASON_UNSUPPORTED, &about,
                                "schema_version %" PRIu64 " needs a newer berth", version);
        return false;
    }
    return true;
}

/* The last members, as far as they are there, and the end. */
static bool
can_read_rest(reader *r)
{
    static const struct {
        const char *key;
        bool (*can_read_one)(reader *r);
    } parts[] = { { "sources", can_read_source }, { "files", can_read_other } };
    static const size_t count = sizeof parts / sizeof parts[0];
    uint64_t position = r->scan.position;
    berthi_scan_text found;

    for (size_t i = 0; berthi_scan_has_next_member(&r->scan, &found); i++) {
        while (i < count && !berthi_scan_text_is(&found, parts[i].key))
            i++;
        if (i == count) {
            r->scan.position = position;
            return stop(r, BERTH_REASON_MANIFEST_JSON, NULL,
                        "the next member has no meaning");
        }
        if (!can_read_files(r, parts[i].can_read_one))
            return false;
        position = r->scan.position;
    }
    return r->scan.problem == NULL;
}

static bool
can_read_document(reader *r)
{
    berthi_scan_text writer;
    bool is_job;

    if (!berthi_scan_can_enter_object(&r->scan) || !can_read_version(r)
        || !can_read_key(r, "writer") || !berthi_scan_can_read_string(&r->scan, &writer)
        || !can_read_either(r, "job", "shards", &is_job)
        || (is_job && (!can_read_job(r) || !can_read_key(r, "shards"))))
        return false;
    return can_read_files(r, can_read_shard) && can_read_rest(r)
           && berthi_scan_can_finish(&r->scan);
}

berth_status
berthi_manifest_parse(char *text, uint64_t bytes, const char *file,
                      const berthi_manifest_visitor *visitor, berth_error *error)
{
    const size_t valid = berthi_utf8_check((const unsigned char *)text, (size_t)bytes);
    reader r = { .file = file, .visitor = visitor, .error = error, .status = BERTH_OK };

    berthi_scan_init(&r.scan, text, bytes, 0);
    if (valid < bytes) {
        r.scan.position = valid;
        stop(&r, BERTH_REASON_MANIFEST_JSON, NULL, "not UTF-8");
    } else if (!can_read_document(&r) && r.status == BERTH_OK) {
        r.scan.position = r.scan.problem_at;
        stop(&r, BERTH_REASON_MANIFEST_JSON, NULL, r.scan.problem);
    }
    return r.status;
}

static berth_status
read_text(const berthi_file *file, char *text, berth_error *error)
{
    const uint64_t bytes = file->identity.bytes;
    berth_status status = berthi_file_read(file, text, bytes, 0, "reading the manifest",
                                           error);

    if (status == BERTH_OK)
        status = berthi_file_check(file, error);
    return status;
}

berth_status
berthi_manifest_read(berth_context *context, berthi_manifest_place place,
                     const berthi_manifest_visitor *visitor, berth_error *error)
{
    berthi_file file;
    char *text = NULL;
    uint64_t bytes;
    berth_status status = berthi_file_open(&file, place.folder, place.name, place.path,
                                           place.links, error);

    if (status != BERTH_OK)
        return status;
    bytes = file.identity.bytes;
    if (bytes > BERTHI_MANIFEST_LIMIT) {
        const berthi_about about = { .file = place.path,
                                     .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL,
                                     .expected = BERTHI_MANIFEST_LIMIT,
                                     .actual = bytes };

        status = berthi_fail(error, BERTH_REASON_MANIFEST_JSON, &about,
                             "larger than any manifest");
        goto done;
    }
    text = berthi_memory_alloc(context, BERTHI_PURPOSE_DOCUMENT, bytes);
    if (text == NULL) {
        status = berthi_fail_memory(error, "reading the manifest");
        goto done;
    }
    status = read_text(&file, text, error);
    if (status == BERTH_OK)
        status = berthi_manifest_parse(text, bytes, place.path, visitor, error);

done:
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, text, bytes);
    berthi_file_close(&file);
    return status;
}

/* ------------------------------------------------------------------ writing */

static void
add_text(berthi_manifest_writer *w, const char *text)
{
    berthi_json_text_add_words(&w->text, text);
}

/* As in the headers that safetensors writes. */
static void
add_string(berthi_manifest_writer *w, const char *bytes, uint64_t length)
{
    berthi_json_text_add_string(&w->text, bytes, length, BERTHI_JSON_RAW);
}

static void
close_file(berthi_manifest_writer *w)
{
    if (w->has_file && w->part != BERTHI_MANIFEST_FILES)
        add_text(w, w->has_tensor ? "\n}}" : "}}");
}

/* Ends the part before and begins this one. */
static void
enter_part(berthi_manifest_writer *w, berthi_manifest_part part)
{
    close_file(w);
    if (w->part != BERTHI_MANIFEST_HEAD)
        add_text(w, w->has_file ? "\n]" : "]");
    add_text(w, part == BERTHI_MANIFEST_SHARDS    ? ",\n\"shards\": ["
                : part == BERTHI_MANIFEST_SOURCES ? ",\n\"sources\": ["
                                                  : ",\n\"files\": [");
    w->part = part;
    w->has_file = false;
}

void
berthi_manifest_begin(berthi_manifest_writer *writer, berthi_json_put put, void *user,
                      berth_error *error)
{
    writer->part = BERTHI_MANIFEST_HEAD;
    writer->has_file = false;
    berthi_json_text_begin(&writer->text, put, user, error);
    add_text(writer, "{\n\"schema_version\": 1,\n\"writer\": \"berth ");
    add_text(writer, berth_version());
    add_text(writer, "\"");
}

void
berthi_manifest_add_job(berthi_manifest_writer *writer, const char *text, uint64_t length)
{
    add_text(writer, ",\n\"job\": ");
    add_string(writer, text, length);
}

/* A file of this part up to its size. */
static void
begin_file(berthi_manifest_writer *writer, berthi_manifest_part part, const char *file,
           uint64_t file_length, uint64_t bytes)
{
    if (writer->part == BERTHI_MANIFEST_HEAD && part != BERTHI_MANIFEST_SHARDS)
        enter_part(writer, BERTHI_MANIFEST_SHARDS); /* which never fails to be there */
    if (writer->part != part)
        enter_part(writer, part);
    else
        close_file(writer);
    add_text(writer, writer->has_file ? ",\n{\"file\": " : "\n{\"file\": ");
    add_string(writer, file, file_length);
    add_text(writer, ", \"bytes\": ");
    berthi_json_text_add_number(&writer->text, bytes);
    writer->has_file = true;
    writer->has_tensor = false;
}

void
berthi_manifest_add_shard(berthi_manifest_writer *writer,
                          const berthi_manifest_shard *shard)
{
    char digits[64];

    begin_file(writer, BERTHI_MANIFEST_SHARDS, shard->file, shard->file_length,
               shard->bytes);
    snprintf(digits, sizeof digits,
             ", \"header_crc32\": \"%08" PRIx32 "\", \"tensor_crc32\": {",
             shard->header_crc32);
    add_text(writer, digits);
}

void
berthi_manifest_add_source(berthi_manifest_writer *writer,
                           const berthi_manifest_source *source)
{
    begin_file(writer, BERTHI_MANIFEST_SOURCES, source->file, source->file_length,
               source->bytes);
    add_text(writer, ", \"tensor_crc32\": {");
}

void
berthi_manifest_add_file(berthi_manifest_writer *writer, const berthi_manifest_file *file)
{
    char digits[32];

    begin_file(writer, BERTHI_MANIFEST_FILES, file->file, file->file_length, file->bytes);
    snprintf(digits, sizeof digits, ", \"crc32\": \"%08" PRIx32 "\"}", file->crc32);
    add_text(writer, digits);
}

void
berthi_manifest_add_tensor(berthi_manifest_writer *writer,
                           const berthi_manifest_tensor *tensor)
{
    char digits[16];

    add_text(writer, writer->has_tensor ? ",\n" : "\n");
    add_string(writer, tensor->name, tensor->name_length);
    snprintf(digits, sizeof digits, ": \"%08" PRIx32 "\"", tensor->crc32);
    add_text(writer, digits);
    writer->has_tensor = true;
}

berth_status
berthi_manifest_end(berthi_manifest_writer *writer, uint64_t *out_bytes)
{
    if (writer->part == BERTHI_MANIFEST_HEAD)
        enter_part(writer, BERTHI_MANIFEST_SHARDS);
    close_file(writer);
    add_text(writer, writer->has_file ? "\n]\n}\n" : "]\n}\n");
    return berthi_json_text_end(&writer->text, out_bytes);
}
