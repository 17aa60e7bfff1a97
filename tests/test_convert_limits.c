/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_limits.c - how much memory a conversion takes, how much it reads;
 * and tensors without a usual shape.
 */
#define _GNU_SOURCE

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)
#define A "model.layers.0.a.weight"
#define B "model.layers.1.b.weight"

static const char *
make(const char *lines)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, fixture_format("[model.safetensors]\n%s", lines));
    return folder;
}

static const char *
out(void)
{
    return fixture_format("%s/out", fixture_folder());
}

/* ----------------------------------------------------------------------- memory */

/* Of the address space that this process has by now. */
static uint64_t
address_bytes(void)
{
    unsigned long pages = 0;
    FILE *const in = fopen("/proc/self/statm", "r");

    if (in == NULL || fscanf(in, "%lu", &pages) != 1)
        pages = 0;
    if (in != NULL)
        fclose(in);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Threads' stacks, beside the plan. */
#define THREADS_BYTES (UINT64_C(96) * MIB)

/* In a child; 0, or what went wrong. */
static int
convert_within(const char *model, const char *output, int32_t type, int32_t is_double,
               uint64_t scratch)
{
    struct rlimit limit;
    converted c;

    /* Room that the C library reserves for a thread's allocations is none of the plan's. */
    if (mallopt(M_ARENA_MAX, 1) != 1)
        return 7;
    converted_begin(&c, output, type);
    c.options.double_quant = is_double;
    c.options.dry_run = 1;
    c.options.workers = 4;
    c.options.readers = 4;
    if (converted_run(&c, model) != BERTH_OK)
        return 1;
    if (c.report.planned_memory > 256 * MIB + scratch)
        return 2;
    limit.rlim_cur = address_bytes() + c.report.planned_memory + THREADS_BYTES;
    limit.rlim_max = limit.rlim_cur;
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 3;
    c.options.dry_run = 0;
    c.is_bare = true;
    if (converted_run(&c, model) != BERTH_OK) {
        fprintf(stderr, "%s\n", c.error.message);
        return 4;
    }
    fixture_remove(output);
    if (c.peak > c.report.planned_memory)
        return 5;
    return c.report.bytes_read >= UINT64_C(1) << 31 ? 0 : 6;
}

static void
check_memory(int32_t type, int32_t is_double, uint64_t scratch)
{
    const char *const model = make("BF16 32768x32768 " A " = sparse\nF32 9 model.norm\n");
    const char *const output = out();
    const pid_t child = fork();
    int how = 0;

    T_REQUIRE(child >= 0);
    if (child == 0)
        _exit(convert_within(model, output, type, is_double, scratch));
    CHECK_EQ(waitpid(child, &how, 0), child);
    CHECK(WIFEXITED(how));
    CHECK_EQ(WEXITSTATUS(how), 0);
    fixture_remove(model);
}

/* 2 GiB of weights in one tensor. */
static void
test_memory_of_a_large_tensor(void)
{
    const uint64_t blocks = (UINT64_C(1) << 30) / 64;

    if (T_IS_SANITIZED)
        T_SKIP("a sanitizer needs more memory than any limit");
    if (access("/dev/shm", W_OK) != 0)
        T_SKIP("too much to flush to a disk");
    check_memory(BERTH_ENCODING_NF4, 1, blocks * 5 + blocks / 256 * 4 + MIB);
    check_memory(BERTH_ENCODING_INT8, 0, 0);
}

/* Many tensors: the tables are in the plan. */
static void
test_memory_of_many_tensors(void)
{
    const char *const folder = fixture_folder();
    const uint64_t shape[2] = { 3, 5 };
    fixture_builder *const b = fixture_begin();
    converted c;
    int over = 0;

    for (int i = 0; i < 4000; i++)
        fixture_add(b, fixture_format("model.layers.%d.a.weight", i), "BF16", 2, shape,
                    NULL);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    for (int i = 0; i < 4; i++) {
        converted_begin(&c, out(), BERTH_ENCODING_NF4);
        c.options.double_quant = i % 2;
        c.options.max_shard_bytes = i < 2 ? 0 : 100000;
        c.options.ring_bytes = 1;
        converted_shrink(&c, 64);
        CHECK_EQ(converted_run(&c, folder), BERTH_OK);
        over += !CHECK_LE(c.peak, c.report.planned_memory);
        T_NOTE("%d MiB planned, %d MiB taken", (int)(c.report.planned_memory / MIB),
               (int)(c.peak / MIB));
        fixture_remove(c.options.output);
    }
    CHECK_EQ(over, 0);
}

/*
 * Several shards: what may belong to a later one is in the plan, and that are the
 * statistics alone, 4 bytes for 64 values.
 */
static void
test_memory_of_shards(void)
{
    const char *const model = make("BF16 8192x8192 " A " = sparse\nBF16 8192x8192 " B
                                   " = sparse\n");
    const uint64_t statistics = 2 * UINT64_C(8192) * 8192 / 64 * 4;
    uint64_t whole;
    converted c;

    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    c.options.dry_run = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    whole = c.report.planned_memory;
    c.options.max_shard_bytes = 16 * MIB;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_GT(c.report.shards, 1);
    CHECK_GE(c.report.planned_memory, whole + statistics / 2);
    CHECK_LE(c.report.planned_memory, whole + statistics + 8 * MIB); /* and their lists */
}

/* ------------------------------------------------------------------------ reading */

static void
test_bytes_are_read_once(void)
{
    static const int32_t ios[] = { BERTH_IO_BUFFERED, BERTH_IO_DIRECT };
    const char *const model = make("BF16 3000x700 " A "\nF32 500x300 " B
                                   "\nF32 1000 model.norm.weight\n");
    const uint64_t bytes = UINT64_C(3000) * 700 * 2 + UINT64_C(500) * 300 * 4 + 4000;

    for (int i = 0; i < 2; i++) {
        converted c;

        converted_begin(&c, out(), BERTH_ENCODING_NF4);
        c.options.io = ios[i];
        converted_shrink(&c, 100000);
        CHECK_EQ(converted_run(&c, model), BERTH_OK);
        CHECK_GE(c.report.bytes_read, bytes);
        /* Direct reads are widened at both ends of each of the 24 units. */
        CHECK_LE(c.report.bytes_read, bytes + (i > 0 ? 30 * 8192 : 0));
    }
}

/* What a job says of its progress: bytes of the tensors, all of them at its end. */
static uint64_t
total_of(const char *model, uint32_t part, uint32_t part_count)
{
    berth_checkpoint *checkpoint = NULL;
    berth_context *context = NULL;
    berth_progress progress;
    berth_job *job = NULL;
    converted c;

    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    c.options.part = part;
    c.options.part_count = part_count;
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, model, NULL, &checkpoint, NULL), BERTH_OK);
    if (!CHECK_EQ(berth_convert_start(context, checkpoint, &c.options, &job, &c.error),
                  BERTH_OK))
        return 0;
    CHECK_EQ(berth_job_wait(job, -1), BERTH_OK);
    berth_job_poll(job, &progress);
    CHECK_EQ(progress.done, progress.total);
    CHECK_EQ(berth_job_finish(job, &c.error), BERTH_OK);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
    return progress.total;
}

