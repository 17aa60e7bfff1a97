/* SPDX-License-Identifier: Apache-2.0 */
/* hub_guard.c - see hub_guard.h; and the same for callers, berth_hub_check(). */
#include "loader/hub_guard.h"

#include <stdio.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/hub.h"
#include "loader/paths.h"
#include "loader/temporary.h"

/* A folder: the first `length` bytes of `path`. */
typedef struct folder {
    const char *path;
    size_t length;
} folder;

/* A path in the folder; false: longer than any path is. */
static bool
can_join(const folder *f, const char *name, char path[BERTHI_PATH_CAPACITY])
{
    const int n = snprintf(path, BERTHI_PATH_CAPACITY, "%.*s/%s", (int)f->length, f->path, name);

    return n > 0 && n < BERTHI_PATH_CAPACITY;
}

/* ------------------------------------------------------------------ repositories */

/* "models--org--name" and the like. */
static bool
is_named(const char *name, size_t length)
{
    static const char *const kinds[] = { "models--", "datasets--", "spaces--" };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (length > strlen(kinds[i]) && memcmp(name, kinds[i], strlen(kinds[i])) == 0)
            return true;
    return false;
}

/* One of those that a repository is divided into. */
static bool
has_part(const folder *f)
{
    static const char *const parts[] = { "snapshots", "blobs", "refs", "trees", ".no_exist" };
    char path[BERTHI_PATH_CAPACITY];
    berthi_sys_stat state;

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (can_join(f, parts[i], path)
            && berthi_sys_stat_at(BERTHI_SYS_AT_CWD, path, BERTHI_SYS_FOLLOW, &state) == 0
            && state.kind == BERTHI_SYS_FOLDER)
            return true;
    return false;
}

/* ------------------------------------------------------------------ what lies in it */

typedef struct search {
    const folder *in;
    bool (*is_wanted)(const folder *in, const char *name);
    bool is_found;
} search;

static int
visit(void *user, const char *name)
{
    search *const s = user;

    s->is_found = s->is_wanted(s->in, name);
    return s->is_found;
}

static bool
has_entry(const char *path, const folder *in,
          bool (*is_wanted)(const folder *in, const char *name))
{
    search s = { .in = in, .is_wanted = is_wanted };
    const int fd = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, path);

    if (fd < 0)
        return false;
    (void)berthi_sys_list(fd, visit, &s);
    berthi_sys_close(fd);
    return s.is_found;
}

static bool
is_commit(const folder *in, const char *name)
{
    (void)in;
    return berthi_hub_is_hex(name, strlen(name), BERTHI_HUB_COMMIT);
}

static bool
has_snapshot(const folder *f)
{
    char path[BERTHI_PATH_CAPACITY];

    return can_join(f, "snapshots", path) && has_entry(path, f, is_commit);
}

static bool
is_repository_in(const folder *in, const char *name)
{
    char path[BERTHI_PATH_CAPACITY];

    return is_named(name, strlen(name)) && can_join(in, name, path)
           && has_part(&(folder){ path, strlen(path) });
}

/* Whether the folder is a cache itself. */
static bool
has_repository(const folder *f)
{
    char path[BERTHI_PATH_CAPACITY];

    return can_join(f, ".", path) && has_entry(path, f, is_repository_in);
}

/* Of a folder whose name begins at `begin`. */
static bool
is_repository(const folder *f, size_t begin)
{
    const folder above = begin > 0 ? (folder){ f->path, begin - 1 } : (folder){ ".", 1 };

    return has_snapshot(f)
           || (is_named(f->path + begin, f->length - begin)
               && (has_part(f) || has_repository(&above)));
}

bool
berthi_hub_guards(const char *path)
{
    size_t begin = 0;

    while (path[begin] != '\0') {
        const folder f = { path, begin + strcspn(path + begin, "/") };

        if (f.length > begin && is_repository(&f, begin))
            return true;
        begin = f.length + (path[f.length] == '/');
    }
    return false;
}

/* -------------------------------------------------------------------- for callers */

/* The folder that `path` lies in. */
static berth_status
check_folder(const char *path, berth_error *error)
{
    const char *const slash = strrchr(path, '/');
    const folder in = slash == NULL ? (folder){ ".", 1 }
                                    : (folder){ path, (size_t)(slash - path) };
    char text[BERTHI_PATH_CAPACITY];
    berth_status status;
    int fd;

    if (!can_join(&in, ".", text))
        return BERTH_OK;
    fd = berthi_sys_enter_folder(BERTHI_SYS_AT_CWD, text);
    if (fd < 0) /* nothing is made there */
        return BERTH_OK;
    status = berthi_folder_check(fd, path, error);
    berthi_sys_close(fd);
    return status;
}

/* The file that a link leads to: whoever writes through it, or replaces it, means that. */
static berth_status
check_target(const char *path, berth_error *error)
{
    berthi_sys_stat state;
    berth_status status;
    int fd;

    if (berthi_sys_stat_at(BERTHI_SYS_AT_CWD, path, BERTHI_SYS_NO_FOLLOW, &state) != 0
        || state.kind != BERTHI_SYS_LINK
        || berthi_sys_stat_at(BERTHI_SYS_AT_CWD, path, BERTHI_SYS_FOLLOW, &state) != 0
        || state.kind != BERTHI_SYS_REGULAR)
        return BERTH_OK;
    fd = berthi_sys_open_read(BERTHI_SYS_AT_CWD, path);
    if (fd < 0)
        return BERTH_OK;
    status = berthi_folder_check(fd, path, error);
    berthi_sys_close(fd);
    return status;
}

berth_status
berth_hub_check(const char *path, berth_error *error)
{
    berth_status status;

    berthi_error_clear(error);
    if (path == NULL)
        return berthi_fail_argument(error, "path", "is NULL");
    if (path[0] == '\0') /* not the folder that the process is in */
        return BERTH_OK;
    status = check_folder(path, error);
    return status == BERTH_OK ? check_target(path, error) : status;
}
