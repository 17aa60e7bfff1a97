/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_engine.h - the half of the server that may wait: what opens, plans, passes and
 * gives back. Only for server*.c.
 */
#ifndef BERTH_TESTS_SERVER_ENGINE_H
#define BERTH_TESTS_SERVER_ENGINE_H

#include <pthread.h>
#include <stdint.h>

#include "loader/berth.h"

#define SERVER_LINE 1024u
/* At first; see `wait` in server.h. */
#define SERVER_WAIT_MS 60000u

typedef enum server_order {
    ORDER_NONE,
    ORDER_DEVICES,
    ORDER_OPEN,
    ORDER_PASS,
    ORDER_DIGEST,
    ORDER_MISUSE,
    ORDER_UNLOAD,
    ORDER_END
} server_order;

/* A model, and what it needs. */
typedef struct server_seat {
    berth_checkpoint *checkpoint;
    berth_plan *plan;
    berth_model *model;
} server_seat;

/* The engine's while it has an order, else the loop's. */
typedef struct server_engine {
    char argument[SERVER_LINE]; /* of the order */
    char memory[128];
    uint32_t wait_ms; /* after that a device or disk is said to hang */
    char answer[SERVER_LINE + 64];
    berth_context *context;
    berth_devices *devices;
    server_seat seats[2];
    server_seat *seat; /* of the order */
    struct layer_work *work; /* what a stream may still be at; NULL: nothing */
    berth_status status;
    berth_error error;

    int done; /* gets a byte when an order has been obeyed */
    pthread_mutex_t lock;
    pthread_cond_t has_order;
    server_order given;
    pthread_t thread;
} server_engine;

/* 0, or -1. */
int server_engine_begin(server_engine *engine, int done);
/* Has no order; whatever it has is given back, and how much memory the context still has. */
uint64_t server_engine_end(server_engine *engine);
void server_engine_order(server_engine *engine, server_order what);

#endif
