/* SPDX-License-Identifier: Apache-2.0 */
/* crcs_manifest.c - walks a checkpoint in the order of a manifest, to read or write one. */
#include "loader/crcs.h"

#include <stdio.h>
#include <string.h>

#include "kernels/text.h"
#include "kernels/utf8.h"
#include "loader/checkpoint.h"
#include "loader/findings.h"
#include "loader/paths.h"
#include "loader/sort.h"

/* ----------------------------------------------------------- order of names */

/* Names in bytewise order, and a place in it. */
typedef struct ranking {
    berth_context *context;
    berthi_text *names; /* by number, the checkpoint's */
    uint32_t *order;    /* numbers */
    uint64_t count;
    uint64_t next;      /* place, 0 to count */
} ranking;

static void
ranking_fini(ranking *r)
{
    if (r->context == NULL)
        return;
    berthi_memory_free(r->context, BERTHI_PURPOSE_SCRATCH, r->names,
                       r->count * sizeof *r->names);
    berthi_memory_free(r->context, BERTHI_PURPOSE_SCRATCH, r->order,
                       r->count * sizeof *r->order);
    memset(r, 0, sizeof *r);
}

static berth_status
ranking_init(ranking *r, berth_context *context, uint64_t count, berth_error *error)
{
    memset(r, 0, sizeof *r);
    r->context = context;
    r->count = count;
    r->names = berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, count,
                                   sizeof *r->names);
    r->order = berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, count,
                                   sizeof *r->order);
    if (r->names != NULL && r->order != NULL)
        return BERTH_OK;
    ranking_fini(r);
    return berthi_fail_memory(error, "sorting names");
}

static int
compare_names(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    const berthi_text *const names = user;

    return berthi_name_compare_behind(names[a].bytes, names[a].length, names[b].bytes,
                                      names[b].length, shared);
}

static berth_status
ranking_sort(ranking *r, berth_error *error)
{
    berthi_sort_number(r->order, r->count);
    if (berthi_sort_arrange(r->context, r->order, r->count, compare_names, r->names))
        return BERTH_OK;
    ranking_fini(r);
    return berthi_fail_memory(error, "sorting names");
}

/* How the name at the place compares with `wanted`; above zero at the end. */
static int
ranking_compare(const ranking *r, const berthi_text *wanted)
{
    const berthi_text *found;

    if (r->next == r->count)
        return 1;
    found = &r->names[r->order[r->next]];
    return berthi_name_compare(found->bytes, found->length, wanted->bytes,
                               wanted->length);
}

/* Numbers in the ranking are shard numbers. */
static berth_status
rank_shards(const berthi_crcs *crcs, ranking *r, berth_error *error)
{
    berth_status status = ranking_init(r, crcs->context, crcs->shard_count, error);

    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < crcs->shard_count; i++) {
        berth_shard shard;

        berth_checkpoint_shard(crcs->checkpoint, i, &shard);
        r->names[i] = berthi_text_of(shard.file);
    }
    return ranking_sort(r, error);
}

/* Numbers in the ranking count from the shard's first tensor. */
static berth_status
rank_tensors(const berthi_crcs *crcs, const berth_shard *shard, ranking *r,
             berth_error *error)
{
    berth_status status = ranking_init(r, crcs->context, shard->tensor_count, error);

    if (status != BERTH_OK)
        return status;
    for (uint64_t i = 0; i < r->count; i++) {
        berth_tensor tensor;

        berth_checkpoint_tensor(crcs->checkpoint, shard->first_tensor + i, &tensor);
        r->names[i] = (berthi_text){ tensor.name, tensor.name_length };
    }
    return ranking_sort(r, error);
}

/* ------------------------------------------------------------------ reading */

/*
 * Two merges: the manifest's shards along `shards`, within a shard its tensors
 * along `tensors`. Each side's names are unique and ascend.
 */
