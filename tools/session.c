/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - streams, context, log, and the hub cache's place. */
#include "tools/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/input.h"
#include "tools/interrupt.h"

#define WAIT_MILLISECONDS 50 /* how late a Ctrl-C may be noticed */

void
session_init(session *s, const cli_call *call, cli_environment environment)
{
    memset(s, 0, sizeof *s);
    s->call = call;
    s->common = call != NULL ? call->arguments : NULL;
    screen_init(&s->screen, STDOUT_FILENO, environment,
                call != NULL && s->common->wants_no_colour);
    output_init(&s->out, STDOUT_FILENO);
}

/* The library's lines are whole and escaped; they must not run into a bar. */
static void
print_log_line(void *user, int32_t level, const char *line)
{
    static const char *const words[] = { "debug", "info", "warning" };
    session *const s = user;
    const int32_t lowest = s->common->verbosity >= 2 ? BERTH_LOG_DEBUG
                                                     : s->common->log_level;
    output out;

    if (s->is_silent || level < lowest || level < 0 || level > BERTH_LOG_WARNING)
        return;
    progress_hide(&s->progress);
    output_init(&out, STDERR_FILENO);
    output_format(&out, "berth: %s: ", words[level]);
    output_text(&out, line);
    output_text(&out, "\n");
    output_flush(&out);
    progress_show(&s->progress);
}

void
session_print_word(session *s, const char *word, colour style)
{
    output_format(&s->out, "%s%s%s  ", colour_begin(&s->screen, style), word,
                  colour_end(&s->screen, style));
}

void
session_print_heading(session *s, const char *text)
{
    output_format(&s->out, "\n%s%s%s\n", colour_begin(&s->screen, COLOUR_DIM), text,
                  colour_end(&s->screen, COLOUR_DIM));
}

void
session_print_finding(session *s, const berth_finding *finding)
{
    static const char *const words[] = { "note", "warning", "error" };
    const berth_error named = input_named(finding->details);
    char line[sizeof named + 512]; /* all of its texts, numbers and advice */
    output out;

    berth_error_format(&named, line, sizeof line);
    progress_hide(&s->progress);
    output_init(&out, STDERR_FILENO);
    output_format(&out, "berth %s: %s: ", s->call->command->name, words[finding->severity]);
    output_text(&out, line);
    output_text(&out, "\n");
    output_flush(&out);
    progress_show(&s->progress);
}

void
session_finding(void *user, const berth_finding *finding)
{
    session *const s = user;
    const bool is_error = finding->severity == BERTH_SEVERITY_ERROR;

    if (is_error && !s->has_error)
        cli_remember(finding->details);
    s->has_error = s->has_error || is_error;
    if (is_error || !s->is_quiet)
        session_print_finding(s, finding);
}

void
session_plan_finding(void *user, const berth_finding *finding)
{
    if (finding->severity != BERTH_SEVERITY_ERROR)
        session_finding(user, finding);
}

berth_status
session_tell(session *s, berth_status status, const berth_error *error)
{
    return status == BERTH_OK || s->has_error ? status : cli_error(s->call, error);
}

berth_status
session_start(session *s, int progress_fd, progress_mode mode)
{
    berth_context_options options;
    berth_error error;
    screen progress_screen;

    screen_init(&progress_screen, progress_fd, s->call->environment,
                s->common->wants_no_colour);
    if (!progress_init(&s->progress, progress_fd, &progress_screen, mode))
        return cli_failure(s->call->command, BERTH_ENOMEM, "out of memory");
    berth_context_options_init(&options);
    options.log = print_log_line;
    options.log_user = s;
    options.trace = trace_is_on(&s->trace) ? trace_event : NULL;
    options.trace_user = &s->trace;
    if (berth_context_create(&options, &s->context, &error) != BERTH_OK) {
        progress_fini(&s->progress);
        return cli_error(s->call, &error);
    }
    return BERTH_OK;
}

berth_status
session_start_job(session *s, const progress_arguments *shown, bool is_quiet)
{
    const bool is_silent = is_quiet && shown->mode == PROGRESS_AUTO;

    s->is_quiet = is_quiet;
    return session_start(s, (int)shown->fd,
                         is_silent ? PROGRESS_NEVER : (progress_mode)shown->mode);
}

berth_status
progress_check(const cli_call *call, const progress_arguments *shown)
{
    if (fcntl((int)shown->fd, F_GETFD) >= 0)
        return BERTH_OK;
    return cli_usage_error(call->command, "--progress-fd: descriptor %u is not open",
                           shown->fd);
}

