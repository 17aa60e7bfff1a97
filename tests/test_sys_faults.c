/* SPDX-License-Identifier: Apache-2.0 */
/* test_sys_faults.c - each wrapper of files made to fail, and what a kernel refuses. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/found.h"
#include "tests/t.h"

#define CWD BERTHI_SYS_AT_CWD

/* ------------------------------------------------------------------- faults */

static int
never(void *user, const char *name)
{
    (void)user;
    (void)name;
    return 0;
}

#define FAILS(call, failure_expected)                                                      \
    do {                                                                                   \
        int64_t result;                                                                    \
                                                                                           \
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);                                   \
        errno = 0;                                                                         \
        result = (call);                                                                   \
        CHECK_EQ(errno, failure_expected);                                                 \
        CHECK_EQ(result, -1);                                                              \
        CHECK_EQ(berthi_fault_failures(BERTHI_FAULT_SYSTEM), 1);                           \
        berthi_fault_disarm();                                                             \
    } while (0)

static void
test_every_call_can_fail(void)
{
    const char *const folder = fixture_folder();
    const int before = fixture_open_fds();
    const int at = berthi_sys_open_folder(CWD, folder);
    const int fd = berthi_sys_create(at, "f");
    berthi_sys_stat stat;
    uint64_t bytes;
    uint32_t number;
    uint32_t other;
    char text[64];

    FAILS(berthi_sys_open_read(at, "f"), EIO);
    FAILS(berthi_sys_open_folder(CWD, folder), EIO);
    FAILS(berthi_sys_reopen_direct(fd), EIO);
    FAILS(berthi_sys_reopen_read(fd), EIO);
    FAILS(berthi_sys_open_beneath(at, "f"), EIO);
    FAILS(berthi_sys_create(at, "g"), EIO);
    FAILS(berthi_sys_fstat(fd, &stat), EIO);
    FAILS(berthi_sys_stat_at(at, "f", BERTHI_SYS_FOLLOW, &stat), EIO);
    FAILS(berthi_sys_readlink(at, "f", text, sizeof text), EIO);
    FAILS(berthi_sys_path_of(fd, text, sizeof text), EIO);
    FAILS(berthi_sys_direct_alignment(fd, &number, &other), EIO);
    FAILS(berthi_sys_pread(fd, text, 1, 0), EIO);
    FAILS(berthi_sys_drop_cache(fd, 0, 0), EIO);
    FAILS(berthi_sys_advise_random(fd), EIO);
    FAILS(berthi_sys_list(at, never, NULL), EIO);
    FAILS(berthi_sys_pwrite(fd, "x", 1, 0), ENOSPC);
    FAILS(berthi_sys_write_back(fd, 0, 1), EIO);
    FAILS(berthi_sys_wait_back(fd, 0, 1), EIO);
    FAILS(berthi_sys_fsync(fd), EIO);
    FAILS(berthi_sys_truncate(fd, 1), EIO);
    FAILS(berthi_sys_make_folder(at, "h"), EIO);
    FAILS(berthi_sys_allocate(fd, 4096), ENOSPC);
    FAILS(berthi_sys_rename(at, "f", "g"), EIO);
    FAILS(berthi_sys_rename_new(at, "f", "g"), EIO);
    FAILS(berthi_sys_set_mode(fd, 0600), EPERM);
    FAILS(berthi_sys_set_owner(fd, 0, 0), EPERM);
    FAILS(berthi_sys_lock(fd), ENOLCK);
    FAILS(berthi_sys_unlock(fd), ENOLCK);
    FAILS(berthi_sys_free_bytes(fd, &bytes), EIO);
    FAILS(berthi_sys_limit(BERTHI_SYS_LIMIT_DATA, &bytes), EPERM);
    FAILS(berthi_sys_affinity(&number), EPERM);
#ifdef __x86_64__
    FAILS(berthi_sys_allow_tiles(), EPERM);
    FAILS(berthi_sys_may_use_tiles() - 1, EINVAL);
#endif
    FAILS(berthi_sys_probe_uring(), ENOSYS);
    FAILS(berthi_sys_event_create(), EMFILE);
    FAILS(berthi_sys_random(text, 8), EIO);
    CHECK_EQ(fixture_size(found_path(folder, "f")), 0); /* nothing was done */
    CHECK_EQ(berthi_sys_unlink(at, "g"), -1);
    berthi_sys_close(fd);
    berthi_sys_close(at);
    CHECK_EQ(fixture_open_fds(), before);
}

