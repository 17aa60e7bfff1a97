/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of optimizers: on the processor against memcpy and bitsandbytes, states that come
 * and go on a simulated device against its links, bytes that are kept of a parameter.
 *
 *   bench_train [-o ROWS] [-p G] LIMITS
 *
 * LIMITS is the folder of limit_memory; G what bitsandbytes updates on this machine, in
 * elements a nanosecond. What a step makes is compared with the plain loops first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/device.h"
#include "kernels/optimizer.h"
#include "tests/bench/bench.h"

#define ROUNDS 9
#define LARGE (UINT64_C(64) << 20) /* elements: 128 MiB of bf16, as much of states */
#define CHECKED 100000u
/* Memory that rested while the limit was taken comes slowly, whoever asks for it (48 ms, 41,
   34, 34, ...): a step follows others, as the copies do that it is compared with. */
#define WARMING 3
/* Of an element: value and codes in and out, gradient in; absmax of both, in and out. */
#define MOVED_BYTES (2 + 2 + 2 + 4 + 16.0 / 256)
#define PAGED (UINT64_C(256) << 20)
#define LINK "sim:4GiB,h2d=25GB/s,d2h=25GB/s,memory=2TB/s,latency=5us"

static berth_context *context;

static berth_optimizer *
create(berth_devices *devices, uint64_t count, void *values, int32_t place)
{
    const berth_parameter parameter = {
        .name = "w", .shape = &count, .rank = 1, .dtype = BERTH_BF16, .values = values
    };
    berth_optimizer_options options;
    berth_optimizer_group group;
    berth_optimizer *optimizer;
    berth_error error;

    if (berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW) != BERTH_OK)
        bench_die("no AdamW");
    group.place = place;
    berth_optimizer_options_init(&options);
    options.devices = devices;
    if (berth_optimizer_create(context, &group, 1, &parameter, 1, &options, &optimizer,
                               &error)
        != BERTH_OK)
        bench_die("an optimizer: %s", error.message);
    return optimizer;
}

static void
step(berth_optimizer *optimizer, const void *gradients)
{
    const berth_gradient gradient = { .values = gradients, .dtype = BERTH_BF16 };
    berth_step_report report;
    berth_step_options options;
    berth_error error;

    berth_step_options_init(&options);
    options.report = &report;
    if (berth_optimizer_step(optimizer, &gradient, &options, &error) != BERTH_OK)
        bench_die("a step: %s", error.message);
}

/* -------------------------------------------------------------------- the processor */

static uint16_t *
make(uint64_t count, uint32_t random, float size)
{
    uint16_t *const values = aligned_alloc(4096, count * sizeof *values);

    if (values == NULL)
        bench_die("out of memory");
    for (uint64_t i = 0; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        values[i] = berthi_core_to_bf16(((float)(random >> 8) / 16777216.0f - 0.5f) * size);
    }
    return values;
}

/* Three steps of a small parameter, by the plain loops as well. */
static void
check(void)
{
    uint16_t *const values = make(CHECKED, 1, 2.0f);
    uint16_t *const expected = make(CHECKED, 1, 2.0f);
    uint16_t *const gradients = make(CHECKED, 2, 0.1f);
    const berthi_update_settings s = berthi_update_defaults(BERTHI_UPDATE_ADAMW);
    berthi_update_arguments a = { .count = CHECKED,
                                  .parameter = expected,
                                  .dtype = BERTH_BF16,
                                  .gradient_dtype = BERTH_BF16,
                                  .gradient = gradients };
    berth_optimizer *const optimizer = create(NULL, CHECKED, values, BERTH_STATES_DEVICE);

    for (int k = 0; k < 2; k++) {
        a.state[k].codes = calloc(CHECKED, 1);
        a.state[k].absmax = calloc(CHECKED / 256 + 1, sizeof(float));
    }
    for (uint64_t i = 1; i <= 3; i++) {
        const berthi_update_constants c = berthi_update_constants_of(&s, i);

        step(optimizer, gradients);
        (void)berthi_update_plainly(&a, &c);
    }
    if (memcmp(values, expected, CHECKED * sizeof *values) != 0)
        bench_die("an update is not what the plain loops make of it");
    berth_optimizer_destroy(optimizer);
    for (int k = 0; k < 2; k++) {
        free(a.state[k].codes);
        free(a.state[k].absmax);
    }
    free(values);
    free(expected);
    free(gradients);
}

