/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fault_places.c - a shard that cannot be read, is cut, replaced or written to, at 64
 * places of a load and of a streamed pass: the status names it, everything is given back,
 * the model that was there before is as it was, and the next attempt succeeds. The same
 * where the process may suddenly have no more memory than it has.
 */
#define _DEFAULT_SOURCE

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/sys.h"
#include "loader/reader.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/leased.h"
#include "tests/limited.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define PLACES 64u
#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define BLOCK_BYTES (16 * KIB) /* of a read: so there are more of them than places */

/* ------------------------------------------------------------------------- damage */

typedef enum damage {
    DAMAGE_UNREADABLE,
    DAMAGE_CUT,
    DAMAGE_REPLACED,
    DAMAGE_TOUCHED,
    DAMAGE_COUNT,  /* none */
    DAMAGE_LIMIT,  /* no memory any more */
    DAMAGE_NO_RING /* no memory for a ring from the moment on at which files are opened */
} damage;

/* What the reader does to a file when it is asked for the read with number `at`. */
typedef struct trap {
    damage kind;
    uint64_t at;
    const char *folder; /* of the model, which is one file */
    _Atomic bool is_sprung;
} trap;

static trap set_trap;
static berthi_reader_table trapped; /* haul_reader, and the trap */

/* Asked for thousands of times: fixture_find() would start programs. */
static const char *
shard_of(const char *folder)
{
    const char *const path = fixture_format("%s/model.safetensors", folder);

    return access(path, F_OK) == 0
               ? path
               : fixture_format("%s/model-00001-of-00001.safetensors", folder);
}

static void
spring(uint64_t offset)
{
    const char *const shard = shard_of(set_trap.folder);
    const char *const other = fixture_format("%s.new", shard);

    switch (set_trap.kind) {
    case DAMAGE_CUT: fixture_truncate(shard, fixture_size(shard) - offset); break;
    case DAMAGE_REPLACED:
        fixture_copy(shard, other);
        CHECK_EQ(rename(other, shard), 0);
        break;
    case DAMAGE_TOUCHED: fixture_flip(shard, offset, 1); break;
    case DAMAGE_LIMIT: limited_begin(0); break;
    default: break;
    }
    atomic_store(&set_trap.is_sprung, true);
}

static void
submit_over_trap(berthi_reader *reader, berthi_read *read)
{
    if (atomic_load(&haul_reads) == set_trap.at)
        spring(read->offset);
    haul_reader.submit(reader, read);
}

static berth_status
open_over_trap(berth_context *context, const berthi_reader_options *options,
               berthi_reader **out_reader, berth_error *error)
{
    const berth_status status = haul_reader.open(context, options, out_reader, error);

    if (status == BERTH_OK)
        (*out_reader)->table = &trapped;
    if (set_trap.kind == DAMAGE_NO_RING)
        limited_begin(MIB); /* a thread has room, a buffer has not */
    return status;
}

/* All reads from now on; those of number `at` and later fail where that is the damage. */
static void
arm(damage kind, uint64_t at, uint64_t block_bytes, const char *folder)
{
    set_trap.kind = kind;
    set_trap.at = at;
    set_trap.folder = folder;
    atomic_store(&set_trap.is_sprung, false);
    haul_set((haul_tricks){.buffered_block = block_bytes,
                           .failure = kind == DAMAGE_UNREADABLE ? EIO : 0,
                           .failure_first = at,
                           .failure_count = UINT64_MAX});
    atomic_store(&haul_reads, 0);
    trapped = haul_reader;
    trapped.open = open_over_trap;
    trapped.submit = submit_over_trap;
    atomic_store(&berthi_reader_instead, &trapped);
}

static void
disarm(void)
{
    haul_set((haul_tricks){.failure = 0});
    atomic_store(&berthi_reader_instead, NULL);
}

/* As the damage is told: file, position where it has one. */
static void
check_error(damage kind, const berth_error *error, const char *folder)
{
    CHECK_EQ(error->status, BERTH_EIO);
    CHECK_STR(error->file, shard_of(folder));
    if (kind == DAMAGE_UNREADABLE) {
        CHECK_EQ(error->reason, BERTH_REASON_IO);
        CHECK_EQ(error->has & BERTH_HAS_POSITION, BERTH_HAS_POSITION);
        CHECK_LT(error->position, fixture_size(error->file));
        CHECK_EQ(error->system_error, EIO);
    } else if (kind == DAMAGE_CUT) {
        CHECK(error->reason == BERTH_REASON_TRUNCATED
              || error->reason == BERTH_REASON_CHANGED);
    } else {
        CHECK_EQ(error->reason, BERTH_REASON_CHANGED);
    }
}

