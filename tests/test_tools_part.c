/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_part.c - `--part` read from its text and from what starts processes. */
#include "tools/part.h"

#include <string.h>

#include "tests/t.h"

#define NAME_CAPACITY 64

/* "NAME=VALUE NAME=VALUE": the environment of one case. */
static const char *variables;

static const char *
environment(const char *name)
{
    static char value[NAME_CAPACITY];
    const size_t length = strlen(name);
    const char *at = variables;

    while (at != NULL && *at != '\0') {
        const size_t word = strcspn(at, " ");

        if (word > length && at[length] == '=' && memcmp(at, name, length) == 0) {
            memcpy(value, at + length + 1, word - length - 1);
            value[word - length - 1] = '\0';
            return value;
        }
        at += word + (at[word] == ' ');
    }
    return NULL;
}

/* Under test. */
static bool (*read_part)(const char *, cli_environment, part_share *, char *) = part_can_read;

typedef struct good {
    const char *text;
    const char *variables;
    uint32_t part;
    uint32_t count;
    const char *source;
} good;

static void
check_good(const good *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char why[PART_WHY_CAPACITY] = "";
        part_share share;

        variables = cases[i].variables;
        if (!CHECK(read_part(cases[i].text, environment, &share, why)))
            t_note("%s with %s: %s", cases[i].text, variables, why);
        if (!CHECK_EQ(share.part, cases[i].part) || !CHECK_EQ(share.count, cases[i].count))
            t_note("%s with %s", cases[i].text, variables);
        if (cases[i].source == NULL)
            CHECK(share.source == NULL);
        else if (CHECK(share.source != NULL))
            CHECK_STR(share.source, cases[i].source);
    }
}

typedef struct bad {
    const char *text;
    const char *variables;
    const char *why;
} bad;

static void
check_bad(const bad *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char why[PART_WHY_CAPACITY] = "";
        part_share share = { 7, 7, "x" };

        variables = cases[i].variables;
        if (!CHECK(!read_part(cases[i].text, environment, &share, why)))
            t_note("%s with %s", cases[i].text, variables);
        CHECK_STR(why, cases[i].why);
        CHECK_EQ(share.part, 0);
        CHECK_EQ(share.count, 0);
        CHECK(share.source == NULL);
    }
}

#define CHECK_GOOD(cases) check_good(cases, sizeof(cases) / sizeof(cases)[0])
#define CHECK_BAD(cases) check_bad(cases, sizeof(cases) / sizeof(cases)[0])

/* ------------------------------------------------------------------- written */

static void
parts_are_read_as_written(void)
{
    static const good cases[] = {
        { "1/1", NULL, 1, 1, NULL },
        { "1/4", NULL, 1, 4, NULL },
        { "4/4", NULL, 4, 4, NULL },
        { "03/012", NULL, 3, 12, NULL },
        { "9999/10000", NULL, 9999, 10000, NULL },
        { "10000/10000", NULL, 10000, 10000, NULL },
        /* What the environment says does not matter then. */
        { "2/3", "OMPI_COMM_WORLD_RANK=9 OMPI_COMM_WORLD_SIZE=1", 2, 3, NULL },
    };

    CHECK_GOOD(cases);
}

