/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.h - one run of one command: its streams, its context, and how a model
 * is opened with the options that all commands share.
 */
#ifndef BERTH_TOOLS_SESSION_H
#define BERTH_TOOLS_SESSION_H

#include "loader/berth.h"
#include "tools/cli.h"
#include "tools/colour.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/trace.h"

/* How a command shows how far its job is. */
typedef struct progress_arguments {
    int32_t mode; /* a progress_mode */
    uint32_t fd;
} progress_arguments;

/* Rows of an option table; `member` is the progress_arguments of struct `type`. */
#define PROGRESS_OPTIONS(type, member)                                                     \
    { "progress", '\0', CLI_CHOICE, offsetof(type, member.mode), PROGRESS_WORDS, NULL,    \
      "auto", "a bar on a terminal and a line every 5 s elsewhere; or as said" },          \
    { "progress-fd", '\0', CLI_NUMBER, offsetof(type, member.fd), "N", NULL, "2",         \
      "descriptor for progress" }

/* BERTH_EINVAL, told, where that descriptor is not open. */
berth_status progress_check(const cli_call *call, const progress_arguments *shown);

/* A row of the option table of a command that reads weights: a berth_io. */
#define IO_OPTION(type, member)                                                            \
    { "io", '\0', CLI_CHOICE, offsetof(type, member), "auto|direct|buffered", "BERTH_IO", \
      "auto", "past the page cache, through it, or whichever suits the files" }

typedef struct session {
    const cli_call *call;
    const cli_common *common;
    screen screen; /* of standard output */
    output out;    /* standard output: data, nothing else */
    progress progress;
    trace trace;   /* begun before session_start(): what the context does, as files */
    berth_context *context;
    bool is_quiet;  /* of findings only errors are shown */
    bool has_error; /* among the findings */
    bool is_silent; /* nothing of the log is shown: it will all be said once more */
} session;

/* `call` may be NULL: for what is printed without a command. */
void session_init(session *s, const cli_call *call, cli_environment environment);
/*
 * Makes s->context and the progress display on `progress_fd`; the library's
 * log goes to standard error. What fails is printed.
 */
berth_status session_start(session *s, int progress_fd, progress_mode mode);
/* The same for a job; --quiet is about findings, too, and leaves a bar that was asked for. */
berth_status session_start_job(session *s, const progress_arguments *shown, bool is_quiet);
/*
 * Writes what is left and frees everything. Returns `status`, or BERTH_EIO if
 * it was good but standard output could not be written.
 */
berth_status session_end(session *s, berth_status status);

/* "ok  ", with which a line of standard output begins. */
void session_print_word(session *s, const char *word, colour style);
/* A dim line below an empty one, over what belongs together. */
void session_print_heading(session *s, const char *text);
/* A line on standard error that does not run into the bar. */
void session_print_finding(session *s, const berth_finding *finding);
/* A berth_finding_function, `user` being the session: the first error is remembered. */
void session_finding(void *user, const berth_finding *finding);
/*
 * The same of berth_plan_create(): its error names all tiers that are short, which are not told
 * one by one besides.
 */
void session_plan_finding(void *user, const berth_finding *finding);
/* Returns `status`; its error is printed, unless a finding was one. */
berth_status session_tell(session *s, berth_status status, const berth_error *error);

/* --------------------------------------------------------------------- jobs */

/* A berth_progress_function, `user` being the session: Ctrl-C cancels. */
int session_progress(void *user, const berth_progress *now);
/* Waits for the end of the job, looking out for Ctrl-C. */
void session_watch(session *s, berth_job *job);
/* The same, and finishes it. */
berth_status session_see_through(session *s, berth_job *job, berth_error *error);
/* The same with a load. */
berth_status session_see_loaded(session *s, berth_job *job, berth_model **out_model,
                                berth_error *error);

/* ------------------------------------------------------------------- models */

#define MODEL_PATH_CAPACITY 4096

/* How a model is looked up. */
typedef struct model_arguments {
    const char *hub_cache;
    const char *variant;
    bool wants_all;
    char hub_cache_text[MODEL_PATH_CAPACITY]; /* where hub_cache may point */
} model_arguments;

/* What the arguments of a command that opens a model begin with. */
typedef struct model_call {
    cli_common common;
    model_arguments model;
} model_call;

/* Rows of such a command's option table; `type` are its arguments. */
#define MODEL_OPTIONS(type)                                                                \
    { "variant", '\0', CLI_TEXT, MODEL_AT(type, variant), "NAME", NULL, NULL,             \
      "open model.NAME.safetensors, such as fp16" },                                       \
    { "all", '\0', CLI_FLAG, MODEL_AT(type, wants_all), NULL, NULL, NULL,                 \
      "a folder of several files without an index is one model" },                         \
    { "hub-cache", '\0', CLI_TEXT, MODEL_AT(type, hub_cache), "DIR", "HF_HUB_CACHE", NULL, \
      "where `org/name` is looked up" }
/* Compiled where `type` begins as a model_call. */
#define MODEL_AT(type, field)                                                              \
    (offsetof(type, model.field) + 0 * sizeof(struct {                                     \
         char nothing;                                                                     \
         _Static_assert(offsetof(type, model) == offsetof(model_call, model),              \
                        "what opens a model has another beginning");                       \
     }))

/* Its settle function. */
berth_status model_settle(cli_call *call);

/* `options` beyond the shared ones are the caller's; initializes nothing else. */
void model_options_fill(berth_open_options *options, const model_arguments *model);

/* Opens the first operand; what is found and what fails goes through session_finding(). */
berth_status session_open_model(session *s, const model_arguments *model,
                                berth_checkpoint **out_checkpoint);

#endif
