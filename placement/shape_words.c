/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_words.c - a word for each layer, where a file has them: as a list, as a list
 * that begins again where it ends, or as a letter each; and lists of layers' numbers;
 * see shape_read.h.
 */
#include <string.h>

#include "kernels/text.h"
#include "placement/shape_read.h"

berthi_layer_words
berthi_shape_open_list(berthi_shape_reading *r, const char *key)
{
    const berthi_json_value *const value = berthi_json_find(r->model, key);
    const uint64_t count = berthi_json_count(value);
    const berthi_layer_words words = { .key = key,
                                       .first = berthi_json_first(value),
                                       .next = berthi_json_first(value) };

    if (value != NULL
        && (berthi_json_kind_of(value) != BERTHI_JSON_ARRAY
            || (count != 0 && count != r->shape->layers)))
        berthi_shape_refuse(r, key, value, "a list with one entry for each layer");
    return words;
}

/* Nemotron H's layers are one half of a usual one each; GLM's choose tokens or do not. */
static const char *
word_of_letter(char letter)
{
    switch (letter) {
    case 'M': return "mamba";
    case '*': return "attention";
    case '-': return "mlp";
    case 'E': return "moe";
    case 'F': return "full";
    case 'S': return "shared";
    default: return "unknown";
    }
}

/* Nemotron H's files have letters, and later ones a list. */
static const char halves_key[] = "layers_block_type";
static const char letters_key[] = "hybrid_override_pattern";

uint64_t
berthi_shape_count_halves(berthi_shape_reading *r)
{
    const char *letters = "";

    (void)berthi_json_can_read_string(berthi_json_find(r->model, letters_key), &letters);
    return letters[0] != '\0' ? strlen(letters)
                              : berthi_json_count(berthi_json_find(r->model, halves_key));
}

/*
 * HRM's stacks run in turn, and each run of a layer keeps tokens of its own. Files have both
 * numbers, or that of a stack by the name of all.
 */
uint64_t
berthi_shape_count_stacks(berthi_shape_reading *r)
{
    const uint64_t all =
        berthi_shape_member(r, "num_hidden_layers", 1, BERTHI_SHAPE_LAYERS, 16);
    const uint64_t stack =
        berthi_shape_member(r, "num_layers_per_stack", 1, BERTHI_SHAPE_LAYERS, all);
    const uint64_t runs = berthi_shape_member(r, "H_cycles", 1, 64, 2)
                          * (berthi_shape_member(r, "L_cycles", 1, 64, 3) + 1);

    r->shape->layer_sets = 2 * stack;
    if (stack * runs > BERTHI_SHAPE_LAYERS)
        berthi_shape_refuse(r, "num_layers_per_stack", NULL, "a number of fewer layers");
    return berthi_max_u64(stack * runs, 1);
}

uint64_t
berthi_shape_sum_list(berthi_shape_reading *r, const char *key, uint64_t most,
                      uint64_t otherwise)
{
    const berthi_json_value *const list = berthi_json_find(r->model, key);
    bool is_right = berthi_json_kind_of(list) == BERTHI_JSON_ARRAY;
    uint64_t sum = 0;
    uint64_t number;

    if (list == NULL || berthi_json_kind_of(list) == BERTHI_JSON_NULL)
        return otherwise;
    for (const berthi_json_value *v = is_right ? berthi_json_first(list) : NULL; v != NULL;
         v = berthi_json_next(v))
        if (berthi_json_can_read_unsigned(v, &number) && number <= most - sum)
            sum += number;
        else
            is_right = false;
    if (!is_right)
        berthi_shape_refuse(r, key, list, "a list of whole numbers");
    return sum;
}

/* Funnel's decoder, which some of its classes have not, is a few more of the same. */
uint64_t
berthi_shape_count_blocks(berthi_shape_reading *r)
{
    static const char key[] = "block_sizes";
    const bool has_decoder =
        r->shape->ending != BERTHI_ENDING_LABELS
        && r->shape->ending != BERTHI_ENDING_CHOICE
        && !berthi_text_ends(berthi_text_of(r->class_name), "BaseModel");
    const uint64_t decoder =
        has_decoder ? berthi_shape_member(r, "num_decoder_layers", 0, 1024, 2) : 0;
    const uint64_t blocks =
        berthi_shape_sum_list(r, key, BERTHI_SHAPE_LAYERS - decoder, 12);

    if (blocks == 0)
        berthi_shape_refuse(r, key, berthi_json_find(r->model, key),
                            "a list of whole numbers, one of them above 0");
    return decoder + berthi_max_u64(blocks, 1);
}

static berthi_layer_words
open_halves(berthi_shape_reading *r)
{
    const berthi_json_value *const value = berthi_json_find(r->model, letters_key);
    berthi_layer_words words = { .key = letters_key };

    if (value == NULL)
        return berthi_shape_open_list(r, halves_key);
    if (!berthi_json_can_read_string(value, &words.letters)
        || strlen(words.letters) != r->shape->layers)
        berthi_shape_refuse(r, letters_key, value, "a letter for each layer");
    return words;
}

