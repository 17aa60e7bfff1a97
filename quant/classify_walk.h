/* SPDX-License-Identifier: Apache-2.0 */
/*
 * classify_walk.h - what the recognisers of classify share: looking up a name
 * near another one, claiming tensors, adding records, telling problems.
 *
 * For the files classify*.c only.
 */
#ifndef BERTH_QUANT_CLASSIFY_WALK_H
#define BERTH_QUANT_CLASSIFY_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/text.h"
#include "quant/classify.h"

#define BERTHI_WALK_COMPANIONS 8u /* as many as berth_quantized holds */

typedef struct berthi_walk {
    berth_context *context;
    const berthi_classify_source *source;
    const berthi_config *config; /* never NULL */
    bool is_foreign; /* it names a method that berth does not decode */
    bool is_fp8;     /* it names FP8 with block scales */
    bool has_4bit;   /* it, or a state that was passed, is one of 4-bit weights */
    berthi_classify_result *out;
    uint64_t *claimed;  /* a bit per tensor: it belongs to a record or a problem */
    uint32_t counted;   /* so many tensors: the values of those not claimed by then */
    uint64_t *deferred; /* a bit per tensor: look again when all names were seen  */
    char *buffer;       /* of BERTHI_COMPANION_LIMIT bytes; NULL before its first use */
    berth_error *error;
    berth_status status; /* the first error */
    bool is_stopped;     /* nothing more is to be looked at */
    uint32_t activations[2]; /* the last activation_scale and input_scale passed */
    uint64_t dropped;    /* activation scales of FP8 weights */
    uint64_t foreign;    /* weights that cannot be decoded */
    const char *foreign_method; /* of the first of them */
    const char *config_method;  /* as the records name it; NULL before its first use */
    uint64_t plain_floats;      /* 8-bit floats taken as plain numbers */
    uint32_t first_plain_float;
} berthi_walk;

/* A tensor and its number. */
typedef struct berthi_member {
    bool is_there;
    uint32_t position;
    berthi_classify_tensor tensor;
} berthi_member;

/* A weight with what was found beside it. */
typedef struct berthi_group {
    berthi_member weight;
    uint32_t companions[BERTHI_WALK_COMPANIONS];
    uint32_t companion_count;
    uint64_t bytes;
    bool is_contested; /* one of them belonged to another group before */
} berthi_group;

void berthi_walk_get(const berthi_walk *walk, uint32_t position, berthi_member *out);
void berthi_walk_shape(const berthi_walk *walk, const berthi_member *member,
                       uint64_t *shape);

/* The tensor called `prefix` + `suffix`; fast when it is close to `near`. */
berthi_member berthi_walk_find(const berthi_walk *walk, uint32_t near, berthi_text prefix,
                               const char *suffix);

/* The tensor called as `member` with `suffix`, which is not empty, behind it. */
berthi_member berthi_walk_find_after(const berthi_walk *walk, const berthi_member *member,
                                     const char *suffix);

/* The whole name; the name up to and with its last dot; whether "weight" is behind it. */
berthi_text berthi_walk_name(const berthi_member *member);
berthi_text berthi_walk_module(const berthi_member *member);
bool berthi_walk_is_weight(const berthi_member *member);
/* True when the name ends in `suffix`; *prefix is what stands before it. */
bool berthi_walk_has_suffix(const berthi_classify_tensor *tensor, const char *suffix,
                            berthi_text *prefix);

/* The tensor is spoken for: not looked at again, its values not counted. */
void berthi_walk_claim(berthi_walk *walk, const berthi_member *member);
bool berthi_walk_is_claimed(const berthi_walk *walk, uint32_t position);

/* Claims `weight`, then its companions one by one; one that is not there is left out. */
void berthi_walk_group(berthi_walk *walk, const berthi_member *weight,
                       berthi_group *group);
void berthi_walk_collect(berthi_walk *walk, berthi_group *group,
                         const berthi_member *companion);
