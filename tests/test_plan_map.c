/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_map.c - the map that a plan follows: every recorded one of the real
 * libraries, from a checkpoint's headers and config.json; maps from files;
 * refusals and remarks.
 */
#include "loader/plan_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/placed.h"
#include "tests/t.h"

/* Recorded models of more tensors are left to the imitation's own test. */
#define TENSOR_LIMIT 2000
#define MODEL_LIMIT 64

static berth_context *context;

/* ----------------------------------------------------------------- what is asked */

/* Remarks, "name: message" line by line. */
typedef struct remarks {
    char text[4096];
    size_t length;
    int32_t reason; /* of the last one */
} remarks;

static void
note_remark(void *user, const berth_finding *finding)
{
    remarks *const r = user;

    CHECK_EQ(finding->severity, BERTH_SEVERITY_WARNING);
    r->reason = finding->details->reason;
    r->length += (size_t)snprintf(r->text + r->length, sizeof r->text - r->length,
                                  "%s: %s\n", finding->details->tensor,
                                  finding->details->message);
}

static berth_convert_options
recipe_options(const berth_plan_options *options)
{
    berth_convert_options made;

    berth_convert_options_init(&made);
    made.output = "";
    made.type = options->type;
    made.dtype = options->dtype;
    made.storage = BERTH_U8;
    made.block_size = 64;
    made.like = options->like;
    made.skip_modules = options->skip_modules;
    made.skip_count = options->skip_count;
    made.has_skips = options->has_skips;
    return made;
}

/* From a checkpoint to its map; free the map. */
static berth_status
make_map(berth_context *with, const berth_checkpoint *checkpoint,
         const berth_plan_options *options, berthi_device_map *out, berth_error *error)
{
    const berth_convert_options how = recipe_options(options);
    berthi_recipe recipe;
    berth_status status;

    memset(out, 0, sizeof *out);
    status = berthi_recipe_init_decided(&recipe, with, checkpoint, &how,
                                        options->architectures, error);
    if (status != BERTH_OK)
        return status;
    status = berthi_plan_map(&recipe, options, out, error);
    berthi_plan_remark_model(&recipe, options);
    berthi_recipe_fini(&recipe);
    return status;
}

/* ---------------------------------------------------------------- recorded maps */

typedef struct recorded {
    placed_record record;
    const char *era;
    const char *name;
    berth_checkpoint *checkpoint; /* NULL: not made yet, or too large */
    bool is_large;
} recorded;

typedef struct models {
    char *text;
    recorded items[MODEL_LIMIT];
    uint32_t count;
} models;

static void
read_models(berthi_arena *arena, models *m)
{
    char *at;

    m->text = placed_file("models.txt");
    m->count = 0;
    for (at = m->text; m->count < MODEL_LIMIT
                       && placed_read(arena, &at, &m->items[m->count].record);
         m->count++) {
        recorded *const item = &m->items[m->count];
        const char **const words = placed_list(arena, placed_words(&item->record, "model"));

        item->era = words[0];
        item->name = words[1];
        item->checkpoint = NULL;
        item->is_large = false;
    }
}

/* Headers with holes behind them, and config.json. */
static void
make_checkpoint(berthi_arena *arena, recorded *item)
{
    const placed_checkpoint *const held = placed_tensors(arena, &item->record, BERTH_BF16);
    const char *const config = placed_words(&item->record, "config");
    const char *const folder = fixture_folder();
    fixture_builder *const builder = fixture_begin();

    item->is_large = held->count > TENSOR_LIMIT;
    for (uint32_t i = 0; i < held->count && !item->is_large; i++) {
        const berthi_model_tensor *const t = &held->tensors[i];

        fixture_add_sparse(builder, fixture_format("%.*s", (int)t->name_length, t->name),
                           berth_dtype_name(t->dtype), t->rank, t->shape);
    }
    fixture_finish(builder, fixture_format("%s/model.safetensors", folder));
    if (item->is_large)
        return;
    fixture_text(fixture_format("%s/config.json", folder),
                 strstr(config, "\"architectures\"") != NULL
                     ? config
                     : fixture_format("{\"architectures\": [\"%s\"], %s",
                                      placed_words(&item->record, "class"), config + 1));
    CHECK_EQ(berth_checkpoint_open(context, folder, NULL, &item->checkpoint, NULL),
             BERTH_OK);
}

