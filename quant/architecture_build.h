/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_build.h - an architecture while it is made; only for the files
 * architecture*.c.
 *
 *   architecture.c          the order of things; head, last parameter
 *   architecture_ties.c     names for one memory
 *   architecture_names.c    tensors of the checkpoint -> parameters of the model
 *   architecture_rename.c   their names there
 *   architecture_scope.c    which description is for what of the model
 *   architecture_config.c   values and expressions of config.json; descriptions
 *   architecture_tree.c     the description's nodes -> modules
 *   architecture_module.c   modules and what lies in them; children by name
 *   architecture_buffer.c   buffers that no checkpoint holds
 *   architecture_lack.c     what descriptions lack besides names
 *   architecture_linear.c   what is a linear layer, Conv1D, experts
 *   architecture_remake.c   what is not loaded as it is stored
 *   architecture_guess.c    a tree without a description
 *
 * The first failure stays in `status`; afterwards calls do nothing and return
 * NULL, so that only the end of each stage looks.
 */
#ifndef BERTH_QUANT_ARCHITECTURE_BUILD_H
#define BERTH_QUANT_ARCHITECTURE_BUILD_H

#include "kernels/text.h"
#include "quant/architecture.h"

/* Modules nest as descriptions do, 10 deep in the deepest one. */
#define BERTHI_BUILD_DEPTH 64u
/* Elements of one list: the largest published models have some hundred layers. */
#define BERTHI_BUILD_LIST 16384u
/*
 * From so many children on, a power of two, a module has a table of their names: models have
 * up to some hundred layers and some hundred experts in each, but nothing limits a file.
 */
#define BERTHI_MANY_CHILDREN 64u

/* Open addresses, at most half of them taken. */
struct berthi_children {
    uint64_t mask;
    berthi_module **slots;
};

/* A description that has been parsed. */
typedef struct build_document {
    const berthi_catalogue_entry *entry;
    berthi_json *json;
    struct build_document *next;
} build_document;

/* A node of a tree: its object, and what a sub-model of another type replaces. */
typedef struct build_node {
    const berthi_json_value *object; /* a plain text, or NULL, for a leaf */
    const berthi_json_value *children;
    const berthi_json_value *parameters;
    const berthi_json_value *buffers;
} build_node;

typedef struct build_renaming build_renaming;

/* How a description calls what is stored. */
typedef struct build_renamings {
    build_renaming *items;
    uint32_t count;
    bool has_number; /* a line is for one index only */
} build_renamings;

/* What one description is for: the whole model, or a sub-model in it. */
typedef struct build_scope {
    const char *class_name;          /* that is described, or a tower's type; "": none */
    const berthi_json_value *entry;  /* the description; NULL: none */
    const berthi_json_value *older;  /* what differs in 4.x; NULL: nothing, or not asked */
    const berthi_json_value *config; /* its part of config.json; NULL: none */
    berthi_text path;                /* where it stands in the model */
    berthi_text base;                /* what the description calls that */
    build_node top;                  /* what is described there */
    build_renamings renamings;
    bool is_tower;                   /* described are its modules alone */
    struct build_scope *next;        /* before the one that it stands in */
} build_scope;

typedef struct berthi_build {
    berthi_architecture *made;
    berth_context *context;
    const berthi_architecture_options *options;
    const berthi_model_source *source;
    const berthi_catalogue *catalogue;
    build_scope *scopes; /* inner ones before those that hold them */
    build_scope *whole;  /* the last of them: the class's own description */
    build_document *documents;
    berth_status status;
    berth_error *error;
} berthi_build;

/* Part of a parameter list in dotted order: [first, end). */
typedef struct build_range {
    uint32_t first;
    uint32_t end;
} build_range;

static inline berthi_text
build_path(const berthi_module *module)
{
    return (berthi_text){ module->path, module->path_length };
}

static inline berthi_text
build_name(const berthi_parameter *parameter)
{
    return (berthi_text){ parameter->name, parameter->name_length };
}

static inline bool
build_is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* -------------------------------------------------------------- architecture.c */

