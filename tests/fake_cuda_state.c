/* SPDX-License-Identifier: Apache-2.0 */
/* fake_cuda_state.c - see fake_cuda_state.h */
#include "tests/fake_cuda_state.h"

fake_cuda_state fake_cuda_now = { .lock = PTHREAD_MUTEX_INITIALIZER };
_Thread_local int fake_cuda_device;
_Thread_local int fake_cuda_chosen;
_Thread_local bool fake_cuda_has_context;
_Thread_local bool fake_cuda_has_other;
_Thread_local int fake_cuda_error;
_Thread_local int fake_cuda_mode;

static bool
is_end(int code)
{
    return code == BERTHI_CUDA_ECC || (code >= 700 && code < 722 && code != BERTHI_CUDA_PEER_ENABLED
               && code != 712 && code != 713);
}

/* What the call of this number has to return. */
static int
end_of(uint64_t call)
{
    if (!fake_cuda_now.is_armed || call < fake_cuda_now.nth
        || (call > fake_cuda_now.nth && !fake_cuda_now.is_persistent))
        return BERTHI_CUDA_OK;
    fake_cuda_now.failures++;
    if (is_end(fake_cuda_now.code))
        fake_cuda_now.ended[fake_cuda_device] = fake_cuda_now.code;
    return fake_cuda_now.code;
}

/* What every call begins with: 0, or what it has to return. The lock is taken. */
int
fake_cuda_enter(void)
{
    uint64_t call;
    uint64_t within;

    pthread_mutex_lock(&fake_cuda_now.lock);
    call = fake_cuda_now.called++;
    within = fake_cuda_now.called_within++;
    return end_of(fake_cuda_now.is_within ? within : call);
}

int
fake_cuda_enter_choice(void)
{
    uint64_t call;

    pthread_mutex_lock(&fake_cuda_now.lock);
    call = fake_cuda_now.called++;
    return fake_cuda_now.is_within ? BERTHI_CUDA_OK : end_of(call);
}

void
fake_cuda_use_context(int device)
{
    fake_cuda_device = device;
    fake_cuda_has_context = true;
    fake_cuda_now.books.has_context[device] = true;
}

int
fake_cuda_enter_context(void)
{
    const int code = fake_cuda_enter();

    fake_cuda_use_context(fake_cuda_device);
    return code == BERTHI_CUDA_OK && fake_cuda_has_other ? fake_cuda_misuse(INVALID_CONTEXT)
                                                         : code;
}

int
fake_cuda_enter_current(void)
{
    const int code = fake_cuda_enter_context();

    return code != BERTHI_CUDA_OK ? code : fake_cuda_now.ended[fake_cuda_device];
}

int
fake_cuda_leave(int code)
{
    if (code != BERTHI_CUDA_OK)
        fake_cuda_error = code;
    pthread_mutex_unlock(&fake_cuda_now.lock);
    return code;
}

int
fake_cuda_misuse(int code)
{
    fake_cuda_now.books.misuses++;
    return code;
}