static recorded *
find_model(berthi_arena *arena, models *m, const char *era, const char *name)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (strcmp(m->items[i].era, era) == 0 && strcmp(m->items[i].name, name) == 0) {
            if (m->items[i].checkpoint == NULL && !m->items[i].is_large)
                make_checkpoint(arena, &m->items[i]);
            return &m->items[i];
        }
    CHECK_STR(name, "a model");
    exit(99);
}

/* The record's line "load DTYPE MODE TYPE ..." as options; `skips` holds some. */
static void
read_options(berthi_arena *arena, const placed_record *record, berth_plan_options *options,
             const char *skips[8])
{
    const char **words = placed_list(arena, placed_words(record, "load"));

    berth_plan_options_init(options);
    options->dtype = berthi_format_dtype_word(words[0]);
    options->mode = words[1];
    options->type = strcmp(words[2], "nf4") == 0    ? BERTH_ENCODING_NF4
                    : strcmp(words[2], "int8") == 0 ? BERTH_ENCODING_INT8
                                                    : BERTH_ENCODING_NATIVE;
    options->max_memory = placed_words(record, "memory");
    options->skip_modules = skips;
    for (words += 3; *words != NULL; words++) {
        if (strcmp(*words, "cpu-offload") == 0)
            options->cpu_offload = 1;
        if (strncmp(*words, "skip=", 5) == 0) {
            skips[options->skip_count++] = *words + 5;
            options->has_skips = 1;
        }
    }
}

/* The map in the words of the record's lines. */
static const char *
difference(berthi_arena *arena, const berthi_device_map *map, const placed_record *record)
{
    berthi_imitation made = { .placed_count = map->count };

    made.placed = berthi_arena_alloc(arena, map->count * sizeof *made.placed, 8);
    for (uint32_t i = 0; i < map->count; i++) {
        const berthi_tier *const tier = &map->lines[i].tier;
        const berthi_budget budget = {
            .kind = tier->kind == BERTHI_TIER_GPU   ? BERTHI_BUDGET_GPU
                    : tier->kind == BERTHI_TIER_CPU ? BERTHI_BUDGET_CPU
                                                    : BERTHI_BUDGET_DISK,
            .number = tier->number,
        };
        uint32_t device = 0;

        berthi_budgets_can_add(&made.budgets, &budget);
        while (made.budgets.items[device].kind != budget.kind
               || made.budgets.items[device].number != budget.number)
            device++;
        made.placed[i] = (berthi_placed){ map->lines[i].path, map->lines[i].path_length, 0,
                                          device };
    }
    /* Devices take places before others that came first. */
    for (uint32_t i = 0; i < map->count; i++)
        for (uint32_t k = 0; k < made.budgets.count; k++) {
            const berthi_tier *const tier = &map->lines[i].tier;
            const berthi_budget *const b = &made.budgets.items[k];

            if ((b->kind == BERTHI_BUDGET_GPU) == (tier->kind == BERTHI_TIER_GPU)
                && (b->kind == BERTHI_BUDGET_CPU) == (tier->kind == BERTHI_TIER_CPU)
                && b->number == tier->number)
                made.placed[i].device = k;
        }
    return placed_difference(arena, &made, record, "on");
}

/* True when the same came out, map or refusal. */
static bool
compare(berthi_arena *arena, const placed_record *record, berth_status status,
        const berthi_device_map *map, const berth_error *error)
{
    static const char *const dispatched = "ValueError Some modules";
    const char *const refused = placed_line(record, "error", 0);
    const char *differs;

    if (refused != NULL)
        return CHECK_EQ(status, strncmp(refused, dispatched, strlen(dispatched)) == 0
                                    ? BERTH_ENOFIT
                                    : BERTH_EINVAL);
    if (!CHECK_EQ(status, BERTH_OK)) {
        T_NOTE("%s", error->message);
        return false;
    }
    differs = difference(arena, map, record);
    if (differs != NULL)
        T_NOTE("%s", differs);
    return CHECK(differs == NULL);
}

