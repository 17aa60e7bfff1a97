/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers read by several threads: what is opened, what is said about it and in which order
 * is what one thread finds, with any number of them, whatever is broken, and with as little
 * memory.
 */
#define _XOPEN_SOURCE 700

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "loader/ahead.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/opened.h"
#include "tests/own_memory.h"
#include "tests/t.h"

#define SHARDS 24
#define TENSORS 30 /* in each */

static const uint32_t thread_counts[] = { 2, 3, 4, 16 };
#define COUNTS (sizeof thread_counts / sizeof *thread_counts)

static const char *
shard_path(const char *folder, int shard)
{
    return fixture_format("%s/model-%05d-of-%05d.safetensors", folder, shard + 1, SHARDS);
}

/* Numbered layers, as models have them: names of a shard are not in the order of its bytes. */
static const char *
make_model(void)
{
    const char *folder = fixture_folder();
    char *lines = NULL;
    size_t size = 0;
    FILE *const out = open_memstream(&lines, &size);

    for (int s = 0; s < SHARDS; s++) {
        fprintf(out, "[model-%05d-of-%05d.safetensors]\n@format pt\n@part %d\n", s + 1, SHARDS,
                s);
        for (int t = 0; t < TENSORS; t++)
            fprintf(out, "BF16 %dx2 model.layers.%d.mlp.experts.%d.weight\n", s + 1, s, t);
    }
    fclose(out);
    fixture_model(folder, lines);
    free(lines);
    fixture_text(fixture_format("%s/config.json", folder), FIXTURE_CONFIG);
    return folder;
}

/* -------------------------------------------------------------------- portraits */

/* Everything that a caller learns from an opening, as a text; free() it. */

static void
tell_shard(FILE *out, const berth_checkpoint *checkpoint, uint32_t number)
{
    const char *key;
    const char *value;
    size_t lengths[2];
    berth_shard s;

    CHECK_EQ(berth_checkpoint_shard(checkpoint, number, &s), BERTH_OK);
    fprintf(out, "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", s.file, s.file_bytes,
            s.header_bytes, s.first_tensor, s.tensor_count);
    for (uint64_t i = 0; i < s.metadata_count; i++) {
        CHECK_EQ(berth_checkpoint_metadata(checkpoint, number, i, &key, &lengths[0], &value,
                                           &lengths[1]),
                 BERTH_OK);
        fprintf(out, "  %s: %.*s\n", key, (int)lengths[1], value);
    }
}

static void
tell_tensors(FILE *out, const berth_checkpoint *checkpoint, uint64_t count)
{
    berth_tensor t;

    for (uint64_t i = 0; i < count; i++) {
        CHECK_EQ(berth_checkpoint_tensor(checkpoint, i, &t), BERTH_OK);
        CHECK_EQ(berth_checkpoint_find(checkpoint, t.name, t.name_length), i);
        fprintf(out, "%s %d %d %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", t.name, t.dtype,
                t.encoding, t.rank, t.shard, t.shape[0], t.bytes, t.file_offset);
    }
}

static void
tell_error(FILE *out, const berth_error *error)
{
    char line[2048];

    berth_error_format(error, line, sizeof line);
    fprintf(out, "%d %d %s\n", error->status, error->reason, line);
}

static char *
portray(const char *path, const berth_open_options *options, uint32_t threads)
{
    berth_open_options mine = *options;
    char *text = NULL;
    size_t size = 0;
    FILE *const out = open_memstream(&text, &size);
    opened o;

    mine.threads = threads;
    opened_begin(&o, path, &mine);
    for (uint32_t i = 0; i < o.finding_count && i < OPENED_FINDINGS; i++) {
        fprintf(out, "finding %d ", o.findings[i].severity);
        tell_error(out, &o.findings[i].details);
    }
    fprintf(out, "%u findings\n", o.finding_count);
    if (o.checkpoint == NULL) {
        tell_error(out, &o.error);
    } else {
        fprintf(out, "%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", o.summary.tensor_bytes,
                o.summary.file_bytes, o.summary.parameter_count);
        for (uint32_t i = 0; i < o.summary.shard_count; i++)
            tell_shard(out, o.checkpoint, i);
        tell_tensors(out, o.checkpoint, o.summary.tensor_count);
    }
    opened_end(&o);
    fclose(out);
    return text;
}

