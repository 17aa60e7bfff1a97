/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_load_find.c - what a file has of one parameter's states: found by its names,
 * and checked before any of it is used: the header first; steps and maps when the digests
 * of the whole file are right.
 */
#include <math.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/number.h"
#include "kernels/tables.h"
#include "loader/optimizer_file.h"

#define OLD_BLOCK 2048u /* of the published library before 0.44 */
#define NEST      "__bnb_optimizer_quant_state__"
#define NESTED    NEST "."
#define MAP       256u

static const char *const keys[BERTHI_STATE_KEY_COUNT] = {
#define KEY(identifier, name) [BERTHI_STATE_KEY_##identifier] = name,
    BERTHI_STATE_KEYS(KEY)
#undef KEY
};

/* One parameter that is looked at. */
typedef struct look {
    berthi_states_search *search;
    const berthi_trained_tensor *parameter;
    berthi_states_source *source;
} look;

/* --------------------------------------------------------------------------- errors */

/* As the file has it, behind the parameter's name; what is not there as berth has it. */
static const char *
name_of(const look *l, uint32_t key)
{
    berth_tensor t;

    if (l->source->keys[key] == BERTH_NO_TENSOR
        || berth_checkpoint_tensor(l->search->file, l->source->keys[key], &t) != BERTH_OK)
        return keys[key];
    return t.name + strlen(l->parameter->name) + 1;
}

static berth_status
fail_named(const look *l, const char *name, const char *wrong, berth_error *error)
{
    const berthi_about about = { .file = l->search->file->path,
                                .tensor = l->parameter->name,
                                .tensor_length = strlen(l->parameter->name) };

    return berthi_fail(error, BERTH_REASON_STATES_FILE, &about, "%s %s", name, wrong);
}

static berth_status
fail(const look *l, uint32_t key, const char *wrong, berth_error *error)
{
    return fail_named(l, name_of(l, key), wrong, error);
}

/* -------------------------------------------------------------------------- finding */

/* NAME.PREFIX KEY, or NO_TENSOR. */
static uint64_t
find(const look *l, const char *prefix, const char *key)
{
    const char *const parts[] = { l->parameter->name, ".", prefix, key };
    uint64_t length = 0;

    for (uint32_t i = 0; i < 4; i++) {
        const uint64_t size = strlen(parts[i]);

        memcpy(l->search->name + length, parts[i], size);
        length += size;
    }
    return berthi_table_find(&l->search->file->table, l->search->name, length);
}

/* What torch calls the states of its own optimizers; NULL: it has none such. */
static const char *
torch_key(int32_t kind, uint32_t key)
{
    static const char *const names[BERTHI_UPDATE_KIND_COUNT][BERTHI_STATE_TABLES] = {
        [BERTH_UPDATE_ADAM] = { "exp_avg", "exp_avg_sq" },
        [BERTH_UPDATE_ADAMW] = { "exp_avg", "exp_avg_sq" },
        [BERTH_UPDATE_LION] = { "exp_avg", NULL },
        [BERTH_UPDATE_MOMENTUM] = { "momentum_buffer", NULL },
        [BERTH_UPDATE_RMSPROP] = { "square_avg", NULL },
        [BERTH_UPDATE_ADAGRAD] = { "sum", NULL },
    };

    if (key != BERTHI_STATE_KEY_STATE1 && key != BERTHI_STATE_KEY_STATE2)
        return NULL;
    return names[kind][key - BERTHI_STATE_KEY_STATE1];
}

/* A parameter may be called as what is nested of this one: the keys are its own then. */
static bool
may_nest(const look *l)
{
    const size_t length = strlen(l->parameter->name);
    char *const name = l->search->name;

    memcpy(name, l->parameter->name, length);
    memcpy(name + length, "." NEST, sizeof "." NEST);
    return !berthi_optimizer_has_name(l->search->optimizer, name);
}

static void
find_keys(const look *l)
{
    const int32_t kind = l->search->optimizer->groups[l->parameter->group].kind;
    const bool nests = may_nest(l);

    for (uint32_t i = 0; i < BERTHI_STATE_KEY_COUNT; i++) {
        const char *const other = torch_key(kind, i);
        uint64_t number = find(l, "", keys[i]);

        if (number == BERTH_NO_TENSOR && nests)
            number = find(l, NESTED, keys[i]);
        if (number == BERTH_NO_TENSOR && other != NULL)
            number = find(l, "", other);
        l->source->keys[i] = number;
        l->search->used += number != BERTH_NO_TENSOR;
    }
}

