/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_operands.c - what every operation reads and writes, member by member: a line of its own
 * for each, with the bytes counted here by hand.
 *
 * Memory is not touched: an address is a letter, and a line says
 * LETTER=NAME r|w|rw BYTES/UNIT; ...
 */
#include "kernels/operands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/product_arguments.h"
#include "tests/t.h"

#define LETTER(letter) ((void *)(uintptr_t)(0x1000u * ((letter) - 'A' + 1u)))

static const char *
line_of(const berthi_request *request)
{
    static char line[1024];
    berthi_operands operands;
    size_t used = 0;

    line[0] = '\0';
    if (!berthi_operands_can_list(request, &operands))
        return "impossible";
    CHECK(operands.request == request);
    for (uint32_t i = 0; i < operands.count; i++) {
        const berthi_operand *const it = &operands.items[i];
        void *there;

        memcpy(&there, (const char *)request + it->slot, sizeof there);
        CHECK(there == it->memory);
        used += (size_t)snprintf(line + used, sizeof line - used,
                                 "%s%c=%s %s%s %" PRIu64 "/%" PRIu32, i > 0 ? "; " : "",
                                 (char)('A' + (uintptr_t)it->memory / 0x1000u - 1), it->name,
                                 it->is_read ? "r" : "", it->is_written ? "w" : "", it->bytes,
                                 it->unit);
    }
    return line;
}

static uint64_t
moved_of(const berthi_request *request)
{
    berthi_operands operands;

    CHECK(berthi_operands_can_list(request, &operands));
    return (uint64_t)berthi_operands_moved(&operands);
}

#define CHECK_LINE(operation_, member, expected, ...)                                         \
    do {                                                                                      \
        const berthi_request request_ = { .operation = (operation_),                          \
                                          .arguments.member = { __VA_ARGS__ } };              \
                                                                                              \
        CHECK_STR(line_of(&request_), expected);                                              \
    } while (0)

/* ------------------------------------------------------------------------- encodings */

static void
test_encode(void)
{
    for (int32_t o = BERTHI_OPERATION_ENCODE_NF4; o <= BERTHI_OPERATION_ENCODE_FP4; o++) {
        CHECK_LINE(o, encode, "A=values r 390/2; B=codes w 98/1; C=maxima w 16/4",
                   .values = LETTER('A'), .dtype = BERTH_BF16, .block_size = 64, .count = 195,
                   .codes = LETTER('B'), .absmax = LETTER('C'));
        CHECK_LINE(o, encode, "", .values = LETTER('A'), .dtype = BERTH_F32, .block_size = 64,
                   .codes = LETTER('B'), .absmax = LETTER('C'));
        CHECK_LINE(o, encode, "impossible", .values = LETTER('A'), .dtype = BERTH_F32,
                   .count = 4, .codes = LETTER('B'), .absmax = LETTER('C'));
        CHECK_LINE(o, encode, "impossible", .values = LETTER('A'), .dtype = BERTH_F32,
                   .block_size = 64, .count = UINT64_C(1) << 62, .codes = LETTER('B'),
                   .absmax = LETTER('C'));
    }
}

static void
test_encode_rows(void)
{
    CHECK_LINE(BERTHI_OPERATION_ENCODE_ROWS, rows,
               "A=values r 84/4; B=codes w 21/1; C=maxima w 28/4", .values = LETTER('A'),
               .dtype = BERTH_F32, .rows = 7, .columns = 3, .codes = LETTER('B'),
               .row_maximum = LETTER('C'));
    CHECK_LINE(BERTHI_OPERATION_ENCODE_ROWS, rows, "impossible", .values = LETTER('A'),
               .dtype = BERTH_F32, .rows = UINT64_C(1) << 32, .columns = UINT64_C(1) << 32,
               .codes = LETTER('B'), .row_maximum = LETTER('C'));
    CHECK_LINE(BERTHI_OPERATION_ENCODE_ROWS, rows, "impossible", .values = LETTER('A'),
               .dtype = BERTH_F16, .rows = UINT64_C(1) << 62, .columns = 3,
               .codes = LETTER('B'), .row_maximum = LETTER('C'));
}

