/* SPDX-License-Identifier: Apache-2.0 */
/* part.c - `--part`: from the command line, or from who started the process. */
#include "tools/part.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/number.h"

#define NUMBER_MOST 999999999

typedef struct lookup {
    cli_environment environment;
    char *why;
} lookup;

/* What one starter of processes says. */
typedef struct rank {
    bool is_there;
    const char *source;
    uint32_t index; /* from 0 */
    uint32_t count; /* 0: it does not say */
} rank;

/* ------------------------------------------------------------------- numbers */

/* Returns false, for callers to do the same. */
__attribute__((format(printf, 2, 3))) static bool
refuse(lookup *l, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(l->why, PART_WHY_CAPACITY, format, arguments);
    va_end(arguments);
    return false;
}

static bool
can_parse_number(const char *text, size_t length, uint32_t *number)
{
    uint64_t found = 0;
    const bool is_good = number_can_parse(text, length, NUMBER_MOST, &found);

    *number = (uint32_t)found;
    return is_good;
}

/* An empty variable is none. */
static const char *
value_of(const lookup *l, const char *name)
{
    const char *const value = l->environment(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* A variable that must be there, since `partner` is. */
static bool
can_read_variable(lookup *l, const char *name, const char *partner, uint32_t *number)
{
    const char *const value = value_of(l, name);
    char shown[64];

    if (value == NULL)
        return refuse(l, "%s is set, but %s is not", partner, name);
    if (can_parse_number(value, strlen(value), number))
        return true;
    berth_text_escape(value, strlen(value), shown, sizeof shown);
    return refuse(l, "%s: `%s` is no number", name, shown);
}

/* ------------------------------------------------------------------ starters */

/* Those that start processes which belong together. */
static const struct launcher {
    const char *name;
    const char *index;
    const char *count;
    const char *mark; /* without this variable the others belong to something else */
} launchers[] = {
    { "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK" },
    { "MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "PMI_RANK" },
    /* The script of a job has a SLURM_PROCID, too, though it is not one of its tasks. */
    { "srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID" },
};

#define LAUNCHERS (sizeof launchers / sizeof launchers[0])

static bool
can_read_launcher(lookup *l, rank *found)
{
    const struct launcher *at = launchers;

    while (at < launchers + LAUNCHERS && value_of(l, at->mark) == NULL)
        at++;
    if (at == launchers + LAUNCHERS)
        return true;
    *found = (rank){ .is_there = true, .source = at->name };
    if (!can_read_variable(l, at->index, at->mark, &found->index)
        || !can_read_variable(l, at->count, at->index, &found->count))
        return false;
    return found->index < found->count
           || refuse(l, "%s=%u, but %s=%u: no rank of these", at->index, found->index,
                     at->count, found->count);
}

/* Indexes are what the user chose: 0-3, 1-4, 10-40:10. */
static bool
can_read_array(lookup *l, rank *found)
{
    static const char task[] = "SLURM_ARRAY_TASK_ID";
    uint32_t id;
    uint32_t count;
    uint32_t first;
    uint32_t last;
    uint32_t step;

    if (value_of(l, task) == NULL)
        return true;
    if (!can_read_variable(l, task, task, &id)
        || !can_read_variable(l, "SLURM_ARRAY_TASK_COUNT", task, &count)
        || !can_read_variable(l, "SLURM_ARRAY_TASK_MIN", task, &first)
        || !can_read_variable(l, "SLURM_ARRAY_TASK_MAX", task, &last)
        || !can_read_variable(l, "SLURM_ARRAY_TASK_STEP", task, &step))
        return false;
    if (step == 0 || id < first || id > last || (id - first) % step != 0
        || (last - first) / step + 1 != count)
        return refuse(l, "task %u of a Slurm job array of %u tasks from %u to %u by %u: "
                         "the indexes are not evenly spaced; give --part I/N",
                      id, count, first, last, step);
    *found = (rank){ .is_there = true,
                     .source = "Slurm job array",
                     .index = (id - first) / step,
                     .count = count };
    return true;
}

/* Kubernetes tells a pod its index, not how many there are: a job may set that. */
static bool
can_read_pod(lookup *l, rank *found)
{
    static const char index[] = "JOB_COMPLETION_INDEX";
    static const char count[] = "JOB_COMPLETIONS";

    if (value_of(l, index) == NULL)
        return true;
    *found = (rank){ .is_there = true, .source = "Kubernetes job" };
    if (!can_read_variable(l, index, index, &found->index)
        || (value_of(l, count) != NULL
            && !can_read_variable(l, count, index, &found->count)))
        return false;
    return found->count == 0 || found->index < found->count
           || refuse(l, "%s=%u, but %s=%u: no index of these", index, found->index, count,
                     found->count);
}

/* ------------------------------------------------------------------ decision */

static bool
refuse_none(lookup *l)
{
    return refuse(l,
                  "auto: nothing says which part this is; looked for mpirun "
                  "(OMPI_COMM_WORLD_RANK, PMI_RANK), srun (SLURM_STEP_ID), a Slurm job "
                  "array (SLURM_ARRAY_TASK_ID) and a Kubernetes job "
                  "(JOB_COMPLETION_INDEX)%s",
                  value_of(l, "SLURM_JOB_ID") != NULL
                      ? "; this is a Slurm job, but no task of it: start berth with srun"
                      : "");
}

/* Both are there, of as many parts as were asked for. */
static bool
can_choose_one(lookup *l, rank *inner, rank *outer)
{
    if (inner->count == 1)
        inner->is_there = false;
    else if (outer->count == 1)
        outer->is_there = false;
    else
        return refuse(l,
                      "auto: rank %u of %u (%s) within index %u (%s): either could be "
                      "meant; give --part I/N",
                      inner->index, inner->count, inner->source, outer->index,
                      outer->source);
    return true;
}

/* A rank among another number of processes is another's. */
static bool
has_count(const rank *found, uint32_t wanted)
{
    return found->is_there && (found->count == wanted || found->count == 0);
}

static bool
can_match_count(lookup *l, uint32_t wanted, rank *inner, rank *outer)
{
    const rank *const first = inner->is_there ? inner : outer;

    if (!has_count(inner, wanted) && !has_count(outer, wanted))
        return refuse(l, "auto/%u: but this is index %u of %u (%s)", wanted, first->index,
                      first->count, first->source);
    inner->is_there = has_count(inner, wanted);
    outer->is_there = has_count(outer, wanted);
    if (outer->is_there)
        outer->count = wanted;
    return true;
}

/* `wanted` is N of auto/N, 0 without. */
static bool
can_read_environment(lookup *l, uint32_t wanted, part_share *share)
{
    rank inner = { 0 };
    rank outer = { 0 };
    const rank *found;

    if (!can_read_launcher(l, &inner) || !can_read_array(l, &outer)
        || (!outer.is_there && !can_read_pod(l, &outer)))
        return false;
    if (!inner.is_there && !outer.is_there)
        return refuse_none(l);
    if (wanted > 0 && !can_match_count(l, wanted, &inner, &outer))
        return false;
    if (inner.is_there && outer.is_there && !can_choose_one(l, &inner, &outer))
        return false;
    found = inner.is_there ? &inner : &outer;
    if (found->count == 0)
        return refuse(l, "auto: JOB_COMPLETION_INDEX says which part this is, but not of "
                         "how many: give --part auto/N, or set JOB_COMPLETIONS");
    if (found->index >= found->count)
        return refuse(l, "auto/%u: but this is index %u, counted from 0 (%s)", wanted,
                      found->index, found->source);
    if (found->count > PART_MAX_COUNT)
        return refuse(l, "auto: %u parts (%s), more than %d", found->count, found->source,
                      PART_MAX_COUNT);
    *share = (part_share){ .part = found->index + 1,
                           .count = found->count,
                           .source = found->source };
    return true;
}

/* ---------------------------------------------------------------------- text */

/* What stands on the command line. */
typedef struct words {
    bool is_auto;
    bool has_part;
    bool has_count;
    uint32_t part;
    uint32_t count;
} words;

static bool
can_split(lookup *l, const char *text, words *w)
{
    const size_t length = strcspn(text, "/");
    const char *const count = text[length] == '/' ? text + length + 1 : text;
    char shown[64];

    *w = (words){ .is_auto = length == 4 && memcmp(text, "auto", 4) == 0 };
    w->has_count = !w->is_auto || text[length] == '/';
    w->has_part = !w->is_auto && text[length] == '/';
    berth_text_escape(text, strlen(text), shown, sizeof shown);
    if ((w->has_part && !can_parse_number(text, length, &w->part))
        || (w->has_count && !can_parse_number(count, strlen(count), &w->count)))
        return refuse(l, "`%s` is not I/N, auto or auto/N", shown);
    if (w->has_count && (w->count < 1 || w->count > PART_MAX_COUNT))
        return refuse(l, "`%s`: there can be 1 to %d parts", shown, PART_MAX_COUNT);
    if (w->has_part && (w->part < 1 || w->part > w->count))
        return refuse(l, "`%s`: parts are counted from 1 to %u", shown, w->count);
    return true;
}

bool
part_can_read(const char *text, cli_environment environment, part_share *share, char *why)
{
    lookup l = { environment, why };
    words w;

    *share = (part_share){ 0 };
    if (!can_split(&l, text, &w))
        return false;
    if (w.is_auto)
        return can_read_environment(&l, w.count, share);
    if (!w.has_part)
        return refuse(&l, "which of %u parts? Give I/%u", w.count, w.count);
    *share = (part_share){ .part = w.part, .count = w.count };
    return true;
}

bool
part_can_read_to_join(const char *text, cli_environment environment, part_share *share,
                      char *why)
{
    lookup l = { environment, why };
    words w;

    *share = (part_share){ 0 };
    if (!can_split(&l, text, &w)
        || (!w.has_count && !can_read_environment(&l, 0, share)))
        return false;
    *share = (part_share){ .count = w.has_count ? w.count : share->count };
    return true;
}

/* ------------------------------------------------------------------ messages */

static void
print_name(output *out, const part_share *share)
{
    output_format(out, "part %" PRIu32 " of %" PRIu32, share->part, share->count);
    if (share->source != NULL)
        output_format(out, " (%s)", share->source);
}

void
part_print(output *out, const part_share *share, const berth_convert_report *result)
{
    if (result->is_joined) {
        output_format(out, "; %" PRIu32 " part%s, put together", result->parts_finished,
                      text_plural(result->parts_finished));
        if (share->part == 0)
            return;
        output_text(out, " by ");
        print_name(out, share);
    } else if (share->part > 0) {
        print_name(out, share);
        output_text(out, " is finished; ");
        if (result->parts_missing > 0)
            output_format(out, "%" PRIu32 " %s missing, and the last one puts them together",
                          result->parts_missing, result->parts_missing == 1 ? "is" : "are");
        else
            output_text(out, "none is missing: the last one puts them together, or --join");
    }
}
