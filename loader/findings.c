/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - remarks and errors of an opening, in the order they were found. */
#include "loader/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void
berthi_findings_init(berthi_findings *findings, const berth_open_options *options)
{
    memset(findings, 0, sizeof *findings);
    findings->report = options->finding;
    findings->user = options->finding_user;
    findings->keep_going = options->keep_going != 0;
    findings->is_strict = options->strict != 0;
}

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
    findings->report(findings->user, (int32_t)severity, &details);
}

bool
berthi_findings_can_go_on(berthi_findings *findings, const berth_error *error)
{
    if (findings->errors++ == 0)
        findings->first = *error;
    if (!findings->keep_going || error->status == BERTH_ENOMEM
        || error->status == BERTH_EINVAL)
        return false;
    if (findings->report != NULL)
        findings->report(findings->user, BERTH_SEVERITY_ERROR, error);
    return true;
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
