/* SPDX-License-Identifier: Apache-2.0 */
/* llama_options.c - see llama_options.h. */
#include <stddef.h>
#include <string.h>

#include "tools/json_error.h"
#include "tools/llama_error.h"
#include "tools/llama_options.h"
#include "tools/number.h"

typedef enum kind {
    FLAG,
    TEXT,
    ENTRIES, /* a list in one word, which is not given twice */
    COUNT,
    PIN
} kind;

typedef struct option {
    const char *name;
    kind kind;
    size_t offset;     /* of the field in llama_options */
    const char *value; /* what it takes; NULL: nothing */
    const char *help;
} option;

#define FIELD(name) offsetof(llama_options, name)

static const option options[] = {
    { "--tokens", ENTRIES, FIELD(tokens), "1,2,3", "the prompt, as token ids" },
    { "--tokens-file", TEXT, FIELD(tokens_file), "FILE", "the same from a file; -: stdin" },
    { "--generate", COUNT, FIELD(generate), "N", "print the next N ids (1)" },
    { "--greedy", FLAG, SIZE_MAX, NULL, "take the most likely one, which is what it does" },
    { "--logits", TEXT, FIELD(logits), "FILE", "write the prompt's logits, safetensors" },
    { "--force", FLAG, FIELD(may_overwrite), NULL, "replace that file (-f)" },
    { "--plan", TEXT, FIELD(plan), "FILE", "load as this plan says; -: stdin; else one is made:" },
    { "--type", TEXT, FIELD(type), "TYPE", "nf4, fp4, int8, or none: as it is stored" },
    { "--double-quant", FLAG, FIELD(double_quant), NULL, "nf4, fp4: 8-bit statistics" },
    { "--dtype", TEXT, FIELD(dtype), "DTYPE", "load as bf16, f16 or f32" },
    { "--max-memory", ENTRIES, FIELD(max_memory), "LIST", "0=8GiB,cpu=4GiB,disk=inf" },
    { "--pin", PIN, FIELD(pins), "PART=TIER", "where layers have to lie; several times" },
    { "--link", ENTRIES, FIELD(links), "LIST", "rates of links: 0=gen4x16,disk=7GB/s" },
    { "--slots", COUNT, FIELD(slots), "N", "layers of a device that are streamed at once" },
    { "--devices", ENTRIES, FIELD(devices), "WORDS", "cpu, cuda, or sim:8GiB,h2d=25GB/s;..." },
    { "--offload-dir", TEXT, FIELD(offload_dir), "DIR",
      "where layers of the disk are written that the model has not as they are wanted" },
    { "--context", COUNT, FIELD(context), "N", "room for tokens (prompt and --generate)" },
    { "--batch", COUNT, FIELD(batch), "N", "tokens of a prompt at once (512)" },
    { "--compute", TEXT, FIELD(compute), "WHERE",
      "host: by this program; device: where layers lie, as GPUs have to" },
    { "--activations", TEXT, FIELD(activations), "DTYPE", "of --compute device (f32)" },
    { "--threads", COUNT, FIELD(threads), "N", "that compute (one a usable core)" },
    { "--cache-dtype", TEXT, FIELD(cache_dtype), "DTYPE", "of keys and values (f32)" },
    { "--int8-activations", FLAG, FIELD(has_int8_inputs), NULL, "int8: as LLM.int8() does" },
    { "--json", FLAG, FIELD(wants_json), NULL, "ids and numbers as JSON" },
    { "--quiet", FLAG, FIELD(is_quiet), NULL, "no numbers on stderr (-q)" },
    { "--help", FLAG, FIELD(wants_help), NULL, "this (-h)" },
    { "--version", FLAG, FIELD(wants_version), NULL, "of the library" },
};

#define OPTION_COUNT (sizeof options / sizeof options[0])

static berth_status
refuse(berth_error *error, const char *name, const char *why)
{
    return llama_fail(error, BERTH_EINVAL, NULL, "%s %s", name, why);
}

/* A word of the command line, which may hold anything. */
static berth_status
refuse_word(berth_error *error, const char *what, const char *word)
{
    char shown[256];

    berth_text_escape(word, strlen(word), shown, sizeof shown);
    return llama_fail(error, BERTH_EINVAL, NULL, "%s `%s`", what, shown);
}

static berth_status
refuse_value(berth_error *error, const char *name, const char *value, const char *wanted)
{
    char shown[256];

    berth_text_escape(value, strlen(value), shown, sizeof shown);
    return llama_fail(error, BERTH_EINVAL, NULL, "%s: `%s` is not %s", name, shown, wanted);
}

