/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_state.h - what the parts of leases share: units, lines, slots, the feeder.
 *
 *   lease_units.c         plan -> units of layers: what is copied into a slot, from where
 *   lease_expert_units.c  the same of experts
 *   lease_disk_units.c    what of both is read from files
 *   lease_slot.c          slots of one device: who waits for them, their users
 *   lease_fill.c          copies into them
 *   lease_line.c          layers take turns: which unit is next
 *   lease.c               acquire, release: whose turn it is
 *   lease_cache.c         experts stay: which one gives its slot away
 *   lease_expert.c        acquire, release and prefetch of experts
 *   lease_expert_ask.c    what is told of experts
 *   lease_held.c          of those that are resident: leases are counted
 *   lease_feed.h          the thread that brings units from the disk, and its parts
 *
 * A line's lock guards all of the line but what never changes. The feeder's own
 * things are its thread's. Nobody holds two locks, and nobody holds one while bytes are
 * copied that are not pinned: that waits for the device, and the feeder takes the locks of
 * all devices in turn.
 */
#ifndef BERTH_LOADER_LEASE_STATE_H
#define BERTH_LOADER_LEASE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/conveyor.h"
#include "loader/lease.h"
#include "loader/stranded.h"

#define BERTHI_NO_UNIT UINT32_MAX
#define BERTHI_LEASE_STREAMS 4u /* that can release one slot and need no waiting for */

/* ------------------------------------------------------------------------- units */

/* A berth in its unit. */
typedef struct berthi_lease_item {
    uint64_t berth;
    uint64_t offset; /* in the slot */
} berthi_lease_item;

/* Bytes of a unit that lie in host memory, in one piece. */
typedef struct berthi_lease_move {
    const uint8_t *from;
    uint64_t offset; /* in the slot */
    uint64_t bytes;
    bool is_pinned;
} berthi_lease_move;

typedef struct berthi_lease_unit {
    uint32_t layer;
    uint32_t expert;     /* of the layer; BERTHI_NO_EXPERT: the layer's own */
    uint32_t line;
    uint32_t share;      /* of the line's, of an expert: its layer's */
    uint32_t item_count;
    uint32_t move_count;
    const berthi_lease_item *items; /* by berth */
    const berthi_lease_move *moves;
    uint64_t first_chunk; /* of what comes from the disk */
    uint32_t chunk_count;
    uint64_t bytes;
} berthi_lease_unit;

/* An expert of a layer. */
typedef struct berthi_lease_expert {
    uint32_t number;
    uint32_t unit; /* NO_UNIT: all of it is resident */
    uint32_t held; /* resident: leases; held_lock */
    uint32_t mark; /* while a list of experts is looked at; the same */
} berthi_lease_expert;

/* A layer's experts, by number. */
typedef struct berthi_lease_experts {
    berthi_lease_expert *experts;
    uint32_t count;
    uint32_t line; /* of those that have units */
} berthi_lease_experts;

/* ------------------------------------------------------------------------- lines */

typedef enum berthi_lease_fill {
    BERTHI_LEASE_EMPTY,   /* its next copies wait for `released` */
    BERTHI_LEASE_TAKEN,   /* for an expert; whoever wants it is the one that fills it */
    BERTHI_LEASE_FILLING, /* somebody copies into it, or the feeder is at it */
    BERTHI_LEASE_FULL,    /* its copies have been asked for, `full` recorded */
    BERTHI_LEASE_FAILED   /* they could not; until the last waiter has seen it */
} berthi_lease_fill;

typedef struct berthi_lease_slot berthi_lease_slot;

struct berthi_lease_slot {
    uint8_t *memory;
    berthi_lease_fill fill;
    uint32_t unit;      /* NO_UNIT: EMPTY */
    uint32_t leases;
    uint32_t waiters;   /* for FULL; they are going to lease it */
    uint64_t emptied;   /* the one that was emptied first is filled first */
    berthi_event *full;
    /* The newest release of each stream since the last fill. */
    uint32_t released_count;
    berthi_stream *streams[BERTHI_LEASE_STREAMS];
    berthi_event *released[BERTHI_LEASE_STREAMS];
    /* Where the slot is one of a cache. */
    struct berthi_lease_share *share; /* NULL: EMPTY */
    struct berthi_lease_list *list;   /* that it is in, */
    berthi_lease_slot *older;         /* between these */
    berthi_lease_slot *newer;
    bool is_used;         /* leased, waited for or written to, as far as its share knows */
    bool is_protected;    /* used again since it was filled */
    bool is_ahead;        /* filled before it was asked for, and not used yet */
    uint32_t mark;        /* of the call under way */
    /* FILLING */
    bool is_written;      /* without the lock: it stays what it is */
    uint64_t feed_number; /* each has another */
    bool is_unwanted;     /* given up while it was written to */
    uint32_t feed_left;   /* chunks that have not been copied */
    berthi_lease_slot *next_feed;
};

