/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_load - does a load keep up with its disk, and a pass with its link?
 *
 *   bench_load [-o ROWS] [-p SECONDS] [-d BYTES] BERTH LLAMA LIMITS MODEL NF4 MANY ONE
 *
 * BERTH and LLAMA are the tools, LIMITS the folder of limit_read and limit_memory,
 * MODEL a model of 2.2 GB on disk, NF4 a folder beside it that is made of it, MANY and ONE
 * sparse ones of the same bytes as many tensors and as one. SECONDS is what transformers
 * and bitsandbytes need to load and quantize MODEL, BYTES the packed ones that llama.cpp
 * reads in a second of decoding with it.
 *
 * Limit and load take turns. Bytes are compared once before anything is timed: `berth
 * load --check`. Passes over simulated links are timed by the simulated clock alone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "loader/berth.h"
#include "tests/bench/bench.h"

#define ROUNDS    5
#define COLD      11 /* rounds: a shared disk is not the same from one second to the next */
#define LIMITS    (ROUNDS + 1)
#define PAIRS     41 /* of loads that take less than half a second, a fifth more or less */
#define LINK_RATE 25e9
#define TOUCHED_BYTES (UINT64_C(3) << 30) /* more than a load takes */
#define RING_BYTES (UINT64_C(1) << 29)    /* more than what one without slabs takes */

static const char *berth;
static const char *llama;
static const char *limits;
static const char *model;

static bench_result result; /* of the command before */

