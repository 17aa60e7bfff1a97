/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu.h - instruction-set levels: which of them this processor and this
 * operating system can run. One file kernel_<level>.c stands behind each.
 */
#ifndef BERTH_KERNELS_CPU_H
#define BERTH_KERNELS_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* X(IDENTIFIER, "name"), within an architecture from the slowest to the fastest. */
#define BERTHI_CPU_LEVELS(X)                                                               \
    X(SCALAR, "scalar")                                                                    \
    X(AVX2, "avx2")     /* with FMA and F16C */                                            \
    X(AVX512, "avx512") /* the above and F, BW, VL, DQ */                                  \
    X(AVX512VBMI, "avx512vbmi") /* the above and permutations of bytes */                  \
    X(AVX512BF16, "avx512bf16") /* the above and products of bf16 pairs */                 \
    X(AMX, "amx")       /* the above and products of tiles of them */                      \
    X(NEON, "neon") /* every AArch64 */                                                    \
    X(NEONDOT, "neondot") /* the above and sums of four 8-bit products */

typedef enum berthi_cpu_level {
#define BERTHI_CPU_LEVEL_ENUM(identifier, name) BERTHI_CPU_##identifier,
    BERTHI_CPU_LEVELS(BERTHI_CPU_LEVEL_ENUM)
#undef BERTHI_CPU_LEVEL_ENUM
        BERTHI_CPU_LEVEL_COUNT
} berthi_cpu_level;

/* Registers of an x86-64 processor that say what it can do. */
typedef struct berthi_cpu_facts {
    uint32_t leaf1_ecx;
    uint32_t leaf7_ebx;
    uint32_t leaf7_ecx;
    uint32_t leaf7_edx;
    uint32_t leaf7_1_eax; /* of its subleaf 1 */
    uint32_t xcr0; /* register sets the operating system saves; 0 without OSXSAVE */
    bool may_use_tiles; /* the process: the operating system wants to be asked */
} berthi_cpu_facts;

/* The fastest level that the facts allow. */
berthi_cpu_level berthi_cpu_level_of(const berthi_cpu_facts *facts);
/* The same of an AArch64 processor, by what Linux says of it (AT_HWCAP). */
berthi_cpu_level berthi_cpu_arm_level_of(uint64_t capabilities);

/* The fastest level of the processor that this runs on, as this process may use it. */
berthi_cpu_level berthi_cpu_best_level(void);
/* Whether code of this level may run here; SCALAR may everywhere. */
bool berthi_cpu_has_level(berthi_cpu_level level);
/* "avx2", ...; "unknown" for a number that is none. */
const char *berthi_cpu_level_name(berthi_cpu_level level);

#endif
