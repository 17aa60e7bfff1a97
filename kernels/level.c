/* SPDX-License-Identifier: Apache-2.0 */
/* level.c - the operations of a level, completed by the reference's. */
#include "kernels/kernel.h"

static const berthi_operations *
own_operations(berthi_cpu_level level)
{
#ifdef __x86_64__
    if (level == BERTHI_CPU_AMX)
        return &berthi_amx_operations;
    if (level == BERTHI_CPU_AVX512BF16)
        return &berthi_avx512bf16_operations;
    if (level == BERTHI_CPU_AVX512VBMI)
        return &berthi_avx512vbmi_operations;
    if (level == BERTHI_CPU_AVX512)
        return &berthi_avx512_operations;
    if (level == BERTHI_CPU_AVX2)
        return &berthi_avx2_operations;
#endif
#ifdef __aarch64__
    if (level == BERTHI_CPU_NEONDOT)
        return &berthi_neondot_operations;
    if (level == BERTHI_CPU_NEON)
        return &berthi_neon_operations;
#endif
    (void)level;
    return &berthi_scalar_operations;
}

/* Entries that `own` has replace those of `all`. */
static void
take_entries(berthi_operations *all, const berthi_operations *own)
{
    all->level = own->level;
#define TAKE(entry)                                                                        \
    if (own->entry != NULL)                                                                \
    all->entry = own->entry
    TAKE(encode_nf4);
    TAKE(encode_fp4);
    TAKE(encode_map);
    TAKE(decode_nf4);
    TAKE(decode_fp4);
    TAKE(decode_map);
    TAKE(encode_double);
    TAKE(decode_double);
    all->uses_extremes |= own->uses_extremes;
    TAKE(add_mean_rows);
    TAKE(encode_rows);
    TAKE(decode_rows);
    TAKE(encode_activations);
    TAKE(decode_e2m1);
    TAKE(decode_mxfp4);
    TAKE(multiply_nf4);
    TAKE(multiply_fp4);
    TAKE(dot_int8);
    TAKE(update);
    TAKE(encode_state);
    TAKE(decode_state);
    TAKE(measure);
    TAKE(accumulate);
#undef TAKE
}

/* Whose entries stand where a level has none of its own. */
static berthi_cpu_level
level_below(berthi_cpu_level level)
{
    if (level == BERTHI_CPU_AMX)
        return BERTHI_CPU_AVX512BF16;
    if (level == BERTHI_CPU_AVX512BF16)
        return BERTHI_CPU_AVX512VBMI;
    if (level == BERTHI_CPU_AVX512VBMI)
        return BERTHI_CPU_AVX512;
    return level == BERTHI_CPU_NEONDOT ? BERTHI_CPU_NEON : BERTHI_CPU_SCALAR;
}

berthi_operations
berthi_level_operations(berthi_cpu_level level)
{
    berthi_operations all;

    if (level == BERTHI_CPU_SCALAR)
        return berthi_scalar_operations;
    all = berthi_level_operations(level_below(level));
    take_entries(&all, own_operations(level));
    return all;
}
