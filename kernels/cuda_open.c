/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_open.c - which GPUs there are and which are meant; see cuda_device.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "kernels/digits.h"
#include "kernels/gemm_lt.h"

#define UUID_CAPACITY 37u     /* 8-4-4-4-12 */
#define KIND_LENGTH 4u        /* of GPU- or MIG-, before it: that of a part of a GPU */
#define NAME_LENGTH 40u       /* of both */
#define FIRST_ARCHITECTURE 70 /* that has arguments of kernels as they are (__grid_constant__) */
#define FIRST_OF_CUDA_13 75   /* for those before, its compiler makes nothing any more */

/* ------------------------------------------------------------------- why there are none */

static berth_status
fail_driver(const berthi_cuda_calls *calls, berth_error *error)
{
    const int32_t needed = calls->runtime_version;
    int driver = 0;

    if (calls->driver_version(&driver) != BERTHI_CUDA_OK)
        (void)calls->last_error();
    if (driver == 0)
        return berthi_fail(error, BERTH_REASON_NO_DEVICE, NULL,
                           "no NVIDIA driver is loaded on this machine");
    return berthi_fail(error, BERTH_REASON_NO_DEVICE, NULL,
                       "the NVIDIA driver is too old: it is for CUDA %d.%d, and this build "
                       "needs %" PRId32 ".%" PRId32,
                       driver / 1000, driver % 1000 / 10, needed / 1000, needed % 1000 / 10);
}

