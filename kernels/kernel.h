/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - what can be done to weights in one kind of memory: a table of
 * operations per instruction-set level or device.
 *
 * An operation that a level does not have is a NULL entry: ask, then call.
 * Arguments are described structs, counts 64-bit. Whatever the level, the
 * bytes that come out are those of core.h; kernel_scalar.c is the oracle.
 */
#ifndef BERTH_KERNELS_KERNEL_H
#define BERTH_KERNELS_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu.h"
#include "kernels/gradient.h"
#include "kernels/optimizer.h"
#include "loader/berth.h"

/* Values -> codes with one absmax per block; blocks run over the flat tensor. */
typedef struct berthi_encode_arguments {
    const void *values;
    int32_t dtype;       /* of the values: BERTH_BF16, BERTH_F16 or BERTH_F32          */
    uint32_t block_size; /* 4-bit: 32 to 4096, a power of two; 8-bit: any from 1       */
    uint64_t count;      /* a chunk of a tensor: all but the last hold whole blocks    */
    const uint32_t *map; /* 8-bit: the 256 bit patterns; else NULL                     */
    uint8_t *codes;      /* 4-bit: (count + 1) / 2 bytes; 8-bit: count                 */
    float *absmax;       /* one per block, the last one short                          */
} berthi_encode_arguments;

/* Codes -> values; reads exactly the codes, writes exactly `count` values. */
typedef struct berthi_decode_arguments {
    const uint8_t *codes;
    const float *absmax;
    uint64_t count;
    uint32_t block_size;
    int32_t dtype; /* of the values: BERTH_BF16, BERTH_F16 or BERTH_F32 */
    const uint32_t *map;
    void *values;
} berthi_decode_arguments;

/* Elements that share one second-level absmax: fixed by the format. */
#define BERTHI_DOUBLE_BLOCK 256u
#define BERTHI_DOUBLE_SCRATCH 4096u /* values: several blocks for one set of tables */

/* Of a double block's values, in the order of their bits as unsigned numbers. */
typedef struct berthi_extremes {
    float largest;
    float least;
} berthi_extremes;

/* First-level absmax -> 8-bit codes, second-level absmax and offset; and back. */
typedef struct berthi_double_arguments {
    const float *absmax;
    uint64_t count;
    uint8_t *codes;
    float *absmax2; /* ceil(count / 256) */
    float offset;   /* of berthi_mean() */
    float *scratch; /* BERTHI_DOUBLE_SCRATCH values */
    const berthi_extremes *extremes; /* of the first `extremes_count` blocks: a help */
    uint64_t extremes_count;
    const uint32_t *map; /* that decodes: what is stored need not be the published one */
} berthi_double_arguments;

#define BERTHI_MEAN_LANES 512u                    /* of the mean's widest block */
#define BERTHI_MEAN_ROW (4 * BERTHI_MEAN_LANES) /* values: four to a lane */

/* Four rows, added one after the other to the accumulators of the mean's widest block. */
typedef struct berthi_mean_rows_arguments {
    const float *values;
    uint64_t stride; /* values from one row to the next, whole rows */
    float *sums;     /* BERTHI_MEAN_ROW */
    bool is_first;   /* nothing is in `sums` yet */
    float *lanes;    /* NULL, or in place of `sums`: of each lane the sum of its four */
    berthi_extremes *extremes; /* NULL, or of the double block at `values` and on */
} berthi_mean_rows_arguments;

/* LLM.int8(): rows of fp16-rounded values -> codes and row maxima. */
typedef struct berthi_rows_arguments {
    const void *values;
    int32_t dtype;
    uint64_t rows;
    uint64_t columns;
    int8_t *codes;
    float *row_maximum;
} berthi_rows_arguments;

typedef struct berthi_rows_decode_arguments {
    const int8_t *codes;
    const float *row_maximum;
    uint64_t rows;
    uint64_t columns;
    int32_t dtype;
    void *values;
} berthi_rows_decode_arguments;

/*
 * Rows [first_row, first_row + rows) of a weight that was stored quantized by
 * somebody else -> values: number times scale, rounded to fp32 and then once
 * to the wanted dtype. Scales are those of the whole tensor, row-major.
 */
typedef struct berthi_source_arguments {
    const uint8_t *codes;   /* of the first row wanted */
    const void *scales;
    int32_t scale_dtype;    /* BERTH_F32, BERTH_BF16, BERTH_F8_E8M0, BERTH_U8 */
    uint64_t rows;
    uint64_t columns;       /* values of a row */
    uint64_t first_row;
    uint64_t block_rows;    /* values that share a scale; the last ones may be short */
    uint64_t block_columns;
    uint64_t scale_columns; /* of the grid */
    int32_t dtype;          /* BERTH_BF16, BERTH_F16 or BERTH_F32 */
    void *values;           /* rows x columns; MXFP4: columns x rows, transposed */
} berthi_source_arguments;