berth_status
session_end(session *s, berth_status status)
{
    const cli_command *const command = s->call != NULL ? s->call->command : NULL;
    berth_status lost;

    output_flush(&s->out);
    if (s->context != NULL) {
        berth_context_destroy(s->context);
        progress_fini(&s->progress);
    }
    if (s->out.system_error == 0 || s->out.system_error == EPIPE)
        return status;
    /* Also after a failure: with --json standard output may be all that told of it. */
    lost = cli_failure(command, BERTH_EIO, "standard output: %s; %s",
                       strerror(s->out.system_error), output_advice(s->out.system_error));
    return status != BERTH_OK ? status : lost;
}

/* ---------------------------------------------------------------------- jobs */

int
session_progress(void *user, const berth_progress *now)
{
    session *const s = user;

    progress_update(&s->progress, now);
    return interrupt_is_wanted();
}

void
session_watch(session *s, berth_job *job)
{
    berth_progress last;

    while (berth_job_wait(job, WAIT_MILLISECONDS) == BERTH_PENDING)
        if (interrupt_is_wanted())
            berth_job_cancel(job);
    berth_job_poll(job, &last);
    progress_end(&s->progress, &last);
}

berth_status
session_see_through(session *s, berth_job *job, berth_error *error)
{
    session_watch(s, job);
    return berth_job_finish(job, error);
}

berth_status
session_see_loaded(session *s, berth_job *job, berth_model **out_model,
                   berth_error *error)
{
    session_watch(s, job);
    return berth_load_finish(job, out_model, error);
}

/* -------------------------------------------------------------------- models */

/* Where the hub's own library keeps its cache, by the variable that says so. */
static const struct cache_place {
    const char *variable;
    const char *below;
} cache_places[] = {
    { "HUGGINGFACE_HUB_CACHE", "" },
    { "HF_HOME", "/hub" },
    { "XDG_CACHE_HOME", "/huggingface/hub" },
    { "HOME", "/.cache/huggingface/hub" },
};

/* "~" as the hub's own library reads it; most shells have replaced it before. */
static bool
is_path_stored(const cli_call *call, const char *value, const char *below, char *text)
{
    const char *const home = value[0] == '~' && (value[1] == '/' || value[1] == '\0')
                                 ? call->environment("HOME")
                                 : NULL;
    const int n = home != NULL
                      ? snprintf(text, MODEL_PATH_CAPACITY, "%s%s%s", home, value + 1, below)
                      : snprintf(text, MODEL_PATH_CAPACITY, "%s%s", value, below);

    return n > 0 && n < MODEL_PATH_CAPACITY;
}

berth_status
model_settle(cli_call *call)
{
    void *const arguments = call->arguments;
    model_arguments *const model = &((model_call *)arguments)->model;
    const char **const origin = cli_origin(call, "hub-cache");

    if (model->hub_cache != NULL) {
        if (cli_is_given(call, "hub-cache"))
            return BERTH_OK;
        if (is_path_stored(call, model->hub_cache, "", model->hub_cache_text))
            model->hub_cache = model->hub_cache_text;
        return BERTH_OK;
    }
    for (size_t i = 0; i < sizeof cache_places / sizeof cache_places[0]; i++) {
        const char *const value = call->environment(cache_places[i].variable);

        if (value == NULL || value[0] == '\0')
            continue;
        if (!is_path_stored(call, value, cache_places[i].below, model->hub_cache_text))
            return cli_usage_error(call->command, "%s is too long",
                                   cache_places[i].variable);
        model->hub_cache = model->hub_cache_text;
        *origin = cache_places[i].variable;
        break;
    }
    return BERTH_OK;
}

void
model_options_fill(berth_open_options *options, const model_arguments *model)
{
    options->hub_cache = model->hub_cache;
    options->variant = model->variant;
    options->all_files = model->wants_all;
}

berth_status
session_open_model(session *s, const model_arguments *model,
                   berth_checkpoint **out_checkpoint)
{
    berth_open_options options;
    berth_error error;
    berth_status status;

    berth_open_options_init(&options);
    model_options_fill(&options, model);
    options.finding = session_finding;
    options.finding_user = s;
    status = berth_checkpoint_open(s->context, s->common->operands[0], &options,
                                   out_checkpoint, &error);
    return session_tell(s, status, &error);
}
