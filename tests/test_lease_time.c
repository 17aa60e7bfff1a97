/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lease_time.c - passes on simulated devices with a clock of their own: how long
 * they take against what the plan says, and what lies in slots while they are used.
 *
 * The time that is taken comes from the devices' clock alone. Links and latencies of
 * the devices are those that the plan was told.
 */
#include "loader/lease.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/leased.h"
#include "tests/t.h"

#define DEVICES 8u
#define PASSES 6u /* measured together, after two that come before */

/* A plan and the devices that it is for. */
typedef struct setting {
    uint32_t layers;
    uint32_t devices;
    uint32_t budget; /* MiB of each */
    uint32_t slots;  /* 0: the planner's choice */
    uint32_t link;   /* MB/s; memory has 8000 */
} setting;

typedef struct machine {
    leased leased;
    berthi_stream *streams[DEVICES];
    berthi_event *events[DEVICES]; /* the last layer of each */
    uint32_t devices;
} machine;

static const char *
words_of(const char *first, uint32_t count, const char *format, uint32_t number)
{
    const char *text = first;

    for (uint32_t i = 0; i < count; i++)
        text = fixture_format("%s%s%s", text, i > 0 ? "," : "",
                              fixture_format(format, i, number));
    return text;
}

static void
begin(machine *m, const char *folder, const leased_options *options, uint32_t devices)
{
    memset(m, 0, sizeof *m);
    leased_begin(&m->leased, folder, options);
    m->devices = devices;
    for (uint32_t i = 0; i < devices; i++) {
        berthi_device *const device = berthi_devices_at(m->leased.devices, i);

        CHECK_EQ(device->table->stream_create(device, &m->streams[i], NULL), BERTH_OK);
        CHECK_EQ(device->table->event_create(device, &m->events[i], NULL), BERTH_OK);
    }
}

static void
end(machine *m)
{
    leased_stop(&m->leased);
    for (uint32_t i = 0; i < m->devices; i++) {
        berthi_device *const device = berthi_devices_at(m->leased.devices, i);

        device->table->event_destroy(device, m->events[i]);
        device->table->stream_destroy(device, m->streams[i]);
    }
    leased_end(&m->leased);
}

static double
now(const machine *m)
{
    berthi_device *const device = berthi_devices_at(m->leased.devices, 0);

    return 1e-9 * (double)device->table->now_ns(device);
}

/* ------------------------------------------------------------------------ passes */

/* What the planner takes a layer to need: all of it is read once. */
static double
compute_seconds(const leased *l, uint32_t layer)
{
    const berth_plan_layer *const about = &l->planned.plan->layers[layer].out;
    uint64_t bytes = about->bytes + about->cache_bytes;

    if (strcmp(about->name, "model.embed_tokens") == 0)
        bytes = about->cache_bytes;
    return (double)bytes / (double)l->planned.plan->tiers[about->home].memory_rate;
}

static void
sync(machine *m, uint32_t home)
{
    berthi_device *const device = berthi_devices_at(m->leased.devices, home);

    CHECK_EQ(device->table->record(device, m->events[home], m->streams[home], NULL),
             BERTH_OK);
    CHECK_EQ(device->table->await(device, m->events[home], UINT64_MAX, NULL), BERTH_OK);
}

/*
 * One pass. A layer begins when the one before has ended; `waits`: the host waits for
 * each, as one does that looks at results.
 */
