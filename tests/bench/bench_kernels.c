/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_kernels - how near are the kernels to what the processor can do?
 *
 *   bench_kernels [-o ROWS] [-p PEER] LIMITS
 *
 * LIMITS is the folder of limit_memory; PEER a file of what bitsandbytes needs
 * for the same on this machine: "nf4 G fp4 G int8 G decode G" in elements a
 * nanosecond. A row's limit is measured before and after each of its samples, so
 * that whatever else the machine does meets both.
 * What comes out of a level is compared with the reference before it is timed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "kernels/sys.h"
#include "quant/quantize.h"
#include "tests/bench/bench.h"

#define ROUNDS 9
#define SLICES 40 /* of a sample in cache: what interrupts it makes the others slower */
#define BLOCK 64u
#define RESIDENT (UINT64_C(96) << 10) /* values: half a MiB is left of any L2 */
#define LARGE (UINT64_C(128) << 20)   /* values: 256 MiB of bf16 */
#define THREADS_MAX 64
#define ROWS 131072u /* of a product: 512 MiB of codes */
#define COLUMNS 8192u

typedef struct peer {
    double nf4;
    double fp4;
    double int8;
    double decode;
} peer;

static void *
memory(uint64_t bytes)
{
    void *const m = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

    if (m == NULL)
        bench_die("out of memory");
    return m;
}

/* Like weights: bell-shaped enough, no two blocks alike. */
static uint16_t *
make_values(uint64_t count)
{
    uint16_t *const values = memory(count * 2);
    uint64_t state = 88172645463325252u;

    for (uint64_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        values[i] = (uint16_t)((state & 0x807f) | (0x3c80 - ((state >> 20 & 7) << 7)));
    }
    return values;
}

/* -------------------------------------------------------------------- threads */

static uint32_t
usable_cores(void)
{
    cpu_set_t set;
    const int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;

    return (uint32_t)(count < THREADS_MAX ? count : THREADS_MAX);
}

typedef struct team {
    pthread_barrier_t barrier;
    void (*work)(void *user, uint32_t number, uint32_t count);
    void *user;
    uint32_t count;
} team;

typedef struct member {
    team *all;
    uint32_t number;
    double begin; /* of its own work: whoever waits for it may be late */
    double end;
} member;

static void *
run_member(void *argument)
{
    member *const m = argument;

    pthread_barrier_wait(&m->all->barrier);
    m->begin = bench_now();
    m->all->work(m->all->user, m->number, m->all->count);
    m->end = bench_now();
    return NULL;
}

/* Seconds from the first beginning to the last end. */
static double
time_team(uint32_t count, void (*work)(void *user, uint32_t number, uint32_t count),
          void *user)
{
    team t = { .work = work, .user = user, .count = count };
    pthread_t threads[THREADS_MAX];
    member members[THREADS_MAX];
    double begin = 0;
    double end = 0;

    pthread_barrier_init(&t.barrier, NULL, count);
    for (uint32_t i = 0; i < count; i++) {
        members[i] = (member){ .all = &t, .number = i };
        if (pthread_create(&threads[i], NULL, run_member, &members[i]) != 0)
            bench_die("no thread");
    }
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        begin = i == 0 || members[i].begin < begin ? members[i].begin : begin;
        end = members[i].end > end ? members[i].end : end;
    }
    pthread_barrier_destroy(&t.barrier);
    return end - begin;
}

/* ------------------------------------------------------------------- encoding */

typedef struct job {
    berthi_operations operations;
    const uint16_t *values;
    uint64_t count;
    uint64_t repeat;
    uint8_t *codes;
    float *absmax;
    uint16_t *decoded;
    int8_t *row_codes;
    float *row_maximum;
} job;

/* A thread's stretch of whole blocks. */
static void
stretch(uint64_t count, uint32_t number, uint32_t threads, uint64_t *first, uint64_t *part)
{
    const uint64_t each = count / threads / 4096 * 4096;

    *first = each * number;
    *part = number + 1 == threads ? count - *first : each;
}

