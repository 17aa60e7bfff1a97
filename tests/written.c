/* SPDX-License-Identifier: Apache-2.0 */
/* written.c - one output of the writer, broken off anywhere; see written.h. */
#define _GNU_SOURCE

#include "tests/written.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/t.h"

#define INDEX "model.safetensors.index.json"
#define MOVED_BY 16u
#define HEADER_BYTES 40u

typedef struct content {
    const char *name;
    const char *first_name; /* under which it is created */
    size_t bytes;
    const char *text; /* NULL: bytes that the name gives */
    uint32_t notes[3];
    uint64_t note_count;
} content;

static const content new_files[WRITTEN_FILES] = {
    { "model-00001-of-00003.safetensors", "model-00001-of-00004.safetensors", 3001, NULL,
      { 1, 0, UINT32_MAX }, 3 },
    { "model-00002-of-00003.safetensors", "model-00002-of-00004.safetensors", 2500, NULL,
      { 7, 8, 0 }, 2 },
    { "model-00003-of-00003.safetensors", "model-00003-of-00004.safetensors", 700, NULL,
      { 0, 0, 0 }, 0 },
    { "config.json", "config.json", 300, NULL, { 0, 0, 0 }, 0 },
    { "berth.manifest.json", "berth.manifest.json", 513, NULL, { 5, 0, 0 }, 1 },
    { "chat/more/tool.jinja", "chat/more/tool.jinja", 40, NULL, { 0, 0, 0 }, 0 },
    { INDEX, INDEX, 0,
      "{\"metadata\": {}, \"weight_map\": {\"a\": \"model-00001-of-00003.safetensors\", "
      "\"b\": \"model-00002-of-00003.safetensors\", "
      "\"c\": \"model-00003-of-00003.safetensors\"}}",
      { 0, 0, 0 }, 0 },
};

static const content old_files[] = {
    { "model-00001-of-00003.safetensors", "", 2000, NULL, { 0, 0, 0 }, 0 },
    { "old/model-00002-of-00002.safetensors", "", 100, NULL, { 0, 0, 0 }, 0 },
    { "config.json", "", 300, NULL, { 0, 0, 0 }, 0 },
    { INDEX, "", 0,
      "{\"metadata\": {}, \"weight_map\": {\"a\": \"model-00001-of-00003.safetensors\", "
      "\"b\": \"old/model-00002-of-00002.safetensors\"}}",
      { 0, 0, 0 }, 0 },
    { "README.md", "", 0, "nobody's", { 0, 0, 0 }, 0 },
};
#define OLD_FILES (sizeof old_files / sizeof old_files[0])

/* The bytes of a file into `out`; returns how many. Old and new ones differ. */
static size_t
fill(const content *file, bool is_new, char *out)
{
    uint32_t state = is_new ? 77 : 1;

    if (file->text != NULL) {
        memcpy(out, file->text, strlen(file->text));
        return strlen(file->text);
    }
    for (const char *at = file->name; *at != '\0'; at++)
        state = state * 31 + (unsigned char)*at;
    for (size_t i = 0; i < file->bytes; i++) {
        state = state * 1664525 + 1013904223;
        out[i] = (char)(state >> 24 | 1); /* never 0: holes show */
    }
    return file->bytes;
}

void
written_make_old(const char *folder)
{
    char bytes[WRITTEN_BYTES];
    char path[4096];

    for (size_t i = 0; i < OLD_FILES; i++) {
        const size_t length = fill(&old_files[i], false, bytes);

        snprintf(path, sizeof path, "%s/%s", folder, old_files[i].name);
        fixture_write(path, bytes, length);
    }
}

/* ------------------------------------------------------------------- running */

/* The end before the beginning, as workers do. */
static berth_status
write_pieces(berthi_writer *writer, berthi_writer_file *file, const char *bytes,
             size_t begin, size_t end, size_t shift, berth_error *error)
{
    const size_t middle = begin + (end - begin) / 2;
    berth_status status = berthi_writer_write(writer, file, bytes + middle, end - middle,
                                              middle - shift, error);

    if (status == BERTH_OK)
        status = berthi_writer_write(writer, file, bytes + begin, middle - begin,
                                     begin - shift, error);
    return status;
}

/* Written behind a header that turns out to be longer. */
static berth_status
write_moved(berthi_writer *writer, berthi_writer_file *file, const char *bytes,
            size_t length, berth_error *error)
{
    berth_status status = write_pieces(writer, file, bytes, HEADER_BYTES, length,
                                       MOVED_BY, error);

    if (status == BERTH_OK)
        status = berthi_writer_move(writer, file, HEADER_BYTES - MOVED_BY, HEADER_BYTES,
                                    length - HEADER_BYTES, error);
    if (status == BERTH_OK)
        status = berthi_writer_write(writer, file, bytes, HEADER_BYTES, 0, error);
    return status;
}

static berth_status
write_file(berthi_writer *writer, const content *what, berthi_writer_file **out,
           berth_error *error)
{
    const bool is_moved = what == &new_files[1];
    char bytes[WRITTEN_BYTES];
    const size_t length = fill(what, true, bytes);
    const berth_status status =
        berthi_writer_create(writer, what->first_name,
                             is_moved ? length - MOVED_BY : length + 5, out, error);

    if (status != BERTH_OK)
        return status;
    return is_moved ? write_moved(writer, *out, bytes, length, error)
                    : write_pieces(writer, *out, bytes, 0, length, 0, error);
}