static void
test_progress(void)
{
    const char *const model = make("BF16 300x70 " A "\nF32 50x30 " B
                                   "\nF32 1000 model.norm.weight\n");
    const uint64_t bytes = UINT64_C(300) * 70 * 2 + 50 * 30 * 4 + 4000;
    const uint64_t first = total_of(model, 1, 2);

    CHECK_EQ(total_of(model, 0, 0), bytes);
    CHECK_GT(first, 0);
    CHECK_LT(first, bytes);
    CHECK_EQ(first + total_of(model, 2, 2), bytes);
}

static void
test_companions_are_counted(void)
{
    const char *const model =
        make("F8_E4M3 192x200 " A "\nF32 2x2 " A "_scale_inv\nF32 3 model.norm.weight\n");
    converted c;

    converted_begin(&c, out(), BERTH_ENCODING_NATIVE);
    c.options.io = BERTH_IO_BUFFERED;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.report.bytes_read, 192 * 200 + 16 + 12);
}

/* ------------------------------------------------------------------- what is odd */

/* What is empty has constants all the same. */
static void
test_empty_weights(void)
{
    static const char *const lines =
        "BF16 0x5 " A "\nBF16 5x0 " B "\nBF16 0 model.layers.2.c.weight\n"
        "BF16 4x4 model.layers.3.d.weight\nF32 0x7x3 model.layers.4.e.weight\n";
    const char *const model = make(lines);
    converted c;

    for (int sharded = 0; sharded < 2; sharded++) {
        for (int type = BERTH_ENCODING_NATIVE; type <= BERTH_ENCODING_INT8; type++) {
            converted_begin(&c, out(), type);
            c.options.dtype = BERTH_F32;
            c.options.max_shard_bytes = sharded > 0 ? 4096 : 0;
            if (!CHECK_EQ(converted_run(&c, model), BERTH_OK)
                || !CHECK_GT(converted_matches_oracle(&c, model), 0)
                || !converted_is_verified(c.options.output))
                T_NOTE("type %d: %s %s", type, c.error.tensor, c.error.message);
        }
    }
}

