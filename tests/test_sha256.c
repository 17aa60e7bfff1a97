/* SPDX-License-Identifier: Apache-2.0 */
/* test_sha256.c - SHA-256 through libcrypto, and life without libcrypto. */
#include "loader/sha256.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define NEED_LIBRARY "libcrypto is not there"

static berth_context *context;
static berthi_sha256 *library;

/* The digest of `count` times the same text. */
static void
check_digest(const char *text, size_t count, const char *expected)
{
    berthi_sha256_digest *digest;
    char hex[BERTHI_SHA256_DIGITS + 1];

    T_REQUIRE(berthi_sha256_create(library, &digest, NULL) == BERTH_OK);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(berthi_sha256_update(digest, text, strlen(text), NULL), BERTH_OK);
    CHECK_EQ(berthi_sha256_finish(digest, hex, NULL), BERTH_OK);
    CHECK_STR(hex, expected);
    berthi_sha256_destroy(digest);
}

/* FIPS 180: the examples of the standard. */
static void
test_known_values(void)
{
    if (library == NULL)
        T_SKIP(NEED_LIBRARY);
    check_digest("", 0, "e3b0c44298fc1c149afbf4c8996fb924"
                        "27ae41e4649b934ca495991b7852b855");
    check_digest("abc", 1, "ba7816bf8f01cfea414140de5dae2223"
                           "b00361a396177a9cb410ff61f20015ad");
    check_digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
                 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check_digest("aaaaaaaaaa", 100000,
                 "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Cut anywhere, and two at once. */
static void
test_any_cut(void)
{
    static unsigned char bytes[5000];
    char expected[65];

    if (library == NULL)
        T_SKIP(NEED_LIBRARY);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * i >> 3);
    fixture_sha256(bytes, sizeof bytes, expected);
    for (size_t cut = 0; cut <= sizeof bytes; cut += 61) {
        berthi_sha256_digest *digests[2];
        char hex[BERTHI_SHA256_DIGITS + 1];

        for (int i = 0; i < 2; i++)
            T_REQUIRE(berthi_sha256_create(library, &digests[i], NULL) == BERTH_OK);
        for (int i = 0; i < 2; i++)
            CHECK_EQ(berthi_sha256_update(digests[i], bytes, cut, NULL), BERTH_OK);
        for (int i = 0; i < 2; i++) {
            CHECK_EQ(berthi_sha256_update(digests[i], bytes + cut, sizeof bytes - cut,
                                          NULL), BERTH_OK);
            CHECK_EQ(berthi_sha256_finish(digests[i], hex, NULL), BERTH_OK);
            CHECK_STR(hex, expected);
            berthi_sha256_destroy(digests[i]);
        }
    }
}

/* It is used exactly where it can be opened. */
static void
test_found(void)
{
    void *found = dlopen("libcrypto.so.3", RTLD_LAZY | RTLD_LOCAL);

    if (found == NULL)
        found = dlopen("libcrypto.so.1.1", RTLD_LAZY | RTLD_LOCAL);
    CHECK_EQ(library != NULL, found != NULL);
    CHECK_EQ(berthi_sha256_is_there(context), found != NULL);
    if (found != NULL)
        dlclose(found);
}

/* Not being there is no failure. */
static void
test_absent(void)
{
    berthi_sha256 *mine = library;
    berth_error error;

    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    CHECK_EQ(berthi_sha256_open(context, &mine, &error), BERTH_OK);
    CHECK_EQ(berthi_fault_calls(BERTHI_FAULT_SYSTEM), 2); /* version 3, then 1.1 */
    CHECK(mine == NULL);
    CHECK(!berthi_sha256_is_there(context));
    /* A library without one of the calls is none. */
    if (library != NULL) {
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, 3, false);
        CHECK_EQ(berthi_sha256_open(context, &mine, &error), BERTH_OK);
        CHECK(mine == NULL);
    }
    berthi_fault_disarm();
    berthi_sha256_close(NULL);
    berthi_sha256_destroy(NULL);
}

/* Whatever the tests above opened, only `library` is still there. */
static void
test_gives_back(void)
{
    berth_memory_summary before;
    berth_memory_summary after;
    berthi_sha256 *mine;

    berth_context_memory(context, &before);
    CHECK_EQ(before.allocations - before.frees, library != NULL ? 1 : 0);
    CHECK_EQ(berthi_sha256_open(context, &mine, NULL), BERTH_OK);
    berthi_sha256_close(mine);
    berth_context_memory(context, &after);
    CHECK_EQ(after.current_bytes, before.current_bytes);
}

static berth_status
digest_once(void *user, berth_context *with, berth_error *error)
{
    berthi_sha256 *mine = NULL;
    berthi_sha256_digest *digest = NULL;
    char hex[BERTHI_SHA256_DIGITS + 1];
    berth_status status = berthi_sha256_open(with, &mine, error);

    (void)user;
    if (mine == NULL)
        return status;
    status = berthi_sha256_create(mine, &digest, error);
    CHECK_EQ(digest != NULL, status == BERTH_OK);
    if (digest != NULL) {
        status = berthi_sha256_update(digest, "abc", 3, error);
        if (status == BERTH_OK)
            status = berthi_sha256_finish(digest, hex, error);
    }
    berthi_sha256_destroy(digest);
    berthi_sha256_close(mine);
    return status;
}

static void
test_faults(void)
{
    fault_counts counts = fault_loop("SHA-256", digest_once, NULL);

    CHECK_EQ(counts.survived, counts.system);
    CHECK_EQ(counts.memory, library != NULL ? 4 : 2);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK
        || berthi_sha256_open(context, &library, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_found);
    T_RUN(test_known_values);
    T_RUN(test_any_cut);
    T_RUN(test_absent);
    T_RUN(test_gives_back);
    T_RUN(test_faults);
    berthi_sha256_close(library);
    berth_context_destroy(context);
    T_MAIN_END;
}
