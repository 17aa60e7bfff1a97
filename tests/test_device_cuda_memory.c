/* SPDX-License-Identifier: Apache-2.0 */
/* test_device_cuda_memory.c - memory of a GPU, and memory of the host that it pins. */
#include <stdlib.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/fake_cuda.h"
#include "tests/late.h"
#include "tests/rig.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

/* ---------------------------------------------------------------------------- memory */

static void
test_memory(void)
{
    void *none = &none;
    void *slab;
    void *rest;
    berth_error error;
    rig r;

    T_REQUIRE(late_open(&r));
    slab = rig_alloc(r.device, 40 * MIB);
    berthi_error_clear(&error);
    CHECK_EQ(r.device->table->alloc(r.device, 24 * MIB + 1, &none, &error), BERTH_ENOFIT);
    CHECK(none == NULL);
    CHECK_EQ(error.reason, BERTH_REASON_NO_FIT);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(error.expected, 24 * MIB + 1);
    CHECK_EQ(error.actual, 24 * MIB);
    CHECK_STR(error.message, "cuda:0: 25165825 bytes wanted, 25165824 free");
    CHECK_EQ(fake_cuda_error_left(), 0);
    rest = rig_alloc(r.device, 24 * MIB);
    CHECK_EQ(r.device->table->alloc(r.device, 0, &none, NULL), BERTH_ENOFIT);
    r.device->table->free(r.device, rest, 24 * MIB);
    rest = rig_alloc(r.device, 0);
    CHECK(rest != NULL);
    r.device->table->free(r.device, rest, 0);
    r.device->table->free(r.device, slab, 40 * MIB);
    r.device->table->free(r.device, NULL, 7);
    CHECK_EQ(r.device->table->alloc(r.device, UINT64_MAX, &none, &error), BERTH_ENOFIT);
    CHECK_EQ(error.actual, 64 * MIB);
    /* How much is free is not known either. */
    fake_cuda_fail_within(1, 999);
    CHECK_EQ(r.device->table->alloc(r.device, 65 * MIB, &none, &error), BERTH_ENOFIT);
    CHECK_EQ(fake_cuda_failures(), 1);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_BYTES);
    CHECK_STR(error.message, "cuda:0: 68157440 bytes wanted, which it does not have");
    late_close(&r);
}

