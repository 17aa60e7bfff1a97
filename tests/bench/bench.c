/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - clocks, commands and rows for the benchmarks. */
#define _GNU_SOURCE /* wait4 */

#include "tests/bench/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static FILE *rows; /* a benchmark is one program with one output */

void
bench_die(const char *format, ...)
{
    va_list arguments;

    fflush(stdout);
    fputs("bench: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* ------------------------------------------------------------------ measuring */

double
bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int
compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

double
bench_median(const double *samples, size_t count)
{
    double sorted[BENCH_SAMPLES];

    if (count == 0 || count > BENCH_SAMPLES)
        bench_die("%zu samples", count);
    memcpy(sorted, samples, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_numbers);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static void
read_output(int fd, char *output, size_t capacity)
{
    size_t length = 0;
    ssize_t got;
    char rest[4096];

    while ((got = length < capacity - 1 ? read(fd, output + length, capacity - 1 - length)
                                        : read(fd, rest, sizeof rest))
           != 0) {
        if (got < 0 && errno != EINTR)
            bench_die("reading a command's output: %s", strerror(errno));
        if (got > 0 && length < capacity - 1)
            length += (size_t)got;
    }
    output[length] = '\0';
}

void
bench_command(const char *const *argv, bench_result *result)
{
    struct rusage usage;
    int ends[2];
    double begin;
    int status;
    pid_t child;

    fflush(NULL);
    if (pipe(ends) != 0)
        bench_die("pipe: %s", strerror(errno));
    begin = bench_now();
    child = fork();
    if (child < 0)
        bench_die("fork: %s", strerror(errno));
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        fprintf(stderr, "bench: %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    close(ends[1]);
    read_output(ends[0], result->output, sizeof result->output);
    close(ends[0]);
    if (wait4(child, &status, 0, &usage) != child)
        bench_die("wait: %s", strerror(errno));
    result->seconds = bench_now() - begin;
    result->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result->peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
    if (result->status == 127)
        bench_die("%s cannot be run", argv[0]);
}

/* A process of its own: what it had is free for the next. */
void
bench_touch_memory(uint64_t bytes)
{
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child < 0)
        bench_die("fork: %s", strerror(errno));
    if (child == 0) {
        char *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (memory == MAP_FAILED)
            _exit(1);
        (void)madvise(memory, bytes, MADV_HUGEPAGE); /* as slabs are */
        memset(memory, 1, bytes);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        bench_die("%" PRIu64 " bytes of memory cannot be had", bytes);
}

double
bench_json_number(const char *json, const char *key)
{
    char pattern[64];
    const char *at;

    snprintf(pattern, sizeof pattern, "\"%s\":", key);
    at = strstr(json, pattern);
    if (at == NULL)
        bench_die("no %s in: %s", key, json);
    return strtod(at + strlen(pattern), NULL);
}

uint32_t
bench_crc32(const char *bytes, size_t length)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < length; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
    }
    return ~crc;
}

void
bench_listing_add(bench_listing *listing, const char *name, size_t length, uint64_t bytes)
{
    listing->tensors++;
    listing->bytes += bytes;
    listing->name_bytes += length;
    listing->name_sum += bench_crc32(name, length);
}

static FILE *
open_expected(const char *folder, const char *mode)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s.expected", folder);
    file = fopen(path, mode);
    if (file == NULL)
        bench_die("%s: %s", path, strerror(errno));
    return file;
}

void
bench_listing_write(const char *folder, const bench_listing *listing)
{
    FILE *const file = open_expected(folder, "w");

    fprintf(file, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", listing->tensors,
            listing->bytes, listing->name_bytes, listing->name_sum);
    if (fclose(file) != 0)
        bench_die("writing what to expect of %s: %s", folder, strerror(errno));
}

void
bench_listing_read(const char *folder, bench_listing *listing)
{
    FILE *const file = open_expected(folder, "r");

    if (fscanf(file, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &listing->tensors,
               &listing->bytes, &listing->name_bytes, &listing->name_sum)
        != 4)
        bench_die("%s.expected is damaged", folder);
    fclose(file);
}

/* --------------------------------------------------------------------- limits */

static double
take_limit(const bench_limit *l)
{
    static bench_result result;
    char path[4096];
    const char *argv[] = { path, "-r", "1", "-w", l->what, NULL };

    snprintf(path, sizeof path, "%s/limit_memory", l->folder);
    bench_command(argv, &result);
    if (result.status != 0)
        bench_die("%s failed", path);
    return bench_json_number(result.output, l->key);
}

bench_limit
bench_limit_begin(const char *folder, const char *what, const char *key)
{
    bench_limit l = { folder, what, key, 0 };

    l.before = take_limit(&l);
    return l;
}

double
bench_limit_around(bench_limit *l)
{
    const double after = take_limit(l);
    const double mean = (l->before + after) / 2;

    l->before = after;
    return mean;
}

/* Where limit_read begins to say what each of its ways has reached. */
static const char *
first_way(const bench_result *result)
{
    const char *const at = strstr(result->output, "\"samples\":{");

    return at != NULL ? strchr(at, '{') : "";
}

/* The next of "WAY DEPTH":[RATE,...] from *at on; its rates. */
static bool
next_way(const char **at, char name[32], double *rates, size_t *count)
{
    const char *const begin = strchr(*at, '"');
    char *end;

    if (begin == NULL || sscanf(begin, "\"%31[^\"]\":", name) != 1)
        return false;
    *at = strchr(begin, '[');
    for (*count = 0; *at != NULL && **at != ']' && *count < BENCH_SAMPLES; (*count)++) {
        rates[*count] = strtod(*at + 1, &end);
        *at = end;
    }
    return *at != NULL;
}

static void
run_limit_read(const bench_disk *d, const char *option, const char *value,
               char *const *files, size_t count, bench_result *result)
{
    char program[4096];
    const char *argv[BENCH_SAMPLES + 4] = { program, option, value };

    if (count > BENCH_SAMPLES)
        bench_die("%zu files", count);
    snprintf(program, sizeof program, "%s/limit_read", d->folder);
    for (size_t i = 0; i < count; i++)
        argv[i + 3] = files[i];
    bench_command(argv, result);
    if (result->status != 0)
        bench_die("limit_read ended with %d", result->status);
}

/* The two ways with the best medians of some rounds. */
static void
choose_ways(bench_disk *d, char *const *files, size_t count)
{
    static bench_result result;
    char trials[8];
    char names[2][32] = { "", "" };
    double best[2] = { 0, 0 };
    double rates[BENCH_SAMPLES];
    size_t rounds;
    const char *at;
    char name[32];

    snprintf(trials, sizeof trials, "%d", BENCH_DISK_TRIALS);
    run_limit_read(d, "-r", trials, files, count, &result);
    at = first_way(&result);
    while (next_way(&at, name, rates, &rounds)) {
        const double rate = bench_median(rates, rounds);
        const int place = rate > best[0] ? 0 : rate > best[1] ? 1 : 2;

        if (place == 0) {
            best[1] = best[0];
            memcpy(names[1], names[0], sizeof names[1]);
        }
        if (place < 2) {
            best[place] = rate;
            memcpy(names[place], name, sizeof name);
        }
    }
    snprintf(d->chosen, sizeof d->chosen, "%.31s,%.31s", names[0], names[1]);
}

void
bench_disk_measure(bench_disk *d, char *const *files, size_t count)
{
    static bench_result result;
    double rates[BENCH_SAMPLES];
    size_t way = 0;
    size_t rounds;
    const char *at;
    char name[32];

    if (d->rounds == BENCH_SAMPLES)
        bench_die("%zu rounds", d->rounds);
    if (d->chosen[0] == 0)
        choose_ways(d, files, count);
    run_limit_read(d, "-o", d->chosen, files, count, &result);
    at = first_way(&result);
    for (; way < BENCH_DISK_WAYS && next_way(&at, name, rates, &rounds); way++)
        d->rates[way][d->rounds] = rates[0];
    if (way != BENCH_DISK_WAYS)
        bench_die("limit_read knows no two ways: %s", result.output);
    d->rounds++;
}

const double *
bench_disk_best(const bench_disk *d)
{
    const double *best = d->rates[0];

    for (size_t way = 1; way < BENCH_DISK_WAYS; way++)
        if (bench_median(d->rates[way], d->rounds) > bench_median(best, d->rounds))
            best = d->rates[way];
    return best;
}

/* -------------------------------------------------------------------- results */

void
bench_begin(const char *json)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (json == NULL)
        return;
    rows = fopen(json, "a");
    if (rows == NULL)
        bench_die("%s: %s", json, strerror(errno));
}

