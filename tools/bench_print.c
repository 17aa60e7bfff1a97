/* SPDX-License-Identifier: Apache-2.0 */
/* bench_print.c - see bench_print.h. */
#include "tools/bench_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/json.h"
#include "tools/json_error.h"
#include "tools/load_tier.h"
#include "tools/table.h"

#define CELL_CAPACITY 160

/* In the order of berth_bench_kind. */
static const char *const kinds[] = {
    "disk, cold",     "disk, cached",     "host to host",     "host memory, read",
    "nf4",            "nf4, double",      "host to device",   "device to host",
    "device memory",  "host to device, all at once",
    "optimizer",      "operation",
};

/* In the order of berth_plan_summary.bound. */
static const char *const bounds[] = { "computing", "link", "disk" };

static const char *
name_of(const char *const *names, size_t count, int32_t number)
{
    return number >= 0 && (size_t)number < count ? names[number] : "?";
}

static double
rate(uint64_t bytes, double seconds)
{
    return seconds > 0 ? (double)bytes / seconds : 0;
}

static const char *
rate_text(double bytes_per_second, char text[BERTH_SIZE_CAPACITY + 2])
{
    char size[BERTH_SIZE_CAPACITY];

    snprintf(text, BERTH_SIZE_CAPACITY + 2, "%s/s",
             berth_size_format((uint64_t)bytes_per_second, size));
    return text;
}

/* --------------------------------------------------------------------------- lines */

/* "sim:0, pinned", "2 threads", "io_uring direct". */
static void
fill_how(const bench_facts *facts, const berth_bench_line *line, char *text)
{
    berth_device device;

    if (line->device == BERTH_NO_INDEX) {
        if (line->threads > 0)
            snprintf(text, CELL_CAPACITY, "%" PRIu32 " thread%s", line->threads,
                     text_plural(line->threads));
        else
            snprintf(text, CELL_CAPACITY, "%s", line->words);
        return;
    }
    if (berth_devices_get(facts->devices, line->device, &device) != BERTH_OK)
        device.name[0] = '\0';
    snprintf(text, CELL_CAPACITY, "%s%s%s%s%s", device.name,
             line->kind == BERTH_BENCH_DEVICE_MEMORY || line->kind == BERTH_BENCH_OPERATION
                 ? ""
             : line->is_pinned ? ", pinned"
                               : ", pageable",
             line->is_simulated ? ", simulated" : "", line->words[0] != '\0' ? ", " : "",
             line->words);
}

static void
fill_line(const bench_facts *facts, const berth_bench_line *line,
          char texts[][CELL_CAPACITY], table_cell *cells)
{
    snprintf(texts[0], CELL_CAPACITY, "%s",
             name_of(kinds, sizeof kinds / sizeof kinds[0], line->kind));
    if (line->rate > 0 && line->kind == BERTH_BENCH_OPERATION)
        snprintf(texts[1], CELL_CAPACITY, "%.3g us", 1e6 / (double)line->rate);
    else if (line->rate > 0)
        rate_text((double)line->rate, texts[1]);
    else
        snprintf(texts[1], CELL_CAPACITY, "-");
    if (line->earlier_rate > 0 && line->own_rate > 0)
        snprintf(texts[2], CELL_CAPACITY, "%.0f%%", 100 * line->drift);
    else
        snprintf(texts[2], CELL_CAPACITY, "-");
    fill_how(facts, line, texts[3]);
    for (int i = 0; i < 4; i++)
        cells[i].text = texts[i];
}

