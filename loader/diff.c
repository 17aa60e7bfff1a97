/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c - berth_diff_start(): the plan, the verdicts on weights, the report. */
#include "loader/berth.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/host.h"
#include "kernels/sys.h"
#include "loader/diff_batch.h"

/* Scratch of all workers: fewer work when what they decode at a time is large. */
#define WORKERS_MEMORY (UINT64_C(96) << 20)
#define RING_CHUNKS_MIN 3u
#define TEXT_CAPACITY 128u
#define NUMBER_CAPACITY 48u

/* -------------------------------------------------------------------- limits */

/* A number with `digits` decimals, whatever the locale's decimal point. */
static void
print_fixed(double value, uint32_t digits, char text[NUMBER_CAPACITY])
{
    const double scale = digits == 2 ? 1e2 : 1e9;
    const uint64_t one = (uint64_t)scale;
    uint64_t units;

    if (!(fabs(value) < 1e9)) {
        snprintf(text, NUMBER_CAPACITY, "%s", value > 0 ? "infinite" : "-infinite");
        return;
    }
    units = (uint64_t)(fabs(value) * scale + 0.5);
    snprintf(text, NUMBER_CAPACITY, "%s%" PRIu64 ".%0*" PRIu64, value < 0 ? "-" : "",
             units / one, (int)digits, units % one);
}

/* What keeps the weight from being compared, or NULL. */
static const char *
find_obstacle(const berth_diff_options *options, const berth_diff_tensor *t)
{
    switch (t->kind) {
    case BERTH_DIFF_ONLY_A:
    case BERTH_DIFF_ONLY_B:
        return options->allows_missing ? NULL : "the other checkpoint has no such weight";
    case BERTH_DIFF_SHAPE: return "has another shape in the other checkpoint";
    case BERTH_DIFF_DTYPE: return "has numbers of another kind in the other checkpoint";
    default: return NULL;
    }
}

/* True when its values are beyond a limit; `text` says how. */
static bool
is_beyond(const berth_diff_options *options, const berth_diff_tensor *t,
          char text[TEXT_CAPACITY])
{
    const berth_diff_errors *const errors = &t->errors;
    char number[NUMBER_CAPACITY];

    if (!t->has_values && !t->is_same) {
        snprintf(text, TEXT_CAPACITY, "holds other numbers in the other checkpoint");
    } else if (errors->nonfinite > 0) {
        snprintf(text, TEXT_CAPACITY, "has other NaN or infinities in the other checkpoint");
    } else if (options->has_min_snr && t->has_values
               && !(errors->snr >= options->min_snr)) {
        print_fixed(errors->snr, 2, number);
        snprintf(text, TEXT_CAPACITY, "has an SNR of %s dB, less than asked for", number);
    } else if (options->has_max_relative && !(errors->relative <= options->max_relative)) {
        print_fixed(errors->relative, 9, number);
        snprintf(text, TEXT_CAPACITY, "has a relative error of %s, more than asked for",
                 number);
    } else {
        return false;
    }
    return true;
}

static bool
is_rejected(const berth_diff_options *options, const berth_diff_tensor *t,
            char text[TEXT_CAPACITY])
{
    const char *const obstacle = find_obstacle(options, t);

    if (!options->has_min_snr && !options->has_max_relative && !options->requires_same)
        return false;
    if (obstacle != NULL)
        snprintf(text, TEXT_CAPACITY, "%s", obstacle);
    else if (t->kind != BERTH_DIFF_COMPARED)
        return false;
    else if (options->requires_same && !t->is_same)
        snprintf(text, TEXT_CAPACITY, "is not the same bytes in the other checkpoint");
    else
        return (options->has_min_snr || options->has_max_relative)
               && is_beyond(options, t, text);
    return true;
}

/* ------------------------------------------------------------------- telling */

