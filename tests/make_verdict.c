/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_verdict.c - berth's verdicts on many headers, for the comparison with
 * the reference implementation
 *
 *     make_verdict <cases >verdicts
 *
 * A case: the size of the file and the number of its first bytes that follow,
 * both in 8 bytes, lowest first; then these bytes, the header among them.
 * A verdict is a line: the reason and the tensor, or "ok", the pairs of the
 * metadata as hex(key)=hex(value), and the tensors in order of offsets as
 * hex(name):dtype:dims:begin:end, separated by blanks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/safetensors.h"

static uint64_t
load_number(const uint8_t *bytes)
{
    uint64_t number = 0;

    for (unsigned i = 0; i < 8; i++)
        number |= (uint64_t)bytes[i] << 8 * i;
    return number;
}

static void
print_hex(const char *bytes, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++)
        printf("%02x", (unsigned char)bytes[i]);
}

static void
print_tables(const berthi_header *header)
{
    printf("ok");
    for (uint64_t i = 0; i < header->pair_count; i++) {
        const berthi_pair pair = berthi_header_pair(header, i);

        putchar(' ');
        print_hex(pair.key, pair.key_length);
        putchar('=');
        print_hex(pair.value, pair.value_length);
    }
    for (uint64_t i = 0; i < header->entry_count; i++) {
        const berthi_entry *const entry = &header->entries[i];
        uint64_t shape[BERTHI_MAX_RANK];

        putchar(' ');
        print_hex(berthi_entry_name(header->text, entry), entry->name_length);
        printf(":%s:", berth_dtype_name(entry->dtype));
        berthi_entry_shape(header->text, entry, shape);
        for (uint32_t k = 0; k < entry->rank; k++)
            printf("%s%" PRIu64, k > 0 ? "," : "", shape[k]);
        printf(":%" PRIu64 ":%" PRIu64, entry->begin, entry->end);
    }
    putchar('\n');
}

static void
print_verdict(berth_context *context, const uint8_t *bytes, uint64_t file_bytes)
{
    berthi_header header;
    berth_error error;
    uint64_t length;
    berth_status status;

    status = berthi_header_length(bytes, file_bytes, "", &length, &error);
    if (status == BERTH_OK) {
        /* A buffer of exactly its size, for builds with a sanitizer. */
        char *const text = malloc(length > 0 ? length : 1);

        if (text == NULL)
            exit(1);
        memcpy(text, bytes + BERTHI_HEADER_PREFIX, length);
        status = berthi_header_parse(context, text, length,
                                     file_bytes - BERTHI_HEADER_PREFIX - length, "", &header,
                                     &error);
        free(text);
    }
    if (status == BERTH_OK) {
        print_tables(&header);
        berthi_header_fini(&header);
    } else {
        printf("%s %s\n", berth_reason_name(error.reason), error.tensor);
    }
}

int
main(void)
{
    berth_context *context;
    uint8_t sizes[16];

    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    while (fread(sizes, 1, sizeof sizes, stdin) == sizeof sizes) {
        const uint64_t given = load_number(sizes + 8);
        uint8_t *const bytes = malloc(given > 0 ? given : 1);

        if (bytes == NULL || fread(bytes, 1, given, stdin) != given)
            return 1;
        print_verdict(context, bytes, load_number(sizes));
        free(bytes);
    }
    berth_context_destroy(context);
    return ferror(stdin) || fflush(stdout) != 0;
}
