/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - which tensor gets which encoding, and why.
 *
 * Pure: an architecture (its tensors, by position) and options in, one decision
 * a tensor out. Asked in this order, the first that answers decides:
 *
 *   1  keep      globs of --keep: not quantized
 *   2  rules     the user's file, line by line: berth-rules(5)
 *   3  era       what that release of transformers quantizes: linear layers
 *                that its skip list (rules_skip.h) does not name; with
 *                `takes_experts` also experts that the model fuses, with
 *                `takes_remade` weights that it divides or joins as it loads
 *
 * and what is to be quantized then has to match one of `only`, if there is any.
 * A rule or glob that has decided nothing is a mistake of whoever wrote it:
 * berthi_rules_check(). Loading quantized files needs no rules: there the
 * statistics decide.
 */
#ifndef BERTH_QUANT_RULES_H
#define BERTH_QUANT_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "quant/architecture.h"
#include "quant/era.h"
#include "quant/rules_file.h"

/* BERTHI_CAUSES(X): X(IDENTIFIER, "words"): why a tensor got what it got. */
#define BERTHI_CAUSES(X)                                                                   \
    X(LINEAR, "linear layer")                                                              \
    X(EXPERTS, "experts")              /* takes_experts */                                 \
    X(RULE, "rule")                    /* number: of the rule */                           \
    X(KEEP, "keep")                    /* number: of the glob */                           \
    X(ONLY, "not among the only ones") /* quantized otherwise */                           \
    X(SKIPPED, "skip list")            /* number: of the entry */                          \
    X(TIED, "tied")                    /* shares memory with another tensor */             \
    X(FUSED, "fused experts")          /* left alone, as transformers 5 does */            \
    X(REMADE, "not loaded as stored")  /* transformers divides it, joins it, moves rows */ \
    X(NOT_LINEAR, "no linear layer")                                                       \
    X(NOT_FLOAT, "dtype")              /* integers, 8-bit floats, 64-bit floats */         \
    X(SHAPE, "shape")                  /* no elements, or no matrix */

typedef enum berthi_cause {
#define BERTHI_CAUSE_ENUM(identifier, words) BERTHI_CAUSE_##identifier,
    BERTHI_CAUSES(BERTHI_CAUSE_ENUM)
#undef BERTHI_CAUSE_ENUM
        BERTHI_CAUSE_COUNT
} berthi_cause;

typedef struct berthi_decision {
    int32_t encoding; /* BERTH_ENCODING_NATIVE, _NF4, _FP4 or _INT8 */
    int32_t dtype;    /* of the values: stored so, or quantized from so */
    int32_t cause;    /* berthi_cause */
    uint32_t number;  /* below berthi_rules_numbers() of the cause */
    bool is_transposed; /* Conv1D: turned to [N, K] before it is quantized */
    bool is_per_expert; /* [E, N, K]: E matrices, no block crosses experts */
} berthi_decision;

/* Where an entry of the skip list comes from. */
typedef enum berthi_skip_origin {
    BERTHI_SKIP_USER,
    BERTHI_SKIP_TIED,
    BERTHI_SKIP_LAST, /* the last parameter */
    BERTHI_SKIP_HEAD, /* the output embedding */
    BERTHI_SKIP_FP32  /* kept in float32 by the class */
} berthi_skip_origin;

typedef struct berthi_skip {
    const char *text;
    berthi_skip_origin origin;
} berthi_skip;

#define BERTHI_NO_SKIP UINT32_MAX

typedef struct berthi_rules_options {
    berthi_era era;
    int32_t type;            /* the encoding to quantize to */
    int32_t dtype;           /* that the model is loaded as */
    bool has_skips;          /* `skips` replaces the automatic list, even when empty */
    const char *const *skips;
    uint32_t skip_count;
    bool takes_experts;
    bool takes_remade;       /* for memory alone: no loader has to divide or join the codes */
    const char *const *keep; /* globs on whole names of the checkpoint */
    uint32_t keep_count;
    const char *const *only;
    uint32_t only_count;
    const berthi_rules_file *file; /* the user's; NULL: none. Must outlive the rules */
} berthi_rules_options;

typedef struct berthi_rules berthi_rules;

/*
 * Prepares the decisions. Fails with RULES (a glob or an entry of the skip list
 * that is no pattern, named) or NO_MEMORY. The architecture must outlive them;
 * strings of the options are copied. Free with berthi_rules_destroy().
 */
berth_status berthi_rules_create(berth_context *context,
                                 const berthi_rules_options *options,
                                 const berthi_architecture *architecture,
                                 const berthi_model_source *source, berthi_rules **out,
                                 berth_error *error);
/* NULL is allowed. */
void berthi_rules_destroy(berthi_rules *rules);

/* Decides for the tensor at this position of the source, and counts the hit. */
berthi_decision berthi_rules_decide(berthi_rules *rules, uint32_t position);

/*
 * After all tensors have been decided: RULE_UNUSED names the first rule or glob
 * that decided nothing and is not marked optional.
 */
berth_status berthi_rules_check(const berthi_rules *rules, berth_error *error);

/*
 * The user's first entry of the skip list, from `entry` on, that stands for nothing in
 * the model; or BERTHI_NO_SKIP.
 */
uint32_t berthi_rules_find_idle_skip(const berthi_rules *rules, uint32_t entry);
/* Fails with RULE_UNUSED naming that entry, where there is one. */
berth_status berthi_rules_check_skips(const berthi_rules *rules, berth_error *error);

/*
 * A layer that shares its memory with what is no layer, so that it stays plain, and that the
 * user's skip list does not stand for; NULL: there is none.
 */
const berthi_parameter *berthi_rules_find_torn(const berthi_rules *rules);

/* The skip list in force: users' entries as given, automatic ones sorted. */
const berthi_skip *berthi_rules_skips(const berthi_rules *rules, uint32_t *out_count);

/* What config.json has to say of modules to skip. */
typedef struct berthi_skip_words {
    const char *const *texts; /* live as long as the rules */
    uint32_t count;
    bool is_other;            /* not what the options say: to be written out */
} berthi_skip_words;

/*
 * After all tensors have been decided: the list with which loaders quantize what
 * was decided to be quantized, and nothing else. It is another one than that in
 * force when globs or rules left layers plain, or took layers that it names.
 */
berth_status berthi_rules_spell_skips(berthi_rules *rules, berthi_skip_words *out,
                                      berth_error *error);

/* How many numbers a cause has: of rules, globs, entries; 1 where there are none. */
uint32_t berthi_rules_numbers(const berthi_rules *rules, berthi_cause cause);

/*
 * The cause with what it names: `rule line 3: keep *.gate.weight`, `skip list:
 * lm_head (output head)`. Escaped; cut at `capacity`, ends in NUL.
 */
void berthi_rules_explain(const berthi_rules *rules, const berthi_decision *decision,
                          char *text, size_t capacity);

#endif
