/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_tiers.c - how many bytes of which memory a plan may use, how fast they are
 * reached, and what has to lie beside the weights.
 */
#include <inttypes.h>
#include <string.h>

#include "kernels/digits.h"
#include "kernels/gemm_lt.h"
#include "kernels/host.h"
#include "loader/plan_input.h"
#include "loader/document.h"
#include "loader/estimate_weight.h"
#include "placement/budget.h"
#include "placement/estimate.h"
#include "placement/link.h"
#include "placement/slab.h"
#include "quant/format.h"

#define LINK_FILE_LIMIT (UINT64_C(1) << 20)
#define STAGING_BYTES (UINT64_C(256) << 20)
#define RESERVE_SHARE (BERTHI_WHOLE / 10)

/* ----------------------------------------------------------------------- budgets */

/* What is there when nobody has said what may be used: this machine, and the disk. */
static berth_status
find_machine(berthi_tier_list *out)
{
    const berthi_tier_bytes disk = { .tier.kind = BERTHI_TIER_DISK,
                                     .bytes = UINT64_MAX };
    const berthi_tier_bytes cpu = { .tier.kind = BERTHI_TIER_CPU,
                                    .bytes = berthi_plan_free_host() };

    (void)berthi_tier_list_can_add(out, &cpu);
    (void)berthi_tier_list_can_add(out, &disk);
    return BERTH_OK;
}

static uint64_t
whole_bytes(double bytes)
{
    return bytes < 9.0e18 ? (uint64_t)bytes : UINT64_MAX;
}

/* As a release of transformers reads max_memory; it has always a disk. */
static berth_status
take_imitated(const char *text, berthi_tier_list *out, berth_error *error)
{
    const berthi_tier_bytes disk = { .tier.kind = BERTHI_TIER_DISK,
                                     .bytes = UINT64_MAX };
    berthi_budgets budgets;
    const berth_status status = berthi_budgets_parse(text, &budgets, error);

    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < budgets.count; i++) {
        const berthi_budget *const budget = &budgets.items[i];
        berthi_tier_bytes item = { .bytes = whole_bytes(budget->bytes) };

        if (budget->kind == BERTHI_BUDGET_DISK || budget->number < 0
            || budget->number > UINT32_MAX)
            continue;
        item.tier.kind =
            budget->kind == BERTHI_BUDGET_CPU ? BERTHI_TIER_CPU : BERTHI_TIER_GPU;
        item.tier.number = (uint32_t)budget->number;
        (void)berthi_tier_list_can_add(out, &item);
    }
    (void)berthi_tier_list_can_add(out, &disk);
    return BERTH_OK;
}

/* "cpu=64": somebody has left out GiB, and nothing says so but a plan without that memory. */
static void
remark_unit(const berth_plan_options *options, const char *what, const berthi_tier *tier,
            uint64_t bytes)
{
    char name[BERTHI_TIER_NAME];

    if (bytes > 0 && berthi_tier_lacks_unit(bytes))
        berthi_plan_warn(options, BERTH_REASON_ARGUMENT,
                         "%s %" PRIu64 " bytes of %s: a number without a unit is bytes", what,
                         bytes, berthi_tier_name(tier, name));
}

static void
remark_units(const berth_plan_options *options, const char *what, const berthi_tier_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        remark_unit(options, what, &list->items[i].tier, list->items[i].bytes);
}

static berth_status
list_budgets(const berthi_plan_source *source, berthi_tier_list *out, berth_error *error)
{
    const berth_plan_options *const options = source->options;
    berth_status status;

    memset(out, 0, sizeof *out);
    if (options->max_memory == NULL)
        return find_machine(out);
    if (options->mode != NULL)
        return take_imitated(options->max_memory, out, error);
    status = berthi_tier_list_parse(options->max_memory, out, error);
    if (status == BERTH_OK)
        remark_units(options, "max_memory has", out);
    return status == BERTH_OK ? berthi_plan_take_shares(source, out, error) : status;
}

static berth_status
fail_line(const berthi_plan_source *source, const berthi_map_line *line,
          const char *problem, berth_error *error)
{
    const berthi_about about = { .file = source->options->device_map,
                                 .tensor = line->path,
                                 .tensor_length = (size_t)line->path_length };
    char name[BERTHI_TIER_NAME];

    return berthi_fail(error, BERTH_REASON_DEVICE_MAP, &about, "is put on %s, %s",
                       berthi_tier_name(&line->tier, name), problem);
}

/*
 * The devices of a map are there, with no limit that is known. Where budgets were
 * given, a map from a file keeps to those.
 */
