/* SPDX-License-Identifier: Apache-2.0 */
/* nvlink.c - see nvlink.h */
#include "kernels/nvlink.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base.h"

/* More than any GPU has: the library's own limit is 36, and Grace Hopper has 10 to its host. */
#define MOST_LINKS 64u

typedef struct gpu {
    const berthi_nvml_calls *calls;
    void *handle;
} gpu;

/* False: the driver does not tell. */
static bool
read_field(const gpu *g, berthi_nvml_field_id id, uint32_t scope, uint32_t *out)
{
    berthi_nvml_field field = { .id = (uint32_t)id, .scope = scope };
    uint64_t value;

    *out = 0;
    if (g->calls->fields(g->handle, 1, &field) != BERTHI_NVML_OK
        || field.status != BERTHI_NVML_OK)
        return false;
    switch (field.type) {
    case BERTHI_NVML_U32: value = field.value.u32; break;
    case BERTHI_NVML_LONG:
    case BERTHI_NVML_U64: value = field.value.u64; break;
    default: return false;
    }
    if (value > INT32_MAX)
        return false;
    *out = (uint32_t)value;
    return true;
}

static uint32_t
count_links(const gpu *g)
{
    uint32_t count;

    return read_field(g, BERTHI_NVML_LINK_COUNT, 0, &count) && count <= MOST_LINKS ? count
                                                                                   : MOST_LINKS;
}

/* By a field, which Hopper and later have, or by the call of those before. */
static bool
is_up(const gpu *g, uint32_t link)
{
    uint32_t state;
    int its = 0;

    if (read_field(g, BERTHI_NVML_LINK_STATE, link, &state))
        return state == BERTHI_NVML_UP;
    return g->calls->link_state(g->handle, link, &its) == BERTHI_NVML_OK
           && its == BERTHI_NVML_UP;
}

/* Ten times. */
static uint16_t
read_version(const gpu *g, uint32_t link)
{
    static const uint16_t versions[] = { 0, 10, 20, 22, 30, 31, 40, 50, 60 };
    unsigned int its = 0;

    if (g->calls->link_version(g->handle, link, &its) != BERTHI_NVML_OK
        || its >= sizeof versions / sizeof *versions)
        return 0;
    return versions[its];
}

static uint32_t
read_speed(const gpu *g, uint32_t link)
{
    uint32_t speed;

    if (!read_field(g, BERTHI_NVML_LINK_SPEED, link, &speed) || speed == 0)
        (void)read_field(g, BERTHI_NVML_LINK_SPEED_OF_ALL, 0, &speed);
    return speed;
}

/* All that are up are alike. */
static void
read_links(const gpu *g, berthi_nvlinks *out)
{
    const uint32_t count = count_links(g);
    uint32_t up = 0;

    for (uint32_t i = 0; i < count; i++)
        if (is_up(g, i)) {
            up = i;
            out->links++;
        }
    if (out->links == 0)
        return;
    out->version = read_version(g, up);
    out->mb_per_s = read_speed(g, up);
}

static uint32_t
read_c2c_speed(const gpu *g)
{
    uint64_t sum = 0;
    uint32_t count;

    (void)read_field(g, BERTHI_NVML_C2C_COUNT, 0, &count);
    for (uint32_t i = 0; i < count && i < MOST_LINKS; i++) {
        uint32_t state;
        uint32_t speed;

        if (read_field(g, BERTHI_NVML_C2C_STATE, i, &state) && state == BERTHI_NVML_UP
            && read_field(g, BERTHI_NVML_C2C_SPEED, i, &speed))
            sum += speed;
    }
    return (uint32_t)berthi_min_u64(sum, UINT32_MAX);
}

void
berthi_nvlinks_read(const berthi_nvml_calls *calls, uint32_t domain, uint32_t bus,
                    uint32_t device, berthi_nvlinks *out)
{
    gpu g = { .calls = calls };
    char address[32];

    *out = (berthi_nvlinks){ .links = 0 };
    snprintf(address, sizeof address, "%08" PRIx32 ":%02" PRIx32 ":%02" PRIx32 ".0", domain,
             bus, device);
    if (calls->find(address, &g.handle) != BERTHI_NVML_OK)
        return;
    read_links(&g, out);
    out->c2c_mb_per_s = read_c2c_speed(&g);
}
