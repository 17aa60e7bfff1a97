/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate_api_weights.c - weights out of headers: their values' shapes, what each
 * is in the model, which kind of layer it belongs to; then equal ones as one.
 */
#include <stdlib.h>
#include <string.h>

#include "loader/estimate_api.h"
#include "quant/architecture.h"
#include "quant/rules.h"

#define TEXT_BLOCK_BYTES 4096u

/* A tensor that is nobody's statistics. */
typedef struct source_tensor {
    const char *name;
    const uint64_t *shape; /* of the values */
    uint64_t elements;
    uint64_t stored; /* bytes with statistics; 0: plain numbers */
    uint32_t name_length;
    uint32_t rank;
    int32_t dtype; /* of the values */
} source_tensor;

/* A list being made; ends with the call. */
typedef struct listing {
    berth_shape *shape;
    const berth_checkpoint *checkpoint;
    berthi_arena arena; /* of shapes */
    source_tensor *tensors;
    uint64_t capacity;
    uint32_t count;
    berthi_architecture *architecture;
    berthi_rules *rules;
} listing;

/* ------------------------------------------------------------------ the tensors */

static bool
is_described(listing *l, const berthi_entry *entry, source_tensor *out)
{
    const berth_checkpoint *const c = l->checkpoint;
    const berthi_quantized *record;
    uint64_t *dims;

    out->name = berthi_entry_name(c->table.text, entry);
    out->name_length = entry->name_length;
    if (entry->flags == BERTH_ENCODING_NATIVE) {
        dims = berthi_arena_alloc(&l->arena, entry->rank * sizeof *dims, sizeof *dims);
        if (dims == NULL)
            return false;
        berthi_entry_shape(c->table.text, entry, dims);
        out->shape = dims;
        out->rank = entry->rank;
        out->elements = berthi_entry_elements(c->table.text, entry);
        out->dtype = entry->dtype;
        return true;
    }
    record = berthi_classify_record(&c->quantized, entry->owner);
    out->shape = record->shape;
    out->rank = record->rank;
    out->elements = record->elements;
    out->stored = record->total_bytes;
    out->dtype = record->dtype >= 0 ? record->dtype : l->shape->numbers.dtype;
    if (entry->flags == BERTH_ENCODING_FOREIGN)
        l->shape->model.is_foreign = true;
    return true;
}

static berth_status
list_tensors(listing *l, berth_error *error)
{
    const berthi_table *const table = &l->checkpoint->table;

    l->capacity = table->entry_count;
    l->tensors = berthi_memory_zalloc(l->shape->context, BERTHI_PURPOSE_TENSORS,
                                      l->capacity * sizeof *l->tensors);
    if (l->tensors == NULL)
        return berthi_fail_memory(error, "the list of weights");
    for (uint64_t i = 0; i < table->entry_count; i++) {
        const berthi_entry *const entry = &table->entries[table->by_name[i]];

        if (entry->flags == BERTH_ENCODING_STATISTICS)
            continue;
        if (!is_described(l, entry, &l->tensors[l->count]))
            return berthi_fail_memory(error, "the list of weights");
        l->count++;
    }
    return BERTH_OK;
}

static void
get_tensor(void *user, uint32_t position, berthi_model_tensor *out)
{
    const listing *const l = user;
    const source_tensor *const tensor = &l->tensors[position];

    *out = (berthi_model_tensor){
        .name = tensor->name,
        .name_length = tensor->name_length,
        .shape = tensor->shape,
        .elements = tensor->elements,
        .rank = tensor->rank,
        .dtype = tensor->dtype,
    };
}

/* ---------------------------------------------------------------------- the model */

