/* SPDX-License-Identifier: Apache-2.0 */
/* fake_nvml.c - see fake_nvml.h */
#include "tests/fake_nvml.h"

#include <string.h>

/* The library's numbers that berth does not tell apart. */
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define UNKNOWN 999

static struct {
    const fake_nvml_gpu *gpus;
    uint32_t count;
    fake_nvml_books books;
    uint64_t nth;
    bool is_armed;
    bool is_persistent;
} fake;

/* What every call begins with: OK, or what it has to return. */
static int
begin_call(void)
{
    const uint64_t call = fake.books.calls++;

    if (!fake.is_armed || call < fake.nth || (call > fake.nth && !fake.is_persistent))
        return BERTHI_NVML_OK;
    fake.books.failures++;
    return UNKNOWN;
}

static int
misuse(int status)
{
    fake.books.misuses++;
    return status;
}

static int
fake_start(void)
{
    const int status = begin_call();

    if (status != BERTHI_NVML_OK)
        return status;
    fake.books.starts++;
    fake.books.started++;
    return BERTHI_NVML_OK;
}

/* It has ended whatever it returns. */
static int
fake_end(void)
{
    const int status = begin_call();

    if (fake.books.started == 0)
        return misuse(UNINITIALIZED);
    fake.books.started--;
    return status;
}

static int
fake_find(const char *address, void **out)
{
    const int status = begin_call();

    if (fake.books.started == 0)
        return misuse(UNINITIALIZED);
    if (status != BERTHI_NVML_OK)
        return status;
    for (uint32_t i = 0; i < fake.count; i++)
        if (strcmp(fake.gpus[i].address, address) == 0) {
            *out = (void *)(uintptr_t)&fake.gpus[i];
            return BERTHI_NVML_OK;
        }
    return NOT_FOUND;
}

/* NULL: `status` says what a call about a GPU returns. */
static const fake_nvml_gpu *
begin_gpu_call(void *handle, int *status)
{
    *status = begin_call();
    if (fake.books.started == 0 || handle == NULL)
        *status = misuse(handle == NULL ? INVALID_ARGUMENT : UNINITIALIZED);
    return *status == BERTHI_NVML_OK ? handle : NULL;
}

static int
fake_link_state(void *handle, unsigned int link, int *out)
{
    int status;
    const fake_nvml_gpu *const g = begin_gpu_call(handle, &status);

    if (g == NULL)
        return status;
    if (link >= g->links)
        return g->links == 0 ? NOT_SUPPORTED : INVALID_ARGUMENT;
    *out = (g->down >> link & 1) == 0 ? BERTHI_NVML_UP : 0;
    return BERTHI_NVML_OK;
}

static int
fake_link_version(void *handle, unsigned int link, unsigned int *out)
{
    int status;
    const fake_nvml_gpu *const g = begin_gpu_call(handle, &status);

    if (g == NULL)
        return status;
    if (link >= g->links)
        return misuse(INVALID_ARGUMENT);
    *out = g->version;
    return BERTHI_NVML_OK;
}

/* The value of a field; its status where it is none. */
static int
read_value(const fake_nvml_gpu *g, const berthi_nvml_field *field, uint32_t *out)
{
    const bool is_single = !g->is_old && field->scope < g->links;
    const bool is_c2c = field->scope < g->c2c_links;

    switch (field->id) {
    case BERTHI_NVML_LINK_COUNT:
        *out = g->links;
        return g->is_uncounted ? NOT_SUPPORTED : BERTHI_NVML_OK;
    case BERTHI_NVML_LINK_SPEED_OF_ALL:
        *out = g->mb_per_s;
        return g->links > 0 ? BERTHI_NVML_OK : NOT_SUPPORTED;
    case BERTHI_NVML_LINK_SPEED:
        *out = (g->down >> field->scope & 1) == 0 ? g->mb_per_s : 0;
        return is_single ? BERTHI_NVML_OK : NOT_SUPPORTED;
    case BERTHI_NVML_LINK_STATE:
        *out = (g->down >> field->scope & 1) == 0;
        return is_single ? BERTHI_NVML_OK : NOT_SUPPORTED;
    case BERTHI_NVML_C2C_COUNT:
        *out = g->c2c_links;
        return g->c2c_links > 0 ? BERTHI_NVML_OK : NOT_SUPPORTED;
    case BERTHI_NVML_C2C_STATE:
        *out = (g->c2c_down >> field->scope & 1) == 0;
        return is_c2c ? BERTHI_NVML_OK : misuse(INVALID_ARGUMENT);
    case BERTHI_NVML_C2C_SPEED:
        *out = g->c2c_mb_per_s;
        return is_c2c ? BERTHI_NVML_OK : misuse(INVALID_ARGUMENT);
    default: return misuse(INVALID_ARGUMENT);
    }
}

/* What a value that is none has is left open: here it is a large one. */
static int
fake_fields(void *handle, int count, berthi_nvml_field *fields)
{
    int status;
    const fake_nvml_gpu *const g = begin_gpu_call(handle, &status);

    if (g == NULL)
        return status;
    for (int i = 0; i < count; i++) {
        uint32_t value = 0;

        fields[i].status = read_value(g, &fields[i], &value);
        fields[i].type = g->type != 0 ? g->type : BERTHI_NVML_U32;
        fields[i].value.u64 = UINT64_C(0x5555555555555555);
        if (fields[i].status == BERTHI_NVML_OK && fields[i].type == BERTHI_NVML_U32)
            fields[i].value.u32 = value;
        else if (fields[i].status == BERTHI_NVML_OK)
            fields[i].value.u64 = value;
    }
    return BERTHI_NVML_OK;
}

void
fake_nvml_begin(const fake_nvml_gpu *gpus, uint32_t count)
{
    fake.gpus = gpus;
    fake.count = count;
    fake.books = (fake_nvml_books){ 0 };
    fake.is_armed = false;
}

bool
fake_nvml_open(berthi_nvml_calls *out)
{
    fake.books.opened++;
    *out = (berthi_nvml_calls){ .start = fake_start,
                                .end = fake_end,
                                .find = fake_find,
                                .link_state = fake_link_state,
                                .link_version = fake_link_version,
                                .fields = fake_fields };
    return fake.count > 0;
}

void
fake_nvml_fail(uint64_t nth, bool is_persistent)
{
    fake.nth = nth;
    fake.is_persistent = is_persistent;
    fake.is_armed = true;
    fake.books.calls = 0;
    fake.books.failures = 0;
}

void
fake_nvml_disarm(void)
{
    fake.is_armed = false;
}

fake_nvml_books
fake_nvml_read(void)
{
    return fake.books;
}