typedef struct walk {
    berthi_crcs *crcs;
    berthi_manifest_place place;
    berth_finding_function report;
    void *user;
    bool is_source; /* the manifest is another checkpoint's, and says less */
    ranking shards;
    bool has_shard; /* the manifest's current shard is the checkpoint's, too: */
    const char *shard_path;
    uint64_t first_tensor;
    ranking tensors;
} walk;

/* The path of a shard for messages. */
static const char *
find_path(const berthi_crcs *crcs, uint32_t shard)
{
    const berthi_file *file;

    if (berthi_checkpoint_file(crcs->checkpoint, shard, &file, NULL) != BERTH_OK)
        return NULL;
    return file->path;
}

static void
report_entry(const walk *w, const berthi_about *about, const char *message)
{
    berth_error details;
    const berth_finding finding = { .severity = BERTH_SEVERITY_ERROR,
                                    .details = &details,
                                    .name = about->tensor,
                                    .name_length = about->tensor_length };

    berthi_fail(&details, BERTH_REASON_MANIFEST_ENTRY, about, "%s", message);
    w->report(w->user, &finding);
}

static void
report_tensor(const walk *w, const berthi_text *tensor, const char *message)
{
    report_entry(w,
                 &(berthi_about){ .file = w->shard_path,
                                  .tensor = tensor->bytes,
                                  .tensor_length = (size_t)tensor->length },
                 message);
}

/* The shard at the place is the checkpoint's alone. */
static void
report_missing_shard(walk *w)
{
    const uint32_t number = w->shards.order[w->shards.next++];

    report_entry(w, &(berthi_about){ .file = find_path(w->crcs, number) },
                 "the manifest has no entry for this file");
}

static void
report_missing_tensor(walk *w)
{
    const uint32_t number = w->tensors.order[w->tensors.next++];

    if (!w->is_source)
        report_tensor(w, &w->tensors.names[number],
                      "the manifest has no entry for this tensor");
}

static void
report_unknown_shard(const walk *w, const berthi_text *file)
{
    char shown[BERTHI_SHOWN_CAPACITY];
    char message[BERTH_MESSAGE_CAPACITY];

    snprintf(message, sizeof message, "the checkpoint has no file \"%s\"",
             berthi_findings_shown(file->bytes, file->length, shown));
    report_entry(w, &(berthi_about){ .file = w->place.path }, message);
}

/* The manifest's shard has been read to its end. */
static void
finish_shard(walk *w)
{
    while (w->has_shard && w->tensors.next < w->tensors.count)
        report_missing_tensor(w);
    ranking_fini(&w->tensors);
    w->has_shard = false;
}

/* The manifest's shard, of so many bytes, is the checkpoint's `number`. */
static berth_status
begin_shard(walk *w, uint32_t number, uint64_t bytes, berth_error *error)
{
    berth_shard shard;

    berth_checkpoint_shard(w->crcs->checkpoint, number, &shard);
    w->has_shard = true;
    w->shard_path = find_path(w->crcs, number);
    w->first_tensor = shard.first_tensor;
    if (shard.file_bytes != bytes)
        report_entry(w,
                     &(berthi_about){ .file = w->shard_path,
                                      .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                             | BERTH_HAS_BYTES,
                                      .expected = bytes,
                                      .actual = shard.file_bytes },
                     "the manifest is about a file of another size");
    return rank_tensors(w->crcs, &shard, &w->tensors, error);
}

/* *out_number: which of the checkpoint's it is; UINT32_MAX: none. */
static berth_status
see_file(walk *w, const berthi_text *file, uint64_t bytes, uint32_t *out_number,
         berth_error *error)
{
    *out_number = UINT32_MAX;
    finish_shard(w);
    while (ranking_compare(&w->shards, file) < 0)
        report_missing_shard(w);
    if (ranking_compare(&w->shards, file) != 0) {
        report_unknown_shard(w, file);
        return BERTH_OK;
    }
    *out_number = w->shards.order[w->shards.next++];
    return begin_shard(w, *out_number, bytes, error);
}

