/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_memory.c - memory of simulated devices: room, poison, guards, digests. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "kernels/digest.h"
#include "kernels/sim.h"
#include "kernels/sys.h"
#include "tests/rig.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)
#define DIGEST "sim:1GiB,backing=digest,latency=0ns"

/* Whether the byte can be read: the kernel says so without a signal. */
static bool
is_readable(const void *at)
{
    int ends[2];
    bool is_there;

    if (!CHECK_EQ(pipe(ends), 0))
        return false;
    is_there = write(ends[1], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return is_there;
}

static uint64_t
free_bytes(const rig *r)
{
    berthi_device_properties properties;

    r->device->table->describe(r->device, &properties);
    return properties.free_bytes;
}

static berthi_sim_device *
sim_of(const rig *r)
{
    return (berthi_sim_device *)r->device;
}

/* ---------------------------------------------------------------------- room */

static void
test_describes(void)
{
    berthi_device_properties p;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:24GiB,h2d=25GB/s;sim:5MiB,h2d=1250MB/s"));
    r.device->table->describe(r.device, &p);
    CHECK_STR(p.name, "sim:0");
    CHECK_STR(p.description, "simulated, 24.00 GiB, 25.0 GB/s");
    CHECK_EQ(p.memory_bytes, UINT64_C(24) << 30);
    CHECK_EQ(p.free_bytes, UINT64_C(24) << 30);
    CHECK_EQ(p.numa_node, -1);
    CHECK(p.is_simulated && !p.is_host);
    rig_at(&r, 1)->table->describe(rig_at(&r, 1), &p);
    CHECK_STR(p.name, "sim:1");
    CHECK_STR(p.description, "simulated, 4.00 MiB, 1.2 GB/s"); /* whole granules */
    CHECK_EQ(p.free_bytes, 4 * MIB);
    CHECK_STR(r.device->table->kind, "sim");
    rig_close(&r);
}

static void
check_full(const rig *r, uint64_t bytes, uint64_t left)
{
    void *memory = r->context;
    berth_error error;

    CHECK_EQ(r->device->table->alloc(r->device, bytes, &memory, &error), BERTH_ENOFIT);
    CHECK(memory == NULL);
    CHECK_EQ(error.reason, BERTH_REASON_NO_FIT);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(error.expected, bytes);
    CHECK_EQ(error.actual, left);
    CHECK_CONTAINS(error.message, "sim:0: ");
    CHECK_CONTAINS(error.message, "simulated");
    CHECK_EQ(free_bytes(r), left);
}

static void
test_capacity_to_the_byte(void)
{
    void *all;
    void *small;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:8MiB"));
    check_full(&r, 8 * MIB + 1, 8 * MIB);
    check_full(&r, UINT64_MAX, 8 * MIB);
    all = rig_alloc(r.device, 8 * MIB);
    check_full(&r, 1, 0);
    r.device->table->free(r.device, all, 8 * MIB);
    CHECK_EQ(free_bytes(&r), 8 * MIB);
    small = rig_alloc(r.device, 1); /* a granule */
    CHECK_EQ(free_bytes(&r), 6 * MIB);
    all = rig_alloc(r.device, 2 * MIB + 1); /* two */
    CHECK_EQ(free_bytes(&r), 2 * MIB);
    check_full(&r, 2 * MIB + 1, 2 * MIB);
    r.device->table->free(r.device, small, 1);
    r.device->table->free(r.device, all, 2 * MIB + 1);
    r.device->table->free(r.device, NULL, 5);
    small = rig_alloc(r.device, 0);
    CHECK(small != NULL);
    CHECK_EQ(free_bytes(&r), 6 * MIB);
    r.device->table->free(r.device, small, 0);
    CHECK_EQ(free_bytes(&r), 8 * MIB);
    CHECK_EQ(sim_of(&r)->misuses, 0);
    rig_close(&r);
}

static void
test_stolen_memory(void)
{
    berthi_device_properties p;
    void *memory;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:8MiB,steal=3MiB"));
    r.device->table->describe(r.device, &p);
    CHECK_EQ(p.memory_bytes, 8 * MIB);
    CHECK_EQ(p.free_bytes, 4 * MIB);
    check_full(&r, 4 * MIB + 1, 4 * MIB);
    memory = rig_alloc(r.device, 4 * MIB);
    r.device->table->free(r.device, memory, 4 * MIB);
    rig_close(&r);
    T_REQUIRE(rig_open(&r, "sim:8MiB,steal=9MiB"));
    check_full(&r, 1, 0);
    rig_close(&r);
}

/* -------------------------------------------------------------- poison, guards */

static void
test_poison_and_guards(void)
{
    static const uint64_t sizes[] = { 1, 255, 256, 4095, 4096, 4097, 100000 };
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB"));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *const memory = rig_alloc(r.device, sizes[i]);
        const uint64_t rounded = (sizes[i] + 255) / 256 * 256;
        uint64_t poisoned = 0;

        for (uint64_t b = 0; b < sizes[i]; b++)
            poisoned += memory[b] == 0xA5;
        CHECK_EQ(poisoned, sizes[i]);
        CHECK(!is_readable(memory + rounded));
        CHECK(is_readable(memory + rounded - 1));
        CHECK(!is_readable(memory - 4096));
        r.device->table->free(r.device, memory, sizes[i]);
        CHECK(!is_readable(memory));
        CHECK(!is_readable(memory + sizes[i] - 1));
    }
    rig_close(&r);
}

