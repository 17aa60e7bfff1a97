/* SPDX-License-Identifier: Apache-2.0 */
/* found.c - see found.h */
#include "tests/gpu/found.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool
has_read_all(const char *path, gpu_found *f)
{
    FILE *const file = fopen(path, "r");
    long length = 0;

    if (file == NULL)
        return false;
    if (fseek(file, 0, SEEK_END) == 0)
        length = ftell(file);
    rewind(file);
    f->text = length >= 0 ? calloc(1, (size_t)length + 1) : NULL;
    if (f->text != NULL)
        f->bytes = fread(f->text, 1, (size_t)length, file);
    fclose(file);
    return f->text != NULL;
}

bool
gpu_found_open(gpu_found *f, const char *path)
{
    const berthi_json_origin origin = { BERTH_REASON_UNSUPPORTED, path };
    berth_error error;

    *f = (gpu_found){ 0 };
    if (!has_read_all(path, f)) {
        perror(path);
        return false;
    }
    f->documents = calloc(f->bytes + 1, sizeof *f->documents);
    if (f->documents == NULL || berth_context_create(NULL, &f->context, &error) != BERTH_OK)
        return false;
    for (char *line = f->text; line < f->text + f->bytes;) {
        const size_t length = strcspn(line, "\n");

        if (length > 0
            && berthi_json_parse(f->context, line, length, 0, &origin, &f->documents[f->count],
                                 &error)
                   != BERTH_OK) {
            fprintf(stderr, "gpu_check: %s\n", error.message);
            return false;
        }
        f->count += length > 0;
        line += length + 1;
    }
    return true;
}

void
gpu_found_close(gpu_found *f)
{
    for (uint64_t i = 0; i < f->count; i++)
        berthi_json_destroy(f->documents[i]);
    free(f->documents);
    free(f->text);
    berth_context_destroy(f->context);
}

const berthi_json_value *
gpu_found_at(const gpu_found *f, uint64_t i)
{
    return berthi_json_root(f->documents[i]);
}

const berthi_json_value *
gpu_found_speed(const gpu_found *f, const char *name)
{
    for (uint64_t i = 0; i < f->count; i++) {
        const berthi_json_value *const row = gpu_found_at(f, i);

        if (gpu_is_kind(row, "speed") && strcmp(gpu_text_of(row, "name"), name) == 0)
            return row;
    }
    return NULL;
}

const char *
gpu_text_of(const berthi_json_value *value, const char *key)
{
    const char *text = "";

    (void)berthi_json_can_read_string(berthi_json_get(value, key), &text);
    return text;
}

double
gpu_number_of(const berthi_json_value *value, const char *key)
{
    double number = 0.0;

    (void)berthi_json_can_read_double(berthi_json_get(value, key), &number);
    return number;
}

bool
gpu_is_kind(const berthi_json_value *row, const char *kind)
{
    return strcmp(gpu_text_of(row, "kind"), kind) == 0;
}