/* `words`: what the portrait has to show, so that it is one of what was meant. */
static void
compare(const char *path, const berth_open_options *options, const char *words)
{
    char *const alone = portray(path, options, 1);
    char *const usual = portray(path, options, 0);

    CHECK_CONTAINS(alone, words);
    CHECK_STR(usual, alone);
    free(usual);
    for (size_t i = 0; i < COUNTS; i++) {
        char *const together = portray(path, options, thread_counts[i]);

        CHECK_STR(together, alone);
        free(together);
    }
    free(alone);
}

/* The same in every mode that changes what is said. */
static void
compare_modes(const char *path, const char *words)
{
    berth_open_options options;

    berth_open_options_init(&options);
    compare(path, &options, words);
    options.keep_going = 1;
    compare(path, &options, words);
    options.strict = 1;
    compare(path, &options, "");
    options.keep_going = 0;
    compare(path, &options, "");
}

/* ------------------------------------------------------------------------ tests */

static void
test_whole(void)
{
    compare_modes(make_model(), "model.layers.23.mlp.experts.29.weight");
}

/* Without an index: the table grows while others read. */
static void
test_all_files(void)
{
    const char *folder = make_model();
    berth_open_options options;

    fixture_remove(fixture_format("%s/model.safetensors.index.json", folder));
    berth_open_options_init(&options);
    options.all_files = 1;
    compare(folder, &options, "model.layers.23.mlp.experts.29.weight");
}

/* The first of several in the order of shards is the one that is reported. */
static void
test_broken(void)
{
    const char *folder = make_model();
    static const char hole[] =
        "{\"late\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[8,10]}}";

    fixture_raw(shard_path(folder, 19), 7, "{\"a\": 1", 7, 0);
    fixture_raw(shard_path(folder, 11), sizeof hole - 1, hole, sizeof hole - 1, 10);
    fixture_extend(shard_path(folder, 9), 3);
    fixture_text(shard_path(folder, 7), "<!DOCTYPE html>");
    fixture_truncate(shard_path(folder, 5), 1);
    compare_modes(folder, shard_path(folder, 5));
    fixture_text(shard_path(folder, 0), "PK");
    compare_modes(folder, shard_path(folder, 0));
}

static void
test_absent(void)
{
    const char *folder = make_model();

    fixture_extend(shard_path(folder, 12), 3);
    for (int i = 2; i < 7; i++)
        fixture_remove(shard_path(folder, i));
    for (int i = 13; i < 20; i++)
        fixture_remove(shard_path(folder, i));
    compare_modes(folder, "12 of 24 shards are missing");
    fixture_remove(shard_path(folder, 0));
    fixture_remove(shard_path(folder, 23));
    compare_modes(folder, shard_path(folder, 0));
}

/* Remarks and refusals of strict mode come from the caller's thread, in order. */
static void
test_remarks(void)
{
    const char *folder = make_model();
    static const char tensor[] = "\"model.layers.%d.mlp.experts.0.weight\":"
                                 "{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}";
    const char *header;

    for (int i = 22; i >= 0; i -= 11) {
        header = fixture_format(" {\"__metadata__\":{\"format\":\"%s\"},%s}",
                                i == 0 ? "tf" : "flax", fixture_format(tensor, i));
        fixture_raw(shard_path(folder, i), strlen(header), header, strlen(header), 2);
    }
    compare_modes(folder, "mlp.experts");
}

