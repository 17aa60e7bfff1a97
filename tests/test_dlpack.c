/* SPDX-License-Identifier: Apache-2.0 */
/* test_dlpack.c - tensors lent to other libraries: what they are told, how long they live. */
#include <string.h>

#include "kernels/memory.h"
#include "loader/dlpack.h"
#include "loader/model.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"

typedef struct DLManagedTensorVersioned managed;

static uint64_t
find(const loaded *l, const char *name)
{
    const uint64_t berth = berth_model_find(l->model, name, strlen(name));

    CHECK_NE(berth, BERTH_NO_TENSOR);
    return berth;
}

static managed *
lend(const loaded *l, const char *name, uint32_t part)
{
    managed *m = NULL;
    berth_error error;

    if (!CHECK_EQ(berth_model_dlpack(l->model, find(l, name), part, &m, &error), BERTH_OK))
        t_note("%s", error.message);
    return m;
}

static void
check_tensor(const managed *m, uint32_t code, uint32_t bits, int32_t ndim,
             const int64_t *shape)
{
    int64_t stride = 1;

    CHECK_EQ(m->major, 1);
    CHECK_EQ(m->minor, 0);
    CHECK_EQ(m->flags, 1);
    CHECK_EQ(m->dl_tensor.device_type, BERTHI_DLPACK_CPU);
    CHECK_EQ(m->dl_tensor.device_id, 0);
    CHECK_EQ(m->dl_tensor.dtype.code, code);
    CHECK_EQ(m->dl_tensor.dtype.bits, bits);
    CHECK_EQ(m->dl_tensor.dtype.lanes, 1);
    CHECK_EQ(m->dl_tensor.byte_offset, 0);
    CHECK_EQ((uintptr_t)m->dl_tensor.data % 256, 0);
    if (!CHECK_EQ(m->dl_tensor.ndim, ndim))
        return;
    for (int32_t i = ndim; i-- > 0;) {
        CHECK_EQ(m->dl_tensor.shape[i], shape[i]);
        CHECK_EQ(m->dl_tensor.strides[i], stride);
        stride *= shape[i];
    }
}

/* --------------------------------------------------------------------------- what */

static void
test_plain(void)
{
    static const char name[] = "model.layers.0.mlp.up_proj.weight";
    static const struct {
        const char *dtype;
        uint32_t code;
        uint32_t bits;
    } cases[] = {
        { "BF16", BERTHI_DLPACK_BFLOAT, 16 }, { "F16", BERTHI_DLPACK_FLOAT, 16 },
        { "F32", BERTHI_DLPACK_FLOAT, 32 },
    };
    const int64_t matrix[] = { 704, 256 };
    const int64_t odd[] = { 4099 };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        berth_plan_options options = loaded_options("cpu=1GiB");
        berth_model_tensor t;
        managed *m;
        loaded l;

        loaded_begin(&l, loaded_llama(1, cases[i].dtype, 1), &options, NULL);
        loaded_load(&l);
        T_REQUIRE(l.status == BERTH_OK);
        m = lend(&l, name, 0);
        check_tensor(m, cases[i].code, cases[i].bits, 2, matrix);
        CHECK_EQ(berth_model_get_tensor(l.model, find(&l, name), &t), BERTH_OK);
        CHECK(m->dl_tensor.data == t.parts[0].memory);
        m->deleter(m);
        m = lend(&l, "model.layers.0.odd", 0);
        check_tensor(m, cases[i].code, cases[i].bits, 1, odd);
        m->deleter(m);
        loaded_end(&l);
    }
}

/* Codes as bytes, or in the shape of the weight where they are one a value. */
static void
test_encoded(void)
{
    static const char name[] = "model.layers.0.mlp.up_proj.weight";
    const int64_t matrix[] = { 704, 256 };
    const int64_t packed[] = { 704 * 256 / 2 };
    const int64_t absmax[] = { 704 * 256 / 64 };
    const int64_t rows[] = { 704 };
    berth_plan_options options = loaded_options("cpu=1GiB");
    const char *const folder = loaded_llama(1, "BF16", 1);
    managed *m;
    loaded l;

    options.type = BERTH_ENCODING_NF4;
    loaded_begin(&l, folder, &options, NULL);
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    m = lend(&l, name, 0);
    check_tensor(m, BERTHI_DLPACK_UINT, 8, 1, packed);
    m->deleter(m);
    m = lend(&l, name, 1);
    check_tensor(m, BERTHI_DLPACK_FLOAT, 32, 1, absmax);
    m->deleter(m);
    loaded_end(&l);
    options = loaded_options("cpu=1GiB");
    options.type = BERTH_ENCODING_INT8;
    loaded_begin(&l, folder, &options, NULL);
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    m = lend(&l, name, 0);
    check_tensor(m, BERTHI_DLPACK_INT, 8, 2, matrix);
    m->deleter(m);
    m = lend(&l, name, 1);
    check_tensor(m, BERTHI_DLPACK_FLOAT, 32, 1, rows);
    m->deleter(m);
    loaded_end(&l);
}

