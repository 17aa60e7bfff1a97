/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_arguments.h - what launchers hand to the kernels of products: arguments, how shared
 * memory is divided, and how many CTAs cover a weight. As kernel_arguments.h, which has the others.
 */
#ifndef BERTH_KERNELS_PRODUCT_ARGUMENTS_H
#define BERTH_KERNELS_PRODUCT_ARGUMENTS_H

#include "kernels/core.h"
#include "kernels/kernel.h"

/* ------------------------------------------------------------------ products */

#define PRODUCT_THREADS 256u
#define PRODUCT_WARPS (PRODUCT_THREADS / 32u)
#define PRODUCT_INPUTS 8u     /* of a fragment; without tensor cores of a CTA */
#define PRODUCT_MOST_FRAGMENTS 4u /* of inputs, all of them met by a weight once decoded */
#define PRODUCT_TILE_ROWS 32u /* of a warp with tensor cores; without it has one */
#define PRODUCT_PAIRS_BYTES (256u * 32u * 4u) /* of a CTA: two values by byte, a copy a lane */
#define PRODUCT_MOST_COLUMNS (UINT64_C(1) << 27) /* with them: bytes of 24 rows, of 8 inputs */
#define PRODUCT_MOST_WEIGHTS (UINT64_C(1) << 37) /* and numbers of chunks are below 2^32 */
#ifndef PRODUCT_TURNS
#define PRODUCT_TURNS 1 /* pairs of steps, one after the other in a loop */
#endif

/* One of several weights of the same shape; in the device's memory. */
typedef struct berthi_product_expert {
    const uint8_t *codes;
    const float *absmax;         /* double quantization: the second level */
    const uint8_t *absmax_codes; /* double quantization: the first one */
    const void *bias;            /* rows; NULL: none */
    float offset;                /* double quantization */
} berthi_product_expert;

#define PRODUCT_TOGETHER 4u /* weights in one grid */

/* One of several weights that have the same inputs; rows are its own. */
typedef struct berthi_product_member {
    const uint8_t *codes;
    const float *absmax;
    const uint8_t *absmax_codes;
    const void *bias;
    void *outputs;
    uint64_t rows;
    float offset;
    uint32_t first; /* CTA, of rings unit; those behind the last one: UINT32_MAX, which none is */
} berthi_product_member;

typedef struct berthi_product_kernel {
    const uint8_t *codes;        /* with tensor cores to 16 bytes */
    const float *absmax;         /* double quantization: the second level */
    const uint8_t *absmax_codes; /* double quantization: the first one */
    const void *inputs;          /* count x columns, with tensor cores to 16 bytes */
    const void *bias;            /* rows; NULL: none */
    void *outputs;               /* count x rows */
    uint64_t rows;
    uint64_t columns;    /* below 2^31, with tensor cores 2^27 and whole chunks */
    float offset;        /* double quantization */
    uint32_t count;      /* of inputs, 1 to BERTHI_MULTIPLY_INPUTS */
    uint32_t groups;     /* CTAs that share rows: 8 inputs each, but for tensor cores
                            without experts, that have all inputs in one */
    uint32_t block_log2; /* 5 to 12, with tensor cores a chunk or more */
    uint32_t slices;     /* with tensor cores: warps that share rows: 1, 2, 4 or 8 */
    uint32_t is_aligned; /* without them: eights of columns; else one element at a time */
    uint32_t table[16];  /* the values of the codes, rounded to the inputs' dtype */
    uint32_t map[256];   /* double quantization: of the absmax' codes, as it is stored */
    /* For the kernels of experts, in place of codes, absmax, bias, offset and count. */
    const berthi_product_expert *experts;
    const uint32_t *ranges;  /* one more than experts: inputs from ranges[e] on are e's */
    uint32_t ctas_of_group;  /* of one expert's group of inputs */
    /* For the kernels of weights together and of rings, in place of what one has. */
    berthi_product_member members[PRODUCT_TOGETHER];
    uint32_t units;      /* of rings: of all members' rows, RING_UNIT_ROWS each */
    uint32_t has_pairs;  /* of rings, double: absmax codes of two lines lie so that they are read
                            at once */
    uint32_t is_settled; /* of rings: codes and absmax may be read ahead of earlier work */
    uint32_t processors; /* the same: of the GPU; for the host alone */
} berthi_product_kernel;

