/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trained.h - an optimizer with parameters on a device, and beside it what they and their
 * states have to be: updated on the host, each as a whole.
 */
#ifndef BERTH_TESTS_TRAINED_H
#define BERTH_TESTS_TRAINED_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/optimizer.h"
#include "loader/berth.h"

#define TRAINED_MAX 12u
#define TRAINED_GROUPS 4u

typedef struct trained_parameter {
    uint64_t count;
    int32_t dtype;
    int32_t gradient_dtype;
    uint32_t group;
    uint32_t device;
} trained_parameter;

struct berthi_cuda_calls;

typedef struct trained_options {
    const char *devices; /* words; NULL: the processor */
    const struct berthi_cuda_calls *cuda; /* what plays "cuda"; NULL: nothing does */
    const berth_optimizer_group *groups;
    uint32_t group_count;
    const trained_parameter *parameters;
    uint32_t count;
    const berth_optimizer_options *optimizer; /* `devices` is set here */
    uint64_t seed;
    bool has_sums; /* the caller's, with numbers that are none of it */
} trained_options;

/* Of one parameter. */
typedef struct trained_twin {
    char name[24];
    void *values;    /* the optimizer's, on the device */
    void *gradient;
    void *host_gradient;
    float *sum;      /* on the device; NULL: the optimizer's */
    void *expected;  /* values, and all below, on the host */
    float *master;   /* NULL: none */
    berthi_update_state state[3];
    uint64_t step;
} trained_twin;

typedef struct trained {
    berth_context *context;
    berth_devices *devices;
    berth_optimizer *optimizer;
    berth_optimizer_group groups[TRAINED_GROUPS];
    trained_parameter parameters[TRAINED_MAX];
    trained_twin twins[TRAINED_MAX];
    uint32_t count;
    uint64_t random;
    uint64_t not_finite; /* gradients of the last step, so far as they were used */
} trained;

/* With decay and large steps; states of 8 bits from 1000 elements on. */
berth_optimizer_group trained_group(int32_t kind, int32_t bits, int32_t place);

/* As it is by itself. */
berth_optimizer_group trained_adamw(void);
/* The same with masters, states in a place. */
berth_optimizer_group trained_group_at(int32_t place);
/* Small pages, files in a folder, sums of its own. */
berth_optimizer_options trained_optimizer(const char *folder);
extern const trained_parameter trained_three[3];

/* What an optimizer is made of: twins' values, names and shapes. */
void trained_list(const trained *t, berth_parameter *out);

/* False after a failed check. Ends with trained_close() in any case. */
bool trained_open(trained *t, berth_context *context, const trained_options *options);
/* The same with these three, in that place. */
bool trained_open_at(trained *t, berth_context *context, const char *folder,
                     const char *machine, int32_t place);
/* The optimizer alone is made anew, states zero; twins' states too. */
void trained_close(trained *t);

/* New gradients for those parameters that have their bit in `mask`. */
void trained_draw(trained *t, uint32_t mask, bool has_odd_ones);
/* `mask`'s gradients, for berth_optimizer_step(). */
void trained_gradients(const trained *t, uint32_t mask, berth_gradient *out);
/* What a step with these gradients and this scale makes of the twins. */
void trained_expect(trained *t, uint32_t mask, float scale);
/* Draws, steps and expects. */
void trained_step(trained *t, uint32_t mask, bool has_odd_ones);
/* The device has the values that it has to have, as from a caller's own file of them. */
void trained_put_values(const trained *t);
/* What has been added up in the caller's own memory, `count` of them. */
void trained_read_sum(const trained *t, uint32_t i, float *out);
/* Checks every value and every state. */
void trained_check(trained *t);

uint64_t trained_random(trained *t, uint64_t below);

#endif
