/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_load_read.c - digests of a states file, and its states into pages. */
#include <inttypes.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/core_optimizer.h"
#include "kernels/digest.h"
#include "kernels/digits.h"
#include "kernels/tables.h"
#include "loader/optimizer_file.h"
#include "quant/format.h"

#define PIECE_BYTES (UINT64_C(1) << 20)

static const char what[] = "reading states";

/* ------------------------------------------------------------------------- metadata */

/* A key in two parts against a whole one, bytewise. */
static int
compare_key(const char *key, size_t length, const char *first, const char *second)
{
    const size_t head = strlen(first);
    const size_t whole = head + strlen(second);
    int order = memcmp(first, key, berthi_min_u64(head, length));

    if (order == 0 && length > head)
        order = memcmp(second, key + head, berthi_min_u64(whole, length) - head);
    if (order != 0)
        return order;
    return whole < length ? -1 : whole > length;
}

const char *
berthi_states_pair(const berth_checkpoint *file, uint32_t shard, const char *key,
                   const char *more, uint64_t *out_length)
{
    uint64_t low = 0;
    uint64_t high = file->shards[shard].pair_count;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        const char *found;
        const char *value;
        size_t found_length;
        size_t length;
        int order;

        (void)berth_checkpoint_metadata(file, shard, middle, &found, &found_length,
                                        &value, &length);
        order = compare_key(found, found_length, key, more);
        if (order == 0) {
            *out_length = length;
            return value;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* -------------------------------------------------------------------------- digests */

static berth_status
verify_tensor(const berth_checkpoint *file, uint64_t number, const char *digits,
              uint8_t *buffer, berth_error *error)
{
    const berthi_entry *const entry = &file->table.entries[number];
    const uint64_t bytes = entry->end - entry->begin;
    const berthi_about about = berthi_checkpoint_about(file, number);
    uint32_t crc = 0;
    uint32_t promised;

    for (uint64_t at = 0; at < bytes;) {
        const uint64_t size = berthi_min_u64(bytes - at, PIECE_BYTES);
        const berth_status status =
            berthi_checkpoint_read(file, number, at, buffer, size, what, error);

        if (status != BERTH_OK)
            return status;
        crc = berthi_digest_crc32(crc, buffer, size);
        at += size;
    }
    if (!berthi_hex32_can_parse(digits, &promised))
        return berthi_fail(error, BERTH_REASON_STATES_FILE, &about,
                           "its digest in the metadata is no crc32");
    if (promised != crc)
        return berthi_fail(error, BERTH_REASON_DIGEST, &about,
                           "its crc32 is %08" PRIx32 ", saved was %08" PRIx32, crc,
                           promised);
    return BERTH_OK;
}

static berth_status
verify_shard(const berth_checkpoint *file, uint32_t number, uint8_t *buffer,
             berth_error *error)
{
    const berthi_shard *const shard = &file->shards[number];
    const berthi_about about = { .file = shard->file.path };
    uint64_t length;
    const char *const digits =
        berthi_states_pair(file, number, BERTHI_STATES_CRC32, "", &length);
    berth_status status = BERTH_OK;

    if (digits == NULL)
        return BERTH_OK;
    if (length != shard->entry_count * BERTHI_HEX32_DIGITS)
        return berthi_fail(error, BERTH_REASON_STATES_FILE, &about,
                           "the digests of its metadata are those of other tensors");
    for (uint64_t i = 0; i < shard->entry_count && status == BERTH_OK; i++)
        status = verify_tensor(file, shard->first_entry + i, digits + i * BERTHI_HEX32_DIGITS,
                               buffer, error);
    return status;
}

berth_status
berthi_states_verify(const berth_checkpoint *file, berth_error *error)
{
    uint8_t *const buffer =
        berthi_memory_alloc(file->context, BERTHI_PURPOSE_SCRATCH, PIECE_BYTES);
    berth_status status = BERTH_OK;

    if (buffer == NULL)
        return berthi_fail_memory(error, what);
    for (uint32_t i = 0; i < file->shard_count && status == BERTH_OK; i++)
        status = verify_shard(file, i, buffer, error);
    berthi_memory_free(file->context, BERTHI_PURPOSE_SCRATCH, buffer, PIECE_BYTES);
    return status;
}

/* ---------------------------------------------------------------------------- states */

/* A page that is being made. */
typedef struct reading {
    const berth_optimizer *optimizer;
    const berth_checkpoint *file;
    const berthi_trained_tensor *parameter;
    const berthi_states_source *source;
    berthi_states_page page;
    uint8_t *bytes;  /* of the page */
    float *values;   /* as many as the page has elements */
    uint8_t *stored; /* and twice as many bytes, a block's absmax for each 256 */
} reading;

/* Elements of a state's half, `size` bytes each; or of its absmax. */
static berth_status
read_part(const reading *r, uint32_t key, uint32_t half, uint64_t half_bytes,
          uint64_t offset, void *out, uint64_t bytes, berth_error *error)
{
    return berthi_checkpoint_read(r->file, r->source->keys[key],
                                  half * half_bytes + offset, out, bytes, what, error);
}

static berth_status
read_coded(const reading *r, uint32_t state, uint8_t *codes, float *absmax,
           berth_error *error)
{
    const uint32_t table = berthi_state_table(state);
    const uint32_t half = berthi_state_half(state);
    const uint64_t block = r->source->block;
    const uint64_t elements = r->parameter->states.elements;
    berth_status status = read_part(r, BERTHI_STATE_KEY_STATE1 + table, half, elements,
                                    r->page.first, codes, r->page.elements, error);

    if (status != BERTH_OK)
        return status;
    return read_part(r, BERTHI_STATE_KEY_ABSMAX1 + table, half,
                     berthi_state_blocks(elements, block) * sizeof *absmax,
                     r->page.first / block * sizeof *absmax, absmax,
                     berthi_state_blocks(r->page.elements, block) * sizeof *absmax,
                     error);
}

static berth_status
decode(const reading *r, uint32_t state, float *values, berth_error *error)
{
    const uint32_t table = berthi_state_table(state);
    float *const absmax = (float *)(void *)r->stored;
    uint8_t *const codes =
        r->stored
        + berthi_state_blocks(r->page.elements, r->source->block) * sizeof *absmax;
    const berth_status status = read_coded(r, state, codes, absmax, error);

    if (status != BERTH_OK)
        return status;
    for (uint64_t i = 0; i < r->page.elements; i++)
        values[i] = berthi_core_one_nan(berthi_core_state_value(
            r->source->maps[table], codes[i], absmax[i / r->source->block]));
    return BERTH_OK;
}

static berth_status
read_values(const reading *r, uint32_t state, float *values, berth_error *error)
{
    const uint32_t key = BERTHI_STATE_KEY_STATE1 + berthi_state_table(state);
    const int32_t dtype = r->file->table.entries[r->source->keys[key]].dtype;
    const uint64_t size = berthi_format_element_bytes(dtype);
    void *const into = dtype == BERTH_F32 ? (void *)values : r->stored;
    const berth_status status =
        read_part(r, key, berthi_state_half(state), r->parameter->states.elements * size,
                  r->page.first * size, into, r->page.elements * size, error);

    if (status != BERTH_OK || dtype == BERTH_F32)
        return status;
    for (uint64_t i = 0; i < r->page.elements; i++)
        values[i] = berthi_core_load(r->stored, dtype, i);
    return BERTH_OK;
}

static berth_status
read_numbers(const reading *r, uint32_t state, float *values, berth_error *error)
{
    return r->source->block == 0 ? read_values(r, state, values, error)
                                 : decode(r, state, values, error);
}

/* As they are, or by way of numbers. */
static berth_status
read_state(const reading *r, uint32_t state, berth_error *error)
{
    const berthi_states_page *const page = &r->page;
    berthi_state_arguments a = { .count = page->elements,
                                .is_signed = berthi_update_is_signed(state),
                                .values = r->values };
    berth_status status;

    if (r->parameter->states.bits == 32)
        return read_numbers(r, state, (float *)(void *)(r->bytes + page->values[state]),
                            error);
    a.codes = r->bytes + page->codes[state];
    a.absmax = (float *)(void *)(r->bytes + page->absmax[state]);
    if (r->source->block == BERTHI_UPDATE_BLOCK
        && !r->source->is_foreign[berthi_state_table(state)])
        return read_coded(r, state, a.codes, a.absmax, error);
    status = read_numbers(r, state, r->values, error);
    if (status == BERTH_OK)
        r->optimizer->operations.encode_state(&a);
    return status;
}

static berth_status
read_page(const reading *r, berth_error *error)
{
    const uint64_t number = r->source->keys[BERTHI_STATE_KEY_MASTER];
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < r->parameter->states.count && status == BERTH_OK; i++)
        status = read_state(r, i, error);
    if (status == BERTH_OK && r->parameter->states.has_master
        && number != BERTH_NO_TENSOR)
        status = berthi_checkpoint_read(r->file, number, r->page.first * sizeof(float),
                                        r->bytes + r->page.master,
                                        r->page.elements * sizeof(float), what, error);
    return status;
}

static berth_status
read_pages(berth_optimizer *o, reading *r, berth_error *error)
{
    const berthi_states *const states = &r->parameter->states;
    const uint64_t pages = berthi_states_page_count(states);
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < pages && status == BERTH_OK; i++) {
        r->page = berthi_states_get_page(states, i);
        status = read_page(r, error);
        if (status == BERTH_OK)
            status = berthi_optimizer_put_page(o, r->parameter, i, r->bytes, error);
    }
    return status;
}

