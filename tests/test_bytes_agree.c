/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bytes_agree.c - what `berth estimate` says of weights and what a plan gives them
 * is the same to the byte: every tensor's parts as they are stored, less those that have
 * no place in memory (tables, state), each from a multiple of 256 on. Where config.json says
 * all of a model, an estimate from it alone says the same.
 */
#define _XOPEN_SOURCE 700

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/berth.h"
#include "placement/plan.h"
#include "quant/stored.h"
#include "tests/fixture.h"
#include "tests/placed.h"
#include "tests/planned.h"
#include "tests/t.h"

#define GOLDEN "../shared/golden/quant"
/* Recorded models of more tensors say nothing that others do not. */
#define TENSOR_LIMIT 700

static berth_context *context;

/* As both are asked for. */
typedef struct encoding {
    const char *name; /* NULL: as stored */
    int32_t type;
    int32_t double_quant;
    uint32_t block_size;
} encoding;

static const encoding encodings[] = {
    { NULL, BERTH_ENCODING_NATIVE, 0, 0 },  { "nf4", BERTH_ENCODING_NF4, 0, 0 },
    { "nf4", BERTH_ENCODING_NF4, 1, 0 },    { "fp4", BERTH_ENCODING_FP4, 1, 256 },
    { "fp4", BERTH_ENCODING_FP4, 0, 4096 }, { "int8", BERTH_ENCODING_INT8, 0, 0 },
};

/* ------------------------------------------------------------- what is added up */

typedef struct sums {
    uint64_t stored;  /* tensors in files */
    uint64_t dropped; /* of it: what no berth holds */
    uint64_t padding; /* between the parts of berths */
    uint64_t berths;
} sums;

