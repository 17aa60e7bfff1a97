/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint_config.c - config.json of a checkpoint: read once, when it is opened. What asks
 * for it later gets these bytes, which belong to the weights, whatever lies in its place.
 */
#include "loader/checkpoint.h"

#include "kernels/number.h"
#include "loader/listing.h"

/* ------------------------------------------------------------------- opening */

static berth_status
read_text(berth_checkpoint *c, berth_error *error)
{
    berth_status status =
        berthi_location_read(&c->location, BERTHI_CONFIG_NAME, BERTHI_CONFIG_LIMIT,
                             BERTH_REASON_CONFIG_JSON, &c->config_text, &c->config_bytes,
                             error);

    if (status == BERTH_OK)
        status = berthi_config_parse(c->context, c->config_text, c->config_bytes,
                                     c->config_path, &c->config, error);
    return status;
}

/* A model may lack it; one that lies in a snapshot has perhaps lost it. */
static void
remark_absence(berth_checkpoint *c, berthi_findings *findings)
{
    berthi_location *const location = &c->location;
    uint64_t bytes;

    if (location->file == NULL
        && berthi_location_is_listed(location, BERTHI_CONFIG_NAME, &bytes))
        berthi_findings_remark(findings, BERTH_SEVERITY_WARNING, BERTH_REASON_INCOMPLETE,
                               &(berthi_about){ .file = location->folder_path },
                               BERTHI_CONFIG_NAME " belongs to this revision but was not "
                                           "downloaded");
}

/* What lies beside a file that was named need not belong to it: only a warning. */
berth_status
berthi_checkpoint_read_config(berth_checkpoint *c, berthi_findings *findings,
                              berth_error *error)
{
    berth_status status =
        berthi_location_has(&c->location, BERTHI_CONFIG_NAME, &c->has_config, error);

    if (status != BERTH_OK)
        return status;
    c->config_path = berthi_location_path(&c->location, BERTHI_CONFIG_NAME);
    if (c->config_path == NULL)
        return berthi_fail_memory(error, "a path");
    if (!c->has_config) {
        remark_absence(c, findings);
        return BERTH_OK;
    }
    status = read_text(c, error);
    if (status != BERTH_OK && status != BERTH_ENOMEM && status != BERTH_EIO
        && c->location.file != NULL) {
        berthi_findings_tell(findings, BERTH_SEVERITY_WARNING, error);
        return BERTH_OK;
    }
    return status;
}

/* --------------------------------------------------------------------- later */

berth_status
berthi_checkpoint_parse_config(const berth_checkpoint *c, berth_context *context,
                               berthi_json **out, berth_error *error)
{
    const berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, c->config_path };

    *out = NULL;
    if (!c->has_config)
        return BERTH_OK;
    if (c->config_text == NULL)
        return berthi_fail(error, BERTH_REASON_CONFIG_JSON,
                           &(berthi_about){ .file = c->config_path },
                           "could not be read when the model was opened");
    return berthi_json_parse(context, c->config_text, c->config_bytes,
                             BERTHI_JSON_NONFINITE, &origin, out, error);
}

bool
berthi_checkpoint_has_small_numbers(const berth_checkpoint *checkpoint, int32_t dtype)
{
    return berthi_is_small_number(dtype) && !checkpoint->is_lone;
}

int32_t
berthi_checkpoint_dtype(const berth_checkpoint *checkpoint)
{
    const berthi_table *const table = &checkpoint->table;

    if (berthi_is_number(checkpoint->config.dtype))
        return checkpoint->config.dtype;
    for (uint64_t i = 0; i < table->entry_count; i++) {
        const berthi_entry *const entry = &table->entries[table->by_name[i]];

        if (entry->flags == BERTH_ENCODING_NATIVE && berthi_is_number(entry->dtype))
            return entry->dtype;
    }
    return BERTH_BF16;
}
