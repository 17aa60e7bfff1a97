/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_ending.c - what a model ends in, by the class that its file names: a head of
 * words, one of labels, a pooler, nothing; see shape_read.h, shape_making.h.
 */
#include "kernels/text.h"
#include "placement/shape_making.h"
#include "placement/shape_read.h"

/* -------------------------------------------------------------------- reading */

/*
 * Of a class by its name, as transformers calls them: the first that it ends with. Half of a
 * model, or one with other heads, is not known.
 */
static const struct {
    const char *name;
    int32_t ending;
} endings[] = {
    { "ForCausalLM", BERTHI_ENDING_WORDS },
    { "LMHeadModel", BERTHI_ENDING_WORDS },
    { "ForMaskedLM", BERTHI_ENDING_WORDS },
    { "ForConditionalGeneration", BERTHI_ENDING_WORDS },
    { "MTModel", BERTHI_ENDING_WORDS },
    { "OmniModel", BERTHI_ENDING_WORDS },
    { "GenerationDecoder", BERTHI_ENDING_WORDS },
    { "ForSequenceClassification", BERTHI_ENDING_LABELS },
    { "ForTokenClassification", BERTHI_ENDING_TOKEN_LABELS },
    { "ForQuestionAnsweringSimple", BERTHI_ENDING_TOKEN_LABELS },
    { "ForQuestionAnswering", BERTHI_ENDING_ANSWERS },
    { "ForMultipleChoice", BERTHI_ENDING_CHOICE },
    { "ForNextSentencePrediction", BERTHI_ENDING_FOLLOWS },
    { "ForPreTraining", BERTHI_ENDING_TRAINING },
    { "ForEntityClassification", BERTHI_ENDING_ENTITY },
    { "ForEntityPairClassification", BERTHI_ENDING_ENTITY_PAIR },
    { "ForEntitySpanClassification", BERTHI_ENDING_ENTITY_SPAN },
    { "ForRetrieval", BERTHI_ENDING_VECTORS },
    { "GenerationEncoder", BERTHI_ENDING_NONE },
    { "EncoderModel", BERTHI_ENDING_UNKNOWN },
    { "EncoderDecoderModel", BERTHI_ENDING_UNKNOWN },
    { "DoubleHeadsModel", BERTHI_ENDING_TWO_HEADS },
    { "HeadsModel", BERTHI_ENDING_UNKNOWN },
    { "Model", BERTHI_ENDING_NONE },
};