static void
write_number(const char *key, double number, bool is_known)
{
    if (is_known)
        fprintf(rows, "\"%s\":%.9g,", key, number);
    else
        fprintf(rows, "\"%s\":null,", key);
}

static void
write_samples(const char *key, const double *samples, size_t count)
{
    fprintf(rows, ",\"%s\":[", key);
    for (size_t i = 0; i < count; i++)
        fprintf(rows, "%s%.9g", i ? "," : "", samples[i]);
    fprintf(rows, "]");
}

/* Value as a share of the limit, or of the peer; 0 when there is neither. */
static double
ratio_of(double value, double limit, double peer)
{
    return limit > 0 ? value / limit : peer > 0 ? value / peer : 0;
}

/* How far the limit's samples lie apart, as a share of it: above 0.05 the machine
   was not quiet and the row says little. */
static double
limit_spread(const bench_row *row, double limit)
{
    double least = limit;
    double most = limit;

    for (size_t i = 0; i < row->limit_sample_count; i++) {
        least = row->limit_samples[i] < least ? row->limit_samples[i] : least;
        most = row->limit_samples[i] > most ? row->limit_samples[i] : most;
    }
    return limit > 0 ? (most - least) / limit : 0;
}

static void
write_row(const bench_row *row, double value, double limit, bool is_met)
{
    if (rows == NULL)
        return;
    fprintf(rows, "{\"name\":\"%s\",\"unit\":\"%s\",", row->name, row->unit);
    write_number("value", value, true);
    write_number("limit", limit, limit > 0);
    write_number("limit_spread", limit_spread(row, limit), limit > 0);
    write_number("peer", row->peer, row->peer > 0);
    if (row->peer_note != NULL)
        fprintf(rows, "\"peer_note\":\"%s\",", row->peer_note);
    write_number("ratio", ratio_of(value, limit, row->peer), limit > 0 || row->peer > 0);
    write_number("target", row->target, true);
    fprintf(rows, "\"target_of\":\"%s\",\"better\":\"%s\",\"met\":%s",
            limit > 0 ? "ratio" : "value", row->is_higher_better ? "higher" : "lower",
            is_met ? "true" : "false");
    write_samples("samples", row->samples, row->sample_count);
    write_samples("limit_samples", row->limit_samples, row->limit_sample_count);
    fprintf(rows, "}\n");
    fflush(rows);
}

