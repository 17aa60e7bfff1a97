/* SPDX-License-Identifier: Apache-2.0 */
/* once.c - the first one enters, the others wait until it leaves. */
#include "loader/once.h"

#include "loader/job.h"

berth_status
berthi_once_enter(berthi_once *once, pthread_mutex_t *lock, pthread_cond_t *has_changed,
                  const bool *is_stopped, berth_error *error)
{
    bool is_first;
    bool is_done;

    pthread_mutex_lock(lock);
    is_first = *once == BERTHI_ONCE_IDLE;
    if (is_first)
        *once = BERTHI_ONCE_ENTERED;
    while (!is_first && *once != BERTHI_ONCE_DONE && !*is_stopped)
        pthread_cond_wait(has_changed, lock);
    is_done = *once == BERTHI_ONCE_DONE;
    pthread_mutex_unlock(lock);
    if (is_first)
        return BERTH_PENDING;
    return is_done ? BERTH_OK : berthi_job_fail_cancelled(error);
}

void
berthi_once_leave(berthi_once *once, pthread_mutex_t *lock, pthread_cond_t *has_changed)
{
    pthread_mutex_lock(lock);
    *once = BERTHI_ONCE_DONE;
    pthread_cond_broadcast(has_changed);
    pthread_mutex_unlock(lock);
}