static void
encode(void *user, uint32_t number, uint32_t threads)
{
    const job *const j = user;
    uint64_t first;
    uint64_t part;

    stretch(j->count, number, threads, &first, &part);
    for (uint64_t i = 0; i < j->repeat; i++)
        j->operations.encode_nf4(&(berthi_encode_arguments){
            .values = j->values + first, .dtype = BERTH_BF16, .block_size = BLOCK,
            .count = part, .codes = j->codes + first / 2,
            .absmax = j->absmax + first / BLOCK });
}

static void
decode(void *user, uint32_t number, uint32_t threads)
{
    const job *const j = user;
    uint64_t first;
    uint64_t part;

    stretch(j->count, number, threads, &first, &part);
    j->operations.decode_nf4(&(berthi_decode_arguments){
        .codes = j->codes + first / 2, .absmax = j->absmax + first / BLOCK, .count = part,
        .block_size = BLOCK, .dtype = BERTH_BF16, .values = j->decoded + first });
}

static void
encode_rows(void *user, uint32_t number, uint32_t threads)
{
    const job *const j = user;
    const uint64_t rows = j->count / COLUMNS;
    const uint64_t first = rows * number / threads;
    const uint64_t end = rows * (number + 1) / threads;

    j->operations.encode_rows(&(berthi_rows_arguments){
        .values = j->values + first * COLUMNS, .dtype = BERTH_BF16, .rows = end - first,
        .columns = COLUMNS, .codes = j->row_codes + first * COLUMNS,
        .row_maximum = j->row_maximum + first });
}

/* The same bytes as the reference makes. */
static void
check_level(const job *j, const char *name)
{
    const uint64_t count = 65536 + 37;
    uint8_t *const codes = memory(count);
    float *const absmax = memory(count);

    berthi_scalar_operations.encode_nf4(&(berthi_encode_arguments){
        .values = j->values, .dtype = BERTH_BF16, .block_size = BLOCK, .count = count,
        .codes = codes, .absmax = absmax });
    j->operations.encode_nf4(&(berthi_encode_arguments){
        .values = j->values, .dtype = BERTH_BF16, .block_size = BLOCK, .count = count,
        .codes = j->codes, .absmax = j->absmax });
    if (memcmp(codes, j->codes, (count + 1) / 2) != 0
        || memcmp(absmax, j->absmax, (count + BLOCK - 1) / BLOCK * sizeof *absmax) != 0)
        bench_die("%s makes other codes than the reference", name);
    free(codes);
    free(absmax);
}

/* Elements a nanosecond out of the cache, in the fastest of some slices. */
static double
resident_rate(job *j, uint32_t cores)
{
    double fastest = 0;

    j->count = RESIDENT * cores;
    j->repeat = 50;
    for (int i = 0; i < SLICES; i++) {
        const double rate = (double)(j->count * j->repeat)
                            / time_team(cores, encode, j) / 1e9;

        fastest = rate > fastest ? rate : fastest;
    }
    return fastest;
}

static void
bench_resident(job *j, berthi_cpu_level level, double target, const char *folder)
{
    bench_limit clock = bench_limit_begin(folder, "clock", "clock_ghz");
    double samples[ROUNDS];
    char name[96];

    snprintf(name, sizeof name, "NF4 from bf16, in cache, one core, %s",
             level == BERTHI_CPU_AVX512 ? "avx512" : "avx2");
    if (!berthi_cpu_has_level(level)) {
        bench_skip(name, "this processor has no such instructions");
        return;
    }
    j->operations = berthi_level_operations(level);
    check_level(j, name);
    for (int i = 0; i < ROUNDS; i++) {
        const double rate = resident_rate(j, 1);

        samples[i] = rate / bench_limit_around(&clock);
    }
    bench_report(&(bench_row){ .name = name, .unit = "elements/cycle", .target = target,
                               .is_higher_better = true, .samples = samples,
                               .sample_count = ROUNDS,
                               .peer_note = "a figure of one core" });
}

static double
memory_rate(job *j, void (*work)(void *, uint32_t, uint32_t))
{
    j->count = LARGE;
    j->repeat = 1;
    return (double)LARGE / time_team(usable_cores(), work, j) / 1e9;
}