/* No tensors, and tensors of which none is quantized. */
static void
test_nothing_to_do(void)
{
    const char *const empty = make("@format pt\n");
    const char *const plain = make("I64 3 model.ids\nF8_E5M2 5 model.small\n");
    converted c;

    converted_begin(&c, out(), BERTH_ENCODING_NATIVE);
    CHECK_EQ(converted_run(&c, plain), BERTH_OK);
    CHECK_EQ(converted_matches_oracle(&c, plain), 0);
    CHECK_EQ(c.report.shards, 1);
    converted_begin(&c, out(), BERTH_ENCODING_NATIVE);
    CHECK_EQ(converted_run(&c, empty), BERTH_OK);
    CHECK_EQ(converted_matches_oracle(&c, empty), 0);
}

/* 8-bit floats are plain numbers, also beside what bitsandbytes quantizes. */
static void
test_plain_floats_of_8_bits(void)
{
    const char *const model = make("F8_E5M2 5 model.layers.0.tiny\nF8_E4M3 2x2 " B
                                   "\nBF16 9x32 " A "\nBF16 3 model.norm.weight\n");
    converted c;

    fixture_text(fixture_format("%s/config.json", model), FIXTURE_CONFIG);
    converted_begin(&c, out(), BERTH_ENCODING_NF4);
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_GT(converted_matches_oracle(&c, model), 0);
    CHECK(converted_is_verified(c.options.output));
}

/* Nothing can cast floats of 64 bits, nor quantize them: they stay. */
static void
test_floats_of_64_bits(void)
{
    const char *const model = make("F64 9x32 " B "\nBF16 9x32 " A "\nF64 3 model.norm.weight\n");
    converted c;

    for (int32_t type = BERTH_ENCODING_NATIVE; type <= BERTH_ENCODING_INT8; type++) {
        converted_begin(&c, out(), type);
        if (!CHECK_EQ(converted_run(&c, model), BERTH_OK))
            T_NOTE("%s", c.error.message);
        CHECK_EQ(c.report.quantized, type != BERTH_ENCODING_NATIVE);
        CHECK_EQ(converted_matches_oracle(&c, model), c.report.quantized);
        CHECK(converted_is_verified(c.options.output));
    }
}

