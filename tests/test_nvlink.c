/* SPDX-License-Identifier: Apache-2.0 */
/* test_nvlink.c - what the driver tells of NVLink, and what becomes of what it refuses. */
#include "kernels/nvlink.h"

#include <string.h>

#include "tests/fake_cuda.h"
#include "tests/fake_nvml.h"
#include "tests/rig.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

static const fake_nvml_gpu hopper = { .address = "00000000:3b:00.0", .links = 18, .version = 6,
                                      .mb_per_s = 26562 };
/* Ten links to the host, of which one is down. */
static const fake_nvml_gpu grace = { .address = "00000000:3c:00.0", .links = 18, .version = 6,
                                     .mb_per_s = 26562, .c2c_links = 10, .c2c_down = 1 << 3,
                                     .c2c_mb_per_s = 44712 };

/* As for the device at 3b:00.0, or 3c:00.0. */
static berthi_nvlinks
links_at(uint32_t bus)
{
    berthi_nvlinks links;
    berthi_nvml_calls calls;

    memset(&links, 0xFF, sizeof links);
    if (!CHECK(fake_nvml_open(&calls)) || calls.start() != BERTHI_NVML_OK)
        return (berthi_nvlinks){ .links = 0 };
    berthi_nvlinks_read(&calls, 0, bus, 0, &links);
    (void)calls.end();
    CHECK_EQ(fake_nvml_read().started, 0);
    CHECK_EQ(fake_nvml_read().misuses, 0);
    return links;
}

static berthi_nvlinks
links_of(const fake_nvml_gpu *gpu)
{
    fake_nvml_begin(gpu, 1);
    return links_at(0x3b);
}

static void
check_links(berthi_nvlinks links, uint32_t count, uint32_t version, uint32_t mb_per_s)
{
    CHECK_EQ(links.links, count);
    CHECK_EQ(links.version, version);
    CHECK_EQ(links.mb_per_s, mb_per_s);
}

static void
test_links(void)
{
    fake_nvml_gpu gpu = hopper;

    check_links(links_of(&gpu), 18, 40, 26562);
    CHECK_EQ(links_at(0x3b).c2c_mb_per_s, 0);
    gpu.down = 1 << 17 | 1 << 2;
    check_links(links_of(&gpu), 16, 40, 26562);
    gpu.is_uncounted = true;
    check_links(links_of(&gpu), 16, 40, 26562);
    gpu.down = (1 << 18) - 1;
    check_links(links_of(&gpu), 0, 0, 0);
    gpu = hopper;
    gpu.links = 0;
    check_links(links_of(&gpu), 0, 0, 0);
    gpu.is_uncounted = true;
    check_links(links_of(&gpu), 0, 0, 0);
    gpu.links = 64; /* more than there are bits for would be a wrong answer */
    check_links(links_of(&gpu), 64, 40, 26562);
}

/* Drivers and GPUs before Hopper have calls for links, and one speed for all. */
static void
test_old(void)
{
    static const uint16_t versions[] = { 0, 10, 20, 22, 30, 31, 40, 50, 60, 0 };
    fake_nvml_gpu gpu = { .address = "00000000:3b:00.0", .links = 12, .mb_per_s = 25000,
                          .down = 1 << 11, .is_old = true };

    for (uint32_t v = 0; v < sizeof versions / sizeof *versions; v++) {
        gpu.version = v;
        check_links(links_of(&gpu), 11, versions[v], 25000);
    }
}

static void
test_types(void)
{
    fake_nvml_gpu gpu = hopper;

    gpu.type = BERTHI_NVML_LONG;
    check_links(links_of(&gpu), 18, 40, 26562);
    gpu.type = BERTHI_NVML_U64;
    check_links(links_of(&gpu), 18, 40, 26562);
    gpu.type = 6; /* then only calls tell */
    check_links(links_of(&gpu), 18, 40, 0);
    gpu.type = BERTHI_NVML_U32;
    gpu.mb_per_s = UINT32_MAX;
    check_links(links_of(&gpu), 18, 40, 0);
}

static void
test_chip_to_chip(void)
{
    fake_nvml_gpu gpus[2] = { hopper, grace };

    fake_nvml_begin(gpus, 2);
    CHECK_EQ(links_at(0x3c).c2c_mb_per_s, 9 * 44712);
    CHECK_EQ(links_at(0x3b).c2c_mb_per_s, 0);
    check_links(links_at(0x3d), 0, 0, 0); /* another GPU */
    gpus[1].c2c_mb_per_s = INT32_MAX;
    CHECK_EQ(links_at(0x3c).c2c_mb_per_s, UINT32_MAX);
    gpus[1].c2c_down = (1 << 10) - 1;
    CHECK_EQ(links_at(0x3c).c2c_mb_per_s, 0);
}

