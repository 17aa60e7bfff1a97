/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_output.c - what is known before a conversion begins: what stands in
 * the way of its output, how much room that needs, what goes along, and what may
 * not be what was meant.
 */
#define _XOPEN_SOURCE 700

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define A "model.layers.0.a.weight"
#define B "model.layers.1.b.weight"
#define TWO "BF16 33x70 " A "\nBF16 8x64 " B "\nF32 9 model.norm.weight\n"

/* A model with its config.json and a tokenizer. */
static const char *
make(const char *lines)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, fixture_format("[model.safetensors]\n%s", lines));
    fixture_text(fixture_format("%s/config.json", folder), "{}");
    fixture_text(fixture_format("%s/tokenizer.json", folder), "{\"a\": 1}");
    return folder;
}

static const char *
in(const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, name);
}

static const char *
out(void)
{
    return in(fixture_folder(), "out");
}

static bool
exists(const char *path)
{
    struct stat state;

    return lstat(path, &state) == 0;
}

/* The same failure, tried or done; what was in the output stays, and nothing else. */
static void
check_both(const char *model, const char *output, bool overwrite, berth_reason reason,
           const char *file, const char *words)
{
    const bool was_there = exists(output);
    const int files = fixture_count(output);

    for (int dry = 1; dry >= 0; dry--) {
        converted c;

        converted_begin(&c, output, BERTH_ENCODING_NF4);
        c.options.dry_run = dry;
        c.options.overwrite = overwrite;
        CHECK_NE(converted_run(&c, model), BERTH_OK);
        CHECK_STR(berth_reason_name(c.error.reason), berth_reason_name((int32_t)reason));
        CHECK_STR(c.error.file, file);
        CHECK_CONTAINS(c.error.message, words);
        CHECK_EQ(c.report.bytes_read, 0);
        CHECK_EQ(exists(output), was_there);
        CHECK_EQ(fixture_count(output), files);
    }
}

static void
check_dry(const char *model, const char *output, bool overwrite)
{
    const bool was_there = exists(output);
    converted c;

    converted_begin(&c, output, BERTH_ENCODING_NF4);
    c.options.dry_run = 1;
    c.options.overwrite = overwrite;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_GT(c.report.free_bytes, c.report.output_bytes);
    CHECK_LT(c.report.free_bytes, UINT64_MAX); /* this file system says it */
    CHECK_EQ(exists(output), was_there);
}

/* ------------------------------------------------------------------- the folder */

static void
test_impossible_folders(void)
{
    const char *const model = make(TWO);
    const char *const folder = fixture_folder();
    const char *const file = in(folder, "notes");
    const char *const nowhere = in(folder, "no/such");

    fixture_text(file, "mine");
    check_both(model, file, false, BERTH_REASON_NOT_FOUND, file, "opening the folder");
    check_both(model, nowhere, false, BERTH_REASON_NOT_FOUND, nowhere,
               "making the folder");
    check_both(model, in(model, "new"), false, BERTH_REASON_ARGUMENT, in(model, "new"),
               "lies in the folder of the model");
    check_both(model, folder, false, BERTH_REASON_EXISTS, folder, "not empty");
    check_dry(model, folder, true);
    check_dry(model, fixture_folder(), false); /* an empty one */
    check_dry(model, in(folder, "new"), false);
    check_dry(model, in(folder, "new//"), false); /* in the same folder */
    check_both(model, in(nowhere, "//"), false, BERTH_REASON_NOT_FOUND, in(nowhere, "//"),
               "making the folder");
    fixture_text(in(folder, ".berth-journal.json"), "{}");
    check_both(model, folder, false, BERTH_REASON_EXISTS, folder,
               "holds an interrupted run");
    check_dry(model, folder, true);
}

static void
try_part(converted *c, const char *model, uint32_t part, uint32_t count, const char *words)
{
    c->options.dry_run = 1;
    c->options.part = part;
    c->options.part_count = count;
    if (words == NULL) {
        CHECK_EQ(converted_run(c, model), BERTH_OK);
        return;
    }
    CHECK_EQ(converted_run(c, model), BERTH_EINVAL);
    CHECK_EQ(c->error.reason, BERTH_REASON_EXISTS);
    CHECK_CONTAINS(c->error.message, words);
}

