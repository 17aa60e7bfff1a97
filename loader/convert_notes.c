/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_notes.c - what a later run must know of a finished shard, which its
 * bytes do not tell at once.
 *
 * Notes are words of 32 bits, section after section:
 *   lates      how many, then each as output and bytes: the lengths of the late
 *              tensors in the shard, and of those in later shards that its
 *              weights have
 *   nonfinite  how many weights with NaN or infinities are converted with it, then
 *              each as its number and two counts of 64 bits, the lower half first
 *   sources    the crc32 of each tensor of the source that was read for the weights
 *              converted with it, but those that were copied
 *   crcs       the crc32 of each tensor in the order of their bytes
 * Lates come first: they decide what is in the shard.
 *
 * Those of a part (part.h) are instead:
 *   outputs    how many, then each as output, bytes if they are late, else 0, and
 *              crc32: what the part has in the shard, and what its weights have in
 *              shards with which it converts nothing
 *   nonfinite, sources  as above, of its weights
 *   places     where parts tell each other lengths: a checksum of those that its
 *              places hang on
 */
#include "loader/part.h"
#include "loader/part_lengths.h"

#define OUTPUT_NOTES 3u
#define LATE_NOTES 2u
#define NONFINITE_NOTES 5u

/* ------------------------------------------------------------ what is converted */

/*
 * The weight of the shard's i-th tensor when it is converted with this shard and
 * that is its first tensor here; NULL else.
 */
static const berthi_recipe_weight *
weight_at(const berthi_convert *convert, uint32_t number,
          const berthi_layout_shard *shard, uint32_t i)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const berthi_recipe_weight *const weight =
        &recipe->weights[recipe->outputs[shard->tensors[i]].weight];
    uint32_t output = weight->first_output;
    uint32_t first;
    uint32_t last;

    berthi_convert_find_shards(convert, weight, &first, &last);
    while (recipe->tensors[output].shard != first)
        output++;
    return first == number && output == shard->tensors[i] ? weight : NULL;
}

/* A way along the tensors whose crcs are computed with a shard; begins with zeros. */
typedef struct source_walk {
    const berthi_convert *convert;
    uint32_t number; /* shard */
    uint32_t part;   /* whose weights; 0: all */
    uint32_t tensor; /* of it */
    uint32_t source; /* of its weight */
} source_walk;

/* True when the weights of this part, or of all (0), have this one among them. */
static bool
is_of(const berthi_convert *convert, uint32_t part, const berthi_recipe_weight *weight)
{
    return part == 0 || convert->part_of[weight - convert->recipe.weights] == part;
}

/* Goes on to the next one; false behind the last. */
static bool
next_source(source_walk *walk, uint64_t *out_tensor)
{
    const berthi_layout_shard shard =
        berthi_layout_shard_at(walk->convert->layout, walk->number);

    for (; walk->tensor < shard.tensor_count; walk->tensor++, walk->source = 0) {
        const berthi_recipe_weight *const weight =
            weight_at(walk->convert, walk->number, &shard, walk->tensor);

        if (weight == NULL || !is_of(walk->convert, walk->part, weight))
            continue;
        *out_tensor = berthi_convert_source(walk->convert, weight, walk->source++);
        if (*out_tensor != BERTH_NO_TENSOR)
            return true;
    }
    return false;
}

/*
 * Holds what the notes tell of the source against its manifest, of the weights of this part,
 * or of all (0). What is in the notes is as they say.
 */
static berth_status
hold_sources(berthi_convert *convert, uint32_t number, uint32_t part, berth_error *error)
{
    const berthi_layout_shard shard = berthi_layout_shard_at(convert->layout, number);
    const berthi_recipe *const recipe = &convert->recipe;
    source_walk walk = { .convert = convert, .number = number, .part = part };
    uint64_t tensor;
    berth_status status = BERTH_OK;

    while (status == BERTH_OK && next_source(&walk, &tensor))
        status = berthi_convert_hold_source(convert, tensor, error);
    for (uint32_t i = 0; i < shard.tensor_count && status == BERTH_OK; i++)
        if (is_of(convert, part,
                  &recipe->weights[recipe->outputs[shard.tensors[i]].weight]))
            status = berthi_convert_hold_copied(convert, shard.tensors[i], error);
    return status;
}

