/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_save.c - states into one safetensors file, a page at a time. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/tables.h"
#include "loader/layout.h"
#include "loader/optimizer_file.h"
#include "loader/output.h"

#define ARENA_BYTES (UINT64_C(16) << 10)
#define DIGITS      8u /* of a crc32 */
#define QMAP_BYTES  UINT64_C(1024)
#define ABSENT      UINT32_MAX

static const char *const suffixes[BERTHI_STATE_KEY_COUNT] = {
#define SUFFIX(identifier, name) [BERTHI_STATE_KEY_##identifier] = "." name,
    BERTHI_STATE_KEYS(SUFFIX)
#undef SUFFIX
};

/* The crc32 of one tensor, of which halves are written by turns. */
typedef struct digest {
    uint32_t crc[2];
    uint32_t halves;
} digest;

typedef struct save {
    berth_optimizer *optimizer;
    berthi_arena arena; /* shapes, texts, tensors */
    berthi_layout_tensor *tensors;
    digest *digests; /* as many */
    uint64_t tensor_count;
    berthi_layout_pair *pairs;
    char *crc32; /* the value of one of them */
    berthi_layout *layout;
    uint64_t payload; /* where the tensors begin in the file */
    berthi_output output;
    uint8_t *bytes; /* of a page */
} save;

/* ------------------------------------------------------------------------- tensors */

/* Numbers of a parameter's tensors from its first one on; ABSENT. Returns their count. */
static uint32_t
number_keys(const berthi_trained_tensor *p, uint32_t out[BERTHI_STATE_KEY_COUNT])
{
    uint32_t count = 0;

    for (uint32_t key = 0; key < BERTHI_STATE_KEY_COUNT; key++) {
        const bool is_second = key == BERTHI_STATE_KEY_STATE2
                               || key == BERTHI_STATE_KEY_ABSMAX2
                               || key == BERTHI_STATE_KEY_QMAP2;
        const bool is_coded =
            key >= BERTHI_STATE_KEY_ABSMAX1 && key <= BERTHI_STATE_KEY_QMAP2;
        const bool is_kept = (!is_second || berthi_state_tables(&p->states) == 2)
                             && (!is_coded || p->states.bits == 8)
                             && (key != BERTHI_STATE_KEY_MASTER || p->states.has_master);

        out[key] = is_kept ? count++ : ABSENT;
    }
    return count;
}

static const uint64_t *
make_shape(save *s, uint64_t first, const uint64_t *rest, uint32_t count)
{
    uint64_t *const shape =
        berthi_arena_alloc(&s->arena, (count + 1) * sizeof *shape, sizeof *shape);

    if (shape == NULL)
        return NULL;
    shape[0] = first;
    if (count > 0)
        memcpy(shape + 1, rest, count * sizeof *shape);
    return shape;
}

/* A state's own tensor: as the parameter, or twice that. */
static bool
can_shape_state(save *s, const berthi_trained_tensor *p, uint32_t halves,
                berthi_layout_tensor *t)
{
    t->dtype = p->states.bits == 8 ? BERTH_U8 : BERTH_F32;
    t->bytes = p->states.elements * halves * ((uint32_t)p->states.bits / 8);
    t->shape = halves == 2 ? make_shape(s, 2, p->shape, p->rank) : p->shape;
    t->rank = p->rank + (halves == 2);
    return t->shape != NULL;
}

static bool
can_shape_absmax(save *s, const berthi_trained_tensor *p, uint32_t halves,
                 berthi_layout_tensor *t)
{
    const uint64_t blocks = berthi_state_blocks(p->states.elements, BERTHI_UPDATE_BLOCK);

    t->dtype = BERTH_F32;
    t->bytes = blocks * halves * sizeof(float);
    t->shape =
        halves == 2 ? make_shape(s, 2, &blocks, 1) : make_shape(s, blocks, NULL, 0);
    t->rank = halves;
    return t->shape != NULL;
}

