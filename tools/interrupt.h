/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interrupt.h - Ctrl-C and its relatives. The only signal handler of berth.
 *
 * While a job runs, a signal is a wish: whoever waits for the job asks
 * interrupt_is_wanted() and cancels. At any other time nothing is half-done
 * that outlives the process but files that are not complete, which are removed,
 * and the process ends at once. Exit code 130 both ways. Signals that were
 * ignored at the start (nohup) stay ignored.
 */
#ifndef BERTH_TOOLS_INTERRUPT_H
#define BERTH_TOOLS_INTERRUPT_H

#include <stdbool.h>

void interrupt_init(void);
void interrupt_job_begin(void);
void interrupt_job_end(void);
bool interrupt_is_wanted(void);

/*
 * A file that a signal which ends the process removes; `path` stays until it is forgotten.
 * There is room for four, which is more than a command makes at a time.
 */
void interrupt_remove(const char *path);
/* NULL is allowed. */
void interrupt_forget(const char *path);

#endif
