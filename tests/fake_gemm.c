/* SPDX-License-Identifier: Apache-2.0 */
/* fake_gemm.c - see fake_gemm.h */
#include "tests/fake_gemm.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/fake_cuda.h"
#include "tests/t.h"

#define MAGIC UINT64_C(0x6265727468)
#define STEP 64u    /* numbers of inputs that share an algorithm */
#define WORK 256u   /* products that are under way at a time */
#define NEEDED_WORKSPACE (UINT64_C(1) << 20)

typedef enum thing_kind { HANDLE = 1, OPERATION, LAYOUT, PREFERENCE } thing_kind;

typedef struct thing {
    struct thing *next;
    thing_kind kind;
    int device; /* of a handle */
    int compute;
    int scale_type;
    bool is_turned;
    bool has_bias;
    const void *bias;
    int type;
    uint64_t rows;
    uint64_t columns;
    int64_t stride;
    uint64_t workspace_bytes;
    uint32_t alignments[4];
} thing;

typedef struct product {
    int type;
    int out_type;
    uint64_t rows;
    uint64_t columns;
    uint64_t count;
    uint64_t stride;
    const void *weight;
    const void *inputs;
    const void *bias;
    void *outputs;
    uint8_t *workspace;
} product;

static struct {
    thing *things;
    fake_gemm_books books;
    product work[WORK];
    uint64_t called;
    uint64_t failures;
    uint64_t nth;
    int status;
    bool is_armed;
    bool is_persistent;
    bool is_hidden;
    bool finds_nothing;
    bool refuses_checks;
} fake;

/* ------------------------------------------------------------------------------ values */

double
fake_gemm_value(const void *values, int type, uint64_t i)
{
    switch (type) {
    case BERTHI_GEMM_BF16:
        return (double)berthi_core_from_bf16(((const uint16_t *)values)[i]);
    case BERTHI_GEMM_F16:
        return (double)berthi_core_from_fp16(((const uint16_t *)values)[i]);
    case BERTHI_GEMM_I8: return (double)((const int8_t *)values)[i];
    case BERTHI_GEMM_I32: return (double)((const int32_t *)values)[i];
    default: return (double)((const float *)values)[i];
    }
}

void
fake_gemm_set(void *values, int type, uint64_t i, double value)
{
    switch (type) {
    case BERTHI_GEMM_BF16:
        ((uint16_t *)values)[i] = berthi_core_to_bf16((float)value);
        break;
    case BERTHI_GEMM_F16:
        ((uint16_t *)values)[i] = berthi_core_to_fp16((float)value);
        break;
    case BERTHI_GEMM_I8: ((int8_t *)values)[i] = (int8_t)value; break;
    case BERTHI_GEMM_I32: ((int32_t *)values)[i] = (int32_t)value; break;
    default: ((float *)values)[i] = (float)value; break;
    }
}

static void
run_product(void *user)
{
    const product *const p = user;

    memset(p->workspace, 0xB7, NEEDED_WORKSPACE);
    for (uint64_t i = 0; i < p->count; i++)
        for (uint64_t row = 0; row < p->rows; row++) {
            double sum = p->bias != NULL ? fake_gemm_value(p->bias, p->out_type, row) : 0;

            for (uint64_t k = 0; k < p->columns; k++)
                sum += fake_gemm_value(p->weight, p->type, row * p->columns + k)
                       * fake_gemm_value(p->inputs, p->type, i * p->columns + k);
            fake_gemm_set(p->outputs, p->out_type, i * p->stride + row, sum);
        }
    fake.books.products++;
}

/* ----------------------------------------------------------------------------- failures */

/* What every call begins with: OK, or what it has to return. */
static int
begin(void)
{
    const uint64_t call = fake.called++;

    if (!fake.is_armed || call < fake.nth || (call > fake.nth && !fake.is_persistent))
        return BERTHI_GEMM_OK;
    fake.failures++;
    return fake.status;
}

static int
misuse(void)
{
    fake.books.misuses++;
    return BERTHI_GEMM_INVALID;
}

static const char *
fake_status_words(int status)
{
    return status == BERTHI_GEMM_NO_MEMORY ? "no memory" : "a status of the fake library";
}

/* -------------------------------------------------------------------------- descriptors */

static thing *
find(const void *handle, thing_kind kind)
{
    thing *t = fake.things;

    while (t != NULL && ((const void *)t != handle || t->kind != kind))
        t = t->next;
    return t;
}

static int
add(void **out, const thing *what)
{
    const int status = begin();
    thing *t;

    if (status != BERTHI_GEMM_OK)
        return status;
    t = malloc(sizeof *t);
    if (t == NULL)
        abort();
    *t = *what;
    t->next = fake.things;
    fake.things = t;
    *out = t;
    *(what->kind == HANDLE ? &fake.books.handles : &fake.books.descriptors) += 1;
    return BERTHI_GEMM_OK;
}

