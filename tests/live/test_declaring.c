#include "setups.h"
#include "suites.h"

#include <stdio.h>
#include <string.h>

/* How many of the topology's exchanges and queues are there. */
static size_t count_present(const rig *r, size_t *all)
{
    size_t present = 0;
    *all = 0;
    for (size_t i = 0; i < bh_topology_count(r->topology); i++) {
        const char *name = bh_topology_name(r->topology, i).data;
        bh_declaration declaration = bh_topology_declaration(r->topology, i);
        if (declaration == BH_DECLARE_BINDING)
            continue;
        ++*all;
        present += (size_t)(declaration == BH_DECLARE_QUEUE ? broker_has_queue(r->broker, name)
                                                            : broker_has_exchange(r->broker, name));
    }
    return present;
}

static rig *connected_rig(int i)
{
    rig *r = setup_rig(i);
    rig_prepare(r);
    rig_make_worker(r);
    rig_connect(r);
    return r;
}

START_TEST(declaring_twice_is_as_declaring_once)
{
    rig *r = connected_rig(_i);
    size_t all;
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    ck_assert_uint_eq(count_present(r, &all), all);
    broker_publish_text(r->broker, "", r->queue, "first");
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    rig_connect(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    rig_take(r, "first");
    rig_fail(r, "507");
    rig_take(r, "first");
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(verifying_what_is_missing_tells_it_and_makes_nothing)
{
    rig *r = connected_rig(_i);
    size_t all;
    expect_status(r->worker, bh_worker_declare(r->worker, BH_MODE_VERIFY), BH_ERR_MISSING);
    expect_error(r->worker, r->queue);
    expect_error(r->worker, r->parked);
    expect_error(r->worker, "BH_MODE_CREATE");
    ck_assert_uint_eq(count_present(r, &all), 0);

    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    broker_delete_queue(r->broker, r->parked);
    expect_status(r->worker, bh_worker_declare(r->worker, BH_MODE_VERIFY), BH_ERR_MISSING);
    expect_error(r->worker, r->parked);
    ck_assert(!broker_has_queue(r->broker, r->parked));
    rig_free(r);
}
END_TEST

START_TEST(verifying_what_is_complete_is_content_and_changes_nothing)
{
    rig *r = connected_rig(_i);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    broker_publish_text(r->broker, "", r->queue, "first");
    broker_publish_text(r->broker, "", r->parked, "parked");
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_VERIFY));
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 1);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 1);
    rig_take(r, "first");
    rig_fail(r, "507");
    rig_take(r, "first");
    rig_succeed(r);
    rig_free(r);
}
END_TEST

/* A parked queue of the other type, where the topology wants its own. */
START_TEST(verifying_what_is_different_tells_the_way_out_and_changes_nothing)
{
    rig *r = connected_rig(_i);
    const char *is = r->type == BH_QUEUE_QUORUM ? "classic" : "quorum",
               *needed = r->type == BH_QUEUE_QUORUM ? "quorum" : "classic";
    amqp_table_entry_t type = entry_string("x-queue-type", is);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    broker_delete_queue(r->broker, r->parked);
    broker_declare_queue(r->broker, r->parked, &type, 1);
    broker_publish_text(r->broker, "", r->parked, "parked");
    for (int i = 0; i < 2; i++) {
        expect_status(r->worker, bh_worker_declare(r->worker, i == 0 ? BH_MODE_VERIFY : BH_MODE_CREATE), BH_ERR_CLASH);
        expect_error(r->worker, r->parked);
        expect_error(r->worker, "x-queue-type");
        expect_error(r->worker, is);
        expect_error(r->worker, needed);
        expect_error(r->worker, "delete it");
        ck_assert_int_eq(broker_depth(r->broker, r->parked), 1);
    }
    broker_delete_queue(r->broker, r->parked);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_VERIFY));
    rig_free(r);
}
END_TEST

START_TEST(a_rung_with_another_ttl_is_a_clash)
{
    rig *r = connected_rig(_i);
    amqp_table_entry_t arguments[] = {
        entry_string("x-queue-type", r->type == BH_QUEUE_QUORUM ? "quorum" : "classic"), entry_int("x-message-ttl", 99),
        entry_string("x-dead-letter-exchange", rig_name(r, "return")),
        entry_string("x-dead-letter-strategy", "at-least-once"), entry_string("x-overflow", "reject-publish")};
    broker_declare_queue(r->broker, rig_rung(r, RIG_DELAY_MS), arguments, r->type == BH_QUEUE_QUORUM ? 5 : 3);
    expect_status(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE), BH_ERR_CLASH);
    expect_error(r->worker, rig_rung(r, RIG_DELAY_MS));
    expect_error(r->worker, "x-message-ttl = 99");
    expect_error(r->worker, "50 is needed");
    expect_error(r->worker, "bh_topology_set_namespace");
    rig_free(r);
}
END_TEST

START_TEST(an_exchange_of_another_type_is_a_clash)
{
    rig *r = connected_rig(_i);
    broker_declare_exchange(r->broker, rig_name(r, "return"), "topic");
    expect_status(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE), BH_ERR_CLASH);
    expect_error(r->worker, rig_name(r, "return"));
    expect_error(r->worker, "topic");
    expect_error(r->worker, "direct");
    rig_free(r);
}
END_TEST

START_TEST(a_work_queue_without_the_arguments_that_reject_needs_is_a_clash)
{
    rig *r = connected_rig(_i);
    amqp_table_entry_t type = entry_string("x-queue-type", r->type == BH_QUEUE_QUORUM ? "quorum" : "classic");
    broker_declare_queue(r->broker, r->queue, &type, 1);
    broker_publish_text(r->broker, "", r->queue, "first");
    expect_status(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE), BH_ERR_CLASH);
    expect_error(r->worker, r->queue);
    expect_error(r->worker, "x-d"); /* dead letters or delivery limit: the broker names one */
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 1);
    rig_free(r);
}
END_TEST