/*
 * Warps that share rows: as many as a CTA has, so that what it reads of a row at a time is in
 * one place, where each has two pairs of steps of 128 columns.
 */
static inline uint32_t
berthi_product_slices(uint64_t columns)
{
    uint32_t slices = 1;

    while (slices < PRODUCT_WARPS && columns / 512 >= 2 * (uint64_t)slices)
        slices *= 2;
    return slices;
}

/* Of PRODUCT_INPUTS inputs, as the kernels for so many have them: 1, 2 or 4. */
static inline uint32_t
berthi_product_fragments(uint32_t count)
{
    return count <= PRODUCT_INPUTS ? 1 : count <= 2 * PRODUCT_INPUTS ? 2 : 4;
}

/* For warps of so many rows, of which `slices` share each. */
static inline uint64_t
berthi_product_ctas(uint64_t rows, uint32_t rows_of_warp, uint32_t slices, uint32_t groups)
{
    const uint64_t of_cta = (uint64_t)rows_of_warp * (PRODUCT_WARPS / slices);

    return (rows / of_cta + (rows % of_cta != 0)) * groups;
}

/* product_ring.cuh: blocks of 64, whole lines of codes, and for each warp as many as it takes. */
#define RING_BLOCK 64u
#define RING_UNIT_ROWS 16u /* that processors divide: of a member the last one may have fewer */
#define RING_TALL_UNITS 4u /* of a tile at most */
#define RING_LINE 256u /* columns: 128 bytes of codes */
#define RING_LINE_BLOCKS (RING_LINE / RING_BLOCK)
#define RING_STAGES 2u /* lines of a warp that are there or on their way */
#define RING_LEAST_COLUMNS (2 * RING_LINE * PRODUCT_WARPS)
#define RING_WARP_BYTES                                                               \
    (PRODUCT_TILE_ROWS * (RING_STAGES * RING_LINE / 2 + 2 * 2 * RING_LINE_BLOCKS * 4))
#define RING_SUMS_BYTES (2 * PRODUCT_TILE_ROWS / 16u * 4u * PRODUCT_THREADS * 4u)
#define RING_ROOM_BYTES (PRODUCT_PAIRS_BYTES + RING_SUMS_BYTES + PRODUCT_WARPS * RING_WARP_BYTES)

static inline uint64_t
berthi_ring_units(uint64_t rows)
{
    return rows / RING_UNIT_ROWS + (rows % RING_UNIT_ROWS != 0);
}

/* Of numbers as they are, and of codes of LLM.int8(): a warp has a row. */
#define PLAIN_LANE 8u    /* neighbours of a lane: as many sums of an input */
#define PLAIN_INPUTS 4u  /* of a CTA */
#ifndef PLAIN_LOADS
#define PLAIN_LOADS 4u   /* of 16 bytes a lane that are under way, of one input; as of codes */
#endif
#define INT8_SUM_LANE 16u
#define INT8_SUM_INPUTS 8u

typedef struct berthi_plain_kernel {
    const void *weight; /* rows x columns, of its own dtype */
    const void *inputs; /* count x columns */
    const void *bias;   /* rows; NULL: none */
    void *outputs;      /* count x rows */
    uint64_t rows;
    uint64_t columns;
    uint32_t count;
    uint32_t groups;    /* CTAs that share rows, one after the other */
    int32_t weight_dtype;
    uint32_t is_aligned; /* columns to 8, weight and inputs to 16 bytes */
} berthi_plain_kernel;

typedef struct berthi_int8_sum_kernel {
    const int8_t *weights; /* rows x columns */
    const int8_t *inputs;  /* count x columns */
    int32_t *sums;         /* count x rows */
    uint64_t rows;
    uint64_t columns;
    uint32_t count;
    uint32_t groups;     /* as above */
    uint32_t is_aligned; /* columns, weights and inputs to 16 */
} berthi_int8_sum_kernel;

/* ------------------------------------------------------------ products of many inputs */

