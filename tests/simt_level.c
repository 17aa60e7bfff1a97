/* SPDX-License-Identifier: Apache-2.0 */
/* simt_level.c - see simt_level.h */
#include "tests/simt_level.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/operands.h"
#include "tests/simt_device.h"
#include "tests/t.h"

/* ------------------------------------------------------- here, or on a device */

bool
simt_level_is_there(const char **out_why)
{
    if (simt_device_is_wanted())
        return simt_device_is_there(out_why);
    *out_why = "no fibers on this processor";
    return simt_has_fibers();
}

void
simt_level_test_nothing(void)
{
    const char *why;

    (void)simt_level_is_there(&why);
    T_SKIP(why);
}

bool
simt_level_runs_parts(void)
{
    return !simt_device_is_wanted();
}

bool
simt_level_is_wide(const char **out_why)
{
    *out_why = "no kernel of sm_90a was made for this GPU";
    return !simt_device_is_wanted() || simt_device_is_wide();
}

bool
simt_level_has_tensor_cores(void)
{
    return !simt_device_is_wanted() || simt_device_has_tensor_cores();
}

bool
simt_level_has_rings(const char **out_why)
{
    *out_why = "this GPU has no room for rings, or kernels made before there were any";
    return !simt_device_is_wanted() || simt_device_has_rings();
}

bool
simt_level_has_tiles(const char **out_why)
{
    if (!simt_level_has_rings(out_why))
        return false;
    *out_why = "no product by tiles was made for this GPU";
    return !simt_device_is_wanted() || simt_device_has_tiles();
}

#define MOST_EARLIER_BYTES (UINT64_C(1) << 20) /* of a tensor */

/* What the next launches' kernels have to wait for before they touch it. */
static struct {
    simt_memory items[128];
    uint32_t count;
} earlier;

/* Memory that overlaps is one. Of large tensors the bits are not turned, which would take long. */
static void
add_earlier(void *memory, uint64_t bytes)
{
    uint8_t *begin = memory;
    uint8_t *end = begin + bytes;

    if (memory == NULL || bytes == 0 || bytes > MOST_EARLIER_BYTES)
        return;
    for (uint32_t i = 0; i < earlier.count; i++) {
        uint8_t *const its = earlier.items[i].begin;

        if (begin >= its + earlier.items[i].bytes || its >= end)
            continue;
        begin = its < begin ? its : begin;
        end = its + earlier.items[i].bytes > end ? its + earlier.items[i].bytes : end;
        earlier.items[i] = earlier.items[--earlier.count];
        i = UINT32_MAX; /* what is larger now may overlap with any other */
    }
    T_REQUIRE(earlier.count < sizeof earlier.items / sizeof *earlier.items);
    earlier.items[earlier.count++] = (simt_memory){ begin, (uint64_t)(end - begin) };
}

/* What a kernel reads that nothing before it writes. */
static const void *
settled(const void *memory, uint64_t bytes)
{
    return simt_device_is_wanted() ? simt_device_take(memory, bytes, 0, false) : memory;
}

/* What a kernel reads, and what it writes, where it runs. */
static const void *
given(const void *memory, uint64_t bytes)
{
    if (!simt_device_is_wanted())
        add_earlier((void *)(uintptr_t)memory, bytes);
    return settled(memory, bytes);
}

static void *
wanted(void *memory, uint64_t bytes)
{
    if (simt_device_is_wanted())
        return simt_device_take(memory, bytes, 0, true);
    (void)given(memory, bytes);
    return memory;
}

static void
run(const berthi_launch *launches, uint32_t count)
{
    if (simt_device_is_wanted()) {
        simt_device_run(launches, count);
        return;
    }
    simt_level_set_earlier(earlier.items, earlier.count);
    for (uint32_t i = 0; i < count; i++)
        simt_level_launch(&launches[i]);
    simt_level_set_earlier(NULL, 0);
    earlier.count = 0;
}

