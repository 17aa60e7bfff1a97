/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.c - finds the process's groups and walks up their ancestors.
 *
 * Two files of the kernel have to be put together, here for a container whose
 * group namespace is the host's:
 *
 *   /proc/self/cgroup     4:memory:/docker/5d41/job
 *   /proc/self/mountinfo  ... /docker/5d41 /sys/fs/cgroup/memory ... - cgroup ... rw,memory
 *                             (base)       (mount)
 *   levels                /sys/fs/cgroup/memory/job, /sys/fs/cgroup/memory
 */
#include "kernels/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/procfs.h"

#define PATH_CAPACITY 4096
#define FILE_CAPACITY (2 * PATH_CAPACITY + 64)

/* Version 1 says "none" with the largest number of whole pages below 2^63. */
#define UNLIMITED (UINT64_C(1) << 62)

/* ----------------------------------------------------------------- ceilings */

uint64_t
berthi_ceiling_headroom(const berthi_ceiling *ceiling)
{
    if (ceiling->limit == BERTHI_PROCFS_UNKNOWN || ceiling->used == BERTHI_PROCFS_UNKNOWN)
        return BERTHI_PROCFS_UNKNOWN;
    return ceiling->limit - berthi_min_u64(ceiling->limit, ceiling->used);
}

/* 0: the limit is unknown, 1: the use is, 2: both are known. */
static int
knowledge(const berthi_ceiling *ceiling)
{
    return ceiling->limit == BERTHI_PROCFS_UNKNOWN  ? 0
           : ceiling->used == BERTHI_PROCFS_UNKNOWN ? 1
                                                    : 2;
}

void
berthi_ceiling_lower(berthi_ceiling *ceiling, const berthi_ceiling *other)
{
    const uint64_t mine = berthi_ceiling_headroom(ceiling);
    const uint64_t theirs = berthi_ceiling_headroom(other);
    const int difference = knowledge(other) - knowledge(ceiling);

    if (difference > 0)
        return;
    if (difference < 0 || theirs < mine
        || (theirs == mine && other->limit < ceiling->limit))
        *ceiling = *other;
}

/* ---------------------------------------------------------- finding a group */

/* The process's group of one hierarchy. */
typedef struct group {
    bool is_v2;
    char mount[PATH_CAPACITY]; /* where it is mounted, relative to the root */
    char base[PATH_CAPACITY];  /* which of its groups is mounted there, "" for the top */
    char path[PATH_CAPACITY];  /* the process's group below base, "" for base itself */
} group;

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
    if (path[0] != '/' || strlen(path) >= PATH_CAPACITY)
        return false;
    strcpy(out, path[1] == '\0' ? "" : path);
    return true;
}

/* The group's name in /proc/self/cgroup; NULL controller: version 2. */
static berthi_reading
find_name(int root, const char *controller, char name[PATH_CAPACITY])
{
    berthi_reading found = BERTHI_READING_ABSENT;
    berthi_reading reading;
    berthi_procfs file;
    char *line;

    berthi_procfs_open(&file, root, "proc/self/cgroup");
    while (found == BERTHI_READING_ABSENT
           && (line = berthi_procfs_next(&file)) != NULL) {
        char *const controllers = strchr(line, ':');
        char *const path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

        if (path == NULL) {
            found = BERTHI_READING_UNKNOWN;
            break;
        }
        *path = '\0';
        if (controller == NULL ? controllers[1] == '\0'
                               : is_listed(controllers + 1, controller))
            found = can_take_path(name, path + 1) ? BERTHI_READING_OK
                                                  : BERTHI_READING_UNKNOWN;
    }
    reading = berthi_procfs_close(&file);
    return reading != BERTHI_READING_OK ? reading : found;
}

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

/*
 * Takes base and mount from a line of the mount table:
 *   36 35 98:0 /base /mount options [more]... - type device super-options
 */
