/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_devices.c - what `berth devices` would say on other machines. */
#include "tools/devices.h"

#include <string.h>

#include "tests/printed.h"
#include "tests/t.h"

static session s;
static berth_host host;
static devices_gpus gpus;

static void
begin(void)
{
    memset(&s, 0, sizeof s);
    output_init(&s.out, -1);
    memset(&host, 0, sizeof host);
    gpus = (devices_gpus){ .count = 0 };
}

static void
fill_unknown(void)
{
    begin();
    strcpy(gpus.why, "this build supports no GPU");
    strcpy(host.cpu_level, "scalar");
    strcpy(host.memory_limit_source, "nothing");
    strcpy(host.kernel, "k");
    host.cores = UINT32_MAX;
    host.cores_online = UINT32_MAX;
    host.memory_total = UINT64_MAX;
    host.memory_available = UINT64_MAX;
    host.memory_limit = UINT64_MAX;
    host.memory_used = UINT64_MAX;
    host.pinned_limit = UINT64_MAX;
}

static void
fill_known(void)
{
    begin();
    strcpy(host.cpu_name, "a\nb");
    strcpy(host.cpu_level, "avx2");
    strcpy(host.memory_limit_source, "cgroup");
    strcpy(host.kernel, "Linux\x1b");
    host.cores = 3;
    host.cores_online = 4;
    host.numa_node_count = 2;
    host.numa_nodes[1] = 8; /* as nodes with gaps have it */
    host.numa_memory[0] = 1024;
    host.numa_memory[1] = UINT64_MAX;
    host.memory_total = 2048;
    host.memory_available = 1;
    host.memory_limit = 2;
    host.memory_used = 3;
    host.pinned_limit = 4;
    host.is_pinned_unlimited = 1;
    host.has_io_uring = 1;
    host.has_libdeflate = 1;
    host.has_libcrypto = 1;
    host.has_reciprocals = 1;
    host.gpu_supported = 1;
    strcpy(host.gpu_architectures, "80 90, PTX 90");
    gpus.count = 2;
    gpus.at[0] = (berth_device){ .name = "cuda:0", .description = "A\n, sm_90, 0000:3b:00.0",
                                 .memory_bytes = 2048, .free_bytes = 1024, .numa_node = 8,
                                 .pcie_generation = 5, .pcie_width = 16,
                                 .pcie_most_generation = 5, .pcie_most_width = 16,
                                 .nvlink_links = 18, .nvlink_version = 40,
                                 .nvlink_mb_per_s = 26562, .copy_engines = 3 };
    gpus.at[1] = (berth_device){ .name = "cuda:1", .description = "B", .memory_bytes = 4096,
                                 .free_bytes = UINT64_MAX, .numa_node = -1,
                                 .pcie_generation = 1, .pcie_width = 8,
                                 .pcie_most_generation = 4 };
}

static void
test_people(void)
{
    fill_unknown();
    devices_print(&s, &host, &gpus);
    CHECK_STR(printed_take(&s.out), "CPU       scalar in use\n"
                         "cores     unknown usable of unknown\n"
                         "NUMA      unknown\n"
                         "memory    unknown available of unknown\n"
                         "limit     unknown by nothing, unknown used\n"
                         "locked    up to unknown (RLIMIT_MEMLOCK)\n"
                         "system    k, io_uring: no\n"
                         "digests   libdeflate: no, libcrypto: no\n"
                         "codes     reciprocals correctly rounded: none recorded on a GPU\n"
                         "GPU       none: this build supports no GPU\n");
    fill_known();
    devices_print(&s, &host, &gpus);
    CHECK_STR(printed_take(&s.out), "CPU       a\\x0ab, avx2 in use\n"
                         "cores     3 usable of 4\n"
                         "NUMA      2 nodes: 1.00 KiB, node 8 unknown\n"
                         "memory    1 B available of 2.00 KiB\n"
                         "limit     2 B by cgroup, 3 B used\n"
                         "locked    no limit (RLIMIT_MEMLOCK)\n"
                         "system    Linux\\x1b, io_uring: yes\n"
                         "digests   libdeflate: yes, libcrypto: yes\n"
                         "codes     reciprocals as recorded on a GPU\n"
                         "GPU       cuda:0, A\\x0a, sm_90, 0000:3b:00.0\n"
                         "          1.00 KiB free of 2.00 KiB, PCIe 5.0 x16, node 8\n"
                         "          NVLink 4.0 x18, 26.6 GB/s a link; 3 copy engines\n"
                         "          cuda:1, B\n"
                         "          unknown free of 4.00 KiB, PCIe 1.0 x8 now, could be PCIe 4.0\n"
                         "          built with kernels for 80 90, PTX 90\n");
    gpus.count = 1;
    gpus.at[0] = gpus.at[1];
    gpus.at[0].pcie_generation = 0;
    gpus.at[0].pcie_width = 0;
    gpus.at[0].pcie_most_generation = 0;
    devices_print(&s, &host, &gpus);
    CHECK_CONTAINS(printed_take(&s.out), "\nGPU       cuda:1, B\n"
                              "          unknown free of 4.00 KiB, PCIe of unknown speed\n"
                              "          built with");
}

