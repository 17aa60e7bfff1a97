/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_load.c - states from a file: what it has is found and checked for every
 * parameter, then read.
 */
#include <inttypes.h>
#include <string.h>

#include "kernels/digits.h"
#include "kernels/float_mode.h"
#include "loader/file.h"
#include "loader/optimizer_file.h"
#include "loader/safetensors.h"

#define ARENA_BYTES (UINT64_C(16) << 10)

/* --------------------------------------------------------------------------- checking */

/* The optimizer's own: what it is of its parameters at least where nothing is said. */
static berth_status
check_steps(berthi_states_search *l, berth_error *error)
{
    const berthi_about about = { .file = l->file->path };
    uint64_t length = 0;
    const char *const text =
        berthi_states_pair(l->file, 0, BERTHI_STATES_STEP, "", &length);
    uint64_t step = 0;

    if (text != NULL && !berthi_digits_can_parse(text, length, BERTHI_STATES_STEPS, &step))
        return berthi_fail(error, BERTH_REASON_STATES_FILE, &about,
                           BERTHI_STATES_STEP " of its metadata is no number up to 2^53");
    l->step = berthi_max_u64(l->step, step);
    return BERTH_OK;
}

static berth_status
check(berthi_states_search *l, berthi_states_source **out_sources, berth_error *error)
{
    const berth_optimizer *const o = l->optimizer;
    berthi_states_source *sources;
    uint64_t longest = 0;
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < o->parameter_count; i++)
        longest = berthi_max_u64(longest, strlen(o->parameters[i].name));
    l->name = berthi_arena_alloc(&l->arena, longest + BERTHI_STATES_KEY_BYTES, 1);
    sources = berthi_arena_alloc(&l->arena, o->parameter_count * sizeof *sources, 8);
    *out_sources = sources;
    if (l->name == NULL || sources == NULL)
        return berthi_fail_memory(error, "loading states");
    memset(sources, 0, o->parameter_count * sizeof *sources);
    for (uint64_t i = 0; i < o->parameter_count && status == BERTH_OK; i++)
        status = berthi_states_find(l, &o->parameters[i], &sources[i], error);
    if (status == BERTH_OK)
        status = berthi_states_verify(l->file, error);
    for (uint64_t i = 0; i < o->parameter_count && status == BERTH_OK; i++)
        status = berthi_states_look(l, &o->parameters[i], &sources[i], error);
    return status == BERTH_OK ? check_steps(l, error) : status;
}

/* ------------------------------------------------------------------------ files cut short */

/* The header of a file whose data ends early, as if all were there. */
static bool
has_header(berth_context *context, const berthi_file *file, uint64_t whole_bytes,
           berthi_header *out, uint64_t *out_begin)
{
    uint8_t prefix[BERTHI_HEADER_PREFIX];
    uint64_t bytes = 0;
    berth_error ignored;
    bool is_parsed = false;
    char *text;

    if (berthi_file_read(file, prefix, sizeof prefix, 0, "", &ignored) != BERTH_OK
        || berthi_header_length(prefix, whole_bytes, file->path, &bytes, &ignored) != BERTH_OK)
        return false;
    *out_begin = sizeof prefix + bytes;
    text = berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, bytes);
    if (text == NULL)
        return false;
    if (berthi_file_read(file, text, bytes, sizeof prefix, "", &ignored) == BERTH_OK)
        is_parsed = berthi_header_parse(context, text, bytes, whole_bytes - *out_begin,
                                        file->path, out, &ignored)
                    == BERTH_OK;
    berthi_memory_free(context, BERTHI_PURPOSE_HEADER, text, bytes);
    return is_parsed;
}

/* The same error, about the first tensor that is not there whole. */
static void
blame(const berthi_header *header, const berthi_file *file, uint64_t begin, berth_error *error)
{
    const berth_error said = *error;

    for (uint64_t i = 0; i < header->entry_count; i++) {
        const berthi_entry *const entry = &header->entries[i];
        const berthi_about about = { .file = file->path,
                                     .tensor = berthi_entry_name(header->text, entry),
                                     .tensor_length = entry->name_length,
                                     .has = said.has,
                                     .expected = said.expected,
                                     .actual = said.actual };

        if (begin + entry->end <= said.actual)
            continue;
        (void)berthi_fail(error, BERTH_REASON_INCOMPLETE, &about, "%s", said.message);
        return;
    }
}

