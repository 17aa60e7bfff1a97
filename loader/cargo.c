/* SPDX-License-Identifier: Apache-2.0 */
/* cargo.c - what each berth holds, and where its bytes come from. */
#include <string.h>

#include "loader/cargo_share.h"
#include "loader/model.h"
#include "quant/format.h"

#define DIGEST_BYTES (UINT64_C(512) << 10) /* malloc has them at hand; they fit into a cache */

/* What all the questions below are about. */
typedef struct question {
    const berth_checkpoint *checkpoint;
    const berth_plan *plan;
    const berthi_berth *berth;
    const berthi_entry *entry;
    berth_error *error;
} question;

static berthi_about
about(const question *q)
{
    return berthi_checkpoint_about(q->checkpoint, q->berth->number);
}

static berth_status
fail_size(const question *q, uint64_t bytes)
{
    berthi_about where = about(q);

    where.has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES;
    where.expected = bytes;
    where.actual = q->berth->bytes;
    return berthi_fail(q->error, BERTH_REASON_PLAN_CHECKPOINT, &where,
                       "has a berth of another size");
}

static uint64_t
companion_entry(const question *q, const berthi_quantized *record, uint32_t number)
{
    return q->checkpoint->table.by_name[record->companions[number]];
}

static uint64_t
entry_bytes(const question *q, uint64_t number)
{
    const berthi_entry *const entry = &q->checkpoint->table.entries[number];

    return entry->end - entry->begin;
}

/* ------------------------------------------------------------------ as it is stored */

/*
 * Each of its tensors, whatever they mean: encodings that berth does not make. A slice has
 * its share of each of them.
 */
static berth_status
take_as_stored(const question *q, berthi_cargo *out)
{
    uint64_t offset = 0;

    out->part_count = 1 + out->record->companion_count;
    if (out->part_count > BERTH_MODEL_PARTS)
        return fail_size(q, 0);
    for (uint32_t i = 0; i < out->part_count; i++) {
        berthi_share share;

        (void)berthi_share_can_get(q->checkpoint, out->record, &out->slice, i, &share);
        out->parts[i] = (berthi_cargo_part){
            .offset = offset,
            .bytes = share.bytes,
            .entry = share.entry,
            .cut = share.cut,
            .role = i == 0 ? BERTH_ROLE_CODES : BERTH_ROLE_COMPANION,
            .dtype = q->checkpoint->table.entries[share.entry].dtype,
        };
        offset += berthi_slab_round(out->parts[i].bytes);
    }
    return offset == q->berth->bytes ? BERTH_OK : fail_size(q, offset);
}

static berth_status
fail_statistics(const question *q)
{
    const berthi_about where = about(q);

    return berthi_fail(q->error, BERTH_REASON_UNSUPPORTED, &where,
                       "has statistics in another form than they are loaded in: "
                       "quantize the checkpoint anew first");
}

/* The part's tensor, of `bytes`: the weight's own, or the companion that has its role. */
static berth_status
find_source(const question *q, const berthi_cargo *cargo, uint32_t number, uint64_t bytes,
            berthi_cargo_part *part)
{
    part->entry = q->berth->number;
    if (number > 0 && number > cargo->record->companion_count)
        return fail_statistics(q);
    if (number > 0)
        part->entry = companion_entry(q, cargo->record, number - 1);
    return entry_bytes(q, part->entry) == bytes ? BERTH_OK : fail_statistics(q);
}

/* -------------------------------------------------------------------------- slices */

