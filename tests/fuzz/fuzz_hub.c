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
#include "tests/fuzz/require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* No component of `length` bytes that is empty, begins with a dot or a dash. */
static void
check_components(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        const bool begins = i == 0 || text[i - 1] == '/';

        REQUIRE((unsigned char)text[i] > 0x20 && text[i] != '\\');
        REQUIRE(!begins || (text[i] != '.' && text[i] != '-' && text[i] != '/'));
    }
    REQUIRE(length > 0 && text[length - 1] != '/');
}

static void
check_name(const char *text)
{
    const char *problem;
    berthi_hub_name name;

    if (!berthi_hub_is_name(text, &name, &problem))
        return;
    REQUIRE(problem == NULL && strstr(text, "..") == NULL);
    REQUIRE(memchr(name.name, '/', name.name_length) == NULL);
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

    REQUIRE((length > 0) == (commit != NULL));
    REQUIRE(commit == NULL
            || berthi_hub_is_hex(commit, BERTHI_HUB_COMMIT, BERTHI_HUB_COMMIT));
    REQUIRE(length < strlen(text) || length == 0);
    REQUIRE(digest == NULL || strlen(digest) == BERTHI_HUB_DIGEST);
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
    REQUIRE(listed.is_readable || !listed.is_listed);
    REQUIRE(listed.is_listed || !listed.has_bytes);
    REQUIRE(listed.has_bytes || listed.bytes == 0);
    if (!listed.has_bytes)
        return;
    snprintf(printed, sizeof printed,
             "{\"files\":{\"model.safetensors\":{\"size\":%llu}}}",
             (unsigned long long)listed.bytes);
    berthi_hub_tree_find(printed, strlen(printed), "model.safetensors", &again);
    REQUIRE(again.is_readable && again.is_listed && again.bytes == listed.bytes);
}

static void
check_sniff(const uint8_t *data, size_t size)
{
    berthi_sniff sniff;

    berthi_sniff_look(data, size < BERTHI_SNIFF_BYTES ? size : BERTHI_SNIFF_BYTES,
                      &sniff);
    REQUIRE((sniff.reason == BERTH_REASON_NONE) == (sniff.what == NULL));
    REQUIRE(sniff.reason == BERTH_REASON_LFS_POINTER || !sniff.has_promised_bytes);
    REQUIRE(strlen(sniff.promised_sha256) == 0 || strlen(sniff.promised_sha256) == 64);
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
    REQUIRE(commit == NULL
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
