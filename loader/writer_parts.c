/* SPDX-License-Identifier: Apache-2.0 */
/* writer_parts.c - what the processes of one set share: names, locks, files, records. */
#include "loader/writer_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/digits.h"
#include "kernels/sys.h"
#include "loader/paths.h"
#include "loader/writer_state.h"

#define LOCK_ATTEMPTS 100u /* others look whether it is taken, for a moment */
#define LOCK_PAUSE_NS UINT64_C(4000000)
#define PREFIX_CAPACITY 32u

/* ---------------------------------------------------------------------- names */

/* What a part's journal says of its job: that of the whole set, and its share. */
static const char *
part_job(berthi_writer *writer, uint32_t part)
{
    return berthi_arena_format(&writer->texts, "%spart %" PRIu32 " of %" PRIu32 "\n",
                               writer->set_job, part, writer->part_count);
}

void
berthi_writer_name_journal(const berthi_writer *writer, uint32_t part,
                           char out[BERTHI_WRITER_NAME])
{
    snprintf(out, BERTHI_WRITER_NAME, "%s%05" PRIu32 "-of-%05" PRIu32 ".json",
             writer->prefix, part, writer->part_count);
}

static const char *
part_journal(berthi_writer *writer, uint32_t part)
{
    char name[BERTHI_WRITER_NAME];

    berthi_writer_name_journal(writer, part, name);
    return berthi_arena_text(&writer->texts, name, strlen(name));
}

/* Parts of another number have put things elsewhere: they are another job's. */
static void
name_job(const char *job, uint32_t part_count, char out[PREFIX_CAPACITY])
{
    char count[16];
    uint32_t crc = berthi_digest_crc32(0, job, strlen(job));

    snprintf(count, sizeof count, "%" PRIu32, part_count);
    crc = berthi_digest_crc32(crc, count, strlen(count));
    snprintf(out, PREFIX_CAPACITY, BERTHI_JOURNAL_PARTS "%08" PRIx32 "-", crc);
}

/* A checksum of the job that is no function of the one in the names. */
static uint32_t
seed_of(const char *job)
{
    uint32_t crc = 0;

    for (size_t i = strlen(job); i > 0; i--)
        crc = berthi_digest_crc32(crc, job + i - 1, 1);
    return crc;
}

berth_status
berthi_writer_name_parts(berthi_writer *writer, berth_error *error)
{
    char prefix[PREFIX_CAPACITY];

    writer->set_job = writer->job;
    writer->seed = seed_of(writer->job);
    name_job(writer->job, writer->part_count, prefix);
    writer->prefix = berthi_arena_text(&writer->texts, prefix, strlen(prefix));
    if (writer->prefix == NULL)
        return berthi_fail_memory(error, "opening an output");
    if (writer->part > 0) {
        writer->job = part_job(writer, writer->part);
        writer->journal_name = part_journal(writer, writer->part);
    } else { /* nobody else goes on with a join: what parts have left would stay */
        writer->job = berthi_arena_format(&writer->texts, "%sjoined from %" PRIu32
                                          " parts\n", writer->job, writer->part_count);
    }
    if (writer->job == NULL || writer->journal_name == NULL)
        return berthi_fail_memory(error, "opening an output");
    return BERTH_OK;
}

bool
berthi_writer_is_of_parts(const berthi_writer *writer, const char *name, bool *out_is_own)
{
    *out_is_own = writer->prefix != NULL
                  && strncmp(name, writer->prefix, strlen(writer->prefix)) == 0;
    return berthi_journal_is_of_parts(name);
}

typedef struct search {
    const char *job;
    uint32_t count;
} search;

/* "<prefix>00001-of-00004.json" */
static int
note_part(void *user, const char *name)
{
    search *const s = user;
    const char *const of = strstr(name, "-of-");
    char prefix[PREFIX_CAPACITY];
    const char *digits;
    uint64_t count;

    if (!berthi_journal_is_of_parts(name) || of == NULL)
        return 0;
    digits = of + strlen("-of-");
    if (!berthi_digits_can_take(&digits, digits + strlen(digits), BERTHI_WRITER_PARTS_MAX,
                                &count))
        return 0;
    name_job(s->job, (uint32_t)count, prefix);
    if (strncmp(name, prefix, strlen(prefix)) != 0 || strcmp(digits, ".json") != 0)
        return 0;
    s->count = (uint32_t)count;
    return 1;
}

berth_status
berthi_writer_find_parts(const char *folder, const char *job, uint32_t *out_count,
                         berth_error *error)
{
    search s = { .job = job };
    const int fd = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, folder);
    int failure = 0;

    *out_count = 0;
    if (fd < 0 && errno == ENOENT)
        return BERTH_OK;
    if (fd < 0)
        return berthi_fail_system(error, errno, folder, "opening the folder");
    if (berthi_sys_list(fd, note_part, &s) != 0)
        failure = errno;
    berthi_sys_close(fd);
    if (failure != 0)
        return berthi_fail_system(error, failure, folder, "listing the folder");
    *out_count = s.count;
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- locks */

