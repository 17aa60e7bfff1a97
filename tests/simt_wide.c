/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simt_wide.c - kernels/simt_wide.h on the machine of simt.h: gates, tiles on their way, products
 * of four warps that are under way.
 *
 * What hardware forbids or leaves open is a complaint, too: a gate that nobody has begun, one that
 * more arrive at or more bytes come to than it counts, a tile at an odd place, products whose
 * operands nobody has announced, warps that multiply different things together, tiles and products
 * that are under way when a lane or its CTA ends, a flag that no earlier CTA has raised.
 */
#include "kernels/simt_wide.h"

#include <string.h>

#include "kernels/core.h"
#include "tests/simt_machine.h"

#define MOST_GATES 64u
#define MOST_TILES 64u    /* on their way */
#define MOST_PRODUCTS 32u /* of a lane that are under way */
#define LINE 128u         /* bytes, of tiles that are turned */
#define EIGHT_LINES (8u * LINE)
#define FOUR_WARPS (SIMT_GROUP / SIMT_WARP)

typedef struct gate {
    uint32_t place;
    uint32_t count;
    uint32_t arrived; /* since it has opened for the last time, as what follows */
    int64_t bytes;    /* that are expected and have not come */
    uint64_t opened;
    simt_told told;
} gate;

typedef struct tile {
    uint32_t to;
    const berthi_tiles *of;
    uint32_t gate;
    uint32_t column;
    uint32_t row;
} tile;

typedef struct product {
    float *sums;
    const uint32_t *rows;
    uint32_t place;
    uint32_t count;
    uint32_t part; /* of how many were ended before it */
    bool is_bf16;
    bool adds;
} product;

typedef struct wide_lane {
    uint64_t barriers;
    uint32_t gate; /* that it waits for */
    uint32_t turn;
    bool has_begun; /* simt_begin_multiplying() since the last end */
    uint32_t ended;
    uint32_t product_count;
    uint64_t multiplied; /* what it has multiplied with, as one number */
    product products[MOST_PRODUCTS];
} wide_lane;

static struct {
    wide_lane lanes[SIMT_MOST_THREADS];
    simt_meeting groups[SIMT_MOST_THREADS / SIMT_GROUP];
    uint32_t gate_count;
    gate gates[MOST_GATES];
    uint32_t tile_count;
    tile tiles[MOST_TILES];
} wide;

static wide_lane *
own_lane(void)
{
    return &wide.lanes[simt_current()];
}

void
simt_wide_begin_cta(void)
{
    memset(wide.groups, 0, sizeof wide.groups);
    wide.gate_count = 0;
    wide.tile_count = 0;
}

void
simt_wide_begin_lane(uint32_t number)
{
    memset(&wide.lanes[number], 0, sizeof wide.lanes[number]);
}

/* -------------------------------------------------------------------------- memory */

uint32_t
berthi_simt_place(const void *memory)
{
    size_t bytes;
    const uint8_t *const shared = simt_shared(&bytes);

    return (uint32_t)((const uint8_t *)memory - shared);
}

void *
berthi_simt_at(uint32_t place, size_t bytes)
{
    size_t all;
    uint8_t *const shared = simt_shared(&all);

    if (place % (bytes < 16 ? bytes : 16) != 0)
        simt_complain("an access at an odd address");
    if (place > all || bytes > all - place) {
        simt_complain("an access beyond shared memory");
        return shared;
    }
    return shared + place;
}

/* All of the warp's places, then its words: the columns of four matrices. */
void
berthi_simt_store_turned(uint32_t place, const uint32_t *words)
{
    const uint32_t lane = simt_current() % SIMT_WARP;

    for (uint32_t matrix = 0; matrix < 4; matrix++)
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t column = 2 * (lane % 4) + k;
            const uint16_t number = (uint16_t)(words[matrix] >> 16 * k);
            const uint32_t its = berthi_simt_shuffle(place, 8 * matrix + column);
            uint8_t *const to = berthi_simt_at(its, 16);

            memcpy(to + lane / 4 * sizeof number, &number, sizeof number);
        }
    simt_meet_warp();
}

