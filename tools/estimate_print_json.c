/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_print_json.c - an estimate for programs; the schema is in berth-estimate(5). */
#include "tools/estimate_print.h"
#include "tools/json.h"
#include "tools/json_error.h"

static void
write_unknown(json_writer *w, const char *key, uint64_t number)
{
    if (number > 0)
        json_number(w, key, number);
    else
        json_null(w, key);
}

static void
write_model(json_writer *w, const berth_shape_summary *m)
{
    json_object_begin(w, "model");
    json_text(w, "path", m->path);
    json_text(w, "model_type", m->model_type);
    json_text(w, "family", m->family);
    json_text(w, "source", m->has_headers ? "headers" : "config");
    json_text(w, "dtype", berth_dtype_name(m->dtype));
    json_number(w, "parameters", m->parameters);
    json_number(w, "layers", m->layers);
    json_number(w, "encoder_layers", m->encoder_layers);
    json_number(w, "hidden", m->hidden);
    json_number(w, "vocabulary", m->vocabulary);
    write_unknown(w, "positions", m->positions);
    json_number(w, "experts", m->experts);
    json_number(w, "experts_used", m->experts_used);
    write_unknown(w, "tensor_bytes", m->tensor_bytes);
    json_object_end(w);
}

static void
write_asked(json_writer *w, const estimation *e)
{
    const berth_train_options *const train = e->options->train;

    json_text(w, "type", e->type);
    json_text(w, "dtype", e->dtype);
    json_number(w, "context", e->summary.context);
    json_number(w, "batch", e->summary.batch);
    if (train == NULL) {
        json_null(w, "train");
        return;
    }
    json_object_begin(w, "train");
    json_text(w, "method", train->method == BERTH_TRAIN_FULL ? "full" : "lora");
    json_text(w, "optimizer", train->optimizer);
    json_number(w, "parameters", e->summary.trained);
    json_number(w, "accumulation", train->accumulation > 0 ? train->accumulation : 1);
    json_number(w, "checkpoint_every", train->checkpoint_every);
    json_object_end(w);
}

static void
write_parts(json_writer *w, const estimation *e)
{
    static const char *const places[] = { "device", "host", "none" };

    json_number(w, "device_bytes", e->summary.device_bytes);
    json_number(w, "host_bytes", e->summary.host_bytes);
    json_array_begin(w, "parts");
    for (uint32_t i = 0; i < e->summary.part_count; i++) {
        berth_estimate_part part;

        (void)berth_estimate_get_part(e->estimate, i, &part);
        json_object_begin(w, NULL);
        json_text(w, "part", part.key);
        json_text(w, "name", part.name);
        json_text(w, "place", places[part.place]);
        json_text(w, "dtype", part.dtype);
        json_text(w, "basis", part.basis);
        json_number(w, "bytes", part.bytes);
        json_text(w, "reason", part.reason);
        json_object_end(w);
    }
    json_array_end(w);
    json_array_begin(w, "notes");
    for (uint32_t i = 0; i < e->summary.note_count; i++)
        json_text(w, NULL, berth_estimate_get_note(e->estimate, i));
    json_array_end(w);
}

static void
write_table(json_writer *w, const estimation *e)
{
    const berth_estimate_summary *const m = &e->summary;

    json_object_begin(w, "table");
    json_numbers(w, "contexts",
                 e->options->context_count > 0 ? e->options->contexts : &m->context,
                 m->context_count);
    json_array_begin(w, "rows");
    for (uint32_t i = 0; i < m->fit_count; i++) {
        berth_estimate_fit fit;

        (void)berth_estimate_get_fit(e->estimate, i, &fit);
        json_object_begin(w, NULL);
        json_text(w, "type", fit.type);
        json_numbers(w, "device_bytes", fit.bytes, m->context_count);
        if (m->has_budget) {
            json_bool(w, "fits", fit.fits != 0);
            json_number(w, "largest_context", fit.context);
            json_bool(w, "is_capped", fit.is_capped != 0);
            write_unknown(w, "devices", fit.devices);
        }
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}

static void
write_budget(json_writer *w, const estimation *e)
{
    const berth_estimate_summary *const m = &e->summary;
    berth_estimate_fit best;

    if (!m->has_budget) {
        json_null(w, "budget");
        return;
    }
    json_object_begin(w, "budget");
    json_numbers(w, "devices", e->options->budgets, e->options->budget_count);
    json_number(w, "reserve_percent", e->options->reserve_percent);
    json_number(w, "usable_bytes", m->usable_bytes);
    json_bool(w, "fits", m->fits != 0);
    json_bool(w, "can_fit", m->can_fit != 0);
    if (berth_estimate_get_fit(e->estimate, (uint32_t)m->best_fit, &best) == BERTH_OK)
        json_text(w, "best_type", best.type);
    else
        json_null(w, "best_type");
    json_number(w, "advised_bytes", m->advised_bytes);
    json_array_begin(w, "advice");
    for (uint32_t i = 0; i < m->advice_count; i++) {
        berth_estimate_advice advice;

        (void)berth_estimate_get_advice(e->estimate, i, &advice);
        json_object_begin(w, NULL);
        json_text(w, "what", advice.what);
        json_text(w, "cost", advice.cost);
        json_number(w, "saved", advice.saved);
        json_number(w, "device_bytes", advice.bytes);
        json_bool(w, "fits", advice.fits != 0);
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}

static void
write_lengths(json_writer *w, const estimation *e)
{
    const berth_estimate_summary *const m = &e->summary;

    if (m->length_count == 0) {
        json_null(w, "lengths");
        return;
    }
    json_object_begin(w, "lengths");
    json_number(w, "sequences", m->sequences);
    json_number(w, "tokens", m->tokens);
    json_number(w, "shortest", m->shortest);
    json_number(w, "longest", m->longest);
    json_number(w, "mean", m->mean);
    json_number(w, "padded", m->padded);
    json_number(w, "sorted", m->sorted);
    json_number(w, "packed", m->tokens);
    json_number(w, "packs", m->packs);
    json_array_begin(w, "percentiles");
    for (uint32_t i = 0; i < m->length_count; i++) {
        berth_estimate_length length;

        (void)berth_estimate_get_length(e->estimate, i, &length);
        json_object_begin(w, NULL);
        json_text(w, "name", length.name);
        json_number(w, "tokens", length.tokens);
        if (m->has_budget)
            json_number(w, "largest_batch", length.batch);
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}

static void
write_claims(json_writer *w, const estimation *e)
{
    json_array_begin(w, "published");
    for (uint32_t i = 0; i < e->summary.claim_count; i++) {
        berth_estimate_claim claim;

        (void)berth_estimate_get_claim(e->estimate, i, &claim);
        json_object_begin(w, NULL);
        json_text(w, "table", claim.table);
        json_text(w, "what", claim.what);
        json_number(w, "claimed", claim.claimed);
        json_number(w, "bytes", claim.bytes);
        json_text(w, "reason", claim.reason);
        json_object_end(w);
    }
    json_array_end(w);
}

void
estimate_write_json(session *s, const estimation *e, berth_status status)
{
    json_writer w;

    json_begin(&w, &s->out, false);
    json_object_begin(&w, NULL);
    json_status(&w, status);
    write_model(&w, &e->model);
    write_asked(&w, e);
    write_parts(&w, e);
    write_table(&w, e);
    write_budget(&w, e);
    write_lengths(&w, e);
    write_claims(&w, e);
    json_object_end(&w);
    json_end(&w);
}
