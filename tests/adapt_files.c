/* SPDX-License-Identifier: Apache-2.0 */
/* adapt_files.c - the model that is adapted, and its adapters as files; see adapt.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/layout.h"
#include "loader/writer.h"
#include "tests/adapt.h"
#include "tests/fixture.h"

#define WEIGHTS "adapter_model.safetensors"
#define CONFIG "adapter_config.json"

static void
die(const char *what, const char *which)
{
    fprintf(stderr, "adapt: %s: %s\n", which, what);
    exit(1);
}

/* --------------------------------------------------------------------------- base */

void
adapt_write_base(berth_context *context, const char *folder)
{
    const char *const file = fixture_format("%s/model.safetensors", folder);
    berth_checkpoint *checkpoint;
    berth_tensor norm;
    size_t length;
    uint8_t *bytes;

    fixture_make_folder(folder);
    fixture_copy(ADAPT_MODEL "/config.json", fixture_format("%s/config.json", folder));
    fixture_copy(ADAPT_MODEL "/model.safetensors", file);
    if (berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL) != BERTH_OK
        || berth_checkpoint_tensor(
               checkpoint,
               berth_checkpoint_find(checkpoint, "model.norm.weight", strlen("model.norm.weight")),
               &norm)
               != BERTH_OK
        || norm.dtype != BERTH_BF16)
        die("has no final norm of BF16", folder);
    berth_checkpoint_close(checkpoint);
    bytes = fixture_read(file, &length);
    for (uint64_t i = 0; i < norm.elements; i++) {
        uint16_t value;

        memcpy(&value, bytes + norm.file_offset + 2 * i, sizeof value);
        value = (uint16_t)(value + (3u << 7)); /* the exponent */
        memcpy(bytes + norm.file_offset + 2 * i, &value, sizeof value);
    }
    fixture_write(file, bytes, length);
    free(bytes);
}

/* ----------------------------------------------------------------------- adapters */

typedef struct writing {
    berthi_writer *writer;
    berthi_writer_file *file;
} writing;

static berth_status
put(void *user, const char *bytes, uint64_t size, uint64_t offset, berth_error *error)
{
    const writing *const w = user;

    return berthi_writer_write(w->writer, w->file, bytes, size, offset, error);
}

/* Header and values, in the canonical order. */
static berth_status
write_weights(const adapted *m, writing *w, berth_error *error)
{
    const berthi_layout_options options = { .pairs = berthi_layout_format, .pair_count = 1 };
    berthi_layout_tensor *const tensors = calloc(m->parameter_count, sizeof *tensors);
    berthi_layout *layout = NULL;
    berthi_layout_shard shard;
    berth_status status;
    uint64_t begin;

    for (uint32_t i = 0; i < m->parameter_count; i++)
        tensors[i] = (berthi_layout_tensor){
            .name = m->parameters[i].name,
            .name_length = (uint32_t)strlen(m->parameters[i].name),
            .shape = m->parameters[i].shape,
            .rank = 2,
            .bytes = m->parameters[i].elements * sizeof(float),
            .dtype = BERTH_F32,
        };
    status = berthi_layout_create(m->context, tensors, m->parameter_count, &options, &layout,
                                  error);
    if (status != BERTH_OK)
        return status;
    shard = berthi_layout_shard_at(layout, 0);
    begin = 8 + shard.header_bytes;
    status = berthi_writer_create(w->writer, WEIGHTS, begin + shard.payload_bytes, &w->file,
                                  error);
    if (status == BERTH_OK)
        status = berthi_layout_write_header(layout, 0, put, w, error);
    for (uint32_t i = 0; i < m->parameter_count && status == BERTH_OK; i++)
        status = berthi_writer_write(w->writer, w->file, m->learned + m->parameters[i].first,
                                     tensors[i].bytes, begin + tensors[i].offset, error);
    if (status == BERTH_OK)
        status = berthi_writer_finish(w->writer, w->file, begin + shard.payload_bytes, NULL, 0,
                                      error);
    berthi_layout_destroy(layout);
    free(tensors);
    return status;
}

static const char *
config_of(const adapted *m, const char *base)
{
    const char *modules = "";

    for (int p = 0; p < ADAPT_PROJECTIONS; p++)
        modules = fixture_format("%s%s\"%s\"", modules, p > 0 ? ", " : "",
                                 strchr(adapt_projection_names[p], '.') + 1);
    return fixture_format("{\n"
                          "  \"base_model_name_or_path\": \"%s\",\n"
                          "  \"bias\": \"none\",\n"
                          "  \"fan_in_fan_out\": false,\n"
                          "  \"inference_mode\": true,\n"
                          "  \"init_lora_weights\": true,\n"
                          "  \"lora_alpha\": %g,\n"
                          "  \"lora_dropout\": 0.0,\n"
                          "  \"modules_to_save\": null,\n"
                          "  \"peft_type\": \"LORA\",\n"
                          "  \"r\": %u,\n"
                          "  \"target_modules\": [%s],\n"
                          "  \"task_type\": \"CAUSAL_LM\",\n"
                          "  \"use_rslora\": false\n"
                          "}\n",
                          base, (double)m->alpha, m->rank, modules);
}

static berth_status
write_config(const adapted *m, writing *w, const char *base, berth_error *error)
{
    const char *const text = config_of(m, base);
    const uint64_t length = strlen(text);
    berth_status status =
        berthi_writer_create(w->writer, CONFIG, length, &w->file, error);

    if (status == BERTH_OK)
        status = put(w, text, length, 0, error);
    if (status == BERTH_OK)
        status = berthi_writer_finish(w->writer, w->file, length, NULL, 0, error);
    return status;
}

void
adapt_write(const adapted *m, const char *folder, const char *base)
{
    const berthi_writer_options options = { .job = "adapters\n", .overwrite = true };
    writing w = { .writer = NULL };
    berth_error error = { .status = BERTH_OK };
    berth_status status =
        berthi_writer_open(m->context, folder, &options, &w.writer, &error);

    if (strpbrk(base, "\"\\") != NULL)
        die("has to be written as it is", base);
    if (status == BERTH_OK)
        status = write_weights(m, &w, &error);
    if (status == BERTH_OK)
        status = write_config(m, &w, base, &error);
    if (status == BERTH_OK)
        status = berthi_writer_publish(w.writer, WEIGHTS, &error);
    if (status != BERTH_OK)
        die(error.message, folder);
    berthi_writer_close(w.writer);
}

void
adapt_read(adapted *m, const char *folder)
{
    berth_checkpoint *checkpoint;
    berth_error error;

    if (berth_checkpoint_open(m->context, folder, NULL, &checkpoint, &error) != BERTH_OK)
        die(error.message, folder);
    for (uint32_t i = 0; i < m->parameter_count; i++) {
        const adapt_parameter *const p = &m->parameters[i];

        if (berth_checkpoint_read(checkpoint,
                                  berth_checkpoint_find(checkpoint, p->name, strlen(p->name)),
                                  0, p->shape[0], m->learned + p->first,
                                  p->elements * sizeof(float), &error)
            != BERTH_OK)
            die(error.message, p->name);
    }
    berth_checkpoint_close(checkpoint);
}
