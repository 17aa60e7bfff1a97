/* SPDX-License-Identifier: Apache-2.0 */
/* sim_steps.c - what a decoder's steps touch of a simulated device; see sim.h. */
#include "kernels/number.h"
#include "kernels/sim_regions.h"

/* ------------------------------------------------------------------- regions */

static void
list_take(const berthi_request *r, berthi_sim_regions *list)
{
    const berth_take *const s = &r->arguments.take;

    if (s->count == 0)
        return;
    add_read(list, r, SLOT(take.table), s->rows * s->columns * berthi_number_bytes(s->table_dtype));
    add_read(list, r, SLOT(take.numbers), s->count * sizeof *s->numbers);
    add_written(list, r, SLOT(take.outputs), s->count * s->columns * berthi_number_bytes(s->dtype));
}

static void
list_norm(const berthi_request *r, berthi_sim_regions *list)
{
    const berth_norm *const s = &r->arguments.norm;
    const uint64_t numbers = s->count * s->columns;

    if (s->count == 0)
        return;
    if (s->sums != NULL) {
        add_both(list, r, SLOT(norm.sums), numbers * sizeof *s->sums);
        add_read(list, r, SLOT(norm.added), numbers * berthi_number_bytes(s->added_dtype));
    } else {
        add_read(list, r, SLOT(norm.inputs), numbers * berthi_number_bytes(s->inputs_dtype));
    }
    add_read(list, r, SLOT(norm.weight), s->columns * berthi_number_bytes(s->weight_dtype));
    add_written(list, r, SLOT(norm.outputs), numbers * berthi_number_bytes(s->dtype));
}

static void
list_rotate(const berthi_request *r, berthi_sim_regions *list)
{
    const berth_rotate *const s = &r->arguments.rotate;
    const uint64_t queries = (uint64_t)s->count * s->heads * s->width;
    const uint64_t keys = (uint64_t)s->count * s->kv_heads * s->width;
    const uint64_t cache = s->kv_heads * s->capacity * s->width;
    const uint64_t norm = s->width * berthi_number_bytes(s->norm_dtype);

    if (s->count == 0)
        return;
    add_both(list, r, SLOT(rotate.queries), queries * berthi_number_bytes(s->dtype));
    add_read(list, r, SLOT(rotate.keys), keys * berthi_number_bytes(s->dtype));
    add_read(list, r, SLOT(rotate.values), keys * berthi_number_bytes(s->dtype));
    add_read(list, r, SLOT(rotate.query_norm), s->query_norm != NULL ? norm : 0);
    add_read(list, r, SLOT(rotate.key_norm), s->key_norm != NULL ? norm : 0);
    add_read(list, r, SLOT(rotate.angles), (uint64_t)s->count * s->width * sizeof *s->angles);
    add_both(list, r, SLOT(rotate.key_cache), cache * berthi_number_bytes(s->cache_dtype));
    add_both(list, r, SLOT(rotate.value_cache), cache * berthi_number_bytes(s->cache_dtype));
}

static void
list_attend(const berthi_request *r, berthi_sim_regions *list)
{
    const berth_attend *const s = &r->arguments.attend;
    const uint64_t queries
        = (uint64_t)s->count * s->heads * s->width * berthi_number_bytes(s->dtype);
    const uint64_t cache
        = s->kv_heads * s->capacity * s->width * berthi_number_bytes(s->cache_dtype);

    if (s->count == 0)
        return;
    add_read(list, r, SLOT(attend.queries), queries);
    add_read(list, r, SLOT(attend.key_cache), cache);
    add_read(list, r, SLOT(attend.value_cache), cache);
    add_written(list, r, SLOT(attend.outputs), queries);
}

static void
list_gate(const berthi_request *r, berthi_sim_regions *list)
{
    const berth_gate *const s = &r->arguments.gate;

    add_both(list, r, SLOT(gate.gate), s->elements * berthi_number_bytes(s->dtype));
    add_read(list, r, SLOT(gate.up), s->elements * berthi_number_bytes(s->dtype));
}

