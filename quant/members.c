/* SPDX-License-Identifier: Apache-2.0 */
/* members.c - JSON whose members have one order; see members.h. */
#include "quant/members.h"

#include <inttypes.h>

#include "kernels/utf8.h"

static berthi_about
here(const berthi_members *m)
{
    return (berthi_about){ .file = m->file,
                           .has = BERTH_HAS_POSITION,
                           .position = m->scan.position };
}

bool
berthi_members_stop(berthi_members *m, const char *message)
{
    const berthi_about about = here(m);

    m->status = berthi_fail(m->error, m->reason, &about, "%s", message);
    return false;
}

bool
berthi_members_stop_memory(berthi_members *m)
{
    m->status = berthi_fail_memory(m->error, m->what);
    return false;
}

bool
berthi_members_can_begin(berthi_members *m, char *text, uint64_t bytes)
{
    const size_t valid = berthi_utf8_check((const unsigned char *)text, (size_t)bytes);

    berthi_scan_init(&m->scan, text, bytes, 0);
    if (valid < bytes) {
        m->scan.position = valid;
        return berthi_members_stop(m, "not UTF-8");
    }
    return berthi_scan_can_enter_object(&m->scan);
}

berth_status
berthi_members_end(berthi_members *m)
{
    if (m->status == BERTH_OK && !berthi_scan_can_finish(&m->scan)) {
        m->scan.position = m->scan.problem_at;
        (void)berthi_members_stop(m, m->scan.problem);
    }
    return m->status;
}

/* -------------------------------------------------------------------- members */

/* Has `key` the next member's name, unless it has it already. False: there is none. */
static bool
has_next(berthi_members *m)
{
    if (m->has_key || m->has_ended)
        return m->has_key;
    m->key_at = m->scan.position;
    m->has_key = berthi_scan_has_next_member(&m->scan, &m->key);
    m->has_ended = !m->has_key;
    return m->has_key;
}

bool
berthi_members_can_find_key(berthi_members *m, const char *key, bool *out_is_there)
{
    *out_is_there = has_next(m) && berthi_scan_text_is(&m->key, key);
    if (*out_is_there)
        m->has_key = false;
    return m->scan.problem == NULL;
}

bool
berthi_members_can_read_key(berthi_members *m, const char *key)
{
    berthi_about about = { .file = m->file, .has = BERTH_HAS_POSITION };
    bool is_there;

    if (!berthi_members_can_find_key(m, key, &is_there))
        return false;
    if (is_there)
        return true;
    about.position = m->key_at;
    m->status = berthi_fail(m->error, m->reason, &about,
                            "the next member should be \"%s\"", key);
    return false;
}

bool
berthi_members_is_at_end(berthi_members *m)
{
    if (!has_next(m)) {
        m->has_ended = false; /* what is around it goes on */
        return m->scan.problem == NULL;
    }
    m->scan.position = m->key_at;
    return berthi_members_stop(m, "the next member has no meaning");
}

bool
berthi_members_can_read_version(berthi_members *m, uint64_t version)
{
    berthi_about about = { .file = m->file,
                           .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL,
                           .expected = version };
    uint64_t found;

    if (!berthi_members_can_read_number(m, "schema_version", &found))
        return false;
    if (found == 0)
        return berthi_members_stop(m, "there is no schema version 0");
    if (found <= version)
        return true;
    about.actual = found;
    m->status = berthi_fail(m->error, BERTH_REASON_UNSUPPORTED, &about,
                            "schema_version %" PRIu64 " needs a newer berth", found);
    return false;
}

/* --------------------------------------------------------------------- values */

bool
berthi_members_can_take_text(berthi_members *m, const char **out)
{
    berthi_scan_text text;

    if (!berthi_scan_can_read_string(&m->scan, &text))
        return false;
    if (text.has_nul)
        return berthi_members_stop(m, "a text with U+0000");
    *out = berthi_arena_text(m->arena, text.bytes, text.length);
    if (*out == NULL)
        return berthi_members_stop_memory(m);
    return true;
}

bool
berthi_members_can_read_text(berthi_members *m, const char *key, const char **out)
{
    return berthi_members_can_read_key(m, key) && berthi_members_can_take_text(m, out);
}

bool
berthi_members_can_read_number(berthi_members *m, const char *key, uint64_t *out)
{
    return berthi_members_can_read_key(m, key)
           && berthi_scan_can_read_unsigned(&m->scan, out);
}

bool
berthi_members_can_read_limit(berthi_members *m, const char *key, uint64_t *out)
{
    if (!berthi_members_can_read_key(m, key))
        return false;
    if (berthi_scan_peek(&m->scan) != BERTHI_SCAN_NULL)
        return berthi_scan_can_read_unsigned(&m->scan, out);
    *out = UINT64_MAX;
    return berthi_scan_can_read_null(&m->scan);
}

bool
berthi_members_can_read_below(berthi_members *m, const char *key, uint64_t limit,
                              uint64_t *out)
{
    if (!berthi_members_can_read_number(m, key, out))
        return false;
    if (*out >= limit)
        return berthi_members_stop(m, "the number is too large");
    return true;
}

bool
berthi_members_can_read_bool(berthi_members *m, const char *key, bool *out)
{
    return berthi_members_can_read_key(m, key) && berthi_scan_can_read_bool(&m->scan, out);
}

uint64_t
berthi_members_count(const berthi_members *m)
{
    berthi_scan ahead = m->scan;
    uint64_t count = 0;

    /* One that cannot be skipped counts: the reader begins it before it fails. */
    while (berthi_scan_has_next_element(&ahead)) {
        count++;
        if (!berthi_scan_can_skip(&ahead))
            break;
    }
    return count;
}

bool
berthi_members_can_enter_array(berthi_members *m, const char *key, uint64_t *out_count)
{
    if (!berthi_members_can_read_key(m, key) || !berthi_scan_can_enter_array(&m->scan))
        return false;
    *out_count = berthi_members_count(m);
    return true;
}
