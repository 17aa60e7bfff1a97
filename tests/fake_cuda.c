/* SPDX-License-Identifier: Apache-2.0 */
/* fake_cuda.c - the machine, and what tests ask of it; see fake_cuda.h */
#include <stdlib.h>
#include <string.h>

#include "tests/fake_cuda_state.h"
#include "tests/fake_gemm.h"
#include "tests/fake_nvml.h"
#include "tests/t.h"

#define FIRST_DEVICE 1000 /* the driver's number of the first GPU */

/* ------------------------------------------------------------- calls about the machine */

static const char *
fake_error_words(int error)
{
    return error == BERTHI_CUDA_NO_MEMORY         ? "out of memory"
           : error == BERTHI_CUDA_ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
                                                  : "an error of the fake runtime";
}

static int
fake_last_error(void)
{
    const int code = fake_cuda_error;

    fake_cuda_error = BERTHI_CUDA_OK;
    return code;
}

static int
fake_driver_version(int *out)
{
    const int code = fake_cuda_enter();

    *out = code == BERTHI_CUDA_OK ? fake_cuda_now.machine.driver : 0;
    return fake_cuda_leave(code);
}

static int
fake_device_count(int *out)
{
    int code = fake_cuda_enter();

    if (code == BERTHI_CUDA_OK && fake_cuda_now.machine.driver < 13000)
        code = BERTHI_CUDA_OLD_DRIVER;
    *out = code == BERTHI_CUDA_OK ? (int)fake_cuda_now.machine.count : 0;
    return fake_cuda_leave(code);
}

static int
fake_device_properties(int device, berthi_cuda_properties *out)
{
    const int code = fake_cuda_enter();

    memset(out, 0, sizeof *out);
    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if (device < 0 || (uint32_t)device >= fake_cuda_now.machine.count)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_DEVICE));
    memcpy(out->name, "Fake GPU", sizeof "Fake GPU");
    for (size_t i = 0; i < sizeof out->uuid; i++)
        out->uuid[i] = (uint8_t)(0xA0 + 0x10 * device + (int)i);
    out->pci_bus = 0x3B + device;
    out->major = fake_cuda_now.machine.architecture / 10;
    out->minor = fake_cuda_now.machine.architecture % 10;
    out->numa_node = device % 2;
    out->processors = 132;
    out->copy_engines = 3;
    out->room_bytes = fake_cuda_most_room();
    out->memory_bytes = fake_cuda_now.machine.memory_bytes;
    return fake_cuda_leave(BERTHI_CUDA_OK);
}

static int
fake_get_device(int *out)
{
    const int code = fake_cuda_enter_choice();

    if (code == BERTHI_CUDA_OK)
        *out = fake_cuda_device;
    return fake_cuda_leave(code);
}

static int
fake_set_device(int device)
{
    int code = fake_cuda_enter_choice();

    if (device < 0 || (uint32_t)device >= fake_cuda_now.machine.count)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_DEVICE));
    if (code == BERTHI_CUDA_OK || fake_cuda_now.is_half)
        fake_cuda_make_current(device);
    if (code == BERTHI_CUDA_OK)
        code = fake_cuda_now.ended[device];
    fake_cuda_now.books.switches++;
    return fake_cuda_leave(code);
}

/* --------------------------------------------------------------------- calls of the driver */

/* A GPU's context is where its number is. */
static int
fake_context_current(void **out)
{
    const int code = fake_cuda_enter_choice();
    const int number = fake_cuda_device + (fake_cuda_has_other ? (int)FAKE_CUDA_GPUS : 0);

    *out = code == BERTHI_CUDA_OK && fake_cuda_has_context ? &fake_cuda_now.contexts[number]
                                                           : NULL;
    return fake_cuda_leave(code);
}

static int
fake_context_make_current(void *context)
{
    const int code = fake_cuda_enter_choice();
    const int *const its = context;
    const int number = its != NULL ? (int)(its - fake_cuda_now.contexts) : 0;
    const int device = number % (int)FAKE_CUDA_GPUS;

    if (its != NULL && !fake_cuda_now.books.has_context[device])
        return fake_cuda_leave(fake_cuda_misuse(INVALID_CONTEXT));
    fake_cuda_now.books.switches++;
    if (code != BERTHI_CUDA_OK && !fake_cuda_now.is_half)
        return fake_cuda_leave(code);
    if (its != NULL)
        fake_cuda_use_context(device);
    fake_cuda_has_context = its != NULL;
    fake_cuda_has_other = number != device;
    if (its == NULL)
        fake_cuda_device = fake_cuda_chosen;
    return fake_cuda_leave(code);
}

/* Not the runtime's numbers. */
static int
fake_context_find_device(int *out, int ordinal)
{
    const int code = fake_cuda_enter_choice();

    *out = code == BERTHI_CUDA_OK ? FIRST_DEVICE + ordinal : -1;
    return fake_cuda_leave(code);
}

