/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_driver.c - calls of the driver that are looked up at run time; see cuda_calls.h. */
#include "kernels/cuda_calls.h"
#include "kernels/sys.h"

/* The driver stays open: the runtime does not close it either. */
bool
berthi_cuda_find_contexts(berthi_cuda_contexts *out)
{
    void *const driver = berthi_sys_library_open("libcuda.so.1");

    if (driver != NULL && berthi_sys_library_has(driver, "cuCtxGetCurrent", &out->current)
        && berthi_sys_library_has(driver, "cuCtxSetCurrent", &out->make_current)
        && berthi_sys_library_has(driver, "cuDeviceGet", &out->find_device)
        && berthi_sys_library_has(driver, "cuDevicePrimaryCtxRetain", &out->retain))
        return true;
    berthi_sys_library_close(driver);
    *out = (berthi_cuda_contexts){ .current = NULL };
    return false;
}

bool
berthi_cuda_find_tiles(berthi_cuda_tiles **out)
{
    void *const driver = berthi_sys_library_open("libcuda.so.1");

    if (driver != NULL && berthi_sys_library_has(driver, "cuTensorMapEncodeTiled", out))
        return true;
    berthi_sys_library_close(driver);
    *out = NULL;
    return false;
}