static void
test_recorded(void)
{
    char *const text = placed_file("maps.txt");
    berthi_arena model_arena;
    placed_record record;
    uint32_t same = 0;
    uint32_t count = 0;
    uint32_t left_out = 0;
    char *at = text;
    models m;

    berthi_arena_init(&model_arena, context, BERTHI_PURPOSE_OBJECT, 65536);
    read_models(&model_arena, &m);
    for (bool is_read = true; is_read;) {
        berthi_arena arena;

        berthi_arena_init(&arena, context, BERTHI_PURPOSE_OBJECT, 65536);
        is_read = placed_read(&arena, &at, &record);
        if (is_read) {
            const char **const words = placed_list(&arena, placed_words(&record, "map"));
            recorded *const item = find_model(&model_arena, &m, words[1], words[2]);
            berth_plan_options options;
            berthi_device_map map;
            const char *skips[8];
            berth_error error;

            read_options(&arena, &record, &options, skips);
            options.like = words[1];
            if (item->is_large) {
                left_out++;
            } else {
                const berth_status status =
                    make_map(context, item->checkpoint, &options, &map, &error);
                const bool is_same = compare(&arena, &record, status, &map, &error);

                if (!is_same)
                    T_NOTE("%s", words[0]);
                same += is_same;
                count++;
                berthi_device_map_fini(&map);
            }
        }
        berthi_arena_fini(&arena);
    }
    T_NOTE("%u of %u maps are the same, %u of large models left out", same, count, left_out);
    CHECK_EQ(count + left_out, 180);
    CHECK_EQ(same, count);
    CHECK_LT(left_out, 30);
    for (uint32_t i = 0; i < m.count; i++)
        berth_checkpoint_close(m.items[i].checkpoint);
    berthi_arena_fini(&model_arena);
    free(m.text);
    free(text);
}

/* ---------------------------------------------------------------- a small model */

#define LLAMA                                                                             \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"dtype\": \"bfloat16\", \"hidden_size\": "\
    "64, \"model_type\": \"llama\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, " \
    "\"tie_word_embeddings\": false"
#define LAYER(n)                                                                          \
    "BF16 64 model.layers." n ".input_layernorm.weight = sparse\n"                        \
    "BF16 256x64 model.layers." n ".mlp.up_proj.weight = sparse\n"                        \
    "BF16 64x256 model.layers." n ".mlp.down_proj.weight = sparse\n"
#define ENDS                                                                              \
    "BF16 128x64 model.embed_tokens.weight = sparse\nBF16 64 model.norm.weight = sparse\n" \
    "BF16 128x64 lm_head.weight = sparse\n"

typedef struct small {
    const char *folder;
    berth_checkpoint *checkpoint;
    berth_plan_options options;
    remarks remarks;
    berthi_device_map map;
    berth_error error;
} small;

static void
begin(small *m, const char *lines, const char *config)
{
    memset(m, 0, sizeof *m);
    m->folder = fixture_folder();
    fixture_model(m->folder, fixture_format("[model.safetensors]\n%s", lines));
    if (config != NULL)
        fixture_text(fixture_format("%s/config.json", m->folder), config);
    CHECK_EQ(berth_checkpoint_open(context, m->folder, NULL, &m->checkpoint, NULL),
             BERTH_OK);
    berth_plan_options_init(&m->options);
    m->options.finding = note_remark;
    m->options.finding_user = &m->remarks;
}

static void
begin_llama(small *m)
{
    begin(m, LAYER("0") LAYER("1") LAYER("2") ENDS, LLAMA "}\n");
}

static void
end(small *m)
{
    berthi_device_map_fini(&m->map);
    berth_checkpoint_close(m->checkpoint);
}

static berth_status
run(small *m)
{
    berthi_device_map_fini(&m->map);
    memset(&m->remarks, 0, sizeof m->remarks);
    memset(&m->error, 0, sizeof m->error);
    return make_map(context, m->checkpoint, &m->options, &m->map, &m->error);
}

