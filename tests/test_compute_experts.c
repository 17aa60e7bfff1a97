/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_compute_experts.c - products with weights of several experts where they lie: for each
 * the bits of berth_model_multiply() with its inputs, whatever the device, the encoding and the
 * numbers of inputs; and what is refused before anything is asked for. Experts are layers of a
 * Llama here: matrices of one shape.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/experts.h"
#include "kernels/number.h"
#include "kernels/product_arguments.h"
#include "tests/fake_cuda.h"
#include "tests/loaded.h"
#include "tests/random.h"
#include "tests/simt.h"
#include "tests/t.h"
#include "tests/trap.h"

#define LAYERS 4u
#define EXPERTS 110u /* more than two operations take */
#define INPUTS 160u
#define MOST_ROWS 704u
#define MOST_COLUMNS 704u

#define INPUTS_BYTES (UINT64_C(4) * INPUTS * MOST_COLUMNS)
#define OUTPUTS_BYTES (UINT64_C(4) * INPUTS * MOST_ROWS)
#define BIAS_BYTES (UINT64_C(4) * MOST_ROWS)
#define SCRATCH_BYTES (UINT64_C(1) << 20)
#define ROOM_BYTES (INPUTS_BYTES + 2 * OUTPUTS_BYTES + 2 * BIAS_BYTES + SCRATCH_BYTES)

#define HERE "0=64MiB,cpu=1GiB"
#define GPU "sim:64MiB,backing=sealed" /* the host cannot touch its memory */

/* Each pair of weights once where it is slow; there is chance enough in what each has. */
#define TURNS (T_IS_SANITIZED ? 3u : 9u)

static const fake_cuda_machine machine = { .count = 1, .driver = 13000, .architecture = 90,
                                           .memory_bytes = UINT64_C(64) << 20, .is_late = true };
static uint64_t state = 0x9E3779B97F4A7C15u;

typedef enum place { PROCESSOR, SIMULATION, FAKE_GPU } place;

/* What products are made in: memory of one device. */
typedef struct room {
    loaded l;
    berth_devices *devices; /* the model's; for host memory others */
    place where;
    char *memory;
    char *inputs;
    char *outputs[2];
    char *biases[2];
    char *scratch;
} room;

/* A call, and what the arrays of it are. */
typedef struct asked {
    berth_multiply_experts step;
    uint64_t berths[2 * EXPERTS];
    uint32_t ranges[EXPERTS + 1];
    const void *biases[2 * EXPERTS];
    void *outputs[2];
    uint64_t rows;
    uint64_t columns;
} asked;

typedef struct setup {
    int32_t type;
    bool is_double;
    const char *keep; /* a pattern of what is not encoded */
    const char *pin;
} setup;

static uint64_t
draw(uint64_t below)
{
    return random_next(&state) % below;
}

/* The first is the model's; without devices it is in host memory. */
static void
open_devices(room *r)
{
    if (r->where == FAKE_GPU) {
        CHECK_EQ(berthi_devices_open_cuda(r->l.p.context, fake_cuda_calls(), "cuda",
                                          &r->l.devices, NULL),
                 BERTH_OK);
        r->l.options.devices = r->l.devices;
    }
    r->devices = r->l.devices;
    if (r->where == PROCESSOR)
        CHECK_EQ(berth_devices_open(r->l.p.context, "cpu", &r->devices, NULL), BERTH_OK);
}

static bool
has_room(room *r)
{
    char *behind;

    if (!CHECK_EQ(berth_device_alloc(r->devices, 0, ROOM_BYTES, (void **)&r->memory, NULL),
                  BERTH_OK))
        return false;
    r->inputs = r->memory;
    behind = r->inputs + INPUTS_BYTES;
    for (uint32_t w = 0; w < 2; w++) {
        r->outputs[w] = behind + w * OUTPUTS_BYTES;
        r->biases[w] = behind + 2 * OUTPUTS_BYTES + w * BIAS_BYTES;
    }
    r->scratch = behind + 2 * OUTPUTS_BYTES + 2 * BIAS_BYTES;
    return true;
}

