/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_tree.c - natural order, forms, and the folded tree of modules. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "tests/t.h"
#include "tools/listing.h"
#include "tools/tree.h"

static int
sign(int number)
{
    return number < 0 ? -1 : number > 0;
}

static int
order(const char *a, const char *b)
{
    return sign(listing_compare(a, strlen(a), b, strlen(b)));
}

static void
test_order(void)
{
    /* Ascending: each before all that follow. */
    static const char *const names[] = {
        "", ".", "a", "a.b", "a.b.2", "a.b.10", "a.b.10.x", "a.b.10-x", "a-b", "a0", "a00",
        "a1", "a01", "a2", "a10", "a12", "a100", "aa", "b", "model.layers.2.w", "model.layers.10.w",
        "model.layers.99999999999999999999.w", "model.layers.100000000000000000000.w",
    };
    const size_t count = sizeof names / sizeof names[0];

    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++)
            if (!CHECK_EQ(order(names[i], names[j]), i < j ? -1 : i > j))
                T_NOTE("`%s` and `%s`", names[i], names[j]);
}

/* Names have a length, not an end. */
static void
test_order_of_parts(void)
{
    CHECK_EQ(listing_compare("12", 1, "13", 1), 0);
    CHECK_EQ(listing_compare("a00", 2, "a0x", 2), 0);
    CHECK_EQ(sign(listing_compare("a1", 1, "a", 1)), 0);
    CHECK_EQ(sign(listing_compare("a.b12", 4, "a.b1", 4)), 0);
    CHECK_EQ(sign(listing_compare("a.", 2, "a\0", 2)), -1);
    CHECK_EQ(sign(listing_compare("a\1", 2, "a.", 2)), 1);
    CHECK_EQ(sign(listing_compare("a\xFF", 2, "az", 2)), 1);
    CHECK_EQ(sign(listing_compare("a/", 2, "a0", 2)), -1);
    CHECK_EQ(sign(listing_compare("a9", 2, "a:", 2)), -1);
    CHECK_EQ(sign(listing_compare("x7.7", 4, "x7.8", 4)), -1);
}

/* ---------------------------------------------------------------------- forms */

