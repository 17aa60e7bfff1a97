/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_output.c - what reaches a descriptor: text, JSON, bars, progress. */
#define _XOPEN_SOURCE 700 /* a terminal of our own */
#define _DEFAULT_SOURCE  /* struct winsize */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/t.h"
#include "tools/cli.h"
#include "tools/colour.h"
#include "tools/draw.h"
#include "tools/json.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/table.h"

static const screen unicode = { .has_unicode = true };
static const screen ascii = { .has_unicode = false };
static const screen colourful = { .has_unicode = true, .has_colour = true };

/* A file to write to, and everything written to it so far. */
static const char *path;
static output out;

static void
begin(void)
{
    path = fixture_format("%s/out", fixture_folder());
    output_init(&out, open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666));
}

static const char *
written(void)
{
    const char *text;
    char *bytes;

    output_flush(&out);
    bytes = fixture_read(path, NULL);
    text = fixture_format("%s", bytes);
    free(bytes);
    return text;
}

static void
end(void)
{
    close(out.fd);
}

/* --------------------------------------------------------------------- output */

static void
test_output_is_complete(void)
{
    char *bytes;
    size_t length;
    size_t wrong = 0;

    begin();
    for (int i = 0; i < 20000; i++)
        output_format(&out, "%06d\n", i);
    output_flush(&out);
    bytes = fixture_read(path, &length);
    CHECK_EQ(length, 140000);
    for (int i = 0; i < 20000; i++) {
        char line[16];

        snprintf(line, sizeof line, "%06d\n", i);
        wrong += memcmp(bytes + (size_t)i * 7, line, 7) != 0;
    }
    CHECK_EQ(wrong, 0);
    free(bytes);
    end();
}

static void
test_output_remembers_failure(void)
{
    output_init(&out, open("/dev/full", O_WRONLY | O_CLOEXEC));
    output_text(&out, "x");
    CHECK(!output_is_closed(&out));
    output_flush(&out);
    CHECK(output_is_closed(&out));
    CHECK_EQ(out.system_error, ENOSPC);
    end();
    output_flush(&out);
    CHECK_EQ(out.system_error, ENOSPC);
}

/* A name longer than the pieces it is escaped in, with a character at each cut. */
static void
test_output_name_is_never_cut(void)
{
    for (size_t shift = 0; shift < 4; shift++) {
        char name[801] = "";

        memset(name, 'a', shift);
        for (size_t i = shift; i + 4 <= 800; i += 4)
            memcpy(name + i, "\xE2\x82\xAC\n", 4);
        begin();
        output_name(&out, name, strlen(name));
        CHECK_EQ(strlen(written()), shift + (strlen(name) - shift) / 4 * 7);
        CHECK_CONTAINS(written(), "\xE2\x82\xAC\\x0a\xE2\x82\xAC\\x0a");
        CHECK(strstr(written(), "\\xe2") == NULL);
        end();
    }
}

