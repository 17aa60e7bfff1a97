/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_weight.c - what a tensor is in the model; see estimate_weight.h. */
#include "loader/estimate_weight.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/text.h"

/* ----------------------------------------------------------------------- places */

static bool
has_word(const char *name, uint64_t length, const char *word)
{
    const uint64_t size = strlen(word);

    for (uint64_t i = 0; i + size <= length; i++)
        if (memcmp(name + i, word, size) == 0)
            return true;
    return false;
}

bool
berthi_weight_is_of_tower(const char *name, uint64_t length)
{
    static const char *const towers[] = { "vision", "visual", "audio" };

    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
        if (has_word(name, length, towers[i]))
            return true;
    return false;
}

/* The first part of a name that is a number, and where it ends; false: there is none. */
static bool
has_number(const char *name, uint64_t length, uint64_t *out, uint64_t *end)
{
    uint64_t begin = 0;

    for (uint64_t i = 0; i <= length; i++) {
        if (i < length && name[i] != '.')
            continue;
        *out = 0;
        for (; begin < i && name[begin] >= '0' && name[begin] <= '9'; begin++)
            if (*out < BERTHI_SHAPE_LAYERS)
                *out = *out * 10 + (uint64_t)(name[begin] - '0');
        if (begin == i && i > 0 && name[i - 1] != '.') {
            *end = i;
            return true;
        }
        begin = i + 1;
    }
    return false;
}

/* Of the layers that a file counts as one, as LongCat's do two: by the number behind. */
static uint64_t
part_of(const berthi_shape *numbers, const char *rest, uint64_t length)
{
    uint64_t number = 0;
    uint64_t end;

    if (has_word(rest, length, ".experts.") || !has_number(rest, length, &number, &end))
        return 0; /* experts are the first one's */
    return berthi_min_u64(number, numbers->family->parts - 1u);
}

/* The last part of the module's name that is no number: of "embed.0.weight" "embed". */
static berthi_text
name_of(const berthi_parameter *parameter)
{
    berthi_text rest = { parameter->name, parameter->name_length };
    berthi_text last;

    if (berthi_text_ends(rest, ".weight"))
        rest.length -= strlen(".weight");
    do {
        uint64_t begin = rest.length;

        while (begin > 0 && rest.bytes[begin - 1] != '.')
            begin--;
        last = (berthi_text){ rest.bytes + begin, rest.length - begin };
        rest.length = begin - (begin > 0);
    } while (rest.length > 0 && last.length > 0 && last.bytes[0] >= '0'
             && last.bytes[0] <= '9');
    return last;
}

/* T5's table of distances, which its first layer has for all of them. */
static bool
is_distances(berthi_text name)
{
    return berthi_text_ends(name, "relative_attention_bias");
}

/* Of "altup_projections.0.weight" the number counts matrices, not layers. */
static bool
is_of_list(const char *rest, uint64_t length)
{
    const berthi_text text = { rest, length };

    return berthi_text_is(text, ".weight") || berthi_text_is(text, ".bias");
}

/* The kind of the language model's layer that a parameter is in. */
static uint32_t
kind_of(berthi_weight_source *source, const berthi_parameter *parameter)
{
    const char *const name = parameter->name;
    const uint64_t length = parameter->name_length;
    const berthi_shape *const numbers = source->numbers;
    const bool is_encoder = numbers->encoder_layers > 0 && has_word(name, length, "encoder.");
    uint64_t number;
    uint64_t end;

    if (berthi_weight_is_of_tower(name, length) || is_distances(name_of(parameter))
        || !has_number(name, length, &number, &end)
        || is_of_list(name + end, length - end))
        return BERTHI_NO_LAYER;
    if (is_encoder && number < numbers->encoder_layers)
        return numbers->encoder_kinds[number];
    if (numbers->family->parts > 0)
        number = number * numbers->family->parts + part_of(numbers, name + end, length - end);
    if (!is_encoder && number < numbers->layers)
        return numbers->layer_kinds[number];
    source->outside++;
    return BERTHI_NO_LAYER;
}

/* The last part of a module's name, as adapters call it: "q_proj". */
static const char *
module_of(berthi_weight_source *source, const berthi_model_tensor *tensor)
{
    static const char suffix[] = ".weight";
    const size_t cut = sizeof suffix - 1;
    uint64_t end = tensor->name_length;
    uint64_t begin;

    if (end > cut && berthi_text_ends((berthi_text){ tensor->name, end }, suffix))
        end -= cut;
    for (begin = end; begin > 0 && tensor->name[begin - 1] != '.'; begin--)
        continue;
    return berthi_arena_text(source->texts, tensor->name + begin, end - begin);
}

/* "experts.7.up_proj", "experts.expert_7.wi": of one expert, where the model fuses them not. */
static bool
is_one_expert(const berthi_parameter *parameter)
{
    static const char list[] = ".experts.";
    const uint64_t length = sizeof list - 1;

    for (uint64_t i = 0; i + length < parameter->name_length; i++) {
        if (memcmp(parameter->name + i, list, length) != 0)
            continue;
        for (i += length; i < parameter->name_length && parameter->name[i] != '.'; i++)
            if (parameter->name[i] >= '0' && parameter->name[i] <= '9')
                return true;
        return false;
    }
    return false;
}

/* A table whose rows are looked up, whatever stands around it: its norm is none. */
static bool
is_table(const berthi_parameter *parameter)
{
    const berthi_text name = name_of(parameter);

    return parameter->rank >= 2 && !parameter->is_linear
           && (has_word(name.bytes, name.length, "embed") || berthi_text_is(name, "wte")
               || berthi_text_is(name, "wpe") || berthi_text_is(name, "shared")
               || is_distances(name));
}