static berth_status
finish_file(berthi_writer *writer, const content *what, berthi_writer_file *file,
            berth_error *error)
{
    char bytes[WRITTEN_BYTES];

    return berthi_writer_finish(writer, file, fill(what, true, bytes), what->notes,
                                what->note_count, error);
}

static void
check_found(berthi_writer *writer, berthi_writer_file *file, const content *what)
{
    char bytes[WRITTEN_BYTES];
    char found[WRITTEN_BYTES];
    const size_t length = fill(what, true, bytes);

    CHECK(file->is_finished);
    CHECK_EQ(file->bytes, length);
    CHECK_EQ(file->note_count, what->note_count);
    CHECK_MEM(file->notes, what->notes, (size_t)what->note_count * sizeof(uint32_t));
    if (berthi_writer_read(writer, file, found, length, 0, NULL) == BERTH_OK)
        CHECK_MEM(found, bytes, length);
}

/* All are in the making at once, as with several workers. */
static berth_status
write_all(berthi_writer *writer, written_run *run, berth_error *error)
{
    berthi_writer_file *files[WRITTEN_FILES] = { NULL };
    berthi_writer_file *file;
    berth_status status = BERTH_OK;

    for (size_t i = 0; i < WRITTEN_FILES && status == BERTH_OK; i++) {
        file = berthi_writer_find(writer, new_files[i].first_name);
        if (file != NULL) {
            check_found(writer, file, &new_files[i]);
            run->found++;
            continue;
        }
        status = write_file(writer, &new_files[i], &files[i], error);
        run->created++;
    }
    for (size_t i = 0; i < WRITTEN_FILES && status == BERTH_OK; i++)
        if (files[i] != NULL)
            status = finish_file(writer, &new_files[i], files[i], error);
    if (status == BERTH_OK)
        status = berthi_writer_create(writer, "dropped", 10, &file, error);
    if (status == BERTH_OK)
        berthi_writer_drop(writer, file);
    for (size_t i = 0; i < WRITTEN_FILES && status == BERTH_OK; i++)
        status = berthi_writer_rename(writer,
                                      berthi_writer_find(writer, new_files[i].first_name),
                                      new_files[i].name, error);
    return status;
}

berth_status
written_do(written_run *run, berth_context *context, berth_error *error)
{
    const berthi_writer_options options = { .job = WRITTEN_JOB,
                                            .overwrite = run->overwrite,
                                            .resume = run->resume };
    berthi_writer *writer;
    berth_status status =
        berthi_writer_open(context, run->folder, &options, &writer, error);

    run->created = 0;
    run->found = 0;
    if (status != BERTH_OK) {
        CHECK(writer == NULL);
        return status;
    }
    if (berthi_writer_is_complete(writer)) {
        status = berthi_writer_publish(writer, NULL, error);
    } else {
        status = write_all(writer, run, error);
        if (status == BERTH_OK)
            status = berthi_writer_publish(writer, INDEX, error);
    }
    berthi_writer_close(writer);
    return status;
}

berth_status
written_text(berthi_writer *writer, const char *name, const char *text,
             berth_error *error)
{
    berthi_writer_file *file;
    berth_status status = berthi_writer_create(writer, name, strlen(text), &file, error);

    if (status == BERTH_OK)
        status = berthi_writer_write(writer, file, text, strlen(text), 0, error);
    if (status == BERTH_OK)
        status = berthi_writer_finish(writer, file, strlen(text), NULL, 0, error);
    return status;
}

/* ------------------------------------------------------------------- looking */

/* Length, or -1: there is none. */
static ssize_t
read_file(const char *folder, const char *name, char *out)
{
    char path[4096];
    ssize_t length;
    int fd;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    length = read(fd, out, WRITTEN_BYTES);
    close(fd);
    return length;
}

static bool
is_whole(const char *folder, const content *file, bool is_new)
{
    char expected[WRITTEN_BYTES];
    char found[WRITTEN_BYTES];
    const size_t length = fill(file, is_new, expected);

    return read_file(folder, file->name, found) == (ssize_t)length
           && memcmp(found, expected, length) == 0;
}

written_view
written_look(const char *folder)
{
    char bytes[WRITTEN_BYTES];
    bool is_old = true;
    bool is_new = true;

    if (read_file(folder, "model.safetensors", bytes) >= 0)
        return WRITTEN_BROKEN; /* neither of the two has one */
    if (read_file(folder, INDEX, bytes) < 0)
        return WRITTEN_NOTHING;
    for (size_t i = 0; i < OLD_FILES; i++)
        is_old = is_old && is_whole(folder, &old_files[i], false);
    for (size_t i = 0; i < WRITTEN_FILES; i++)
        is_new = is_new && is_whole(folder, &new_files[i], true);
    return is_old ? WRITTEN_OLD : is_new ? WRITTEN_NEW : WRITTEN_BROKEN;
}

/* Files and folders in `folder`, at whatever depth. */
static size_t
count_entries(const char *folder)
{
    DIR *const stream = opendir(folder);
    const struct dirent *entry;
    size_t count = 0;

    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        count += 1 + count_entries(fixture_format("%s/%s", folder, entry->d_name));
    }
    if (stream != NULL)
        closedir(stream);
    return count;
}

bool
written_is_clean(const char *folder, bool had_old)
{
    if (had_old && !is_whole(folder, &old_files[OLD_FILES - 1], false))
        return false;
    return written_look(folder) == WRITTEN_NEW
           && count_entries(folder) == WRITTEN_FILES + WRITTEN_FOLDERS + had_old;
}