static berth_status
see_shard(void *user, const berthi_manifest_shard *entry, berth_error *error)
{
    const berthi_text file = { entry->file, entry->file_length };
    walk *const w = user;
    uint32_t number;
    const berth_status status = see_file(w, &file, entry->bytes, &number, error);

    if (number == UINT32_MAX)
        return status;
    atomic_store(&w->crcs->headers[number], entry->header_crc32);
    w->crcs->has_header[number] = true;
    return status;
}

static berth_status
see_source(void *user, const berthi_manifest_source *entry, berth_error *error)
{
    const berthi_text file = { entry->file, entry->file_length };
    uint32_t number;

    return see_file(user, &file, entry->bytes, &number, error);
}

static berth_status
see_tensor(void *user, const berthi_manifest_tensor *entry, berth_error *error)
{
    const berthi_text tensor = { entry->name, entry->name_length };
    walk *const w = user;
    uint64_t number;

    (void)error;
    if (!w->has_shard)
        return BERTH_OK;
    while (ranking_compare(&w->tensors, &tensor) < 0)
        report_missing_tensor(w);
    if (ranking_compare(&w->tensors, &tensor) != 0) {
        report_tensor(w, &tensor, "the manifest has a tensor that this file lacks");
        return BERTH_OK;
    }
    number = w->first_tensor + w->tensors.order[w->tensors.next++];
    atomic_store(&w->crcs->tensors[number], entry->crc32);
    w->crcs->has_tensor[number] = true;
    return BERTH_OK;
}

static berth_status
read_manifest(berthi_crcs *crcs, walk *w, const berthi_manifest_visitor *visitor,
              berth_error *error)
{
    berth_status status;

    crcs->has_tensor = berthi_memory_zalloc(crcs->context, BERTHI_PURPOSE_TENSORS,
                                            crcs->tensor_count
                                                * sizeof *crcs->has_tensor);
    crcs->has_header = berthi_memory_zalloc(crcs->context, BERTHI_PURPOSE_TENSORS,
                                            crcs->shard_count
                                                * sizeof *crcs->has_header);
    if (crcs->has_tensor == NULL || crcs->has_header == NULL)
        return berthi_fail_memory(error, "the table of digests");
    status = rank_shards(crcs, &w->shards, error);
    if (status == BERTH_OK)
        status = berthi_manifest_read(crcs->context, w->place, visitor, error);
    if (status == BERTH_OK) {
        finish_shard(w);
        while (w->shards.next < w->shards.count)
            report_missing_shard(w);
    }
    ranking_fini(&w->tensors);
    ranking_fini(&w->shards);
    return status;
}

/* Of a file that was named by itself its own, where there is one; NULL: out of memory. */
static const char *
usual_name(const berthi_location *location, berthi_arena *texts)
{
    berthi_sys_stat found;
    const char *own;

    if (location->file == NULL)
        return BERTHI_MANIFEST_NAME;
    own = berthi_arena_format(texts, "%s." BERTHI_MANIFEST_NAME, location->file);
    if (own == NULL
        || berthi_sys_stat_at(location->folder, own, BERTHI_SYS_FOLLOW, &found) == 0)
        return own;
    return BERTHI_MANIFEST_NAME;
}

/* Without a name or path when memory is out. */
static berthi_manifest_place
usual_place(const berthi_location *location, berthi_arena *texts)
{
    berthi_manifest_place place = { .folder = location->folder,
                                    .name = usual_name(location, texts),
                                    .links = location->links };

    if (place.name == NULL)
        return place;
    place.path = berthi_path_join(texts, location->folder_path, place.name);
    /* Links may lead to the blobs of the repository, but not out of it. */
    if (place.links == BERTHI_FILE_INSIDE && location->home >= 0) {
        place.folder = location->home;
        place.name = berthi_path_join(texts, location->inside_home, place.name);
    }
    return place;
}