/* False: nothing was loaded. */
static bool
begin(room *r, const setup *s, place where)
{
    berth_plan_options options = loaded_options(where == PROCESSOR ? "cpu=64MiB" : HERE);

    memset(r, 0, sizeof *r);
    if (where == FAKE_GPU)
        fake_cuda_begin(&machine);
    options.type = s->type;
    options.double_quant = s->is_double;
    options.pins = &s->pin;
    options.pin_count = s->pin != NULL;
    options.keep = &s->keep;
    options.keep_count = s->keep != NULL;
    r->where = where;
    loaded_begin(&r->l, loaded_llama(LAYERS, "BF16", 1), &options,
                 where == SIMULATION ? GPU : NULL);
    open_devices(r);
    loaded_load(&r->l);
    return CHECK_EQ(r->l.status, BERTH_OK) && has_room(r);
}

static void
end(room *r)
{
    CHECK_EQ(berth_stream_wait(r->devices, 0, NULL, -1, NULL), BERTH_OK);
    berth_device_free(r->devices, 0, r->memory, ROOM_BYTES);
    if (r->devices != r->l.devices)
        berth_devices_close(r->devices);
    loaded_unload(&r->l);
    if (r->where == FAKE_GPU) { /* products of many inputs keep memory until its end */
        berth_devices_close(r->l.devices);
        r->l.devices = NULL;
    }
    loaded_end(&r->l);
    if (r->where == FAKE_GPU) {
        fake_cuda_check_empty();
        fake_cuda_end();
    }
}

static uint64_t
find(const room *r, uint32_t layer, const char *name)
{
    char text[80];

    snprintf(text, sizeof text, "model.layers.%u.%s.weight", (unsigned)layer, name);
    return berth_model_find(r->l.model, text, strlen(text));
}

/* ---------------------------------------------------------------------- what is asked */

static void
write_all(const room *r, void *to, const void *from, uint64_t bytes)
{
    CHECK_EQ(berth_device_write(r->devices, 0, to, from, bytes, NULL, NULL), BERTH_OK);
}

static void
draw_numbers(const room *r, char *to, uint64_t count, int32_t dtype)
{
    char *const numbers = malloc(4 * count);

    for (uint64_t i = 0; i < count; i++)
        berthi_core_store(numbers, dtype, i, random_signed(&state));
    write_all(r, to, numbers, count * berthi_number_bytes(dtype));
    free(numbers);
}

static uint64_t
count_scratch(const room *r, const asked *a, uint32_t count)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < a->step.weights * a->step.experts; i++) {
        const uint64_t its = berth_model_multiply_experts_scratch(r->l.model, a->berths[i],
                                                                  a->step.dtype, count);

        bytes = bytes > its ? bytes : its;
    }
    return bytes;
}

/* `names`: of one weight, or of two. */
static asked *
ask(const room *r, const char *const names[2], uint32_t experts, int32_t dtype)
{
    asked *const a = calloc(1, sizeof *a);
    berth_model_tensor tensor;

    a->step = (berth_multiply_experts){
        .berths = a->berths, .ranges = a->ranges, .inputs = r->inputs, .outputs = a->outputs,
        .biases = a->biases, .scratch = r->scratch, .dtype = dtype, .experts = experts,
        .weights = names[1] != NULL ? 2 : 1
    };
    for (uint32_t w = 0; w < a->step.weights; w++) {
        a->outputs[w] = r->outputs[w];
        for (uint32_t e = 0; e < experts; e++)
            a->berths[w * experts + e] = find(r, e % LAYERS, names[w]);
    }
    CHECK_EQ(berth_model_get_tensor(r->l.model, a->berths[0], &tensor), BERTH_OK);
    a->rows = tensor.shape[0];
    a->columns = tensor.shape[1];
    draw_numbers(r, r->inputs, INPUTS * a->columns, dtype);
    return a;
}

