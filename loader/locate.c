/* SPDX-License-Identifier: Apache-2.0 */
/* locate.c - from a path or a repository's name to the folder of a model. */
#include "loader/locate.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "loader/findings.h"
#include "loader/hub.h"
#include "loader/paths.h"

#define ARENA_BYTES 4096u

static const char opening_folder[] = "opening the folder";

/* ------------------------------------------------------------------ opening */

/* A folder of the machine as location->folder. */
static berth_status
open_folder(berthi_location *location, int at, const char *path, berth_error *error)
{
    location->folder = berthi_sys_enter_folder(at, path);
    if (location->folder < 0)
        return berthi_fail_system(error, errno, location->folder_path, opening_folder);
    return BERTH_OK;
}

/*
 * Finds out whether the open folder lies in a snapshot of a hub cache, however
 * it was reached. What cannot be found out is not so.
 */
static berth_status
note_home(berthi_location *location, berth_error *error)
{
    char real[BERTHI_PATH_CAPACITY];
    const char *commit;
    uint64_t home_length;
    const int64_t length = berthi_sys_path_of(location->folder, real, sizeof real);

    if (length < 0 || (uint64_t)length >= sizeof real - 1)
        return BERTH_OK;
    home_length = berthi_hub_home_length(real, &commit);
    if (home_length == 0)
        return BERTH_OK;
    location->home_path = berthi_arena_text(&location->arena, real, home_length);
    location->inside_home = berthi_arena_text(&location->arena, real + home_length + 1,
                                              (uint64_t)length - home_length - 1);
    location->commit = berthi_arena_text(&location->arena, commit, BERTHI_HUB_COMMIT);
    if (location->home_path == NULL || location->inside_home == NULL
        || location->commit == NULL)
        return berthi_fail_memory(error, "a path");
    location->home = berthi_sys_enter_folder(BERTHI_SYS_AT_CWD, location->home_path);
    if (location->home < 0)
        location->commit = "";
    return BERTH_OK;
}

/* ---------------------------------------------------------------- hub cache */

/* The text of a ref, which is small or no ref. */
static berth_status
read_ref(berthi_location *location, const char *name, const char *shown, char *text,
         uint64_t *out_bytes, berth_error *error)
{
    berthi_file file;
    berth_status status = berthi_file_open(&file, location->home, name, shown,
                                           location->links, error);

    if (status != BERTH_OK)
        return status;
    *out_bytes = file.identity.bytes;
    if (file.identity.bytes > BERTHI_HUB_REF_LIMIT)
        status = berthi_fail(error, BERTH_REASON_BAD_REF,
                             &(berthi_about){ .file = shown,
                                              .has = BERTH_HAS_ACTUAL | BERTH_HAS_BYTES,
                                              .actual = file.identity.bytes },
                             "not a ref: too large");
    else
        status = berthi_file_read(&file, text, file.identity.bytes, 0, "reading the ref",
                                  error);
    berthi_file_close(&file);
    return status;
}

/* The commit that `revision` stands for, into the arena. */
static berth_status
find_commit(berthi_location *location, const char *revision, berth_error *error)
{
    char text[BERTHI_HUB_REF_LIMIT];
    const char *commit = revision;
    uint64_t bytes;
    berth_status status;

    if (!berthi_hub_is_hex(revision, strlen(revision), BERTHI_HUB_COMMIT)) {
        const char *const name = berthi_path_join(&location->arena, "refs", revision);
        const char *const shown =
            name == NULL ? NULL
                         : berthi_path_join(&location->arena, location->home_path, name);

        if (shown == NULL)
            return berthi_fail_memory(error, "a path");
        status = read_ref(location, name, shown, text, &bytes, error);
        if (status == BERTH_ENOENT && error->reason == BERTH_REASON_NOT_FOUND)
            return berthi_fail(error, BERTH_REASON_NO_SNAPSHOT,
                               &(berthi_about){ .file = shown },
                               "the hub cache has no such revision of this repository");
        if (status != BERTH_OK)
            return status;
        commit = berthi_hub_ref_commit(text, bytes);
        if (commit == NULL)
            return berthi_fail(error, BERTH_REASON_BAD_REF,
                               &(berthi_about){ .file = shown },
                               "the ref does not hold a commit of 40 hex digits");
    }
    location->commit = berthi_arena_text(&location->arena, commit, BERTHI_HUB_COMMIT);
    if (location->commit == NULL)
        return berthi_fail_memory(error, "a path");
    return BERTH_OK;
}

