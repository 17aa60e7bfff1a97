/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_shape.c - any bytes as config.json, then everything that is estimated from
 * it. What is accepted has numbers in their ranges; sums fit, or say that they do not.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "placement/train.h"
#include "tests/fuzz/require.h"

static void
check_shape(const berthi_shape *shape, const berthi_weight_list *list)
{
    uint64_t layers = 0;

    REQUIRE(shape->hidden > 0 && shape->layers > 0 && shape->vocabulary > 0);
    REQUIRE(shape->kind_count > 0 && shape->kind_count <= BERTHI_LAYER_KINDS);
    for (uint32_t i = 0; i < shape->kind_count; i++) {
        REQUIRE(shape->kinds[i].count > 0);
        REQUIRE(shape->kinds[i].experts_used <= shape->kinds[i].experts);
        layers += shape->kinds[i].count;
    }
    REQUIRE(layers == shape->layers + shape->encoder_layers);
    REQUIRE(list->count > 0 && list->count <= BERTHI_WEIGHT_KINDS
            && !list->is_cut);
    for (uint32_t i = 0; i < list->count; i++)
        REQUIRE(list->items[i].count > 0 && list->items[i].module != NULL
                && list->items[i].shape[0] > 0);
}

static void
check_lines(const berthi_estimate *estimate)
{
    uint64_t device = 0;

    REQUIRE(estimate->line_count <= BERTHI_PART_COUNT);
    for (uint32_t i = 0; i < estimate->line_count; i++) {
        REQUIRE(estimate->lines[i].bytes > 0);
        REQUIRE(i == 0 || estimate->lines[i].part > estimate->lines[i - 1].part);
        if (estimate->lines[i].place == BERTHI_PLACE_DEVICE)
            device += estimate->lines[i].bytes;
    }
    REQUIRE(device == estimate->device_bytes);
}

static void
check_estimates(const berthi_estimate_model *model)
{
    const berthi_fit_budget budget = { .bytes = UINT64_C(24) << 30, .reserve_percent = 10 };
    berthi_train_options options;
    berthi_advice_list list;
    berthi_estimate estimate;
    berthi_fit_type rows[BERTHI_TYPE_COUNT];
    int32_t types[BERTHI_TYPE_COUNT];
    uint32_t count;
    int32_t best;

    berthi_train_options_init(&options, model->shape);
    REQUIRE(berthi_fit_check(&options.base, &budget, NULL) == BERTH_OK);
    count = berthi_fit_types(model, options.base.type, types);
    for (uint32_t i = 0; i < count; i++)
        rows[i].type = types[i];
    best = berthi_estimate_fit(model, &options.base, &budget, rows, count);
    REQUIRE(best < (int32_t)count && (best < 0 || rows[best].fits));
    if (berthi_estimate_inference(model, &options.base, &estimate, NULL) == BERTH_OK) {
        check_lines(&estimate);
        REQUIRE(estimate.device_bytes == rows[0].bytes);
    }
    if (berthi_train_estimate(model, &options, &estimate, NULL) == BERTH_OK) {
        check_lines(&estimate);
        REQUIRE(berthi_train_advise(model, &options, &budget, &list, NULL) == BERTH_OK);
    }
    options.method = BERTHI_METHOD_LORA;
    options.base.type = BERTHI_TYPE_NF4;
    options.checkpoint_every = 1;
    if (berthi_train_estimate(model, &options, &estimate, NULL) == BERTH_OK)
        check_lines(&estimate);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, "f" };
    berthi_weight_list list;
    berthi_json *document;
    berth_context *context;
    berthi_shape shape;
    berth_error error;

    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    if (berthi_json_parse(context, (const char *)data, size, BERTHI_JSON_NONFINITE, &origin,
                          &document, &error) == BERTH_OK) {
        if (berthi_shape_read(berthi_json_root(document), "f", &shape, &error)
            == BERTH_OK) {
            berthi_estimate_model model = { .shape = &shape, .weights = list.items };

            berthi_shape_weights(&shape, &list);
            model.weight_count = list.count;
            check_shape(&shape, &list);
            check_estimates(&model);
        } else {
            REQUIRE(error.reason == BERTH_REASON_CONFIG_JSON && error.message[0] != '\0');
            REQUIRE(shape.kind_count == 0);
        }
        berthi_json_destroy(document);
    }
    berth_context_destroy(context);
    return 0;
}
