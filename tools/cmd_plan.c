/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_plan.c - `berth plan`: where every byte of a model goes, and why. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd_plan.h"
#include "tools/commands.h"
#include "tools/input.h"
#include "tools/json_error.h"
#include "tools/plan_print.h"
#include "tools/save.h"

static const cli_option plan_options[] = {
    { "max-memory", 'm', CLI_ENTRIES, offsetof(plan_arguments, max_memory), "LIST", NULL, NULL,
      "0=20GiB,1=90%,cpu=64GiB,disk=inf: only these; without it, host memory that is free "
      "here and the disk, no GPU" },
    { "type", 't', CLI_CHOICE, offsetof(plan_arguments, encoding.type), PLAN_TYPES, NULL,
      "none", "how weights are stored; none: as they are" },
    ENCODING_OPTIONS(plan_arguments, encoding),
    ENCODING_CHOICE_OPTIONS(plan_arguments, encoding),
    { "context", 'c', CLI_TEXT, offsetof(plan_arguments, context), "N", NULL, "4096",
      "tokens of a sequence that the KV cache keeps; 8k, 128k; 0: no cache" },
    { "batch", 'b', CLI_TEXT, offsetof(plan_arguments, batch), "N", NULL, "1",
      "sequences at once" },
    { "cache-dtype", '\0', CLI_CHOICE, offsetof(plan_arguments, cache_dtype),
      ENCODING_DTYPES, NULL, "model", "of the KV cache" },
    { "reserve-percent", '\0', CLI_TEXT, offsetof(plan_arguments, reserve_percent), "N",
      NULL, "10", "of each budget kept free; the plan says what of it is needed" },
    { "reserve", '\0', CLI_ENTRIES, offsetof(plan_arguments, reserve), "LIST", NULL, NULL,
      "bytes to keep free beside it: 0=2GiB,cpu=4GiB" },
    { "pin", '\0', CLI_LIST, offsetof(plan_arguments, pins), "X=TIER", NULL, NULL,
      "lm_head=cuda:0, model.layers.0-9=cpu; may be given several times" },
    { "no-offload", '\0', CLI_FLAG, offsetof(plan_arguments, no_offload), NULL, NULL, NULL,
      "all of it on devices that compute, or exit code 6" },
    { "tensor-parallel", '\0', CLI_TEXT, offsetof(plan_arguments, parallel), "R/N", NULL,
      NULL, "only the slices of rank R of N, from 0/N on: rows and columns" },
    { "stacks", '\0', CLI_CHOICE, offsetof(plan_arguments, stacks), PLAN_STACKS, NULL,
      "auto",
      "of experts that are stored as one tensor: whole or apart, each with a berth of its "
      "own; auto takes what is faster" },
    { "slots", '\0', CLI_NUMBER, offsetof(plan_arguments, slots), "N", NULL, NULL,
      "for streaming, on each device, 1 to 8; without it, as many as are best" },
    { "expert-hits", '\0', CLI_TEXT, offsetof(plan_arguments, expert_hits), "SHARE", NULL,
      NULL, "of the experts that share slots those found in one, as a run measured it: 0.6, "
      "60%; without it, as if all were as likely" },
    { "link", '\0', CLI_ENTRIES, offsetof(plan_arguments, links), "LIST", NULL, NULL,
      "rates instead of guesses: 0=gen4x16,1=12GB/s,disk=7GB/s,0.memory=900GB/s, and "
      "0.operation=4us beside its bytes; without a =, the FILE of --link-file" },
    { "link-file", '\0', CLI_INPUT, offsetof(plan_arguments, link_file), "FILE", NULL, NULL,
      "measured rates: berth-links(5)" },
    TRAIN_OPTIONS(plan_arguments, train, "paged_adamw_8bit"),
    TRAIN_GRADIENT_OPTIONS(plan_arguments, train),
    TRAIN_LOSS_OPTION(plan_arguments, train),
    { "mode", '\0', CLI_CHOICE, offsetof(plan_arguments, mode), PLAN_MODES, NULL, NULL,
      "the map that from_pretrained(device_map=...) makes; auto with --like" },
    { "like", '\0', CLI_CHOICE, offsetof(plan_arguments, encoding.like), ENCODING_ERAS,
      NULL, "hf5", "the release of transformers whose map and choice of layers is followed" },
    { "cpu-offload", '\0', CLI_FLAG, offsetof(plan_arguments, has_cpu_offload), NULL, NULL,
      NULL, "llm_int8_enable_fp32_cpu_offload of that release" },
    { "offload-buffers", '\0', CLI_FLAG, offsetof(plan_arguments, has_buffer_offload), NULL,
      NULL, NULL, "offload_buffers of that release" },
    { "device-map", '\0', CLI_INPUT, offsetof(plan_arguments, device_map), "FILE", NULL,
      NULL, "follow this map: {\"model.layers.0\": 0, ...}" },
    { "architectures", '\0', CLI_INPUT, offsetof(plan_arguments, architectures), "FILE",
      NULL, NULL, "newer descriptions of model classes than those built in" },
    { "check", '\0', CLI_INPUT, offsetof(plan_arguments, check), "FILE", NULL, NULL,
      "hold this plan against MODEL and the memory there is" },
    { "explain", '\0', CLI_TEXT, offsetof(plan_arguments, layer), "LAYER", NULL, NULL,
      "where this layer lies, or those of a range as 5-7, why, and each of their tensors" },
    { "hf-map", '\0', CLI_FLAG, offsetof(plan_arguments, wants_map), NULL, NULL, NULL,
      "print the plain device map of transformers, one JSON object" },
    { "json", '\0', CLI_FLAG, offsetof(plan_arguments, wants_json), NULL, NULL, NULL,
      "print the plan: berth-plan(5)" },
    { "output", 'o', CLI_TEXT, offsetof(plan_arguments, output), "FILE", NULL, NULL,
      "write the plan (with --hf-map the map) into this file; -: print nothing else" },
    { "force", 'f', CLI_FLAG, offsetof(plan_arguments, may_overwrite), NULL, NULL, NULL,
      "replace a file that is there" },
    { "quiet", 'q', CLI_FLAG, offsetof(plan_arguments, is_quiet), NULL, NULL, NULL,
      "print errors only, and what --json or --hf-map asks for" },
    MODEL_OPTIONS(plan_arguments),
};

