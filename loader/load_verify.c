/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_verify.c - what a load reads, held against the digests of a manifest.
 *
 * A worker digests the bytes that it is about to place. Parts of a tensor come in any
 * order; whoever has its last ones compares.
 */
#include <inttypes.h>

#include "loader/load_job.h"
#include "loader/stranded.h"

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
    const berthi_promises_options options = {
        .mode = load->options.verify,
        .is_of_source = load->options.is_source_of_manifest != 0,
        .manifest = load->options.manifest,
        .let_pass = "loaded all the same",
    };

    if (options.mode == BERTH_LOAD_VERIFY_REQUIRE) {
        const berth_status status = refuse_slices(load, error);

        if (status != BERTH_OK)
            return status;
    }
    return berthi_promises_init(&load->verify.promises, load->context, load->checkpoint,
                                &options, error);
}

/* -------------------------------------------------------------------------- tables */

/* Not all bytes of the tensor will come: its digest is not compared. */
static void
leave_entry(berthi_load *load, uint64_t number)
{
    berthi_load_verify *const v = &load->verify;

    berthi_promises_leave(&v->promises, number);
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
    if (load->verify.promises.unverified > 0)
        berthi_log(load->context,
                   load->options.verify == BERTH_LOAD_VERIFY_WARN ? BERTH_LOG_WARNING
                                                                  : BERTH_LOG_INFO,
                   "not verified: %" PRIu64 " stored tensors, of which parts are read",
                   load->verify.promises.unverified);
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
        atomic_init(&v->left[i], berthi_promises_has(&v->promises, i)
                                     ? table->entries[i].end - table->entries[i].begin
                                     : 0);
    return leave_slices(load, error);
}

berth_status
berthi_load_verify_init(berthi_load *load, berth_error *error)
{
    const berthi_header_reads reads = { .job = load->job,
                                        .wait_ns = berthi_wait_ns(load->options.wait_ms),
                                        .no_uring = load->options.no_uring != 0 };
    berthi_load_verify *const v = &load->verify;
    berth_status status = berthi_promises_read(&v->promises, &reads, error);

    if (status != BERTH_OK || !v->promises.is_on)
        return status;
    status = berthi_crcs_init(&v->actual, load->context, load->checkpoint, error);
    return status == BERTH_OK ? count_bytes(load, error) : status;
}

void
berthi_load_verify_fini(berthi_load *load)
{
    berthi_load_verify *const v = &load->verify;

    berthi_promises_fini(&v->promises);
    berthi_crcs_fini(&v->actual);
    berthi_memory_free(load->context, BERTHI_PURPOSE_CHUNKS, v->left,
                       v->left_count * sizeof *v->left);
    v->left = NULL;
}

/* -------------------------------------------------------------------------- bytes */

berth_status
berthi_load_verify_add(berthi_load *load, uint64_t entry, uint64_t offset,
                       const uint8_t *bytes, uint64_t size, berth_error *error)
{
    berthi_load_verify *const v = &load->verify;

    if (atomic_load(&v->left[entry]) == 0)
        return BERTH_OK;
    berthi_crcs_add(&v->actual, entry, offset, bytes, size);
    return atomic_fetch_sub(&v->left[entry], size) == size
               ? berthi_promises_compare(&v->promises, &v->actual, entry, error)
               : BERTH_OK;
}
