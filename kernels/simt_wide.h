/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simt_wide.h - what the bodies of wide products may use beside simt.h: copies of whole tiles,
 * gates that they and lanes open, and products of four warps at once with what was copied. Of
 * sm_90a alone; elsewhere the lanes of tests/simt_wide.c.
 *
 * Shared memory is named by places, numbers of 32 bits, so that an address costs a register.
 *
 *   simt_place(memory)                    of shared memory
 *   simt_place_load4, _load16             from a place; _store16 to it
 *   simt_store_turned(place, words)       four 8 x 8 matrices of 16-bit numbers, turned: word k
 *       of lane 4 r + c has numbers (r, 2c) and (r, 2c + 1) of matrix k; lanes 8 k to 8 k + 7 give
 *       the places of its columns, 16 bytes each
 *   simt_group_barrier(group)             the 128 lanes of four neighbouring warps
 *   simt_take_registers(count), simt_give_registers(count)   of all lanes of a group
 *
 *   simt_gate_begin(gate, count)          8 bytes at a multiple of 8, by one lane; the gate opens
 *       each time that `count` have arrived and all bytes have come. Behind all of them, of that
 *       lane, simt_gates_begun(), and then a barrier
 *   simt_gate_arrive(gate)                of one lane, which has met those it speaks for
 *   simt_gate_expect(gate, bytes)         the same, and so many bytes have to come
 *   simt_gate_wait(gate, turn)            until the gate has opened for its 1st, 3rd, ... time
 *       with `turn` 0, its 2nd, 4th, ... with 1; a `turn` of 1 is over at the beginning
 *   simt_gate_watch(gate, turn)           the same, and if that does not come for many seconds the
 *       kernel is ended: it has hung
 *   simt_copy_tile(to, tiles, gate, column, row)   a tile, to a multiple of 1024 bytes where it is
 *       turned, else of 128; `column` in bytes. What is beyond the matrix comes as 0. Not for what
 *       lanes write in the same kernel
 *
 *   simt_begin_multiplying()              before the first of some products whose operands lanes
 *       have written
 *   simt_multiply_wide(sums, rows, place, number, count, is_bf16, adds)   sums += rows * columns,
 *       or where `adds` is false sums = that, 64 x 16 times 16 x count: a lane has the fragments of
 *       16 rows as simt_multiply_*() do, its warp those from 16 times its number in the group on.
 *       Columns are `count` lines of 128 bytes, turned, the first one at `place`: of its 64 numbers
 *       the 16 of that `number` (0 to 3). The sums are those of simt_multiply_*() for 8 columns
 *       each. `count` is 32, 64, 128 or 256
 *   simt_end_multiplying()                makes one of those since the last one
 *   simt_wait_multiplied(count)           until all but the lane's last `count` are done: before,
 *       sums and rows are not to be touched, nor columns
 *   simt_keep_words(words), simt_keep_sums(sums, count)   behind that: the compiler is told
 *
 *   simt_send16(to, four), simt_receive16(from)   memory that CTAs write and read in one launch
 *   simt_raise_flag(flag)                 of one lane: what its group has written is there for
 *       whoever awaits the flag
 *   simt_await_flag(flag)                 of one lane, and takes the flag down. CTAs begin in the
 *       order of their numbers: a flag is one of a CTA before, that waits for none itself
 *
 *   simt_pick_bytes(low, high, numbers)   four of the eight bytes of two words, by numbers of 4
 *       bits; with the highest one set a byte of the sign of that byte
 */
#ifndef BERTH_KERNELS_SIMT_WIDE_H
#define BERTH_KERNELS_SIMT_WIDE_H

#include "kernels/product_arguments.h"
#include "kernels/simt.h"

#define SIMT_GROUP 128u /* lanes that multiply together */
#define SIMT_MULTIPLY_ROWS 16u /* words of fragments in a step of 64 columns */

#ifdef __CUDACC__

SIMT_INLINE uint32_t
simt_place(const void *memory)
{
    return (uint32_t)__cvta_generic_to_shared(memory);
}

