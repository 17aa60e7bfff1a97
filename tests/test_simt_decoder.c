/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of a decoder's steps on the host, byte for byte against the plain loops: every
 * dtype, shape and tail, odd addresses, in place, numbers of every kind; lanes ascending,
 * descending and in a random order.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/operands.h"
#include "tests/simt_level.h"
#include "tests/random.h"
#include "tests/t.h"

#define PIECES 8u
#define NUMBERS 25600u /* of a piece */

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };
static uint64_t state = 0x2545F4914F6CDD1Du;

/* From `least` to `most`. */
static uint32_t
pick(uint32_t least, uint32_t most)
{
    return least + (uint32_t)((random_next(&state) >> 20) % (most - least + 1));
}

static int32_t
pick_dtype(void)
{
    return dtypes[pick(0, 2)];
}

enum { ORDINARY, ANY_BITS, SMALL, EQUAL, MIXED, MODES };

static float
make_number(int mode)
{
    const uint64_t random = random_next(&state);
    const float plain = (float)(int32_t)random * 0x1p-31f;

    switch (mode == MIXED ? (random >> 40) % 16 : (uint64_t)mode) {
    case ANY_BITS: return berthi_core_float((uint32_t)(random >> 8));
    case SMALL: return plain * 0x1p-120f;
    case EQUAL: return random >> 63 != 0 ? -0.5f : 0.5f;
    case 5: return random >> 63 != 0 ? INFINITY : -INFINITY;
    default: return plain * 4.0f;
    }
}

/* All that a step reads and writes, guards between. */
typedef struct memory {
    _Alignas(16) uint8_t bytes[PIECES][NUMBERS * 4 + 64];
} memory;

static memory expected;
static memory actual;

/* A piece full of numbers, at an odd place or an even one. */
static void *
fill_piece(uint32_t piece, int32_t dtype, uint32_t count, int mode)
{
    const uint64_t width = dtype == BERTH_F32 ? 4 : 2;
    uint8_t *const at = expected.bytes[piece] + 16 + pick(0, 3) * width;

    CHECK(count <= NUMBERS);
    memset(expected.bytes[piece], 0xA5, sizeof expected.bytes[piece]);
    for (uint32_t i = 0; i < count; i++)
        berthi_core_store(at, dtype, i, make_number(mode));
    return at;
}

static uint32_t *
fill_numbers(uint32_t piece, uint32_t count, uint32_t most)
{
    uint32_t *const at = (uint32_t *)(void *)(expected.bytes[piece] + 16 + 4 * pick(0, 3));

    memset(expected.bytes[piece], 0xA5, sizeof expected.bytes[piece]);
    for (uint32_t i = 0; i < count; i++)
        at[i] = pick(0, 15) == 0 ? UINT32_MAX : pick(0, most);
    return at;
}

/* The same of what is at the same place in `actual`. */
static berthi_request
request_there(const berthi_request *request)
{
    berthi_operands operands;
    berthi_request there = *request;

    CHECK(berthi_operands_can_list(request, &operands));
    for (uint32_t i = 0; i < operands.count; i++) {
        const berthi_operand *const r = &operands.items[i];
        const uint8_t *const at =
            actual.bytes[0] + ((uint8_t *)r->memory - expected.bytes[0]);

        CHECK(r->bytes <= sizeof actual.bytes[0]);
        memcpy((char *)&there + r->slot, &at, sizeof at);
    }
    return there;
}

static void
check_step(const berthi_request *request)
{
    static uint64_t turn;
    berthi_request there = request_there(request);
    bool is_same;

    CHECK_EQ(berthi_operation_check("here", request, NULL), BERTH_OK);
    actual = expected;
    berthi_operation_run(NULL, request);
    simt_level_set_order((simt_order)(turn % SIMT_ORDER_COUNT), turn);
    turn++;
    simt_step(&there);
    is_same = memcmp(&actual, &expected, sizeof actual) == 0;
    CHECK(is_same);
}

static bool
has_level(void)
{
    const char *why;

    if (simt_level_is_there(&why))
        return true;
    T_NOTE("skipped: %s", why);
    return false;
}

/* ---------------------------------------------------------------------- rows */

