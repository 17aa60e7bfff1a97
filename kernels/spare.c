/* SPDX-License-Identifier: Apache-2.0 */
/* spare.c - see spare.h. */
#include "kernels/spare.h"

struct berthi_spare {
    berthi_spare *next;
    uint64_t bytes;
    uint64_t alignment;
};

/* One of exactly this kind, out of the list; NULL: there is none. */
static void *
take(berth_context *context, uint64_t bytes, uint64_t alignment)
{
    berthi_spare **place = &context->spares;
    berthi_spare *found;

    pthread_mutex_lock(&context->spare_lock);
    while (*place != NULL
           && ((*place)->bytes != bytes || (*place)->alignment != alignment))
        place = &(*place)->next;
    found = *place;
    if (found != NULL) {
        *place = found->next;
        context->spare_bytes -= bytes;
    }
    pthread_mutex_unlock(&context->spare_lock);
    return found;
}

void *
berthi_spare_alloc(berth_context *context, uint64_t bytes, uint64_t alignment)
{
    void *const memory =
        context->spare_limit > 0 ? take(context, bytes, alignment) : NULL;

    return memory != NULL ? memory
                          : berthi_memory_aligned(context, BERTHI_PURPOSE_RING, bytes,
                                                  alignment);
}

void
berthi_spare_free(berth_context *context, void *memory, uint64_t bytes,
                  uint64_t alignment)
{
    berthi_spare *const spare = memory;
    bool is_kept = false;

    if (memory != NULL && bytes >= sizeof *spare && context->spare_limit > 0
        && !berthi_memory_is_abandoned(context, memory, bytes)) {
        pthread_mutex_lock(&context->spare_lock);
        is_kept = bytes <= context->spare_limit - context->spare_bytes;
        if (is_kept) {
            *spare = (berthi_spare){ context->spares, bytes, alignment };
            context->spares = spare;
            context->spare_bytes += bytes;
        }
        pthread_mutex_unlock(&context->spare_lock);
    }
    if (!is_kept)
        berthi_memory_free_aligned(context, BERTHI_PURPOSE_RING, memory, bytes, alignment);
}

uint64_t
berthi_spare_trim(berth_context *context)
{
    berthi_spare *spare;
    uint64_t bytes;

    pthread_mutex_lock(&context->spare_lock);
    spare = context->spares;
    bytes = context->spare_bytes;
    context->spares = NULL;
    context->spare_bytes = 0;
    pthread_mutex_unlock(&context->spare_lock);
    while (spare != NULL) {
        berthi_spare *const next = spare->next;

        berthi_memory_free_aligned(context, BERTHI_PURPOSE_RING, spare, spare->bytes,
                                   spare->alignment);
        spare = next;
    }
    return bytes;
}
