/* SPDX-License-Identifier: Apache-2.0 */
/* crcs.c - the digests of a checkpoint's headers and tensors, and comparing them. */
#include "loader/crcs.h"

#include <string.h>

#include "kernels/digest.h"
#include "loader/checkpoint.h"

/* -------------------------------------------------------------------- object */

berth_status
berthi_crcs_init(berthi_crcs *crcs, berth_context *context,
                 const berth_checkpoint *checkpoint, berth_error *error)
{
    berth_checkpoint_summary summary;

    memset(crcs, 0, sizeof *crcs);
    berth_checkpoint_get(checkpoint, &summary);
    crcs->context = context;
    crcs->checkpoint = checkpoint;
    crcs->tensor_count = summary.tensor_count;
    crcs->shard_count = summary.shard_count;
    crcs->tensors = berthi_memory_array(context, BERTHI_PURPOSE_TENSORS,
                                        crcs->tensor_count, sizeof *crcs->tensors);
    crcs->headers = berthi_memory_array(context, BERTHI_PURPOSE_TENSORS,
                                        crcs->shard_count, sizeof *crcs->headers);
    if (crcs->tensors == NULL || crcs->headers == NULL) {
        berthi_crcs_fini(crcs);
        return berthi_fail_memory(error, "the table of digests");
    }
    for (uint64_t i = 0; i < crcs->tensor_count; i++)
        atomic_init(&crcs->tensors[i], 0);
    for (uint32_t i = 0; i < crcs->shard_count; i++)
        atomic_init(&crcs->headers[i], 0);
    return BERTH_OK;
}

void
berthi_crcs_fini(berthi_crcs *crcs)
{
    berth_context *const context = crcs->context;

    if (context == NULL)
        return;
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, crcs->tensors,
                       crcs->tensor_count * sizeof *crcs->tensors);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, crcs->headers,
                       crcs->shard_count * sizeof *crcs->headers);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, crcs->has_tensor,
                       crcs->tensor_count * sizeof *crcs->has_tensor);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, crcs->has_header,
                       crcs->shard_count * sizeof *crcs->has_header);
    memset(crcs, 0, sizeof *crcs);
}

/* ------------------------------------------------------------------ digests */

void
berthi_crcs_add(const berthi_crcs *crcs, uint64_t tensor, uint64_t offset,
                const void *bytes, uint64_t size)
{
    const berthi_entry *const entry = &crcs->checkpoint->table.entries[tensor];
    const uint64_t behind = entry->end - entry->begin - offset - size;

    atomic_fetch_xor(
        &crcs->tensors[tensor],
        berthi_digest_shift(berthi_digest_crc32(0, bytes, (size_t)size), behind));
}

berth_status
berthi_crcs_compare(const berthi_about *where, uint32_t promised, uint32_t actual,
                    berth_error *error)
{
    berthi_about about = *where;

    if (promised == actual)
        return BERTH_OK;
    about.has = BERTH_HAS_POSITION | BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                | BERTH_HAS_CRC32;
    about.expected = promised;
    about.actual = actual;
    return berthi_fail(error, BERTH_REASON_DIGEST, &about,
                       "the %s has another crc32 than the manifest says",
                       about.tensor != NULL ? "tensor" : "header");
}

berth_status
berthi_crcs_compare_tensor(const berthi_crcs *promised, const berthi_crcs *actual,
                           uint64_t tensor, berth_error *error)
{
    const berth_checkpoint *const checkpoint = promised->checkpoint;
    berthi_about where = berthi_checkpoint_about(checkpoint, tensor);

    if (!promised->has_tensor[tensor])
        return BERTH_OK;
    where.position = berthi_checkpoint_offset(checkpoint,
                                              &checkpoint->table.entries[tensor]);
    return berthi_crcs_compare(&where, atomic_load(&promised->tensors[tensor]),
                               atomic_load(&actual->tensors[tensor]), error);
}
