/* SPDX-License-Identifier: Apache-2.0 */
/* load_refuse.c - see load_refuse.h. */
#include "tools/load_refuse.h"

#include <unistd.h>

#include "tools/json_error.h"
#include "tools/load_memory.h"
#include "tools/load_tier.h"

bool
load_is_refused(berth_status status)
{
    return status == BERTH_ENOFIT || status == BERTH_ENOMEM;
}

/* --------------------------------------------------------------------------- text */

static void
print_tier(output *out, const load_failure *f, const load_advice *advice, uint32_t number,
           const berth_plan_tier *tier)
{
    char sizes[2][BERTH_SIZE_CAPACITY];
    berth_device device;

    output_format(out, "  %s takes %s", tier->name,
                  berth_size_format(load_slab_bytes(tier), sizes[0]));
    if (tier->kind == BERTH_TIER_CPU && f->ring_bytes > 0)
        output_format(out, ", and %s of staging",
                      berth_size_format(f->ring_bytes, sizes[1]));
    if (tier->turned > 0)
        output_format(out, ", and %s while weights are turned",
                      berth_size_format(tier->turned, sizes[1]));
    if (load_has_device(f->plan, f->devices, number, &device))
        output_format(out, ", %s has %s%s", device.name,
                      berth_size_format(load_room(f, advice, number, tier), sizes[1]),
                      device.is_simulated ? " (simulated)" : "");
    if (tier->kind == BERTH_TIER_CPU && advice->host_room != UINT64_MAX)
        output_format(out, ", this process can have %s",
                      berth_size_format(advice->host_room, sizes[1]));
    output_text(out, "\n");
}

static void
print_tiers(output *out, const load_failure *f, const load_advice *advice)
{
    berth_plan_tier tier;

    output_text(out, "what the plan takes:\n");
    for (uint32_t i = 0; berth_plan_get_tier(f->plan, i, &tier) == BERTH_OK; i++)
        if (tier.kind != BERTH_TIER_DISK)
            print_tier(out, f, advice, i, &tier);
}

/* All of them together are one change: each of them alone does not help. */
static void
print_shortage(output *out, const load_failure *f, const load_advice *advice)
{
    char size[BERTH_SIZE_CAPACITY];
    const char *between = "  ";
    berth_plan_tier tier;

    for (uint32_t i = 0; berth_plan_get_tier(f->plan, i, &tier) == BERTH_OK; i++) {
        const uint64_t need = load_need(f, &tier);
        const uint64_t room = load_room(f, advice, i, &tier);

        if (advice->has_shortage && need > room)
            output_format(out, "%s%s more for %s", between,
                          berth_size_format(need - room, size), tier.name);
        else if (!advice->has_shortage && f->error->status == BERTH_ENOMEM
                 && tier.kind == BERTH_TIER_CPU)
            output_format(out, "%s%s of host memory that may be allocated", between,
                          berth_size_format(need, size));
        else
            continue;
        between = ", ";
    }
    if (between[0] == ',')
        output_text(out, "\n");
}

static const char *
name_of(const load_other_plan *plan)
{
    return plan->is_encoded && plan->has_disk ? "a plan with weights in nf4, and the disk"
           : plan->is_encoded                 ? "a plan with weights in nf4"
           : plan->has_disk                   ? "a plan with the disk"
                                              : "a plan for what there is";
}

static void
print_plans(output *out, const load_advice *advice)
{
    for (uint32_t i = 0; i < advice->plan_count; i++) {
        const load_other_plan *const plan = &advice->plans[i];

        output_format(out, "  %s: ", name_of(plan));
        output_text(out, plan->options);
        output_text(out, plan->needs_file ? ", loaded with --offload-dir\n" : "\n");
    }
}

/* Anything at all of what is listed. */
static bool
is_helped(const load_failure *f, const load_advice *advice)
{
    return advice->has_shortage || advice->plan_count > 0
           || f->error->status == BERTH_ENOMEM;
}

/* Not among what would help: the last that was tried, and what it is short of. */
static void
print_refusal(output *out, const load_advice *advice)
{
    if (advice->plan_count > 0 || !advice->is_refused)
        return;
    output_text(out, "for what there is, ");
    output_text(out, advice->refused.options);
    output_format(out, ", there is no plan: %s %s\n", advice->refusal.tensor,
                  advice->refusal.message);
}

