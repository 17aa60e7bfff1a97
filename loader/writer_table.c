/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer_table.c - what parts tell each other while they are at work.
 *
 * One file of slots of 8 bytes: a number, and a checksum of it, of its index and of
 * the job. Whoever tells a number writes its slot and nothing else. A slot that was
 * never written, was torn, or is another job's has another checksum: it tells
 * nothing. The file is opened and closed each time, for that is when file systems
 * over a network bring news.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/sys.h"
#include "loader/paths.h"
#include "loader/writer_parts.h"
#include "loader/writer_state.h"

#define SLOTS 512u /* that are read at a time */

typedef struct slot {
    uint32_t number;
    uint32_t check;
} slot;

static void
name_table(const berthi_writer *writer, char out[BERTHI_WRITER_NAME])
{
    snprintf(out, BERTHI_WRITER_NAME, "%stable", writer->prefix);
}

static uint32_t
check_of(const berthi_writer *writer, uint32_t index, uint32_t number)
{
    const uint32_t words[2] = { index, number };

    return berthi_digest_crc32(writer->seed, words, sizeof words);
}

berth_status
berthi_writer_tell(berthi_writer *writer, uint32_t index, uint32_t number,
                   berth_error *error)
{
    const slot told = { number, check_of(writer, index, number) };
    const berthi_target target = { .folder = writer->folder, .path = writer->path };
    char name[BERTHI_WRITER_NAME];
    berth_status status;
    int fd;

    name_table(writer, name);
    fd = berthi_sys_create_or_open(writer->folder, name);
    if (fd < 0)
        return berthi_fail_system(error, errno, writer->path, "opening the table of parts");
    status = berthi_temporary_write(&target, fd, &told, sizeof told,
                                    (uint64_t)index * sizeof told, error);
    berthi_sys_close(fd);
    return status;
}

/* As many whole slots as there are, up to SLOTS; -1: an error. */
static int64_t
read_slots(int fd, slot slots[SLOTS], uint64_t first)
{
    const int64_t got =
        berthi_sys_pread(fd, slots, SLOTS * sizeof *slots, first * sizeof *slots);

    return got < 0 ? -1 : got / (int64_t)sizeof *slots;
}

berth_status
berthi_writer_hear(berthi_writer *writer, uint32_t count,
                   void (*take)(void *user, uint32_t index, uint32_t number), void *user,
                   berth_error *error)
{
    char name[BERTHI_WRITER_NAME];
    slot slots[SLOTS];
    int64_t got = 1;
    int failure = 0;
    int fd;

    name_table(writer, name);
    fd = berthi_sys_open_read(writer->folder, name);
    if (fd < 0 && errno == ENOENT)
        return BERTH_OK;
    if (fd < 0)
        return berthi_fail_system(error, errno, writer->path, "opening the table of parts");
    for (uint64_t first = 0; first < count && got > 0; first += (uint64_t)got) {
        got = read_slots(fd, slots, first);
        if (got < 0)
            failure = errno;
        for (int64_t i = 0; i < got && first + (uint64_t)i < count; i++) {
            const uint32_t index = (uint32_t)(first + (uint64_t)i);

            if (slots[i].number > 0
                && slots[i].check == check_of(writer, index, slots[i].number))
                take(user, index, slots[i].number);
        }
    }
    berthi_sys_close(fd);
    return failure == 0 ? BERTH_OK
                        : berthi_fail_system(error, failure, writer->path,
                                             "reading the table of parts");
}

bool
berthi_writer_is_part_there(berthi_writer *writer, uint32_t part)
{
    char name[BERTHI_WRITER_NAME];
    bool is_there;
    int fd;

    berthi_writer_name_journal(writer, part, name);
    strncat(name, BERTHI_JOURNAL_LOCK_END, sizeof name - strlen(name) - 1);
    fd = berthi_sys_open_read(writer->folder, name);
    if (fd < 0)
        return false;
    is_there = berthi_sys_lock_shared(fd) != 0 && errno == EWOULDBLOCK;
    berthi_sys_close(fd);
    return is_there;
}