/* Gone, whatever is returned. */
static int
take(void *handle, thing_kind kind)
{
    const int status = begin();
    thing *const t = find(handle, kind);
    thing **at = &fake.things;

    if (t == NULL)
        return misuse();
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    free(t);
    *(kind == HANDLE ? &fake.books.handles : &fake.books.descriptors) -= 1;
    return status;
}

static int
fake_create(void **out)
{
    return add(out, &(thing){ .kind = HANDLE, .device = fake_cuda_current() });
}

static int
fake_destroy(void *handle)
{
    return take(handle, HANDLE);
}

static int
fake_operation_create(void **out, int compute, int scale_type)
{
    return add(out, &(thing){ .kind = OPERATION, .compute = compute,
                              .scale_type = scale_type });
}

static int
fake_operation_destroy(void *operation)
{
    return take(operation, OPERATION);
}

static int
fake_operation_set(void *operation, int attribute, const void *value, size_t bytes)
{
    const int status = begin();
    thing *const t = find(operation, OPERATION);

    if (status != BERTHI_GEMM_OK)
        return status;
    if (t == NULL)
        return misuse();
    if (attribute == BERTHI_GEMM_TURN_A && bytes == sizeof(int32_t)) {
        t->is_turned = *(const int32_t *)value == BERTHI_GEMM_TURNED;
        return BERTHI_GEMM_OK;
    }
    if (attribute == BERTHI_GEMM_EPILOGUE && bytes == sizeof(uint32_t)) {
        t->has_bias = *(const uint32_t *)value == BERTHI_GEMM_ADD_BIAS;
        return BERTHI_GEMM_OK;
    }
    if (attribute == BERTHI_GEMM_BIAS_POINTER && bytes == sizeof(void *)) {
        memcpy(&t->bias, value, bytes);
        return BERTHI_GEMM_OK;
    }
    return misuse();
}

static int
fake_layout_create(void **out, int type, uint64_t rows, uint64_t columns, int64_t stride)
{
    return add(out, &(thing){ .kind = LAYOUT, .type = type, .rows = rows,
                              .columns = columns, .stride = stride });
}

static int
fake_layout_destroy(void *layout)
{
    return take(layout, LAYOUT);
}

static int
fake_layout_set(void *layout, int attribute, const void *value, size_t bytes)
{
    const int status = begin();
    thing *const t = find(layout, LAYOUT);

    if (status != BERTHI_GEMM_OK)
        return status;
    if (t == NULL || attribute != BERTHI_GEMM_COLUMNS || bytes != sizeof(uint64_t))
        return misuse();
    memcpy(&t->columns, value, bytes);
    return BERTHI_GEMM_OK;
}

static int
fake_preference_create(void **out)
{
    return add(out, &(thing){ .kind = PREFERENCE });
}

static int
fake_preference_destroy(void *preference)
{
    return take(preference, PREFERENCE);
}

static int
fake_preference_set(void *preference, int attribute, const void *value, size_t bytes)
{
    const int status = begin();
    thing *const t = find(preference, PREFERENCE);

    if (status != BERTHI_GEMM_OK)
        return status;
    if (t != NULL && attribute == BERTHI_GEMM_WORKSPACE && bytes == sizeof(uint64_t)) {
        memcpy(&t->workspace_bytes, value, bytes);
        return BERTHI_GEMM_OK;
    }
    if (t == NULL || attribute < BERTHI_GEMM_ALIGNMENT_A
        || attribute > BERTHI_GEMM_ALIGNMENT_D || bytes != sizeof(uint32_t))
        return misuse();
    memcpy(&t->alignments[attribute - BERTHI_GEMM_ALIGNMENT_A], value, bytes);
    return BERTHI_GEMM_OK;
}

/* ---------------------------------------------------------------------------- algorithms */

/* The handles of a call, looked up. */
typedef struct parts {
    const thing *operation;
    const thing *a;
    const thing *b;
    const thing *d;
} parts;

/* D = A^T B of types that go together; a bias must have been named by now. */
static bool
is_product(const parts *p)
{
    const bool is_i8 = p->a != NULL && p->a->type == BERTHI_GEMM_I8;

    if (p->operation == NULL || p->a == NULL || p->b == NULL || p->d == NULL)
        return false;
    if (!p->operation->is_turned || p->operation->has_bias != (p->operation->bias != NULL)
        || p->operation->compute != (is_i8 ? BERTHI_GEMM_SUM_I32 : BERTHI_GEMM_SUM_F32)
        || p->operation->scale_type != (is_i8 ? BERTHI_GEMM_I32 : BERTHI_GEMM_F32))
        return false;
    return p->a->type == p->b->type && p->d->type == (is_i8 ? BERTHI_GEMM_I32 : p->a->type)
           && p->a->rows == p->b->rows && p->d->rows == p->a->columns
           && p->d->columns == p->b->columns && p->a->stride >= (int64_t)p->a->rows
           && p->b->stride >= (int64_t)p->b->rows && p->d->stride >= (int64_t)p->d->rows;
}

