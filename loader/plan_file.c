/* SPDX-License-Identifier: Apache-2.0 */
/* plan_file.c - plans as text, for the caller and from him. */
#include <string.h>

#include "loader/document.h"
#include "placement/plan_json.h"

/* -------------------------------------------------------------------------- text */

typedef struct handing {
    berth_text_function put;
    void *user;
} handing;

static berth_status
hand_on(void *user, const char *bytes, uint64_t size, uint64_t offset, berth_error *error)
{
    const handing *const h = user;

    (void)offset;
    if (h->put(h->user, bytes, (size_t)size) == 0)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_CANCELLED, NULL, "stopped by the caller");
}

berth_status
berth_plan_print(const berth_plan *plan, berth_text_function put, void *user,
                 berth_error *error)
{
    handing h = { put, user };

    berthi_error_clear(error);
    if (plan == NULL)
        return berthi_fail_argument(error, "plan", "is NULL");
    if (put == NULL)
        return berthi_fail_argument(error, "put", "is NULL");
    return berthi_plan_print(plan, hand_on, &h, error);
}

berth_status
berth_plan_open(berth_context *context, const char *path, berth_plan **out_plan,
                berth_error *error)
{
    berthi_document document;
    berth_status status;

    berthi_error_clear(error);
    if (out_plan == NULL)
        return berthi_fail_argument(error, "out_plan", "is NULL");
    *out_plan = NULL;
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    if (path == NULL)
        return berthi_fail_argument(error, "path", "is NULL");
    if (path[0] == '\0')
        return berthi_fail_argument(error, "path", "is empty");
    status = berthi_document_read(context, path, BERTHI_PLAN_TEXT_LIMIT,
                                  BERTH_REASON_PLAN_JSON, "a plan", &document, error);
    if (status == BERTH_OK)
        status = berthi_plan_parse(context, document.text, document.bytes, path, out_plan,
                                   error);
    berthi_document_fini(&document);
    return status;
}

static berth_status
parse_copy(berth_context *context, const char *text, size_t bytes, const char *file,
           berth_plan **out_plan, berth_error *error)
{
    char *const copy = berthi_memory_alloc(context, BERTHI_PURPOSE_DOCUMENT, bytes);
    berth_status status;

    if (copy == NULL)
        return berthi_fail_memory(error, "reading a plan");
    memcpy(copy, text, bytes);
    status = berthi_plan_parse(context, copy, bytes, file, out_plan, error);
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, copy, bytes);
    return status;
}

berth_status
berth_plan_parse(berth_context *context, const char *text, size_t bytes, const char *file,
                 berth_plan **out_plan, berth_error *error)
{
    berthi_error_clear(error);
    if (out_plan == NULL)
        return berthi_fail_argument(error, "out_plan", "is NULL");
    *out_plan = NULL;
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    if (text == NULL)
        return berthi_fail_argument(error, "text", "is NULL");
    if (file == NULL)
        return berthi_fail_argument(error, "file", "is NULL");
    if (bytes > BERTHI_PLAN_TEXT_LIMIT)
        return berthi_fail_argument(error, "bytes", "are more than a plan has");
    return parse_copy(context, text, bytes, file, out_plan, error);
}
