/* SPDX-License-Identifier: Apache-2.0 */
/* move.c - berth_model_sleep_start() and its kin: jobs that have a model for themselves. */
#include "loader/move.h"

#include <stdio.h>
#include <string.h>

#include "kernels/sys.h"

typedef struct move move;

/* What carries one model: memory of that model's context, which may be another for `other`. */
typedef struct side {
    berthi_kept kept; /* first: what the context has of a side that hangs is this */
    berth_context *context;
    berthi_carrier carrier;
    berthi_replan replan; /* of a move; else zero */
} side;

struct move {
    berth_context *context;
    berth_model *model;
    berth_model *other; /* that is woken when `model` sleeps; NULL */
    side *own;
    side *others; /* of `other`; NULL */
    berth_move_options options;
    uint64_t start_ns;
    bool is_asleep;     /* the model, when the job ends */
    bool other_is_asleep;
    bool has_ended;     /* others may use the models again */
    berth_job *job;
    berth_status (*work)(move *m, berth_error *error);
};

/* -------------------------------------------------------------------------- parts */

/* Nobody uses the model any more; `carrier` is ready for it. */
static berth_status
take(move *m, berth_model *model, berthi_carrier *carrier, berth_error *error)
{
    const berth_status status = berthi_model_take(model, m->job, error);

    return status == BERTH_OK ? berthi_carrier_init(carrier, model, m->job, error)
                              : status;
}

static berth_status
commit(const move *m, berth_error *error)
{
    return berthi_job_commit(m->job) ? BERTH_OK : berthi_job_fail_cancelled(error);
}

/* Behind the first error, which stays. */
static void
add_note(berth_error *error, const char *note)
{
    const size_t used = strlen(error->message);

    snprintf(error->message + used, sizeof error->message - used, "%s", note);
}

/*
 * True where what hangs leaves nothing to begin with: bytes that it would have to bring, or
 * slots that it may still write to.
 */
static bool
has_to_sleep(const berthi_carrier *carrier)
{
    return carrier->is_hung
           && (carrier->leases != NULL || berthi_model_asleep_bytes(carrier->model) > 0);
}

static berth_status
wake_from_undo(berthi_carrier *carrier, berth_error *error)
{
    carrier->is_undoing = true;
    if (has_to_sleep(carrier))
        return berthi_fail(error, BERTH_REASON_TIMEOUT, NULL, "copies have not ended");
    return berthi_model_raise(carrier, error);
}

/*
 * After a failure the model is woken from whatever it has, or it is asleep. The status is then
 * what the job ends with: a cancel promises that nothing has changed, so that one which has
 * left the model asleep is told as what kept it from waking.
 */
static berth_status
wake_again(move *m, berth_status status, berth_error *error)
{
    berth_error later;

    m->is_asleep = wake_from_undo(&m->own->carrier, &later) != BERTH_OK;
    if (m->is_asleep) {
        berthi_job_keep_error(m->job);
        if (status == BERTH_ECANCELLED)
            *error = later;
        add_note(error, status == BERTH_ECANCELLED
                            ? "; the cancelled job could not bring the model back, which "
                              "is asleep"
                            : "; the model could not be brought back and is asleep");
    }
    berthi_hold_free(&m->own->carrier);
    return error->status;
}

/* ------------------------------------------------------------------------ the jobs */

static berth_status
do_sleep(move *m, berth_error *error)
{
    berth_status status = take(m, m->model, &m->own->carrier, error);

    if (status == BERTH_OK)
        status = berthi_model_hold(&m->own->carrier, m->options.discards != 0, error);
    if (status == BERTH_OK)
        status = commit(m, error);
    m->is_asleep = status == BERTH_OK;
    if (m->is_asleep)
        berthi_model_drop(m->model);
    else if (m->own->carrier.model != NULL)
        berthi_hold_free(&m->own->carrier);
    return status;
}

static berth_status
do_wake(move *m, berth_error *error)
{
    berth_status status = take(m, m->model, &m->own->carrier, error);

    if (status == BERTH_OK)
        status = berthi_model_raise(&m->own->carrier, error);
    m->is_asleep = status != BERTH_OK;
    if (!m->is_asleep)
        berthi_hold_free(&m->own->carrier);
    return status;
}

static berth_status
do_move(move *m, berth_error *error)
{
    berth_status status = take(m, m->model, &m->own->carrier, error);

    if (status != BERTH_OK)
        return status;
    status = berthi_replan_run(&m->own->replan, &m->own->carrier, error);
    return status == BERTH_OK ? status : wake_again(m, status, error);
}

