/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation and every system call of opening, reading and closing failed in turn. */
#include <string.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

typedef struct model {
    const char *path;
    berth_open_options options;
} model;

static void
ignore(void *user, const berth_finding *finding)
{
    CHECK_NE(finding->details->message[0], '\0');
    ++*(uint64_t *)user;
}

/* Opens, reads the first tensor, closes. */
static berth_status
use_model(void *user, berth_context *context, berth_error *error)
{
    const model *const m = user;
    berth_checkpoint *checkpoint = (berth_checkpoint *)user;
    berth_open_options options = m->options;
    berth_tensor tensor;
    uint8_t buffer[1024];
    uint64_t findings = 0;
    berth_status status;

    options.finding = ignore;
    options.finding_user = &findings;
    status = berth_checkpoint_open(context, m->path, &options, &checkpoint, error);
    CHECK_EQ(checkpoint != NULL, status == BERTH_OK);
    if (status != BERTH_OK)
        return status;
    CHECK_EQ(berth_checkpoint_tensor(checkpoint, 0, &tensor), BERTH_OK);
    status = berth_checkpoint_read(checkpoint, 0, 0, UINT64_MAX, buffer, tensor.bytes,
                                   error);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void
run_loop(const char *name, model *m)
{
    const fault_counts once = fault_loop(name, use_model, m);

    CHECK_GT(once.memory, 4);
    CHECK_GT(once.system, 8);
    m->options.keep_going = 1;
    fault_loop(fixture_format("%s, keep going", name), use_model, m);
}

static const char *
in(const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, name);
}

static model
make_model(const char *path)
{
    model m = { .path = path };

    berth_open_options_init(&m.options);
    return m;
}

static void
put_sharded(const char *folder)
{
    fixture_model(folder, "[model-00001-of-00003.safetensors]\n@format pt\nF32 2 a\n"
                          "[model-00002-of-00003.safetensors]\nF32 2 b\nF32 2 c\n"
                          "[model-00003-of-00003.safetensors]\nF32 2 d\n");
    fixture_text(in(folder, "config.json"), FIXTURE_CONFIG);
}

static void
test_single(void)
{
    const char *folder = fixture_folder();
    model m = make_model(folder);

    fixture_file(in(folder, "model.safetensors"), "@format pt\nF32 2x3 a\nU8 4 b\n");
    /* names enough for more than one block of the arena */
    for (int i = 0; i < 40; i++)
        fixture_text(fixture_format("%s/%0200d.safetensors", folder, i), "");
    fixture_text(in(folder, "config.json"), FIXTURE_CONFIG);
    run_loop("single", &m);
    m = make_model(in(folder, "model.safetensors"));
    run_loop("file", &m);
    m = make_model(fixture_folder());
    fixture_file(in(m.path, "any.safetensors"), "U8 4 b\n");
    run_loop("only choice", &m);
}

static void
test_sharded(void)
{
    const char *folder = fixture_folder();
    model m = make_model(folder);

    put_sharded(folder);
    run_loop("sharded", &m);
    m.options.inside_only = 1;
    m.options.strict = 1;
    run_loop("sharded, inside, strict", &m);
}

/* Extra and doubled tensors: the lists that an ordinary model never needs. */
static void
test_exceptions(void)
{
    const char *folder = fixture_folder();
    model m = make_model(folder);

    put_sharded(folder);
    fixture_file(in(folder, "model-00003-of-00003.safetensors"),
                 "F32 2 d\nF32 2 a\nF32 2 x\nF32 2 w\n");
    fixture_file(in(folder, "model.safetensors.index.fp16.json"), "");
    run_loop("exceptions", &m);
}

static void
test_all_files(void)
{
    const char *folder = fixture_folder();
    model m = make_model(folder);

    fixture_file(in(folder, "a-00001-of-00002.safetensors"), "F32 2 z\n");
    fixture_file(in(folder, "a-00002-of-00002.safetensors"), "F32 2 a\n");
    fixture_file(in(folder, "b.safetensors"), "F32 2 m\n");
    m.options.all_files = 1;
    run_loop("all files", &m);
}

static void
test_hub(void)
{
    const char *folder = fixture_folder();
    const char *cache = fixture_folder();
    model m = make_model("org/name");

    put_sharded(folder);
    fixture_hub(cache, "org/name", FIXTURE_COMMIT, folder);
    m.options.hub_cache = cache;
    run_loop("hub", &m);
    m = make_model(fixture_hub_repository(cache, "org/name"));
    m.options.inside_only = 1;
    run_loop("hub folder, inside", &m);
}

