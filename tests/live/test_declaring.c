#include "suites.h"
#include "trouble.h"

#include <stdio.h>
#include <string.h>

/* How many of the topology's exchanges and queues are there. */
static size_t count_present(const rig *r, size_t *all)
{
    size_t present = 0;
    *all = 0;
    for (size_t i = 0; i < view_of(r->topology).declaration_count; i++) {
        const char *name = declaration_at(r->topology, i).name.data;
        bh_declaration_kind declaration = declaration_at(r->topology, i).kind;
        if (declaration == BH_DECLARE_BINDING)
            continue;
        ++*all;
        present += (size_t)(declaration == BH_DECLARE_QUEUE ? broker_has_queue(r->broker, name)
                                                            : broker_has_exchange(r->broker, name));
    }
    return present;
}

/* A worker in this mode that is started and may fail. */
static rig *started_rig(int i, bh_mode mode)
{
    rig *r = rig_in_a_hurry(setup_rig(i));
    rig_set(r, mode, mode);
    start_by(r, broker_url());
    return r;
}

static rig *connected_rig(int i)
{
    rig *r = started_rig(i, BH_MODE_CREATE);
    rig_await(r, BH_EVENT_CONNECTED);
    return r;
}

/* As rig_restart, and it may fail. */
static void restart(rig *r, bh_mode mode)
{
    rig_stop_worker(r);
    rig_in_a_hurry(r);
    rig_set(r, mode, mode);
    start_by(r, broker_url());
}

/* The worker consumes: a failed message is retried. */
static void expect_at_work(rig *r)
{
    rig_take(r, "first");
    rig_fail(r, "507");
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_succeed(r);
}

START_TEST(declaring_twice_is_as_declaring_once)
{
    rig *r = connected_rig(_i);
    size_t all;
    ck_assert_uint_eq(count_present(r, &all), all);
    rig_restart(r, BH_MODE_CREATE);
    broker_publish_text(r->broker, "", r->queue, "first");
    expect_at_work(r);
    ck_assert_uint_eq(count_present(r, &all), all);
    rig_free(r);
}
END_TEST

START_TEST(verifying_what_is_missing_tells_it_makes_nothing_and_waits_for_it)
{
    rig *r = started_rig(_i, BH_MODE_VERIFY);
    size_t all;
    for (int i = 0; i < 2; i++) {
        expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, r->queue);
        expect_told(r, r->parked);
        expect_told(r, "the mode create");
    }
    ck_assert_uint_eq(count_present(r, &all), 0);
    expect_no_event(r, BH_EVENT_CONNECTED);
    rig *owner = rig_new_beside(r, "work");
    rig_start(owner);
    rig_stop_worker(owner);
    rig_await(r, BH_EVENT_CONNECTED);
    broker_publish_text(r->broker, "", r->queue, "first");
    expect_at_work(r);

    broker_delete_queue(r->broker, r->parked);
    restart(r, BH_MODE_VERIFY);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, r->parked);
    ck_assert(!broker_has_queue(r->broker, r->parked));
    rig_free(owner);
    rig_free(r);
}
END_TEST

START_TEST(verifying_what_is_complete_is_content_and_changes_nothing)
{
    rig *r = connected_rig(_i);
    rig_stop_worker(r);
    broker_publish_text(r->broker, "", r->queue, "first");
    broker_publish_text(r->broker, "", r->parked, "parked");
    rig_restart(r, BH_MODE_VERIFY);
    expect_at_work(r);
    expect_no_event(r, BH_EVENT_UNAVAILABLE);
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    broker_await_depth(r->broker, r->parked, 1);
    rig_free(r);
}
END_TEST

/* NULL if the strategy needs none. */
static const char *first_exchange(const rig *r)
{
    for (size_t i = 0; i < view_of(r->topology).declaration_count; i++)
        if (declaration_at(r->topology, i).kind == BH_DECLARE_EXCHANGE)
            return declaration_at(r->topology, i).name.data;
    return NULL;
}

