/* SPDX-License-Identifier: Apache-2.0 */
/* simt_device.c - see simt_device.h */
#include "tests/simt_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda_calls.h"
#include "kernels/launch_ring.h"
#include "tests/fake_cuda.h"
#include "tests/t.h"

#define FENCE 256u /* bytes; what memory of the device is aligned to */
#define FENCE_BYTE 0xC3

typedef struct stand_in {
    void *host;
    uint8_t *memory; /* the device's, with fences */
    uint64_t front;  /* of the fence */
    uint64_t bytes;
    uint64_t begin;  /* with values from here on */
    uint64_t behind; /* of the other fence */
    bool is_output;
} stand_in;

static struct {
    const berthi_cuda_calls *calls;
    berthi_cuda_tiles *tiles; /* NULL: there are none */
    const char *why;          /* there is none */
    bool is_open;
    uint32_t capability;
    uint32_t room_bytes;
    bool is_wide;
    uint64_t runs;
    uint32_t count;
    stand_in stand_ins[64];
    bool has_run[KERNEL_COUNT];
} device;

/* A device that does not do what it is asked cannot be tested any further. */
static void
require(int code, const char *what)
{
    if (code == BERTHI_CUDA_OK)
        return;
    printf("FAILED: %s on the device: %s\n", what, device.calls->error_words(code));
    fflush(stdout);
    abort();
}

/* -------------------------------------------------------------------- what there is */

uint32_t
simt_device_capability(void)
{
    return device.capability;
}

uint32_t
simt_device_room_bytes(void)
{
    return device.room_bytes;
}

bool
simt_device_has_tensor_cores(void)
{
    return device.capability >= 80;
}

/* No GPU has less than a ring with what its kernel declares, and more than the ring. */
bool
simt_device_has_rings(void)
{
    return simt_device_has_tensor_cores() && device.room_bytes > RING_ROOM_BYTES;
}

bool
simt_device_has_tiles(void)
{
    return simt_device_has_rings() && device.capability == 90;
}

bool
simt_device_is_wide(void)
{
    return device.is_wide;
}

static bool
has_kernel(int kernel)
{
    if (kernel >= KERNEL_wide32_bf16)
        return simt_device_is_wide();
    if (berthi_launch_is_few((berthi_kernel_id)kernel))
        return simt_device_has_tiles();
    if (berthi_launch_is_ring((berthi_kernel_id)kernel))
        return simt_device_has_rings();
    return kernel < KERNEL_product_64_bf16 || kernel > KERNEL_together_128_f16_double
           || simt_device_has_tensor_cores();
}

/* --------------------------------------------------------------------------- opening */

static void
note_kernels(void)
{
#define NAME_OF(name) [KERNEL_##name] = #name,
    static const char *const names[KERNEL_COUNT] = { BERTHI_KERNELS(NAME_OF) };
#undef NAME_OF
    const char *const path = getenv("T_KERNELS");
    FILE *const file = path != NULL ? fopen(path, "a") : NULL;

    if (file == NULL)
        return;
    for (int i = KERNEL_NONE + 1; i < KERNEL_COUNT; i++)
        if (device.has_run[i])
            fprintf(file, "%s\n", names[i]);
        else if (!has_kernel(i))
            fprintf(file, "without %s\n", names[i]);
    fclose(file);
}

/* The latest architecture with machine code that this GPU runs; else what the PTX is for. */
static uint32_t
find_capability(const berthi_cuda_calls *calls, const berthi_cuda_properties *p)
{
    const int32_t own = 10 * p->major + p->minor;
    int32_t best = 0;

    for (uint32_t i = 0; i < calls->architecture_count; i++)
        if (calls->architectures[i] <= own && calls->architectures[i] / 10 == own / 10)
            best = calls->architectures[i];
    for (uint32_t i = 0; i < calls->ptx_count && best < 10 * p->major; i++)
        if (calls->ptx[i] <= own)
            best = calls->ptx[i];
    return (uint32_t)best;
}