static void
what_is_no_part_is_named(void)
{
    static const bad cases[] = {
        { "", NULL, "`` is not I/N, auto or auto/N" },
        { "4", NULL, "which of 4 parts? Give I/4" },
        { "0", NULL, "`0`: there can be 1 to 10000 parts" },
        { "/", NULL, "`/` is not I/N, auto or auto/N" },
        { "/4", NULL, "`/4` is not I/N, auto or auto/N" },
        { "1/", NULL, "`1/` is not I/N, auto or auto/N" },
        { "1/2/3", NULL, "`1/2/3` is not I/N, auto or auto/N" },
        { " 1/2", NULL, "` 1/2` is not I/N, auto or auto/N" },
        { "1/2 ", NULL, "`1/2 ` is not I/N, auto or auto/N" },
        { "+1/2", NULL, "`+1/2` is not I/N, auto or auto/N" },
        { "-1/2", NULL, "`-1/2` is not I/N, auto or auto/N" },
        { "1/-2", NULL, "`1/-2` is not I/N, auto or auto/N" },
        { "1/0x2", NULL, "`1/0x2` is not I/N, auto or auto/N" },
        { "1:2", NULL, "`1:2` is not I/N, auto or auto/N" },
        { "one/two", NULL, "`one/two` is not I/N, auto or auto/N" },
        { "Auto", NULL, "`Auto` is not I/N, auto or auto/N" },
        { "aut", NULL, "`aut` is not I/N, auto or auto/N" },
        { "autox", NULL, "`autox` is not I/N, auto or auto/N" },
        { "auto/", NULL, "`auto/` is not I/N, auto or auto/N" },
        { "auto/x", NULL, "`auto/x` is not I/N, auto or auto/N" },
        { "1000000000/1000000000", NULL,
          "`1000000000/1000000000` is not I/N, auto or auto/N" },
        { "1/18446744073709551617", NULL,
          "`1/18446744073709551617` is not I/N, auto or auto/N" },
        { "1/\x1b[2J", NULL, "`1/\\x1b[2J` is not I/N, auto or auto/N" },
        { "1/0", NULL, "`1/0`: there can be 1 to 10000 parts" },
        { "0/0", NULL, "`0/0`: there can be 1 to 10000 parts" },
        { "1/10001", NULL, "`1/10001`: there can be 1 to 10000 parts" },
        { "1/999999999", NULL, "`1/999999999`: there can be 1 to 10000 parts" },
        { "auto/0", NULL, "`auto/0`: there can be 1 to 10000 parts" },
        { "auto/10001", NULL, "`auto/10001`: there can be 1 to 10000 parts" },
        { "0/4", NULL, "`0/4`: parts are counted from 1 to 4" },
        { "5/4", NULL, "`5/4`: parts are counted from 1 to 4" },
        { "999999999/4", NULL, "`999999999/4`: parts are counted from 1 to 4" },
    };

    CHECK_BAD(cases);
}

/* ----------------------------------------------------------------- launchers */

#define OMPI(rank, size) "OMPI_COMM_WORLD_RANK=" rank " OMPI_COMM_WORLD_SIZE=" size
#define PMI(rank, size) "PMI_RANK=" rank " PMI_SIZE=" size
#define SRUN(rank, size) "SLURM_STEP_ID=0 SLURM_PROCID=" rank " SLURM_NTASKS=" size
#define ARRAY(id, count, first, last, step)                                                \
    "SLURM_ARRAY_TASK_ID=" id " SLURM_ARRAY_TASK_COUNT=" count                             \
    " SLURM_ARRAY_TASK_MIN=" first " SLURM_ARRAY_TASK_MAX=" last                           \
    " SLURM_ARRAY_TASK_STEP=" step
/* The script of a job: it has the variables of a task, though it is none. */
#define SCRIPT(size) "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=" size

static void
ranks_of_launchers_are_parts(void)
{
    static const good cases[] = {
        { "auto", OMPI("0", "4"), 1, 4, "Open MPI" },
        { "auto", OMPI("3", "4"), 4, 4, "Open MPI" },
        { "auto/4", OMPI("3", "4"), 4, 4, "Open MPI" },
        { "auto", OMPI("0", "1"), 1, 1, "Open MPI" },
        { "auto", OMPI("9999", "10000"), 10000, 10000, "Open MPI" },
        { "auto", PMI("1", "2"), 2, 2, "MPICH or Intel MPI" },
        { "auto", SRUN("2", "3"), 3, 3, "srun" },
        { "auto/3", SRUN("2", "3"), 3, 3, "srun" },
        /* mpirun within the script of a Slurm job, and its daemons as tasks of srun. */
        { "auto", SCRIPT("2") " " OMPI("1", "2"), 2, 2, "Open MPI" },
        { "auto", SRUN("0", "2") " " OMPI("5", "8"), 6, 8, "Open MPI" },
        { "auto", SRUN("1", "2") " " PMI("1", "2"), 2, 2, "MPICH or Intel MPI" },
        /* An empty variable is none. */
        { "auto", "OMPI_COMM_WORLD_RANK= " PMI("0", "2"), 1, 2, "MPICH or Intel MPI" },
    };

    CHECK_GOOD(cases);
}