static bool
pass(machine *m, bool waits)
{
    leased *const l = &m->leased;
    uint32_t before = l->planned.plan->layers[leased_layers(l) - 1].out.home;
    berth_error error;

    for (uint32_t i = 0; i < leased_layers(l); i++) {
        const uint32_t home = l->planned.plan->layers[i].out.home;
        berthi_device *const device = berthi_devices_at(l->devices, home);

        if (home != before) {
            berthi_device *const last = berthi_devices_at(l->devices, before);

            CHECK_EQ(last->table->record(last, m->events[before], m->streams[before], NULL),
                     BERTH_OK);
            CHECK_EQ(device->table->wait(device, m->streams[home], m->events[before], NULL),
                     BERTH_OK);
        }
        before = home;
        if (!CHECK_EQ(leased_use(l, i, m->streams[home], compute_seconds(l, i), &error),
                      BERTH_OK)) {
            T_NOTE("%s", error.message);
            return false;
        }
        if (waits || i + 1 == leased_layers(l))
            sync(m, home);
    }
    return true;
}

/* Seconds of the first pass, and of one when they follow one another. */
typedef struct taken {
    double first;
    double next;
} taken;

static bool
measure(machine *m, bool waits, taken *out)
{
    double begin_seconds = now(m);

    if (!CHECK_EQ(leased_start(&m->leased, NULL), BERTH_OK) || !pass(m, waits))
        return false;
    out->first = now(m) - begin_seconds;
    if (!pass(m, waits))
        return false;
    begin_seconds = now(m);
    for (uint32_t i = 0; i < PASSES; i++)
        if (!pass(m, waits))
            return false;
    out->next = (now(m) - begin_seconds) / PASSES;
    leased_stop(&m->leased);
    return true;
}

static void
begin_setting(machine *m, const setting *s)
{
    const char *const link = fixture_format("%uMB/s", s->link);
    leased_options options = {
        .memory = fixture_format("%s,cpu=1GiB", words_of("", s->devices, "%u=%uMiB",
                                                         s->budget)),
        .slots = s->slots,
        .links = fixture_format("%s,%s", words_of("", s->devices, "%u=%uMB/s", s->link),
                                words_of("", s->devices, "%u.memory=8000MB/s", 0)),
        .devices = fixture_format("sim:1GiB,h2d=%s,latency=0ns*%u", link, s->devices),
        .is_empty = true,
    };

    begin(m, leased_wide(s->layers), &options, s->devices);
}

static bool
is_near(double achieved, double predicted)
{
    return achieved <= 1.05 * predicted && achieved >= 0.95 * predicted;
}

/* ---------------------------------------------------------- achieved and predicted */

static const setting settings[] = {
    /* one device: nearly all streamed, half, little; one to four slots */
    { 10, 1, 24, 1, 8000 },  { 10, 1, 32, 2, 8000 },  { 10, 1, 40, 3, 8000 },
    { 10, 1, 48, 4, 8000 },  { 10, 1, 48, 2, 2000 },  { 10, 1, 48, 2, 32000 },
    { 10, 1, 64, 1, 4000 },  { 10, 1, 64, 0, 8000 },  { 10, 1, 72, 0, 1000 },
    { 7, 1, 40, 2, 6000 },   { 12, 1, 80, 0, 16000 },
    /* several */
    { 8, 2, 24, 1, 8000 },   { 8, 2, 20, 2, 4000 },   { 12, 2, 30, 0, 16000 },
    { 24, 8, 16, 1, 4000 },  { 24, 8, 20, 0, 1000 },
};

/* Where threads are watched, some of each kind: all of them have the same threads. */
#define EACH_SETTING (T_HAS_THREADS_WATCHED ? 3u : 1u)

