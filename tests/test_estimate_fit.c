/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate_fit.c - tables, answers backwards, advice. */
#include <stdlib.h>
#include <string.h>

#include "placement/estimate.h"
#include "tests/estimated.h"
#include "tests/t.h"

#define GIB (UINT64_C(1) << 30)

static uint64_t
bytes_of(const estimated *e, berthi_estimate_options options, int32_t type,
         uint64_t context)
{
    berthi_estimate out;

    options.type = type;
    options.context = context;
    CHECK_EQ(berthi_estimate_inference(&e->model, &options, &out, NULL), BERTH_OK);
    return out.device_bytes;
}

/* Every type to choose from against a budget. */
typedef struct fitted {
    uint64_t usable;
    int32_t best; /* number in types */
    uint32_t type_count;
    berthi_fit_type types[BERTHI_TYPE_COUNT];
} fitted;

static fitted
fit_budget(const estimated *e, const berthi_estimate_options *options,
           const berthi_fit_budget *budget)
{
    int32_t types[BERTHI_TYPE_COUNT];
    fitted out = { .best = -1 };
    berth_error error;

    if (!CHECK_EQ(berthi_fit_check(options, budget, &error), BERTH_OK))
        T_NOTE("%s", error.message);
    out.usable = berthi_fit_usable_all(budget);
    out.type_count = berthi_fit_types(&e->model, options->type, types);
    for (uint32_t i = 0; i < out.type_count; i++)
        out.types[i].type = types[i];
    out.best = berthi_estimate_fit(&e->model, options, budget, out.types, out.type_count);
    return out;
}

static fitted
fit(const estimated *e, const berthi_estimate_options *options, uint64_t bytes,
    uint32_t percent)
{
    return fit_budget(e, options,
                      &(berthi_fit_budget){ .bytes = bytes,
                                            .reserve_percent = percent });
}

/* The most exact first; the type that was asked for is always one of them. */
static void
test_types(void)
{
    static const int32_t usual[] = { BERTHI_TYPE_NATIVE, BERTHI_TYPE_BF16,
                                     BERTHI_TYPE_INT8, BERTHI_TYPE_NF4,
                                     BERTHI_TYPE_NF4_DOUBLE };
    berthi_estimate_model model = estimated_config("llama-3-8b")->model;
    int32_t types[BERTHI_TYPE_COUNT];

    CHECK_EQ(berthi_fit_types(&model, BERTHI_TYPE_NF4, types), 5);
    for (uint32_t i = 0; i < 5; i++)
        CHECK_EQ(types[i], usual[i]);
    CHECK_EQ(berthi_fit_types(&model, BERTHI_TYPE_FP4, types), 6);
    CHECK_EQ(types[4], BERTHI_TYPE_NF4_DOUBLE);
    CHECK_EQ(types[5], BERTHI_TYPE_FP4);
    model.is_foreign = true;
    CHECK_EQ(berthi_fit_types(&model, BERTHI_TYPE_NATIVE, types), 1);
    CHECK_EQ(types[0], BERTHI_TYPE_NATIVE);
}

static void
test_usable(void)
{
    static const struct {
        uint64_t bytes;
        uint32_t percent;
        uint64_t usable;
    } rows[] = { { 1000, 10, 900 },      { 1000, 0, 1000 }, { 1000, 100, 0 },
                 { 1001, 10, 900 },      { 19, 5, 18 },
                 { UINT64_MAX, 10, UINT64_MAX / 100 * 90 } };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_EQ(berthi_fit_usable(&(berthi_fit_budget){ .bytes = rows[i].bytes,
                                                         .reserve_percent = rows[i].percent }),
                 rows[i].usable);
}

