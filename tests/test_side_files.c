/* SPDX-License-Identifier: Apache-2.0 */
/* test_side_files.c - what goes along with weights that are written anew. */
#define _XOPEN_SOURCE 700

#include "loader/side_files.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

static berth_context *context;

/* A folder's side files, opened as a model is. */
typedef struct found {
    berthi_location location;
    berthi_findings findings;
    berthi_side_files files;
    berth_status status;
    berth_error error;
    unsigned warnings;
    berth_error warning; /* the last one */
} found;

static void
on_finding(void *user, const berth_finding *finding)
{
    found *const f = user;

    CHECK_EQ(finding->severity, BERTH_SEVERITY_WARNING);
    f->warnings++;
    f->warning = *finding->details;
}

static void
begin(found *f, const char *path, const char *hub_cache, bool is_inside)
{
    berth_open_options options;

    memset(f, 0, sizeof *f);
    berth_open_options_init(&options);
    options.finding = on_finding;
    options.finding_user = f;
    berthi_findings_init(&f->findings, context, &options);
    CHECK_EQ(berthi_location_init(&f->location, context, path, hub_cache, is_inside,
                                  &f->error), BERTH_OK);
    memset(&f->files, 0xff, sizeof f->files);
    f->status = berthi_side_files_find(&f->location, &f->findings, &f->files, &f->error);
    if (f->status != BERTH_OK)
        CHECK(f->files.count == 0 && f->files.files == NULL && f->files.bytes == 0);
}

static void
end(found *f)
{
    berthi_location_fini(&f->location);
    berthi_findings_fini(&f->findings);
}

/* The names in order, one a line; lives as long as the program. */
static const char *
names_of(const found *f)
{
    const char *names = "";
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < f->files.count; i++) {
        names = fixture_format("%s%s\n", names, f->files.files[i].name);
        bytes += f->files.files[i].identity.bytes;
    }
    CHECK_EQ(f->files.bytes, bytes);
    return names;
}

/* What is found below `path`, without warnings. */
static void
check_names(const char *path, const char *expected)
{
    found f;

    begin(&f, path, NULL, false);
    if (!CHECK_EQ(f.status, BERTH_OK))
        T_NOTE("%s: %s", f.error.file, f.error.message);
    CHECK_STR(names_of(&f), expected);
    CHECK_EQ(f.warnings, 0);
    end(&f);
}

static const char *
in(const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, name);
}

/* Files in the folder, each with its name as contents. */
static const char *
make(const char *const *names)
{
    const char *const folder = fixture_folder();

    for (; *names != NULL; names++)
        fixture_text(in(folder, *names), *names);
    return folder;
}

/* ------------------------------------------------------------------- contents */

typedef struct copy {
    char bytes[262144];
    uint64_t size;
    uint64_t puts;
    uint64_t fail_at; /* the n-th call fails; 0: none */
} copy;

static berth_status
put(void *user, const void *bytes, uint64_t size, uint64_t offset, berth_error *error)
{
    copy *const c = user;

    CHECK_EQ(offset, c->size);
    CHECK_GT(size, 0);
    if (++c->puts == c->fail_at)
        return berthi_fail(error, BERTH_REASON_CANCELLED, NULL, "enough");
    memcpy(c->bytes + c->size, bytes, (size_t)size);
    c->size += size;
    return BERTH_OK;
}

static berth_status
read_into(found *f, uint32_t i, copy *c)
{
    memset(c, 0, sizeof *c);
    return berthi_side_files_read(&f->location, &f->files.files[i], put, c, &f->error);
}

/* ---------------------------------------------------------------------- names */

