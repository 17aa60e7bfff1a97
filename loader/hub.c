/* SPDX-License-Identifier: Apache-2.0 */
/* hub.c - takes apart names, refs and file lists of the hub's cache. */
#include "loader/hub.h"

#include <string.h>

#include "kernels/utf8.h"
#include "quant/scan.h"

#define DEFAULT_REVISION "main"
#define COMPONENT_LIMIT 96u
#define REVISION_LIMIT 255u

/* -------------------------------------------------------------------- names */

static bool
is_name_byte(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z')
           || (byte >= '0' && byte <= '9') || byte == '-' || byte == '_' || byte == '.';
}

/* An organisation or a name; `--` stands for the slash in the cache's folders. */
static bool
is_component(const char *text, uint64_t length)
{
    if (length == 0 || length > COMPONENT_LIMIT || text[0] == '-' || text[0] == '.')
        return false;
    for (uint64_t i = 0; i < length; i++) {
        if (!is_name_byte(text[i]))
            return false;
        if (i > 0 && text[i] == text[i - 1] && (text[i] == '-' || text[i] == '.'))
            return false;
    }
    return true;
}

static const char *
revision_problem(const char *revision)
{
    const char *part = revision;

    if (strlen(revision) > REVISION_LIMIT)
        return "has a revision of more than 255 characters";
    for (const char *at = revision;; at++) {
        if (*at == '/' || *at == '\0') {
            const size_t length = (size_t)(at - part);

            if (length == 0)
                return "has a revision with an empty part";
            if (part[0] == '-' || part[0] == '.')
                return "has a revision with a part that begins with `-` or `.`";
            if (*at == '\0')
                return NULL;
            part = at + 1;
        } else if ((unsigned char)*at <= 0x20 || *at == 0x7f || *at == '\\'
                   || *at == ':') {
            return "has a revision with a character that revisions never have";
        } else if (at > revision && at[0] == '.' && at[-1] == '.') {
            return "has a revision with `..` in it";
        }
    }
}

bool
berthi_hub_is_name(const char *text, berthi_hub_name *out, const char **out_problem)
{
    const char *const mark = strchr(text, '@');
    const size_t length = mark != NULL ? (size_t)(mark - text) : strlen(text);
    const char *const slash = memchr(text, '/', length);

    memset(out, 0, sizeof *out);
    *out_problem = NULL;
    out->name = slash != NULL ? slash + 1 : text;
    out->name_length = (uint32_t)(text + length - out->name);
    out->revision = mark != NULL ? mark + 1 : DEFAULT_REVISION;
    if (slash != NULL) {
        out->organisation = text;
        out->organisation_length = (uint32_t)(slash - text);
        if (!is_component(text, out->organisation_length))
            return false;
    }
    if (!is_component(out->name, out->name_length))
        return false;
    *out_problem = revision_problem(out->revision);
    return *out_problem == NULL;
}

/* ---------------------------------------------------------------------- hex */

bool
berthi_hub_is_hex(const char *text, uint64_t length, uint64_t digits)
{
    if (length != digits)
        return false;
    for (uint64_t i = 0; i < length; i++)
        if ((text[i] < '0' || text[i] > '9') && (text[i] < 'a' || text[i] > 'f'))
            return false;
    return true;
}

static bool
is_space(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

const char *
berthi_hub_ref_commit(const char *text, uint64_t bytes)
{
    while (bytes > 0 && is_space(text[bytes - 1]))
        bytes--;
    while (bytes > 0 && is_space(*text)) {
        text++;
        bytes--;
    }
    return berthi_hub_is_hex(text, bytes, BERTHI_HUB_COMMIT) ? text : NULL;
}

/* -------------------------------------------------------------------- paths */

/* True when the last component of the `length` bytes names a repository's folder. */
static bool
is_home(const char *path, uint64_t length)
{
    static const char prefix[] = "models--";
    uint64_t at = length;

    while (at > 0 && path[at - 1] != '/')
        at--;
    return length - at > sizeof prefix - 1
           && memcmp(path + at, prefix, sizeof prefix - 1) == 0;
}

uint64_t
berthi_hub_home_length(const char *path, const char **out_commit)
{
    static const char word[] = "/snapshots/";
    uint64_t home_length = 0;

    *out_commit = NULL;
    for (const char *at = strstr(path, word); at != NULL; at = strstr(at + 1, word)) {
        const char *const commit = at + sizeof word - 1;

        if (is_home(path, (uint64_t)(at - path))
            && berthi_hub_is_hex(commit, strcspn(commit, "/"), BERTHI_HUB_COMMIT)) {
            *out_commit = commit;
            home_length = (uint64_t)(at - path);
        }
    }
    return home_length;
}

const char *
berthi_hub_blob_digest(const char *path)
{
    static const char folder[] = "/blobs/";
    const size_t folder_length = sizeof folder - 1;
    const size_t length = strlen(path);
    const char *digest;

    if (length < folder_length + BERTHI_HUB_DIGEST)
        return NULL;
    digest = path + length - BERTHI_HUB_DIGEST;
    if (memcmp(digest - folder_length, folder, folder_length) != 0
        || !berthi_hub_is_hex(digest, BERTHI_HUB_DIGEST, BERTHI_HUB_DIGEST))
        return NULL;
    return digest;
}

/* --------------------------------------------------------------------- tree */

/* The entry of one file: {"size": 12, "blob_id": ..., ...}. */
static void
read_listed(berthi_scan *scan, berthi_hub_listed *out)
{
    berthi_scan_text key;

    out->is_listed = true;
    if (!berthi_scan_can_enter_object(scan))
        return;
    while (berthi_scan_has_next_member(scan, &key)) {
        if (berthi_scan_text_is(&key, "size"))
            out->has_bytes = berthi_scan_can_read_unsigned(scan, &out->bytes);
        else
            berthi_scan_can_skip(scan);
    }
}

static void
read_files(berthi_scan *scan, const char *path, berthi_hub_listed *out)
{
    berthi_scan_text key;

    if (!berthi_scan_can_enter_object(scan))
        return;
    while (berthi_scan_has_next_member(scan, &key)) {
        if (berthi_scan_text_is(&key, path))
            read_listed(scan, out);
        else
            berthi_scan_can_skip(scan);
    }
}

void
berthi_hub_tree_find(char *text, uint64_t bytes, const char *path, berthi_hub_listed *out)
{
    bool has_files = false;
    berthi_scan scan;
    berthi_scan_text key;

    memset(out, 0, sizeof *out);
    if (berthi_utf8_check((const unsigned char *)text, (size_t)bytes) != bytes)
        return;
    berthi_scan_init(&scan, text, bytes, 0);
    if (berthi_scan_can_enter_object(&scan))
        while (berthi_scan_has_next_member(&scan, &key)) {
            if (berthi_scan_text_is(&key, "files")) {
                has_files = true;
                read_files(&scan, path, out);
            } else {
                berthi_scan_can_skip(&scan);
            }
        }
    if (has_files && berthi_scan_can_finish(&scan))
        out->is_readable = true;
    else
        memset(out, 0, sizeof *out);
}
