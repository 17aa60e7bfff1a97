/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_checkpoint_config.c - config.json is that of the opening, and files beside the weights
 * are found where they lay then: whatever stands under their paths later.
 */
#define _XOPEN_SOURCE 700

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/opened.h"
#include "tests/t.h"

#define OLD "{\"model_type\": \"old\", \"hidden_size\": 64}"
#define MANIFEST "/berth.manifest.json"
#define NEW "{\"model_type\": \"new\", \"hidden_size\": 8192}"

static const char *
make_model(const char *folder, const char *config)
{
    fixture_model(folder, "[model.safetensors]\nBF16 64x64 model.layers.0.a.weight\n");
    if (config != NULL)
        fixture_text(fixture_format("%s/config.json", folder), config);
    fixture_text(fixture_format("%s/tokenizer.json", folder), "{\"a\": 1}");
    return folder;
}

/* The model's type as a caller asks for it. */
static void
check_type(const opened *o, const char *type)
{
    berth_config *config = NULL;
    const char *found = "";
    berth_error error;

    if (!CHECK_EQ(berth_config_open(o->context, o->checkpoint, &config, &error), BERTH_OK))
        T_NOTE("%s", error.message);
    CHECK_EQ(berth_config_string(config, "model_type", &found, NULL),
             config != NULL ? BERTH_OK : BERTH_EINVAL);
    CHECK_STR(found, type);
    berth_config_close(config);
}

/* What is written as the new model's config.json, beside its tokenizer. */
static void
check_converted(const opened *o, const char *output, const char *words)
{
    berth_convert_options options;
    berth_error error;
    berth_job *job = NULL;
    char *text;
    size_t length;

    berth_convert_options_init(&options);
    options.type = BERTH_ENCODING_NF4;
    options.output = output;
    CHECK_EQ(berth_convert_start(o->context, o->checkpoint, &options, &job, &error), BERTH_OK);
    if (job != NULL && !CHECK_EQ(berth_job_finish(job, &error), BERTH_OK))
        T_NOTE("%s: %s", error.file, error.message);
    T_REQUIRE(error.status == BERTH_OK);
    text = fixture_read(fixture_format("%s/config.json", output), &length);
    T_REQUIRE(text != NULL);
    text = realloc(text, length + 1);
    text[length] = '\0';
    CHECK_CONTAINS(text, words);
    free(text);
    CHECK_EQ(fixture_size(fixture_format("%s/tokenizer.json", output)), strlen("{\"a\": 1}"));
}

static void
check_plan(const opened *o)
{
    berth_plan_options options;
    berth_plan *plan = NULL;

    berth_plan_options_init(&options);
    options.max_memory = "cpu=1GiB";
    CHECK_EQ(berth_plan_create(o->context, o->checkpoint, &options, &plan, NULL), BERTH_OK);
    berth_plan_destroy(plan);
}

/* A folder that is synchronized, and gets the file of another revision first. */
static void
test_replaced(void)
{
    const char *const folder = make_model(fixture_folder(), OLD);
    const char *const config = fixture_format("%s/config.json", folder);
    opened o;

    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    fixture_text(config, NEW);
    check_type(&o, "old");
    check_plan(&o);
    check_converted(&o, fixture_format("%s/out", fixture_folder()), "\"old\"");
    fixture_remove(config);
    check_type(&o, "old");
    check_converted(&o, fixture_format("%s/out", fixture_folder()), "\"old\"");
    opened_end(&o);
}

/* One that came later is not the model's. */
static void
test_added(void)
{
    const char *const folder = make_model(fixture_folder(), NULL);
    berth_config *config = NULL;
    berth_error error;
    opened o;

    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    fixture_text(fixture_format("%s/config.json", folder), NEW);
    CHECK_EQ(berth_config_open(o.context, o.checkpoint, &config, &error), BERTH_ENOENT);
    CHECK_CONTAINS(error.file, "/config.json");
    CHECK(config == NULL);
    opened_end(&o);
}

/* Another folder in its place, as of a revision that is switched by renaming. */
static void
test_moved_away(void)
{
    const char *const above = fixture_folder();
    const char *const folder = fixture_format("%s/model", above);
    opened o;

    fixture_make_folder(folder);
    make_model(folder, OLD);
    opened_begin(&o, folder, NULL);
    T_REQUIRE(o.checkpoint != NULL);
    T_REQUIRE(rename(folder, fixture_format("%s/before", above)) == 0);
    fixture_make_folder(folder);
    fixture_text(fixture_format("%s/config.json", folder), NEW);
    fixture_text(fixture_format("%s/tokenizer.json", folder), "another one");
    check_type(&o, "old");
    check_converted(&o, fixture_format("%s/out", fixture_folder()), "\"old\"");
    opened_end(&o);
}

