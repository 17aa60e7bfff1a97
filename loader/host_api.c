/* SPDX-License-Identifier: Apache-2.0 */
/* host_api.c - the host of berth.h: the machine, and the libraries the loader found. */
#include "kernels/base.h"
#include "kernels/device.h"
#include "kernels/digest.h"
#include "kernels/host.h"
#include "loader/sha256.h"

berth_status
berth_host_get(berth_context *context, berth_host *host, berth_error *error)
{
    berthi_host_process process;

    berthi_error_clear(error);
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    if (host == NULL)
        return berthi_fail_argument(error, "host", "is NULL");
    berthi_host_process_get(&process);
    berthi_host_read("/", &process, host);
    host->gpu_supported = berthi_devices_cuda() != NULL;
    berthi_devices_architectures(berthi_devices_cuda(), host->gpu_architectures,
                                 sizeof host->gpu_architectures);
    host->has_reciprocals = 1; /* kernels/reciprocal.h */
    host->has_libdeflate = berthi_digest_is_fast();
    host->has_libcrypto = berthi_sha256_is_there(context);
    return BERTH_OK;
}
