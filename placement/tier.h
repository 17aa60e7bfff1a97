/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.h - sizes as text, both ways: the one place that knows "20GiB".
 *
 * berth_size_format() and berth_size_parse() of berth.h are implemented here.
 * Integer arithmetic throughout: no locale, no rounding of a rounded number.
 * Powers of 1000: B kB KB MB GB TB PB EB; of 1024: KiB MiB GiB TiB PiB EiB. Case
 * counts, because Gb is bits elsewhere. What is finer than a byte is cut off, so
 * that a budget is never larger than its text.
 */
#ifndef BERTH_PLACEMENT_TIER_H
#define BERTH_PLACEMENT_TIER_H

#include "kernels/base.h"

#endif
