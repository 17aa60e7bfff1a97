/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_device.c - loads onto simulated devices, and passes over what was loaded:
 * every byte of every layer, when and where it is used.
 */
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/passed.h"
#include "tests/t.h"

#define LAYERS       6u
#define MOST_DEVICES 8u
#define KIB          UINT64_C(1024)
#define MIB          (KIB * KIB)

/* ---------------------------------------------------------------------------- loads */

/* What a device has given away, by its own count, is what the plan has of it. */
static void
check_given(const loaded *l)
{
    uint32_t number = 0;

    for (uint32_t t = 0; t < l->p.summary.tier_count; t++) {
        berth_plan_tier tier;
        berth_device device;
        uint64_t slab;

        CHECK_EQ(berth_plan_get_tier(l->p.plan, t, &tier), BERTH_OK);
        if (tier.kind != BERTH_TIER_GPU)
            continue;
        slab = tier.weights + tier.slots + tier.expert_slots + tier.scratch;
        CHECK_EQ(berth_devices_get(l->devices, number++, &device), BERTH_OK);
        CHECK_EQ(device.memory_bytes - device.free_bytes,
                 (slab + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
    }
}

/* Loads, compares with `folder`, and passes over the layers. Returns tensors looked at.
 */
static uint64_t
check_load(const char *source, const char *folder, berth_plan_options *options,
           const char *words, berth_lease_summary *leases)
{
    berth_check_report report;
    uint64_t looked = 0;
    loaded l;

    loaded_begin(&l, source, options, words);
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s", l.error.message);
    if (l.status == BERTH_OK) {
        CHECK_EQ(l.report.planned_bytes, l.report.allocated_bytes);
        check_given(&l);
        loaded_check(&l, folder);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        looked = passed(&l, 3);
        berth_model_leases(l.model, leases);
        CHECK_EQ(l.p.summary.berth_count, report.tensors);
    }
    loaded_end(&l);
    return looked;
}

static void
test_resident(void)
{
    static const char *const clocks[] = {"virtual", "real"};
    const char *const source = loaded_llama(LAYERS, "BF16", 2);

    for (uint32_t i = 0; i < 2; i++) {
        berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
        const char *const words =
            fixture_format("sim:64MiB,h2d=25GB/s,clock=%s,backing=sealed", clocks[i]);
        berth_lease_summary leases;

        CHECK_EQ(check_load(source, source, &options, words, &leases), 6 * 10 + 3);
        CHECK_EQ(leases.acquired, 0);
        options.type = BERTH_ENCODING_NF4;
        options.double_quant = 1;
        CHECK_EQ(check_load(source, loaded_quantized(source, &options), &options, words,
                            &leases),
                 6 * 10 + 3);
    }
}

/*
 * Values are copied while those before them are encoded: 72 MiB take 360 ms by either, and a
 * load that did one after the other would take 720. This one takes 540 at most, whenever its
 * workers ask, by a clock that waits for them.
 */
static void
test_encoding_beside_copies(void)
{
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    double seconds;
    loaded l;

    options.type = BERTH_ENCODING_NF4;
    loaded_begin(&l, loaded_large(8, 1), &options,
                 "sim:64MiB,h2d=209MB/s,memory=268MB/s,latency=0ns");
    seconds = berth_devices_seconds(l.devices);
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_OK);
    seconds = berth_devices_seconds(l.devices) - seconds;
    T_NOTE("%.0f ms", 1e3 * seconds);
    CHECK(seconds < 0.6);
    loaded_end(&l);
}

/* Rows that are encoded whole, and take the places of two pieces; others come in turn. */
static void
test_long_rows(void)
{
    static const char *const clocks[] = { "virtual", "real,pick=random,jitter=50%" };
    const char *const source = loaded_long();

    for (uint32_t i = 0; i < 2; i++) {
        berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
        berth_lease_summary leases;

        options.type = BERTH_ENCODING_INT8;
        CHECK_EQ(check_load(source, loaded_quantized(source, &options), &options,
                            fixture_format("sim:64MiB,clock=%s,backing=sealed", clocks[i]),
                            &leases),
                 10 + 3);
    }
}

/* A layer has 9.01 MiB in BF16, all but 12 KiB of it in matrices. */
static void
test_streamed_from_host(void)
{
    static const char *const words[] = {
        "sim:32MiB,h2d=5GB/s,backing=sealed",
        "sim:32MiB,h2d=5GB/s,clock=real,backing=sealed",
        "sim:22MiB,backing=sealed;sim:22MiB,backing=sealed",
    };
    static const char *const budgets[] = {"0=32MiB,cpu=64MiB", "0=32MiB,cpu=64MiB",
                                          "0=22MiB,1=22MiB,cpu=64MiB"};
    const char *const source = loaded_large(LAYERS, 2);

    for (uint32_t i = 0; i < 3; i++) {
        berth_plan_options options = loaded_options(budgets[i]);
        berth_lease_summary leases;

        CHECK_EQ(check_load(source, source, &options, words[i], &leases),
                 6 * 10 + 2); /* not the embedding */
        CHECK_GT(leases.acquired, 3 * 2);
        CHECK_GT(leases.copied_bytes, 3 * 9 * MIB);
        CHECK_EQ(leases.disk_bytes, 0);
        CHECK_EQ(leases.order_misses, 0);
    }
}

static void
test_streamed_from_disk(void)
{
    static const char *const words[] = {"sim:32MiB", NULL};
    static const char *const budgets[] = {"0=32MiB,cpu=2MiB,disk=inf",
                                          "cpu=32MiB,disk=inf"};
    const char *const source = loaded_large(LAYERS, 2);

    for (uint32_t i = 0; i < 2; i++) {
        berth_plan_options options = loaded_options(budgets[i]);
        berth_lease_summary leases;

        CHECK_EQ(check_load(source, source, &options, words[i], &leases),
                 6 * 10 + 2); /* not the embedding */
        CHECK_GT(leases.disk_bytes, 3 * 9 * MIB);
        CHECK_EQ(leases.order_misses, 0);
    }
}

/* --------------------------------------------------------------------- many devices */

#define PINS (MOST_DEVICES + 2u)

/* "sim:..;sim:..", or "0=64MiB,1=64MiB": one of these for each device. */
static const char *
for_each_device(uint32_t devices, const char *separator, const char *format)
{
    const char *text = "";

    for (uint32_t d = 0; d < devices; d++)
        text = fixture_format("%s%s%s", text, d > 0 ? separator : "",
                              fixture_format(format, d));
    return text;
}

/*
 * As many layers on each device, and of every layer some parts are resident, one lies in
 * host memory, and one on the disk, where there is one: each device gets all of them.
 */
static void
check_devices(const char *source, const char *folder, berth_plan_options *options,
              uint32_t devices, bool has_disk)
{
    const char *pins[PINS];
    uint32_t count = 0;
    berth_lease_summary leases;

    for (uint32_t i = 0; i < MOST_DEVICES; i++)
        pins[count++] = fixture_format("model.layers.%u.input_layernorm=cuda:%u", i,
                                       i * devices / MOST_DEVICES);
    pins[count++] = "model.layers.*.mlp.up_proj=cpu";
    if (has_disk)
        pins[count++] = "model.layers.*.mlp.down_proj=disk";
    options->pins = pins;
    options->pin_count = count;
    options->max_memory =
        fixture_format("%s,cpu=64MiB%s", for_each_device(devices, ",", "%u=64MiB"),
                       has_disk ? ",disk=inf" : "");
    CHECK_EQ(check_load(source, folder, options,
                        for_each_device(devices, ";", "sim:64MiB,backing=sealed,root=%u"),
                        &leases),
             MOST_DEVICES * 10 + 3);
    CHECK_EQ(leases.acquired, 3 * MOST_DEVICES);
    CHECK_EQ(leases.disk_bytes > 0, has_disk);
    CHECK_EQ(leases.order_misses, 0);
}

static void
test_on_any_number_of_devices(void)
{
    const char *const source = loaded_llama(MOST_DEVICES, "BF16", 2);
    berth_plan_options encoded = loaded_options("");
    berth_plan_options plain = loaded_options("");
    const char *folder;

    encoded.type = BERTH_ENCODING_NF4;
    encoded.double_quant = 1;
    folder = loaded_quantized(source, &encoded);
    for (uint32_t devices = 1; devices <= MOST_DEVICES; devices++) {
        check_devices(source, folder, &encoded, devices, false);
        check_devices(source, source, &plain, devices, true);
    }
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_resident);
    T_RUN(test_encoding_beside_copies);
    T_RUN(test_long_rows);
    T_RUN(test_streamed_from_host);
    T_RUN(test_streamed_from_disk);
    T_RUN(test_on_any_number_of_devices);
    return t_end();
}