/* ------------------------------------------------------------------------ bystander */

/* A model that is none of it. */
typedef struct bystander {
    loaded l;
    const char *folder;
} bystander;

static bool
has_bystander(bystander *b)
{
    berth_plan_options options = loaded_options("cpu=64MiB");

    b->folder = loaded_llama(1, "BF16", 1);
    loaded_begin(&b->l, b->folder, &options, NULL);
    loaded_load(&b->l);
    return CHECK_EQ(b->l.status, BERTH_OK);
}

static void
check_bystander(bystander *b)
{
    loaded_check(&b->l, b->folder);
}

/* --------------------------------------------------------------------------- loads */

typedef struct kind {
    const char *memory;
    const char *words;
    int32_t type;
} kind;

static const kind kinds[] = {
    {"cpu=64MiB", NULL, BERTH_ENCODING_NATIVE},
    {"cpu=64MiB", NULL, BERTH_ENCODING_NF4},
    {"0=64MiB,cpu=64MiB", "sim:64MiB", BERTH_ENCODING_NATIVE},
    {"0=64MiB,cpu=64MiB", "sim:64MiB", BERTH_ENCODING_INT8},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static void
begin(loaded *l, const kind *k, const char *folder)
{
    berth_plan_options options = loaded_options(k->memory);

    options.type = k->type;
    loaded_begin(l, folder, &options, k->words);
    l->options.io = BERTH_IO_BUFFERED;
}

static uint64_t
free_bytes(const loaded *l)
{
    berth_device device = {.free_bytes = 0};

    if (l->devices != NULL)
        CHECK_EQ(berth_devices_get(l->devices, 0, &device), BERTH_OK);
    return device.free_bytes;
}

/* How many reads a load makes. */
static uint64_t
count_reads(const kind *k, const char *folder)
{
    loaded l;

    arm(DAMAGE_COUNT, UINT64_MAX, BLOCK_BYTES, folder);
    begin(&l, k, folder);
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_OK);
    loaded_end(&l);
    return atomic_load(&haul_reads);
}

static void
check_load(const kind *k, damage what, uint64_t at, const char *folder)
{
    uint64_t before;
    uint64_t device_before;
    loaded l;

    begin(&l, k, folder);
    before = loaded_bytes(l.p.context);
    device_before = free_bytes(&l);
    (void)usleep(what == DAMAGE_UNREADABLE ? 0 : 5000); /* the clock of files is coarse */
    arm(what, at, BLOCK_BYTES, folder);
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_EIO))
        T_NOTE("damage %d at read %llu", (int)what, (unsigned long long)at);
    CHECK(atomic_load(&set_trap.is_sprung));
    check_error(what, &l.error, folder);
    CHECK_LE(loaded_bytes(l.p.context), before + (k->words != NULL ? 4 * KIB : 0));
    CHECK_EQ(free_bytes(&l), device_before);
    disarm();
    if (what == DAMAGE_UNREADABLE && at % 8 == 0) {
        loaded_load(&l); /* the disk has recovered */
        CHECK_EQ(l.status, BERTH_OK);
        if (k->type == BERTH_ENCODING_NATIVE && l.status == BERTH_OK)
            loaded_check(&l, folder);
    }
    loaded_end(&l);
}

static void
test_loads_that_cannot_read(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);
    bystander b;

    T_REQUIRE(has_bystander(&b));
    for (uint32_t k = 0; k < KINDS; k++) {
        const uint64_t reads = count_reads(&kinds[k], folder);

        T_REQUIRE(CHECK_GE(reads, PLACES));
        for (uint32_t i = 0; i < PLACES; i++)
            check_load(&kinds[k], DAMAGE_UNREADABLE, reads * i / PLACES, folder);
    }
    check_bystander(&b);
    loaded_end(&b.l);
}