/* Address space of what was freed comes to an end, too. */
static void
test_freed_for_a_while(void)
{
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB"));
    for (int i = 0; i < 2 * (int)BERTHI_SIM_GRAVES; i++)
        r.device->table->free(r.device, rig_alloc(r.device, 4096), 4096);
    CHECK_EQ(sim_of(&r)->memory.grave_count, BERTHI_SIM_GRAVES);
    CHECK_EQ(sim_of(&r)->memory.grave_bytes, BERTHI_SIM_GRAVES * 3 * 4096);
    rig_close(&r);
}

static void
test_frees_that_are_wrong(void)
{
    uint8_t *memory;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB"));
    r.device->table->free(r.device, &r, 8);
    memory = rig_alloc(r.device, 1000);
    r.device->table->free(r.device, memory, 999);
    r.device->table->free(r.device, memory + 256, 744);
    CHECK_EQ(sim_of(&r)->misuses, 3);
    CHECK_EQ(free_bytes(&r), 62 * MIB);
    r.device->table->free(r.device, memory, 1000);
    r.device->table->free(r.device, memory, 1000);
    CHECK_EQ(sim_of(&r)->misuses, 4);
    r.device->table->unpin(r.device, &r, 8);
    CHECK_EQ(sim_of(&r)->misuses, 5);
    CHECK_EQ(free_bytes(&r), 64 * MIB);
    rig_close(&r); /* what was never freed is given back all the same */
}

/* ------------------------------------------------------------- work out of bounds */

static void
check_copy(const rig *r, const berthi_copy *c, const char *why)
{
    berth_error error;

    CHECK_EQ(r->device->table->copy(r->device, c, NULL, &error), BERTH_EINTERNAL);
    CHECK_EQ(error.reason, BERTH_REASON_INTERNAL);
    CHECK_CONTAINS(error.message, "sim:0: a copy ");
    CHECK_CONTAINS(error.message, why);
}

