/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha256.c - the part of libcrypto's EVP interface that SHA-256 needs.
 *
 * Declared here instead of included, so that no OpenSSL is needed to build and
 * 1.1 and 3 both serve: these calls have not changed between them.
 */
#include "loader/sha256.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernels/sys.h"

typedef struct evp_context evp_context; /* EVP_MD_CTX */
typedef struct evp_type evp_type;       /* EVP_MD */

#define HASH_BYTES 32
#define NO_LOAD_CONFIG UINT64_C(0x80)
#define NO_ATEXIT UINT64_C(0x80000)

/* X(member, result, arguments, symbol) */
#define CALLS(X)                                                                           \
    X(init_crypto, int, (uint64_t options, const void *settings), "OPENSSL_init_crypto")   \
    X(sha256, const evp_type *, (void), "EVP_sha256")                                      \
    X(create, evp_context *, (void), "EVP_MD_CTX_new")                                     \
    X(destroy, void, (evp_context *context), "EVP_MD_CTX_free")                            \
    X(init, int, (evp_context *context, const evp_type *type, void *engine),               \
      "EVP_DigestInit_ex")                                                                 \
    X(update, int, (evp_context *context, const void *bytes, size_t size),                 \
      "EVP_DigestUpdate")                                                                  \
    X(finish, int, (evp_context *context, unsigned char *hash, unsigned *size),            \
      "EVP_DigestFinal_ex")

struct berthi_sha256 {
    berth_context *context;
    void *library;
#define CALL_MEMBER(member, result, arguments, symbol) result(*member) arguments;
    CALLS(CALL_MEMBER)
#undef CALL_MEMBER
};

struct berthi_sha256_digest {
    const berthi_sha256 *library;
    evp_context *evp;
};

/* ------------------------------------------------------------------- library */

static bool
has_symbols(berthi_sha256 *l)
{
#define HAS_CALL(member, result, arguments, symbol)                                        \
    && berthi_sys_library_has(l->library, symbol, &l->member)
    return true CALLS(HAS_CALL);
#undef HAS_CALL
}

/* Opens `name` and finds what is needed, or leaves nothing open. */
static bool
can_use(berthi_sha256 *l, const char *name)
{
    l->library = berthi_sys_library_open(name);
    /* Neither its configuration file nor a handler at exit: both are the caller's. */
    if (l->library != NULL && has_symbols(l)
        && l->init_crypto(NO_LOAD_CONFIG | NO_ATEXIT, NULL) == 1)
        return true;
    berthi_sys_library_close(l->library);
    l->library = NULL;
    return false;
}

berth_status
berthi_sha256_open(berth_context *context, berthi_sha256 **out, berth_error *error)
{
    berthi_sha256 *l;

    *out = NULL;
    l = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *l);
    if (l == NULL)
        return berthi_fail_memory(error, "opening libcrypto");
    l->context = context;
    if (can_use(l, "libcrypto.so.3") || can_use(l, "libcrypto.so.1.1"))
        *out = l;
    else
        berthi_sha256_close(l);
    return BERTH_OK;
}

void
berthi_sha256_close(berthi_sha256 *library)
{
    if (library == NULL)
        return;
    berthi_sys_library_close(library->library);
    berthi_memory_free(library->context, BERTHI_PURPOSE_OBJECT, library, sizeof *library);
}

bool
berthi_sha256_is_there(berth_context *context)
{
    berthi_sha256 *library;
    bool is_there;

    (void)berthi_sha256_open(context, &library, NULL); /* out of memory: not there */
    is_there = library != NULL;
    berthi_sha256_close(library);
    return is_there;
}

/* -------------------------------------------------------------------- digest */

static berth_status
fail_library(berth_error *error, const char *what)
{
    /* With valid arguments libcrypto fails for want of memory only. */
    return berthi_fail(error, BERTH_REASON_NO_MEMORY, NULL, "libcrypto failed: %s", what);
}

berth_status
berthi_sha256_create(berthi_sha256 *library, berthi_sha256_digest **out,
                     berth_error *error)
{
    berthi_sha256_digest *digest;

    *out = NULL;
    digest = berthi_memory_zalloc(library->context, BERTHI_PURPOSE_OBJECT, sizeof *digest);
    if (digest == NULL)
        return berthi_fail_memory(error, "starting a SHA-256");
    digest->library = library;
    digest->evp = library->create();
    if (digest->evp == NULL || library->init(digest->evp, library->sha256(), NULL) != 1) {
        berthi_sha256_destroy(digest);
        return fail_library(error, "starting a SHA-256");
    }
    *out = digest;
    return BERTH_OK;
}

berth_status
berthi_sha256_update(berthi_sha256_digest *digest, const void *bytes, size_t size,
                     berth_error *error)
{
    if (digest->library->update(digest->evp, bytes, size) != 1)
        return fail_library(error, "continuing a SHA-256");
    return BERTH_OK;
}

berth_status
berthi_sha256_finish(berthi_sha256_digest *digest, char hex[BERTHI_SHA256_DIGITS + 1],
                     berth_error *error)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char hash[HASH_BYTES];

    if (digest->library->finish(digest->evp, hash, NULL) != 1)
        return fail_library(error, "finishing a SHA-256");
    for (size_t i = 0; i < HASH_BYTES; i++) {
        hex[2 * i] = digits[hash[i] >> 4];
        hex[2 * i + 1] = digits[hash[i] & 15];
    }
    hex[BERTHI_SHA256_DIGITS] = '\0';
    return BERTH_OK;
}

void
berthi_sha256_destroy(berthi_sha256_digest *digest)
{
    if (digest == NULL)
        return;
    digest->library->destroy(digest->evp); /* NULL is allowed */
    berthi_memory_free(digest->library->context, BERTHI_PURPOSE_OBJECT, digest,
                       sizeof *digest);
}
