/* SPDX-License-Identifier: Apache-2.0 */
/*
 * classify_scaled.c - weights of small floats beside scales. Values are multiplied by
 * them, also where they are called inverse.
 *
 *   FP8     X.weight F8_E4M3 [N, K], X.weight_scale_inv: one a block of rows and columns;
 *           or X.weight_scale F32 [N] or [N, 1]: one a row. A single one is for all
 *   FP4     X.weight I8 [N, K/2], its scale F8_E8M0 [N, groups of a row]
 *   MXFP4   X_blocks U8 [E, N, G, 16], X_scales U8 [E, N, G]: groups of 32
 */
#include <string.h>

#include "kernels/base.h"
#include "quant/classify_walk.h"
#include "quant/format.h"

#define DEFAULT_BLOCK 128u
#define MXFP4_GROUP 32u
#define MXFP4_GROUP_BYTES 16u

/* Rows and columns of the blocks that share a scale. */
typedef struct tile {
    uint64_t rows;
    uint64_t columns;
    const char *method;
} tile;

static uint32_t
narrow(uint64_t value)
{
    return (uint32_t)berthi_min_u64(value, UINT32_MAX);
}

bool
berthi_classify_is_float8(int32_t dtype)
{
    return dtype == BERTH_F8_E4M3 || dtype == BERTH_F8_E5M2 || dtype == BERTH_F8_E4M3FNUZ
           || dtype == BERTH_F8_E5M2FNUZ;
}

/* -------------------------------------------------------------- FP8: finding */

/* Scales under the names that publishers use. */
typedef struct scale_pair {
    berthi_member inverse; /* X.weight_scale_inv, or M.scale: blocks, multiplied */
    berthi_member plain;   /* X.weight_scale: rows or the whole tensor           */
    berthi_member other;   /* of layouts that are named and not decoded          */
} scale_pair;

static berthi_member
find_other_scale(const berthi_walk *walk, const berthi_member *weight)
{
    static const char *const names[] = { BERTHI_OTHER_SCALES };
    const berthi_text module = berthi_walk_module(weight);
    berthi_member found = { .is_there = false };

    for (size_t i = 0; !found.is_there && i < sizeof names / sizeof *names; i++)
        found = berthi_walk_find(walk, weight->position, module, names[i]);
    return found;
}

static scale_pair
find_scales(const berthi_walk *walk, const berthi_member *weight)
{
    scale_pair found;

    memset(&found, 0, sizeof found);
    found.inverse = berthi_walk_find_after(walk, weight, "_scale_inv");
    if (found.inverse.is_there)
        return found;
    found.plain = berthi_walk_find_after(walk, weight, "_scale");
    if (!found.plain.is_there && berthi_walk_is_weight(weight))
        found.inverse = berthi_walk_find(walk, weight->position,
                                         berthi_walk_module(weight), "scale");
    if (!found.plain.is_there && !found.inverse.is_there && berthi_walk_is_weight(weight))
        found.other = find_other_scale(walk, weight);
    return found;
}

/* Scales of activations are no part of the weight, but they belong to it. */
static void
collect_activations(berthi_walk *walk, berthi_group *group)
{
    for (unsigned i = 0; i < 2; i++) {
        berthi_member member;
        berthi_text module;
        berthi_text other;

        if (walk->activations[i] == UINT32_MAX
            || berthi_walk_is_claimed(walk, walk->activations[i]))
            continue;
        berthi_walk_get(walk, walk->activations[i], &member);
        module = berthi_walk_module(&group->weight);
        other = berthi_walk_module(&member);
        if (other.length != module.length
            || memcmp(other.bytes, module.bytes, (size_t)module.length) != 0)
            continue;
        berthi_walk_collect(walk, group, &member);
        walk->dropped++;
    }
}

/* Those of experts fused into one: under the parameter's own name, as its scales are. */
static void
collect_fused_activations(berthi_walk *walk, berthi_group *group)
{
    static const char *const suffixes[] = { "_activation_scale", "_input_scale" };

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const berthi_member member =
            berthi_walk_find_after(walk, &group->weight, suffixes[i]);

        if (!member.is_there || berthi_walk_is_claimed(walk, member.position))
            continue;
        berthi_walk_collect(walk, group, &member);
        walk->dropped++;
    }
}

/* ------------------------------------------------------------- FP8: checking */

/*
 * The configured block; without a configuration, or one that has no blocks (gate and
 * up of fused experts have a scale each), what the grid divides into, or 128.
 */