/* Of a GPU's links all but how many there are may be unknown. */
static void
test_links(void)
{
    fill_known();
    gpus.count = 1;
    gpus.at[0].nvlink_version = 0;
    gpus.at[0].nvlink_mb_per_s = 0;
    gpus.at[0].copy_engines = 0;
    devices_print(&s, &host, &gpus);
    CHECK_CONTAINS(printed_take(&s.out), ", node 8\n          NVLink x18\n          built with");
    gpus.at[0].nvlink_links = 0;
    gpus.at[0].copy_engines = 1;
    devices_print(&s, &host, &gpus);
    CHECK_CONTAINS(printed_take(&s.out), ", node 8\n          1 copy engine\n          built with");
    gpus.at[0].copy_engines = 0;
    gpus.at[0].c2c_mb_per_s = 447120; /* PCIe is there, too, and nothing to copy by */
    devices_print(&s, &host, &gpus);
    CHECK_CONTAINS(printed_take(&s.out), "1.00 KiB free of 2.00 KiB, NVLink-C2C 447 GB/s, node 8\n"
                              "          built with");
    devices_write_json(&s, &host, &gpus);
    CHECK_CONTAINS(printed_take(&s.out), "      \"pcie_most_width\": 16,\n"
                              "      \"nvlink_links\": null,\n"
                              "      \"nvlink_version\": null,\n"
                              "      \"nvlink_bytes_per_second\": null,\n"
                              "      \"c2c_bytes_per_second\": 447120000000,\n"
                              "      \"copy_engines\": null\n    }");
}

/* More nodes than berth_host holds are counted, not shown. */
static void
test_nodes(void)
{
    const char *text;
    size_t shown = 0;

    begin();
    host.numa_node_count = 1;
    host.numa_memory[0] = 5;
    devices_print(&s, &host, &gpus);
    CHECK_CONTAINS(printed_take(&s.out), "\nNUMA      1 node: 5 B\nmemory");
    host.numa_node_count = BERTH_MAX_NUMA_NODES + 1;
    for (size_t n = 0; n < BERTH_MAX_NUMA_NODES; n++)
        host.numa_memory[n] = 5;
    devices_print(&s, &host, &gpus);
    for (text = strstr(printed_take(&s.out), " nodes"); text != NULL;
         text = strstr(text + 1, " 5 B"))
        shown++;
    CHECK_EQ(shown, 1 + BERTH_MAX_NUMA_NODES);
    devices_write_json(&s, &host, &gpus);
    shown = 0;
    for (text = printed_take(&s.out); text != NULL; text = strstr(text + 1, "\"node\": "))
        shown++;
    CHECK_EQ(shown, 1 + BERTH_MAX_NUMA_NODES);
}

