/* SPDX-License-Identifier: Apache-2.0 */
/* test_journal.c - the journal's exact text, and everything its reader refuses. */
#include "loader/journal.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

static berth_context *context;

/* What print hands on, in pieces. */
typedef struct text {
    char bytes[4096];
    size_t length;
} text;

static berth_status
put_text(void *user, const char *bytes, uint64_t size, uint64_t offset,
         berth_error *error)
{
    text *const t = user;

    if (size > sizeof t->bytes - 1 - t->length)
        return berthi_fail(error, BERTH_REASON_DISK_FULL, NULL, "full");
    CHECK_EQ(offset, t->length);
    memcpy(t->bytes + t->length, bytes, (size_t)size);
    t->length += (size_t)size;
    t->bytes[t->length] = '\0';
    return BERTH_OK;
}

/* Parses a copy of `length` bytes of exactly their size. */
static berth_status
parse_bytes(berth_context *with, const char *document, size_t length, berthi_arena *arena,
            berthi_journal *out, berth_error *error)
{
    char *const copy = malloc(length > 0 ? length : 1);
    berth_status status;

    if (copy == NULL)
        exit(1);
    memcpy(copy, document, length);
    berthi_arena_init(arena, with, BERTHI_PURPOSE_DOCUMENT, 64);
    status = berthi_journal_parse(copy, length, "j.json", arena, out, error);
    free(copy);
    return status;
}

static void
refuse(const char *document, const char *message)
{
    berthi_arena arena;
    berthi_journal journal;
    berth_error error = { .status = BERTH_OK };

    CHECK_EQ(parse_bytes(context, document, strlen(document), &arena, &journal, &error),
             BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_JOURNAL);
    CHECK_STR(error.file, "j.json");
    CHECK_CONTAINS(error.message, message);
    CHECK_EQ(error.has, BERTH_HAS_POSITION);
    CHECK_LE(error.position, strlen(document));
    CHECK(journal.job == NULL && journal.files == NULL);
    berthi_arena_fini(&arena);
}

#define START "{\"schema_version\": 1, \"writer\": \"w\", "
#define HEAD START "\"job\": \"j\", \"state\": \"writing\", \"overwrite\": false, "
#define FILES HEAD "\"commit\": \"\", \"stale\": [], \"files\": ["
#define TEMPORARY "\"temporary\": \".a.berth-1-01234567.tmp\""
#define FILE_OF(name) \
    "{\"name\": \"" name "\", " TEMPORARY ", \"bytes\": 1, \"notes\": []}"

/* ---------------------------------------------------------------------- text */

static void
test_exact_text(void)
{
    static const uint32_t notes[] = { 0, 4294967295u, 17 };
    const char *stale[] = { "a.safetensors", "b.safetensors" };
    berthi_journal_file files[] = {
        { "model \"1\".safetensors", ".x.berth-1-01234567.tmp", UINT64_MAX, notes, 3 },
        { "z", ".z.berth-22-89abcdef.tmp", 0, NULL, 0 },
    };
    berthi_journal journal = { .job = "quantize\ntype: nf4",
                               .overwrite = true,
                               .is_publishing = true,
                               .commit = "z",
                               .stale = stale,
                               .stale_count = 2,
                               .files = files,
                               .file_count = 2 };
    const char *const start = fixture_format(
        "{\n\"schema_version\": 1,\n\"writer\": \"berth %s\",\n", berth_version());
    text t = { .length = 0 };
    uint64_t bytes = 1;

    CHECK_EQ(berthi_journal_print(&journal, put_text, &t, &bytes, NULL), BERTH_OK);
    CHECK_STR(t.bytes,
              fixture_format("%s%s", start,
                             "\"job\": \"quantize\\ntype: nf4\",\n"
                             "\"state\": \"publishing\",\n"
                             "\"overwrite\": true,\n"
                             "\"commit\": \"z\",\n"
                             "\"stale\": [\"a.safetensors\", \"b.safetensors\"],\n"
                             "\"files\": [\n"
                             "{\"name\": \"model \\\"1\\\".safetensors\", \"temporary\": "
                             "\".x.berth-1-01234567.tmp\", \"bytes\": "
                             "18446744073709551615, \"notes\": [0, 4294967295, 17]},\n"
                             "{\"name\": \"z\", \"temporary\": "
                             "\".z.berth-22-89abcdef.tmp\", \"bytes\": 0, \"notes\": []}\n"
                             "]\n}\n"));
    CHECK_EQ(bytes, t.length);
    bytes = 1;
    CHECK_EQ(berthi_journal_print(&journal, NULL, NULL, &bytes, NULL), BERTH_OK);
    CHECK_EQ(bytes, t.length);

    journal = (berthi_journal){ .job = "", .commit = "" };
    t.length = 0;
    CHECK_EQ(berthi_journal_print(&journal, put_text, &t, NULL, NULL), BERTH_OK);
    CHECK_STR(t.bytes, fixture_format("%s%s", start,
                                      "\"job\": \"\",\n\"state\": \"writing\",\n"
                                      "\"overwrite\": false,\n\"commit\": \"\",\n"
                                      "\"stale\": [],\n\"files\": []\n}\n"));
}