/* Each has up to `most` inputs, most of them few or none; some inputs are nobody's. */
static void
draw_ranges(const room *r, asked *a, uint32_t most)
{
    const bool is_int8_bias = a->step.threshold > 0;
    uint32_t used = (uint32_t)draw(3);
    uint32_t largest = 1;

    for (uint32_t e = 0; e < a->step.experts; e++) {
        uint64_t count = draw(4) == 0 ? draw(most + 1) : draw(3);

        if (count > INPUTS - used)
            count = INPUTS - used;
        a->ranges[e] = used;
        used += (uint32_t)count;
        largest = largest > count ? largest : (uint32_t)count;
    }
    a->ranges[a->step.experts] = used;
    for (uint32_t w = 0; w < a->step.weights; w++) {
        draw_numbers(r, r->biases[w], a->rows, is_int8_bias ? BERTH_F16 : a->step.dtype);
        for (uint32_t e = 0; e < a->step.experts; e++)
            a->biases[w * a->step.experts + e] = draw(2) == 0 ? r->biases[w] : NULL;
    }
    a->step.biases = draw(3) == 0 ? NULL : a->biases;
    a->step.scratch_bytes = count_scratch(r, a, largest);
    CHECK_LE(a->step.scratch_bytes, SCRATCH_BYTES);
}

/* ------------------------------------------------------------------------------- bits */

static void
multiply_each(const room *r, const asked *a)
{
    const berth_multiply_experts *const s = &a->step;
    const uint64_t width = berthi_number_bytes(s->dtype);

    for (uint32_t w = 0; w < s->weights; w++)
        for (uint32_t e = 0; e < s->experts; e++) {
            const uint32_t at = w * s->experts + e;
            berth_model_tensor tensor;
            const berth_multiply one = {
                .inputs = r->inputs + s->ranges[e] * a->columns * width,
                .outputs = r->outputs[w] + s->ranges[e] * a->rows * width,
                .bias = s->biases != NULL ? s->biases[at] : NULL,
                .scratch = r->scratch, .scratch_bytes = SCRATCH_BYTES, .dtype = s->dtype,
                .count = s->ranges[e + 1] - s->ranges[e],
                .threshold = berth_model_get_tensor(r->l.model, s->berths[at], &tensor) == BERTH_OK
                                     && tensor.encoding == BERTH_ENCODING_INT8
                                 ? s->threshold
                                 : 0,
            };

            if (one.count > 0)
                CHECK_EQ(berth_model_multiply(r->l.model, s->berths[at], &one, NULL, NULL),
                         BERTH_OK);
        }
}

static void
read_outputs(const room *r, char *out)
{
    CHECK_EQ(berth_device_read(r->devices, 0, out, r->outputs[0], 2 * OUTPUTS_BYTES, NULL, NULL),
             BERTH_OK);
}

static void
check_same(const room *r, const asked *a)
{
    char *const fill = malloc(2 * OUTPUTS_BYTES);
    char *const each = malloc(2 * OUTPUTS_BYTES);
    char *const all = malloc(2 * OUTPUTS_BYTES);
    berth_error error;

    memset(fill, 0x5A, 2 * OUTPUTS_BYTES);
    write_all(r, r->outputs[0], fill, 2 * OUTPUTS_BYTES);
    multiply_each(r, a);
    read_outputs(r, each);
    write_all(r, r->outputs[0], fill, 2 * OUTPUTS_BYTES);
    if (!CHECK_EQ(berth_model_multiply_experts(r->l.model, &a->step, NULL, &error), BERTH_OK))
        T_NOTE("%s", error.message);
    read_outputs(r, all);
    if (!CHECK_MEM(all, each, 2 * OUTPUTS_BYTES))
        T_NOTE("%u experts, %u weights, dtype %d", (unsigned)a->step.experts,
               (unsigned)a->step.weights, (int)a->step.dtype);
    free(fill);
    free(each);
    free(all);
}

