/* SPDX-License-Identifier: Apache-2.0 */
/* level.c - the operations of a level, completed by the reference's. */
#include "kernels/kernel.h"

static const berthi_operations *
own_operations(berthi_cpu_level level)
{
#ifdef __x86_64__
    if (level == BERTHI_CPU_AVX512)
        return &berthi_avx512_operations;
    if (level == BERTHI_CPU_AVX2)
        return &berthi_avx2_operations;
#endif
    (void)level;
    return &berthi_scalar_operations;
}

berthi_operations
berthi_level_operations(berthi_cpu_level level)
{
    const berthi_operations *const own = own_operations(level);
    berthi_operations all = berthi_scalar_operations;

    all.level = own->level;
#define TAKE(entry)                                                                        \
    if (own->entry != NULL)                                                                \
    all.entry = own->entry
    TAKE(encode_nf4);
    TAKE(encode_fp4);
    TAKE(encode_map);
    TAKE(decode_nf4);
    TAKE(decode_fp4);
    TAKE(decode_map);
    TAKE(encode_double);
    TAKE(decode_double);
    TAKE(encode_rows);
    TAKE(decode_rows);
    TAKE(multiply_nf4);
    TAKE(multiply_fp4);
    TAKE(dot_int8);
#undef TAKE
    return all;
}
