/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_config_write.c - any bytes as config.json, written anew. The first byte
 * chooses what for. What was written is written the same again, says what was
 * asked for, and without its quantization is the text that never had one.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quant/config.h"
#include "quant/config_write.h"
#include "tests/fuzz/require.h"

typedef struct text {
    char *bytes;
    uint64_t length;
} text;

static berth_context *context;

/* False: refused, for a reason that there is. */
static int
has_written(const char *bytes, uint64_t length, const berthi_quantization *what,
            const char *dtype, text *out)
{
    berth_error error;

    if (berthi_config_rewrite(context, &(berthi_config_text){ bytes, length, "f" }, what,
                              dtype, &out->bytes, &out->length, &error)
        == BERTH_OK)
        return 1;
    REQUIRE(error.reason == BERTH_REASON_CONFIG_JSON);
    REQUIRE(out->bytes == NULL && out->length == 0);
    return 0;
}

static void
drop(text *t)
{
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, t->bytes, t->length);
}

static int
is_same(const text *a, const text *b)
{
    return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

/* What berth reads of the new text. */
static void
check_config(const text *out, const berthi_quantization *what, const char *dtype)
{
    berthi_config config;

    if (berthi_config_parse(context, out->bytes, out->length, "f", &config, NULL)
        == BERTH_OK) {
        REQUIRE(config.has_quantization == (what != NULL));
        if (what != NULL)
            REQUIRE(strcmp(config.quant_method, "bitsandbytes") == 0
                    && config.loads_8bit == (what->encoding == BERTH_ENCODING_INT8)
                    && config.loads_4bit != config.loads_8bit);
        if (dtype != NULL)
            REQUIRE(strcmp(config.dtype_name, dtype) == 0);
    }
    berthi_config_fini(&config);
}

static void
check(const char *bytes, uint64_t length, const berthi_quantization *what,
      const char *dtype)
{
    text once;
    text again;
    text bare;
    text never;

    if (!has_written(bytes, length, what, dtype, &once))
        return;
    for (uint64_t i = 0; i < once.length; i++)
        REQUIRE(once.bytes[i] == '\n' || (once.bytes[i] >= ' ' && once.bytes[i] < 0x7f));
    check_config(&once, what, dtype);
    REQUIRE(has_written(once.bytes, once.length, what, dtype, &again));
    REQUIRE(is_same(&once, &again));
    REQUIRE(has_written(once.bytes, once.length, NULL, NULL, &bare));
    REQUIRE(has_written(bytes, length, NULL, dtype, &never));
    REQUIRE(is_same(&bare, &never));
    drop(&once);
    drop(&again);
    drop(&bare);
    drop(&never);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const dtypes[] = { NULL, "bfloat16", "float16" };
    static const char *const skips[] = { "lm_head", "\xc3\xa9" };
    berth_memory_summary memory;
    berthi_quantization what = { .encoding = BERTH_ENCODING_NF4, .storage = BERTH_U8 };
    unsigned choice;

    if (size == 0)
        return 0;
    choice = data[0];
    what.encoding = choice & 1 ? BERTH_ENCODING_INT8 : BERTH_ENCODING_NF4;
    what.has_skips = (choice & 2) != 0;
    what.skips = skips;
    what.skip_count = what.has_skips && (choice & 4) ? 2 : 0;
    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    check((const char *)data + 1, size - 1, choice & 8 ? NULL : &what,
          dtypes[(choice >> 4) % 3]);
    berth_context_memory(context, &memory);
    REQUIRE(memory.current_bytes == 0);
    berth_context_destroy(context);
    return 0;
}