/* The queue that the worker finds is deleted before it can compare it. */
START_TEST(verifying_makes_nothing_where_what_it_found_is_deleted_just_then)
{
    char url[4096];
    rig *r = connected_rig(_i);
    rig_stop_worker(r);
    for (int is_exchange = 0; is_exchange < 2; is_exchange++) {
        const char *name = is_exchange ? first_exchange(r) : r->parked; /* which nothing before it names */
        if (!name)
            continue;
        proxy *network = proxy_open("127.0.0.1", broker_port(0));
        broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(network));
        proxy_hold_answer_to(network, name);
        rig_in_a_hurry(r);
        rig_set(r, mode, BH_MODE_VERIFY);
        start_by(r, url);
        proxy_await_answer(network);
        if (is_exchange)
            broker_delete_exchange(r->broker, name);
        else
            broker_delete_queue(r->broker, name);
        proxy_hold_broker(network, PROXY_NONE);
        expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, name);
        ck_assert(!(is_exchange ? broker_has_exchange(r->broker, name) : broker_has_queue(r->broker, name)));
        expect_no_event(r, BH_EVENT_CONNECTED);
        rig_stop_worker(r);
        proxy_close(network);
        rig_restart(r, BH_MODE_CREATE);
        rig_stop_worker(r);
    }
    rig_free(r);
}
END_TEST

/* Names that the broker quotes in its words, which are read here. */
START_TEST(verifying_compares_names_of_any_kind)
{
    static const char *const namespaces[] = {"an 'odd' name", "\xc3\xa9t\xc3\xa9 \xe2\x82\xac", " but current is 'x'",
                                             ": received ", "100% %s"};
    for (size_t i = 0; i <= sizeof namespaces / sizeof namespaces[0]; i++) {
        char ns[512];
        rig *r = setup_rig(_i);
        if (i < sizeof namespaces / sizeof namespaces[0]) {
            snprintf(ns, sizeof ns, "%s%s", r->ns, namespaces[i]);
        } else { /* longer than what the broker's words have room for */
            memset(ns, 'n', 200);
            ns[200] = '\0';
            memcpy(ns, r->ns, strlen(r->ns));
        }
        ck_assert_int_eq(topology_set_name_space(r->topology, bh_str(ns)), BH_OK);
        rig_start(r);
        for (size_t each = 0; each < view_of(r->topology).declaration_count; each++)
            if (declaration_at(r->topology, each).kind != BH_DECLARE_BINDING)
                broker_remove_later(declaration_at(r->topology, each).name.data);
        rig_restart(r, BH_MODE_VERIFY);
        expect_no_event(r, BH_EVENT_UNAVAILABLE);
        rig_free(r);
    }
}
END_TEST

START_TEST(verifying_tells_another_alternate_exchange)
{
    rig *r = connected_rig(_i);
    rig_stop_worker(r);
    amqp_table_entry_t other = entry_string("alternate-exchange", "amq.fanout");
    broker_delete_exchange(r->broker, rig_name(r, "return"));
    broker_declare_exchange_with(r->broker, rig_name(r, "return"), "direct", &other, 1);
    restart(r, BH_MODE_VERIFY);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_CLASH, rig_name(r, "return"));
    expect_told(r, "alternate-exchange = amq.fanout");
    expect_told(r, "unroutable is needed");
    broker_delete_exchange(r->broker, rig_name(r, "return"));
    broker_declare_exchange(r->broker, rig_name(r, "return"), "direct");
    restart(r, BH_MODE_VERIFY);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_CLASH, rig_name(r, "return"));
    expect_told(r, "alternate-exchange = none");
    broker_delete_exchange(r->broker, rig_name(r, "return"));
    broker_declare_exchange(r->broker, rig_name(r, "return"), "topic");
    restart(r, BH_MODE_VERIFY);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_CLASH, rig_name(r, "return"));
    expect_told(r, "type = topic, and direct is needed");
    rig_free(r);
}
END_TEST

