/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_config.c - any bytes as config.json. What is accepted holds its
 * invariants; what is refused leaves a config that says nothing.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/utf8.h"
#include "quant/config.h"
#include "quant/format.h"
#include "tests/fuzz/require.h"

static void
check_text(const char *text)
{
    REQUIRE(text != NULL);
    REQUIRE(berthi_utf8_check((const unsigned char *)text, strlen(text)) == strlen(text));
}

static void
check(const berthi_config *c)
{
    check_text(c->architecture);
    check_text(c->model_type);
    check_text(c->dtype_name);
    check_text(c->transformers_version);
    check_text(c->weights_file);
    check_text(c->expert_dtype);
    check_text(c->quant_method);
    check_text(c->quant_format);
    check_text(c->quant_type);
    check_text(c->quant_storage);
    check_text(c->compute_dtype);
    REQUIRE(c->dtype == berthi_format_torch_dtype(c->dtype_name, strlen(c->dtype_name)));
    REQUIRE(c->ties_embeddings >= -1 && c->ties_embeddings <= 1);
    REQUIRE((c->block_rows == 0) == (c->block_columns == 0));
    if (!c->has_quantization)
        REQUIRE(c->quant_method[0] == '\0' && c->block_rows == 0 && c->bits == 0
                && !c->loads_4bit && !c->loads_8bit);
    if (c->loads_4bit || c->loads_8bit)
        REQUIRE(c->quant_method[0] != '\0');
}

static void
check_nothing(const berthi_config *c)
{
    check(c);
    REQUIRE(c->architecture[0] == '\0' && c->model_type[0] == '\0'
            && c->dtype_name[0] == '\0' && c->ties_embeddings == -1
            && !c->has_quantization && c->weights_file[0] == '\0'
            && c->arena.blocks == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    berth_memory_summary memory;
    berth_context *context;
    berthi_config config;
    berth_error error;

    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    if (berthi_config_parse(context, (const char *)data, size, "f", &config, &error)
        == BERTH_OK) {
        check(&config);
    } else {
        REQUIRE(error.reason == BERTH_REASON_CONFIG_JSON
                || error.reason == BERTH_REASON_PATH);
        check_nothing(&config);
    }
    berthi_config_fini(&config);
    berth_context_memory(context, &memory);
    REQUIRE(memory.current_bytes == 0);
    berth_context_destroy(context);
    return 0;
}
