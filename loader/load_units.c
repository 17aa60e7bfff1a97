/* SPDX-License-Identifier: Apache-2.0 */
/* load_units.c - what a load reads: units of stored tensors, in the order of the files. */
#include <inttypes.h>
#include <string.h>

#include "loader/load_job.h"
#include "loader/recipe_weight.h"

/* A page before and one behind what is read. */
#define WIDENED UINT64_C(8192)

/* Counting or writing: both walk the same way. */
typedef struct listing {
    berthi_load *load;
    bool is_written;
    uint64_t units;
    uint32_t runs;
    uint32_t columns;
    berth_error *error;
} listing;

/* What has to be read for `bytes` of the cut from `at` on. */
static void
add_unit(listing *l, const berthi_load_unit *unit, const berthi_cut *cut, uint64_t at,
         uint64_t bytes)
{
    berthi_load *const load = l->load;
    const berthi_entry *const entry = &load->checkpoint->table.entries[unit->entry];
    const berthi_stretch stretch = berthi_cut_stretch(cut, at, bytes);

    if (l->is_written) {
        load->units[l->units] = *unit;
        load->pieces[l->units] = (berthi_piece){
            .offset = berthi_checkpoint_offset(load->checkpoint, entry) + stretch.begin,
            .bytes = stretch.bytes,
            .tag = l->units,
            .file = entry->shard,
        };
        load->total += stretch.bytes;
    }
    load->piece_max = berthi_max_u64(load->piece_max, stretch.bytes);
    if (cut->rows != 1)
        load->gathered_max = berthi_max_u64(load->gathered_max, bytes);
    l->units++;
}

/* Where bytes of columns go when they are brought together, and what they are made to. */
static uint32_t
add_columns(listing *l, const berthi_load_columns *columns)
{
    if (columns->cut.rows == 1 && columns->record == NULL)
        return BERTHI_NO_COLUMNS;
    if (l->is_written)
        l->load->columns[l->columns] = *columns;
    return l->columns++;
}

/* Bytes that go as they are; or, with `levels`, codes, of which each becomes an absmax. */
static void
add_part(listing *l, uint64_t berth, const berthi_cargo_part *part, const berthi_quantized *levels)
{
    berthi_load *const load = l->load;
    const berthi_berth *const b = &load->plan->berths[berth];
    const uint64_t width = levels != NULL ? sizeof(float) : 1; /* of a stored byte, there */
    const uint64_t step = (load->chunk_bytes - WIDENED) / width;
    const uint64_t stored = part->bytes / width;
    const berthi_load_columns all = { part->cut, b->offset + part->offset, levels };
    const uint32_t columns = add_columns(l, &all);
    uint64_t bytes;

    for (uint64_t at = 0; at < stored; at += bytes) {
        berthi_load_unit unit = { .run = BERTHI_NO_RUN,
                                  .tier = b->tier,
                                  .entry = (uint32_t)part->entry,
                                  .berth = (uint32_t)berth,
                                  .first = all.place + at * width,
                                  .columns = columns };

        bytes = berthi_cut_fit(&part->cut, at, stored - at, step);
        unit.count = bytes * width;
        add_unit(l, &unit, &part->cut, at, bytes);
        if (levels != NULL)
            load->values_max = berthi_max_u64(load->values_max,
                                              berthi_load_levels_bytes(&part->cut, at, bytes));
    }
}

static void
note_turned_run(berthi_load *load, berthi_load_run *run)
{
    run->turned_turn = load->turned_count++;
    load->turned_max = berthi_max_u64(load->turned_max, run->turned_bytes);
    load->turned_sum = berthi_add_capped(load->turned_sum, run->turned_bytes);
}