static void
test_encode_double(void)
{
    char expected[200];

    snprintf(expected, sizeof expected,
             "A=values r 1028/4; B=codes w 257/1; C=maxima w 8/4; D=offset w 4/4; "
             "E=scratch rw %" PRIu64 "/4",
             berthi_offset_scratch(257) * 4);
    CHECK_LINE(BERTHI_OPERATION_ENCODE_DOUBLE, offset, expected, .absmax = LETTER('A'),
               .count = 257, .codes = LETTER('B'), .absmax2 = LETTER('C'),
               .offset = LETTER('D'), .scratch = LETTER('E'));
    CHECK_LINE(BERTHI_OPERATION_ENCODE_DOUBLE, offset, "impossible", .absmax = LETTER('A'),
               .count = UINT64_MAX / 4 + 1, .codes = LETTER('B'), .absmax2 = LETTER('C'),
               .offset = LETTER('D'), .scratch = LETTER('E'));
}

/* From value 64 of a weight on: with blocks of 64 the 257th block is in the second of 256. */
static void
test_decode(void)
{
    for (int32_t o = BERTHI_OPERATION_DECODE_NF4; o <= BERTHI_OPERATION_DECODE_FP4; o++) {
        CHECK_LINE(o, decode, "A=codes r 51/1; B=maxima r 8/4; D=values w 202/2",
                   .codes = LETTER('A'), .absmax = LETTER('B'), .block_size = 64, .first = 64,
                   .count = 101, .values = LETTER('D'), .dtype = BERTH_F16);
        CHECK_LINE(o, decode,
                   "A=codes r 32/1; B=maxima r 8/4; C=codes r 2/1; D=values w 256/4",
                   .codes = LETTER('A'), .absmax = LETTER('B'), .absmax_codes = LETTER('C'),
                   .block_size = 64, .first = 256 * 64 - 32, .count = 64,
                   .values = LETTER('D'), .dtype = BERTH_F32);
    }
    CHECK_LINE(BERTHI_OPERATION_DECODE_ROWS, decode_rows,
               "A=codes r 11/1; B=maxima r 12/4; C=values w 22/2", .codes = LETTER('A'),
               .row_maximum = LETTER('B'), .columns = 5, .first = 4, .count = 11,
               .values = LETTER('C'), .dtype = BERTH_BF16);
}

/* -------------------------------------------------------------------------- products */

static void
test_multiply(void)
{
    for (int32_t o = BERTHI_OPERATION_MULTIPLY_NF4; o <= BERTHI_OPERATION_MULTIPLY_FP4; o++) {
        berthi_request r = {
            .operation = o,
            .arguments.multiply = { .codes = LETTER('A'), .absmax = LETTER('B'),
                                    .block_size = 32, .count = 3, .rows = 129, .columns = 65,
                                    .inputs = LETTER('D'), .outputs = LETTER('F'),
                                    .dtype = BERTH_BF16, .scratch = LETTER('G') }
        };
        uint64_t scratch = berthi_multiply_scratch(&r.arguments.multiply) * 4;
        char expected[400];

        snprintf(expected, sizeof expected,
                 "A=codes r 4193/1; B=absmax r 1052/4; D=inputs r 390/2; F=outputs w 774/2; "
                 "G=scratch rw %" PRIu64 "/4",
                 scratch);
        CHECK_STR(line_of(&r), expected);
        r.arguments.multiply.absmax_codes = LETTER('C');
        r.arguments.multiply.bias = LETTER('E');
        scratch = berthi_multiply_scratch(&r.arguments.multiply) * 4; /* absmax, too */
        snprintf(expected, sizeof expected,
                 "A=codes r 4193/1; B=absmax r 8/4; C=absmax r 263/1; D=inputs r 390/2; "
                 "E=bias r 258/2; F=outputs w 774/2; G=scratch rw %" PRIu64 "/4",
                 scratch);
        CHECK_STR(line_of(&r), expected);
        CHECK_EQ(moved_of(&r), 4193 + 8 + 263 + 390 + 258 + 774 + scratch);
    }
}

