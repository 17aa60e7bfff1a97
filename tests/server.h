/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.h - a server of two models, as somebody writes it who has berth.h and nothing
 * else. It reads requests and writes answers, one a line, and its loop never waits: what
 * takes time is a job of berth, or an order to its engine, a thread.
 *
 *     devices WORDS        opens them; an answer, as to all others: "ok", or
 *                          "failed STATUS REASON FILE"
 *     wait MILLISECONDS    with which models load that do from now on: what hangs for so long
 *                          has failed. At first a minute, which no machine is too busy for
 *     seat 0|1             of which model the requests are from now on; 0 at first
 *     load MEMORY FOLDER   checkpoint and plan by the engine, then a job
 *     sleep, wake          jobs
 *     swap                 a job: the seat's model sleeps, the other one wakes, and the
 *                          seat is the other's
 *     cancel               the job under way; it is the job that answers
 *     pass COUNT           over all layers, by the engine: "passed CHECKSUM"
 *     digest               of all tensors in their berths: "digest NUMBER"
 *     misuse               leases that are none: "misused REASON REASON REASON"
 *     unload
 *     quit                 "longest NANOSECONDS WHAT": of the steps of the loop
 */
#ifndef BERTH_TESTS_SERVER_H
#define BERTH_TESTS_SERVER_H

/* Until `quit`; both descriptors are the caller's. 0, or -1 when it could not begin. */
int server_run(int requests, int answers);

#endif