static void
check_take(int mode, uint32_t columns)
{
    const uint32_t rows = pick(1, 6);
    const uint32_t count = pick(1, 5);
    const uint32_t share = pick(0, 3);
    const int32_t from = pick_dtype();
    const int32_t to = pick_dtype();

    check_step(&(berthi_request){
        .operation = BERTHI_OPERATION_TAKE,
        .arguments.take = { .table = fill_piece(0, from, rows * columns, mode),
                            .table_dtype = from,
                            .dtype = to,
                            .numbers = fill_numbers(1, count, (rows + 1) * (share + 1)),
                            .rows = rows,
                            .columns = columns,
                            .count = count,
                            .share = share,
                            .outputs = fill_piece(2, to, count * columns, mode) } });
}

/* What is added first may be where outputs go. */
static void
check_norm_of_sums(berth_norm s, int mode)
{
    const uint32_t numbers = s.count * (uint32_t)s.columns;

    s.inputs = NULL;
    s.added_dtype = pick_dtype();
    s.added = fill_piece(0, s.added_dtype, numbers, mode);
    s.sums = fill_piece(3, BERTH_F32, numbers, mode);
    check_step(&(berthi_request){ .operation = BERTHI_OPERATION_NORM, .arguments.norm = s });
    if (s.added_dtype != s.dtype)
        return;
    s.outputs = (void *)(uintptr_t)s.added;
    check_step(&(berthi_request){ .operation = BERTHI_OPERATION_NORM, .arguments.norm = s });
}

static void
check_norm(int mode, uint32_t columns)
{
    const uint32_t count = pick(1, 4);
    const int32_t from = pick_dtype();
    const int32_t of_weight = pick_dtype();
    const int32_t to = pick_dtype();
    berth_norm s = { .inputs = fill_piece(0, from, count * columns, mode),
                     .weight = fill_piece(1, of_weight, columns, mode),
                     .outputs = fill_piece(2, to, count * columns, mode),
                     .inputs_dtype = from,
                     .weight_dtype = of_weight,
                     .dtype = to,
                     .epsilon = pick(0, 1) != 0 ? 1e-5f : 0.0f,
                     .count = count,
                     .columns = columns };

    check_step(&(berthi_request){ .operation = BERTHI_OPERATION_NORM, .arguments.norm = s });
    check_norm_of_sums(s, mode);
    if (from != to)
        return;
    s.outputs = (void *)(uintptr_t)s.inputs;
    check_step(&(berthi_request){ .operation = BERTHI_OPERATION_NORM, .arguments.norm = s });
}

static void
test_rows(void)
{
    static const uint32_t columns[] = { 1, 31, 32, 33, 255, 256, 257, 1023, 1024, 4100, 3000 };

    if (!has_level())
        return;
    for (int turn = 0; turn < 110; turn++) {
        check_take(turn % MODES, columns[turn % 11]);
        check_norm(turn % MODES, columns[turn % 11]);
    }
    check_take(ORDINARY, 0);
    check_norm(ORDINARY, 0);
}

/* --------------------------------------------------------------------- heads */

static void
check_rotate(int mode, uint32_t width)
{
    const uint32_t kv_heads = pick(1, 3);
    const uint32_t heads = kv_heads * pick(1, 3);
    const uint32_t count = pick(1, 4);
    const uint32_t position = pick(0, 5);
    const uint32_t capacity = position + count + pick(0, 2);
    const int32_t dtype = pick_dtype();
    const int32_t of_norm = pick_dtype();
    const int32_t of_cache = pick_dtype();
    const uint32_t keys = count * kv_heads * width;
    const uint32_t cache = kv_heads * capacity * width;

    check_step(&(berthi_request){
        .operation = BERTHI_OPERATION_ROTATE,
        .arguments.rotate =
            { .queries = fill_piece(0, dtype, count * heads * width, mode),
              .keys = fill_piece(1, dtype, keys, mode),
              .values = fill_piece(2, dtype, keys, mode),
              .query_norm = pick(0, 1) != 0 ? fill_piece(3, of_norm, width, mode) : NULL,
              .key_norm = pick(0, 1) != 0 ? fill_piece(4, of_norm, width, mode) : NULL,
              .angles = fill_piece(5, BERTH_F32, count * width, ORDINARY),
              .key_cache = fill_piece(6, of_cache, cache, mode),
              .value_cache = fill_piece(7, of_cache, cache, mode),
              .dtype = dtype,
              .norm_dtype = of_norm,
              .cache_dtype = of_cache,
              .epsilon = 1e-6f,
              .count = count,
              .heads = heads,
              .kv_heads = kv_heads,
              .width = width,
              .position = position,
              .capacity = capacity } });
}