static int32_t
ending_of(berthi_text name)
{
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (berthi_text_ends(name, endings[i].name))
            return endings[i].ending;
    return BERTHI_ENDING_OTHER;
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

/* Endings that few models have, and what training asks of few is known. */
static bool
is_known_ending(const berthi_shape *shape)
{
    const uint64_t traits = shape->family->traits;

    switch (shape->ending) {
    case BERTHI_ENDING_CHOICE:
        return shape->family->flags & BERTHI_FAMILY_BOTH_WAYS;
    case BERTHI_ENDING_FOLLOWS:
        return traits & BERTHI_TRAIT_FOLLOWS;
    case BERTHI_ENDING_TRAINING:
        return traits & (BERTHI_TRAIT_FOLLOWS | BERTHI_TRAIT_OWN_WORDS | BERTHI_TRAIT_SIGNS);
    case BERTHI_ENDING_ENTITY:
    case BERTHI_ENDING_ENTITY_PAIR:
    case BERTHI_ENDING_ENTITY_SPAN:
        return traits & BERTHI_TRAIT_ENTITIES;
    case BERTHI_ENDING_VECTORS:
        return traits & BERTHI_TRAIT_PATCHES;
    default:
        return true;
    }
}

/*
 * Some classes that read both ways tell two of each token whatever a file says; all others do.
 * TAPAS tells what is done with the cells of a table.
 */
static uint64_t
count_answers(berthi_shape_reading *r)
{
    const berthi_family *const family = r->shape->family;
    const bool is_t5 =
        family->flags & BERTHI_FAMILY_RELATIVE && family->flags & BERTHI_FAMILY_ENCODER;
    const bool is_asked =
        family->flags & BERTHI_FAMILY_BOTH_WAYS && !(family->traits & BERTHI_TRAIT_TWO_ANSWERS);

    if (family->traits & BERTHI_TRAIT_PLACES)
        return berthi_shape_member_if_any(r, "num_aggregation_labels", BERTHI_SHAPE_WIDTH, 0);
    return is_t5 || is_asked || family->traits & BERTHI_TRAIT_SAID_ANSWERS ? count_labels(r)
                                                                           : 2;
}

/* That a text follows is one of two labels, but of those of ALBERT's that a file has. */
static uint64_t
count_trained(berthi_shape_reading *r)
{
    const berthi_family *const family = r->shape->family;

    if (family->traits & BERTHI_TRAIT_OWN_WORDS)
        return 1;
    if ((family->traits & BERTHI_TRAIT_FOLLOWS) == 0)
        return 0;
    return family->flags & BERTHI_FAMILY_SHARED_LAYERS ? count_labels(r) : 2;
}

static uint64_t
count_endings(berthi_shape_reading *r)
{
    const uint64_t traits = r->shape->family->traits;

    switch (r->shape->ending) {
    case BERTHI_ENDING_LABELS:
    case BERTHI_ENDING_TOKEN_LABELS:
    case BERTHI_ENDING_ENTITY:
    case BERTHI_ENDING_ENTITY_PAIR:
    case BERTHI_ENDING_ENTITY_SPAN:
        return count_labels(r);
    case BERTHI_ENDING_ANSWERS:
        return count_answers(r);
    case BERTHI_ENDING_CHOICE: /* XLM makes its one number of as many as there are labels */
        return traits & BERTHI_TRAIT_LANGUAGES ? count_labels(r) : 1;
    case BERTHI_ENDING_FOLLOWS:
        return 2;
    case BERTHI_ENDING_TWO_HEADS:
        return berthi_shape_flag(r, "summary_use_proj", true) ? 1 : 0;
    case BERTHI_ENDING_VECTORS:
        return berthi_shape_member(r, "embedding_dim", 1, BERTHI_SHAPE_WIDTH, 128);
    case BERTHI_ENDING_TRAINING:
        return count_trained(r);
    default:
        return 0;
    }
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
    if (!is_known_ending(shape)
        || (shape->ending == BERTHI_ENDING_TWO_HEADS
            && !berthi_shape_flag(r, "summary_proj_to_labels", true)))
        shape->ending = BERTHI_ENDING_OTHER;
    shape->is_other_class = shape->ending == BERTHI_ENDING_UNKNOWN
                            || shape->ending == BERTHI_ENDING_OTHER;
    shape->has_head = shape->ending == BERTHI_ENDING_WORDS
                      || shape->ending == BERTHI_ENDING_OTHER
                      || shape->ending == BERTHI_ENDING_TWO_HEADS
                      || (shape->ending == BERTHI_ENDING_TRAINING
                          && !(shape->family->traits & BERTHI_TRAIT_OWN_WORDS));
    shape->labels = count_endings(r);
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

/* What a class's labels are made of: the last layer's tokens, or one for all of them. */
static bool
has_pooled_labels(const berthi_shape_making *m)
{
    switch (m->shape->ending) {
    case BERTHI_ENDING_TOKEN_LABELS:
    case BERTHI_ENDING_ANSWERS:
    case BERTHI_ENDING_VECTORS:
        return false;
    case BERTHI_ENDING_CHOICE:
        return !berthi_shape_has_trait(m, BERTHI_TRAIT_BARE_LABELS | BERTHI_TRAIT_BARE_CHOICE);
    case BERTHI_ENDING_FOLLOWS:
    case BERTHI_ENDING_TRAINING: /* by the model's own */
        return !berthi_shape_has_trait(m, BERTHI_TRAIT_ALWAYS_POOLS);
    default:
        return !berthi_shape_has_trait(m, BERTHI_TRAIT_BARE_LABELS);
    }
}

/* Of entities, as many parts are looked at as their words say. */
static uint64_t
label_width(const berthi_shape *shape)
{
    const uint64_t parts = shape->ending == BERTHI_ENDING_ENTITY_PAIR   ? 2
                           : shape->ending == BERTHI_ENDING_ENTITY_SPAN ? 3
                                                                        : 1;

    return parts * shape->last_width;
}

static void
add_labels(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const bool is_of_tokens = shape->ending == BERTHI_ENDING_TOKEN_LABELS
                              || shape->ending == BERTHI_ENDING_ANSWERS;
    const bool reads_all = berthi_shape_has(m, BERTHI_FAMILY_BOTH_WAYS | BERTHI_FAMILY_ENCODER);

    if (berthi_shape_has(m, BERTHI_FAMILY_BARE_TRANSFORM))
        berthi_shape_add_filling_head(m);
    else if (reads_all && has_pooled_labels(m))
        add_pooler(m);
    m->role = BERTHI_WEIGHT_HEAD;
    m->has_bias = (reads_all || is_of_tokens || shape->encoder_layers > 0
                   || shape->ending == BERTHI_ENDING_TWO_HEADS)
                  && shape->ending != BERTHI_ENDING_ENTITY_PAIR
                  && shape->ending != BERTHI_ENDING_VECTORS;
    berthi_shape_add_linear(m, "score", shape->labels, label_width(shape));
    if (shape->ending == BERTHI_ENDING_CHOICE
        && berthi_shape_has_trait(m, BERTHI_TRAIT_LANGUAGES))
        berthi_shape_add_linear(m, "logits_proj", 1, shape->labels);
}

/* XLM's and XLNet's: where an answer begins, where one that begins there ends, if there is one. */
static void
add_spans(berthi_shape_making *m)
{
    const uint64_t hidden = m->shape->hidden;

    m->role = BERTHI_WEIGHT_LINEAR;
    m->has_bias = true;
    m->count = 2;
    berthi_shape_add_linear(m, "dense_0", hidden, 2 * hidden);
    m->count = 1;
    berthi_shape_add_norms(m, hidden, 1);
    m->count = 3;
    berthi_shape_add_matrix(m, "dense", BERTHI_WEIGHT_HEAD, 1, hidden);
    m->count = 1;
    berthi_shape_add_vector(m, "dense", 2);
}

/* Its answers have a layer of their own. */
static bool
is_big_bird(const berthi_shape *shape)
{
    return shape->family->flags & BERTHI_FAMILY_BOTH_WAYS
           && shape->family->traits & BERTHI_TRAIT_ASKED_QKV;
}

static void
add_answers(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t hidden = shape->hidden;
    const bool is_xlnet = berthi_shape_has_trait(m, BERTHI_TRAIT_SEGMENTS)
                          && !berthi_shape_has_trait(m, BERTHI_TRAIT_BLOCKS);

    if (is_xlnet || berthi_shape_has_trait(m, BERTHI_TRAIT_LANGUAGES)) {
        add_spans(m);
        return;
    }
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_PLACES)) { /* cells and columns of a table */
        add_pooler(m);
        berthi_shape_add_vector(m, "output_weights", 2 * (hidden + 1));
    }
    if (is_big_bird(shape)) { /* one more layer's MLP */
        m->role = BERTHI_WEIGHT_LINEAR;
        m->has_bias = true;
        berthi_shape_add_mlp(m, shape->kinds[0].intermediate, hidden);
        berthi_shape_add_norms(m, hidden, 1);
    }
    if (shape->labels > 0)
        add_labels(m);
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
    if (!shape->ties_embeddings && !berthi_shape_has_trait(m, BERTHI_TRAIT_TWO_LANGUAGES))
        berthi_shape_add_matrix(m, "lm_head", BERTHI_WEIGHT_HEAD, shape->vocabulary,
                                shape->bottleneck.width > 0 ? shape->embedding
                                                            : shape->head_width);
    m->count = shape->head_biases;
    if (m->count > 0)
        berthi_shape_add_vector(m, "lm_head", shape->vocabulary);
    m->count = 1;
}

/* Whatever a class ends in. BigBird's for answers leaves out what all others of it have. */
static bool
has_own_pooler(const berthi_shape_making *m)
{
    const int32_t ending = m->shape->ending;

    if (berthi_shape_has_trait(m, BERTHI_TRAIT_ALWAYS_POOLS))
        return ending != BERTHI_ENDING_ANSWERS || !is_big_bird(m->shape);
    return (ending == BERTHI_ENDING_NONE && berthi_shape_has_trait(m, BERTHI_TRAIT_POOLER))
           || (ending == BERTHI_ENDING_TRAINING
               && berthi_shape_has_trait(m, BERTHI_TRAIT_SIGNS));
}

void
berthi_shape_add_ending(berthi_shape_making *m)
{
    if (has_own_pooler(m))
        add_pooler(m);
    if (m->shape->ending == BERTHI_ENDING_ANSWERS)
        add_answers(m);
    else if (m->shape->labels > 0)
        add_labels(m);
    if (m->shape->has_head)
        add_head(m);
}
