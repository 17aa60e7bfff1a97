/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visits.h - contexts that have things on what another context owns: on its devices.
 *
 * What hangs on a device is kept by the context of what was loaded there (memory.h), and uses
 * the device until it is given back. So devices that go ask every context that has visited them
 * to give back what it keeps, not only their own. Each side may go first, on any thread, also
 * while the other one does: a visit is memory of the host, and what it says of the visitor is
 * read and changed with the host's lock.
 */
#ifndef BERTH_KERNELS_VISITS_H
#define BERTH_KERNELS_VISITS_H

#include <pthread.h>

#include "kernels/memory.h"

struct berthi_visit {
    berthi_visit *next;      /* of the visitor's; with its kept_lock */
    berthi_visit *behind;    /* of the host's; with the host's lock, and: */
    berth_context *visitor;  /* NULL: it has gone */
    pthread_mutex_t *lock;   /* the host's */
};

/* Those of a host. */
typedef struct berthi_visits {
    berth_context *home; /* whose memory visits are */
    pthread_mutex_t lock;
    berthi_visit *first;
} berthi_visits;

void berthi_visits_init(berthi_visits *visits, berth_context *home);
/* From now on. Any thread; nothing where it is the host's own, or has come before. */
berth_status berthi_visits_add(berthi_visits *visits, berth_context *visitor,
                               berth_error *error);
/* The host goes: what its visitors keep is asked once more whether it can be given back. */
void berthi_visits_fini(berthi_visits *visits);
/* A visitor goes: afterwards no host asks it any more. */
void berthi_visits_leave(berth_context *visitor);

#endif