static const cli_example plan_examples[] = {
    { "berth plan ./model --max-memory 0=20GiB,1=20GiB,cpu=64GiB --type nf4 --double-quant",
      "where each layer goes, what it costs a token, and why" },
    { "berth plan ./model -m 0=10GB,cpu=30GB --like hf5 --hf-map",
      "the device_map of from_pretrained(device_map=\"auto\")" },
    { "berth plan ./model -m 0=20GiB,cpu=64GiB -o plan.json", "a plan to keep and edit" },
    { "berth plan ./model --check plan.json", "does it still belong and fit?" },
    { "berth plan ./model -m 0=20GiB,cpu=64GiB -q", "exit code 6 if it cannot fit" },
    { "berth plan ./model -m 0=8GiB,cpu=64GiB --explain 37", "one layer, tensor by tensor" },
    { "berth plan ./model -m 0=24GiB,cpu=64GiB --train=qlora --checkpoint-every 1",
      "adapters, and where the states of their optimizer lie" },
    { "berth plan ./model -m 0=8GiB --tensor-parallel 1/4 -o rank1.json",
      "what the second of four ranks holds" },
};

static const char *const plan_description[] = {
    "Decides where every tensor of MODEL lies, from headers and config.json alone, and "
    "predicts what that costs: bytes over each link for a token, tokens per second. "
    "Layers stay whole; what does not fit on the device that computes them is streamed "
    "to it, and what stays is chosen for the shortest time. Nothing is filled past its "
    "budget. A budget as 90% is a share of what is free there for this process while the plan "
    "is made; a GPU that is not here, and the disk, need bytes.",
    "With --mode or --like the map is that of transformers, mistakes and refusals "
    "included, and --max-memory is read as it reads it; with --device-map it is given. "
    "Sizes and predictions are berth's own in either case.",
    "Weights that transformers divides or joins as it loads them, such as one of queries, keys "
    "and values for three layers, are quantized as they are stored; berth quantize leaves them "
    "plain, because loaders cannot do that with the codes of a file.",
    "With --train each device has room for gradients, optimizer states and what the "
    "backward pass keeps; states of paged optimizers lie on the host or the disk where "
    "they do not fit, and the plan says what a step costs, but for multiplying. By a --device-map "
    "weights lie where it says, and what exceeds a budget is refused.",
    "A plan is JSON, berth-plan(5): edit it, --check it, take it to another machine; "
    "there, or with the --max-memory of that machine, --check tells whether it fits. "
    "Exit code 6: it cannot fit; the message says what is short, by how much, and the "
    "smallest change that would do; where several tiers are short and each lacks so much "
    "whatever the others get, it names all of them. With --json that is an object, too: "
    "`status`, `exit_code`, `error` as in berth-json(5), whose `tensor` is the tier, or the "
    "first, `expected` what it would take and `actual` what it has; `short` lists the tiers "
    "that the message names: `tier`, `needed`, `budget`, `lacking`.",
    NULL,
};

