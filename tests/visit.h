/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visit.h - somebody who talks with the server of tests/server.c, and scenes that are
 * played before it until its loop was never away for long.
 */
#ifndef BERTH_TESTS_VISIT_H
#define BERTH_TESTS_VISIT_H

#include <pthread.h>
#include <stdio.h>

/* The device and budgets with which layers are streamed, from host memory or the disk. */
#define VISIT_DEVICE "sim:26MiB,h2d=2GB/s,clock=real"
#define VISIT_FROM_HOST "0=26MiB,cpu=64MiB"
#define VISIT_FROM_DISK "0=26MiB,cpu=2MiB,disk=inf"

typedef struct visit {
    int descriptors[2]; /* the test's, the server's */
    pthread_t thread;
    FILE *answers;
    char line[1024];
} visit;

/* Folders of models; both are what they were when a scene ends. */
typedef struct visit_models {
    const char *a;
    const char *b;
} visit_models;

typedef void (*visit_scene)(visit *v, const visit_models *m);

/*
 * Plays the scene, once more where a step of the loop took too long: what waits by itself
 * does so each time, what a loaded machine does to the server it does not do twenty times.
 */
void visit_play(visit_scene scene);

/* Requests, one a line, that the server reads at once. */
void visit_say(visit *v, const char *requests);
/* The next answer; until the next one. */
const char *visit_hear(visit *v);
const char *visit_ask(visit *v, const char *request);
/* Of models that are loaded from now on: after how long a disk or device hangs. */
#define VISIT_IMPATIENT "wait 2000"
#define VISIT_PATIENT   "wait 60000"
/* "load MEMORY FOLDER" */
const char *visit_load(const char *memory, const char *folder);

/* The model is impatient, those behind it are not. Once more where the machine is too busy. */
void visit_load_impatient(visit *v, const char *memory, const char *folder);

/* What models say when all is well: sums of passes, digests. */
typedef struct visit_words {
    char passed[64];
    char digest[64];
} visit_words;

/* Of the model of the seat, which is loaded. */
void visit_note(visit *v, visit_words *out);
/* It says that still. */
void visit_check(visit *v, const visit_words *words);
/* Loads it, notes, unloads it. */
void visit_try(visit *v, const char *memory, const char *folder, visit_words *out);
/* Passes until one is right: what was on its way when something failed comes first. */
void visit_recover(visit *v, const visit_words *words);

#endif