static berth_status
do_swap(move *m, berth_error *error)
{
    berth_status status = take(m, m->model, &m->own->carrier, error);

    if (status == BERTH_OK)
        status = take(m, m->other, &m->others->carrier, error);
    if (status == BERTH_OK)
        status = berthi_model_hold(&m->own->carrier, m->options.discards != 0, error);
    if (status != BERTH_OK)
        return status;
    berthi_model_drop(m->model);
    status = berthi_model_raise(&m->others->carrier, error);
    if (status == BERTH_OK) {
        berthi_hold_free(&m->others->carrier);
        m->other_is_asleep = false;
        m->is_asleep = true;
        return BERTH_OK;
    }
    return wake_again(m, status, error);
}

/* ---------------------------------------------------------------------------- job */

static void
sum_up(const berth_model *model, berth_move_report *report)
{
    for (uint32_t t = 0; model != NULL && t < model->tier_count; t++) {
        const berthi_model_tier *const tier = &model->tiers[t];

        report->slab_bytes += tier->slab != NULL ? tier->bytes : 0;
        report->held_bytes += tier->hold != NULL ? tier->hold_bytes : 0;
    }
}

static void
count_side(const side *s, berth_move_report *report)
{
    if (s == NULL)
        return;
    report->carried_bytes += s->carrier.carried_bytes;
    report->read_bytes += s->carrier.read_bytes;
    report->written_bytes += s->carrier.written_bytes;
}

static void
report(const move *m)
{
    berth_move_report *const out = m->options.report;

    if (out == NULL)
        return;
    memset(out, 0, sizeof *out);
    sum_up(m->model, out);
    sum_up(m->other, out);
    count_side(m->own, out);
    count_side(m->others, out);
    out->seconds = 1e-9 * (double)(berthi_sys_now_ns() - m->start_ns);
}

/* One that hangs stays, and its model with it. */
static void
end_side(side *s)
{
    berthi_carrier *const carrier = &s->carrier;

    if (!carrier->is_hung) {
        berthi_carrier_fini(carrier);
        return;
    }
    atomic_fetch_add(&carrier->model->stranded, 1);
    berthi_log(s->context, BERTH_LOG_WARNING,
               "copies have not ended: %u slabs and %u buffers stay with them",
               (unsigned)carrier->left_count, (unsigned)carrier->buffers.count);
}

static void
end(move *m)
{
    if (m->has_ended)
        return;
    m->has_ended = true;
    end_side(m->own);
    if (m->others != NULL)
        end_side(m->others);
    if (m->other != NULL)
        berthi_model_end_move(m->other, m->other_is_asleep);
    berthi_model_end_move(m->model, m->is_asleep);
}

static berth_status
run_move(berth_job *job, void *user, berth_error *error)
{
    move *const m = user;
    berth_status status;

    m->job = job;
    status = m->work(m, error);
    report(m);
    end(m);
    return status;
}

static void
free_side(side *s)
{
    berthi_replan_fini(&s->replan);
    berthi_memory_free(s->context, BERTHI_PURPOSE_OBJECT, s, sizeof *s);
}

/* It has ended, and its model may go. */
static bool
try_end(berthi_kept *kept)
{
    side *const s = (side *)kept;
    berth_model *const model = s->carrier.model;

    if (!berthi_carrier_is_over(&s->carrier))
        return false;
    berthi_carrier_fini(&s->carrier);
    free_side(s);
    atomic_fetch_sub(&model->stranded, 1);
    return true;
}

/* Of a side that hangs its own context sees the end. NULL is allowed. */
static void
leave_side(side *s)
{
    if (s == NULL)
        return;
    if (!s->carrier.is_hung) {
        free_side(s);
        return;
    }
    s->kept.try_end = try_end;
    berthi_context_keep(s->context, &s->kept);
}

static void
free_move(void *user)
{
    move *const m = user;

    end(m);
    leave_side(m->own);
    leave_side(m->others);
    berthi_memory_free(m->context, BERTHI_PURPOSE_OBJECT, m, sizeof *m);
}

/* -------------------------------------------------------------------------- start */

static berth_status
create_side(berth_model *model, side **out, berth_error *error)
{
    side *const s = berthi_memory_zalloc(model->context, BERTHI_PURPOSE_OBJECT, sizeof *s);

    *out = s;
    if (s == NULL)
        return berthi_fail_memory(error, "moving a model");
    s->context = model->context;
    return BERTH_OK;
}

