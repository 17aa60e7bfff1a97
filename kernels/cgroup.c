/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.c - what the process's groups and all of their ancestors allow. */
#include "kernels/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/cgroup_find.h"

#define FILE_CAPACITY (2 * BERTHI_CGROUP_PATH + 64)

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

/* ------------------------------------------------------------------ walking */

static bool
is_v2(const berthi_cgroup *g)
{
    return g->controller == NULL;
}

/* The path of a group's file, relative to the root. */
static const char *
file_of(const berthi_cgroup *g, const char *name, char path[FILE_CAPACITY])
{
    const int written = snprintf(path, FILE_CAPACITY, "%s%s/%s", g->mount, g->path, name);

    (void)written; /* two paths and a name fit */
    return path[0] == '/' ? path + 1 : path;
}

/* Goes to the parent group; false at the top of what is mounted. */
static bool
go_up(berthi_cgroup *g)
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
read_limit(int root, const berthi_cgroup *g, const char *name, uint64_t *out_number)
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
memory_used(int root, const berthi_cgroup *g)
{
    char path[FILE_CAPACITY];
    uint64_t usage;
    uint64_t cache;

    if (read_limit(root, g, is_v2(g) ? "memory.current" : "memory.usage_in_bytes", &usage)
            != BERTHI_READING_OK
        || berthi_procfs_field(root, file_of(g, "memory.stat", path),
                               is_v2(g) ? "inactive_file " : "total_inactive_file ", "",
                               &cache)
               != BERTHI_READING_OK)
        return BERTHI_PROCFS_UNKNOWN;
    return usage - berthi_min_u64(usage, cache);
}

/* Limit and use at one level; ABSENT when there is no limit. */
static berthi_reading
read_ceiling(int root, const berthi_cgroup *g, berthi_ceiling *out)
{
    const berthi_reading reading = read_limit(
        root, g, is_v2(g) ? "memory.max" : "memory.limit_in_bytes", &out->limit);

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
read_hidden_ceiling(int root, const berthi_cgroup *g, berthi_ceiling *out)
{
    char path[FILE_CAPACITY];
    uint64_t own;
    uint64_t above;

    if (is_v2(g)
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
name_source(const berthi_cgroup *g, char *source, size_t capacity)
{
    char name[2 * BERTHI_CGROUP_PATH];
    const int written =
        snprintf(source, capacity, "cgroup %s ", is_v2(g) ? "v2" : "v1");

    snprintf(name, sizeof name, "%s%s", g->base, g->path);
    if (name[0] == '\0')
        strcpy(name, "/");
    berth_text_escape(name, strlen(name), source + written, capacity - (size_t)written);
}

static void
lower_by_group(int root, berthi_cgroup *g, berthi_ceiling *ceiling)
{
    berthi_ceiling other = { BERTHI_PROCFS_UNKNOWN, BERTHI_PROCFS_UNKNOWN, "cgroup" };

    if (g->reading == BERTHI_READING_UNKNOWN)
        berthi_ceiling_lower(ceiling, &other);
    if (g->reading != BERTHI_READING_OK)
        return;
    do {
        name_source(g, other.source, sizeof other.source);
        if (read_ceiling(root, g, &other) == BERTHI_READING_OK)
            berthi_ceiling_lower(ceiling, &other);
    } while (go_up(g));
    snprintf(other.source, sizeof other.source, "cgroup v1, not visible");
    if (read_hidden_ceiling(root, g, &other) == BERTHI_READING_OK)
        berthi_ceiling_lower(ceiling, &other);
}

void
berthi_cgroup_memory(int root, berthi_ceiling *ceiling)
{
    berthi_cgroup groups[BERTHI_CGROUPS];

    berthi_cgroup_find(root, "memory", groups);
    for (uint32_t i = 0; i < BERTHI_CGROUPS; i++)
        lower_by_group(root, &groups[i], ceiling);
}

/* -------------------------------------------------------------------- cores */

/* "max 100000" or "50000 100000"; version 1 has a file for each, and -1 for max. */
static berthi_reading
read_quota_text(int root, const berthi_cgroup *g, char *text, size_t capacity)
{
    char path[FILE_CAPACITY];
    char period[64];
    berthi_reading reading;
    size_t length;

    if (is_v2(g))
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
read_quota(int root, const berthi_cgroup *g, uint64_t *out_cores)
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
cores_of_group(int root, berthi_cgroup *g, uint32_t cores)
{
    uint64_t left = cores;

    if (g->reading == BERTHI_READING_UNKNOWN)
        return UINT32_MAX;
    if (g->reading == BERTHI_READING_ABSENT)
        return cores;
    do {
        uint64_t of_level = UINT64_MAX;

        if (read_quota(root, g, &of_level) == BERTHI_READING_UNKNOWN)
            return UINT32_MAX;
        left = berthi_min_u64(left, of_level);
    } while (go_up(g));
    return (uint32_t)berthi_max_u64(left, 1); /* the kernel takes no quota of 0 */
}

uint32_t
berthi_cgroup_cores(int root, uint32_t cores)
{
    berthi_cgroup groups[BERTHI_CGROUPS];

    if (cores == UINT32_MAX)
        return cores;
    berthi_cgroup_find(root, "cpu", groups);
    for (uint32_t i = 0; i < BERTHI_CGROUPS && cores != UINT32_MAX; i++)
        cores = cores_of_group(root, &groups[i], cores);
    return cores;
}