/* What the C library has handed out; 0 where it does not tell. */
static size_t
heap_in_use(void)
{
#if defined __GLIBC__ && __GLIBC_PREREQ(2, 33)
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

static berth_tensor
tensor_of(int32_t dtype, uint32_t rank, uint64_t rows, uint64_t columns)
{
    berth_tensor tensor;

    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = dtype;
    tensor.rank = rank;
    tensor.shape[0] = rows;
    tensor.shape[1] = columns;
    tensor.owner = BERTH_NO_TENSOR;
    return tensor;
}

static void
test_forms_are_kept_once(void)
{
    form_table t = { 0 };
    const berth_tensor a = tensor_of(BERTH_BF16, 2, 3, 4);
    const berth_tensor b = tensor_of(BERTH_BF16, 2, 3, 5);
    const berth_tensor c = tensor_of(BERTH_F16, 2, 3, 4);
    const berth_tensor d = tensor_of(BERTH_BF16, 0, 0, 0);
    const uint32_t first = form_intern(&t, &a, NULL);

    CHECK_EQ(first, 0);
    CHECK_EQ(form_intern(&t, &b, NULL), 1);
    CHECK_EQ(form_intern(&t, &c, NULL), 2);
    CHECK_EQ(form_intern(&t, &d, NULL), 3);
    CHECK_EQ(form_intern(&t, &a, NULL), first);
    CHECK_EQ(t.count, 4);
    for (uint64_t i = 0; i < 1000; i++) {
        const berth_tensor many = tensor_of(BERTH_U8, 2, i, i * i);

        CHECK_EQ(form_intern(&t, &many, NULL), 4 + i);
    }
    CHECK_EQ(form_intern(&t, &b, NULL), 1);
    CHECK_EQ(form_shape(&t, &t.forms[4 + 7])[1], 49);
    form_table_fini(&t);
}

/* At least half of the slots stay free. */
static void
grow_forms(void)
{
    form_table t = { 0 };

    for (uint64_t i = 0; i < 65; i++) {
        const berth_tensor tensor = tensor_of(BERTH_U8, 1, i, 0);

        CHECK_EQ(t.slot_count, i == 0 ? 0 : 128);
        CHECK_EQ(form_intern(&t, &tensor, NULL), i);
    }
    CHECK_EQ(t.slot_count, 256);
    CHECK_EQ(t.dimension_count, 65);
    for (uint64_t i = 0; i < 65; i++) {
        const berth_tensor tensor = tensor_of(BERTH_U8, 1, i, 0);

        CHECK_EQ(form_intern(&t, &tensor, NULL), i);
    }
    form_table_fini(&t);
}

static void
test_forms_grow(void)
{
    const size_t before = heap_in_use();

    for (int i = 0; i < 100; i++)
        grow_forms();
    CHECK_LE(heap_in_use(), before + 100 * 65 * sizeof(uint64_t));
}

/* Everything but the name makes a form. */
static void
test_forms_differ(void)
{
    berth_tensor tensor = tensor_of(BERTH_U8, 1, 6, 0);
    berth_quantized q = { .block_size = 1, .rank = 2, .shape = { 1, 6 } };
    form_table t = { 0 };

    CHECK_EQ(form_intern(&t, &tensor, &q), 0);
    tensor.dtype = BERTH_BF16;
    CHECK_EQ(form_intern(&t, &tensor, &q), 1);
    tensor.encoding = BERTH_ENCODING_FP4;
    CHECK_EQ(form_intern(&t, &tensor, &q), 2);
    q.block_size = 2;
    CHECK_EQ(form_intern(&t, &tensor, &q), 3);
    q.block_columns = 2;
    CHECK_EQ(form_intern(&t, &tensor, &q), 4);
    q.is_double = 1;
    CHECK_EQ(form_intern(&t, &tensor, &q), 5);
    q.rank = 1;
    CHECK_EQ(form_intern(&t, &tensor, &q), 6);
    q.shape[0] = 2;
    CHECK_EQ(form_intern(&t, &tensor, &q), 7);
    q.rank = 0;
    CHECK_EQ(form_intern(&t, &tensor, &q), 8);
    CHECK_EQ(form_intern(&t, &tensor, &q), 8);
    form_table_fini(&t);
}

static void
test_form_classes(void)
{
    static const struct {
        int32_t dtype;
        int32_t encoding;
        form_class expected;
        const char *text;
    } cases[] = {
        { BERTH_F64, BERTH_ENCODING_NATIVE, FORM_WIDE, "F64" },
        { BERTH_F32, BERTH_ENCODING_NATIVE, FORM_WIDE, "F32" },
        { BERTH_BF16, BERTH_ENCODING_NATIVE, FORM_HALF, "BF16" },
        { BERTH_F8_E4M3, BERTH_ENCODING_NATIVE, FORM_BYTE, "F8_E4M3" },
        { BERTH_F4, BERTH_ENCODING_NATIVE, FORM_NIBBLE, "F4" },
        { BERTH_F32, BERTH_ENCODING_STATISTICS, FORM_WIDE, "F32" },
        { BERTH_U8, BERTH_ENCODING_STATISTICS, FORM_BYTE, "U8" },
        { BERTH_U8, BERTH_ENCODING_NF4, FORM_NIBBLE, "nf4" },
        { BERTH_U8, BERTH_ENCODING_FP4, FORM_NIBBLE, "fp4" },
        { BERTH_I8, BERTH_ENCODING_INT8, FORM_BYTE, "int8" },
        { BERTH_F8_E4M3, BERTH_ENCODING_FP8_BLOCK, FORM_BYTE, "fp8" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const form f = { .dtype = cases[i].dtype, .encoding = cases[i].encoding };
        char text[FORM_TYPE_CAPACITY];

        CHECK_EQ(form_class_of(&f), cases[i].expected);
        CHECK_STR(form_type_text(&f, text), cases[i].text);
    }
    CHECK_EQ(form_class_of_encoding(BERTH_ENCODING_NATIVE), FORM_HALF);
    CHECK_EQ(form_class_of_encoding(BERTH_ENCODING_STATISTICS), FORM_WIDE);
    CHECK_EQ(form_class_colour(FORM_WIDE), COLOUR_WIDE);
    CHECK_EQ(form_class_colour(FORM_NIBBLE), COLOUR_NIBBLE);
}

static void
test_forms_of_quantized(void)
{
    form_table t = { 0 };
    berth_tensor packed = tensor_of(BERTH_U8, 2, 32, 1);
    berth_quantized q;
    char text[FORM_TYPE_CAPACITY];

    memset(&q, 0, sizeof q);
    packed.encoding = BERTH_ENCODING_NF4;
    q.block_size = 64;
    q.rank = 2;
    q.shape[0] = 8;
    q.shape[1] = 8;
    CHECK_EQ(form_intern(&t, &packed, &q), 0);
    CHECK_STR(form_type_text(&t.forms[0], text), "nf4");
    q.is_double = 1;
    CHECK_EQ(form_intern(&t, &packed, &q), 1);
    CHECK_STR(form_type_text(&t.forms[1], text), "nf4 dq");
    q.block_size = 128;
    CHECK_EQ(form_intern(&t, &packed, &q), 2);
    q.block_columns = 1;
    CHECK_EQ(form_intern(&t, &packed, &q), 3);
    CHECK_EQ(form_shape(&t, &t.forms[3])[0], 8);
    CHECK_EQ(form_class_of(&t.forms[0]), FORM_NIBBLE);
    form_table_fini(&t);
}

static void
test_shape_text(void)
{
    static const uint64_t shape[9] = { 1, 22, 333, UINT64_MAX, UINT64_MAX,
                                       UINT64_MAX, UINT64_MAX, UINT64_MAX, 9 };
    char text[FORM_SHAPE_CAPACITY];

    CHECK_STR(form_shape_text(shape, 0, text), "[]");
    CHECK_STR(form_shape_text(shape, 3, text), "[1,22,333]");
    CHECK_CONTAINS(form_shape_text(shape, 8, text), ",18446744073709551615]");
    CHECK_CONTAINS(form_shape_text(shape, 9, text), ",18446744073709551615,...]");
}

/* ----------------------------------------------------------------------- tree */

/* Adds tensors in this order, the form being the number after the name. */
static void
build(tree *t, const char *const *names, const uint32_t *forms, size_t count)
{
    T_REQUIRE(tree_init(t));
    for (size_t i = 0; i < count; i++) {
        const tree_sums sums = { 1, 10, 100, { 0, 100, 0, 0 } };

        T_REQUIRE(tree_add(t, names[i], strlen(names[i]), forms[i], &sums));
    }
    T_REQUIRE(tree_fold(t));
}

/* "name" or "first-last/first-last", with repeat and bytes, in the walk's order. */
static const char *
describe(const tree *t)
{
    static char text[4096];
    size_t n = 0;

    text[0] = '\0';
    for (uint32_t i = tree_next(t, 0, 0); i != TREE_NONE;
         i = tree_next(t, 0, i)) {
        const tree_node *const node = &t->nodes[i];

        n += (size_t)snprintf(text + n, sizeof text - n, "%s", n > 0 ? " " : "");
        if (node->repeat == 1)
            n += (size_t)snprintf(text + n, sizeof text - n, "%.*s",
                                  (int)node->name_length, node->name);
        for (size_t r = 0; r < node->range_count; r++)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%" PRIu64 "-%" PRIu64,
                                  r > 0 ? "/" : "",
                                  t->ranges[node->first_range + r].first,
                                  t->ranges[node->first_range + r].last);
        n += (size_t)snprintf(text + n, sizeof text - n, ":%d",
                              (int)node->sums.bytes);
    }
    return text;
}

static void
test_tree_sums(void)
{
    static const char *const names[] = { "head", "m.a.w", "m.b", "m.b.c" };
    static const uint32_t forms[] = { 0, 0, 1, 2 };
    tree t;

    build(&t, names, forms, 4);
    CHECK_STR(describe(&t), "head:100 m:300 a:100 w:100 b:200 c:100");
    CHECK_EQ(t.nodes[0].sums.bytes, 400);
    CHECK_EQ(t.nodes[0].sums.tensors, 4);
    CHECK_EQ(t.nodes[0].sums.parameters, 40);
    CHECK_EQ(t.nodes[0].sums.class_bytes[FORM_HALF], 400);
    tree_fini(&t);
}

static void
test_tree_folds_what_is_alike(void)
{
    static const char *const names[] = { "l.0.a", "l.0.b", "l.1.a", "l.1.b", "l.2.a",
                                         "l.2.b", "l.3.a", "l.3.b", "l.4.a", "l.4.c",
                                         "l.5.a", "l.5.b", "l.5.c" };
    static const uint32_t forms[] = { 1, 2, 1, 2, 9, 2, 1, 2, 1, 2, 1, 2, 2 };
    tree t;

    build(&t, names, forms, 13);
    CHECK_STR(describe(&t), "l:1300 0-1/3-3:600 a:300 b:300 2:200 a:100 b:100 4:200 a:100 "
                            "c:100 5:300 a:100 b:100 c:100");
    tree_fini(&t);
}

static void
test_tree_folds_within_folded(void)
{
    static const char *const names[] = {
        "l.0.e.0.w", "l.0.e.1.w", "l.0.n", "l.1.e.0.w", "l.1.e.1.w", "l.1.n",
        "l.2.e.0.w", "l.2.e.1.w", "l.2.e.2.w", "l.2.n",
    };
    static const uint32_t forms[10] = { 1, 1, 2, 1, 1, 2, 1, 1, 1, 2 };
    tree t;

    build(&t, names, forms, 10);
    CHECK_STR(describe(&t), "l:1000 0-1:600 e:400 0-1:400 w:400 n:200 2:400 e:300 0-2:300 "
                            "w:300 n:100");
    tree_fini(&t);
}

static void
test_tree_folds_numbers_only(void)
{
    static const char *const names[] = { "l.00.a", "l.01.a", "l.a.x", "l.b.x" };
    static const uint32_t forms[4] = { 0 };
    tree t;

    build(&t, names, forms, 4);
    CHECK_STR(describe(&t), "l:400 00:100 a:100 01:100 a:100 a:100 x:100 b:100 x:100");
    tree_fini(&t);
}

/* The description of what these names, all of one form, are folded to. */
static const char *
folded(const char *const *names, size_t count)
{
    static const uint32_t forms[16] = { 0 };
    const char *text;
    tree t;

    build(&t, names, forms, count);
    text = describe(&t);
    for (size_t i = 0; i < t.count; i++)
        CHECK(t.nodes[i].range_count == 0 || t.nodes[i].repeat > 1);
    tree_fini(&t);
    return text;
}

static void
test_tree_folds_by_structure(void)
{
    static const char *const ranges[] = { "l.0.e.0", "l.0.e.1", "l.1.e.0", "l.1.e.2" };
    static const char *const shorter[] = { "l.0.a.x", "l.0.b.x", "l.1.a.x" };
    static const char *const longer[] = { "l.0.a.x", "l.1.a.x", "l.1.b.x" };
    static const char *const named[] = { "l.0.aa", "l.1.ab", "l.2.aa", "l.3.aac" };
    static const char *const inner[] = { "l.0.a", "l.1.a", "l.1.a.w" };
    static const char *const outer[] = { "l.0.a", "l.0.a.w", "l.1.a" };
    static const char *const next[] = { "l.0.a.x", "l.0.b", "l.1.a.x", "l.1.a.y" };

    CHECK_STR(folded(ranges, 4), "l:400 0:200 e:200 0-1:200 1:200 e:200 0-0/2-2:200");
    CHECK_STR(folded(shorter, 3), "l:300 0:200 a:100 x:100 b:100 x:100 1:100 a:100 x:100");
    CHECK_STR(folded(longer, 3), "l:300 0:100 a:100 x:100 1:200 a:100 x:100 b:100 x:100");
    CHECK_STR(folded(named, 4), "l:400 0-0/2-2:200 aa:200 1:100 ab:100 3:100 aac:100");
    CHECK_STR(folded(inner, 3), "l:300 0:100 a:100 1:200 a:200 w:100");
    CHECK_STR(folded(outer, 3), "l:300 0:200 a:200 w:100 1:100 a:100");
    CHECK_STR(folded(next, 4), "l:400 0:200 a:100 x:100 b:100 1:200 a:200 x:100 y:100");
}

static void
test_tree_folds_leaves(void)
{
    static const char *const names[] = { "0", "1", "2", "3" };
    static const uint32_t forms[] = { 1, 1, 2, 1 };
    tree t;

    build(&t, names, forms, 4);
    CHECK_STR(describe(&t), "0-1/3-3:300 2:100");
    CHECK_EQ(t.nodes[1].repeat, 3);
    CHECK_EQ(t.nodes[1].sums.tensors, 3);
    CHECK_EQ(t.nodes[1].sums.parameters, 30);
    CHECK_EQ(t.nodes[0].sums.tensors, 4);
    tree_fini(&t);
}

/* A number has up to eighteen digits, and is what others would write. */
static void
test_tree_knows_numbers(void)
{
    static const char *const large[] = { "999999999999999998", "999999999999999999" };
    static const char *const huge[] = { "1000000000000000000", "1000000000000000001" };
    static const char *const others[] = { "", "/", "0", "1/", "1:", "1", ":", "9", "10" };

    CHECK_STR(folded(large, 2), "999999999999999998-999999999999999999:200");
    CHECK_STR(folded(huge, 2), "1000000000000000000:100 1000000000000000001:100");
    CHECK_STR(folded(others, 9), ":100 /:100 0-1/9-10:400 1/:100 1::100 ::100");
}

static void
test_tree_is_full(void)
{
    const tree_sums sums = { 1, 1, 1, { 0 } };
    tree t;

    T_REQUIRE(tree_init(&t));
    t.count = TREE_NONE;
    t.capacity = SIZE_MAX;
    CHECK(!tree_add(&t, "a.b", 3, 0, &sums));
    tree_fini(&t);
}

static void
test_tree_frees(void)
{
    static const char *const names[] = { "0", "1" };
    const size_t before = heap_in_use();

    for (int i = 0; i < 100; i++)
        CHECK_STR(folded(names, 2), "0-1:200");
    CHECK_LE(heap_in_use(), before + 100 * 512);
}

static void
test_tree_walks(void)
{
    static const char *const names[] = { "a.b.c", "a.b.d", "a.e", "f" };
    static const uint32_t forms[] = { 0, 1, 2, 3 };
    tree t;

    build(&t, names, forms, 4);
    CHECK_EQ(tree_next(&t, 0, 1), 2);
    CHECK_EQ(tree_next(&t, 0, 4), 5);
    CHECK_EQ(tree_next(&t, 0, 5), 6);
    CHECK_EQ(tree_next(&t, 1, 5), TREE_NONE);
    CHECK_EQ(tree_next(&t, 2, 4), TREE_NONE);
    CHECK_EQ(tree_next(&t, 0, 6), TREE_NONE);
    tree_fini(&t);
}

static void
test_tree_depth_is_bounded(void)
{
    char name[20001];
    const tree_sums sums = { 1, 1, 1, { 0 } };
    tree t;

    memset(name, '.', 20000);
    T_REQUIRE(tree_init(&t));
    CHECK(tree_add(&t, name, 20000, 0, &sums));
    CHECK_EQ(t.count, 1 + TREE_MAX_DEPTH);
    CHECK_EQ(t.nodes[TREE_MAX_DEPTH].name_length, 20000 - (TREE_MAX_DEPTH - 1));
    CHECK(tree_fold(&t));
    tree_fini(&t);
}

static void
test_tree_empty(void)
{
    tree t;

    build(&t, NULL, NULL, 0);
    CHECK_STR(describe(&t), "");
    tree_fini(&t);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_order);
    T_RUN(test_order_of_parts);
    T_RUN(test_forms_are_kept_once);
    T_RUN(test_forms_grow);
    T_RUN(test_forms_differ);
    T_RUN(test_form_classes);
    T_RUN(test_forms_of_quantized);
    T_RUN(test_shape_text);
    T_RUN(test_tree_sums);
    T_RUN(test_tree_folds_what_is_alike);
    T_RUN(test_tree_folds_within_folded);
    T_RUN(test_tree_folds_numbers_only);
    T_RUN(test_tree_folds_by_structure);
    T_RUN(test_tree_folds_leaves);
    T_RUN(test_tree_knows_numbers);
    T_RUN(test_tree_is_full);
    T_RUN(test_tree_frees);
    T_RUN(test_tree_walks);
    T_RUN(test_tree_depth_is_bounded);
    T_RUN(test_tree_empty);
    T_MAIN_END;
}
