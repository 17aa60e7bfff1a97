/* SPDX-License-Identifier: Apache-2.0 */
/* load_advice.c - see load_advice.h. */
#include "tools/load_advice.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/load_tier.h"

#define MIB           (UINT64_C(1) << 20)
#define LIST_CAPACITY 2048
#define USUAL_BLOCK   64u
#define BESIDE_BYTES  (8 * MIB) /* scratch and stacks of a load's threads, its tables */

/* ---------------------------------------------------------------------- what is there */

/* What this process can still take, now that the load has given everything back. */
static uint64_t
find_host_room(berth_context *context)
{
    berth_host host;

    return berth_host_get(context, &host, NULL) == BERTH_OK ? host.memory_available
                                                              : UINT64_MAX;
}

uint64_t
load_need(const load_failure *f, const berth_plan_tier *tier)
{
    return load_slab_bytes(tier)
           + (tier->kind == BERTH_TIER_CPU ? tier->turned + f->ring_bytes : 0);
}

/* Was it this tier's slab that its device, which nobody else can ask, had no room for? */
static bool
is_refused_slab(const berth_error *error, const berth_plan_tier *tier)
{
    const uint32_t both = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL;

    return error->status == BERTH_ENOFIT && (error->has & both) == both
           && error->expected == load_slab_bytes(tier);
}

static uint64_t
gpu_room(const load_failure *f, uint32_t number, const berth_plan_tier *tier)
{
    berth_device device;

    if (!load_has_device(f->plan, f->devices, number, &device))
        return is_refused_slab(f->error, tier) ? f->error->actual : tier->budget;
    return !device.is_simulated && device.free_bytes < device.memory_bytes
               ? device.free_bytes
               : device.memory_bytes;
}

uint64_t
load_room(const load_failure *f, const load_advice *advice, uint32_t number,
          const berth_plan_tier *tier)
{
    return tier->kind == BERTH_TIER_GPU   ? gpu_room(f, number, tier)
           : tier->kind == BERTH_TIER_CPU ? advice->host_room
                                          : UINT64_MAX;
}

/*
 * Host memory has to hold more than its budget: rings, which only plans for GPUs count
 * there; layers that are streamed from the disk have one of their own behind the load's.
 */
static uint64_t
budget_of(const load_failure *f, const load_advice *advice, uint32_t number,
          const berth_plan_tier *tier, bool streams)
{
    const uint64_t room = load_room(f, advice, number, tier);
    uint64_t beside = BESIDE_BYTES;
    uint64_t budget;

    if (tier->kind != BERTH_TIER_CPU)
        return room;
    if (room == UINT64_MAX)
        return tier->budget;
    if (tier->staging == 0)
        beside += streams ? 2 * f->ring_bytes : f->ring_bytes;
    budget = room > beside ? room - beside : 0;
    budget -= budget % MIB;
    return budget < tier->budget ? budget : tier->budget;
}

static bool
is_short(const load_failure *f, const load_advice *advice)
{
    berth_plan_tier tier;

    for (uint32_t i = 0; berth_plan_get_tier(f->plan, i, &tier) == BERTH_OK; i++)
        if (load_need(f, &tier) > load_room(f, advice, i, &tier))
            return true;
    return false;
}

/* ----------------------------------------------------------------------- another plan */

/* Adds to a text; what there is no room for is cut, and a plan refuses that. */
__attribute__((format(printf, 3, 4))) static void
add(char *text, size_t capacity, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + used, capacity - used, format, arguments);
    va_end(arguments);
}

static bool
has_disk(const load_failure *f)
{
    berth_plan_tier tier;

    if (f->plan == NULL) /* without a list everything is used, and the disk */
        return f->asked->max_memory == NULL
               || strstr(f->asked->max_memory, "disk") != NULL;
    for (uint32_t i = 0; berth_plan_get_tier(f->plan, i, &tier) == BERTH_OK; i++)
        if (tier.kind == BERTH_TIER_DISK)
            return true;
    return false;
}

/* "cuda:0=2MiB,cpu=1GiB,disk=inf": what there is. */
static void
list_budgets(const load_failure *f, const load_advice *advice, bool streams,
             char list[LIST_CAPACITY])
{
    berth_plan_tier tier;

    for (uint32_t i = 0; berth_plan_get_tier(f->plan, i, &tier) == BERTH_OK; i++) {
        const uint64_t bytes = budget_of(f, advice, i, &tier, streams);

        add(list, LIST_CAPACITY, "%s%s=", i > 0 ? "," : "", tier.name);
        if (bytes == UINT64_MAX)
            add(list, LIST_CAPACITY, "inf");
        else
            add(list, LIST_CAPACITY, "%" PRIu64 "%s", bytes % MIB == 0 ? bytes / MIB : bytes,
                bytes % MIB == 0 ? "MiB" : "");
    }
}

