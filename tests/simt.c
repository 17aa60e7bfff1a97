/* SPDX-License-Identifier: Apache-2.0 */
/* simt.c - see simt.h: fibers, their turns, and what they wait for. */
#include "tests/simt.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/simt.h"
#include "tests/random.h"
#include "tests/simt_machine.h"
#include "tests/simt_race.h"

#define STACK_BYTES 65536u
#define FENCE_BYTES 64u
#define FIRST_BYTES 1024u /* where the first array begins: tiles are copied to such places */
#define MOST_ARRAYS 16u
#define SHARED_BYTES                                                                  \
    (SIMT_SHARED_BYTES + SIMT_MOST_ROOM + FIRST_BYTES + MOST_ARRAYS * FENCE_BYTES)
#define FRESH 0xCD
#define ROW_NUMBERS 8u /* of a lane's fragment of 16 x 16 numbers, two in a word */
#define COLUMN_NUMBERS 4u /* of 16 x 8 */
#define MOST_WORDS (ROW_NUMBERS + COLUMN_NUMBERS)
#define MOST_COPIES 64u /* of a lane that are on their way */
#define CTAS_WITH_EARLIER 2u /* of a launch, the first ones that run: it takes time */

/* ----------------------------------------------------------- changing fibers */

/*
 * simt_switch() keeps the caller's registers on its stack, leaves the stack's
 * address in *save, and goes on where `load` was left. A new stack holds the
 * registers' places and then the address to begin at.
 */
void simt_switch(void **save, void *load) __attribute__((visibility("hidden")));

#if defined __x86_64__
#define HAS_FIBERS true
#define SAVED_WORDS 8u /* six registers, the address, what would be the caller's */
#define START_WORD 6u
__asm__(".text\n"
        ".type simt_switch, @function\n"
        ".hidden simt_switch\n"
        ".globl simt_switch\n"
        "simt_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size simt_switch, .-simt_switch\n");
#elif defined __aarch64__
#define HAS_FIBERS true
#define SAVED_WORDS 20u
#define START_WORD 11u /* x30 */
__asm__(".text\n"
        ".type simt_switch, %function\n"
        ".hidden simt_switch\n"
        ".globl simt_switch\n"
        "simt_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size simt_switch, .-simt_switch\n");
#else
#define HAS_FIBERS false
#define SAVED_WORDS 1u
#define START_WORD 0u

void
simt_switch(void **save, void *load)
{
    *save = load;
}
#endif

bool
simt_has_fibers(void)
{
    return HAS_FIBERS;
}

/* --------------------------------------------------------------- the machine */

/* What a lane hands to all of its warp. */
typedef struct handout {
    uint32_t count;
    uint32_t words[MOST_WORDS];
} handout;

/* To shared memory, until its lane has waited for it. */
typedef struct copy {
    void *to;
    const void *from;
    uint32_t bytes;
    uint32_t group;
} copy;

typedef struct lane {
    void *stack; /* where it was left */
    simt_waiting waits;
    uint64_t barriers; /* it has come to */
    uint64_t shuffles;
    uint64_t warp_barriers; /* of these */
    /* At its last shuffle and the one before: a fast lane is one ahead. */
    handout given[2];
    uint32_t arrays; /* of shared memory that it has declared */
    uint32_t groups; /* of copies that it has ended */
    uint32_t copy_count;
    copy copies[MOST_COPIES];
} lane;

/* One launch at a time: fibers belong to no thread but the caller's. */
static struct {
    const simt_launch *launch;
    void (*kernel)(const void *argument);
    const void *argument;
    const char *complaint;
    uint64_t cta;
    uint32_t current;
    void *caller; /* the stack of simt_run() */
    lane lanes[SIMT_MOST_THREADS];
    simt_meeting barrier;
    simt_meeting warps[SIMT_MOST_THREADS / SIMT_WARP];
    uint64_t random;
    uint8_t *stacks; /* kept for the next launch */
    uint8_t *shared; /* SHARED_BYTES; the same */
    size_t array_end[MOST_ARRAYS + 1]; /* with its fence; [0] is the first fence's */
    size_t array_bytes[MOST_ARRAYS];
    size_t shared_left; /* bytes that may be declared, */
    size_t room_left;   /* and of those that the launch gives */
    uint32_t arrays;
    bool is_early;          /* earlier work goes on: the bits of its memory are turned, */
    uint64_t early_content; /* and this is a sum of it */
} machine;

