/* SPDX-License-Identifier: Apache-2.0 */
/* fake_cuda.c - see fake_cuda.h */
#include "tests/fake_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake_gemm.h"
#include "tests/simt_level.h"
#include "tests/t.h"

#define ALIGNMENT UINT64_C(256)
#define POISON 0xA5
#define INVALID_VALUE 1
#define INVALID_CONFIGURATION 9
#define INVALID_DEVICE 101
#define INVALID_HANDLE 400
#define NOT_REGISTERED 713

typedef struct event {
    struct event *next;
    int device;
    uint64_t recorded; /* how often */
    uint64_t passed;   /* the last of these that has passed */
    bool is_destroyed; /* waits may still be for it */
} event;

typedef enum item_kind { COPY, CLEAR, LAUNCH, RECORD, WAIT, CALL } item_kind;

typedef struct item {
    struct item *next;
    item_kind kind;
    void *to;
    const void *from;
    uint64_t bytes;
    event *event;
    uint64_t generation;
    berthi_launch launch;
    void (*call)(void *user);
    void *user;
} item;

typedef struct stream {
    struct stream *next;
    int device;
    bool is_first;     /* a GPU's own */
    bool is_destroyed; /* its work goes on */
    item *head;
    item *tail;
} stream;

typedef struct stretch {
    struct stretch *next;
    uint8_t *memory;
    uint64_t bytes;
    int device;
} stretch;

