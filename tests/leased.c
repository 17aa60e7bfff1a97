/* SPDX-License-Identifier: Apache-2.0 */
/* leased.c - models for tests of leases; see leased.h. */
#include "tests/leased.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/vacant.h"

/* ------------------------------------------------------------------------- model */

/* A checkpoint in the making. */
typedef struct making {
    fixture_builder *builder;
    char *lines; /* of the index */
    uint64_t hidden;
    uint64_t width;
    uint64_t words;
    uint32_t shard;
    uint32_t shards;
    bool is_sparse;
    uint32_t experts; /* in place of each MLP; 0: none */
    bool is_nf4; /* projections of layers */
} making;

static void
add(making *m, const char *name, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[2] = { rows, columns };
    const uint32_t rank = columns == 0 ? 1 : 2;

    if (m->is_sparse)
        fixture_add_sparse(m->builder, name, "BF16", rank, shape);
    else
        fixture_add(m->builder, name, "BF16", rank, shape, NULL);
    strcat(m->lines, fixture_format("%s model-%05u-of-%05u.safetensors\n", name,
                                    m->shard + 1, m->shards));
}

static void
add_matrix(making *m, const char *name, uint64_t rows, uint64_t columns)
{
    if (m->is_nf4)
        fixture_add_nf4(m->builder, name, rows, columns, true);
    else
        add(m, name, rows, columns);
}

static void
add_experts(making *m, uint32_t layer)
{
    static const char *const names[] = { "w1", "w2", "w3" };
    const char *const block =
        fixture_format("model.layers.%u.block_sparse_moe", layer);

    add(m, fixture_format("%s.gate.weight", block), m->experts, m->hidden);
    for (uint32_t i = 0; i < m->experts; i++)
        for (uint32_t k = 0; k < 3; k++)
            add_matrix(m, fixture_format("%s.experts.%u.%s.weight", block, i, names[k]),
                       k == 1 ? m->hidden : m->width, k == 1 ? m->width : m->hidden);
}

static void
add_layer(making *m, uint32_t layer)
{
    static const char *const names[] = { "self_attn.q_proj", "self_attn.k_proj",
                                         "self_attn.v_proj", "self_attn.o_proj",
                                         "mlp.gate_proj",    "mlp.up_proj",
                                         "mlp.down_proj" };

    for (uint32_t i = 0; i < (m->experts > 0 ? 4u : 7u); i++) {
        const char *const name =
            fixture_format("model.layers.%u.%s.weight", layer, names[i]);
        const uint64_t rows = i == 4 || i == 5 ? m->width : m->hidden;
        const uint64_t columns = i == 6 ? m->width : m->hidden;

        add_matrix(m, name, rows, columns);
    }
    if (m->experts > 0)
        add_experts(m, layer);
    add(m, fixture_format("model.layers.%u.input_layernorm.weight", layer), m->hidden, 0);
    add(m, fixture_format("model.layers.%u.post_attention_layernorm.weight", layer),
        m->hidden, 0);
}

static void
write_config(const making *m, const char *folder, uint32_t layers)
{
    fixture_text(
        fixture_format("%s/config.json", folder),
        fixture_format("{\"architectures\": [\"%s\"], \"model_type\": "
                       "\"%s\", %s\"hidden_size\": %u, \"intermediate_size\": %u, "
                       "\"num_hidden_layers\": %u, \"num_attention_heads\": 8, "
                       "\"num_key_value_heads\": 8, \"vocab_size\": %u, "
                       "\"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false}",
                       m->experts > 0 ? "MixtralForCausalLM" : "LlamaForCausalLM",
                       m->experts > 0 ? "mixtral" : "llama",
                       m->experts == 0
                           ? ""
                           : fixture_format("\"num_local_experts\": %u, "
                                            "\"num_experts_per_tok\": 2, ",
                                            m->experts),
                       (unsigned)m->hidden, (unsigned)m->width, layers,
                       (unsigned)m->words));
}

