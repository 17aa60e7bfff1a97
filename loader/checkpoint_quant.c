/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_quant.c - the table as classify.h sees it, and its verdicts. */
#include <string.h>

#include "kernels/text.h"
#include "loader/checkpoint.h"
#include "loader/weights.h"

static const berthi_entry *
entry_at(const berth_checkpoint *checkpoint, uint64_t position)
{
    return &checkpoint->table.entries[checkpoint->table.by_name[position]];
}

static void
get_tensor(void *user, uint64_t position, berthi_classify_tensor *out)
{
    const berth_checkpoint *const c = user;
    const berthi_entry *const entry = entry_at(c, position);

    out->name = berthi_entry_name(c->table.text, entry);
    out->name_length = entry->name_length;
    out->elements = berthi_entry_elements(c->table.text, entry);
    out->bytes = entry->end - entry->begin;
    out->dtype = entry->dtype;
    out->rank = entry->rank;
}

static void
get_shape(void *user, uint64_t position, uint64_t *shape)
{
    const berth_checkpoint *const c = user;

    berthi_entry_shape(c->table.text, entry_at(c, position), shape);
}

static const char *
get_file(void *user, uint64_t position)
{
    const berth_checkpoint *const c = user;

    return c->shards[entry_at(c, position)->shard].file.path;
}

static berth_status
read_companion(void *user, uint64_t position, void *buffer, uint64_t bytes,
               berth_error *error)
{
    const berth_checkpoint *const c = user;
    const berthi_entry *const entry = entry_at(c, position);

    return berthi_file_read(&c->shards[entry->shard].file, buffer, bytes,
                            berthi_checkpoint_offset(c, entry),
                            "reading the statistics of a weight", error);
}

static void
mark_tensor(void *user, uint64_t position, int32_t encoding, uint32_t record)
{
    const berth_checkpoint *const c = user;
    berthi_entry *const entry = &c->table.entries[c->table.by_name[position]];

    entry->flags = (uint16_t)encoding;
    entry->owner = record;
}

/* "bitsandbytes" of "bitsandbytes nf4", when config.json is silent. */
static berth_status
note_method(berth_checkpoint *c, berth_error *error)
{
    const char *method;

    c->quant_method = c->config.quant_method;
    if (c->quant_method[0] != '\0' || c->quantized.count == 0)
        return BERTH_OK;
    method = berthi_classify_record(&c->quantized, 0)->method;
    c->quant_method = berthi_arena_text(&c->location.arena, method, strcspn(method, " "));
    return c->quant_method != NULL ? BERTH_OK : berthi_fail_memory(error, "a name");
}

/* A shard that was named by itself: what belongs together may lie in others. */
static bool
is_lone_shard(const berth_checkpoint *c)
{
    uint32_t number;
    uint32_t total;
    size_t stem_length;

    return c->location.file != NULL && !c->is_sharded
           && berthi_weights_is_numbered(c->location.file, &number, &total, &stem_length)
           && total > 1;
}

static void
forget_marks(berth_checkpoint *c)
{
    for (uint64_t i = 0; i < c->table.entry_count; i++)
        c->table.entries[i].flags = BERTH_ENCODING_NATIVE;
}

static uint64_t
count_elements(const berthi_table *table)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < table->entry_count; i++)
        count += berthi_entry_elements(table->text, &table->entries[i]);
    return count;
}

berth_status
berthi_checkpoint_classify(berth_checkpoint *checkpoint, berthi_findings *findings,
                           berth_error *error)
{
    const berthi_classify_source source = {
        .user = checkpoint,
        .count = checkpoint->table.entry_count,
        .get = get_tensor,
        .shape = get_shape,
        .file = get_file,
        .read = read_companion,
        .mark = mark_tensor,
        .finding = findings->report,
        .finding_user = findings->user,
        .keep_going = findings->keep_going && !is_lone_shard(checkpoint),
    };
    berth_status status = berthi_classify_run(checkpoint->context, &source,
                                              &checkpoint->config, &checkpoint->quantized,
                                              error);

    checkpoint->is_lone = is_lone_shard(checkpoint);
    if (status == BERTH_OK)
        return note_method(checkpoint, error);
    berthi_findings_keep_name(findings, checkpoint->quantized.blamed,
                              checkpoint->quantized.blamed_length);
    if (checkpoint->is_lone && status == BERTH_EFORMAT) {
        forget_marks(checkpoint);
        checkpoint->is_in_pieces = true;
        checkpoint->quantized.parameter_count = count_elements(&checkpoint->table);
        checkpoint->quant_method = checkpoint->config.quant_method;
        berthi_findings_tell(findings, BERTH_SEVERITY_WARNING, error);
        return BERTH_OK;
    }
    /* With keep_going, classify has reported all errors itself. */
    if (source.keep_going && status != BERTH_ENOMEM && findings->errors++ == 0)
        findings->first = *error;
    return status;
}

/* --------------------------------------------------------------------- their numbers */

static bool
is_whole_number(int32_t dtype)
{
    switch (dtype) {
    case BERTH_I8:
    case BERTH_U8:
    case BERTH_I16:
    case BERTH_U16:
    case BERTH_I32:
    case BERTH_U32:
    case BERTH_I64:
    case BERTH_U64: return true;
    default: return false;
    }
}

/* Whole numbers that plain models have, too: counters, and tables by position. */
static bool
is_usual_buffer(const char *name, const berthi_entry *entry)
{
    static const char *const leaves[] = { "position_ids", "token_type_ids" };

    for (size_t i = 0; i < sizeof leaves / sizeof *leaves; i++)
        if (berthi_text_ends((berthi_text){ name, entry->name_length }, leaves[i]))
            return true;
    return entry->rank == 0;
}

/*
 * config.json may name a method that has left nothing but its name: plain floats are a
 * model. Of one that berth knows by no tensor, whole numbers may be the codes.
 */
static berth_status
check_method(const berth_checkpoint *c, berth_error *error)
{
    const char *const method = c->config.quant_method;
    char shown[BERTH_NAME_CAPACITY];

    if (c->quantized.count > 0 || !berthi_classify_is_foreign(method))
        return BERTH_OK;
    for (uint64_t i = 0; i < c->table.entry_count; i++) {
        const berthi_entry *const entry = &c->table.entries[i];
        const char *const name = berthi_entry_name(c->table.text, entry);

        if (!is_whole_number(entry->dtype) || is_usual_buffer(name, entry))
            continue;
        berth_text_escape(method, strlen(method), shown, sizeof shown);
        return berthi_fail(error, BERTH_REASON_QUANT_METHOD,
                           &(berthi_about){ .file = c->shards[entry->shard].file.path,
                                            .tensor = name,
                                            .tensor_length = entry->name_length },
                           "has dtype %s in a model that config.json says is quantized by "
                           "\"%s\", which berth does not decode",
                           berth_dtype_name(entry->dtype), shown);
    }
    return BERTH_OK;
}

berth_status
berthi_checkpoint_check_values(const berth_checkpoint *checkpoint, berth_error *error)
{
    if (checkpoint->is_in_pieces)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED,
                           &(berthi_about){ .file = checkpoint->path },
                           "is one of several shards, and what its weights are decoded with "
                           "lies in others: name the model's folder");
    return check_method(checkpoint, error);
}