static double
bench_processor(const char *folder)
{
    uint16_t *const values = make(LARGE, 1, 2.0f);
    uint16_t *const gradients = make(LARGE, 2, 0.1f);
    berth_optimizer *const optimizer = create(NULL, LARGE, values, BERTH_STATES_DEVICE);
    double rates[ROUNDS];
    double limits[ROUNDS];
    bench_limit copy;

    step(optimizer, gradients);
    copy = bench_limit_begin(folder, "copy", "copy_gbs");
    for (int i = 0; i < ROUNDS; i++) {
        double begin;

        for (int k = 0; k < WARMING; k++)
            step(optimizer, gradients);
        begin = bench_now();
        step(optimizer, gradients);
        rates[i] = (double)LARGE * MOVED_BYTES / (bench_now() - begin) * 1e-9;
        limits[i] = bench_limit_around(&copy);
    }
    berth_optimizer_destroy(optimizer);
    free(values);
    free(gradients);
    bench_report(&(bench_row){ .name = "AdamW, states of 8 bits, all cores",
                               .unit = "GB/s",
                               .limit = bench_median(limits, ROUNDS),
                               .target = 0.70,
                               .is_higher_better = true,
                               .samples = rates,
                               .sample_count = ROUNDS,
                               .limit_samples = limits,
                               .limit_sample_count = ROUNDS });
    return bench_median(rates, ROUNDS) / MOVED_BYTES;
}

static void
report_times(double rate, double peer)
{
    const char *const name = "AdamW, states of 8 bits, against bitsandbytes";

    if (peer <= 0)
        bench_skip(name, "no bitsandbytes here");
    else
        bench_report(&(bench_row){ .name = name,
                                   .unit = "times",
                                   .value = rate / peer,
                                   .peer = peer,
                                   .target = 10,
                                   .is_higher_better = true });
}

/* ---------------------------------------------------------------- a simulated link */

/* Seconds of the device's own clock: nothing of the optimizer counts them. */
static double
time_step(berth_devices *devices, berth_optimizer *optimizer, const void *gradients)
{
    const double begin = berth_devices_seconds(devices);

    step(optimizer, gradients);
    return berth_devices_seconds(devices) - begin;
}

static void
bench_paged(void)
{
    berthi_device *device;
    berth_devices *devices;
    berth_optimizer *resident;
    berth_optimizer *paged;
    void *memory = NULL;
    double seconds;
    double update;
    double copies;
    double limit;

    if (berth_devices_open(context, LINK, &devices, NULL) != BERTH_OK)
        bench_die("no simulated device");
    device = berthi_devices_at(devices, 0);
    if (device->table->alloc(device, PAGED * 4, &memory, NULL) != BERTH_OK
        || device->table->clear(device, memory, PAGED * 4, NULL, NULL) != BERTH_OK)
        bench_die("no memory on a simulated device");
    resident = create(devices, PAGED, memory, BERTH_STATES_DEVICE);
    update = time_step(devices, resident, (uint8_t *)memory + PAGED * 2);
    berth_optimizer_destroy(resident);
    paged = create(devices, PAGED, memory, BERTH_STATES_HOST);
    seconds = time_step(devices, paged, (uint8_t *)memory + PAGED * 2);
    /* Both ways at once, each of them at 25 GB/s. */
    copies = (double)PAGED * (2 + 8.0 / 256) / 25e9;
    limit = update > copies ? update : copies;
    berth_optimizer_destroy(paged);
    device->table->free(device, memory, PAGED * 4);
    berth_devices_close(devices);
    bench_report(&(bench_row){ .name = "AdamW, states paged over a simulated link",
                               .unit = "s",
                               .value = seconds,
                               .limit = limit,
                               .target = 1.05 });
}

/* ------------------------------------------------------------------------------ bytes */

static void
report_bytes(void)
{
    const uint64_t shape[] = { 8192, 8192 };
    const berth_parameter parameter = {
        .name = "w", .shape = shape, .rank = 2, .dtype = BERTH_BF16
    };
    berth_optimizer_memory memory;
    berth_optimizer_group group;

    if (berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW) != BERTH_OK
        || berth_optimizer_plan(context, &group, 1, &parameter, 1, NULL, 0, &memory, NULL)
               != BERTH_OK)
        bench_die("no plan of an optimizer");
    bench_report(&(bench_row){
        .name = "AdamW, states of 8 bits, of a parameter",
        .unit = "bytes",
        .value = (double)memory.states[BERTH_STATES_DEVICE] / (double)memory.elements,
        .target = 2.04 });
}

int
main(int argc, char **argv)
{
    const char *rows = NULL;
    const char *folder = NULL;
    double peer = 0;
    double rate;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc)
            rows = argv[++i];
        else if (strcmp(argv[i], "-p") == 0 && i + 1 < argc)
            peer = strtod(argv[++i], NULL);
        else
            folder = argv[i];
    }
    if (folder == NULL)
        bench_die("bench_train [-o ROWS] [-p G] LIMITS");
    bench_begin(rows);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        bench_die("no context");
    check();
    rate = bench_processor(folder);
    report_times(rate, peer);
    bench_skip("AdamW, states of 8 bits, on a GPU", "no GPU here");
    bench_paged();
    report_bytes();
    berth_context_destroy(context);
    return 0;
}