/* Each damage to a new copy; what is left of it is mended by the next one. */
static void
test_loads_of_files_that_change(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);
    const char *const whole = fixture_format("%s/whole", fixture_folder());
    const uint64_t reads = count_reads(&kinds[0], folder);
    bystander b;

    T_REQUIRE(has_bystander(&b));
    fixture_copy(shard_of(folder), whole);
    for (uint32_t i = 0; i < PLACES; i++)
        for (int what = DAMAGE_CUT; what < DAMAGE_COUNT; what++) {
            check_load(&kinds[i % KINDS], (damage)what, reads * i / PLACES, folder);
            fixture_copy(whole, shard_of(folder));
        }
    check_bystander(&b);
    CHECK_EQ(count_reads(&kinds[0], folder), reads);
    disarm();
    loaded_end(&b.l);
}

/* When the limit comes: with the read of this number, or before the load, with room left. */
typedef struct moment {
    bool is_before;
    uint64_t at;
    uint64_t room;
} moment;

static void
load_under_limit(loaded *l, const moment *m, const char *folder)
{
    arm(m->is_before ? DAMAGE_COUNT : DAMAGE_LIMIT, m->at, 0, folder);
    if (m->is_before)
        limited_begin(m->room);
    loaded_load(l);
    limited_end();
    disarm();
}

/* The load goes on with what it has, or gives it back. True: it ended. */
static bool
is_ended_by_limit(const kind *k, const moment *m, const char *folder)
{
    uint64_t before;
    uint64_t device_before;
    bool is_ended;
    loaded l;

    begin(&l, k, folder);
    before = loaded_bytes(l.p.context);
    device_before = free_bytes(&l);
    load_under_limit(&l, m, folder);
    is_ended = l.status != BERTH_OK;
    if (is_ended) {
        CHECK_EQ(l.status, BERTH_ENOMEM);
        CHECK_EQ(l.error.reason, BERTH_REASON_NO_MEMORY);
        CHECK_LE(loaded_bytes(l.p.context), before + (k->words != NULL ? 4 * KIB : 0));
        CHECK_EQ(free_bytes(&l), device_before);
        loaded_load(&l);
    }
    if (CHECK_EQ(l.status, BERTH_OK) && k->type == BERTH_ENCODING_NATIVE)
        loaded_check(&l, folder);
    loaded_end(&l);
    return is_ended;
}

/*
 * A ring that cannot grow is a smaller ring: the limit that comes under way ends nothing.
 * The one that comes before ends all loads that have not enough room.
 */
static void
test_limits_that_are_lowered(void)
{
    const char *const folder = loaded_large(2, 1);
    bystander b;

    if (T_IS_SANITIZED)
        T_SKIP("sanitizers need memory of their own");
    T_REQUIRE(has_bystander(&b));
    for (uint32_t k = 0; k < KINDS; k++) {
        uint32_t ended[2] = {0, 0};

        for (uint32_t i = 0; i < 8; i++) {
            const moment reading = {.at = i};
            const moment before = {.is_before = true, .room = i * i * 4 * MIB};

            ended[0] += is_ended_by_limit(&kinds[k], &reading, folder);
            ended[1] += is_ended_by_limit(&kinds[k], &before, folder);
        }
        T_NOTE("of 8 loads each, %u ended while reading, %u before", ended[0], ended[1]);
        CHECK_GT(ended[1], 0);
        CHECK_LT(ended[1], 8);
        CHECK_LT(ended[0], 8);
    }
    check_bystander(&b);
    loaded_end(&b.l);
}

/* -------------------------------------------------------------------------- passes */

/* To one device, to two that have a half each, to slots in host memory. */
static const leased_options streamed[] = {
    {.memory = "0=64MiB,cpu=64MiB,disk=inf",
     .pins = {"model.layers=disk"},
     .slots = 2,
     .devices = "sim:64MiB"},
    {.memory = "0=64MiB,1=64MiB,cpu=64MiB,disk=inf",
     .pins = {"model.layers.0.input_layernorm=cuda:0",
              "model.layers.1.input_layernorm=cuda:0",
              "model.layers.2.input_layernorm=cuda:1",
              "model.layers.3.input_layernorm=cuda:1", "model.layers=disk"},
     .slots = 2,
     .devices = "sim:64MiB*2"},
    {.memory = "cpu=64MiB,disk=inf", .pins = {"model.layers=disk"}, .slots = 2},
};
#define STREAMED (sizeof streamed / sizeof *streamed)

/* Uses layers in order until one fails. */
static berth_status
use_layers(leased *l, uint32_t count, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = leased_use(l, i % leased_layers(l), NULL, 0, error);
    return status;
}