static void
check_attend(int mode, uint32_t width, uint32_t position)
{
    const uint32_t kv_heads = pick(1, 2);
    const uint32_t heads = kv_heads * pick(1, 2);
    const uint32_t count = pick(1, 2);
    const uint32_t capacity = position + count + pick(0, 1);
    const int32_t dtype = pick_dtype();
    const int32_t of_cache = pick_dtype();
    const uint32_t cache = kv_heads * capacity * width;
    berth_attend s = { .queries = fill_piece(0, dtype, count * heads * width, mode),
                       .key_cache = fill_piece(1, of_cache, cache, mode),
                       .value_cache = fill_piece(2, of_cache, cache, mode),
                       .outputs = fill_piece(3, dtype, count * heads * width, mode),
                       .dtype = dtype,
                       .cache_dtype = of_cache,
                       .count = count,
                       .heads = heads,
                       .kv_heads = kv_heads,
                       .width = width,
                       .position = position,
                       .capacity = capacity,
                       .window = pick(0, 2) == 0 ? pick(1, position + 3) : 0 };

    check_step(
        &(berthi_request){ .operation = BERTHI_OPERATION_ATTEND, .arguments.attend = s });
    s.outputs = (void *)(uintptr_t)s.queries;
    check_step(
        &(berthi_request){ .operation = BERTHI_OPERATION_ATTEND, .arguments.attend = s });
}

static void
test_heads(void)
{
    static const uint32_t widths[] = { 2, 30, 32, 34, 64, 80, 128, 254, 256 };
    static const uint32_t positions[] = { 0, 1, 30, 31, 32, 40 };

    if (!has_level())
        return;
    for (int turn = 0; turn < 90; turn++)
        check_rotate(turn % MODES, widths[turn % 9]);
    for (int turn = 0; turn < 60; turn++)
        check_attend(turn % MODES, widths[turn % 9], positions[turn % 6]);
    for (int mode = 0; mode < MODES; mode++) {
        check_attend(mode, 6, 8 * 32 - 1); /* the groups' first tiles, and beyond */
        check_attend(mode, 6, 8 * 32 + 40);
        check_attend(mode, 4, 700);
    }
}

/* ------------------------------------------------------------------ elements */

static void
check_gate(int mode, uint32_t elements)
{
    const int32_t dtype = pick_dtype();

    check_step(&(berthi_request){
        .operation = BERTHI_OPERATION_GATE,
        .arguments.gate = { .gate = fill_piece(0, dtype, elements, mode),
                            .up = fill_piece(1, dtype, elements, mode),
                            .elements = elements,
                            .dtype = dtype } });
}

static void
check_add(int mode, uint32_t columns)
{
    const uint32_t sum_rows = pick(1, 4);
    const uint32_t share = pick(0, 3);
    const uint32_t count = pick(1, pick(0, 1) != 0 ? 40 : 4); /* few leave sums alone */
    const uint32_t numbers = sum_rows * (share != 0 ? share : 1);
    const int32_t dtype = pick_dtype();
    const bool has_rows = pick(0, 3) != 0;

    check_step(&(berthi_request){
        .operation = BERTHI_OPERATION_ADD,
        .arguments.add =
            { .sums = fill_piece(0, BERTH_F32, sum_rows * columns, mode),
              .values = fill_piece(1, dtype, count * columns, mode),
              .rows = has_rows ? fill_numbers(2, count, numbers) : NULL,
              .weights = pick(0, 1) != 0 ? fill_piece(3, BERTH_F32, numbers, mode) : NULL,
              .dtype = dtype,
              .share = share,
              .count = count,
              .sum_rows = sum_rows,
              .columns = columns } });
}

static void
check_choose(int mode, uint32_t experts)
{
    const uint32_t used = pick(1, experts < 64 ? experts : 64);
    const uint32_t count = pick(1, 10);
    const int32_t dtype = pick_dtype();

    check_step(&(berthi_request){
        .operation = BERTHI_OPERATION_CHOOSE,
        .arguments.choose = { .logits = fill_piece(0, dtype, count * experts, mode),
                              .numbers = fill_numbers(1, count * used, 1),
                              .weights = fill_piece(2, BERTH_F32, count * used, mode),
                              .dtype = dtype,
                              .is_renormalised = (int32_t)pick(0, 1),
                              .count = count,
                              .experts = experts,
                              .used = used } });
}