/* A parked queue of the other type than the topology's. */
START_TEST(what_is_different_tells_the_way_out_and_changes_nothing)
{
    static const bh_mode modes[] = {BH_MODE_VERIFY, BH_MODE_CREATE};
    rig *r = connected_rig(_i);
    const char *is = r->type == BH_QUEUE_QUORUM ? "classic" : "quorum",
               *needed = r->type == BH_QUEUE_QUORUM ? "quorum" : "classic";
    const char *const parts[] = {r->parked, "x-queue-type", is, needed, "delete it"};
    amqp_table_entry_t type = entry_string("x-queue-type", is);
    broker_delete_queue(r->broker, r->parked);
    broker_declare_queue(r->broker, r->parked, &type, 1);
    broker_publish_text(r->broker, "", r->parked, "parked");
    for (int i = 0; i < 2; i++) {
        restart(r, modes[i]);
        rig_await(r, BH_EVENT_UNAVAILABLE);
        ck_assert_int_eq((bh_status)bh_event_int(r->event, BH_FIELD_STATUS), BH_ERR_CLASH);
        for (size_t j = 0; j < sizeof parts / sizeof parts[0]; j++)
            expect_told(r, parts[j]);
        broker_await_depth(r->broker, r->parked, 1);
        expect_no_event(r, BH_EVENT_CONNECTED);
    }
    broker_delete_queue(r->broker, r->parked);
    rig_await(r, BH_EVENT_CONNECTED); /* the one that creates needs no other push */
    rig_restart(r, BH_MODE_VERIFY);
    rig_free(r);
}
END_TEST

START_TEST(a_rung_with_another_ttl_is_a_clash)
{
    rig *r = setup_rig(_i);
    amqp_table_entry_t arguments[] = {
        entry_string("x-queue-type", r->type == BH_QUEUE_QUORUM ? "quorum" : "classic"), entry_int("x-message-ttl", 99),
        entry_string("x-dead-letter-exchange", rig_name(r, "return")),
        entry_string("x-dead-letter-strategy", "at-least-once"), entry_string("x-overflow", "reject-publish")};
    broker_declare_queue(r->broker, rig_rung(r, RIG_DELAY_MS), arguments, r->type == BH_QUEUE_QUORUM ? 5 : 3);
    start_by(rig_in_a_hurry(r), broker_url());
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_CLASH, rig_rung(r, RIG_DELAY_MS));
    expect_told(r, "x-message-ttl = 99");
    expect_told(r, "50 is needed");
    expect_told(r, "choose another namespace");
    broker_delete_queue(r->broker, rig_rung(r, RIG_DELAY_MS));
    rig_await(r, BH_EVENT_CONNECTED);
    rig_free(r);
}
END_TEST

START_TEST(an_exchange_of_another_type_is_a_clash)
{
    rig *r = setup_rig(_i);
    broker_declare_exchange(r->broker, rig_name(r, "return"), "topic");
    start_by(rig_in_a_hurry(r), broker_url());
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_CLASH, rig_name(r, "return"));
    expect_told(r, "topic");
    expect_told(r, "direct");
    broker_delete_exchange(r->broker, rig_name(r, "return"));
    rig_await(r, BH_EVENT_CONNECTED);
    rig_free(r);
}
END_TEST

START_TEST(a_work_queue_without_the_arguments_that_reject_needs_is_a_clash)
{
    rig *r = setup_rig(_i);
    amqp_table_entry_t type = entry_string("x-queue-type", r->type == BH_QUEUE_QUORUM ? "quorum" : "classic");
    broker_declare_queue(r->broker, r->queue, &type, 1);
    broker_publish_text(r->broker, "", r->queue, "first");
    start_by(rig_in_a_hurry(r), broker_url());
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_CLASH, r->queue);
    expect_part_at(bh_event_text(r->event), "x-d", __FILE__,
                   __LINE__); /* dead letters or delivery limit: it names one */
    broker_await_depth(r->broker, r->queue, 1);
    expect_no_event(r, BH_EVENT_CONNECTED);
    rig_free(r);
}
END_TEST