static bool
can_shape(save *s, const berthi_trained_tensor *p, uint32_t key, berthi_layout_tensor *t)
{
    static const uint64_t qmap[] = {256};
    const uint32_t first = berthi_state_halves(&p->states, 0);

    switch (key) {
    case BERTHI_STATE_KEY_STEP:
        t->dtype = BERTH_I64;
        t->bytes = sizeof p->step;
        t->shape = qmap;
        t->rank = 0;
        return true;
    case BERTHI_STATE_KEY_STATE1:
        return can_shape_state(s, p, first, t);
    case BERTHI_STATE_KEY_STATE2:
        return can_shape_state(s, p, 1, t);
    case BERTHI_STATE_KEY_ABSMAX1:
        return can_shape_absmax(s, p, first, t);
    case BERTHI_STATE_KEY_ABSMAX2:
        return can_shape_absmax(s, p, 1, t);
    case BERTHI_STATE_KEY_MASTER:
        t->dtype = BERTH_F32;
        t->bytes = p->states.elements * sizeof(float);
        t->shape = p->shape;
        t->rank = p->rank;
        return true;
    default:
        t->dtype = BERTH_F32;
        t->bytes = QMAP_BYTES;
        t->shape = qmap;
        t->rank = 1;
        return true;
    }
}

static bool
can_list_parameter(save *s, const berthi_trained_tensor *p, uint64_t first)
{
    uint32_t numbers[BERTHI_STATE_KEY_COUNT];

    number_keys(p, numbers);
    for (uint32_t key = 0; key < BERTHI_STATE_KEY_COUNT; key++) {
        berthi_layout_tensor *const t = &s->tensors[first + numbers[key]];

        if (numbers[key] == ABSENT)
            continue;
        t->name = p->name;
        t->name_length = (uint32_t)strlen(p->name);
        t->suffix = suffixes[key];
        if (!can_shape(s, p, key, t))
            return false;
        s->digests[first + numbers[key]].halves =
            key == BERTHI_STATE_KEY_STATE1 || key == BERTHI_STATE_KEY_ABSMAX1
                ? berthi_state_halves(&p->states, 0)
                : 1;
    }
    return true;
}

static bool
can_list_tensors(save *s)
{
    const berth_optimizer *const o = s->optimizer;
    uint32_t numbers[BERTHI_STATE_KEY_COUNT];
    uint64_t first = 0;

    for (uint64_t i = 0; i < o->parameter_count; i++)
        s->tensor_count += number_keys(&o->parameters[i], numbers);
    s->tensors = berthi_arena_alloc(&s->arena, s->tensor_count * sizeof *s->tensors, 8);
    s->digests = berthi_arena_alloc(&s->arena, s->tensor_count * sizeof *s->digests, 8);
    if (s->tensors == NULL || s->digests == NULL)
        return false;
    memset(s->tensors, 0, s->tensor_count * sizeof *s->tensors);
    memset(s->digests, 0, s->tensor_count * sizeof *s->digests);
    for (uint64_t i = 0; i < o->parameter_count; i++) {
        if (!can_list_parameter(s, &o->parameters[i], first))
            return false;
        first += number_keys(&o->parameters[i], numbers);
    }
    return true;
}

/* ------------------------------------------------------------------------- metadata */

/* A load takes no more; where a run makes more, an update is the same as with fewer. */
static uint64_t
steps_to_tell(uint64_t steps)
{
    return berthi_min_u64(steps, BERTHI_STATES_STEPS);
}

static char *
join(save *s, const char *a, const char *b)
{
    const uint64_t length = strlen(a);
    const uint64_t rest = strlen(b);
    char *const text = berthi_arena_alloc(&s->arena, length + rest + 1, 1);

    if (text != NULL) {
        memcpy(text, a, length);
        memcpy(text + length, b, rest + 1);
    }
    return text;
}

/* In bytewise order; digests are filled in when they are known. */
static bool
can_list_pairs(save *s, uint32_t *out_count)
{
    const berth_optimizer *const o = s->optimizer;
    char step[24];
    uint32_t n = 0;

    s->pairs =
        berthi_arena_alloc(&s->arena, (o->parameter_count + 3) * sizeof *s->pairs, 8);
    s->crc32 = berthi_arena_alloc(&s->arena, s->tensor_count * DIGITS + 1, 1);
    if (s->pairs == NULL || s->crc32 == NULL)
        return false;
    memset(s->crc32, '0', s->tensor_count * DIGITS);
    s->crc32[s->tensor_count * DIGITS] = '\0';
    s->pairs[n++] = (berthi_layout_pair){BERTHI_STATES_CRC32, s->crc32};
    for (uint64_t i = 0; i < o->parameter_count; i++, n++) {
        const berthi_trained_tensor *const p = o->by_name[i];

        s->pairs[n].key = join(s, BERTHI_STATES_KIND, p->name);
        s->pairs[n].value = berth_update_name(o->groups[p->group].kind);
        if (s->pairs[n].key == NULL)
            return false;
    }
    snprintf(step, sizeof step, "%" PRIu64, steps_to_tell(o->step));
    s->pairs[n++] = (berthi_layout_pair){BERTHI_STATES_STEP, join(s, step, "")};
    s->pairs[n++] = berthi_layout_format[0];
    *out_count = n;
    return s->pairs[n - 2].value != NULL;
}