static tile
block_of(const berthi_walk *walk, const uint64_t *rows_columns, const uint64_t *grid)
{
    const berthi_config *const config = walk->config;
    tile t = { DEFAULT_BLOCK, DEFAULT_BLOCK, "fp8 blocks" };

    if (config->block_rows != 0) {
        t.rows = config->block_rows;
        t.columns = config->block_columns;
    } else if ((!walk->is_fp8 || config->has_no_block) && grid[0] != 0 && grid[1] != 0
               && rows_columns[0] % grid[0] == 0 && rows_columns[1] % grid[1] == 0
               && rows_columns[0] != 0 && rows_columns[1] != 0) {
        t.rows = rows_columns[0] / grid[0];
        t.columns = rows_columns[1] / grid[1];
    }
    return t;
}

/* One dim of the grid: how many blocks there must be. */
static bool
is_ceiling(berthi_walk *walk, const berthi_member *scale, uint64_t dim, uint64_t block,
           uint64_t found)
{
    if (found == berthi_divide_up(dim, block))
        return true;
    berthi_walk_tell_mismatch(walk, scale, berthi_divide_up(dim, block), found,
                              "scales do not fit the shape and the block size");
    return false;
}

/* One number for the whole tensor: [], [1] or [1, 1]. */
static bool
is_single(const berthi_member *scale)
{
    return scale->tensor.elements == 1 && scale->tensor.rank <= 2;
}

static tile
whole_tensor(const berthi_member *weight, const uint64_t *shape)
{
    const uint32_t rank = weight->tensor.rank;
    const tile t = { rank >= 2 ? shape[rank - 2] : 1, rank >= 1 ? shape[rank - 1] : 1,
                     "fp8 tensor" };

    return t;
}

/*
 * One scale, or a grid of them for the last two dims: a grid for each of the
 * dims before. A grid of one scale covers its whole matrix.
 */
static bool
is_grid(berthi_walk *walk, const berthi_member *weight, const uint64_t *shape,
        const berthi_member *scale, tile *out)
{
    const uint32_t rank = weight->tensor.rank;
    uint64_t dims[BERTH_MAX_RANK];
    const uint64_t *grid = dims;

    *out = whole_tensor(weight, shape);
    if (is_single(scale))
        return true;
    if (rank < 2 || scale->tensor.rank != rank) {
        berthi_walk_tell_mismatch(walk, scale, rank, scale->tensor.rank,
                                  "scales have another rank than their weight");
        return false;
    }
    berthi_walk_shape(walk, scale, dims);
    for (uint32_t i = 0; i + 2 < rank; i++)
        if (!is_ceiling(walk, scale, shape[i], 1, grid[i]))
            return false;
    shape += rank - 2;
    grid += rank - 2;
    if (grid[0] == 1 && grid[1] == 1)
        return true;
    *out = block_of(walk, shape, grid);
    return is_ceiling(walk, scale, shape[0], out->rows, grid[0])
           && is_ceiling(walk, scale, shape[1], out->columns, grid[1]);
}

static bool
is_inverse_scale(berthi_walk *walk, const berthi_member *scale)
{
    switch (scale->tensor.dtype) {
    case BERTH_F32:
    case BERTH_BF16:
    case BERTH_F8_E8M0:
    case BERTH_U8: return true;
    default:
        berthi_walk_tell_dtype(walk, scale, "F32, BF16, F8_E8M0 or U8");
        return false;
    }
}

/* X.weight_scale beside X.weight [N, K]: F32 of shape [N], [N, 1] or one number. */
static bool
is_row_scale(const berthi_walk *walk, const berthi_member *weight, const uint64_t *shape,
             const berthi_member *scale, tile *out)
{
    uint64_t dims[BERTH_MAX_RANK];

    if (scale->tensor.dtype != BERTH_F32)
        return false;
    if (is_single(scale)) {
        *out = whole_tensor(weight, shape);
        return true;
    }
    if (weight->tensor.rank != 2 || scale->tensor.elements != shape[0]
        || scale->tensor.rank == 0 || scale->tensor.rank > 2)
        return false;
    berthi_walk_shape(walk, scale, dims);
    *out = (tile){ 1, shape[1], "fp8 rows" };
    return dims[0] == shape[0];
}

/* ---------------------------------------------------------------------- FP8 */

static void
add_float8(berthi_walk *walk, const berthi_member *weight, const uint64_t *shape,
           const berthi_member *scale, const tile *t)
{
    berthi_quantized *record;
    berthi_group group;

    berthi_walk_group(walk, weight, &group);
    berthi_walk_collect(walk, &group, scale);
    collect_activations(walk, &group);
    if (!berthi_walk_is_weight(weight))
        collect_fused_activations(walk, &group);
    record = berthi_walk_add(walk, &group, BERTH_ENCODING_FP8_BLOCK, shape,
                             weight->tensor.rank);
    if (record == NULL)
        return;
    record->method = t->method;
    record->block_size = narrow(t->rows);
    record->block_columns = narrow(t->columns);
}