void
simt_complain(const char *what)
{
    if (machine.complaint == NULL)
        machine.complaint = what;
}

uint32_t
simt_current(void)
{
    return machine.current;
}

simt_order
simt_order_of_launch(void)
{
    return machine.launch->order;
}

uint64_t
simt_draw(void)
{
    return random_next(&machine.random);
}

uint8_t *
simt_shared(size_t *bytes)
{
    *bytes = SHARED_BYTES;
    return machine.shared;
}

void
simt_give_up_turn(simt_waiting waits)
{
    lane *const l = &machine.lanes[machine.current];

    l->waits = waits;
    simt_race_leave_lane();
    simt_switch(&l->stack, machine.caller);
}

static void
run_lane(void)
{
    machine.kernel(machine.argument);
    simt_give_up_turn(HAS_ENDED);
    abort(); /* nobody gives a turn to a lane that has ended */
}

static void
begin_lane(uint32_t number)
{
    void (*const start)(void) = run_lane;
    uint8_t *const top = machine.stacks + (size_t)(number + 1) * STACK_BYTES;
    uint8_t *const stack = top - SAVED_WORDS * sizeof(void *);
    lane *const l = &machine.lanes[number];

    memset(l, 0, sizeof *l);
    simt_wide_begin_lane(number);
    memset(stack, 0, SAVED_WORDS * sizeof(void *));
    memcpy(stack + START_WORD * sizeof(void *), &start, sizeof start);
    l->stack = stack;
    simt_race_begin_lane(number);
}

/* ---------------------------------------------------- what kernels/simt.h calls */

uint32_t
berthi_simt_thread(void)
{
    return machine.current;
}

uint64_t
berthi_simt_cta(void)
{
    return machine.cta;
}

uint64_t
berthi_simt_ctas(void)
{
    return machine.launch->ctas;
}

/* `left`: bytes that there may be more. */
static void
declare_array(uint32_t number, size_t bytes, size_t *left)
{
    const size_t whole = (bytes + 15) / 16 * 16;

    if (number == MOST_ARRAYS || whole > *left) {
        simt_complain("more shared memory than a kernel may declare");
        return;
    }
    *left -= whole;
    machine.array_bytes[number] = bytes;
    machine.array_end[number + 1] = machine.array_end[number] + whole + FENCE_BYTES;
    machine.arrays++;
}

/* Where there is too little a lane goes on in the first array: the complaint is kept. */
static void *
find_array(size_t bytes, size_t *left)
{
    lane *const l = &machine.lanes[machine.current];
    const uint32_t number = l->arrays++;

    if (number == machine.arrays)
        declare_array(number, bytes, left);
    if (number >= machine.arrays)
        return machine.shared + FIRST_BYTES;
    if (machine.array_bytes[number] != bytes)
        simt_complain("lanes declare different shared memory");
    return machine.shared + machine.array_end[number];
}

void *
berthi_simt_shared(size_t bytes)
{
    return find_array(bytes, &machine.shared_left);
}

void *
berthi_simt_room(size_t bytes)
{
    return find_array(bytes, &machine.room_left);
}

/* ------------------------------------------------------------- copies on their way */

static bool
comes_at_once(void)
{
    return machine.launch->order == SIMT_DESCENDING
           || (machine.launch->order == SIMT_RANDOM && simt_draw() % 2 == 0);
}

