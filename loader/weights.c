/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - chooses the model among the files of a folder. */
#include "loader/weights.h"

#include <string.h>

#include "kernels/digits.h"
#include "loader/findings.h"
#include "loader/index.h"
#include "loader/journal.h"
#include "loader/listing.h"
#include "loader/paths.h"

#define SINGLE_SUFFIX BERTHI_SINGLE_SUFFIX
#define INDEX_INFIX BERTHI_INDEX_INFIX
#define SINGLE_NAME BERTHI_SINGLE_NAME
#define INDEX_NAME BERTHI_INDEX_NAME

/* ------------------------------------------------------------------- choosing */

static berth_status
take_single(berthi_location *location, const char *name, berthi_weights *out,
            berth_error *error)
{
    out->files = berthi_arena_alloc(&location->arena, sizeof *out->files, 8);
    if (out->files == NULL)
        return berthi_fail_memory(error, "a list of files");
    out->files[0] = name;
    out->file_count = 1;
    out->is_adapter = berthi_path_has_prefix(name, "adapter_model");
    return BERTH_OK;
}

static berth_status
take_file(berthi_location *location, const char *name, berthi_weights *out,
          berth_error *error)
{
    if (!berthi_listing_is_index(name))
        return take_single(location, name, out, error);
    out->index = name;
    return BERTH_OK;
}

/*
 * `stem`[.variant].safetensors, else its index; both there: the single file,
 * as transformers does, and a warning. Nothing is taken when neither is there.
 */
static berth_status
take_stem(berthi_location *location, const char *stem, const char *variant,
          berthi_findings *findings, berthi_weights *out, berth_error *error)
{
    const char *const dot = variant != NULL ? "." : "";
    const char *const word = variant != NULL ? variant : "";
    const char *single = berthi_arena_format(&location->arena, "%s%s%s" SINGLE_SUFFIX,
                                             stem, dot, word);
    const char *index = berthi_arena_format(
        &location->arena, "%s" INDEX_INFIX "%s%s.json", stem, dot, word);
    bool has_single;
    bool has_index;
    berth_status status;

    if (single == NULL || index == NULL)
        return berthi_fail_memory(error, "a path");
    status = berthi_location_has(location, single, &has_single, error);
    if (status == BERTH_OK)
        status = berthi_location_has(location, index, &has_index, error);
    if (status != BERTH_OK)
        return status;
    if (has_single && has_index) {
        const char *shown = berthi_location_path(location, index);

        if (shown == NULL)
            return berthi_fail_memory(error, "a path");
        berthi_findings_remark(findings, BERTH_SEVERITY_WARNING, BERTH_REASON_BOTH_FORMS,
                               &(berthi_about){ .file = shown },
                               "not used, because there is a single file as well");
    }
    if (has_single)
        return take_single(location, single, out, error);
    out->index = has_index ? index : NULL;
    return BERTH_OK;
}

/* Weights that are no model by themselves, or a second copy of one. */
static bool
is_secondary(const char *name)
{
    return berthi_path_has_prefix(name, "consolidated")
           || berthi_path_has_prefix(name, "adapter_model")
           || berthi_path_has_prefix(name, "optimizer")
           || berthi_path_has_suffix(name, ".lora" SINGLE_SUFFIX);
}

/* "x.fp16.safetensors", "x.fp16-00001-of-00002.safetensors" */
static bool
is_of_variant(const char *name, const char *variant)
{
    const size_t length = strlen(variant);

    for (const char *at = strstr(name, variant); at != NULL; at = strstr(at + 1, variant))
        if (at > name && at[-1] == '.' && (at[length] == '.' || at[length] == '-'))
            return true;
    return false;
}

/* Keeps the candidates at the front of the list; returns how many. */
static uint32_t
keep_candidates(const char **names, uint32_t count, const char *variant)
{
    uint32_t kept = 0;
    uint32_t primary = 0;

    for (uint32_t i = 0; i < count; i++)
        if (variant == NULL || is_of_variant(names[i], variant))
            names[kept++] = names[i];
    for (uint32_t i = 0; i < kept; i++)
        primary += is_secondary(names[i]) ? 0u : 1u;
    if (primary == 0)
        return kept;
    count = kept;
    kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!is_secondary(names[i]))
            names[kept++] = names[i];
    return kept;
}

/* ----------------------------------------------------- several without an index */

#define NUMBER_DIGITS 5u