static void
test_kinds(void)
{
    static const char *const names[] = {
        /* These go along ... */
        "README.md", "LICENSE", "NOTICE", "tokenizer.json", "tokenizer.model",
        "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "vocab.txt",
        "merges.txt", "spiece.model", "generation_config.json", "chat_template.jinja",
        "preprocessor_config.json", "modeling_x.py", "config.json.old", "index.json",
        "trainer_state.json", "a b", "bin", "safetensors",
        "additional_chat_templates/tool.jinja", "1_Pooling/config.json", "code/a/b.py",
        "code/adapter_config.json",
        /* ... these are weights or speak about them ... */
        "config.json", "model.safetensors", "model-00001-of-00002.safetensors",
        "model.safetensors.index.json", "model.safetensors.index.fp16.json",
        "model.safetensors.index-fp16.json",
        "pytorch_model.bin", "pytorch_model.bin.index.json", "x.pt", "optimizer.pt",
        "rng_state.pth", "x.ckpt", "x.pkl", "x.pickle", "tf_model.h5", "x.hdf5", "x.keras",
        "flax_model.msgpack", "x.npz", "x.onnx", "x.onnx_data", "rust_model.ot", "x.tflite",
        "x.gguf", "x.ggml", "x.llamafile", "x.nemo", "x.pdparams", "x.mlmodel",
        "__0_0.distcp", "rank0.engine", "x.pte", "training_args.bin",
        "adapter_config.json", "adapter_model.safetensors", "hf_quant_config.json",
        "quantize_config.json", "quant_config.json", "berth.manifest.json",
        "model.safetensors.berth.manifest.json",
        /* ... hidden, temporary, unfinished, or another form. */
        ".gitattributes", ".git/config", ".cache/huggingface/x.json",
        ".berth-journal.json", ".model.safetensors.berth-1-2.tmp", "x.incomplete",
        "x.part", "x.partial", "x.crdownload", "x.aria2", "original/params.json",
        "code/original/x", "__pycache__/x.pyc", "onnx/config.json",
        "onnx/deep/er/x.onnx", "onnx/other/y.txt", NULL,
    };
    const char *const folder = make(names);

    fixture_make_folder(in(folder, "empty/inside"));
    check_names(folder, "1_Pooling/config.json\n"
                        "LICENSE\n"
                        "NOTICE\n"
                        "README.md\n"
                        "a b\n"
                        "additional_chat_templates/tool.jinja\n"
                        "bin\n"
                        "chat_template.jinja\n"
                        "code/a/b.py\n"
                        "code/adapter_config.json\n"
                        "config.json.old\n"
                        "generation_config.json\n"
                        "index.json\n"
                        "merges.txt\n"
                        "modeling_x.py\n"
                        "preprocessor_config.json\n"
                        "safetensors\n"
                        "special_tokens_map.json\n"
                        "spiece.model\n"
                        "tokenizer.json\n"
                        "tokenizer.model\n"
                        "tokenizer_config.json\n"
                        "trainer_state.json\n"
                        "vocab.json\n"
                        "vocab.txt\n");
}

static void
test_nothing(void)
{
    check_names(fixture_folder(), "");
}

static void
test_deep(void)
{
    const char *const folder = fixture_folder();
    found f;

    fixture_text(in(folder, "1/2/3/x"), "x");
    fixture_text(in(folder, "1/2/3/4/y"), "y");
    begin(&f, folder, NULL, false);
    CHECK_EQ(f.status, BERTH_OK);
    CHECK_STR(names_of(&f), "1/2/3/x\n");
    CHECK_EQ(f.warnings, 1);
    CHECK_EQ(f.warning.reason, BERTH_REASON_PATH);
    CHECK_STR(f.warning.file, in(folder, "1/2/3/4"));
    CHECK_CONTAINS(f.warning.message, "left out: too many folders deep");
    end(&f);
}

static void
test_strange_names(void)
{
    static const struct {
        const char *name;
        const char *why;
    } bad[] = {
        { "bad\xff.txt", "left out: its name is not UTF-8" },
        { "bad\nline", "left out: its name contains a control character" },
        { "bad:1/a.txt", "left out: its name contains a backslash or a colon" },
    };
    found f;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *const names[] = { bad[i].name, "d/caf\xc3\xa9.txt", NULL };

        begin(&f, make(names), NULL, false);
        CHECK_EQ(f.status, BERTH_OK);
        CHECK_STR(names_of(&f), "d/caf\xc3\xa9.txt\n");
        CHECK_EQ(f.warnings, 1);
        CHECK_CONTAINS(f.warning.file, "bad");
        CHECK_STR(f.warning.message, bad[i].why);
        end(&f);
    }
}

/* Folders that are called like a file of the new model: no room for both. */
static void
test_folders_in_the_way(void)
{
    static const char *const bad[] = { "model.safetensors", "config.json",
                                       "model.safetensors.index.json",
                                       "berth.manifest.json" };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *const below = fixture_format("sub/%s/x", bad[i]);
        const char *const names[] = { fixture_format("%s/x", bad[i]), below, "a.txt", NULL };
        const char *const folder = make(names);
        found f;

        begin(&f, folder, NULL, false);
        CHECK_EQ(f.status, BERTH_OK);
        CHECK_STR(names_of(&f), fixture_format("a.txt\n%s\n", below));
        CHECK_EQ(f.warnings, 1);
        CHECK_STR(f.warning.file, in(folder, bad[i]));
        CHECK_STR(f.warning.message, "left out: a folder with the name of a model's file");
        end(&f);
    }
}