static bool
is_mount_of(char *line, const char *controller, char **base, char **mount)
{
    char *const separator = strstr(line, " - ");
    char *tail = separator != NULL ? separator + 3 : line;
    const char *type;
    const char *options;

    if (separator == NULL)
        return false;
    type = next_word(&tail);
    if (type == NULL || next_word(&tail) == NULL)
        return false;
    options = next_word(&tail);
    if (controller == NULL
            ? strcmp(type, "cgroup2") != 0
            : strcmp(type, "cgroup") != 0 || options == NULL
                  || !is_listed(options, controller))
        return false;
    for (int i = 0; i < 3; i++)
        if (next_word(&line) == NULL)
            return false;
    *base = next_word(&line);
    *mount = next_word(&line);
    return *base != NULL && *mount != NULL;
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
 * Which part of the hierarchy is mounted where. Of several mounts the one that
 * shows most ancestors of `name`; when none shows `name` (it lies outside of the
 * namespace), whatever is mounted is the nearest that can be seen.
 */
static berthi_reading
find_mount(int root, const char *controller, const char *name, group *out)
{
    bool is_found = false;
    bool is_above = false;
    berthi_reading reading;
    berthi_procfs file;
    char *line;

    berthi_procfs_open(&file, root, "proc/self/mountinfo");
    while ((line = berthi_procfs_next(&file)) != NULL) {
        char base[PATH_CAPACITY];
        char *base_word;
        char *mount_word;

        if (!is_mount_of(line, controller, &base_word, &mount_word))
            continue;
        unescape(base_word);
        unescape(mount_word);
        if (!can_take_path(base, base_word))
            continue;
        if (is_found
            && (!is_below(name, base)
                || (is_above && strlen(base) >= strlen(out->base))))
            continue;
        if (!can_take_path(out->mount, mount_word))
            continue;
        is_found = true;
        is_above = is_below(name, base);
        strcpy(out->base, base);
    }
    reading = berthi_procfs_close(&file);
    if (reading != BERTHI_READING_OK)
        return reading;
    if (!is_found)
        return BERTHI_READING_ABSENT;
    if (!is_above)
        out->base[0] = '\0';
    strcpy(out->path, is_above ? name + strlen(out->base) : "");
    return BERTHI_READING_OK;
}

static berthi_reading
find_group(int root, const char *controller, group *out)
{
    char name[PATH_CAPACITY];
    berthi_reading reading;

    out->is_v2 = controller == NULL;
    reading = find_name(root, controller, name);
    if (reading != BERTHI_READING_OK)
        return reading;
    reading = find_mount(root, controller, name, out);
    /* The topmost group has no limits; any other may, and they cannot be seen. */
    if (reading == BERTHI_READING_ABSENT && name[0] != '\0')
        return BERTHI_READING_UNKNOWN;
    return reading;
}

/* ------------------------------------------------------------------ walking */

/* The path of a group's file, relative to the root. */
static const char *
file_of(const group *g, const char *name, char path[FILE_CAPACITY])
{
    const int written = snprintf(path, FILE_CAPACITY, "%s%s/%s", g->mount, g->path, name);

    (void)written; /* two paths and a name fit */
    return path[0] == '/' ? path + 1 : path;
}

/* Goes to the parent group; false at the top of what is mounted. */
static bool
go_up(group *g)
{
    char *const slash = strrchr(g->path, '/');

    if (slash == NULL)
        return false;
    *slash = '\0';
    return true;
}

/* ------------------------------------------------------------------- memory */

/* A file that holds "max" (ABSENT) or one number; numbers without meaning are ABSENT. */
static berthi_reading
read_limit(int root, const group *g, const char *name, uint64_t *out_number)
{
    char path[FILE_CAPACITY];
    char line[64];
    const char *rest;
    const berthi_reading reading =
        berthi_procfs_line(root, file_of(g, name, path), line, sizeof line);

    if (reading != BERTHI_READING_OK)
        return reading;
    if (strcmp(line, "max") == 0)
        return BERTHI_READING_ABSENT;
    rest = berthi_procfs_digits(line, out_number);
    if (rest == NULL || rest[0] != '\0')
        return BERTHI_READING_UNKNOWN;
    return *out_number >= UNLIMITED ? BERTHI_READING_ABSENT : BERTHI_READING_OK;
}

/* Bytes in use that the kernel cannot simply drop; UINT64_MAX: unknown. */
static uint64_t
memory_used(int root, const group *g)
{
    char path[FILE_CAPACITY];
    uint64_t usage;
    uint64_t cache;

    if (read_limit(root, g, g->is_v2 ? "memory.current" : "memory.usage_in_bytes", &usage)
            != BERTHI_READING_OK
        || berthi_procfs_field(root, file_of(g, "memory.stat", path),
                               g->is_v2 ? "inactive_file " : "total_inactive_file ", "",
                               &cache)
               != BERTHI_READING_OK)
        return BERTHI_PROCFS_UNKNOWN;
    return usage - berthi_min_u64(usage, cache);
}

/* Limit and use at one level; ABSENT when there is no limit. */
static berthi_reading
read_ceiling(int root, const group *g, berthi_ceiling *out)
{
    const berthi_reading reading = read_limit(
        root, g, g->is_v2 ? "memory.max" : "memory.limit_in_bytes", &out->limit);

    if (reading == BERTHI_READING_ABSENT)
        return reading;
    if (reading == BERTHI_READING_UNKNOWN)
        out->limit = BERTHI_PROCFS_UNKNOWN;
    out->used = memory_used(root, g);
    return BERTHI_READING_OK;
}

/*
 * Version 1 tells the tightest limit of all ancestors, also of those above the
 * mount, whose use cannot be seen. `g` is at the top of what is mounted.
 */
static berthi_reading
read_hidden_ceiling(int root, const group *g, berthi_ceiling *out)
{
    char path[FILE_CAPACITY];
    uint64_t own;
    uint64_t above;

    if (g->is_v2
        || berthi_procfs_field(root, file_of(g, "memory.stat", path),
                               "hierarchical_memory_limit ", "", &above)
               != BERTHI_READING_OK
        || above >= UNLIMITED)
        return BERTHI_READING_ABSENT;
    if (read_limit(root, g, "memory.limit_in_bytes", &own) == BERTHI_READING_OK
        && own <= above)
        return BERTHI_READING_ABSENT;
    out->limit = above;
    out->used = BERTHI_PROCFS_UNKNOWN;
    return BERTHI_READING_OK;
}

/* "cgroup v2 /a/b"; the name is foreign text. */
static void
name_source(const group *g, char *source, size_t capacity)
{
    char name[2 * PATH_CAPACITY];
    const int written =
        snprintf(source, capacity, "cgroup %s ", g->is_v2 ? "v2" : "v1");

    snprintf(name, sizeof name, "%s%s", g->base, g->path);
    if (name[0] == '\0')
        strcpy(name, "/");
    berth_text_escape(name, strlen(name), source + written, capacity - (size_t)written);
}

static void
lower_by_hierarchy(int root, const char *controller, berthi_ceiling *ceiling)
{
    berthi_ceiling other = { BERTHI_PROCFS_UNKNOWN, BERTHI_PROCFS_UNKNOWN, "cgroup" };
    group g;
    const berthi_reading reading = find_group(root, controller, &g);

    if (reading == BERTHI_READING_UNKNOWN)
        berthi_ceiling_lower(ceiling, &other);
    if (reading != BERTHI_READING_OK)
        return;
    do {
        name_source(&g, other.source, sizeof other.source);
        if (read_ceiling(root, &g, &other) == BERTHI_READING_OK)
            berthi_ceiling_lower(ceiling, &other);
    } while (go_up(&g));
    snprintf(other.source, sizeof other.source, "cgroup v1, not visible");
    if (read_hidden_ceiling(root, &g, &other) == BERTHI_READING_OK)
        berthi_ceiling_lower(ceiling, &other);
}

void
berthi_cgroup_memory(int root, berthi_ceiling *ceiling)
{
    lower_by_hierarchy(root, "memory", ceiling);
    lower_by_hierarchy(root, NULL, ceiling);
}

/* -------------------------------------------------------------------- cores */

/* "max 100000" or "50000 100000"; version 1 has a file for each, and -1 for max. */
static berthi_reading
read_quota_text(int root, const group *g, char *text, size_t capacity)
{
    char path[FILE_CAPACITY];
    char period[64];
    berthi_reading reading;
    size_t length;

    if (g->is_v2)
        return berthi_procfs_line(root, file_of(g, "cpu.max", path), text, capacity);
    reading = berthi_procfs_line(root, file_of(g, "cpu.cfs_quota_us", path), text,
                                 capacity);
    if (reading != BERTHI_READING_OK || strcmp(text, "-1") == 0)
        return reading != BERTHI_READING_OK ? reading : BERTHI_READING_ABSENT;
    reading = berthi_procfs_line(root, file_of(g, "cpu.cfs_period_us", path), period,
                                 sizeof period);
    length = strlen(text);
    snprintf(text + length, capacity - length, " %s", period);
    return reading == BERTHI_READING_OK ? reading : BERTHI_READING_UNKNOWN;
}

/* Cores that one level leaves, rounded up; left as they are unless OK. */
static berthi_reading
read_quota(int root, const group *g, uint64_t *out_cores)
{
    char text[192];
    uint64_t quota;
    uint64_t period = 0;
    const char *rest;
    const berthi_reading reading = read_quota_text(root, g, text, sizeof text);

    if (reading != BERTHI_READING_OK)
        return reading;
    if (strncmp(text, "max ", 4) == 0)
        return BERTHI_READING_ABSENT;
    rest = berthi_procfs_digits(text, &quota);
    if (rest != NULL && rest[0] == ' ')
        rest = berthi_procfs_digits(rest + 1, &period);
    if (rest == NULL || rest[0] != '\0' || period == 0)
        return BERTHI_READING_UNKNOWN;
    *out_cores = berthi_divide_up(quota, period);
    return BERTHI_READING_OK;
}

static uint32_t
cores_of_hierarchy(int root, const char *controller, uint32_t cores)
{
    uint64_t left = cores;
    group g;
    const berthi_reading found = find_group(root, controller, &g);

    if (found == BERTHI_READING_UNKNOWN)
        return UINT32_MAX;
    if (found == BERTHI_READING_ABSENT)
        return cores;
    do {
        uint64_t of_level = UINT64_MAX;

        if (read_quota(root, &g, &of_level) == BERTHI_READING_UNKNOWN)
            return UINT32_MAX;
        left = berthi_min_u64(left, of_level);
    } while (go_up(&g));
    return (uint32_t)berthi_max_u64(left, 1); /* the kernel takes no quota of 0 */
}

uint32_t
berthi_cgroup_cores(int root, uint32_t cores)
{
    const uint32_t of_v1 = cores_of_hierarchy(root, "cpu", cores);

    if (cores == UINT32_MAX || of_v1 == UINT32_MAX)
        return UINT32_MAX;
    return cores_of_hierarchy(root, NULL, of_v1);
}
