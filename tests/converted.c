/* SPDX-License-Identifier: Apache-2.0 */
/* converted.c - conversions in tests; see converted.h. */
#define _DEFAULT_SOURCE

#include "tests/converted.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/device.h"
#include "tests/fixture.h"
#include "tests/t.h"

static void
keep_finding(void *user, const berth_finding *finding)
{
    converted *const c = user;

    c->findings++;
    c->finding = *finding->details;
}

static void
count_line(void *user, const berth_coverage *line)
{
    converted *const c = user;

    CHECK(line->cause != NULL);
    CHECK_GT(line->tensors, 0);
    c->lines++;
}

void
converted_begin(converted *c, const char *output, int32_t type)
{
    memset(c, 0, sizeof *c);
    berth_convert_options_init(&c->options);
    c->sizes = berthi_convert_default_sizes;
    c->options.output = output;
    c->options.type = type;
    c->options.report = &c->report;
    c->options.finding = keep_finding;
    c->options.finding_user = c;
    c->options.coverage = count_line;
    c->options.coverage_user = c;
}

void
converted_shrink(converted *c, uint64_t unit_values)
{
    c->sizes.unit_values = unit_values;
    c->sizes.unit_bytes = 2 * unit_values;
    c->sizes.strip = 8 * unit_values;
    c->sizes.pool = 16 * unit_values;
    c->sizes.parcels = unit_values;
}

static berth_status
open_devices(converted *c, berth_context *context, berth_devices **out)
{
    berth_status status;

    *out = NULL;
    if (c->devices == NULL)
        return BERTH_OK;
    status = c->cuda == NULL
                 ? berth_devices_open(context, c->devices, out, &c->error)
                 : berthi_devices_open_cuda(context, c->cuda, c->devices, out, &c->error);
    c->options.devices = *out;
    return status;
}

/* What devices had of scratch, all of which has been given back. */
static uint64_t
device_peak(const berth_context *context)
{
    uint64_t peak = 0;

    for (uint32_t t = 1; t < berth_memory_tiers(context); t++) {
        berth_memory memory;

        CHECK_EQ(berth_memory_get(context, t, BERTH_MEMORY_SCRATCH, &memory), BERTH_OK);
        CHECK_EQ(memory.current_bytes, 0);
        peak += memory.peak_bytes;
    }
    return peak;
}

berth_status
converted_run_in(converted *c, berth_context *context, const char *path)
{
    berth_checkpoint *checkpoint = NULL;
    berth_devices *devices = NULL;
    berth_job *job = NULL;
    berth_status status =
        berth_checkpoint_open(context, path, NULL, &checkpoint, &c->error);

    c->lines = 0;
    c->findings = 0;
    if (status == BERTH_OK)
        status = open_devices(c, context, &devices);
    if (status == BERTH_OK) {
        status = berthi_convert_start(context, checkpoint, &c->options, &c->sizes, &job,
                                      &c->error);
        CHECK_EQ(status == BERTH_OK, job != NULL);
    }
    if (status == BERTH_OK)
        status = berth_job_finish(job, &c->error);
    if (devices != NULL) {
        berth_devices_close(devices);
        c->options.devices = NULL;
        c->device_peak = device_peak(context);
    }
    berth_checkpoint_close(checkpoint);
    CHECK_EQ(c->error.status, status);
    return status;
}

static void
read_log(void *user, int32_t level, const char *line)
{
    converted *const c = user;
    uint32_t shard;

    (void)level;
    c->moves += strstr(line, "is moved: its header") != NULL;
    c->redos += strstr(line, "converted once more") != NULL;
    if (strstr(line, "is copied: its parts") != NULL) {
        c->copies++;
        if (CHECK_EQ(sscanf(line, "shard %u is copied", &shard), 1))
            c->copied |= UINT32_C(1) << (shard & 31);
    }
    c->measured += strstr(line, "its weights are measured") != NULL;
    c->kept += strstr(line, "were kept for their places") != NULL;
}

berth_status
converted_run(converted *c, const char *path)
{
    const int fds = fixture_open_fds();
    berth_context_options options;
    berth_memory_summary memory;
    berth_context *context;
    berth_status status;

    berth_context_options_init(&options);
    options.log = read_log;
    options.log_user = c;
    status = berth_context_create(&options, &context, &c->error);
    if (status != BERTH_OK)
        return status;
    status = converted_run_in(c, context, path);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    c->peak = memory.peak_bytes;
    berth_context_destroy(context);
    CHECK_EQ(fixture_open_fds(), fds);
    if (status == BERTH_OK && !c->options.dry_run && !c->is_bare)
        CHECK(converted_has_sources(c->options.output, path));
    return status;
}

/* ------------------------------------------------------------------ comparing */