static struct {
    pthread_mutex_t lock;
    fake_cuda_machine machine;
    uint64_t free_bytes[FAKE_CUDA_GPUS];
    bool reaches[FAKE_CUDA_GPUS][FAKE_CUDA_GPUS];
    int ended[FAKE_CUDA_GPUS]; /* the error of a GPU that is no more */
    stretch *allocations;
    stretch *pins;
    stream *streams;
    event *events;
    fake_cuda_books books;
    uint64_t called;
    uint64_t failures;
    uint64_t nth;
    int code;
    int kernel_code;
    bool is_armed;
    bool is_persistent;
    bool is_half;
    bool is_hung;
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Thread_local int current;
static _Thread_local int last;

/* -------------------------------------------------------------------------- failures */

static bool
is_end(int code)
{
    return code == BERTHI_CUDA_ECC || (code >= 700 && code < 722 && code != BERTHI_CUDA_PEER_ENABLED
               && code != 712 && code != 713);
}

/* What every call begins with: 0, or what it has to return. The lock is taken. */
static int
begin(void)
{
    const uint64_t call = (pthread_mutex_lock(&fake.lock), fake.called++);

    if (fake.is_armed && (call == fake.nth || (fake.is_persistent && call > fake.nth))) {
        fake.failures++;
        if (is_end(fake.code))
            fake.ended[current] = fake.code;
        return fake.code;
    }
    return BERTHI_CUDA_OK;
}

/* The same for calls about a GPU: one that has ended says so. */
static int
begin_on(int device)
{
    const int code = begin();

    return code != BERTHI_CUDA_OK ? code : fake.ended[device];
}

static int
end(int code)
{
    if (code != BERTHI_CUDA_OK)
        last = code;
    pthread_mutex_unlock(&fake.lock);
    return code;
}

static int
misuse(int code)
{
    fake.books.misuses++;
    return code;
}

/* -------------------------------------------------------------------- work of streams */

static void
do_item(const stream *s, item *i)
{
    switch (i->kind) {
    case COPY: memcpy(i->to, i->from, (size_t)i->bytes); break;
    case CLEAR: memset(i->to, 0, (size_t)i->bytes); break;
    case LAUNCH:
        if (fake.kernel_code != BERTHI_CUDA_OK) {
            fake.ended[s->device] = fake.kernel_code;
            fake.kernel_code = BERTHI_CUDA_OK;
            return;
        }
        fake.books.launches++;
        fake.books.launched[i->launch.kernel]++;
        simt_level_launch(&i->launch);
        break;
    case RECORD: i->event->passed = i->generation; break;
    case CALL: i->call(i->user); break;
    default: break;
    }
}

static bool
can_begin(const stream *s)
{
    const item *const i = s->head;

    return i != NULL
           && (i->kind != WAIT || i->event->passed >= i->generation
               || fake.ended[i->event->device] != BERTHI_CUDA_OK);
}

/* One piece of work of the first stream that has some; that one is then the last. */
static bool
can_step(void)
{
    stream **at = &fake.streams;
    stream *s;
    item *i;

    while (*at != NULL && !can_begin(*at))
        at = &(*at)->next;
    s = *at;
    if (s == NULL || fake.is_hung || (fake.is_persistent && fake.failures > 0))
        return false;
    *at = s->next;
    s->next = NULL;
    for (at = &fake.streams; *at != NULL; at = &(*at)->next)
        ;
    *at = s;
    i = s->head;
    s->head = i->next;
    if (fake.ended[s->device] == BERTHI_CUDA_OK)
        do_item(s, i);
    free(i);
    fake.books.under_way--;
    return true;
}

static void
run_at_once(void)
{
    while (!fake.machine.is_late && can_step())
        ;
}

/* ---------------------------------------------------------------------------- handles */

/* NULL: it is not there. */
static stream *
find_stream(const void *handle)
{
    stream *s = fake.streams;

    while (s != NULL
           && (handle == NULL ? !s->is_first || s->device != current
                              : (const void *)s != handle || s->is_destroyed))
        s = s->next;
    return s;
}

static event *
find_event(const void *handle)
{
    event *e = fake.events;

    while (e != NULL && ((const void *)e != handle || e->is_destroyed))
        e = e->next;
    return e;
}

static stretch *
find_memory(stretch *list, const void *at, uint64_t bytes)
{
    while (list != NULL
           && ((uintptr_t)at < (uintptr_t)list->memory || bytes > list->bytes
               || (uintptr_t)at - (uintptr_t)list->memory > list->bytes - bytes))
        list = list->next;
    return list;
}

/* Takes out what begins there; NULL: nothing does. */
static stretch *
take_memory(stretch **list, const void *at)
{
    stretch *found;

    while (*list != NULL && (*list)->memory != at)
        list = &(*list)->next;
    found = *list;
    if (found != NULL)
        *list = found->next;
    return found;
}

static void
add_memory(stretch **list, void *memory, uint64_t bytes, int device)
{
    stretch *const s = malloc(sizeof *s);

    if (s == NULL)
        abort();
    *s = (stretch){ *list, memory, bytes, device };
    *list = s;
}

static stream *
add_stream(int device, bool is_first)
{
    stream *const s = calloc(1, sizeof *s);

    if (s == NULL)
        abort();
    *s = (stream){ .next = fake.streams, .device = device, .is_first = is_first };
    fake.streams = s;
    return s;
}

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
    const int code = last;

    last = BERTHI_CUDA_OK;
    return code;
}

static int
fake_driver_version(int *out)
{
    const int code = begin();

    *out = code == BERTHI_CUDA_OK ? fake.machine.driver : 0;
    return end(code);
}

static int
fake_device_count(int *out)
{
    int code = begin();

    if (code == BERTHI_CUDA_OK && fake.machine.driver < 13000)
        code = BERTHI_CUDA_OLD_DRIVER;
    *out = code == BERTHI_CUDA_OK ? (int)fake.machine.count : 0;
    return end(code);
}

static int
fake_device_properties(int device, berthi_cuda_properties *out)
{
    const int code = begin();

    memset(out, 0, sizeof *out);
    if (code != BERTHI_CUDA_OK)
        return end(code);
    if (device < 0 || (uint32_t)device >= fake.machine.count)
        return end(misuse(INVALID_DEVICE));
    memcpy(out->name, "Fake GPU", sizeof "Fake GPU");
    for (size_t i = 0; i < sizeof out->uuid; i++)
        out->uuid[i] = (uint8_t)(0xA0 + 0x10 * device + (int)i);
    out->pci_bus = 0x3B + device;
    out->major = fake.machine.architecture / 10;
    out->minor = fake.machine.architecture % 10;
    out->numa_node = device % 2;
    out->processors = 132;
    out->memory_bytes = fake.machine.memory_bytes;
    return end(BERTHI_CUDA_OK);
}