/* False: another process holds it, and goes on to. */
static bool
take_lock(int lock)
{
    for (uint32_t attempt = 1; berthi_sys_lock(lock) != 0; attempt++) {
        if (errno != EWOULDBLOCK)
            return true; /* no locks here */
        if (attempt == LOCK_ATTEMPTS)
            return false;
        berthi_sys_sleep(LOCK_PAUSE_NS);
    }
    return true;
}

berth_status
berthi_writer_lock_part(berthi_writer *writer, berth_error *error)
{
    const char *const name = berthi_arena_format(
        &writer->texts, "%s" BERTHI_JOURNAL_LOCK_END, writer->journal_name);
    const berthi_about about = { .file = writer->path };

    if (name == NULL)
        return berthi_fail_memory(error, "opening an output");
    writer->part_lock = berthi_sys_create_or_open(writer->folder, name);
    if (writer->part_lock < 0)
        return berthi_fail_system(error, errno, writer->path, "making the lock of a part");
    if (!take_lock(writer->part_lock))
        return berthi_fail(error, BERTH_REASON_BUSY, &about,
                           "another process is part %" PRIu32 " of %" PRIu32,
                           writer->part, writer->part_count);
    return BERTH_OK;
}

bool
berthi_writer_is_joining(const berthi_writer *writer)
{
    return writer->is_joining;
}

bool
berthi_writer_let_go(berthi_writer *writer)
{
    return writer->is_locked && berthi_sys_unlock(writer->folder) == 0;
}

/* --------------------------------------------------------------- shared files */

/* A name of the set with its shared file; NULL: out of memory. */
static berthi_writer_file *
make_shared(berthi_writer *writer, const char *name, uint64_t bytes)
{
    berthi_writer_file *const file = berthi_writer_make_file(writer, name);

    if (file == NULL)
        return NULL;
    file->temporary = berthi_arena_format(&writer->texts, "%s%s", writer->prefix, name);
    file->bytes = bytes;
    file->is_shared = true;
    return file->temporary != NULL ? file : NULL;
}

/* Other parts may do the same at this moment; none of it takes bytes away. */
static berth_status
make_room(const berthi_writer *writer, const berthi_writer_file *file, berth_error *error)
{
    const berthi_target target = berthi_writer_target(writer, file);
    berthi_sys_stat state;
    berth_status status;

    if (berthi_sys_fstat(file->fd, &state) != 0)
        return berthi_fail_system(error, errno, file->path, "looking at its shared file");
    if (state.kind != BERTHI_SYS_REGULAR)
        return berthi_target_fail(file->path, BERTH_REASON_NOT_REGULAR,
                                  "what parts would share is no regular file", error);
    if (state.bytes > file->bytes)
        return berthi_target_fail(file->path, BERTH_REASON_JOURNAL,
                                  "what parts share is longer than this command makes it",
                                  error);
    status = berthi_temporary_reserve(&target, file->fd, file->bytes, error);
    if (status != BERTH_OK)
        return status;
    if (berthi_sys_fstat(file->fd, &state) != 0)
        return berthi_fail_system(error, errno, file->path, "looking at its shared file");
    if (state.bytes < file->bytes && berthi_sys_truncate(file->fd, file->bytes) != 0)
        return berthi_fail_system(error, errno, file->path, "giving it its length");
    return BERTH_OK;
}

static berth_status
open_shared(berthi_writer *writer, const char *name, uint64_t bytes,
            berthi_writer_file **out, berth_error *error)
{
    const berthi_about about = { .file = writer->path };
    const char *const problem = berthi_journal_name_problem(name, strlen(name));
    berthi_writer_file *file;

    *out = NULL;
    if (writer->prefix == NULL || strchr(name, '/') != NULL || problem != NULL)
        return berthi_fail(error, BERTH_REASON_INTERNAL, &about,
                           "a file that parts cannot share");
    pthread_mutex_lock(&writer->lock);
    file = make_shared(writer, name, bytes);
    pthread_mutex_unlock(&writer->lock);
    if (file == NULL)
        return berthi_fail_memory(error, "creating an output");
    file->fd = berthi_sys_create_or_open(writer->folder, file->temporary);
    if (file->fd < 0)
        return berthi_fail_system(error, errno, file->path, "opening its shared file");
    *out = file;
    return BERTH_OK;
}

