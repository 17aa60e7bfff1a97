/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_layout_golden.c - headers and indexes that the real libraries wrote,
 * made again byte for byte from their own tensors. Headers of two sharded models
 * (tests/data/layout) are at hand everywhere.
 */
#define _XOPEN_SOURCE 700

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/index_write.h"
#include "loader/safetensors.h"
#include "tests/fixture.h"
#include "tests/laid.h"
#include "tests/t.h"

#define GOLDEN "../shared/golden/quant"
#define TRIMMED "tests/data/layout"
#define INDEX "model.safetensors.index.json"
#define SHARDS 16u

static berth_context *context;

/* ------------------------------------------------------------- files and tensors */

/* The first 8 + N bytes of a file, and what they say. */
typedef struct recorded {
    char *bytes;
    uint64_t length;
    berthi_header header;
    berthi_layout_pair pairs[4];
    uint32_t pair_count;
} recorded;

/* Tensors of some headers, borrowed from them. */
typedef struct tensors {
    berthi_layout_tensor *list;
    uint64_t *shapes; /* BERTHI_MAX_RANK each */
    uint64_t count;
} tensors;

/* The file may end behind its header: what the data would need is taken for it. */
static bool
is_read(recorded *r, const char *path)
{
    size_t size;
    char *const file = fixture_read(path, &size);
    char *copy;
    berth_error error;
    berth_status status;

    memset(r, 0, sizeof *r);
    if (!CHECK_GE(size, 16))
        return false;
    for (unsigned i = 0; i < 8; i++)
        r->length |= (uint64_t)(unsigned char)file[i] << 8 * i;
    r->length += 8;
    r->bytes = file;
    if (!CHECK_LE(r->length, size))
        return false;
    copy = malloc(r->length);
    memcpy(copy, file, r->length);
    status = berthi_header_parse(context, copy + 8, r->length - 8, UINT64_MAX, path,
                                 &r->header, &error);
    CHECK_EQ(error.reason, BERTH_REASON_COVERAGE);
    CHECK(size == r->length || size == r->length + error.expected);
    memcpy(copy, file, r->length);
    status = berthi_header_parse(context, copy + 8, r->length - 8, error.expected, path,
                                 &r->header, &error);
    free(copy);
    for (; status == BERTH_OK && r->pair_count < r->header.pair_count; r->pair_count++) {
        const berthi_pair pair = berthi_header_pair(&r->header, r->pair_count);

        r->pairs[r->pair_count] = (berthi_layout_pair){ pair.key, pair.value };
    }
    return CHECK_EQ(status, BERTH_OK);
}

static void
forget(recorded *r)
{
    berthi_header_fini(&r->header);
    free(r->bytes);
}

/* Names are cut into two pieces here and there; the order is turned round. */
static tensors
collect(const recorded *records, uint32_t record_count)
{
    tensors t = { .count = 0 };
    uint64_t at = 0;

    for (uint32_t i = 0; i < record_count; i++)
        t.count += records[i].header.entry_count;
    t.list = calloc(t.count + 1, sizeof *t.list);
    t.shapes = calloc(t.count + 1, BERTHI_MAX_RANK * sizeof *t.shapes);
    for (uint32_t i = record_count; i-- > 0;)
        for (uint64_t j = records[i].header.entry_count; j-- > 0; at++) {
            const berthi_header *const header = &records[i].header;
            const berthi_entry *const entry = &header->entries[j];
            const char *const name = berthi_entry_name(header->text, entry);
            const uint32_t cut = (uint32_t)(at * 7 % (entry->name_length + 1));

            berthi_entry_shape(header->text, entry, t.shapes + at * BERTHI_MAX_RANK);
            t.list[at] = (berthi_layout_tensor){
                .name = name,
                .name_length = cut,
                .suffix = name + cut,
                .shape = t.shapes + at * BERTHI_MAX_RANK,
                .rank = entry->rank,
                .dtype = entry->dtype,
                .bytes = entry->end - entry->begin,
            };
        }
    return t;
}

static void
release(tensors *t)
{
    free(t->list);
    free(t->shapes);
}

static void
check_header(const berthi_layout *layout, uint32_t shard, const recorded *r,
             const char *path)
{
    laid_text text = { 0 };

    CHECK_EQ(berthi_layout_write_header(layout, shard, laid_put, &text, NULL), BERTH_OK);
    if (!CHECK_EQ(text.length, r->length) || !CHECK_MEM(text.bytes, r->bytes, r->length))
        T_NOTE("%s", path);
    free(text.bytes);
}

/* ------------------------------------------------------------------- single files */

static uint64_t file_count;

static int
check_file(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
    const char *const ending = strrchr(path, '.');
    recorded r;

    (void)stat;
    (void)place;
    if (kind != FTW_F || ending == NULL
        || (strcmp(ending, ".safetensors") != 0 && strcmp(ending, ".header") != 0))
        return 0;
    if (is_read(&r, path)) {
        tensors t = collect(&r, 1);
        const berthi_layout_options options = {
            .pairs = r.pair_count > 0 ? r.pairs : NULL, .pair_count = r.pair_count
        };
        berthi_layout *layout;

        if (CHECK_EQ(berthi_layout_create(context, t.list, t.count, &options, &layout,
                                          NULL),
                     BERTH_OK)) {
            CHECK_EQ(berthi_layout_shard_count(layout), 1);
            check_header(layout, 0, &r, path);
            CHECK_STR(laid_header_problem(context, layout, 0, &options), NULL);
            file_count++;
        }
        berthi_layout_destroy(layout);
        release(&t);
    }
    forget(&r);
    return 0;
}