static bool
keeps_reserve(const berth_plan *plan)
{
    berth_plan_tier tier;
    uint64_t kept = 0;

    for (uint32_t i = 0; berth_plan_get_tier(plan, i, &tier) == BERTH_OK; i++)
        kept += tier.reserve;
    return kept > 0;
}

/* A dtype as options have it; NULL: they have no word for it. */
static const char *
dtype_word(int32_t dtype)
{
    return dtype == BERTH_BF16  ? "bf16"
           : dtype == BERTH_F16 ? "f16"
           : dtype == BERTH_F32 ? "f32"
                                : NULL;
}

/* What a plan is loaded as without --dtype. */
static bool
is_dtype_of_model(const load_failure *f, int32_t dtype)
{
    berth_checkpoint_summary model;

    berth_checkpoint_get(f->checkpoint, &model);
    return (dtype == BERTH_BF16 && strcmp(model.dtype, "bfloat16") == 0)
           || (dtype == BERTH_F16 && strcmp(model.dtype, "float16") == 0)
           || (dtype == BERTH_F32 && strcmp(model.dtype, "float32") == 0);
}

/* What the plan was asked for, as far as a file of it says so. */
static berth_plan_options
options_like(const load_failure *f)
{
    berth_plan_options options;
    berth_plan_summary old;

    if (f->asked != NULL) {
        options = *f->asked;
        options.finding = NULL; /* it has been told */
        return options;
    }
    berth_plan_get(f->plan, &old);
    berth_plan_options_init(&options);
    options.type = old.type;
    options.dtype = is_dtype_of_model(f, old.dtype) ? -1 : old.dtype;
    options.double_quant = old.double_quant;
    options.block_size = old.block_size;
    options.context = old.context;
    options.batch = old.batch;
    options.cache_dtype = old.cache_dtype == old.dtype ? -1 : old.cache_dtype;
    options.rank = old.rank;
    options.ranks = old.ranks;
    options.stacks = old.ranks > 1 ? BERTH_STACKS_AUTO : old.stacks;
    if (!keeps_reserve(f->plan))
        options.reserve_share = BERTH_RESERVE_NONE;
    return options;
}

/* What `berth plan` is told beyond what every command that plans is. */
static void
add_plan_options(const berth_plan_options *options, char *text)
{
    berth_plan_options usual;

    berth_plan_options_init(&usual);
    if (options->ranks > 1)
        add(text, LOAD_OPTIONS_CAPACITY, " --tensor-parallel %" PRIu32 "/%" PRIu32,
            options->rank, options->ranks);
    if (options->stacks == BERTH_STACKS_APART)
        add(text, LOAD_OPTIONS_CAPACITY, " --stacks apart");
    if (options->reserve_share == BERTH_RESERVE_NONE)
        add(text, LOAD_OPTIONS_CAPACITY, " --reserve-percent 0");
    if (options->context != usual.context)
        add(text, LOAD_OPTIONS_CAPACITY, " --context %" PRIu64, options->context);
    if (options->batch != usual.batch)
        add(text, LOAD_OPTIONS_CAPACITY, " --batch %" PRIu64, options->batch);
    if (dtype_word(options->cache_dtype) != NULL)
        add(text, LOAD_OPTIONS_CAPACITY, " --cache-dtype %s", dtype_word(options->cache_dtype));
    if (options->type != BERTH_ENCODING_NATIVE && options->block_size != USUAL_BLOCK)
        add(text, LOAD_OPTIONS_CAPACITY, " --block-size %" PRIu32, options->block_size);
}

static void
describe(const load_failure *f, const berth_plan_options *options, char *text)
{
    text[0] = '\0';
    if (options->max_memory != NULL)
        add(text, LOAD_OPTIONS_CAPACITY, "--max-memory %s", options->max_memory);
    if (options->type != BERTH_ENCODING_NATIVE)
        add(text, LOAD_OPTIONS_CAPACITY, "%s--type %s", text[0] != '\0' ? " " : "",
            berth_encoding_name(options->type));
    if (options->type != BERTH_ENCODING_NATIVE && options->double_quant)
        add(text, LOAD_OPTIONS_CAPACITY, " --double-quant");
    if (dtype_word(options->dtype) != NULL)
        add(text, LOAD_OPTIONS_CAPACITY, "%s--dtype %s", text[0] != '\0' ? " " : "",
            dtype_word(options->dtype));
    if (f->asked == NULL)
        add_plan_options(options, text);
}

