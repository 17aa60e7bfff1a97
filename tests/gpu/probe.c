/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.c - asks the driver for the GPUs of this machine, before anything is built: prints the
 * architecture of each ("90"); without any prints why and ends with 77. Needs no toolkit.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define SKIPPED 77
#define MAJOR 75 /* attributes: of the compute capability */
#define MINOR 76

typedef int driver_init(unsigned flags);
typedef int driver_count(int *out);
typedef int driver_get(int *out, int ordinal);
typedef int driver_attribute(int *out, int attribute, int device);

/* Functions and objects are found by the same call. */
static void
find(void *library, const char *name, void *out)
{
    void *const found = dlsym(library, name);

    memcpy(out, &found, sizeof found);
}

int
main(void)
{
    void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    driver_init *init = NULL;
    driver_count *count = NULL;
    driver_get *get = NULL;
    driver_attribute *attribute = NULL;
    int devices = 0;

    if (library == NULL) {
        puts("there is no driver (libcuda.so.1)");
        return SKIPPED;
    }
    find(library, "cuInit", &init);
    find(library, "cuDeviceGetCount", &count);
    find(library, "cuDeviceGet", &get);
    find(library, "cuDeviceGetAttribute", &attribute);
    if (init == NULL || count == NULL || get == NULL || attribute == NULL || init(0) != 0
        || count(&devices) != 0 || devices == 0) {
        puts("the driver has no GPU");
        return SKIPPED;
    }
    for (int i = 0; i < devices; i++) {
        int device;
        int major;
        int minor;

        if (get(&device, i) == 0 && attribute(&major, MAJOR, device) == 0
            && attribute(&minor, MINOR, device) == 0)
            printf("%d\n", 10 * major + minor);
    }
    return 0;
}