void
load_refuse(const load_failure *f, const load_advice *advice)
{
    output out;

    output_init(&out, STDERR_FILENO);
    if (f->plan != NULL) {
        print_tiers(&out, f, advice);
        if (is_helped(f, advice))
            output_text(&out, "what would help, one of:\n");
        print_shortage(&out, f, advice);
        print_plans(&out, advice);
        print_refusal(&out, advice);
    } else if (advice->plan_count > 0) {
        output_text(&out, "what would help, too:\n");
        print_plans(&out, advice);
    }
    output_text(&out, "what berth held, and let go:\n");
    load_memory_print(&out, f->context);
    output_flush(&out);
}

/* --------------------------------------------------------------------------- JSON */

/* False beyond the last, and where there is no plan. */
static bool
can_read_tier(const load_failure *f, uint32_t number, berth_plan_tier *out)
{
    return f->plan != NULL && berth_plan_get_tier(f->plan, number, out) == BERTH_OK;
}

/* There is no plan, but its error has the tier and what it takes and has. */
static bool
names_shortage(const load_failure *f)
{
    const uint32_t both = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL;

    return f->plan == NULL && f->error->status == BERTH_ENOFIT
           && f->error->tensor[0] != '\0' && (f->error->has & both) == both
           && f->error->expected > f->error->actual;
}

static void
write_named_tier(json_writer *w, const load_failure *f)
{
    json_object_begin(w, NULL);
    json_text(w, "name", f->error->tensor);
    json_number(w, "takes", f->error->expected);
    json_number(w, "has", f->error->actual);
    json_object_end(w);
}

static void
write_tiers(json_writer *w, const load_failure *f, const load_advice *advice)
{
    berth_plan_tier tier;
    berth_device device;

    json_array_begin(w, "tiers");
    if (names_shortage(f))
        write_named_tier(w, f);
    for (uint32_t i = 0; can_read_tier(f, i, &tier); i++) {
        if (tier.kind == BERTH_TIER_DISK)
            continue;
        json_object_begin(w, NULL);
        json_text(w, "name", tier.name);
        json_number(w, "takes", load_need(f, &tier));
        json_known(w, "has", load_room(f, advice, i, &tier));
        if (load_has_device(f->plan, f->devices, i, &device)) {
            json_text(w, "device", device.name);
            json_bool(w, "is_simulated", device.is_simulated != 0);
        }
        json_object_end(w);
    }
    json_array_end(w);
}

static void
write_more(json_writer *w, const char *tier, uint64_t bytes)
{
    json_object_begin(w, NULL);
    json_text(w, "tier", tier);
    json_number(w, "bytes", bytes);
    json_object_end(w);
}

static void
write_shortage(json_writer *w, const load_failure *f, const load_advice *advice)
{
    berth_plan_tier tier;

    json_object_begin(w, NULL);
    json_array_begin(w, "more");
    if (names_shortage(f))
        write_more(w, f->error->tensor, f->error->expected - f->error->actual);
    for (uint32_t i = 0; can_read_tier(f, i, &tier); i++) {
        const uint64_t need = load_need(f, &tier);
        const uint64_t room = load_room(f, advice, i, &tier);

        if (need > room)
            write_more(w, tier.name, need - room);
    }
    json_array_end(w);
    json_object_end(w);
}

static void
write_changes(json_writer *w, const load_failure *f, const load_advice *advice)
{
    json_array_begin(w, "changes");
    if (advice->has_shortage || names_shortage(f))
        write_shortage(w, f, advice);
    for (uint32_t i = 0; i < advice->plan_count; i++) {
        json_object_begin(w, NULL);
        json_text(w, "plan", advice->plans[i].options);
        json_bool(w, "needs_offload_dir", advice->plans[i].needs_file);
        json_object_end(w);
    }
    json_array_end(w);
}

void
load_refuse_write(json_writer *w, const load_failure *f, const load_advice *advice)
{
    json_error_object(w, f->error);
    if (advice != NULL && (f->plan != NULL || names_shortage(f)))
        write_tiers(w, f, advice);
    if (advice != NULL)
        write_changes(w, f, advice);
    load_memory_write(w, f->context);
}

void
load_refuse_json(output *out, berth_status status, const load_failure *f,
                 const load_advice *advice)
{
    json_writer w;

    json_begin(&w, out, false);
    json_object_begin(&w, NULL);
    json_status(&w, status);
    load_refuse_write(&w, f, advice);
    json_object_end(&w);
    json_end(&w);
}
