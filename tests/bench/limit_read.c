/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit_read - how fast can files be read directly? The limit that readers are
 * compared with: it links nothing of the library.
 *
 *   limit_read [-r ROUNDS] FILE...
 *
 * Reads all files one after the other, O_DIRECT, requests of 4 MiB, by 2, 4, 8
 * and 16 threads with one request each, ROUNDS times (default 1). Prints one
 * line of JSON: the best depth's median rate and every sample.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
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

#define REQUEST_BYTES (4u << 20)
#define DEPTH_COUNT 4
#define DEPTH_MAX 16
#define ROUNDS_MAX 64

static const int depths[DEPTH_COUNT] = { 2, 4, 8, 16 };

typedef struct source {
    int fd;
    uint64_t bytes;
} source;

typedef struct work {
    const source *sources;
    int source_count;
    uint64_t request_count;
    _Atomic uint64_t next;
    _Atomic uint64_t done;
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

/* Finds the file and the place of the n-th request. */
static const source *
find(const work *w, uint64_t *n)
{
    int i = 0;

    while (*n >= requests_of(&w->sources[i])) {
        *n -= requests_of(&w->sources[i]);
        i++;
    }
    return &w->sources[i];
}

static void *
read_some(void *argument)
{
    work *const w = argument;
    void *buffer;
    uint64_t n;

    if (posix_memalign(&buffer, 4096, REQUEST_BYTES) != 0) {
        atomic_store(&w->failure, ENOMEM);
        return NULL;
    }
    while ((n = atomic_fetch_add(&w->next, 1)) < w->request_count) {
        const source *const s = find(w, &n);
        const ssize_t got = pread(s->fd, buffer, REQUEST_BYTES, (off_t)(n * REQUEST_BYTES));

        if (got < 0) {
            atomic_store(&w->failure, errno);
            break;
        }
        atomic_fetch_add(&w->done, (uint64_t)got);
    }
    free(buffer);
    return NULL;
}

/* Bytes a second with `depth` threads; negative: a negated errno. */
static double
measure(const source *sources, int source_count, int depth)
{
    pthread_t threads[DEPTH_MAX];
    work w = { .sources = sources, .source_count = source_count };
    uint64_t bytes = 0;
    double begin;
    int count = 0;

    for (int i = 0; i < source_count; i++) {
        w.request_count += requests_of(&sources[i]);
        bytes += sources[i].bytes;
        posix_fadvise(sources[i].fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    begin = now();
    while (count < depth && pthread_create(&threads[count], NULL, read_some, &w) == 0)
        count++;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    if (atomic_load(&w.failure) != 0)
        return -atomic_load(&w.failure);
    if (count < depth || atomic_load(&w.done) != bytes)
        return -EIO;
    return (double)bytes / (now() - begin);
}

static int
compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double
median(const double *samples, int count)
{
    double sorted[ROUNDS_MAX];

    memcpy(sorted, samples, (size_t)count * sizeof *samples);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static bool
can_open(source *s, const char *path)
{
    struct stat state;

    s->fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (s->fd < 0 || fstat(s->fd, &state) != 0) {
        fprintf(stderr, "limit_read: %s: %s\n", path, strerror(errno));
        return false;
    }
    s->bytes = (uint64_t)state.st_size;
    return true;
}

static void
print(double samples[DEPTH_COUNT][ROUNDS_MAX], int rounds)
{
    int best = 0;

    for (int d = 1; d < DEPTH_COUNT; d++)
        if (median(samples[d], rounds) > median(samples[best], rounds))
            best = d;
    printf("{\"limit\":\"read\",\"request\":%u,\"depth\":%d,\"bytes_per_second\":%.0f,"
           "\"samples\":{",
           REQUEST_BYTES, depths[best], median(samples[best], rounds));
    for (int d = 0; d < DEPTH_COUNT; d++) {
        printf("%s\"%d\":[", d ? "," : "", depths[d]);
        for (int r = 0; r < rounds; r++)
            printf("%s%.0f", r ? "," : "", samples[d][r]);
        printf("]");
    }
    printf("}}\n");
}

int
main(int argc, char **argv)
{
    double samples[DEPTH_COUNT][ROUNDS_MAX];
    source *sources;
    int rounds = 1;
    int first = 1;

    if (argc > 2 && strcmp(argv[1], "-r") == 0) {
        rounds = atoi(argv[2]);
        first = 3;
    }
    if (first >= argc || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: limit_read [-r ROUNDS] FILE...\n");
        return 2;
    }
    sources = calloc((size_t)argc, sizeof *sources);
    if (sources == NULL)
        return 7;
    for (int i = first; i < argc; i++)
        if (!can_open(&sources[i - first], argv[i]))
            return 3;
    /* Depths take turns: what the machine does meanwhile hits them alike. */
    for (int r = 0; r < rounds; r++)
        for (int d = 0; d < DEPTH_COUNT; d++) {
            samples[d][r] = measure(sources, argc - first, depths[d]);
            if (samples[d][r] < 0) {
                fprintf(stderr, "limit_read: %s\n", strerror((int)-samples[d][r]));
                return 9;
            }
        }
    print(samples, rounds);
    for (int i = 0; i < argc - first; i++)
        close(sources[i].fd);
    free(sources);
    return 0;
}