/* Says which parameter's state is lost, where the error is that the file was cut short. */
static void
name_what_is_lost(berth_context *context, const char *path, berth_error *error)
{
    berthi_header header = { 0 };
    berthi_file file;
    berth_error ignored;
    uint64_t begin = 0;

    if (error == NULL || error->reason != BERTH_REASON_INCOMPLETE
        || (error->has & BERTH_HAS_EXPECTED) == 0
        || berthi_file_open(&file, BERTHI_SYS_AT_CWD, path, path, BERTHI_FILE_ANYWHERE,
                            &ignored)
               != BERTH_OK)
        return;
    if (has_header(context, &file, error->expected, &header, &begin))
        blame(&header, &file, begin, error);
    berthi_header_fini(&header);
    berthi_file_close(&file);
}

/* ---------------------------------------------------------------------------- reading */

static void
tell(const berthi_states_search *l)
{
    berth_context *const context = l->optimizer->context;
    const uint64_t unused = l->file->table.entry_count - l->used;

    if (l->foreign > 0)
        berthi_log(context, BERTH_LOG_WARNING,
                   "states of %" PRIu64
                   " parameters have another map: they are encoded anew",
                   l->foreign);
    if (l->blocks > 0)
        berthi_log(context, BERTH_LOG_INFO,
                   "states of %" PRIu64
                   " parameters have blocks of 2048: they are encoded anew",
                   l->blocks);
    if (l->bare > 0)
        berthi_log(context, BERTH_LOG_WARNING,
                   "states of %" PRIu64
                   " parameters have no f32 copy: it is made of the values",
                   l->bare);
    if (unused > 0)
        berthi_log(context, BERTH_LOG_WARNING,
                   "%" PRIu64
                   " tensors of the states file belong to no parameter, and are "
                   "ignored",
                   unused);
}

static berth_status
read_parameters(berth_optimizer *o, const berthi_states_search *l,
                const berthi_states_source *sources, uint8_t *room, berth_error *error)
{
    berth_status status = BERTH_OK;

    o->is_torn = true;
    for (uint64_t i = 0; i < o->parameter_count && status == BERTH_OK; i++) {
        status = berthi_states_read(o, l->file, &o->parameters[i], &sources[i], room, error);
        o->parameters[i].step = sources[i].step;
    }
    if (status != BERTH_OK)
        return status;
    o->step = l->step;
    o->is_torn = false;
    berthi_optimizer_forget_sums(o); /* of values that were there before */
    return BERTH_OK;
}

/* All memory that it takes is there before anything is changed. */
static berth_status
read(berth_optimizer *o, const berthi_states_search *l, const berthi_states_source *sources,
     berth_error *error)
{
    bool is_far = false;
    uint64_t bytes = 0;
    uint8_t *room;
    berth_status status;

    for (uint64_t i = 0; i < o->parameter_count; i++) {
        const berthi_trained_tensor *const p = &o->parameters[i];

        bytes = berthi_max_u64(bytes, berthi_states_room(p));
        is_far |= berthi_optimizer_is_far(o, p) || p->states.has_master;
    }
    status = berthi_optimizer_open_room(o, bytes, is_far, "reading states", &room, error);
    if (status == BERTH_OK)
        status = read_parameters(o, l, sources, room, error);
    berthi_optimizer_close_room(o);
    return status;
}

berth_status
berth_optimizer_load(berth_optimizer *optimizer, const char *path, berth_error *error)
{
    berthi_states_search l = { .optimizer = optimizer };
    berthi_states_source *sources = NULL;
    berth_checkpoint *file;
    berth_status status;
    fenv_t mode;

    berthi_error_clear(error);
    if (optimizer == NULL)
        return berthi_fail_argument(error, "optimizer", "is NULL");
    if (path == NULL)
        return berthi_fail_argument(error, "path", "is NULL");
    status = berth_checkpoint_open(optimizer->context, path, NULL, &file, error);
    if (status != BERTH_OK) {
        name_what_is_lost(optimizer->context, path, error);
        return status;
    }
    l.file = file;
    berthi_arena_init(&l.arena, optimizer->context, BERTHI_PURPOSE_OBJECT, ARENA_BYTES);
    berthi_float_mode_begin(&mode); /* steps and maps may be NaN */
    status = check(&l, &sources, error);
    berthi_float_mode_end(&mode);
    if (status == BERTH_OK)
        status = berthi_optimizer_settle(optimizer, error);
    if (status == BERTH_OK) {
        tell(&l);
        berthi_float_mode_begin(&mode);
        status = read(optimizer, &l, sources, error);
        berthi_float_mode_end(&mode);
    }
    berthi_arena_fini(&l.arena);
    berth_checkpoint_close(file);
    return status;
}
