/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - remarks and errors of an opening, in the order they were found. */
#include "loader/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"

void
berthi_findings_init(berthi_findings *findings, berth_context *context,
                     const berth_open_options *options)
{
    memset(findings, 0, sizeof *findings);
    findings->context = context;
    findings->report = options->finding;
    findings->user = options->finding_user;
    findings->keep_going = options->keep_going != 0;
    findings->is_strict = options->strict != 0;
}

void
berthi_findings_fini(berthi_findings *findings)
{
    berthi_memory_free(findings->context, BERTHI_PURPOSE_SCRATCH, findings->name,
                       findings->name_capacity);
    findings->name = NULL;
}

/* ------------------------------------------------------------------- names */

void
berthi_findings_keep_name(berthi_findings *findings, const char *name, uint64_t length)
{
    findings->has_name = false;
    if (name == NULL || findings->report == NULL)
        return;
    if (findings->name == NULL || length > findings->name_capacity) {
        berthi_findings_fini(findings);
        findings->name_capacity = berthi_max_u64(length, BERTH_NAME_CAPACITY);
        findings->name = berthi_memory_alloc(findings->context, BERTHI_PURPOSE_SCRATCH,
                                             findings->name_capacity);
        if (findings->name == NULL)
            return;
    }
    memcpy(findings->name, name, (size_t)length);
    findings->name_length = length;
    findings->has_name = true;
}

/* A name that was kept for another error, which was never told, is none of this one. */
static bool
is_name_of(const berthi_findings *findings, const berth_error *error)
{
    const berthi_about about = { .tensor = findings->name,
                                 .tensor_length = (size_t)findings->name_length };
    berth_error shown;

    if (!findings->has_name)
        return false;
    berthi_fail(&shown, BERTH_REASON_NONE, &about, "%s", "");
    return strcmp(shown.tensor, error->tensor) == 0;
}

void
berthi_findings_tell(berthi_findings *findings, berth_severity severity,
                     const berth_error *error)
{
    berth_finding finding = { .severity = (int32_t)severity, .details = error };

    if (findings->report == NULL)
        return;
    if (is_name_of(findings, error)) {
        finding.name = findings->name;
        finding.name_length = (size_t)findings->name_length;
    } else if (error->tensor[0] != '\0') {
        finding.name = error->tensor;
        finding.name_length = strlen(error->tensor);
    }
    findings->has_name = false;
    findings->report(findings->user, &finding);
}

/* ----------------------------------------------------------------- findings */

void
berthi_findings_remark(berthi_findings *findings, berth_severity severity,
                       berth_reason reason, const berthi_about *about,
                       const char *format, ...)
{
    char message[BERTH_MESSAGE_CAPACITY];
    berth_error details;
    va_list arguments;

    if (findings->report == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    berthi_fail(&details, reason, about, "%s", message);
    if (about != NULL)
        berthi_findings_keep_name(findings, about->tensor, about->tensor_length);
    berthi_findings_tell(findings, severity, &details);
}

bool
berthi_findings_note(berthi_findings *findings, const berth_error *error)
{
    if (findings->errors++ == 0)
        findings->first = *error;
    if (!findings->keep_going || error->status == BERTH_ENOMEM
        || error->status == BERTH_EINVAL)
        return false;
    berthi_findings_tell(findings, BERTH_SEVERITY_ERROR, error);
    return error->reason != BERTH_REASON_OPEN_FILES; /* nor could another be opened */
}

berth_status
berthi_findings_result(const berthi_findings *findings, berth_error *error)
{
    if (findings->errors == 0)
        return BERTH_OK;
    if (error != NULL)
        *error = findings->first;
    return findings->first.status;
}

const char *
berthi_findings_shown(const char *bytes, uint64_t length,
                      char text[BERTHI_SHOWN_CAPACITY])
{
    const size_t shown = 128;

    if (berth_text_escape(bytes, (size_t)length, text, shown + 1) > shown)
        strcat(text, "...");
    return text;
}