void
berthi_simt_group_barrier(uint32_t group)
{
    if (simt_current() / SIMT_GROUP != group)
        simt_complain("a barrier of four warps that the lane is not of");
    simt_meet(&wide.groups[simt_current() / SIMT_GROUP], SIMT_GROUP, ++own_lane()->barriers,
              WAITS_AT_GROUP);
}

/* --------------------------------------------------------------------------- gates */

/* NULL: a complaint. */
static gate *
find_gate(uint32_t place)
{
    for (uint32_t i = 0; i < wide.gate_count; i++)
        if (wide.gates[i].place == place)
            return &wide.gates[i];
    return NULL;
}

static gate *
need_gate(uint32_t place)
{
    gate *const g = find_gate(place);

    if (g == NULL)
        simt_complain("a gate that nobody has begun");
    return g;
}

void
berthi_simt_gate_begin(uint32_t place, uint32_t count)
{
    (void)berthi_simt_at(place, 8);
    if (find_gate(place) != NULL)
        simt_complain("a gate that has begun before");
    else if (wide.gate_count == MOST_GATES)
        simt_complain("more gates than this machine keeps");
    else
        wide.gates[wide.gate_count++] = (gate){ .place = place, .count = count };
}

static void
open_when_all_are_there(gate *g)
{
    if (g->arrived > g->count)
        simt_complain("more arrive at a gate than it counts");
    if (g->bytes < 0)
        simt_complain("more bytes come to a gate than it expects");
    if (g->arrived < g->count || g->bytes != 0)
        return;
    g->arrived = 0;
    g->opened++;
}

void
berthi_simt_gate_arrive(uint32_t place, uint32_t bytes)
{
    gate *const g = need_gate(place);

    if (g == NULL)
        return;
    simt_race_tell(&g->told);
    g->arrived++;
    g->bytes += bytes;
    open_when_all_are_there(g);
}

static bool
is_open(const gate *g, uint32_t turn)
{
    return g->opened % 2 != turn;
}

void
berthi_simt_gate_wait(uint32_t place, uint32_t turn)
{
    wide_lane *const l = own_lane();
    gate *const g = need_gate(place);

    if (g == NULL)
        return;
    l->gate = place;
    l->turn = turn;
    if (!is_open(g, turn))
        simt_give_up_turn(WAITS_AT_GATE);
    simt_race_learn(&g->told);
}

bool
simt_wide_can_run(uint32_t number, simt_waiting waits)
{
    const wide_lane *const l = &wide.lanes[number];

    if (waits == WAITS_AT_GROUP)
        return wide.groups[number / SIMT_GROUP].complete >= l->barriers;
    return is_open(find_gate(l->gate), l->turn);
}

/* --------------------------------------------------------------------------- tiles */

static uint32_t
tile_bytes_of(const berthi_tiles *of)
{
    return of->of.tile_bytes * of->of.tile_rows;
}

/* Byte by byte: what is beyond the matrix is 0. */
static void
copy_tile(const tile *t)
{
    const berthi_tiles *const m = t->of;
    uint8_t *const to = berthi_simt_at(t->to, tile_bytes_of(m));

    for (uint32_t i = 0; i < m->of.tile_rows; i++)
        for (uint32_t k = 0; k < m->of.tile_bytes; k += 16) {
            const uint64_t row = (uint64_t)t->row + i;
            const uint64_t column = (uint64_t)t->column + k;
            const uint32_t part = m->of.is_turned ? (k / 16 ^ i % 8) * 16 : k;
            uint8_t *const its = to + i * m->of.tile_bytes + part;

            memset(its, 0, 16);
            if (row < m->of.rows && column < m->of.row_bytes)
                memcpy(its, (const uint8_t *)m->of.from + row * m->of.row_bytes + column, 16);
        }
}