/* What is too large to be read ahead is read all the same. */
static void
test_large(void)
{
    const char *folder = make_model();

    for (int i = 3; i < 6; i++) {
        char *const lines = malloc(BERTHI_AHEAD_LIMIT + 200);

        T_REQUIRE(lines != NULL);
        (void)sprintf(lines, "U8 2 model.layers.%d.mlp.experts.0.weight\n@long ", i);
        memset(lines + strlen(lines), 'x', BERTHI_AHEAD_LIMIT);
        lines[BERTHI_AHEAD_LIMIT + 100] = '\0';
        fixture_file(shard_path(folder, i), lines);
        free(lines);
    }
    compare_modes(folder, "it is not in this shard");
}

/* ----------------------------------------------------------------------- memory */

typedef struct limited {
    berth_status status;
    char line[2048];
    uint64_t peak;
} limited;

static limited
open_limited(const char *folder, bool is_indexed, uint32_t threads, uint64_t limit,
             const berth_allocator *allocator)
{
    const berth_context_options options = { .struct_size = sizeof options,
                                            .memory_limit = limit,
                                            .allocator = allocator };
    berth_open_options open;
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_memory_summary memory;
    berth_error error;
    limited result = { .line = "" };

    berth_open_options_init(&open);
    open.threads = threads;
    open.all_files = !is_indexed;
    CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK);
    result.status = berth_checkpoint_open(context, folder, &open, &checkpoint, &error);
    if (result.status != BERTH_OK)
        berth_error_format(&error, result.line, sizeof result.line);
    berth_checkpoint_close(checkpoint);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    CHECK_EQ(memory.allocations, memory.frees);
    result.peak = memory.peak_bytes;
    berth_context_destroy(context);
    return result;
}

/* Whatever one thread can do with so much memory, several can. */
static void
compare_limits(const char *folder, bool is_indexed)
{
    const limited free_of = open_limited(folder, is_indexed, 1, 0, NULL);
    uint32_t refused = 0;

    T_REQUIRE(free_of.status == BERTH_OK);
    for (uint64_t limit = free_of.peak; limit > 1024; limit -= free_of.peak / 96) {
        const limited alone = open_limited(folder, is_indexed, 1, limit, NULL);

        for (size_t i = 0; i < COUNTS; i++) {
            const limited together =
                open_limited(folder, is_indexed, thread_counts[i], limit, NULL);

            CHECK_EQ(together.status, alone.status);
            CHECK_STR(together.line, alone.line);
        }
        refused += alone.status == BERTH_ENOMEM;
    }
    CHECK_GT(refused, 40);
}

static void
test_memory(void)
{
    const char *folder = make_model();

    compare_limits(folder, true);
    fixture_remove(fixture_format("%s/model.safetensors.index.json", folder));
    compare_limits(folder, false);
}

/* An allocator that lets its owner wait where a header is read: others get far ahead. */
static void *
alloc_late(void *user, size_t bytes, size_t alignment, const char *purpose)
{
    const pthread_t *const owner = user;

    if (strcmp(purpose, "header") == 0 && pthread_equal(*owner, pthread_self()))
        (void)nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL);
    return own_alloc(NULL, bytes, alignment, purpose);
}

/*
 * The table grows between the shards: the last one, read while it was small, must not be
 * had where one thread could not read it any more. Found by a run on a busy machine.
 */
static void
test_memory_of_turns(void)
{
    static const int tensors[] = { 1, 60, 1, 60 };
    pthread_t owner = pthread_self();
    const berth_allocator late = { &owner, alloc_late, own_free };
    const char *folder = fixture_folder();
    limited free_of;
    uint32_t refused = 0;

    for (int s = 0; s < 4; s++) {
        char *lines = NULL;
        size_t size = 0;
        FILE *const out = open_memstream(&lines, &size);

        for (int t = 0; t < tensors[s]; t++)
            fprintf(out, "U8 2 model.layers.%d.mlp.experts.%d.weight\n", s, t);
        fclose(out);
        fixture_file(fixture_format("%s/part-%d.safetensors", folder, s), lines);
        free(lines);
    }
    free_of = open_limited(folder, false, 1, 0, NULL);
    T_REQUIRE(free_of.status == BERTH_OK);
    for (uint64_t limit = free_of.peak; limit > free_of.peak / 2; limit -= 96) {
        const limited alone = open_limited(folder, false, 1, limit, NULL);
        const limited together = open_limited(folder, false, 2, limit, &late);

        CHECK_EQ(together.status, alone.status);
        CHECK_STR(together.line, alone.line);
        refused += alone.status == BERTH_ENOMEM;
    }
    CHECK_GT(refused, 40);
}