static void
test_list_fails_on_the_way(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, folder);
    const int before = fixture_open_fds();

    fixture_text(found_path(folder, "f"), "");
    /* Opening, the first answer, the answer that says it was the last. */
    for (uint64_t nth = 0; nth < 3; nth++) {
        found_names all = { 0, -1, 0 };

        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        CHECK_EQ(berthi_sys_list(at, found_count, &all), -1);
        CHECK_EQ(errno, EIO);
        CHECK_EQ(all.count, nth == 2);
        berthi_fault_disarm();
    }
    CHECK_EQ(fixture_open_fds(), before);
    berthi_sys_close(at);
}

/* From here on the kernel refuses a call; for a process that ends soon. */
static bool
is_refused_from_now(long number, int failure)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)failure),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { sizeof filter / sizeof filter[0], filter };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
           && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int
exit_code_of(pid_t child)
{
    int status = -1;

    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

enum { CANNOT_REFUSE = 77 };

/* What the kernel itself refuses reaches the caller as it is. */
#define REFUSED(number, failure, call)                                                     \
    do {                                                                                   \
        const pid_t child = fork();                                                        \
        int code;                                                                          \
                                                                                           \
        if (child == 0) {                                                                  \
            int64_t result;                                                                \
                                                                                           \
            if (!is_refused_from_now(number, failure))                                     \
                _exit(CANNOT_REFUSE);                                                      \
            errno = 0;                                                                     \
            result = (call);                                                               \
            _exit(result == -1 && errno == (failure) ? 0 : 1);                             \
        }                                                                                  \
        code = exit_code_of(child);                                                        \
        if (code == CANNOT_REFUSE)                                                         \
            T_SKIP("this process may not refuse calls");                                   \
        CHECK_EQ(code, 0);                                                                 \
    } while (0)

/* In a process that has no openat2: how many answers are wrong. */
static int
count_wrong_beneath(int model, int failure)
{
    static const char *const outside[] = { "out", "out-absolute", "up/secret", "beside",
                                           "../secret", "/etc/passwd", "." };
    int wrong = 0;

    if (!is_refused_from_now(SYS_openat2, failure))
        return CANNOT_REFUSE;
    wrong += berthi_sys_open_beneath(model, "f") < 0;
    wrong += berthi_sys_open_beneath(model, "in") < 0;
    wrong += berthi_sys_open_beneath(model, "sub/g") < 0;
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        errno = 0;
        wrong += berthi_sys_open_beneath(model, outside[i]) != -1 || errno != EXDEV;
    }
    wrong += berthi_sys_open_beneath(model, "loop") != -1 || errno != ELOOP;
    wrong += berthi_sys_open_beneath(model, "absent") != -1 || errno != ENOENT;
    return wrong;
}

