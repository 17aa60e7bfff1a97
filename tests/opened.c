/* SPDX-License-Identifier: Apache-2.0 */
/* opened.c - models opened in tests; see opened.h. */
#include "tests/opened.h"

#include <string.h>

#include "kernels/base.h"
#include "tests/fixture.h"
#include "tests/t.h"

void
opened_check_finding(const berth_finding *finding)
{
    const berth_error *const details = finding->details;
    const berthi_about about = { .tensor = finding->name,
                                 .tensor_length = finding->name_length };
    berth_error shown;

    CHECK(finding->severity >= BERTH_SEVERITY_NOTE
          && finding->severity <= BERTH_SEVERITY_ERROR);
    CHECK_EQ(details->status, berthi_reason_status(details->reason));
    CHECK_NE(details->message[0], '\0');
    berthi_fail(&shown, BERTH_REASON_NONE, &about, "%s", "");
    CHECK_STR(details->tensor, shown.tensor);
    CHECK_EQ(finding->reserved32, 0);
    for (size_t i = 0; i < sizeof finding->reserved / sizeof *finding->reserved; i++)
        CHECK_EQ(finding->reserved[i], 0);
}

static void
collect(void *user, const berth_finding *finding)
{
    opened *const o = user;

    opened_check_finding(finding);
    CHECK_NE(finding->details->reason, BERTH_REASON_NONE);
    if (o->finding_count < OPENED_FINDINGS) {
        o->findings[o->finding_count].severity = finding->severity;
        o->findings[o->finding_count].details = *finding->details;
    }
    o->finding_count++;
}

void
opened_begin(opened *o, const char *path, const berth_open_options *options)
{
    berth_open_options mine;

    memset(o, 0, sizeof *o);
    berth_open_options_init(&mine);
    if (options != NULL)
        mine = *options;
    mine.finding = collect;
    mine.finding_user = o;
    o->fds = fixture_open_fds();
    CHECK_EQ(berth_context_create(NULL, &o->context, NULL), BERTH_OK);
    o->checkpoint = (berth_checkpoint *)&o->status; /* must be overwritten */
    memset(&o->error, 0xee, sizeof o->error);
    o->status = berth_checkpoint_open(o->context, path, &mine, &o->checkpoint, &o->error);
    CHECK_EQ(o->checkpoint != NULL, o->status == BERTH_OK);
    CHECK_EQ(o->error.status, o->status);
    if (o->checkpoint != NULL)
        berth_checkpoint_get(o->checkpoint, &o->summary);
    else
        CHECK_EQ(berthi_reason_status(o->error.reason), o->status);
}

void
opened_end(opened *o)
{
    berth_memory_summary memory;

    berth_checkpoint_close(o->checkpoint);
    berth_context_memory(o->context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    CHECK_EQ(memory.allocations, memory.frees);
    berth_context_destroy(o->context);
    CHECK_EQ(fixture_open_fds(), o->fds);
}

const opened_finding *
opened_find(const opened *o, berth_reason reason, uint32_t n)
{
    for (uint32_t i = 0; i < o->finding_count && i < OPENED_FINDINGS; i++)
        if (o->findings[i].details.reason == (int32_t)reason && n-- == 0)
            return &o->findings[i];
    return NULL;
}

uint32_t
opened_count(const opened *o, berth_reason reason)
{
    uint32_t count = 0;

    while (opened_find(o, reason, count) != NULL)
        count++;
    return count;
}

void
opened_refuse(const char *path, const berth_open_options *options, berth_reason reason,
              const char *words)
{
    opened o;
    char line[sizeof o.error + 512] = "opened";

    opened_begin(&o, path, options);
    CHECK_NE(o.status, BERTH_OK);
    if (o.status != BERTH_OK)
        berth_error_format(&o.error, line, sizeof line);
    if (!CHECK_STR(berth_reason_name(o.error.reason), berth_reason_name((int32_t)reason)))
        T_NOTE("%s: %s", path, line);
    CHECK_CONTAINS(line, words);
    opened_end(&o);
}

uint64_t
opened_accept(const char *path, const berth_open_options *options)
{
    uint64_t count;
    opened o;

    opened_begin(&o, path, options);
    if (!CHECK_EQ(o.status, BERTH_OK))
        T_NOTE("%s: %s", path, o.error.message);
    count = o.summary.tensor_count;
    opened_end(&o);
    return count;
}