/* ----------------------------------------------------------------------- faults */

static void
ignore(void *user, const berth_finding *finding)
{
    CHECK_NE(finding->details->message[0], '\0');
    ++*(uint64_t *)user;
}

static berth_status
open_and_close(void *user, berth_context *context, berth_error *error)
{
    berth_checkpoint *checkpoint = user;
    berth_open_options options;
    uint64_t findings = 0;
    berth_status status;

    berth_open_options_init(&options);
    options.threads = 4;
    options.finding = ignore;
    options.finding_user = &findings;
    status = berth_checkpoint_open(context, user, &options, &checkpoint, error);
    CHECK_EQ(checkpoint != NULL, status == BERTH_OK);
    berth_checkpoint_close(checkpoint);
    return status;
}

/* One failure among those of reading ahead is survived; those that stay are reported. */
static void
test_faults(void)
{
    const char *folder = fixture_folder();
    fault_counts counts;

    fixture_model(folder, "[model-00001-of-00004.safetensors]\n@format pt\nF32 2 a\nF32 2 x\n"
                          "[model-00002-of-00004.safetensors]\nF32 2 b\nF32 2 c\n"
                          "[model-00003-of-00004.safetensors]\nF32 2 d\nF32 2 w\n"
                          "[model-00004-of-00004.safetensors]\nF32 2 e\n");
    counts = fault_loop("four threads", open_and_close, (void *)(uintptr_t)folder);
    CHECK_GT(counts.memory, 40);
    CHECK_GT(counts.system, 40);
    CHECK_GT(counts.survived, 16);
    CHECK_LT(counts.survived, counts.runs / 2);
}

/* ---------------------------------------------------------------------- default */

/* System calls of an opening. */
static uint64_t
count_calls(const char *folder, uint32_t threads)
{
    berth_open_options options;
    uint64_t calls;
    opened o;

    berth_open_options_init(&options);
    options.threads = threads;
    berthi_fault_disarm();
    opened_begin(&o, folder, &options);
    calls = berthi_fault_calls(BERTHI_FAULT_SYSTEM);
    opened_end(&o);
    return calls;
}

/* Who is not asked to go on reads nothing behind what is broken. */
static void
test_ends(void)
{
    const char *folder = make_model();
    const uint64_t calls = count_calls(folder, 1);

    fixture_text(shard_path(folder, 0), "PK");
    CHECK_LT(count_calls(folder, 1) + 3 * (SHARDS - 2), calls);
}

static const char *
make_two_shards(int tensors)
{
    const char *folder = fixture_folder();
    char *lines = NULL;
    size_t size = 0;
    FILE *const out = open_memstream(&lines, &size);

    for (int i = 0; i < tensors; i++) {
        if (i % 3000 == 0)
            fprintf(out, "[model-0000%d-of-00002.safetensors]\n", i / 3000 + 1);
        fprintf(out, "U8 1 %d\n", i);
    }
    fclose(out);
    fixture_model(folder, lines);
    free(lines);
    return folder;
}

/* Only a model of 4096 tensors makes anybody ask how many threads there could be. */
static void
test_default(void)
{
    const char *small = make_two_shards(4095);
    const char *large = make_two_shards(4096);

    CHECK_EQ(count_calls(small, 0), count_calls(small, 1));
    CHECK_GT(count_calls(large, 0), count_calls(large, 1));
    CHECK_EQ(count_calls(large, 2), count_calls(large, 1) + 1);
}

