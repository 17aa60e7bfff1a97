/* SPDX-License-Identifier: Apache-2.0 */
/* test_members.c - JSON whose members have one order: what is read, and what fails. */
#include "quant/members.h"

#include <stdio.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/t.h"

static berth_context *context;

/* A reader of `text`, which is copied into `copy`, that has entered the object. */
static berthi_members
begin(const char *text, char copy[256], berthi_arena *arena, berth_error *error)
{
    berthi_members m = { .file = "f.json",
                         .reason = BERTH_REASON_PLAN_JSON,
                         .what = "reading",
                         .arena = arena,
                         .error = error };

    berthi_arena_init(arena, context, BERTHI_PURPOSE_SCRATCH, 4096);
    memset(error, 0, sizeof *error);
    memcpy(copy, text, strlen(text) + 1);
    CHECK(berthi_members_can_begin(&m, copy, strlen(text)));
    return m;
}

/* Ends it: what has gone wrong, at which byte. */
static void
check_end(berthi_members *m, const char *message, uint64_t position)
{
    const berth_error *const error = m->error;

    CHECK_EQ(berthi_members_end(m), BERTH_EFORMAT);
    CHECK_EQ(error->reason, BERTH_REASON_PLAN_JSON);
    CHECK_STR(error->file, "f.json");
    CHECK_STR(error->message, message);
    CHECK_EQ(error->has, BERTH_HAS_POSITION);
    CHECK_EQ(error->position, position);
    berthi_arena_fini(m->arena);
}

static void
test_read(void)
{
    char copy[256];
    berthi_arena arena;
    berth_error error;
    berthi_members m = begin("{\"schema_version\": 2, \"t\": \"\\u0041b\", \"n\": 7, "
                             "\"l\": null, \"k\": 9, \"b\": true, \"o\": {\"in\": 1}, "
                             "\"a\": [1, {}, [2, 3]], \"u\": 255}",
                             copy, &arena, &error);
    const char *text;
    uint64_t number;
    bool flag;

    CHECK(berthi_members_can_read_version(&m, 2));
    CHECK(berthi_members_can_read_text(&m, "t", &text));
    CHECK_STR(text, "Ab");
    CHECK(berthi_members_can_read_number(&m, "n", &number));
    CHECK_EQ(number, 7);
    CHECK(berthi_members_can_read_limit(&m, "l", &number));
    CHECK_EQ(number, UINT64_MAX);
    CHECK(berthi_members_can_read_limit(&m, "k", &number));
    CHECK_EQ(number, 9);
    CHECK(berthi_members_can_find_key(&m, "other", &flag)); /* and keeps the one there */
    CHECK(!flag);
    CHECK(berthi_members_can_find_key(&m, "b", &flag));
    CHECK(flag);
    flag = false;
    CHECK(berthi_scan_can_read_bool(&m.scan, &flag));
    CHECK(flag);
    CHECK(berthi_members_can_read_key(&m, "o"));
    CHECK(berthi_scan_can_enter_object(&m.scan));
    CHECK(berthi_members_can_read_number(&m, "in", &number));
    CHECK(berthi_members_can_find_key(&m, "more", &flag)); /* looked for behind the last */
    CHECK(!flag);
    CHECK(berthi_members_is_at_end(&m));
    CHECK(berthi_members_can_enter_array(&m, "a", &number));
    CHECK_EQ(number, 3);
    for (uint32_t i = 0; i < 3; i++)
        CHECK(berthi_scan_has_next_element(&m.scan) && berthi_scan_can_skip(&m.scan));
    CHECK(!berthi_scan_has_next_element(&m.scan));
    CHECK(berthi_members_can_read_below(&m, "u", 256, &number));
    CHECK_EQ(number, 255);
    CHECK(berthi_members_is_at_end(&m));
    CHECK_EQ(berthi_members_end(&m), BERTH_OK);
    CHECK_EQ(error.status, BERTH_OK);
    berthi_arena_fini(&arena);
}

static void
test_begin(void)
{
    char text[] = "{\"\xff\": 1}";
    berth_error error;
    berthi_members m = { .file = "f.json",
                         .reason = BERTH_REASON_LINKS_JSON,
                         .error = &error };

    CHECK(!berthi_members_can_begin(&m, text, strlen(text)));
    CHECK_EQ(berthi_members_end(&m), BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_LINKS_JSON);
    CHECK_STR(error.message, "not UTF-8");
    CHECK_EQ(error.position, 2);
    m = (berthi_members){ .reason = BERTH_REASON_LINKS_JSON, .error = &error };
    CHECK(!berthi_members_can_begin(&m, text, 0));
    CHECK_EQ(berthi_members_end(&m), BERTH_EFORMAT);
    CHECK_STR(error.message, "not an object");
    CHECK_EQ(error.position, 0);
}

/* ------------------------------------------------------------------------ refused */

