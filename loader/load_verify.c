/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_verify.c - what a load reads, held against the digests of a manifest.
 *
 * A worker digests the bytes that it is about to place. Parts of a tensor come in any
 * order; whoever has its last ones compares.
 */
#include <inttypes.h>
#include <string.h>

#include "loader/load_job.h"
#include "loader/manifest.h"
#include "loader/paths.h"

static bool
is_wanted(const berthi_load *load)
{
    return load->options.verify != BERTH_LOAD_VERIFY_NONE;
}

/* True where the berth stays on the disk, as it is stored there, or is not read at all. */
static bool
is_left(const berthi_load *load, uint64_t berth)
{
    const uint32_t tier = load->plan->berths[berth].tier;
    berthi_cargo cargo;

    if (load->plan->berths[berth].is_tied)
        return true;
    return load->plan->tiers[tier].kind == BERTH_TIER_DISK
           && berthi_cargo_get(load->checkpoint, load->plan, berth, &cargo, NULL)
                  == BERTH_OK
           && berthi_cargo_is_stored(&cargo);
}

#define LEFT 1u
#define READ 2u

/*
 * Marks each stored tensor of which only a slice is planned, for a rank or for some experts of a
 * stack: LEFT, where some of it is not read, READ, where some is. NULL: there is none.
 */
static berth_status
mark_slices(const berthi_load *load, uint8_t **out, berth_error *error)
{
    const berth_plan *const plan = load->plan;
    const uint64_t entries = load->checkpoint->table.entry_count;
    uint8_t *marks;

    *out = NULL;
    if (plan->slices == NULL)
        return BERTH_OK;
    marks = berthi_memory_zalloc(load->context, BERTHI_PURPOSE_SCRATCH, entries + 1);
    if (marks == NULL)
        return berthi_fail_memory(error, "what is to be verified");
    *out = marks;
    for (uint64_t i = 0; i < plan->berth_count; i++) {
        const uint32_t number = plan->berths[i].number;

        if (number >= entries
            || berthi_plan_slice(plan, i).along == BERTH_SLICING_NONE)
            continue;
        marks[number] |= plan->summary.ranks > 1 ? LEFT | READ
                         : is_left(load, i)      ? LEFT
                                                 : READ;
    }
    return BERTH_OK;
}

static void
free_marks(const berthi_load *load, uint8_t *marks)
{
    berthi_memory_free(load->context, BERTHI_PURPOSE_SCRATCH, marks,
                       load->checkpoint->table.entry_count + 1);
}

/* A manifest has the crc32 of whole tensors: who insists on it cannot have slices. */
static berth_status
refuse_slices(const berthi_load *load, berth_error *error)
{
    const uint64_t entries = load->checkpoint->table.entry_count;
    uint8_t *marks;
    berth_status status = mark_slices(load, &marks, error);

    for (uint64_t i = 0; marks != NULL && i < entries && status == BERTH_OK; i++) {
        berthi_about where;

        if (marks[i] != (LEFT | READ))
            continue;
        where = berthi_checkpoint_about(load->checkpoint, i);
        status = berthi_fail(error, BERTH_REASON_UNSUPPORTED, &where,
                             "cannot be verified: a part of it is read, and a manifest has "
                             "the crc32 of all of it: verify the checkpoint before, and do "
                             "not require it of the load");
    }
    free_marks(load, marks);
    return status;
}

berth_status
berthi_load_verify_choose(berthi_load *load, berth_error *error)
{
    berthi_load_verify *const v = &load->verify;

    berthi_arena_init(&v->texts, load->context, BERTHI_PURPOSE_OBJECT, 256);
    if (!is_wanted(load))
        return BERTH_OK;
    if (load->options.verify == BERTH_LOAD_VERIFY_REQUIRE) {
        const berth_status status = refuse_slices(load, error);

        if (status != BERTH_OK)
            return status;
    }
    return berthi_crcs_find_manifest(load->checkpoint, load->options.manifest, &v->texts,
                                     &v->manifest, error);
}

/* ----------------------------------------------------------------------- manifest */

/* `what` it means, then file, tensor, the two numbers. */
static void
warn(berthi_load *load, const char *what, const berth_error *details)
{
    char line[BERTH_FILE_CAPACITY + BERTH_MESSAGE_CAPACITY];

    berth_error_format(details, line, sizeof line);
    berthi_log(load->context, BERTH_LOG_WARNING, "%s: %s", what, line);
}

/* Manifest and checkpoint do not have the same files or tensors. */
static void
note_entry(void *user, const berth_finding *finding)
{
    berthi_load *const load = user;
    berthi_load_verify *const v = &load->verify;
    const bool is_other_file = (finding->details->has & BERTH_HAS_ACTUAL) != 0;

    if (v->entries++ == 0 || (is_other_file && !v->is_other_file))
        v->first = *finding->details;
    v->is_other_file = v->is_other_file || is_other_file;
    if (load->options.verify == BERTH_LOAD_VERIFY_WARN)
        warn(load, "not verified", finding->details);
}

/*
 * A file of another size is not what was promised; one that nobody promised may be, unless
 * the caller says that this is its manifest.
 */
static berth_status
check_entries(berthi_load *load, berth_error *error)
{
    const berthi_load_verify *const v = &load->verify;
    const int32_t mode = load->options.verify;

    if (v->entries == 0 || mode == BERTH_LOAD_VERIFY_WARN)
        return BERTH_OK;
    if (mode == BERTH_LOAD_VERIFY_REQUIRE || load->options.manifest != NULL
        || v->is_other_file) {
        if (error != NULL)
            *error = v->first;
        return v->first.status;
    }
    warn(load, "not verified, as other entries may be", &v->first);
    return BERTH_OK;
}