/* One registration for both, which ends with the second; pages are there before it. */
static void
test_pinned_for_all(void)
{
    const uint64_t page = berthi_sys_page_bytes();
    berthi_device *other;
    berth_error error;
    uint8_t *memory;
    rig r;

    T_REQUIRE(late_open(&r));
    other = rig_at(&r, 1);
    memory = rig_pinned(&r, 4 * page, 1);
    CHECK_EQ(fake_cuda_read().pins, 1);
    r.device->table->unpin(r.device, memory, 4 * page);
    CHECK(fake_cuda_is_pinned(memory));
    r.device->table->unpin(r.device, memory, 3 * page); /* not what was pinned */
    CHECK(fake_cuda_is_pinned(memory));
    other->table->unpin(other, memory, 4 * page);
    CHECK(!fake_cuda_is_pinned(memory));
    other->table->unpin(other, memory, 4 * page);
    CHECK_EQ(fake_cuda_read().misuses, 0);
    CHECK_EQ(r.device->table->pin(r.device, memory + page, 2 * page, NULL), BERTH_OK);
    for (int i = 0; i < 4; i++) {
        static const uint64_t begins[] = { 0, 0, 2, 1 };
        static const uint64_t lengths[] = { 4, 2, 2, 1 };

        CHECK_EQ(other->table->pin(other, memory + begins[i] * page, lengths[i] * page,
                                   &error),
                 BERTH_EINTERNAL);
        CHECK_CONTAINS(error.message, "overlaps memory that is pinned");
    }
    CHECK_EQ(other->table->pin(other, memory + 3 * page, page, NULL), BERTH_OK);
    CHECK_EQ(other->table->pin(other, memory + 1, page, &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "does not begin with a page");
    CHECK_EQ(other->table->pin(other, memory, 0, NULL), BERTH_EINTERNAL);
    CHECK_EQ(fake_cuda_read().pins, 2);
    other->table->unpin(other, memory + 3 * page, page);
    r.device->table->unpin(r.device, memory + page, 2 * page);
    rig_unpinned(&r, memory, 4 * page);
    late_close(&r);
}

static void
test_pinning_refused(void)
{
    const uint64_t page = berthi_sys_page_bytes();
    berth_error error;
    uint8_t *memory;
    rig r;

    T_REQUIRE(late_open(&r));
    memory = berthi_memory_aligned(r.context, BERTHI_PURPOSE_RING, page, page);
    CHECK_EQ(fake_cuda_calls()->pin(memory, page), 0); /* somebody else has */
    CHECK_EQ(r.device->table->pin(r.device, memory, page, &error), BERTH_ENOMEM);
    CHECK_CONTAINS(error.message, "is registered by somebody else in this process");
    CHECK_EQ(fake_cuda_error_left(), 0);
    CHECK_EQ(fake_cuda_calls()->unpin(memory), 0);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
    CHECK_EQ(r.device->table->pin(r.device, memory, page, &error), BERTH_ENOMEM);
    berthi_fault_disarm();
    CHECK_CONTAINS(error.message, "is not there in full");
    fake_cuda_fail_within(0, BERTHI_CUDA_NO_MEMORY);
    CHECK_EQ(r.device->table->pin(r.device, memory, page, &error), BERTH_ENOMEM);
    CHECK_STR(error.message, "cuda:0: pinning memory: out of memory");
    CHECK_EQ(fake_cuda_read().pins, 0);
    berthi_memory_free_aligned(r.context, BERTHI_PURPOSE_RING, memory, page, page);
    late_close(&r);
}

/* A driver makes pages that are nowhere yet one after the other: they are there before. */
static void
test_pins_are_touched(void)
{
    const size_t page = berthi_sys_page_bytes();
    const size_t bytes = 100 * page;
    uint8_t *memory;
    rig r;

    T_REQUIRE(late_open(&r));
    memory = berthi_sys_map(bytes);
    T_REQUIRE(memory != NULL);
    CHECK_EQ(r.device->table->pin(r.device, memory, bytes, NULL), BERTH_OK);
    r.device->table->unpin(r.device, memory, bytes);
    CHECK_EQ(fake_cuda_read().untouched, 0);
    berthi_sys_unmap(memory, bytes);
    memory = berthi_sys_map(bytes); /* the fake sees what nobody has touched */
    T_REQUIRE(memory != NULL);
    CHECK_EQ(fake_cuda_calls()->pin(memory, bytes), 0);
    CHECK_EQ(fake_cuda_calls()->unpin(memory), 0);
    if (fake_cuda_read().untouched != 0)
        CHECK_EQ(fake_cuda_read().untouched, 100);
    else
        T_NOTE("this kernel does not tell which pages are there");
    berthi_sys_unmap(memory, bytes);
    rig_close(&r);
    fake_cuda_end();
}

/* More than the list holds at first. */
static void
test_many_pins(void)
{
    const uint64_t page = berthi_sys_page_bytes();
    uint8_t *memory;
    rig r;

    T_REQUIRE(late_open(&r));
    memory = berthi_memory_aligned(r.context, BERTHI_PURPOSE_RING, 40 * page, page);
    for (uint64_t i = 0; i < 40; i++)
        CHECK_EQ(r.device->table->pin(r.device, memory + i * page, page, NULL), BERTH_OK);
    CHECK_EQ(fake_cuda_read().pins, 40);
    for (uint64_t i = 0; i < 40; i++) {
        const uint64_t its = i * 7 % 40;

        CHECK(fake_cuda_is_pinned(memory + its * page));
        r.device->table->unpin(r.device, memory + its * page, page);
        CHECK(!fake_cuda_is_pinned(memory + its * page));
    }
    berthi_memory_free_aligned(r.context, BERTHI_PURPOSE_RING, memory, 40 * page, page);
    late_close(&r);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_memory);
    T_RUN(test_pinned_for_all);
    T_RUN(test_pinning_refused);
    T_RUN(test_pins_are_touched);
    T_RUN(test_many_pins);
    T_MAIN_END;
}
