#include "proxy.h"
#include "setups.h"
#include "suites.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* The exchange, and the queue, where the rig's messages wait. */
static const char *waiting(const rig *r)
{
    return bh_topology_strategy(r->topology) == BH_STRATEGY_LADDER ? rig_rung(r, RIG_DELAY_MS)
                                                                   : rig_name(r, "work.wait");
}

static void publish_and_take(rig *r)
{
    rig_publish(r, "work.a", "first");
    rig_take(r, "first");
}

static bh_status try_to_fail(rig *r)
{
    return bh_worker_settle(r->worker, BH_OUTCOME_FAILED, bh_str("507"), 0);
}

static bh_status try_to_park(rig *r)
{
    return bh_worker_settle(r->worker, BH_OUTCOME_PERMANENT, bh_str("no"), 0);
}

static void expect_back(rig *r)
{
    rig_take(r, "first");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 2);
    rig_succeed(r);
}

/* The worker ends, and the message is in the work queue as it was published. */
static void expect_original(rig *r)
{
    message original;
    rig_stop_worker(r);
    broker_get(r->broker, r->queue, &original);
    expect_bytes(original.body, "first");
    ck_assert_str_eq(original.exchange, r->exchange);
    ck_assert_str_eq(original.routing_key, "work.a");
    ck_assert_uint_eq(message_header(&original, "backhop-attempts").size, 0);
    broker_ack(r->broker, &original);
    message_free(&original);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
}

/* ---------------------------------------------------------------------------------------------- returned and nacked */

START_TEST(a_returned_copy_leaves_the_original_until_the_topology_is_whole)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_NONE));
    publish_and_take(r);
    broker_unbind(r->broker, waiting(r), waiting(r), "");
    for (int i = 0; i < 2; i++) {
        expect_status(r->worker, try_to_fail(r), BH_ERR_PUBLISH);
        expect_error(r->worker, waiting(r));
        expect_bytes(bh_worker_body(r->worker), "first");
        ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
    }
    broker_bind(r->broker, waiting(r), waiting(r), "");
    expect_ok(r->worker, try_to_fail(r));
    expect_back(r);
    rig_free(r);
}
END_TEST

START_TEST(a_returned_copy_leaves_the_original_to_the_next_worker)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_NONE));
    publish_and_take(r);
    broker_delete_queue(r->broker, waiting(r));
    expect_status(r->worker, try_to_fail(r), BH_ERR_PUBLISH);
    expect_original(r);
    rig_free(r);
}
END_TEST

START_TEST(a_worker_that_creates_repairs_what_is_missing_and_goes_on)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    publish_and_take(r);
    broker_delete_queue(r->broker, waiting(r));
    expect_status(r->worker, try_to_fail(r), BH_ERR_PUBLISH);
    expect_ok(r->worker, try_to_fail(r));
    expect_back(r);

    publish_and_take(r);
    broker_delete_exchange(r->broker, waiting(r));
    expect_status(r->worker, try_to_fail(r), BH_ERR_PUBLISH);
    expect_ok(r->worker, try_to_fail(r));
    expect_back(r);

    publish_and_take(r);
    broker_delete_queue(r->broker, r->parked);
    expect_status(r->worker, try_to_park(r), BH_ERR_PUBLISH);
    expect_ok(r->worker, try_to_park(r));
    broker_await_depth(r->broker, r->parked, 1);
    rig_free(r);
}
END_TEST

START_TEST(a_wait_exchange_that_is_gone_leaves_the_original)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_NONE));
    publish_and_take(r);
    broker_delete_exchange(r->broker, waiting(r));
    for (int i = 0; i < 2; i++) {
        bh_status status = try_to_fail(r);
        ck_assert_msg(status == BH_ERR_MISSING || status == BH_ERR_PUBLISH, "%s", bh_status_name(status).data);
        expect_error(r->worker, waiting(r));
        expect_bytes(bh_worker_body(r->worker), "first");
    }
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    expect_ok(r->worker, try_to_fail(r));
    expect_back(r);

    publish_and_take(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_NONE));
    broker_delete_exchange(r->broker, waiting(r));
    ck_assert_int_ne(try_to_fail(r), BH_OK);
    expect_original(r);
    rig_free(r);
}
END_TEST

