/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that the real libraries wrote: all of the recorded ones where
 * they are at hand, a trimmed one (tests/data/checkpoint) everywhere.
 */
#define _XOPEN_SOURCE 700

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/opened.h"
#include "tests/t.h"

#define GOLDEN "../shared/golden/quant"
#define TRIMMED "tests/data/checkpoint"

static void
test_trimmed(void)
{
    static const char weight[] = "model.decoder.project_in.weight";
    berth_open_options options;
    berth_quantized quantized;
    uint64_t index;
    opened o;

    berth_open_options_init(&options);
    options.strict = 1;
    opened_begin(&o, TRIMMED, &options);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(o.finding_count, 0);
    CHECK_STR(o.summary.architecture, "OPTForCausalLM");
    CHECK_STR(o.summary.dtype, "bfloat16");
    CHECK_STR(o.summary.quant_method, "bitsandbytes");
    CHECK_EQ(o.summary.shard_count, 2);
    CHECK_EQ(o.summary.tensor_count, 8);
    CHECK_EQ(o.summary.quantized_count, 1);
    CHECK_EQ(o.summary.ties_embeddings, 1);
    index = berth_checkpoint_find(o.checkpoint, weight, sizeof weight - 1);
    T_REQUIRE(index != BERTH_NO_TENSOR);
    CHECK_EQ(berth_checkpoint_quantized(o.checkpoint, index, &quantized), BERTH_OK);
    CHECK_EQ(quantized.encoding, BERTH_ENCODING_NF4);
    CHECK_EQ(quantized.is_double, 1);
    CHECK_EQ(quantized.companion_count, 5);
    opened_end(&o);
}

/* Recorded facts: names, files and shapes of expected.json, compared as text. */
static void
check_expected(const opened *o, const char *folder)
{
    const char *path = fixture_format("%s/expected.json", folder);
    char *text = fixture_read(path, NULL);
    const char *at = strstr(text, "\"parameters\": [");
    uint64_t found = 0;
    uint64_t quantized_count = 0;

    while (at != NULL && (at = strstr(at, "\"name\": \"")) != NULL) {
        berth_quantized quantized;
        berth_tensor tensor;
        berth_shard shard;
        char name[256];
        char file[256] = "";
        uint64_t index;

        /* Blanks of the format are any white space; sources name no file. */
        if (!CHECK_GE(sscanf(at, "\"name\": \"%255[^\"]\", \"file\": \"%255[^\"]\"", name,
                             file),
                      1))
            break;
        at += strlen(name);
        index = berth_checkpoint_find(o->checkpoint, name, strlen(name));
        if (!CHECK_NE(index, BERTH_NO_TENSOR))
            continue;
        CHECK_EQ(berth_checkpoint_tensor(o->checkpoint, index, &tensor), BERTH_OK);
        CHECK_EQ(berth_checkpoint_shard(o->checkpoint, tensor.shard, &shard), BERTH_OK);
        if (file[0] != '\0')
            CHECK_STR(shard.file, file);
        quantized_count +=
            berth_checkpoint_quantized(o->checkpoint, index, &quantized) == BERTH_OK;
        found++;
    }
    CHECK_GT(found, 0);
    CHECK_EQ(quantized_count, o->summary.quantized_count);
    free(text);
}

static uint64_t
open_models(const char *family)
{
    DIR *stream = opendir(family);
    const struct dirent *entry;
    uint64_t count = 0;

    if (stream == NULL)
        return 0;
    while ((entry = readdir(stream)) != NULL) {
        const char *folder = fixture_format("%s/%s", family, entry->d_name);
        opened o;

        if (access(fixture_format("%s/expected.json", folder), R_OK) != 0)
            continue;
        opened_begin(&o, folder, NULL);
        if (CHECK_EQ(o.status, BERTH_OK)) {
            check_expected(&o, folder);
            for (uint32_t i = 0; i < o.finding_count; i++)
                CHECK_NE(o.findings[i].severity, BERTH_SEVERITY_ERROR);
        } else {
            T_NOTE("%s: %s", folder, o.error.message);
        }
        opened_end(&o);
        count++;
    }
    closedir(stream);
    return count;
}

static void
test_golden(void)
{
    static const char *const families[] = { "gpt2", "llama", "mixtral",
                                            "opt",  "qwen3", "t5" };
    uint64_t count = 0;

    if (access(GOLDEN "/README.md", R_OK) != 0)
        T_SKIP("no golden data beside the checkout");
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        count += open_models(fixture_format(GOLDEN "/%s", families[i]));
    CHECK_GE(count, 30);
    T_NOTE("%llu golden checkpoints opened", (unsigned long long)count);
}

/* Strict mode accepts what transformers writes. */
static void
test_golden_strict(void)
{
    berth_open_options options;

    if (access(GOLDEN "/README.md", R_OK) != 0)
        T_SKIP("no golden data beside the checkout");
    berth_open_options_init(&options);
    options.strict = 1;
    CHECK_EQ(opened_accept(GOLDEN "/llama/nf4_dq_sharded", &options), 91);
    CHECK_EQ(opened_accept(GOLDEN "/mixtral/source", &options), 35);
    CHECK_EQ(opened_accept(GOLDEN "/opt/int8", &options), 66);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_trimmed);
    T_RUN(test_golden);
    T_RUN(test_golden_strict);
    T_MAIN_END;
}
