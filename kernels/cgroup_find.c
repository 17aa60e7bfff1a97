/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup_find.c - the process's groups, and where they are mounted.
 *
 * Two files of the kernel have to be put together, here for a container whose
 * group namespace is the host's:
 *
 *   /proc/self/cgroup     4:memory:/docker/5d41/job
 *   /proc/self/mountinfo  ... /docker/5d41 /sys/fs/cgroup/memory ... - cgroup ... rw,memory
 *                             (base)       (mount)
 *   levels                /sys/fs/cgroup/memory/job, /sys/fs/cgroup/memory
 */
#include "kernels/cgroup_find.h"

#include <string.h>

/* Whether `word` stands in a list with commas. */
static bool
is_listed(const char *list, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

/* Undoes the mount table's \040: three octal digits for a space, a backslash, ... */
static void
unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; to++) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0'
            && from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* Copies an absolute path; "/" becomes "". False when it is none or too long. */
static bool
can_take_path(char *out, const char *path)
{
    if (path[0] != '/' || strlen(path) >= BERTHI_CGROUP_PATH)
        return false;
    strcpy(out, path[1] == '\0' ? "" : path);
    return true;
}

/* -------------------------------------------------------------------- names */

/* Takes the group's name from a line of /proc/self/cgroup, "4:memory,cpu:/a/b". */
static void
take_name(berthi_cgroup *g, char *line)
{
    char *const controllers = strchr(line, ':');
    char *const path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

    if (g->reading != BERTHI_READING_ABSENT)
        return;
    if (path == NULL) {
        g->reading = BERTHI_READING_UNKNOWN;
        return;
    }
    *path = '\0';
    if (g->controller == NULL ? controllers[1] == '\0'
                              : is_listed(controllers + 1, g->controller))
        g->reading = can_take_path(g->path, path + 1) ? BERTHI_READING_OK
                                                      : BERTHI_READING_UNKNOWN;
    *path = ':';
}

static void
find_names(int root, berthi_cgroup groups[BERTHI_CGROUPS])
{
    berthi_reading reading;
    berthi_procfs file;
    char *line;

    berthi_procfs_open(&file, root, "proc/self/cgroup");
    while ((groups[0].reading == BERTHI_READING_ABSENT
            || groups[1].reading == BERTHI_READING_ABSENT)
           && (line = berthi_procfs_next(&file)) != NULL)
        for (uint32_t i = 0; i < BERTHI_CGROUPS; i++)
            take_name(&groups[i], line);
    reading = berthi_procfs_close(&file);
    for (uint32_t i = 0; reading != BERTHI_READING_OK && i < BERTHI_CGROUPS; i++)
        if (groups[i].reading == BERTHI_READING_ABSENT)
            groups[i].reading = reading; /* what was looked for in the rest of it */
}

/* ------------------------------------------------------------------- mounts */

/* Cuts the next word off; NULL when there is none. */
static char *
next_word(char **text)
{
    char *const word = *text;
    char *const space = strchr(word, ' ');

    if (word[0] == '\0')
        return NULL;
    *text = space != NULL ? space + 1 : word + strlen(word);
    if (space != NULL)
        *space = '\0';
    return word;
}

/* A line of the mount table. */
typedef struct mount_line {
    const char *type;
    const char *options; /* NULL: none */
    char *base;
    char *mount;
} mount_line;

/*
 * Cuts it up:
 *   36 35 98:0 /base /mount options [more]... - type device super-options
 * False: it is no such line.
 */
static bool
can_cut_mount(char *line, mount_line *out)
{
    char *const separator = strstr(line, " - ");
    char *tail = separator != NULL ? separator + 3 : line;

    if (separator == NULL)
        return false;
    out->type = next_word(&tail);
    if (out->type == NULL || next_word(&tail) == NULL)
        return false;
    out->options = next_word(&tail);
    if (strncmp(out->type, "cgroup", strlen("cgroup")) != 0)
        return false; /* most are something else */
    for (int i = 0; i < 3; i++)
        if (next_word(&line) == NULL)
            return false;
    out->base = next_word(&line);
    out->mount = next_word(&line);
    if (out->base == NULL || out->mount == NULL)
        return false;
    unescape(out->base);
    unescape(out->mount);
    return true;
}

static bool
is_mount_of(const berthi_cgroup *g, const mount_line *line)
{
    if (g->controller == NULL)
        return strcmp(line->type, "cgroup2") == 0;
    return strcmp(line->type, "cgroup") == 0 && line->options != NULL
           && is_listed(line->options, g->controller);
}

/* Whether `name` is `base` or lies below it. */
static bool
is_below(const char *name, const char *base)
{
    const size_t length = strlen(base);

    return strncmp(name, base, length) == 0 && strstr(name, "/..") == NULL
           && (name[length] == '/' || name[length] == '\0');
}

/*
 * Of several mounts the one that shows most ancestors of the group is taken; when none
 * shows the group (it lies outside of the namespace), whatever is mounted is the nearest
 * that can be seen.
 */
static void
take_mount(berthi_cgroup *g, const mount_line *line)
{
    char base[BERTHI_CGROUP_PATH];

    if (g->reading != BERTHI_READING_OK || !is_mount_of(g, line)
        || !can_take_path(base, line->base))
        return;
    if (g->is_mounted
        && (!is_below(g->path, base)
            || (g->is_above && strlen(base) >= strlen(g->base))))
        return;
    if (!can_take_path(g->mount, line->mount))
        return;
    g->is_mounted = true;
    g->is_above = is_below(g->path, base);
    strcpy(g->base, base);
}

/* `reading`: how the mount table ended. */
static void
settle_mount(berthi_cgroup *g, berthi_reading reading)
{
    const char *const below = g->is_above ? g->path + strlen(g->base) : "";

    if (g->reading != BERTHI_READING_OK)
        return;
    if (reading == BERTHI_READING_OK && !g->is_mounted)
        reading = BERTHI_READING_ABSENT;
    /* The topmost group has no limits; any other may, and they cannot be seen. */
    if (reading == BERTHI_READING_ABSENT && g->path[0] != '\0')
        reading = BERTHI_READING_UNKNOWN;
    g->reading = reading;
    if (!g->is_above)
        g->base[0] = '\0';
    memmove(g->path, below, strlen(below) + 1);
}

static void
find_mounts(int root, berthi_cgroup groups[BERTHI_CGROUPS])
{
    berthi_reading reading;
    berthi_procfs file;
    mount_line mount;
    char *line;

    berthi_procfs_open(&file, root, "proc/self/mountinfo");
    while ((line = berthi_procfs_next(&file)) != NULL)
        if (can_cut_mount(line, &mount))
            for (uint32_t i = 0; i < BERTHI_CGROUPS; i++)
                take_mount(&groups[i], &mount);
    reading = berthi_procfs_close(&file);
    for (uint32_t i = 0; i < BERTHI_CGROUPS; i++)
        settle_mount(&groups[i], reading);
}

void
berthi_cgroup_find(int root, const char *controller, berthi_cgroup groups[BERTHI_CGROUPS])
{
    for (uint32_t i = 0; i < BERTHI_CGROUPS; i++) {
        groups[i].controller = i == 0 ? controller : NULL;
        groups[i].reading = BERTHI_READING_ABSENT;
        groups[i].is_mounted = false;
        groups[i].is_above = false;
    }
    find_names(root, groups);
    if (groups[0].reading == BERTHI_READING_OK || groups[1].reading == BERTHI_READING_OK)
        find_mounts(root, groups);
}
