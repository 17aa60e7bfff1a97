/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_shapes - checkpoints for benchmarks
 *
 *   make_shapes SHAPE FOLDER
 *
 *   llama70b     723 tensors in 15 shards, payload is a hole
 *   deepseek     DeepSeek-V3: 91,991 tensors in 163 shards, 8-bit floats with
 *                scales, payload is a hole
 *   many:N       N small tensors in 10 shards
 *   random:MIB   one shard a GiB with bytes that nothing can guess or compress
 *   llama1b      a Llama of 1.1 billion values, bell-shaped enough: 2.2 GB
 *   llama8b:N    the same of Llama 3's 8 billion, N of its 32 layers: 2.1 GB and
 *                0.44 GB each
 *   X01 ... R7   one file with a worst-case header (tests/header_case.h)
 *
 * Beside FOLDER it leaves FOLDER.expected: what a listing must add up to.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/bench.h"

/* ---------------------------------------------------------------------- text */

typedef struct text {
    char *bytes;
    size_t length;
    size_t capacity;
} text;

static void
grow(text *t, size_t more)
{
    if (t->capacity - t->length > more)
        return;
    t->capacity = 2 * t->capacity + more + 4096;
    t->bytes = realloc(t->bytes, t->capacity);
    if (t->bytes == NULL)
        bench_die("out of memory");
}

__attribute__((format(printf, 2, 3))) static void
add(text *t, const char *format, ...)
{
    va_list arguments;

    grow(t, 1024);
    va_start(arguments, format);
    t->length += (size_t)vsnprintf(t->bytes + t->length, 1024, format, arguments);
    va_end(arguments);
}

/* `count` times the same few characters: fifty million of them. */
static void
repeat(text *t, const char *what, size_t count)
{
    const size_t length = strlen(what);

    grow(t, length * count);
    for (size_t i = 0; i < count; i++, t->length += length)
        memcpy(t->bytes + t->length, what, length);
}

/* --------------------------------------------------------------------- shards */

typedef enum fill {
    FILL_NOTHING,
    FILL_BYTES,  /* any */
    FILL_WEIGHTS /* BF16 of some hundredths */
} fill;

/* A model that is being counted, and then written. */
typedef struct model {
    const char *folder;   /* NULL: only counted */
    uint32_t shard_count; /* planned */
    uint32_t shard;       /* open one, from 1 */
    uint64_t total;       /* bytes of all tensors, from counting */
    uint64_t offset;      /* in the open one's data */
    text header;          /* of the open one */
    text map;             /* of the index */
    fill how;             /* the holes */
    bench_listing listing;
} model;

static void
write_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        const ssize_t done = write(fd, bytes, length);

        if (done < 0 && errno != EINTR)
            bench_die("writing: %s", strerror(errno));
        if (done > 0) {
            bytes += done;
            length -= (size_t)done;
        }
    }
}

/* A file of a header and a hole. Returns the descriptor, at the data's first byte. */
static int
write_file(const char *folder, const char *name, text *header, uint64_t data_bytes)
{
    unsigned char prefix[8];
    char path[4096];
    int fd;

    while (header->length % 8 != 0)
        add(header, " ");
    for (int i = 0; i < 8; i++)
        prefix[i] = (unsigned char)((uint64_t)header->length >> 8 * i);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0)
        bench_die("%s: %s", path, strerror(errno));
    write_all(fd, (const char *)prefix, sizeof prefix);
    write_all(fd, header->bytes, header->length);
    if (ftruncate(fd, (off_t)(8 + header->length + data_bytes)) != 0)
        bench_die("%s: %s", path, strerror(errno));
    return fd;
}

static void
write_text(const char *folder, const char *name, const char *bytes, size_t length)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "w");
    if (file == NULL || fwrite(bytes, 1, length, file) != length || fclose(file) != 0)
        bench_die("%s: %s", path, strerror(errno));
}

static const char *
shard_name(const model *m, char *name, size_t capacity)
{
    snprintf(name, capacity, "model-%05u-of-%06u.safetensors", m->shard, m->shard_count);
    return name;
}

/* Four values: sign and mantissa at random, exponents of 2^-13 to 2^-6. */
static uint64_t
like_weights(uint64_t bits)
{
    const uint64_t exponents = (bits >> 7 & UINT64_C(0x0007000700070007)) << 7;

    return (bits & UINT64_C(0x807f807f807f807f)) + UINT64_C(0x3900390039003900) + exponents;
}

