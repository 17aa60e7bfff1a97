/* SPDX-License-Identifier: Apache-2.0 */
/* visits.c - contexts with things on devices of another one; see visits.h. */
#include "kernels/visits.h"

#include "kernels/sys.h"

#define NAP_NS UINT64_C(50000)

void
berthi_visits_init(berthi_visits *visits, berth_context *home)
{
    visits->home = home;
    visits->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    visits->first = NULL;
}

/* Of this visitor, NULL: of one that has gone. The host's lock is held. */
static berthi_visit *
find(const berthi_visits *visits, const berth_context *visitor)
{
    berthi_visit *visit = visits->first;

    while (visit != NULL && visit->visitor != visitor)
        visit = visit->behind;
    return visit;
}

/* One of somebody who has gone, or a new one; NULL: no memory. The host's lock is held. */
static berthi_visit *
take(berthi_visits *visits)
{
    berthi_visit *visit = find(visits, NULL);

    if (visit != NULL)
        return visit;
    visit = berthi_memory_zalloc(visits->home, BERTHI_PURPOSE_OBJECT, sizeof *visit);
    if (visit == NULL)
        return NULL;
    visit->lock = &visits->lock;
    visit->behind = visits->first;
    visits->first = visit;
    return visit;
}

berth_status
berthi_visits_add(berthi_visits *visits, berth_context *visitor, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (visitor == visits->home)
        return BERTH_OK;
    pthread_mutex_lock(&visits->lock);
    if (find(visits, visitor) == NULL) {
        berthi_visit *const visit = take(visits);

        if (visit != NULL) {
            visit->visitor = visitor;
            pthread_mutex_lock(&visitor->kept_lock);
            visit->next = visitor->visits;
            visitor->visits = visit;
            pthread_mutex_unlock(&visitor->kept_lock);
        } else {
            status = berthi_fail_memory(error, "using devices of another context");
        }
    }
    pthread_mutex_unlock(&visits->lock);
    return status;
}

/* Out of the visitor's list. The host's lock is held. */
static void
forget(berthi_visit *visit)
{
    berthi_visit **at = &visit->visitor->visits;

    pthread_mutex_lock(&visit->visitor->kept_lock);
    while (*at != visit)
        at = &(*at)->next;
    *at = visit->next;
    pthread_mutex_unlock(&visit->visitor->kept_lock);
}

/* A visitor waits for the lock before it goes: until it is forgotten it is there. */
void
berthi_visits_fini(berthi_visits *visits)
{
    pthread_mutex_lock(&visits->lock);
    while (visits->first != NULL) {
        berthi_visit *const visit = visits->first;

        visits->first = visit->behind;
        if (visit->visitor != NULL) {
            berthi_context_sweep_all(visit->visitor);
            forget(visit);
        }
        berthi_memory_free(visits->home, BERTHI_PURPOSE_OBJECT, visit, sizeof *visit);
    }
    pthread_mutex_unlock(&visits->lock);
    pthread_mutex_destroy(&visits->lock);
}

/* A host that has its lock may be about to forget us, which takes ours: ours is not kept. */
void
berthi_visits_leave(berth_context *visitor)
{
    pthread_mutex_lock(&visitor->kept_lock);
    while (visitor->visits != NULL) {
        berthi_visit *const visit = visitor->visits;

        if (pthread_mutex_trylock(visit->lock) == 0) {
            visitor->visits = visit->next;
            visit->visitor = NULL;
            pthread_mutex_unlock(visit->lock);
        } else {
            pthread_mutex_unlock(&visitor->kept_lock);
            berthi_sys_sleep(NAP_NS);
            pthread_mutex_lock(&visitor->kept_lock);
        }
    }
    pthread_mutex_unlock(&visitor->kept_lock);
}