static void
test_programs(void)
{
    const char *text;

    fill_unknown();
    devices_write_json(&s, &host, &gpus);
    text = printed_take(&s.out);
    CHECK_CONTAINS(text, "\"cpu\": {\n    \"name\": \"\",\n    \"level\": \"scalar\",\n"
                         "    \"cores\": null,\n    \"cores_online\": null\n  },\n"
                         "  \"numa_nodes\": [],\n  \"memory\": {\n    \"total\": null,\n"
                         "    \"available\": null,\n    \"limit\": null,\n    \"used\": null,\n"
                         "    \"limit_source\": \"nothing\",\n    \"locked_limit\": null,\n"
                         "    \"locked_unlimited\": false\n  },\n  \"kernel\": \"k\",\n"
                         "  \"io_uring\": false,\n  \"libdeflate\": false,\n"
                         "  \"libcrypto\": false,\n  \"gpu_supported\": false,\n"
                         "  \"recorded_reciprocals\": false,\n"
                         "  \"gpu_architectures\": \"\",\n  \"gpus\": [],\n"
                         "  \"no_gpus\": \"this build supports no GPU\"\n}\n");
    fill_known();
    devices_write_json(&s, &host, &gpus);
    text = printed_take(&s.out);
    CHECK_EQ(strncmp(text, "{\n  \"schema_version\": 1,\n  \"berth_version\": \"", 44), 0);
    CHECK_CONTAINS(text, "\"cpu\": {\n    \"name\": \"a\\nb\",\n    \"level\": \"avx2\",\n"
                         "    \"cores\": 3,\n    \"cores_online\": 4\n  },\n"
                         "  \"numa_nodes\": [\n    {\n      \"node\": 0,\n"
                         "      \"memory\": 1024\n    },\n    {\n      \"node\": 8,\n"
                         "      \"memory\": null\n    }\n  ],\n  \"memory\": {\n"
                         "    \"total\": 2048,\n    \"available\": 1,\n    \"limit\": 2,\n"
                         "    \"used\": 3,\n    \"limit_source\": \"cgroup\",\n"
                         "    \"locked_limit\": 4,\n    \"locked_unlimited\": true\n  },\n"
                         "  \"kernel\": \"Linux\\u001b\",\n  \"io_uring\": true,\n"
                         "  \"libdeflate\": true,\n  \"libcrypto\": true,\n"
                         "  \"gpu_supported\": true,\n  \"recorded_reciprocals\": true,\n"
                         "  \"gpu_architectures\": \"80 90, PTX 90\",\n  \"gpus\": [\n"
                         "    {\n      \"name\": \"cuda:0\",\n"
                         "      \"description\": \"A\\n, sm_90, 0000:3b:00.0\",\n"
                         "      \"memory\": 2048,\n      \"free\": 1024,\n"
                         "      \"numa_node\": 8,\n      \"pcie_generation\": 5,\n"
                         "      \"pcie_width\": 16,\n      \"pcie_most_generation\": 5,\n"
                         "      \"pcie_most_width\": 16,\n"
                         "      \"nvlink_links\": 18,\n"
                         "      \"nvlink_version\": \"4.0\",\n"
                         "      \"nvlink_bytes_per_second\": 26562000000,\n"
                         "      \"c2c_bytes_per_second\": null,\n"
                         "      \"copy_engines\": 3\n    },\n    {\n"
                         "      \"name\": \"cuda:1\",\n      \"description\": \"B\",\n"
                         "      \"memory\": 4096,\n      \"free\": null,\n"
                         "      \"numa_node\": null,\n      \"pcie_generation\": 1,\n"
                         "      \"pcie_width\": 8,\n      \"pcie_most_generation\": 4,\n"
                         "      \"pcie_most_width\": null,\n"
                         "      \"nvlink_links\": null,\n"
                         "      \"nvlink_version\": null,\n"
                         "      \"nvlink_bytes_per_second\": null,\n"
                         "      \"c2c_bytes_per_second\": null,\n"
                         "      \"copy_engines\": null\n    }\n  ],\n"
                         "  \"no_gpus\": null\n}\n");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_people);
    T_RUN(test_links);
    T_RUN(test_nodes);
    T_RUN(test_programs);
    T_MAIN_END;
}
