/* SPDX-License-Identifier: Apache-2.0 */
/* dlpack.c - parts of tensors for other libraries: berth_model_dlpack(). */
#include "loader/dlpack.h"

#include <inttypes.h>
#include <string.h>

#include "loader/model.h"

/* What lies behind a tensor that was given away. */
typedef struct export {
    struct DLManagedTensorVersioned managed; /* first: what is given back is this */
    berth_model *model;
    int64_t shape[BERTH_MAX_RANK];
    int64_t strides[BERTH_MAX_RANK];
} export;

/* --------------------------------------------------------------------- lifetimes */

void
berth_model_destroy(berth_model *model)
{
    if (model != NULL
        && atomic_fetch_or(&model->exports, BERTHI_MODEL_DESTROYED) == 0)
        berthi_model_free(model);
}

static void
let_go(berth_model *model)
{
    if (atomic_fetch_sub(&model->exports, 1) == (BERTHI_MODEL_DESTROYED | 1))
        berthi_model_free(model);
}

static void
delete_export(struct DLManagedTensorVersioned *managed)
{
    export *const e = (export *)managed;
    berth_model *const model = e->model;

    berthi_memory_free(model->context, BERTHI_PURPOSE_OBJECT, e, sizeof *e);
    let_go(model);
}

/* -------------------------------------------------------------------- describing */

/* What DLPack 1.0 has no word for goes as bytes. */
static berthi_dlpack_dtype
dtype_of(int32_t dtype)
{
    const uint8_t bits = (uint8_t)berth_dtype_bits(dtype);

    switch (dtype) {
    case BERTH_F64:
    case BERTH_F32:
    case BERTH_F16: return (berthi_dlpack_dtype){ BERTHI_DLPACK_FLOAT, bits, 1 };
    case BERTH_BF16: return (berthi_dlpack_dtype){ BERTHI_DLPACK_BFLOAT, bits, 1 };
    case BERTH_C64: return (berthi_dlpack_dtype){ BERTHI_DLPACK_COMPLEX, bits, 1 };
    case BERTH_I64:
    case BERTH_I32:
    case BERTH_I16:
    case BERTH_I8: return (berthi_dlpack_dtype){ BERTHI_DLPACK_INT, bits, 1 };
    case BERTH_U64:
    case BERTH_U32:
    case BERTH_U16: return (berthi_dlpack_dtype){ BERTHI_DLPACK_UINT, bits, 1 };
    case BERTH_BOOL: return (berthi_dlpack_dtype){ BERTHI_DLPACK_BOOL, bits, 1 };
    default: return (berthi_dlpack_dtype){ BERTHI_DLPACK_UINT, 8, 1 };
    }
}

/* Values, and codes that are one a value, have the weight's shape; all else is a row. */
static void
choose_shape(const berthi_cargo *cargo, const berthi_cargo_part *part, export *e)
{
    berthi_dlpack_tensor *const t = &e->managed.dl_tensor;
    const uint64_t width = t->dtype.bits / 8u;

    t->ndim = 1;
    e->shape[0] = (int64_t)(part->bytes / width);
    if ((part->role == BERTH_ROLE_VALUES || part->role == BERTH_ROLE_CODES)
        && cargo->elements == part->bytes / width) {
        t->ndim = (int32_t)cargo->rank;
        for (uint32_t i = 0; i < cargo->rank; i++)
            e->shape[i] = (int64_t)cargo->shape[i];
    }
    t->shape = e->shape;
    t->strides = e->strides;
}

/* A tensor without elements may have dimensions that DLPack's signed numbers do not hold. */
static berth_status
describe_shape(const berthi_cargo *cargo, const berthi_cargo_part *part, export *e,
               berth_error *error)
{
    uint64_t stride = 1;

    choose_shape(cargo, part, e);
    for (int32_t i = e->managed.dl_tensor.ndim; i-- > 0;) {
        e->strides[i] = (int64_t)stride;
        if (e->shape[i] < 0
            || !berthi_can_mul(stride, e->shape[i] > 0 ? (uint64_t)e->shape[i] : 1, &stride)
            || stride > INT64_MAX)
            return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                               "the tensor has no elements, and dimensions that DLPack "
                               "cannot tell");
    }
    return BERTH_OK;
}