berth_status
berthi_crcs_find_manifest(const berth_checkpoint *checkpoint, const char *given,
                          berthi_arena *texts, berthi_manifest_place *out,
                          berth_error *error)
{
    const berthi_location *const location = &checkpoint->location;

    if (given != NULL) {
        *out = berthi_manifest_at(berthi_arena_text(texts, given, strlen(given)));
    } else {
        *out = usual_place(location, texts);
    }
    return out->path != NULL && out->name != NULL
               ? BERTH_OK
               : berthi_fail_memory(error, "the manifest's path");
}

berth_status
berthi_crcs_read(berthi_crcs *crcs, berthi_manifest_place place,
                 berth_finding_function report, void *user, berth_error *error)
{
    walk w = { .crcs = crcs, .place = place, .report = report, .user = user };
    const berthi_manifest_visitor visitor = { .user = &w, .shard = see_shard,
                                              .tensor = see_tensor };

    return read_manifest(crcs, &w, &visitor, error);
}

berth_status
berthi_crcs_read_sources(berthi_crcs *crcs, berthi_manifest_place place,
                         berth_finding_function report, void *user, berth_error *error)
{
    walk w = { .crcs = crcs, .place = place, .report = report, .user = user,
               .is_source = true };
    const berthi_manifest_visitor visitor = { .user = &w, .source = see_source,
                                              .source_tensor = see_tensor };

    return read_manifest(crcs, &w, &visitor, error);
}

/* ------------------------------------------------------------------ writing */

static void
write_tensor(const berthi_crcs *crcs, uint64_t number, const berthi_text *found,
             berthi_manifest_writer *writer)
{
    const berthi_manifest_tensor tensor = { .name = found->bytes,
                                            .name_length = found->length,
                                            .crc32 = atomic_load(&crcs->tensors[number]) };

    berthi_manifest_add_tensor(writer, &tensor);
}

static berth_status
write_shard(const berthi_crcs *crcs, uint32_t number, berthi_manifest_writer *writer,
            berth_error *error)
{
    berthi_manifest_shard entry;
    berth_shard shard;
    ranking tensors;
    berth_status status;

    berth_checkpoint_shard(crcs->checkpoint, number, &shard);
    entry.file = shard.file;
    entry.file_length = strlen(shard.file);
    if (berthi_utf8_check((const unsigned char *)entry.file, (size_t)entry.file_length)
        < entry.file_length)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED,
                           &(berthi_about){ .file = find_path(crcs, number) },
                           "its name is not UTF-8, so no manifest can hold it");
    status = rank_tensors(crcs, &shard, &tensors, error);
    if (status != BERTH_OK)
        return status;
    entry.bytes = shard.file_bytes;
    entry.header_crc32 = atomic_load(&crcs->headers[number]);
    berthi_manifest_add_shard(writer, &entry);
    for (uint64_t i = 0; i < tensors.count; i++)
        write_tensor(crcs, shard.first_tensor + tensors.order[i],
                     &tensors.names[tensors.order[i]], writer);
    ranking_fini(&tensors);
    return BERTH_OK;
}

berth_status
berthi_crcs_write(const berthi_crcs *crcs,
                  berth_status (*put)(void *user, const char *bytes, uint64_t size,
                                      uint64_t offset, berth_error *error),
                  void *user, uint64_t *out_bytes, berth_error *error)
{
    berthi_manifest_writer *writer;
    ranking shards;
    berth_status status = rank_shards(crcs, &shards, error);

    if (status != BERTH_OK)
        return status;
    writer = berthi_memory_alloc(crcs->context, BERTHI_PURPOSE_DOCUMENT, sizeof *writer);
    if (writer == NULL) {
        status = berthi_fail_memory(error, "writing the manifest");
        goto done;
    }
    berthi_manifest_begin(writer, put, user, error);
    for (uint64_t i = 0; i < shards.count && status == BERTH_OK; i++)
        status = write_shard(crcs, shards.order[i], writer, error);
    if (status == BERTH_OK)
        status = berthi_manifest_end(writer, out_bytes);

done:
    berthi_memory_free(crcs->context, BERTHI_PURPOSE_DOCUMENT, writer, sizeof *writer);
    ranking_fini(&shards);
    return status;
}
