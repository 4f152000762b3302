/* Seeds: random histories. */
#include "history.h"
#include "runner.h"
#include "schedule.h"
#include "suites.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { HISTORIES = 300, TAPE_BYTES = 8192 };

static outcome play(uint64_t seed)
{
    static unsigned char data[TAPE_BYTES];
    char name[64];
    outcome out;
    snprintf(name, sizeof name, "BACKHOP_SIM_SEED=%" PRIu64, seed);
    tape_fill(data, sizeof data, seed);
    history_play_tape(data, sizeof data, name, &out);
    return out;
}

void play_seed(uint64_t seed)
{
    play(seed);
}

START_TEST(random_histories_keep_what_must_always_hold)
{
    const char *seed = getenv("BACKHOP_SIM_SEED"), *histories = getenv("BACKHOP_SIM_HISTORIES");
    if (seed) {
        play(strtoull(seed, NULL, 10));
        return;
    }
    uint64_t count = histories ? strtoull(histories, NULL, 10) : HISTORIES;
    for (uint64_t each = 1; each <= count; each++)
        play(each);
}
END_TEST

START_TEST(a_seed_gives_the_same_history_each_time)
{
    for (uint64_t seed = 1; seed <= 10 && !getenv("BACKHOP_SIM_SEED"); seed++) {
        uint64_t first = play(seed).hash, second = play(seed).hash;
        ck_assert_msg(first == second, "seed %" PRIu64 " gave two histories", seed);
    }
}
END_TEST

Suite *suite_seeds(void)
{
    Suite *suite = suite_create("seeds");
    TCase *tests = tcase_create("seeds");
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, random_histories_keep_what_must_always_hold);
    tcase_add_test(tests, a_seed_gives_the_same_history_each_time);
    suite_add_tcase(suite, tests);
    return suite;
}
