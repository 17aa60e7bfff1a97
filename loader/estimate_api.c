/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_api.c - berth_estimate: every answer that was asked for, made at once. */
#include "loader/estimate_api.h"

#include <inttypes.h>
#include <string.h>

#include "placement/estimate_lines.h"
#include "placement/tier.h"

/* ------------------------------------------------------------------------ lines */

static void
add_notes(berthi_estimating *m)
{
    const berth_shape *const shape = m->shape;
    berthi_estimate *const lines = &m->e->lines;
    berthi_estimate_options native = m->train.base;
    berthi_weight_sums sums;

    if (shape->outside > 0)
        berthi_note_add(lines,
                        "%" PRIu64 " weights are of layers beyond the %" PRIu64
                        " of config.json: they are counted, though loaders may "
                        "leave them out",
                        shape->outside, shape->numbers.layers);
    if (shape->absence != NULL)
        berthi_note_add(lines, "%s", shape->absence);
    for (uint32_t i = 0; i < m->options.budget_count; i++)
        if (berthi_tier_lacks_unit(m->options.budgets[i]))
            berthi_note_add(lines,
                            "a device has %" PRIu64 " B: a number without a unit is bytes",
                            m->options.budgets[i]);
    /* The lines are of plain weights; the table and what helps are not. */
    if (!berthi_type_is_quantized(m->train.base.type)
        && (!m->is_training || m->train.method == BERTHI_METHOD_LORA))
        berthi_note_experts(lines, &shape->model, &m->train.base);
    if (shape->model.has_headers || shape->tensor_bytes == 0)
        return;
    native.type = BERTHI_TYPE_NATIVE;
    berthi_estimate_weights(&shape->model, &native, &sums);
    berthi_note_add(lines,
                    "weights are counted from config.json: %" PRIu64
                    " B as they are stored; the index promises %" PRIu64 " B",
                    sums.total, shape->tensor_bytes);
}

static berth_status
make_lines(berthi_estimating *m)
{
    const berthi_estimate_model *const model = &m->shape->model;
    berth_estimate *const e = m->e;
    berth_status status =
        m->is_training
            ? berthi_train_estimate(model, &m->train, &e->lines, m->error)
            : berthi_estimate_inference(model, &m->train.base, &e->lines, m->error);

    if (status != BERTH_OK)
        return status;
    add_notes(m);
    e->summary.device_bytes = e->lines.device_bytes;
    e->summary.host_bytes = e->lines.host_bytes;
    e->summary.part_count = e->lines.line_count;
    e->summary.note_count = e->lines.note_count;
    e->summary.context = m->train.base.context;
    e->summary.batch = m->train.base.batch;
    if (m->is_training)
        e->summary.trained = berthi_train_parameters(model, &m->train);
    e->summary.claim_count = berthi_train_claims(
        model, &m->train.base, m->is_training ? &m->train : NULL, &e->lines, e->claims);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------ table */

/* bf16 files are the same as they are and as bf16: one row says it. */
static bool
is_repeated(const berthi_estimating *m, const int32_t *types, uint32_t row,
            uint64_t columns)
{
    const uint64_t *const cells = m->e->cells;

    return row > 0 && types[row] != m->train.base.type
           && memcmp(cells + row * columns, cells + (row - 1) * columns,
                  columns * sizeof *cells) == 0;
}

static berth_status
make_table(berthi_estimating *m)
{
    const berthi_estimate_model *const model = &m->shape->model;
    const bool has_contexts = m->options.context_count > 0;
    const uint32_t columns = has_contexts ? m->options.context_count : 1;
    const uint64_t *const contexts =
        has_contexts ? m->options.contexts : &m->train.base.context;
    berth_estimate *const e = m->e;
    int32_t types[BERTHI_TYPE_COUNT];
    const uint32_t rows = berthi_fit_types(model, m->train.base.type, types);
    uint32_t kept = 0;
    berth_status status;

    e->cell_count = (uint64_t)rows * columns;
    e->cells = berthi_memory_array(e->context, BERTHI_PURPOSE_OBJECT, e->cell_count,
                                   sizeof *e->cells);
    if (e->cells == NULL)
        return berthi_fail_memory(m->error, "a table of estimates");
    status = berthi_estimate_table(model, &m->train.base,
                                   &(berthi_estimate_cells){ .types = types,
                                                             .type_count = rows,
                                                             .contexts = contexts,
                                                             .context_count = columns,
                                                             .bytes = e->cells },
                                   m->error);
    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < rows; i++) {
        if (is_repeated(m, types, i, columns))
            continue;
        memmove(e->cells + (uint64_t)kept * columns, e->cells + (uint64_t)i * columns,
                columns * sizeof *e->cells);
        e->rows[kept++].type = types[i];
    }
    if (m->budget.bytes > 0)
        e->summary.best_fit =
            berthi_estimate_fit(model, &m->train.base, &m->budget, e->rows, kept);
    e->summary.fit_count = kept;
    e->summary.context_count = columns;
    return BERTH_OK;
}

