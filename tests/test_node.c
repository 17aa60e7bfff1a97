/* SPDX-License-Identifier: Apache-2.0 */
/* test_node.c - staging comes from the node of its device, where a machine has several. */
#define _GNU_SOURCE /* RTLD_NEXT */

#include "kernels/node.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "kernels/host.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/own_memory.h"
#include "tests/t.h"

#define MIB   (UINT64_C(1) << 20)
#define CALLS 256u

/* --------------------------------------------------------------- what is asked for */

/* One mbind(). */
typedef struct asked {
    uintptr_t begin;
    uint64_t bytes;
    uint64_t nodes; /* bits of the first 64 */
    long mode;
    long bits; /* of nodes, and one */
    long flags;
} asked;

static struct {
    _Atomic uint32_t count;
    asked calls[CALLS];
    int failure; /* what the kernel says; 0: that it is done */
} kernel;

/* Stands before the C library's. No kernel is asked for nodes that it does not have. */
long
syscall(long number, ...)
{
    static long (*_Atomic next)(long number, ...);
    /* A sixth one lies on the caller's stack, where others have something else. */
    const int count = number == SYS_mbind ? 6 : 5;
    long a[6] = { 0 };
    va_list arguments;

    va_start(arguments, number);
    for (int i = 0; i < count; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number == SYS_mbind) {
        const uint32_t call = atomic_fetch_add(&kernel.count, 1);

        if (call < CALLS) {
            asked *const it = &kernel.calls[call];

            it->begin = (uintptr_t)a[0];
            it->bytes = (uint64_t)a[1];
            it->mode = a[2];
            memcpy(&it->nodes, (const void *)a[3], sizeof it->nodes);
            it->bits = a[4];
            it->flags = a[5];
        }
        errno = kernel.failure;
        return kernel.failure == 0 ? 0 : -1;
    }
    if (next == NULL) {
        void *const symbol = dlsym(RTLD_NEXT, "syscall");
        long (*found)(long n, ...);

        memcpy(&found, &symbol, sizeof found);
        next = found;
    }
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void
forget(int failure)
{
    memset(&kernel, 0, sizeof kernel);
    kernel.failure = failure;
}

static bool
is_for_node(const asked *call, unsigned node)
{
    return call->nodes == UINT64_C(1) << node && call->mode == MPOL_PREFERRED
           && call->bits > 64 && call->flags == MPOL_MF_MOVE
           && call->begin % berthi_sys_page_bytes() == 0;
}

/* ------------------------------------------------------------------------ machines */

/* A machine with these nodes; NULL: a kernel that knows none. */
static const char *
machine(const char *nodes)
{
    const char *const root = fixture_folder();

    fixture_make_folder(fixture_format("%s/sys", root));
    fixture_make_folder(fixture_format("%s/sys/devices", root));
    fixture_make_folder(fixture_format("%s/sys/devices/system", root));
    fixture_make_folder(fixture_format("%s/sys/devices/system/node", root));
    if (nodes != NULL)
        fixture_text(fixture_format("%s/sys/devices/system/node/online", root), nodes);
    return root;
}

/* A context on such a machine, and what it says of nodes. */
typedef struct rig {
    berth_context *context;
    _Atomic uint32_t lines;
    char line[256];
} rig;

static void
note(void *user, int32_t level, const char *line)
{
    rig *const r = user;

    if (strstr(line, " node ") == NULL)
        return;
    CHECK_EQ(level, BERTH_LOG_DEBUG);
    if (atomic_fetch_add(&r->lines, 1) == 0)
        strncpy(r->line, line, sizeof r->line - 1);
}

static bool
has_begun(rig *r, const char *root, const berth_allocator *allocator)
{
    berth_context_options options;

    memset(r, 0, sizeof *r);
    berth_context_options_init(&options);
    options.log = note;
    options.log_user = r;
    options.allocator = allocator;
    if (!CHECK_EQ(berth_context_create(&options, &r->context, NULL), BERTH_OK))
        return false;
    r->context->root = root;
    return true;
}

static bool
is_mapped(const rig *r)
{
    return berthi_memory_is_mapped(r->context, 4 * MIB, 4096);
}

/* Bytes of staging that were ever allocated. */
static uint64_t
staged_bytes(const rig *r)
{
    berth_memory staging;

    CHECK_EQ(berth_memory_get(r->context, 0, BERTH_MEMORY_STAGING, &staging), BERTH_OK);
    return staging.allocated_bytes;
}

static uint64_t
asked_bytes(void)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < kernel.count && i < CALLS; i++)
        bytes += kernel.calls[i].bytes;
    return bytes;
}

