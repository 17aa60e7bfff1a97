/* SPDX-License-Identifier: Apache-2.0 */
/*
 * once.h - what the first thread that comes does, while the others wait for it.
 *
 * Lock, condition and the word that everything has failed are the owner's: it
 * broadcasts when that changes, and a wait ends.
 */
#ifndef BERTH_LOADER_ONCE_H
#define BERTH_LOADER_ONCE_H

#include <pthread.h>
#include <stdbool.h>

#include "kernels/base.h"

typedef enum berthi_once {
    BERTHI_ONCE_IDLE,
    BERTHI_ONCE_ENTERED,
    BERTHI_ONCE_DONE
} berthi_once;

/*
 * PENDING: this is the first thread, it does the work and leaves. OK: that is
 * done. CANCELLED: it will not be done. The lock is not held.
 */
berth_status berthi_once_enter(berthi_once *once, pthread_mutex_t *lock,
                               pthread_cond_t *has_changed, const bool *is_stopped,
                               berth_error *error);
/* After success; after a failure the owner stops those who wait. */
void berthi_once_leave(berthi_once *once, pthread_mutex_t *lock,
                       pthread_cond_t *has_changed);

#endif
