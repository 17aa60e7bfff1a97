/* SPDX-License-Identifier: Apache-2.0 */
/* fixture.c - folders, files and damage; the writer is in fixture_write.c. */
#define _XOPEN_SOURCE 700

#include "tests/fixture.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Everything that lives as long as the program: texts, and the folder of folders. */
typedef struct kept {
    struct kept *next;
    char text[];
} kept;

static kept *all_kept;
static char root[64];
static unsigned folder_count;
static pid_t owner;

static _Noreturn void
die(const char *what, const char *path)
{
    fprintf(stderr, "fixture: %s %s: %s\n", what, path, strerror(errno));
    exit(99);
}

static int
remove_one(const char *path, const struct stat *state, int kind, struct FTW *place)
{
    (void)state;
    (void)kind;
    (void)place;
    if (remove(path) != 0)
        die("cannot remove", path);
    return 0;
}

/* A test may have taken permissions away. */
static int
permit_one(const char *path, const struct stat *state, int kind, struct FTW *place)
{
    (void)state;
    (void)place;
    if (kind == FTW_D || kind == FTW_DNR)
        (void)chmod(path, 0700);
    return 0;
}

void
fixture_remove(const char *path)
{
    struct stat state;

    if (lstat(path, &state) != 0)
        return;
    nftw(path, permit_one, 32, FTW_PHYS);
    nftw(path, remove_one, 32, FTW_PHYS | FTW_DEPTH);
}

static void
clean_up(void)
{
    kept *each = all_kept;

    if (owner != getpid())
        return; /* a child of the test */
    all_kept = NULL;
    while (each != NULL) {
        kept *next = each->next;

        free(each);
        each = next;
    }
    if (root[0] != '\0')
        fixture_remove(root);
    root[0] = '\0';
}

void
fixture_use_memory(void)
{
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
}

static void
begin(void)
{
    const char *where = getenv("TMPDIR");

    if (root[0] != '\0')
        return;
    snprintf(root, sizeof root, "%s/berth-test-XXXXXX",
             where != NULL && strlen(where) < 40 ? where : "/tmp");
    if (mkdtemp(root) == NULL)
        die("cannot make", root);
    owner = getpid();
    atexit(clean_up);
}

