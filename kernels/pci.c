/* SPDX-License-Identifier: Apache-2.0 */
/* pci.c - see pci.h */
#include "kernels/pci.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/procfs.h"
#include "kernels/sys.h"

#define MOST_LANES 32u

/* "32.0 GT/s PCIe", in older kernels "8 GT/s"; "Unknown" and the like: 0. */
static uint32_t
parse_generation(const char *text)
{
    static const char *const speeds[] = { "2.5", "5", "8", "16", "32", "64", "128" };
    const size_t length = strcspn(text, " ");

    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++) {
        const size_t its = strlen(speeds[i]);

        if (strncmp(text, speeds[i], its) == 0 && strncmp(text + length, " GT/s", 5) == 0
            && (length == its || (length == its + 2 && strncmp(text + its, ".0", 2) == 0)))
            return (uint32_t)i + 1;
    }
    return 0;
}

static uint32_t
parse_width(const char *text)
{
    uint64_t lanes;
    const char *const end = berthi_procfs_digits(text, &lanes);

    return end != NULL && end[0] == '\0' && lanes <= MOST_LANES ? (uint32_t)lanes : 0;
}

static uint32_t
read_one(int root, const char *folder, const char *name, uint32_t (*parse)(const char *text))
{
    char path[96];
    char line[64];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return berthi_procfs_line(root, path, line, sizeof line) == BERTHI_READING_OK
               ? parse(line)
               : 0;
}

void
berthi_pci_link_read(const char *root, uint32_t domain, uint32_t bus, uint32_t device,
                     berthi_pci_link *out)
{
    const int at = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, root);
    char folder[64];

    snprintf(folder, sizeof folder,
             "sys/bus/pci/devices/%04" PRIx32 ":%02" PRIx32 ":%02" PRIx32 ".0", domain, bus,
             device);
    out->generation = read_one(at, folder, "current_link_speed", parse_generation);
    out->width = read_one(at, folder, "current_link_width", parse_width);
    out->most_generation = read_one(at, folder, "max_link_speed", parse_generation);
    out->most_width = read_one(at, folder, "max_link_width", parse_width);
    if (at >= 0)
        berthi_sys_close(at);
}
