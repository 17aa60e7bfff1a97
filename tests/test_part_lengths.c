/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_part_lengths.c - parts that tell each other lengths while they are at work: who
 * dies on the way, stops, never comes, or has told something else. The files are those
 * of one process, and nobody copies a shard.
 */
#define _GNU_SOURCE

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/digest.h"
#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/weights.h"

#define LAYERS 12

static const char *model;
static const char *whole;
static uint64_t source_bytes;

/* What a part does when it has told so many lengths; stands before the C library's. */
static struct {
    int after;  /* 0: nothing */
    int signal; /* that it sends itself then */
    useconds_t pause; /* before it tells another one */
} fate;

ssize_t
pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    if (size == 8 && fate.pause > 0)
        usleep(fate.pause);
    if (size == 8 && fate.after > 0 && --fate.after == 0)
        raise(fate.signal);
    return (ssize_t)syscall(SYS_pwrite64, fd, bytes, size, offset);
}

static void
begin(converted *c, const char *output)
{
    converted_begin(c, output, BERTH_ENCODING_NF4);
    c->options.double_quant = 1;
    c->options.workers = 1;
    c->is_bare = true;
    converted_shrink(c, 64);
}

/* Weights whose states are shorter and longer than guessed. */
static void
make_model(void)
{
    static const float means[] = { 0.5f, 0.02f, 1.17e-25f, 0.5f, 3.3e7f, 0.1f };
    const uint64_t shape[2] = { 16, 64 };
    fixture_builder *const b = fixture_begin();
    converted c;

    model = fixture_folder();
    for (int i = 0; i < LAYERS; i++) {
        float values[16 * 64];

        for (int k = 0; k < 16 * 64; k++)
            values[k] = means[i % 6] * (i % 2 == 0 ? 1 : (float)(k % 97 - 40 + i));
        fixture_add(b, fixture_format("model.layers.%d.fc1.weight", i), "F32", 2, shape,
                    values);
    }
    fixture_add_lines(b, "F32 4 model.norm.weight\n");
    fixture_finish(b, fixture_format("%s/model.safetensors", model));
    fixture_text(fixture_format("%s/config.json", model), FIXTURE_CONFIG);
    whole = fixture_format("%s/whole", fixture_folder());
    begin(&c, whole);
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    source_bytes = c.report.bytes_read;
}

static berth_status
run_part(converted *c, uint32_t part, uint32_t count)
{
    c->options.part = part;
    c->options.part_count = count;
    c->measured = 0;
    return converted_run(c, model);
}

static const char *
new_output(void)
{
    return fixture_format("%s/out", fixture_folder());
}

static bool
is_whole(const converted *c)
{
    return CHECK_EQ(c->report.is_joined, 1) && CHECK_EQ(c->copies, 0)
           && CHECK(converted_is_same(whole, c->options.output));
}

/* ----------------------------------------------------------------- one by one */

/* Who comes first reads the weights of all, and nobody else does so again. */
static void
test_one_by_one(void)
{
    for (uint32_t first = 1; first <= 4; first++) {
        converted c;

        begin(&c, new_output());
        for (uint32_t i = 0; i < 4; i++) {
            CHECK_EQ(run_part(&c, (first + i - 1) % 4 + 1, 4), BERTH_OK);
            CHECK_EQ(c.measured, i == 0 ? 3 : 0);
            if (i == 0)
                CHECK_GE(c.report.bytes_read, source_bytes - 16);
            else
                CHECK_LT(c.report.bytes_read, source_bytes / 3);
        }
        CHECK(is_whole(&c));
    }
}

/* Told lengths are used again by who goes on, and by who begins anew. */
static void
test_resumed(void)
{
    converted c;

    begin(&c, new_output());
    CHECK_EQ(run_part(&c, 2, 2), BERTH_OK);
    CHECK_EQ(c.measured, 1);
    c.options.resume = 1;
    CHECK_EQ(run_part(&c, 2, 2), BERTH_OK);
    CHECK_EQ(c.measured, 0);
    CHECK_EQ(c.report.bytes_read, 0);
    c.options.resume = 0;
    c.options.overwrite = 1;
    CHECK_EQ(run_part(&c, 2, 2), BERTH_OK);
    CHECK_EQ(c.measured, 0);
    CHECK_GT(c.report.bytes_read, 0);
    CHECK_EQ(run_part(&c, 1, 2), BERTH_OK);
    CHECK_EQ(c.measured, 0);
    CHECK(is_whole(&c));
}