static glob_t
shards_of(const char *folder)
{
    char pattern[4200];
    glob_t found;

    snprintf(pattern, sizeof pattern, "%s/*.safetensors", folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        bench_die("%s: no shards", folder);
    return found;
}

static void
make_ready(const char *folder, bool is_cold)
{
    static char buffer[1 << 20];
    glob_t shards = shards_of(folder);

    for (size_t i = 0; i < shards.gl_pathc; i++) {
        const int fd = open(shards.gl_pathv[i], O_RDONLY | O_CLOEXEC);

        if (fd < 0)
            bench_die("%s: %s", shards.gl_pathv[i], strerror(errno));
        if (is_cold)
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        else
            while (read(fd, buffer, sizeof buffer) > 0)
                continue;
        close(fd);
    }
    globfree(&shards);
}

/* How fast these files can be read; none of them is cached then. */
static void
measure_disk(bench_disk *disk, const char *folder)
{
    glob_t shards = shards_of(folder);

    make_ready(folder, true);
    bench_disk_measure(disk, shards.gl_pathv, shards.gl_pathc);
    globfree(&shards);
}

static void
run_load(const char *const *argv, const char *folder, bool is_cold)
{
    make_ready(folder, is_cold);
    bench_command(argv, &result);
    if (result.status != 0)
        bench_die("%s load ended with %d: %s", argv[0], result.status, result.output);
}

/* ------------------------------------------------------------------------ from disk */

static void
report_cold(const char *name, const char *const *argv, double target)
{
    double rates[COLD];
    bench_disk disk = {.folder = limits};

    measure_disk(&disk, model);
    for (int round = 0; round < COLD; round++) {
        bench_touch_memory(TOUCHED_BYTES); /* that the limit does not need any */
        run_load(argv, model, true);
        rates[round] = bench_json_number(result.output, "bytes_read") /
                       bench_json_number(result.output, "seconds");
        measure_disk(&disk, model);
    }
    bench_report(&(bench_row){.name = name,
                              .unit = "B/s",
                              .target = target,
                              .is_higher_better = true,
                              .samples = rates,
                              .sample_count = COLD,
                              .limit_samples = bench_disk_best(&disk),
                              .limit_sample_count = disk.rounds});
}

static void
report_warm(const char *const *argv, double seconds)
{
    const char *const name =
        "load 2.2 GB as NF4 + double quant, warm, against transformers";
    double times[ROUNDS];

    if (seconds <= 0) {
        bench_skip(name, "no transformers on this machine");
        return;
    }
    for (int round = 0; round < ROUNDS; round++) {
        bench_touch_memory(TOUCHED_BYTES);
        run_load(argv, model, false);
        times[round] = seconds / result.seconds;
    }
    bench_report(&(bench_row){.name = name,
                              .unit = "times",
                              .peer = 1,
                              .target = 30,
                              .is_higher_better = true,
                              .samples = times,
                              .sample_count = ROUNDS});
}

static void
report_loads(double transformers)
{
    const char *const plain[] = {berth, "load", model, "-m", "cpu=8GiB", "--json", NULL};
    const char *const nf4[] = {berth,      "load",   model, "-m",
                               "cpu=8GiB", "--type", "nf4", "--double-quant",
                               "--json",   NULL};
    const char *const checked[] = {berth,      "load",   model, "-m",
                                   "cpu=8GiB", "--type", "nf4", "--double-quant",
                                   "--check",  NULL};

    run_load(checked, model, false);
    report_cold("load 2.2 GB to host memory, cold", plain, 0.95);
    report_cold("load 2.2 GB as NF4 + double quant, cold", nf4, 0.9);
    report_warm(nf4, transformers);
}

/* All of it on a device that keeps checksums: what is left is the host's. */
static void
report_memory(void)
{
    const char *const argv[] = {berth,
                                "load",
                                model,
                                "-m",
                                "0=8GiB,cpu=8GiB",
                                "--devices",
                                "sim:9GiB,h2d=25GB/s,backing=digest",
                                "--json",
                                NULL};
    double first[ROUNDS];
    double peak = 0;
    double ring = 0;

    for (int round = 0; round < ROUNDS; round++) {
        run_load(argv, model, true);
        first[round] = 1e3 * bench_json_number(result.output, "first_seconds");
        ring = bench_json_number(result.output, "ring_bytes");
        if ((double)result.peak_bytes > peak)
            peak = (double)result.peak_bytes;
    }
    bench_report(
        &(bench_row){.name = "load onto a device, peak host memory beside the ring",
                     .unit = "MiB",
                     .value = (peak - ring) / (1 << 20),
                     .target = 64});
    bench_report(&(bench_row){.name = "load onto a device, first bytes there",
                              .unit = "ms",
                              .target = 50,
                              .samples = first,
                              .sample_count = ROUNDS});
}

/* Sparse files: no disk is in the way, what is timed is the loader. */
static double
take_sparse(const char *folder)
{
    const char *const argv[] = {berth,
                                "load",
                                folder,
                                "-m",
                                "0=16GiB,cpu=8GiB",
                                "--devices",
                                "sim:17GiB,h2d=100GB/s,backing=digest",
                                "--json",
                                NULL};

    run_load(argv, folder, true);
    return bench_json_number(result.output, "seconds");
}

/* Each of a pair is the first as often as the other. */
static void
report_many(const char *many, const char *one)
{
    const char *const folders[] = {many, one};
    double ratios[PAIRS];

    for (int round = 0; round < PAIRS; round++) {
        const int first = round % 2;
        double seconds[2];

        bench_touch_memory(RING_BYTES);
        seconds[first] = take_sparse(folders[first]);
        seconds[!first] = take_sparse(folders[!first]);
        ratios[round] = seconds[0] / seconds[1];
    }
    bench_report(&(bench_row){.name = "load 20,000 tensors of 300 KB against one",
                              .unit = "times",
                              .target = 1.03,
                              .samples = ratios,
                              .sample_count = PAIRS});
}

/* --------------------------------------------------------------------------- passes */

typedef struct passing {
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_plan *plan;
    berth_devices *devices;
    berth_model *loaded;
    void *stream;
    berth_plan_summary summary;
} passing;

static void
must(berth_status status, const berth_error *error)
{
    if (status != BERTH_OK)
        bench_die("%s", error->message);
}

/* A job that loads the model in `folder`; `words`: of devices, NULL: none. */
static berth_job *
begin_load(passing *p, const char *folder, const berth_plan_options *options,
           const char *words)
{
    berth_load_options load;
    berth_job *job;
    berth_error error;

    memset(p, 0, sizeof *p);
    must(berth_context_create(NULL, &p->context, &error), &error);
    must(berth_checkpoint_open(p->context, folder, NULL, &p->checkpoint, &error), &error);
    must(berth_plan_create(p->context, p->checkpoint, options, &p->plan, &error), &error);
    berth_plan_get(p->plan, &p->summary);
    berth_load_options_init(&load);
    if (words != NULL)
        must(berth_devices_open(p->context, words, &p->devices, &error), &error);
    load.devices = p->devices;
    must(berth_load_start(p->context, p->checkpoint, p->plan, &load, &job, &error),
         &error);
    return job;
}

static berth_plan_options
options_for(const char *max_memory)
{
    berth_plan_options options;

    berth_plan_options_init(&options);
    options.max_memory = max_memory;
    options.context = 0;
    options.reserve_share = BERTH_RESERVE_NONE;
    return options;
}

/* `slots` 0: as many as are best for a token; computing takes longer here. */
static void
begin(passing *p, const char *max_memory, const char *words, uint32_t slots)
{
    berth_plan_options options = options_for(max_memory);
    berth_error error;

    options.slots = slots;
    must(berth_load_finish(begin_load(p, model, &options, words), &p->loaded, &error), &error);
    if (words != NULL)
        must(berth_stream_create(p->devices, 0, &p->stream, &error), &error);
}

static void
end(passing *p)
{
    if (p->stream != NULL)
        berth_stream_destroy(p->devices, 0, p->stream);
    berth_model_destroy(p->loaded);
    berth_devices_close(p->devices);
    berth_plan_destroy(p->plan);
    berth_checkpoint_close(p->checkpoint);
    berth_context_destroy(p->context);
}

/* In the middle of it: until the job has ended and all is given back. */
static void
report_cancel(void)
{
    static const struct timespec a_while = {.tv_nsec = 200000000};
    berth_plan_options options = options_for("cpu=8GiB");
    double longest = 0;

    options.type = BERTH_ENCODING_NF4;
    options.double_quant = 1;
    for (int round = 0; round < ROUNDS; round++) {
        double begin_seconds;
        double seconds;
        berth_error error;
        berth_job *job;
        passing p;

        make_ready(model, true);
        job = begin_load(&p, model, &options, NULL);
        nanosleep(&a_while, NULL);
        begin_seconds = bench_now();
        berth_job_cancel(job);
        if (berth_load_finish(job, &p.loaded, &error) != BERTH_ECANCELLED)
            bench_die("a load was not cancelled: %s", error.message);
        seconds = bench_now() - begin_seconds;
        longest = seconds > longest ? seconds : longest;
        end(&p);
    }
    bench_report(&(bench_row){.name = "load as NF4, cancelled, the longest of five",
                              .unit = "ms",
                              .value = 1e3 * longest,
                              .target = 100});
}

static void
do_nothing(void *user)
{
    (void)user;
}

/* Acquired, computed for so long, released. */
static void
use_layer(passing *p, uint32_t layer, double seconds)
{
    berth_error error;

    must(berth_layer_acquire(p->loaded, layer, p->stream, &error), &error);
    if (p->devices != NULL)
        must(berth_stream_call(p->devices, 0, p->stream, do_nothing, NULL, seconds, &error),
             &error);
    must(berth_layer_release(p->loaded, layer, p->stream, &error), &error);
}

/* Every layer once; each is computed for so long. */
static void
pass(passing *p, double seconds)
{
    for (uint32_t layer = 0; layer < p->summary.layer_count; layer++)
        use_layer(p, layer, seconds);
}

/* Seconds of one of some passes in a row, by the devices' own clock. */
static double
take_passes(passing *p, double seconds)
{
    const uint32_t count = 8;
    double begin_seconds;
    berth_error error;

    pass(p, seconds);
    must(berth_stream_wait(p->devices, 0, p->stream, -1, &error), &error);
    begin_seconds = berth_devices_seconds(p->devices);
    for (uint32_t i = 0; i < count; i++)
        pass(p, seconds);
    must(berth_stream_wait(p->devices, 0, p->stream, -1, &error), &error);
    return (berth_devices_seconds(p->devices) - begin_seconds) / count;
}

/* A device with room for a third of the model; the rest comes over its link. */
static void
report_links(void)
{
    passing p;
    double copy, layers, seconds;

    begin(&p, "0=800MiB,cpu=8GiB", "sim:900MiB,h2d=25GB/s", 3);
    copy = (double)p.summary.link_bytes / LINK_RATE;
    layers = p.summary.layer_count;
    seconds = take_passes(&p, 0.05 * copy / layers);
    bench_report(&(bench_row){.name = "streamed pass, bound by a simulated link",
                              .unit = "share of the link",
                              .value = copy / seconds,
                              .target = 0.97,
                              .is_higher_better = true});
    seconds = take_passes(&p, 2 * copy / layers);
    bench_report(&(bench_row){.name = "streamed pass, bound by simulated computing",
                              .unit = "times",
                              .value = seconds / (2 * copy),
                              .target = 1.03});
    seconds = take_passes(&p, 0.9 * copy / layers);
    bench_report(&(bench_row){.name = "streamed pass, near balance, against its bound",
                              .unit = "times",
                              .value = seconds / copy,
                              .target = 1.05});
    end(&p);
}

/* Host time of acquiring a layer that is resident, and of giving it back. */
static double
take_resident(passing *p, uint32_t passes)
{
    double begin_seconds;

    pass(p, 1e-3);
    begin_seconds = bench_now();
    for (uint32_t i = 0; i < passes; i++)
        pass(p, 1e-3);
    return (bench_now() - begin_seconds) / (passes * (double)p->summary.layer_count);
}

/* Through slots: of an embedding that is away, rows are fetched one by one. */
static bool
is_streamed(const passing *p, uint32_t layer)
{
    berth_plan_layer about;

    if (berth_plan_get_layer(p->plan, layer, &about) != BERTH_OK)
        bench_die("a layer is none of the plan's");
    return about.link_bytes > 0 && about.link_bytes == about.bytes - about.resident_bytes;
}

/* The same of streamed ones, which resident ones lie between; release asks for a copy. */
static double
take_streamed(passing *p, uint32_t passes)
{
    double seconds = 0;
    uint64_t count = 0;

    pass(p, 1e-3);
    for (uint32_t i = 0; i < passes * p->summary.layer_count; i++) {
        const uint32_t layer = i % p->summary.layer_count;
        const double begin_seconds = bench_now();
        double taken;

        use_layer(p, layer, 1e-3);
        taken = bench_now() - begin_seconds;
        if (!is_streamed(p, layer))
            continue;
        seconds += taken;
        count++;
    }
    return seconds / (double)count;
}

static void
report_leases(void)
{
    double samples[ROUNDS];
    passing p;

    begin(&p, "cpu=8GiB", NULL, 0);
    bench_report(&(bench_row){.name = "acquire and release a resident layer, each",
                              .unit = "ns",
                              .value = 1e9 / 2 * take_resident(&p, 40000),
                              .target = 200});
    end(&p);
    begin(&p, "0=800MiB,cpu=8GiB", "sim:900MiB,h2d=25GB/s", 0);
    /* In rounds: once off the processor for a while costs as much as thousands of layers. */
    for (int round = 0; round < ROUNDS; round++)
        samples[round] = 1e6 * take_streamed(&p, 20);
    bench_report(&(bench_row){.name = "acquire, use and release a streamed layer",
                              .unit = "us",
                              .samples = samples,
                              .sample_count = ROUNDS,
                              .target = 10});
    end(&p);
}

/* Layers that lie on the disk, for a processor that has no room for them. */
static void
report_disk(const char *name, const char *folder)
{
    static const char *const pins[] = {"model.layers=disk"};
    berth_plan_options options = options_for("cpu=8GiB,disk=inf");
    bench_disk disk = {.folder = limits};
    berth_lease_summary before, after;
    double rates[COLD];
    berth_error error;
    passing p;

    options.pins = pins;
    options.pin_count = 1;
    must(berth_load_finish(begin_load(&p, folder, &options, NULL), &p.loaded, &error),
         &error);
    pass(&p, 0);
    measure_disk(&disk, folder);
    for (int round = 0; round < COLD; round++) {
        const double begin_seconds = bench_now();

        berth_model_leases(p.loaded, &before);
        pass(&p, 0);
        berth_model_leases(p.loaded, &after);
        rates[round] = (double)(after.disk_bytes - before.disk_bytes) /
                       (bench_now() - begin_seconds);
        measure_disk(&disk, folder);
    }
    bench_report(&(bench_row){.name = name,
                              .unit = "B/s",
                              .target = 0.9,
                              .is_higher_better = true,
                              .samples = rates,
                              .sample_count = COLD,
                              .limit_samples = bench_disk_best(&disk),
                              .limit_sample_count = disk.rounds});
    end(&p);
}

/* As it is, and as `berth quantize` stores it, which is `quantized` then. */
static void
report_disks(const char *quantized)
{
    const char *const argv[] = {berth, "quantize",       model, quantized, "--type",
                                "nf4", "--double-quant", "-f",  NULL};

    report_disk("streamed pass from the disk, cold", model);
    bench_command(argv, &result);
    if (result.status != 0)
        bench_die("berth quantize ended with %d: %s", result.status, result.output);
    report_disk("streamed pass from the disk, NF4, cold", quantized);
}

/* ---------------------------------------------------------------------------- sleep */

/* Bytes a second that memcpy() brings into memory that is new, as that of a sleep is. */
static double
take_copy_limit(void)
{
    const size_t bytes = (size_t)1 << 30;
    static void *from;
    double begin_seconds;
    double seconds;
    void *to;

    if (from == NULL) {
        from = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                    0);
        if (from == MAP_FAILED)
            bench_die("no memory to copy from");
        memset(from, 1, bytes);
    }
    begin_seconds = bench_now();
    to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED)
        bench_die("no memory to copy to");
    memcpy(to, from, bytes);
    seconds = bench_now() - begin_seconds;
    munmap(to, bytes);
    return (double)bytes / seconds;
}

