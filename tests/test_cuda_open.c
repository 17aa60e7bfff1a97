/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_open.c - which GPUs there are, why there are none, and words for them. */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda_device.h"
#include "loader/compute.h"
#include "tests/fake_cuda.h"
#include "tests/rig.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

static const fake_cuda_machine two = { .count = 2, .driver = 13000, .architecture = 90,
                                       .memory_bytes = 64 * MIB };

/* By the fake's calls, or none. */
static void
check_refused(const berthi_cuda_calls *calls, const char *words, berth_reason reason,
              const char *why)
{
    berthi_devices *devices = NULL;
    berth_memory_summary memory;
    berth_context *context;
    berth_error error;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    devices = (berthi_devices *)(void *)context;
    berthi_error_clear(&error);
    CHECK_EQ(berthi_devices_open_cuda(context, calls, words, &devices, &error),
             berthi_reason_status((int32_t)reason));
    CHECK(devices == NULL);
    CHECK_EQ(error.reason, reason);
    CHECK_STR(error.message, why);
    CHECK_EQ(fake_cuda_error_left(), 0);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
}

static void
test_no_devices(void)
{
    fake_cuda_machine machine = two;

    machine.driver = 0;
    fake_cuda_begin(&machine);
    check_refused(NULL, "cuda", BERTH_REASON_NO_DEVICE, "this build has no CUDA devices");
    check_refused(fake_cuda_calls(), "cuda", BERTH_REASON_NO_DEVICE,
                  "no NVIDIA driver is loaded on this machine");
    machine.driver = 12080;
    fake_cuda_begin(&machine);
    check_refused(fake_cuda_calls(), "cuda:0", BERTH_REASON_NO_DEVICE,
                  "the NVIDIA driver is too old: it is for CUDA 12.8, and this build needs "
                  "13.0");
    machine.driver = 13000;
    machine.count = 0;
    fake_cuda_begin(&machine);
    check_refused(fake_cuda_calls(), "cuda", BERTH_REASON_NO_DEVICE,
                  "the NVIDIA driver finds no GPU that this process may use");
    fake_cuda_begin(&two);
    fake_cuda_fail(0, BERTHI_CUDA_NO_DEVICE, false);
    check_refused(fake_cuda_calls(), "cuda", BERTH_REASON_NO_DEVICE,
                  "the NVIDIA driver finds no GPU that this process may use");
    fake_cuda_fail(0, 802, false);
    check_refused(fake_cuda_calls(), "cuda", BERTH_REASON_NO_DEVICE,
                  "the NVIDIA driver gives no GPUs: an error of the fake runtime");
    fake_cuda_fail(1, 999, false);
    check_refused(fake_cuda_calls(), "cuda", BERTH_REASON_DEVICE,
                  "cuda:0: its properties: an error of the fake runtime");
    fake_cuda_end();
}

/* What has nothing to do with GPUs works without them, and asks for none. */
static void
test_others_work(void)
{
    fake_cuda_machine machine = two;
    rig r;

    machine.driver = 0;
    fake_cuda_begin(&machine);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cpu*2"));
    CHECK_EQ(berthi_devices_count(r.devices), 2);
    CHECK_STR(r.device->table->kind, "cpu");
    rig_close(&r);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "sim:64MiB"));
    CHECK_STR(r.device->table->kind, "sim");
    rig_close(&r);
    CHECK_EQ(fake_cuda_called(), 0);
    fake_cuda_end();
}

/* ----------------------------------------------------------------------------- words */

/* `names` parted by blanks. */
static void
check_names(const char *words, const char *names)
{
    char all[64] = "";
    rig r;

    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), words));
    for (uint32_t i = 0; i < berthi_devices_count(r.devices); i++) {
        berthi_device_properties p;

        rig_at(&r, i)->table->describe(rig_at(&r, i), &p);
        CHECK_EQ(rig_at(&r, i)->number, i);
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i > 0 ? " " : "",
                 p.name);
    }
    CHECK_STR(all, names);
    rig_close(&r);
}

static void
test_words(void)
{
    fake_cuda_machine four = two;

    four.count = 4;
    fake_cuda_begin(&four);
    check_names("cuda", "cuda:0 cuda:1 cuda:2 cuda:3");
    check_names("cuda:2", "cuda:2");
    check_names("cuda:3;cuda:0", "cuda:3 cuda:0");
    check_names("GPU-b0b1b2b3-b4b5-b6b7-b8b9-babbbcbdbebf", "cuda:1");
    check_names("cuda:GPU-C0C1C2C3-C4C5-C6C7-C8C9-CACBCCCDCECF;cuda:1", "cuda:2 cuda:1");
    check_names("MIG-b0b1b2b3-b4b5-b6b7-b8b9-babbbcbdbebf", "cuda:1");
    check_names("cuda:MIG-C0C1C2C3-C4C5-C6C7-C8C9-CACBCCCDCECF;cuda:0", "cuda:2 cuda:0");
    check_names("cuda:0000:3b:00.0", "cuda:0");
    check_names("cuda:00000000:3E:00.0;cuda:0:3c:00.0", "cuda:3 cuda:1");
    fake_cuda_check_empty();
    fake_cuda_end();
}

