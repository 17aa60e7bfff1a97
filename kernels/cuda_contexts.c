/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_contexts.c - the driver's calls about contexts, looked up at run time; see cuda_calls.h. */
#include <string.h>

#include "kernels/cuda_calls.h"
#include "kernels/sys.h"

/* POSIX makes what dlsym gives a function's address; C has no conversion for that. */
static bool
has_symbol(void *driver, const char *name, void *out_function)
{
    void *const symbol = berthi_sys_library_symbol(driver, name);

    memcpy(out_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* The driver stays open: the runtime does not close it either. */
bool
berthi_cuda_find_contexts(berthi_cuda_contexts *out)
{
    void *const driver = berthi_sys_library_open("libcuda.so.1");

    if (driver != NULL && has_symbol(driver, "cuCtxGetCurrent", &out->current)
        && has_symbol(driver, "cuCtxSetCurrent", &out->make_current)
        && has_symbol(driver, "cuDeviceGet", &out->find_device)
        && has_symbol(driver, "cuDevicePrimaryCtxRetain", &out->retain))
        return true;
    berthi_sys_library_close(driver);
    *out = (berthi_cuda_contexts){ .current = NULL };
    return false;
}