static void
fill_randomly(int fd, uint64_t offset, uint64_t bytes, uint64_t state, fill how)
{
    static uint64_t block[1 << 17];

    if (lseek(fd, (off_t)offset, SEEK_SET) < 0)
        bench_die("seeking: %s", strerror(errno));
    while (bytes > 0) {
        const size_t now = bytes < sizeof block ? (size_t)bytes : sizeof block;

        for (size_t i = 0; i < sizeof block / sizeof block[0]; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block[i] = how == FILL_WEIGHTS ? like_weights(state) : state;
        }
        write_all(fd, (const char *)block, now);
        bytes -= now;
    }
    /* On the disk, or dropping it from the cache does nothing. */
    if (fsync(fd) != 0)
        bench_die("writing: %s", strerror(errno));
}

static void
end_shard(model *m)
{
    char name[64];
    int fd;

    m->header.bytes[m->header.length - 1] = '}'; /* it was a comma */
    fd = write_file(m->folder, shard_name(m, name, sizeof name), &m->header, m->offset);
    if (m->how != FILL_NOTHING)
        fill_randomly(fd, 8 + m->header.length, m->offset, 88172645463325252u + m->shard,
                      m->how);
    close(fd);
    m->header.length = 0;
    m->offset = 0;
    m->shard++;
}

/* One tensor of one or two dimensions; columns 0: one. */
static void
put(model *m, const char *name, const char *dtype, uint64_t bits, uint64_t rows,
    uint64_t columns)
{
    const uint64_t bytes = rows * (columns > 0 ? columns : 1) * bits / 8;
    const uint64_t share = m->total / m->shard_count;
    char file[64];

    if (m->folder != NULL) {
        if (m->offset > 0 && m->listing.bytes >= share * m->shard
            && m->shard < m->shard_count)
            end_shard(m);
        if (m->header.length == 0)
            add(&m->header, "{\"__metadata__\":{\"format\":\"pt\"},");
        add(&m->header, "\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64, name, dtype, rows);
        if (columns > 0)
            add(&m->header, ",%" PRIu64, columns);
        add(&m->header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]},", m->offset,
            m->offset + bytes);
        add(&m->map, "    \"%s\": \"%s\",\n", name, shard_name(m, file, sizeof file));
        m->offset += bytes;
    }
    bench_listing_add(&m->listing, name, strlen(name), bytes);
}

static void
end_model(model *m, const char *config)
{
    text index = { NULL, 0, 0 };

    end_shard(m);
    if (m->shard != m->shard_count + 1)
        bench_die("%u shards instead of %u", m->shard - 1, m->shard_count);
    add(&index, "{\n  \"metadata\": {\"total_size\": %" PRIu64 "},\n  \"weight_map\": {\n",
        m->listing.bytes);
    grow(&index, m->map.length);
    memcpy(index.bytes + index.length, m->map.bytes, m->map.length);
    index.length += m->map.length - 2; /* the last comma */
    add(&index, "\n  }\n}\n");
    write_text(m->folder, "model.safetensors.index.json", index.bytes, index.length);
    write_text(m->folder, "config.json", config, strlen(config));
    bench_listing_write(m->folder, &m->listing);
    free(index.bytes);
    free(m->header.bytes);
    free(m->map.bytes);
}

/* --------------------------------------------------------------------- models */

static void
put_layer(model *m, int layer, const char *name, uint64_t rows, uint64_t columns)
{
    char whole[128];

    snprintf(whole, sizeof whole, "model.layers.%d.%s.weight", layer, name);
    put(m, whole, "BF16", 16, rows, columns);
}

