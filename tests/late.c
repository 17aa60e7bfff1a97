/* SPDX-License-Identifier: Apache-2.0 */
/* late.c - see late.h. */
#include "tests/late.h"

#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

const fake_cuda_machine late_machine = { .count = 2, .driver = 13000, .architecture = 90,
                                         .memory_bytes = 64 * MIB, .is_late = true };
const fake_cuda_machine late_small_machine = { .count = 2, .driver = 13000,
                                               .architecture = 90, .memory_bytes = 8 * MIB,
                                               .is_late = true };

bool
late_open(rig *r)
{
    fake_cuda_begin(&late_machine);
    return rig_open_cuda(r, fake_cuda_calls(), "cuda");
}

void
late_check_books(void)
{
    fake_cuda_check_empty();
    CHECK_EQ(fake_cuda_error_left(), 0);
}

void
late_close(rig *r)
{
    rig_close(r);
    late_check_books();
    CHECK_EQ(fake_cuda_current(), 0);
    fake_cuda_end();
}

void
late_check_bytes(const uint8_t *memory, uint64_t bytes, uint8_t expected)
{
    uint64_t same = 0;

    for (uint64_t i = 0; i < bytes; i++)
        same += memory[i] == expected;
    CHECK_EQ(same, bytes);
}

bool
late_is_past(berthi_device *device, berthi_event *event)
{
    bool past = false;

    CHECK_EQ(device->table->query(device, event, &past, NULL), BERTH_OK);
    return past;
}
