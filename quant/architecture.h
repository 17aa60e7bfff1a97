/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture.h - a checkpoint as the model that transformers makes of it:
 * names in the model, modules in registration order, layers, ties, what is a
 * linear layer, output head, last parameter, parameters kept in float32.
 *
 * The one home of "which names form a layer, and in which order they run".
 * Made from architectures.json (catalogue.h), config.json and the tensors'
 * names and shapes alone. Pure: no files. A class without a description is guessed
 * from names; `class_name` is "" then.
 *
 * Strings here end in NUL only where it is said; others have a length. All of
 * it lives until berthi_architecture_destroy(), except tensor names and shapes,
 * which are borrowed from the source.
 */
#ifndef BERTH_QUANT_ARCHITECTURE_H
#define BERTH_QUANT_ARCHITECTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "quant/catalogue.h"
#include "quant/era.h"
#include "quant/json.h"

/* A tensor of the checkpoint, as its values are: quantized ones unpacked. */
typedef struct berthi_model_tensor {
    const char *name; /* well-formed UTF-8 */
    uint64_t name_length;
    const uint64_t *shape;
    uint64_t elements;
    uint32_t rank;
    int32_t dtype; /* berth_dtype of the values */
} berthi_model_tensor;

/* Tensors by position. Statistics of quantized weights are not among them. */
typedef struct berthi_model_source {
    void *user;
    uint32_t count;
    void (*get)(void *user, uint32_t position, berthi_model_tensor *out);
} berthi_model_source;

typedef struct berthi_module berthi_module;
typedef struct berthi_children berthi_children;
typedef struct berthi_parameter berthi_parameter;

/* Texts that end in NUL; the last one is NULL. */
typedef const char *const *berthi_words;

#define BERTHI_NO_POSITION UINT32_MAX

/* A parameter or buffer of the model. */
struct berthi_parameter {
    const char *name; /* in the model: "model.layers.0.mlp.up_proj.weight" */
    uint64_t name_length;
    const uint64_t *shape; /* of the first piece */
    uint64_t elements;     /* of all pieces */
    uint32_t rank;
    int32_t dtype;         /* that it is loaded as */
    uint32_t first_piece;  /* a tensor of the checkpoint, or BERTHI_NO_POSITION; */
    uint32_t piece_count;  /* the others: berthi_architecture.next_piece */
    bool is_buffer;
    bool is_persistent;    /* a buffer that checkpoints hold */
    bool is_linear;        /* weight of exactly a linear layer, or of Conv1D */
    bool is_linear_kind;   /* weight of a class derived from a linear layer */
    bool is_conv1d;        /* stored [K, N]; quantized and then stored as [N, K] */
    bool is_experts;       /* experts that the model fuses into one tensor */
    berthi_words remade;   /* where it is not loaded as it is stored: last parts of the */
                           /* names of the modules that get its numbers; else NULL      */
    bool is_alone;         /* what lies beside it by its module's name, as INT8 has it, */
                           /* the library does not call as it calls the weight          */
    bool is_tie_source;
    const berthi_parameter *tie; /* the parameter it shares memory with, or NULL */
    berthi_module *module;       /* the one it belongs to */
    berthi_parameter *next;      /* of the module */
};

typedef enum berthi_module_kind {
    BERTHI_MODULE_PLAIN, /* may be split into its children */
    BERTHI_MODULE_LIST,  /* children "0", "1", ... */
    BERTHI_MODULE_BLOCK, /* one layer, or another module that stays whole */
    BERTHI_MODULE_INNER  /* inside a block */
} berthi_module_kind;

struct berthi_module {
    const char *path; /* "model.layers.0"; "" for the root */
    uint64_t path_length;
    const char *name; /* its last component, the end of the path */
    uint64_t name_length;
    const char *class_name; /* of a block, ends in NUL; else NULL */
    berthi_module_kind kind;
    bool is_never_split;    /* its class is in the model's no-split set */
    uint32_t child_count;
    berthi_module *parent;
    berthi_module *children; /* in registration order, linked by `next` */
    berthi_module *last_child;
    berthi_children *by_name; /* the children, where they are many; else NULL */
    berthi_module *next;
    berthi_parameter *parameters; /* direct ones, linked by `next` */
    berthi_parameter *last_parameter;
    berthi_parameter *buffers;
    berthi_parameter *last_buffer;
};

/* Two names for one memory; both end in NUL. */
typedef struct berthi_tie {
    const char *target; /* "lm_head.weight" */
    const char *source; /* "model.embed_tokens.weight" */
} berthi_tie;

typedef struct berthi_architecture {
    berthi_arena arena;
    uint64_t tensor_count;
    const char *class_name; /* of the description used, ends in NUL; "": guessed */
    berthi_era era;
    bool is_named;          /* the description is that of config.json's own class */
    bool is_approximate;    /* tensors the description does not know, or none */
    berthi_module *root;
    /* By name, '.' before all other bytes: what lies below a path is one stretch. */
    berthi_parameter **parameters;
    uint32_t parameter_count;
    /* By position in the source. */
    berthi_parameter **parameter_of;
    uint32_t *next_piece; /* of the same parameter, or BERTHI_NO_POSITION */
    /* Those that config.json switches on, whether or not the tensors are there. */
    berthi_tie *ties;
    uint32_t tie_count;
    const char *head;       /* output embedding's module, ends in NUL; "": none */
    const char *last_name;  /* last parameter in registration order, ends in NUL */
    berthi_words fp32;        /* modules kept in float32 in a float16 model */
    berthi_words fp32_strict; /* the same, and in a bfloat16 model */
    berthi_words no_placement; /* ends of parameters that device maps leave out */
} berthi_architecture;

/* What it is made from. */
typedef struct berthi_architecture_options {
    const berthi_catalogue *catalogue; /* NULL: the built-in one */
    const char *class_name;            /* config.json "architectures"[0], or "" */
    const char *model_type;            /* config.json "model_type", or "" */
    const berthi_json_value *config;   /* config.json; NULL: none */
    const char *config_file;           /* for messages */
    berthi_era era;
    int32_t dtype;                     /* that the model is loaded as */
} berthi_architecture_options;

/*
 * Lays out the model. Fails with ARCHITECTURE (a list of layers of impossible
 * length), ARCHITECTURES_JSON (a description that makes no sense) or NO_MEMORY.
 * Free with berthi_architecture_destroy(). The source is asked only here.
 */
berth_status berthi_architecture_create(berth_context *context,
                                        const berthi_architecture_options *options,
                                        const berthi_model_source *source,
                                        berthi_architecture **out, berth_error *error);
/* NULL is allowed. */
void berthi_architecture_destroy(berthi_architecture *architecture);

/* The module after this one in registration order, parents first; NULL: the end. */
const berthi_module *berthi_module_after(const berthi_module *module);
/* The block that holds the module or is it; NULL when it lies outside all. */
const berthi_module *berthi_module_block(const berthi_module *module);
/* The parameter or buffer of this name; NULL when there is none. */
const berthi_parameter *berthi_architecture_find(const berthi_architecture *architecture,
                                                 const char *name, uint64_t length);

#endif