/* A model that is ours until end(). */
static berth_status
begin(berth_model *model, bool is_asleep, const berth_move_options *options, move **out,
      berth_error *error)
{
    berth_move_options taken;
    berth_status status =
        berthi_options_take(&taken, sizeof taken, offsetof(berth_move_options, reserved),
                            options, "options", error);
    move *m;

    *out = NULL;
    if (status == BERTH_OK)
        status = berthi_options_check((uint32_t)taken.reserved32, "options", error);
    if (status != BERTH_OK)
        return status;
    m = berthi_memory_zalloc(model->context, BERTHI_PURPOSE_OBJECT, sizeof *m);
    if (m == NULL)
        return berthi_fail_memory(error, "moving a model");
    m->context = model->context;
    m->model = model;
    m->options = taken;
    m->is_asleep = is_asleep;
    m->start_ns = berthi_sys_now_ns();
    status = create_side(model, &m->own, error);
    if (status == BERTH_OK)
        status = berthi_model_begin_move(model, is_asleep, "the model", error);
    if (status == BERTH_OK) {
        *out = m;
        return BERTH_OK;
    }
    leave_side(m->own);
    berthi_memory_free(m->context, BERTHI_PURPOSE_OBJECT, m, sizeof *m);
    return status;
}

static berth_status
start(move *m, const char *phase, uint64_t total, berth_job **out_job, berth_error *error)
{
    return berthi_job_start(m->context,
                            &(berthi_job_work){ .run = run_move,
                                                .fini = free_move,
                                                .user = m,
                                                .phase = phase,
                                                .total = total,
                                                .progress = m->options.progress,
                                                .progress_user =
                                                    m->options.progress_user },
                            out_job, error);
}

/* What falling asleep carries. */
static uint64_t
awake_bytes(const berth_model *model, bool discards)
{
    uint64_t bytes = 0;

    for (uint32_t t = 0; t < model->tier_count; t++)
        if (berthi_hold_is_due(model, t, discards))
            bytes += berthi_hold_bytes(model, t, discards);
    return bytes;
}

berth_status
berth_model_sleep_start(berth_model *model, const berth_move_options *options,
                        berth_job **out_job, berth_error *error)
{
    berth_status status;
    move *m;

    status = berthi_job_check_start(model, "model", out_job, error);
    if (status == BERTH_OK)
        status = begin(model, false, options, &m, error);
    if (status != BERTH_OK)
        return status;
    m->work = do_sleep;
    return start(m, "sleep", awake_bytes(model, m->options.discards != 0), out_job,
                 error);
}

berth_status
berth_model_wake_start(berth_model *model, const berth_move_options *options,
                       berth_job **out_job, berth_error *error)
{
    berth_status status;
    move *m;

    status = berthi_job_check_start(model, "model", out_job, error);
    if (status == BERTH_OK)
        status = begin(model, true, options, &m, error);
    if (status != BERTH_OK)
        return status;
    m->work = do_wake;
    return start(m, "wake", berthi_model_asleep_bytes(model), out_job, error);
}

berth_status
berth_model_move_start(berth_model *model, const berth_plan *plan,
                       const berth_move_options *options, berth_job **out_job,
                       berth_error *error)
{
    berth_status status;
    move *m;

    status = berthi_job_check_start(model, "model", out_job, error);
    if (status == BERTH_OK && plan == NULL)
        status = berthi_fail_argument(error, "plan", "is NULL");
    if (status == BERTH_OK)
        status = begin(model, false, options, &m, error);
    if (status != BERTH_OK)
        return status;
    status = berthi_replan_init(&m->own->replan, model, plan, error);
    if (status != BERTH_OK) {
        free_move(m);
        return status;
    }
    m->work = do_move;
    return start(m, "move", m->own->replan.bytes, out_job, error);
}

berth_status
berth_model_swap_start(berth_model *model, berth_model *other,
                       const berth_move_options *options, berth_job **out_job,
                       berth_error *error)
{
    berth_status status;
    move *m;

    status = berthi_job_check_start(model, "model", out_job, error);
    if (status == BERTH_OK && other == NULL)
        status = berthi_fail_argument(error, "other", "is NULL");
    if (status == BERTH_OK && other == model)
        status = berthi_fail_argument(error, "other", "is the model that is to sleep");
    if (status == BERTH_OK)
        status = begin(model, false, options, &m, error);
    if (status != BERTH_OK)
        return status;
    status = create_side(other, &m->others, error);
    if (status == BERTH_OK)
        status = berthi_model_begin_move(other, true, "the other model", error);
    if (status != BERTH_OK) {
        free_move(m);
        return status;
    }
    m->other = other;
    m->other_is_asleep = true;
    m->work = do_swap;
    return start(m, "swap",
                 awake_bytes(model, m->options.discards != 0)
                     + berthi_model_asleep_bytes(other),
                 out_job, error);
}
