/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_qlora_resume.c - QLoRA runs that are interrupted, saved and taken up again by
 * another context, model and optimizer, or whose states go from one memory to another
 * under way: not a bit of their losses and adapters differs from those of a run that was
 * left alone.
 */
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/tuned.h"

/*
 * Whoever watches threads has seen them all by then; and is slow. Memory has been moved by every
 * way of a route after 12.
 */
#define STEPS (T_HAS_THREADS_WATCHED ? 4u : T_IS_SANITIZED ? 12u : 24u)

#define ON_A_GPU "sim:64MiB"
/* Copies are made as late as can be, in any order, and what is not pinned is slow. */
#define ON_A_SLOW_GPU "sim:64MiB,h2d=1GB/s,d2h=2GB/s,pick=random,touch=random"

static const char *base;
static const char *states_dir;

/* Undisturbed, on the processor, by the bits of states. */
static tuned whole_8bit;
static tuned whole_32bit;

static const tuned *
whole(int32_t bits)
{
    return bits == 8 ? &whole_8bit : &whole_32bit;
}

/* A context of its own, as another process has one. */
static berth_context *
begin(void)
{
    berth_context *context = NULL;

    (void)CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    return context;
}

static void
end(berth_context *context)
{
    berth_memory_summary memory;

    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
}

static tuned_setup
setup_of(const char *devices, int32_t bits, int32_t place)
{
    return (tuned_setup){ .base = base, .devices = devices, .states_dir = states_dir,
                          .bits = bits, .place = place, .seed = 1 };
}

/* Steps from `first` on, with the losses of the run that was left alone. */
static void
run_steps(tuner *t, uint32_t first, uint32_t count, int32_t bits)
{
    for (uint32_t step = first; step < first + count; step++) {
        const double loss = tuner_measure(t);

        CHECK_MEM(&loss, &whole(bits)->losses[step], sizeof loss);
        tuner_update(t);
    }
}

/* As it ends when it is left alone. */
static void
check_end(tuner *t, int32_t bits)
{
    const double loss = tuner_measure(t);

    CHECK_MEM(&loss, &whole(bits)->losses[STEPS], sizeof loss);
    CHECK_MEM(t->model.learned, whole(bits)->learned,
              t->model.elements * sizeof *t->model.learned);
}

/* A processor has host memory beside it. */
static void
check_states(const tuner *t, uint64_t steps, int32_t place)
{
    if (t->devices == NULL && place == BERTH_STATES_HOST)
        place = BERTH_STATES_DEVICE;
    for (uint32_t i = 0; i < t->model.parameter_count; i++) {
        berth_parameter_state state;

        CHECK_EQ(berth_optimizer_get(t->optimizer, i, &state), BERTH_OK);
        CHECK_EQ(state.step, steps);
        CHECK_EQ(state.place, place);
    }
}

/* ------------------------------------------------------------------------- resumed */

static void
check_resumed(const tuned_setup *before, const tuned_setup *after, uint32_t at)
{
    const char *const folder = fixture_folder();
    berth_context *context = begin();
    tuned_setup other = *after;
    tuner t;

    tuner_open(&t, context, before);
    run_steps(&t, 0, at, before->bits);
    tuner_save(&t, folder, base);
    run_steps(&t, at, 1, before->bits); /* lost: it went on for a while */
    tuner_close(&t);
    end(context);

    context = begin();
    other.seed = 2; /* nothing is there by luck */
    tuner_open(&t, context, &other);
    tuner_resume(&t, folder);
    check_states(&t, at, after->place);
    run_steps(&t, at, STEPS - at, after->bits);
    check_states(&t, STEPS, after->place);
    check_end(&t, after->bits);
    tuner_close(&t);
    end(context);
}

static void
test_resumed_where_it_was(void)
{
    static const char *const devices[] = { NULL, ON_A_GPU };

    for (int d = 0; d < 2; d++)
        for (int32_t place = 0; place < BERTH_STATES_PLACE_COUNT; place++)
            for (int32_t bits = 8; bits <= 32; bits += 24) {
                const tuned_setup setup = setup_of(devices[d], bits, place);

                check_resumed(&setup, &setup, STEPS / 2);
            }
}

static void
test_resumed_elsewhere(void)
{
    const tuned_setup plain = setup_of(NULL, 8, BERTH_STATES_DEVICE);
    const tuned_setup paged = setup_of(ON_A_SLOW_GPU, 8, BERTH_STATES_HOST);
    const tuned_setup filed = setup_of(ON_A_GPU, 8, BERTH_STATES_DISK);

    check_resumed(&plain, &paged, 1);
    check_resumed(&paged, &filed, STEPS / 3);
    check_resumed(&filed, &plain, STEPS - 1);
    check_resumed(&paged, &plain, 0); /* before the first step: zeros */
}

/* Interrupted again and again, each time taken up by a machine of another kind. */
static void
test_resumed_many_times(void)
{
    static const char *const devices[] = { NULL, ON_A_GPU, ON_A_SLOW_GPU };
    const char *const folder = fixture_folder();

    for (uint32_t step = 0; step < STEPS; step++) {
        const tuned_setup setup = setup_of(devices[step % 3], 8, (int32_t)(step / 3 % 3));
        berth_context *const context = begin();
        tuner t;

        tuner_open(&t, context, &setup);
        if (step > 0)
            tuner_resume(&t, folder);
        check_states(&t, step, setup.place);
        run_steps(&t, step, 1, 8);
        tuner_save(&t, folder, base);
        if (step + 1 == STEPS)
            check_end(&t, 8);
        tuner_close(&t);
        end(context);
    }
}

