/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - the JSON scanner: strings, containers, skipping. Numbers: scan_number.c */
#include "quant/scan.h"

#include <string.h>
#ifdef __SSE2__ /* every x86-64 */
#include <emmintrin.h>
#endif

#include "kernels/utf8.h"
#include "kernels/word.h"

void
berthi_scan_init(berthi_scan *scan, char *text, uint64_t length, uint32_t flags)
{
    memset(scan, 0, sizeof *scan);
    scan->text = text;
    scan->length = length;
    scan->flags = flags;
}

bool
berthi_scan_refuse(berthi_scan *scan, const char *problem)
{
    if (scan->problem == NULL) {
        scan->problem = problem;
        scan->problem_at = scan->position;
    }
    return false;
}

static inline void
skip_space(berthi_scan *scan)
{
    const char *const text = scan->text;
    uint64_t at = scan->position;

    while (at < scan->length && (unsigned char)text[at] <= ' '
           && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t'))
        at++;
    scan->position = at;
}

static inline bool
is_here(const berthi_scan *scan, char byte)
{
    return scan->position < scan->length && scan->text[scan->position] == byte;
}

/* True when `byte` comes next, after white space; it stays where it is. */
static inline bool
is_next(berthi_scan *scan, char byte)
{
    if (is_here(scan, byte))
        return true;
    skip_space(scan);
    return is_here(scan, byte);
}

/* ------------------------------------------------------------------ strings */

static inline bool
is_special(char byte)
{
    return byte == '"' || byte == '\\' || (unsigned char)byte < 0x20;
}

/* At the next quote, backslash or control character, or where less than a step is left. */
#ifdef __SSE2__

static inline uint64_t
skip_steps(const char *text, uint64_t at, uint64_t length)
{
    for (; length - at >= 16; at += 16) {
        const __m128i bytes = _mm_loadu_si128((const void *)(text + at));
        const __m128i marks = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                           _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
        const __m128i controls =
            _mm_cmpeq_epi8(bytes, _mm_min_epu8(bytes, _mm_set1_epi8(0x1f)));
        const int found = _mm_movemask_epi8(_mm_or_si128(marks, controls));

        if (found != 0)
            return at + (unsigned)__builtin_ctz((unsigned)found);
    }
    return at;
}

#else

/*
 * In a word, x - 1 sets the top bit of a byte that was zero, and x - 0x20 of one
 * below 0x20, among bytes below 0x80, which all three of them are. A borrow can
 * set it falsely, but only above a byte where it is set rightly: the lowest one
 * set is always right.
 */
static inline uint64_t
skip_steps(const char *text, uint64_t at, uint64_t length)
{
    for (; length - at >= 8; at += 8) {
        const uint64_t word = berthi_word_load(text + at);
        const uint64_t quote = word ^ BERTHI_WORD_OF('"');
        const uint64_t slash = word ^ BERTHI_WORD_OF('\\');
        const uint64_t found = ((quote - BERTHI_WORD_OF(1)) | (slash - BERTHI_WORD_OF(1))
                                | (word - BERTHI_WORD_OF(0x20)))
                               & ~word & BERTHI_WORD_OF(0x80);

        if (found != 0)
            return at + berthi_word_first(found);
    }
    return at;
}

#endif

/* Position of the next special byte, or `length`. */
static inline uint64_t
find_special(const char *text, uint64_t at, uint64_t length)
{
    at = skip_steps(text, at, length);
    while (at < length && !is_special(text[at]))
        at++;
    return at;
}

static bool
has_hex_digit(char byte, uint32_t *value)
{
    if (byte >= '0' && byte <= '9')
        *value = *value << 4 | (uint32_t)(byte - '0');
    else if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f')
        *value = *value << 4 | (uint32_t)((byte | 0x20) - 'a' + 10);
    else
        return false;
    return true;
}

/* True when a whole \uXXXX stands at `at`. */
static bool
has_unit(const berthi_scan *scan, uint64_t at, uint32_t *unit)
{
    *unit = 0;
    if (scan->length - at < 6 || scan->text[at] != '\\' || scan->text[at + 1] != 'u')
        return false;
    for (uint64_t i = 2; i < 6; i++)
        if (!has_hex_digit(scan->text[at + i], unit))
            return false;
    return true;
}

static size_t
read_unit_escape(berthi_scan *scan, unsigned char bytes[4])
{
    uint64_t used = 6;
    uint32_t point;

    if (!has_unit(scan, scan->position, &point))
        return berthi_scan_refuse(scan, "\\u without four hexadecimal digits");
    if (point >= 0xD800 && point <= 0xDFFF) {
        uint32_t low;

        if (point >= 0xDC00 || !has_unit(scan, scan->position + used, &low)
            || low < 0xDC00 || low > 0xDFFF)
            return berthi_scan_refuse(scan, "an unpaired surrogate");
        point = 0x10000 + ((point - 0xD800) << 10 | (low - 0xDC00));
        used += 6;
    }
    scan->position += used;
    return berthi_utf8_encode(point, bytes);
}

/* The escape at the position: decoded to 1 to 4 bytes, or 0 for a problem. */
static size_t
read_escape(berthi_scan *scan, unsigned char bytes[4])
{
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    const uint64_t left = scan->length - scan->position;
    const char letter = left < 2 ? '\0' : scan->text[scan->position + 1];
    const char *place;

    if (letter == 'u')
        return read_unit_escape(scan, bytes);
    place = memchr(letters, letter, sizeof letters - 1);
    if (place == NULL)
        return berthi_scan_refuse(scan, "an unknown escape");
    bytes[0] = (unsigned char)meanings[place - letters];
    scan->position += 2;
    return 1;
}

/*
 * The rest of a string that begins at `begin` and holds no special byte before the
 * position. With `out` it is unescaped in place, which only makes it shorter; without,
 * it is checked.
 */
static bool
has_rest_of_string(berthi_scan *scan, uint64_t begin, berthi_scan_text *out)
{
    char *const text = scan->text;
    uint64_t end = scan->position; /* of what is unescaped */
    bool has_nul = false;

    while (scan->position < scan->length && text[scan->position] != '"') {
        unsigned char bytes[4];
        uint64_t from;
        size_t count;

        if (text[scan->position] != '\\')
            return berthi_scan_refuse(scan, "a control character in a string");
        count = read_escape(scan, bytes);
        if (count == 0)
            return false;
        has_nul = has_nul || bytes[0] == '\0';
        from = scan->position;
        scan->position = find_special(text, from, scan->length);
        if (out != NULL) {
            memcpy(text + end, bytes, count);
            memmove(text + end + count, text + from, (size_t)(scan->position - from));
        }
        end += count + (scan->position - from);
    }
    if (scan->position == scan->length)
        return berthi_scan_refuse(scan, "a string without end");
    scan->position++;
    if (out != NULL)
        *out = (berthi_scan_text){ text + begin, end - begin, has_nul };
    return true;
}

/* The string whose quote is at the position: most have no escape. */
static inline bool
has_string(berthi_scan *scan, berthi_scan_text *out)
{
    const uint64_t begin = scan->position + 1;
    const uint64_t end = find_special(scan->text, begin, scan->length);

    if (end == scan->length || scan->text[end] != '"') {
        scan->position = end;
        return has_rest_of_string(scan, begin, out);
    }
    scan->position = end + 1;
    if (out != NULL)
        *out = (berthi_scan_text){ scan->text + begin, end - begin, false };
    return true;
}

/* --------------------------------------------------------------- containers */

static bool
can_enter(berthi_scan *scan, bool is_object)
{
    uint64_t *const word = &scan->is_object[scan->depth / 64];
    const uint64_t bit = UINT64_C(1) << scan->depth % 64;

    if (scan->depth == BERTHI_SCAN_DEPTH)
        return berthi_scan_refuse(scan, "nested too deeply");
    *word = is_object ? *word | bit : *word & ~bit;
    scan->depth++;
    scan->position++;
    scan->has_member = false;
    return true;
}

static inline bool
is_in_object(const berthi_scan *scan)
{
    const uint32_t innermost = scan->depth - 1;

    return scan->is_object[innermost / 64] >> innermost % 64 & 1;
}

/* True when another member or element follows; its comma is then read. */
static inline bool
has_next(berthi_scan *scan, char closing)
{
    if (scan->problem != NULL)
        return false;
    if (scan->has_member && is_next(scan, ',')) {
        scan->position++;
        return true;
    }
    if (is_next(scan, closing)) {
        scan->position++;
        scan->depth--;
        scan->has_member = true; /* the container was a member of the one around it */
        return false;
    }
    if (scan->has_member)
        return berthi_scan_refuse(scan, "a comma or the end is missing");
    scan->has_member = true;
    return true;
}

static inline bool
has_next_key(berthi_scan *scan, berthi_scan_text *key)
{
    if (!has_next(scan, '}'))
        return false;
    if (!is_next(scan, '"'))
        return berthi_scan_refuse(scan, "a key is missing");
    if (!has_string(scan, key))
        return false;
    if (!is_next(scan, ':'))
        return berthi_scan_refuse(scan, "a colon is missing");
    scan->position++;
    return true;
}

bool
berthi_scan_can_enter_object(berthi_scan *scan)
{
    if (scan->problem != NULL)
        return false;
    if (!is_next(scan, '{'))
        return berthi_scan_refuse(scan, "not an object");
    return can_enter(scan, true);
}

bool
berthi_scan_can_enter_array(berthi_scan *scan)
{
    if (scan->problem != NULL)
        return false;
    if (!is_next(scan, '['))
        return berthi_scan_refuse(scan, "not an array");
    return can_enter(scan, false);
}

bool
berthi_scan_has_next_member(berthi_scan *scan, berthi_scan_text *key)
{
    return has_next_key(scan, key);
}

bool
berthi_scan_has_next_element(berthi_scan *scan)
{
    return has_next(scan, ']');
}

bool
berthi_scan_can_finish(berthi_scan *scan)
{
    if (scan->problem != NULL)
        return false;
    skip_space(scan);
    if (scan->depth > 0 || scan->position < scan->length)
        return berthi_scan_refuse(scan, "something stands behind the end");
    return true;
}

/* ------------------------------------------------------------------- values */

berthi_scan_kind
berthi_scan_peek(berthi_scan *scan)
{
    char byte;

    if (scan->problem != NULL)
        return BERTHI_SCAN_NONE;
    skip_space(scan);
    if (scan->position == scan->length)
        return BERTHI_SCAN_NONE;
    byte = scan->text[scan->position];
    switch (byte) {
    case '{': return BERTHI_SCAN_OBJECT;
    case '[': return BERTHI_SCAN_ARRAY;
    case '"': return BERTHI_SCAN_STRING;
    case 't': return BERTHI_SCAN_TRUE;
    case 'f': return BERTHI_SCAN_FALSE;
    case 'n': return BERTHI_SCAN_NULL;
    case '-': return BERTHI_SCAN_NUMBER;
    case 'N':
    case 'I':
        return scan->flags & BERTHI_SCAN_NONFINITE ? BERTHI_SCAN_NUMBER
                                                   : BERTHI_SCAN_NONE;
    default: return byte >= '0' && byte <= '9' ? BERTHI_SCAN_NUMBER : BERTHI_SCAN_NONE;
    }
}

bool
berthi_scan_can_read_string(berthi_scan *scan, berthi_scan_text *out)
{
    if (scan->problem != NULL)
        return false;
    if (!is_next(scan, '"'))
        return berthi_scan_refuse(scan, "not a string");
    return has_string(scan, out);
}

bool
berthi_scan_has_plain(berthi_scan *scan, const berthi_scan_text *plain)
{
    const char *at;

    if (scan->problem != NULL || !is_next(scan, '"')
        || scan->length - scan->position < plain->length + 2)
        return false;
    at = scan->text + scan->position + 1;
    if (at[plain->length] != '"' || memcmp(at, plain->bytes, (size_t)plain->length) != 0)
        return false;
    scan->position += plain->length + 2;
    return true;
}

/* Reads the word when it comes next. */
static bool
has_word(berthi_scan *scan, const char *word)
{
    const size_t length = strlen(word);

    skip_space(scan);
    if (scan->length - scan->position < length
        || memcmp(scan->text + scan->position, word, length) != 0)
        return false;
    scan->position += length;
    return true;
}

bool
berthi_scan_can_read_bool(berthi_scan *scan, bool *out)
{
    if (scan->problem != NULL)
        return false;
    *out = has_word(scan, "true");
    if (!*out && !has_word(scan, "false"))
        return berthi_scan_refuse(scan, "not true or false");
    return true;
}

bool
berthi_scan_can_read_null(berthi_scan *scan)
{
    if (scan->problem != NULL)
        return false;
    if (!has_word(scan, "null"))
        return berthi_scan_refuse(scan, "not null");
    return true;
}

/* ------------------------------------------------------------------ skipping */

/* One value, or the opening of a container. */
static inline bool
can_begin_value(berthi_scan *scan)
{
    berthi_scan_text number;

    switch (berthi_scan_peek(scan)) {
    case BERTHI_SCAN_OBJECT: return can_enter(scan, true);
    case BERTHI_SCAN_ARRAY: return can_enter(scan, false);
    case BERTHI_SCAN_STRING: return has_string(scan, NULL);
    case BERTHI_SCAN_NUMBER: return berthi_scan_can_read_number(scan, &number);
    case BERTHI_SCAN_TRUE:
        return has_word(scan, "true") || berthi_scan_refuse(scan, "not a value");
    case BERTHI_SCAN_FALSE:
        return has_word(scan, "false") || berthi_scan_refuse(scan, "not a value");
    case BERTHI_SCAN_NULL:
        return has_word(scan, "null") || berthi_scan_refuse(scan, "not a value");
    case BERTHI_SCAN_NONE: break;
    }
    return berthi_scan_refuse(scan, "not a value");
}

bool
berthi_scan_can_skip(berthi_scan *scan)
{
    const uint32_t floor = scan->depth;

    do {
        if (!can_begin_value(scan))
            return false;
        /* Closes what ends here; stops where the next value begins. */
        while (scan->depth > floor
               && !(is_in_object(scan) ? has_next_key(scan, NULL) : has_next(scan, ']')))
            if (scan->problem != NULL)
                return false;
    } while (scan->depth > floor);
    return true;
}
