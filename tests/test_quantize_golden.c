/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_quantize_golden.c - weights of checkpoints that the real library wrote:
 * decoded to the recorded digests, and quantized again from the source to the
 * bytes of the canonical file, names, dtypes and shapes included. Its codes are
 * those of the correctly rounded reciprocal, and made those of a GPU's (recorded.h).
 *
 * tests/data/quantized.safetensors holds a few small ones, with values instead
 * of digests; all of them are read where the recorded files lie beside this
 * tree.
 */
#define _POSIX_C_SOURCE 200809L

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "loader/sha256.h"
#include "quant/json.h"
#include "tests/fixture.h"
#include "tests/recorded.h"
#include "tests/t.h"
#include "tests/tensors.h"
#include "tests/vectors.h"
#include "tests/weights.h"

#define GOLDEN "../shared/golden/quant"

static berth_context *context;
static berthi_sha256 *sha256;
static uint8_t *deltas; /* of the recorded reciprocals */
static uint64_t changed; /* codes, by them */

/* ------------------------------------------------------------------ checkpoints */

static void
add_file(tensors *t, const char *path)
{
    uint64_t shape[BERTH_MAX_RANK];
    vectors v;

    T_REQUIRE(vectors_has_opened(&v, path));
    for (uint64_t i = 0; i < v.header.entry_count; i++) {
        const berthi_entry *const e = &v.header.entries[i];

        berthi_entry_shape(v.header.text, e, shape);
        tensors_add_one(t, berthi_entry_name(v.header.text, e), e->dtype, e->rank, shape,
                        vectors_data(&v, e));
    }
    vectors_close(&v);
}

/* All files that match, classified. */
static tensors *
read_files(const char *pattern)
{
    tensors *const t = tensors_create("");
    glob_t found;

    if (CHECK_EQ(glob(pattern, 0, NULL, &found), 0))
        for (size_t i = 0; i < found.gl_pathc; i++)
            add_file(t, found.gl_pathv[i]);
    globfree(&found);
    CHECK_EQ(tensors_run(t, context, NULL, false), BERTH_OK);
    return t;
}

/* ---------------------------------------------------------------------- decoding */

/* The values of a weight, decoded in pieces at a level; to be freed. */
static void *
decode(const tensors *t, const berthi_quantized *q, const berthi_operations *level,
       int32_t dtype, uint64_t seed)
{
    berthi_companion companions[3];
    berthi_decoder d;
    void *memory;
    void *values;

    CHECK(berthi_decoder_can_init(&d, level, q));
    for (uint32_t i = 0; i < berthi_decoder_companions(&d); i++) {
        const tensors_one *const one = &t->all[q->companions[i]];

        companions[i] = (berthi_companion){ one->data, one->bytes, one->dtype };
    }
    memory = weights_alloc(berthi_decoder_statistics_bytes(&d));
    CHECK(berthi_decoder_can_prepare(&d, companions, memory));
    values = weights_decode(&d, t->all[q->weight].data, dtype, seed);
    free(memory);
    return values;
}

static void
check_digest(const void *bytes, uint64_t size, const char *expected, const char *what)
{
    char hex[BERTHI_SHA256_DIGITS + 1];
    berthi_sha256_digest *digest;

    if (sha256 == NULL)
        return;
    T_REQUIRE(berthi_sha256_create(sha256, &digest, NULL) == BERTH_OK);
    CHECK_EQ(berthi_sha256_update(digest, bytes, size, NULL), BERTH_OK);
    CHECK_EQ(berthi_sha256_finish(digest, hex, NULL), BERTH_OK);
    if (!CHECK_STR(hex, expected))
        T_NOTE("%s", what);
    berthi_sha256_destroy(digest);
}

static const char *
text_of(const berthi_json_value *object, const char *member)
{
    const char *text = "";

    berthi_json_can_read_string(berthi_json_get(object, member), &text);
    return text;
}

