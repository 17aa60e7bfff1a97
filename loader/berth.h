/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berth.h - open, check and place large-language-model weights
 *
 * Order of use:  context -> checkpoint -> plan -> model -> lease; jobs.
 *
 * Ownership   A function that fills an `out_` pointer creates an object the
 *             caller must destroy with the call named in its comment. Objects
 *             are destroyed in the reverse of the order above. Every other
 *             pointer is borrowed for the duration of the call, and longer
 *             where its comment says so: what jobs and objects use on, and
 *             memory that a device works with after the call has returned,
 *             which stays until its stream is past it.
 * Failure     Every call that can fail returns a berth_status. On failure each
 *             `out_` pointer is NULL and nothing has been kept: no memory, no
 *             file, no thread; but for the finished shards of a conversion,
 *             which another one goes on from. `error`, where there is one, may
 *             be NULL.
 * Threads     A context may be shared by threads. A checkpoint never changes
 *             after it was opened and may be shared. Of any other object: one
 *             thread at a time, except where a call says "any thread". A
 *             thread that calls has 192 KiB of stack or more, of which berth itself
 *             takes less than 128 KiB; musl gives threads 128 KiB unless told more.
 * Process     The library prints nothing, installs no handlers, reads no
 *             environment, keeps no globals and never ends the process. Nothing that is the
 *             process's changes, but by berth_context_options.uses_tiles. Signals come to the
 *             caller's threads: berth's block them, in its callbacks, too, but for what a
 *             thread's own fault raises, SIGPIPE and SIGPROF. What they write beyond the
 *             largest size of a file is an error, without SIGXFSZ. How the caller's thread
 *             computes, its rounding, flushing of subnormal numbers, and exceptions that trap,
 *             changes no bits of weights, states and products, and stays as it is.
 *             A child of fork() may make a context of its own; what was made before is the
 *             parent's, and the child neither uses nor destroys it. It has no GPUs where the
 *             parent has used some: CUDA gives them to programs that are executed. These
 *             inherit none of berth's descriptors.
 * Callbacks   Of berth they may call what tells of a context, a checkpoint, a plan, a status or
 *             an error, berth_job_poll() and berth_job_cancel(), and whatever has to do with
 *             other objects than those that call them. Logs, traces and memory hooks are called
 *             with locks held: what tells of a checkpoint, a plan, a status or an error, and
 *             berth_context_memory(), is all that they may call.
 * Waiting     What hangs, a disk, a server, a device, ends loads, leases and moves
 *             in time: berth_load_options.wait_ms. Everything else waits for as
 *             long as the system does, where nobody can end a call; of jobs
 *             `is_stalled` tells that nothing moves. A cancel ends a verification,
 *             and the reading of slices, within five seconds all the same. Files are
 *             opened, and manifests, an index, config.json and, where a checkpoint is
 *             opened, headers read without a limit: by every call, and in every job.
 * Sizes       are bytes, in uint64_t, unless a name says otherwise.
 * Structs     Option structs start with their own size: fill them with their
 *             `_init` function, then set what matters; zero means default.
 *             Those of an array have one size and lie that far apart. Reserved
 *             words of theirs stay zero: a newer header may have made fields of
 *             them, so one that is set is BERTH_EINVAL, like a field behind the
 *             struct. Result structs end in reserved words, written as zero.
 * NULL        is named and BERTH_EINVAL where a call that has an `error` does not
 *             allow it. Calls that have none only look at what is there, and do
 *             not look for it, unless they say so.
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
#define BERTH_ECANCELLED (-130) /* cancelled: as after any other failure             */

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
    X(NOT_REGULAR, 32, BERTH_ENOENT, "not_regular", "name a regular file")                 \
    X(CHANGED, 33, BERTH_EIO, "changed", "let the writer finish, then try again")          \
    X(TRUNCATED, 34, BERTH_EIO, "truncated", "let the writer finish, then try again")      \
    X(PATH, 35, BERTH_EFORMAT, "path", "do not trust this model: its files must lie in "   \
                                       "its directory, under plain names")                 \
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
    X(TEXT_BODY, 49, BERTH_EFORMAT, "text_body", "if it was downloaded, the text says why " \
                                                 "not: check access, download again")      \
    X(BUSY, 50, BERTH_EIO, "busy", "wait for the other process or choose another output")  \
    X(JOURNAL, 51, BERTH_EFORMAT, "journal", "pass --force to begin anew")                 \
    X(PARTS, 52, BERTH_ENOENT, "parts", "run the parts that are missing")                  \
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
    X(STRAY_FILE, 69, BERTH_EPOLICY, "stray_file", "remove the file if it is stale")       \
    X(PARTIAL, 68, BERTH_EPOLICY, "partial", "name the model's folder to take all of it")  \
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
      "find the scales, the original weights, or the config.json that belongs to them")    \
    X(CONFIG_JSON, 100, BERTH_EFORMAT, "config_json", "download config.json again")        \
    X(ARCHITECTURE, 101, BERTH_EFORMAT, "architecture",                                    \
      "config.json and tensors describe no model that can be laid out: download both "     \
      "again")                                                                             \
    X(ARCHITECTURES_JSON, 102, BERTH_EFORMAT, "architectures_json",                        \
      "give a description of model classes as it comes with berth")                        \
    X(RULES, 103, BERTH_EINVAL, "rules", "correct the rule: see berth-rules(5)")           \
    X(RULE_UNUSED, 104, BERTH_EINVAL, "rule_unused",                                       \
      "correct the pattern; a rule of a file may be marked optional")                      \
    X(MIN_COVERAGE, 105, BERTH_EPOLICY, "min_coverage",                                    \
      "the coverage report says which rule left out what")                                 \
    X(NONFINITE, 106, BERTH_EPOLICY, "nonfinite",                                          \
      "repair the weights, or take a dtype that holds them; without --reject-nonfinite "   \
      "they are converted as they are")                                                    \
    X(DIFFERENCE, 107, BERTH_EPOLICY, "difference",                                        \
      "`berth diff --tensors` says which weights, and how far apart they are")             \
    X(DIGEST, 110, BERTH_EINTEGRITY, "digest", "quarantine the file and download it again") \
    X(BLOB_DIGEST, 111, BERTH_EINTEGRITY, "blob_digest",                                   \
      "quarantine the blob and download it again")                                         \
    X(MANIFEST_JSON, 112, BERTH_EFORMAT, "manifest_json", "write the manifest again")      \
    X(MANIFEST_ENTRY, 113, BERTH_EINTEGRITY, "manifest_entry",                             \
      "manifest and checkpoint do not belong together")                                    \
    X(PLAN_JSON, 114, BERTH_EFORMAT, "plan_json", "plan again, or correct the file: see "  \
                                                  "berth-plan(5)")                         \
    X(PLAN_CHECKPOINT, 115, BERTH_EINTEGRITY, "plan_checkpoint",                           \
      "this plan is not one of this checkpoint: plan again")                             \
    X(DEVICE_MAP, 116, BERTH_EINVAL, "device_map", "correct the device map")               \
    X(LINKS_JSON, 117, BERTH_EFORMAT, "links_json", "measure the links again, or correct "  \
                                                    "the file: see berth-links(5)")        \
    X(NO_TIER, 118, BERTH_ENOFIT, "no_tier", "check it with the memories of the machine that " \
                                             "it is for (--max-memory), or plan for this one") \
    X(NO_FIT, 119, BERTH_ENOFIT, "no_fit", "give more memory, or choose a smaller "        \
                                           "encoding")                                     \
    X(NO_MEMORY, 120, BERTH_ENOMEM, "no_memory", "free memory or raise the limit")         \
    X(NO_DEVICE, 121, BERTH_ENODEV, "no_device", "see `berth devices`")                    \
    X(UNSUPPORTED, 122, BERTH_EUNSUPPORTED, "unsupported", "")                             \
    X(OPEN_FILES, 123, BERTH_EIO, "open_files",                                            \
      "raise the limit of open files, see `ulimit -n`")                                    \
    X(DEVICE, 124, BERTH_ENODEV, "device", "see the driver's log")                         \
    X(DEVICE_LOST, 125, BERTH_ENODEV, "device_lost", "end what uses this device, and "     \
                                                     "start again")                        \
    X(LEASE, 126, BERTH_EINVAL, "lease", "acquire a layer before its release, once for "   \
                                         "each")                                           \
    X(SLOTS, 127, BERTH_ENOFIT, "slots", "release a layer first, or plan with more slots") \
    X(TIMEOUT, 128, BERTH_EIO, "timeout", "check the disk and the device")                 \
    X(ASLEEP, 129, BERTH_EINVAL, "asleep", "wake the model first")                         \
    X(LEASED, 131, BERTH_EINVAL, "leased", "release the model's layers first")             \
    X(MOVING, 132, BERTH_EINVAL, "moving", "wait for the end of the job that moves it")    \
    X(EXPORTED, 133, BERTH_EINVAL, "exported", "delete the exported tensors first")         \
    X(STATES_FILE, 134, BERTH_EFORMAT, "states_file",                                      \
      "load what such an optimizer has saved, see berth-optimizer(5)")                     \
    X(CANCELLED, 130, BERTH_ECANCELLED, "cancelled", "")

typedef enum berth_reason {
#define BERTH_REASON_ENUM(identifier, number, status, name, advice)                        \
    BERTH_REASON_##identifier = number,
    BERTH_REASONS(BERTH_REASON_ENUM)
#undef BERTH_REASON_ENUM
        BERTH_REASON_WIDTH = 0x7fffffff /* none: the enum has 32 bits */
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
    char tensor[BERTH_NAME_CAPACITY];     /* escaped name of tensor, layer or argument, or
                                             ""                                          */
    char message[BERTH_MESSAGE_CAPACITY]; /* one sentence without the above              */
    uint64_t reserved[4];
} berth_error;

/* "ok", "format", ...; "unknown" for any other number. Never NULL. */
BERTH_API const char *berth_status_name(berth_status status);
/* "header_json", ...; "unknown" for any other number. Never NULL. */
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
 * berth_share_parse() reads "95%", "99.5 %" or a share such as "0.95", as billionths,
 * with no more digits behind its point than these have: nine, of a percentage seven. A
 * bare number above 1 is refused: "95" may mean either.
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

/* "BF16", ...; "unknown" for any other number. Never NULL. */
BERTH_API const char *berth_dtype_name(int32_t dtype);
/* Bits of one element, 4 to 64; 0 for any other number. */
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

/* "native", "nf4", ...; "unknown" for any other number. Never NULL. */
BERTH_API const char *berth_encoding_name(int32_t encoding);

/* ------------------------------------------------------------------ context */

/*
 * Memory hooks. Purposes name what an allocation is for ("header", "ring"). They are called
 * with locks held: see Callbacks.
 */
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

/* What was done. */
typedef enum berth_trace_kind {
    BERTH_TRACE_READ = 0,    /* a read, as it was asked of the system                 */
    BERTH_TRACE_CHUNK = 1,   /* a worker with what one staging buffer holds           */
    BERTH_TRACE_PLACE = 2,   /* a stretch of a tensor on its way into its berth       */
    BERTH_TRACE_ENCODE = 3,  /* the arithmetic of it                                  */
    BERTH_TRACE_COPY = 4,    /* between host memory and a device, or within one       */
    BERTH_TRACE_COMPUTE = 5, /* a device: a call of the caller's                      */
    BERTH_TRACE_WAIT = 6,    /* nothing: for a buffer, the disk, or a device          */
    BERTH_TRACE_FILL = 7,    /* a slot: its copies are asked for                      */
    BERTH_TRACE_ACQUIRE = 8,
    BERTH_TRACE_RELEASE = 9,
    BERTH_TRACE_KIND_COUNT = 10
} berth_trace_kind;

/* Where: in one lane nothing overlaps but what lies within something else. */
typedef enum berth_trace_lane {
    BERTH_LANE_THREAD = 0, /* `number` is the system's                                */
    BERTH_LANE_READ = 1,   /* reads in flight: a lane for each at a time              */
    BERTH_LANE_LINK = 2,   /* a copy engine of a device                               */
    BERTH_LANE_ENGINE = 3, /* what computes of a device                               */
    BERTH_LANE_STREAM = 4, /* of a device: waits; its work is told by engines         */
    BERTH_LANE_COUNT = 5
} berth_trace_lane;

typedef struct berth_trace_event {
    int32_t kind;        /* berth_trace_kind                                          */
    int32_t lane;        /* berth_trace_lane                                          */
    uint64_t number;     /* of the lane, among those of its kind                      */
    const char *name;    /* of the lane, "worker"; "" where it is not known; for the
                            duration of the call                                      */
    uint64_t stream;     /* LINK, ENGINE: number of the stream whose work it is       */
    uint64_t begin_ns;   /* monotonic time of the system, or                          */
    uint64_t end_ns;
    int32_t is_simulated; /* 1: of the clock of simulated devices, from 0 on          */
    uint32_t layer;      /* of the plan; BERTH_NO_INDEX                               */
    uint64_t tensor;     /* of the checkpoint; BERTH_NO_TENSOR                        */
    uint64_t bytes;
    uint32_t shard;      /* of the checkpoint; BERTH_NO_INDEX                         */
    int32_t reserved32;
    uint64_t reserved[4];
} berth_trace_event;

/*
 * Gets each event when it has ended. From any thread, several at once, with locks held:
 * it must be quick, and must not call berth but for what a checkpoint or a plan says.
 */
typedef void (*berth_trace_function)(void *user, const berth_trace_event *event);

/* "read", ...; "unknown" for any other number. Never NULL. */
BERTH_API const char *berth_trace_kind_name(int32_t kind);

typedef struct berth_context_options {
    size_t struct_size; /* set by berth_context_options_init() */
    const berth_allocator *allocator; /* copied; NULL: the C library's              */
    /* One whole line without newline. Any thread, never two at once per context, with
       locks held: see Callbacks.                                                       */
    void (*log)(void *user, int32_t level, const char *line);
    void *log_user;
    uint64_t memory_limit; /* ceiling of what the context allocates; 0: none        */
    uint64_t spare_bytes;  /* of staging kept for the next job, at most; 0: none      */
    /* What everything made from the context does, as it happens; NULL: nobody asks, and
       nothing is spent on it.                                                          */
    berth_trace_function trace;
    void *trace_user;
    /* 1: where the processor multiplies tiles (AMX), products of 4-bit weights use them. Linux
       gives that to the whole process and for good, and wants alternate signal stacks to have
       getauxval(AT_MINSIGSTKSZ) bytes then, about 12,000: sigaltstack() refuses smaller ones.
       0: nothing is asked for; they are used where the process has asked by itself.     */
    int32_t uses_tiles;
    uint32_t reserved32;
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
 * Returns BERTH_OK, BERTH_EINVAL (options of a newer header, an allocator that lacks one of its
 * two functions) or BERTH_ENOMEM.
 */
BERTH_API berth_status berth_context_create(const berth_context_options *options,
                                            berth_context **out_context,
                                            berth_error *error);
/* NULL is allowed. */
BERTH_API void berth_context_destroy(berth_context *context);

/*
 * berth_context_trim() gives back what is kept for later: staging buffers (spare_bytes),
 * and what reads and copies that hung have come back from. Returns the bytes of the buffers.
 * Any thread. Running jobs keep theirs, and so does a model that is awake: the ring of one
 * with layers on the disk holds what its next pass begins with, read already, and slots are
 * parts of its slab. berth_model_sleep_start() gives back both, without the checkpoint being
 * read again; what of the ring is kept then is trimmed.
 */
BERTH_API uint64_t berth_context_trim(berth_context *context);

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

/* ------------------------------------------------------------------- memory */

/* What memory is used for. */
typedef enum berth_memory_purpose {
    BERTH_MEMORY_WEIGHTS = 0, /* berths                                               */
    BERTH_MEMORY_STAGING = 1, /* rings between files and devices                      */
    BERTH_MEMORY_SLOTS = 2,   /* in which streamed layers take turns                  */
    BERTH_MEMORY_SCRATCH = 3, /* while something is encoded, converted or compared    */
    BERTH_MEMORY_TABLES = 4,  /* names, plans, jobs                                   */
    BERTH_MEMORY_STATES = 5,  /* of optimizers, and their sums of gradients           */
    BERTH_MEMORY_COMPUTING = 6, /* of berth_device_alloc()                            */
    BERTH_MEMORY_ALL = 7,
    BERTH_MEMORY_PURPOSE_COUNT = 8
} berth_memory_purpose;

/*
 * What a context, with all that was made from it, holds of one memory for one purpose,
 * by berth's own accounts. Devices are told under their tier's name in the plan, all
 * models of the context together; "cpu" is host memory.
 *
 * A model has one slab a tier, which its plan divides without holes: `fragmented_bytes`
 * is 0 but for plans of others that leave some. Numbers of a moment at which others allocate are
 * each right, and need not add up.
 */
typedef struct berth_memory {
    char tier[32];             /* "cpu", "cuda:0"; "others" beyond 64 devices         */
    int32_t purpose;           /* berth_memory_purpose                                */
    int32_t reserved32;
    uint64_t current_bytes;
    uint64_t peak_bytes;       /* most at a time                                      */
    uint64_t allocated_bytes;  /* in all                                              */
    uint64_t freed_bytes;      /* of them                                             */
    uint64_t slabs;            /* ALL: allocations that are divided                   */
    uint64_t slab_bytes;       /* the same: as allocated                              */
    uint64_t fragmented_bytes; /* of them, used for nothing                           */
    uint64_t reserved[4];
} berth_memory;

/* Tiers with an account, 1 at least: the first is host memory. Any thread. */
BERTH_API uint32_t berth_memory_tiers(const berth_context *context);
/* BERTH_OK, or BERTH_EINVAL for a tier or a purpose out of range. Any thread. */
BERTH_API berth_status berth_memory_get(const berth_context *context, uint32_t tier,
                                        int32_t purpose, berth_memory *out);
/* "weights", ...; "unknown" for any other number. Never NULL. */
BERTH_API const char *berth_memory_purpose_name(int32_t purpose);

typedef enum berth_memory_format {
    BERTH_MEMORY_TEXT = 0, /* a table, for people                                     */
    BERTH_MEMORY_JSON = 1  /* one object on one line                                  */
} berth_memory_format;

/*
 * berth_memory_print() writes all accounts in which there has ever been something. It
 * allocates nothing, so that it can be called when memory is out. Returns the length
 * that all of it needs, without the NUL; the text is cut to capacity. Any thread.
 */
BERTH_API size_t berth_memory_print(const berth_context *context, int32_t format,
                                    char *text, size_t capacity);

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
    uint32_t numa_node_count;   /* entries of numa_nodes, numa_memory; 0: unknown     */
    int32_t is_pinned_unlimited; /* 1: no RLIMIT_MEMLOCK; pinned_limit is UINT64_MAX   */
    uint32_t numa_nodes[BERTH_MAX_NUMA_NODES];  /* numbers, as of devices: may have gaps */
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
    int32_t has_reciprocals;    /* 1, always: codes are computed with 1/x as recorded on
                                   a GPU, an H200; 0 would be correctly rounded         */
    int32_t reserved32;
    char gpu_architectures[48]; /* with kernels in this build: "75 80 90, PTX 90"; "": none */
    uint64_t reserved[2];
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
    uint32_t threads;   /* that read, and end with the call; 0: as many as are worth it */
    uint32_t reserved32;
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
 * no payload except companions of quantized tensors below 64 KiB. Where the
 * headers are long several threads read them, which end with the call; what is
 * found, reported and opened does not depend on their number.
 *
 * `path`: a directory with model.safetensors or an index and shards, a single
 * .safetensors or .index.json file, a repository of the hub cache as
 * `org/name` or `org/name@revision`, or one of the cache's own folders.
 *
 * The files stay open until berth_checkpoint_close(), so that later reads see
 * the files that were checked: one descriptor a shard. Any number of
 * checkpoints may be open at once. Shards that are moved or removed meanwhile
 * can be read on, by loads, leases and moves, too; those that are written to, or
 * over which another file is renamed, are BERTH_EIO ("changed").
 *
 * Returns BERTH_OK, or
 *   BERTH_ENOENT        nothing there, or not readable
 *   BERTH_EFORMAT       incomplete or malformed; error->reason says how
 *   BERTH_EUNSUPPORTED  another kind of file, or a dtype that berth does not know, named
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

/*
 * berth_hub_check() says whether a file may be made or replaced at `path`: not in a
 * repository of a hub cache, whose files are shared and never changed, whatever its folder is
 * called, and not by a link that leads there. All calls that write look by themselves; this is
 * for who writes beside them. Nothing that is not there is in a repository.
 * Returns BERTH_OK, or BERTH_EINVAL.
 */
BERTH_API berth_status berth_hub_check(const char *path, berth_error *error);

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

/* Its texts live as long as the job. */
typedef struct berth_progress {
    const char *phase;  /* "load"; "pin" while a load pins host memory; ...           */
    const char *file;   /* being read; "" when there is none                          */
    uint64_t done;      /* bytes, never decreasing, ends at exactly `total`           */
    uint64_t total;     /* 0: not known yet, while memory is allocated, files are opened;
                           or there is nothing to move                                */
    double seconds;     /* since the start                                            */
    double rate;        /* bytes a second over the last seconds                       */
    int32_t is_stalled; /* 1: nothing moved for more than 5 s                         */
    int32_t reserved32;
    uint64_t reserved[4];
} berth_progress;

/*
 * At least every 250 ms while the job runs, on a thread of the job, never
 * after the job was finished. Return other than 0 to cancel. A job waits for what it calls: it
 * is not waited for from there, nor finished. That thread has 1 MiB of stack; those that do a
 * job's work, and call allocators and logs, have 256 KiB.
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
 * A descriptor that poll() and its kin call readable once the job has ended: for event
 * loops, which then call berth_job_finish() without waiting. The same one each time; it
 * belongs to the job, which closes it. Any thread. Returns BERTH_OK, or BERTH_EIO or
 * BERTH_ENOENT where the system gives none; *out_descriptor is then -1.
 */
BERTH_API berth_status berth_job_descriptor(berth_job *job, int *out_descriptor,
                                            berth_error *error);

/*
 * Waits for the end, gives everything back and returns the job's status, with
 * its first error. A cancelled job returns BERTH_ECANCELLED, also when its
 * last byte had been read; but BERTH_OK where all was done before it heard of that.
 * NULL is allowed: BERTH_OK.
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
    BERTH_MANIFEST_WRITE = 2, /* write one: temporary file, fsync, rename             */
    BERTH_MANIFEST_SOURCE = 3 /* compare with what the manifest of a checkpoint that was
                                 made from this one says of it                        */
} berth_manifest_mode;

