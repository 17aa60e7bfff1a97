/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_cuda.c - loads onto GPUs of a fake runtime that does everything late, and
 * passes over what was loaded: every byte of every layer, when and where it is used.
 */
#include "loader/dlpack.h"
#include "tests/fake_cuda.h"
#include "tests/loaded.h"
#include "tests/passed.h"
#include "tests/simt.h"
#include "tests/t.h"

#define LAYERS 3u
#define MIB UINT64_C(1048576)

/*
 * Loads, compares with `folder`, passes over the layers, in which there are so many
 * `tensors`; everything is given back.
 */
static void
check_load(const char *source, const char *folder, berth_plan_options *options,
           uint32_t gpus, uint64_t tensors, berth_lease_summary *leases)
{
    const fake_cuda_machine machine = { .count = gpus, .driver = 13000, .architecture = 90,
                                        .memory_bytes = 32 * MIB, .is_late = true };
    berth_check_report report;
    loaded l;

    fake_cuda_begin(&machine);
    loaded_begin(&l, source, options, NULL);
    CHECK_EQ(berthi_devices_open_cuda(l.p.context, fake_cuda_calls(), "cuda", &l.devices,
                                      &l.error),
             BERTH_OK);
    l.options.devices = l.devices;
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s", l.error.message);
    if (l.status == BERTH_OK) {
        CHECK_EQ(fake_cuda_read().allocations, gpus); /* a slab each */
        CHECK_EQ(l.report.planned_bytes, l.report.allocated_bytes);
        loaded_check(&l, folder);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(passed(&l, 3), tensors);
        berth_model_leases(l.model, leases);
    }
    loaded_end(&l);
    fake_cuda_check_empty();
    CHECK_EQ(fake_cuda_error_left(), 0);
    CHECK_EQ(fake_cuda_current(), 0);
    fake_cuda_end();
}

static void
test_resident(void)
{
    const char *const source = loaded_llama(LAYERS, "BF16", 2);
    berth_plan_options options = loaded_options("0=32MiB,cpu=64MiB");
    berth_lease_summary leases;

    check_load(source, source, &options, 1, LAYERS * 10 + 3, &leases);
    CHECK_EQ(leases.acquired, 0);
}

/* By the kernels' bodies, while it is loaded: the bytes that berth_convert_start() writes. */
static void
test_encoded(void)
{
    const char *const source = loaded_llama(1, "BF16", 2);
    berth_plan_options options = loaded_options("0=32MiB,cpu=64MiB");
    berth_lease_summary leases;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    options.type = BERTH_ENCODING_NF4;
    options.double_quant = 1;
    check_load(source, loaded_quantized(source, &options), &options, 1, 10 + 3,
               &leases);
    options.type = BERTH_ENCODING_INT8;
    options.double_quant = 0;
    check_load(source, loaded_quantized(source, &options), &options, 1, 10 + 3,
               &leases);
}

/* What has to be encoded there, where no kernels are for the GPU; as it is it can be loaded. */
static void
test_without_kernels(void)
{
    const fake_cuda_machine machine = { .count = 1, .driver = 13000, .architecture = 75,
                                        .memory_bytes = 32 * MIB };
    const char *const source = loaded_llama(1, "BF16", 2);

    for (int i = 0; i < 2; i++) {
        berth_plan_options options = loaded_options("0=32MiB,cpu=64MiB");
        loaded l;

        options.type = i == 0 ? BERTH_ENCODING_NF4 : BERTH_ENCODING_NATIVE;
        fake_cuda_begin(&machine);
        loaded_begin(&l, source, &options, NULL);
        CHECK_EQ(berthi_devices_open_cuda(l.p.context, fake_cuda_calls(), "cuda", &l.devices,
                                          &l.error),
                 BERTH_OK);
        l.options.devices = l.devices;
        loaded_load(&l);
        CHECK_EQ(l.status, i == 0 ? BERTH_EUNSUPPORTED : BERTH_OK);
        if (i == 0)
            CHECK_STR(l.error.message, "cuda:0: no kernels for sm_75 are built in; make CUDA=1 "
                                       "ARCH=75 builds them");
        loaded_end(&l);
        fake_cuda_check_empty();
        fake_cuda_end();
    }
}

/* A layer has 9.01 MiB, all but 12 KiB of it in matrices. */
static void
test_streamed(void)
{
    static const char *const budgets[] = { "0=32MiB,cpu=64MiB", "0=22MiB,1=22MiB,cpu=64MiB",
                                           "0=32MiB,cpu=2MiB,disk=inf" };
    const char *const source = loaded_large(2 * LAYERS, 2);

    for (uint32_t i = 0; i < 3; i++) {
        berth_plan_options options = loaded_options(budgets[i]);
        berth_lease_summary leases;

        check_load(source, source, &options, i == 1 ? 2 : 1, 2 * LAYERS * 10 + 2,
                   &leases); /* not the embedding */
        CHECK_GT(leases.acquired, 0);
        CHECK_GT(leases.copied_bytes + leases.disk_bytes, MIB);
        CHECK_EQ(leases.order_misses, 0);
    }
}

/* Others are told the number that the runtime gives a GPU, whichever of berth's it is. */
static void
test_lent(void)
{
    static const int32_t numbers[] = { 2, 1 };
    const fake_cuda_machine machine = { .count = 3, .driver = 13000, .architecture = 90,
                                        .memory_bytes = 32 * MIB };
    berth_plan_options options = loaded_options("0=22MiB,1=22MiB,cpu=64MiB");
    uint32_t lent[3] = { 0 };
    loaded l;

    fake_cuda_begin(&machine);
    loaded_begin(&l, loaded_large(2 * LAYERS, 1), &options, NULL);
    CHECK_EQ(berthi_devices_open_cuda(l.p.context, fake_cuda_calls(), "cuda:2;cuda:1",
                                      &l.devices, &l.error),
             BERTH_OK);
    l.options.devices = l.devices;
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    for (uint64_t i = 0; i < l.p.summary.berth_count; i++) {
        struct DLManagedTensorVersioned *m = NULL;
        berth_model_tensor t;
        bool is_on_gpu;

        CHECK_EQ(berth_model_get_tensor(l.model, i, &t), BERTH_OK);
        is_on_gpu = t.is_resident != 0;
        T_REQUIRE(berth_model_dlpack(l.model, i, 0, &m, NULL) == BERTH_OK);
        CHECK_EQ(m->dl_tensor.device_type,
                 is_on_gpu ? BERTHI_DLPACK_CUDA : BERTHI_DLPACK_CUDA_HOST);
        CHECK_EQ(m->dl_tensor.device_id, is_on_gpu ? numbers[t.device] : 0);
        lent[is_on_gpu ? t.device : 2]++;
        m->deleter(m);
    }
    for (int i = 0; i < 3; i++)
        CHECK_GT(lent[i], 0);
    loaded_end(&l);
    fake_cuda_check_empty();
    fake_cuda_end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_resident);
    T_RUN(test_encoded);
    T_RUN(test_without_kernels);
    T_RUN(test_streamed);
    T_RUN(test_lent);
    T_MAIN_END;
}
