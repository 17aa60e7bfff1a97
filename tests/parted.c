/* SPDX-License-Identifier: Apache-2.0 */
/* parted.c - conversions by parts, broken off and gone on with; see parted.h. */
#define _GNU_SOURCE

#include "tests/parted.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/crash.h"
#include "tests/fixture.h"
#include "tests/t.h"

/* ----------------------------------------------------------------------- scenes */

parted_scene parted_scenes[PARTED_SCENES] = {
    { "two shards for a part", 2, 1, 4096, 4, 2, NULL },
    { "a shard for a part", 4, 1, 4096, 4, 2, NULL },
    { "one shard, lengths are told", 2, 1, 0, 1, 0, NULL },
    { "one shard, all lengths known", 2, 0, 0, 1, 0, NULL },
    { "shards on the border, lengths are told", 3, 1, 7000, 2, 0, NULL },
    { "shards on the border, all lengths known", 3, 0, 7000, 2, 0, NULL },
};

const char *parted_model;
const char *parted_old_model;
static uint32_t *shared_at; /* with children */

void
parted_begin(const parted_scene *s, converted *c, const char *output)
{
    converted_begin(c, output, BERTH_ENCODING_NF4);
    c->options.double_quant = s->double_quant;
    c->options.max_shard_bytes = s->shard_bytes;
    c->options.workers = 1;
    c->options.readers = 1;
    c->options.no_uring = 1;
    c->options.io = BERTH_IO_BUFFERED;
}

/* Weights whose states are shorter and longer than guessed. */
void
parted_make_models(void)
{
    static const float means[] = { 0.5f, 0.02f, 1.17e-25f, 0.5f, 3.3e7f, 0.1f };
    const uint64_t shape[2] = { 32, 64 };
    fixture_builder *const b = fixture_begin();
    converted c;

    shared_at = mmap(NULL, sizeof *shared_at, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared_at == MAP_FAILED)
        exit(1);
    parted_model = fixture_folder();
    for (int i = 0; i < 6; i++) {
        float values[32 * 64];

        for (int k = 0; k < 32 * 64; k++)
            values[k] = means[i] * (i % 2 == 0 ? 1 : (float)(k % 97 - 48));
        fixture_add(b, fixture_format("model.layers.%d.fc1.weight", i), "F32", 2, shape,
                    values);
    }
    fixture_add_lines(b, "F32 4 model.norm.weight\n");
    fixture_finish(b, fixture_format("%s/model.safetensors", parted_model));
    fixture_text(fixture_format("%s/config.json", parted_model), FIXTURE_CONFIG);
    for (size_t i = 0; i < PARTED_SCENES; i++) {
        parted_scenes[i].whole = fixture_format("%s/whole", fixture_folder());
        parted_begin(&parted_scenes[i], &c, parted_scenes[i].whole);
        CHECK_EQ(converted_run(&c, parted_model), BERTH_OK);
        if (!CHECK_EQ(c.report.shards, parted_scenes[i].shards))
            T_NOTE("%s", parted_scenes[i].name);
    }
    parted_old_model = fixture_format("%s/old", fixture_folder());
    converted_begin(&c, parted_old_model, BERTH_ENCODING_INT8);
    c.options.max_shard_bytes = 7000;
    CHECK_EQ(converted_run(&c, parted_model), BERTH_OK);
}

/* --------------------------------------------------------------------- commands */

berth_status
parted_run(parted_work *w, uint32_t part, bool resume, uint32_t *out_missing)
{
    converted c;
    berth_status status;

    parted_begin(w->scene, &c, w->folder);
    c.options.part = part;
    c.options.part_count = w->scene->parts;
    c.options.join = part == 0;
    c.options.overwrite = w->overwrite;
    c.options.resume = resume;
    c.is_bare = true;
    status = converted_run(&c, parted_model);
    w->error = c.error;
    w->copies += c.copies;
    *out_missing = c.report.parts_missing;
    return status;
}

berth_status
parted_run_all(parted_work *w)
{
    const uint32_t first = *w->at > 0 ? *w->at : 1;
    berth_status status = BERTH_OK;
    uint32_t missing = 1;

    for (uint32_t part = first; part <= w->scene->parts && status == BERTH_OK; part++) {
        *w->at = part;
        status = parted_run(w, part, w->resume || part == w->resumed, &missing);
    }
    if (status == BERTH_OK)
        CHECK_EQ(missing, 0);
    return status;
}

bool
parted_do(void *user)
{
    return parted_run_all(user) == BERTH_OK;
}

converted_view
parted_look(const parted_work *w)
{
    return converted_look(w->folder, w->scene->whole,
                          w->overwrite ? parted_old_model : NULL);
}

bool
parted_is_recovered(parted_work *w)
{
    const converted_view seen = parted_look(w);
    const bool has_journal =
        access(fixture_format("%s/.berth-journal.json", w->folder), F_OK) == 0;
    bool is_good = CHECK_NE(seen, CONVERTED_BROKEN)
                   && CHECK(!w->overwrite || seen != CONVERTED_NOTHING || has_journal);
    uint32_t missing;

    w->resumed = *w->at;
    /* Whoever finds a join that was begun may ask for just that. */
    if (is_good && has_journal && w->folder[strlen(w->folder) - 1] % 2 == 0)
        is_good = CHECK_EQ(parted_run(w, 0, true, &missing), BERTH_OK);
    else if (is_good && (seen != CONVERTED_NEW || has_journal))
        is_good = CHECK_EQ(parted_run_all(w), BERTH_OK);
    if (!is_good)
        T_NOTE("%s: %s %s", w->error.file, w->error.tensor, w->error.message);
    return is_good && converted_is_same(w->scene->whole, w->folder);
}

parted_work
parted_prepare(const parted_scene *s, const char *folder, bool has_old)
{
    parted_work w = {
        .scene = s, .folder = folder, .overwrite = has_old, .at = shared_at
    };

    *shared_at = 0;
    if (has_old)
        fixture_copy_folder(parted_old_model, folder);
    return w;
}

uint64_t
parted_first(const parted_scene *s, uint64_t step)
{
    if (crash_step(step) == 1)
        return 0;
    return (uint64_t)(s - parted_scenes) * step / PARTED_SCENES;
}