static berth_status
add_run(listing *l, uint64_t berth, const berthi_cargo *cargo)
{
    berthi_load *const load = l->load;
    const berthi_berth *const b = &load->plan->berths[berth];
    const uint32_t number = l->runs++;
    berthi_load_run run;
    berth_status status;

    status = berthi_load_run_init(load, &run, berth, cargo, l->error);
    if (status != BERTH_OK)
        return status;
    load->values_max = berthi_max_u64(load->values_max, run.values_bytes);
    if (load->model->tiers[b->tier].device == NULL)
        berthi_load_offload_cut(load, &run, cargo);
    for (uint64_t at = 0, fit; at < run.elements; at += fit) {
        fit = berthi_load_run_fit(&run, at);
        const berthi_load_unit unit = { .run = number,
                                        .tier = b->tier,
                                        .entry = b->number,
                                        .berth = (uint32_t)berth,
                                        .first = at,
                                        .count = fit };
        const berthi_decoder_span span =
            berthi_decoder_extent(&run.decoder, unit.first, unit.count);

        add_unit(l, &unit, &run.cut, span.begin, span.bytes);
    }
    if (l->is_written) {
        if (run.turned_bytes > 0)
            note_turned_run(load, &run);
        if (run.is_double && !run.is_offloaded && run.elements > 0)
            run.turn = load->tiers[b->tier].turns++;
        run.quantized_bytes = cargo->is_copied ? 0 : b->bytes;
        load->runs[number] = run;
    }
    return BERTH_OK;
}

/* Berths of the disk stay where they are, or have a file of their own. */
static berth_status
check_disk(const berthi_load *load, uint64_t berth, const berthi_cargo *cargo,
           berth_error *error)
{
    const berthi_about where = berthi_load_about(load, berth);

    if (cargo->record != NULL && cargo->is_copied)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &where,
                           cargo->is_flat
                               ? "is doubly quantized and cut where blocks share a second "
                                 "level, and what is cut so is not streamed from the disk: "
                                 "give the plan host memory for it"
                               : "is stored quantized and cut by columns, which are not "
                                 "streamed from the disk: give the plan host memory for it");
    if (load->offload != NULL)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &where,
                       "is to be streamed from the disk %s",
                       cargo->is_copied
                           ? "by columns, which do not lie together there: name a folder "
                             "for it (--offload-dir)"
                           : "in another encoding, or with other statistics, than it is "
                             "stored in: name a folder for it (--offload-dir), or quantize "
                             "the checkpoint with `berth quantize` first");
}

/* What of this stored tensor is read for a berth of `weight`. */
static berth_status
add_berth(listing *l, uint64_t number, uint64_t weight, uint32_t berth)
{
    berthi_load *const load = l->load;
    berthi_cargo cargo;
    berth_status status;

    if (load->plan->berths[berth].is_tied)
        return BERTH_OK;
    status = berthi_model_cargo(load->model, berth, &cargo, l->error);
    if (status != BERTH_OK)
        return status;
    if (load->model->tiers[load->plan->berths[berth].tier].device == NULL) {
        if (berthi_cargo_is_stored(&cargo))
            return BERTH_OK;
        status = check_disk(load, berth, &cargo, l->error);
        return status == BERTH_OK && number == weight ? add_run(l, berth, &cargo) : status;
    }
    if (!cargo.is_copied)
        return number == weight ? add_run(l, berth, &cargo) : BERTH_OK;
    for (uint32_t i = 0; i < cargo.part_count; i++)
        if (cargo.parts[i].entry == number)
            add_part(l, berth, &cargo.parts[i], cargo.is_flat && i > 0 ? cargo.record : NULL);
    return BERTH_OK;
}

/* Adds the units of a stored tensor; it has none where it is no part of a berth. */
static berth_status
add_entry(listing *l, uint64_t number)
{
    const berth_model *const model = l->load->model;
    const berth_checkpoint *const c = l->load->checkpoint;
    const berthi_entry *const entry = &c->table.entries[number];
    uint64_t weight = number;
    berth_status status = BERTH_OK;

    if (entry->flags == BERTH_ENCODING_STATISTICS)
        weight = c->table.by_name[berthi_classify_record(&c->quantized, entry->owner)
                                      ->weight];
    for (uint32_t berth = model->berth_of[weight];
         berth != BERTHI_NO_BERTH && status == BERTH_OK;
         berth = berthi_model_next(model, berth))
        status = add_berth(l, number, weight, berth);
    return status;
}

