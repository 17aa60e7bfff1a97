/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h - berth.manifest.json: the crc32 of every header and tensor, and,
 * of a checkpoint that was converted, what it was made of.
 *
 * Owns the format (berth-manifest(5), schema version 1): its writer, its strict
 * reader. Both stream: neither holds a table of the tensors, and the text is
 * the only memory that grows with them. What the digests mean for a checkpoint
 * is verify's business.
 *
 * There is one order: shards by file, tensors by name, bytewise. The reader
 * insists on it, so a repeated name cannot hide.
 */
#ifndef BERTH_LOADER_MANIFEST_H
#define BERTH_LOADER_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "kernels/sys.h"
#include "loader/file.h"
#include "quant/json_text.h"

#define BERTHI_MANIFEST_VERSION 1u
#define BERTHI_MANIFEST_NAME "berth.manifest.json"
#define BERTHI_MANIFEST_LIMIT UINT64_C(1000000000)

/* Texts are borrowed and may hold any character of UTF-8, NUL included. */
typedef struct berthi_manifest_shard {
    const char *file; /* relative to the model, as the index names it */
    uint64_t file_length;
    uint64_t bytes;        /* of the whole file */
    uint32_t header_crc32; /* of its first 8 + N bytes */
} berthi_manifest_shard;

typedef struct berthi_manifest_tensor {
    const char *name;
    uint64_t name_length;
    uint32_t crc32; /* of the bytes as stored */
} berthi_manifest_tensor;

/* A file that the checkpoint was made from. Its tensors are those that were read. */
typedef struct berthi_manifest_source {
    const char *file; /* relative to the source */
    uint64_t file_length;
    uint64_t bytes; /* of the whole file */
} berthi_manifest_source;

/* A file beside the weights that was written with them. */
typedef struct berthi_manifest_file {
    const char *file; /* relative to the model */
    uint64_t file_length;
    uint64_t bytes;
    uint32_t crc32; /* of all of them */
} berthi_manifest_file;

/* ------------------------------------------------------------------ reading */

/*
 * Who is told: the job, each shard, then its tensors, each source, then its
 * tensors, each other file; NULL for what is of no interest. Any status but BERTH_OK ends the
 * reading and is what it returns.
 */
typedef struct berthi_manifest_visitor {
    void *user;
    berth_status (*shard)(void *user, const berthi_manifest_shard *shard,
                          berth_error *error);
    berth_status (*tensor)(void *user, const berthi_manifest_tensor *tensor,
                           berth_error *error);
    berth_status (*job)(void *user, const char *text, uint64_t length,
                        berth_error *error);
    berth_status (*source)(void *user, const berthi_manifest_source *source,
                           berth_error *error);
    berth_status (*source_tensor)(void *user, const berthi_manifest_tensor *tensor,
                                  berth_error *error);
    berth_status (*file)(void *user, const berthi_manifest_file *file,
                         berth_error *error);
} berthi_manifest_visitor;

/*
 * Parses `bytes` of text, which are changed. `file` is for messages. Returns
 * BERTH_OK, MANIFEST_JSON with the position, DUPLICATE, or UNSUPPORTED for a
 * later schema version. What was visited before a failure was well-formed.
 */
berth_status berthi_manifest_parse(char *text, uint64_t bytes, const char *file,
                                   const berthi_manifest_visitor *visitor,
                                   berth_error *error);

/* Where one lies. */
typedef struct berthi_manifest_place {
    int folder;       /* descriptor, or BERTHI_SYS_AT_CWD */
    const char *name; /* below it */
    const char *path; /* for messages */
    berthi_file_links links;
} berthi_manifest_place;

static inline berthi_manifest_place
berthi_manifest_at(const char *path)
{
    return (berthi_manifest_place){ BERTHI_SYS_AT_CWD, path, path, BERTHI_FILE_ANYWHERE };
}

/* Reads the whole file first, then parses it. */
berth_status berthi_manifest_read(berth_context *context, berthi_manifest_place place,
                                  const berthi_manifest_visitor *visitor,
                                  berth_error *error);

/* ------------------------------------------------------------------ writing */

typedef enum berthi_manifest_part {
    BERTHI_MANIFEST_HEAD,
    BERTHI_MANIFEST_SHARDS,
    BERTHI_MANIFEST_SOURCES,
    BERTHI_MANIFEST_FILES
} berthi_manifest_part;

/*
 * Takes the job, shards and tensors, sources and tensors, other files in their
 * order and hands on finished text. After a failure the calls do nothing; end() reports it.
 */
typedef struct berthi_manifest_writer {
    berthi_json_text text;
    berthi_manifest_part part;
    bool has_file;   /* in the current part */
    bool has_tensor; /* in the current file */
} berthi_manifest_writer;

/* `put` NULL: only count. `error` may be NULL and is kept until the end. */
void berthi_manifest_begin(berthi_manifest_writer *writer, berthi_json_put put, void *user,
                           berth_error *error);
/* What identifies the command and its source; UTF-8. Comes first, and need not come. */
void berthi_manifest_add_job(berthi_manifest_writer *writer, const char *text,
                             uint64_t length);
void berthi_manifest_add_shard(berthi_manifest_writer *writer,
                               const berthi_manifest_shard *shard);
void berthi_manifest_add_source(berthi_manifest_writer *writer,
                                const berthi_manifest_source *source);
/* A tensor of the shard or source that was added last. */
void berthi_manifest_add_tensor(berthi_manifest_writer *writer,
                                const berthi_manifest_tensor *tensor);
void berthi_manifest_add_file(berthi_manifest_writer *writer,
                              const berthi_manifest_file *file);
/* *out_bytes (may be NULL): size of the text, which digests do not influence. */
berth_status berthi_manifest_end(berthi_manifest_writer *writer, uint64_t *out_bytes);

#endif
