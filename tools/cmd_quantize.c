/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_quantize.c - `berth quantize`: a checkpoint with 4-bit or 8-bit weights. */
#include "tools/commands.h"
#include "tools/convert.h"

static const cli_option quantize_options[] = {
    { "type", 't', CLI_CHOICE, offsetof(convert_arguments, encoding.type), CONVERT_TYPES,
      NULL, NULL, "how weights are stored; must be given" },
    ENCODING_OPTIONS(convert_arguments, encoding),
    { "compute-dtype", '\0', CLI_CHOICE, offsetof(convert_arguments, compute_dtype),
      CONVERT_COMPUTE_DTYPES, NULL, "source",
      "what config.json tells loaders to multiply in: as a quantized IN says, else f32" },
    { "like", '\0', CLI_CHOICE, offsetof(convert_arguments, encoding.like), ENCODING_ERAS,
      NULL, "hf5", "the release of transformers whose choice of layers is followed" },
    ENCODING_CHOICE_OPTIONS(convert_arguments, encoding),
    { "min-coverage", '\0', CLI_TEXT, offsetof(convert_arguments, min_coverage), "SHARE",
      NULL, NULL, "exit code 11 when less of the parameters would be quantized" },
    { "reject-nonfinite", '\0', CLI_FLAG, offsetof(convert_arguments, rejects_nonfinite),
      NULL, NULL, NULL,
      "exit code 11 when a weight that is quantized, or cast to fp16, holds NaN or infinity" },
    { "device", '\0', CLI_TEXT, offsetof(convert_arguments, device), "DEVICE", NULL, NULL,
      "what encodes, to the same bytes: cuda:0, or a simulated GPU (berth-devices(5)); "
      "without it, the processor" },
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
    { "mpirun -n 8 berth quantize ./model ./model-nf4 --type nf4 --part auto",
      "eight processes, on one machine or on several, make one model" },
    { "berth quantize ./model ./model-nf4 --type nf4 --device cuda:0",
      "encoded by a GPU, in a fixed part of its memory" },
    { "berth quantize org/name ./out --type nf4 --keep '*.gate.weight'",
      "leave some tensors of a hub model alone" },
};

static const char *const quantize_description[] = {
    "Writes the checkpoint IN anew in the folder OUT with quantized weights, in the layout "
    "of bitsandbytes: shards, index, config.json with its quantization_config, tokenizer "
    "and other files beside the weights, and a manifest of digests.",
    "IN may be quantized already. Weights that are stored as is asked for keep their "
    "bytes; others are decoded and encoded anew.",
    "One pass over the weights; memory does not depend on their size. First shows what "
    "becomes of the parameters, by encoding, and every rule that left some as they are.",
    "config.json says what loaders have to know: where globs or rules leave other layers "
    "plain than transformers would, it lists them as modules to skip.",
    "Weights that transformers divides, joins or whose rows it moves as it loads them, such as "
    "one of queries, keys and values for three layers, stay plain: it cannot do that with codes. "
    "A rule that names them quantizes them, for other loaders. Plans and loads of the "
    "checkpoint itself quantize them.",
    "Shards are filled as transformers fills them: pieces of one tensor of the model, such "
    "as experts that are left plain, stay in one file, however large that gets.",
    "Warnings tell of a model without config.json, which no loader will know, of one shard "
    "of several, of experts that int8 leaves as they are, and of what transformers does not "
    "run: 8 bits beside 4 or codes of what is no layer, by rules, and a tied head that "
    "--skip-modules does not name.",
    CONVERT_OUTPUT_TEXT,
    CONVERT_VERIFY_TEXT,
    "With --device a GPU encodes what is to be quantized, a piece at a time: it needs less than "
    "60 MiB of its memory, whatever the model, and --dry-run says how much. Reading, what is "
    "decoded or cast before it is encoded, second levels of double quantization and writing stay "
    "with the processor. The files are the same, so --resume and other parts may name another "
    "device, or none. A GPU for which this build has no kernels is refused.",
    CONVERT_PARTS_TEXT,
    NULL,
};

static berth_status
quantize_run(session *s)
{
    /* In the order of CONVERT_TYPES. */
    static const int32_t encodings[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                         BERTH_ENCODING_INT8 };
    const convert_arguments *const a = s->call->arguments;
    berth_status status;

    if (!cli_is_given(s->call, "type"))
        return cli_usage_error(s->call->command, "missing --type: one of " CONVERT_TYPES);
    status = encoding_check(s->call, &a->encoding, encodings[a->encoding.type]);
    return status == BERTH_OK ? convert_run(s, encodings[a->encoding.type]) : status;
}

const cli_command quantize_command = {
    .name = "quantize",
    .help = "write a checkpoint anew with 4-bit or 8-bit weights",
    .description = quantize_description,
    .operand = "IN OUT",
    CLI_OPTIONS(quantize_options, convert_arguments),
    .examples = quantize_examples,
    .example_count = sizeof quantize_examples / sizeof quantize_examples[0],
    .settle = model_settle,
    .run = quantize_run,
};
