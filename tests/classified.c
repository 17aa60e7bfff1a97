/* SPDX-License-Identifier: Apache-2.0 */
/* classified.c - see classified.h. */
#include "tests/classified.h"

#include "quant/classify.h"
#include "tests/t.h"

berth_context *classified_context;

void
classified_error(tensors *t, const char *config, berth_reason reason, const char *tensor,
                 const char *why)
{
    for (int keep_going = 0; keep_going < 2; keep_going++) {
        uint32_t errors = 0;

        CHECK_EQ(tensors_run(t, classified_context, config, keep_going != 0),
                 berthi_reason_status((int32_t)reason));
        CHECK_STR(berth_reason_name(t->error.reason), berth_reason_name((int32_t)reason));
        CHECK_STR(t->error.tensor, tensor);
        CHECK_STR(t->error.file, "m/model.safetensors");
        CHECK_CONTAINS(t->error.message, why);
        CHECK_EQ(t->result.count, 0);
        CHECK(t->result.blocks == NULL);
        for (uint32_t i = 0; i < t->finding_count; i++)
            errors += t->severities[i] == BERTH_SEVERITY_ERROR;
        CHECK_EQ(errors, keep_going);
    }
}

void
classified_clean(tensors *t, const char *config)
{
    if (!CHECK_EQ(tensors_run(t, classified_context, config, false), BERTH_OK))
        T_NOTE("\"%s\": %s", t->error.tensor, t->error.message);
    CHECK_EQ(t->finding_count, 0);
}

void
classified_marks(const tensors *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const tensors_one *const one = &t->all[i];

        CHECK_EQ(one->marks, one->encoding != BERTH_ENCODING_NATIVE);
        if (one->marks == 0)
            continue;
        T_REQUIRE(one->record < t->result.count);
        const berthi_quantized *const record =
            berthi_classify_record(&t->result, one->record);
        bool is_listed = false;

        if (one->encoding != BERTH_ENCODING_STATISTICS) {
            CHECK_EQ(record->weight, i);
            CHECK_EQ(record->encoding, one->encoding);
            continue;
        }
        for (uint32_t k = 0; k < record->companion_count; k++)
            is_listed = is_listed || record->companions[k] == i;
        CHECK(is_listed);
    }
}