SIMT_INLINE uint32_t
simt_place_load4(uint32_t place)
{
    uint32_t word;

    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(place) : "memory");
    return word;
}

SIMT_INLINE simt_four
simt_place_load16(uint32_t place)
{
    simt_four four;

    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(four.word[0]), "=r"(four.word[1]), "=r"(four.word[2]), "=r"(four.word[3])
                 : "r"(place)
                 : "memory");
    return four;
}

SIMT_INLINE void
simt_place_store16(uint32_t place, simt_four four)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(place), "r"(four.word[0]), "r"(four.word[1]), "r"(four.word[2]),
                   "r"(four.word[3])
                 : "memory");
}

SIMT_INLINE void
simt_store_turned(uint32_t place, const uint32_t *words)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(place), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}

SIMT_INLINE void
simt_group_barrier(uint32_t group)
{
    asm volatile("bar.sync %0, 128;" : : "r"(1 + group) : "memory");
}

/* Constants, multiples of 8. */
#define simt_take_registers(count)                                                    \
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(count))
#define simt_give_registers(count)                                                    \
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(count))

/* ------------------------------------------------------------------------------ gates */

SIMT_INLINE void
simt_gate_begin(uint32_t gate, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(gate), "r"(count) : "memory");
}

SIMT_INLINE void
simt_gates_begun(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

SIMT_INLINE void
simt_gate_arrive(uint32_t gate)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(gate) : "memory");
}

SIMT_INLINE void
simt_gate_expect(uint32_t gate, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(gate), "r"(bytes)
                 : "memory");
}

#define SIMT_SUSPENDED_NS 10000000u /* a lane that waits asks no more often, if nothing comes */

/* One block: a loop that the compiler sees is one between products, which it then ends early. */
SIMT_INLINE void
simt_gate_wait(uint32_t gate, uint32_t turn)
{
    asm volatile("{\n"
                 ".reg .pred is_open;\n"
                 "WAIT:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 is_open, [%0], %1, %2;\n"
                 "@is_open bra OPEN;\n"
                 "bra WAIT;\n"
                 "OPEN:\n"
                 "}"
                 :
                 : "r"(gate), "r"(turn), "r"(SIMT_SUSPENDED_NS)
                 : "memory");
}

#define SIMT_PATIENCE_NS 20000000000ull

SIMT_INLINE bool
simt_gate_is_open(uint32_t gate, uint32_t turn)
{
    uint32_t is_open;

    asm volatile("{\n"
                 ".reg .pred is_open;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 is_open, [%1], %2, %3;\n"
                 "selp.u32 %0, 1, 0, is_open;\n"
                 "}"
                 : "=r"(is_open)
                 : "r"(gate), "r"(turn), "r"(SIMT_SUSPENDED_NS)
                 : "memory");
    return is_open != 0;
}

SIMT_INLINE unsigned long long
simt_now_ns(void)
{
    unsigned long long now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

SIMT_INLINE void
simt_gate_watch(uint32_t gate, uint32_t turn)
{
    unsigned long long begin;

    if (simt_gate_is_open(gate, turn))
        return;
    begin = simt_now_ns();
    while (!simt_gate_is_open(gate, turn))
        if (simt_now_ns() - begin > SIMT_PATIENCE_NS)
            __trap();
}

SIMT_INLINE void
simt_copy_tile(uint32_t to, const berthi_tiles *tiles, uint32_t gate, uint32_t column,
               uint32_t row)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];"
                 :
                 : "r"(to), "l"(tiles), "r"(gate), "r"(column), "r"(row)
                 : "memory");
}

/* --------------------------------------------------------------------------- products */

