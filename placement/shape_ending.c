/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_ending.c - what a model ends in, by the class that its file names: a head of
 * words, one of labels, a pooler, nothing; see shape_read.h, shape_making.h.
 */
#include "kernels/text.h"
#include "placement/shape_making.h"
#include "placement/shape_read.h"

/* -------------------------------------------------------------------- reading */

static bool
ends_with_one(berthi_text name, const char *const *endings)
{
    for (; *endings != NULL; endings++)
        if (berthi_text_ends(name, *endings))
            return true;
    return false;
}

/* Of a text: where in it an answer begins and ends. */
static const char answers[] = "ForQuestionAnswering";

/* A berthi_ending: a class by its name, as transformers calls them. */
static int32_t
ending_of(berthi_text name)
{
    static const char *const of_words[] = {
        "ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration", "MTModel",
        "OmniModel", "GenerationDecoder", NULL
    };
    /* Half of a model, or one with two heads. */
    static const char *const others[] = { "EncoderModel", "EncoderDecoderModel",
                                          "HeadsModel", NULL };

    if (ends_with_one(name, of_words))
        return BERTHI_ENDING_WORDS;
    if (berthi_text_ends(name, "ForSequenceClassification"))
        return BERTHI_ENDING_LABELS;
    if (berthi_text_ends(name, "ForTokenClassification"))
        return BERTHI_ENDING_TOKEN_LABELS;
    if (berthi_text_ends(name, answers) || ends_with_one(name, others))
        return BERTHI_ENDING_UNKNOWN;
    return berthi_text_ends(name, "Model") ? BERTHI_ENDING_NONE : BERTHI_ENDING_OTHER;
}

/* A file has a name for each. */
static uint64_t
count_labels(berthi_shape_reading *r)
{
    const uint64_t named = berthi_json_count(berthi_json_find(r->root, "id2label"));

    return named > 0 && named <= BERTHI_SHAPE_WIDTH
               ? named
               : berthi_shape_member(
                     r, "num_labels", 1, BERTHI_SHAPE_WIDTH,
                     r->shape->family->traits & BERTHI_TRAIT_THREE_LABELS ? 3 : 2);
}

/* T5's encoder by itself; other models have none of this name. */
bool
berthi_shape_is_encoder_class(const berthi_shape_reading *r)
{
    return r->shape->family->flags & BERTHI_FAMILY_RELATIVE
           && berthi_text_ends(berthi_text_of(r->class_name), "EncoderModel");
}

/*
 * Begin and end of an answer are two labels of each token. XLM, XLNet, BigBird and TAPAS have more
 * layers for them, and T5 its decoder, too: those are not known.
 */
static bool
labels_answers(const berthi_shape_reading *r)
{
    const uint64_t flags = r->shape->family->flags;
    const uint64_t traits = r->shape->family->traits;
    const bool is_t5 = flags & BERTHI_FAMILY_RELATIVE && flags & BERTHI_FAMILY_ENCODER;
    const bool is_big_bird =
        flags & BERTHI_FAMILY_BOTH_WAYS && traits & BERTHI_TRAIT_ASKED_QKV;
    const bool is_xlnet = traits & BERTHI_TRAIT_SEGMENTS && !(traits & BERTHI_TRAIT_BLOCKS);

    return berthi_text_ends(berthi_text_of(r->class_name), answers) && !is_t5 && !is_big_bird
           && !is_xlnet && !(traits & (BERTHI_TRAIT_LANGUAGES | BERTHI_TRAIT_PLACES));
}

/*
 * A table's row is the class that predicts words. A file may be of another, which has no such head
 * ("BertModel"), a small one ("LlamaForSequenceClassification") or something else beside it.
 */
void
berthi_shape_read_ending(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;

    if (r->class_name[0] != '\0')
        shape->ending = ending_of(berthi_text_of(r->class_name));
    if (berthi_shape_is_encoder_class(r))
        shape->ending = BERTHI_ENDING_NONE;
    if (labels_answers(r))
        shape->ending = BERTHI_ENDING_TOKEN_LABELS;
    shape->is_other_class = shape->ending == BERTHI_ENDING_UNKNOWN
                            || shape->ending == BERTHI_ENDING_OTHER;
    shape->has_head =
        shape->ending == BERTHI_ENDING_WORDS || shape->ending == BERTHI_ENDING_OTHER;
    if (shape->ending == BERTHI_ENDING_LABELS || shape->ending == BERTHI_ENDING_TOKEN_LABELS)
        shape->labels = labels_answers(r) && !(shape->family->flags & BERTHI_FAMILY_BOTH_WAYS)
                            ? 2 /* whatever a file says */
                            : count_labels(r);
}

/* --------------------------------------------------------------------- weights */

/* What reads the first token for all of them. */
static void
add_pooler(berthi_shape_making *m)
{
    const uint64_t hidden = m->shape->hidden;

    if (m->shape->bottleneck.width > 0 && !m->shape->bottleneck.has_pooler)
        return;
    m->role = BERTHI_WEIGHT_LINEAR;
    m->has_bias = true;
    berthi_shape_add_linear(m, "pooler", hidden, hidden);
}

static void
add_labels(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const bool is_of_tokens = shape->ending == BERTHI_ENDING_TOKEN_LABELS;
    const bool reads_all = berthi_shape_has(m, BERTHI_FAMILY_BOTH_WAYS | BERTHI_FAMILY_ENCODER);

    if (berthi_shape_has(m, BERTHI_FAMILY_BARE_TRANSFORM))
        berthi_shape_add_filling_head(m);
    else if (reads_all && !is_of_tokens
             && !berthi_shape_has_trait(m, BERTHI_TRAIT_BARE_LABELS))
        add_pooler(m);
    m->role = BERTHI_WEIGHT_HEAD;
    m->has_bias = reads_all || is_of_tokens || shape->encoder_layers > 0;
    berthi_shape_add_linear(m, "score", shape->labels, shape->last_width);
}

static void
add_head(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t beside =
        shape->bottleneck.width > 0 ? shape->hidden - shape->embedding : 0;

    if (berthi_shape_has_trait(m, BERTHI_TRAIT_TRANSFORM)
        || (berthi_shape_has(m, BERTHI_FAMILY_BOTH_WAYS)
            && !berthi_shape_has(m, BERTHI_FAMILY_PLAIN_HEAD)
            && !berthi_shape_has_trait(m, BERTHI_TRAIT_BARE_HEAD)))
        berthi_shape_add_filling_head(m);
    /* MobileBERT's is as wide as its words and, beside them, the rest of the hidden state. */
    if (beside > 0)
        berthi_shape_add_matrix(m, "dense", BERTHI_WEIGHT_HEAD, beside, shape->vocabulary);
    if (!shape->ties_embeddings)
        berthi_shape_add_matrix(m, "lm_head", BERTHI_WEIGHT_HEAD, shape->vocabulary,
                                shape->bottleneck.width > 0 ? shape->embedding
                                                            : shape->head_width);
    m->count = shape->head_biases;
    if (m->count > 0)
        berthi_shape_add_vector(m, "lm_head", shape->vocabulary);
    m->count = 1;
}

void
berthi_shape_add_ending(berthi_shape_making *m)
{
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_ALWAYS_POOLS)
        || (m->shape->ending == BERTHI_ENDING_NONE
            && berthi_shape_has_trait(m, BERTHI_TRAIT_POOLER)))
        add_pooler(m);
    if (m->shape->labels > 0)
        add_labels(m);
    if (m->shape->has_head)
        add_head(m);
}
