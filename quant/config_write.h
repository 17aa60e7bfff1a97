/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_write.h - config.json written anew, as transformers writes it.
 *
 * Everything in it stays except what says how the weights are stored: the
 * quantization_config, and where it is asked for the dtype. Both are looked for
 * in the document itself and in the configs inside it, which multimodal models
 * have: objects called "..._config" or with a "model_type". These get a dtype
 * where they have none, as the document does. A quantization_config is written
 * for the whole model only; `"expert_dtype": "fp4"` goes, too, "transformers_weights",
 * which names a file that the new model has not, and a "compression_config" that has a
 * "quant_method": compressed-tensors once called it so.
 *
 * The text is Python's json.dumps(indent=2, sort_keys=True) and a line feed.
 * Numbers keep the text they had.
 */
#ifndef BERTH_QUANT_CONFIG_WRITE_H
#define BERTH_QUANT_CONFIG_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"

/* What a quantization_config of bitsandbytes says; its other keys have their defaults. */
typedef struct berthi_quantization {
    int32_t encoding;           /* BERTH_ENCODING_NF4, _FP4 or _INT8               */
    bool is_double;             /* NF4, FP4                                        */
    int32_t storage;            /* NF4, FP4: dtype of the codes, one torch can name */
    const char *compute_dtype;  /* torch's name; NULL: "float32"                   */
    const char *int8_threshold; /* a JSON number; NULL: "6.0"                      */
    bool has_skips;             /* false: null, the list is automatic              */
    const char *const *skips;   /* modules left alone, in this order               */
    uint32_t skip_count;
} berthi_quantization;

/* A config.json that is rewritten; borrowed. */
typedef struct berthi_config_text {
    const char *text;
    uint64_t bytes;
    const char *file; /* for messages */
} berthi_config_text;

/*
 * Rewrites config.json, which is not changed. `what` NULL: the model is not
 * quantized any more. `dtype`: torch's name; NULL keeps what the text says.
 *
 * Fails with CONFIG_JSON as berthi_config_parse() does, also when the new text
 * would be larger than BERTHI_CONFIG_LIMIT, with ARGUMENT for an entry of
 * `skips` that is not UTF-8, or with NO_MEMORY.
 * On success free *out_text (*out_bytes of DOCUMENT); no NUL at its end.
 */
berth_status berthi_config_rewrite(berth_context *context, const berthi_config_text *config,
                                   const berthi_quantization *what, const char *dtype,
                                   char **out_text, uint64_t *out_bytes,
                                   berth_error *error);

#endif
