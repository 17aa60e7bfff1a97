/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_peer.c - copies from one GPU to another; see cuda_device.h. */
#include "kernels/cuda_device.h"

/* True: the peer is within reach. It is no failure of anything that it cannot be. */
static bool
enable_peer(const berthi_cuda_call *call, int peer)
{
    int is_possible = 0;
    int code = call->calls->peer_can(&is_possible, call->device->base.ordinal, peer);

    if (code == BERTHI_CUDA_OK && is_possible != 0)
        code = call->calls->peer_enable(peer);
    if (code != BERTHI_CUDA_OK)
        (void)call->calls->last_error();
    /* Somebody else in this process may have done it before. */
    return is_possible != 0 && (code == BERTHI_CUDA_OK || code == BERTHI_CUDA_PEER_ENABLED);
}

static bool
enable(berthi_cuda_device *device, const berthi_cuda_device *other)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_enter(&call, &device->base, "reaching a GPU", NULL);
    const bool is_reached = status == BERTH_OK && enable_peer(&call, other->base.ordinal);

    berthi_cuda_leave(&call, status);
    return is_reached;
}

bool
berthi_cuda_reaches(berthi_device *device, berthi_device *other)
{
    berthi_cuda_device *const d = (berthi_cuda_device *)device;
    const berthi_cuda_device *const peer = (const berthi_cuda_device *)other;
    uint8_t *const known = &d->peers[other->number];
    bool is_reached;

    if (device == other)
        return false;
    pthread_mutex_lock(&d->peer_lock);
    if (*known == BERTHI_CUDA_PEER_UNKNOWN)
        *known = enable(d, peer) ? BERTHI_CUDA_PEER_REACHED : BERTHI_CUDA_PEER_OUT_OF_REACH;
    is_reached = *known == BERTHI_CUDA_PEER_REACHED;
    pthread_mutex_unlock(&d->peer_lock);
    return is_reached;
}

berth_status
berthi_cuda_copy_to_peer(const berthi_cuda_call *call, const berthi_copy *copy,
                         berthi_stream *stream)
{
    berthi_cuda_device *const peer = (berthi_cuda_device *)copy->peer;
    const berth_status status = berthi_cuda_check(peer, call->error);

    if (status != BERTH_OK)
        return status;
    return berthi_cuda_judge_both(call, peer,
                                  call->calls->peer_copy(copy->to, peer->base.ordinal, copy->from,
                                                         call->device->base.ordinal, copy->bytes,
                                                         stream));
}
