/* Decisions of the command without a broker: conditions, kinds of errors, groups, the
 * simulation. */
#include "../reading.h"
#include "observe/overdue.h"
#include "parked/groups.h"
#include "parked/waiting.h"
#include "setup/simulation.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bh_delivery *delivery;
static bh_history *history;

static void make(void)
{
    ck_assert_int_eq(bh_delivery_new(&delivery), BH_OK);
    ck_assert_int_eq(bh_history_new(&history), BH_OK);
    bh_delivery_set_address(delivery, bh_str(""), bh_str("orders.eu"));
    push_text(delivery, "backhop-error", "TimeoutError: host 17 is silent\nmore");
    push_int(delivery, "backhop-attempts", 4);
    push_int(delivery, "backhop-first-failure", 1000000);
    push_text(delivery, "backhop-id", "a1");
    push_text(delivery, "backhop-parked", "exhausted");
    push_text(delivery, "tenant", "Acme");
    bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_INT32, .name = bh_str("size"), .integer = -5});
    bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_BOOLEAN, .name = bh_str("paid"), .integer = 1});
    bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_DOUBLE, .name = bh_str("price"), .number = 99.5});
    bh_delivery_push(delivery,
                     &(bh_value){.type = BH_TYPE_DECIMAL, .name = bh_str("rate"), .integer = 125, .places = 1});
    bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_VOID, .name = bh_str("void")});
    bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_DOUBLE, .name = bh_str("nan"), .number = (double)NAN});
    push_int(delivery, "big", 9007199254740993);
    push_open(delivery, BH_TYPE_ARRAY, "list");
    bh_delivery_end(delivery);
    ck_assert_int_eq(bh_history_read(history, delivery, NULL), BH_OK);
}

static void drop(void)
{
    bh_delivery_free(delivery);
    bh_history_free(history);
}

static const struct {
    const char *condition;
    int fits;
} conditions[] = {
    {"id=a1", 1},
    {"id!=a1", 0},
    {"error~SILENT", 1},
    {"error!~silent", 0},
    {"error=silent", 0},
    {"class=TimeoutError", 1},
    {"kind=TimeoutError: host # is silent", 1},
    {"kind=TimeoutError: host 17 is silent", 0},
    {"kind~host #", 1},
    {"reason=exhausted", 1},
    {"reason~exh", 1},
    {"routing-key=orders.eu", 1},
    {"exchange=", 1},
    {"attempts=4", 1},
    {"attempts>3", 1},
    {"attempts<4", 0},
    {"attempts<=4", 1},
    {"attempts!=4", 0},
    {"replays=0", 1},
    {"age>1s", 1},
    {"age<1s", 0},
    {"age>=2s", 1},
    {"header.tenant=Acme", 1},
    {"header.tenant~acme", 1},
    {"header.tenant!=Acme", 0},
    {"header.none=x", 0},
    {"header.none!=x", 1},
    {"header.none>1", 0},
    {"header.size=-5", 1},
    {"header.size<0", 1},
    {"header.size=x", 0},
    {"header.paid=true", 1},
    {"header.paid=1", 1},
    {"header.size!~5", 1},
    {"header.size~5", 0},
    {"header.size>-5.5", 1},
    {"header.price=99.5", 1},
    {"header.price<50", 0},
    {"header.price>50", 1},
    {"header.price=0", 0},
    {"header.price!=0", 1},
    {"header.price>=995e-1", 1},
    {"header.rate=12.5", 1},
    {"header.rate>12", 1},
    {"header.rate=125", 0},
    {"header.void=0", 0},
    {"header.void<1", 0},
    {"header.void!=0", 1},
    {"header.void!~0", 1},
    {"header.nan<1", 0},
    {"header.nan>=1", 0},
    {"header.nan!=1", 1},
    {"header.list=0", 0},
    {"header.list!=0", 1},
    {"header.big=9007199254740993", 1},
    {"header.big=9007199254740992", 0},
    {"header.big>9007199254740992", 1},
};

START_TEST(a_condition_fits_what_it_says)
{
    char problem[256];
    selection of = {.conditions = NULL};
    ck_assert_msg(selection_add(&of, conditions[_i].condition, problem), "%s", problem);
    ck_assert_msg(selection_fits(&of, delivery, history, 1002000) == conditions[_i].fits, "%s",
                  conditions[_i].condition);
    selection_free(&of);
}
END_TEST

START_TEST(all_conditions_have_to_fit)
{
    char problem[256];
    selection of = {.conditions = NULL};
    ck_assert(selection_fits(&of, delivery, history, 0));
    ck_assert(selection_add(&of, "attempts=4", problem) && selection_add(&of, "id=b", problem));
    ck_assert(!selection_fits(&of, delivery, history, 0));
    selection_free(&of);
}
END_TEST

