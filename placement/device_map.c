/* SPDX-License-Identifier: Apache-2.0 */
/* device_map.c - reading, asking and checking a plain device map. */
#include "placement/device_map.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/grow.h"
#include "kernels/utf8.h"
#include "placement/imitate.h"
#include "quant/scan.h"

#define ARENA_BLOCK 4096u
#define FIRST_LINES 64u
/* Names that a message lists before it only counts. */
#define SHOWN_NAMES 3u

/* ---------------------------------------------------------------------- order */

/* Bytewise, shorter first. */
static int
compare(const char *a, uint64_t a_length, const char *b, uint64_t b_length)
{
    const uint64_t shared = a_length < b_length ? a_length : b_length;
    const int order = shared > 0 ? memcmp(a, b, (size_t)shared) : 0;

    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

static bool
is_before(const berthi_map_line *lines, uint32_t a, uint32_t b)
{
    return compare(lines[a].path, lines[a].path_length, lines[b].path,
                   lines[b].path_length) < 0;
}

/* Lets the number at `at` sink in a heap with the last line on top. */
static void
sink(const berthi_map_line *lines, uint32_t *heap, uint32_t count, uint32_t at)
{
    const uint32_t number = heap[at];

    for (;;) {
        uint64_t child = 2 * (uint64_t)at + 1;

        if (child + 1 < count && is_before(lines, heap[child], heap[child + 1]))
            child++;
        if (child >= count || !is_before(lines, number, heap[child]))
            break;
        heap[at] = heap[child];
        at = (uint32_t)child;
    }
    heap[at] = number;
}

static void
sort_lines(const berthi_map_line *lines, uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = i;
    for (uint32_t i = count / 2; i-- > 0;)
        sink(lines, numbers, count, i);
    for (uint32_t i = count; i-- > 1;) {
        const uint32_t last = numbers[0];

        numbers[0] = numbers[i];
        numbers[i] = last;
        sink(lines, numbers, i, 0);
    }
}

/* ---------------------------------------------------------------------- making */

static void
init(berthi_device_map *map, berth_context *context)
{
    memset(map, 0, sizeof *map);
    berthi_arena_init(&map->arena, context, BERTHI_PURPOSE_OBJECT, ARENA_BLOCK);
}

static berth_status
fail_memory(berthi_device_map *map, berth_error *error)
{
    berthi_device_map_fini(map);
    return berthi_fail_memory(error, "a device map");
}

static bool
can_index(berthi_device_map *map)
{
    uint32_t *const numbers = berthi_arena_alloc(
        &map->arena, map->count * sizeof *numbers, sizeof *numbers);

    if (numbers == NULL)
        return false;
    sort_lines(map->lines, numbers, map->count);
    map->by_path = numbers;
    return true;
}

berth_status
berthi_device_map_make(berth_context *context, const berthi_map_line *lines,
                       uint32_t count, berthi_device_map *out, berth_error *error)
{
    berthi_map_line *copies;

    init(out, context);
    copies = berthi_arena_alloc(&out->arena, count * sizeof *copies, 8);
    if (copies == NULL)
        return fail_memory(out, error);
    for (uint32_t i = 0; i < count; i++) {
        copies[i] = lines[i];
        copies[i].path =
            berthi_arena_text(&out->arena, lines[i].path, lines[i].path_length);
        if (copies[i].path == NULL)
            return fail_memory(out, error);
    }
    out->lines = copies;
    out->count = count;
    return can_index(out) ? BERTH_OK : fail_memory(out, error);
}

void
berthi_device_map_fini(berthi_device_map *map)
{
    berthi_arena_fini(&map->arena);
    map->lines = NULL;
    map->by_path = NULL;
    map->count = 0;
}

/* --------------------------------------------------------------------- reading */

typedef struct reading {
    berthi_device_map *map;
    berthi_scan scan;
    const char *file;
    berth_error *error;
    berth_status status;    /* of what the scanner does not know about */
    uint64_t capacity; /* lines of the map */
} reading;

/* Returns false. */
static bool
lack_memory(reading *r)
{
    r->status = berthi_fail_memory(r->error, "a device map");
    return false;
}

/* Twice as many lines as before; the arena gives old ones back with all else. */
static bool
can_grow(reading *r)
{
    const berthi_growth growth = { .size = sizeof *r->map->lines,
                                   .used = r->map->count,
                                   .before = r->capacity,
                                   .after = berthi_grown(r->capacity, FIRST_LINES) };
    berthi_map_line *const lines =
        berthi_arena_grow(&r->map->arena, r->map->lines, &growth);

    if (lines == NULL)
        return lack_memory(r);
    r->capacity = growth.after;
    r->map->lines = lines;
    return true;
}

/* A value that is none of the tiers; `text`: as it stands in the file. */
static void
refuse_tier(reading *r, const berthi_scan_text *path, uint64_t position,
            const berthi_scan_text *text)
{
    char shown[64];

    berth_text_escape(text->bytes, (size_t)text->length, shown, sizeof shown);
    r->status = berthi_fail(r->error, BERTH_REASON_DEVICE_MAP,
                            &(berthi_about){ .file = r->file,
                                             .tensor = path->bytes,
                                             .tensor_length = (size_t)path->length,
                                             .has = BERTH_HAS_POSITION,
                                             .position = position },
                            "is put on %s, which is no device: a whole number from 0 on, "
                            "\"cuda:0\", \"cpu\" or \"disk\"", shown);
}

static bool
can_read_tier(reading *r, const berthi_scan_text *path, berthi_tier *out)
{
    const berthi_scan_kind kind = berthi_scan_peek(&r->scan);
    const uint64_t position = r->scan.position;
    berthi_scan_text text;

    if (kind == BERTHI_SCAN_STRING) {
        if (!berthi_scan_can_read_string(&r->scan, &text))
            return false;
    } else if (kind == BERTHI_SCAN_NUMBER) {
        if (!berthi_scan_can_read_number(&r->scan, &text))
            return false;
    } else {
        return berthi_scan_refuse(&r->scan, "the next value is no device");
    }
    if (berthi_tier_can_parse(text.bytes, text.length, out))
        return true;
    refuse_tier(r, path, position, &text);
    return false;
}

static bool
can_read_line(reading *r, const berthi_scan_text *path)
{
    berthi_map_line *line;

    if (r->map->count == r->capacity && !can_grow(r))
        return false;
    if (memchr(path->bytes, '\0', (size_t)path->length) != NULL)
        return berthi_scan_refuse(&r->scan, "the name of a module holds a NUL");
    line = &r->map->lines[r->map->count];
    line->path_length = path->length;
    line->path = berthi_arena_text(&r->map->arena, path->bytes, path->length);
    if (line->path == NULL)
        return lack_memory(r);
    if (!can_read_tier(r, path, &line->tier))
        return false;
    r->map->count++;
    return true;
}

static bool
can_read_object(reading *r)
{
    berthi_scan_text path;

    if (!berthi_scan_can_enter_object(&r->scan))
        return false;
    while (berthi_scan_has_next_member(&r->scan, &path))
        if (!can_read_line(r, &path))
            return false;
    return berthi_scan_can_finish(&r->scan);
}

static berth_status
fail_line(const berthi_map_line *line, const char *file, const char *problem,
          berth_error *error)
{
    const berthi_about about = { .file = file,
                                 .tensor = line->path,
                                 .tensor_length = (size_t)line->path_length };

    return berthi_fail(error, BERTH_REASON_DEVICE_MAP, &about, "%s", problem);
}

/* Python keeps the last of two; whoever wrote the map meant one of them. */
static berth_status
check_unique(const berthi_device_map *map, const char *file, berth_error *error)
{
    for (uint32_t i = 1; i < map->count; i++)
        if (!is_before(map->lines, map->by_path[i - 1], map->by_path[i]))
            return fail_line(&map->lines[map->by_path[i]], file,
                             "is in the device map twice", error);
    return BERTH_OK;
}

static berth_status
read_map(reading *r, uint64_t bytes)
{
    const size_t valid =
        berthi_utf8_check((const unsigned char *)r->scan.text, (size_t)bytes);

    if (valid < bytes) {
        r->scan.position = valid;
        berthi_scan_refuse(&r->scan, "not UTF-8");
    } else if (can_read_object(r)) {
        return can_index(r->map) ? check_unique(r->map, r->file, r->error)
                                 : berthi_fail_memory(r->error, "a device map");
    }
    if (r->status != BERTH_OK)
        return r->status;
    return berthi_fail(r->error, BERTH_REASON_DEVICE_MAP,
                       &(berthi_about){ .file = r->file,
                                        .has = BERTH_HAS_POSITION,
                                        .position = r->scan.problem_at },
                       "%s", r->scan.problem);
}

berth_status
berthi_device_map_parse(berth_context *context, char *text, uint64_t bytes,
                        const char *file, berthi_device_map *out, berth_error *error)
{
    reading r = { .map = out, .file = file, .error = error };
    berth_status status;

    init(out, context);
    berthi_scan_init(&r.scan, text, bytes, 0);
    status = read_map(&r, bytes);
    if (status != BERTH_OK)
        berthi_device_map_fini(out);
    return status;
}

/* ---------------------------------------------------------------------- asking */

/* The line of exactly this path; NULL: none. */
static const berthi_map_line *
find_exactly(const berthi_device_map *map, const char *path, uint64_t length)
{
    uint32_t first = 0;
    uint32_t end = map->count;

    while (first < end) {
        const uint32_t middle = first + (end - first) / 2;
        const berthi_map_line *const line = &map->lines[map->by_path[middle]];
        const int order = compare(line->path, line->path_length, path, length);

        if (order == 0)
            return line;
        if (order < 0)
            first = middle + 1;
        else
            end = middle;
    }
    return NULL;
}

/* The length of a path without its last component. */
static uint64_t
parent_length(const char *path, uint64_t length)
{
    while (length > 0 && path[length - 1] != '.')
        length--;
    return length > 0 ? length - 1 : 0;
}

const berthi_map_line *
berthi_device_map_find(const berthi_device_map *map, const char *name, uint64_t length)
{
    const berthi_map_line *line = find_exactly(map, name, length);

    while (line == NULL && length > 0) {
        length = parent_length(name, length);
        line = find_exactly(map, name, length);
    }
    return line;
}

/* -------------------------------------------------------------------- checking */

typedef struct checking {
    const berthi_device_map *map;
    const berthi_architecture *model;
    void (*stray)(void *user, const char *path, uint64_t length, const char *problem);
    void *user;
    const berthi_parameter *first; /* without a line */
    uint64_t count;                /* of them */
    char names[3 * BERTH_NAME_CAPACITY];
    size_t length; /* of `names` */
} checking;

/* The first one is what the error is about; others follow in its message. */
static void
note_missing(checking *c, const berthi_parameter *p)
{
    char name[BERTH_NAME_CAPACITY];

    if (c->count++ == 0)
        c->first = p;
    if (c->count == 1 || c->count > SHOWN_NAMES)
        return;
    berth_text_escape(p->name, (size_t)p->name_length, name, sizeof name);
    c->length += (size_t)snprintf(c->names + c->length, sizeof c->names - c->length,
                                  ", %s", name);
}

/* Names of one memory have lines; they differ in where they lead. */
static bool
is_torn(const berthi_device_map *map, const berthi_map_line *line,
        const berthi_parameter *p)
{
    const berthi_map_line *const other =
        p->tie != NULL ? berthi_device_map_find(map, p->tie->name, p->tie->name_length)
                       : NULL;

    return other != NULL && berthi_tier_compare(&line->tier, &other->tier) != 0;
}

/* In the order of the model's modules, so that the first ones are the first ones. */
static void
check_tensors(checking *c, const berthi_parameter *p)
{
    for (; p != NULL; p = p->next) {
        const berthi_map_line *const line =
            berthi_device_map_find(c->map, p->name, p->name_length);

        if (line != NULL && is_torn(c->map, line, p))
            c->stray(c->user, p->name, p->name_length,
                     "shares its memory with a tensor that the device map puts elsewhere");
        if (line == NULL && (!p->is_buffer || p->is_persistent)
            && !berthi_count_is_escaping(c->model, p))
            note_missing(c, p);
    }
}

/* True for "" and for paths of modules and names of tensors. */
static bool
is_in_model(const berthi_architecture *model, const berthi_map_line *line)
{
    const berthi_module *module = model->root;

    while (module != NULL && module->path_length != line->path_length) {
        const berthi_module *child = module->children;

        while (child != NULL
               && (child->path_length > line->path_length
                   || memcmp(child->path, line->path, (size_t)child->path_length) != 0
                   || (child->path_length < line->path_length
                       && line->path[child->path_length] != '.')))
            child = child->next;
        module = child;
    }
    return module != NULL
           || berthi_architecture_find(model, line->path, line->path_length) != NULL;
}

static berth_status
fail_missing(const checking *c, const char *file, berth_error *error)
{
    const uint64_t shown = c->count < SHOWN_NAMES ? c->count : SHOWN_NAMES;
    const berthi_about about = {
        .file = file,
        .tensor = c->first->name,
        .tensor_length = (size_t)c->first->name_length,
    };
    char more[48] = "";

    if (c->count > shown)
        snprintf(more, sizeof more, " and %" PRIu64 " more", c->count - shown);
    return berthi_fail(error, BERTH_REASON_DEVICE_MAP, &about,
                       "has no line in the device map%s%s%s; a line \"\" takes all that "
                       "others do not", shown > 1 ? ", nor have" : "",
                       shown > 1 ? c->names + 1 : "", more);
}

static const char names_nothing[] = "names nothing in the model";

/* A line of a model that is known: whoever wrote it meant another one. */
static berth_status
check_lines(const berthi_device_map *map, const berthi_architecture *model,
            const char *file, berth_error *error)
{
    for (uint32_t i = 0; i < map->count; i++)
        if (!is_in_model(model, &map->lines[i]))
            return fail_line(&map->lines[i], file, names_nothing, error);
    return BERTH_OK;
}

static void
leave_out_strays(const checking *c, berthi_device_map *map)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < map->count; i++)
        if (is_in_model(c->model, &map->lines[i]))
            map->lines[count++] = map->lines[i];
        else
            c->stray(c->user, map->lines[i].path, map->lines[i].path_length,
                     names_nothing);
    map->count = count;
    sort_lines(map->lines, map->by_path, count);
}

berth_status
berthi_device_map_check(berthi_device_map *map, const berthi_architecture *model,
                        const char *file,
                        void (*stray)(void *user, const char *path, uint64_t length,
                                      const char *problem),
                        void *user, berth_error *error)
{
    checking c = { .map = map, .model = model, .stray = stray, .user = user };
    berth_status status = BERTH_OK;

    if (model->is_approximate)
        leave_out_strays(&c, map);
    else
        status = check_lines(map, model, file, error);
    if (status != BERTH_OK)
        return status;
    for (const berthi_module *m = model->root; m != NULL; m = berthi_module_after(m)) {
        check_tensors(&c, m->parameters);
        check_tensors(&c, m->buffers);
    }
    return c.count == 0 ? BERTH_OK : fail_missing(&c, file, error);
}