/* At most BERTHI_DEVICES_LIMIT, and at least 1. */
static berth_status
count_devices(const berthi_cuda_calls *calls, uint32_t *out, berth_error *error)
{
    int count = 0;
    const int code = calls->device_count(&count);

    *out = 0;
    if (code != BERTHI_CUDA_OK)
        (void)calls->last_error();
    if (code == BERTHI_CUDA_OLD_DRIVER)
        return fail_driver(calls, error);
    if (code == BERTHI_CUDA_NO_DEVICE || (code == BERTHI_CUDA_OK && count <= 0))
        return berthi_fail(error, BERTH_REASON_NO_DEVICE, NULL,
                           "the NVIDIA driver finds no GPU that this process may use");
    if (code != BERTHI_CUDA_OK)
        return berthi_fail(error, BERTH_REASON_NO_DEVICE, NULL,
                           "the NVIDIA driver gives no GPUs: %s", calls->error_words(code));
    *out = (uint32_t)berthi_min_u64((uint64_t)count, BERTHI_DEVICES_LIMIT);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------------- one GPU */

/* Those of Tegra (Xavier, Orin, Thor) run no machine code of others, and others none of theirs. */
static bool
stands_alone(int32_t architecture)
{
    return architecture == 72 || architecture == 87 || architecture == 101;
}

/*
 * Machine code runs on later devices of the same generation, the latest that can; 0: there
 * is none.
 */
static int32_t
find_machine_code(const berthi_cuda_calls *calls, int32_t its)
{
    int32_t found = 0;

    for (uint32_t i = 0; i < calls->architecture_count; i++) {
        const int32_t code = calls->architectures[i];

        if (code == its
            || (code / 10 == its / 10 && code < its && !stands_alone(code)
                && !stands_alone(its)))
            found = code;
    }
    return found;
}

/* The driver makes machine code of PTX for all later ones; 0: there is none. */
static int32_t
find_ptx(const berthi_cuda_calls *calls, int32_t its)
{
    int32_t found = 0;

    for (uint32_t i = 0; i < calls->ptx_count; i++)
        if (calls->ptx[i] <= its)
            found = calls->ptx[i];
    return found;
}

const char *
berthi_cuda_advise(const berthi_cuda_calls *calls, int32_t architecture,
                   char out[BERTHI_CUDA_ADVICE])
{
    const bool is_over = architecture < FIRST_OF_CUDA_13 && calls->runtime_version >= 13000;

    if (architecture < FIRST_ARCHITECTURE)
        snprintf(out, BERTHI_CUDA_ADVICE, "there are none for GPUs before sm_%d",
                 FIRST_ARCHITECTURE);
    else
        snprintf(out, BERTHI_CUDA_ADVICE, "make CUDA=1 ARCH=%" PRId32 "%s builds them",
                 architecture, is_over ? " with CUDA 12" : "");
    return out;
}

/* Said once of each architecture: devices are opened as often as somebody needs them. */
static void
tell_missing(const berthi_cuda_device *device, int32_t its, int32_t ptx)
{
    berth_context *const context = device->base.context;
    char advice[BERTHI_CUDA_ADVICE];
    const size_t most = sizeof context->is_kernel_missed / sizeof *context->is_kernel_missed;

    if (atomic_exchange(&context->is_kernel_missed[(size_t)its % most], true))
        return;
    if (device->has_kernels)
        berthi_log(context, BERTH_LOG_WARNING,
                   "%s: no kernels for sm_%" PRId32 " are built in: the driver makes them "
                   "from PTX of sm_%" PRId32 ", which takes a while at the first operation",
                   device->name, its, ptx);
    else
        berthi_log(context, BERTH_LOG_WARNING,
                   "%s: no kernels for sm_%" PRId32 " are built in: it holds weights, and "
                   "computes nothing; %s",
                   device->name, its, berthi_cuda_advise(device->machine->calls, its, advice));
}

static void
note_kernels(berthi_cuda_device *device)
{
    const berthi_cuda_calls *const calls = device->machine->calls;
    const berthi_cuda_properties *const p = &device->properties;
    const int32_t its = p->major * 10 + p->minor;
    const int32_t code = find_machine_code(calls, its);
    const int32_t ptx = code == 0 ? find_ptx(calls, its) : 0;

    device->has_kernels = code != 0 || ptx != 0;
    /* PTX of an older one has no products of tensor cores that this one has. */
    device->capability = (uint32_t)(code != 0 ? code : ptx);
    if (code == 0)
        tell_missing(device, its, ptx);
}

static berth_status
read_properties(const berthi_cuda_calls *calls, uint32_t ordinal,
                berthi_cuda_properties *out, berth_error *error)
{
    const int code = calls->device_properties((int)ordinal, out);

    if (code == BERTHI_CUDA_OK)
        return BERTH_OK;
    (void)calls->last_error();
    return berthi_fail(error, BERTH_REASON_DEVICE, NULL, "cuda:%" PRIu32 ": its properties: %s",
                       ordinal, calls->error_words(code));
}

static berth_status
add_device(berthi_cuda *machine, uint32_t ordinal, berth_error *error)
{
    berthi_cuda_device *device;
    berth_status status;

    for (uint32_t i = 0; i < machine->count; i++)
        if (machine->devices[i]->base.ordinal == (int32_t)ordinal)
            return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                               "cuda:%" PRIu32 " is asked for twice", ordinal);
    device = berthi_memory_zalloc(machine->context, BERTHI_PURPOSE_OBJECT, sizeof *device);
    if (device == NULL)
        return berthi_fail_memory(error, "opening a GPU");
    machine->devices[machine->count] = device;
    device->base = (berthi_device){
        .table = &berthi_cuda_table, .context = machine->context, .number = machine->count,
        .ordinal = (int32_t)ordinal
    };
    machine->count++;
    device->machine = machine;
    snprintf(device->name, sizeof device->name, "cuda:%" PRIu32, ordinal);
    device->has_lock = pthread_mutex_init(&device->lock, NULL) == 0;
    device->has_peer_lock = pthread_mutex_init(&device->peer_lock, NULL) == 0;
    if (!device->has_lock || !device->has_peer_lock)
        return berthi_fail_memory(error, "opening a GPU");
    status = read_properties(machine->calls, ordinal, &device->properties, error);
    if (status == BERTH_OK)
        note_kernels(device);
    return status;
}

/* --------------------------------------------------------------------------------- words */

/* A number without a sign or more digits than it needs; false: something else. */
static bool
is_number(const char *text, size_t length, uint64_t *out)
{
    return berthi_digits_can_parse(text, length, 9999, out)
           && (text[0] != '0' || length == 1);
}