/* Of the largest page. */
static uint64_t
page_elements(const berthi_states *states)
{
    return berthi_min_u64(states->elements, states->page_elements);
}

static uint64_t
page_room(const berthi_states *states)
{
    return berthi_round_up(berthi_states_page_bytes(states), 16);
}

uint64_t
berthi_states_room(const berthi_trained_tensor *parameter)
{
    const berthi_states *const states = &parameter->states;
    const uint64_t numbers = page_elements(states) * (sizeof(float) + 2) + 2 * sizeof(float);

    return berthi_max_u64(page_room(states) + numbers, berthi_optimizer_master_bytes(parameter));
}

berth_status
berthi_states_read(berth_optimizer *optimizer, const berth_checkpoint *file,
                   const berthi_trained_tensor *parameter, const berthi_states_source *source,
                   uint8_t *room, berth_error *error)
{
    const berthi_states *const states = &parameter->states;
    reading r = { .optimizer = optimizer,
                 .file = file,
                 .parameter = parameter,
                 .source = source,
                 .bytes = room };
    berth_status status;

    memset(room, 0, page_room(states));
    r.values = (float *)(void *)(room + page_room(states));
    r.stored = (uint8_t *)(r.values + page_elements(states));
    status = read_pages(optimizer, &r, error);
    if (status == BERTH_OK && states->has_master
        && source->keys[BERTHI_STATE_KEY_MASTER] == BERTH_NO_TENSOR)
        status = berthi_optimizer_copy_master(optimizer, parameter, room, error);
    return status;
}
