/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate_api_weights.c - weights out of headers: their values' shapes, and what each
 * is in the model (estimate_weight.h); then equal ones as one.
 */
#include <string.h>

#include "loader/estimate_api.h"
#include "loader/estimate_weight.h"
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
    bool is_turned; /* bitsandbytes has it: of a Conv1D outputs come first then */
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
    berthi_rules *rules;     /* of the model loaded as BF16 */
    berthi_rules *rules_f16; /* as F16: they differ in what stays F32 */
} listing;

/* ------------------------------------------------------------------ the tensors */

static bool
can_describe(listing *l, const berthi_entry *entry, source_tensor *out)
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
        if (berthi_checkpoint_has_small_numbers(c, entry->dtype)) {
            out->dtype = l->shape->numbers.dtype;
            out->stored = entry->end - entry->begin;
        }
        return true;
    }
    record = berthi_classify_record(&c->quantized, entry->owner);
    out->shape = record->shape;
    out->rank = record->rank;
    out->elements = record->elements;
    out->stored = record->total_bytes;
    out->is_turned = record->encoding <= BERTH_ENCODING_INT8;
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
        if (!can_describe(l, entry, &l->tensors[l->count]))
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
        .dtype = BERTH_BF16, /* so that F32 is a dtype of a weight's own */
    };
    const berthi_rules_options as_bf16 = berthi_weight_rules(BERTH_BF16);
    const berthi_rules_options as_f16 = berthi_weight_rules(BERTH_F16);
    berth_status status = berthi_architecture_create(l->shape->context, &options, &source,
                                                     &l->architecture, error);

    if (status == BERTH_OK)
        status = berthi_rules_create(l->shape->context, &as_bf16, l->architecture, &source,
                                     &l->rules, error);
    if (status == BERTH_OK)
        status = berthi_rules_create(l->shape->context, &as_f16, l->architecture, &source,
                                     &l->rules_f16, error);
    return status;
}

/* ------------------------------------------------------- modules that are not stored so */

/*
 * Of how many modules the numbers are, in equal parts of its rows: those that the library
 * makes of one weight as it loads it.
 */
static uint32_t
count_modules(const listing *l, uint32_t position)
{
    const source_tensor *const tensor = &l->tensors[position];
    const berthi_words modules = l->architecture->parameter_of[position]->remade;
    uint32_t count = 0;

    while (modules != NULL && modules[count] != NULL)
        count++;
    if (count < 2 || tensor->rank != 2 || tensor->elements == 0 || tensor->stored > 0
        || tensor->shape[0] % count != 0)
        return 1;
    return count;
}

/* The weight that was added last is one of each module. */
static void
divide(berth_shape *shape, berthi_words modules, uint32_t count)
{
    berthi_weight *const first = &shape->weights[shape->model.weight_count - 1];

    first->shape[0] /= count;
    for (uint32_t i = 0; i < count; i++) {
        first[i] = *first;
        first[i].module = modules[i];
    }
    shape->model.weight_count += count - 1;
}

/* The library makes one module of this weight and the one before, which lies beside it. */
static bool
is_joined(const listing *l, uint32_t position)
{
    const berthi_parameter *const own = l->architecture->parameter_of[position];
    const berthi_parameter *before;

    if (position == 0 || own->remade == NULL || own->remade[1] != NULL)
        return false;
    before = l->architecture->parameter_of[position - 1];
    return own->remade == before->remade && own->module != NULL && before->module != NULL
           && own->module->parent == before->module->parent
           && !berthi_weight_is_second(before, position - 1);
}

/* Their rows are those of one weight. */
static bool
can_join(berth_shape *shape, const char *module)
{
    berthi_weight *const before = &shape->weights[shape->model.weight_count - 1];
    const berthi_weight *const behind = before + 1;

    if (before->rank != 2 || behind->rank != 2 || before->shape[1] != behind->shape[1]
        || before->dtype != behind->dtype || before->role != behind->role
        || before->stored > 0 || behind->stored > 0)
        return false;
    before->module = module;
    before->shape[0] += behind->shape[0];
    return true;
}

/* -------------------------------------------------------------------- everything */

static berth_status
add_weight(listing *l, berthi_weight_source *source, uint32_t position, berth_error *error)
{
    berthi_decision decision = berthi_rules_decide(l->rules, position);
    berth_shape *const shape = l->shape;
    berthi_weight *const weight = &shape->weights[shape->model.weight_count];
    const berthi_parameter *const parameter = l->architecture->parameter_of[position];
    berthi_model_tensor tensor;
    uint32_t modules;

    if (berthi_weight_is_second(parameter, position))
        return BERTH_OK;
    decision.is_transposed = decision.is_transposed && !l->tensors[position].is_turned;
    get_tensor(l, position, &tensor);
    if (!berthi_weight_can_describe(source, &tensor, position, &decision, weight))
        return berthi_fail_memory(error, "the list of weights");
    weight->stored = l->tensors[position].stored;
    weight->is_f32 = parameter->dtype == BERTH_F32;
    weight->is_f32_in_bf16 = decision.dtype == BERTH_F32;
    weight->is_f32_in_f16 =
        berthi_rules_decide(l->rules_f16, position).dtype == BERTH_F32;
    if (is_joined(l, position) && can_join(shape, parameter->remade[0]))
        return BERTH_OK;
    shape->model.weight_count++;
    modules = count_modules(l, position);
    if (modules > 1)
        divide(shape, parameter->remade, modules);
    return BERTH_OK;
}

static berth_status
make(listing *l, const berthi_json_value *config, const char *config_file,
     berth_error *error)
{
    berth_shape *const shape = l->shape;
    berthi_weight_source source = { .numbers = &shape->numbers, .texts = &shape->arena };
    berth_status status;

    shape->numbers.dtype = berthi_checkpoint_dtype(l->checkpoint);
    status = list_tensors(l, error);
    if (status == BERTH_OK)
        status = lay_out(l, config, config_file, error);
    if (status != BERTH_OK)
        return status;
    source.architecture = l->architecture;
    for (uint32_t i = 0; i < l->count; i++)
        shape->weight_capacity += count_modules(l, i);
    shape->weights = berthi_memory_array(shape->context, BERTHI_PURPOSE_TENSORS,
                                         shape->weight_capacity, sizeof *shape->weights);
    if (shape->weights == NULL)
        return berthi_fail_memory(error, "the list of weights");
    for (uint32_t i = 0; i < l->count && status == BERTH_OK; i++)
        status = add_weight(l, &source, i, error);
    if (status != BERTH_OK)
        return status;
    shape->outside += source.outside;
    shape->model.weight_count =
        berthi_weight_merge(shape->weights, shape->model.weight_count);
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
    berthi_rules_destroy(l.rules_f16);
    berthi_rules_destroy(l.rules);
    berthi_architecture_destroy(l.architecture);
    berthi_memory_free(shape->context, BERTHI_PURPOSE_TENSORS, l.tensors,
                       l.capacity * sizeof *l.tensors);
    berthi_arena_fini(&l.arena);
    return status;
}