/* The snapshot of `revision` in the open repository. */
static berth_status
open_revision(berthi_location *location, const char *revision, berth_error *error)
{
    berth_status status = find_commit(location, revision, error);

    if (status != BERTH_OK)
        return status;
    location->inside_home =
        berthi_path_join(&location->arena, "snapshots", location->commit);
    if (location->inside_home != NULL)
        location->folder_path = berthi_path_join(&location->arena, location->home_path,
                                                 location->inside_home);
    if (location->inside_home == NULL || location->folder_path == NULL)
        return berthi_fail_memory(error, "a path");
    location->folder = berthi_sys_enter_folder(location->home, location->inside_home);
    if (location->folder < 0 && errno == ENOENT)
        return berthi_fail(error, BERTH_REASON_NO_SNAPSHOT,
                           &(berthi_about){ .file = location->folder_path },
                           "the hub cache knows this revision but holds no files of it");
    if (location->folder < 0)
        return berthi_fail_system(error, errno, location->folder_path, opening_folder);
    return BERTH_OK;
}

/* A repository that was named, `org/name`. */
static berth_status
open_repository(berthi_location *location, const char *path, const char *hub_cache,
                const berthi_hub_name *name, berth_error *error)
{
    const char *folder = berthi_arena_format(
        &location->arena, "models--%.*s%s%.*s", (int)name->organisation_length,
        name->organisation != NULL ? name->organisation : "",
        name->organisation != NULL ? "--" : "", (int)name->name_length, name->name);
    char shown[BERTHI_SHOWN_CAPACITY];

    if (folder != NULL)
        location->home_path = berthi_path_join(&location->arena, hub_cache, folder);
    if (folder == NULL || location->home_path == NULL)
        return berthi_fail_memory(error, "a path");
    location->home = berthi_sys_enter_folder(BERTHI_SYS_AT_CWD, location->home_path);
    if (location->home < 0 && errno == ENOENT)
        return berthi_fail(error, BERTH_REASON_NOT_FOUND, &(berthi_about){ .file = path },
                           "neither a file nor a folder, nor a repository in the hub "
                           "cache %s",
                           berthi_findings_shown(hub_cache, strlen(hub_cache), shown));
    if (location->home < 0)
        return berthi_fail_system(error, errno, location->home_path, opening_folder);
    return open_revision(location, name->revision, error);
}

/* -------------------------------------------------------------- given paths */

/* Whether the open folder has a folder `name`. */
static berth_status
has_folder(const berthi_location *location, const char *name, bool *out_has,
           berth_error *error)
{
    berthi_sys_stat state;

    *out_has = false;
    if (berthi_sys_stat_at(location->folder, name, BERTHI_SYS_FOLLOW, &state) == 0)
        *out_has = state.kind == BERTHI_SYS_FOLDER;
    else if (errno != ENOENT)
        return berthi_fail_system(error, errno, location->folder_path,
                                  "looking into the folder");
    return BERTH_OK;
}

/* Whether the open folder is laid out as a repository of the hub cache. */
static berth_status
find_out_repository(const berthi_location *location, bool *out_is, berth_error *error)
{
    berth_status status = has_folder(location, "snapshots", out_is, error);

    if (status != BERTH_OK || !*out_is)
        return status;
    status = has_folder(location, "refs", out_is, error);
    if (status == BERTH_OK && !*out_is)
        status = has_folder(location, "blobs", out_is, error);
    return status;
}

static berth_status
open_given_folder(berthi_location *location, const char *path, berth_error *error)
{
    berth_status status = open_folder(location, BERTHI_SYS_AT_CWD, path, error);
    bool is_home = false;

    if (status == BERTH_OK)
        status = find_out_repository(location, &is_home, error);
    if (status != BERTH_OK)
        return status;
    if (!is_home)
        return note_home(location, error);
    location->home = location->folder;
    location->home_path = location->folder_path;
    location->folder = -1;
    return open_revision(location, "main", error);
}

/* Length of the folder's path in front of `slash`; "/" keeps its slash. */
static uint64_t
folder_length(const char *path, const char *slash)
{
    if (slash == NULL)
        return 0;
    return slash == path ? 1 : (uint64_t)(slash - path);
}

/* A file: its folder, and the file's name in there. */
static berth_status
open_given_file(berthi_location *location, const char *path, berth_error *error)
{
    const char *const slash = strrchr(path, '/');
    const char *const name = slash != NULL ? slash + 1 : path;
    berth_status status;

    location->file = berthi_arena_text(&location->arena, name, strlen(name));
    location->folder_path =
        berthi_arena_text(&location->arena, path, folder_length(path, slash));
    if (location->file == NULL || location->folder_path == NULL)
        return berthi_fail_memory(error, "a path");
    status = open_folder(location, BERTHI_SYS_AT_CWD,
                         slash != NULL ? location->folder_path : ".", error);
    return status == BERTH_OK ? note_home(location, error) : status;
}

/* "https://...", "hf://...": a scheme, of letters and digits, where a path has a folder. */
static bool
is_address(const char *path)
{
    const size_t length = strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789");

    return length > 0 && strncmp(path + length, "://", 3) == 0;
}

