/* SPDX-License-Identifier: Apache-2.0 */
/* launch_product.c - products with stored weights, see launch.h */
#include "kernels/launch_ring.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/base.h"

/* Columns of a chunk that tensor cores multiply at once; 0: they cannot. */
static uint32_t
find_chunk(const berthi_product_task *t)
{
    const berthi_multiply_arguments *const a = t->what;

    if (t->capability < 80 || a->dtype == BERTH_F32 || !berthi_is_aligned(a->inputs, 16)
        || !berthi_is_aligned(a->codes, 16) || a->columns == 0
        || a->columns >= PRODUCT_MOST_COLUMNS
        || a->rows * a->columns >= PRODUCT_MOST_WEIGHTS)
        return 0;
    if (a->block_size >= 128 && a->columns % 128 == 0)
        return 128;
    return a->block_size >= 64 && a->columns % 64 == 0 ? 64 : 0;
}

#define OF_CHUNKS(prefix)                                                             \
    { { { KERNEL_##prefix##_64_bf16, KERNEL_##prefix##_64_f16 },                      \
        { KERNEL_##prefix##_64_bf16_double, KERNEL_##prefix##_64_f16_double } },      \
      { { KERNEL_##prefix##_128_bf16, KERNEL_##prefix##_128_f16 },                    \
        { KERNEL_##prefix##_128_bf16_double, KERNEL_##prefix##_128_f16_double } } }

/* Of one weight, by the number of inputs, or of experts. */
typedef enum product_kind { ONE_FOR_8, ONE_FOR_16, ONE_FOR_32, EXPERTS } product_kind;

static berthi_kernel_id
find_product_kernel(uint32_t chunk, size_t dtype, bool is_double, product_kind kind)
{
    static const berthi_kernel_id lanes[2][2][3] =
        { { OF_DTYPES(product_lanes, ), OF_DTYPES(product_lanes, _double) },
          { OF_DTYPES(experts_lanes, ), OF_DTYPES(experts_lanes, _double) } };
    static const berthi_kernel_id tensor_cores[4][2][2][2] =
        { OF_CHUNKS(product), OF_CHUNKS(product16), OF_CHUNKS(product32),
          OF_CHUNKS(experts) };

    if (chunk == 0)
        return lanes[kind == EXPERTS][is_double][dtype];
    return tensor_cores[kind][chunk == 128][is_double][dtype];
}

/* The values as inputs of this dtype meet them. */
static void
fill_product_table(const berthi_product_task *t, uint32_t *table)
{
    for (uint32_t code = 0; code < 16; code++) {
        const float value = berthi_core_float(t->values[code]);

        table[code] = berthi_core_bits(berthi_core_rounded(value, t->what->dtype));
    }
}

static void
fill_product(const berthi_product_task *t, uint32_t chunk, berthi_product_kernel *k)
{
    const berthi_multiply_arguments *const a = t->what;

    *k = (berthi_product_kernel){
        .codes = a->codes, .absmax = a->absmax, .absmax_codes = a->absmax_codes,
        .inputs = a->inputs, .bias = a->bias, .outputs = a->outputs, .rows = a->rows,
        .columns = a->columns, .offset = a->offset, .count = a->count,
        .groups = chunk != 0 ? a->count != 0
                             : a->count / PRODUCT_INPUTS + (a->count % PRODUCT_INPUTS != 0),
        .slices = chunk != 0 ? berthi_product_slices(a->columns) : 1,
        .is_aligned = a->columns % 8 == 0 && berthi_is_aligned(a->codes, 4)
                      && berthi_is_aligned(a->inputs, 16),
    };
    fill_product_table(t, k->table);
    if (a->absmax_codes != NULL)
        memcpy(k->map, a->map, sizeof k->map);
}

berth_status
berthi_launch_product(const berthi_product_task *t, berthi_launch *out, berth_error *error)
{
    const berthi_multiply_arguments *const a = t->what;
    berthi_product_kernel *const k = &out->argument.product;
    const uint32_t chunk = find_chunk(t);
    berthi_kernel_id kernel;
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = berthi_multiply_check(a, error);
    if (status == BERTH_OK && a->count > BERTHI_MULTIPLY_INPUTS)
        status = berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                             "no kernel has %" PRIu32 " inputs at once: %" PRIu32 " at most",
                             a->count, BERTHI_MULTIPLY_INPUTS);
    if (status == BERTH_OK)
        status = berthi_launch_find_dtype(a->dtype, &dtype, error);
    if (status != BERTH_OK)
        return status;
    fill_product(t, chunk, k);
    status = berthi_launch_find_block(a->block_size, &k->block_log2, error);
    if (status != BERTH_OK)
        return status;
    if (berthi_launch_can_few(t))
        return berthi_launch_few(t, dtype, out, error);
    if (berthi_launch_can_ring(t))
        return berthi_launch_ring(t, dtype, out, error);
    kernel = find_product_kernel(chunk, dtype, a->absmax_codes != NULL,
                                 (product_kind)(berthi_product_fragments(a->count) / 2));
    return berthi_launch_set_grid(
        out, kernel, PRODUCT_THREADS,
        berthi_product_ctas(a->rows, chunk != 0 ? PRODUCT_TILE_ROWS : 1, k->slices, k->groups),
        error);
}

/* A product of one of them, with so many inputs that all products have. */
static berthi_multiply_arguments
product_of_one(const berthi_experts_arguments *a)
{
    /* An address that is aligned as all of them are; nothing is read there. */
    const void *const aligned = (const void *)(uintptr_t)a->codes_alignment;

    return (berthi_multiply_arguments){
        .codes = aligned, .absmax = aligned, .absmax_codes = a->is_double ? aligned : NULL,
        .map = a->map, .block_size = a->block_size, .count = 1, .rows = a->rows,
        .columns = a->columns, .inputs = a->inputs, .outputs = a->outputs, .dtype = a->dtype,
    };
}

bool
berthi_launch_experts_have_rings(const berthi_experts_task *t, uint32_t processors,
                                 uint32_t room_bytes)
{
    const berthi_multiply_arguments one = product_of_one(t->what);

    return berthi_launch_can_ring(&(berthi_product_task){
        .what = &one, .values = t->values, .capability = t->capability,
        .processors = processors, .room_bytes = room_bytes });
}

berth_status
berthi_launch_experts(const berthi_experts_task *t, berthi_launch *out, berth_error *error)
{
    const berthi_experts_arguments *const a = t->what;
    const berthi_multiply_arguments one = product_of_one(a);
    const berthi_product_task as_one = { .what = &one, .values = t->values,
                                         .capability = t->capability };
    berthi_product_kernel *const k = &out->argument.product;
    const uint32_t chunk = find_chunk(&as_one);
    const uint32_t groups =
        a->most_inputs / PRODUCT_INPUTS + (a->most_inputs % PRODUCT_INPUTS != 0);
    uint64_t ctas;
    size_t dtype;
    berth_status status = berthi_launch_product(&as_one, out, error);

    if (status == BERTH_OK)
        status = berthi_launch_find_dtype(a->dtype, &dtype, error);
    if (status != BERTH_OK)
        return status;
    k->codes = NULL;
    k->absmax = NULL;
    k->absmax_codes = NULL;
    k->experts = a->experts;
    k->ranges = a->ranges;
    k->groups = groups;
    k->ctas_of_group = out->ctas;
    if (!berthi_can_mul((uint64_t)a->expert_count * groups, out->ctas, &ctas))
        ctas = UINT64_MAX;
    return berthi_launch_set_grid(out,
                                  find_product_kernel(chunk, dtype, a->is_double, EXPERTS),
                                  PRODUCT_THREADS, ctas, error);
}

/* ------------------------------------------------------------------ weights together */

/* In the order of BERTHI_KERNELS_OF_CHUNKS; KERNEL_NONE: its products are each their own. */
static berthi_kernel_id
find_together_kernel(berthi_kernel_id of_one)
{
    if (berthi_launch_is_ring(of_one) || berthi_launch_is_few(of_one))
        return of_one;
    return of_one >= KERNEL_product_64_bf16 && of_one <= KERNEL_product_128_f16_double
               ? of_one - KERNEL_product_64_bf16 + KERNEL_together_64_bf16
               : KERNEL_NONE;
}

/* What members are numbered by. */
static uint32_t
parts_of(const berthi_launch *l)
{
    return berthi_launch_is_ring(l->kernel) || berthi_launch_is_few(l->kernel)
               ? l->argument.product.units
               : l->ctas;
}

static bool
can_join(const berthi_launch *first, const berthi_launch *other)
{
    const berthi_product_kernel *const a = &first->argument.product;
    const berthi_product_kernel *const b = &other->argument.product;

    return other->kernel == first->kernel && b->inputs == a->inputs && b->count == a->count
           && b->columns == a->columns && b->block_log2 == a->block_log2
           && memcmp(b->table, a->table, sizeof a->table) == 0
           && memcmp(b->map, a->map, sizeof a->map) == 0;
}

void
berthi_launch_set_members(berthi_product_kernel *k, const berthi_launch *launches,
                          uint32_t count)
{
    uint32_t first = 0;

    for (uint32_t i = 0; i < PRODUCT_TOGETHER; i++)
        k->members[i].first = UINT32_MAX;
    for (uint32_t i = 0; i < count; first += parts_of(&launches[i++])) {
        const berthi_product_kernel *const its = &launches[i].argument.product;

        k->members[i] = (berthi_product_member){
            .codes = its->codes, .absmax = its->absmax, .absmax_codes = its->absmax_codes,
            .bias = its->bias, .outputs = its->outputs, .rows = its->rows,
            .offset = its->offset, .first = first
        };
    }
}

bool
berthi_launch_join_products(berthi_launch *launches, uint32_t count)
{
    const berthi_kernel_id kernel = find_together_kernel(launches[0].kernel);
    berthi_product_kernel *const k = &launches[0].argument.product;
    uint64_t parts = 0;

    if (count < 2 || count > PRODUCT_TOGETHER || kernel == KERNEL_NONE)
        return false;
    for (uint32_t i = 0; i < count; i++)
        parts += can_join(&launches[0], &launches[i]) ? parts_of(&launches[i]) : UINT32_MAX;
    if (parts > BERTHI_MOST_CTAS)
        return false;
    berthi_launch_set_members(k, launches, count);
    launches[0].ctas = (uint32_t)parts;
    if (berthi_launch_is_ring(kernel) || berthi_launch_is_few(kernel))
        berthi_launch_set_units(&launches[0], (uint32_t)parts);
    if (berthi_launch_is_few(kernel))
        berthi_launch_join_few(launches, count);
    for (uint32_t i = 1; i < count; i++) {
        k->is_settled &= launches[i].argument.product.is_settled;
        k->has_pairs &= launches[i].argument.product.has_pairs;
        launches[i].kernel = KERNEL_NONE;
    }
    launches[0].kernel = kernel;
    return true;
}

/* ----------------------------------------------------- weights that are not of 4 bits */

/* A warp has a row and some inputs: its CTAs by `inputs` of them. */
static uint64_t
ctas_of(uint64_t rows, uint32_t count, uint32_t inputs, uint32_t *out_groups)
{
    *out_groups = count / inputs + (count % inputs != 0);
    return berthi_product_ctas(rows, 1, 1, *out_groups);
}

berth_status
berthi_launch_plain(const berthi_multiply_plain_arguments *a, berthi_launch *out,
                    berth_error *error)
{
    static const berthi_kernel_id kernels[3] = OF_DTYPES(product_plain, );
    berthi_plain_kernel *const k = &out->argument.plain;
    uint64_t ctas;
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = berthi_multiply_plain_check(a, error);
    if (status == BERTH_OK)
        status = berthi_launch_find_dtype(a->dtype, &dtype, error);
    if (status != BERTH_OK)
        return status;
    *k = (berthi_plain_kernel){
        .weight = a->weight, .inputs = a->inputs, .bias = a->bias, .outputs = a->outputs,
        .rows = a->rows, .columns = a->columns, .count = a->count,
        .weight_dtype = a->weight_dtype,
        .is_aligned = a->columns % PLAIN_LANE == 0 && berthi_is_aligned(a->weight, 16)
                      && berthi_is_aligned(a->inputs, 16),
    };
    ctas = ctas_of(a->rows, a->count, PLAIN_INPUTS, &k->groups);
    return berthi_launch_set_grid(out, kernels[dtype], PRODUCT_THREADS, ctas, error);
}

berth_status
berthi_launch_int8_sums(const berthi_multiply_int8_arguments *a, berthi_launch *out,
                        berth_error *error)
{
    berthi_int8_sum_kernel *const k = &out->argument.int8_sum;
    uint64_t ctas;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = berthi_multiply_int8_check(a, error);
    if (status != BERTH_OK)
        return status;
    *k = (berthi_int8_sum_kernel){
        .weights = a->weights, .inputs = a->inputs, .sums = a->sums, .rows = a->rows,
        .columns = a->columns, .count = a->count,
        .is_aligned = a->columns % INT8_SUM_LANE == 0 && berthi_is_aligned(a->weights, 16)
                      && berthi_is_aligned(a->inputs, 16),
    };
    ctas = ctas_of(a->rows, a->count, INT8_SUM_INPUTS, &k->groups);
    return berthi_launch_set_grid(out, KERNEL_product_int8, PRODUCT_THREADS, ctas, error);
}
