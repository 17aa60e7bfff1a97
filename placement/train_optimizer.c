/* SPDX-License-Identifier: Apache-2.0 */
/* train_optimizer.c - optimizers by their usual names, and their states. */
#include <string.h>

#include "kernels/optimizer.h"
#include "placement/estimate_lines.h"
#include "placement/train.h"

/* bitsandbytes: which tensors stay in f32 or unpaged. */
#define SMALL_ELEMENTS 4096u
#define PAGED_ELEMENTS 100000u
#define F32_BYTES 4u

#define AS_PARAMETER BERTHI_STATES_AS_PARAMETER

static const berthi_optimizer optimizers[] = {
    { "adamw_torch", 2, AS_PARAMETER, false, false, "adamw_8bit", "paged_adamw_32bit" },
    { "adamw", 2, AS_PARAMETER, false, false, "adamw_8bit", "paged_adamw_32bit" },
    { "adam", 2, AS_PARAMETER, false, false, "adamw_8bit", "paged_adamw_32bit" },
    { "adamw_hf", 2, AS_PARAMETER, false, false, "adamw_8bit", "paged_adamw_32bit" },
    { "adamw_torch_fused", 2, AS_PARAMETER, false, false, "adamw_8bit",
      "paged_adamw_32bit" },
    { "adamw_torch_8bit", 2, 8, false, false, NULL, "paged_adamw_8bit" },
    { "adamw_apex_fused", 2, 32, false, false, "adamw_8bit", "paged_adamw_32bit" },
    { "adamw_32bit", 2, 32, false, false, "adamw_8bit", "paged_adamw_32bit" },
    { "adamw_8bit", 2, 8, false, false, NULL, "paged_adamw_8bit" },
    { "adamw_bnb_8bit", 2, 8, false, false, NULL, "paged_adamw_8bit" },
    { "paged_adamw", 2, 32, true, false, "paged_adamw_8bit", NULL },
    { "paged_adamw_32bit", 2, 32, true, false, "paged_adamw_8bit", NULL },
    { "paged_adamw_8bit", 2, 8, true, false, NULL, NULL },
    { "ademamix", 3, 32, false, false, "ademamix_8bit", "paged_ademamix_32bit" },
    { "ademamix_8bit", 3, 8, false, false, NULL, "paged_ademamix_8bit" },
    { "paged_ademamix_32bit", 3, 32, true, false, "paged_ademamix_8bit", NULL },
    { "paged_ademamix_8bit", 3, 8, true, false, NULL, NULL },
    { "lion", 1, 32, false, false, "lion_8bit", "paged_lion_32bit" },
    { "lion_32bit", 1, 32, false, false, "lion_8bit", "paged_lion_32bit" },
    { "lion_8bit", 1, 8, false, false, NULL, "paged_lion_8bit" },
    { "paged_lion", 1, 32, true, false, "paged_lion_8bit", NULL },
    { "paged_lion_32bit", 1, 32, true, false, "paged_lion_8bit", NULL },
    { "paged_lion_8bit", 1, 8, true, false, NULL, NULL },
    { "sgd", 0, AS_PARAMETER, false, false, NULL, NULL },
    { "sgd_momentum", 1, AS_PARAMETER, false, false, "sgd_8bit", NULL },
    { "sgd_8bit", 1, 8, false, false, NULL, NULL },
    { "adafactor", 1, 32, false, true, NULL, NULL },
    { "adagrad", 1, AS_PARAMETER, false, false, "adagrad_8bit", NULL },
    { "adagrad_8bit", 1, 8, false, false, NULL, NULL },
    { "rmsprop", 1, AS_PARAMETER, false, false, "rmsprop_bnb_8bit", NULL },
    { "rmsprop_bnb", 1, 32, false, false, "rmsprop_bnb_8bit", NULL },
    { "rmsprop_bnb_32bit", 1, 32, false, false, "rmsprop_bnb_8bit", NULL },
    { "rmsprop_bnb_8bit", 1, 8, false, false, NULL, NULL },
};

const berthi_optimizer *
berthi_optimizer_at(uint32_t number)
{
    return number < sizeof optimizers / sizeof *optimizers ? &optimizers[number] : NULL;
}

const berthi_optimizer *
berthi_optimizer_find(const char *name)
{
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        if (strcmp(optimizers[i].name, name) == 0)
            return &optimizers[i];
    return NULL;
}

/* By what the name begins with, behind "paged_"; "adafactor" and plain "sgd" are none. */
int32_t
berthi_optimizer_kind(const berthi_optimizer *optimizer)
{
    static const struct {
        const char *begin;
        int32_t kind;
    } kinds[] = { { "ademamix", BERTH_UPDATE_ADEMAMIX }, { "adamw", BERTH_UPDATE_ADAMW },
                  { "adam", BERTH_UPDATE_ADAM },         { "lion", BERTH_UPDATE_LION },
                  { "sgd_", BERTH_UPDATE_MOMENTUM },     { "adagrad", BERTH_UPDATE_ADAGRAD },
                  { "rmsprop", BERTH_UPDATE_RMSPROP } };
    static const char paged[] = "paged_";
    const size_t skipped = sizeof paged - 1;
    const char *name = optimizer->name;

    if (strncmp(name, paged, skipped) == 0)
        name += skipped;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(name, kinds[i].begin, strlen(kinds[i].begin)) == 0)
            return kinds[i].kind;
    return -1;
}

/* Bytes of one state's numbers, and of what stands beside them, for one tensor. */
typedef struct state_bytes {
    uint64_t numbers;
    uint64_t absmax;
} state_bytes;

static state_bytes
state_of(const berthi_optimizer *optimizer, uint64_t elements, uint64_t parameter_bytes)
{
    switch (optimizer->bits) {
    case BERTHI_STATES_8:
        if (elements >= SMALL_ELEMENTS)
            return (state_bytes){ elements, berthi_update_absmax_bytes(elements) };
        return (state_bytes){ berthi_times(elements, F32_BYTES), 0 };
    case BERTHI_STATES_32: return (state_bytes){ berthi_times(elements, F32_BYTES), 0 };
    default: return (state_bytes){ berthi_times(elements, parameter_bytes), 0 };
    }
}

static void
add(uint64_t *sum, uint64_t count, uint64_t bytes)
{
    *sum = berthi_add_capped(*sum, berthi_times(count, bytes));
}

void
berthi_optimizer_add(const berthi_optimizer *optimizer, uint64_t rows, uint64_t columns,
                     uint64_t count, uint64_t parameter_bytes,
                     berthi_optimizer_bytes *sums)
{
    const uint64_t elements = berthi_times(rows, columns);
    state_bytes state;

    if (optimizer->is_factored) {
        const uint64_t sides = columns > 1 ? berthi_add_capped(rows, columns) : rows;

        add(&sums->device, count, berthi_times(sides, F32_BYTES));
        return;
    }
    state = state_of(optimizer, elements, parameter_bytes);
    state.numbers = berthi_times(state.numbers, optimizer->states);
    add(&sums->device, count, berthi_times(state.absmax, optimizer->states));
    if (optimizer->is_paged && elements >= PAGED_ELEMENTS) {
        add(&sums->host, count, state.numbers);
        sums->pages = berthi_max_u64(sums->pages, state.numbers);
    } else {
        add(&sums->device, count, state.numbers);
    }
}
