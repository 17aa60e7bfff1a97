/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_arguments.h - what launchers hand to kernels: arguments, tables in the
 * form that kernels look things up in, and how many CTAs cover a tensor. Those of
 * products are in product_arguments.h.
 *
 * Plain data without a device: made on the host, tested there, and passed by
 * value, so that no kernel waits for a table to arrive.
 */
#ifndef BERTH_KERNELS_KERNEL_ARGUMENTS_H
#define BERTH_KERNELS_KERNEL_ARGUMENTS_H

#include "kernels/core.h"
#include "kernels/kernel.h"

/* ------------------------------------------------------------------ encoding */

#define ENCODE_THREADS 256u
#define ENCODE_LANE_LOG2 4u
#define ENCODE_LANE (1u << ENCODE_LANE_LOG2) /* elements of a lane in a tile */
#define ENCODE_TILE (ENCODE_THREADS * ENCODE_LANE)
#ifndef ENCODE_TILES
#define ENCODE_TILES 2u /* of a CTA: what is on its way at once */
#endif
#define ENCODE_CTA (ENCODE_TILES * ENCODE_TILE)

/*
 * A bin is 1/16 of the scaled values: [-1, 0) is in 1 to 16, [0, 1] in 17 to 33,
 * what is one ulp beyond in 0 and 33, NaN in the last one. No two thresholds
 * share a bin.
 */
#define ENCODE_BINS 64u
#define ENCODE_NAN_BIN 63u
#define ENCODE_COPIES 16u
#define ENCODE_BINS_WORDS (2 * ENCODE_BINS * ENCODE_COPIES)
#define ENCODE_BIN_SHIFT 7u /* a bin's number is its first copy's address / 128 */
#define ENCODE_BIN_MASK ((ENCODE_BINS - 1) << ENCODE_BIN_SHIFT)

typedef struct berthi_encode_kernel {
    const void *values;
    uint8_t *codes;
    float *absmax;
    uint64_t count;
    uint32_t block_log2; /* 5 to 12 */
    uint32_t is_aligned; /* values and codes to 16 bytes: else one element at a time */
    /* 4-bit: a threshold and a base for each bin. 8-bit: the borders of the codes. */
    uint32_t table[256];
} berthi_encode_kernel;

/*
 * A number whose bits from ENCODE_BIN_SHIFT on are the bin of `scaled`: added to
 * one so large that fractions fall off, downwards, so that only what is below 0
 * comes below the middle.
 */
BERTHI_CORE uint32_t
berthi_bin_bits(float scaled)
{
    const float steps = (float)(16u << ENCODE_BIN_SHIFT);
    const float middle = 12582912.0f + (float)(17u << ENCODE_BIN_SHIFT);

#ifdef __CUDA_ARCH__
    return berthi_core_bits(__fmaf_rd(scaled, steps, middle));
#else
    if (scaled != scaled)
        return 0x7FFFFFFFu; /* the hardware's NaN */
    return berthi_core_bits((float)(floor((double)scaled * (double)steps) + (double)middle));
#endif
}

static inline uint32_t
berthi_bin_of(float scaled)
{
    return (berthi_bin_bits(scaled) & ENCODE_BIN_MASK) >> ENCODE_BIN_SHIFT;
}

/* NF4: code = base + (scaled > threshold). */
static inline void
berthi_fill_nf4_bins(uint32_t *table)
{
    for (uint32_t bin = 0; bin < ENCODE_BINS; bin++) {
        table[2 * bin] = 0x7F800000u;
        table[2 * bin + 1] = 0;
        for (uint32_t k = 0; k < 15 && bin < ENCODE_NAN_BIN; k++) {
            const uint32_t its = berthi_bin_of(berthi_core_float(berthi_nf4_thresholds[k]));

            if (its < bin)
                table[2 * bin + 1]++;
            else if (its == bin)
                table[2 * bin] = berthi_nf4_thresholds[k];
        }
    }
}

/* FP4: sign and step = base + (magnitude > threshold). */
static inline void
berthi_fill_fp4_bins(uint32_t *table)
{
    for (uint32_t bin = 0; bin < ENCODE_BINS; bin++) {
        const bool is_negative = bin < 17;

        table[2 * bin] = 0x7F800000u;
        table[2 * bin + 1] = is_negative ? 8 : 0;
        for (uint32_t k = 0; k < 7 && bin < ENCODE_NAN_BIN; k++) {
            const float threshold = berthi_core_float(berthi_fp4_thresholds[k]);
            const uint32_t its = berthi_bin_of(is_negative ? -threshold : threshold);

            if (its == bin)
                table[2 * bin] = berthi_fp4_thresholds[k];
            else if (is_negative ? its > bin : its < bin)
                table[2 * bin + 1]++;
        }
    }
}

