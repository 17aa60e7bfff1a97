/* SPDX-License-Identifier: Apache-2.0 */
/* power.c - what a disk may hold when the power is lost; see power.h. */
#define _GNU_SOURCE

#include "tests/power.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixture.h"

#define MAX_OPERATIONS 512u
#define MAX_ENTRIES 40
#define MAX_INODES 40
#define FOLDER (-1) /* the inode of an entry that is a folder */

struct power_log {
    uint64_t count;
    power_operation operations[MAX_OPERATIONS];
};

struct power_disk {
    struct {
        char name[POWER_NAME];
        int inode; /* index below, or FOLDER */
    } entries[MAX_ENTRIES];
    int entry_count;
    struct {
        uint64_t inode;
        char bytes[POWER_BYTES + 1];
        uint64_t length;
    } inodes[MAX_INODES];
    int inode_count;
    uint64_t random;
};

static void
die(const char *what)
{
    fprintf(stderr, "power: %s\n", what);
    exit(1);
}

static void *
room(size_t bytes)
{
    void *const memory = calloc(1, bytes);

    if (memory == NULL)
        die("no memory");
    return memory;
}

static void
set_name(char *out, const char *name)
{
    if (strlen(name) >= POWER_NAME)
        die("a long name");
    strcpy(out, name);
}

/* ----------------------------------------------------------------------- log */

power_log *
power_log_create(void)
{
    return room(sizeof(power_log));
}

void
power_log_destroy(power_log *log)
{
    for (uint64_t i = 0; i < log->count; i++)
        free(log->operations[i].bytes);
    free(log);
}

uint64_t
power_log_count(const power_log *log)
{
    return log->count;
}

static power_operation *
append(power_log *log, power_kind kind, uint64_t inode)
{
    power_operation *const o = &log->operations[log->count];

    if (log->count++ == MAX_OPERATIONS)
        die("a long log");
    o->kind = kind;
    o->inode = inode;
    return o;
}

void
power_note(power_log *log, power_kind kind, uint64_t inode, const char *name,
           const char *to)
{
    power_operation *const o = append(log, kind, inode);

    set_name(o->name, name);
    set_name(o->to, to);
}

void
power_note_bytes(power_log *log, power_kind kind, uint64_t inode, uint64_t offset,
                 const void *bytes, uint64_t length)
{
    power_operation *const o = append(log, kind, inode);

    o->offset = offset;
    o->length = length;
    if (bytes == NULL)
        return;
    o->bytes = room((size_t)length + 1);
    memcpy(o->bytes, bytes, (size_t)length);
}

/* ---------------------------------------------------------------------- disk */

power_disk *
power_disk_create(void)
{
    return room(sizeof(power_disk));
}

void
power_disk_destroy(power_disk *disk)
{
    free(disk);
}

static uint64_t
random_below(power_disk *disk, uint64_t limit)
{
    disk->random = disk->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (disk->random >> 33) % limit;
}

static int
find_inode(power_disk *disk, uint64_t inode)
{
    for (int i = 0; i < disk->inode_count; i++)
        if (disk->inodes[i].inode == inode)
            return i;
    if (disk->inode_count == MAX_INODES)
        die("many files");
    disk->inodes[disk->inode_count].inode = inode;
    disk->inodes[disk->inode_count].length = 0;
    return disk->inode_count++;
}

static int
find_entry(const power_disk *disk, const char *name)
{
    for (int i = 0; i < disk->entry_count; i++)
        if (strcmp(disk->entries[i].name, name) == 0)
            return i;
    return -1;
}

static void
remove_entry(power_disk *disk, const char *name)
{
    const int at = find_entry(disk, name);

    if (at >= 0)
        disk->entries[at] = disk->entries[--disk->entry_count];
}

static void
set_entry(power_disk *disk, const char *name, int inode)
{
    remove_entry(disk, name);
    if (disk->entry_count == MAX_ENTRIES)
        die("many names");
    set_name(disk->entries[disk->entry_count].name, name);
    disk->entries[disk->entry_count++].inode = inode;
}

static void
set_length(power_disk *disk, int inode, uint64_t length)
{
    const uint64_t before = disk->inodes[inode].length;

    if (length > POWER_BYTES)
        die("a large file");
    if (length > before)
        memset(disk->inodes[inode].bytes + before, 0, (size_t)(length - before));
    disk->inodes[inode].length = length;
}

