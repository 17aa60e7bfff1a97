/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer.h - one update of one parameter: its gradient goes in, the parameter
 * and the states that the optimizer keeps for it are changed in place.
 *
 * Data        A parameter is a flat array of `count` elements; so are its gradient
 *             and each state. States have 32 bits, or 8: codes of a dynamic map,
 *             one absmax per block of BERTHI_UPDATE_BLOCK elements, the last block
 *             short. State 2 has the unsigned map, states 1 and 3 the signed one. All
 *             zero bytes are the states of a parameter that was never updated. (Of
 *             AdEMAMix' two means the published layout has the slow one, state 3,
 *             behind the fast one: state1 is both, and so is absmax1.)
 * Ownership   Everything is the caller's, on the device that updates. Nothing is
 *             allocated, nothing kept.
 * Bits        core_optimizer.h defines them; they are the same on every level and
 *             device and do not depend on how a parameter is shared out. The order
 *             of operations, the fused ones among them, is that of the published
 *             library's CUDA kernels; where those approximate (division, square
 *             root, powers) this rounds correctly, so that there can be one answer.
 *             Subnormal numbers are kept within an update; a block whose largest
 *             one is subnormal becomes zero, so that unused rows end up there.
 * Decay       One that shrinks the parameter does so after the step, with a
 *             rounding of its own, as on CUDA; Lion's goes first. (The published
 *             CPU code shrinks first and rounds once; a run would not notice, and
 *             a second form would only be a second set of bits.)
 * Non-finite  A gradient that is NaN or infinite leaves the element of the
 *             parameter untouched, sets its states to zero and is counted. Every
 *             NaN that an update makes is 0x7FFFFFFF, or 0x7FFF.
 */
#ifndef BERTH_KERNELS_OPTIMIZER_H
#define BERTH_KERNELS_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"

#define BERTHI_UPDATE_BLOCK 256u /* elements of an 8-bit state that share an absmax */

/* Bytes of the absmax of one 8-bit state, whose codes have as many bytes as elements. */
static inline uint64_t
berthi_update_absmax_bytes(uint64_t elements)
{
    return berthi_divide_up(elements, BERTHI_UPDATE_BLOCK) * sizeof(float);
}

/*
 * X(IDENTIFIER, "name", states, decay enters the gradient as published, rate, beta1,
 *   beta2, epsilon, decay, beta3, alpha): the published defaults; RMSprop's alpha is its
 *   beta1.
 */
#define BERTHI_UPDATE_KINDS(X)                                                             \
    X(ADAM, "adam", 2, false, 1e-3f, 0.9f, 0.999f, 1e-8f, 0.0f, 0.0f, 0.0f)                \
    X(ADAMW, "adamw", 2, false, 1e-3f, 0.9f, 0.999f, 1e-8f, 1e-2f, 0.0f, 0.0f)             \
    X(LION, "lion", 1, false, 1e-4f, 0.9f, 0.99f, 0.0f, 0.0f, 0.0f, 0.0f)                  \
    X(MOMENTUM, "momentum", 1, true, 1e-3f, 0.9f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f)            \
    X(RMSPROP, "rmsprop", 1, true, 1e-2f, 0.99f, 0.0f, 1e-8f, 0.0f, 0.0f, 0.0f)            \
    X(ADAGRAD, "adagrad", 1, true, 1e-2f, 0.0f, 0.0f, 1e-10f, 0.0f, 0.0f, 0.0f)            \
    X(ADEMAMIX, "ademamix", 3, false, 1e-3f, 0.9f, 0.999f, 1e-8f, 1e-2f, 0.9999f, 5.0f)

typedef enum berthi_update_kind {
#define BERTHI_UPDATE_ENUM(identifier, ...) BERTHI_UPDATE_##identifier,
    BERTHI_UPDATE_KINDS(BERTHI_UPDATE_ENUM)
#undef BERTHI_UPDATE_ENUM
        BERTHI_UPDATE_KIND_COUNT
} berthi_update_kind;

#define BERTHI_UPDATE_STATES 3u /* that a kind has at most */

/* What a group of parameters is updated with; any of it may change from step to step. */
typedef struct berthi_update_settings {
    int32_t kind;    /* berthi_update_kind                                             */
    bool is_coupled; /* decay enters the gradient (L2); false: it shrinks the parameter */
    float rate;
    float beta1;
    float beta2;
    float epsilon;
    float decay;     /* 0: none                                                        */
    float scale;     /* of the gradient: 1, 1 / loss scale, what clips the global norm */
    float beta3;     /* AdEMAMix: of its slow mean                                     */
    float alpha;     /* and how much that counts                                       */
    uint64_t beta3_steps; /* over which beta3 rises from beta1, as published; 0: none  */
    uint64_t alpha_steps; /* over which alpha rises from 0                             */
} berthi_update_settings;