void
bench_report(const bench_row *row)
{
    const double value =
        row->sample_count > 0 ? bench_median(row->samples, row->sample_count) : row->value;
    const double limit = row->limit_sample_count > 0
                             ? bench_median(row->limit_samples, row->limit_sample_count)
                             : row->limit;
    const double measured = limit > 0 ? value / limit : value;
    const bool is_met =
        row->is_higher_better ? measured >= row->target : measured <= row->target;

    printf("%-44s %10.4g %-12s", row->name, value, row->unit);
    if (limit > 0)
        printf(" limit %-8.4g %5.1f %% of it, to reach %.0f %%", limit, 100 * measured,
               100 * row->target);
    else
        printf(" to reach %s %.4g", row->is_higher_better ? ">=" : "<=", row->target);
    if (row->peer > 0)
        printf(", peer %.4g", row->peer);
    else if (row->peer_note != NULL)
        printf(", no peer: %s", row->peer_note);
    if (limit_spread(row, limit) > 0.05)
        printf(", limit varied by %.0f %%: not a quiet machine",
               100 * limit_spread(row, limit));
    printf("  %s\n", is_met ? "met" : "MISSED");
    write_row(row, value, limit, is_met);
}

void
bench_skip(const char *name, const char *reason)
{
    printf("%-44s skipped: %s\n", name, reason);
    if (rows != NULL) {
        fprintf(rows, "{\"name\":\"%s\",\"skipped\":\"%s\"}\n", name, reason);
        fflush(rows);
    }
}
