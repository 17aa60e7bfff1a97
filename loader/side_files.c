/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side_files.c - walks the folder level by level; see side_files.h.
 *
 * A plain file of a folder that was entered without following a link is inside.
 * A link is opened once and judged by where the open file lies. Reading opens
 * again and accepts only the same file: nothing that is put in its place later
 * gets through.
 */
#include "loader/side_files.h"

#include <errno.h>
#include <string.h>

#include "loader/listing.h"
#include "loader/paths.h"
#include "loader/side_names.h"
#include "loader/sort.h"

#define DEPTH_LIMIT 3u /* folders below the model's: the path rule */
#define COPY_BYTES UINT64_C(65536)

/* A folder that is to be listed. */
typedef struct folder_node {
    struct folder_node *next;
    const char *path; /* below the model's folder; "": itself */
    uint32_t depth;
    bool *has_weights; /* somewhere in its branch: shared by all folders of it */
} folder_node;

typedef struct file_node {
    struct file_node *next;
    const bool *has_weights; /* of its branch; NULL: beside the weights themselves */
    berthi_side_file file;
} file_node;

typedef struct walking {
    berthi_location *location;
    berthi_findings *findings;
    berth_error *error;
    berth_status status;
    const folder_node *folder; /* being listed, open as `fd` */
    int fd;
    folder_node *pending;
    file_node *files;
} walking;

/* --------------------------------------------------------------------- memory */

static void *
take(walking *w, uint64_t bytes)
{
    void *const memory = berthi_arena_alloc(&w->location->arena, bytes, 8);

    if (memory == NULL)
        w->status = berthi_fail_memory(w->error, "listing what goes along");
    return memory;
}

/* The path of `name` in the folder that is being listed. */
static const char *
path_of(walking *w, const char *name)
{
    const char *const path =
        berthi_path_join(&w->location->arena, w->folder->path, name);

    if (path == NULL)
        w->status = berthi_fail_memory(w->error, "listing what goes along");
    return path;
}

static void
fail_system(walking *w, int failure, const char *path, const char *what)
{
    const char *const shown = berthi_location_path(w->location, path);

    w->status = shown == NULL ? berthi_fail_memory(w->error, "a path")
                              : berthi_fail_system(w->error, failure, shown, what);
}

static void
remark(walking *w, const char *path, const char *what, const char *why)
{
    const char *const shown = berthi_location_path(w->location, path);

    if (shown == NULL)
        w->status = berthi_fail_memory(w->error, "a path");
    else
        berthi_findings_remark(w->findings, BERTH_SEVERITY_WARNING, BERTH_REASON_PATH,
                               &(berthi_about){ .file = shown }, "left out: %s%s", what,
                               why);
}

/* ---------------------------------------------------------------------- links */

/*
 * The path by which the open file is reached. False: there is none, or, and then the walk has
 * failed, nobody tells: a file that is left out for that would be missing in what is made.
 */
static bool
has_real_path(walking *w, const char *link, int fd, char real[BERTHI_PATH_CAPACITY])
{
    const int64_t length = berthi_sys_path_of(fd, real, BERTHI_PATH_CAPACITY);

    if (length < 0)
        fail_system(w, errno, link, "looking up in /proc where the link leads");
    return length > 0 && length < BERTHI_PATH_CAPACITY - 1 && real[0] == '/';
}

/* True when `path` lies below what `folder` is open on. */
static bool
is_below(walking *w, const char *link, const char *path, int folder)
{
    char real[BERTHI_PATH_CAPACITY];
    size_t length;

    if (!has_real_path(w, link, folder, real))
        return false;
    length = strlen(real);
    return strncmp(path, real, length) == 0
           && (path[length] == '/' || real[length - 1] == '/');
}

/* `.../models--org--name/blobs/<digest>` */
static bool
is_hub_blob(const char *path)
{
    static const char blobs[] = "/blobs/";
    const char *const name = strrchr(path, '/') + 1;
    const char *repository = name - (sizeof blobs - 1);

    if (repository <= path || strncmp(repository, blobs, sizeof blobs - 1) != 0)
        return false;
    while (repository > path && repository[-1] != '/')
        repository--;
    return berthi_path_has_prefix(repository, "models--");
}

/* Whether the open file is one that may go along: by where it lies, not its name. */
static bool
is_at_home(walking *w, const char *link, const berthi_file *file)
{
    const berthi_location *const location = w->location;
    char real[BERTHI_PATH_CAPACITY];

    if (!has_real_path(w, link, file->fd, real))
        return false;
    return is_hub_blob(real) || is_below(w, link, real, location->folder)
           || (location->home >= 0 && is_below(w, link, real, location->home));
}

static berth_status
open_file(berthi_location *location, const char *path, berthi_file *file,
          berth_error *error)
{
    return berthi_location_open(location, path, BERTH_REASON_NOT_FOUND,
                                "the file is not there any more", file, error);
}

