/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit_read - how fast can files be read directly? The limit that readers are
 * compared with: it links nothing of the library.
 *
 *   limit_read [-r ROUNDS] [-o WAYS] FILE...
 *
 * Reads all files one after the other, O_DIRECT, requests of 4 MiB, 2, 4, 8 and
 * 16 at once: by so many threads with one request each, and by one thread
 * through io_uring where the kernel allows it; ROUNDS times (default 1). WAYS are
 * the only ones of these: "io_uring 4,threads 8". Prints one line of JSON: the
 * median rate of the best way and depth, and every sample.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_BYTES (4u << 20)
#define DEPTH_COUNT 4
#define DEPTH_MAX 16
#define ROUNDS_MAX 64
#define WAYS 2

static const int depths[DEPTH_COUNT] = { 2, 4, 8, 16 };
static const char *const ways[WAYS] = { "threads", "io_uring" };

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

static void
read_by_threads(work *w, int depth)
{
    pthread_t threads[DEPTH_MAX];
    int count = 0;

    while (count < depth && pthread_create(&threads[count], NULL, read_some, w) == 0)
        count++;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    if (count < depth)
        atomic_store(&w->failure, EAGAIN);
}

/* ------------------------------------------------------------------- io_uring */

/* The kernel's interface itself: liburing may not be there. */
typedef struct ring {
    int fd;
    uint8_t *memory; /* of both queues */
    size_t memory_bytes;
    struct io_uring_sqe *entries;
    size_t entries_bytes;
    _Atomic uint32_t *tail; /* of what is submitted */
    uint32_t *array;
    uint32_t mask;
    _Atomic uint32_t *event_head;
    _Atomic uint32_t *event_tail;
    struct io_uring_cqe *events;
    uint32_t event_mask;
    uint8_t *buffers; /* one request each, known to the kernel */
} ring;

static void
close_ring(ring *r)
{
    if (r->fd >= 0)
        close(r->fd);
    if (r->memory != NULL)
        munmap(r->memory, r->memory_bytes);
    if (r->entries != NULL)
        munmap(r->entries, r->entries_bytes);
    free(r->buffers);
}

static void *
map(const ring *r, size_t bytes, off_t what)
{
    void *const memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, what);

    return memory == MAP_FAILED ? NULL : memory;
}

static bool
can_register(ring *r, int depth)
{
    struct iovec parts[DEPTH_MAX];
    void *buffers;

    if (posix_memalign(&buffers, 4096, (size_t)depth * REQUEST_BYTES) != 0)
        return false;
    r->buffers = buffers;
    for (int i = 0; i < depth; i++)
        parts[i] = (struct iovec){ r->buffers + (size_t)i * REQUEST_BYTES, REQUEST_BYTES };
    return syscall(SYS_io_uring_register, r->fd, IORING_REGISTER_BUFFERS, parts, depth) == 0;
}

static bool
can_open_ring(ring *r, int depth)
{
    struct io_uring_params p = { 0 };

    *r = (ring){ .fd = (int)syscall(SYS_io_uring_setup, depth, &p) };
    if (r->fd < 0 || (p.features & IORING_FEAT_SINGLE_MMAP) == 0)
        return false;
    r->memory_bytes = p.sq_off.array + p.sq_entries * sizeof(uint32_t);
    if (r->memory_bytes < p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe))
        r->memory_bytes = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    r->entries_bytes = p.sq_entries * sizeof(struct io_uring_sqe);
    r->memory = map(r, r->memory_bytes, IORING_OFF_SQ_RING);
    r->entries = map(r, r->entries_bytes, IORING_OFF_SQES);
    if (r->memory == NULL || r->entries == NULL)
        return false;
    r->tail = (_Atomic uint32_t *)(void *)(r->memory + p.sq_off.tail);
    r->array = (uint32_t *)(void *)(r->memory + p.sq_off.array);
    r->mask = *(uint32_t *)(void *)(r->memory + p.sq_off.ring_mask);
    r->event_head = (_Atomic uint32_t *)(void *)(r->memory + p.cq_off.head);
    r->event_tail = (_Atomic uint32_t *)(void *)(r->memory + p.cq_off.tail);
    r->event_mask = *(uint32_t *)(void *)(r->memory + p.cq_off.ring_mask);
    r->events = (struct io_uring_cqe *)(void *)(r->memory + p.cq_off.cqes);
    return can_register(r, depth);
}

/* The next request, into this buffer; false when there is none. */
static bool
has_queued(ring *r, work *w, uint32_t buffer)
{
    uint64_t n = atomic_fetch_add(&w->next, 1);
    const uint32_t tail = atomic_load(r->tail);
    struct io_uring_sqe *const entry = &r->entries[tail & r->mask];
    const source *s;

    if (n >= w->request_count)
        return false;
    s = find(w, &n);
    *entry = (struct io_uring_sqe){ .opcode = IORING_OP_READ_FIXED,
                                    .fd = s->fd,
                                    .off = n * REQUEST_BYTES,
                                    .len = REQUEST_BYTES,
                                    .buf_index = (uint16_t)buffer,
                                    .user_data = buffer };
    entry->addr = (uint64_t)(uintptr_t)(r->buffers + (size_t)buffer * REQUEST_BYTES);
    r->array[tail & r->mask] = tail & r->mask;
    atomic_store(r->tail, tail + 1);
    return true;
}

