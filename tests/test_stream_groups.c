/* SPDX-License-Identifier: Apache-2.0 */
/* test_stream_groups.c - layers of many pieces, which are chosen in groups. */
#include <string.h>

#include "placement/stream.h"
#include "tests/t.h"

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

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_ties);
    T_MAIN_END;
}