typedef struct berth_verify_report {
    uint64_t bytes_read;
    uint64_t tensors_digested;
    uint64_t blobs_checked;  /* SHA-256 compared                                      */
    uint64_t blobs_unchecked; /* promised a SHA-256 that could not be computed        */
    uint64_t mismatches;
    double seconds;
    char io_path[64]; /* "io_uring direct", "threads buffered", ...                   */
    uint64_t files_checked;  /* of those beside the weights that a manifest tells of  */
    uint64_t files_changed;  /* of them, those that are others, or not there          */
    uint64_t reserved[6];
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
    berth_finding_function finding; /* mismatches, one each; a warning for each file beside
                                       the weights that has changed                   */
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
    uint64_t kept;         /* tensors that were stored so before: not encoded anew    */
    uint64_t reserved[3];
} berth_coverage;

/* First one line an encoding, then one line a cause. On the calling thread. */
typedef void (*berth_coverage_function)(void *user, const berth_coverage *line);

/* What a conversion waited for most of its time. */
typedef enum berth_convert_bottleneck {
    BERTH_CONVERT_BY_READS = 0,
    BERTH_CONVERT_BY_ENCODING = 1,
    BERTH_CONVERT_BY_WRITES = 2
} berth_convert_bottleneck;

typedef struct berth_convert_report {
    uint64_t bytes_read;
    uint64_t bytes_written;
    uint64_t bytes_resumed;    /* of shards that an earlier run had finished          */
    uint64_t tensors_written;
    uint64_t quantized;        /* weights with an encoding other than native          */
    uint64_t parameters;
    uint64_t coverage;         /* quantized parameters among all, in billionths       */
    uint64_t nonfinite_values; /* NaN and infinities in what was quantized, and in what
                                  was cast to F16, as for INT8, which ends at 65504   */
    uint64_t nonfinite_tensors;
    uint64_t planned_bytes;    /* of the output, weights only                         */
    uint64_t planned_memory;   /* what the job allocates at most                      */
    uint32_t shards;
    int32_t bottleneck;        /* berth_convert_bottleneck                            */
    double read_seconds;       /* the ring was empty: everybody waited for reads      */
    double convert_seconds;    /* summed over threads                                 */
    double write_seconds;
    double seconds;
    char io_path[64];          /* "io_uring direct", ...                              */
    uint32_t parts_finished;   /* of part_count, when this one ended; 0 without parts */
    uint32_t parts_missing;
    int32_t is_joined;         /* 1: the output is complete, and this one has put its
                                  parts together                                      */
    int32_t reserved32;
    uint64_t output_bytes;     /* of all files, planned: what the disk must have room for */
    uint64_t free_bytes;       /* there, found by a dry run; UINT64_MAX: nobody knows */
    uint64_t kept;             /* of `quantized` those that were stored so before:
                                  their bytes are copied, not decoded and encoded     */
    uint64_t device_memory;    /* of `devices` what the job takes at most; 0: the
                                  processor does all of it                            */
    uint64_t verified_tensors; /* of the source that a manifest is about: held against it,
                                  now or, of what is resumed, by what was noted then  */
    uint64_t verified_bytes;   /* of these                                            */
    uint64_t unverified_tensors; /* that a manifest has, and no output is made of     */
    uint64_t mismatches;       /* LOAD_VERIFY_WARN: tensors and headers that are others,
                                  and entries that only manifest or source has        */
    uint64_t reserved[2];
} berth_convert_report;

