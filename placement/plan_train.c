/* SPDX-License-Identifier: Apache-2.0 */
/* plan_train.c - sizes of what is trained, and what of it is at home in any case. */
#include "placement/plan_train.h"

#include <stdio.h>
#include <string.h>

#include "kernels/optimizer.h"
#include "quant/format.h"

/* ------------------------------------------------------------------------ sizes */

berthi_states
berthi_trained_states(const berth_plan_training *about, const berthi_trained *trained)
{
    const uint64_t elements = trained->rows * trained->columns;

    return (berthi_states){
        .elements = elements,
        .page_elements = BERTHI_STATES_PAGE,
        .count = berthi_update_states((berthi_update_kind)about->kind),
        .bits = elements < BERTHI_STATES_LEAST_8BIT ? 32 : about->bits,
        .has_master = about->has_master != 0 && trained->dtype != BERTH_F32,
    };
}

static uint64_t
values_of(const berthi_trained *trained)
{
    return trained->rows * trained->columns * berthi_format_element_bytes(trained->dtype);
}

uint64_t
berthi_trained_adapter(const berthi_trained *trained)
{
    return trained->part != BERTHI_TRAINED_WHOLE ? values_of(trained) : 0;
}

uint64_t
berthi_trained_gradient(const berth_plan_training *about, const berthi_trained *trained)
{
    return about->accumulates_f32 != 0 ? trained->rows * trained->columns * sizeof(float)
                                       : values_of(trained);
}

bool
berthi_trained_can_leave(const berthi_trained *trained)
{
    return trained->rows * trained->columns >= BERTHI_STATES_LEAST_8BIT;
}

uint32_t
berthi_trained_tier(const berth_plan *plan, const berthi_trained *trained)
{
    const berthi_berth *const berth = &plan->berths[trained->berth];

    return trained->part == BERTHI_TRAINED_WHOLE ? berth->tier
                                                 : plan->layers[berth->layer].out.home;
}

/* ------------------------------------------------------------------------- names */

static const char weight_end[] = ".weight";
#define WEIGHT_END (sizeof weight_end - 1)

/* Of a name of this length, whose text may have been cut. */
static bool
ends_in_weight(const berth_plan *plan, uint32_t berth, uint64_t length)
{
    const berthi_plan_layer *const layer = &plan->layers[plan->berths[berth].layer];
    const char *const end = plan->texts + plan->berths[berth].name;

    if (length <= WEIGHT_END)
        return false;
    for (uint64_t i = 0; i < WEIGHT_END; i++) {
        const uint64_t at = length - WEIGHT_END + i;
        const char letter = at < layer->prefix_length ? layer->prefix[at]
                                                      : end[at - layer->prefix_length];

        if (letter != weight_end[i])
            return false;
    }
    return true;
}

void
berthi_trained_name(const berth_plan *plan, const berthi_trained *trained, char *text,
                    size_t capacity)
{
    static const char *const ends[] = { "", ".lora_A.weight", ".lora_B.weight" };
    uint64_t length = berthi_plan_name(plan, trained->berth, text, capacity);

    if (trained->part == BERTHI_TRAINED_WHOLE)
        return;
    if (ends_in_weight(plan, trained->berth, length))
        length -= WEIGHT_END;
    if (length < capacity)
        (void)snprintf(text + length, capacity - length, "%s", ends[trained->part]);
}

/* -------------------------------------------------------------------------- home */

static bool
is_gpu(const berthi_plan_work *work, uint32_t tier)
{
    return work->input->tiers[tier].tier.kind == BERTHI_TIER_GPU;
}

void
berthi_plan_train_keep(berthi_plan_work *work, bool has_all_states)
{
    const berthi_plan_input *const input = work->input;
    const berthi_train_input *const train = input->train;
    uint64_t page = 0; /* the largest that may visit a device */

    memset(work->kept, 0, input->layer_count * sizeof *work->kept);
    for (uint32_t i = 0; i < train->count; i++) {
        const berthi_trained *const trained = &train->trained[i];
        const berthi_states states = berthi_trained_states(&train->about, trained);
        const bool is_home = has_all_states || !berthi_trained_can_leave(trained);

        work->kept[input->tensors[trained->berth].layer] +=
            berthi_trained_adapter(trained)
            + berthi_trained_gradient(&train->about, trained)
            + (is_home ? berthi_states_bytes(&states) : 0);
        if (!is_home)
            page = berthi_max_u64(page, berthi_states_page_bytes(&states));
    }
    for (uint32_t d = 0; d < work->device_count; d++)
        work->own[d] =
            is_gpu(work, d)
                ? berthi_states_scratch_bytes(BERTHI_STATES_PAGE)
                      + BERTHI_STATES_SLOTS * berthi_states_slot_bytes(page)
                : BERTHI_STATES_BUFFERS
                      * berthi_states_buffer_bytes(page, train->about.page_bytes);
}

uint64_t
berthi_plan_train_most(const berthi_train_input *train)
{
    uint64_t all = 0;
    uint64_t page = 0;

    for (uint32_t i = 0; i < train->count; i++) {
        const berthi_states states = berthi_trained_states(&train->about, &train->trained[i]);

        all = berthi_add_capped(all, berthi_states_bytes(&states));
        page = berthi_max_u64(page, berthi_states_page_bytes(&states));
    }
    return berthi_add_capped(all,
                             BERTHI_STATES_BUFFERS
                                 * berthi_states_buffer_bytes(page, train->about.page_bytes));
}

bool
berthi_plan_can_train(berth_plan *plan, uint64_t count)
{
    const uint64_t tiers = plan->summary.tier_count;
    berthi_plan_training *const training =
        berthi_arena_alloc(&plan->arena, sizeof *training, 16);

    if (training == NULL)
        return false;
    memset(training, 0, sizeof *training);
    training->tiers = berthi_arena_alloc(&plan->arena, tiers * sizeof *training->tiers, 8);
    training->trained =
        berthi_arena_alloc(&plan->arena, count * sizeof *training->trained, 8);
    if (training->tiers == NULL || training->trained == NULL)
        return false;
    plan->training = training;
    return true;
}
