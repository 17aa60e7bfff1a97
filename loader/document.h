/* SPDX-License-Identifier: Apache-2.0 */
/* document.h - a whole small file that the user names: rules, maps, plans. */
#ifndef BERTH_LOADER_DOCUMENT_H
#define BERTH_LOADER_DOCUMENT_H

#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"

typedef struct berthi_document {
    berth_context *context;
    char *text; /* not ended by a NUL */
    uint64_t bytes;
} berthi_document;

/*
 * `what` it is for messages: "the device map". More than `limit` bytes fail with
 * `reason`; otherwise fails as opening and reading a file does, or with NO_MEMORY.
 * Free with berthi_document_fini(), after failures, too.
 */
berth_status berthi_document_read(berth_context *context, const char *path,
                                  uint64_t limit, berth_reason reason, const char *what,
                                  berthi_document *out, berth_error *error);
void berthi_document_fini(berthi_document *document);

#endif
