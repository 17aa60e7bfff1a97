/* SPDX-License-Identifier: Apache-2.0 */
/* fake_cuda_copy.c - what streams are asked for: copies, also to peers, kernels, calls */
#include "tests/fake_cuda_state.h"
#include "tests/simt.h"

/* Whether all of it is memory of the stream's GPU. */
bool
fake_cuda_holds(const void *handle, const void *at, uint64_t bytes)
{
    const fake_cuda_line *const s = fake_cuda_find_stream(handle);
    const fake_cuda_stretch *const memory =
        fake_cuda_find_memory(fake_cuda_now.allocations, at, bytes);

    return s != NULL && memory != NULL && memory->device == s->device;
}

/* What the runtime takes of the host: memory of one registration, or of none. */
static bool
is_one_memory(const void *at, uint64_t bytes)
{
    const uint8_t *const begin = at;

    for (const fake_cuda_stretch *s = fake_cuda_now.pins; s != NULL; s = s->next)
        if (begin < s->memory + s->bytes && s->memory < begin + bytes)
            return begin >= s->memory && begin + bytes <= s->memory + s->bytes;
    return true;
}

static int
fake_copy(void *to, const void *from, uint64_t bytes, int32_t kind, void *handle)
{
    const int code = fake_cuda_enter_current();

    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if ((kind != BERTHI_COPY_TO_HOST && !fake_cuda_holds(handle, to, bytes))
        || (kind != BERTHI_COPY_TO_DEVICE && !fake_cuda_holds(handle, from, bytes)))
        return fake_cuda_leave(fake_cuda_misuse(INVALID_VALUE));
    if ((kind == BERTHI_COPY_TO_HOST && !is_one_memory(to, bytes))
        || (kind == BERTHI_COPY_TO_DEVICE && !is_one_memory(from, bytes)))
        return fake_cuda_leave(fake_cuda_misuse(INVALID_VALUE));
    return fake_cuda_leave(fake_cuda_add_work(
        handle, &(fake_cuda_work){ .kind = COPY, .to = to, .from = from, .bytes = bytes }));
}

/* -------------------------------------------------------------------------------- peers */

static int
fake_peer_can(int *out, int device, int peer)
{
    const int code = fake_cuda_enter();

    *out = 0;
    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if (device == peer || device < 0 || peer < 0 || (uint32_t)device >= fake_cuda_now.machine.count
        || (uint32_t)peer >= fake_cuda_now.machine.count)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_DEVICE));
    *out = !fake_cuda_now.machine.is_apart;
    return fake_cuda_leave(BERTHI_CUDA_OK);
}

static int
fake_peer_enable(int peer)
{
    const int code = fake_cuda_enter_current();

    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if (fake_cuda_now.machine.is_apart || peer == fake_cuda_device)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_DEVICE));
    if (fake_cuda_now.reaches[fake_cuda_device][peer])
        return fake_cuda_leave(BERTHI_CUDA_PEER_ENABLED);
    fake_cuda_now.reaches[fake_cuda_device][peer] = true;
    return fake_cuda_leave(BERTHI_CUDA_OK);
}

/* The fake takes none that was not enabled; the runtime would go through the host. */
static int
fake_peer_copy(void *to, int to_device, const void *from, int from_device, uint64_t bytes,
               void *handle)
{
    const int code = fake_cuda_enter_current();
    const fake_cuda_stretch *const memory =
        fake_cuda_find_memory(fake_cuda_now.allocations, to, bytes);

    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if (from_device != fake_cuda_device
        || !fake_cuda_now.reaches[from_device][to_device] || memory == NULL
        || memory->device != to_device || !fake_cuda_holds(handle, from, bytes))
        return fake_cuda_leave(fake_cuda_misuse(INVALID_VALUE));
    if (fake_cuda_now.ended[to_device] != BERTHI_CUDA_OK)
        return fake_cuda_leave(fake_cuda_now.ended[to_device]);
    fake_cuda_now.books.peer_copies++;
    return fake_cuda_leave(fake_cuda_add_work(
        handle, &(fake_cuda_work){ .kind = COPY, .to = to, .from = from, .bytes = bytes }));
}

static int
fake_clear(void *memory, uint64_t bytes, void *handle)
{
    const int code = fake_cuda_enter_current();

    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if (!fake_cuda_holds(handle, memory, bytes))
        return fake_cuda_leave(fake_cuda_misuse(INVALID_VALUE));
    return fake_cuda_leave(fake_cuda_add_work(
        handle, &(fake_cuda_work){ .kind = CLEAR, .to = memory, .bytes = bytes }));
}

static int
fake_launch(const berthi_launch *its, berthi_cuda_tiles *tiles, bool overlaps, void *handle)
{
    const bool has_context = fake_cuda_has_context; /* the runtime begins one, this does not: */
    const int code = fake_cuda_enter_current();

    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if (its->matrices > 0 && !has_context) /* the driver describes them */
        return fake_cuda_leave(fake_cuda_misuse(INVALID_CONTEXT));
    if (its->kernel <= KERNEL_NONE || its->kernel >= KERNEL_COUNT || its->ctas == 0
        || its->ctas > BERTHI_MOST_CTAS || its->threads == 0 || its->threads > 1024)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_CONFIGURATION));
    if (its->room_bytes > fake_cuda_now.room_bytes[fake_cuda_device][its->kernel])
        return fake_cuda_leave(fake_cuda_misuse(INVALID_VALUE));
    if (its->matrices > 0 && tiles != fake_cuda_tiles)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_VALUE));
    if (overlaps
        && (fake_cuda_now.machine.architecture < 90
            || fake_cuda_now.machine.driver < BERTHI_CUDA_OVERLAPPING_VERSION))
        return fake_cuda_leave(fake_cuda_misuse(INVALID_VALUE));
    fake_cuda_now.books.overlapping += overlaps;
    return fake_cuda_leave(
        fake_cuda_add_work(handle, &(fake_cuda_work){ .kind = LAUNCH, .launch = *its }));
}

/* The toolkit's table of compute capabilities has it. */
uint32_t
fake_cuda_most_room(void)
{
    switch (fake_cuda_now.machine.architecture) {
    case 75: return 64u << 10;
    case 80:
    case 87: return 163u << 10;
    case 90:
    case 100:
    case 103:
    case 110: return 227u << 10;
    default: return 99u << 10;
    }
}

static int
fake_allow_room(berthi_kernel_id kernel, uint32_t bytes)
{
    const int code = fake_cuda_enter_current();

    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if (kernel <= KERNEL_NONE || kernel >= KERNEL_COUNT || bytes > fake_cuda_most_room())
        return fake_cuda_leave(fake_cuda_misuse(INVALID_VALUE));
    fake_cuda_now.room_bytes[fake_cuda_device][kernel] = bytes;
    return fake_cuda_leave(BERTHI_CUDA_OK);
}

static int
fake_call(void (*call)(void *user), void *user, void *handle)
{
    const int code = fake_cuda_enter_current();

    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    return fake_cuda_leave(fake_cuda_add_work(
        handle, &(fake_cuda_work){ .kind = CALL, .call = call, .user = user }));
}

void
fake_cuda_fill_copies(berthi_cuda_calls *calls)
{
    calls->copy = fake_copy;
    calls->peer_can = fake_peer_can;
    calls->peer_enable = fake_peer_enable;
    calls->peer_copy = fake_peer_copy;
    calls->clear = fake_clear;
    calls->launch = fake_launch;
    calls->allow_room = fake_allow_room;
    calls->call = fake_call;
}