static void
run_part(converted *c, const char *model, uint32_t part)
{
    c->options.dry_run = 0;
    c->options.part = part;
    c->options.part_count = 2;
    CHECK_EQ(converted_run(c, model), BERTH_OK);
}

/* A part that is only tried is let in where the others are, as it would be. */
static void
test_dry_parts(void)
{
    const char *const model = make(TWO);
    const char *const output = out();
    const char *const away = fixture_format("%s/away", fixture_folder());
    const char *const journal = in(output, ".berth-journal.json");
    int files;
    converted c;

    converted_begin(&c, output, BERTH_ENCODING_NF4);
    c.is_bare = true; /* a part has no manifest yet */
    try_part(&c, model, 1, 2, NULL);
    CHECK(!exists(output));
    run_part(&c, model, 1);
    files = fixture_count(output);
    try_part(&c, model, 2, 2, NULL);
    try_part(&c, model, 1, 2, "this part has been begun before");
    try_part(&c, model, 2, 3, "holds parts that another command has made");
    try_part(&c, model, 0, 0, "holds parts of a model");
    c.options.resume = 1;
    try_part(&c, model, 1, 2, NULL);
    try_part(&c, model, 2, 3, "holds parts that another command has made");
    c.options.resume = 0;
    fixture_text(journal, "{}");
    try_part(&c, model, 2, 2, "--join goes on");
    try_part(&c, model, 0, 0, "--resume goes on");
    fixture_remove(journal);
    CHECK_EQ(fixture_count(output), files);
    run_part(&c, model, 2);
    CHECK_EQ(c.report.is_joined, 1);
    try_part(&c, model, 2, 2, "not empty");
    c.options.resume = 1; /* there is nothing left to do */
    try_part(&c, model, 2, 2, NULL);
    try_part(&c, model, 0, 0, NULL);
    CHECK_EQ(rename(in(output, "model.safetensors"), away), 0);
    try_part(&c, model, 0, 0, "\"model.safetensors\" is not there any more");
}

static void
test_hub_cache(void)
{
    const char *const model = make(TWO);
    const char *const cache = fixture_folder();
    const char *const snapshot = fixture_hub(cache, "org/name", FIXTURE_COMMIT, make(TWO));
    const char *const home = fixture_hub_repository(cache, "org/name");
    const char *const fresh = in(cache, "models--org--new");

    check_both(model, snapshot, true, BERTH_REASON_ARGUMENT, snapshot, "hub cache");
    check_both(model, in(snapshot, "new"), false, BERTH_REASON_ARGUMENT,
               in(snapshot, "new"), "hub cache");
    /* A repository's own folder, and one that would be taken for a repository. */
    check_both(model, home, true, BERTH_REASON_ARGUMENT, home, "hub cache");
    check_both(model, fresh, false, BERTH_REASON_ARGUMENT, fresh, "hub cache");
    CHECK(access(fresh, F_OK) != 0);
}

/* Root may write anywhere: as somebody else. */
static void
test_not_writable(void)
{
    const char *const model = make(TWO);
    const char *const folder = fixture_folder();
    const char *const output = in(folder, "out");
    const bool is_root = geteuid() == 0;

    CHECK_EQ(chmod(in(folder, ".."), 0711), 0);
    CHECK_EQ(chmod(model, 0755), 0);
    CHECK_EQ(chmod(folder, 0555), 0);
    CHECK_EQ(is_root ? seteuid(65534) : 0, 0);
    check_both(model, output, false, BERTH_REASON_PERMISSION, output, "making the folder");
    CHECK_EQ(is_root ? seteuid(0) : 0, 0);
    CHECK_EQ(chmod(folder, 0755), 0);
    CHECK_EQ(mkdir(output, 0555), 0);
    CHECK_EQ(is_root ? seteuid(65534) : 0, 0);
    {
        converted c;

        converted_begin(&c, output, BERTH_ENCODING_NF4);
        c.options.dry_run = 1;
        CHECK_EQ(converted_run(&c, model), BERTH_ENOENT);
        CHECK_EQ(c.error.reason, BERTH_REASON_PERMISSION);
        CHECK_STR(c.error.file, output);
        CHECK_CONTAINS(c.error.message, "writing to the folder");
    }
    CHECK_EQ(is_root ? seteuid(0) : 0, 0);
}