static void
test_words_refused(void)
{
    static const char none[] = "is none of cuda, cuda:0, GPU-UUID and cuda:0000:3b:00.0";
    static const char *const wrong[] = { "cuda:",   "cuda:01", "cuda:-1",       "cuda:1x",
                                         "cuda*2",  "cuda:+1", "cuda:12345",    "cuda:3b",
                                         "cuda:0;", "cuda;;",  "cuda:0;cuda:1x" };
    static const char *const blamed[] = { "cuda:",  "cuda:01", "cuda:-1",    "cuda:1x",
                                          "cuda*2", "cuda:+1", "cuda:12345", "cuda:3b",
                                          "",       "",        "cuda:1x" };
    char message[128];

    fake_cuda_begin(&two);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(message, sizeof message, "\"%s\" %s", blamed[i], none);
        check_refused(fake_cuda_calls(), wrong[i], BERTH_REASON_ARGUMENT, message);
    }
    check_refused(fake_cuda_calls(), "cuda:2", BERTH_REASON_NO_DEVICE,
                  "cuda:2: this machine has 2 GPUs");
    check_refused(fake_cuda_calls(), "cuda:1;cuda:1", BERTH_REASON_ARGUMENT,
                  "cuda:1 is asked for twice");
    check_refused(fake_cuda_calls(), "cuda;cuda:0", BERTH_REASON_ARGUMENT,
                  "cuda:0 is asked for twice");
    check_refused(fake_cuda_calls(), "GPU-00000000-0000-0000-0000-000000000000",
                  BERTH_REASON_NO_DEVICE,
                  "none of the 2 GPUs of this machine is "
                  "GPU-00000000-0000-0000-0000-000000000000");
    check_refused(fake_cuda_calls(), "cuda:MIG-00000000-0000-0000-0000-000000000000",
                  BERTH_REASON_NO_DEVICE,
                  "none of the 2 GPUs of this machine is "
                  "MIG-00000000-0000-0000-0000-000000000000");
    check_refused(fake_cuda_calls(), "cuda:1:3b:00.0", BERTH_REASON_NO_DEVICE,
                  "none of the 2 GPUs of this machine is 1:3b:00.0");
    check_refused(fake_cuda_calls(), "cuda:0000:3b:00.1", BERTH_REASON_NO_DEVICE,
                  "none of the 2 GPUs of this machine is 0000:3b:00.1");
    fake_cuda_end();
}

static int
properties_but_of_the_first(int device, berthi_cuda_properties *out)
{
    return device == 0 ? 999 : fake_cuda_calls()->device_properties(device, out);
}

/* A GPU that does not say what it is keeps nobody from another, which is named. */
static void
test_one_tells_nothing(void)
{
    static const char *const second[] = { "GPU-b0b1b2b3-b4b5-b6b7-b8b9-babbbcbdbebf",
                                          "cuda:0000:3c:00.0", "cuda:1" };
    berthi_cuda_calls calls = *fake_cuda_calls();
    rig r;

    calls.device_properties = properties_but_of_the_first;
    fake_cuda_begin(&two);
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        T_REQUIRE(rig_open_cuda(&r, &calls, second[i]));
        CHECK_EQ(berthi_devices_count(r.devices), 1);
        CHECK_STR(((berthi_cuda_device *)(void *)r.device)->name, "cuda:1");
        rig_close(&r);
    }
    check_refused(&calls, "cuda:0000:3b:00.0", BERTH_REASON_DEVICE,
                  "cuda:0: its properties: an error of the fake runtime");
    fake_cuda_check_empty();
    fake_cuda_end();
}

/* ------------------------------------------------------------------------ properties */