static int
fake_get_device(int *out)
{
    const int code = begin();

    if (code == BERTHI_CUDA_OK)
        *out = current;
    return end(code);
}

static int
fake_set_device(int device)
{
    int code = begin();

    if (device < 0 || (uint32_t)device >= fake.machine.count)
        return end(misuse(INVALID_DEVICE));
    if (code == BERTHI_CUDA_OK || fake.is_half)
        current = device;
    if (code == BERTHI_CUDA_OK)
        code = fake.ended[device];
    fake.books.switches++;
    return end(code);
}

static int
fake_synchronize(void)
{
    const int code = begin_on(current);

    if (code != BERTHI_CUDA_OK)
        return end(code);
    while (can_step())
        ;
    return end(fake.ended[current]);
}

/* ----------------------------------------------------------------------------- memory */

static int
fake_memory_info(uint64_t *out_free, uint64_t *out_total)
{
    const int code = begin_on(current);

    *out_free = code == BERTHI_CUDA_OK ? fake.free_bytes[current] : 0;
    *out_total = fake.machine.memory_bytes;
    return end(code);
}

static int
fake_alloc(void **out, uint64_t bytes)
{
    const int code = begin_on(current);
    const uint64_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

    *out = NULL;
    if (code != BERTHI_CUDA_OK)
        return end(code);
    if (whole < bytes || whole > fake.free_bytes[current])
        return end(BERTHI_CUDA_NO_MEMORY);
    *out = aligned_alloc(ALIGNMENT, (size_t)whole);
    if (*out == NULL)
        abort();
    memset(*out, POISON, (size_t)whole);
    fake.free_bytes[current] -= whole;
    fake.books.allocations++;
    add_memory(&fake.allocations, *out, whole, current);
    return end(BERTHI_CUDA_OK);
}

static int
fake_free(void *memory)
{
    const int code = begin_on(current);
    stretch *const s = take_memory(&fake.allocations, memory);

    if (s == NULL)
        return end(misuse(INVALID_VALUE));
    while (can_step()) /* the runtime waits */
        ;
    fake.free_bytes[s->device] += s->bytes;
    fake.books.allocations--;
    free(s->memory);
    free(s);
    return end(code);
}

static int
fake_pin(void *memory, uint64_t bytes)
{
    const int code = begin_on(current);

    if (code != BERTHI_CUDA_OK)
        return end(code);
    for (const stretch *s = fake.pins; s != NULL; s = s->next)
        if ((uint8_t *)memory < s->memory + s->bytes && s->memory < (uint8_t *)memory + bytes)
            return end(BERTHI_CUDA_REGISTERED);
    add_memory(&fake.pins, memory, bytes, current);
    fake.books.pins++;
    return end(BERTHI_CUDA_OK);
}

static int
fake_unpin(void *memory)
{
    const int code = begin_on(current);
    stretch *const s = take_memory(&fake.pins, memory);

    if (s == NULL)
        return end(misuse(NOT_REGISTERED));
    fake.books.pins--;
    free(s);
    return end(code);
}

/* ------------------------------------------------------------------ streams and events */

static int
fake_stream_create(void **out)
{
    const int code = begin_on(current);

    *out = NULL;
    if (code != BERTHI_CUDA_OK)
        return end(code);
    *out = add_stream(current, false);
    fake.books.streams++;
    return end(BERTHI_CUDA_OK);
}

static int
fake_stream_destroy(void *handle)
{
    const int code = begin();
    stream *const s = handle != NULL ? find_stream(handle) : NULL;

    if (s == NULL)
        return end(misuse(INVALID_HANDLE));
    s->is_destroyed = true;
    fake.books.streams--;
    return end(code != BERTHI_CUDA_OK ? code : fake.ended[s->device]);
}

