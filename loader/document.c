/* SPDX-License-Identifier: Apache-2.0 */
/* document.c - see document.h. */
#include "loader/document.h"

#include <inttypes.h>
#include <stdio.h>

#include "kernels/sys.h"
#include "loader/file.h"

static berth_status
read_file(const berthi_file *file, const char *what, berthi_document *out,
          berth_error *error)
{
    char doing[64];
    berth_status status;

    snprintf(doing, sizeof doing, "reading %s", what);
    out->text = berthi_memory_alloc(out->context, BERTHI_PURPOSE_DOCUMENT,
                                    file->identity.bytes);
    if (out->text == NULL)
        return berthi_fail_memory(error, doing);
    out->bytes = file->identity.bytes;
    status = berthi_file_read(file, out->text, out->bytes, 0, doing, error);
    if (status != BERTH_OK)
        berthi_document_fini(out);
    return status;
}

berth_status
berthi_document_read(berth_context *context, const char *path, uint64_t limit,
                     berth_reason reason, const char *what, berthi_document *out,
                     berth_error *error)
{
    berthi_file file;
    berth_status status;

    *out = (berthi_document){ .context = context };
    status =
        berthi_file_open(&file, BERTHI_SYS_AT_CWD, path, path, BERTHI_FILE_ANYWHERE, error);
    if (status != BERTH_OK)
        return status;
    if (file.identity.bytes > limit)
        status = berthi_fail(error, reason, &(berthi_about){ .file = path },
                             "has %" PRIu64 " bytes, %s at most %" PRIu64,
                             file.identity.bytes, what, limit);
    else
        status = read_file(&file, what, out, error);
    berthi_file_close(&file);
    return status;
}

void
berthi_document_fini(berthi_document *document)
{
    berthi_memory_free(document->context, BERTHI_PURPOSE_DOCUMENT, document->text,
                       document->bytes);
    document->text = NULL;
    document->bytes = 0;
}
