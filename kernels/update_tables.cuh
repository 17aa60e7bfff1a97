/* SPDX-License-Identifier: Apache-2.0 */
/* update_tables.cuh - what a CTA of an update looks up: values of codes, codes of values. */
#ifndef BERTH_KERNELS_UPDATE_TABLES_CUH
#define BERTH_KERNELS_UPDATE_TABLES_CUH

#include "kernels/kernel_arguments.h"
#include "kernels/map_entries.cuh"

#define UPDATE_SIDES 3u /* of the maps: above zero, below it, the unsigned one's */
/* Entries that a lane makes: so many that all lanes have some. */
#define UPDATE_ENTRIES ((2 * MAP_SIGNED_BINS + MAP_UNSIGNED_BINS) / UPDATE_THREADS)

#define UPDATE_COPIES 8u /* of a value, one behind the other */
#define UPDATE_COPIES_BYTES (2 * 256u * UPDATE_COPIES * 4)

typedef struct update_tables {
    uint32_t *values;         /* both maps, the signed one first */
    uint32_t *copies;         /* the same, where lanes would wait for each other; else NULL */
    uint32_t *signed_entries; /* map_entries.cuh; codes keep signs */
    uint32_t *unsigned_entries;
} update_tables;

/* The value of byte k of a word of codes, by the lane's copy: of the first map or the second. */
SIMT_INLINE float
update_value(const update_tables *t, uint32_t map, uint32_t word, uint32_t k)
{
    const uint32_t copy =
        map * (UPDATE_COPIES_BYTES / 2) + simt_thread() % UPDATE_COPIES * 4;
    const uint32_t at = simt_add_bytes(word, UPDATE_COPIES * 4 << 8 * k, copy);

    return berthi_core_float(simt_shared_load4((const uint8_t *)t->copies + at));
}

/* Ends with a barrier. `edges` is memory for UPDATE_SIDES of them. */
SIMT_INLINE void
update_fill_tables(const berthi_update_kernel *a, const update_tables *t, uint32_t *edges)
{
    const uint32_t *const maps = simt_argument(a->maps[0]);
    const uint32_t first = simt_thread() * UPDATE_ENTRIES;

    SIMT_UNROLL
    for (uint32_t i = simt_thread(); i < 2 * 256u; i += UPDATE_THREADS)
        t->values[i] = maps[i];
    simt_barrier();
    if (t->copies != NULL)
        SIMT_UNROLL
        for (uint32_t i = simt_thread(); i < UPDATE_COPIES_BYTES / 4; i += UPDATE_THREADS)
            t->copies[i] = t->values[i / UPDATE_COPIES];
    SIMT_NO_UNROLL
    for (uint32_t i = simt_thread(); i < UPDATE_SIDES * MAP_EDGES; i += UPDATE_THREADS)
        edges[i] = i < MAP_EDGES       ? map_edge(t->values, MAP_FROM_ABOVE, i)
                   : i < 2 * MAP_EDGES ? map_edge(t->values, MAP_FROM_SIGN, i - MAP_EDGES)
                                       : map_edge(t->values + 256, MAP_FROM_ZERO,
                                                  i - 2 * MAP_EDGES);
    simt_barrier();
    if (first < 2 * MAP_SIGNED_BINS) {
        const uint32_t is_below = first >= MAP_SIGNED_BINS ? 1 : 0;

        map_fill(edges + is_below * MAP_EDGES, is_below != 0 ? MAP_FROM_SIGN : MAP_FROM_ABOVE,
                 MAP_SIGNED_BITS, first - is_below * MAP_SIGNED_BINS, UPDATE_ENTRIES,
                 t->signed_entries + is_below * MAP_SIGNED_SIDE);
    } else {
        map_fill(edges + 2 * MAP_EDGES, MAP_FROM_ZERO, MAP_UNSIGNED_BITS,
                 first - 2 * MAP_SIGNED_BINS, UPDATE_ENTRIES, t->unsigned_entries);
    }
    simt_barrier();
}

#endif