static int
fake_stream_query(void *handle)
{
    const int code = begin();
    const stream *const s = find_stream(handle);

    if (code != BERTHI_CUDA_OK)
        return end(code);
    if (s == NULL)
        return end(misuse(INVALID_HANDLE));
    if (s->head != NULL)
        (void)can_step();
    if (fake.ended[s->device] != BERTHI_CUDA_OK)
        return end(fake.ended[s->device]);
    return end(s->head == NULL ? BERTHI_CUDA_OK : BERTHI_CUDA_NOT_READY);
}

static int
fake_event_create(void **out)
{
    const int code = begin_on(current);
    event *e;

    *out = NULL;
    if (code != BERTHI_CUDA_OK)
        return end(code);
    e = calloc(1, sizeof *e);
    if (e == NULL)
        abort();
    e->device = current;
    e->next = fake.events;
    fake.events = e;
    fake.books.events++;
    *out = e;
    return end(BERTHI_CUDA_OK);
}

static int
fake_event_destroy(void *handle)
{
    const int code = begin();
    event *const e = find_event(handle);

    if (e == NULL)
        return end(misuse(INVALID_HANDLE));
    e->is_destroyed = true;
    fake.books.events--;
    return end(code != BERTHI_CUDA_OK ? code : fake.ended[e->device]);
}

static int
fake_event_query(void *handle)
{
    const int code = begin();
    const event *const e = find_event(handle);

    if (code != BERTHI_CUDA_OK)
        return end(code);
    if (e == NULL)
        return end(misuse(INVALID_HANDLE));
    if (e->passed < e->recorded)
        (void)can_step();
    if (fake.ended[e->device] != BERTHI_CUDA_OK)
        return end(fake.ended[e->device]);
    return end(e->passed >= e->recorded ? BERTHI_CUDA_OK : BERTHI_CUDA_NOT_READY);
}

/* ------------------------------------------------------------------- asking for work */

/* The last of the stream; at once where the machine is so. */
static int
push(void *handle, const item *what)
{
    stream *const s = find_stream(handle);
    item *const i = malloc(sizeof *i);

    if (i == NULL)
        abort();
    if (s == NULL) {
        free(i);
        return misuse(INVALID_HANDLE);
    }
    *i = *what;
    i->next = NULL;
    if (s->head == NULL)
        s->head = i;
    else
        s->tail->next = i;
    s->tail = i;
    fake.books.under_way++;
    run_at_once();
    return fake.machine.is_late ? BERTHI_CUDA_OK : fake.ended[s->device];
}

/* Streams wait for events of any GPU; of one that has ended that is its error. */
static int
fake_stream_wait(void *handle, void *its)
{
    const int code = begin_on(current);
    event *const e = find_event(its);

    if (code != BERTHI_CUDA_OK)
        return end(code);
    if (e == NULL)
        return end(misuse(INVALID_HANDLE));
    if (fake.ended[e->device] != BERTHI_CUDA_OK)
        return end(fake.ended[e->device]);
    return end(push(handle, &(item){ .kind = WAIT, .event = e, .generation = e->recorded }));
}

static int
fake_event_record(void *its, void *handle)
{
    const int code = begin_on(current);
    const stream *const s = find_stream(handle);
    event *const e = find_event(its);

    if (code != BERTHI_CUDA_OK)
        return end(code);
    if (e == NULL || s == NULL || s->device != e->device)
        return end(misuse(INVALID_HANDLE));
    e->recorded++;
    return end(
        push(handle, &(item){ .kind = RECORD, .event = e, .generation = e->recorded }));
}

/* Whether all of it is memory of the stream's GPU. */
static bool
is_on(const void *handle, const void *at, uint64_t bytes)
{
    const stream *const s = find_stream(handle);
    const stretch *const memory = find_memory(fake.allocations, at, bytes);

    return s != NULL && memory != NULL && memory->device == s->device;
}

static int
fake_copy(void *to, const void *from, uint64_t bytes, int32_t kind, void *handle)
{
    const int code = begin_on(current);

    if (code != BERTHI_CUDA_OK)
        return end(code);
    if ((kind != BERTHI_COPY_TO_HOST && !is_on(handle, to, bytes))
        || (kind != BERTHI_COPY_TO_DEVICE && !is_on(handle, from, bytes)))
        return end(misuse(INVALID_VALUE));
    return end(
        push(handle, &(item){ .kind = COPY, .to = to, .from = from, .bytes = bytes }));
}