/* `kv`: rows of keys, and of values. */
static void
put_llama(model *m, int layers, uint64_t vocab, uint64_t hidden, uint64_t inner, uint64_t kv)
{
    put(m, "model.embed_tokens.weight", "BF16", 16, vocab, hidden);
    for (int layer = 0; layer < layers; layer++) {
        put_layer(m, layer, "input_layernorm", hidden, 0);
        put_layer(m, layer, "mlp.down_proj", hidden, inner);
        put_layer(m, layer, "mlp.gate_proj", inner, hidden);
        put_layer(m, layer, "mlp.up_proj", inner, hidden);
        put_layer(m, layer, "post_attention_layernorm", hidden, 0);
        put_layer(m, layer, "self_attn.k_proj", kv, hidden);
        put_layer(m, layer, "self_attn.o_proj", hidden, hidden);
        put_layer(m, layer, "self_attn.q_proj", hidden, hidden);
        put_layer(m, layer, "self_attn.v_proj", kv, hidden);
    }
    put(m, "model.norm.weight", "BF16", 16, hidden, 0);
    put(m, "lm_head.weight", "BF16", 16, vocab, hidden);
}

static void
put_llama70b(model *m, uint64_t n)
{
    (void)n;
    put_llama(m, 80, 128256, 8192, 28672, 1024);
}

/* TinyLlama's shape. */
static void
put_llama1b(model *m, uint64_t n)
{
    (void)n;
    put_llama(m, 22, 32000, 2048, 5632, 256);
}

static void
put_llama8b(model *m, uint64_t layers)
{
    put_llama(m, (int)layers, 128256, 4096, 14336, 1024);
}

/* A weight of 8-bit floats and its scales, one for 128 x 128 values. */
static void
put_fp8(model *m, int layer, const char *name, uint64_t rows, uint64_t columns)
{
    char whole[128];

    snprintf(whole, sizeof whole, "model.layers.%d.%s.weight", layer, name);
    put(m, whole, "F8_E4M3", 8, rows, columns);
    snprintf(whole, sizeof whole, "model.layers.%d.%s.weight_scale_inv", layer, name);
    put(m, whole, "F32", 32, (rows + 127) / 128, (columns + 127) / 128);
}

static void
put_deepseek_mlp(model *m, int layer, const char *name, uint64_t width)
{
    char whole[64];

    snprintf(whole, sizeof whole, "%s.gate_proj", name);
    put_fp8(m, layer, whole, width, 7168);
    snprintf(whole, sizeof whole, "%s.up_proj", name);
    put_fp8(m, layer, whole, width, 7168);
    snprintf(whole, sizeof whole, "%s.down_proj", name);
    put_fp8(m, layer, whole, 7168, width);
}

/* DeepSeek-V3: 3 dense layers, 58 with 256 experts, one that predicts further ahead. */
static void
put_deepseek(model *m, uint64_t n)
{
    (void)n;
    put(m, "model.embed_tokens.weight", "BF16", 16, 129280, 7168);
    for (int layer = 0; layer < 62; layer++) {
        char name[64];

        put_fp8(m, layer, "self_attn.q_a_proj", 1536, 7168);
        put_layer(m, layer, "self_attn.q_a_layernorm", 1536, 0);
        put_fp8(m, layer, "self_attn.q_b_proj", 24576, 1536);
        put_fp8(m, layer, "self_attn.kv_a_proj_with_mqa", 576, 7168);
        put_layer(m, layer, "self_attn.kv_a_layernorm", 512, 0);
        put_fp8(m, layer, "self_attn.kv_b_proj", 32768, 512);
        put_fp8(m, layer, "self_attn.o_proj", 7168, 16384);
        put_layer(m, layer, "input_layernorm", 7168, 0);
        put_layer(m, layer, "post_attention_layernorm", 7168, 0);
        if (layer < 3) {
            put_deepseek_mlp(m, layer, "mlp", 18432);
            continue;
        }
        put_layer(m, layer, "mlp.gate", 256, 7168);
        snprintf(name, sizeof name, "model.layers.%d.mlp.gate.e_score_correction_bias",
                 layer);
        put(m, name, "F32", 32, 256, 0);
        put_deepseek_mlp(m, layer, "mlp.shared_experts", 2048);
        for (int expert = 0; expert < 256; expert++) {
            snprintf(name, sizeof name, "mlp.experts.%d", expert);
            put_deepseek_mlp(m, layer, name, 2048);
        }
    }
    put_layer(m, 61, "embed_tokens", 129280, 7168);
    put_layer(m, 61, "enorm", 7168, 0);
    put_layer(m, 61, "hnorm", 7168, 0);
    put_layer(m, 61, "eh_proj", 7168, 14336);
    put_layer(m, 61, "shared_head.norm", 7168, 0);
    put_layer(m, 61, "shared_head.head", 129280, 7168);
    put(m, "model.norm.weight", "BF16", 16, 7168, 0);
    put(m, "lm_head.weight", "BF16", 16, 129280, 7168);
}