static void
list_add(const berthi_request *r, berthi_sim_regions *list)
{
    const berth_add *const s = &r->arguments.add;
    const uint64_t share = s->share != 0 ? s->share : 1;

    if (s->count == 0)
        return;
    add_both(list, r, SLOT(add.sums), s->sum_rows * s->columns * sizeof *s->sums);
    add_read(list, r, SLOT(add.values), s->count * s->columns * berthi_number_bytes(s->dtype));
    add_read(list, r, SLOT(add.rows), s->rows != NULL ? s->count * sizeof *s->rows : 0);
    add_read(list, r, SLOT(add.weights),
             s->weights != NULL ? s->sum_rows * share * sizeof *s->weights : 0);
}

static void
list_choose(const berthi_request *r, berthi_sim_regions *list)
{
    const berth_choose *const s = &r->arguments.choose;
    const uint64_t used = (uint64_t)s->count * s->used;

    add_read(list, r, SLOT(choose.logits),
             (uint64_t)s->count * s->experts * berthi_number_bytes(s->dtype));
    add_written(list, r, SLOT(choose.numbers), used * sizeof *s->numbers);
    add_written(list, r, SLOT(choose.weights), used * sizeof *s->weights);
}

static void
list_largest(const berthi_request *r, berthi_sim_regions *list)
{
    const berth_largest *const s = &r->arguments.largest;

    add_read(list, r, SLOT(largest.values),
             (uint64_t)s->count * s->columns * berthi_number_bytes(s->dtype));
    add_written(list, r, SLOT(largest.numbers), s->count * sizeof *s->numbers);
}

void
berthi_sim_list_step(const berthi_request *request, berthi_sim_regions *list)
{
    switch (request->operation) {
    case BERTHI_OPERATION_TAKE: list_take(request, list); break;
    case BERTHI_OPERATION_NORM: list_norm(request, list); break;
    case BERTHI_OPERATION_ROTATE: list_rotate(request, list); break;
    case BERTHI_OPERATION_ATTEND: list_attend(request, list); break;
    case BERTHI_OPERATION_GATE: list_gate(request, list); break;
    case BERTHI_OPERATION_ADD: list_add(request, list); break;
    case BERTHI_OPERATION_CHOOSE: list_choose(request, list); break;
    case BERTHI_OPERATION_LARGEST: list_largest(request, list); break;
    default: break;
    }
}

/* ---------------------------------------------------------------------- cost */

/* Positions of the caches that are read. */
static uint64_t
seen_positions(const berth_attend *s)
{
    const bool has_window = s->window != 0 && s->position >= s->window;

    return s->position + s->count - (has_window ? s->position - s->window + 1 : 0);
}

double
berthi_sim_step_spares(const berthi_request *request)
{
    const berth_take *const t = &request->arguments.take;
    const berth_rotate *const r = &request->arguments.rotate;
    const berth_attend *const a = &request->arguments.attend;

    switch (request->operation) {
    case BERTHI_OPERATION_TAKE:
        return t->count == 0 ? 0.0
                             : ((double)t->rows - (double)t->count) * (double)t->columns
                                   * (double)berthi_number_bytes(t->table_dtype);
    case BERTHI_OPERATION_ROTATE:
        return r->count == 0 ? 0.0
                             : 2.0 * (double)(r->capacity - r->count) * (double)r->kv_heads
                                   * (double)(r->width * berthi_number_bytes(r->cache_dtype));
    case BERTHI_OPERATION_ATTEND:
        return a->count == 0 ? 0.0
                             : 2.0 * (double)(a->capacity - seen_positions(a))
                                   * (double)a->kv_heads
                                   * (double)(a->width * berthi_number_bytes(a->cache_dtype));
    default: return 0.0;
    }
}
