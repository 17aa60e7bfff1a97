/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_advice.c - optimizers by name, and advice in its order. */
#include <string.h>

#include "placement/train.h"
#include "tests/estimated.h"
#include "tests/t.h"

#define GIB (UINT64_C(1) << 30)

/* -------------------------------------------------------------------- optimizers */

static berthi_optimizer_bytes
states(const char *name, uint64_t rows, uint64_t columns, uint64_t count)
{
    berthi_optimizer_bytes bytes = { 0, 0, 0 };
    const berthi_optimizer *const optimizer = berthi_optimizer_find(name);

    if (CHECK(optimizer != NULL))
        berthi_optimizer_add(optimizer, rows, columns, count, 2, &bytes);
    return bytes;
}

static void
check_states(const char *name, uint64_t elements, uint64_t device, uint64_t host)
{
    const berthi_optimizer_bytes bytes = states(name, elements, 1, 1);

    if (!CHECK_EQ(bytes.device, device) || !CHECK_EQ(bytes.host, host)
        || !CHECK_EQ(bytes.pages, host))
        T_NOTE("%s", name);
}

/*
 * Two states of Adam: 8 bytes a parameter; in 8 bits 2, and 8 for each block of 256. States of
 * tensors with fewer than 4096 elements stay in 32 bits, and of tensors with fewer than 100,000
 * elements on the device.
 */
static void
test_states(void)
{
    check_states("adamw_torch", 1000, 4000, 0); /* bf16 parameters: bf16 states */
    check_states("adamw_32bit", 1000, 8000, 0);
    check_states("adamw_8bit", 25600, 2 * (25600 + 400), 0); /* 2.03125 */
    check_states("adamw_bnb_8bit", 25601, 2 * (25601 + 404), 0);
    check_states("adamw_8bit", 4095, 8 * 4095, 0);
    check_states("adamw_8bit", 4096, 2 * (4096 + 64), 0);
    check_states("paged_adamw_32bit", 99999, 8 * 99999, 0);
    check_states("paged_adamw_32bit", 100000, 0, 800000);
    check_states("paged_adamw", 100000, 0, 800000);
    check_states("paged_adamw_8bit", 102400, 2 * 400 * 4, 204800);
    check_states("paged_adamw_8bit", 4095, 8 * 4095, 0);
    check_states("lion", 1000, 4000, 0);
    check_states("lion_8bit", 25600, 26000, 0); /* 1.015625 */
    check_states("paged_lion_8bit", 102400, 1600, 102400);
    check_states("ademamix", 1000, 12000, 0);
    check_states("ademamix_8bit", 25600, 3 * 26000, 0);
    check_states("sgd", 1000, 0, 0);
    check_states("sgd_momentum", 1000, 2000, 0);
    check_states("adafactor", 1000, 4000, 0);
    CHECK_EQ(states("adafactor", 1000, 500, 3).device, 3 * 4 * 1500);
    CHECK_EQ(states("adamw_32bit", 1000, 500, 3).device, 3 * 8 * 500000);
}

static void
test_pages(void)
{
    const berthi_optimizer *const optimizer = berthi_optimizer_find("paged_adamw_32bit");
    berthi_optimizer_bytes bytes = { 0, 0, 0 };

    berthi_optimizer_add(optimizer, 1000, 1000, 5, 2, &bytes);
    berthi_optimizer_add(optimizer, 1000, 2000, 1, 2, &bytes);
    berthi_optimizer_add(optimizer, 1000, 500, 9, 2, &bytes);
    berthi_optimizer_add(optimizer, 10, 1, 1, 2, &bytes);
    CHECK_EQ(bytes.host, 8 * (5000000 + 2000000 + 4500000));
    CHECK_EQ(bytes.pages, 16000000); /* the largest one's */
    CHECK_EQ(bytes.device, 80);
    berthi_optimizer_add(optimizer, UINT64_MAX, 2, 1, 2, &bytes);
    CHECK_EQ(bytes.host, UINT64_MAX);
}