/* What today's transformers quantizes, experts that it fuses included. */
static berth_status
lay_out(listing *l, const berthi_json_value *config, const char *config_file,
        berth_error *error)
{
    const berthi_config *const c = &l->checkpoint->config;
    const berthi_model_source source = { l, l->count, get_tensor };
    const berthi_architecture_options options = {
        .class_name = c->architecture,
        .model_type = c->model_type,
        .config = config,
        .config_file = config_file,
        .era = BERTHI_ERA_HF5,
        .dtype = l->shape->numbers.dtype,
    };
    const berthi_rules_options rules = {
        .era = BERTHI_ERA_HF5,
        .type = BERTH_ENCODING_NF4,
        .dtype = l->shape->numbers.dtype,
        .takes_experts = true,
    };
    berth_status status = berthi_architecture_create(l->shape->context, &options, &source,
                                                     &l->architecture, error);

    if (status == BERTH_OK)
        status = berthi_rules_create(l->shape->context, &rules, l->architecture, &source,
                                     &l->rules, error);
    return status;
}

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

/* The first part of a name that is a number; false: there is none. */
static bool
has_number(const char *name, uint64_t length, uint64_t *out)
{
    uint64_t begin = 0;

    for (uint64_t i = 0; i <= length; i++) {
        if (i < length && name[i] != '.')
            continue;
        *out = 0;
        for (; begin < i && name[begin] >= '0' && name[begin] <= '9'; begin++)
            if (*out < BERTHI_SHAPE_LAYERS)
                *out = *out * 10 + (uint64_t)(name[begin] - '0');
        if (begin == i && i > 0 && name[i - 1] != '.')
            return true;
        begin = i + 1;
    }
    return false;
}

static uint32_t
encoder_kind(const berthi_shape *numbers)
{
    for (uint32_t i = 0; i < numbers->kind_count; i++)
        if (numbers->kinds[i].is_encoder)
            return i;
    return BERTHI_NO_LAYER;
}

/* The kind of the language model's layer that a parameter is in. */
static uint32_t
kind_of(berth_shape *shape, const berthi_parameter *parameter)
{
    static const char *const towers[] = { "vision", "visual", "audio" };
    const char *const name = parameter->name;
    const uint64_t length = parameter->name_length;
    const berthi_shape *const numbers = &shape->numbers;
    uint64_t number;

    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
        if (has_word(name, length, towers[i]))
            return BERTHI_NO_LAYER;
    if (!has_number(name, length, &number))
        return BERTHI_NO_LAYER;
    if (numbers->encoder_layers > 0 && has_word(name, length, "encoder."))
        return encoder_kind(numbers);
    if (number < numbers->layers)
        return numbers->layer_kinds[number];
    shape->outside++;
    return BERTHI_NO_LAYER;
}

/* The last part of a module's name, as adapters call it: "q_proj". */
static const char *
module_of(listing *l, const source_tensor *tensor)
{
    static const char suffix[] = ".weight";
    const size_t cut = sizeof suffix - 1;
    uint64_t end = tensor->name_length;
    uint64_t begin;

    if (end > cut && memcmp(tensor->name + end - cut, suffix, cut) == 0)
        end -= cut;
    for (begin = end; begin > 0 && tensor->name[begin - 1] != '.'; begin--)
        continue;
    return berthi_arena_text(&l->shape->arena, tensor->name + begin, end - begin);
}

static int32_t
role_of(const listing *l, const berthi_parameter *parameter,
        const berthi_decision *decision)
{
    const char *const head = l->architecture->head;
    const size_t head_length = strlen(head);

    if (decision->encoding != BERTH_ENCODING_NATIVE)
        return decision->is_per_expert || parameter->is_experts ? BERTHI_WEIGHT_EXPERT
                                                                : BERTHI_WEIGHT_LINEAR;
    if (head_length > 0 && parameter->name_length > head_length &&
        memcmp(parameter->name, head, head_length) == 0 &&
        parameter->name[head_length] == '.')
        return BERTHI_WEIGHT_HEAD;
    if (has_word(parameter->name, parameter->name_length, "embed") ||
        has_word(parameter->name, parameter->name_length, "wte") ||
        has_word(parameter->name, parameter->name_length, "wpe"))
        return BERTHI_WEIGHT_EMBEDDING;
    return BERTHI_WEIGHT_OTHER;
}