SIMT_INLINE void
simt_begin_multiplying(void)
{
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

SIMT_INLINE void
simt_end_multiplying(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/* `count` is a constant. */
#define simt_wait_multiplied(count)                                                   \
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(count) : "memory")

#define SIMT_SUMS_8(s, i)                                                             \
    "+f"((s)[(i)]), "+f"((s)[(i) + 1]), "+f"((s)[(i) + 2]), "+f"((s)[(i) + 3]),       \
        "+f"((s)[(i) + 4]), "+f"((s)[(i) + 5]), "+f"((s)[(i) + 6]), "+f"((s)[(i) + 7])
#define SIMT_SUMS_16(s, i) SIMT_SUMS_8(s, i), SIMT_SUMS_8(s, (i) + 8)
#define SIMT_SUMS_32(s, i)                                                            \
    SIMT_SUMS_8(s, i), SIMT_SUMS_8(s, (i) + 8), SIMT_SUMS_8(s, (i) + 16),             \
        SIMT_SUMS_8(s, (i) + 24)
#define SIMT_SUMS_64(s, i) SIMT_SUMS_32(s, i), SIMT_SUMS_32(s, (i) + 32)
#define SIMT_SUMS_128(s, i) SIMT_SUMS_64(s, i), SIMT_SUMS_64(s, (i) + 64)

/* Operands by number: ten of them, those before `tens` tens and the rest. */
#define SIMT_TEN(tens)                                                                \
    "%" #tens "0, %" #tens "1, %" #tens "2, %" #tens "3, %" #tens "4, "               \
    "%" #tens "5, %" #tens "6, %" #tens "7, %" #tens "8, %" #tens "9, "
#define SIMT_NAMES_30 SIMT_TEN() SIMT_TEN(1) SIMT_TEN(2)
#define SIMT_NAMES_60 SIMT_NAMES_30 SIMT_TEN(3) SIMT_TEN(4) SIMT_TEN(5)
#define SIMT_NAMES_120                                                                \
    SIMT_NAMES_60 SIMT_TEN(6) SIMT_TEN(7) SIMT_TEN(8) SIMT_TEN(9) SIMT_TEN(10) SIMT_TEN(11)
#define SIMT_NAMES_OF_32 SIMT_TEN() "%10, %11, %12, %13, %14, %15"
#define SIMT_NAMES_OF_64 SIMT_NAMES_30 "%30, %31"
#define SIMT_NAMES_OF_128 SIMT_NAMES_60 "%60, %61, %62, %63"
#define SIMT_NAMES_OF_256                                                             \
    SIMT_NAMES_120 "%120, %121, %122, %123, %124, %125, %126, %127"

#define SIMT_MULTIPLY_WIDE(shape, names, rows_names, columns_name, adds_name, sums_list, \
                           type)                                                      \
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name ", 0;\n"          \
                 "wgmma.mma_async.sync.aligned.m64" shape "k16.f32." type "." type    \
                 " {" names "}, {" rows_names "}, " columns_name ", adds, 1, 1, 0;\n}" \
                 : sums_list                                                          \
                 : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "l"(columns), \
                   "r"((uint32_t)adds))

/* All but the first three are constants. */
SIMT_INLINE void
simt_multiply_wide(float *sums, const uint32_t *rows, uint32_t place, uint32_t number,
                   uint32_t count, bool is_bf16, bool adds)
{
    /* Lines of 128 bytes, turned; 1024 bytes from eight of them to the next. */
    const uint64_t columns = (uint64_t)(((place & 0x3FFFFu) >> 4 | 1u << 16) + 2 * number)
                             | 64ull << 32 | 1ull << 62;

#define SIMT_OF_32(type)                                                              \
    SIMT_MULTIPLY_WIDE("n32", SIMT_NAMES_OF_32, "%16, %17, %18, %19", "%20", "%21",   \
                       SIMT_SUMS_16(sums, 0), type)
#define SIMT_OF_64(type)                                                              \
    SIMT_MULTIPLY_WIDE("n64", SIMT_NAMES_OF_64, "%32, %33, %34, %35", "%36", "%37",   \
                       SIMT_SUMS_32(sums, 0), type)
#define SIMT_OF_128(type)                                                             \
    SIMT_MULTIPLY_WIDE("n128", SIMT_NAMES_OF_128, "%64, %65, %66, %67", "%68", "%69", \
                       SIMT_SUMS_64(sums, 0), type)
#define SIMT_OF_256(type)                                                             \
    SIMT_MULTIPLY_WIDE("n256", SIMT_NAMES_OF_256, "%128, %129, %130, %131", "%132",   \
                       "%133", SIMT_SUMS_128(sums, 0), type)
#define SIMT_OF(count)                                                                \
    if (is_bf16)                                                                      \
        SIMT_OF_##count("bf16");                                                      \
    else                                                                              \
        SIMT_OF_##count("f16")
    switch (count) {
    case 32: SIMT_OF(32); break;
    case 64: SIMT_OF(64); break;
    case 128: SIMT_OF(128); break;
    default: SIMT_OF(256); break;
    }
#undef SIMT_OF
#undef SIMT_OF_32
#undef SIMT_OF_64
#undef SIMT_OF_128
#undef SIMT_OF_256
}