/* Zeroed memory of the architecture; NULL after a failure. */
void *berthi_build_alloc(berthi_build *build, uint64_t count, uint64_t size);
/* A copy with a NUL; NULL after a failure. */
char *berthi_build_text(berthi_build *build, const char *bytes, uint64_t length);
/* "path.name"; `name` alone when the path is empty. */
berthi_text berthi_build_join(berthi_build *build, berthi_text path, berthi_text name);
/* The first failure: a description that makes no sense. */
void berthi_build_refuse(berthi_build *build, const char *what);
/* The first failure: an impossible model, told by a path and a number. */
void berthi_build_fail(berthi_build *build, berthi_text path, uint64_t number,
                       uint64_t limit, const char *what);

/* -------------------------------------------------------- architecture_names.c */

/*
 * A '*' of the pattern stands for one or more digits. Returns the length of the
 * part of `text` that the pattern has matched, or UINT64_MAX.
 */
uint64_t berthi_build_match(const char *pattern, const char *text, uint64_t length);
/* The whole text. */
bool berthi_build_is_match(const char *pattern, const char *text, uint64_t length);
/* Fills parameters, parameter_of and next_piece. */
void berthi_build_names(berthi_build *build);
/* A parameter of this name; sorts the list again. Its pieces are those of `like`. */
void berthi_build_alias(berthi_build *build, berthi_text name, const berthi_parameter *like);
/* What lies below a path, in the whole list. */
build_range berthi_build_below(const berthi_build *build, berthi_text path);
/* A parameter of the list; NULL when there is none. */
berthi_parameter *berthi_build_find(const berthi_build *build, berthi_text name);
/* Stable. */
typedef int (*build_compare)(const void *a, const void *b);
void berthi_build_sort(berthi_build *build, void **items, uint32_t count,
                       build_compare compare);

/* ------------------------------------------------------ architecture_rename.c */

/* Digits of a name: [begin, end). */
typedef struct build_index {
    uint64_t begin;
    uint64_t end;
} build_index;

/* Of all scopes. The prefix that all names lack, as those of a bare model do; "". */
berthi_text berthi_build_read_renamings(berthi_build *build);
/*
 * The name in the model. `*out_dropped` are digits of `name` that make no difference
 * for it, whatever number they are; { 0, 0 }: there are none.
 */
berthi_text berthi_build_rename(berthi_build *build, berthi_text prefix, berthi_text name,
                                build_index *out_dropped);

/* ------------------------------------------------------ architecture_correct.c */

/* A line as those of "names". */
typedef struct build_correction {
    const char *from;
    const char *to;
} build_correction;

bool berthi_build_is_among(berthi_words classes, const char *class_name);
/* The next one for the class from `*position` on, which begins with 0; NULL: none. */
const build_correction *berthi_build_correction(berthi_era era, const char *class_name,
                                                uint32_t *position);

/* --------------------------------------------------------- architecture_lack.c */

/*
 * A child that the module at `path` may have behind the one called `behind`, though the
 * description lacks it; the next one from `*position` on, which begins with 0; NULL: none.
 */
const char *berthi_build_lacking_child(const berthi_build *build, berthi_text path,
                                       berthi_text behind, uint32_t *position);
/* The expression for an axis that the description has none for, by a name with '*'; NULL. */
const char *berthi_build_lacking_size(const char *class_name, const char *star,
                                      uint32_t axis);
/* True for a module whose weight the class makes by itself and does not save. */
bool berthi_build_is_unstored(const berthi_build *build, berthi_text path);

/* -------------------------------------------------------- architecture_scope.c */

/* The class's, and those of sub-models that are of other types than it has by default. */
void berthi_build_find_scopes(berthi_build *build, const berthi_catalogue_entry *entry);
/* The innermost one that holds a name or path; *out_rest: what of that lies behind it. */
const build_scope *berthi_build_scope(const berthi_build *build, berthi_text name,
                                      berthi_text *out_rest);
/* The same rest of a name or pattern of the description; NULL: it is not of the scope. */
const char *berthi_build_within(const build_scope *scope, const char *described);
/* True for a pattern of the description that is all of such a rest. */
bool berthi_build_is_within(const build_scope *scope, const char *pattern,
                            berthi_text rest);
/* What the model calls what is described; "": it is not below the scope's place. */
berthi_text berthi_build_outside(berthi_build *build, const build_scope *scope,
                                 const char *described);
/* Another scope that has both names, though this one's lists them; NULL. */
const build_scope *berthi_build_replacing(const berthi_build *build,
                                          const build_scope *scope, berthi_text one,
                                          berthi_text other);
