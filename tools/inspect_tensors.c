/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_tensors.c - every tensor: aligned columns, or CSV. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/inspect.h"
#include "tools/table.h"

#define WIDEST_NAME_COLUMN 96

/* "U8 nf4", "F32 statistics", "BF16". */
static const char *
stored_type(const berth_tensor *tensor, char text[FORM_TYPE_CAPACITY])
{
    const bool is_native = tensor->encoding == BERTH_ENCODING_NATIVE;

    snprintf(text, FORM_TYPE_CAPACITY, "%s%s%s", berth_dtype_name(tensor->dtype),
             is_native ? "" : " ", is_native ? "" : berth_encoding_name(tensor->encoding));
    return text;
}

static bool
can_show_tensor(session *s, const inspection *i, table *t, uint64_t index)
{
    berth_tensor tensor;
    berth_shard shard;
    char type[FORM_TYPE_CAPACITY];
    char shape[FORM_SHAPE_CAPACITY];
    char size[BERTH_SIZE_CAPACITY];
    table_cell cells[TABLE_MAX_COLUMNS];
    char *name;
    char *file;

    berth_checkpoint_tensor(i->checkpoint, index, &tensor);
    berth_checkpoint_shard(i->checkpoint, tensor.shard, &shard);
    name = text_escaped(tensor.name, tensor.name_length);
    file = text_escaped(shard.file, strlen(shard.file));
    if (name != NULL && file != NULL) {
        cells[0] = (table_cell){ name, COLOUR_NONE };
        cells[1] = (table_cell){ stored_type(&tensor, type), COLOUR_NONE };
        cells[2] = (table_cell){ form_shape_text(tensor.shape, tensor.rank, shape),
                                 COLOUR_NONE };
        cells[3] = (table_cell){ berth_size_format(tensor.bytes, size), COLOUR_NONE };
        cells[4] = (table_cell){ file, COLOUR_DIM };
        table_row(t, &s->out, &s->screen, cells);
    }
    free(file);
    free(name);
    return name != NULL && file != NULL;
}

berth_status
inspect_print_tensors(session *s, const inspection *i)
{
    table t = { 0 };

    table_column_add(&t, "name", TABLE_LEFT);
    table_column_add(&t, "stored as", TABLE_LEFT);
    table_column_add(&t, "shape", TABLE_LEFT);
    table_column_add(&t, "size", TABLE_RIGHT);
    if (i->summary.is_sharded || i->summary.shard_count > 1)
        table_column_add(&t, "file", TABLE_LEFT);
    inspect_print_head(s, i);
    output_text(&s->out, "\n");
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            /* A row with a longer name is longer; the others need not follow it. */
            if (t.columns[0].width > WIDEST_NAME_COLUMN)
                t.columns[0].width = WIDEST_NAME_COLUMN;
            table_fit(&t, s->screen.columns);
            table_begin_rows(&t, &s->out, &s->screen);
        }
        for (size_t n = 0; n < i->listing.count && !output_is_closed(&s->out); n++)
            if (!can_show_tensor(s, i, &t, i->listing.entries[n].index))
                return BERTH_ENOMEM;
    }
    return BERTH_OK;
}

void
inspect_print_csv(session *s, const inspection *i)
{
    output *const out = &s->out;

    output_text(out, "name,dtype,encoding,shape,elements,bytes,file,offset\n");
    for (size_t n = 0; n < i->listing.count && !output_is_closed(out); n++) {
        berth_tensor tensor;
        berth_shard shard;

        berth_checkpoint_tensor(i->checkpoint, i->listing.entries[n].index, &tensor);
        berth_checkpoint_shard(i->checkpoint, tensor.shard, &shard);
        output_csv(out, tensor.name, tensor.name_length);
        output_format(out, ",%s,%s,", berth_dtype_name(tensor.dtype),
                      berth_encoding_name(tensor.encoding));
        for (uint32_t d = 0; d < tensor.rank; d++)
            output_format(out, "%s%" PRIu64, d > 0 ? "x" : "", tensor.shape[d]);
        output_format(out, ",%" PRIu64 ",%" PRIu64 ",", tensor.elements, tensor.bytes);
        output_csv(out, shard.file, strlen(shard.file));
        output_format(out, ",%" PRIu64 "\n", tensor.file_offset);
    }
}