/* One may make a folder there, and not see what else there is. */
static void
test_folder_that_cannot_be_listed(void)
{
    const char *const model = make(TWO);
    const char *const folder = fixture_folder();
    const char *const output = in(folder, "out");
    converted c;

    if (geteuid() != 0)
        T_SKIP("cannot become another user"); /* and an owner may list it */
    CHECK_EQ(chmod(in(folder, ".."), 0711), 0);
    CHECK_EQ(chmod(model, 0755), 0);
    CHECK_EQ(chmod(folder, 01733), 0);
    CHECK_EQ(seteuid(65534), 0);
    converted_begin(&c, output, BERTH_ENCODING_NF4);
    c.options.dry_run = 1;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_NE(access(output, F_OK), 0);
    c.options.dry_run = 0;
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    CHECK_EQ(access(in(output, "model.safetensors"), F_OK), 0);
    CHECK_EQ(seteuid(0), 0);
}

/* Before the first shard is made, and before anything is replaced. */
static void
test_names_in_the_way(void)
{
    static const char *const names[] = {
        "config.json",       "tokenizer.json",    "berth.manifest.json",
        "model.safetensors", "model.safetensors.index.json",
    };
    const char *const model = make(TWO);

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *const folder = fixture_folder();

        fixture_make_folder(in(folder, names[i]));
        check_both(model, folder, true, BERTH_REASON_NOT_REGULAR, in(folder, names[i]),
                   "is a directory");
    }
    fixture_text(in(model, "sub/x.txt"), "x");
    {
        const char *const folder = fixture_folder();

        fixture_text(in(folder, "sub"), "no folder");
        check_both(model, folder, true, BERTH_REASON_NOT_REGULAR, in(folder, "sub/x.txt"),
                   "lies in something that is no directory");
    }
}

/* ----------------------------------------------------------------------- space */

static uint64_t
bytes_of(const char *folder, const char *const *names)
{
    uint64_t bytes = 0;

    for (; *names != NULL; names++)
        bytes += fixture_size(in(folder, *names));
    return bytes;
}

static void
test_everything_is_counted(void)
{
    static const char *const one[] = { "model.safetensors", "config.json",
                                       "tokenizer.json", NULL };
    static const char *const three[] = { "model-00001-of-00002.safetensors",
                                         "model-00002-of-00002.safetensors",
                                         "model.safetensors.index.json", "config.json",
                                         "tokenizer.json", NULL };
    const char *const model = make(TWO);

    for (int sharded = 0; sharded < 2; sharded++) {
        converted c;
        uint64_t bytes;
        uint64_t manifest;

        converted_begin(&c, out(), BERTH_ENCODING_NATIVE);
        if (sharded)
            c.options.max_shard_bytes = 4700;
        CHECK_EQ(converted_run(&c, model), BERTH_OK);
        CHECK_EQ(c.report.shards, 1 + sharded);
        bytes = bytes_of(c.options.output, sharded ? three : one);
        manifest = fixture_size(in(c.options.output, "berth.manifest.json"));
        /* Three times the manifest: the journal takes no more than twice that. */
        CHECK_GE(c.report.output_bytes, bytes + manifest);
        CHECK_LE(c.report.output_bytes, bytes + 3 * manifest);
        /* Tensors, and the files beside them: of one shard there is no index. */
        bytes = bytes_of(c.options.output, sharded ? three + 2 : one + 1);
        CHECK_EQ(c.report.output_bytes, c.report.planned_bytes + bytes + 3 * manifest);
        CHECK_EQ(c.report.free_bytes, 0); /* nobody has asked */
    }
}

/* One file that goes along is larger than the disk. */
static void
test_no_room_for_what_goes_along(void)
{
    const char *const model = make(TWO);
    const char *const output = out();
    const char *const large = in(model, "voice.wav");

    fixture_text(large, "");
    if (truncate(large, INT64_C(1) << 42) != 0)
        T_SKIP("no file of 4 TiB");
    check_both(model, output, false, BERTH_REASON_DISK_FULL, output,
               "does not fit on the disk");
}

/* ------------------------------------------------------------------- remarks */

