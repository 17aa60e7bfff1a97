/* SPDX-License-Identifier: Apache-2.0 */
/*
 * power.h - what a disk may hold when the power is lost: a log of what was done
 * to one folder, and the states that a file system may show afterwards.
 *
 * Made durable by a flush of the folder: names. By a flush of a file: its bytes.
 * Of everything else any part may be there, whatever came before or after it,
 * writes cut anywhere. A rename is one step, from one folder to another, too:
 * then it takes a flush of both, and the folder must have survived. A file is
 * known by its inode. Names are those below the folder, "" itself, "a/b".
 */
#ifndef BERTH_TESTS_POWER_H
#define BERTH_TESTS_POWER_H

#include <stddef.h>
#include <stdint.h>

#define POWER_NAME 96u    /* bytes of a name, its NUL counted */
#define POWER_BYTES 32768u /* of a file */

typedef enum power_kind {
    POWER_CREATE, /* name */
    POWER_RENAME, /* name, to */
    POWER_UNLINK, /* name */
    POWER_MAKE_FOLDER,   /* name */
    POWER_REMOVE_FOLDER, /* name */
    POWER_FLUSH_FOLDER,  /* name */
    POWER_WRITE,  /* offset, length, bytes */
    POWER_RESIZE, /* length */
    POWER_FLUSH_FILE
} power_kind;

typedef struct power_operation {
    power_kind kind;
    uint64_t inode;
    char name[POWER_NAME];
    char to[POWER_NAME];
    uint64_t offset;
    uint64_t length;
    char *bytes;
} power_operation;

/* How much of what was not flushed is there. */
typedef enum power_chance {
    POWER_ALL,
    POWER_NONE,
    POWER_PREFIX, /* up to some operation */
    POWER_SOME,   /* each or not; writes torn */
    POWER_CHANCES
} power_chance;

typedef struct power_log power_log;
typedef struct power_disk power_disk;

/* Whatever fails here ends the program, as in fixture.h. */
power_log *power_log_create(void);
void power_log_destroy(power_log *log);
uint64_t power_log_count(const power_log *log);
/* Appends one; the texts and `bytes` are copied. */
void power_note(power_log *log, power_kind kind, uint64_t inode, const char *name,
                const char *to);
void power_note_bytes(power_log *log, power_kind kind, uint64_t inode, uint64_t offset,
                      const void *bytes, uint64_t length);

power_disk *power_disk_create(void);
void power_disk_destroy(power_disk *disk);
/* The files and folders of a folder, as durable as they can be. */
void power_load(power_disk *disk, const char *folder);
/* `disk`: `before`, and then the power goes before operation `end`. */
void power_lose(power_disk *disk, const power_disk *before, const power_log *log,
                uint64_t end, power_chance folder_chance, power_chance file_chance);
/* Writes the files into an empty folder. */
void power_store(const power_disk *disk, const char *folder);
/* Equal for equal names and contents. */
uint64_t power_digest(const power_disk *disk);
/* A file as a text; "": there is none. */
const char *power_text(power_disk *disk, const char *name);

#endif
