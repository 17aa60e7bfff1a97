/* SPDX-License-Identifier: Apache-2.0 */
/* test_llama_file.c - token ids from texts, logits into a file that berth reads. */
#define _DEFAULT_SOURCE /* symlink, usleep */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/t.h"
#include "tools/interrupt.h"
#include "tools/llama_file.h"

static void
check_tokens(const char *text, const uint32_t *expected, uint32_t count)
{
    llama_tokens tokens = { .ids = NULL };

    CHECK_EQ(llama_tokens_parse(&tokens, text, strlen(text), NULL), BERTH_OK);
    if (!CHECK_EQ(tokens.count, count))
        t_note("%s", text);
    else if (count > 0)
        CHECK_MEM(tokens.ids, expected, count * sizeof *expected);
    llama_tokens_free(&tokens);
    CHECK(tokens.ids == NULL);
}

static void
test_parses(void)
{
    const uint32_t some[] = { 1, 20, 300 };
    const uint32_t largest[] = { INT32_MAX, 0 };

    check_tokens("1,20,300", some, 3);
    check_tokens(" [1, 20,\n\t300]\r\n", some, 3);
    check_tokens("001 20,300", some, 3);
    check_tokens("[[1 , 20]\n[300]]", some, 3);
    check_tokens("2147483647 0", largest, 2);
    check_tokens("", NULL, 0);
    check_tokens(" [] ", NULL, 0);
}

static void
test_refuses(void)
{
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        { "1,x", "character 3 is neither a digit nor a comma" },
        { "-1", "character 1 is neither a digit nor a comma" },
        { "2147483648", "character 1 begins a number that is no token: too large" },
        { "1 99999999999999999999999",
          "character 3 begins a number that is no token: too large" },
        { "1,,2", "character 3 is a comma without a token before it" },
        { ",1", "character 1 is a comma without a token before it" },
        { " , ", "character 2 is a comma without a token before it" },
        { "[1, 2,]\n", "character 6 is a comma without a token behind it" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        llama_tokens tokens = { .ids = NULL };
        berth_error error;

        CHECK_EQ(llama_tokens_parse(&tokens, cases[i].text, strlen(cases[i].text), &error),
                 BERTH_EINVAL);
        CHECK_STR(error.message, cases[i].message);
        llama_tokens_free(&tokens);
    }
    /* A NUL is no end. */
    {
        llama_tokens tokens = { .ids = NULL };

        CHECK_EQ(llama_tokens_parse(&tokens, "1\0002", 3, NULL), BERTH_EINVAL);
        llama_tokens_free(&tokens);
    }
}

static void
test_reads_files(void)
{
    const char *const path = fixture_format("%s/tokens", fixture_folder());
    llama_tokens tokens = { .ids = NULL };
    char *const text = malloc(200000);
    size_t length = 0;
    uint32_t wrong = 0;
    berth_error error;

    for (uint32_t i = 0; i < 30000; i++)
        length += (size_t)snprintf(text + length, 8, "%u ", (unsigned)i);
    fixture_write(path, text, length);
    CHECK_EQ(llama_tokens_read(&tokens, path, &error), BERTH_OK);
    CHECK_EQ(tokens.count, 30000);
    for (uint32_t i = 0; i < tokens.count; i++)
        wrong += tokens.ids[i] != i;
    CHECK_EQ(wrong, 0);
    CHECK_EQ(llama_tokens_read(&tokens, "nowhere", &error), BERTH_ENOENT);
    CHECK_STR(error.file, "nowhere");
    CHECK_STR(error.message, "No such file or directory");
    llama_tokens_free(&tokens);
    free(text);
}

static void
test_writes_logits(void)
{
    const char *const path = fixture_format("%s/logits.safetensors", fixture_folder());
    const uint32_t ids[3] = { 5, 6, 70000 };
    const float logits[6] = { 1, 2, 3, -4, 5.5f, 6 };
    const int64_t stored[3] = { 5, 6, 70000 };
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_tensor tensor;
    int64_t read_ids[3];
    float read_logits[6];
    berth_error error;

    CHECK_EQ(llama_logits_write(path, false, ids, 3, logits, 2, &error), BERTH_OK);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, path,
                                   &(berth_open_options){
                                       .struct_size = sizeof(berth_open_options),
                                       .strict = 1 },
                                   &checkpoint, &error),
             BERTH_OK);
    CHECK_EQ(berth_checkpoint_tensor(checkpoint, 0, &tensor), BERTH_OK);
    CHECK_STR(tensor.name, "input_ids");
    CHECK_EQ(tensor.dtype, BERTH_I64);
    CHECK_EQ(tensor.shape[1], 3);
    CHECK_EQ(berth_checkpoint_read(checkpoint, 0, 0, 1, read_ids, sizeof read_ids, NULL),
             BERTH_OK);
    CHECK_MEM(read_ids, stored, sizeof stored);
    CHECK_EQ(berth_checkpoint_tensor(checkpoint, 1, &tensor), BERTH_OK);
    CHECK_STR(tensor.name, "logits");
    CHECK_EQ(tensor.rank, 3);
    CHECK_EQ(tensor.shape[0], 1);
    CHECK_EQ(tensor.shape[1], 3);
    CHECK_EQ(tensor.shape[2], 2);
    CHECK_EQ(berth_checkpoint_read(checkpoint, 1, 0, 1, read_logits, sizeof read_logits,
                                   NULL),
             BERTH_OK);
    CHECK_MEM(read_logits, logits, sizeof logits);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}

