/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/converted.h"

#include <string.h>

#include "tests/fixture.h"
#include "tests/t.h"

static void
keep_finding(void *user, const berth_finding *finding)
{
    converted *const c = user;

    c->findings++;
    c->finding = *finding->details;
}

static void
count_line(void *user, const berth_coverage *line)
{
    converted *const c = user;

    CHECK(line->cause != NULL);
    CHECK_GT(line->tensors, 0);
    c->lines++;
}

void
converted_begin(converted *c, const char *output, int32_t type)
{
    memset(c, 0, sizeof *c);
    berth_convert_options_init(&c->options);
    c->options.output = output;
    c->options.type = type;
    c->options.report = &c->report;
    c->options.finding = keep_finding;
    c->options.finding_user = c;
    c->options.coverage = count_line;
    c->options.coverage_user = c;
}

berth_status
converted_run_in(converted *c, berth_context *context, const char *path)
{
    berth_checkpoint *checkpoint = NULL;
    berth_job *job = NULL;
    berth_status status =
        berth_checkpoint_open(context, path, NULL, &checkpoint, &c->error);

    c->lines = 0;
    c->findings = 0;
    if (status == BERTH_OK) {
        status = berth_convert_start(context, checkpoint, &c->options, &job, &c->error);
        CHECK_EQ(status == BERTH_OK, job != NULL);
    }
    if (status == BERTH_OK)
        status = berth_job_finish(job, &c->error);
    berth_checkpoint_close(checkpoint);
    CHECK_EQ(c->error.status, status);
    return status;
}

berth_status
converted_run(converted *c, const char *path)
{
    const int fds = fixture_open_fds();
    berth_memory_summary memory;
    berth_context *context;
    berth_status status;

    status = berth_context_create(NULL, &context, &c->error);
    if (!CHECK_EQ(status, BERTH_OK))
        return status;
    status = converted_run_in(c, context, path);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    CHECK_EQ(fixture_open_fds(), fds);
    return status;
}
