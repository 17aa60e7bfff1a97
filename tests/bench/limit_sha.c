/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit_sha - how fast is SHA-256 on one thread? The limit that checking a hub
 * blob is compared with: it links nothing of the library, and opens libcrypto
 * at run time as the library does.
 *
 *   limit_sha [-r ROUNDS]
 *
 * Digests 1 GiB in pieces of 4 MiB out of a buffer of 32 MiB, ROUNDS times
 * (default 1). Prints one line of JSON. Ends with 77 where there is no libcrypto.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUFFER_BYTES (32u << 20)
#define PIECE_BYTES (4u << 20)
#define TOTAL_BYTES (1u << 30)
#define ROUNDS_MAX 64

static double
now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int
compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The calls of libcrypto, as its headers declare them. */
static struct {
    void *(*create)(void);
    void (*destroy)(void *);
    const void *(*sha256)(void);
    int (*begin)(void *, const void *, void *);
    int (*update)(void *, const void *, size_t);
    int (*finish)(void *, unsigned char *, unsigned *);
} crypto;

/* dlsym() gives an object pointer where POSIX says a function's is meant. */
static int
is_found(void *library, const char *name, void *function)
{
    void *const symbol = dlsym(library, name);

    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static int
is_opened(void)
{
    void *library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        library = dlopen("libcrypto.so.1.1", RTLD_NOW | RTLD_LOCAL);
    return library != NULL && is_found(library, "EVP_MD_CTX_new", &crypto.create)
           && is_found(library, "EVP_MD_CTX_free", &crypto.destroy)
           && is_found(library, "EVP_sha256", &crypto.sha256)
           && is_found(library, "EVP_DigestInit_ex", &crypto.begin)
           && is_found(library, "EVP_DigestUpdate", &crypto.update)
           && is_found(library, "EVP_DigestFinal_ex", &crypto.finish);
}

/* Seconds for TOTAL_BYTES; negative: a call failed. */
static double
measure(const unsigned char *buffer)
{
    unsigned char digest[64];
    void *const context = crypto.create();
    const double begin = now();
    int is_good = context != NULL && crypto.begin(context, crypto.sha256(), NULL);

    for (uint32_t at = 0; is_good && at < TOTAL_BYTES; at += PIECE_BYTES)
        is_good = crypto.update(context, buffer + at % BUFFER_BYTES, PIECE_BYTES);
    is_good = is_good && crypto.finish(context, digest, NULL);
    crypto.destroy(context);
    return is_good ? now() - begin : -1;
}

int
main(int argc, char **argv)
{
    const int rounds = argc == 3 && strcmp(argv[1], "-r") == 0 ? atoi(argv[2]) : 1;
    unsigned char *const buffer = malloc(BUFFER_BYTES);
    double samples[ROUNDS_MAX];
    double sorted[ROUNDS_MAX];
    uint64_t state = 88172645463325252u;

    if (rounds < 1 || rounds > ROUNDS_MAX || (argc != 1 && argc != 3)) {
        fprintf(stderr, "usage: limit_sha [-r ROUNDS]\n");
        return 2;
    }
    if (buffer == NULL)
        return 7;
    if (!is_opened()) {
        fprintf(stderr, "limit_sha: there is no libcrypto\n");
        return 77;
    }
    for (size_t i = 0; i < BUFFER_BYTES; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        buffer[i] = (unsigned char)state;
    }
    for (int r = 0; r < rounds; r++) {
        const double seconds = measure(buffer);

        if (seconds < 0) {
            fprintf(stderr, "limit_sha: libcrypto refused\n");
            return 1;
        }
        samples[r] = TOTAL_BYTES / seconds;
    }
    memcpy(sorted, samples, sizeof sorted);
    qsort(sorted, (size_t)rounds, sizeof *sorted, compare);
    printf("{\"limit\":\"sha256\",\"bytes_per_second\":%.0f,\"samples\":[",
           sorted[rounds / 2]);
    for (int r = 0; r < rounds; r++)
        printf("%s%.0f", r ? "," : "", samples[r]);
    printf("]}\n");
    free(buffer);
    return 0;
}
