/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h - the ground floor, five duties and no sixth:
 *   1 names of statuses and reasons     (public calls of berth.h, base.c)
 *   2 filling errors
 *   3 checked sizes
 *   4 printable text from foreign bytes (berth_text_escape, base.c)
 *   5 the fault switch of test builds   (fault.c)
 */
#ifndef BERTH_KERNELS_BASE_H
#define BERTH_KERNELS_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/berth.h"

/* ---------------------------------------------------------- filling errors */

/*
 * What an error is about. Unset members are zero; the three numbers count only
 * when their bit is in `has`. Used as a compound literal at the call:
 *
 *   return berthi_fail(error, BERTH_REASON_OFFSET,
 *                      &(berthi_about){ .file = path, .tensor = name,
 *                                       .tensor_length = length,
 *                                       .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL,
 *                                       .expected = at, .actual = begin },
 *                      "a hole of %" PRIu64 " bytes before it", hole);
 */
typedef struct berthi_about {
    const char *file;
    const char *tensor;   /* raw bytes; escaped here */
    size_t tensor_length; /* 0 with `tensor` set: an empty name */
    bool is_escaped;      /* `tensor` is: the name of a plan's layer */
    int system_error;
    uint32_t has;
    uint64_t position;
    uint64_t expected;
    uint64_t actual;
} berthi_about;

/*
 * Fills `error` (may be NULL; `about` too) and returns the status that belongs
 * to `reason`. The message is cut at its capacity. Keeps errno.
 */
__attribute__((format(printf, 4, 5))) berth_status
berthi_fail(berth_error *error, berth_reason reason, const berthi_about *about,
            const char *format, ...);

/*
 * A failed system call: picks the reason from `system_error` (not_found,
 * permission, link_loop, open_files, disk_full, no_memory, else io) and appends
 * its words.
 * `what` is what was being done: "opening", "reading the header".
 */
berth_status berthi_fail_system(berth_error *error, int system_error, const char *file,
                                const char *what);

/* Out of memory while `what`. */
berth_status berthi_fail_memory(berth_error *error, const char *what);

/* An argument the caller got wrong: `name` of the argument, what is wrong. */
berth_status berthi_fail_argument(berth_error *error, const char *name, const char *wrong);
/* The same of a number from 0 on that is not below `count`. */
berth_status berthi_fail_number(berth_error *error, const char *name, uint64_t number,
                                uint64_t count);

/* Whether a caller's list of so many texts has each of them. */
bool berthi_texts_are_there(const char *const *texts, uint32_t count);

/* The status a reason belongs to; BERTH_EINTERNAL for a number that is none. */
berth_status berthi_reason_status(int32_t reason);

/* Zeroes an error, NULL allowed: what every public call does first. */
void berthi_error_clear(berth_error *error);

/*
 * Copies the caller's option struct of `given_size` bytes (its own struct_size)
 * into `mine` of `my_size` bytes. Missing fields become zero. What lies behind the
 * `known` bytes of the struct, reserved words or more of a longer one, is a newer header's:
 * it is accepted only when it is zero. NULL `given`: all zero.
 */
berth_status berthi_options_take(void *mine, size_t my_size, size_t known,
                                 const void *given, const char *name, berth_error *error);
/* The same of a reserved word between the fields of a struct that was taken. */
berth_status berthi_options_check(uint32_t reserved, const char *name, berth_error *error);

/*
 * The way back: fills the caller's struct of `given_size` bytes from `mine`, beginning with
 * its struct_size; what it has beyond ours is zero. EINVAL where it is too short for something
 * that is not zero, or for a struct_size; what there is of it is zero then.
 */
berth_status berthi_options_give(void *given, size_t given_size, const void *mine,
                                 size_t my_size);

/* ------------------------------------------------------------ checked sizes */

/* Shares are counted in billionths: this is all of it. */
#define BERTHI_WHOLE UINT64_C(1000000000)

/* Such a share of so many bytes, at most all of it, rounded down. */
static inline uint64_t
berthi_share_of(uint64_t bytes, uint64_t share)
{
    return bytes / BERTHI_WHOLE * share + bytes % BERTHI_WHOLE * share / BERTHI_WHOLE;
}

/* true and *out = a * b, or false on overflow (*out is then unspecified). */
static inline bool
berthi_can_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool
berthi_can_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Their sum, or UINT64_MAX: a limit or a moment that never comes. */
static inline uint64_t
berthi_add_capped(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return berthi_can_add(a, b, &sum) ? sum : UINT64_MAX;
}

/* Next multiple of `alignment` (a power of two); false on overflow. */
static inline bool
berthi_can_round_up(uint64_t value, uint64_t alignment, uint64_t *out)
{
    if (!berthi_can_add(value, alignment - 1, out))
        return false;
    *out &= ~(alignment - 1);
    return true;
}

/*
 * The same for a value that is known to have such a multiple: one beyond the last would
 * wrap around to 0.
 */
static inline uint64_t
berthi_round_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

/* The multiple before; `alignment` is a power of two here, too. */
static inline uint64_t
berthi_round_down(uint64_t value, uint64_t alignment)
{
    return value & ~(alignment - 1);
}

/* value / by, rounded up; `by` is not 0. No step overflows. */
static inline uint64_t
berthi_divide_up(uint64_t value, uint64_t by)
{
    return value / by + (value % by != 0);
}

/* Of two that are not both 0. */
static inline uint64_t
berthi_greatest_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* The least common multiple of two that are not 0; false: it is larger than `limit`. */
static inline bool
berthi_can_multiple(uint64_t a, uint64_t b, uint64_t limit, uint64_t *out)
{
    return berthi_can_mul(a / berthi_greatest_divisor(a, b), b, out) && *out <= limit;
}

static inline uint64_t
berthi_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t
berthi_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Where the least of `count` numbers is, the first of several; there is one at least. */
static inline uint32_t
berthi_least_at(const uint64_t *numbers, uint32_t count)
{
    uint32_t least = 0;

    for (uint32_t i = 1; i < count; i++)
        if (numbers[i] < numbers[least])
            least = i;
    return least;
}

#endif
