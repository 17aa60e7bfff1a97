/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_train.h - a plan for training: what is trained, where its states lie, what the
 * updates of a step cost.
 *
 *   what is trained
 *     │ plan_train.c        at home whatever happens: adapters, gradients, small states;
 *     │                     all states, where nothing has to be brought then
 *     ▼
 *   homes, weights          plan_fit.c, plan_place.c: what of the weights stays
 *     │ plan_train_place.c  states in what they leave, then host memory, then the disk
 *     ▼
 *   sums, times of updates  plan_train_sum.c, from the list of parameters alone
 *   times of passes         plan_train_pass.c, once: a file of the plan has them
 *   text                    plan_train_print.c, plan_train_parse.c
 *
 * Weights before states: a weight that is away is brought twice a step, forward and
 * backward, states once, and go back while others come.
 */
#ifndef BERTH_PLACEMENT_PLAN_TRAIN_H
#define BERTH_PLACEMENT_PLAN_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "placement/plan.h"
#include "placement/states.h"

typedef enum berthi_trained_part {
    BERTHI_TRAINED_WHOLE = 0,  /* the tensor itself         */
    BERTHI_TRAINED_LORA_A = 1, /* rank x its columns        */
    BERTHI_TRAINED_LORA_B = 2  /* its rows x rank           */
} berthi_trained_part;

/* A parameter of the optimizer. */
struct berthi_trained {
    uint64_t rows;
    uint64_t columns;  /* 1: a vector */
    uint32_t berth;    /* that it is, or adapts; the input's tensor */
    uint8_t part;      /* berthi_trained_part */
    uint8_t place;     /* berth_states_place */
    int8_t dtype;
};

/* Sums of so many of them stay below 2^64. */
#define BERTHI_TRAINED_ELEMENTS (UINT64_C(1) << 34)

/* What the planner is told. */
struct berthi_train_input {
    berth_plan_training about;        /* all but sums and predictions; borrowed texts */
    const berthi_trained *trained;    /* tensors ascending, in a tensor by part */
    uint32_t count;
    bool may_leave;                   /* states, their devices */
    uint64_t checkpoint_every;        /* layers; 0: all is kept */
};

struct berthi_plan_training {
    berth_plan_training about;
    berth_plan_training_tier *tiers;
    berthi_trained *trained;          /* about.parameter_count */
};

/* ------------------------------------------------------------------------ sizes */

/* What is kept of a parameter. */
berthi_states berthi_trained_states(const berth_plan_training *about,
                                    const berthi_trained *trained);
/* Its values, where it is none of the model's weights. */
uint64_t berthi_trained_adapter(const berthi_trained *trained);
uint64_t berthi_trained_gradient(const berth_plan_training *about,
                                 const berthi_trained *trained);
/* Small states stay with their parameter, as berth_optimizer_group has it. */
bool berthi_trained_can_leave(const berthi_trained *trained);
/* The tier that computes it. */
uint32_t berthi_trained_tier(const berth_plan *plan, const berthi_trained *trained);

/* --------------------------------------------------------------- parts of a plan */

/*
 * Sets what each layer and each device keep for training: with all states, or with
 * those that cannot leave and slots for the others.
 */
void berthi_plan_train_keep(berthi_plan_work *work, bool has_all_states);
/* Enough for all states, and for those that visit, wherever they lie. */
uint64_t berthi_plan_train_most(const berthi_train_input *train);
/* Places of all states; sums of the plan are made without them, and anew. */
berth_status berthi_plan_train_place(berthi_plan_work *work, berth_error *error);
/*
 * Memory for `count` parameters, which the caller lists; tiers are written by the sum.
 * False: there is none.
 */
bool berthi_plan_can_train(berth_plan *plan, uint64_t count);
/* How long passes take, where the plan is for training and laid out. */
void berthi_plan_train_predict(berthi_plan_work *work);
/* Sums of tiers, and times of updates, from parameters, homes and rates. */
void berthi_plan_train_sum(berth_plan *plan);
/* As snprintf() would write it. */
void berthi_trained_name(const berth_plan *plan, const berthi_trained *trained, char *text,
                         size_t capacity);

#endif
