/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_update.c - updates of an optimizer in host memory.
 *
 *   first half    [ gradients ... ]
 *   second half   [ values | absmax of each state | codes of each state ]
 */
#include <string.h>

#include "kernels/optimizer.h"
#include "kernels/sys.h"
#include "loader/bench.h"
#include "loader/values.h"

#define SHARE_ELEMENTS (UINT64_C(1) << 16) /* for one of several threads */
#define STEP 100u                          /* both moments have warmed up */

typedef struct updating {
    berthi_operations operations;
    berthi_update_arguments arguments;
    berthi_update_constants constants;
} updating;

int32_t
berthi_bench_find_update(const char *name)
{
    for (int32_t kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++)
        if (strcmp(name, berthi_update_name((berthi_update_kind)kind)) == 0)
            return kind;
    return -1;
}

/* Bytes of so many elements in the second half. */
static uint64_t
laid_bytes(uint64_t elements, uint32_t states)
{
    return elements * 2 + states * (elements + berthi_update_absmax_bytes(elements));
}

/* As many as there is room for: whole shares. */
static uint64_t
count_elements(const berthi_bench *b, uint32_t states)
{
    const uint64_t shares = b->half / laid_bytes(SHARE_ELEMENTS, states);

    return shares * SHARE_ELEMENTS;
}

/* States are zero to begin with, and not any more after the first round. */
static void
lay(berthi_bench *b, berthi_update_kind kind, updating *out)
{
    const uint32_t states = berthi_update_states(kind);
    const uint64_t count = count_elements(b, states);
    const uint64_t blocks = count / BERTHI_UPDATE_BLOCK;
    uint8_t *const absmax = b->memory + b->half + count * 2;
    const berthi_update_settings settings = berthi_update_defaults(kind);

    memset(out, 0, sizeof *out);
    out->operations = berthi_level_operations(b->context->level);
    out->constants = berthi_update_constants_of(&settings, STEP);
    out->arguments.count = count;
    out->arguments.parameter = b->memory + b->half;
    out->arguments.dtype = BERTH_BF16;
    out->arguments.gradient = b->memory;
    out->arguments.gradient_dtype = BERTH_BF16;
    memcpy(out->arguments.parameter, b->memory, count * 2);
    memset(absmax, 0, states * (blocks * 4 + count));
    for (uint32_t k = 0; k < states; k++) {
        out->arguments.state[k].absmax = (float *)(void *)(absmax + k * blocks * 4);
        out->arguments.state[k].codes = absmax + states * blocks * 4 + k * count;
    }
}

static void
update_share(void *user, uint32_t worker, uint64_t part)
{
    const updating *const u = user;
    const berthi_update_arguments share =
        berthi_update_share(&u->arguments, part * SHARE_ELEMENTS, SHARE_ELEMENTS);

    (void)worker;
    (void)u->operations.update(&share, &u->constants);
}

berth_status
berthi_bench_update(berthi_bench *b, berth_bench_line *line, berth_error *error)
{
    const berthi_update_kind kind = (berthi_update_kind)b->update_kind;
    const uint32_t states = berthi_update_states(kind);
    const uint64_t parts = count_elements(b, states) / SHARE_ELEMENTS;
    /* In and out, but gradients, which only come in. */
    const uint64_t bytes =
        2 * laid_bytes(parts * SHARE_ELEMENTS, states) + parts * SHARE_ELEMENTS * 2;
    berthi_bench_samples samples = { .count = 0 };
    berth_status status = BERTH_OK;
    uint64_t begin_ns;
    updating u;

    lay(b, kind, &u);
    do {
        begin_ns = berthi_sys_now_ns();
        berthi_values_run(line->threads, parts, update_share, &u);
        status = berthi_bench_check(b, error);
    } while (berthi_bench_sample(b, line, &samples, bytes,
                                 berthi_sys_now_ns() - begin_ns)
             && status == BERTH_OK && !berthi_bench_is_late(b));
    berthi_bench_settle(line, &samples);
    return status;
}
