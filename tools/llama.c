/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama.c - berth-llama: the reference decoder, and an example of how berth is used.
 *
 *   checkpoint ─▶ plan ─▶ load ─▶ a pass over the layers for the prompt, then one for
 *   each token: acquire a layer, compute, release it
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/allocator.h"
#include "tools/clock.h"
#include "tools/descriptors.h"
#include "tools/interrupt.h"
#include "tools/json_error.h"
#include "tools/llama_engine.h"
#include "tools/llama_error.h"
#include "tools/llama_file.h"
#include "tools/llama_math.h"
#include "tools/llama_options.h"
#include "tools/llama_run.h"
#include "tools/load_refuse.h"
#include "tools/load_tier.h"

#define TEXT_CAPACITY 8192

/* Everything that is made, in the order in which it is made. */
typedef struct program {
    llama_options options;
    llama_tokens tokens;  /* prompt, then what was generated */
    uint32_t prompt;      /* tokens of it */
    llama_config config;
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_devices *devices;
    bool is_simulated;
    llama_compute compute;
    berth_plan_options planned; /* what `plan` is made of, without --plan */
    char memory[LOAD_BUDGETS_CAPACITY]; /* its max_memory, where nobody has said so */
    berth_plan *plan;
    berth_model *model;
    berth_load_report report;
    bool is_refused;      /* it is planning or loading that failed, for memory */
    llama_run *run;
    float *logits;
    output out;           /* ids, or JSON */
    double load_seconds;
    double prompt_seconds;
    double generate_seconds;
} program;

/* -------------------------------------------------------------------------- making */

/* Tokens for which there is room. */
static uint32_t
capacity_of(const program *p)
{
    const uint32_t wanted = p->tokens.count + p->options.generate;

    return p->options.context > wanted ? p->options.context : wanted;
}

static berth_status
make_plan(program *p, berth_error *error)
{
    berth_plan_options *const options = &p->planned;
    berth_status status;

    if (p->options.plan != NULL)
        return llama_plan_open(p->context, p->options.plan, &p->plan, error);
    status = llama_options_plan(&p->options, options, error);
    if (status != BERTH_OK)
        return status;
    options->context = capacity_of(p);
    options->cache_dtype = llama_options_dtype(p->options.cache_dtype);
    options->devices = p->devices;
    if (options->max_memory == NULL && p->devices != NULL)
        options->max_memory = load_budgets(p->context, p->devices, p->memory);
    return berth_plan_create(p->context, p->checkpoint, options, &p->plan, error);
}

/*
 * A processor alone is what a plan without devices is for. Memory that this program does not
 * reach is computed in by its devices.
 */
static berth_status
open_devices(program *p, berth_error *error)
{
    const char *const words = p->options.devices;
    bool needs_devices = false;
    berth_status status = BERTH_OK;

    if (words != NULL && strcmp(words, "cpu") != 0)
        status = berth_devices_open(p->context, words, &p->devices, error);
    for (uint32_t i = 0;
         status == BERTH_OK && p->devices != NULL && i < berth_devices_count(p->devices);
         i++) {
        berth_device device;

        berth_devices_get(p->devices, i, &device);
        p->is_simulated = p->is_simulated || device.is_simulated;
        needs_devices = needs_devices || (!device.is_simulated && !device.is_host);
    }
    if (p->options.compute != NULL)
        needs_devices = strcmp(p->options.compute, "device") == 0;
    p->compute = needs_devices ? LLAMA_COMPUTE_DEVICE : LLAMA_COMPUTE_HOST;
    return status;
}

static berth_status
load(program *p, berth_error *error)
{
    const double began = clock_seconds();
    berth_load_options options;
    berth_job *job;
    berth_status status;

    berth_load_options_init(&options);
    options.devices = p->devices;
    options.report = &p->report;
    options.offload_dir = p->options.offload_dir;
    status = berth_load_start(p->context, p->checkpoint, p->plan, &options, &job, error);
    if (status == BERTH_OK)
        status = berth_load_finish(job, &p->model, error);
    p->load_seconds = clock_seconds() - began;
    return status;
}

