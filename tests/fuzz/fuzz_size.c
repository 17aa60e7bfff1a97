/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_size.c - any bytes as a size; what is accepted is computed once more with
 * 128 bits, and its text reads back within half a hundredth of its unit.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/berth.h"
#include "tests/fuzz/require.h"

__extension__ typedef unsigned __int128 wide;

/* 10^18 and 2^60 in one table, by the first letter and the second. */
static uint64_t
unit_of(const char *name)
{
    const bool is_binary = name[0] != '\0' && name[1] == 'i';
    uint64_t bytes = 1;

    if (name[0] == 'B' || name[0] == '\0')
        return 1;
    for (const char *letter = "KMGTPE"; *letter != '\0'; letter++) {
        bytes *= is_binary ? 1024 : 1000;
        if ((name[0] == 'k' ? 'K' : name[0]) == *letter)
            return bytes;
    }
    __builtin_trap();
}

/* What up to 18 digits before and 18 behind the point mean; false for more. */
static bool
is_computed(const char *text, uint64_t *out)
{
    wide whole = 0;
    wide fraction = 0;
    wide scale = 1;
    unsigned digits = 0;

    for (; *text >= '0' && *text <= '9'; text++, digits++)
        if (digits < 18)
            whole = whole * 10 + (unsigned)(*text - '0');
    if (digits > 18)
        return false;
    if (*text == '.')
        for (digits = 0, text++; *text >= '0' && *text <= '9'; text++, digits++)
            if (digits < 18) {
                fraction = fraction * 10 + (unsigned)(*text - '0');
                scale *= 10;
            }
    if (digits > 18)
        return false;
    while (*text == ' ')
        text++;
    *out = (uint64_t)(whole * unit_of(text) + fraction * unit_of(text) / scale);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *const text = malloc(size + 1);
    char printed[BERTH_SIZE_CAPACITY];
    uint64_t bytes = 1;
    uint64_t expected;
    uint64_t again;
    berth_error error;
    berth_status status;

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    status = berth_size_parse(text, &bytes, &error);
    REQUIRE(status == BERTH_OK || (status == BERTH_EINVAL && bytes == 0));
    REQUIRE(error.status == status);
    if (status == BERTH_OK) {
        if (is_computed(text, &expected))
            REQUIRE(bytes == expected);
        REQUIRE(strlen(berth_size_format(bytes, printed)) < BERTH_SIZE_CAPACITY);
        /* 16.00 EiB is 2^64, one more than there is. */
        if (berth_size_parse(printed, &again, NULL) == BERTH_OK)
            REQUIRE((again > bytes ? again - bytes : bytes - again) <= bytes / 200 + 1);
        else
            REQUIRE(strcmp(printed, "16.00 EiB") == 0);
        snprintf(printed, sizeof printed, "%" PRIu64, bytes);
        REQUIRE(berth_size_parse(printed, &again, NULL) == BERTH_OK && again == bytes);
    }
    free(text);
    return 0;
}
