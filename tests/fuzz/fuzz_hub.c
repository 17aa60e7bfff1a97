/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, refs and file lists of the hub cache. What is accepted must be safe
 * as part of a path; a list is printed for the path that was found and parsed
 * again. The first byte chooses the parser.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/hub.h"
#include "loader/sniff.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
must(bool holds)
{
    if (!holds)
        __builtin_trap();
}

/* No component of `length` bytes that is empty, begins with a dot or a dash. */
static void
check_components(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        const bool begins = i == 0 || text[i - 1] == '/';

        must((unsigned char)text[i] > 0x20 && text[i] != '\\');
        must(!begins || (text[i] != '.' && text[i] != '-' && text[i] != '/'));
    }
    must(length > 0 && text[length - 1] != '/');
}

static void
check_name(const char *text)
{
    const char *problem;
    berthi_hub_name name;

    if (!berthi_hub_is_name(text, &name, &problem))
        return;
    must(problem == NULL && strstr(text, "..") == NULL);
    must(memchr(name.name, '/', name.name_length) == NULL);
    check_components(name.name, name.name_length);
    check_components(name.revision, strlen(name.revision));
    if (name.organisation != NULL)
        check_components(name.organisation, name.organisation_length);
}

static void
check_paths(const char *text)
{
    const char *commit;
    const uint64_t length = berthi_hub_home_length(text, &commit);
    const char *const digest = berthi_hub_blob_digest(text);

    must((length > 0) == (commit != NULL));
    must(commit == NULL
         || berthi_hub_is_hex(commit, BERTHI_HUB_COMMIT, BERTHI_HUB_COMMIT));
    must(length < strlen(text) || length == 0);
    must(digest == NULL || strlen(digest) == BERTHI_HUB_DIGEST);
}

static void
check_tree(const char *text, size_t length)
{
    berthi_hub_listed listed;
    berthi_hub_listed again;
    char printed[128];
    char *copy = malloc(length + 1);

    memcpy(copy, text, length);
    berthi_hub_tree_find(copy, length, "model.safetensors", &listed);
    free(copy);
    must(listed.is_readable || !listed.is_listed);
    must(listed.is_listed || !listed.has_bytes);
    must(listed.has_bytes || listed.bytes == 0);
    if (!listed.has_bytes)
        return;
    snprintf(printed, sizeof printed,
             "{\"files\":{\"model.safetensors\":{\"size\":%llu}}}",
             (unsigned long long)listed.bytes);
    berthi_hub_tree_find(printed, strlen(printed), "model.safetensors", &again);
    must(again.is_readable && again.is_listed && again.bytes == listed.bytes);
}

static void
check_sniff(const uint8_t *data, size_t size)
{
    berthi_sniff sniff;

    berthi_sniff_look(data, size < BERTHI_SNIFF_BYTES ? size : BERTHI_SNIFF_BYTES,
                      &sniff);
    must((sniff.reason == BERTH_REASON_NONE) == (sniff.what == NULL));
    must(sniff.reason == BERTH_REASON_LFS_POINTER || !sniff.has_promised_bytes);
    must(strlen(sniff.promised_sha256) == 0 || strlen(sniff.promised_sha256) == 64);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;
    const char *commit;

    if (size == 0)
        return 0;
    text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    commit = berthi_hub_ref_commit(text, size - 1);
    must(commit == NULL
         || berthi_hub_is_hex(commit, BERTHI_HUB_COMMIT, BERTHI_HUB_COMMIT));
    switch (data[0] % 4) {
    case 0: check_name(text); break;
    case 1: check_paths(text); break;
    case 2: check_tree(text, size - 1); break;
    default: check_sniff(data + 1, size - 1); break;
    }
    free(text);
    return 0;
}