/* A kernel that goes through memory: `bytes` an element of what memcpy moves. */
typedef struct memory_row {
    const char *name;
    void (*work)(void *, uint32_t, uint32_t);
    double bytes;
    double share;        /* of the limit, to be reached */
    double other;        /* of bitsandbytes */
    bool may_be_resident; /* its own rate in cache may be the lower limit */
} memory_row;

/* Returns the rate. */
static double
bench_through_memory(job *j, const memory_row *row, const char *folder)
{
    bench_limit copy = bench_limit_begin(folder, "copy", "copy_gbs");
    double samples[ROUNDS];
    double most[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        const double resident =
            row->may_be_resident ? resident_rate(j, usable_cores()) : 1e9;

        (void)memory_rate(j, row->work); /* cores have slept */
        samples[i] = memory_rate(j, row->work);
        most[i] = bench_limit_around(&copy) / row->bytes;
        most[i] = resident < most[i] ? resident : most[i];
    }
    bench_report(&(bench_row){ .name = row->name, .unit = "G elements/s",
                               .target = row->share, .peer = row->other,
                               .is_higher_better = true, .samples = samples,
                               .sample_count = ROUNDS, .limit_samples = most,
                               .limit_sample_count = ROUNDS,
                               .peer_note = row->other > 0 ? NULL : "no bitsandbytes here" });
    return bench_median(samples, ROUNDS);
}

static void
report_times(const char *name, double value, double other, double target)
{
    if (other > 0)
        bench_report(&(bench_row){ .name = name, .unit = "times bitsandbytes",
                                   .value = value / other, .target = target, .peer = 1,
                                   .is_higher_better = true });
    else
        bench_skip(name, "no bitsandbytes on this machine");
}

static void
bench_memory(job *j, const peer *other, const char *folder)
{
    double rate;

    /* 2 bytes in, half a byte and a sixteenth out. */
    rate = bench_through_memory(
        j, &(memory_row){ "NF4 from bf16, from memory, all cores", encode, 2.5625, 0.85,
                          other->nf4, true }, folder);
    report_times("NF4 from bf16, from memory, against bitsandbytes", rate, other->nf4, 100);
    rate = bench_through_memory(j, &(memory_row){ "NF4 to bf16, all cores", decode, 2.5625,
                                                  0.85, other->decode, false }, folder);
    report_times("NF4 to bf16, against bitsandbytes", rate, other->decode, 3);
    rate = bench_through_memory(j, &(memory_row){ "int8 rows from bf16, all cores",
                                                  encode_rows, 3, 0.60, other->int8, false },
                                folder);
    report_times("int8 rows, against bitsandbytes", rate, other->int8, 20);
}

/* ---------------------------------------------------------- double quantization */

static void
bench_double(job *j)
{
    const uint64_t shape[2] = { 8192, 8192 };
    const berthi_storage storage = { .encoding = BERTH_ENCODING_NF4, .dtype = BERTH_BF16,
                                     .storage = BERTH_U8, .block_size = BLOCK,
                                     .is_double = true };
    const uint64_t blocks = shape[0] * shape[1] / BLOCK;
    uint8_t *const codes = memory(blocks);
    float *const absmax2 = memory(blocks);
    double samples[3 * ROUNDS]; /* short ones */
    berthi_quantizer q;
    float *scratch;

    if (!berthi_quantizer_can_init(&q, &j->operations, &storage, shape, 2))
        bench_die("no quantizer");
    scratch = memory(berthi_quantizer_scratch(&q) * sizeof *scratch);
    memset(codes, 0, blocks); /* pages are not what is measured */
    memset(absmax2, 0, blocks);
    j->count = shape[0] * shape[1];
    j->repeat = 1;
    for (int i = 0; i < 3 * ROUNDS; i++) {
        const double once = time_team(1, encode, j);
        double begin = bench_now();

        (void)berthi_quantizer_finish(&q, j->absmax, codes, absmax2, scratch);
        samples[i] = (bench_now() - begin) / once * 100;
    }
    bench_report(&(bench_row){ .name = "double quantization, over NF4, one core",
                               .unit = "per cent more", .target = 5, .samples = samples,
                               .sample_count = 3 * ROUNDS,
                               .peer_note = "a ratio of our own" });
    free(codes);
    free(absmax2);
    free(scratch);
}

