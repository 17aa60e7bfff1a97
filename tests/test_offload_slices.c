/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_offload_slices.c - slices on the disk: rows that are streamed from the files of the
 * model, columns from a file of their own, and both moved.
 */
#include <string.h>

#include "kernels/digest.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/moved.h"
#include "tests/sliced.h"
#include "tests/t.h"

/* -------------------------------------------------------------------------- leases */

/* The layer is brought to its device; all that it is made of is right there. */
static void
check_leased(loaded *l)
{
    const uint32_t layer = planned_layer(&l->p, "model.layers.0");

    CHECK_EQ(berth_layer_acquire(l->model, layer, NULL, &l->error), BERTH_OK);
    CHECK_EQ(berth_stream_wait(l->devices, 0, NULL, -1, NULL), BERTH_OK);
    for (uint64_t i = 0; i < l->p.summary.berth_count; i++) {
        berth_model_tensor tensor;
        uint32_t crc = 0;
        sliced_piece p;

        sliced_begin(&p, l, i);
        CHECK_EQ(berth_model_get_tensor(l->model, i, &tensor), BERTH_OK);
        if (tensor.encoding == BERTH_ENCODING_NATIVE) {
            CHECK_EQ(berth_model_digest(l->model, i, &crc, NULL), BERTH_OK);
            CHECK_EQ(crc, berthi_digest_crc32(0, p.bytes, (size_t)p.size));
            if (tensor.layer == layer && !tensor.is_resident)
                CHECK_MEM(tensor.parts[0].memory, p.bytes, (size_t)p.size);
        }
        sliced_end(&p);
    }
    CHECK_EQ(berth_layer_release(l->model, layer, NULL, &l->error), BERTH_OK);
}

/* Rows are streamed from the files, columns from a folder. */
static void
test_disk(void)
{
    const char *const pins[] = { "model.layers.0.self_attn.q_proj=disk",
                                 "model.layers.0.mlp.up_proj=disk",
                                 "model.layers.0.mlp.down_proj=disk" };
    const char *const folder = sliced_make(&sliced_small);
    berth_plan_options options = sliced_options("0=64MiB,cpu=64MiB,disk=inf", 1, 4);
    berth_check_report report;
    loaded l;

    options.pins = pins;
    options.pin_count = 3;
    loaded_begin(&l, folder, &options, "sim:64MiB");
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(l.error.message, "by columns, which do not lie together there");
    CHECK_STR(l.error.tensor, "model.layers.0.mlp.down_proj.weight");
    loaded_end(&l);
    for (uint32_t i = 0; i < 3; i++) {
        options.pin_count = i == 0 ? 2 : 3;
        options.type = i == 2 ? BERTH_ENCODING_NF4 : BERTH_ENCODING_NATIVE;
        loaded_begin(&l, folder, &options, "sim:64MiB");
        l.options.offload_dir = i > 0 ? fixture_folder() : NULL;
        loaded_load(&l);
        if (!CHECK_EQ(l.status, BERTH_OK))
            t_note("%s", l.error.message);
        if (i == 1) /* columns alone */
            CHECK_EQ(l.report.offloaded_bytes, 128 * 88 * 2);
        check_leased(&l);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
        loaded_end(&l);
    }
}

/* Columns of int8 have statistics, which an offload does not take over. */
static void
test_disk_of_int8(void)
{
    const char *const pins[] = { "model.layers.0.mlp.down_proj=disk" };
    berth_plan_options options = loaded_options(NULL);
    const char *folder;
    loaded l;

    options.type = BERTH_ENCODING_INT8;
    folder = loaded_quantized(sliced_make(&sliced_blocks), &options);
    options = sliced_options("0=64MiB,cpu=64MiB,disk=inf", 1, 4);
    options.pins = pins;
    options.pin_count = 1;
    loaded_begin(&l, folder, &options, "sim:64MiB");
    l.options.offload_dir = fixture_folder();
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(l.error.message, "is stored quantized and cut by columns");
    loaded_end(&l);
}

/* --------------------------------------------------------------------------- moves */

static void
check_all(loaded *l)
{
    for (uint64_t i = 0; i < l->p.summary.berth_count; i++)
        (void)sliced_check(l, i, 4, NULL);
}