static void
test_table(void)
{
    static const int32_t types[] = { BERTHI_TYPE_BF16, BERTHI_TYPE_NF4 };
    static const uint64_t contexts[] = { 1024, 8192, 65536 };
    const estimated *const e = estimated_config("llama-3-8b");
    berthi_estimate_options options;
    uint64_t cells[6];
    berthi_estimate_cells table = { types, 2, contexts, 3, cells };
    berth_error error;

    berthi_estimate_options_init(&options, &e->shape);
    CHECK_EQ(berthi_estimate_table(&e->model, &options, &table, &error), BERTH_OK);
    for (uint32_t i = 0; i < 6; i++)
        CHECK_EQ(cells[i], bytes_of(e, options, types[i / 3], contexts[i % 3]));
    options.prompt = 2048; /* no longer than a context of the table */
    CHECK_EQ(berthi_estimate_table(&e->model, &options, &table, &error), BERTH_OK);
    options.prompt = 1024;
    CHECK_EQ(cells[0], bytes_of(e, options, BERTHI_TYPE_BF16, 1024));
    options.prompt = 2048;
    CHECK_EQ(cells[4], bytes_of(e, options, BERTHI_TYPE_NF4, 8192));
    table.types = (const int32_t[]){ 99 };
    table.type_count = 1;
    CHECK_EQ(berthi_estimate_table(&e->model, &options, &table, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "type");
    table.types = types;
    table.contexts = (const uint64_t[]){ 0 };
    table.context_count = 1;
    CHECK_EQ(berthi_estimate_table(&e->model, &options, &table, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "context");
}

/* The context that is found fits, and one token more does not. */
static void
test_context(void)
{
    const estimated *const e = estimated_config("llama-3.1-405b");
    berthi_estimate_options options;
    fitted out;

    berthi_estimate_options_init(&options, &e->shape);
    options.context = 4096;
    out = fit(e, &options, 256 * GIB, 0);
    CHECK_EQ(out.usable, 256 * GIB);
    T_REQUIRE(out.type_count == 5);
    CHECK_EQ(out.types[0].type, BERTHI_TYPE_NATIVE);
    CHECK_EQ(out.types[1].type, BERTHI_TYPE_BF16);
    CHECK_EQ(out.types[2].type, BERTHI_TYPE_INT8);
    CHECK_EQ(out.types[3].type, BERTHI_TYPE_NF4);
    CHECK_EQ(out.types[4].type, BERTHI_TYPE_NF4_DOUBLE);
    CHECK_EQ(out.best, 3);
    CHECK(!out.types[0].fits && out.types[3].fits);
    CHECK_EQ(out.types[0].context, 0);
    CHECK_EQ(out.types[3].bytes, bytes_of(e, options, BERTHI_TYPE_NF4, 4096));
    CHECK_GT(out.types[3].context, 4096);
    CHECK_LE(bytes_of(e, options, BERTHI_TYPE_NF4, out.types[3].context), out.usable);
    CHECK_GT(bytes_of(e, options, BERTHI_TYPE_NF4, out.types[3].context + 1), out.usable);
    CHECK(!out.types[3].is_capped);
    CHECK_GT(out.types[4].context, out.types[3].context);
}

static void
test_capped(void)
{
    const estimated *e = estimated_config("llama-3-8b");
    berthi_estimate_options options;
    fitted out;

    berthi_estimate_options_init(&options, &e->shape);
    out = fit(e, &options, 80 * GIB, 10);
    CHECK_EQ(out.usable, 72 * GIB);
    CHECK_EQ(out.best, 0);
    CHECK_EQ(out.types[0].context, 8192);
    CHECK(out.types[0].is_capped);
    CHECK_EQ(out.types[0].devices, 1);
    /* Nothing says how long it may be, and a window stops the cache: no end. */
    e = estimated_text("{\"model_type\": \"mistral\", \"hidden_size\": 64, "
                       "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
                       "\"num_key_value_heads\": 4, \"intermediate_size\": 128, "
                       "\"vocab_size\": 100, \"sliding_window\": 16}");
    options.prompt = 16;
    out = fit(e, &options, 4 * GIB, 0);
    CHECK_EQ(out.types[0].context, BERTHI_FIT_CONTEXT);
    CHECK(out.types[0].is_capped);
}

static void
test_devices(void)
{
    const estimated *const e = estimated_config("llama-3-70b");
    berthi_estimate_options options;
    fitted out;

    berthi_estimate_options_init(&options, &e->shape);
    out = fit(e, &options, 24 * GIB, 10);
    /* 141.1 GB of weights on devices of 23.2 less runtime; 42.7 and 39.5 in 4 bits. */
    CHECK_EQ(out.types[0].devices, 7);
    CHECK_EQ(out.types[2].devices, 4);
    CHECK_EQ(out.types[3].devices, 3);
    CHECK_EQ(out.types[4].devices, 2);
    CHECK_EQ(out.best, -1);
    out = fit(e, &options, 1 * GIB, 0); /* no layer fits */
    CHECK_EQ(out.types[0].devices, 0);
    out = fit(e, &options, GIB / 4, 0); /* not even the runtime */
    CHECK_EQ(out.types[4].devices, 0);
}

/* Packing by hand: pieces of 10, 4 layers of 7, 10 into devices of 20. */
static void
test_packing(void)
{
    berthi_layer kind = { .count = 4, .attention = BERTHI_ATTENTION_NONE };
    berthi_shape shape = { .family = estimated_config("gpt2")->shape.family,
                           .is_known = true, .dtype = BERTH_BF16, .layers = 4,
                           .kind_count = 1 };
    const berthi_weight weights[] = {
        { .module = "embed", .role = BERTHI_WEIGHT_EMBEDDING, .dtype = BERTH_U8,
          .layer = BERTHI_NO_LAYER, .rank = 1, .shape = { 10 }, .count = 1 },
        { .module = "x", .role = BERTHI_WEIGHT_OTHER, .dtype = BERTH_U8, .rank = 1,
          .shape = { 7 }, .count = 4 },
        { .module = "head", .role = BERTHI_WEIGHT_HEAD, .dtype = BERTH_U8,
          .layer = BERTHI_NO_LAYER, .rank = 1, .shape = { 10 }, .count = 1 },
    };
    const berthi_estimate_model model = { .shape = &shape,
                                          .weights = weights,
                                          .weight_count = 3,
                                          .has_headers = true };
    static const struct {
        uint64_t device;
        uint32_t devices;
    } rows[] = { { 9, 0 },  { 10, 6 }, { 14, 4 }, { 17, 3 },
                 { 20, 3 }, { 24, 2 }, { 31, 2 }, { 48, 1 } };
    static const struct {
        uint64_t devices[3];
        uint32_t count;
        bool is_held;
    } lists[] = { { { 20, 20, 20 }, 3, true }, { { 20, 20 }, 2, false },
                  { { 10, 38 }, 2, true },     { { 10, 37 }, 2, false },
                  { { 9, 48 }, 2, true },      { { 38, 10 }, 2, true },
                  { { 37, 10 }, 2, false },    { { 37, 17 }, 2, true },
                  { { 48 }, 1, true },         { { 47 }, 1, false },
                  { { 17, 1, 31 }, 3, true } };
    berthi_estimate_options options;
    berthi_weight_sums sums;

    shape.kinds[0] = kind;
    berthi_estimate_options_init(&options, &shape);
    options.context_bytes = 0;
    options.workspace_bytes = 0;
    berthi_estimate_weights(&model, &options, &sums);
    CHECK_EQ(sums.first, 10);
    CHECK_EQ(sums.last, 10);
    CHECK_EQ(sums.layers[0], 7);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!CHECK_EQ(berthi_fit_devices(&model, &sums, &options, rows[i].device),
                      rows[i].devices))
            T_NOTE("devices of %d", (int)rows[i].device);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const berthi_fit_budget budget = { .bytes = lists[i].devices[0],
                                           .more = lists[i].devices + 1,
                                           .more_count = lists[i].count - 1 };

        if (!CHECK_EQ(berthi_fit_is_held(&model, &sums, &options, &budget),
                      lists[i].is_held))
            T_NOTE("list %d", (int)i);
    }
}