START_TEST(a_parked_queue_that_is_gone_leaves_the_original)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_NONE));
    publish_and_take(r);
    broker_delete_queue(r->broker, r->parked);
    expect_status(r->worker, try_to_park(r), BH_ERR_PUBLISH);
    expect_error(r->worker, r->parked);
    expect_original(r);
    rig_free(r);
}
END_TEST

/* Replaces a queue by one that holds one message, and has it, and refuses more. */
static void replace_by_full(rig *r, const char *queue, const char *exchange)
{
    amqp_table_entry_t arguments[] = {entry_string("x-queue-type", "classic"), entry_int("x-max-length", 1),
                                      entry_string("x-overflow", "reject-publish")};
    broker_delete_queue(r->broker, queue);
    broker_declare_queue(r->broker, queue, arguments, 3);
    if (exchange)
        broker_bind(r->broker, queue, exchange, "");
    broker_publish_text(r->broker, "", queue, "a message before");
    ck_assert_int_eq(broker_depth(r->broker, queue), 1);
}

START_TEST(a_full_wait_queue_leaves_the_original)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_NONE));
    publish_and_take(r);
    replace_by_full(r, waiting(r), waiting(r));
    for (int i = 0; i < 2; i++) {
        expect_status(r->worker, try_to_fail(r), BH_ERR_PUBLISH);
        expect_bytes(bh_worker_body(r->worker), "first");
    }
    broker_delete_queue(r->broker, waiting(r));
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    expect_ok(r->worker, try_to_fail(r));
    expect_back(r);

    publish_and_take(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_NONE));
    replace_by_full(r, waiting(r), waiting(r));
    expect_status(r->worker, try_to_fail(r), BH_ERR_PUBLISH);
    ck_assert_int_eq(broker_depth(r->broker, waiting(r)), 1);
    expect_original(r);
    rig_free(r);
}
END_TEST

START_TEST(a_full_parked_queue_leaves_the_original)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_NONE));
    publish_and_take(r);
    replace_by_full(r, r->parked, NULL);
    expect_status(r->worker, try_to_park(r), BH_ERR_PUBLISH);
    expect_bytes(bh_worker_body(r->worker), "first");
    broker_purge(r->broker, r->parked);
    expect_ok(r->worker, try_to_park(r));
    broker_await_depth(r->broker, r->parked, 1);

    publish_and_take(r);
    expect_status(r->worker, try_to_park(r), BH_ERR_PUBLISH);
    expect_original(r);
    rig_free(r);
}
END_TEST

/* ---------------------------------------------------------------------------------------------- work queues that go */

static void fail_next(rig *r)
{
    rig_take(r, "first");
    rig_fail(r, "507");
}

START_TEST(messages_of_a_deleted_work_queue_end_in_unroutable_and_hold_nobody_up)
{
    enum { COUNT = 5, DELAY = 500 };
    rig *r = setup_rig(_i);
    bh_policy_set_initial_ms(r->policy, DELAY);
    rig_start(r);
    rig *other = rig_new_beside(r, "other");
    bh_policy_set_initial_ms(other->policy, DELAY);
    rig_start(other);
    for (int i = 0; i < COUNT; i++)
        rig_publish(r, "work.a", "first"); /* to both */
    for (int i = 0; i < COUNT; i++)
        fail_next(r);
    int64_t failed_at = 0;
    for (int i = 0; i < COUNT; i++) {
        rig_take(other, "first");
        if (i == 0)
            failed_at = now_ms();
        rig_fail(other, "507");
    }
    rig_stop_worker(r);
    broker_delete_queue(r->broker, r->queue);
    for (int i = 0; i < COUNT; i++) {
        rig_take(other, "first");
        ck_assert_int_eq(bh_worker_attempt(other->worker), 2);
        expect_waited(failed_at, DELAY);
        rig_succeed(other);
    }
    const char *unroutable = rig_name(r, "unroutable");
    broker_await_depth(r->broker, unroutable, COUNT);
    message found;
    broker_get(r->broker, unroutable, &found);
    ck_assert_str_eq(found.routing_key, "work.a");
    expect_bytes(found.body, "first");
    if (setups[_i].publishes) {
        expect_history(&found, r, 1, "507");
        expect_bytes(message_string(&found, "backhop-exchange"), r->exchange);
    }
    message_free(&found);
    rig_free(other);
    rig_free(r);
}
END_TEST