/*
 * product_wide.cuh: tiles of rows and inputs, of which groups of 256 columns come one after the
 * other, codes and absmax at once, inputs in steps of 64.
 */
#define WIDE_BLOCK 64u
#define WIDE_GROUP 256u /* columns: 128 bytes of codes */
#define WIDE_STEP 64u   /* columns: 128 bytes of inputs */
#define WIDE_LINE 128u  /* those bytes */
#define WIDE_ROWS 64u   /* of four warps, which multiply together */
#define WIDE_FOUR_LANES 128u
#define WIDE_FEEDERS 128u /* lanes that bring what the others multiply */
#define WIDE_TABLE_BYTES 2048u /* of a warp: its rows' products of a group, in bytes apart */
#define WIDE_OUTPUT_LINE 144u /* bytes of 64 outputs on their way, and 16 beside */
#define WIDE_OUTPUTS 32u      /* inputs whose outputs are on their way at once */
#define WIDE_MOST_INPUTS 256u /* of a tile */
#define WIDE_MOST_ROWS 256u   /* the same */
#define WIDE_FLAGS 4u /* of a CTA: one for each four warps, at most */
#define WIDE_MOST_CTAS 256u
#define WIDE_FLAG_BYTES (WIDE_MOST_CTAS * WIDE_FLAGS * 4u)
/* Of a CTA: the sums of the tile that it has begun in the middle. */
#define WIDE_PART_BYTES(inputs, fours) ((uint64_t)(inputs) * (fours) * WIDE_ROWS * 4u)
#define WIDE_MOST_PART_BYTES WIDE_PART_BYTES(128, 4)

/* What a kernel of so many inputs has. */
typedef struct berthi_wide_shape {
    uint32_t inputs;       /* of a tile: 32, 64, 128 or 256 */
    uint32_t fours;        /* of warps: each has WIDE_ROWS rows */
    uint32_t input_stages; /* steps that are there or on their way; by pairs groups, as codes */
    uint32_t code_stages;  /* groups of columns, the same */
    bool by_pairs; /* of values, of which absmax are no part; else by products with it */
} berthi_wide_shape;

#define WIDE_SHAPE_32 { 32, 3, 4, 4, true }
#define WIDE_SHAPE_64 { 64, 3, 3, 3, true }
#define WIDE_SHAPE_128 { 128, 3, 6, 3, false }
#define WIDE_SHAPE_256 { 256, 2, 4, 3, false }

/* Where its parts lie, in bytes from a multiple of 1024 on. */
typedef struct berthi_wide_room {
    uint32_t codes; /* behind the inputs */
    uint32_t tables;
    uint32_t absmax;
    uint32_t outputs;
    uint32_t map;
    uint32_t gates;
    uint32_t end;
} berthi_wide_room;

BERTHI_CORE berthi_wide_room
berthi_wide_room_of(berthi_wide_shape s)
{
    const uint32_t rows = s.fours * WIDE_ROWS;
    berthi_wide_room r;

    r.codes = s.input_stages * s.inputs * WIDE_LINE
              * (s.by_pairs ? WIDE_GROUP / WIDE_STEP : 1);
    r.tables = r.codes + s.code_stages * rows * WIDE_LINE;
    r.absmax = r.tables + (s.by_pairs ? PRODUCT_PAIRS_BYTES : s.fours * 4 * WIDE_TABLE_BYTES);
    r.outputs = r.absmax + s.code_stages * rows * 16;
    r.map = r.outputs + s.fours * WIDE_OUTPUTS * WIDE_OUTPUT_LINE;
    r.gates = r.map + 1024;
    r.end = r.gates + 16 * (s.input_stages + 2 * s.code_stages + 1);
    return r;
}

/* Wherever it begins. */
static inline uint32_t
berthi_wide_room_bytes(berthi_wide_shape s)
{
    return berthi_wide_room_of(s).end + 1024;
}

/*
 * A matrix of which kernels copy tiles. The host says what it is; a GPU is given what its hardware
 * makes of that (cuda_runtime.c), in the same place, and finds it at a multiple of 64.
 */
