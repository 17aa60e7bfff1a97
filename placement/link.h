/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - how fast bytes get from tier to tier: given, measured or guessed.
 * berth-links(5) describes the file that measurements are kept in.
 *
 * Parses and prints; no I/O, no memory of its own. All rates are whole bytes a
 * second, 1 to BERTHI_RATE_LIMIT.
 */
#ifndef BERTH_PLACEMENT_LINK_H
#define BERTH_PLACEMENT_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "placement/tier.h"
#include "quant/json_text.h"

/* BERTHI_RATE_SOURCES(X): X(IDENTIFIER, "word"). */
#define BERTHI_RATE_SOURCES(X) \
    X(GUESSED, "guessed")      \
    X(GIVEN, "given")          \
    X(MEASURED, "measured")

typedef enum berthi_rate_source {
#define BERTHI_RATE_SOURCE_ENUM(identifier, word) BERTHI_RATE_##identifier,
    BERTHI_RATE_SOURCES(BERTHI_RATE_SOURCE_ENUM)
#undef BERTHI_RATE_SOURCE_ENUM
        BERTHI_RATE_SOURCE_COUNT
} berthi_rate_source;

#define BERTHI_RATE_LIMIT (UINT64_C(1) << 62)
#define BERTHI_DELAY_LIMIT UINT64_C(1000000000)
#define BERTHI_RATE_WORDS 32u
#define BERTHI_FINGERPRINT 64u

typedef struct berthi_rate {
    uint64_t bytes; /* a second; 0 in a list of links only: not known */
    int32_t source; /* berthi_rate_source */
    char words[BERTHI_RATE_WORDS]; /* "PCIe 4.0 x16", "NVMe"; "" */
} berthi_rate;

/* What something takes beyond its bytes. */
typedef struct berthi_delay {
    uint64_t ns;    /* 1 to BERTHI_DELAY_LIMIT; 0: not known, and nothing is counted */
    int32_t source; /* berthi_rate_source */
} berthi_delay;

/* Of one tier. */
typedef struct berthi_link {
    berthi_tier tier;   /* a GPU, cpu or disk */
    berthi_rate feed;   /* GPU: from host memory; disk: reading; cpu: copying */
    berthi_rate memory; /* GPU and cpu: of its own memory, when it computes; disk: feed */
    berthi_delay operation; /* GPU: each that it computes; it is not guessed */
} berthi_link;

#define BERTHI_LINK_LIMIT BERTHI_TIER_LIMIT

/* Each tier at most once, in the order of tiers. Zero: none. */
typedef struct berthi_links {
    berthi_link items[BERTHI_LINK_LIMIT];
    uint32_t count;
    char fingerprint[BERTHI_FINGERPRINT]; /* of the machine measured; "": none */
} berthi_links;

/* "guessed"; NULL: no such number. */
const char *berthi_rate_source_name(int32_t source);

/*
 * Guesses, named as such: PCIe 4.0 x16 (25 GB/s) and 900 GB/s for a GPU, 3 GB/s for
 * the disk, 8 GB/s a core copied and 20 GB/s read by the host. 0 cores count as one.
 */
berthi_link berthi_link_guess(const berthi_tier *tier, uint32_t cores);
/* What is known of a tier: rate by rate found in `links`, or guessed. */
berthi_link berthi_links_find(const berthi_links *links, const berthi_tier *tier,
                              uint32_t cores);

/* The link of `tier`, added empty where there is none; NULL: a GPU too many. */
berthi_link *berthi_links_place(berthi_links *links, const berthi_tier *tier);

/*
 * "0=gen4x16,cuda:1=12GB/s,disk=7GB/s,cpu=40GB/s": added to `links`, or in place of
 * what they hold. Generations 3, 4, 5 and 6, x1, x2, x4, x8 and x16 (12, 25, 55 and
 * 110 GB/s); "/s" may be left out; "0.memory=900GB/s" is the device's own memory,
 * "0.operation=4us" what each operation of it takes beyond its bytes.
 * Each rate at most once. Fails with ARGUMENT, and `links` are what they were.
 */
berth_status berthi_links_parse_words(const char *text, berthi_links *links,
                                      berth_error *error);

/*
 * The file. `text` is changed. Fails with LINKS_JSON and a position, or UNSUPPORTED
 * for a later version; `out` then holds nothing.
 */
berth_status berthi_links_parse(char *text, uint64_t bytes, const char *file,
                                berthi_links *out, berth_error *error);
/* Fails only as `put` does. *out_bytes (may be NULL): size of the text. */
berth_status berthi_links_print(const berthi_links *links, berthi_json_put put,
                                void *user, uint64_t *out_bytes, berth_error *error);

#endif
