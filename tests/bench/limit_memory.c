/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit_memory - what this processor can do at best: its clock, copying, reading
 * and multiply-adds. The limits that kernels are compared with: it links nothing
 * of the library.
 *
 *   limit_memory [-r ROUNDS] [-m MIB]
 *
 * Copies and reads arrays of MIB MiB (default 256) with 1 to all usable threads
 * and multiplies with all of them, ROUNDS times (default 3). Prints one line of
 * JSON: the best of the grid, and every sample of it. Copied bytes are counted
 * twice, as read and as written.
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
#define CLOCK_STEPS 200000000u

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

/* One cycle a step: each needs the one before. */
static double
clock_ghz(void)
{
    uint64_t value = 1;
    const double begin = now();

    for (unsigned i = 0; i < CLOCK_STEPS; i++) {
        value += i | 1;
        __asm__ volatile("" : "+r"(value));
    }
    return value == 0 ? 0 : CLOCK_STEPS / (now() - begin) / 1e9;
}

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
} member;

static void *
run_member(void *argument)
{
    const member *const m = argument;

    pthread_barrier_wait(&m->all->barrier);
    m->all->work(&m->all->shares[m->number]);
    pthread_barrier_wait(&m->all->barrier);
    return NULL;
}

/* Seconds that `count` threads need for their shares. */
static double
run_team(team *t, int count, void (*work)(share *s))
{
    pthread_t threads[THREADS_MAX];
    member members[THREADS_MAX];
    double begin;
    double seconds;

    t->count = count;
    t->work = work;
    pthread_barrier_init(&t->barrier, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++) {
        members[i] = (member){ t, i };
        if (pthread_create(&threads[i], NULL, run_member, &members[i]) != 0)
            exit(1);
    }
    pthread_barrier_wait(&t->barrier);
    begin = now();
    pthread_barrier_wait(&t->barrier);
    seconds = now() - begin;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&t->barrier);
    return seconds;
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

/* ------------------------------------------------------------------- printing */

static int
compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double
print_samples(const char *name, const double *samples, int count)
{
    double sorted[ROUNDS_MAX];

    memcpy(sorted, samples, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    printf("\"%s\":%.4f,\"%s_samples\":[", name, sorted[count / 2], name);
    for (int i = 0; i < count; i++)
        printf("%s%.4f", i > 0 ? "," : "", samples[i]);
    printf("]");
    return sorted[count / 2];
}

int
main(int argc, char **argv)
{
    static team t;
    size_t bytes = (size_t)256 << 20;
    int rounds = 3;
    cpu_set_t usable;
    int threads = 1;
    uint8_t *from;
    uint8_t *to;
    double copies[ROUNDS_MAX] = { 0 };
    double reads[ROUNDS_MAX] = { 0 };
    double flops[ROUNDS_MAX] = { 0 };
    double clocks[ROUNDS_MAX] = { 0 };

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "-r") == 0)
            rounds = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "-m") == 0)
            bytes = (size_t)atoi(argv[i + 1]) << 20;
    }
    if (rounds < 1 || rounds > ROUNDS_MAX || bytes == 0)
        return 2;
    if (sched_getaffinity(0, sizeof usable, &usable) == 0)
        threads = CPU_COUNT(&usable) < THREADS_MAX ? CPU_COUNT(&usable) : THREADS_MAX;
    from = aligned_alloc(4096, bytes);
    to = aligned_alloc(4096, bytes);
    if (from == NULL || to == NULL)
        return 1;
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    for (int round = 0; round < rounds; round++) {
        double seconds;

        clocks[round] = clock_ghz();
        for (int count = 1; count <= threads; count++) {
            double rate;

            share_out(&t, count, from, to, bytes);
            seconds = run_team(&t, count, copy);
            rate = 2.0 * (double)t.shares[0].bytes * count / seconds / 1e9;
            copies[round] = rate > copies[round] ? rate : copies[round];
            seconds = run_team(&t, count, read_all);
            rate = (double)t.shares[0].bytes * count / seconds / 1e9;
            reads[round] = rate > reads[round] ? rate : reads[round];
        }
        share_out(&t, threads, from, to, bytes);
        seconds = run_team(&t, threads, multiply);
        flops[round] = t.shares[0].flops * threads / seconds / 1e9;
    }
    printf("{\"threads\":%d,", threads);
    print_samples("clock_ghz", clocks, rounds);
    printf(",");
    print_samples("copy_gbs", copies, rounds);
    printf(",");
    print_samples("read_gbs", reads, rounds);
    printf(",");
    print_samples("fma_gflops", flops, rounds);
    printf("}\n");
    free(from);
    free(to);
    return 0;
}