static const char *const pairs[][2] = { { "mlp.gate_proj", "mlp.up_proj" },
                                        { "mlp.down_proj", NULL },
                                        { "self_attn.k_proj", "self_attn.v_proj" } };

static void
check_setup(const setup *s, place where, uint32_t turns, uint32_t experts, uint32_t most)
{
    static const int32_t dtypes[] = { BERTH_BF16, BERTH_F32, BERTH_F16 };
    room r;

    T_REQUIRE(begin(&r, s, where));
    for (uint32_t turn = 0; turn < turns; turn++) {
        asked *const a = ask(&r, pairs[turn % 3], turn == 0 ? 1 : 1 + (uint32_t)draw(experts),
                             dtypes[(turn + turn / 3) % 3]);

        a->step.threshold = s->type == BERTH_ENCODING_INT8 ? 0.9f * (float)(turn % 2) : 0;
        draw_ranges(&r, a, most);
        check_same(&r, a);
        free(a);
    }
    end(&r);
}

static const setup setups[] = {
    { BERTH_ENCODING_NF4, true, NULL, NULL },
    { BERTH_ENCODING_FP4, false, NULL, NULL },
    { BERTH_ENCODING_INT8, false, NULL, NULL },
    { BERTH_ENCODING_NATIVE, false, NULL, NULL },
    { BERTH_ENCODING_NF4, false, "model.layers.1.*", NULL },
    { BERTH_ENCODING_INT8, false, "model.layers.2.*", NULL },
};
#define SETUPS (sizeof setups / sizeof *setups)

static void
test_processors_and_simulations(void)
{
    for (size_t i = 0; i < SETUPS; i++) {
        check_setup(&setups[i], PROCESSOR, TURNS, EXPERTS, 40);
        check_setup(&setups[i], SIMULATION, TURNS, EXPERTS, 40);
    }
}

static void
test_gpus(void)
{
    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    for (size_t i = 0; i < SETUPS; i += T_HAS_THREADS_WATCHED ? 2 : 1)
        check_setup(&setups[i], FAKE_GPU, 3, 5, 18);
}

/* ----------------------------------------------------------------- how much work that is */

/* Two inputs each: `experts` of them, of two weights. */
static asked *
ask_evenly(const room *r, uint32_t experts)
{
    asked *const a = ask(r, pairs[2], experts, BERTH_BF16);

    for (uint32_t e = 0; e <= experts; e++)
        a->ranges[e] = 2 * e;
    a->step.biases = NULL;
    a->step.scratch_bytes = count_scratch(r, a, 2);
    return a;
}

/* One grid for each weight, and what it reads before it; captured in a graph, too. */
static void
test_launches(void)
{
    const setup nf4 = { BERTH_ENCODING_NF4, true, NULL, NULL };
    fake_cuda_books before;
    fake_cuda_books books;
    void *stream;
    asked *a;
    room r;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    T_REQUIRE(begin(&r, &nf4, FAKE_GPU));
    a = ask_evenly(&r, 4);
    stream = fake_cuda_stream();
    CHECK_EQ(berth_stream_wait(r.devices, 0, NULL, -1, NULL), BERTH_OK);
    before = fake_cuda_read();
    fake_cuda_begin_capture(stream);
    CHECK_EQ(berth_model_multiply_experts(r.l.model, &a->step, stream, NULL), BERTH_OK);
    fake_cuda_end_capture(stream);
    CHECK_EQ(berth_stream_wait(r.devices, 0, stream, -1, NULL), BERTH_OK);
    books = fake_cuda_read();
    CHECK_EQ(books.launches - before.launches, 2 * berthi_experts_operations(4));
    CHECK_EQ(books.launched[KERNEL_write_words] - before.launched[KERNEL_write_words], 2);
    CHECK_EQ(books.launched[KERNEL_experts_64_bf16_double]
                 - before.launched[KERNEL_experts_64_bf16_double],
             2);
    free(a);
    end(&r);
}

