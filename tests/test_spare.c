/* SPDX-License-Identifier: Apache-2.0 */
/* test_spare.c - staging that is kept between jobs, and given back. */
#include <string.h>

#include "kernels/spare.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define PAGE 4096u

static berth_context *
create(uint64_t spare_bytes, uint64_t limit)
{
    berth_context_options options;
    berth_context *context = NULL;

    berth_context_options_init(&options);
    options.spare_bytes = spare_bytes;
    options.memory_limit = limit;
    CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK);
    return context;
}

static uint64_t
in_use(const berth_context *context)
{
    berth_memory_summary memory;
    berth_memory staging;

    berth_context_memory(context, &memory);
    CHECK_EQ(berth_memory_get(context, 0, BERTH_MEMORY_STAGING, &staging), BERTH_OK);
    CHECK_EQ(staging.current_bytes, memory.current_bytes);
    return memory.current_bytes;
}

static void
test_none(void)
{
    berth_context *const context = create(0, 0);
    void *const memory = berthi_spare_alloc(context, 2 * PAGE, PAGE);

    CHECK(memory != NULL);
    CHECK_EQ(in_use(context), 2 * PAGE);
    berthi_spare_free(context, memory, 2 * PAGE, PAGE);
    berthi_spare_free(context, NULL, 2 * PAGE, PAGE);
    CHECK_EQ(in_use(context), 0);
    CHECK_EQ(berth_context_trim(context), 0);
    berth_context_destroy(context);
}

/* The same comes back, of exactly its kind, and no more than is wanted is kept. */
static void
test_kept(void)
{
    berth_context *const context = create(5 * PAGE, 0);
    void *a = berthi_spare_alloc(context, 2 * PAGE, PAGE);
    void *b = berthi_spare_alloc(context, 3 * PAGE, PAGE);
    void *c = berthi_spare_alloc(context, PAGE, PAGE);
    void *again;

    berthi_spare_free(context, a, 2 * PAGE, PAGE);
    berthi_spare_free(context, b, 3 * PAGE, PAGE);
    CHECK_EQ(in_use(context), 6 * PAGE);
    berthi_spare_free(context, c, PAGE, PAGE); /* one too many */
    CHECK_EQ(in_use(context), 5 * PAGE);
    c = berthi_spare_alloc(context, 2 * PAGE, 2 * PAGE); /* another alignment */
    CHECK(c != a && c != b);
    CHECK_EQ(in_use(context), 7 * PAGE);
    again = berthi_spare_alloc(context, 2 * PAGE, PAGE);
    CHECK(again == a);
    CHECK_EQ(in_use(context), 7 * PAGE);
    memset(again, 1, 2 * PAGE);
    again = berthi_spare_alloc(context, 2 * PAGE, PAGE);
    CHECK(again != a);
    berthi_spare_free(context, again, 2 * PAGE, PAGE);
    CHECK_EQ(berth_context_trim(context), 5 * PAGE);
    CHECK_EQ(berth_context_trim(context), 0);
    CHECK_EQ(in_use(context), 4 * PAGE);
    berthi_spare_free(context, a, 2 * PAGE, PAGE);
    berthi_spare_free(context, c, 2 * PAGE, 2 * PAGE);
    /* What is kept goes with the context: under the address sanitizer nothing leaks. */
    berth_context_destroy(context);
}

/* What is merely kept stands in nobody's way. */
static void
test_limit(void)
{
    berth_context *const context = create(4 * PAGE, 5 * PAGE);
    void *memory = berthi_spare_alloc(context, 4 * PAGE, PAGE);

    berthi_spare_free(context, memory, 4 * PAGE, PAGE);
    CHECK_EQ(in_use(context), 4 * PAGE);
    memory = berthi_memory_alloc(context, BERTHI_PURPOSE_RING, 2 * PAGE);
    CHECK(memory != NULL);
    CHECK_EQ(in_use(context), 2 * PAGE);
    CHECK(berthi_memory_alloc(context, BERTHI_PURPOSE_RING, 4 * PAGE) == NULL);
    berthi_memory_free(context, BERTHI_PURPOSE_RING, memory, 2 * PAGE);
    berth_context_destroy(context);
}