/* The folder that a name lies in into `out`, "" for the outermost. */
static void
folder_of(const char *name, char *out)
{
    const char *const slash = strrchr(name, '/');
    const size_t length = slash != NULL ? (size_t)(slash - name) : 0;

    memcpy(out, name, length);
    out[length] = '\0';
}

static bool
has_folder_of(const power_disk *disk, const char *name)
{
    char folder[POWER_NAME];

    folder_of(name, folder);
    return folder[0] == '\0' || find_entry(disk, folder) >= 0;
}

/* And what lies in it: without the folder nothing leads there. */
static void
remove_folder(power_disk *disk, const char *name)
{
    const size_t length = strlen(name);

    remove_entry(disk, name);
    for (int i = disk->entry_count; i-- > 0;)
        if (strncmp(disk->entries[i].name, name, length) == 0
            && disk->entries[i].name[length] == '/')
            disk->entries[i] = disk->entries[--disk->entry_count];
}

/* What a name led to, whether or not its creation has survived. */
static uint64_t
logged_inode(const power_log *log, uint64_t before, const char *name)
{
    for (uint64_t i = before; i-- > 0;) {
        const power_operation *const o = &log->operations[i];

        if (o->kind == POWER_CREATE && strcmp(o->name, name) == 0)
            return o->inode;
    }
    die("a name that nobody made");
    return 0;
}

/* Operation `at`; of a write the first `part` bytes. */
static void
apply(power_disk *disk, const power_log *log, uint64_t at, uint64_t part)
{
    const power_operation *const o = &log->operations[at];
    int inode;

    switch (o->kind) {
    case POWER_CREATE: set_entry(disk, o->name, find_inode(disk, o->inode)); break;
    case POWER_MAKE_FOLDER: set_entry(disk, o->name, FOLDER); break;
    case POWER_REMOVE_FOLDER: remove_folder(disk, o->name); break;
    case POWER_RENAME:
        inode = find_inode(disk, logged_inode(log, at, o->name));
        remove_entry(disk, o->name);
        set_entry(disk, o->to, inode);
        break;
    case POWER_UNLINK: remove_entry(disk, o->name); break;
    case POWER_WRITE:
        inode = find_inode(disk, o->inode);
        if (disk->inodes[inode].length < o->offset + part)
            set_length(disk, inode, o->offset + part);
        memcpy(disk->inodes[inode].bytes + o->offset, o->bytes, (size_t)part);
        break;
    case POWER_RESIZE:
        set_length(disk, find_inode(disk, o->inode), o->length);
        break;
    case POWER_FLUSH_FOLDER:
    case POWER_FLUSH_FILE: break;
    }
}

static bool
is_of_folder(power_kind kind)
{
    return kind == POWER_CREATE || kind == POWER_RENAME || kind == POWER_UNLINK
           || kind == POWER_MAKE_FOLDER || kind == POWER_REMOVE_FOLDER;
}

/* True when the folder of `name` was flushed after `at` and before `end`. */
static bool
is_flushed(const power_log *log, const char *name, uint64_t at, uint64_t end)
{
    char folder[POWER_NAME];

    folder_of(name, folder);
    for (uint64_t i = at + 1; i < end; i++)
        if (log->operations[i].kind == POWER_FLUSH_FOLDER
            && strcmp(log->operations[i].name, folder) == 0)
            return true;
    return false;
}

/* True when a flush before `end` has made the operation durable. */
static bool
is_durable(const power_log *log, uint64_t at, uint64_t end)
{
    const power_operation *const o = &log->operations[at];

    if (is_of_folder(o->kind))
        return is_flushed(log, o->name, at, end)
               && (o->kind != POWER_RENAME || is_flushed(log, o->to, at, end));
    for (uint64_t i = at + 1; i < end; i++)
        if (log->operations[i].kind == POWER_FLUSH_FILE
            && log->operations[i].inode == o->inode)
            return true;
    return false;
}

static bool
has_arrived(power_disk *disk, power_chance chance, uint64_t at, uint64_t prefix)
{
    return chance == POWER_ALL || (chance == POWER_PREFIX && at < prefix)
           || (chance == POWER_SOME && random_below(disk, 2) == 0);
}

