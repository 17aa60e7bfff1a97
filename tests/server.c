/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.c - the loop, its jobs, and how long the loop was away; see server.h.
 *
 *   requests ─▶ loop ──order──▶ engine (opens, plans, passes, gives back)
 *                │  ◀──done pipe──┘
 *                ├─▶ berth_load_start, berth_model_swap_start ─▶ job ─▶ its descriptor
 *                │                    berth_load_finish, berth_job_finish ◀──┘
 *                └─▶ a timer of 1 ms: the loop is there
 */
#define _GNU_SOURCE

#include "tests/server.h"

#include <fcntl.h>
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

#include "tests/server_engine.h"

typedef struct server {
    int requests;
    int answers;
    int epoll;
    int timer;
    int delays;  /* of this thread, as the kernel counts them; -1: it does not */
    int done[2]; /* the engine writes a byte when it has done what it was told */
    bool is_over;
    bool is_busy;      /* an order or a job is under way */
    bool is_cancelled; /* the load that is being prepared */
    char input[SERVER_LINE];
    size_t input_length;
    server_engine engine;
    berth_job *job; /* NULL: none is under way */
    bool is_load;   /* the job */
    bool is_swap;

    const char *step; /* of the loop: what takes its time */
    const char *longest_step;
    uint64_t longest_ns;
} server;

/* ---------------------------------------------------------------------- its time */

typedef struct moment {
    uint64_t wall_ns;
    uint64_t cpu_ns;
    uint64_t delay_ns; /* it could have run, and others did */
    long waits;        /* voluntary: the thread slept in a call */
} moment;

static uint64_t
clock_ns(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The second number of the thread's schedstat. */
static uint64_t
delay_ns(const server *s)
{
    char text[96];
    const ssize_t length = s->delays >= 0 ? pread(s->delays, text, sizeof text - 1, 0) : 0;
    const char *second;

    if (length <= 0)
        return 0;
    text[length] = '\0';
    second = strchr(text, ' ');
    return second != NULL ? strtoull(second, NULL, 10) : 0;
}

static moment
now(const server *s)
{
    struct rusage usage;

    (void)getrusage(RUSAGE_THREAD, &usage);
    return (moment){ clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_THREAD_CPUTIME_ID),
                     delay_ns(s), usage.ru_nvcsw };
}

/*
 * A step takes what it computes, and what it sleeps in calls. That others had the processor
 * meanwhile is not its doing.
 */
static void
charge(server *s, const moment *begin)
{
    const moment end = now(s);
    const uint64_t cpu_ns = end.cpu_ns - begin->cpu_ns;
    const uint64_t awake_ns = cpu_ns + (end.delay_ns - begin->delay_ns);
    const uint64_t wall_ns = end.wall_ns - begin->wall_ns;
    const bool has_slept = end.waits > begin->waits && wall_ns > awake_ns;
    const uint64_t taken_ns = cpu_ns + (has_slept ? wall_ns - awake_ns : 0);

    if (taken_ns <= s->longest_ns)
        return;
    s->longest_ns = taken_ns;
    s->longest_step = s->step;
}

/* ------------------------------------------------------------------------- answers */

__attribute__((format(printf, 2, 3))) static void
answer(server *s, const char *format, ...)
{
    char line[SERVER_LINE + 128];
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
    const server_engine *const e = &s->engine;

    if (e->status == BERTH_OK)
        answer(s, "%s", ok);
    else
        answer(s, "failed %s %s %s", berth_status_name(e->status),
               berth_reason_name(e->error.reason),
               e->error.file[0] != '\0' ? e->error.file : "-");
}

/* ---------------------------------------------------------------------------- jobs */

