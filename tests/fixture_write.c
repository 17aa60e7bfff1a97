/* SPDX-License-Identifier: Apache-2.0 */
/* fixture_write.c - a second, independent writer of safetensors files and indexes. */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/tables.h"
#include "loader/berth.h"
#include "tests/fixture.h"

typedef struct tensor {
    char *name;
    int dtype; /* rank in the list of berth.h: the order of files */
    uint32_t rank;
    uint64_t *shape;
    uint64_t bytes;
    void *data; /* NULL: the name's payload */
    bool is_sparse;
} tensor;

typedef struct pair {
    char *key;
    char *value;
} pair;

struct fixture_builder {
    tensor *tensors;
    size_t tensor_count;
    size_t tensor_room;
    pair *pairs;
    size_t pair_count;
    bool keeps_order;
};

static const struct {
    const char *name;
    unsigned bits;
} dtypes[] = {
#define DTYPE_ROW(identifier, name, bits) { name, bits },
    BERTH_DTYPES(DTYPE_ROW)
#undef DTYPE_ROW
};

static _Noreturn void
die(const char *what, const char *about)
{
    fprintf(stderr, "fixture: %s: %s\n", what, about);
    exit(99);
}

static void *
room(void *old, size_t bytes)
{
    void *memory = realloc(old, bytes > 0 ? bytes : 1);

    if (memory == NULL)
        die("no memory", "builder");
    return memory;
}

static void *
duplicate(const void *bytes, size_t length)
{
    return memcpy(room(NULL, length + 1), bytes, length);
}

static char *
duplicate_text(const char *text)
{
    return duplicate(text, strlen(text) + 1);
}

void
fixture_payload(const char *name, uint64_t offset, void *bytes, size_t length)
{
    uint8_t *out = bytes;
    uint32_t seed = 2166136261u;

    for (const char *p = name; *p != '\0'; p++)
        seed = (seed ^ (uint8_t)*p) * 16777619u;
    for (size_t i = 0; i < length; i++) {
        uint32_t x = seed + (uint32_t)((offset + i) >> 2) * 2654435761u;

        x ^= x >> 15;
        x *= 2246822519u;
        x ^= x >> 13;
        out[i] = (uint8_t)(x >> 8 * ((offset + i) & 3));
    }
}

/* ------------------------------------------------------------------- builder */

fixture_builder *
fixture_begin(void)
{
    fixture_builder *builder = room(NULL, sizeof *builder);

    memset(builder, 0, sizeof *builder);
    return builder;
}

void
fixture_keep_order(fixture_builder *builder)
{
    builder->keeps_order = true;
}

static tensor *
add(fixture_builder *builder, const char *name, const char *dtype, uint32_t rank,
    const uint64_t *shape)
{
    tensor *new;
    uint64_t elements = 1;

    if (builder->tensor_count == builder->tensor_room) {
        builder->tensor_room = builder->tensor_room * 2 + 16;
        builder->tensors = room(builder->tensors,
                                builder->tensor_room * sizeof *builder->tensors);
    }
    new = &builder->tensors[builder->tensor_count++];
    memset(new, 0, sizeof *new);
    while (strcmp(dtypes[new->dtype].name, dtype) != 0)
        if (++new->dtype == BERTH_DTYPE_COUNT)
            die("no such dtype", dtype);
    for (uint32_t i = 0; i < rank; i++)
        elements *= shape[i];
    new->name = duplicate_text(name);
    new->rank = rank;
    new->shape = rank == 0 ? NULL : duplicate(shape, rank * sizeof *shape);
    new->bytes = elements * dtypes[new->dtype].bits / 8;
    return new;
}

void
fixture_add(fixture_builder *builder, const char *name, const char *dtype, uint32_t rank,
            const uint64_t *shape, const void *data)
{
    tensor *new = add(builder, name, dtype, rank, shape);

    if (data != NULL)
        new->data = duplicate(data, (size_t)new->bytes);
}

void
fixture_add_sparse(fixture_builder *builder, const char *name, const char *dtype,
                   uint32_t rank, const uint64_t *shape)
{
    add(builder, name, dtype, rank, shape)->is_sparse = true;
}

static void
add_pair(fixture_builder *builder, const char *key, const char *value)
{
    builder->pairs = room(builder->pairs, (builder->pair_count + 1) * sizeof(pair));
    builder->pairs[builder->pair_count].key = duplicate_text(key);
    builder->pairs[builder->pair_count++].value = duplicate_text(value);
}

/* To the last digit, which a double does not have. */
static void
fill_integers(tensor *to, const char *values, size_t width)
{
    char *end = NULL;
    int64_t value = 0;

    for (size_t at = 0; at + width <= to->bytes; at += width) {
        const int64_t next = strtoll(values, &end, 10);
        int32_t narrow;

        if (end != values)
            value = next;
        values = end;
        narrow = (int32_t)value;
        memcpy((char *)to->data + at, width == 8 ? (void *)&value : (void *)&narrow, width);
    }
}

