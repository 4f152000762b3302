/* Operation: deploys, stops, cut-offs, wrong settings: faults found in everyday use. */
#include "suites.h"
#include "trouble.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TAKEN = 50, FEW = 20, MIB = 1048576 };

static rig *rig_with_prefetch(int prefetch)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    rig_set(r, prefetch, prefetch);
    return r;
}

static void take_all(rig *r, bh_message **taken, int count)
{
    for (int i = 0; i < count; i++)
        expect_ok(r->worker, bh_worker_take(r->worker, &taken[i], LIMIT_MS));
}

static void settle_all(rig *r, bh_message **taken, int count, bh_outcome outcome, const char *error)
{
    for (int i = 0; i < count; i++)
        expect_ok(r->worker, settle_as(r->worker, taken[i], outcome, error, 0));
}

static void free_all(bh_message **taken, int count)
{
    for (int i = 0; i < count; i++)
        bh_message_free(taken[i]);
}

/* ------------------------------------------------------------------------------------- stopping */

START_TEST(freeing_a_worker_doubles_nothing_that_was_settled)
{
    rig *r = rig_with_prefetch(MOST_TAKEN);
    bh_message *taken[MOST_TAKEN];
    rig_start(r);
    broker_publish_numbers(r->broker, r->queue, MOST_TAKEN);
    take_all(r, taken, MOST_TAKEN);
    settle_all(r, taken, MOST_TAKEN, BH_OUTCOME_PERMANENT, "410 gone");
    rig_stop_worker(r);
    free_all(taken, MOST_TAKEN);
    broker_await_depth(r->broker, r->parked, MOST_TAKEN);
    broker_await_depth(r->broker, r->queue, 0);
    rig_free(r);
}
END_TEST

START_TEST(a_limit_of_zero_doubles_nothing_that_was_settled_and_tells_it)
{
    rig *r = rig_with_prefetch(MOST_TAKEN);
    bh_message *taken[MOST_TAKEN];
    rig_start(r);
    broker_publish_numbers(r->broker, r->queue, MOST_TAKEN);
    take_all(r, taken, MOST_TAKEN);
    settle_all(r, taken, MOST_TAKEN, BH_OUTCOME_FAILED, "507");
    expect_ok(r->worker, bh_worker_stop(r->worker, 0));
    expect_event(r, BH_EVENT_DRAINED, BH_OK, "");
    ck_assert_int_eq(rig_count_events(r, BH_EVENT_RETRIED), MOST_TAKEN);
    free_all(taken, MOST_TAKEN);
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), MOST_TAKEN);
    broker_await_depth(r->broker, r->queue, 0);
    rig_free(r);
}
END_TEST

/* A far-away broker, whose answers come late: callers settle while the worker already leaves. */
START_TEST(what_is_settled_while_the_worker_leaves_has_an_effect_or_an_error)
{
    rig *r = rig_with_prefetch(FEW);
    proxy *network = start_by_proxy(r, "");
    bh_message *taken[FEW];
    broker_publish_numbers(r->broker, r->queue, FEW);
    take_all(r, taken, FEW);
    rig_forget_events(r);
    proxy_hold_broker(network, PROXY_ALL);
    expect_ok(r->worker, bh_worker_stop(r->worker, 0));
    int settled = 0;
    for (int i = 0; i < FEW; i++) {
        bh_status status = settle_as(r->worker, taken[i], BH_OUTCOME_PERMANENT, "410 gone", 0);
        ck_assert_msg(status == BH_OK || status == BH_ERR_STATE, "settling gave %s", bh_status_name(status).data);
        settled += status == BH_OK;
        pause_ms(10);
        if (i == FEW / 2)
            proxy_hold_broker(network, PROXY_NONE);
    }
    rig_await(r, BH_EVENT_DRAINED);
    int parked = rig_count_events(r, BH_EVENT_PARKED), stale = rig_count_events(r, BH_EVENT_STALE);
    ck_assert_int_gt(settled, 0);
    ck_assert_int_eq(parked + stale, settled);
    free_all(taken, FEW);
    broker_await_depth(r->broker, r->parked, parked);
    broker_await_depth(r->broker, r->queue, FEW - parked);
    rig_free(r);
    proxy_close(network);
}
END_TEST

/* ------------------------------------------------------------------------------ two connections */

