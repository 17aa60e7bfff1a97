/* SPDX-License-Identifier: Apache-2.0 */
/* estimated.c - see estimated.h. */
#include "tests/estimated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"

static estimated last;

estimated *
estimated_text(const char *text)
{
    const berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, "m/config.json" };
    berth_context *context;
    berthi_json *document;
    berth_status status;

    memset(&last, 0, sizeof last);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        abort();
    status = berthi_json_parse(context, text, strlen(text), BERTHI_JSON_NONFINITE, &origin,
                               &document, &last.error);
    if (status == BERTH_OK) {
        status = berthi_shape_read(berthi_json_root(document), "m/config.json",
                                   &last.shape, &last.error);
        berthi_json_destroy(document);
    }
    berth_context_destroy(context);
    if (status != BERTH_OK)
        return NULL;
    berthi_shape_weights(&last.shape, &last.weights);
    last.model.shape = &last.shape;
    last.model.weights = last.weights.items;
    last.model.weight_count = last.weights.count;
    return &last;
}

estimated *
estimated_config(const char *name)
{
    char *const text =
        fixture_read(fixture_format("tests/data/configs/%s.json", name), NULL);
    estimated *const e = estimated_text(text);

    free(text);
    if (e == NULL) {
        fprintf(stderr, "%s: %s\n", name, last.error.message);
        abort();
    }
    return e;
}

const berth_error *
estimated_error(void)
{
    return &last.error;
}

uint64_t
estimated_mb(uint64_t bytes)
{
    return (bytes + 500000) / 1000000;
}
