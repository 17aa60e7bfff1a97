/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_convert - does `berth quantize` convert as fast as its bytes can be read
 * and written?
 *
 *   bench_convert [-o ROWS] [-p SECONDS] [-l FILE] [-m MPIRUN] BERTH LIMITS MODEL OUT
 *
 * BERTH is the tool, LIMITS the folder of limit_rewrite, MODEL a model on disk,
 * OUT a folder that is not there yet, on the same disk. SECONDS is what
 * transformers and bitsandbytes need to load and quantize the same model, FILE
 * what peer_llama.py says that llama.cpp needs to quantize it. With MPIRUN, two
 * parts that it starts are measured against one process of two threads that it
 * starts, in turn: what it takes itself is in both. Cold: the model is dropped
 * from the page cache before each round, and that none of it is left is checked.
 * Limit and tool take turns, the limit first and last.
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

/* The same model from the page cache, against what another program needed. */
typedef struct peer {
    const char *program;
    double seconds;   /* 0: was not measured */
    double target;    /* times as fast as it */
    const char *note; /* of the row, or NULL */
} peer;

static void
report_times(const char *name, const samples *warm, const peer *other)
{
    double times[ROUNDS];
    char row[128];
    char text[128];

    snprintf(row, sizeof row, "quantize 2.2 GB to %s, warm, against %s", name,
             other->program);
    if (other->seconds <= 0) {
        snprintf(text, sizeof text, "no %s on this machine", other->program);
        bench_skip(row, text);
        return;
    }
    for (int i = 0; i < ROUNDS; i++)
        times[i] = other->seconds / warm->seconds[i];
    bench_report(&(bench_row){ .name = row,
                               .unit = "times",
                               .peer = 1,
                               .peer_note = other->note,
                               .target = other->target,
                               .is_higher_better = true,
                               .samples = times,
                               .sample_count = ROUNDS });
}

static void
report(const char *name, const char *const *argv, const files *f)
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
}

static void
report_types(const files *f, const peer *transformers, const peer *llama)
{
    const char *const nf4[] = { berth, "quantize", model, out, "--type", "nf4",
                                "--double-quant", "-q", NULL };
    const char *const int8[] = { berth, "quantize", model, out, "--type", "int8", "-q",
                                 NULL };
    samples warm;

    report("NF4 + double quant", nf4, f);
    measure(nf4, f, false, &warm);
    report_times("NF4 + double quant", &warm, transformers);
    report_times("NF4 + double quant", &warm, llama);
    report("int8", int8, f);
}

/* What peer_llama.py has printed. */
static void
read_llama(const char *path, peer *llama, char *note, size_t capacity)
{
    static char text[4096];
    FILE *const file = fopen(path, "r");
    const char *raw;

    if (file == NULL || fgets(text, sizeof text, file) == NULL)
        bench_die("%s: no line of JSON", path);
    fclose(file);
    llama->seconds = bench_json_number(text, "seconds");
    raw = strstr(text, "\"samples\": [");
    if (raw == NULL)
        bench_die("no samples in: %s", text);
    raw += strlen("\"samples\": [");
    snprintf(note, capacity,
             "f16 to Q4_0: the same bytes read as of bf16, in %.*s seconds",
             (int)strcspn(raw, "]"), raw);
    llama->note = note;
}

/* ---------------------------------------------------------------------- parts */

/*
 * Quantizes a model in the page cache: the second of two runs. What one process and
 * two have in memory is not the same, and on a virtual machine pages that nobody had
 * for some seconds cost more than all the rest.
 */
static double
take_under(const char *mpirun, bool is_in_parts, const char *shard_bytes, const files *f)
{
    static bench_result result;
    const char *const argv[] = { mpirun,
                                 "-n",
                                 is_in_parts ? "2" : "1",
                                 "--oversubscribe",
                                 "--allow-run-as-root",
                                 "--bind-to",
                                 "none",
                                 berth,
                                 "quantize",
                                 model,
                                 out,
                                 "--type",
                                 "nf4",
                                 "--double-quant",
                                 "--max-shard-size",
                                 shard_bytes,
                                 "-q",
                                 "-j",
                                 is_in_parts ? "1" : "2",
                                 is_in_parts ? "--part" : NULL,
                                 "auto",
                                 NULL };

    for (int run = 0; run < 2; run++) {
        remove_output();
        make_ready(f, false);
        bench_command(argv, &result);
        if (result.status != 0)
            bench_die("mpirun ended with %d: %s", result.status, result.output);
    }
    return result.seconds;
}

static void
report_parts(const char *mpirun, const char *name, const char *shard_bytes, const files *f)
{
    double parts[ROUNDS];
    double threads[LIMITS];
    char row[128];

    snprintf(row, sizeof row, "quantize 2.2 GB in 2 parts under mpirun, %s", name);
    if (mpirun == NULL) {
        bench_skip(row, "no mpirun on this machine");
        return;
    }
    threads[0] = take_under(mpirun, false, shard_bytes, f);
    for (int round = 0; round < ROUNDS; round++) {
        parts[round] = take_under(mpirun, true, shard_bytes, f);
        check_output();
        threads[round + 1] = take_under(mpirun, false, shard_bytes, f);
    }
    remove_output();
    bench_report(&(bench_row){ .name = row,
                               .unit = "s",
                               .target = 1,
                               .samples = parts,
                               .sample_count = ROUNDS,
                               .limit_samples = threads,
                               .limit_sample_count = LIMITS });
}

int
main(int argc, char **argv)
{
    const char *rows = NULL;
    const char *mpirun = NULL;
    peer transformers = { "transformers", 0, 15, NULL };
    peer llama = { "llama-quantize", 0, 4, NULL };
    char note[256];
    static files f;
    int option;

    while ((option = getopt(argc, argv, "o:p:l:m:")) != -1) {
        if (option == 'o')
            rows = optarg;
        else if (option == 'p')
            transformers.seconds = strtod(optarg, NULL);
        else if (option == 'l')
            read_llama(optarg, &llama, note, sizeof note);
        else if (option == 'm')
            mpirun = optarg;
        else
            return 2;
    }
    if (optind != argc - 4)
        bench_die("usage: bench_convert [-o ROWS] [-p SECONDS] [-l FILE] [-m MPIRUN] BERTH "
                  "LIMITS MODEL OUT");
    bench_begin(rows);
    berth = argv[optind];
    limits = argv[optind + 1];
    model = argv[optind + 2];
    out = argv[optind + 3];
    find_files(model, &f);
    report_types(&f, &transformers, &llama);
    report_parts(mpirun, "one shard", "5GB", &f);
    report_parts(mpirun, "several shards", "100MB", &f);
    return 0;
}