void
berthi_simt_copy(void *to, const void *from, uint32_t bytes)
{
    lane *const l = &machine.lanes[machine.current];

    berthi_simt_access(to, bytes);
    berthi_simt_access(from, bytes);
    if (comes_at_once())
        memcpy(to, from, bytes);
    else if (l->copy_count == MOST_COPIES)
        simt_complain("more copies of a lane on their way than this machine keeps");
    else
        l->copies[l->copy_count++] = (copy){ to, from, bytes, l->groups };
}

void
berthi_simt_end_copies(void)
{
    machine.lanes[machine.current].groups++;
}

void
berthi_simt_wait_copies(uint32_t count)
{
    lane *const l = &machine.lanes[machine.current];
    uint32_t kept = 0;

    for (uint32_t i = 0; i < l->copy_count; i++)
        if (l->copies[i].group + count < l->groups)
            memcpy(l->copies[i].to, l->copies[i].from, l->copies[i].bytes);
        else
            l->copies[kept++] = l->copies[i];
    l->copy_count = kept;
}

/* ---------------------------------------------------------------- work before this */

static uint64_t
add_to_sum(uint64_t sum, uint64_t word)
{
    return (sum ^ word) * UINT64_C(0x9E3779B97F4A7C15);
}

/* Turns each bit of the memory; a sum of what it holds when they are turned. */
static uint64_t
turn_earlier(bool are_turned)
{
    const uint64_t all = UINT64_MAX;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < machine.launch->earlier_count; i++) {
        const simt_memory *const m = &machine.launch->earlier[i];
        uint8_t *const bytes = m->begin;
        uint64_t k = 0;

        for (; k + sizeof all <= m->bytes; k += sizeof all) {
            uint64_t word;

            memcpy(&word, bytes + k, sizeof word);
            sum = add_to_sum(sum, are_turned ? word : word ^ all);
            word ^= all;
            memcpy(bytes + k, &word, sizeof word);
        }
        for (; k < m->bytes; k++) {
            sum = add_to_sum(sum, are_turned ? bytes[k] : (uint8_t)~bytes[k]);
            bytes[k] = (uint8_t)~bytes[k];
        }
    }
    return sum;
}

static void
begin_earlier(uint64_t number_of_cta)
{
    machine.is_early = machine.launch->earlier_count > 0 && number_of_cta < CTAS_WITH_EARLIER;
    if (machine.is_early)
        machine.early_content = turn_earlier(false);
}

static void
end_earlier(void)
{
    machine.is_early = false;
    if (turn_earlier(true) != machine.early_content)
        simt_complain("a write before earlier work has been waited for");
}

/* Lanes have gone as far as they do without it. */
static bool
let_earlier_end(void)
{
    for (uint32_t i = 0; i < machine.launch->threads; i++)
        if (machine.is_early && machine.lanes[i].waits == WAITS_FOR_EARLIER) {
            end_earlier();
            return true;
        }
    return false;
}

void
berthi_simt_wait_for_earlier(void)
{
    if (machine.is_early && comes_at_once())
        end_earlier();
    if (machine.is_early)
        simt_give_up_turn(WAITS_FOR_EARLIER);
}

/* ------------------------------------------------------------------ lanes that meet */

void
simt_arrive(simt_meeting *m, uint32_t expected)
{
    m->arrived++;
    if (m->arrived == expected) {
        m->arrived = 0;
        m->complete++;
    }
}

void
simt_meet(simt_meeting *m, uint32_t expected, uint64_t number, simt_waiting waits)
{
    simt_race_tell(&m->told[number % 2]);
    simt_arrive(m, expected);
    simt_give_up_turn(waits);
    simt_race_learn(&m->told[number % 2]);
}

void
berthi_simt_barrier(void)
{
    lane *const l = &machine.lanes[machine.current];

    simt_meet(&machine.barrier, machine.launch->threads, ++l->barriers, WAITS_AT_BARRIER);
}