static const char *
make(making *m, uint32_t layers)
{
    const char *const folder = fixture_folder();
    uint64_t total = 0;

    m->lines = calloc(layers * (12 + 3 * m->experts) + 8, 128);
    if (m->lines == NULL)
        abort();
    for (m->shard = 0; m->shard < m->shards; m->shard++) {
        m->builder = fixture_begin();
        for (uint32_t i = m->shard; i < layers; i += m->shards)
            add_layer(m, i);
        if (m->shard == 0) {
            add(m, "model.embed_tokens.weight", m->words, m->hidden);
            add(m, "model.norm.weight", m->hidden, 0);
            add(m, "lm_head.weight", m->words, m->hidden);
        }
        total += fixture_finish(m->builder,
                                fixture_format("%s/model-%05u-of-%05u.safetensors", folder,
                                               m->shard + 1, m->shards));
    }
    if (m->is_nf4) { /* names are more than the index would have */
        CHECK_EQ(rename(fixture_format("%s/model-00001-of-00001.safetensors", folder),
                        fixture_format("%s/model.safetensors", folder)),
                 0);
    } else {
        fixture_index(fixture_format("%s/model.safetensors.index.json", folder), total,
                      m->lines);
    }
    free(m->lines);
    write_config(m, folder, layers);
    return folder;
}

const char *
leased_llama(uint32_t layers, uint32_t shards)
{
    making m = { .hidden = 64, .width = 160, .words = 32, .shards = shards };

    return make(&m, layers);
}

const char *
leased_nf4(uint32_t layers)
{
    making m = {
        .hidden = 64, .width = 160, .words = 32, .shards = 1, .is_nf4 = true
    };

    return make(&m, layers);
}

const char *
leased_moe(uint32_t layers, uint32_t experts, bool is_nf4)
{
    making m = { .hidden = 64, .width = is_nf4 ? 64 : 8, .words = 32, .shards = 1,
                 .experts = experts, .is_nf4 = is_nf4 };

    return make(&m, layers);
}

const char *
leased_wide(uint32_t layers)
{
    making m = {
        .hidden = 768, .width = 704, .words = 1024, .shards = 1, .is_sparse = true
    };

    return make(&m, layers);
}

/* ------------------------------------------------------------------------- slabs */

static void
fail_setup(const char *what, const berth_error *error)
{
    fprintf(stderr, "leased: %s: %s\n", what, error->message);
    exit(1);
}

static void
require(berth_status status, const char *what, const berth_error *error)
{
    if (status != BERTH_OK)
        fail_setup(what, error);
}

static void
add_tier(leased *l, uint32_t t)
{
    const berth_plan_tier *const plan = &l->planned.plan->tiers[t];
    berthi_model_tier *const tier = &l->tiers[t];
    berth_error error;

    tier->kind = plan->kind;
    tier->number = BERTHI_NO_DEVICE;
    if (plan->kind == BERTH_TIER_DISK)
        return;
    tier->device = plan->kind == BERTH_TIER_GPU && l->devices != NULL
                       ? berthi_devices_at(l->devices, t)
                       : l->model.host;
    tier->slots = plan->weights;
    tier->slot_bytes = plan->slot_bytes;
    tier->slot_count = plan->slot_count;
    tier->expert_slots = tier->slots + plan->slots;
    tier->scratch = tier->expert_slots + plan->expert_slots;
    tier->scratch_bytes = plan->scratch;
    tier->bytes = tier->scratch + plan->scratch;
    if (tier->bytes > 0)
        require(tier->device->table->alloc(tier->device, tier->bytes,
                                           (void **)(void *)&tier->slab, &error),
                "a slab", &error);
}

static uint64_t
pinned_bytes(const berthi_model_tier *tier)
{
    const uint64_t page = berthi_sys_page_bytes();

    return (tier->bytes + page - 1) / page * page;
}

/* Of the first `count` devices. */
static void
unpin_tier(const leased *l, berthi_model_tier *tier, uint32_t count)
{
    while (count > 0) {
        berthi_device *const device = berthi_devices_at(l->devices, --count);

        device->table->unpin(device, tier->slab, pinned_bytes(tier));
    }
    tier->is_pinned = false;
}

