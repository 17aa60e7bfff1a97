/* SPDX-License-Identifier: Apache-2.0 */
/* device_words.c - counts of devices, and how their words are refused. */
#include "kernels/device_words.h"

#include "kernels/digits.h"

bool
berthi_words_can_count(const char *text, size_t length, uint32_t *out)
{
    uint64_t count;

    *out = 1;
    if (length == 0)
        return true;
    if (length < 2 || text[0] != '*' || text[1] == '0'
        || !berthi_digits_can_parse(text + 1, length - 1, BERTHI_DEVICES_LIMIT, &count))
        return false;
    *out = (uint32_t)count;
    return true;
}

berth_status
berthi_words_refuse(berth_error *error, const char *words, size_t length,
                    const char *problem)
{
    char name[BERTH_NAME_CAPACITY];

    berth_text_escape(words, length, name, sizeof name);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL, "\"%s\" %s", name, problem);
}
