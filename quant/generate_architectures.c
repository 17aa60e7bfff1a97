/* SPDX-License-Identifier: Apache-2.0 */
/*
 * generate_architectures.c - a program that the build runs: architectures.json
 * on standard input, a C file with the text and its index on standard output.
 * See catalogue.h. No part of the library.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "quant/catalogue.h"

#define COLUMNS 88

/* Reads all of standard input; NULL when that fails. */
static char *
read_input(uint64_t *out_bytes)
{
    char *const text = malloc(BERTHI_CATALOGUE_LIMIT + 1);

    if (text == NULL)
        return NULL;
    *out_bytes = fread(text, 1, BERTHI_CATALOGUE_LIMIT + 1, stdin);
    if (ferror(stdin) || *out_bytes > BERTHI_CATALOGUE_LIMIT) {
        free(text);
        return NULL;
    }
    return text;
}

/* As string literals, in short lines; ? is escaped lest it begins a trigraph. */
static void
print_text(const char *text, uint64_t bytes)
{
    int column = 0;

    printf("static const char text[] =");
    for (uint64_t i = 0; i < bytes; i++) {
        const unsigned char byte = (unsigned char)text[i];

        if (column == 0)
            column = printf("\n    \"");
        if (byte == '"' || byte == '\\' || byte == '?')
            column += printf("\\%c", byte);
        else if (byte >= 0x20 && byte < 0x7f)
            column += printf("%c", byte);
        else
            column += printf("\\%03o", byte);
        if (column >= COLUMNS || i + 1 == bytes) {
            printf("\"");
            column = 0;
        }
    }
    printf(";\n\n");
}

static void
print_index(const berthi_catalogue_draft *draft)
{
    printf("static const berthi_catalogue_entry entries[] = {\n");
    for (uint32_t i = 0; i < draft->class_count + draft->tower_count; i++)
        printf("    { %" PRIu32 ", %" PRIu32 ", %" PRIu32 ", %" PRIu32 " },\n",
               draft->entries[i].name, draft->entries[i].name_length,
               draft->entries[i].body, draft->entries[i].body_length);
    printf("};\n\nstatic const berthi_catalogue_type types[] = {\n");
    for (uint32_t i = 0; i < draft->type_count; i++)
        printf("    { %" PRIu32 ", %" PRIu32 ", %" PRIu32 " },\n", draft->types[i].name,
               draft->types[i].name_length, draft->types[i].entry);
    printf("};\n\n");
}

static void
print_all(const char *text, uint64_t bytes, const berthi_catalogue_draft *draft)
{
    printf("/* Made from quant/architectures.json by quant/generate_architectures.c. */\n"
           "#include \"quant/catalogue.h\"\n\n");
    print_text(text, bytes);
    print_index(draft);
    printf("static const berthi_catalogue builtin = {\n"
           "    text, %" PRIu64 ", entries, types, %" PRIu32 ", %" PRIu32 ", %" PRIu32
           ",\n};\n\n",
           bytes, draft->class_count, draft->tower_count, draft->type_count);
    printf("const berthi_catalogue *\nberthi_catalogue_builtin(void)\n{\n"
           "    return &builtin;\n}\n");
}

int
main(void)
{
    berthi_catalogue_draft draft = { .entries = NULL };
    uint64_t bytes = 0;
    char *const text = read_input(&bytes);
    int result = 1;

    if (text == NULL) {
        fprintf(stderr, "generate_architectures: cannot read the input\n");
        return 1;
    }
    berthi_catalogue_index(text, bytes, &draft);
    if (draft.problem != NULL) {
        fprintf(stderr, "generate_architectures: byte %" PRIu64 ": %s\n", draft.problem_at,
                draft.problem);
        goto out;
    }
    draft.entries = calloc((size_t)draft.class_count + draft.tower_count + 1,
                           sizeof *draft.entries);
    draft.types = calloc((size_t)draft.type_count + 1, sizeof *draft.types);
    if (draft.entries == NULL || draft.types == NULL)
        goto out;
    berthi_catalogue_index(text, bytes, &draft);
    print_all(text, bytes, &draft);
    result = ferror(stdout) || fflush(stdout) != 0;
out:
    free(draft.entries);
    free(draft.types);
    free(text);
    return result;
}
