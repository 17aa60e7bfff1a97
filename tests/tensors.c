/* SPDX-License-Identifier: Apache-2.0 */
/* tensors.c - a checkpoint that exists in a few lines only; see tensors.h. */
#include "tests/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/tables.h"
#include "quant/config.h"
#include "quant/format.h"
#include "tests/opened.h"

static void *
must(void *memory)
{
    if (memory == NULL)
        exit(99);
    return memory;
}

static char *
copy_text(const char *text, size_t length)
{
    char *const copy = must(malloc(length + 1));

    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

/* ------------------------------------------------------------------ building */

void
tensors_add_one(tensors *t, const char *name, int32_t dtype, uint32_t rank,
                const uint64_t *shape, const void *data)
{
    tensors_one *one;

    if ((t->count & (t->count - 1)) == 0)
        t->all = must(realloc(t->all, (t->count == 0 ? 1 : t->count * 2)
                                          * sizeof *t->all));
    one = &t->all[t->count++];
    memset(one, 0, sizeof *one);
    one->name = copy_text(name, strlen(name));
    one->dtype = dtype;
    one->rank = rank;
    memcpy(one->shape, shape, rank * sizeof *shape);
    if (!berthi_format_can_count(shape, rank, &one->elements)
        || !berthi_format_can_size(dtype, one->elements, &one->bytes))
        exit(99);
    if (data != NULL)
        one->data = memcpy(must(malloc(one->bytes + 1)), data, one->bytes);
}

/* "2x3" or "-"; returns the rank. */
static uint32_t
parse_shape(const char *text, uint64_t *shape)
{
    uint32_t rank = 0;
    char *end;

    if (*text == '-')
        return 0;
    for (;; text = end + 1) {
        shape[rank++] = strtoull(text, &end, 10);
        if (*end != 'x')
            return rank;
    }
}

static void
add_expected(tensors *t, const char *encoding, const char *shape, const char *name)
{
    tensors_expected *one;

    t->expected = must(realloc(t->expected,
                               (t->expected_count + 1) * sizeof *t->expected));
    one = &t->expected[t->expected_count++];
    one->encoding = copy_text(encoding, strlen(encoding));
    one->name = copy_text(name, strlen(name));
    one->rank = parse_shape(shape, one->shape);
}

static void
add_line(tensors *t, char *line)
{
    char *const dtype = strtok(line, " ");
    char *const dims = strtok(NULL, " ");
    char *const name = strtok(NULL, " ");
    char *const data = strtok(NULL, "");
    uint64_t shape[TENSORS_MAX_RANK];
    const void *bytes = data;
    uint32_t rank;

    if (name == NULL)
        return;
    if (*dtype == '>') {
        add_expected(t, dims, name, data);
        return;
    }
    if (*dims == '*') {
        rank = 1;
        shape[0] = data == NULL ? 0 : strlen(data);
    } else {
        rank = parse_shape(dims, shape);
    }
    if (data != NULL && strcmp(data, "nf4") == 0)
        bytes = berthi_nf4_values;
    else if (data != NULL && strcmp(data, "fp4") == 0)
        bytes = berthi_fp4_values;
    else if (data != NULL && strcmp(data, "signed") == 0)
        bytes = berthi_signed_map;
    else if (data != NULL && *data == '\\')
        *data = (char)strtol(data + 1, NULL, 10);
    tensors_add_one(t, name, berthi_format_dtype(dtype, strlen(dtype)), rank, shape, bytes);
}

void
tensors_add(tensors *t, const char *lines)
{
    while (*lines != '\0') {
        const size_t length = strcspn(lines, "\n");
        char *const line = copy_text(lines, length);

        add_line(t, line);
        free(line);
        lines += length + (lines[length] == '\n');
    }
}

tensors *
tensors_create(const char *lines)
{
    tensors *const t = must(calloc(1, sizeof *t));

    t->unreadable = UINT32_MAX;
    tensors_add(t, lines);
    return t;
}

void
tensors_add_4bit(tensors *t, const char *name, const char *type, uint64_t rows,
                 uint64_t columns, bool is_double)
{
    const uint64_t n = rows * columns;
    const uint64_t blocks = (n + 63) / 64;
    char lines[2048];
    char nested[200] = "";

    if (is_double)
        snprintf(nested, sizeof nested, ", \"nested_blocksize\": 256, \"nested_dtype\": "
                                        "\"float32\", \"nested_offset\": 0.5");
    snprintf(lines, sizeof lines,
             "U8 %" PRIu64 "x1 %s\n"
             "%s %" PRIu64 " %s.absmax\n"
             "F32 16 %s.quant_map %s\n"
             "U8 * %s.quant_state.bitsandbytes__%s {\"quant_type\": \"%s\", \"blocksize\": "
             "64, \"dtype\": \"bfloat16\", \"shape\": [%" PRIu64 ", %" PRIu64 "]%s}\n",
             (n + 1) / 2, name, is_double ? "U8" : "F32", blocks, name, name, type, name,
             type, type, rows, columns, nested);
    tensors_add(t, lines);
    if (!is_double)
        return;
    snprintf(lines, sizeof lines,
             "F32 %" PRIu64 " %s.nested_absmax\nF32 256 %s.nested_quant_map signed\n",
             (blocks + 255) / 256, name, name);
    tensors_add(t, lines);
}

void
tensors_add_int8(tensors *t, const char *module, uint64_t rows, uint64_t columns)
{
    char lines[1024];

    snprintf(lines, sizeof lines,
             "I8 %" PRIu64 "x%" PRIu64 " %s.weight\nF32 %" PRIu64
             " %s.SCB\nU8 - %s.weight_format\n",
             rows, columns, module, rows, module, module);
    tensors_add(t, lines);
}

static void
free_one(tensors_one *one)
{
    free(one->name);
    free(one->data);
}

void
tensors_remove(tensors *t, const char *name)
{
    tensors_one *const one = tensors_find(t, name);

    if (one == NULL)
        exit(99);
    free_one(one);
    *one = t->all[--t->count];
    t->all = must(realloc(t->all, 2 * (t->count + 1) * sizeof *t->all));
}

tensors_one *
tensors_find(tensors *t, const char *name)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (strcmp(t->all[i].name, name) == 0)
            return &t->all[i];
    return NULL;
}