static void
read_by_ring(work *w, int depth)
{
    uint32_t queued = 0;  /* not yet given to the kernel */
    uint32_t running = 0;
    ring r;

    if (!can_open_ring(&r, depth))
        atomic_store(&w->failure, ENOSYS);
    for (int i = 0; i < depth && atomic_load(&w->failure) == 0; i++)
        queued += has_queued(&r, w, (uint32_t)i);
    while (queued + running > 0 && atomic_load(&w->failure) == 0) {
        const uint32_t head = atomic_load(r.event_head);

        if (queued > 0 || head == atomic_load(r.event_tail)) {
            const long taken = syscall(SYS_io_uring_enter, r.fd, queued, 1,
                                       IORING_ENTER_GETEVENTS, NULL, 0);

            if (taken < 0 && errno != EINTR)
                atomic_store(&w->failure, errno);
            if (taken > 0) {
                queued -= (uint32_t)taken;
                running += (uint32_t)taken;
            }
        } else {
            const struct io_uring_cqe event = r.events[head & r.event_mask];

            atomic_store(r.event_head, head + 1);
            running--;
            if (event.res < 0)
                atomic_store(&w->failure, -event.res);
            else
                atomic_fetch_add(&w->done, (uint64_t)event.res);
            queued += has_queued(&r, w, (uint32_t)event.user_data);
        }
    }
    close_ring(&r);
}

/* ------------------------------------------------------------------ measuring */

/* Bytes a second; negative: a negated errno. */
static double
measure(const source *sources, int source_count, int depth, void (*read_all)(work *, int))
{
    work w = { .sources = sources, .source_count = source_count };
    uint64_t bytes = 0;
    double begin;

    for (int i = 0; i < source_count; i++) {
        w.request_count += requests_of(&sources[i]);
        bytes += sources[i].bytes;
        posix_fadvise(sources[i].fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    begin = now();
    read_all(&w, depth);
    if (atomic_load(&w.failure) != 0)
        return -atomic_load(&w.failure);
    if (atomic_load(&w.done) != bytes)
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

typedef struct grid {
    double samples[WAYS][DEPTH_COUNT][ROUNDS_MAX];
    bool is_left_out[WAYS][DEPTH_COUNT];
    int rounds;
    int ways; /* 1 where io_uring is not allowed */
} grid;

/* Leaves out what is not in the list. */
static void
choose(grid *g, const char *list)
{
    char name[32];

    for (int way = 0; way < WAYS; way++)
        for (int d = 0; d < DEPTH_COUNT; d++) {
            const char *at = list;
            size_t length;

            snprintf(name, sizeof name, "%s %d", ways[way], depths[d]);
            length = strlen(name);
            while ((at = strstr(at, name)) != NULL && at[length] != ',' && at[length] != 0)
                at += length;
            g->is_left_out[way][d] = at == NULL;
        }
}

static void
print_way(const grid *g, int way, const char **comma)
{
    for (int d = 0; d < DEPTH_COUNT; d++) {
        if (g->is_left_out[way][d])
            continue;
        printf("%s\"%s %d\":[", *comma, ways[way], depths[d]);
        *comma = ",";
        for (int r = 0; r < g->rounds; r++)
            printf("%s%.0f", r ? "," : "", g->samples[way][d][r]);
        printf("]");
    }
}

static void
print(const grid *g)
{
    const char *comma = "";
    int best_way = 0;
    int best = 0;

    for (int way = 0; way < g->ways; way++)
        for (int d = 0; d < DEPTH_COUNT; d++)
            if (median(g->samples[way][d], g->rounds)
                > median(g->samples[best_way][best], g->rounds)) {
                best_way = way;
                best = d;
            }
    printf("{\"limit\":\"read\",\"request\":%u,\"by\":\"%s\",\"depth\":%d,"
           "\"bytes_per_second\":%.0f,\"samples\":{",
           REQUEST_BYTES, ways[best_way], depths[best],
           median(g->samples[best_way][best], g->rounds));
    for (int way = 0; way < g->ways; way++)
        print_way(g, way, &comma);
    printf("}}\n");
}

/* One round; ways and depths take turns: what the machine does meanwhile hits them alike. */
static bool
can_measure(grid *g, int round, const source *sources, int source_count)
{
    static void (*const read_all[WAYS])(work *, int) = { read_by_threads, read_by_ring };

    for (int d = 0; d < DEPTH_COUNT; d++)
        for (int way = 0; way < g->ways; way++) {
            double rate;

            if (g->is_left_out[way][d])
                continue;
            rate = measure(sources, source_count, depths[d], read_all[way]);
            if (rate < 0 && way > 0 && round == 0 && d == 0) {
                g->ways = 1;
            } else if (rate < 0) {
                fprintf(stderr, "limit_read: %s\n", strerror((int)-rate));
                return false;
            }
            g->samples[way][d][round] = rate;
        }
    return true;
}

int
main(int argc, char **argv)
{
    static grid g;
    source *sources;
    int first = 1;

    g.rounds = 1;
    g.ways = WAYS;
    if (argc > first + 1 && strcmp(argv[first], "-r") == 0) {
        g.rounds = atoi(argv[first + 1]);
        first += 2;
    }
    if (argc > first + 1 && strcmp(argv[first], "-o") == 0) {
        choose(&g, argv[first + 1]);
        first += 2;
    }
    if (first >= argc || g.rounds < 1 || g.rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: limit_read [-r ROUNDS] [-o WAYS] FILE...\n");
        return 2;
    }
    sources = calloc((size_t)argc, sizeof *sources);
    if (sources == NULL)
        return 7;
    for (int i = first; i < argc; i++)
        if (!can_open(&sources[i - first], argv[i]))
            return 3;
    for (int r = 0; r < g.rounds; r++)
        if (!can_measure(&g, r, sources, argc - first))
            return 9;
    print(&g);
    for (int i = 0; i < argc - first; i++)
        close(sources[i].fd);
    free(sources);
    return 0;
}