static void
print_lines(session *s, const bench_facts *facts)
{
    char texts[TABLE_MAX_COLUMNS][CELL_CAPACITY];
    table_cell cells[TABLE_MAX_COLUMNS] = { { .text = "" } };
    table t = { .count = 0 };
    berth_bench_line line;

    table_column_add(&t, "measured", TABLE_LEFT);
    table_column_add(&t, "rate", TABLE_RIGHT);
    table_column_add(&t, "drift", TABLE_RIGHT);
    table_column_add(&t, "how", TABLE_LEFT);
    for (uint32_t i = 0; berth_bench_get(facts->bench, i, &line) == BERTH_OK; i++) {
        fill_line(facts, &line, texts, cells);
        table_row(&t, &s->out, &s->screen, cells);
    }
    table_begin_rows(&t, &s->out, &s->screen);
    for (uint32_t i = 0; berth_bench_get(facts->bench, i, &line) == BERTH_OK; i++) {
        fill_line(facts, &line, texts, cells);
        table_row(&t, &s->out, &s->screen, cells);
    }
}

/* How many lines drifted: simulated ones are what their words say. */
static uint32_t
count_drifts(const berth_bench *bench)
{
    berth_bench_line line;
    uint32_t count = 0;

    for (uint32_t i = 0; berth_bench_get(bench, i, &line) == BERTH_OK; i++)
        count += !line.is_simulated && line.drift > BENCH_DRIFT;
    return count;
}

/* ------------------------------------------------------------------- load and pass */

static bool
is_simulated(const bench_facts *facts)
{
    berth_device device;

    return facts->devices != NULL
           && berth_devices_get(facts->devices, 0, &device) == BERTH_OK
           && device.is_simulated;
}

static void
print_load(session *s, const bench_facts *facts)
{
    const berth_load_report *const r = &facts->load;
    char size[BERTH_SIZE_CAPACITY];
    char speed[BERTH_SIZE_CAPACITY + 2];
    char slowest[LOAD_SLOWEST_CAPACITY];
    berth_plan_summary summary;

    berth_plan_get(facts->plan, &summary);
    output_format(&s->out,
                  "\nload  %s read in %.3f s, %s; the plan predicts %.3f s; slowest: %s\n",
                  berth_size_format(r->bytes_read, size), r->seconds,
                  rate_text(rate(r->bytes_read, r->seconds), speed), summary.load_seconds,
                  load_slowest(facts->plan, r, slowest));
}

/* Experts come as tokens choose them, and here there are none. */
static void
print_experts(session *s, const berth_plan *plan)
{
    berth_plan_tier tier;

    for (uint32_t t = 0; berth_plan_get_tier(plan, t, &tier) == BERTH_OK; t++)
        if (tier.experts_away > 0) {
            output_text(&s->out,
                        "      experts that are not resident are not brought by this\n");
            return;
        }
}

static void
print_pass(session *s, const bench_facts *facts)
{
    const pass_facts *const p = &facts->pass;
    char size[BERTH_SIZE_CAPACITY];
    char speed[BERTH_SIZE_CAPACITY + 2];

    if (p->copied_bytes == 0) {
        output_text(&s->out, "pass  nothing is streamed\n");
        print_experts(s, facts->plan);
        return;
    }
    output_format(&s->out, "pass  %s brought in %.3f ms, %s%s; ",
                  berth_size_format(p->copied_bytes, size), 1e3 * p->seconds,
                  rate_text(rate(p->copied_bytes, p->seconds), speed),
                  is_simulated(facts) ? ", simulated" : "");
    output_format(&s->out, "the plan predicts %.3f ms%s; bound: %s\n", 1e3 * p->predicted,
                  p->is_computing ? "" : " without computing",
                  name_of(bounds, sizeof bounds / sizeof bounds[0], p->bound));
    if (p->copied_bytes != p->planned_bytes) /* stacks are brought whole */
        output_format(&s->out, "      the plan predicts %s: %s\n",
                      berth_size_format(p->planned_bytes, size),
                      p->copied_bytes > p->planned_bytes
                          ? "not every expert for each token"
                          : "with experts, which are not brought by this");
}