/* --------------------------------------------------------------------- making */

/* Without words they are only counted. */
static void
note(berthi_convert_notes *n, uint64_t word)
{
    if (n->words != NULL)
        n->words[n->count] = (uint32_t)word;
    n->count++;
}

/* How many things of `each` words stand behind this place. */
static void
note_count(berthi_convert_notes *n, uint64_t place, uint32_t each)
{
    if (n->words != NULL)
        n->words[place] = (uint32_t)((n->count - place - 1) / each);
}

/* The output that holds a weight's state; UINT32_MAX: none. */
static uint32_t
find_state(const berthi_recipe *recipe, const berthi_recipe_weight *weight)
{
    for (uint32_t i = 0; i < weight->output_count; i++)
        if (recipe->outputs[weight->first_output + i].role == BERTHI_ROLE_STATE)
            return weight->first_output + i;
    return UINT32_MAX;
}

/* The late tensor that is noted when this one's turn comes; UINT32_MAX: none. */
static uint32_t
late_of(const berthi_recipe *recipe, uint32_t output)
{
    const berthi_recipe_output *const what = &recipe->outputs[output];
    const berthi_recipe_weight *const weight = &recipe->weights[what->weight];
    uint32_t state;

    if (what->role == BERTHI_ROLE_STATE)
        return output;
    if (output != weight->first_output)
        return UINT32_MAX;
    state = find_state(recipe, weight);
    if (state == UINT32_MAX
        || recipe->tensors[state].shard <= recipe->tensors[output].shard)
        return UINT32_MAX;
    return state;
}

static void
note_lates(berthi_convert_notes *n, const berthi_recipe *recipe,
           const berthi_layout_shard *shard)
{
    const uint64_t place = n->count++;

    for (uint32_t i = 0; i < shard->tensor_count; i++) {
        const uint32_t late = late_of(recipe, shard->tensors[i]);

        if (late == UINT32_MAX)
            continue;
        note(n, late);
        note(n, recipe->tensors[late].bytes);
    }
    note_count(n, place, LATE_NOTES);
}

static void
note_nonfinite(berthi_convert_notes *n, const berthi_convert *convert, uint32_t number)
{
    const uint64_t place = n->count++;

    for (const berthi_convert_nonfinite *f = convert->nonfinite; f != NULL; f = f->next) {
        uint32_t first;
        uint32_t last;

        berthi_convert_find_shards(convert, &convert->recipe.weights[f->weight], &first,
                                   &last);
        if (first != number)
            continue;
        note(n, f->weight);
        note(n, f->nan);
        note(n, f->nan >> 32);
        note(n, f->infinite);
        note(n, f->infinite >> 32);
    }
    note_count(n, place, NONFINITE_NOTES);
}

static void
note_sources(berthi_convert_notes *n, const berthi_convert *convert, uint32_t number,
             uint32_t part)
{
    source_walk walk = { .convert = convert, .number = number, .part = part };
    uint64_t tensor;

    while (next_source(&walk, &tensor))
        note(n, atomic_load(&convert->sources.crcs.tensors[tensor]));
}

static void
note_all(berthi_convert_notes *n, const berthi_convert *convert, uint32_t number)
{
    const berthi_layout_shard shard = berthi_layout_shard_at(convert->layout, number);

    n->count = 0;
    note_lates(n, &convert->recipe, &shard);
    note_nonfinite(n, convert, number);
    note_sources(n, convert, number, 0);
    for (uint32_t i = 0; i < shard.tensor_count; i++)
        note(n, atomic_load(&convert->crcs[shard.tensors[i]]));
}

static void
note_output(berthi_convert_notes *n, const berthi_convert *convert, uint32_t output)
{
    note(n, output);
    note(n, convert->guesses[output] > 0 ? convert->lengths[output] : 0);
    note(n, atomic_load(&convert->crcs[output]));
}