START_TEST(messages_that_stay_longer_than_the_ttl_are_overdue)
{
    enum { TTL = 10000, WINDOW = TTL + OVERDUE_GRACE_MS };
    overdue of = {.last = 0};
    ck_assert_int_eq(overdue_record(&of, 0, TTL, 0), 0);
    ck_assert_int_eq(overdue_record(&of, 5, TTL, 1000), 0); /* they came */
    ck_assert_int_eq(overdue_record(&of, 7, TTL, 1000 + WINDOW - 1), 0);
    ck_assert_int_eq(overdue_record(&of, 7, TTL, 1000 + WINDOW), 5);
    ck_assert_int_eq(overdue_record(&of, 7, TTL, 1000 + 2 * WINDOW), 7);
    ck_assert_int_eq(overdue_record(&of, 6, TTL, 1001 + 2 * WINDOW), 0); /* the queue works */
    ck_assert_int_eq(overdue_record(&of, -1, TTL, 1002 + 9 * WINDOW), 0);
    ck_assert_int_eq(overdue_record(&of, 6, TTL, 1003 + 9 * WINDOW), 0);
}
END_TEST

START_TEST(a_text_that_is_no_condition_is_refused)
{
    static const char *const wrong[] = {
        "",     "id",         "=x",     "errors=x", "header.=x", "age>soon", "attempts=many",
        "id>1", "attempts~4", "header", "error=~x", "id==x"};
    char problem[256] = "";
    selection of = {.conditions = NULL};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        problem[0] = '\0';
        ck_assert_msg(!selection_add(&of, wrong[i], problem) && problem[0], "'%s' was taken", wrong[i]);
    }
    selection_free(&of);
}
END_TEST

static const struct {
    const char *error, *class, *kind;
} errors[] = {
    {"TimeoutError: host 17 is silent\nmore", "TimeoutError", "TimeoutError: host # is silent"},
    {"507 queue is full", "", "# queue is full"},
    {"Net::ReadTimeout: 30s", "Net::ReadTimeout", "Net::ReadTimeout: #s"},
    {"requests.exceptions.ConnectionError: x", "requests.exceptions.ConnectionError",
     "requests.exceptions.ConnectionError: x"},
    {"order 3f2504e0-4f89-11d3-9a0c-0305e82c3301 is gone", "", "order # is gone"},
    {"id deadbeef01 and deadbeef", "", "id # and deadbeef"},
    {"host42 is down", "", "host# is down"},
    {"not a class : x", "", "not a class : x"},
    {"", "", ""},
};

START_TEST(an_error_has_a_class_and_a_kind)
{
    char kind[KIND_BYTES + 1];
    bh_bytes class = error_class(bh_str(errors[_i].error));
    error_kind(kind, bh_str(errors[_i].error));
    ck_assert_str_eq(kind, errors[_i].kind);
    ck_assert_msg(class.size == strlen(errors[_i].class) && memcmp(class.data, errors[_i].class, class.size) == 0, "%s",
                  errors[_i].error);
}
END_TEST

START_TEST(kinds_of_errors_beyond_the_most_count_as_one)
{
    groups of = {.items = NULL};
    for (int i = 0; i < GROUPS_OF_QUEUE + 50; i++) {
        char error[32] = "error ";
        for (int j = 0, rest = i; j < 5; j++, rest /= 20)
            error[6 + j] = (char)('g' + rest % 20); /* letters, as numbers are folded */
        bh_delivery_clear(delivery);
        push_text(delivery, "backhop-error", error);
        ck_assert_int_eq(bh_history_read(history, delivery, NULL), BH_OK);
        ck_assert(groups_add(&of, "orders.parked", history, -1));
    }
    ck_assert_uint_eq(of.count, GROUPS_OF_QUEUE + 1);
    ck_assert_int_eq(of.items[GROUPS_OF_QUEUE].count, 50);
    ck_assert(of.items[GROUPS_OF_QUEUE].is_rest);
    ck_assert_int_eq(groups_cut(&of), 1);
    ck_assert_str_eq(of.items[GROUPS_OF_QUEUE].class, "");
    int64_t total = 0;
    for (int i = 0; i < 2; i++) /* P4-5: the queue hides no other */
        ck_assert(groups_add(&of, "emails.parked", history, -1));
    ck_assert_int_eq(of.items[of.count - 1].count, 2);
    ck_assert_str_ne(of.items[of.count - 1].kind, "(other errors)");
    ck_assert_int_eq(groups_cut(&of), 1);
    for (size_t i = 0; i < of.count; i++)
        total += of.items[i].count;
    ck_assert_int_eq(total, GROUPS_OF_QUEUE + 52);
    groups_sort(&of);
    for (size_t i = 1; i < of.count; i++)
        ck_assert_int_ge(of.items[i - 1].count, of.items[i].count);
    groups_free(&of);
}
END_TEST