/* Of weights, which are no operands, those of as many experts as can have inputs. */
static void
test_experts(void)
{
    for (int32_t o = BERTHI_OPERATION_EXPERTS_NF4; o <= BERTHI_OPERATION_EXPERTS_FP4; o++) {
        berthi_request r = {
            .operation = o,
            .arguments.experts = { .experts = LETTER('A'), .ranges = LETTER('B'),
                                   .expert_count = 4, .most_inputs = 2, .codes_alignment = 16,
                                   .block_size = 64, .rows = 24, .columns = 64, .count = 3,
                                   .inputs = LETTER('C'), .outputs = LETTER('D'),
                                   .dtype = BERTH_F32, .scratch = LETTER('E') }
        };
        const berthi_experts_arguments *const a = &r.arguments.experts;
        const uint64_t weight = berthi_experts_weight_bytes(a);
        const uint64_t scratch = berthi_experts_scratch(a) * 4;
        const uint64_t own = 4 * sizeof(berthi_product_expert) + 20 + 768 + 288 + scratch;
        char expected[400];

        snprintf(expected, sizeof expected,
                 "A=experts r %zu/8; B=ranges r 20/4; C=inputs r 768/4; D=outputs rw 288/4; "
                 "E=scratch rw %" PRIu64 "/4",
                 4 * sizeof(berthi_product_expert), scratch);
        CHECK_STR(line_of(&r), expected);
        CHECK_GT(weight, 24 * 64 / 2);
        CHECK_EQ(moved_of(&r), own + 3 * weight);
        r.arguments.experts.expert_count = 2;
        CHECK_EQ(moved_of(&r), own - 2 * sizeof(berthi_product_expert) - 8 + 2 * weight);
    }
}

static void
test_plain(void)
{
    CHECK_LINE(BERTHI_OPERATION_MULTIPLY_PLAIN, plain,
               "A=weight r 140/4; B=inputs r 30/2; D=outputs w 42/2", .weight = LETTER('A'),
               .inputs = LETTER('B'), .outputs = LETTER('D'), .weight_dtype = BERTH_F32,
               .dtype = BERTH_F16, .count = 3, .rows = 7, .columns = 5);
    CHECK_LINE(BERTHI_OPERATION_MULTIPLY_PLAIN, plain,
               "A=weight r 70/2; B=inputs r 60/4; C=bias r 28/4; D=outputs w 84/4",
               .weight = LETTER('A'), .inputs = LETTER('B'), .bias = LETTER('C'),
               .outputs = LETTER('D'), .weight_dtype = BERTH_BF16, .dtype = BERTH_F32,
               .count = 3, .rows = 7, .columns = 5);
    CHECK_LINE(BERTHI_OPERATION_MULTIPLY_INT8, int8,
               "A=weight r 35/1; B=inputs r 15/1; C=sums w 84/4", .weights = LETTER('A'),
               .inputs = LETTER('B'), .sums = LETTER('C'), .count = 3, .rows = 7,
               .columns = 5);
}

static void
test_int8_input(void)
{
    CHECK_LINE(BERTHI_OPERATION_INT8_INPUT, int8_input,
               "A=values r 240/2; B=codes w 120/1; C=maxima w 12/4", .inputs = LETTER('A'),
               .dtype = BERTH_BF16, .count = 3, .columns = 40, .codes = LETTER('B'),
               .input_maximum = LETTER('C'),
               .outliers = { .mask = LETTER('D'), .list = LETTER('E'), .count = LETTER('F'),
                             .capacity = 9 });
    CHECK_LINE(BERTHI_OPERATION_INT8_INPUT, int8_input,
               "A=values r 240/2; B=codes w 120/1; C=maxima w 12/4; D=outliers rw 8/4; "
               "E=outliers rw 36/4; F=outliers rw 4/4",
               .inputs = LETTER('A'), .dtype = BERTH_BF16, .threshold = 6.0f, .count = 3,
               .columns = 40, .codes = LETTER('B'), .input_maximum = LETTER('C'),
               .outliers = { .mask = LETTER('D'), .list = LETTER('E'), .count = LETTER('F'),
                             .capacity = 9 });
}