/* "path=tier path=tier" in static memory. */
static const char *
words(const berthi_device_map *map)
{
    static char text[4096];
    char name[BERTHI_TIER_NAME];
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < map->count; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%.*s=%s",
                                   i > 0 ? " " : "", (int)map->lines[i].path_length,
                                   map->lines[i].path,
                                   berthi_tier_name(&map->lines[i].tier, name));
    return text;
}

static void
check_map(small *m, const char *expected)
{
    if (CHECK_EQ(run(m), BERTH_OK))
        CHECK_STR(words(&m->map), expected);
    else
        T_NOTE("%s", m->error.message);
}

static void
check_refused(small *m, berth_reason reason, const char *tensor, const char *message)
{
    CHECK_EQ(run(m), reason == BERTH_REASON_NO_FIT        ? BERTH_ENOFIT
                     : reason == BERTH_REASON_UNSUPPORTED ? BERTH_EUNSUPPORTED
                     : reason == BERTH_REASON_CONFIG_JSON ? BERTH_EFORMAT
                     : reason == BERTH_REASON_NOT_FOUND   ? BERTH_ENOENT
                                                          : BERTH_EINVAL);
    CHECK_EQ(m->error.reason, reason);
    CHECK_STR(m->error.tensor, tensor);
    CHECK_CONTAINS(m->error.message, message);
    CHECK_EQ(m->map.count, 0);
}

/* ------------------------------------------------------------------- imitating */

static void
test_modes(void)
{
    small m;

    begin_llama(&m);
    m.options.mode = "sequential";
    m.options.max_memory = "0=1GB";
    check_map(&m, "=cuda:0");
    m.options.max_memory = "0=150KB,cpu=1GB";
    check_map(&m, "model.embed_tokens=cuda:0 model.layers.0=cuda:0 model.layers.1=cpu "
                  "model.layers.2=cpu model.norm=cpu model.rotary_emb=cpu lm_head=cpu");
    m.options.max_memory = "0=150KB";
    check_map(&m, "model.embed_tokens=cuda:0 model.layers.0=cuda:0 model.layers.1=disk "
                  "model.layers.2=disk model.norm=disk model.rotary_emb=disk lm_head=disk");
    m.options.mode = "balanced_low_0";
    m.options.max_memory = "0=1GB,1=1GB";
    check_map(&m, "=cuda:1");
    m.options.mode = NULL;
    check_refused(&m, BERTH_REASON_ARGUMENT, "",
                  "`mode` is none of auto, balanced, balanced_low_0 and sequential");
    m.options.mode = "best";
    check_refused(&m, BERTH_REASON_ARGUMENT, "", "`mode` is none of auto");
    end(&m);
}

/* Of this machine: all of so small a model is on the processor. */
static void
test_machine(void)
{
    berth_host host;
    small m;

    begin_llama(&m);
    CHECK_EQ(berth_host_get(context, &host, NULL), BERTH_OK);
    m.options.mode = "auto";
    if (host.memory_available == UINT64_MAX) { /* a system without /proc */
        check_refused(&m, BERTH_REASON_ARGUMENT, "", "how much memory is free");
    } else {
        check_map(&m, "=cpu");
        m.options.like = "hf4";
        check_map(&m, "=cpu");
    }
    end(&m);
}

static void
test_refusals(void)
{
    small m;

    begin_llama(&m);
    m.options.mode = "balanced_low_0";
    m.options.max_memory = "0=1GB,2=1GB";
    check_refused(&m, BERTH_REASON_ARGUMENT, "", "there is no 1");
    m.options.mode = "auto";
    m.options.max_memory = "0=1GB,disk=1GB";
    m.options.like = "hf4";
    check_refused(&m, BERTH_REASON_ARGUMENT, "", "balances no budget for disk");
    m.options.like = NULL;
    m.options.max_memory = "cuda:0=1GB";
    check_refused(&m, BERTH_REASON_ARGUMENT, "", "cuda:0");
    m.options.max_memory = "mps=1GB";
    check_refused(&m, BERTH_REASON_ARGUMENT, "max_memory", "names mps, which is no device");
    m.options.max_memory = "0=1GB,mps=1GB";
    check_refused(&m, BERTH_REASON_ARGUMENT, "max_memory", "names mps, which is no device");
    m.options.max_memory = "-1=1GB,0=1GB";
    check_refused(&m, BERTH_REASON_ARGUMENT, "max_memory", "names -1, which is no device");
    m.options.max_memory = "4294967296=1GB";
    check_refused(&m, BERTH_REASON_ARGUMENT, "max_memory", "names 4294967296, which is no");
    m.options.max_memory = "4294967295=1GB";
    check_map(&m, "=cuda:4294967295");
    end(&m);
}

