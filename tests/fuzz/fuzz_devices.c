/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_devices.c - words of simulated devices: what is read is printed and read again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sim_words.h"
#include "tests/fuzz/require.h"
#include "tests/sim_printed.h"

/* Every value within what the key takes. */
static void
check_device(const berthi_sim_device_words *d)
{
    REQUIRE(d->rate_to_device > 0 && d->rate_to_device <= BERTHI_SIM_RATE_LIMIT);
    REQUIRE(d->rate_to_host > 0 && d->rate_to_host <= BERTHI_SIM_RATE_LIMIT);
    REQUIRE(d->rate_memory > 0 && d->rate_memory <= BERTHI_SIM_RATE_LIMIT);
    REQUIRE(d->latency_ns <= BERTHI_SIM_TIME_LIMIT);
    REQUIRE(d->jitter <= BERTHI_SIM_JITTER_LIMIT);
}

static void
check_print(const berthi_sim_words *words, berth_error *error)
{
    static char text[2][SIM_WORDS_CAPACITY];
    berthi_sim_words again;
    const size_t length = sim_words_print(words, text[0], sizeof text[0]);

    REQUIRE(length < sizeof text[0] && length == strlen(text[0]));
    REQUIRE(berthi_sim_words_parse(text[0], &again, error) == BERTH_OK);
    REQUIRE(again.count == words->count);
    sim_words_print(&again, text[1], sizeof text[1]);
    REQUIRE(strcmp(text[0], text[1]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *const text = malloc(size + 1);
    berthi_sim_words words;
    berth_error error;
    berth_status status;

    REQUIRE(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    berthi_error_clear(&error);
    status = berthi_sim_words_parse(text, &words, &error);
    REQUIRE(status == BERTH_OK || status == BERTH_EINVAL);
    REQUIRE((status == BERTH_OK) == (error.message[0] == '\0'));
    if (status == BERTH_OK) {
        REQUIRE(words.count > 0 && words.count <= BERTHI_DEVICES_LIMIT);
        for (uint32_t i = 0; i < words.count; i++)
            check_device(&words.devices[i]);
        check_print(&words, &error);
    }
    free(text);
    return 0;
}