static bool
has(const look *l, uint32_t key)
{
    return l->source->keys[key] != BERTH_NO_TENSOR;
}

/* torch's SGD does not count its steps: nothing but the first one is another for it. */
static bool
is_uncounted(const look *l)
{
    const uint64_t number = find(l, "", "momentum_buffer");

    return number != BERTH_NO_TENSOR && number == l->source->keys[BERTHI_STATE_KEY_STATE1];
}

/* ------------------------------------------------------------- another optimizer's */

static bool
is_adam(int32_t kind)
{
    return kind == BERTH_UPDATE_ADAM || kind == BERTH_UPDATE_ADAMW;
}

/* Where the file says whose states they are. Adam and AdamW keep the same. */
static berth_status
check_kind(const look *l, berth_error *error)
{
    const berth_optimizer *const o = l->search->optimizer;
    const int32_t kind = o->groups[l->parameter->group].kind;
    const berth_checkpoint *const file = l->search->file;
    const uint32_t shard =
        file->table.entries[l->source->keys[BERTHI_STATE_KEY_STATE1]].shard;
    uint64_t length = 0;
    const char *const value =
        berthi_states_pair(file, shard, BERTHI_STATES_KIND, l->parameter->name, &length);
    const char *found = "unknown";

    if (value == NULL)
        return BERTH_OK;
    for (int32_t i = 0; i < BERTHI_UPDATE_KIND_COUNT; i++) {
        const char *const name = berth_update_name(i);

        if (length != strlen(name) || memcmp(value, name, length) != 0)
            continue;
        if (i == kind || (is_adam(i) && is_adam(kind)))
            return BERTH_OK;
        found = name;
    }
    return berthi_fail(error, BERTH_REASON_STATES_FILE,
                       &(berthi_about){ .file = file->path,
                                       .tensor = l->parameter->name,
                                       .tensor_length = strlen(l->parameter->name) },
                       "%s is of another optimizer: %s, not %s",
                       name_of(l, BERTHI_STATE_KEY_STATE1), found, berth_update_name(kind));
}

/*
 * Of torch's states none that this optimizer has not: Adam's are no Lion's, and an RMSprop
 * with a momentum, or centered, is not what rmsprop is here.
 */
static berth_status
check_torch(const look *l, berth_error *error)
{
    static const char *const names[] = { "exp_avg",    "exp_avg_sq", "exp_inf",
                                         "mu_product", "square_avg", "grad_avg",
                                         "acc_delta",  "sum",        "momentum_buffer" };
    const int32_t kind = l->search->optimizer->groups[l->parameter->group].kind;
    const char *const first = torch_key(kind, BERTHI_STATE_KEY_STATE1);
    const char *const second = torch_key(kind, BERTHI_STATE_KEY_STATE2);

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const bool is_own = (first != NULL && strcmp(names[i], first) == 0)
                            || (second != NULL && strcmp(names[i], second) == 0);

        if (!is_own && find(l, "", names[i]) != BERTH_NO_TENSOR)
            return fail_named(l, names[i], "is there, and belongs to another optimizer", error);
    }
    return BERTH_OK;
}

/* Every key that has to be there is, and none that cannot belong to this optimizer. */
static berth_status
check_keys(const look *l, berth_error *error)
{
    const uint32_t tables = berthi_state_tables(&l->parameter->states);
    const bool is_coded =
        has(l, BERTHI_STATE_KEY_ABSMAX1) || has(l, BERTHI_STATE_KEY_QMAP1);
    berth_status status;

    for (uint32_t key = 0; key < BERTHI_STATE_KEY_MASTER; key++) {
        const bool is_second = key == BERTHI_STATE_KEY_STATE2
                               || key == BERTHI_STATE_KEY_ABSMAX2
                               || key == BERTHI_STATE_KEY_QMAP2;
        const bool is_code = key >= BERTHI_STATE_KEY_ABSMAX1;
        const bool is_due = (!is_second || tables == 2) && (!is_code || is_coded);
        const bool can_miss = key == BERTHI_STATE_KEY_STEP && is_uncounted(l);

        if (is_due && !has(l, key) && !can_miss)
            return fail(l, key, "is not in the file", error);
        if (!is_due && has(l, key))
            return fail(l, key,
                        "is there, and belongs to another optimizer or to states of 8 bits",
                        error);
    }
    if (find(l, "", "max_exp_avg_sq") != BERTH_NO_TENSOR)
        return fail(l, BERTHI_STATE_KEY_STATE2,
                    "is of another optimizer: amsgrad, which has max_exp_avg_sq besides",
                    error);
    status = check_torch(l, error);
    return status == BERTH_OK ? check_kind(l, error) : status;
}

