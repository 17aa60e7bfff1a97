/* SPDX-License-Identifier: Apache-2.0 */
/* stored.c - what a weight is stored as, tensor by tensor; see stored.h. */
#include "quant/stored.h"

#include <string.h>

#include "kernels/number.h"
#include "kernels/tables.h"
#include "quant/format.h"

#define MAP_VALUES 16u
#define MAP2_VALUES 256u
#define FP4_MINUS_ZERO 8u

static bool
is_code_dtype(int32_t dtype)
{
    switch (dtype) {
    case BERTH_U8:
    case BERTH_I8:
    case BERTH_BF16:
    case BERTH_F16:
    case BERTH_F32:
    case BERTH_F64: return true;
    default: return false;
    }
}

bool
berthi_stored_is_double(const berthi_storage *storage)
{
    return storage->is_double && berthi_format_is_4bit(storage->encoding);
}

/* ------------------------------------------------------------------- refusal */

static const char *
refusal_4bit(const berthi_storage *storage, uint64_t elements)
{
    uint64_t size;

    if (!berthi_format_is_block_size(storage->block_size))
        return "the block size is no power of two from 32 to 4096";
    if (!is_code_dtype(storage->storage))
        return "4-bit codes cannot be stored as this dtype";
    /* A pair of codes a byte; a wider element must be full. */
    size = berthi_format_element_bytes(storage->storage);
    if (size > 1 && elements % (2 * size) != 0)
        return "its 4-bit codes do not fill whole elements of the storage dtype";
    return NULL;
}

static const char *
refusal_encoded(const berthi_storage *storage, uint32_t rank, uint64_t elements)
{
    if (!berthi_is_number(storage->dtype))
        return "only values of BF16, F16 and F32 can be quantized";
    if (berthi_format_is_4bit(storage->encoding))
        return refusal_4bit(storage, elements);
    if (storage->encoding != BERTH_ENCODING_INT8)
        return "nothing is quantized to this encoding";
    return rank == 2 ? NULL : "only matrices can be stored as int8";
}

/* With a state as long as any. */
static bool
can_plan(const berthi_storage *storage, const uint64_t *shape, uint32_t rank,
         berthi_format_bytes *out)
{
    const berthi_format_plan plan = { .encoding = storage->encoding,
                                      .dtype = storage->dtype,
                                      .block_size = storage->block_size,
                                      .is_double = storage->is_double,
                                      .state_bytes = BERTHI_STATE_TEXT_MAX };

    return berthi_format_can_plan(&plan, shape, rank, out);
}

/* What can lie in a file in this encoding, but is not made. */
static const char *
refusal_made(const berthi_storage *storage, const uint64_t *shape, uint32_t rank)
{
    uint64_t elements = 0;

    if (storage->encoding == BERTH_ENCODING_NATIVE)
        return NULL;
    (void)berthi_format_can_count(shape, rank, &elements);
    if (elements == 0)
        return "a tensor without values cannot be quantized";
    if (rank == 0)
        return "a scalar cannot be stored in 4 bits";
    return NULL;
}

/* NULL: it can be stored, in so many bytes. */
static const char *
refusal(const berthi_storage *storage, const uint64_t *shape, uint32_t rank,
        berthi_format_bytes *out_bytes)
{
    const char *reason = NULL;
    uint64_t elements;

    if (rank > BERTH_MAX_RANK)
        return "it has more dims than a tensor can have";
    if (!berthi_format_can_count(shape, rank, &elements))
        return "it has more than 2^64 elements";
    if (storage->encoding != BERTH_ENCODING_NATIVE)
        reason = refusal_encoded(storage, rank, elements);
    if (reason == NULL && !can_plan(storage, shape, rank, out_bytes))
        reason = "its size in bytes is impossible";
    return reason;
}