/* Columns that are apart are few: the weight and the inputs of them are not counted. */
static void
test_int8_output(void)
{
    berthi_request r = {
        .operation = BERTHI_OPERATION_INT8_OUTPUT,
        .arguments.int8_output = { .sums = LETTER('A'), .input_maximum = LETTER('B'),
                                   .weight_maximum = LETTER('C'), .outputs = LETTER('E'),
                                   .dtype = BERTH_F32, .count = 3, .rows = 7,
                                   .weights = LETTER('I'), .inputs = LETTER('J'),
                                   .columns = 40 }
    };

    CHECK_STR(line_of(&r), "A=sums r 84/4; B=maxima r 12/4; C=maxima r 28/4; "
                           "E=outputs w 84/4");
    CHECK_EQ(moved_of(&r), 84 + 12 + 28 + 84);
    r.arguments.int8_output.bias = LETTER('D');
    r.arguments.int8_output.outliers = (berthi_outlier_room){
        .mask = LETTER('F'), .list = LETTER('G'), .count = LETTER('H'), .capacity = 9
    };
    CHECK_STR(line_of(&r), "A=sums r 84/4; B=maxima r 12/4; C=maxima r 28/4; D=bias r 14/2; "
                           "E=outputs w 84/4; F=outliers r 8/4; G=outliers r 36/4; "
                           "H=outliers r 4/4; I=weight r 280/1; J=inputs r 480/4");
    CHECK_EQ(moved_of(&r), 84 + 12 + 28 + 14 + 84 + 8 + 36 + 4);
}

/* ------------------------------------------------------------------------ optimizers */

static void
test_update(void)
{
    berthi_request r = {
        .operation = BERTHI_OPERATION_UPDATE,
        .arguments.update = {
            .arguments = { .count = 257, .parameter = LETTER('A'), .dtype = BERTH_BF16,
                           .gradient_dtype = BERTH_F32, .gradient = LETTER('B'),
                           .state = { { .codes = LETTER('D'), .absmax = LETTER('E') },
                                      { .values = LETTER('F'), .codes = LETTER('Y'),
                                        .absmax = LETTER('Z') } } },
            .constants = { .kind = BERTHI_UPDATE_ADAM },
            .not_finite = LETTER('H') }
    };

    CHECK_STR(line_of(&r), "A=parameter rw 514/2; B=gradient r 1028/4; D=state rw 257/1; "
                           "E=maxima rw 8/4; F=state rw 1028/4; H=count rw 8/8");
    r.arguments.update.constants.kind = BERTHI_UPDATE_LION;
    r.arguments.update.arguments.master = LETTER('C');
    CHECK_STR(line_of(&r), "A=parameter rw 514/2; B=gradient r 1028/4; C=master rw 1028/4; "
                           "D=state rw 257/1; E=maxima rw 8/4; H=count rw 8/8");
    r.arguments.update.arguments.count = UINT64_MAX / 4 + 1;
    CHECK_STR(line_of(&r), "impossible");
}

static void
test_gradients(void)
{
    CHECK_LINE(BERTHI_OPERATION_MEASURE, measure, "A=gradient r 16388/4; B=sums w 32/8",
               .count = 4097, .gradient = LETTER('A'), .dtype = BERTH_F32,
               .sums = LETTER('B'));
    CHECK_LINE(BERTHI_OPERATION_MEASURE, measure, "impossible", .count = UINT64_MAX / 2 + 1,
               .gradient = LETTER('A'), .dtype = BERTH_F16, .sums = LETTER('B'));
    CHECK_LINE(BERTHI_OPERATION_ACCUMULATE, accumulate, "A=sum rw 28/4; B=gradient r 14/2",
               .count = 7, .sum = LETTER('A'), .sum_dtype = BERTH_F32, .dtype = BERTH_F16,
               .gradient = LETTER('B'));
    CHECK_LINE(BERTHI_OPERATION_ACCUMULATE, accumulate, "impossible",
               .count = UINT64_MAX / 4 + 1, .sum = LETTER('A'), .sum_dtype = BERTH_F16,
               .dtype = BERTH_F32, .gradient = LETTER('B'));
}

/* ----------------------------------------------------------------------------- steps */

