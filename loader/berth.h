/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berth.h - open, check and place large-language-model weights
 *
 * Order of use:  context -> checkpoint -> job.
 *
 * Ownership   A function that fills an `out_` pointer creates an object the
 *             caller must destroy with the call named in its comment. Every
 *             other pointer is borrowed for the duration of the call. Objects
 *             are destroyed in the reverse of the order above.
 * Failure     Every call that can fail returns a berth_status. On failure each
 *             `out_` pointer is NULL and nothing has been kept: no memory, no
 *             file, no thread. `error`, where there is one, may be NULL.
 * Threads     A context may be shared by threads. A checkpoint never changes
 *             after it was opened and may be shared. Of any other object: one
 *             thread at a time, except where a call says "any thread".
 * Process     The library prints nothing, installs no handlers, reads no
 *             environment, keeps no globals and never ends the process.
 * Sizes       are bytes, in uint64_t, unless a name says otherwise.
 * Structs     Option structs start with their own size: fill them with their
 *             `_init` function, then set what matters; zero means default.
 *             Result structs end in reserved words, written as zero.
 */
#ifndef BERTH_LOADER_BERTH_H
#define BERTH_LOADER_BERTH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BERTH_VERSION_MAJOR 0
#define BERTH_VERSION_MINOR 1
#define BERTH_VERSION_PATCH 0

#if defined(__GNUC__)
#define BERTH_API __attribute__((visibility("default")))
#else
#define BERTH_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ version */

/* berth_version() returns "major.minor.patch" of the library in use. */
BERTH_API const char *berth_version(void);

/* --------------------------------------------------------- status and errors */

/*
 * The result of a call. Zero is success, a failure is negative: the negated
 * exit code that the command line ends with for the same failure. Values are
 * pinned; new classes take unused numbers.
 */
typedef int32_t berth_status;

#define BERTH_OK 0
#define BERTH_PENDING 1         /* not a failure: a wait ran into its timeout        */
#define BERTH_EINTERNAL (-1)    /* berth contradicts itself: please report           */
#define BERTH_EINVAL (-2)       /* the caller's arguments                            */
#define BERTH_ENOENT (-3)       /* model not found or not readable                   */
#define BERTH_EFORMAT (-4)      /* checkpoint incomplete or malformed                */
#define BERTH_EINTEGRITY (-5)   /* bytes are not the bytes that were promised        */
#define BERTH_ENOFIT (-6)       /* does not fit                                      */
#define BERTH_ENOMEM (-7)       /* out of memory at run time                         */
#define BERTH_ENODEV (-8)       /* no usable device or driver                        */
#define BERTH_EIO (-9)          /* I/O error, disk full                              */
#define BERTH_EUNSUPPORTED (-10) /* format or dtype that berth names but cannot use  */
#define BERTH_EPOLICY (-11)     /* a gate the caller asked for                       */
#define BERTH_ECANCELLED (-130) /* cancelled, nothing kept                           */

/*
 * Why, more finely than the status: each reason belongs to exactly one status.
 * BERTH_REASONS(X) lists X(IDENTIFIER, number, status, "name", "advice"), the
 * advice being the next step for the person in front of the machine.
 */
