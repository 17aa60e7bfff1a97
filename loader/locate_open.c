/* SPDX-License-Identifier: Apache-2.0 */
/* locate_open.c - files of the folder: opening, reading, explaining absence. */
#include "loader/locate.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "loader/findings.h"
#include "loader/hub.h"
#include "loader/paths.h"
#include "loader/sniff.h"

#define NAME_CAPACITY 1280u /* a shard's name has at most 1024 bytes */

const char *
berthi_location_path(berthi_location *location, const char *name)
{
    return berthi_path_join(&location->arena, location->folder_path, name);
}

berth_status
berthi_location_has(berthi_location *location, const char *name, bool *out_has,
                    berth_error *error)
{
    berthi_sys_stat state;
    const char *shown;

    *out_has = false;
    if (berthi_sys_stat_at(location->folder, name, BERTHI_SYS_NO_FOLLOW, &state) == 0) {
        *out_has = state.kind != BERTHI_SYS_FOLDER;
        return BERTH_OK;
    }
    if (errno == ENOENT || errno == ENOTDIR)
        return BERTH_OK;
    const int failure = errno;

    shown = berthi_location_path(location, name);
    if (shown == NULL)
        return berthi_fail_memory(error, "a path");
    return berthi_fail_system(error, failure, shown, "looking for the file");
}

/* ------------------------------------------------------- unfinished downloads */

static int
count_unfinished(void *user, const char *name)
{
    uint64_t *const count = user;

    *count += berthi_path_has_suffix(name, ".incomplete") ? 1u : 0u;
    return 0;
}

/* In a folder that may not be there. */
static uint64_t
unfinished_in(int at, const char *path)
{
    uint64_t count = 0;
    const int folder = berthi_sys_open_folder(at, path);

    if (folder < 0)
        return 0;
    /* A hint: what could be listed counts. */
    (void)berthi_sys_list(folder, count_unfinished, &count);
    berthi_sys_close(folder);
    return count;
}

uint64_t
berthi_location_unfinished(berthi_location *location, const char *name)
{
    static const char *const suffixes[] = { ".incomplete", ".part", ".crdownload",
                                            ".aria2" };
    char beside[NAME_CAPACITY];
    const size_t length = strlen(name);
    berthi_sys_stat state;
    uint64_t count = 0;

    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        if (length + strlen(suffixes[i]) >= sizeof beside)
            break;
        memcpy(beside, name, length);
        strcpy(beside + length, suffixes[i]);
        if (berthi_sys_stat_at(location->folder, beside, BERTHI_SYS_FOLLOW, &state) == 0)
            count++;
    }
    if (location->home >= 0)
        return count + unfinished_in(location->home, "blobs");
    return count + unfinished_in(location->folder, ".cache/huggingface/download");
}

/* ----------------------------------------------------------- list of the files */

bool
berthi_location_is_listed(berthi_location *location, const char *name,
                          uint64_t *out_bytes)
{
    const char *tree;
    const char *path;
    berthi_hub_listed listed = { .is_listed = false };
    berthi_file file;
    berth_error ignored;
    char *text;
    uint64_t bytes;

    *out_bytes = 0;
    if (location->home < 0)
        return false;
    /* A folder below the snapshot has a longer way: snapshots/<commit>/vae. */
    path = strchr(location->inside_home, '/') + 1 + BERTHI_HUB_COMMIT;
    path = berthi_path_join(&location->arena, *path == '/' ? path + 1 : path, name);
    tree = berthi_arena_format(&location->arena, "trees/%s.json", location->commit);
    if (path == NULL || tree == NULL
        || berthi_file_open(&file, location->home, tree, tree, location->links,
                            &ignored) != BERTH_OK)
        return false;
    bytes = file.identity.bytes;
    text = bytes > BERTHI_HUB_TREE_LIMIT
               ? NULL
               : berthi_memory_alloc(location->context, BERTHI_PURPOSE_DOCUMENT, bytes);
    if (text != NULL
        && berthi_file_read(&file, text, bytes, 0, "reading the list of files", &ignored)
               == BERTH_OK)
        berthi_hub_tree_find(text, bytes, path, &listed);
    berthi_memory_free(location->context, BERTHI_PURPOSE_DOCUMENT, text, bytes);
    berthi_file_close(&file);
    *out_bytes = listed.bytes;
    return listed.is_listed;
}

/* ------------------------------------------------------------------ opening */

/* Its link leads nowhere. */
static berth_status
fail_dangling(berthi_location *location, const char *shown, const char *target,
              uint64_t target_length, berth_error *error)
{
    const char *const slash = strrchr(target, '/');
    const char *const blob = slash != NULL ? slash + 1 : target;
    char text[BERTHI_SHOWN_CAPACITY];
    uint64_t unfinished = 0;

    if (location->home >= 0)
        unfinished = unfinished_in(location->home, "blobs");
    return berthi_fail(error, BERTH_REASON_MISSING_BLOB, &(berthi_about){ .file = shown },
                       "a link to %s, where there is nothing%s",
                       berthi_findings_shown(location->home >= 0 ? blob : target,
                                             location->home >= 0
                                                 ? strlen(blob)
                                                 : target_length,
                                             text),
                       unfinished > 0 ? "; the cache has unfinished downloads" : "");
}