static uint64_t
rounded(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static bool
is_kept(berthi_role role)
{
    return role != BERTHI_ROLE_MAP && role != BERTHI_ROLE_MAP2 && role != BERTHI_ROLE_STATE
           && role != BERTHI_ROLE_ROW_FORMAT;
}

static void
add_part(sums *s, uint64_t bytes, bool has_place)
{
    s->stored += bytes;
    s->dropped += has_place ? 0 : bytes;
    s->padding += has_place ? rounded(bytes) - bytes : 0;
}

/* A weight that is stored anew: by the list of its tensors. */
static void
add_listed(sums *s, const berthi_berth *berth, const berth_plan_summary *plan,
           const uint64_t *shape, uint32_t rank)
{
    const berthi_storage storage = { .encoding = berth->encoding,
                                     .dtype = berth->dtype,
                                     .storage = BERTH_U8,
                                     .block_size = plan->block_size,
                                     .is_double = plan->double_quant != 0 };
    berthi_stored parts[BERTHI_STORED_MAX];
    const uint32_t count = berthi_stored_list(&storage, shape, rank, parts);

    CHECK_GT(count, 0);
    for (uint32_t i = 0; i < count; i++)
        add_part(s, parts[i].bytes, is_kept(parts[i].role));
}

static bool
has_end(const char *name, const char *end)
{
    const size_t length = strlen(name);
    const size_t size = strlen(end);

    return length >= size && strcmp(name + length - size, end) == 0;
}

/* A weight that stays as it was quantized: by its tensors in the files. */
static void
add_quantized(sums *s, const berth_checkpoint *checkpoint, uint64_t index,
              const berth_quantized *record)
{
    static const char *const placeless[] = { "quant_map", "weight_format" };
    berth_tensor tensor;

    CHECK_EQ(berth_checkpoint_tensor(checkpoint, index, &tensor), BERTH_OK);
    add_part(s, tensor.bytes, true);
    for (uint32_t i = 0; i < record->companion_count; i++) {
        bool has_place = true;

        CHECK_EQ(berth_checkpoint_tensor(checkpoint, record->companions[i], &tensor),
                 BERTH_OK);
        for (size_t k = 0; k < sizeof placeless / sizeof *placeless; k++)
            has_place = has_place && !has_end(tensor.name, placeless[k]);
        add_part(s, tensor.bytes,
                 has_place && strstr(tensor.name, ".quant_state.") == NULL);
    }
}

/* All that is quantized in GPT-2 is turned before: rows are what columns were. */
static bool
is_turned(const berth_checkpoint *checkpoint, const berthi_berth *berth)
{
    berth_checkpoint_summary summary;

    berth_checkpoint_get(checkpoint, &summary);
    return strncmp(summary.architecture, "GPT2", 4) == 0
           && berth->encoding != BERTH_ENCODING_NATIVE;
}

static void
add_berth(sums *s, const berth_checkpoint *checkpoint, const berth_plan_summary *plan,
          const berthi_berth *berth)
{
    const uint64_t before = s->stored - s->dropped + s->padding;
    berth_quantized record;
    berth_tensor tensor;

    CHECK_EQ(berth_checkpoint_tensor(checkpoint, berth->number, &tensor), BERTH_OK);
    if (berth_checkpoint_quantized(checkpoint, berth->number, &record) == BERTH_OK) {
        add_quantized(s, checkpoint, berth->number, &record);
    } else if (is_turned(checkpoint, berth)) {
        const uint64_t turned[] = { tensor.shape[1], tensor.shape[0] };

        add_listed(s, berth, plan, turned, tensor.rank);
    } else {
        add_listed(s, berth, plan, tensor.shape, tensor.rank);
    }
    CHECK_EQ(berth->bytes, s->stored - s->dropped + s->padding - before);
    s->berths += berth->bytes;
}

/* ------------------------------------------------------------------- comparing */

static uint64_t
estimated(const char *folder, const encoding *e)
{
    berth_estimate_options options;
    berth_estimate *estimate = NULL;
    berth_estimate_summary summary;
    berth_estimate_part part;
    berth_shape *shape = NULL;
    berth_error error;
    uint64_t bytes = 0;

    berth_estimate_options_init(&options);
    options.type = e->name;
    options.double_quant = e->double_quant;
    options.block_size = e->block_size;
    options.keeps_experts = 1;
    options.context = 1;
    if (!CHECK_EQ(berth_shape_open(context, folder, NULL, &shape, &error), BERTH_OK)
        || !CHECK_EQ(berth_estimate_create(context, shape, &options, &estimate, &error),
                     BERTH_OK)) {
        T_NOTE("%s: %s", folder, error.message);
        berth_shape_close(shape);
        return 0;
    }
    berth_estimate_get(estimate, &summary);
    for (uint32_t i = 0; i < summary.part_count; i++) {
        CHECK_EQ(berth_estimate_get_part(estimate, i, &part), BERTH_OK);
        if (strcmp(part.key, "linear_weights") == 0
            || strcmp(part.key, "other_weights") == 0)
            bytes += part.bytes;
    }
    berth_estimate_destroy(estimate);
    berth_shape_close(shape);
    return bytes;
}

static void
compare(const char *folder, const berth_checkpoint *checkpoint, const encoding *e)
{
    berth_plan_options options;
    berth_plan_summary summary;
    berth_plan *plan = NULL;
    berth_error error;
    sums s = { 0, 0, 0, 0 };

    berth_plan_options_init(&options);
    options.max_memory = "0=9EB";
    options.type = e->type;
    options.double_quant = e->double_quant;
    options.block_size = e->block_size;
    options.context = 0;
    if (!CHECK_EQ(berth_plan_create(context, checkpoint, &options, &plan, &error),
                  BERTH_OK)) {
        T_NOTE("%s: %s", folder, error.message);
        return;
    }
    berth_plan_get(plan, &summary);
    for (uint64_t i = 0; i < summary.berth_count; i++)
        if (!plan->berths[i].is_tied)
            add_berth(&s, checkpoint, &summary, &plan->berths[i]);
    if (!CHECK_EQ(estimated(folder, e), s.stored)
        || !CHECK_EQ(summary.bytes, s.berths)
        || !CHECK_EQ(summary.bytes, s.stored - s.dropped + s.padding))
        T_NOTE("%s as %s", folder, e->name == NULL ? "stored" : e->name);
    if (!CHECK_EQ(berth_plan_check(plan, context, checkpoint, "", NULL, NULL, &error),
                  BERTH_OK))
        T_NOTE("%s: %s: %s", folder, error.tensor, error.message);
    berth_plan_destroy(plan);
}

/* In every encoding that is made of it, or, where it has one, as it is. */
static bool
compare_all(const char *folder)
{
    berth_checkpoint *checkpoint = NULL;
    berth_checkpoint_summary summary;
    berth_error error;

    if (!CHECK_EQ(berth_checkpoint_open(context, folder, NULL, &checkpoint, &error),
                  BERTH_OK)) {
        T_NOTE("%s: %s", folder, error.message);
        return false;
    }
    berth_checkpoint_get(checkpoint, &summary);
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++)
        if (i == 0 || summary.quantized_count == 0)
            compare(folder, checkpoint, &encodings[i]);
    berth_checkpoint_close(checkpoint);
    return true;
}

