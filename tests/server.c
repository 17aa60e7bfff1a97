/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.c - the loop, its engine, and how long the loop was away; see server.h.
 *
 *   requests ─▶ loop ──order──▶ engine (opens, plans, passes, gives back)
 *                │  ◀──done pipe──┘
 *                ├─▶ berth_load_start ─▶ job ─▶ its descriptor ─▶ berth_load_finish
 *                └─▶ a timer of 1 ms: the loop is there
 */
#define _GNU_SOURCE

#include "tests/server.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "loader/berth.h"

#define LINE 1024u
#define WAIT_MS 2000u

typedef enum order { NONE, DEVICES, OPEN, PASS, DIGEST, UNLOAD, END } order;

typedef struct server {
    int requests;
    int answers;
    int epoll;
    int timer;
    int done[2]; /* the engine writes a byte when it has done what it was told */
    bool is_over;
    bool is_cancelled; /* the load that is being prepared */
    char input[LINE];
    size_t input_length;

    /* The engine's while it has an order, else the loop's. */
    char argument[LINE]; /* of the order */
    char memory[128];
    char answer[LINE + 64];
    berth_context *context;
    berth_devices *devices;
    berth_checkpoint *checkpoint;
    berth_plan *plan;
    berth_model *model;
    berth_job *job; /* the loop's */
    berth_status status;
    berth_error error;

    pthread_mutex_t lock;
    pthread_cond_t has_order;
    order given;
    bool is_busy; /* the loop's: an order or a job is under way */

    const char *step; /* of the loop: what takes its time */
    const char *longest_step;
    uint64_t longest_ns;
} server;

/* ---------------------------------------------------------------------- its time */

typedef struct moment {
    uint64_t wall_ns;
    uint64_t cpu_ns;
    long waits; /* voluntary: the thread slept in a call */
} moment;

static uint64_t
clock_ns(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static moment
now(void)
{
    struct rusage usage;

    (void)getrusage(RUSAGE_THREAD, &usage);
    return (moment){clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_THREAD_CPUTIME_ID),
                    usage.ru_nvcsw};
}

/* A step that never slept was at worst preempted: not by what it called. */
static void
charge(server *s, const moment *begin)
{
    const moment end = now();
    const uint64_t wall_ns = end.wall_ns - begin->wall_ns;
    const uint64_t cpu_ns = end.cpu_ns - begin->cpu_ns;
    const uint64_t taken_ns = end.waits > begin->waits ? wall_ns : cpu_ns;

    if (taken_ns <= s->longest_ns)
        return;
    s->longest_ns = taken_ns;
    s->longest_step = s->step;
}

/* ------------------------------------------------------------------------- answers */

__attribute__((format(printf, 2, 3))) static void
answer(server *s, const char *format, ...)
{
    char line[LINE + 128];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line - 1)
        return;
    line[length++] = '\n';
    if (write(s->answers, line, (size_t)length) != length)
        s->is_over = true;
}

static void
answer_status(server *s, const char *ok)
{
    if (s->status == BERTH_OK)
        answer(s, "%s", ok);
    else
        answer(s, "failed %s %s %s", berth_status_name(s->status),
               berth_reason_name(s->error.reason),
               s->error.file[0] != '\0' ? s->error.file : "-");
}

/* -------------------------------------------------------------------------- engine */

static void
open_devices(server *s)
{
    berth_devices_close(s->devices);
    s->devices = NULL;
    s->status = berth_devices_open(s->context, s->argument, &s->devices, &s->error);
}

static void
give_back(server *s)
{
    berth_model_destroy(s->model);
    berth_plan_destroy(s->plan);
    berth_checkpoint_close(s->checkpoint);
    s->model = NULL;
    s->plan = NULL;
    s->checkpoint = NULL;
}