static void
odd_ranks_are_refused(void)
{
    static const bad cases[] = {
        { "auto", "OMPI_COMM_WORLD_RANK=0",
          "OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not" },
        { "auto", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=",
          "OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not" },
        { "auto", "PMI_RANK=0", "PMI_RANK is set, but PMI_SIZE is not" },
        { "auto", "SLURM_STEP_ID=0", "SLURM_STEP_ID is set, but SLURM_PROCID is not" },
        { "auto", "SLURM_STEP_ID=0 SLURM_PROCID=0",
          "SLURM_PROCID is set, but SLURM_NTASKS is not" },
        { "auto", OMPI("x", "4"), "OMPI_COMM_WORLD_RANK: `x` is no number" },
        { "auto", OMPI("-1", "4"), "OMPI_COMM_WORLD_RANK: `-1` is no number" },
        { "auto", OMPI("0", "4(x2)"), "OMPI_COMM_WORLD_SIZE: `4(x2)` is no number" },
        { "auto", OMPI("0", "4294967297"), "OMPI_COMM_WORLD_SIZE: `4294967297` is no number" },
        { "auto", OMPI("0", "\n"), "OMPI_COMM_WORLD_SIZE: `\\x0a` is no number" },
        { "auto", OMPI("4", "4"),
          "OMPI_COMM_WORLD_RANK=4, but OMPI_COMM_WORLD_SIZE=4: no rank of these" },
        { "auto", OMPI("0", "0"),
          "OMPI_COMM_WORLD_RANK=0, but OMPI_COMM_WORLD_SIZE=0: no rank of these" },
        { "auto", OMPI("0", "10001"), "auto: 10001 parts (Open MPI), more than 10000" },
        { "auto/4", OMPI("0", "2"), "auto/4: but this is index 0 of 2 (Open MPI)" },
        { "auto/1", SRUN("1", "2"), "auto/1: but this is index 1 of 2 (srun)" },
    };

    CHECK_BAD(cases);
}

/* -------------------------------------------------------------------- arrays */

static void
tasks_of_arrays_are_parts(void)
{
    static const good cases[] = {
        { "auto", ARRAY("0", "4", "0", "3", "1"), 1, 4, "Slurm job array" },
        { "auto", ARRAY("3", "4", "0", "3", "1"), 4, 4, "Slurm job array" },
        { "auto", ARRAY("1", "4", "1", "4", "1"), 1, 4, "Slurm job array" },
        { "auto/4", ARRAY("4", "4", "1", "4", "1"), 4, 4, "Slurm job array" },
        { "auto", ARRAY("30", "4", "10", "40", "10"), 3, 4, "Slurm job array" },
        { "auto", ARRAY("4", "3", "1", "7", "3"), 2, 3, "Slurm job array" },
        /* --array=0-9:4 */
        { "auto", ARRAY("8", "3", "0", "9", "4"), 3, 3, "Slurm job array" },
        { "auto", ARRAY("5", "1", "5", "5", "1"), 1, 1, "Slurm job array" },
        { "auto", ARRAY("4000000", "2", "3999999", "4000000", "1"), 2, 2,
          "Slurm job array" },
        /* The script of a task that has several CPUs as tasks of its own, unused. */
        { "auto", SCRIPT("2") " " ARRAY("1", "2", "0", "1", "1"), 2, 2, "Slurm job array" },
    };

    CHECK_GOOD(cases);
}

static void
odd_arrays_are_refused(void)
{
#define UNEVEN(id, count, first, last, step)                                               \
    "task " id " of a Slurm job array of " count " tasks from " first " to " last " by "   \
    step ": the indexes are not evenly spaced; give --part I/N"
    static const bad cases[] = {
        /* --array=1,3,7 */
        { "auto", ARRAY("3", "3", "1", "7", "1"), UNEVEN("3", "3", "1", "7", "1") },
        { "auto", ARRAY("3", "3", "0", "4", "2"), UNEVEN("3", "3", "0", "4", "2") },
        { "auto", ARRAY("0", "4", "1", "4", "1"), UNEVEN("0", "4", "1", "4", "1") },
        { "auto", ARRAY("5", "4", "1", "4", "1"), UNEVEN("5", "4", "1", "4", "1") },
        { "auto", ARRAY("1", "4", "1", "4", "0"), UNEVEN("1", "4", "1", "4", "0") },
        { "auto", ARRAY("1", "0", "1", "1", "1"), UNEVEN("1", "0", "1", "1", "1") },
        { "auto", "SLURM_ARRAY_TASK_ID=1",
          "SLURM_ARRAY_TASK_ID is set, but SLURM_ARRAY_TASK_COUNT is not" },
        { "auto", "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=2",
          "SLURM_ARRAY_TASK_ID is set, but SLURM_ARRAY_TASK_MIN is not" },
        { "auto",
          "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_MIN=0 "
          "SLURM_ARRAY_TASK_MAX=1",
          "SLURM_ARRAY_TASK_ID is set, but SLURM_ARRAY_TASK_STEP is not" },
        { "auto", ARRAY("1", "2", "0", "one", "1"),
          "SLURM_ARRAY_TASK_MAX: `one` is no number" },
        /* One task of an array, run again as an array of one. */
        { "auto/4", ARRAY("2", "1", "2", "2", "1"),
          "auto/4: but this is index 0 of 1 (Slurm job array)" },
        { "auto", ARRAY("1", "10001", "0", "10000", "1"),
          "auto: 10001 parts (Slurm job array), more than 10000" },
    };

    CHECK_BAD(cases);
}