static bool
has_started(leased *l, const leased_options *shape, uint64_t ring_bytes,
            const char *folder)
{
    berth_error error;

    leased_begin(l, folder, shape);
    /* As if it were kept: then a buffer is large, whatever layers need. */
    l->planned.context->spare_limit = set_trap.kind == DAMAGE_NO_RING ? 1 : 0;
    l->options = (berthi_lease_options){.ring_bytes = ring_bytes, .io = BERTH_IO_BUFFERED};
    return CHECK_EQ(leased_start(l, &error), BERTH_OK);
}

/* What was on its way when something failed comes first. */
static void
check_recovery(leased *l)
{
    berth_error error;

    for (uint32_t i = 0; i < 400 && use_layers(l, 2 * leased_layers(l), &error); i++)
        (void)usleep(1000);
    CHECK_EQ(use_layers(l, 2 * leased_layers(l), &error), BERTH_OK);
    CHECK_EQ(l->wrong, 0);
}

static void
check_passes(const leased_options *shape, damage what, uint64_t at, const char *folder)
{
    berth_error error;
    leased l;

    arm(what, at, 0, folder); /* chunks are small here */
    T_REQUIRE(has_started(&l, shape, 64 * KIB, folder));
    CHECK_EQ(use_layers(&l, 400, &error), BERTH_EIO);
    CHECK(atomic_load(&set_trap.is_sprung));
    check_error(what, &error, folder);
    CHECK_EQ(l.wrong, 0);
    disarm();
    if (what == DAMAGE_UNREADABLE)
        check_recovery(&l);
    leased_stop(&l);
    leased_end(&l);
}

static void
check_all_passes(const leased_options *shape)
{
    const char *const folder = leased_llama(4, 1);
    const char *const whole = fixture_format("%s/whole", fixture_folder());
    bystander b;

    T_REQUIRE(has_bystander(&b));
    fixture_copy(shard_of(folder), whole);
    for (uint32_t i = 0; i < PLACES; i++) {
        check_passes(shape, DAMAGE_UNREADABLE, i, folder);
        for (int what = DAMAGE_CUT; what < DAMAGE_COUNT; what++) {
            (void)usleep(5000); /* the clock of files is coarse */
            check_passes(shape, (damage)what, i, folder);
            fixture_copy(whole, shard_of(folder));
        }
    }
    check_bystander(&b);
    loaded_end(&b.l);
}

static void
test_passes(void)
{
    for (uint32_t i = 0; i < STREAMED; i++)
        check_all_passes(&streamed[i]);
}

/* True: the limit ended the passes; they go on when it is gone. */
static bool
are_ended_by_limit(const leased_options *shape, damage what, uint64_t at,
                   uint64_t ring_bytes, const char *folder)
{
    berth_status status;
    berth_error error;
    leased l;

    arm(what, at, 0, folder);
    if (!has_started(&l, shape, ring_bytes, folder))
        abort();
    status = use_layers(&l, 3 * leased_layers(&l), &error);
    limited_end();
    disarm();
    if (status != BERTH_OK) {
        CHECK_EQ(status, BERTH_ENOMEM);
        CHECK_EQ(error.reason, BERTH_REASON_NO_MEMORY);
        CHECK_CONTAINS(error.message, "staging buffer");
    }
    CHECK_EQ(l.wrong, 0);
    check_recovery(&l);
    leased_stop(&l);
    leased_end(&l);
    return status != BERTH_OK;
}

/*
 * Passes whose ring has a buffer go on with it. Those that do not get the first one end, and
 * go on when there is memory again.
 */
static void
test_limits_that_are_lowered_in_a_pass(void)
{
    const char *const folder = leased_llama(4, 1);
    bystander b;

    if (T_IS_SANITIZED)
        T_SKIP("sanitizers need memory of their own");
    T_REQUIRE(has_bystander(&b));
    for (uint32_t i = 0; i < STREAMED; i++) {
        for (uint32_t at = 0; at < 16; at++)
            CHECK(!are_ended_by_limit(&streamed[i], DAMAGE_LIMIT, at * 4, 64 * KIB, folder));
        for (uint32_t tries = 0; tries < 4; tries++)
            CHECK(are_ended_by_limit(&streamed[i], DAMAGE_NO_RING, 0, 64 * MIB, folder));
    }
    check_bystander(&b);
    loaded_end(&b.l);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_loads_that_cannot_read);
    T_RUN(test_loads_of_files_that_change);
    T_RUN(test_limits_that_are_lowered);
    T_RUN(test_passes);
    T_RUN(test_limits_that_are_lowered_in_a_pass);
    return t_end();
}
