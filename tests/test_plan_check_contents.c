/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_check_contents.c - plans that were edited, held against the tensors of their
 * checkpoint: what still belongs together is taken, and what does not is told in bytes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/planned_train.h"
#include "tests/sliced.h"
#include "tests/stacked.h"
#include "tests/t.h"

#define MIB   (UINT64_C(1) << 20)
#define PIECE (4 * MIB) /* scratch of whatever is encoded */
#define EDITS 4u

/* In place of the first `from` behind `behind`. */
typedef struct edit {
    const char *behind;
    const char *from;
    const char *to;
} edit;

/* What is told of a plan with these edits; OK: nothing. */
typedef struct held {
    edit edits[EDITS];
    berth_status status;
    const char *words;
    uint64_t expected;
    uint64_t actual;
} held;

static const char *
find(const char *text, const edit *e)
{
    const char *at = strstr(text, e->behind);

    at = at != NULL ? strstr(at, e->from) : NULL;
    if (at == NULL) {
        CHECK_STR(e->from, e->behind);
        abort();
    }
    return at;
}

/* free() it. */
static char *
edited(const char *given, const edit *edits)
{
    char *text = malloc(strlen(given) + 1);

    if (text == NULL)
        abort();
    memcpy(text, given, strlen(given) + 1);

    for (uint32_t i = 0; i < EDITS && edits[i].from != NULL; i++) {
        char *const before = text;
        const char *const at = find(before, &edits[i]);
        const size_t capacity = strlen(before) + strlen(edits[i].to) + 1;

        text = malloc(capacity);
        if (text == NULL)
            abort();
        (void)snprintf(text, capacity, "%.*s%s%s", (int)(at - before), before, edits[i].to,
                       at + strlen(edits[i].from));
        free(before);
    }
    return text;
}

static void
check_held(const planned *p, const held *h)
{
    char *const whole = planned_text(p->plan, NULL);
    char *const text = edited(whole, h->edits);
    berth_plan *plan = NULL;
    berth_error error;

    if (!CHECK_EQ(berth_plan_parse(p->context, text, strlen(text), "t", &plan, &error),
                  BERTH_OK))
        T_NOTE("%s", error.message);
    else if (!CHECK_EQ(berth_plan_check(plan, p->context, p->checkpoint, "", NULL, NULL, &error),
                       h->status))
        T_NOTE("%s: %s", h->edits[0].to, error.message);
    else if (h->status != BERTH_OK) {
        CHECK_CONTAINS(error.message, h->words);
        CHECK_EQ(error.expected, h->expected);
        CHECK_EQ(error.actual, h->actual);
        CHECK_EQ(error.has, h->expected == 0 ? 0
                                             : BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                                   | BERTH_HAS_BYTES);
    }
    berth_plan_destroy(plan);
    free(text);
    free(whole);
}

static void
check_all(const char *folder, berth_plan_options options, const held *cases, size_t count)
{
    planned p;

    planned_begin(&p, folder, &options);
    if (!CHECK_EQ(p.status, BERTH_OK))
        T_NOTE("%s: %s", p.error.tensor, p.error.message);
    for (size_t i = 0; i < count && p.status == BERTH_OK; i++)
        check_held(&p, &cases[i]);
    planned_end(&p);
}
#define CHECK_ALL(folder, options, cases)                                                 \
    check_all(folder, options, cases, sizeof cases / sizeof *(cases))

/* ---------------------------------------------------------------------- encodings */

/* The one matrix of 1024 x 1024 that is quantized. */
static berth_plan_options
one_quantized(const char *max_memory, int32_t is_double)
{
    static const char *const only[] = { "*.q_proj.weight" };
    berth_plan_options options = loaded_options(max_memory);

    options.type = BERTH_ENCODING_NF4;
    options.double_quant = is_double;
    options.only = only;
    options.only_count = 1;
    return options;
}

#define OF_GPU  "\"name\": \"cuda:0\", \"budget\""
#define OF_HOST "\"name\": \"cpu\", \"budget\""
#define OF_Q    "\"self_attn.q_proj.weight\""
#define FP4     { OF_Q, "\"nf4\"", "\"fp4\"" }