/* Hands words to the warp and waits for it; where handouts of this meeting lie. */
static uint32_t
exchange(const uint32_t *words, uint32_t count)
{
    lane *const l = &machine.lanes[machine.current];
    const uint32_t place = (uint32_t)(l->shuffles++ % 2);

    l->given[place].count = count;
    memcpy(l->given[place].words, words, count * sizeof words[0]);
    simt_arrive(&machine.warps[machine.current / SIMT_WARP], SIMT_WARP);
    simt_give_up_turn(WAITS_AT_SHUFFLE);
    return place;
}

/* What lane `from` of the warp gave, which gave as many words. */
static const uint32_t *
given(uint32_t from, uint32_t place, uint32_t count)
{
    const uint32_t warp = machine.current / SIMT_WARP;
    const handout *const h = &machine.lanes[warp * SIMT_WARP + from].given[place];

    if (h->count != count)
        simt_complain("lanes of a warp that meet for different things");
    return h->words;
}

void
simt_meet_warp(void)
{
    const uint32_t nothing = 0;

    (void)given(0, exchange(&nothing, 1), 1);
}

/* Of all that lanes of a warp meet for this alone orders what they do with memory. */
void
berthi_simt_warp_barrier(void)
{
    lane *const l = &machine.lanes[machine.current];
    simt_meeting *const warp = &machine.warps[machine.current / SIMT_WARP];
    const uint64_t number = l->warp_barriers++;

    simt_race_tell(&warp->told[number % 2]);
    simt_meet_warp();
    simt_race_learn(&warp->told[number % 2]);
}

uint32_t
berthi_simt_shuffle(uint32_t value, uint32_t from)
{
    if (from >= SIMT_WARP) {
        simt_complain("a shuffle from a lane that no warp has");
        from = 0;
    }
    return given(from, exchange(&value, 1), 1)[0];
}

static float
half_of(uint32_t word, uint32_t half, bool is_bf16)
{
    const uint16_t bits = (uint16_t)(word >> 16 * half);

    return is_bf16 ? berthi_core_from_bf16(bits) : berthi_core_from_fp16(bits);
}

/* What the lane has of both matrices is handed out as floats: one lane decodes, many multiply. */
static uint32_t
exchange_numbers(const uint32_t *rows, const uint32_t *columns, bool is_bf16)
{
    float numbers[MOST_WORDS];
    uint32_t words[MOST_WORDS];

    for (uint32_t i = 0; i < ROW_NUMBERS; i++)
        numbers[i] = half_of(rows[i / 2], i % 2, is_bf16);
    for (uint32_t i = 0; i < COLUMN_NUMBERS; i++)
        numbers[ROW_NUMBERS + i] = half_of(columns[i / 2], i % 2, is_bf16);
    memcpy(words, numbers, sizeof words);
    return exchange(words, MOST_WORDS);
}

/*
 * A row's or column's 16 numbers, of which four lanes, from `first` on, have two of each half: that
 * of the first half from their number `low` on, that of the second from `high` on.
 */
static void
gather(double numbers[16], uint32_t first, uint32_t place, uint32_t low, uint32_t high)
{
    for (uint32_t p = 0; p < 4; p++) {
        const uint32_t *const words = given(first + p, place, MOST_WORDS);
        float pairs[4];

        memcpy(pairs, words + low, 2 * sizeof pairs[0]);
        memcpy(pairs + 2, words + high, 2 * sizeof pairs[0]);
        for (uint32_t i = 0; i < 2; i++) {
            numbers[p * 2 + i] = (double)pairs[i];
            numbers[8 + p * 2 + i] = (double)pairs[2 + i];
        }
    }
}

/*
 * PTX has number (i, k) of 16 x 16 in word i / 8 + k / 8 * 2 of lane
 * i % 8 * 4 + k % 8 / 2, number (k, j) of 16 x 8 in word k / 8 of lane
 * j * 4 + k % 8 / 2, and a lane's sums in the rows and columns that follow.
 * How a device rounds within is its own affair; here it is once.
 */