static bool
can_watch(server *s, int descriptor)
{
    struct epoll_event event = { .events = EPOLLIN, .data.fd = descriptor };

    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

static void
give_order(server *s, server_order what)
{
    s->is_busy = true;
    server_engine_order(&s->engine, what);
}

/* The loop hears of its end. False: it was not even begun, or nobody would. */
static bool
is_under_way(server *s)
{
    server_engine *const e = &s->engine;
    int descriptor;

    if (e->status == BERTH_OK)
        e->status = berth_job_descriptor(s->job, &descriptor, &e->error);
    if (e->status == BERTH_OK && can_watch(s, descriptor)) {
        s->is_busy = true;
        return true;
    }
    (void)berth_job_finish(s->job, NULL);
    s->job = NULL;
    return false;
}

static void
start_load(server *s)
{
    server_engine *const e = &s->engine;
    berth_load_options options;

    s->step = "berth_load_start";
    berth_load_options_init(&options);
    options.devices = e->devices;
    options.wait_ms = e->wait_ms;
    s->is_load = true;
    s->is_swap = false;
    e->status = berth_load_start(e->context, e->seat->checkpoint, e->seat->plan, &options,
                                 &s->job, &e->error);
    if (e->status == BERTH_OK && s->is_cancelled)
        berth_job_cancel(s->job);
    if (!is_under_way(s))
        answer_status(s, "ok");
}

static void
start_move(server *s, const char *what)
{
    server_engine *const e = &s->engine;
    berth_model *const other = e->seats[e->seat == &e->seats[0]].model;

    s->step = "the start of a move";
    s->is_load = false;
    s->is_swap = strcmp(what, "swap") == 0;
    if (s->is_swap)
        e->status = berth_model_swap_start(e->seat->model, other, NULL, &s->job, &e->error);
    else if (strcmp(what, "sleep") == 0)
        e->status = berth_model_sleep_start(e->seat->model, NULL, &s->job, &e->error);
    else
        e->status = berth_model_wake_start(e->seat->model, NULL, &s->job, &e->error);
    if (!is_under_way(s))
        answer_status(s, "ok");
}

static void
finish_job(server *s)
{
    server_engine *const e = &s->engine;

    s->step = s->is_load ? "berth_load_finish" : "berth_job_finish";
    if (s->is_load)
        e->status = berth_load_finish(s->job, &e->seat->model, &e->error);
    else
        e->status = berth_job_finish(s->job, &e->error);
    s->job = NULL;
    s->is_busy = false;
    if (e->status == BERTH_OK && s->is_swap)
        e->seat = &e->seats[e->seat == &e->seats[0]];
}

static void
end_order(server *s)
{
    char what;

    s->step = "the end of an order";
    if (read(s->done[0], &what, 1) != 1)
        return;
    s->is_busy = false;
    if (what == ORDER_OPEN && s->engine.status == BERTH_OK)
        start_load(s);
    else if (what != ORDER_END)
        answer_status(s, s->engine.answer);
}

/* -------------------------------------------------------------------------- requests */

/* Seconds, by the engine alone: the loop only notes it. */
static void
cancel(server *s)
{
    s->step = "berth_job_cancel";
    s->is_cancelled = true;
    if (s->job != NULL)
        berth_job_cancel(s->job);
}

static server_order
order_of(const char *request)
{
    static const struct {
        const char *request;
        server_order order;
    } orders[] = {
        { "devices", ORDER_DEVICES }, { "load", ORDER_OPEN },     { "pass", ORDER_PASS },
        { "digest", ORDER_DIGEST },   { "misuse", ORDER_MISUSE }, { "unload", ORDER_UNLOAD },
    };

    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (strcmp(orders[i].request, request) == 0)
            return orders[i].order;
    return ORDER_NONE;
}

/* "0=26MiB,cpu=64MiB /a/folder": what is left of it. */
static const char *
take_memory(server *s, char *argument)
{
    char *const blank = strchr(argument, ' ');

    if (blank == NULL)
        return argument;
    *blank = '\0';
    (void)snprintf(s->engine.memory, sizeof s->engine.memory, "%s", argument);
    return blank + 1;
}

static void
begin(server *s, const char *request, char *argument)
{
    const server_order what = order_of(request);
    server_engine *const e = &s->engine;

    s->step = "a request";
    s->is_cancelled = false;
    memset(&e->error, 0, sizeof e->error);
    if (strcmp(request, "seat") == 0) {
        e->seat = &e->seats[argument[0] == '1'];
        answer(s, "ok");
    } else if (strcmp(request, "wait") == 0) {
        e->wait_ms = (uint32_t)strtoul(argument, NULL, 10);
        answer(s, "ok");
    } else if (what == ORDER_NONE) {
        start_move(s, request);
    } else {
        (void)snprintf(e->argument, sizeof e->argument, "%s",
                       what == ORDER_OPEN ? take_memory(s, argument) : argument);
        give_order(s, what);
    }
}

static void
obey_request(server *s, char *line)
{
    char *const blank = strchr(line, ' ');

    if (blank != NULL)
        *blank = '\0';
    s->step = "a request";
    if (strcmp(line, "cancel") == 0)
        cancel(s);
    else if (strcmp(line, "quit") == 0)
        s->is_over = true;
    else if (s->is_busy)
        answer(s, "busy");
    else
        begin(s, line, blank != NULL ? blank + 1 : line + strlen(line));
}

static void
read_requests(server *s)
{
    const size_t most = sizeof s->input - 1;
    ssize_t got = 0; /* a line that does not fit ends it */
    char *end;

    if (s->input_length < most)
        got = read(s->requests, s->input + s->input_length, most - s->input_length);
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

/* ---------------------------------------------------------------------------- loop */

static void
handle(server *s, int descriptor)
{
    const moment start = now(s);
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
        finish_job(s);
        answer_status(s, "ok");
    }
    charge(s, &start);
}

static bool
can_begin(server *s)
{
    const struct itimerspec every = { { 0, 1000000 }, { 0, 1000000 } };

    s->delays = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return s->epoll >= 0 && s->timer >= 0 && pipe(s->done) == 0
           && timerfd_settime(s->timer, 0, &every, NULL) == 0 && can_watch(s, s->timer)
           && can_watch(s, s->requests) && can_watch(s, s->done[0])
           && server_engine_begin(&s->engine, s->done[1]) == 0;
}

static void
end(server *s)
{
    uint64_t kept_bytes;

    while (s->is_busy && s->job == NULL) /* the engine is still at it */
        end_order(s);
    if (s->job != NULL) {
        berth_job_cancel(s->job);
        finish_job(s);
    }
    kept_bytes = server_engine_end(&s->engine);
    answer(s, "longest %llu %s, %llu bytes kept", (unsigned long long)s->longest_ns,
           s->longest_step, (unsigned long long)kept_bytes);
    if (s->delays >= 0)
        (void)close(s->delays);
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

    if (s == NULL)
        return -1;
    s->requests = requests;
    s->answers = answers;
    s->longest_step = "none";
    if (!can_begin(s)) {
        free(s);
        return -1;
    }
    while (!s->is_over) {
        const int count = epoll_wait(s->epoll, events, 8, -1);

        for (int i = 0; i < count; i++)
            handle(s, events[i].data.fd);
    }
    end(s);
    free(s);
    return 0;
}