/* ------------------------------------------------------------------------ models */

static void
test_made(void)
{
    compare_all(planned_llama(3, false));
    compare_all(planned_llama(2, true));
    compare_all(planned_moe(2, 4));
}

/* Of this one config.json does not say all: a vision tower. */
static bool
is_vague(const char *model)
{
    return has_end(model, "llava-1.5-7b");
}

/* Without headers the estimate is the same: before anything is downloaded. */
static void
compare_bare(const char *folder, const char *config, const char *model)
{
    const char *const bare = fixture_folder();
    bool is_same = true;

    fixture_text(fixture_format("%s/config.json", bare), config);
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++)
        is_same = is_same
                  && estimated(folder, &encodings[i]) == estimated(bare, &encodings[i]);
    if (!CHECK_EQ(is_same, !is_vague(model)))
        T_NOTE("%s", model);
}

/* Recorded trees of real classes, as sparse files. */
static void
test_recorded(void)
{
    char *const text = placed_file("models.txt");
    char *at = text;
    uint32_t count = 0;
    placed_record record;

    for (bool is_read = true; is_read;) {
        berthi_arena arena;

        berthi_arena_init(&arena, context, BERTHI_PURPOSE_OBJECT, 65536);
        is_read = placed_read(&arena, &at, &record);
        if (is_read) {
            const placed_checkpoint *const held =
                placed_tensors(&arena, &record, BERTH_BF16);
            const char *const config =
                fixture_format("{\"architectures\": [\"%s\"], %s",
                               placed_words(&record, "class"),
                               placed_words(&record, "config") + 1);
            const char *const folder = fixture_folder();
            fixture_builder *const builder = fixture_begin();

            for (uint32_t i = 0; i < held->count; i++)
                fixture_add_sparse(builder,
                                   fixture_format("%.*s", (int)held->tensors[i].name_length,
                                                  held->tensors[i].name),
                                   berth_dtype_name(held->tensors[i].dtype),
                                   held->tensors[i].rank, held->tensors[i].shape);
            fixture_finish(builder, fixture_format("%s/model.safetensors", folder));
            fixture_text(fixture_format("%s/config.json", folder), config);
            if (held->count <= TENSOR_LIMIT) {
                count += compare_all(folder);
                compare_bare(folder, config, placed_words(&record, "model"));
            }
        }
        berthi_arena_fini(&arena);
    }
    CHECK_EQ(count, 40);
    free(text);
}

static uint32_t
compare_family(const char *family)
{
    DIR *const stream = opendir(family);
    const struct dirent *entry;
    uint32_t count = 0;

    if (stream == NULL)
        return 0;
    while ((entry = readdir(stream)) != NULL) {
        const char *const folder = fixture_format("%s/%s", family, entry->d_name);

        if (access(fixture_format("%s/expected.json", folder), R_OK) == 0)
            count += compare_all(folder);
    }
    closedir(stream);
    return count;
}

static void
test_golden(void)
{
    static const char *const families[] = { "gpt2", "llama", "mixtral",
                                            "opt",  "qwen3", "t5" };
    uint32_t count = 0;

    if (access(GOLDEN "/README.md", R_OK) != 0)
        T_SKIP("no golden data beside the checkout");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        count += compare_family(fixture_format(GOLDEN "/%s", families[i]));
    CHECK_GE(count, 30);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_RUN(test_made);
    T_RUN(test_recorded);
    T_RUN(test_golden);
    berth_context_destroy(context);
    T_MAIN_END;
}