/* By all devices or none. */
static void
pin_tier(const leased *l, berthi_model_tier *tier, uint32_t count)
{
    tier->is_pinned = true;
    for (uint32_t d = 0; d < count && tier->is_pinned; d++) {
        berthi_device *const device = berthi_devices_at(l->devices, d);

        if (device->table->pin(device, tier->slab, pinned_bytes(tier), NULL) != BERTH_OK)
            unpin_tier(l, tier, d);
    }
}

/* Host memory that every device may copy from, or may no more. */
static void
pin_host(leased *l, bool is_pinned)
{
    const uint32_t count = l->devices != NULL ? berthi_devices_count(l->devices) : 0;

    for (uint32_t t = 0; t < l->model.tier_count; t++) {
        berthi_model_tier *const tier = &l->tiers[t];

        if (tier->kind != BERTH_TIER_CPU || tier->slab == NULL)
            continue;
        if (is_pinned)
            pin_tier(l, tier, count);
        else if (tier->is_pinned)
            unpin_tier(l, tier, count);
    }
}

/* The cargo of a berth as it is stored; free() it. */
static uint8_t *
read_cargo(const leased *l, uint64_t berth, berthi_cargo *cargo)
{
    const berth_checkpoint *const c = l->planned.checkpoint;
    uint8_t *const bytes = calloc(1, l->planned.plan->berths[berth].bytes + 1);
    berth_error error;

    if (bytes == NULL)
        abort();
    require(berthi_cargo_get(c, l->planned.plan, berth, cargo, &error), "cargo", &error);
    for (uint32_t i = 0; i < cargo->part_count; i++) {
        const berthi_cargo_part *const part = &cargo->parts[i];
        const berthi_entry *const entry = &c->table.entries[part->entry];
        const berthi_file *file;

        require(berthi_checkpoint_file(c, entry->shard, &file, &error), "a file", &error);
        require(berthi_file_read(file, bytes + part->offset, part->bytes,
                                 8 + c->shards[entry->shard].header_bytes + entry->begin,
                                 "cargo", &error),
                "cargo", &error);
    }
    return bytes;
}

/* Of what was stored, not of what lies between parts. */
static uint32_t
crc_of(const berthi_cargo *cargo, const uint8_t *bytes)
{
    uint32_t crc = 0;

    for (uint32_t i = 0; i < cargo->part_count; i++)
        crc = berthi_digest_crc32(crc, bytes + cargo->parts[i].offset,
                                  cargo->parts[i].bytes);
    return crc;
}

static void
fill_berth(leased *l, uint64_t berth)
{
    const berthi_berth *const b = &l->planned.plan->berths[berth];
    berthi_model_tier *const tier = &l->tiers[b->tier];
    berthi_cargo cargo;
    uint8_t *const bytes = read_cargo(l, berth, &cargo);

    l->cargos[berth] = cargo;
    l->crcs[berth] = crc_of(&cargo, bytes);
    if (tier->slab != NULL && !b->is_tied) {
        const berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE,
                                   .to = tier->slab + b->offset,
                                   .from = bytes,
                                   .bytes = b->bytes };
        berth_error error;

        require(tier->device->table->copy(tier->device, &copy, NULL, &error), "filling",
                &error);
    }
    free(bytes);
}

bool
leased_is_right(const leased *l, uint64_t berth, const uint8_t *memory)
{
    return crc_of(&l->cargos[berth], memory) == l->crcs[berth];
}

/* -------------------------------------------------------------------- begin, end */

static void
plan(leased *l, const char *folder, const leased_options *options)
{
    berth_plan_options plan_options;

    berth_plan_options_init(&plan_options);
    plan_options.max_memory = options->memory;
    plan_options.reserve_share = BERTH_RESERVE_NONE;
    plan_options.pins = options->pins;
    while (plan_options.pin_count < LEASED_PINS
           && options->pins[plan_options.pin_count] != NULL)
        plan_options.pin_count++;
    plan_options.slots = options->slots;
    plan_options.links = options->links;
    plan_options.context = 0;
    plan_options.batch = options->batch > 0 ? options->batch : 1;
    planned_begin(&l->planned, folder, &plan_options);
    require(l->planned.status, "a plan", &l->planned.error);
}