/* Every name is found, once, and leads to names that are there. */
static void
test_names(void)
{
    uint32_t count = 0;

    for (const berthi_optimizer *o; (o = berthi_optimizer_at(count)) != NULL; count++) {
        CHECK(berthi_optimizer_find(o->name) == o);
        if (o->smaller != NULL && CHECK(berthi_optimizer_find(o->smaller) != NULL)) {
            CHECK_EQ(berthi_optimizer_find(o->smaller)->bits, 8);
            CHECK_EQ(berthi_optimizer_find(o->smaller)->states, o->states);
            CHECK_EQ(berthi_optimizer_find(o->smaller)->is_paged, o->is_paged);
        }
        if (o->paged != NULL && CHECK(berthi_optimizer_find(o->paged) != NULL)) {
            CHECK(berthi_optimizer_find(o->paged)->is_paged);
            CHECK_EQ(berthi_optimizer_find(o->paged)->states, o->states);
        }
    }
    CHECK_EQ(count, 33);
    CHECK(berthi_optimizer_find("adamw_8") == NULL);
}

/* ------------------------------------------------------------------------ advice */

static berthi_train_options
options_of(const estimated *e)
{
    berthi_train_options options;

    berthi_train_options_init(&options, &e->shape);
    options.base.dtype = BERTH_BF16;
    return options;
}

static berthi_advice_list
advise(const estimated *e, const berthi_train_options *options, uint64_t bytes,
       uint64_t host)
{
    const berthi_fit_budget budget = { .bytes = bytes, .host_bytes = host };
    berthi_advice_list list;
    berth_error error;

    if (!CHECK_EQ(berthi_train_advise(&e->model, options, &budget, &list, &error),
                  BERTH_OK))
        T_NOTE("%s", error.message);
    for (uint32_t i = 0; i < list.count; i++) {
        const uint64_t before = i > 0 ? list.items[i - 1].bytes : list.bytes;

        CHECK_EQ(list.items[i].saved, before - list.items[i].bytes);
        CHECK_GT(list.items[i].saved, 0);
        CHECK_EQ(list.items[i].fits, list.fits && i + 1 == list.count);
        CHECK(list.items[i].cost[0] != '\0');
    }
    return list;
}

static void
check_advice(const berthi_advice_list *list, const char *const *what)
{
    uint32_t count = 0;

    for (; what[count] != NULL; count++)
        if (count < list->count)
            CHECK_CONTAINS(list->items[count].what, what[count]);
    CHECK_EQ(list->count, count);
}

#define CHECK_ADVICE(list, ...) check_advice(&list, (const char *[]){ __VA_ARGS__, NULL })

static void
test_order(void)
{
    const estimated *const e = estimated_config("llama-3-70b");
    berthi_train_options options = options_of(e);
    berthi_advice_list list;

    options.base.is_eager = true;
    options.base.batch = 8;
    options.packed_tokens = 20000;
    options.optimizer = "adamw_32bit";
    options.rank = 64;
    list = advise(e, &options, 24 * GIB, 0);
    CHECK(list.fits);
    CHECK_ADVICE(list, "fused attention", "packed batches: 20000 tokens instead of 32768",
                 "micro-batches of 1, 8 of them a step", "gradient checkpointing every ",
                 "optimizer adamw_8bit", "optimizer paged_adamw_8bit",
                 "LoRA of rank 64 on a base of int8", "LoRA of rank 64 on a base of nf4",
                 "double quantization", "rank 8", "adapters on q_proj,v_proj alone",
                 " of 80 layers on the host, two slots here");
    /* The host has room for 10 of them only. */
    list = advise(e, &options, 24 * GIB, 10 * UINT64_C(450000000));
    CHECK(list.fits);
    CHECK_EQ(list.count, 13);
    CHECK_CONTAINS(list.items[11].what, "10 of 80 layers on the host");
    CHECK_LT(list.items[11].saved, 9 * UINT64_C(450000000)); /* less two slots */
    CHECK_CONTAINS(list.items[12].what, "of 80 layers on the disk");
}

