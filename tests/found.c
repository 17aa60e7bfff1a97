/* SPDX-License-Identifier: Apache-2.0 */
/* found.c - see found.h. */
#define _GNU_SOURCE
#include "tests/found.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/t.h"

const char *
found_path(const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, name);
}

int
found_count(void *user, const char *name)
{
    found_names *const n = user;

    n->count++;
    n->sum += strtoull(name + strspn(name, "n"), NULL, 10);
    return n->count == n->stop_after;
}

int64_t
found_cached_by(bool is_by_page, int fd, uint64_t offset, uint64_t bytes)
{
    int64_t count;

    if (is_by_page)
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
    count = berthi_sys_cached_pages(fd, offset, bytes);
    berthi_fault_disarm();
    return count;
}