/* A table that power loss has taken is made again. */
static void
test_lost_table(void)
{
    converted c;

    begin(&c, new_output());
    CHECK_EQ(run_part(&c, 1, 3), BERTH_OK);
    CHECK_EQ(unlink(fixture_find(c.options.output, "-table$")), 0);
    CHECK_EQ(run_part(&c, 3, 3), BERTH_OK);
    CHECK_EQ(c.measured, 2);
    CHECK_EQ(unlink(fixture_find(c.options.output, "-table$")), 0);
    c.options.resume = 1; /* tells again what it has finished */
    CHECK_EQ(run_part(&c, 1, 3), BERTH_OK);
    CHECK_EQ(c.report.bytes_written, 0);
    c.options.resume = 0;
    CHECK_EQ(run_part(&c, 2, 3), BERTH_OK);
    CHECK_EQ(c.measured, 1);
    CHECK(is_whole(&c));
}

/* Several shards, fewer than parts; and more than parts, which tell nothing. */
static void
test_shards(void)
{
    for (uint32_t shards = 4096; shards <= 8192; shards += 4096) {
        const char *const alone = fixture_format("%s/alone", fixture_folder());
        converted c;

        begin(&c, alone);
        c.options.max_shard_bytes = shards;
        CHECK_EQ(converted_run(&c, model), BERTH_OK);
        for (uint32_t parts = 2; parts <= 6; parts++) {
            c.options.output = new_output();
            for (uint32_t part = parts; part > 0; part--) {
                CHECK_EQ(run_part(&c, part, parts), BERTH_OK);
                if (part == parts)
                    CHECK_EQ(c.measured > 0, c.report.shards < parts);
                if (part == 1)
                    CHECK_EQ(c.measured, 0);
            }
            CHECK(converted_is_same(alone, c.options.output));
        }
    }
}

/* ---------------------------------------------------------------- wrong lengths */

/* The checksum that goes with another number: crc32 is linear. */
static void
forge(const char *table, uint32_t index, uint32_t number)
{
    uint32_t *const slots = fixture_read(table, NULL);
    const uint64_t size = fixture_size(table);
    const uint32_t before[2] = { index, slots[2 * index] };
    const uint32_t after[2] = { index, number };

    slots[2 * index] = number;
    slots[2 * index + 1] ^= berthi_digest_crc32(0, before, sizeof before)
                            ^ berthi_digest_crc32(0, after, sizeof after);
    fixture_write(table, slots, size);
    free(slots);
}

/* The index of the n-th slot that is told. */
static uint32_t
find_told(const char *table, uint32_t n, uint32_t *out_number)
{
    uint32_t *const slots = fixture_read(table, NULL);
    uint32_t index = 0;

    for (;; index++)
        if (slots[2 * index] > 0 && n-- == 0)
            break;
    *out_number = slots[2 * index];
    free(slots);
    return index;
}

/*
 * Lengths of another source under this job's name: whose weight it is finds out, or
 * who joins. Nothing comes of them.
 */
static void
test_wrong_lengths(void)
{
    uint32_t seen[2] = { 0, 0 };

    for (uint32_t i = 0; i < LAYERS - 1; i++) {
        const char *table;
        converted c;
        uint32_t number;
        uint32_t index;

        begin(&c, new_output());
        CHECK_EQ(run_part(&c, 1, 2), BERTH_OK);
        table = fixture_find(c.options.output, "-table$");
        index = find_told(table, i, &number);
        forge(table, index, number - 1);
        CHECK_EQ(run_part(&c, 2, 2), BERTH_EFORMAT);
        CHECK_EQ(c.error.reason, BERTH_REASON_JOURNAL);
        CHECK_EQ(c.report.is_joined, 0);
        seen[strstr(c.error.message, "parts have reckoned with") != NULL]++;
        if (strstr(c.error.message, "parts have reckoned with") == NULL)
            CHECK_STR(c.error.message,
                      "the journal of part 2 is not what this command makes");
        else
            CHECK_CONTAINS(c.error.message,
                           fixture_format("has %u bytes, and parts have reckoned with %u",
                                          number, number - 1));
        /* Both anew: what was told goes with its table. */
        CHECK_EQ(unlink(table), 0);
        c.options.overwrite = 1;
        (void)run_part(&c, 1, 2); /* the other one is as it was */
        CHECK_EQ(run_part(&c, 2, 2), BERTH_OK);
        CHECK(is_whole(&c));
    }
    CHECK_GE(seen[0], LAYERS / 2 - 1);
    CHECK_GE(seen[1], LAYERS / 2 - 1);
}

/* More than any length can be is not believed. */
static void
test_impossible_lengths(void)
{
    for (uint32_t i = 0; i < LAYERS; i += LAYERS - 1) {
        const char *table;
        converted c;
        uint32_t number;
        uint32_t index;

        begin(&c, new_output());
        CHECK_EQ(run_part(&c, 1, 2), BERTH_OK);
        table = fixture_find(c.options.output, "-table$");
        index = find_told(table, i, &number);
        forge(table, index, number + 100);
        CHECK_EQ(run_part(&c, 2, 2), BERTH_OK);
        CHECK_LE(c.measured, 1);
        CHECK(is_whole(&c));
    }
}