/* What the checkpoint has quantized counts, too: the plan alone tells. */
static berth_status
check_int8_inputs(const program *p, berth_error *error)
{
    bool has_int8 = false;
    berth_berth berth;

    if (!p->options.has_int8_inputs)
        return BERTH_OK;
    for (uint64_t i = 0;
         !has_int8 && berth_plan_get_berth(p->plan, i, &berth, NULL, 0) == BERTH_OK; i++)
        has_int8 = berth.encoding == BERTH_ENCODING_INT8;
    return has_int8 ? BERTH_OK
                    : llama_fail(error, BERTH_EINVAL, NULL,
                                 "--int8-activations has no effect without weights of int8");
}

static berth_status
make_model(program *p, berth_error *error)
{
    berth_status status = make_plan(p, error);

    if (status == BERTH_OK)
        status = check_int8_inputs(p, error);
    if (status == BERTH_OK)
        status = load(p, error);
    p->is_refused = load_is_refused(status);
    return status;
}

static berth_status
make_run(program *p, berth_error *error)
{
    const llama_options *const o = &p->options;
    const uint64_t logits =
        (uint64_t)p->config.vocab * (o->logits != NULL ? p->tokens.count : 1);
    const llama_run_options options = {
        .context = p->context,
        .checkpoint = p->checkpoint,
        .plan = p->plan,
        .devices = p->devices,
        .model = p->model,
        .config = &p->config,
        .capacity = capacity_of(p),
        .batch = o->batch,
        .threads = o->threads,
        .cache_dtype = llama_options_dtype(o->cache_dtype),
        .has_int8_inputs = o->has_int8_inputs,
        .compute = p->compute,
        .activations = llama_options_dtype(o->activations != NULL ? o->activations : "f32"),
    };

    p->logits = malloc(logits * sizeof *p->logits);
    if (p->logits == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for logits");
    return llama_run_create(&options, &p->run, error);
}

static berth_status
make_all(program *p, berth_error *error)
{
    const llama_options *const o = &p->options;
    berth_status status =
        o->tokens != NULL
            ? llama_tokens_parse(&p->tokens, o->tokens, strlen(o->tokens), error)
            : llama_tokens_read(&p->tokens, o->tokens_file, error);

    if (status == BERTH_OK && p->tokens.count == 0)
        status = llama_fail(error, BERTH_EINVAL, "tokens", "there are none");
    p->prompt = p->tokens.count;
    if (status == BERTH_OK && o->logits != NULL)
        status = llama_logits_spare_inputs(&(llama_inputs){ o->model, o->plan, o->tokens_file },
                                           o->logits, error);
    if (status == BERTH_OK && o->logits != NULL)
        status = llama_logits_check(o->logits, o->may_overwrite, error);
    if (status == BERTH_OK)
        status = berth_context_create(NULL, &p->context, error);
    if (status == BERTH_OK)
        status = berth_checkpoint_open(p->context, o->model, NULL, &p->checkpoint, error);
    if (status == BERTH_OK && o->logits != NULL)
        status = llama_logits_spare(p->checkpoint, o->logits, error);
    if (status == BERTH_OK)
        status = llama_config_read(p->context, p->checkpoint, &p->config, error);
    if (status == BERTH_OK)
        status = open_devices(p, error);
    if (status == BERTH_OK && p->compute == LLAMA_COMPUTE_DEVICE)
        status = llama_device_check(&p->config, error);
    if (status == BERTH_OK)
        status = make_model(p, error);
    if (status == BERTH_OK)
        status = make_run(p, error);
    return status;
}

/* The reverse of how it was made. */
static void
free_all(program *p)
{
    llama_run_destroy(p->run);
    free(p->logits);
    berth_model_destroy(p->model);
    berth_plan_destroy(p->plan);
    berth_devices_close(p->devices);
    berth_checkpoint_close(p->checkpoint);
    berth_context_destroy(p->context);
    llama_tokens_free(&p->tokens);
}

/* ------------------------------------------------------------------------- running */

/* The prompt's pass. Its last logits are then the first of p->logits. */
static berth_status
run_prompt(program *p, berth_error *error)
{
    const bool wants_all = p->options.logits != NULL;
    const uint64_t last =
        wants_all ? (uint64_t)(p->prompt - 1) * p->config.vocab : 0;
    const double began = clock_seconds();
    berth_status status =
        llama_run_feed(p->run, p->tokens.ids, p->prompt, wants_all, p->logits, error);

    p->prompt_seconds = clock_seconds() - began;
    if (status == BERTH_OK && wants_all)
        status = llama_logits_write(p->options.logits, p->options.may_overwrite,
                                    p->tokens.ids, p->prompt, p->logits, p->config.vocab,
                                    error);
    memmove(p->logits, p->logits + last, p->config.vocab * sizeof *p->logits);
    return status;
}

/* Until nobody takes ids any more. */
static berth_status
generate(program *p, berth_error *error)
{
    const double began = clock_seconds();
    berth_status status = BERTH_OK;

    for (uint32_t i = 0;
         i < p->options.generate && status == BERTH_OK && !output_is_closed(&p->out); i++) {
        uint32_t next = 0;

        if (i == 0)
            next = llama_math_largest(p->logits, p->config.vocab);
        else
            status = llama_run_step(p->run, p->tokens.ids[p->tokens.count - 1], p->logits,
                                    &next, error);
        if (status == BERTH_OK)
            status = llama_tokens_add(&p->tokens, next, error);
        if (status == BERTH_OK && !p->options.wants_json) {
            output_format(&p->out, "%s%" PRIu32, i > 0 ? " " : "",
                          p->tokens.ids[p->tokens.count - 1]);
            output_flush(&p->out);
        }
    }
    p->generate_seconds = clock_seconds() - began;
    return status;
}

/* ------------------------------------------------------------------------ printing */

/* The first id comes from the prompt's pass: one pass less than there are ids. */
static uint32_t
passes(const program *p)
{
    return p->tokens.count > p->prompt ? p->tokens.count - p->prompt - 1 : 0;
}

static double
tokens_per_second(const program *p)
{
    return p->generate_seconds > 0 ? passes(p) / p->generate_seconds : 0;
}

static void
print_numbers(const program *p)
{
    const uint64_t bytes = llama_run_token_bytes(p->run);
    char size[BERTH_SIZE_CAPACITY];

    fprintf(stderr, "load      %.3f s\n", p->load_seconds);
    fprintf(stderr, "prompt    %" PRIu32 " tokens in %.3f s, %.1f tokens/s\n", p->prompt,
            p->prompt_seconds, p->prompt / p->prompt_seconds);
    if (passes(p) > 0)
        fprintf(stderr,
                "generate  %" PRIu32 " tokens in %.3f s, %.2f tokens/s, %.2f GB/s (%s a "
                "token), ",
                passes(p), p->generate_seconds, tokens_per_second(p),
                (double)bytes * tokens_per_second(p) / 1e9, berth_size_format(bytes, size));
    if (passes(p) > 0 && llama_run_threads(p->run) > 0)
        fprintf(stderr, "%" PRIu32 " threads\n", llama_run_threads(p->run));
    else if (passes(p) > 0)
        fprintf(stderr, "on its devices\n");
    if (p->is_simulated)
        fprintf(stderr, "simulated devices: %.6f s of their time; the above is this "
                        "machine's\n",
                berth_devices_seconds(p->devices));
}

static void
print_json(program *p)
{
    output *const out = &p->out;
    berth_lease_summary leases;

    berth_model_leases(p->model, &leases);
    output_text(out, "{\"tokens\": [");
    for (uint32_t i = p->prompt; i < p->tokens.count; i++)
        output_format(out, "%s%" PRIu32, i > p->prompt ? ", " : "", p->tokens.ids[i]);
    output_format(out,
                  "], \"prompt_tokens\": %" PRIu32 ", \"load_seconds\": %.6f, "
                  "\"prompt_seconds\": %.6f, \"generate_seconds\": %.6f, "
                  "\"generate_passes\": %" PRIu32 ", \"tokens_per_second\": %.3f, "
                  "\"token_bytes\": %" PRIu64 ", \"threads\": %" PRIu32
                  ", \"placed_bytes\": %" PRIu64 ", \"streamed_bytes\": %" PRIu64
                  ", \"streamed_disk_bytes\": %" PRIu64 ", \"is_simulated\": %s",
                  p->prompt, p->load_seconds, p->prompt_seconds, p->generate_seconds,
                  passes(p), tokens_per_second(p), llama_run_token_bytes(p->run),
                  llama_run_threads(p->run), p->report.placed_bytes,
                  leases.copied_bytes + leases.expert_bytes,
                  leases.disk_bytes + leases.expert_disk_bytes,
                  p->is_simulated ? "true" : "false");
    if (p->is_simulated)
        output_format(out, ", \"simulated_seconds\": %.9f",
                      berth_devices_seconds(p->devices));
    output_text(out, "}\n");
}

static void
print_error(const berth_error *error)
{
    char text[TEXT_CAPACITY];

    berth_error_format(error, text, sizeof text);
    fprintf(stderr, "berth-llama: error: %s\n", text);
}

/*
 * What `berth load` tells beside the line that print_error() has printed: people on standard
 * error, programs on standard output.
 */
static void
explain(const program *p, const berth_error *error)
{
    const load_failure failure = {
        .context = p->context,
        .checkpoint = p->checkpoint,
        .plan = p->plan,
        .asked = p->options.plan == NULL ? &p->planned : NULL,
        .devices = p->devices,
        .ring_bytes = p->report.ring_bytes,
        .error = error,
    };
    load_advice advice;
    output out;

    if (p->is_refused) {
        load_advise(&failure, &advice);
        load_refuse(&failure, &advice);
    }
    if (!p->options.wants_json)
        return;
    output_init(&out, STDOUT_FILENO);
    if (p->context != NULL)
        load_refuse_json(&out, error->status, &failure, p->is_refused ? &advice : NULL);
    else
        json_failure(&out, error->status, error);
    output_flush(&out);
}

/* ---------------------------------------------------------------------------- main */

/* What has been printed arrives, or it is told; who reads may leave early. */
static berth_status
end_output(program *p)
{
    output_flush(&p->out);
    if (p->out.system_error == 0 || p->out.system_error == EPIPE)
        return BERTH_OK;
    fprintf(stderr, "berth-llama: error: standard output: %s; %s\n",
            strerror(p->out.system_error), output_advice(p->out.system_error));
    return BERTH_EIO;
}

static void
fail(program *p, const berth_error *error)
{
    output_flush(&p->out);
    print_error(error);
    explain(p, error);
}

static berth_status
run(program *p)
{
    berth_error error;
    berth_status status;

    output_init(&p->out, STDOUT_FILENO);
    status = make_all(p, &error);
    if (status == BERTH_OK)
        status = run_prompt(p, &error);
    if (status == BERTH_OK)
        status = generate(p, &error);
    if (status == BERTH_OK && p->options.wants_json)
        print_json(p);
    if (!p->options.wants_json && p->tokens.count > p->prompt)
        output_text(&p->out, "\n");
    if (status != BERTH_OK) {
        fail(p, &error);
    } else { /* before numbers, which may go to the same file */
        status = end_output(p);
        if (status == BERTH_OK && !p->options.is_quiet)
            print_numbers(p);
    }
    free_all(p);
    return status;
}

static void
refuse_options(const program *p, const berth_error *error)
{
    fprintf(stderr, "berth-llama: %s (see berth-llama --help)\n", error->message);
    explain(p, error);
}

int
main(int argc, char **argv)
{
    program p = { .prompt = 0 };
    berth_error error;
    berth_status status;

    allocator_spare_addresses();
    descriptors_init();
    interrupt_init();
    status = llama_options_parse(argc, argv, &p.options, &error);
    if (status != BERTH_OK)
        refuse_options(&p, &error);
    else if (p.options.wants_help)
        llama_options_print_help(stdout);
    else if (p.options.wants_version)
        printf("berth-llama %s\n", berth_version());
    else
        status = run(&p);
    if (fflush(stdout) != 0 && status == BERTH_OK) {
        fprintf(stderr, "berth-llama: error: standard output could not be written\n");
        status = BERTH_EIO;
    }
    return -status; /* exit codes are negated statuses */
}