static void
test_quantized(void)
{
    small m;

    begin_llama(&m);
    m.options.mode = "sequential";
    m.options.type = BERTH_ENCODING_NF4;
    m.options.max_memory = "0=56KB,cpu=1GB";
    check_refused(&m, BERTH_REASON_NO_FIT, "model.layers.1",
                  "would lie on cpu, and bitsandbytes refuses");
    m.options.max_memory = "0=1KB,cpu=1KB"; /* one line, whose module has no name */
    check_refused(&m, BERTH_REASON_NO_FIT, "",
                  "all of the model would lie on disk, and bitsandbytes refuses");
    m.options.max_memory = "0=56KB,cpu=1GB";
    m.options.cpu_offload = 1;
    check_map(&m, "model.embed_tokens=cuda:0 model.layers.0=cuda:0 model.layers.1=cpu "
                  "model.layers.2=cpu model.norm=cpu model.rotary_emb=cpu lm_head=cpu");
    m.options.cpu_offload = 0;
    m.options.type = BERTH_ENCODING_NATIVE;
    m.options.max_memory = "0=240KB,cpu=1GB";
    check_map(&m, "=cuda:0");
    end(&m);
}

/* Remarks of upstream: a device that stays empty, buffers. */
static void
test_remarks(void)
{
    small m;

    begin_llama(&m);
    m.options.mode = "sequential";
    m.options.max_memory = "0=10KB,cpu=1GB";
    CHECK_EQ(run(&m), BERTH_OK);
    CHECK_EQ(m.remarks.reason, BERTH_REASON_NO_FIT);
    CHECK_CONTAINS(m.remarks.text, ": nothing fits on 0: it needs ");
    m.options.max_memory = "0=100,cpu=1GB";
    CHECK_EQ(run(&m), BERTH_OK);
    CHECK_CONTAINS(m.remarks.text, "bytes of buffers of offloaded modules stay on a GPU");
    m.options.buffer_offload = 1;
    CHECK_EQ(run(&m), BERTH_OK);
    CHECK(strstr(m.remarks.text, "buffers") == NULL);
    m.options.max_memory = "0=1GB";
    CHECK_EQ(run(&m), BERTH_OK);
    CHECK_STR(m.remarks.text, "");
    m.options.finding = NULL;
    m.options.max_memory = "0=10KB,cpu=1GB";
    CHECK_EQ(run(&m), BERTH_OK);
    end(&m);
}

/* ------------------------------------------------- checkpoints quantized already */

/* A layer's matrices as bitsandbytes stores them in 4 bits, and the ends. */
static void
begin_quantized(small *m, bool is_int8, const char *config)
{
    fixture_builder *const builder = fixture_begin();

    memset(m, 0, sizeof *m);
    m->folder = fixture_folder();
    for (int i = 0; i < 3; i++) {
        const char *const layer = fixture_format("model.layers.%d.mlp", i);

        if (is_int8) {
            fixture_add_int8(builder, fixture_format("%s.up_proj", layer), 256, 64);
            fixture_add_int8(builder, fixture_format("%s.down_proj", layer), 64, 256);
        } else {
            fixture_add_nf4(builder, fixture_format("%s.up_proj.weight", layer), 256, 64,
                            false);
            fixture_add_nf4(builder, fixture_format("%s.down_proj.weight", layer), 64, 256,
                            false);
        }
        fixture_add_lines(builder, fixture_format("BF16 64 model.layers.%d.input_layernorm."
                                                  "weight\n", i));
    }
    fixture_add_lines(builder, ENDS);
    fixture_finish(builder, fixture_format("%s/model.safetensors", m->folder));
    fixture_text(fixture_format("%s/config.json", m->folder),
                 fixture_format("%s, %s}", LLAMA, config));
    CHECK_EQ(berth_checkpoint_open(context, m->folder, NULL, &m->checkpoint, &m->error),
             BERTH_OK);
    berth_plan_options_init(&m->options);
    m->options.finding = note_remark;
    m->options.finding_user = &m->remarks;
    m->options.mode = "sequential";
    m->options.cpu_offload = 1;
}

