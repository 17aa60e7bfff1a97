/* SPDX-License-Identifier: Apache-2.0 */
/* json_error.h - an error of the library in JSON, as every command tells it. */
#ifndef BERTH_TOOLS_JSON_ERROR_H
#define BERTH_TOOLS_JSON_ERROR_H

#include "loader/berth.h"
#include "tools/json.h"

/* Numbers that it does not have are null. `name`: of its tensor, whole; not escaped. */
void json_error(json_writer *w, const berth_error *error, const char *name,
                size_t name_length);
/* What the object of a command that can fail begins with. */
void json_status(json_writer *w, berth_status status);
/* The member "error", of what has failed. */
void json_error_object(json_writer *w, const berth_error *error);
/* The whole document, in place of what a command that failed would have told. */
void json_failure(output *out, const berth_error *error);

#endif