/* Nothing is there under this name: a link to nowhere, or a repository's name. */
static berth_status
open_absent(berthi_location *location, const char *path, const char *hub_cache,
            int failure, berth_error *error)
{
    char target[BERTHI_SHOWN_CAPACITY];
    char shown[BERTHI_SHOWN_CAPACITY];
    const int64_t length =
        berthi_sys_readlink(BERTHI_SYS_AT_CWD, path, target, sizeof target);
    const char *problem;
    berthi_hub_name name;

    if (length >= 0)
        return berthi_fail(error, BERTH_REASON_MISSING_BLOB,
                           &(berthi_about){ .file = path },
                           "a link to %s, where there is nothing",
                           berthi_findings_shown(target, (uint64_t)length, shown));
    if (is_address(path))
        return berthi_fail(error, BERTH_REASON_NOT_FOUND, &(berthi_about){ .file = path },
                           "an address, and nothing is fetched: download the model, and name "
                           "its folder");
    if (hub_cache == NULL || hub_cache[0] == '\0')
        return berthi_fail_system(error, failure, path, "opening");
    if (berthi_hub_is_name(path, &name, &problem))
        return open_repository(location, path, hub_cache, &name, error);
    if (problem != NULL)
        return berthi_fail_argument(error, "path", problem);
    return berthi_fail_system(error, failure, path, "opening");
}

static berth_status
open_path(berthi_location *location, const char *path, const char *hub_cache,
          berth_error *error)
{
    berthi_sys_stat state;

    if (berthi_sys_stat_at(BERTHI_SYS_AT_CWD, path, BERTHI_SYS_FOLLOW, &state) != 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return open_absent(location, path, hub_cache, errno, error);
        return berthi_fail_system(error, errno, path, "opening");
    }
    if (state.kind == BERTHI_SYS_FOLDER)
        return open_given_folder(location, path, error);
    if (state.kind == BERTHI_SYS_REGULAR)
        return open_given_file(location, path, error);
    return berthi_fail(error, BERTH_REASON_NOT_REGULAR, &(berthi_about){ .file = path },
                       "a pipe, socket or device, not a file or a folder");
}

/* ----------------------------------------------------------------- lifetime */

static uint64_t
length_without_slashes(const char *path)
{
    uint64_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        length--;
    return length;
}

/* Text that may be NULL, too. */
static bool
copy_text(berthi_arena *arena, const char *text, const char **out)
{
    *out = text != NULL ? berthi_arena_text(arena, text, strlen(text)) : NULL;
    return text == NULL || *out != NULL;
}

/* Folders are opened from their own descriptors. */
static berth_status
open_again(berthi_location *location, const berthi_location *other, const char *file,
           berth_error *error)
{
    berthi_arena *const arena = &location->arena;

    if (!copy_text(arena, other->folder_path, &location->folder_path)
        || !copy_text(arena, file, &location->file)
        || !copy_text(arena, other->home_path, &location->home_path)
        || !copy_text(arena, other->inside_home, &location->inside_home)
        || !copy_text(arena, other->commit, &location->commit))
        return berthi_fail_memory(error, "a path");
    if (other->home >= 0) {
        location->home = berthi_sys_enter_folder(other->home, ".");
        if (location->home < 0)
            return berthi_fail_system(error, errno, location->home_path, opening_folder);
    }
    return open_folder(location, other->folder, ".", error);
}

/* Nothing is open, nothing is known. */
static void
begin(berthi_location *location, berth_context *context, berthi_file_links links)
{
    memset(location, 0, sizeof *location);
    berthi_arena_init(&location->arena, context, BERTHI_PURPOSE_OBJECT, ARENA_BYTES);
    location->context = context;
    location->folder = -1;
    location->home = -1;
    location->commit = "";
    location->links = links;
}

berth_status
berthi_location_init(berthi_location *location, berth_context *context, const char *path,
                     const char *hub_cache, bool is_inside, berth_error *error)
{
    berth_status status;

    begin(location, context, is_inside ? BERTHI_FILE_INSIDE : BERTHI_FILE_ANYWHERE);
    location->folder_path =
        berthi_arena_text(&location->arena, path, length_without_slashes(path));
    if (location->folder_path == NULL)
        status = berthi_fail_memory(error, "a path");
    else
        status = open_path(location, path, hub_cache, error);
    if (status != BERTH_OK)
        berthi_location_fini(location);
    return status;
}

berth_status
berthi_location_init_again(berthi_location *location, berth_context *context,
                           const berthi_location *other, const char *file,
                           berth_error *error)
{
    berth_status status;

    begin(location, context, other->links);
    status = open_again(location, other, file, error);
    if (status != BERTH_OK)
        berthi_location_fini(location);
    return status;
}

void
berthi_location_fini(berthi_location *location)
{
    if (location->folder >= 0)
        berthi_sys_close(location->folder);
    if (location->home >= 0)
        berthi_sys_close(location->home);
    location->folder = -1;
    location->home = -1;
    berthi_arena_fini(&location->arena);
}
