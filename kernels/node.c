/* SPDX-License-Identifier: Apache-2.0 */
/* node.c - see node.h. */
#include "kernels/node.h"

#include <errno.h>

#include "kernels/host.h"
#include "kernels/sys.h"

/* Asked for the first buffer of whole pages, and until there is an answer. */
static bool
has_nodes(berth_context *context)
{
    uint32_t count = atomic_load(&context->node_count);

    if (count == 0) {
        count = berthi_host_node_count(context->root);
        atomic_store(&context->node_count, count);
    }
    return count > 1;
}

void
berthi_node_bring(berthi_device *device, void *memory, uint64_t bytes, uint64_t alignment)
{
    berth_context *const context = device->context;
    berthi_device_properties properties;

    /* A device looks around the whole machine to describe itself: not without need. */
    if (!berthi_memory_is_mapped(context, bytes, alignment) || !has_nodes(context))
        return;
    device->table->describe(device, &properties);
    if (properties.numa_node < 0
        || berthi_sys_prefer_node(memory, (size_t)bytes, (uint32_t)properties.numa_node)
            == 0
        || atomic_exchange(&context->is_node_refused, true))
        return;
    berthi_log(context, BERTH_LOG_DEBUG,
               "staging of %s lies wherever there is memory, not on its node %d: %s",
               properties.name, (int)properties.numa_node, berthi_sys_error_words(errno));
}
