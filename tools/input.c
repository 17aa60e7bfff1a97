/* SPDX-License-Identifier: Apache-2.0 */
/* input.c - see input.h. */
#define _GNU_SOURCE /* memfd_create() */

#include "tools/input.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/grow.h"
#include "tools/output.h"
#include "tools/save.h"

/* Read at once, at least. */
#define PIECE_BYTES ((size_t)65536)
/* The longest plan, map, manifest, file of rules or links that is taken. */
#define TEXT_LIMIT ((size_t)256 << 20)
#define PATH_CAPACITY 4096

/* What was read into a file without a name: its path there, and what messages call it. */
typedef struct taken_input {
    char path[32];
    const char *name; /* standard input, or a pipe, as the caller has called it */
} taken_input;

#define TAKEN_CAPACITY 8 /* options of one command that name such a file, at most */

static taken_input taken[TAKEN_CAPACITY];
static size_t taken_count;

bool
input_is_standard(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

bool
input_is_pipe(const char *path)
{
    struct stat found;

    return path != NULL && !input_is_standard(path) && stat(path, &found) == 0
           && S_ISFIFO(found.st_mode);
}

/* One read; 0 at the end, -1 after a failure. */
static ssize_t
read_some(int fd, char *into, size_t room)
{
    ssize_t n;

    do
        n = read(fd, into, room);
    while (n < 0 && errno == EINTR);
    return n;
}

/* As input_read(), but what has been read stays there after a failure, too. */
static berth_status
read_all(const cli_command *command, const char *what, int fd, size_t limit, char **out,
         size_t *used)
{
    char size[BERTH_SIZE_CAPACITY];
    size_t capacity = 0;
    ssize_t n;

    do {
        char *const larger = grow(*out, &capacity, *used, PIECE_BYTES, 1);

        if (larger == NULL)
            return cli_failure(command, BERTH_ENOMEM, "out of memory");
        *out = larger;
        n = read_some(fd, *out + *used, capacity - *used);
        if (n < 0)
            return cli_failure(command, BERTH_EIO, "%s: %s", what, strerror(errno));
        *used += (size_t)n;
        if (*used > limit)
            return cli_failure(command, BERTH_EINVAL, "%s: more than %s", what,
                               berth_size_format(limit, size));
    } while (n > 0);
    return BERTH_OK;
}

berth_status
input_read(const cli_command *command, const char *what, int fd, size_t limit, char **out,
           size_t *out_bytes)
{
    berth_status status;

    *out = NULL;
    *out_bytes = 0;
    status = read_all(command, what, fd, limit, out, out_bytes);
    if (status == BERTH_OK)
        return BERTH_OK;
    free(*out);
    *out = NULL;
    *out_bytes = 0;
    return status;
}

berth_status
input_read_pipe(const cli_command *command, const char *path, size_t limit, char **out,
                size_t *out_bytes)
{
    char name[256];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const int system_error = errno;
    berth_status status;

    *out = NULL;
    *out_bytes = 0;
    berth_text_escape(path, strlen(path), name, sizeof name);
    if (fd < 0)
        return cli_failure(command, BERTH_ENOENT, "%s: %s", name, strerror(system_error));
    status = input_read(command, name, fd, limit, out, out_bytes);
    close(fd);
    return status;
}

/* -------------------------------------------------------------------- as a file */

static berth_status
read_input(const cli_command *command, const char *path, char **out, size_t *out_bytes)
{
    return input_is_standard(path)
               ? input_read(command, INPUT_NAME, STDIN_FILENO, TEXT_LIMIT, out, out_bytes)
               : input_read_pipe(command, path, TEXT_LIMIT, out, out_bytes);
}

/* It stays open until the process ends; *path is then where it is. */
static berth_status
take(const cli_command *command, const char **path)
{
    taken_input *const t = &taken[taken_count];
    char *text = NULL;
    size_t bytes = 0;
    berth_status status = read_input(command, *path, &text, &bytes);
    const int fd = status == BERTH_OK ? memfd_create("input", MFD_CLOEXEC) : -1;
    int system_error = errno;
    output file;

    if (status == BERTH_OK && fd >= 0) {
        output_init(&file, fd);
        output_bytes(&file, text, bytes);
        output_flush(&file);
        system_error = file.system_error;
    }
    free(text);
    if (status != BERTH_OK)
        return status;
    t->name = input_is_standard(*path) ? INPUT_NAME : *path;
    if (system_error != 0)
        return cli_failure(command, BERTH_EIO, "%s: %s", t->name, strerror(system_error));
    snprintf(t->path, sizeof t->path, "/proc/self/fd/%d", fd);
    *path = t->path;
    taken_count++;
    return BERTH_OK;
}

/* The path of an option that names a file to be read. */
static const char **
path_of(const cli_call *call, const cli_option *option)
{
    return (const char **)(void *)((char *)call->arguments + option->offset);
}

static berth_status
check_inputs(const cli_call *call)
{
    const cli_option *found = NULL;
    const cli_option *option;

    for (size_t i = 0; (option = cli_option_at(call->command, i)) != NULL; i++) {
        const char *path;

        if (option->kind != CLI_INPUT)
            continue;
        path = *path_of(call, option);
        if (path != NULL && path[0] == '\0') /* of a variable that is not set, mostly */
            return cli_usage_error(call->command,
                                   "--%s: the name of the file is empty; give one",
                                   option->name);
        if (!input_is_standard(path))
            continue;
        if (found != NULL)
            return cli_usage_error(call->command,
                                   "--%s and --%s: standard input is one file, not two",
                                   found->name, option->name);
        found = option;
    }
    return BERTH_OK;
}

berth_status
input_take(const cli_call *call)
{
    berth_status status = check_inputs(call);
    const cli_option *option;

    taken_count = 0;
    for (size_t i = 0; (option = cli_option_at(call->command, i)) != NULL; i++) {
        const char **path;

        if (option->kind != CLI_INPUT || status != BERTH_OK)
            continue;
        path = path_of(call, option);
        if (taken_count < TAKEN_CAPACITY && (input_is_standard(*path) || input_is_pipe(*path)))
            status = take(call->command, path);
    }
    return status;
}

/* ------------------------------------------------------------------ as they are */

/* The option of this name; NULL: the command has none. */
static const cli_option *
find_option(const cli_call *call, const char *name)
{
    const cli_option *option;

    for (size_t i = 0; (option = cli_option_at(call->command, i)) != NULL; i++)
        if (strcmp(option->name, name) == 0)
            return option;
    return NULL;
}

/* Of an option whose value is a text. */
static const char *const *
text_of(const cli_call *call, const cli_option *option)
{
    return (const char *const *)(const void *)((const char *)call->arguments
                                               + option->offset);
}

/* A file, which is there; of others nothing is lost. */
static bool
is_same_file(const char *input, const char *path)
{
    return input != NULL && access(input, F_OK) == 0 && save_is_same(input, path);
}

/* Of a model: what is opened with its weights. */
static bool
is_of_model(const char *name)
{
    static const char *const configs[] = { "config.json", "adapter_config.json",
                                           "quantize_config.json", "quant_config.json",
                                           "hf_quant_config.json" };
    static const char end[] = ".index.json";
    const size_t length = strlen(name);

    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++)
        if (strcmp(name, configs[i]) == 0)
            return true;
    return strstr(name, ".safetensors.index.") != NULL /* of a variant, too */
           || (length >= sizeof end - 1
               && strcmp(name + length - (sizeof end - 1), end) == 0);
}

