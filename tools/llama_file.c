/* SPDX-License-Identifier: Apache-2.0 */
/* llama_file.c - see llama_file.h. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/draft.h"
#include "tools/llama_error.h"
#include "tools/llama_file.h"
#include "tools/number.h"

#define HEADER_CAPACITY 512
#define IDS_AT_ONCE 512u
#define READ_BYTES 65536u

/* --------------------------------------------------------------------------- texts */

/* What has been read stays in *text after a failure, too. */
static berth_status
read_all(FILE *file, const char *name, char **text, size_t *length, berth_error *error)
{
    size_t got;

    do {
        char *const longer = realloc(*text, *length + READ_BYTES);

        if (longer == NULL)
            return llama_fail_file(error, name, ENOMEM);
        *text = longer;
        got = fread(*text + *length, 1, READ_BYTES, file);
        *length += got;
    } while (got > 0);
    return ferror(file) ? llama_fail_file(error, name, errno) : BERTH_OK;
}

berth_status
llama_file_read(const char *path, char **out_text, size_t *out_length, berth_error *error)
{
    const bool is_standard = strcmp(path, "-") == 0;
    FILE *const file = is_standard ? stdin : fopen(path, "r");
    berth_status status;

    *out_text = NULL;
    *out_length = 0;
    if (file == NULL)
        return llama_fail_file(error, path, errno);
    status = read_all(file, is_standard ? "standard input" : path, out_text, out_length, error);
    if (status != BERTH_OK) {
        free(*out_text);
        *out_text = NULL;
    }
    if (!is_standard)
        fclose(file);
    return status;
}

/* Something like <(command) of a shell. */
static bool
is_pipe(const char *path)
{
    struct stat found;

    return stat(path, &found) == 0 && S_ISFIFO(found.st_mode);
}

berth_status
llama_plan_open(berth_context *context, const char *path, berth_plan **out_plan,
                berth_error *error)
{
    const bool is_standard = strcmp(path, "-") == 0;
    char *text;
    size_t length;
    berth_status status;

    if (!is_standard && !is_pipe(path))
        return berth_plan_open(context, path, out_plan, error);
    *out_plan = NULL;
    status = llama_file_read(path, &text, &length, error);
    if (status == BERTH_OK)
        status = berth_plan_parse(context, text, length, is_standard ? "standard input" : path,
                                  out_plan, error);
    free(text);
    return status;
}

/* -------------------------------------------------------------------------- tokens */

void
llama_tokens_free(llama_tokens *tokens)
{
    free(tokens->ids);
    *tokens = (llama_tokens){ .ids = NULL };
}

berth_status
llama_tokens_add(llama_tokens *tokens, uint32_t id, berth_error *error)
{
    if (tokens->count == tokens->capacity) {
        const uint32_t capacity = tokens->capacity > 0 ? 2 * tokens->capacity : 256;
        uint32_t *const ids = realloc(tokens->ids, capacity * sizeof *ids);

        if (ids == NULL)
            return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for tokens");
        tokens->ids = ids;
        tokens->capacity = capacity;
    }
    tokens->ids[tokens->count++] = id;
    return BERTH_OK;
}

static berth_status
fail_token(berth_error *error, size_t at, const char *what)
{
    return llama_fail(error, BERTH_EINVAL, "tokens", "character %zu %s", at, what);
}

/* The digits that begin at `*at`, which then is behind them. */
static berth_status
read_token(llama_tokens *tokens, const char *text, size_t length, size_t *at,
           berth_error *error)
{
    const size_t begin = *at;
    uint64_t number;

    while (*at < length && text[*at] >= '0' && text[*at] <= '9')
        ++*at;
    if (!number_can_parse(text + begin, *at - begin, INT32_MAX, &number))
        return fail_token(error, begin + 1, "begins a number that is no token: too large");
    return llama_tokens_add(tokens, (uint32_t)number, error);
}

berth_status
llama_tokens_parse(llama_tokens *tokens, const char *text, size_t length,
                   berth_error *error)
{
    berth_status status = BERTH_OK;
    bool has_token = false; /* since the last comma */
    size_t comma = 0;       /* where that is, from 1 on; 0: none */

    for (size_t i = 0; i < length && status == BERTH_OK;) {
        if (text[i] >= '0' && text[i] <= '9') {
            status = read_token(tokens, text, length, &i, error);
            has_token = true;
        } else if (text[i] == ',') {
            comma = ++i;
            if (!has_token)
                status = fail_token(error, i, "is a comma without a token before it");
            has_token = false;
        } else if (text[i] != '\0' && strchr(" \n\r\t[]", text[i]) != NULL) {
            i++;
        } else {
            status = fail_token(error, i + 1, "is neither a digit nor a comma");
        }
    }
    if (status == BERTH_OK && comma > 0 && !has_token)
        status = fail_token(error, comma, "is a comma without a token behind it");
    return status;
}

berth_status
llama_tokens_read(llama_tokens *tokens, const char *path, berth_error *error)
{
    char *text;
    size_t length;
    berth_status status = llama_file_read(path, &text, &length, error);

    if (status == BERTH_OK)
        status = llama_tokens_parse(tokens, text, length, error);
    free(text);
    return status;
}

/* -------------------------------------------------------------------------- logits */

