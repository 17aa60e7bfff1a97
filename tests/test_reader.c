/* SPDX-License-Identifier: Apache-2.0 */
/* test_reader.c - the back ends: each read comes back once, with the right bytes. */
#define _GNU_SOURCE

#include "loader/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define FILE_BYTES 300000u
#define SECOND UINT64_C(1000000000)

static const berthi_reader_table *table; /* under test */
static berth_context *context;
static const char *path;
static uint8_t *content;
static int fd;

static berthi_reader_options
options_for(uint32_t threads, uint32_t depth)
{
    return (berthi_reader_options){ .threads = threads, .depth = depth, .buffer_count = 4 };
}

static berthi_reader *
open_reader(uint32_t threads, uint32_t depth)
{
    const berthi_reader_options options = options_for(threads, depth);
    berthi_reader *reader = NULL;
    berth_error error;

    berthi_error_clear(&error);
    if (!CHECK_EQ(table->open(context, &options, &reader, &error), BERTH_OK))
        T_NOTE("%s: %s", table->name, error.message);
    return reader;
}

static berthi_read *
complete(berthi_reader *reader, uint64_t wait_ns)
{
    return table->complete(reader, berthi_sys_now_ns() + wait_ns);
}

static void
test_reads_bytes(void)
{
    berthi_reader *const reader = open_reader(2, 4);
    uint8_t bytes[1000];
    berthi_read read = { .memory = bytes, .offset = 12345, .bytes = 1000, .fd = fd,
                         .buffer = BERTHI_READER_NO_BUFFER };

    T_REQUIRE(reader != NULL);
    CHECK(reader->table == table);
    table->submit(reader, &read);
    CHECK(complete(reader, 10 * SECOND) == &read);
    CHECK_EQ(read.result, 1000);
    CHECK_MEM(bytes, content + 12345, 1000);
    CHECK_GT(read.busy_ns, 0);
    CHECK_LT(read.busy_ns, 10 * SECOND);
    /* The same read again: at the end of the file, and behind it. */
    read.offset = FILE_BYTES - 10;
    table->submit(reader, &read);
    CHECK(complete(reader, 10 * SECOND) == &read);
    CHECK_EQ(read.result, 10);
    CHECK_MEM(bytes, content + FILE_BYTES - 10, 10);
    read.offset = FILE_BYTES;
    table->submit(reader, &read);
    CHECK(complete(reader, 10 * SECOND) == &read);
    CHECK_EQ(read.result, 0);
    read.fd = -1;
    table->submit(reader, &read);
    CHECK(complete(reader, 10 * SECOND) == &read);
    CHECK_EQ(read.result, -EBADF);
    table->close(reader);
}

#define MANY 700

/* More reads than a back end can have in flight, in pieces that cover the file. */
static void
test_many_reads(void)
{
    static berthi_read reads[MANY];
    static int times[MANY];
    const uint32_t piece = FILE_BYTES / MANY;
    uint8_t *const bytes = calloc(1, FILE_BYTES);
    berthi_reader *const reader = open_reader(8, MANY);

    T_REQUIRE(reader != NULL && bytes != NULL);
    memset(times, 0, sizeof times);
    for (uint32_t i = 0; i < MANY; i++) {
        reads[i] = (berthi_read){ .memory = bytes + i * piece, .offset = i * piece,
                                  .bytes = piece, .fd = fd, .is_direct = i % 2 == 0,
                                  .buffer = BERTHI_READER_NO_BUFFER };
        table->submit(reader, &reads[i]);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        berthi_read *const read = complete(reader, 10 * SECOND);

        T_REQUIRE(read != NULL);
        times[read - reads]++;
        CHECK_EQ(read->result, piece);
    }
    CHECK(complete(reader, 0) == NULL);
    for (uint32_t i = 0; i < MANY; i++)
        CHECK_EQ(times[i], 1);
    CHECK_MEM(bytes, content, piece * MANY);
    table->close(reader);
    free(bytes);
}

/* Linux 6 has tables of buffers, and root no limit of locked memory. */
static bool
must_register(void)
{
    struct utsname name;

    return geteuid() == 0 && uname(&name) == 0 && atoi(name.release) >= 6;
}