/* ---------------------------------------------------------------- budgets, lengths */

static berth_status
make_advice(berthi_estimating *m)
{
    const berthi_estimate_model *const model = &m->shape->model;
    berth_estimate_summary *const summary = &m->e->summary;
    berthi_advice_list *const list = &m->e->advice;
    berth_status status;

    if (m->budget.bytes == 0)
        return BERTH_OK;
    status =
        m->is_training
            ? berthi_train_advise(model, &m->train, &m->budget, list, m->error)
            : berthi_estimate_advise(model, &m->train.base, &m->budget, list, m->error);
    if (status != BERTH_OK)
        return status;
    summary->has_budget = 1;
    summary->usable_bytes = berthi_fit_usable_all(&m->budget);
    summary->fits = list->count == 0 && list->fits;
    summary->can_fit = list->fits;
    summary->advice_count = list->count;
    summary->advised_bytes = berthi_advice_now(list);
    return BERTH_OK;
}

static void
make_lengths(berthi_estimating *m)
{
    const berthi_estimate_model *const model = &m->shape->model;
    berth_estimate_summary *const summary = &m->e->summary;
    berthi_tokens_summary *const tokens = &m->e->tokens;
    const berthi_train_measured training = { model, &m->train };
    berthi_weight_sums sums;
    /* One device is a number of bytes; several take whole layers. */
    const berthi_tokens_inference inference = {
        model, &m->train.base, &sums, m->budget.more_count > 0 ? &m->budget : NULL
    };

    if (m->tokens.count == 0)
        return;
    berthi_estimate_weights(model, &m->train.base, &sums);
    berthi_tokens_summarize(&m->tokens, m->train.base.batch,
                            m->budget.bytes == 0 ? NULL
                            : m->is_training     ? berthi_train_measure
                                                 : berthi_tokens_measure_inference,
                            m->is_training ? (const void *)&training
                                           : (const void *)&inference,
                            berthi_fit_usable_all(&m->budget), tokens);
    summary->length_count = BERTHI_TOKENS_POINTS;
    summary->sequences = tokens->count;
    summary->tokens = tokens->total;
    summary->shortest = tokens->least;
    summary->longest = tokens->most;
    summary->mean = tokens->mean;
    summary->padded = tokens->padded;
    summary->sorted = tokens->sorted;
    summary->packs = tokens->packs;
}

/* ------------------------------------------------------------------------- calls */

static berth_status
run(berthi_estimating *m)
{
    berth_status status = berthi_estimate_take_options(m);

    m->e->summary.best_fit = -1;
    if (status == BERTH_OK)
        status = make_lines(m);
    if (status == BERTH_OK && !m->is_training)
        status = make_table(m);
    if (status == BERTH_OK)
        status = make_advice(m);
    if (status == BERTH_OK)
        make_lengths(m);
    return status;
}

static berth_status
take_structs(berthi_estimating *m, const berth_estimate_options *options,
             berth_error *error)
{
    berth_estimate_options defaults;
    berth_status status;

    berth_estimate_options_init(&defaults);
    status = berthi_options_take(&m->options, sizeof m->options, sizeof m->options,
                                 options != NULL ? options : &defaults, "options", error);
    if (status == BERTH_OK)
        status = berthi_options_check(m->options.reserved32, "options", error);
    if (status != BERTH_OK || m->options.train == NULL)
        return status;
    m->is_training = true;
    return berthi_options_take(&m->train_options, sizeof m->train_options,
                               offsetof(berth_train_options, reserved32), m->options.train,
                               "train", error);
}