/* True when the link leads to a file that goes along; *out is that file. */
static bool
can_follow(walking *w, const char *path, berthi_sys_stat *out)
{
    berthi_file file;
    berth_status status = open_file(w->location, path, &file, w->error);
    bool is_good;

    if (status != BERTH_OK && w->error->reason == BERTH_REASON_PATH) {
        remark(w, path, "", "a link that leaves the model's folder");
        return false;
    }
    if (status != BERTH_OK) {
        /* Links to folders are not followed, devices are nothing to copy. */
        if (w->error->reason != BERTH_REASON_NOT_REGULAR)
            w->status = status;
        return false;
    }
    *out = file.identity;
    is_good = is_at_home(w, path, &file);
    berthi_file_close(&file);
    if (!is_good && w->status == BERTH_OK)
        remark(w, path, "", "a link that leaves the model's folder");
    return is_good;
}

/* -------------------------------------------------------------------- walking */

static void
add_file(walking *w, const char *path, const berthi_sys_stat *identity)
{
    file_node *const node = take(w, sizeof *node);

    if (node == NULL)
        return;
    node->file.name = path;
    node->file.identity = *identity;
    node->has_weights = w->folder->has_weights;
    node->next = w->files;
    w->files = node;
}

static void
add_folder(walking *w, const char *path)
{
    folder_node *const node = take(w, sizeof *node);

    if (node == NULL)
        return;
    node->path = path;
    node->depth = w->folder->depth + 1;
    node->has_weights = w->folder->has_weights;
    if (node->has_weights == NULL) {
        node->has_weights = take(w, sizeof *node->has_weights);
        if (node->has_weights == NULL)
            return;
        *node->has_weights = false;
    }
    node->next = w->pending;
    w->pending = node;
}

static void
visit_folder(walking *w, const char *name)
{
    const bool is_top = w->folder->depth == 0;
    const char *path;

    if (berthi_side_is_left_out_folder(name))
        return;
    path = path_of(w, name);
    if (path == NULL)
        return;
    if (w->folder->depth == DEPTH_LIMIT)
        remark(w, path, "", "too many folders deep");
    else if (is_top && berthi_side_is_of_model(name))
        remark(w, path, "", "a folder with the name of a model's file");
    else
        add_folder(w, path);
}

static void
visit_file(walking *w, const char *name, const berthi_sys_stat *state)
{
    const bool is_top = w->folder->has_weights == NULL;
    berthi_sys_stat identity = *state;
    const char *path;

    /* States of a training are weights, too. */
    if (berthi_listing_kind(name) != BERTHI_WEIGHTS_NONE) {
        if (!is_top)
            *w->folder->has_weights = true;
        return;
    }
    if (berthi_side_is_index(name) || berthi_side_is_unfinished(name)
        || (is_top && berthi_side_is_replaced(name)))
        return;
    path = path_of(w, name);
    if (path != NULL
        && (state->kind == BERTHI_SYS_REGULAR || can_follow(w, path, &identity)))
        add_file(w, path, &identity);
}

/* False for a name that no output of ours may have; that is remarked upon. */
static bool
is_good_name(walking *w, const char *name)
{
    const char *const problem = berthi_path_problem(name, strlen(name));
    const char *path;

    if (problem == NULL)
        return true;
    path = path_of(w, name);
    if (path != NULL)
        remark(w, path, "its name ", problem);
    return false;
}

static int
visit(void *user, const char *name)
{
    walking *const w = user;
    berthi_sys_stat state;

    if (name[0] == '.')
        return 0;
    if (berthi_sys_stat_at(w->fd, name, BERTHI_SYS_NO_FOLLOW, &state) != 0) {
        if (errno != ENOENT)
            fail_system(w, errno, w->folder->path, "looking at its files");
    } else if (!is_good_name(w, name)) {
        return w->status != BERTH_OK;
    } else if (state.kind == BERTHI_SYS_FOLDER) {
        visit_folder(w, name);
    } else if (state.kind != BERTHI_SYS_OTHER) {
        visit_file(w, name, &state);
    }
    return w->status != BERTH_OK;
}

/* A folder that lies in the model's; `path` "" is that itself. */
static void
list_folder(walking *w)
{
    const bool is_top = w->folder->depth == 0;

    w->fd = is_top ? w->location->folder
                   : berthi_sys_open_folder(w->location->folder, w->folder->path);
    if (w->fd < 0) {
        fail_system(w, errno, w->folder->path, "opening the folder");
        return;
    }
    if (berthi_sys_list(w->fd, visit, w) != 0)
        fail_system(w, errno, w->folder->path, "listing the folder");
    if (!is_top)
        berthi_sys_close(w->fd);
}

static void
walk(walking *w)
{
    static const folder_node top = { .path = "" };

    w->folder = &top;
    list_folder(w);
    while (w->pending != NULL && w->status == BERTH_OK) {
        w->folder = w->pending;
        w->pending = w->pending->next;
        list_folder(w);
    }
}