void
llama_options_print_help(FILE *out)
{
    fputs("Usage: berth-llama MODEL --tokens 1,2,3 [OPTION]...\n"
          "Computes a decoder whose weights berth has loaded: token ids in, next ids out.\n\n",
          out);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const option *const o = &options[i];
        char left[48];

        snprintf(left, sizeof left, "%s%s%s", o->name, o->value != NULL ? " " : "",
                 o->value != NULL ? o->value : "");
        fprintf(out, "  %-26s %s\n", left, o->help);
    }
}

#define COUNT_MOST 1000000000
#define SLOTS_MOST 8 /* of a plan */

/* Digits only: 1 to COUNT_MOST. */
static bool
can_take_count(const char *text, uint32_t *out)
{
    uint64_t number;

    if (!number_can_parse(text, strlen(text), COUNT_MOST, &number))
        return false;
    *out = (uint32_t)number;
    return number > 0;
}

static berth_status
store(llama_options *out, const option *o, const char *value, berth_error *error)
{
    char *const field = (char *)out + o->offset;

    switch (o->kind) {
    case FLAG:
        if (o->offset != SIZE_MAX)
            *(bool *)field = true;
        return BERTH_OK;
    case ENTRIES:
        if (*(const char **)field != NULL)
            return refuse(error, o->name, "is given twice: all of its list goes into one");
        *(const char **)field = value;
        return BERTH_OK;
    case TEXT:
        *(const char **)field = value;
        return BERTH_OK;
    case COUNT:
        return can_take_count(value, (uint32_t *)field)
                   ? BERTH_OK
                   : refuse_value(error, o->name, value, "a number from 1 to 1000000000");
    default:
        if (out->pin_count == LLAMA_PINS_MAX)
            return refuse(error, o->name, "given more often than there is room for");
        out->pins[out->pin_count++] = value;
        return BERTH_OK;
    }
}

/* Whether the option has this name; --links is what --link was called first. */
static bool
is_called(const option *o, const char *name, size_t length)
{
    static const char former[] = "--links";

    if (length == sizeof former - 1 && memcmp(name, former, length) == 0)
        length--;
    return strncmp(o->name, name, length) == 0 && o->name[length] == '\0';
}

/* The option that `word` begins with; *value: what follows its `=`, or NULL. */
static const option *
find_option(const char *word, const char **value)
{
    const char *const name = strcmp(word, "-q") == 0   ? "--quiet"
                             : strcmp(word, "-f") == 0 ? "--force"
                             : strcmp(word, "-h") == 0 ? "--help"
                                                       : word;
    const char *const equals = strchr(name, '=');
    const size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);

    *value = equals != NULL ? equals + 1 : NULL;
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (is_called(&options[i], name, length))
            return &options[i];
    return NULL;
}

static berth_status
parse_option(int argc, char **argv, int *at, llama_options *out, berth_error *error)
{
    const char *value;
    const option *const o = find_option(argv[*at], &value);

    if (o == NULL)
        return refuse_word(error, "unknown option", argv[*at]);
    if (o->value == NULL && value != NULL)
        return refuse(error, o->name, "takes no value");
    if (o->value != NULL && value == NULL) {
        if (*at + 1 == argc)
            return llama_fail(error, BERTH_EINVAL, NULL, "%s needs a value: %s", o->name,
                              o->value);
        value = argv[++*at];
    }
    return store(out, o, value, error);
}

