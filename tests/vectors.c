/* SPDX-License-Identifier: Apache-2.0 */
/* vectors.c - see vectors.h */
#include "tests/vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/t.h"

bool
vectors_has_opened(vectors *v, const char *path)
{
    FILE *const file = fopen(path, "rb");
    berth_error error;
    uint64_t header_bytes;
    long size;

    memset(v, 0, sizeof *v);
    if (file == NULL)
        return false;
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    v->bytes = malloc((size_t)size);
    if (v->bytes == NULL || fread(v->bytes, 1, (size_t)size, file) != (size_t)size)
        abort();
    fclose(file);
    memcpy(&header_bytes, v->bytes, sizeof header_bytes);
    if (berth_context_create(NULL, &v->context, &error) != BERTH_OK)
        abort();
    v->data = v->bytes + 8 + header_bytes;
    return CHECK_EQ(berthi_header_parse(v->context, (char *)v->bytes + 8, header_bytes,
                                        (uint64_t)size - 8 - header_bytes, path,
                                        &v->header, &error),
                    BERTH_OK);
}

void
vectors_close(vectors *v)
{
    berthi_header_fini(&v->header);
    berth_context_destroy(v->context);
    free(v->bytes);
}

const berthi_entry *
vectors_find(const vectors *v, const char *prefix, const char *what)
{
    char name[512];
    uint64_t low = 0;
    uint64_t high = v->header.entry_count;
    const int length = snprintf(name, sizeof name, "%s.%s", prefix, what);

    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        const berthi_entry *const e = &v->header.entries[v->header.by_name[middle]];
        const int order = berthi_name_compare(name, (uint64_t)length,
                                              berthi_entry_name(v->header.text, e),
                                              e->name_length);

        if (order == 0)
            return e;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const void *
vectors_data(const vectors *v, const berthi_entry *entry)
{
    return v->data + entry->begin;
}

const void *
vectors_either(const vectors *v, const char *prefix, const char *first, const char *second)
{
    const berthi_entry *entry = vectors_find(v, prefix, first);

    if (entry == NULL)
        entry = vectors_find(v, prefix, second);
    return entry != NULL ? vectors_data(v, entry) : NULL;
}

unsigned
vectors_each(const vectors *v, const char *group, const char *marker,
             void (*test)(const vectors *v, const char *prefix))
{
    unsigned count = 0;

    for (uint64_t i = 0; i < v->header.entry_count; i++) {
        const berthi_entry *const e = &v->header.entries[v->header.by_name[i]];
        char prefix[512];
        char *dot;

        snprintf(prefix, sizeof prefix, "%s", berthi_entry_name(v->header.text, e));
        dot = strrchr(prefix, '.');
        if (dot == NULL || strcmp(dot + 1, marker) != 0)
            continue;
        *dot = '\0';
        if (strncmp(prefix, group, strlen(group)) != 0)
            continue;
        test(v, prefix);
        count++;
    }
    return count;
}

bool
vectors_are_same(const void *a, const void *b, uint64_t count, int32_t dtype)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t x = 0;
        uint32_t y = 0;
        const size_t size = dtype == BERTH_F32 ? 4 : 2;
        const uint32_t infinity = dtype == BERTH_F32    ? 0x7F800000u
                                  : dtype == BERTH_BF16 ? 0x7F80u
                                                        : 0x7C00u;
        const uint32_t magnitude = dtype == BERTH_F32 ? 0x7FFFFFFFu : 0x7FFFu;

        memcpy(&x, (const char *)a + i * size, size);
        memcpy(&y, (const char *)b + i * size, size);
        if (x != y && ((x & magnitude) <= infinity || (y & magnitude) <= infinity)) {
            T_NOTE("element %llu: %08x, expected %08x", (unsigned long long)i, x, y);
            return false;
        }
    }
    return true;
}