/* Slots of a cache, the one used least recently first. */
typedef struct berthi_lease_list {
    berthi_lease_slot *oldest;
    berthi_lease_slot *newest;
    uint32_t count;
} berthi_lease_list;

/* Those slots of a cache that hold experts of one layer. */
typedef struct berthi_lease_share {
    berthi_lease_list once;
    berthi_lease_list again; /* protected ones */
    uint32_t used;           /* of both, leased or waited for */
    uint64_t acquired;       /* experts that are not resident */
    uint64_t hits;           /* of them, those that lay in a slot */
} berthi_lease_share;

typedef struct berthi_lease_line {
    berthi_device *device;
    uint32_t tier;
    uint32_t first_unit; /* its units lie together, in the order of the layers */
    uint32_t unit_count;
    uint32_t slot_count;
    uint64_t slots_at;   /* in the tier's slab */
    uint64_t slot_bytes;
    bool has_disk;       /* some of its units do not lie in memory */
    bool is_cache;       /* its units are experts: they come when they are asked for */
    uint32_t share_count; /* of a cache: layers */
    bool has_lock;

    pthread_mutex_t lock;   /* all below */
    pthread_cond_t changed; /* what is FILLING is no longer, or there is room for experts */
    berthi_stream *stream;  /* of copies */
    berthi_event *spare;    /* of a release that found no place in `released` */
    berthi_lease_slot *slots;
    uint64_t emptied;       /* slots, so far */
    uint32_t cursor;        /* the unit that is filled next */
    uint32_t expected;      /* the unit that is acquired next, if order is kept */
    bool is_halted;         /* a fill failed: the next one is somebody's acquire */
    berthi_lease_slot *feeding; /* FILLING ones that the feeder is at, in their order */
    uint64_t feed_count;    /* so far */
    bool is_moved;          /* the feeder has not read what is wanted */
    uint32_t copying;       /* chunks that the feeder has asked copies of, and `written` */
    uint64_t passed_ns;     /* when those of one had passed, or the first were asked for */
    berth_status status;    /* why a fill failed */
    berth_error error;
    uint32_t written;       /* slots that are written to without the lock */
    berthi_stream_end end;  /* of `stream`, once nobody asks it for more */
    berth_lease_summary summary;
    /* Where the line has a cache. */
    berthi_lease_share *shares;
    berthi_lease_slot **slot_of; /* by unit, from the first one on; NULL: in none */
    berthi_lease_list empty;
    uint32_t used;               /* slots */
} berthi_lease_line;

/* ---------------------------------------------------------------------- together */

typedef struct berthi_feeder berthi_feeder;

struct berthi_leases {
    berth_context *context;
    berth_model *model;
    berthi_arena arena;         /* tables */
    uint32_t *unit_of;          /* of layers; NO_UNIT: all of it is resident */
    berthi_lease_unit *units;   /* by line, then layer */
    uint32_t unit_count;
    berthi_lease_experts *experts; /* of layers */
    bool has_experts;           /* some layer has */
    pthread_mutex_t held_lock;
    berthi_lease_line *lines;
    uint32_t line_count;
    berthi_chunks chunks;       /* of all units of the disk: of layers, in their order; */
    uint64_t layer_chunks;      /* so many; behind them those of experts */
    uint32_t *unit_of_chunk;
    berthi_file *files;         /* by shard; what is not read is not open */
    uint32_t file_count;
    berthi_feeder *feeder;      /* NULL: nothing comes from the disk */
    bool is_late;               /* its copies have been waited for, in vain */
    _Atomic uint64_t read_ns;   /* when a read came back, or the first was asked for, or a
                                   copy that is not pinned had passed */
    _Atomic bool is_behind;     /* the feeder waits for a device, or has since it last saw
                                   which copies have passed */
};

/* Units, lines without their device's things, chunks of `chunk_bytes` at most. */
berth_status berthi_lease_units_list(berthi_leases *leases, uint64_t chunk_bytes,
                                     berth_error *error);
/* The layer's expert of this number; NULL: it has none. */
berthi_lease_expert *berthi_lease_expert_of(const berthi_leases *leases, uint32_t layer,
                                            uint32_t number);
/*
 * Leases of those experts of a list that are resident; all numbers are the layer's. One that
 * has none to release: its place in the list, or `count`.
 */
void berthi_lease_hold(berthi_leases *leases, const berthi_expert_list *list);
void berthi_lease_let_go(berthi_leases *leases, const berthi_expert_list *list);
uint32_t berthi_lease_find_free(berthi_leases *leases, const berthi_expert_list *list);
/* BERTH_OK, or LEASED. */
berth_status berthi_lease_check_held(berthi_leases *leases, berth_error *error);
/* Where a berth lies in the slot of its unit; UINT64_MAX: it is not in that unit. */
uint64_t berthi_lease_offset_of(const berthi_lease_unit *unit, uint64_t berth);
/* NO_UNIT where the plan has no unit for the layer. */
const berthi_lease_unit *berthi_lease_unit_of(const berthi_leases *leases,
                                              uint32_t layer);