/* Host memory that is pinned for a GPU is memory that the GPU's runtime knows. */
static int32_t
host_type(const berth_model *model, const berthi_model_tier *tier)
{
    const bool has_gpu =
        model->devices != NULL
        && strcmp(berthi_devices_at(model->devices, 0)->table->kind, "cuda") == 0;

    return tier->is_pinned && has_gpu ? BERTHI_DLPACK_CUDA_HOST : BERTHI_DLPACK_CPU;
}

static berth_status
describe_device(const berth_model *model, const berthi_model_tier *tier, export *e,
                berth_error *error)
{
    berthi_dlpack_tensor *const t = &e->managed.dl_tensor;
    const char *kind;

    if (tier->device == NULL)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "the tensor lies on the disk");
    kind = tier->device->table->kind;
    if (strcmp(kind, "sim") == 0)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "the tensor lies in the memory of a simulated device, which "
                           "nothing else can use");
    if (strcmp(kind, "cuda") == 0) {
        t->device_type = BERTHI_DLPACK_CUDA;
        t->device_id = tier->device->ordinal;
    } else {
        t->device_type = host_type(model, tier);
    }
    return BERTH_OK;
}

static berth_status
describe(berth_model *model, uint64_t berth, uint32_t part, export *e,
         berth_error *error)
{
    const berthi_model_tier *const tier = &model->tiers[model->plan->berths[berth].tier];
    berthi_cargo cargo;
    berth_status status = berthi_model_cargo(model, berth, &cargo, error);

    if (status != BERTH_OK)
        return status;
    if (part >= cargo.part_count)
        return berthi_fail_argument(error, "part", "is none of the tensor's");
    status = describe_device(model, tier, e, error);
    if (status != BERTH_OK)
        return status;
    e->model = model;
    e->managed.major = BERTHI_DLPACK_MAJOR;
    e->managed.minor = BERTHI_DLPACK_MINOR;
    e->managed.deleter = delete_export;
    e->managed.flags = BERTHI_DLPACK_READ_ONLY;
    e->managed.dl_tensor.dtype = dtype_of(cargo.parts[part].dtype);
    e->managed.dl_tensor.data =
        berthi_model_place(model, berth) + cargo.parts[part].offset;
    return describe_shape(&cargo, &cargo.parts[part], e, error);
}

/* --------------------------------------------------------------------- exporting */

/* The model stays where it is while this goes on; counted, it does so afterwards. */
static berth_status
make_export(berth_model *model, uint64_t berth, uint32_t part, export **out,
            berth_error *error)
{
    export *const e =
        berthi_memory_zalloc(model->context, BERTHI_PURPOSE_OBJECT, sizeof *e);
    berth_status status;

    if (e == NULL)
        return berthi_fail_memory(error, "exporting a tensor");
    status = describe(model, berth, part, e, error);
    if (status == BERTH_OK)
        *out = e;
    else
        berthi_memory_free(model->context, BERTHI_PURPOSE_OBJECT, e, sizeof *e);
    return status;
}

berth_status
berth_model_dlpack(berth_model *model, uint64_t berth, uint32_t part,
                   struct DLManagedTensorVersioned **out_tensor, berth_error *error)
{
    export *e = NULL;
    berth_status status;

    berthi_error_clear(error);
    if (out_tensor == NULL)
        return berthi_fail_argument(error, "out_tensor", "is NULL");
    *out_tensor = NULL;
    if (model == NULL)
        return berthi_fail_argument(error, "model", "is NULL");
    if (berth >= model->berth_count)
        return berthi_fail_argument(error, "berth", "is not that of a tensor");
    /* Counted before the gate: who then closes it sees it, or is seen. */
    atomic_fetch_add(&model->exports, 1);
    status = berthi_model_enter(model, error);
    if (status == BERTH_OK) {
        status = make_export(model, berth, part, &e, error);
        berthi_model_leave(model);
    }
    if (status != BERTH_OK) {
        let_go(model);
        return status;
    }
    *out_tensor = &e->managed;
    return BERTH_OK;
}