/* ------------------------------------------------------------------ shapes and dtypes */

static bool
is_state_shape(const berth_tensor *t, const berthi_trained_tensor *p, uint32_t halves)
{
    const uint32_t more = halves == 2;

    if (t->rank != p->rank + more || (more && t->shape[0] != 2))
        return false;
    for (uint32_t i = 0; i < p->rank; i++)
        if (t->shape[i + more] != p->shape[i])
            return false;
    return true;
}

static berth_tensor
tensor_of(const look *l, uint32_t key)
{
    berth_tensor t;

    (void)berth_checkpoint_tensor(l->search->file, l->source->keys[key], &t);
    return t;
}

static berth_status
check_state(const look *l, uint32_t table, berth_error *error)
{
    const uint32_t key = BERTHI_STATE_KEY_STATE1 + table;
    const uint32_t halves = berthi_state_halves(&l->parameter->states, table);
    const berth_tensor t = tensor_of(l, key);
    const bool is_coded = has(l, BERTHI_STATE_KEY_ABSMAX1);

    if (!is_state_shape(&t, l->parameter, halves))
        return fail(l, key,
                    halves == 2 ? "has not twice the parameter's shape"
                                : "has another shape than the parameter",
                    error);
    if (is_coded ? t.dtype != BERTH_U8 : !berthi_is_number(t.dtype))
        return fail(l, key,
                    is_coded ? "is not of 8 bits, but has an absmax"
                             : "is no f32, bf16 or f16, and has no absmax",
                    error);
    return BERTH_OK;
}

/* Its length tells the size of blocks: the same for both states. */
static berth_status
check_absmax(const look *l, uint32_t table, berth_error *error)
{
    const uint32_t key = BERTHI_STATE_KEY_ABSMAX1 + table;
    const uint32_t halves = berthi_state_halves(&l->parameter->states, table);
    const uint64_t elements = l->parameter->states.elements;
    const berth_tensor t = tensor_of(l, key);
    uint32_t block = 0;

    if (t.dtype != BERTH_F32)
        return fail(l, key, "is not f32", error);
    if (t.rank == halves && (halves == 1 || t.shape[0] == 2)) {
        const uint64_t blocks = t.shape[halves - 1];

        if (blocks == berthi_state_blocks(elements, BERTHI_UPDATE_BLOCK))
            block = BERTHI_UPDATE_BLOCK;
        else if (blocks == berthi_state_blocks(elements, OLD_BLOCK))
            block = OLD_BLOCK;
    }
    if (block == 0 || (table == 1 && block != l->source->block))
        return fail(l, key, "has another shape than one number for each 256 elements", error);
    l->source->block = block;
    return BERTH_OK;
}

static berth_status
check_qmap(const look *l, uint32_t table, berth_error *error)
{
    const uint32_t key = BERTHI_STATE_KEY_QMAP1 + table;
    const berth_tensor t = tensor_of(l, key);

    if (t.dtype != BERTH_F32 || t.rank != 1 || t.shape[0] != MAP)
        return fail(l, key, "is not 256 numbers of f32", error);
    return BERTH_OK;
}

/* The published library built its maps where it ran; old ones begin at -1. */
static berth_status
read_qmap(const look *l, uint32_t table, berth_error *error)
{
    const uint32_t key = BERTHI_STATE_KEY_QMAP1 + table;
    const uint32_t *const mine = table == 0 ? berthi_signed_map : berthi_unsigned_map;
    uint32_t map[MAP];
    uint32_t *copy;
    berth_status status =
        berthi_checkpoint_read(l->search->file, l->source->keys[key], 0, map, sizeof map,
                               "reading a map", error);

    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < MAP; i++)
        if (!(fabsf(berthi_core_float(map[i])) <= 1))
            return fail(l, key, "has a number that is not in [-1, 1]", error);
    l->source->maps[table] = mine;
    if (memcmp(map, mine, sizeof map) == 0)
        return BERTH_OK;
    copy = berthi_arena_alloc(&l->search->arena, sizeof map, sizeof *copy);
    if (copy == NULL)
        return berthi_fail_memory(error, "loading states");
    memcpy(copy, map, sizeof map);
    l->source->maps[table] = copy;
    l->source->is_foreign[table] = true;
    return BERTH_OK;
}