/* Asleep, what is stored is read again: rows; columns are held. */
static void
test_moves(void)
{
    const char *const pins[] = { "model.layers.0.mlp.up_proj=disk" };
    berth_plan_options options = sliced_options("0=64MiB,cpu=64MiB,disk=inf", 1, 4);
    berth_plan *away;
    berth_plan *other;
    moved m;

    moved_begin(&m, sliced_make(&sliced_small), &options, "sim:64MiB");
    options.finding = NULL;
    options.pins = pins;
    options.pin_count = 1;
    away = moved_plan(&m, &options);
    options.rank = 2;
    other = moved_plan(&m, &options);
    m.options.discards = 1;
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    CHECK_EQ(moved_wake(&m), BERTH_OK);
    CHECK_GT(m.report.read_bytes, 0);
    check_all(&m.l);
    CHECK_EQ(moved_move(&m, away), BERTH_OK);
    CHECK_EQ(moved_move(&m, m.l.p.plan), BERTH_OK);
    CHECK_EQ(m.report.read_bytes, 88 * 128 * 2);
    check_all(&m.l);
    CHECK_EQ(moved_move(&m, other), BERTH_EINVAL);
    CHECK_CONTAINS(m.error.message, "has another berth in this plan");
    moved_free_plans();
    moved_end(&m);
}

/* --------------------------------------------------------------------- all ranks */

static const char *const on_disk[] = { "model.layers.0=disk" };

/* A plan of a rank whose layer is on the disk, whole; its slices are leased on a device. */
static void
begin_on_disk(loaded *l, const char *folder, uint32_t rank, int32_t type, bool is_double)
{
    berth_plan_options options = sliced_options("0=64MiB,cpu=64MiB,disk=inf", rank, 4);

    options.type = type;
    options.double_quant = is_double;
    options.pins = on_disk;
    options.pin_count = 1;
    loaded_begin(l, folder, &options, "sim:64MiB");
}

/* Of a berth what its file has: the parts of its slice, one behind the other. */
static uint32_t
crc_of(const sliced_encoded *e)
{
    uint32_t crc = 0;

    for (uint32_t i = 0; i < e->count; i++)
        if (e->parts[i].role == BERTH_ROLE_CODES || e->parts[i].role == BERTH_ROLE_ABSMAX
            || e->parts[i].role == BERTH_ROLE_ABSMAX2
            || e->parts[i].role == BERTH_ROLE_ROW_MAXIMUM)
            crc = berthi_digest_crc32(crc, e->memory[i], (size_t)e->parts[i].bytes);
    return crc;
}

/* The bytes of the file are those that quantizing the slice alone gives. */
static void
check_file(loaded *l, uint64_t number, int32_t type, bool is_double)
{
    berth_values_options options;
    berth_model_tensor tensor;
    sliced_encoded e;
    uint32_t crc = 0;
    sliced_piece p;

    CHECK_EQ(berth_model_get_tensor(l->model, number, &tensor), BERTH_OK);
    CHECK_EQ(tensor.encoding, type);
    sliced_begin(&p, l, number);
    berth_values_options_init(&options);
    options.encoding = type;
    options.shape = tensor.shape;
    options.rank = tensor.rank;
    options.double_quant = is_double;
    sliced_encode(&e, l->p.context, &options, p.bytes, p.size);
    CHECK_EQ(berth_model_digest(l->model, number, &crc, NULL), BERTH_OK);
    if (!CHECK_EQ(crc, crc_of(&e)))
        t_note("%s", p.name);
    sliced_encoded_end(&e);
    sliced_end(&p);
}

/* Every berth of the layer: in its file, and in the slot where it is leased. */
static void
check_layer(loaded *l, int32_t type, bool is_double)
{
    const uint32_t layer = planned_layer(&l->p, "model.layers.0");
    uint32_t encoded = 0;

    CHECK_EQ(berth_layer_acquire(l->model, layer, NULL, &l->error), BERTH_OK);
    CHECK_EQ(berth_stream_wait(l->devices, 0, NULL, -1, NULL), BERTH_OK);
    for (uint64_t i = 0; i < l->p.summary.berth_count; i++) {
        berth_model_tensor tensor;

        CHECK_EQ(berth_model_get_tensor(l->model, i, &tensor), BERTH_OK);
        if (tensor.encoding == BERTH_ENCODING_NATIVE) {
            (void)sliced_check(l, i, 4, NULL);
        } else if (tensor.layer == layer && !tensor.is_resident) {
            sliced_check_encoded(l, i, type, is_double);
            check_file(l, i, type, is_double);
            encoded++;
        }
    }
    CHECK_EQ(encoded, type == BERTH_ENCODING_NATIVE ? 0 : 7); /* projections */
    CHECK_EQ(berth_layer_release(l->model, layer, NULL, &l->error), BERTH_OK);
}