static void
open_model(server *s)
{
    berth_plan_options options;

    if (s->plan != NULL)
        give_back(s);
    berth_plan_options_init(&options);
    options.max_memory = s->memory;
    options.reserve_share = BERTH_RESERVE_NONE;
    options.context = 0;
    s->status =
        berth_checkpoint_open(s->context, s->argument, NULL, &s->checkpoint, &s->error);
    if (s->status == BERTH_OK)
        s->status = berth_plan_create(s->context, s->checkpoint, &options, &s->plan,
                                      &s->error);
    if (s->status != BERTH_OK)
        give_back(s);
}

/* What a layer's bytes come to, on the device and in its order. */
typedef struct summing {
    server *server;
    uint32_t layer;
    uint64_t berths;
    uint64_t sum;
} summing;

static void
add_part(summing *all, const berth_model_part *part)
{
    const uint8_t *const bytes = part->memory;
    uint64_t sum = all->sum;

    for (uint64_t i = 0; bytes != NULL && i < part->bytes; i += 64)
        sum = (sum ^ bytes[i]) * UINT64_C(1099511628211);
    all->sum = sum;
}

/* The first tensors of the layer: reading every byte would only take time. */
static void
find_parts(summing *all, berth_model_part *parts, uint32_t capacity, uint32_t *count)
{
    for (uint64_t i = 0; i < all->berths && *count < capacity; i++) {
        berth_model_tensor tensor;

        if (berth_model_get_tensor(all->server->model, i, &tensor) == BERTH_OK &&
            tensor.layer == all->layer && tensor.part_count > 0)
            parts[(*count)++] = tensor.parts[0];
    }
}

typedef struct layer_work {
    summing *all;
    uint32_t count;
    berth_model_part parts[16];
} layer_work;

static void
sum_layer(void *user)
{
    layer_work *const work = user;

    for (uint32_t i = 0; i < work->count; i++)
        add_part(work->all, &work->parts[i]);
}

static void
use_layer(server *s, summing *all, layer_work *work, uint32_t layer)
{
    all->layer = layer;
    work->all = all;
    work->count = 0;
    s->status = berth_layer_acquire(s->model, layer, NULL, &s->error);
    if (s->status != BERTH_OK)
        return;
    find_parts(all, work->parts, 16, &work->count);
    s->status = berth_stream_call(s->devices, 0, NULL, sum_layer, work, 1e-5, &s->error);
    if (s->status == BERTH_OK)
        s->status = berth_layer_release(s->model, layer, NULL, &s->error);
    if (s->status == BERTH_OK)
        s->status = berth_stream_wait(s->devices, 0, NULL, WAIT_MS, &s->error);
}

static void
pass(server *s)
{
    const long count = strtol(s->argument, NULL, 10);
    layer_work *const work = calloc(1, sizeof *work);
    berth_plan_summary summary;
    summing all = {.server = s};

    s->status = BERTH_ENOENT;
    if (s->model == NULL || work == NULL) {
        free(work);
        return;
    }
    s->status = BERTH_OK;
    berth_plan_get(s->plan, &summary);
    all.berths = summary.berth_count;
    for (long i = 0; i < count && s->status == BERTH_OK; i++) {
        all.sum = UINT64_C(14695981039346656037);
        for (uint32_t layer = 0; layer < summary.layer_count && s->status == BERTH_OK;
             layer++)
            use_layer(s, &all, work, layer);
    }
    /* What failed was perhaps asked for all the same: `work` must not be in use. */
    if (s->status != BERTH_OK)
        (void)berth_stream_wait(s->devices, 0, NULL, WAIT_MS, NULL);
    free(work);
    (void)snprintf(s->answer, sizeof s->answer, "passed %llu",
                   (unsigned long long)all.sum);
}