static bool
is_standard(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

/* GPUs have names and addresses, too: berth-devices(5). */
static bool
are_gpus(const char *words)
{
    return words != NULL && strncmp(words, "cpu", 3) != 0 && strncmp(words, "sim", 3) != 0;
}

/* Where nobody says who computes it is GPUs. */
static bool
may_compute_on_devices(const llama_options *o)
{
    return o->compute != NULL ? strcmp(o->compute, "device") == 0 : are_gpus(o->devices);
}

static bool
has_second_levels(const char *type)
{
    return type != NULL && (strcmp(type, "nf4") == 0 || strcmp(type, "fp4") == 0);
}

static berth_status
check(const llama_options *o, berth_error *error)
{
    const struct {
        const char *name;
        bool is_given;
    } of_plans[] = {
        { "--type", o->type != NULL },         { "--dtype", o->dtype != NULL },
        { "--max-memory", o->max_memory != NULL }, { "--link", o->links != NULL },
        { "--pin", o->pin_count > 0 },         { "--slots", o->slots > 0 },
        { "--double-quant", o->double_quant },
    };
    berth_plan_options made;

    if (o->model == NULL)
        return refuse(error, "missing", "MODEL");
    if ((o->tokens == NULL) == (o->tokens_file == NULL))
        return refuse(error, "give one of --tokens and", "--tokens-file");
    if (is_standard(o->plan) && is_standard(o->tokens_file))
        return refuse(error, "--tokens-file and --plan:", "standard input is one file, not two");
    if (o->plan != NULL && o->plan[0] == '\0')
        return refuse(error, "--plan:", "the name of the file is empty");
    if (is_standard(o->logits))
        return refuse(error, "--logits:", "ids go to standard output, not numbers; name a file");
    if (o->logits != NULL && o->logits[0] == '\0')
        return refuse(error, "--logits:", "the name of the file is empty");
    if (o->may_overwrite && o->logits == NULL)
        return refuse(error, "--force", "has no effect without --logits");
    for (size_t i = 0; i < sizeof of_plans / sizeof of_plans[0] && o->plan != NULL; i++)
        if (of_plans[i].is_given)
            return refuse(error, of_plans[i].name, "has no effect with --plan");
    if (o->double_quant && !has_second_levels(o->type))
        return refuse(error, "--double-quant", "has no effect without --type nf4 or fp4");
    if (o->slots > SLOTS_MOST)
        return llama_fail(error, BERTH_EINVAL, NULL, "--slots: %u is not from 1 to %d",
                          o->slots, SLOTS_MOST);
    if (llama_options_dtype(o->cache_dtype) < 0)
        return refuse_value(error, "--cache-dtype", o->cache_dtype, "one of f32|f16|bf16");
    if (o->activations != NULL && llama_options_dtype(o->activations) < 0)
        return refuse_value(error, "--activations", o->activations, "one of f32|f16|bf16");
    if (o->compute != NULL && strcmp(o->compute, "host") != 0
        && strcmp(o->compute, "device") != 0)
        return refuse_value(error, "--compute", o->compute, "one of host|device");
    if (o->activations != NULL && !may_compute_on_devices(o))
        return refuse(error, "--activations", "has no effect without --compute device");
    if (o->threads > 0 && o->compute != NULL && may_compute_on_devices(o))
        return refuse(error, "--threads", "has no effect with --compute device");
    /* What is wrong in it, before anything is opened. */
    return llama_options_plan(o, &made, error);
}

berth_status
llama_options_parse(int argc, char **argv, llama_options *out, berth_error *error)
{
    bool has_ended = false; /* behind "--" */

    *out = (llama_options){ .generate = 1,
                            .cache_dtype = "f32",
                            .wants_json = json_is_asked(argc, argv) };
    for (int i = 1; i < argc; i++) {
        berth_status status = BERTH_OK;

        if (!has_ended && strcmp(argv[i], "--") == 0)
            has_ended = true;
        else if (!has_ended && argv[i][0] == '-' && argv[i][1] != '\0')
            status = parse_option(argc, argv, &i, out, error);
        else if (out->model != NULL)
            status = refuse_word(error, "unexpected argument", argv[i]);
        else
            out->model = argv[i];
        if (status != BERTH_OK)
            return status;
    }
    return out->wants_help || out->wants_version ? BERTH_OK : check(out, error);
}

int32_t
llama_options_dtype(const char *word)
{
    return strcmp(word, "bf16") == 0  ? BERTH_BF16
           : strcmp(word, "f16") == 0 ? BERTH_F16
           : strcmp(word, "f32") == 0 ? BERTH_F32
                                      : -1;
}

berth_status
llama_options_plan(const llama_options *o, berth_plan_options *out, berth_error *error)
{
    static const int32_t types[] = { BERTH_ENCODING_NATIVE, BERTH_ENCODING_NF4,
                                     BERTH_ENCODING_FP4, BERTH_ENCODING_INT8 };
    /* "none" as in berth plan, "native" as in berth estimate */
    const bool is_native = o->type == NULL || strcmp(o->type, "none") == 0;
    const char *const type = is_native ? "native" : o->type;
    size_t i = 0;

    berth_plan_options_init(out);
    while (i < sizeof types / sizeof types[0]
           && strcmp(type, berth_encoding_name(types[i])) != 0)
        i++;
    if (i == sizeof types / sizeof types[0])
        return refuse_value(error, "--type", type, "one of none|nf4|fp4|int8");
    out->type = types[i];
    if (o->dtype != NULL) {
        out->dtype = llama_options_dtype(o->dtype);
        if (out->dtype < 0)
            return refuse_value(error, "--dtype", o->dtype, "one of f32|f16|bf16");
    }
    out->double_quant = o->double_quant;
    out->max_memory = o->max_memory;
    out->links = o->links;
    out->pins = o->pins;
    out->pin_count = o->pin_count;
    out->slots = o->slots;
    return BERTH_OK;
}