static void
check_remark(converted *c, const char *path, uint32_t findings, berth_reason reason,
             const char *file, const char *words)
{
    c->options.output = out();
    c->options.dry_run = 1; /* nor is anything said about values */
    memset(&c->finding, 0, sizeof c->finding);
    CHECK_EQ(converted_run(c, path), BERTH_OK);
    CHECK_EQ(c->findings, findings);
    if (findings == 0)
        return;
    CHECK_STR(berth_reason_name(c->finding.reason), berth_reason_name((int32_t)reason));
    CHECK_STR(c->finding.file, file);
    CHECK_CONTAINS(c->finding.message, words);
}

static void
test_no_config(void)
{
    const char *const model = make(TWO);
    converted c;

    converted_begin(&c, NULL, BERTH_ENCODING_NF4);
    check_remark(&c, model, 0, 0, "", "");
    fixture_remove(in(model, "config.json"));
    check_remark(&c, model, 1, BERTH_REASON_CONFIG_JSON, in(model, "config.json"),
                 "there is none: layers are guessed from the names of their tensors, and "
                 "loaders will not know that the new weights are quantized");
    converted_begin(&c, NULL, BERTH_ENCODING_NATIVE);
    check_remark(&c, model, 1, BERTH_REASON_CONFIG_JSON, in(model, "config.json"),
                 "and loaders will not know the model");
}

/* config.json named the weights of the source: those of the output are elsewhere. */
static void
test_named_weights(void)
{
    const char *const model = make(TWO);
    const char *const output = out();
    berth_checkpoint *checkpoint;
    berth_context *context;
    berth_error error;
    converted c;

    CHECK_EQ(rename(in(model, "model.safetensors"), in(model, "w.safetensors")), 0);
    fixture_text(in(model, "config.json"), "{\"transformers_weights\": \"w.safetensors\"}");
    converted_begin(&c, output, BERTH_ENCODING_NF4);
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    if (CHECK_EQ(berth_checkpoint_open(context, output, NULL, &checkpoint, &error), BERTH_OK))
        berth_checkpoint_close(checkpoint);
    else
        T_NOTE("%s", error.message);
    berth_context_destroy(context);
}

static void
test_one_shard_of_several(void)
{
    static const struct {
        const char *name;
        uint32_t count; /* 1: no remark */
    } names[] = {
        { "model-00002-of-00003.safetensors", 3 },
        { "x-00001-of-00017.safetensors", 17 },
        { "model-00001-of-00001.safetensors", 1 },
        { "model-00001-of-00000.safetensors", 1 },
        { "model-0001-of-00003.safetensors", 1 },
        { "model-00001-of-0000x.safetensors", 1 },
        { "model-0000x-of-00003.safetensors", 1 },
        { "model-00001-in-00003.safetensors", 1 },
        { "model_00001-of-00003.safetensors", 1 },
        { "-00001-of-00003.safetensors", 1 },
        { "00001-of-00003.safetensors", 1 },
        { "model.safetensors", 1 },
        { "last.safetensors", 2 }, /* the index says so */
        { "other.safetensors", 1 },
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *const model = make(TWO);
        const char *const path = in(model, names[i].name);
        converted c;

        if (strcmp(names[i].name, "model.safetensors") != 0)
            CHECK_EQ(rename(in(model, "model.safetensors"), path), 0);
        fixture_index(in(model, "model.safetensors.index.json"), 1,
                      A " last.safetensors\n" B " first.safetensors\n");
        converted_begin(&c, NULL, BERTH_ENCODING_NF4);
        if (names[i].count == 1)
            check_remark(&c, path, 0, 0, "", "");
        else
            check_remark(&c, path, 1, BERTH_REASON_PARTIAL, path,
                         fixture_format("is one of %u shards: only what is in it is "
                                        "converted",
                                        names[i].count));
        /* An index of one file, and one that is none. */
        fixture_index(in(model, "model.safetensors.index.json"), 1,
                      fixture_format("%s other.safetensors\n", A));
        if (strcmp(names[i].name, "other.safetensors") == 0)
            check_remark(&c, path, 0, 0, "", "");
        fixture_text(in(model, "model.safetensors.index.json"), "no index");
        if (strcmp(names[i].name, "last.safetensors") == 0)
            check_remark(&c, path, 0, 0, "", "");
        fixture_remove(in(model, "model.safetensors.index.json"));
        if (names[i].count == 1)
            check_remark(&c, path, 0, 0, "", "");
    }
}