static void
test_copies_out_of_bounds(void)
{
    static const char outside[] = "outside of memory that is allocated";
    uint8_t *memory;
    uint8_t *host;
    berthi_copy c;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB"));
    memory = rig_alloc(r.device, 1000);
    host = rig_pinned(&r, 4096, 1);
    c = (berthi_copy){ .kind = BERTHI_COPY_TO_DEVICE, .is_pinned = true,
                       .to = memory + 1, .from = host, .bytes = 1000 };
    check_copy(&r, &c, outside);
    c.to = memory - 1;
    check_copy(&r, &c, outside);
    c.to = host;
    check_copy(&r, &c, outside);
    c.bytes = UINT64_MAX;
    c.to = memory + 1;
    check_copy(&r, &c, outside);
    c = (berthi_copy){ .kind = BERTHI_COPY_TO_HOST, .is_pinned = true, .to = host,
                       .from = memory, .bytes = 1001 };
    check_copy(&r, &c, outside);
    c = (berthi_copy){ .kind = BERTHI_COPY_WITHIN, .to = memory, .from = memory + 600,
                       .bytes = 500 };
    check_copy(&r, &c, outside);
    c.bytes = 0; /* touches nothing */
    CHECK_EQ(r.device->table->copy(r.device, &c, NULL, NULL), BERTH_OK);
    c.bytes = 400;
    CHECK_EQ(r.device->table->copy(r.device, &c, NULL, NULL), BERTH_OK);
    CHECK_EQ(r.device->table->clear(r.device, memory, 1001, NULL, NULL), BERTH_EINTERNAL);
    CHECK_EQ(r.device->table->clear(r.device, memory, 1000, NULL, NULL), BERTH_OK);
    CHECK_EQ(r.device->table->clear(r.device, host, 0, NULL, NULL), BERTH_OK);
    rig_sync(r.device, NULL);
    CHECK_EQ(memory[999], 0);
    rig_unpinned(&r, host, 4096);
    r.device->table->free(r.device, memory, 1000);
    rig_close(&r);
}

