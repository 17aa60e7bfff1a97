/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_copied.c - files beside the weights, of an output that is complete already: who goes on
 * learns which of them have been written since in the source, such as a chat template. The output
 * is left alone all the same: people edit what lies there.
 */
#include <inttypes.h>
#include <string.h>

#include "kernels/digest.h"
#include "loader/convert_job.h"
#include "loader/listing.h"
#include "loader/safetensors.h"

berth_status
berthi_convert_begin_copied(berthi_convert *convert, berthi_convert_copied *out,
                            berth_error *error)
{
    const uint64_t bytes =
        (convert->side_files.count + UINT64_C(1)) * sizeof *out->entries;

    *out = (berthi_convert_copied){ .convert = convert };
    out->entries = berthi_arena_alloc(&convert->texts, bytes, 8);
    if (out->entries == NULL)
        return berthi_fail_memory(error, "files beside the weights");
    memset(out->entries, 0, (size_t)bytes);
    return BERTH_OK;
}

/* Of the source; its last is config.json, as it would be written now. */
static const char *
name_of(const berthi_convert *convert, uint32_t number)
{
    return number < convert->side_files.count ? convert->side_files.files[number].name
                                              : BERTHI_CONFIG_NAME;
}

static int
compare_name(const char *name, const berthi_manifest_file *file)
{
    return berthi_name_compare(name, strlen(name), file->file, file->file_length);
}

void
berthi_convert_note_copied(berthi_convert_copied *copied, const berthi_manifest_file *file)
{
    const berthi_side_files *const files = &copied->convert->side_files;
    const berthi_convert_entry entry = { .is_there = true, .bytes = file->bytes,
                                         .crc = file->crc32 };

    if (compare_name(BERTHI_CONFIG_NAME, file) == 0)
        copied->entries[files->count] = entry;
    /* Both are in the order of names. */
    while (copied->next < files->count
           && compare_name(files->files[copied->next].name, file) < 0)
        copied->next++;
    if (copied->next < files->count
        && compare_name(files->files[copied->next].name, file) == 0)
        copied->entries[copied->next++] = entry;
}

static berth_status
add_to_crc(void *user, const void *bytes, uint64_t size, uint64_t offset, berth_error *error)
{
    uint32_t *const crc = user;

    (void)offset;
    (void)error;
    *crc = berthi_digest_crc32(*crc, bytes, size);
    return BERTH_OK;
}

static berth_status
compare(const berthi_convert_copied *copied, uint32_t number, bool *out_is_same,
        berth_error *error)
{
    berthi_convert *const convert = copied->convert;
    const berthi_convert_entry *const entry = &copied->entries[number];
    const berthi_side_file *file;
    uint32_t crc = 0;
    berth_status status;

    *out_is_same = false;
    if (number == convert->side_files.count) {
        *out_is_same = convert->checkpoint->config_text == NULL
                       || (entry->is_there && entry->bytes == convert->config_bytes
                           && entry->crc == convert->config_crc);
        return BERTH_OK;
    }
    file = &convert->side_files.files[number];
    if (!entry->is_there || entry->bytes != file->identity.bytes)
        return BERTH_OK;
    status = berthi_side_files_read(&convert->location, file, add_to_crc, &crc, error);
    *out_is_same = status == BERTH_OK && crc == entry->crc;
    return status;
}

static void
warn(berthi_convert *convert, const char *path, uint64_t count)
{
    berthi_findings findings;

    berthi_findings_init(&findings, convert->context,
                         &(berth_open_options){ .finding = convert->options.finding,
                                                .finding_user =
                                                    convert->options.finding_user });
    berthi_findings_remark(&findings, BERTH_SEVERITY_WARNING, BERTH_REASON_EXISTS,
                           &(berthi_about){ .file = path },
                           count == 1 ? "is not what went into the output, which is left as it is"
                                      : "is not what went into the output, which is left as it "
                                        "is; one of %" PRIu64 " such files",
                           count);
    berthi_findings_fini(&findings);
}

berth_status
berthi_convert_compare_copied(const berthi_convert_copied *copied, berth_error *error)
{
    berthi_convert *const convert = copied->convert;
    const char *first = NULL;
    const char *path;
    uint64_t count = 0;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; status == BERTH_OK && i <= convert->side_files.count; i++) {
        bool is_same;

        status = compare(copied, i, &is_same, error);
        if (status != BERTH_OK || is_same)
            continue;
        first = count == 0 ? name_of(convert, i) : first;
        count++;
    }
    if (status != BERTH_OK || count == 0)
        return status;
    path = berthi_location_path(&convert->location, first);
    if (path == NULL)
        return berthi_fail_memory(error, "a path");
    warn(convert, path, count);
    return BERTH_OK;
}
