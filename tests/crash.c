/* SPDX-License-Identifier: Apache-2.0 */
/* crash.c - what a call counts and notes, who dies, and what power loss leaves. */
#define _GNU_SOURCE

#include "tests/crash.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/t.h"

crash_disk crash;

static struct {
    bool is_counting;
    _Atomic uint64_t calls; /* of all kinds below, since counting began */
    uint64_t kill_at;
    power_log *log;    /* NULL: nothing is noted */
    char folder[4096]; /* of which the log is: its real path */
    pthread_mutex_t lock; /* over the log */
} world = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* -------------------------------------------------------------------- noting */

static uint64_t
inode_of(int fd)
{
    struct stat state;

    return fstat(fd, &state) == 0 ? (uint64_t)state.st_ino : 0;
}

void
crash_note_name(power_kind kind, int fd, const char *name, const char *to)
{
    if (world.log == NULL)
        return;
    pthread_mutex_lock(&world.lock);
    power_note(world.log, kind, inode_of(fd), name, to);
    pthread_mutex_unlock(&world.lock);
}

void
crash_note_flush(int fd)
{
    const size_t length = strlen(world.folder);
    char path[4096] = "";
    char link[64];
    struct stat state;
    const char *name = ".."; /* it lies elsewhere */

    if (world.log == NULL || fstat(fd, &state) != 0)
        return;
    if (!S_ISDIR(state.st_mode)) {
        crash_note_name(POWER_FLUSH_FILE, fd, "", "");
        return;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0
        && strncmp(path, world.folder, length) == 0
        && (path[length] == '/' || path[length] == '\0'))
        name = path + length + (path[length] == '/');
    crash_note_name(POWER_FLUSH_FOLDER, fd, name, "");
}

void
crash_note_bytes(power_kind kind, int fd, int64_t offset, const void *bytes,
                 int64_t length)
{
    if (world.log == NULL || length < 0)
        return;
    pthread_mutex_lock(&world.lock);
    power_note_bytes(world.log, kind, inode_of(fd), (uint64_t)offset, bytes,
                     (uint64_t)length);
    pthread_mutex_unlock(&world.lock);
}

bool
crash_is_last_call(void)
{
    uint64_t number;

    if (!world.is_counting)
        return false;
    number = atomic_fetch_add(&world.calls, 1);
    if (2 * number == world.kill_at)
        raise(SIGKILL);
    return 2 * number + 1 == world.kill_at;
}

void
crash_die_if(bool is_last)
{
    if (is_last)
        raise(SIGKILL);
}

/* ------------------------------------------------------------------- dying */

static bool
has_died(pid_t child)
{
    int how = 0;

    if (!CHECK_GT(child, 0) || !CHECK_EQ(waitpid(child, &how, 0), child))
        return false;
    if (WIFEXITED(how))
        CHECK_EQ(WEXITSTATUS(how), 0);
    return WIFSIGNALED(how) && CHECK_EQ(WTERMSIG(how), SIGKILL);
}

bool
crash_is_killed(crash_function function, void *user, uint64_t at)
{
    const pid_t child = fork();

    if (child == 0) {
        world.kill_at = at;
        world.is_counting = true;
        _exit(function(user) ? 0 : 1);
    }
    return has_died(child);
}

bool
crash_is_killed_after(crash_function function, void *user, uint32_t us)
{
    const pid_t child = fork();

    if (child == 0)
        _exit(function(user) ? 0 : 1);
    usleep(us);
    if (child > 0)
        CHECK_EQ(kill(child, SIGKILL), 0);
    return has_died(child);
}

uint64_t
crash_step(uint64_t step)
{
    return getenv("T_THOROUGH") != NULL ? 1 : step;
}

/* ------------------------------------------------------------------ power loss */

#define MAX_SEEN 65536u

typedef struct outage {
    crash_power *power;
    power_log *log;
    power_disk *before;
    power_disk *disk;
    uint64_t *seen;
    const char *above; /* folders of states lie here */
} outage;

static bool
is_seen(uint64_t *seen, uint64_t digest)
{
    uint64_t at = digest % MAX_SEEN;

    while (seen[at] != 0 && seen[at] != digest)
        at = (at + 1) % MAX_SEEN;
    if (seen[at] == digest)
        return true;
    seen[at] = digest;
    return false;
}

static void
record(outage *o)
{
    CHECK(realpath(o->power->folder, world.folder) != NULL);
    power_load(o->before, o->power->folder);
    world.log = o->log;
    CHECK(o->power->run(o->power->user));
    world.log = NULL;
    CHECK(o->power->is_whole(o->power->user, o->power->folder));
}

/* States of one moment; false: one was wrong. */
static bool
are_states_right(outage *o, uint64_t end)
{
    crash_power *const p = o->power;

    for (int round = 0; round < p->rounds; round++) {
        /* Each pair of chances once; after that everything is left to chance. */
        const bool is_pair = round < POWER_CHANCES * POWER_CHANCES;
        const int pair = (round + (int)end) % (POWER_CHANCES * POWER_CHANCES);
        const int names = is_pair ? pair % POWER_CHANCES : POWER_SOME;
        const int files = is_pair ? pair / POWER_CHANCES : POWER_SOME;
        char folder[8192];

        power_lose(o->disk, o->before, o->log, end, (power_chance)names,
                   (power_chance)files);
        p->states++;
        if (is_seen(o->seen, power_digest(o->disk)))
            continue;
        snprintf(folder, sizeof folder, "%s/%d", o->above, (int)p->distinct++);
        if (CHECK_EQ(mkdir(folder, 0777), 0))
            power_store(o->disk, folder);
        if (!p->is_right(p->user, o->disk, folder)) {
            T_NOTE("power lost before operation %d of %d, round %d: %s", (int)end,
                   (int)p->operations, round, folder);
            return false;
        }
        fixture_remove(folder);
    }
    return true;
}

/* Once the run has returned there is nothing left to lose. */
static void
check_end(outage *o)
{
    power_lose(o->disk, o->before, o->log, o->power->operations, POWER_NONE, POWER_NONE);
    power_store(o->disk, o->above);
    CHECK(o->power->is_whole(o->power->user, o->above));
}

void
crash_lose_power(crash_power *power)
{
    const crash_disk kept = crash;
    outage o = {
        .power = power,
        .log = power_log_create(),
        .before = power_disk_create(),
        .disk = power_disk_create(),
        .seen = calloc(MAX_SEEN, sizeof *o.seen),
        .above = fixture_folder(),
    };
    uint64_t end = 0;

    crash.has_no_fsync = true;
    record(&o);
    power->operations = power_log_count(o.log);
    while (CHECK(o.seen != NULL) && end <= power->operations && are_states_right(&o, end))
        end++;
    check_end(&o);
    crash = kept;
    T_NOTE("%d operations, %d states, %d of them different", (int)power->operations,
           (int)power->states, (int)power->distinct);
    free(o.seen);
    power_disk_destroy(o.disk);
    power_disk_destroy(o.before);
    power_log_destroy(o.log);
}
