/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_words.c - words of simulated devices, both ways. */
#include "kernels/sim_words.h"

#include <stdio.h>
#include <string.h>

#include "tests/sim_printed.h"
#include "tests/t.h"

#define GB UINT64_C(1000000000)

static berthi_sim_words
parsed(const char *text)
{
    berthi_sim_words words;
    berth_error error;

    berthi_error_clear(&error);
    if (!CHECK_EQ(berthi_sim_words_parse(text, &words, &error), BERTH_OK))
        CHECK_STR(error.message, "");
    return words;
}

static void
check_refused(const char *text, const char *message)
{
    berthi_sim_words words;
    berth_error error;

    CHECK_EQ(berthi_sim_words_parse(text, &words, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_STR(error.message, message);
}

static void
test_defaults(void)
{
    const berthi_sim_words w = parsed("sim");
    const berthi_sim_device_words *const d = &w.devices[0];

    CHECK_EQ(w.count, 1);
    CHECK_EQ(d->memory_bytes, UINT64_C(24) << 30);
    CHECK_EQ(d->rate_to_device, 25 * GB);
    CHECK_EQ(d->rate_to_host, 25 * GB);
    CHECK_EQ(d->rate_memory, 900 * GB);
    CHECK_EQ(d->latency_ns, 10000);
    CHECK_EQ(d->pin_bytes, UINT64_MAX);
    CHECK_EQ(d->numa_node, -1);
    CHECK_EQ(d->jitter, 0);
    CHECK_EQ(d->root, 0);
    CHECK(!d->keeps_digests && !w.machine.is_real);
    CHECK_EQ(w.machine.pick, BERTHI_SIM_PICK_FIRST);
    CHECK_EQ(w.machine.touch, BERTHI_SIM_TOUCH_RANDOM);
    CHECK_EQ(w.machine.seed, 0);
}

static void
test_every_key(void)
{
    const berthi_sim_words w =
        parsed("sim:80GiB,h2d=55GB/s,d2h=50GB,memory=3TB/s,latency=7us,operation=4us,"
               "jitter=20%,root=3,numa=2,pin=4GiB,backing=digest,clock=real,pick=last,touch=end,"
               "seed=18446744073709551615,lose=5,stall=6,hang=8,steal=7MiB");
    const berthi_sim_device_words *const d = &w.devices[0];

    CHECK_EQ(d->memory_bytes, UINT64_C(80) << 30);
    CHECK_EQ(d->rate_to_device, 55 * GB);
    CHECK_EQ(d->rate_to_host, 50 * GB);
    CHECK_EQ(d->rate_memory, 3000 * GB);
    CHECK_EQ(d->latency_ns, 7000);
    CHECK_EQ(d->operation_ns, 4000);
    CHECK_EQ(d->jitter, 20);
    CHECK_EQ(d->root, 3);
    CHECK_EQ(d->numa_node, 2);
    CHECK_EQ(d->pin_bytes, UINT64_C(4) << 30);
    CHECK(d->keeps_digests && w.machine.is_real);
    CHECK_EQ(w.machine.pick, BERTHI_SIM_PICK_LAST);
    CHECK_EQ(w.machine.touch, BERTHI_SIM_TOUCH_END);
    CHECK_EQ(w.machine.seed, UINT64_MAX);
    CHECK_EQ(d->lose, 5);
    CHECK_EQ(d->stall, 6);
    CHECK_EQ(d->hang, 8);
    CHECK_EQ(d->steal_bytes, UINT64_C(7) << 20);
    CHECK_EQ(parsed("sim:pick=random").machine.pick, BERTHI_SIM_PICK_RANDOM);
    CHECK_EQ(parsed("sim:touch=begin").machine.touch, BERTHI_SIM_TOUCH_BEGIN);
    CHECK_EQ(parsed("sim:touch=random").machine.touch, BERTHI_SIM_TOUCH_RANDOM);
    CHECK_EQ(parsed("sim:h2d=1GB/s").devices[0].rate_to_host, GB); /* as the other one */
    CHECK_EQ(parsed("sim:d2h=1GB/s").devices[0].rate_to_device, 25 * GB);
    CHECK_EQ(parsed("sim:0").devices[0].memory_bytes, 0);
    CHECK_EQ(parsed("sim:pin=0").devices[0].pin_bytes, 0);
}

static void
test_times(void)
{
    CHECK_EQ(parsed("sim:latency=0s").devices[0].latency_ns, 0);
    CHECK_EQ(parsed("sim:latency=15ns").devices[0].latency_ns, 15);
    CHECK_EQ(parsed("sim:latency=15ms").devices[0].latency_ns, 15000000);
    CHECK_EQ(parsed("sim:latency=3600s").devices[0].latency_ns, 3600 * GB);
    CHECK_EQ(parsed("sim:latency=3600000ms").devices[0].latency_ns, 3600 * GB);
}

static void
test_several(void)
{
    const berthi_sim_words w =
        parsed("sim:1GiB*2;sim:2GiB,root=1,clock=real,seed=4;sim:3GiB,clock=real*3");

    CHECK_EQ(w.count, 6);
    for (uint32_t i = 0; i < 6; i++)
        CHECK_EQ(w.devices[i].memory_bytes >> 30, i < 2 ? 1 : i < 3 ? 2 : 3);
    CHECK_EQ(w.devices[2].root, 1);
    CHECK_EQ(w.devices[3].root, 0);
    CHECK(w.machine.is_real);
    CHECK_EQ(w.machine.seed, 4);
    CHECK_EQ(parsed("sim:lose=1,stall=2;sim:lose=3,stall=4").devices[1].lose, 3);
    CHECK_EQ(parsed("sim*64").count, 64);
    CHECK_EQ(parsed("sim*63;sim").count, 64);
}

static void
test_refusals(void)
{
    static const char size[] = "\"5XB\" is not a size as 24GiB";
    char text[600];

    check_refused("", "\"\" is not sim:...");
    check_refused("si", "\"si\" is not sim:...");
    check_refused("simx", "\"simx\" is not sim:...");
    check_refused("sim;cpu", "\"cpu\" is not sim:...");
    check_refused("sim;", "\"\" is not sim:...");
    check_refused("sim:", "\"\" is not a size as 24GiB");
    check_refused("sim:5XB", size);
    check_refused("sim:5XB,h2d=1GB/s", size);
    check_refused("sim:1GiB,2GiB",
                  "\"2GiB\" has none of the keys that berth-devices(5) names");
    check_refused("sim:1GiB,", "\"\" has none of the keys that berth-devices(5) names");
    check_refused("sim:h2=1GB",
                  "\"h2=1GB\" has none of the keys that berth-devices(5) names");
    check_refused("sim:h2dx=1GB",
                  "\"h2dx=1GB\" has none of the keys that berth-devices(5) names");
    check_refused("sim:h2d=1GB,h2d=1GB",
                  "\"h2d=1GB\" gives a key that was given before");
    check_refused("sim:seed=1,seed=1", "\"seed=1\" gives a key that was given before");
    check_refused("sim:h2d=fast", "\"h2d=fast\" is not a rate as 25GB/s");
    check_refused("sim:h2d=0", "\"h2d=0\" is not a rate as 25GB/s");
    check_refused("sim:d2h=/s", "\"d2h=/s\" is not a rate as 25GB/s");
    check_refused("sim:d2h=4611686018427387905",
                  "\"d2h=4611686018427387905\" is not a rate as 25GB/s");
    CHECK_EQ(parsed("sim:d2h=4611686018427387904").devices[0].rate_to_host,
             UINT64_C(1) << 62);
    check_refused("sim:memory=", "\"memory=\" is not a rate as 900GB/s");
    check_refused("sim:peers=0B", "\"peers=0B\" is not a rate as 450GB/s");
    CHECK_EQ(parsed("sim:peers=450GB/s").devices[0].rate_to_peer, UINT64_C(450000000000));
    check_refused("sim:latency=5", "\"latency=5\" is not a time as 10us, up to 3600s");
    check_refused("sim:latency=us", "\"latency=us\" is not a time as 10us, up to 3600s");
    check_refused("sim:latency=3601s",
                  "\"latency=3601s\" is not a time as 10us, up to 3600s");
    check_refused("sim:latency=3600000000000s",
                  "\"latency=3600000000000s\" is not a time as 10us, up to 3600s");
    check_refused("sim:operation=", "\"operation=\" is not a time as 4us, up to 3600s");
    CHECK_EQ(parsed("sim").devices[0].operation_ns, 0);
    check_refused("sim:jitter=5", "\"jitter=5\" is not a share as 20%, up to 1000%");
    check_refused("sim:jitter=", "\"jitter=\" is not a share as 20%, up to 1000%");
    check_refused("sim:jitter=1001%",
                  "\"jitter=1001%\" is not a share as 20%, up to 1000%");
    CHECK_EQ(parsed("sim:jitter=1000%").devices[0].jitter, 1000);
    check_refused("sim:root=4294967296", "\"root=4294967296\" is not a number");
    CHECK_EQ(parsed("sim:root=4294967295").devices[0].root, UINT32_MAX);
    check_refused("sim:numa=-1", "\"numa=-1\" is not a number");
    check_refused("sim:numa=2147483648", "\"numa=2147483648\" is not a number");
    CHECK_EQ(parsed("sim:numa=0;sim").devices[0].numa_node, 0);
    CHECK_EQ(parsed("sim:numa=0;sim").devices[1].numa_node, -1);
    check_refused("sim:pin=-1", "\"pin=-1\" is not a size as 4GiB");
    check_refused("sim:backing=disk", "\"backing=disk\" is none of memory, digest and sealed");
    check_refused("sim:clock=", "\"clock=\" is neither virtual nor real");
    check_refused("sim:pick=any", "\"pick=any\" is none of first, last and random");
    check_refused("sim:touch=now", "\"touch=now\" is none of random, begin and end");
    check_refused("sim:seed=18446744073709551616",
                  "\"seed=18446744073709551616\" is not a number");
    check_refused("sim:seed=1a", "\"seed=1a\" is not a number");
    check_refused("sim;sim:clock=virtual,seed=1;sim:seed=2",
                  "\"seed=2\" is not that of the devices before: a machine has one");
    check_refused("sim:clock=real;sim:clock=virtual",
                  "\"clock=virtual\" is not that of the devices before: a machine has one");
    check_refused("sim:pick=last;sim:pick=first",
                  "\"pick=first\" is not that of the devices before: a machine has one");
    check_refused("sim:touch=end;sim:touch=begin",
                  "\"touch=begin\" is not that of the devices before: a machine has one");
    check_refused("sim*0", "\"*0\" is none of *1 to *64");
    check_refused("sim*65", "\"*65\" is none of *1 to *64");
    check_refused("sim*", "\"*\" is none of *1 to *64");
    check_refused("sim*2*2", "\"*2*2\" is none of *1 to *64");
    check_refused("sim*63;sim*2", "\"sim*2\" is a device too many: there is room for 64");
    check_refused("sim*64;sim", "\";sim\" is a device too many: there is room for 64");
    snprintf(text, sizeof text, "sim:seed=%065d", 1);
    check_refused(text,
                  "\"seed=000000000000000000000000000000000000000000000000000000000000000"
                  "01\" has too many characters");
    snprintf(text, sizeof text, "sim:seed=%064d", 1);
    CHECK_EQ(parsed(text).machine.seed, 1);
    snprintf(text, sizeof text, "sim:%064d", 5);
    CHECK_EQ(parsed(text).devices[0].memory_bytes, 5);
    snprintf(text, sizeof text, "sim:%065d", 5);
    check_refused(text,
                  "\"00000000000000000000000000000000000000000000000000000000000000005\" "
                  "is not a size as 24GiB");
    check_refused("sim:lose=x", "\"lose=x\" is not a number");
    check_refused("sim:stall=x", "\"stall=x\" is not a number");
    check_refused("sim:hang=x", "\"hang=x\" is not a number");
    check_refused("sim:steal=x", "\"steal=x\" is not a size as 4GiB");
}

static void
test_print(void)
{
    const berthi_sim_words one = parsed("sim:1GiB,h2d=2GB/s,pin=3,numa=0,root=9,clock=real");
    berthi_sim_words two = parsed("sim:5;sim:6");
    char text[SIM_WORDS_CAPACITY];
    char small[5];
    size_t length = sim_words_print(&one, text, sizeof text);

    CHECK_STR(text,
              "sim:1073741824,h2d=2000000000/s,d2h=2000000000/s,memory=900000000000/s,"
              "latency=10000ns,jitter=0%,root=9,backing=memory,pin=3,numa=0,"
              "lose=0,stall=0,hang=0,steal=0,"
              "clock=real,pick=first,touch=random,seed=0");
    CHECK_EQ(length, strlen(text));
    CHECK_EQ(sim_words_print(&one, small, sizeof small), length);
    CHECK_STR(small, "sim:");
    sim_words_print(&two, text, sizeof text);
    CHECK_CONTAINS(text, ";sim:6,");
    two = parsed("sim:5,peers=3GB/s;sim:6");
    sim_words_print(&two, text, sizeof text);
    CHECK_CONTAINS(text, "backing=memory,peers=3000000000/s,");
    CHECK_EQ(parsed(text).devices[0].rate_to_peer, UINT64_C(3000000000));
    CHECK_EQ(parsed(text).devices[1].rate_to_peer, 0);
    two = parsed("sim:5,operation=4us;sim:6");
    sim_words_print(&two, text, sizeof text);
    CHECK_CONTAINS(text, "backing=memory,operation=4000ns,");
    CHECK_EQ(parsed(text).devices[0].operation_ns, 4000);
    CHECK_EQ(parsed(text).devices[1].operation_ns, 0);
    two = parsed("sim:5;sim:6,backing=sealed");
    CHECK(!two.devices[0].is_sealed);
    CHECK(two.devices[1].is_sealed);
    sim_words_print(&two, text, sizeof text);
    CHECK(parsed(text).devices[1].is_sealed);
    CHECK_EQ(parsed(text).count, 2);
}

/* The longest words there are. */
static void
test_capacity(void)
{
    char text[SIM_WORDS_CAPACITY];
    const berthi_sim_words w = parsed(
        "sim:18446744073709551614,h2d=4611686018427387904,d2h=4611686018427387904,"
        "memory=4611686018427387904,peers=4611686018427387904,latency=3600s,operation=3600s,"
        "jitter=1000%,root=4294967295,numa=2147483647,"
        "pin=18446744073709551614,backing=digest,clock=virtual,pick=random,touch=random,"
        "seed=18446744073709551615,lose=18446744073709551615,stall=18446744073709551615,"
        "hang=18446744073709551615,"
        "steal=18446744073709551614*64");

    CHECK_LT(sim_words_print(&w, text, sizeof text), sizeof text);
    CHECK_EQ(parsed(text).count, 64);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_defaults);
    T_RUN(test_every_key);
    T_RUN(test_times);
    T_RUN(test_several);
    T_RUN(test_refusals);
    T_RUN(test_print);
    T_RUN(test_capacity);
    T_MAIN_END;
}
