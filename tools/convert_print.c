/* SPDX-License-Identifier: Apache-2.0 */
/* convert_print.c - what is said of a conversion at its end, to people and to programs. */
#include "tools/convert_print.h"

#include <inttypes.h>
#include <string.h>

/* -------------------------------------------------------------------- people */

static const char *
bottleneck_name(int32_t bottleneck)
{
    return bottleneck == BERTH_CONVERT_BY_READS      ? "read"
           : bottleneck == BERTH_CONVERT_BY_ENCODING ? "convert"
           : bottleneck == BERTH_CONVERT_BY_WRITES   ? "write"
                                                     : "unknown";
}

/* What a conversion would need room for, as a dry run has found it. */
static void
print_needs(const conversion *c)
{
    const berth_convert_report *const r = &c->result;
    session *const s = c->s;
    char memory[BERTH_SIZE_CAPACITY];
    char disk[BERTH_SIZE_CAPACITY];
    char available[BERTH_SIZE_CAPACITY];

    output_format(&s->out, "; %s of memory, %s of disk",
                  berth_size_format(r->planned_memory, memory),
                  berth_size_format(r->output_bytes, disk));
    if (r->free_bytes != UINT64_MAX)
        output_format(&s->out, " (%s free)", berth_size_format(r->free_bytes, available));
    if (r->device_memory > 0)
        output_format(&s->out, ", %s of %s", berth_size_format(r->device_memory, memory),
                      c->device.name);
}

/* What all parts make together. */
static void
print_whole(const conversion *c)
{
    const berth_convert_report *const r = &c->result;
    session *const s = c->s;
    char bytes[BERTH_SIZE_CAPACITY];
    char number[TEXT_NUMBER_CAPACITY];
    char kept[TEXT_NUMBER_CAPACITY];
    char share[COVERAGE_SHARE_CAPACITY];

    output_format(&s->out, "%s in %" PRIu32 " %s%s, ",
                  berth_size_format(r->planned_bytes, bytes), r->shards, "shard",
                  text_plural(r->shards));
    if (c->type == BERTH_ENCODING_NATIVE) {
        output_format(&s->out, "%s parameters", text_count(r->parameters, number));
    } else {
        output_format(&s->out, "%s weight%s quantized", text_number(r->quantized, number),
                      text_plural(r->quantized));
        if (r->kept > 0)
            output_format(&s->out, " (%s kept as stored)", text_number(r->kept, kept));
        output_format(&s->out, ", %s of the parameters",
                      coverage_share_text(r->coverage, 1000000000, share));
    }
    if (c->a->is_dry)
        print_needs(c);
}

/* What is there now, or would be. */
static void
print_output(const conversion *c)
{
    const char *const path = c->a->common.operands[1];
    const bool is_whole = c->a->is_dry || c->share.part == 0 || c->result.is_joined;
    session *const s = c->s;

    session_print_word(s, c->a->is_dry ? "dry run" : "ok", COLOUR_GOOD);
    output_name(&s->out, path, strlen(path));
    output_text(&s->out, ": ");
    if (is_whole)
        print_whole(c);
    if (!c->a->is_dry)
        part_print(&s->out, &c->share, &c->result);
    output_text(&s->out, "\n");
}

/* What it took: bytes, time, rate, and what everything else waited for. */
static void
print_effort(const conversion *c)
{
    const berth_convert_report *const r = &c->result;
    session *const s = c->s;
    char read[BERTH_SIZE_CAPACITY];
    char written[BERTH_SIZE_CAPACITY];
    char resumed[BERTH_SIZE_CAPACITY];
    char rate[BERTH_SIZE_CAPACITY];
    const double speed = r->seconds > 0 ? (double)r->bytes_read / r->seconds : 0;

    session_print_word(s, "io", COLOUR_DIM);
    output_format(&s->out, "%s read, %s written in %.1f s, %s/s; slowest: %s",
                  berth_size_format(r->bytes_read, read),
                  berth_size_format(r->bytes_written, written), r->seconds,
                  berth_size_format((uint64_t)speed, rate),
                  bottleneck_name(r->bottleneck));
    if (r->bytes_resumed > 0)
        output_format(&s->out, "; %s of an earlier run kept",
                      berth_size_format(r->bytes_resumed, resumed));
    output_text(&s->out, "\n");
    if (s->common->verbosity == 0)
        return;
    session_print_word(s, "io", COLOUR_DIM);
    output_format(&s->out, "%s; waited %.3f s for reads, converted %.3f s, wrote %.3f s\n",
                  r->io_path, r->read_seconds, r->convert_seconds, r->write_seconds);
}

/* What of the source was held against its manifest, and what of that was not read. */
static void
print_verified(const conversion *c)
{
    const berth_convert_report *const r = &c->result;
    session *const s = c->s;
    char bytes[BERTH_SIZE_CAPACITY];

    if (c->blobs.blobs_checked > 0) {
        session_print_word(s, "ok", COLOUR_GOOD);
        output_format(&s->out, "%" PRIu64 " hub blob%s SHA-256\n",
                      c->blobs.blobs_checked,
                      c->blobs.blobs_checked == 1 ? " matches its" : "s match their");
    }
    if (r->verified_tensors > 0) {
        session_print_word(s, "ok", COLOUR_GOOD);
        output_format(&s->out, "%" PRIu64 " stored tensor%s as the manifest says, %s\n",
                      r->verified_tensors, text_plural(r->verified_tensors),
                      berth_size_format(r->verified_bytes, bytes));
    }
    if (r->unverified_tensors > 0) {
        session_print_word(s, "--", COLOUR_DIM);
        output_format(&s->out, "%" PRIu64 " stored tensor%s not verified: nothing is made of "
                               "them\n",
                      r->unverified_tensors, text_plural(r->unverified_tensors));
    }
}

