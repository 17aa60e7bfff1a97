/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_verify - does `berth verify --digest` read at the speed of the disk?
 *
 *   bench_verify [-o ROWS] BERTH LIMITS MODEL CACHE
 *
 * BERTH is the tool, LIMITS the folder of limit_read and limit_sha, MODEL a
 * sharded model of random bytes, CACHE a hub cache that holds bench/blob. Both
 * are cold in each round: dropped from the page cache file by file, and that
 * none of it is left is checked. Limit and tool take turns, the limit first and
 * last; it is the way to read whose median over all rounds is the best.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
    char *paths[FILES_MAX];
    size_t count;
    uint64_t bytes;
} files;

/* ---------------------------------------------------------------------- files */

/* The shards below a folder. */
static void
find_files(const char *folder, files *out)
{
    DIR *const stream = opendir(folder);
    const struct dirent *entry;

    memset(out, 0, sizeof *out);
    if (stream == NULL)
        bench_die("%s: %s", folder, strerror(errno));
    while ((entry = readdir(stream)) != NULL) {
        struct stat state;
        char *path;

        if (strstr(entry->d_name, ".safetensors") == NULL
            || strstr(entry->d_name, ".json") != NULL)
            continue;
        if (out->count == FILES_MAX || asprintf(&path, "%s/%s", folder, entry->d_name) < 0
            || stat(path, &state) != 0)
            bench_die("%s: too many files, or unreadable", folder);
        out->paths[out->count++] = path;
        out->bytes += (uint64_t)state.st_size;
    }
    closedir(stream);
}

/* Pages of the file that are in memory. */
static size_t
count_cached(int fd, size_t bytes)
{
    const size_t pages = (bytes + 4095) / 4096;
    unsigned char *const is_there = malloc(pages);
    void *const memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    size_t count = 0;

    if (is_there == NULL || memory == MAP_FAILED || mincore(memory, bytes, is_there) != 0)
        bench_die("asking for cached pages: %s", strerror(errno));
    for (size_t i = 0; i < pages; i++)
        count += is_there[i] & 1;
    munmap(memory, bytes);
    free(is_there);
    return count;
}

static void
make_cold(const files *f)
{
    for (size_t i = 0; i < f->count; i++) {
        const int fd = open(f->paths[i], O_RDONLY | O_CLOEXEC);
        struct stat state;

        if (fd < 0 || fstat(fd, &state) != 0)
            bench_die("%s: %s", f->paths[i], strerror(errno));
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        if (count_cached(fd, (size_t)state.st_size) != 0)
            bench_die("%s stays in the page cache", f->paths[i]);
        close(fd);
    }
}

/* --------------------------------------------------------------------- limits */

static const char *limits;

/* GB/s of one thread; 0: there is no libcrypto. */
static double
sha_limit(void)
{
    static bench_result result;
    char program[4096];
    const char *const argv[] = { program, NULL };

    snprintf(program, sizeof program, "%s/limit_sha", limits);
    bench_command(argv, &result);
    if (result.status == 77)
        return 0;
    if (result.status != 0)
        bench_die("limit_sha ended with %d", result.status);
    return bench_json_number(result.output, "bytes_per_second") / 1e9;
}

/* -------------------------------------------------------------------- the tool */

typedef struct samples {
    double rate[ROUNDS];
    double limit[LIMITS]; /* of the disk */
    double sha[ROUNDS];
    double peak_bytes;
} samples;

/* One run that must find nothing wrong and must have read every byte. */
static void
run_tool(const char *const *argv, const files *f, const char *proof, samples *s, int round)
{
    static bench_result result;

    make_cold(f);
    bench_command(argv, &result);
    if (result.status != 0)
        bench_die("%s ended with %d: %s", argv[0], result.status, result.output);
    if (bench_json_number(result.output, proof) < 1)
        bench_die("no %s in the tool's answer: %s", proof, result.output);
    if (bench_json_number(result.output, "bytes_read") < 0.99 * (double)f->bytes)
        bench_die("not every byte was read: %s", result.output);
    s->rate[round] = (double)f->bytes / result.seconds / 1e9;
    if ((double)result.peak_bytes > s->peak_bytes)
        s->peak_bytes = (double)result.peak_bytes;
}