/* Exactly five digits. */
static bool
can_read_number(const char *at, uint32_t *out)
{
    uint64_t number = 0;
    const bool is_number = berthi_digits_can_parse(at, NUMBER_DIGITS, UINT32_MAX, &number);

    *out = (uint32_t)number;
    return is_number;
}

bool
berthi_weights_is_numbered(const char *name, uint32_t *out_number, uint32_t *out_total,
                           size_t *out_stem_length)
{
    static const char middle[] = "-of-";
    const size_t tail = sizeof "-00002-of-00005" SINGLE_SUFFIX - 1;
    const size_t length = strlen(name);
    const char *at;

    if (length <= tail || !berthi_path_has_suffix(name, SINGLE_SUFFIX))
        return false;
    at = name + length - tail;
    *out_stem_length = length - tail;
    return at[0] == '-' && can_read_number(at + 1, out_number)
           && memcmp(at + 1 + NUMBER_DIGITS, middle, sizeof middle - 1) == 0
           && can_read_number(at + NUMBER_DIGITS + sizeof middle, out_total);
}

/* Fails where a numbered shard is missing: each must have its neighbours. */
static berth_status
check_numbers(berthi_location *location, const char *const *names, uint32_t count,
              berth_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number;
        uint32_t total;
        size_t stem_length;

        if (!berthi_weights_is_numbered(names[i], &number, &total, &stem_length))
            continue;
        for (int step = -1; step <= 1; step += 2) {
            const uint32_t next = number + (uint32_t)step;
            const char *name;
            const char *shown;
            bool has_next = true;
            berth_status status;

            if (next < 1 || next > total)
                continue;
            name = berthi_arena_format(&location->arena,
                                       "%.*s-%05u-of-%05u" SINGLE_SUFFIX,
                                       (int)stem_length, names[i], next, total);
            shown = name == NULL ? NULL : berthi_location_path(location, name);
            if (shown == NULL)
                return berthi_fail_memory(error, "a path");
            status = berthi_location_has(location, name, &has_next, error);
            if (status != BERTH_OK)
                return status;
            if (!has_next)
                return berthi_fail(error, BERTH_REASON_INDEX_SHARD,
                                   &(berthi_about){ .file = shown },
                                   "a shard beside it is there, this one is not");
        }
    }
    return BERTH_OK;
}

/* All the shards of one model, and no other file. */
static bool
are_shards(const char *const *names, uint32_t count)
{
    uint32_t number;
    uint32_t total;
    size_t stem_length;

    for (uint32_t i = 0; i < count; i++)
        if (!berthi_weights_is_numbered(names[i], &number, &total, &stem_length)
            || strncmp(names[i], names[0], stem_length) != 0 || total != count)
            return false;
    return true;
}

static berth_status
fail_several(const berthi_location *location, const char *const *names, uint32_t count,
             berth_error *error)
{
    char first[BERTHI_SHOWN_CAPACITY];
    char second[BERTHI_SHOWN_CAPACITY];

    return berthi_fail(error, BERTH_REASON_AMBIGUOUS,
                       &(berthi_about){ .file = location->folder_path },
                       "%u %s: %s, %s%s", count,
                       are_shards(names, count) ? "shards, and their index is missing"
                                                : "weight files and no index",
                       berthi_findings_shown(names[0], strlen(names[0]), first),
                       berthi_findings_shown(names[1], strlen(names[1]), second),
                       count > 2 ? ", ..." : "");
}

static berth_status
take_several(berthi_location *location, const char **names, uint32_t count,
             bool all_files, berthi_weights *out, berth_error *error)
{
    const berth_status status = check_numbers(location, names, count, error);

    if (status != BERTH_OK)
        return status;
    if (!all_files)
        return fail_several(location, names, count, error);
    out->files = names;
    out->file_count = count;
    return BERTH_OK;
}

/* ------------------------------------------------------------------- refusing */

static berth_status
refuse_kind(berthi_location *location, berth_reason reason, const char *name,
            const char *what, berth_error *error)
{
    const char *shown = berthi_location_path(location, name);

    if (shown == NULL)
        return berthi_fail_memory(error, "a path");
    return berthi_fail(error, reason, &(berthi_about){ .file = shown },
                       "the only weights here are %s", what);
}