static int
fake_context_retain(void **out, int device)
{
    const int code = fake_cuda_enter_choice();
    const int ordinal = device - FIRST_DEVICE;

    *out = NULL;
    if (ordinal < 0 || (uint32_t)ordinal >= fake_cuda_now.machine.count)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_DEVICE));
    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    fake_cuda_now.books.has_context[ordinal] = true;
    *out = &fake_cuda_now.contexts[ordinal];
    return fake_cuda_leave(BERTHI_CUDA_OK);
}

static bool
fake_find_contexts(berthi_cuda_contexts *out)
{
    *out = (berthi_cuda_contexts){ .current = fake_context_current,
                                   .make_current = fake_context_make_current,
                                   .find_device = fake_context_find_device,
                                   .retain = fake_context_retain };
    return true;
}

void
fake_cuda_tiles(void)
{
    (void)fake_cuda_misuse(INVALID_VALUE); /* it is the launch that calls it */
}

static bool
fake_find_tiles(berthi_cuda_tiles **out)
{
    *out = fake_cuda_tiles;
    return true;
}

static int
fake_synchronize(void)
{
    const int code = fake_cuda_enter_current();

    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if (fake_cuda_check_all_captures() != BERTHI_CUDA_OK)
        return fake_cuda_leave(CAPTURE_UNSUPPORTED);
    while (fake_cuda_can_step())
        ;
    return fake_cuda_leave(fake_cuda_now.ended[fake_cuda_device]);
}

static berthi_cuda_calls all_calls;

static void
fill_calls(void)
{
    static const int32_t architectures[] = { 86, 90 };
    static const int32_t ptx[] = { 90 };

    all_calls = (berthi_cuda_calls){
        .runtime_version = 13000,
        .architectures = architectures,
        .architecture_count = 2,
        .ptx = ptx,
        .ptx_count = 1,
        .wide = 90,
        .error_words = fake_error_words,
        .last_error = fake_last_error,
        .driver_version = fake_driver_version,
        .device_count = fake_device_count,
        .device_properties = fake_device_properties,
        .get_device = fake_get_device,
        .set_device = fake_set_device,
        .find_contexts = fake_find_contexts,
        .find_tiles = fake_find_tiles,
        .synchronize = fake_synchronize,
        .open_gemm = fake_gemm_open,
        .open_nvml = fake_nvml_open,
    };
    fake_cuda_fill_memory(&all_calls);
    fake_cuda_fill_streams(&all_calls);
    fake_cuda_fill_captures(&all_calls);
    fake_cuda_fill_copies(&all_calls);
}

const berthi_cuda_calls *
fake_cuda_calls(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, fill_calls);
    return &all_calls;
}

/* ------------------------------------------------------------------- what tests ask for */

static void
free_streams(void)
{
    while (fake_cuda_now.streams != NULL) {
        fake_cuda_line *const s = fake_cuda_now.streams;

        fake_cuda_now.streams = s->next;
        while (s->head != NULL) {
            fake_cuda_work *const i = s->head;

            s->head = i->next;
            free(i);
        }
        free(s);
    }
}

void
fake_cuda_end(void)
{
    free_streams();
    while (fake_cuda_now.events != NULL) {
        fake_cuda_event *const e = fake_cuda_now.events;

        fake_cuda_now.events = e->next;
        free(e);
    }
    while (fake_cuda_now.allocations != NULL) {
        fake_cuda_stretch *const s = fake_cuda_now.allocations;

        fake_cuda_now.allocations = s->next;
        free(s->memory);
        free(s);
    }
    while (fake_cuda_now.pins != NULL)
        free(fake_cuda_take_memory(&fake_cuda_now.pins, fake_cuda_now.pins->memory));
}

void
fake_cuda_begin(const fake_cuda_machine *machine)
{
    fake_cuda_end();
    fake_cuda_now.machine = *machine;
    for (uint32_t i = 0; i < FAKE_CUDA_GPUS; i++) {
        fake_cuda_now.free_bytes[i] = machine->memory_bytes;
        fake_cuda_now.ended[i] = BERTHI_CUDA_OK;
        (void)fake_cuda_add_stream((int)i, true);
    }
    memset(fake_cuda_now.reaches, 0, sizeof fake_cuda_now.reaches);
    fake_cuda_now.books = (fake_cuda_books){ 0 };
    fake_cuda_now.kernel_code = BERTHI_CUDA_OK;
    fake_cuda_now.is_half = false;
    fake_cuda_now.skips_kernels = false;
    fake_cuda_now.is_hung = false;
    fake_cuda_now.is_reusing = false;
    fake_cuda_now.spare_handle = NULL;
    fake_cuda_disarm();
    fake_cuda_make_none_current();
    fake_cuda_error = BERTHI_CUDA_OK;
    fake_cuda_mode = 0;
}

void
fake_cuda_fail(uint64_t nth, int code, bool is_persistent)
{
    fake_cuda_disarm();
    fake_cuda_now.nth = nth;
    fake_cuda_now.code = code;
    fake_cuda_now.is_persistent = is_persistent;
    fake_cuda_now.is_armed = true;
}

