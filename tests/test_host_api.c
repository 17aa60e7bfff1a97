/* SPDX-License-Identifier: Apache-2.0 */
/* test_host_api.c - berth_host_get() on the machine that runs the test. */
#include <string.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/device.h"
#include "kernels/digest.h"
#include "kernels/fault.h"
#include "loader/berth.h"
#include "loader/sha256.h"
#include "tests/t.h"

static void
test_arguments(void)
{
    berth_context *context = NULL;
    berth_error error;
    berth_host host;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    CHECK_EQ(berth_host_get(NULL, &host, &error), BERTH_EINVAL);
    CHECK_STR(error.message, "argument `context` is NULL");
    CHECK_EQ(berth_host_get(context, NULL, &error), BERTH_EINVAL);
    CHECK_STR(error.message, "argument `host` is NULL");
    CHECK_EQ(berth_host_get(context, NULL, NULL), BERTH_EINVAL);
    berth_context_destroy(context);
}

static void
test_this_machine(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    berth_memory_summary memory;
    berth_context *context = NULL;
    berth_error error;
    berth_host host;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    memset(&host, 0xAA, sizeof host);
    CHECK_EQ(berth_host_get(context, &host, &error), BERTH_OK);
    CHECK_EQ(error.status, BERTH_OK);
    CHECK_EQ(host.memory_total, (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE));
    CHECK_EQ(host.has_libdeflate, berthi_digest_is_fast());
    CHECK_EQ(host.has_libcrypto, berthi_sha256_is_there(context));
    CHECK_EQ(host.gpu_supported, berthi_devices_cuda() != NULL);
    CHECK_EQ(host.gpu_architectures[0] != '\0', host.gpu_supported);
    CHECK_EQ(host.has_reciprocals, 1);
    CHECK_GE(host.cores, 1);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
}

/* Whatever fails: an answer with holes in it, never a failure. */
static berth_status
get(void *user, berth_context *context, berth_error *error)
{
    berth_host host;

    (void)user;
    (void)error;
    CHECK_EQ(berth_host_get(context, &host, NULL), BERTH_OK);
    CHECK_NE(host.memory_total, 0);
    CHECK_NE(host.memory_available, 0);
    CHECK_NE(host.cores, 0);
    return BERTH_OK;
}

static void
test_faults(void)
{
    berth_context *context = NULL;
    uint64_t calls;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    berthi_fault_disarm();
    get(NULL, context, NULL);
    calls = berthi_fault_calls(BERTHI_FAULT_SYSTEM);
    for (uint64_t nth = 0; nth < 2 * calls; nth++) {
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth / 2, nth % 2);
        get(NULL, context, NULL);
        berthi_fault_disarm();
    }
    for (uint64_t nth = 0; nth < 4; nth++) {
        berthi_fault_arm(BERTHI_FAULT_MEMORY, nth, true);
        get(NULL, context, NULL);
        berthi_fault_disarm();
    }
    T_NOTE("%llu system calls failed, once and from then on", (unsigned long long)calls);
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_arguments);
    T_RUN(test_this_machine);
    T_RUN(test_faults);
    T_MAIN_END;
}
