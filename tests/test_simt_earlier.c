/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that come while the work before them in the stream ends: what the machine that runs
 * kernels on the host does to memory that such work may be writing, and that kernels which do not
 * wait for it are noticed.
 */
#include <string.h>

#include "kernels/simt.h"
#include "tests/simt.h"
#include "tests/t.h"

enum { THREADS = 96, CTAS = 2, CELLS = THREADS * CTAS };

typedef enum mistake {
    NONE,
    READS_AHEAD,
    WRITES_AHEAD,
    NEVER_WAITS,
    ONE_WARP_WAITS,
    ONE_WARP_WAITS_AND_MEETS_ALL, /* which is none */
    MISTAKE_COUNT
} mistake;

typedef struct product {
    const float *weights; /* settled */
    const float *inputs;
    float *outputs;
    mistake wrong;
} product;

SIMT_INLINE void
multiply(const product *a)
{
    const uint32_t cell = (uint32_t)(simt_cta() * THREADS) + simt_thread();
    const float weight = a->weights[cell];
    float input = 0.0f;

    if (a->wrong == NEVER_WAITS)
        return;
    if (a->wrong == READS_AHEAD)
        input = a->inputs[cell];
    if (a->wrong == WRITES_AHEAD)
        a->outputs[cell] = 0.0f;
    if (a->wrong < ONE_WARP_WAITS || simt_warp() == 0)
        simt_wait_for_earlier();
    if (a->wrong == ONE_WARP_WAITS_AND_MEETS_ALL)
        simt_barrier();
    if (a->wrong != READS_AHEAD)
        input = a->inputs[cell];
    a->outputs[cell] = weight * input;
}
SIMT_KERNEL_AHEAD(multiply_ahead, THREADS, SIMT_RESIDENT, product, multiply(a))
/* Begins with waiting, so that nothing is ahead. */
SIMT_KERNEL(multiply_behind, THREADS, product, multiply(a))

static float weights[CELLS];
static float inputs[CELLS];
static float outputs[CELLS];

static const char *
run(void (*kernel)(const void *argument), mistake wrong, simt_order order, uint64_t seed)
{
    const simt_memory earlier[] = { { inputs, sizeof inputs }, { outputs, sizeof outputs } };
    const simt_launch launch = { .threads = THREADS, .ctas = CTAS, .order = order, .seed = seed,
                                 .earlier = earlier, .earlier_count = 2 };
    const product argument = { weights, inputs, outputs, wrong };

    for (uint32_t i = 0; i < CELLS; i++) {
        weights[i] = (float)(i + 1);
        inputs[i] = (float)(i % 7) + 1.0f;
        outputs[i] = -1.0f;
    }
    return simt_run(&launch, kernel, &argument);
}

/* Whether all that was read was there. */
static bool
is_product(void)
{
    uint32_t right = 0;

    for (uint32_t i = 0; i < CELLS; i++)
        right += memcmp(&outputs[i], &(float){ weights[i] * inputs[i] }, sizeof *outputs) == 0;
    return right == CELLS;
}

static void
test_kernels_that_wait(void)
{
    for (int order = 0; order < SIMT_ORDER_COUNT; order++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            CHECK_STR(run(multiply_ahead, NONE, (simt_order)order, seed), NULL);
            CHECK(is_product());
            CHECK_STR(run(multiply_ahead, ONE_WARP_WAITS_AND_MEETS_ALL, (simt_order)order, seed),
                      NULL);
            CHECK(is_product());
        }
}

static void
test_kernels_that_begin_with_waiting(void)
{
    for (int order = 0; order < SIMT_ORDER_COUNT; order++)
        for (int wrong = 0; wrong < MISTAKE_COUNT; wrong++) {
            CHECK_STR(run(multiply_behind, (mistake)wrong, (simt_order)order, 1), NULL);
            CHECK(wrong == NEVER_WAITS || is_product());
        }
}

/* What comes of it is wrong, however lanes come. */
static void
test_reads_ahead(void)
{
    for (int order = 0; order < SIMT_ORDER_COUNT; order++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            CHECK_STR(run(multiply_ahead, READS_AHEAD, (simt_order)order, seed), NULL);
            CHECK(!is_product());
        }
}

static void
test_what_is_noticed(void)
{
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        CHECK_STR(run(multiply_ahead, WRITES_AHEAD, (simt_order)order, 1),
                  "a write before earlier work has been waited for");
        /* In a random order the one warp may come first and at once. */
        if (order != SIMT_RANDOM)
            CHECK_STR(run(multiply_ahead, ONE_WARP_WAITS, (simt_order)order, 1),
                      "a write before earlier work has been waited for");
        CHECK_STR(run(multiply_ahead, NEVER_WAITS, (simt_order)order, 1),
                  "no lane waits for earlier work");
        CHECK(inputs[3] == 4.0f); /* it is as it was */
    }
}

static void
test_no_fibers(void)
{
    T_SKIP("no fibers on this processor");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (simt_has_fibers()) {
        T_RUN(test_kernels_that_wait);
        T_RUN(test_kernels_that_begin_with_waiting);
        T_RUN(test_reads_ahead);
        T_RUN(test_what_is_noticed);
    } else {
        T_RUN(test_no_fibers);
    }
    T_MAIN_END;
}
