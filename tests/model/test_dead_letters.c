#include "rig.h"
#include "suites.h"

#include <string.h>

static const rig_entry to_w[] = {{"x-dead-letter-exchange", "", 0}, {"x-dead-letter-routing-key", "w", 0}};
static const rig_entry wait[] = {
    {"x-message-ttl", NULL, 100}, {"x-dead-letter-exchange", "", 0}, {"x-dead-letter-routing-key", "q", 0}};

static void expect_text(const rig *r, size_t i, const char *field, const char *expected)
{
    bh_bytes text = rig_death_text(r, i, field);
    ck_assert_uint_eq(text.size, strlen(expected));
    ck_assert_mem_eq(text.data, expected, text.size);
}

START_TEST(a_rejected_message_comes_back_with_its_deaths)
{
    static const char *const versions[] = {"3.10", "4.0", "4.3"};
    rig *r = rig_new(versions[_i]);
    rig_declare(r, "q", "classic", to_w, 2);
    rig_declare(r, "w", "quorum", wait, 3);
    rig_publish(r, "", "q", "m", NULL);
    for (int64_t round = 1; round <= 3; round++) {
        rig_get(r, "q", "m");
        ck_assert_uint_eq(rig_deaths(r), round == 1 ? 0 : 2);
        if (round > 1) {
            expect_text(r, 0, "queue", "w");
            expect_text(r, 0, "reason", "expired");
            expect_text(r, 1, "queue", "q");
            expect_text(r, 1, "reason", "rejected");
            ck_assert_int_eq(rig_death_number(r, 0, "count"), round - 1);
            ck_assert_int_eq(rig_death_number(r, 0, "time"), 1700000000);
        }
        rig_nack(r, r->tag, 0);
        rig_advance(r, 99);
        rig_get(r, "q", NULL);
        rig_advance(r, 1);
    }
    rig_free(r);
}
END_TEST

/* The wait queue's count: 3.10 reads the header of a copy, 4.0 starts again. */
START_TEST(a_copy_continues_the_count_on_3_10_alone)
{
    static const char *const versions[] = {"3.10", "4.0", "4.3"};
    rig *r = rig_new(versions[_i]);
    rig_declare(r, "q", "classic", NULL, 0);
    rig_declare(r, "w", "classic", wait, 3);
    rig_publish(r, "", "w", "m", NULL);
    rig_advance(r, 100);
    rig_get(r, "q", "m");
    rig_publish_raw(r, "", "w", "m", &r->properties, 0);
    rig_expect(r, AMQP_BASIC_ACK_METHOD);
    rig_advance(r, 100);
    rig_get(r, "q", "m");
    ck_assert_uint_eq(rig_deaths(r), 1);
    ck_assert_int_eq(rig_death_number(r, 0, "count"), _i == 0 ? 2 : 1);
    rig_free(r);
}
END_TEST

START_TEST(a_cycle_without_a_rejection_drops_the_message)
{
    static const rig_entry both[] = {
        {"x-message-ttl", NULL, 100}, {"x-dead-letter-exchange", "", 0}, {"x-dead-letter-routing-key", "w", 0}};
    static const char *const versions[] = {"3.10", "4.0", "4.3"};
    rig *r = rig_new(versions[_i]);
    rig_declare(r, "q", "classic", both, 3);
    rig_declare(r, "w", "classic", wait, 3);
    rig_publish(r, "", "q", "m", NULL);
    rig_advance(r, 1000);
    ck_assert_uint_eq(rig_depth(r, "q") + rig_depth(r, "w"), 0);
    rig_free(r);
}
END_TEST

/* 40 letters for a queue that takes one: 32 are in flight, and stay until the next attempt. */
START_TEST(at_least_once_keeps_what_a_full_target_rejects)
{
    static const rig_entry full[] = {{"x-max-length", NULL, 1}, {"x-overflow", "reject-publish", 0}};
    static const rig_entry safe[] = {{"x-message-ttl", NULL, 100},
                                     {"x-dead-letter-exchange", "", 0},
                                     {"x-dead-letter-routing-key", "q", 0},
                                     {"x-dead-letter-strategy", "at-least-once", 0},
                                     {"x-overflow", "reject-publish", 0}};
    enum { COUNT = 40 };
    rig *r = rig_new("4.3");
    rig_declare(r, "q", "classic", full, 2);
    rig_declare(r, "w", "quorum", safe, 5);
    for (int i = 0; i < COUNT; i++)
        rig_publish(r, "", "w", "m", NULL);
    rig_advance(r, 100);
    for (int i = 0; i < COUNT; i++) {
        ck_assert_uint_eq(rig_depth(r, "q"), 1);
        rig_get(r, "q", "m");
        rig_ack(r, r->tag);
        if (i < COUNT - 1) {
            rig_get(r, "q", NULL);
            rig_advance(r, 180000);
        }
    }
    rig_advance(r, 180000);
    rig_get(r, "q", NULL);
    rig_free(r);
}
END_TEST

START_TEST(at_least_once_waits_for_a_route)
{
    static const rig_entry safe[] = {{"x-message-ttl", NULL, 100},
                                     {"x-dead-letter-exchange", "", 0},
                                     {"x-dead-letter-routing-key", "later", 0},
                                     {"x-dead-letter-strategy", "at-least-once", 0},
                                     {"x-overflow", "reject-publish", 0}};
    rig *r = rig_new("4.0");
    rig_declare(r, "w", "quorum", safe, 5);
    rig_publish(r, "", "w", "m", NULL);
    rig_advance(r, 150);
    ck_assert_uint_eq(rig_depth(r, "w"), 0);
    rig_declare(r, "later", "classic", NULL, 0);
    ck_assert_int_eq(model_next_ms(r->broker), 180100);
    rig_advance(r, 180000);
    rig_get(r, "later", "m");
    rig_free(r);
}
END_TEST

START_TEST(beyond_its_limit_a_message_is_dead)
{
    static const rig_entry limited[] = {
        {"x-delivery-limit", NULL, 2}, {"x-dead-letter-exchange", "", 0}, {"x-dead-letter-routing-key", "w", 0}};
    static const char *const versions[] = {"3.10", "4.0", "4.3"};
    rig *r = rig_new(versions[_i]);
    rig_declare(r, "w", "classic", NULL, 0);
    rig_declare(r, "q", "quorum", limited, 3);
    rig_publish(r, "", "q", "m", NULL);
    for (int i = 0; i < 3; i++) {
        rig_get(r, "q", "m");
        rig_reject(r, r->tag, 1);
    }
    rig_get(r, "q", NULL);
    rig_get(r, "w", "m");
    expect_text(r, 0, "reason", "delivery_limit");
    rig_free(r);
}
END_TEST

Suite *suite_dead_letters(void)
{
    Suite *suite = suite_create("dead letters");
    TCase *tests = tcase_create("dead letters");
    tcase_add_loop_test(tests, a_rejected_message_comes_back_with_its_deaths, 0, 3);
    tcase_add_loop_test(tests, a_copy_continues_the_count_on_3_10_alone, 0, 3);
    tcase_add_loop_test(tests, a_cycle_without_a_rejection_drops_the_message, 0, 3);
    tcase_add_test(tests, at_least_once_keeps_what_a_full_target_rejects);
    tcase_add_test(tests, at_least_once_waits_for_a_route);
    tcase_add_loop_test(tests, beyond_its_limit_a_message_is_dead, 0, 3);
    suite_add_tcase(suite, tests);
    return suite;
}