/* Each rank has a file of its own slices. */
static void
test_every_rank_and_encoding(void)
{
    static const struct kind {
        int32_t type;
        bool is_double;
    } kinds[] = { { BERTH_ENCODING_NATIVE, false },
                  { BERTH_ENCODING_NF4, false },
                  { BERTH_ENCODING_NF4, true },
                  { BERTH_ENCODING_FP4, false } };
    const char *const folder = sliced_make(&sliced_small);
    const char *const offload = fixture_folder();

    for (uint32_t i = 0; i < 4 * 4; i++) {
        const struct kind *const k = &kinds[i / 4];
        berth_check_report report;
        loaded l;

        begin_on_disk(&l, folder, i % 4, k->type, k->is_double);
        l.options.offload_dir = offload;
        loaded_load(&l);
        if (!CHECK_EQ(l.status, BERTH_OK)) {
            t_note("%s", l.error.message);
            loaded_end(&l);
            continue;
        }
        CHECK_GT(l.report.offloaded_bytes, 0);
        check_layer(&l, k->type, k->is_double);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
        loaded_end(&l);
    }
}

/* All columns of a weight come back from the files of all ranks. */
static void
test_columns_make_the_whole(void)
{
    static const char name[] = "model.layers.0.mlp.down_proj.weight";
    const char *const folder = sliced_make(&sliced_small);
    uint64_t columns = 0;
    loaded l;

    for (uint32_t rank = 0; rank < 4; rank++) {
        uint32_t crc = 0;
        uint64_t number;
        sliced_piece p;

        begin_on_disk(&l, folder, rank, BERTH_ENCODING_NATIVE, false);
        l.options.offload_dir = fixture_folder();
        loaded_load(&l);
        T_REQUIRE(l.status == BERTH_OK);
        number = berth_model_find(l.model, name, strlen(name));
        sliced_begin(&p, &l, number);
        CHECK_EQ(p.berth.along, BERTH_SLICING_COLUMNS);
        CHECK_EQ(p.berth.first, columns);
        columns += p.berth.count;
        CHECK_EQ(berth_model_digest(l.model, number, &crc, NULL), BERTH_OK);
        CHECK_EQ(crc, berthi_digest_crc32(0, p.bytes, (size_t)p.size));
        CHECK_EQ(columns == p.tensor.shape[1], rank == 3);
        sliced_end(&p);
        loaded_end(&l);
    }
}

/* Columns that a plan brings into memory come from the file that the load wrote. */
static void
test_moves_out_of_the_file(void)
{
    berth_plan_options options = sliced_options("0=64MiB,cpu=64MiB,disk=inf", 2, 4);
    berth_plan *home;
    moved m;

    options.pins = on_disk;
    options.pin_count = 1;
    moved_begin_with(&m, sliced_make(&sliced_small), &options, "sim:64MiB",
                     fixture_folder());
    CHECK_GT(m.l.report.offloaded_bytes, 0);
    options.finding = NULL;
    options.pin_count = 0;
    home = moved_plan(&m, &options);
    CHECK(moved_is_ok(&m, moved_move(&m, home)));
    CHECK_GT(m.report.read_bytes, m.l.report.offloaded_bytes);
    check_all(&m.l);
    CHECK(moved_is_ok(&m, moved_sleep(&m)));
    CHECK(moved_is_ok(&m, moved_wake(&m)));
    check_all(&m.l);
    CHECK(moved_is_ok(&m, moved_move(&m, m.l.p.plan)));
    check_all(&m.l);
    moved_free_plans();
    moved_end(&m);
}

/* ---------------------------------------------------------------- everything fails */

static void
test_all_calls_can_fail(void)
{
    loaded_attempt attempt = { .folder = sliced_make(&sliced_mixture),
                               .max_memory = "0=12MiB,cpu=64MiB,disk=inf",
                               .words = "sim:12MiB",
                               .type = BERTH_ENCODING_NF4,
                               .is_double = true,
                               .rank = 1,
                               .ranks = 2,
                               .pins = on_disk,
                               .pin_count = 1,
                               .has_passes = true,
                               .offload_dir = fixture_folder() };
    const fault_counts counts = fault_loop("slices on the disk", loaded_once, &attempt);

    CHECK_GT(counts.memory, 60);
    CHECK_GT(counts.system, 60);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_disk);
    T_RUN(test_disk_of_int8);
    T_RUN(test_moves);
    T_RUN(test_every_rank_and_encoding);
    T_RUN(test_columns_make_the_whole);
    T_RUN(test_moves_out_of_the_file);
    T_RUN(test_all_calls_can_fail);
    T_MAIN_END;
}