static void
test_describes(void)
{
    berthi_device_properties p;
    berthi_device_links links;
    void *memory;
    rig r;

    fake_cuda_begin(&two);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    CHECK_STR(r.device->table->kind, "cuda");
    memory = rig_alloc(rig_at(&r, 1), MIB);
    rig_at(&r, 1)->table->describe(rig_at(&r, 1), &p);
    CHECK_STR(p.name, "cuda:1");
    CHECK_STR(p.description, "Fake GPU, sm_90, 0000:3c:00.0");
    CHECK_EQ(p.memory_bytes, 64 * MIB);
    CHECK_EQ(p.free_bytes, 63 * MIB);
    CHECK_EQ(p.numa_node, 1);
    CHECK_EQ(p.copy_engines, 3);
    CHECK(!p.is_host && !p.is_simulated);
    r.device->table->describe(r.device, &p);
    CHECK_EQ(p.free_bytes, 64 * MIB);
    memset(&links, 0xFF, sizeof links);
    r.device->table->find_links(r.device, &links); /* whatever is there on this machine, or not */
    CHECK_LE(links.pci.generation, 7);
    CHECK_LE(links.pci.most_width, 32);
    /* Nobody knows: whatever fails on the way there. */
    for (uint64_t nth = 0; nth < 3; nth++) {
        fake_cuda_fail(nth, 999, false);
        rig_at(&r, 1)->table->describe(rig_at(&r, 1), &p);
        CHECK_EQ(fake_cuda_failures(), 1);
        CHECK_EQ(p.free_bytes, UINT64_MAX);
        CHECK_EQ(p.memory_bytes, 64 * MIB);
        CHECK_EQ(fake_cuda_current(), 0);
    }
    fake_cuda_disarm();
    rig_at(&r, 1)->table->free(rig_at(&r, 1), memory, MIB);
    rig_close(&r);
    fake_cuda_check_empty();
    fake_cuda_end();
}

typedef struct lines {
    char text[512];
    uint32_t count;
} lines;

static void
keep_line(void *user, int32_t level, const char *line)
{
    lines *const l = user;

    CHECK_EQ(level, BERTH_LOG_WARNING);
    snprintf(l->text, sizeof l->text, "%s", line);
    l->count++;
}

/*
 * What is said of this architecture by a build of this toolkit, and whether it has operations; if
 * not, with which advice.
 */
static bool
has_kernels_by(int32_t toolkit, int architecture, const char *advice, lines *l)
{
    static const uint16_t values[64];
    const berthi_request request = { .operation = BERTHI_OPERATION_ENCODE_NF4,
                                     .arguments.encode = { .values = values,
                                                           .dtype = BERTH_BF16,
                                                           .block_size = 64 } };
    fake_cuda_machine machine = two;
    berthi_cuda_calls calls = *fake_cuda_calls();
    berth_context_options options;
    berth_context *context;
    berthi_devices *devices;
    berthi_device_properties properties;
    berthi_device *device;
    berth_error error;
    char text[160];
    bool has = false;

    machine.count = 1;
    machine.architecture = architecture;
    calls.runtime_version = toolkit;
    fake_cuda_begin(&machine);
    *l = (lines){ .count = 0 };
    berth_context_options_init(&options);
    options.log = keep_line;
    options.log_user = l;
    berthi_error_clear(&error);
    if (!CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK))
        return false;
    if (CHECK_EQ(berthi_devices_open_cuda(context, &calls, "cuda", &devices, NULL), BERTH_OK)) {
        device = berthi_devices_at(devices, 0);
        has = device->table->has_operation(device, BERTHI_OPERATION_ENCODE_NF4);
        device->table->describe(device, &properties);
        CHECK_EQ(strstr(properties.description, "00.0, no kernels") == NULL, has);
        CHECK(device->table->has_operation(device, BERTHI_OPERATION_CALL));
        CHECK(!device->table->has_operation(device, BERTHI_OPERATION_COUNT));
        CHECK_EQ(device->table->launch(device, &request, NULL, &error),
                 has ? BERTH_OK : BERTH_EUNSUPPORTED);
        if (!has) {
            snprintf(text, sizeof text, "cuda:0: no kernels for sm_%d are built in; %s",
                     architecture, advice);
            CHECK_STR(error.message, text);
            CHECK_EQ(berthi_launch_on(device, &request, NULL, &error), BERTH_EUNSUPPORTED);
            snprintf(text, sizeof text,
                     "cuda:0 (Fake GPU, sm_%d, 0000:3b:00.0, no kernels) does "
                     "not do what it is asked for",
                     architecture);
            CHECK_STR(error.message, text);
        }
        berthi_devices_close(devices);
    }
    berth_context_destroy(context);
    fake_cuda_check_empty();
    fake_cuda_end();
    return has;
}

static bool
has_kernels(int architecture, const char *advice, lines *l)
{
    return has_kernels_by(13000, architecture, advice, l);
}