/* Returns the bytes that were carried. */
static double
take_move(const passing *p,
          berth_status (*start)(berth_model *model, const berth_move_options *options,
                                berth_job **out_job, berth_error *error))
{
    berth_move_options options;
    berth_move_report report;
    berth_error error;
    berth_job *job;

    berth_move_options_init(&options);
    options.report = &report;
    must(start(p->loaded, &options, &job, &error), &error);
    must(berth_job_finish(job, &error), &error);
    return (double)report.carried_bytes;
}

/* The processor as the device: both sides of the copies are host memory. */
static void
report_sleep(void)
{
    double rates[ROUNDS];
    double limit[LIMITS];
    uint32_t crc[2];
    berth_error error;
    passing p;

    begin(&p, "0=8GiB", "cpu", 0);
    must(berth_model_digest(p.loaded, 0, &crc[0], &error), &error);
    limit[0] = take_copy_limit();
    for (int round = 0; round < ROUNDS; round++) {
        const double begin_seconds = bench_now();
        double bytes = take_move(&p, berth_model_sleep_start);

        bytes += take_move(&p, berth_model_wake_start);
        rates[round] = bytes / (bench_now() - begin_seconds);
        limit[round + 1] = take_copy_limit();
    }
    must(berth_model_digest(p.loaded, 0, &crc[1], &error), &error);
    if (crc[0] != crc[1])
        bench_die("sleep and wake: other bytes than before");
    bench_report(
        &(bench_row){.name = "sleep and wake on host memory, against memcpy to new memory",
                     .unit = "B/s",
                     .target = 0.8,
                     .is_higher_better = true,
                     .samples = rates,
                     .sample_count = ROUNDS,
                     .limit_samples = limit,
                     .limit_sample_count = LIMITS});
    end(&p);
}