/* What failed for which layer. */
berthi_about berthi_lease_about(const berthi_leases *leases,
                                const berthi_lease_unit *unit);
berth_status berthi_lease_fail_time(const berthi_leases *leases,
                                    const berthi_lease_unit *unit, berth_error *error);
/* From now on, the longest that is waited for something that does not move. */
uint64_t berthi_lease_deadline(const berthi_leases *leases);
/* The same for what others bring: the feeder is the first to say that a read hangs. */
uint64_t berthi_lease_feed_deadline(const berthi_leases *leases);
/* What others wait for did then: they wait on. */
void berthi_lease_note_moved(berthi_leases *leases, uint64_t moved_ns);
/*
 * That has passed: true, and later, where reads have come back since, or, while copies of the
 * line are seen, one of those has passed, or who waits was away. With the line's lock.
 */
bool berthi_lease_put_off(const berthi_leases *leases, const berthi_lease_line *line,
                          uint64_t *deadline_ns);

/* Slots and what their device makes for them. */
berth_status berthi_lease_line_init(berthi_leases *leases, berthi_lease_line *line,
                                    berth_error *error);
/* Waits for its copies: true where they hang. The feeder has ended, nobody calls. */
bool berthi_lease_line_hangs(berthi_lease_line *line, uint64_t deadline_ns);
/* Waits for its copies. A line that is zero is allowed. */
void berthi_lease_line_fini(berthi_leases *leases, berthi_lease_line *line);

/* ---- with the line's lock */

/*
 * Waits until its slots are no longer used by streams that have released them, as long as
 * that moves, and lets the lock go meanwhile: nobody acquires or releases, nothing is fed.
 */
berth_status berthi_lease_line_settle(berthi_leases *leases, berthi_lease_line *line,
                                      const berth_job *job, berth_error *error);
/* What the line is asked to copy from now on comes behind the slot's last users. */
berth_status berthi_lease_follow_users(const berthi_lease_line *line,
                                       const berthi_lease_slot *slot, berth_error *error);
/* The slot of a unit; NULL: it has none. */
berthi_lease_slot *berthi_lease_find_slot(berthi_lease_line *line, uint32_t unit);
/*
 * Asks for the copies of a unit into a slot, behind the slot's last users; what comes
 * from the disk is left to the feeder. Where bytes are not pinned the lock is let go
 * meanwhile, and the slot may have been given up when that is over. On failure it is
 * empty, or FAILED where others wait for it.
 */
berth_status berthi_lease_begin_fill(berthi_leases *leases, berthi_lease_line *line,
                                     berthi_lease_slot *slot, uint32_t unit,
                                     berth_error *error);
/* Nothing of it lies in memory that its device has not pinned. */
bool berthi_lease_is_pinned(const berthi_lease_unit *unit);
/* Bytes are copied into the slot without the lock, which is let go; then it is taken again. */
void berthi_lease_begin_write(berthi_lease_line *line, berthi_lease_slot *slot);
void berthi_lease_end_write(berthi_leases *leases, berthi_lease_line *line,
                            berthi_lease_slot *slot);
/* What it is filled with does not come. Whoever waits for the unit is told. */
void berthi_lease_fail_slot(berthi_lease_line *line, berthi_lease_slot *slot,
                            berth_status status, const berth_error *error);
/* The same of all that the feeder is at, but what is written to. True: something was. */
bool berthi_lease_fail_feeding(berthi_lease_line *line, berth_status status,
                               const berth_error *error);
/* One waiter fewer. The last one of a slot that FAILED leaves it empty. */
void berthi_lease_let_go_of(berthi_lease_line *line, berthi_lease_slot *slot);
/* Waits, as long as it is FILLING, until others have brought it, or could not. */
berth_status berthi_lease_await_feeder(berthi_leases *leases, berthi_lease_line *line,
                                       berthi_lease_slot *slot, uint64_t deadline_ns,
                                       berth_error *error);
/*
 * Notes where the stream leaves the slot. A stream too many is waited for by all later
 * copies, not only by those into this slot.
 */
berth_status berthi_lease_record_release(berthi_lease_line *line, berthi_lease_slot *slot,
                                         berthi_stream *stream, berth_error *error);
/* The feeder is at it no longer. */
void berthi_lease_end_feed(berthi_lease_line *line, berthi_lease_slot *slot);
/* The one behind it, endlessly. */
uint32_t berthi_lease_unit_after(const berthi_lease_line *line, uint32_t unit);
/*
 * Fills empty slots in the order of units, as far as it goes without waiting for others.
 * `wanted` (NO_UNIT: none) is given up for nobody before it ends.
 */