void
leased_begin(leased *l, const char *folder, const leased_options *options)
{
    berth_error error;

    memset(l, 0, sizeof *l);
    plan(l, folder, options);
    l->is_empty = options->is_empty;
    l->model.context = l->planned.context;
    l->model.checkpoint = l->planned.checkpoint;
    l->model.plan = l->planned.plan;
    l->model.tiers = l->tiers;
    l->model.tier_count = l->planned.summary.tier_count;
    l->model.wait_ns = UINT64_C(20000000000);
    require(berthi_device_cpu_open(l->planned.context, &l->model.host, &error), "cpu",
            &error);
    if (options->devices != NULL)
        require(berthi_devices_open(l->planned.context, options->devices, &l->devices,
                                    &error),
                "devices", &error);
    for (uint32_t t = 0; t < l->model.tier_count; t++)
        add_tier(l, t);
    pin_host(l, true);
    l->crcs = calloc(l->planned.summary.berth_count + 1, sizeof *l->crcs);
    l->cargos = calloc(l->planned.summary.berth_count + 1, sizeof *l->cargos);
    l->checks = calloc((leased_layers(l) + 1) * BERTHI_STREAM_SLOTS_MAX, sizeof *l->checks);
    if (l->crcs == NULL || l->cargos == NULL || l->checks == NULL)
        abort();
    for (uint64_t i = 0; !l->is_empty && i < l->planned.summary.berth_count; i++)
        fill_berth(l, i);
}

void
leased_end(leased *l)
{
    leased_stop(l);
    pin_host(l, false);
    for (uint32_t t = 0; t < l->model.tier_count; t++)
        if (l->tiers[t].slab != NULL)
            l->tiers[t].device->table->free(l->tiers[t].device, l->tiers[t].slab,
                                            l->tiers[t].bytes);
    vacant_close(l->devices);
    berthi_device_cpu_close(l->model.host);
    free(l->crcs);
    free(l->cargos);
    free(l->checks);
    planned_end(&l->planned);
}

berth_status
leased_start(leased *l, berth_error *error)
{
    const berth_status status =
        berthi_leases_create(&l->model, &l->options, &l->leases, error);

    for (uint32_t i = 0; status == BERTH_OK && l->leases != NULL && i < leased_layers(l); i++) {
        const berthi_lease_unit *const unit = berthi_lease_unit_of(l->leases, i);

        const uint32_t slots =
            unit != NULL ? l->leases->lines[unit->line].slot_count : 0;

        for (uint32_t s = 0; s < slots; s++)
            l->checks[i * BERTHI_STREAM_SLOTS_MAX + s] = (leased_check){
                l, i, l->leases->lines[unit->line].slots[s].memory
            };
    }
    return status;
}

bool
leased_settle(leased *l)
{
    bool is_done = true;

    for (uint32_t t = 0; t < l->model.tier_count; t++) {
        berthi_device *const device = l->tiers[t].device;
        berthi_event *event;

        if (device == NULL)
            continue;
        if (device->table->event_create(device, &event, NULL) != BERTH_OK)
            return false;
        is_done &= device->table->record(device, event, NULL, NULL) == BERTH_OK
                   && device->table->await(device, event,
                                           berthi_sys_now_ns() + UINT64_C(10000000000),
                                           NULL)
                          == BERTH_OK;
        device->table->event_destroy(device, event);
    }
    return is_done;
}

void
leased_stop(leased *l)
{
    berthi_leases_destroy(l->leases);
    l->leases = NULL;
}

/* ------------------------------------------------------------------------ asking */

uint32_t
leased_layers(const leased *l)
{
    return l->planned.summary.layer_count;
}

bool
leased_is_streamed(const leased *l, uint32_t layer)
{
    return l->leases != NULL && berthi_lease_unit_of(l->leases, layer) != NULL;
}