static berth_status
add_mapped(const berthi_plan_source *source, berthi_tier_list *list, berth_error *error)
{
    const bool is_closed =
        source->options->max_memory != NULL && source->options->device_map != NULL;
    berthi_tier_bytes item = { .bytes = UINT64_MAX };

    for (uint32_t i = 0; i < source->map.count; i++) {
        const berthi_map_line *const line = &source->map.lines[i];

        item.tier = line->tier;
        if (berthi_tier_list_find(list, &item.tier) != NULL)
            continue;
        if (is_closed)
            return fail_line(source, line, "which has no budget", error);
        if (!berthi_tier_list_can_add(list, &item))
            return fail_line(source, line, "a GPU too many: there is room for 64", error);
    }
    for (uint32_t i = 0; i < source->recipe.weight_count; i++) {
        item.tier = berthi_plan_mapped_tier(source, i);
        (void)berthi_tier_list_can_add(list, &item);
    }
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- reserves */

/* What is kept free of a tier whose budget is known; a map is followed to the brim. */
static void
take_reserve(const berthi_plan_source *source, const berthi_tier_list *reserves,
             berthi_plan_tier_input *tier)
{
    const uint64_t given = source->options->reserve_share;
    const berthi_tier_bytes *const own = berthi_tier_list_find(reserves, &tier->tier);

    if (source->has_map || tier->budget == UINT64_MAX)
        return;
    if (given != BERTH_RESERVE_NONE)
        tier->reserve_share = given == 0 ? RESERVE_SHARE : given;
    if (own != NULL && own->share > 0)
        tier->reserve_share = berthi_min_u64(tier->reserve_share + own->share, BERTHI_WHOLE);
    else if (own != NULL)
        tier->reserve_bytes = own->bytes;
}

/* ------------------------------------------------------------------------- links */

/* Parsing changes a text: the caller's is copied. */
static berth_status
copy_links(const berthi_plan_source *source, berthi_links *links, berth_error *error)
{
    const char *const given = source->options->link_text;
    const uint64_t bytes = strlen(given);
    char *text;
    berth_status status;

    if (source->options->link_file != NULL)
        return berthi_fail_argument(error, "link_text", "is given beside link_file");
    text = berthi_memory_alloc(source->context, BERTHI_PURPOSE_DOCUMENT, bytes);
    if (text == NULL)
        return berthi_fail_memory(error, "reading links");
    memcpy(text, given, (size_t)bytes);
    status = berthi_links_parse(text, bytes, "link_text", links, error);
    berthi_memory_free(source->context, BERTHI_PURPOSE_DOCUMENT, text, bytes);
    return status;
}

static berth_status
read_links(const berthi_plan_source *source, berthi_links *links, berth_error *error)
{
    const berth_plan_options *const options = source->options;
    berthi_document file = { .text = NULL };
    berth_status status = BERTH_OK;

    memset(links, 0, sizeof *links);
    if (options->link_text != NULL)
        status = copy_links(source, links, error);
    if (status != BERTH_OK)
        return status;
    if (options->link_file != NULL) {
        status = berthi_document_read(source->context, options->link_file,
                                       LINK_FILE_LIMIT, BERTH_REASON_LINKS_JSON,
                                       "the file of links", &file, error);
        if (status == BERTH_OK)
            status = berthi_links_parse(file.text, file.bytes, options->link_file, links,
                                        error);
        berthi_document_fini(&file);
    }
    if (status == BERTH_OK && options->links != NULL)
        status = berthi_links_parse_words(options->links, links, error);
    return status;
}

static void
take_link(berthi_plan_tier_input *tier, const berthi_link *link, const berthi_link *disk)
{
    /* Host memory is filled from the disk; a GPU and the disk have a link of their own. */
    const berthi_rate *const feed =
        tier->tier.kind == BERTHI_TIER_CPU ? &disk->feed : &link->feed;

    tier->link_rate = feed->bytes;
    tier->link_source = feed->source;
    tier->memory_rate = link->memory.bytes;
    tier->memory_source = link->memory.source;
    tier->operation_ns = link->operation.ns;
}

/* ------------------------------------------------------------------------- calls */

uint32_t
berthi_plan_find_tier(const berthi_plan_source *source, const berthi_tier *tier)
{
    for (uint32_t t = 0; t < source->input.tier_count; t++)
        if (berthi_tier_compare(&source->tiers[t].tier, tier) == 0)
            return t;
    return BERTHI_NO_TIER;
}

static berth_status
check_reserves(const berthi_plan_source *source, const berthi_tier_list *reserves,
               berth_error *error)
{
    char name[BERTHI_TIER_NAME];

    for (uint32_t i = 0; i < reserves->count; i++) {
        const berthi_tier *const tier = &reserves->items[i].tier;

        if (berthi_plan_find_tier(source, tier) == BERTHI_NO_TIER)
            return berthi_fail(error, BERTH_REASON_ARGUMENT,
                               &(berthi_about){ .tensor = "reserve",
                                                .tensor_length = strlen("reserve") },
                               "names %s, which has no budget",
                               berthi_tier_name(tier, name));
    }
    return BERTH_OK;
}

/* Links that are given one by one are of tiers; files know more of a machine. */
static berth_status
check_links(const berthi_plan_source *source, berth_error *error)
{
    char name[BERTHI_TIER_NAME];
    berthi_links given = { .count = 0 };
    berth_status status;

    if (source->options->links == NULL)
        return BERTH_OK;
    status = berthi_links_parse_words(source->options->links, &given, error);
    for (uint32_t i = 0; i < given.count && status == BERTH_OK; i++) {
        const berthi_tier *const tier = &given.items[i].tier;

        /* Everything is read from the disk, whether or not anything stays there. */
        if (tier->kind != BERTHI_TIER_DISK
            && berthi_plan_find_tier(source, tier) == BERTHI_NO_TIER)
            status = berthi_fail(error, BERTH_REASON_ARGUMENT,
                                 &(berthi_about){ .tensor = "links",
                                                  .tensor_length = strlen("links") },
                                 "name %s, which has no budget",
                                 berthi_tier_name(tier, name));
        remark_unit(source->options, "links have", tier, given.items[i].feed.bytes);
        remark_unit(source->options, "links have", tier, given.items[i].memory.bytes);
    }
    return status;
}

berth_status
berthi_plan_list_tiers(berthi_plan_source *source, berth_error *error)
{
    const berthi_tier disk_tier = { .kind = BERTHI_TIER_DISK };
    const uint32_t cores = berthi_host_worker_count();
    berthi_tier_list reserves = { .count = 0 };
    berthi_tier_list list;
    berthi_links links;
    berthi_link disk;
    berth_status status = list_budgets(source, &list, error);

    if (status == BERTH_OK && source->options->reserve != NULL)
        status = berthi_tier_list_parse(source->options->reserve, &reserves, error);
    if (status == BERTH_OK)
        status = read_links(source, &links, error);
    if (status != BERTH_OK)
        return status;
    if (source->has_map)
        status = add_mapped(source, &list, error);
    if (status != BERTH_OK)
        return status;
    source->tiers = berthi_arena_alloc(
        &source->arena, (list.count + UINT64_C(1)) * sizeof *source->tiers, 8);
    if (source->tiers == NULL)
        return berthi_fail_memory(error, "listing tiers");
    disk = berthi_links_find(&links, &disk_tier, cores);
    for (uint32_t t = 0; t < list.count; t++) {
        const berthi_link link = berthi_links_find(&links, &list.items[t].tier, cores);

        source->tiers[t] = (berthi_plan_tier_input){
            .tier = list.items[t].tier,
            .budget = list.items[t].bytes,
        };
        take_reserve(source, &reserves, &source->tiers[t]);
        take_link(&source->tiers[t], &link, &disk);
    }
    source->input.tiers = source->tiers;
    source->input.tier_count = list.count;
    source->input.disk_rate = disk.feed.bytes;
    remark_units(source->options, "reserve has", &reserves);
    status = check_reserves(source, &reserves, error);
    return status == BERTH_OK ? check_links(source, error) : status;
}

/* --------------------------------------------------------------------------- use */

/* Blocks of the list that this one is in; 0: of none, or of an encoder's or a tower's. */
static uint64_t
count_blocks(const berthi_module *block)
{
    uint64_t count = 0;

    if (block == NULL || block->kind != BERTHI_MODULE_BLOCK || block->parent == NULL
        || block->parent->kind != BERTHI_MODULE_LIST
        || berthi_weight_is_of_tower(block->path, block->path_length))
        return 0;
    for (const char *at = block->path; at + 7 <= block->path + block->path_length; at++)
        if (memcmp(at, "encoder", 7) == 0)
            return 0;
    for (const berthi_module *m = block->parent->children; m != NULL; m = m->next)
        count++;
    return count;
}

/*
 * Blocks of the decoder: as many as config.json has layers. Checkpoints may have more behind
 * them, which predict further tokens and keep nothing: then as many as the shortest list has
 * that has enough. UINT64_MAX: there is none.
 */
static uint64_t
decoder_blocks(const berthi_plan_source *source)
{
    const berthi_module *list = NULL; /* of the layer before */
    uint64_t least = UINT64_MAX;

    for (uint32_t l = 0; l < source->input.layer_count; l++) {
        const berthi_module *const block = source->modules[l];
        const berthi_module *const before = list;
        uint64_t count;

        list = block != NULL ? block->parent : NULL;
        count = list != before ? count_blocks(block) : 0;
        if (count >= source->shape->layers)
            least = berthi_min_u64(least, count);
    }
    return least;
}

static int32_t
cache_type(int32_t dtype)
{
    switch (dtype) {
    case BERTH_F32: return BERTHI_CACHE_F32;
    case BERTH_F16: return BERTHI_CACHE_F16;
    case BERTH_F8_E4M3:
    case BERTH_F8_E5M2: return BERTHI_CACHE_FP8;
    default: return BERTHI_CACHE_BF16;
    }
}

/* What sequences keep in each layer of the decoder. */
static void
keep_caches(const berthi_plan_source *source, const berthi_estimate_options *options)
{
    const berthi_shape *const shape = source->shape;
    const uint64_t blocks = decoder_blocks(source);
    const berthi_module *list = NULL; /* of the layer before */
    bool is_decoder = false;

    for (uint32_t l = 0; l < source->input.layer_count; l++) {
        const berthi_module *const block = source->modules[l];
        const berthi_module *const before = list;
        uint64_t number;

        list = block != NULL ? block->parent : NULL;
        if (list != before)
            is_decoder = count_blocks(block) == blocks;
        if (is_decoder && list != NULL
            && berthi_digits_can_parse(block->name, block->name_length, shape->layers - 1,
                                       &number))
            source->layers[l].cache = berthi_slab_round(berthi_layer_keeps(
                shape, &shape->kinds[shape->layer_kinds[number]], options));
    }
}

/* The same, and what computing takes. */
static berth_status
measure_model(berthi_plan_source *source, berth_error *error)
{
    const berthi_estimate_model model = { .shape = source->shape };
    const berth_plan_options *const given = source->options;
    berthi_estimate_options options;
    berthi_estimate estimate;
    berth_status status;

    berthi_estimate_options_init(&options, source->shape);
    options.context = given->context;
    options.batch = given->batch;
    options.cache_type = cache_type(source->input.summary.cache_dtype);
    status = berthi_estimate_inference(&model, &options, &estimate, error);
    if (status != BERTH_OK)
        return status;
    source->input.activations =
        berthi_slab_round(berthi_estimate_bytes(&estimate, BERTHI_PART_ACTIVATIONS)
                          + berthi_estimate_bytes(&estimate, BERTHI_PART_SCORES)
                          + berthi_estimate_bytes(&estimate, BERTHI_PART_LOGITS));
    source->input.runtime += berthi_estimate_bytes(&estimate, BERTHI_PART_FRAGMENTATION);
    keep_caches(source, &options);
    return BERTH_OK;
}

/* Experts are alike in all layers that have them: those of the first. */
static void
find_experts(berthi_plan_source *source)
{
    const berthi_shape *const shape = source->shape;
    uint32_t highest = 0;
    bool has_experts = false;
    uint32_t most;

    for (uint32_t i = 0; i < source->input.tensor_count; i++) {
        if (source->tensors[i].expert == BERTHI_NO_EXPERT)
            continue;
        has_experts = true;
        if (source->tensors[i].expert > highest)
            highest = source->tensors[i].expert;
    }
    source->input.expert_count = has_experts ? highest + 1 : 0;
    most = (uint32_t)berthi_max_u64(source->input.expert_count,
                                    source->input.stacked_count);
    for (uint32_t k = 0; shape != NULL && k < shape->kind_count; k++)
        if (shape->kinds[k].experts > 0 && shape->kinds[k].experts_used <= most)
            source->input.experts_used = (uint32_t)shape->kinds[k].experts_used;
}

/* What a GPU and the libraries there take by themselves, for products on one stream. */
static uint64_t
runtime_bytes(const berthi_plan_source *source)
{
    const uint64_t bytes = BERTHI_CONTEXT_BYTES + BERTHI_WORKSPACE_BYTES;

    for (uint32_t i = 0; i < source->input.tensor_count; i++)
        if (berthi_format_is_4bit(source->tensors[i].encoding))
            return bytes + BERTHI_GEMM_DECODED_BYTES;
    return bytes;
}

berth_status
berthi_plan_measure_use(berthi_plan_source *source, berth_error *error)
{
    const berth_plan_options *const options = source->options;

    source->input.tokens = options->batch > 0 ? options->batch : 1;
    source->input.slots = options->slots;
    source->input.no_offload = options->no_offload != 0;
    source->input.has_hits = options->expert_hits != 0;
    if (options->expert_hits != BERTH_HITS_NONE)
        source->input.expert_hits = options->expert_hits;
    find_experts(source);
    source->input.staging =
        options->staging_bytes > 0 ? options->staging_bytes : STAGING_BYTES;
    source->input.runtime = runtime_bytes(source);
    if (source->shape == NULL || options->context == 0 || options->batch == 0
        || options->train != NULL)
        return BERTH_OK;
    return measure_model(source, error);
}
