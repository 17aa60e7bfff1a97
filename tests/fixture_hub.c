/* SPDX-License-Identifier: Apache-2.0 */
/* fixture_hub.c - folders laid out as the hub's cache, and the SHA-256 they need. */
#define _XOPEN_SOURCE 700

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fixture.h"

/* ------------------------------------------------------------------- SHA-256 */

static uint32_t
turn(uint32_t x, unsigned by)
{
    return x >> by | x << (32 - by);
}

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2,
};

static void
add_block(uint32_t *state, const uint8_t *block)
{
    uint32_t w[64];
    uint32_t v[8];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16
               | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7]
               + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3)
               + (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t a = v[7] + (turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25))
                           + ((v[4] & v[5]) ^ (~v[4] & v[6])) + round_constants[i] + w[i];
        const uint32_t b = (turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22))
                           + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));

        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += a;
        v[0] = a + b;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void
fixture_sha256(const void *bytes, size_t length, char *hex)
{
    uint32_t state[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
    const uint8_t *from = bytes;
    uint8_t tail[128] = { 0 };
    const size_t rest = length % 64;
    const size_t tail_length = rest < 56 ? 64 : 128;

    for (size_t at = 0; at + 64 <= length; at += 64)
        add_block(state, from + at);
    if (rest > 0)
        memcpy(tail, from + length - rest, rest);
    tail[rest] = 0x80;
    for (size_t i = 0; i < 8; i++)
        tail[tail_length - 1 - i] = (uint8_t)((uint64_t)length * 8 >> 8 * i);
    for (size_t at = 0; at < tail_length; at += 64)
        add_block(state, tail + at);
    for (int i = 0; i < 8; i++)
        snprintf(hex + 8 * i, 9, "%08x", state[i]);
}

/* --------------------------------------------------------------------- cache */

const char *
fixture_hub_repository(const char *cache, const char *repository)
{
    const char *slash = strchr(repository, '/');

    if (slash == NULL)
        return fixture_format("%s/models--%s", cache, repository);
    return fixture_format("%s/models--%.*s--%s", cache, (int)(slash - repository),
                          repository, slash + 1);
}

void
fixture_hub_ref(const char *cache, const char *repository, const char *name,
                const char *commit)
{
    fixture_text(fixture_format("%s/refs/%s", fixture_hub_repository(cache, repository),
                                name),
                 commit);
}

static bool
has_suffix(const char *text, const char *suffix)
{
    const size_t length = strlen(text);
    const size_t suffix_length = strlen(suffix);

    return length >= suffix_length && strcmp(text + length - suffix_length, suffix) == 0;
}

static void
move_file(const char *home, const char *commit, const char *from, const char *inside)
{
    const char *blob;
    const char *up = "../..";
    size_t length;
    char hex[65];
    void *bytes = fixture_read(from, &length);

    fixture_sha256(bytes, length, hex);
    if (!has_suffix(inside, ".safetensors"))
        hex[40] = '\0';
    blob = fixture_format("%s/blobs/%s", home, hex);
    fixture_write(blob, bytes, length);
    free(bytes);
    for (const char *p = strchr(inside, '/'); p != NULL; p = strchr(p + 1, '/'))
        up = fixture_format("%s/..", up);
    fixture_link(fixture_format("%s/blobs/%s", up, hex),
                 fixture_format("%s/snapshots/%s/%s", home, commit, inside));
    fixture_remove(from);
}

/* Calls `each` for every file below `folder`; `inside` is the way down to it. */
static void
walk(const char *folder, const char *inside,
     void (*each)(void *, const char *, const char *), void *user)
{
    DIR *stream = opendir(folder);
    const struct dirent *entry;
    struct stat state;

    if (stream == NULL)
        return;
    while ((entry = readdir(stream)) != NULL) {
        const char *path = fixture_format("%s/%s", folder, entry->d_name);
        const char *next = fixture_format("%s%s%s", inside, *inside ? "/" : "",
                                          entry->d_name);

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (lstat(path, &state) == 0 && S_ISDIR(state.st_mode))
            walk(path, next, each, user);
        else
            each(user, path, next);
    }
    closedir(stream);
}

struct import {
    const char *home;
    const char *commit;
};

static void
import_file(void *user, const char *path, const char *inside)
{
    const struct import *import = user;

    move_file(import->home, import->commit, path, inside);
}

const char *
fixture_hub(const char *cache, const char *repository, const char *commit,
            const char *folder)
{
    struct import import = { fixture_hub_repository(cache, repository), commit };
    const char *snapshot = fixture_format("%s/snapshots/%s", import.home, commit);

    fixture_make_folder(snapshot);
    fixture_make_folder(fixture_format("%s/blobs", import.home));
    fixture_hub_ref(cache, repository, "main", commit);
    walk(folder, "", import_file, &import);
    return snapshot;
}

static void
list_file(void *user, const char *path, const char *inside)
{
    FILE *out = user;
    char target[PATH_MAX];
    const ssize_t length = readlink(path, target, sizeof target - 1);
    const char *blob;

    if (length < 0)
        return;
    target[length] = '\0';
    blob = strrchr(target, '/') + 1;
    fprintf(out, "%s\"%s\":{\"size\":%llu,\"blob_id\":\"%.40s\"",
            ftell(out) > 29 ? "," : "", inside, (unsigned long long)fixture_size(path),
            blob);
    if (strlen(blob) == 64)
        fprintf(out, ",\"lfs_sha256\":\"%s\",\"lfs_size\":%llu", blob,
                (unsigned long long)fixture_size(path));
    fputc('}', out);
}

void
fixture_hub_tree(const char *cache, const char *repository, const char *commit)
{
    const char *home = fixture_hub_repository(cache, repository);
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    if (out == NULL)
        abort();
    fputs("{\"format_version\":1,\"files\":{", out);
    walk(fixture_format("%s/snapshots/%s", home, commit), "", list_file, out);
    fputs("}}", out);
    fclose(out);
    fixture_write(fixture_format("%s/trees/%s.json", home, commit), text, length);
    free(text);
}
