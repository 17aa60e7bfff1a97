/* SPDX-License-Identifier: Apache-2.0 */
/* sim_words.c - words of simulated devices, parsed; see sim_words.h. */
#include "kernels/sim_words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/digits.h"
#include "kernels/duration.h"

#define VALUE_LIMIT 64u /* characters; only needless digits need more */

/* One device's words while they are read. */
typedef struct sim_part {
    berthi_sim_words *words;
    berthi_sim_device_words *device;
    bool has_rate_to_host;
    uint32_t machine_keys; /* bits of keys of the machine that some part has given */
} sim_part;

/* -------------------------------------------------------------------- values */

static bool
can_parse_bytes(const char *text, uint64_t *out)
{
    return berth_size_parse(text, out, NULL) == BERTH_OK;
}

/* "25GB/s", "25GB" */
static bool
can_parse_rate(const char *text, uint64_t *out)
{
    const size_t length = strlen(text);
    char size[VALUE_LIMIT + 1];

    memcpy(size, text, length + 1);
    if (length > 2 && strcmp(text + length - 2, "/s") == 0)
        size[length - 2] = '\0';
    return can_parse_bytes(size, out) && *out > 0 && *out <= BERTHI_SIM_RATE_LIMIT;
}

/* Digits alone, up to `limit`. */
static bool
can_parse_number(const char *text, uint64_t limit, uint64_t *out)
{
    return berthi_digits_can_parse(text, strlen(text), limit, out);
}

/* The number of the word that `text` is; `count` if none. */
static uint32_t
find_word(const char *const *words, uint32_t count, const char *text)
{
    uint32_t i = 0;

    while (i < count && strcmp(words[i], text) != 0)
        i++;
    return i;
}

/* ---------------------------------------------------------------------- keys */

static const char *const clock_words[] = { "virtual", "real" };
static const char *const backing_words[] = { "memory", "digest", "sealed" };
static const char *const pick_words[] = { "first", "last", "random" };
static const char *const touch_words[] = { "random", "begin", "end" };

/* Each takes a value, or returns false. */
static bool
takes_size(sim_part *part, const char *text)
{
    return can_parse_bytes(text, &part->device->memory_bytes);
}

static bool
takes_to_device(sim_part *part, const char *text)
{
    return can_parse_rate(text, &part->device->rate_to_device);
}

static bool
takes_to_host(sim_part *part, const char *text)
{
    part->has_rate_to_host = true;
    return can_parse_rate(text, &part->device->rate_to_host);
}

static bool
takes_memory(sim_part *part, const char *text)
{
    return can_parse_rate(text, &part->device->rate_memory);
}

static bool
takes_to_peer(sim_part *part, const char *text)
{
    return can_parse_rate(text, &part->device->rate_to_peer);
}

static bool
takes_latency(sim_part *part, const char *text)
{
    return berthi_duration_can_parse(text, BERTHI_SIM_TIME_LIMIT, &part->device->latency_ns);
}

static bool
takes_operation(sim_part *part, const char *text)
{
    return berthi_duration_can_parse(text, BERTHI_SIM_TIME_LIMIT, &part->device->operation_ns);
}

static bool
takes_pin(sim_part *part, const char *text)
{
    return can_parse_bytes(text, &part->device->pin_bytes);
}

static bool
takes_jitter(sim_part *part, const char *text)
{
    const size_t length = strlen(text);
    uint64_t value;

    if (length == 0 || text[length - 1] != '%'
        || !berthi_digits_can_parse(text, length - 1, BERTHI_SIM_JITTER_LIMIT, &value))
        return false;
    part->device->jitter = (uint32_t)value;
    return true;
}

static bool
takes_root(sim_part *part, const char *text)
{
    uint64_t value;

    if (!can_parse_number(text, UINT32_MAX, &value))
        return false;
    part->device->root = (uint32_t)value;
    return true;
}

static bool
takes_node(sim_part *part, const char *text)
{
    uint64_t value;

    if (!can_parse_number(text, INT32_MAX, &value))
        return false;
    part->device->numa_node = (int32_t)value;
    return true;
}

static bool
takes_backing(sim_part *part, const char *text)
{
    const uint32_t word = find_word(backing_words, 3, text);

    part->device->keeps_digests = word == 1;
    part->device->is_sealed = word == 2;
    return word < 3;
}