/* The published defaults of a kind, scale 1. */
berthi_update_settings berthi_update_defaults(berthi_update_kind kind);
/* "adamw", ...; "unknown" for a number that is none. */
const char *berthi_update_name(berthi_update_kind kind);
/* 1 to BERTHI_UPDATE_STATES. */
uint32_t berthi_update_states(berthi_update_kind kind);
/* Whether a state has the signed map; counted from 0, as all arrays of states are. */
bool berthi_update_is_signed(uint32_t state);

/* What is the same for all elements: made here, for every level and device. */
typedef struct berthi_update_constants {
    int32_t kind;
    bool is_first;    /* step 1 */
    bool is_coupled;  /* there is a decay, and it enters the gradient                 */
    bool is_shrunk;   /* there is a decay, and it shrinks the parameter               */
    float scale;
    float rate;
    float decay;
    float shrink;     /* 1 - rate * decay, fused                                      */
    float beta1;
    float beta2;
    float rest1;      /* 1 - beta1 */
    float rest2;
    float epsilon;
    float correction; /* Adam, AdEMAMix: c2, the square root of 1 - beta2^step        */
    float eta;        /* Adam: -(c2 * rate) / (1 - beta1^step)                        */
    float correction1; /* AdEMAMix: 1 - beta1^step                                    */
    float beta3;
    float rest3;
    float alpha;
} berthi_update_constants;

/* `step` counts from 1: it is incremented before the update. */
berthi_update_constants berthi_update_constants_of(const berthi_update_settings *settings,
                                                   uint64_t step);

/* One state of a parameter: in 32 bits or in 8. */
typedef struct berthi_update_state {
    float *values;  /* 32 bits; NULL: 8 bits, by the others */
    uint8_t *codes;
    float *absmax;  /* one per block */
} berthi_update_state;

/* Nothing overlaps anything else. */
typedef struct berthi_update_arguments {
    uint64_t count;
    void *parameter;
    int32_t dtype;          /* of the parameter: BERTH_BF16, BERTH_F16 or BERTH_F32    */
    int32_t gradient_dtype; /* the same three, on its own: an accumulated one is f32   */
    const void *gradient;
    float *master;          /* what is updated, in f32, the parameter being its rounded
                               copy; NULL: the parameter itself                        */
    berthi_update_state state[BERTHI_UPDATE_STATES]; /* those the kind has; all of the
                               same size                                               */
} berthi_update_arguments;

/*
 * The elements [first, first + count) as a parameter of their own, for one of several
 * threads: the results are the same. `first` is a multiple of BERTHI_UPDATE_BLOCK, and
 * so is `count` unless the share is the last one.
 */
berthi_update_arguments berthi_update_share(const berthi_update_arguments *arguments,
                                            uint64_t first, uint64_t count);

/* BERTH_OK, or UNSUPPORTED: a kind, a dtype or a state that there is not. */
berth_status berthi_update_check(const berthi_update_arguments *arguments,
                                 const berthi_update_constants *constants,
                                 berth_error *error);

/* What a device is asked for. Two that may be done at once count in two places. */
typedef struct berthi_update_request {
    berthi_update_arguments arguments;
    berthi_update_constants constants;
    uint64_t *not_finite; /* how many gradients are not is added to it */
} berthi_update_request;

/* The update, by plain loops; returns how many gradients were not finite. */
uint64_t berthi_update_plainly(const berthi_update_arguments *arguments,
                               const berthi_update_constants *constants);

/*
 * The end of a block's update: values -> codes and absmax. A block has all its 256
 * values, though only `count` codes are stored: where a tensor ends within it the
 * others take part in the maximum. For levels: what is rare comes here.
 */
void berthi_update_encode(const float *values, bool is_signed, uint32_t count,
                          uint8_t *codes, float *absmax);

/* A whole state in both sizes, of which one is made of the other. */
typedef struct berthi_state_arguments {
    uint64_t count;
    bool is_signed; /* its map: berthi_update_is_signed() */
    float *values;
    uint8_t *codes;
    float *absmax;
} berthi_state_arguments;

/*
 * By plain loops. What an update reads is what it would have kept of these values, but
 * that where a tensor ends within a block there are zeros behind it.
 */
void berthi_encode_state_plainly(const berthi_state_arguments *arguments);
void berthi_decode_state_plainly(const berthi_state_arguments *arguments);

#endif
