/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.c - opening: folder, config.json, which files, index, headers,
 * preflight, quantization; in this order, so that findings have one order too.
 */
#include "loader/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/host.h"
#include "loader/ahead.h"
#include "loader/index.h"
#include "loader/preflight.h"
#include "loader/weights.h"

/* One opening: the checkpoint that is being built and what dies with the call. */
typedef struct opening {
    berth_checkpoint *checkpoint;
    berthi_findings findings;
    berthi_weights weights;
    berthi_index index; /* context NULL: none */
    const char *index_path;
    berth_open_options options;
    berth_error error; /* of the step that failed */
} opening;

/*
 * After a step: true when the opening goes on. `status` is that of the step
 * with o->error; what ends the opening is then in o->findings.
 */
static bool
note_step(opening *o, berth_status status)
{
    return status == BERTH_OK || berthi_findings_note(&o->findings, &o->error);
}

/* --------------------------------------------------------------------- index */

static berth_status
read_index(opening *o, berth_error *error)
{
    berth_checkpoint *const c = o->checkpoint;
    char *text;
    uint64_t bytes;
    berth_status status;

    o->index_path = berthi_location_path(&c->location, o->weights.index);
    if (o->index_path == NULL)
        return berthi_fail_memory(error, "a path");
    status = berthi_location_read(&c->location, o->weights.index, BERTHI_INDEX_LIMIT,
                                  BERTH_REASON_INDEX_JSON, &text, &bytes, error);
    if (status != BERTH_OK)
        return status;
    status = berthi_index_parse(c->context, text, bytes, o->index_path, &o->index, error);
    if (status != BERTH_OK)
        berthi_findings_keep_name(&o->findings, o->index.blamed.name, o->index.blamed.length);
    /* Before the headers come: the two largest texts never meet. */
    berthi_memory_free(c->context, BERTHI_PURPOSE_HEADER, text, bytes);
    return status;
}

/* -------------------------------------------------------------------- shards */

/* Shards in bytewise order of names, closed. */
static berth_status
list_shards(opening *o, berth_error *error)
{
    berth_checkpoint *const c = o->checkpoint;
    const bool is_sharded = o->weights.index != NULL;
    const uint32_t count = is_sharded ? o->index.shard_count : o->weights.file_count;

    c->shards = berthi_memory_array(c->context, BERTHI_PURPOSE_OBJECT, count,
                                    sizeof *c->shards);
    if (c->shards == NULL)
        return berthi_fail_memory(error, "a list of shards");
    memset(c->shards, 0, count * sizeof *c->shards);
    c->shard_count = count;
    c->is_sharded = is_sharded;
    for (uint32_t i = 0; i < count; i++)
        c->shards[i].file.fd = -1;
    for (uint32_t i = 0; i < count; i++) {
        const char *name = is_sharded ? o->index.text + o->index.shards[i]
                                      : o->weights.files[i];

        c->shards[i].name =
            berthi_arena_text(&c->location.arena, name, strlen(name));
        if (c->shards[i].name == NULL)
            return berthi_fail_memory(error, "a list of shards");
    }
    return BERTH_OK;
}

static bool
is_absence(const berth_error *error)
{
    return error->reason == BERTH_REASON_INDEX_SHARD
           || error->reason == BERTH_REASON_NOT_FOUND
           || error->reason == BERTH_REASON_INCOMPLETE
           || error->reason == BERTH_REASON_MISSING_BLOB;
}

/* The first absent shard speaks for all of them. */
typedef struct absences {
    berth_error first;
    uint32_t count;
    bool has_more;    /* than `others` can hold */
    char others[192]; /* names, for the message */
} absences;

static void
add_absence(absences *all, const char *name, const berth_error *error)
{
    char shown[BERTHI_SHOWN_CAPACITY];
    const size_t used = strlen(all->others);

    if (all->count++ == 0) {
        all->first = *error;
        return;
    }
    berthi_findings_shown(name, strlen(name), shown);
    if (all->has_more || used + strlen(shown) + 2 >= sizeof all->others)
        all->has_more = true;
    else
        snprintf(all->others + used, sizeof all->others - used, "%s%s",
                 used > 0 ? ", " : "", shown);
}

static void
finish_absences(absences *all, uint32_t shard_count)
{
    const size_t used = strlen(all->first.message);

    if (all->count > 1)
        snprintf(all->first.message + used, sizeof all->first.message - used,
                 "; %u of %u shards are missing, also %s%s", all->count, shard_count,
                 all->others, all->has_more ? ", ..." : "");
}

/*
 * Opens all files; absent ones are collected, so that one error names them all. True: the
 * opening goes on.
 */
