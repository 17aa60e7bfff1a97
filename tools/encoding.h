/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encoding.h - which weights are stored how: the arguments and options that
 * commands which quantize share with those that plan it.
 */
#ifndef BERTH_TOOLS_ENCODING_H
#define BERTH_TOOLS_ENCODING_H

#include "tools/cli.h"

#define ENCODING_MAX_SKIPS 256

/* Every word that names one of the three dtypes, behind one that names none. */
#define ENCODING_DTYPE_WORDS "bf16|fp16|f32|bfloat16|float16|float32|f16|fp32"
#define ENCODING_DTYPES "model|" ENCODING_DTYPE_WORDS
#define ENCODING_STORAGES "uint8|" ENCODING_DTYPE_WORDS
#define ENCODING_ERAS "hf5|hf5.14|hf5.0|hf4"

typedef struct encoding_arguments {
    int32_t type;    /* position in the command's own words */
    int32_t storage; /* in ENCODING_STORAGES */
    int32_t dtype;   /* in ENCODING_DTYPES */
    int32_t like;    /* in ENCODING_ERAS */
    uint32_t block_size;
    bool is_double;
    bool takes_experts;
    const char *skip_modules;
    const char *rules;
    cli_list keep;
    cli_list only;
} encoding_arguments;

/* Rows of an option table; `member` is the encoding_arguments of struct `type`. */
#define ENCODING_OPTIONS(type, member)                                                     \
    { "double-quant", '\0', CLI_FLAG, offsetof(type, member.is_double), NULL, NULL, NULL, \
      "4-bit: the block maxima as 8-bit codes, too" },                                     \
    { "block-size", '\0', CLI_NUMBER, offsetof(type, member.block_size), "N", NULL, "64", \
      "4-bit: elements that share a maximum, 32 to 4096, a power of two" },                \
    { "storage", '\0', CLI_CHOICE, offsetof(type, member.storage), ENCODING_STORAGES,     \
      NULL, "uint8", "4-bit: dtype that the codes are stored as" },                        \
    { "dtype", '\0', CLI_CHOICE, offsetof(type, member.dtype), ENCODING_DTYPES, NULL,     \
      "model", "cast to this first, as loading with that dtype would" }
#define ENCODING_CHOICE_OPTIONS(type, member)                                              \
    { "skip-modules", '\0', CLI_ENTRIES, offsetof(type, member.skip_modules), "A,B", NULL,   \
      NULL, "modules left alone instead of the automatic ones; '' for none" },             \
    { "experts", '\0', CLI_FLAG, offsetof(type, member.takes_experts), NULL, NULL, NULL,  \
      "quantize experts that the model fuses, each by itself" },                           \
    { "rules", '\0', CLI_INPUT, offsetof(type, member.rules), "FILE", NULL, NULL,          \
      "which tensor gets what, line by line: berth-rules(5)" },                            \
    { "keep", '\0', CLI_LIST, offsetof(type, member.keep), "GLOB", NULL, NULL,            \
      "do not quantize tensors of these names, and decode those that are; may be given "   \
      "several times" },                                                                   \
    { "only", '\0', CLI_LIST, offsetof(type, member.only), "GLOB", NULL, NULL,            \
      "quantize none but these; may be given several times" }

/* Position in ENCODING_DTYPES and the like as a dtype; -1: the first word. */
int32_t encoding_dtype(int32_t position);
/* Position in ENCODING_ERAS as its word. */
const char *encoding_era(int32_t position);

/* A power of two from 32 to 4096. */
berth_status encoding_check_block(const cli_call *call, uint32_t size);
/* What `encoding`, a berth_encoding, does not go with. */
berth_status encoding_check(const cli_call *call, const encoding_arguments *arguments,
                            int32_t encoding);

/* The entries of --skip-modules. */
typedef struct encoding_skips {
    const char *items[ENCODING_MAX_SKIPS];
    uint32_t count;
    char *text; /* that they point into */
} encoding_skips;

/* "a,b" as two entries, "" as none at all; what is wrong is printed. */
berth_status encoding_skips_init(encoding_skips *skips, const cli_call *call,
                                 const char *given);
/* Filled with zeros is allowed. */
void encoding_skips_fini(encoding_skips *skips);

#endif