/* Of another encoding than was planned: its own bytes, and scratch for its own elements. */
static void
test_encodings(void)
{
    static const held doubled[] = {
        { { FP4 }, BERTH_OK, NULL, 0, 0 },
        { { FP4, { OF_GPU, "\"scratch\": 4259840", "\"scratch\": 4259584" } },
          BERTH_EFORMAT, "is encoded on cuda:0", PIECE + 65536, PIECE + 65536 - 256 },
        { { { OF_GPU, "\"scratch\": 4259840", "\"scratch\": 4259584" } },
          BERTH_EFORMAT, "is encoded on cuda:0", PIECE + 65536, PIECE + 65536 - 256 },
        { { { OF_Q, "\"bytes\": 540928", "\"bytes\": 540672" } },
          BERTH_EINTEGRITY, "another size", 540928, 540672 },
        /* Where it is not encoded it needs no scratch, and has no other bytes. */
        { { { OF_Q, "\"nf4\"", "\"native\"" } },
          BERTH_EINTEGRITY, "another size", 2 * MIB, 540928 },
    };
    static const held single[] = {
        { { { OF_Q, "\"bytes\": 589824", "\"bytes\": 589568" } },
          BERTH_EINTEGRITY, "another size", 589824, 589568 },
        { { FP4 }, BERTH_OK, NULL, 0, 0 },
        { { FP4, { OF_GPU, "\"scratch\": 4194304", "\"scratch\": 4194048" } },
          BERTH_EFORMAT, "is encoded on cuda:0", PIECE, PIECE - 256 },
    };

    CHECK_ALL(planned_llama(1, false), one_quantized("0=1GiB,cpu=300MiB", 1), doubled);
    CHECK_ALL(planned_llama(1, false), one_quantized("0=1GiB,cpu=300MiB", 0), single);
}

/* The host needs it for second levels, and the disk for nothing. */
static void
test_scratch_of_the_host(void)
{
    static const held single[] = {
        { { { NULL, NULL, NULL } }, BERTH_OK, NULL, 0, 0 },
        { { FP4 }, BERTH_OK, NULL, 0, 0 },
        { { FP4, { OF_HOST, "\"scratch\": 4194304", "\"scratch\": 0" } },
          BERTH_OK, NULL, 0, 0 },
    };
    static const held doubled[] = {
        { { FP4 }, BERTH_OK, NULL, 0, 0 },
        { { FP4, { OF_HOST, "\"scratch\": 4259840", "\"scratch\": 4259584" } },
          BERTH_EFORMAT, "is encoded on cpu", PIECE + 65536, PIECE + 65536 - 256 },
        { { FP4, { OF_Q, "\"tier\": \"cpu\"", "\"tier\": \"disk\"" },
            { OF_HOST, "\"scratch\": 4259840", "\"scratch\": 0" },
            { "\"model.layers.0\"", "\"link_bytes\": 0", "\"link_bytes\": 540928" } },
          BERTH_EFORMAT, "has no slot", 540928, 0 },
    };

    CHECK_ALL(planned_llama(1, false), one_quantized("cpu=300MiB", 0), single);
    CHECK_ALL(planned_llama(1, false), one_quantized("cpu=300MiB,disk=1GiB", 1), doubled);
}

#define C_FC "mlp.c_fc.weight\""
#define C_FC_INT8 { C_FC, "\"bytes\": 4718592", "\"bytes\": 2371584" }, \
                  { C_FC, "\"native\"", "\"int8\"" }
#define C_ATTN "attn.c_attn.weight\""
#define C_ATTN_INT8 { C_ATTN, "\"bytes\": 3538944", "\"bytes\": 1778688" }, \
                    { C_ATTN, "\"native\"", "\"int8\"" }
#define C_PROJ "attn.c_proj.weight\""
#define C_PROJ_INT8 { C_PROJ, "\"bytes\": 1179648", "\"bytes\": 592896" }, \
                    { C_PROJ, "\"native\"", "\"int8\"" }
#define WITH_TURNED(bytes) { OF_HOST, "\"staging\"", "\"turned\": " bytes ", \"staging\"" }

/* Maxima are of the rows that a matrix has once it is turned: 3072, not 768. */
static void
test_turned(void)
{
    static const held cases[] = {
        { { C_FC_INT8, WITH_TURNED("4718592") }, BERTH_OK, NULL, 0, 0 },
        { { { C_FC, "\"bytes\": 4718592", "\"bytes\": 2362368" },
            { C_FC, "\"native\"", "\"int8\"" } },
          BERTH_EINTEGRITY, "another size", 2371584, 2362368 },
    };

    CHECK_ALL(loaded_gpt2("BF16", 768, 1), loaded_options("cpu=1GiB"), cases);
}