/* Not all bytes of the tensor will come: its digest is not compared. */
static void
leave_entry(berthi_load *load, uint64_t number)
{
    berthi_load_verify *const v = &load->verify;

    v->unverified += v->promised.has_tensor[number];
    atomic_store(&v->left[number], 0);
}

static berth_status
leave_slices(berthi_load *load, berth_error *error)
{
    const berthi_table *const table = &load->checkpoint->table;
    uint8_t *marks;
    const berth_status status = mark_slices(load, &marks, error);

    for (uint64_t number = 0; marks != NULL && number < table->entry_count; number++) {
        const berthi_quantized *record;

        if (marks[number] != (LEFT | READ))
            continue;
        leave_entry(load, number);
        if (table->entries[number].flags == BERTH_ENCODING_NATIVE)
            continue;
        record = berthi_classify_record(&load->checkpoint->quantized,
                                        table->entries[number].owner);
        for (uint32_t k = 0; k < record->companion_count; k++)
            leave_entry(load, table->by_name[record->companions[k]]);
    }
    if (load->verify.unverified > 0)
        berthi_log(load->context,
                   load->options.verify == BERTH_LOAD_VERIFY_WARN ? BERTH_LOG_WARNING
                                                                  : BERTH_LOG_INFO,
                   "not verified: %" PRIu64 " stored tensors, of which parts are read",
                   load->verify.unverified);
    free_marks(load, marks);
    return status;
}

/* Tensors that are read as a whole, and that something is promised of. */
static berth_status
count_bytes(berthi_load *load, berth_error *error)
{
    const berthi_table *const table = &load->checkpoint->table;
    berthi_load_verify *const v = &load->verify;

    v->left_count = table->entry_count;
    v->left = berthi_memory_array(load->context, BERTHI_PURPOSE_CHUNKS, v->left_count,
                                  sizeof *v->left);
    if (v->left == NULL)
        return berthi_fail_memory(error, "the table of digests");
    for (uint64_t i = 0; i < v->left_count; i++)
        atomic_init(&v->left[i], v->promised.has_tensor[i]
                                     ? table->entries[i].end - table->entries[i].begin
                                     : 0);
    return leave_slices(load, error);
}

berth_status
berthi_load_verify_init(berthi_load *load, berth_error *error)
{
    const bool is_optional = load->options.verify != BERTH_LOAD_VERIFY_REQUIRE
                             && load->options.manifest == NULL;
    berthi_load_verify *const v = &load->verify;
    berth_status status;
    bool is_absent;

    if (!is_wanted(load))
        return BERTH_OK;
    status = berthi_crcs_init(&v->promised, load->context, load->checkpoint, error);
    if (status != BERTH_OK)
        return status;
    status = load->options.is_source_of_manifest != 0
                 ? berthi_crcs_read_sources(&v->promised, v->manifest, note_entry, load,
                                            error)
                 : berthi_crcs_read(&v->promised, v->manifest, note_entry, load, error);
    /* One that is there and cannot be opened is never taken for none. */
    is_absent = status == BERTH_ENOENT && error->reason == BERTH_REASON_NOT_FOUND;
    if (is_absent && is_optional) {
        berthi_error_clear(error);
        return BERTH_OK;
    }
    if (is_absent && load->options.manifest == NULL)
        return berthi_fail(error, BERTH_REASON_NOT_FOUND,
                           &(berthi_about){ .file = v->manifest.path },
                           "there is no manifest to verify with; `berth verify "
                           "--write-manifest` makes one");
    if (status == BERTH_OK)
        status = check_entries(load, error);
    if (status == BERTH_OK)
        status = berthi_crcs_init(&v->actual, load->context, load->checkpoint, error);
    if (status == BERTH_OK)
        status = count_bytes(load, error);
    v->is_on = status == BERTH_OK;
    if (load->options.verify == BERTH_LOAD_VERIFY_WARN)
        atomic_store(&v->mismatches, v->entries);
    return status;
}

void
berthi_load_verify_fini(berthi_load *load)
{
    berthi_load_verify *const v = &load->verify;

    berthi_crcs_fini(&v->promised);
    berthi_crcs_fini(&v->actual);
    berthi_memory_free(load->context, BERTHI_PURPOSE_CHUNKS, v->left,
                       v->left_count * sizeof *v->left);
    v->left = NULL;
    berthi_arena_fini(&v->texts);
}

/* -------------------------------------------------------------------------- bytes */

/* All of the tensor has come. */
static berth_status
compare(berthi_load *load, uint64_t entry, berth_error *error)
{
    berthi_load_verify *const v = &load->verify;
    berth_error details;
    const berth_status status =
        berthi_crcs_compare_tensor(&v->promised, &v->actual, entry, &details);

    atomic_fetch_add(&v->tensors, 1);
    if (status == BERTH_OK)
        return BERTH_OK;
    atomic_fetch_add(&v->mismatches, 1);
    if (load->options.verify == BERTH_LOAD_VERIFY_WARN) {
        warn(load, "loaded all the same", &details);
        return BERTH_OK;
    }
    if (error != NULL)
        *error = details;
    return status;
}

berth_status
berthi_load_verify_add(berthi_load *load, uint64_t entry, uint64_t offset,
                       const uint8_t *bytes, uint64_t size, berth_error *error)
{
    berthi_load_verify *const v = &load->verify;

    if (atomic_load(&v->left[entry]) == 0)
        return BERTH_OK;
    berthi_crcs_add(&v->actual, entry, offset, bytes, size);
    atomic_fetch_add(&v->bytes, size);
    return atomic_fetch_sub(&v->left[entry], size) == size ? compare(load, entry, error)
                                                           : BERTH_OK;
}