static void
measure_disk(bench_disk *disk, const files *f)
{
    make_cold(f);
    bench_disk_measure(disk, f->paths, f->count);
}

/* Tool and limits in turns. */
static void
measure(const char *const *argv, const files *f, const char *proof, bool is_hashing,
        samples *s)
{
    bench_disk disk = { .folder = limits };

    memset(s, 0, sizeof *s);
    measure_disk(&disk, f);
    for (int round = 0; round < ROUNDS; round++) {
        run_tool(argv, f, proof, s, round);
        measure_disk(&disk, f);
        if (is_hashing)
            s->sha[round] = sha_limit();
    }
    for (int round = 0; round < LIMITS; round++)
        s->limit[round] = bench_disk_best(&disk)[round] / 1e9;
}

/* Every byte against a manifest of crc32. */
static void
report_digest(const char *berth, const char *model)
{
    char manifest[4096];
    char write_option[4200];
    const char *const write[] = { berth, "verify", model, write_option, "--json", NULL };
    const char *const check[] = { berth,    "verify", model,
                                  "--manifest", manifest, "--json", NULL };
    static bench_result result;
    samples s;
    files f;

    snprintf(manifest, sizeof manifest, "%s.manifest.json", model);
    snprintf(write_option, sizeof write_option, "--write-manifest=%s", manifest);
    find_files(model, &f);
    bench_command(write, &result);
    if (result.status != 0)
        bench_die("writing a manifest ended with %d", result.status);
    measure(check, &f, "tensors_digested", false, &s);
    unlink(manifest);
    bench_report(&(bench_row){ .name = "verify --digest, cold",
                               .unit = "GB/s",
                               .target = 0.9,
                               .is_higher_better = true,
                               .samples = s.rate,
                               .sample_count = ROUNDS,
                               .limit_samples = s.limit,
                               .limit_sample_count = LIMITS });
    bench_report(&(bench_row){ .name = "verify --digest, peak memory",
                               .unit = "MiB",
                               .value = s.peak_bytes / (1 << 20),
                               .target = 64 });
}

/* A blob whose name is its SHA-256. */
static void
report_blob(const char *berth, const char *cache)
{
    const char *const check[] = { berth, "verify", "bench/blob", "--hub-cache", cache,
                                  "--digest", "--json", NULL };
    char snapshot[4096];
    bool is_disk_slower;
    samples s;
    files f;

    if (sha_limit() <= 0) {
        bench_skip("verify --digest of a hub blob, cold", "no libcrypto on this machine");
        return;
    }
    snprintf(snapshot, sizeof snapshot, "%s/models--bench--blob/snapshots/"
                                        "0123456789abcdef0123456789abcdef01234567",
             cache);
    find_files(snapshot, &f);
    measure(check, &f, "blobs_checked", true, &s);
    is_disk_slower =
        bench_median(s.limit, LIMITS) < bench_median(s.sha, ROUNDS);
    bench_report(&(bench_row){
        .name = is_disk_slower ? "verify --digest of a hub blob, against disk"
                               : "verify --digest of a hub blob, against sha256",
        .unit = "GB/s",
        .target = 0.9,
        .is_higher_better = true,
        .samples = s.rate,
        .sample_count = ROUNDS,
        .limit_samples = is_disk_slower ? s.limit : s.sha,
        .limit_sample_count = is_disk_slower ? LIMITS : ROUNDS });
    bench_report(&(bench_row){ .name = "verify --digest of a hub blob, peak memory",
                               .unit = "MiB",
                               .value = s.peak_bytes / (1 << 20),
                               .target = 64 });
}

int
main(int argc, char **argv)
{
    const char *rows = NULL;
    int option;

    while ((option = getopt(argc, argv, "o:")) != -1)
        if (option == 'o')
            rows = optarg;
        else
            return 2;
    if (optind != argc - 4)
        bench_die("usage: bench_verify [-o ROWS] BERTH LIMITS MODEL CACHE");
    bench_begin(rows);
    limits = argv[optind + 1];
    report_digest(argv[optind], argv[optind + 2]);
    report_blob(argv[optind], argv[optind + 3]);
    return 0;
}