bool
berthi_classify_is_scaled(berthi_walk *walk, const berthi_member *weight)
{
    const scale_pair found = find_scales(walk, weight);
    uint64_t shape[BERTH_MAX_RANK];
    tile t;

    if (!found.inverse.is_there && !found.plain.is_there && !found.other.is_there)
        return false;
    berthi_walk_shape(walk, weight, shape);
    if (weight->tensor.dtype != BERTH_F8_E4M3) {
        berthi_classify_foreign(walk, weight, berth_dtype_name(weight->tensor.dtype));
    } else if (found.plain.is_there || found.other.is_there) {
        if (found.plain.is_there && is_row_scale(walk, weight, shape, &found.plain, &t))
            add_float8(walk, weight, shape, &found.plain, &t);
        else
            berthi_classify_foreign(walk, weight, "fp8 with scales of another kind");
    } else if (is_inverse_scale(walk, &found.inverse)
               && is_grid(walk, weight, shape, &found.inverse, &t)) {
        add_float8(walk, weight, shape, &found.inverse, &t);
    }
    return true;
}

/* No scale at all: plain numbers only when nobody promised scales. */
void
berthi_classify_bare_float8(berthi_walk *walk, const berthi_member *weight)
{
    const berthi_about about = berthi_walk_about(walk, weight);
    berth_error details;

    if (walk->is_foreign) {
        if (weight->tensor.rank >= 2)
            berthi_classify_foreign(walk, weight, "");
    } else if (!walk->config->has_quantization
               || strcmp(walk->config->quant_method, "bitsandbytes") == 0) {
        if (walk->plain_floats++ == 0)
            walk->first_plain_float = weight->position;
    } else {
        berthi_fail(&details, BERTH_REASON_QUANT_PLAIN, &about,
                    "has dtype %s and no scales, but config.json promises quantization",
                    berth_dtype_name(weight->tensor.dtype));
        berthi_walk_tell(walk, BERTH_SEVERITY_ERROR, &about, &details);
    }
}

/* --------------------------------------------------- bytes: packed FP4, others */

/* I8 [.., N, K/2] beside F8_E8M0 [.., N, groups]: two numbers a byte. */
static void
take_fp4(berthi_walk *walk, const berthi_member *weight, const berthi_member *scale)
{
    const uint32_t rank = weight->tensor.rank;
    uint64_t shape[BERTH_MAX_RANK];
    uint64_t grid[BERTH_MAX_RANK];
    berthi_quantized *record;
    berthi_group group;

    berthi_walk_group(walk, weight, &group);
    berthi_walk_collect(walk, &group, scale);
    berthi_walk_shape(walk, weight, shape);
    berthi_walk_shape(walk, scale, grid);
    if (scale->tensor.rank != rank) {
        berthi_walk_tell_mismatch(walk, scale, rank, scale->tensor.rank,
                                  "scales have another rank than their weight");
        return;
    }
    for (uint32_t i = 0; i + 1 < rank; i++)
        if (!is_ceiling(walk, scale, shape[i], 1, grid[i]))
            return;
    shape[rank - 1] *= 2; /* its bytes exist: far from 2^64 */
    if (grid[rank - 1] == 0 || shape[rank - 1] % grid[rank - 1] != 0) {
        berthi_walk_tell_mismatch(walk, scale, shape[rank - 1], grid[rank - 1],
                                  "columns do not divide into this number of scales");
        return;
    }
    record = berthi_walk_add(walk, &group, BERTH_ENCODING_FP4_PACKED, shape, rank);
    if (record == NULL)
        return;
    record->method = "fp4 packed";
    record->block_size = narrow(shape[rank - 1] / grid[rank - 1]);
}

/* The one shape that bitsandbytes gives to the codes of a 4-bit weight: [bytes, 1]. */
static bool
is_4bit_codes(const berthi_walk *walk, const berthi_member *weight)
{
    uint64_t shape[BERTH_MAX_RANK];

    if (!walk->has_4bit || weight->tensor.dtype != BERTH_U8 || weight->tensor.rank != 2
        || !berthi_walk_is_weight(weight))
        return false;
    berthi_walk_shape(walk, weight, shape);
    return shape[1] == 1;
}

/*
 * An unclaimed weight of I8 or U8, when all names have been seen: packed FP4,
 * something foreign, int8 whose row maxima are lost, or 4-bit without its state.
 */