static void
test_output_csv(void)
{
    static const struct {
        const char *field;
        const char *expected;
    } cases[] = {
        { "", "" },           { "plain", "plain" },     { "a,b", "\"a,b\"" },
        { "\"", "\"\"\"\"" }, { "a\"b\"", "\"a\"\"b\"\"\"" }, { " a", "\" a\"" },
        { "a ", "\"a \"" },   { "a\nb", "a\\x0ab" },       { ",", "\",\"" },
        { "\"\"", "\"\"\"\"\"\"" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin();
        output_csv(&out, cases[i].field, strlen(cases[i].field));
        CHECK_STR(written(), cases[i].expected);
        end();
    }
}

static void
test_text_cut(void)
{
    char text[64];

    CHECK_EQ(text_width(""), 0);
    CHECK_EQ(text_width("a\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80"), 6);
    CHECK_EQ(text_width("e\xCC\x81"), 1);
    CHECK_EQ(text_width("\xCC\x80\xCD\xAF\xCD\xB0"), 1);         /* U+0300, U+036F, U+0370 */
    CHECK_EQ(text_width("\xE1\x84\x80\xE1\x85\x9F\xE1\x85\xA0"), 5); /* U+1100 to U+1160 */
    CHECK_EQ(text_width("\xE2\xBA\x80\xEA\x93\x8F\xEA\x93\x90"), 5); /* U+2E80, U+A4CF, +1 */
    CHECK_EQ(text_width("\xEF\xB9\xAF\xEF\xB9\xB0"), 3);         /* U+FE6F, U+FE70 */
    CHECK_EQ(text_width("\xEF\xBB\xBF\xEF\xBC\x80"), 3);         /* U+FEFF, U+FF00 */
    CHECK_EQ(text_width("\xEA\xAF\xBF\xEA\xB0\x80"), 3);         /* U+ABFF, U+AC00 */
    CHECK_EQ(text_width("\xDF\xBF\xE0\xA0\x80"), 2);             /* U+07FF, U+0800 */
    CHECK_EQ(text_width("\xEF\xBF\xBF\xF0\x90\x80\x80"), 3);     /* U+FFFF, U+10000 */
    CHECK_EQ(text_width("\xEF\xBD\xA0\xEF\xBD\xA1"), 3);         /* U+FF60, U+FF61 */
    strcpy(text, "abcdefghij");
    text_cut(text, 10, true);
    CHECK_STR(text, "abcdefghij");
    text_cut(text, 7, true);
    CHECK_STR(text, "abc\xE2\x80\xA6hij");
    strcpy(text, "abcdefghij");
    text_cut(text, 6, false);
    CHECK_STR(text, "ab~hij");
    text_cut(text, 2, false);
    CHECK_STR(text, "ab~hij");
    strcpy(text, "\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5\xE6\x97\xA5");
    text_cut(text, 6, true);
    CHECK_LE(text_width(text), 6);
    strcpy(text, "model.layers.0-31"); /* one too wide, and the mark has three bytes */
    text_cut(text, 16, true);
    CHECK_STR(text, "model.l\xE2\x80\xA6rs.0-31");
    strcpy(text, "abcd");
    text_cut(text, 3, true);
    CHECK_STR(text, "a\xE2\x80\xA6");
}

/* Of characters of one byte to four, cut off anywhere. */
static void
test_text_whole(void)
{
    static const char whole[] = "a\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x98\x80";
    static const size_t ends[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10 };

    for (size_t length = 0; length < sizeof whole; length++) {
        char text[sizeof whole];

        memcpy(text, whole, length);
        text[length] = '\0';
        CHECK_EQ(strlen(text_whole(text)), ends[length]);
        CHECK_EQ(memcmp(text, whole, ends[length]), 0);
    }
}

static void
test_text_numbers(void)
{
    char text[TEXT_NUMBER_CAPACITY];

    CHECK_STR(text_number(0, text), "0");
    CHECK_STR(text_number(999, text), "999");
    CHECK_STR(text_number(1000, text), "1,000");
    CHECK_STR(text_number(UINT64_MAX, text), "18,446,744,073,709,551,615");
    CHECK_STR(text_count(999, text), "999");
    CHECK_STR(text_count(1000, text), "1.00 K");
    CHECK_STR(text_count(999994, text), "999.99 K");
    CHECK_STR(text_count(999995, text), "1.00 M");
    CHECK_STR(text_count(70553706496, text), "70.55 B");
    CHECK_STR(text_count(1000000000000000, text), "1000.00 T");
}

/* ----------------------------------------------------------------------- json */

static void
test_json_strings(void)
{
    static const struct {
        const char *bytes;
        const char *expected;
    } cases[] = {
        { "", "" },
        { "a/b", "a/b" },
        { "\"\\", "\\\"\\\\" },
        { "\b\t\n\f\r\x01\x1b\x7f", "\\b\\t\\n\\f\\r\\u0001\\u001b\\u007f" },
        { "\xC3\xA9\xE2\x80\xAE\xF0\x9F\x98\x80", "\\u00e9\\u202e\\ud83d\\ude00" },
        { "\xF4\x8F\xBF\xBF", "\\udbff\\udfff" },
        { "\x1f !#[]~", "\\u001f !#[]~" },
        { "\xC2\x80\xDF\xBF\xE0\xA0\x80", "\\u0080\\u07ff\\u0800" },
        { "\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF", "\\ud7ff\\ue000\\uffff" },
        { "\xF0\x90\x80\x80\xF0\x90\x8F\xBF", "\\ud800\\udc00\\ud800\\udfff" },
        { "a\xFF", "a\\ufffd" },
        { "a\x80z", "a\\ufffdz" },
        { "\xBF\xBF", "\\ufffd\\ufffd" },
        { "\xC3z", "\\ufffdz" },
        { "\xC3\xFF", "\\ufffd\\ufffd" },
        { "\xC0\x80", "\\ufffd\\ufffd" },
        { "\xC1\xBF", "\\ufffd\\ufffd" },
        { "\xE0\x9F\xBF", "\\ufffd\\ufffd\\ufffd" },
        { "\xED\xBF\xBF", "\\ufffd\\ufffd\\ufffd" },
        { "\xF0\x8F\xBF\xBF", "\\ufffd\\ufffd\\ufffd\\ufffd" },
        { "\xF7\xBF\xBF\xBF", "\\ufffd\\ufffd\\ufffd\\ufffd" },
        { "\xF8\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd" },
        { "\xED\xA0\x80", "\\ufffd\\ufffd\\ufffd" },
        { "\xF4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd" },
        { "\xE2\x82", "\\ufffd\\ufffd" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_writer w;

        begin();
        json_begin(&w, &out, true);
        json_text(&w, NULL, cases[i].bytes);
        CHECK_STR(written(), fixture_format("\"%s\"", cases[i].expected));
        end();
    }
}

static void
write_document(json_writer *w)
{
    static const uint64_t numbers[] = { 1, UINT64_MAX };

    json_object_begin(w, NULL);
    json_number(w, "n", 1);
    json_array_begin(w, "list");
    json_bool(w, NULL, true);
    json_object_begin(w, NULL);
    json_object_end(w);
    json_array_end(w);
    json_array_begin(w, "empty");
    json_array_end(w);
    json_numbers(w, "numbers", numbers, 2);
    json_known(w, "unknown", UINT64_MAX);
    json_known(w, "known", 7);
    json_signed(w, "minus", -5);
    json_real(w, "real", 0.25);
    json_real(w, "none", 1.0 / 0.0);
    json_pair(w, "k\0e", 3, "v", 1);
    json_object_end(w);
    json_end(w);
}

static void
test_json_document(void)
{
    json_writer w;

    begin();
    json_begin(&w, &out, true);
    write_document(&w);
    CHECK_STR(written(), "{\"n\":1,\"list\":[true,{}],\"empty\":[],"
                         "\"numbers\":[1, 18446744073709551615],\"unknown\":null,"
                         "\"known\":7,\"minus\":-5,\"real\":0.250,\"none\":null,"
                         "\"k\\u0000e\":\"v\"}\n");
    end();
    begin();
    json_begin(&w, &out, false);
    write_document(&w);
    CHECK_CONTAINS(written(), "{\n  \"n\": 1,\n  \"list\": [\n    true,\n    {}\n  ],\n"
                              "  \"empty\": [],\n");
    end();
}

/* ----------------------------------------------------------------------- bars */

static void
test_layout(void)
{
    const draw_part parts[] = { { 25, COLOUR_WIDE },
                                { 0, COLOUR_HALF },
                                { 25, COLOUR_BYTE } };
    draw_layout layout;

    draw_lay_out(parts, 3, 100, 10, &layout);
    CHECK_EQ(layout.count, 2);
    CHECK_EQ(layout.ends[0], 20);
    CHECK_EQ(layout.ends[1], 40);
    CHECK_EQ(layout.styles[1], COLOUR_BYTE);
    draw_lay_out(parts, 1, 100000, 10, &layout);
    CHECK_EQ(layout.ends[0], 1); /* there, therefore visible */
    draw_lay_out(parts + 1, 1, 100, 10, &layout);
    CHECK_EQ(layout.count, 0);
    draw_lay_out(parts, 3, 50, 10, &layout);
    CHECK_EQ(layout.ends[1], 80);
    draw_lay_out(parts, 3, 10, 10, &layout);
    CHECK_EQ(layout.ends[1], 80);
    draw_lay_out(parts, 1, 0, 10, &layout);
    CHECK_EQ(layout.ends[0], 80);
}

static void
test_layout_merges_the_last_parts(void)
{
    draw_part parts[DRAW_MAX_PARTS + 2];
    draw_layout layout;

    for (size_t i = 0; i < DRAW_MAX_PARTS + 2; i++)
        parts[i] = (draw_part){ 10, COLOUR_GOOD };
    draw_lay_out(parts, DRAW_MAX_PARTS + 2, 100, 10, &layout);
    CHECK_EQ(layout.count, DRAW_MAX_PARTS);
    CHECK_EQ(layout.ends[DRAW_MAX_PARTS - 1], 80);
}

static const char *
bar(const screen *s, uint64_t bytes, uint64_t more, bool is_framed)
{
    const draw_part parts[] = { { bytes, COLOUR_HALF }, { more, COLOUR_NIBBLE } };

    begin();
    draw_bar(&out, s, parts, 2, 80, 4, is_framed);
    output_flush(&out);
    end();
    return written();
}

static void
test_bars(void)
{
    CHECK_STR(bar(&unicode, 0, 0, false), "");
    CHECK_STR(bar(&ascii, 0, 0, true), "....");
    CHECK_STR(bar(&unicode, 80, 0, false), "\xE2\x96\x88\xE2\x96\x88\xE2\x96\x88\xE2\x96\x88");
    CHECK_STR(bar(&unicode, 25, 0, false), "\xE2\x96\x88\xE2\x96\x8E");
    CHECK_STR(bar(&ascii, 30, 0, true), "##..");
    CHECK_STR(bar(&ascii, 25, 0, true), "#|..");
    CHECK_STR(bar(&ascii, 60, 10, false), "####");
    CHECK_STR(bar(&unicode, 2, 0, false), "\xE2\x96\x8F");
    CHECK_STR(bar(&colourful, 20, 20, false),
              "\033[34m\xE2\x96\x88\033[0m\033[32m\xE2\x96\x88\033[0m");
    /* The second column is for the most part the first one's, or the other one's. */
    CHECK_STR(bar(&colourful, 32, 28, false),
              "\033[34m\xE2\x96\x88\xE2\x96\x88\033[0m\033[32m\xE2\x96\x88\033[0m");
    CHECK_STR(bar(&colourful, 28, 20, false),
              "\033[34m\xE2\x96\x88\033[0m\033[32m\xE2\x96\x88\xE2\x96\x8D\033[0m");
    CHECK_STR(bar(&colourful, 20, 0, true),
              "\033[34m\xE2\x96\x88\033[0m\033[2m\xE2\x96\x91\xE2\x96\x91\xE2\x96\x91\033[0m");
}

static void
test_table(void)
{
    table t = { 0 };
    const table_cell a[] = { { "a long name", COLOUR_NONE }, { "1", COLOUR_DIM },
                             { "x", COLOUR_NONE } };
    const table_cell b[] = { { "\xE6\x97\xA5", COLOUR_NONE }, { "10,000", COLOUR_NONE },
                             { "", COLOUR_DIM } };

    table_column_add(&t, "name", TABLE_LEFT);
    table_column_add(&t, "n", TABLE_RIGHT);
    table_column_add(&t, "last", TABLE_LEFT);
    begin();
    table_row(&t, &out, &unicode, a);
    table_row(&t, &out, &unicode, b);
    CHECK_STR(written(), "");
    end();
    CHECK_EQ(table_width(&t), 11 + 2 + 6 + 2 + 4);
    begin();
    table_begin_rows(&t, &out, &unicode);
    table_row(&t, &out, &unicode, a);
    table_print(&t, &out, &colourful, b);
    CHECK_STR(written(), "name              n  last\n"
                         "a long name       1  x\n"
                         "\xE6\x97\xA5           10,000  ");
    end();
    t.columns[0].width = 40;
    table_fit(&t, 0); /* no limit */
    CHECK_EQ(t.columns[0].width, 40);
    table_fit(&t, 44);
    CHECK_EQ(t.columns[0].width, 30);
    table_fit(&t, 44);
    CHECK_EQ(t.columns[0].width, 30);
    table_fit(&t, 10);
    CHECK_EQ(t.columns[0].width, 16);
    table_fit(&t, table_width(&t));
    CHECK_EQ(t.columns[0].width, 16);
    table_fit(&t, 200);
    CHECK_EQ(t.columns[0].width, 16);
    t.columns[0].width = 3;
    table_fit(&t, 4);
    CHECK_EQ(t.columns[0].width, 3);
    t.count = 0;
    CHECK_EQ(table_width(&t), 0);
}

/* -------------------------------------------------------------------- screens */

static const char *
no_variables(const char *name)
{
    (void)name;
    return NULL;
}

static const char *
plain_terminal(const char *name)
{
    return strcmp(name, "TERM") == 0 ? "xterm" : "";
}

static const char *
terminal_without_colours(const char *name)
{
    return strcmp(name, "TERM") == 0 ? "xterm" : "1";
}

static void
test_screen_of_a_file(void)
{
    screen s;

    begin();
    screen_init(&s, out.fd, plain_terminal, false);
    CHECK(!s.is_terminal && !s.can_redraw && !s.has_colour);
    CHECK_EQ(s.columns, 0);
    CHECK_EQ(screen_columns(out.fd), 0);
    end();
}

/* A terminal of `columns`, of which only its slave is of interest. */
static int
open_terminal(unsigned short columns, int *master)
{
    const struct winsize size = { .ws_row = 24, .ws_col = columns };
    int fd;

    *master = posix_openpt(O_RDWR | O_NOCTTY);
    if (*master < 0 || grantpt(*master) != 0 || unlockpt(*master) != 0)
        return -1;
    fd = open(ptsname(*master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    return fd >= 0 && ioctl(fd, TIOCSWINSZ, &size) == 0 ? fd : -1;
}

static void
test_screen_of_a_terminal(void)
{
    static const unsigned short columns[][2] = { { 0, 80 }, { 1, 1 }, { 132, 132 } };
    screen s;

    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        int master;
        const int fd = open_terminal(columns[i][0], &master);

        if (fd < 0)
            T_SKIP("no terminal can be made here");
        CHECK_EQ(screen_columns(fd), columns[i][1]);
        screen_init(&s, fd, plain_terminal, false);
        CHECK(s.is_terminal && s.can_redraw && s.has_colour);
        CHECK_EQ(s.columns, columns[i][1]);
        screen_init(&s, fd, plain_terminal, true);
        CHECK(s.can_redraw && !s.has_colour);
        screen_init(&s, fd, terminal_without_colours, false);
        CHECK(s.can_redraw && !s.has_colour);
        screen_init(&s, fd, no_variables, false);
        CHECK(s.is_terminal && !s.can_redraw && !s.has_colour);
        close(fd);
        close(master);
    }
}

static void
test_colours(void)
{
    for (int c = 0; c < COLOUR_COUNT; c++) {
        const bool is_some = c != COLOUR_NONE;

        CHECK_STR(colour_begin(&unicode, (colour)c), "");
        CHECK_STR(colour_end(&unicode, (colour)c), "");
        CHECK_EQ(colour_begin(&colourful, (colour)c)[0] != '\0', is_some);
        CHECK_STR(colour_end(&colourful, (colour)c), is_some ? "\033[0m" : "");
    }
}

/* ------------------------------------------------------------------- progress */

static berth_progress
report_at(double seconds, uint64_t done)
{
    berth_progress report;

    memset(&report, 0, sizeof report);
    report.phase = "read";
    report.file = "a\nb";
    report.seconds = seconds;
    report.done = done;
    report.total = 4096;
    report.rate = 512;
    return report;
}

static const char *
progress_of(progress_mode mode, const screen *s, const double *seconds, size_t count)
{
    progress p;
    berth_progress report = report_at(0, 0);

    begin();
    CHECK(progress_init(&p, out.fd, s, mode));
    for (size_t i = 0; i < count; i++) {
        report = report_at(seconds[i], 1024 * (i + 1));
        progress_update(&p, &report);
    }
    progress_end(&p, &report);
    progress_fini(&p);
    end();
    return written();
}

static void
test_progress_lines(void)
{
    static const double seconds[] = { 1, 4.9, 5, 9.9 };
    static const double later[] = { 5.5, 10.4, 10.5, 3600 };

    CHECK_STR(progress_of(PROGRESS_AUTO, &unicode, seconds, 4),
              "berth: read  75%  3.00 KiB of 4.00 KiB  512 B/s  0:02 left\n");
    CHECK_STR(progress_of(PROGRESS_AUTO, &unicode, later, 4),
              "berth: read  25%  1.00 KiB of 4.00 KiB  512 B/s  0:06 left\n"
              "berth: read  75%  3.00 KiB of 4.00 KiB  512 B/s  0:02 left\n"
              "berth: read 100%  4.00 KiB of 4.00 KiB  512 B/s  0:00 left\n");
    CHECK_STR(progress_of(PROGRESS_NEVER, &unicode, later, 4), "");
}

static void
test_progress_bar(void)
{
    static const double seconds[] = { 0.5, 2 };

    CHECK_STR(progress_of(PROGRESS_ALWAYS, &ascii, seconds, 1),
              "\rread  #########..........................   25%  1.00 KiB of 4.00 KiB  "
              "512 B/s\033[K\r\033[K");
    CHECK_CONTAINS(progress_of(PROGRESS_ALWAYS, &ascii, seconds, 2),
                   " 50%  2.00 KiB of 4.00 KiB  512 B/s  0:04 left\033[K\r\033[K");
}

static void
test_progress_says_how_long(void)
{
    static const struct {
        uint64_t total;
        double rate;
        int32_t is_stalled;
        const char *end;
    } cases[] = {
        { 1024 + 60, 1, 0, "1 B/s  1:00 left\n" },
        { 1024 + 3599, 1, 0, "1 B/s  59:59 left\n" },
        { 1024 + 3600, 1, 0, "1 B/s  1:00:00 left\n" },
        { 1024 + 359999, 1, 0, "1 B/s  99:59:59 left\n" },
        { 1024 + 360000, 1, 0, "1 B/s\n" },
        { 4096, 0, 0, "  0 B/s\n" },
        { 4096, 0, 1, "  0 B/s  stalled\n" },
        { 0, 0, 0, "berth: read 100%  0 B of 0 B  0 B/s\n" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        berth_progress report = report_at(6, cases[i].total > 0 ? 1024 : 0);
        progress p;

        report.total = cases[i].total;
        report.rate = cases[i].rate;
        report.is_stalled = cases[i].is_stalled;
        begin();
        CHECK(progress_init(&p, out.fd, &unicode, PROGRESS_AUTO));
        progress_update(&p, &report);
        progress_fini(&p);
        CHECK_CONTAINS(written(), cases[i].end);
        end();
    }
}

static void
test_progress_json(void)
{
    static const double seconds[] = { 0.25 };

    CHECK_STR(progress_of(PROGRESS_JSON, &unicode, seconds, 1),
              "{\"schema_version\":1,\"phase\":\"read\",\"file\":\"a\\nb\",\"done\":1024,"
              "\"total\":4096,\"seconds\":0.250,\"rate\":512,\"stalled\":false}\n"
              "{\"schema_version\":1,\"phase\":\"read\",\"file\":\"a\\nb\",\"done\":1024,"
              "\"total\":4096,\"seconds\":0.250,\"rate\":512,\"stalled\":false}\n");
}

static void
test_progress_gives_way(void)
{
    const berth_progress report = report_at(0.5, 2048);
    progress p;

    begin();
    T_REQUIRE(progress_init(&p, out.fd, &ascii, PROGRESS_ALWAYS));
    progress_hide(&p); /* nothing shown: nothing to clear */
    progress_show(&p);
    CHECK_STR(written(), "");
    progress_update(&p, &report);
    progress_hide(&p);
    output_text(&out, "a line\n");
    output_flush(&out);
    progress_show(&p);
    CHECK_CONTAINS(written(), "512 B/s\033[K\r\033[Ka line\n");
    progress_fini(&p);
    end();
}

/* The bar has nine columns at least, and the line is never as wide as the screen. */
static void
test_progress_fits(void)
{
    static const char numbers[] = " 25%  1.00 KiB of 4.00 KiB  512 B/s";
    static const char *const phases[] = { "a phase of thirty characters..",
                                          "a phase of thirty characters..." };
    berth_progress report = report_at(0.5, 1024);
    progress p;

    for (size_t i = 0; i < 2; i++) {
        begin();
        T_REQUIRE(progress_init(&p, out.fd, &unicode, PROGRESS_ALWAYS));
        report.phase = phases[i];
        progress_update(&p, &report);
        progress_fini(&p);
        CHECK_STR(written(), i == 0 ? fixture_format("\r%s  \u2588\u2588\u258e\u2591\u2591"
                                                     "\u2591\u2591\u2591\u2591  %s\033[K",
                                                     phases[i], numbers)
                                    : fixture_format("\r%s\033[K", numbers));
        end();
    }
}

static void
test_progress_on_a_narrow_terminal(void)
{
    static const char numbers[] = " 25%  1.00 KiB of 4.00 KiB  512 B/s";
    const size_t length = sizeof numbers - 1;
    const berth_progress report = report_at(0.5, 1024);
    const screen s = { .is_terminal = true, .can_redraw = true };

    for (size_t columns = length - 1; columns <= length + 1; columns++) {
        char text[256] = "";
        progress p;
        int master;
        const int fd = open_terminal((unsigned short)columns, &master);

        if (fd < 0)
            T_SKIP("no terminal can be made here");
        T_REQUIRE(progress_init(&p, fd, &s, PROGRESS_AUTO));
        progress_update(&p, &report);
        progress_fini(&p);
        CHECK_GT(read(master, text, sizeof text - 1), 0);
        CHECK_STR(text, fixture_format("\r%.*s\033[K", (int)columns - 1, numbers));
        close(fd);
        close(master);
    }
}

static void
test_progress_ends_with_its_screen(void)
{
    const berth_progress report = report_at(0.5, 2048);
    progress p;

    begin();
    T_REQUIRE(progress_init(&p, out.fd, &ascii, PROGRESS_ALWAYS));
    progress_update(&p, &report);
    progress_hide(&p);
    progress_show(&p);
    CHECK_EQ(p.mode, PROGRESS_ALWAYS);
    CHECK(!p.is_shown);
    progress_update(&p, &report);
    end();
    progress_hide(&p);
    progress_show(&p);
    CHECK_EQ(p.mode, PROGRESS_NEVER);
    CHECK(!p.is_shown);
    progress_fini(&p);
}

static void *
update(void *user)
{
    const berth_progress report = report_at(6, 2048);

    progress_update(user, &report);
    return NULL;
}

static void *
finish(void *user)
{
    const berth_progress report = report_at(6, 2048);

    progress_end(user, &report);
    return NULL;
}

/* While one has hidden it, the others wait. */
static void
test_progress_waits(void)
{
    static void *(*const functions[])(void *) = { update, finish };
    const struct timespec moment = { .tv_sec = 0, .tv_nsec = 30000000 };

    for (size_t i = 0; i < 2; i++) {
        pthread_t thread;
        progress p;

        begin();
        T_REQUIRE(progress_init(&p, out.fd, &ascii, PROGRESS_JSON));
        progress_hide(&p);
        T_REQUIRE(pthread_create(&thread, NULL, functions[i], &p) == 0);
        nanosleep(&moment, NULL);
        CHECK_STR(written(), "");
        progress_show(&p);
        pthread_join(thread, NULL);
        CHECK_CONTAINS(written(), "\"phase\":\"read\"");
        progress_hide(&p);
        progress_show(&p);
        progress_fini(&p);
        end();
    }
}

/* -------------------------------------------------------------------- nearest */

static void
test_nearest(void)
{
    static const char *const words[] = { "inspect", "verify", "devices",
                                         "longer-than-thirty-one-characters-a-word" };

    CHECK_STR(cli_nearest("inspekt", words, 4, sizeof words[0]), "inspect");
    CHECK_STR(cli_nearest("vreify", words, 4, sizeof words[0]), "verify");
    CHECK_STR(cli_nearest("device", words, 4, sizeof words[0]), "devices");
    CHECK_STR(cli_nearest("verify", words, 4, sizeof words[0]), "verify");
    CHECK(cli_nearest("quantize", words, 4, sizeof words[0]) == NULL);
    CHECK(cli_nearest("", words, 4, sizeof words[0]) == NULL);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_output_is_complete);
    T_RUN(test_output_remembers_failure);
    T_RUN(test_output_name_is_never_cut);
    T_RUN(test_output_csv);
    T_RUN(test_text_cut);
    T_RUN(test_text_whole);
    T_RUN(test_text_numbers);
    T_RUN(test_json_strings);
    T_RUN(test_json_document);
    T_RUN(test_layout);
    T_RUN(test_layout_merges_the_last_parts);
    T_RUN(test_bars);
    T_RUN(test_table);
    T_RUN(test_screen_of_a_file);
    T_RUN(test_screen_of_a_terminal);
    T_RUN(test_colours);
    T_RUN(test_progress_lines);
    T_RUN(test_progress_bar);
    T_RUN(test_progress_says_how_long);
    T_RUN(test_progress_json);
    T_RUN(test_progress_gives_way);
    T_RUN(test_progress_fits);
    T_RUN(test_progress_on_a_narrow_terminal);
    T_RUN(test_progress_ends_with_its_screen);
    T_RUN(test_progress_waits);
    T_RUN(test_nearest);
    T_MAIN_END;
}