void
tensors_destroy(tensors *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        free_one(&t->all[i]);
    for (uint32_t i = 0; i < t->expected_count; i++) {
        free(t->expected[i].name);
        free(t->expected[i].encoding);
    }
    berthi_classify_fini(&t->result);
    free(t->all);
    free(t->expected);
    free(t);
}

/* ------------------------------------------------------------------- running */

static void
get(void *user, uint64_t position, berthi_classify_tensor *out)
{
    tensors *const t = user;
    const tensors_one *const one = &t->all[position];

    t->gets++;
    out->name = one->name;
    out->name_length = strlen(one->name);
    out->elements = one->elements;
    out->bytes = one->bytes;
    out->dtype = one->dtype;
    out->rank = one->rank;
}

static void
get_shape(void *user, uint64_t position, uint64_t *shape)
{
    tensors *const t = user;

    t->shapes++;
    memcpy(shape, t->all[position].shape, t->all[position].rank * sizeof *shape);
}

static const char *
get_file(void *user, uint64_t position)
{
    (void)user;
    (void)position;
    return "m/model.safetensors";
}

static berth_status
read_data(void *user, uint64_t position, void *buffer, uint64_t bytes, berth_error *error)
{
    tensors *const t = user;
    const tensors_one *const one = &t->all[position];

    t->reads++;
    if (position == t->unreadable)
        return berthi_fail(error, BERTH_REASON_IO, NULL, "cannot read");
    if (bytes != one->bytes || bytes == 0 || bytes > BERTHI_COMPANION_LIMIT)
        exit(99);
    if (one->data != NULL)
        memcpy(buffer, one->data, bytes);
    else
        memset(buffer, 0, bytes);
    return BERTH_OK;
}

static void
mark(void *user, uint64_t position, int32_t encoding, uint32_t record)
{
    tensors *const t = user;
    tensors_one *const one = &t->all[position];

    one->encoding = encoding;
    one->record = record;
    one->marks++;
}

static void
find(void *user, const berth_finding *finding)
{
    tensors *const t = user;

    opened_check_finding(finding);
    if (t->finding_count < TENSORS_FINDINGS) {
        t->severities[t->finding_count] = finding->severity;
        t->findings[t->finding_count] = *finding->details;
    }
    t->finding_count++;
}

static int
compare_names(const void *a, const void *b)
{
    return strcmp(((const tensors_one *)a)->name, ((const tensors_one *)b)->name);
}

berth_status
tensors_run(tensors *t, berth_context *context, const char *config, bool keep_going)
{
    const berthi_classify_source source = {
        .user = t, .count = t->count, .get = get, .shape = get_shape, .file = get_file,
        .read = read_data, .mark = mark, .finding = find, .finding_user = t,
        .keep_going = keep_going,
    };
    berthi_config parsed;

    berthi_classify_fini(&t->result);
    if (t->count > 1)
        qsort(t->all, t->count, sizeof *t->all, compare_names);
    for (uint32_t i = 0; i < t->count; i++) {
        t->all[i].encoding = BERTH_ENCODING_NATIVE;
        t->all[i].record = BERTHI_NO_RECORD;
        t->all[i].marks = 0;
    }
    t->finding_count = 0;
    t->gets = 0;
    t->shapes = 0;
    t->reads = 0;
    memset(&t->error, 0, sizeof t->error);
    if (config != NULL
        && berthi_config_parse(context, config, strlen(config), "c", &parsed, &t->error)
               != BERTH_OK)
        return t->status = t->error.status;
    t->status = berthi_classify_run(context, &source, config != NULL ? &parsed : NULL,
                                    &t->result, &t->error);
    if (config != NULL)
        berthi_config_fini(&parsed);
    return t->status;
}

const berthi_quantized *
tensors_record(tensors *t, const char *name)
{
    const tensors_one *const one = tensors_find(t, name);

    if (one == NULL || one->record >= t->result.count
        || one->encoding == BERTH_ENCODING_STATISTICS)
        return NULL;
    return berthi_classify_record(&t->result, one->record);
}

const char *
tensors_shape(const berthi_quantized *record)
{
    static char text[200];
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < record->rank; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%" PRIu64,
                                   i > 0 ? "x" : "", record->shape[i]);
    return text;
}
