/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_shards.c - `berth inspect -v`: the files behind the tensors. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/inspect.h"
#include "tools/table.h"

static void
show_shard(session *s, table *t, const berth_shard *shard)
{
    char *const file = text_escaped(shard->file, strlen(shard->file));
    char *const target = text_escaped(shard->target, strlen(shard->target));
    char size[BERTH_SIZE_CAPACITY];
    char header[BERTH_SIZE_CAPACITY];
    char tensors[TEXT_NUMBER_CAPACITY];

    if (file != NULL && target != NULL) {
        const table_cell cells[] = {
            { file, COLOUR_NONE },
            { berth_size_format(shard->file_bytes, size), COLOUR_NONE },
            { berth_size_format(shard->header_bytes, header), COLOUR_NONE },
            { text_number(shard->tensor_count, tensors), COLOUR_NONE },
            { target, COLOUR_DIM },
        };

        table_row(t, &s->out, &s->screen, cells);
    }
    free(target);
    free(file);
}

static void
print_metadata(session *s, const inspection *i, uint32_t number, const berth_shard *shard)
{
    for (uint64_t n = 0; n < shard->metadata_count; n++) {
        const char *key;
        const char *value;
        size_t key_length;
        size_t value_length;

        if (berth_checkpoint_metadata(i->checkpoint, number, n, &key, &key_length, &value,
                                      &value_length) != BERTH_OK)
            continue;
        output_text(&s->out, "  ");
        output_name(&s->out, key, key_length);
        output_text(&s->out, " = ");
        output_name(&s->out, value, value_length);
        output_text(&s->out, "\n");
    }
}

void
inspect_print_shards(session *s, const inspection *i)
{
    berth_shard shard;
    bool has_links = false;
    table t = { 0 };

    for (uint32_t n = 0; n < i->summary.shard_count; n++)
        if (berth_checkpoint_shard(i->checkpoint, n, &shard) == BERTH_OK)
            has_links = has_links || shard.target[0] != '\0';
    table_column_add(&t, "file", TABLE_LEFT);
    table_column_add(&t, "size", TABLE_RIGHT);
    table_column_add(&t, "header", TABLE_RIGHT);
    table_column_add(&t, "tensors", TABLE_RIGHT);
    if (has_links)
        table_column_add(&t, "link to", TABLE_LEFT);
    output_text(&s->out, "\n");
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1)
            table_begin_rows(&t, &s->out, &s->screen);
        for (uint32_t n = 0; n < i->summary.shard_count; n++) {
            if (berth_checkpoint_shard(i->checkpoint, n, &shard) != BERTH_OK)
                continue;
            show_shard(s, &t, &shard);
            if (pass == 1)
                print_metadata(s, i, n, &shard);
        }
    }
}
