/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_map.c - `berth map`: a plan as a picture. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/draw_map.h"
#include "tools/input.h"
#include "tools/save.h"
#include "tools/session.h"

#define SMALLEST_WIDTH 40
#define LARGEST_WIDTH 400
#define USUAL_WIDTH 80
#define NAME_CAPACITY 4096
#define PLAN_LIMIT ((size_t)1000000000) /* bytes, that berth_plan_open() reads, too */

typedef struct map_arguments {
    cli_common common;
    const char *svg;
    const char *html;
    const char *csv;
    const char *diff;
    uint32_t width;
    bool may_overwrite;
} map_arguments;

static const cli_option map_options[] = {
    { "html", '\0', CLI_TEXT, offsetof(map_arguments, html), "FILE", NULL, NULL,
      "write a page that needs nothing but a browser; - is standard output" },
    { "svg", '\0', CLI_TEXT, offsetof(map_arguments, svg), "FILE", NULL, NULL,
      "write a picture for documents" },
    { "csv", '\0', CLI_TEXT, offsetof(map_arguments, csv), "FILE", NULL, NULL,
      "write one line a tensor: where it lies, and as what" },
    { "diff", '\0', CLI_TEXT, offsetof(map_arguments, diff), "FILE", NULL, NULL,
      "what has moved since this plan" },
    { "width", 'w', CLI_NUMBER, offsetof(map_arguments, width), "N", NULL, NULL,
      "columns to draw in, 40 to 400; without it, those of the terminal, or 80" },
    { "force", 'f', CLI_FLAG, offsetof(map_arguments, may_overwrite), NULL, NULL, NULL,
      "replace files that exist" },
};

static const cli_example map_examples[] = {
    { "berth map plan.json", "a bar for each device, on the terminal" },
    { "berth map plan.json --html plan.html",
      "a page: point at a layer, or tap it, for its tensors and the reason" },
    { "berth map plan.json --svg - >plan.svg", "a picture for a document" },
    { "berth map plan.json --csv plan.csv", "every tensor, for a spreadsheet" },
    { "berth map --diff old.json new.json", "which layers have moved" },
    { "berth plan ./model --json | berth map -", "a plan that is not kept" },
};

static const char *const map_description[] = {
    "Draws the plan in the file PLAN, as `berth plan MODEL -o PLAN` writes it: one bar for "
    "each device and memory, its layers in the order in which they run, as wide as their "
    "bytes, coloured by encoding; then what else takes room there: slots of streamed "
    "layers, KV cache, gradients and states of training, activations, scratch, staging, the "
    "reserve, and what is free. Each bar has a scale of its own; of much free room not all is "
    "drawn.",
    "A layer that does not fit stands twice: where its bytes lie, and hatched behind the "
    "edge of the budget of the device that computes it.",
    "With --html, --svg or --csv nothing is drawn on the terminal. A file appears when it "
    "is complete. In CSV, names that a spreadsheet would take for a formula get an "
    "apostrophe before them.",
    "PLAN, or the FILE of --diff, may be -, for standard input, or a pipe.",
    NULL,
};

/* Each takes a file of its own, which is not the plan; standard output, too, is one. */
static berth_status
check_files(const cli_call *call)
{
    const map_arguments *const a = call->arguments;
    const struct {
        const char *name;
        const char *path;
    } files[] = { { "html", a->html }, { "svg", a->svg }, { "csv", a->csv } };
    const size_t count = sizeof files / sizeof files[0];

    for (size_t i = 0; i < count; i++)
        if (input_spare(call, files[i].name, files[i].path) != BERTH_OK)
            return BERTH_EINVAL;
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count; j++)
            if (save_is_same(files[i].path, files[j].path))
                return cli_usage_error(call->command, "--%s and --%s name the same file",
                                       files[i].name, files[j].name);
    return BERTH_OK;
}

static berth_status
check_arguments(const cli_call *call)
{
    static const char *const files[] = { "html", "svg", "csv" };
    const map_arguments *const a = call->arguments;
    const bool has_file = a->html != NULL || a->svg != NULL || a->csv != NULL;
    berth_status status = BERTH_OK;

    for (size_t i = 0; i < sizeof files / sizeof files[0] && a->diff != NULL; i++)
        if (status == BERTH_OK)
            status = cli_refuse(call, files[i], "with --diff");
    if (status == BERTH_OK && has_file)
        status = cli_refuse(call, "width", "with --html, --svg or --csv");
    if (status == BERTH_OK && !has_file)
        status = cli_refuse(call, "force", "without --html, --svg or --csv");
    if (status == BERTH_OK && input_is_standard(a->diff)
        && input_is_standard(a->common.operands[0]))
        status = cli_usage_error(call->command, "--diff: standard input is one plan, not two");
    if (status == BERTH_OK && cli_is_given(call, "width")
        && (a->width < SMALLEST_WIDTH || a->width > LARGEST_WIDTH))
        status = cli_usage_error(call->command, "--width: %u is not from %d to %d", a->width,
                                 SMALLEST_WIDTH, LARGEST_WIDTH);
    return status == BERTH_OK ? check_files(call) : status;
}

static size_t
columns_of(const session *s)
{
    const map_arguments *const a = s->call->arguments;
    const size_t columns = a->width > 0             ? a->width
                           : s->screen.columns > 0 ? s->screen.columns
                                                   : USUAL_WIDTH;

    return columns < SMALLEST_WIDTH  ? SMALLEST_WIDTH
           : columns > LARGEST_WIDTH ? LARGEST_WIDTH
                                     : columns;
}

static berth_status
out_of_memory(const session *s)
{
    return cli_failure(s->call->command, BERTH_ENOMEM, "out of memory");
}

