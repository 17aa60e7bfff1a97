/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_open.c - cuBLASLt, opened at run time; see gemm_calls.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/gemm_calls.h"
#include "kernels/sys.h"

/* The generations whose calls are those of gemm_calls.h. */
static const int32_t generations[] = { 13, 12 };

static bool
has_symbols(void *library, berthi_gemm_calls *out)
{
#define HAS_CALL(member, result, arguments, symbol)                                        \
    && berthi_sys_library_has(library, symbol, &out->member)
    return true BERTHI_GEMM_CALLS(HAS_CALL);
#undef HAS_CALL
}

/* False: `why` says so, unless it says something of another generation already. */
static bool
open_library(int32_t generation, berthi_gemm_calls *out, char *why)
{
    char name[32];
    void *library;

    snprintf(name, sizeof name, "libcublasLt.so.%" PRId32, generation);
    library = berthi_sys_library_open(name);
    if (library != NULL && has_symbols(library, out))
        return true;
    if (library != NULL || why[0] == '\0')
        snprintf(why, BERTHI_GEMM_WHY_CAPACITY, "%s %s", name,
                 library != NULL ? "lacks calls that berth needs"
                                 : "is not on this machine");
    berthi_sys_library_close(library);
    return false;
}

bool
berthi_gemm_open(int32_t generation, berthi_gemm_calls *out,
                 char why[BERTHI_GEMM_WHY_CAPACITY])
{
    why[0] = '\0';
    if (open_library(generation, out, why))
        return true;
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++)
        if (generations[i] != generation && open_library(generations[i], out, why)) {
            why[0] = '\0';
            return true;
        }
    memset(out, 0, sizeof *out);
    return false;
}