static void
test_keys_refused(void)
{
    char copy[256];
    berthi_arena arena;
    berth_error error;
    berthi_members m = begin("{\"a\": 1, \"b\": 2}", copy, &arena, &error);
    uint64_t number;
    bool flag;

    CHECK(berthi_members_can_read_number(&m, "a", &number));
    CHECK(!berthi_members_can_read_number(&m, "c", &number));
    check_end(&m, "the next member should be \"c\"", 7);

    m = begin("{\"a\": 1, \"b\": 2}", copy, &arena, &error);
    CHECK(berthi_members_can_read_number(&m, "a", &number));
    CHECK(!berthi_members_is_at_end(&m));
    check_end(&m, "the next member has no meaning", 7);

    m = begin("{}", copy, &arena, &error);
    CHECK(!berthi_members_can_read_key(&m, "a"));
    check_end(&m, "the next member should be \"a\"", 1);

    /* Something that is no member. */
    m = begin("{5}", copy, &arena, &error);
    CHECK(!berthi_members_can_find_key(&m, "a", &flag));
    CHECK(!flag);
    check_end(&m, "a key is missing", 1);

    m = begin("{5}", copy, &arena, &error);
    CHECK(!berthi_members_can_read_key(&m, "a"));
    check_end(&m, "a key is missing", 1);

    m = begin("{5}", copy, &arena, &error);
    CHECK(!berthi_members_is_at_end(&m));
    check_end(&m, "a key is missing", 1);

    m = begin("{} 1", copy, &arena, &error);
    CHECK(berthi_members_is_at_end(&m));
    check_end(&m, "something stands behind the end", 3);
}

static void
test_values_refused(void)
{
    char copy[256];
    berthi_arena arena;
    berth_error error;
    berthi_members m = begin("{\"a\": 256}", copy, &arena, &error);
    const char *text = NULL;
    uint64_t number;
    bool flag;

    CHECK(!berthi_members_can_read_below(&m, "a", 256, &number));
    check_end(&m, "the number is too large", 9);

    m = begin("{\"a\": -1}", copy, &arena, &error);
    CHECK(!berthi_members_can_read_below(&m, "a", 256, &number));
    check_end(&m, "not an unsigned integer", 6);

    m = begin("{\"a\": \"b\\u0000\"}", copy, &arena, &error);
    CHECK(!berthi_members_can_read_text(&m, "a", &text));
    CHECK(text == NULL);
    check_end(&m, "a text with U+0000", 15);

    m = begin("{\"a\": nil}", copy, &arena, &error);
    CHECK(!berthi_members_can_read_limit(&m, "a", &number));
    check_end(&m, "not null", 6);

    m = begin("{\"a\": NaN}", copy, &arena, &error);
    CHECK(!berthi_members_can_read_number(&m, "a", &number));
    check_end(&m, "not an unsigned integer", 6);

    m = begin("{\"a\": [NaN, 1]}", copy, &arena, &error);
    CHECK(berthi_members_can_enter_array(&m, "a", &number));
    CHECK_EQ(number, 1); /* no number, nor what follows */
    CHECK(!berthi_members_stop(&m, "no good"));
    check_end(&m, "no good", 7);

    m = begin("{\"a\": nul}", copy, &arena, &error);
    CHECK(!berthi_members_can_read_limit(&m, "x", &number));
    check_end(&m, "the next member should be \"x\"", 1);

    m = begin("{\"a\": 1}", copy, &arena, &error);
    CHECK(!berthi_members_can_read_bool(&m, "a", &flag));
    check_end(&m, "not true or false", 6);

    m = begin("{\"a\": 1}", copy, &arena, &error);
    CHECK(!berthi_members_can_enter_array(&m, "a", &number));
    check_end(&m, "not an array", 6);

    /* One that cannot be skipped counts: the reader begins it before it fails. */
    m = begin("{\"a\": [1, x]}", copy, &arena, &error);
    CHECK(berthi_members_can_enter_array(&m, "a", &number));
    CHECK_EQ(number, 2);
    CHECK(!berthi_members_stop(&m, "no good"));
    check_end(&m, "no good", 7);
}

static void
test_version(void)
{
    char copy[256];
    berthi_arena arena;
    berth_error error;
    berthi_members m = begin("{\"schema_version\": 3}", copy, &arena, &error);

    CHECK(!berthi_members_can_read_version(&m, 2));
    CHECK_EQ(berthi_members_end(&m), BERTH_EUNSUPPORTED);
    CHECK_STR(error.message, "schema_version 3 needs a newer berth");
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL);
    CHECK_EQ(error.expected, 2);
    CHECK_EQ(error.actual, 3);
    CHECK_STR(error.file, "f.json");
    berthi_arena_fini(&arena);

    m = begin("{\"schema_version\": 0}", copy, &arena, &error);
    CHECK(!berthi_members_can_read_version(&m, 2));
    check_end(&m, "there is no schema version 0", 20);
}

/* ------------------------------------------------------------------------- memory */

static berth_status
read_text(void *user, berth_context *with, berth_error *error)
{
    char copy[] = "{\"a\": \"b\"}";
    berthi_arena arena;
    berthi_members m = { .reason = BERTH_REASON_PLAN_JSON,
                         .what = "reading a thing",
                         .arena = &arena,
                         .error = error };
    const char *text = NULL;
    berth_status status;

    (void)user;
    berthi_arena_init(&arena, with, BERTHI_PURPOSE_SCRATCH, 4096);
    if (berthi_members_can_begin(&m, copy, strlen(copy))
        && berthi_members_can_read_text(&m, "a", &text))
        (void)berthi_members_is_at_end(&m);
    status = berthi_members_end(&m);
    CHECK((status == BERTH_OK) == (text != NULL));
    if (status != BERTH_OK)
        CHECK_CONTAINS(error->message, "reading a thing");
    berthi_arena_fini(&arena);
    return status;
}

static void
test_faults(void)
{
    const fault_counts counts = fault_loop("members", read_text, NULL);

    CHECK_EQ(counts.memory, 2);
    CHECK_EQ(counts.survived, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_RUN(test_read);
    T_RUN(test_begin);
    T_RUN(test_keys_refused);
    T_RUN(test_values_refused);
    T_RUN(test_version);
    T_RUN(test_faults);
    berth_context_destroy(context);
    T_MAIN_END;
}