/* Every level, in pieces, to the recorded digest. */
static void
check_decoded(tensors *t, const berthi_json_value *p, int32_t dtype, const char *digest)
{
    const berthi_quantized *const q = tensors_record(t, text_of(p, "name"));
    const uint64_t size = berth_dtype_bits(dtype) / 8;

    T_REQUIRE(q != NULL);
    for (uint32_t i = 0; weights_level(i) != NULL; i++) {
        void *const values = decode(t, q, weights_level(i), dtype, i + q->elements);

        check_digest(values, q->elements * size, text_of(p, digest), text_of(p, "name"));
        free(values);
    }
}

/* -------------------------------------------------------------------- quantizing */

/* The results of one weight. */
typedef struct result {
    uint8_t *codes;
    float *absmax; /* first level, or row maxima */
    uint8_t *absmax_codes;
    float *absmax2;
    char state[BERTHI_STATE_TEXT_MAX];
    uint64_t state_bytes;
} result;

static result
quantize(const berthi_storage *storage, const uint64_t *shape, uint32_t rank,
         const void *values, const berthi_operations *level, uint64_t seed)
{
    berthi_quantizer q = { .elements = 0 };
    berthi_quantized_part all;
    berthi_state state;
    float offset = 0.0f;
    float *scratch;
    result r;

    CHECK(berthi_quantizer_can_init(&q, level, storage, shape, rank));
    all = berthi_quantizer_part(&q, 0, q.elements);
    scratch = weights_alloc(berthi_quantizer_scratch(&q) * sizeof *scratch);
    r.codes = weights_alloc(all.bytes);
    r.absmax = weights_alloc(all.maxima * sizeof *r.absmax);
    r.absmax_codes = weights_alloc(all.maxima);
    r.absmax2 = weights_alloc((all.maxima / 256 + 1) * sizeof *r.absmax2);
    weights_encode(&q, values, r.codes, r.absmax, seed);
    if (storage->is_double)
        offset = berthi_quantizer_finish(&q, r.absmax, r.absmax_codes, r.absmax2, scratch);
    berthi_stored_state(storage, shape, rank, offset, &state);
    r.state_bytes = 0;
    if (storage->encoding != BERTH_ENCODING_INT8)
        r.state_bytes = berthi_state_print(&state, r.state, sizeof r.state);
    free(scratch);
    return r;
}

static void
free_result(result *r)
{
    free(r->codes);
    free(r->absmax);
    free(r->absmax_codes);
    free(r->absmax2);
}

/* The bytes of a stored tensor; constants are put into `room`. */
static const void *
bytes_of(const result *r, const berthi_storage *storage, berthi_role role, uint8_t *room)
{
    switch (role) {
    case BERTHI_ROLE_CODES: return r->codes;
    case BERTHI_ROLE_ABSMAX:
        return storage->is_double ? (const void *)r->absmax_codes : r->absmax;
    case BERTHI_ROLE_ABSMAX2: return r->absmax2;
    case BERTHI_ROLE_STATE: return r->state;
    case BERTHI_ROLE_ROW_MAXIMUM: return r->absmax;
    default: berthi_stored_constant(role, storage->encoding, room); return room;
    }
}

/* Each stored tensor against the canonical one of its name. */
static void
check_stored(tensors *canonical, const char *weight, const berthi_storage *storage,
             const uint64_t *shape, uint32_t rank, const result *r)
{
    berthi_stored stored[BERTHI_STORED_MAX];
    const uint32_t count = berthi_stored_list(storage, shape, rank, stored);
    const berthi_quantized *const record = tensors_record(canonical, weight);

    T_REQUIRE(record != NULL);
    CHECK_EQ(count, record->companion_count + 1);
    for (uint32_t i = 0; i < count; i++) {
        const berthi_stored *const s = &stored[i];
        const berthi_stored_name name = berthi_stored_name_of(
            weight, strlen(weight), s->role, storage->encoding);
        const tensors_one *const one = tensors_find(
            canonical, fixture_format("%.*s%s", (int)name.kept, weight, name.suffix));
        const uint64_t bytes = s->is_late ? r->state_bytes : s->bytes;
        uint8_t room[BERTHI_STORED_CONSTANT_MAX];

        T_REQUIRE(one != NULL);
        CHECK_EQ(one->dtype, s->dtype);
        CHECK_EQ(one->rank, s->rank);
        if (s->rank > 0 && !s->is_late)
            CHECK_MEM(berthi_stored_shape(s, shape), one->shape, s->rank * sizeof *shape);
        if (!CHECK_EQ(one->bytes, bytes)
            || !CHECK_MEM(bytes_of(r, storage, s->role, room), one->data, bytes))
            T_NOTE("%s", one->name);
    }
}