/* Values of a line as the dtype's bytes; the last one fills what is left. */
static void
fill_values(tensor *to, const char *values)
{
    const size_t width = dtypes[to->dtype].bits / 8;
    char *end = NULL;
    double value = 0;

    to->data = room(NULL, (size_t)to->bytes);
    if (strcmp(dtypes[to->dtype].name, "I64") == 0
        || strcmp(dtypes[to->dtype].name, "I32") == 0) {
        fill_integers(to, values, width);
        return;
    }
    for (size_t at = 0; at + width <= to->bytes; at += width) {
        const double next = strtod(values, &end);
        const float single = (float)(end == values ? value : next);

        if (end != values)
            value = next;
        values = end;
        if (strcmp(dtypes[to->dtype].name, "F32") == 0)
            memcpy((char *)to->data + at, &single, 4);
        else if (width == 1)
            ((uint8_t *)to->data)[at] = (uint8_t)(int)value;
        else
            die("values are for F32, I64, I32 and bytes only", to->name);
    }
}

/* "DTYPE DIMS NAME[ = VALUES]"; `line` is changed. */
static void
add_line(fixture_builder *builder, char *line)
{
    uint64_t shape[80] = { 0 }; /* gcc cannot see that `rank` of them are set */
    uint32_t rank = 0;
    char *dims = strchr(line, ' ');
    char *name = dims == NULL ? NULL : strchr(dims + 1, ' ');
    char *values;
    tensor *new;

    if (name == NULL)
        die("no tensor in this line", line);
    *dims++ = '\0';
    *name++ = '\0';
    values = strstr(name, " = ");
    if (values != NULL) {
        *values = '\0';
        values += 3;
    }
    if (strcmp(dims, "*") == 0)
        shape[rank++] = strlen(values);
    else if (strcmp(dims, "-") != 0)
        for (char *at = dims; rank < 80; at++) {
            shape[rank++] = strtoull(at, &at, 10);
            if (*at == '\0')
                break;
        }
    new = add(builder, name, line, rank, shape);
    if (values == NULL)
        return;
    if (strcmp(values, "sparse") == 0)
        new->is_sparse = true;
    else if (strcmp(dims, "*") == 0)
        new->data = duplicate_text(values);
    else
        fill_values(new, values);
}