void
berthi_classify_byte(berthi_walk *walk, const berthi_member *weight)
{
    const bool is_signed = weight->tensor.dtype == BERTH_I8;
    scale_pair found;

    if (weight->tensor.rank < 2)
        return;
    found = find_scales(walk, weight);
    if (found.plain.is_there && found.plain.tensor.dtype == BERTH_F8_E8M0) {
        found.inverse = found.plain; /* the name differs, the meaning does not */
        found.plain.is_there = false;
    }
    if (is_signed && found.inverse.is_there
        && found.inverse.tensor.dtype == BERTH_F8_E8M0) {
        take_fp4(walk, weight, &found.inverse);
    } else if (found.inverse.is_there || found.plain.is_there || found.other.is_there) {
        berthi_classify_foreign(walk, weight, is_signed ? "int8 with scales"
                                                        : "packed with scales");
    } else if (walk->is_foreign) {
        berthi_classify_foreign(walk, weight, "");
    } else if (is_signed && berthi_walk_is_weight(weight)) {
        berthi_walk_claim(walk, weight);
        berthi_walk_tell_missing(walk, weight, "SCB");
    } else if (is_4bit_codes(walk, weight)) {
        berthi_walk_claim(walk, weight);
        berthi_walk_tell_missing(walk, weight, "quant_state.bitsandbytes__nf4 or __fp4");
    }
}

/* -------------------------------------------------------------------- MXFP4 */

static bool
is_mxfp4(berthi_walk *walk, const berthi_member *blocks, const uint64_t *shape,
         const berthi_member *scales)
{
    uint64_t grid[BERTH_MAX_RANK];

    if (blocks->tensor.rank != 4 || shape[3] != MXFP4_GROUP_BYTES) {
        berthi_walk_tell_mismatch(walk, blocks, MXFP4_GROUP_BYTES,
                                  blocks->tensor.rank == 4 ? shape[3] : 0,
                                  "is not of shape [experts, rows, groups, 16]");
        return false;
    }
    if (scales->tensor.dtype != BERTH_U8) {
        berthi_walk_tell_dtype(walk, scales, "U8");
        return false;
    }
    if (scales->tensor.rank != 3) {
        berthi_walk_tell_mismatch(walk, scales, 3, scales->tensor.rank,
                                  "rank of scales");
        return false;
    }
    berthi_walk_shape(walk, scales, grid);
    return is_ceiling(walk, scales, shape[0], 1, grid[0])
           && is_ceiling(walk, scales, shape[1], 1, grid[1])
           && is_ceiling(walk, scales, shape[2], 1, grid[2]);
}

/* X_blocks; `owner` is X. Other models may call plain tensors so. */
void
berthi_classify_mxfp4(berthi_walk *walk, const berthi_member *blocks, berthi_text owner)
{
    const berthi_member scales =
        berthi_walk_find(walk, blocks->position, owner, "_scales");
    uint64_t shape[BERTH_MAX_RANK];
    berthi_quantized *record;
    berthi_group group;

    if (blocks->tensor.dtype != BERTH_U8)
        return;
    berthi_walk_shape(walk, blocks, shape);
    if (!scales.is_there) {
        if (blocks->tensor.rank == 4 && shape[3] == MXFP4_GROUP_BYTES) {
            berthi_walk_claim(walk, blocks);
            berthi_walk_tell_missing(walk, blocks, "_scales");
        }
        return;
    }
    berthi_walk_group(walk, blocks, &group);
    berthi_walk_collect(walk, &group, &scales);
    if (!is_mxfp4(walk, blocks, shape, &scales))
        return;
    /* Stored as rows of groups, decoded transposed: [E, 32 G, N]. */
    record = berthi_walk_add(walk, &group, BERTH_ENCODING_MXFP4,
                             (const uint64_t[]){ shape[0], MXFP4_GROUP * shape[2],
                                                 shape[1] }, 3);
    if (record == NULL)
        return;
    record->method = "mxfp4";
    record->block_size = MXFP4_GROUP;
}

/* ------------------------------------------------------------- lone companions */

/* X.weight_scale_inv that nobody has claimed; `owner` is X.weight. */
void
berthi_classify_lone_scale(berthi_walk *walk, const berthi_member *scale,
                           berthi_text owner)
{
    const berthi_member weight = berthi_walk_find(walk, scale->position, owner, "");

    if (walk->is_foreign)
        return;
    if (!weight.is_there) {
        berthi_walk_claim(walk, scale);
        berthi_walk_tell_orphan(walk, scale, owner, "");
    } else if (!berthi_classify_is_float8(weight.tensor.dtype)
               && !berthi_walk_is_claimed(walk, weight.position)) {
        berthi_walk_claim(walk, scale);
        berthi_walk_tell_dtype(walk, &weight, "one that scales belong to");
    }
}

/* X_scales that nobody has claimed; `owner` is X. */
void
berthi_classify_lone_scales(berthi_walk *walk, const berthi_member *scales,
                            berthi_text owner)
{
    if (scales->tensor.dtype != BERTH_U8 || scales->tensor.rank != 3
        || walk->is_foreign)
        return;
    berthi_walk_claim(walk, scales);
    berthi_walk_tell_orphan(walk, scales, owner, "");
}