static void
test_known_buffers(void)
{
    const uint32_t size = 65536;
    berthi_reader *const reader = open_reader(2, 4);
    uint8_t *const memory = aligned_alloc(4096, size);
    berthi_read read = { .memory = memory + 8192, .offset = 5000, .bytes = 20000, .fd = fd,
                         .buffer = BERTHI_READER_NO_BUFFER };

    T_REQUIRE(reader != NULL && memory != NULL);
    if (table->add_buffer != NULL && table->add_buffer(reader, 3, memory, size))
        read.buffer = 3;
    if (table == &berthi_reader_uring && must_register())
        CHECK_EQ(read.buffer, 3);
    if (read.buffer != 3)
        T_NOTE("%s: reads do not use registered buffers here", table->name);
    table->submit(reader, &read);
    CHECK(complete(reader, 10 * SECOND) == &read);
    CHECK_EQ(read.result, 20000);
    CHECK_MEM(memory + 8192, content + 5000, 20000);
    if (table->add_buffer != NULL) /* there are four */
        CHECK(!table->add_buffer(reader, 4, memory, size));
    table->close(reader);
    free(memory);
}

/* A busy machine may be later once, and gets more tries. */
static void
test_waits_no_longer_than_told(void)
{
    berthi_reader *const reader = open_reader(1, 1);
    uint64_t took_ns = UINT64_MAX;

    T_REQUIRE(reader != NULL);
    (void)complete(reader, 0);
    for (int tries = 0; tries < T_CANCEL_TRIES && took_ns >= SECOND; tries++) {
        const uint64_t begin_ns = berthi_sys_now_ns();

        CHECK(complete(reader, SECOND / 20) == NULL);
        took_ns = berthi_sys_now_ns() - begin_ns;
        CHECK_GE(took_ns, SECOND / 25);
    }
    CHECK_LT(took_ns, SECOND);
    CHECK(table->complete(reader, 0) == NULL);
    table->close(reader);
}

static void *
wake_later(void *reader)
{
    usleep(20000);
    table->wake(reader);
    return NULL;
}

static void
test_is_woken(void)
{
    berthi_reader *const reader = open_reader(1, 1);
    pthread_t thread;
    uint64_t begin_ns;

    T_REQUIRE(reader != NULL);
    /* Before the wait, and during it; twice, since a signal is used up. */
    for (int round = 0; round < 2; round++) {
        begin_ns = berthi_sys_now_ns();
        table->wake(reader);
        CHECK(complete(reader, 20 * SECOND) == NULL);
        T_REQUIRE(pthread_create(&thread, NULL, wake_later, reader) == 0);
        CHECK(complete(reader, 20 * SECOND) == NULL);
        pthread_join(thread, NULL);
        CHECK_LT(berthi_sys_now_ns() - begin_ns, 10 * SECOND);
    }
    /* Used up: now it waits. */
    begin_ns = berthi_sys_now_ns();
    CHECK(complete(reader, SECOND / 20) == NULL);
    CHECK_GE(berthi_sys_now_ns() - begin_ns, SECOND / 25);
    table->close(reader);
}

/* Which ones had begun is chance; that each comes back is not. */
static void
test_cancels_what_has_not_begun(void)
{
    berthi_reader *const reader = open_reader(1, 4);
    uint8_t bytes[4];
    berthi_read reads[3];
    int cancelled = 0;

    T_REQUIRE(reader != NULL);
    for (int i = 0; i < 3; i++) {
        reads[i] = (berthi_read){ .memory = bytes + i, .offset = 0, .bytes = 1, .fd = fd,
                                  .buffer = BERTHI_READER_NO_BUFFER };
        table->submit(reader, &reads[i]);
    }
    table->cancel(reader);
    for (int i = 0; i < 3; i++) {
        const berthi_read *const read = complete(reader, 10 * SECOND);

        T_REQUIRE(read != NULL);
        CHECK(read->result == 1 || read->result == -ECANCELED);
        cancelled += read->result == -ECANCELED;
    }
    T_NOTE("%s: %d of 3 reads were cancelled before they began", table->name, cancelled);
    CHECK(complete(reader, 0) == NULL);
    table->close(reader);
}

static void
test_direct_reads(void)
{
    berthi_reader *reader;
    const int direct_fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    uint8_t *const memory = aligned_alloc(4096, 8192);
    berthi_read read = { .memory = memory, .offset = 4096, .bytes = 8192, .is_direct = true,
                         .fd = direct_fd, .buffer = BERTHI_READER_NO_BUFFER };

    if (direct_fd < 0)
        T_SKIP("no direct reads in the folder for temporary files");
    reader = open_reader(1, 1);
    T_REQUIRE(reader != NULL && memory != NULL);
    table->submit(reader, &read);
    CHECK(complete(reader, 10 * SECOND) == &read);
    CHECK_EQ(read.result, 8192);
    CHECK_MEM(memory, content + 4096, 8192);
    table->close(reader);
    free(memory);
    close(direct_fd);
}