START_TEST(a_message_in_hand_survives_its_queue)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    publish_and_take(r);
    broker_delete_queue(r->broker, r->queue);
    expect_ok(r->worker, try_to_fail(r));
    broker_await_depth(r->broker, rig_name(r, "unroutable"), 1);
    rig_free(r);
}
END_TEST

/* ---------------------------------------------------------------------------------------------- networks and alarms */

static proxy *connect_by_proxy(rig *r)
{
    proxy *network = proxy_open("127.0.0.1", broker_port(0));
    char url[4096];
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(network));
    expect_ok(r->worker, bh_worker_connect(r->worker, bh_str(url)));
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    return network;
}

/* Takes and acknowledges all copies and originals of the one message; how many there were of each. */
static void take_all(rig *r, int *originals, int *copies)
{
    *originals = *copies = 0;
    while (*originals + *copies == 0 || bh_worker_take(r->worker, 500) == BH_OK) {
        if (*originals + *copies == 0)
            rig_take(r, NULL);
        expect_bytes(bh_worker_body(r->worker), "first");
        int64_t attempt = bh_worker_attempt(r->worker);
        ck_assert(attempt == 1 || attempt == 2);
        ++*(attempt == 1 ? originals : copies);
        rig_succeed(r);
    }
}

START_TEST(a_copy_that_is_not_confirmed_in_time_leaves_the_original)
{
    enum { TIMEOUT = 400 };
    rig *r = setup_rig(_i);
    rig_start(r);
    expect_ok(r->worker, bh_worker_set_confirm_timeout_ms(r->worker, TIMEOUT));
    proxy *network = connect_by_proxy(r);
    publish_and_take(r);
    proxy_hold_broker(network, PROXY_PUBLISHER);
    int64_t start = now_ms();
    expect_status(r->worker, try_to_fail(r), BH_ERR_PUBLISH);
    expect_waited(start, TIMEOUT);
    expect_bytes(bh_worker_body(r->worker), "first");
    proxy_hold_broker(network, PROXY_NONE);
    expect_ok(r->worker, try_to_fail(r));
    int originals, copies;
    take_all(r, &originals, &copies);
    ck_assert_int_eq(originals, 0);
    ck_assert_msg(copies == 1 || copies == 2, "%d copies", copies); /* the first one had reached the broker */
    rig_free(r);
    proxy_close(network);
}
END_TEST

static void *cut_soon(void *network)
{
    pause_ms(200);
    proxy_cut(network);
    proxy_hold_broker(network, PROXY_NONE);
    return NULL;
}

START_TEST(a_connection_lost_before_the_confirm_loses_nothing)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    proxy *network = connect_by_proxy(r);
    publish_and_take(r);
    proxy_hold_broker(network, PROXY_PUBLISHER);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, cut_soon, network), 0);
    bh_status status = try_to_fail(r);
    pthread_join(thread, NULL);
    ck_assert_msg(status == BH_ERR_PUBLISH || status == BH_ERR_CONNECTION, "%s", bh_status_name(status).data);
    expect_ok(r->worker, bh_worker_connect(r->worker, bh_str(broker_url())));
    int originals, copies;
    take_all(r, &originals, &copies);
    ck_assert_int_eq(originals, 1);
    ck_assert_int_le(copies, 1); /* the duplicate that at-least-once allows */
    rig_free(r);
    proxy_close(network);
}
END_TEST