START_TEST(a_copy_goes_where_its_original_is_acknowledged)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    broker_add_vhost("elsewhere");
    char url[4096];
    proxy *network = proxy_open("127.0.0.1", broker_port(0));
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(network));
    expect_ok(r->worker, bh_worker_add_uri(r->worker, bh_str(url)));
    broker_make_url(url, sizeof url, NULL, NULL, NULL, 0);
    char *vhost = strstr(strstr(url, "://") + 3, "/");
    snprintf(vhost ? vhost : url + strlen(url), 20, "/elsewhere");
    rig_connect_by(r, url);
    broker_bind(r->broker, r->queue, r->exchange, "work.#");
    rig_publish_and_take(r);
    proxy_cut_to_broker(network, PROXY_PUBLISHER, 1);
    rig_settle(r, BH_OUTCOME_PERMANENT, "410 gone", 0);
    expect_event(r, BH_EVENT_DISCONNECTED, BH_ERR_CONNECTION, "");
    expect_bytes(bh_event_string(r->event, BH_FIELD_CONNECTION), "publish");
    expect_part(bh_event_string(r->event, BH_FIELD_HOST), "127.0.0.1:");
    rig_await(r, BH_EVENT_PARKED);
    broker_await_depth(r->broker, r->parked, 1);
    broker_await_depth(r->broker, r->queue, 0);
    rig_free(r);
    proxy_close(network);
}
END_TEST

static void name_cluster_as_it_was(void)
{
    broker_name_cluster("one-and-the-same");
}

START_TEST(connections_to_two_clusters_are_told_and_mended)
{
    name_cluster_as_it_was();
    rig *r = rig_in_a_hurry(rig_that_waits());
    proxy *network = start_by_proxy(r, "");
    broker_name_cluster("another-one");
    rig_publish_and_take(r);
    proxy_cut_to_broker(network, PROXY_PUBLISHER, 1);
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_BROKER, "\"another-one\"");
    expect_told(r, "\"one-and-the-same\"");
    expect_told(r, "give URIs of one cluster");
    rig_await(r, BH_EVENT_RETRIED); /* over both connections, made anew */
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), 1);
    rig_free(r);
    proxy_close(network);
}
END_TEST

/* --------------------------------------------------------------- copies that end the connection */

START_TEST(a_copy_that_ends_the_connection_is_tried_alone_then_left_and_its_companions_go_on)
{
    enum { COPIES = 10, LOSSES = 4 /* with the others; then three times alone */ };
    rig *r = rig_with_prefetch(COPIES);
    proxy *network = start_by_proxy(r, "");
    bh_message *taken[COPIES];
    proxy_cut_on(network, "a body that no proxy can stand");
    for (int i = 0; i < COPIES; i++)
        rig_publish(r, "work.a", i == 3 ? "a body that no proxy can stand" : "harmless");
    take_all(r, taken, COPIES);
    rig_forget_events(r);
    settle_all(r, taken, COPIES, BH_OUTCOME_FAILED, "507");
    expect_event(r, BH_EVENT_REFUSED, BH_ERR_CONNECTION, "sent alone");
    for (int i = 0; i < COPIES - 1; i++)
        rig_await(r, BH_EVENT_RETRIED);
    ck_assert_int_le(proxy_cut_count(network), LOSSES);
    ck_assert_int_eq(rig_count_events(r, BH_EVENT_DISCONNECTED), proxy_cut_count(network));
    free_all(taken, COPIES);
    rig_publish(r, "work.a", "harmless"); /* and all goes on */
    rig_take(r, "harmless");
    rig_fail(r, "507");
    rig_stop_worker(r);
    broker_await_depth(r->broker, r->queue, 1);
    int waiting =
        broker_depth(r->broker, rig_rung(r, WAITING_MS)); /* copies published just before the first cut are there */
    ck_assert_int_ge(waiting, COPIES);                    /* twice: their confirms were lost */
    ck_assert_int_lt(waiting, 2 * COPIES);
    rig_free(r);
    proxy_close(network);
}
END_TEST

START_TEST(the_back_off_grows_while_connections_open_and_do_not_work)
{
    enum { LOSSES = 6, LONGEST_MS = 2000 };
    rig *r = rig_that_waits();
    rig_prepare(r);
    rig_make_worker(r);
    proxy *network = proxy_open("127.0.0.1", broker_port(0));
    char url[4096];
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(network));
    proxy_cut_on(network, "backhop-"); /* a consumer tag: it connects, declares, and is cut when it consumes */
    start_by(r, url);
    int64_t longest_ms = 0;
    for (int i = 0; i < LOSSES; i++) {
        rig_await(r, BH_EVENT_DISCONNECTED);
        if (bh_event_int(r->event, BH_FIELD_DELAY) > longest_ms)
            longest_ms = bh_event_int(r->event, BH_FIELD_DELAY);
    }
    ck_assert_int_gt(longest_ms, 500);
    rig_free(r);
    proxy_close(network);
}
END_TEST

/* -------------------------------------------------------------------------------------- remains */

