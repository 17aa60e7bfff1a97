/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory_summary.c - what a user is told of memory: by tier and purpose, printed. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "quant/json.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"

static uint32_t
find_tier(const berth_context *context, const char *name)
{
    berth_memory m;

    for (uint32_t i = 0; i < berth_memory_tiers(context); i++)
        if (berth_memory_get(context, i, BERTH_MEMORY_ALL, &m) == BERTH_OK
            && strcmp(m.tier, name) == 0)
            return i;
    return BERTH_NO_INDEX;
}

static berth_memory
get(const berth_context *context, const char *tier, int32_t purpose)
{
    berth_memory m;

    memset(&m, 0xAA, sizeof m);
    CHECK_EQ(berth_memory_get(context, find_tier(context, tier), purpose, &m), BERTH_OK);
    CHECK_STR(m.tier, tier);
    CHECK_EQ(m.purpose, purpose);
    CHECK_EQ(m.allocated_bytes - m.freed_bytes, m.current_bytes);
    CHECK_LE(m.current_bytes, m.peak_bytes);
    CHECK_LE(m.peak_bytes, m.allocated_bytes);
    return m;
}

static void
check(const berth_memory *m, uint64_t current, uint64_t peak, uint64_t allocated)
{
    CHECK_EQ(m->current_bytes, current);
    CHECK_EQ(m->peak_bytes, peak);
    CHECK_EQ(m->allocated_bytes, allocated);
    CHECK_EQ(m->freed_bytes, allocated - current);
}

/* --------------------------------------------------------------------------- books */

static void
test_purposes(void)
{
    static const struct {
        berthi_purpose purpose;
        int32_t told;
    } cases[] = {
        { BERTHI_PURPOSE_OBJECT, BERTH_MEMORY_TABLES },
        { BERTHI_PURPOSE_HEADER, BERTH_MEMORY_TABLES },
        { BERTHI_PURPOSE_TENSORS, BERTH_MEMORY_TABLES },
        { BERTHI_PURPOSE_DOCUMENT, BERTH_MEMORY_TABLES },
        { BERTHI_PURPOSE_RING, BERTH_MEMORY_STAGING },
        { BERTHI_PURPOSE_CHUNKS, BERTH_MEMORY_TABLES },
        { BERTHI_PURPOSE_SCRATCH, BERTH_MEMORY_SCRATCH },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        berth_context *context;
        void *memory;
        berth_memory m;

        T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
        memory = berthi_memory_alloc(context, cases[i].purpose, 1000);
        m = get(context, "cpu", cases[i].told);
        check(&m, 1000, 1000, 1000);
        m = get(context, "cpu", BERTH_MEMORY_ALL);
        check(&m, 1000, 1000, 1000);
        berthi_memory_free(context, cases[i].purpose, memory, 1000);
        memory = berthi_memory_alloc(context, cases[i].purpose, 30);
        m = get(context, "cpu", cases[i].told);
        check(&m, 30, 1000, 1030);
        berthi_memory_free(context, cases[i].purpose, memory, 30);
        m = get(context, "cpu", BERTH_MEMORY_ALL);
        check(&m, 0, 1000, 1030);
        for (int32_t p = 0; p < BERTH_MEMORY_ALL; p++)
            if (p != cases[i].told) {
                m = get(context, "cpu", p);
                check(&m, 0, 0, 0);
            }
        berth_context_destroy(context);
    }
}

/* A slab is counted part by part, and given back so. */
static void
test_parts_of_a_slab(void)
{
    const berthi_slab_parts parts = {
        .bytes = 1000, .weights = 700, .slots = 200, .scratch = 30
    };
    const berthi_slab_parts others = {
        .bytes = 64, .weights = 1, .slots = 2, .scratch = 4
    };
    berth_context *context;
    const berthi_book *book;
    berth_memory m;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    berthi_books_take_slab(&context->ledger.books, "sim:0", &parts);
    berthi_books_take_slab(&context->ledger.books, "sim:0", &others);
    book = berthi_books_find(&context->ledger.books, "sim:0");
    CHECK_EQ(atomic_load(&book->slab_bytes), 1064);
    CHECK_EQ(atomic_load(&book->slab_parts), 937);
    CHECK_EQ(atomic_load(&book->slabs), 2);
    m = get(context, "sim:0", BERTH_MEMORY_WEIGHTS);
    check(&m, 701, 701, 701);
    m = get(context, "sim:0", BERTH_MEMORY_SLOTS);
    check(&m, 202, 202, 202);
    m = get(context, "sim:0", BERTH_MEMORY_SCRATCH);
    check(&m, 34, 34, 34);
    berthi_books_give_slab(&context->ledger.books, "sim:0", &parts);
    CHECK_EQ(atomic_load(&book->slab_bytes), 64);
    CHECK_EQ(atomic_load(&book->slab_parts), 7);
    CHECK_EQ(atomic_load(&book->slabs), 1);
    berthi_books_give_slab(&context->ledger.books, "sim:0", &others);
    CHECK_EQ(atomic_load(&book->slab_bytes), 0);
    CHECK_EQ(atomic_load(&book->slab_parts), 0);
    CHECK_EQ(atomic_load(&book->slabs), 0);
    m = get(context, "sim:0", BERTH_MEMORY_SLOTS);
    check(&m, 0, 202, 202);
    berth_context_destroy(context);
}