#define BERTH_REASONS(X)                                                                   \
    X(NONE, 0, BERTH_OK, "none", "")                                                       \
    X(INTERNAL, 1, BERTH_EINTERNAL, "internal", "report this to the authors of berth")     \
    X(ARGUMENT, 2, BERTH_EINVAL, "argument", "correct the call")                           \
    X(HEADER_TOO_SMALL, 10, BERTH_EFORMAT, "header_too_small", "download the file again")  \
    X(HEADER_TOO_LARGE, 11, BERTH_EFORMAT, "header_too_large",                             \
      "this is not a safetensors file, or it is damaged: download it again")               \
    X(HEADER_LENGTH, 12, BERTH_EFORMAT, "header_length", "download the file again")        \
    X(HEADER_UTF8, 13, BERTH_EFORMAT, "header_utf8",                                       \
      "the header is damaged: download the file again or rewrite it")                      \
    X(HEADER_JSON, 14, BERTH_EFORMAT, "header_json",                                       \
      "the header is damaged: download the file again or rewrite it")                      \
    X(OFFSET, 15, BERTH_EFORMAT, "offset", "the writer left a hole or an overlap: "        \
                                           "rewrite the file")                             \
    X(OVERFLOW, 16, BERTH_EFORMAT, "overflow", "the shape is impossible: do not trust "    \
                                               "this file")                                \
    X(SUBBYTE, 17, BERTH_EFORMAT, "subbyte", "the tensor does not end on a byte: "         \
                                             "rewrite the file")                           \
    X(SIZE_MISMATCH, 18, BERTH_EFORMAT, "size_mismatch",                                   \
      "shape and bytes disagree: rewrite the file")                                        \
    X(COVERAGE, 19, BERTH_EFORMAT, "coverage", "download the file again")                  \
    X(DUPLICATE, 20, BERTH_EFORMAT, "duplicate", "rewrite the file with unique names")     \
    X(NAME, 21, BERTH_EFORMAT, "name", "rename the tensor")                                \
    X(RANK, 22, BERTH_EFORMAT, "rank", "no framework goes beyond 64 dimensions: "          \
                                       "do not trust this file")                           \
    X(STRICT, 23, BERTH_EPOLICY, "strict", "rewrite the file, or verify without --strict") \
    X(IO, 30, BERTH_EIO, "io", "check the disk and the mount")                             \
    X(NOT_FOUND, 31, BERTH_ENOENT, "not_found", "check the path")                          \
    X(NOT_REGULAR, 32, BERTH_ENOENT, "not_regular", "name a regular file or a directory")  \
    X(CHANGED, 33, BERTH_EIO, "changed", "let the writer finish, then try again")          \
    X(TRUNCATED, 34, BERTH_EIO, "truncated", "let the writer finish, then try again")      \
    X(PATH, 35, BERTH_EFORMAT, "path", "do not trust this model: its shards must lie in "  \
                                       "the model's directory")                            \
    X(PERMISSION, 36, BERTH_ENOENT, "permission", "check the permissions of the file and " \
                                                  "of the directories above it")           \
    X(DISK_FULL, 37, BERTH_EIO, "disk_full", "free space, then run the command again")     \
    X(EXISTS, 38, BERTH_EINVAL, "exists", "choose another output or pass --force")         \
    X(LINK_LOOP, 39, BERTH_ENOENT, "link_loop", "repair the symbolic links")               \
    X(LFS_POINTER, 40, BERTH_EFORMAT, "lfs_pointer",                                       \
      "the weights were not fetched: run `git lfs pull` in the repository")                \
    X(HTML, 41, BERTH_EFORMAT, "html", "the download saved a web page: check access and "  \
                                       "log in, then download again")                      \
    X(JSON_BODY, 42, BERTH_EFORMAT, "json_body",                                           \
      "the download saved an error message: check access, then download again")            \
    X(ZIP, 43, BERTH_EUNSUPPORTED, "zip", "this is a PyTorch archive: convert it to "      \
                                          "safetensors")                                   \
    X(PICKLE, 44, BERTH_EUNSUPPORTED, "pickle", "pickles are never opened: convert to "    \
                                                "safetensors")                             \
    X(GGUF, 45, BERTH_EUNSUPPORTED, "gguf", "use the original safetensors weights")        \
    X(OTHER_FORMAT, 46, BERTH_EUNSUPPORTED, "other_format", "convert it to safetensors")   \
    X(ZERO_FILLED, 47, BERTH_EFORMAT, "zero_filled", "the file was allocated but never "   \
                                                     "filled: download it again")          \
    X(INCOMPLETE, 48, BERTH_EFORMAT, "incomplete", "it was not made completely: run the "  \
                                                   "download or command again")            \
    X(BUSY, 50, BERTH_EIO, "busy", "wait for the other process or choose another output")  \
    X(JOURNAL, 51, BERTH_EFORMAT, "journal", "pass --force to begin anew")                 \
    X(INDEX_JSON, 60, BERTH_EFORMAT, "index_json", "download the index again")             \
    X(INDEX_SHARD, 61, BERTH_EFORMAT, "index_shard", "download the missing shard")         \
    X(INDEX_TENSOR, 62, BERTH_EFORMAT, "index_tensor",                                     \
      "index and shards come from different versions: download all of them again")         \
    X(INDEX_EXTRA, 63, BERTH_EPOLICY, "index_extra",                                       \
      "index and shards come from different versions: download all of them again")         \
    X(INDEX_TOTAL, 64, BERTH_EPOLICY, "index_total", "the index is stale: write it again") \
    X(STRAY_SHARD, 65, BERTH_EPOLICY, "stray_shard", "remove the file if it is stale")     \
    X(BOTH_FORMS, 66, BERTH_EPOLICY, "both_forms", "remove the one that is stale")         \
    X(AMBIGUOUS, 67, BERTH_EINVAL, "ambiguous", "name one file, or pass --all")            \
    X(MISSING_BLOB, 80, BERTH_EFORMAT, "missing_blob",                                     \
      "the blob was pruned or is still being fetched: download the model again")           \
    X(NO_SNAPSHOT, 81, BERTH_ENOENT, "no_snapshot", "download this revision")              \
    X(BAD_REF, 82, BERTH_EFORMAT, "bad_ref", "the cache is damaged: download again")       \
    X(COMPANION_MISSING, 90, BERTH_EFORMAT, "companion_missing",                           \
      "the checkpoint was saved without its quantization state: save it again")            \
    X(COMPANION_UNKNOWN, 91, BERTH_EFORMAT, "companion_unknown",                           \
      "statistics without their weight: download or save the checkpoint again")            \
    X(COMPANION_MISMATCH, 92, BERTH_EFORMAT, "companion_mismatch",                         \
      "statistics and weight disagree: save the checkpoint again")                         \
    X(STATE_JSON, 93, BERTH_EFORMAT, "state_json", "save the checkpoint again")            \
    X(QUANT_METHOD, 94, BERTH_EUNSUPPORTED, "quant_method",                                \
      "start from the original weights")                                                   \
    X(QUANT_PLAIN, 95, BERTH_EFORMAT, "quant_plain",                                       \
      "8-bit floats without scales: find the scales or the original weights")              \
    X(CONFIG_JSON, 100, BERTH_EFORMAT, "config_json", "download config.json again")        \
    X(ARCHITECTURE, 101, BERTH_EFORMAT, "architecture",                                    \
      "config.json and tensors describe no model that can be laid out: download both "     \
      "again")                                                                             \
    X(ARCHITECTURES_JSON, 102, BERTH_EFORMAT, "architectures_json",                        \
      "give a description of model classes as it comes with berth")                        \
    X(RULES, 103, BERTH_EINVAL, "rules", "correct the rule: see berth-rules(5)")           \
    X(RULE_UNUSED, 104, BERTH_EINVAL, "rule_unused",                                       \
      "correct the pattern, or mark the rule optional")                                    \
    X(MIN_COVERAGE, 105, BERTH_EPOLICY, "min_coverage",                                    \
      "the coverage report says which rule left out what")                                 \
    X(NONFINITE, 106, BERTH_EPOLICY, "nonfinite",                                          \
      "repair the weights, or convert them without --reject-nonfinite")                    \
    X(DIFFERENCE, 107, BERTH_EPOLICY, "difference",                                        \
      "the table of differences says which weights, and how far apart they are")           \
    X(DIGEST, 110, BERTH_EINTEGRITY, "digest", "quarantine the file and download it again") \
    X(BLOB_DIGEST, 111, BERTH_EINTEGRITY, "blob_digest",                                   \
      "quarantine the blob and download it again")                                         \
    X(MANIFEST_JSON, 112, BERTH_EFORMAT, "manifest_json", "write the manifest again")      \
    X(MANIFEST_ENTRY, 113, BERTH_EINTEGRITY, "manifest_entry",                             \
      "manifest and checkpoint do not belong together")                                    \
    X(NO_MEMORY, 120, BERTH_ENOMEM, "no_memory", "free memory or raise the limit")         \
    X(NO_DEVICE, 121, BERTH_ENODEV, "no_device", "this build supports no GPU")             \
    X(UNSUPPORTED, 122, BERTH_EUNSUPPORTED, "unsupported", "")                             \
    X(OPEN_FILES, 123, BERTH_EIO, "open_files",                                            \
      "raise the limit of open files, see `ulimit -n`")                                    \
    X(CANCELLED, 130, BERTH_ECANCELLED, "cancelled", "")

typedef enum berth_reason {
#define BERTH_REASON_ENUM(identifier, number, status, name, advice)                        \
    BERTH_REASON_##identifier = number,
    BERTH_REASONS(BERTH_REASON_ENUM)
#undef BERTH_REASON_ENUM
        BERTH_REASON_COUNT_UNUSED = 0x7fffffff
} berth_reason;

#define BERTH_FILE_CAPACITY 5632 /* the longest path Linux takes, and a shard's name */
#define BERTH_NAME_CAPACITY 136  /* 128 printable characters, a mark, NUL            */
#define BERTH_MESSAGE_CAPACITY 512

/* Bits of berth_error.has: which of the three numbers mean something. */
#define BERTH_HAS_POSITION 1u
#define BERTH_HAS_EXPECTED 2u
#define BERTH_HAS_ACTUAL 4u
#define BERTH_HAS_BYTES 8u /* expected and actual count bytes    */
#define BERTH_HAS_CRC32 16u /* expected and actual are checksums */

/*
 * What went wrong, filled by the callee, owned by the caller, plain memory.
 * No field holds raw bytes of a file: names are escaped, and long ones are cut.
 * A berth_finding has them whole.
 */
typedef struct berth_error {
    int32_t status;       /* berth_status                                          */
    int32_t reason;       /* berth_reason                                          */
    int32_t system_error; /* errno of the failed system call, or 0                 */
    uint32_t has;         /* BERTH_HAS_ bits                                       */
    uint64_t position;    /* byte position in the file                             */
    uint64_t expected;    /* the two numbers that disagree                         */
    uint64_t actual;
    char file[BERTH_FILE_CAPACITY];       /* path as the caller would write it, or ""    */
    char tensor[BERTH_NAME_CAPACITY];     /* escaped name of tensor or argument, or ""   */
    char message[BERTH_MESSAGE_CAPACITY]; /* one sentence without the above              */
    uint64_t reserved[4];
} berth_error;

/* "ok", "format", ...; "unknown" for a number that is none. Never NULL. */
BERTH_API const char *berth_status_name(berth_status status);
/* "header_json", ...; "unknown" for a number that is none. Never NULL. */
BERTH_API const char *berth_reason_name(int32_t reason);
/* The next step for a person; "" where there is none. Never NULL. */
BERTH_API const char *berth_reason_advice(int32_t reason);

/*
 * berth_error_format() writes one line: file, tensor, position, message, the
 * two numbers, the system's words, the reason, the next step. Returns the
 * length the whole line needs, without the NUL; the text is cut to capacity.
 */