/* Nothing to choose from: says why. */
static berth_status
refuse_folder(berthi_location *location, const berthi_listing *names, const char *variant,
              berth_error *error)
{
    const berthi_about about = { .file = location->folder_path };
    uint64_t bytes;

    if (variant != NULL && names->single_count + names->index_count > 0)
        return berthi_fail(error, BERTH_REASON_NOT_FOUND, &about,
                           "there are weights, but none of the variant \"%s\"", variant);
    if (names->has_parts)
        return berthi_fail(error, BERTH_REASON_INCOMPLETE, &about,
                           "unfinished parts of a conversion lie here: run the parts that are "
                           "missing, or put them together with --join");
    if (berthi_location_unfinished(location, SINGLE_NAME) > 0)
        return berthi_fail(error, BERTH_REASON_INCOMPLETE, &about,
                           "no weights yet, but unfinished downloads");
    if (berthi_location_is_listed(location, SINGLE_NAME, &bytes)
        || berthi_location_is_listed(location, INDEX_NAME, &bytes))
        return berthi_fail(error, BERTH_REASON_INCOMPLETE, &about,
                           "the weights of this revision were not downloaded");
    if (names->pickle != NULL)
        return refuse_kind(location, BERTH_REASON_PICKLE, names->pickle,
                           "pickles, which are never opened", error);
    if (names->gguf != NULL)
        return refuse_kind(location, BERTH_REASON_GGUF, names->gguf, "GGUF", error);
    if (names->other != NULL)
        return refuse_kind(location, BERTH_REASON_OTHER_FORMAT, names->other,
                           "of another framework", error);
    if (names->has_pipeline)
        return berthi_fail(error, BERTH_REASON_NOT_FOUND, &about,
                           "a pipeline of several models: name one of its folders");
    if (names->has_repositories)
        return berthi_fail(error, BERTH_REASON_NOT_FOUND, &about,
                           "a hub cache: name one of its repositories");
    return berthi_fail(error, BERTH_REASON_NOT_FOUND, &about,
                       "no *.safetensors in this folder");
}

/* ------------------------------------------------------------------ deciding */

/* No model.safetensors and no index of that name: what else is there? */
static berth_status
take_what_is_there(berthi_location *location, const char *variant, bool all_files,
                   berthi_findings *findings, berthi_weights *out, berth_error *error)
{
    uint32_t count;
    berthi_listing names;
    berth_status status = berthi_listing_read(location, &names, error);

    if (status != BERTH_OK)
        return status;
    if (names.index_count == 1 && variant == NULL) {
        const char *stem = berthi_arena_text(
            &location->arena, names.index,
            (uint64_t)(strstr(names.index, INDEX_INFIX) - names.index));

        if (stem == NULL)
            return berthi_fail_memory(error, "a path");
        status = take_stem(location, stem, NULL, findings, out, error);
        if (status != BERTH_OK || out->index != NULL || out->file_count > 0)
            return status;
        out->index = names.index; /* that of a variant */
        return BERTH_OK;
    }
    if (names.index_count > 1 && variant == NULL)
        return berthi_fail(error, BERTH_REASON_AMBIGUOUS,
                           &(berthi_about){ .file = location->folder_path },
                           "%u indexes, none of them " INDEX_NAME,
                           names.index_count);
    count = keep_candidates(names.singles, names.single_count, variant);
    if (count == 0)
        return refuse_folder(location, &names, variant, error);
    if (count == 1) {
        /* The rest of a download that was broken off is no model. */
        status = check_numbers(location, names.singles, count, error);
        return status == BERTH_OK ? take_single(location, names.singles[0], out, error)
                                  : status;
    }
    return take_several(location, names.singles, count, all_files, out, error);
}

/* The path rule for a shard, or for the index of shards that are called so. */
static const char *
find_path_problem(const char *named)
{
    static const char index[] = ".index.json";
    uint64_t length = strlen(named);

    if (berthi_path_has_suffix(named, index))
        length -= sizeof index - 1;
    return berthi_shard_name_problem(named, length);
}

/* What config.json names, and only that. */
static berth_status
take_named(berthi_location *location, const char *named, berthi_weights *out,
           berth_error *error)
{
    const char *const problem = find_path_problem(named);
    const char *const shown =
        berthi_location_path(location, problem != NULL ? BERTHI_CONFIG_NAME : named);
    char name[BERTHI_SHOWN_CAPACITY];
    bool has_it;
    berth_status status;

    if (shown == NULL)
        return berthi_fail_memory(error, "a path");
    if (problem != NULL && berthi_listing_is_pickle(named))
        return berthi_fail(error, BERTH_REASON_PICKLE, &(berthi_about){ .file = shown },
                           "\"transformers_weights\" is \"%s\", a pickle, which is never "
                           "opened", berthi_findings_shown(named, strlen(named), name));
    if (problem != NULL)
        return berthi_fail(error, BERTH_REASON_PATH, &(berthi_about){ .file = shown },
                           "\"transformers_weights\" is \"%s\", which %s",
                           berthi_findings_shown(named, strlen(named), name), problem);
    status = berthi_location_has(location, named, &has_it, error);
    if (status != BERTH_OK)
        return status;
    if (!has_it)
        return berthi_fail(error, BERTH_REASON_NOT_FOUND,
                           &(berthi_about){ .file = shown },
                           "config.json names these weights, but they are not there");
    return take_file(location, named, out, error);
}

