/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - a piece of somebody's text: a name, a word of a line, an item of a list. */
#ifndef BERTH_KERNELS_TEXT_H
#define BERTH_KERNELS_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Borrowed, and not ended by a NUL. */
typedef struct berthi_text {
    const char *bytes;
    uint64_t length;
} berthi_text;

/* All of a string. */
static inline berthi_text
berthi_text_of(const char *string)
{
    return (berthi_text){ string, strlen(string) };
}

static inline bool
berthi_text_is_same(berthi_text a, berthi_text b)
{
    return a.length == b.length && memcmp(a.bytes, b.bytes, (size_t)a.length) == 0;
}

/* For tables of names: bytes of the text, eight at a time, and its length. */
static inline uint64_t
berthi_text_hash(berthi_text text)
{
    const char *bytes = text.bytes;
    uint64_t length = text.length;
    uint64_t hash = length;
    uint64_t word;

    for (; length >= sizeof word; bytes += sizeof word, length -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    word = 0;
    memcpy(&word, bytes, (size_t)length);
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

static inline bool
berthi_text_is(berthi_text text, const char *string)
{
    return berthi_text_is_same(text, berthi_text_of(string));
}

static inline bool
berthi_text_ends(berthi_text text, const char *end)
{
    const uint64_t length = strlen(end);

    return length <= text.length
           && memcmp(text.bytes + text.length - length, end, (size_t)length) == 0;
}

/* Without spaces around it. */
static inline berthi_text
berthi_text_trim(berthi_text text)
{
    while (text.length > 0 && text.bytes[0] == ' ') {
        text.bytes++;
        text.length--;
    }
    while (text.length > 0 && text.bytes[text.length - 1] == ' ')
        text.length--;
    return text;
}

#endif