static void
test_names_and_numbers(void)
{
    static const char *const names[] = { "weights", "staging", "slots", "scratch",
                                         "tables",  "states",  "computing", "all" };
    berth_context *context;
    berth_memory m;

    for (int32_t p = 0; p < BERTH_MEMORY_PURPOSE_COUNT; p++)
        CHECK_STR(berth_memory_purpose_name(p), names[p]);
    CHECK_STR(berth_memory_purpose_name(-1), "unknown");
    CHECK_STR(berth_memory_purpose_name(BERTH_MEMORY_PURPOSE_COUNT), "unknown");
    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    CHECK_EQ(berth_memory_tiers(context), 1);
    memset(&m, 0xAA, sizeof m);
    CHECK_EQ(berth_memory_get(context, 1, BERTH_MEMORY_ALL, &m), BERTH_EINVAL);
    CHECK_EQ(m.peak_bytes, 0);
    CHECK_EQ(berth_memory_get(context, 0, -1, &m), BERTH_EINVAL);
    CHECK_EQ(berth_memory_get(context, 0, BERTH_MEMORY_PURPOSE_COUNT, &m), BERTH_EINVAL);
    CHECK_EQ(berth_memory_get(context, 0, BERTH_MEMORY_ALL, &m), BERTH_OK);
    for (size_t i = 0; i < sizeof m.reserved / sizeof m.reserved[0]; i++)
        CHECK_EQ(m.reserved[i], 0);
    berth_context_destroy(context);
}

/* Parts of slabs; what no part has is told as fragmented. */
static void
test_slabs(void)
{
    const berthi_slab_parts whole = {
        .bytes = 600, .weights = 300, .slots = 200, .scratch = 100
    };
    const berthi_slab_parts holes = { .bytes = 50, .weights = 43 };
    berth_context *context;
    berth_memory m;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    berthi_books_take_slab(&context->ledger.books, "cuda:0", &whole);
    berthi_books_take_slab(&context->ledger.books, "cuda:1", &holes);
    berthi_books_take_slab(&context->ledger.books, "cuda:0", &whole);
    CHECK_EQ(berth_memory_tiers(context), 3);
    m = get(context, "cuda:0", BERTH_MEMORY_WEIGHTS);
    check(&m, 600, 600, 600);
    CHECK_EQ(m.slabs, 0);
    m = get(context, "cuda:0", BERTH_MEMORY_SLOTS);
    check(&m, 400, 400, 400);
    m = get(context, "cuda:0", BERTH_MEMORY_SCRATCH);
    check(&m, 200, 200, 200);
    m = get(context, "cuda:0", BERTH_MEMORY_ALL);
    check(&m, 1200, 1200, 1200);
    CHECK_EQ(m.slabs, 2);
    CHECK_EQ(m.slab_bytes, 1200);
    CHECK_EQ(m.fragmented_bytes, 0);
    m = get(context, "cuda:1", BERTH_MEMORY_ALL);
    CHECK_EQ(m.slab_bytes, 50);
    CHECK_EQ(m.fragmented_bytes, 7);
    berthi_books_give_slab(&context->ledger.books, "cuda:0", &whole);
    m = get(context, "cuda:0", BERTH_MEMORY_ALL);
    check(&m, 600, 1200, 1200);
    CHECK_EQ(m.slabs, 1);
    berthi_books_give_slab(&context->ledger.books, "cuda:0", &whole);
    berthi_books_give_slab(&context->ledger.books, "cuda:1", &holes);
    m = get(context, "cuda:1", BERTH_MEMORY_ALL);
    check(&m, 0, 43, 43);
    CHECK_EQ(m.slabs, 0);
    CHECK_EQ(m.fragmented_bytes, 0);
    m = get(context, "cpu", BERTH_MEMORY_ALL);
    check(&m, 0, 0, 0);
    berth_context_destroy(context);
}

