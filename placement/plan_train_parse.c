/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_train_parse.c - the part of a plan's JSON that is about training. What is read is
 * the list of parameters, and times of passes; sums and times of updates are made anew.
 */
#include <string.h>

#include "kernels/number.h"
#include "placement/plan_json.h"
#include "placement/plan_read.h"
#include "placement/plan_train.h"
#include "placement/train.h"
#include "quant/format.h"
#include "quant/stored.h"

#define LEAST_PAGE UINT64_C(512)
#define LARGEST_PAGE (UINT64_C(1) << 24)

static bool
can_skip(berthi_members *m, const char *key)
{
    return berthi_members_can_read_key(m, key) && berthi_scan_can_skip(&m->scan);
}

/* -------------------------------------------------------------------------- head */

static bool
can_take_optimizer(berthi_members *m, berth_plan_training *about)
{
    const berthi_optimizer *const optimizer = berthi_optimizer_find(about->optimizer);

    if (optimizer == NULL || berthi_optimizer_kind(optimizer) < 0)
        return berthi_members_stop(m, "an optimizer that berth has not");
    about->kind = berthi_optimizer_kind(optimizer);
    about->bits = optimizer->bits == BERTHI_STATES_8 ? 8 : 32;
    about->has_master = about->precision == BERTH_TRAIN_MASTER;
    return true;
}

static bool
can_read_head(berthi_members *m, berth_plan_training *about)
{
    bool is_f32;

    if (!berthi_plan_can_read_word(m, "method", berthi_plan_method_word, &about->method)
        || !berthi_plan_can_read_word(m, "precision", berthi_plan_precision_word,
                                      &about->precision)
        || !berthi_members_can_read_text(m, "optimizer", &about->optimizer)
        || !can_take_optimizer(m, about)
        || !berthi_members_can_read_number(m, "rank", &about->rank)
        || !berthi_members_can_read_text(m, "targets", &about->targets)
        || !berthi_members_can_read_bool(m, "accumulate_f32", &is_f32)
        || !berthi_members_can_read_number(m, "page_bytes", &about->page_bytes))
        return false;
    about->accumulates_f32 = is_f32;
    if (about->page_bytes < LEAST_PAGE || about->page_bytes > LARGEST_PAGE
        || (about->page_bytes & (about->page_bytes - 1)) != 0)
        return berthi_members_stop(m, "pages of memory are powers of two");
    return true;
}

/* -------------------------------------------------------------------- parameters */

static bool
has_tier(const berth_plan *plan, int32_t kind)
{
    for (uint32_t t = 0; t < plan->summary.tier_count; t++)
        if (plan->tiers[t].kind == kind)
            return true;
    return false;
}

/* In order, of a tensor that there is, in parts that its method has. */
static bool
can_belong(berthi_members *m, const berth_plan *plan, const berthi_trained *before,
           const berthi_trained *trained)
{
    const bool is_whole = trained->part == BERTHI_TRAINED_WHOLE;

    if (plan->berths[trained->berth].is_tied)
        return berthi_members_stop(m, "a tied tensor is trained where its bytes are");
    if (is_whole != (plan->training->about.method == BERTH_TRAIN_FULL))
        return berthi_members_stop(m, "a part that this method does not train");
    if (before != NULL && (before->berth > trained->berth
                           || (before->berth == trained->berth
                               && before->part >= trained->part)))
        return berthi_members_stop(m, "parameters are out of order");
    return true;
}

/* An adapter's B follows its A, and nothing else does. */
static bool
is_pair(const berthi_trained *before, const berthi_trained *trained)
{
    const bool is_due = before != NULL && before->part == BERTHI_TRAINED_LORA_A;
    const bool is_b = trained != NULL && trained->part == BERTHI_TRAINED_LORA_B;

    return is_due == is_b && (!is_b || before->berth == trained->berth);
}

/* Where updates can be made, and states be. */
static bool
can_lie(berthi_members *m, const berth_plan *plan, const berthi_trained *trained)
{
    const uint32_t tier = berthi_trained_tier(plan, trained);
    const int32_t kind = plan->tiers[tier].kind;
    const bool is_home = tier == plan->layers[plan->berths[trained->berth].layer].out.home;

    if (kind != BERTH_TIER_GPU && (kind != BERTH_TIER_CPU || !is_home))
        return berthi_members_stop(m, "what is trained lies where it is computed");
    if (trained->place != BERTH_STATES_DEVICE && !berthi_trained_can_leave(trained))
        return berthi_members_stop(m, "states of fewer than 4096 elements stay");
    if (trained->place == BERTH_STATES_HOST
        && (kind != BERTH_TIER_GPU || !has_tier(plan, BERTH_TIER_CPU)))
        return berthi_members_stop(m, "there is no host memory beside the device");
    if (trained->place == BERTH_STATES_DISK && !has_tier(plan, BERTH_TIER_DISK))
        return berthi_members_stop(m, "there is no disk");
    return true;
}