#define Q4 "\"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": " \
           "true, \"bnb_4bit_quant_type\": \"nf4\""

/*
 * Counted: embedding and head 16384 each, a layer 16512 in 4 bits, 32896 in 8,
 * 65664 in bf16; the layer that waits is reserved, and a tenth is cut.
 */
static void
test_quantized_before(void)
{
    static const char *const split =
        "model.embed_tokens=cuda:0 model.layers.0=cuda:0 model.layers.1=cuda:0 "
        "model.layers.2=cpu model.norm=cpu model.rotary_emb=cpu lm_head=cpu";
    small m;

    begin_quantized(&m, false, Q4 "}");
    m.options.max_memory = "0=74KB,cpu=1GB"; /* 66600: two layers, one reserved */
    check_map(&m, split);
    m.options.max_memory = "0=72KB,cpu=1GB";
    CHECK_EQ(run(&m), BERTH_OK);
    CHECK_CONTAINS(words(&m.map), "model.layers.1=cpu");
    m.options.cpu_offload = 0;
    check_refused(&m, BERTH_REASON_NO_FIT, "model.layers.1", "bitsandbytes refuses");
    end(&m);
    begin_quantized(&m, true,
                    "\"quantization_config\": {\"quant_method\": \"bitsandbytes\", "
                    "\"load_in_8bit\": true}");
    m.options.max_memory = "0=129KB,cpu=1GB"; /* 116100 */
    check_map(&m, split);
    m.options.max_memory = "0=127KB,cpu=1GB";
    CHECK_EQ(run(&m), BERTH_OK);
    CHECK_CONTAINS(words(&m.map), "model.layers.1=cpu");
    end(&m);
}

/* The list in config.json: what it names is counted as it is stored. */
static void
test_config_skips(void)
{
    small m;

    begin_quantized(&m, false, Q4 ", \"llm_int8_skip_modules\": [\"lm_head\", "
                                  "\"model.layers.1.mlp.up_proj\"]}");
    m.options.max_memory = "0=74KB,cpu=1GB";
    CHECK_EQ(run(&m), BERTH_OK);
    CHECK_CONTAINS(words(&m.map), "model.layers=cpu");
    m.options.has_skips = 1; /* the caller's list takes its place */
    CHECK_EQ(run(&m), BERTH_OK);
    CHECK_CONTAINS(words(&m.map), "model.layers.1=cuda:0");
    end(&m);
    begin_quantized(&m, false, Q4 ", \"llm_int8_skip_modules\": null}");
    m.options.max_memory = "0=74KB,cpu=1GB";
    CHECK_EQ(run(&m), BERTH_OK);
    CHECK_CONTAINS(words(&m.map), "model.layers.1=cuda:0");
    end(&m);
    begin_quantized(&m, false, "\"text_config\": {" Q4 ", \"llm_int8_skip_modules\": "
                               "[\"model.layers.1.mlp.up_proj\"]}}");
    m.options.max_memory = "0=74KB,cpu=1GB";
    CHECK_EQ(run(&m), BERTH_OK);
    CHECK_CONTAINS(words(&m.map), "model.layers=cpu");
    end(&m);
    begin_quantized(&m, false, Q4 ", \"llm_int8_skip_modules\": [\"a\", 1]}");
    m.options.max_memory = "0=74KB,cpu=1GB";
    check_refused(&m, BERTH_REASON_CONFIG_JSON, "",
                  "llm_int8_skip_modules holds something that is no name");
    end(&m);
}