/* A model is written that says it is quantized; nothing in it is. */
static void
test_none_quantized(void)
{
    const char *const model = make(TWO);
    const char *const rules = in(fixture_folder(), "rules");
    converted c;

    fixture_text(rules, "keep *\n");
    converted_begin(&c, NULL, BERTH_ENCODING_NF4);
    c.options.rules = rules;
    check_remark(&c, model, 1, BERTH_REASON_MIN_COVERAGE, model,
                 "none of its weights is quantized: the rules leave out all of them");
    CHECK_EQ(c.report.quantized, 0);
    fixture_text(rules, "keep " A "\n");
    check_remark(&c, model, 0, 0, "", "");
    converted_begin(&c, NULL, BERTH_ENCODING_NATIVE);
    check_remark(&c, model, 0, 0, "", "");
}

static void
test_experts_as_int8(void)
{
    const char *const model =
        make("BF16 6x32x48 model.layers.0.mlp.experts.gate_up_proj\n"
             "BF16 6x16x32 model.layers.0.mlp.experts.down_proj\nBF16 9x32 " A "\n"
             "BF16 8x8 model.layers.1.b.weight\n");
    converted c;

    converted_begin(&c, NULL, BERTH_ENCODING_INT8);
    check_remark(&c, model, 0, 0, "", "");
    c.options.takes_experts = 1;
    check_remark(&c, model, 1, BERTH_REASON_UNSUPPORTED, model,
                 "is one of 2 stacks of experts that stay as they are: int8 is for matrices, "
                 "nf4 and fp4 take experts");
    CHECK_STR(c.finding.tensor, "model.layers.0.mlp.experts.down_proj");
    CHECK_EQ(c.report.quantized, 2);
    check_remark(&c, make(TWO), 0, 0, "", "");
    converted_begin(&c, NULL, BERTH_ENCODING_NF4);
    c.options.takes_experts = 1;
    check_remark(&c, model, 0, 0, "", "");
}

/* A list of the user's takes the place of the automatic one, which has all that is tied. */
static void
test_tied_head(void)
{
    const char *const model = make("BF16 9x32 model.embed_tokens.weight\n"
                                   "BF16 9x32 model.layers.0.mlp.up_proj.weight\n"
                                   "BF16 9x32 model.layers.0.mlp.down_proj.weight\n"
                                   "BF16 32 model.norm.weight\n");
    static const char *const other[] = { "down_proj" };
    static const char *const head[] = { "lm_head" };
    converted c;

    fixture_text(in(model, "config.json"),
                 "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", "
                 "\"dtype\": \"bfloat16\", \"tie_word_embeddings\": true}");
    converted_begin(&c, NULL, BERTH_ENCODING_NF4);
    check_remark(&c, model, 0, 0, "", "");
    c.options.has_skips = 1;
    c.options.skip_modules = other;
    c.options.skip_count = 1;
    check_remark(&c, model, 1, BERTH_REASON_UNSUPPORTED, model,
                 "is the embedding once more, which is not quantized, and no module to skip "
                 "names it: transformers makes a quantized layer of it, and does not run the "
                 "model");
    CHECK_STR(c.finding.tensor, "lm_head.weight");
    c.options.skip_modules = head;
    check_remark(&c, model, 0, 0, "", "");
    fixture_text(in(model, "config.json"),
                 "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", "
                 "\"dtype\": \"bfloat16\", \"tie_word_embeddings\": false}");
    c.options.skip_modules = other;
    check_remark(&c, model, 0, 0, "", "");
}