void
bench_print(session *s, const bench_facts *facts)
{
    const uint32_t drifts = count_drifts(facts->bench);
    char peak[BERTH_SIZE_CAPACITY];

    print_lines(s, facts);
    if (facts->plan != NULL) {
        print_load(s, facts);
        print_pass(s, facts);
    }
    output_format(&s->out, "\nio  %s of host memory at most; ",
                  berth_size_format(facts->memory.peak_bytes, peak));
    if (drifts == 0)
        output_text(&s->out, "before and after agree\n");
    else
        output_format(&s->out,
                      "%" PRIu32 " limit%s drifted by more than 5%%: the machine is busy, "
                      "measure again\n",
                      drifts, text_plural(drifts));
}

/* --------------------------------------------------------------------------- JSON */

static void
write_line(json_writer *w, const bench_facts *facts, const berth_bench_line *line)
{
    berth_device device;

    json_object_begin(w, NULL);
    json_text(w, "kind", berth_bench_kind_name(line->kind));
    if (line->device != BERTH_NO_INDEX
        && berth_devices_get(facts->devices, line->device, &device) == BERTH_OK) {
        json_text(w, "device", device.name);
        json_bool(w, "is_simulated", line->is_simulated != 0);
        json_bool(w, "is_pinned", line->is_pinned != 0);
    }
    if (line->threads > 0)
        json_number(w, "threads", line->threads);
    json_known(w,
               line->kind == BERTH_BENCH_OPERATION ? "operations_per_second"
                                                   : "bytes_per_second",
               line->rate > 0 ? line->rate : UINT64_MAX);
    json_known(w, "before", line->earlier_rate > 0 ? line->earlier_rate : UINT64_MAX);
    json_known(w, "after", line->own_rate > 0 ? line->own_rate : UINT64_MAX);
    json_real(w, "drift", line->drift);
    json_number(w, "bytes", line->bytes);
    json_scientific(w, "seconds", line->seconds);
    json_text(w, "words", line->words);
    json_object_end(w);
}

static void
write_load(json_writer *w, const bench_facts *facts)
{
    berth_plan_summary summary;

    berth_plan_get(facts->plan, &summary);
    json_object_begin(w, "load");
    json_number(w, "bytes_read", facts->load.bytes_read);
    json_number(w, "placed_bytes", facts->load.placed_bytes);
    json_scientific(w, "seconds", facts->load.seconds);
    json_scientific(w, "predicted_seconds", summary.load_seconds);
    load_bottleneck_write(w, facts->plan, &facts->load);
    json_text(w, "io", facts->load.io_path);
    json_object_end(w);
}

static void
write_pass(json_writer *w, const bench_facts *facts)
{
    const pass_facts *const p = &facts->pass;

    json_object_begin(w, "pass");
    json_bool(w, "is_simulated", is_simulated(facts));
    json_bool(w, "is_computing", p->is_computing);
    json_number(w, "passes", p->passes);
    json_scientific(w, "seconds", p->seconds);
    json_scientific(w, "first_seconds", p->first_seconds);
    json_scientific(w, "predicted_seconds", p->predicted);
    json_text(w, "bound", name_of(bounds, sizeof bounds / sizeof bounds[0], p->bound));
    json_number(w, "copied_bytes", p->copied_bytes);
    json_number(w, "disk_bytes", p->disk_bytes);
    json_number(w, "planned_bytes", p->planned_bytes);
    json_number(w, "planned_disk_bytes", p->planned_disk_bytes);
    json_number(w, "host_waits", p->host_waits);
    json_object_end(w);
}

void
bench_print_json(output *out, const bench_facts *facts)
{
    berth_bench_line line;
    json_writer w;

    json_begin(&w, out, false);
    json_object_begin(&w, NULL);
    json_status(&w, BERTH_OK);
    json_array_begin(&w, "limits");
    for (uint32_t i = 0; berth_bench_get(facts->bench, i, &line) == BERTH_OK; i++)
        write_line(&w, facts, &line);
    json_array_end(&w);
    json_number(&w, "drifted", count_drifts(facts->bench));
    if (facts->plan != NULL) {
        write_load(&w, facts);
        write_pass(&w, facts);
    }
    json_number(&w, "host_memory_peak", facts->memory.peak_bytes);
    json_object_end(&w);
    json_end(&w);
}
