/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_journal.c - any bytes as a journal
 *
 * What is accepted is printed, and the print must parse to the same and print
 * to the same bytes; names ascend strictly and obey the path rule, temporary
 * ones and that of the commit file, which is one of the files, have no folder.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "loader/journal.h"
#include "loader/temporary.h"
#include "tests/fuzz/json_text.h"
#include "tests/fuzz/require.h"

static void
check_name(const char *name, const char *before)
{
    REQUIRE(berthi_journal_name_problem(name, strlen(name)) == NULL);
    REQUIRE(before == NULL || strcmp(before, name) < 0);
}

/* A temporary name, or that of a file which several processes fill. */
static bool
is_of_the_writer(const char *name)
{
    return berthi_temporary_is_name(name, NULL)
           || strncmp(name, BERTHI_JOURNAL_PARTS, strlen(BERTHI_JOURNAL_PARTS)) == 0;
}

static void
check(const berthi_journal *journal)
{
    bool has_commit = false;

    for (uint64_t i = 0; i < journal->stale_count; i++)
        check_name(journal->stale[i], i > 0 ? journal->stale[i - 1] : NULL);
    for (uint64_t i = 0; i < journal->file_count; i++) {
        check_name(journal->files[i].name, i > 0 ? journal->files[i - 1].name : NULL);
        check_name(journal->files[i].temporary, NULL);
        REQUIRE(is_of_the_writer(journal->files[i].temporary));
        REQUIRE(strchr(journal->files[i].temporary, '/') == NULL);
        has_commit = has_commit || strcmp(journal->files[i].name, journal->commit) == 0;
    }
    REQUIRE(strchr(journal->commit, '/') == NULL);
    REQUIRE(journal->is_publishing ? has_commit : journal->commit[0] == '\0');
}

/* Parses a copy of the bytes and prints what was seen into `out`. */
static berth_status
parse_and_print(berth_context *context, const void *data, size_t size, json_text *out)
{
    berth_error error = { .status = BERTH_OK };
    berthi_journal journal;
    berthi_arena arena;
    char *const copy = malloc(size + 1);
    berth_status status;

    REQUIRE(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_DOCUMENT, 4096);
    status = berthi_journal_parse(copy, size, "fuzz", &arena, &journal, &error);
    REQUIRE(status == error.status);
    if (status == BERTH_OK) {
        check(&journal);
        REQUIRE(berthi_journal_print(&journal, json_put_piece, out, NULL, NULL) == BERTH_OK);
    } else {
        REQUIRE(status == BERTH_EFORMAT || status == BERTH_EUNSUPPORTED);
        REQUIRE(error.message[0] != '\0');
        REQUIRE((error.has & BERTH_HAS_POSITION) == 0 || error.position <= size);
    }
    berthi_arena_fini(&arena);
    free(copy);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_text first = { .length = 0 };
    json_text second = { .length = 0 };
    berth_context *context = NULL;

    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    if (parse_and_print(context, data, size, &first) == BERTH_OK) {
        REQUIRE(parse_and_print(context, first.bytes, first.length, &second) == BERTH_OK);
        REQUIRE(first.length == second.length);
        REQUIRE(memcmp(first.bytes, second.bytes, first.length) == 0);
    }
    berth_context_destroy(context);
    free(first.bytes);
    free(second.bytes);
    return 0;
}
