/* SPDX-License-Identifier: Apache-2.0 */
/* load_print.c - see load_print.h. */
#include "tools/load_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/json_error.h"
#include "tools/load_memory.h"
#include "tools/load_tier.h"
#include "tools/table.h"

#define CELL_CAPACITY 160

static double
rate(uint64_t bytes, double seconds)
{
    return seconds > 0 ? (double)bytes / seconds : 0;
}

/* --------------------------------------------------------------------------- text */

static const char *
size_text(uint64_t bytes, char *text)
{
    return bytes == 0 ? "-" : berth_size_format(bytes, text);
}

static const char *
disk_words(const load_facts *facts)
{
    return facts->load.offloaded_bytes > 0 ? "the files, and one made of them"
                                           : "the files themselves";
}

/* By berth's accounts, of everything in that memory; the disk has none. */
static uint64_t
peak_of(const load_facts *facts, const berth_plan_tier *tier)
{
    return tier->kind == BERTH_TIER_DISK
               ? 0
               : load_memory_find(facts->context, tier->name).peak_bytes;
}

static void
fill_tier(const load_facts *facts, uint32_t number, char texts[][CELL_CAPACITY],
          table_cell *cells)
{
    berth_plan_tier tier;
    berth_device device;

    berth_plan_get_tier(facts->plan, number, &tier);
    snprintf(texts[0], CELL_CAPACITY, "%s", tier.name);
    cells[0].text = texts[0];
    cells[1].text = size_text(load_slab_bytes(&tier), texts[1]);
    cells[2].text = size_text(tier.weights, texts[2]);
    cells[3].text = size_text(tier.slots + tier.expert_slots, texts[3]);
    cells[4].text = size_text(tier.kind == BERTH_TIER_DISK ? 0 : tier.scratch, texts[4]);
    cells[5].text = size_text(peak_of(facts, &tier), texts[5]);
    snprintf(texts[6], CELL_CAPACITY, "%s",
             load_has_device(facts->plan, facts->devices, number, &device) ? device.description
             : tier.kind == BERTH_TIER_DISK      ? disk_words(facts)
             : tier.kind == BERTH_TIER_CPU       ? "host memory"
                                                 : "GPU");
    cells[6].text = texts[6];
}

static void
print_tiers(session *s, const load_facts *facts, uint32_t count)
{
    static const char *const titles[] = { "tier",    "allocated", "weights", "slots",
                                          "scratch", "peak",      "device" };
    char texts[TABLE_MAX_COLUMNS][CELL_CAPACITY];
    table_cell cells[TABLE_MAX_COLUMNS] = { { .text = "" } };
    table t = { .count = 0 };

    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++)
        table_column_add(&t, titles[i], i > 0 && i < 6 ? TABLE_RIGHT : TABLE_LEFT);
    for (uint32_t i = 0; i < count; i++) {
        fill_tier(facts, i, texts, cells);
        table_row(&t, &s->out, &s->screen, cells);
    }
    table_begin_rows(&t, &s->out, &s->screen);
    for (uint32_t i = 0; i < count; i++) {
        fill_tier(facts, i, texts, cells);
        table_row(&t, &s->out, &s->screen, cells);
    }
}

/* All that differs from run to run is on the lines that begin with io. */
static void
print_stages(session *s, const load_facts *facts)
{
    const berth_load_report *const r = &facts->load;
    char size[BERTH_SIZE_CAPACITY];
    char speed[BERTH_SIZE_CAPACITY];
    char ring[BERTH_SIZE_CAPACITY];
    char peak[BERTH_SIZE_CAPACITY];
    char stage[BERTH_SIZE_CAPACITY];
    char slowest[LOAD_SLOWEST_CAPACITY];

    output_format(&s->out, "io  %s read in %.2f s, %s/s, first bytes after %.2f s; ",
                  berth_size_format(r->bytes_read, size), r->seconds,
                  berth_size_format((uint64_t)rate(r->bytes_read, r->seconds), speed),
                  r->first_seconds);
    output_format(&s->out, "%s of host memory at most; staging %" PRIu32
                           " x %s of %s%s; slowest: %s\n",
                  berth_size_format(facts->memory.peak_bytes, peak), r->stages,
                  berth_size_format(r->stage_bytes, stage),
                  berth_size_format(r->ring_bytes, ring), r->is_pinned ? ", pinned" : "",
                  load_slowest(facts->plan, r, slowest));
    output_format(&s->out, "io  %.2f s waiting for reads, %.2f s for copies; %.2f s copying "
                           "and encoding, %.2f s of it encoding, summed over threads",
                  r->read_seconds, r->wait_seconds, r->place_seconds, r->encode_seconds);
    if (facts->is_checked)
        output_format(&s->out, "; %.2f s checking", facts->check.seconds);
    output_text(&s->out, "\n");
}