/* Length and text of the header, padded so that numbers begin at a multiple of 8. */
static size_t
format_header(char *header, uint32_t count, uint32_t vocab)
{
    const uint64_t ids = (uint64_t)count * sizeof(int64_t);
    const uint64_t end = ids + (uint64_t)count * vocab * sizeof(float);
    size_t length =
        (size_t)snprintf(header, HEADER_CAPACITY,
                         "{\"input_ids\":{\"dtype\":\"I64\",\"shape\":[1,%" PRIu32 "],"
                         "\"data_offsets\":[0,%" PRIu64 "]},"
                         "\"logits\":{\"dtype\":\"F32\",\"shape\":[1,%" PRIu32 ",%" PRIu32
                         "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}}",
                         count, ids, count, vocab, ids, end);

    while (length % 8 != 0)
        header[length++] = ' ';
    return length;
}

/* Returns 0, or errno. */
static int
write_all(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size > 0) {
        const ssize_t n = write(fd, at, size);

        if (n < 0 && errno != EINTR)
            return errno;
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

static int
write_ids(int fd, const uint32_t *ids, uint32_t count)
{
    int64_t wide[IDS_AT_ONCE];
    int why = 0;

    for (uint32_t i = 0; i < count && why == 0; i += IDS_AT_ONCE) {
        const uint32_t left = count - i;
        const uint32_t n = left < IDS_AT_ONCE ? left : IDS_AT_ONCE;

        for (uint32_t k = 0; k < n; k++)
            wide[k] = ids[i + k];
        why = write_all(fd, wide, n * sizeof *wide);
    }
    return why;
}

/* Numbers of the format are little-endian, as those of every machine berth is built for. */
static int
write_file(int fd, const uint32_t *ids, uint32_t count, const float *logits, uint32_t vocab)
{
    char header[HEADER_CAPACITY];
    const uint64_t length = format_header(header, count, vocab);
    int why = write_all(fd, &length, sizeof length);

    if (why == 0)
        why = write_all(fd, header, length);
    if (why == 0)
        why = write_ids(fd, ids, count);
    return why == 0 ? write_all(fd, logits, (size_t)count * vocab * sizeof *logits) : why;
}

/* A device or a pipe: whoever reads from it would meet its end now. */
static bool
is_special(const char *path)
{
    struct stat found;

    return stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

static berth_status
refuse_file(berth_error *error, const char *path, const char *why)
{
    (void)llama_fail(error, BERTH_EINVAL, NULL, "%s", why);
    if (error != NULL)
        berth_text_escape(path, strlen(path), error->file, sizeof error->file);
    return BERTH_EINVAL;
}

berth_status
llama_logits_check(const char *path, bool may_overwrite, berth_error *error)
{
    berth_status status;
    draft d;
    int why;

    if (is_special(path))
        return BERTH_OK;
    status = berth_hub_check(path, error);
    if (status != BERTH_OK)
        return status;
    why = draft_begin(&d, path, may_overwrite);
    if (why == 0)
        why = draft_end(&d, false);
    return why == 0 ? BERTH_OK : llama_fail_file(error, path, why);
}

/* NULL: no file. */
static bool
is_file(const char *path, const struct stat *wanted)
{
    struct stat found;

    return path != NULL && stat(path, &found) == 0 && found.st_dev == wanted->st_dev
           && found.st_ino == wanted->st_ino;
}

/* Whether a file of the model is this one: it lies below the folder that `path` is or is in. */
static bool
is_file_of(const char *path, const char *file, const struct stat *wanted)
{
    const size_t capacity = strlen(path) + strlen(file) + 2;
    const char *const slash = strrchr(path, '/');
    char *const name = malloc(capacity);
    struct stat found;
    bool is_same;

    if (name == NULL)
        return false;
    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode))
        snprintf(name, capacity, "%s/%s", path, file);
    else
        snprintf(name, capacity, "%.*s%s", slash != NULL ? (int)(slash - path) + 1 : 0, path,
                 file);
    is_same = is_file(name, wanted);
    free(name);
    return is_same;
}

berth_status
llama_logits_spare_inputs(const llama_inputs *inputs, const char *path, berth_error *error)
{
    static const char *const of_model[] = { "config.json", "model.safetensors.index.json" };
    struct stat found;
    bool is_input;

    if (stat(path, &found) != 0 || !S_ISREG(found.st_mode))
        return BERTH_OK;
    is_input = is_file(inputs->plan, &found) || is_file(inputs->tokens, &found);
    for (size_t i = 0; i < sizeof of_model / sizeof of_model[0]; i++)
        is_input |= is_file_of(inputs->model, of_model[i], &found);
    return is_input ? refuse_file(error, path, "is read by this program, and would be lost")
                    : BERTH_OK;
}

berth_status
llama_logits_spare(const berth_checkpoint *checkpoint, const char *path, berth_error *error)
{
    berth_checkpoint_summary summary;
    struct stat found;
    berth_shard shard;

    berth_checkpoint_get(checkpoint, &summary);
    if (stat(path, &found) != 0)
        return BERTH_OK;
    for (uint32_t i = 0; berth_checkpoint_shard(checkpoint, i, &shard) == BERTH_OK; i++)
        if (is_file_of(summary.path, shard.file, &found))
            return refuse_file(error, path,
                               "holds weights of the model, which are never replaced");
    return BERTH_OK;
}

berth_status
llama_logits_write(const char *path, bool may_overwrite, const uint32_t *ids, uint32_t count,
                   const float *logits, uint32_t vocab, berth_error *error)
{
    draft d;
    int why = draft_begin(&d, path, may_overwrite);
    int ended;

    if (why == 0)
        why = write_file(d.fd, ids, count, logits, vocab);
    ended = draft_end(&d, why == 0);
    if (why == 0)
        why = ended;
    return why == 0 ? BERTH_OK : llama_fail_file(error, path, why);
}
