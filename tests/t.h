/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t.h - the test harness: plain C, one program per module
 *
 *     #include "tests/t.h"
 *
 *     static void test_adds(void)
 *     {
 *         CHECK_EQ(1 + 1, 2);
 *     }
 *
 *     int main(int argc, char **argv)
 *     {
 *         T_MAIN_BEGIN(argc, argv);
 *         T_RUN(test_adds);
 *         T_MAIN_END;
 *     }
 *
 * T_MAIN_BEGIN(argc, argv)  first line of main; argv[1] keeps only the tests
 *                           whose name contains it
 * T_RUN(function)           runs one test: void function(void). It has failed
 *                           when a check in it failed; the next test still runs
 * T_SKIP(reason)            leaves the test function; counted and printed
 * T_REQUIRE(condition)      as CHECK, and leaves the test function when false
 * T_NOTE(format, ...)       a line of information, such as a count
 * T_MAIN_END                prints `t: P passed, F failed, S skipped` and returns
 *                           0, 1 (a failure), or 77 (all were skipped)
 *
 * CHECK(condition)          CHECK_STR(actual, expected)   NULL allowed on both sides
 * CHECK_EQ(actual, expected)     integers of any type, compared by value
 * CHECK_NE, CHECK_LT, CHECK_LE, CHECK_GT, CHECK_GE   the same with !=, <, <=, >, >=
 * CHECK_MEM(actual, expected, bytes)
 * CHECK_CONTAINS(haystack, needle)   strings
 *
 * Each CHECK is an expression: true when it held. Arguments are evaluated once.
 * Checks may be made from several threads, and from children that the test waits for; T_RUN
 * belongs to the main thread.
 */
#ifndef BERTH_TESTS_T_H
#define BERTH_TESTS_T_H

#include <stdbool.h>
#include <stddef.h>

/* Sanitizers make everything about ten times slower: whoever goes by the clock asks this. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define T_IS_SANITIZED true
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)                   \
    || __has_feature(memory_sanitizer)
#define T_IS_SANITIZED true
#endif
#endif
#ifndef T_IS_SANITIZED
#define T_IS_SANITIZED false
#endif
/* The same in an emulator, as whoever runs one says by T_EMULATED: fewer of many cases alike. */
#define T_TAKES_FEWER (T_IS_SANITIZED || t_is_emulated())
bool t_is_emulated(void);
/* Under the thread sanitizer, the slowest of them. */
#if defined __SANITIZE_THREAD__
#define T_HAS_THREADS_WATCHED true
#elif defined __has_feature
#if __has_feature(thread_sanitizer)
#define T_HAS_THREADS_WATCHED true
#endif
#endif
#ifndef T_HAS_THREADS_WATCHED
#define T_HAS_THREADS_WATCHED false
#endif

/*
 * From the cancel of a job to its end, at most. A busy machine may be later once, and gets
 * more tries of the same; sanitizers get ten times as long.
 */
#define T_CANCEL_NS    (UINT64_C(100000000) * (T_IS_SANITIZED ? 10 : 1))
#define T_CANCEL_TRIES 8

/* An integer of any type: the sign apart, so that -1 never equals 2^64 - 1. */
typedef struct t_integer {
    bool is_negative;
    unsigned long long bits;
} t_integer;

typedef struct t_place {
    const char *file;
    int line;
} t_place;

t_integer t_signed(long long value);
t_integer t_unsigned(unsigned long long value);

bool t_check(t_place place, bool held, const char *text);
bool t_check_integers(t_place place, t_integer actual, const char *relation,
                      t_integer expected, const char *text);
bool t_check_str(t_place place, const char *actual, const char *expected,
                 const char *text);
bool t_check_mem(t_place place, const void *actual, const void *expected,
                 size_t bytes, const char *text);
bool t_check_contains(t_place place, const char *haystack, const char *needle,
                      const char *text);
void t_begin(int argc, char **argv);
void t_run(void (*test)(void), const char *name);
void t_skip(const char *reason);
void t_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
int t_end(void);

#define T_HERE ((t_place){__FILE__, __LINE__})
#define T_INTEGER(x)                                                              \
    _Generic((x), char: t_signed, signed char: t_signed, short: t_signed,         \
             int: t_signed, long: t_signed, long long: t_signed,                  \
             default: t_unsigned)(x)

#define CHECK(condition) t_check(T_HERE, (condition) ? true : false, #condition)
#define CHECK_EQ(a, b) T_CHECK_INTEGERS(a, "==", b)
#define CHECK_NE(a, b) T_CHECK_INTEGERS(a, "!=", b)
#define CHECK_LT(a, b) T_CHECK_INTEGERS(a, "<", b)
#define CHECK_LE(a, b) T_CHECK_INTEGERS(a, "<=", b)
#define CHECK_GT(a, b) T_CHECK_INTEGERS(a, ">", b)
#define CHECK_GE(a, b) T_CHECK_INTEGERS(a, ">=", b)
#define T_CHECK_INTEGERS(a, relation, b)                                          \
    t_check_integers(T_HERE, T_INTEGER(a), relation, T_INTEGER(b),                \
                     #a " " relation " " #b)
#define CHECK_STR(a, b) t_check_str(T_HERE, a, b, #a " is " #b)
#define CHECK_MEM(a, b, bytes) t_check_mem(T_HERE, a, b, bytes, #a " is " #b)
#define CHECK_CONTAINS(haystack, needle)                                          \
    t_check_contains(T_HERE, haystack, needle, #haystack " contains " #needle)

#define T_REQUIRE(condition)                                                      \
    do {                                                                          \
        if (!CHECK(condition))                                                    \
            return;                                                               \
    } while (0)
#define T_SKIP(reason)                                                            \
    do {                                                                          \
        t_skip(reason);                                                           \
        return;                                                                   \
    } while (0)
#define T_NOTE(...) t_note(__VA_ARGS__)
#define T_MAIN_BEGIN(argc, argv) t_begin(argc, argv)
#define T_RUN(function) t_run(function, #function)
#define T_MAIN_END return t_end()

#endif