/* Scale `i` of the grid. */
float berthi_source_scale(const berthi_source_arguments *arguments, uint64_t i);
/* 8-bit floats (E4M3), a byte each. */
void berthi_decode_e4m3(const berthi_source_arguments *arguments);
/* E2M1 pairs, the first value in the low nibble; the reference's loop. */
void berthi_decode_e2m1(const berthi_source_arguments *arguments);
/* The same for one expert of gpt-oss, all its rows, written transposed. */
void berthi_decode_mxfp4(const berthi_source_arguments *arguments);

/*
 * outputs[i][row] = sum over k of inputs[i][k] * weight[row][k], for the rows
 * [first_row, end_row): a thread's share. With bf16 inputs the 16 values that
 * codes stand for count as rounded to bf16, on every level. The sums are
 * within the bounds of the tests of the exact ones; run after run, and for an
 * input alone or in a batch, their bits are the same.
 */
typedef struct berthi_product_arguments {
    const uint8_t *codes;
    const float *absmax;
    uint32_t block_size;
    uint32_t count;      /* inputs: 1 to 32 */
    uint64_t rows;
    uint64_t columns;
    uint64_t first_row;
    uint64_t end_row;
    const void *inputs;  /* count x columns */
    int32_t dtype;       /* of the inputs: BERTH_BF16, BERTH_F16 or BERTH_F32 */
    float *outputs;      /* count x rows */
    float *scratch;      /* berthi_product_scratch() values, own to the thread */
    bool is_arranged;    /* it is as a call has left it that differs in rows alone */
} berthi_product_arguments;

#define BERTHI_PRODUCT_CHUNK 128u /* columns that are worked on at once */
#define BERTHI_PRODUCT_TURN (2 * BERTHI_PRODUCT_CHUNK) /* the most of any level */

/* Whole turns, and what it takes to begin them on a cache line. */
static inline uint64_t
berthi_product_scratch(uint64_t columns, uint32_t count)
{
    return (columns + BERTHI_PRODUCT_TURN - 1) / BERTHI_PRODUCT_TURN * BERTHI_PRODUCT_TURN
               * count
           + 16;
}

/*
 * LLM.int8() activations: rows -> codes and row maxima, elements of magnitude
 * `threshold` and above left out of both. With several rows a column that
 * holds one is 0 everywhere, and `is_outlier` or `outliers` say which columns do.
 */
typedef struct berthi_activation_arguments {
    const void *values;
    int32_t dtype;
    uint64_t rows;
    uint64_t columns;
    float threshold; /* 0: no outliers */
    int8_t *codes;
    float *row_maximum;
    uint8_t *is_outlier; /* one per column, 0 or 1; may be NULL when threshold is 0 */
    uint32_t *outliers;  /* the same as bits, in place of it, all 0 before; NULL: that */
} berthi_activation_arguments;

/* The reference; what levels have of their own has its bits. */
void berthi_encode_activations(const berthi_activation_arguments *arguments);

static inline void
berthi_note_outlier(const berthi_activation_arguments *arguments, uint64_t column)
{
    if (arguments->outliers != NULL)
        arguments->outliers[column / 32] |= UINT32_C(1) << column % 32;
    else
        arguments->is_outlier[column] = 1;
}

/*
 * encode_activations of any level: rows one by one, each of which notes its outliers and
 * leaves them any code, and then the codes of their columns.
 */
void berthi_encode_activations_by(const berthi_activation_arguments *arguments,
                                  void (*encode_row)(const berthi_activation_arguments *own,
                                                     uint64_t row));

/* Sums of products of codes, for the rows [first_row, end_row) of the weight. */
typedef struct berthi_dot_arguments {
    const int8_t *weights; /* rows x columns */
    const int8_t *inputs;  /* count x columns */
    uint64_t rows;
    uint64_t columns;
    uint64_t first_row;
    uint64_t end_row;
    uint32_t count;
    int64_t *sums;         /* count x rows */
} berthi_dot_arguments;

/*
 * Sums -> outputs: scaled by both maxima, with one fused addition of the bias,
 * through fp16; then what the outlier columns add, in the output's dtype.
 */
typedef struct berthi_int8_output_arguments {
    const berthi_dot_arguments *dot; /* its sums are there */
    const float *weight_maximum;     /* rows */
    const float *input_maximum;      /* count */
    const uint16_t *bias;            /* rows, fp16; NULL: none */
    const void *inputs;              /* count x columns before encoding; for outliers */
    const uint8_t *is_outlier;       /* NULL: none */
    const uint32_t *outliers;        /* the same as bits, in place of it; NULL: none */
    const int32_t *sums;             /* in place of `dot's`; NULL: those */
    int32_t dtype;                   /* of inputs and outputs */
    void *outputs;                   /* count x rows */
    uint64_t stride;                 /* from an input's outputs to the next one's; 0: rows */
} berthi_int8_output_arguments;