/* Ascending; the last one is never passed. */
static inline void
berthi_fill_borders(uint32_t *table, const uint32_t *map)
{
    for (uint32_t code = 0; code < 255; code++)
        table[code] = berthi_core_bits(berthi_core_map_border(map, code));
    table[255] = 0x7F800000u;
}

BERTHI_CORE uint64_t
berthi_encode_ctas(uint64_t count)
{
    return count / ENCODE_CTA + (count % ENCODE_CTA != 0);
}

/* ------------------------------------------------------------------ decoding */

#ifndef DECODE_THREADS
#define DECODE_THREADS 256u
#endif
#define DECODE_LANE 8u /* elements of a lane in a turn */
#define DECODE_TURN (DECODE_THREADS * DECODE_LANE)
/* Turns of the largest block: after as many a lane's absmax is equally far away. */
#define DECODE_PERIOD (4096u / DECODE_TURN)
#ifndef DECODE_TURNS
#define DECODE_TURNS 4u
#endif
#define DECODE_CTA (DECODE_TURNS * DECODE_TURN) /* the largest block, several times */

typedef struct berthi_decode_kernel {
    const uint8_t *codes;
    void *values;
    const float *absmax;         /* double quantization: the second level */
    const uint8_t *absmax_codes; /* double quantization: the first one */
    const float *offset;         /* double quantization; NULL: it is `offset_value` */
    float offset_value;
    uint64_t count;
    uint32_t block_log2; /* 5 to 12 */
    uint32_t is_aligned; /* codes to 8 bytes, values to 16: else one element at a time */
    uint32_t table[256]; /* the values of the codes, 16 or 256 */
    uint32_t map[256];   /* double quantization: of the absmax' codes, as it is stored */
} berthi_decode_kernel;

BERTHI_CORE uint64_t
berthi_decode_ctas(uint64_t count)
{
    return count / DECODE_CTA + (count % DECODE_CTA != 0);
}

/* ---------------------------------------------------------------------- mean */

#define MEAN_THREADS 512u

/*
 * One pass of the mean: values -> a sum per CTA, or the sums of CTAs -> one. The
 * last pass, which is the first one of a single CTA, multiplies by `factor`.
 */
typedef struct berthi_mean_kernel {
    const float *values;
    uint64_t count;
    float *sums;           /* one a CTA; of the last pass the mean */
    float factor;          /* 1 / the number of values, rounded; 1 before the last pass */
    uint32_t width;        /* berthi_mean_grid; the CTA has at least a warp */
    uint32_t is_vector;
    uint32_t is_aligned;   /* values to 16 bytes */
    uint32_t is_old_order;
} berthi_mean_kernel;

/* ------------------------------------------------------- double quantization */

#define DOUBLE_THREADS 512u /* at least MEAN_THREADS */
#define DOUBLE_TURN (DOUBLE_THREADS * 8u) /* absmax: a warp has a block of them */
#ifndef DOUBLE_TURNS
#define DOUBLE_TURNS 4u
#endif
#define DOUBLE_CTA (DOUBLE_TURNS * DOUBLE_TURN)

typedef struct berthi_double_kernel {
    const float *values;
    uint8_t *codes;
    float *absmax;           /* the second level */
    const float *offset;     /* subtracted from the values */
    uint64_t count;
    uint32_t is_aligned;     /* values and codes to 16 bytes: else one element at a time */
    berthi_mean_kernel join; /* the offset's last pass, of every CTA; no values: it is done */
    uint32_t map[256];       /* as it is stored */
} berthi_double_kernel;

static inline uint64_t
berthi_double_ctas(uint64_t count)
{
    return count / DOUBLE_CTA + (count % DOUBLE_CTA != 0);
}

/* --------------------------------------------------------------- LLM.int8() */

#define INT8_THREADS 512u /* of a row above what a warp keeps in registers: at most */
#define INT8_WARP_THREADS 128u /* a row each warp */
#define INT8_LANE 8u /* elements of a lane in a turn */
#ifndef INT8_TURNS
#define INT8_TURNS 8u
#endif

/* What fits a lane's registers, with f32 on its way to being rounded. */
BERTHI_CORE uint32_t
berthi_int8_turns(int32_t dtype)
{
    return dtype == BERTH_F32 ? INT8_TURNS / 2 : INT8_TURNS;
}

typedef struct berthi_int8_kernel {
    const void *values; /* to 16 bytes and 8 columns, but for the kernels of any address */
    int8_t *codes;      /* to 8 bytes */
    float *row_maximum;
    uint64_t rows;
    uint64_t columns;
    uint32_t lanes;      /* of a row, where that is a CTA's */
    float threshold;     /* 0: no outliers */
    float maximum_limit; /* the threshold as fp16: what reaches it is in no maximum */
    uint32_t *outliers;  /* with a threshold: a bit per column, 0 before the first row */
} berthi_int8_kernel;