static void
pods_of_indexed_jobs_are_parts(void)
{
    static const good cases[] = {
        { "auto/4", "JOB_COMPLETION_INDEX=0", 1, 4, "Kubernetes job" },
        { "auto/4", "JOB_COMPLETION_INDEX=3", 4, 4, "Kubernetes job" },
        { "auto", "JOB_COMPLETION_INDEX=3 JOB_COMPLETIONS=4", 4, 4, "Kubernetes job" },
        { "auto/4", "JOB_COMPLETION_INDEX=3 JOB_COMPLETIONS=4", 4, 4, "Kubernetes job" },
        { "auto/4", "JOB_COMPLETION_INDEX=3 JOB_COMPLETIONS=", 4, 4, "Kubernetes job" },
        /* A job array goes first. */
        { "auto", "JOB_COMPLETION_INDEX=3 " ARRAY("0", "2", "0", "1", "1"), 1, 2,
          "Slurm job array" },
    };
    static const bad refused[] = {
        { "auto", "JOB_COMPLETION_INDEX=0",
          "auto: JOB_COMPLETION_INDEX says which part this is, but not of how many: give "
          "--part auto/N, or set JOB_COMPLETIONS" },
        { "auto/4", "JOB_COMPLETION_INDEX=4",
          "auto/4: but this is index 4, counted from 0 (Kubernetes job)" },
        { "auto", "JOB_COMPLETION_INDEX=4 JOB_COMPLETIONS=4",
          "JOB_COMPLETION_INDEX=4, but JOB_COMPLETIONS=4: no index of these" },
        { "auto/4", "JOB_COMPLETION_INDEX=0 JOB_COMPLETIONS=5",
          "auto/4: but this is index 0 of 5 (Kubernetes job)" },
        { "auto", "JOB_COMPLETION_INDEX=a JOB_COMPLETIONS=4",
          "JOB_COMPLETION_INDEX: `a` is no number" },
        { "auto", "JOB_COMPLETION_INDEX=0 JOB_COMPLETIONS=all",
          "JOB_COMPLETIONS: `all` is no number" },
    };

    CHECK_GOOD(cases);
    CHECK_BAD(refused);
}

/* ---------------------------------------------------------------------- both */

static void
one_of_both_is_taken_when_it_is_clear(void)
{
    static const good cases[] = {
        { "auto", SRUN("0", "1") " " ARRAY("2", "4", "0", "3", "1"), 3, 4,
          "Slurm job array" },
        { "auto", SRUN("1", "2") " " ARRAY("0", "1", "0", "0", "1"), 2, 2, "srun" },
        { "auto", OMPI("0", "1") " " ARRAY("0", "1", "0", "0", "1"), 1, 1,
          "Slurm job array" },
        { "auto/2", OMPI("1", "2") " " ARRAY("2", "4", "0", "3", "1"), 2, 2, "Open MPI" },
        { "auto/4", OMPI("1", "2") " " ARRAY("2", "4", "0", "3", "1"), 3, 4,
          "Slurm job array" },
        { "auto/1", OMPI("0", "1") " " ARRAY("2", "4", "0", "3", "1"), 1, 1, "Open MPI" },
        { "auto/4", OMPI("1", "2") " JOB_COMPLETION_INDEX=2", 3, 4, "Kubernetes job" },
    };
    static const bad refused[] = {
        { "auto", OMPI("1", "2") " " ARRAY("2", "4", "0", "3", "1"),
          "auto: rank 1 of 2 (Open MPI) within index 2 (Slurm job array): either could be "
          "meant; give --part I/N" },
        { "auto/2", SRUN("1", "2") " " ARRAY("1", "2", "0", "1", "1"),
          "auto: rank 1 of 2 (srun) within index 1 (Slurm job array): either could be "
          "meant; give --part I/N" },
        { "auto", OMPI("1", "2") " JOB_COMPLETION_INDEX=2",
          "auto: rank 1 of 2 (Open MPI) within index 2 (Kubernetes job): either could be "
          "meant; give --part I/N" },
        { "auto", OMPI("0", "1") " JOB_COMPLETION_INDEX=2",
          "auto: JOB_COMPLETION_INDEX says which part this is, but not of how many: give "
          "--part auto/N, or set JOB_COMPLETIONS" },
        { "auto/8", OMPI("1", "2") " " ARRAY("2", "4", "0", "3", "1"),
          "auto/8: but this is index 1 of 2 (Open MPI)" },
    };

    CHECK_GOOD(cases);
    CHECK_BAD(refused);
}

