/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_choice.h - --verify, --no-verify and --manifest of commands that hold what they read
 * against a manifest.
 */
#ifndef BERTH_TOOLS_VERIFY_CHOICE_H
#define BERTH_TOOLS_VERIFY_CHOICE_H

#include "tools/cli.h"

/* A berth_load_verify. */
static inline int32_t
verify_choice(bool has_to_verify, bool is_unverified)
{
    return has_to_verify   ? BERTH_LOAD_VERIFY_REQUIRE
           : is_unverified ? BERTH_LOAD_VERIFY_NONE
                           : BERTH_LOAD_VERIFY_AUTO;
}

/* The others have no effect with --no-verify. */
static inline berth_status
verify_choice_check(const cli_call *call, bool is_unverified)
{
    berth_status status = BERTH_OK;

    if (is_unverified)
        status = cli_refuse(call, "verify", "with --no-verify");
    if (status == BERTH_OK && is_unverified)
        status = cli_refuse(call, "manifest", "with --no-verify");
    return status;
}

#endif
