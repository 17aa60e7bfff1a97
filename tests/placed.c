/* SPDX-License-Identifier: Apache-2.0 */
/* placed.c - reading recorded device maps; see placed.h. */
#define _XOPEN_SOURCE 700

#include "tests/placed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"
#include "tests/fixture.h"

static _Noreturn void
die(const char *what, const char *about)
{
    fprintf(stderr, "placed: %s: %s\n", what, about);
    exit(99);
}

static void *
take(berthi_arena *arena, uint64_t count, uint64_t size)
{
    void *const memory = berthi_arena_alloc(arena, count * size, 8);

    if (memory == NULL)
        die("out of memory", "");
    memset(memory, 0, (size_t)(count * size));
    return memory;
}

static const char *
copy_of(berthi_arena *arena, const char *text, size_t length)
{
    const char *const copy = berthi_arena_text(arena, text, length);

    if (copy == NULL)
        die("out of memory", "");
    return copy;
}

static const char *
join(berthi_arena *arena, const char *path, const char *name)
{
    char text[512];

    snprintf(text, sizeof text, "%s%s%s", path, *path != '\0' ? "." : "", name);
    return copy_of(arena, text, strlen(text));
}

/* --------------------------------------------------------------------- records */

char *
placed_file(const char *name)
{
    char path[512];
    FILE *file;
    char *text;
    long length;

    snprintf(path, sizeof path, "tests/data/placement/%s", name);
    file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        die("cannot read", path);
    length = ftell(file);
    rewind(file);
    text = malloc((size_t)length + 1);
    if (text == NULL || fread(text, 1, (size_t)length, file) != (size_t)length)
        die("cannot read", path);
    text[length] = '\0';
    fclose(file);
    return text;
}