START_TEST(messages_that_are_left_keep_no_bodies)
{
    enum { LEFT = 40, PREFETCH = 5 };
    static const char body[MIB];
    rig *r = rig_with_prefetch(PREFETCH);
    rig_start(r);
    rig_forget_events(r);
    for (int i = 0; i < LEFT; i++)
        broker_publish_filled(r->broker, "", r->queue, 0, (bh_bytes){body, sizeof body});
    for (int i = 0; i < LEFT; i++) {
        rig_take(r, NULL);
        rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
        rig_await(r, BH_EVENT_REFUSED);
    }
    struct mallinfo2 memory = mallinfo2();
    ck_assert_msg(memory.uordblks + memory.hblkhd < 20 * (size_t)MIB, "%zu bytes are in use",
                  memory.uordblks + memory.hblkhd);
    rig_stop_worker(r);
    broker_await_depth(r->broker, r->queue, LEFT);
    rig_free(r);
}
END_TEST

START_TEST(without_random_bytes_a_message_is_settled_later_and_not_requeued)
{
    rig *r = rig_with_prefetch(FEW);
    bh_message *taken[FEW];
    rig_start(r);
    broker_publish_numbers(r->broker, r->queue, FEW);
    take_all(r, taken, FEW);
    take_random_bytes_away(1);
    settle_all(r, taken, FEW, BH_OUTCOME_FAILED, "507");
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_STATE, "random bytes");
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    take_random_bytes_away(0);
    for (int i = 0; i < FEW; i++)
        rig_await(r, BH_EVENT_RETRIED);
    free_all(taken, FEW);
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), FEW);
    broker_await_depth(r->broker, r->queue, 0);
    rig_free(r);
}
END_TEST

START_TEST(a_worker_with_a_policy_that_did_not_build_the_topology_is_refused)
{
    rig *r = rig_that_waits();
    bh_policy *other;
    bh_worker *none = NULL;
    rig_prepare(r);
    ck_assert_int_eq(bh_policy_new(&other), BH_OK);
    ck_assert_int_eq(bh_worker_new(&none, other, r->topology), BH_ERR_FOREIGN_POLICY);
    ck_assert_ptr_null(none);
    bh_policy_free(other);
    rig_free(r);
}
END_TEST

/* --------------------------------------------------------------------------------- failing fast */

static bh_outcome succeed(bh_worker *worker, bh_message *taken, void *data)
{
    (void)worker;
    (void)taken;
    (void)data;
    return BH_OUTCOME_OK;
}

/* Runs a worker that was never ready by this URL, until it gives up. */
static void expect_given_up(rig *r, const char *url, bh_status status, const char *part)
{
    expect_ok(r->worker, bh_worker_add_uri(r->worker, bh_str(url)));
    expect_status(r->worker, bh_worker_run(r->worker, succeed, NULL, NULL), status);
    expect_part(bh_worker_error(r->worker), part);
}

START_TEST(a_wrong_password_ends_the_first_run)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    char url[4096];
    broker_make_url(url, sizeof url, "guest", "wrong", NULL, 0);
    expect_given_up(r, url, BH_ERR_ACCESS, "check user, password, vhost and permissions");
    rig_free(r);
}
END_TEST

START_TEST(a_missing_vhost_ends_the_first_run)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    char url[4096];
    broker_make_url(url, sizeof url, NULL, NULL, NULL, 0);
    char *vhost = strstr(strstr(url, "://") + 3, "/");
    snprintf(vhost ? vhost : url + strlen(url), 20, "/nowhere");
    expect_given_up(r, url, BH_ERR_ACCESS, "nowhere");
    rig_free(r);
}
END_TEST

START_TEST(a_missing_work_queue_that_nobody_declares_ends_the_first_run)
{
    rig *r = rig_that_waits();
    rig_leave_work_queue(r);
    rig_in_a_hurry(r);
    expect_given_up(r, broker_url(), BH_ERR_MISSING, "does not exist");
    rig_free(r);
}
END_TEST

START_TEST(a_clash_ends_the_first_run)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    broker_declare_classic(r->broker, rig_rung(r, WAITING_MS));
    expect_given_up(r, broker_url(), BH_ERR_CLASH, "exists with");
    rig_free(r);
}
END_TEST

START_TEST(W3_a_stream_as_a_work_queue_ends_the_first_run)
{
    amqp_table_entry_t type = entry_string("x-queue-type", "stream");
    rig *r = setup_rig(setup_first());
    rig_leave_work_queue(r);
    broker_declare_queue(r->broker, r->queue, &type, 1);
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_prepare(r);
    for (int mode = BH_MODE_CREATE; mode <= BH_MODE_NONE; mode++) { /* the first one declares all */
        rig_make_worker(r);
        rig_set(r, mode, (bh_mode)mode);
        expect_given_up(r, broker_url(), BH_ERR_CLASH, "is a stream");
        expect_part(bh_worker_error(r->worker), "use a quorum queue");
        rig_stop_worker(r);
    }
    rig_free(r);
}
END_TEST

