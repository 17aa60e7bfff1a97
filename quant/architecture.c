/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture.c - the order in which an architecture is made, and what is not
 * names, values or trees: the description, head, last parameter. See
 * architecture_build.h.
 */
#include "quant/architecture.h"

#include "quant/architecture_build.h"


/* -------------------------------------------------------- memory, failures */

static void
lack_memory(berthi_build *build)
{
    if (build->status == BERTH_OK)
        build->status = berthi_fail_memory(build->error, "laying out the model");
}

void *
berthi_build_alloc(berthi_build *build, uint64_t count, uint64_t size)
{
    uint64_t bytes = 0;
    void *piece = NULL;

    if (build->status != BERTH_OK)
        return NULL;
    if (berthi_can_mul(count, size, &bytes))
        piece = berthi_arena_alloc(&build->made->arena, bytes, size == 1 ? 1 : 8);
    if (piece == NULL)
        lack_memory(build);
    else
        memset(piece, 0, (size_t)bytes);
    return piece;
}

char *
berthi_build_text(berthi_build *build, const char *bytes, uint64_t length)
{
    char *const copy = berthi_build_alloc(build, length + 1, 1);

    if (copy != NULL && length > 0)
        memcpy(copy, bytes, (size_t)length);
    return copy;
}

berthi_text
berthi_build_join(berthi_build *build, berthi_text path, berthi_text name)
{
    const uint64_t skipped = path.length + (path.length > 0);
    char *const joined = berthi_build_alloc(build, skipped + name.length + 1, 1);

    if (joined == NULL)
        return (berthi_text){ "", 0 };
    if (path.length > 0) {
        memcpy(joined, path.bytes, (size_t)path.length);
        joined[path.length] = '.';
    }
    memcpy(joined + skipped, name.bytes, (size_t)name.length);
    return (berthi_text){ joined, skipped + name.length };
}

void
berthi_build_refuse(berthi_build *build, const char *what)
{
    /* The one that is read; it is not the model's before it has been. */
    const char *const class_name =
        build->made->class_name == NULL ? build->scopes->class_name : build->made->class_name;

    if (build->status == BERTH_OK)
        build->status = berthi_fail(build->error, BERTH_REASON_ARCHITECTURES_JSON, NULL,
                                    "the description of %s makes no sense: %s", class_name,
                                    what);
}

void
berthi_build_fail(berthi_build *build, berthi_text path, uint64_t number, uint64_t limit,
                  const char *what)
{
    if (build->status == BERTH_OK)
        build->status = berthi_fail(build->error, BERTH_REASON_ARCHITECTURE,
                                    &(berthi_about){ .file = build->options->config_file,
                                                     .tensor = path.bytes,
                                                     .tensor_length = (size_t)path.length,
                                                     .has = BERTH_HAS_EXPECTED
                                                            | BERTH_HAS_ACTUAL,
                                                     .expected = limit,
                                                     .actual = number },
                                    "%s", what);
}

/* ------------------------------------------------------------ the description */

/* By class, else by model_type; in 4.x with what differed then. */
static void
choose_description(berthi_build *build)
{
    const berthi_architecture_options *const options = build->options;
    const berthi_catalogue_entry *entry =
        berthi_catalogue_class(build->catalogue, options->class_name);
    berthi_architecture *const made = build->made;

    made->is_named = entry != NULL;
    if (entry == NULL)
        entry = berthi_catalogue_type_class(build->catalogue, options->model_type, NULL);
    made->is_approximate = !made->is_named;
    berthi_build_find_scopes(build, entry);
    made->class_name = build->whole != NULL ? build->whole->class_name : "";
}

/* The lists of texts that the descriptions have, copied as one. */
static berthi_words
copy_words(berthi_build *build, const char *member)
{
    const char **words;
    uint64_t count = 1;

    for (const build_scope *scope = build->scopes; scope != NULL; scope = scope->next)
        count += berthi_json_count(berthi_build_member(scope, member));
    words = berthi_build_alloc(build, count, sizeof *words);
    if (words == NULL)
        return NULL;
    count = 0;
    for (const build_scope *scope = build->scopes; scope != NULL; scope = scope->next)
        for (const berthi_json_value *at =
                 berthi_json_first(berthi_build_member(scope, member));
             at != NULL; at = berthi_json_next(at)) {
            const char *word;

            if (berthi_json_can_read_string(at, &word))
                words[count++] = berthi_build_text(build, word, strlen(word));
        }
    return words;
}