static void
test_achieved_is_predicted(void)
{
    uint32_t streamed = 0;

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i += EACH_SETTING) {
        const setting *const s = &settings[i];
        const berth_plan_summary *summary;
        double compute = 0;
        taken t = { 0, 0 };
        machine m;

        begin_setting(&m, s);
        summary = &m.leased.planned.plan->summary;
        for (uint32_t k = 0; k < leased_layers(&m.leased); k++)
            compute += compute_seconds(&m.leased, k);
        CHECK(is_near(compute, summary->compute_seconds));
        streamed += summary->link_bytes > 0;
        CHECK_GT(summary->link_bytes, 0);
        for (int waits = 0; waits < 2 && summary->link_bytes > 0; waits++) {
            if (!measure(&m, waits != 0, &t))
                break;
            if (!CHECK(is_near(t.next, summary->seconds))
                || !CHECK(is_near(t.first, summary->first_seconds)))
                T_NOTE("setting %zu, %d: %.6f ms against %.6f, first %.6f against %.6f", i,
                       waits, 1e3 * t.next, 1e3 * summary->seconds, 1e3 * t.first,
                       1e3 * summary->first_seconds);
        }
        T_NOTE("%2u layers, %u devices, slots %u, streamed %3.0f %%, bound %.3f ms: "
               "%.3f ms, predicted %.3f",
               s->layers, s->devices, m.leased.planned.plan->tiers[0].slot_count,
               100.0 * (double)summary->link_bytes / (double)summary->bytes,
               1e3 * (summary->link_seconds > summary->compute_seconds
                          ? summary->link_seconds
                          : summary->compute_seconds),
               1e3 * t.next, 1e3 * summary->seconds);
        end(&m);
    }
    CHECK_GE(streamed, 12 / EACH_SETTING);
}

/* ------------------------------------------------------------ parts of it left out */

/* Settings that need every part: copies take as long as computing, two slots. */
static const setting tight = { 10, 1, 32, 2, 8000 };

/* How much longer a pass takes without a part of leases than was predicted. */
static double
ratio_without(const setting *s, uint32_t part)
{
    taken t = { 0, 0 };
    machine m;
    double ratio;

    begin_setting(&m, s);
    atomic_store(&berthi_lease_without, part);
    CHECK(measure(&m, true, &t));
    atomic_store(&berthi_lease_without, 0);
    ratio = t.next / m.leased.planned.plan->summary.seconds;
    end(&m);
    return ratio;
}

static void
test_time_shows_a_prefetch_that_is_missing(void)
{
    CHECK(ratio_without(&tight, 0) <= 1.05);
    CHECK(ratio_without(&tight, BERTHI_LEASE_NO_PREFETCH) > 1.3);
}

static void
test_time_shows_a_slot_that_is_missing(void)
{
    CHECK(ratio_without(&tight, BERTHI_LEASE_NO_LAST_SLOT) > 1.3);
}

/* Layers that begin before their bytes are there: faster than the link allows. */
static void
test_time_shows_a_wait_that_is_missing(void)
{
    const setting slow = { 10, 1, 32, 1, 4000 };

    CHECK(ratio_without(&slow, BERTHI_LEASE_NO_FULL_WAIT) < 0.95);
    CHECK(ratio_without(&slow, BERTHI_LEASE_NO_FREE_WAIT) < 0.95);
}

/* ------------------------------------------------------------------------- jumps */

/* The streamed layer of this number, from 0 on. */
static uint32_t
streamed_layer(const leased *l, uint32_t number)
{
    uint32_t layer = 0;

    while (!leased_is_streamed(l, layer) || number-- > 0)
        layer++;
    return layer;
}

/* How long a layer far ahead is waited for, of its copy, after one computed for a second. */
static double
take_jump(bool is_prefetched, uint32_t without)
{
    uint32_t from, to;
    double begin_seconds;
    double seconds;
    machine m;

    begin_setting(&m, &tight);
    CHECK_EQ(leased_start(&m.leased, NULL), BERTH_OK);
    CHECK(pass(&m, true));
    from = streamed_layer(&m.leased, 0);
    to = streamed_layer(&m.leased, 4);
    atomic_store(&berthi_lease_without, without);
    CHECK_EQ(berthi_leases_acquire(m.leased.leases, from, m.streams[0], NULL), BERTH_OK);
    if (is_prefetched)
        CHECK_EQ(berthi_leases_prefetch(m.leased.leases, to, NULL), BERTH_OK);
    CHECK_EQ(leased_compare(&m.leased, from, m.streams[0], 1, NULL), BERTH_OK);
    CHECK_EQ(berthi_leases_release(m.leased.leases, from, m.streams[0], NULL), BERTH_OK);
    sync(&m, 0);
    begin_seconds = now(&m);
    CHECK_EQ(leased_use(&m.leased, to, m.streams[0], 0, NULL), BERTH_OK);
    sync(&m, 0);
    seconds = now(&m) - begin_seconds;
    atomic_store(&berthi_lease_without, 0);
    seconds *= 1e6 * tight.link
               / (double)m.leased.planned.plan->layers[to].out.link_bytes;
    end(&m);
    return seconds;
}