/* As operations of a simulated device: for each weight one, and two from 47 experts on. */
static void
test_operations(void)
{
    static const uint32_t counts[] = { 2, 8, 46, 47, 48 };
    static const uint32_t operations[] = { 2, 2, 2, 3, 4 }; /* a last one alone: both together */
    const setup nf4 = { BERTH_ENCODING_NF4, false, NULL, NULL };
    berth_plan_options options = loaded_options(HERE);

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        room r = { .where = SIMULATION };
        uint64_t before;
        asked *a;

        options.type = nf4.type;
        loaded_begin(&r.l, loaded_llama(LAYERS, "BF16", 1), &options,
                     "sim:64MiB,h2d=1TB/s,memory=1000TB/s,latency=0ns,operation=1ms");
        open_devices(&r);
        loaded_load(&r.l);
        T_REQUIRE(has_room(&r));
        a = ask_evenly(&r, counts[i]);
        CHECK_EQ(berth_stream_wait(r.devices, 0, NULL, -1, NULL), BERTH_OK);
        before = berthi_devices_elapsed_ns(r.devices);
        CHECK_EQ(berth_model_multiply_experts(r.l.model, &a->step, NULL, NULL), BERTH_OK);
        CHECK_EQ(berth_stream_wait(r.devices, 0, NULL, -1, NULL), BERTH_OK);
        CHECK_EQ((berthi_devices_elapsed_ns(r.devices) - before) / 1000000, operations[i]);
        free(a);
        end(&r);
    }
}

/* ------------------------------------------------------------------------ refusals */

static void
refuse(const room *r, const berth_multiply_experts *step, berth_status status,
       const char *words)
{
    berth_error error;
    berth_status refusal;
    fenv_t mode;

    trap_begin(&mode);
    refusal = berth_model_multiply_experts(r->l.model, step, NULL, &error);
    trap_end(&mode);
    CHECK_EQ(refusal, status);
    CHECK_CONTAINS(error.message, words);
}

/* The members of a step, one of them wrong. */
static void
check_members(const room *r, const asked *a)
{
    void *const one[2] = { a->outputs[0], NULL };
    const uint32_t descending[] = { 0, 2, 1, 4, 6 };
    berth_multiply_experts step = a->step;

    refuse(r, NULL, BERTH_EINVAL, "step");
#define REFUSE(member, value, words)                                                       \
    step.member = value;                                                                   \
    refuse(r, &step, BERTH_EINVAL, words);                                                 \
    step = a->step
    REFUSE(berths, NULL, "berths or ranges");
    REFUSE(ranges, NULL, "berths or ranges");
    REFUSE(ranges, descending, "descend behind ranges[1]");
    REFUSE(inputs, NULL, "inputs or outputs");
    REFUSE(outputs, NULL, "inputs or outputs");
    REFUSE(outputs, one, "no outputs of one of its weights");
    REFUSE(experts, 0, "has no experts");
    REFUSE(experts, UINT32_MAX, "or too many");
    REFUSE(weights, 0, "weights that are not 1 to 4");
    REFUSE(weights, BERTH_MULTIPLY_TOGETHER + 1, "weights that are not 1 to 4");
    REFUSE(dtype, BERTH_I8, "dtype");
    REFUSE(threshold, -1.0f, "threshold that is below 0");
    REFUSE(threshold, NAN, "threshold that is below 0, or no number");
    REFUSE(scratch, r->scratch + 128, "scratch at no multiple of 256");
    REFUSE(scratch_bytes, a->step.scratch_bytes - 1, "too little scratch");
    REFUSE(scratch_bytes, 2047, "too little scratch");
    REFUSE(scratch, NULL, "scratch_bytes, and no scratch");
#undef REFUSE
}

