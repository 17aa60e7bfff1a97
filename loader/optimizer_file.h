/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_file.h - an optimizer's states in a file: what is written and what is
 * read share these names (berth-optimizer(5)).
 */
#ifndef BERTH_LOADER_OPTIMIZER_FILE_H
#define BERTH_LOADER_OPTIMIZER_FILE_H

#include "kernels/base.h"
#include "loader/checkpoint.h"
#include "loader/optimizer.h"

/* X(IDENTIFIER, "key"): tensors of a parameter, in the order in which they are listed. */
#define BERTHI_STATE_KEYS(X)                                                             \
    X(STEP, "step")                                                                      \
    X(STATE1, "state1")                                                                  \
    X(STATE2, "state2")                                                                  \
    X(ABSMAX1, "absmax1")                                                                \
    X(ABSMAX2, "absmax2")                                                                \
    X(QMAP1, "qmap1")                                                                    \
    X(QMAP2, "qmap2")                                                                    \
    X(MASTER, "master")

typedef enum berthi_state_key {
#define BERTHI_STATE_KEY_ENUM(identifier, name) BERTHI_STATE_KEY_##identifier,
    BERTHI_STATE_KEYS(BERTHI_STATE_KEY_ENUM)
#undef BERTHI_STATE_KEY_ENUM
        BERTHI_STATE_KEY_COUNT
} berthi_state_key;

#define BERTHI_STATE_TABLES 2u /* state1 and state2, each with what belongs to it */

/* Keys of __metadata__. */
#define BERTHI_STATES_CRC32                                                              \
    "berth.crc32" /* eight digits a tensor, in the file's order                          \
                   */
#define BERTHI_STATES_KIND "berth.optimizer." /* and the parameter's name: "adamw" */
#define BERTHI_STATES_STEP "berth.step"
#define BERTHI_STATES_STEPS (UINT64_C(1) << 53) /* more no run makes; doubles count so far */

/* Which of the two a state is in, and where in it: AdEMAMix' means share the first. */
static inline uint32_t
berthi_state_table(uint32_t state)
{
    return state == 1;
}

static inline uint32_t
berthi_state_half(uint32_t state)
{
    return state == 2;
}

/* 2: the table has a first dimension of two. */
static inline uint32_t
berthi_state_halves(const berthi_states *states, uint32_t table)
{
    return states->count == 3 && table == 0 ? 2 : 1;
}

static inline uint32_t
berthi_state_tables(const berthi_states *states)
{
    return states->count == 1 ? 1 : 2;
}

static inline uint64_t
berthi_state_blocks(uint64_t elements, uint64_t block)
{
    return berthi_divide_up(elements, block);
}

/* What a file has for one parameter, checked. */
typedef struct berthi_states_source {
    uint64_t keys[BERTHI_STATE_KEY_COUNT]; /* numbers of tensors; BERTH_NO_TENSOR */
    uint64_t step;
    uint32_t block; /* elements that share an absmax; 0: states of 32 bits */
    bool is_foreign[BERTHI_STATE_TABLES]; /* a map that is not berth's: maps[] */
    const uint32_t *maps[BERTHI_STATE_TABLES];
} berthi_states_source;

/* ------------------------------------------------------------ optimizer_load_find.c */

#define BERTHI_STATES_KEY_BYTES 64u /* of the longest key below a name, dots and NUL */

/* What is looked for, and what has been seen so far. */
typedef struct berthi_states_search {
    const berth_optimizer *optimizer;
    const berth_checkpoint *file;
    berthi_arena arena; /* maps */
    char *name;         /* room for the longest name and BERTHI_STATES_KEY_BYTES */
    uint64_t used;      /* tensors */
    uint64_t foreign;   /* parameters with a map that is not berth's */
    uint64_t blocks;    /* with blocks of another size */
    uint64_t bare;      /* whose f32 copy is not there */
    uint64_t step;      /* the most updates that one had */
} berthi_states_search;

/* Fills a zeroed source with what the header tells of one parameter. */
berth_status berthi_states_find(berthi_states_search *search,
                                const berthi_trained_tensor *parameter,
                                berthi_states_source *out, berth_error *error);
/* And its step and maps, which lie in the arena; after berthi_states_verify(). */
berth_status berthi_states_look(berthi_states_search *search,
                                const berthi_trained_tensor *parameter,
                                berthi_states_source *out, berth_error *error);

/* ------------------------------------------------------------ optimizer_load_read.c */

/* All tensors of the file are what was saved, where it says what that was; DIGEST. */
berth_status berthi_states_verify(const berth_checkpoint *file, berth_error *error);
/* The value of a pair of a shard's __metadata__, or NULL; not ended by NUL. */
const char *berthi_states_pair(const berth_checkpoint *file, uint32_t shard,
                               const char *key, const char *more, uint64_t *out_length);
/* A parameter's states as the file has them, by way of `room`, of as many bytes as that says. */
uint64_t berthi_states_room(const berthi_trained_tensor *parameter);
berth_status berthi_states_read(berth_optimizer *optimizer, const berth_checkpoint *file,
                                const berthi_trained_tensor *parameter,
                                const berthi_states_source *source, uint8_t *room,
                                berth_error *error);

#endif
