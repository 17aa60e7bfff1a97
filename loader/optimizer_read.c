/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_read.c - states as numbers, and f32 copies as they begin. */
#include <string.h>

#include "kernels/core.h"
#include "kernels/float_mode.h"
#include "loader/optimizer.h"

/* ------------------------------------------------------------------------- masters */

/* The values of a page, on the host; `buffer` where they have to be brought. */
static berth_status
bring_values(berth_optimizer *o, const berthi_trained_tensor *p, const berthi_states_page *page,
             uint8_t *buffer, const uint8_t **out, berth_error *error)
{
    const uint64_t size = berthi_format_element_bytes(p->dtype);
    const uint8_t *const values = p->values + page->first * size;

    *out = values;
    if (o->devices[p->device].is_host)
        return BERTH_OK;
    *out = buffer;
    return berthi_optimizer_fetch(o, p->device, buffer, values, page->elements * size, error);
}

static berth_status
copy_page(berth_optimizer *o, const berthi_trained_tensor *p, uint64_t number, uint8_t *bytes,
          uint8_t *buffer, berth_error *error)
{
    const berthi_states_page page = berthi_states_get_page(&p->states, number);
    float *const master = (float *)(void *)(bytes + page.master);
    const uint8_t *values;
    berth_status status = bring_values(o, p, &page, buffer, &values, error);

    if (status == BERTH_OK)
        status = berthi_optimizer_get_page(o, p, number, bytes, error);
    if (status != BERTH_OK)
        return status;
    for (uint64_t i = 0; i < page.elements; i++)
        master[i] = berthi_core_load(values, p->dtype, i);
    return berthi_optimizer_put_page(o, p, number, bytes, error);
}

/* The values behind it are read as such: codes end anywhere. */
static uint64_t
page_room(const berthi_trained_tensor *p)
{
    return berthi_round_up(berthi_states_page_bytes(&p->states), 16);
}

uint64_t
berthi_optimizer_master_bytes(const berthi_trained_tensor *p)
{
    return page_room(p) + berthi_min_u64(p->states.elements, p->states.page_elements) * 2;
}

berth_status
berthi_optimizer_copy_master(berth_optimizer *o, const berthi_trained_tensor *p, uint8_t *room,
                             berth_error *error)
{
    const uint64_t pages = berthi_states_page_count(&p->states);
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < pages && status == BERTH_OK; i++)
        status = copy_page(o, p, i, room, room + page_room(p), error);
    return status;
}

/* -------------------------------------------------------------------------- numbers */

/* What is asked for of one page: elements [first, first + count) of it. */
typedef struct stretch {
    const berthi_states_page *page;
    const uint8_t *bytes;
    uint32_t state;
    uint64_t first;
    uint64_t count;
} stretch;

static void
decode(const berth_optimizer *o, const stretch *s, float *out)
{
    float block[BERTHI_UPDATE_BLOCK];
    const float *const absmax =
        (const float *)(const void *)(s->bytes + s->page->absmax[s->state]);

    for (uint64_t done = 0; done < s->count;) {
        const uint64_t at = s->first + done;
        const uint64_t begin = berthi_round_down(at, BERTHI_UPDATE_BLOCK);
        const uint64_t length =
            berthi_min_u64(s->page->elements - begin, BERTHI_UPDATE_BLOCK);
        const uint64_t wanted = berthi_min_u64(begin + length - at, s->count - done);
        const berthi_state_arguments arguments = {
            .count = length,
            .is_signed = berthi_update_is_signed(s->state),
            .values = block,
            .codes = (uint8_t *)(uintptr_t)(s->bytes + s->page->codes[s->state] + begin),
            .absmax = (float *)(uintptr_t)(absmax + begin / BERTHI_UPDATE_BLOCK),
        };

        o->operations.decode_state(&arguments);
        memcpy(out + done, block + (at - begin), wanted * sizeof *out);
        done += wanted;
    }
}

static void
take_numbers(const berth_optimizer *o, const stretch *s, int32_t bits, float *out)
{
    if (bits == 8)
        decode(o, s, out);
    else
        memcpy(out, s->bytes + s->page->values[s->state] + s->first * sizeof *out,
               s->count * sizeof *out);
}

static berth_status
read_pages(berth_optimizer *o, const berthi_trained_tensor *p, const stretch *wanted,
           uint8_t *bytes, float *out, berth_error *error)
{
    const uint64_t end = wanted->first + wanted->count;
    berth_status status = BERTH_OK;

    for (uint64_t at = wanted->first; at < end && status == BERTH_OK;) {
        const uint64_t number = at / p->states.page_elements;
        const berthi_states_page page = berthi_states_get_page(&p->states, number);
        const stretch part = { .page = &page,
                               .bytes = bytes,
                               .state = wanted->state,
                               .first = at - page.first,
                               .count = berthi_min_u64(end, page.first + page.elements) - at };

        status = berthi_optimizer_get_page(o, p, number, bytes, error);
        if (status == BERTH_OK)
            take_numbers(o, &part, p->states.bits, out + (at - wanted->first));
        at += part.count;
    }
    return status;
}

berth_status
berth_optimizer_read(berth_optimizer *optimizer, uint64_t parameter, uint32_t state,
                     uint64_t first, uint64_t count, float *out, berth_error *error)
{
    const stretch wanted = { .state = state, .first = first, .count = count };
    const berthi_trained_tensor *p;
    uint8_t *bytes;
    berth_status status;
    fenv_t mode;

    berthi_error_clear(error);
    if (optimizer == NULL)
        return berthi_fail_argument(error, "optimizer", "is NULL");
    if (out == NULL)
        return berthi_fail_argument(error, "out", "is NULL");
    if (parameter >= optimizer->parameter_count)
        return berthi_fail_number(error, "parameter", parameter, optimizer->parameter_count);
    p = &optimizer->parameters[parameter];
    if (state >= p->states.count)
        return berthi_optimizer_fail(p, error, "has no such state");
    if (first > p->states.elements || count > p->states.elements - first)
        return berthi_optimizer_fail(p, error, "has fewer elements");
    status = berthi_optimizer_open_room(optimizer, berthi_states_page_bytes(&p->states),
                                        berthi_optimizer_is_far(optimizer, p),
                                        "reading states", &bytes, error);
    berthi_float_mode_begin(&mode);
    if (status == BERTH_OK)
        status = read_pages(optimizer, p, &wanted, bytes, out, error);
    berthi_float_mode_end(&mode);
    berthi_optimizer_close_room(optimizer);
    return status;
}
