/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nameless.c - folders that are there for a moment, around a file without a name: only
 * their owner may look into them, and into the file.
 */
#define _GNU_SOURCE

#include "loader/nameless.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define BYTES UINT64_C(10000)

/* What went, as it was in that moment. */
static struct {
    uint32_t folders; /* that were made where the caller said */
    uint32_t inner;   /* with generated names */
    uint32_t files;
    uint32_t open;    /* of all of them, that others may look into */
} gone;

static void
look(int folder, const char *name, int flags)
{
    struct stat state;
    const char *const last = strrchr(name, '/');

    if (fstatat(folder, name, &state, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    if ((flags & AT_REMOVEDIR) == 0)
        gone.files++;
    else if (strncmp(name, ".berth-offload-", 15) == 0)
        gone.inner++;
    else if (last != NULL && strcmp(last, "/made") == 0)
        gone.folders++;
    gone.open += (state.st_mode & 07777) != ((flags & AT_REMOVEDIR) != 0 ? 0700 : 0600);
}

/* So many folders that are to be made are another one's, who removes them at once. */
static uint32_t contested;

/* These stand before the C library's. */
int
mkdirat(int folder, const char *name, mode_t mode)
{
    if (contested > 0 && strstr(name, "/made") != NULL) {
        contested--;
        errno = EEXIST;
        return -1;
    }
    return (int)syscall(SYS_mkdirat, folder, name, mode);
}

int
unlinkat(int folder, const char *name, int flags)
{
    look(folder, name, flags);
    return (int)syscall(SYS_unlinkat, folder, name, flags);
}

/* Its mode is checked, and nothing of it has a name. */
static berth_status
create(const char *folder)
{
    const berthi_nameless file = { .folder = folder,
                                   .contents = "a test",
                                   .bytes = BYTES };
    struct stat state;
    berth_error error;
    int fd;
    const berth_status status = berthi_nameless_create(&file, &fd, &error);

    CHECK_EQ(fd >= 0, status == BERTH_OK);
    if (fd < 0)
        return status;
    CHECK_EQ(fstat(fd, &state), 0);
    CHECK_EQ(state.st_mode & 07777, 0600);
    CHECK_EQ(state.st_nlink, 0);
    CHECK_EQ(state.st_size, BYTES);
    berthi_sys_close(fd);
    return status;
}

static void
forget(void)
{
    memset(&gone, 0, sizeof gone);
    (void)umask(0); /* which would hide that too much is asked for */
}

static void
test_folder_that_is_made(void)
{
    const char *const folder = fixture_format("%s/made", fixture_folder());

    forget();
    CHECK_EQ(create(folder), BERTH_OK);
    CHECK_EQ(gone.folders, 1);
    CHECK_EQ(gone.open, 0);
    CHECK_NE(access(folder, F_OK), 0);
}

/* Two loads at once need the same folder, and the first of them has made it. */
static void
test_folder_that_goes_meanwhile(void)
{
    const char *const folder = fixture_format("%s/made", fixture_folder());
    const char *const nowhere = fixture_format("%s/none/made", fixture_folder());

    forget();
    contested = 2;
    CHECK_EQ(create(folder), BERTH_OK);
    CHECK_EQ(contested, 0);
    CHECK_EQ(gone.folders, 1);
    CHECK_NE(access(folder, F_OK), 0);
    CHECK_EQ(create(nowhere), BERTH_ENOENT);
}

/* One that is there stays as it is. */
static void
test_folder_of_others(void)
{
    const char *const folder = fixture_folder();

    forget();
    CHECK_EQ(create(folder), BERTH_OK);
    CHECK_EQ(gone.folders, 0);
    CHECK_EQ(access(folder, F_OK), 0);
}

/*
 * Each call of the system fails in turn. One of them is that for a file without a name: what
 * stands in for it is a folder with a generated name, whoever made the one around it.
 */
static void
test_systems_without_nameless_files(void)
{
    const char *const folders[] = { fixture_format("%s/made", fixture_folder()),
                                    fixture_folder() };

    for (uint32_t i = 0; i < 2; i++) {
        uint64_t nth = 0;
        bool is_due = true;

        forget();
        for (; is_due && CHECK_LT(nth, 100); nth++) {
            berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
            (void)create(folders[i]);
            is_due = berthi_fault_failures(BERTHI_FAULT_SYSTEM) > 0;
            berthi_fault_disarm();
        }
        CHECK_GT(nth, 4);
        CHECK_GE(gone.inner, 1);
        CHECK_GE(gone.files, 1);
        CHECK_EQ(gone.folders > 0, i == 0);
        CHECK_EQ(gone.open, 0);
        CHECK_EQ(access(folders[i], F_OK) != 0, i == 0);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_folder_that_is_made);
    T_RUN(test_folder_that_goes_meanwhile);
    T_RUN(test_folder_of_others);
    T_RUN(test_systems_without_nameless_files);
    T_MAIN_END;
}