static void
test_pinned_is_checked(void)
{
    static const char not_pinned[] = "is said to be pinned, and is not";
    uint8_t *memory;
    uint8_t *host;
    berth_error error;
    berthi_copy c;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,pin=8KiB"));
    memory = rig_alloc(r.device, 8192);
    host = rig_pinned(&r, 8192, 1);
    CHECK_EQ(r.device->table->pin(r.device, host + 4096, 4096, &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "overlaps memory that is pinned");
    CHECK_EQ(r.device->table->pin(r.device, host + 1, 4096, &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "does not begin with a page");
    r.device->table->unpin(r.device, host, 8192);
    CHECK_EQ(r.device->table->pin(r.device, host, 8193, &error), BERTH_ENOMEM);
    CHECK_EQ(error.reason, BERTH_REASON_NO_MEMORY);
    CHECK_CONTAINS(error.message, "is more than may be pinned");
    CHECK_EQ(r.device->table->pin(r.device, host, 4096, &error), BERTH_OK);
    c = (berthi_copy){ .kind = BERTHI_COPY_TO_DEVICE, .is_pinned = true, .to = memory,
                       .from = host, .bytes = 4097 };
    check_copy(&r, &c, not_pinned);
    c = (berthi_copy){ .kind = BERTHI_COPY_TO_HOST, .is_pinned = true, .to = host + 4096,
                       .from = memory, .bytes = 1 };
    check_copy(&r, &c, not_pinned);
    c.is_pinned = false;
    CHECK_EQ(r.device->table->copy(r.device, &c, NULL, NULL), BERTH_OK);
    CHECK_EQ(host[4096], 0xA5); /* it has been written when the call returns */
    r.device->table->unpin(r.device, host, 4096);
    CHECK_EQ(r.device->table->pin(r.device, host, 8192, NULL), BERTH_OK);
    rig_unpinned(&r, host, 8192);
    r.device->table->free(r.device, memory, 8192);
    rig_close(&r);
}

/* Memory freed, or given back to the pageable, while work is under way: told by a wait. */
static void
test_gone_under_way(void)
{
    for (int what = 0; what < 2; what++) {
        berthi_event *event;
        uint8_t *memory;
        uint8_t *host;
        berth_error error;
        rig r;

        T_REQUIRE(rig_open(&r, "sim:64MiB"));
        memory = rig_alloc(r.device, 4096);
        host = rig_pinned(&r, 4096, 1);
        event = rig_event(r.device);
        rig_to_device(r.device, memory, host, 4096, NULL);
        rig_record(r.device, event, NULL);
        if (what == 0)
            r.device->table->free(r.device, memory, 4096);
        else
            r.device->table->unpin(r.device, host, 4096);
        for (int i = 0; i < 2; i++) {
            CHECK_EQ(r.device->table->await(r.device, event, UINT64_MAX, &error),
                     BERTH_EINTERNAL);
            CHECK_CONTAINS(error.message, what == 0 ? "outside of memory" : "is not");
        }
        r.device->table->event_destroy(r.device, event);
        berthi_memory_free_aligned(r.context, BERTHI_PURPOSE_RING, host, 4096,
                                   berthi_sys_page_bytes());
        rig_close(&r);
    }
}

/* ----------------------------------------------------------------------- digests */

static void
check_digest(const rig *r, const void *memory, uint64_t bytes, uint32_t expected)
{
    uint32_t crc = 1;

    CHECK_EQ(r->device->table->digest(r->device, memory, bytes, &crc, NULL), BERTH_OK);
    CHECK_EQ(crc, expected);
}

static void
check_no_digest(const rig *r, const void *memory, uint64_t bytes)
{
    berth_error error;
    uint32_t crc = 1;

    CHECK_EQ(r->device->table->digest(r->device, memory, bytes, &crc, &error),
             BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(error.message, "no digest is kept");
    CHECK_EQ(crc, 0);
}

static void
test_digest_of_bytes(void)
{
    uint8_t *memory;
    uint8_t *host;
    berth_error error;
    uint32_t crc;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB"));
    memory = rig_alloc(r.device, 8192);
    host = rig_pinned(&r, 4096, 3);
    rig_to_device(r.device, memory, host, 4096, NULL);
    check_digest(&r, memory, 4096, berthi_digest_crc32(0, host, 4096)); /* waits */
    check_digest(&r, memory + 7, 11, berthi_digest_crc32(0, host, 11));
    check_digest(&r, memory, 0, 0);
    CHECK_EQ(r.device->table->digest(r.device, memory, 8193, &crc, &error),
             BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "is not allocated");
    rig_unpinned(&r, host, 4096);
    r.device->table->free(r.device, memory, 8192);
    rig_close(&r);
}

static void
test_digests_instead_of_bytes(void)
{
    const uint64_t all = 600 * MIB;
    uint8_t zeroes[256] = { 0 };
    uint8_t *memory;
    uint8_t *host;
    uint32_t whole;
    rig r;

    T_REQUIRE(rig_open(&r, DIGEST));
    memory = rig_alloc(r.device, all);
    host = rig_pinned(&r, 65536, 0);
    for (int i = 0; i < 65536; i++)
        host[i] = (uint8_t)(i * 7 + i / 256);
    whole = berthi_digest_crc32(0, host, 65536);
    CHECK(!is_readable(memory));
    check_no_digest(&r, memory, 1);
    check_digest(&r, memory, 0, 0);
    /* In two cuts, the second one first. */
    rig_to_device(r.device, memory + 1000, host + 1000, 64536, NULL);
    check_no_digest(&r, memory, 65536);
    rig_to_device(r.device, memory, host, 1000, NULL);
    check_digest(&r, memory, 65536, whole);
    check_digest(&r, memory, 1000, berthi_digest_crc32(0, host, 1000));
    check_no_digest(&r, memory + 1, 999);
    check_no_digest(&r, memory, 999);
    check_no_digest(&r, memory, 65537);
    /* A write into the middle leaves nothing of what it cuts, but of zeroes all. */
    CHECK_EQ(r.device->table->clear(r.device, memory, 500, NULL, NULL), BERTH_OK);
    check_digest(&r, memory + 8, 256, berthi_digest_crc32(0, zeroes, 256));
    check_no_digest(&r, memory, 1000);
    rig_to_device(r.device, memory + 100, host + 100, 56, NULL);
    check_digest(&r, memory, 100, berthi_digest_crc32(0, zeroes, 100));
    check_digest(&r, memory + 156, 200, berthi_digest_crc32(0, zeroes, 200));
    check_digest(&r, memory + 100, 56, berthi_digest_crc32(0, host + 100, 56));
    /* All of it at once, and its last byte. */
    CHECK_EQ(r.device->table->clear(r.device, memory, all, NULL, NULL), BERTH_OK);
    check_digest(&r, memory + all - 1, 1, berthi_digest_crc32(0, zeroes, 1));
    rig_unpinned(&r, host, 65536);
    r.device->table->free(r.device, memory, all);
    rig_close(&r);
}

static void
test_kept_bytes(void)
{
    const uint64_t all = 200 * MIB;
    uint8_t *memory;
    uint8_t *host;
    berth_error error;
    berthi_copy c;
    rig r;

    T_REQUIRE(rig_open(&r, DIGEST));
    memory = rig_alloc(r.device, all);
    host = rig_pinned(&r, 4096, 9);
    CHECK_EQ(r.device->table->keep(r.device, memory + 8192, 10000, NULL), BERTH_OK);
    CHECK_EQ(r.device->table->keep(r.device, memory + 9000, 100, NULL), BERTH_OK);
    CHECK_EQ(sim_of(&r)->memory.allocations[0]->keep_count, 1);
    CHECK_EQ(r.device->table->keep(r.device, memory, all + 1, &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "is not allocated");
    CHECK_EQ(memory[8192], 0xA5);
    CHECK_EQ(memory[18191], 0xA5);
    rig_to_device(r.device, memory + 8192, host, 4096, NULL);
    rig_sync(r.device, NULL);
    CHECK_EQ(memory[8192], 9);
    check_digest(&r, memory + 8200, 100, berthi_digest_crc32(0, host, 100));
    /* What is not kept cannot be read. */
    c = (berthi_copy){ .kind = BERTHI_COPY_TO_HOST, .is_pinned = true, .to = host,
                       .from = memory + 18192 - 4095, .bytes = 4096 };
    CHECK_EQ(r.device->table->copy(r.device, &c, NULL, &error), BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(error.message, "digests are kept, not bytes");
    c.bytes = 4095;
    CHECK_EQ(r.device->table->copy(r.device, &c, NULL, NULL), BERTH_OK);
    rig_sync(r.device, NULL);
    CHECK_EQ(host[0], 0xA5);
    rig_unpinned(&r, host, 4096);
    r.device->table->free(r.device, memory, all);
    rig_close(&r);
}

/* Small allocations are kept. */
static void
test_small_is_kept(void)
{
    uint8_t *memory;
    rig r;

    T_REQUIRE(rig_open(&r, DIGEST));
    memory = rig_alloc(r.device, 64 * MIB - 1);
    CHECK_EQ(memory[0], 0xA5);
    r.device->table->free(r.device, memory, 64 * MIB - 1);
    memory = rig_alloc(r.device, 64 * MIB);
    CHECK(!is_readable(memory));
    CHECK_EQ(r.device->table->keep(r.device, memory, 100, NULL), BERTH_OK);
    r.device->table->free(r.device, memory, 64 * MIB);
    rig_close(&r);
}

/* Encoded into memory that keeps digests: as into memory that keeps bytes. */
static void
test_operations_into_digests(void)
{
    const uint64_t count = 4096 + 17;
    const uint64_t blocks = 65;
    uint32_t crcs[2][2];

    for (int turn = 0; turn < 2; turn++) {
        uint8_t *memory;
        uint8_t *host;
        berthi_request request;
        rig r;

        T_REQUIRE(rig_open(&r, turn == 0 ? "sim:1GiB" : DIGEST));
        memory = rig_alloc(r.device, 64 * MIB);
        host = rig_pinned(&r, 32768, 0);
        for (int i = 0; i < 32768; i++)
            host[i] = (uint8_t)(i * 13 % 128);
        CHECK_EQ(r.device->table->keep(r.device, memory, 32768, NULL), BERTH_OK);
        rig_to_device(r.device, memory, host, 32768, NULL);
        request = (berthi_request){
            .operation = BERTHI_OPERATION_ENCODE_NF4,
            .arguments.encode = { .values = memory, .dtype = BERTH_BF16,
                                  .block_size = 64, .count = count,
                                  .codes = memory + MIB,
                                  .absmax = (float *)(void *)(memory + 2 * MIB) },
        };
        CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL), BERTH_OK);
        request.arguments.encode.values = memory + 32768; /* not kept, with digests */
        CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL),
                 turn == 0 ? BERTH_OK : BERTH_EUNSUPPORTED);
        request.arguments.encode.values = memory;
        CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL), BERTH_OK);
        CHECK_EQ(r.device->table->digest(r.device, memory + MIB, (count + 1) / 2,
                                         &crcs[turn][0], NULL),
                 BERTH_OK);
        CHECK_EQ(r.device->table->digest(r.device, memory + 2 * MIB, 4 * blocks,
                                         &crcs[turn][1], NULL),
                 BERTH_OK);
        if (turn == 1)
            check_no_digest(&r, memory + 2 * MIB, 4 * blocks - 4);
        rig_unpinned(&r, host, 32768);
        r.device->table->free(r.device, memory, 64 * MIB);
        rig_close(&r);
    }
    CHECK_EQ(crcs[0][0], crcs[1][0]);
    CHECK_EQ(crcs[0][1], crcs[1][1]);
}

