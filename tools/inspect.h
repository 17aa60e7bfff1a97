/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.h - what `berth inspect` knows of a checkpoint, gathered once and
 * then written for people or for programs.
 */
#ifndef BERTH_TOOLS_INSPECT_H
#define BERTH_TOOLS_INSPECT_H

#include "tools/form.h"
#include "tools/json.h"
#include "tools/listing.h"
#include "tools/session.h"
#include "tools/tree.h"

#define INSPECT_ENCODINGS 16
#define INSPECT_MAX_METHODS 8
#define INSPECT_DEPTH_AUTO 0

typedef struct inspect_total {
    uint64_t tensors;
    uint64_t bytes;
} inspect_total;

/* Weights that were quantized the same way. */
typedef struct inspect_method {
    const char *name; /* "bitsandbytes nf4", borrowed from the checkpoint */
    uint32_t block_size;
    uint32_t block_columns;
    int32_t is_double;
    uint64_t weights;
} inspect_method;

typedef struct inspection {
    const berth_checkpoint *checkpoint;
    berth_checkpoint_summary summary;
    listing listing;
    form_table forms;
    tree tree;
    inspect_total dtypes[BERTH_DTYPE_COUNT];
    inspect_total encodings[INSPECT_ENCODINGS];
    inspect_method methods[INSPECT_MAX_METHODS];
    size_t method_count; /* beyond INSPECT_MAX_METHODS they count as the last */
    uint64_t warnings;
    uint64_t notes;
} inspection;

/* Fills everything but warnings and notes. BERTH_OK or BERTH_ENOMEM. */
berth_status inspect_gather(inspection *i, const berth_checkpoint *checkpoint);
void inspect_fini(inspection *i);

/* `depth`: levels of the tree, or INSPECT_DEPTH_AUTO: what fits a screen. */
void inspect_print(session *s, const inspection *i, uint32_t depth);
/* Every tensor, a line each. BERTH_OK or BERTH_ENOMEM. */
berth_status inspect_print_tensors(session *s, const inspection *i);
void inspect_print_csv(session *s, const inspection *i);
void inspect_write_json(session *s, const inspection *i, bool wants_tensors);

/* Files, link targets and metadata: what -v adds. */
void inspect_print_shards(session *s, const inspection *i);

/* The block of facts that opens each view. */
void inspect_print_head(session *s, const inspection *i);

#endif