const char *
berthi_stored_refusal(const berthi_storage *storage, const uint64_t *shape, uint32_t rank)
{
    berthi_format_bytes bytes;
    const char *const reason = refusal(storage, shape, rank, &bytes);

    return reason != NULL ? reason : refusal_made(storage, shape, rank);
}

/* ---------------------------------------------------------------------- list */

typedef struct list {
    berthi_stored *out;
    uint32_t count;
} list;

static berthi_stored *
add(list *l, berthi_role role, int32_t dtype, uint64_t bytes)
{
    berthi_stored *const stored = &l->out[l->count++];

    memset(stored, 0, sizeof *stored);
    stored->role = role;
    stored->dtype = dtype;
    stored->bytes = bytes;
    return stored;
}

static berthi_stored *
add_vector(list *l, berthi_role role, int32_t dtype, uint64_t bytes)
{
    berthi_stored *const stored = add(l, role, dtype, bytes);

    stored->rank = 1;
    stored->dims[0] = bytes / berthi_format_element_bytes(dtype);
    return stored;
}

/* Nothing is refused but impossible sizes. */
static void
list_native(list *l, int32_t dtype, const uint64_t *shape, uint32_t rank)
{
    uint64_t elements;
    uint64_t bytes;

    if (rank <= BERTH_MAX_RANK && berthi_format_can_count(shape, rank, &elements)
        && berthi_format_can_size(dtype, elements, &bytes))
        add(l, BERTHI_ROLE_VALUES, dtype, bytes)->rank = rank;
}

static void
list_int8(list *l, const uint64_t *shape, const berthi_format_bytes *bytes)
{
    berthi_stored *const codes = add(l, BERTHI_ROLE_CODES, BERTH_I8, bytes->packed);

    codes->rank = 2;
    codes->dims[0] = shape[0];
    codes->dims[1] = shape[1];
    add_vector(l, BERTHI_ROLE_ROW_MAXIMUM, BERTH_F32, bytes->absmax);
    add(l, BERTHI_ROLE_ROW_FORMAT, BERTH_U8, bytes->state);
}

static void
list_4bit(list *l, const berthi_storage *storage, const berthi_format_bytes *bytes)
{
    berthi_stored *const codes =
        add_vector(l, BERTHI_ROLE_CODES, storage->storage, bytes->packed);

    codes->rank = 2;
    codes->dims[1] = 1;
    add_vector(l, BERTHI_ROLE_ABSMAX, storage->is_double ? BERTH_U8 : BERTH_F32,
               bytes->absmax);
    if (storage->is_double) {
        add_vector(l, BERTHI_ROLE_ABSMAX2, BERTH_F32, bytes->absmax2);
        add_vector(l, BERTHI_ROLE_MAP2, BERTH_F32, MAP2_VALUES * sizeof(float));
    }
    add_vector(l, BERTHI_ROLE_MAP, BERTH_F32, MAP_VALUES * sizeof(float));
    add_vector(l, BERTHI_ROLE_STATE, BERTH_U8, bytes->state)->is_late =
        storage->is_double;
}

uint32_t
berthi_stored_list(const berthi_storage *storage, const uint64_t *shape, uint32_t rank,
                   berthi_stored out[BERTHI_STORED_MAX])
{
    list l = { out, 0 };
    berthi_format_bytes bytes;
    berthi_state state;

    if (storage->encoding == BERTH_ENCODING_NATIVE) {
        list_native(&l, storage->dtype, shape, rank);
        return l.count;
    }
    if (refusal(storage, shape, rank, &bytes) != NULL)
        return 0;
    if (berthi_format_is_4bit(storage->encoding)) {
        berthi_stored_state(storage, shape, rank, 0.0f, &state);
        bytes.state = berthi_state_guess(&state);
        list_4bit(&l, storage, &bytes);
    } else {
        list_int8(&l, shape, &bytes);
    }
    return l.count;
}