static bool
is_head(const berthi_weight_source *source, const berthi_parameter *parameter)
{
    const char *const head = source->architecture->head;
    const size_t length = strlen(head);

    return length > 0 && parameter->name_length > length
           && memcmp(parameter->name, head, length) == 0 && parameter->name[length] == '.';
}

static int32_t
role_of(const berthi_weight_source *source, const berthi_parameter *parameter,
        const berthi_decision *decision)
{
    if (decision->encoding != BERTH_ENCODING_NATIVE)
        return decision->is_per_expert || parameter->is_experts || is_one_expert(parameter)
                   ? BERTHI_WEIGHT_EXPERT
                   : BERTHI_WEIGHT_LINEAR;
    /* FSMT calls its table of words the head; what multiplies lies beside it. */
    if (is_head(source, parameter) && !berthi_text_is(name_of(parameter), "embed_tokens"))
        return BERTHI_WEIGHT_HEAD;
    if (is_table(parameter))
        return BERTHI_WEIGHT_EMBEDDING;
    return BERTHI_WEIGHT_OTHER;
}

/* Matrices as such, stacks of them by the matrix, all else by its elements. */
static void
fill_shape(const berthi_model_tensor *tensor, const berthi_decision *decision,
           berthi_weight *out)
{
    const bool is_matrix = tensor->rank == 2 && tensor->elements > 0;
    const bool is_stack =
        tensor->rank == 3 && tensor->elements > 0 && out->role == BERTHI_WEIGHT_EXPERT;
    const uint64_t *const shape = tensor->shape + (is_stack ? 1 : 0);

    out->rank = is_matrix || is_stack ? 2 : 1;
    out->count = is_stack ? tensor->shape[0] : 1;
    out->stack = is_stack ? tensor->shape[0] : 0;
    out->shape[0] = tensor->elements;
    if (out->rank == 2) {
        out->shape[0] = shape[decision->is_transposed ? 1 : 0];
        out->shape[1] = shape[decision->is_transposed ? 0 : 1];
    } else if (out->role == BERTHI_WEIGHT_LINEAR || out->role == BERTHI_WEIGHT_EXPERT) {
        out->role = BERTHI_WEIGHT_OTHER;
    }
}

/* ------------------------------------------------------------------- equal ones */

static int
order(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* All but `count`. */
static int
compare(const void *left, const void *right)
{
    const berthi_weight *const a = left;
    const berthi_weight *const b = right;
    int by = order(a->layer, b->layer);

    by = by != 0 ? by : order((uint64_t)a->role, (uint64_t)b->role);
    by = by != 0 ? by : strcmp(a->module, b->module);
    by = by != 0 ? by : order((uint64_t)a->dtype, (uint64_t)b->dtype);
    by = by != 0 ? by : order(a->rank, b->rank);
    by = by != 0 ? by : order(a->shape[0], b->shape[0]);
    by = by != 0 ? by : order(a->shape[1], b->shape[1]);
    by = by != 0 ? by : order(a->stack, b->stack);
    by = by != 0 ? by : order(a->is_derived, b->is_derived);
    by = by != 0 ? by : order(a->is_apart, b->is_apart);
    by = by != 0 ? by : order(a->is_f32, b->is_f32);
    by = by != 0 ? by : order(a->is_f32_in_f16, b->is_f32_in_f16);
    by = by != 0 ? by : order(a->is_f32_in_bf16, b->is_f32_in_bf16);
    return by != 0 ? by : order(a->stored, b->stored);
}

uint32_t
berthi_weight_merge(berthi_weight *weights, uint32_t count)
{
    uint32_t merged = 0;

    qsort(weights, count, sizeof *weights, compare);
    for (uint32_t i = 0; i < count; i++) {
        if (merged > 0 && compare(&weights[merged - 1], &weights[i]) == 0)
            weights[merged - 1].count += weights[i].count;
        else
            weights[merged++] = weights[i];
    }
    return merged;
}

/* ------------------------------------------------------------------------- calls */

berthi_rules_options
berthi_weight_rules(int32_t dtype)
{
    return (berthi_rules_options){
        .era = BERTHI_ERA_HF5,
        .type = BERTH_ENCODING_NF4,
        .dtype = dtype,
        .takes_experts = true,
        .takes_remade = true,
    };
}

bool
berthi_weight_is_second(const berthi_parameter *parameter, uint32_t position)
{
    const berthi_parameter *const tie = parameter->tie;

    return tie != NULL && tie->piece_count > 0 && tie->first_piece != position;
}

bool
berthi_weight_can_describe(berthi_weight_source *source, const berthi_model_tensor *tensor,
                           uint32_t position, const berthi_decision *decision,
                           berthi_weight *out)
{
    const berthi_parameter *const parameter = source->architecture->parameter_of[position];

    *out = (berthi_weight){ .module = module_of(source, tensor),
                            .role = role_of(source, parameter, decision),
                            .dtype = tensor->dtype,
                            .layer = kind_of(source, parameter) };
    if (out->module == NULL)
        return false;
    fill_shape(tensor, decision, out);
    out->is_derived = out->role == BERTHI_WEIGHT_OTHER
                      && (parameter->is_linear_kind || parameter->is_linear);
    out->is_apart = out->role == BERTHI_WEIGHT_EXPERT && parameter->is_linear;
    return true;
}