static uint64_t
width_of(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

static uint64_t
blocks_of(uint64_t count, uint32_t block_size)
{
    return count / block_size + (count % block_size != 0);
}

/* ------------------------------------------------------------------- encode */

typedef berth_status plan_encoding(const berthi_encode_arguments *arguments,
                                   berthi_launch *out, berth_error *error);

static void
encode(plan_encoding *plan, const berthi_encode_arguments *e, uint64_t code_bytes)
{
    berthi_encode_arguments a = *e;
    berthi_launch l;

    a.values = given(e->values, e->count * width_of(e->dtype));
    a.codes = wanted(e->codes, code_bytes);
    a.absmax = wanted(e->absmax, blocks_of(e->count, e->block_size) * sizeof(float));
    CHECK_EQ(plan(&a, &l, NULL), BERTH_OK);
    run(&l, 1);
}

void
simt_encode_nf4(const berthi_encode_arguments *e)
{
    encode(berthi_launch_encode_nf4, e, (e->count + 1) / 2);
}

void
simt_encode_fp4(const berthi_encode_arguments *e)
{
    encode(berthi_launch_encode_fp4, e, (e->count + 1) / 2);
}

void
simt_encode_map(const berthi_encode_arguments *e)
{
    encode(berthi_launch_encode_map, e, e->count);
}

void
simt_encode_double(const berthi_double_arguments *d)
{
    berthi_double_arguments a = *d;
    berthi_launch l;

    a.absmax = given(d->absmax, d->count * sizeof(float));
    a.codes = wanted(d->codes, d->count);
    a.absmax2 = wanted(d->absmax2, blocks_of(d->count, BERTHI_DOUBLE_BLOCK) * sizeof(float));
    CHECK_EQ(berthi_launch_encode_double(&a, given(&d->offset, sizeof d->offset), &l, NULL),
             BERTH_OK);
    run(&l, 1);
}

/* -------------------------------------------------------------------- words */

void
simt_write(void *to, const void *from, uint64_t bytes)
{
    berthi_launch l;

    CHECK_EQ(berthi_launch_write(wanted(to, bytes), from, bytes, &l, NULL), BERTH_OK);
    run(&l, 1);
}

/* --------------------------------------------------------------------- mean */

float
simt_mean(const berthi_mean_arguments *m)
{
    berthi_mean_arguments a = *m;
    berthi_launch l[2];
    float mean = 0.0f;

    a.values = given(m->values, m->count * sizeof(float));
    if (simt_device_is_wanted())
        a.partial = simt_device_scratch(
            berthi_mean_scratch(m->count, m->processors, m->threads_per_processor)
            * sizeof(float));
    CHECK_EQ(berthi_launch_mean(&a, wanted(&mean, sizeof mean), l, NULL), BERTH_OK);
    run(l, 2);
    return mean;
}

float
simt_encode_double_joined(const berthi_double_arguments *d, const berthi_mean_arguments *m)
{
    berthi_double_arguments a = *d;
    berthi_mean_arguments mean = *m;
    berthi_launch l[3];
    float offset = 0.0f;
    float *const its = wanted(&offset, sizeof offset);

    a.absmax = given(d->absmax, d->count * sizeof(float));
    a.codes = wanted(d->codes, d->count);
    a.absmax2 = wanted(d->absmax2, blocks_of(d->count, BERTHI_DOUBLE_BLOCK) * sizeof(float));
    mean.values = a.absmax;
    if (simt_device_is_wanted())
        mean.partial = simt_device_scratch(
            berthi_mean_scratch(m->count, m->processors, m->threads_per_processor)
            * sizeof(float));
    CHECK_EQ(berthi_launch_mean(&mean, its, l, NULL), BERTH_OK);
    CHECK_EQ(berthi_launch_encode_double(&a, its, &l[2], NULL), BERTH_OK);
    berthi_launch_join_mean(&l[1], &l[2]);
    CHECK_EQ(l[1].kernel, KERNEL_NONE);
    run(l, 3);
    return offset;
}

/* ------------------------------------------------------------------- decode */

static berthi_decode_arguments
place_decoding(const berthi_decode_arguments *d, uint64_t code_bytes)
{
    berthi_decode_arguments a = *d;

    a.codes = given(d->codes, code_bytes);
    a.absmax = given(d->absmax, blocks_of(d->count, d->block_size) * sizeof(float));
    a.values = wanted(d->values, d->count * width_of(d->dtype));
    return a;
}

static void
decode_4bit(const berthi_decode_arguments *d, const uint32_t *values)
{
    const berthi_decode_arguments a = place_decoding(d, (d->count + 1) / 2);
    berthi_launch l;

    CHECK_EQ(berthi_launch_decode_4bit(&a, values, NULL, &l, NULL), BERTH_OK);
    run(&l, 1);
}

void
simt_decode_nf4(const berthi_decode_arguments *d)
{
    decode_4bit(d, berthi_nf4_values);
}

void
simt_decode_fp4(const berthi_decode_arguments *d)
{
    decode_4bit(d, berthi_fp4_values);
}

void
simt_decode_map(const berthi_decode_arguments *d)
{
    const berthi_decode_arguments a = place_decoding(d, d->count);
    berthi_launch l;

    CHECK_EQ(berthi_launch_decode_map(&a, &l, NULL), BERTH_OK);
    run(&l, 1);
}

void
simt_decode_double(const berthi_decode_arguments *d, const uint32_t *values,
                   const simt_double_absmax *absmax)
{
    const berthi_decode_arguments a = place_decoding(d, (d->count + 1) / 2);
    const uint64_t blocks = blocks_of(d->count, d->block_size);
    const berthi_double_absmax as = {
        .codes = given(absmax->codes, blocks),
        .absmax2 = given(absmax->absmax2, blocks_of(blocks, BERTHI_DOUBLE_BLOCK) * 4),
        .map = absmax->map, .offset = given(&absmax->offset, sizeof absmax->offset)
    };
    berthi_launch l;

    CHECK_EQ(berthi_launch_decode_4bit(&a, values, &as, &l, NULL), BERTH_OK);
    run(&l, 1);
}

/* --------------------------------------------------------------- LLM.int8() */

void
simt_encode_rows(const berthi_rows_arguments *r)
{
    berthi_rows_arguments a = *r;
    berthi_launch l;

    a.values = given(r->values, r->rows * r->columns * width_of(r->dtype));
    a.codes = wanted(r->codes, r->rows * r->columns);
    a.row_maximum = wanted(r->row_maximum, r->rows * sizeof(float));
    CHECK_EQ(berthi_launch_encode_rows(&a, &l, NULL), BERTH_OK);
    run(&l, 1);
}

/* The list, where it has room for them all, is the mask's columns. */
static void
check_list(const berthi_outlier_room *room, uint64_t columns, const uint8_t *is_outlier)
{
    uint32_t found = 0;

    for (uint64_t k = 0; k < columns; k++) {
        if (is_outlier[k] == 0)
            continue;
        if (found < room->capacity)
            CHECK_EQ(room->list[found], k);
        found++;
    }
    CHECK_EQ(*room->count, found);
}

static berthi_outlier_room
place_room(const berthi_outlier_room *room, uint64_t columns)
{
    return (berthi_outlier_room){ wanted(room->mask, (columns + 31) / 32 * sizeof *room->mask),
                                  wanted(room->list, room->capacity * sizeof *room->list),
                                  wanted(room->count, sizeof *room->count), room->capacity };
}

void
simt_encode_activations(const berthi_activation_arguments *r, uint32_t capacity)
{
    const uint64_t words = (r->columns + 31) / 32;
    uint32_t count = 0;
    const berthi_outlier_room room = { calloc(words, sizeof(uint32_t)),
                                       calloc(capacity + 1, sizeof(uint32_t)), &count,
                                       capacity };
    berthi_int8_input_task t = { .dtype = r->dtype, .threshold = r->threshold,
                                 .count = r->rows, .columns = r->columns };
    berthi_launch l[3];

    T_REQUIRE(room.mask != NULL && room.list != NULL);
    t.outliers = place_room(&room, r->columns);
    t.inputs = given(r->values, r->rows * r->columns * width_of(r->dtype));
    t.codes = wanted(r->codes, r->rows * r->columns);
    t.input_maximum = wanted(r->row_maximum, r->rows * sizeof(float));
    CHECK_EQ(berthi_launch_int8_input(&t, l, NULL), BERTH_OK);
    run(l, 3);
    if (r->threshold > 0.0f) {
        for (uint64_t k = 0; k < r->columns; k++)
            r->is_outlier[k] = room.mask[k / 32] >> k % 32 & 1;
        check_list(&room, r->columns, r->is_outlier);
    }
    free(room.mask);
    free(room.list);
}

void
simt_decode_rows(const berthi_rows_decode_arguments *d)
{
    berthi_rows_decode_arguments a = *d;
    berthi_launch l;

    a.codes = given(d->codes, d->rows * d->columns);
    a.row_maximum = given(d->row_maximum, d->rows * sizeof(float));
    a.values = wanted(d->values, d->rows * d->columns * width_of(d->dtype));
    CHECK_EQ(berthi_launch_decode_rows(&a, &l, NULL), BERTH_OK);
    run(&l, 1);
}

void
simt_int8_output(const berthi_int8_output_task *t)
{
    berthi_int8_output_task a = *t;
    berthi_launch l;

    a.sums = given(t->sums, t->count * t->rows * sizeof *t->sums);
    a.input_maximum = given(t->input_maximum, t->count * sizeof(float));
    a.weight_maximum = given(t->weight_maximum, t->rows * sizeof(float));
    a.bias = given(t->bias, t->rows * sizeof *t->bias);
    a.outputs = wanted(t->outputs, t->count * t->rows * width_of(t->dtype));
    if (t->outliers.mask != NULL) {
        a.outliers = place_room(&t->outliers, t->columns);
        a.weights = given(t->weights, t->rows * t->columns);
        a.inputs = given(t->inputs, t->count * t->columns * width_of(t->dtype));
    }
    CHECK_EQ(berthi_launch_int8_output(&a, &l, NULL), BERTH_OK);
    run(&l, 1);
}

/* --------------------------------------------------------------- optimizers */

static uint32_t update_turns;

void
simt_level_set_turns(uint32_t turns)
{
    update_turns = turns;
}

uint64_t
simt_update(const berthi_update_arguments *u, const berthi_update_constants *c)
{
    uint64_t not_finite = 0;
    berthi_update_request r = { *u, *c, wanted(&not_finite, sizeof not_finite) };
    berthi_update_arguments *const a = &r.arguments;
    berthi_launch l;

    a->parameter = wanted(u->parameter, u->count * width_of(u->dtype));
    a->gradient = given(u->gradient, u->count * width_of(u->gradient_dtype));
    a->master = wanted(u->master, u->count * sizeof(float));
    for (uint32_t k = 0; k < berthi_update_states((berthi_update_kind)c->kind); k++) {
        const berthi_update_state *const s = &u->state[k];

        a->state[k].values = wanted(s->values, u->count * sizeof(float));
        a->state[k].codes = wanted(s->codes, u->count);
        a->state[k].absmax =
            wanted(s->absmax, blocks_of(u->count, BERTHI_UPDATE_BLOCK) * sizeof(float));
    }
    CHECK_EQ(berthi_launch_update(&r, &l, NULL), BERTH_OK);
    if (update_turns != 0) {
        l.argument.update.turns = update_turns;
        l.ctas = (uint32_t)blocks_of(
            u->count, UPDATE_WARPS * update_turns * BERTHI_UPDATE_BLOCK);
    }
    run(&l, 1);
    return not_finite;
}

void
simt_measure(const berthi_measure_arguments *m)
{
    berthi_measure_arguments a = *m;
    berthi_launch l;

    a.gradient = given(m->gradient, m->count * width_of(m->dtype));
    a.sums = wanted(m->sums,
                    blocks_of(m->count, BERTHI_GRADIENT_BLOCK) * sizeof(berthi_gradient_sum));
    CHECK_EQ(berthi_launch_measure(&a, &l, NULL), BERTH_OK);
    run(&l, 1);
}

void
simt_accumulate(const berthi_accumulate_arguments *s)
{
    berthi_accumulate_arguments a = *s;
    berthi_launch l;

    a.sum = wanted(s->sum, s->count * width_of(s->sum_dtype));
    a.gradient = given(s->gradient, s->count * width_of(s->dtype));
    CHECK_EQ(berthi_launch_accumulate(&a, &l, NULL), BERTH_OK);
    run(&l, 1);
}

/* ------------------------------------------------------------ decoder's steps */

static berth_status
plan_step(const berthi_request *r, berthi_launch *out)
{
    switch (r->operation) {
    case BERTHI_OPERATION_TAKE: return berthi_launch_take(&r->arguments.take, out, NULL);
    case BERTHI_OPERATION_NORM: return berthi_launch_norm(&r->arguments.norm, out, NULL);
    case BERTHI_OPERATION_ROTATE: return berthi_launch_rotate(&r->arguments.rotate, out, NULL);
    case BERTHI_OPERATION_ATTEND: return berthi_launch_attend(&r->arguments.attend, out, NULL);
    case BERTHI_OPERATION_GATE: return berthi_launch_gate(&r->arguments.gate, out, NULL);
    case BERTHI_OPERATION_ADD: return berthi_launch_add(&r->arguments.add, out, NULL);
    case BERTHI_OPERATION_CHOOSE: return berthi_launch_choose(&r->arguments.choose, out, NULL);
    default: return berthi_launch_largest(&r->arguments.largest, out, NULL);
    }
}

void
simt_step(const berthi_request *request)
{
    berthi_operands operands;
    berthi_request r = *request;
    berthi_launch l;

    CHECK(berthi_operands_can_list(request, &operands));
    for (uint32_t i = 0; i < operands.count; i++) {
        const berthi_operand *const its = &operands.items[i];
        const void *const at = its->is_written ? wanted(its->memory, its->bytes)
                                               : given(its->memory, its->bytes);

        memcpy((char *)&r + its->slot, &at, sizeof at);
    }
    CHECK_EQ(plan_step(&r, &l), BERTH_OK);
    run(&l, 1);
}

/* ----------------------------------------------------------------- products */

/* A kernel for later GPUs than this one has an empty body on it. */
static uint32_t
capability_for(uint32_t asked)
{
    return simt_device_is_wanted() && simt_device_capability() < asked
               ? simt_device_capability()
               : asked;
}

/* The device has what it has. */
static uint32_t
room_for(uint32_t asked)
{
    return simt_device_is_wanted() ? simt_device_room_bytes() : asked;
}

/* Absmax of blocks, or those of their codes: bytes. */
static uint64_t
absmax_bytes(uint64_t blocks, bool is_double)
{
    return (is_double ? blocks_of(blocks, BERTHI_DOUBLE_BLOCK) : blocks) * sizeof(float);
}

/* Weights are settled every other time. */
static bool
take_settled(void)
{
    static uint32_t turn;

    return turn++ % 2 == 0;
}

/* All but the inputs, which others may have, too. */
static berthi_multiply_arguments
place_product(const berthi_multiply_arguments *what, const void *inputs, bool is_settled)
{
    const uint64_t width = width_of(what->dtype);
    const uint64_t weights = what->rows * what->columns;
    const uint64_t blocks = blocks_of(weights, what->block_size);
    const void *(*const place)(const void *, uint64_t) = is_settled ? settled : given;
    berthi_multiply_arguments a = *what;

    a.is_settled = is_settled;
    a.codes = place(what->codes, (weights + 1) / 2);
    a.absmax = place(what->absmax, absmax_bytes(blocks, what->absmax_codes != NULL));
    a.absmax_codes = place(what->absmax_codes, blocks);
    a.inputs = inputs;
    a.bias = given(what->bias, what->rows * width);
    a.outputs = wanted(what->outputs, what->count * what->rows * width);
    return a;
}

bool
simt_multiply_together(const berthi_product_task *tasks, uint32_t count)
{
    const berthi_multiply_arguments *const first = tasks[0].what;
    const void *const inputs =
        given(first->inputs, first->count * first->columns * width_of(first->dtype));
    berthi_launch launches[SIMT_TOGETHER];
    const bool are_settled = take_settled();
    bool are_one;

    for (uint32_t i = 0; i < count; i++) {
        const berthi_multiply_arguments a = place_product(tasks[i].what, inputs, are_settled);
        const berthi_product_task placed = { .what = &a, .values = tasks[i].values,
                                             .capability = capability_for(tasks[i].capability),
                                             .processors = tasks[i].processors,
                                             .room_bytes = room_for(tasks[i].room_bytes),
                                             .has_tiles = tasks[i].has_tiles };

        CHECK_EQ(berthi_launch_product(&placed, &launches[i], NULL), BERTH_OK);
    }
    are_one = berthi_launch_join_products(launches, count);
    run(launches, count);
    return are_one;
}

void
simt_multiply(const berthi_product_task *t)
{
    CHECK(!simt_multiply_together(t, 1));
}

void
simt_multiply_wide_product(const berthi_wide_task *t)
{
    const berthi_multiply_arguments *const what = t->what;
    const berthi_multiply_arguments a = place_product(
        what, given(what->inputs, what->count * what->columns * width_of(what->dtype)),
        take_settled());
    const uint64_t part_bytes = t->processors * (uint64_t)WIDE_MOST_PART_BYTES;
    uint32_t flags[WIDE_FLAG_BYTES / sizeof(uint32_t)] = { 0 };
    float *const parts = malloc(part_bytes);
    berthi_wide_task placed = *t;
    berthi_launch l;

    T_REQUIRE(parts != NULL);
    placed.what = &a;
    placed.flags = wanted(flags, sizeof flags);
    placed.parts = simt_device_is_wanted() ? simt_device_scratch(part_bytes) : parts;
    CHECK_EQ(berthi_launch_wide(&placed, &l, NULL), BERTH_OK);
    run(&l, 1);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        CHECK_EQ(flags[i], 0);
    free(parts);
}

void
simt_multiply_plain(const berthi_multiply_plain_arguments *what)
{
    const uint64_t width = width_of(what->dtype);
    berthi_multiply_plain_arguments a = *what;
    berthi_launch l;

    a.weight = given(what->weight, what->rows * what->columns * width_of(what->weight_dtype));
    a.inputs = given(what->inputs, what->count * what->columns * width);
    a.bias = given(what->bias, what->rows * width);
    a.outputs = wanted(what->outputs, what->count * what->rows * width);
    CHECK_EQ(berthi_launch_plain(&a, &l, NULL), BERTH_OK);
    run(&l, 1);
}

void
simt_multiply_int8(const berthi_multiply_int8_arguments *what)
{
    berthi_multiply_int8_arguments a = *what;
    berthi_launch l;

    a.weights = given(what->weights, what->rows * what->columns);
    a.inputs = given(what->inputs, what->count * what->columns);
    a.sums = wanted(what->sums, what->count * what->rows * sizeof *a.sums);
    CHECK_EQ(berthi_launch_int8_sums(&a, &l, NULL), BERTH_OK);
    run(&l, 1);
}

void
simt_multiply_experts(const berthi_experts_task *t)
{
    const berthi_experts_arguments *const what = t->what;
    const uint64_t width = width_of(what->dtype);
    const uint64_t weights = what->rows * what->columns;
    const uint64_t blocks = blocks_of(weights, what->block_size);
    berthi_product_expert *const experts = malloc(what->expert_count * sizeof *experts + 1);
    berthi_experts_arguments a = *what;
    berthi_experts_task placed = *t;
    berthi_launch l;

    T_REQUIRE(experts != NULL);
    for (uint32_t e = 0; e < what->expert_count; e++) {
        const berthi_product_expert *const its = &what->experts[e];

        experts[e] = (berthi_product_expert){
            .codes = given(its->codes, (weights + 1) / 2),
            .absmax = given(its->absmax, absmax_bytes(blocks, what->is_double)),
            .absmax_codes = given(what->is_double ? its->absmax_codes : NULL, blocks),
            .bias = given(its->bias, what->rows * width), .offset = its->offset
        };
    }
    a.experts = given(experts, what->expert_count * sizeof *experts);
    a.ranges = given(what->ranges, (what->expert_count + 1) * sizeof *what->ranges);
    a.inputs = given(what->inputs, what->count * what->columns * width);
    a.outputs = wanted(what->outputs, what->count * what->rows * width);
    placed.what = &a;
    placed.capability = capability_for(t->capability);
    CHECK_EQ(berthi_launch_experts(&placed, &l, NULL), BERTH_OK);
    run(&l, 1);
    free(experts);
}

/* -------------------------------------------------------------- parts of grids */

bool
simt_level_has_room(uint64_t bytes)
{
    return !simt_device_is_wanted() || simt_device_free_bytes() > bytes;
}

/* All of the grid on a device: what is before the part has no values there. */
static void *
place_part(const void *memory, uint64_t bytes, uint64_t begin, bool is_output)
{
    return simt_device_is_wanted() ? simt_device_take(memory, bytes, begin, is_output)
                                   : (void *)(uintptr_t)memory;
}

static void
run_part(const berthi_launch *l, uint64_t first_cta)
{
    simt_level_set_first(first_cta);
    run(l, 1);
    simt_level_set_first(0);
}

void
simt_level_encode_from(const berthi_encode_kernel *kernel, uint64_t first_cta)
{
    const uint64_t first = first_cta * ENCODE_CTA;
    berthi_launch l = { .kernel = KERNEL_encode_nf4_bf16_64, .threads = ENCODE_THREADS,
                        .ctas = (uint32_t)berthi_encode_ctas(kernel->count) };
    berthi_encode_kernel *const k = &l.argument.encode;

    *k = *kernel;
    k->values = place_part(kernel->values, kernel->count * 2, first * 2, false);
    k->codes = place_part(kernel->codes, (kernel->count + 1) / 2, first / 2, true);
    k->absmax = place_part(kernel->absmax, blocks_of(kernel->count, 64) * sizeof(float),
                           first / 64 * sizeof(float), true);
    run_part(&l, first_cta);
}

void
simt_level_decode_from(const uint8_t *codes, const float *absmax, uint64_t count,
                       void *values, uint64_t first_cta)
{
    const uint64_t first = first_cta * DECODE_CTA;
    berthi_launch l = { .kernel = KERNEL_decode_4bit_bf16, .threads = DECODE_THREADS,
                        .ctas = (uint32_t)berthi_decode_ctas(count) };
    berthi_decode_kernel *const k = &l.argument.decode;

    *k = (berthi_decode_kernel){ .count = count, .block_log2 = 6, .is_aligned = 1 };
    k->codes = place_part(codes, (count + 1) / 2, first / 2, false);
    k->absmax = place_part(absmax, blocks_of(count, 64) * sizeof(float),
                           first / 64 * sizeof(float), false);
    k->values = place_part(values, count * 2, first * 2, true);
    memcpy(k->table, berthi_nf4_values, sizeof berthi_nf4_values);
    run_part(&l, first_cta);
}