static void
put_many(model *m, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        char name[64];

        snprintf(name, sizeof name, "model.layers.%" PRIu64 ".experts.%" PRIu64 ".weight",
                 i / 1000, i % 1000);
        put(m, name, "BF16", 16, 8, 8);
    }
}

/*
 * 6 GB in so many tensors, at most 20,000: the same bytes whatever the number. In the order
 * of their names, as the format's own library writes tensors of one dtype.
 */
static void
put_pieces(model *m, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        char name[64];

        snprintf(name, sizeof name, "model.layers.%" PRIu64 ".piece.%03" PRIu64 ".weight",
                 i / 1000, i % 1000);
        put(m, name, "BF16", 16, 384 * (20000 / n), 400);
    }
}

/* As a model of today: a few small tensors among large ones. */
static void
put_random(model *m, uint64_t mib)
{
    const int layers = (int)(mib / 128);

    for (int layer = 0; layer < layers; layer++) {
        put_layer(m, layer, "input_layernorm", 4096, 0);
        put_layer(m, layer, "self_attn.qkv_proj", 2048, 4096);
        put_layer(m, layer, "mlp.gate_up_proj", 8192, 4096);
        put_layer(m, layer, "mlp.down_proj", 4096, 6143);
    }
}

#define LLAMA_CONFIG                                                                       \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "              \
    "\"dtype\": \"bfloat16\", \"tie_word_embeddings\": false}\n"
#define LLAMA70B_CONFIG                                                                    \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "              \
    "\"dtype\": \"bfloat16\", \"tie_word_embeddings\": false, \"hidden_size\": 8192, "       \
    "\"intermediate_size\": 28672, \"num_hidden_layers\": 80, \"vocab_size\": 128256, "      \
    "\"num_attention_heads\": 64, \"num_key_value_heads\": 8}\n"
#define LLAMA1B_CONFIG                                                                     \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "              \
    "\"dtype\": \"bfloat16\", \"tie_word_embeddings\": false, \"hidden_size\": 2048, "       \
    "\"intermediate_size\": 5632, \"num_hidden_layers\": 22, \"vocab_size\": 32000, "        \
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 4}\n"
#define DEEPSEEK_CONFIG                                                                    \
    "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"deepseek_v3\", "   \
    "\"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false, "                      \
    "\"hidden_size\": 7168, \"intermediate_size\": 18432, \"num_hidden_layers\": 61, "       \
    "\"vocab_size\": 129280, \"num_attention_heads\": 128, \"num_key_value_heads\": 128, "   \
    "\"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128, "              \
    "\"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"n_routed_experts\": 256, "             \
    "\"n_shared_experts\": 1, \"num_experts_per_tok\": 8, \"first_k_dense_replace\": 3, "    \
    "\"moe_intermediate_size\": 2048, "                                                      \
    "\"quantization_config\": {\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", "    \
    "\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}}\n"

static void
make_model(const char *folder, void (*put_all)(model *m, uint64_t n), uint64_t n,
           uint32_t shard_count, fill how, const char *config)
{
    model counted = { .shard_count = shard_count, .shard = 1 };
    model m = { .folder = folder, .shard_count = shard_count, .shard = 1 };

    put_all(&counted, n);
    m.total = counted.listing.bytes;
    m.how = how;
    put_all(&m, n);
    end_model(&m, config);
}

static void
make_llama8b(const char *folder, uint64_t layers)
{
    char config[512];

    snprintf(config, sizeof config,
             "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
             "\"dtype\": \"bfloat16\", \"tie_word_embeddings\": false, "
             "\"hidden_size\": 4096, \"intermediate_size\": 14336, "
             "\"num_hidden_layers\": %" PRIu64 ", \"vocab_size\": 128256, "
             "\"num_attention_heads\": 32, \"num_key_value_heads\": 8}\n", layers);
    make_model(folder, put_llama8b, layers, 1 + (uint32_t)layers / 16, FILL_WEIGHTS, config);
}

/* ---------------------------------------------------------- worst-case headers */

#define EMPTY "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}"