void berthi_int8_output(const berthi_int8_output_arguments *arguments);

typedef struct berthi_operations {
    const char *level;
    void (*encode_nf4)(const berthi_encode_arguments *arguments);
    void (*encode_fp4)(const berthi_encode_arguments *arguments);
    void (*encode_map)(const berthi_encode_arguments *arguments);
    void (*decode_nf4)(const berthi_decode_arguments *arguments);
    void (*decode_fp4)(const berthi_decode_arguments *arguments);
    void (*decode_map)(const berthi_decode_arguments *arguments);
    void (*encode_double)(const berthi_double_arguments *arguments);
    void (*decode_double)(const berthi_double_arguments *arguments, float *out_absmax);
    bool uses_extremes; /* encode_double is faster with them */
    void (*add_mean_rows)(const berthi_mean_rows_arguments *arguments);
    void (*encode_rows)(const berthi_rows_arguments *arguments);
    void (*decode_rows)(const berthi_rows_decode_arguments *arguments);
    void (*encode_activations)(const berthi_activation_arguments *arguments);
    void (*decode_e2m1)(const berthi_source_arguments *arguments);
    void (*decode_mxfp4)(const berthi_source_arguments *arguments);
    void (*multiply_nf4)(const berthi_product_arguments *arguments);
    void (*multiply_fp4)(const berthi_product_arguments *arguments);
    void (*dot_int8)(const berthi_dot_arguments *arguments);
    uint64_t (*update)(const berthi_update_arguments *arguments,
                       const berthi_update_constants *constants); /* optimizer.h */
    void (*encode_state)(const berthi_state_arguments *arguments);
    void (*decode_state)(const berthi_state_arguments *arguments);
    void (*measure)(const berthi_measure_arguments *arguments); /* gradient.h */
    void (*accumulate)(const berthi_accumulate_arguments *arguments);
} berthi_operations;

/* The reference loops: every entry present, no instruction set assumed. */
extern const berthi_operations berthi_scalar_operations;

/*
 * encode_double of any level: its own 8-bit codes, the one way to subtract.
 * `tables` are the level's, made once for all turns.
 */
void berthi_encode_double_by(const berthi_double_arguments *arguments,
                             void (*encode_codes)(const berthi_encode_arguments *codes,
                                                  const void *tables),
                             const void *tables);

/*
 * All operations of a level, by the fastest code it has for each: what callers
 * use. Ask berthi_cpu_has_level() first.
 */
berthi_operations berthi_level_operations(berthi_cpu_level level);

/* What the levels have of their own; absent entries are the reference's. */
#ifdef __x86_64__
extern const berthi_operations berthi_avx2_operations;
extern const berthi_operations berthi_avx512_operations;
extern const berthi_operations berthi_avx512vbmi_operations;
extern const berthi_operations berthi_avx512bf16_operations;
extern const berthi_operations berthi_amx_operations;
#endif
#ifdef __aarch64__
extern const berthi_operations berthi_neon_operations;
extern const berthi_operations berthi_neondot_operations;
#endif

/*
 * The mean of `count` > 0 values in the summation order of the published
 * library's CUDA reduction: the order decides the last bit, and the bit is in
 * the file. `processors` and `threads_per_processor` limit the grid above
 * some 3 million values; 0 means 132 and 2048. `is_old_order` takes the order
 * of PyTorch before 2.10. `partial` holds berthi_mean_scratch() values.
 * Of some of the values, the first ones, the extremes are found on the way.
 */
typedef struct berthi_mean_arguments {
    const float *values;
    uint64_t count;
    uint32_t processors;
    uint32_t threads_per_processor;
    int is_old_order;
    float *partial;
    void (*add_rows)(const berthi_mean_rows_arguments *arguments); /* NULL: the reference's */
    berthi_extremes *extremes; /* NULL, or of berthi_mean_extremes() double blocks */
} berthi_mean_arguments;

float berthi_mean(const berthi_mean_arguments *arguments);
/* The reference's add_mean_rows. */
void berthi_add_mean_rows_plainly(const berthi_mean_rows_arguments *arguments);

/* The grid whose order it is: a kernel walks it with as many lanes and CTAs. */
typedef struct berthi_mean_grid {
    uint32_t width;  /* lanes of a block, a power of two up to 512 */
    uint64_t blocks;
    bool is_vector;  /* four neighbours a load, or one */
} berthi_mean_grid;

berthi_mean_grid berthi_mean_plan(const berthi_mean_arguments *arguments);
/* Double blocks whose extremes a mean finds; most of them where there are many. */
uint64_t berthi_mean_extremes(const berthi_mean_arguments *arguments);
/* Values of scratch that berthi_mean() needs; at most some thousand. */
uint64_t berthi_mean_scratch(uint64_t count, uint32_t processors,
                             uint32_t threads_per_processor);

#endif
