/* SPDX-License-Identifier: Apache-2.0 */
/* rules_parts.h - rules, for the files that decide by them and that report on them. */
#ifndef BERTH_QUANT_RULES_PARTS_H
#define BERTH_QUANT_RULES_PARTS_H

#include "quant/rules.h"
#include "quant/rules_skip.h"

/* Globs from the command line. */
typedef struct berthi_rules_globs {
    const char **texts;
    uint64_t *hits;
    uint32_t count;
} berthi_rules_globs;

struct berthi_rules {
    berthi_arena arena;
    berthi_rules_options options; /* its texts are not used after creation */
    const berthi_architecture *architecture;
    berthi_model_source source;
    berthi_rules_globs keep;
    berthi_rules_globs only;
    uint64_t *rule_hits;
    bool *is_quantized; /* by position: what was decided */
    berthi_skip_list skips;
    berthi_skip_list float32; /* parameters to be stored as such */
};

berth_status berthi_rules_lack_memory(berth_error *error);

#endif