static bool
open_shards(opening *o)
{
    berth_checkpoint *const c = o->checkpoint;
    const berth_reason missing =
        c->is_sharded ? BERTH_REASON_INDEX_SHARD : BERTH_REASON_NOT_FOUND;
    const char *const why = c->is_sharded
                                ? "the index names this shard, but it is not there"
                                : "the file is not there";
    absences absent = { .count = 0 };

    for (uint32_t i = 0; i < c->shard_count; i++) {
        const berth_status status = berthi_shard_open(
            &c->shards[i], &c->location, c->shards[i].name, missing, why, &o->error);

        if (status == BERTH_OK)
            continue;
        berthi_file_close(&c->shards[i].file);
        if (is_absence(&o->error))
            add_absence(&absent, c->shards[i].name, &o->error);
        if ((o->findings.keep_going || !is_absence(&o->error)) && !note_step(o, status))
            return false;
    }
    if (absent.count == 0)
        return true;
    finish_absences(&absent, c->shard_count);
    if (!o->findings.keep_going) {
        o->error = absent.first;
        return note_step(o, o->error.status);
    }
    if (o->findings.first.reason == absent.first.reason
        && strcmp(o->findings.first.file, absent.first.file) == 0)
        o->findings.first = absent.first;
    return true;
}

/*
 * Reads a shard whose turn it is into the table. Who is short of memory gives up what was
 * read ahead, and has as much as one who never did.
 */
static berth_status
read_shard(opening *o, uint32_t number, berthi_ahead *ahead, berth_error *error)
{
    berth_checkpoint *const c = o->checkpoint;
    berthi_shard *const shard = &c->shards[number];
    berthi_shard_header header;
    berth_status status = BERTH_OK;

    if (!berthi_ahead_take(ahead, number, &header))
        do
            status = berthi_shard_read(shard, c->context, &header, &o->findings, error);
        while (status == BERTH_ENOMEM && berthi_ahead_end(ahead));
    if (status == BERTH_OK)
        status = berthi_shard_check(shard, number, &header, &o->findings, error);
    if (status == BERTH_OK)
        do
            status = berthi_shard_take(shard, number, &header, &c->table, error);
        while (status == BERTH_ENOMEM && berthi_ahead_end(ahead));
    berthi_header_fini(&header.header);
    return status;
}

/* Threads that are worth it: one that starts takes as long as so many tensors. */
#define TENSORS_A_THREAD 2048u

static uint32_t
reading_threads(const opening *o)
{
    const uint64_t worth = o->index.entry_count / TENSORS_A_THREAD;

    if (o->options.threads > 0)
        return o->options.threads;
    return worth < 2 ? 1 : (uint32_t)berthi_min_u64(worth, berthi_host_worker_count());
}

/* True: the opening goes on. */
static bool
read_shards(opening *o)
{
    berth_checkpoint *const c = o->checkpoint;
    berthi_ahead ahead;
    bool is_going_on = true;

    berthi_table_init(&c->table, c->context);
    /* Names, NULs and some bytes of dims: what the index promises, mostly exact. */
    if (c->is_sharded
        && !berthi_table_make_room(&c->table, o->index.entry_count,
                                   o->index.text_bytes + 6 * o->index.entry_count))
        return note_step(o, berthi_fail_memory(&o->error, "the table of tensors"));
    for (uint32_t i = 0; i < c->shard_count && c->is_sharded; i++)
        c->shards[i].listed = berthi_index_list(&o->index, i);
    berthi_ahead_start(&ahead, c->context, c->shards, c->shard_count, reading_threads(o));
    for (uint32_t i = 0; i < c->shard_count && is_going_on; i++)
        if (c->shards[i].file.fd >= 0)
            is_going_on = note_step(o, read_shard(o, i, &ahead, &o->error));
    (void)berthi_ahead_end(&ahead);
    for (uint32_t i = 0; i < c->shard_count; i++)
        c->shards[i].listed = (berthi_name_list){ .count = 0 };
    return is_going_on;
}

/* ----------------------------------------------------------------- preflight */