/* How the rows of a launch are read. */
typedef enum berthi_int8_shape { INT8_BY_WARP, INT8_BY_CTA, INT8_ANY } berthi_int8_shape;

static inline berthi_int8_shape
berthi_int8_shape_of(uint64_t columns, int32_t dtype, bool is_aligned)
{
    const uint32_t of_lane = berthi_int8_turns(dtype) * INT8_LANE;

    if (!is_aligned || columns % INT8_LANE != 0 || columns > of_lane * INT8_THREADS)
        return INT8_ANY;
    return columns <= of_lane * 32u ? INT8_BY_WARP : INT8_BY_CTA;
}

/* Of a CTA: whole warps, and no more than keep a row in their registers. */
static inline uint32_t
berthi_int8_threads(uint64_t columns, int32_t dtype, berthi_int8_shape shape)
{
    const uint32_t of_warp = berthi_int8_turns(dtype) * INT8_LANE * 32u;

    if (shape != INT8_BY_CTA)
        return shape == INT8_BY_WARP ? INT8_WARP_THREADS : INT8_THREADS;
    return 32u * (uint32_t)((columns + of_warp - 1) / of_warp);
}

static inline uint64_t
berthi_int8_ctas(uint64_t rows, berthi_int8_shape shape)
{
    const uint64_t warps = INT8_WARP_THREADS / 32u;

    return shape == INT8_BY_WARP ? rows / warps + (rows % warps != 0) : rows;
}

#define OUTLIER_THREADS 256u
#define OUTLIER_ROWS 16u /* that a CTA clears columns of */

typedef struct berthi_outlier_kernel {
    const uint32_t *outliers; /* a bit per column */
    uint32_t *list;           /* columns, ascending */
    uint32_t *count;          /* of all outlier columns, were there room for them or not */
    uint32_t capacity;        /* of the list */
    int8_t *codes;            /* rows x columns */
    uint64_t rows;
    uint64_t columns;         /* below 2^32 */
} berthi_outlier_kernel;

static inline uint64_t
berthi_int8_clear_ctas(uint64_t rows)
{
    return rows / OUTLIER_ROWS + (rows % OUTLIER_ROWS != 0);
}

#define INT8_DECODE_THREADS 128u
#define INT8_DECODE_TURN (INT8_DECODE_THREADS * INT8_LANE)
#ifndef INT8_DECODE_TURNS
#define INT8_DECODE_TURNS 4u
#endif
#define INT8_DECODE_CTA (INT8_DECODE_TURNS * INT8_DECODE_TURN) /* columns of one row */

typedef struct berthi_int8_decode_kernel {
    const int8_t *codes;
    const float *row_maximum;
    void *values;
    uint64_t rows;
    uint64_t columns;
    uint32_t is_aligned; /* codes to 8 bytes, values to 16, columns to 8 */
} berthi_int8_decode_kernel;

BERTHI_CORE uint64_t
berthi_int8_decode_ctas(uint64_t rows, uint64_t columns)
{
    return rows * (columns / INT8_DECODE_CTA + (columns % INT8_DECODE_CTA != 0));
}

#define INT8_OUTPUT_THREADS 256u
#define INT8_OUTPUT_LANE 4u /* rows of the weight: neighbours among an input's outputs */
#define INT8_OUTPUT_ROWS (INT8_OUTPUT_THREADS * INT8_OUTPUT_LANE) /* of a CTA */
#ifndef INT8_OUTPUT_TURNS
#define INT8_OUTPUT_TURNS 8u /* inputs of a CTA */
#endif

typedef struct berthi_int8_output_kernel {
    const int32_t *sums;         /* count x rows */
    const float *input_maximum;  /* count */
    const float *weight_maximum; /* rows */
    const uint16_t *bias;        /* rows, fp16; NULL: none */
    void *outputs;               /* count x rows */
    uint64_t count;
    uint64_t rows;
    uint32_t is_aligned; /* rows to 4; what is read and written of four to its size */
    /* For the kernels with outliers; the list as in berthi_outlier_kernel. */
    uint32_t capacity;
    const uint32_t *outliers;
    const uint32_t *list;
    const uint32_t *outlier_count;
    const int8_t *weights; /* rows x columns */
    const void *inputs;    /* count x columns, in the outputs' dtype */
    uint64_t columns;
} berthi_int8_output_kernel;

/* Those of the same inputs one after the other. */
BERTHI_CORE uint64_t
berthi_int8_output_ctas_of_input(uint64_t rows)
{
    return rows / INT8_OUTPUT_ROWS + (rows % INT8_OUTPUT_ROWS != 0);
}

