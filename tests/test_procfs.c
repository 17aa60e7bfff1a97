/* SPDX-License-Identifier: Apache-2.0 */
/* test_procfs.c - lines and numbers of small files. */
#include <string.h>

#include "kernels/procfs.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/t.h"

/* The path of a file with such text, in a folder of its own. */
static const char *
file_of(const char *text)
{
    const char *const path = fixture_format("%s/f", fixture_folder());

    fixture_text(path, text);
    return path;
}

static void
test_lines(void)
{
    const size_t longest = BERTHI_PROCFS_LINE - 1; /* and its newline */
    const int folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, fixture_folder());
    berthi_procfs file;
    const char *line;
    const char *const path =
        file_of(fixture_format("one\n\n%0*d\n%0*d\ntwo\nlast", (int)longest, 1,
                               (int)longest + 1, 2));

    berthi_procfs_open(&file, folder, path);
    CHECK_STR(berthi_procfs_next(&file), "one");
    CHECK_STR(berthi_procfs_next(&file), "");
    line = berthi_procfs_next(&file);
    CHECK_EQ(line != NULL ? strlen(line) : 0, longest);
    CHECK_STR(berthi_procfs_next(&file), "two"); /* what does not fit is left out */
    CHECK_STR(berthi_procfs_next(&file), "last");
    CHECK_STR(berthi_procfs_next(&file), NULL);
    CHECK_STR(berthi_procfs_next(&file), NULL);
    CHECK_EQ(berthi_procfs_close(&file), BERTHI_READING_OK);

    berthi_procfs_open(&file, folder, "absent");
    CHECK_STR(berthi_procfs_next(&file), NULL);
    CHECK_EQ(berthi_procfs_close(&file), BERTHI_READING_ABSENT);
    berthi_procfs_open(&file, folder, fixture_format("%s/below", path));
    CHECK_EQ(berthi_procfs_close(&file), BERTHI_READING_ABSENT);
    berthi_procfs_open(&file, folder, ".");
    CHECK_STR(berthi_procfs_next(&file), NULL);
    CHECK_EQ(berthi_procfs_close(&file), BERTHI_READING_UNKNOWN);
    berthi_sys_close(folder);
}

/* Lines of all lengths around the buffer's border, with and without a last newline. */
static void
test_line_borders(void)
{
    for (int length = BERTHI_PROCFS_LINE - 3; length <= BERTHI_PROCFS_LINE + 2; length++)
        for (int is_ended = 0; is_ended <= 1; is_ended++)
            for (int before = 0; before <= 5; before += 5) {
                const bool fits = length < BERTHI_PROCFS_LINE;
                berthi_procfs file;
                const char *const path =
                    file_of(fixture_format("%.*s%0*d%s", before, "abcd\n", length, 7,
                                           is_ended ? "\n" : ""));
                const char *line;

                berthi_procfs_open(&file, BERTHI_SYS_AT_CWD, path);
                if (before > 0)
                    CHECK_STR(berthi_procfs_next(&file), "abcd");
                line = berthi_procfs_next(&file);
                CHECK_EQ(line != NULL, fits);
                if (line != NULL)
                    CHECK_EQ(strlen(line), length);
                CHECK_STR(berthi_procfs_next(&file), NULL);
                CHECK_EQ(berthi_procfs_close(&file), BERTHI_READING_OK);
            }
}

/* A first line longer than the room for it is cut; of what is not there, nothing. */
static void
test_first_lines(void)
{
    const char *const path = file_of("abcdefgh\nsecond\n");
    char text[8] = "#######";

    CHECK_EQ(berthi_procfs_line(BERTHI_SYS_AT_CWD, path, text, 5), BERTHI_READING_OK);
    CHECK_STR(text, "abcd");
    CHECK_MEM(text + 5, "##", 3);
    CHECK_EQ(berthi_procfs_line(BERTHI_SYS_AT_CWD, fixture_format("%s.no", path), text, 8),
             BERTHI_READING_ABSENT);
    CHECK_STR(text, "");
    memset(text, '#', sizeof text);
    CHECK_EQ(berthi_procfs_line(BERTHI_SYS_AT_CWD, file_of(""), text, 8),
             BERTHI_READING_UNKNOWN);
    CHECK_STR(text, "");
}

static void
test_digits(void)
{
    uint64_t number = 77;

    CHECK_STR(berthi_procfs_digits("18446744073709551615kB", &number), "kB");
    CHECK_EQ(number, UINT64_MAX);
    CHECK_STR(berthi_procfs_digits("0", &number), "");
    CHECK_EQ(number, 0);
    CHECK_STR(berthi_procfs_digits("0123456789/", &number), "/");
    CHECK_EQ(number, 123456789);
    CHECK_STR(berthi_procfs_digits("18446744073709551616", &number), NULL);
    CHECK_STR(berthi_procfs_digits("184467440737095516150", &number), NULL);
    CHECK_STR(berthi_procfs_digits("", &number), NULL);
    CHECK_STR(berthi_procfs_digits(":", &number), NULL);
    CHECK_STR(berthi_procfs_digits("-5", &number), NULL);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_lines);
    T_RUN(test_line_borders);
    T_RUN(test_first_lines);
    T_RUN(test_digits);
    T_MAIN_END;
}
