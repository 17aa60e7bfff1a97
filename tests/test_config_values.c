/* SPDX-License-Identifier: Apache-2.0 */
/* test_config_values.c - typed look-ups in config.json. */
#include <math.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define CONFIG                                                                        \
    "{\"hidden_size\": 4096, \"eps\": 1e-06, \"rope_theta\": 1000000.0,"               \
    " \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"a.b\": 7, \"\": 8},"    \
    " \"tie\": true, \"untied\": false, \"sliding_window\": null,"                     \
    " \"big\": 9223372036854775807, \"bigger\": 9223372036854775808,"                  \
    " \"least\": -9223372036854775808, \"less\": -9223372036854775809,"                \
    " \"huge\": 1e300, \"exact\": 1e3, \"half\": 0.5, \"minus\": -3,"                  \
    " \"nan\": NaN, \"infinite\": -Infinity, \"zero\": -0.0,"                          \
    " \"two\": 9007199254740993,"                                                      \
    " \"layer_types\": [\"full\", \"sliding\", [1, 2, 3], {\"x\": 5}],"                \
    " \"id2label\": {\"0\": \"NO\", \"1\": \"YES\"}, \"empty\": [], \"none\": {},"     \
    " \"caf\\u00e9\": \"\\u00fc\"}"

typedef struct opening {
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_config *config;
    berth_error error;
} opening;

static const char *
make_model(const char *config)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, "[model.safetensors]\nF32 2 a.weight\n");
    if (config != NULL)
        fixture_text(fixture_format("%s/config.json", folder), config);
    return folder;
}