/* Of statistics: each is for a block, or for all columns of a row. */
static berthi_cut
cut_statistics(const berthi_cargo *cargo, const uint64_t *shape, int32_t role)
{
    const berthi_slice *const slice = &cargo->slice;
    const uint64_t block = cargo->storage.block_size;
    berthi_slice_view view = { 1, 1, 1 };

    if (slice->along == BERTH_SLICING_NONE)
        return berthi_cut_whole(0);
    view = berthi_slice_look(slice, shape, cargo->rank);
    switch (role) {
    case BERTH_ROLE_ROW_MAXIMUM:
        view.inner = 1;
        return slice->along == BERTH_SLICING_ROWS
                   ? berthi_share_cut_by(slice, &view, 1, 8 * sizeof(float))
                   : berthi_cut_whole(0);
    case BERTH_ROLE_ABSMAX:
        return berthi_share_cut_by(slice, &view, block,
                                   cargo->record->is_double ? 8 : 8 * sizeof(float));
    case BERTH_ROLE_ABSMAX2:
        return berthi_share_cut_by(slice, &view, block * 256, 8 * sizeof(float));
    default: return berthi_cut_whole(0);
    }
}

/* Where a part lies in its tensor: statistics are cut with what they are of. */
static berthi_cut
cut_part(const berthi_cargo *cargo, const uint64_t *shape, const berthi_cargo_part *part)
{
    const berthi_storage *const storage = &cargo->storage;

    if (part->role == BERTH_ROLE_VALUES || storage->encoding == BERTH_ENCODING_NATIVE)
        return berthi_share_cut(&cargo->slice, shape, cargo->rank,
                                berth_dtype_bits(part->dtype));
    if (part->role == BERTH_ROLE_CODES)
        return berthi_share_cut(&cargo->slice, shape, cargo->rank,
                                storage->encoding == BERTH_ENCODING_INT8 ? 8 : 4);
    return cut_statistics(cargo, shape, part->role);
}

static berth_status
refuse_slice(const question *q, const char *why)
{
    const berthi_about where = about(q);

    return berthi_fail(q->error, BERTH_REASON_UNSUPPORTED, &where, "%s", why);
}

static bool
is_made_by_berth(int32_t encoding)
{
    return berthi_format_is_4bit(encoding) || encoding == BERTH_ENCODING_INT8;
}

const char *
berthi_cargo_refusal(const berth_checkpoint *checkpoint, const berthi_slice *slice,
                     const uint64_t *shape, uint32_t rank, int32_t dtype,
                     const berthi_quantized *record)
{
    berthi_share share;

    if (record == NULL || is_made_by_berth(record->encoding))
        return berthi_slice_refusal(slice, shape, rank, dtype, record);
    for (uint32_t i = 0; i <= record->companion_count; i++)
        if (!berthi_share_can_get(checkpoint, record, slice, i, &share))
            return berthi_share_has_blocks(record)
                       ? "is stored in blocks that a cut here would split: cut the "
                         "checkpoint it was made of"
                       : "is stored in an encoding that is not cut: cut the checkpoint it "
                         "was made of";
    return NULL;
}

