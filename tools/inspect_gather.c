/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_gather.c - one walk over the tensors in natural order. */
#include <string.h>

#include "tools/inspect.h"

static void
count_method(inspection *i, const berth_quantized *q)
{
    size_t n = 0;

    for (; n < i->method_count; n++) {
        const inspect_method *const m = &i->methods[n];

        if (m->block_size == q->block_size && m->block_columns == q->block_columns
            && m->is_double == q->is_double && strcmp(m->name, q->method) == 0)
            break;
    }
    if (n == INSPECT_MAX_METHODS)
        n--;
    if (n == i->method_count)
        i->methods[i->method_count++] = (inspect_method){
            q->method, q->block_size, q->block_columns, q->is_double, 0,
        };
    i->methods[n].weights++;
}

static void
count_total(inspect_total *totals, size_t count, int32_t which, uint64_t bytes)
{
    if (which < 0 || (size_t)which >= count)
        return;
    totals[which].tensors++;
    totals[which].bytes += bytes;
}

/* Statistics belong to their weight: the tree shows what people call a tensor. */
static bool
is_added_to_tree(inspection *i, const berth_tensor *tensor, const berth_quantized *q)
{
    const uint32_t number = form_intern(&i->forms, tensor, q);
    tree_sums sums = { .tensors = 1 };

    if (number == FORM_NONE)
        return false;
    sums.parameters = q != NULL ? q->elements : tensor->elements;
    sums.bytes = q != NULL ? q->total_bytes : tensor->bytes;
    sums.class_bytes[form_class_of(&i->forms.forms[number])] = sums.bytes;
    return tree_add(&i->tree, tensor->name, tensor->name_length, number, &sums);
}

static bool
is_tensor_gathered(inspection *i, uint64_t index)
{
    berth_tensor tensor;
    berth_quantized quantized;
    bool is_quantized;

    berth_checkpoint_tensor(i->checkpoint, index, &tensor);
    count_total(i->dtypes, BERTH_DTYPE_COUNT, tensor.dtype, tensor.bytes);
    count_total(i->encodings, INSPECT_ENCODINGS, tensor.encoding, tensor.bytes);
    if (tensor.owner != BERTH_NO_TENSOR)
        return true;
    is_quantized = tensor.encoding != BERTH_ENCODING_NATIVE
                   && berth_checkpoint_quantized(i->checkpoint, index, &quantized) == BERTH_OK;
    if (is_quantized)
        count_method(i, &quantized);
    return is_added_to_tree(i, &tensor, is_quantized ? &quantized : NULL);
}

berth_status
inspect_gather(inspection *i, const berth_checkpoint *checkpoint)
{
    i->checkpoint = checkpoint;
    berth_checkpoint_get(checkpoint, &i->summary);
    if (listing_init(&i->listing, checkpoint) != BERTH_OK || !tree_init(&i->tree))
        return BERTH_ENOMEM;
    for (size_t n = 0; n < i->listing.count; n++)
        if (!is_tensor_gathered(i, i->listing.entries[n].index))
            return BERTH_ENOMEM;
    return tree_fold(&i->tree) ? BERTH_OK : BERTH_ENOMEM;
}

void
inspect_fini(inspection *i)
{
    tree_fini(&i->tree);
    form_table_fini(&i->forms);
    listing_fini(&i->listing);
}