void
berthi_simt_multiply(float *sums, const uint32_t *rows, const uint32_t *columns,
                     bool is_bf16)
{
    const uint32_t own = machine.current % SIMT_WARP;
    const uint32_t place = exchange_numbers(rows, columns, is_bf16);
    double of_row[2][16];
    double of_column[2][16];

    for (uint32_t n = 0; n < 2; n++) {
        gather(of_row[n], own / 4 * 4, place, n * 2, n * 2 + 4);
        gather(of_column[n], (own % 4 * 2 + n) * 4, place, ROW_NUMBERS, ROW_NUMBERS + 2);
    }
    for (uint32_t s = 0; s < 4; s++) {
        const double *const row = of_row[s / 2];
        const double *const column = of_column[s % 2];
        double sum = (double)sums[s];

        for (uint32_t k = 0; k < 16; k++)
            sum += row[k] * column[k];
        sums[s] = (float)sum;
    }
}

void
berthi_simt_access(const void *address, size_t bytes)
{
    if ((uintptr_t)address % bytes != 0)
        simt_complain("an access at an odd address");
}

/* -------------------------------------------------------------------- turns */

/* Number i of `count` in the launch's order; of random ones, the machine's list has it. */
static uint64_t
in_order(uint64_t i, uint64_t count)
{
    return machine.launch->order == SIMT_DESCENDING ? count - 1 - i : i;
}

/* Numbers 0 to count - 1 as the launch's order has them. */
static void
draw_turns(uint32_t *turns, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        turns[i] = (uint32_t)in_order(i, count);
    if (machine.launch->order != SIMT_RANDOM)
        return;
    for (uint32_t i = count - 1; i > 0; i--) {
        const uint32_t j = (uint32_t)(simt_draw() % (i + 1));
        const uint32_t turn = turns[i];

        turns[i] = turns[j];
        turns[j] = turn;
    }
}

static bool
can_run(uint32_t number)
{
    const lane *const l = &machine.lanes[number];

    if (l->waits == WAITS_AT_BARRIER)
        return machine.barrier.complete >= l->barriers;
    if (l->waits == WAITS_AT_SHUFFLE)
        return machine.warps[number / SIMT_WARP].complete >= l->shuffles;
    if (l->waits == WAITS_FOR_EARLIER)
        return !machine.is_early;
    if (l->waits == WAITS_AT_GROUP || l->waits == WAITS_AT_GATE)
        return simt_wide_can_run(number, l->waits);
    return l->waits == WAITS_FOR_NOTHING;
}

/* Of random orders: whoever is next has to wait while others go on, now and then. */
static bool
lets_others_go(uint32_t seldom)
{
    return machine.launch->order == SIMT_RANDOM && simt_draw() % seldom == 0;
}

/* One turn for every lane of a warp that can go on, or for some of them; how many that were. */
static uint32_t
run_warp(uint32_t warp)
{
    uint32_t turns[SIMT_WARP];
    uint32_t count = 0;

    draw_turns(turns, SIMT_WARP);
    for (uint32_t i = 0; i < SIMT_WARP; i++) {
        const uint32_t number = warp * SIMT_WARP + turns[i];

        if (!can_run(number))
            continue;
        machine.current = number;
        simt_race_enter_lane(number);
        simt_switch(&machine.caller, machine.lanes[number].stack);
        count++;
        if (lets_others_go(16))
            break;
    }
    return count;
}

/*
 * Warps go as far ahead of each other as barriers let them: what one overwrites
 * too early the next one misses. In a random order they often stop before that, too.
 */
static uint32_t
take_turns(void)
{
    const uint32_t warps = machine.launch->threads / SIMT_WARP;
    uint32_t order[SIMT_MOST_THREADS / SIMT_WARP];
    uint32_t count = 0;

    draw_turns(order, warps);
    for (uint32_t i = 0; i < warps; i++) {
        uint32_t ran;

        do {
            ran = run_warp(order[i]);
            count += ran;
        } while (ran > 0 && !lets_others_go(4));
    }
    return count;
}

