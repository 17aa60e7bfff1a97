/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_overlap.c - while the codes of one piece come back from a device the values of
 * another go there: both directions of its link are busy at once, as long as there is more than
 * one worker.
 */
#include <pthread.h>
#include <string.h>

#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define MS UINT64_C(1000000)
#define PIECES 16u
#define PIECE_VALUES UINT64_C(32768)
#define EVENTS 256u

/* A piece of BF16 takes 20 ms there, its codes and maxima as long back. */
#define WORDS "sim:64MiB,clock=real,h2d=3276800B/s,d2h=921600B/s"

typedef struct span {
    uint64_t begin_ns;
    uint64_t end_ns;
} span;

/* Copies in one direction; none begins before the one before it has ended. */
typedef struct direction {
    span spans[EVENTS];
    uint32_t count;
    uint64_t total_ns;
} direction;

typedef struct traffic {
    pthread_mutex_t lock;
    direction in;
    direction out;
} traffic;

static void
note_copy(void *user, const berth_trace_event *event)
{
    traffic *const t = user;
    direction *d;

    if (event->lane != BERTH_LANE_LINK)
        return;
    pthread_mutex_lock(&t->lock);
    d = strstr(event->name, "to device") != NULL ? &t->in : &t->out;
    if (d->count < EVENTS)
        d->spans[d->count++] = (span){ event->begin_ns, event->end_ns };
    d->total_ns += event->end_ns - event->begin_ns;
    pthread_mutex_unlock(&t->lock);
}

/* How long both directions are busy. */
static uint64_t
find_overlap(const traffic *t)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < t->in.count; i++)
        for (uint32_t o = 0; o < t->out.count; o++) {
            const span in = t->in.spans[i];
            const span out = t->out.spans[o];
            const uint64_t begin = berthi_max_u64(in.begin_ns, out.begin_ns);
            const uint64_t end = berthi_min_u64(in.end_ns, out.end_ns);

            sum += end > begin ? end - begin : 0;
        }
    return sum;
}

static const char *
make_weight(void)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, "[model.safetensors]\nBF16 512x1024 model.layers.0.a.weight\n");
    return folder;
}

static void
run(traffic *t, const char *model, uint32_t workers)
{
    berth_context_options options;
    berth_context *context;
    converted c;

    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    berth_context_options_init(&options);
    options.trace = note_copy;
    options.trace_user = t;
    T_REQUIRE(berth_context_create(&options, &context, NULL) == BERTH_OK);
    converted_begin(&c, fixture_format("%s/out", fixture_folder()), BERTH_ENCODING_NF4);
    c.options.workers = workers;
    converted_shrink(&c, PIECE_VALUES);
    c.devices = WORDS;
    if (!CHECK_EQ(converted_run_in(&c, context, model), BERTH_OK))
        T_NOTE("%s", c.error.message);
    CHECK_EQ(t->in.count, PIECES);
    CHECK_EQ(t->out.count, PIECES);
    CHECK_GE(t->in.total_ns, PIECES * 20 * MS);
    CHECK_GE(t->out.total_ns, PIECES * 20 * MS);
    berth_context_destroy(context);
    pthread_mutex_destroy(&t->lock);
}

static void
test_directions_overlap(void)
{
    const char *const model = make_weight();
    traffic t;

    run(&t, model, 1);
    CHECK_EQ(find_overlap(&t), 0);
    run(&t, model, 4);
    T_NOTE("%u ms to the device, %u ms back, %u ms of these at once",
           (unsigned)(t.in.total_ns / MS), (unsigned)(t.out.total_ns / MS),
           (unsigned)(find_overlap(&t) / MS));
    CHECK_GE(find_overlap(&t), berthi_min_u64(t.in.total_ns, t.out.total_ns) / 2);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_directions_overlap);
    T_MAIN_END;
}
