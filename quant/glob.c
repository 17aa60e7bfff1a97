/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glob.c - matching takes at most length x pattern steps: after a mismatch only
 * the last '*' takes one character more.
 */
#include "quant/glob.h"

#include <stddef.h>

/* Behind the ']' of the set at `set`, which begins behind '['; NULL: none. */
static const char *
end_of_set(const char *set)
{
    if (*set == '!')
        set++;
    if (*set == ']') /* the first one is a member */
        set++;
    while (*set != '\0' && *set != ']')
        set++;
    return *set == ']' ? set + 1 : NULL;
}

static bool
is_ascii(const char *at, const char *end)
{
    while (at < end && (unsigned char)*at < 0x80)
        at++;
    return at == end;
}

const char *
berthi_glob_check(const char *pattern)
{
    if (*pattern == '\0')
        return "an empty pattern";
    while (*pattern != '\0') {
        if (*pattern == '\\') {
            if (pattern[1] == '\0')
                return "nothing follows the last \\";
            pattern += 2;
        } else if (*pattern == '[') {
            const char *const end = end_of_set(pattern + 1);

            if (end == NULL)
                return "a [ without ]";
            if (!is_ascii(pattern, end))
                return "a set of characters beyond ASCII";
            pattern = end;
        } else {
            pattern++;
        }
    }
    return NULL;
}

/* The set at `set`, which begins behind '[', and ends before `end`. */
static bool
is_in_set(const char *set, const char *end, char byte)
{
    const bool is_turned = *set == '!';
    bool is_in = false;

    set += is_turned;
    end--; /* the ']' */
    while (set < end) {
        const char low = *set++;
        char high = low;

        if (set + 1 < end && *set == '-') {
            high = set[1];
            set += 2;
        }
        is_in = is_in || (byte >= low && byte <= high);
    }
    return is_in != is_turned;
}

static uint64_t
character_length(const char *name, uint64_t length)
{
    uint64_t bytes = 1;

    while (bytes < length && ((unsigned char)name[bytes] & 0xc0) == 0x80)
        bytes++;
    return bytes;
}

/*
 * One step of the pattern, which is no '*', against the character at `name`.
 * Returns where the pattern goes on, or NULL; *out_taken bytes of the name.
 */
static const char *
match_one(const char *pattern, const char *name, uint64_t length, uint64_t *out_taken)
{
    *out_taken = 1;
    if (*pattern == '?') {
        *out_taken = character_length(name, length);
        return pattern + 1;
    }
    if (*pattern == '[') {
        const char *const end = end_of_set(pattern + 1);

        *out_taken = character_length(name, length);
        return is_in_set(pattern + 1, end, *name) ? end : NULL;
    }
    if (*pattern == '\\')
        pattern++;
    return *pattern == *name ? pattern + 1 : NULL;
}

bool
berthi_glob_is_match(const char *pattern, const char *name, uint64_t length)
{
    const char *star = NULL; /* behind the last '*' */
    uint64_t star_at = 0;    /* what it has taken ends here */
    uint64_t at = 0;

    while (at < length || *pattern == '*') {
        const char *next = NULL;
        uint64_t taken = 0;

        if (*pattern == '*') {
            star = ++pattern;
            star_at = at;
            continue;
        }
        if (*pattern != '\0')
            next = match_one(pattern, name + at, length - at, &taken);
        if (next != NULL) {
            pattern = next;
            at += taken;
            continue;
        }
        if (star == NULL)
            return false;
        star_at += character_length(name + star_at, length - star_at);
        at = star_at;
        pattern = star;
    }
    return *pattern == '\0';
}
