/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_put.c - what comes out of a conversion on its way to its place: written
 * where the place is known, else kept as a parcel until it is.
 */
#include <inttypes.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/sys.h"
#include "loader/convert_batch.h"
#include "loader/part.h"
#include "loader/part_lengths.h"
#include "loader/writer_parts.h"

/* -------------------------------------------------------------------- writing */

static void
free_parcel(berthi_convert *convert, berthi_convert_parcel *parcel)
{
    berthi_memory_free(convert->context, BERTHI_PURPOSE_SCRATCH, parcel,
                       sizeof *parcel + parcel->capacity);
}

/*
 * Where parts tell each other lengths half of all bytes are kept for a moment: memory that
 * came anew from the system each time would have to be cleared each time. Lock held.
 */
static void
drop_parcel(berthi_convert *convert, berthi_convert_parcel **link)
{
    berthi_convert_parcel *const parcel = *link;

    *link = parcel->next;
    if (!convert->is_exchanging
        || parcel->capacity > BERTHI_CONVERT_SPARE_BYTES - convert->spare_bytes) {
        free_parcel(convert, parcel);
        return;
    }
    parcel->next = convert->spare_parcels;
    convert->spare_parcels = parcel;
    convert->spare_bytes += parcel->capacity;
}

/* One that is not much too large; NULL: there is none. */
static berthi_convert_parcel *
take_spare(berthi_convert *convert, uint64_t size)
{
    for (berthi_convert_parcel **link = &convert->spare_parcels; *link != NULL;
         link = &(*link)->next) {
        berthi_convert_parcel *const parcel = *link;

        if (parcel->capacity < size || parcel->capacity - size > size / 8)
            continue;
        *link = parcel->next;
        convert->spare_bytes -= parcel->capacity;
        return parcel;
    }
    return NULL;
}

void
berthi_convert_drop_all_parcels(berthi_convert *convert)
{
    while (convert->parcels != NULL)
        drop_parcel(convert, &convert->parcels);
    while (convert->spare_parcels != NULL) {
        berthi_convert_parcel *const parcel = convert->spare_parcels;

        convert->spare_parcels = parcel->next;
        free_parcel(convert, parcel);
    }
    convert->spare_bytes = 0;
}

void
berthi_convert_drop_parcels_from(berthi_convert *convert, uint32_t shard)
{
    berthi_convert_parcel **link = &convert->parcels;

    while (*link != NULL)
        if ((*link)->home == shard)
            drop_parcel(convert, link);
        else
            link = &(*link)->next;
}

void
berthi_convert_drop_parcels_for(berthi_convert *convert, uint32_t shard)
{
    berthi_convert_parcel **link = &convert->parcels;

    while (*link != NULL)
        if (convert->recipe.tensors[(*link)->output].shard == shard)
            drop_parcel(convert, link);
        else
            link = &(*link)->next;
}

static berth_status
keep_parcel(berthi_batch *batch, uint32_t output, uint64_t offset, const void *bytes,
            uint64_t size, berth_error *error)
{
    berthi_convert *const convert = batch->convert;
    berthi_convert_parcel *parcel = take_spare(convert, size);
    const uint64_t capacity = parcel != NULL ? parcel->capacity : size;

    if (parcel == NULL)
        parcel = berthi_memory_alloc(convert->context, BERTHI_PURPOSE_SCRATCH,
                                     sizeof *parcel + size);
    if (parcel == NULL)
        return berthi_fail_memory(error, "keeping statistics for the next shard");
    batch->parcel_bytes += size;
    *parcel = (berthi_convert_parcel){ .next = convert->parcels,
                                       .output = output,
                                       .home = batch->shard,
                                       .offset = offset,
                                       .size = size,
                                       .capacity = capacity };
    memcpy(parcel + 1, bytes, size);
    convert->parcels = parcel;
    return BERTH_OK;
}

/* The place is known. */
static berth_status
write_output(berthi_convert *convert, const berthi_convert_target *target,
             uint32_t output, uint64_t offset, const void *bytes, uint64_t size,
             berth_error *error)
{
    const berthi_layout_tensor *const tensor = &convert->recipe.tensors[output];
    const uint32_t crc = berthi_digest_crc32(0, bytes, (size_t)size);
    const uint64_t begin_ns = berthi_sys_now_ns();
    uint64_t length = tensor->bytes;
    berth_status status;

    if (convert->guesses != NULL && convert->guesses[output] > 0)
        length = convert->lengths[output]; /* there may be more room than that */
    atomic_fetch_xor(&convert->crcs[output],
                     berthi_digest_shift(crc, length - offset - size));
    status = berthi_writer_write(convert->writer, target->file, bytes, size,
                                 target->payload + tensor->offset + offset, error);
    atomic_fetch_add(&convert->write_ns, berthi_sys_now_ns() - begin_ns);
    atomic_fetch_add(&convert->written, size);
    return status;
}