/* Several devices: whole layers on each, and everything else asked of all of them. */
static void
test_several(void)
{
    static const uint64_t more[] = { 24 * GIB, 12 * GIB };
    const estimated *const e = estimated_config("llama-3-70b");
    berthi_fit_budget budget = { .bytes = 24 * GIB, .more = more, .more_count = 1,
                                 .reserve_percent = 10 };
    berthi_estimate_options options;
    berthi_advice_list list;
    fitted out;
    berth_error error;

    berthi_estimate_options_init(&options, &e->shape);
    out = fit_budget(e, &options, &budget);
    CHECK_EQ(out.usable, 2 * (24 * GIB - (24 * GIB + 9) / 10));
    CHECK_EQ(out.best, 4);
    CHECK(!out.types[3].fits && out.types[4].fits);
    CHECK_GT(out.types[4].context, 4096);
    CHECK(!out.types[4].is_capped);
    CHECK_EQ(berthi_estimate_advise(&e->model, &options, &budget, &list, &error),
             BERTH_OK);
    CHECK(list.fits && list.items[list.count - 1].fits);
    CHECK_STR(list.items[list.count - 1].what, "weights of nf4");
    options.type = BERTHI_TYPE_NF4_DOUBLE;
    CHECK_EQ(berthi_estimate_advise(&e->model, &options, &budget, &list, &error),
             BERTH_OK);
    CHECK(list.fits);
    CHECK_EQ(list.count, 0);
    budget.more_count = 2;
    options.type = BERTHI_TYPE_NF4;
    out = fit_budget(e, &options, &budget);
    CHECK(out.types[3].fits);
    budget.more = (const uint64_t[]){ 1, 0 };
    CHECK_EQ(berthi_fit_check(&options, &budget, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`budget` is 0 bytes");
    /* What no device holds streams its layers, two slots on each. */
    budget.more = more;
    budget.more_count = 1;
    budget.bytes = 8 * GIB;
    budget.reserve_percent = 0;
    CHECK_EQ(berthi_estimate_advise(&e->model, &options, &budget, &list, &error),
             BERTH_OK);
    CHECK(list.fits);
    CHECK_CONTAINS(list.items[list.count - 1].what, "layers on the host");
}

static void
test_refusals(void)
{
    const estimated *const e = estimated_config("llama-3-8b");
    berthi_estimate_options options;
    berthi_advice_list list;
    berth_error error;

    berthi_estimate_options_init(&options, &e->shape);
    CHECK_EQ(berthi_fit_check(&options, &(berthi_fit_budget){ .bytes = 0 }, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`budget` is 0 bytes");
    CHECK_EQ(berthi_estimate_advise(&e->model, &options,
                                    &(berthi_fit_budget){ .bytes = 1,
                                                          .reserve_percent = 101 },
                                    &list, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`reserve_percent` is more than 100");
    CHECK_EQ(list.count, 0);
    options.batch = UINT64_C(1) << 60;
    CHECK_EQ(berthi_estimate_advise(&e->model, &options,
                                    &(berthi_fit_budget){ .bytes = 1 }, &list, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "beyond 2^64");
    options.batch = 1;
    options.context = 0;
    CHECK_EQ(berthi_fit_check(&options, &(berthi_fit_budget){ .bytes = 9 }, &error),
             BERTH_EINVAL);
}

/* ------------------------------------------------------------------------ advice */

static berthi_advice_list
advise(const char *name, uint64_t bytes, uint64_t context, uint64_t host)
{
    const estimated *const e = estimated_config(name);
    const berthi_fit_budget budget = { .bytes = bytes, .host_bytes = host };
    berthi_estimate_options options;
    berthi_advice_list list;
    berth_error error;

    berthi_estimate_options_init(&options, &e->shape);
    options.context = context;
    CHECK_EQ(berthi_estimate_advise(&e->model, &options, &budget, &list, &error),
             BERTH_OK);
    for (uint32_t i = 0; i < list.count; i++) {
        const uint64_t before = i > 0 ? list.items[i - 1].bytes : list.bytes;

        CHECK_EQ(list.items[i].saved, before - list.items[i].bytes);
        CHECK_GT(list.items[i].saved, 0);
        CHECK_EQ(list.items[i].fits, list.items[i].bytes <= list.usable);
        CHECK_EQ(list.items[i].fits, list.fits && i + 1 == list.count);
        CHECK(list.items[i].cost[0] != '\0');
    }
    return list;
}

static void
check_advice(const berthi_advice_list *list, uint32_t number, const char *what)
{
    if (CHECK_LT(number, list->count))
        CHECK_CONTAINS(list->items[number].what, what);
}

/* Of advice that begins with how many. */
static unsigned long
layers_of(const berthi_advice_list *list, uint32_t number)
{
    return number < list->count ? strtoul(list->items[number].what, NULL, 10) : 0;
}

static void
test_advice(void)
{
    berthi_advice_list list = advise("llama-3-8b", 24 * GIB, 4096, 0);
    unsigned long away;

    CHECK(list.fits);
    CHECK_EQ(list.count, 0);
    /* 70B in bf16 on 48 GiB: in NF4; a shorter context would not do, and is not asked. */
    list = advise("llama-3-70b", 48 * GIB, 8192, 0);
    CHECK(list.fits);
    CHECK_EQ(list.count, 3);
    check_advice(&list, 0, "a KV cache of int8");
    check_advice(&list, 1, "a KV cache of int4");
    check_advice(&list, 2, "weights of nf4");
    /* In NF4 with a shorter one, and shortest where layers have to go, too. */
    list = advise("llama-3-70b", 44 * GIB, 131072, 0);
    CHECK(list.fits);
    CHECK_EQ(list.count, 4);
    check_advice(&list, 2, "weights of nf4");
    check_advice(&list, 3, "a context of ");
    list = advise("llama-3-70b", 24 * GIB, 131072, 0);
    CHECK(list.fits);
    CHECK_EQ(list.count, 6);
    check_advice(&list, 4, "a context of 2048 tokens");
    check_advice(&list, 5, "of 80 layers on the host, two slots here");
    /* On 40 GiB doubly quantized; on 24 with layers on the host. */
    list = advise("llama-3-70b", 40 * GIB, 2048, 0);
    CHECK(list.fits);
    CHECK_EQ(list.count, 4);
    check_advice(&list, 3, "weights of nf4+double-quant");
    list = advise("llama-3-70b", 24 * GIB, 2048, 0);
    CHECK(list.fits);
    CHECK_EQ(list.count, 5);
    check_advice(&list, 4, "of 80 layers on the host, two slots here");
    /* With 4 GiB on the host the rest is on the disk. */
    list = advise("llama-3-70b", 24 * GIB, 2048, 4 * GIB);
    CHECK(list.fits);
    CHECK_EQ(list.count, 6);
    check_advice(&list, 4, "9 of 80 layers on the host");
    check_advice(&list, 5, "of 80 layers on the disk");
    /* With 1 GiB, which is less than two slots take, all of them are. */
    away = layers_of(&list, 4) + layers_of(&list, 5);
    list = advise("llama-3-70b", 24 * GIB, 2048, GIB);
    CHECK(list.fits);
    CHECK_EQ(list.count, 5);
    check_advice(&list, 4, "of 80 layers on the disk");
    CHECK_EQ(layers_of(&list, 4), away);
    /* The context that fits, when one of 2048 and more does. */
    list = advise("llama-3-8b", 17 * GIB, 131072, 0);
    CHECK(list.fits);
    CHECK_EQ(list.count, 3);
    check_advice(&list, 2, "a context of ");
    CHECK_GT(list.items[2].bytes, 17 * GIB - (1 << 20));
}

/* What streaming cannot bring below the budget more devices can. */
static void
test_advice_devices(void)
{
    const berthi_advice_list list = advise("llama-3-70b", 5 * GIB, 2048, 0);

    CHECK(list.fits);
    T_REQUIRE(list.count > 2);
    CHECK_CONTAINS(list.items[list.count - 2].what, "80 of 80 layers on the host");
    CHECK_CONTAINS(list.items[list.count - 1].what, "such devices, whole layers on each");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_types);
    T_RUN(test_usable);
    T_RUN(test_table);
    T_RUN(test_context);
    T_RUN(test_capped);
    T_RUN(test_devices);
    T_RUN(test_packing);
    T_RUN(test_several);
    T_RUN(test_refusals);
    T_RUN(test_advice);
    T_RUN(test_advice_devices);
    T_MAIN_END;
}
