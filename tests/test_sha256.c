/* SPDX-License-Identifier: Apache-2.0 */
/* test_sha256.c - SHA-256 through libcrypto, and life without libcrypto. */
#define _GNU_SOURCE /* RTLD_NEXT */

#include "loader/sha256.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/fault.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define NEED_LIBRARY "libcrypto is not there"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static berth_context *context;
static berthi_sha256 *library;

/* ------------------------------------------------------------ what is kept open */

static int open_libraries;
static const char *opened_instead; /* whatever is asked for; NULL: what is */

/* These stand before the C library's, and count. */
void *
dlopen(const char *name, int flags)
{
    void *(*next)(const char *name, int flags);
    void *const symbol = dlsym(RTLD_NEXT, "dlopen");
    void *found;

    memcpy(&next, &symbol, sizeof next);
    found = next(opened_instead != NULL ? opened_instead : name, flags);
    open_libraries += found != NULL;
    return found;
}

int
dlclose(void *handle)
{
    int (*next)(void *handle);
    void *const symbol = dlsym(RTLD_NEXT, "dlclose");

    memcpy(&next, &symbol, sizeof next);
    open_libraries--;
    return next(handle);
}

static void *
open_libcrypto(void)
{
    void *const found = dlopen("libcrypto.so.3", RTLD_LAZY | RTLD_LOCAL);

    return found != NULL ? found : dlopen("libcrypto.so.1.1", RTLD_LAZY | RTLD_LOCAL);
}

/* libcrypto's own allocations, through its hooks: the library never sets those. */
static struct {
    bool is_set;
    uint64_t live;
    uint64_t calls;
    uint64_t fails_at; /* the call that fails; 0: none */
} crypto;

static void *
crypto_resize(void *memory, size_t bytes, const char *file, int line)
{
    void *resized;

    (void)file;
    (void)line;
    if (++crypto.calls == crypto.fails_at)
        return NULL;
    resized = realloc(memory, bytes);
    crypto.live += memory == NULL && resized != NULL;
    return resized;
}

static void *
crypto_allocate(size_t bytes, const char *file, int line)
{
    return crypto_resize(NULL, bytes, file, line);
}

static void
crypto_free(void *memory, const char *file, int line)
{
    (void)file;
    (void)line;
    crypto.live -= memory != NULL;
    free(memory);
}

/* Before its first allocation; it stays loaded. */
static void
watch_libcrypto(void)
{
    int (*set)(void *(*allocate)(size_t, const char *, int),
               void *(*resize)(void *, size_t, const char *, int),
               void (*release)(void *, const char *, int));
    void *const found = open_libcrypto();
    void *const symbol = found != NULL ? dlsym(found, "CRYPTO_set_mem_functions") : NULL;

    if (symbol == NULL)
        return;
    memcpy(&set, &symbol, sizeof set);
    crypto.is_set = set(crypto_allocate, crypto_resize, crypto_free) == 1;
}

/* ------------------------------------------------------------------- digests */

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
    check_digest("", 0, EMPTY);
    check_digest("abc", 1, ABC);
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
    void *const found = open_libcrypto();

    CHECK_EQ(library != NULL, found != NULL);
    CHECK_EQ(berthi_sha256_is_there(context), found != NULL);
    if (found != NULL)
        dlclose(found);
}

/* Not being there is no failure. */
static void
test_absent(void)
{
    const int before = open_libraries;
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
    CHECK_EQ(open_libraries, before);
    berthi_sha256_close(NULL);
    berthi_sha256_destroy(NULL);
}

/* Both names belong to something else: each is closed again, and once. */
static void
test_other_libraries(void)
{
    const int before = open_libraries;
    berthi_sha256 *mine = library;

    opened_instead = "libm.so.6";
    CHECK_EQ(berthi_sha256_open(context, &mine, NULL), BERTH_OK);
    opened_instead = NULL;
    CHECK(mine == NULL);
    CHECK_EQ(open_libraries, before);
}

