/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_layout.c - a list of tensors -> shards, headers and an index
 *
 * Two bytes of options; then a tensor a line: its dtype, how it is shaped, a
 * real length, dims, and the name, cut in two at the first `|`. What is refused
 * was refused rightly; what is not is divided as a naive list would be, before
 * and after late lengths are known, and berth's own parsers give it back.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/utf8.h"
#include "loader/index.h"
#include "loader/index_write.h"
#include "tests/fuzz/require.h"
#include "tests/laid.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_TENSORS 64u
#define MAX_DIMS 3u

typedef struct input {
    const uint8_t *bytes;
    size_t left;
    berthi_layout_options options;
    berthi_layout_tensor tensors[MAX_TENSORS];
    uint64_t shapes[MAX_TENSORS][MAX_DIMS];
    uint32_t lengths[MAX_TENSORS];
    char *names[MAX_TENSORS]; /* each ends in NUL */
    uint32_t count;
    bool is_wrong; /* something must be refused */
} input;

static uint8_t
take(input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->bytes++;
}

static void
take_name(input *in, berthi_layout_tensor *tensor)
{
    size_t length = 0;
    char *name;
    char *cut;

    while (length < in->left && in->bytes[length] != '\n')
        length++;
    name = malloc(length + 1);
    REQUIRE(name != NULL);
    if (length > 0)
        memcpy(name, in->bytes, length);
    name[length] = '\0';
    in->bytes += length;
    in->left -= length;
    take(in);
    cut = strchr(name, '|');
    tensor->name = name;
    tensor->name_length = (uint32_t)(cut != NULL ? (size_t)(cut - name) : length);
    tensor->suffix = cut != NULL ? cut + 1 : NULL;
    in->names[in->count] = name;
    /* A suffix ends at a NUL; in a name it is refused, as is what is no UTF-8. */
    for (int i = 0; i < 2; i++) {
        const char *const piece = i == 0 ? name : cut != NULL ? cut + 1 : "";
        const size_t bytes = i == 0 ? tensor->name_length : strlen(piece);

        if (memchr(piece, '\0', bytes) != NULL
            || berthi_utf8_check((const unsigned char *)piece, bytes) < bytes)
            in->is_wrong = true;
    }
}

static void
take_tensor(input *in)
{
    berthi_layout_tensor *const tensor = &in->tensors[in->count];
    const int32_t dtype = take(in) % BERTH_DTYPE_COUNT;
    const uint8_t kind = take(in);
    uint64_t bits = berth_dtype_bits(dtype);

    tensor->dtype = dtype;
    in->lengths[in->count] = take(in);
    if ((kind & 1) > 0) {
        tensor->dtype = BERTH_U8;
        tensor->bytes = take(in);
        tensor->is_late = (kind & 2) > 0;
    } else {
        tensor->rank = (kind >> 2) % (MAX_DIMS + 1);
        tensor->shape = in->shapes[in->count];
        for (uint32_t i = 0; i < tensor->rank; i++) {
            in->shapes[in->count][i] = take(in) % 32;
            bits *= in->shapes[in->count][i];
        }
        tensor->bytes = bits / 8;
        if (bits % 8 != 0)
            in->is_wrong = true;
    }
    take_name(in, tensor);
    if (strcmp(laid_name(tensor), "__metadata__") == 0)
        in->is_wrong = true;
    for (uint32_t i = 0; !in->is_wrong && i < in->count; i++)
        if (strcmp(laid_name(&in->tensors[i]), laid_name(tensor)) == 0)
            in->is_wrong = true;
    in->count++;
}

/* The dot-natural order of layout.h, with the means of C. */
static int
compare_naturally(const char *a, const char *b)
{
    const char *const names[2] = { a, b };

    for (;;) {
        const size_t ends[2] = { strcspn(a, "."), strcspn(b, ".") };
        const bool numbers[2] = { ends[0] > 0 && strspn(a, "0123456789") >= ends[0],
                                  ends[1] > 0 && strspn(b, "0123456789") >= ends[1] };
        const size_t skips[2] = { numbers[0] && numbers[1] ? strspn(a, "0") : 0,
                                  numbers[0] && numbers[1] ? strspn(b, "0") : 0 };
        const size_t lengths[2] = { ends[0] - (skips[0] < ends[0] ? skips[0] : ends[0]),
                                    ends[1] - (skips[1] < ends[1] ? skips[1] : ends[1]) };
        const size_t both = lengths[0] < lengths[1] ? lengths[0] : lengths[1];
        const int by_length = (lengths[0] > lengths[1]) - (lengths[0] < lengths[1]);
        const int by_bytes =
            memcmp(a + ends[0] - lengths[0], b + ends[1] - lengths[1], both);

        if (numbers[0] != numbers[1])
            return numbers[0] ? -1 : 1;
        if (numbers[0] && by_length != 0)
            return by_length;
        if (by_bytes != 0 || by_length != 0)
            return by_bytes != 0 ? by_bytes : by_length;
        if (a[ends[0]] == '\0' || b[ends[1]] == '\0') {
            if ((a[ends[0]] == '\0') != (b[ends[1]] == '\0'))
                return a[ends[0]] == '\0' ? -1 : 1;
            return strcmp(names[0], names[1]);
        }
        a += ends[0] + 1;
        b += ends[1] + 1;
    }
}