/* Found while looking, not when it is to be copied. */
static void
test_unreadable(void)
{
    static const char *const names[] = { "a", "b", "c", NULL };
    const char *const folder = make(names);
    const bool is_root = geteuid() == 0;
    found f;

    CHECK_EQ(chmod(fixture_format("%s/..", folder), 0711), 0);
    CHECK_EQ(chmod(folder, 0755), 0);
    CHECK_EQ(chmod(in(folder, "b"), 0), 0);
    CHECK_EQ(is_root ? seteuid(65534) : 0, 0);
    begin(&f, folder, NULL, false);
    CHECK_EQ(is_root ? seteuid(0) : 0, 0);
    CHECK_EQ(f.status, BERTH_ENOENT);
    CHECK_EQ(f.error.reason, BERTH_REASON_PERMISSION);
    CHECK_STR(f.error.file, in(folder, "b"));
    end(&f);
}

/* Of one file only with config.json beside it. */
static void
test_of_a_file(void)
{
    static const char *const names[] = { "a.safetensors", "b.safetensors", "x.txt", NULL };
    const char *const folder = make(names);

    check_names(in(folder, "a.safetensors"), "");
    check_names(folder, "x.txt\n");
    fixture_text(in(folder, "config.json"), "{}");
    check_names(in(folder, "a.safetensors"), "x.txt\n");
}

/* ---------------------------------------------------------------------- links */

static void
make_socket(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        T_NOTE("no socket at %s", path);
    close(fd);
}

static void
test_links(void)
{
    static const char *const names[] = { "a", "sub/b", NULL };
    const char *const folder = make(names);
    const char *const other = fixture_folder();
    found f;

    fixture_text(in(other, "secret"), "secret");
    fixture_link("a", in(folder, "to_a"));
    fixture_link("../a", in(folder, "sub/to_a"));
    fixture_link("sub/b", in(folder, "to_b"));
    fixture_link("sub", in(folder, "to_sub"));
    fixture_link(other, in(folder, "to_other"));
    fixture_link("/dev/null", in(folder, "to_device"));
    fixture_link(in(other, "secret"), in(folder, "x.safetensors"));
    mkfifo(in(folder, "pipe"), 0600);
    make_socket(in(folder, "socket"));
    check_names(folder, "a\nsub/b\nsub/to_a\nto_a\nto_b\n");

    /* A folder beside it whose name begins the same is outside, too. */
    fixture_text(fixture_format("%s-more/x", folder), "x");
    fixture_link(fixture_format("%s-more/x", folder), in(folder, "to_more"));
    fixture_link(in(other, "secret"), in(folder, "sub/leak"));
    for (int is_inside = 0; is_inside < 2; is_inside++) {
        begin(&f, folder, NULL, is_inside != 0);
        if (!CHECK_EQ(f.status, BERTH_OK))
            T_NOTE("%s: %s", f.error.file, f.error.message);
        CHECK_STR(names_of(&f), "a\nsub/b\nsub/to_a\nto_a\nto_b\n");
        CHECK_EQ(f.warnings, 2);
        CHECK_EQ(f.warning.reason, BERTH_REASON_PATH);
        CHECK_STR(f.warning.file, in(folder, "sub/leak"));
        CHECK_STR(f.warning.message, "left out: a link that leaves the model's folder");
        end(&f);
    }
    fixture_remove(fixture_format("%s-more", folder));

    /* So is one beside a folder of one letter. */
    fixture_text(in(other, "m/a"), "a");
    fixture_text(in(other, "m-more/x"), "x");
    fixture_link("../m-more/x", in(other, "m/to_more"));
    begin(&f, in(other, "m"), NULL, false);
    CHECK_STR(names_of(&f), "a\n");
    CHECK_EQ(f.warnings, 1);
    end(&f);
}

static void
test_dangling(void)
{
    static const char *const names[] = { "a", NULL };
    const char *const folder = make(names);
    found f;

    fixture_link("gone.json", in(folder, "tokenizer.json"));
    begin(&f, folder, NULL, false);
    CHECK_EQ(f.status, BERTH_EFORMAT);
    CHECK_EQ(f.error.reason, BERTH_REASON_MISSING_BLOB);
    CHECK_STR(f.error.file, in(folder, "tokenizer.json"));
    end(&f);
    /* Not of weights and what else stays behind. */
    fixture_remove(in(folder, "tokenizer.json"));
    fixture_link("gone.bin", in(folder, "pytorch_model.bin"));
    fixture_link("gone", in(folder, ".hidden"));
    fixture_link("gone", in(folder, "config.json"));
    check_names(folder, "a\n");
}