typedef union berthi_tiles {
    struct {
        const void *from;    /* rows without gaps, to 16 bytes */
        uint64_t row_bytes;  /* a multiple of 16 */
        uint64_t rows;
        uint32_t tile_bytes; /* of a row */
        uint32_t tile_rows;  /* at most 256 */
        uint32_t is_turned;  /* where in a line of 128 bytes its 16-byte parts lie turns with it:
                                what is part c elsewhere is part c ^ line % 8 */
    } of;
#ifdef __CUDACC__
    __attribute__((aligned(64)))
#endif
    uint8_t hardware[128];
} berthi_tiles;

/* ------------------------------------------------------------- products of few inputs */

/*
 * product_few.cuh: those of rings for up to FEW_INPUTS, whose codes and absmax come as tiles. Two
 * CTAs have room in a processor's 228 KiB, of which each takes one more than it says.
 */
#define FEW_INPUTS 4u
#define FEW_STAGES 2u /* lines of a warp that are there or on their way */
#define FEW_CODES_BYTES (PRODUCT_TILE_ROWS * (RING_LINE / 2)) /* of a line */
#define FEW_ABSMAX_BYTES (PRODUCT_TILE_ROWS * RING_LINE_BLOCKS * 4)
#define FEW_CODES_COLUMNS (16u * RING_BLOCK) /* of 16 absmax codes, which are copied at once */

/* Where the parts lie; of a warp one behind the other. */
#define FEW_PAIRS_AT (PRODUCT_WARPS * FEW_STAGES * FEW_CODES_BYTES)
#define FEW_ABSMAX_AT (FEW_PAIRS_AT + PRODUCT_PAIRS_BYTES)
#define FEW_SUMS_AT (FEW_ABSMAX_AT + PRODUCT_WARPS * FEW_STAGES * FEW_ABSMAX_BYTES)
#define FEW_SUMS_BYTES ((PRODUCT_WARPS - 1) * PRODUCT_TILE_ROWS / 16u * 4u * 32u * 4u)
#define FEW_MAP_AT (FEW_SUMS_AT + FEW_SUMS_BYTES)
#define FEW_GATES_AT (FEW_MAP_AT + 256u * 4u)
#define FEW_GATES (FEW_STAGES + 1u) /* of a warp */
#define FEW_ROOM_BYTES (FEW_GATES_AT + PRODUCT_WARPS * FEW_GATES * 8u)

typedef struct berthi_few_kernel {
    berthi_product_kernel product;
    uint32_t unused[8]; /* matrices are found at a multiple of 64 */
    berthi_tiles tiles[2 * PRODUCT_TOGETHER]; /* of each member: codes, absmax or their codes */
} berthi_few_kernel;

/* ------------------------------------------------------------ of many, what they are told */

#define WIDE_MATRICES 3u /* inputs, codes, absmax */

typedef struct berthi_wide_kernel {
    berthi_tiles inputs;
    berthi_tiles codes;
    berthi_tiles absmax;         /* plain ones */
    const float *absmax2;        /* double quantization: the second level */
    const uint8_t *absmax_codes; /* double quantization: the first one, to 4 bytes; NULL: plain */
    const void *bias;            /* rows; NULL: none */
    void *outputs;               /* count x rows */
    float *parts;                /* WIDE_PART_BYTES of each CTA, if tiles are split */
    uint32_t *flags;             /* WIDE_FLAGS of each CTA, down before and behind the kernel */
    uint64_t rows;
    float offset;         /* double quantization */
    uint32_t count;       /* of inputs */
    uint32_t groups;      /* of columns */
    uint32_t input_tiles; /* tiles of inputs, which have rows in common, are neighbours */
    uint32_t tiles;
    uint32_t split_tiles; /* the first ones, whose groups are dealt to CTAs as equally as can be,
                             to each at least one */
    uint32_t is_aligned;  /* outputs to 16 bytes, rows to 8 */
    uint32_t is_settled;  /* codes and absmax may be read ahead of earlier work */
    uint32_t values[16];  /* of the codes */
    uint32_t map[256];    /* double quantization: of the absmax' codes, as it is stored */
} berthi_wide_kernel;

#endif