static bool
takes_clock(sim_part *part, const char *text)
{
    const uint32_t word = find_word(clock_words, 2, text);

    part->words->machine.is_real = word == 1;
    return word < 2;
}

static bool
takes_pick(sim_part *part, const char *text)
{
    const uint32_t word = find_word(pick_words, 3, text);

    part->words->machine.pick = (int32_t)word;
    return word < 3;
}

static bool
takes_touch(sim_part *part, const char *text)
{
    const uint32_t word = find_word(touch_words, 3, text);

    part->words->machine.touch = (int32_t)word;
    return word < 3;
}

static bool
takes_seed(sim_part *part, const char *text)
{
    return can_parse_number(text, UINT64_MAX, &part->words->machine.seed);
}

#ifdef BERTH_TESTING
static bool
takes_lose(sim_part *part, const char *text)
{
    return can_parse_number(text, UINT64_MAX, &part->device->lose);
}

static bool
takes_stall(sim_part *part, const char *text)
{
    return can_parse_number(text, UINT64_MAX, &part->device->stall);
}

static bool
takes_hang(sim_part *part, const char *text)
{
    return can_parse_number(text, UINT64_MAX, &part->device->hang);
}

static bool
takes_steal(sim_part *part, const char *text)
{
    return can_parse_bytes(text, &part->device->steal_bytes);
}
#endif

typedef struct sim_key {
    const char *name;
    bool is_machine; /* one for all devices */
    bool (*takes)(sim_part *part, const char *text);
    const char *problem;
} sim_key;

static const sim_key keys[] = {
    { "h2d", false, takes_to_device, "is not a rate as 25GB/s" },
    { "d2h", false, takes_to_host, "is not a rate as 25GB/s" },
    { "memory", false, takes_memory, "is not a rate as 900GB/s" },
    { "peers", false, takes_to_peer, "is not a rate as 450GB/s" },
    { "latency", false, takes_latency, "is not a time as 10us, up to 3600s" },
    { "operation", false, takes_operation, "is not a time as 4us, up to 3600s" },
    { "jitter", false, takes_jitter, "is not a share as 20%, up to 1000%" },
    { "root", false, takes_root, "is not a number" },
    { "numa", false, takes_node, "is not a number" },
    { "pin", false, takes_pin, "is not a size as 4GiB" },
    { "backing", false, takes_backing, "is none of memory, digest and sealed" },
    { "clock", true, takes_clock, "is neither virtual nor real" },
    { "pick", true, takes_pick, "is none of first, last and random" },
    { "touch", true, takes_touch, "is none of random, begin and end" },
    { "seed", true, takes_seed, "is not a number" },
#ifdef BERTH_TESTING
    { "lose", false, takes_lose, "is not a number" },
    { "stall", false, takes_stall, "is not a number" },
    { "hang", false, takes_hang, "is not a number" },
    { "steal", false, takes_steal, "is not a size as 4GiB" },
#endif
};

#define KEY_COUNT (sizeof keys / sizeof *keys)

/* --------------------------------------------------------------------- parse */

static bool
is_same_machine(const berthi_sim_machine_words *a, const berthi_sim_machine_words *b)
{
    return a->is_real == b->is_real && a->pick == b->pick && a->touch == b->touch
           && a->seed == b->seed;
}

