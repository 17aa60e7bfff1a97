/* SPDX-License-Identifier: Apache-2.0 */
/* operands_decoder.c - operands of a decoder's steps; see operands.h. */
#include "kernels/operands_add.h"

/* Of no inputs the table is not read either; so with what follows. */
static void
add_take(const berth_take *s, berthi_operands *list)
{
    if (s->count == 0)
        return;
    add_read(list, "table", SLOT(take.table), s->rows * s->columns,
             berthi_number_bytes(s->table_dtype));
    add_read(list, "numbers", SLOT(take.numbers), s->count, sizeof *s->numbers);
    add_written(list, "outputs", SLOT(take.outputs), s->count * s->columns,
                berthi_number_bytes(s->dtype));
}

static void
add_norm(const berth_norm *s, berthi_operands *list)
{
    const uint64_t numbers = s->count * s->columns;

    if (s->count == 0)
        return;
    if (s->sums != NULL) {
        add_both(list, "sums", SLOT(norm.sums), numbers, sizeof *s->sums);
        add_read(list, "added", SLOT(norm.added), numbers, berthi_number_bytes(s->added_dtype));
    } else {
        add_read(list, "inputs", SLOT(norm.inputs), numbers,
                 berthi_number_bytes(s->inputs_dtype));
    }
    add_read(list, "weight", SLOT(norm.weight), s->columns,
             berthi_number_bytes(s->weight_dtype));
    add_written(list, "outputs", SLOT(norm.outputs), numbers, berthi_number_bytes(s->dtype));
}

static void
add_rotate(const berth_rotate *s, berthi_operands *list)
{
    const uint64_t keys = (uint64_t)s->count * s->kv_heads * s->width;
    const uint64_t cache = s->kv_heads * s->capacity * s->width;
    const uint64_t width = berthi_number_bytes(s->dtype);
    const uint64_t cache_width = berthi_number_bytes(s->cache_dtype);
    const uint64_t norm_width = berthi_number_bytes(s->norm_dtype);

    if (s->count == 0)
        return;
    add_both(list, "queries", SLOT(rotate.queries), (uint64_t)s->count * s->heads * s->width,
             width);
    add_read(list, "keys", SLOT(rotate.keys), keys, width);
    add_read(list, "values", SLOT(rotate.values), keys, width);
    add_read(list, "query_norm", SLOT(rotate.query_norm), s->query_norm != NULL ? s->width : 0,
             norm_width);
    add_read(list, "key_norm", SLOT(rotate.key_norm), s->key_norm != NULL ? s->width : 0,
             norm_width);
    add_read(list, "angles", SLOT(rotate.angles), (uint64_t)s->count * s->width,
             sizeof *s->angles);
    add_both(list, "key_cache", SLOT(rotate.key_cache), cache, cache_width);
    add_both(list, "value_cache", SLOT(rotate.value_cache), cache, cache_width);
}

static void
add_attend(const berth_attend *s, berthi_operands *list)
{
    const uint64_t queries = (uint64_t)s->count * s->heads * s->width;
    const uint64_t cache = s->kv_heads * s->capacity * s->width;
    const uint64_t cache_width = berthi_number_bytes(s->cache_dtype);

    if (s->count == 0)
        return;
    add_read(list, "queries", SLOT(attend.queries), queries, berthi_number_bytes(s->dtype));
    add_read(list, "key_cache", SLOT(attend.key_cache), cache, cache_width);
    add_read(list, "value_cache", SLOT(attend.value_cache), cache, cache_width);
    add_written(list, "outputs", SLOT(attend.outputs), queries, berthi_number_bytes(s->dtype));
}

static void
add_gate(const berth_gate *s, berthi_operands *list)
{
    add_both(list, "gate", SLOT(gate.gate), s->elements, berthi_number_bytes(s->dtype));
    add_read(list, "up", SLOT(gate.up), s->elements, berthi_number_bytes(s->dtype));
}

static void
add_add(const berth_add *s, berthi_operands *list)
{
    const uint64_t share = s->share != 0 ? s->share : 1;

    if (s->count == 0)
        return;
    add_both(list, "sums", SLOT(add.sums), s->sum_rows * s->columns, sizeof *s->sums);
    add_read(list, "values", SLOT(add.values), s->count * s->columns,
             berthi_number_bytes(s->dtype));
    add_read(list, "rows", SLOT(add.rows), s->rows != NULL ? s->count : 0, sizeof *s->rows);
    add_read(list, "weights", SLOT(add.weights), s->weights != NULL ? s->sum_rows * share : 0,
             sizeof *s->weights);
}

static void
add_choose(const berth_choose *s, berthi_operands *list)
{
    const uint64_t used = (uint64_t)s->count * s->used;

    add_read(list, "logits", SLOT(choose.logits), (uint64_t)s->count * s->experts,
             berthi_number_bytes(s->dtype));
    add_written(list, "numbers", SLOT(choose.numbers), used, sizeof *s->numbers);
    add_written(list, "weights", SLOT(choose.weights), used, sizeof *s->weights);
}

static void
add_largest(const berth_largest *s, berthi_operands *list)
{
    add_read(list, "values", SLOT(largest.values), (uint64_t)s->count * s->columns,
             berthi_number_bytes(s->dtype));
    add_written(list, "numbers", SLOT(largest.numbers), s->count, sizeof *s->numbers);
}

void
berthi_operands_add_step(berthi_operands *out)
{
    const berthi_request *const request = out->request;

    switch (request->operation) {
    case BERTHI_OPERATION_TAKE: add_take(&request->arguments.take, out); break;
    case BERTHI_OPERATION_NORM: add_norm(&request->arguments.norm, out); break;
    case BERTHI_OPERATION_ROTATE: add_rotate(&request->arguments.rotate, out); break;
    case BERTHI_OPERATION_ATTEND: add_attend(&request->arguments.attend, out); break;
    case BERTHI_OPERATION_GATE: add_gate(&request->arguments.gate, out); break;
    case BERTHI_OPERATION_ADD: add_add(&request->arguments.add, out); break;
    case BERTHI_OPERATION_CHOOSE: add_choose(&request->arguments.choose, out); break;
    case BERTHI_OPERATION_LARGEST: add_largest(&request->arguments.largest, out); break;
    default: break;
    }
}

/* ------------------------------------------------------------------- what is left alone */

/* Positions of the caches that are read. */
static uint64_t
seen_positions(const berth_attend *s)
{
    const bool has_window = s->window != 0 && s->position >= s->window;

    return s->position + s->count - (has_window ? s->position - s->window + 1 : 0);
}

double
berthi_operands_unread_of_step(const berthi_request *request)
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