static berth_status
check_tables(const look *l, berth_error *error)
{
    const uint32_t tables = berthi_state_tables(&l->parameter->states);
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < tables && status == BERTH_OK; i++) {
        status = check_state(l, i, error);
        if (status != BERTH_OK || !has(l, BERTHI_STATE_KEY_ABSMAX1))
            continue;
        status = check_absmax(l, i, error);
        if (status == BERTH_OK)
            status = check_qmap(l, i, error);
    }
    l->search->blocks += l->source->block == OLD_BLOCK;
    return status;
}

static berth_status
check_master(const look *l, berth_error *error)
{
    berth_tensor t;

    if (!l->parameter->states.has_master)
        return BERTH_OK;
    if (!has(l, BERTHI_STATE_KEY_MASTER)) {
        l->search->bare++;
        return BERTH_OK;
    }
    t = tensor_of(l, BERTHI_STATE_KEY_MASTER);
    if (t.dtype != BERTH_F32 || !is_state_shape(&t, l->parameter, 1))
        return fail(l, BERTHI_STATE_KEY_MASTER, "is not f32 in the parameter's shape", error);
    return BERTH_OK;
}

/* ----------------------------------------------------------------------------- steps */

/* A number of updates, as berth, the published library or torch writes it; or what is wrong
 * with it. */
static const char *
count_updates(int32_t dtype, const void *stored, uint64_t *out)
{
    int64_t wide;
    int32_t narrow;
    float number;

    if (dtype == BERTH_I64) {
        memcpy(&wide, stored, sizeof wide);
    } else if (dtype == BERTH_I32) {
        memcpy(&narrow, stored, sizeof narrow);
        wide = narrow;
    } else {
        memcpy(&number, stored, sizeof number);
        if (!(number == floorf(number)))
            return "is no number of updates: it is not whole";
        /* All beyond are refused below, and no int64 is lost. */
        wide = (int64_t)fmaxf(fminf(number, 0x1p62f), -1);
    }
    *out = (uint64_t)wide;
    if (wide < 0)
        return "is no number of updates: it is negative";
    return *out > BERTHI_STATES_STEPS ? "is no number of updates: it is more than 2^53" : NULL;
}

static berth_status
check_step(const look *l, berth_error *error)
{
    const uint32_t key = BERTHI_STATE_KEY_STEP;
    berth_tensor t;

    if (!has(l, key))
        return BERTH_OK;
    t = tensor_of(l, key);
    if ((t.dtype != BERTH_I64 && t.dtype != BERTH_I32 && t.dtype != BERTH_F32)
        || t.elements != 1 || t.rank > 1)
        return fail(l, key, "is not one number of int64, int32 or f32", error);
    return BERTH_OK;
}

static berth_status
read_count(const look *l, berth_error *error)
{
    const uint32_t key = BERTHI_STATE_KEY_STEP;
    const berth_tensor t = tensor_of(l, key);
    uint8_t stored[sizeof(int64_t)];
    const char *wrong;
    berth_status status =
        berthi_checkpoint_read(l->search->file, l->source->keys[key], 0, stored, t.bytes,
                               "reading a step", error);

    if (status != BERTH_OK)
        return status;
    wrong = count_updates(t.dtype, stored, &l->source->step);
    return wrong == NULL ? BERTH_OK : fail(l, key, wrong, error);
}

/* What is not counted has been begun: its momentum is there. */
static berth_status
read_step(const look *l, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (has(l, BERTHI_STATE_KEY_STEP))
        status = read_count(l, error);
    else
        l->source->step = 1;
    if (status != BERTH_OK)
        return status;
    l->search->step = berthi_max_u64(l->search->step, l->source->step);
    return BERTH_OK;
}

/* -------------------------------------------------------------------------- interface */

berth_status
berthi_states_find(berthi_states_search *search, const berthi_trained_tensor *parameter,
                   berthi_states_source *out, berth_error *error)
{
    const look seen = { search, parameter, out };
    berth_status status;

    find_keys(&seen);
    status = check_keys(&seen, error);
    if (status == BERTH_OK)
        status = check_tables(&seen, error);
    if (status == BERTH_OK)
        status = check_master(&seen, error);
    return status == BERTH_OK ? check_step(&seen, error) : status;
}

berth_status
berthi_states_look(berthi_states_search *search, const berthi_trained_tensor *parameter,
                   berthi_states_source *out, berth_error *error)
{
    const look seen = { search, parameter, out };
    const uint32_t tables = berthi_state_tables(&parameter->states);
    berth_status status = read_step(&seen, error);

    for (uint32_t i = 0; i < tables && has(&seen, BERTHI_STATE_KEY_QMAP1); i++)
        if (status == BERTH_OK)
            status = read_qmap(&seen, i, error);
    search->foreign += out->is_foreign[0] || out->is_foreign[1];
    return status;
}
