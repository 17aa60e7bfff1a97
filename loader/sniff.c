/* SPDX-License-Identifier: Apache-2.0 */
/* sniff.c - names the kinds of files that are met where weights were expected. */
#include "loader/sniff.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/digits.h"
#include "loader/paths.h"

/* ------------------------------------------------------------- fixed magics */

typedef struct magic {
    const char *bytes;
    uint32_t length;
    berth_reason reason;
    const char *what;
} magic;

static const magic magics[] = {
    { "PK\x03\x04", 4, BERTH_REASON_ZIP, "a zip archive, as PyTorch's .bin and .pt" },
    { "GGUF", 4, BERTH_REASON_GGUF, "a GGUF file" },
    { "\x93NUMPY", 6, BERTH_REASON_OTHER_FORMAT, "a NumPy array (npy)" },
    { "\x89HDF\r\n\x1a\n", 8, BERTH_REASON_OTHER_FORMAT, "an HDF5 file" },
    { "\x1f\x8b", 2, BERTH_REASON_OTHER_FORMAT, "a gzip file" },
    { "\x28\xb5\x2f\xfd", 4, BERTH_REASON_OTHER_FORMAT, "a zstd file" },
    { "\xfd" "7zXZ", 5, BERTH_REASON_OTHER_FORMAT, "an xz file" },
};

static bool
has_magic(const uint8_t *head, uint64_t bytes, const magic *one)
{
    return bytes >= one->length && memcmp(head, one->bytes, one->length) == 0;
}

/* ------------------------------------------------------------- text look-alikes */

static bool
is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

static uint64_t
skip_space(const uint8_t *head, uint64_t bytes, uint64_t at)
{
    while (at < bytes && is_space(head[at]))
        at++;
    return at;
}

/* Like a prefix comparison; `word` is in lower case, the text in any. */
static bool
has_word(const uint8_t *head, uint64_t bytes, uint64_t at, const char *word)
{
    for (; *word != '\0'; word++, at++) {
        uint8_t byte;

        if (at >= bytes)
            return false;
        byte = head[at];
        if (byte >= 'A' && byte <= 'Z')
            byte = (uint8_t)(byte - 'A' + 'a');
        if (byte != (uint8_t)*word)
            return false;
    }
    return true;
}

static bool
is_web_page(const uint8_t *head, uint64_t bytes)
{
    static const char *const words[] = { "<!doctype", "<html", "<head", "<?xml" };
    const uint64_t mark = has_word(head, bytes, 0, "\xef\xbb\xbf") ? 3 : 0;
    const uint64_t at = skip_space(head, bytes, mark);

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (has_word(head, bytes, at, words[i]))
            return true;
    return false;
}

/* `{` and then a key or the end, with nothing but white space around. */
static bool
is_json(const uint8_t *head, uint64_t bytes)
{
    const uint64_t at = skip_space(head, bytes, 0);
    uint64_t next;

    if (at >= bytes || head[at] != '{')
        return false;
    next = skip_space(head, bytes, at + 1);
    return next < bytes && (head[next] == '"' || head[next] == '}');
}

static bool
is_plain_text(const uint8_t *head, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        if ((head[i] < 0x20 && !is_space(head[i])) || head[i] >= 0x7f)
            return false;
    return bytes > 0;
}

/* --------------------------------------------------------------- git-lfs */

/* Where the value of a line "key value" begins, or 0. */
static uint64_t
find_line(const uint8_t *head, uint64_t bytes, const char *key)
{
    for (uint64_t at = 0; at < bytes;) {
        const uint8_t *end;

        if (has_word(head, bytes, at, key))
            return at + strlen(key);
        end = memchr(head + at, '\n', (size_t)(bytes - at));
        if (end == NULL)
            break;
        at = (uint64_t)(end - head) + 1;
    }
    return 0;
}

static bool
is_hex_digit(uint8_t byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
}

static void
read_lfs_pointer(const uint8_t *head, uint64_t bytes, berthi_sniff *out)
{
    const uint64_t oid = find_line(head, bytes, "oid sha256:");
    const uint64_t size = find_line(head, bytes, "size ");
    const char *const text = (const char *)head;
    const char *number = text + size;
    uint64_t digits = 0;

    while (oid > 0 && digits <= 64 && oid + digits < bytes
           && is_hex_digit(head[oid + digits]))
        digits++;
    if (digits == 64)
        memcpy(out->promised_sha256, head + oid, 64);
    out->has_promised_bytes =
        size > 0
        && berthi_digits_can_take(&number, text + bytes, UINT64_MAX, &out->promised_bytes);
}

/* ------------------------------------------------------------------- binary */

static bool
is_pickle(const uint8_t *head, uint64_t bytes)
{
    return bytes >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5;
}

/* A map whose first key is a string, as Flax writes it. */
static bool
is_msgpack(const uint8_t *head, uint64_t bytes)
{
    uint64_t key;

    if (bytes == 0)
        return false;
    if (head[0] > 0x80 && head[0] <= 0x8f)
        key = 1;
    else if (head[0] == 0xde)
        key = 3;
    else if (head[0] == 0xdf)
        key = 5;
    else
        return false;
    return key < bytes
           && ((head[key] >= 0xa0 && head[key] <= 0xbf) || head[key] == 0xd9);
}

/* A length of zero is enough: no header is that short. */
static bool
is_zero_filled(const uint8_t *head, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes && i < 8; i++)
        if (head[i] != 0)
            return false;
    return bytes >= 8;
}