static bool
can_read_size(berthi_members *m, const char *key, uint64_t *out)
{
    if (!berthi_members_can_read_number(m, key, out))
        return false;
    return *out > 0 || berthi_members_stop(m, "a parameter has elements");
}

static bool
can_read_parameter(berthi_members *m, berth_plan *plan, const berthi_trained *before,
                   berthi_trained *out)
{
    const char *text;
    uint64_t berth;
    int32_t part;
    int32_t place;

    if (!berthi_scan_can_enter_object(&m->scan)
        || !berthi_members_can_read_below(m, "berth", plan->summary.berth_count, &berth)
        || !berthi_plan_can_read_word(m, "part", berthi_plan_part_word, &part)
        || !can_skip(m, "name") || !can_read_size(m, "rows", &out->rows)
        || !can_read_size(m, "columns", &out->columns)
        || !berthi_members_can_read_text(m, "dtype", &text))
        return false;
    out->dtype = (int8_t)berthi_format_dtype(text, strlen(text));
    if (!berthi_is_number(out->dtype))
        return berthi_members_stop(m, "a parameter is bf16, f16 or f32");
    if (out->rows > BERTHI_TRAINED_ELEMENTS / out->columns)
        return berthi_members_stop(m, "more elements than a parameter has");
    if (!berthi_plan_can_read_word(m, "states", berthi_plan_place_word, &place))
        return false;
    out->berth = (uint32_t)berth;
    out->part = (uint8_t)part;
    out->place = (uint8_t)place;
    if (!can_belong(m, plan, before, out))
        return false;
    if (!is_pair(before, out))
        return berthi_members_stop(m, "an adapter is an A and, behind it, a B");
    return can_lie(m, plan, out) && berthi_members_is_at_end(m);
}

static bool
can_read_parameters(berthi_members *m, berth_plan *plan)
{
    berthi_trained *const trained = plan->training->trained;
    const uint64_t most = 2 * plan->summary.berth_count;
    uint64_t count;
    uint64_t read = 0;

    if (!berthi_members_can_enter_array(m, "parameters", &count))
        return false;
    if (count == 0 || count > most)
        return berthi_members_stop(m, "a tensor has one or two parameters");
    while (berthi_scan_has_next_element(&m->scan)) {
        if (!can_read_parameter(m, plan, read > 0 ? &trained[read - 1] : NULL,
                                &trained[read]))
            return false;
        read++;
    }
    if (m->scan.problem == NULL && !is_pair(&trained[read - 1], NULL))
        return berthi_members_stop(m, "an adapter is an A and, behind it, a B");
    plan->training->about.parameter_count = read;
    return m->scan.problem == NULL;
}

static bool
can_read_passes(berthi_members *m, const berth_plan *plan)
{
    berth_plan_training *const about = &plan->training->about;

    return berthi_members_can_read_key(m, "passes")
           && berthi_scan_can_enter_object(&m->scan)
           && berthi_plan_can_read_time(m, "forward", &about->forward_seconds)
           && berthi_plan_can_read_time(m, "backward", &about->backward_seconds)
           && berthi_plan_can_read_word(m, "bound", berthi_plan_bound_word,
                                        &about->pass_bound)
           && berthi_plan_can_read_tier(m, plan, "bound_tier", &about->pass_bound_tier)
           && berthi_members_can_read_number(m, "link_bytes", &about->pass_link_bytes)
           && berthi_members_can_read_number(m, "disk_bytes", &about->pass_disk_bytes)
           && berthi_members_is_at_end(m);
}

bool
berthi_plan_can_read_training(berthi_members *m, berth_plan *plan)
{
    berthi_arena *const scratch = m->arena;
    bool is_there;
    bool is_read;

    if (!berthi_members_can_find_key(m, "training", &is_there))
        return false;
    if (!is_there)
        return true;
    if (plan->summary.stacks == BERTH_STACKS_APART)
        return berthi_members_stop(m, "stacks stay whole for training");
    if (!berthi_plan_can_train(plan, 2 * plan->summary.berth_count))
        return berthi_members_stop_memory(m);
    m->arena = &plan->arena; /* these stay */
    is_read = berthi_scan_can_enter_object(&m->scan)
              && can_read_head(m, &plan->training->about);
    m->arena = scratch;
    return is_read && can_skip(m, "tiers") && can_read_parameters(m, plan)
           && can_skip(m, "predicted") && can_read_passes(m, plan)
           && berthi_members_is_at_end(m);
}