bool
converted_is_same(const char *folder, const char *other)
{
    DIR *const stream = opendir(folder);
    bool is_same = CHECK(stream != NULL)
                   && CHECK_EQ(fixture_count(folder), fixture_count(other));

    if (stream == NULL)
        return false;
    for (const struct dirent *entry = readdir(stream); entry != NULL && is_same;
         entry = readdir(stream)) {
        char a[4096];
        char b[4096];
        struct stat state;

        if (entry->d_name[0] == '.' && strchr("./", entry->d_name[1]) != NULL)
            continue;
        snprintf(a, sizeof a, "%s/%s", folder, entry->d_name);
        snprintf(b, sizeof b, "%s/%s", other, entry->d_name);
        is_same = CHECK_EQ(stat(b, &state), 0) && CHECK(fixture_is_same_file(a, b));
        if (!is_same)
            T_NOTE("%s is another", entry->d_name);
    }
    closedir(stream);
    return is_same;
}

/* Every file of `model` is in `folder`, too; nothing is said about others. */
static bool
holds(const char *folder, const char *model)
{
    DIR *const stream = model != NULL ? opendir(model) : NULL;
    bool is_there = stream != NULL;

    while (is_there) {
        const struct dirent *const entry = readdir(stream);
        char a[4096];
        char b[4096];

        if (entry == NULL)
            break;
        if (entry->d_type == DT_DIR)
            continue;
        snprintf(a, sizeof a, "%s/%s", model, entry->d_name);
        snprintf(b, sizeof b, "%s/%s", folder, entry->d_name);
        is_there = access(b, R_OK) == 0 && fixture_is_same_file(a, b);
    }
    if (stream != NULL)
        closedir(stream);
    return is_there;
}

converted_view
converted_look(const char *folder, const char *new_model, const char *old_model)
{
    static const char *const names[] = { "model.safetensors",
                                         "model.safetensors.index.json" };
    bool has_commit = false;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[4096];

        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        has_commit = has_commit || access(path, F_OK) == 0;
    }
    if (!has_commit)
        return CONVERTED_NOTHING;
    if (holds(folder, new_model))
        return CONVERTED_NEW;
    return holds(folder, old_model) ? CONVERTED_OLD : CONVERTED_BROKEN;
}

bool
converted_has_gpu(void)
{
    berth_context *context;
    berth_devices *devices;
    berth_error error;
    berth_status status;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    status = berth_devices_open(context, "cuda:0", &devices, &error);
    if (status == BERTH_OK)
        berth_devices_close(devices);
    berth_context_destroy(context);
    return status == BERTH_OK;
}

static void
must_run(converted *c, const char *path, const char *what)
{
    if (!CHECK_EQ(converted_run(c, path), BERTH_OK))
        T_NOTE("%s, %s: %s %s", what, berth_encoding_name(c->options.type), c->error.tensor,
               c->error.message);
}

void
converted_check_device(converted *here, converted *there, const char *path)
{
    must_run(here, path, path);
    CHECK_EQ(here->report.device_memory, 0);
    must_run(there, path, there->devices);
    if (!CHECK(converted_is_same(there->options.output, here->options.output)))
        T_NOTE("%s, %s", there->devices, berth_encoding_name(there->options.type));
    CHECK_LE(there->device_peak, there->report.device_memory);
    CHECK_LE(there->peak, there->report.planned_memory + there->report.device_memory + (1 << 20));
    CHECK_EQ(there->report.quantized, here->report.quantized);
    CHECK_EQ(there->report.nonfinite_values, here->report.nonfinite_values);
}

const char *
converted_source(const char *lines)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, fixture_format("[model.safetensors]\n%s\n", lines));
    return folder;
}

bool
converted_is_verified(const char *folder)
{
    berth_verify_options options;
    berth_verify_report report;
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_job *job;
    berth_error error;
    berth_status status = berth_context_create(NULL, &context, &error);
    char manifest[4096];

    if (!CHECK_EQ(status, BERTH_OK))
        return false;
    snprintf(manifest, sizeof manifest, "%s/berth.manifest.json", folder);
    berth_verify_options_init(&options);
    options.manifest_mode = BERTH_MANIFEST_CHECK;
    options.manifest = manifest;
    options.report = &report;
    status = berth_checkpoint_open(context, folder, NULL, &checkpoint, &error);
    if (status == BERTH_OK) {
        status = berth_verify_start(context, checkpoint, &options, &job, &error);
        if (status == BERTH_OK)
            status = berth_job_finish(job, &error);
        berth_checkpoint_close(checkpoint);
    }
    if (status != BERTH_OK)
        T_NOTE("%s: %s %s", folder, error.tensor, error.message);
    berth_context_destroy(context);
    return CHECK_EQ(status, BERTH_OK);
}