/* The fake is built for sm_86 and sm_90, with PTX of 90. */
static void
test_architectures(void)
{
    lines l;

    CHECK(has_kernels(86, NULL, &l));
    CHECK_EQ(l.count, 0);
    CHECK(has_kernels(89, NULL, &l));
    CHECK_EQ(l.count, 0);
    CHECK(has_kernels(90, NULL, &l));
    CHECK_EQ(l.count, 0);
    CHECK(has_kernels(120, NULL, &l));
    CHECK_EQ(l.count, 1);
    CHECK_STR(l.text, "cuda:0: no kernels for sm_120 are built in: the driver makes them from "
                      "PTX of sm_90, which takes a while at the first operation");
    CHECK(!has_kernels(80, "make CUDA=1 ARCH=80 builds them", &l));
    CHECK_EQ(l.count, 1);
    CHECK_STR(l.text, "cuda:0: no kernels for sm_80 are built in: it holds weights, and "
                      "computes nothing; make CUDA=1 ARCH=80 builds them");
    /* Orin, which runs no code of the others of its generation. */
    CHECK(!has_kernels(87, "make CUDA=1 ARCH=87 builds them", &l));
    CHECK_EQ(l.count, 1);
    CHECK(!has_kernels(75, "make CUDA=1 ARCH=75 builds them", &l));
    CHECK_EQ(l.count, 1);
    /* Volta, for which the nvcc of CUDA 13 makes nothing. */
    for (int volta = 70; volta <= 72; volta += 2) {
        char advice[64];

        snprintf(advice, sizeof advice, "make CUDA=1 ARCH=%d with CUDA 12 builds them", volta);
        CHECK(!has_kernels(volta, advice, &l));
        CHECK_EQ(l.count, 1);
        CHECK_CONTAINS(l.text, advice);
        snprintf(advice, sizeof advice, "make CUDA=1 ARCH=%d builds them", volta);
        CHECK(!has_kernels_by(12080, volta, advice, &l));
        CHECK_EQ(l.count, 1);
    }
    CHECK(!has_kernels(61, "there are none for GPUs before sm_70", &l));
    CHECK_EQ(l.count, 1);
    CHECK_STR(l.text, "cuda:0: no kernels for sm_61 are built in: it holds weights, and "
                      "computes nothing; there are none for GPUs before sm_70");
}

/* Devices are opened as often as somebody needs them: each architecture is told of once. */
static void
test_architectures_are_told_of_once(void)
{
    static const int architectures[] = { 120, 120, 121, 80, 121, 80, 90 };
    fake_cuda_machine machine = two;
    berth_context_options options;
    berth_context *context;
    lines l = { .count = 0 };

    berth_context_options_init(&options);
    options.log = keep_line;
    options.log_user = &l;
    T_REQUIRE(berth_context_create(&options, &context, NULL) == BERTH_OK);
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        berthi_devices *devices;

        machine.architecture = architectures[i];
        fake_cuda_begin(&machine);
        T_REQUIRE(berthi_devices_open_cuda(context, fake_cuda_calls(), "cuda", &devices, NULL)
                  == BERTH_OK);
        CHECK_EQ(l.count, i < 2 ? 1 : i < 3 ? 2 : 3);
        berthi_devices_close(devices);
    }
    CHECK_CONTAINS(l.text, "sm_80");
    berth_context_destroy(context);
    fake_cuda_end();
}

/* As many as there is room for. */
static void
test_architectures_in_words(void)
{
    static const int32_t many[] = { 75, 80, 86, 100 };
    berthi_cuda_calls calls = { .architectures = many, .architecture_count = 4 };
    char text[48];

    berthi_devices_architectures(NULL, text, sizeof text);
    CHECK_STR(text, "");
    berthi_devices_architectures(fake_cuda_calls(), text, sizeof text);
    CHECK_STR(text, "86 90, PTX 90");
    berthi_devices_architectures(&calls, text, sizeof text);
    CHECK_STR(text, "75 80 86 100");
    berthi_devices_architectures(&calls, text, 8);
    CHECK_STR(text, "75 80 8");
    calls.ptx = &many[2];
    calls.ptx_count = 2;
    berthi_devices_architectures(&calls, text, 15);
    CHECK_STR(text, "75 80 86 100, ");
    berthi_devices_architectures(&calls, text, 22);
    CHECK_STR(text, "75 80 86 100, PTX 86 ");
    berthi_devices_architectures(&calls, text, sizeof text);
    CHECK_STR(text, "75 80 86 100, PTX 86 100");
    calls.architecture_count = 0;
    berthi_devices_architectures(&calls, text, sizeof text);
    CHECK_STR(text, "PTX 86 100");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_no_devices);
    T_RUN(test_others_work);
    T_RUN(test_words);
    T_RUN(test_one_tells_nothing);
    T_RUN(test_words_refused);
    T_RUN(test_describes);
    T_RUN(test_architectures);
    T_RUN(test_architectures_are_told_of_once);
    T_RUN(test_architectures_in_words);
    T_MAIN_END;
}