static bool
uses_disk(const berth_plan *plan)
{
    berth_plan_tier tier;

    for (uint32_t i = 0; berth_plan_get_tier(plan, i, &tier) == BERTH_OK; i++)
        if (tier.kind == BERTH_TIER_DISK && tier.weights > 0)
            return true;
    return false;
}

/* Less of what was refused: the same plan would fail once more. */
static bool
takes_less(const load_failure *f, const berth_plan *plan)
{
    const int32_t kind =
        f->error->status == BERTH_ENOMEM ? BERTH_TIER_CPU : BERTH_TIER_GPU;
    uint64_t before = 0;
    uint64_t after = 0;
    berth_plan_tier tier;

    for (uint32_t i = 0; berth_plan_get_tier(f->plan, i, &tier) == BERTH_OK; i++)
        before += tier.kind == kind ? load_slab_bytes(&tier) : 0;
    for (uint32_t i = 0; berth_plan_get_tier(plan, i, &tier) == BERTH_OK; i++)
        after += tier.kind == kind ? load_slab_bytes(&tier) : 0;
    return after < before;
}

/* Fills `out` in any case. */
static bool
can_plan(const load_failure *f, const load_advice *advice, berth_context *context,
         load_other_plan *out, berth_error *refusal)
{
    berth_plan_options options = options_like(f);
    char list[LIST_CAPACITY] = "";
    berth_plan *plan = NULL;
    bool does_help;

    if (f->plan != NULL)
        list_budgets(f, advice, out->has_disk || has_disk(f), list);
    else if (options.max_memory != NULL)
        add(list, sizeof list, "%s", options.max_memory);
    if (out->has_disk)
        add(list, sizeof list, ",disk=inf");
    options.max_memory = list[0] != '\0' ? list : NULL;
    if (out->is_encoded)
        options.type = BERTH_ENCODING_NF4;
    describe(f, &options, out->options);
    does_help = berth_plan_create(context, f->checkpoint, &options, &plan, refusal)
                    == BERTH_OK
                && (f->plan == NULL || takes_less(f, plan));
    out->needs_file =
        does_help && options.type != BERTH_ENCODING_NATIVE && uses_disk(plan);
    berth_plan_destroy(plan);
    return does_help;
}

static void
try_plan(const load_failure *f, load_advice *advice, berth_context *context,
         bool is_encoded, bool has_disk_more)
{
    load_other_plan other = { .is_encoded = is_encoded, .has_disk = has_disk_more };
    berth_error refusal = { .status = BERTH_OK };

    if (can_plan(f, advice, context, &other, &refusal)) {
        advice->plans[advice->plan_count++] = other;
    } else if (refusal.status == BERTH_ENOFIT) {
        advice->refused = other;
        advice->refusal = refusal;
        advice->is_refused = true;
    }
}

/* Both changes together only where neither is enough. */
static void
try_plans(const load_failure *f, load_advice *advice, berth_context *context)
{
    const int32_t type = options_like(f).type;
    const bool can_encode = type == BERTH_ENCODING_NATIVE;
    const bool can_use_disk = !has_disk(f);

    if (f->plan != NULL)
        try_plan(f, advice, context, false, false);
    if (advice->plan_count > 0)
        return;
    if (can_encode)
        try_plan(f, advice, context, true, false);
    if (can_use_disk)
        try_plan(f, advice, context, false, true);
    if (advice->plan_count == 0 && can_encode && can_use_disk)
        try_plan(f, advice, context, true, true);
}

/* In a context of its own: the accounts are those of the failure. */
void
load_advise(const load_failure *f, load_advice *out)
{
    berth_context *context = NULL;

    memset(out, 0, sizeof *out);
    out->host_room = UINT64_MAX;
    if (berth_context_create(NULL, &context, NULL) == BERTH_OK)
        out->host_room = find_host_room(context);
    if (f->plan != NULL)
        out->has_shortage = is_short(f, out);
    if (context != NULL && f->checkpoint != NULL && (f->plan != NULL || f->asked != NULL))
        try_plans(f, out, context);
    berth_context_destroy(context);
}