/* ------------------------------------------------------- head, last parameter */

/* What a description says of "head", or of "last", one for 5.x and one for 4.x; NULL. */
static const char *
read_named(const berthi_build *build, const build_scope *scope, const char *member)
{
    const berthi_json_value *value = berthi_build_member(scope, member);
    const berthi_json_value *const first = berthi_json_first(value);
    const char *text;

    if (first != NULL)
        value = build->made->era == BERTHI_ERA_HF4 ? berthi_json_next(first) : first;
    return berthi_json_can_read_string(value, &text) ? text : NULL;
}

/* In the model: where another sub-model stands there, the one that it has; NULL. */
static const char *
find_named(berthi_build *build, const char *member)
{
    const char *named = read_named(build, build->whole, member);
    const build_scope *scope;
    berthi_text outside;
    berthi_text rest;

    if (named == NULL)
        return NULL;
    scope = berthi_build_scope(build, berthi_text_of(named), &rest);
    if (scope == build->whole || scope->is_tower)
        return named;
    named = read_named(build, scope, member);
    if (named == NULL)
        return NULL;
    outside = berthi_build_outside(build, scope, named);
    return outside.length > 0 ? outside.bytes : NULL;
}

/* The parameter with the highest numbers among those that match. */
static const berthi_parameter *
find_highest(const berthi_architecture *made, const char *pattern)
{
    const berthi_parameter *best = NULL;

    for (const berthi_module *module = made->root; module != NULL;
         module = berthi_module_after(module))
        for (const berthi_parameter *at = module->parameters; at != NULL; at = at->next)
            if (berthi_build_is_match(pattern, at->name, at->name_length)
                && (best == NULL
                    || berthi_build_compare_numbers(build_name(best), build_name(at)) < 0))
                best = at;
    return best;
}

static const berthi_parameter *
find_last(const berthi_architecture *made)
{
    const berthi_parameter *last = NULL;

    for (const berthi_module *module = made->root; module != NULL;
         module = berthi_module_after(module))
        if (module->last_parameter != NULL)
            last = module->last_parameter;
    return last;
}

/* A linear layer registers its bias behind its weight, where it has one. */
static const berthi_parameter *
find_bias(berthi_build *build, const char *weight)
{
    static const char suffix[] = ".weight";
    const berthi_text name = berthi_text_of(weight);
    berthi_text bias;

    if (!berthi_text_ends(name, suffix))
        return NULL;
    bias = berthi_build_join(build, (berthi_text){ weight, name.length - strlen(suffix) },
                             berthi_text_of("bias"));
    return berthi_architecture_find(build->made, bias.bytes, bias.length);
}

static bool
has_norm(const berthi_module *block)
{
    for (const berthi_module *at = block; at != NULL; at = berthi_module_after(at)) {
        if (berthi_module_block(at) != block)
            return false;
        for (uint64_t i = 0; i + 4 <= at->name_length; i++)
            if (memcmp(at->name + i, "norm", 4) == 0 || memcmp(at->name + i, "Norm", 4) == 0)
                return true;
    }
    return false;
}

/* What comes last in a layer without norms: the way back from a feed-forward part. */
static const berthi_parameter *
find_down(const berthi_module *block)
{
    static const char *const names[] = { "down_proj", "fc2" };

    for (const berthi_module *at = block; at != NULL; at = berthi_module_after(at))
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (berthi_text_is((berthi_text){ at->name, at->name_length }, names[i]))
                return at->last_parameter;
    return NULL;
}

/*
 * The last parameter of a class that nobody describes; what matters is whether
 * it is the weight of a linear layer, without a bias. Heads are made last, and
 * in a layer the norms or what comes behind the attention.
 */
static const berthi_parameter *
guess_last(berthi_build *build)
{
    static const char *const lasts[] = { "score.weight", "classifier.weight",
                                         "text_projection.weight" };
    const berthi_architecture *const made = build->made;
    const berthi_parameter *last = find_last(made);
    const berthi_parameter *bias;
    const berthi_module *block;

    for (size_t i = 0; i < sizeof lasts / sizeof *lasts; i++) {
        const berthi_parameter *const head =
            berthi_architecture_find(made, lasts[i], strlen(lasts[i]));

        if (head != NULL) {
            last = head;
            break;
        }
    }
    if (last == NULL)
        return NULL;
    bias = find_bias(build, last->name);
    block = berthi_module_block(last->module);
    if (bias != NULL)
        return bias;
    if (block == NULL || block->parent->kind != BERTHI_MODULE_LIST)
        return last;
    return has_norm(block) ? NULL : find_down(block);
}

