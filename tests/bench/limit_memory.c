/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit_memory - what this processor can do at best: its clock, copying, reading
 * and multiply-adds. The limits that kernels are compared with: it links nothing
 * of the library.
 *
 *   limit_memory [-r ROUNDS] [-m MIB] [-w WHAT]
 *
 * Copies and reads arrays of MIB MiB (default 256) with 1 to all usable threads
 * and multiplies with all of them, ROUNDS times (default 3). WHAT says which of
 * it: clock,copy,read,fma (default: all). Prints one line of JSON: the best of
 * the grid, and every sample of it. Copied bytes are counted twice, as read and
 * as written.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define THREADS_MAX 64
#define ROUNDS_MAX 64
#define FMA_STEPS 4000000u
#define CLOCK_STEPS 4000000u
#define CLOCK_TURNS 25 /* the fastest counts: what interrupts makes others slower */

static double
now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ------------------------------------------------------------------- kernels */

typedef struct share {
    const uint8_t *from;
    uint8_t *to;
    size_t bytes;
    uint64_t result;
    double flops;
} share;

static void
copy(share *s)
{
    memcpy(s->to, s->from, s->bytes);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void
read_all(share *s)
{
    __m256i sum[8];

    for (int i = 0; i < 8; i++)
        sum[i] = _mm256_setzero_si256();
    for (size_t at = 0; at + 256 <= s->bytes; at += 256)
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            sum[i] = _mm256_xor_si256(
                sum[i], _mm256_loadu_si256((const void *)(s->from + at + 32 * (size_t)i)));
    for (int i = 1; i < 8; i++)
        sum[0] = _mm256_xor_si256(sum[0], sum[i]);
    s->result = (uint64_t)_mm256_extract_epi64(sum[0], 0);
}

__attribute__((target("avx512f"))) static void
multiply_512(share *s)
{
    __m512 sum[16];
    const __m512 factor = _mm512_set1_ps(0.999f);

    for (int i = 0; i < 16; i++)
        sum[i] = _mm512_set1_ps((float)i);
    for (unsigned step = 0; step < FMA_STEPS; step++)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            sum[i] = _mm512_fmadd_ps(sum[i], factor, factor);
    for (int i = 1; i < 16; i++)
        sum[0] = _mm512_add_ps(sum[0], sum[i]);
    s->result = (uint64_t)_mm512_reduce_add_ps(sum[0]);
    s->flops = 2.0 * 16 * 16 * FMA_STEPS;
}

__attribute__((target("avx2,fma"))) static void
multiply_256(share *s)
{
    __m256 sum[12];
    const __m256 factor = _mm256_set1_ps(0.999f);

    for (int i = 0; i < 12; i++)
        sum[i] = _mm256_set1_ps((float)i);
    for (unsigned step = 0; step < FMA_STEPS; step++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            sum[i] = _mm256_fmadd_ps(sum[i], factor, factor);
    for (int i = 1; i < 12; i++)
        sum[0] = _mm256_add_ps(sum[0], sum[i]);
    s->result = (uint64_t)_mm256_cvtss_f32(sum[0]);
    s->flops = 2.0 * 8 * 12 * FMA_STEPS;
}

static void
multiply(share *s)
{
    if (__builtin_cpu_supports("avx512f"))
        multiply_512(s);
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        multiply_256(s);
}
#else
static void
read_all(share *s)
{
    uint64_t sum[8] = { 0 };

    for (size_t at = 0; at + 64 <= s->bytes; at += 64)
        for (int i = 0; i < 8; i++) {
            uint64_t word;

            memcpy(&word, s->from + at + 8 * (size_t)i, 8);
            sum[i] ^= word;
        }
    for (int i = 0; i < 8; i++)
        s->result ^= sum[i];
}

static void
multiply(share *s)
{
    float sum[64];

    for (int i = 0; i < 64; i++)
        sum[i] = (float)i;
    for (unsigned step = 0; step < FMA_STEPS; step++)
        for (int i = 0; i < 64; i++)
            sum[i] = __builtin_fmaf(sum[i], 0.999f, 0.999f);
    for (int i = 0; i < 64; i++)
        s->result += (uint64_t)sum[i];
    s->flops = 2.0 * 64 * FMA_STEPS;
}
#endif

/* -------------------------------------------------------------------- threads */

typedef struct team {
    pthread_barrier_t barrier;
    void (*work)(share *s);
    share shares[THREADS_MAX];
    int count;
} team;

typedef struct member {
    team *all;
    int number;
    double begin; /* of its own work: whoever waits for it may be late */
    double end;
} member;

static void *
run_member(void *argument)
{
    member *const m = argument;

    pthread_barrier_wait(&m->all->barrier);
    m->begin = now();
    m->all->work(&m->all->shares[m->number]);
    m->end = now();
    return NULL;
}

/* Seconds from the first beginning to the last end of `count` threads. */
static double
run_team(team *t, int count, void (*work)(share *s))
{
    pthread_t threads[THREADS_MAX];
    member members[THREADS_MAX];
    double begin = 0;
    double end = 0;

    t->count = count;
    t->work = work;
    pthread_barrier_init(&t->barrier, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        members[i] = (member){ .all = t, .number = i };
        if (pthread_create(&threads[i], NULL, run_member, &members[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        begin = i == 0 || members[i].begin < begin ? members[i].begin : begin;
        end = members[i].end > end ? members[i].end : end;
    }
    pthread_barrier_destroy(&t->barrier);
    return end - begin;
}

static void
share_out(team *t, int count, uint8_t *from, uint8_t *to, size_t bytes)
{
    const size_t each = bytes / (size_t)count / 4096 * 4096;

    for (int i = 0; i < count; i++)
        t->shares[i] = (share){ .from = from + each * (size_t)i,
                                .to = to + each * (size_t)i,
                                .bytes = each };
}

/* ------------------------------------------------------------------- measuring */

typedef struct machine {
    team all;
    int threads;
    uint8_t *from;
    uint8_t *to;
    size_t bytes;
} machine;

/* A cycle each: every addition needs the one before, and a loop has many of them. */
static double
clock_ghz(machine *m)
{
    uint64_t value = 1;
    double most = 0;

    (void)m;
    for (int turn = 0; turn < CLOCK_TURNS; turn++) {
        const double begin = now();
        double rate;

        for (uint64_t i = 0; i < CLOCK_STEPS; i += 16)
#pragma GCC unroll 16
            for (int k = 0; k < 16; k++) {
                value += i;
                __asm__ volatile("" : "+r"(value));
            }
        rate = CLOCK_STEPS / (now() - begin) / 1e9;
        most = rate > most ? rate : most;
    }
    return most;
}

/* Moving memory: the best of 1 to all threads, bytes counted so many times. */
static double
best_of_threads(machine *m, double times, void (*work)(share *s))
{
    double best = 0;

    for (int count = 1; count <= m->threads; count++) {
        double rate;

        share_out(&m->all, count, m->from, m->to, m->bytes);
        rate = times * (double)m->all.shares[0].bytes * count
               / run_team(&m->all, count, work) / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

static double
copy_gbs(machine *m)
{
    return best_of_threads(m, 2, copy);
}

static double
read_gbs(machine *m)
{
    return best_of_threads(m, 1, read_all);
}

static double
fma_gflops(machine *m)
{
    const double seconds = run_team(&m->all, m->threads, multiply);

    return m->all.shares[0].flops * m->threads / seconds / 1e9;
}

static const struct {
    const char *what; /* to ask for it */
    const char *name;
    double (*measure)(machine *m);
} measures[] = {
    { "clock", "clock_ghz", clock_ghz },
    { "copy", "copy_gbs", copy_gbs },
    { "read", "read_gbs", read_gbs },
    { "fma", "fma_gflops", fma_gflops },
};

#define MEASURES (sizeof measures / sizeof measures[0])

/* ------------------------------------------------------------------- printing */

static int
compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void
print_samples(const char *name, const double *samples, int count)
{
    double sorted[ROUNDS_MAX];

    memcpy(sorted, samples, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    printf(",\"%s\":%.4f,\"%s_samples\":[", name, sorted[count / 2], name);
    for (int i = 0; i < count; i++)
        printf("%s%.4f", i > 0 ? "," : "", samples[i]);
    printf("]");
}

static uint8_t *
make_array(size_t bytes)
{
    uint8_t *const array = aligned_alloc(4096, bytes);

    if (array == NULL)
        exit(1);
    memset(array, 1, bytes);
    return array;
}

int
main(int argc, char **argv)
{
    static machine m = { .threads = 1, .bytes = (size_t)256 << 20 };
    static double samples[MEASURES][ROUNDS_MAX];
    const char *what = "clock,copy,read,fma";
    int rounds = 3;
    cpu_set_t usable;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "-r") == 0)
            rounds = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "-m") == 0)
            m.bytes = (size_t)atoi(argv[i + 1]) << 20;
        else if (strcmp(argv[i], "-w") == 0)
            what = argv[i + 1];
    }
    if (rounds < 1 || rounds > ROUNDS_MAX || m.bytes == 0)
        return 2;
    if (sched_getaffinity(0, sizeof usable, &usable) == 0)
        m.threads = CPU_COUNT(&usable) < THREADS_MAX ? CPU_COUNT(&usable) : THREADS_MAX;
    m.from = make_array(m.bytes);
    m.to = make_array(m.bytes);
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < MEASURES; i++)
            if (strstr(what, measures[i].what) != NULL)
                samples[i][round] = measures[i].measure(&m);
    printf("{\"threads\":%d", m.threads);
    for (size_t i = 0; i < MEASURES; i++)
        if (strstr(what, measures[i].what) != NULL)
            print_samples(measures[i].name, samples[i], rounds);
    printf("}\n");
    free(m.from);
    free(m.to);
    return 0;
}