static void
test_a_prefetched_layer_is_ready(void)
{
    CHECK(take_jump(true, 0) < 0.01);
    CHECK(take_jump(false, 0) > 0.99);
    CHECK(take_jump(true, BERTHI_LEASE_NO_PREFETCH) > 0.99);
}

/* ------------------------------------------------------------------------- bytes */

/*
 * Decoder layers 0 to 7, in equal parts on the devices: 3 is resident, half of the others
 * is streamed, all of 0 and 5. Work takes up to half as long again.
 */
static void
begin_bytes(machine *m, uint32_t devices, uint32_t slots, uint32_t seed, const char *clock)
{
    leased_options options = {
        .memory = fixture_format("%s,cpu=64MiB", words_of("", devices, "%u=%uMiB", 64)),
        .slots = slots,
        .devices = fixture_format("sim:64MiB,h2d=1GB/s,latency=10us,jitter=50%%,"
                                  "clock=%s,pick=random,seed=%u*%u",
                                  clock, seed, devices),
    };

    uint32_t pins = 0;

    for (uint32_t i = 0; i < 8; i++) {
        const char *const layer = fixture_format("model.layers.%u", i);

        options.pins[pins++] = fixture_format("%s.input_layernorm=cuda:%u", layer,
                                              i * devices / 8);
        if (i == 0 || i == 5)
            options.pins[pins++] = fixture_format("%s=cpu", layer);
        else if (i != 3)
            options.pins[pins++] = fixture_format("%s.mlp=cpu", layer);
    }
    begin(m, leased_llama(8, 1), &options, devices);
}

static uint64_t
draw(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *random >> 33;
}

/*
 * Leases, with delays, now and then in another order, the host far ahead; what is in
 * the slots is compared when each use begins and when it ends. Returns wrong ones.
 */
static uint64_t
use_at_random(machine *m, uint64_t leases, uint64_t seed)
{
    leased *const l = &m->leased;
    uint64_t random = seed;
    uint32_t layer = 0;
    berth_error error;

    if (!CHECK_EQ(leased_start(l, &error), BERTH_OK))
        return 0;
    for (uint64_t i = 0; i < leases; layer = (layer + 1) % leased_layers(l)) {
        const uint32_t home = l->planned.plan->layers[layer].out.home;

        if (draw(&random) % 64 == 0)
            layer = (uint32_t)draw(&random) % leased_layers(l);
        if (!leased_is_streamed(l, layer))
            continue;
        if (!CHECK_EQ(leased_use(l, layer, m->streams[home],
                                 1e-6 * (double)(draw(&random) % 300), &error),
                      BERTH_OK))
            break;
        if (++i % 64 == 0)
            sync(m, home);
    }
    for (uint32_t i = 0; i < m->devices; i++)
        sync(m, i);
    leased_stop(l);
    CHECK_EQ(atomic_load(&l->compared), 2 * leases);
    return atomic_load(&l->wrong);
}

/*
 * A million, on one device to eight, which takes 10 s; what makes everything ten times
 * slower (sanitizers, a program that tests run under) sees as many only with T_THOROUGH=1.
 */