/* ---------------------------------------------------------------------- at once */

/* In a process of its own, with a fate of its own; 0: it has succeeded. */
static pid_t
begin_process(const converted *c, uint32_t part, uint32_t count, int after, int signal)
{
    const pid_t child = fork();
    converted mine = *c;
    berth_status status;

    if (child != 0)
        return child;
    fate.after = after;
    fate.signal = signal;
    status = run_part(&mine, part, count);
    if (status != BERTH_OK)
        fprintf(stderr, "part %u of %u: %s\n", part, count, mine.error.message);
    _exit(status == BERTH_OK ? mine.copies > 0 : 99);
}

static int
end_of(pid_t child)
{
    int how = -1;

    CHECK_EQ(waitpid(child, &how, 0), child);
    return how;
}

static void
test_at_once(void)
{
    for (uint32_t count = 2; count <= 4; count++) {
        pid_t children[4];
        converted c;

        begin(&c, new_output());
        c.options.workers = count - 1;
        for (uint32_t i = 0; i < count; i++)
            children[i] = begin_process(&c, i + 1, count, 0, 0);
        for (uint32_t i = 0; i < count; i++)
            CHECK_EQ(end_of(children[i]), 0);
        CHECK(converted_is_same(whole, c.options.output));
    }
}

static bool
is_over(pid_t child)
{
    siginfo_t info = { 0 };

    CHECK_EQ(waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == child;
}

static bool
is_locked(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool is_held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0;

    if (fd >= 0)
        close(fd);
    return is_held;
}

/* Until one of two parts is at work, which is when others wait for it, or was. */
static void
await_beginning(const char *output, pid_t process, uint32_t part)
{
    const char *const lock = fixture_format("%05u-of-00002.json.lock$", part);

    while (!is_over(process)
           && (access(output, R_OK) != 0 || !is_locked(fixture_find(output, lock))))
        usleep(100);
}

/*
 * The other part is killed when it has told some lengths: this one finds out the rest,
 * at the beginning or when it has begun a shard, and is finished. Then the other one
 * goes on alone.
 */
static void
check_killed(uint64_t parcels, uint32_t mine, uint32_t *out_measured)
{
    for (int after = 1; after <= LAYERS / 2; after++) {
        pid_t other;
        converted c;

        begin(&c, new_output());
        c.sizes.parcels = parcels;
        fate.pause = 2000;
        other = begin_process(&c, 3 - mine, 2, after, SIGKILL);
        fate.pause = 0;
        await_beginning(c.options.output, other, 3 - mine);
        CHECK_EQ(run_part(&c, mine, 2), BERTH_OK);
        *out_measured += c.measured;
        CHECK_EQ(c.report.parts_missing, 1);
        CHECK(WIFSIGNALED(end_of(other)));
        CHECK_EQ(run_part(&c, 3 - mine, 2), BERTH_OK);
        CHECK_EQ(c.measured, 0);
        CHECK(is_whole(&c));
    }
}

static void
test_killed(void)
{
    uint32_t measured = 0;

    check_killed(1, 1, &measured);
    check_killed(1, 2, &measured);
    check_killed(1 << 20, 1, &measured);
    CHECK_GE(measured, LAYERS);
}

/* Who stops is waited for no longer than is told, and goes on afterwards. */
static void
test_stopped(void)
{
    for (int after = 1; after <= 4; after += 3) {
        pid_t other;
        converted c;
        int how;

        begin(&c, new_output());
        c.sizes.parcels = after == 1 ? 1 : 1 << 20;
        c.sizes.patience_ns = 20000000;
        other = begin_process(&c, 1, 2, after, SIGSTOP);
        CHECK_EQ(waitpid(other, &how, WUNTRACED), other);
        CHECK(WIFSTOPPED(how));
        CHECK_EQ(run_part(&c, 2, 2), BERTH_OK);
        CHECK_GT(c.measured, 0);
        CHECK_EQ(c.report.parts_missing, 1);
        CHECK_EQ(kill(other, SIGCONT), 0);
        CHECK_EQ(end_of(other), 0);
        CHECK(converted_is_same(whole, c.options.output));
    }
}

/*
 * Three weights whose names sort between the first one and its statistics. The second
 * part has the first two: amid the first its place hangs on lengths of both parts, and
 * its own is missing first. It goes on; only at the end the other one is not waited for.
 */
static void
test_own_length_is_first(void)
{
    static const char *const marks[] = { "", "-b.weight", "-c.weight" };
    const char *const before = model;
    const char *const own = fixture_folder();
    const char *const alone = fixture_format("%s/out", fixture_folder());
    const uint64_t shape[2] = { 16, 64 };
    fixture_builder *const b = fixture_begin();
    converted c;
    int lock;

    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        fixture_add(b, fixture_format("model.layers.0.fc1.weight%s", marks[i]), "F32", 2,
                    shape, NULL);
    fixture_add_lines(b, "F32 1024 model.norm.weight\n"); /* the first part's */
    fixture_finish(b, fixture_format("%s/model.safetensors", own));
    fixture_text(fixture_format("%s/config.json", own), FIXTURE_CONFIG);
    model = own;
    begin(&c, alone);
    CHECK_EQ(converted_run(&c, model), BERTH_OK);

    begin(&c, new_output());
    CHECK(WIFSIGNALED(end_of(begin_process(&c, 1, 2, 1, SIGKILL))));
    lock = open(fixture_find(c.options.output, "00001-of-00002.json.lock$"),
                O_RDONLY | O_CLOEXEC);
    T_REQUIRE(lock >= 0 && flock(lock, LOCK_EX) == 0); /* it is at work, and says nothing */
    c.sizes.parcels = 1;
    c.options.double_quant = 1;
    c.sizes.patience_ns = 0;
    CHECK_EQ(run_part(&c, 2, 2), BERTH_OK);
    close(lock);
    CHECK_EQ(c.measured, 1);
    CHECK_EQ(c.report.bytes_read, 3 * sizeof(float) * 16 * 64); /* nothing twice */
    CHECK_EQ(run_part(&c, 1, 2), BERTH_OK);
    CHECK_EQ(c.measured, 0);
    CHECK_EQ(c.report.is_joined, 1);
    CHECK(converted_is_same(alone, c.options.output));
    model = before;
}

/* A part that waits for another one is ended at once by a cancel. */
static int
cancel_soon(void *user, const berth_progress *progress)
{
    (void)user;
    (void)progress;
    return 1;
}

static void
test_cancelled_while_waiting(void)
{
    pid_t other;
    converted c;
    int how;

    for (int round = 0; round < 2; round++) {
        begin(&c, new_output());
        c.sizes.parcels = round == 0 ? 1 : 1 << 20;
        other = begin_process(&c, 1, 2, 2, SIGSTOP);
        CHECK_EQ(waitpid(other, &how, WUNTRACED), other);
        c.options.progress = cancel_soon;
        CHECK_EQ(run_part(&c, 2, 2), BERTH_ECANCELLED);
        CHECK_EQ(c.measured, 0);
        c.options.progress = NULL;
        CHECK_EQ(kill(other, SIGKILL), 0);
        CHECK(WIFSIGNALED(end_of(other)));
        CHECK_EQ(run_part(&c, 2, 2), BERTH_OK);
        CHECK_EQ(run_part(&c, 1, 2), BERTH_OK);
        CHECK(is_whole(&c));
    }
}

/*
 * Codes that hang on a length which nobody tells are kept only up to a limit: then the
 * other part's weight is read, and there are places for them.
 */
static void
test_little_is_kept(void)
{
    const char *const before = model;
    const char *const own = fixture_folder();
    const uint64_t limit = 1 << 16;
    const uint64_t codes = 2048 * 4096 / 2;
    pid_t other;
    converted c;
    int how;

    fixture_model(own, "[model.safetensors]\nBF16 2048x4096 model.layers.0.fc1.weight\n"
                       "BF16 2048x4096 model.layers.1.fc1.weight\n");
    fixture_text(fixture_format("%s/config.json", own), FIXTURE_CONFIG);
    model = own;
    begin(&c, new_output());
    converted_shrink(&c, limit);
    c.sizes.patience_ns = 0;
    c.options.ring_bytes = 1 << 20;
    other = begin_process(&c, 1, 2, 1, SIGSTOP); /* it is there, and says nothing */
    CHECK_EQ(waitpid(other, &how, WUNTRACED), other);
    CHECK(WIFSTOPPED(how));
    CHECK_EQ(run_part(&c, 2, 2), BERTH_OK);
    CHECK_EQ(c.measured, 1);
    CHECK_LT(c.peak, codes);
    CHECK_EQ(kill(other, SIGKILL), 0);
    CHECK(WIFSIGNALED(end_of(other)));
    model = before;
}

int
main(int argc, char **argv)
{
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    T_MAIN_BEGIN(argc, argv);
    make_model();
    T_RUN(test_one_by_one);
    T_RUN(test_resumed);
    T_RUN(test_lost_table);
    T_RUN(test_shards);
    T_RUN(test_wrong_lengths);
    T_RUN(test_impossible_lengths);
    T_RUN(test_at_once);
    T_RUN(test_killed);
    T_RUN(test_stopped);
    T_RUN(test_own_length_is_first);
    T_RUN(test_cancelled_while_waiting);
    T_RUN(test_little_is_kept);
    T_MAIN_END;
}