/* -------------------------------------------------------------------------------- peers */

static int
fake_peer_can(int *out, int device, int peer)
{
    const int code = begin();

    *out = 0;
    if (code != BERTHI_CUDA_OK)
        return end(code);
    if (device == peer || device < 0 || peer < 0 || (uint32_t)device >= fake.machine.count
        || (uint32_t)peer >= fake.machine.count)
        return end(misuse(INVALID_DEVICE));
    *out = !fake.machine.is_apart;
    return end(BERTHI_CUDA_OK);
}

static int
fake_peer_enable(int peer)
{
    const int code = begin_on(current);

    if (code != BERTHI_CUDA_OK)
        return end(code);
    if (fake.machine.is_apart || peer == current)
        return end(misuse(INVALID_DEVICE));
    if (fake.reaches[current][peer])
        return end(BERTHI_CUDA_PEER_ENABLED);
    fake.reaches[current][peer] = true;
    return end(BERTHI_CUDA_OK);
}

/* The fake takes none that was not enabled; the runtime would go through the host. */
static int
fake_peer_copy(void *to, int to_device, const void *from, int from_device, uint64_t bytes,
               void *handle)
{
    const int code = begin_on(current);
    const stretch *const memory = find_memory(fake.allocations, to, bytes);

    if (code != BERTHI_CUDA_OK)
        return end(code);
    if (from_device != current || !fake.reaches[from_device][to_device] || memory == NULL
        || memory->device != to_device || !is_on(handle, from, bytes))
        return end(misuse(INVALID_VALUE));
    fake.books.peer_copies++;
    return end(push(handle, &(item){ .kind = COPY, .to = to, .from = from, .bytes = bytes }));
}

static int
fake_clear(void *memory, uint64_t bytes, void *handle)
{
    const int code = begin_on(current);

    if (code != BERTHI_CUDA_OK)
        return end(code);
    if (!is_on(handle, memory, bytes))
        return end(misuse(INVALID_VALUE));
    return end(push(handle, &(item){ .kind = CLEAR, .to = memory, .bytes = bytes }));
}

static int
fake_launch(const berthi_launch *its, void *handle)
{
    const int code = begin_on(current);

    if (code != BERTHI_CUDA_OK)
        return end(code);
    if (its->kernel <= KERNEL_NONE || its->kernel >= KERNEL_COUNT || its->ctas == 0
        || its->ctas > BERTHI_MOST_CTAS || its->threads == 0 || its->threads > 1024)
        return end(misuse(INVALID_CONFIGURATION));
    return end(push(handle, &(item){ .kind = LAUNCH, .launch = *its }));
}

static int
fake_call(void (*call)(void *user), void *user, void *handle)
{
    const int code = begin_on(current);

    if (code != BERTHI_CUDA_OK)
        return end(code);
    return end(push(handle, &(item){ .kind = CALL, .call = call, .user = user }));
}

const berthi_cuda_calls *
fake_cuda_calls(void)
{
    static const int32_t architectures[] = { 86, 90 };
    static const berthi_cuda_calls calls = {
        .runtime_version = 13000,
        .architectures = architectures,
        .architecture_count = 2,
        .ptx = 90,
        .error_words = fake_error_words,
        .last_error = fake_last_error,
        .driver_version = fake_driver_version,
        .device_count = fake_device_count,
        .device_properties = fake_device_properties,
        .get_device = fake_get_device,
        .set_device = fake_set_device,
        .synchronize = fake_synchronize,
        .memory_info = fake_memory_info,
        .alloc = fake_alloc,
        .free = fake_free,
        .pin = fake_pin,
        .unpin = fake_unpin,
        .stream_create = fake_stream_create,
        .stream_destroy = fake_stream_destroy,
        .stream_query = fake_stream_query,
        .stream_wait = fake_stream_wait,
        .event_create = fake_event_create,
        .event_destroy = fake_event_destroy,
        .event_record = fake_event_record,
        .event_query = fake_event_query,
        .copy = fake_copy,
        .peer_can = fake_peer_can,
        .peer_enable = fake_peer_enable,
        .peer_copy = fake_peer_copy,
        .clear = fake_clear,
        .launch = fake_launch,
        .call = fake_call,
        .open_gemm = fake_gemm_open,
    };

    return &calls;
}