/* ------------------------------------------------------------------------ refusals */

static void
check_refused(const loaded *l, uint64_t berth, uint32_t part, berth_status status,
              const char *message)
{
    managed *m = (managed *)(uintptr_t)8;
    berth_error error;

    CHECK_EQ(berth_model_dlpack(l->model, berth, part, &m, &error), status);
    CHECK(m == NULL);
    CHECK_EQ(error.status, status);
    CHECK_CONTAINS(error.message, message);
}

static void
test_arguments(void)
{
    berth_plan_options options = loaded_options("cpu=1GiB");
    berth_error error;
    managed *m;
    loaded l;

    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, NULL);
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    check_refused(&l, l.p.summary.berth_count, 0, BERTH_EINVAL, "is not that of a tensor");
    check_refused(&l, 0, 1, BERTH_EINVAL, "is none of the tensor's");
    CHECK_EQ(berth_model_dlpack(NULL, 0, 0, &m, &error), BERTH_EINVAL);
    CHECK(m == NULL);
    CHECK_EQ(berth_model_dlpack(l.model, 0, 0, NULL, &error), BERTH_EINVAL);
    /* None of them counts as lent. */
    CHECK_EQ(atomic_load(&l.model->exports), 0);
    loaded_end(&l);
}

/* DLPack counts in signed numbers: what has no elements may still be beyond them. */
static void
test_empty(void)
{
    static const struct {
        const char *lines;
        int64_t first; /* dimension; -1: refused */
    } cases[] = {
        { "F32 3x0 a.weight\nF32 4 b.weight\n", 3 },
        { "F32 4294967296x0x1073741824 a.weight\nF32 4 b.weight\n", 4294967296 },
        { "U8 9223372036854775807x0 a.weight\nF32 4 b.weight\n", INT64_MAX },
        { "U8 9223372036854775808x0 a.weight\nF32 4 b.weight\n", -1 },
        { "F32 1x0x18446744073709551615 a.weight\nF32 4 b.weight\n", -1 },
        { "F32 1x0x1099511627776x1099511627776 a.weight\nF32 4 b.weight\n", -1 },
        { "F32 4294967296x0x4294967296 a.weight\nF32 4 b.weight\n", -1 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berth_plan_options options = loaded_options("cpu=1GiB");
        const char *const path =
            fixture_format("%s/%zu.safetensors", fixture_folder(), i);
        managed *m;
        loaded l;

        (void)fixture_file(path, cases[i].lines);
        loaded_begin(&l, path, &options, NULL);
        loaded_load(&l);
        T_REQUIRE(l.status == BERTH_OK);
        if (cases[i].first < 0) {
            check_refused(&l, find(&l, "a.weight"), 0, BERTH_EUNSUPPORTED, "no elements");
            CHECK_EQ(atomic_load(&l.model->exports), 0);
        } else {
            m = lend(&l, "a.weight", 0);
            CHECK_EQ(m->dl_tensor.shape[0], cases[i].first);
            m->deleter(m);
        }
        loaded_end(&l);
    }
}

/* Of simulated devices nothing is lent, of the disk nothing can be; host memory is. */
static void
test_places(void)
{
    berth_plan_options options = loaded_options("0=24MiB,cpu=20MiB,disk=inf");
    uint32_t lent = 0;
    uint32_t refused = 0;
    uint32_t on_disk = 0;
    loaded l;

    loaded_begin(&l, loaded_large(8, 1), &options, "sim:64MiB");
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    for (uint64_t i = 0; i < l.p.summary.berth_count; i++) {
        berth_plan_tier tier;
        berth_berth berth;
        managed *m;

        CHECK_EQ(berth_plan_get_berth(l.p.plan, i, &berth, NULL, 0), BERTH_OK);
        CHECK_EQ(berth_plan_get_tier(l.p.plan, berth.tier, &tier), BERTH_OK);
        if (tier.kind == BERTH_TIER_GPU) {
            check_refused(&l, i, 0, BERTH_EUNSUPPORTED, "simulated device");
            refused++;
        } else if (tier.kind == BERTH_TIER_DISK) {
            check_refused(&l, i, 0, BERTH_EUNSUPPORTED, "on the disk");
            on_disk++;
        } else {
            CHECK_EQ(berth_model_dlpack(l.model, i, 0, &m, NULL), BERTH_OK);
            CHECK_EQ(m->dl_tensor.device_type, BERTHI_DLPACK_CPU);
            m->deleter(m);
            lent++;
        }
    }
    CHECK_GT(refused, 0);
    CHECK_GT(lent, 0);
    CHECK_GT(on_disk, 0);
    loaded_end(&l);
}

/* ----------------------------------------------------------------------- lifetimes */

/* What was destroyed lives until the last one is given back. */
static void
test_outlives(void)
{
    berth_plan_options options = loaded_options("cpu=1GiB");
    berth_memory slab;
    managed *a;
    managed *b;
    uint8_t first;
    loaded l;

    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, NULL);
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    a = lend(&l, "model.norm.weight", 0);
    b = lend(&l, "lm_head.weight", 0);
    first = *(uint8_t *)a->dl_tensor.data;
    loaded_unload(&l);
    CHECK_EQ(berth_memory_get(l.p.context, 0, BERTH_MEMORY_ALL, &slab), BERTH_OK);
    CHECK_EQ(slab.slabs, 1);
    CHECK_EQ(*(uint8_t *)a->dl_tensor.data, first);
    b->deleter(b);
    CHECK_EQ(*(uint8_t *)a->dl_tensor.data, first);
    a->deleter(a);
    CHECK_EQ(berth_memory_get(l.p.context, 0, BERTH_MEMORY_ALL, &slab), BERTH_OK);
    CHECK_EQ(slab.slabs, 0);
    loaded_end(&l);
}