/* --------------------------------------------------------------------------- moved */

static void
move_all(tuner *t, int32_t place)
{
    for (uint32_t i = 0; i < t->model.parameter_count; i++)
        CHECK_EQ(berth_optimizer_move(t->optimizer, i, place, NULL), BERTH_OK);
}

/* All of them go from place to place, every other step, each way once or more. */
static void
test_moved_under_way(void)
{
    static const int32_t route[] = { BERTH_STATES_HOST, BERTH_STATES_DISK,
                                     BERTH_STATES_DEVICE, BERTH_STATES_DISK,
                                     BERTH_STATES_HOST, BERTH_STATES_DEVICE };
    static const char *const devices[] = { NULL, ON_A_GPU, ON_A_SLOW_GPU };

    for (int d = 0; d < 3; d++)
        for (int32_t bits = 8; bits <= 32; bits += 24) {
            const tuned_setup setup = setup_of(devices[d], bits, BERTH_STATES_DEVICE);
            berth_context *const context = begin();
            tuner t;

            tuner_open(&t, context, &setup);
            for (uint32_t step = 0; step < STEPS; step++) {
                if (step % 2 == 1) {
                    move_all(&t, route[step / 2 % 6]);
                    check_states(&t, step, route[step / 2 % 6]);
                }
                run_steps(&t, step, 1, bits);
            }
            check_end(&t, bits);
            tuner_close(&t);
            end(context);
        }
}

/* One adapter's states after the other's: all places at a time, slots and buffers shared. */
static void
test_moved_one_by_one(void)
{
    const tuned_setup setup = setup_of(ON_A_SLOW_GPU, 8, BERTH_STATES_HOST);
    berth_context *const context = begin();
    tuner t;

    tuner_open(&t, context, &setup);
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t i = step % 2; i < t.model.parameter_count; i += 2)
            CHECK_EQ(berth_optimizer_move(t.optimizer, i, (int32_t)((i + step) / 2 % 3),
                                          NULL),
                     BERTH_OK);
        run_steps(&t, step, 1, 8);
    }
    check_end(&t, 8);
    tuner_close(&t);
    end(context);
}

/* ---------------------------------------------------------------------- less memory */

static uint64_t
states_on(const tuner *t, int32_t place)
{
    berth_optimizer_memory memory;

    CHECK_EQ(berth_optimizer_get_memory(t->optimizer, 0, &memory), BERTH_OK);
    return memory.states[place];
}

/* Every few steps somebody else wants a part of the device. */
static void
test_room_is_made_under_way(void)
{
    const tuned_setup setup = setup_of(ON_A_GPU, 32, BERTH_STATES_DEVICE);
    const char *const folder = fixture_folder();
    berth_context *context = begin();
    uint64_t all;
    uint64_t bytes;
    tuner t;

    tuner_open(&t, context, &setup);
    all = states_on(&t, BERTH_STATES_DEVICE);
    for (uint32_t step = 0; step < STEPS / 2; step++) {
        if (step % 2 == 1) {
            const uint64_t before = states_on(&t, BERTH_STATES_DEVICE);

            CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, all / 8, &bytes, NULL),
                     BERTH_OK);
            CHECK(bytes > 0 || before == 0);
            CHECK(before == 0 || states_on(&t, BERTH_STATES_DEVICE) < before);
        }
        run_steps(&t, step, 1, 32);
    }
    CHECK_GT(states_on(&t, BERTH_STATES_HOST), 0);
    tuner_save(&t, folder, base); /* from both places */
    tuner_close(&t);
    end(context);

    context = begin();
    tuner_open(&t, context, &setup);
    tuner_resume(&t, folder);
    CHECK_EQ(states_on(&t, BERTH_STATES_DEVICE), all); /* where its group wants them */
    run_steps(&t, STEPS / 2, STEPS - STEPS / 2, 32);
    check_end(&t, 32);
    tuner_close(&t);
    end(context);
}

int
main(int argc, char **argv)
{
    berth_context *context;
    tuned_setup setup;

    T_MAIN_BEGIN(argc, argv);
    base = fixture_folder();
    states_dir = fixture_folder();
    context = begin();
    adapt_write_base(context, base);
    setup = setup_of(NULL, 8, BERTH_STATES_DEVICE);
    tuned_run(&whole_8bit, context, &setup, STEPS, NULL);
    setup.bits = 32;
    tuned_run(&whole_32bit, context, &setup, STEPS, NULL);
    end(context);
    T_RUN(test_resumed_where_it_was);
    T_RUN(test_resumed_elsewhere);
    T_RUN(test_resumed_many_times);
    T_RUN(test_moved_under_way);
    T_RUN(test_moved_one_by_one);
    T_RUN(test_room_is_made_under_way);
    tuned_free(&whole_8bit);
    tuned_free(&whole_32bit);
    T_MAIN_END;
}
