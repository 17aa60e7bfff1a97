/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_file.h - the user's rules: a text, one rule a line, first match wins.
 *
 *   # experts in 4 bits, attention in 8, the rest as transformers does it
 *   nf4   *.mlp.experts.*                rank=2,3
 *   int8  *.self_attn.?_proj.weight      shape=*x4096 dtype=bf16,f16
 *   keep  *router*                       optional
 *   auto  *
 *
 *   line      = [ action glob { condition } ] [ comment ]
 *   action    = "nf4" | "fp4" | "int8"   this encoding
 *             | "quantize"               the one asked for on the command line
 *             | "keep"                   not quantized
 *             | "auto"                   as without rules
 *   glob      = glob.h, on the whole name in the checkpoint
 *   condition = "rank=" number { "," number }
 *             | "shape=" axis { "x" axis }      the rank is that of the list
 *             | "dtype=" word { "," word }      as stored
 *             | "optional"                      may match nothing
 *   axis      = "*" | number | number "+"       any, exactly, at least
 *   comment   = "#" anything                    at the beginning or behind a blank
 *
 * Words are separated by blanks, tabs and \r, lines by \n. One of these in a name
 * is written as '?' in the glob. A line that quantizes matches only what can be
 * quantized so: 16- and 32-bit floats with at least one element, matrices, and
 * for nf4 and fp4 stacks of them (rank 3).
 * UTF-8, no byte order mark, at most BERTHI_RULES_LIMIT bytes.
 */
#ifndef BERTH_QUANT_RULES_FILE_H
#define BERTH_QUANT_RULES_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"

#define BERTHI_RULES_LIMIT UINT64_C(262144)
#define BERTHI_RULES_AXES 8u

typedef enum berthi_action {
    BERTHI_ACTION_NF4,
    BERTHI_ACTION_FP4,
    BERTHI_ACTION_INT8,
    BERTHI_ACTION_QUANTIZE,
    BERTHI_ACTION_KEEP,
    BERTHI_ACTION_AUTO
} berthi_action;

/* Sizes that an axis may have. */
typedef struct berthi_axis {
    uint64_t minimum;
    uint64_t maximum;
} berthi_axis;

typedef struct berthi_rule {
    const char *glob; /* ends in NUL */
    const char *text; /* the rule as it is printed: one blank between words */
    berthi_action action;
    uint32_t line;    /* of the file, from 1 */
    uint32_t ranks;   /* bit r: rank r; 0: any */
    uint32_t dtypes;  /* bit d: berth_dtype d; 0: any */
    uint32_t axis_count; /* 0: any shape */
    bool is_optional;
    berthi_axis axes[BERTHI_RULES_AXES];
} berthi_rule;

typedef struct berthi_rules_file {
    berthi_arena arena;
    const char *name; /* of the file, for messages; ends in NUL */
    const berthi_rule *rules;
    uint32_t count;
} berthi_rules_file;

/*
 * Reads `bytes` of text. Fails with RULES, naming the file, the position and
 * the line, or NO_MEMORY. Free with berthi_rules_file_fini(). On failure `out`
 * is all zero.
 */
berth_status berthi_rules_file_parse(berth_context *context, const char *text,
                                     uint64_t bytes, const char *name,
                                     berthi_rules_file *out, berth_error *error);
/* All zero is allowed. */
void berthi_rules_file_fini(berthi_rules_file *file);

#endif