static berth_status
fail_absent(berthi_location *location, const char *name, const char *shown,
            berth_reason missing, const char *why, berth_error *error)
{
    berthi_about about = { .file = shown };
    char target[NAME_CAPACITY];
    const int64_t target_length =
        berthi_sys_readlink(location->folder, name, target, sizeof target);
    uint64_t unfinished;
    bool is_listed;

    if (target_length >= 0)
        return fail_dangling(location, shown, target, (uint64_t)target_length, error);
    is_listed = berthi_location_is_listed(location, name, &about.expected);
    if (about.expected > 0)
        about.has = BERTH_HAS_EXPECTED | BERTH_HAS_BYTES;
    unfinished = berthi_location_unfinished(location, name);
    if (unfinished > 0)
        return berthi_fail(error, BERTH_REASON_INCOMPLETE, &about,
                           "%s; %" PRIu64 " downloads are unfinished", why, unfinished);
    if (is_listed)
        return berthi_fail(error, missing, &about,
                           "%s; it belongs to this revision but was not downloaded", why);
    return berthi_fail(error, missing, &about, "%s", why);
}

/*
 * The folder that holds the last component of `name`: *out_last is that
 * component, *out_owned the descriptor to close, or -1.
 */
static berth_status
walk(const berthi_location *location, const char *name, const char *shown,
     const char **out_last, int *out_owned, berth_error *error)
{
    char component[NAME_CAPACITY];
    const char *slash;

    *out_owned = -1;
    while ((slash = strchr(name, '/')) != NULL) {
        const size_t length = (size_t)(slash - name);
        int next;

        if (length >= sizeof component)
            return berthi_fail(error, BERTH_REASON_PATH,
                               &(berthi_about){ .file = shown },
                               "a folder's name is too long");
        memcpy(component, name, length);
        component[length] = '\0';
        next = berthi_sys_enter_folder(*out_owned >= 0 ? *out_owned : location->folder,
                                       component);
        if (next < 0)
            return berthi_fail_system(error, errno, shown, "opening its folder");
        if (*out_owned >= 0)
            berthi_sys_close(*out_owned);
        *out_owned = next;
        name = slash + 1;
    }
    *out_last = name;
    return BERTH_OK;
}

/* Links may lead anywhere: the hub cache is made of them. */
static berth_status
open_anywhere(const berthi_location *location, const char *name, const char *shown,
              berthi_file *file, berth_error *error)
{
    const char *last;
    int owned;
    berth_status status = walk(location, name, shown, &last, &owned, error);

    if (status == BERTH_OK)
        status = berthi_file_open(file, owned >= 0 ? owned : location->folder, last,
                                  shown, BERTHI_FILE_ANYWHERE, error);
    if (owned >= 0)
        berthi_sys_close(owned);
    /* For as long as the location, unlike a descriptor that is closed and the caller's text. */
    file->folder = location->folder;
    file->name = shown + strlen(shown) - strlen(name);
    return status;
}

/* No link leads out of the folder, or out of the repository around it. */
static berth_status
open_inside(berthi_location *location, const char *name, const char *shown,
            berthi_file *file, berth_error *error)
{
    const char *inside = shown + strlen(shown) - strlen(name); /* `name`, as long as `shown` */

    if (location->home >= 0)
        inside = berthi_path_join(&location->arena, location->inside_home, name);
    if (inside == NULL)
        return berthi_fail_memory(error, "a path");
    return berthi_file_open(file, location->home >= 0 ? location->home : location->folder,
                            inside, shown, BERTHI_FILE_INSIDE, error);
}

berth_status
berthi_location_open(berthi_location *location, const char *name, berth_reason missing,
                     const char *why, berthi_file *file, berth_error *error)
{
    const char *const shown = berthi_location_path(location, name);
    berth_status status;

    memset(file, 0, sizeof *file);
    file->fd = -1;
    if (shown == NULL)
        return berthi_fail_memory(error, "a path");
    if (location->links == BERTHI_FILE_INSIDE)
        status = open_inside(location, name, shown, file, error);
    else
        status = open_anywhere(location, name, shown, file, error);
    if (status == BERTH_ENOENT && error->reason == BERTH_REASON_NOT_FOUND)
        return fail_absent(location, name, shown, missing, why, error);
    return status;
}

/* ------------------------------------------------------------------ reading */

static berth_status
read_all(berthi_location *location, const berthi_file *file, uint64_t limit,
         berth_reason reason, char **out_text, berth_error *error)
{
    const uint64_t bytes = file->identity.bytes;
    char *text;
    berth_status status;

    if (bytes > limit)
        return berthi_fail(error, reason,
                           &(berthi_about){ .file = file->path,
                                            .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                                   | BERTH_HAS_BYTES,
                                            .expected = limit, .actual = bytes },
                           "larger than any file of its kind");
    text = berthi_memory_alloc(location->context, BERTHI_PURPOSE_HEADER, bytes);
    if (text == NULL)
        return berthi_fail_memory(error, "reading a file");
    status = (location->may_start ? berthi_file_read_long : berthi_file_read)(
        file, text, bytes, 0, "reading the file", error);
    if (status == BERTH_OK)
        status = berthi_file_check(file, error);
    if (status == BERTH_OK
        && berthi_sniff_has_refused_text(text, bytes, file->path, error))
        status = error->status;
    if (status != BERTH_OK)
        berthi_memory_free(location->context, BERTHI_PURPOSE_HEADER, text, bytes);
    else
        *out_text = text;
    return status;
}

berth_status
berthi_location_read(berthi_location *location, const char *name, uint64_t limit,
                     berth_reason reason, char **out_text, uint64_t *out_bytes,
                     berth_error *error)
{
    berthi_file file;
    berth_status status = berthi_location_open(location, name, BERTH_REASON_NOT_FOUND,
                                               "the file is not there", &file, error);

    *out_text = NULL;
    *out_bytes = 0;
    if (status != BERTH_OK)
        return status;
    status = read_all(location, &file, limit, reason, out_text, error);
    if (status == BERTH_OK)
        *out_bytes = file.identity.bytes;
    berthi_file_close(&file);
    return status;
}