/* "h2d=25GB/s"; `given` has a bit for each key of this device. */
static berth_status
take_item(sim_part *part, const char *item, size_t length, uint32_t *given,
          berth_error *error)
{
    const char *const sign = memchr(item, '=', length);
    const size_t name_length = sign != NULL ? (size_t)(sign - item) : length;
    const berthi_sim_machine_words before = part->words->machine;
    char value[VALUE_LIMIT + 1];
    size_t k = 0;

    while (k < KEY_COUNT
           && (strlen(keys[k].name) != name_length
               || memcmp(keys[k].name, item, name_length) != 0))
        k++;
    if (sign == NULL || k == KEY_COUNT)
        return berthi_words_refuse(error, item, length,
                                   "has none of the keys that berth-devices(5) names");
    if (length - name_length - 1 > VALUE_LIMIT)
        return berthi_words_refuse(error, item, length, "has too many characters");
    if ((*given >> k & 1u) != 0)
        return berthi_words_refuse(error, item, length,
                                   "gives a key that was given before");
    *given |= 1u << k;
    memcpy(value, sign + 1, length - name_length - 1);
    value[length - name_length - 1] = '\0';
    if (strlen(value) != length - name_length - 1 || !keys[k].takes(part, value))
        return berthi_words_refuse(error, item, length, keys[k].problem);
    if (keys[k].is_machine && (part->machine_keys >> k & 1u) != 0
        && !is_same_machine(&part->words->machine, &before))
        return berthi_words_refuse(error, item, length,
                                   "is not that of the devices before: a machine has one");
    part->machine_keys |= keys[k].is_machine ? 1u << k : 0;
    return BERTH_OK;
}

/* "24GiB,h2d=25GB/s" */
static berth_status
take_items(sim_part *part, const char *text, size_t length, berth_error *error)
{
    uint32_t given = 0;
    bool is_first = true;

    for (;;) {
        const char *const comma = memchr(text, ',', length);
        const size_t item = comma != NULL ? (size_t)(comma - text) : length;
        char value[VALUE_LIMIT + 1];
        berth_status status = BERTH_OK;

        if (is_first && memchr(text, '=', item) == NULL) {
            snprintf(value, sizeof value, "%.*s", (int)berthi_min_u64(item, VALUE_LIMIT),
                     text);
            if (item > VALUE_LIMIT || strlen(value) != item || !takes_size(part, value))
                return berthi_words_refuse(error, text, item, "is not a size as 24GiB");
        } else {
            status = take_item(part, text, item, &given, error);
        }
        if (status != BERTH_OK || comma == NULL)
            return status;
        text += item + 1;
        length -= item + 1;
        is_first = false;
    }
}

/* "sim", "sim:24GiB,h2d=25GB/s", either with "*4" behind it. */
static berth_status
take_part(sim_part *part, const char *text, size_t length, berth_error *error)
{
    berthi_sim_words *const words = part->words;
    const char *const star = memchr(text, '*', length);
    const size_t own = star != NULL ? (size_t)(star - text) : length;
    berthi_sim_device_words *const device = &words->devices[words->count];
    berth_status status = BERTH_OK;
    uint32_t count;

    if (own < 3 || memcmp(text, "sim", 3) != 0 || (own > 3 && text[3] != ':'))
        return berthi_words_refuse(error, text, length, "is not sim:...");
    if (!berthi_words_can_count(text + own, length - own, &count))
        return berthi_words_refuse(error, text + own, length - own,
                                   "is none of *1 to *64");
    if (count > BERTHI_DEVICES_LIMIT - words->count)
        return berthi_words_refuse(error, text, length,
                                   "is a device too many: there is room for 64");
    *device = (berthi_sim_device_words){
        .memory_bytes = UINT64_C(24) << 30,
        .rate_to_device = UINT64_C(25000000000),
        .rate_to_host = UINT64_C(25000000000),
        .rate_memory = UINT64_C(900000000000),
        .latency_ns = 10000,
        .pin_bytes = UINT64_MAX,
        .numa_node = -1,
    };
    part->device = device;
    part->has_rate_to_host = false;
    if (own > 3)
        status = take_items(part, text + 4, own - 4, error);
    if (status != BERTH_OK)
        return status;
    if (!part->has_rate_to_host)
        device->rate_to_host = device->rate_to_device;
    for (uint32_t i = 1; i < count; i++)
        device[i] = device[0];
    words->count += count;
    return BERTH_OK;
}

berth_status
berthi_sim_words_parse(const char *text, berthi_sim_words *out, berth_error *error)
{
    sim_part part = { .words = out };

    memset(out, 0, sizeof *out);
    for (;;) {
        const size_t length = strcspn(text, ";");
        const berth_status status = take_part(&part, text, length, error);

        if (status != BERTH_OK || text[length] == '\0')
            return status;
        if (out->count == BERTHI_DEVICES_LIMIT)
            return berthi_words_refuse(error, text + length, strlen(text + length),
                                       "is a device too many: there is room for 64");
        text += length + 1;
    }
}
