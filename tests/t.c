/* SPDX-License-Identifier: Apache-2.0 */
/* t.c - counts and reports for tests/t.h; the only state of a test program. */
#define _GNU_SOURCE
#include "tests/t.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *filter;
static atomic_int own_failed_checks;
/* Of the running test; in memory that its children share. */
static atomic_int *failed_checks = &own_failed_checks;
static const char *running = "";   /* its name */
static bool is_skipped;          /* the running test */
static int passed;
static int failed;
static int skipped;

t_integer t_signed(long long value)
{
    return (t_integer){value < 0, (unsigned long long)value};
}

t_integer t_unsigned(unsigned long long value)
{
    return (t_integer){false, value};
}

/* Says where; the caller prints the rest of the line. */
static void report(t_place place, const char *text)
{
    atomic_fetch_add(failed_checks, 1);
    printf("  %s:%d: %s", place.file, place.line, text);
}

bool t_is_emulated(void)
{
    return getenv("T_EMULATED") != NULL;
}

bool t_check(t_place place, bool held, const char *text)
{
    if (!held) {
        report(place, text);
        printf("\n");
    }
    return held;
}

static int compare(t_integer a, t_integer b)
{
    if (a.is_negative != b.is_negative)
        return a.is_negative ? -1 : 1;
    /* Two's complement keeps the order among negative values. */
    return a.bits < b.bits ? -1 : a.bits > b.bits;
}

static void print_integer(t_integer value)
{
    if (value.is_negative)
        printf("%lld", (long long)value.bits);
    else if (value.bits > 9)
        printf("%llu (0x%llx)", value.bits, value.bits);
    else
        printf("%llu", value.bits);
}

bool t_check_integers(t_place place, t_integer actual, const char *relation,
                      t_integer expected, const char *text)
{
    int order = compare(actual, expected);
    bool held = order == 0 ? relation[0] != '!' && relation[1] == '='
                           : relation[0] == '!'
                                 || relation[0] == (order < 0 ? '<' : '>');

    if (held)
        return true;
    report(place, text);
    printf(": ");
    print_integer(actual);
    printf(" against ");
    print_integer(expected);
    printf("\n");
    return false;
}

static void print_string(const char *text)
{
    if (text == NULL) {
        printf("NULL");
        return;
    }
    putchar('"');
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '\n')
            printf("\\n");
        else if (byte < 32 || byte == 127)
            printf("\\x%02x", byte);
        else
            putchar(byte);
    }
    putchar('"');
}

static bool report_strings(t_place place, const char *text, const char *actual,
                           const char *expected)
{
    report(place, text);
    printf("\n      actual   ");
    print_string(actual);
    printf("\n      expected ");
    print_string(expected);
    printf("\n");
    return false;
}

bool t_check_str(t_place place, const char *actual, const char *expected,
                 const char *text)
{
    if (actual == expected)
        return true;
    if (actual != NULL && expected != NULL && strcmp(actual, expected) == 0)
        return true;
    return report_strings(place, text, actual, expected);
}

bool t_check_contains(t_place place, const char *haystack, const char *needle,
                      const char *text)
{
    if (haystack != NULL && needle != NULL && strstr(haystack, needle) != NULL)
        return true;
    return report_strings(place, text, haystack, needle);
}

bool t_check_mem(t_place place, const void *actual, const void *expected,
                 size_t bytes, const char *text)
{
    const uint8_t *a = actual;
    const uint8_t *b = expected;
    size_t i = 0;

    if (bytes == 0)
        return true;
    if (a == NULL || b == NULL) {
        report(place, text);
        printf(": NULL\n");
        return false;
    }
    /* All at once: byte by byte this was a quarter of some tests' time, were it watched. */
    if (memcmp(a, b, bytes) == 0)
        return true;
    while (i + 1 < bytes && a[i] == b[i])
        i++;
    report(place, text);
    printf(": byte %zu of %zu is %02x against %02x\n", i, bytes, a[i], b[i]);
    return false;
}

/* A child's checks are its parent's: nobody has to make an exit code of them. */
static void share_failed_checks(void)
{
    void *const shared = mmap(NULL, sizeof *failed_checks, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (shared != MAP_FAILED)
        failed_checks = shared;
}

/* Who starts a test may have closed it; a test of what then happens closes it itself. */
static void open_standard_input(void)
{
    if (fcntl(STDIN_FILENO, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != STDIN_FILENO)
        exit(70);
}

void t_begin(int argc, char **argv)
{
    open_standard_input();
    share_failed_checks();
    /* Tests become other users, who are to read what the first one has made. */
    (void)umask(022);
    filter = argc > 1 ? argv[1] : NULL;
    /* What a dying program has said must not stay in its buffer. */
    setvbuf(stdout, NULL, _IOLBF, 0);
}

void t_run(void (*test)(void), const char *name)
{
    if (filter != NULL && strstr(name, filter) == NULL)
        return;
    atomic_store(failed_checks, 0);
    running = name;
    is_skipped = false;
    test();
    if (atomic_load(failed_checks) > 0) {
        printf("FAILED: %s\n", name);
        failed++;
    } else if (is_skipped) {
        skipped++;
    } else {
        passed++;
    }
}

void t_skip(const char *reason)
{
    printf("skipped: %s: %s\n", running, reason);
    is_skipped = true;
}

void t_note(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    printf("note: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

int t_end(void)
{
    printf("t: %d passed, %d failed, %d skipped\n", passed, failed, skipped);
    fflush(stdout);
    if (failed > 0)
        return 1;
    return passed == 0 && skipped > 0 ? 77 : 0;
}