berthi_device *
leased_device(const leased *l, uint32_t layer)
{
    return l->tiers[l->planned.plan->layers[layer].out.home].device;
}

static uint64_t
sum_units(const leased *l, bool is_disk)
{
    const berth_plan *const plan = l->planned.plan;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < leased_layers(l); i++) {
        const berthi_lease_unit *const unit =
            leased_is_streamed(l, i) ? berthi_lease_unit_of(l->leases, i) : NULL;

        for (uint32_t k = 0; unit != NULL && k < unit->item_count; k++) {
            const berthi_berth *const b = &plan->berths[unit->items[k].berth];

            if ((plan->tiers[b->tier].kind == BERTH_TIER_DISK) == is_disk)
                bytes += b->bytes;
        }
    }
    return bytes;
}

berth_status
leased_use_all(void *user, berth_context *context, berth_error *error)
{
    leased *const l = user;
    berth_status status;

    l->model.context = context;
    status = leased_start(l, error);
    CHECK((status == BERTH_OK) == (l->leases != NULL));
    for (uint32_t pass = 0; pass < 2 && status == BERTH_OK; pass++)
        status = leased_pass(l, NULL, error);
    leased_stop(l);
    CHECK_EQ(l->wrong, 0);
    return status;
}

uint64_t
leased_unit_bytes(const leased *l)
{
    return sum_units(l, true) + sum_units(l, false);
}

uint64_t
leased_disk_bytes(const leased *l)
{
    return sum_units(l, true);
}

/* ------------------------------------------------------------------------- using */

/* On whatever thread: what is compared is leased while it runs. */
static void
compare(void *user)
{
    const leased_check *const check = user;
    leased *const l = check->leased;
    const berthi_lease_unit *const unit = berthi_lease_unit_of(l->leases, check->layer);
    bool is_wrong = false;

    for (uint32_t i = 0; i < unit->item_count; i++) {
        const berthi_lease_item *const item = &unit->items[i];

        is_wrong |= crc_of(&l->cargos[item->berth], check->memory + item->offset)
                    != l->crcs[item->berth];
    }
    atomic_fetch_add(&l->compared, 1);
    if (is_wrong)
        atomic_fetch_add(&l->wrong, 1);
}

static void
do_nothing(void *user)
{
    (void)user;
}

berth_status
leased_compare(leased *l, uint32_t layer, berthi_stream *stream, double seconds,
               berth_error *error)
{
    const berthi_lease_unit *const unit =
        leased_is_streamed(l, layer) ? berthi_lease_unit_of(l->leases, layer) : NULL;
    berthi_device *const device = leased_device(l, layer);
    berthi_request request = {
        .operation = BERTHI_OPERATION_CALL,
        .arguments.call = { .call = do_nothing, .seconds = seconds },
    };

    if (unit != NULL && !l->is_empty) {
        const uint8_t *const memory = berthi_leases_find(l->leases, unit->items[0].berth);
        leased_check *check = &l->checks[layer * BERTHI_STREAM_SLOTS_MAX];

        while (check->memory != memory)
            check++;
        request.arguments.call.call = compare;
        request.arguments.call.user = check;
    }
    return device->table->launch(device, &request, stream, error);
}

berth_status
leased_use(leased *l, uint32_t layer, berthi_stream *stream, double seconds,
           berth_error *error)
{
    berth_status status = berthi_leases_acquire(l->leases, layer, stream, error);
    berth_status released;

    if (status != BERTH_OK)
        return status;
    status = leased_compare(l, layer, stream, 0, error);
    if (status == BERTH_OK)
        status = leased_compare(l, layer, stream, seconds, error);
    released = berthi_leases_release(l->leases, layer, stream,
                                     status == BERTH_OK ? error : NULL);
    return status != BERTH_OK ? status : released;
}

berth_status
leased_pass(leased *l, berthi_stream *const *streams, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < leased_layers(l) && status == BERTH_OK; i++) {
        const uint32_t home = l->planned.plan->layers[i].out.home;

        status = leased_use(l, i, streams != NULL ? streams[home] : NULL, 0, error);
    }
    return status;
}