/* Who encoded, or decoded; a description says of itself that it is simulated. */
static void
print_device(const conversion *c)
{
    session *const s = c->s;
    char memory[BERTH_SIZE_CAPACITY];

    if (c->result.device_memory == 0)
        return;
    session_print_word(s, "device", COLOUR_DIM);
    output_format(&s->out, "%s, ", c->device.name);
    output_name(&s->out, c->device.description, strlen(c->device.description));
    output_format(&s->out, ": %s with %s of its memory\n",
                  c->type == BERTH_ENCODING_NATIVE ? "decoded" : "encoded",
                  berth_size_format(c->result.device_memory, memory));
}

static void
print_nonfinite(const conversion *c)
{
    const berth_convert_report *const r = &c->result;
    session *const s = c->s;
    char values[TEXT_NUMBER_CAPACITY];
    char tensors[TEXT_NUMBER_CAPACITY];

    if (r->nonfinite_values == 0)
        return;
    session_print_word(s, "warning", COLOUR_WARNING);
    output_format(&s->out, "%s value%s in %s tensor%s: NaN or infinite\n",
                  text_number(r->nonfinite_values, values), text_plural(r->nonfinite_values),
                  text_number(r->nonfinite_tensors, tensors),
                  text_plural(r->nonfinite_tensors));
}

void
convert_print_end(const conversion *c, berth_status status)
{
    if (c->a->is_quiet || status != BERTH_OK)
        return;
    print_output(c);
    print_verified(c);
    if (!c->a->is_dry)
        print_effort(c);
    if (!c->a->is_dry)
        print_device(c);
    print_nonfinite(c);
}

/* ------------------------------------------------------------------ programs */

static void
write_result(json_writer *w, const conversion *c)
{
    const berth_convert_report *const r = &c->result;

    json_object_begin(w, "result");
    json_number(w, "shards", r->shards);
    json_number(w, "planned_bytes", r->planned_bytes);
    json_number(w, "planned_memory", r->planned_memory);
    json_number(w, "device_memory", r->device_memory);
    json_number(w, "output_bytes", r->output_bytes);
    if (c->a->is_dry && r->free_bytes != UINT64_MAX)
        json_number(w, "free_bytes", r->free_bytes);
    else
        json_null(w, "free_bytes");
    json_number(w, "bytes_read", r->bytes_read);
    json_number(w, "bytes_written", r->bytes_written);
    json_number(w, "bytes_resumed", r->bytes_resumed);
    json_number(w, "verified_tensors", r->verified_tensors);
    json_number(w, "verified_bytes", r->verified_bytes);
    json_number(w, "unverified_tensors", r->unverified_tensors);
    json_number(w, "blobs_checked", c->blobs.blobs_checked);
    json_number(w, "tensors_written", r->tensors_written);
    json_number(w, "parameters", r->parameters);
    json_number(w, "quantized_weights", r->quantized);
    json_number(w, "kept_weights", r->kept);
    json_number(w, "nonfinite_values", r->nonfinite_values);
    json_number(w, "nonfinite_tensors", r->nonfinite_tensors);
    json_text(w, "bottleneck", bottleneck_name(r->bottleneck));
    json_real(w, "read_seconds", r->read_seconds);
    json_real(w, "convert_seconds", r->convert_seconds);
    json_real(w, "write_seconds", r->write_seconds);
    json_real(w, "seconds", r->seconds);
    json_text(w, "io_path", r->io_path);
    json_number(w, "parts_finished", r->parts_finished);
    json_number(w, "parts_missing", r->parts_missing);
    json_bool(w, "joined", r->is_joined);
    json_object_end(w);
}

/* What was asked to encode. */
static void
write_device(json_writer *w, const conversion *c)
{
    if (c->devices == NULL) {
        json_null(w, "device");
        return;
    }
    json_object_begin(w, "device");
    json_text(w, "name", c->device.name);
    json_text(w, "description", c->device.description);
    json_bool(w, "is_simulated", c->device.is_simulated != 0);
    json_object_end(w);
}

void
convert_write_end(conversion *c, berth_status status)
{
    json_writer *const w = &c->report.w;

    report_write_status(&c->report, status);
    json_text(w, "output", c->a->common.operands[1]);
    json_text(w, "encoding", berth_encoding_name(c->type));
    json_bool(w, "dry_run", c->a->is_dry);
    json_number(w, "part", c->share.part);
    json_number(w, "part_count", c->share.count);
    write_device(w, c);
    coverage_write_json(w, &c->coverage);
    if (c->has_started)
        write_result(w, c);
    else
        json_null(w, "result");
    json_object_end(w);
    json_end(w);
}
