/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_qlora.c - QLoRA with paged states of 8 bits, for the demo and for PEFT.
 *
 *     make_qlora FOLDER [STEPS]
 *
 * FOLDER/base                the model that is adapted, a Llama of BF16
 * FOLDER/adapter             its adapters after STEPS (200) steps, as PEFT keeps them
 * FOLDER/logits.safetensors  what the model computes with them, its linear layers of NF4,
 *                            of the text that it has learnt
 * FOLDER/loss.txt            a line a step, and one behind the last: its number; the loss of
 *                            this run; that of one with states of 32 bits
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/tuned.h"
#include "tools/llama_file.h"

static void
write_losses(const char *path, const tuned *small, const tuned *full)
{
    FILE *const file = fopen(path, "w");

    for (uint32_t i = 0; file != NULL && i <= small->steps; i++)
        fprintf(file, "%u %.6f %.6f\n", i, small->losses[i], full->losses[i]);
    if (file == NULL || fclose(file) != 0) {
        fprintf(stderr, "make_qlora: cannot write %s\n", path);
        exit(1);
    }
}

static void
write_logits(const char *path, berth_context *context, const char *base, const tuned *run)
{
    const uint32_t count = TUNED_TOKENS + 1;
    berth_error error;
    adapted m;

    adapt_open(&m, context, base, TUNED_RANK, TUNED_ALPHA, count, 1);
    memcpy(m.learned, run->learned, m.elements * sizeof *m.learned);
    adapt_forward(&m, tuned_text, count);
    if (llama_logits_write(path, true, tuned_text, count, m.logits, m.config.vocab, &error)
        != BERTH_OK) {
        fprintf(stderr, "make_qlora: %s\n", error.message);
        exit(1);
    }
    adapt_close(&m);
}

int
main(int argc, char **argv)
{
    const char *const folder = argc > 1 ? argv[1] : "";
    const uint32_t steps = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 200;
    const char *const base = fixture_format("%s/base", folder);
    const tuned_setup paged = { .base = base, .devices = "sim:64MiB", .bits = 8,
                                .place = BERTH_STATES_HOST, .seed = 1 };
    const tuned_setup plain = { .base = base, .bits = 32, .place = BERTH_STATES_DEVICE,
                                .seed = 1 };
    berth_context *context;
    tuned small, full;

    if (argc < 2 || steps == 0 || berth_context_create(NULL, &context, NULL) != BERTH_OK) {
        fprintf(stderr, "make_qlora: give a folder, then how many steps\n");
        return 2;
    }
    adapt_write_base(context, base);
    tuned_run(&small, context, &paged, steps, fixture_format("%s/adapter", folder));
    tuned_run(&full, context, &plain, steps, NULL);
    write_losses(fixture_format("%s/loss.txt", folder), &small, &full);
    write_logits(fixture_format("%s/logits.safetensors", folder), context, base, &small);
    tuned_free(&small);
    tuned_free(&full);
    berth_context_destroy(context);
    return 0;
}