START_TEST(a_connection_lost_while_the_handler_works_loses_and_doubles_nothing)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    proxy *network = connect_by_proxy(r);
    publish_and_take(r);
    proxy_cut(network);
    expect_status(r->worker, try_to_fail(r), BH_ERR_CONNECTION);
    expect_ok(r->worker, bh_worker_connect(r->worker, bh_str(broker_url())));
    int originals, copies;
    take_all(r, &originals, &copies);
    ck_assert_int_eq(originals, 1);
    ck_assert_int_eq(copies, 0); /* the broker was asked first */
    rig_free(r);
    proxy_close(network);
}
END_TEST

static void end_alarm(void)
{
    broker_ctl("rabbitmqctl set_vm_memory_high_watermark 0.6");
}

START_TEST(a_broker_that_blocks_publishers_leaves_the_original)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    expect_ok(r->worker, bh_worker_set_confirm_timeout_ms(r->worker, 500));
    publish_and_take(r);
    atexit(end_alarm); /* also where the test fails */
    broker_ctl("rabbitmqctl set_vm_memory_high_watermark 0");
    expect_status(r->worker, try_to_fail(r), BH_ERR_PUBLISH);
    expect_status(r->worker, try_to_fail(r), BH_ERR_PUBLISH);
    expect_bytes(bh_worker_body(r->worker), "first");
    end_alarm();
    bh_status status = BH_ERR_PUBLISH;
    for (int64_t limit = now_ms() + LIMIT_MS; status == BH_ERR_PUBLISH && now_ms() < limit;)
        status = try_to_fail(r);
    expect_status(r->worker, status, BH_OK);
    int originals, copies;
    take_all(r, &originals, &copies);
    ck_assert_int_eq(originals, 0);
    ck_assert_int_eq(copies, 1); /* what was sent once is not sent again */
    rig_free(r);
}
END_TEST

/* Quorum queues younger than half a second may lose what they hold when the broker is killed: Ra writes its list of
 * them every 500 ms. */
enum { SETTLED_MS = 1500 };

/* The messages come back, each with its second attempt. Classic queues write down late what was acknowledged, so
 * originals may come again: a duplicate, which at-least-once allows. */
static void expect_all_back(rig *r, const char *name, const int64_t *failed_at, int64_t delay, int count)
{
    int back = 0, seen[64] = {0};
    while (back < count) {
        bh_status status = bh_worker_take(r->worker, LIMIT_MS);
        ck_assert_msg(status == BH_OK, "%s: after %d of %d messages: %s", name, back, count,
                      bh_worker_error(r->worker).data);
        int id = atoi(bh_worker_body(r->worker).data);
        expect_bytes(bh_worker_routing_key(r->worker), "work.a");
        if (bh_worker_attempt(r->worker) == 1) {
            ck_assert_msg(r->type == BH_QUEUE_CLASSIC, "%s: %d comes as if it had not failed", name, id);
        } else {
            ck_assert_int_eq(bh_worker_attempt(r->worker), 2);
            ck_assert_msg(now_ms() - failed_at[id] + 1 >= delay, "%s: %d came back too early", name, id);
            ck_assert_msg(seen[id]++ == 0, "%s: %d came back twice", name, id);
            back++;
        }
        rig_succeed(r);
    }
}