berth_status
berth_estimate_create(berth_context *context, const berth_shape *shape,
                      const berth_estimate_options *options,
                      berth_estimate **out_estimate, berth_error *error)
{
    berthi_estimating m = { .shape = shape, .error = error };
    berth_status status;

    berthi_error_clear(error);
    if (out_estimate == NULL)
        return berthi_fail_argument(error, "out_estimate", "is NULL");
    *out_estimate = NULL;
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    if (shape == NULL)
        return berthi_fail_argument(error, "shape", "is NULL");
    status = take_structs(&m, options, error);
    if (status != BERTH_OK)
        return status;
    m.e = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *m.e);
    if (m.e == NULL)
        return berthi_fail_memory(error, "an estimate");
    m.e->context = context;
    status = run(&m);
    berthi_tokens_fini(&m.tokens);
    if (status == BERTH_OK)
        *out_estimate = m.e;
    else
        berth_estimate_destroy(m.e);
    return status;
}

void
berth_estimate_destroy(berth_estimate *estimate)
{
    if (estimate == NULL)
        return;
    berthi_memory_free(estimate->context, BERTHI_PURPOSE_OBJECT, estimate->cells,
                       estimate->cell_count * sizeof *estimate->cells);
    berthi_memory_free(estimate->context, BERTHI_PURPOSE_OBJECT, estimate,
                       sizeof *estimate);
}

/* ----------------------------------------------------------------------- answers */

void
berth_estimate_get(const berth_estimate *estimate, berth_estimate_summary *summary)
{
    *summary = estimate->summary;
}

berth_status
berth_estimate_get_part(const berth_estimate *estimate, uint32_t number,
                        berth_estimate_part *out)
{
    const berthi_estimate_line *line;

    memset(out, 0, sizeof *out);
    if (number >= estimate->summary.part_count)
        return BERTH_EINVAL;
    line = &estimate->lines.lines[number];
    out->key = berthi_part_key(line->part);
    out->name = berthi_part_name(line->part);
    out->dtype = line->dtype;
    out->basis = berthi_basis_name(line->basis);
    out->reason = line->reason;
    out->place = line->place == BERTHI_PLACE_DEVICE ? BERTH_PLACE_DEVICE
                 : line->place == BERTHI_PLACE_HOST ? BERTH_PLACE_HOST
                                                    : BERTH_PLACE_NONE;
    out->bytes = line->bytes;
    return BERTH_OK;
}

berth_status
berth_estimate_get_claim(const berth_estimate *estimate, uint32_t number,
                         berth_estimate_claim *out)
{
    const berthi_claim *claim;

    memset(out, 0, sizeof *out);
    if (number >= estimate->summary.claim_count)
        return BERTH_EINVAL;
    claim = &estimate->claims[number];
    out->table = claim->table;
    out->what = claim->what;
    out->reason = claim->reason;
    out->claimed = claim->claimed;
    out->bytes = claim->ours;
    return BERTH_OK;
}

berth_status
berth_estimate_get_fit(const berth_estimate *estimate, uint32_t number,
                       berth_estimate_fit *out)
{
    const berthi_fit_type *row;

    memset(out, 0, sizeof *out);
    if (number >= estimate->summary.fit_count)
        return BERTH_EINVAL;
    row = &estimate->rows[number];
    out->type = berthi_type_name(row->type);
    out->bytes = estimate->cells + (uint64_t)number * estimate->summary.context_count;
    out->context = row->context;
    out->fits = row->fits;
    out->is_capped = row->is_capped;
    out->devices = row->devices;
    return BERTH_OK;
}

berth_status
berth_estimate_get_advice(const berth_estimate *estimate, uint32_t number,
                          berth_estimate_advice *out)
{
    const berthi_advice *advice;

    memset(out, 0, sizeof *out);
    if (number >= estimate->summary.advice_count)
        return BERTH_EINVAL;
    advice = &estimate->advice.items[number];
    out->what = advice->what;
    out->cost = advice->cost;
    out->saved = advice->saved;
    out->bytes = advice->bytes;
    out->fits = advice->fits;
    return BERTH_OK;
}

berth_status
berth_estimate_get_length(const berth_estimate *estimate, uint32_t number,
                          berth_estimate_length *out)
{
    const berthi_tokens_point *point;

    memset(out, 0, sizeof *out);
    if (number >= estimate->summary.length_count)
        return BERTH_EINVAL;
    point = &estimate->tokens.points[number];
    out->name = point->name;
    out->tokens = point->length;
    out->batch = point->batch;
    return BERTH_OK;
}

const char *
berth_estimate_get_note(const berth_estimate *estimate, uint32_t number)
{
    return number < estimate->summary.note_count ? estimate->lines.notes[number] : NULL;
}

const char *
berth_optimizer_name(uint32_t number)
{
    const berthi_optimizer *const optimizer = berthi_optimizer_at(number);

    return optimizer != NULL ? optimizer->name : NULL;
}
