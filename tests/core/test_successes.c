#include "suites.h"

#include <backhop/adapter/successes.h>
#include <stdio.h>

#define RANDOM                                                                                                         \
    (bh_bytes)                                                                                                         \
    {                                                                                                                  \
        "0123456789abcdef", BH_SUCCESSES_RANDOM_BYTES                                                                  \
    }

enum { MOST = 4096, KEPT_MS = 7200000 };

static bh_successes *successes;
static bh_delivery *delivery;
static bh_history *history;

static void set_up(void)
{
    ck_assert_int_eq(bh_successes_new(&successes, RANDOM), BH_OK);
    ck_assert_int_eq(bh_delivery_new(&delivery), BH_OK);
    ck_assert_int_eq(bh_history_new(&history), BH_OK);
}

static void tear_down(void)
{
    bh_successes_free(successes);
    bh_delivery_free(delivery);
    bh_history_free(history);
}

/* Reads a message with this message-id; its headers are pushed before. */
static const bh_history *message(const char *id)
{
    ck_assert_int_eq(bh_delivery_set_property(delivery, BH_PROPERTY_MESSAGE_ID, bh_str(id)), BH_OK);
    ck_assert_int_eq(bh_history_read(history, delivery, NULL), BH_OK);
    return history;
}

static void push_count(const char *name, int64_t count)
{
    const bh_value header = {.name = bh_str(name), .type = BH_TYPE_INT64, .integer = count};
    ck_assert_int_eq(bh_delivery_push(delivery, &header), BH_OK);
}

static void keep(const char *id, int64_t now_ms)
{
    bh_successes_keep(successes, message(id), bh_str("orders"), bh_str("body"), now_ms);
}

static int take(const char *id, int64_t now_ms)
{
    return bh_successes_take(successes, message(id), bh_str("orders"), bh_str("body"), 1, now_ms);
}

START_TEST(F2_a_success_is_taken_once)
{
    keep("17", 0);
    ck_assert_int_eq(take("18", 1), 0);
    ck_assert_int_eq(take("17", 1), 1);
    ck_assert_int_eq(take("17", 1), 0);
}
END_TEST

START_TEST(F2_a_success_is_of_one_message)
{
    keep("17", 0);
    ck_assert_int_eq(bh_successes_take(successes, message("17"), bh_str("mails"), bh_str("body"), 1, 0), 0);
    ck_assert_int_eq(bh_successes_take(successes, message("17"), bh_str("orders"), bh_str("bodies"), 1, 0), 0);
    ck_assert_int_eq(bh_successes_take(successes, message("17"), bh_str("orders"), bh_str("body"), 0, 0), 0);
    push_count("backhop-attempts", 1);
    ck_assert_int_eq(take("17", 0), 0);
    bh_delivery_clear(delivery);
    push_count("x-delivery-count", 1); /* the lost delivery */
    ck_assert_int_eq(take("17", 0), 1);
}
END_TEST

START_TEST(F2_a_message_without_an_id_has_no_success)
{
    keep("", 0);
    ck_assert_int_eq(take("", 0), 0);
}
END_TEST

START_TEST(F2_a_success_is_kept_for_two_hours)
{
    keep("17", 1000);
    ck_assert_int_eq(take("17", 1000 + KEPT_MS), 0);
    keep("17", 1000);
    ck_assert_int_eq(take("17", 999 + KEPT_MS), 1);
}
END_TEST

START_TEST(F2_the_oldest_successes_give_way)
{
    char id[16];
    for (int i = 0; i < MOST + 2; i++) {
        snprintf(id, sizeof id, "%d", i);
        keep(id, i);
    }
    ck_assert_int_eq(take("0", 0), 0);
    ck_assert_int_eq(take("1", 0), 0);
    for (int i = MOST + 1; i >= 2; i--) {
        snprintf(id, sizeof id, "%d", i);
        ck_assert_int_eq(take(id, 0), 1);
    }
    keep("17", 0);
    ck_assert_int_eq(take("17", 0), 1);
}
END_TEST

START_TEST(wrong_arguments_are_refused)
{
    bh_successes *none;
    ck_assert_int_eq(bh_successes_new(NULL, RANDOM), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_successes_new(&none, bh_str("too short")), BH_ERR_ARGUMENT);
    ck_assert_ptr_null(none);
    bh_successes_keep(NULL, message("17"), bh_str("orders"), bh_str("body"), 0);
    bh_successes_keep(successes, NULL, bh_str("orders"), bh_str("body"), 0);
    keep("17", 0);
    ck_assert_int_eq(bh_successes_take(NULL, history, bh_str("orders"), bh_str("body"), 1, 0), 0);
    ck_assert_int_eq(bh_successes_take(successes, NULL, bh_str("orders"), bh_str("body"), 1, 0), 0);
    bh_successes_free(NULL);
}
END_TEST

Suite *suite_successes(void)
{
    Suite *suite = suite_create("successes");
    TCase *calls = tcase_create("calls");
    tcase_add_checked_fixture(calls, set_up, tear_down);
    tcase_add_test(calls, F2_a_success_is_taken_once);
    tcase_add_test(calls, F2_a_success_is_of_one_message);
    tcase_add_test(calls, F2_a_message_without_an_id_has_no_success);
    tcase_add_test(calls, F2_a_success_is_kept_for_two_hours);
    tcase_add_test(calls, F2_the_oldest_successes_give_way);
    tcase_add_test(calls, wrong_arguments_are_refused);
    suite_add_tcase(suite, calls);
    return suite;
}