/*
 * The group is one quantized weight of this logical shape: adds its record and
 * marks its tensors. NULL when that failed, which has been told.
 */
berthi_quantized *berthi_walk_add(berthi_walk *walk, const berthi_group *group,
                                  berth_encoding encoding, const uint64_t *shape,
                                  uint32_t rank);

/* Where a member lies, for berthi_fail(). */
berthi_about berthi_walk_about(const berthi_walk *walk, const berthi_member *member);
/* Tells what `details` says, filled with `about` or NULL; an error may stop the walk. */
void berthi_walk_tell(berthi_walk *walk, berth_severity severity,
                      const berthi_about *about, const berth_error *details);
/* The weight lacks the companion that is called so. */
void berthi_walk_tell_missing(berthi_walk *walk, const berthi_member *weight,
                              const char *companion);
/* A companion whose weight, called `owner` and then `rest`, is not there. */
void berthi_walk_tell_orphan(berthi_walk *walk, const berthi_member *companion,
                             berthi_text owner, const char *rest);
/* The two numbers that disagree, in words. */
void berthi_walk_tell_mismatch(berthi_walk *walk, const berthi_member *member,
                               uint64_t expected, uint64_t actual, const char *what);
/* The member has another dtype than `wanted`. */
void berthi_walk_tell_dtype(berthi_walk *walk, const berthi_member *member,
                            const char *wanted);
/* Ends the walk with a failure that is not the checkpoint's. */
void berthi_walk_stop(berthi_walk *walk, berth_status status);

/* The member's bytes, at most BERTHI_COMPANION_LIMIT; NULL when the walk stopped. */
char *berthi_walk_read(berthi_walk *walk, const berthi_member *member);

/* ------------------------------------------------------------- recognisers */

/* classify_bnb.c: P.quant_state.bitsandbytes__nf4, M.SCB, and what lacks them. */
void berthi_classify_4bit(berthi_walk *walk, const berthi_member *state,
                          berthi_text owner, berth_encoding encoding);
void berthi_classify_int8(berthi_walk *walk, const berthi_member *scb);
void berthi_classify_lone_statistic(berthi_walk *walk, const berthi_member *member,
                                    berthi_text owner);
void berthi_classify_lone_format(berthi_walk *walk, const berthi_member *member);

/* classify_scaled.c: 8-bit floats, packed FP4, MXFP4. */
bool berthi_classify_is_float8(int32_t dtype);
/* An 8-bit float with scales: true, and dealt with. Without any it may be one itself. */
bool berthi_classify_is_scaled(berthi_walk *walk, const berthi_member *weight);
void berthi_classify_bare_float8(berthi_walk *walk, const berthi_member *weight);
void berthi_classify_byte(berthi_walk *walk, const berthi_member *weight);
void berthi_classify_mxfp4(berthi_walk *walk, const berthi_member *blocks,
                           berthi_text owner);
void berthi_classify_lone_scale(berthi_walk *walk, const berthi_member *scale,
                                berthi_text owner);
void berthi_classify_lone_scales(berthi_walk *walk, const berthi_member *scales,
                                 berthi_text owner);

/* classify_foreign.c: methods that are named and not decoded. */

bool berthi_classify_gptq(berthi_walk *walk, const berthi_member *weight);
bool berthi_classify_quanto(berthi_walk *walk, const berthi_member *weight,
                            berthi_text owner);
/* Scales of a module's weight under the names of ComfyUI and of Mistral's own files. */
#define BERTHI_OTHER_SCALES "scale_weight", "qscale_weight"
/* Nothing but a weight of U32 beside its scales is one of MLX. */
void berthi_classify_mlx(berthi_walk *walk, const berthi_member *weight);
/* `sign` is the method unless config.json names a foreign one. */
void berthi_classify_foreign(berthi_walk *walk, const berthi_member *weight,
                             const char *sign);

#endif
