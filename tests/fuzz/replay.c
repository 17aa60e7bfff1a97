/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - main for a fuzz target where there is no libFuzzer
 *
 *     replay/fuzz_NAME [-n MUTATIONS] [FILE|FOLDER]...
 *
 * Gives every file to the target as it is, then MUTATIONS changed copies of
 * each (default 2000), made from a fixed seed: the same on every machine.
 * Without a file it replays tests/fuzz/corpus/NAME. A target that finds a
 * broken invariant traps, which ends this program with a signal.
 */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_INPUT = 1 << 20, MAX_PATH = 4096 };

static const char digits[] = "0123456789";
static const char structure[] = "{}[]\",:\\ -+.eEtfn";

typedef struct replay {
    unsigned long mutations; /* per file */
    unsigned long files;
    unsigned long runs;
    uint64_t random;
    uint8_t *scratch; /* MAX_INPUT bytes and room for one insertion */
} replay;

/* xorshift64*: any generator would do, as long as it is the same everywhere. */
static uint64_t next_random(replay *r)
{
    r->random ^= r->random >> 12;
    r->random ^= r->random << 25;
    r->random ^= r->random >> 27;
    return r->random * UINT64_C(2685821657736338717);
}

static size_t below(replay *r, size_t limit)
{
    return limit == 0 ? 0 : (size_t)(next_random(r) % limit);
}

/* A buffer of exactly the size: a sanitizer then sees one byte too far. */
static void run_once(replay *r, const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);

    if (copy == NULL)
        exit(1);
    if (size > 0)
        memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    r->runs++;
}

static size_t insert_byte(uint8_t *data, size_t size, size_t at, uint8_t byte)
{
    memmove(data + at + 1, data + at, size - at);
    data[at] = byte;
    return size + 1;
}

static size_t mutate(replay *r, uint8_t *data, size_t size)
{
    const size_t at = below(r, size);
    size_t count;

    if (size == 0)
        return insert_byte(data, 0, 0, (uint8_t)next_random(r));
    switch (below(r, 8)) {
    case 0: /* one bit */
        data[at] ^= (uint8_t)(1u << below(r, 8));
        return size;
    case 1: /* any byte */
        data[at] = (uint8_t)next_random(r);
        return size;
    case 2: /* another digit, structure character or extreme byte */
        data[at] = (uint8_t)digits[below(r, sizeof digits - 1)];
        return size;
    case 3:
        data[at] = (uint8_t)structure[below(r, sizeof structure - 1)];
        return size;
    case 4: /* leave some out */
        count = 1 + below(r, size - at < 16 ? size - at : 16);
        if (count > size - at)
            count = size - at;
        memmove(data + at, data + at + count, size - at - count);
        return size - count;
    case 5: /* cut off */
        return at;
    case 6:
        return insert_byte(data, size, at, (uint8_t)structure[below(r, sizeof structure - 1)]);
    default: /* copy a stretch over another place */
        count = below(r, (size - at < 32 ? size - at : 32) + 1);
        memmove(data + below(r, size - count + 1), data + at, count);
        return size;
    }
}

static void replay_file(replay *r, const char *path)
{
    uint8_t *original = malloc(MAX_INPUT);
    FILE *file = fopen(path, "rb");
    size_t size;

    if (original == NULL || file == NULL) {
        perror(path);
        exit(1);
    }
    size = fread(original, 1, MAX_INPUT, file);
    fclose(file);
    run_once(r, original, size);
    /* Each file starts anew, so that adding one does not change the others. */
    r->random = UINT64_C(0x9e3779b97f4a7c15);
    for (unsigned long i = 0; i < r->mutations; i++) {
        size_t changed = size;

        memcpy(r->scratch, original, size);
        for (size_t edits = 1 + below(r, 4); edits > 0; edits--)
            changed = mutate(r, r->scratch, changed);
        run_once(r, r->scratch, changed);
    }
    free(original);
    r->files++;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void replay_path(replay *r, const char *path)
{
    struct stat status;
    struct dirent **entries;
    char inner[MAX_PATH];
    int count;

    if (stat(path, &status) != 0) {
        perror(path);
        exit(1);
    }
    if (!S_ISDIR(status.st_mode)) {
        replay_file(r, path);
        return;
    }
    count = scandir(path, &entries, NULL, compare_names);
    for (int i = 0; i < count; i++) {
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (stat(inner, &status) == 0 && S_ISREG(status.st_mode))
            replay_file(r, inner);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

/* build/.../fuzz_NAME -> tests/fuzz/corpus/NAME */
static void replay_corpus(replay *r, const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *name = slash == NULL ? program : slash + 1;
    char path[MAX_PATH];

    if (strncmp(name, "fuzz_", 5) == 0)
        name += 5;
    snprintf(path, sizeof path, "tests/fuzz/corpus/%s", name);
    replay_path(r, path);
}

int main(int argc, char **argv)
{
    replay r = {.mutations = 2000};
    int first = 1;

    r.scratch = malloc(MAX_INPUT + 16);
    if (r.scratch == NULL)
        return 1;
    if (argc > 2 && strcmp(argv[1], "-n") == 0) {
        r.mutations = strtoul(argv[2], NULL, 10);
        first = 3;
    }
    if (first == argc)
        replay_corpus(&r, argv[0]);
    for (int i = first; i < argc; i++)
        replay_path(&r, argv[i]);
    free(r.scratch);
    printf("note: %lu files, %lu runs\n", r.files, r.runs);
    printf("t: %d passed, %d failed, 0 skipped\n", r.files > 0, r.files == 0);
    return r.files > 0 ? 0 : 1;
}