SIMT_INLINE void
simt_keep_words(uint32_t *words)
{
    SIMT_UNROLL
    for (uint32_t i = 0; i < SIMT_MULTIPLY_ROWS; i++)
        asm volatile("" : "+r"(words[i]) : : "memory");
}

SIMT_INLINE void
simt_keep_sums(float *sums, uint32_t count)
{
    SIMT_UNROLL
    for (uint32_t i = 0; i < count; i++)
        asm volatile("" : "+f"(sums[i]) : : "memory");
}

/* ------------------------------------------------------------------ from CTA to CTA */

SIMT_INLINE void
simt_send16(void *to, simt_four four)
{
    __stcg((uint4 *)to, make_uint4(four.word[0], four.word[1], four.word[2], four.word[3]));
}

SIMT_INLINE simt_four
simt_receive16(const void *from)
{
    const uint4 v = __ldcg((const uint4 *)from);
    const simt_four four = { { v.x, v.y, v.z, v.w } };

    return four;
}

SIMT_INLINE void
simt_raise_flag(uint32_t *flag)
{
    asm volatile("st.release.gpu.global.u32 [%0], 1;" : : "l"(flag) : "memory");
}

SIMT_INLINE void
simt_await_flag(uint32_t *flag)
{
    asm volatile("{\n"
                 ".reg .pred is_up;\n"
                 ".reg .b32 word;\n"
                 "POLL:\n"
                 "ld.acquire.gpu.global.u32 word, [%0];\n"
                 "setp.ne.u32 is_up, word, 0;\n"
                 "@is_up bra UP;\n"
                 "bra POLL;\n"
                 "UP:\n"
                 "st.relaxed.gpu.global.u32 [%0], 0;\n"
                 "}"
                 :
                 : "l"(flag)
                 : "memory");
}

SIMT_INLINE uint32_t
simt_pick_bytes(uint32_t low, uint32_t high, uint32_t numbers)
{
    uint32_t picked;

    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(low), "r"(high), "r"(numbers));
    return picked;
}

#else /* any other compiler: the lanes of tests/simt_wide.c */

#define simt_take_registers(count) ((void)(count))
#define simt_give_registers(count) ((void)(count))

uint32_t berthi_simt_place(const void *memory);
void *berthi_simt_at(uint32_t place, size_t bytes);
void berthi_simt_store_turned(uint32_t place, const uint32_t *words);
void berthi_simt_group_barrier(uint32_t group);
void berthi_simt_gate_begin(uint32_t gate, uint32_t count);
void berthi_simt_gate_arrive(uint32_t gate, uint32_t bytes);
void berthi_simt_gate_wait(uint32_t gate, uint32_t turn);
void berthi_simt_copy_tile(uint32_t to, const berthi_tiles *tiles, uint32_t gate,
                           uint32_t column, uint32_t row);
void berthi_simt_begin_multiplying(void);
void berthi_simt_multiply_wide(float *sums, const uint32_t *rows, uint32_t place,
                               uint32_t count, bool is_bf16, bool adds);
void berthi_simt_end_multiplying(void);
void berthi_simt_wait_multiplied(uint32_t count);
void berthi_simt_await_flag(uint32_t *flag);