/* Two handles of C and D, which are the same here. */
static bool
has_parts(const void *handle, const void *operation, const void *a, const void *b,
          const void *c, const void *d, parts *out)
{
    const thing *const h = find(handle, HANDLE);

    *out = (parts){ find(operation, OPERATION), find(a, LAYOUT), find(b, LAYOUT),
                    find(d, LAYOUT) };
    return h != NULL && h->device == fake_cuda_current() && c == d && is_product(out);
}

/* What it was found for. */
static void
describe(const parts *p, const thing *preference, berthi_gemm_algorithm *out)
{
    *out = (berthi_gemm_algorithm){ {
        MAGIC,
        p->a->columns,
        p->a->rows,
        (p->b->columns + STEP - 1) / STEP,
        (uint64_t)p->a->type << 32 | (uint64_t)(p->operation->bias != NULL),
        (uint64_t)preference->alignments[0] << 32 | preference->alignments[1],
        (uint64_t)preference->alignments[2] << 32 | preference->alignments[3],
        preference->workspace_bytes,
    } };
}

static bool
is_for(const berthi_gemm_algorithm *algorithm, const parts *p)
{
    return algorithm->data[0] == MAGIC && algorithm->data[1] == p->a->columns
           && algorithm->data[2] == p->a->rows
           && algorithm->data[3] == (p->b->columns + STEP - 1) / STEP
           && algorithm->data[4]
                  == ((uint64_t)p->a->type << 32 | (uint64_t)(p->operation->bias != NULL));
}

static int
fake_search(void *handle, void *operation, void *a, void *b, void *c, void *d,
            void *preference, int capacity, berthi_gemm_result *out, int *out_count)
{
    const int status = begin();
    const thing *const preferred = find(preference, PREFERENCE);
    parts p;

    fake.books.searches++;
    *out_count = 0;
    if (status != BERTHI_GEMM_OK)
        return status;
    if (!has_parts(handle, operation, a, b, c, d, &p) || preferred == NULL || capacity < 3)
        return misuse();
    for (size_t i = 0; i < 4; i++)
        if (preferred->alignments[i] == 0)
            return misuse();
    if (fake.finds_nothing)
        return BERTHI_GEMM_OK;
    out[0] = (berthi_gemm_result){ .status = BERTHI_GEMM_UNSUPPORTED };
    out[1] = (berthi_gemm_result){
        .workspace_bytes = (size_t)preferred->workspace_bytes + 1,
    };
    out[2] = (berthi_gemm_result){ .workspace_bytes = NEEDED_WORKSPACE };
    describe(&p, preferred, &out[2].algorithm);
    *out_count = 3;
    return BERTHI_GEMM_OK;
}

static int
fake_check(void *handle, void *operation, void *a, void *b, void *c, void *d,
           const berthi_gemm_algorithm *algorithm, berthi_gemm_result *out)
{
    const int status = begin();
    parts p;

    fake.books.checks++;
    if (status != BERTHI_GEMM_OK)
        return status;
    if (!has_parts(handle, operation, a, b, c, d, &p))
        return misuse();
    if (fake.refuses_checks || !is_for(algorithm, &p))
        return BERTHI_GEMM_INVALID;
    out->workspace_bytes = NEEDED_WORKSPACE;
    return BERTHI_GEMM_OK;
}

/* ------------------------------------------------------------------------------ products */

static bool
is_aligned(const void *address, uint64_t wanted)
{
    return (uintptr_t)address % (wanted & UINT32_MAX) == 0;
}

/* One that has been done, or never will be. */
static product *
find_work(void)
{
    static uint64_t next;

    return &fake.work[next++ % WORK];
}

static uint64_t
bytes_of(int type)
{
    return type == BERTHI_GEMM_I8                                ? 1
           : type == BERTHI_GEMM_BF16 || type == BERTHI_GEMM_F16 ? 2
                                                                 : 4;
}

static bool
are_factors(const thing *operation, const void *alpha, const void *beta)
{
    if (operation->scale_type == BERTHI_GEMM_I32)
        return *(const int32_t *)alpha == 1 && *(const int32_t *)beta == 0;
    return *(const float *)alpha == 1.0f && *(const float *)beta == 0.0f;
}