/* A model that others look at is not moved; one that sleeps lends nothing. */
static void
test_moving(void)
{
    berth_plan_options options = loaded_options("cpu=1GiB");
    berth_error error;
    managed *m;
    loaded l;

    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, NULL);
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    m = lend(&l, "model.norm.weight", 0);
    CHECK_EQ(berthi_model_begin_move(l.model, false, "it", &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXPORTED);
    CHECK_CONTAINS(error.message, "others use tensors");
    CHECK_EQ(berth_model_get_state(l.model), BERTH_MODEL_AWAKE);
    m->deleter(m);
    CHECK_EQ(berthi_model_begin_move(l.model, false, "it", &error), BERTH_OK);
    check_refused(&l, 0, 0, BERTH_EINVAL, "is being moved");
    berthi_model_end_move(l.model, false);
    CHECK_EQ(atomic_load(&l.model->gate), 0); /* no call is left */
    m = lend(&l, "model.norm.weight", 0);
    m->deleter(m);
    loaded_end(&l);
}

static berth_status
lend_once(void *user, berth_context *context, berth_error *error)
{
    loaded *const l = user;
    berth_context *const own = l->model->context;
    managed *m = NULL;
    berth_status status;

    l->model->context = context; /* whose allocations fail */
    status = berth_model_dlpack(l->model, 0, 0, &m, error);
    CHECK((status == BERTH_OK) == (m != NULL));
    if (m != NULL)
        m->deleter(m);
    CHECK_EQ(atomic_load(&l->model->exports), 0);
    l->model->context = own;
    return status;
}

static void
test_faults(void)
{
    berth_plan_options options = loaded_options("cpu=1GiB");
    fault_counts counts;
    loaded l;

    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, NULL);
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    counts = fault_loop("dlpack", lend_once, &l);
    CHECK_GT(counts.memory, 0);
    CHECK_EQ(counts.survived, 0);
    loaded_end(&l);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_plain);
    T_RUN(test_encoded);
    T_RUN(test_arguments);
    T_RUN(test_empty);
    T_RUN(test_places);
    T_RUN(test_outlives);
    T_RUN(test_moving);
    T_RUN(test_faults);
    T_MAIN_END;
}
