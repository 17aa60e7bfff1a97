/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_text.h - writing JSON: text handed on in pieces, strings escaped.
 *
 * Owns the two ways to spell a string that berth's files need, and a buffer of
 * fixed size between the writer of a document and where it goes. What a
 * document consists of (members, commas, white space) is its writer's business.
 * Numbers of a document that is copied keep the text they have: add it as it is.
 */
#ifndef BERTH_QUANT_JSON_TEXT_H
#define BERTH_QUANT_JSON_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"

#define BERTHI_JSON_TEXT_BUFFER 8192u

/*
 * Both write \" \\ \b \f \n \r \t, and \u00xx (digits of lower case) for the
 * other bytes below 0x20. `/` is never escaped.
 */
typedef enum berthi_json_style {
    BERTHI_JSON_RAW,  /* all else as it is: headers of safetensors          */
    BERTHI_JSON_ASCII /* as Python's json.dumps: 0x7F and all above ASCII as
                         \uxxxx, two of them beyond U+FFFF                  */
} berthi_json_style;

/* `size` bytes of the text, which belong at `offset` of it. */
typedef berth_status (*berthi_json_put)(void *user, const char *bytes, uint64_t size,
                                        uint64_t offset, berth_error *error);
/* One: `user` is memory for the whole text. Never fails. */
berth_status berthi_json_put_memory(void *user, const char *bytes, uint64_t size,
                                    uint64_t offset, berth_error *error);

/*
 * A text in the making. After a failure of `put` the calls do nothing; end()
 * reports it. The fields are read only.
 */
typedef struct berthi_json_text {
    berthi_json_put put;
    void *user;
    berth_error *error;
    berth_status status;
    uint64_t offset; /* bytes handed on */
    uint32_t used;
    char buffer[BERTHI_JSON_TEXT_BUFFER];
} berthi_json_text;

/* `put` may be NULL: only count. `error` may be NULL and is kept until the end. */
void berthi_json_text_begin(berthi_json_text *text, berthi_json_put put, void *user,
                            berth_error *error);
/* Bytes as they are. */
void berthi_json_text_add(berthi_json_text *text, const char *bytes, uint64_t length);
/* The same, ended by NUL. */
void berthi_json_text_add_words(berthi_json_text *text, const char *words);
/* In decimal. */
void berthi_json_text_add_number(berthi_json_text *text, uint64_t number);
/*
 * Part of a string without the quotes, so that names can be spelled piece by
 * piece. Begins and ends between characters. A byte that begins no well-formed
 * character is raw in one style and \ufffd in the other: check before.
 */
void berthi_json_text_add_escaped(berthi_json_text *text, const char *bytes,
                                  uint64_t length, berthi_json_style style);
/* A whole string, with its quotes. */
void berthi_json_text_add_string(berthi_json_text *text, const char *bytes,
                                 uint64_t length, berthi_json_style style);
/* Hands the rest on. *out_bytes (may be NULL): size of the text. */
berth_status berthi_json_text_end(berthi_json_text *text, uint64_t *out_bytes);

/* Digits of a number in decimal: 1 to 20. */
uint32_t berthi_json_text_digits(uint64_t number);

#endif