/* A whole model, but not always the one that whoever started a run in its folder expects. */
static void
remark_unfinished(const berthi_location *location, berthi_findings *findings)
{
    berthi_findings_remark(findings, BERTH_SEVERITY_WARNING, BERTH_REASON_INCOMPLETE,
                           &(berthi_about){ .file = location->folder_path },
                           "a run of berth that has not come to its end lies here, too: this "
                           "may be the model from before it");
}

/*
 * A journal without a commit file: what else lies here was left by a run that was
 * broken off, and may be a part of a model that looks like a whole one.
 */
static berth_status
check_finished(berthi_location *location, berthi_findings *findings, berth_error *error)
{
    static const char *const commits[] = { INDEX_NAME, SINGLE_NAME };
    bool has_journal;
    bool has_commit = false;
    berth_status status =
        berthi_location_has(location, BERTHI_JOURNAL_NAME, &has_journal, error);

    if (status != BERTH_OK || !has_journal)
        return status;
    for (size_t i = 0; i < sizeof commits / sizeof commits[0] && !has_commit; i++) {
        status = berthi_location_has(location, commits[i], &has_commit, error);
        if (status != BERTH_OK)
            return status;
    }
    if (!has_commit)
        return berthi_fail(error, BERTH_REASON_INCOMPLETE,
                           &(berthi_about){ .file = location->folder_path },
                           "an interrupted run of berth lies here: repeat that command with "
                           "--resume");
    remark_unfinished(location, findings);
    return BERTH_OK;
}

static bool
is_variant_word(const char *variant)
{
    const size_t length = strlen(variant);

    if (length == 0 || length > 64 || variant[0] == '.' || variant[0] == '-')
        return false;
    for (size_t i = 0; i < length; i++)
        if (variant[i] <= ' ' || variant[i] > '~'
            || strchr("/\\:%\"", variant[i]) != NULL)
            return false;
    return true;
}

berth_status
berthi_weights_find(berthi_location *location, const char *named, const char *variant,
                    bool all_files, berthi_findings *findings, berthi_weights *out,
                    berth_error *error)
{
    berth_status status;

    memset(out, 0, sizeof *out);
    if (variant != NULL && !is_variant_word(variant))
        return berthi_fail_argument(error, "variant", "is no word such as fp16");
    if (location->file != NULL)
        return take_file(location, location->file, out, error);
    status = check_finished(location, findings, error);
    if (status != BERTH_OK)
        return status;
    if (named[0] != '\0')
        return take_named(location, named, out, error);
    status = take_stem(location, "model", variant, findings, out, error);
    if (status != BERTH_OK || out->index != NULL || out->file_count > 0)
        return status;
    return take_what_is_there(location, variant, all_files, findings, out, error);
}

berth_status
berthi_weights_remark_strays(berthi_location *location,
                             bool (*is_part)(const void *user, const char *name),
                             const void *user, berthi_findings *findings,
                             berth_error *error)
{
    berthi_listing names;
    berth_status status = berthi_listing_read(location, &names, error);

    /* Where nothing can be listed nothing can be remarked; what was named is there. */
    if (status != BERTH_OK && error->reason == BERTH_REASON_PERMISSION) {
        berthi_error_clear(error);
        return BERTH_OK;
    }
    if (status != BERTH_OK)
        return status;
    if (names.has_parts)
        remark_unfinished(location, findings);
    for (uint32_t i = 0; i < names.single_count; i++) {
        const char *shown;

        if (is_part(user, names.singles[i]))
            continue;
        shown = berthi_location_path(location, names.singles[i]);
        if (shown == NULL)
            return berthi_fail_memory(error, "a path");
        berthi_findings_remark(findings, BERTH_SEVERITY_NOTE, BERTH_REASON_STRAY_SHARD,
                               &(berthi_about){ .file = shown },
                               is_secondary(names.singles[i])
                                   ? "left out: an adapter, or the same weights again "
                                     "under other names"
                                   : "not part of the model: no index names it");
    }
    return BERTH_OK;
}