static void
test_quantized_otherwise(void)
{
    small m;

    begin(&m, LAYER("0") ENDS,
          LLAMA ", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}");
    m.options.mode = "auto";
    m.options.max_memory = "0=1GB";
    check_refused(&m, BERTH_REASON_UNSUPPORTED, "", "quantized by gptq is not known");
    m.options.type = BERTH_ENCODING_NF4;
    check_map(&m, "=cuda:0");
    end(&m);
}

/* ------------------------------------------------------------------ a map's file */

static void
test_file(void)
{
    small m;

    begin_llama(&m);
    m.options.device_map = fixture_format("%s/map.json", m.folder);
    check_refused(&m, BERTH_REASON_NOT_FOUND, "", "");
    fixture_text(m.options.device_map, "{\"\": 0, \"lm_head\": \"cpu\"}");
    check_map(&m, "=cuda:0 lm_head=cpu");
    CHECK_STR(m.remarks.text, "");
    fixture_text(m.options.device_map, "{\"\": 0, \"lm_head\": \"cpu\", \"x\": 1}");
    CHECK_EQ(run(&m), BERTH_EINVAL);
    CHECK_EQ(m.error.reason, BERTH_REASON_DEVICE_MAP);
    CHECK_STR(m.error.tensor, "x");
    CHECK_STR(m.error.message, "names nothing in the model");
    CHECK_STR(m.error.file, m.options.device_map);
    fixture_text(m.options.device_map, "{\"model\": 0, \"lm_head\": ");
    check_refused(&m, BERTH_REASON_DEVICE_MAP, "", "");
    CHECK_STR(m.error.file, m.options.device_map);
    fixture_text(m.options.device_map, "{\"model\": 0}");
    CHECK_EQ(run(&m), BERTH_EINVAL);
    CHECK_STR(m.error.tensor, "lm_head.weight");
    CHECK_STR(m.error.file, m.options.device_map);
    fixture_text(m.options.device_map, "{}");
    fixture_extend(m.options.device_map, UINT64_C(67108864) - 1);
    check_refused(&m, BERTH_REASON_DEVICE_MAP, "",
                  "has 67108865 bytes, a device map at most 67108864");
    end(&m);
}

/* --------------------------------------------------------------- unknown classes */

static void
test_model_remarks(void)
{
    small m;

    begin(&m, LAYER("0") ENDS, "{\"architectures\": [\"NewForCausalLM\"]}");
    m.options.mode = "sequential";
    m.options.max_memory = "0=1GB";
    check_map(&m, "=cuda:0");
    CHECK_EQ(m.remarks.reason, BERTH_REASON_ARCHITECTURES_JSON);
    CHECK_STR(m.remarks.text, ": NewForCausalLM: the order of layers is guessed from the "
                              "names of tensors\n");
    end(&m);
    begin(&m, LAYER("0") ENDS, NULL);
    m.options.mode = "sequential";
    m.options.max_memory = "0=1GB";
    check_map(&m, "=cuda:0");
    CHECK_STR(m.remarks.text, ": there is no config.json: the order of layers is guessed "
                              "from the names of tensors\n");
    end(&m);
    begin(&m, LAYER("0") ENDS "BF16 4 model.extra.weight\n", LLAMA "}");
    m.options.mode = "sequential";
    m.options.max_memory = "0=1GB";
    check_map(&m, "=cuda:0");
    CHECK_STR(m.remarks.text, ": the checkpoint has tensors that the description of "
                              "LlamaForCausalLM does not know: where they run is guessed\n");
    end(&m);
}

/* What a map names may be there all the same: it is said, and has no device. */
static void
test_stray_of_guess(void)
{
    small m;

    begin(&m, LAYER("0") ENDS, "{\"architectures\": [\"NewForCausalLM\"]}");
    m.options.device_map = fixture_format("%s/map.json", m.folder);
    fixture_text(m.options.device_map,
                 "{\"model.rotary_emb\": 3, \"lm_head\": \"cpu\", \"model\": 0}");
    check_map(&m, "lm_head=cpu model=cuda:0");
    CHECK_CONTAINS(m.remarks.text, "model.rotary_emb: names nothing in the model\n");
    end(&m);
}