/* ------------------------------------------------------------------- what is short */

static void
add_lack(planning *p, const berth_error *error)
{
    const uint32_t numbers = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL;
    plan_lack *const lack = &p->lacks[p->lack_count];

    if (error->reason != BERTH_REASON_NO_FIT || (error->has & numbers) != numbers
        || error->expected < error->actual || p->lack_count == PLAN_LACKS)
        return;
    snprintf(lack->tier, sizeof lack->tier, "%.*s", (int)sizeof lack->tier - 1, error->tensor);
    lack->needed = error->expected;
    lack->budget = error->actual;
    p->lack_count++;
}

static void
on_finding(void *user, const berth_finding *finding)
{
    planning *const p = user;

    if (finding->severity == BERTH_SEVERITY_ERROR)
        add_lack(p, finding->details);
    if (p->a->check != NULL)
        session_finding(p->s, finding);
    else
        session_plan_finding(p->s, finding);
}

/* For programs, in place of the plan: why there is none, and each tier that is short. */
static void
write_refusal(const planning *p)
{
    json_writer w;

    json_begin(&w, &p->s->out, false);
    json_object_begin(&w, NULL);
    json_status(&w, BERTH_ENOFIT);
    json_error_object(&w, cli_told());
    json_array_begin(&w, "short");
    for (uint32_t i = 0; i < p->lack_count; i++) {
        const plan_lack *const lack = &p->lacks[i];

        json_object_begin(&w, NULL);
        json_text(&w, "tier", lack->tier);
        json_number(&w, "needed", lack->needed);
        json_number(&w, "budget", lack->budget);
        json_number(&w, "lacking", lack->needed - lack->budget);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
    json_end(&w);
}

/* ------------------------------------------------------------------------- plan */

static berth_status
make_plan(planning *p)
{
    berth_error error;
    berth_status status;

    if (p->a->check != NULL) {
        status = berth_plan_open(p->s->context, p->a->check, &p->plan, &error);
        if (status == BERTH_OK)
            status = berth_plan_check(p->plan, p->s->context, p->checkpoint,
                                      p->a->max_memory, on_finding, p, &error);
    } else {
        p->options.finding = on_finding;
        p->options.finding_user = p;
        status = berth_plan_create(p->s->context, p->checkpoint, &p->options, &p->plan,
                                   &error);
    }
    if (status == BERTH_ENOFIT && p->lack_count == 0)
        add_lack(p, &error);
    status = session_tell(p->s, status, &error);
    if (status == BERTH_ENOFIT && cli_is_given(p->s->call, "json"))
        write_refusal(p);
    return status;
}

static berth_status
find_layers(planning *p)
{
    if (p->a->layer == NULL
        || plan_has_layers(p->plan, p->a->layer, &p->first_layer, &p->last_layer))
        return BERTH_OK;
    return cli_bad_value(p->s->call, "explain", p->a->layer, strlen(p->a->layer),
                         "a layer of the plan: give its whole name, as the table shows it");
}

/* ----------------------------------------------------------------------- output */

static int
put_text(void *user, const char *text, size_t length)
{
    output_bytes(user, text, length);
    return output_is_closed(user);
}

/* The map, or the plan. */
static berth_status
write_document(const planning *p, output *out)
{
    berth_error error;
    berth_status status = BERTH_OK;

    if (p->a->wants_map)
        plan_print_map(out, p->plan);
    else
        status = berth_plan_print(p->plan, put_text, out, &error);
    if (status == BERTH_OK || output_is_closed(out)) /* whoever ends the file says it */
        return BERTH_OK;
    return cli_error(p->s->call, &error);
}

static berth_status
save_document(const planning *p)
{
    berth_status status;
    save v;

    status = save_begin(&v, p->s->call->command, p->a->output, p->a->may_overwrite);
    return status == BERTH_OK ? save_end(&v, write_document(p, &v.out)) : status;
}

static berth_status
show(const planning *p)
{
    const plan_arguments *const a = p->a;

    if (a->wants_map || a->wants_json)
        return a->output == NULL ? write_document(p, &p->s->out) : BERTH_OK;
    if (a->is_quiet)
        return BERTH_OK;
    if (a->layer != NULL)
        plan_print_layers(p->s, p->plan, p->first_layer, p->last_layer);
    else if (a->check != NULL)
        output_text(&p->s->out, "the plan belongs to this model, and it fits\n");
    else
        plan_print(p->s, p->plan);
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- command */

static berth_status
run(planning *p)
{
    berth_status status = session_open_model(p->s, &p->a->model, &p->checkpoint);

    if (status == BERTH_OK)
        status = make_plan(p);
    if (status == BERTH_OK)
        status = find_layers(p);
    if (status == BERTH_OK && p->a->output != NULL)
        status = save_document(p);
    return status == BERTH_OK ? show(p) : status;
}

static berth_status
plan_run(session *s)
{
    /* In the order of PLAN_TYPES. */
    static const int32_t encodings[] = { BERTH_ENCODING_NATIVE, BERTH_ENCODING_NF4,
                                         BERTH_ENCODING_FP4, BERTH_ENCODING_INT8 };
    const plan_arguments *const a = s->call->arguments;
    planning p = { .s = s, .a = a };
    berth_status status = plan_check_arguments(s->call);

    berth_plan_options_init(&p.options);
    if (status == BERTH_OK)
        status = encoding_check(s->call, &a->encoding, encodings[a->encoding.type]);
    if (status == BERTH_OK)
        status = plan_take_numbers(&p);
    berth_train_options_init(&p.train);
    if (status == BERTH_OK && a->train.method != NULL)
        status = train_fill(s->call, &a->train, &p.train);
    if (status == BERTH_OK)
        status = encoding_skips_init(&p.skips, s->call, a->encoding.skip_modules);
    if (status == BERTH_OK)
        status = session_start(s, STDERR_FILENO, PROGRESS_NEVER);
    s->is_quiet = a->is_quiet;
    if (status == BERTH_OK) {
        plan_fill_options(&p, encodings[a->encoding.type]);
        status = run(&p);
    }
    berth_plan_destroy(p.plan);
    berth_checkpoint_close(p.checkpoint);
    encoding_skips_fini(&p.skips);
    return status;
}

static berth_status
plan_settle(cli_call *call)
{
    plan_arguments *const arguments = call->arguments;

    if (train_is_qlora(&arguments->train) && !cli_is_given(call, "type"))
        arguments->encoding.type = PLAN_TYPE_NF4;
    if (input_is_standard(arguments->output)) {
        arguments->output = NULL; /* what would be in the file, and nothing else */
        arguments->wants_json = !arguments->wants_map;
    }
    if (input_is_standard(arguments->links)
        && arguments->link_file == NULL) {
        arguments->link_file = arguments->links;
        arguments->links = NULL;
    }
    return model_settle(call);
}

const cli_command plan_command = {
    .name = "plan",
    .help = "where every byte of a model goes, and why",
    .description = plan_description,
    .operand = "MODEL",
    CLI_OPTIONS(plan_options, plan_arguments),
    .examples = plan_examples,
    .example_count = sizeof plan_examples / sizeof plan_examples[0],
    .settle = plan_settle,
    .run = plan_run,
};