static void
format_uuid(const berthi_cuda_properties *p, char *out)
{
    static const char digits[] = "0123456789abcdef";
    size_t at = 0;

    for (size_t i = 0; i < sizeof p->uuid; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            out[at++] = '-';
        out[at++] = digits[p->uuid[i] >> 4];
        out[at++] = digits[p->uuid[i] & 15];
    }
    out[at] = '\0';
}

static bool
has_kind(const char *text, size_t length)
{
    return length > KIND_LENGTH
           && (strncmp(text, "GPU-", KIND_LENGTH) == 0 || strncmp(text, "MIG-", KIND_LENGTH) == 0);
}

/*
 * Of a part of a GPU (MIG) the runtime tells that part's, and not that it is one: the kind is the
 * driver's word for it.
 */
static bool
is_uuid(const berthi_cuda_properties *p, const char *text, size_t length)
{
    char own[UUID_CAPACITY];

    format_uuid(p, own);
    return has_kind(text, length) && length - KIND_LENGTH == strlen(own)
           && strncasecmp(text + KIND_LENGTH, own, length - KIND_LENGTH) == 0;
}

/* "0000:3b:00.0", with any number of leading zeros: as the tools of the driver print it. */
static bool
is_address(const berthi_cuda_properties *p, const char *text, size_t length)
{
    char own[32];
    const int own_length =
        snprintf(own, sizeof own, "%" PRIx32 ":%02" PRIx32 ":%02" PRIx32 ".0",
                 (uint32_t)p->pci_domain, (uint32_t)p->pci_bus, (uint32_t)p->pci_device);
    size_t zeros = 0;

    while (zeros + 1 < length && text[zeros] == '0' && text[zeros + 1] != ':')
        zeros++;
    return length - zeros == (size_t)own_length
           && strncasecmp(text + zeros, own, length - zeros) == 0;
}

/* One by UUID or address. Others may say nothing of themselves, as long as it is found. */
static berth_status
add_named(berthi_cuda *machine, uint32_t count, const char *text, size_t length,
          berth_error *error)
{
    berth_status first = BERTH_OK;

    for (uint32_t i = 0; i < count; i++) {
        berthi_cuda_properties p;
        const berth_status status =
            read_properties(machine->calls, i, &p, first == BERTH_OK ? error : NULL);

        if (status == BERTH_OK && (is_uuid(&p, text, length) || is_address(&p, text, length))) {
            berthi_error_clear(error);
            return add_device(machine, i, error);
        }
        if (first == BERTH_OK)
            first = status;
    }
    if (first != BERTH_OK)
        return first;
    return berthi_fail(error, BERTH_REASON_NO_DEVICE, NULL,
                       "none of the %" PRIu32 " GPUs of this machine is %.*s", count,
                       (int)berthi_min_u64(length, NAME_LENGTH + 1), text);
}

static berth_status
add_all(berthi_cuda *machine, uint32_t count, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = add_device(machine, i, error);
    return status;
}

/* What looks like a UUID or an address, which no other word does. */
static bool
is_name(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (strchr("0123456789abcdefABCDEFGPUMI-:.", text[i]) == NULL)
            return false;
    return has_kind(text, length)
           || (memchr(text, ':', length) != NULL && memchr(text, '.', length) != NULL);
}

static berth_status
add_word(berthi_cuda *machine, uint32_t count, const char *word, size_t length,
         berth_error *error)
{
    const size_t prefix = strlen("cuda:");
    const bool is_prefixed = length >= prefix && strncmp(word, "cuda:", prefix) == 0;
    const char *const text = is_prefixed ? word + prefix : word;
    const size_t rest = is_prefixed ? length - prefix : length;
    uint64_t number;

    if (length == strlen("cuda") && strncmp(word, "cuda", length) == 0)
        return add_all(machine, count, error);
    if (is_prefixed && is_number(text, rest, &number)) {
        if (number < count)
            return add_device(machine, (uint32_t)number, error);
        return berthi_fail(error, BERTH_REASON_NO_DEVICE, NULL,
                           "cuda:%" PRIu64 ": this machine has %" PRIu32 " GPU%s", number,
                           count, count == 1 ? "" : "s");
    }
    if (is_name(text, rest))
        return add_named(machine, count, text, rest, error);
    return berthi_words_refuse(error, word, length,
                               "is none of cuda, cuda:0, GPU-UUID and cuda:0000:3b:00.0");
}