void
power_lose(power_disk *disk, const power_disk *before, const power_log *log, uint64_t end,
           power_chance folder_chance, power_chance file_chance)
{
    const uint64_t random = disk->random;
    const uint64_t reach = end < 20 ? end + 1 : 20;
    uint64_t folder_prefix;
    uint64_t file_prefix;

    *disk = *before;
    disk->random = random;
    folder_prefix = end - random_below(disk, reach);
    file_prefix = end - random_below(disk, reach);
    for (uint64_t i = 0; i < end; i++) {
        const power_operation *const o = &log->operations[i];
        const bool is_name = is_of_folder(o->kind);
        uint64_t part = o->length;

        if (!is_durable(log, i, end)) {
            if (!has_arrived(disk, is_name ? folder_chance : file_chance, i,
                             is_name ? folder_prefix : file_prefix))
                continue;
            if (o->kind == POWER_WRITE && file_chance == POWER_SOME)
                part = random_below(disk, o->length + 1);
        }
        if (is_name && !has_folder_of(disk, o->kind == POWER_RENAME ? o->to : o->name))
            continue; /* the folder has not survived: nor has what was done in it */
        apply(disk, log, i, part);
    }
}

/* --------------------------------------------------------------------- folders */

static void
load_file(power_disk *disk, const char *folder, const char *name)
{
    char path[8192];
    size_t length;
    char *bytes;
    int inode;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    bytes = fixture_read(path, &length);
    /* Numbers that no file of a log has. */
    inode = find_inode(disk, UINT64_MAX - (uint64_t)disk->inode_count);
    set_length(disk, inode, length);
    memcpy(disk->inodes[inode].bytes, bytes, length);
    set_entry(disk, name, inode);
    free(bytes);
}

static void
load_folder(power_disk *disk, const char *folder, const char *below)
{
    DIR *const stream = opendir(fixture_format("%s/%s", folder, below));
    const struct dirent *entry;

    if (stream == NULL)
        die("a folder that cannot be read");
    while ((entry = readdir(stream)) != NULL) {
        const char *name;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        name = fixture_format("%s%s%s", below, below[0] != '\0' ? "/" : "",
                              entry->d_name);
        if (entry->d_type == DT_DIR) {
            set_entry(disk, name, FOLDER);
            load_folder(disk, folder, name);
        } else {
            load_file(disk, folder, name);
        }
    }
    closedir(stream);
}

void
power_load(power_disk *disk, const char *folder)
{
    load_folder(disk, folder, "");
}

void
power_store(const power_disk *disk, const char *folder)
{
    for (int i = 0; i < disk->entry_count; i++)
        if (disk->entries[i].inode == FOLDER)
            fixture_make_folder(
                fixture_format("%s/%s", folder, disk->entries[i].name));
    for (int i = 0; i < disk->entry_count; i++) {
        const int inode = disk->entries[i].inode;
        char path[8192];
        size_t length;
        int fd;

        if (inode == FOLDER)
            continue;
        length = (size_t)disk->inodes[inode].length;
        snprintf(path, sizeof path, "%s/%s", folder, disk->entries[i].name);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 || write(fd, disk->inodes[inode].bytes, length) != (ssize_t)length
            || close(fd) != 0)
            die("a file that cannot be written");
    }
}

static uint64_t
hash_bytes(uint64_t hash, const char *bytes, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

uint64_t
power_digest(const power_disk *disk)
{
    uint64_t sum = 0;

    for (int i = 0; i < disk->entry_count; i++) {
        const int inode = disk->entries[i].inode;
        const char *const name = disk->entries[i].name;
        const uint64_t hash =
            hash_bytes(UINT64_C(14695981039346656037), name, strlen(name));

        /* A sum: the order of entries means nothing. */
        sum += inode == FOLDER ? hash
                               : hash_bytes(hash, disk->inodes[inode].bytes,
                                            disk->inodes[inode].length);
    }
    return sum;
}

const char *
power_text(power_disk *disk, const char *name)
{
    const int at = find_entry(disk, name);
    int inode;

    if (at < 0)
        return "";
    inode = disk->entries[at].inode;
    disk->inodes[inode].bytes[disk->inodes[inode].length] = '\0';
    return disk->inodes[inode].bytes;
}
