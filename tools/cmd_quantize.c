/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_quantize.c - `berth quantize`: a checkpoint with 4-bit or 8-bit weights. */
#include "tools/commands.h"
#include "tools/convert.h"

static const cli_option quantize_options[] = {
    { "type", 't', CLI_CHOICE, offsetof(convert_arguments, type), CONVERT_TYPES, NULL, NULL,
      "how weights are stored; must be given" },
    { "double-quant", '\0', CLI_FLAG, offsetof(convert_arguments, is_double), NULL, NULL,
      NULL, "4-bit: the block maxima as 8-bit codes, too" },
    { "block-size", '\0', CLI_NUMBER, offsetof(convert_arguments, block_size), "N", NULL,
      "64", "4-bit: elements that share a maximum, 32 to 4096, a power of two" },
    { "storage", '\0', CLI_CHOICE, offsetof(convert_arguments, storage), CONVERT_STORAGES,
      NULL, "uint8", "4-bit: dtype that the codes are stored as" },
    { "dtype", '\0', CLI_CHOICE, offsetof(convert_arguments, dtype), CONVERT_DTYPES, NULL,
      "model", "cast to this first, as loading with that dtype would" },
    { "compute-dtype", '\0', CLI_CHOICE, offsetof(convert_arguments, compute_dtype),
      CONVERT_COMPUTE_DTYPES, NULL, "f32",
      "what config.json tells loaders to multiply in" },
    { "like", '\0', CLI_CHOICE, offsetof(convert_arguments, like), CONVERT_ERAS, NULL,
      "hf5", "the release of transformers whose choice of layers is followed" },
    { "skip-modules", '\0', CLI_TEXT, offsetof(convert_arguments, skip_modules), "A,B",
      NULL, NULL, "modules left alone instead of the automatic ones; '' for none" },
    { "experts", '\0', CLI_FLAG, offsetof(convert_arguments, takes_experts), NULL, NULL,
      NULL, "quantize experts that the model fuses, each by itself" },
    { "rules", '\0', CLI_TEXT, offsetof(convert_arguments, rules), "FILE", NULL, NULL,
      "which tensor gets what, line by line: berth-rules(5)" },
    { "keep", '\0', CLI_LIST, offsetof(convert_arguments, keep), "GLOB", NULL, NULL,
      "leave tensors of these names alone; may be given several times" },
    { "only", '\0', CLI_LIST, offsetof(convert_arguments, only), "GLOB", NULL, NULL,
      "quantize none but these; may be given several times" },
    { "min-coverage", '\0', CLI_TEXT, offsetof(convert_arguments, min_coverage), "SHARE",
      NULL, NULL, "exit code 11 when less of the parameters would be quantized" },
    { "reject-nonfinite", '\0', CLI_FLAG, offsetof(convert_arguments, rejects_nonfinite),
      NULL, NULL, NULL, "exit code 11 when a weight holds NaN or infinity" },
    CONVERT_OPTIONS,
};

static const cli_example quantize_examples[] = {
    { "berth quantize ./model ./model-nf4 --type nf4 --double-quant",
      "4 bits a weight; transformers and vLLM open it as their own" },
    { "berth quantize ./model ./model-nf4 --type nf4 --dry-run",
      "what would become of each layer, and why; reads no weights" },
    { "berth quantize ./model ./model-nf4 --type nf4 --resume",
      "go on after Ctrl-C, a full disk or a crash" },
    { "berth quantize ./model ./model-int8 --type int8 --min-coverage 95%",
      "fail rather than leave much of the model as it was" },
    { "berth quantize org/name ./out --type nf4 --keep '*.gate.weight'",
      "leave some tensors of a hub model alone" },
};

static const char *const quantize_description[] = {
    "Writes the checkpoint IN anew in the folder OUT with quantized weights, in the layout "
    "of bitsandbytes: shards, index, config.json with its quantization_config, tokenizer "
    "and other files beside the weights, and a manifest of digests. IN may be quantized "
    "already.",
    "One pass over the weights; memory does not depend on their size. First shows what "
    "becomes of the parameters, by encoding, and every rule that left some as they are.",
    "OUT appears when it is complete. What an interrupted run has finished stays beside it "
    "for --resume, which writes the same bytes; IN is never changed.",
    NULL,
};

static bool
is_block_size(uint32_t size)
{
    return size >= 32 && size <= 4096 && (size & (size - 1)) == 0;
}

static berth_status
check_arguments(const cli_call *call)
{
    static const char *const of_4_bits[] = { "double-quant", "block-size", "storage" };
    static const int32_t int8 = 2; /* in CONVERT_TYPES */
    const convert_arguments *const a = call->arguments;
    berth_status status = BERTH_OK;

    if (!cli_is_given(call, "type"))
        return cli_usage_error(call->command, "missing --type: one of " CONVERT_TYPES);
    for (size_t i = 0; i < sizeof of_4_bits / sizeof of_4_bits[0] && a->type == int8; i++)
        if (status == BERTH_OK)
            status = cli_refuse(call, of_4_bits[i], "with --type int8");
    if (status == BERTH_OK && a->type != int8 && !is_block_size(a->block_size))
        status = cli_usage_error(call->command,
                                 "--block-size: %u is no power of two from 32 to 4096",
                                 a->block_size);
    return status;
}

static berth_status
quantize_run(session *s)
{
    /* In the order of CONVERT_TYPES. */
    static const int32_t encodings[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                         BERTH_ENCODING_INT8 };
    const convert_arguments *const a = s->call->arguments;
    const berth_status status = check_arguments(s->call);

    return status == BERTH_OK ? convert_run(s, encodings[a->type]) : status;
}

const cli_command quantize_command = {
    .name = "quantize",
    .help = "write a checkpoint anew with 4-bit or 8-bit weights",
    .description = quantize_description,
    .operand = "IN OUT",
    .options = quantize_options,
    .option_count = sizeof quantize_options / sizeof quantize_options[0],
    .examples = quantize_examples,
    .example_count = sizeof quantize_examples / sizeof quantize_examples[0],
    .arguments_size = sizeof(convert_arguments),
    .settle = convert_settle,
    .run = quantize_run,
};