/* ------------------------------------------------------------------ verdict */

static const char plain_text[] = "plain text";

static void
set(berthi_sniff *out, berth_reason reason, const char *what)
{
    out->reason = reason;
    out->what = what;
}

void
berthi_sniff_look(const uint8_t *head, uint64_t head_bytes, berthi_sniff *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++)
        if (has_magic(head, head_bytes, &magics[i])) {
            set(out, magics[i].reason, magics[i].what);
            return;
        }
    if (has_word(head, head_bytes, 0, "version https://git-lfs")) {
        set(out, BERTH_REASON_LFS_POINTER, "a git-lfs pointer");
        read_lfs_pointer(head, head_bytes, out);
    } else if (is_pickle(head, head_bytes)) {
        set(out, BERTH_REASON_PICKLE, "a Python pickle");
    } else if (is_web_page(head, head_bytes)) {
        set(out, BERTH_REASON_HTML, "a web page");
    } else if (is_json(head, head_bytes)) {
        set(out, BERTH_REASON_JSON_BODY, "a JSON text");
    } else if (is_zero_filled(head, head_bytes)) {
        set(out, BERTH_REASON_ZERO_FILLED, "zeros");
    } else if (is_msgpack(head, head_bytes)) {
        set(out, BERTH_REASON_OTHER_FORMAT, "msgpack, as Flax writes it");
    } else if (is_plain_text(head, head_bytes)) {
        set(out, BERTH_REASON_TEXT_BODY, plain_text);
    }
}

/* Bytes that a safetensors file with this length prefix would have at least. */
static uint64_t
promised_by_prefix(const uint8_t *head, uint64_t head_bytes)
{
    uint64_t n = 0;
    uint64_t bytes;

    if (head_bytes < 8)
        return 8;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | head[i];
    return berthi_can_add(n, 8, &bytes) ? bytes : UINT64_MAX;
}

static void
fail_look_alike(const berthi_sniff *sniff, const char *verdict, const char *file,
                uint64_t expected, uint64_t actual, berth_error *error)
{
    const berthi_about about = {
        .file = file,
        .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES,
        .expected = expected,
        .actual = actual,
    };

    if (sniff->has_promised_bytes && sniff->promised_sha256[0] != '\0')
        berthi_fail(error, sniff->reason, &about,
                    "%s instead of %s: it stands for %" PRIu64
                    " bytes with sha256 %s",
                    sniff->what, verdict, sniff->promised_bytes, sniff->promised_sha256);
    else
        berthi_fail(error, sniff->reason, &about, "%s instead of %s", sniff->what,
                    verdict);
}

/* A sound header, and less data behind it than it promises. */
static berth_status
fail_short(uint64_t header_end, uint64_t file_bytes, const char *file, berth_error *error)
{
    const berthi_about about = {
        .file = file,
        .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES,
        .expected = header_end + error->expected,
        .actual = file_bytes,
    };

    return berthi_fail(error, BERTH_REASON_INCOMPLETE, &about,
                       "the last %" PRIu64 " bytes of the file are missing",
                       about.expected - file_bytes);
}

/* config.json or an index named in place of the weights; not an answer saved under their name. */
static bool
is_called_json(const char *file)
{
    return strlen(file) > 5 && berthi_path_has_suffix(file, ".json");
}

berth_status
berthi_sniff_explain(const uint8_t *head, uint64_t head_bytes, uint64_t file_bytes,
                     const char *file, berth_error *error)
{
    char verdict[96] = "a safetensors file (";
    berthi_sniff sniff;

    if (error->reason == BERTH_REASON_COVERAGE)
        return error->actual < error->expected
                   ? fail_short(promised_by_prefix(head, head_bytes), file_bytes, file,
                                error)
                   : error->status;
    berthi_sniff_look(head, head_bytes, &sniff);
    if (sniff.reason == BERTH_REASON_NONE)
        return error->status;
    if (sniff.reason == BERTH_REASON_JSON_BODY && is_called_json(file))
        return berthi_fail(error, BERTH_REASON_ARGUMENT, &(berthi_about){ .file = file },
                           "is a JSON file, not weights: name the folder that it lies in");
    strcat(verdict, berth_reason_name(error->reason));
    strcat(verdict, ")");
    fail_look_alike(&sniff, verdict, file,
                    sniff.has_promised_bytes ? sniff.promised_bytes
                                             : promised_by_prefix(head, head_bytes),
                    file_bytes, error);
    return error->status;
}

bool
berthi_sniff_has_refused_text(const char *text, uint64_t bytes, const char *file,
                              berth_error *error)
{
    const uint8_t *const head = (const uint8_t *)text;
    const uint64_t head_bytes = berthi_min_u64(bytes, BERTHI_SNIFF_BYTES);
    berthi_sniff sniff;

    if (is_json(head, head_bytes))
        return false;
    berthi_sniff_look(head, head_bytes, &sniff);
    if (sniff.reason == BERTH_REASON_NONE || sniff.what == plain_text)
        return false; /* of plain text the parser says more */
    fail_look_alike(&sniff, "a JSON document", file,
                    sniff.has_promised_bytes ? sniff.promised_bytes : 0, bytes, error);
    if (!sniff.has_promised_bytes && error != NULL)
        error->has = BERTH_HAS_ACTUAL | BERTH_HAS_BYTES;
    return true;
}