/* Loads it, and passes over it. */
static void
load(rig *r, const char *source, const char *max_memory, const char *words)
{
    loaded_attempt attempt = {
        .folder = source, .max_memory = max_memory, .words = words, .has_passes = true};
    berth_error error;

    berthi_error_clear(&error);
    if (!CHECK_EQ(loaded_once(&attempt, r->context, &error), BERTH_OK))
        t_note("%s", error.message);
}

/* --------------------------------------------------------------------------- tests */

/* Layers come from the disk: rings of the load and of what is streamed. */
static void
test_all_staging_comes_from_the_node(void)
{
    rig r;

    forget(0);
    T_REQUIRE(has_begun(&r, machine("0-1\n"), NULL));
    if (!is_mapped(&r)) {
        berth_context_destroy(r.context);
        T_SKIP("memory is not mapped under this sanitizer");
    }
    load(&r, loaded_large(6, 2), "0=32MiB,cpu=2MiB,disk=inf", "sim:32MiB,numa=1");
    CHECK_GE(kernel.count, 2); /* a buffer for either ring */
    CHECK_LE(kernel.count, CALLS);
    for (uint32_t i = 0; i < kernel.count; i++)
        CHECK(is_for_node(&kernel.calls[i], 1));
    CHECK_EQ(asked_bytes(), staged_bytes(&r));
    CHECK_EQ(r.lines, 0);
    berth_context_destroy(r.context);
}

/* Every buffer is used for both devices. */
static void
test_devices_take_turns(void)
{
    const char *const source = loaded_llama(6, "BF16", 2);
    uint64_t before;
    uint64_t buffer;
    rig r;

    forget(0);
    T_REQUIRE(has_begun(&r, machine("0,3"), NULL));
    if (!is_mapped(&r)) {
        berth_context_destroy(r.context);
        T_SKIP("memory is not mapped under this sanitizer");
    }
    load(&r, source, "0=64MiB,1=64MiB,cpu=64MiB", "sim:64MiB,numa=3;sim:64MiB,numa=0");
    CHECK_GE(kernel.count, 1);
    for (uint32_t i = 0; i < kernel.count && i < CALLS; i++)
        CHECK(is_for_node(&kernel.calls[i], i % 2 == 0 ? 3 : 0));
    CHECK_EQ(asked_bytes(), staged_bytes(&r));
    buffer = kernel.calls[0].bytes;
    before = staged_bytes(&r);
    forget(0);
    load(&r, source, "0=64MiB,1=64MiB,cpu=64MiB", "sim:64MiB;sim:64MiB,numa=0");
    for (uint32_t i = 0; i < kernel.count && i < CALLS; i++)
        CHECK(is_for_node(&kernel.calls[i], 0));
    /* One of the two says where it is; how many buffers there are is up to the readers.
     */
    CHECK_EQ(kernel.count, (staged_bytes(&r) - before) / buffer / 2);
    berth_context_destroy(r.context);
}

static void
test_nothing_is_asked_for(void)
{
    static const char *const nodes[] = {"0\n", NULL, "no list\n", "0-1\n"};
    static const char *const words[] = {"sim:64MiB,numa=1", "sim:64MiB,numa=0",
                                        "sim:64MiB,numa=1", "sim:64MiB"};
    const char *const source = loaded_llama(6, "BF16", 2);

    for (uint32_t i = 0; i < 4; i++) {
        rig r;

        forget(0);
        T_REQUIRE(has_begun(&r, machine(nodes[i]), NULL));
        load(&r, source, "0=64MiB,cpu=64MiB", words[i]);
        CHECK_EQ(kernel.count, 0);
        CHECK_EQ(r.lines, 0);
        berth_context_destroy(r.context);
    }
}

/* A container that forbids it: nothing but one line for all that is loaded. */
static void
test_refused(void)
{
    const char *const source = loaded_llama(6, "BF16", 2);
    rig r;

    forget(EPERM);
    T_REQUIRE(has_begun(&r, machine("0-1"), NULL));
    if (!is_mapped(&r)) {
        berth_context_destroy(r.context);
        T_SKIP("memory is not mapped under this sanitizer");
    }
    load(&r, source, "0=64MiB,cpu=64MiB", "sim:64MiB,numa=1");
    CHECK_GE(kernel.count, 1);
    load(&r, source, "0=64MiB,cpu=64MiB", "sim:64MiB,numa=1");
    CHECK_EQ(asked_bytes(), staged_bytes(&r));
    CHECK_EQ(r.lines, 1);
    CHECK_STR(r.line,
              "staging of sim:0 lies wherever there is memory, not on its node 1: "
              "Operation not permitted");
    berth_context_destroy(r.context);
}