static void
describe_side(const berthi_diff_verdict *verdict, uint32_t number, berth_diff_side *out)
{
    const berthi_diff_side *const side = &verdict->pair->sides[number];
    const berthi_quantized *const record = side->record;

    if (side->weight == NULL)
        return;
    out->tensor = side->weight->tensor;
    out->encoding = record != NULL ? record->encoding : BERTH_ENCODING_NATIVE;
    out->dtype = side->weight->storage.dtype;
    out->block_size = record != NULL ? record->block_size : 0;
    out->is_double = record != NULL && record->is_double;
    out->rank = side->weight->rank;
    if (out->rank > 0)
        memcpy(out->shape, side->weight->shape, out->rank * sizeof *out->shape);
    out->bytes = record != NULL ? record->total_bytes
                                : side->entry->end - side->entry->begin;
    if (verdict->pair->kind == BERTH_DIFF_COMPARED) {
        out->nan = verdict->found->nan[number];
        out->infinite = verdict->found->infinite[number];
    }
}

static void
describe(const berthi_diff_verdict *verdict, berth_diff_tensor *out)
{
    const berthi_diff_pair *const pair = verdict->pair;
    const berthi_recipe_weight *const weight =
        pair->sides[0].weight != NULL ? pair->sides[0].weight : pair->sides[1].weight;

    memset(out, 0, sizeof *out);
    out->name = weight->name;
    out->name_length = weight->name_length;
    out->kind = pair->kind;
    out->elements = weight->elements;
    describe_side(verdict, 0, &out->a);
    describe_side(verdict, 1, &out->b);
    if (pair->kind != BERTH_DIFF_COMPARED)
        return;
    out->is_turned = pair->mode == BERTHI_DIFF_TURNED;
    out->is_same = verdict->is_same;
    out->has_codes = pair->has_codes;
    out->has_same_statistics = verdict->has_same_statistics;
    out->has_values = pair->mode != BERTHI_DIFF_BYTES;
    out->codes = verdict->found->codes;
    if (out->has_values)
        berthi_diff_found_tell(verdict->found, &out->errors);
}

static void
count_compared(berthi_diff *diff, const berth_diff_tensor *t)
{
    berth_diff_report *const report = &diff->report;

    report->compared++;
    report->same += t->is_same != 0;
    report->equal += t->has_values ? t->errors.different + t->errors.nonfinite == 0
                                   : t->is_same != 0;
    report->elements += t->elements;
    report->codes += t->codes;
    report->nan_a += t->a.nan;
    report->nan_b += t->b.nan;
    report->infinite_a += t->a.infinite;
    report->infinite_b += t->b.infinite;
    for (uint32_t i = 0; i < BERTH_DIFF_BUCKETS; i++)
        report->errors.histogram[i] += t->errors.histogram[i];
    if (t->errors.relative > report->worst_relative) {
        report->worst_relative = t->errors.relative;
        report->worst = t->a.tensor;
    }
}

static void
tell(berthi_diff *diff, const berthi_diff_verdict *verdict)
{
    const berthi_diff_pair *const pair = verdict->pair;
    berth_diff_report *const report = &diff->report;
    char text[TEXT_CAPACITY];
    berth_diff_tensor t;

    describe(verdict, &t);
    switch (t.kind) {
    case BERTH_DIFF_ONLY_A: report->only_a++; break;
    case BERTH_DIFF_ONLY_B: report->only_b++; break;
    case BERTH_DIFF_SHAPE: report->other_shape++; break;
    case BERTH_DIFF_DTYPE: report->other_dtype++; break;
    default:
        count_compared(diff, &t);
        berthi_diff_found_add(&diff->all, verdict->found);
        break;
    }
    t.is_rejected = is_rejected(&diff->options, &t, text);
    if (t.is_rejected && report->rejected++ == 0) {
        const uint32_t side = pair->sides[0].weight != NULL ? 0 : 1;

        berthi_fail(&diff->first, BERTH_REASON_DIFFERENCE,
                    &(berthi_about){ .file = diff->files[pair->sides[side].file].path,
                                     .tensor = t.name,
                                     .tensor_length = t.name_length },
                    "%s", text);
    }
    if (diff->options.tensor != NULL)
        diff->options.tensor(diff->options.tensor_user, &t);
}

