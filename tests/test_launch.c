/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches without a device: of nothing there is none, the largest grid is one
 * and what is beyond it is refused, and so are block sizes and dtypes that no
 * kernel has. What launches compute is for the tests of the kernels.
 */
#include "kernels/launch.h"
#include "tests/t.h"

static const uint64_t most = BERTHI_MOST_CTAS;

static berth_status
encode(uint64_t count, uint32_t block_size, int32_t dtype, berthi_launch *out)
{
    return berthi_launch_encode_nf4(
        &(berthi_encode_arguments){ .dtype = dtype, .block_size = block_size, .count = count },
        out, NULL);
}

static berth_status
encode_rows(uint64_t rows, uint64_t columns, berthi_launch *out)
{
    return berthi_launch_encode_rows(
        &(berthi_rows_arguments){ .dtype = BERTH_BF16, .rows = rows, .columns = columns }, out,
        NULL);
}

static void
test_nothing_is_no_launch(void)
{
    const berthi_rows_decode_arguments no_rows = { .dtype = BERTH_F32, .columns = 8 };
    const berthi_mean_arguments no_values = { .count = 0 };
    berthi_launch l[2];
    float mean;

    CHECK_EQ(encode(0, 64, BERTH_BF16, l), BERTH_OK);
    CHECK_EQ(l[0].kernel, KERNEL_NONE);
    CHECK_EQ(encode_rows(0, 64, l), BERTH_OK);
    CHECK_EQ(l[0].kernel, KERNEL_NONE);
    CHECK_EQ(berthi_launch_decode_rows(&no_rows, l, NULL), BERTH_OK);
    CHECK_EQ(l[0].kernel, KERNEL_NONE);
    CHECK_EQ(berthi_launch_mean(&no_values, &mean, l, NULL), BERTH_OK);
    CHECK_EQ(l[0].kernel, KERNEL_NONE);
    CHECK_EQ(l[1].kernel, KERNEL_NONE);
}

static void
test_grids_end(void)
{
    berthi_launch l;

    CHECK_EQ(encode(most * ENCODE_CTA, 64, BERTH_BF16, &l), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_encode_nf4_bf16_64);
    CHECK_EQ(l.ctas, most);
    CHECK_EQ(l.threads, ENCODE_THREADS);
    CHECK_EQ(encode(most * ENCODE_CTA + 1, 64, BERTH_BF16, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    CHECK_EQ(encode_rows(most, 4096, &l), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_int8_encode_bf16_cta);
    CHECK_EQ(l.ctas, most);
    CHECK_EQ(encode_rows(most + 1, 4096, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    /* Four rows a CTA. */
    CHECK_EQ(encode_rows(4 * most, 64, &l), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_int8_encode_bf16_warp);
    CHECK_EQ(l.ctas, most);
    CHECK_EQ(encode_rows(4 * most + 1, 64, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(encode_rows(UINT64_MAX / 8, 64, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(encode_rows(1, UINT64_C(1) << 32, &l), BERTH_EUNSUPPORTED);
}

static void
test_what_no_kernel_does(void)
{
    berth_error error = { 0 };
    berthi_launch l;

    CHECK_EQ(encode(1, 32, BERTH_F32, &l), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_encode_nf4_f32);
    CHECK_EQ(encode(1, 4096, BERTH_F16, &l), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_encode_nf4_f16);
    CHECK_EQ(encode(1, 16, BERTH_F16, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(encode(1, 8192, BERTH_F16, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(encode(1, 65, BERTH_F16, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(encode(1, 0, BERTH_F16, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(encode(1, 64, BERTH_U8, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    CHECK_EQ(berthi_launch_encode_fp4(
                 &(berthi_encode_arguments){ .dtype = BERTH_BF16, .block_size = 48 }, &l,
                 &error),
             BERTH_EUNSUPPORTED);
    CHECK_EQ(error.reason, BERTH_REASON_UNSUPPORTED);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_nothing_is_no_launch);
    T_RUN(test_grids_end);
    T_RUN(test_what_no_kernel_does);
    T_MAIN_END;
}