/*
 * All values of a weight lie in host memory while they are turned, of the two largest at a time:
 * of c_fc and the c_proj behind it, here.
 */
static void
test_room_to_turn(void)
{
    static const char words[] = "\"turned\" of cpu";
    static const held native[] = {
        { { C_FC_INT8 }, BERTH_EFORMAT, words, 4718592, 0 },
        { { C_FC_INT8, WITH_TURNED("4718336") }, BERTH_EFORMAT, words, 4718592, 4718336 },
        { { C_FC_INT8, WITH_TURNED("4718592") }, BERTH_OK, NULL, 0, 0 },
        /* All of two that are not as large. */
        { { C_ATTN_INT8, C_PROJ_INT8 }, BERTH_EFORMAT, words, 3538944 + 1179648, 0 },
    };
    static const held encoded[] = {
        { { { NULL, NULL, NULL } }, BERTH_OK, NULL, 0, 0 },
        { { { OF_HOST, "\"turned\": 9437184", "\"turned\": 9436928" } },
          BERTH_EFORMAT, words, 9437184, 9436928 },
    };
    berth_plan_options options = loaded_options("cpu=1GiB");

    CHECK_ALL(loaded_gpt2("BF16", 768, 1), options, native);
    options.type = BERTH_ENCODING_INT8;
    CHECK_ALL(loaded_gpt2("BF16", 768, 1), options, encoded);
}

/* ------------------------------------------------------------------------ streams */

#define OF_UP   "\"mlp.up_proj.weight\""
#define OF_GATE "\"mlp.gate_proj.weight\""
#define MATRIX  5767168u /* bytes of one of the MLP */

/* Whatever number stands there; its digits are those of the plan. */
static const char *
offset_of(const planned *p, const char *tensor)
{
    char *const text = planned_text(p->plan, NULL);
    const char *at = strstr(text, tensor);
    const char *end;
    const char *found;

    at = at != NULL ? strstr(at, "\"tier\"") : NULL;
    end = at != NULL ? strstr(at, "\"bytes\"") : NULL;
    if (end == NULL)
        abort();
    found = fixture_format("%.*s", (int)(end - at), at);
    free(text);
    return found;
}

