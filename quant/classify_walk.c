/* SPDX-License-Identifier: Apache-2.0 */
/* classify_walk.c - names, claims, records and problems; see classify_walk.h. */
#include "quant/classify_walk.h"

#include <string.h>

#include "kernels/grow.h"
#include "quant/format.h"

#define FIRST_BLOCKS 16u /* in the table of blocks */

/* -------------------------------------------------------------------- names */

void
berthi_walk_get(const berthi_walk *walk, uint32_t position, berthi_member *out)
{
    out->is_there = true;
    out->position = position;
    walk->source->get(walk->source->user, position, &out->tensor);
}

void
berthi_walk_shape(const berthi_walk *walk, const berthi_member *member, uint64_t *shape)
{
    walk->source->shape(walk->source->user, member->position, shape);
}

static int
compare_bytes(const char *a, uint64_t a_length, const char *b, uint64_t b_length)
{
    const int order = memcmp(a, b, (size_t)berthi_min_u64(a_length, b_length));

    if (order != 0)
        return order;
    return (a_length > b_length) - (a_length < b_length);
}

/* Order of a tensor's name against `prefix` + `suffix`, without joining them. */
static int
compare_name(const berthi_classify_tensor *tensor, berthi_text prefix,
             const char *suffix, uint64_t suffix_length)
{
    if (tensor->name_length < prefix.length) {
        const int order = memcmp(tensor->name, prefix.bytes, (size_t)tensor->name_length);

        return order != 0 ? order : -1;
    }
    if (prefix.length > 0) {
        const int order = memcmp(tensor->name, prefix.bytes, (size_t)prefix.length);

        if (order != 0)
            return order;
    }
    return compare_bytes(tensor->name + prefix.length,
                         tensor->name_length - prefix.length, suffix, suffix_length);
}

/* Where a name can still be: behind `below` and before `above`. */
typedef struct interval {
    int64_t below;
    int64_t above;
} interval;

/*
 * Gallops away from `at` in steps of 1, 2, 4, ... until the name is passed,
 * then halves what lies between: neighbours cost one look.
 */
static berthi_member
gallop(const berthi_walk *walk, interval in, int64_t at, berthi_text prefix,
       const char *suffix)
{
    const uint64_t length = strlen(suffix);
    const int64_t count = (int64_t)walk->source->count;
    int64_t step = 1;
    berthi_member member;

    while (in.above - in.below > 1) {
        int order;

        berthi_walk_get(walk, (uint32_t)at, &member);
        order = compare_name(&member.tensor, prefix, suffix, length);
        if (order == 0)
            return member;
        if (order < 0)
            in.below = at;
        else
            in.above = at;
        if (in.above == count && count - in.below > step)
            at = in.below + step;
        else if (in.below == -1 && in.above >= step)
            at = in.above - step;
        else
            at = in.below + (in.above - in.below) / 2;
        step *= 2;
    }
    memset(&member, 0, sizeof member);
    return member;
}

berthi_member
berthi_walk_find(const berthi_walk *walk, uint32_t near, berthi_text prefix,
                 const char *suffix)
{
    const interval all = { -1, (int64_t)walk->source->count };

    return gallop(walk, all, near, prefix, suffix);
}

berthi_member
berthi_walk_find_after(const berthi_walk *walk, const berthi_member *member,
                       const char *suffix)
{
    const interval after = { member->position, (int64_t)walk->source->count };
    const berthi_text name = berthi_walk_name(member);
    const uint64_t length = strlen(suffix);
    if (after.above - after.below > 1) {
        berthi_member next; /* mostly this one */

        berthi_walk_get(walk, member->position + 1, &next);
        if (next.tensor.name_length == name.length + length
            && memcmp(next.tensor.name + name.length, suffix, (size_t)length) == 0
            && memcmp(next.tensor.name, name.bytes, (size_t)name.length) == 0)
            return next;
    }
    return gallop(walk, after, after.below + 1, name, suffix);
}

berthi_text
berthi_walk_name(const berthi_member *member)
{
    const berthi_text name = { member->tensor.name, member->tensor.name_length };

    return name;
}

berthi_text
berthi_walk_module(const berthi_member *member)
{
    berthi_text module = berthi_walk_name(member);

    while (module.length > 0 && module.bytes[module.length - 1] != '.')
        module.length--;
    return module;
}

bool
berthi_walk_has_suffix(const berthi_classify_tensor *tensor, const char *suffix,
                       berthi_text *prefix)
{
    const uint64_t length = strlen(suffix);

    if (tensor->name_length < length)
        return false;
    prefix->bytes = tensor->name;
    prefix->length = tensor->name_length - length;
    return memcmp(tensor->name + prefix->length, suffix, (size_t)length) == 0;
}

bool
berthi_walk_is_weight(const berthi_member *member)
{
    berthi_text prefix;

    return berthi_walk_has_suffix(&member->tensor, "weight", &prefix)
           && (prefix.length == 0 || prefix.bytes[prefix.length - 1] == '.');
}

/* ------------------------------------------------------------------- claims */