START_TEST(mode_none_asks_nothing_and_waits_for_the_work_queue)
{
    rig *r = started_rig(_i, BH_MODE_NONE);
    size_t all;
    for (int i = 0; i < 2; i++)
        expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, r->queue);
    ck_assert_uint_eq(count_present(r, &all), 0);
    rig *owner = rig_new_beside(r, "work");
    rig_start(owner);
    rig_stop_worker(owner);
    rig_await(r, BH_EVENT_CONNECTED);
    broker_publish_text(r->broker, "", r->queue, "first");
    expect_at_work(r);
    rig_free(owner);
    rig_free(r);
}
END_TEST

/* A topology that leaves the work queue to the user. */
static rig *rig_without_work_queue(int i)
{
    rig *r = setup_rig(i);
    rig_leave_work_queue(r);
    return r;
}

START_TEST(a_work_queue_that_the_user_forgot_is_missing)
{
    static const bh_mode modes[] = {BH_MODE_CREATE, BH_MODE_VERIFY};
    rig *r = rig_without_work_queue(_i);
    for (int i = 0; i < 2; i++) {
        restart(r, modes[i]);
        expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, r->queue);
        ck_assert(!broker_has_queue(r->broker, r->queue));
        expect_no_event(r, BH_EVENT_CONNECTED);
    }
    restart(r, BH_MODE_CREATE);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, r->queue);
    broker_declare_classic(r->broker, r->queue);
    rig_await(r, BH_EVENT_CONNECTED);
    broker_publish_text(r->broker, "", r->queue, "first");
    expect_at_work(r);
    rig_free(r);
}
END_TEST

START_TEST(a_work_queue_of_the_users_own_stays_as_it_is)
{
    rig *r = rig_without_work_queue(_i);
    amqp_table_entry_t arguments[] = {entry_string("x-queue-type", "classic"), entry_int("x-max-priority", 5),
                                      entry_string("x-dead-letter-exchange", "amq.fanout")};
    broker_declare_queue(r->broker, r->queue, arguments, 3);
    rig_start(r);
    rig_restart(r, BH_MODE_VERIFY);
    broker_publish_text(r->broker, "", r->queue, "first");
    expect_at_work(r);
    ck_assert_int_eq(broker_try_queue(r->broker, r->queue, arguments, 3), 0);
    rig_free(r);
}
END_TEST

START_TEST(arguments_of_the_users_own_are_on_the_work_queue)
{
    rig *r = setup_rig(_i);
    ck_assert_int_eq(add_int_argument(r->topology, bh_str("x-expires"), 3600000), BH_OK);
    rig_start(r);
    amqp_table_entry_t type = entry_string("x-queue-type", r->type == BH_QUEUE_QUORUM ? "quorum" : "classic");
    ck_assert_int_eq(broker_try_queue(r->broker, r->queue, &type, 1), AMQP_PRECONDITION_FAILED);
    rig_restart(r, BH_MODE_CREATE);
    rig_free(r);
}
END_TEST

/* ---------------------------------------------------------------------------------- definitions */

START_TEST(definitions_that_an_administrator_imports_are_complete)
{
    rig *r = setup_rig(_i);
    policy_set_max_retry_after_ms(r->policy, 500); /* rungs on demand too */
    rig_in_a_hurry(r);
    start_by(r, broker_url());
    rig_await(r, BH_EVENT_CONNECTED);
    restart(r, BH_MODE_VERIFY); /* which makes no rung later either */
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, "rungs that a handler's request for a delay can need");
    expect_told(r, "import the topology's definitions");
    ck_assert(!holds(bh_event_text(r->event), "the mode create"));
    ck_assert_int_eq(bh_topology_export(r->topology, bh_str("/")), BH_OK);
    broker_import(bh_topology_definitions(r->topology));
    rig_await(r, BH_EVENT_CONNECTED);
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    rig_settle(r, BH_OUTCOME_FAILED, "429", 300);
    rig_await_settled(r);
    expect_retried(r, 315);
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

