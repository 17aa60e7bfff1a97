/* SPDX-License-Identifier: Apache-2.0 */
/* coverage.c - sums and the gate; see coverage.h. */
#include "quant/coverage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/digits.h"

#define PERCENT (BERTHI_WHOLE / 100)

berth_status
berthi_coverage_init(berthi_coverage *out, berth_context *context,
                     const berthi_rules *rules, berth_error *error)
{
    uint32_t count = 0;

    memset(out, 0, sizeof *out);
    for (int cause = 0; cause < BERTHI_CAUSE_COUNT; cause++) {
        out->first[cause] = count;
        count += berthi_rules_numbers(rules, (berthi_cause)cause);
    }
    out->first[BERTHI_CAUSE_COUNT] = count;
    out->context = context;
    out->details = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT,
                                        count * sizeof *out->details);
    if (out->details == NULL)
        return berthi_fail_memory(error, "counting what is quantized");
    return BERTH_OK;
}

void
berthi_coverage_fini(berthi_coverage *coverage)
{
    if (coverage->details != NULL)
        berthi_memory_free(coverage->context, BERTHI_PURPOSE_OBJECT, coverage->details,
                           coverage->first[BERTHI_CAUSE_COUNT]
                               * sizeof *coverage->details);
    coverage->details = NULL;
}

static void
add_line(berthi_coverage_line *line, const berthi_model_tensor *tensor,
         uint64_t source_bytes, uint64_t stored_bytes)
{
    line->tensors++;
    line->parameters += tensor->elements;
    line->source_bytes += source_bytes;
    line->stored_bytes += stored_bytes;
}

void
berthi_coverage_add(berthi_coverage *coverage, const berthi_model_tensor *tensor,
                    const berthi_decision *decision, uint64_t source_bytes,
                    uint64_t stored_bytes)
{
    berthi_coverage_detail *const detail =
        &coverage->details[coverage->first[decision->cause] + decision->number];

    add_line(&coverage->all, tensor, source_bytes, stored_bytes);
    add_line(&coverage->encodings[decision->encoding], tensor, source_bytes, stored_bytes);
    add_line(&detail->line, tensor, source_bytes, stored_bytes);
    detail->decision = *decision;
}

void
berthi_coverage_keep(berthi_coverage *coverage, const berthi_decision *decision)
{
    coverage->all.kept++;
    coverage->encodings[decision->encoding].kept++;
    coverage->details[coverage->first[decision->cause] + decision->number].line.kept++;
}

/* part / whole in billionths, rounded down; part <= whole. */
static uint64_t
share_of(uint64_t part, uint64_t whole)
{
    uint64_t share;

    if (whole == 0)
        return BERTHI_WHOLE;
    /* Long division, digit by digit: nine of them, and no product passes 2^64 for
       a whole below 2^60, which no model reaches. */
    share = part / whole;
    part %= whole;
    for (int i = 0; i < 9; i++) {
        part *= 10;
        share = share * 10 + part / whole;
        part %= whole;
    }
    return share;
}

static uint64_t
quantized(const berthi_coverage *coverage)
{
    return coverage->all.parameters
           - coverage->encodings[BERTH_ENCODING_NATIVE].parameters;
}

uint64_t
berthi_coverage_share(const berthi_coverage *coverage)
{
    return share_of(quantized(coverage), coverage->all.parameters);
}

/* ------------------------------------------------------------------- parsing */

/* Digits with a point among them, times `one`; false when that is no share. */
static bool
can_read_share(const char **at, uint64_t one, uint64_t *out)
{
    uint64_t whole;

    if (!berthi_digits_can_take(at, *at + strlen(*at), 100, &whole))
        return false;
    *out = whole * one;
    if (**at != '.')
        return true;
    (*at)++;
    if (**at < '0' || **at > '9')
        return false;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        if (one % 10 != 0)
            return false;
        one /= 10;
        *out += (uint64_t)(**at - '0') * one;
    }
    return true;
}

static bool
can_parse(const char *text, uint64_t *out)
{
    const bool is_percent = strchr(text, '%') != NULL;

    if (!can_read_share(&text, is_percent ? PERCENT : BERTHI_WHOLE, out))
        return false;
    if (is_percent) {
        text += *text == ' ';
        if (*text++ != '%')
            return false;
    }
    return *text == '\0' && *out <= BERTHI_WHOLE;
}

berth_status
berth_share_parse(const char *text, uint64_t *out_share, berth_error *error)
{
    berthi_error_clear(error);
    if (out_share == NULL)
        return berthi_fail_argument(error, "out_share", "is NULL");
    *out_share = 0;
    if (text == NULL)
        return berthi_fail_argument(error, "text", "is NULL");
    if (can_parse(text, out_share))
        return BERTH_OK;
    *out_share = 0;
    return berthi_fail_argument(error, "text", "is no share: write 95% or 0.95");
}

/* ------------------------------------------------------------------- judging */

/* What left out most parameters. Something did. */
static const berthi_coverage_detail *
find_largest(const berthi_coverage *coverage)
{
    const berthi_coverage_detail *largest = NULL;

    for (uint32_t i = 0; i < coverage->first[BERTHI_CAUSE_COUNT]; i++) {
        const berthi_coverage_detail *const detail = &coverage->details[i];

        if (detail->line.tensors > 0 && detail->decision.encoding == BERTH_ENCODING_NATIVE
            && (largest == NULL || detail->line.parameters > largest->line.parameters))
            largest = detail;
    }
    return largest;
}

/* A share as "12.34", cut. */
static const char *
write_share(uint64_t share, char text[32])
{
    snprintf(text, 32, "%" PRIu64 ".%02" PRIu64, share / PERCENT,
             share % PERCENT / (PERCENT / 100));
    return text;
}

berth_status
berthi_coverage_check(const berthi_coverage *coverage, const berthi_rules *rules,
                      uint64_t minimum, berth_error *error)
{
    const uint64_t share = berthi_coverage_share(coverage);
    const berthi_coverage_detail *largest;
    char actual[32];
    char wanted[32];
    char most[32];
    char why[256];

    if (share >= minimum)
        return BERTH_OK;
    largest = find_largest(coverage);
    berthi_rules_explain(rules, &largest->decision, why, sizeof why);
    return berthi_fail(error, BERTH_REASON_MIN_COVERAGE, NULL,
                       "%s %% of the parameters are quantized, %s %% are asked for; most "
                       "of the others, %s %% of all: %s",
                       write_share(share, actual), write_share(minimum, wanted),
                       write_share(share_of(largest->line.parameters,
                                            coverage->all.parameters), most), why);
}

bool
berthi_coverage_is_none(const berthi_coverage *coverage)
{
    return coverage->all.tensors > 0
           && coverage->encodings[BERTH_ENCODING_NATIVE].tensors == coverage->all.tensors;
}