void
load_print(session *s, const load_facts *facts)
{
    berth_plan_summary summary;
    char size[BERTH_SIZE_CAPACITY];
    char encoded[BERTH_SIZE_CAPACITY];

    berth_plan_get(facts->plan, &summary);
    print_tiers(s, facts, summary.tier_count);
    output_format(&s->out, "\nok  %" PRIu64 " tensor%s in %" PRIu32 " layer%s, %s in %s "
                           "berth%s",
                  summary.berth_count, text_plural(summary.berth_count), summary.layer_count,
                  text_plural(summary.layer_count), berth_size_format(summary.bytes, size),
                  summary.berth_count == 1 ? "its" : "their", text_plural(summary.berth_count));
    if (facts->load.quantized_bytes > 0)
        output_format(&s->out, ", %s encoded on the way",
                      berth_size_format(facts->load.quantized_bytes, encoded));
    output_text(&s->out, "\n");
    if (facts->load.offloaded_bytes > 0)
        output_format(&s->out, "ok  %s of them on the disk, written for this\n",
                      berth_size_format(facts->load.offloaded_bytes, size));
    print_stages(s, facts);
    if (facts->load.verified_tensors > 0)
        output_format(&s->out, "ok  %" PRIu64 " stored tensors as the manifest says, %s\n",
                      facts->load.verified_tensors,
                      berth_size_format(facts->load.verified_bytes, size));
    if (facts->load.unverified_tensors > 0)
        output_format(&s->out, "--  %" PRIu64 " stored tensors not verified: slices of them "
                               "are read\n",
                      facts->load.unverified_tensors);
    if (facts->is_checked && facts->check.mismatches == 0)
        output_format(&s->out, "ok  %" PRIu64 " tensor%s checked, every byte as it should be\n",
                      facts->check.tensors, text_plural(facts->check.tensors));
    if (facts->wants_memory) {
        output_text(&s->out, "\n");
        load_memory_print(&s->out, s->context);
    }
}

/* --------------------------------------------------------------------------- JSON */

static void
write_tier(json_writer *w, const load_facts *facts, uint32_t number)
{
    berth_plan_tier tier;
    berth_device device;

    berth_plan_get_tier(facts->plan, number, &tier);
    json_object_begin(w, NULL);
    json_text(w, "name", tier.name);
    json_number(w, "allocated", load_slab_bytes(&tier));
    json_number(w, "weights", tier.weights);
    json_number(w, "slots", tier.slots + tier.expert_slots);
    json_number(w, "scratch", tier.kind == BERTH_TIER_DISK ? 0 : tier.scratch);
    json_number(w, "peak", peak_of(facts, &tier));
    if (load_has_device(facts->plan, facts->devices, number, &device)) {
        json_text(w, "device", device.name);
        json_text(w, "description", device.description);
        json_bool(w, "is_simulated", device.is_simulated != 0);
    }
    json_object_end(w);
}

static void
write_load(json_writer *w, const load_facts *facts)
{
    const berth_load_report *const r = &facts->load;

    json_number(w, "planned_bytes", r->planned_bytes);
    json_number(w, "allocated_bytes", r->allocated_bytes);
    json_number(w, "placed_bytes", r->placed_bytes);
    json_number(w, "quantized_bytes", r->quantized_bytes);
    json_number(w, "offloaded_bytes", r->offloaded_bytes);
    json_number(w, "bytes_read", r->bytes_read);
    json_number(w, "verified_tensors", r->verified_tensors);
    json_number(w, "verified_bytes", r->verified_bytes);
    json_number(w, "unverified_tensors", r->unverified_tensors);
    json_number(w, "ring_bytes", r->ring_bytes);
    json_number(w, "stages", r->stages);
    json_number(w, "stage_bytes", r->stage_bytes);
    json_number(w, "turned_bytes", r->turned_bytes);
    json_real(w, "seconds", r->seconds);
    json_real(w, "first_seconds", r->first_seconds);
    json_real(w, "read_seconds", r->read_seconds);
    json_real(w, "place_seconds", r->place_seconds);
    json_real(w, "encode_seconds", r->encode_seconds);
    json_real(w, "wait_seconds", r->wait_seconds);
    load_bottleneck_write(w, facts->plan, r);
    json_bool(w, "is_pinned", r->is_pinned != 0);
    json_text(w, "io", r->io_path);
}

static void
write_check(json_writer *w, const berth_check_report *r)
{
    json_object_begin(w, "check");
    json_number(w, "tensors", r->tensors);
    json_number(w, "bytes", r->bytes);
    json_number(w, "mismatches", r->mismatches);
    json_real(w, "seconds", r->seconds);
    json_object_end(w);
}

void
load_print_json(output *out, const load_facts *facts, const load_failure *failure)
{
    berth_plan_summary summary;
    json_writer w;

    berth_plan_get(facts->plan, &summary);
    json_begin(&w, out, false);
    json_object_begin(&w, NULL);
    json_status(&w, failure != NULL ? failure->error->status : BERTH_OK);
    json_number(&w, "tensors", summary.berth_count);
    json_array_begin(&w, "tiers");
    for (uint32_t i = 0; i < summary.tier_count; i++)
        write_tier(&w, facts, i);
    json_array_end(&w);
    write_load(&w, facts);
    json_number(&w, "host_memory", facts->memory.current_bytes);
    json_number(&w, "host_memory_peak", facts->memory.peak_bytes);
    if (facts->is_checked)
        write_check(&w, &facts->check);
    if (failure != NULL)
        load_refuse_write(&w, failure, NULL);
    else if (facts->wants_memory)
        load_memory_write(&w, facts->context);
    json_object_end(&w);
    json_end(&w);
}