/* The slice that the plan says, which may be anybody's. `shape` gets that of all. */
static berth_status
take_slice(const question *q, berthi_cargo *cargo, uint64_t *shape)
{
    const berthi_about where = about(q);
    const char *why;

    memcpy(shape, cargo->shape, cargo->rank * sizeof *shape);
    cargo->cut = berthi_cut_whole(0);
    if (cargo->slice.along == BERTH_SLICING_NONE)
        return BERTH_OK;
    if (!berthi_slice_is_inside(&cargo->slice, shape, cargo->rank))
        return berthi_fail(q->error, BERTH_REASON_PLAN_CHECKPOINT, &where,
                           "has fewer rows or columns than the plan's slice of it");
    if (cargo->record != NULL && !cargo->is_copied)
        return refuse_slice(q, "is stored quantized, and slices of it are neither decoded "
                               "nor encoded anew");
    why = berthi_cargo_refusal(q->checkpoint, &cargo->slice, shape, cargo->rank,
                               q->entry->dtype, cargo->record);
    if (why != NULL)
        return refuse_slice(q, why);
    berthi_slice_shape(&cargo->slice, shape, cargo->rank, cargo->shape);
    cargo->elements = 1;
    for (uint32_t i = 0; i < cargo->rank; i++)
        cargo->elements *= cargo->shape[i];
    if (cargo->record == NULL)
        cargo->cut = berthi_share_cut(&cargo->slice, shape, cargo->rank,
                                      berth_dtype_bits(q->entry->dtype));
    else
        cargo->is_flat =
            berthi_slice_splits_levels(&cargo->slice, shape, cargo->rank, cargo->record);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------------ both */

/* Parts as they lie in the berth; sources are set for what is copied. */
static berth_status
list_parts(const question *q, berthi_cargo *out, const uint64_t *shape)
{
    const berthi_storage stored_as = out->storage;
    berthi_slab_part parts[BERTHI_SLAB_PARTS];
    berthi_slab_part stored[BERTHI_SLAB_PARTS];
    uint64_t bytes;
    berth_status status = BERTH_OK;

    out->storage.is_double = stored_as.is_double && !out->is_flat;
    if (!berthi_slab_can_list(&stored_as, shape, out->rank, stored, &out->part_count, &bytes)
        || !berthi_slab_can_list(&out->storage, out->shape, out->rank, parts,
                                 &out->part_count, &bytes))
        return fail_size(q, 0);
    if (bytes != q->berth->bytes)
        return fail_size(q, bytes);
    for (uint32_t i = 0; i < out->part_count && status == BERTH_OK; i++) {
        out->parts[i] = (berthi_cargo_part){ .offset = parts[i].offset,
                                             .bytes = parts[i].bytes,
                                             .entry = q->berth->number,
                                             .role = parts[i].role,
                                             .dtype = parts[i].dtype };
        out->parts[i].cut = out->is_copied ? cut_part(out, shape, &out->parts[i])
                                           : berthi_cut_whole(0);
        if (out->is_copied)
            status = find_source(q, out, i, stored[i].bytes, &out->parts[i]);
    }
    return status;
}

/*
 * What has in its berth the encoding, blocks and levels of its file. `record` NULL: plain
 * numbers.
 */
static bool
is_as_stored(const question *q, const berthi_quantized *record)
{
    const berth_plan_summary *const summary = &q->plan->summary;

    if (record == NULL)
        return q->berth->encoding == BERTH_ENCODING_NATIVE
               && q->berth->dtype == q->entry->dtype;
    if (record->encoding != q->berth->encoding)
        return false;
    if (summary->type == BERTH_ENCODING_NATIVE || !berthi_format_is_4bit(record->encoding))
        return true;
    return record->block_size == summary->block_size
           && record->is_double == (summary->double_quant != 0);
}

static void
describe(const question *q, berthi_cargo *out)
{
    const berth_plan_summary *const summary = &q->plan->summary;
    const berthi_quantized *const record = out->record;

    out->storage = (berthi_storage){ .encoding = q->berth->encoding,
                                     .dtype = q->berth->dtype,
                                     .storage = BERTH_U8,
                                     .block_size = summary->block_size,
                                     .is_double = summary->double_quant != 0 };
    out->is_copied = is_as_stored(q, record);
    if (record != NULL && out->is_copied) {
        out->storage.block_size = record->block_size;
        out->storage.is_double = record->is_double;
        out->is_copied = berthi_quantized_is_as_made(record); /* else it is encoded anew */
    }
    if (record != NULL) {
        out->rank = record->rank;
        out->elements = record->elements;
        memcpy(out->shape, record->shape, record->rank * sizeof *out->shape);
    } else {
        const char *const text = q->checkpoint->table.text;

        out->rank = q->entry->rank;
        out->elements = berthi_entry_elements(text, q->entry);
        berthi_entry_shape(text, q->entry, out->shape);
    }
}

/* bitsandbytes holds Conv1D the other way round. */
static void
turn(berthi_cargo *out)
{
    const uint64_t rows = out->shape[0];

    out->is_turned = true;
    out->shape[0] = out->shape[1];
    out->shape[1] = rows;
}

static berth_status
get(const berth_checkpoint *checkpoint, const berth_plan *plan, const bool *is_turned,
    uint64_t berth, berthi_cargo *out, berth_error *error)
{
    const berthi_table *const table = &checkpoint->table;
    uint64_t shape[BERTH_MAX_RANK];
    berth_status status;
    question q = { .checkpoint = checkpoint,
                   .plan = plan,
                   .berth = &plan->berths[berth],
                   .error = error };

    memset(out, 0, sizeof *out);
    if (q.berth->number >= table->entry_count)
        return berthi_fail(error, BERTH_REASON_PLAN_CHECKPOINT,
                           &(berthi_about){ .file = checkpoint->path },
                           "the plan has tensors that the checkpoint has not");
    q.entry = &table->entries[q.berth->number];
    if (q.entry->flags == BERTH_ENCODING_STATISTICS) {
        const berthi_about where = about(&q);

        return berthi_fail(error, BERTH_REASON_PLAN_CHECKPOINT, &where,
                           "has no berth of its own: it is the statistics of a weight");
    }
    if (q.entry->flags != BERTH_ENCODING_NATIVE)
        out->record = berthi_classify_record(&checkpoint->quantized, q.entry->owner);
    describe(&q, out);
    out->slice = berthi_plan_slice(plan, berth);
    if (out->slice.along != BERTH_SLICING_NONE && is_turned != NULL
        && is_turned[q.berth->number])
        return refuse_slice(&q, "lies turned in its encoding, and slices of it are not");
    status = take_slice(&q, out, shape);
    if (status != BERTH_OK)
        return status;
    if (!out->is_copied && is_turned != NULL && is_turned[q.berth->number])
        turn(out);
    if (out->slice.along == BERTH_SLICING_NONE)
        memcpy(shape, out->shape, out->rank * sizeof *shape);
    if (out->is_copied && out->record != NULL && !is_made_by_berth(out->record->encoding))
        return take_as_stored(&q, out);
    return list_parts(&q, out, shape);
}

uint64_t
berthi_cargo_rows(const berth_checkpoint *checkpoint, uint64_t tensor)
{
    const berthi_entry *const entry = &checkpoint->table.entries[tensor];
    uint64_t shape[BERTH_MAX_RANK];

    if (entry->flags != BERTH_ENCODING_NATIVE) {
        const berthi_quantized *const record =
            berthi_classify_record(&checkpoint->quantized, entry->owner);

        return record->rank > 0 ? record->shape[0] : 0;
    }
    berthi_entry_shape(checkpoint->table.text, entry, shape);
    return entry->rank > 0 ? shape[0] : 0;
}

bool
berthi_cargo_is_stored(const berthi_cargo *cargo)
{
    bool is_stored = cargo->is_copied && !cargo->is_flat;

    for (uint32_t i = 0; i < cargo->part_count; i++)
        is_stored = is_stored && cargo->parts[i].cut.rows == 1;
    return is_stored;
}

uint64_t
berthi_cargo_digest_bytes(const berthi_cargo *cargo)
{
    uint64_t bytes = 1;

    for (uint32_t i = 0; i < cargo->part_count; i++)
        bytes = berthi_max_u64(bytes, cargo->parts[i].bytes);
    return berthi_min_u64(bytes, DIGEST_BYTES);
}

berth_status
berthi_cargo_get(const berth_checkpoint *checkpoint, const berth_plan *plan,
                 uint64_t berth, berthi_cargo *out, berth_error *error)
{
    return get(checkpoint, plan, NULL, berth, out, error);
}

berth_status
berthi_model_cargo(const berth_model *model, uint64_t berth, berthi_cargo *out,
                   berth_error *error)
{
    return get(model->checkpoint, model->plan, model->is_turned, berth, out, error);
}
