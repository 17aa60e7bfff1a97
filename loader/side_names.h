/* SPDX-License-Identifier: Apache-2.0 */
/* side_names.h - names of files that go along with new weights, or do not. */
#ifndef BERTH_LOADER_SIDE_NAMES_H
#define BERTH_LOADER_SIDE_NAMES_H

#include <stdbool.h>

/* Whatever berth takes for an index, and "pytorch_model.bin.index.fp16.json". */
bool berthi_side_is_index(const char *name);
/* Is it a file of the model's own folder that is written anew, or wrong beside new weights? */
bool berthi_side_is_replaced(const char *name);
/* A name that a file of the new model may have: no folder can have it, too. */
bool berthi_side_is_of_model(const char *name);
/* What tools that fetch files call them until they are there. */
bool berthi_side_is_unfinished(const char *name);
/* A folder that nothing goes along from. */
bool berthi_side_is_left_out_folder(const char *name);

#endif