static int
fake_multiply(void *handle, void *operation, const void *alpha, const void *a, void *a_layout,
              const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
              void *d, void *d_layout, const berthi_gemm_algorithm *algorithm,
              void *workspace, size_t workspace_bytes, void *stream)
{
    const int status = begin();
    product *work;
    parts p;

    if (status != BERTHI_GEMM_OK)
        return status;
    if (!has_parts(handle, operation, a_layout, b_layout, c_layout, d_layout, &p)
        || !is_for(algorithm, &p) || c != d || !are_factors(p.operation, alpha, beta)
        || workspace_bytes != algorithm->data[7] || !is_aligned(workspace, 256)
        || !is_aligned(a, algorithm->data[5] >> 32) || !is_aligned(b, algorithm->data[5])
        || !is_aligned(c, algorithm->data[6] >> 32) || !is_aligned(d, algorithm->data[6])
        || !fake_cuda_is_on(stream, workspace, workspace_bytes)
        || !fake_cuda_is_on(stream, a, p.a->rows * p.a->columns * bytes_of(p.a->type))
        || !fake_cuda_is_on(stream, b, p.b->rows * p.b->columns * bytes_of(p.b->type))
        || !fake_cuda_is_on(stream, d,
                            (((uint64_t)p.d->stride * (p.d->columns - 1)) + p.d->rows)
                                * bytes_of(p.d->type)))
        return misuse();
    work = find_work();
    fake.books.workspace = workspace;
    *work = (product){ p.a->type, p.d->type, p.a->columns, p.a->rows, p.b->columns,
                       (uint64_t)p.d->stride, a, b,
                       p.operation->has_bias ? p.operation->bias : NULL, d, workspace };
    return fake_cuda_push(run_product, work, stream) == BERTHI_CUDA_OK
               ? BERTHI_GEMM_OK
               : BERTHI_GEMM_EXECUTION;
}

bool
fake_gemm_open(berthi_gemm_calls *out, char why[BERTHI_GEMM_WHY_CAPACITY])
{
    fake.books.opened++;
    if (fake.is_hidden) {
        strcpy(why, "libcublasLt.so.13 is not on this machine");
        return false;
    }
    *out = (berthi_gemm_calls){
        .status_words = fake_status_words,
        .create = fake_create,
        .destroy = fake_destroy,
        .operation_create = fake_operation_create,
        .operation_destroy = fake_operation_destroy,
        .operation_set = fake_operation_set,
        .layout_create = fake_layout_create,
        .layout_destroy = fake_layout_destroy,
        .layout_set = fake_layout_set,
        .preference_create = fake_preference_create,
        .preference_destroy = fake_preference_destroy,
        .preference_set = fake_preference_set,
        .search = fake_search,
        .check = fake_check,
        .multiply = fake_multiply,
    };
    return true;
}

/* ------------------------------------------------------------------- what tests ask for */

void
fake_gemm_begin(void)
{
    while (fake.things != NULL) {
        thing *const t = fake.things;

        fake.things = t->next;
        free(t);
    }
    fake.books = (fake_gemm_books){ 0 };
    fake.is_hidden = false;
    fake.finds_nothing = false;
    fake.refuses_checks = false;
    fake_gemm_disarm();
}

void
fake_gemm_hide(bool is_hidden)
{
    fake.is_hidden = is_hidden;
}

void
fake_gemm_fail(uint64_t nth, int status, bool is_persistent)
{
    fake_gemm_disarm();
    fake.nth = nth;
    fake.status = status;
    fake.is_persistent = is_persistent;
    fake.is_armed = true;
}

void
fake_gemm_disarm(void)
{
    fake.is_armed = false;
    fake.called = 0;
    fake.failures = 0;
}

uint64_t
fake_gemm_failures(void)
{
    return fake.failures;
}

void
fake_gemm_find_nothing(bool finds_nothing)
{
    fake.finds_nothing = finds_nothing;
}

void
fake_gemm_refuse_checks(bool refuses)
{
    fake.refuses_checks = refuses;
}

fake_gemm_books
fake_gemm_read(void)
{
    return fake.books;
}

void
fake_gemm_check_empty(void)
{
    CHECK_EQ(fake.books.handles, 0);
    CHECK_EQ(fake.books.descriptors, 0);
    CHECK_EQ(fake.books.misuses, 0);
}

berth_status
fake_gemm_multiply(berthi_device *device, const berthi_gemm_task *task,
                   berthi_stream *stream, berth_error *error)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_enter(&call, device, "a product", error);

    if (status == BERTH_OK)
        status = berthi_gemm_multiply(&call, task, stream);
    return berthi_cuda_leave(&call, status);
}

berth_status
fake_gemm_multiply_4bit(berthi_device *device, const berthi_gemm_4bit *task,
                        berthi_stream *stream, berth_error *error)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_enter(&call, device, "a product", error);

    if (status == BERTH_OK)
        status = berthi_gemm_multiply_4bit(&call, task, stream);
    return berthi_cuda_leave(&call, status);
}