static berth_status
begin(opening *o, const char *folder)
{
    memset(o, 0, sizeof *o);
    CHECK_EQ(berth_context_create(NULL, &o->context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(o->context, folder, NULL, &o->checkpoint, &o->error),
             BERTH_OK);
    return berth_config_open(o->context, o->checkpoint, &o->config, &o->error);
}

static void
end(opening *o)
{
    berth_memory_summary memory;

    berth_checkpoint_close(o->checkpoint); /* the configuration may outlive it */
    if (o->config != NULL)
        CHECK_EQ(berth_config_kind_of(o->config, ""), BERTH_CONFIG_OBJECT);
    berth_config_close(o->config);
    berth_context_memory(o->context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(o->context);
}

static void
check_integer(const opening *o, const char *key, int64_t expected)
{
    int64_t number = 99;
    berth_error error;

    CHECK_EQ(berth_config_integer(o->config, key, &number, &error), BERTH_OK);
    CHECK_EQ(error.status, BERTH_OK);
    CHECK_EQ(number, expected);
    CHECK_EQ(berth_config_kind_of(o->config, key), BERTH_CONFIG_NUMBER);
}

static void
refuse_integer(const opening *o, const char *key)
{
    int64_t number = 99;
    berth_error error;

    CHECK_EQ(berth_config_integer(o->config, key, &number, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_STR(error.tensor, key);
    CHECK_CONTAINS(error.message, "no whole number");
    CHECK_EQ(number, 0);
}

static void
test_integers(void)
{
    opening o;

    T_REQUIRE(begin(&o, make_model(CONFIG)) == BERTH_OK);
    check_integer(&o, "hidden_size", 4096);
    check_integer(&o, "big", INT64_MAX);
    check_integer(&o, "least", INT64_MIN);
    check_integer(&o, "exact", 1000);
    check_integer(&o, "rope_theta", 1000000);
    check_integer(&o, "minus", -3);
    check_integer(&o, "zero", 0);
    check_integer(&o, "two", INT64_C(9007199254740993));
    check_integer(&o, "rope_scaling.factor", 4);
    check_integer(&o, "rope_scaling.a\\.b", 7);
    check_integer(&o, "rope_scaling.", 8);
    check_integer(&o, "layer_types.2.0", 1);
    check_integer(&o, "layer_types.2.2", 3);
    check_integer(&o, "layer_types.3.x", 5);
    refuse_integer(&o, "bigger");
    refuse_integer(&o, "less");
    refuse_integer(&o, "huge");
    refuse_integer(&o, "half");
    refuse_integer(&o, "nan");
    refuse_integer(&o, "infinite");
    refuse_integer(&o, "tie");
    refuse_integer(&o, "layer_types");
    refuse_integer(&o, "rope_scaling.type");
    end(&o);
}

static void
test_doubles(void)
{
    static const struct {
        const char *key;
        double value;
    } known[] = { { "eps", 1e-6 },   { "hidden_size", 4096 }, { "huge", 1e300 },
                  { "half", 0.5 },   { "bigger", 0x1p63 },    { "minus", -3 },
                  { "zero", -0.0 },  { "infinite", -INFINITY } };
    double number;
    opening o;

    T_REQUIRE(begin(&o, make_model(CONFIG)) == BERTH_OK);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        number = 99;
        CHECK_EQ(berth_config_double(o.config, known[i].key, &number, &o.error), BERTH_OK);
        CHECK_MEM(&number, &known[i].value, sizeof number);
    }
    CHECK_EQ(berth_config_double(o.config, "nan", &number, &o.error), BERTH_OK);
    CHECK(isnan(number));
    number = 99;
    CHECK_EQ(berth_config_double(o.config, "tie", &number, &o.error), BERTH_EINVAL);
    CHECK(number == 0);
    CHECK_CONTAINS(o.error.message, "no number");
    end(&o);
}

static void
test_others(void)
{
    const char *text;
    uint64_t length;
    int32_t is_true;
    opening o;

    T_REQUIRE(begin(&o, make_model(CONFIG)) == BERTH_OK);
    CHECK_EQ(berth_config_string(o.config, "rope_scaling.type", &text, &o.error), BERTH_OK);
    CHECK_STR(text, "yarn");
    CHECK_EQ(berth_config_string(o.config, "layer_types.1", &text, NULL), BERTH_OK);
    CHECK_STR(text, "sliding");
    CHECK_EQ(berth_config_string(o.config, "id2label.1", &text, NULL), BERTH_OK);
    CHECK_STR(text, "YES");
    CHECK_EQ(berth_config_string(o.config, "caf\xc3\xa9", &text, NULL), BERTH_OK);
    CHECK_STR(text, "\xc3\xbc");
    CHECK_EQ(berth_config_string(o.config, "hidden_size", &text, &o.error), BERTH_EINVAL);
    CHECK(text == NULL);
    CHECK_CONTAINS(o.error.message, "no text");
    CHECK_EQ(berth_config_bool(o.config, "tie", &is_true, NULL), BERTH_OK);
    CHECK_EQ(is_true, 1);
    CHECK_EQ(berth_config_bool(o.config, "untied", &is_true, NULL), BERTH_OK);
    CHECK_EQ(is_true, 0);
    is_true = 5;
    CHECK_EQ(berth_config_bool(o.config, "hidden_size", &is_true, &o.error), BERTH_EINVAL);
    CHECK_EQ(is_true, 0);
    CHECK_EQ(berth_config_length(o.config, "layer_types", &length, NULL), BERTH_OK);
    CHECK_EQ(length, 4);
    CHECK_EQ(berth_config_length(o.config, "rope_scaling", &length, NULL), BERTH_OK);
    CHECK_EQ(length, 4);
    CHECK_EQ(berth_config_length(o.config, "empty", &length, NULL), BERTH_OK);
    CHECK_EQ(length, 0);
    CHECK_EQ(berth_config_length(o.config, "tie", &length, &o.error), BERTH_EINVAL);
    CHECK_EQ(berth_config_member(o.config, "id2label", 0, &text, NULL), BERTH_OK);
    CHECK_STR(text, "0");
    CHECK_EQ(berth_config_member(o.config, "rope_scaling", 2, &text, NULL), BERTH_OK);
    CHECK_STR(text, "a.b");
    CHECK_EQ(berth_config_member(o.config, "id2label", 2, &text, &o.error), BERTH_EINVAL);
    CHECK(text == NULL);
    CHECK_EQ(berth_config_member(o.config, "none", 0, &text, &o.error), BERTH_EINVAL);
    CHECK_EQ(berth_config_member(o.config, "layer_types", 0, &text, &o.error),
             BERTH_EINVAL);
    CHECK_CONTAINS(o.error.message, "no object");
    end(&o);
}

static void
test_kinds(void)
{
    static const struct {
        const char *key;
        int32_t kind;
    } known[] = {
        { "", BERTH_CONFIG_OBJECT },
        { "rope_scaling", BERTH_CONFIG_OBJECT },
        { "layer_types", BERTH_CONFIG_ARRAY },
        { "layer_types.0", BERTH_CONFIG_STRING },
        { "layer_types.2", BERTH_CONFIG_ARRAY },
        { "sliding_window", BERTH_CONFIG_NULL },
        { "tie", BERTH_CONFIG_BOOL },
        { "untied", BERTH_CONFIG_BOOL },
        { "nan", BERTH_CONFIG_NUMBER },
        { "absent", BERTH_CONFIG_ABSENT },
        { "rope_scaling.absent", BERTH_CONFIG_ABSENT },
        { "rope_scaling.type.deeper", BERTH_CONFIG_ABSENT },
        { "hidden_size.0", BERTH_CONFIG_ABSENT },
        { "sliding_window.x", BERTH_CONFIG_ABSENT },
        { "layer_types.4", BERTH_CONFIG_ABSENT },
        { "layer_types.00", BERTH_CONFIG_ABSENT },
        { "layer_types.-1", BERTH_CONFIG_ABSENT },
        { "layer_types.0x", BERTH_CONFIG_ABSENT },
        { "layer_types.", BERTH_CONFIG_ABSENT },
        { "layer_types.18446744073709551616", BERTH_CONFIG_ABSENT },
        { "layer_types.x", BERTH_CONFIG_ABSENT },
        { "empty.0", BERTH_CONFIG_ABSENT },
        { ".", BERTH_CONFIG_ABSENT },
        { "\\", BERTH_CONFIG_ABSENT },
    };
    char key[600];
    opening o;

    T_REQUIRE(begin(&o, make_model(CONFIG)) == BERTH_OK);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!CHECK_EQ(berth_config_kind_of(o.config, known[i].key), known[i].kind))
            T_NOTE("%s", known[i].key);
    memset(key, 'k', sizeof key);
    key[sizeof key - 1] = '\0';
    CHECK_EQ(berth_config_kind_of(o.config, key), BERTH_CONFIG_ABSENT);
    CHECK_EQ(berth_config_kind_of(o.config, NULL), BERTH_CONFIG_ABSENT);
    CHECK_EQ(berth_config_kind_of(NULL, "x"), BERTH_CONFIG_ABSENT);
    end(&o);
}

/* As for a default: nothing there, and null, are the same. */
static void
test_defaults(void)
{
    static const char *const keys[] = { "absent", "sliding_window" };
    opening o;

    T_REQUIRE(begin(&o, make_model(CONFIG)) == BERTH_OK);
    for (size_t i = 0; i < 2; i++) {
        const char *text = "x";
        int64_t integer = 9;
        double number = 9;
        int32_t is_true = 9;
        uint64_t length = 9;
        char line[256];

        CHECK_EQ(berth_config_string(o.config, keys[i], &text, &o.error), BERTH_ENOENT);
        CHECK_EQ(o.error.reason, BERTH_REASON_NOT_FOUND);
        CHECK_STR(o.error.tensor, keys[i]);
        CHECK_CONTAINS(o.error.message, i == 0 ? "is not in" : "is null");
        berth_error_format(&o.error, line, sizeof line);
        CHECK(line[0] == '"'); /* it is a key, not a tensor */
        CHECK(text == NULL);
        CHECK_EQ(berth_config_integer(o.config, keys[i], &integer, NULL), BERTH_ENOENT);
        CHECK_EQ(integer, 0);
        CHECK_EQ(berth_config_double(o.config, keys[i], &number, NULL), BERTH_ENOENT);
        CHECK(number == 0);
        CHECK_EQ(berth_config_bool(o.config, keys[i], &is_true, NULL), BERTH_ENOENT);
        CHECK_EQ(is_true, 0);
        CHECK_EQ(berth_config_length(o.config, keys[i], &length, NULL), BERTH_ENOENT);
        CHECK_EQ(length, 0);
        text = "x";
        CHECK_EQ(berth_config_member(o.config, keys[i], 0, &text, NULL), BERTH_ENOENT);
        CHECK(text == NULL);
    }
    end(&o);
}

static void
test_arguments(void)
{
    const char *text;
    int64_t integer;
    double number;
    int32_t is_true;
    uint64_t length;
    berth_config *config = (berth_config *)(void *)&integer;
    opening o;

    T_REQUIRE(begin(&o, make_model(CONFIG)) == BERTH_OK);
    CHECK_EQ(berth_config_open(NULL, o.checkpoint, &config, NULL), BERTH_EINVAL);
    CHECK(config == NULL);
    CHECK_EQ(berth_config_open(o.context, NULL, &config, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_open(o.context, o.checkpoint, NULL, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_string(NULL, "a", &text, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_string(o.config, NULL, &text, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_string(o.config, "tie", NULL, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_integer(o.config, NULL, &integer, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_integer(o.config, "big", NULL, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_double(o.config, NULL, &number, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_double(o.config, "big", NULL, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_bool(o.config, NULL, &is_true, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_bool(o.config, "tie", NULL, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_length(o.config, NULL, &length, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_length(o.config, "empty", NULL, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_member(o.config, NULL, 0, &text, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_config_member(o.config, "", 0, NULL, NULL), BERTH_EINVAL);
    berth_config_close(NULL);
    end(&o);
}

static void
test_files(void)
{
    const char *const folder = make_model("{}");
    opening o;

    CHECK_EQ(begin(&o, make_model(NULL)), BERTH_ENOENT);
    CHECK(o.config == NULL);
    CHECK_CONTAINS(o.error.file, "config.json");
    CHECK_CONTAINS(o.error.message, "no such file");
    end(&o);
    CHECK_EQ(begin(&o, folder), BERTH_OK);
    end(&o);
    /* Beside a file that was named it may be anything. */
    fixture_text(fixture_format("%s/config.json", folder), "{\"a\": }");
    CHECK_EQ(begin(&o, fixture_format("%s/model.safetensors", folder)), BERTH_EFORMAT);
    CHECK(o.config == NULL);
    CHECK_EQ(o.error.reason, BERTH_REASON_CONFIG_JSON);
    CHECK_EQ(o.error.position, 6);
    end(&o);
}

/* ---------------------------------------------------------------------- faults */

static berth_status
open_config(void *user, berth_context *context, berth_error *error)
{
    berth_checkpoint *checkpoint;
    berth_config *config = NULL;
    berth_status status = berth_checkpoint_open(context, user, NULL, &checkpoint, error);

    if (status != BERTH_OK)
        return status;
    status = berth_config_open(context, checkpoint, &config, error);
    CHECK_EQ(status == BERTH_OK, config != NULL);
    berth_config_close(config);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void
test_faults(void)
{
    char path[256];
    fault_counts counts;

    strcpy(path, make_model(CONFIG));
    counts = fault_loop("config", open_config, path);
    CHECK_GT(counts.memory, 5);
    CHECK_GT(counts.system, 5);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_integers);
    T_RUN(test_doubles);
    T_RUN(test_others);
    T_RUN(test_kinds);
    T_RUN(test_defaults);
    T_RUN(test_arguments);
    T_RUN(test_files);
    T_RUN(test_faults);
    T_MAIN_END;
}
