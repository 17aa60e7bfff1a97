/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_optimizer.c - the text of a header of a file of states
 *
 * Behind it lies as much as its tensors take, numbers that could be those of states: what is read
 * of a file is the header's to say. A file that is refused has changed nothing; after one that is
 * taken every state can be read, and a step can be made. Nothing is left behind.
 */
#define _GNU_SOURCE /* memfd_create */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loader/berth.h"
#include "loader/safetensors.h"
#include "tests/fuzz/require.h"

#define PARAMETERS 3u
#define ELEMENTS 1300u /* of the largest: five blocks of 256 and a part of one */
#define DATA_MAX (UINT64_C(64) << 10)
#define STATES_MAX 3u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What a load may change, as callers see it. */
typedef struct seen {
    uint64_t step[PARAMETERS];
    float states[PARAMETERS][STATES_MAX][ELEMENTS];
} seen;

/* ---------------------------------------------------------------------- an optimizer */

static float values[PARAMETERS][ELEMENTS];

/* 8 bits and 32, a vector and a matrix, with an f32 copy and without, one state and two. */
static berth_optimizer *
create(berth_context *context)
{
    static const uint64_t shapes[PARAMETERS][2] = { { 13, 100 }, { 10, 0 }, { 1100, 0 } };
    static const char *const names[PARAMETERS] = { "w", "layer.b", "m" };
    static const int32_t dtypes[PARAMETERS] = { BERTH_F32, BERTH_F32, BERTH_BF16 };
    berth_optimizer_group groups[2];
    berth_parameter parameters[PARAMETERS];
    berth_optimizer_options options;
    berth_optimizer *optimizer;
    berth_error error;

    REQUIRE(berth_optimizer_group_init(&groups[0], BERTH_UPDATE_ADAMW) == BERTH_OK
            && berth_optimizer_group_init(&groups[1], BERTH_UPDATE_LION) == BERTH_OK);
    groups[0].least_8bit = 1000;
    groups[1].least_8bit = 1000;
    groups[1].has_master = 1;
    for (uint32_t i = 0; i < PARAMETERS; i++)
        parameters[i] = (berth_parameter){ .name = names[i], .shape = shapes[i],
                                           .rank = i == 0 ? 2 : 1, .dtype = dtypes[i],
                                           .values = values[i], .group = i == 2 };
    berth_optimizer_options_init(&options);
    options.threads = 1;
    REQUIRE(berth_optimizer_create(context, groups, 2, parameters, PARAMETERS, &options,
                                   &optimizer, &error)
            == BERTH_OK);
    return optimizer;
}

static void
step(berth_optimizer *optimizer)
{
    static const float gradient[ELEMENTS] = { 0.5f, -0.25f };
    berth_gradient gradients[PARAMETERS];
    berth_error error;

    for (uint32_t i = 0; i < PARAMETERS; i++)
        gradients[i] = (berth_gradient){ .values = gradient, .dtype = BERTH_F32 };
    REQUIRE(berth_optimizer_step(optimizer, gradients, NULL, &error) == BERTH_OK);
}

static void
look(berth_optimizer *optimizer, seen *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < PARAMETERS; i++) {
        berth_parameter_state state;
        berth_error error;

        REQUIRE(berth_optimizer_get(optimizer, i, &state) == BERTH_OK
                && state.states <= STATES_MAX && state.elements <= ELEMENTS);
        out->step[i] = state.step;
        for (uint32_t k = 0; k < state.states; k++)
            REQUIRE(berth_optimizer_read(optimizer, i, k, 0, state.elements,
                                         out->states[i][k], &error)
                    == BERTH_OK);
    }
}

/* ------------------------------------------------------------------------------ a file */

static berth_status
parse(berth_context *context, const uint8_t *text, size_t length, uint64_t data_bytes,
      berthi_header *out, berth_error *error)
{
    char *const copy = malloc(length + 1);
    berth_status status;

    REQUIRE(copy != NULL);
    memcpy(copy, text, length);
    status = berthi_header_parse(context, copy, length, data_bytes, "f", out, error);
    free(copy);
    return status;
}

static void
put_float(uint8_t *to, float value)
{
    memcpy(to, &value, sizeof value);
}

/* A tensor as one of states may be: a small number of steps, a map, floats of ordinary size. */
static void
fill_tensor(const berthi_entry *entry, uint8_t *data)
{
    const uint64_t bytes = entry->end - entry->begin;
    uint8_t *const its = data + entry->begin;

    for (uint64_t i = 0; i < bytes; i++)
        its[i] = entry->dtype == BERTH_I64 ? i == 0 : (uint8_t)(i * 37);
    if (entry->dtype == BERTH_F32)
        for (uint64_t i = 0; i < bytes / sizeof(float); i++)
            put_float(its + i * sizeof(float),
                      bytes == 256 * sizeof(float) ? ((float)i - 127.0f) / 128.0f : 3.0f);
}

/* What lies behind the header; of one that is none some bytes. */
static uint8_t *
make_data(berth_context *context, const uint8_t *text, size_t length, uint64_t *out_bytes)
{
    berthi_header header;
    berth_error error;
    uint8_t *data;

    *out_bytes = 8;
    if (parse(context, text, length, 8, &header, &error) != BERTH_OK
        && error.reason == BERTH_REASON_COVERAGE && error.expected <= DATA_MAX) {
        *out_bytes = error.expected;
        REQUIRE(parse(context, text, length, *out_bytes, &header, &error) == BERTH_OK);
    }
    data = calloc(1, *out_bytes + 1);
    REQUIRE(data != NULL);
    for (uint64_t i = 0; i < header.entry_count; i++)
        fill_tensor(&header.entries[i], data);
    berthi_header_fini(&header);
    return data;
}

static void
write_all(int fd, const void *bytes, size_t size)
{
    REQUIRE(write(fd, bytes, size) == (ssize_t)size);
}

/* The descriptor of a file in memory. */
static int
make_file(berth_context *context, const uint8_t *text, size_t length)
{
    const int fd = memfd_create("states", MFD_CLOEXEC);
    uint64_t data_bytes;
    uint8_t *const data = make_data(context, text, length, &data_bytes);
    uint8_t prefix[8];

    REQUIRE(fd >= 0);
    for (uint32_t i = 0; i < 8; i++)
        prefix[i] = (uint8_t)((uint64_t)length >> 8 * i);
    write_all(fd, prefix, sizeof prefix);
    write_all(fd, text, length);
    write_all(fd, data, data_bytes);
    free(data);
    return fd;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static seen before;
    static seen after;
    berth_memory_summary memory;
    berth_optimizer *optimizer;
    berth_context *context;
    berth_status status;
    berth_error error = { 0 };
    char path[32];
    int fd;

    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    optimizer = create(context);
    step(optimizer);
    look(optimizer, &before);
    fd = make_file(context, data, size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    status = berth_optimizer_load(optimizer, path, &error);
    look(optimizer, &after);
    if (status == BERTH_OK)
        step(optimizer);
    else
        REQUIRE(error.status == status && error.reason != 0
                && memcmp(&before, &after, sizeof before) == 0);
    close(fd);
    berth_optimizer_destroy(optimizer);
    (void)berth_context_trim(context);
    berth_context_memory(context, &memory);
    REQUIRE(memory.current_bytes == 0);
    berth_context_destroy(context);
    return 0;
}