BERTH_API size_t berth_error_format(const berth_error *error, char *text, size_t capacity);

/*
 * berth_text_escape() turns bytes of unknown origin into printable ASCII-or-
 * UTF-8 text: control characters, invalid UTF-8 and direction marks become
 * \xNN or \u{...}. Cut at `capacity`, always ending in NUL when capacity > 0.
 * Returns the length the whole text needs.
 */
BERTH_API size_t berth_text_escape(const char *bytes, size_t length, char *text,
                                   size_t capacity);

/* ------------------------------------------------------------------- sizes */

#define BERTH_SIZE_CAPACITY 32

/*
 * berth_size_format() writes "1.50 GiB", "612 B". `text` holds
 * BERTH_SIZE_CAPACITY characters. Returns `text`.
 */
BERTH_API const char *berth_size_format(uint64_t bytes, char *text);

/*
 * berth_size_parse() reads "20GiB", "20GB", "20480MiB", "1.5 GiB" or a bare
 * integer (bytes). Any other number without a unit is refused.
 * Returns BERTH_OK or BERTH_EINVAL; *out_bytes is then 0.
 */
BERTH_API berth_status berth_size_parse(const char *text, uint64_t *out_bytes,
                                        berth_error *error);

/*
 * berth_share_parse() reads "95%", "99.5 %" or a share such as "0.95", with up
 * to nine digits behind its point, as billionths. A bare number above 1 is
 * refused: "95" may mean either.
 * Returns BERTH_OK or BERTH_EINVAL; *out_share is then 0.
 */
BERTH_API berth_status berth_share_parse(const char *text, uint64_t *out_share,
                                         berth_error *error);

/* ------------------------------------------------------------------- dtypes */

/* BERTH_DTYPES(X): X(IDENTIFIER, "name", bits), in the order files are laid out. */
#define BERTH_DTYPES(X)                                                                    \
    X(U64, "U64", 64)                                                                      \
    X(I64, "I64", 64)                                                                      \
    X(F64, "F64", 64)                                                                      \
    X(C64, "C64", 64)                                                                      \
    X(F32, "F32", 32)                                                                      \
    X(U32, "U32", 32)                                                                      \
    X(I32, "I32", 32)                                                                      \
    X(BF16, "BF16", 16)                                                                    \
    X(F16, "F16", 16)                                                                      \
    X(U16, "U16", 16)                                                                      \
    X(I16, "I16", 16)                                                                      \
    X(F8_E5M2FNUZ, "F8_E5M2FNUZ", 8)                                                       \
    X(F8_E4M3FNUZ, "F8_E4M3FNUZ", 8)                                                       \
    X(F8_E8M0, "F8_E8M0", 8)                                                               \
    X(F8_E4M3, "F8_E4M3", 8)                                                               \
    X(F8_E5M2, "F8_E5M2", 8)                                                               \
    X(I8, "I8", 8)                                                                         \
    X(U8, "U8", 8)                                                                         \
    X(F6_E3M2, "F6_E3M2", 6)                                                               \
    X(F6_E2M3, "F6_E2M3", 6)                                                               \
    X(F4, "F4", 4)                                                                         \
    X(BOOL, "BOOL", 8)

typedef enum berth_dtype {
#define BERTH_DTYPE_ENUM(identifier, name, bits) BERTH_##identifier,
    BERTH_DTYPES(BERTH_DTYPE_ENUM)
#undef BERTH_DTYPE_ENUM
        BERTH_DTYPE_COUNT
} berth_dtype;

/* "BF16", ...; "unknown" for a number that is none. Never NULL. */
BERTH_API const char *berth_dtype_name(int32_t dtype);
/* Bits of one element, 4 to 64; 0 for a number that is none. */
BERTH_API uint32_t berth_dtype_bits(int32_t dtype);

/*
 * How the values of a tensor are stored. NATIVE is plain numbers of its dtype;
 * STATISTICS marks a companion that only means something beside its weight.
 */
typedef enum berth_encoding {
    BERTH_ENCODING_NATIVE = 0,
    BERTH_ENCODING_NF4 = 1,        /* bitsandbytes 4-bit                              */
    BERTH_ENCODING_FP4 = 2,
    BERTH_ENCODING_INT8 = 3,       /* LLM.int8() rows                                 */
    BERTH_ENCODING_FP8_BLOCK = 4,  /* 8-bit floats with block, row or tensor scales   */
    BERTH_ENCODING_FP4_PACKED = 5, /* E2M1 pairs beside E8M0 scales                   */
    BERTH_ENCODING_MXFP4 = 6,      /* gpt-oss: _blocks and _scales                    */
    BERTH_ENCODING_FOREIGN = 7,    /* recognised by name, never decoded               */
    BERTH_ENCODING_STATISTICS = 8
} berth_encoding;

/* "native", "nf4", ...; "unknown" for a number that is none. Never NULL. */
BERTH_API const char *berth_encoding_name(int32_t encoding);

/* ------------------------------------------------------------------ context */

/* Memory hooks. Purposes name what an allocation is for ("header", "ring"). */
typedef struct berth_allocator {
    void *user;
    /* `alignment` is a power of two. NULL means out of memory. Any thread. */
    void *(*alloc)(void *user, size_t bytes, size_t alignment, const char *purpose);
    /* Gets the size and alignment of the matching alloc. Any thread. */
    void (*free)(void *user, void *memory, size_t bytes, size_t alignment,
                 const char *purpose);
} berth_allocator;

typedef enum berth_log_level {
    BERTH_LOG_DEBUG = 0,
    BERTH_LOG_INFO = 1,
    BERTH_LOG_WARNING = 2
} berth_log_level;

typedef struct berth_context_options {
    size_t struct_size; /* set by berth_context_options_init() */
    const berth_allocator *allocator; /* copied; NULL: the C library's              */
    /* One whole line without newline. Any thread, never two at once per context.   */
    void (*log)(void *user, int32_t level, const char *line);
    void *log_user;
    uint64_t memory_limit; /* ceiling of what the context allocates; 0: none        */
} berth_context_options;