static void
test_cannot_write(void)
{
    const uint32_t id = 1;
    const float logit = 1;
    berth_error error;

    CHECK_EQ(llama_logits_write("nowhere/logits", false, &id, 1, &logit, 1, &error),
             BERTH_ENOENT);
    CHECK_STR(error.file, "nowhere/logits");
    CHECK_EQ(llama_logits_write("/dev/full", false, &id, 1, &logit, 1, &error), BERTH_EIO);
    CHECK_STR(error.message, "No space left on device");
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
}

/* What is there stays, if it may not be replaced; a link is replaced, not what it names. */
static void
test_keeps_what_is_there(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/there", folder);
    const char *const linked = fixture_format("%s/link", folder);
    const uint32_t id = 1;
    const float logit = 1;
    uint8_t *bytes;
    size_t length;
    berth_error error;

    fixture_write(path, "kept", 4);
    CHECK_EQ(symlink("there", linked), 0);
    CHECK_EQ(llama_logits_check(path, true, &error), BERTH_OK);
    CHECK_EQ(llama_logits_check(linked, false, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    CHECK_EQ(llama_logits_write(linked, false, &id, 1, &logit, 1, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    CHECK_EQ(llama_logits_write(linked, true, &id, 1, &logit, 1, &error), BERTH_OK);
    bytes = fixture_read(path, &length);
    CHECK_EQ(length, 4);
    CHECK_MEM(bytes, "kept", 4);
    free(bytes);
}

/* The temporary name is taken: what lies there is not written to, and stays. */
static void
test_temporary_name_is_taken(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/logits", folder);
    const char *const victim = fixture_format("%s/victim", folder);
    const long pid = (long)getpid();
    const uint32_t id = 1;
    const float logit = 1;
    uint8_t *bytes;
    size_t length;

    fixture_write(victim, "kept", 4);
    CHECK_EQ(symlink("victim", fixture_format("%s/.logits.berth-%ld.tmp", folder, pid)), 0);
    CHECK_EQ(symlink("victim", fixture_format("%s/.logits.berth-%ld-1.tmp", folder, pid)), 0);
    CHECK_EQ(llama_logits_write(path, false, &id, 1, &logit, 1, NULL), BERTH_OK);
    CHECK_GE(fixture_size(path), 100);
    bytes = fixture_read(victim, &length);
    CHECK_EQ(length, 4);
    CHECK_MEM(bytes, "kept", 4);
    free(bytes);
}

/* Writes the same file until a signal comes. */
static void
write_for_ever(const char *path)
{
    const uint32_t vocab = 1u << 20;
    const uint32_t id = 1;
    float *const logits = calloc(vocab, sizeof *logits);

    signal(SIGTERM, SIG_DFL);
    interrupt_init();
    while (llama_logits_write(path, true, &id, 1, logits, vocab, NULL) == BERTH_OK) {
    }
    _exit(1);
}

/* A signal that ends the process takes with it what is not complete. */
static void
test_signal(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/logits", folder);

    for (uint32_t i = 0; i < 8; i++) {
        pid_t child;
        int status = 0;

        unlink(path); /* it tells that the child has come so far */
        child = fork();
        if (child == 0)
            write_for_ever(path);
        while (access(path, F_OK) != 0)
            usleep(1000);
        usleep(1000 * i);
        CHECK_EQ(kill(child, SIGTERM), 0);
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 130);
        CHECK_EQ(fixture_count(folder), 1);
    }
}

/* Refused before anything is computed, and nothing is left of having looked. */
static void
test_looks_first(void)
{
    const char *const folder = fixture_folder();
    const char *const dangling = fixture_format("%s/dangling", folder);
    berth_error error;

    CHECK_EQ(symlink("nowhere", dangling), 0);
    CHECK_EQ(llama_logits_check(fixture_format("%s/new", folder), false, &error), BERTH_OK);
    CHECK_EQ(llama_logits_check(fixture_format("%s/none/new", folder), false, &error),
             BERTH_ENOENT);
    CHECK_EQ(llama_logits_check(folder, true, &error), BERTH_EINVAL);
    CHECK_STR(error.message, "is a folder; give the name of a file in it");
    CHECK_EQ(llama_logits_check(dangling, false, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    CHECK_EQ(llama_logits_check(dangling, true, &error), BERTH_OK);
    CHECK_EQ(llama_logits_check("/dev/null", false, &error), BERTH_OK);
    CHECK_EQ(fixture_count(folder), 1);
}

/* Who may not read what is replaced may not read the new one. */
static void
test_mode_stays(void)
{
    const char *const path = fixture_format("%s/logits", fixture_folder());
    const uint32_t id = 1;
    const float logit = 1;
    struct stat found;

    CHECK_EQ(llama_logits_write(path, false, &id, 1, &logit, 1, NULL), BERTH_OK);
    CHECK_EQ(chmod(path, 0600), 0);
    CHECK_EQ(llama_logits_write(path, true, &id, 1, &logit, 1, NULL), BERTH_OK);
    CHECK_EQ(stat(path, &found), 0);
    CHECK_EQ(found.st_mode & 0777, 0600);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_parses);
    T_RUN(test_refuses);
    T_RUN(test_reads_files);
    T_RUN(test_writes_logits);
    T_RUN(test_cannot_write);
    T_RUN(test_keeps_what_is_there);
    T_RUN(test_temporary_name_is_taken);
    T_RUN(test_signal);
    T_RUN(test_looks_first);
    T_RUN(test_mode_stays);
    T_MAIN_END;
}