static void
choose_last(berthi_build *build)
{
    berthi_architecture *const made = build->made;
    const char *const pattern = find_named(build, "last");
    const berthi_parameter *last;

    if (made->is_named && pattern != NULL) {
        last = find_bias(build, pattern);
        if (last == NULL)
            last = find_highest(made, pattern);
        made->last_name = last != NULL
                              ? berthi_build_text(build, last->name, last->name_length)
                              : berthi_build_text(build, pattern, strlen(pattern));
        return;
    }
    last = made->is_named ? find_last(made) : guess_last(build);
    made->last_name =
        last != NULL ? berthi_build_text(build, last->name, last->name_length) : "";
}

static void
choose_head(berthi_build *build)
{
    const char *const head = find_named(build, "head");

    build->made->head =
        head != NULL ? berthi_build_text(build, head, strlen(head)) : "";
}

/* ------------------------------------------------------------------ the whole */

static void
build_all(berthi_build *build)
{
    berthi_architecture *const made = build->made;

    choose_description(build);
    if (build->status != BERTH_OK)
        return;
    berthi_build_names(build);
    made->fp32 = copy_words(build, "fp32");
    made->fp32_strict = copy_words(build, "fp32_strict");
    made->no_placement = copy_words(build, "no_placement");
    if (build->status != BERTH_OK)
        return;
    if (build->whole->entry == NULL) {
        berthi_build_guess(build);
    } else {
        choose_head(build);
        berthi_build_find_ties(build);
        berthi_build_tree(build);
    }
    if (build->status == BERTH_OK)
        berthi_build_place_ties(build);
    if (build->status == BERTH_OK)
        choose_last(build);
    if (build->status == BERTH_OK)
        berthi_build_mark_conv1d(build);
}

berth_status
berthi_architecture_create(berth_context *context,
                           const berthi_architecture_options *options,
                           const berthi_model_source *source, berthi_architecture **out,
                           berth_error *error)
{
    berthi_build build = { .context = context, .options = options, .source = source,
                           .error = error };
    berthi_architecture *made;

    *out = NULL;
    made = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *made);
    if (made == NULL)
        return berthi_fail_memory(error, "laying out the model");
    berthi_arena_init(&made->arena, context, BERTHI_PURPOSE_TENSORS,
                      berthi_arena_block_for(source->count));
    made->era = options->era;
    build.made = made;
    build.catalogue =
        options->catalogue != NULL ? options->catalogue : berthi_catalogue_builtin();
    build_all(&build);
    for (build_document *at = build.documents; at != NULL; at = at->next)
        berthi_json_destroy(at->json);
    if (build.status != BERTH_OK) {
        berthi_architecture_destroy(made);
        return build.status;
    }
    *out = made;
    return BERTH_OK;
}

void
berthi_architecture_destroy(berthi_architecture *architecture)
{
    berth_context *context;

    if (architecture == NULL)
        return;
    context = architecture->arena.context;
    berthi_arena_fini(&architecture->arena);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, architecture, sizeof *architecture);
}

/* --------------------------------------------------------------------- asking */

const berthi_module *
berthi_module_after(const berthi_module *module)
{
    if (module->children != NULL)
        return module->children;
    while (module != NULL && module->next == NULL)
        module = module->parent;
    return module != NULL ? module->next : NULL;
}

const berthi_module *
berthi_module_block(const berthi_module *module)
{
    while (module != NULL && module->kind != BERTHI_MODULE_BLOCK)
        module = module->parent;
    return module;
}

static const berthi_parameter *
find_own(const berthi_parameter *at, berthi_text name)
{
    while (at != NULL
           && (at->name_length != name.length
               || memcmp(at->name, name.bytes, (size_t)name.length) != 0))
        at = at->next;
    return at;
}

const berthi_parameter *
berthi_architecture_find(const berthi_architecture *architecture, const char *name,
                         uint64_t length)
{
    const berthi_text whole = { name, length };
    const berthi_module *module = architecture->root;
    const berthi_parameter *found;
    uint64_t at = 0;

    for (;;) {
        uint64_t end = at;

        while (end < length && name[end] != '.')
            end++;
        if (end == length)
            break;
        module = berthi_build_child(module, (berthi_text){ name + at, end - at });
        if (module == NULL)
            return NULL;
        at = end + 1;
    }
    found = find_own(module->parameters, whole);
    return found != NULL ? found : find_own(module->buffers, whole);
}