const char *
fixture_format(const char *format, ...)
{
    va_list arguments;
    kept *text;
    int length;

    begin();
    va_start(arguments, format);
    length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    text = malloc(sizeof *text + (size_t)length + 1);
    if (text == NULL)
        die("no memory for", format);
    va_start(arguments, format);
    vsnprintf(text->text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->next = all_kept;
    all_kept = text;
    return text->text;
}

const char *
fixture_folder(void)
{
    const char *path;

    begin();
    path = fixture_format("%s/%u", root, folder_count++);
    if (mkdir(path, 0777) != 0)
        die("cannot make", path);
    return path;
}

/* -------------------------------------------------------------------- files */

void
fixture_make_folder(const char *path)
{
    char *copy = strdup(path);

    for (char *at = copy + 1;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        const char was = *at;

        *at = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            die("cannot make", copy);
        *at = was;
        if (was == '\0')
            break;
    }
    free(copy);
}

static void
make_folders_above(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *copy;

    if (slash == NULL || slash == path)
        return;
    copy = strdup(path);
    copy[slash - path] = '\0';
    fixture_make_folder(copy);
    free(copy);
}

void
fixture_write(const char *path, const void *bytes, size_t length)
{
    FILE *out;

    make_folders_above(path);
    unlink(path);
    out = fopen(path, "wb");
    if (out == NULL || fwrite(bytes, 1, length, out) != length || fclose(out) != 0)
        die("cannot write", path);
}

void
fixture_text(const char *path, const char *text)
{
    fixture_write(path, text, strlen(text));
}

const char *
fixture_find(const char *folder, const char *mark)
{
    char line[4096] = "";
    FILE *const list =
        popen(fixture_format("ls -A %s | grep -e '%s' | head -n 1", folder, mark), "r");

    if (list == NULL || fgets(line, sizeof line, list) == NULL)
        snprintf(line, sizeof line, "no name with %s", mark);
    if (list != NULL)
        pclose(list);
    line[strcspn(line, "\n")] = '\0';
    return fixture_format("%s/%s", folder, line);
}

int
fixture_count(const char *folder)
{
    DIR *const stream = opendir(folder);
    const struct dirent *entry;
    int count = 0;

    if (stream == NULL)
        return -1;
    while ((entry = readdir(stream)) != NULL)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(stream);
    return count;
}

uint64_t
fixture_depth(const char *folder)
{
    char *const real = realpath(folder, NULL);
    uint64_t depth = 0;

    for (const char *at = real; at != NULL && (at = strchr(at, '/')) != NULL; at++)
        depth++;
    free(real);
    return depth;
}

uint64_t
fixture_size(const char *path)
{
    struct stat state;

    if (stat(path, &state) != 0)
        die("cannot look at", path);
    return (uint64_t)state.st_size;
}

void *
fixture_read(const char *path, size_t *length)
{
    const size_t bytes = (size_t)fixture_size(path);
    FILE *in = fopen(path, "rb");
    char *text = malloc(bytes + 1);

    if (in == NULL || text == NULL || fread(text, 1, bytes, in) != bytes)
        die("cannot read", path);
    fclose(in);
    text[bytes] = '\0';
    if (length != NULL)
        *length = bytes;
    return text;
}

bool
fixture_is_same_file(const char *a, const char *b)
{
    size_t a_bytes;
    size_t b_bytes;
    char *const a_text = fixture_read(a, &a_bytes);
    char *const b_text = fixture_read(b, &b_bytes);
    const bool is_same = a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0;

    free(a_text);
    free(b_text);
    return is_same;
}

void
fixture_link(const char *target, const char *path)
{
    make_folders_above(path);
    unlink(path);
    if (symlink(target, path) != 0)
        die("cannot link", path);
}

void
fixture_copy(const char *from, const char *to)
{
    size_t length;
    void *bytes = fixture_read(from, &length);

    fixture_write(to, bytes, length);
    free(bytes);
}

void
fixture_copy_folder(const char *from, const char *to)
{
    DIR *stream = opendir(from);
    const struct dirent *entry;

    if (stream == NULL)
        die("cannot list", from);
    fixture_make_folder(to);
    while ((entry = readdir(stream)) != NULL) {
        const char *old = fixture_format("%s/%s", from, entry->d_name);
        const char *new = fixture_format("%s/%s", to, entry->d_name);
        struct stat state;
        char target[4096];

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (lstat(old, &state) != 0)
            die("cannot look at", old);
        if (S_ISDIR(state.st_mode)) {
            fixture_copy_folder(old, new);
        } else if (S_ISLNK(state.st_mode)) {
            const ssize_t length = readlink(old, target, sizeof target - 1);

            target[length > 0 ? length : 0] = '\0';
            fixture_link(target, new);
        } else {
            fixture_copy(old, new);
        }
    }
    closedir(stream);
}

/* -------------------------------------------------------------------- damage */

void
fixture_truncate(const char *path, uint64_t by)
{
    if (truncate(path, (off_t)(fixture_size(path) - by)) != 0)
        die("cannot truncate", path);
}

static bool
is_later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

void
fixture_tick(const char *path)
{
    const struct timespec moment = { 0, 1000000 };
    struct timespec now;
    struct stat about;

    if (stat(path, &about) != 0)
        die("cannot look at", path);
    do { /* the kernel's clock for files moves every few milliseconds */
        nanosleep(&moment, NULL);
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
    } while (!is_later(&now, &about.st_mtim) || !is_later(&now, &about.st_ctim));
}

void
fixture_extend(const char *path, uint64_t by)
{
    if (truncate(path, (off_t)(fixture_size(path) + by)) != 0)
        die("cannot extend", path);
}

void
fixture_flip(const char *path, uint64_t offset, unsigned mask)
{
    FILE *file = fopen(path, "r+b");
    int byte;

    if (file == NULL || fseek(file, (long)offset, SEEK_SET) != 0)
        die("cannot open", path);
    byte = fgetc(file);
    if (byte == EOF || fseek(file, (long)offset, SEEK_SET) != 0
        || fputc(byte ^ (int)mask, file) == EOF || fclose(file) != 0)
        die("cannot change", path);
}

void
fixture_swap(const char *path, const char *from, const char *to)
{
    const size_t length = strlen(from);
    size_t bytes;
    char *const text = fixture_read(path, &bytes);
    size_t at = 0;

    while (at + length <= bytes && memcmp(text + at, from, length) != 0)
        at++;
    if (strlen(to) != length || at + length > bytes)
        die("cannot change the text of", path);
    memcpy(text + at, to, length);
    fixture_write(path, text, bytes);
    free(text);
}

/* ------------------------------------------------------------------- process */

int
fixture_open_fds(void)
{
    DIR *stream = opendir("/proc/self/fd");
    int count = -1; /* the stream's own */

    if (stream == NULL)
        die("cannot list", "/proc/self/fd");
    for (const struct dirent *entry = readdir(stream); entry != NULL;
         entry = readdir(stream))
        count += entry->d_name[0] != '.';
    closedir(stream);
    return count;
}