static void
test_hub_cache(void)
{
    static const char *const names[] = { "config.json", "tokenizer.json", "sub/a.jinja",
                                         "model.safetensors", NULL };
    const char *const folder = make(names);
    const char *const cache = fixture_folder();
    const char *const snapshot = fixture_hub(cache, "org/name", FIXTURE_COMMIT, folder);
    const char *const plain = fixture_folder();
    found f;
    copy c;

    for (int is_inside = 0; is_inside < 2; is_inside++) {
        begin(&f, "org/name", cache, is_inside != 0);
        CHECK_EQ(f.status, BERTH_OK);
        T_REQUIRE(CHECK_STR(names_of(&f), "sub/a.jinja\ntokenizer.json\n"));
        CHECK_EQ(f.warnings, 0);
        CHECK_EQ(read_into(&f, 0, &c), BERTH_OK);
        CHECK_EQ(c.size, strlen("sub/a.jinja"));
        CHECK_MEM(c.bytes, "sub/a.jinja", c.size);
        end(&f);
    }
    check_names(snapshot, "sub/a.jinja\ntokenizer.json\n");
    /* A snapshot's links may lead to its repository, and nowhere else. */
    fixture_text(in(plain, "secret"), "secret");
    fixture_link(in(plain, "secret"), in(snapshot, "leak"));
    for (int is_inside = 0; is_inside < 2; is_inside++) {
        begin(&f, "org/name", cache, is_inside != 0);
        CHECK_EQ(f.status, BERTH_OK);
        CHECK_STR(names_of(&f), "sub/a.jinja\ntokenizer.json\n");
        CHECK_EQ(f.warnings, 1);
        CHECK_STR(f.warning.message, "left out: a link that leaves the model's folder");
        end(&f);
    }
    fixture_remove(in(snapshot, "leak"));
    fixture_remove(in(plain, "secret"));

    /* A plain folder of links into the cache, as the hub's library made them. */
    fixture_link(in(snapshot, "tokenizer.json"), in(plain, "tokenizer.json"));
    check_names(plain, "tokenizer.json\n");
    /* Only its blobs: the rest of a cache is nothing to publish. */
    fixture_text(in(cache, "blobs/x"), "x");
    fixture_text(in(cache, "models--a/token"), "x");
    fixture_text(in(cache, "models--a/blobs/sub/x"), "x");
    fixture_link(in(cache, "blobs/x"), in(plain, "1"));
    fixture_link(in(cache, "models--a/token"), in(plain, "2"));
    fixture_link(in(cache, "models--a/blobs/sub/x"), in(plain, "3"));
    begin(&f, plain, NULL, false);
    CHECK_STR(names_of(&f), "tokenizer.json\n");
    CHECK_EQ(f.warnings, 3);
    end(&f);
}

/* -------------------------------------------------------------------- reading */

static void
test_read(void)
{
    static const uint64_t sizes[] = { 0, 1, 65535, 65536, 65537, 131072, 200000 };
    const char *const folder = fixture_folder();
    char *const bytes = malloc(200000);
    found f;
    copy c;

    for (size_t i = 0; i < 200000; i++)
        bytes[i] = (char)(i * 31 >> 3);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        fixture_write(in(folder, fixture_format("%zu", i)), bytes, (size_t)sizes[i]);
    begin(&f, folder, NULL, false);
    T_REQUIRE(f.files.count == sizeof sizes / sizeof *sizes);
    for (uint32_t i = 0; i < f.files.count; i++) {
        CHECK_EQ(read_into(&f, i, &c), BERTH_OK);
        CHECK_EQ(c.size, sizes[i]);
        CHECK_MEM(c.bytes, bytes, (size_t)c.size);
        CHECK_EQ(c.puts, (sizes[i] + 65535) / 65536);
    }
    memset(&c, 0, sizeof c);
    c.fail_at = 2;
    CHECK_EQ(berthi_side_files_read(&f.location, &f.files.files[6], put, &c, &f.error),
             BERTH_ECANCELLED);
    CHECK_EQ(c.puts, 2);
    end(&f);
    free(bytes);
}

