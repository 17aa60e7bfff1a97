/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_adapt.c - what the training run stands on: a forward that has the reference library's
 * logits, a backward that has the slopes of the loss, files that PEFT's names are in.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/adapt.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define TOLERANCE 1e-4 /* of logits: sums are ordered differently */
#define RANK 4u
#define TOKENS 12u

static const uint32_t text[TOKENS + 1] = { 3, 40, 7, 99, 40, 7, 150, 3, 3, 81, 12, 7, 40 };

static berth_context *
open_context(void)
{
    berth_context *context = NULL;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    return context;
}

/* One tensor of a file, whole; free() it. */
static void *
read_tensor(berth_context *context, const char *path, const char *name, uint64_t *bytes)
{
    berth_checkpoint *checkpoint;
    berth_tensor tensor;
    uint64_t index;
    void *data = NULL;

    *bytes = 0;
    if (!CHECK_EQ(berth_checkpoint_open(context, path, NULL, &checkpoint, NULL), BERTH_OK))
        return NULL;
    index = berth_checkpoint_find(checkpoint, name, strlen(name));
    if (CHECK_EQ(berth_checkpoint_tensor(checkpoint, index, &tensor), BERTH_OK)) {
        *bytes = tensor.bytes;
        data = malloc(tensor.bytes);
        CHECK_EQ(berth_checkpoint_read(checkpoint, index, 0, UINT64_MAX, data, tensor.bytes,
                                       NULL),
                 BERTH_OK);
    }
    berth_checkpoint_close(checkpoint);
    return data;
}

/* ------------------------------------------------------------------------ forward */

/* Recorded by transformers with the weights that its own NF4 dequantizes to. */
static void
test_forward_is_the_librarys(void)
{
    berth_context *const context = open_context();
    uint64_t id_bytes;
    uint64_t bytes;
    int64_t *const ids =
        read_tensor(context, ADAPT_MODEL ".logits.safetensors", "input_ids", &id_bytes);
    float *const wanted =
        read_tensor(context, ADAPT_MODEL ".logits.safetensors", "nf4_dequant_fp32", &bytes);
    const uint32_t count = (uint32_t)(id_bytes / sizeof *ids);
    uint32_t prompt[ADAPT_TOKENS_MAX];
    double largest = 0;
    adapted m;

    adapt_open(&m, context, ADAPT_MODEL, RANK, 8, count, 1);
    for (uint32_t i = 0; i < count; i++)
        prompt[i] = (uint32_t)ids[i];
    adapt_forward(&m, prompt, count);
    if (CHECK_EQ(bytes, (uint64_t)count * m.config.vocab * sizeof *wanted))
        for (uint64_t i = 0; i < (uint64_t)count * m.config.vocab; i++)
            largest = fmax(largest, fabs((double)m.logits[i] - (double)wanted[i]));
    if (!CHECK(largest <= TOLERANCE))
        T_NOTE("%g", largest);
    adapt_close(&m);
    free(ids);
    free(wanted);
    berth_context_destroy(context);
}

/* ----------------------------------------------------------------------- backward */

/* Nothing at its beginning, where half of the gradients are zero. */
static void
shake(adapted *m)
{
    uint32_t state = 12345;

    for (uint64_t i = 0; i < m->elements; i++) {
        state = state * 1664525u + 1013904223u;
        m->learned[i] += ((float)(state >> 8) / 0x1p23f - 1.0f) * 0.2f;
    }
}

/* Slope of the loss along `direction`, from both sides. */
static double
slope_of(adapted *m, const adapt_parameter *p, const float *direction, double distance)
{
    float *const at = m->learned + p->first;
    float *const kept = malloc(p->elements * sizeof *kept);
    double loss[2];

    memcpy(kept, at, p->elements * sizeof *kept);
    for (int side = 0; side < 2; side++) {
        for (uint64_t i = 0; i < p->elements; i++)
            at[i] = (float)(kept[i] + (side == 0 ? distance : -distance) * direction[i]);
        loss[side] = adapt_loss(m, text, TOKENS);
    }
    memcpy(at, kept, p->elements * sizeof *kept);
    free(kept);
    return (loss[0] - loss[1]) / (2 * distance);
}

static double
length_of(const float *x, uint64_t count)
{
    double squares = 0;

    for (uint64_t i = 0; i < count; i++)
        squares += (double)x[i] * x[i];
    return sqrt(squares);
}

#define DISTANCE 1e-3
/*
 * Of the slope along the gradient, the steepest there is. Rounding moves the loss by 1e-7
 * or so, and the slope by 1e-4; beyond that stands the loss's third derivative.
 */
#define NEAR 2e-3

typedef enum direction { ALONG, MIXED, ACROSS, DIRECTIONS } direction;

/* Of length 1: the gradient; half of it turned round; one that knows nothing of it. */
static void
point(direction d, const float *gradient, uint64_t count, float *out)
{
    uint32_t state = 99;
    double length;

    for (uint64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        if (d == ALONG)
            out[i] = gradient[i];
        else if (d == MIXED)
            out[i] = state >> 31 ? gradient[i] : -0.5f * gradient[i];
        else
            out[i] = (float)(state >> 8) / 0x1p23f - 1.0f;
    }
    length = length_of(out, count);
    for (uint64_t i = 0; i < count; i++)
        out[i] = (float)(out[i] / length);
}