SIMT_INLINE uint32_t
simt_place(const void *memory)
{
    return berthi_simt_place(memory);
}

SIMT_INLINE uint32_t
simt_place_load4(uint32_t place)
{
    uint32_t word;

    memcpy(&word, berthi_simt_at(place, sizeof word), sizeof word);
    return word;
}

SIMT_INLINE simt_four
simt_place_load16(uint32_t place)
{
    simt_four four;

    memcpy(&four, berthi_simt_at(place, sizeof four), sizeof four);
    return four;
}

SIMT_INLINE void
simt_place_store16(uint32_t place, simt_four four)
{
    memcpy(berthi_simt_at(place, sizeof four), &four, sizeof four);
}

SIMT_INLINE void
simt_store_turned(uint32_t place, const uint32_t *words)
{
    berthi_simt_store_turned(place, words);
}

SIMT_INLINE void
simt_group_barrier(uint32_t group)
{
    berthi_simt_group_barrier(group);
}

SIMT_INLINE void
simt_gate_begin(uint32_t gate, uint32_t count)
{
    berthi_simt_gate_begin(gate, count);
}

SIMT_INLINE void
simt_gates_begun(void)
{
}

SIMT_INLINE void
simt_gate_arrive(uint32_t gate)
{
    berthi_simt_gate_arrive(gate, 0);
}

SIMT_INLINE void
simt_gate_expect(uint32_t gate, uint32_t bytes)
{
    berthi_simt_gate_arrive(gate, bytes);
}

SIMT_INLINE void
simt_gate_wait(uint32_t gate, uint32_t turn)
{
    berthi_simt_gate_wait(gate, turn);
}

SIMT_INLINE void
simt_gate_watch(uint32_t gate, uint32_t turn)
{
    berthi_simt_gate_wait(gate, turn);
}

SIMT_INLINE void
simt_copy_tile(uint32_t to, const berthi_tiles *tiles, uint32_t gate, uint32_t column,
               uint32_t row)
{
    berthi_simt_copy_tile(to, tiles, gate, column, row);
}

SIMT_INLINE void
simt_begin_multiplying(void)
{
    berthi_simt_begin_multiplying();
}

SIMT_INLINE void
simt_multiply_wide(float *sums, const uint32_t *rows, uint32_t place, uint32_t number,
                   uint32_t count, bool is_bf16, bool adds)
{
    berthi_simt_multiply_wide(sums, rows, place + 32 * number, count, is_bf16, adds);
}

SIMT_INLINE void
simt_end_multiplying(void)
{
    berthi_simt_end_multiplying();
}

SIMT_INLINE void
simt_wait_multiplied(uint32_t count)
{
    berthi_simt_wait_multiplied(count);
}

SIMT_INLINE void
simt_keep_words(uint32_t *words)
{
    (void)words;
}

SIMT_INLINE void
simt_keep_sums(float *sums, uint32_t count)
{
    (void)sums, (void)count;
}

SIMT_INLINE void
simt_send16(void *to, simt_four four)
{
    simt_store16(to, four);
}

SIMT_INLINE simt_four
simt_receive16(const void *from)
{
    return simt_load16(from);
}

SIMT_INLINE void
simt_raise_flag(uint32_t *flag)
{
    *flag = 1;
}

SIMT_INLINE void
simt_await_flag(uint32_t *flag)
{
    berthi_simt_await_flag(flag);
}

SIMT_INLINE uint32_t
simt_pick_bytes(uint32_t low, uint32_t high, uint32_t numbers)
{
    const uint64_t both = (uint64_t)high << 32 | low;
    uint32_t picked = 0;

    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t number = numbers >> 4 * i & 15u;
        const uint32_t byte = (uint32_t)(both >> 8 * (number & 7u)) & 0xFFu;

        picked |= (number < 8 ? byte : byte >> 7 != 0 ? 0xFFu : 0u) << 8 * i;
    }
    return picked;
}

#endif

#endif