static void
check_changed(found *f, berth_reason reason)
{
    copy c;

    CHECK_EQ(read_into(f, 0, &c), berthi_reason_status((int32_t)reason));
    CHECK_EQ(f->error.reason, reason);
    CHECK_CONTAINS(f->error.file, "/a");
    CHECK_EQ(c.size, 0);
}

static void
test_changed(void)
{
    static const char *const names[] = { "a", NULL };
    const char *const folder = make(names);
    const char *const secret = in(fixture_folder(), "secret");
    found f;

    begin(&f, folder, NULL, false);
    fixture_text(in(folder, "a"), "longer");
    check_changed(&f, BERTH_REASON_CHANGED);
    end(&f);
    /* Of the same size, but another file: not even if it is a link elsewhere. */
    begin(&f, folder, NULL, false);
    fixture_text(secret, "secret");
    fixture_link(secret, in(folder, "a"));
    check_changed(&f, BERTH_REASON_CHANGED);
    fixture_remove(in(folder, "a"));
    check_changed(&f, BERTH_REASON_NOT_FOUND);
    end(&f);
}

/* Changed between two pieces. */
static berth_status
put_and_change(void *user, const void *bytes, uint64_t size, uint64_t offset,
               berth_error *error)
{
    (void)bytes;
    (void)size;
    (void)error;
    if (offset == 0)
        fixture_extend(user, 1);
    return BERTH_OK;
}

static void
test_changed_meanwhile(void)
{
    const char *const folder = fixture_folder();
    char *const bytes = calloc(1, 100000);
    found f;

    fixture_write(in(folder, "a"), bytes, 100000);
    begin(&f, folder, NULL, false);
    CHECK_EQ(berthi_side_files_read(&f.location, &f.files.files[0], put_and_change,
                                    (void *)(uintptr_t)in(folder, "a"), &f.error),
             BERTH_EIO);
    CHECK_EQ(f.error.reason, BERTH_REASON_CHANGED);
    end(&f);
    free(bytes);
}

/* --------------------------------------------------------------------- faults */

#define FAULTS_FILES 5u

static berth_status
take_all(void *user, berth_context *its, berth_error *error)
{
    berth_open_options options;
    berthi_location location;
    berthi_findings findings;
    berthi_side_files files;
    berth_status status;
    copy *const c = calloc(1, sizeof *c);

    berth_open_options_init(&options);
    berthi_findings_init(&findings, its, &options);
    status = berthi_location_init(&location, its, user, NULL, false, error);
    if (status == BERTH_OK) {
        status = berthi_side_files_find(&location, &findings, &files, error);
        if (status != BERTH_OK)
            CHECK(files.files == NULL && files.count == 0);
        else
            CHECK_EQ(files.count, FAULTS_FILES); /* none is left out for a call that failed */
        for (uint32_t i = 0; i < files.count && status == BERTH_OK; i++) {
            c->size = 0;
            status = berthi_side_files_read(&location, &files.files[i], put, c, error);
        }
        berthi_location_fini(&location);
    }
    berthi_findings_fini(&findings);
    free(c);
    return status;
}

static void
test_faults(void)
{
    static const char *const names[] = { "a", "b", "sub/c", "sub/sub/d", NULL };
    const char *const folder = make(names);
    fault_counts counts;

    fixture_link("a", in(folder, "to_a"));
    counts = fault_loop("side files", take_all, (void *)(uintptr_t)folder);
    CHECK_GT(counts.memory, 10);
    CHECK_GT(counts.system, 40);
    /* Only whether the folder is of a hub cache may stay without an answer. */
    CHECK_LE(counts.survived, 1);
    /* Of one file: whether config.json is there is no such question. */
    fixture_text(in(folder, "config.json"), "{}");
    fixture_text(in(folder, "x.safetensors"), "x");
    counts = fault_loop("beside a file", take_all,
                        (void *)(uintptr_t)in(folder, "x.safetensors"));
    CHECK_GT(counts.system, 40);
    CHECK_LE(counts.survived, 1);
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_kinds);
    T_RUN(test_nothing);
    T_RUN(test_deep);
    T_RUN(test_strange_names);
    T_RUN(test_folders_in_the_way);
    T_RUN(test_unreadable);
    T_RUN(test_of_a_file);
    T_RUN(test_links);
    T_RUN(test_dangling);
    T_RUN(test_hub_cache);
    T_RUN(test_read);
    T_RUN(test_changed);
    T_RUN(test_changed_meanwhile);
    T_RUN(test_faults);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    T_MAIN_END;
}