/* -------------------------------------------------------------------- products */

typedef struct product {
    berthi_operations operations;
    uint8_t *codes;
    float *absmax;
    void *inputs;
    int32_t dtype;
    float *outputs;
    float *scratch[THREADS_MAX];
    uint32_t count;
} product;

static void
multiply(void *user, uint32_t number, uint32_t threads)
{
    product *const p = user;

    p->operations.multiply_nf4(&(berthi_product_arguments){
        .codes = p->codes, .absmax = p->absmax, .block_size = BLOCK, .count = p->count,
        .rows = ROWS, .columns = COLUMNS, .first_row = (uint64_t)ROWS * number / threads,
        .end_row = (uint64_t)ROWS * (number + 1) / threads, .inputs = p->inputs,
        .dtype = p->dtype, .outputs = p->outputs, .scratch = p->scratch[number] });
}

/* Some outputs, in double, one after the other. */
static void
check_product(product *p)
{
    float *const row = memory(COLUMNS * sizeof *row);

    for (uint64_t r = 0; r < ROWS; r += ROWS / 16) {
        double sum = 0;
        double size = 0;
        /* Against the exact values: those of bf16 inputs are rounded. */
        const double bound = p->dtype == BERTH_BF16 ? 0x1p-9 : 1e-5;

        berthi_scalar_operations.decode_nf4(&(berthi_decode_arguments){
            .codes = p->codes + r * COLUMNS / 2, .absmax = p->absmax + r * COLUMNS / BLOCK,
            .count = COLUMNS, .block_size = BLOCK, .dtype = BERTH_F32, .values = row });
        for (uint64_t k = 0; k < COLUMNS; k++) {
            const double term =
                (double)row[k] * (double)berthi_core_load(p->inputs, p->dtype, k);

            sum += term;
            size += term < 0 ? -term : term;
        }
        if (sum - p->outputs[r] > size * bound || p->outputs[r] - sum > size * bound)
            bench_die("a product is wrong: row %u", (unsigned)r);
    }
    free(row);
}

/* Seconds. */
static double
time_product(product *p, uint32_t count)
{
    p->count = count;
    return time_team(usable_cores(), multiply, p);
}

static void
warm_product(product *p, uint32_t count)
{
    (void)time_product(p, count);
    check_product(p);
}

/* Of both input dtypes: how near to memory one is, and how many eight cost. */
static void
bench_products_of(product *p, int32_t dtype, const char *folder)
{
    const double bytes = (double)ROWS * COLUMNS * (0.5 + 4.0 / BLOCK);
    const char *const type = dtype == BERTH_BF16 ? "bf16" : "f32";
    bench_limit reading = bench_limit_begin(folder, "read", "read_gbs");
    bench_limit fma = bench_limit_begin(folder, "fma", "fma_gflops");
    double one[ROUNDS];
    double eight[ROUNDS];
    double read[ROUNDS];
    double most[ROUNDS];
    char name[96];

    p->dtype = dtype;
    for (uint64_t i = 0; i < 32u * COLUMNS; i++)
        berthi_core_store(p->inputs, dtype, i, (float)(i * 40503u % 2001) * 0.001f - 1);
    warm_product(p, 1);
    warm_product(p, 8);
    for (int i = 0; i < ROUNDS; i++) {
        double seconds = time_product(p, 1); /* not counted: cores have slept */
        double fused;

        seconds = time_product(p, 1);
        one[i] = bytes / seconds / 1e9;
        read[i] = bench_limit_around(&reading);
        eight[i] = time_product(p, 8);
        fused = 2.0 * 8 * ROWS * COLUMNS / (bench_limit_around(&fma) * 1e9);
        most[i] = seconds > fused ? seconds : fused;
    }
    snprintf(name, sizeof name, "NF4 product, 131072 x 8192, m = 1, %s, all cores", type);
    bench_report(&(bench_row){ .name = name, .unit = "GB/s", .target = 0.5,
                               .is_higher_better = true, .samples = one,
                               .sample_count = ROUNDS, .limit_samples = read,
                               .limit_sample_count = ROUNDS,
                               .peer_note = "read bandwidth is the limit" });
    snprintf(name, sizeof name, "NF4 product, m = 8, %s, all cores", type);
    bench_report(&(bench_row){ .name = name, .unit = "s", .target = 1.3,
                               .samples = eight, .sample_count = ROUNDS,
                               .limit_samples = most, .limit_sample_count = ROUNDS,
                               .peer_note = "the higher of m = 1 and the multiply-adds" });
}