/* Micro-batches are as large as fits, and a step has as many sequences as before. */
static void
test_batches(void)
{
    static const struct {
        uint64_t batch;
        uint64_t fits;
        const char *what;
    } rows[] = {
        { 5, 4, "micro-batches of 1, 5 of them a step" },
        { 6, 5, "micro-batches of 3, 2 of them a step" },
        { 6, 2, "micro-batches of 2, 3 of them a step" },
        { 12, 4, "micro-batches of 4, 3 of them a step" },
        { 35, 34, "micro-batches of 7, 5 of them a step" },
        { 2 * 65537, 65536, "micro-batches of 1, 131074 of them a step" },
    };
    const estimated *const e = estimated_config("llama-3-8b");
    berthi_train_options options = options_of(e);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        berthi_advice_list list;
        berthi_estimate out;

        options.base.batch = rows[i].fits;
        CHECK_EQ(berthi_train_estimate(&e->model, &options, &out, NULL), BERTH_OK);
        options.base.batch = rows[i].batch;
        list = advise(e, &options, out.device_bytes, 0);
        CHECK(list.fits);
        CHECK_ADVICE(list, rows[i].what);
    }
}

/* It stops where it fits. */
static void
test_stops(void)
{
    const estimated *const e = estimated_config("llama-3-8b");
    berthi_train_options options = options_of(e);
    berthi_advice_list list;
    berthi_estimate out;
    uint64_t least;

    list = advise(e, &options, 200 * GIB, 0);
    CHECK(list.fits);
    CHECK_EQ(list.count, 0);
    options.base.batch = 8;
    CHECK_EQ(berthi_train_estimate(&e->model, &options, &out, NULL), BERTH_OK);
    list = advise(e, &options, out.device_bytes, 0);
    CHECK_EQ(list.count, 0);
    list = advise(e, &options, out.device_bytes - 1, 0);
    CHECK_ADVICE(list, "micro-batches of 4, 2 of them a step");
    options.base.batch = 1;
    list = advise(e, &options, 70 * GIB, 0);
    CHECK_ADVICE(list, "gradient checkpointing every ");
    list = advise(e, &options, 40 * GIB, 0);
    CHECK_ADVICE(list, "gradient checkpointing every ", "optimizer adamw_8bit",
                 "optimizer paged_adamw_8bit");
    /* Its number of layers is the best of all. */
    list = advise(e, &options, 70 * GIB, 0);
    least = UINT64_MAX;
    for (uint64_t k = 1; k <= 32; k++) {
        options.checkpoint_every = k;
        CHECK_EQ(berthi_train_estimate(&e->model, &options, &out, NULL), BERTH_OK);
        least = out.device_bytes < least ? out.device_bytes : least;
    }
    CHECK_EQ(list.items[0].bytes, least);
}

/* Nothing is advised that is done already, or that saves nothing. */
static void
test_left_out(void)
{
    const estimated *const e = estimated_config("llama-3-8b");
    berthi_train_options options = options_of(e);
    berthi_advice_list list;

    options.method = BERTHI_METHOD_LORA;
    options.base.type = BERTHI_TYPE_NF4_DOUBLE;
    options.rank = 8;
    options.targets = "q_proj,v_proj";
    options.optimizer = "paged_adamw_8bit";
    options.checkpoint_every = 5;
    options.packed_tokens = 4096; /* no padding */
    list = advise(e, &options, 1 * GIB, 0);
    CHECK(!list.fits);
    for (uint32_t i = 0; i < list.count; i++)
        CHECK(strstr(list.items[i].what, "checkpointing") != NULL
              || strstr(list.items[i].what, "on the host") != NULL);
    CHECK_CONTAINS(list.items[list.count - 1].what, "32 of 32 layers on the host");
}

static void
test_refusals(void)
{
    const estimated *const e = estimated_config("llama-3-8b");
    berthi_train_options options = options_of(e);
    berthi_advice_list list;
    berth_error error;

    CHECK_EQ(berthi_train_advise(&e->model, &options, &(berthi_fit_budget){ .bytes = 0 },
                                 &list, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "budget");
    options.optimizer = "x";
    CHECK_EQ(berthi_train_advise(&e->model, &options, &(berthi_fit_budget){ .bytes = 1 },
                                 &list, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "optimizer");
    CHECK_EQ(list.count, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_states);
    T_RUN(test_pages);
    T_RUN(test_names);
    T_RUN(test_order);
    T_RUN(test_batches);
    T_RUN(test_stops);
    T_RUN(test_left_out);
    T_RUN(test_refusals);
    T_MAIN_END;
}