static const char *
open_device(const char *word)
{
    const bool is_old = strcmp(word, "fake86") == 0;
    const bool is_fake = is_old || strcmp(word, "fake") == 0;
    const fake_cuda_machine machine = { .count = 1, .driver = 13000,
                                        .architecture = is_old ? 86 : 90,
                                        .memory_bytes = UINT64_C(1) << 30, .is_late = true };
    berthi_cuda_properties properties;
    int count = 0;
    int code;

    if (is_fake)
        fake_cuda_begin(&machine);
    else if (strcmp(word, "cuda") != 0)
        return "T_DEVICE is none of cuda, fake and fake86";
    device.calls = is_fake ? fake_cuda_calls() : berthi_devices_cuda();
    if (device.calls == NULL)
        return "this was built without CUDA";
    code = device.calls->device_count(&count);
    if (code != BERTHI_CUDA_OK) /* no driver, one that is too old, or no GPU for this process */
        return device.calls->error_words(code);
    if (count == 0)
        return "the driver has no GPU for this process";
    require(device.calls->device_properties(0, &properties), "reading its properties");
    require(device.calls->set_device(0), "choosing it");
    device.capability = find_capability(device.calls, &properties);
    device.room_bytes = properties.room_bytes;
    device.is_wide = device.calls->find_tiles(&device.tiles)
                     && 10 * properties.major + properties.minor == device.calls->wide;
    if (device.capability == 0)
        return "no kernel here was made for this GPU";
    atexit(note_kernels);
    return NULL;
}

bool
simt_device_is_wanted(void)
{
    const char *const word = getenv("T_DEVICE");

    return word != NULL && *word != '\0';
}

bool
simt_device_is_there(const char **out_why)
{
    if (!device.is_open)
        device.why = open_device(getenv("T_DEVICE"));
    device.is_open = true;
    *out_why = device.why;
    return device.why == NULL;
}

uint64_t
simt_device_free_bytes(void)
{
    uint64_t free_bytes = 0;
    uint64_t total = 0;

    require(device.calls->memory_info(&free_bytes, &total), "asking for free memory");
    return free_bytes;
}

/* ------------------------------------------------------------------------- stand-ins */

static void
copy(void *to, const void *from, uint64_t bytes, int32_t kind)
{
    if (bytes == 0)
        return;
    require(device.calls->copy(to, from, bytes, kind, NULL), "a copy");
    require(device.calls->synchronize(), "a copy");
}

static stand_in *
add(uint64_t bytes, uint64_t front)
{
    stand_in *const s = &device.stand_ins[device.count];
    void *memory = NULL;

    if (device.count == sizeof device.stand_ins / sizeof *device.stand_ins)
        abort();
    device.count++;
    *s = (stand_in){ .front = front, .bytes = bytes,
                     .behind = device.runs % 2 == 0 ? FENCE : 0 };
    require(device.calls->alloc(&memory, front + bytes + s->behind), "allocating");
    s->memory = memory;
    return s;
}

void *
simt_device_take(const void *host, uint64_t bytes, uint64_t begin, bool is_output)
{
    uint8_t fence[2 * FENCE];
    stand_in *s;

    if (host == NULL)
        return NULL;
    s = add(bytes, FENCE + (uintptr_t)host % FENCE);
    s->host = (void *)(uintptr_t)host;
    s->begin = begin;
    s->is_output = is_output;
    memset(fence, FENCE_BYTE, sizeof fence);
    copy(s->memory, fence, s->front, BERTHI_COPY_TO_DEVICE);
    copy(s->memory + s->front + bytes, fence, s->behind, BERTHI_COPY_TO_DEVICE);
    copy(s->memory + s->front + begin, (const uint8_t *)host + begin, bytes - begin,
         BERTHI_COPY_TO_DEVICE);
    return s->memory + s->front;
}

void *
simt_device_scratch(uint64_t bytes)
{
    return add(bytes, 0)->memory;
}

/* ---------------------------------------------------------------------------- running */

static void
check_fence(const uint8_t *memory, uint64_t bytes)
{
    uint8_t fence[2 * FENCE];
    uint64_t whole = 0;

    copy(fence, memory, bytes, BERTHI_COPY_TO_HOST);
    for (uint64_t i = 0; i < bytes; i++)
        whole += fence[i] == FENCE_BYTE;
    CHECK_EQ(whole, bytes);
}

static void
give_back(const stand_in *s)
{
    if (s->host != NULL) {
        check_fence(s->memory, s->front);
        check_fence(s->memory + s->front + s->bytes, s->behind);
    }
    if (s->is_output)
        copy((uint8_t *)s->host + s->begin, s->memory + s->front + s->begin,
             s->bytes - s->begin, BERTHI_COPY_TO_HOST);
    require(device.calls->free(s->memory), "giving back");
}

void
simt_device_run(const berthi_launch *launches, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (launches[i].kernel != KERNEL_NONE) {
            if (launches[i].room_bytes > 0)
                require(device.calls->allow_room(launches[i].kernel, launches[i].room_bytes),
                        "shared memory");
            require(device.calls->launch(&launches[i], device.tiles,
                                         berthi_launch_overlaps(device.capability), NULL),
                    "a launch");
            device.has_run[launches[i].kernel] = true;
        }
    require(device.calls->synchronize(), "a kernel");
    for (uint32_t i = 0; i < device.count; i++)
        give_back(&device.stand_ins[i]);
    device.count = 0;
    device.runs++;
}