/* True when all runs before this one have announced their lengths. Lock held. */
static bool
has_heard_all(berthi_batch *batch, const berthi_run *run)
{
    const uint64_t number = (uint64_t)(run - batch->runs);

    while (batch->announced < number && batch->runs[batch->announced].is_announced)
        batch->announced++;
    return batch->announced >= number;
}

/*
 * Takes the parcels that a shard has sent to itself and whose place is known. Those
 * of earlier shards stay: the shard may be converted once more. Lock held.
 */
static berthi_convert_parcel *
take_placed(berthi_convert *convert, uint32_t shard)
{
    berthi_convert_parcel **link = &convert->parcels;
    berthi_convert_parcel *taken = NULL;

    while (*link != NULL) {
        berthi_convert_parcel *const parcel = *link;

        if (parcel->home == shard
            && convert->recipe.tensors[parcel->output].shard == shard
            && berthi_layout_is_place_known(convert->layout, parcel->output)) {
            *link = parcel->next;
            parcel->next = taken;
            taken = parcel;
        } else {
            link = &parcel->next;
        }
    }
    return taken;
}

static berth_status
write_taken(berthi_convert *convert, const berthi_convert_target *target,
            const berthi_convert_parcel *taken, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (; taken != NULL && status == BERTH_OK; taken = taken->next)
        status = write_output(convert, target, taken->output, taken->offset, taken + 1,
                              taken->size, error);
    return status;
}

static uint64_t
kept_bytes(const berthi_convert *convert, uint32_t shard)
{
    uint64_t bytes = 0;

    for (const berthi_convert_parcel *p = convert->parcels; p != NULL; p = p->next)
        if (p->home == shard && convert->recipe.tensors[p->output].shard == shard)
            bytes += p->size;
    return bytes;
}

/*
 * The place hangs on lengths of other parts: writes what they let be written, and
 * waits until the rest leaves room for `size` bytes more. PARTS: nobody tells them.
 * Lock held, but not throughout.
 */
static berth_status
make_room(berthi_batch *batch, uint32_t output, uint64_t size, berth_error *error)
{
    berthi_convert *const convert = batch->convert;
    const berthi_convert_target target = { batch->file, batch->payload };
    berth_status status = berthi_part_learn(convert, error);

    while (status == BERTH_OK && !batch->is_stopped) {
        berthi_convert_parcel *taken = take_placed(convert, batch->shard);
        uint64_t kept;

        if (taken != NULL) {
            pthread_cond_broadcast(&batch->has_changed);
            pthread_mutex_unlock(&batch->lock);
            status = write_taken(convert, &target, taken, error);
            pthread_mutex_lock(&batch->lock);
            while (taken != NULL)
                drop_parcel(convert, &taken);
        }
        kept = kept_bytes(convert, batch->shard);
        if (status != BERTH_OK || berthi_layout_is_place_known(convert->layout, output)
            || kept + size <= convert->sizes.parcels
            || !berthi_part_is_awaiting(convert, batch->shard))
            break;
        status = berthi_part_await(convert, batch->shard, error);
        if (status != BERTH_OK)
            break;
        pthread_mutex_unlock(&batch->lock);
        berthi_sys_sleep(BERTHI_PART_POLL_NS);
        pthread_mutex_lock(&batch->lock);
        status = berthi_part_learn(convert, error);
    }
    return status;
}

/* Until it has its place, or all that this process can do for that is done. */
static berth_status
wait_for_place(berthi_batch *batch, const berthi_run *run, uint32_t output, uint64_t size,
               berth_error *error)
{
    const berthi_layout *const layout = batch->convert->layout;
    berth_status status = BERTH_OK;

    while (!batch->is_stopped && !berthi_layout_is_place_known(layout, output)
           && !has_heard_all(batch, run))
        pthread_cond_wait(&batch->has_changed, &batch->lock);
    if (batch->convert->is_exchanging && !berthi_layout_is_place_known(layout, output))
        status = make_room(batch, output, size, error);
    return status;
}