/* Linux before 5.6, emulators, and containers whose rules are older than the call. */
static void
test_open_beneath_without_openat2(void)
{
    static const int failures[] = { ENOSYS, EPERM };
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, folder);
    int model;

    fixture_make_folder(found_path(folder, "model/sub"));
    fixture_make_folder(found_path(folder, "model-more"));
    fixture_text(found_path(folder, "model-more/x"), "x");
    fixture_text(found_path(folder, "secret"), "s");
    fixture_text(found_path(folder, "model/f"), "f");
    fixture_text(found_path(folder, "model/sub/g"), "g");
    fixture_link("../secret", found_path(folder, "model/out"));
    fixture_link("/etc/passwd", found_path(folder, "model/out-absolute"));
    fixture_link("..", found_path(folder, "model/up"));
    fixture_link("../model-more/x", found_path(folder, "model/beside"));
    fixture_link("sub/../f", found_path(folder, "model/in"));
    fixture_link("loop", found_path(folder, "model/loop"));
    model = berthi_sys_open_folder(at, "model");
    fflush(NULL);
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        const pid_t child = fork();
        int code;

        if (child == 0)
            _exit(count_wrong_beneath(model, failures[i]));
        code = exit_code_of(child);
        if (code == CANNOT_REFUSE)
            T_SKIP("this process may not refuse calls");
        CHECK_EQ(code, 0);
    }
    berthi_sys_close(model);
    berthi_sys_close(at);
}

static void
test_what_the_kernel_refuses(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, folder);
    const int fd = berthi_sys_create(at, "f");
    uint64_t bytes;
    uint32_t number;
    uint32_t other;

    fflush(NULL);
    /* Tried again, but not for ever. */
    REFUSED(SYS_openat2, EAGAIN, berthi_sys_open_beneath(at, "f"));
    REFUSED(SYS_openat2, EINTR, berthi_sys_open_beneath(at, "f"));
    REFUSED(SYS_statx, ENOSYS, berthi_sys_direct_alignment(fd, &number, &other));
    REFUSED(SYS_fadvise64, EIO, berthi_sys_drop_cache(fd, 0, 0));
    REFUSED(SYS_fadvise64, EIO, berthi_sys_advise_random(fd));
    REFUSED(SYS_getdents64, EIO, berthi_sys_list(at, never, NULL));
    REFUSED(SYS_fsync, ENOSPC, berthi_sys_fsync(fd));
    REFUSED(SYS_sync_file_range, EIO, berthi_sys_write_back(fd, 0, 1));
    REFUSED(SYS_sync_file_range, EIO, berthi_sys_wait_back(fd, 0, 1));
    REFUSED(SYS_ftruncate, EIO, berthi_sys_truncate(fd, 1));
    REFUSED(SYS_fallocate, EOPNOTSUPP, berthi_sys_allocate(fd, 1));
    REFUSED(SYS_fchmod, EPERM, berthi_sys_set_mode(fd, 0600));
    REFUSED(SYS_fchown, EPERM, berthi_sys_set_owner(fd, 0, 0));
    REFUSED(SYS_flock, ENOLCK, berthi_sys_lock(fd));
    REFUSED(SYS_renameat2, EINVAL, berthi_sys_rename_new(at, "f", "g"));
    REFUSED(SYS_fstatfs, EIO, berthi_sys_free_bytes(fd, &bytes));
    REFUSED(SYS_prlimit64, EPERM, berthi_sys_limit(BERTHI_SYS_LIMIT_DATA, &bytes));
    REFUSED(SYS_sched_getaffinity, EPERM, berthi_sys_affinity(&number));
#ifdef __x86_64__
    REFUSED(SYS_arch_prctl, EPERM, berthi_sys_allow_tiles());
    REFUSED(SYS_arch_prctl, EINVAL, berthi_sys_may_use_tiles() - 1);
#endif
    REFUSED(SYS_io_uring_setup, EPERM, berthi_sys_probe_uring());
    REFUSED(SYS_eventfd2, EMFILE, berthi_sys_event_create());
    REFUSED(SYS_getrandom, EAGAIN, berthi_sys_random(&bytes, sizeof bytes));
    /* The page by page look, which is all that older kernels have. */
    REFUSED(SYS_mincore, ENOMEM, found_cached_by(true, fd, 0, 1));
    berthi_sys_close(fd);
    berthi_sys_close(at);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_every_call_can_fail);
    T_RUN(test_list_fails_on_the_way);
    T_RUN(test_open_beneath_without_openat2);
    T_RUN(test_what_the_kernel_refuses);
    T_MAIN_END;
}