/* ------------------------------------------------------------------- the job */

static void
fill_report(berthi_diff *diff, uint64_t begin_ns)
{
    berth_diff_report *const report = &diff->report;
    berth_diff_errors all;

    berthi_diff_found_tell(&diff->all, &all);
    memcpy(all.histogram, report->errors.histogram, sizeof all.histogram);
    all.unit = 0; /* each weight has its own */
    report->errors = all;
    report->bytes_read += atomic_load(&diff->read);
    report->seconds = (double)(berthi_sys_now_ns() - begin_ns) * 1e-9;
    if (diff->options.report != NULL)
        *diff->options.report = *report;
}

static berth_status
run_diff(berth_job *job, void *user, berth_error *error)
{
    berthi_diff *const diff = user;
    const uint64_t begin_ns = berthi_sys_now_ns();
    berth_status status;

    diff->job = job;
    status = berthi_diff_compare(diff, tell, error);
    fill_report(diff, begin_ns);
    if (status == BERTH_OK && diff->report.rejected > 0) {
        *error = diff->first;
        status = diff->first.status;
    }
    return status;
}

static void
destroy_diff(void *user)
{
    berthi_diff *const diff = user;
    berth_context *const context = diff->context;

    for (uint32_t side = 0; side < 2; side++) {
        berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, diff->order[side],
                           diff->recipes[side].weight_count * sizeof *diff->order[side]);
        berthi_recipe_fini(&diff->recipes[side]);
    }
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, diff->files,
                       diff->file_count * sizeof *diff->files);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, diff, sizeof *diff);
}

/* ---------------------------------------------------------------------- plan */

static berth_status
list_files(berthi_diff *diff, berth_error *error)
{
    diff->file_count = diff->checkpoints[0]->shard_count + diff->checkpoints[1]->shard_count;
    diff->files = berthi_memory_array(diff->context, BERTHI_PURPOSE_CHUNKS,
                                      diff->file_count, sizeof *diff->files);
    if (diff->files == NULL)
        return berthi_fail_memory(error, "starting a comparison");
    berthi_checkpoint_copy_files(diff->checkpoints[0], diff->files);
    berthi_checkpoint_copy_files(diff->checkpoints[1],
                                 diff->files + diff->checkpoints[0]->shard_count);
    return BERTH_OK;
}

/* What loading would read the weights as: what berth does not decode stays as it is stored. */
static berth_status
make_recipes(berthi_diff *diff, berth_error *error)
{
    berth_convert_options options;
    berth_status status = BERTH_OK;

    berth_convert_options_init(&options);
    for (uint32_t side = 0; side < 2 && status == BERTH_OK; side++)
        status = berthi_recipe_init_decided(&diff->recipes[side], diff->context,
                                            diff->checkpoints[side], &options, NULL, error);
    return status;
}

/* Goes over all pairs once: what they need, and how much there is to read. */
static berth_status
measure(berthi_diff *diff, berth_error *error)
{
    berthi_diff_cursor cursor = { { 0, 0 } };

    for (;;) {
        berthi_diff_pair pair;
        bool has_pair;
        const berth_status status = berthi_diff_next(diff, &cursor, &pair, &has_pair, error);

        if (status != BERTH_OK || !has_pair)
            return status;
        diff->pair_total++;
        if (pair.unit_count == 0)
            continue;
        diff->unit_total += pair.unit_count;
        berthi_diff_add_needs(&pair, &diff->needs);
        for (uint32_t side = 0; side < 2; side++)
            for (uint64_t i = 0;
                 i < pair.unit_count && berthi_diff_is_carried(&pair, side); i++)
                diff->total += berthi_diff_extent(&pair, side, i * pair.unit,
                                                  berthi_diff_unit_elements(&pair, i))
                                   .bytes;
    }
}