/* --------------------------------------------------------------------------- decode */

static double
take_memory_limit(void)
{
    char program[4200];
    const char *const argv[] = {program, "-w", "read", "-r", "1", NULL};

    snprintf(program, sizeof program, "%s/limit_memory", limits);
    bench_command(argv, &result);
    if (result.status != 0)
        bench_die("limit_memory ended with %d", result.status);
    return 1e9 * bench_json_number(result.output, "read_gbs");
}

/*
 * Packed bytes that are read for the tokens of a second. Its tokens at the same bytes: those of
 * llama.cpp are fewer, as it quantizes the head, too.
 */
static void
report_decoding(double peer)
{
    const char *const versus =
        "decode on the processor, NF4, against llama.cpp's Q4_0 at the same packed bytes";
    const char *const argv[] = {
        llama,    "--quiet", "--json",       "--tokens", "1,2,3", "--generate", "48",
        "--type", "nf4",     "--max-memory", "cpu=8GiB", model,   NULL};
    double rates[ROUNDS];
    double tokens[ROUNDS];
    double limit[LIMITS];
    double token_bytes = 1;

    make_ready(model, false);
    limit[0] = take_memory_limit();
    for (int round = 0; round < ROUNDS; round++) {
        bench_command(argv, &result);
        if (result.status != 0)
            bench_die("berth-llama ended with %d: %s", result.status, result.output);
        tokens[round] = bench_json_number(result.output, "tokens_per_second");
        token_bytes = bench_json_number(result.output, "token_bytes");
        rates[round] = tokens[round] * token_bytes;
        limit[round + 1] = take_memory_limit();
    }
    bench_report(&(bench_row){.name = "decode on the processor, NF4, packed bytes",
                              .unit = "B/s",
                              .target = 0.45,
                              .is_higher_better = true,
                              .samples = rates,
                              .sample_count = ROUNDS,
                              .limit_samples = limit,
                              .limit_sample_count = LIMITS});
    if (peer <= 0) {
        bench_skip(versus, "no llama.cpp on this machine");
        return;
    }
    bench_report(
        &(bench_row){.name = versus,
                     .unit = "tokens/s",
                     .peer = peer / token_bytes,
                     .target = peer / token_bytes,
                     .is_higher_better = true,
                     .samples = tokens,
                     .sample_count = ROUNDS});
}

/* ----------------------------------------------------------------------------- main */

int
main(int argc, char **argv)
{
    const char *rows = NULL;
    double transformers = 0;
    double decoded = 0;
    int option;

    while ((option = getopt(argc, argv, "o:p:d:")) != -1) {
        if (option == 'o')
            rows = optarg;
        else if (option == 'p')
            transformers = strtod(optarg, NULL);
        else if (option == 'd')
            decoded = strtod(optarg, NULL);
        else
            return 2;
    }
    if (optind != argc - 7)
        bench_die(
            "usage: bench_load [-o ROWS] [-p SECONDS] [-d BYTES] BERTH LLAMA LIMITS "
            "MODEL NF4 MANY ONE");
    bench_begin(rows);
    berth = argv[optind];
    llama = argv[optind + 1];
    limits = argv[optind + 2];
    model = argv[optind + 3];
    report_loads(transformers);
    report_memory();
    report_many(argv[optind + 5], argv[optind + 6]);
    report_links();
    report_leases();
    report_cancel();
    report_disks(argv[optind + 4]);
    report_sleep();
    report_decoding(decoded);
    return 0;
}