static berth_status
add_words(berthi_cuda *machine, uint32_t count, const char *words, berth_error *error)
{
    berth_status status;
    size_t length;

    do {
        length = strcspn(words, ";");
        status = add_word(machine, count, words, length, error);
        words += length + 1;
    } while (status == BERTH_OK && words[-1] == ';');
    return status;
}

/* ----------------------------------------------------------------------- opening, closing */

/* A driver may be older than the runtime, as long as it is of the same generation. */
static bool
may_overlap(const berthi_cuda_calls *calls)
{
    int driver = 0;

    if (calls->driver_version(&driver) == BERTHI_CUDA_OK)
        return calls->runtime_version >= BERTHI_CUDA_OVERLAPPING_VERSION
               && driver >= BERTHI_CUDA_OVERLAPPING_VERSION;
    (void)calls->last_error();
    return false;
}

berth_status
berthi_cuda_open(berth_context *context, const berthi_cuda_calls *calls, const char *words,
                 berthi_cuda **out, berth_error *error)
{
    berthi_cuda *const machine =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *machine);
    berth_status status;
    uint32_t count = 0;

    *out = NULL;
    if (machine == NULL)
        return berthi_fail_memory(error, "opening GPUs");
    machine->context = context;
    machine->calls = calls;
    machine->pins_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    machine->links_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    machine->has_pin_lock = pthread_mutex_init(&machine->pin_lock, NULL) == 0;
    status = machine->has_pin_lock ? count_devices(calls, &count, error)
                                   : berthi_fail_memory(error, "opening GPUs");
    if (status == BERTH_OK) {
        machine->has_contexts = calls->find_contexts(&machine->contexts);
        (void)calls->find_tiles(&machine->tiles);
        status = add_words(machine, count, words, error);
        machine->may_overlap = may_overlap(calls);
    }
    if (status != BERTH_OK) {
        berthi_cuda_close(machine);
        return status;
    }
    *out = machine;
    return BERTH_OK;
}

/* Streams that nobody has given back are the runtime's still; what berth knows of them ends. */
static void
close_device(berthi_cuda_device *device)
{
    berthi_gemm_destroy(device->gemm);
    while (device->streams != NULL) {
        berthi_cuda_stream *const stream = device->streams;

        device->streams = stream->next;
        berthi_memory_free(device->base.context, BERTHI_PURPOSE_OBJECT, stream,
                           sizeof *stream);
    }
    if (device->has_lock)
        pthread_mutex_destroy(&device->lock);
    if (device->has_peer_lock)
        pthread_mutex_destroy(&device->peer_lock);
    berthi_memory_free(device->base.context, BERTHI_PURPOSE_OBJECT, device, sizeof *device);
}

void
berthi_cuda_close(berthi_cuda *machine)
{
    if (machine == NULL)
        return;
    for (uint32_t i = 0; i < machine->count; i++)
        close_device(machine->devices[i]);
    berthi_cuda_pin_fini(machine);
    if (machine->has_pin_lock)
        pthread_mutex_destroy(&machine->pin_lock);
    pthread_mutex_destroy(&machine->pins_lock);
    pthread_mutex_destroy(&machine->links_lock);
    berthi_memory_free(machine->context, BERTHI_PURPOSE_OBJECT, machine, sizeof *machine);
}

uint32_t
berthi_cuda_count(const berthi_cuda *machine)
{
    return machine->count;
}

berthi_device *
berthi_cuda_at(berthi_cuda *machine, uint32_t number)
{
    return &machine->devices[number]->base;
}
