/* SPDX-License-Identifier: Apache-2.0 */
/* moved.c - a model before and after its moves; see moved.h. */
#include "tests/moved.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "loader/model.h"
#include "tests/passed.h"
#include "tests/t.h"

uint64_t
moved_used(const moved *m)
{
    const berthi_ledger *const ledger = &m->l.p.context->ledger;

    return atomic_load(&ledger->by_purpose[BERTHI_PURPOSE_WEIGHTS]);
}

uint64_t
moved_free(const moved *m, uint32_t number)
{
    berth_device device;

    CHECK_EQ(berth_devices_get(m->l.devices, number, &device), BERTH_OK);
    return device.free_bytes;
}

void
moved_begin(moved *m, const char *folder, berth_plan_options *options, const char *words)
{
    moved_begin_with(m, folder, options, words, NULL);
}

void
moved_begin_with(moved *m, const char *folder, berth_plan_options *options,
                 const char *words, const char *offload_dir)
{
    memset(m, 0, sizeof *m);
    loaded_begin(&m->l, folder, options, words);
    m->l.options.offload_dir = offload_dir;
    loaded_load(&m->l);
    if (!CHECK_EQ(m->l.status, BERTH_OK))
        t_note("%s", m->l.error.message);
    if (m->l.model == NULL)
        abort();
    m->digests = calloc(m->l.p.summary.berth_count, sizeof *m->digests);
    for (uint64_t i = 0; i < m->l.p.summary.berth_count; i++)
        CHECK_EQ(berth_model_digest(m->l.model, i, &m->digests[i], NULL), BERTH_OK);
    m->looked = passed(&m->l, 1);
    m->memory = moved_used(m);
    berth_move_options_init(&m->options);
    m->options.report = &m->report;
}

void
moved_end(moved *m)
{
    free(m->digests);
    loaded_end(&m->l);
}

berth_status
moved_finish(moved *m, berth_status status, berth_job *job)
{
    CHECK_EQ(status, m->error.status);
    CHECK((status == BERTH_OK) == (job != NULL));
    if (status == BERTH_OK)
        status = berth_job_finish(job, &m->error);
    CHECK_EQ(status, m->error.status);
    return status;
}

/* What a call leaves in an error that it was given is its own. */
static void
dirty(moved *m)
{
    memset(&m->error, 0x55, sizeof m->error);
}

berth_status
moved_sleep(moved *m)
{
    berth_job *job;
    berth_status status;

    dirty(m);
    status = berth_model_sleep_start(m->l.model, &m->options, &job, &m->error);
    return moved_finish(m, status, job);
}

berth_status
moved_wake(moved *m)
{
    berth_job *job;
    berth_status status;

    dirty(m);
    status = berth_model_wake_start(m->l.model, &m->options, &job, &m->error);
    return moved_finish(m, status, job);
}

berth_status
moved_move(moved *m, const berth_plan *plan)
{
    berth_job *job;
    berth_status status;

    dirty(m);
    status = berth_model_move_start(m->l.model, plan, &m->options, &job, &m->error);
    return moved_finish(m, status, job);
}

berth_status
moved_swap(moved *m, berth_model *other)
{
    berth_job *job;
    berth_status status;

    dirty(m);
    status = berth_model_swap_start(m->l.model, other, &m->options, &job, &m->error);
    return moved_finish(m, status, job);
}

bool
moved_is_ok(const moved *m, berth_status status)
{
    if (CHECK_EQ(status, BERTH_OK))
        return true;
    t_note("%s", m->error.message);
    return false;
}

void
moved_check(moved *m)
{
    uint64_t bytes = 0;

    CHECK_EQ(berth_model_get_state(m->l.model), BERTH_MODEL_AWAKE);
    for (uint32_t t = 0; t < m->l.model->tier_count; t++)
        bytes += m->l.model->tiers[t].bytes + m->l.model->tiers[t].hold_bytes;
    CHECK_EQ(atomic_load(&m->l.model->bytes), bytes);
    for (uint64_t i = 0; i < m->l.p.summary.berth_count; i++) {
        uint32_t crc;

        CHECK_EQ(berth_model_digest(m->l.model, i, &crc, NULL), BERTH_OK);
        CHECK_EQ(crc, m->digests[i]);
    }
}

static berth_plan *plans[16];
static uint32_t plan_count;

berth_plan *
moved_plan(moved *m, berth_plan_options *options)
{
    berth_plan *plan = NULL;
    const berth_status status = berth_plan_create(m->l.p.context, m->l.p.checkpoint,
                                                  options, &plan, &m->error);

    if (!CHECK_EQ(status, BERTH_OK))
        t_note("%s", m->error.message);
    if (plan == NULL || plan_count == 16)
        abort();
    plans[plan_count++] = plan;
    return plan;
}

void
moved_free_plans(void)
{
    while (plan_count > 0)
        berth_plan_destroy(plans[--plan_count]);
}