static void
test_take_and_norm(void)
{
    berthi_request take = {
        .operation = BERTHI_OPERATION_TAKE,
        .arguments.take = { .table = LETTER('A'), .table_dtype = BERTH_BF16,
                            .dtype = BERTH_F32, .numbers = LETTER('B'), .rows = 40,
                            .columns = 24, .count = 5, .outputs = LETTER('C') }
    };

    CHECK_STR(line_of(&take), "A=table r 1920/2; B=numbers r 20/4; C=outputs w 480/4");
    CHECK_EQ(moved_of(&take), 5 * 24 * 2 + 20 + 480);
    take.arguments.take.count = 1;
    CHECK_EQ(moved_of(&take), 24 * 2 + 4 + 96);
    take.arguments.take.count = 0;
    CHECK_STR(line_of(&take), "");
    CHECK_EQ(moved_of(&take), 0);
    CHECK_LINE(BERTHI_OPERATION_NORM, norm,
               "A=inputs r 36/2; B=weight r 24/4; C=outputs w 36/2", .inputs = LETTER('A'),
               .weight = LETTER('B'), .outputs = LETTER('C'), .inputs_dtype = BERTH_F16,
               .weight_dtype = BERTH_F32, .dtype = BERTH_BF16, .count = 3, .columns = 6);
    CHECK_LINE(BERTHI_OPERATION_NORM, norm,
               "D=sums rw 72/4; E=added r 36/2; B=weight r 24/4; C=outputs w 36/2",
               .inputs = LETTER('A'), .weight = LETTER('B'), .outputs = LETTER('C'),
               .inputs_dtype = BERTH_F32, .weight_dtype = BERTH_F32, .dtype = BERTH_BF16,
               .count = 3, .added_dtype = BERTH_BF16, .columns = 6, .sums = LETTER('D'),
               .added = LETTER('E'));
    CHECK_LINE(BERTHI_OPERATION_NORM, norm, "", .inputs = LETTER('A'), .weight = LETTER('B'),
               .outputs = LETTER('C'), .columns = 6);
}

static void
test_rotate(void)
{
    berthi_request r = {
        .operation = BERTHI_OPERATION_ROTATE,
        .arguments.rotate = { .queries = LETTER('A'), .keys = LETTER('B'),
                              .values = LETTER('C'), .angles = LETTER('F'),
                              .key_cache = LETTER('G'), .value_cache = LETTER('H'),
                              .dtype = BERTH_BF16, .norm_dtype = BERTH_F16,
                              .cache_dtype = BERTH_F32, .count = 3, .heads = 4, .kv_heads = 2,
                              .width = 16, .position = 7, .capacity = 20 }
    };
    const uint64_t own = 384 + 192 + 192 + 192;

    CHECK_STR(line_of(&r), "A=queries rw 384/2; B=keys r 192/2; C=values r 192/2; "
                           "F=angles r 192/4; G=key_cache rw 2560/4; H=value_cache rw 2560/4");
    CHECK_EQ(moved_of(&r), own + 2 * 3 * 2 * 16 * 4);
    r.arguments.rotate.query_norm = LETTER('D');
    r.arguments.rotate.key_norm = LETTER('E');
    CHECK_STR(line_of(&r), "A=queries rw 384/2; B=keys r 192/2; C=values r 192/2; "
                           "D=query_norm r 32/2; E=key_norm r 32/2; F=angles r 192/4; "
                           "G=key_cache rw 2560/4; H=value_cache rw 2560/4");
    r.arguments.rotate.count = 0;
    CHECK_STR(line_of(&r), "");
    CHECK_EQ(moved_of(&r), 0);
}

/* Of the caches what queries see: positions 0 to 9, or those of a window. */
static void
test_attend(void)
{
    berthi_request r = {
        .operation = BERTHI_OPERATION_ATTEND,
        .arguments.attend = { .queries = LETTER('A'), .key_cache = LETTER('B'),
                              .value_cache = LETTER('C'), .outputs = LETTER('D'),
                              .dtype = BERTH_BF16, .cache_dtype = BERTH_F16, .count = 3,
                              .heads = 4, .kv_heads = 2, .width = 16, .position = 7,
                              .capacity = 20 }
    };
    berth_attend *const a = &r.arguments.attend;

    CHECK_STR(line_of(&r), "A=queries r 384/2; B=key_cache r 1280/2; C=value_cache r 1280/2; "
                           "D=outputs w 384/2");
    CHECK_EQ(moved_of(&r), 2 * 384 + 2 * 10 * 2 * 16 * 2);
    a->window = 8; /* the first query still sees all */
    CHECK_EQ(moved_of(&r), 2 * 384 + 2 * 10 * 2 * 16 * 2);
    a->window = 7;
    CHECK_EQ(moved_of(&r), 2 * 384 + 2 * 9 * 2 * 16 * 2);
    a->window = 1;
    CHECK_EQ(moved_of(&r), 2 * 384 + 2 * 3 * 2 * 16 * 2);
    a->count = 0;
    CHECK_STR(line_of(&r), "");
    CHECK_EQ(moved_of(&r), 0);
}