static bool
is_shard_name(const void *user, const char *name)
{
    const berth_checkpoint *const c = user;
    uint32_t low = 0;
    uint32_t high = c->shard_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = strcmp(c->shards[middle].name, name);

        if (order == 0)
            return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static berth_status
check_total(opening *o, berth_error *error)
{
    static const char what[] = "the index gives another sum of tensor bytes";
    const berthi_about about = {
        .file = o->index_path,
        .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES,
        .expected = o->index.total_size,
        .actual = o->checkpoint->table.tensor_bytes,
    };

    if (o->index.context == NULL || !o->index.has_total_size
        || about.expected == about.actual)
        return BERTH_OK;
    if (o->findings.is_strict)
        return berthi_fail(error, BERTH_REASON_INDEX_TOTAL, &about, "%s", what);
    berthi_findings_remark(&o->findings, BERTH_SEVERITY_WARNING, BERTH_REASON_INDEX_TOTAL,
                           &about, "%s", what);
    return BERTH_OK;
}

/* True: the opening goes on. */
static bool
run_preflight(opening *o)
{
    berth_checkpoint *const c = o->checkpoint;
    const uint64_t errors = o->findings.errors;
    berth_status status;

    if (c->is_sharded)
        status = berthi_preflight_index(&o->index, c->shards, c->shard_count, &c->table,
                                        &o->findings, &o->error);
    else
        status = berthi_preflight_files(c->shards, &c->table, &o->findings, &o->error);
    /* What preflight reported itself has been counted already. */
    if (status != BERTH_OK && o->findings.errors > errors)
        return false;
    if (!note_step(o, status))
        return false;
    if (o->findings.errors == 0 && !note_step(o, check_total(o, &o->error)))
        return false;
    if (c->location.file == NULL && o->findings.report != NULL)
        return note_step(o, berthi_weights_remark_strays(&c->location, is_shard_name, c,
                                                         &o->findings, &o->error));
    return true;
}

/* ------------------------------------------------------------------- opening */

/* The steps. What ends them is the first error of the findings. */
static void
run(opening *o)
{
    berth_checkpoint *const c = o->checkpoint;
    const berth_open_options *const options = &o->options;

    c->location.may_start = options->threads != 1;
    if (!note_step(o, berthi_checkpoint_read_config(c, &o->findings, &o->error)))
        return;
    if (berthi_weights_find(&c->location, c->config.weights_file, options->variant,
                            options->all_files != 0, &o->findings, &o->weights, &o->error)
        != BERTH_OK) {
        (void)note_step(o, o->error.status);
        return;
    }
    c->is_adapter = o->weights.is_adapter;
    c->path = c->location.folder_path;
    if (c->location.file != NULL && o->weights.index == NULL)
        c->path = berthi_location_path(&c->location, c->location.file);
    if (c->path == NULL) {
        (void)note_step(o, berthi_fail_memory(&o->error, "a path"));
        return;
    }
    if (o->weights.index != NULL && read_index(o, &o->error) != BERTH_OK) {
        (void)note_step(o, o->error.status);
        return;
    }
    if (!note_step(o, list_shards(o, &o->error)) || !open_shards(o)
        || !read_shards(o) || !run_preflight(o))
        return;
    berthi_index_fini(&o->index); /* its names before the records of weights */
    /* With shards missing, statistics would seem to be missing, too. */
    if (o->findings.errors == 0
        && berthi_checkpoint_classify(c, &o->findings, &o->error) != BERTH_OK
        && o->findings.errors == 0)
        (void)note_step(o, o->error.status);
}

static berth_status
check_arguments(berth_context *context, const char *path,
                berth_checkpoint **out_checkpoint, berth_error *error)
{
    if (out_checkpoint == NULL)
        return berthi_fail_argument(error, "out_checkpoint", "is NULL");
    *out_checkpoint = NULL;
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    if (path == NULL)
        return berthi_fail_argument(error, "path", "is NULL");
    if (path[0] == '\0')
        return berthi_fail_argument(error, "path", "is empty");
    return BERTH_OK;
}

berth_status
berth_checkpoint_open(berth_context *context, const char *path,
                      const berth_open_options *options,
                      berth_checkpoint **out_checkpoint, berth_error *error)
{
    opening o;
    berth_checkpoint *c;
    berth_status status;

    berthi_error_clear(error);
    status = check_arguments(context, path, out_checkpoint, error);
    if (status != BERTH_OK)
        return status;
    memset(&o, 0, sizeof o);
    status = berthi_options_take(&o.options, sizeof o.options,
                                 offsetof(berth_open_options, reserved32), options,
                                 "options", error);
    if (status != BERTH_OK)
        return status;
    berthi_findings_init(&o.findings, context, &o.options);
    c = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *c);
    if (c == NULL)
        return berthi_fail_memory(error, "opening a checkpoint");
    o.checkpoint = c;
    c->context = context;
    c->quant_method = "";
    berthi_config_init(&c->config, context);
    if (berthi_location_init(&c->location, context, path, o.options.hub_cache,
                             o.options.inside_only != 0, &o.error)
        != BERTH_OK)
        (void)note_step(&o, o.error.status);
    else
        run(&o);

    berthi_index_fini(&o.index);
    berthi_findings_fini(&o.findings);
    status = berthi_findings_result(&o.findings, error);
    if (status != BERTH_OK)
        berth_checkpoint_close(c);
    else
        *out_checkpoint = c;
    return status;
}

void
berth_checkpoint_close(berth_checkpoint *checkpoint)
{
    berth_context *context;

    if (checkpoint == NULL)
        return;
    context = checkpoint->context;
    for (uint32_t i = 0; i < checkpoint->shard_count; i++)
        berthi_shard_close(&checkpoint->shards[i], context);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, checkpoint->shards,
                       checkpoint->shard_count * sizeof *checkpoint->shards);
    berthi_classify_fini(&checkpoint->quantized);
    berthi_table_fini(&checkpoint->table);
    berthi_config_fini(&checkpoint->config);
    berthi_memory_free(context, BERTHI_PURPOSE_HEADER, checkpoint->config_text,
                       checkpoint->config_bytes);
    berthi_location_fini(&checkpoint->location);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, checkpoint, sizeof *checkpoint);
}
