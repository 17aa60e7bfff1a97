/* SPDX-License-Identifier: Apache-2.0 */
/* test_stream_groups.c - layers of many pieces, which are chosen in groups. */
#include <string.h>

#include "placement/stream_menu.h"
#include "tests/t.h"
#include "tests/weights.h"

#define GROUPS 12u
#define PIECES (2 * GROUPS)
#define LAYERS 4u

/* Pieces of one size: the groups are given them in turns, so that ties have one answer. */
static void
test_ties(void)
{
    berth_context *context = NULL;
    uint32_t split = 0;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (uint64_t room = 0; room < 100 * PIECES * LAYERS; room += 400) {
        berthi_stream_piece pieces[LAYERS * PIECES];
        berthi_stream_device device = { .pieces = pieces,
                                        .piece_count = LAYERS * PIECES,
                                        .layer_count = LAYERS,
                                        .room = room,
                                        .rate = 1000000,
                                        .alignment = 1 };
        berthi_stream_result result;
        uint32_t resident = 0;

        for (uint32_t i = 0; i < LAYERS * PIECES; i++)
            pieces[i] = (berthi_stream_piece){ .bytes = 100,
                                               .layer = i / PIECES,
                                               .kind = BERTHI_PIECE_DENSE };
        CHECK_EQ(berthi_stream_settle(context, &device, &result, NULL), BERTH_OK);
        for (uint32_t i = 0; i < LAYERS * PIECES; i++)
            if (i % PIECES < GROUPS) {
                CHECK_EQ(pieces[i].is_resident, pieces[i + GROUPS].is_resident);
                resident += pieces[i].is_resident;
            }
        CHECK_EQ(result.resident, 200 * resident);
        split += resident % GROUPS != 0;
    }
    CHECK_GT(split, 3);
    berth_context_destroy(context);
}

/* More pieces than groups: the smallest are put together, wherever they stand. */
static void
test_largest_first(void)
{
    static const uint64_t sizes[] = { 100, 100, 100, 100, 50, 100, 100,
                                      100, 100, 100, 100, 100, 60 };
    enum { COUNT = sizeof sizes / sizeof *sizes };
    berthi_stream_piece pieces[COUNT];
    const berthi_stream_device device = { .pieces = pieces,
                                          .piece_count = COUNT,
                                          .layer_count = 1 };
    berth_context *context = NULL;
    berthi_stream_menus menus;
    berthi_arena arena;

    for (uint32_t i = 0; i < COUNT; i++)
        pieces[i] = (berthi_stream_piece){ .bytes = sizes[i], .kind = BERTHI_PIECE_DENSE };
    memset(&menus, 0xFF, sizeof menus);
    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_OBJECT, 4096);
    T_REQUIRE(CHECK(berthi_stream_menus_can_build(&arena, &device, &menus)));
    CHECK_EQ(menus.dense, 1210);
    CHECK_EQ(menus.fixed + menus.away + menus.experts, 0);
    CHECK_EQ(menus.menu_count, 1);
    CHECK_EQ(menus.layers[0].dense_count, COUNT);
    for (uint32_t j = 0; j < COUNT; j++) {
        const berthi_stream_dense *const dense = &menus.layers[0].dense[j];

        CHECK_EQ(dense->bytes, j < 11 ? 100 : j == 11 ? 60 : 50);
        CHECK_EQ(dense->piece, j < 4 ? j : j < 11 ? j + 1 : j == 11 ? 12 : 4);
        CHECK_EQ(dense->group, j < 11 ? j : 11);
    }
    /* 0 to 11 of 100, without and with 110: 0, 100, 110, ..., 1100, 1110, 1210 */
    T_REQUIRE(CHECK_EQ(menus.menus[0].option_count, 24));
    CHECK_EQ(menus.menus[0].options[0].bytes, 0);
    for (uint32_t m = 1; m < 12; m++) {
        CHECK_EQ(menus.menus[0].options[2 * m - 1].bytes, 100 * m);
        CHECK_EQ(menus.menus[0].options[2 * m].bytes, 100 * m + 10);
    }
    CHECK_EQ(menus.menus[0].options[23].bytes, 1210);
    berthi_arena_fini(&arena);
    berth_context_destroy(context);
}

static uint64_t
random_below(uint64_t *state, uint64_t limit)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % limit;
}