static void
check_largest(int mode, uint32_t columns)
{
    const uint32_t count = columns < NUMBERS / 3 ? pick(1, 3) : 1;
    const int32_t dtype = pick_dtype();

    check_step(&(berthi_request){
        .operation = BERTHI_OPERATION_LARGEST,
        .arguments.largest = { .values = fill_piece(0, dtype, count * columns, mode),
                               .numbers = fill_numbers(1, count, 9),
                               .dtype = dtype,
                               .count = count,
                               .columns = columns } });
}

/* Beyond what lanes ask for at once, too; equal ones everywhere. */
static void
test_largest(void)
{
    static const uint32_t columns[] = { 1, 2, 31, 33, 1023, 1025, 4000, 16384, 16385, 24000 };

    if (!has_level())
        return;
    for (int turn = 0; turn < 50; turn++)
        check_largest(turn % MODES, columns[turn / 5]);
}

static void
test_elements(void)
{
    static const uint32_t counts[] = { 1, 31, 127, 128, 129, 256, 500 };
    static const uint32_t experts[] = { 1, 2, 8, 31, 32, 33, 64, 128, 1024 };

    if (!has_level())
        return;
    for (int turn = 0; turn < 70; turn++) {
        check_add(turn % MODES, counts[turn % 7]);
        check_gate(turn % MODES, counts[turn % 7] * 10 + 3);
    }
    for (int turn = 0; turn < 90; turn++)
        check_choose(turn % MODES, experts[turn % 9]);
}

/* ------------------------------------------------------------------ launches */

static void
test_launches(void)
{
    berthi_launch l;
    berth_take take = { .table_dtype = BERTH_F32, .dtype = BERTH_F32, .columns = 1025,
                        .count = 3 };
    berth_attend attend = { .cache_dtype = BERTH_F16, .count = 5, .heads = 4 };
    berth_add add = { .count = 1, .sum_rows = 3, .columns = 700, .share = 2 };

    CHECK_EQ(berthi_launch_take(&take, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_take);
    CHECK_EQ(l.threads, STEP_THREADS);
    CHECK_EQ(l.ctas, 6);
    CHECK_EQ(l.argument.take.share, 1);
    take.count = 0;
    CHECK_EQ(berthi_launch_take(&take, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    take.count = UINT32_MAX;
    CHECK_EQ(berthi_launch_take(&take, &l, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    CHECK_EQ(berthi_launch_norm(&(berth_norm){ .count = 7, .columns = 1 }, &l, NULL), BERTH_OK);
    CHECK_EQ(l.ctas, 7);
    CHECK_EQ(berthi_launch_norm(&(berth_norm){ .count = 7 }, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    CHECK_EQ(berthi_launch_rotate(&(berth_rotate){ .count = 3, .heads = 4, .kv_heads = 2 }, &l,
                                  NULL),
             BERTH_OK);
    CHECK_EQ(l.ctas, 3); /* 18 warps */
    CHECK_EQ(berthi_launch_attend(&attend, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_attend_f16);
    CHECK_EQ(l.ctas, 20);
    attend.cache_dtype = BERTH_U8;
    CHECK_EQ(berthi_launch_attend(&attend, &l, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    CHECK_EQ(berthi_launch_add(&add, &l, NULL), BERTH_OK);
    CHECK_EQ(l.ctas, 3); /* 18 warps */
    CHECK_EQ(l.argument.add.share, 2);
    add.count = 0;
    CHECK_EQ(berthi_launch_add(&add, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    CHECK_EQ(berthi_launch_gate(&(berth_gate){ .elements = 1024 }, &l, NULL), BERTH_OK);
    CHECK_EQ(l.ctas, 1);
    CHECK_EQ(berthi_launch_choose(&(berth_choose){ .count = 9 }, &l, NULL), BERTH_OK);
    CHECK_EQ(l.ctas, 2);
    CHECK_EQ(berthi_launch_largest(&(berth_largest){ .count = 9, .columns = 5000 }, &l, NULL),
             BERTH_OK);
    CHECK_EQ(l.threads, LARGEST_THREADS);
    CHECK_EQ(l.ctas, 9);
    CHECK_EQ(berthi_launch_largest(&(berth_largest){ .count = 1, .columns = UINT32_MAX }, &l,
                                   NULL),
             BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_launches);
    T_RUN(test_rows);
    T_RUN(test_heads);
    T_RUN(test_elements);
    T_RUN(test_largest);
    T_MAIN_END;
}