/* A file that describes it. */
static void
test_architectures(void)
{
    small m;

    begin(&m, "BF16 64x64 first.weight\nBF16 64x64 second.weight\nBF16 64x64 "
              "third.weight\n", "{\"architectures\": [\"New\"]}");
    m.options.mode = "sequential";
    m.options.max_memory = "0=17KB,cpu=1GB"; /* one, and one that is kept room for */
    m.options.architectures = fixture_format("%s/new.json", m.folder);
    check_refused(&m, BERTH_REASON_NOT_FOUND, "", "");
    fixture_text(m.options.architectures,
                 "{\"architectures\": {\"New\": {\"base\": \"\", \"no_split\": [], "
                 "\"tree\": [\"third\", \"first\", \"second\"]}}}");
    check_map(&m, "third=cuda:0 first=cpu second=cpu");
    CHECK_STR(m.remarks.text, "");
    fixture_text(m.options.architectures, "{\"architectures\": {");
    CHECK_EQ(run(&m), BERTH_EFORMAT);
    CHECK_EQ(m.error.reason, BERTH_REASON_ARCHITECTURES_JSON);
    CHECK_STR(m.error.file, m.options.architectures);
    fixture_extend(m.options.architectures, UINT64_C(16777217));
    CHECK_EQ(run(&m), BERTH_EFORMAT);
    CHECK_CONTAINS(m.error.message, "a file of model classes at most 16777216");
    end(&m);
}

/* Without a word on it 4.x loads float32, and float16 where it quantizes. */
static void
test_dtype_of_4x(void)
{
    small m;

    begin_llama(&m);
    m.options.mode = "sequential";
    m.options.max_memory = "0=300KB,cpu=1GB";
    check_map(&m, "=cuda:0");
    m.options.like = "hf4";
    CHECK_EQ(run(&m), BERTH_OK);
    CHECK_CONTAINS(words(&m.map), "lm_head=cpu");
    m.options.dtype = BERTH_BF16;
    check_map(&m, "=cuda:0");
    end(&m);
}

/* -------------------------------------------------------------------- failures */

static berth_status
imitate_once(void *user, berth_context *faulty, berth_error *error)
{
    const small *const m = user;
    berthi_device_map map;
    const berth_status status = make_map(faulty, m->checkpoint, &m->options, &map, error);

    CHECK(status == BERTH_OK || map.count == 0);
    berthi_device_map_fini(&map);
    return status;
}

static void
test_faults(void)
{
    fault_counts counts;
    small m;

    begin_quantized(&m, false, Q4 ", \"llm_int8_skip_modules\": [\"lm_head\"]}");
    m.options.max_memory = "0=74KB,cpu=1GB";
    counts = fault_loop("imitation", imitate_once, &m);
    CHECK_GT(counts.memory, 10);
    CHECK_EQ(counts.survived, 0);
    m.options.device_map = fixture_format("%s/map.json", m.folder);
    fixture_text(m.options.device_map, "{\"\": 0}");
    m.options.architectures = fixture_format("%s/new.json", m.folder);
    fixture_text(m.options.architectures, "{\"architectures\": {}}");
    counts = fault_loop("map of a file", imitate_once, &m);
    CHECK_GT(counts.memory, 10);
    CHECK_EQ(counts.survived, 0);
    end(&m);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 99;
    T_RUN(test_recorded);
    T_RUN(test_modes);
    T_RUN(test_machine);
    T_RUN(test_refusals);
    T_RUN(test_quantized);
    T_RUN(test_remarks);
    T_RUN(test_quantized_before);
    T_RUN(test_config_skips);
    T_RUN(test_quantized_otherwise);
    T_RUN(test_file);
    T_RUN(test_model_remarks);
    T_RUN(test_stray_of_guess);
    T_RUN(test_architectures);
    T_RUN(test_dtype_of_4x);
    T_RUN(test_faults);
    berth_context_destroy(context);
    T_MAIN_END;
}
