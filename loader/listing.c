/* SPDX-License-Identifier: Apache-2.0 */
/* listing.c - the names in a model's folder, kind by kind; see listing.h. */
#include "loader/listing.h"

#include <errno.h>
#include <string.h>

#include "loader/journal.h"
#include "loader/paths.h"
#include "loader/sort.h"

/* What all names begin with that berth gives to files beside a model, or on the way to one. */
#define OWN_PREFIX ".berth-"
/* `._model.safetensors` holds what macOS notes about the file, where a disk has no place for it. */
#define NOTE_PREFIX "._"

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

/* Names of files that hold weights end so. */
static const struct {
    const char *suffix;
    berthi_weights_kind kind;
} suffixes[] = {
    { BERTHI_SINGLE_SUFFIX, BERTHI_WEIGHTS_SAFETENSORS },
    { ".bin", BERTHI_WEIGHTS_PICKLE },
    { ".pt", BERTHI_WEIGHTS_PICKLE },
    { ".pth", BERTHI_WEIGHTS_PICKLE },
    { ".ckpt", BERTHI_WEIGHTS_PICKLE },
    { ".pkl", BERTHI_WEIGHTS_PICKLE },
    { ".pickle", BERTHI_WEIGHTS_PICKLE },
    { ".gguf", BERTHI_WEIGHTS_GGUF },
    { ".ggml", BERTHI_WEIGHTS_OTHER },
    { ".llamafile", BERTHI_WEIGHTS_OTHER },
    { ".h5", BERTHI_WEIGHTS_OTHER },
    { ".hdf5", BERTHI_WEIGHTS_OTHER },
    { ".keras", BERTHI_WEIGHTS_OTHER },
    { ".tflite", BERTHI_WEIGHTS_OTHER },
    { ".msgpack", BERTHI_WEIGHTS_OTHER },
    { ".npz", BERTHI_WEIGHTS_OTHER },
    { ".onnx", BERTHI_WEIGHTS_OTHER },
    { ".onnx_data", BERTHI_WEIGHTS_OTHER },
    { ".ot", BERTHI_WEIGHTS_OTHER },
    { ".nemo", BERTHI_WEIGHTS_OTHER },
    { ".pdparams", BERTHI_WEIGHTS_OTHER },
    { ".mlmodel", BERTHI_WEIGHTS_OTHER },
    { ".distcp", BERTHI_WEIGHTS_OTHER },
    { ".engine", BERTHI_WEIGHTS_OTHER },
    { ".pte", BERTHI_WEIGHTS_OTHER },
};

berthi_weights_kind
berthi_listing_kind(const char *name)
{
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (berthi_path_has_suffix(name, suffixes[i].suffix))
            return suffixes[i].kind;
    return BERTHI_WEIGHTS_NONE;
}

bool
berthi_listing_is_pickle(const char *name)
{
    return berthi_listing_kind(name) == BERTHI_WEIGHTS_PICKLE
           && !berthi_path_has_prefix(name, "training_args")
           && !berthi_path_has_prefix(name, "optimizer");
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

/* What is no file of weights may still say where some are. */
static void
keep_other_name(collection *all, const char *name)
{
    berthi_listing *const out = all->out;

    if (berthi_listing_is_index(name)) {
        out->index_count++;
        keep_first(all, &out->index, name);
    } else if (strcmp(name, "model_index.json") == 0) {
        out->has_pipeline = true;
    } else if (berthi_path_has_prefix(name, "models--")) {
        out->has_repositories = true;
    }
}

static int
keep_name(void *user, const char *name)
{
    collection *const all = user;
    berthi_listing *const out = all->out;

    if (berthi_path_has_prefix(name, OWN_PREFIX)) {
        out->has_parts |= berthi_journal_is_made_by_parts(name);
        return 0;
    }
    if (berthi_path_has_prefix(name, NOTE_PREFIX))
        return 0;
    switch (berthi_listing_kind(name)) {
    case BERTHI_WEIGHTS_NONE: keep_other_name(all, name); break;
    case BERTHI_WEIGHTS_SAFETENSORS: keep_single(all, name); break;
    case BERTHI_WEIGHTS_PICKLE:
        if (berthi_listing_is_pickle(name))
            keep_first(all, &out->pickle, name);
        break;
    case BERTHI_WEIGHTS_GGUF: keep_first(all, &out->gguf, name); break;
    case BERTHI_WEIGHTS_OTHER: keep_first(all, &out->other, name); break;
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
    const char **const names = berthi_arena_alloc(arena, count * sizeof *names, 8);
    uint32_t *const order =
        berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, count, sizeof *order);
    bool is_done = false;

    if (names != NULL && order != NULL) {
        uint64_t i = 0;

        for (const name_node *node = all->singles; node != NULL; node = node->next)
            names[i++] = node->name;
        berthi_sort_number(order, count);
        is_done = berthi_sort_arrange(context, order, count, compare_names, names);
    }
    if (is_done)
        berthi_sort_apply(names, sizeof *names, order, count);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, order, count * sizeof *order);
    all->out->singles = names;
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