static void remove_poor_user(void)
{
    broker_delete_user("live.poor");
}

START_TEST(a_user_who_may_not_configure_can_use_what_is_there)
{
    char url[4096];
    int first = setup_first();
    broker_add_user("live.poor", "secret", "/", "^$");
    broker_make_url(url, sizeof url, "live.poor", "secret", NULL, 0);
    rig *r = rig_in_a_hurry(setup_rig(first));
    start_by(r, url);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_ACCESS, "permission");
    size_t all;
    ck_assert_uint_eq(count_present(r, &all), 0);

    rig_restart(r, BH_MODE_CREATE);
    rig_stop_worker(r);
    rig_make_worker(r);
    rig_set(r, mode, BH_MODE_VERIFY);
    rig_connect_by(r, url);
    broker_publish_text(r->broker, "", r->queue, "first");
    expect_at_work(r);
    rig_free(r);
}
END_TEST

Suite *suite_declaring(void)
{
    Suite *suite = suite_create("declaring");
    for (int i = 0; i < setup_count; i++) {
        if (!setup_can_be_served(&setups[i]))
            continue;
        TCase *each = add_setup_case(suite, i);
        tcase_add_loop_test(each, declaring_twice_is_as_declaring_once, i, i + 1);
        tcase_add_loop_test(each, verifying_what_is_missing_tells_it_makes_nothing_and_waits_for_it, i, i + 1);
        tcase_add_loop_test(each, verifying_what_is_complete_is_content_and_changes_nothing, i, i + 1);
        if (broker_is_at_least(3, 10)) /* 3.8 takes any argument of a classic queue, and makes it */
            tcase_add_loop_test(each, verifying_makes_nothing_where_what_it_found_is_deleted_just_then, i, i + 1);
        tcase_add_loop_test(each, what_is_different_tells_the_way_out_and_changes_nothing, i, i + 1);
        tcase_add_loop_test(each, mode_none_asks_nothing_and_waits_for_the_work_queue, i, i + 1);
        tcase_add_loop_test(each, arguments_of_the_users_own_are_on_the_work_queue, i, i + 1);
        if (setups[i].strategy == BH_STRATEGY_LADDER) {
            tcase_add_loop_test(each, a_rung_with_another_ttl_is_a_clash, i, i + 1);
            tcase_add_loop_test(each, an_exchange_of_another_type_is_a_clash, i, i + 1);
            tcase_add_loop_test(each, verifying_tells_another_alternate_exchange, i, i + 1);
            tcase_add_loop_test(each, verifying_compares_names_of_any_kind, i, i + 1);
        }
        if (setups[i].publishes) {
            tcase_add_loop_test(each, a_work_queue_that_the_user_forgot_is_missing, i, i + 1);
            tcase_add_loop_test(each, a_work_queue_of_the_users_own_stays_as_it_is, i, i + 1);
        }
        if (setups[i].strategy == BH_STRATEGY_REJECT)
            tcase_add_loop_test(each, a_work_queue_without_the_arguments_that_reject_needs_is_a_clash, i, i + 1);
    }
    if (broker_can_be_controlled()) {
        int first = setup_first();
        TCase *controlled = add_case(suite, "administrators");
        tcase_add_loop_test(controlled, definitions_that_an_administrator_imports_are_complete, first, first + 1);
        add_test_with_end(suite, "a poor user", a_user_who_may_not_configure_can_use_what_is_there, remove_poor_user);
    }
    return suite;
}