/* -------------------------------------------------------------------- sorting */

static int
compare_names(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    const berthi_side_file *const files = user;

    (void)shared;
    return strcmp(files[a].name, files[b].name);
}

/* A branch that holds weights goes as a whole. */
static bool
is_kept(const file_node *node)
{
    return node->has_weights == NULL || !*node->has_weights;
}

/* Fills `listed` from the chain, `sorted` from that. False: out of memory. */
static bool
sort_files(const walking *w, berthi_side_file *listed, berthi_side_file *sorted,
           uint32_t count)
{
    berth_context *const context = w->location->context;
    uint32_t *const order =
        berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, count, sizeof *order);
    uint32_t i = 0;
    bool is_done;

    if (order == NULL)
        return false;
    for (const file_node *node = w->files; node != NULL; node = node->next)
        if (is_kept(node))
            listed[i++] = node->file;
    berthi_sort_number(order, count);
    is_done = berthi_sort_arrange(context, order, count, compare_names, listed);
    for (i = 0; i < count; i++)
        sorted[i] = listed[order[i]];
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, order, count * sizeof *order);
    return is_done;
}

/* The chain as an array in bytewise order. */
static void
arrange(walking *w, berthi_side_files *out)
{
    berthi_side_file *listed;
    berthi_side_file *sorted;
    uint32_t count = 0;

    for (const file_node *node = w->files; node != NULL; node = node->next)
        count += is_kept(node);
    listed = take(w, count * sizeof *listed);
    sorted = take(w, count * sizeof *sorted);
    if (w->status != BERTH_OK)
        return;
    if (!sort_files(w, listed, sorted, count)) {
        w->status = berthi_fail_memory(w->error, "listing what goes along");
        return;
    }
    out->files = sorted;
    out->count = count;
    for (uint32_t i = 0; i < count; i++)
        out->bytes += sorted[i].identity.bytes;
}

/* What cannot be read is better known before hours of work than after them. */
static void
try_to_open(walking *w, const berthi_side_files *files)
{
    for (uint32_t i = 0; i < files->count && w->status == BERTH_OK; i++) {
        berthi_file file;

        w->status = open_file(w->location, files->files[i].name, &file, w->error);
        if (w->status == BERTH_OK)
            berthi_file_close(&file);
    }
}

berth_status
berthi_side_files_find(berthi_location *location, berthi_findings *findings,
                       berthi_side_files *out, berth_error *error)
{
    walking w = { .location = location, .findings = findings, .error = error };
    bool has_config = true;

    memset(out, 0, sizeof *out);
    if (location->file != NULL)
        w.status = berthi_location_has(location, BERTHI_CONFIG_NAME, &has_config, error);
    if (w.status != BERTH_OK || !has_config)
        return w.status;
    walk(&w);
    if (w.status == BERTH_OK)
        arrange(&w, out);
    if (w.status == BERTH_OK)
        try_to_open(&w, out);
    if (w.status != BERTH_OK)
        memset(out, 0, sizeof *out);
    return w.status;
}

/* -------------------------------------------------------------------- reading */

static bool
is_same_file(const berthi_sys_stat *a, const berthi_sys_stat *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes
           && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

static berth_status
read_open_file(berth_context *context, const berthi_file *file, berthi_side_files_put put,
               void *user, berth_error *error)
{
    const uint64_t bytes = file->identity.bytes;
    const uint64_t capacity = berthi_min_u64(bytes, COPY_BYTES);
    char *const buffer =
        berthi_memory_alloc(context, BERTHI_PURPOSE_SCRATCH, capacity);
    berth_status status = BERTH_OK;

    if (buffer == NULL)
        return berthi_fail_memory(error, "copying a file");
    for (uint64_t at = 0; at < bytes && status == BERTH_OK; at += capacity) {
        const uint64_t size = berthi_min_u64(bytes - at, capacity);

        status = berthi_file_read(file, buffer, size, at, "copying the file", error);
        if (status == BERTH_OK)
            status = put(user, buffer, size, at, error);
    }
    if (status == BERTH_OK)
        status = berthi_file_check(file, error);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, buffer, capacity);
    return status;
}

berth_status
berthi_side_files_read(berthi_location *location, const berthi_side_file *file,
                       berthi_side_files_put put, void *user, berth_error *error)
{
    berthi_file opened;
    berth_status status = open_file(location, file->name, &opened, error);

    if (status != BERTH_OK)
        return status;
    if (is_same_file(&opened.identity, &file->identity))
        status = read_open_file(location->context, &opened, put, user, error);
    else
        status = berthi_fail(error, BERTH_REASON_CHANGED,
                             &(berthi_about){ .file = opened.path },
                             "not the file any more that it was at the start");
    berthi_file_close(&opened);
    return status;
}
