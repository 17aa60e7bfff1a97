/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha256.h - SHA-256 by libcrypto, where the machine has it.
 *
 * The library is opened at run time, in berthi_sha256_open(), and belongs to
 * the object that it returns. Several digests may be made at once, each used
 * by one thread at a time.
 */
#ifndef BERTH_LOADER_SHA256_H
#define BERTH_LOADER_SHA256_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/base.h"
#include "kernels/memory.h"

#define BERTHI_SHA256_DIGITS 64

typedef struct berthi_sha256 berthi_sha256;
typedef struct berthi_sha256_digest berthi_sha256_digest;

/*
 * *out is NULL with BERTH_OK where there is no usable libcrypto: the caller
 * says so and goes on without. Free with berthi_sha256_close().
 */
berth_status berthi_sha256_open(berth_context *context, berthi_sha256 **out,
                                berth_error *error);
/* NULL is allowed. All digests have been destroyed. */
void berthi_sha256_close(berthi_sha256 *library);

/* True when berthi_sha256_open() would find a library. */
bool berthi_sha256_is_there(berth_context *context);

berth_status berthi_sha256_create(berthi_sha256 *library, berthi_sha256_digest **out,
                                  berth_error *error);
berth_status berthi_sha256_update(berthi_sha256_digest *digest, const void *bytes,
                                  size_t size, berth_error *error);
/* Lower-case digits and a NUL. The digest can then only be destroyed. */
berth_status berthi_sha256_finish(berthi_sha256_digest *digest,
                                  char hex[BERTHI_SHA256_DIGITS + 1], berth_error *error);
/* NULL is allowed. */
void berthi_sha256_destroy(berthi_sha256_digest *digest);

#endif