const uint64_t *
berthi_stored_shape(const berthi_stored *stored, const uint64_t *weight_shape)
{
    return stored->role == BERTHI_ROLE_VALUES ? weight_shape : stored->dims;
}

/* --------------------------------------------------------------------- names */

#define LEAF "weight"
#define LEAF_LENGTH (sizeof LEAF - 1)

/* What stands behind the weight's name, or (INT8) in place of its last part. */
static const char *
suffix_of(berthi_role role, int32_t encoding)
{
    switch (role) {
    case BERTHI_ROLE_ABSMAX: return ".absmax";
    case BERTHI_ROLE_ABSMAX2: return ".nested_absmax";
    case BERTHI_ROLE_MAP2: return ".nested_quant_map";
    case BERTHI_ROLE_MAP: return ".quant_map";
    case BERTHI_ROLE_STATE:
        return encoding == BERTH_ENCODING_NF4 ? ".quant_state.bitsandbytes__nf4"
                                              : ".quant_state.bitsandbytes__fp4";
    case BERTHI_ROLE_ROW_MAXIMUM: return "SCB";
    case BERTHI_ROLE_ROW_FORMAT: return "weight_format";
    default: return "";
    }
}

/* Bytes of the name up to and with its last dot. */
static uint64_t
module_length(const char *name, uint64_t length)
{
    while (length > 0 && name[length - 1] != '.')
        length--;
    return length;
}

berthi_stored_name
berthi_stored_name_of(const char *name, uint64_t length, berthi_role role,
                      int32_t encoding)
{
    const bool is_sibling =
        role == BERTHI_ROLE_ROW_MAXIMUM || role == BERTHI_ROLE_ROW_FORMAT;
    const berthi_stored_name out = { is_sibling ? module_length(name, length) : length,
                                     suffix_of(role, encoding) };

    return out;
}

bool
berthi_stored_can_name(const char *name, uint64_t length, int32_t encoding)
{
    const uint64_t module = module_length(name, length);

    return encoding != BERTH_ENCODING_INT8
           || (length - module == LEAF_LENGTH
               && memcmp(name + module, LEAF, LEAF_LENGTH) == 0);
}

/* ----------------------------------------------------------------- constants */

static uint32_t
put_map(int32_t encoding, uint8_t *out)
{
    const uint32_t *const values =
        encoding == BERTH_ENCODING_NF4 ? berthi_nf4_values : berthi_fp4_values;

    memcpy(out, values, MAP_VALUES * sizeof *values);
    if (encoding == BERTH_ENCODING_FP4) /* files hold +0 where decoding gives -0 */
        memset(out + FP4_MINUS_ZERO * sizeof *values, 0, sizeof *values);
    return MAP_VALUES * (uint32_t)sizeof *values;
}

uint32_t
berthi_stored_constant(berthi_role role, int32_t encoding,
                       uint8_t out[BERTHI_STORED_CONSTANT_MAX])
{
    switch (role) {
    case BERTHI_ROLE_MAP: return put_map(encoding, out);
    case BERTHI_ROLE_MAP2:
        memcpy(out, berthi_signed_map, BERTHI_STORED_CONSTANT_MAX);
        return BERTHI_STORED_CONSTANT_MAX;
    case BERTHI_ROLE_ROW_FORMAT: /* rows as in memory */
        out[0] = 0;
        return 1;
    default: return 0;
    }
}

void
berthi_stored_state(const berthi_storage *storage, const uint64_t *shape, uint32_t rank,
                    float offset, berthi_state *out)
{
    memset(out, 0, sizeof *out);
    out->encoding = storage->encoding;
    out->dtype = storage->dtype;
    out->block_size = storage->block_size;
    out->rank = rank;
    if (rank > 0)
        memcpy(out->shape, shape, rank * sizeof *shape);
    (void)berthi_format_can_count(shape, rank, &out->elements);
    out->is_double = storage->is_double;
    out->nested_dtype = BERTH_F32;
    out->offset = offset;
}