/* Returns the distance to the slope, as a share of the steepest one. */
static double
check_parameter(adapted *m, const float *gradients, const adapt_parameter *p)
{
    const float *const gradient = gradients + p->first;
    const double steepest = length_of(gradient, p->elements);
    float *const way = malloc(p->elements * sizeof *way);
    double worst = 0;

    CHECK(steepest > 0);
    for (int d = 0; d < DIRECTIONS; d++) {
        double wanted = 0;
        double slope;

        point((direction)d, gradient, p->elements, way);
        for (uint64_t i = 0; i < p->elements; i++)
            wanted += (double)way[i] * gradient[i];
        slope = slope_of(m, p, way, DISTANCE);
        if (!CHECK(fabs(slope - wanted) <= NEAR * steepest))
            T_NOTE("%s, direction %d: %g, not %g", p->name, d, slope, wanted);
        worst = fmax(worst, fabs(slope - wanted) / steepest);
    }
    free(way);
    return worst;
}

static void
test_backward_is_the_slope_of_the_loss(void)
{
    berth_context *const context = open_context();
    double worst = 0;
    float *gradients;
    adapted m;

    adapt_open(&m, context, ADAPT_MODEL, RANK, 8, TOKENS, 1);
    CHECK_EQ(m.parameter_count, m.config.layers * 2 * ADAPT_PROJECTIONS);
    shake(&m);
    m.config.norm_epsilon = 1e-3f; /* as large as squares are, so that it counts */
    adapt_loss(&m, text, TOKENS);
    adapt_backward(&m, TOKENS);
    adapt_backward(&m, TOKENS); /* gradients begin anew */
    gradients = malloc(m.elements * sizeof *gradients);
    memcpy(gradients, m.gradients, m.elements * sizeof *gradients);
    for (uint32_t i = 0; i < m.parameter_count; i++)
        worst = fmax(worst, check_parameter(&m, gradients, &m.parameters[i]));
    T_NOTE("%u parameters, worst %.1e of the steepest slope", m.parameter_count, worst);
    free(gradients);
    adapt_close(&m);
    berth_context_destroy(context);
}

/* -------------------------------------------------------------------------- files */

/* Names, shapes and bytes of all adapters are there; nothing of the base is. */
static void
test_files_hold_the_adapters(void)
{
    berth_context *const context = open_context();
    const char *const folder = fixture_format("%s/adapter", fixture_folder());
    const char *const file = fixture_format("%s/adapter_model.safetensors", folder);
    berth_checkpoint_summary summary;
    berth_checkpoint *checkpoint;
    berth_memory_summary memory;
    char *config;
    adapted m;

    adapt_open(&m, context, ADAPT_MODEL, RANK, 8, TOKENS, 1);
    shake(&m);
    adapt_write(&m, folder, "some/base");
    T_REQUIRE(berth_checkpoint_open(context, file, NULL, &checkpoint, NULL) == BERTH_OK);
    berth_checkpoint_get(checkpoint, &summary);
    CHECK_EQ(summary.tensor_count, m.parameter_count);
    CHECK_EQ(summary.parameter_count, m.elements);
    berth_checkpoint_close(checkpoint);
    for (uint32_t i = 0; i < m.parameter_count; i++) {
        const adapt_parameter *const p = &m.parameters[i];
        uint64_t bytes;
        float *const values = read_tensor(context, file, p->name, &bytes);

        if (CHECK_EQ(bytes, p->elements * sizeof *values))
            CHECK_MEM(values, m.learned + p->first, bytes);
        free(values);
    }
    CHECK_STR(m.parameters[1].name,
              "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight");
    config = fixture_read(fixture_format("%s/adapter_config.json", folder), NULL);
    CHECK_CONTAINS(config, "\"base_model_name_or_path\": \"some/base\"");
    CHECK_CONTAINS(config, "\"r\": 4,");
    CHECK_CONTAINS(config, "\"lora_alpha\": 8,");
    CHECK_CONTAINS(config, "[\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\", \"gate_proj\", "
                           "\"up_proj\", \"down_proj\"]");
    free(config);
    adapt_close(&m);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
}

/* The same model but for its final norm: its logits are eight times as large. */
static void
test_base_is_sharper(void)
{
    berth_context *const context = open_context();
    const char *const folder = fixture_folder();
    float *logits;
    adapted m;

    adapt_open(&m, context, ADAPT_MODEL, RANK, 8, TOKENS, 1);
    adapt_forward(&m, text, TOKENS);
    logits = malloc((size_t)TOKENS * m.config.vocab * sizeof *logits);
    for (uint64_t i = 0; i < (uint64_t)TOKENS * m.config.vocab; i++)
        logits[i] = 8 * m.logits[i];
    adapt_close(&m);
    adapt_write_base(context, folder);
    adapt_open(&m, context, folder, RANK, 8, TOKENS, 1);
    adapt_forward(&m, text, TOKENS);
    CHECK_MEM(m.logits, logits, (size_t)TOKENS * m.config.vocab * sizeof *logits);
    adapt_close(&m);
    free(logits);
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_forward_is_the_librarys);
    T_RUN(test_backward_is_the_slope_of_the_loss);
    T_RUN(test_files_hold_the_adapters);
    T_RUN(test_base_is_sharper);
    T_MAIN_END;
}
