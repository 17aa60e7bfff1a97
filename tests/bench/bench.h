/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - what benchmarks share: clocks, medians, commands that are measured,
 * and rows of results.
 *
 * Every row goes to stdout for people, and as one line of JSON to the file that
 * bench_begin() got. A row says what was measured, against which limit or peer,
 * and what is to be reached; what cannot be measured says why. Whatever fails
 * on the way ends the program: no speed without a checked result.
 */
#ifndef BERTH_TESTS_BENCH_BENCH_H
#define BERTH_TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_SAMPLES 64

/* Prints and ends the program. */
__attribute__((format(printf, 1, 2), noreturn)) void bench_die(const char *format, ...);

/* ------------------------------------------------------------------ measuring */

/* Monotonic seconds. */
double bench_now(void);
double bench_median(const double *samples, size_t count);

/* A command that has ended. */
typedef struct bench_result {
    int status;     /* exit code, or 128 + signal */
    double seconds; /* from fork to exit */
    uint64_t peak_bytes;
    char output[16384]; /* of stdout, NUL added */
} bench_result;

/* Runs argv (argv[0] is a path), stderr left alone, and waits for it. */
void bench_command(const char *const *argv, bench_result *result);

/*
 * Takes so much memory and gives it back. A virtual machine's host takes away large pages
 * that are free for two seconds; they come again at half a gigabyte a second, slower than
 * a disk fills them. Small pages stay, so large ones are what has to be touched, and just
 * before they matter. Ends the program when there is not enough.
 */
void bench_touch_memory(uint64_t bytes);

/* One of what this processor can do at best, as limit_memory tells it. */
typedef struct bench_limit {
    const char *folder; /* of limit_memory */
    const char *what;
    const char *key;
    double before;      /* the last sample */
} bench_limit;

bench_limit bench_limit_begin(const char *folder, const char *what, const char *key);
/* The limit of what has been measured since the last call. */
double bench_limit_around(bench_limit *limit);

#define BENCH_DISK_WAYS 2
#define BENCH_DISK_TRIALS 3

/*
 * What a disk can do at best, as limit_read tells it: the rates of two of its ways and
 * depths, round by round, those which were the best before the first round. The limit is
 * the one with the better median. A disk that shares its machine is lucky once in a while:
 * of many ways in few rounds the best is the luckiest, and no limit.
 */
typedef struct bench_disk {
    const char *folder; /* of limit_read */
    char chosen[64];    /* of limit_read -o; empty before the first round */
    size_t rounds;
    double rates[BENCH_DISK_WAYS][BENCH_SAMPLES]; /* bytes a second */
} bench_disk;

/* One more round, over all files, which should be cold. */
void bench_disk_measure(bench_disk *disk, char *const *files, size_t count);
/* The rates of the best way, as many as there were rounds. */
const double *bench_disk_best(const bench_disk *disk);

/* The number behind "key": in a line of JSON; ends the program when absent. */
double bench_json_number(const char *json, const char *key);

/* The kernel's crc32 of Ethernet and zlib: to compare names, not for speed. */
uint32_t bench_crc32(const char *bytes, size_t length);

/* What a listing must add up to, so that a speed is the speed of the right answer. */
typedef struct bench_listing {
    uint64_t tensors;
    uint64_t bytes;      /* sum over tensors */
    uint64_t name_bytes; /* sum of lengths, without NUL */
    uint64_t name_sum;   /* sum of the names' crc32 */
} bench_listing;

void bench_listing_add(bench_listing *listing, const char *name, size_t length,
                       uint64_t bytes);
/* Kept beside the model, as FOLDER.expected. */
void bench_listing_write(const char *folder, const bench_listing *listing);
void bench_listing_read(const char *folder, bench_listing *listing);

/* -------------------------------------------------------------------- results */

typedef struct bench_row {
    const char *name;
    const char *unit;
    double value;       /* median of the samples, unless there are none: as given */
    double limit;       /* what the machine allows, in this run; as value; 0: none */
    double peer;        /* what the other program needed, in this run; 0: none */
    const char *peer_note; /* why there is no peer, or NULL */
    double target;      /* of the value; with a limit, of value / limit */
    bool is_higher_better;
    const double *samples;
    size_t sample_count;
    const double *limit_samples; /* what the limit is the median of; NULL: none */
    size_t limit_sample_count;
} bench_row;

/* `json` is appended to; NULL: no file. */
void bench_begin(const char *json);
void bench_report(const bench_row *row);
void bench_skip(const char *name, const char *reason);

#endif