static void
refuse_berth(const room *r, const asked *a, uint32_t number, uint64_t berth,
             berth_status status, const char *words)
{
    asked *const bad = malloc(sizeof *bad);

    *bad = *a;
    bad->step.berths = bad->berths;
    bad->berths[number] = berth;
    refuse(r, &bad->step, status, words);
    free(bad);
}

static void
test_arguments(void)
{
    const setup nf4 = { BERTH_ENCODING_NF4, true, NULL, NULL };
    berth_error error;
    asked *a;
    room r;

    T_REQUIRE(begin(&r, &nf4, SIMULATION));
    a = ask_evenly(&r, 4);
    CHECK_EQ(berth_model_multiply_experts(NULL, &a->step, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "model");
    check_members(&r, a);
    refuse_berth(&r, a, 5, UINT64_MAX, BERTH_EINVAL, "`berths[5]` is not that of a tensor");
    refuse_berth(&r, a, 3, find(&r, 0, "mlp.gate_proj"), BERTH_EINVAL,
                 "`berths[3]` has another shape");
    refuse_berth(&r, a, 4, find(&r, 0, "mlp.down_proj"), BERTH_EINVAL,
                 "`berths[4]` has not as many columns");
    refuse_berth(&r, a, 7, find(&r, 0, "input_layernorm"), BERTH_EINVAL,
                 "`berths[7]` has another shape");
    refuse_berth(&r, a, 0, find(&r, 0, "input_layernorm"), BERTH_EUNSUPPORTED, "is no matrix");
    a->step.biases = a->biases;
    a->biases[6] = r.biases[0] + 1;
    refuse(&r, &a->step, BERTH_EINVAL, "`berths[6]` has a bias at an address");
    a->step.biases = NULL;
    a->step.inputs = r.outputs; /* the host's */
    refuse(&r, &a->step, BERTH_EINTERNAL, "outside");
    free(a);
    end(&r);
}

/* Experts without inputs: whatever is said of them, and if nobody has any nothing is done. */
static void
test_nothing(void)
{
    const setup nf4 = { BERTH_ENCODING_NF4, true, NULL, NULL };
    asked *a;
    room r;

    T_REQUIRE(begin(&r, &nf4, SIMULATION));
    a = ask_evenly(&r, 4);
    a->ranges[2] = a->ranges[1];
    a->berths[1] = UINT64_MAX;
    a->berths[5] = find(&r, 0, "input_layernorm");
    check_same(&r, a);
    memset(a->ranges, 0, sizeof a->ranges);
    a->step.scratch = NULL;
    a->step.scratch_bytes = 0;
    CHECK_EQ(berth_model_multiply_experts(r.l.model, &a->step, NULL, NULL), BERTH_OK);
    free(a);
    end(&r);
}

static void
test_scratch(void)
{
    const setup nf4 = { BERTH_ENCODING_NF4, true, NULL, NULL };
    const berth_model *model;
    uint64_t berth;
    room r;

    T_REQUIRE(begin(&r, &nf4, SIMULATION));
    model = r.l.model;
    berth = find(&r, 0, "mlp.up_proj");
    CHECK_EQ(berth_model_multiply_experts_scratch(model, berth, BERTH_F32, 1),
             2048 + berth_model_multiply_scratch(model, berth, BERTH_F32, 32));
    CHECK_EQ(berth_model_multiply_experts_scratch(model, berth, BERTH_F32, 1000),
             berth_model_multiply_experts_scratch(model, berth, BERTH_F32, 1));
    CHECK_EQ(berth_model_multiply_experts_scratch(NULL, berth, BERTH_F32, 1), 0);
    CHECK_EQ(berth_model_multiply_experts_scratch(model, UINT64_MAX, BERTH_F32, 1), 0);
    CHECK_EQ(berth_model_multiply_experts_scratch(model, berth, BERTH_I8, 1), 0);
    CHECK_EQ(berth_model_multiply_experts_scratch(model, berth, BERTH_F32, 0), 0);
    CHECK_EQ(berth_model_multiply_experts_scratch(model, find(&r, 0, "input_layernorm"),
                                                  BERTH_F32, 1),
             0);
    end(&r);
}

/* Streamed weights, of which some are leased; those without inputs need not be. */
static void
test_lease(void)
{
    const setup nf4 = { BERTH_ENCODING_NF4, true, NULL, "model.layers=cpu" };
    berth_model_tensor tensor;
    asked *a;
    room r;

    T_REQUIRE(begin(&r, &nf4, SIMULATION));
    a = ask_evenly(&r, 4);
    CHECK_EQ(berth_model_get_tensor(r.l.model, a->berths[0], &tensor), BERTH_OK);
    CHECK_EQ(tensor.is_resident, 0);
    refuse(&r, &a->step, BERTH_EINVAL, "`berths[0]` is of a layer, or an expert, that is not");
    CHECK_EQ(berth_layer_acquire(r.l.model, tensor.layer, NULL, NULL), BERTH_OK);
    refuse(&r, &a->step, BERTH_EINVAL, "`berths[1]` is of a layer, or an expert, that is not");
    a->ranges[2] = a->ranges[3] = a->ranges[4] = a->ranges[1];
    check_same(&r, a);
    CHECK_EQ(berth_layer_release(r.l.model, tensor.layer, NULL, NULL), BERTH_OK);
    free(a);
    end(&r);
}

/* Layers that different devices compute. */
static void
test_devices(void)
{
    static const char *const pins[] = { "model.layers.0=0", "model.layers.1=0",
                                        "model.layers.2=1", "model.layers.3=1" };
    berth_plan_options options = loaded_options("0=64MiB,1=64MiB,cpu=1GiB");
    room r = { .where = SIMULATION };
    berth_model_tensor tensor;
    asked *a;

    options.type = BERTH_ENCODING_NF4;
    options.pins = pins;
    options.pin_count = LAYERS;
    loaded_begin(&r.l, loaded_llama(LAYERS, "BF16", 1), &options, "sim:64MiB*2");
    open_devices(&r);
    loaded_load(&r.l);
    T_REQUIRE(CHECK_EQ(r.l.status, BERTH_OK) && has_room(&r));
    a = ask_evenly(&r, 4);
    CHECK_EQ(berth_model_get_tensor(r.l.model, a->berths[2], &tensor), BERTH_OK);
    CHECK_EQ(tensor.device, 1);
    refuse(&r, &a->step, BERTH_EINVAL, "`berths[2]` is of another device than the first one");
    a->ranges[3] = a->ranges[4] = a->ranges[2];
    check_same(&r, a);
    free(a);
    end(&r);
}

static void
test_lost(void)
{
    const setup nf4 = { BERTH_ENCODING_NF4, true, NULL, NULL };
    asked *a;
    room r;

    T_REQUIRE(begin(&r, &nf4, SIMULATION));
    a = ask_evenly(&r, 4);
    berthi_devices_stop(r.devices);
    refuse(&r, &a->step, BERTH_ENODEV, "");
    berth_device_free(r.devices, 0, r.memory, ROOM_BYTES);
    free(a);
    loaded_unload(&r.l);
    loaded_end(&r.l);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_processors_and_simulations);
    T_RUN(test_gpus);
    T_RUN(test_launches);
    T_RUN(test_operations);
    T_RUN(test_arguments);
    T_RUN(test_nothing);
    T_RUN(test_scratch);
    T_RUN(test_lease);
    T_RUN(test_devices);
    T_RUN(test_lost);
    T_MAIN_END;
}