/* Berths of the layer were put into host memory: brought, and with a slot that holds them. */
static void
test_streams(void)
{
    berth_plan_options options = loaded_options("0=1GiB,cpu=300MiB");
    planned p;

    planned_begin(&p, planned_llama(1, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    {
        const edit up = { OF_UP, offset_of(&p, OF_UP), "\"tier\": \"cpu\", " };
        const edit gate = { OF_GATE, offset_of(&p, OF_GATE), "\"tier\": \"cpu\", " };
        const edit brings = { "\"name\": \"model.layers.0\"", "\"link_bytes\": 0",
                              "\"link_bytes\": 11534336" };
        const char *const none = "\"slot_count\": 0, \"slot_bytes\": 0";
        const held cases[] = {
            { { up }, BERTH_EFORMAT, "has other link_bytes", MATRIX, 0 },
            { { up, gate }, BERTH_EFORMAT, "has other link_bytes", 2 * MATRIX, 0 },
            { { up, gate, brings }, BERTH_EFORMAT, "has no slot", 2 * MATRIX, 0 },
            { { up, gate, brings,
                { OF_GPU, none, "\"slot_count\": 2, \"slot_bytes\": 11534080" } },
              BERTH_EFORMAT, "has no slot", 2 * MATRIX, 2 * MATRIX - 256 },
            { { up, gate, brings,
                { OF_GPU, none, "\"slot_count\": 2, \"slot_bytes\": 11534336" } },
              BERTH_OK, NULL, 0, 0 },
            { { up, gate, brings,
                { OF_GPU, none, "\"slot_count\": 1, \"slot_bytes\": 11534336" } },
              BERTH_OK, NULL, 0, 0 },
            /* Room of no slot is none. */
            { { up, gate, brings,
                { OF_GPU, none, "\"slot_count\": 0, \"slot_bytes\": 11534336" } },
              BERTH_EFORMAT, "has no slot", 2 * MATRIX, 0 },
        };

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            check_held(&p, &cases[i]);
    }
    planned_end(&p);
}

/* --------------------------------------------------------------------------- ties */

/* A Llama whose config.json ties what its file has twice. */
static const char *
tied_llama(void)
{
    const char *const folder = planned_llama(1, false);
    const char *const path = fixture_format("%s/config.json", folder);
    const edit ties = { "", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true" };
    char *const text = fixture_read(path, NULL);
    char *const tied = edited(text, (const edit[EDITS]){ ties });

    fixture_text(path, tied);
    free(tied);
    free(text);
    return folder;
}

/* What is tied is where the other one is. */
static void
test_ties(void)
{
    static const char wrong[] = "shares a berth in the plan, and not so in the model";
    static const char head[] = "\"prefix\": \"lm_head.\"";
    const char *const folder = tied_llama();
    berth_plan_options options = loaded_options("0=1GiB,cpu=300MiB");
    planned p;

    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    {
        const char *const lies = offset_of(&p, head);
        const held cases[] = {
            { { { head, "\"bytes\": 16777216", "\"bytes\": 16777216" } },
              BERTH_OK, NULL, 0, 0 },
            { { { head, "\"bytes\": 16777216", "\"bytes\": 16776960" } },
              BERTH_EINTEGRITY, wrong, 0, 0 },
            { { { head, lies, "\"tier\": \"cuda:0\", \"offset\": 0, " } },
              BERTH_EINTEGRITY, wrong, 0, 0 },
            { { { head, "\"tier\": \"cuda:0\"", "\"tier\": \"cpu\"" } },
              BERTH_EINTEGRITY, wrong, 0, 0 },
            /* Bytes of its own, which are brought. */
            { { { head, lies, "\"tier\": \"cpu\", " },
                { head, ", \"tied\": true", "" },
                { head, "\"link_bytes\": 0", "\"link_bytes\": 16777216" },
                { OF_GPU, "\"slot_count\": 0, \"slot_bytes\": 0",
                  "\"slot_count\": 1, \"slot_bytes\": 16777216" } },
              BERTH_OK, NULL, 0, 0 },
            /* Two that share and nobody that they share with. */
            { { { "\"prefix\": \"model.embed_tokens.\"", "}", ", \"tied\": true}" } },
              BERTH_EINTEGRITY, wrong, 0, 0 },
        };

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            check_held(&p, &cases[i]);
    }
    planned_end(&p);
}

/* ------------------------------------------------------------------------- caches */

static void
test_caches(void)
{
    static const held kept[] = {
        { { { "\"name\": \"model.embed_tokens\"", "\"cache\": 0", "\"cache\": 256" } },
          BERTH_EINTEGRITY, "the KV caches", 2 * MIB, 2 * MIB + 256 },
        { { { "\"name\": \"model.layers.1\"", "\"cache\": 1048576", "\"cache\": 0" } },
          BERTH_EINTEGRITY, "the KV caches", 2 * MIB, MIB },
        /* The sum counts. */
        { { { "\"name\": \"model.embed_tokens\"", "\"cache\": 0", "\"cache\": 1048576" },
            { "\"name\": \"model.layers.1\"", "\"cache\": 1048576", "\"cache\": 0" } },
          BERTH_OK, NULL, 0, 0 },
    };
    static const held none[] = {
        { { { "\"name\": \"model.layers.1\"", "\"cache\": 0", "\"cache\": 256" } },
          BERTH_OK, NULL, 0, 0 },
    };
    berth_plan_options options = loaded_options("0=1GiB,cpu=300MiB");

    CHECK_ALL(planned_llama(2, false), options, none);
    options.context = 256;
    CHECK_ALL(planned_llama(2, false), options, kept);
}

/* ----------------------------------------------------------------------- training */

/* All of a weight in its dtype, or matrices of the rank beside its dims. */
static void
test_parameters(void)
{
    static const char wrong[] = "another shape or dtype";
    static const held whole[] = {
        { { { "\"parameters\"", "\"rows\": 8192, \"columns\": 1024",
              "\"rows\": 1024, \"columns\": 8192" } },
          BERTH_OK, NULL, 0, 0 },
        { { { "\"parameters\"", "\"rows\": 8192", "\"rows\": 8191" } },
          BERTH_EINTEGRITY, wrong, 0, 0 },
        { { { "\"parameters\"", "\"dtype\": \"BF16\"", "\"dtype\": \"F32\"" } },
          BERTH_EINTEGRITY, wrong, 0, 0 },
        { { { "\"parameters\"", "\"dtype\": \"BF16\"", "\"dtype\": \"F16\"" } },
          BERTH_EINTEGRITY, wrong, 0, 0 },
    };
    /* down_proj: 1024 x 2816 */
    static const held adapters[] = {
        { { { "\"lora_A\"", "\"columns\": 2816", "\"columns\": 1024" } },
          BERTH_EINTEGRITY, wrong, 0, 0 },
        { { { "\"lora_A\"", "\"rows\": 8", "\"rows\": 9" } },
          BERTH_EINTEGRITY, wrong, 0, 0 },
        { { { "\"lora_B\"", "\"columns\": 8", "\"columns\": 16" } },
          BERTH_EINTEGRITY, wrong, 0, 0 },
        { { { "\"lora_B\"", "\"rows\": 1024", "\"rows\": 2816" } },
          BERTH_EINTEGRITY, wrong, 0, 0 },
        { { { "\"lora_B\"", "\"dtype\": \"BF16\"", "\"dtype\": \"F16\"" } },
          BERTH_OK, NULL, 0, 0 },
    };
    berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "adamw_8bit");

    CHECK_ALL(planned_llama(1, false), planned_train_options(&train, "0=4GiB,cpu=1GiB"), whole);
    train.method = BERTH_TRAIN_LORA;
    CHECK_ALL(planned_llama(1, false), planned_train_options(&train, "0=4GiB,cpu=1GiB"),
              adapters);
}

/* ------------------------------------------------------------------------- dtypes */

/* What a load decodes to is numbers; the room for anything else is nothing that it needs. */
static void
test_dtypes(void)
{
    static const char other[] = "an encoding or a dtype that it cannot be loaded as";
    static const held of_plain[] = {
        { { { OF_Q, "\"BF16\"", "\"F16\"" } }, BERTH_OK, NULL, 0, 0 },
        { { { OF_Q, "\"BF16\"", "\"F32\"" } },
          BERTH_EINTEGRITY, "a berth of another size", 4 * MIB, 2 * MIB },
        { { { OF_Q, "\"BF16\"", "\"F8_E4M3\"" } }, BERTH_EINTEGRITY, other, 0, 0 },
        { { { OF_Q, "\"BF16\"", "\"I16\"" } }, BERTH_EINTEGRITY, other, 0, 0 },
        { { { OF_Q, "\"native\"", "\"foreign\"" } }, BERTH_EINTEGRITY, other, 0, 0 },
        { { { OF_Q, "\"native\"", "\"fp8\"" } }, BERTH_EINTEGRITY, other, 0, 0 },
    };
    static const held of_codes[] = {
        { { { OF_Q, "\"BF16\"", "\"F32\"" } }, BERTH_OK, NULL, 0, 0 },
        { { { OF_Q, "\"BF16\"", "\"F64\"" } }, BERTH_EINTEGRITY, other, 0, 0 },
    };

    CHECK_ALL(planned_llama(1, false), loaded_options("cpu=1GiB"), of_plain);
    CHECK_ALL(planned_llama(1, false), one_quantized("cpu=1GiB", 0), of_codes);
}

/* ------------------------------------------------------------------------- slices */

static void
test_slices(void)
{
    static const held of_ranks[] = {
        { { { NULL, NULL, NULL } }, BERTH_OK, NULL, 0, 0 },
        { { { "\"slice\"", "\"first\": ", "\"first\": 1" } },
          BERTH_EINTEGRITY, "another slice than its rank has", 0, 0 },
    };
    static const held of_stacks[] = {
        { { { NULL, NULL, NULL } }, BERTH_OK, NULL, 0, 0 },
        /* One expert twice, and another not at all. */
        { { { "\"slice\"", "\"first\": 0", "\"first\": 1" } },
          BERTH_EINTEGRITY, "is not the tensor", 0, 0 },
        { { { "\"slice\"", "\"first\": 0", "\"first\": 8" } },
          BERTH_EINTEGRITY, "for another part of it", 0, 0 },
    };

    CHECK_ALL(sliced_make(&sliced_small), sliced_options("0=64MiB,cpu=64MiB", 1, 4), of_ranks);
    CHECK_ALL(stacked_make(&stacked_small),
              stacked_options("0=64MiB,cpu=64MiB", BERTH_STACKS_APART), of_stacks);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_encodings);
    T_RUN(test_scratch_of_the_host);
    T_RUN(test_turned);
    T_RUN(test_room_to_turn);
    T_RUN(test_streams);
    T_RUN(test_ties);
    T_RUN(test_caches);
    T_RUN(test_parameters);
    T_RUN(test_dtypes);
    T_RUN(test_slices);
    T_MAIN_END;
}
