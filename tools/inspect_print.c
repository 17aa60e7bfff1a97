/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_print.c - the head of the view and the totals by dtype. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/draw.h"
#include "tools/inspect.h"
#include "tools/table.h"

static void
print_label(session *s, const char *label)
{
    output_format(&s->out, "  %s%-14s%s", colour_begin(&s->screen, COLOUR_DIM), label,
                  colour_end(&s->screen, COLOUR_DIM));
}

static void
print_name(session *s, const char *text)
{
    output_name(&s->out, text, strlen(text));
}

static void
print_title(session *s, const inspection *i)
{
    output_text(&s->out, colour_begin(&s->screen, COLOUR_HEADING));
    print_name(s, i->summary.path);
    output_text(&s->out, colour_end(&s->screen, COLOUR_HEADING));
    output_text(&s->out, "\n");
    if (i->summary.revision[0] != '\0') {
        print_label(s, "revision");
        print_name(s, i->summary.revision);
        output_text(&s->out, "\n");
    }
}

static void
print_architecture(session *s, const inspection *i)
{
    const berth_checkpoint_summary *const m = &i->summary;
    const bool has_architecture = m->architecture[0] != '\0';

    print_label(s, "architecture");
    if (!has_architecture && m->model_type[0] == '\0')
        output_text(&s->out, "not said");
    print_name(s, has_architecture ? m->architecture : m->model_type);
    if (m->dtype[0] != '\0') {
        output_text(&s->out, ", ");
        print_name(s, m->dtype);
    }
    if (m->ties_embeddings == 1)
        output_text(&s->out, ", embeddings tied");
    if (m->is_adapter)
        output_text(&s->out, ", an adapter: not a model by itself");
    output_text(&s->out, "\n");
}

static void
print_size(session *s, const inspection *i)
{
    const berth_checkpoint_summary *const m = &i->summary;
    char count[TEXT_NUMBER_CAPACITY];
    char number[TEXT_NUMBER_CAPACITY];
    char size[BERTH_SIZE_CAPACITY];

    print_label(s, "parameters");
    output_format(&s->out, "%s", text_count(m->parameter_count, count));
    if (m->parameter_count >= 1000)
        output_format(&s->out, " (%s)", text_number(m->parameter_count, number));
    output_text(&s->out, "\n");
    print_label(s, "size");
    output_text(&s->out, berth_size_format(m->tensor_bytes, size));
    if (m->tensor_bytes >= 1024)
        output_format(&s->out, " (%s bytes)", text_number(m->tensor_bytes, number));
    if (m->parameter_count > 0)
        output_format(&s->out, ", %.2f bits a parameter",
                      (double)m->tensor_bytes * 8 / (double)m->parameter_count);
    output_text(&s->out, "\n");
    print_label(s, "tensors");
    output_format(&s->out, "%s in ", text_number(m->tensor_count, number));
    output_format(&s->out, "%" PRIu32 " %s%s\n", m->shard_count,
                  m->is_sharded ? "shard" : "file", text_plural(m->shard_count));
}

static void
print_method(session *s, const inspect_method *m)
{
    char number[TEXT_NUMBER_CAPACITY];

    print_name(s, m->name);
    if (m->block_size > 0)
        output_format(&s->out, ", block %" PRIu32, m->block_size);
    if (m->block_columns > 0)
        output_format(&s->out, "x%" PRIu32, m->block_columns);
    if (m->is_double)
        output_text(&s->out, ", double quantized");
    output_format(&s->out, ": %s weight%s\n", text_number(m->weights, number),
                  text_plural(m->weights));
}

static void
print_quantization(session *s, const inspection *i)
{
    for (size_t n = 0; n < i->method_count; n++) {
        print_label(s, n == 0 ? "quantization" : "");
        print_method(s, &i->methods[n]);
    }
    if (i->method_count > 0)
        return;
    print_label(s, "quantization");
    if (i->summary.quant_method[0] != '\0') {
        output_text(&s->out, "none seen, though config.json says ");
        print_name(s, i->summary.quant_method);
        output_text(&s->out, "\n");
    } else {
        output_text(&s->out, "none\n");
    }
}

void
inspect_print_head(session *s, const inspection *i)
{
    print_title(s, i);
    print_architecture(s, i);
    print_size(s, i);
    print_quantization(s, i);
    if (i->warnings > 0) {
        print_label(s, "warnings");
        output_format(&s->out, "%s%" PRIu64 "%s: `berth verify` shows them\n",
                      colour_begin(&s->screen, COLOUR_WARNING), i->warnings,
                      colour_end(&s->screen, COLOUR_WARNING));
    }
}