/* More tiers than have a page share the last one. */
static void
test_many_tiers(void)
{
    const berthi_slab_parts parts = { .bytes = 10, .weights = 10 };
    berth_context *context;
    berth_memory m;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < 64; i++)
        berthi_books_take_slab(&context->ledger.books, fixture_format("cuda:%u", i),
                               &parts);
    CHECK_EQ(berth_memory_tiers(context), 65);
    m = get(context, "cuda:63", BERTH_MEMORY_ALL);
    check(&m, 10, 10, 10);
    for (uint32_t i = 64; i < 70; i++)
        berthi_books_take_slab(&context->ledger.books, fixture_format("cuda:%u", i),
                               &parts);
    CHECK_EQ(berth_memory_tiers(context), 66);
    m = get(context, "others", BERTH_MEMORY_ALL);
    check(&m, 60, 60, 60);
    berthi_books_give_slab(&context->ledger.books, "cuda:69", &parts);
    m = get(context, "others", BERTH_MEMORY_ALL);
    check(&m, 50, 60, 60);
    berth_context_destroy(context);
}

static void *
book(void *user)
{
    berth_context *const context = user;
    const berthi_slab_parts parts = { .bytes = 7, .weights = 7 };

    for (int i = 0; i < 2000; i++) {
        void *const memory = berthi_memory_alloc(context, BERTHI_PURPOSE_RING, 64);

        berthi_books_take_slab(&context->ledger.books, "cuda:0", &parts);
        berthi_memory_free(context, BERTHI_PURPOSE_RING, memory, 64);
        berthi_books_give_slab(&context->ledger.books, "cuda:0", &parts);
    }
    return NULL;
}

