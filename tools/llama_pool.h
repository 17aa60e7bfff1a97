/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_pool.h - threads that wait for the next piece of work.
 *
 * A token is a few hundred short pieces of work: too short to start threads for
 * each. These look out for the next one for a while before they sleep.
 */
#ifndef BERTH_TOOLS_LLAMA_POOL_H
#define BERTH_TOOLS_LLAMA_POOL_H

#include <stdint.h>

#include "loader/berth.h"

#define LLAMA_POOL_MAX 64u

typedef struct llama_pool llama_pool;

/* Part `part` of the work, on thread `worker` of the pool's. */
typedef void (*llama_pool_work)(void *user, uint32_t worker, uint32_t part);

/*
 * `threads` that work, the caller's among them: 1 to LLAMA_POOL_MAX, 0: as many as
 * `cores`. Free it with llama_pool_destroy(). BERTH_ENOMEM.
 */
berth_status llama_pool_create(uint32_t threads, uint32_t cores, llama_pool **out,
                               berth_error *error);
/* NULL is allowed. */
void llama_pool_destroy(llama_pool *pool);
uint32_t llama_pool_threads(const llama_pool *pool);

/*
 * Does parts 0 to `parts` - 1 and returns; from one thread at a time, whichever. A
 * thread that sleeps is not waited for: those that are awake do its parts.
 */
void llama_pool_run(llama_pool *pool, uint32_t parts, llama_pool_work work, void *user);

#endif
