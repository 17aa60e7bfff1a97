/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit_rewrite - how fast can so many bytes be read and so many others written
 * at the same time, with the flushes that a safe writer needs? The limit of
 * conversions: it links nothing of the library.
 *
 *   limit_rewrite [-b] [-w BYTES] OUT FILE...
 *
 * Reads all files (O_DIRECT; -b: through the page cache), requests of 4 MiB, by
 * 2, 4, 8 and 16 threads, which together write BYTES to OUT, each its share
 * after each read; then fsync of OUT, rename, fsync of its folder. What is read
 * is dropped from the cache before each round unless -b. Prints one line of
 * JSON: seconds of the fastest depth and of each.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_BYTES (UINT64_C(4) << 20)
#define DEPTH_COUNT 4
#define DEPTH_MAX 16
#define FILES_MAX 256
#define WINDOW_BYTES (UINT64_C(8) << 20) /* written back early in such pieces */

static const int depths[DEPTH_COUNT] = { 2, 4, 8, 16 };

typedef struct source {
    int fd;
    uint64_t bytes;
} source;

typedef struct work {
    source sources[FILES_MAX];
    int source_count;
    uint64_t requests;
    uint64_t bytes;   /* to read */
    uint64_t written; /* to write */
    int out;
    _Atomic uint64_t next;
    _Atomic int failure;
} work;

static double
now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t
requests_of(const source *s)
{
    return (s->bytes + REQUEST_BYTES - 1) / REQUEST_BYTES;
}

/* The share of the output that belongs to request `number`. */
static bool
has_written(const work *w, uint64_t number, const uint8_t *bytes)
{
    const uint64_t each = w->written / w->requests;
    const uint64_t begin = each * number;
    const uint64_t end = number + 1 == w->requests ? w->written : begin + each;
    uint64_t at = begin;

    while (at < end) {
        const uint64_t part = end - at < REQUEST_BYTES ? end - at : REQUEST_BYTES;
        const ssize_t put = pwrite(w->out, bytes, part, (off_t)at);

        if (put <= 0)
            return false;
        at += (uint64_t)put;
    }
    if (begin / WINDOW_BYTES != end / WINDOW_BYTES)
        (void)sync_file_range(w->out, (off_t)(begin / WINDOW_BYTES * WINDOW_BYTES),
                              (off_t)WINDOW_BYTES, SYNC_FILE_RANGE_WRITE);
    return true;
}

static void *
run(void *argument)
{
    work *const w = argument;
    uint8_t *const buffer = aligned_alloc(4096, REQUEST_BYTES);
    uint64_t number;

    if (buffer == NULL)
        atomic_store(&w->failure, ENOMEM);
    while (atomic_load(&w->failure) == 0
           && (number = atomic_fetch_add(&w->next, 1)) < w->requests) {
        uint64_t in_file = number;
        int i = 0;

        while (in_file >= requests_of(&w->sources[i]))
            in_file -= requests_of(&w->sources[i++]);
        if (pread(w->sources[i].fd, buffer, REQUEST_BYTES, (off_t)(in_file * REQUEST_BYTES))
                < 0
            || !has_written(w, number, buffer))
            atomic_store(&w->failure, errno != 0 ? errno : EIO);
    }
    free(buffer);
    return NULL;
}

static double
round_of(work *w, int depth, const char *out, bool is_buffered)
{
    char temporary[4096];
    char folder[4096];
    pthread_t threads[DEPTH_MAX];
    double seconds;
    int fd;

    snprintf(temporary, sizeof temporary, "%s.tmp", out);
    snprintf(folder, sizeof folder, "%s", out);
    for (int i = 0; i < w->source_count && !is_buffered; i++)
        (void)posix_fadvise(w->sources[i].fd, 0, 0, POSIX_FADV_DONTNEED);
    seconds = now();
    w->out = open(temporary, O_CREAT | O_TRUNC | O_RDWR, 0666);
    if (w->out < 0 || posix_fallocate(w->out, 0, (off_t)w->written) != 0)
        return -1;
    atomic_store(&w->next, 0);
    for (int i = 0; i < depth; i++)
        if (pthread_create(&threads[i], NULL, run, w) != 0)
            return -1;
    for (int i = 0; i < depth; i++)
        pthread_join(threads[i], NULL);
    fd = open(dirname(folder), O_RDONLY | O_DIRECTORY);
    if (atomic_load(&w->failure) != 0 || fsync(w->out) != 0 || rename(temporary, out) != 0
        || fd < 0 || fsync(fd) != 0)
        return -1;
    seconds = now() - seconds;
    close(fd);
    close(w->out);
    unlink(out);
    return seconds;
}

int
main(int argc, char **argv)
{
    static work w;
    bool is_buffered = false;
    double seconds[DEPTH_COUNT];
    double best = 0;
    int option;

    while ((option = getopt(argc, argv, "bw:")) != -1) {
        if (option == 'b')
            is_buffered = true;
        else if (option == 'w')
            w.written = strtoull(optarg, NULL, 10);
        else
            return 2;
    }
    if (argc - optind < 2 || argc - optind - 1 > FILES_MAX)
        return 2;
    for (int i = optind + 1; i < argc; i++) {
        source *const s = &w.sources[w.source_count++];
        struct stat state;

        s->fd = open(argv[i], O_RDONLY | (is_buffered ? 0 : O_DIRECT));
        if (s->fd < 0 || fstat(s->fd, &state) != 0) {
            fprintf(stderr, "limit_rewrite: %s: %s\n", argv[i], strerror(errno));
            return 1;
        }
        s->bytes = (uint64_t)state.st_size;
        w.bytes += s->bytes;
        w.requests += requests_of(s);
    }
    for (int i = 0; i < DEPTH_COUNT; i++) {
        seconds[i] = round_of(&w, depths[i], argv[optind], is_buffered);
        if (seconds[i] < 0) {
            fprintf(stderr, "limit_rewrite: %s\n", strerror(errno));
            return 1;
        }
        if (best == 0 || seconds[i] < best)
            best = seconds[i];
    }
    printf("{\"seconds\":%.4f,\"bytes\":%llu,\"samples\":[%.4f,%.4f,%.4f,%.4f]}\n", best,
           (unsigned long long)w.bytes, seconds[0], seconds[1], seconds[2], seconds[3]);
    return 0;
}