static void
test_threads(void)
{
    pthread_t threads[4];
    berth_context *context;
    berth_memory m;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (int i = 0; i < 4; i++)
        T_REQUIRE(pthread_create(&threads[i], NULL, book, context) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(berth_memory_tiers(context), 2);
    m = get(context, "cuda:0", BERTH_MEMORY_WEIGHTS);
    CHECK_EQ(m.current_bytes, 0);
    CHECK_EQ(m.allocated_bytes, 4 * 2000 * 7);
    CHECK_LE(m.peak_bytes, 4 * 7);
    m = get(context, "cpu", BERTH_MEMORY_STAGING);
    CHECK_EQ(m.current_bytes, 0);
    CHECK_EQ(m.allocated_bytes, 4 * 2000 * 64);
    berth_context_destroy(context);
}

/* --------------------------------------------------------------------------- models */

/* Sums: of host memory, the ledger; of each tier, the plan. */
static void
check_sums(const loaded *l)
{
    const berth_context *const context = l->p.context;
    berth_memory_summary ledger;
    berth_memory m;
    uint64_t sum = 0;

    berth_context_memory(context, &ledger);
    for (int32_t p = 0; p < BERTH_MEMORY_ALL; p++)
        sum += get(context, "cpu", p).current_bytes;
    m = get(context, "cpu", BERTH_MEMORY_ALL);
    CHECK_EQ(sum, m.current_bytes);
    CHECK_EQ(sum, ledger.current_bytes);
    for (uint32_t t = 0; t < l->p.summary.tier_count; t++) {
        berth_plan_tier tier;

        CHECK_EQ(berth_plan_get_tier(l->p.plan, t, &tier), BERTH_OK);
        if (tier.kind == BERTH_TIER_DISK || tier.weights == 0)
            continue;
        m = get(context, tier.name, BERTH_MEMORY_WEIGHTS);
        CHECK_EQ(m.current_bytes, tier.weights);
        m = get(context, tier.name, BERTH_MEMORY_SLOTS);
        CHECK_EQ(m.current_bytes, tier.slots + tier.expert_slots);
        m = get(context, tier.name, BERTH_MEMORY_ALL);
        CHECK_EQ(m.slabs, 1);
        CHECK_EQ(m.fragmented_bytes, 0);
        if (tier.kind == BERTH_TIER_GPU)
            CHECK_EQ(m.current_bytes, tier.weights + tier.slots + tier.expert_slots
                                          + tier.scratch);
    }
}

static void
test_model(void)
{
    berth_plan_options options = loaded_options("0=24MiB,cpu=1GiB");
    const char *const folder = loaded_large(6, 2);
    berth_memory m;
    loaded l;

    options.type = BERTH_ENCODING_NATIVE;
    loaded_begin(&l, folder, &options, "sim:64MiB");
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    check_sums(&l);
    CHECK_GT(get(l.p.context, "cuda:0", BERTH_MEMORY_SLOTS).current_bytes, 0);
    CHECK_GT(get(l.p.context, "cpu", BERTH_MEMORY_WEIGHTS).current_bytes, 0);
    m = get(l.p.context, "cpu", BERTH_MEMORY_STAGING);
    CHECK_EQ(m.current_bytes, 0);
    CHECK_GT(m.peak_bytes, 0);
    loaded_unload(&l);
    m = get(l.p.context, "cuda:0", BERTH_MEMORY_ALL);
    CHECK_EQ(m.current_bytes, 0);
    CHECK_EQ(m.slabs, 0);
    CHECK_EQ(m.peak_bytes, m.allocated_bytes);
    CHECK_EQ(get(l.p.context, "cpu", BERTH_MEMORY_WEIGHTS).current_bytes, 0);
    /* A second time on top of the first: totals grow, the peak stays. */
    loaded_load(&l);
    CHECK_EQ(get(l.p.context, "cuda:0", BERTH_MEMORY_ALL).peak_bytes, m.peak_bytes);
    CHECK_EQ(get(l.p.context, "cuda:0", BERTH_MEMORY_ALL).allocated_bytes,
             2 * m.peak_bytes);
    loaded_end(&l);
}

/* Host memory that plays a GPU is the GPU's. */
static void
test_host_as_device(void)
{
    berth_plan_options options = loaded_options("0=24MiB,cpu=1GiB");
    berth_memory_summary ledger;
    loaded l;

    loaded_begin(&l, loaded_large(6, 1), &options, "cpu");
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    berth_context_memory(l.p.context, &ledger);
    CHECK_EQ(get(l.p.context, "cuda:0", BERTH_MEMORY_ALL).current_bytes
                 + get(l.p.context, "cpu", BERTH_MEMORY_ALL).current_bytes,
             ledger.current_bytes);
    loaded_end(&l);
}

/* What was refused has left nothing but its peak. */
static void
test_refused(void)
{
    berth_plan_options options = loaded_options("0=256MiB,cpu=1GiB");
    berth_memory m;
    loaded l;

    loaded_begin(&l, loaded_large(4, 1), &options, "sim:2MiB");
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_ENOFIT);
    for (uint32_t t = 0; t < berth_memory_tiers(l.p.context); t++) {
        CHECK_EQ(berth_memory_get(l.p.context, t, BERTH_MEMORY_ALL, &m), BERTH_OK);
        CHECK_EQ(m.slabs, 0);
        CHECK_EQ(m.slab_bytes, 0);
    }
    loaded_end(&l);
}

/* ------------------------------------------------------------------------ printing */

static uint64_t
number_of(const berthi_json_value *object, const char *key)
{
    uint64_t number = UINT64_MAX;

    CHECK(berthi_json_can_read_unsigned(berthi_json_get(object, key), &number));
    return number;
}

static const char *
text_of(const berthi_json_value *object, const char *key)
{
    const char *text = "";

    CHECK(berthi_json_can_read_string(berthi_json_get(object, key), &text));
    return text;
}

static int32_t
purpose_of(const char *name)
{
    int32_t p = 0;

    while (strcmp(name, berth_memory_purpose_name(p)) != 0 && p < BERTH_MEMORY_ALL)
        p++;
    CHECK_STR(berth_memory_purpose_name(p), name);
    return p;
}