/* P4-5: the rest of a queue has the class of its messages, so the page can select them. */
START_TEST(the_rest_of_a_queue_has_a_class_that_all_its_messages_have)
{
    groups of = {.items = NULL};
    static const char *const queues[] = {"one.parked", "two.parked"};
    for (int i = 0; i < 2 * (GROUPS_OF_QUEUE + 3); i++) {
        int number = i % (GROUPS_OF_QUEUE + 3), is_second = i >= GROUPS_OF_QUEUE + 3;
        char error[48] = "AddressError: no ";
        for (int j = 0, rest = number; j < 5; j++, rest /= 20)
            error[17 + j] = (char)('g' + rest % 20);
        if (is_second && number == GROUPS_OF_QUEUE + 1)
            memcpy(error, "Timeout", 7);
        bh_delivery_clear(delivery);
        push_text(delivery, "backhop-error", error);
        ck_assert_int_eq(bh_history_read(history, delivery, NULL), BH_OK);
        ck_assert(groups_add(&of, queues[is_second], history, -1));
    }
    ck_assert_str_eq(of.items[GROUPS_OF_QUEUE].class, "AddressError");
    ck_assert_str_eq(of.items[of.count - 1].class, "");
    groups_join(&of); /* two rests of other classes stay two */
    size_t rests = 0;
    for (size_t begin = 0; begin < of.count; begin = groups_end_of_error(&of, begin))
        rests += (size_t)of.items[begin].is_rest;
    ck_assert_uint_eq(rests, 2);
    groups_free(&of);
}
END_TEST

/* P4-4: single failures, and the retries of other work queues, are no reason to stop. */
START_TEST(a_replay_stops_if_enough_of_its_messages_wait)
{
    static const struct {
        int64_t stop_after, done, before, limit;
    } rows[] = {{3, 0, 0, 3}, {3, 25, 0, 3}, {3, 1000, 0, 100}, {3, 20, 200, 100}, {50, 20, 40, 50}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_int_eq(waiting_limit(rows[i].stop_after, rows[i].done, rows[i].before), rows[i].limit);
    waiting of = {.more = 30};
    ck_assert_int_eq(waiting_again(&of, 20), 20);
    ck_assert_int_eq(waiting_again(&of, 40), 30);
}
END_TEST

static void play(simulation *out, uint64_t seed, int at_once)
{
    bh_policy *policy;
    bh_topology *topology;
    scenario of = {.rate = 10,
                   .capacity = 50,
                   .down_from_ms = 10000,
                   .down_to_ms = 60000,
                   .until_ms = 120000,
                   .end_ms = 3600000,
                   .seed = seed,
                   .at_once = at_once};
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    ck_assert_int_eq(bh_topology_new(&topology, bh_str("work")), BH_OK);
    ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
    ck_assert_int_eq(simulation_run(out, &of, policy, topology), BH_OK);
    bh_topology_free(topology);
    bh_policy_free(policy);
}

START_TEST(a_simulation_accounts_for_each_message_and_repeats_itself)
{
    static simulation first, again, other;
    play(&first, 7, 0);
    play(&again, 7, 0);
    play(&other, 8, 0);
    ck_assert_int_eq(first.messages, 1200);
    ck_assert_int_eq(first.done + first.parked + first.remaining, first.messages);
    ck_assert_int_eq(first.calls, first.done + first.failed_calls);
    ck_assert_int_eq(memcmp(&first, &again, sizeof first), 0);
    ck_assert_int_ne(memcmp(&first, &other, sizeof first), 0);
    ck_assert_int_eq(first.parked, 0); /* ten attempts of the default policy outlast fifty seconds */
    play(&other, 7, 1);
    ck_assert_int_gt(other.parked, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("command");
    TCase *tests = tcase_create("pure");
    tcase_add_checked_fixture(tests, make, drop);
    tcase_add_loop_test(tests, a_condition_fits_what_it_says, 0, (int)(sizeof conditions / sizeof conditions[0]));
    tcase_add_test(tests, all_conditions_have_to_fit);
    tcase_add_test(tests, a_text_that_is_no_condition_is_refused);
    tcase_add_test(tests, messages_that_stay_longer_than_the_ttl_are_overdue);
    tcase_add_loop_test(tests, an_error_has_a_class_and_a_kind, 0, (int)(sizeof errors / sizeof errors[0]));
    tcase_add_test(tests, kinds_of_errors_beyond_the_most_count_as_one);
    tcase_add_test(tests, the_rest_of_a_queue_has_a_class_that_all_its_messages_have);
    tcase_add_test(tests, a_replay_stops_if_enough_of_its_messages_wait);
    tcase_add_test(tests, a_simulation_accounts_for_each_message_and_repeats_itself);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
