/* SPDX-License-Identifier: Apache-2.0 */
/* json_error.h - an error of the library as members of a JSON object. */
#ifndef BERTH_TOOLS_JSON_ERROR_H
#define BERTH_TOOLS_JSON_ERROR_H

#include "loader/berth.h"
#include "tools/json.h"

/* Numbers that it does not have are null. `name`: of its tensor, whole; not escaped. */
void json_error(json_writer *w, const berth_error *error, const char *name,
                size_t name_length);

#endif
