/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_blobs.h - `--verify-blobs`: all of the source is held against the SHA-256 that hub
 * blobs are called by, before it is converted.
 */
#ifndef BERTH_TOOLS_CONVERT_BLOBS_H
#define BERTH_TOOLS_CONVERT_BLOBS_H

#include "tools/convert_print.h"

/* Every file of the source is such a blob, and can be compared. Reads none; tells what is wrong. */
berth_status convert_blobs_check(const conversion *c);
/* Reads them all. Each that is another is a line, or a finding of the JSON. */
berth_status convert_blobs_verify(conversion *c);

#endif
