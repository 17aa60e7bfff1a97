/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu.c - asks the processor itself; the kernel's word is only in XCR0. An
 * AArch64 processor does not answer programs: there the kernel speaks for it.
 */
#include "kernels/cpu.h"

#include "kernels/sys.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#define LEAF1_FMA (1u << 12)
#define LEAF1_OSXSAVE (1u << 27)
#define LEAF1_F16C (1u << 29)
#define LEAF7_AVX2 (1u << 5)
#define LEAF7_AVX512F (1u << 16)
#define LEAF7_AVX512DQ (1u << 17)
#define LEAF7_AVX512BW (1u << 30)
#define LEAF7_AVX512VL (1u << 31)
#define LEAF7_AVX512VBMI (1u << 1)
#define LEAF7_1_AVX512BF16 (1u << 5)
#define LEAF7_AMX_BF16 (1u << 22)
#define LEAF7_AMX_TILE (1u << 24)
#define XCR0_YMM 0x06u    /* XMM and the upper halves of YMM */
#define XCR0_ZMM 0xE6u    /* the above, masks, ZMM upper halves, ZMM16 to 31 */

#define XCR0_TILES 0x60000u /* their shapes and what is in them */

#define LEAF1_WANTED (LEAF1_FMA | LEAF1_OSXSAVE | LEAF1_F16C)
#define LEAF7_AVX512_WANTED                                                                \
    (LEAF7_AVX512F | LEAF7_AVX512DQ | LEAF7_AVX512BW | LEAF7_AVX512VL)

#define HWCAP_DOT_PRODUCTS (UINT64_C(1) << 20) /* ASIMDDP */

static bool
has_tiles(const berthi_cpu_facts *facts)
{
    const uint32_t wanted = LEAF7_AMX_BF16 | LEAF7_AMX_TILE;

    return (facts->leaf7_edx & wanted) == wanted && (facts->xcr0 & XCR0_TILES) == XCR0_TILES;
}

berthi_cpu_level
berthi_cpu_level_of(const berthi_cpu_facts *facts)
{
    if ((facts->leaf1_ecx & LEAF1_WANTED) != LEAF1_WANTED
        || (facts->leaf7_ebx & LEAF7_AVX2) == 0 || (facts->xcr0 & XCR0_YMM) != XCR0_YMM)
        return BERTHI_CPU_SCALAR;
    if ((facts->leaf7_ebx & LEAF7_AVX512_WANTED) != LEAF7_AVX512_WANTED
        || (facts->xcr0 & XCR0_ZMM) != XCR0_ZMM)
        return BERTHI_CPU_AVX2;
    if ((facts->leaf7_ecx & LEAF7_AVX512VBMI) == 0)
        return BERTHI_CPU_AVX512;
    if ((facts->leaf7_1_eax & LEAF7_1_AVX512BF16) == 0)
        return BERTHI_CPU_AVX512VBMI;
    return has_tiles(facts) && facts->may_use_tiles ? BERTHI_CPU_AMX : BERTHI_CPU_AVX512BF16;
}

berthi_cpu_level
berthi_cpu_arm_level_of(uint64_t capabilities)
{
    return capabilities & HWCAP_DOT_PRODUCTS ? BERTHI_CPU_NEONDOT : BERTHI_CPU_NEON;
}

#if defined(__x86_64__)

/* The lower half, which has every bit that is asked for. */
static uint32_t
read_xcr0(void)
{
    uint32_t low;

    /* The instruction by hand: its intrinsic needs a compiler flag. */
    __asm__ volatile("xgetbv" : "=a"(low) : "c"(0) : "edx");
    return low;
}

berthi_cpu_level
berthi_cpu_best_level(void)
{
    berthi_cpu_facts facts = { .xcr0 = 0 };
    unsigned eax;
    unsigned ebx;
    unsigned ecx;
    unsigned edx;

    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        facts.leaf1_ecx = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        facts.leaf7_ebx = ebx;
        facts.leaf7_ecx = ecx;
        facts.leaf7_edx = edx;
    }
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx))
        facts.leaf7_1_eax = eax;
    if (facts.leaf1_ecx & LEAF1_OSXSAVE)
        facts.xcr0 = read_xcr0();
    facts.may_use_tiles = has_tiles(&facts) && berthi_sys_may_use_tiles();
    return berthi_cpu_level_of(&facts);
}

#elif defined(__aarch64__)

berthi_cpu_level
berthi_cpu_best_level(void)
{
    return berthi_cpu_arm_level_of(getauxval(AT_HWCAP));
}

#else

berthi_cpu_level
berthi_cpu_best_level(void)
{
    return BERTHI_CPU_SCALAR;
}

#endif

bool
berthi_cpu_has_level(berthi_cpu_level level)
{
    const berthi_cpu_level best = berthi_cpu_best_level();

    /* Levels of the other architecture stand on the other side of NEON. */
    if ((level >= BERTHI_CPU_NEON) != (best >= BERTHI_CPU_NEON))
        return level == BERTHI_CPU_SCALAR;
    return level <= best;
}

const char *
berthi_cpu_level_name(berthi_cpu_level level)
{
    static const char *const names[] = {
#define LEVEL_NAME(identifier, name) name,
        BERTHI_CPU_LEVELS(LEVEL_NAME)
#undef LEVEL_NAME
    };

    return (unsigned)level < BERTHI_CPU_LEVEL_COUNT ? names[level] : "unknown";
}