START_TEST(messages_wait_through_the_death_of_the_broker)
{
    enum { COUNT = 20, DELAY = 1500, MOST_RIGS = 8 };
    rig *rigs[MOST_RIGS];
    const char *names[MOST_RIGS];
    int64_t failed_at[MOST_RIGS][COUNT];
    int count = 0;
    for (int i = 0; i < setup_count; i++) {
        int is_unconfirmed = setups[i].strategy == BH_STRATEGY_REJECT && setups[i].type == BH_QUEUE_CLASSIC;
        if (!setup_can_be_served(&setups[i]) || is_unconfirmed || setups[i].strategy == BH_STRATEGY_DELAYED_EXCHANGE)
            continue; /* classic queues dead-letter at most once: all of it may be lost */
        rigs[count] = setup_rig(i);
        names[count] = setups[i].name;
        bh_policy_set_initial_ms(rigs[count]->policy, DELAY);
        rig_start(rigs[count++]);
    }
    pause_ms(SETTLED_MS);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < COUNT; j++) {
            char body[16];
            snprintf(body, sizeof body, "%d", j);
            rig_publish(rigs[i], "work.a", body);
        }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < COUNT; j++) {
            rig_take(rigs[i], NULL);
            failed_at[i][atoi(bh_worker_body(rigs[i]->worker).data)] = now_ms();
            rig_fail(rigs[i], "507");
        }
    broker_ctl("kill");
    for (int i = 0; i < count; i++)
        expect_status(rigs[i]->worker, bh_worker_take(rigs[i]->worker, LIMIT_MS), BH_ERR_CONNECTION);
    broker_ctl("start");
    for (int i = 0; i < count; i++) {
        broker_reopen(rigs[i]->broker);
        rig_connect(rigs[i]);
        expect_all_back(rigs[i], names[i], failed_at[i], DELAY, COUNT);
        rig_free(rigs[i]);
    }
}
END_TEST

Suite *suite_publishing(void)
{
    Suite *suite = suite_create("publishing");
    for (int i = 0; i < setup_count; i++) {
        if (!setup_can_be_served(&setups[i]) || !setups[i].publishes ||
            setups[i].strategy == BH_STRATEGY_DELAYED_EXCHANGE) /* not mandatory, and waits in no queue */
            continue;
        TCase *each = add_case(suite, setups[i].name);
        tcase_add_loop_test(each, a_returned_copy_leaves_the_original_until_the_topology_is_whole, i, i + 1);
        tcase_add_loop_test(each, a_returned_copy_leaves_the_original_to_the_next_worker, i, i + 1);
        tcase_add_loop_test(each, a_worker_that_creates_repairs_what_is_missing_and_goes_on, i, i + 1);
        tcase_add_loop_test(each, a_wait_exchange_that_is_gone_leaves_the_original, i, i + 1);
        tcase_add_loop_test(each, a_parked_queue_that_is_gone_leaves_the_original, i, i + 1);
        tcase_add_loop_test(each, a_full_wait_queue_leaves_the_original, i, i + 1);
        tcase_add_loop_test(each, a_full_parked_queue_leaves_the_original, i, i + 1);
        tcase_add_loop_test(each, a_message_in_hand_survives_its_queue, i, i + 1);
    }
    for (int i = 0; i < setup_count; i++)
        if (setup_can_be_served(&setups[i]) &&
            setups[i].strategy != BH_STRATEGY_NATIVE) /* waits in the work queue itself */
            tcase_add_loop_test(add_case(suite, setups[i].name),
                                messages_of_a_deleted_work_queue_end_in_unroutable_and_hold_nobody_up, i, i + 1);
    int first = setup_first();
    TCase *networks = add_case(suite, "networks");
    tcase_add_loop_test(networks, a_copy_that_is_not_confirmed_in_time_leaves_the_original, first, first + 1);
    tcase_add_loop_test(networks, a_connection_lost_before_the_confirm_loses_nothing, first, first + 1);
    tcase_add_loop_test(networks, a_connection_lost_while_the_handler_works_loses_and_doubles_nothing, first,
                        first + 1);
    if (broker_can_be_controlled()) {
        TCase *controlled = add_case(suite, "alarms and deaths");
        tcase_add_loop_test(controlled, a_broker_that_blocks_publishers_leaves_the_original, first, first + 1);
        tcase_add_test(controlled, messages_wait_through_the_death_of_the_broker);
    }
    return suite;
}