/* 0 or 1 for each layer, where the member is a list. */
static berthi_layer_words
open_marks(berthi_shape_reading *r, const char *key, const char *const *marks)
{
    berthi_layer_words words = { .key = key };

    if (berthi_json_kind_of(berthi_json_find(r->model, key)) != BERTHI_JSON_ARRAY)
        return words;
    words = berthi_shape_open_list(r, key);
    words.marks = marks;
    return words;
}

berthi_layer_words
berthi_shape_open_mlps(berthi_shape_reading *r)
{
    static const char *const marks[] = { "dense", "sparse" };

    return berthi_json_find(r->model, "mlp_layer_types") != NULL
               ? berthi_shape_open_list(r, "mlp_layer_types")
               : open_marks(r, "moe_layer_freq", marks);
}

berthi_layer_words
berthi_shape_open_indexers(berthi_shape_reading *r)
{
    static const char key[] = "index_topk_pattern";
    const berthi_json_value *const pattern = berthi_json_find(r->model, key);
    berthi_layer_words words = { .key = key };

    if (pattern == NULL || berthi_json_find(r->model, "indexer_types") != NULL)
        return berthi_shape_open_list(r, "indexer_types");
    if (!berthi_json_can_read_string(pattern, &words.letters))
        return berthi_shape_open_list(r, key);
    if (strlen(words.letters) != r->shape->layers)
        berthi_shape_refuse(r, key, pattern, "a letter for each layer");
    return words;
}

/* MiniMax M3's published files have them in an object of its own. */
static berthi_layer_words
open_indexed(berthi_shape_reading *r)
{
    static const char *const marks[] = { "full_attention", "minimax_m3_sparse" };
    const berthi_json_value *const model = r->model;
    berthi_layer_words words;

    r->model = berthi_json_find(model, "sparse_attention_config");
    words = open_marks(r, "sparse_attention_freq", marks);
    r->model = model;
    return words;
}

berthi_layer_words
berthi_shape_open_words(berthi_shape_reading *r)
{
    const berthi_json_value *const cycle = berthi_json_find(r->model, "block_types");

    if (r->shape->family->flags & BERTHI_FAMILY_HALVES)
        return open_halves(r);
    if (r->shape->family->traits & BERTHI_TRAIT_SHARED_BLOCKS)
        return berthi_shape_open_list(r, halves_key);
    if (berthi_json_find(r->model, "layer_types") == NULL
        && berthi_json_find(r->model, "sparse_attention_config") != NULL)
        return open_indexed(r);
    if ((r->shape->family->flags & BERTHI_FAMILY_CYCLE) == 0 || cycle == NULL)
        return berthi_shape_open_list(r, "layer_types");
    return (berthi_layer_words){ .key = "block_types",
                                 .first = berthi_json_first(cycle),
                                 .next = berthi_json_first(cycle),
                                 .is_cycle = true };
}

const char *
berthi_shape_take_word(berthi_shape_reading *r, berthi_layer_words *words)
{
    const char *word = "";
    uint64_t mark = 0;

    if (words->letters != NULL)
        return word_of_letter(*words->letters++);
    if (words->next == NULL)
        return word;
    if (words->marks != NULL) {
        if (!berthi_json_can_read_unsigned(words->next, &mark) || mark > 1)
            berthi_shape_refuse(r, words->key, words->next, "0 or 1 for each layer");
        word = words->marks[mark == 1];
    } else if (!berthi_json_can_read_string(words->next, &word))
        berthi_shape_refuse(r, words->key, berthi_json_find(r->model, words->key),
                            "a list of strings");
    words->next = berthi_json_next(words->next);
    if (words->next == NULL && words->is_cycle)
        words->next = words->first;
    return word;
}

/* --------------------------------------------------------------------- numbers */

const berthi_json_value *
berthi_shape_open_numbers(berthi_shape_reading *r, const char *key)
{
    const berthi_json_value *const value = berthi_json_find(r->model, key);
    uint64_t count = 0;
    uint64_t number;

    for (const berthi_json_value *v = berthi_json_first(value); v != NULL;
         v = berthi_json_next(v))
        if (++count > BERTHI_SHAPE_LAYERS || !berthi_json_can_read_unsigned(v, &number))
            berthi_shape_refuse(r, key, value, "a list of layers");
    return berthi_json_first(value);
}

bool
berthi_shape_is_listed(const berthi_json_value *first, uint64_t layer)
{
    uint64_t number;

    for (; first != NULL; first = berthi_json_next(first))
        if (berthi_json_can_read_unsigned(first, &number) && number == layer)
            return true;
    return false;
}