berth_status
berthi_writer_share(berthi_writer *writer, const char *name, uint64_t bytes,
                    berthi_writer_file **out, berth_error *error)
{
    berthi_writer_file *file;
    berth_status status = open_shared(writer, name, bytes, &file, error);

    *out = NULL;
    if (status != BERTH_OK)
        return status;
    status = make_room(writer, file, error);
    if (status == BERTH_OK)
        status = berthi_writer_make_windows(writer, file, error);
    if (status == BERTH_OK)
        *out = file;
    else
        berthi_writer_drop(writer, file);
    return status;
}

berth_status
berthi_writer_release(berthi_writer *writer, berthi_writer_file *file, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (atomic_load(&file->has_failed))
        status = berthi_target_fail(file->path, BERTH_REASON_IO,
                                    "something of it could not be written before", error);
    else if (berthi_sys_fsync(file->fd) != 0)
        status = berthi_fail_system(error, errno, file->path, "flushing");
    berthi_writer_drop(writer, file);
    return status;
}

berth_status
berthi_writer_record(berthi_writer *writer, berth_error *error)
{
    berth_status status;

    pthread_mutex_lock(&writer->lock);
    status = berthi_writer_save(writer, error);
    writer->is_recorded = status == BERTH_OK;
    pthread_mutex_unlock(&writer->lock);
    return status;
}

/* -------------------------------------------------------------------- joining */

berth_status
berthi_writer_read_part(berthi_writer *writer, uint32_t part, berthi_writer_part *out,
                        berth_error *error)
{
    const char *const name = part_journal(writer, part);
    const char *const path =
        name != NULL ? berthi_path_join(&writer->texts, writer->path, name) : NULL;
    const char *const job = part_job(writer, part);
    berthi_journal journal;
    berth_error details;
    berth_status status;

    *out = (berthi_writer_part){ .file_count = 0 };
    if (path == NULL || job == NULL)
        return berthi_fail_memory(error, "reading what parts have finished");
    status = berthi_writer_read_journal(writer, name, path, &journal, &details);
    if (status == BERTH_ENOENT) /* or removed just now by who joins */
        return BERTH_OK;
    if (status != BERTH_OK && error != NULL)
        *error = details;
    if (status == BERTH_OK && strcmp(journal.job, job) != 0)
        return berthi_target_fail(path, BERTH_REASON_JOURNAL,
                                  "is of another job than its name says", error);
    if (status == BERTH_OK)
        *out = (berthi_writer_part){ true, journal.files, journal.file_count };
    return status;
}

berth_status
berthi_writer_has_shared(berthi_writer *writer, const char *name, uint64_t bytes,
                         bool *out_is_there, berth_error *error)
{
    const char *const shared =
        berthi_arena_format(&writer->texts, "%s%s", writer->prefix, name);

    *out_is_there = false;
    if (shared == NULL)
        return berthi_fail_memory(error, "looking for what parts have made");
    return berthi_writer_has_whole(writer, shared, bytes, out_is_there, error);
}

/* Only the header is written now: the way of other bytes to the disk is not watched. */
berth_status
berthi_writer_take(berthi_writer *writer, const char *name, uint64_t bytes,
                   berthi_writer_file **out, berth_error *error)
{
    return open_shared(writer, name, bytes, out, error);
}

/* ------------------------------------------------------------------- clearing */

/* The first few names at a time: what is removed while it is listed may hide others. */
typedef struct leftovers {
    berthi_writer *writer;
    const char *names[64];
    size_t count;
    bool has_failed;
} leftovers;

/* A shared file that was taken has its final name by now, or is listed for it. */
static bool
is_listed(const berthi_writer *writer, const char *name)
{
    for (const berthi_writer_file *f = writer->files; f != NULL; f = f->next)
        if (!f->is_published && strcmp(f->temporary, name) == 0)
            return true;
    return false;
}

static int
note_leftover(void *user, const char *name)
{
    leftovers *const l = user;
    bool is_own;

    if (!berthi_writer_is_of_parts(l->writer, name, &is_own)
        || (!is_own && !l->writer->overwrite) || is_listed(l->writer, name))
        return 0;
    l->names[l->count] = berthi_arena_text(&l->writer->texts, name, strlen(name));
    l->has_failed = l->names[l->count] == NULL;
    l->count += !l->has_failed;
    return l->has_failed || l->count == sizeof l->names / sizeof l->names[0];
}

berth_status
berthi_writer_remove_parts(berthi_writer *writer, berth_error *error)
{
    leftovers l;

    do {
        l = (leftovers){ .writer = writer };
        if (berthi_sys_list(writer->folder, note_leftover, &l) != 0)
            return berthi_fail_system(error, errno, writer->path, "listing the folder");
        if (l.has_failed)
            return berthi_fail_memory(error, "removing what parts have left");
        for (size_t i = 0; i < l.count; i++)
            if (berthi_sys_unlink(writer->folder, l.names[i]) != 0 && errno != ENOENT)
                return berthi_fail_system(error, errno, writer->path,
                                          "removing what parts have left");
    } while (l.count > 0);
    return BERTH_OK;
}