/* What a weight of this part has in shards with which the part converts nothing. */
static void
note_sent(berthi_convert_notes *n, const berthi_convert *convert, uint32_t number,
          const berthi_recipe_weight *weight)
{
    for (uint32_t i = 0; i < weight->output_count; i++) {
        const uint32_t output = weight->first_output + i;
        const uint32_t shard = convert->recipe.tensors[output].shard;

        if (shard != number
            && !berthi_part_has_shard(convert, convert->options.part, shard))
            note_output(n, convert, output);
    }
}

static void
note_part(berthi_convert_notes *n, const berthi_convert *convert, uint32_t number)
{
    const berthi_layout_shard shard = berthi_layout_shard_at(convert->layout, number);

    n->count = 1;
    for (uint32_t i = 0; i < shard.tensor_count; i++) {
        const berthi_recipe_weight *const weight =
            weight_at(convert, number, &shard, i);

        if (!berthi_convert_is_mine(convert,
                                    convert->recipe.outputs[shard.tensors[i]].weight))
            continue;
        note_output(n, convert, shard.tensors[i]);
        if (weight != NULL)
            note_sent(n, convert, number, weight);
    }
    note_count(n, 0, OUTPUT_NOTES);
    note_nonfinite(n, convert, number);
    note_sources(n, convert, number, convert->options.part);
    if (convert->is_exchanging)
        note(n, berthi_part_places_crc(convert, convert->options.part, number));
}

/* Counts the words, then writes them. */
static berth_status
make_notes(const berthi_convert *convert, uint32_t number,
           void (*note_them)(berthi_convert_notes *n, const berthi_convert *convert,
                             uint32_t number),
           berthi_convert_notes *out, berth_error *error)
{
    out->words = NULL;
    note_them(out, convert, number);
    out->words = berthi_memory_array(convert->context, BERTHI_PURPOSE_DOCUMENT,
                                     out->count, sizeof *out->words);
    if (out->words == NULL)
        return berthi_fail_memory(error, "finishing a shard");
    note_them(out, convert, number);
    return BERTH_OK;
}

berth_status
berthi_convert_make_notes(berthi_convert *convert, uint32_t number,
                          berthi_convert_notes *out, berth_error *error)
{
    const berth_status status = hold_sources(convert, number, 0, error);

    return status == BERTH_OK ? make_notes(convert, number, note_all, out, error) : status;
}

berth_status
berthi_part_make_notes(berthi_convert *convert, uint32_t number,
                       berthi_convert_notes *out, berth_error *error)
{
    const berth_status status =
        hold_sources(convert, number, convert->options.part, error);

    return status == BERTH_OK ? make_notes(convert, number, note_part, out, error) : status;
}

void
berthi_convert_free_notes(const berthi_convert *convert, berthi_convert_notes *notes)
{
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, notes->words,
                       notes->count * sizeof *notes->words);
    notes->words = NULL;
}

/* --------------------------------------------------------------------- taking */

/* What is left of the notes; 0 where there is nothing more, and then they are too few. */
typedef struct note_reader {
    const uint32_t *words;
    uint64_t left;
    bool is_short;
} note_reader;

static uint32_t
next_note(note_reader *r)
{
    if (r->left == 0) {
        r->is_short = true;
        return 0;
    }
    r->left--;
    return *r->words++;
}

static uint64_t
next_long_note(note_reader *r)
{
    const uint64_t low = next_note(r);

    return low | (uint64_t)next_note(r) << 32;
}

/* False when they are none. */
static bool
can_take_lates(berthi_convert *convert, note_reader *r)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const uint64_t count = next_note(r);

    if (count > r->left / LATE_NOTES)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t output = next_note(r);
        const uint32_t bytes = next_note(r);

        if (output >= recipe->output_count
            || recipe->outputs[output].role != BERTHI_ROLE_STATE)
            return false;
        berthi_layout_set_bytes(convert->layout, output, bytes);
    }
    return true;
}