static inline void
berth_context_options_init(berth_context_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

typedef struct berth_context berth_context;

/*
 * berth_context_create() makes the object that carries hooks and accounts. It
 * starts no thread and opens no file. `options` may be NULL.
 * Free it with berth_context_destroy(), after everything made from it.
 * Returns BERTH_OK, BERTH_EINVAL (options of a newer header) or BERTH_ENOMEM.
 */
BERTH_API berth_status berth_context_create(const berth_context_options *options,
                                            berth_context **out_context,
                                            berth_error *error);
/* NULL is allowed. */
BERTH_API void berth_context_destroy(berth_context *context);

/* What the context has allocated for everything made from it. */
typedef struct berth_memory_summary {
    uint64_t current_bytes;
    uint64_t peak_bytes;
    uint64_t allocations; /* ever made */
    uint64_t frees;
    uint64_t reserved[4];
} berth_memory_summary;

/* Any thread. */
BERTH_API void berth_context_memory(const berth_context *context,
                                    berth_memory_summary *summary);

/* --------------------------------------------------------------------- host */

#define BERTH_MAX_NUMA_NODES 64

/*
 * This machine as berth sees it. Unknown numbers are UINT64_MAX (UINT32_MAX
 * where they are 32 bits wide), never 0 and never a guess; unknown texts "".
 */
typedef struct berth_host {
    char cpu_name[64];
    char cpu_level[16];         /* level in use: "scalar", "avx2", "avx512", ... */
    uint32_t cores;             /* this process may run on, affinity and quota applied */
    uint32_t cores_online;
    uint32_t numa_node_count;   /* entries of numa_memory; 0: unknown                 */
    int32_t is_pinned_unlimited; /* 1: no RLIMIT_MEMLOCK; pinned_limit is UINT64_MAX   */
    uint64_t numa_memory[BERTH_MAX_NUMA_NODES]; /* total bytes per node            */
    uint64_t memory_total;      /* of the machine                                     */
    uint64_t memory_available;  /* what this process can still take, limits applied   */
    uint64_t memory_limit;      /* of the ceiling that leaves this process least      */
    uint64_t memory_used;       /* of that ceiling, reclaimable cache left out        */
    char memory_limit_source[256]; /* "machine", "cgroup v2 /a/b", "RLIMIT_AS", ...   */
    uint64_t pinned_limit;      /* RLIMIT_MEMLOCK                                     */
    char kernel[64];            /* "Linux 6.1.0"                                      */
    int32_t has_io_uring;       /* 1: a ring could be set up                          */
    int32_t has_libdeflate;     /* 1: crc32 at full speed                             */
    int32_t has_libcrypto;      /* 1: SHA-256 of hub blobs can be checked             */
    int32_t gpu_supported;      /* 0: this build drives no GPU                        */
    int32_t has_reciprocals;    /* 1: 1/x as recorded on a GPU; 0: correctly rounded, which
                                   differs from a GPU in the last bit of some codes     */
    int32_t reserved32;
    uint64_t reserved[8];
} berth_host;

/*
 * berth_host_get() asks the kernel; nothing is kept. What cannot be read is
 * unknown and no error. Returns BERTH_OK or BERTH_ENOMEM.
 */
BERTH_API berth_status berth_host_get(berth_context *context, berth_host *host,
                                      berth_error *error);

/* ---------------------------------------------------------------- findings */

typedef enum berth_severity {
    BERTH_SEVERITY_NOTE = 0,
    BERTH_SEVERITY_WARNING = 1,
    BERTH_SEVERITY_ERROR = 2
} berth_severity;

/* One thing that is wrong or remarkable. */
typedef struct berth_finding {
    int32_t severity;           /* berth_severity                                     */
    uint32_t reserved32;
    const berth_error *details;
    const char *name;   /* of what details->tensor shows, whole: bytes as stored, no  */
    size_t name_length; /* NUL behind them; NULL where it shows nothing               */
    uint64_t reserved[4];
} berth_finding;

/*
 * Called for each finding, which is borrowed with all it points to.
 * During berth_checkpoint_open(): on the calling thread. During a job: on a
 * thread of the job, never two at once.
 */
typedef void (*berth_finding_function)(void *user, const berth_finding *finding);

/* --------------------------------------------------------------- checkpoint */

typedef struct berth_open_options {
    size_t struct_size;    /* set by berth_open_options_init()                        */
    const char *hub_cache; /* folder of models--org--name; NULL: `org/name` is a path */
    const char *variant;   /* "fp16" finds model.fp16.safetensors; NULL: none         */
    berth_finding_function finding;
    void *finding_user;
    int32_t keep_going; /* 1: report every error as a finding before failing          */
    int32_t strict;     /* 1: what berth itself would not write is an error           */
    int32_t all_files;  /* 1: a folder with several unindexed files is one model      */
    int32_t inside_only; /* 1: refuse links that leave the model's folder or cache    */
} berth_open_options;

static inline void
berth_open_options_init(berth_open_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

typedef struct berth_checkpoint berth_checkpoint;

/*
 * berth_checkpoint_open() reads headers, index and configuration of the model
 * at `path` and checks that every byte the headers promise is there. It reads
 * no payload except companions of quantized tensors below 64 KiB.
 *
 * `path`: a directory with model.safetensors or an index and shards, a single
 * .safetensors or .index.json file, a repository of the hub cache as
 * `org/name` or `org/name@revision`, or one of the cache's own folders.
 *
 * The files stay open until berth_checkpoint_close(), so that later reads see
 * the files that were checked: one descriptor a shard. Any number of
 * checkpoints may be open at once.
 *
 * Returns BERTH_OK, or
 *   BERTH_ENOENT        nothing there, or not readable
 *   BERTH_EFORMAT       incomplete or malformed; error->reason says how
 *   BERTH_EUNSUPPORTED  another kind of file, named
 *   BERTH_EPOLICY       `strict` and not canonical
 *   BERTH_EIO           the kernel failed to read, or the file changed
 *   BERTH_ENOMEM, BERTH_EINVAL
 */
BERTH_API berth_status berth_checkpoint_open(berth_context *context, const char *path,
                                             const berth_open_options *options,
                                             berth_checkpoint **out_checkpoint,
                                             berth_error *error);
/* NULL is allowed. */
BERTH_API void berth_checkpoint_close(berth_checkpoint *checkpoint);

/* Texts are borrowed from the checkpoint; "" where the files do not say. */
typedef struct berth_checkpoint_summary {
    const char *path;         /* as resolved: folder or file                          */
    const char *architecture; /* config.json: first of "architectures"                */
    const char *model_type;   /* config.json                                          */
    const char *dtype;        /* config.json: "bfloat16", ...                         */
    const char *quant_method; /* "bitsandbytes", "fp8", "mxfp4", ... or ""            */
    const char *revision;     /* commit, when it came from the hub cache              */
    uint32_t shard_count;
    int32_t is_sharded;       /* 1: an index names the shards                         */
    int32_t ties_embeddings;  /* config.json says so; -1: it does not say             */
    int32_t is_adapter;       /* 1: adapter_model: not a model by itself              */
    uint64_t tensor_count;
    uint64_t tensor_bytes;    /* sum over tensors                                     */
    uint64_t file_bytes;      /* sum over shards                                      */
    uint64_t parameter_count; /* values of the model, packed ones unpacked            */
    uint64_t quantized_count; /* weights with an encoding other than native           */
    uint64_t reserved[6];
} berth_checkpoint_summary;

BERTH_API void berth_checkpoint_get(const berth_checkpoint *checkpoint,
                                    berth_checkpoint_summary *summary);

typedef struct berth_shard {
    const char *file;      /* below the folder that the summary's path is or is in   */
    const char *target;    /* what a link points to, or ""                           */
    const char *blob_sha256; /* 64 hex digits a hub blob promises, or ""             */
    uint64_t file_bytes;
    uint64_t header_bytes; /* N: the JSON with its padding                           */
    uint64_t tensor_count;
    uint64_t first_tensor; /* tensors of a shard follow each other                   */
    uint64_t metadata_count;
    uint64_t reserved[4];
} berth_shard;

/* Returns BERTH_EINVAL for an index that is out of range. */
BERTH_API berth_status berth_checkpoint_shard(const berth_checkpoint *checkpoint,
                                              uint32_t index, berth_shard *shard);

/* One pair of a shard's __metadata__, in the order of its keys, bytes as stored. */
BERTH_API berth_status berth_checkpoint_metadata(const berth_checkpoint *checkpoint,
                                                 uint32_t shard, uint64_t index,
                                                 const char **key, size_t *key_length,
                                                 const char **value, size_t *value_length);

#define BERTH_MAX_RANK 64
#define BERTH_NO_TENSOR UINT64_MAX

/* One tensor. Names are borrowed and end in NUL, but may hold any other byte. */
typedef struct berth_tensor {
    const char *name;
    size_t name_length;
    int32_t dtype;    /* berth_dtype                                                  */
    int32_t encoding; /* berth_encoding                                               */
    uint32_t rank;
    uint32_t shard;
    uint64_t shape[BERTH_MAX_RANK]; /* elements as stored                             */
    uint64_t elements;
    uint64_t bytes;
    uint64_t file_offset; /* of the first byte, from the start of the file            */
    uint64_t owner;       /* statistics: index of their weight; else BERTH_NO_TENSOR  */
    uint64_t reserved[4];
} berth_tensor;

/*
 * Tensors are numbered shard by shard, in the order of their bytes.
 * Returns BERTH_EINVAL for an index that is out of range.
 */
BERTH_API berth_status berth_checkpoint_tensor(const berth_checkpoint *checkpoint,
                                               uint64_t index, berth_tensor *tensor);

/* The tensor's index, or BERTH_NO_TENSOR. Logarithmic. */
BERTH_API uint64_t berth_checkpoint_find(const berth_checkpoint *checkpoint,
                                         const char *name, size_t name_length);

/* What a quantized weight was before, and where its statistics are. */
typedef struct berth_quantized {
    int32_t encoding;
    int32_t dtype;        /* berth_dtype of the values; -1: the model's               */
    uint32_t block_size;  /* nf4, fp4: elements; fp8: rows; mxfp4: 32                 */
    uint32_t block_columns; /* fp8: columns; else 0                                   */
    int32_t is_double;    /* absmax stored as 8-bit codes                             */
    uint32_t rank;
    uint64_t shape[BERTH_MAX_RANK]; /* of the values                                  */
    uint64_t elements;
    uint64_t total_bytes; /* weight and statistics                                    */
    uint32_t companion_count;
    uint32_t reserved32;
    uint64_t companions[8]; /* tensor indexes                                         */
    double offset;          /* double quantization                                    */
    const char *method;     /* "bitsandbytes nf4", "gptq", ...                        */
    uint64_t reserved[4];
} berth_quantized;

/* Returns BERTH_EINVAL if the tensor at `index` is not a quantized weight. */
BERTH_API berth_status berth_checkpoint_quantized(const berth_checkpoint *checkpoint,
                                                  uint64_t index,
                                                  berth_quantized *quantized);

/*
 * berth_checkpoint_read() copies rows [first_row, first_row + row_count) of a
 * tensor, bytes as stored, into `buffer`. Rows are slices of the first
 * dimension; a scalar has one row. `row_count` UINT64_MAX means the rest.
 * `size` must be exactly the bytes asked for.
 *
 * Returns BERTH_OK, BERTH_EINVAL (rows, size, or a row that does not begin and
 * end on a byte), BERTH_EIO (also: the file changed since it was opened).
 */
BERTH_API berth_status berth_checkpoint_read(berth_checkpoint *checkpoint, uint64_t index,
                                             uint64_t first_row, uint64_t row_count,
                                             void *buffer, uint64_t size,
                                             berth_error *error);

/* --------------------------------------------------------------------- jobs */

typedef struct berth_progress {
    const char *phase;  /* "read", ...                                                */
    const char *file;   /* being read; "" when there is none                          */
    uint64_t done;      /* bytes, never decreasing, ends at exactly `total`           */
    uint64_t total;
    double seconds;     /* since the start                                            */
    double rate;        /* bytes a second over the last seconds                       */
    int32_t is_stalled; /* 1: nothing moved for more than 5 s                         */
    int32_t reserved32;
    uint64_t reserved[4];
} berth_progress;

/*
 * At least every 250 ms while the job runs, on a thread of the job, never
 * after the job was finished. Return other than 0 to cancel.
 */
typedef int (*berth_progress_function)(void *user, const berth_progress *progress);

typedef struct berth_job berth_job;

/* Any thread, any number of times. */
BERTH_API void berth_job_cancel(berth_job *job);

/* Where the job stands. Any thread. */
BERTH_API void berth_job_poll(berth_job *job, berth_progress *progress);

/*
 * Waits until the job has ended or `milliseconds` have passed (-1: for ever).
 * Returns BERTH_PENDING, or the status the job ended with. Any thread.
 */
BERTH_API berth_status berth_job_wait(berth_job *job, int64_t milliseconds);

/*
 * Waits for the end, gives everything back and returns the job's status, with
 * its first error. A cancelled job returns BERTH_ECANCELLED, also when its
 * last byte had been read. NULL is allowed: BERTH_OK.
 */
BERTH_API berth_status berth_job_finish(berth_job *job, berth_error *error);

/* ------------------------------------------------------------------- verify */

typedef enum berth_io {
    BERTH_IO_AUTO = 0,     /* direct where bytes are cold, buffered where cached */
    BERTH_IO_DIRECT = 1,
    BERTH_IO_BUFFERED = 2
} berth_io;

typedef enum berth_manifest_mode {
    BERTH_MANIFEST_NONE = 0,  /* read everything, check hub blobs                     */
    BERTH_MANIFEST_CHECK = 1, /* compare with the manifest                            */
    BERTH_MANIFEST_WRITE = 2  /* write one: temporary file, fsync, rename             */
} berth_manifest_mode;

typedef struct berth_verify_report {
    uint64_t bytes_read;
    uint64_t tensors_digested;
    uint64_t blobs_checked;  /* SHA-256 compared                                      */
    uint64_t blobs_unchecked; /* promised a SHA-256 that could not be computed        */
    uint64_t mismatches;
    double seconds;
    char io_path[64]; /* "io_uring direct", "threads buffered", ...                   */
    uint64_t reserved[8];
} berth_verify_report;

typedef struct berth_verify_options {
    size_t struct_size;   /* set by berth_verify_options_init()                       */
    int32_t manifest_mode;
    int32_t io;           /* berth_io                                                 */
    const char *manifest; /* path of the manifest file                                */
    int32_t overwrite;    /* 1: replace an existing manifest                          */
    uint32_t threads;     /* reader threads; 0: default                               */
    uint64_t ring_bytes;  /* byte cap of the staging ring; 0: 32 MiB                  */
    berth_progress_function progress;
    void *progress_user;
    berth_finding_function finding; /* mismatches, one each                           */
    void *finding_user;
    berth_verify_report *report; /* filled when the job ends; must outlive the job    */
    int32_t no_uring;     /* 1: threads even where io_uring works                     */
    int32_t no_blobs;     /* 1: do not check the SHA-256 of hub blobs                 */
} berth_verify_options;

static inline void
berth_verify_options_init(berth_verify_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

/*
 * berth_verify_start() reads every byte of the checkpoint once, at the speed
 * of the disk, with memory that does not depend on its size: crc32 of every
 * tensor against the manifest (or into a new one), SHA-256 of hub blobs
 * against their names. The checkpoint must outlive the job.
 *
 * A mismatch does not stop the job: each is a finding, and the job ends with
 * BERTH_EINTEGRITY. Finish it with berth_job_finish().
 */
BERTH_API berth_status berth_verify_start(berth_context *context,
                                          berth_checkpoint *checkpoint,
                                          const berth_verify_options *options,
                                          berth_job **out_job, berth_error *error);

/* ------------------------------------------------------------------ convert */

/* What became of some of the parameters, and why. Borrowed during the call. */
typedef struct berth_coverage {
    const char *cause; /* "linear layer", "skip list: lm_head (output head)", ...; escaped;
                          "" in the lines that sum an encoding up                     */
    int32_t encoding;  /* that these tensors got                                      */
    int32_t reserved32;
    uint64_t tensors;
    uint64_t parameters;
    uint64_t source_bytes; /* as plain values of the model's dtype                    */
    uint64_t stored_bytes; /* as written, statistics included                         */
    uint64_t reserved[4];
} berth_coverage;

/* First one line an encoding, then one line a cause. On the calling thread. */
typedef void (*berth_coverage_function)(void *user, const berth_coverage *line);

typedef struct berth_convert_report {
    uint64_t bytes_read;
    uint64_t bytes_written;
    uint64_t bytes_resumed;    /* of shards that an earlier run had finished          */
    uint64_t tensors_written;
    uint64_t quantized;        /* weights with an encoding other than native          */
    uint64_t parameters;
    uint64_t coverage;         /* quantized parameters among all, in billionths       */
    uint64_t nonfinite_values; /* NaN and infinities in what was quantized            */
    uint64_t nonfinite_tensors;
    uint64_t planned_bytes;    /* of the output, weights only                         */
    uint64_t planned_memory;   /* what the job allocates at most                      */
    uint32_t shards;
    int32_t bottleneck;        /* 0 read, 1 convert, 2 write                          */
    double read_seconds;       /* the ring was empty: everybody waited for reads      */
    double convert_seconds;    /* summed over threads                                 */
    double write_seconds;
    double seconds;
    char io_path[64];          /* "io_uring direct", ...                              */
    uint64_t reserved[8];
} berth_convert_report;

typedef struct berth_convert_options {
    size_t struct_size;    /* set by berth_convert_options_init()                     */
    const char *output;    /* folder that is to hold the new checkpoint               */
    int32_t type;          /* BERTH_ENCODING_NF4, _FP4 or _INT8; _NATIVE: dequantize  */
    int32_t dtype;         /* load as BERTH_BF16, _F16 or _F32 first; -1: the model's */
    int32_t storage;       /* dtype that 4-bit codes are stored as; -1: BERTH_U8      */
    uint32_t block_size;   /* 4-bit: 32 to 4096, a power of two; 0: 64                */
    int32_t double_quant;  /* 1: absmax as 8-bit codes                                */
    int32_t takes_experts; /* 1: experts that the model fuses are quantized, too      */
    const char *like;      /* "hf5", "hf5.14", "hf5.0", "hf4": whose choice of layers;
                              NULL: "hf5"                                             */
    const char *const *skip_modules; /* instead of the automatic list, if has_skips   */
    const char *const *keep;         /* globs on names: not quantized                 */
    const char *const *only;         /* globs on names: nothing else is quantized     */
    uint32_t skip_count;
    uint32_t keep_count;
    uint32_t only_count;
    int32_t has_skips;
    const char *rules;        /* path of a file of rules, berth-rules(5); NULL: none  */
    const char *compute_dtype; /* for config.json; NULL: "float32"                    */
    uint64_t min_coverage;    /* billionths of the parameters; less is BERTH_EPOLICY  */
    uint64_t max_shard_bytes; /* 0: 5 GB                                              */
    int32_t overwrite;        /* 1: replace what is there                             */
    int32_t resume;           /* 1: go on with what the same command has finished     */
    int32_t reject_nonfinite; /* 1: NaN and infinities are BERTH_EPOLICY              */
    int32_t dry_run;          /* 1: decide, count, report, write nothing              */
    int32_t io;               /* berth_io                                             */
    int32_t no_uring;
    uint32_t readers;         /* reader threads; 0: default                           */
    uint32_t workers;         /* that convert; 0: one a usable core                   */
    uint64_t ring_bytes;      /* byte cap of the staging ring; 0: 128 MiB             */
    berth_progress_function progress;
    void *progress_user;
    berth_finding_function finding; /* non-finite values, remarks on rules            */
    void *finding_user;
    berth_coverage_function coverage;
    void *coverage_user;
    berth_convert_report *report; /* filled as the job goes; must outlive it          */
} berth_convert_options;

static inline void
berth_convert_options_init(berth_convert_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    options->dtype = -1;
    options->storage = -1;
}

/*
 * berth_convert_start() writes the checkpoint anew in another encoding, in the
 * layout that transformers and bitsandbytes read as their own: quantized from
 * plain or quantized weights, or dequantized. Decides what becomes of every
 * tensor and calls `coverage` before it returns; then one pass over the
 * weights, with memory that does not depend on their size.
 *
 * The output appears when it is complete: temporary files, flush, rename, the
 * index last. What a run that was cancelled, killed or out of space has
 * finished is kept for one with `resume`, which writes the same bytes.
 * The checkpoint must outlive the job. Finish it with berth_job_finish().
 *
 * Returns BERTH_OK, BERTH_EINVAL (options; an output that exists),
 * BERTH_EUNSUPPORTED (an encoding that berth names but does not decode),
 * BERTH_EPOLICY (min_coverage), BERTH_EFORMAT, BERTH_ENOMEM, BERTH_EIO.
 */
BERTH_API berth_status berth_convert_start(berth_context *context,
                                           berth_checkpoint *checkpoint,
                                           const berth_convert_options *options,
                                           berth_job **out_job, berth_error *error);

/* --------------------------------------------------------------------- diff */

typedef enum berth_diff_kind {
    BERTH_DIFF_COMPARED = 0,
    BERTH_DIFF_ONLY_A = 1, /* the other checkpoint has no weight of this name         */
    BERTH_DIFF_ONLY_B = 2,
    BERTH_DIFF_SHAPE = 3,  /* the values have other shapes: nothing was compared      */
    BERTH_DIFF_DTYPE = 4   /* numbers that have no common values: I64 and BF16, ...   */
} berth_diff_kind;

/*
 * Buckets of |a - b|, in powers of two of `unit`:
 *   0        exactly equal
 *   1        less than unit * 2^-24
 *   2 ... 30 at least unit * 2^(i - 26), less than twice that
 *   31       at least unit * 2^5
 */
#define BERTH_DIFF_BUCKETS 32

/*
 * Values of A against values of B, as 32-bit floats, where both are finite.
 * Sums are made in double: a weight is cut into parts by nothing but its
 * shapes and encodings, a part is summed pairwise, parts are added in their
 * order. So they depend on neither threads nor buffers.
 */
typedef struct berth_diff_errors {
    uint64_t count;       /* values compared                                          */
    uint64_t different;   /* of them: not equal                                       */
    uint64_t nonfinite;   /* pairs that are not the same NaN or infinity on both sides */
    double maximum;       /* of |a - b|                                               */
    double mean;          /* of |a - b|                                               */
    double rms_a;         /* sqrt(mean of a^2)                                        */
    double rms_error;     /* sqrt(mean of (a - b)^2)                                  */
    double relative;      /* ||a - b|| / ||a||: 0 without error, infinite for a = 0   */
    double snr;           /* -20 log10(relative), decibels: infinite without error    */
    double unit;          /* largest power of two <= rms_a; 1 where that is 0         */
    uint64_t histogram[BERTH_DIFF_BUCKETS];
    uint64_t reserved[4];
} berth_diff_errors;

/* One side of a pair. Of the side that is not there everything is zero. */
typedef struct berth_diff_side {
    uint64_t tensor;     /* index in its checkpoint                                   */
    int32_t encoding;    /* berth_encoding                                            */
    int32_t dtype;       /* of the values; of the stored numbers where it is native   */
    uint32_t block_size; /* as in berth_quantized; 0: native                          */
    int32_t is_double;
    uint32_t rank;
    uint32_t reserved32;
    uint64_t shape[BERTH_MAX_RANK]; /* of the values                                  */
    uint64_t bytes;      /* weight and statistics                                     */
    uint64_t nan;        /* values                                                    */
    uint64_t infinite;
    uint64_t reserved[4];
} berth_diff_side;

/* What was found out about one weight. */
typedef struct berth_diff_tensor {
    const char *name;    /* of its values, in A where A has it; ends at name_length   */
    size_t name_length;
    int32_t kind;        /* berth_diff_kind: the rest only where it was compared      */
    int32_t is_turned;   /* 1: rows of one side are columns of the other              */
    int32_t is_same;     /* 1: the same bytes, statistics included                    */
    int32_t has_codes;   /* 1: the same encoding: `codes` counts                      */
    int32_t has_same_statistics; /* 1: of the same encoding, with the same absmax, scales */
    int32_t has_values;  /* 1: `errors` counts; 0: numbers compared by their bytes    */
    int32_t is_rejected; /* 1: beyond a limit of the options                          */
    int32_t reserved32;
    uint64_t elements;
    uint64_t codes;      /* that differ: stored numbers, two in a byte of 4-bit ones  */
    berth_diff_side a;
    berth_diff_side b;
    berth_diff_errors errors;
    uint64_t reserved[4];
} berth_diff_tensor;

/*
 * One call a weight, in the order of names, all that is pointed to borrowed.
 * On a thread of the job, never two at once.
 */
typedef void (*berth_diff_function)(void *user, const berth_diff_tensor *tensor);

typedef struct berth_diff_report {
    uint64_t compared;    /* weights                                                  */
    uint64_t same;        /* of them: bytes, statistics included                      */
    uint64_t equal;       /* of them: values, whatever the bytes                      */
    uint64_t only_a;
    uint64_t only_b;
    uint64_t other_shape;
    uint64_t other_dtype;
    uint64_t rejected;    /* weights beyond a limit of the options                    */
    uint64_t elements;    /* of what was compared                                     */
    uint64_t codes;       /* that differ, where both sides have the same encoding     */
    uint64_t nan_a;       /* values                                                   */
    uint64_t nan_b;
    uint64_t infinite_a;
    uint64_t infinite_b;
    berth_diff_errors errors; /* of all values; each in its weight's bucket; unit: 0  */
    uint64_t worst;       /* tensor of A with the largest `relative`; BERTH_NO_TENSOR */
    double worst_relative;
    uint64_t bytes_read;
    uint64_t planned_memory; /* what the job allocates at most, beside statistics     */
    double seconds;
    char io_path[64];     /* "io_uring direct", ...                                   */
    uint64_t reserved[8];
} berth_diff_report;

typedef struct berth_diff_options {
    size_t struct_size;       /* set by berth_diff_options_init()                     */
    int32_t has_min_snr;      /* 1: a weight below min_snr is rejected                */
    int32_t has_max_relative; /* 1: a weight above max_relative is rejected           */
    double min_snr;           /* decibels                                             */
    double max_relative;      /* 0: only equal values pass                            */
    int32_t requires_same;    /* 1: a weight with other bytes is rejected             */
    int32_t allows_missing;   /* 1: weights of one side only are never rejected       */
    int32_t io;               /* berth_io                                             */
    int32_t no_uring;
    uint32_t readers;         /* reader threads; 0: default                           */
    uint32_t workers;         /* that compare; 0: one a usable core                   */
    uint64_t ring_bytes;      /* byte cap of the staging ring; 0: 64 MiB              */
    berth_progress_function progress;
    void *progress_user;
    berth_diff_function tensor;
    void *tensor_user;
    berth_diff_report *report; /* filled when the job ends; must outlive it           */
} berth_diff_options;

static inline void
berth_diff_options_init(berth_diff_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

/*
 * berth_diff_start() compares two checkpoints weight by weight, each decoded
 * from whatever it is stored as; both are read once. Weights belong together by
 * the names of their values: gpt-oss' `x_blocks` is `x`; a Conv1D that
 * bitsandbytes holds turned is compared as the matrix it is.
 *
 * With one of the three limits, a weight that was not compared is rejected,
 * too, and so is one whose NaN and infinities differ. The job goes on to the
 * end and returns BERTH_EPOLICY, naming the first that was rejected. Memory
 * does not depend on sizes, but for the statistics of one weight of each side.
 * Both checkpoints must outlive the job; they may be the same. Finish it with
 * berth_job_finish().
 *
 * Returns BERTH_OK, BERTH_EINVAL, BERTH_EUNSUPPORTED (an encoding that berth
 * names but does not decode), BERTH_EFORMAT, BERTH_ENOMEM, BERTH_EIO.
 */
BERTH_API berth_status berth_diff_start(berth_context *context, berth_checkpoint *a,
                                        berth_checkpoint *b,
                                        const berth_diff_options *options,
                                        berth_job **out_job, berth_error *error);

/* ------------------------------------------------------------------- values */

/*
 * Weights in memory of the caller: no file, no object, any thread. Nothing is
 * kept; large ones are worked on by several threads that end with the call.
 * What comes out does not depend on their number and, but for the last bits of
 * products, not on the processor.
 */

/* What a tensor that belongs to a stored weight holds. Pinned. */
typedef enum berth_role {
    BERTH_ROLE_CODES = 1,
    BERTH_ROLE_ABSMAX = 2,   /* 4-bit: F32 a block; doubly quantized: U8 codes        */
    BERTH_ROLE_ABSMAX2 = 3,  /* second level: F32, one for 256 of the first           */
    BERTH_ROLE_MAP2 = 4,     /* the same for all weights                              */
    BERTH_ROLE_MAP = 5,      /* the same for all weights of an encoding               */
    BERTH_ROLE_STATE = 6,    /* JSON, see berth_values_state()                        */
    BERTH_ROLE_ROW_MAXIMUM = 7, /* INT8: F32 a row                                    */
    BERTH_ROLE_ROW_FORMAT = 8   /* INT8: the same for all weights                     */
} berth_role;

/* How a weight is stored. */
typedef struct berth_values_options {
    size_t struct_size;    /* set by berth_values_options_init()                      */
    int32_t encoding;      /* BERTH_ENCODING_NF4, _FP4 or _INT8                       */
    int32_t dtype;         /* of the values: BERTH_BF16, _F16 or _F32                 */
    const uint64_t *shape; /* of the values; INT8 and products: rows, columns         */
    uint32_t rank;
    uint32_t block_size;   /* 4-bit: 32 to 4096, a power of two; 0: 64                */
    int32_t storage;       /* 4-bit: dtype that codes are stored as; -1: BERTH_U8     */
    int32_t double_quant;  /* 4-bit, 1: absmax as 8-bit codes                         */
    uint32_t threads;      /* 0: one a usable core                                    */
    uint32_t reserved32;
} berth_values_options;

static inline void
berth_values_options_init(berth_values_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    options->dtype = BERTH_BF16;
    options->storage = -1;
}

#define BERTH_VALUES_PARTS 8

/*
 * One tensor that a weight is stored as. It is called as the weight without
 * the last `cut` characters of its name ("weight", for those of INT8 beside its
 * codes), then `suffix`.
 */
typedef struct berth_values_part {
    int32_t role;       /* berth_role                                                 */
    int32_t dtype;
    uint32_t rank;
    int32_t is_late;    /* 1: STATE; `bytes` is a guess until the offset is known     */
    uint64_t shape[2];
    uint64_t bytes;
    uint64_t cut;
    const char *suffix; /* ".absmax", "SCB", ...; "" for the codes. A constant        */
    uint64_t reserved[4];
} berth_values_part;

/*
 * berth_values_list() says as which tensors such a weight is stored: *out_count
 * of `parts`, the codes first. Neither values nor memory are needed.
 * Returns BERTH_OK, or BERTH_EINVAL saying why no weight is stored so.
 */
BERTH_API berth_status berth_values_list(const berth_values_options *options,
                                         berth_values_part parts[BERTH_VALUES_PARTS],
                                         uint32_t *out_count, berth_error *error);

/*
 * berth_values_constant() writes a part whose bytes are the same for all
 * weights: MAP, MAP2, ROW_FORMAT; `size` is its `bytes`.
 */
BERTH_API berth_status berth_values_constant(const berth_values_options *options,
                                             int32_t role, void *buffer, uint64_t size,
                                             berth_error *error);

/*
 * berth_values_state() writes the state of a 4-bit weight, which readers take
 * shape, block size and dtype from. `offset` counts when doubly quantized.
 * *out_length is the length of the whole text; up to `capacity` of it are
 * written, without NUL.
 */
BERTH_API berth_status berth_values_state(const berth_values_options *options,
                                          float offset, char *text, size_t capacity,
                                          size_t *out_length, berth_error *error);

/*
 * A stored weight in the caller's memory. Sizes must be those that
 * berth_values_list() gives; absmax and absmax2 are aligned as float where they
 * hold F32. What a weight has not is NULL and 0.
 */
typedef struct berth_values_buffers {
    size_t struct_size;  /* set by berth_values_buffers_init()                        */
    void *codes;
    uint64_t codes_bytes;
    void *absmax;        /* ABSMAX or ROW_MAXIMUM                                     */
    uint64_t absmax_bytes;
    float *absmax2;      /* doubly quantized                                          */
    uint64_t absmax2_bytes;
    float offset;        /* doubly quantized: of the state                            */
    uint32_t reserved32;
} berth_values_buffers;

static inline void
berth_values_buffers_init(berth_values_buffers *buffers)
{
    memset(buffers, 0, sizeof *buffers);
    buffers->struct_size = sizeof *buffers;
}

/*
 * berth_values_quantize() writes codes, statistics and `offset` of `values`,
 * which are of options->dtype and `size` bytes. The same bytes as in a
 * checkpoint that berth_convert_start() writes. Takes four bytes a block from
 * the context where it quantizes doubly.
 *
 * Returns BERTH_OK, BERTH_EINVAL (a size, an alignment, buffers that overlap;
 * nothing was written), BERTH_ENOMEM.
 */
BERTH_API berth_status berth_values_quantize(berth_context *context,
                                             const berth_values_options *options,
                                             const void *values, uint64_t size,
                                             berth_values_buffers *buffers,
                                             berth_error *error);

/* The way back: values of options->dtype. Returns as above. */
BERTH_API berth_status berth_values_dequantize(berth_context *context,
                                               const berth_values_options *options,
                                               const berth_values_buffers *buffers,
                                               void *values, uint64_t size,
                                               berth_error *error);

/*
 * berth_values_recover() decodes both levels of a doubly quantized weight into
 * the absmax that it has without: with them and double_quant 0, products need
 * not do it again. `size`: 4 bytes a block.
 */
BERTH_API berth_status berth_values_recover(const berth_values_options *options,
                                            const berth_values_buffers *buffers,
                                            float *absmax, uint64_t size,
                                            berth_error *error);

#define BERTH_VALUES_INPUTS 32

/* inputs x weight^T: outputs[i][row] = sum over k of inputs[i][k] weight[row][k] */
typedef struct berth_values_product {
    size_t struct_size;  /* set by berth_values_product_init()                        */
    const void *inputs;  /* count x columns                                           */
    void *outputs;       /* count x rows, of the same dtype                           */
    uint64_t inputs_bytes;
    uint64_t outputs_bytes;
    uint32_t count;      /* 1 to BERTH_VALUES_INPUTS                                  */
    int32_t dtype;       /* of both: BERTH_BF16, _F16 or _F32                         */
    float threshold;     /* INT8: columns of inputs that reach it are multiplied as
                            they are; 0: none                                         */
    uint32_t reserved32;
    const uint16_t *bias; /* INT8: F16, one a row, or NULL                            */
    uint64_t bias_bytes;
} berth_values_product;

static inline void
berth_values_product_init(berth_values_product *product)
{
    memset(product, 0, sizeof *product);
    product->struct_size = sizeof *product;
    product->dtype = BERTH_BF16;
}

/*
 * berth_values_multiply() multiplies vectors by a weight where it lies. 4-bit:
 * in 32-bit floats, rounded once at the end; with BF16 inputs the 16 values of
 * the encoding count as rounded to BF16. INT8: as LLM.int8() does. An input
 * gives the same bits alone or among others, but for INT8's outlier columns,
 * which all inputs share. Takes memory beside both from the context.
 *
 * Returns BERTH_OK, BERTH_EINVAL, BERTH_ENOMEM.
 */
BERTH_API berth_status berth_values_multiply(berth_context *context,
                                             const berth_values_options *options,
                                             const berth_values_buffers *buffers,
                                             const berth_values_product *product,
                                             berth_error *error);

/* ------------------------------------------------------------------- config */

/*
 * The values of a model's config.json. A key is a path: "hidden_size",
 * "rope_scaling.type", "layer_types.3" (the fourth element). A backslash takes
 * the next character as it is: "a\\.b" in C is the member "a.b".
 */
typedef struct berth_config berth_config;

typedef enum berth_config_kind {
    BERTH_CONFIG_ABSENT = 0,
    BERTH_CONFIG_NULL = 1,
    BERTH_CONFIG_BOOL = 2,
    BERTH_CONFIG_NUMBER = 3,
    BERTH_CONFIG_STRING = 4,
    BERTH_CONFIG_ARRAY = 5,
    BERTH_CONFIG_OBJECT = 6
} berth_config_kind;

/*
 * berth_config_open() reads config.json beside the checkpoint's weights. It
 * never changes afterwards, may be shared, and may outlive the checkpoint, not
 * the context. Free it with berth_config_close().
 * Returns BERTH_OK, BERTH_ENOENT (there is none), BERTH_EFORMAT (no JSON),
 * BERTH_EIO, BERTH_ENOMEM, BERTH_EINVAL.
 */
BERTH_API berth_status berth_config_open(berth_context *context,
                                         const berth_checkpoint *checkpoint,
                                         berth_config **out_config, berth_error *error);
/* NULL is allowed. */
BERTH_API void berth_config_close(berth_config *config);

/* A berth_config_kind; ABSENT for keys that lead nowhere. */
BERTH_API int32_t berth_config_kind_of(const berth_config *config, const char *key);

/*
 * What lies under `key`. BERTH_OK; BERTH_ENOENT where there is nothing, or null,
 * so that a default applies; BERTH_EINVAL where there is something else, or a
 * number that does not fit. Unless BERTH_OK the output is 0, or NULL.
 */
/* Borrowed until the config is closed; ends in NUL and holds no other. */
BERTH_API berth_status berth_config_string(const berth_config *config, const char *key,
                                           const char **out, berth_error *error);
/* Whole numbers; 1.0 and 1e3 are whole, too. */
BERTH_API berth_status berth_config_integer(const berth_config *config, const char *key,
                                            int64_t *out, berth_error *error);
/* NaN and the infinities as Python writes them are numbers. */
BERTH_API berth_status berth_config_double(const berth_config *config, const char *key,
                                           double *out, berth_error *error);
BERTH_API berth_status berth_config_bool(const berth_config *config, const char *key,
                                         int32_t *out, berth_error *error);
/* Elements of an array, members of an object. */
BERTH_API berth_status berth_config_length(const berth_config *config, const char *key,
                                           uint64_t *out, berth_error *error);
/* The name of the member of this number in an object, in the order of the file. */
BERTH_API berth_status berth_config_member(const berth_config *config, const char *key,
                                           uint64_t number, const char **out,
                                           berth_error *error);

#ifdef __cplusplus
}
#endif

#endif