static void
digest(server *s)
{
    berth_plan_summary summary;
    uint64_t sum = 0;

    s->status = s->model != NULL ? BERTH_OK : BERTH_ENOENT;
    if (s->model == NULL)
        return;
    berth_plan_get(s->plan, &summary);
    for (uint64_t i = 0; i < summary.berth_count && s->status == BERTH_OK; i++) {
        uint32_t crc;

        s->status = berth_model_digest(s->model, i, &crc, &s->error);
        sum = sum * 31 + crc;
    }
    (void)snprintf(s->answer, sizeof s->answer, "digest %llu", (unsigned long long)sum);
}

static void
obey(server *s, order what)
{
    s->status = BERTH_OK;
    memset(&s->error, 0, sizeof s->error);
    (void)snprintf(s->answer, sizeof s->answer, "ok");
    switch (what) {
    case DEVICES: open_devices(s); break;
    case OPEN: open_model(s); break;
    case PASS: pass(s); break;
    case DIGEST: digest(s); break;
    case UNLOAD: give_back(s); break;
    case NONE:
    case END: break;
    }
}

static void *
run_engine(void *argument)
{
    server *const s = argument;
    order what = NONE;

    while (what != END) {
        char name;

        pthread_mutex_lock(&s->lock);
        while (s->given == NONE)
            pthread_cond_wait(&s->has_order, &s->lock);
        what = s->given;
        pthread_mutex_unlock(&s->lock);
        obey(s, what);
        pthread_mutex_lock(&s->lock);
        s->given = NONE;
        pthread_mutex_unlock(&s->lock);
        name = (char)what;
        if (write(s->done[1], &name, 1) != 1)
            break;
    }
    return NULL;
}

static void
give_order(server *s, order what)
{
    pthread_mutex_lock(&s->lock);
    s->given = what;
    pthread_cond_signal(&s->has_order);
    pthread_mutex_unlock(&s->lock);
    s->is_busy = true;
}

/* ---------------------------------------------------------------------------- loop */

static bool
can_watch(server *s, int descriptor)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};

    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

static void
start_load(server *s)
{
    berth_load_options options;
    int descriptor;

    s->step = "berth_load_start";
    berth_load_options_init(&options);
    options.devices = s->devices;
    options.wait_ms = WAIT_MS;
    s->status = berth_load_start(s->context, s->checkpoint, s->plan, &options, &s->job,
                                 &s->error);
    if (s->status == BERTH_OK && s->is_cancelled)
        berth_job_cancel(s->job);
    if (s->status == BERTH_OK)
        s->status = berth_job_descriptor(s->job, &descriptor, &s->error);
    if (s->status == BERTH_OK && can_watch(s, descriptor))
        return;
    (void)berth_job_finish(s->job, NULL);
    s->job = NULL;
    give_order(s, UNLOAD);
    answer_status(s, "ok");
}

static void
end_load(server *s)
{
    s->step = "berth_load_finish";
    s->status = berth_load_finish(s->job, &s->model, &s->error);
    s->job = NULL;
    s->is_busy = false;
    answer_status(s, "ok");
}

static void
end_order(server *s)
{
    char what;

    s->step = "the end of an order";
    if (read(s->done[0], &what, 1) != 1)
        return;
    s->is_busy = false;
    if (what == OPEN && s->status == BERTH_OK) {
        start_load(s);
        s->is_busy = s->job != NULL || s->is_busy;
    } else if (what != END) {
        answer_status(s, s->answer);
    }
}

/* Seconds, by the engine alone: the loop only notes it. */
static void
cancel(server *s)
{
    s->step = "berth_job_cancel";
    s->is_cancelled = true;
    if (s->job != NULL)
        berth_job_cancel(s->job);
}

static void
begin(server *s, order what, const char *argument)
{
    s->step = "a request";
    if (s->is_busy) {
        answer(s, "busy");
        return;
    }
    (void)snprintf(s->argument, sizeof s->argument, "%s", argument);
    s->is_cancelled = false;
    give_order(s, what);
}