/* ------------------------------------------------------------------- what tests ask for */

static void
free_streams(void)
{
    while (fake.streams != NULL) {
        stream *const s = fake.streams;

        fake.streams = s->next;
        while (s->head != NULL) {
            item *const i = s->head;

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
    while (fake.events != NULL) {
        event *const e = fake.events;

        fake.events = e->next;
        free(e);
    }
    while (fake.allocations != NULL) {
        stretch *const s = fake.allocations;

        fake.allocations = s->next;
        free(s->memory);
        free(s);
    }
    while (fake.pins != NULL)
        free(take_memory(&fake.pins, fake.pins->memory));
}

void
fake_cuda_begin(const fake_cuda_machine *machine)
{
    fake_cuda_end();
    fake.machine = *machine;
    for (uint32_t i = 0; i < FAKE_CUDA_GPUS; i++) {
        fake.free_bytes[i] = machine->memory_bytes;
        fake.ended[i] = BERTHI_CUDA_OK;
        (void)add_stream((int)i, true);
    }
    memset(fake.reaches, 0, sizeof fake.reaches);
    fake.books = (fake_cuda_books){ 0 };
    fake.kernel_code = BERTHI_CUDA_OK;
    fake.is_half = false;
    fake.is_hung = false;
    fake_cuda_disarm();
    current = 0;
    last = BERTHI_CUDA_OK;
}

void
fake_cuda_fail(uint64_t nth, int code, bool is_persistent)
{
    fake_cuda_disarm();
    fake.nth = nth;
    fake.code = code;
    fake.is_persistent = is_persistent;
    fake.is_armed = true;
}

void
fake_cuda_fail_half(bool is_half)
{
    fake.is_half = is_half;
}

void
fake_cuda_disarm(void)
{
    fake.is_armed = false;
    fake.is_persistent = false;
    fake.called = 0;
    fake.failures = 0;
}

uint64_t
fake_cuda_called(void)
{
    uint64_t called;

    pthread_mutex_lock(&fake.lock);
    called = fake.called;
    pthread_mutex_unlock(&fake.lock);
    return called;
}

uint64_t
fake_cuda_failures(void)
{
    return fake.failures;
}

void
fake_cuda_hang(bool is_hung)
{
    fake.is_hung = is_hung;
}

void
fake_cuda_fail_kernel(int code)
{
    fake.kernel_code = code;
}

void
fake_cuda_leave_error(int code)
{
    last = code;
}

int
fake_cuda_error_left(void)
{
    return last;
}

int
fake_cuda_current(void)
{
    return current;
}

void
fake_cuda_make_current(int device)
{
    current = device;
}

fake_cuda_books
fake_cuda_read(void)
{
    fake_cuda_books books;

    pthread_mutex_lock(&fake.lock);
    books = fake.books;
    pthread_mutex_unlock(&fake.lock);
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
}

int
fake_cuda_push(void (*call)(void *user), void *user, void *handle)
{
    int code;

    pthread_mutex_lock(&fake.lock);
    code = push(handle, &(item){ .kind = CALL, .call = call, .user = user });
    pthread_mutex_unlock(&fake.lock);
    return code;
}

bool
fake_cuda_is_on(const void *handle, const void *memory, uint64_t bytes)
{
    bool is_there;

    pthread_mutex_lock(&fake.lock);
    is_there = is_on(handle, memory, bytes);
    pthread_mutex_unlock(&fake.lock);
    return is_there;
}

void *
fake_cuda_stream(void)
{
    return add_stream(0, false);
}

bool
fake_cuda_is_pinned(const void *memory)
{
    return find_memory(fake.pins, memory, 1) != NULL;
}
