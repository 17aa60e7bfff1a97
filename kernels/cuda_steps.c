/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_steps.c - a decoder's steps as launches of kernels; see cuda_device.h. */
#include <inttypes.h>

#include "kernels/cuda_address.h"
#include "kernels/cuda_device.h"
#include "kernels/number.h"

/* Something of the GPU's memory, and what its address has to be a multiple of. */
typedef struct place {
    const char *name;
    const void *address;
    uint64_t unit;
} place;

#define PLACES(list) list, sizeof list / sizeof *list

static berth_status
check_places(const place *places, size_t count, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (size_t i = 0; i < count && status == BERTH_OK; i++)
        status = check_address(places[i].name, places[i].address, places[i].unit, error);
    return status;
}

static berth_status
plan_take(const berth_take *s, berthi_launch *out, berth_error *error)
{
    const place places[] = { { "table", s->table, berthi_number_bytes(s->table_dtype) },
                             { "numbers", s->numbers, sizeof *s->numbers },
                             { "outputs", s->outputs, berthi_number_bytes(s->dtype) } };
    const berth_status status = check_places(PLACES(places), error);

    return status == BERTH_OK ? berthi_launch_take(s, out, error) : status;
}

static berth_status
plan_norm(const berth_norm *s, berthi_launch *out, berth_error *error)
{
    const bool has_sums = s->sums != NULL;
    const place places[] = { { "inputs", has_sums ? s->sums : s->inputs,
                               berthi_number_bytes(has_sums ? BERTH_F32 : s->inputs_dtype) },
                             { "added", has_sums ? s->added : NULL,
                               berthi_number_bytes(s->added_dtype) },
                             { "weight", s->weight, berthi_number_bytes(s->weight_dtype) },
                             { "outputs", s->outputs, berthi_number_bytes(s->dtype) } };
    const berth_status status = check_places(PLACES(places), error);

    return status == BERTH_OK ? berthi_launch_norm(s, out, error) : status;
}

static berth_status
plan_rotate(const berth_rotate *s, berthi_launch *out, berth_error *error)
{
    const place places[] = { { "queries", s->queries, berthi_number_bytes(s->dtype) },
                             { "keys", s->keys, berthi_number_bytes(s->dtype) },
                             { "values", s->values, berthi_number_bytes(s->dtype) },
                             { "query_norm", s->query_norm, berthi_number_bytes(s->norm_dtype) },
                             { "key_norm", s->key_norm, berthi_number_bytes(s->norm_dtype) },
                             { "angles", s->angles, sizeof *s->angles },
                             { "key_cache", s->key_cache, berthi_number_bytes(s->cache_dtype) },
                             { "value_cache", s->value_cache,
                               berthi_number_bytes(s->cache_dtype) } };
    const berth_status status = check_places(PLACES(places), error);

    return status == BERTH_OK ? berthi_launch_rotate(s, out, error) : status;
}

static berth_status
plan_attend(const berth_attend *s, berthi_launch *out, berth_error *error)
{
    const place places[] = { { "queries", s->queries, berthi_number_bytes(s->dtype) },
                             { "key_cache", s->key_cache, berthi_number_bytes(s->cache_dtype) },
                             { "value_cache", s->value_cache, berthi_number_bytes(s->cache_dtype) },
                             { "outputs", s->outputs, berthi_number_bytes(s->dtype) } };
    const berth_status status = check_places(PLACES(places), error);

    return status == BERTH_OK ? berthi_launch_attend(s, out, error) : status;
}

static berth_status
plan_gate(const berth_gate *s, berthi_launch *out, berth_error *error)
{
    const place places[] = { { "gate", s->gate, berthi_number_bytes(s->dtype) },
                             { "up", s->up, berthi_number_bytes(s->dtype) } };
    const berth_status status = check_places(PLACES(places), error);

    return status == BERTH_OK ? berthi_launch_gate(s, out, error) : status;
}

static berth_status
plan_add(const berth_add *s, berthi_launch *out, berth_error *error)
{
    const place places[] = { { "sums", s->sums, sizeof *s->sums },
                             { "values", s->values, berthi_number_bytes(s->dtype) },
                             { "rows", s->rows, sizeof *s->rows },
                             { "weights", s->weights, sizeof *s->weights } };
    const berth_status status = check_places(PLACES(places), error);

    return status == BERTH_OK ? berthi_launch_add(s, out, error) : status;
}

static berth_status
plan_choose(const berth_choose *s, berthi_launch *out, berth_error *error)
{
    const place places[] = { { "logits", s->logits, berthi_number_bytes(s->dtype) },
                             { "numbers", s->numbers, sizeof *s->numbers },
                             { "weights", s->weights, sizeof *s->weights } };
    const berth_status status = check_places(PLACES(places), error);

    return status == BERTH_OK ? berthi_launch_choose(s, out, error) : status;
}

static berth_status
plan_largest(const berth_largest *s, berthi_launch *out, berth_error *error)
{
    const place places[] = { { "values", s->values, berthi_number_bytes(s->dtype) },
                             { "numbers", s->numbers, sizeof *s->numbers } };
    const berth_status status = check_places(PLACES(places), error);

    return status == BERTH_OK ? berthi_launch_largest(s, out, error) : status;
}

berth_status
berthi_cuda_plan_step(const berthi_request *request, berthi_launch *out, berth_error *error)
{
    switch (request->operation) {
    case BERTHI_OPERATION_TAKE: return plan_take(&request->arguments.take, out, error);
    case BERTHI_OPERATION_NORM: return plan_norm(&request->arguments.norm, out, error);
    case BERTHI_OPERATION_ROTATE: return plan_rotate(&request->arguments.rotate, out, error);
    case BERTHI_OPERATION_ATTEND: return plan_attend(&request->arguments.attend, out, error);
    case BERTHI_OPERATION_GATE: return plan_gate(&request->arguments.gate, out, error);
    case BERTHI_OPERATION_ADD: return plan_add(&request->arguments.add, out, error);
    case BERTHI_OPERATION_CHOOSE: return plan_choose(&request->arguments.choose, out, error);
    case BERTHI_OPERATION_LARGEST:
        return plan_largest(&request->arguments.largest, out, error);
    default:
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no kernels are operation %" PRId32, request->operation);
    }
}