/* Whatever the tests above opened, only `library` is still there. */
static void
test_gives_back(void)
{
    berth_memory_summary before;
    berth_memory_summary after;
    const int libraries = open_libraries;
    berthi_sha256 *mine;

    berth_context_memory(context, &before);
    CHECK_EQ(before.allocations - before.frees, library != NULL ? 1 : 0);
    CHECK_EQ(berthi_sha256_open(context, &mine, NULL), BERTH_OK);
    CHECK_EQ(open_libraries, libraries + (library != NULL ? 1 : 0));
    berthi_sha256_close(mine);
    CHECK_EQ(open_libraries, libraries);
    berth_context_memory(context, &after);
    CHECK_EQ(after.current_bytes, before.current_bytes);
}

/* What libcrypto was asked for is given back to it, finished or not. */
static void
test_gives_back_to_libcrypto(void)
{
    berthi_sha256_digest *digest;
    uint64_t before;

    if (library == NULL || !crypto.is_set)
        T_SKIP("libcrypto is not there, or lets nobody watch it");
    check_digest("", 0, EMPTY); /* what it keeps of the first one, it keeps once */
    before = crypto.live;
    T_REQUIRE(berthi_sha256_create(library, &digest, NULL) == BERTH_OK);
    CHECK_GT(crypto.live, before);
    berthi_sha256_destroy(digest);
    CHECK_EQ(crypto.live, before);
    check_digest("abc", 1, ABC);
    CHECK_EQ(crypto.live, before);
}

/* Each of libcrypto's allocations fails once: no digest, a reason, nothing kept. */
static void
test_libcrypto_fails(void)
{
    berth_status status = BERTH_ENOMEM;
    uint64_t failures = 0;

    if (library == NULL || !crypto.is_set)
        T_SKIP("libcrypto is not there, or lets nobody watch it");
    check_digest("", 0, EMPTY);
    for (; status != BERTH_OK && failures < 100; failures++) {
        berthi_sha256_digest *digest = (berthi_sha256_digest *)&status;
        berth_memory_summary before;
        berth_memory_summary after;
        berth_error error;

        berth_context_memory(context, &before);
        crypto.calls = 0;
        crypto.fails_at = failures + 1;
        status = berthi_sha256_create(library, &digest, &error);
        crypto.fails_at = 0;
        if (status == BERTH_OK) {
            berthi_sha256_destroy(digest);
        } else {
            CHECK_EQ(status, BERTH_ENOMEM);
            CHECK_STR(error.message, "libcrypto failed: starting a SHA-256");
            CHECK(digest == NULL);
        }
        berth_context_memory(context, &after);
        CHECK_EQ(after.current_bytes, before.current_bytes);
    }
    CHECK_GE(failures, 2);
    CHECK_LT(failures, 100);
}

/* Finished is finished: newer versions refuse to go on, none gives another digest. */
static void
test_finished(void)
{
    berthi_sha256_digest *digest;
    char hex[BERTHI_SHA256_DIGITS + 1];
    berth_error error;

    if (library == NULL)
        T_SKIP(NEED_LIBRARY);
    T_REQUIRE(berthi_sha256_create(library, &digest, NULL) == BERTH_OK);
    CHECK_EQ(berthi_sha256_finish(digest, hex, NULL), BERTH_OK);
    if (berthi_sha256_update(digest, "x", 1, &error) != BERTH_OK) {
        CHECK_EQ(error.status, BERTH_ENOMEM);
        CHECK_STR(error.message, "libcrypto failed: continuing a SHA-256");
        CHECK_EQ(berthi_sha256_finish(digest, hex, &error), BERTH_ENOMEM);
        CHECK_STR(error.message, "libcrypto failed: finishing a SHA-256");
    }
    berthi_sha256_destroy(digest);
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
    watch_libcrypto();
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK
        || berthi_sha256_open(context, &library, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_found);
    T_RUN(test_known_values);
    T_RUN(test_any_cut);
    T_RUN(test_absent);
    T_RUN(test_other_libraries);
    T_RUN(test_gives_back);
    T_RUN(test_gives_back_to_libcrypto);
    T_RUN(test_libcrypto_fails);
    T_RUN(test_finished);
    T_RUN(test_faults);
    berthi_sha256_close(library);
    berth_context_destroy(context);
    T_MAIN_END;
}