berth_status
berthi_batch_put(berthi_batch *batch, const berthi_run *run, berthi_role role,
                 uint64_t offset, const void *bytes, uint64_t size, berth_error *error)
{
    const uint32_t output = berthi_run_output(batch, run, role);
    const berthi_convert_target target = { batch->file, batch->payload };
    berth_status status = BERTH_OK;
    bool is_here;
    bool is_written = false;

    if (size == 0 || output == UINT32_MAX || batch->is_measuring)
        return BERTH_OK;
    is_here = batch->convert->recipe.tensors[output].shard == batch->shard;
    if (is_here && batch->is_finished)
        return BERTH_OK;
    pthread_mutex_lock(&batch->lock);
    if (is_here)
        status = wait_for_place(batch, run, output, size, error);
    if (status == BERTH_OK && batch->is_stopped)
        status = berthi_job_fail_cancelled(error);
    else if (status == BERTH_OK && is_here
             && berthi_layout_is_place_known(batch->convert->layout, output))
        is_written = true;
    else if (status == BERTH_OK)
        status = keep_parcel(batch, output, offset, bytes, size, error);
    pthread_mutex_unlock(&batch->lock);
    if (is_written)
        status = write_output(batch->convert, &target, output, offset, bytes, size, error);
    return status;
}

berth_status
berthi_batch_announce(berthi_batch *batch, berthi_run *run, uint64_t state_bytes,
                      berth_error *error)
{
    berthi_convert *const convert = batch->convert;
    const uint32_t state = berthi_run_output(batch, run, BERTHI_ROLE_STATE);
    berth_status status = BERTH_OK;

    pthread_mutex_lock(&batch->lock);
    if (state != UINT32_MAX && convert->is_exchanging)
        status = berthi_part_tell(convert, state, (uint32_t)state_bytes, error);
    if (state != UINT32_MAX)
        berthi_layout_set_bytes(convert->layout, state, (uint32_t)state_bytes);
    if (state != UINT32_MAX && convert->lengths != NULL)
        convert->lengths[state] = (uint32_t)state_bytes;
    run->is_announced = true;
    pthread_cond_broadcast(&batch->has_changed);
    pthread_mutex_unlock(&batch->lock);
    return status;
}

bool
berthi_convert_has_unplaced(const berthi_convert *convert, uint32_t shard)
{
    for (const berthi_convert_parcel *p = convert->parcels; p != NULL; p = p->next)
        if (convert->recipe.tensors[p->output].shard == shard
            && !berthi_layout_is_place_known(convert->layout, p->output))
            return true;
    return false;
}

berth_status
berthi_convert_write_parcels(berthi_convert *convert, uint32_t shard,
                             const berthi_convert_target *target, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (berthi_convert_has_unplaced(convert, shard))
        return berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                           "the place of a tensor is not known at the end");
    for (const berthi_convert_parcel *parcel = convert->parcels;
         parcel != NULL && status == BERTH_OK; parcel = parcel->next)
        if (convert->recipe.tensors[parcel->output].shard == shard)
            status = write_output(convert, target, parcel->output, parcel->offset,
                                  parcel + 1, parcel->size, error);
    return status;
}

/* ------------------------------------------------------------ what parts share */

berth_status
berthi_convert_share(berthi_convert *convert, uint32_t shard, berthi_convert_target *out,
                     berth_error *error)
{
    char name[BERTHI_LAYOUT_NAME];

    berthi_convert_name_shard(shard, name);
    out->payload = BERTHI_HEADER_PREFIX
                   + berthi_layout_shard_at(convert->layout, shard).header_bytes;
    return berthi_writer_share(convert->writer, name,
                               berthi_part_file_bytes(convert, shard), &out->file, error);
}

/* A shard that parcels wait for and with which this part converts nothing. */
static bool
has_foreign_parcel(const berthi_convert *convert, uint32_t *out_shard)
{
    for (const berthi_convert_parcel *parcel = convert->parcels; parcel != NULL;
         parcel = parcel->next) {
        *out_shard = convert->recipe.tensors[parcel->output].shard;
        if (!berthi_part_has_shard(convert, convert->options.part, *out_shard))
            return true;
    }
    return false;
}

berth_status
berthi_convert_send_parcels(berthi_convert *convert, berth_error *error)
{
    uint32_t shard;

    while (has_foreign_parcel(convert, &shard)) {
        berthi_convert_target target;
        berth_status status = BERTH_OK;

        if (convert->is_exchanging)
            status = berthi_part_settle(convert, shard, error);
        if (status == BERTH_OK)
            status = berthi_convert_share(convert, shard, &target, error);
        if (status != BERTH_OK)
            return status;
        status = berthi_convert_write_parcels(convert, shard, &target, error);
        if (status == BERTH_OK)
            status = berthi_writer_release(convert->writer, target.file, error);
        else
            berthi_writer_drop(convert->writer, target.file);
        if (status != BERTH_OK)
            return status;
        berthi_convert_drop_parcels_for(convert, shard);
    }
    return BERTH_OK;
}