static void
check_ended(void)
{
    for (uint32_t i = 0; i < machine.launch->threads; i++) {
        simt_race_end_lane(i, machine.lanes[i].waits == HAS_ENDED);
        if (machine.lanes[i].waits == WAITS_AT_BARRIER)
            simt_complain("a barrier that not all lanes of the CTA reach");
        if (machine.lanes[i].waits == WAITS_AT_SHUFFLE)
            simt_complain("a shuffle that not all lanes of the warp reach");
        if (machine.lanes[i].waits == WAITS_AT_GROUP)
            simt_complain("a barrier that not all lanes of four warps reach");
        if (machine.lanes[i].waits == WAITS_AT_GATE)
            simt_complain("a gate that does not open");
        if (machine.lanes[i].copy_count > 0)
            simt_complain("a lane has ended while its copies are on their way");
    }
    simt_wide_check_ended(machine.launch->threads);
}

static void
check_fences(void)
{
    for (uint32_t i = 0; i <= machine.arrays; i++) {
        const size_t end = machine.array_end[i];
        const size_t begin = i == 0 ? 0 : machine.array_end[i - 1] + machine.array_bytes[i - 1];

        for (size_t at = begin; at < end; at++)
            if (machine.shared[at] != FRESH) {
                simt_complain("a write beyond an array of shared memory");
                return;
            }
    }
}

/* Tiles that come late come when nothing else goes on. */
static bool
some_wait_at_gates(void)
{
    for (uint32_t i = 0; i < machine.launch->threads; i++)
        if (machine.lanes[i].waits == WAITS_AT_GATE)
            return true;
    return false;
}

static void
run_cta(uint64_t cta, uint64_t number)
{
    machine.cta = cta;
    memset(machine.shared, FRESH,
           SHARED_BYTES - SIMT_MOST_ROOM + machine.launch->room_bytes);
    machine.arrays = 0;
    machine.shared_left = SIMT_SHARED_BYTES;
    machine.room_left = machine.launch->room_bytes;
    machine.array_end[0] = FIRST_BYTES;
    memset(&machine.barrier, 0, sizeof machine.barrier);
    memset(machine.warps, 0, sizeof machine.warps);
    simt_wide_begin_cta();
    for (uint32_t i = 0; i < machine.launch->threads; i++)
        begin_lane(i);
    begin_earlier(number);
    do {
        while (take_turns() > 0) {
        }
    } while ((some_wait_at_gates() && simt_wide_let_come()) || let_earlier_end());
    if (machine.is_early) {
        end_earlier();
        simt_complain("no lane waits for earlier work");
    }
    check_ended();
    check_fences();
}

const char *
simt_run(const simt_launch *launch, void (*kernel)(const void *argument),
         const void *argument)
{
    const uint64_t count = launch->ctas - launch->first_cta;

    if (launch->threads == 0 || launch->threads > SIMT_MOST_THREADS
        || launch->threads % SIMT_WARP != 0)
        return "a CTA is whole warps, and not too many";
    if (launch->room_bytes > SIMT_MOST_ROOM)
        return "more shared memory than a launch may give";
    if (machine.stacks == NULL)
        machine.stacks = malloc((size_t)SIMT_MOST_THREADS * STACK_BYTES);
    if (machine.shared == NULL)
        machine.shared = malloc(SHARED_BYTES);
    if (machine.stacks == NULL || machine.shared == NULL)
        return "no memory for stacks, or for what they share";
    machine.launch = launch;
    machine.kernel = kernel;
    machine.argument = argument;
    machine.complaint = NULL;
    simt_race_begin(launch->is_racy);
    machine.random = launch->seed * 2 + 1;
    for (uint64_t i = 0; i < count && machine.complaint == NULL; i++)
        run_cta(launch->first_cta + (launch->is_ascending ? i : in_order(i, count)), i);
    if (simt_race_end()) {
        free(machine.shared);
        machine.shared = NULL;
    }
    return machine.complaint;
}
