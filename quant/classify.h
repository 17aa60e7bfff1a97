/* SPDX-License-Identifier: Apache-2.0 */
/*
 * classify.h - which tensors of a checkpoint are quantized weights, which are
 * their statistics, and what is missing or contradicts itself.
 *
 * Owns the records of quantized weights. Tensors decide, config.json comes
 * second: a weight beside its statistics is quantized whatever config.json says,
 * and scales that config.json promises have to be there. Plain tensors cost one
 * bit while classify runs and nothing afterwards. Time is linear in the number of
 * tensors as long as statistics lie near their weight in bytewise order, as they do
 * in every published layout, and never worse than a logarithm more.
 *
 * Tensors are numbered by their place in bytewise order of names: "position".
 * Names are unique.
 */
#ifndef BERTH_QUANT_CLASSIFY_H
#define BERTH_QUANT_CLASSIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "quant/config.h"

/* Companions larger than this are never read: no published one comes near. */
#define BERTHI_COMPANION_LIMIT UINT64_C(65536)

#define BERTHI_NO_RECORD UINT32_MAX

/* One tensor as stored, checked by the header's parser. */
typedef struct berthi_classify_tensor {
    const char *name; /* valid until the result is destroyed */
    uint64_t name_length;
    uint64_t elements;
    uint64_t bytes;
    int32_t dtype;
    uint32_t rank;
} berthi_classify_tensor;

/* Where the tensors come from and where the verdicts go. */
typedef struct berthi_classify_source {
    void *user;
    uint64_t count; /* below 2^32 */
    void (*get)(void *user, uint64_t position, berthi_classify_tensor *out);
    /* Writes the dims of the tensor, `rank` of them. */
    void (*shape)(void *user, uint64_t position, uint64_t *shape);
    /* The file the tensor is in, for messages. */
    const char *(*file)(void *user, uint64_t position);
    /* The tensor's `bytes` (1 to BERTHI_COMPANION_LIMIT) into `buffer`. */
    berth_status (*read)(void *user, uint64_t position, void *buffer, uint64_t bytes,
                         berth_error *error);
    /*
     * Called once for every tensor that is not NATIVE: a berth_encoding and the
     * number of the record it belongs to. STATISTICS belong to the weight of
     * that record.
     */
    void (*mark)(void *user, uint64_t position, int32_t encoding, uint32_t record);
    /* Notes and warnings; errors too when `keep_going`. NULL: none are told. */
    berth_finding_function finding;
    void *finding_user;
    bool keep_going; /* look at every tensor before failing with the first error */
} berthi_classify_source;

/* A quantized weight: what berth_quantized of berth.h says, in positions. */
typedef struct berthi_quantized {
    const uint64_t *shape; /* of the values */
    const uint32_t *companions;
    const char *method;    /* "bitsandbytes nf4", "gptq", ... */
    uint64_t elements;     /* of the values */
    uint64_t total_bytes;  /* weight and companions */
    double offset;
    uint32_t weight;
    uint32_t block_size;
    uint32_t block_columns;
    int16_t encoding;
    int16_t dtype;         /* of the values; -1: the model's */
    int16_t nested_dtype;  /* counts only when is_double */
    uint8_t rank;
    uint8_t companion_count;
    bool is_double;
    bool is_transposed_absmax; /* BF16 [K/B, N]: saved after inference on a CPU */
    bool is_nested_otherwise;  /* by another second-level table or dtype than berth's */
} berthi_quantized;

/* Its statistics mean what those of the same names do that berth makes. */
static inline bool
berthi_quantized_is_as_made(const berthi_quantized *record)
{
    return !record->is_transposed_absmax && !record->is_nested_otherwise;
}

#define BERTHI_CLASSIFY_BLOCK 64u /* records */

typedef struct berthi_classify_result {
    berthi_arena arena; /* records and what they point to */
    berthi_quantized **blocks;
    uint64_t block_capacity;
    uint32_t count;           /* records */
    uint64_t parameter_count; /* values of the model, packed ones unpacked */
    const char *blamed; /* after a failure: the whole name that the error shows cut, */
    uint64_t blamed_length; /* borrowed from the source; NULL when there is none */
} berthi_classify_result;

/*
 * Classifies all tensors. `config` may be NULL: no config.json.
 *
 * Fails with COMPANION_MISSING, COMPANION_UNKNOWN, COMPANION_MISMATCH,
 * STATE_JSON, QUANT_PLAIN, OVERFLOW, NO_MEMORY, or as `read` did; `error` names the
 * weight. Methods that berth cannot decode are notes (QUANT_METHOD). On
 * success free `out` with berthi_classify_fini(); on failure it is all
 * zero, but for the name that is to blame.
 */
berth_status berthi_classify_run(berth_context *context,
                                 const berthi_classify_source *source,
                                 const berthi_config *config,
                                 berthi_classify_result *out, berth_error *error);
/* All-zero is allowed. */
void berthi_classify_fini(berthi_classify_result *result);

/* True for a quant_method that berth names and does not decode. */
bool berthi_classify_is_foreign(const char *method);

/* A record by its number, below `count`. */
const berthi_quantized *berthi_classify_record(const berthi_classify_result *result,
                                               uint32_t record);

#endif