static void
let_come(const tile *t)
{
    gate *const g = need_gate(t->gate);

    copy_tile(t);
    if (g == NULL)
        return;
    g->bytes -= tile_bytes_of(t->of);
    open_when_all_are_there(g);
}

/* Whoever passes the gate knows of it, be it asked for behind what the gate expects. */
static void
tell_tile(const tile *t)
{
    gate *const g = find_gate(t->gate);
    const uint32_t bytes = tile_bytes_of(t->of);

    simt_race_write(berthi_simt_at(t->to, bytes), bytes);
    if (g != NULL)
        simt_race_tell(&g->told);
}

static void
check_tile(const tile *t)
{
    const berthi_tiles *const m = t->of;

    if (t->to % (m->of.is_turned ? EIGHT_LINES : LINE) != 0)
        simt_complain("a tile at an odd place");
    if (t->column % 16 != 0 || (uintptr_t)m->of.from % 16 != 0 || m->of.row_bytes % 16 != 0
        || m->of.tile_bytes % 16 != 0 || m->of.tile_rows > 256
        || (m->of.is_turned && m->of.tile_bytes != LINE))
        simt_complain("a tile that no hardware copies");
}

void
berthi_simt_copy_tile(uint32_t to, const berthi_tiles *tiles, uint32_t place, uint32_t column,
                      uint32_t row)
{
    const tile t = { to, tiles, place, column, row };
    const simt_order order = simt_order_of_launch();

    check_tile(&t);
    tell_tile(&t);
    if (order == SIMT_DESCENDING || (order == SIMT_RANDOM && simt_draw() % 2 == 0))
        let_come(&t);
    else if (wide.tile_count == MOST_TILES)
        simt_complain("more tiles on their way than this machine keeps");
    else
        wide.tiles[wide.tile_count++] = t;
}

bool
simt_wide_let_come(void)
{
    const uint32_t which = simt_order_of_launch() == SIMT_RANDOM && wide.tile_count > 0
                               ? (uint32_t)(simt_draw() % wide.tile_count)
                               : 0;
    tile t;

    if (wide.tile_count == 0)
        return false;
    t = wide.tiles[which];
    wide.tile_count--;
    memmove(&wide.tiles[which], &wide.tiles[which + 1],
            (wide.tile_count - which) * sizeof wide.tiles[0]);
    let_come(&t);
    return true;
}

/* ------------------------------------------------------------------------ products */

static double
number_of(uint16_t bits, bool is_bf16)
{
    return (double)(is_bf16 ? berthi_core_from_bf16(bits) : berthi_core_from_fp16(bits));
}

/* Numbers k of the lane's two rows: as simt_multiply_*() have them, of the quad with the rows. */
static void
gather_rows(uint32_t which, const product *own, double rows[2][16])
{
    const uint32_t first = simt_current() / 4 * 4;

    for (uint32_t k = 0; k < 16; k++) {
        const wide_lane *const l = &wide.lanes[first + k % 8 / 2];
        const product *const its = &l->products[which];

        if (which >= l->product_count || its->place != own->place || its->count != own->count) {
            simt_complain("lanes of a warp that multiply different things");
            memset(rows, 0, 2 * 16 * sizeof(double));
            return;
        }
        for (uint32_t i = 0; i < 2; i++)
            rows[i][k] = number_of((uint16_t)(its->rows[i + k / 8 * 2] >> k % 2 * 16),
                                   own->is_bf16);
    }
}

/* Eight numbers of a line lie side by side, wherever turning has put them. */
static void
gather_column(const product *p, uint32_t column, double numbers[16])
{
    for (uint32_t k = 0; k < 16; k += 8) {
        const uint32_t straight = p->place + column / 8 * EIGHT_LINES + column % 8 * LINE + k * 2;
        const void *const eight = berthi_simt_at(straight ^ (straight >> 3 & 0x70u), 16);
        uint64_t low; /* words: a sanitizer has fewer accesses to look at */
        uint64_t high;

        memcpy(&low, eight, sizeof low);
        memcpy(&high, (const uint8_t *)eight + sizeof low, sizeof high);
        for (uint32_t i = 0; i < 4; i++) {
            numbers[k + i] = number_of((uint16_t)(low >> i * 16), p->is_bf16);
            numbers[k + 4 + i] = number_of((uint16_t)(high >> i * 16), p->is_bf16);
        }
    }
}