static void
test_relative(void)
{
    const char *const folder = fixture_folder();
    const char *const output = fixture_folder();
    const char *const elsewhere = fixture_folder();
    char before[4096];

    fixture_make_folder(fixture_format("%s/m", folder));
    make_model(fixture_format("%s/m", folder), OLD);
    T_REQUIRE(getcwd(before, sizeof before) != NULL);
    for (int i = 0; i < 2; i++) {
        opened o;

        T_REQUIRE(chdir(folder) == 0);
        opened_begin(&o, i == 0 ? "m" : "m/model.safetensors", NULL);
        T_REQUIRE(o.checkpoint != NULL);
        T_REQUIRE(chdir(elsewhere) == 0);
        check_type(&o, "old");
        check_plan(&o);
        check_converted(&o, fixture_format("%s/out%d", output, i), "\"old\"");
        opened_end(&o);
    }
    T_REQUIRE(chdir(before) == 0);
}

static berth_status
verify(const opened *o, int32_t mode)
{
    berth_verify_options options;
    berth_job *job = NULL;

    berth_verify_options_init(&options);
    options.manifest_mode = mode;
    CHECK_EQ(berth_verify_start(o->context, o->checkpoint, &options, &job, NULL), BERTH_OK);
    return job != NULL ? berth_job_finish(job, NULL) : BERTH_EINTERNAL;
}

/* Loads, held against the manifest beside the model where there is one. */
static berth_status
load(const opened *o, berth_load_report *report)
{
    berth_plan_options planning;
    berth_load_options options;
    berth_model *model = NULL;
    berth_plan *plan = NULL;
    berth_job *job = NULL;
    berth_status status;

    berth_plan_options_init(&planning);
    planning.max_memory = "cpu=1GiB";
    CHECK_EQ(berth_plan_create(o->context, o->checkpoint, &planning, &plan, NULL), BERTH_OK);
    berth_load_options_init(&options);
    options.report = report;
    status = berth_load_start(o->context, o->checkpoint, plan, &options, &job, NULL);
    if (status == BERTH_OK)
        status = berth_load_finish(job, &model, NULL);
    berth_model_destroy(model);
    berth_plan_destroy(plan);
    return status;
}

