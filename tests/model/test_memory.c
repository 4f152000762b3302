/* Memory: each allocation of a history fails once. The connection may end; nothing crashes. Under
 * the address sanitizer this shows too that nothing leaks. */
#include "rig.h"
#include "suites.h"

#include "allocations.h"

#include <stdlib.h>

/* The rig's own allocations must not fail: it writes by room that it has already. */
static void write_history(rig *r)
{
    static const rig_entry dead[] = {{"x-message-ttl", NULL, 5},
                                     {"x-dead-letter-exchange", "", 0},
                                     {"x-dead-letter-routing-key", "q", 0},
                                     {"x-dead-letter-strategy", "at-least-once", 0},
                                     {"x-overflow", "reject-publish", 0}};
    amqp_basic_consume_t consume = {.queue = bh__to_amqp(bh_str("q")), .consumer_tag = amqp_empty_bytes};
    rig_send_declare(r, "w", "quorum", dead, 5);
    rig_send_declare(r, "q", "classic", dead, 0);
    for (int i = 0; i < 20; i++)
        rig_publish_raw(r, "", i % 2 ? "w" : "q", "a body", NULL, 1);
    rig_publish_raw(r, "", "nowhere", "", NULL, 1);
    rig_send(r, 1, AMQP_BASIC_CONSUME_METHOD, &consume);
    rig_advance(r, 5);
    rig_nack(r, 1, 1);
    rig_reject(r, 2, 0);
    rig_ack(r, 3);
}

/* Plays the history with one failing allocation. Returns 1 if it failed. */
static int play(const char *version, long failing)
{
    rig *r = rig_new(version);
    allocations_start(failing);
    write_history(r);
    rig_advance(r, 200000);
    bh__report answer = {.status = BH_OK};
    model_control(r->broker, "policy / p . queues 1 '{\"max-length\": 3}'", &answer);
    bh__report_free(&answer);
    int has_failed = allocations_failed();
    allocations_start(-1);
    rig_free(r);
    return has_failed;
}

START_TEST(each_allocation_may_fail)
{
    static const char *const versions[] = {"3.10", "4.0", "4.3"};
    long failing = 0;
    while (play(versions[_i], failing))
        failing++;
    ck_assert_int_gt(failing, 100);
}
END_TEST

Suite *suite_memory(void)
{
    Suite *suite = suite_create("memory");
    TCase *tests = tcase_create("memory");
    tcase_add_loop_test(tests, each_allocation_may_fail, 0, 3);
    suite_add_tcase(suite, tests);
    return suite;
}