static void
multiply(uint32_t which)
{
    const product *const p = &own_lane()->products[which];
    double rows[2][16];
    double column[16];

    gather_rows(which, p, rows);
    for (uint32_t n = simt_current() % 4 * 2; n < p->count; n += n % 2 == 0 ? 1 : 7) {
        float *const sums = &p->sums[n / 8 * 4 + n % 2];
        double first = p->adds ? (double)sums[0] : 0.0;
        double second = p->adds ? (double)sums[2] : 0.0;

        gather_column(p, n, column);
        for (uint32_t k = 0; k < 16; k++) { /* two sums that do not wait for each other */
            first += rows[0][k] * column[k];
            second += rows[1][k] * column[k];
        }
        sums[0] = (float)first;
        sums[2] = (float)second;
    }
}

/* The first ones, in their order; nobody of the warp goes on before all are through. */
static void
finish_products(uint32_t count)
{
    wide_lane *const l = own_lane();

    simt_meet_warp();
    for (uint32_t i = 0; i < count; i++)
        multiply(i);
    simt_meet_warp();
    l->product_count -= count;
    memmove(l->products, l->products + count, l->product_count * sizeof l->products[0]);
}

void
berthi_simt_begin_multiplying(void)
{
    own_lane()->has_begun = true;
}

/* The same for all lanes of a warp. */
static bool
multiplies_at_once(const wide_lane *l)
{
    const uint64_t drawn = (l->multiplied + simt_current() / SIMT_WARP) * 0x9E3779B97F4A7C15u;

    return simt_order_of_launch() == SIMT_DESCENDING
           || (simt_order_of_launch() == SIMT_RANDOM && drawn >> 63 != 0);
}

void
berthi_simt_multiply_wide(float *sums, const uint32_t *rows, uint32_t place, uint32_t count,
                          bool is_bf16, bool adds)
{
    wide_lane *const l = own_lane();

    if (!l->has_begun)
        simt_complain("products whose operands nobody has announced");
    if (count < 32 || count > 256 || (count & (count - 1)) != 0)
        simt_complain("products of so many columns are none of hardware");
    if (l->product_count == MOST_PRODUCTS) {
        simt_complain("more products under way than this machine keeps");
        return;
    }
    l->products[l->product_count++] =
        (product){ sums, rows, place, count, l->ended, is_bf16, adds };
    l->multiplied = l->multiplied * 31 + place * 2 + count + 1;
    if (multiplies_at_once(l))
        finish_products(l->product_count);
}

void
berthi_simt_end_multiplying(void)
{
    wide_lane *const l = own_lane();

    l->ended++;
    l->has_begun = false;
}

void
berthi_simt_wait_multiplied(uint32_t count)
{
    const wide_lane *const l = own_lane();
    uint32_t done = 0;

    while (done < l->product_count && l->products[done].part + count < l->ended)
        done++;
    finish_products(done);
}

/* -------------------------------------------------------------------------- others */

void
berthi_simt_await_flag(uint32_t *flag)
{
    berthi_simt_access(flag, sizeof *flag);
    if (*flag == 0)
        simt_complain("a flag that no earlier CTA has raised");
    *flag = 0;
}

void
simt_wide_check_ended(uint32_t threads)
{
    if (wide.tile_count > 0)
        simt_complain("a CTA has ended while tiles are on their way");
    for (uint32_t i = 0; i < threads; i++) {
        const uint32_t first = i / SIMT_GROUP * SIMT_GROUP;

        if (wide.lanes[i].product_count > 0)
            simt_complain("a lane has ended while its products are under way");
        if (wide.lanes[i].multiplied != wide.lanes[first].multiplied)
            simt_complain("warps that multiply different things together");
    }
}
