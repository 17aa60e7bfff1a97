/* SPDX-License-Identifier: Apache-2.0 */
/* encoding.c - options of encodings as what the library takes; see encoding.h. */
#include "tools/encoding.h"

#include <stdlib.h>
#include <string.h>

int32_t
encoding_dtype(int32_t position)
{
    static const int32_t dtypes[] = { -1,        BERTH_BF16, BERTH_F16,
                                      BERTH_F32, BERTH_BF16, BERTH_F16,
                                      BERTH_F32, BERTH_F16,  BERTH_F32 };

    return dtypes[position];
}

const char *
encoding_era(int32_t position)
{
    /* In the order of ENCODING_ERAS. */
    static const char *const eras[] = { "hf5", "hf5.14", "hf5.0", "hf4" };

    return eras[position];
}

berth_status
encoding_check_block(const cli_call *call, uint32_t size)
{
    return size >= 32 && size <= 4096 && (size & (size - 1)) == 0
               ? BERTH_OK
               : cli_usage_error(call->command,
                                 "--block-size: %u is no power of two from 32 to 4096", size);
}

berth_status
encoding_check(const cli_call *call, const encoding_arguments *arguments,
               int32_t encoding)
{
    static const char *const of_4_bits[] = { "double-quant", "block-size", "storage" };
    /* Who is to be quantized, where nobody is. */
    static const char *const of_any[] = { "skip-modules", "experts", "rules", "keep", "only" };
    const bool is_4bit = encoding == BERTH_ENCODING_NF4 || encoding == BERTH_ENCODING_FP4;
    berth_status status = BERTH_OK;

    for (size_t i = 0; i < sizeof of_4_bits / sizeof of_4_bits[0] && !is_4bit; i++)
        if (status == BERTH_OK)
            status = cli_refuse(call, of_4_bits[i],
                                encoding == BERTH_ENCODING_INT8
                                    ? "with --type int8"
                                    : "without --type nf4 or fp4");
    for (size_t i = 0; i < sizeof of_any / sizeof of_any[0]; i++)
        if (status == BERTH_OK && encoding == BERTH_ENCODING_NATIVE)
            status = cli_refuse(call, of_any[i], "without --type nf4, fp4 or int8");
    if (status == BERTH_OK && is_4bit)
        status = encoding_check_block(call, arguments->block_size);
    return status;
}

berth_status
encoding_skips_init(encoding_skips *skips, const cli_call *call, const char *given)
{
    const cli_command *const command = call->command;
    char *at;

    if (given == NULL || given[0] == '\0')
        return BERTH_OK;
    skips->text = malloc(strlen(given) + 1);
    if (skips->text == NULL)
        return cli_failure(command, BERTH_ENOMEM, "out of memory");
    at = strcpy(skips->text, given);
    while (at != NULL) {
        char *const comma = strchr(at, ',');

        if (comma != NULL)
            *comma = '\0';
        if (at[0] == '\0')
            return cli_usage_error(command, "--skip-modules: an entry is empty");
        if (skips->count == ENCODING_MAX_SKIPS)
            return cli_usage_error(command, "--skip-modules: more than %d entries",
                                   ENCODING_MAX_SKIPS);
        skips->items[skips->count++] = at;
        at = comma != NULL ? comma + 1 : NULL;
    }
    return BERTH_OK;
}

void
encoding_skips_fini(encoding_skips *skips)
{
    free(skips->text);
    skips->text = NULL;
    skips->count = 0;
}