/* What is known is right, or not known at all; a link can be missing among many. */
static void
check_some(berthi_nvlinks links)
{
    CHECK(links.links == 0 || links.links == 17 || links.links == 18);
    CHECK(links.version == 0 || links.version == 40);
    CHECK(links.mb_per_s == 0 || links.mb_per_s == 26562);
    CHECK(links.c2c_mb_per_s % 44712 == 0 && links.c2c_mb_per_s <= 9 * 44712);
}

static void
test_every_call_fails(void)
{
    uint64_t nth = 0;

    fake_nvml_begin(&grace, 1);
    do {
        fake_nvml_fail(nth, false);
        check_some(links_at(0x3c));
    } while (fake_nvml_read().failures > 0 && ++nth < 1000);
    CHECK_EQ(nth, 1 + 1 + 1 + 18 + 1 + 1 + 1 + 10 + 9 + 1);
    for (uint64_t from = 0; from < nth; from++) {
        const berthi_nvlinks links = (fake_nvml_fail(from, true), links_at(0x3c));

        CHECK_LE(links.links, 18);
        CHECK(links.version == 0 || links.version == 40);
        CHECK(links.mb_per_s == 0 || links.mb_per_s == 26562);
        CHECK_LE(links.c2c_mb_per_s, 9 * 44712);
    }
    fake_nvml_disarm();
    check_links(links_at(0x3c), 18, 40, 26562);
}

/* On most machines there is none; where there is, its calls are those of the table. */
static void
test_library(void)
{
    berthi_nvml_calls calls;

    memset(&calls, 0xFF, sizeof calls);
    if (berthi_nvml_open(&calls)) {
        CHECK(calls.start != NULL && calls.end != NULL && calls.fields != NULL);
        if (calls.start() == BERTHI_NVML_OK)
            CHECK_EQ(calls.end(), BERTHI_NVML_OK);
    } else {
        CHECK(calls.start == NULL && calls.end == NULL && calls.fields == NULL);
    }
}

/* ------------------------------------------------------------------------- of devices */

static const fake_cuda_machine two = { .count = 2, .driver = 13000, .architecture = 90,
                                       .memory_bytes = 64 * MIB };

/* As users see them. */
static berth_device
device_at(const rig *r, uint32_t number)
{
    berth_device device;

    CHECK_EQ(berth_devices_get(r->devices, number, &device), BERTH_OK);
    return device;
}

static void
test_devices(void)
{
    const fake_nvml_gpu gpus[] = { grace, hopper }; /* the driver's order is another one */
    rig r;

    fake_nvml_begin(gpus, 2);
    fake_cuda_begin(&two);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    CHECK_EQ(fake_nvml_read().opened, 0); /* until somebody asks */
    CHECK_EQ(device_at(&r, 0).c2c_mb_per_s, 0);
    CHECK_EQ(device_at(&r, 1).c2c_mb_per_s, 9 * 44712);
    for (uint32_t i = 0; i < 2; i++) {
        const berth_device device = device_at(&r, i);

        CHECK_EQ(device.nvlink_links, 18);
        CHECK_EQ(device.nvlink_version, 40);
        CHECK_EQ(device.nvlink_mb_per_s, 26562);
        CHECK_EQ(device.copy_engines, 3);
        CHECK_EQ(device.reserved32, 0);
    }
    CHECK_EQ(fake_nvml_read().starts, 1);
    CHECK_EQ(fake_nvml_read().started, 0);
    rig_close(&r);
    fake_cuda_end();
}

/* Without the library, or one that does not start, the rest is told all the same. */
static void
test_devices_without(void)
{
    rig r;

    for (uint32_t has_library = 0; has_library < 2; has_library++) {
        fake_nvml_begin(&hopper, has_library);
        fake_nvml_fail(0, true);
        fake_cuda_begin(&two);
        T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
        CHECK_EQ(device_at(&r, 0).nvlink_links, 0);
        CHECK_EQ(device_at(&r, 0).nvlink_mb_per_s, 0);
        CHECK_EQ(device_at(&r, 0).copy_engines, 3);
        CHECK_STR(device_at(&r, 0).name, "cuda:0");
        CHECK_EQ(fake_nvml_read().opened, 1);
        CHECK_EQ(fake_nvml_read().misuses, 0);
        rig_close(&r);
        fake_cuda_end();
    }
}

static void
test_others(void)
{
    rig r;

    T_REQUIRE(rig_open(&r, "cpu"));
    CHECK_EQ(device_at(&r, 0).nvlink_links, 0);
    CHECK_EQ(device_at(&r, 0).copy_engines, 0);
    rig_close(&r);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_links);
    T_RUN(test_old);
    T_RUN(test_types);
    T_RUN(test_chip_to_chip);
    T_RUN(test_every_call_fails);
    T_RUN(test_library);
    T_RUN(test_devices);
    T_RUN(test_devices_without);
    T_RUN(test_others);
    T_MAIN_END;
}
