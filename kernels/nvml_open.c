/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_open.c - NVML, opened at run time; see nvml_calls.h. */
#include <string.h>

#include "kernels/nvml_calls.h"
#include "kernels/sys.h"

static bool
has_symbols(void *library, berthi_nvml_calls *out)
{
#define HAS_CALL(member, arguments, symbol)                                                \
    && berthi_sys_library_has(library, symbol, &out->member)
    return true BERTHI_NVML_CALLS(HAS_CALL);
#undef HAS_CALL
}

bool
berthi_nvml_open(berthi_nvml_calls *out)
{
    void *const library = berthi_sys_library_open("libnvidia-ml.so.1");

    if (library != NULL && has_symbols(library, out))
        return true;
    berthi_sys_library_close(library);
    memset(out, 0, sizeof *out);
    return false;
}