START_TEST(W3_a_worker_whose_work_queue_became_a_stream_emits_that_and_goes_on_with_the_next_queue)
{
    rig *r = setup_rig(setup_first());
    rig_leave_work_queue(r);
    broker_declare_quorum(r->broker, r->queue);
    rig_start(rig_in_a_hurry(r));
    broker_delete_queue(r->broker, r->queue);
    rig_await(r, BH_EVENT_CANCELLED);
    amqp_table_entry_t type = entry_string("x-queue-type", "stream");
    broker_declare_queue(r->broker, r->queue, &type, 1);
    do
        rig_await(r, BH_EVENT_UNAVAILABLE);
    while (bh_event_int(r->event, BH_FIELD_STATUS) != BH_ERR_CLASH);
    expect_told(r, "is a stream");
    ck_assert_int_eq(bh_event_level(r->event), BH_LEVEL_ERROR);
    broker_delete_queue(r->broker, r->queue);
    broker_declare_quorum(r->broker, r->queue);
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(a_worker_that_is_started_to_fail_fast_says_why_with_its_last_event)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    char url[4096];
    broker_make_url(url, sizeof url, "guest", "wrong", NULL, 0);
    rig_expect_refused(r, fail_fast, 2, BH_ERR_ARGUMENT);
    rig_set(r, fail_fast, 1);
    start_by(r, url);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_ACCESS, "guest");
    expect_bytes(bh_event_string(r->event, BH_FIELD_CONNECTION), "consume");
    expect_event(r, BH_EVENT_DRAINED, BH_ERR_ACCESS, "check user, password");
    rig_free(r);
}
END_TEST

START_TEST(a_broker_that_is_not_up_yet_is_waited_for)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    rig_set(r, fail_fast, 1);
    start_by(r, "amqp://guest:guest@127.0.0.1:1/");
    for (int i = 0; i < 5; i++)
        expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_CONNECTION, "");
    expect_no_event(r, BH_EVENT_DRAINED);
    rig_free(r);
}
END_TEST

Suite *suite_operation(void)
{
    Suite *suite = suite_create("operation");
    TCase *stopping = add_case(suite, "stopping");
    tcase_add_test(stopping, freeing_a_worker_doubles_nothing_that_was_settled);
    tcase_add_test(stopping, a_limit_of_zero_doubles_nothing_that_was_settled_and_tells_it);
    tcase_add_test(stopping, what_is_settled_while_the_worker_leaves_has_an_effect_or_an_error);
    TCase *copies = add_case(suite, "copies that end the connection");
    tcase_add_test(copies, a_copy_that_ends_the_connection_is_tried_alone_then_left_and_its_companions_go_on);
    tcase_add_test(long_case(add_case(suite, "back-off")), the_back_off_grows_while_connections_open_and_do_not_work);
    TCase *left = add_case(suite, "left");
    tcase_add_test(left, messages_that_are_left_keep_no_bodies);
    tcase_add_test(left, without_random_bytes_a_message_is_settled_later_and_not_requeued);
    tcase_add_test(left, a_worker_with_a_policy_that_did_not_build_the_topology_is_refused);
    TCase *fast = add_case(suite, "failing fast");
    tcase_add_test(fast, a_wrong_password_ends_the_first_run);
    tcase_add_test(fast, a_missing_work_queue_that_nobody_declares_ends_the_first_run);
    tcase_add_test(fast, a_clash_ends_the_first_run);
    tcase_add_test(fast, a_worker_that_is_started_to_fail_fast_says_why_with_its_last_event);
    tcase_add_test(fast, a_missing_vhost_ends_the_first_run);
    if (broker_is_at_least(3, 10)) { /* 3.8 has no streams, nor has the model of `make test` */
        TCase *streams = long_case(add_case(suite, "streams"));
        tcase_add_test(streams, W3_a_stream_as_a_work_queue_ends_the_first_run);
        tcase_add_test(streams,
                       W3_a_worker_whose_work_queue_became_a_stream_emits_that_and_goes_on_with_the_next_queue);
    }
    tcase_add_test(fast, a_broker_that_is_not_up_yet_is_waited_for);
    if (broker_can_be_controlled()) {
        TCase *two = add_case(suite, "two connections");
        tcase_add_test(two, a_copy_goes_where_its_original_is_acknowledged);
        add_test_with_end(suite, "two clusters", connections_to_two_clusters_are_told_and_mended,
                          name_cluster_as_it_was);
    }
    return suite;
}
