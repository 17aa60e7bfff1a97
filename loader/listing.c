/* SPDX-License-Identifier: Apache-2.0 */
/* listing.c - the names in a model's folder, kind by kind; see listing.h. */
#include "loader/listing.h"

#include <errno.h>
#include <string.h>

#include "loader/paths.h"
#include "loader/sort.h"

/* The names come in any order and number: a chain first, an array in the end. */
typedef struct name_node {
    struct name_node *next;
    const char *name;
} name_node;

typedef struct collection {
    berthi_location *location;
    berthi_listing *out;
    name_node *singles;
    bool is_out_of_memory;
} collection;

/* -------------------------------------------------------------------- kinds */

bool
berthi_listing_is_index(const char *name)
{
    return strstr(name, BERTHI_INDEX_INFIX) != NULL
           && berthi_path_has_suffix(name, ".json");
}

static bool
has_one_suffix(const char *name, const char *const *suffixes)
{
    for (; *suffixes != NULL; suffixes++)
        if (berthi_path_has_suffix(name, *suffixes))
            return true;
    return false;
}

bool
berthi_listing_is_pickle(const char *name)
{
    static const char *const suffixes[] = { ".bin",  ".pt",  ".pth",
                                            ".ckpt", ".pkl", NULL };

    return has_one_suffix(name, suffixes)
           && !berthi_path_has_prefix(name, "training_args")
           && !berthi_path_has_prefix(name, "optimizer");
}

static bool
is_other(const char *name)
{
    static const char *const suffixes[] = { ".h5",   ".msgpack", ".npz",
                                            ".onnx", ".tflite",  NULL };

    return has_one_suffix(name, suffixes);
}

/* --------------------------------------------------------------- collecting */

/* The first in bytewise order is kept, whatever order the folder has. */
static void
keep_first(collection *all, const char **kept, const char *name)
{
    if (*kept != NULL && strcmp(*kept, name) <= 0)
        return;
    *kept = berthi_arena_text(&all->location->arena, name, strlen(name));
    all->is_out_of_memory |= *kept == NULL;
}

static void
keep_single(collection *all, const char *name)
{
    berthi_arena *const arena = &all->location->arena;
    name_node *const node = berthi_arena_alloc(arena, sizeof *node, 8);

    if (node != NULL)
        node->name = berthi_arena_text(arena, name, strlen(name));
    if (node == NULL || node->name == NULL) {
        all->is_out_of_memory = true;
        return;
    }
    node->next = all->singles;
    all->singles = node;
    all->out->single_count++;
}

static int
keep_name(void *user, const char *name)
{
    collection *const all = user;
    berthi_listing *const out = all->out;

    if (berthi_path_has_suffix(name, BERTHI_SINGLE_SUFFIX)) {
        keep_single(all, name);
    } else if (berthi_listing_is_index(name)) {
        out->index_count++;
        keep_first(all, &out->index, name);
    } else if (berthi_listing_is_pickle(name)) {
        keep_first(all, &out->pickle, name);
    } else if (berthi_path_has_suffix(name, ".gguf")) {
        keep_first(all, &out->gguf, name);
    } else if (is_other(name)) {
        keep_first(all, &out->other, name);
    } else if (strcmp(name, "model_index.json") == 0) {
        out->has_pipeline = true;
    } else if (berthi_path_has_prefix(name, "models--")) {
        out->has_repositories = true;
    }
    return all->is_out_of_memory;
}

/* ------------------------------------------------------------------ sorting */

static int
compare_names(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    const char *const *names = user;

    (void)shared;
    return strcmp(names[a], names[b]);
}

/* The chain as an array in bytewise order. False: out of memory. */
static bool
sort_names(const collection *all)
{
    berthi_arena *const arena = &all->location->arena;
    berth_context *const context = all->location->context;
    const uint64_t count = all->out->single_count;
    const char **const listed = berthi_arena_alloc(arena, count * sizeof *listed, 8);
    const char **const sorted = berthi_arena_alloc(arena, count * sizeof *sorted, 8);
    uint32_t *const order =
        berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, count, sizeof *order);
    bool is_done = false;

    if (listed != NULL && sorted != NULL && order != NULL) {
        uint64_t i = 0;

        for (const name_node *node = all->singles; node != NULL; node = node->next)
            listed[i++] = node->name;
        berthi_sort_number(order, count);
        is_done = berthi_sort_can_arrange(context, order, count, compare_names, listed);
        for (i = 0; i < count; i++)
            sorted[i] = listed[order[i]];
    }
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, order, count * sizeof *order);
    all->out->singles = sorted;
    return is_done;
}

berth_status
berthi_listing_read(berthi_location *location, berthi_listing *out, berth_error *error)
{
    collection all = { .location = location, .out = out };

    memset(out, 0, sizeof *out);
    if (berthi_sys_list(location->folder, keep_name, &all) != 0)
        return berthi_fail_system(error, errno, location->folder_path,
                                  "listing the folder");
    if (all.is_out_of_memory || !sort_names(&all))
        return berthi_fail_memory(error, "listing a folder");
    return BERTH_OK;
}