/* A manifest is the one beside the model, as it was found: another one would say nothing. */
static void
test_manifest(void)
{
    const char *const folder = fixture_folder();
    const char *const elsewhere = fixture_folder();
    berth_load_report report;
    char before[4096];
    opened o;

    fixture_make_folder(fixture_format("%s/m", folder));
    make_model(fixture_format("%s/m", folder), OLD);
    T_REQUIRE(getcwd(before, sizeof before) != NULL && chdir(folder) == 0);
    opened_begin(&o, "m", NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(verify(&o, BERTH_MANIFEST_WRITE), BERTH_OK);
    T_REQUIRE(chdir(elsewhere) == 0);
    CHECK_EQ(verify(&o, BERTH_MANIFEST_CHECK), BERTH_OK);
    CHECK_EQ(load(&o, &report), BERTH_OK);
    CHECK_GT(report.verified_bytes, 0);
    fixture_make_folder(fixture_format("%s/m", elsewhere));
    fixture_text(fixture_format("%s/m/berth.manifest.json", elsewhere), "{}");
    CHECK_EQ(verify(&o, BERTH_MANIFEST_CHECK), BERTH_OK);
    T_REQUIRE(chdir(before) == 0);
    opened_end(&o);
}

/* One is written beside the model that was opened, and nowhere else. */
static void
test_manifest_is_written(void)
{
    const char *const folder = fixture_folder();
    const char *const elsewhere = fixture_folder();
    char before[4096];
    opened o;

    fixture_make_folder(fixture_format("%s/m", folder));
    make_model(fixture_format("%s/m", folder), OLD);
    T_REQUIRE(getcwd(before, sizeof before) != NULL && chdir(folder) == 0);
    opened_begin(&o, "m", NULL);
    T_REQUIRE(o.checkpoint != NULL);
    T_REQUIRE(chdir(elsewhere) == 0);
    CHECK_EQ(verify(&o, BERTH_MANIFEST_WRITE), BERTH_OK);
    CHECK_EQ(access(fixture_format("%s/m" MANIFEST, folder), F_OK), 0);
    fixture_make_folder(fixture_format("%s/m", elsewhere));
    CHECK_EQ(verify(&o, BERTH_MANIFEST_WRITE), BERTH_EINVAL);
    fixture_remove(fixture_format("%s/m" MANIFEST, folder));
    CHECK_EQ(verify(&o, BERTH_MANIFEST_WRITE), BERTH_OK);
    CHECK_EQ(access(fixture_format("%s/m" MANIFEST, folder), F_OK), 0);
    CHECK_EQ(access(fixture_format("%s/m" MANIFEST, elsewhere), F_OK), -1);
    CHECK_EQ(verify(&o, BERTH_MANIFEST_CHECK), BERTH_OK);
    T_REQUIRE(chdir(before) == 0);
    opened_end(&o);
}

/* Another name makes no other file of it; another file under its own name does. */
static void
check_weights(bool is_inside)
{
    const char *const folder = fixture_folder();
    const char *const elsewhere = fixture_folder();
    const char *const weights = fixture_format("%s/m/model.safetensors", folder);
    berth_open_options options;
    opened o;

    fixture_make_folder(fixture_format("%s/m", folder));
    fixture_make_folder(fixture_format("%s/m", elsewhere));
    make_model(fixture_format("%s/m", folder), OLD);
    make_model(fixture_format("%s/m", elsewhere), OLD);
    berth_open_options_init(&options);
    options.inside_only = is_inside;
    T_REQUIRE(chdir(folder) == 0);
    opened_begin(&o, "m", &options);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(verify(&o, BERTH_MANIFEST_WRITE), BERTH_OK);
    CHECK_EQ(link(weights, fixture_format("%s/other", folder)), 0);
    T_REQUIRE(chdir(elsewhere) == 0);
    CHECK_EQ(verify(&o, BERTH_MANIFEST_CHECK), BERTH_OK);
    T_REQUIRE(chdir("..") == 0);
    CHECK_EQ(rename(fixture_format("%s/m/model.safetensors", elsewhere), weights), 0);
    CHECK_EQ(verify(&o, BERTH_MANIFEST_CHECK), BERTH_EIO);
    opened_end(&o);
}

static void
test_weights_are_replaced(void)
{
    char before[4096];

    T_REQUIRE(getcwd(before, sizeof before) != NULL);
    check_weights(false);
    check_weights(true);
    T_REQUIRE(chdir(before) == 0);
}

/* Beside a file that was named it need not be good, and is not good later either. */
static void
test_not_read(void)
{
    const char *const folder = make_model(fixture_folder(), NULL);
    const char *const config = fixture_format("%s/config.json", folder);
    berth_config *value = NULL;
    berth_error error;
    opened o;

    fixture_link("nowhere", config);
    opened_begin(&o, fixture_format("%s/model.safetensors", folder), NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(opened_count(&o, BERTH_REASON_MISSING_BLOB), 1);
    fixture_remove(config);
    fixture_text(config, NEW);
    CHECK_EQ(berth_config_open(o.context, o.checkpoint, &value, &error), BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_CONFIG_JSON);
    CHECK_CONTAINS(error.message, "could not be read when the model was opened");
    CHECK(value == NULL);
    opened_end(&o);
    fixture_text(config, "{\"model_type\": 3}");
    opened_begin(&o, fixture_format("%s/model.safetensors", folder), NULL);
    T_REQUIRE(o.checkpoint != NULL);
    CHECK_EQ(opened_count(&o, BERTH_REASON_CONFIG_JSON), 1);
    CHECK_EQ(berth_config_open(o.context, o.checkpoint, &value, &error), BERTH_OK);
    CHECK_EQ(berth_config_kind_of(value, "model_type"), BERTH_CONFIG_NUMBER);
    berth_config_close(value);
    opened_end(&o);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_replaced);
    T_RUN(test_added);
    T_RUN(test_moved_away);
    T_RUN(test_relative);
    T_RUN(test_manifest);
    T_RUN(test_manifest_is_written);
    T_RUN(test_weights_are_replaced);
    T_RUN(test_not_read);
    T_MAIN_END;
}