static void
test_files(void)
{
    if (access(GOLDEN "/README.md", R_OK) != 0)
        T_SKIP("no golden data beside the checkout");
    file_count = 0;
    CHECK_EQ(nftw(GOLDEN, check_file, 16, FTW_PHYS), 0);
    CHECK_GE(file_count, 60);
    T_NOTE("%llu golden headers made again", (unsigned long long)file_count);
}

/* What comes with the tests: the reference wrote it, too. */
static void
test_files_at_hand(void)
{
    file_count = 0;
    CHECK_EQ(nftw("tests/data", check_file, 16, FTW_PHYS), 0);
    CHECK_GE(file_count, 15);
}

/* ----------------------------------------------------------------- sharded models */

static void
check_index(const berthi_layout *layout, const char *folder)
{
    char *const expected = fixture_read(fixture_format("%s/" INDEX, folder), NULL);
    const char *const parameters = strstr(expected, "\"total_parameters\": ");
    laid_text text = { 0 };

    if (CHECK(parameters != NULL)) {
        CHECK_EQ(berthi_index_write(layout, strtoull(parameters + 20, NULL, 10), laid_put,
                                    &text, NULL, NULL),
                 BERTH_OK);
        CHECK_STR(text.bytes, expected);
    }
    free(text.bytes);
    free(expected);
}

typedef struct model {
    recorded records[SHARDS];
    char paths[SHARDS][128];
    uint32_t shard_count;
    tensors all; /* in no useful order */
} model;

static bool
is_model_read(model *m, const char *folder, const char *ending, uint32_t shard_count)
{
    memset(m, 0, sizeof *m);
    for (; m->shard_count < shard_count; m->shard_count++) {
        const uint32_t i = m->shard_count;
        char name[BERTHI_LAYOUT_NAME];

        berthi_layout_shard_name(i, shard_count, name);
        name[strlen(name) - strlen(".safetensors")] = '\0';
        snprintf(m->paths[i], sizeof m->paths[i], "%s/%s%s", folder, name, ending);
        if (!is_read(&m->records[i], m->paths[i])) {
            forget(&m->records[i]);
            return false;
        }
    }
    m->all = collect(m->records, shard_count);
    return true;
}

static void
forget_model(model *m)
{
    release(&m->all);
    for (uint32_t i = 0; i < m->shard_count; i++)
        forget(&m->records[i]);
}

/* All tensors in one heap, divided anew: every header and the index are the same. */
static void
check_model(const char *folder, const char *ending)
{
    const uint64_t limit = 40000;
    const berthi_layout_options options = { .max_shard_bytes = limit,
                                            .pairs = berthi_layout_format,
                                            .pair_count = 1 };
    berthi_layout *layout = NULL;
    model m;

    if (is_model_read(&m, folder, ending, 4)
        && CHECK_EQ(berthi_layout_create(context, m.all.list, m.all.count, &options,
                                         &layout, NULL),
                    BERTH_OK)
        && CHECK_EQ(berthi_layout_shard_count(layout), m.shard_count)) {
        CHECK_STR(laid_problem(layout, limit), NULL);
        for (uint32_t i = 0; i < m.shard_count; i++)
            check_header(layout, i, &m.records[i], m.paths[i]);
        check_index(layout, folder);
    }
    berthi_layout_destroy(layout);
    forget_model(&m);
}

/*
 * Here shards were filled by storages, of which w1, w2 and w3 of all experts of
 * a layer have one each, and in the order of the names that these have in
 * memory. So the tensors are put into the recorded shards; the index is the same.
 */
static void
check_mixtral(const char *folder, const char *ending)
{
    const berthi_layout_options options = { .max_shard_bytes = 24000,
                                            .pairs = berthi_layout_format,
                                            .pair_count = 1 };
    berthi_layout *layout = NULL;
    model m;

    if (is_model_read(&m, folder, ending, 9)
        && CHECK_EQ(berthi_layout_create(context, m.all.list, m.all.count, &options,
                                         &layout, NULL),
                    BERTH_OK)
        && CHECK_EQ(berthi_layout_shard_count(layout), m.shard_count)) {
        uint64_t at = 0;

        for (uint32_t i = m.shard_count; i-- > 0;)
            for (uint64_t j = 0; j < m.records[i].header.entry_count; j++)
                m.all.list[at++].shard = i;
        check_index(layout, folder);
    }
    berthi_layout_destroy(layout);
    forget_model(&m);
}

static void
test_sharded(void)
{
    check_model(TRIMMED "/llama_nf4_dq", ".header");
    check_mixtral(TRIMMED "/mixtral", ".header");
}

static void
test_sharded_golden(void)
{
    if (access(GOLDEN "/README.md", R_OK) != 0)
        T_SKIP("no golden data beside the checkout");
    check_model(GOLDEN "/llama/nf4_dq_sharded", ".safetensors");
    check_mixtral(GOLDEN "/mixtral/source", ".safetensors");
}

int
main(int argc, char **argv)
{
    int result;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_files_at_hand);
    T_RUN(test_sharded);
    T_RUN(test_files);
    T_RUN(test_sharded_golden);
    result = t_end();
    berth_context_destroy(context);
    return result;
}