static void
test_quantized(void)
{
    const char *folder = fixture_folder();
    fixture_builder *builder = fixture_begin();
    model m = make_model(folder);

    fixture_add_nf4(builder, "x.weight", 16, 64, true);
    fixture_add_nf4(builder, "y.weight", 2, 64, false);
    fixture_add_int8(builder, "z", 4, 8);
    fixture_finish(builder, in(folder, "model.safetensors"));
    run_loop("quantized", &m);
}

static berth_status
open_refused(void *user, berth_context *context, berth_error *error)
{
    const model *const m = user;
    berth_checkpoint *checkpoint = NULL;
    const berth_status status =
        berth_checkpoint_open(context, m->path, &m->options, &checkpoint, error);

    CHECK(checkpoint == NULL);
    CHECK_NE(status, BERTH_OK);
    CHECK_EQ(error->status, status);
    CHECK_NE(error->message[0], '\0');
    return status;
}

/*
 * A model that is refused stays refused and leaks nothing, whatever else fails.
 * `needs_memory`: without memory nothing else can be said of it.
 */
static void
refuse_with_faults(const char *name, model *m, bool needs_memory)
{
    uint64_t runs = 0;

    for (int kind = BERTHI_FAULT_MEMORY; kind <= BERTHI_FAULT_SYSTEM; kind++)
        for (int is_persistent = 0; is_persistent < 2; is_persistent++)
            for (uint64_t nth = 0;; nth++) {
                const int fds = fixture_open_fds();
                berth_context *context;
                berth_memory_summary memory;
                berth_error error;
                uint64_t failures;
                berth_status status;

                T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
                berthi_fault_arm((berthi_fault_kind)kind, nth, is_persistent != 0);
                status = open_refused(m, context, &error);
                failures = berthi_fault_failures((berthi_fault_kind)kind);
                berthi_fault_disarm();
                berth_context_memory(context, &memory);
                CHECK_EQ(memory.current_bytes, 0);
                CHECK_EQ(fixture_open_fds(), fds);
                berth_context_destroy(context);
                runs++;
                if (failures == 0)
                    break;
                if (needs_memory && kind == BERTHI_FAULT_MEMORY)
                    CHECK_EQ(status, BERTH_ENOMEM);
            }
    T_NOTE("%s: %llu runs", name, (unsigned long long)runs);
}

static void
test_refused(void)
{
    const char *folder = fixture_folder();
    const char *cache = fixture_folder();
    const char *snapshot;
    model m = make_model(folder);

    put_sharded(folder);
    snapshot = fixture_hub(cache, "org/name", FIXTURE_COMMIT, folder);
    fixture_hub_tree(cache, "org/name", FIXTURE_COMMIT);
    fixture_remove(in(snapshot, "model-00002-of-00003.safetensors"));
    fixture_remove(in(snapshot, "config.json"));
    m = make_model(snapshot);
    refuse_with_faults("a shard that was not downloaded", &m, false);
    fixture_link("../../blobs/0", in(snapshot, "model-00002-of-00003.safetensors"));
    refuse_with_faults("a dangling link", &m, false);
    fixture_text(in(snapshot, "model-00002-of-00003.safetensors"), "<html></html>");
    m.options.keep_going = 1;
    refuse_with_faults("a web page", &m, false);
    m = make_model(fixture_folder());
    fixture_text(in(m.path, "model.safetensors"), "<html></html>");
    refuse_with_faults("a web page for a model", &m, true);
    m = make_model(fixture_folder());
    fixture_text(in(m.path, "a.bin"), "x");
    refuse_with_faults("a pickle", &m, true);
    put_sharded(m.path);
    fixture_index(in(m.path, "model.safetensors.index.json"), 0,
                  "a model-00001-of-00003.safetensors\n"
                  "b model-00001-of-00003.safetensors\n"
                  "c model-00002-of-00003.safetensors\n");
    m.options.keep_going = 1;
    refuse_with_faults("an index of another version", &m, false);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_single);
    T_RUN(test_sharded);
    T_RUN(test_exceptions);
    T_RUN(test_all_files);
    T_RUN(test_hub);
    T_RUN(test_quantized);
    T_RUN(test_refused);
    T_MAIN_END;
}