/* A long index is read by two, unless one is all there may be. */
static void
test_long_index(void)
{
    const char *folder = make_two_shards(10);
    const char *path = fixture_format("%s/model.safetensors.index.json", folder);
    const uint64_t calls = count_calls(folder, 0);
    size_t length;
    char *const index = fixture_read(path, &length);
    char *const longer = malloc(BERTHI_FILE_LONG);

    T_REQUIRE(index != NULL && longer != NULL);
    memset(longer, ' ', BERTHI_FILE_LONG);
    memcpy(longer, index, length);
    fixture_write(path, longer, BERTHI_FILE_LONG);
    CHECK_EQ(count_calls(folder, 1), calls);
    CHECK_EQ(count_calls(folder, 0), calls + 2); /* a thread, and another read */
    free(longer);
    free(index);
}

/* ------------------------------------------------------------------------ alone */

/* Shards as they are when their headers are read. */
static void
open_shards(const char *folder, berthi_shard *shards)
{
    memset(shards, 0, SHARDS * sizeof *shards);
    for (int i = 0; i < SHARDS; i++)
        CHECK_EQ(berthi_file_open(&shards[i].file, BERTHI_SYS_AT_CWD, shard_path(folder, i),
                                  shard_path(folder, i), BERTHI_FILE_ANYWHERE, NULL),
                 BERTH_OK);
}

static void
close_shards(berthi_shard *shards)
{
    for (int i = 0; i < SHARDS; i++)
        berthi_file_close(&shards[i].file);
}

static bool
takes(berthi_ahead *ahead, uint32_t shard, uint64_t entries)
{
    berthi_shard_header h;

    if (!berthi_ahead_take(ahead, shard, &h))
        return false;
    CHECK_EQ(h.header.entry_count, entries);
    CHECK_GT(h.bytes, 0);
    berthi_header_fini(&h.header);
    return true;
}

static berth_context *
make_context(void)
{
    berth_context *context = NULL;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    return context;
}

static void
drop_context(berth_context *context)
{
    berth_memory_summary memory;

    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
}

/* Every header that is right is there in its turn; the others are the caller's. */
static void
test_turns(void)
{
    const char *folder = make_model();
    berthi_shard shards[SHARDS];
    berthi_ahead ahead;

    fixture_extend(shard_path(folder, 4), 1);
    fixture_truncate(shard_path(folder, 5), fixture_size(shard_path(folder, 5)) - 7);
    open_shards(folder, shards);
    for (int i = 6; i < 20; i++)
        berthi_file_close(&shards[i].file);
    for (size_t i = 0; i < COUNTS; i++) {
        berth_context *const context = make_context();

        berthi_ahead_start(&ahead, context, shards, SHARDS, thread_counts[i]);
        CHECK_GT(ahead.worker_count, 0);
        CHECK_LT(ahead.worker_count, thread_counts[i]);
        CHECK_LT(ahead.worker_count, BERTHI_AHEAD_THREADS);
        for (uint32_t s = 0; s < SHARDS; s++)
            if (shards[s].file.fd >= 0)
                CHECK_EQ(takes(&ahead, s, TENSORS), s != 4 && s != 5);
        CHECK(berthi_ahead_end(&ahead));
        CHECK(!berthi_ahead_end(&ahead));
        CHECK(!takes(&ahead, 0, TENSORS));
        drop_context(context);
    }
    close_shards(shards);
}

static uint32_t
next_of(berthi_ahead *ahead)
{
    uint32_t next;

    pthread_mutex_lock(&ahead->lock);
    next = ahead->next;
    pthread_mutex_unlock(&ahead->lock);
    return next;
}

