/* SPDX-License-Identifier: Apache-2.0 */
/* test_cpu.c - which level of instructions a processor has, by what it says of itself. */
#include "kernels/cpu.h"
#include "tests/t.h"

#define FMA (1u << 12)
#define OSXSAVE (1u << 27)
#define F16C (1u << 29)
#define AVX2 (1u << 5)
#define AVX512VBMI (1u << 1)
#define AVX512BF16 (1u << 5)
#define AVX512 ((1u << 16) | (1u << 17) | (1u << 30) | (1u << 31))
#define AMX ((1u << 22) | (1u << 24))

static void
test_levels(void)
{
    const berthi_cpu_facts all = { .leaf1_ecx = FMA | OSXSAVE | F16C,
                                   .leaf7_ebx = AVX2 | AVX512,
                                   .leaf7_ecx = AVX512VBMI,
                                   .leaf7_edx = AMX,
                                   .leaf7_1_eax = AVX512BF16,
                                   .xcr0 = 0x600E7,
                                   .may_use_tiles = true };
    berthi_cpu_facts facts = all;

    CHECK_EQ(berthi_cpu_level_of(&all), BERTHI_CPU_AMX);
    for (int bit = 0; bit < 32; bit++) {
        const uint32_t mask = UINT32_C(1) << bit;

        facts = all;
        facts.leaf1_ecx &= ~mask;
        CHECK_EQ(berthi_cpu_level_of(&facts), all.leaf1_ecx & mask ? BERTHI_CPU_SCALAR
                                                                   : BERTHI_CPU_AMX);
        facts = all;
        facts.leaf7_ebx &= ~mask;
        CHECK_EQ(berthi_cpu_level_of(&facts), mask & AVX2     ? BERTHI_CPU_SCALAR
                                              : mask & AVX512 ? BERTHI_CPU_AVX2
                                                              : BERTHI_CPU_AMX);
        facts = all;
        facts.leaf7_ecx &= ~mask;
        CHECK_EQ(berthi_cpu_level_of(&facts), mask & AVX512VBMI ? BERTHI_CPU_AVX512
                                                                : BERTHI_CPU_AMX);
        facts = all;
        facts.leaf7_edx &= ~mask;
        CHECK_EQ(berthi_cpu_level_of(&facts), mask & AMX ? BERTHI_CPU_AVX512BF16
                                                         : BERTHI_CPU_AMX);
        facts = all;
        facts.leaf7_1_eax &= ~mask;
        CHECK_EQ(berthi_cpu_level_of(&facts), mask & AVX512BF16 ? BERTHI_CPU_AVX512VBMI
                                                                : BERTHI_CPU_AMX);
        facts = all;
        facts.xcr0 &= ~mask;
        CHECK_EQ(berthi_cpu_level_of(&facts), mask & 0x06      ? BERTHI_CPU_SCALAR
                                              : mask & 0xE0    ? BERTHI_CPU_AVX2
                                              : mask & 0x60000 ? BERTHI_CPU_AVX512BF16
                                                               : BERTHI_CPU_AMX);
    }
    facts = all;
    facts.may_use_tiles = false;
    CHECK_EQ(berthi_cpu_level_of(&facts), BERTHI_CPU_AVX512BF16);
    CHECK_EQ(berthi_cpu_level_of(&(berthi_cpu_facts){ .xcr0 = 0 }), BERTHI_CPU_SCALAR);
}

static void
test_arm_levels(void)
{
    const uint64_t dot_products = UINT64_C(1) << 20;

    CHECK_EQ(berthi_cpu_arm_level_of(0), BERTHI_CPU_NEON);
    CHECK_EQ(berthi_cpu_arm_level_of(~dot_products), BERTHI_CPU_NEON);
    CHECK_EQ(berthi_cpu_arm_level_of(dot_products), BERTHI_CPU_NEONDOT);
    CHECK_EQ(berthi_cpu_arm_level_of(UINT64_MAX), BERTHI_CPU_NEONDOT);
}

static void
test_level_names(void)
{
    CHECK_STR(berthi_cpu_level_name(BERTHI_CPU_SCALAR), "scalar");
    CHECK_STR(berthi_cpu_level_name(BERTHI_CPU_AVX2), "avx2");
    CHECK_STR(berthi_cpu_level_name(BERTHI_CPU_AVX512), "avx512");
    CHECK_STR(berthi_cpu_level_name(BERTHI_CPU_AVX512VBMI), "avx512vbmi");
    CHECK_STR(berthi_cpu_level_name(BERTHI_CPU_AVX512BF16), "avx512bf16");
    CHECK_STR(berthi_cpu_level_name(BERTHI_CPU_AMX), "amx");
    CHECK_STR(berthi_cpu_level_name(BERTHI_CPU_NEON), "neon");
    CHECK_STR(berthi_cpu_level_name(BERTHI_CPU_NEONDOT), "neondot");
    CHECK_STR(berthi_cpu_level_name(BERTHI_CPU_LEVEL_COUNT), "unknown");
    CHECK_STR(berthi_cpu_level_name((berthi_cpu_level)-1), "unknown");
    CHECK(berthi_cpu_has_level(BERTHI_CPU_SCALAR));
    CHECK(berthi_cpu_has_level(berthi_cpu_best_level()));
#if defined(__x86_64__)
    /* The compiler's own detection, which also asks the operating system. */
    CHECK_EQ(berthi_cpu_has_level(BERTHI_CPU_AVX2),
             __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    CHECK_EQ(berthi_cpu_has_level(BERTHI_CPU_AVX512),
             __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
                 && __builtin_cpu_supports("avx512vl")
                 && __builtin_cpu_supports("avx512dq"));
    CHECK_EQ(berthi_cpu_has_level(BERTHI_CPU_AVX512VBMI),
             berthi_cpu_has_level(BERTHI_CPU_AVX512)
                 && __builtin_cpu_supports("avx512vbmi"));
    CHECK_EQ(berthi_cpu_has_level(BERTHI_CPU_AVX512BF16),
             berthi_cpu_has_level(BERTHI_CPU_AVX512VBMI)
                 && __builtin_cpu_supports("avx512bf16"));
    CHECK(!berthi_cpu_has_level(BERTHI_CPU_NEON));
    CHECK(!berthi_cpu_has_level(BERTHI_CPU_NEONDOT));
#elif defined(__aarch64__)
    CHECK(berthi_cpu_has_level(BERTHI_CPU_NEON));
    CHECK(!berthi_cpu_has_level(BERTHI_CPU_AVX2));
    CHECK(!berthi_cpu_has_level(BERTHI_CPU_AMX));
#endif
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_levels);
    T_RUN(test_arm_levels);
    T_RUN(test_level_names);
    T_MAIN_END;
}