berth_status berthi_lease_pump(berthi_leases *leases, berthi_lease_line *line,
                               uint32_t wanted, berth_error *error);
/*
 * The same for the feeder, which waits for no device: up to a unit whose copies are not pinned.
 * That is left to who waits for it, or to the next call that fills slots.
 */
void berthi_lease_pump_pinned(berthi_leases *leases, berthi_lease_line *line);
/* What was in it is gone. */
void berthi_lease_empty(berthi_lease_line *line, berthi_lease_slot *slot);
/*
 * The line goes on behind `unit`: what is not leased and does not follow it closely is
 * given up.
 */
void berthi_lease_move_to(berthi_leases *leases, berthi_lease_line *line, uint32_t unit);
/* One copy into a slot, in pieces. Not only with the lock: on a slot that is written to. */
berth_status berthi_lease_copy(const berthi_lease_line *line, const berthi_copy *copy,
                               berth_error *error);

/* ---- of caches, with the line's lock */

/* Tables beside the slots, all of them empty; false: no memory. */
bool berthi_lease_cache_init(berthi_leases *leases, berthi_lease_line *line);
/* The slot of a unit, whatever is in it by now; NULL: it has none. */
berthi_lease_slot *berthi_lease_cache_find(const berthi_lease_line *line, uint32_t unit);
/* That can be taken for another expert. */
uint32_t berthi_lease_cache_room(const berthi_lease_line *line);
/* NULL: false. */
static inline bool
berthi_lease_is_taken(const berthi_lease_slot *slot)
{
    return slot != NULL && slot->fill == BERTHI_LEASE_TAKEN;
}

/*
 * As berthi_lease_begin_fill(), of the slot that was taken for the unit, unless others have
 * filled it. Behind copies that wait for the device nothing would end another one: so those
 * are waited for first, with the lock let go, and not for ever.
 */
berth_status berthi_lease_fill_taken(berthi_leases *leases, berthi_lease_line *line,
                                     uint32_t unit, berth_error *error);
/* A slot's leases or waiters are others than before. Who waits for room is told of it. */
void berthi_lease_cache_note_use(berthi_lease_line *line, berthi_lease_slot *slot);
/* What is in the slot is used again: it stays for longer. */
void berthi_lease_cache_touch(berthi_lease_slot *slot);
/*
 * An empty slot for the unit: that of the expert which is missed least, of those that
 * nobody uses; NULL: all are used.
 */
berthi_lease_slot *berthi_lease_cache_take(berthi_lease_line *line,
                                           const berthi_lease_unit *unit);
/* The unit is in the slot that was taken for it; nobody uses it yet. */
void berthi_lease_cache_put(berthi_lease_line *line, berthi_lease_slot *slot,
                            const berthi_lease_unit *unit);
/* It no longer is: part of berthi_lease_empty(). */
void berthi_lease_cache_drop(berthi_lease_line *line, berthi_lease_slot *slot);

/* ------------------------------------------------------------------------ feeder */

berth_status berthi_feeder_create(berthi_leases *leases,
                                  const berthi_lease_options *options,
                                  berthi_feeder **out, berth_error *error);
/*
 * Ends its thread; waits for reads unless they hang. Only what copies may still read is
 * left of it. NULL is allowed.
 */
void berthi_feeder_stop(berthi_feeder *feeder);
/* Stopped, and the streams of all lines have ended: nothing copies from its ring. */
void berthi_feeder_destroy(berthi_feeder *feeder);
/* A line wants something else. Any thread; NULL is allowed. */
void berthi_feeder_wake(berthi_feeder *feeder);
/* Bytes of a buffer of the feeder's, for a ring of so many. */
uint64_t berthi_feeder_chunk_bytes(uint64_t ring_bytes);

/* ------------------------------------------------------------------ without parts */

/* Test builds leave out one part of the protocol, to see that tests notice. */
#ifdef BERTH_TESTING
#define BERTHI_LEASE_NO_PREFETCH 1u
#define BERTHI_LEASE_NO_FULL_WAIT 2u
#define BERTHI_LEASE_NO_FREE_WAIT 4u
#define BERTHI_LEASE_NO_LAST_SLOT 8u
#define BERTHI_LEASE_NO_SHARES 16u
#define BERTHI_LEASE_NO_HASTE 32u
#define BERTHI_LEASE_NO_COURIERS 64u
extern _Atomic uint32_t berthi_lease_without;
#define BERTHI_LEASE_IS_WITHOUT(part) ((atomic_load(&berthi_lease_without) & (part)) != 0)
#else
#define BERTHI_LEASE_IS_WITHOUT(part) false
#endif

#endif
