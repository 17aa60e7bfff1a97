/* SPDX-License-Identifier: Apache-2.0 */
/* base.c - names of statuses and reasons, filling and formatting of errors. */
#include "kernels/base.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/sys.h"

#define STRING_OF(number) #number
#define VERSION_TEXT(major, minor, patch)                                                  \
    STRING_OF(major) "." STRING_OF(minor) "." STRING_OF(patch)

const char *
berth_version(void)
{
    return VERSION_TEXT(BERTH_VERSION_MAJOR, BERTH_VERSION_MINOR, BERTH_VERSION_PATCH);
}

/* ------------------------------------------------------------------- names */

typedef struct reason_entry {
    int32_t reason;
    berth_status status;
    const char *name;
    const char *advice;
} reason_entry;

static const reason_entry reasons[] = {
#define REASON_ENTRY(identifier, number, status, name, advice)                             \
    { number, status, name, advice },
    BERTH_REASONS(REASON_ENTRY)
#undef REASON_ENTRY
};

static const reason_entry *
find_reason(int32_t reason)
{
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].reason == reason)
            return &reasons[i];
    return NULL;
}

const char *
berth_reason_name(int32_t reason)
{
    const reason_entry *const entry = find_reason(reason);

    return entry != NULL ? entry->name : "unknown";
}

const char *
berth_reason_advice(int32_t reason)
{
    const reason_entry *const entry = find_reason(reason);

    return entry != NULL ? entry->advice : "";
}

berth_status
berthi_reason_status(int32_t reason)
{
    const reason_entry *const entry = find_reason(reason);

    return entry != NULL ? entry->status : BERTH_EINTERNAL;
}

const char *
berth_status_name(berth_status status)
{
    switch (status) {
    case BERTH_OK: return "ok";
    case BERTH_PENDING: return "pending";
    case BERTH_EINTERNAL: return "internal";
    case BERTH_EINVAL: return "invalid";
    case BERTH_ENOENT: return "not_found";
    case BERTH_EFORMAT: return "format";
    case BERTH_EINTEGRITY: return "integrity";
    case BERTH_ENOFIT: return "no_fit";
    case BERTH_ENOMEM: return "no_memory";
    case BERTH_ENODEV: return "no_device";
    case BERTH_EIO: return "io";
    case BERTH_EUNSUPPORTED: return "unsupported";
    case BERTH_EPOLICY: return "policy";
    case BERTH_ECANCELLED: return "cancelled";
    default: return "unknown";
    }
}

/* ------------------------------------------------------------------ filling */

void
berthi_error_clear(berth_error *error)
{
    if (error != NULL)
        memset(error, 0, sizeof *error);
}

/* The tail of a path says more than its head: a long one loses its front. */
static void
copy_path(char *out, size_t capacity, const char *path)
{
    const size_t length = strlen(path);
    /* No byte becomes more than four characters. */
    const size_t keep = (capacity - 4) / 4;

    if (berth_text_escape(path, length, out, capacity) < capacity)
        return;
    memcpy(out, "...", 3);
    berth_text_escape(path + length - keep, keep, out + 3, capacity - 3);
}

/* At most 128 printable characters; a longer name ends in a mark. */
static void
copy_name(char out[BERTH_NAME_CAPACITY], const char *name, size_t length)
{
    const size_t shown = 128;

    if (berth_text_escape(name, length, out, shown + 1) > shown)
        strcat(out, "...");
}

/* The same of what is printable, and not cut within a character. */
static void
copy_escaped(char out[BERTH_NAME_CAPACITY], const char *name, size_t length)
{
    size_t shown = 128;

    if (length <= shown)
        shown = length;
    while (shown < length && shown > 0 && ((unsigned char)name[shown] & 0xC0) == 0x80)
        shown--;
    memcpy(out, name, shown);
    strcpy(out + shown, shown < length ? "..." : "");
}

static void
fill_about(berth_error *error, const berthi_about *about)
{
    if (about == NULL)
        return;
    error->system_error = about->system_error;
    error->has = about->has;
    error->position = about->position;
    error->expected = about->expected;
    error->actual = about->actual;
    if (about->file != NULL)
        copy_path(error->file, sizeof error->file, about->file);
    if (about->tensor != NULL)
        (about->is_escaped ? copy_escaped : copy_name)(error->tensor, about->tensor,
                                                       about->tensor_length);
}

berth_status
berthi_fail(berth_error *error, berth_reason reason, const berthi_about *about,
            const char *format, ...)
{
    const berth_status status = berthi_reason_status((int32_t)reason);
    const int saved = errno;
    va_list arguments;

    if (error == NULL)
        return status;
    memset(error, 0, sizeof *error);
    error->status = status;
    error->reason = (int32_t)reason;
    fill_about(error, about);
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    errno = saved;
    return status;
}

static berth_reason
reason_of_errno(int system_error)
{
    switch (system_error) {
    case ENOENT:
    case ENAMETOOLONG: /* nothing can be called so */
    case ENOTDIR: return BERTH_REASON_NOT_FOUND;
    case EMFILE:
    case ENFILE: return BERTH_REASON_OPEN_FILES;
    case EACCES:
    case EPERM: return BERTH_REASON_PERMISSION;
    case ELOOP: return BERTH_REASON_LINK_LOOP;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return BERTH_REASON_DISK_FULL;
    case ENOMEM: return BERTH_REASON_NO_MEMORY;
    default: return BERTH_REASON_IO;
    }
}

