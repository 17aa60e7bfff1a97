/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_check.c - plans held against a checkpoint, and against what memories have. The
 * former: plan_check_contents.c.
 */
#include <string.h>

#include "loader/plan_checking.h"

void
berthi_checking_tell_error(checking *c, const berth_error *details)
{
    if (c->status == BERTH_OK) {
        c->status = details->status;
        if (c->error != NULL)
            *c->error = *details;
    }
    berthi_findings_tell(&c->findings, BERTH_SEVERITY_ERROR, details);
}

void
berthi_checking_tell(checking *c, berth_reason reason, const berthi_about *about,
                     const char *message)
{
    berth_error details;

    (void)berthi_fail(&details, reason, about, "%s", message);
    berthi_checking_tell_error(c, &details);
}

/* What a plan is held against as it would be made of `max_memory`. */
static berth_plan_options
options_like(const berth_plan *plan, const char *max_memory)
{
    const berth_plan_summary *const summary = &plan->summary;
    berth_plan_options options;

    berth_plan_options_init(&options);
    options.max_memory = max_memory;
    options.rank = summary->rank;
    options.ranks = summary->ranks;
    options.stacks = summary->stacks;
    options.context = plan->training == NULL ? summary->context : 0;
    options.batch = summary->batch;
    options.cache_dtype = summary->cache_dtype;
    return options;
}

static void
check_budget(checking *c, const berth_plan_tier *tier, uint64_t budget)
{
    const uint64_t taken = berthi_plan_taken(tier);

    if (budget == UINT64_MAX || taken <= budget)
        return;
    berthi_checking_tell(c, BERTH_REASON_NO_FIT,
                         &(berthi_about){ .tensor = tier->name,
                                          .tensor_length = strlen(tier->name),
                                          .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                                 | BERTH_HAS_BYTES,
                                          .expected = taken,
                                          .actual = budget },
                         "is asked for more than it may hold");
}

/*
 * A tier without a budget. Nobody plans for GPUs unasked; a plan for those of this machine can
 * be held against them.
 */
static berth_status
check_missing(checking *c, const berthi_plan_source *source, const berth_plan_tier *tier)
{
    berthi_tier parsed;
    uint64_t bytes = UINT64_MAX;
    berth_status status = BERTH_OK;

    if (berthi_plan_taken(tier) <= tier->reserve)
        return BERTH_OK;
    (void)berthi_tier_can_parse(tier->name, strlen(tier->name), &parsed);
    if (source->options->max_memory == NULL && parsed.kind == BERTHI_TIER_GPU)
        status = berthi_plan_free_gpu(source->context, &parsed, &bytes, c->error);
    if (status == BERTH_OK && bytes == UINT64_MAX)
        berthi_checking_tell(c, BERTH_REASON_NO_TIER,
                             &(berthi_about){ .tensor = tier->name,
                                              .tensor_length = strlen(tier->name) },
                             "is not here");
    check_budget(c, tier, bytes);
    return status;
}

/* The plan's own budgets, and those given or found. */
static berth_status
check_budgets(checking *c, const berthi_plan_source *source)
{
    berth_status status = BERTH_OK;

    for (uint32_t t = 0; t < c->plan->summary.tier_count && status == BERTH_OK; t++) {
        const berth_plan_tier *const tier = &c->plan->tiers[t];
        berthi_tier parsed;
        uint32_t given;

        check_budget(c, tier, tier->budget);
        if (!c->has_budgets)
            continue;
        (void)berthi_tier_can_parse(tier->name, strlen(tier->name), &parsed);
        given = berthi_plan_find_tier(source, &parsed);
        if (given == BERTHI_NO_TIER)
            status = check_missing(c, source, tier);
        else if (source->tiers[given].budget < tier->budget)
            check_budget(c, tier, source->tiers[given].budget);
    }
    return status;
}

static berth_status
check_all(checking *c, berthi_plan_source *source)
{
    berth_error details;
    berth_status status = BERTH_OK;

    if (berthi_plan_check_digest(c->plan, source->checkpoint,
                                 source->input.summary.digest, &details)
        == BERTH_OK)
        status = berthi_checking_contents(c, source);
    else
        berthi_checking_tell_error(c, &details);
    return status == BERTH_OK ? check_budgets(c, source) : status;
}

/* With what a plan of `max_memory` would be made of. */
static berth_status
run_check(checking *c, berth_context *context, const berth_checkpoint *checkpoint,
          const char *max_memory, berth_status (*check)(checking *, berthi_plan_source *))
{
    const berth_plan_options options = options_like(c->plan, max_memory);
    berthi_plan_source source;
    berth_status status =
        berthi_plan_source_init(&source, context, checkpoint, &options, c->error);

    if (status != BERTH_OK)
        return status;
    status = check(c, &source);
    berthi_plan_source_fini(&source);
    return status != BERTH_OK ? status : c->status;
}

berth_status
berthi_plan_hold(const berth_plan *plan, berth_context *context,
                 const berth_checkpoint *checkpoint, berth_error *error)
{
    const berth_open_options nobody = { .finding = NULL };
    checking c = { .plan = plan, .error = error };
    berth_status status;

    berthi_findings_init(&c.findings, context, &nobody);
    status = run_check(&c, context, checkpoint, "disk=inf", berthi_checking_contents);
    berthi_findings_fini(&c.findings);
    return status;
}

berth_status
berth_plan_check(const berth_plan *plan, berth_context *context,
                 const berth_checkpoint *checkpoint, const char *max_memory,
                 berth_finding_function finding, void *finding_user, berth_error *error)
{
    const bool has_budgets = max_memory == NULL || max_memory[0] != '\0';
    const berth_open_options listener = { .finding = finding,
                                          .finding_user = finding_user };
    checking c = { .plan = plan, .has_budgets = has_budgets, .error = error };
    berth_status status;

    berthi_error_clear(error);
    if (plan == NULL)
        return berthi_fail_argument(error, "plan", "is NULL");
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    if (checkpoint == NULL)
        return berthi_fail_argument(error, "checkpoint", "is NULL");
    berthi_findings_init(&c.findings, context, &listener);
    status = run_check(&c, context, checkpoint, has_budgets ? max_memory : "disk=inf",
                       check_all);
    berthi_findings_fini(&c.findings);
    return status;
}
