/* SPDX-License-Identifier: Apache-2.0 */
/* device_words.c - counts of devices, and how their words are refused. */
#include "kernels/device_words.h"

bool
berthi_words_can_count(const char *text, size_t length, uint32_t *out)
{
    uint32_t count = 0;

    *out = 1;
    if (length == 0)
        return true;
    if (length < 2 || text[0] != '*' || text[1] == '0')
        return false;
    for (size_t i = 1; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        count = count * 10 + (uint32_t)(text[i] - '0');
        if (count > BERTHI_DEVICES_LIMIT)
            return false;
    }
    *out = count;
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