static void
print_digests(save *s)
{
    const berthi_layout_shard file = berthi_layout_shard_at(s->layout, 0);

    for (uint32_t i = 0; i < file.tensor_count; i++) {
        const digest *const d = &s->digests[file.tensors[i]];
        const uint64_t half = s->tensors[file.tensors[i]].bytes / 2;
        const uint32_t crc = d->halves == 2
                                 ? berthi_digest_combine(d->crc[0], d->crc[1], half)
                                 : d->crc[0];
        char digits[DIGITS + 1];

        snprintf(digits, sizeof digits, "%08" PRIx32, crc);
        memcpy(s->crc32 + (uint64_t)i * DIGITS, digits, DIGITS);
    }
}

/* -------------------------------------------------------------------------- beginning */

/* There is one file: that smaller ones would do helps nobody. */
static berth_status
create_layout(save *s, const berthi_layout_options *options, berth_error *error)
{
    berth_error said;
    const berth_status status =
        berthi_layout_create(s->optimizer->context, s->tensors, s->tensor_count, options,
                             &s->layout, &said);

    if (status == BERTH_EUNSUPPORTED)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED,
                           &(berthi_about){ .has = said.has,
                                            .expected = said.expected,
                                            .actual = said.actual },
                           "the names of %" PRIu64
                           " tensors are too many, or too long, for the header of one file",
                           s->tensor_count);
    if (status != BERTH_OK && error != NULL)
        *error = said;
    return status;
}

static berth_status
lay_out(save *s, berth_error *error)
{
    berthi_layout_options options = { .is_in_order = true };
    berthi_layout_shard file;
    berth_status status;

    if (s->optimizer->parameter_count > UINT32_MAX / BERTHI_STATE_KEY_COUNT)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "%" PRIu64 " parameters are too many for one file",
                           s->optimizer->parameter_count);
    if (!can_list_tensors(s) || !can_list_pairs(s, &options.pair_count))
        return berthi_fail_memory(error, "saving states");
    options.pairs = s->pairs;
    status = create_layout(s, &options, error);
    if (status != BERTH_OK)
        return status;
    file = berthi_layout_shard_at(s->layout, 0);
    s->payload = sizeof(uint64_t) + file.header_bytes;
    return BERTH_OK;
}

static berth_status
alloc_page(save *s, berth_error *error)
{
    berth_optimizer *const o = s->optimizer;
    bool is_far = false;
    uint64_t most = 0;

    for (uint64_t i = 0; i < o->parameter_count; i++) {
        most = berthi_max_u64(most, berthi_states_page_bytes(&o->parameters[i].states));
        is_far |= berthi_optimizer_is_far(o, &o->parameters[i]);
    }
    return berthi_optimizer_open_room(o, most, is_far, "saving states", &s->bytes, error);
}

/* ---------------------------------------------------------------------------- writing */

/* Bytes of a half of a tensor, each half from front to back. */
static berth_status
put(save *s, uint64_t tensor, uint32_t half, uint64_t offset, const void *bytes,
    uint64_t size, berth_error *error)
{
    const berthi_layout_tensor *const t = &s->tensors[tensor];
    digest *const d = &s->digests[tensor];

    d->crc[half] = berthi_digest_crc32(d->crc[half], bytes, size);
    return berthi_output_write(&s->output, bytes, size,
                               s->payload + t->offset + half * (t->bytes / 2) + offset,
                               error);
}

static berth_status
put_state(save *s, const berthi_trained_tensor *p, const berthi_states_page *page,
          const uint32_t *numbers, uint64_t first, uint32_t state, berth_error *error)
{
    const uint32_t table = berthi_state_table(state);
    const uint32_t half = berthi_state_half(state);
    const uint64_t values = first + numbers[BERTHI_STATE_KEY_STATE1 + table];
    const uint64_t absmax = first + numbers[BERTHI_STATE_KEY_ABSMAX1 + table];
    berth_status status;

    if (p->states.bits == 32)
        return put(s, values, half, page->first * sizeof(float),
                   s->bytes + page->values[state], page->elements * sizeof(float), error);
    status = put(s, values, half, page->first, s->bytes + page->codes[state],
                 page->elements, error);
    if (status != BERTH_OK)
        return status;
    return put(s, absmax, half, berthi_update_absmax_bytes(page->first),
               s->bytes + page->absmax[state], berthi_update_absmax_bytes(page->elements),
               error);
}