/* Matrices as such, stacks of them by the matrix, all else by its elements. */
static void
fill_shape(const source_tensor *tensor, const berthi_decision *decision,
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
    return by != 0 ? by : order(a->stored, b->stored);
}

static void
merge(berth_shape *shape)
{
    berthi_weight *const weights = shape->weights;
    uint32_t count = 0;

    qsort(weights, shape->model.weight_count, sizeof *weights, compare);
    for (uint32_t i = 0; i < shape->model.weight_count; i++) {
        if (count > 0 && compare(&weights[count - 1], &weights[i]) == 0)
            weights[count - 1].count += weights[i].count;
        else
            weights[count++] = weights[i];
    }
    shape->model.weight_count = count;
}

/* -------------------------------------------------------------------- everything */

/*
 * A second copy of what the model holds once: the tie's target. Where it is the only
 * copy, the source has been given the target's tensor.
 */
static bool
is_second(const berthi_parameter *parameter, uint32_t position)
{
    const berthi_parameter *const tie = parameter->tie;

    return tie != NULL && tie->piece_count > 0 && tie->first_piece != position;
}

static berth_status
add_weight(listing *l, uint32_t position, berth_error *error)
{
    const source_tensor *const tensor = &l->tensors[position];
    const berthi_parameter *const parameter = l->architecture->parameter_of[position];
    const berthi_decision decision = berthi_rules_decide(l->rules, position);
    berth_shape *const shape = l->shape;
    berthi_weight *const weight = &shape->weights[shape->model.weight_count];

    if (is_second(parameter, position))
        return BERTH_OK;
    *weight = (berthi_weight){.module = module_of(l, tensor),
                              .role = role_of(l, parameter, &decision),
                              .dtype = tensor->dtype,
                              .layer = kind_of(shape, parameter),
                              .stored = tensor->stored };
    if (weight->module == NULL)
        return berthi_fail_memory(error, "the list of weights");
    fill_shape(tensor, &decision, weight);
    shape->model.weight_count++;
    return BERTH_OK;
}

static berth_status
make(listing *l, const berthi_json_value *config, const char *config_file,
     berth_error *error)
{
    berth_shape *const shape = l->shape;
    berth_status status = list_tensors(l, error);

    if (status == BERTH_OK)
        status = lay_out(l, config, config_file, error);
    if (status != BERTH_OK)
        return status;
    shape->weight_capacity = l->count;
    shape->weights = berthi_memory_array(shape->context, BERTHI_PURPOSE_TENSORS, l->count,
                                         sizeof *shape->weights);
    if (shape->weights == NULL)
        return berthi_fail_memory(error, "the list of weights");
    for (uint32_t i = 0; i < l->count && status == BERTH_OK; i++)
        status = add_weight(l, i, error);
    if (status != BERTH_OK)
        return status;
    merge(shape);
    shape->model.weights = shape->weights;
    shape->model.has_headers = true;
    shape->tensor_bytes = l->checkpoint->table.tensor_bytes;
    return BERTH_OK;
}

berth_status
berthi_shape_take_weights(berth_shape *shape, const berth_checkpoint *checkpoint,
                          const berthi_json_value *config, const char *config_file,
                          berth_error *error)
{
    listing l = { .shape = shape, .checkpoint = checkpoint };
    berth_status status;

    berthi_arena_init(&l.arena, shape->context, BERTHI_PURPOSE_TENSORS, TEXT_BLOCK_BYTES);
    status = make(&l, config, config_file, error);
    berthi_rules_destroy(l.rules);
    berthi_architecture_destroy(l.architecture);
    berthi_memory_free(shape->context, BERTHI_PURPOSE_TENSORS, l.tensors,
                       l.capacity * sizeof *l.tensors);
    berthi_arena_fini(&l.arena);
    return status;
}