bool
berthi_walk_is_claimed(const berthi_walk *walk, uint32_t position)
{
    return (walk->claimed[position / 64] >> position % 64 & 1) != 0;
}

/* False when it was claimed before. */
static bool
can_claim(berthi_walk *walk, const berthi_member *member)
{
    if (berthi_walk_is_claimed(walk, member->position))
        return false;
    walk->claimed[member->position / 64] |= UINT64_C(1) << member->position % 64;
    if (member->position < walk->counted)
        walk->out->parameter_count -= member->tensor.elements;
    return true;
}

void
berthi_walk_claim(berthi_walk *walk, const berthi_member *member)
{
    if (member->is_there)
        can_claim(walk, member);
}

void
berthi_walk_group(berthi_walk *walk, const berthi_member *weight, berthi_group *group)
{
    group->weight = *weight;
    group->companion_count = 0;
    group->bytes = weight->tensor.bytes;
    group->is_contested = weight->is_there && !can_claim(walk, weight);
}

void
berthi_walk_collect(berthi_walk *walk, berthi_group *group,
                    const berthi_member *companion)
{
    if (!companion->is_there || group->companion_count == BERTHI_WALK_COMPANIONS)
        return;
    group->companions[group->companion_count++] = companion->position;
    group->bytes += companion->tensor.bytes;
    if (!can_claim(walk, companion))
        group->is_contested = true;
}

/* ------------------------------------------------------------------ records */

/* Room for one more block in the table of blocks. */
static bool
has_block_room(berthi_walk *walk)
{
    berthi_classify_result *const out = walk->out;
    const uint64_t used = out->count / BERTHI_CLASSIFY_BLOCK;
    const berthi_growth growth = { .size = sizeof *out->blocks,
                                   .used = used,
                                   .before = out->block_capacity,
                                   .after = berthi_grown(out->block_capacity,
                                                         FIRST_BLOCKS) };
    berthi_quantized **blocks;

    if (used < out->block_capacity)
        return true;
    blocks = berthi_memory_grow(walk->context, BERTHI_PURPOSE_TENSORS, out->blocks, &growth);
    if (blocks == NULL)
        return false;
    out->blocks = blocks;
    out->block_capacity = growth.after;
    return true;
}

/* The next record, unset; NULL when out of memory. */
static berthi_quantized *
new_record(berthi_walk *walk)
{
    berthi_classify_result *const out = walk->out;
    berthi_quantized *block;

    if (out->count % BERTHI_CLASSIFY_BLOCK == 0) {
        if (!has_block_room(walk))
            return NULL;
        block = berthi_arena_alloc(&out->arena, BERTHI_CLASSIFY_BLOCK * sizeof *block, 8);
        if (block == NULL)
            return NULL;
        out->blocks[out->count / BERTHI_CLASSIFY_BLOCK] = block;
    }
    block = out->blocks[out->count / BERTHI_CLASSIFY_BLOCK];
    return &block[out->count % BERTHI_CLASSIFY_BLOCK];
}

/* Shape and companions, the one behind the other. False when out of memory. */
static bool
can_keep(berthi_walk *walk, berthi_quantized *record, const uint64_t *shape,
         uint32_t rank, const berthi_group *group)
{
    const uint64_t shape_bytes = rank * sizeof *shape;
    const uint64_t bytes = group->companion_count * sizeof *group->companions;
    char *const copy = berthi_arena_alloc(&walk->out->arena, shape_bytes + bytes,
                                          sizeof *shape);

    if (copy == NULL)
        return false;
    memcpy(copy, shape, (size_t)shape_bytes);
    memcpy(copy + shape_bytes, group->companions, (size_t)bytes);
    record->shape = (const void *)copy;
    record->companions = (const void *)(copy + shape_bytes);
    return true;
}

static void
mark(const berthi_walk *walk, uint32_t position, berth_encoding encoding)
{
    walk->source->mark(walk->source->user, position, (int32_t)encoding, walk->out->count);
}

static void
refuse(berthi_walk *walk, const berthi_member *weight, berth_reason reason, const char *words)
{
    const berthi_about about = berthi_walk_about(walk, weight);
    berth_error details;

    berthi_fail(&details, reason, &about, "%s", words);
    berthi_walk_tell(walk, BERTH_SEVERITY_ERROR, &about, &details);
}

