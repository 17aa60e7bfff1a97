/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_convert - does `berth quantize` convert as fast as its bytes can be read
 * and written?
 *
 *   bench_convert [-o ROWS] [-p SECONDS] BERTH LIMITS MODEL OUT
 *
 * BERTH is the tool, LIMITS the folder of limit_rewrite, MODEL a model on disk,
 * OUT a folder that is not there yet, on the same disk. SECONDS is what
 * transformers and bitsandbytes need to load and quantize the same model. Cold:
 * the model is dropped from the page cache before each round, and that none of
 * it is left is checked. Limit and tool take turns, the limit first and last.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define ROUNDS 5
#define LIMITS (ROUNDS + 1)
#define FILES_MAX 64

typedef struct files {
    char paths[FILES_MAX][4096];
    size_t count;
} files;

static const char *berth;
static const char *limits;
static const char *model;
static const char *out;

static bool
is_shard(const char *name)
{
    const size_t length = strlen(name);

    return length > 12 && strcmp(name + length - 12, ".safetensors") == 0;
}

static uint64_t
find_files(const char *folder, files *f)
{
    DIR *const stream = opendir(folder);
    const struct dirent *entry;
    uint64_t bytes = 0;

    f->count = 0;
    if (stream == NULL)
        bench_die("%s: %s", folder, strerror(errno));
    while ((entry = readdir(stream)) != NULL) {
        struct stat state;

        if (!is_shard(entry->d_name))
            continue;
        if (f->count == FILES_MAX)
            bench_die("%s: too many files", folder);
        snprintf(f->paths[f->count], sizeof f->paths[0], "%s/%s", folder, entry->d_name);
        if (stat(f->paths[f->count], &state) != 0)
            bench_die("%s: %s", f->paths[f->count], strerror(errno));
        bytes += (uint64_t)state.st_size;
        f->count++;
    }
    closedir(stream);
    return bytes;
}

/* In the page cache, or nothing of it. */
static void
make_ready(const files *f, bool is_cold)
{
    static char buffer[1 << 20];

    for (size_t i = 0; i < f->count; i++) {
        const int fd = open(f->paths[i], O_RDONLY | O_CLOEXEC);

        if (fd < 0)
            bench_die("%s: %s", f->paths[i], strerror(errno));
        if (is_cold)
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        else
            while (read(fd, buffer, sizeof buffer) > 0)
                continue;
        close(fd);
    }
}

static void
remove_output(void)
{
    char command[4200];

    snprintf(command, sizeof command, "rm -rf '%s'", out);
    if (system(command) != 0)
        bench_die("%s cannot be removed", out);
}

static double
take_limit(const files *f, bool is_cold, uint64_t written)
{
    static bench_result result;
    const char *argv[FILES_MAX + 8];
    char program[4096];
    char bytes[32];
    char target[4200];
    size_t count = 0;

    snprintf(program, sizeof program, "%s/limit_rewrite", limits);
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)written);
    snprintf(target, sizeof target, "%s.limit", out);
    argv[count++] = program;
    if (!is_cold)
        argv[count++] = "-b";
    argv[count++] = "-w";
    argv[count++] = bytes;
    argv[count++] = target;
    for (size_t i = 0; i < f->count; i++)
        argv[count++] = f->paths[i];
    argv[count] = NULL;
    make_ready(f, is_cold);
    bench_command(argv, &result);
    if (result.status != 0)
        bench_die("limit_rewrite ended with %d", result.status);
    return bench_json_number(result.output, "seconds");
}

typedef struct samples {
    double seconds[ROUNDS];
    double limit[LIMITS];
    double peak_bytes;
    uint64_t written;
} samples;

static void
run_tool(const char *const *argv, const files *f, bool is_cold, samples *s, int round)
{
    static bench_result result;
    static files made;

    remove_output();
    make_ready(f, is_cold);
    bench_command(argv, &result);
    if (result.status != 0)
        bench_die("%s quantize ended with %d: %s", argv[0], result.status, result.output);
    s->seconds[round] = result.seconds;
    s->written = find_files(out, &made);
    if ((double)result.peak_bytes > s->peak_bytes)
        s->peak_bytes = (double)result.peak_bytes;
}

/* What was written last is what was to be written. */
static void
check_output(void)
{
    static bench_result result;
    const char *const argv[] = { berth, "verify", "--digest", out, "--json", NULL };

    bench_command(argv, &result);
    if (result.status != 0)
        bench_die("the output is not what its manifest says: %s", result.output);
}

static void
measure(const char *const *argv, const files *f, bool is_cold, samples *s)
{
    memset(s, 0, sizeof *s);
    run_tool(argv, f, is_cold, s, 0); /* tells how much is written */
    s->limit[0] = take_limit(f, is_cold, s->written);
    for (int round = 0; round < ROUNDS; round++) {
        run_tool(argv, f, is_cold, s, round);
        s->limit[round + 1] = take_limit(f, is_cold, s->written);
    }
    check_output();
    remove_output();
}

static void
report(const char *name, const char *const *argv, const files *f, double other)
{
    char row[128];
    samples s;

    measure(argv, f, true, &s);
    snprintf(row, sizeof row, "quantize 2.2 GB to %s, cold", name);
    bench_report(&(bench_row){ .name = row,
                               .unit = "s",
                               .target = 1 / 0.9,
                               .samples = s.seconds,
                               .sample_count = ROUNDS,
                               .limit_samples = s.limit,
                               .limit_sample_count = LIMITS });
    snprintf(row, sizeof row, "quantize 2.2 GB to %s, peak memory", name);
    bench_report(&(bench_row){ .name = row,
                               .unit = "MiB",
                               .value = s.peak_bytes / (1 << 20),
                               .target = 256 });
    measure(argv, f, false, &s);
    snprintf(row, sizeof row, "quantize 2.2 GB to %s, warm, against transformers", name);
    if (other > 0)
        bench_report(&(bench_row){ .name = row,
                                   .unit = "times",
                                   .value = other / bench_median(s.seconds, ROUNDS),
                                   .peer = 1,
                                   .target = 15,
                                   .is_higher_better = true });
    else
        bench_skip(row, "no transformers with bitsandbytes on this machine");
}

int
main(int argc, char **argv)
{
    const char *rows = NULL;
    double other = 0;
    static files f;
    int option;

    while ((option = getopt(argc, argv, "o:p:")) != -1) {
        if (option == 'o')
            rows = optarg;
        else if (option == 'p')
            other = strtod(optarg, NULL);
        else
            return 2;
    }
    if (optind != argc - 4)
        bench_die("usage: bench_convert [-o ROWS] [-p SECONDS] BERTH LIMITS MODEL OUT");
    bench_begin(rows);
    berth = argv[optind];
    limits = argv[optind + 1];
    model = argv[optind + 2];
    out = argv[optind + 3];
    find_files(model, &f);
    report("NF4 + double quant",
           (const char *const[]){ berth, "quantize", model, out, "--type", "nf4",
                                  "--double-quant", "-q", NULL },
           &f, other);
    report("int8",
           (const char *const[]){ berth, "quantize", model, out, "--type", "int8", "-q",
                                  NULL },
           &f, 0);
    return 0;
}