/* A member of the description as it is in this era; NULL: not there. */
const berthi_json_value *berthi_build_member(const build_scope *scope, const char *name);

/* ------------------------------------------------------- architecture_config.c */

/* The parsed description of an entry; NULL after a failure. */
const berthi_json_value *berthi_build_describe(berthi_build *build,
                                               const berthi_catalogue_entry *entry);
/* A value of config.json by dotted path, where older files had it too; NULL. */
const berthi_json_value *berthi_build_config(const build_scope *scope, const char *path);
/* The part of config.json at a dotted path; NULL where there is none. */
const berthi_json_value *berthi_build_part(const build_scope *scope, const char *path);
/* A size of a buffer, from the expressions for it. `axis` of `rank`. */
bool berthi_build_can_size(const berthi_build *build, berthi_text buffer, uint32_t axis,
                           uint64_t *out);

/* ------------------------------------------------------- architecture_linear.c */

/* The dtype, and what can be said of a parameter before the tree is known. */
void berthi_build_describe_parameter(const berthi_build *build,
                                     berthi_parameter *parameter);
/* True when a weight of two dimensions and this name belongs to a linear layer. */
bool berthi_build_is_linear(const berthi_build *build, berthi_text name, bool *out_kind);
/* Conv1D: needs to know the block. */
void berthi_build_mark_conv1d(berthi_build *build);

/* ------------------------------------------------------- architecture_remake.c */

/*
 * Of a tensor of the checkpoint that the library takes apart, puts together with others or
 * whose rows it moves: last parts of the names of the modules that get its numbers. NULL:
 * it is loaded as it is stored.
 */
berthi_words berthi_build_remade(const char *class_name, berthi_text name);
/* Whether there can be any such, or one as below: asked once, not of each tensor. */
bool berthi_build_has_remade(const berthi_build *build);
/* True for a tensor whose name the library knows as a whole, not its module's. */
bool berthi_build_is_alone(const char *class_name, berthi_text name);

/* --------------------------------------------------------- architecture_ties.c */

/* Before the tree, which needs to know the targets; sources that lack get an alias. */
void berthi_build_find_ties(berthi_build *build);
/* After the tree: a target gets its place and what it shares with its source. */
void berthi_build_place_ties(berthi_build *build);
/* By the numbers in two names that match one pattern. */
int berthi_build_compare_numbers(berthi_text a, berthi_text b);

/* ------------------------------------------------------- architecture_module.c */

berthi_module *berthi_build_module(berthi_build *build, berthi_module *parent,
                                   berthi_text name, berthi_module_kind kind);
berthi_module *berthi_build_child(const berthi_module *module, berthi_text name);
/* Everything below the module's path, with the modules in between. */
void berthi_build_fill(berthi_build *build, berthi_module *module);
/* The module of a dotted path below `module`, made where it is not there. */
berthi_module *berthi_build_reach(berthi_build *build, berthi_module *module,
                                  berthi_text path, berthi_module_kind kind);
void berthi_build_add(berthi_module *module, berthi_parameter *parameter, bool is_buffer);
/* Takes a parameter out of its module, to become a buffer. */
void berthi_build_remove(berthi_parameter *parameter);
/* Everything below a block whose order is given: a list of patterns. */
void berthi_build_fill_ordered(berthi_build *build, berthi_module *module,
                               const berthi_json_value *order);
bool berthi_build_has_below(const berthi_build *build, berthi_text path);
/* Splits "a.b.c" into "a.b" and "c". */
berthi_text berthi_build_split(berthi_text path, berthi_text *out_last);

/* ------------------------------------------------------- architecture_buffer.c */

/* A node's buffers: [name, dtype, shape, persistent] each. */
void berthi_build_add_buffers(berthi_build *build, berthi_module *module,
                              const berthi_json_value *list);
/* Its weight, a table of two dims, unless the checkpoint has it, or nothing says how large. */
void berthi_build_add_unstored(berthi_build *build, berthi_module *module);

/* --------------------------------------------------------- architecture_tree.c */

void berthi_build_tree(berthi_build *build);
build_node berthi_build_node_of(const berthi_json_value *object);
/* The child's node among these: an object, or its name alone; NULL: not among them. */
const berthi_json_value *berthi_build_find_node(const berthi_json_value *nodes,
                                                berthi_text name);

/* -------------------------------------------------------- architecture_guess.c */

void berthi_build_guess(berthi_build *build);

#endif