/*
 * A later load finds the rings of those before, of which each has as many buffers as it came
 * to fill at once: soon there is nothing to add. Trimmed, all are gone.
 */
static void
test_loads(void)
{
    berth_plan_options options = loaded_options("cpu=1GiB");
    uint64_t added = UINT64_MAX;
    berth_memory last;
    berth_memory m;
    loaded l;

    loaded_begin(&l, loaded_large(4, 1), &options, NULL);
    l.p.context->spare_limit = UINT64_C(1) << 30;
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    CHECK_EQ(berth_memory_get(l.p.context, 0, BERTH_MEMORY_STAGING, &last), BERTH_OK);
    CHECK_GT(last.current_bytes, 0);
    CHECK_EQ(last.current_bytes, last.allocated_bytes);
    for (int tries = 0; tries < T_CANCEL_TRIES && added > 0; tries++) {
        loaded_unload(&l);
        loaded_load(&l);
        T_REQUIRE(l.status == BERTH_OK);
        CHECK_EQ(berth_memory_get(l.p.context, 0, BERTH_MEMORY_STAGING, &m), BERTH_OK);
        added = m.allocated_bytes - last.allocated_bytes;
        last = m;
    }
    CHECK_EQ(added, 0);
    CHECK_EQ(berth_context_trim(l.p.context), m.current_bytes);
    CHECK_EQ(berth_memory_get(l.p.context, 0, BERTH_MEMORY_STAGING, &m), BERTH_OK);
    CHECK_EQ(m.current_bytes, 0);
    loaded_end(&l);
}

/* ------------------------------------------------------------------------- streamed */

static uint64_t
staging_of(const loaded *l)
{
    berth_memory m;

    CHECK_EQ(berth_memory_get(l->p.context, 0, BERTH_MEMORY_STAGING, &m), BERTH_OK);
    return m.current_bytes;
}

/* Each layer once, and trimmed while it is leased. */
static void
pass_and_trim(loaded *l)
{
    for (uint32_t i = 0; i < l->p.summary.layer_count; i++) {
        CHECK_EQ(berth_layer_acquire(l->model, i, NULL, NULL), BERTH_OK);
        (void)berth_context_trim(l->p.context);
        CHECK_EQ(berth_layer_release(l->model, i, NULL, NULL), BERTH_OK);
    }
    CHECK_EQ(berth_stream_wait(l->devices, 0, NULL, -1, NULL), BERTH_OK);
}

static void
finish(berth_job *job)
{
    if (CHECK(job != NULL))
        CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
}

/* A model that is awake keeps the ring that its layers come through; asleep, it has none. */
static void
test_streamed(void)
{
    static const char *const pins[] = { "model.layers.0-2=disk" };
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB,disk=inf");
    berth_job *job = NULL;
    uint32_t before;
    uint32_t after;
    loaded l;

    options.pins = pins;
    options.pin_count = 1;
    loaded_begin(&l, loaded_large(4, 1), &options, "sim:64MiB");
    l.p.context->spare_limit = UINT64_C(1) << 30;
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    CHECK_EQ(berth_model_digest(l.model, 0, &before, NULL), BERTH_OK);
    pass_and_trim(&l);
    CHECK_GT(staging_of(&l), 0);
    pass_and_trim(&l);
    CHECK_EQ(berth_model_sleep_start(l.model, NULL, &job, NULL), BERTH_OK);
    finish(job);
    CHECK_GT(berth_context_trim(l.p.context), 0);
    CHECK_EQ(staging_of(&l), 0);
    CHECK_EQ(berth_model_wake_start(l.model, NULL, &job, NULL), BERTH_OK);
    finish(job);
    pass_and_trim(&l); /* a ring anew */
    CHECK_GT(staging_of(&l), 0);
    CHECK_EQ(berth_model_digest(l.model, 0, &after, NULL), BERTH_OK);
    CHECK_EQ(after, before);
    loaded_unload(&l);
    CHECK_GT(berth_context_trim(l.p.context), 0);
    loaded_end(&l);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_none);
    T_RUN(test_kept);
    T_RUN(test_limit);
    T_RUN(test_loads);
    T_RUN(test_streamed);
    T_MAIN_END;
}