/* --------------------------------------------------------------------- files */

static berth_status
write_csv(output *out, const berth_plan *plan)
{
    berth_plan_summary summary;

    berth_plan_get(plan, &summary);
    draw_csv_title(out);
    for (uint64_t i = 0; i < summary.berth_count && !output_is_closed(out); i++) {
        char name[NAME_CAPACITY];
        berth_berth b;
        berth_plan_layer layer;
        berth_plan_tier tier;
        draw_row row = { .tensor = name, .b = &b };

        if (berth_plan_get_berth(plan, i, &b, name, sizeof name) != BERTH_OK
            || berth_plan_get_layer(plan, b.layer, &layer) != BERTH_OK
            || berth_plan_get_tier(plan, b.tier, &tier) != BERTH_OK)
            return BERTH_EINTERNAL;
        row.layer = layer.name;
        row.tier = tier.name;
        row.is_resident = layer.home == b.tier;
        draw_csv_row(out, &row);
    }
    return BERTH_OK;
}

typedef enum format { FORMAT_HTML, FORMAT_SVG, FORMAT_CSV } format;

static berth_status
write_format(session *s, output *out, const berth_plan *plan, const draw_map *map, format f)
{
    if (f == FORMAT_CSV)
        return write_csv(out, plan);
    return (f == FORMAT_HTML ? draw_map_html : draw_map_svg)(out, map) ? BERTH_OK
                                                                      : out_of_memory(s);
}

static berth_status
write_file(session *s, const berth_plan *plan, const draw_map *map, format f,
           const char *path)
{
    const map_arguments *const a = s->call->arguments;
    save v;
    berth_status status;

    if (path == NULL)
        return BERTH_OK;
    status = save_begin(&v, s->call->command, path, a->may_overwrite);
    if (status == BERTH_OK)
        status = save_end(&v, write_format(s, &v.out, plan, map, f));
    return status;
}

static berth_status
write_files(session *s, const berth_plan *plan, const draw_map *map)
{
    const map_arguments *const a = s->call->arguments;
    berth_status status = write_file(s, plan, map, FORMAT_HTML, a->html);

    if (status == BERTH_OK)
        status = write_file(s, plan, map, FORMAT_SVG, a->svg);
    if (status == BERTH_OK)
        status = write_file(s, plan, map, FORMAT_CSV, a->csv);
    return status;
}

/* ----------------------------------------------------------------------- run */

static berth_status
read_plan(session *s, const char *path, berth_plan **plan)
{
    const cli_command *const command = s->call->command;
    const bool is_standard = input_is_standard(path);
    berth_error error;
    char *text = NULL;
    size_t bytes;
    berth_status status =
        is_standard
            ? input_read(command, INPUT_NAME, STDIN_FILENO, PLAN_LIMIT, &text, &bytes)
            : input_read_pipe(command, path, PLAN_LIMIT, &text, &bytes);

    if (status != BERTH_OK)
        return status;
    status = berth_plan_parse(s->context, text, bytes, is_standard ? INPUT_NAME : path, plan,
                              &error);
    free(text);
    return status == BERTH_OK ? BERTH_OK : cli_error(s->call, &error);
}

static berth_status
open_plan(session *s, const char *path, berth_plan **plan)
{
    berth_error error;

    if (input_is_standard(path) || input_is_pipe(path))
        return read_plan(s, path, plan);
    return berth_plan_open(s->context, path, plan, &error) == BERTH_OK
               ? BERTH_OK
               : cli_error(s->call, &error);
}

static berth_status
open_map(session *s, const char *path, bool wants_lines, berth_plan **plan, draw_map *map)
{
    const berth_status status = open_plan(s, path, plan);

    if (status != BERTH_OK)
        return status;
    return draw_map_gather(map, *plan, wants_lines) ? BERTH_OK : out_of_memory(s);
}

static berth_status
show(session *s, const berth_plan *plan, const draw_map *map)
{
    const map_arguments *const a = s->call->arguments;

    if (a->html != NULL || a->svg != NULL || a->csv != NULL)
        return write_files(s, plan, map);
    return draw_map_terminal(&s->out, &s->screen, map, columns_of(s)) ? BERTH_OK
                                                                      : out_of_memory(s);
}

static berth_status
map_run(session *s)
{
    const map_arguments *const a = s->call->arguments;
    draw_map map = { 0 };
    draw_map old_map = { 0 };
    berth_plan *plan = NULL;
    berth_plan *old_plan = NULL;
    berth_status status = check_arguments(s->call);

    if (status == BERTH_OK)
        status = session_start(s, STDERR_FILENO, PROGRESS_NEVER);
    if (status == BERTH_OK && a->diff != NULL)
        status = open_map(s, a->diff, false, &old_plan, &old_map);
    if (status == BERTH_OK)
        status = open_map(s, a->common.operands[0], a->html != NULL, &plan, &map);
    if (status == BERTH_OK && a->diff == NULL)
        status = show(s, plan, &map);
    else if (status == BERTH_OK
             && !draw_map_difference(&s->out, &s->screen, &old_map, &map, columns_of(s)))
        status = out_of_memory(s);
    draw_map_fini(&map);
    draw_map_fini(&old_map);
    berth_plan_destroy(plan);
    berth_plan_destroy(old_plan);
    return status;
}

const cli_command map_command = {
    .name = "map",
    .help = "a plan as a picture: terminal, web page, SVG, CSV",
    .description = map_description,
    .operand = "PLAN",
    CLI_OPTIONS(map_options, map_arguments),
    .examples = map_examples,
    .example_count = sizeof map_examples / sizeof map_examples[0],
    .run = map_run,
};