static void
check_orders(const berthi_layout *layout, const input *in)
{
    const uint32_t *const fill = berthi_layout_fill_order(layout);
    const uint32_t *const names = berthi_layout_name_order(layout);

    for (uint32_t i = 1; i < in->count; i++) {
        REQUIRE(strcmp(laid_name(&in->tensors[names[i - 1]]),
                       laid_name(&in->tensors[names[i]]))
                < 0);
        REQUIRE(in->options.is_in_order
                    ? fill[i - 1] + 1 == fill[i]
                    : compare_naturally(laid_name(&in->tensors[fill[i - 1]]),
                                        laid_name(&in->tensors[fill[i]]))
                          < 0);
    }
}

static void
check_index(berth_context *context, const berthi_layout *layout, const input *in)
{
    laid_text text = { 0 };
    berthi_index index;

    REQUIRE(berthi_index_write(layout, 7, laid_put, &text, NULL, NULL) == BERTH_OK);
    REQUIRE(berthi_index_parse(context, text.bytes, text.length, "i", &index, NULL)
            == BERTH_OK);
    REQUIRE(index.entry_count == in->count && index.has_total_size
            && index.total_size == berthi_layout_total_bytes(layout));
    for (uint32_t i = 0; i < in->count; i++) {
        const berthi_layout_tensor *const tensor =
            &in->tensors[berthi_layout_name_order(layout)[i]];
        char file[BERTHI_LAYOUT_NAME];

        berthi_layout_shard_name(tensor->shard, berthi_layout_shard_count(layout), file);
        REQUIRE(strcmp(index.text + index.entries[i].name, laid_name(tensor)) == 0);
        REQUIRE(strcmp(index.text + index.shards[index.entries[i].shard], file) == 0);
    }
    berthi_index_fini(&index);
    free(text.bytes);
}

static void
check_layout(berth_context *context, berthi_layout *layout, const input *in)
{
    berth_error error;

    REQUIRE(laid_problem(layout, in->options.max_shard_bytes) == NULL);
    check_orders(layout, in);
    for (uint32_t i = 0; i < in->count; i++)
        berthi_layout_set_bytes(layout, i, in->lengths[i]);
    REQUIRE(berthi_layout_divide(layout, NULL, &error) == BERTH_OK);
    REQUIRE(laid_problem(layout, in->options.max_shard_bytes) == NULL);
    for (uint32_t i = 0; i < in->count; i++)
        REQUIRE(berthi_layout_is_place_known(layout, i));
    for (uint32_t i = 0; i < berthi_layout_shard_count(layout); i++)
        REQUIRE(laid_header_problem(context, layout, i, &in->options) == NULL);
    if (in->count > 0)
        check_index(context, layout, in);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static input in;
    berth_memory_summary memory;
    berth_context *context;
    berthi_layout *layout;
    berth_error error;
    uint8_t flags;

    memset(&in, 0, sizeof in);
    in.bytes = data;
    in.left = size < 3000 ? size : 3000;
    flags = take(&in);
    in.options.max_shard_bytes = take(&in) * (uint64_t)((flags & 1) > 0 ? 1 : 16);
    in.options.is_in_order = (flags & 2) > 0;
    in.options.pairs = (flags & 4) > 0 ? NULL : berthi_layout_format;
    in.options.pair_count = (flags & 12) > 0 ? 0 : 1;
    while (in.left > 0 && in.count < MAX_TENSORS)
        take_tensor(&in);
    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    if (berthi_layout_create(context, in.tensors, in.count, &in.options, &layout, &error)
        == BERTH_OK) {
        REQUIRE(!in.is_wrong);
        check_layout(context, layout, &in);
    } else {
        REQUIRE(in.is_wrong && layout == NULL && error.reason != 0);
    }
    berthi_layout_destroy(layout);
    berth_context_memory(context, &memory);
    REQUIRE(memory.current_bytes == 0);
    berth_context_destroy(context);
    for (uint32_t i = 0; i < in.count; i++)
        free(in.names[i]);
    return 0;
}