void
fake_cuda_fail_within(uint64_t nth, int code)
{
    fake_cuda_fail(nth, code, false);
    fake_cuda_now.is_within = true;
}

void
fake_cuda_fail_half(bool is_half)
{
    fake_cuda_now.is_half = is_half;
}

void
fake_cuda_skip_kernels(void)
{
    fake_cuda_now.skips_kernels = true;
}

void
fake_cuda_disarm(void)
{
    fake_cuda_now.is_armed = false;
    fake_cuda_now.is_within = false;
    fake_cuda_now.is_persistent = false;
    fake_cuda_now.called = 0;
    fake_cuda_now.called_within = 0;
    fake_cuda_now.failures = 0;
}

uint64_t
fake_cuda_called(void)
{
    uint64_t called;

    pthread_mutex_lock(&fake_cuda_now.lock);
    called = fake_cuda_now.called;
    pthread_mutex_unlock(&fake_cuda_now.lock);
    return called;
}

uint64_t
fake_cuda_failures(void)
{
    return fake_cuda_now.failures;
}

void
fake_cuda_hang(bool is_hung)
{
    fake_cuda_now.is_hung = is_hung;
}

void
fake_cuda_hang_stream(const void *stream)
{
    pthread_mutex_lock(&fake_cuda_now.lock);
    fake_cuda_find_stream(stream)->is_hung = true;
    pthread_mutex_unlock(&fake_cuda_now.lock);
}

void
fake_cuda_fail_kernel(int code)
{
    fake_cuda_now.kernel_code = code;
}

void
fake_cuda_leave_error(int code)
{
    fake_cuda_error = code;
}

int
fake_cuda_error_left(void)
{
    return fake_cuda_error;
}

int
fake_cuda_current(void)
{
    return fake_cuda_device;
}

void
fake_cuda_make_current(int device)
{
    fake_cuda_chosen = device;
    fake_cuda_use_context(device);
    fake_cuda_has_other = false;
}

void
fake_cuda_make_none_current(void)
{
    fake_cuda_chosen = 0;
    fake_cuda_device = 0;
    fake_cuda_has_context = false;
    fake_cuda_has_other = false;
}

bool
fake_cuda_has_current(void)
{
    return fake_cuda_has_context;
}

void
fake_cuda_make_other_current(int device)
{
    fake_cuda_make_current(device);
    fake_cuda_has_other = true;
}

bool
fake_cuda_has_other_current(void)
{
    return fake_cuda_has_context && fake_cuda_has_other;
}

fake_cuda_books
fake_cuda_read(void)
{
    fake_cuda_books books;

    pthread_mutex_lock(&fake_cuda_now.lock);
    books = fake_cuda_now.books;
    pthread_mutex_unlock(&fake_cuda_now.lock);
    return books;
}

void
fake_cuda_check_empty(void)
{
    const fake_cuda_books books = fake_cuda_read();

    CHECK_EQ(books.allocations, 0);
    CHECK_EQ(books.pins, 0);
    CHECK_EQ(books.streams, 0);
    CHECK_EQ(books.events, 0);
    CHECK_EQ(books.misuses, 0);
    CHECK_EQ(books.untouched, 0);
    CHECK_EQ(fake_cuda_mode, 0); /* the caller's is again what it was */
}

int
fake_cuda_push(void (*call)(void *user), void *user, void *handle)
{
    int code;

    pthread_mutex_lock(&fake_cuda_now.lock);
    code = fake_cuda_add_work(
        handle, &(fake_cuda_work){ .kind = CALL, .call = call, .user = user });
    pthread_mutex_unlock(&fake_cuda_now.lock);
    return code;
}

bool
fake_cuda_is_on(const void *handle, const void *memory, uint64_t bytes)
{
    bool is_there;

    pthread_mutex_lock(&fake_cuda_now.lock);
    is_there = fake_cuda_holds(handle, memory, bytes);
    pthread_mutex_unlock(&fake_cuda_now.lock);
    return is_there;
}

void *
fake_cuda_stream(void)
{
    return (void *)(uintptr_t)fake_cuda_add_stream(0, false)->handle;
}

void *
fake_cuda_stream_of_thread(void)
{
    fake_cuda_line *const before = fake_cuda_find_stream(BERTHI_CUDA_STREAM_OF_THREAD);

    if (before != NULL)
        before->is_destroyed = true; /* no handle leads to it now */
    fake_cuda_add_stream(0, false)->handle = BERTHI_CUDA_STREAM_OF_THREAD;
    return BERTHI_CUDA_STREAM_OF_THREAD;
}

void
fake_cuda_reuse_handles(bool is_reusing)
{
    fake_cuda_now.is_reusing = is_reusing;
    fake_cuda_now.spare_handle = NULL;
}

bool
fake_cuda_is_pinned(const void *memory)
{
    return fake_cuda_find_memory(fake_cuda_now.pins, memory, 1) != NULL;
}