START_TEST(mode_none_asks_nothing)
{
    rig *r = connected_rig(_i);
    size_t all;
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_NONE));
    ck_assert_uint_eq(count_present(r, &all), 0);
    expect_status(r->worker, bh_worker_take(r->worker, 100), BH_ERR_MISSING);
    expect_error(r->worker, r->queue);
    rig_free(r);
}
END_TEST

/* A topology that leaves the work queue to the user. */
static rig *rig_without_work_queue(int i)
{
    rig *r = setup_rig(i);
    rig_leave_work_queue(r);
    rig_prepare(r);
    rig_make_worker(r);
    rig_connect(r);
    return r;
}

START_TEST(a_work_queue_that_the_user_forgot_is_missing)
{
    rig *r = rig_without_work_queue(_i);
    expect_status(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE), BH_ERR_MISSING);
    expect_error(r->worker, r->queue);
    ck_assert(!broker_has_queue(r->broker, r->queue));
    expect_status(r->worker, bh_worker_declare(r->worker, BH_MODE_VERIFY), BH_ERR_MISSING);
    expect_error(r->worker, r->queue);
    rig_free(r);
}
END_TEST

START_TEST(a_work_queue_of_the_users_own_stays_as_it_is)
{
    rig *r = rig_without_work_queue(_i);
    amqp_table_entry_t arguments[] = {entry_string("x-queue-type", "classic"), entry_int("x-max-priority", 5),
                                      entry_string("x-dead-letter-exchange", "amq.fanout")};
    broker_declare_queue(r->broker, r->queue, arguments, 3);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_VERIFY));
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    rig_fail(r, "507");
    rig_take(r, "first");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 2);
    rig_succeed(r);
    ck_assert_int_eq(broker_try_queue(r->broker, r->queue, arguments, 3), 0);
    rig_free(r);
}
END_TEST

START_TEST(arguments_of_the_users_own_are_on_the_work_queue)
{
    rig *r = setup_rig(_i);
    ck_assert_int_eq(bh_topology_add_work_queue_int(r->topology, bh_str("x-expires"), 3600000), BH_OK);
    rig_start(r);
    amqp_table_entry_t type = entry_string("x-queue-type", r->type == BH_QUEUE_QUORUM ? "quorum" : "classic");
    ck_assert_int_eq(broker_try_queue(r->broker, r->queue, &type, 1), AMQP_PRECONDITION_FAILED);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    rig_free(r);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ definitions */

START_TEST(definitions_that_an_administrator_imports_are_complete)
{
    rig *r = setup_rig(_i);
    bh_policy_set_max_retry_after_ms(r->policy, 500); /* rungs on demand too */
    rig_prepare(r);
    ck_assert_int_eq(bh_topology_export(r->topology, bh_str("/")), BH_OK);
    broker_import(bh_topology_definitions(r->topology));
    rig_make_worker(r);
    rig_connect(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_VERIFY));
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    expect_ok(r->worker, bh_worker_settle(r->worker, BH_OUTCOME_FAILED, bh_str("429"), 300));
    ck_assert_int_eq(bh_worker_last_delay_ms(r->worker), 315);
    rig_take(r, "first");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 2);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(a_user_who_may_not_configure_can_use_what_is_there)
{
    char url[4096];
    rig *r = setup_rig(_i);
    broker_ctl("rabbitmqctl add_user live.poor secret");
    broker_ctl("rabbitmqctl set_permissions live.poor ^$ .* .*");
    broker_make_url(url, sizeof url, "live.poor", "secret", NULL, 0);
    rig_prepare(r);
    rig_make_worker(r);
    expect_ok(r->worker, bh_worker_connect(r->worker, bh_str(url)));
    expect_status(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE), BH_ERR_ACCESS);
    expect_error(r->worker, "permission");
    size_t all;
    ck_assert_uint_eq(count_present(r, &all), 0);

    rig_connect(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    expect_ok(r->worker, bh_worker_connect(r->worker, bh_str(url)));
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_VERIFY));
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    rig_fail(r, "507");
    rig_take(r, "first");
    rig_succeed(r);
    rig_stop_worker(r);
    broker_ctl("rabbitmqctl delete_user live.poor");
    rig_free(r);
}
END_TEST

Suite *suite_declaring(void)
{
    Suite *suite = suite_create("declaring");
    for (int i = 0; i < setup_count; i++) {
        if (!setup_can_be_served(&setups[i]))
            continue;
        TCase *each = add_case(suite, setups[i].name);
        tcase_add_loop_test(each, declaring_twice_is_as_declaring_once, i, i + 1);
        tcase_add_loop_test(each, verifying_what_is_missing_tells_it_and_makes_nothing, i, i + 1);
        tcase_add_loop_test(each, verifying_what_is_complete_is_content_and_changes_nothing, i, i + 1);
        tcase_add_loop_test(each, verifying_what_is_different_tells_the_way_out_and_changes_nothing, i, i + 1);
        tcase_add_loop_test(each, mode_none_asks_nothing, i, i + 1);
        tcase_add_loop_test(each, arguments_of_the_users_own_are_on_the_work_queue, i, i + 1);
        if (setups[i].strategy == BH_STRATEGY_LADDER) {
            tcase_add_loop_test(each, a_rung_with_another_ttl_is_a_clash, i, i + 1);
            tcase_add_loop_test(each, an_exchange_of_another_type_is_a_clash, i, i + 1);
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
        tcase_add_loop_test(controlled, a_user_who_may_not_configure_can_use_what_is_there, first, first + 1);
    }
    return suite;
}