static bool
is_manifest(const char *name)
{
    return strcmp(name, MANIFEST_NAME) == 0;
}

/* Is it such a file in the folder that is, or holds, what the operand names? */
static bool
is_beside(const char *operand, const char *path, bool (*is_such)(const char *name))
{
    const char *const slash = strrchr(operand, '/');
    char folder[PATH_CAPACITY];
    bool is_one = false;
    const struct dirent *entry;
    DIR *list = opendir(operand);

    snprintf(folder, sizeof folder, "%s", operand);
    if (list == NULL) {
        snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - operand) + 1,
                 slash == NULL ? "." : operand);
        list = opendir(folder);
    }
    if (list == NULL)
        return false;
    while (!is_one && (entry = readdir(list)) != NULL) {
        char name[sizeof folder + sizeof entry->d_name + 1];

        snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
        is_one = is_such(entry->d_name) && save_is_same(name, path);
    }
    closedir(list);
    return is_one;
}

/* The manifest that a command finds by itself: the one file's own, or that of the folder. */
static bool
is_own_manifest(const cli_call *call, const char *operand, const char *path)
{
    const cli_option *const option = find_option(call, "manifest");
    char name[PATH_CAPACITY];

    if (option == NULL || option->kind != CLI_INPUT)
        return false;
    snprintf(name, sizeof name, "%s." MANIFEST_NAME, operand);
    return access(name, F_OK) == 0 ? is_same_file(name, path)
                                   : is_beside(operand, path, is_manifest);
}

/* -------------------------------------------------------------------------- sparing */

static berth_status
refuse_input(const cli_call *call, const char *option, const char *path)
{
    char shown[256];

    berth_text_escape(path, strlen(path), shown, sizeof shown);
    return cli_usage_error(call->command, "--%s: %s is read by the command, and would be lost; "
                                          "choose another name",
                           option, shown);
}

static berth_status
refuse_cached(const cli_call *call, const char *option, const char *path,
              const berth_error *error)
{
    char shown[256];

    berth_text_escape(path, strlen(path), shown, sizeof shown);
    return cli_usage_error(call->command, "--%s: %s %s", option, shown, error->message);
}

berth_status
input_spare(const cli_call *call, const char *name, const char *path)
{
    const cli_common *const common = call->arguments;
    bool is_input = false;
    const cli_option *option;
    berth_error error;

    if (path == NULL || input_is_standard(path))
        return BERTH_OK;
    if (berth_hub_check(path, &error) != BERTH_OK)
        return refuse_cached(call, name, path, &error);
    if (access(path, F_OK) != 0)
        return BERTH_OK;
    for (size_t i = 0; (option = cli_option_at(call->command, i)) != NULL; i++)
        if (option->kind == CLI_INPUT)
            is_input |= is_same_file(*text_of(call, option), path);
    for (uint32_t i = 0; i < common->operand_count; i++) {
        const char *const operand = common->operands[i];

        is_input |= is_same_file(operand, path) || is_beside(operand, path, is_of_model);
        if (strcmp(name, "write-manifest") != 0) /* which replaces it */
            is_input |= is_own_manifest(call, operand, path);
    }
    return is_input ? refuse_input(call, name, path) : BERTH_OK;
}

const char *
input_name(const char *path)
{
    for (size_t i = 0; i < taken_count; i++)
        if (strcmp(path, taken[i].path) == 0)
            return taken[i].name;
    return path;
}

berth_error
input_named(const berth_error *error)
{
    berth_error named = *error;
    const char *const name = input_name(named.file);

    if (name != named.file)
        berth_text_escape(name, strlen(name), named.file, sizeof named.file);
    return named;
}