/* Not what is too large by a byte, nor what has changed since it was opened. */
static void
test_limit(void)
{
    berth_context *const context = make_context();
    berthi_shard shards[SHARDS];
    berthi_shard_header h;
    uint64_t bytes;

    open_shards(make_model(), shards);
    CHECK(berthi_shard_can_read(&shards[0], context, BERTHI_AHEAD_LIMIT, &h));
    bytes = h.bytes;
    berthi_header_fini(&h.header);
    CHECK(berthi_shard_can_read(&shards[0], context, bytes, &h));
    berthi_header_fini(&h.header);
    CHECK(!berthi_shard_can_read(&shards[0], context, bytes - 1, &h));
    shards[0].file.identity.mtime_ns--;
    CHECK(!berthi_shard_can_read(&shards[0], context, bytes, &h));
    drop_context(context);
    close_shards(shards);
}

/* Two headers a thread, however long the caller takes; what nobody took is given back. */
static void
test_window(void)
{
    const char *folder = make_model();
    berth_context *const context = make_context();
    berthi_shard shards[SHARDS];
    berthi_ahead ahead;

    open_shards(folder, shards);
    berthi_ahead_start(&ahead, context, shards, SHARDS, 2);
    T_REQUIRE(ahead.worker_count == 1);
    for (uint32_t turn = 0; turn < 3; turn++) {
        CHECK(takes(&ahead, turn, TENSORS));
        while (next_of(&ahead) < turn + 4)
            nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
        CHECK_EQ(next_of(&ahead), turn + 4);
    }
    CHECK(berthi_ahead_end(&ahead));
    drop_context(context);
    close_shards(shards);
}

/* Nobody touches a shard that could not be opened. */
static void
test_closed(void)
{
    const char *folder = make_model();
    berth_context *const context = make_context();
    berthi_shard shards[SHARDS];
    berthi_shard_header h;
    berthi_ahead ahead;
    uint64_t calls;

    open_shards(folder, shards);
    for (int i = 1; i < SHARDS; i++)
        berthi_file_close(&shards[i].file);
    berthi_fault_disarm();
    CHECK(berthi_shard_can_read(&shards[0], context, BERTHI_AHEAD_LIMIT, &h));
    calls = berthi_fault_calls(BERTHI_FAULT_SYSTEM);
    berthi_header_fini(&h.header);
    berthi_fault_disarm();
    berthi_ahead_start(&ahead, context, shards, SHARDS, 2);
    T_REQUIRE(ahead.worker_count == 1);
    CHECK(takes(&ahead, 0, TENSORS));
    while (next_of(&ahead) < 4)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    CHECK(berthi_ahead_end(&ahead));
    CHECK_EQ(berthi_fault_calls(BERTHI_FAULT_SYSTEM), calls + 1);
    drop_context(context);
    close_shards(shards);
}

/* One thread, one shard, or none to be had: nothing is read ahead. */
static void
test_none(void)
{
    const char *folder = make_model();
    berth_context *const context = make_context();
    berthi_shard shards[SHARDS];
    berthi_ahead ahead;

    open_shards(folder, shards);
    berthi_ahead_start(&ahead, context, shards, SHARDS, 1);
    CHECK(!takes(&ahead, 0, TENSORS));
    CHECK(!berthi_ahead_end(&ahead));
    berthi_ahead_start(&ahead, context, shards, 1, 4);
    CHECK(!takes(&ahead, 0, TENSORS));
    CHECK(!berthi_ahead_end(&ahead));
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    berthi_ahead_start(&ahead, context, shards, SHARDS, 4);
    berthi_fault_disarm();
    CHECK(!takes(&ahead, 0, TENSORS));
    CHECK(!berthi_ahead_end(&ahead));
    drop_context(context);
    close_shards(shards);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_whole);
    T_RUN(test_all_files);
    T_RUN(test_broken);
    T_RUN(test_absent);
    T_RUN(test_remarks);
    T_RUN(test_large);
    T_RUN(test_memory);
    T_RUN(test_memory_of_turns);
    T_RUN(test_faults);
    T_RUN(test_default);
    T_RUN(test_long_index);
    T_RUN(test_turns);
    T_RUN(test_ends);
    T_RUN(test_limit);
    T_RUN(test_window);
    T_RUN(test_closed);
    T_RUN(test_none);
    T_MAIN_END;
}