berthi_quantized *
berthi_walk_add(berthi_walk *walk, const berthi_group *group, berth_encoding encoding,
                const uint64_t *shape, uint32_t rank)
{
    berthi_quantized *record;
    uint64_t elements;

    if (group->is_contested) {
        refuse(walk, &group->weight, BERTH_REASON_COMPANION_MISMATCH,
               "it or one of its statistics belongs to another weight, too");
        return NULL;
    }
    /* Without values it may have dims whose product is too large in this order. */
    if (!berthi_format_can_count(shape, rank, &elements)) {
        refuse(walk, &group->weight, BERTH_REASON_OVERFLOW,
               "the number of its values does not fit 64 bits");
        return NULL;
    }
    record = new_record(walk);
    if (record == NULL)
        goto no_memory;
    memset(record, 0, sizeof *record);
    if (!can_keep(walk, record, shape, rank, group))
        goto no_memory;
    record->elements = elements;
    record->method = "";
    record->total_bytes = group->bytes;
    record->weight = group->weight.position;
    record->encoding = (int16_t)encoding;
    record->dtype = BERTHI_NO_DTYPE;
    record->rank = (uint8_t)rank;
    record->companion_count = (uint8_t)group->companion_count;
    mark(walk, record->weight, encoding);
    for (uint32_t i = 0; i < group->companion_count; i++)
        mark(walk, group->companions[i], BERTH_ENCODING_STATISTICS);
    walk->out->count++;
    walk->out->parameter_count += record->elements;
    return record;

no_memory:
    berthi_walk_stop(walk, berthi_fail_memory(walk->error, "listing quantized weights"));
    return NULL;
}

/* ----------------------------------------------------------------- problems */

berthi_about
berthi_walk_about(const berthi_walk *walk, const berthi_member *member)
{
    const berthi_about about = {
        .file = walk->source->file(walk->source->user, member->position),
        .tensor = member->tensor.name,
        .tensor_length = (size_t)member->tensor.name_length,
    };

    return about;
}

void
berthi_walk_stop(berthi_walk *walk, berth_status status)
{
    walk->status = status;
    walk->is_stopped = true;
}

void
berthi_walk_tell(berthi_walk *walk, berth_severity severity, const berthi_about *about,
                 const berth_error *details)
{
    const berthi_classify_source *const source = walk->source;
    const berth_finding finding = {
        .severity = (int32_t)severity,
        .details = details,
        .name = about != NULL ? about->tensor : NULL,
        .name_length = about != NULL ? about->tensor_length : 0,
    };

    if (severity == BERTH_SEVERITY_ERROR) {
        if (walk->status == BERTH_OK) {
            walk->status = details->status;
            walk->out->blamed = finding.name;
            walk->out->blamed_length = finding.name_length;
            if (walk->error != NULL)
                *walk->error = *details;
        }
        if (!source->keep_going) {
            walk->is_stopped = true;
            return;
        }
    }
    if (source->finding != NULL)
        source->finding(source->finding_user, &finding);
}

void
berthi_walk_tell_missing(berthi_walk *walk, const berthi_member *weight,
                         const char *companion)
{
    const berthi_about about = berthi_walk_about(walk, weight);
    berth_error details;

    berthi_fail(&details, BERTH_REASON_COMPANION_MISSING, &about,
                "its companion \"%s\" is missing", companion);
    berthi_walk_tell(walk, BERTH_SEVERITY_ERROR, &about, &details);
}

void
berthi_walk_tell_orphan(berthi_walk *walk, const berthi_member *companion,
                        berthi_text owner, const char *rest)
{
    const berthi_about about = berthi_walk_about(walk, companion);
    char name[BERTH_NAME_CAPACITY];
    berth_error details;

    berth_text_escape(owner.bytes, (size_t)owner.length, name, sizeof name);
    berthi_fail(&details, BERTH_REASON_COMPANION_UNKNOWN, &about,
                "statistics of the weight \"%s%s\", which is not there", name, rest);
    berthi_walk_tell(walk, BERTH_SEVERITY_ERROR, &about, &details);
}

void
berthi_walk_tell_mismatch(berthi_walk *walk, const berthi_member *member,
                          uint64_t expected, uint64_t actual, const char *what)
{
    berthi_about about = berthi_walk_about(walk, member);
    berth_error details;

    about.has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL;
    about.expected = expected;
    about.actual = actual;
    berthi_fail(&details, BERTH_REASON_COMPANION_MISMATCH, &about, "%s", what);
    berthi_walk_tell(walk, BERTH_SEVERITY_ERROR, &about, &details);
}

void
berthi_walk_tell_dtype(berthi_walk *walk, const berthi_member *member, const char *wanted)
{
    const berthi_about about = berthi_walk_about(walk, member);
    berth_error details;

    berthi_fail(&details, BERTH_REASON_COMPANION_MISMATCH, &about,
                "has dtype %s, not %s", berth_dtype_name(member->tensor.dtype), wanted);
    berthi_walk_tell(walk, BERTH_SEVERITY_ERROR, &about, &details);
}

char *
berthi_walk_read(berthi_walk *walk, const berthi_member *member)
{
    const berthi_classify_source *const source = walk->source;
    berth_status status;

    if (walk->buffer == NULL)
        walk->buffer = berthi_memory_alloc(walk->context, BERTHI_PURPOSE_DOCUMENT,
                                           BERTHI_COMPANION_LIMIT);
    if (walk->buffer == NULL) {
        berthi_walk_stop(walk, berthi_fail_memory(walk->error, "reading statistics"));
        return NULL;
    }
    status = source->read(source->user, member->position, walk->buffer,
                          member->tensor.bytes, walk->error);
    if (status != BERTH_OK) {
        berthi_walk_stop(walk, status);
        return NULL;
    }
    return walk->buffer;
}