static berth_status
take_nonfinite(berthi_convert *convert, note_reader *r, const char *file,
               berth_error *error)
{
    const uint64_t count = next_note(r);
    berth_status status = BERTH_OK;

    if (count > r->left / NONFINITE_NOTES)
        return berthi_convert_fail_adoption(file, error);
    for (uint64_t i = 0; i < count && status == BERTH_OK; i++) {
        const uint32_t weight = next_note(r);
        const uint64_t nan = next_long_note(r);
        const uint64_t infinite = next_long_note(r);

        status = weight < convert->recipe.weight_count
                     ? berthi_convert_note_nonfinite(convert, weight, nan, infinite, error)
                     : berthi_convert_fail_adoption(file, error);
    }
    return status;
}

static void
take_sources(berthi_convert *convert, note_reader *r, uint32_t number, uint32_t part)
{
    source_walk walk = { .convert = convert, .number = number, .part = part };
    uint64_t tensor;

    while (next_source(&walk, &tensor))
        atomic_store(&convert->sources.crcs.tensors[tensor], next_note(r));
}

berth_status
berthi_convert_take_notes(berthi_convert *convert, uint32_t number,
                          const berthi_writer_file *file, berth_error *error)
{
    note_reader r = { .words = file->notes, .left = file->note_count };
    berthi_layout_shard shard;
    berth_status status;

    if (!can_take_lates(convert, &r))
        return berthi_convert_fail_adoption(file->name, error);
    status = berthi_layout_divide(convert->layout, NULL, error);
    if (status != BERTH_OK)
        return status;
    if (number >= berthi_layout_shard_count(convert->layout))
        return berthi_convert_fail_adoption(file->name, error);
    status = take_nonfinite(convert, &r, file->name, error);
    if (status != BERTH_OK)
        return status;
    shard = berthi_layout_shard_at(convert->layout, number);
    take_sources(convert, &r, number, 0);
    if (r.left != shard.tensor_count)
        return berthi_convert_fail_adoption(file->name, error);
    for (uint32_t i = 0; i < shard.tensor_count; i++)
        atomic_store(&convert->crcs[shard.tensors[i]], next_note(&r));
    return hold_sources(convert, number, 0, error);
}

/* False when it is none of this part's, or longer than there was room for. */
static bool
can_take_output(berthi_convert *convert, uint32_t part, note_reader *r)
{
    const uint32_t output = next_note(r);
    const uint32_t bytes = next_note(r);
    const uint32_t crc = next_note(r);

    if (output >= convert->recipe.output_count
        || convert->part_of[convert->recipe.outputs[output].weight] != part
        || (bytes > 0) != (convert->guesses[output] > 0)
        || bytes > berthi_part_most_bytes(convert, output))
        return false;
    atomic_store(&convert->crcs[output], crc);
    convert->lengths[output] = bytes;
    return true;
}

static void
take_places(berthi_convert *convert, uint32_t part, uint32_t shard, uint32_t crc)
{
    for (uint32_t i = 0; i < convert->share_count; i++)
        if (convert->shares[i].part == part && convert->shares[i].shard == shard)
            convert->shares[i].places_crc = crc;
}

berth_status
berthi_part_take_notes(berthi_convert *convert, uint32_t part, uint32_t number,
                       const berthi_journal_file *file, berth_error *error)
{
    note_reader r = { .words = file->notes, .left = file->note_count };
    const uint64_t count = next_note(&r);
    berth_status status;

    if (count > r.left / OUTPUT_NOTES)
        return berthi_convert_fail_adoption(file->name, error);
    for (uint64_t i = 0; i < count; i++)
        if (!can_take_output(convert, part, &r))
            return berthi_convert_fail_adoption(file->name, error);
    status = take_nonfinite(convert, &r, file->name, error);
    if (status != BERTH_OK)
        return status;
    take_sources(convert, &r, number, part);
    if (convert->is_exchanging)
        take_places(convert, part, number, next_note(&r));
    if (r.left != 0 || r.is_short)
        return berthi_convert_fail_adoption(file->name, error);
    return hold_sources(convert, number, part, error);
}