/* Every piece that is streamed is larger than the room that is left for it. */
static void
check_no_room(const berthi_stream_device *device, const berthi_stream_result *result)
{
    const uint64_t left = device->room - result->resident - result->slots * result->slot_bytes;

    CHECK_LE(result->resident + result->slots * result->slot_bytes, device->room);
    for (uint32_t i = 0; i < device->piece_count; i++)
        if (!device->pieces[i].is_resident)
            CHECK_GT(device->pieces[i].bytes, left);
}

/* Pieces stay one by one, too; and each that does may make the slots smaller. */
static void
test_no_room_left(void)
{
    enum { COUNT = 60, CASES = 400 };
    berth_context *context = NULL;
    uint64_t state = 9;
    uint32_t streamed = 0;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (uint32_t n = 0; n < CASES; n++) {
        berthi_stream_piece pieces[2 * COUNT];
        berthi_stream_device device = { .pieces = pieces,
                                        .piece_count = 2 * COUNT,
                                        .layer_count = 2,
                                        .rate = 1000000,
                                        .slots = 1 + n % 2,
                                        .alignment = 1 };
        berthi_stream_result result;

        for (uint32_t i = 0; i < 2 * COUNT; i++) {
            pieces[i] = (berthi_stream_piece){ .bytes = 1 + random_below(&state, 9),
                                               .layer = i / COUNT,
                                               .kind = BERTHI_PIECE_DENSE };
            device.room += pieces[i].bytes;
        }
        device.room -= random_below(&state, device.room / 4);
        CHECK_EQ(berthi_stream_settle(context, &device, &result, NULL), BERTH_OK);
        if (result.missing > 0)
            continue;
        check_no_room(&device, &result);
        streamed += result.unit_count > 0;
    }
    CHECK_GT(streamed, CASES / 4);
    berth_context_destroy(context);
}

/* The dense pieces of layer `l` from piece `first` on, which is moved behind them. */
static void
check_order(const berthi_stream_device *device, const berthi_stream_layer *layer, uint32_t l,
            uint32_t *first)
{
    uint32_t count = 0;

    for (; *first < device->piece_count && device->pieces[*first].layer == l; ++*first)
        count += device->pieces[*first].kind == BERTHI_PIECE_DENSE;
    CHECK_EQ(layer->dense_count, count);
    for (uint32_t j = 0; j < count; j++) {
        const berthi_stream_dense *const dense = &layer->dense[j];
        const berthi_stream_piece *const piece = &device->pieces[dense->piece];

        CHECK_EQ(piece->layer, l);
        CHECK_EQ(piece->kind, BERTHI_PIECE_DENSE);
        CHECK_EQ(piece->bytes, dense->bytes);
        if (j > 0)
            CHECK(dense[-1].bytes > dense->bytes
                  || (dense[-1].bytes == dense->bytes && dense[-1].piece < dense->piece));
    }
}

/* Layers that are alike, almost alike and empty: each is in order by itself. */
static void
test_order_of_layers(void)
{
    static const uint8_t kinds[] = { BERTHI_PIECE_DENSE, BERTHI_PIECE_DENSE,
                                     BERTHI_PIECE_DENSE, BERTHI_PIECE_FIXED };
    berth_context *context = NULL;
    uint64_t state = 5;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < 2000; i++) {
        berthi_stream_piece pieces[LAYERS * 5];
        berthi_stream_device device = { .pieces = pieces, .layer_count = LAYERS };
        berthi_stream_menus menus;
        berthi_arena arena;
        uint32_t first = 0;

        for (uint32_t l = 0; l < LAYERS; l++)
            for (uint64_t count = weights_random(&state) % 6; count > 0; count--)
                pieces[device.piece_count++] = (berthi_stream_piece){
                    .bytes = 100 + weights_random(&state) % 2,
                    .layer = l,
                    .kind = kinds[weights_random(&state) % sizeof kinds],
                };
        berthi_arena_init(&arena, context, BERTHI_PURPOSE_OBJECT, 4096);
        T_REQUIRE(CHECK(berthi_stream_menus_can_build(&arena, &device, &menus)));
        for (uint32_t l = 0; l < LAYERS; l++)
            check_order(&device, &menus.layers[l], l, &first);
        berthi_arena_fini(&arena);
    }
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_ties);
    T_RUN(test_largest_first);
    T_RUN(test_order_of_layers);
    T_RUN(test_no_room_left);
    T_MAIN_END;
}