/* The source's values in the model's dtype, turned where the layer is a Conv1D. */
static void *
staged(const tensors_one *source, int32_t dtype, bool is_turned)
{
    const uint64_t bytes = source->elements * (berth_dtype_bits(dtype) / 8);
    void *const cast = weights_alloc(bytes);
    void *turned;

    berthi_quantize_cast(source->data, source->dtype, cast, dtype, source->elements);
    if (!is_turned)
        return cast;
    turned = weights_alloc(bytes);
    berthi_quantize_transpose(&(berthi_matrix){
        cast, source->shape[1], turned, source->shape[0], source->shape[0],
        source->shape[1], berth_dtype_bits(dtype) / 8 });
    free(cast);
    return turned;
}

/* What a GPU's reciprocals make of the codes of a weight, which was quantized from `values`. */
static void
repair_codes(tensors *t, const berthi_quantized *q, const void *values, int32_t dtype)
{
    const bool is_rows = q->encoding == BERTH_ENCODING_INT8;

    changed += recorded_repair(deltas,
                               &(recorded_weight){ q->encoding, NULL, values, dtype, q->elements,
                                                   is_rows ? q->shape[1] : q->block_size },
                               t->all[q->weight].data);
}

/* Every level, in pieces, to the tensors of the canonical file. */
static void
check_quantized(tensors *source, tensors *canonical, const berthi_json_value *p,
                const berthi_storage *storage, bool is_turned)
{
    const char *const name = text_of(p, "name");
    const berthi_quantized *const record = tensors_record(canonical, name);
    const tensors_one *const from = tensors_find(source, name);
    void *values;

    T_REQUIRE(record != NULL && from != NULL);
    values = staged(from, storage->dtype, is_turned);
    check_digest(canonical->all[record->weight].data, canonical->all[record->weight].bytes,
                 text_of(p, "canonical_packed_sha256"), name);
    repair_codes(canonical, record, values, storage->dtype);
    for (uint32_t i = 0; weights_level(i) != NULL; i++) {
        result r = quantize(storage, record->shape, record->rank, values,
                            weights_level(i), i + record->elements);

        check_stored(canonical, name, storage, record->shape, record->rank, &r);
        free_result(&r);
    }
    free(values);
}

/* ------------------------------------------------------------ recorded checkpoints */

/* How a variant's weights are stored, as its expected.json tells. */
static berthi_storage
storage_of(const berthi_json_value *root, const tensors *library,
           const berthi_quantized *record)
{
    const berthi_storage storage = {
        .encoding = record->encoding,
        .dtype = strcmp(text_of(root, "model_dtype"), "float16") == 0 ? BERTH_F16
                                                                      : BERTH_BF16,
        .storage = library->all[record->weight].dtype,
        .block_size = record->block_size,
        .is_double = record->is_double,
    };

    return storage;
}

static uint64_t weights;