static void
test_no_wrong_byte(void)
{
    const bool is_slow = T_IS_SANITIZED || getenv("T_WRAP") != NULL;
    const uint64_t leases = !is_slow || getenv("T_THOROUGH") != NULL ? 125000 : 250;

    for (uint32_t i = 0; i < DEVICES; i++) {
        machine m;

        begin_bytes(&m, i + 1, 1 + i % 4, i + 1, "virtual");
        CHECK_EQ(use_at_random(&m, leases, i + 1), 0);
        end(&m);
    }
    T_NOTE("%llu leases on 1 to %u devices", DEVICES * (unsigned long long)leases, DEVICES);
}

/* Leases with a part left out: some seed shows wrong bytes. */
static uint64_t
wrong_without(uint32_t part)
{
    uint64_t wrong = 0;

    for (uint32_t seed = 1; seed <= 4; seed++) {
        machine m;

        begin_bytes(&m, 1, 2, seed, "virtual");
        atomic_store(&berthi_lease_without, part);
        wrong += use_at_random(&m, 60, seed);
        atomic_store(&berthi_lease_without, 0);
        end(&m);
    }
    return wrong;
}

static void
test_bytes_show_a_wait_that_is_missing(void)
{
    CHECK_EQ(wrong_without(0), 0);
    CHECK_GT(wrong_without(BERTHI_LEASE_NO_FULL_WAIT), 20);
    CHECK_GT(wrong_without(BERTHI_LEASE_NO_FREE_WAIT), 20);
}

/* ------------------------------------------------------------------------- threads */

typedef struct user_thread {
    machine *machine;
    uint64_t leases;
    uint64_t seed;
    uint32_t device;
    pthread_t thread;
} user_thread;

/* One thread for each device, on a stream of its own. */
static void *
use_one_device(void *argument)
{
    user_thread *const u = argument;
    leased *const l = &u->machine->leased;
    uint64_t random = u->seed;
    uint32_t layer = 0;

    for (uint64_t i = 0; i < u->leases; layer = (layer + 1) % leased_layers(l)) {
        berth_error error;

        if (l->planned.plan->layers[layer].out.home != u->device
            || !leased_is_streamed(l, layer)
            || (draw(&random) % 32 == 0 && leased_layers(l) > 1))
            continue;
        if (!CHECK_EQ(leased_use(l, layer, u->machine->streams[u->device],
                                 1e-6 * (double)(draw(&random) % 20), &error),
                      BERTH_OK))
            break;
        if (++i % 16 == 0)
            sync(u->machine, u->device);
    }
    sync(u->machine, u->device);
    return NULL;
}

/* 10,000 leases on a clock that runs; under a thread sanitizer, too. */
static void
test_threads(void)
{
    const uint64_t leases = 5000;
    user_thread users[2];
    machine m;

    begin_bytes(&m, 2, 2, 1, "real");
    CHECK_EQ(leased_start(&m.leased, NULL), BERTH_OK);
    for (uint32_t i = 0; i < 2; i++) {
        users[i] = (user_thread){
            .machine = &m, .leases = leases, .seed = i + 1, .device = i
        };
        CHECK_EQ(berthi_sys_thread_create(&users[i].thread, 256 * 1024, use_one_device,
                                          &users[i]),
                 0);
    }
    for (uint32_t i = 0; i < 2; i++)
        pthread_join(users[i].thread, NULL);
    CHECK_EQ(atomic_load(&m.leased.wrong), 0);
    CHECK_EQ(atomic_load(&m.leased.compared), 4 * leases);
    T_NOTE("%llu leases on a clock that runs", 2 * (unsigned long long)leases);
    end(&m);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_achieved_is_predicted);
    T_RUN(test_time_shows_a_prefetch_that_is_missing);
    T_RUN(test_time_shows_a_slot_that_is_missing);
    T_RUN(test_time_shows_a_wait_that_is_missing);
    T_RUN(test_a_prefetched_layer_is_ready);
    T_RUN(test_no_wrong_byte);
    T_RUN(test_bytes_show_a_wait_that_is_missing);
    T_RUN(test_threads);
    T_MAIN_END;
}