static void
test_other_steps(void)
{
    CHECK_LINE(BERTHI_OPERATION_GATE, gate, "A=gate rw 14/2; B=up r 14/2",
               .gate = LETTER('A'), .up = LETTER('B'), .elements = 7, .dtype = BERTH_F16);
    CHECK_LINE(BERTHI_OPERATION_ADD, add, "A=sums rw 72/4; B=values r 60/2",
               .sums = LETTER('A'), .values = LETTER('B'), .dtype = BERTH_BF16, .count = 5,
               .sum_rows = 3, .columns = 6);
    CHECK_LINE(BERTHI_OPERATION_ADD, add,
               "A=sums rw 72/4; B=values r 60/2; C=rows r 20/4; D=weights r 12/4",
               .sums = LETTER('A'), .values = LETTER('B'), .rows = LETTER('C'),
               .weights = LETTER('D'), .dtype = BERTH_BF16, .count = 5, .sum_rows = 3,
               .columns = 6);
    CHECK_LINE(BERTHI_OPERATION_ADD, add, "A=sums rw 72/4; B=values r 60/2; D=weights r 24/4",
               .sums = LETTER('A'), .values = LETTER('B'), .weights = LETTER('D'),
               .dtype = BERTH_BF16, .share = 2, .count = 5, .sum_rows = 3, .columns = 6);
    CHECK_LINE(BERTHI_OPERATION_ADD, add, "", .sums = LETTER('A'), .values = LETTER('B'),
               .dtype = BERTH_BF16, .sum_rows = 3, .columns = 6);
    CHECK_LINE(BERTHI_OPERATION_CHOOSE, choose,
               "A=logits r 480/2; B=numbers w 96/4; C=weights w 96/4", .logits = LETTER('A'),
               .numbers = LETTER('B'), .weights = LETTER('C'), .dtype = BERTH_F16, .count = 6,
               .experts = 40, .used = 4);
    CHECK_LINE(BERTHI_OPERATION_LARGEST, largest, "A=values r 2000/2; B=numbers w 8/4",
               .values = LETTER('A'), .numbers = LETTER('B'), .dtype = BERTH_F16, .count = 2,
               .columns = 500);
    CHECK_LINE(BERTHI_OPERATION_CALL, call, "", .user = LETTER('A'), .seconds = 1);
}

/* ------------------------------------------------------------------------- addresses */

static void
test_addresses(void)
{
    berthi_request r = {
        .operation = BERTHI_OPERATION_ACCUMULATE,
        .arguments.accumulate = { .count = 3, .sum = LETTER('A'), .sum_dtype = BERTH_F32,
                                  .dtype = BERTH_BF16, .gradient = LETTER('B') }
    };
    berthi_operands operands;
    berth_error error;

    for (uintptr_t by = 0; by < 8; by++) {
        const bool is_odd = by % 4 != 0;

        r.arguments.accumulate.sum = (void *)((uintptr_t)LETTER('A') + by);
        CHECK(berthi_operands_can_list(&r, &operands));
        berthi_error_clear(&error);
        CHECK_EQ(berthi_operands_check_addresses(&operands, &error),
                 is_odd ? BERTH_EUNSUPPORTED : BERTH_OK);
        CHECK_STR(error.message, is_odd ? "sum at an address that is no multiple of 4" : "");
    }
    r.arguments.accumulate.sum = LETTER('A');
    r.arguments.accumulate.gradient = (void *)((uintptr_t)LETTER('B') + 1);
    CHECK(berthi_operands_can_list(&r, &operands));
    CHECK_EQ(berthi_operands_check_addresses(&operands, &error), BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(error.message, "gradient at an address that is no multiple of 2");
    r.arguments.accumulate.count = 0;
    CHECK(berthi_operands_can_list(&r, &operands));
    CHECK_EQ(berthi_operands_check_addresses(&operands, NULL), BERTH_OK);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_encode);
    T_RUN(test_encode_rows);
    T_RUN(test_encode_double);
    T_RUN(test_decode);
    T_RUN(test_multiply);
    T_RUN(test_experts);
    T_RUN(test_plain);
    T_RUN(test_int8_input);
    T_RUN(test_int8_output);
    T_RUN(test_update);
    T_RUN(test_gradients);
    T_RUN(test_take_and_norm);
    T_RUN(test_rotate);
    T_RUN(test_attend);
    T_RUN(test_other_steps);
    T_RUN(test_addresses);
    T_MAIN_END;
}