/* `count` tensors t0, t1, ...: each of `bytes` bytes. */
static uint64_t
add_tensors(text *t, uint64_t count, uint64_t bytes)
{
    for (uint64_t i = 0; i < count; i++)
        add(t, "\"%06" PRIx64 "\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64
               "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]},",
            i, bytes, i * bytes, (i + 1) * bytes);
    return count * bytes;
}

/* A tensor with a list of `count` pieces in it. */
static void
add_list(text *t, const char *before, const char *piece, size_t count, const char *after)
{
    add(t, "\"a\":{\"dtype\":\"U8\",%s[", before);
    repeat(t, piece, count);
    t->length--; /* the last comma */
    add(t, "]%s},", after);
}

/* What each header must say of itself: tensors, bytes, and the reason it is refused. */
static void
make_worst(const char *folder, const char *id)
{
    text t = { NULL, 0, 0 };
    uint64_t bytes = 0;
    uint64_t metadata = 0;

    add(&t, "{");
    if (strcmp(id, "X01") == 0)
        bytes = add_tensors(&t, 200000, 1);
    else if (strcmp(id, "X02") == 0)
        add_tensors(&t, 1200000, 0);
    else if (strcmp(id, "R1") == 0)
        add_list(&t, "\"shape\":[0],\"data_offsets\":[0,0],\"x\":", "0,", 49900000, "");
    else if (strcmp(id, "R2") == 0)
        add_list(&t, "\"shape\":[0],\"data_offsets\":[0,0],\"x\":", "[0],", 24900000, "");
    else if (strcmp(id, "R3") == 0)
        add_list(&t, "\"shape\":", "1,", 49900000, ",\"data_offsets\":[0,1]");
    else if (strcmp(id, "R4") == 0)
        add_tensors(&t, 1750000, 0);
    else if (strcmp(id, "R6") == 0)
        repeat(&t, "\"a\":" EMPTY ",", 1850000);
    else if (strcmp(id, "R7") == 0)
        metadata = 5000000;
    else
        bench_die("no shape %s", id);
    if (metadata > 0)
        add(&t, "\"__metadata__\":{");
    for (uint64_t i = 0; i < metadata; i++)
        add(&t, "\"k%06" PRIx64 "\":\"v\",", i);
    t.length--;
    add(&t, metadata > 0 ? "}}" : "}");
    if (strcmp(id, "R3") == 0)
        bytes = 1;
    close(write_file(folder, "model.safetensors", &t, bytes));
    free(t.bytes);
}

int
main(int argc, char **argv)
{
    const char *const shape = argc == 3 ? argv[1] : "";
    const char *const folder = argc == 3 ? argv[2] : "";
    const char *const colon = strchr(shape, ':');
    const uint64_t n = colon != NULL ? strtoull(colon + 1, NULL, 10) : 0;

    if (argc != 3) {
        fprintf(stderr, "usage: make_shapes SHAPE FOLDER\n");
        return 2;
    }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        bench_die("%s: %s", folder, strerror(errno));
    if (strcmp(shape, "llama70b") == 0)
        make_model(folder, put_llama70b, 0, 15, FILL_NOTHING, LLAMA70B_CONFIG);
    else if (strcmp(shape, "deepseek") == 0)
        make_model(folder, put_deepseek, 0, 163, FILL_NOTHING, DEEPSEEK_CONFIG);
    else if (strncmp(shape, "many:", 5) == 0 && n >= 10)
        make_model(folder, put_many, n, 10, FILL_NOTHING, LLAMA_CONFIG);
    else if (strncmp(shape, "pieces:", 7) == 0 && n > 0 && 20000 % n == 0)
        make_model(folder, put_pieces, n, 1, FILL_NOTHING, LLAMA_CONFIG);
    else if (strncmp(shape, "random:", 7) == 0 && n >= 1024)
        make_model(folder, put_random, n, (uint32_t)(n / 1024), FILL_BYTES, LLAMA_CONFIG);
    else if (strcmp(shape, "llama1b") == 0)
        make_model(folder, put_llama1b, 0, 2, FILL_WEIGHTS, LLAMA1B_CONFIG);
    else if (strncmp(shape, "llama8b:", 8) == 0 && n > 0 && n <= 32)
        make_llama8b(folder, n);
    else
        make_worst(folder, shape);
    return 0;
}