/* A rule may quantize what loaders cannot load so; what a release quantizes they can. */
static void
test_no_layers(void)
{
    static const char words[] = "weights that rules quantize and transformers has no quantized "
                                "layers for: berth reads the model, transformers does not";
    const char *const model =
        make("BF16 9x32 nomic_bert.embeddings.word_embeddings.weight\n"
             "BF16 96x32 nomic_bert.encoder.layers.0.attn.Wqkv.weight\n"
             "BF16 32x32 nomic_bert.encoder.layers.0.attn.out_proj.weight\n");
    const char *const rules = in(fixture_folder(), "rules");
    converted c;

    fixture_text(in(model, "config.json"),
                 "{\"architectures\": [\"NomicBertForMaskedLM\"], "
                 "\"model_type\": \"nomic_bert\", \"dtype\": \"bfloat16\"}");
    converted_begin(&c, NULL, BERTH_ENCODING_NF4);
    check_remark(&c, model, 0, 0, "", "");
    c.options.rules = rules;
    fixture_text(rules, "quantize *.out_proj.weight\n");
    check_remark(&c, model, 0, 0, "", "");
    fixture_text(rules, "quantize *.Wqkv.weight\n");
    check_remark(&c, model, 1, BERTH_REASON_UNSUPPORTED, model, words);
    CHECK_STR(c.finding.tensor, "nomic_bert.encoder.layers.0.attn.Wqkv.weight");
    fixture_text(rules, "quantize *\n");
    check_remark(&c, model, 1, BERTH_REASON_UNSUPPORTED, model, words);
    CHECK_STR(c.finding.tensor, "nomic_bert.embeddings.word_embeddings.weight");
    CHECK(strstr(c.finding.message, "is one of 2 ") != NULL);
    c.options.like = "hf4"; /* where it is a layer as any other */
    fixture_text(rules, "quantize *.Wqkv.weight\n");
    check_remark(&c, model, 0, 0, "", "");
}

/* Experts that are asked for are no surprise; those that a rule takes may be. */
static void
test_experts_by_rule(void)
{
    const char *const model = make("BF16 6x32x64 model.layers.0.mlp.experts.gate_up_proj\n"
                                   "BF16 9x32 " A "\n");
    const char *const rules = in(fixture_folder(), "rules");
    converted c;

    fixture_text(rules, "nf4 *.experts.*\n");
    converted_begin(&c, NULL, BERTH_ENCODING_NF4);
    c.options.takes_experts = 1;
    check_remark(&c, model, 0, 0, "", "");
    c.options.rules = rules;
    check_remark(&c, model, 0, 0, "", "");
    c.options.takes_experts = 0;
    check_remark(&c, model, 1, BERTH_REASON_UNSUPPORTED, model, "is one of 1 weights that rules");
    CHECK_STR(c.finding.tensor, "model.layers.0.mlp.experts.gate_up_proj");
}

/* Both kinds of 4 bits are one word in config.json; 8 bits are another. */
static void
test_two_widths(void)
{
    const char *const model = make(TWO);
    const char *const rules = in(fixture_folder(), "rules");
    converted c;

    fixture_text(rules, "int8 " A "\n");
    converted_begin(&c, NULL, BERTH_ENCODING_NF4);
    c.options.rules = rules;
    check_remark(&c, model, 1, BERTH_REASON_UNSUPPORTED, model,
                 "is one of 1 weights in 8 bits, while config.json can promise 4 bits alone: "
                 "berth reads the model, transformers does not run it");
    CHECK_STR(c.finding.tensor, A);
    converted_begin(&c, NULL, BERTH_ENCODING_INT8);
    c.options.rules = rules;
    check_remark(&c, model, 0, 0, "", "");
    fixture_text(rules, "fp4 " A "\nnf4 " B "\n");
    check_remark(&c, model, 1, BERTH_REASON_UNSUPPORTED, model,
                 "is one of 2 weights in 4 bits, while config.json can promise 8 bits");
    converted_begin(&c, NULL, BERTH_ENCODING_NF4);
    c.options.rules = rules;
    check_remark(&c, model, 0, 0, "", "");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_impossible_folders);
    T_RUN(test_dry_parts);
    T_RUN(test_hub_cache);
    T_RUN(test_not_writable);
    T_RUN(test_folder_that_cannot_be_listed);
    T_RUN(test_names_in_the_way);
    T_RUN(test_everything_is_counted);
    T_RUN(test_no_room_for_what_goes_along);
    T_RUN(test_no_config);
    T_RUN(test_named_weights);
    T_RUN(test_one_shard_of_several);
    T_RUN(test_none_quantized);
    T_RUN(test_experts_as_int8);
    T_RUN(test_tied_head);
    T_RUN(test_no_layers);
    T_RUN(test_experts_by_rule);
    T_RUN(test_two_widths);
    T_MAIN_END;
}