#define NOTHING                                                                            \
    "auto: nothing says which part this is; looked for mpirun (OMPI_COMM_WORLD_RANK, "     \
    "PMI_RANK), srun (SLURM_STEP_ID), a Slurm job array (SLURM_ARRAY_TASK_ID) and a "      \
    "Kubernetes job (JOB_COMPLETION_INDEX)"

static void
what_was_looked_for_is_told(void)
{
    static const bad cases[] = {
        { "auto", NULL, NOTHING },
        { "auto/4", "HOME=/root RANK=0 OMPI_COMM_WORLD_SIZE=4", NOTHING },
        { "auto", SCRIPT("2"),
          NOTHING "; this is a Slurm job, but no task of it: start berth with srun" },
        { "auto/2", SCRIPT("2"),
          NOTHING "; this is a Slurm job, but no task of it: start berth with srun" },
    };

    CHECK_BAD(cases);
}

/* ---------------------------------------------------------------------- join */

static void
joining_needs_only_their_number(void)
{
    static const good cases[] = {
        { "4", NULL, 0, 4, NULL },
        { "10000", NULL, 0, 10000, NULL },
        { "3/4", NULL, 0, 4, NULL },
        { "auto/4", NULL, 0, 4, NULL },
        { "auto", OMPI("1", "2"), 0, 2, NULL },
        { "auto/4", OMPI("1", "2"), 0, 4, NULL },
    };
    static const bad refused[] = {
        { "0", NULL, "`0`: there can be 1 to 10000 parts" },
        { "10001", NULL, "`10001`: there can be 1 to 10000 parts" },
        { "5/4", NULL, "`5/4`: parts are counted from 1 to 4" },
        { "x", NULL, "`x` is not I/N, auto or auto/N" },
        { "auto", NULL, NOTHING },
    };

    read_part = part_can_read_to_join;
    CHECK_GOOD(cases);
    CHECK_BAD(refused);
    read_part = part_can_read;
}

/* ------------------------------------------------------------------ messages */

static void
what_became_of_a_part_is_told(void)
{
    static const struct told {
        part_share share;
        berth_convert_report result;
        const char *text;
    } cases[] = {
        { { 0 }, { .parts_finished = 0 }, "" },
        { { 2, 4, NULL },
          { .parts_finished = 1, .parts_missing = 3 },
          "part 2 of 4 is finished; 3 are missing, and the last one puts them together" },
        { { 2, 4, "Open MPI" },
          { .parts_finished = 3, .parts_missing = 1 },
          "part 2 of 4 (Open MPI) is finished; 1 is missing, and the last one puts them "
          "together" },
        { { 2, 4, NULL },
          { .parts_finished = 4 },
          "part 2 of 4 is finished; none is missing: the last one puts them together, or "
          "--join" },
        { { 2, 4, "srun" },
          { .parts_finished = 4, .is_joined = 1 },
          "; 4 parts, put together by part 2 of 4 (srun)" },
        { { 1, 1, NULL },
          { .parts_finished = 1, .is_joined = 1 },
          "; 1 part, put together by part 1 of 1" },
        { { 0, 4, NULL }, { .parts_finished = 4, .is_joined = 1 },
          "; 4 parts, put together" },
    };
    static output out;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        output_init(&out, -1); /* never flushed */
        part_print(&out, &cases[i].share, &cases[i].result);
        out.buffer[out.used] = '\0';
        CHECK_STR(out.buffer, cases[i].text);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(parts_are_read_as_written);
    T_RUN(what_is_no_part_is_named);
    T_RUN(ranks_of_launchers_are_parts);
    T_RUN(odd_ranks_are_refused);
    T_RUN(tasks_of_arrays_are_parts);
    T_RUN(odd_arrays_are_refused);
    T_RUN(pods_of_indexed_jobs_are_parts);
    T_RUN(one_of_both_is_taken_when_it_is_clear);
    T_RUN(what_was_looked_for_is_told);
    T_RUN(joining_needs_only_their_number);
    T_RUN(what_became_of_a_part_is_told);
    T_MAIN_END;
}