/* ------------------------------------------------------------------------- sealed */

/* Reads it where it is allowed to: in the stream. */
static void
read_in_stream(void *user)
{
    const uint8_t *const *const memory = user;

    CHECK(is_readable(*memory));
}

/* Only its own work touches memory; what is allocated meanwhile is no exception. */
static void
test_sealed_memory(void)
{
    const uint64_t bytes = 3 * MIB + 5;
    uint8_t *memory;
    uint8_t *later;
    uint8_t *host;
    uint32_t crc;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,backing=sealed"));
    memory = rig_alloc(r.device, bytes);
    host = rig_pinned(&r, 4 * MIB, 7);
    CHECK(!is_readable(memory));
    CHECK(!is_readable(memory + bytes - 1));
    CHECK_EQ(r.device->table->copy(r.device,
                                   &(berthi_copy){ .kind = BERTHI_COPY_TO_DEVICE,
                                                   .is_pinned = true, .to = memory,
                                                   .from = host, .bytes = bytes },
                                   NULL, NULL),
             BERTH_OK);
    CHECK_EQ(r.device->table->launch(
                 r.device,
                 &(berthi_request){ .operation = BERTHI_OPERATION_CALL,
                                    .arguments.call = { .call = read_in_stream,
                                                        .user = &memory } },
                 NULL, NULL),
             BERTH_OK);
    rig_sync(r.device, NULL);
    CHECK(!is_readable(memory));
    CHECK_EQ(r.device->table->digest(r.device, memory, bytes, &crc, NULL), BERTH_OK);
    CHECK_EQ(crc, berthi_digest_crc32(0, host, bytes));
    CHECK(!is_readable(memory));
    later = rig_alloc(r.device, 1);
    CHECK(!is_readable(later));
    CHECK(berthi_sim_memory_open(&sim_of(&r)->memory));
    CHECK(is_readable(memory) && is_readable(later));
    CHECK(berthi_sim_memory_open(&sim_of(&r)->memory));
    berthi_sim_memory_close(&sim_of(&r)->memory);
    CHECK(is_readable(memory));
    berthi_sim_memory_close(&sim_of(&r)->memory);
    CHECK(!is_readable(memory) && !is_readable(later));
    r.device->table->free(r.device, later, 1);
    r.device->table->free(r.device, memory, bytes);
    rig_unpinned(&r, host, 4 * MIB);
    rig_close(&r);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_describes);
    T_RUN(test_capacity_to_the_byte);
    T_RUN(test_stolen_memory);
    T_RUN(test_poison_and_guards);
    T_RUN(test_sealed_memory);
    T_RUN(test_freed_for_a_while);
    T_RUN(test_frees_that_are_wrong);
    T_RUN(test_copies_out_of_bounds);
    T_RUN(test_pinned_is_checked);
    T_RUN(test_gone_under_way);
    T_RUN(test_digest_of_bytes);
    T_RUN(test_digests_instead_of_bytes);
    T_RUN(test_kept_bytes);
    T_RUN(test_small_is_kept);
    T_RUN(test_operations_into_digests);
    T_MAIN_END;
}