/* Each account in which something has been, once. */
static void
test_json(void)
{
    const berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, "memory" };
    const berthi_slab_parts parts = { .bytes = 9, .weights = 5, .slots = 4 };
    const berthi_json_value *row;
    berthi_json *document;
    berth_context *context;
    berth_context *other;
    char text[4096];
    uint32_t rows = 0;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    T_REQUIRE(berth_context_create(NULL, &other, NULL) == BERTH_OK);
    berthi_books_take_slab(&context->ledger.books, "a\"b\\c\n", &parts);
    berthi_memory_free(context, BERTHI_PURPOSE_RING,
                       berthi_memory_alloc(context, BERTHI_PURPOSE_RING, 77), 77);
    T_REQUIRE(berth_memory_print(context, BERTH_MEMORY_JSON, text, sizeof text)
              < sizeof text);
    T_REQUIRE(berthi_json_parse(other, text, strlen(text), 0, &origin, &document, NULL)
              == BERTH_OK);
    CHECK_EQ(number_of(berthi_json_root(document), "schema_version"), 1);
    row = berthi_json_first(berthi_json_get(berthi_json_root(document), "memory"));
    for (; row != NULL; row = berthi_json_next(row), rows++) {
        const char *const tier = text_of(row, "tier");
        const int32_t purpose = purpose_of(text_of(row, "purpose"));
        const char *const own = strcmp(tier, "cpu") == 0 ? "cpu" : "a\"b\\c\n";
        const berth_memory m = get(context, own, purpose);

        CHECK(own[0] == 'c' || strcmp(tier, "a?b?c?") == 0);
        CHECK_EQ(number_of(row, "current"), m.current_bytes);
        CHECK_EQ(number_of(row, "peak"), m.peak_bytes);
        CHECK_EQ(number_of(row, "allocated"), m.allocated_bytes);
        CHECK_EQ(number_of(row, "freed"), m.freed_bytes);
        if (purpose == BERTH_MEMORY_ALL) {
            CHECK_EQ(number_of(row, "slabs"), m.slabs);
            CHECK_EQ(number_of(row, "slab_bytes"), m.slab_bytes);
            CHECK_EQ(number_of(row, "fragmented"), 0);
        }
    }
    CHECK_EQ(rows, 2 + 3);
    berthi_json_destroy(document);
    berth_context_destroy(other);
    berth_context_destroy(context);
}

/* A single byte is something; what never was is in no row. */
static void
test_one_byte(void)
{
    berth_context *context;
    char text[2048];

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    berthi_memory_free(context, BERTHI_PURPOSE_RING,
                       berthi_memory_alloc(context, BERTHI_PURPOSE_RING, 1), 1);
    (void)berth_memory_print(context, BERTH_MEMORY_TEXT, text, sizeof text);
    CHECK_STR(text,
              "tier     purpose        current         peak    allocated        freed\n"
              "cpu      staging            0 B          1 B          1 B          1 B\n"
              "         all                0 B          1 B          1 B          1 B\n"
              "0 slabs, one a model and tier; fragmented: 0 B\n");
    berth_context_destroy(context);
}

static void
test_text(void)
{
    static const char expected[] =
        "tier     purpose        current         peak    allocated        freed\n"
        "cpu      staging            0 B     1.00 KiB     1.00 KiB     1.00 KiB\n"
        "         all                0 B     1.00 KiB     1.00 KiB     1.00 KiB\n"
        "cuda:0   weights       2.00 KiB     2.00 KiB     2.00 KiB          0 B\n"
        "         slots         1.00 KiB     1.00 KiB     1.00 KiB          0 B\n"
        "         all           3.00 KiB     3.00 KiB     3.00 KiB          0 B\n"
        "1 slab, one a model and tier; fragmented: 0 B\n";
    const berthi_slab_parts parts = { .bytes = 3072, .weights = 2048, .slots = 1024 };
    berth_context *context;
    char text[2048];
    char cut[100];

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    berthi_books_take_slab(&context->ledger.books, "cuda:0", &parts);
    berthi_memory_free(context, BERTHI_PURPOSE_RING,
                       berthi_memory_alloc(context, BERTHI_PURPOSE_RING, 1024), 1024);
    CHECK_EQ(berth_memory_print(context, BERTH_MEMORY_TEXT, text, sizeof text),
             sizeof expected - 1);
    CHECK_STR(text, expected);
    CHECK_EQ(berth_memory_print(context, BERTH_MEMORY_TEXT, NULL, 0),
             sizeof expected - 1);
    CHECK_EQ(berth_memory_print(context, BERTH_MEMORY_TEXT, NULL, 10),
             sizeof expected - 1);
    memset(cut, 'x', sizeof cut);
    CHECK_EQ(berth_memory_print(context, BERTH_MEMORY_TEXT, cut, 50),
             sizeof expected - 1);
    CHECK_EQ(strlen(cut), 49);
    CHECK_MEM(cut, expected, 49);
    CHECK_EQ(cut[50], 'x');
    CHECK_EQ(berth_memory_print(context, 2, text, sizeof text), 0);
    CHECK_STR(text, "");
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_purposes);
    T_RUN(test_parts_of_a_slab);
    T_RUN(test_names_and_numbers);
    T_RUN(test_slabs);
    T_RUN(test_many_tiers);
    T_RUN(test_threads);
    T_RUN(test_model);
    T_RUN(test_host_as_device);
    T_RUN(test_refused);
    T_RUN(test_json);
    T_RUN(test_one_byte);
    T_RUN(test_text);
    T_MAIN_END;
}