static void
test_full_while_printing(void)
{
    const berthi_journal journal = { .job = "", .commit = "" };
    berth_error error;
    text t = { .length = sizeof t.bytes - 2 };

    CHECK_EQ(berthi_journal_print(&journal, put_text, &t, NULL, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
}

static void
test_reads(void)
{
    static const char document[] =
        START "\"job\": \"a\\nb\", \"state\": \"publishing\", \"overwrite\": true, "
              "\"commit\": \"c\", \"stale\": [\"d/s\", \"s2\"], \"files\": [" FILE_OF("c")
              ", " FILE_OF("d/e/f")
              ", {\"name\": \"\\u00e9\", \"temporary\": \".b.berth-12-89abcdef.tmp\", "
              "\"bytes\": 18446744073709551615, \"notes\": [0, 4294967295]}]} \n";
    berthi_journal journal;
    berthi_arena arena;

    T_REQUIRE(parse_bytes(context, document, strlen(document), &arena, &journal, NULL)
              == BERTH_OK);
    CHECK_STR(journal.job, "a\nb");
    CHECK(journal.overwrite);
    CHECK(journal.is_publishing);
    CHECK_STR(journal.commit, "c");
    CHECK_EQ(journal.stale_count, 2);
    CHECK_STR(journal.stale[0], "d/s");
    CHECK_STR(journal.stale[1], "s2");
    CHECK_EQ(journal.file_count, 3);
    CHECK_STR(journal.files[0].name, "c");
    CHECK_STR(journal.files[0].temporary, ".a.berth-1-01234567.tmp");
    CHECK_EQ(journal.files[0].bytes, 1);
    CHECK_EQ(journal.files[0].note_count, 0);
    CHECK_STR(journal.files[1].name, "d/e/f");
    CHECK_STR(journal.files[2].name, "\xc3\xa9");
    CHECK_STR(journal.files[2].temporary, ".b.berth-12-89abcdef.tmp");
    CHECK_EQ(journal.files[2].bytes, UINT64_MAX);
    CHECK_EQ(journal.files[2].note_count, 2);
    CHECK_EQ(journal.files[2].notes[0], 0);
    CHECK_EQ(journal.files[2].notes[1], UINT32_MAX);
    berthi_arena_fini(&arena);
}

static void
test_refuses(void)
{
    refuse("", "");
    refuse("[]", "");
    refuse("{}", "should be \"schema_version\"");
    refuse("{\"schema_version\": 0}", "no schema version 0");
    refuse("{\"schema_version\": -1}", "");
    refuse("{\"schema_version\": 1}", "should be \"writer\"");
    refuse("{\"schema_version\": 1, \"writer\": 1}", "");
    refuse(START "\"jobs\": 1}", "should be \"job\"");
    refuse(START "\"job\": \"\\u0000\"}", "U+0000");
    refuse(START "\"job\": 1}", "");
    refuse(START "\"job\": \"\"}", "should be \"state\"");
    refuse(START "\"job\": \"\", \"state\": \"done\"}", "\"writing\" or \"publishing\"");
    refuse(START "\"job\": \"\", \"state\": \"writing\"}", "should be \"overwrite\"");
    refuse(START "\"job\": \"\", \"state\": \"writing\", \"overwrite\": 1}", "");
    refuse(HEAD "\"files\": []}", "should be \"commit\"");
    refuse(HEAD "\"commit\": \"\", \"files\": []}", "should be \"stale\"");
    refuse(HEAD "\"commit\": \"\", \"stale\": {}}", "");
    refuse(HEAD "\"commit\": \"\", \"stale\": []}", "should be \"files\"");
    refuse(HEAD "\"commit\": \"\", \"stale\": [\"b\", \"a\"]", "do not ascend");
    refuse(HEAD "\"commit\": \"\", \"stale\": [\"b\", \"b\"]", "do not ascend");
    refuse(HEAD "\"commit\": \"\", \"stale\": [\"/a\"]", "a name that is an absolute path");
    refuse(HEAD "\"commit\": \"\", \"stale\": [1]", "");
    refuse(HEAD "\"commit\": \"\", \"stale\": [\"a\" \"b\"]", "");
    refuse(FILES "]", "");
    refuse(FILES "], \"more\": 1}", "has no meaning");
    refuse(FILES "]} x", "");
    refuse("\xff", "UTF-8");
}

static void
test_refuses_files(void)
{
    refuse(FILES "1]}", "");
    refuse(FILES "{}]}", "should be \"name\"");
    refuse(FILES "{\"name\": \"..\"", "a name that has a component `.`");
    refuse(FILES "{\"name\": \"a\"}", "should be \"temporary\"");
    refuse(FILES "{\"name\": \"a\", \"temporary\": \"a.tmp\"", "temporary file");
    refuse(FILES "{\"name\": \"a\", \"temporary\": \"../.a.berth-1-01234567.tmp\"",
           "a name that has a component `.`");
    refuse(FILES "{\"name\": \"a\", \"temporary\": \".a/x.berth-1-01234567.tmp\"",
           "not the name of a temporary file");
    refuse(FILES "{\"name\": \"a\", " TEMPORARY "}", "should be \"bytes\"");
    refuse(FILES "{\"name\": \"a\", " TEMPORARY ", \"bytes\": 18446744073709551616", "");
    refuse(FILES "{\"name\": \"a\", " TEMPORARY ", \"bytes\": 1}", "should be \"notes\"");
    refuse(FILES "{\"name\": \"a\", " TEMPORARY ", \"bytes\": 1, \"notes\": [4294967296]",
           "above 4294967295");
    refuse(FILES "{\"name\": \"a\", " TEMPORARY ", \"bytes\": 1, \"notes\": [-1]", "");
    refuse(FILES "{\"name\": \"a\", " TEMPORARY ", \"bytes\": 1, \"notes\": [1, 2", "");
    refuse(FILES "{\"name\": \"a\", " TEMPORARY ", \"bytes\": 1, \"notes\": [], \"x\": 1",
           "has no meaning");
    refuse(FILES FILE_OF("b") ", " FILE_OF("a") "]}", "do not ascend");
    refuse(FILES FILE_OF("b") ", " FILE_OF("b") "]}", "do not ascend");
    refuse(FILES FILE_OF("b") ", " FILE_OF("c") ", {]}", "");
}

static void
test_commit_file(void)
{
    refuse(HEAD "\"commit\": \"a\", \"stale\": [], \"files\": [" FILE_OF("a") "]}",
           "the commit file");
    refuse(START "\"job\": \"\", \"state\": \"publishing\", \"overwrite\": false, "
                 "\"commit\": \"\", \"stale\": [], \"files\": [" FILE_OF("a") "]}",
           "the commit file");
    refuse(START "\"job\": \"\", \"state\": \"publishing\", \"overwrite\": false, "
                 "\"commit\": \"b\", \"stale\": [], \"files\": [" FILE_OF("a") "]}",
           "the commit file");
    refuse(START "\"job\": \"\", \"state\": \"publishing\", \"overwrite\": false, "
                 "\"commit\": \"a/b\", \"stale\": [], "
                 "\"files\": [" FILE_OF("a/b") "]}",
           "the commit file");
}

static void
test_later_version(void)
{
    static const char document[] = "{\"schema_version\": 2, \"anything\": 1}";
    berthi_journal journal;
    berthi_arena arena;
    berth_error error;

    CHECK_EQ(parse_bytes(context, document, strlen(document), &arena, &journal, &error),
             BERTH_EUNSUPPORTED);
    CHECK_EQ(error.reason, BERTH_REASON_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "schema_version 2 needs a newer berth");
    berthi_arena_fini(&arena);
}

/* No beginning of a journal is one, and none reads beyond its end. */
static void
test_cut_anywhere(void)
{
    static const char document[] =
        FILES "{\"name\": \"a\", " TEMPORARY ", \"bytes\": 1, \"notes\": [1, 2, 3]}, "
              "{\"name\": \"b\", " TEMPORARY ", \"bytes\": 1, \"notes\": [4]}]}";

    for (size_t length = 0; length <= strlen(document); length++) {
        berthi_journal journal;
        berthi_arena arena;
        const berth_status status =
            parse_bytes(context, document, length, &arena, &journal, NULL);

        CHECK_EQ(status, length == strlen(document) ? BERTH_OK : BERTH_EFORMAT);
        berthi_arena_fini(&arena);
    }
}

static void
test_names(void)
{
    CHECK(berthi_journal_name_problem("...", 3) == NULL);
    CHECK(berthi_journal_name_problem(".a", 2) == NULL);
    CHECK(berthi_journal_name_problem("a/b/c/d", 7) == NULL);
    CHECK_STR(berthi_journal_name_problem("a/b/c/d/e", 9), "has more than 4 components");
    CHECK_STR(berthi_journal_name_problem("", 0), "is not 1 to 1024 bytes long");
    CHECK_STR(berthi_journal_name_problem("a\0b", 3), "contains a control character");
    CHECK_STR(berthi_journal_name_problem("a\xff", 2), "is not UTF-8");
    CHECK_STR(berthi_journal_name_problem(".berth-journal.json", 19),
              "is that of the journal");
    CHECK(berthi_journal_name_problem(".berth-journal.jsom", 19) == NULL);
    CHECK(berthi_journal_name_problem(".berth-journal.json2", 20) == NULL);
    CHECK(berthi_journal_name_problem("a/.berth-journal.json", 21) == NULL);
}

static berth_status
parse_once(void *user, berth_context *with, berth_error *error)
{
    berthi_journal journal;
    berthi_arena arena;
    const berth_status status =
        parse_bytes(with, user, strlen(user), &arena, &journal, error);

    berthi_arena_fini(&arena);
    return status;
}

static void
test_faults(void)
{
    static char document[] =
        HEAD "\"commit\": \"\", \"stale\": [\"s\"], \"files\": ["
             "{\"name\": \"a\", " TEMPORARY ", \"bytes\": 1, \"notes\": [1, 2, 3]}, "
             "{\"name\": \"b\", " TEMPORARY ", \"bytes\": 1, \"notes\": [4]}]}";
    const fault_counts counts = fault_loop("a journal", parse_once, document);

    CHECK_GE(counts.memory, 8);
    CHECK_EQ(counts.survived, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_exact_text);
    T_RUN(test_full_while_printing);
    T_RUN(test_reads);
    T_RUN(test_refuses);
    T_RUN(test_refuses_files);
    T_RUN(test_commit_file);
    T_RUN(test_later_version);
    T_RUN(test_cut_anywhere);
    T_RUN(test_names);
    T_RUN(test_faults);
    berth_context_destroy(context);
    T_MAIN_END;
}