static berth_status
put_page(save *s, const berthi_trained_tensor *p, uint64_t number, const uint32_t *numbers,
         uint64_t first, berth_error *error)
{
    const berthi_states_page page = berthi_states_get_page(&p->states, number);
    berth_status status =
        berthi_optimizer_get_page(s->optimizer, p, number, s->bytes, error);

    for (uint32_t i = 0; i < p->states.count && status == BERTH_OK; i++)
        status = put_state(s, p, &page, numbers, first, i, error);
    if (status == BERTH_OK && p->states.has_master)
        status = put(s, first + numbers[BERTHI_STATE_KEY_MASTER], 0,
                     page.first * sizeof(float), s->bytes + page.master,
                     page.elements * sizeof(float), error);
    return status;
}

static berth_status
put_parameter(save *s, const berthi_trained_tensor *p, uint64_t *first, berth_error *error)
{
    const uint64_t pages = berthi_states_page_count(&p->states);
    const int64_t step = (int64_t)steps_to_tell(p->step);
    uint32_t numbers[BERTHI_STATE_KEY_COUNT];
    const uint32_t count = number_keys(p, numbers);
    const uint32_t qmap1 = numbers[BERTHI_STATE_KEY_QMAP1];
    const uint32_t qmap2 = numbers[BERTHI_STATE_KEY_QMAP2];
    berth_status status = put(s, *first, 0, 0, &step, sizeof step, error);

    if (status == BERTH_OK && qmap1 != ABSENT)
        status = put(s, *first + qmap1, 0, 0, berthi_signed_map, QMAP_BYTES, error);
    if (status == BERTH_OK && qmap2 != ABSENT)
        status = put(s, *first + qmap2, 0, 0, berthi_unsigned_map, QMAP_BYTES, error);
    for (uint64_t i = 0; i < pages && status == BERTH_OK; i++)
        status = put_page(s, p, i, numbers, *first, error);
    *first += count;
    return status;
}

static berth_status
put_header(void *user, const char *bytes, uint64_t size, uint64_t offset,
           berth_error *error)
{
    return berthi_output_write(user, bytes, size, offset, error);
}

/* The header comes last: it has the digests of what it describes. */
static berth_status
write(save *s, berth_error *error)
{
    const berth_optimizer *const o = s->optimizer;
    uint64_t first = 0;
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < o->parameter_count && status == BERTH_OK; i++)
        status = put_parameter(s, &o->parameters[i], &first, error);
    if (status != BERTH_OK)
        return status;
    print_digests(s);
    return berthi_layout_write_header(s->layout, 0, put_header, &s->output, error);
}

static berth_status
save_to(save *s, const char *path, bool overwrite, berth_error *error)
{
    berth_status status = lay_out(s, error);

    if (status == BERTH_OK)
        status = alloc_page(s, error);
    if (status == BERTH_OK)
        status = berthi_output_open(s->optimizer->context, path,
                                    s->payload + berthi_layout_total_bytes(s->layout),
                                    overwrite, &s->output, error);
    if (status != BERTH_OK)
        return status;
    status = write(s, error);
    if (status == BERTH_OK)
        return berthi_output_commit(&s->output, error);
    berthi_output_discard(&s->output);
    return status;
}

berth_status
berth_optimizer_save(berth_optimizer *optimizer, const char *path, int32_t overwrite,
                     berth_error *error)
{
    save s = { .optimizer = optimizer };
    berth_status status;

    berthi_error_clear(error);
    if (optimizer == NULL)
        return berthi_fail_argument(error, "optimizer", "is NULL");
    if (path == NULL)
        return berthi_fail_argument(error, "path", "is NULL");
    if (optimizer->is_torn)
        return berthi_fail(
            error, BERTH_REASON_ARGUMENT, NULL,
            "an earlier step or load failed half way: its states belong to no step");
    berthi_arena_init(&s.arena, optimizer->context, BERTHI_PURPOSE_OBJECT, ARENA_BYTES);
    status = save_to(&s, path, overwrite != 0, error);
    berthi_optimizer_close_room(optimizer);
    berthi_layout_destroy(s.layout);
    berthi_arena_fini(&s.arena);
    return status;
}