/* Entries are numbered in the order of their bytes, shard by shard. */
static berth_status
walk(listing *l)
{
    const uint64_t entries = l->load->checkpoint->table.entry_count;
    berth_status status = BERTH_OK;

    l->units = 0;
    l->runs = 0;
    l->columns = 0;
    for (uint64_t i = 0; i < entries && status == BERTH_OK; i++)
        status = add_entry(l, i);
    return status;
}

/* --------------------------------------------------------------------- turned ones */

static bool
has_encoded(const berthi_load *load)
{
    for (uint64_t i = 0; i < load->plan->berth_count; i++) {
        const berthi_berth *const b = &load->plan->berths[i];

        if (b->number < load->checkpoint->table.entry_count
            && b->encoding != load->checkpoint->table.entries[b->number].flags)
            return true;
    }
    return false;
}

static void
note_turned(berth_model *model, const berthi_recipe *recipe)
{
    for (uint32_t i = 0; i < recipe->weight_count; i++) {
        const uint64_t tensor = recipe->weights[i].tensor;
        const uint32_t berth = model->berth_of[tensor];

        model->is_turned[tensor] =
            berth != BERTHI_NO_BERTH
            && berthi_recipe_is_turned(recipe, i, model->plan->berths[berth].encoding);
    }
}

/* The architecture knows which weights lie turned in one of the two encodings. */
static berth_status
find_turned(listing *l)
{
    berthi_load *const load = l->load;
    berth_model *const model = load->model;
    const berth_plan_summary *const summary = &load->plan->summary;
    berthi_recipe recipe;
    berth_convert_options options;
    berth_status status;

    if (!has_encoded(load))
        return BERTH_OK;
    berth_convert_options_init(&options);
    options.type = summary->type;
    options.dtype = summary->dtype;
    options.storage = BERTH_U8;
    options.block_size = summary->block_size;
    options.double_quant = summary->double_quant;
    status = berthi_recipe_init_decided(&recipe, load->context, load->checkpoint, &options,
                                        NULL, l->error);
    if (status != BERTH_OK)
        return status;
    model->is_turned =
        berthi_memory_zalloc(load->context, BERTHI_PURPOSE_TENSORS,
                             load->checkpoint->table.entry_count
                                 * sizeof *model->is_turned);
    if (model->is_turned != NULL)
        note_turned(model, &recipe);
    berthi_recipe_fini(&recipe);
    return model->is_turned != NULL ? BERTH_OK
                                    : berthi_fail_memory(l->error, "starting a load");
}

/* ---------------------------------------------------------------------------- list */

static berth_status
allocate(listing *l)
{
    berthi_load *const load = l->load;

    load->unit_count = l->units;
    load->run_count = l->runs;
    load->columns_count = l->columns;
    load->units = berthi_memory_array(load->context, BERTHI_PURPOSE_CHUNKS,
                                      load->unit_count, sizeof *load->units);
    load->pieces = berthi_memory_array(load->context, BERTHI_PURPOSE_CHUNKS,
                                       load->unit_count, sizeof *load->pieces);
    load->runs = berthi_memory_zalloc(load->context, BERTHI_PURPOSE_CHUNKS,
                                      load->run_count * sizeof *load->runs);
    load->columns = berthi_memory_array(load->context, BERTHI_PURPOSE_CHUNKS,
                                        load->columns_count, sizeof *load->columns);
    return load->units != NULL && load->pieces != NULL && load->runs != NULL
                   && load->columns != NULL
               ? BERTH_OK
               : berthi_fail_memory(l->error, "starting a load");
}

berth_status
berthi_load_list(berthi_load *load, berth_error *error)
{
    listing l = { .load = load, .error = error };
    berth_status status = find_turned(&l);

    if (status == BERTH_OK)
        status = berthi_load_offload_open(load, error);
    if (status == BERTH_OK)
        status = walk(&l);
    if (status == BERTH_OK)
        status = allocate(&l);
    l.is_written = true;
    if (status == BERTH_OK)
        status = walk(&l);
    load->chunk_bytes = berthi_max_u64(load->chunk_bytes, load->piece_max + WIDENED);
    return status;
}
