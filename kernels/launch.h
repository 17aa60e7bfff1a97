/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - operations on a GPU as launches: which kernel, how many CTAs, what
 * argument. Decided on the host and without a device, so that whoever launches
 * (a device, a test's machine) only looks a kernel up.
 *
 *   launch.c          values to codes and back: 4 and 8 bits, double quantization, int8
 *   launch_product.c  products with stored weights, of few inputs
 *   launch_ring.c     those of them that keep a ring of what is on its way (launch_ring.h)
 *   launch_few.c      of these, those whose codes come as tiles (launch_ring.h)
 *   launch_wide.c     products of many inputs, by kernels of sm_90a alone
 *   launch_update.c   updates of parameters, and what they need of gradients
 *   launch_decoder.c  a decoder's steps
 *   launch_write.c    few words of the host
 *   launch_grid.c     what these have in common (launch_grid.h)
 *
 * Pointers are the device's; what is looked at on the host is said to be. Of
 * nothing there is no launch: KERNEL_NONE, since a grid of no CTA is an error of
 * the runtime. What no kernel can do and what no grid can hold is refused with
 * "unsupported": nothing is cut off.
 */
#ifndef BERTH_KERNELS_LAUNCH_H
#define BERTH_KERNELS_LAUNCH_H

#include "kernels/decoder.h"
#include "kernels/experts.h"
#include "kernels/int8_input.h"
#include "kernels/int8_output.h"
#include "kernels/kernel.h"
#include "kernels/kernel_arguments.h"
#include "kernels/multiply.h"
#include "kernels/multiply_plain.h"
#include "kernels/product_arguments.h"

#define BERTHI_KERNELS_OF_DTYPES(X, prefix, suffix)                                   \
    X(prefix##_bf16##suffix) X(prefix##_f16##suffix) X(prefix##_f32##suffix)

/* Products by tensor cores, of up to 8, 16 or 32 inputs. */
#define BERTHI_KERNELS_OF_CHUNKS(X, prefix)                                           \
    X(prefix##_64_bf16) X(prefix##_64_f16)                                            \
    X(prefix##_64_bf16_double) X(prefix##_64_f16_double)                              \
    X(prefix##_128_bf16) X(prefix##_128_f16)                                          \
    X(prefix##_128_bf16_double) X(prefix##_128_f16_double)

/* The same by rings of what is on its way, and of few inputs by tiles. */
#define BERTHI_KERNELS_OF_RING(X, prefix)                                             \
    X(prefix##_bf16) X(prefix##_f16) X(prefix##_bf16_double) X(prefix##_f16_double)

/* Of many inputs, by code of sm_90a alone, which is built apart from all others. */
#define BERTHI_WIDE_KERNELS(X)                                                        \
    X(wide32_bf16) X(wide32_f16) X(wide64_bf16) X(wide64_f16)                         \
    X(wide128_bf16) X(wide128_f16) X(wide256_bf16) X(wide256_f16)

/* All kernels; the symbol of each is berthi_ and its name. */
#define BERTHI_KERNELS(X) BERTHI_COMMON_KERNELS(X) BERTHI_WIDE_KERNELS(X)
#define BERTHI_COMMON_KERNELS(X)                                                             \
    BERTHI_KERNELS_OF_DTYPES(X, encode_nf4, _64)                                      \
    BERTHI_KERNELS_OF_DTYPES(X, encode_fp4, _64)                                      \
    BERTHI_KERNELS_OF_DTYPES(X, encode_nf4, )                                         \
    BERTHI_KERNELS_OF_DTYPES(X, encode_fp4, )                                         \
    BERTHI_KERNELS_OF_DTYPES(X, encode_map, )                                         \
    X(encode_double)                                                                  \
    X(mean_sum)                                                                       \
    X(mean_join)                                                                      \
    BERTHI_KERNELS_OF_DTYPES(X, decode_4bit, _64)                                     \
    BERTHI_KERNELS_OF_DTYPES(X, decode_4bit, _64_double)                              \
    BERTHI_KERNELS_OF_DTYPES(X, decode_4bit, )                                        \
    BERTHI_KERNELS_OF_DTYPES(X, decode_4bit, _double)                                 \
    BERTHI_KERNELS_OF_DTYPES(X, decode_map, )                                         \
    BERTHI_KERNELS_OF_DTYPES(X, int8_encode, _warp)                                   \
    BERTHI_KERNELS_OF_DTYPES(X, int8_encode, _cta)                                    \
    BERTHI_KERNELS_OF_DTYPES(X, int8_encode, _any)                                    \
    X(outlier_collect)                                                                \
    X(outlier_clear)                                                                  \
    BERTHI_KERNELS_OF_DTYPES(X, int8_decode, )                                        \
    BERTHI_KERNELS_OF_DTYPES(X, int8_output, )                                        \
    BERTHI_KERNELS_OF_DTYPES(X, int8_output, _outliers)                               \
    BERTHI_KERNELS_OF_CHUNKS(X, product)                                              \
    BERTHI_KERNELS_OF_CHUNKS(X, product16)                                            \
    BERTHI_KERNELS_OF_CHUNKS(X, product32)                                            \
    BERTHI_KERNELS_OF_CHUNKS(X, experts)                                              \
    BERTHI_KERNELS_OF_CHUNKS(X, together)                                             \
    BERTHI_KERNELS_OF_RING(X, few)                                                    \
    BERTHI_KERNELS_OF_RING(X, ring)                                                   \
    BERTHI_KERNELS_OF_RING(X, ring16)                                                 \
    BERTHI_KERNELS_OF_RING(X, ring32)                                                 \
    BERTHI_KERNELS_OF_DTYPES(X, product_lanes, )                                      \
    BERTHI_KERNELS_OF_DTYPES(X, product_lanes, _double)                               \
    BERTHI_KERNELS_OF_DTYPES(X, experts_lanes, )                                      \
    BERTHI_KERNELS_OF_DTYPES(X, experts_lanes, _double)                               \
    BERTHI_KERNELS_OF_DTYPES(X, product_plain, )                                      \
    X(product_int8)                                                                   \
    BERTHI_KERNELS_OF_DTYPES(X, update, )                                             \
    BERTHI_KERNELS_OF_DTYPES(X, update, _adam8)                                       \
    BERTHI_KERNELS_OF_DTYPES(X, measure, )                                            \
    BERTHI_KERNELS_OF_DTYPES(X, accumulate, )                                         \
    X(take)                                                                           \
    X(norm)                                                                           \
    X(rotate)                                                                         \
    BERTHI_KERNELS_OF_DTYPES(X, attend, )                                             \
    X(gate)                                                                           \
    X(add)                                                                            \
    X(choose)                                                                         \
    X(largest)                                                                        \
    X(write_words)

#define BERTHI_KERNEL_ID(name) KERNEL_##name,
typedef enum berthi_kernel_id {
    KERNEL_NONE,
    BERTHI_KERNELS(BERTHI_KERNEL_ID) KERNEL_COUNT
} berthi_kernel_id;
#undef BERTHI_KERNEL_ID

#define BERTHI_MOST_CTAS 0x7FFFFFFFu /* of a grid */

typedef struct berthi_launch {
    berthi_kernel_id kernel;
    uint32_t threads; /* of a CTA */
    uint32_t ctas;    /* 1 to BERTHI_MOST_CTAS */
    uint32_t room_bytes; /* shared memory beside what the kernel declares */
    uint32_t matrices;   /* of which tiles are copied, one behind the other in the argument */
    uint32_t matrices_at; /* bytes from its begin to the first */
    union {
        berthi_encode_kernel encode;
        berthi_decode_kernel decode;
        berthi_mean_kernel mean;
        berthi_double_kernel twice;
        berthi_int8_kernel int8;
        berthi_outlier_kernel outlier;
        berthi_int8_decode_kernel int8_decode;
        berthi_int8_output_kernel int8_output;
        berthi_product_kernel product;
        berthi_few_kernel few; /* begins with a product */
        berthi_wide_kernel wide;
        berthi_plain_kernel plain;
        berthi_int8_sum_kernel int8_sum;
        berthi_update_kernel update;
        berthi_measure_arguments measure;
        berthi_accumulate_kernel accumulate;
        berth_take take;
        berth_norm norm;
        berth_rotate rotate;
        berth_attend attend;
        berth_gate gate;
        berth_add add;
        berth_choose choose;
        berth_largest largest;
        berthi_write_kernel write;
    } argument; /* what the kernel is given, by value */
} berthi_launch;

/*
 * Whether kernels made for this capability begin with simt_wait_for_earlier(): their CTAs may
 * come before earlier kernels of the stream have ended, which saves the time between the two.
 */
static inline bool
berthi_launch_overlaps(uint32_t capability)
{
    return capability >= 90;
}

/* ------------------------------------------------- values <-> codes by blocks */

/* Blocks of 32 to 4096 values, a power of two, also with a map. */
berth_status berthi_launch_encode_nf4(const berthi_encode_arguments *arguments,
                                      berthi_launch *out, berth_error *error);
berth_status berthi_launch_encode_fp4(const berthi_encode_arguments *arguments,
                                      berthi_launch *out, berth_error *error);
/* `arguments->map` is read on the host. */
berth_status berthi_launch_encode_map(const berthi_encode_arguments *arguments,
                                      berthi_launch *out, berth_error *error);

/* Absmax that are codes themselves; `map` is read on the host, as it is stored. */
typedef struct berthi_double_absmax {
    const uint8_t *codes;
    const float *absmax2;
    const uint32_t *map;
    const float *offset; /* NULL: it is `offset_value` */
    float offset_value;
} berthi_double_absmax;

/*
 * 4-bit codes that stand for the 16 `values`, read on the host. With `absmax`
 * not NULL the arguments' own are not looked at.
 */
berth_status berthi_launch_decode_4bit(const berthi_decode_arguments *arguments,
                                       const uint32_t *values,
                                       const berthi_double_absmax *absmax,
                                       berthi_launch *out, berth_error *error);
berth_status berthi_launch_decode_map(const berthi_decode_arguments *arguments,
                                      berthi_launch *out, berth_error *error);

/* ------------------------------------------------------- double quantization */

/* Two launches, the second often KERNEL_NONE: the mean of the values into *mean. */
berth_status berthi_launch_mean(const berthi_mean_arguments *arguments, float *mean,
                                berthi_launch out[2], berth_error *error);
/* The offset is where berthi_launch_mean() has left it; the arguments' is not looked at. */
berth_status berthi_launch_encode_double(const berthi_double_arguments *arguments,
                                         const float *offset, berthi_launch *out,
                                         berth_error *error);
/*
 * A launch less: every CTA of `codes` does the mean's second pass, `join`, on its own, and
 * the first one stores it. `join` becomes none, or is none already.
 */
void berthi_launch_join_mean(berthi_launch *join, berthi_launch *codes);

/* --------------------------------------------------------------- LLM.int8() */

berth_status berthi_launch_encode_rows(const berthi_rows_arguments *arguments,
                                       berthi_launch *out, berth_error *error);

/*
 * Rows, the list of outlier columns, their codes: three launches, of one input two (its own
 * outliers are all), and with a threshold of 0 one.
 */
berth_status berthi_launch_int8_input(const berthi_int8_input_task *task,
                                      berthi_launch out[3], berth_error *error);
berth_status berthi_launch_decode_rows(const berthi_rows_decode_arguments *arguments,
                                       berthi_launch *out, berth_error *error);

/* Sums of products of codes -> outputs. */
berth_status berthi_launch_int8_output(const berthi_int8_output_task *task,
                                       berthi_launch *out, berth_error *error);

/* ------------------------------------------------------------------ products */

typedef struct berthi_product_task {
    const berthi_multiply_arguments *what;
    const uint32_t *values; /* 16 that the codes stand for; read on the host */
    uint32_t capability;    /* that kernels on this device were made for: 10 * major + minor */
    uint32_t processors;    /* of the device; 0: not known, and no product is by rings */
    uint32_t room_bytes;    /* the same: shared memory that a CTA may have there */
    bool has_tiles;         /* matrices of which tiles are copied can be given to kernels */
} berthi_product_task;

/*
 * The values of codes count as rounded to the inputs' dtype. Tensor cores (from
 * capability 80 on, not for f32) need whole chunks of 64 columns, each in one
 * block, and aligned addresses; what they do not take is done without them. They
 * decode a weight once for all inputs. By rings (product_ring.cuh) where the device has the
 * shared memory, columns are whole lines and the blocks, which are of 64, aligned; of few inputs
 * by tiles (product_few.cuh) on GPUs of 9.0. How it is
 * multiplied and how many warps share a row is the same for any number of inputs, and so are an
 * output's bits. At most BERTHI_MULTIPLY_INPUTS.
 */
berth_status berthi_launch_product(const berthi_product_task *task, berthi_launch *out,
                                   berth_error *error);

/* The same of several weights, in one grid. */
typedef struct berthi_experts_task {
    const berthi_experts_arguments *what;
    const uint32_t *values; /* as in berthi_product_task, and what follows */
    uint32_t capability;
} berthi_experts_task;

/* The bits are those of each expert's own product, where that is no ring's. */
berth_status berthi_launch_experts(const berthi_experts_task *task, berthi_launch *out,
                                   berth_error *error);
/* Whether it is, on a GPU of so many processors with so much shared memory for a CTA. */
bool berthi_launch_experts_have_rings(const berthi_experts_task *task, uint32_t processors,
                                      uint32_t room_bytes);

/*
 * Products that are each a launch of its own become the first one's, the others none: by
 * tensor cores, of the same up to 8 inputs, at most PRODUCT_TOGETHER weights that are encoded
 * alike. The bits stay each one's own. False: nothing has changed, they are not such products.
 */
bool berthi_launch_join_products(berthi_launch *launches, uint32_t count);

/* Of many inputs, any number of them, by product_wide.cuh; on GPUs of 9.0. */
typedef struct berthi_wide_task {
    const berthi_multiply_arguments *what;
    const uint32_t *values; /* 16 that the codes stand for; read on the host */
    uint32_t processors;    /* of the device */
    float *parts;           /* WIDE_MOST_CTAS times WIDE_MOST_PART_BYTES, to 16 bytes */
    uint32_t *flags;        /* WIDE_FLAG_BYTES, 0 before the launch and again behind it */
} berthi_wide_task;

/*
 * bf16 and f16; blocks of 64, whole groups of 256 columns, codes, absmax and inputs to 16 bytes,
 * absmax that are codes to 4.
 */
bool berthi_launch_can_wide(const berthi_multiply_arguments *arguments, uint32_t processors);
/* Weights count as rounded to the inputs' dtype. */
berth_status berthi_launch_wide(const berthi_wide_task *task, berthi_launch *out,
                                berth_error *error);

/* Weights that are not of 4 bits, without tensor cores; any number of inputs. */
berth_status berthi_launch_plain(const berthi_multiply_plain_arguments *arguments,
                                 berthi_launch *out, berth_error *error);
berth_status berthi_launch_int8_sums(const berthi_multiply_int8_arguments *arguments,
                                     berthi_launch *out, berth_error *error);

/* ---------------------------------------------------------------- optimizers */

/* Each one launch; what berthi_update_check() and its like refuse is not asked for. */
berth_status berthi_launch_update(const berthi_update_request *request, berthi_launch *out,
                                  berth_error *error);
berth_status berthi_launch_measure(const berthi_measure_arguments *arguments,
                                   berthi_launch *out, berth_error *error);
berth_status berthi_launch_accumulate(const berthi_accumulate_arguments *arguments,
                                      berthi_launch *out, berth_error *error);

/* ------------------------------------------------------------- words of the host */

/* `from` is read here; up to WRITE_WORDS. */
berth_status berthi_launch_write(void *to, const void *from, uint64_t bytes, berthi_launch *out,
                                 berth_error *error);

/* ----------------------------------------------------------- a decoder's steps */

/* Each one launch; what berthi_take_check() and its like refuse is not asked for. */
berth_status berthi_launch_take(const berth_take *step, berthi_launch *out,
                                 berth_error *error);
berth_status berthi_launch_norm(const berth_norm *step, berthi_launch *out,
                                 berth_error *error);
berth_status berthi_launch_rotate(const berth_rotate *step, berthi_launch *out,
                                   berth_error *error);
berth_status berthi_launch_attend(const berth_attend *step, berthi_launch *out,
                                   berth_error *error);
berth_status berthi_launch_gate(const berth_gate *step, berthi_launch *out,
                                 berth_error *error);
berth_status berthi_launch_add(const berth_add *step, berthi_launch *out,
                                berth_error *error);
berth_status berthi_launch_choose(const berth_choose *step, berthi_launch *out,
                                   berth_error *error);
berth_status berthi_launch_largest(const berth_largest *step, berthi_launch *out,
                                   berth_error *error);

#endif
