/* SPDX-License-Identifier: Apache-2.0 */
/* side_names.c - see side_names.h. */
#include "loader/side_names.h"

#include <string.h>

#include "loader/listing.h"
#include "loader/paths.h"

static bool
is_one_of(const char *name, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

bool
berthi_side_is_index(const char *name)
{
    return berthi_listing_is_index(name)
           || (strstr(name, ".index.") != NULL && berthi_path_has_suffix(name, ".json"));
}

bool
berthi_side_is_replaced(const char *name)
{
    static const char *const names[] = {
        BERTHI_CONFIG_NAME,     "adapter_config.json", "hf_quant_config.json",
        "quantize_config.json", "quant_config.json",   NULL,
    };

    return is_one_of(name, names) || berthi_path_has_suffix(name, "berth.manifest.json");
}

bool
berthi_side_is_of_model(const char *name)
{
    return berthi_path_has_suffix(name, BERTHI_SINGLE_SUFFIX)
           || berthi_side_is_index(name) || berthi_side_is_replaced(name);
}

bool
berthi_side_is_unfinished(const char *name)
{
    static const char *const suffixes[] = { ".incomplete", ".partial", ".part",
                                            ".crdownload", ".aria2",   NULL };

    for (const char *const *suffix = suffixes; *suffix != NULL; suffix++)
        if (berthi_path_has_suffix(name, *suffix))
            return true;
    return false;
}

bool
berthi_side_is_left_out_folder(const char *name)
{
    static const char *const names[] = { "original", "__pycache__", NULL };

    return is_one_of(name, names);
}