static void
check_folder(const char *folder)
{
    size_t bytes;
    char *const text = fixture_read(fixture_format("%s/expected.json", folder), &bytes);
    const berthi_json_origin origin = { BERTH_REASON_MANIFEST_JSON, folder };
    const berthi_json_value *root;
    berthi_json *expected;
    tensors *library;
    tensors *canonical;
    tensors *source;

    T_REQUIRE(berthi_json_parse(context, text, bytes, 0, &origin, &expected, NULL)
              == BERTH_OK);
    root = berthi_json_root(expected);
    library = read_files(fixture_format("%s/*.safetensors", folder));
    source = read_files(fixture_format("%s/../source/*.safetensors", folder));
    canonical = read_files(fixture_format(
        "%s/%s", folder, text_of(berthi_json_get(root, "canonical_file"), "name")));
    for (const berthi_json_value *p = berthi_json_first(berthi_json_get(root, "parameters"));
         p != NULL; p = berthi_json_next(p)) {
        const berthi_quantized *const record =
            tensors_record(library, text_of(p, "name"));
        berthi_storage storage;

        if (record == NULL)
            continue;
        storage = storage_of(root, library, record);
        check_decoded(library, p, BERTH_BF16, "dequant_bf16_sha256_signed_zero");
        if (record->encoding != BERTH_ENCODING_FP4) /* the library's zeros have no sign */
            check_decoded(library, p, BERTH_F32, "dequant_fp32_sha256");
        check_decoded(canonical, p, BERTH_BF16, "canonical_dequant_bf16_sha256");
        check_quantized(source, canonical, p, &storage, strstr(folder, "/gpt2/") != NULL);
        weights++;
    }
    tensors_destroy(library);
    tensors_destroy(source);
    tensors_destroy(canonical);
    berthi_json_destroy(expected);
    free(text);
}

static void
test_recorded_checkpoints(void)
{
    glob_t found;

    if (glob(GOLDEN "/*/*/expected.json", 0, NULL, &found) != 0)
        T_SKIP("the recorded checkpoints are not beside this tree");
    weights = 0;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (strstr(found.gl_pathv[i], "/source/") == NULL)
            check_folder(fixture_format("%.*s", (int)(strlen(found.gl_pathv[i])
                                                      - strlen("/expected.json")),
                                        found.gl_pathv[i]));
    globfree(&found);
    T_NOTE("%llu weights, %llu codes of a GPU are other ones%s",
           (unsigned long long)weights, (unsigned long long)changed,
           sha256 == NULL ? ", digests not compared: no libcrypto" : "");
    CHECK_GT(weights, 200);
}

/* ------------------------------------------------------------------- small copies */

/* CASE.source, how CASE.weight is stored, and CASE.values. */
static void
check_small(tensors *t, const char *name, int32_t dtype, bool is_turned)
{
    const char *const weight = fixture_format("%s.weight", name);
    const tensors_one *const source = tensors_find(t, fixture_format("%s.source", name));
    const tensors_one *const expected = tensors_find(t, fixture_format("%s.values", name));
    const berthi_quantized *const q = tensors_record(t, weight);
    void *from;

    T_REQUIRE(source != NULL && expected != NULL && q != NULL);
    from = staged(source, dtype, is_turned);
    for (uint32_t i = 0; weights_level(i) != NULL; i++) {
        void *const values = decode(t, q, weights_level(i), BERTH_BF16, i);

        if (!CHECK_MEM(values, expected->data, expected->bytes))
            T_NOTE("%s", weight);
        free(values);
    }
    repair_codes(t, q, from, dtype);
    for (uint32_t i = 0; weights_level(i) != NULL; i++) {
        const berthi_storage storage = { q->encoding, dtype, t->all[q->weight].dtype,
                                         q->block_size, q->is_double };
        result r = quantize(&storage, q->shape, q->rank, from, weights_level(i), i + 1);

        check_stored(t, weight, &storage, q->shape, q->rank, &r);
        free_result(&r);
    }
    free(from);
}

static void
test_small_copies(void)
{
    tensors *const t = read_files("tests/data/quantized.safetensors");

    CHECK_EQ(t->result.count, 7);
    check_small(t, "nf4_double", BERTH_BF16, false);
    check_small(t, "fp4_double", BERTH_BF16, false);
    check_small(t, "int8", BERTH_BF16, false);
    check_small(t, "nf4_bf16storage", BERTH_BF16, false);
    check_small(t, "nf4_odd", BERTH_BF16, false);
    check_small(t, "nf4_turned", BERTH_BF16, true);
    check_small(t, "nf4_f16", BERTH_F16, false);
    tensors_destroy(t);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK
        || berthi_sha256_open(context, &sha256, NULL) != BERTH_OK)
        return 1;
    deltas = recorded_open();
    T_RUN(test_small_copies);
    T_RUN(test_recorded_checkpoints);
    free(deltas);
    berthi_sha256_close(sha256);
    berth_context_destroy(context);
    T_MAIN_END;
}