static inline uint64_t
berthi_int8_output_ctas(uint64_t count, uint64_t rows)
{
    return (count / INT8_OUTPUT_TURNS + (count % INT8_OUTPUT_TURNS != 0))
           * berthi_int8_output_ctas_of_input(rows);
}

/* ---------------------------------------------------------------- optimizers */

#ifndef UPDATE_THREADS
#define UPDATE_THREADS 512u
#endif
#define UPDATE_LANE 8u /* elements of a lane: a warp has a block */
#define UPDATE_WARPS (UPDATE_THREADS / 32u)
/*
 * Blocks of a warp, one after the other: so many that making tables is little beside
 * them, but no more than leave UPDATE_LEAST_CTAS, which keep all processors busy.
 */
#ifndef UPDATE_TURNS
#define UPDATE_TURNS 16u
#endif
#ifndef UPDATE_LEAST_CTAS
#define UPDATE_LEAST_CTAS 512u
#endif

typedef struct berthi_update_kernel {
    berthi_update_arguments arguments;
    berthi_update_constants constants;
    uint64_t *not_finite;
    uint32_t states;        /* of the kind */
    uint32_t is_aligned;    /* all that is there to a lane's share of it */
    uint32_t turns;         /* berthi_update_turns() */
    uint32_t is_usual;      /* aligned, and the constants are such as adam8.cuh is for */
    uint32_t maps[2][256];  /* of signed states, of unsigned ones */
} berthi_update_kernel;

/* Of adam8.cuh: instead of a square that is 0; its root. */
#define ADAM8_NOTHING 0x1p-120f
#define ADAM8_NOTHING_ROOT 0x1p-60f

/* Of a CTA: each is one block for each of its warps. */
static inline uint32_t
berthi_update_turns(uint64_t count)
{
    const uint64_t turns =
        count / ((uint64_t)UPDATE_WARPS * BERTHI_UPDATE_BLOCK * UPDATE_LEAST_CTAS);

    return turns < 1 ? 1 : turns > UPDATE_TURNS ? UPDATE_TURNS : (uint32_t)turns;
}

static inline uint64_t
berthi_update_ctas(uint64_t count)
{
    const uint64_t elements =
        (uint64_t)UPDATE_WARPS * BERTHI_UPDATE_BLOCK * berthi_update_turns(count);

    return count / elements + (count % elements != 0);
}

/* Measuring: a warp has a block. Adding up: a lane has eight elements. */
#define GRADIENT_THREADS 256u
#define GRADIENT_LANE 8u

static inline uint64_t
berthi_measure_ctas(uint64_t count)
{
    const uint64_t elements = GRADIENT_THREADS / 32 * BERTHI_GRADIENT_BLOCK;

    return count / elements + (count % elements != 0);
}

typedef struct berthi_accumulate_kernel {
    berthi_accumulate_arguments arguments;
    uint32_t is_aligned; /* both to a lane's share */
} berthi_accumulate_kernel;

static inline uint64_t
berthi_accumulate_ctas(uint64_t count)
{
    const uint64_t elements = GRADIENT_THREADS * GRADIENT_LANE;

    return count / elements + (count % elements != 0);
}

/* ------------------------------------------------------------- words of the host */

#define WRITE_THREADS 256u
#define WRITE_WORDS 512u /* what a launch takes along: half of what a kernel's parameters may be */

typedef struct berthi_write_kernel {
    uint32_t *to;
    uint32_t count; /* of words, up to WRITE_WORDS */
    uint32_t words[WRITE_WORDS];
} berthi_write_kernel;

/* ----------------------------------------------------------- a decoder's steps */

/* Their kernels are given the steps themselves, in which no `share` is 0. */
#define STEP_THREADS 256u
#define STEP_WARPS (STEP_THREADS / 32u)
#define NORM_THREADS 1024u
#define NORM_COLUMNS 4096u /* of a row at a time; more are read twice */
#define STEP_ELEMENTS 1024u /* of a CTA, of rows that are taken and of gates */
#define ADD_COLUMNS 128u    /* of a warp */
#define LARGEST_THREADS 512u /* of a row, of which one processor reads all */

BERTHI_CORE uint64_t
berthi_take_ctas_of_row(uint64_t columns)
{
    return columns / STEP_ELEMENTS + (columns % STEP_ELEMENTS != 0);
}

BERTHI_CORE uint64_t
berthi_add_parts_of_row(uint64_t columns)
{
    return columns / ADD_COLUMNS + (columns % ADD_COLUMNS != 0);
}

/* For so many warps. */
static inline uint64_t
berthi_step_ctas(uint64_t warps)
{
    return warps / STEP_WARPS + (warps % STEP_WARPS != 0);
}

#endif