berth_status
berthi_fail_system(berth_error *error, int system_error, const char *file,
                   const char *what)
{
    const berthi_about about = { .file = file, .system_error = system_error };
    const bool is_empty = system_error == ENOENT && file != NULL && file[0] == '\0';

    return berthi_fail(error, reason_of_errno(system_error), &about, "%s failed%s", what,
                       is_empty ? ", the path is empty" : "");
}

berth_status
berthi_fail_memory(berth_error *error, const char *what)
{
    return berthi_fail(error, BERTH_REASON_NO_MEMORY, NULL, "out of memory: %s", what);
}

berth_status
berthi_fail_argument(berth_error *error, const char *name, const char *wrong)
{
    return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL, "argument `%s` %s", name,
                       wrong);
}

berth_status
berthi_fail_number(berth_error *error, const char *name, uint64_t number, uint64_t count)
{
    return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                       "argument `%s` is %" PRIu64 ", and there are %" PRIu64, name, number,
                       count);
}

bool
berthi_texts_are_there(const char *const *texts, uint32_t count)
{
    if (count > 0 && texts == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (texts[i] == NULL)
            return false;
    return true;
}

berth_status
berthi_options_check(uint32_t reserved, const char *name, berth_error *error)
{
    if (reserved == 0)
        return BERTH_OK;
    return berthi_fail_argument(error, name, "sets a field that this library does not know");
}

berth_status
berthi_options_take(void *mine, size_t my_size, size_t known, const void *given,
                    const char *name, berth_error *error)
{
    size_t given_size;

    memset(mine, 0, my_size);
    if (given == NULL)
        return BERTH_OK;
    memcpy(&given_size, given, sizeof given_size);
    if (given_size < sizeof given_size)
        return berthi_fail_argument(error, name, "has no struct_size: call its _init");
    for (size_t i = known; i < given_size; i++)
        if (((const unsigned char *)given)[i] != 0)
            return berthi_options_check(1, name, error);
    memcpy(mine, given, given_size < my_size ? given_size : my_size);
    return BERTH_OK;
}

berth_status
berthi_options_give(void *given, size_t given_size, const void *mine, size_t my_size)
{
    memset(given, 0, given_size);
    if (given_size < sizeof given_size)
        return BERTH_EINVAL;
    memcpy(given, &given_size, sizeof given_size);
    for (size_t i = given_size; i < my_size; i++)
        if (((const unsigned char *)mine)[i] != 0)
            return BERTH_EINVAL;
    memcpy((unsigned char *)given + sizeof given_size,
           (const unsigned char *)mine + sizeof given_size,
           (given_size < my_size ? given_size : my_size) - sizeof given_size);
    return BERTH_OK;
}

/* --------------------------------------------------------------- formatting */

/* snprintf that keeps counting when the text is full. */
typedef struct line {
    char *text;
    size_t capacity;
    size_t length;
} line;

__attribute__((format(printf, 2, 3))) static void
line_add(line *l, const char *format, ...)
{
    const size_t left = l->capacity - (size_t)berthi_min_u64(l->length, l->capacity);
    va_list arguments;
    int written;

    va_start(arguments, format);
    written = vsnprintf(left > 0 ? l->text + l->length : NULL, left, format, arguments);
    va_end(arguments);
    if (written > 0)
        l->length += (size_t)written;
}

static void
line_add_number(line *l, const berth_error *error, uint32_t bit, const char *before,
                uint64_t number)
{
    if ((error->has & bit) == 0)
        return;
    if (error->has & BERTH_HAS_CRC32)
        line_add(l, "%s%08" PRIx64, before, number);
    else
        line_add(l, "%s%" PRIu64, before, number);
}

static void
line_add_numbers(line *l, const berth_error *error)
{
    if (error->has & BERTH_HAS_POSITION)
        line_add(l, " at byte %" PRIu64, error->position);
    line_add_number(l, error, BERTH_HAS_EXPECTED, " (expected ", error->expected);
    line_add_number(l, error, BERTH_HAS_ACTUAL,
                    error->has & BERTH_HAS_EXPECTED ? ", found " : " (found ",
                    error->actual);
    if (error->has & (BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL))
        line_add(l, error->has & BERTH_HAS_BYTES ? " bytes)" : ")");
    if (error->system_error != 0)
        line_add(l, ": %s", berthi_sys_error_words(error->system_error));
}

/*
 * What the name is of; without a word: a tier, a pin, a glob, a module or a key of config.json.
 */
static const char *
word_of_name(int32_t reason)
{
    switch (reason) {
    case BERTH_REASON_NO_FIT:
    case BERTH_REASON_NO_TIER:
    case BERTH_REASON_ARGUMENT:
    case BERTH_REASON_DEVICE_MAP:
    case BERTH_REASON_RULES:
    case BERTH_REASON_RULE_UNUSED:
    case BERTH_REASON_NOT_FOUND: return "";
    case BERTH_REASON_SLOTS:
    case BERTH_REASON_LEASE:
    case BERTH_REASON_LEASED: return "layer ";
    default: return "tensor ";
    }
}

size_t
berth_error_format(const berth_error *error, char *text, size_t capacity)
{
    line l = { text, capacity, 0 };
    const char *const advice = berth_reason_advice(error->reason);

    if (error->file[0] != '\0')
        line_add(&l, "%s: ", error->file);
    if (error->tensor[0] != '\0')
        line_add(&l, "%s\"%s\": ", word_of_name(error->reason), error->tensor);
    line_add(&l, "%s", error->message);
    line_add_numbers(&l, error);
    line_add(&l, " [%s]", berth_reason_name(error->reason));
    if (advice[0] != '\0')
        line_add(&l, "; %s", advice);
    return l.length;
}
