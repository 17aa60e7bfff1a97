/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part.h - which part of a conversion this process does: what `--part` says, and what
 * those say that start several processes at once.
 */
#ifndef BERTH_TOOLS_PART_H
#define BERTH_TOOLS_PART_H

#include "tools/cli.h"
#include "tools/output.h"

#define PART_MAX_COUNT 10000
#define PART_WHY_CAPACITY 768

typedef struct part_share {
    uint32_t part;  /* from 1; 0: none of them in particular */
    uint32_t count; /* 0: `--part` was not given */
    const char *source; /* who said so, a literal; NULL: the command line itself */
} part_share;

/*
 * Reads I/N, auto, or auto/N. With `auto` the environment tells which part it is:
 *
 *     Open MPI               OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
 *     MPICH or Intel MPI     PMI_RANK, PMI_SIZE
 *     srun                   SLURM_PROCID, SLURM_NTASKS, where SLURM_STEP_ID is set
 *     a Slurm job array      SLURM_ARRAY_TASK_ID, _COUNT, _MIN, _MAX, _STEP
 *     a Kubernetes job       JOB_COMPLETION_INDEX, JOB_COMPLETIONS
 *
 * The first three start processes that belong together. Where several of them are there, the
 * upper one counts: mpirun works through srun, not the other way round. A task of a job
 * array that starts several processes could be meant either way and is refused, unless
 * only one of both has N parts. False: `why` says what is wrong, in PART_WHY_CAPACITY
 * bytes.
 */
bool part_can_read(const char *text, cli_environment environment, part_share *share,
                   char *why);

/*
 * The same for a process that joins: of I/N, auto/N and N alone it is N that counts, and
 * `part` is 0.
 */
bool part_can_read_to_join(const char *text, cli_environment environment,
                           part_share *share, char *why);

/*
 * What has become of a part, and of all of them, when a job has ended well; nothing for
 * one without parts. Behind what is said of the whole once it is there.
 */
void part_print(output *out, const part_share *share, const berth_convert_report *result);

#endif