static void
test_memory_of_the_caller_is_left_alone(void)
{
    static const berth_allocator own = {NULL, own_alloc, own_free};
    rig r;

    forget(0);
    T_REQUIRE(has_begun(&r, machine("0-1"), &own));
    load(&r, loaded_llama(6, "BF16", 2), "0=64MiB,cpu=64MiB", "sim:64MiB,numa=1");
    CHECK_EQ(kernel.count, 0);
    berth_context_destroy(r.context);
}

/* The wrapper alone, and a number that no kernel has. */
static void
test_the_call(void)
{
    uint8_t *const memory = berthi_sys_map(4 * MIB);

    T_REQUIRE(memory != NULL);
    forget(0);
    for (uint32_t node = 0; node < 64; node++) {
        CHECK_EQ(berthi_sys_prefer_node(memory, 4 * MIB, node), 0);
        CHECK(is_for_node(&kernel.calls[node], node));
        CHECK_EQ(kernel.calls[node].begin, (uintptr_t)memory);
        CHECK_EQ(kernel.calls[node].bytes, 4 * MIB);
    }
    CHECK_EQ(berthi_sys_prefer_node(memory, 4 * MIB, 64), 0);
    CHECK_EQ(kernel.calls[64].nodes, 0); /* in the second word */
    CHECK_EQ(berthi_sys_prefer_node(memory, 4 * MIB, 1023), 0);
    CHECK_EQ(kernel.count, 66);
    CHECK_EQ(berthi_sys_prefer_node(memory, 4 * MIB, 1024), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(kernel.count, 66);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
    CHECK_EQ(berthi_sys_prefer_node(memory, 4 * MIB, 0), -1);
    CHECK_EQ(errno, EPERM);
    berthi_fault_disarm();
    CHECK_EQ(kernel.count, 66);
    berthi_sys_unmap(memory, 4 * MIB);
}

/* Until there is an answer it is asked again: then it is kept. */
static void
test_nodes_are_counted_once(void)
{
    const char *const source = loaded_llama(6, "BF16", 2);
    rig r;

    forget(0);
    T_REQUIRE(has_begun(&r, "/nonexistent", NULL));
    if (!is_mapped(&r)) {
        berth_context_destroy(r.context);
        T_SKIP("memory is not mapped under this sanitizer");
    }
    load(&r, source, "0=64MiB,cpu=64MiB", "sim:64MiB,numa=1");
    CHECK_EQ(kernel.count, 0);
    r.context->root = machine("0-1");
    load(&r, source, "0=64MiB,cpu=64MiB", "sim:64MiB,numa=1");
    CHECK_GE(kernel.count, 1);
    forget(0);
    r.context->root = "/nonexistent";
    load(&r, source, "0=64MiB,cpu=64MiB", "sim:64MiB,numa=1");
    CHECK_GE(kernel.count, 1);
    berth_context_destroy(r.context);
}

static void
test_counts_of_nodes(void)
{
    CHECK_EQ(berthi_host_node_count(machine("0\n")), 1);
    CHECK_EQ(berthi_host_node_count(machine("0-1\n")), 2);
    CHECK_EQ(berthi_host_node_count(machine("0,2-4,7\n")), 5);
    CHECK_EQ(berthi_host_node_count(machine("0-4294967294\n")), 0);
    CHECK_EQ(berthi_host_node_count(machine("none\n")), 0);
    CHECK_EQ(berthi_host_node_count(machine(NULL)), 1);
    CHECK_EQ(berthi_host_node_count("/nonexistent"), 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_all_staging_comes_from_the_node);
    T_RUN(test_devices_take_turns);
    T_RUN(test_nothing_is_asked_for);
    T_RUN(test_refused);
    T_RUN(test_memory_of_the_caller_is_left_alone);
    T_RUN(test_the_call);
    T_RUN(test_nodes_are_counted_once);
    T_RUN(test_counts_of_nodes);
    T_MAIN_END;
}
