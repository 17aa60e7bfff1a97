/* SPDX-License-Identifier: Apache-2.0 */
/* test_pci.c - links of PCI devices in folders that say what kernels say. */
#include "kernels/pci.h"

#include "tests/fixture.h"
#include "tests/t.h"

static const char *const names[] = { "current_link_speed", "current_link_width",
                                     "max_link_speed", "max_link_width" };

static const char *tree;

/* Four files, of which "" is not there, for the device 0001:3b:02.0. */
static berthi_pci_link
link_of(const char *const texts[4])
{
    berthi_pci_link link = { 9, 9, 9, 9 };

    for (size_t i = 0; i < 4; i++) {
        const char *const path =
            fixture_format("%s/sys/bus/pci/devices/0001:3b:02.0/%s", tree, names[i]);

        fixture_remove(path);
        if (texts[i][0] != '\0')
            fixture_text(path, fixture_format("%s\n", texts[i]));
    }
    berthi_pci_link_read(tree, 1, 0x3b, 2, &link);
    return link;
}

static void
check(const char *speed, uint32_t generation, const char *width, uint32_t lanes)
{
    berthi_pci_link link = link_of((const char *const[]){ speed, "4", "32.0 GT/s", width });

    CHECK_EQ(link.generation, generation);
    CHECK_EQ(link.width, 4);
    CHECK_EQ(link.most_generation, 5);
    CHECK_EQ(link.most_width, lanes);
}

static void
test_links(void)
{
    check("2.5 GT/s PCIe", 1, "1", 1);
    check("5.0 GT/s PCIe", 2, "2", 2);
    check("5 GT/s", 2, "8", 8);
    check("8.0 GT/s PCIe", 3, "16", 16);
    check("16.0 GT/s PCIe", 4, "32", 32);
    check("32.0 GT/s PCIe", 5, "33", 0);
    check("64.0 GT/s PCIe", 6, "255", 0);
    check("128.0 GT/s PCIe", 7, "x16", 0);
}

static void
test_unknown(void)
{
    berthi_pci_link link;

    check("Unknown", 0, "", 0);
    check("Unknown speed", 0, "-1", 0);
    check("2 GT/s", 0, "16 lanes", 0);
    check("32.5 GT/s", 0, "99999999999999999999", 0);
    check("8.00 GT/s", 0, "0", 0);
    check("8.0 GB/s", 0, " ", 0);
    check("", 0, "16", 16);
    berthi_pci_link_read(tree, 7, 0x3b, 2, &link); /* another device */
    CHECK_EQ(link.generation + link.width + link.most_generation + link.most_width, 0);
    link.width = 1;
    berthi_pci_link_read("/no/such/folder", 1, 0x3b, 2, &link);
    CHECK_EQ(link.generation + link.width + link.most_generation + link.most_width, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    tree = fixture_folder();
    T_RUN(test_links);
    T_RUN(test_unknown);
    T_MAIN_END;
}
