/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_dequantize.c - `berth dequantize`: quantized weights as plain ones again. */
#include "tools/commands.h"
#include "tools/convert.h"

static const cli_option dequantize_options[] = {
    { "dtype", '\0', CLI_CHOICE, offsetof(convert_arguments, encoding.dtype),
      ENCODING_DTYPES, NULL, "model",
      "of the plain weights; without it, what 4-bit weights say themselves, for others "
      "config.json" },
    { "device", '\0', CLI_TEXT, offsetof(convert_arguments, device), "DEVICE", NULL, NULL,
      "what decodes, to the same bytes: cuda:0, or a simulated GPU (berth-devices(5)); "
      "without it, the processor" },
    CONVERT_OPTIONS,
};

static const cli_example dequantize_examples[] = {
    { "berth dequantize ./model-nf4 ./model-bf16 --dtype bf16",
      "plain weights that open without bitsandbytes" },
    { "berth dequantize ./model-fp8 ./model --dry-run", "how large it would be" },
    { "berth dequantize ./model-nf4 ./model --resume",
      "go on after Ctrl-C, a full disk or a crash" },
    { "berth dequantize ./model-nf4 ./model --device cuda:0",
      "decoded by a GPU, in a fixed part of its memory" },
};

static const char *const dequantize_description[] = {
    "Writes the checkpoint IN anew in the folder OUT with plain weights: bitsandbytes "
    "4-bit and 8-bit of all eras, 8-bit floats with scales or without, packed 4-bit floats. "
    "Transposed weights are turned back, quantization_config goes, of the headers' metadata only "
    "\"format\": \"pt\" is there. Everything else stays.",
    "The values are those that the quantized model computes with, rounded once; what "
    "quantizing has lost does not come back.",
    CONVERT_OUTPUT_TEXT,
    CONVERT_VERIFY_TEXT,
    "With --device a GPU decodes 4-bit and 8-bit weights of bitsandbytes, a piece at a time: it "
    "needs less than 60 MiB of its memory, whatever the model, and --dry-run says how much. "
    "Reading, second levels of double quantization, other encodings, what is cast, and writing "
    "stay with the processor. The files are the same, so --resume and other parts may name "
    "another device, or none. A GPU for which this build has no kernels is refused.",
    CONVERT_PARTS_TEXT,
    NULL,
};

static berth_status
dequantize_run(session *s)
{
    return convert_run(s, BERTH_ENCODING_NATIVE);
}

const cli_command dequantize_command = {
    .name = "dequantize",
    .help = "write a quantized checkpoint anew with plain weights",
    .description = dequantize_description,
    .operand = "IN OUT",
    CLI_OPTIONS(dequantize_options, convert_arguments),
    .examples = dequantize_examples,
    .example_count = sizeof dequantize_examples / sizeof dequantize_examples[0],
    .settle = model_settle,
    .run = dequantize_run,
};
