/* SPDX-License-Identifier: Apache-2.0 */
/* models.c - reading model lines; see models.h. */
#define _XOPEN_SOURCE 700

#include "tests/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"
#include "tests/fixture.h"

static _Noreturn void
die(const char *what, const char *about)
{
    fprintf(stderr, "models: %s: %s\n", what, about);
    exit(99);
}

static void *
grown(void *items, uint32_t count, size_t size)
{
    void *const larger = realloc(items, ((size_t)count + 1) * size);

    if (larger == NULL)
        die("out of memory", "");
    return larger;
}

static char *
copy_of(const char *text)
{
    char *const copy = strdup(text);

    if (copy == NULL)
        die("out of memory", "");
    return copy;
}

/* "BF16 160x64 name" */
static void
add_tensor(model *m, int32_t dtype, char *rest)
{
    uint64_t *const shape = calloc(BERTH_MAX_RANK, sizeof *shape);
    char *name = strchr(rest, ' ');
    berthi_model_tensor tensor = { .shape = shape, .dtype = dtype, .elements = 1 };

    if (shape == NULL || name == NULL)
        die("no tensor", rest);
    *name++ = '\0';
    tensor.name = copy_of(name);
    tensor.name_length = strlen(name);
    while (*rest >= '0' && *rest <= '9') {
        shape[tensor.rank] = strtoull(rest, &rest, 10);
        tensor.elements *= shape[tensor.rank++];
        rest += *rest == 'x';
    }
    m->tensors = grown(m->tensors, m->tensor_count, sizeof tensor);
    m->tensors[m->tensor_count++] = tensor;
}

static void
read_config(berth_context *context, model *m, const char *text)
{
    const berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, "config.json" };
    berth_error error;

    if (berthi_json_parse(context, text, strlen(text), BERTHI_JSON_NONFINITE, &origin,
                          &m->document, &error) != BERTH_OK)
        die(error.message, text);
}

static void
read_line(berth_context *context, model *m, char *line)
{
    char *const rest = strchr(line, ' ');
    const size_t word = strcspn(line, " ");
    int32_t dtype = berthi_format_dtype(line, word);

    if (dtype != BERTHI_NO_DTYPE && rest != NULL) {
        add_tensor(m, dtype, rest + 1);
    } else if (strncmp(line, "class ", 6) == 0) {
        snprintf(m->class_name, sizeof m->class_name, "%s", rest + 1);
    } else if (strncmp(line, "type ", 5) == 0) {
        snprintf(m->model_type, sizeof m->model_type, "%s", rest + 1);
    } else if (strncmp(line, "dtype ", 6) == 0) {
        m->dtype = berthi_format_dtype_word(rest + 1);
    } else if (strncmp(line, "config ", 7) == 0) {
        read_config(context, m, rest + 1);
    } else {
        m->lines = grown(m->lines, m->line_count, sizeof *m->lines);
        m->lines[m->line_count++] = copy_of(line);
    }
}

static void
get(void *user, uint32_t position, berthi_model_tensor *out)
{
    *out = ((const berthi_model_tensor *)user)[position];
}

bool
model_read(berth_context *context, const char **text, model *out)
{
    bool has_line = false;

    memset(out, 0, sizeof *out);
    out->dtype = BERTH_BF16;
    while (**text != '\0') {
        const size_t length = strcspn(*text, "\n");
        char *const line = strndup(*text, length);
        const bool is_end = line != NULL && strcmp(line, "end") == 0;

        if (line == NULL)
            die("out of memory", "");
        *text += length + ((*text)[length] == '\n');
        if (!is_end && *line != '\0') {
            read_line(context, out, line);
            has_line = true;
        }
        free(line);
        if (is_end)
            break;
    }
    out->source = (berthi_model_source){ out->tensors, out->tensor_count, get };
    return has_line;
}

char *
model_file(const char *name)
{
    return fixture_read(fixture_format("tests/data/models/%s", name), NULL);
}

void
model_fini(model *m)
{
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        free((char *)m->tensors[i].name);
        free((uint64_t *)m->tensors[i].shape);
    }
    for (uint32_t i = 0; i < m->line_count; i++)
        free(m->lines[i]);
    free(m->tensors);
    free(m->lines);
    berthi_json_destroy(m->document);
}

uint32_t
model_position(const model *m, const char *name)
{
    for (uint32_t i = 0; i < m->tensor_count; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return i;
    die("no such tensor", name);
}

berthi_architecture_options
model_options(const model *m, berthi_era era)
{
    return (berthi_architecture_options){
        .class_name = m->class_name,
        .model_type = m->model_type,
        .config = m->document != NULL ? berthi_json_root(m->document) : NULL,
        .config_file = "config.json",
        .era = era,
        .dtype = m->dtype,
    };
}

berthi_architecture *
model_architecture(berth_context *context, const model *m, berthi_era era)
{
    const berthi_architecture_options options = model_options(m, era);
    berthi_architecture *made;
    berth_error error;

    if (berthi_architecture_create(context, &options, &m->source, &made, &error)
        != BERTH_OK)
        die(error.message, m->class_name);
    return made;
}