/* Experts in one tensor are left alone, or quantized one by one. */
static void
test_fused_experts(void)
{
    const char *model =
        make("BF16 6x32x48 model.layers.0.mlp.experts.gate_up_proj\n"
             "BF16 6x16x32 model.layers.0.mlp.experts.down_proj\nBF16 9x32 " A "\n"
             "BF16 8x8 model.layers.1.b.weight\n");
    converted c;

    for (int takes = 0; takes < 2; takes++) {
        converted_begin(&c, out(), BERTH_ENCODING_NF4);
        c.options.takes_experts = takes;
        c.options.double_quant = takes;
        converted_shrink(&c, 100);
        if (!CHECK_EQ(converted_run(&c, model), BERTH_OK))
            T_NOTE("%s", c.error.message);
        CHECK_EQ(c.report.quantized, 2 + 2 * takes);
        CHECK_EQ(converted_matches_oracle(&c, model), 2 + 2 * takes);
    }
    c.options.block_size = 1024;
    c.options.output = out();
    CHECK_EQ(converted_run(&c, model), BERTH_EUNSUPPORTED);
    CHECK_STR(c.error.tensor, "model.layers.0.mlp.experts.down_proj");
    CHECK_CONTAINS(c.error.message, "two experts: choose a smaller block size");
    /* No block size divides 3 x 24 values: smaller ones are no help. */
    model = make("BF16 6x3x24 model.layers.0.mlp.experts.gate_up_proj\nBF16 9x32 " A "\n");
    c.options.block_size = 0;
    c.options.output = out();
    CHECK_EQ(converted_run(&c, model), BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(c.error.message, "a block of any size would hold values of two experts");
}

/* The head is the embedding: neither is quantized, both are written. */
static void
test_ties(void)
{
    static const char *const lines =
        "BF16 20x16 lm_head.weight\nBF16 20x16 model.embed_tokens.weight\n"
        "BF16 16 model.layers.0.input_layernorm.weight\n"
        "BF16 24x16 model.layers.0.mlp.gate_proj.weight\n"
        "BF16 24x16 model.layers.0.mlp.up_proj.weight\n"
        "BF16 16x24 model.layers.0.mlp.down_proj.weight\nBF16 16 model.norm.weight\n";
    const char *const model = make(lines);
    converted c;

    fixture_text(fixture_format("%s/config.json", model),
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"dtype\": \"bfloat16\", "
                 "\"model_type\": \"llama\", \"tie_word_embeddings\": true, "
                 "\"num_hidden_layers\": 1}\n");
    converted_begin(&c, out(), BERTH_ENCODING_FP4);
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(c.report.quantized, 3);
    CHECK_EQ(converted_matches_oracle(&c, model), 3);
}

/* ------------------------------------------------------------------------- time */

/* As many shards as tensors. A sanitizer multiplies time: a tenth is divided in the same way. */
#define MANY (T_IS_SANITIZED ? 15000u : 150000u)
/* Whoever looks at all tensors for each shard takes longer; the rest is for a busy machine. */
#define SECONDS_LIMIT 10

static void
test_time_of_many_shards(void)
{
    static const uint64_t shape[] = { 1024 };
    const char *const folder = fixture_folder();
    fixture_builder *const builder = fixture_begin();
    double seconds;
    clock_t begin;
    converted c;

    for (uint32_t i = 0; i < MANY; i++) {
        char name[32];

        snprintf(name, sizeof name, "layers.%u.norm.weight", (unsigned)i);
        fixture_add_sparse(builder, name, "F32", 1, shape);
    }
    (void)fixture_finish(builder, fixture_format("%s/model.safetensors", folder));
    begin = clock();
    converted_begin(&c, out(), BERTH_ENCODING_NATIVE);
    c.options.max_shard_bytes = 4096;
    c.options.dry_run = 1;
    CHECK_EQ(converted_run(&c, folder), BERTH_OK);
    seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    CHECK_EQ(c.report.shards, MANY);
    CHECK_LT((int)(seconds * 1000), SECONDS_LIMIT * 1000);
    T_NOTE("%u shards: %.0f ms", MANY, seconds * 1000);
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_memory_of_a_large_tensor);
    T_RUN(test_memory_of_many_tensors);
    T_RUN(test_memory_of_shards);
    T_RUN(test_bytes_are_read_once);
    T_RUN(test_progress);
    T_RUN(test_companions_are_counted);
    T_RUN(test_empty_weights);
    T_RUN(test_nothing_to_do);
    T_RUN(test_plain_floats_of_8_bits);
    T_RUN(test_floats_of_64_bits);
    T_RUN(test_fused_experts);
    T_RUN(test_ties);
    T_RUN(test_time_of_many_shards);
    T_MAIN_END;
}