static berth_status
use_once(void *user, berth_context *own_context, berth_error *error)
{
    const berthi_reader_options options = options_for(3, 4);
    berthi_reader *reader = (berthi_reader *)user;
    uint8_t bytes[100];
    berthi_read read = { .memory = bytes, .offset = 0, .bytes = 100, .fd = fd,
                         .buffer = BERTHI_READER_NO_BUFFER };
    berth_status status;

    status = table->open(own_context, &options, &reader, error);
    if (status != BERTH_OK) {
        CHECK(reader == NULL);
        return status;
    }
    table->submit(reader, &read);
    while (complete(reader, SECOND / 10) == NULL)
        continue;
    table->close(reader);
    if (read.result == 100)
        return BERTH_OK;
    CHECK_EQ(read.result, -EIO);
    return berthi_fail_system(error, EIO, "file", "reading");
}

/* io_uring that cannot be opened is another back end's turn: no ENOMEM then. */
static void
test_every_call_can_fail(void)
{
    const fault_counts counts = fault_loop(table->name, use_once, context);

    CHECK_GE(counts.system, 4);
    CHECK_GE(counts.memory, 2);
}

/* Two readers, of a context and a thread each, that know nothing of each other. */
typedef struct stranger {
    berth_context *context;
    const _Atomic bool *may_begin;
    _Atomic bool *has_ended;
    berth_status status;
} stranger;

static void *
read_as_stranger(void *argument)
{
    stranger *const its = argument;
    const berthi_reader_options options = options_for(1, 1);
    berthi_reader *reader;
    berth_error error;

    /* In an order, but none that memory has. */
    while (!atomic_load_explicit(its->may_begin, memory_order_relaxed))
        sched_yield();
    its->status = table->open(its->context, &options, &reader, &error);
    if (its->status == BERTH_OK)
        table->close(reader);
    atomic_store_explicit(its->has_ended, true, memory_order_relaxed);
    return NULL;
}

/* What one has mapped, the next one finds at the same address, newly made by the kernel. */
static void
test_one_after_the_other(void)
{
    enum { COUNT = 4 };
    _Atomic bool has_ended[COUNT + 1] = { true };
    stranger strangers[COUNT];
    pthread_t threads[COUNT];

    for (int i = 0; i < COUNT; i++) {
        strangers[i] = (stranger){ .may_begin = &has_ended[i], .has_ended = &has_ended[i + 1] };
        T_REQUIRE(berth_context_create(NULL, &strangers[i].context, NULL) == BERTH_OK);
    }
    for (int i = COUNT; i-- > 0;)
        T_REQUIRE(pthread_create(&threads[i], NULL, read_as_stranger, &strangers[i]) == 0);
    for (int i = 0; i < COUNT; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(strangers[i].status, BERTH_OK);
        berth_context_destroy(strangers[i].context);
    }
}

/* ------------------------------------------------------------------ the choice */

static const char *
chosen(bool no_uring, const berthi_reader_table *wanted)
{
    const berthi_reader_options options = options_for(2, 4);
    berthi_reader *reader = NULL;
    const char *name;

    if (!CHECK_EQ(berthi_reader_open(context, wanted, no_uring, &options, &reader, NULL),
                  BERTH_OK))
        return "";
    name = reader->table->name;
    reader->table->close(reader);
    return name;
}

static bool
has_uring(void)
{
    const berthi_reader_options options = options_for(1, 1);
    berthi_reader *reader;
    berth_error error;

    if (berthi_reader_uring.open(context, &options, &reader, &error) != BERTH_OK) {
        /* Refused by the build or by the kernel, not by a mistake. */
        if (strstr(error.message, "this build") == NULL)
            CHECK_NE(berthi_sys_probe_uring(), 0);
        return false;
    }
    reader->table->close(reader);
    return true;
}

static void
test_choice(void)
{
    const bool has = has_uring();

    CHECK_STR(chosen(true, NULL), "threads");
    CHECK_STR(chosen(false, NULL), has ? "io_uring" : "threads");
    CHECK_STR(chosen(false, &berthi_reader_threads), "threads");
    /* A ring that cannot be had is no failure. */
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
    CHECK_STR(chosen(false, NULL), "threads");
    berthi_fault_disarm();
}