static void
bench_products(const berthi_operations *operations, const char *folder)
{
    product p = { .operations = *operations };

    p.codes = memory((uint64_t)ROWS * COLUMNS / 2);
    p.absmax = memory((uint64_t)ROWS * COLUMNS / BLOCK * sizeof *p.absmax);
    p.inputs = memory(32u * COLUMNS * sizeof(float));
    p.outputs = memory(32u * (uint64_t)ROWS * sizeof *p.outputs);
    for (uint32_t i = 0; i < usable_cores(); i++)
        p.scratch[i] = memory(berthi_product_scratch(COLUMNS, 32) * sizeof **p.scratch);
    for (uint64_t i = 0; i < (uint64_t)ROWS * COLUMNS / 2; i++)
        p.codes[i] = (uint8_t)(i * 2654435761u >> 13);
    for (uint64_t i = 0; i < (uint64_t)ROWS * COLUMNS / BLOCK; i++)
        p.absmax[i] = 0.01f + (float)(i % 97) * 0.001f;
    bench_products_of(&p, BERTH_BF16, folder);
    bench_products_of(&p, BERTH_F32, folder);
}

/* ------------------------------------------------------------------------ main */

static peer
read_peer(const char *path)
{
    peer other = { 0, 0, 0, 0 };
    FILE *const file = path != NULL ? fopen(path, "r") : NULL;

    if (file == NULL)
        return other;
    if (fscanf(file, "nf4 %lf fp4 %lf int8 %lf decode %lf", &other.nf4, &other.fp4,
               &other.int8, &other.decode)
        != 4)
        bench_die("%s is no file of figures", path);
    fclose(file);
    return other;
}

int
main(int argc, char **argv)
{
    const char *rows = NULL;
    const char *peers = NULL;
    const char *folder = NULL;
    peer other;
    job j = { .repeat = 1 };

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc)
            rows = argv[++i];
        else if (strcmp(argv[i], "-p") == 0 && i + 1 < argc)
            peers = argv[++i];
        else
            folder = argv[i];
    }
    if (folder == NULL)
        bench_die("bench_kernels [-o ROWS] [-p PEER] LIMITS");
    bench_begin(rows);
    other = read_peer(peers);
    j.values = make_values(LARGE);
    j.codes = memory(LARGE / 2);
    j.absmax = memory(LARGE / BLOCK * sizeof *j.absmax);
    j.decoded = memory(LARGE * 2);
    j.row_codes = memory(LARGE);
    j.row_maximum = memory(LARGE / COLUMNS * sizeof *j.row_maximum);
    memset(j.codes, 0, LARGE / 2);
    memset(j.absmax, 0, LARGE / BLOCK * sizeof *j.absmax);
    memset(j.decoded, 0, LARGE * 2);
    memset(j.row_codes, 0, LARGE);
    bench_resident(&j, BERTHI_CPU_AVX512, 2.0, folder);
    bench_resident(&j, BERTHI_CPU_AVX2, 0.9, folder);
    (void)berthi_sys_allow_tiles();
    j.operations = berthi_level_operations(berthi_cpu_best_level());
    bench_memory(&j, &other, folder);
    bench_double(&j);
    bench_products(&j.operations, folder);
    return 0;
}