typedef struct berth_convert_options {
    size_t struct_size;    /* set by berth_convert_options_init()                     */
    const char *output;    /* folder that is to hold the new checkpoint               */
    int32_t type;          /* BERTH_ENCODING_NF4, _FP4 or _INT8; _NATIVE: dequantize  */
    int32_t dtype;         /* load as BERTH_BF16, _F16 or _F32 first; -1: the model's */
    int32_t storage;       /* dtype that 4-bit codes are stored as; -1: BERTH_U8      */
    uint32_t block_size;   /* 4-bit: 32 to 4096, a power of two; 0: 64                */
    int32_t double_quant;  /* 1: absmax as 8-bit codes; EINVAL unless NF4 or FP4      */
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
    const char *compute_dtype; /* for config.json; NULL: what a quantized source says,
                                  else "float32"                                      */
    uint64_t min_coverage;    /* billionths of the parameters; less is BERTH_EPOLICY, more
                                 than all BERTH_EINVAL                                */
    uint64_t max_shard_bytes; /* 4096 at least; 0: 5 GB                               */
    int32_t overwrite;        /* 1: replace what is there; files that berth did not write
                                 stay                                                 */
    int32_t resume;           /* 1: go on with what the same command has finished     */
    int32_t reject_nonfinite; /* 1: NaN and infinities that a report counts are
                                 BERTH_EPOLICY                                        */
    int32_t dry_run;          /* 1: decide, count, report, write nothing; an output that
                                 cannot be written to fails as it would               */
    uint32_t part_count;      /* jobs that share the work and `output`, 10000 at most; 0:
                                 this alone                                           */
    uint32_t part;            /* which of them this is, from 1                        */
    int32_t join;             /* 1: put together what the parts have finished         */
    int32_t io;               /* berth_io                                             */
    int32_t no_uring;
    uint32_t readers;         /* reader threads; 0: default                           */
    uint32_t workers;         /* that convert; 0: one a usable core, with devices 4 at
                                 least. Fewer where the work of all takes over 56 MiB */
    uint64_t ring_bytes;      /* byte cap of the staging ring; 0: 64 MiB. It has room for
                                 three reads at least, of 4 MiB mostly: 12 MiB        */
    berth_progress_function progress;
    void *progress_user;
    berth_finding_function finding; /* non-finite values, files left out, and what may
                                       not be meant: no config.json, one shard of
                                       several, experts that int8 cannot hold, modules
                                       to skip that are not there, and what transformers
                                       does not run: two widths, codes of what is no
                                       layer, a tied head that is not skipped; that a
                                       manifest and the source have not all in common;
                                       files beside the weights that are others than
                                       those that an output which `resume` finds complete
                                       was made with                                  */
    void *finding_user;
    berth_coverage_function coverage;
    void *coverage_user;
    berth_convert_report *report; /* filled when the job ends; must outlive it        */
    struct berth_devices *devices; /* borrowed: one of them encodes what is quantized, and
                                 decodes what becomes plain, to the same bytes; NULL: the
                                 processor. A resume and other parts may use another  */
    uint32_t device;          /* number of that one                                   */
    int32_t reject_skips;     /* 1: a module to skip that the model has not is
                                 BERTH_EINVAL; 0: a note                              */
    uint64_t wait_ms;         /* longest wait for a device that does not move, or for headers
                                 that a manifest is about; 0: 60 s. Where no memory can be
                                 pinned, copies wait for ever                         */
    int32_t verify;           /* berth_load_verify, of the source: as a load does     */
    uint32_t reserved32;
    const char *manifest;     /* of the source; copied; NULL: as of a load            */
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
 * tensor, looks at every file that goes along and at the output's folder, and
 * calls `coverage` before it returns; then one pass over the weights, with memory
 * that does not depend on their size. With `devices`, what is encoded goes to one of
 * them and comes back piece by piece, and so does what is decoded from NF4, FP4 and INT8
 * to plain numbers; reading, second levels, decoding of what is encoded anew and of other
 * encodings, and writing stay with the processor. The devices must outlive the job.
 *
 * Files lie in the output under temporary names, beside the journal of
 * berth-journal(5), until all are finished, and then get their own: last
 * model.safetensors.index.json, or model.safetensors where there is one shard. The
 * model is complete when that file is there and the journal is gone. What a run that
 * was cancelled, killed or out of space has finished is kept for one with `resume`,
 * which writes the same bytes; where nothing was finished, nothing is kept.
 *
 * Where a manifest lies beside the source, headers are held against it before this returns
 * (`wait_ms` limits that: nobody can cancel yet), and every tensor that is read as a load does
 * it: what is another ends the job before its shard is finished, and nothing is published.
 * What an earlier run has finished, and what other parts have, is held against it by the
 * digests that they have noted, whatever they verified themselves. An output that was complete
 * before, or that an earlier run had begun to publish, is not looked into.
 * The checkpoint must outlive the job. Finish it with berth_job_finish().
 *
 * With `part_count`, several jobs, on any machines that see the same files, make
 * one output, byte for byte what one alone makes. All options but `part` are the
 * same in all. The last to finish puts the output together, where the file
 * system has locks; a job with `join` does it whenever all parts are finished,
 * and else fails with BERTH_ENOENT, naming what is missing. A part that was
 * killed is started again alone, with `resume`.
 *
 * Returns BERTH_OK, BERTH_EINVAL (options; an output that exists), BERTH_ENOENT (the
 * folder of the output, a file of rules, a manifest that there has to be), BERTH_EINTEGRITY (a
 * manifest of other files), what reading a manifest fails with, BERTH_EUNSUPPORTED (an encoding
 * that berth names but does not decode, or for which the device has no kernel), BERTH_EPOLICY
 * (min_coverage), BERTH_EFORMAT, BERTH_ENOMEM, BERTH_EIO (a device that hangs for
 * `wait_ms`, or a disk with those headers, too), BERTH_ENOFIT (the device has not
 * so much memory left), BERTH_ENODEV (it failed, or is lost). The job fails with
 * BERTH_EINTEGRITY, too, naming the tensor that is not what the manifest says.
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
    uint32_t workers;         /* that compare; 0: one a usable core. Fewer where the work
                                 of all takes over 96 MiB                             */
    uint64_t ring_bytes;      /* byte cap of the staging ring, 12 MiB at least; 0: 64 MiB */
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
 * from whatever it is stored as; both are read once. Encodings that berth names
 * but does not decode (GPTQ, AWQ) are compared by their bytes. Weights belong together by
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
 * Returns BERTH_OK, BERTH_EINVAL, BERTH_EUNSUPPORTED (experts of more than 16 million
 * values that are stored turned), BERTH_EFORMAT, BERTH_ENOMEM, BERTH_EIO.
 */
BERTH_API berth_status berth_diff_start(berth_context *context, berth_checkpoint *a,
                                        berth_checkpoint *b,
                                        const berth_diff_options *options,
                                        berth_job **out_job, berth_error *error);

/* --------------------------------------------------------------------- plan */

/*
 * Where every byte of a model goes. A plan is a value: made once, never changed,
 * shared by threads, turned into JSON and back without loss (berth-plan(5)). It
 * holds no checkpoint and needs no device.
 *
 *   tier    a memory with a budget: "cuda:0", "cpu", "disk"
 *   layer   tensors that are placed and run together: a decoder layer, the
 *           embedding, the final norm, the head; in the order of execution
 *   home    the device that computes a layer
 *   berth   the planned place of one tensor: tier, offset, bytes, encoding. On its
 *           home it is resident; elsewhere it is streamed: brought for each pass
 *   slot    a buffer on the home that streamed layers take turns in
 */
typedef struct berth_plan berth_plan;

#define BERTH_RESERVE_NONE UINT64_MAX
#define BERTH_HITS_NONE UINT64_MAX
#define BERTH_NO_INDEX UINT32_MAX

typedef enum berth_tier_kind {
    BERTH_TIER_GPU = 0,
    BERTH_TIER_CPU = 1,
    BERTH_TIER_DISK = 2
} berth_tier_kind;

typedef enum berth_rate_source {
    BERTH_RATE_GUESSED = 0, /* by the generation of the bus, or the kind of device    */
    BERTH_RATE_GIVEN = 1,
    BERTH_RATE_MEASURED = 2
} berth_rate_source;

/* Why a layer is where it is. */
typedef enum berth_plan_cause {
    BERTH_PLAN_RESIDENT = 0,  /* all of it fits on its home                           */
    BERTH_PLAN_SHORT = 1,     /* its home is short of bytes: some of it is streamed   */
    BERTH_PLAN_PINNED = 2,    /* the caller's pin says so                             */
    BERTH_PLAN_MAPPED = 3,    /* the device map that is followed says so              */
    BERTH_PLAN_TIED = 4,      /* shares its bytes with another layer                  */
    BERTH_PLAN_ROWS = 5       /* an embedding whose rows are fetched one by one       */
} berth_plan_cause;

/* What is known of the experts that tokens choose. */
typedef enum berth_routing {
    BERTH_ROUTING_UNIFORM = 0, /* nothing: all are taken to be as likely              */
    BERTH_ROUTING_GIVEN = 1    /* the caller has said how many are in a slot already  */
} berth_routing;

/* What of a tensor a berth holds. */
typedef enum berth_slicing {
    BERTH_SLICING_NONE = 0,    /* all of it                                           */
    BERTH_SLICING_ROWS = 1,    /* of its first dimension                              */
    BERTH_SLICING_COLUMNS = 2, /* of its second                                       */
    BERTH_SLICING_DEPTHS = 3   /* of its third                                        */
} berth_slicing;

/*
 * Experts of a layer that the checkpoint has stacked in one tensor of three dims. Whole,
 * such a tensor has one berth, and is brought as a whole where it is streamed. Apart, each
 * expert has a berth of its own, and is leased and brought like one that is stored alone.
 */
typedef enum berth_stacks {
    BERTH_STACKS_AUTO = 0,     /* whole, but apart where that fits alone or is faster  */
    BERTH_STACKS_WHOLE = 1,
    BERTH_STACKS_APART = 2     /* where they can be, see berth_plan_create()           */
} berth_stacks;

typedef struct berth_plan_options {
    size_t struct_size;    /* set by berth_plan_options_init()                        */
    /* What is placed: as in berth_convert_options, but that weights which transformers
       divides or joins as it loads them are quantized, too: no loader has to do that
       with codes that lie in memory alone. NATIVE: as it is stored, or cast to dtype. Of
       the other lines up to `rules` `like`, and with `mode` the list of modules to skip,
       are read then; double_quant, a block_size that is none, and a NULL in a list are
       BERTH_EINVAL; the rest has no effect.                                          */
    int32_t type;
    int32_t dtype;         /* loaded as; -1: the model's, NATIVE: as stored. NATIVE leaves
                              NF4, FP4, INT8 and FOREIGN alone, and decodes all else  */
    int32_t storage;       /* dtype that 4-bit codes are stored as; -1: BERTH_U8      */
    uint32_t block_size;   /* 4-bit; 0: 64                                            */
    int32_t double_quant;
    int32_t takes_experts;
    const char *like;      /* "hf5", "hf5.14", "hf5.0", "hf4"; NULL: "hf5"            */
    const char *const *skip_modules;
    const char *const *keep;
    const char *const *only;
    uint32_t skip_count;
    uint32_t keep_count;
    uint32_t only_count;
    int32_t has_skips;
    const char *rules;     /* path of a file of rules, berth-rules(5)                 */
    /* Where it may go. */
    const char *max_memory; /* "0=20GiB,cuda:1=90%,cpu=64GiB,disk=inf"; only tiers that
                               are named are used. NULL: host memory that is free on this
                               machine, and the disk; no GPU but those that `device_map`
                               names. A share is one of what is free there for this
                               process, see `devices`                                 */
    const char *reserve;    /* bytes to keep free beside: "0=2GiB,cpu=4GiB"           */
    uint64_t reserve_share; /* of every budget, in billionths; 0: a tenth;
                               BERTH_RESERVE_NONE: nothing                            */
    const char *const *pins; /* "lm_head=cuda:0", "model.layers.0-9=cpu"              */
    uint32_t pin_count;
    int32_t no_offload;     /* 1: all of it on devices that compute, or no plan       */
    /* Whose map is followed; both NULL: berth's own planner decides. Not together with `reserve`,
       `pins` or, but for states of training, `no_offload`: a map is followed to the brim. */
    const char *mode;       /* "auto", "balanced", "balanced_low_0", "sequential": the map
                               of from_pretrained() in the release `like`; max_memory is
                               then read as it reads it                               */
    const char *device_map; /* path of a map {"model.layers.0": 0, ...}: a line for every
                               tensor, devices that max_memory names, if it is given  */
    int32_t cpu_offload;    /* llm_int8_enable_fp32_cpu_offload                       */
    int32_t buffer_offload; /* offload_buffers                                        */
    const char *architectures; /* path of newer descriptions of model classes; NULL   */
    /* What it is used for. */
    uint64_t context;       /* tokens of a sequence that are kept; 0: nothing is kept */
    uint64_t batch;         /* sequences at once; 0: 1                                */
    int32_t cache_dtype;    /* of the KV cache; -1: that of the model                 */
    /* How it is streamed. */
    uint32_t slots;         /* for each device, 1 to 8; 0: as many as are best        */
    const char *links;      /* "0=gen4x16,disk=7GB/s": instead of guesses             */
    const char *link_file;  /* path of measured ones, berth-links(5)                  */
    uint64_t staging_bytes; /* pinned for each GPU; 0: 256 MiB. All of them have an eighth
                               of the host memory that can be used at most            */
    berth_finding_function finding; /* what may not be meant; and of a plan that is refused for
                               several tiers each one, as an error with its numbers   */
    void *finding_user;
    const char *link_text;  /* what such a file holds: berth_bench_links(). Not together
                               with link_file                                         */
    /* Tensor parallelism, see berth_plan_create(). */
    uint32_t rank;          /* from 0 on                                              */
    uint32_t ranks;         /* 1024 at most; 0, 1: the whole model                    */
    uint64_t expert_hits;   /* of the experts that are wanted and share slots those that
                               are in one already, as billionths: measured by a run; 0:
                               as if all were as likely; BERTH_HITS_NONE: none. Times
                               and bytes are predicted with it, nothing else changes  */
    const struct berth_train_options *train; /* NULL: inference. See
                               berth_plan_get_training()                              */
    int32_t stacks;         /* berth_stacks                                           */
    int32_t reject_skips;   /* 1: a module to skip that the model has not is
                               BERTH_EINVAL; 0: a note                                */
    const struct berth_devices *devices; /* borrowed: shares of GPUs in max_memory are of
                               these, one for each in its order; NULL: of GPUs of this
                               machine. What the disk has, or a GPU that is not here, is
                               not known: BERTH_EINVAL                                */
    uint64_t reserved[2];
} berth_plan_options;

static inline void
berth_plan_options_init(berth_plan_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    options->dtype = -1;
    options->storage = -1;
    options->cache_dtype = -1;
    options->context = 4096;
    options->batch = 1;
}

/*
 * berth_plan_create() decides a berth for every tensor, or expert of a stack, from headers
 * and config.json alone. The same input gives the same plan on every machine, but for
 * budgets that are not given. `options` may be NULL: those of init. Free it with
 * berth_plan_destroy().
 *
 * With `ranks` it is the plan of one rank of tensor parallelism, and berths hold slices,
 * cut as vLLM and the tp_plan of transformers do: rows of projections to queries, keys,
 * values, gate and up; columns of those to outputs and of down; rows of embedding and
 * head, as even as they go; experts like MLPs; norms, routers and the biases of what is
 * summed over ranks (which one rank adds) whole. Where there are fewer heads of keys than
 * ranks, several ranks have the same one. Of latent attention, rows are those behind the latents
 * and what makes latents is whole. Of experts that are stacked in one tensor each is cut like
 * an MLP; where gate and up are one matrix, a rank has its share of either, one behind the other
 * (`parts` of a berth_berth), or both as they alternate. Of what Phi 3 and GLM 4 have fused it
 * has one share of all rows, as it lies: their tp_plan gathers what that gives, and what follows
 * has the cache and the widths of the whole. berth-plan(5) lists the types that are cut.
 *
 * A load reads rows as ranges, and of columns the rows that they lie in, once and in large
 * pieces. Each rank encodes its slice by itself. Blocks of NF4 and FP4 run along rows:
 * codes and absmax of rows that begin with a block of the whole weight are those of the
 * whole; columns have blocks of their own. Second levels are of the slice, and row maxima
 * of int8, too. What is stored quantized is neither decoded nor encoded again: 4-bit rows are
 * cut between blocks, columns between blocks of rows that have whole ones, int8 anywhere, with
 * the row maxima of the whole, FP8 and packed FP4 between rows or columns that share a scale,
 * with the scales of their own blocks, or one that is for all, MXFP4 between groups; all else is
 * BERTH_EUNSUPPORTED. Of what is doubly quantized a slice that splits 256 blocks with one second
 * level has one level: absmax, recovered as they are read, so that its values are those of the
 * whole. A load does not stream that from the disk, nor columns of what is stored quantized, but
 * other columns from its `offload_dir`, plain numbers or encoded. Slices of ranks are not held
 * against a manifest, and neither are stacks of which some experts are read while others stay
 * on the disk.
 *
 * Experts of stacks that are taken apart are rows of the first dimension, and the last
 * berths of their layer, expert by expert. Each is encoded as if it were stored alone, with
 * a second level of its own; of what is stored in MXFP4 or FP8 it is a share of values and
 * scales. Stacks stay whole for training and for ranks, and where an expert is not whole
 * blocks (of a stored second level: 256 of them), is to be decoded or encoded anew, or has no
 * scales of its own. What is read of a resident stack in a pass is what its tokens choose,
 * whole or apart.
 *
 * Returns BERTH_OK, BERTH_EINVAL (options, a map that does not cover the model, a tensor
 * that ranks cannot share evenly), BERTH_ENOFIT (naming the tier, the bytes missing and
 * the smallest change that would do; where that is one of several tiers, the message names
 * all of them, and each is a finding: ->expected it would take, ->actual is its budget),
 * BERTH_EUNSUPPORTED, BERTH_EFORMAT, BERTH_ENOENT, BERTH_EIO, BERTH_ENOMEM.
 */
BERTH_API berth_status berth_plan_create(berth_context *context,
                                         const berth_checkpoint *checkpoint,
                                         const berth_plan_options *options,
                                         berth_plan **out_plan, berth_error *error);
/* NULL is allowed. */
BERTH_API void berth_plan_destroy(berth_plan *plan);

/* What takes most of a pass's time. */
typedef enum berth_plan_bound {
    BERTH_PLAN_BY_COMPUTING = 0, /* reading the weights that are in place */
    BERTH_PLAN_BY_LINK = 1,
    BERTH_PLAN_BY_DISK = 2
} berth_plan_bound;

typedef struct berth_plan_summary {
    uint32_t tier_count;
    uint32_t layer_count;
    uint64_t berth_count;    /* tensors; tied ones share a berth and count once, an
                                expert of a stack that is taken apart counts as one    */
    uint32_t map_count;      /* lines of the device map                               */
    uint32_t cuts;           /* neighbouring layers on two devices                    */
    int32_t is_proved;       /* no better homes exist                                 */
    int32_t is_imitated;     /* the map is that of a release of transformers          */
    uint32_t digest;         /* crc32 of names, dtypes and shapes of the checkpoint   */
    int32_t type;            /* berth_encoding of quantized weights                   */
    int32_t dtype;
    int32_t double_quant;
    uint32_t block_size;
    int32_t cache_dtype;
    uint64_t context;
    uint64_t batch;
    uint64_t bytes;          /* of all berths                                         */
    uint64_t resident_bytes; /* on the device that computes them                      */
    uint64_t streamed_bytes; /* elsewhere                                             */
    /* Predicted, for one token of each sequence. */
    uint64_t link_bytes;     /* brought to devices                                    */
    uint64_t disk_bytes;     /* of these, read from the disk                          */
    double seconds;          /* when passes follow one another                        */
    double first_seconds;    /* of the first pass                                     */
    double compute_seconds;  /* memory is read at the rates of the tiers              */
    double link_seconds;     /* the busiest link                                      */
    double disk_seconds;
    double load_seconds;     /* to fill all tiers                                     */
    double host_seconds;     /* if layers that lie in host memory were computed there; 0:
                                there are none                                        */
    double tokens_per_second; /* batch / seconds                                      */
    int32_t bound;           /* berth_plan_bound                                      */
    uint32_t bound_tier;     /* of that link                                          */
    char advice[256];        /* the change that would help most; "" when none does    */
    uint32_t rank;           /* of `ranks`: berths hold its slices                    */
    uint32_t ranks;          /* 1: all of the model                                   */
    int32_t stacks;          /* berth_stacks: APART where some are, else WHOLE        */
    int32_t reserved32;
    uint64_t reserved[6];
} berth_plan_summary;

BERTH_API void berth_plan_get(const berth_plan *plan, berth_plan_summary *summary);

/* What of a tier's budget goes where: the parts and `free` make up `budget`. */
typedef struct berth_plan_tier {
    char name[24];          /* "cuda:0" */
    int32_t kind;           /* berth_tier_kind                                        */
    uint32_t layers;        /* whose home it is                                       */
    uint64_t berths;
    uint64_t budget;        /* UINT64_MAX: no limit                                   */
    uint64_t reserve;       /* kept free                                              */
    uint64_t reserve_needed; /* what of it the runtime is expected to take            */
    uint64_t weights;       /* berths, to the byte: the slab                          */
    uint64_t cache;         /* KV cache and states of its layers; training: what they
                               keep for their backward pass                           */
    uint64_t activations;
    uint64_t slots;         /* of dense layers: slot_count * slot_bytes               */
    uint64_t slot_bytes;
    uint64_t expert_slots;  /* all of them                                            */
    uint64_t scratch;       /* while weights are quantized on it                      */
    uint64_t staging;       /* pinned rings of the devices that it feeds              */
    uint64_t free;
    uint64_t link_bytes;    /* brought to it for a token                              */
    uint64_t link_rate;     /* bytes a second                                         */
    uint64_t memory_rate;
    int32_t link_source;    /* berth_rate_source                                      */
    int32_t memory_source;
    uint32_t slot_count;
    uint32_t expert_slot_count;
    uint64_t experts_away;  /* that share them: of its layers, not resident           */
    uint64_t expert_hits;   /* expected, in billionths of what is wanted of these     */
    int32_t routing;        /* berth_routing: where that number comes from            */
    int32_t reserved32;
    uint64_t training;      /* all of berth_plan_get_training_tier()                  */
    uint64_t turned;        /* host memory, while weights of any tier that lie turned are
                               quantized; not of the slab                             */
    uint64_t operation_ns;  /* what an operation takes beyond its bytes; 0: not known */
    uint64_t reserved[4];
} berth_plan_tier;

typedef struct berth_plan_layer {
    const char *name;       /* "model.layers.0", escaped; lives as long as the plan   */
    uint64_t first_berth;
    uint64_t berth_count;
    uint32_t home;          /* tier                                                   */
    int32_t cause;          /* berth_plan_cause                                       */
    uint64_t bytes;         /* of its berths                                          */
    uint64_t resident_bytes;
    uint64_t link_bytes;    /* brought for a token                                    */
    uint64_t cache_bytes;   /* what it keeps of sequences: KV cache, states           */
    uint64_t missing;       /* SHORT: bytes by which its home is short                */
    uint64_t reserved[4];
} berth_plan_layer;

typedef struct berth_berth {
    uint32_t layer;
    uint32_t tier;
    uint64_t offset;        /* in the tier's slab, a multiple of 256                  */
    uint64_t bytes;         /* all parts, each rounded up to a multiple of 256        */
    uint64_t tensor;        /* of the checkpoint                                      */
    int32_t encoding;       /* berth_encoding                                         */
    int32_t dtype;          /* of the values                                          */
    int32_t is_expert;
    int32_t along;          /* berth_slicing: of what it holds                        */
    uint64_t first;         /* row or column, of a stack the expert; 0 for all of it  */
    uint64_t count;
    uint64_t parts;         /* 2 and more: of each of so many equal parts of the dimension,
                               which lie one behind the other (gate and up)           */
    uint64_t reserved[1];
} berth_berth;

/* A line of the plain device map; `path` is the module's own name, not escaped. */
typedef struct berth_map_line {
    const char *path;       /* "" for the whole model; lives as long as the plan      */
    uint32_t tier;
    int32_t reserved32;
} berth_map_line;

/* BERTH_OK, or BERTH_EINVAL, and zeroes, for a number out of range. */
BERTH_API berth_status berth_plan_get_tier(const berth_plan *plan, uint32_t tier,
                                           berth_plan_tier *out);
BERTH_API berth_status berth_plan_get_layer(const berth_plan *plan, uint32_t layer,
                                            berth_plan_layer *out);
BERTH_API berth_status berth_plan_get_map(const berth_plan *plan, uint32_t line,
                                          berth_map_line *out);
/*
 * Berths in the order of layers, in a layer by name, but for the experts of stacks that
 * are taken apart, which come last. `name` (may be NULL) gets the
 * tensor's name, cut at `capacity`, ended by a NUL.
 */
BERTH_API berth_status berth_plan_get_berth(const berth_plan *plan, uint64_t berth,
                                            berth_berth *out, char *name,
                                            size_t capacity);
/*
 * "streamed from cpu: cuda:1 is short of 412 MiB": one sentence, cut at `capacity`, ended
 * by a NUL.
 */
BERTH_API berth_status berth_plan_explain(const berth_plan *plan, uint32_t layer,
                                          char *text, size_t capacity);

/* Takes the next piece of a text; other than 0 stops with BERTH_ECANCELLED. */
typedef int (*berth_text_function)(void *user, const char *text, size_t length);

/* The plan as JSON, berth-plan(5). */
BERTH_API berth_status berth_plan_print(const berth_plan *plan, berth_text_function put,
                                        void *user, berth_error *error);
/*
 * The other way round, from a file. Nothing in it is trusted: sizes, sums, offsets
 * and names are checked among themselves, memory is taken for what is there. A berth
 * without "offset" is put behind the others of its tier.
 * Returns BERTH_OK, BERTH_EFORMAT (naming the place), BERTH_EUNSUPPORTED (a later
 * version), BERTH_ENOENT, BERTH_EIO, BERTH_ENOMEM.
 */
BERTH_API berth_status berth_plan_open(berth_context *context, const char *path,
                                       berth_plan **out_plan, berth_error *error);
/*
 * The same from memory; `file` is what messages call it. BERTH_EINVAL for more than 10^9
 * bytes, which are BERTH_EFORMAT in a file.
 */
BERTH_API berth_status berth_plan_parse(berth_context *context, const char *text,
                                        size_t bytes, const char *file,
                                        berth_plan **out_plan, berth_error *error);

/*
 * Holds a plan against a checkpoint, and against budgets as in `max_memory` (NULL:
 * those of this machine, its GPUs too; "": none). Each finding is told; returns BERTH_OK, or the
 * status of the first: BERTH_EINTEGRITY (another checkpoint; a tensor without a berth or with
 * two, a berth of another size; KV caches that are not those of its context and batch, as far as
 * config.json tells), BERTH_EFORMAT (berths that were put elsewhere in the file: encoded where the
 * plan has no scratch, not among what their layer brings, or brought and no slot has the room),
 * BERTH_ENOFIT. A load of a plan that was read refuses the same, but for budgets.
 */
BERTH_API berth_status berth_plan_check(const berth_plan *plan, berth_context *context,
                                        const berth_checkpoint *checkpoint,
                                        const char *max_memory,
                                        berth_finding_function finding,
                                        void *finding_user, berth_error *error);

/* ------------------------------------------------------------------- values */

/*
 * Weights in memory of the caller: no file, no object, any thread. Nothing is
 * kept; large ones are worked on by several threads that end with the call.
 * What comes out does not depend on their number and, but for the last bits of
 * products, not on the processor.
 */

/* What a tensor that belongs to a stored weight holds. Pinned. */
typedef enum berth_role {
    BERTH_ROLE_VALUES = 0,   /* plain numbers: the weight itself                      */
    BERTH_ROLE_CODES = 1,
    BERTH_ROLE_ABSMAX = 2,   /* 4-bit: F32 a block; doubly quantized: U8 codes        */
    BERTH_ROLE_ABSMAX2 = 3,  /* second level: F32, one for 256 of the first           */
    BERTH_ROLE_MAP2 = 4,     /* the same for all weights                              */
    BERTH_ROLE_MAP = 5,      /* the same for all weights of an encoding               */
    BERTH_ROLE_STATE = 6,    /* JSON, see berth_values_state()                        */
    BERTH_ROLE_ROW_MAXIMUM = 7, /* INT8: F32 a row                                    */
    BERTH_ROLE_ROW_FORMAT = 8,  /* INT8: the same for all weights                     */
    BERTH_ROLE_COMPANION = 9 /* statistics of an encoding that berth does not make    */
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
    int32_t double_quant;  /* 1: absmax as 8-bit codes; EINVAL unless 4-bit           */
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
BERTH_API berth_status berth_values_recover(berth_context *context,
                                            const berth_values_options *options,
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
    uint64_t first_row;  /* of the weight's rows: which are multiplied; inputs, outputs
                            and bias stay those of all, other outputs are left alone  */
    uint64_t row_count;  /* 0: all from first_row on                                  */
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
 * Threads of the caller's can share a product out by its rows, each with a call
 * that has threads 1: a row gives the same bits in any call.
 *
 * Returns BERTH_OK, BERTH_EINVAL, BERTH_ENOMEM.
 */
BERTH_API berth_status berth_values_multiply(berth_context *context,
                                             const berth_values_options *options,
                                             const berth_values_buffers *buffers,
                                             const berth_values_product *product,
                                             berth_error *error);

/* ------------------------------------------------------------------ devices */

/*
 * What computes: the processor, or devices that are simulated where there are
 * none. All of one object are one machine: simulated ones share its links and
 * its clock.
 *
 *   "cpu"                    host memory
 *   "sim:24GiB,h2d=25GB/s"   berth-devices(5); several are parted by ";"
 *
 * What a simulated device reports is no measurement: berth_device says which it
 * is, and everything that berth prints of it says so, too.
 */
typedef struct berth_devices berth_devices;

/*
 * Free it with berth_devices_close(), after everything that was loaded on it. What
 * hung on it ("timeout") is given back then, of whichever context, but for what a GPU that
 * hangs even then may still use. A context that is destroyed before leaves it where it is.
 * Streams that the caller has made have ended their work by then: the runtime waits for
 * them, however long they take, when memory of a GPU is given back.
 * Returns BERTH_OK, BERTH_EINVAL (words), BERTH_ENODEV (no such device here),
 * BERTH_ENOMEM.
 */
BERTH_API berth_status berth_devices_open(berth_context *context, const char *words,
                                          berth_devices **out_devices,
                                          berth_error *error);
/* NULL is allowed. */
BERTH_API void berth_devices_close(berth_devices *devices);
BERTH_API uint32_t berth_devices_count(const berth_devices *devices);

typedef struct berth_device {
    char name[32];         /* "cpu", "sim:0"                                          */
    char description[96];
    uint64_t memory_bytes;
    uint64_t free_bytes;   /* UINT64_MAX: nobody knows                                */
    int32_t numa_node;     /* -1: unknown                                             */
    int32_t is_host;       /* 1: its memory is host memory                            */
    int32_t is_simulated;
    uint32_t copy_engines; /* that copy while kernels run: with one, copies to and from
                              the host take turns. 0: unknown, or none                */
    uint32_t pcie_generation; /* of its link as it is now, 1 to 7; 0: unknown, or none.
                                 A GPU with nothing to do may have slowed down        */
    uint32_t pcie_width;      /* lanes                                                */
    uint32_t pcie_most_generation; /* that the device could have                      */
    uint32_t pcie_most_width;
    uint16_t nvlink_links;    /* that are up; 0: none, or the driver does not tell    */
    uint16_t nvlink_version;  /* ten times: 40 is NVLink 4.0; 0: unknown              */
    uint32_t nvlink_mb_per_s; /* 10^6 bytes, of one link, one way; 0: unknown         */
    uint32_t c2c_mb_per_s;    /* of all chip-to-chip links (NVLink-C2C) to the host, one
                                 way, which copies take instead of PCIe; 0: none, or
                                 unknown                                              */
    uint32_t reserved32;
} berth_device;

/* BERTH_OK, or BERTH_EINVAL for a number out of range. */
BERTH_API berth_status berth_devices_get(const berth_devices *devices, uint32_t number,
                                         berth_device *out);

/*
 * A stream is a line of work of a device that is done in order. On "cuda" it is a
 * cudaStream_t, of berth or of the caller; NULL is the device's own first stream. All that
 * berth does on a GPU is in the context that the CUDA runtime has of it (the primary one),
 * and so is a stream of the caller's: whichever the calling thread has current, which stays.
 *
 * A graph of CUDA may capture steps and products (below); it is launched before the devices are
 * closed. While a stream captures, nothing else of berth is asked for on it, but leases of what
 * is resident. Other streams go on, and threads; but nothing is digested or checked meanwhile,
 * which waits for all of the device. A caller's stream made without cudaStreamNonBlocking bars
 * NULL while it captures: CUDA refuses what is asked of it, and ends the capture. Optimizers are
 * made, saved, loaded and moved by it, and what a step reports is read.
 *
 * Any thread: this and the calls below, but nothing of a stream that is being destroyed.
 */
BERTH_API berth_status berth_stream_create(berth_devices *devices, uint32_t number,
                                           void **out_stream, berth_error *error);
/*
 * Waits for what is under way, five seconds at most: what hangs even then is given back when
 * it is over, or with the device. NULL is allowed.
 */
BERTH_API void berth_stream_destroy(berth_devices *devices, uint32_t number,
                                    void *stream);
/*
 * Calls `call` when everything that the stream was asked for before is done, on any
 * thread; on a simulated device it takes `seconds` of its time. It must not call
 * berth about this device.
 */
BERTH_API berth_status berth_stream_call(berth_devices *devices, uint32_t number,
                                         void *stream, void (*call)(void *user),
                                         void *user, double seconds, berth_error *error);
/*
 * The host waits for everything that the stream was asked for before, `milliseconds`
 * at most (-1: for ever). Returns BERTH_PENDING when that is not enough, BERTH_ENODEV
 * when some of it failed.
 */
BERTH_API berth_status berth_stream_wait(berth_devices *devices, uint32_t number,
                                         void *stream, int64_t milliseconds,
                                         berth_error *error);
/* The clock that the devices share: simulated time, or time since they were opened. */
BERTH_API double berth_devices_seconds(const berth_devices *devices);

/* ---------------------------------------------------------------- computing */

/*
 * Memory of a device for what is computed on it: `bytes`, a multiple of 256, not zeroed.
 * It is told as BERTH_MEMORY_COMPUTING, under the device's name. Give it back with
 * berth_device_free(), before the devices are closed. Any thread. Returns BERTH_OK,
 * BERTH_EINVAL, BERTH_ENOFIT (the device has not so much left), BERTH_ENODEV, BERTH_ENOMEM.
 */
BERTH_API berth_status berth_device_alloc(berth_devices *devices, uint32_t number,
                                          uint64_t bytes, void **out_memory,
                                          berth_error *error);
/* `bytes` as allocated; no stream uses it any more. NULL is allowed. */
BERTH_API void berth_device_free(berth_devices *devices, uint32_t number, void *memory,
                                 uint64_t bytes);
/*
 * Copies between host memory and the device's, in the order of the stream; they return when
 * the host's side has been read, or written. Returns BERTH_OK, BERTH_EINVAL, BERTH_ENODEV,
 * BERTH_EINTERNAL where a simulated device finds that the memory is not its own.
 */
BERTH_API berth_status berth_device_write(berth_devices *devices, uint32_t number, void *to,
                                          const void *from, uint64_t bytes, void *stream,
                                          berth_error *error);
BERTH_API berth_status berth_device_read(berth_devices *devices, uint32_t number, void *to,
                                         const void *from, uint64_t bytes, void *stream,
                                         berth_error *error);

/*
 * From the memory of one device to that of another, or its own, in the order of both
 * streams: behind what both have been asked for by now, before what the other's will be.
 */
typedef struct berth_send {
    const void *from;
    void *to;            /* memory of `other` */
    uint64_t bytes;
    void *stream;        /* of the device that has them */
    void *other_stream;  /* of `other` */
    uint32_t other;      /* the number of the device that gets them */
    uint32_t reserved32;
} berth_send;

/*
 * What device `number` has goes to another one. Where it reaches the other's memory the copy
 * is only asked for: both memories stay until the streams are past it. Elsewhere it goes
 * through host memory, and has been read and is on its way when the call returns. Any
 * thread. Returns as berth_device_write(), and BERTH_ENOMEM; after a failure nobody knows
 * what `to` has.
 */
BERTH_API berth_status berth_device_send(berth_devices *devices, uint32_t number,
                                         const berth_send *send, berth_error *error);

/* ------------------------------------------------------------------- slices */

/*
 * A range of a stored tensor along one of its dimensions: what one of several ranks
 * needs. Of a weight [out, in] that computes a share of the outputs, rows (dimension 0);
 * of one that takes a share of the inputs, columns (dimension 1).
 */
typedef struct berth_slice {
    uint64_t tensor;    /* of the checkpoint                                          */
    uint32_t dimension;
    uint32_t reserved32;
    uint64_t first;     /* of that dimension                                          */
    uint64_t count;
    uint64_t bytes;     /* of `memory`: the slice's rows one behind the other         */
    void *memory;       /* the caller's                                               */
    uint64_t reserved[2];
} berth_slice;

/*
 * The share of part `part` of `parts`: [size * part / parts, size * (part + 1) / parts),
 * rounded down. All but `memory` is filled. BERTH_OK, or BERTH_EINVAL (a tensor, part or
 * dimension that is none; values of 4 bits that would be cut within a byte).
 */
BERTH_API berth_status berth_slice_divide(const berth_checkpoint *checkpoint,
                                          uint64_t tensor, uint32_t dimension,
                                          uint32_t part, uint32_t parts, berth_slice *out,
                                          berth_error *error);
/* Fills `bytes` of a range that the caller has chosen. The same statuses. */
BERTH_API berth_status berth_slice_measure(const berth_checkpoint *checkpoint,
                                           berth_slice *slice, berth_error *error);

typedef struct berth_slices_report {
    uint64_t bytes;      /* of all slices                                             */
    uint64_t bytes_read;
    double seconds;
    char io_path[64];    /* "io_uring direct", ...                                    */
    uint64_t reserved[4];
} berth_slices_report;

typedef struct berth_slices_options {
    size_t struct_size;  /* set by berth_slices_options_init()                        */
    int32_t io;          /* berth_io                                                  */
    int32_t no_uring;
    uint32_t readers;    /* reader threads; 0: default                                */
    uint32_t workers;    /* that copy; 0: one a usable core                           */
    uint64_t ring_bytes; /* byte cap of the staging ring, 12 MiB at least; 0: 64 MiB  */
    berth_progress_function progress;
    void *progress_user;
    berth_slices_report *report; /* filled when the job ends; must outlive it         */
    uint64_t reserved[4];
} berth_slices_options;

static inline void
berth_slices_options_init(berth_slices_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

/*
 * berth_slices_start() reads slices into the caller's memory, in one pass over the
 * files, whatever their number and order. Rows are read as ranges; of columns the rows
 * that they lie in, once and in large pieces. Bytes are as stored: of a quantized weight
 * codes and statistics are sliced like any tensors. `slices` are copied; checkpoint and
 * memory must outlive the job, and memory of two slices must not overlap.
 *
 * Returns BERTH_OK, BERTH_EINVAL (a slice that is none, `bytes` that are not its),
 * BERTH_ENOMEM. Finish the job with berth_job_finish(); it fails with BERTH_EIO and
 * BERTH_ENOMEM, and what lies in the memory is then of no use.
 */
BERTH_API berth_status berth_slices_start(berth_context *context,
                                          const berth_checkpoint *checkpoint,
                                          const berth_slice *slices, uint32_t count,
                                          const berth_slices_options *options,
                                          berth_job **out_job, berth_error *error);

/* --------------------------------------------------------------------- load */

/* What a load waited for most of its time; of several links the one that took longest. */
typedef enum berth_load_bottleneck {
    BERTH_LOAD_BY_READS = 0,   /* of the files                                        */
    BERTH_LOAD_BY_COPIES = 1,  /* to a device, or within host memory                  */
    BERTH_LOAD_BY_ENCODING = 2 /* by this machine, decoding as well                   */
} berth_load_bottleneck;

/* What a load did, and what held it up. */
typedef struct berth_load_report {
    uint64_t planned_bytes;   /* of all slabs, slots and scratch included             */
    uint64_t allocated_bytes; /* devices and hooks were asked for; of a load equal    */
    uint64_t placed_bytes;    /* as stored, of what was put into berths               */
    uint64_t bytes_read;
    uint64_t quantized_bytes; /* as they lie in berths, of what was encoded or cast
                                 on the way                                           */
    uint64_t ring_bytes;      /* of staging, at most                                  */
    double seconds;
    double first_seconds;     /* until the first bytes lay in their berth             */
    double read_seconds;      /* the rest of `seconds`: everybody waited for reads    */
    double place_seconds;     /* copying and encoding, summed over threads            */
    double wait_seconds;      /* copies were waited for, not reads                    */
    int32_t bottleneck;       /* berth_load_bottleneck                                */
    int32_t is_pinned;        /* 1: staging is; 0: refused, or no device asks for it  */
    char io_path[64];         /* "io_uring direct", ...                               */
    uint64_t verified_bytes;  /* held against a manifest, of so many stored tensors   */
    uint64_t verified_tensors;
    uint64_t mismatches;      /* LOAD_VERIFY_WARN: tensors and headers that are others,
                                 and entries that only manifest or checkpoint has     */
    uint64_t offloaded_bytes; /* written below `offload_dir`                          */
    uint64_t unverified_tensors; /* that a manifest has, of weights that are sliced   */
    uint64_t stage_bytes;     /* of one of the ring's stages                          */
    uint32_t stages;          /* that were filled at once in the end, of the ring     */
    uint32_t bottleneck_tier; /* COPIES: of the plan, whose link it is; else NO_INDEX */
    double encode_seconds;    /* of `place_seconds`: decoding and encoding by this
                                 machine; what a device encodes is among its copies   */
    uint64_t turned_bytes;    /* of host memory while weights are turned, at most     */
    uint64_t reserved[3];
} berth_load_report;

/*
 * What a load does with the crc32 of each header, and of each stored tensor that it reads. A
 * manifest has that of whole tensors: of slices, as a rank of tensor parallelism reads them,
 * and of stacks of which some experts stay on the disk, nothing is verified. REQUIRE refuses
 * such a plan (BERTH_EUNSUPPORTED); the others count the tensors in `unverified_tensors`, and
 * log how many there are, WARN as a warning.
 */
typedef enum berth_load_verify {
    BERTH_LOAD_VERIFY_AUTO = 0,    /* holds it against the manifest, where there is one;
                                      one that `manifest` names has all that is stored  */
    BERTH_LOAD_VERIFY_REQUIRE = 1, /* there has to be one, with all that is stored      */
    BERTH_LOAD_VERIFY_WARN = 2,    /* where there is one: logged and counted, no failure */
    BERTH_LOAD_VERIFY_NONE = 3     /* nothing: saves a pass over memory                 */
} berth_load_verify;

/*
 * Where slabs lie: one for each memory of the plan, of exactly its bytes. Without these
 * hooks host memory comes from the context's allocator, and device memory from the
 * device. Staging, tables and scratch in host memory are the context's in any case.
 */
typedef struct berth_slab_memory {
    void *user;
    /*
     * `device`: number of the plan's GPU; BERTH_NO_INDEX: host memory. `alignment` is a
     * power of two. `purpose`: "slab", or "hold", what a slab lies in while its model
     * sleeps. NULL: there is none; the load fails with BERTH_ENOFIT, for host memory
     * BERTH_ENOMEM, and gives everything back. A move that gets no memory of a device gives
     * the old slab back, and asks again. Any thread.
     */
    void *(*alloc)(void *user, uint32_t device, uint64_t bytes, uint64_t alignment,
                   const char *purpose);
    /*
     * Gets what the matching alloc has got. Nothing uses the memory any more. Not called where
     * something may: for memory of a GPU that hangs even when it is given up, and for host
     * memory that is pinned for it. Any call of the context may find that what hung is over,
     * and call this: it closes no devices, which would wait for that call.
     */
    void (*free)(void *user, uint32_t device, void *memory, uint64_t bytes,
                 uint64_t alignment, const char *purpose);
    int32_t is_pinned; /* 1: its host memory is pinned for the devices already        */
    uint32_t reserved32;
    uint64_t reserved[2];
} berth_slab_memory;

typedef struct berth_load_options {
    size_t struct_size;      /* set by berth_load_options_init()                      */
    berth_devices *devices;  /* one for each GPU of the plan, in its order; NULL: those
                                that the plan names                                   */
    int32_t io;              /* berth_io                                              */
    int32_t no_uring;
    uint32_t readers;        /* reader threads; 0: default                            */
    uint32_t workers;        /* that copy and encode; 0: one a usable core, with devices
                                4 at least                                            */
    uint64_t ring_bytes;     /* byte cap of the staging ring, 16 MiB at least; 0: the
                                plan's, or 64 MiB, and a twentieth of what limits leave
                                this process, at most                                 */
    uint64_t wait_ms;        /* longest wait for a device or a disk that does not move;
                                0: 60 s                                               */
    berth_progress_function progress;
    void *progress_user;
    berth_load_report *report; /* filled when the job ends; must outlive it           */
    int32_t verify;          /* berth_load_verify                                     */
    int32_t is_source_of_manifest; /* 1: the checkpoint is what that of the manifest was
                                made of: its digests of sources count                 */
    const char *manifest;    /* copied; NULL: berth.manifest.json beside the model, or
                                FILE.berth.manifest.json of a FILE that was opened by
                                itself, where that is there                           */
    const berth_slab_memory *slab_memory; /* copied; NULL: the context's, the devices' */
    const char *offload_dir; /* copied; where layers of the disk are written that the
                                checkpoint does not have as they are wanted, now or by
                                a move; NULL: a plan with such layers is refused      */
    uint32_t stages;         /* of the ring that are filled at once, as many as it has
                                room for; 0: 4 to 8 at first, and twice as many each
                                quarter of a second while that gains 3 %              */
    uint32_t reserved32;
    uint64_t reserved[3];
} berth_load_options;

static inline void
berth_load_options_init(berth_load_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

/* Weights in their berths, and what brings those that are not where they are needed. */
typedef struct berth_model berth_model;

/*
 * berth_load_start() puts every tensor into its berth, in the background: one
 * allocation a tier, of exactly the plan's bytes (BERTH_EINTERNAL where they are others);
 * one pass over the files; what the plan wants encoded is encoded on the way. All or
 * nothing: whatever goes wrong, and after a cancel, everything is given back. It does not
 * wait: memory is allocated by the job, too.
 *
 * Host memory beside berths is the ring and tables, whatever the size of a tensor; but
 * weights that lie the other way round in an encoding, as those of GPT-2 do, are whole there
 * while they are turned: their blocks run across what is read. `turned_bytes` of the report
 * has room for two of the largest, and so has `turned` of a plan's tier for host memory. The
 * ring of a plan for host memory alone is taken out of its reserve. A turned weight of more
 * than 1 GiB is BERTH_EUNSUPPORTED.
 *
 * Host memory that the plan's GPUs copy from is pinned before anything is read, in pieces
 * that end at addresses which are multiples of 128 MiB; where one is refused, none is. They
 * count in the job's bytes, and a cancel is heard between two. The CUDA runtime refuses a
 * copy from one piece into the next (cudaErrorInvalidValue): what berth copies is divided
 * there, and so have to be copies of the caller's. Of `slab_memory` that is pinned already
 * berth pins nothing.
 *
 * A read that hangs for `wait_ms` is BERTH_EIO with its file and position, and so is a
 * layer of such a disk. The buffers it is read into stay allocated until it comes back,
 * which later jobs of the context see, and its end; one that ends before leaves them
 * behind for good. A cancel waits five seconds at most for such reads. The statistics of
 * a weight that is stored quantized and decoded are read in one call before its values, and
 * second levels of what a slice splits with each piece of it, with no limit but the kernel's.
 *
 * Copies of a device that do not end for as long are BERTH_EIO with a tensor of theirs, and
 * so is a layer from the disk that cannot go on to such a device. Slabs and staging stay
 * allocated until it has done its copies, or is closed by berth_devices_close(): hooks of
 * `slab_memory` can be called as late as that. Host memory that berth has pinned for a GPU
 * that hangs even then stays allocated for good. What a device has not pinned is copied by
 * calls of its driver that wait for it, and nobody can end those: whoever is in one, as he
 * acquires, releases or prefetches what lies in host memory, waits without a limit. That is one
 * call at a time for layers of a device, and one for its experts. Others who lease what the same
 * device computes get at once what is there, and for the rest BERTH_EIO after `wait_ms`, for
 * which a prefetch of experts may wait, too; releases do not. What comes from the disk is waited
 * for by those who acquire it, for as long at most. All devices share the ring that it comes
 * through. Copies that hang keep a part of it and, unless memory is short, leave one buffer at
 * least to each other device that streams, so what those wait for goes on to come. Where several
 * devices stream, one that has not pinned the ring gets a thread of the model's for its copies,
 * or two, one of them for experts: if none can be started, nothing comes for the others while it
 * hangs.
 *
 * Where a manifest lies beside the model, as `berth quantize` and `berth verify` write
 * it, every stored tensor that is read is held against its crc32 in the same pass, and before
 * it the header of every file. What stays on the disk is not read, and not checked.
 *
 * What a plan leaves on the disk is streamed from the files of the checkpoint, where it
 * lies there as the plan wants it, and nothing is written. Only what it wants in another
 * encoding or dtype is written, once, while it is loaded, to one file below
 * `offload_dir`: packed as a slot takes it, each tensor with a crc32, which
 * berth_check_start() compares. The file has no name, nobody else can open it, and it is
 * gone with the model, also where the process is killed; where a file system has no such
 * files it gets one for a moment, mode 0600, in a folder of mode 0700. A folder that is
 * not there is made, mode 0700, and removed. Room is taken before anything is read:
 * BERTH_EIO with the bytes that are needed and those that are free. The model remembers
 * the name of the folder, which later moves write to (berth_model_move_start()); a
 * relative one is looked up anew by each of them.
 *
 * Context, checkpoint, plan and devices must outlive the model. End it with
 * berth_load_finish(); berth_job_finish() loads for nothing.
 *
 * Returns BERTH_OK, BERTH_EINVAL (options), BERTH_EINTEGRITY (a plan for another
 * checkpoint), BERTH_EUNSUPPORTED (a manifest is required, which slices of tensors cannot be held
 * against), BERTH_ENOMEM. The job fails with BERTH_EINTEGRITY where a plan that was read has
 * other tensors or caches than the checkpoint, and with BERTH_EFORMAT where it was edited in
 * part, as berth_plan_check() does, with BERTH_EINVAL (devices that are not those of the plan),
 * BERTH_ENOFIT (a device has less than the plan takes), BERTH_ENODEV, BERTH_EUNSUPPORTED,
 * BERTH_ENOMEM, BERTH_EIO, with BERTH_EINTEGRITY naming the tensor, or the file whose header,
 * is not what the manifest says, and with what reading a manifest fails with.
 */
BERTH_API berth_status berth_load_start(berth_context *context,
                                        const berth_checkpoint *checkpoint,
                                        const berth_plan *plan,
                                        const berth_load_options *options,
                                        berth_job **out_job, berth_error *error);
/*
 * Waits for the end. On failure *out_model is NULL. The job is gone then, too, but where the
 * call itself is refused: an out_model that is NULL, a job of another kind.
 */
BERTH_API berth_status berth_load_finish(berth_job *job, berth_model **out_model,
                                         berth_error *error);
/*
 * Leases are given back by this. Waits for copies under way, for `wait_ms` at most: what
 * hangs then, of leases or of a move, keeps the memory of the model, as with loads. For a call
 * of a driver that copies what its device has not pinned it waits without a limit. Where
 * others still have tensors of it, berth_model_dlpack(), the last of them frees the model.
 * NULL is allowed.
 */
BERTH_API void berth_model_destroy(berth_model *model);

/* One stretch of memory of a tensor. */
typedef struct berth_model_part {
    const void *memory; /* NULL: it lies on the disk, or in a slot that is not leased */
    uint64_t bytes;
    int32_t role;       /* berth_role                                                 */
    int32_t dtype;
    uint64_t tensor;    /* COMPANION: of the checkpoint; else BERTH_NO_TENSOR         */
} berth_model_part;

#define BERTH_MODEL_PARTS 9

/* A tensor as it lies now. */
typedef struct berth_model_tensor {
    const char *name;     /* of the stored tensor; of the checkpoint                  */
    size_t name_length;
    uint64_t tensor;      /* of the checkpoint                                        */
    uint32_t layer;       /* of the plan                                              */
    uint32_t tier;        /* of the plan: where its berth is                          */
    uint32_t device;      /* number of the device that computes it                    */
    int32_t is_resident;  /* 1: its berth is on that device                           */
    int32_t is_expert;
    int32_t encoding;     /* berth_encoding                                           */
    int32_t dtype;        /* of the values                                            */
    uint32_t block_size;
    int32_t is_double;
    float offset;         /* doubly quantized                                         */
    uint32_t rank;
    uint64_t shape[BERTH_MAX_RANK]; /* of the values; of a slice, its own             */
    uint64_t elements;
    uint32_t part_count;
    uint32_t reserved32;
    berth_model_part parts[BERTH_MODEL_PARTS];
    uint64_t reserved[4];
} berth_model_tensor;

/*
 * The tensor of this number of the plan's berths. Where it is streamed, `memory` is
 * that of the slot while its layer, or expert, is leased. What lies in host memory can be read
 * there at any time: berth_model_get_host() gets that place instead. An embedding of which
 * rows are fetched (BERTH_PLAN_ROWS) is never in a slot: its rows are read there, or where it
 * lies on the disk by berth_checkpoint_read(). A tensor that is tied has the layer, the tier and
 * the device of the one whose bytes it shares: a lease of that layer brings both.
 * BERTH_OK, or BERTH_EINVAL for a number out of range. Any thread, but while a job moves
 * the model.
 */
BERTH_API berth_status berth_model_get_tensor(const berth_model *model, uint64_t berth,
                                              berth_model_tensor *out);
/* The same as it lies in host memory; BERTH_ENOENT where it does not. Any thread, as above. */
BERTH_API berth_status berth_model_get_host(const berth_model *model, uint64_t berth,
                                            berth_model_tensor *out);
/*
 * Number of the berth of a tensor by its name, or BERTH_NO_TENSOR. Logarithmic. Of a stack
 * that is taken apart, that of its first expert.
 */
BERTH_API uint64_t berth_model_find(const berth_model *model, const char *name,
                                    size_t name_length);
/*
 * The berth of one expert, by the name of its tensor or of the stack that it is in; its
 * shape is [1, ...] then. Linear in the experts of a stack.
 */
BERTH_API uint64_t berth_model_find_expert(const berth_model *model, const char *name,
                                           size_t name_length, uint32_t expert);
/*
 * crc32 of a tensor's parts one behind the other, as they lie on its tier. Waits, for the
 * disk and for all that the device was asked for, without a limit: nobody can end a read
 * of the kernel or a call of a driver. BERTH_EIO ("timeout") where copies of the model are
 * known to hang, of a move that ended so.
 */
BERTH_API berth_status berth_model_digest(berth_model *model, uint64_t berth,
                                          uint32_t *out_crc, berth_error *error);

struct DLManagedTensorVersioned; /* of a header of DLPack 1.0 or later */

/*
 * berth_model_dlpack() lends a part of a tensor, where it lies in its berth, to whatever
 * takes DLPack: nothing is copied. It is read-only, of kDLCPU, kDLCUDAHost (pinned for
 * GPUs) or kDLCUDA, whose device_id is the CUDA runtime's: 1 for "cuda:1", also where
 * that is the only one of berth's. Plain values, and codes that are a byte a value, have
 * the weight's shape; packed codes and statistics are one row; dtypes that DLPack 1.0 has
 * no word for are bytes. Call its deleter once, on any thread. What lies in host memory
 * may go on from one pinned piece into the next: see berth_load_start() for who copies it
 * to a GPU.
 *
 * The memory stays: the model cannot be moved meanwhile (BERTH_EINVAL, "exported"), and
 * berth_model_destroy() gives it back with the last such tensor, until which context,
 * checkpoint, plan and devices must live, too.
 *
 * Returns BERTH_OK, BERTH_EINVAL (no such berth or part; a model that is asleep or being
 * moved), BERTH_EUNSUPPORTED (on the disk; on a simulated device; of no elements, with
 * dimensions or strides beyond 2^63 - 1), BERTH_ENOMEM.
 */
BERTH_API berth_status berth_model_dlpack(berth_model *model, uint64_t berth,
                                          uint32_t part,
                                          struct DLManagedTensorVersioned **out_tensor,
                                          berth_error *error);

typedef struct berth_check_report {
    uint64_t tensors;     /* compared                                                 */
    uint64_t bytes;       /* of them, as they lie                                     */
    uint64_t bytes_read;  /* of the checkpoint                                        */
    uint64_t mismatches;
    double seconds;
    uint64_t reserved[4];
} berth_check_report;

typedef struct berth_check_options {
    size_t struct_size; /* set by berth_check_options_init()                          */
    berth_progress_function progress;
    void *progress_user;
    berth_finding_function finding; /* every tensor that is another                   */
    void *finding_user;
    berth_check_report *report; /* filled when the job ends; must outlive it          */
    uint64_t reserved[4];
} berth_check_options;

static inline void
berth_check_options_init(berth_check_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

/*
 * berth_check_start() compares what lies in the berths with what should: it reads the
 * checkpoint again, encodes what was encoded once more, piece by piece on the host, and
 * holds the crc32 of each tensor against that of its berth, on whatever tier. The model
 * must not be used otherwise meanwhile. Finish it with berth_job_finish(): BERTH_OK, or
 * BERTH_EINTEGRITY naming the first tensor that is another; BERTH_EINVAL where the model is
 * asleep, or a job moves it; BERTH_EUNSUPPORTED where pieces of a weight are too large to
 * be made anew; BERTH_EIO, BERTH_ENOMEM, BERTH_ENODEV. It waits as berth_model_digest(),
 * read by read; a cancel is heard in between.
 */
BERTH_API berth_status berth_check_start(berth_model *model,
                                         const berth_check_options *options,
                                         berth_job **out_job, berth_error *error);

/*
 * berth_layer_acquire() makes a layer usable on `stream`, of the device that is its
 * home: work that the stream is asked for afterwards finds its bytes. Of a resident
 * layer the lease is counted, which costs next to nothing. Of a streamed one the copy is
 * under way or done: the stream waits for it, the caller does not, unless layers are asked
 * for in another order than the plan's, or come from the disk and are not there yet.
 *
 * Several leases of a layer are counted. Layers that are leased at once need a slot
 * each: BERTH_ENOFIT where the plan has not so many. Also BERTH_EIO (the disk, or a device
 * that others copy to has not moved for berth_load_options.wait_ms),
 * BERTH_ENODEV, BERTH_EINVAL. Any thread; leases of a layer on a stream by one.
 */
BERTH_API berth_status berth_layer_acquire(berth_model *model, uint32_t layer,
                                           void *stream, berth_error *error);
/*
 * What `stream` was asked for so far is the last that uses the layer: behind it the
 * slot is filled with the next layer. BERTH_EINVAL where it is not leased.
 */
BERTH_API berth_status berth_layer_release(berth_model *model, uint32_t layer,
                                           void *stream, berth_error *error);
/*
 * The layer that is acquired next is this one, not the one that follows: a caller says so
 * who skips layers or repeats some. It is brought at once, and those that follow it behind
 * it, into slots that nobody has leased; what lay there for others is given up. Where layers
 * are acquired in the plan's order, releases do this by themselves.
 *
 * A hint, best given before the layer in use is released: what a release asks for is copied
 * first. Where all slots are leased, the next release brings it; a layer that is leased or
 * resident is there already; an acquire of another layer goes on from there. Waits for
 * nothing; what goes wrong is told when it is acquired. BERTH_EINVAL: there is no such
 * layer, or as berth_layer_acquire() while the model is asleep or moved. Any thread.
 */
BERTH_API berth_status berth_layer_prefetch(berth_model *model, uint32_t layer,
                                            berth_error *error);

/*
 * Experts that a plan has apart lie in berths of their own, which a layer's lease does
 * not bring: which of them will be used is not known then.
 *
 * berth_experts_acquire() makes `count` experts of a layer, by their numbers, usable on
 * `stream`, as berth_layer_acquire() does with what else the layer has; all of them, or
 * none. Resident ones cost nothing. Others lie in slots of the layer's home, of which each
 * layer has its share, and stay there until another one needs the slot: one
 * that is still there costs no copy. A copy from pinned host memory is not waited for by
 * the caller; the disk is.
 *
 * Leases are counted. Experts that are leased at once, by whomever, need a slot each:
 * BERTH_ENOFIT where there are not so many. BERTH_EINVAL for a number that is none of
 * the layer's, also of stacks that are not taken apart, which come with the layer.
 * Also BERTH_EIO, BERTH_ENODEV. Any thread.
 */
BERTH_API berth_status berth_experts_acquire(berth_model *model, uint32_t layer,
                                             const uint32_t *experts, uint32_t count,
                                             void *stream, berth_error *error);
/*
 * What `stream` was asked for so far is the last that uses them. BERTH_EINVAL where one
 * of them is not leased: then none has been released, as after any other failure.
 */
BERTH_API berth_status berth_experts_release(berth_model *model, uint32_t layer,
                                             const uint32_t *experts, uint32_t count,
                                             void *stream, berth_error *error);
/*
 * These are likely to be acquired next: begins to bring them, as far as slots are not
 * leased. Waits for nothing; what goes wrong is told when they are acquired. BERTH_EINVAL.
 */
BERTH_API berth_status berth_experts_prefetch(berth_model *model, uint32_t layer,
                                              const uint32_t *experts, uint32_t count,
                                              berth_error *error);
/*
 * How many experts of a layer that are not resident can be leased at once; UINT32_MAX
 * where all are, or it has none. 0: the plan has no slots, they are used where they lie
 * (berth_model_get_host()). Of a model that sleeps as before and afterwards. Not while a job
 * moves the model.
 */
BERTH_API uint32_t berth_experts_slots(const berth_model *model, uint32_t layer);

/* What leases of a layer's experts did, since the model was loaded, moved or woken. */
typedef struct berth_expert_counts {
    uint64_t acquired;      /* that are not resident                                  */
    uint64_t hits;          /* of them, those that lay in a slot                      */
    uint32_t slots;         /* that hold experts of this layer now                    */
    uint32_t away;          /* experts that are not resident                          */
    uint64_t reserved[2];
} berth_expert_counts;

/* All zero where the layer has none, or all are resident, and while the model sleeps. Not while a
   job moves the model. */
BERTH_API void berth_experts_count(const berth_model *model, uint32_t layer,
                                   berth_expert_counts *out);

/* What leases did so far. Any thread. */
typedef struct berth_lease_summary {
    uint64_t acquired;      /* layers with something streamed                         */
    uint64_t filled;        /* slots                                                  */
    uint64_t copied_bytes;
    uint64_t disk_bytes;    /* of them, read from the disk                            */
    uint64_t order_misses;  /* layers asked for in another order                      */
    uint64_t host_waits;    /* the caller had to wait                                 */
    uint64_t experts_acquired; /* that are not resident                               */
    uint64_t expert_hits;   /* of them, those that lay in a slot                      */
    uint64_t experts_filled; /* slots                                                 */
    uint64_t expert_bytes;  /* copied; layers are counted above                       */
    uint64_t expert_disk_bytes; /* of them, read from the disk                        */
    uint64_t reserved[3];
} berth_lease_summary;

BERTH_API void berth_model_leases(const berth_model *model, berth_lease_summary *out);

/* ------------------------------------------------------------------- steps */

/*
 * The steps of a layer on the device where its weights lie, in the order of a stream:
 * plain, and the same bits on every device and level.
 *
 * Pointers are memory of that device; what is written overlaps nothing that is read, but
 * where it is said to. Members that are not named are zero. A step is only asked for: its
 * memory stays until the stream is past it. Nothing is allocated.
 *
 * A dtype is BERTH_BF16, _F16 or _F32. Everything is computed in 32-bit floats, in an
 * order that the shapes alone decide, and rounded once; every NaN that is stored is
 * 0x7FFFFFFF, or 0x7FFF. What a row gets does not depend on the rows beside it.
 */

/*
 * Rows of a table: outputs[i] is row numbers[i] / share. For embeddings, and for the
 * inputs of experts.
 */
typedef struct berth_take {
    const void *table;       /* rows x columns                                        */
    int32_t table_dtype;
    int32_t dtype;           /* of outputs                                            */
    const uint32_t *numbers; /* count; of rows that there are not, zeroes are taken   */
    uint64_t rows;
    uint64_t columns;
    uint32_t count;
    uint32_t share;          /* 0: 1                                                  */
    void *outputs;           /* count x columns                                       */
} berth_take;

/*
 * outputs[i] = weight * (inputs[i] / sqrt(mean of its squares + epsilon))
 *
 * With `sums` what is `added` comes to them first, as by berth_add, and they are the inputs.
 */
typedef struct berth_norm {
    const void *inputs; /* count x columns; with sums not looked at                   */
    const void *weight; /* columns                                                    */
    void *outputs;      /* count x columns; may be the inputs, or `added`, in its dtype */
    int32_t inputs_dtype;
    int32_t weight_dtype;
    int32_t dtype;      /* of outputs                                                 */
    float epsilon;
    uint32_t count;
    int32_t added_dtype;
    uint64_t columns;
    float *sums;        /* count x columns; NULL: nothing is added                    */
    const void *added;  /* the same                                                   */
} berth_norm;

/*
 * Queries and keys of `count` tokens, the first of them at `position`: each head
 * normalised as by berth_norm where there are weights for it, its pairs (i, i + width / 2)
 * turned by the angles of its position; queries where they are, keys and values into the
 * caches.
 */
typedef struct berth_rotate {
    void *queries;          /* count x heads x width                                  */
    const void *keys;       /* count x kv_heads x width                               */
    const void *values;     /* the same                                               */
    const void *query_norm; /* width; NULL: none                                      */
    const void *key_norm;
    const float *angles;    /* count x width, from `position` on: of a position width / 2
                               cosines, then as many sines                            */
    void *key_cache;        /* kv_heads x capacity x width                            */
    void *value_cache;
    int32_t dtype;          /* of queries, keys and values                            */
    int32_t norm_dtype;     /* looked at where there are such weights                 */
    int32_t cache_dtype;
    float epsilon;
    uint32_t count;
    uint32_t heads;
    uint32_t kv_heads;      /* a divisor of `heads`                                   */
    uint32_t width;         /* even, 2 to 256                                         */
    uint64_t position;
    uint64_t capacity;      /* of the caches, in positions: `position` + `count` or more */
} berth_rotate;

/*
 * What queries make of the positions up to their own: shares by softmax of
 * query * key / sqrt(width), and the sum of values by them. Query head h has the key and
 * value head h / (heads / kv_heads).
 */
typedef struct berth_attend {
    const void *queries;   /* count x heads x width                                   */
    const void *key_cache; /* kv_heads x capacity x width                             */
    const void *value_cache;
    void *outputs;         /* as queries, and may be they                             */
    int32_t dtype;         /* of queries and outputs                                  */
    int32_t cache_dtype;
    uint32_t count;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t width;        /* as of berth_rotate                                       */
    uint64_t position;     /* of the first query                                      */
    uint64_t capacity;
    uint64_t window;       /* positions a query sees, its own among them; 0: all      */
} berth_attend;

/* gate[i] = gate[i] * sigmoid(gate[i]) * up[i] */
typedef struct berth_gate {
    void *gate;
    const void *up;
    uint64_t elements;
    int32_t dtype;
    uint32_t reserved32;
} berth_gate;

/*
 * sums[rows[i] / share] += weights[rows[i]] * values[i], one after the other: i ascending.
 * For residuals, and for the outputs of experts.
 */
typedef struct berth_add {
    float *sums;          /* sum_rows x columns                                       */
    const void *values;   /* count x columns                                          */
    const uint32_t *rows; /* count; NULL: i. Where there is no such sum nothing is added */
    const float *weights; /* sum_rows * share of them; NULL: 1                        */
    int32_t dtype;        /* of values                                                */
    uint32_t share;       /* 0: 1                                                     */
    uint32_t count;
    uint32_t sum_rows;
    uint64_t columns;
} berth_add;

/*
 * Of each token the `used` experts with the largest logits, of equal ones the first, in the
 * order of their numbers; their shares by softmax of all, of the used ones alone where
 * `is_renormalised`. A NaN counts as -infinity.
 */
typedef struct berth_choose {
    const void *logits; /* count x experts                                            */
    uint32_t *numbers;  /* count x used                                               */
    float *weights;     /* count x used                                               */
    int32_t dtype;
    int32_t is_renormalised;
    uint32_t count;
    uint32_t experts;   /* 1 to 1024                                                  */
    uint32_t used;      /* 1 to 64, and to `experts`                                  */
    uint32_t reserved32;
} berth_choose;

/*
 * numbers[i] is the column of the largest value of row i, of equal ones the first. A NaN counts
 * as -infinity. For tokens that are chosen by their logits alone: rows may be long.
 */
typedef struct berth_largest {
    const void *values; /* count x columns                                            */
    uint32_t *numbers;  /* count                                                      */
    int32_t dtype;
    uint32_t count;
    uint32_t columns;   /* from 1 on                                                  */
    uint32_t reserved32;
} berth_largest;

/*
 * Each asks device `number` for a step. Returns BERTH_OK, BERTH_EINVAL (a member is none),
 * BERTH_ENODEV (the device is lost), BERTH_EUNSUPPORTED (it does not do this),
 * BERTH_EINTERNAL where a simulated device finds that memory is not its own. What goes
 * wrong later is told by berth_stream_wait(). Any thread.
 */
BERTH_API berth_status berth_device_take(berth_devices *devices, uint32_t number,
                                         const berth_take *step, void *stream,
                                         berth_error *error);
BERTH_API berth_status berth_device_norm(berth_devices *devices, uint32_t number,
                                         const berth_norm *step, void *stream,
                                         berth_error *error);
BERTH_API berth_status berth_device_rotate(berth_devices *devices, uint32_t number,
                                           const berth_rotate *step, void *stream,
                                           berth_error *error);
BERTH_API berth_status berth_device_attend(berth_devices *devices, uint32_t number,
                                           const berth_attend *step, void *stream,
                                           berth_error *error);
BERTH_API berth_status berth_device_gate(berth_devices *devices, uint32_t number,
                                         const berth_gate *step, void *stream,
                                         berth_error *error);
BERTH_API berth_status berth_device_add(berth_devices *devices, uint32_t number,
                                        const berth_add *step, void *stream,
                                        berth_error *error);
BERTH_API berth_status berth_device_choose(berth_devices *devices, uint32_t number,
                                           const berth_choose *step, void *stream,
                                           berth_error *error);
BERTH_API berth_status berth_device_largest(berth_devices *devices, uint32_t number,
                                            const berth_largest *step, void *stream,
                                            berth_error *error);

/*
 * outputs = inputs x weight^T + bias, of a tensor of a model where it lies: plain numbers,
 * NF4, FP4, or INT8 as LLM.int8() multiplies it. Sums are rounded once, to `dtype`; of one
 * input they have the bits that it has among others, but where a GPU multiplies many at
 * once, and but for INT8's outlier columns, which all inputs of a call share.
 *
 * INT8: inputs are codes of 8 bits, too, but for columns in which one of them, as f16, has a
 * magnitude of `threshold` or above. What the codes make is rounded to f16 and to `dtype`; to
 * it is added, rounded to `dtype`, the sum over those columns, in their order, of inputs times
 * weights in `dtype`. These are the bits of berth_values_multiply(), wherever the weight lies.
 *
 * Many inputs take memory of a GPU beside `scratch`, which a stream has from its first such
 * product on: four streams at a time, those that multiplied last. A graph gets what its stream
 * has from the same product outside of graphs; it is set apart, for three streams at most, until
 * the devices are closed, and eager products of the stream get other memory. Where there is none
 * slower kernels do without. Graphs that one stream has captured share it: they are launched one
 * after another, behind all that the stream was asked for before its first capture. CUDA does not
 * say which stream it is that captures: one of the caller's that comes where another of the
 * caller's was destroyed, and may have its handle, does such a product outside of graphs before it
 * captures any, or its graphs get what those of the other have. Graphs of cudaStreamPerThread,
 * which is another stream in each thread by one handle, get none.
 */
typedef struct berth_multiply {
    const void *inputs;     /* count x columns                                        */
    void *outputs;          /* count x rows                                           */
    const void *bias;       /* rows, in `dtype`; INT8: BERTH_F16. NULL: none          */
    void *scratch;          /* at a multiple of 256                                   */
    uint64_t scratch_bytes; /* berth_model_multiply_scratch() or more                 */
    int32_t dtype;          /* of inputs and outputs                                  */
    uint32_t count;         /* from 1 on                                              */
    float threshold;        /* INT8, as said above; 0: no column is apart             */
    uint32_t reserved32;
    uint64_t reserved[1];
} berth_multiply;

/*
 * Asks the device that computes the tensor's layer, on a stream for which the layer, or the
 * expert, is leased. Returns as a step, and BERTH_EINVAL where the tensor is not there:
 * nobody has leased it; where scratch that is needed is too small, NULL or not at a multiple of
 * 256; while the model is asleep or moved.
 * BERTH_EUNSUPPORTED for what is no matrix in one of these encodings, and for INT8 with more than
 * 131071 columns. Any thread.
 */
BERTH_API berth_status berth_model_multiply(berth_model *model, uint64_t berth,
                                            const berth_multiply *step, void *stream,
                                            berth_error *error);
/*
 * Several products, of tensors that one device computes: the same bits as one after the other,
 * in which each stands for itself and all may have one scratch. No output is another's input.
 * 4-bit weights that are encoded alike and meet the same up to 8 inputs are one piece of work
 * on a GPU with tensor cores: the rows of small weights keep it as busy as those of a large one.
 * `count` is from 1 to BERTH_MULTIPLY_TOGETHER; all are checked before the first is asked for.
 * Returns as berth_model_multiply(). Any thread.
 */
#define BERTH_MULTIPLY_TOGETHER 4u
BERTH_API berth_status berth_model_multiply_together(berth_model *model,
                                                     const uint64_t *berths,
                                                     const berth_multiply *steps,
                                                     uint32_t count, void *stream,
                                                     berth_error *error);
/*
 * Bytes for so many inputs and any threshold; 0: none are needed, or it cannot be. Not while a
 * job moves it.
 */
BERTH_API uint64_t berth_model_multiply_scratch(const berth_model *model, uint64_t berth,
                                                int32_t dtype, uint32_t count);

/*
 * The same of several experts: outputs = inputs x weight^T + bias with one weight of each, or
 * with a few of each that meet the same inputs (gate and up). Inputs are grouped by expert, as
 * the host has them: it knows which experts are used, since it has leased them.
 *
 * The arrays below are the host's, and read by the call; what they lead to, inputs, outputs and
 * biases, is memory of the device, which is one for all berths. A weight has the same shape in
 * all experts, and all weights have as many columns. Berths of experts that have no inputs are
 * not looked at, and need no lease: `experts` may be all that there are.
 */
typedef struct berth_multiply_experts {
    const uint64_t *berths;    /* weights x experts: the first weight of each expert, then the
                                  second one of each, ...                             */
    const uint32_t *ranges;    /* experts + 1, ascending: inputs from ranges[e] on, up to that
                                  before ranges[e + 1], are expert e's                */
    const void *inputs;        /* ranges[experts] x columns                           */
    void *const *outputs;      /* weights of them: each ranges[experts] x rows, of which those
                                  of experts are written                              */
    const void *const *biases; /* as `berths`, each as of berth_multiply; NULL: none has one */
    void *scratch;             /* at a multiple of 256                                */
    uint64_t scratch_bytes;    /* berth_model_multiply_experts_scratch() or more      */
    int32_t dtype;             /* of inputs and outputs                               */
    uint32_t experts;          /* from 1 on                                           */
    uint32_t weights;          /* of each: 1 to BERTH_MULTIPLY_TOGETHER               */
    float threshold;           /* of weights in INT8, as of berth_multiply: of an expert's own
                                  inputs                                              */
    uint64_t reserved[2];
} berth_multiply_experts;

/*
 * Asks for them on a stream for which the experts are leased. The bits are those of
 * berth_model_multiply() with each expert's own inputs.
 *
 * Weights in NF4, or in FP4, that are encoded alike are one piece of work for up to 46 experts in
 * a row that have inputs, 16 at most: one for each of `weights`. Products one after the other, of
 * an expert its weights together, are those of experts with more inputs, for which there are
 * other kernels; of all other encodings; and on GPUs where such a weight has an order of sums of
 * its own (8.0, 8.7, 9.0 to 11.0: blocks of 64, BF16 or F16, from 4096 columns on a multiple of
 * 256).
 *
 * Where weights lie, and whose inputs are whose, goes to the scratch with the work itself, in the
 * stream's order: nothing is waited for, and a graph that captures the call has it as it was
 * then. So such a graph may be launched as long as these experts stay where they are, resident or
 * leased all the while, and inputs are grouped in the same way.
 *
 * All is checked before anything is asked for. Returns as berth_model_multiply(); BERTH_EINVAL,
 * naming it, where a berth has another shape than the others or lies on another device. Any
 * thread.
 */
BERTH_API berth_status berth_model_multiply_experts(berth_model *model,
                                                    const berth_multiply_experts *step,
                                                    void *stream, berth_error *error);
/*
 * Bytes for any number of experts whose weights are like this one, with up to `count` inputs
 * each, and any threshold; of several weights the most that one of them needs. 0: as of
 * berth_model_multiply_scratch().
 */
BERTH_API uint64_t berth_model_multiply_experts_scratch(const berth_model *model,
                                                        uint64_t berth, int32_t dtype,
                                                        uint32_t count);

/*
 * values[i] is value `first` + i of a tensor of a model where it lies: NF4, FP4 and INT8, with the
 * bits of berth_values_dequantize() on every device, and plain numbers that are of `dtype` already.
 */
typedef struct berth_dequantize {
    void *values;     /* memory of the device that computes the tensor                */
    uint64_t first;   /* of 4-bit encodings even: two share a byte                    */
    uint64_t count;   /* from 1 on; of all values `elements` of the tensor            */
    int32_t dtype;    /* of what is written: BERTH_BF16, BERTH_F16 or BERTH_F32       */
    uint32_t reserved32;
    uint64_t reserved[3];
} berth_dequantize;

/*
 * Asks the device that computes the tensor's layer, on a stream for which the layer, or the
 * expert, is leased. The tensor may have any shape; what begins at a multiple of its blocks (256
 * of them where it is doubly quantized), or of its rows (INT8), takes least. Takes no memory.
 * Returns as berth_model_multiply(), and BERTH_EUNSUPPORTED for other encodings and plain numbers
 * of another dtype. Any thread.
 */
BERTH_API berth_status berth_model_dequantize(berth_model *model, uint64_t berth,
                                              const berth_dequantize *step, void *stream,
                                              berth_error *error);

/* --------------------------------------------------------------------- move */

/*
 * A model that is loaded goes to other places without being loaded again: what is in
 * memory is copied, nothing is encoded a second time, handles, numbers of layers and
 * berths stay what they are. Every one of these is a job: finish it with
 * berth_job_finish().
 *
 *   sleep   devices are given back: slabs, slots and scratch. A copy of what lay in
 *           the berths stays in host memory. Host memory of the plan stays as it is.
 *   wake    slabs of exactly the plan's bytes again, filled from there
 *   move    to another plan of the same tensors: layers are promoted and demoted, also to
 *           the disk
 *   swap    one model sleeps, then the other wakes: within one budget
 *
 * With `discards` what the checkpoint holds byte by byte as its berth does is not kept
 * in host memory but read again by the wake, host memory of the plan included; what was
 * encoded by the load is always kept.
 *
 * No layer is leased, and the caller's streams have ended what they do with resident
 * ones. From start to finish nothing else may be asked of the model but its
 * state and berth_model_leases(); acquire and digest are refused then (MOVING), and while
 * it is asleep (ASLEEP). What is leased when a job begins ends the job (BERTH_EINVAL), and
 * can be used and released as if there were none. Tensors of a model that sleeps have no
 * memory but where it has stayed: without `discards`, what the plan has in host memory.
 *
 * All or nothing: after a failure or a cancel the model is what it was before. Where
 * memory was given back before other memory could be taken (swap, and move on a device
 * that has no room for the old and the new slab) going back may fail, too, if somebody
 * else has taken it meanwhile: the model is then asleep, with its old plan, and
 * berth_model_wake_start() works once there is room. The job's message says so,
 * and a cancelled job then fails with what kept the model from going back.
 *
 * Reads and copies that do not end for the load's `wait_ms` are BERTH_EIO ("timeout"), and
 * a cancel waits for five seconds at most. What copies that hang use, new slabs, host
 * memory, staging, stays allocated until they end, which later jobs of the context see and
 * berth_context_trim(), or until berth_devices_close(). The model is what it was before:
 * awake, or asleep where memory had been given back already. Before those copies have ended
 * it is not moved again (BERTH_EIO, "timeout"). Other models do not notice.
 */
typedef enum berth_model_state {
    BERTH_MODEL_AWAKE = 0,
    BERTH_MODEL_ASLEEP = 1,
    BERTH_MODEL_MOVING = 2 /* a job is at it */
} berth_model_state;

typedef struct berth_move_report {
    uint64_t carried_bytes; /* from one memory to another                             */
    uint64_t read_bytes;    /* of the checkpoint, and of what lies in `offload_dir`   */
    uint64_t slab_bytes;    /* that the model has now, on devices and in host memory  */
    uint64_t held_bytes;    /* of host memory, in which it sleeps                     */
    double seconds;
    uint64_t written_bytes; /* below `offload_dir`                                    */
    uint64_t reserved[7];
} berth_move_report;

typedef struct berth_move_options {
    size_t struct_size; /* set by berth_move_options_init()                           */
    int32_t discards;   /* sleep, swap: 1: see above                                  */
    int32_t reserved32;
    berth_progress_function progress;
    void *progress_user;
    berth_move_report *report; /* filled when the job ends; must outlive it; of a swap:
                                  of both models                                      */
    uint64_t reserved[8];
} berth_move_options;

static inline void
berth_move_options_init(berth_move_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

/* A berth_model_state. Any thread, at any time. */
BERTH_API int32_t berth_model_get_state(const berth_model *model);

/*
 * Returns BERTH_OK, BERTH_EINVAL (it is asleep, or being moved), BERTH_EIO (an earlier move
 * hangs), BERTH_ENOMEM. The job fails with BERTH_EINVAL (a layer is leased), BERTH_ENOMEM
 * (no host memory for the copy), BERTH_ENODEV, BERTH_EIO (a device that does not move),
 * BERTH_ECANCELLED.
 */
BERTH_API berth_status berth_model_sleep_start(berth_model *model,
                                               const berth_move_options *options,
                                               berth_job **out_job, berth_error *error);
/*
 * Returns BERTH_OK, BERTH_EINVAL (it is awake, or being moved), BERTH_EIO (an earlier move
 * hangs), BERTH_ENOMEM. The job fails with BERTH_ENOFIT (a device has less than the plan
 * takes), BERTH_ENOMEM, BERTH_ENODEV, BERTH_EIO (of a shard, too), BERTH_ECANCELLED; the
 * model then sleeps on.
 */
BERTH_API berth_status berth_model_wake_start(berth_model *model,
                                              const berth_move_options *options,
                                              berth_job **out_job, berth_error *error);
/*
 * `plan` is of the same checkpoint, options of encodings and devices; it differs in
 * budgets, pins, slots, homes. A layer is promoted or demoted by a plan with a pin for
 * it. GPUs are those of the plan that was loaded, by their names: it may leave some of them
 * out. It must outlive the model; the plan before is no longer used after success.
 *
 *   berth_plan_options options = as before;
 *   const char *pins[] = { "model.layers.7=cpu" };
 *
 *   options.pins = pins;
 *   options.pin_count = 1;
 *   status = berth_plan_create(context, checkpoint, &options, &plan, &error);
 *   if (status == BERTH_OK)
 *       status = berth_model_move_start(model, plan, NULL, &job, &error);
 *   if (status == BERTH_OK)
 *       status = berth_job_finish(job, &error);
 *
 * A slab that is the same in both plans stays where it is. Else host memory has to hold
 * the old and the new slab at once, and where a device cannot, a copy of what lies on
 * the device.
 *
 * What goes to the disk and lies in the checkpoint as its berth holds it is read from
 * there. What does not, because the load encoded it or cut it by columns, is written first,
 * as it is in memory, to a file below the load's `offload_dir`: one more for each move that
 * has something to write, without a name, flushed, each tensor with a crc32. Files of the
 * load and of earlier moves are left as they are, and read together with it: a berth is
 * written once, stays in its file while it is promoted, and is demoted again for nothing.
 * They go with the model, also where the process is killed. Room is taken before anything
 * is given back: on a full disk the model is what it was before, and so it is after a write
 * that fails.
 *
 * Returns BERTH_OK, BERTH_EINVAL (also: other tensors, encodings or devices),
 * BERTH_EINTEGRITY (a plan of another checkpoint), BERTH_EFORMAT (one that was read and is
 * refused by a load), BERTH_ENOFIT, BERTH_EUNSUPPORTED (what
 * was encoded would have to lie on the disk, and the load had no `offload_dir`), BERTH_EIO
 * (an earlier move hangs), BERTH_ENOMEM; the job with these, with BERTH_EIO (of the folder;
 * a full disk with the bytes that are needed and those that are free), and as sleep and
 * wake.
 */
BERTH_API berth_status berth_model_move_start(berth_model *model, const berth_plan *plan,
                                              const berth_move_options *options,
                                              berth_job **out_job, berth_error *error);
/*
 * `model` sleeps, then `other` wakes: what both have of devices is never more than what
 * one of them has. If `other` does not wake, `model` does again.
 * Returns, and the job fails, as sleep and wake.
 */
BERTH_API berth_status berth_model_swap_start(berth_model *model, berth_model *other,
                                              const berth_move_options *options,
                                              berth_job **out_job, berth_error *error);

/* -------------------------------------------------------------------- bench */

/*
 * What this machine can do: how fast its links are, measured the way that loads use
 * them. Reads go through the readers and the ring of a load, copies through the devices'
 * own streams.
 */
typedef struct berth_bench berth_bench;

typedef enum berth_bench_kind {
    BERTH_BENCH_READ_COLD = 0,     /* files of which nothing is in the page cache     */
    BERTH_BENCH_READ_WARM = 1,     /* the beginning of them, from the page cache      */
    BERTH_BENCH_COPY = 2,          /* within host memory, by `threads`                */
    BERTH_BENCH_HOST_MEMORY = 3,   /* host memory is read, by `threads`               */
    BERTH_BENCH_NF4 = 4,           /* bytes of BF16 in host memory, quantized         */
    BERTH_BENCH_NF4_DOUBLE = 5,    /* the same, doubly                                */
    BERTH_BENCH_TO_DEVICE = 6,
    BERTH_BENCH_TO_HOST = 7,
    BERTH_BENCH_DEVICE_MEMORY = 8, /* read and written by copies within it            */
    BERTH_BENCH_TO_DEVICE_SHARED = 9, /* all devices are copied to: this one's part   */
    BERTH_BENCH_UPDATE = 10,       /* BF16 in host memory, updated: `optimizer`; bytes of
                                      values and states in and out, of gradients in   */
    BERTH_BENCH_OPERATION = 11     /* of a GPU: products of one input with small weights, in
                                      what they take beyond reading these             */
} berth_bench_kind;

/* "read_cold", ...; NULL: no such number. */
BERTH_API const char *berth_bench_kind_name(int32_t kind);

/* One measurement. Rates are bytes a second; of OPERATION operations a second. */
typedef struct berth_bench_line {
    int32_t kind;          /* berth_bench_kind                                        */
    uint32_t device;       /* number of the device; BERTH_NO_INDEX: none              */
    uint32_t threads;      /* of the host; 0: what loads use, or none                 */
    int32_t is_pinned;     /* copies: the host's memory is                            */
    int32_t is_simulated;  /* 1: no measurement of this machine                       */
    int32_t reserved32;
    uint64_t rate;         /* the better one; 0: not measured, `words` says why       */
    uint64_t own_rate;     /* of this bench                                           */
    uint64_t earlier_rate; /* of the earlier one; 0: there is none                    */
    double drift;          /* between these two, as a share of the better one         */
    uint64_t bytes;        /* moved for it; OPERATION: how many products               */
    double seconds;        /* by the clock of the device, or of the host              */
    char words[64];        /* "io_uring direct"; "3% cached"; why there is no rate    */
    uint64_t reserved[4];
} berth_bench_line;

typedef struct berth_bench_options {
    size_t struct_size;      /* set by berth_bench_options_init()                     */
    const berth_checkpoint *checkpoint; /* its shards are read, nothing is written    */
    const char *folder;      /* without a checkpoint: a file is made here that has no
                                name, read, and gone. Both NULL: nothing is read      */
    berth_devices *devices;  /* NULL: none                                            */
    double seconds;          /* for all of it, 3600 at most; 0: 4 s. Everything is measured
                                once                                                  */
    uint64_t memory_bytes;   /* of the host, beside the ring: 1 MiB to 1 TiB; 0: 256 MiB */
    uint64_t file_bytes;     /* in `folder`, the same                                 */
    uint64_t ring_bytes;     /* 0: 64 MiB, which is what loads have                   */
    int32_t io;              /* berth_io                                              */
    int32_t no_uring;
    uint32_t readers;        /* reader threads; 0: default                            */
    uint32_t reserved32;
    uint64_t wait_ms;        /* longest wait for a device that does not move, a day at most;
                                0: 60 s                                               */
    const berth_bench *earlier; /* of the same options: each line gets the better rate of
                                the two, and how far they are apart                   */
    berth_progress_function progress;
    void *progress_user;
    const char *optimizer;   /* "adamw": as berth_update_name() has it, with states of 8
                                bits; NULL: nothing is updated                        */
    uint64_t reserved[7];
} berth_bench_options;

static inline void
berth_bench_options_init(berth_bench_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

/*
 * berth_bench_start() measures in the background. What a device refuses, such as pinned
 * memory, is a line without a rate; a device that fails ends the job. Progress counts
 * bytes that are expected to be moved.
 *
 * Host memory that is taken: memory_bytes and the ring; of each device, one after the
 * other, up to half of memory_bytes. What `options` point to must outlive the job.
 * Cached bytes of the files that are read are dropped from the page cache.
 *
 * Copies that do not end for `wait_ms` are BERTH_EIO; all that they use stays allocated until
 * they do, which later jobs of the context see, or the devices are closed. What is copied from
 * memory that is not pinned is waited for without a limit, as by loads.
 *
 * End it with berth_bench_finish(). Returns BERTH_OK, BERTH_EINVAL (options; an earlier
 * bench of others), BERTH_ENOMEM. The job fails with BERTH_EIO, BERTH_ENOENT (the
 * folder), BERTH_ENODEV, BERTH_ENOMEM.
 */
BERTH_API berth_status berth_bench_start(berth_context *context,
                                         const berth_bench_options *options,
                                         berth_job **out_job, berth_error *error);
/*
 * Waits for the end, as berth_load_finish(). Free the result with berth_bench_destroy().
 */
BERTH_API berth_status berth_bench_finish(berth_job *job, berth_bench **out_bench,
                                          berth_error *error);
/* NULL is allowed. */
BERTH_API void berth_bench_destroy(berth_bench *bench);

BERTH_API uint32_t berth_bench_count(const berth_bench *bench);
/* BERTH_OK, or BERTH_EINVAL for a number out of range. */
BERTH_API berth_status berth_bench_get(const berth_bench *bench, uint32_t number,
                                       berth_bench_line *out);
/*
 * What was measured as berth-links(5), for berth_plan_options.link_text or a file; lives
 * as long as the bench. Device 0 is the tier "cuda:0", and so on. A device's link is what
 * it gets of a link that several share, when all of them are copied to.
 */
BERTH_API const char *berth_bench_links(const berth_bench *bench);

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
 * berth_config_open() takes what config.json beside the checkpoint's weights held when
 * the checkpoint was opened, whatever lies there now. It never changes afterwards, may be
 * shared, and may outlive the checkpoint, not the context. Free it with
 * berth_config_close().
 * Returns BERTH_OK, BERTH_ENOENT (there was none), BERTH_EFORMAT (no JSON, or it could not
 * be read), BERTH_ENOMEM, BERTH_EINVAL.
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

/* ----------------------------------------------------------------- estimate */

/*
 * What a model needs, line by line, before it is loaded or even downloaded:
 * weights, caches, activations, training. Numbers come from headers where there
 * are any, else from config.json; nothing touches a device. The formulas, their
 * sources and their limits are in berth-estimate(5).
 */

/* A model's numbers: layers, heads, widths, weights that are alike. */
typedef struct berth_shape berth_shape;

/*
 * berth_shape_open() reads what berth_checkpoint_open() takes, or, where the
 * weights or some of them are missing, config.json alone, and an index if there
 * is one; a note of its estimates then says which of the files are missing. A variant
 * that is asked for has to be there. `path` may also be a config.json, whatever it is
 * called: a file that begins as a JSON object does. It never changes afterwards and
 * may be shared. Free it with berth_shape_close().
 *
 * Returns BERTH_OK, BERTH_ENOENT (no config.json; nothing there), BERTH_EFORMAT
 * (config.json describes no model; files that are there are malformed),
 * BERTH_EUNSUPPORTED (an adapter; another kind of file), BERTH_EIO, BERTH_ENOMEM,
 * BERTH_EINVAL.
 */
BERTH_API berth_status berth_shape_open(berth_context *context, const char *path,
                                        const berth_open_options *options,
                                        berth_shape **out_shape, berth_error *error);
/* NULL is allowed. */
BERTH_API void berth_shape_close(berth_shape *shape);

/* Texts are borrowed from the shape; those of config.json are as they stand there. */
typedef struct berth_shape_summary {
    const char *path;        /* as resolved: folder or file                           */
    const char *model_type;  /* "" where config.json does not say                     */
    const char *family;      /* whose rules count the layers; "other": those of Llama */
    int32_t has_headers;     /* 1: weights are those of the files                     */
    int32_t dtype;           /* berth_dtype: bf16, f16 or f32                         */
    uint64_t parameters;
    uint64_t layers;
    uint64_t encoder_layers;
    uint64_t hidden;
    uint64_t vocabulary;
    uint64_t positions;      /* longest context it was made for; 0: not said          */
    uint64_t experts;        /* most in a layer; 0: none                              */
    uint64_t experts_used;   /* of them by a token                                    */
    uint64_t tensor_bytes;   /* of all files, or as the index says; 0: unknown        */
    uint64_t reserved[6];
} berth_shape_summary;

BERTH_API void berth_shape_get(const berth_shape *shape, berth_shape_summary *summary);

typedef enum berth_train_method {
    BERTH_TRAIN_FULL = 0,
    BERTH_TRAIN_LORA = 1  /* QLoRA with a quantized type                              */
} berth_train_method;

typedef enum berth_train_precision {
    BERTH_TRAIN_PURE = 0,     /* parameters and states in `dtype`                     */
    BERTH_TRAIN_AUTOCAST = 1, /* f32 parameters, computed in `dtype`                  */
    BERTH_TRAIN_MASTER = 2    /* parameters in `dtype` and an f32 copy                */
} berth_train_precision;

/* Training. A sequence has the estimate's `context`, a micro-batch its `batch`. */
typedef struct berth_train_options {
    size_t struct_size;        /* set by berth_train_options_init()                   */
    int32_t method;            /* berth_train_method                                  */
    int32_t precision;         /* berth_train_precision                               */
    const char *optimizer;     /* see berth_optimizer_name(); NULL: "adamw_torch", of a
                                  plan "paged_adamw_8bit"                             */
    const char *lora_targets;  /* "q_proj,v_proj"; NULL: "all-linear"                 */
    uint64_t lora_rank;        /* 0: 16                                               */
    uint64_t checkpoint_every; /* layers between checkpoints; 0: no checkpointing     */
    uint64_t accumulation;     /* micro-batches a step; 0: 1                          */
    uint64_t loss_chunk;       /* positions whose logits are there at a time; 0: all  */
    uint64_t prefetch;         /* batches uploaded ahead of time                      */
    uint64_t workers;          /* of the loader; 0: no pinned buffers                 */
    uint64_t prefetch_factor;  /* batches that each of them prepares                  */
    int32_t accumulates_f32;   /* 1: gradients are f32                                */
    int32_t has_fused_norms;   /* 1: norms keep their input only                      */
    int32_t is_packed;         /* 1: no padding; needs the estimate's `tokens`        */
    int32_t reserved32;
} berth_train_options;

static inline void
berth_train_options_init(berth_train_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    options->workers = 2;
    options->prefetch_factor = 2;
}

typedef struct berth_estimate_options {
    size_t struct_size;      /* set by berth_estimate_options_init()                  */
    const char *type;        /* of linear layers: "f32", "bf16", "f16", "int8", "nf4",
                                "fp4"; NULL: "native", as they are stored             */
    const char *cache_type;  /* "f32", "bf16", "f16", "fp8", "int8", "int4"; NULL: the
                                dtype that is computed in                             */
    int32_t dtype;           /* computed in: BERTH_BF16, _F16, _F32; -1: the model's  */
    int32_t double_quant;    /* 4-bit, 1: absmax as 8-bit codes                       */
    uint32_t block_size;     /* 4-bit; 0: 64                                          */
    int32_t keeps_experts;   /* 1: experts are not quantized                          */
    int32_t expands_latents; /* 1: MLA's cache as transformers keeps it               */
    int32_t is_eager;        /* 1: attention without a fused kernel                   */
    int32_t has_all_logits;  /* 1: of every position of the prompt                    */
    uint32_t fragmentation_percent; /* of what comes and goes; 5 unless changed       */
    uint64_t context;        /* tokens of a sequence, prompt and answer; 0: 4096, or the
                                longest of `tokens`, or what the model is made for    */
    uint64_t prompt;         /* of them computed at once; 0: all. No more than `context`, or
                                than one of `contexts`: those that are shorter, all  */
    uint64_t source;         /* encoder-decoder: tokens of the encoder's input; 0: as many as
                                the context, or the positions that it has             */
    uint64_t batch;          /* sequences; 0: 1                                       */
    uint64_t runtime_bytes;  /* of a device's context; 512 MiB unless changed         */
    uint64_t workspace_bytes; /* of cuBLASLt; 32 MiB unless changed                   */
    const uint64_t *contexts; /* columns of the table, 64 at most; NULL: `context` alone */
    uint32_t context_count;
    uint32_t budget_count;
    const uint64_t *budgets; /* bytes of each device, in the order they are filled in, 1024
                                at most, one for training; NULL: nothing is fitted    */
    uint64_t host_bytes;     /* that streamed layers may take; 0: as many as needed   */
    uint32_t reserve_percent; /* of each budget, kept free; 10 unless changed         */
    uint32_t reserved32;
    const char *tokens;      /* text with a length of a sequence a line; NULL: none   */
    uint64_t tokens_bytes;
    const char *tokens_file; /* its name, for messages; NULL: none                    */
    const berth_train_options *train; /* NULL: inference                              */
} berth_estimate_options;

static inline void
berth_estimate_options_init(berth_estimate_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    options->dtype = -1;
    options->fragmentation_percent = 5;
    options->runtime_bytes = 536870912; /* 512 MiB */
    options->workspace_bytes = 33554432;
    options->reserve_percent = 10;
}

typedef struct berth_estimate berth_estimate;

/*
 * berth_estimate_create() answers everything the options ask for: the lines of
 * one estimate, a table of types by contexts, with budgets what fits and what to
 * do when it does not, with `tokens` what batches of them cost. `options` may be
 * NULL. Keeps no reference to the shape. Free it with berth_estimate_destroy().
 *
 * That something does not fit is an answer: BERTH_OK. Returns BERTH_OK, or
 *   BERTH_EINVAL        an option that is none or out of its range; lengths that
 *                       are none; a sum beyond 2^64
 *   BERTH_EUNSUPPORTED  another type than the files' own, which berth names but
 *                       does not decode
 *   BERTH_ENOMEM
 */
BERTH_API berth_status berth_estimate_create(berth_context *context,
                                             const berth_shape *shape,
                                             const berth_estimate_options *options,
                                             berth_estimate **out_estimate,
                                             berth_error *error);
/* NULL is allowed. */
BERTH_API void berth_estimate_destroy(berth_estimate *estimate);

typedef struct berth_estimate_summary {
    uint64_t device_bytes;   /* as if there were one device                           */
    uint64_t host_bytes;
    uint64_t usable_bytes;   /* of the budgets, less their reserves; 0: none given    */
    uint64_t advised_bytes;  /* on the device after all of the advice                 */
    uint64_t trained;        /* parameters; 0: inference                              */
    uint64_t context;        /* as used                                               */
    uint64_t batch;
    int32_t has_budget;
    int32_t fits;            /* 1: as it is                                           */
    int32_t can_fit;         /* 1: as it is, or with the advice                       */
    int32_t best_fit;        /* first of the fits that holds it; -1: none             */
    uint32_t part_count;
    uint32_t note_count;
    uint32_t claim_count;
    uint32_t fit_count;      /* rows of the table                                     */
    uint32_t context_count;  /* its columns                                           */
    uint32_t advice_count;
    uint32_t length_count;   /* percentiles of `tokens`; 0: none given                */
    uint32_t reserved32;
    /* Of `tokens`; 0 without. */
    uint64_t sequences;
    uint64_t tokens;         /* = those of packed batches                             */
    uint64_t shortest;
    uint64_t longest;
    uint64_t mean;           /* rounded down                                          */
    uint64_t padded;         /* computed in batches of `batch`, in the list's order   */
    uint64_t sorted;         /* the same in order of length                           */
    uint64_t packs;          /* rows as long as the longest that hold all of them     */
    uint64_t reserved[6];
} berth_estimate_summary;

BERTH_API void berth_estimate_get(const berth_estimate *estimate,
                                  berth_estimate_summary *summary);

typedef enum berth_place {
    BERTH_PLACE_DEVICE = 0,
    BERTH_PLACE_HOST = 1,
    BERTH_PLACE_NONE = 2  /* no memory of its own: read, or part of another line      */
} berth_place;

/* One line. All texts of an estimate are ASCII and live as long as it. */
typedef struct berth_estimate_part {
    const char *key;     /* "kv_cache": for programs                                  */
    const char *name;    /* "KV cache"                                                */
    const char *dtype;   /* "bf16", "nf4", "8-bit"; "" where there is none            */
    const char *basis;   /* "exact", "formula", "measured" or "estimate"              */
    const char *reason;  /* the formula with its numbers                              */
    int32_t place;       /* berth_place                                               */
    int32_t reserved32;
    uint64_t bytes;
    uint64_t reserved[2];
} berth_estimate_part;

/* A figure that is published for such a model, and why ours is another. */
typedef struct berth_estimate_claim {
    const char *table;   /* "70B QLoRA on one 80 GB card"                             */
    const char *what;
    const char *reason;
    uint64_t claimed;
    uint64_t bytes;      /* ours, of the same part                                    */
    uint64_t reserved[2];
} berth_estimate_claim;

/* One type of weights: a row of the table. What budgets have to say is 0 without. */
typedef struct berth_estimate_fit {
    const char *type;        /* "native", "nf4+double-quant"                          */
    const uint64_t *bytes;   /* on the device, for each of the table's contexts       */
    uint64_t context;        /* largest that fits; 0: none                            */
    int32_t fits;            /* with the options' context                             */
    int32_t is_capped;       /* 1: the model is made for no longer context            */
    uint32_t devices;        /* fewest like the first that hold it; 0: no number does */
    uint32_t reserved32;
    uint64_t reserved[2];
} berth_estimate_fit;

/* One thing to do, on top of those before it. */
typedef struct berth_estimate_advice {
    const char *what;
    const char *cost;
    uint64_t saved;
    uint64_t bytes;      /* on the device afterwards                                  */
    int32_t fits;
    int32_t reserved32;
    uint64_t reserved[2];
} berth_estimate_advice;

/* A percentile of `tokens`, and the largest batch that fits, padded to it. */
typedef struct berth_estimate_length {
    const char *name;    /* "p50", "p95", "p99", "max"                                */
    uint64_t tokens;
    uint64_t batch;      /* 0: not even one sequence, or no budget                    */
    uint64_t reserved[2];
} berth_estimate_length;

/* By number, below the summary's counts; BERTH_EINVAL, and zeroes, beyond. */
BERTH_API berth_status berth_estimate_get_part(const berth_estimate *estimate,
                                               uint32_t number, berth_estimate_part *out);
BERTH_API berth_status berth_estimate_get_claim(const berth_estimate *estimate,
                                                uint32_t number,
                                                berth_estimate_claim *out);
BERTH_API berth_status berth_estimate_get_fit(const berth_estimate *estimate,
                                              uint32_t number, berth_estimate_fit *out);
BERTH_API berth_status berth_estimate_get_advice(const berth_estimate *estimate,
                                                 uint32_t number,
                                                 berth_estimate_advice *out);
BERTH_API berth_status berth_estimate_get_length(const berth_estimate *estimate,
                                                 uint32_t number,
                                                 berth_estimate_length *out);
/* What the lines do not say; NULL beyond the last. */
BERTH_API const char *berth_estimate_get_note(const berth_estimate *estimate,
                                              uint32_t number);

/* "adamw_torch", ...: optimizers known here, from 0; NULL beyond the last. */
BERTH_API const char *berth_optimizer_name(uint32_t number);

/* --------------------------------------------------------------- optimizers */

/*
 * What a training run keeps of each parameter besides its value, in 8 bits or 32, and
 * where: beside the parameter, in host memory, or in a file. Values and gradients are
 * the caller's; an optimizer owns the states, and changes both values and states in
 * berth_optimizer_step().
 *
 *   page    what is kept of some 2^22 elements of one parameter, in one piece: an f32
 *           copy where the group has one, then the states. Pages that lie elsewhere
 *           visit their parameter's device for their update, several of them on the
 *           way at a time, and go back.
 *
 * The bits of an update are those of the published library's CUDA kernels, with
 * divisions, square roots and powers rounded correctly (berth-optimizer(5)); they are
 * the same for every device, place, number of threads and slots. Subnormal numbers are kept
 * within an update. RMSprop and Adagrad divide the scaled gradient, without its decay. Limits
 * of an update's length (max_unorm, trust ratios) are left out.
 */
typedef enum berth_update_kind {
    BERTH_UPDATE_ADAM = 0,
    BERTH_UPDATE_ADAMW = 1,
    BERTH_UPDATE_LION = 2,
    BERTH_UPDATE_MOMENTUM = 3, /* SGD                                                 */
    BERTH_UPDATE_RMSPROP = 4,
    BERTH_UPDATE_ADAGRAD = 5,
    BERTH_UPDATE_ADEMAMIX = 6
} berth_update_kind;

/* "adam", "adamw", ...; NULL for any other number. */
BERTH_API const char *berth_update_name(int32_t kind);

typedef enum berth_states_place {
    BERTH_STATES_DEVICE = 0, /* in the memory of the parameter's device               */
    BERTH_STATES_HOST = 1,   /* in host memory, pinned where the device asks for it   */
    BERTH_STATES_DISK = 2,   /* in a file without a name, in `states_dir`             */
    BERTH_STATES_PLACE_COUNT = 3
} berth_states_place;

/* What parameters are updated with. */
typedef struct berth_optimizer_group {
    size_t struct_size;  /* set by berth_optimizer_group_init()                       */
    int32_t kind;        /* berth_update_kind                                         */
    int32_t bits;        /* of states: 8 or 32                                        */
    uint64_t least_8bit; /* a parameter of fewer elements has states of 32 bits       */
    int32_t place;       /* berth_states_place, of parameters with states of 8 bits, or
                            of so many elements; others have theirs on the device     */
    int32_t has_master;  /* 1: of bf16 and f16 an f32 copy is kept, and updated; the
                            parameter is its rounding                                 */
    int32_t is_coupled;  /* 1: decay enters the gradient (L2); 0: it shrinks the value */
    float rate;
    float beta1;         /* RMSprop: alpha                                            */
    float beta2;
    float epsilon;
    float decay;         /* 0: none                                                   */
    float beta3;         /* AdEMAMix: of its slow mean,                               */
    float alpha;         /* and how much that counts                                  */
    uint64_t beta3_steps; /* over which beta3 rises from beta1; 0: it does not        */
    uint64_t alpha_steps; /* over which alpha rises from 0; 0: it does not            */
    uint64_t reserved[6];
} berth_optimizer_group;

/*
 * berth_optimizer_group_init() fills a group with the published defaults of a kind: states of
 * 8 bits from 4096 elements on, on the device.
 * Returns BERTH_OK, or BERTH_EINVAL: no such kind, or one with settings that a group of the
 * caller's header has no fields for. All but struct_size is zero then.
 */
BERTH_API berth_status berth_optimizer_group_init_sized(berth_optimizer_group *group,
                                                        size_t struct_size, int32_t kind);

/* Inline, so that the size is that of the caller's header. */
static inline berth_status
berth_optimizer_group_init(berth_optimizer_group *group, int32_t kind)
{
    return berth_optimizer_group_init_sized(group, sizeof *group, kind);
}

typedef struct berth_parameter {
    const char *name;      /* copied; UTF-8, no two alike: the key in files           */
    const uint64_t *shape; /* copied                                                  */
    uint32_t rank;
    int32_t dtype;         /* BERTH_BF16, BERTH_F16 or BERTH_F32                      */
    void *values;          /* the caller's, in memory of its device; outlives the
                              optimizer                                               */
    float *sum;            /* the same, for berth_optimizer_accumulate(); NULL: berth's */
    uint32_t device;       /* number among `devices`; 0 without                       */
    uint32_t group;
    uint64_t reserved[2];
} berth_parameter;

typedef struct berth_optimizer_options {
    size_t struct_size;     /* set by berth_optimizer_options_init()                  */
    berth_devices *devices; /* borrowed; NULL: the processor                          */
    const char *states_dir; /* copied; for states on the disk; made where it is not, and
                               then removed as soon as the file, without a name, is there */
    uint32_t threads;       /* that update on the processor; 0: one a usable core     */
    uint32_t slots;         /* pages of a device that are on the way at a time, 16 at
                               most; 0: 4                                             */
    int32_t accumulates;    /* 1: gradients can be added up in f32, beside values     */
    int32_t reserved32;
    uint64_t wait_ms;       /* longest wait for a device that does not move; 0: 60 s  */
    uint64_t page_elements; /* a multiple of 4096, 2^28 at most; 0: 2^22              */
    uint64_t reserved[6];
} berth_optimizer_options;

static inline void
berth_optimizer_options_init(berth_optimizer_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

typedef struct berth_optimizer berth_optimizer;

/*
 * Bytes of an optimizer, of one device and of host memory and disk. Of host memory it has
 * besides: names and lists; from the first norm on 16 bytes for each 4096 elements; one page
 * while states are read, moved or saved; while they begin or are loaded one page and up to 6
 * bytes for each of its elements, a load 1 MiB at least.
 */
typedef struct berth_optimizer_memory {
    uint64_t states[BERTH_STATES_PLACE_COUNT]; /* by place: f32 copies included       */
    uint64_t slots;        /* of the device, in which pages are updated               */
    uint64_t gradients;    /* of the device: sums                                     */
    uint64_t staging;      /* in host memory, of pages from the disk                  */
    uint64_t scratch;      /* of the device, for counts                               */
    uint64_t parameters;   /* of the device                                           */
    uint64_t elements;
    uint64_t elements_8bit; /* of them with states of 8 bits                          */
    uint64_t reserved[4];
} berth_optimizer_memory;

/*
 * berth_optimizer_plan() tells what berth_optimizer_create() would allocate for the
 * parameters of one device (BERTH_NO_INDEX: of all), to the byte, and allocates
 * nothing; `values` of parameters may be NULL. Both return BERTH_EINVAL, naming group
 * or parameter, for what is none, and for parameters that take more than 2^64 bytes.
 *
 * An optimizer begins with states that are zero and at step 0. BERTH_ENOFIT: a device
 * has no room for them; BERTH_EIO: the disk. Destroy it with berth_optimizer_destroy(),
 * before devices and values.
 */
BERTH_API berth_status berth_optimizer_plan(berth_context *context,
                                            const berth_optimizer_group *groups,
                                            uint32_t group_count,
                                            const berth_parameter *parameters,
                                            uint64_t parameter_count,
                                            const berth_optimizer_options *options,
                                            uint32_t device, berth_optimizer_memory *out,
                                            berth_error *error);
BERTH_API berth_status berth_optimizer_create(berth_context *context,
                                              const berth_optimizer_group *groups,
                                              uint32_t group_count,
                                              const berth_parameter *parameters,
                                              uint64_t parameter_count,
                                              const berth_optimizer_options *options,
                                              berth_optimizer **out_optimizer,
                                              berth_error *error);
/*
 * Waits for updates under way, five seconds at most: what hangs even then is given back when
 * it is over, or with the devices. NULL is allowed.
 */
BERTH_API void berth_optimizer_destroy(berth_optimizer *optimizer);

/* What it has allocated, now. */
BERTH_API berth_status berth_optimizer_get_memory(const berth_optimizer *optimizer,
                                                  uint32_t device,
                                                  berth_optimizer_memory *out);

/*
 * Another rate, decay, ... from the next step on; kind, bits and master stay: BERTH_EINVAL for
 * others. `place` and `least_8bit` change nothing: states stay where they are, and as they are.
 */
BERTH_API berth_status berth_optimizer_set_group(berth_optimizer *optimizer,
                                                 uint32_t number,
                                                 const berth_optimizer_group *group,
                                                 berth_error *error);

/* What a caller has of a parameter's gradient. */
typedef struct berth_gradient {
    const void *values; /* in memory of the parameter's device; NULL: it has none, and is
                           not updated                                                */
    int32_t dtype;      /* BERTH_BF16, BERTH_F16 or BERTH_F32                         */
    int32_t reserved32;
    uint64_t reserved;
} berth_gradient;

typedef struct berth_step_report {
    uint64_t step;       /* that was made, or would have been                         */
    uint64_t updated;    /* parameters                                                */
    uint64_t non_finite; /* elements of gradients that are NaN or infinite, since the last
                            report, those of skipped steps too: theirs were left as they
                            are. 0 of a step that failed: the next report tells       */
    double norm;         /* of all gradients, scaled, but for elements that are NaN or
                            infinite: those are in `non_finite` alone, and this is finite;
                            NaN where nobody asked for a norm                         */
    float clip;          /* what gradients were multiplied with besides `scale`       */
    int32_t is_skipped;  /* 1: nothing was updated                                    */
    uint64_t reserved[4];
} berth_step_report;

typedef struct berth_step_options {
    size_t struct_size;      /* set by berth_step_options_init()                      */
    float scale;             /* of gradients: 1 / loss scale; 1 unless changed        */
    float max_norm;          /* gradients beyond this norm are scaled to it; 0: none  */
    int32_t skips_non_finite; /* 1: one NaN or infinity in a gradient, and nothing is
                                updated and no step counted                           */
    int32_t has_norm;        /* 1: report it, also without `max_norm`                 */
    void *const *streams;    /* one a device; NULL: each one's first. Updates follow
                                what they were asked for before, and what the optimizer
                                has asked other streams for                           */
    berth_step_report *report; /* NULL: none; with one the call waits for the devices */
    uint64_t reserved[4];
} berth_step_options;

static inline void
berth_step_options_init(berth_step_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    options->scale = 1.0f;
}

/*
 * Updates every parameter that has a gradient: `gradients` are as many as parameters;
 * NULL: the sums of berth_optimizer_accumulate(), which begin anew. `options` may be
 * NULL. On a device work is asked for, in the order of `streams`; the host waits for
 * norms, reports and the disk. A gradient's memory stays until the stream is past the
 * update; with a report, or on the processor, that is when the call returns. An element
 * whose gradient is NaN or infinite is left as it is, its states are zero, and it is
 * counted.
 *
 * Returns BERTH_OK, or
 *
 *   BERTH_EINVAL               what is wrong is named; nothing has changed, and the report
 *                              is not written
 *   BERTH_ENOMEM, BERTH_ENOFIT no room for norms, or for pages on their visit; or a device
 *                              has no memory for what it is asked for
 *   BERTH_EIO, BERTH_ENODEV    the disk; a device has not moved for `wait_ms`, or is lost
 *
 * How far a step that failed otherwise had come says the report:
 *
 *   `is_skipped`    it was skipped, and is over: sums have begun anew, and what it would have
 *                   told comes with the next report
 *   `updated` is 0  nothing has changed, no step is counted, sums are kept: it can be made again
 *   else            some of these parameters may have been updated, or all, where only the wait
 *                   for the report failed. Sums have begun anew; steps and saves are refused
 *                   (BERTH_EINVAL) until berth_optimizer_load() has succeeded, and values are
 *                   those that belong to what it loads
 */
BERTH_API berth_status berth_optimizer_step(berth_optimizer *optimizer,
                                            const berth_gradient *gradients,
                                            const berth_step_options *options,
                                            berth_error *error);
/*
 * Adds gradients to the sums, f32, of those parameters that have one; in the order of
 * `streams` (NULL: each device's first). A gradient's memory stays until the stream is past
 * it; on the processor that is when the call returns. BERTH_EINVAL, also without `accumulates`,
 * leaves the sums as they are. After any other failure nothing is added up: begin again with the
 * first gradients.
 */
BERTH_API berth_status berth_optimizer_accumulate(berth_optimizer *optimizer,
                                                  const berth_gradient *gradients,
                                                  void *const *streams,
                                                  berth_error *error);

typedef struct berth_parameter_state {
    const char *name;
    uint64_t elements;
    uint64_t step;       /* updates so far                                            */
    uint64_t bytes;      /* of all that is kept                                       */
    int32_t kind;
    int32_t bits;
    int32_t place;
    int32_t has_master;
    uint32_t states;
    uint32_t device;
    uint64_t reserved[4];
} berth_parameter_state;

/* BERTH_EINVAL, and zeroes, beyond the last parameter. */
BERTH_API berth_status berth_optimizer_get(const berth_optimizer *optimizer,
                                           uint64_t parameter,
                                           berth_parameter_state *out);
/*
 * State `state` (0, 1, ...) of a parameter, as numbers: `count` of them from element
 * `first` on. Waits for updates under way.
 */
BERTH_API berth_status berth_optimizer_read(berth_optimizer *optimizer, uint64_t parameter,
                                            uint32_t state, uint64_t first,
                                            uint64_t count, float *out,
                                            berth_error *error);

/*
 * Brings a parameter's states to another place, between two steps. On failure they stay
 * where they are. berth_optimizer_make_room() does so with the largest ones of a device
 * until `bytes` of its memory are given back, to host memory first, to the disk where
 * there is none; *out_bytes is what was given back, which can be less. Slots that they visit
 * in then are in the same memory: so few of them are made that there is the room, and where
 * one would be as large as all states are these stay.
 */
BERTH_API berth_status berth_optimizer_move(berth_optimizer *optimizer, uint64_t parameter,
                                            int32_t place, berth_error *error);
BERTH_API berth_status berth_optimizer_make_room(berth_optimizer *optimizer,
                                                 uint32_t device, uint64_t bytes,
                                                 uint64_t *out_bytes, berth_error *error);

/*
 * States in a file, safetensors, for each parameter NAME (berth-optimizer(5)):
 *
 *   NAME.step                    int64, no dimensions
 *   NAME.state1, NAME.state2     8 bits: uint8 codes, 32: f32; in the parameter's shape
 *   NAME.absmax1, NAME.absmax2   8 bits: f32, one for each 256 elements
 *   NAME.qmap1, NAME.qmap2       8 bits: f32, 256
 *   NAME.master                  f32, where the group has one
 *
 * AdEMAMix has both means in state1 and absmax1, which get a first dimension of 2. Kinds,
 * the number of steps and the crc32 of each tensor are in the file's metadata. Sums of
 * gradients are not kept, values are the caller's to keep.
 *
 * berth_optimizer_save() waits for updates under way and needs memory for one page.
 * The file appears when all of it is on the disk; what has the name before stays whole
 * until then. Returns
 *
 *   BERTH_OK
 *   BERTH_EINVAL        something has the name, and `overwrite` is 0; it is no name of a
 *                       file, or lies in the hub's cache; a step or load has failed half
 *                       way
 *   BERTH_ENOENT        there is no such folder, or this process may not write to it; what
 *                       has the name is no file
 *   BERTH_EIO           among others no room, and how much is missing; the folder could not
 *                       be flushed: what had the name may be replaced, by a whole file
 *   BERTH_ENODEV        a device with states is lost
 *   BERTH_ENOMEM
 *   BERTH_EUNSUPPORTED  names too long, or too many, for the header of one file
 *
 * berth_optimizer_load() takes for every parameter what the file has under its name,
 * also below `NAME.__bnb_optimizer_quant_state__`, and of torch's 32-bit optimizers
 * (`exp_avg`, `exp_avg_sq`, `momentum_buffer`, `square_avg`, `sum`). States of 8 bits
 * become 32 and the other way round as the group wants; blocks of 2048 and other maps
 * are encoded anew, f32 copies that are missing are made of the values. What belongs to
 * no parameter is ignored; the log says how much that is. Returns
 *
 *   BERTH_OK            the next step is the one that would have followed the save; sums of
 *                       gradients begin anew
 *   BERTH_EFORMAT       a key is missing, has another shape or dtype, or belongs to
 *                       another optimizer: parameter and key are named
 *   BERTH_EINTEGRITY    a tensor is not what was saved
 *   BERTH_EUNSUPPORTED  torch's own checkpoints, which are pickles
 *   others              as berth_checkpoint_open()
 *
 * and has changed nothing then, but where reading or a device fails half way: steps are
 * refused until a load succeeds.
 */
BERTH_API berth_status berth_optimizer_save(berth_optimizer *optimizer, const char *path,
                                            int32_t overwrite, berth_error *error);
BERTH_API berth_status berth_optimizer_load(berth_optimizer *optimizer, const char *path,
                                            berth_error *error);

/* ------------------------------------------------------- plans for training */

/*
 * With `train` a plan is for training: FULL, all tensors of bf16, f16 and f32, which then
 * lie where they are computed; LORA, two matrices for each linear layer of the targets,
 * beside a frozen base of any encoding. Each device has room for their gradients, f32
 * copies, states and pages of states on a visit; in place of a KV cache a layer keeps
 * what its backward pass needs (berth-estimate(5)). Sizes are those of
 * berth_optimizer_plan(), to the byte.
 *
 * Of weights and states that do not fit beside each other states leave first: a weight
 * is brought twice a step, states once, and go back meanwhile. Those of optimizers called
 * "paged_..." may: to host memory, then to the disk, as few bytes as can, the last
 * parameters among equal ones. Others are refused (BERTH_ENOFIT) with the smallest change
 * that would do. So is a `device_map` that leaves too little room; it says where weights
 * lie, and puts what is trained on devices. With `mode` there are no plans for training.
 *
 * A trainer has one group for each place, and parameters in that of theirs:
 *
 *   for (int32_t place = 0; place < BERTH_STATES_PLACE_COUNT; place++)
 *       berth_plan_get_group(plan, place, &groups[place]);
 *   for (uint64_t i = 0; berth_plan_get_parameter(plan, i, &p, name, size) == BERTH_OK; i++)
 *       parameters[i].group = (uint32_t)p.place;
 */
typedef struct berth_plan_training {
    int32_t method;          /* berth_train_method                                    */
    int32_t precision;       /* berth_train_precision                                 */
    const char *optimizer;   /* "paged_adamw_8bit"; lives as long as the plan         */
    const char *targets;     /* LORA; "" otherwise                                    */
    uint64_t rank;           /* LORA; 0 otherwise                                     */
    int32_t kind;            /* berth_update_kind                                     */
    int32_t bits;            /* of states, of 4096 elements and more                  */
    int32_t has_master;      /* f32 copies of what is bf16 or f16                     */
    int32_t accumulates_f32; /* gradients are f32                                     */
    uint64_t parameter_count; /* tensors                                              */
    uint64_t elements;
    uint64_t elements_8bit;  /* of them with states of 8 bits                         */
    uint64_t page_bytes;     /* of the system: pinned states have whole pages         */
    uint64_t states[3];      /* by berth_states_place, as berth_optimizer_plan() tells */
    /* Predicted, for the updates of a step: pages follow one another without a gap. */
    uint64_t link_bytes;     /* brought to devices; as many go back meanwhile         */
    uint64_t disk_bytes;     /* read and written                                      */
    double seconds;          /* the longest of the following                          */
    double update_seconds;   /* values, gradients, states at the memory's rate        */
    double link_seconds;     /* the busiest link, one way                             */
    double disk_seconds;
    int32_t bound;           /* berth_plan_bound: BY_COMPUTING are updates            */
    uint32_t bound_tier;
    /* Predicted, for forward and backward: weights are brought and read, and what layers
     * keep for the backward pass is written and read. Multiplying is not in it: nothing
     * here knows how fast that is. A file of the plan has these as they were. */
    double forward_seconds;  /* the longest of all memories, a link, the disk         */
    double backward_seconds;
    uint64_t pass_link_bytes; /* of weights, brought to devices in both               */
    uint64_t pass_disk_bytes; /* of them, read from the disk                          */
    int32_t pass_bound;      /* backward: a berth_plan_bound                          */
    uint32_t pass_bound_tier;
    uint64_t reserved[1];
} berth_plan_training;

/* Of one memory. `training` of its berth_plan_tier is the sum of the first six. */
typedef struct berth_plan_training_tier {
    uint64_t adapters;
    uint64_t gradients;
    uint64_t states;         /* f32 copies included                                   */
    uint64_t slots;          /* that pages are updated in on their visit              */
    uint64_t scratch;        /* of a GPU: a counter, sums of gradients                */
    uint64_t staging;        /* host memory: of pages from the disk                   */
    uint64_t link_bytes;     /* of states, brought to it in a step                    */
    uint64_t update_bytes;   /* read and written in its memory                        */
    uint64_t reserved[4];
} berth_plan_training_tier;

typedef struct berth_plan_parameter {
    uint64_t berth;          /* that it is, or that it adapts                         */
    uint32_t layer;
    uint32_t tier;           /* device that it is updated on                          */
    int32_t place;           /* berth_states_place                                    */
    int32_t dtype;
    uint64_t rows;
    uint64_t columns;        /* 1: a vector                                           */
    uint64_t states;         /* bytes, f32 copy included                              */
    uint64_t reserved[3];
} berth_plan_parameter;

/* BERTH_EINVAL, and zeroes: the plan is for inference, or has no such tier, parameter or place. */
BERTH_API berth_status berth_plan_get_training(const berth_plan *plan,
                                               berth_plan_training *out);
BERTH_API berth_status berth_plan_get_training_tier(const berth_plan *plan, uint32_t tier,
                                                    berth_plan_training_tier *out);
/*
 * In the order of berths. `name` (may be NULL) gets that of the tensor, or
 * "MODULE.lora_A.weight" and "MODULE.lora_B.weight", cut at `capacity`.
 */
BERTH_API berth_status berth_plan_get_parameter(const berth_plan *plan, uint64_t number,
                                                berth_plan_parameter *out, char *name,
                                                size_t capacity);
/*
 * A group of berth_optimizer_group_init() with kind, bits, f32 copy and place set. Fails as
 * that does, too.
 */
BERTH_API berth_status berth_plan_get_group_sized(const berth_plan *plan, int32_t place,
                                                  berth_optimizer_group *out,
                                                  size_t struct_size);

static inline berth_status
berth_plan_get_group(const berth_plan *plan, int32_t place, berth_optimizer_group *out)
{
    return berth_plan_get_group_sized(plan, place, out, sizeof *out);
}

#ifdef __cplusplus
}
#endif

#endif
