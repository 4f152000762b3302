#include "setups.h"

enum { TEST_LIMIT_S = 300 }; /* a broker may start in it; single waits have less */

const setup setups[] = {
    {"ladder of quorum queues", BH_STRATEGY_LADDER, BH_QUEUE_QUORUM, 1},
    {"ladder of classic queues", BH_STRATEGY_LADDER, BH_QUEUE_CLASSIC, 1},
    {"message-ttl in a quorum queue", BH_STRATEGY_MESSAGE_TTL, BH_QUEUE_QUORUM, 1},
    {"message-ttl in a classic queue", BH_STRATEGY_MESSAGE_TTL, BH_QUEUE_CLASSIC, 1},
    {"delayed-exchange", BH_STRATEGY_DELAYED_EXCHANGE, BH_QUEUE_CLASSIC, 1},
    {"reject with quorum queues", BH_STRATEGY_REJECT, BH_QUEUE_QUORUM, 0},
    {"reject with classic queues", BH_STRATEGY_REJECT, BH_QUEUE_CLASSIC, 0},
    {"native", BH_STRATEGY_NATIVE, BH_QUEUE_QUORUM, 0},
};
const int setup_count = sizeof setups / sizeof setups[0];

int setup_can_be_served(const setup *self)
{
    if (self->strategy == BH_STRATEGY_NATIVE)
        return broker_is_at_least(4, 3);
    if (self->strategy == BH_STRATEGY_DELAYED_EXCHANGE)
        return broker_has_delayed_exchange() && !broker_is_at_least(4, 3);
    return self->type == BH_QUEUE_CLASSIC || broker_is_at_least(3, 10);
}

int setup_first(void)
{
    int first = 0;
    while (!setup_can_be_served(&setups[first]))
        first++;
    return first;
}

rig *setup_rig(int i)
{
    return rig_new(setups[i].strategy, setups[i].type);
}

TCase *add_case(Suite *suite, const char *name)
{
    TCase *tests = tcase_create(name);
    tcase_set_timeout(tests, TEST_LIMIT_S);
    suite_add_tcase(suite, tests);
    return tests;
}

TCase *long_case(TCase *tests)
{
    tcase_set_tags(tests, "long");
    return tests;
}

TCase *longest_case(TCase *tests)
{
    tcase_set_tags(tests, "long longest");
    return tests;
}

TCase *add_setup_case(Suite *suite, int i)
{
    TCase *tests = add_case(suite, setups[i].name);
    for (int first = setup_first(); first < i; first++)
        if (setup_can_be_served(&setups[first]) && setups[first].publishes == setups[i].publishes)
            return long_case(tests);
    return tests;
}

void setup_add_tests(Suite *suite, const setup_test *tests, size_t count)
{
    for (int i = 0; i < setup_count; i++) {
        if (!setup_can_be_served(&setups[i]))
            continue;
        TCase *each = add_setup_case(suite, i);
        for (size_t j = 0; j < count; j++)
            if (setups[i].publishes || !tests[j].publishers_only)
                tcase_add_loop_test(each, tests[j].test, i, i + 1);
    }
}
