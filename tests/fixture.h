/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fixture.h - checkpoints for tests and benchmarks, built from a few lines.
 *
 * Everything lies in temporary folders that are removed when the program ends.
 * Texts that are returned live as long as the program. Whatever fails here ends
 * the program: a test without its files has nothing to say.
 *
 * A checkpoint in lines, for fixture_file(), fixture_model() and the builder:
 *
 *     F32 2x3 model.norm.weight       dtype, dims ("-": a scalar), name to the end
 *     F32 4 absmax = 1 0.5            values; the last one is repeated
 *     U8 * state = {"a": 1}           bytes of a text
 *     BF16 8192x28672 big = sparse    a hole instead of a payload
 *     @format pt                      a pair of __metadata__
 *     [model-00001-of-00002.safetensors]    the next shard (fixture_model only)
 *
 * A payload that is not given is fixture_payload() of the tensor's name.
 */
#ifndef BERTH_TESTS_FIXTURE_H
#define BERTH_TESTS_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ------------------------------------------------------------------- folders */

/*
 * Folders lie in memory from here on, where there is any and the caller has not said where:
 * for tests that flush thousands of files, and that ask nothing of a disk. In main(), first.
 */
void fixture_use_memory(void);
/* A new, empty temporary folder. */
const char *fixture_folder(void);
/* printf into a text that lives as long as the program. */
__attribute__((format(printf, 1, 2))) const char *fixture_format(const char *format, ...);

/* Makes the folder and those above it. */
void fixture_make_folder(const char *path);
/* Writes a file; makes the folders above it, replaces what is there. */
void fixture_write(const char *path, const void *bytes, size_t length);
void fixture_text(const char *path, const char *text);
/* The whole file, with a NUL behind it; free() it. `length` may be NULL. */
void *fixture_read(const char *path, size_t *length);
/* They hold the same bytes. */
bool fixture_is_same_file(const char *a, const char *b);
uint64_t fixture_size(const char *path);
/* How much lies in a folder; -1: there is none. */
int fixture_count(const char *folder);
/* Folders that lead to this one, and itself. */
uint64_t fixture_depth(const char *folder);
/*
 * The path of the only file of a folder whose name has `mark`, a regular expression; where there
 * is none, one of nothing.
 */
const char *fixture_find(const char *folder, const char *mark);
/* A symbolic link at `path`; makes the folders above it, replaces what is there. */
void fixture_link(const char *target, const char *path);
void fixture_copy(const char *from, const char *to);
/* Copies a folder and what is below it; links stay links. */
void fixture_copy_folder(const char *from, const char *to);
/* Removes a file, a link, or a folder with everything below it; absent is fine. */
void fixture_remove(const char *path);

/* -------------------------------------------------------------------- damage */

void fixture_truncate(const char *path, uint64_t by);
/* Until what is written to a file gets another time than it has now. */
void fixture_tick(const char *path);
/* Appends `by` zero bytes. */
void fixture_extend(const char *path, uint64_t by);
/* Turns the bits of `mask` in the byte at `offset`. */
void fixture_flip(const char *path, uint64_t offset, unsigned mask);
/* Puts another text, as long, where this one stands first in the file, which has it. */
void fixture_swap(const char *path, const char *from, const char *to);

/* --------------------------------------------------------------- safetensors */

/* Bytes [offset, offset + length) of the payload that a tensor of this name gets. */
void fixture_payload(const char *name, uint64_t offset, void *bytes, size_t length);

/* One file, canonical: sorted, dense, padded. Returns the bytes of its tensors. */
uint64_t fixture_file(const char *path, const char *lines);
/*
 * A folder with the shards and the index that `lines` describe. A first shard
 * called model.safetensors that is the only one gets no index.
 */
void fixture_model(const char *folder, const char *lines);
/*
 * An index as transformers writes it, sorted. `lines`: one "tensor shard" each,
 * the shard being what follows the last blank.
 */
void fixture_index(const char *path, uint64_t total_size, const char *lines);
/* Any bytes as a header, `data_bytes` zeros behind it, N as given. */
void fixture_raw(const char *path, uint64_t n, const char *header, size_t length,
                 uint64_t data_bytes);

/* The same from code, where names or numbers come out of loops. */
typedef struct fixture_builder fixture_builder;
fixture_builder *fixture_begin(void);
/* `data` NULL: the name's payload. All is copied. */
void fixture_add(fixture_builder *builder, const char *name, const char *dtype,
                 uint32_t rank, const uint64_t *shape, const void *data);
/* The same with a hole instead of a payload. */
void fixture_add_sparse(fixture_builder *builder, const char *name, const char *dtype,
                        uint32_t rank, const uint64_t *shape);
void fixture_add_lines(fixture_builder *builder, const char *lines);
/* Weight and statistics of bitsandbytes: rows x columns values. */
void fixture_add_nf4(fixture_builder *builder, const char *name, uint64_t rows,
                     uint64_t columns, bool is_double);
/* `module`.weight, .SCB and .weight_format. */
void fixture_add_int8(fixture_builder *builder, const char *module, uint64_t rows,
                      uint64_t columns);
/* Tensors stay in the order in which they were added. */
void fixture_keep_order(fixture_builder *builder);
/* Writes the file and frees the builder. Returns the bytes of its tensors. */
uint64_t fixture_finish(fixture_builder *builder, const char *path);

/* `name` in `folder`, with `count` tensors that are called NAME.0 and so on. */
void fixture_tensors(const char *folder, const char *name, int count);

/* A config.json that says: bfloat16 llama, head not tied. */
#define FIXTURE_CONFIG                                                          \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"dtype\": \"bfloat16\", "     \
    "\"model_type\": \"llama\", \"tie_word_embeddings\": false}\n"

/* ----------------------------------------------------------------- hub cache */

#define FIXTURE_COMMIT "0123456789abcdef0123456789abcdef01234567"
#define FIXTURE_COMMIT_2 "89abcdef0123456789abcdef0123456789abcdef"

/*
 * Moves the files of `folder` into the hub cache at `cache` as a snapshot of
 * `repository` ("org/name"): contents as blobs (named by SHA-256 for
 * *.safetensors, 40 digits of it for others), links in the snapshot, and the
 * commit as refs/main. Returns the snapshot's path.
 */
const char *fixture_hub(const char *cache, const char *repository, const char *commit,
                        const char *folder);
/* The repository's folder in the cache. */
const char *fixture_hub_repository(const char *cache, const char *repository);
void fixture_hub_ref(const char *cache, const char *repository, const char *name,
                     const char *commit);
/* Writes trees/<commit>.json from what the snapshot holds now. */
void fixture_hub_tree(const char *cache, const char *repository, const char *commit);

/* 64 hex digits and a NUL. */
void fixture_sha256(const void *bytes, size_t length, char *hex);

/* ------------------------------------------------------------------- process */

/* Descriptors this process has open. */
int fixture_open_fds(void);

#endif
