/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_plan - how long a plan takes, and how much memory
 *
 *   bench_plan [-o ROWS] [-p SECONDS] BERTH FOLDER    shapes of make_shapes below FOLDER
 *
 * Whole processes, from fork to exit, and the planner alone on what it is given. -p is
 * what transformers and accelerate need to infer a map of the same model in a process
 * that has imported them and built the empty model already.
 *
 * A plan counts only when it was checked: by `berth plan --check` for processes.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "loader/plan_input.h"
#include "tests/bench/bench.h"

#define ROUNDS 21
#define EIGHT "0=24GiB,1=24GiB,2=24GiB,3=24GiB,4=24GiB,5=24GiB,6=24GiB,7=24GiB,"

static const char *berth;
static double peer;

/* ------------------------------------------------------------------------ process */

static void
run(const char *const *argv, bench_result *result)
{
    bench_command(argv, result);
    if (result->status != 0)
        bench_die("%s %s: status %d", argv[1], argv[2], result->status);
}

/* What the timed command writes holds against the model. */
static void
check_plan(const char *model, const char *budgets, const char *type)
{
    static bench_result result;
    char file[4096];
    const char *const make[] = { berth, "plan", model,    "--max-memory", budgets, "--type",
                                 type,  "-f",   "-o",     file,           NULL };
    const char *const check[] = { berth, "plan", model, "--check", file, "--max-memory",
                                  budgets, NULL };

    (void)snprintf(file, sizeof file, "%s.plan", model);
    run(make, &result);
    run(check, &result);
    (void)unlink(file);
}

static void
report_process(const char *name, const char *model, const char *budgets, const char *type,
               double target)
{
    static bench_result result;
    const char *const argv[] = { berth, "plan", model, "--max-memory", budgets, "--type",
                                 type, NULL };
    double samples[ROUNDS];

    check_plan(model, budgets, type);
    for (int i = 0; i < ROUNDS; i++) {
        run(argv, &result);
        samples[i] = 1e3 * result.seconds;
    }
    bench_report(&(bench_row){ .name = name,
                               .unit = "ms",
                               .target = target,
                               .peer = 1e3 * peer,
                               .peer_note = peer > 0 ? NULL : "no transformers here",
                               .samples = samples,
                               .sample_count = ROUNDS });
}

/* -------------------------------------------------------------------- the planner */

typedef struct planning {
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_plan_options options;
    berthi_plan_source source;
} planning;

static void
begin(planning *p, const char *model, const char *budgets, int32_t type)
{
    berth_error error;

    berth_plan_options_init(&p->options);
    p->options.max_memory = budgets;
    p->options.type = type;
    if (berth_context_create(NULL, &p->context, &error) != BERTH_OK
        || berth_checkpoint_open(p->context, model, NULL, &p->checkpoint, &error) != BERTH_OK
        || berthi_plan_source_init(&p->source, p->context, p->checkpoint, &p->options,
                                   &error)
               != BERTH_OK)
        bench_die("%s: %s", model, error.message);
}

static void
end(planning *p)
{
    berthi_plan_source_fini(&p->source);
    berth_checkpoint_close(p->checkpoint);
    berth_context_destroy(p->context);
}

static void
report_planner(const char *name, const char *model, const char *budgets, double target)
{
    double samples[ROUNDS];
    berth_error error;
    planning p;

    begin(&p, model, budgets, BERTH_ENCODING_NF4);
    for (int i = 0; i < ROUNDS; i++) {
        const double start = bench_now();
        berth_plan *plan;

        if (berthi_plan_make(p.context, &p.source.input, &plan, &error) != BERTH_OK)
            bench_die("%s: %s", model, error.message);
        samples[i] = 1e3 * (bench_now() - start);
        berthi_plan_free(plan);
    }
    end(&p);
    bench_report(&(bench_row){ .name = name,
                               .unit = "ms",
                               .target = target,
                               .peer = 1e3 * peer,
                               .peer_note = peer > 0 ? NULL : "no transformers here",
                               .samples = samples,
                               .sample_count = ROUNDS });
}

/* What a plan keeps, above the checkpoint. */
static void
report_memory(const char *name, const char *model, const char *budgets)
{
    berth_memory_summary before;
    berth_memory_summary after;
    berth_plan_summary summary;
    berth_plan *plan;
    berth_error error;
    planning p;

    begin(&p, model, budgets, BERTH_ENCODING_NF4);
    berthi_plan_source_fini(&p.source);
    berth_context_memory(p.context, &before);
    if (berth_plan_create(p.context, p.checkpoint, &p.options, &plan, &error) != BERTH_OK)
        bench_die("%s: %s", model, error.message);
    berth_context_memory(p.context, &after);
    berth_plan_get(plan, &summary);
    bench_report(&(bench_row){
        .name = name,
        .unit = "bytes/tensor",
        .value = (double)(after.current_bytes - before.current_bytes)
                 / (double)summary.berth_count,
        .target = 64,
        .peer_note = "a figure of our own" });
    berth_plan_destroy(plan);
    end(&p);
}

int
main(int argc, char **argv)
{
    const char *rows = NULL;
    char dense[4096];
    char sparse[4096];
    int option;

    while ((option = getopt(argc, argv, "o:p:")) != -1)
        switch (option) {
        case 'o': rows = optarg; break;
        case 'p': peer = strtod(optarg, NULL); break;
        default: return 2;
        }
    if (optind != argc - 2)
        bench_die("usage: bench_plan [-o ROWS] [-p SECONDS] BERTH FOLDER");
    berth = argv[optind];
    (void)snprintf(dense, sizeof dense, "%s/llama70b", argv[optind + 1]);
    (void)snprintf(sparse, sizeof sparse, "%s/deepseek", argv[optind + 1]);
    bench_begin(rows);
    report_process("plan of 70B, fitting, whole process", dense, "0=40GiB,1=40GiB,cpu=64GiB",
                   "nf4", 5);
    report_process("plan of 70B, streamed, whole process", dense,
                   "0=20GiB,cpu=64GiB,disk=inf", "nf4", 5);
    report_planner("planner alone, 70B, 8 GPUs, fitting", dense, EIGHT "cpu=64GiB,disk=inf",
                   0.5);
    report_planner("planner alone, 70B, 8 GPUs, streamed", dense,
                   "0=4GiB,1=4GiB,2=4GiB,3=4GiB,4=4GiB,5=4GiB,6=4GiB,7=4GiB,cpu=64GiB,"
                   "disk=inf",
                   0.5);
    report_process("plan of DeepSeek-V3, whole process", sparse,
                   "0=80GiB,1=80GiB,2=80GiB,3=80GiB,cpu=1024GiB,disk=inf", "none", 60);
    report_memory("plan of 70B, memory", dense, "0=40GiB,cpu=64GiB,disk=inf");
    report_memory("plan of DeepSeek-V3, memory", sparse, "0=80GiB,cpu=1024GiB,disk=inf");
    return 0;
}