static void
test_uring_refuses_politely(void)
{
    /* What may fail: making it, its event, its table of buffers, a signal, asking, a read. */
    static const int failures[] = { ENOSYS, EMFILE, 0, EIO, 0, EIO };
    const berthi_reader_options options = options_for(1, 1);

    if (!has_uring())
        T_SKIP("no io_uring here");
    for (uint64_t nth = 0; nth < sizeof failures / sizeof *failures; nth++) {
        berthi_reader *reader = (berthi_reader *)context;
        berth_error error;
        berth_status status;

        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        status = berthi_reader_uring.open(context, &options, &reader, &error);
        CHECK_EQ(berthi_fault_failures(BERTHI_FAULT_SYSTEM), 1);
        berthi_fault_disarm();
        if (failures[nth] == 0 && CHECK_EQ(status, BERTH_OK)) {
            reader->table->close(reader);
            continue;
        }
        CHECK_EQ(status, BERTH_EUNSUPPORTED);
        CHECK(reader == NULL);
        CHECK_EQ(error.reason, BERTH_REASON_UNSUPPORTED);
        CHECK_EQ(error.system_error, failures[nth]);
        CHECK_CONTAINS(error.message, "io_uring");
    }
}

/* In a process of its own: 0 where the bytes are right, else the errno, 255: other bytes. */
static int
read_alone(void)
{
    const struct rlimit one = { 1, 1 };
    uint8_t bytes[1000];
    berthi_read read = { .memory = bytes, .offset = 12345, .bytes = 1000, .fd = fd,
                         .buffer = BERTHI_READER_NO_BUFFER };
    berthi_reader *reader;

    /* Root may have as many threads as there are; where it can be nobody else it is none. */
    if (setrlimit(RLIMIT_NPROC, &one) != 0 || (setuid(65534) != 0 && errno != EPERM
                                               && errno != EINVAL))
        return errno;
    reader = open_reader(1, 1);
    if (reader == NULL)
        return ENOSYS;
    table->submit(reader, &read);
    CHECK(complete(reader, 10 * SECOND) == &read);
    table->close(reader);
    if (read.result < 0)
        return (int)-read.result;
    return read.result == 1000 && memcmp(bytes, content + 12345, 1000) == 0 ? 0 : 255;
}

/* The kernel reads what is cached with threads of its own, which count as the process's. */
static void
test_uring_needs_no_thread(void)
{
    pid_t child;
    int status;

    if (!has_uring())
        T_SKIP("no io_uring here");
    table = &berthi_reader_uring;
    child = fork();
    if (child == 0)
        _exit(read_alone());
    T_REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
}

static void
test_threads_need_one(void)
{
    const berthi_reader_options options = options_for(0, 0);
    berthi_reader *reader = NULL;
    berth_error error;

    CHECK_EQ(berthi_reader_threads.open(context, &options, &reader, &error), BERTH_OK);
    berthi_reader_threads.close(reader);
    /* 0: the condition, 1: the first thread. */
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 1, false);
    CHECK_EQ(berthi_reader_threads.open(context, &options, &reader, &error), BERTH_ENOMEM);
    berthi_fault_disarm();
    CHECK(reader == NULL);
    CHECK_EQ(error.system_error, EAGAIN);
    CHECK_CONTAINS(error.message, "starting a reader thread failed");
}

static void
run_all(const berthi_reader_table *under_test)
{
    table = under_test;
    T_RUN(test_reads_bytes);
    T_RUN(test_many_reads);
    T_RUN(test_known_buffers);
    T_RUN(test_waits_no_longer_than_told);
    T_RUN(test_is_woken);
    T_RUN(test_cancels_what_has_not_begun);
    T_RUN(test_direct_reads);
    T_RUN(test_every_call_can_fail);
    T_RUN(test_one_after_the_other);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    path = fixture_format("%s/file", fixture_folder());
    content = malloc(FILE_BYTES);
    if (content == NULL)
        return 1;
    fixture_payload("reader", 0, content, FILE_BYTES);
    fixture_write(path, content, FILE_BYTES);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    run_all(&berthi_reader_threads);
    if (has_uring())
        run_all(&berthi_reader_uring);
    else
        T_NOTE("io_uring is not there: only threads were tested");
    T_RUN(test_choice);
    T_RUN(test_uring_refuses_politely);
    T_RUN(test_uring_needs_no_thread);
    T_RUN(test_threads_need_one);
    close(fd);
    free(content);
    berth_context_destroy(context);
    T_MAIN_END;
}
