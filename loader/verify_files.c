/* SPDX-License-Identifier: Apache-2.0 */
/* verify_files.c - files beside the weights, and what a manifest says; see verify_files.h. */
#include "loader/verify_files.h"

#include "loader/checkpoint.h"
#include "loader/file_digest.h"
#include "loader/findings.h"
#include "loader/journal.h"

typedef struct looking {
    berthi_verify_files *files;
    berthi_location location; /* the checkpoint's, with texts of its own */
    const char *manifest;     /* its path */
} looking;

static void
warn(berthi_verify_files *files, const berth_error *details)
{
    files->changed++;
    if (files->finding != NULL)
        files->finding(files->finding_user,
                       &(berth_finding){ .severity = BERTH_SEVERITY_WARNING,
                                         .details = details });
}

/* One of the right size: only its bytes can tell. */
static berth_status
compare(berthi_verify_files *files, const berthi_file *file, uint32_t promised,
        berth_error *error)
{
    berthi_about about = { .file = file->path,
                           .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_CRC32,
                           .expected = promised };
    berth_error details;
    uint32_t crc;
    const berth_status status =
        berthi_file_digest(file, files->context, files->job, &crc, error);

    if (status != BERTH_OK)
        return status;
    files->bytes_read += file->identity.bytes;
    if (crc == promised)
        return BERTH_OK;
    about.actual = crc;
    (void)berthi_fail(&details, BERTH_REASON_DIGEST, &about,
                      "is not as it was written with the weights: edited since, or damaged");
    warn(files, &details);
    return BERTH_OK;
}

static berth_status
look_at(berthi_verify_files *files, const berthi_file *file, const berthi_manifest_file *entry,
        berth_error *error)
{
    const berthi_about about = { .file = file->path,
                                 .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES,
                                 .expected = entry->bytes,
                                 .actual = file->identity.bytes };
    berth_error details;

    if (about.actual == about.expected)
        return compare(files, file, entry->crc32, error);
    (void)berthi_fail(&details, BERTH_REASON_DIGEST, &about,
                      "has another size than the file that was written with the weights");
    warn(files, &details);
    return BERTH_OK;
}

/* A manifest may hold anything: what no set of files has is not looked for. */
static void
warn_of_name(looking *l, const berthi_manifest_file *entry, const char *problem)
{
    char shown[BERTHI_SHOWN_CAPACITY];
    berth_error details;

    (void)berthi_fail(&details, BERTH_REASON_MANIFEST_ENTRY,
                      &(berthi_about){ .file = l->manifest }, "its file \"%s\" %s",
                      berthi_findings_shown(entry->file, entry->file_length, shown), problem);
    warn(l->files, &details);
}

static berth_status
see_file(void *user, const berthi_manifest_file *entry, berth_error *error)
{
    looking *const l = user;
    const char *const problem =
        berthi_journal_name_problem(entry->file, entry->file_length);
    const char *const name =
        berthi_arena_text(&l->location.arena, entry->file, entry->file_length);
    berth_error details;
    berthi_file file;
    berth_status status;

    l->files->checked++;
    if (problem != NULL) {
        warn_of_name(l, entry, problem);
        return BERTH_OK;
    }
    status = name == NULL ? BERTH_ENOMEM
                          : berthi_location_open(
                                &l->location, name, BERTH_REASON_MANIFEST_ENTRY,
                                "is not there, and was written with the weights", &file,
                                &details);
    if (status == BERTH_ENOMEM)
        return berthi_fail_memory(error, "looking at the files beside the weights");
    if (status == BERTH_EIO) {
        *error = details; /* nobody knows what it is */
        return status;
    }
    if (status != BERTH_OK) {
        warn(l->files, &details);
        return BERTH_OK;
    }
    status = look_at(l->files, &file, entry, error);
    berthi_file_close(&file);
    return status;
}

berth_status
berthi_verify_files_check(berthi_verify_files *files, berthi_manifest_place place,
                          berth_error *error)
{
    const berthi_location *const opened = &files->checkpoint->location;
    looking l = { .files = files, .manifest = place.path };
    const berthi_manifest_visitor visitor = { .user = &l, .file = see_file };
    berth_status status = berthi_location_init_again(&l.location, files->context, opened,
                                                     opened->file, error);

    if (status != BERTH_OK)
        return status;
    status = berthi_manifest_read(files->context, place, &visitor, error);
    berthi_location_fini(&l.location);
    return status;
}
