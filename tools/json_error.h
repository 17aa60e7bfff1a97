/* SPDX-License-Identifier: Apache-2.0 */
/* json_error.h - an error of the library in JSON, as every command tells it. */
#ifndef BERTH_TOOLS_JSON_ERROR_H
#define BERTH_TOOLS_JSON_ERROR_H

#include <stdbool.h>

#include "loader/berth.h"
#include "tools/json.h"

/* Does a command line have --json, wherever, with or without a value, but behind no `--`? */
bool json_is_asked(int count, char *const *words);
/* A failure of a tool itself, without words yet; its reason is the plainest of the status. */
berth_error json_error_of(berth_status status);
/* Why a file was not made or written: a reason of the status that the command ends with. */
int32_t json_reason_of_file(berth_status status, int system_error);
/* Numbers that it does not have are null. `name`: of its tensor, whole; not escaped. */
void json_error(json_writer *w, const berth_error *error, const char *name,
                size_t name_length);
/* What the object of a command that can fail begins with. */
void json_status(json_writer *w, berth_status status);
/* The member "error", of what has failed. */
void json_error_object(json_writer *w, const berth_error *error);
/*
 * The whole document, in place of what a command that failed would have told. `status` is what
 * its exit code says, `error` why: the first of all that was wrong may be of another kind.
 */
void json_failure(output *out, berth_status status, const berth_error *error);

#endif