bool
placed_read(berthi_arena *arena, char **text, placed_record *out)
{
    uint32_t count = 0;
    char *at = *text;

    for (const char *line = at; *line != '\0' && *line != '\n'; count++) {
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    if (count == 0)
        return false;
    out->lines = take(arena, (uint64_t)count + 1, sizeof *out->lines);
    for (uint32_t i = 0; i < count; i++) {
        out->lines[i] = at;
        at += strcspn(at, "\n");
        if (*at == '\n')
            *at++ = '\0';
    }
    *text = at + (*at == '\n');
    return true;
}

static bool
has_word(const char *line, const char *word)
{
    const size_t length = strlen(word);

    return strncmp(line, word, length) == 0 && (line[length] == ' ' || line[length] == '\0');
}

/* The line's place, or -1. */
static int
find_line(const placed_record *record, const char *word, uint32_t number)
{
    for (int i = 0; record->lines[i] != NULL && strcmp(record->lines[i], "tree") != 0; i++)
        if (has_word(record->lines[i], word) && number-- == 0)
            return i;
    return -1;
}

const char *
placed_line(const placed_record *record, const char *word, uint32_t number)
{
    const int at = find_line(record, word, number);
    const size_t length = strlen(word);

    if (at < 0)
        return NULL;
    return record->lines[at] + length + (record->lines[at][length] == ' ');
}

const char *
placed_words(const placed_record *record, const char *word)
{
    const char *const rest = placed_line(record, word, 0);

    return rest != NULL ? rest : "";
}

/* "a.3..7" -> prefix "a.", 3, 7. */
static bool
is_range(const char *word, size_t length, size_t *prefix, unsigned *first, unsigned *last)
{
    size_t at = 0;

    while (at < length && strncmp(word + at, "..", 2) != 0)
        at++;
    if (at >= length)
        return false;
    *last = (unsigned)strtoul(word + at + 2, NULL, 10);
    while (at > 0 && word[at - 1] >= '0' && word[at - 1] <= '9')
        at--;
    *prefix = at;
    *first = (unsigned)strtoul(word + at, NULL, 10);
    return true;
}

const char **
placed_list(berthi_arena *arena, const char *text)
{
    const char **const list = take(arena, 4096, sizeof *list);
    uint32_t count = 0;

    while (*text != '\0') {
        const size_t length = strcspn(text, " ");
        size_t prefix;
        unsigned first;
        unsigned last;
        char name[512];

        if (is_range(text, length, &prefix, &first, &last))
            for (; first <= last; first++) {
                snprintf(name, sizeof name, "%.*s%u", (int)prefix, text, first);
                list[count++] = copy_of(arena, name, strlen(name));
            }
        else if (length == 1 && *text == '-')
            list[count++] = "";
        else
            list[count++] = copy_of(arena, text, length);
        text += length;
        text += *text == ' ';
    }
    return list;
}

bool
placed_has_number(const char *text, const char *key, double *out)
{
    const size_t length = strlen(key);

    while (text != NULL && *text != '\0') {
        if (strncmp(text, key, length) == 0 && text[length] == '=') {
            *out = strtod(text + length + 1, NULL);
            return true;
        }
        text += strcspn(text, ",");
        text += *text == ',';
    }
    return false;
}

/* ----------------------------------------------------------------------- trees */

/* "~name:dtype=4x5" or "name#3=20" */
static void
add_tensor(berthi_arena *arena, placed_node *node, const char *word, size_t length)
{
    placed_tensor *const tensor = take(arena, 1, sizeof *tensor);
    const char *const end = word + length;
    const char *const sign = memchr(word, '=', length);
    const char *name = word;
    size_t name_length;

    if (sign == NULL)
        die("no tensor", word);
    tensor->is_buffer = *name == '~' || *name == '!';
    tensor->is_persistent = *name != '!';
    name += tensor->is_buffer;
    name_length = strcspn(name, ":#=");
    tensor->name = join(arena, node->path, copy_of(arena, name, name_length));
    tensor->dtype = BERTHI_NO_DTYPE;
    if (name[name_length] == ':')
        tensor->dtype = berthi_format_torch_dtype(
            name + name_length + 1, (uint64_t)(sign - name) - name_length - 1);
    if (name[name_length] == '#')
        tensor->memory = (uint32_t)strtoul(name + name_length + 1, NULL, 10);
    tensor->shape = take(arena, 8, sizeof *tensor->shape);
    tensor->elements = 1;
    for (const char *at = sign + 1; at < end && *at != '-';) {
        char *rest;

        tensor->shape[tensor->rank] = strtoull(at, &rest, 10);
        tensor->elements *= tensor->shape[tensor->rank++];
        at = rest + (*rest == 'x');
    }
    if (node->last_tensor == NULL)
        node->tensors = tensor;
    else
        node->last_tensor->next = tensor;
    node->last_tensor = tensor;
}

static placed_node *
add_node(berthi_arena *arena, placed_node *parent, const char *name, const char *rest)
{
    placed_node *const node = take(arena, 1, sizeof *node);
    const size_t length = strcspn(rest, " ");

    node->parent = parent;
    node->name = name;
    node->path = parent == NULL ? "" : join(arena, parent->path, name);
    node->class_name = copy_of(arena, rest, length);
    for (rest += length; *rest != '\0'; rest += strcspn(rest, " ")) {
        rest++;
        add_tensor(arena, node, rest, strcspn(rest, " "));
    }
    if (parent != NULL && parent->last_child != NULL)
        parent->last_child->next = node;
    else if (parent != NULL)
        parent->children = node;
    if (parent != NULL)
        parent->last_child = node;
    return node;
}

static size_t
depth_of(const char *line)
{
    return strspn(line, " ");
}

/* The nodes of [at, end), all of one depth and what is below them. */
static void
add_nodes(berthi_arena *arena, placed_node *parent, const char **at, const char **end)
{
    while (at < end) {
        const size_t depth = depth_of(*at);
        const char *const name = *at + depth;
        const size_t length = strcspn(name, " ");
        const char **behind = at + 1;
        size_t prefix;
        unsigned first = 0;
        unsigned last = 0;
        char number[16];

        while (behind < end && depth_of(*behind) > depth)
            behind++;
        if (!is_range(name, length, &prefix, &first, &last))
            add_nodes(arena,
                      add_node(arena, parent, copy_of(arena, name, length),
                               name + length + 1),
                      at + 1, behind);
        else
            for (; first <= last; first++) {
                snprintf(number, sizeof number, "%u", first);
                add_nodes(arena,
                          add_node(arena, parent, copy_of(arena, number, strlen(number)),
                                   name + length + 1),
                          at + 1, behind);
            }
        at = behind;
    }
}

placed_node *
placed_tree(berthi_arena *arena, const placed_record *record, const char *word)
{
    const char **at = record->lines;
    const char **end;
    placed_node *root;

    while (*at != NULL && strcmp(*at, word) != 0)
        at++;
    if (*at++ == NULL)
        return NULL;
    root = add_node(arena, NULL, "", *at + 2);
    for (end = ++at; *end != NULL && **end == ' ';)
        end++;
    add_nodes(arena, root, at, end);
    return root;
}

/* ---------------------------------------------------------------------- models */

typedef struct modelling {
    berthi_arena *arena;
    berthi_architecture *made;
    const char **no_split;
    int32_t dtype;
} modelling;

static bool
is_listed(const char **list, const char *word)
{
    for (; list != NULL && *list != NULL; list++)
        if (strcmp(*list, word) == 0)
            return true;
    return false;
}

static void
model_tensor(modelling *m, berthi_module *module, const placed_node *node,
             const placed_tensor *tensor)
{
    berthi_parameter *const p = take(m->arena, 1, sizeof *p);
    berthi_parameter **last =
        tensor->is_buffer ? &module->last_buffer : &module->last_parameter;
    const char *const dot = strrchr(tensor->name, '.');

    p->name = tensor->name;
    p->name_length = strlen(tensor->name);
    p->shape = tensor->shape;
    p->rank = tensor->rank;
    p->elements = tensor->elements;
    p->dtype = tensor->dtype == BERTHI_NO_DTYPE ? m->dtype : tensor->dtype;
    p->is_buffer = tensor->is_buffer;
    p->is_persistent = tensor->is_persistent;
    p->is_conv1d = strcmp(node->class_name, "Conv1D") == 0;
    p->is_linear = dot != NULL && strcmp(dot, ".weight") == 0
                   && (p->is_conv1d || strcmp(node->class_name, "Linear") == 0);
    p->module = module;
    if (*last != NULL)
        (*last)->next = p;
    else if (tensor->is_buffer)
        module->buffers = p;
    else
        module->parameters = p;
    *last = p;
    m->made->parameters[m->made->parameter_count++] = p;
}

static berthi_module *
model_node(modelling *m, berthi_module *parent, const placed_node *node)
{
    berthi_module *const module = take(m->arena, 1, sizeof *module);

    module->path = node->path;
    module->path_length = strlen(node->path);
    module->name = node->name;
    module->name_length = strlen(node->name);
    module->class_name = node->class_name;
    module->is_never_split = is_listed(m->no_split, node->class_name);
    module->kind = module->is_never_split ? BERTHI_MODULE_BLOCK : BERTHI_MODULE_PLAIN;
    module->parent = parent;
    for (const placed_tensor *t = node->tensors; t != NULL; t = t->next)
        model_tensor(m, module, node, t);
    for (const placed_node *child = node->children; child != NULL; child = child->next) {
        berthi_module *const made = model_node(m, module, child);

        if (module->last_child == NULL)
            module->children = made;
        else
            module->last_child->next = made;
        module->last_child = made;
    }
    return module;
}

static uint32_t
count_tensors(const placed_node *node)
{
    uint32_t count = 0;

    for (const placed_tensor *t = node->tensors; t != NULL; t = t->next)
        count++;
    for (const placed_node *child = node->children; child != NULL; child = child->next)
        count += count_tensors(child);
    return count;
}

static berthi_parameter *
find_parameter(const berthi_architecture *made, const char *name)
{
    for (uint32_t i = 0; i < made->parameter_count; i++)
        if (strcmp(made->parameters[i]->name, name) == 0)
            return made->parameters[i];
    die("no such parameter", name);
}

berthi_architecture *
placed_model(berthi_arena *arena, const placed_record *record, berthi_era era,
             int32_t dtype)
{
    modelling m = { .arena = arena, .made = take(arena, 1, sizeof *m.made) };
    const placed_node *const root = placed_tree(arena, record, "tree");

    m.dtype = dtype;
    m.no_split = placed_list(arena, placed_words(record, "no_split"));
    m.made->era = era;
    m.made->class_name = placed_words(record, "class");
    m.made->head = "";
    m.made->last_name = "";
    m.made->parameters = take(arena, count_tensors(root), sizeof *m.made->parameters);
    m.made->root = model_node(&m, NULL, root);
    m.made->no_placement = placed_list(arena, placed_words(record, "no_placement_params"));
    m.made->fp32 = placed_list(arena, placed_words(record, "keep_in_fp32"));
    m.made->fp32_strict = placed_list(arena, placed_words(record, "keep_in_fp32_strict"));
    for (uint32_t i = 0; placed_line(record, "tie", i) != NULL; i++) {
        const char **names = placed_list(arena, placed_line(record, "tie", i));
        berthi_parameter *const source = find_parameter(m.made, *names++);

        source->is_tie_source = true;
        for (; *names != NULL; names++)
            find_parameter(m.made, *names)->tie = source;
    }
    return m.made;
}

/* ----------------------------------------------------------------- small trees */

typedef struct small {
    berthi_tree *tree;
    const char **no_split;
    uint32_t first[256]; /* of each memory the first name, or BERTHI_NO_NODE */
    bool is_5x;
} small;

static void
small_tensors(small *s, uint32_t parent, const placed_node *node, bool is_buffer)
{
    for (const placed_tensor *t = node->tensors; t != NULL; t = t->next) {
        berthi_node_words words = { .name = t->name,
                                    .name_length = strlen(t->name),
                                    .bytes = (double)t->elements };
        uint32_t *const first = &s->first[t->memory];
        uint32_t added;

        if (t->is_buffer != is_buffer)
            continue;
        words.is_left_out = s->is_5x && *first != BERTHI_NO_NODE;
        added = berthi_tree_add(s->tree, parent,
                                is_buffer ? BERTHI_NODE_BUFFER : BERTHI_NODE_PARAMETER,
                                &words);
        if (*first == BERTHI_NO_NODE)
            *first = added;
        else
            berthi_tree_tie(s->tree, *first, added);
    }
}

static void
small_node(small *s, uint32_t parent, const placed_node *node)
{
    berthi_node_words words = { .name = node->path,
                                .name_length = strlen(node->path),
                                .class_number = BERTHI_NO_CLASS };
    uint32_t number;

    for (uint16_t i = 0; s->no_split[i] != NULL; i++)
        if (strcmp(s->no_split[i], node->class_name) == 0)
            words.class_number = i;
    number = berthi_tree_add(s->tree, parent, BERTHI_NODE_MODULE, &words);
    small_tensors(s, number, node, false);
    for (const placed_node *child = node->children; child != NULL; child = child->next)
        small_node(s, number, child);
    small_tensors(s, number, node, true);
}

void
placed_small(berth_context *context, berthi_arena *arena, const placed_record *record,
             bool is_5x, berthi_tree *out)
{
    small s = { .tree = out, .is_5x = is_5x };

    berthi_tree_init(out, context, 512);
    s.no_split = placed_list(arena, placed_words(record, "no_split"));
    for (uint32_t i = 0; i < 256; i++)
        s.first[i] = BERTHI_NO_NODE;
    small_node(&s, BERTHI_NO_NODE, placed_tree(arena, record, "tree"));
    out->has_classes = *s.no_split != NULL;
    if (berthi_tree_finish(out, NULL) != BERTH_OK)
        die("no tree", placed_words(record, "small"));
}

/* ----------------------------------------------------------------- checkpoints */

static void
collect(placed_checkpoint *c, const placed_node *node, const char **targets, int32_t dtype)
{
    for (const placed_tensor *t = node->tensors; t != NULL; t = t->next)
        if (t->is_persistent && !is_listed(targets, t->name))
            c->tensors[c->count++] = (berthi_model_tensor){
                .name = t->name,
                .name_length = strlen(t->name),
                .shape = t->shape,
                .rank = t->rank,
                .elements = t->elements,
                .dtype = t->dtype == BERTHI_NO_DTYPE ? dtype : t->dtype,
            };
    for (const placed_node *child = node->children; child != NULL; child = child->next)
        collect(c, child, targets, dtype);
}

static void
get_tensor(void *user, uint32_t position, berthi_model_tensor *out)
{
    const placed_checkpoint *const c = user;

    *out = c->tensors[position];
}

placed_checkpoint *
placed_tensors(berthi_arena *arena, const placed_record *record, int32_t dtype)
{
    placed_checkpoint *const c = take(arena, 1, sizeof *c);
    const placed_node *root = placed_tree(arena, record, "checkpoint");
    const char **const targets = take(arena, 4096, sizeof *targets);
    uint32_t count = 0;

    if (root == NULL) {
        root = placed_tree(arena, record, "tree");
        for (uint32_t i = 0; placed_line(record, "tie", i) != NULL; i++)
            for (const char **names =
                     placed_list(arena, placed_line(record, "tie", i)) + 1;
                 *names != NULL; names++)
                targets[count++] = *names;
    }
    c->tensors = take(arena, count_tensors(root), sizeof *c->tensors);
    collect(c, root, targets, dtype);
    c->source = (berthi_model_source){ c, c->count, get_tensor };
    return c;
}

/* ------------------------------------------------------------------ comparison */

static const struct {
    const char *name;
    const char *raised;
} refusals[] = {
    [BERTHI_REFUSAL_NONE] = { "none", "" },
    [BERTHI_REFUSAL_CLASS] = { "class", "ValueError" },
    [BERTHI_REFUSAL_NUMBER] = { "number", "KeyError" },
    [BERTHI_REFUSAL_DISK] = { "disk", "RuntimeError" },
    [BERTHI_REFUSAL_TIE] = { "tie", "IndexError" },
    [BERTHI_REFUSAL_OFFLOAD] = { "offload", "ValueError" },
};

const char *
placed_refusal(berthi_refusal refusal)
{
    return refusals[refusal].name;
}

const char *
placed_raised(berthi_refusal refusal)
{
    return refusals[refusal].raised;
}

/* The device of the map's line of this path; NULL: there is none. */
static const char *
find_placed(const berthi_imitation *imitation, const char *path, char *text)
{
    for (uint32_t i = 0; i < imitation->placed_count; i++)
        if (imitation->placed[i].path_length == strlen(path)
            && memcmp(imitation->placed[i].path, path, strlen(path)) == 0)
            return berthi_budget_name(
                &imitation->budgets.items[imitation->placed[i].device], text);
    return NULL;
}

const char *
placed_difference(berthi_arena *arena, const berthi_imitation *imitation,
                  const placed_record *record, const char *word)
{
    static char text[1024];
    uint32_t count = 0;

    for (uint32_t i = 0; placed_line(record, word, i) != NULL; i++) {
        const char **list = placed_list(arena, placed_line(record, word, i));
        const char *const device = *list++;
        char name[BERTHI_BUDGET_NAME];

        for (; *list != NULL; list++, count++) {
            const char *const found = find_placed(imitation, *list, name);

            if (found == NULL || strcmp(found, device) != 0) {
                snprintf(text, sizeof text, "\"%s\" lies on %s, not on %s", *list, device,
                         found == NULL ? "nothing" : found);
                return text;
            }
        }
    }
    if (count != imitation->placed_count) {
        snprintf(text, sizeof text, "%u lines, not %u", count, imitation->placed_count);
        return text;
    }
    return NULL;
}