static void
plan(berthi_diff *diff)
{
    berthi_diff_needs *const needs = &diff->needs;
    const uint64_t wanted = diff->options.workers > 0 ? diff->options.workers
                                                      : berthi_host_worker_count();
    uint64_t scratch;
    uint64_t ring;
    berth_memory_summary memory;

    needs->parked = berthi_max_u64(needs->parked, sizeof(berthi_diff_parking));
    scratch = berthi_diff_scratch_bytes(needs);
    diff->workers = (uint32_t)berthi_max_u64(
        berthi_min_u64(wanted, WORKERS_MEMORY / scratch), 1);
    diff->ring_bytes =
        diff->options.ring_bytes > 0 ? diff->options.ring_bytes : BERTHI_RING_BYTES;
    ring = berthi_max_u64(diff->ring_bytes, RING_CHUNKS_MIN * needs->chunk);
    berth_context_memory(diff->context, &memory);
    /* What is parked has its other half in the ring, or is the last one read. */
    diff->report.planned_memory = memory.current_bytes + 2 * ring + needs->parked
                                  + diff->workers * scratch
                                  + berthi_diff_table_bytes(diff);
    diff->report.worst = BERTH_NO_TENSOR;
}

static berth_status
prepare(berthi_diff *diff, berth_error *error)
{
    berth_status status = list_files(diff, error);

    if (status == BERTH_OK)
        status = make_recipes(diff, error);
    if (status == BERTH_OK)
        status = berthi_diff_sort(diff, error);
    if (status == BERTH_OK)
        status = measure(diff, error);
    if (status == BERTH_OK)
        plan(diff);
    return status;
}

/* ----------------------------------------------------------------- interface */

static const char *
find_mistake(const berth_diff_options *options)
{
    if (options->io < BERTH_IO_AUTO || options->io > BERTH_IO_BUFFERED)
        return "has an unknown io";
    if (options->has_min_snr && isnan(options->min_snr))
        return "has a min_snr that is no number";
    if (options->has_max_relative && !isgreaterequal(options->max_relative, 0.0))
        return "has a max_relative below 0";
    return NULL;
}

static berth_status
create_diff(berth_context *context, const berth_checkpoint *a, const berth_checkpoint *b,
            const berth_diff_options *options, berthi_diff **out, berth_error *error)
{
    berthi_diff *const diff =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *diff);
    berth_status status;

    *out = NULL;
    if (diff == NULL)
        return berthi_fail_memory(error, "starting a comparison");
    diff->context = context;
    diff->checkpoints[0] = a;
    diff->checkpoints[1] = b;
    diff->options = *options;
    diff->operations = berthi_level_operations(diff->context->level);
    status = prepare(diff, error);
    if (status == BERTH_OK)
        *out = diff;
    else
        destroy_diff(diff);
    return status;
}

berth_status
berth_diff_start(berth_context *context, berth_checkpoint *a, berth_checkpoint *b,
                 const berth_diff_options *options, berth_job **out_job,
                 berth_error *error)
{
    berth_diff_options mine;
    const char *mistake;
    berthi_diff *diff;
    berth_status status;

    status = berthi_job_check_start(context, "context", out_job, error);
    if (status == BERTH_OK && (a == NULL || b == NULL))
        status = berthi_fail_argument(error, a == NULL ? "a" : "b", "is NULL");
    if (status == BERTH_OK)
        status = berthi_options_take(&mine, sizeof mine, sizeof mine, options,
                                     "options", error);
    if (status != BERTH_OK)
        return status;
    mistake = find_mistake(&mine);
    if (mistake != NULL)
        return berthi_fail_argument(error, "options", mistake);
    status = create_diff(context, a, b, &mine, &diff, error);
    if (status != BERTH_OK)
        return status;
    /* From here on the job owns it, also when it cannot be started. */
    return berthi_job_start(context,
                            &(berthi_job_work){ .run = run_diff,
                                                .fini = destroy_diff,
                                                .user = diff,
                                                .phase = "compare",
                                                .total = diff->total,
                                                .progress = mine.progress,
                                                .progress_user = mine.progress_user },
                            out_job, error);
}