void
fixture_add_lines(fixture_builder *builder, const char *lines)
{
    char *copy = duplicate_text(lines);
    char *rest = NULL;

    for (char *line = strtok_r(copy, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *blank = strchr(line, ' ');

        line += strspn(line, " ");
        if (*line == '\0')
            continue;
        if (*line != '@') {
            add_line(builder, line);
            continue;
        }
        blank = strchr(line, ' ');
        if (blank != NULL)
            *blank = '\0';
        add_pair(builder, line + 1, blank == NULL ? "" : blank + 1);
    }
    free(copy);
}

/* -------------------------------------------------------------- bitsandbytes */

void
fixture_add_nf4(fixture_builder *builder, const char *name, uint64_t rows,
                uint64_t columns, bool is_double)
{
    /* The code table of NF4, as bits. */
    static const uint32_t nf4[16] = {
        0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0, 0xbe91a24d, 0xbe3d353f,
        0xbdba7871, 0x00000000, 0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a,
        0x3ee1a4b8, 0x3f1007ab, 0x3f3913b3, 0x3f800000,
    };
    const uint64_t count = rows * columns;
    const uint64_t blocks = (count + 63) / 64;
    const uint64_t packed[2] = { (count + 1) / 2, 1 };
    const uint64_t codes = 16;
    const uint64_t nested = 256;
    const uint64_t groups = (blocks + 255) / 256;
    const char *state;
    uint64_t state_length;

    state = fixture_format(
        "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "
        "\"shape\": [%llu, %llu]%s}",
        (unsigned long long)rows, (unsigned long long)columns,
        is_double ? ", \"nested_blocksize\": 256, \"nested_dtype\": \"float32\", "
                    "\"nested_offset\": 0.044628698378801346"
                  : "");
    state_length = strlen(state);
    fixture_add(builder, name, "U8", 2, packed, NULL);
    fixture_add(builder, fixture_format("%s.absmax", name), is_double ? "U8" : "F32", 1,
                &blocks, NULL);
    fixture_add(builder, fixture_format("%s.quant_map", name), "F32", 1, &codes, nf4);
    if (is_double) {
        fixture_add(builder, fixture_format("%s.nested_absmax", name), "F32", 1, &groups,
                    NULL);
        fixture_add(builder, fixture_format("%s.nested_quant_map", name), "F32", 1,
                    &nested, berthi_signed_map);
    }
    fixture_add(builder, fixture_format("%s.quant_state.bitsandbytes__nf4", name), "U8",
                1, &state_length, state);
}

void
fixture_add_int8(fixture_builder *builder, const char *module, uint64_t rows,
                 uint64_t columns)
{
    const uint64_t shape[2] = { rows, columns };
    const uint8_t row_order = 0;

    fixture_add(builder, fixture_format("%s.weight", module), "I8", 2, shape, NULL);
    fixture_add(builder, fixture_format("%s.SCB", module), "F32", 1, &rows, NULL);
    fixture_add(builder, fixture_format("%s.weight_format", module), "U8", 0, NULL,
                &row_order);
}

/* ------------------------------------------------------------------- writing */

static void
put_text(FILE *out, const char *text)
{
    static const char short_escapes[] = "b\bf\fn\nr\rt\t\"\"\\\\";

    fputc('"', out);
    for (const char *p = text; *p != '\0'; p++) {
        const char *escape = NULL;

        for (const char *e = short_escapes; *e != '\0'; e += 2)
            if (e[1] == *p)
                escape = e;
        if (escape != NULL)
            fprintf(out, "\\%c", *escape);
        else if ((unsigned char)*p < 0x20)
            fprintf(out, "\\u%04x", (unsigned char)*p);
        else
            fputc(*p, out);
    }
    fputc('"', out);
}

static int
compare_tensors(const void *a, const void *b)
{
    const tensor *x = a;
    const tensor *y = b;

    return x->dtype != y->dtype ? x->dtype - y->dtype : strcmp(x->name, y->name);
}

static int
compare_pairs(const void *a, const void *b)
{
    return strcmp(((const pair *)a)->key, ((const pair *)b)->key);
}

static void
put_header(FILE *out, const fixture_builder *builder)
{
    uint64_t at = 0;

    fputc('{', out);
    for (size_t i = 0; i < builder->pair_count; i++) {
        fputs(i == 0 ? "\"__metadata__\":{" : ",", out);
        put_text(out, builder->pairs[i].key);
        fputc(':', out);
        put_text(out, builder->pairs[i].value);
    }
    if (builder->pair_count > 0)
        fputc('}', out);
    for (size_t i = 0; i < builder->tensor_count; i++) {
        const tensor *each = &builder->tensors[i];

        if (i > 0 || builder->pair_count > 0)
            fputc(',', out);
        put_text(out, each->name);
        fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtypes[each->dtype].name);
        for (uint32_t d = 0; d < each->rank; d++)
            fprintf(out, "%s%llu", d > 0 ? "," : "", (unsigned long long)each->shape[d]);
        fprintf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                (unsigned long long)(at + each->bytes));
        at += each->bytes;
    }
    fputc('}', out);
    while (ftell(out) % 8 != 0)
        fputc(' ', out);
}

static void
put_payload(FILE *out, const tensor *from)
{
    char piece[65536];

    if (from->data != NULL) {
        fwrite(from->data, 1, (size_t)from->bytes, out);
        return;
    }
    for (uint64_t at = 0; at < from->bytes; at += sizeof piece) {
        const uint64_t left = from->bytes - at;
        const size_t length = left < sizeof piece ? (size_t)left : sizeof piece;

        fixture_payload(from->name, at, piece, length);
        fwrite(piece, 1, length, out);
    }
}

static void
put_prefix(FILE *out, uint64_t n)
{
    for (int i = 0; i < 8; i++)
        fputc((int)(n >> 8 * i & 255), out);
}

static void
destroy(fixture_builder *builder)
{
    for (size_t i = 0; i < builder->tensor_count; i++) {
        free(builder->tensors[i].name);
        free(builder->tensors[i].shape);
        free(builder->tensors[i].data);
    }
    for (size_t i = 0; i < builder->pair_count; i++) {
        free(builder->pairs[i].key);
        free(builder->pairs[i].value);
    }
    free(builder->tensors);
    free(builder->pairs);
    free(builder);
}

uint64_t
fixture_finish(fixture_builder *builder, const char *path)
{
    char *header = NULL;
    size_t header_length = 0;
    FILE *text = open_memstream(&header, &header_length);
    uint64_t total = 0;
    FILE *out;

    if (!builder->keeps_order && builder->tensor_count > 0)
        qsort(builder->tensors, builder->tensor_count, sizeof(tensor), compare_tensors);
    if (builder->pair_count > 0)
        qsort(builder->pairs, builder->pair_count, sizeof(pair), compare_pairs);
    if (text == NULL)
        die("no memory", path);
    put_header(text, builder);
    fclose(text);
    fixture_write(path, "", 0);
    out = fopen(path, "wb");
    if (out == NULL)
        die(strerror(errno), path);
    put_prefix(out, header_length);
    fwrite(header, 1, header_length, out);
    free(header);
    for (size_t i = 0; i < builder->tensor_count; i++) {
        if (!builder->tensors[i].is_sparse)
            put_payload(out, &builder->tensors[i]);
        total += builder->tensors[i].bytes;
        if (builder->tensors[i].is_sparse)
            fseek(out, (long)(8 + header_length + total), SEEK_SET);
    }
    if (fflush(out) != 0
        || ftruncate(fileno(out), (off_t)(8 + header_length + total)) != 0
        || fclose(out) != 0)
        die(strerror(errno), path);
    destroy(builder);
    return total;
}