static void
obey_request(server *s, char *line)
{
    char *const blank = strchr(line, ' ');
    char *argument = blank != NULL ? blank + 1 : line + strlen(line);

    if (blank != NULL)
        *blank = '\0';
    if (strcmp(line, "load") == 0 && strchr(argument, ' ') != NULL && !s->is_busy) {
        char *const folder = strchr(argument, ' ');

        *folder = '\0';
        (void)snprintf(s->memory, sizeof s->memory, "%s", argument);
        argument = folder + 1;
    }
    if (strcmp(line, "cancel") == 0)
        cancel(s);
    else if (strcmp(line, "quit") == 0)
        s->is_over = true;
    else
        begin(s,
              strcmp(line, "devices") == 0  ? DEVICES
              : strcmp(line, "load") == 0   ? OPEN
              : strcmp(line, "pass") == 0   ? PASS
              : strcmp(line, "digest") == 0 ? DIGEST
                                            : UNLOAD,
              argument);
}

static void
read_requests(server *s)
{
    const ssize_t got = read(s->requests, s->input + s->input_length,
                             sizeof s->input - 1 - s->input_length);
    char *end;

    if (got <= 0)
        s->is_over = true;
    else
        s->input_length += (size_t)got;
    s->input[s->input_length] = '\0';
    while ((end = strchr(s->input, '\n')) != NULL) {
        *end = '\0';
        obey_request(s, s->input);
        s->input_length -= (size_t)(end + 1 - s->input);
        memmove(s->input, end + 1, s->input_length + 1);
    }
}

static void
handle(server *s, int descriptor)
{
    const moment start = now();
    uint64_t ticks;
    berth_progress progress;

    s->step = "a tick";
    if (descriptor == s->timer) {
        (void)!read(s->timer, &ticks, sizeof ticks);
        if (s->job != NULL)
            berth_job_poll(s->job, &progress);
    } else if (descriptor == s->requests) {
        read_requests(s);
    } else if (descriptor == s->done[0]) {
        end_order(s);
    } else {
        end_load(s);
    }
    charge(s, &start);
}

static bool
can_begin(server *s, pthread_t *engine)
{
    const struct itimerspec every = {{0, 1000000}, {0, 1000000}};

    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return s->epoll >= 0 && s->timer >= 0 && pipe(s->done) == 0 &&
           timerfd_settime(s->timer, 0, &every, NULL) == 0 && can_watch(s, s->timer) &&
           can_watch(s, s->requests) && can_watch(s, s->done[0]) &&
           berth_context_create(NULL, &s->context, NULL) == BERTH_OK &&
           pthread_create(engine, NULL, run_engine, s) == 0;
}

static void
end(server *s, pthread_t engine)
{
    berth_memory_summary memory;

    while (s->is_busy && s->job == NULL) /* the engine is still at it */
        end_order(s);
    if (s->job != NULL) {
        berth_job_cancel(s->job);
        (void)berth_load_finish(s->job, &s->model, NULL);
    }
    give_order(s, END);
    (void)pthread_join(engine, NULL);
    give_back(s);
    berth_devices_close(s->devices);
    berth_context_memory(s->context, &memory);
    berth_context_destroy(s->context);
    answer(s, "longest %llu %s, %llu bytes kept", (unsigned long long)s->longest_ns,
           s->longest_step, (unsigned long long)memory.current_bytes);
    (void)close(s->epoll);
    (void)close(s->timer);
    (void)close(s->done[0]);
    (void)close(s->done[1]);
}

int
server_run(int requests, int answers)
{
    server *const s = calloc(1, sizeof *s);
    struct epoll_event events[8];
    pthread_t engine;

    if (s == NULL)
        return -1;
    s->requests = requests;
    s->answers = answers;
    s->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    s->has_order = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    s->longest_step = "none";
    if (!can_begin(s, &engine)) {
        free(s);
        return -1;
    }
    while (!s->is_over) {
        const int count = epoll_wait(s->epoll, events, 8, -1);

        for (int i = 0; i < count; i++)
            handle(s, events[i].data.fd);
    }
    end(s, engine);
    free(s);
    return 0;
}