uint64_t
fixture_file(const char *path, const char *lines)
{
    fixture_builder *builder = fixture_begin();

    fixture_add_lines(builder, lines);
    return fixture_finish(builder, path);
}

void
fixture_raw(const char *path, uint64_t n, const char *header, size_t length,
            uint64_t data_bytes)
{
    FILE *out;

    fixture_write(path, "", 0);
    out = fopen(path, "wb");
    if (out == NULL)
        die(strerror(errno), path);
    put_prefix(out, n);
    fwrite(header, 1, length, out);
    if (fflush(out) != 0 || ftruncate(fileno(out), (off_t)(8 + length + data_bytes)) != 0
        || fclose(out) != 0)
        die(strerror(errno), path);
}

/* -------------------------------------------------------------------- index */

static int
compare_lines(const void *a, const void *b)
{
    const pair *x = a;
    const pair *y = b;

    return strcmp(x->key, y->key);
}

void
fixture_index(const char *path, uint64_t total_size, const char *lines)
{
    char *copy = duplicate_text(lines);
    char *rest = NULL;
    pair *pairs = NULL;
    size_t count = 0;
    FILE *out;

    for (char *line = strtok_r(copy, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *blank = strrchr(line, ' ');

        if (blank == NULL)
            die("no shard in this line", line);
        if (count % 1024 == 0)
            pairs = room(pairs, (count + 1024) * sizeof *pairs);
        *blank = '\0';
        pairs[count].key = line;
        pairs[count++].value = blank + 1;
    }
    if (count > 0)
        qsort(pairs, count, sizeof *pairs, compare_lines);
    fixture_write(path, "", 0);
    out = fopen(path, "wb");
    if (out == NULL)
        die(strerror(errno), path);
    fputs("{\n  \"metadata\": {\n    \"total_size\": ", out);
    fprintf(out, "%llu\n  },\n  \"weight_map\": {", (unsigned long long)total_size);
    for (size_t i = 0; i < count; i++) {
        fputs(i == 0 ? "\n    " : ",\n    ", out);
        put_text(out, pairs[i].key);
        fputs(": ", out);
        put_text(out, pairs[i].value);
    }
    fputs(count > 0 ? "\n  }\n}\n" : "}\n}\n", out);
    if (fclose(out) != 0)
        die(strerror(errno), path);
    free(pairs);
    free(copy);
}

void
fixture_tensors(const char *folder, const char *name, int count)
{
    fixture_builder *const builder = fixture_begin();
    const uint64_t shape = 2;

    for (int i = 0; i < count; i++)
        fixture_add(builder, fixture_format("%s.%d", name, i), "F32", 1, &shape, NULL);
    fixture_finish(builder, fixture_format("%s/%s", folder, name));
}

void
fixture_model(const char *folder, const char *lines)
{
    char *map = NULL;
    size_t map_length = 0;
    FILE *map_out = open_memstream(&map, &map_length);
    uint64_t total = 0;
    bool is_sharded = true;

    if (map_out == NULL)
        die("no memory", folder);
    for (const char *at = strchr(lines, '['); at != NULL;) {
        const char *end = strchr(at, ']');
        const char *next = strstr(at, "\n[");
        const char *body = end + 1;
        const char *stop = next != NULL ? next : at + strlen(at);
        char *shard = duplicate_text(fixture_format("%.*s", (int)(end - at - 1), at + 1));
        char *text = duplicate_text(fixture_format("%.*s", (int)(stop - body), body));
        fixture_builder *builder = fixture_begin();

        fixture_add_lines(builder, text);
        for (size_t i = 0; i < builder->tensor_count; i++)
            fprintf(map_out, "%s %s\n", builder->tensors[i].name, shard);
        total += fixture_finish(builder, fixture_format("%s/%s", folder, shard));
        is_sharded = strcmp(shard, "model.safetensors") != 0;
        free(shard);
        free(text);
        at = next == NULL ? NULL : next + 1;
    }
    fclose(map_out);
    if (is_sharded)
        fixture_index(fixture_format("%s/model.safetensors.index.json", folder), total,
                      map);
    free(map);
}
