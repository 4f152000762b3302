#include "proxy.h"
#include "../reading.h"
#include "setups.h"
#include "suites.h"
#include "trouble.h"

#include <backhop/adapter/history.h>
#include <stdio.h>
#include <stdlib.h>

/* The exchange, and the queue, for messages that wait so long. */
static const char *waiting_for(const rig *r, int64_t delay_ms)
{
    switch (view_of(r->topology).settings.strategy) {
    case BH_STRATEGY_LADDER:
        return rig_rung(r, delay_ms);
    case BH_STRATEGY_REJECT:
        return rig_name(r, "work.retry");
    default:
        return rig_name(r, "work.wait");
    }
}

static const char *waiting(const rig *r)
{
    return waiting_for(r, RIG_DELAY_MS);
}

static void publish_and_fail(rig *r)
{
    rig_publish_and_take(r);
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
}

static void publish_and_park(rig *r)
{
    rig_publish_and_take(r);
    rig_settle(r, BH_OUTCOME_PERMANENT, "no", 0);
}

/* The copy is not taken, so that the original stays, and the copy is to be published again. */
static void expect_problem(rig *r, bh_event_kind kind, bh_status status, const char *text)
{
    expect_event(r, kind, status, text);
    ck_assert_uint_gt(bh_event_string(r->event, BH_FIELD_ID).size, 0);
    ck_assert_int_gt(bh_event_int(r->event, BH_FIELD_DELAY), 0);
    expect_no_event(r, BH_EVENT_RETRIED);
    expect_no_event(r, BH_EVENT_PARKED);
    expect_status(r->worker, settle_as(r->worker, r->message, BH_OUTCOME_OK, "", 0), BH_ERR_STATE);
}

static void expect_returned(rig *r, const char *text)
{
    expect_problem(r, BH_EVENT_RETURNED, BH_ERR_PUBLISH, text);
}

static void expect_nacked(rig *r, const char *text)
{
    expect_problem(r, BH_EVENT_NACKED, BH_ERR_PUBLISH, text);
}

/* The copy is not taken once, and the next time it is. */
static void expect_repaired(rig *r)
{
    rig_await(r, BH_EVENT_RETURNED);
    rig_await_settled(r);
    expect_no_event(r, BH_EVENT_RETURNED);
}

/* The retried messages come back, and nothing else does. */
static void expect_back(rig *r)
{
    expect_retried(r, RIG_DELAY_MS);
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_succeed(r);
    rig_expect_silence(r, 2 * RIG_DELAY_MS);
    rig_forget_events(r);
}

static void expect_in_parked_queue(rig *r)
{
    expect_parked(r, "permanent");
    broker_await_depth(r->broker, r->parked, 1);
    rig_forget_events(r);
}

/* The worker ends, and gives nothing back. */
static void expect_nothing_left(rig *r)
{
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
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

/* -------------------------------------------------------------------------- returned and nacked */

/* A rig whose worker repairs nothing, while the test breaks the topology. */
static rig *rig_that_repairs_nothing(int i)
{
    rig *r = setup_rig(i);
    rig_start(r);
    rig_restart(r, BH_MODE_NONE);
    return r;
}

START_TEST(a_returned_copy_leaves_the_original_until_the_topology_is_whole)
{
    rig *r = rig_that_repairs_nothing(_i);
    rig_publish_and_take(r);
    broker_unbind(r->broker, waiting(r), waiting(r), "");
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    char id[64] = "";
    for (int i = 0; i < 3; i++) {
        expect_returned(r, waiting(r));
        if (i > 0)
            expect_bytes(bh_event_string(r->event, BH_FIELD_ID), id);
        snprintf(id, sizeof id, "%s", bh_event_string(r->event, BH_FIELD_ID).data);
    }
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    broker_bind(r->broker, waiting(r), waiting(r), "");
    rig_await_settled(r);
    expect_back(r);
    expect_bytes(past_of(r->history).id, id);
    expect_nothing_left(r);
    rig_free(r);
}
END_TEST

START_TEST(a_returned_copy_leaves_the_original_to_the_next_worker)
{
    rig *r = rig_that_repairs_nothing(_i);
    broker_delete_queue(r->broker, waiting(r));
    publish_and_fail(r);
    expect_returned(r, waiting(r));
    expect_original(r);
    rig_free(r);
}
END_TEST

START_TEST(a_worker_that_creates_repairs_what_is_missing_and_goes_on)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    broker_delete_queue(r->broker, waiting(r));
    publish_and_fail(r);
    expect_repaired(r);
    expect_back(r);

    broker_delete_exchange(r->broker, waiting(r));
    publish_and_fail(r);
    expect_repaired(r);
    expect_back(r);

    broker_delete_queue(r->broker, r->parked);
    publish_and_park(r);
    expect_repaired(r);
    expect_in_parked_queue(r);
    expect_nothing_left(r);
    rig_free(r);
}
END_TEST

START_TEST(a_wait_exchange_that_is_gone_leaves_the_original)
{
    rig *r = rig_that_repairs_nothing(_i);
    broker_delete_exchange(r->broker, waiting(r));
    publish_and_fail(r);
    for (int i = 0; i < 2; i++)
        expect_problem(r, BH_EVENT_RETURNED, BH_ERR_MISSING, waiting(r));
    broker_declare_exchange(r->broker, waiting(r), "fanout");
    broker_bind(r->broker, waiting(r), waiting(r), "");
    rig_await_settled(r);
    expect_back(r);

    broker_delete_exchange(r->broker, waiting(r));
    publish_and_fail(r);
    expect_problem(r, BH_EVENT_RETURNED, BH_ERR_MISSING, waiting(r));
    expect_original(r);
    rig_free(r);
}
END_TEST

START_TEST(a_parked_queue_that_is_gone_leaves_the_original)
{
    rig *r = rig_that_repairs_nothing(_i);
    broker_delete_queue(r->broker, r->parked);
    publish_and_park(r);
    expect_returned(r, r->parked);
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
    broker_await_depth(r->broker, queue, 1);
}

/* Declares as another worker does that creates the topology. */
static void declare_again(const rig *r)
{
    rig *other = rig_new_beside(r, "work");
    rig_prepare(other);
    rig_make_worker(other);
    rig_set(other, prefetch, 0);
    rig_connect(other);
    rig_free(other);
}

START_TEST(a_full_wait_queue_leaves_the_original)
{
    rig *r = rig_that_repairs_nothing(_i);
    replace_by_full(r, waiting(r), waiting(r));
    publish_and_fail(r);
    for (int i = 0; i < 2; i++)
        expect_nacked(r, waiting(r));
    broker_delete_queue(r->broker, waiting(r));
    declare_again(r);
    rig_await_settled(r);
    expect_back(r);

    replace_by_full(r, waiting(r), waiting(r));
    publish_and_fail(r);
    expect_nacked(r, waiting(r));
    broker_await_depth(r->broker, waiting(r), 1);
    expect_original(r);
    rig_free(r);
}
END_TEST

START_TEST(a_full_parked_queue_leaves_the_original)
{
    rig *r = rig_that_repairs_nothing(_i);
    replace_by_full(r, r->parked, NULL);
    publish_and_park(r);
    expect_nacked(r, r->parked);
    broker_purge(r->broker, r->parked);
    rig_await_settled(r);
    expect_in_parked_queue(r);

    publish_and_park(r);
    expect_nacked(r, r->parked);
    expect_original(r);
    rig_free(r);
}
END_TEST

/* -------------------------------------------------------------------------- work queues that go */

START_TEST(messages_of_a_deleted_work_queue_end_in_unroutable_and_hold_nobody_up)
{
    enum { COUNT = 5, DELAY = 3000 }; /* until the first comes back its queue has to be gone */
    rig *r = setup_rig(_i);
    policy_set_initial_ms(r->policy, DELAY);
    rig_start(r);
    rig *other = rig_new_beside(r, "other");
    policy_set_initial_ms(other->policy, DELAY);
    rig_start(other);
    for (int i = 0; i < COUNT; i++)
        rig_publish(r, "work.a", "first"); /* to both */
    for (int i = 0; i < COUNT; i++) {
        rig_take(r, "first");
        rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    }
    bh_strategy strategy = view_of(r->topology).settings.strategy;
    if (strategy !=
        BH_STRATEGY_DELAYED_EXCHANGE) /* which has no queue to look at; and what drains awaits its confirms */
        broker_await_depth(r->broker, strategy == BH_STRATEGY_LADDER ? rig_rung(r, DELAY) : waiting(r), COUNT);
    rig_stop_worker(r);
    broker_delete_queue(r->broker, r->queue);
    int64_t failed_at = now_ms();
    for (int i = 0; i < COUNT; i++) {
        rig_take(other, "first");
        rig_fail(other, "507");
    }
    for (int i = 0; i < COUNT; i++) {
        rig_take(other, "first");
        expect_attempt(other, 2);
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
    rig *r = rig_that_repairs_nothing(_i);
    rig_publish_and_take(r);
    broker_delete_queue(r->broker, r->queue);
    expect_event(r, BH_EVENT_CANCELLED, BH_ERR_CANCELLED, r->queue);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, r->queue);
    rig_fail(r, "507");
    expect_retried(r, RIG_DELAY_MS);
    broker_await_depth(r->broker, rig_name(r, "unroutable"), 1);
    rig_free(r);
}
END_TEST

/* -------------------------------------------------------------------------- networks and alarms */

/* A worker whose confirms have so long, by a network that the test can spoil. */
static proxy *start_impatient_by_proxy(rig *r, int64_t confirm_timeout_ms)
{
    rig_prepare(r);
    rig_make_worker(r);
    rig_set_timeouts(r, 10000, confirm_timeout_ms);
    return start_by_proxy(r, "");
}

/* Takes and acknowledges all copies and originals of the one message; how many there were of
 * each. */
static void take_all(rig *r, int *originals, int *copies)
{
    *originals = *copies = 0;
    for (int64_t limit = LIMIT_MS; rig_try_take(r, limit); limit = 3000) {
        expect_bytes(bh_message_body(r->message), "first");
        int64_t attempt = bh_worker_attempt(r->worker, r->message);
        ck_assert(attempt == 1 || attempt == 2);
        ++*(attempt == 1 ? originals : copies);
        rig_succeed(r);
    }
}

/* The connections are lost and made again; so many messages come again. */
static void expect_reconnected(rig *r, int64_t count)
{
    for (int64_t told = 0; told < count; told += bh_event_int(r->event, BH_FIELD_COUNT))
        expect_event(r, BH_EVENT_DISCONNECTED, BH_ERR_CONNECTION, "");
    rig_await(r, BH_EVENT_CONNECTED);
}

START_TEST(a_copy_that_is_not_confirmed_in_time_leaves_the_original)
{
    enum { TIMEOUT = 3000 };
    rig *r = setup_rig(_i);
    proxy *network = start_impatient_by_proxy(r, TIMEOUT);
    rig_publish_and_take(r);
    proxy_hold_broker(network, PROXY_PUBLISHER);
    int64_t start = now_ms();
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    expect_event(r, BH_EVENT_UNCONFIRMED, BH_ERR_PUBLISH, "");
    expect_waited(start, TIMEOUT);
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 1);
    expect_no_event(r, BH_EVENT_RETRIED);
    proxy_hold_broker(network, PROXY_NONE);
    rig_await_settled(r);
    expect_retried(r, RIG_DELAY_MS);
    int originals, copies;
    take_all(r, &originals, &copies);
    ck_assert_int_eq(originals, 0);
    int most = 2 + rig_count_events(r, BH_EVENT_UNCONFIRMED); /* the first one had reached the broker */
    ck_assert_msg(copies >= 1 && copies <= most, "%d copies", copies);
    expect_nothing_left(r);
    rig_free(r);
    proxy_close(network);
}
END_TEST

START_TEST(a_connection_lost_before_the_confirm_loses_nothing)
{
    enum { DELAY = 1500 };
    rig *r = setup_rig(_i);
    policy_set_initial_ms(r->policy, DELAY);
    proxy *network = start_impatient_by_proxy(r, LIMIT_MS);
    rig_publish_and_take(r);
    proxy_hold_broker(network, PROXY_PUBLISHER);
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    broker_await_depth(r->broker, rig_rung(r, DELAY), 1);
    proxy_cut(network);
    proxy_hold_broker(network, PROXY_NONE);
    expect_reconnected(r, 1);
    rig_await(r, BH_EVENT_RETRIED);
    for (int i = 0; i < 2; i++) { /* the copy went out twice: the duplicate that at-least-once allows */
        rig_take(r, "first");
        expect_attempt(r, 2);
        rig_succeed(r);
    }
    rig_expect_silence(r, DELAY);
    expect_nothing_left(r);
    rig_free(r);
    proxy_close(network);
}
END_TEST

enum { DEATH_LIMIT_S = 900 };

/* The messages come back, each with its second attempt. The broker died at `died_at`: it sends dead
 * letters again that it had in hand then, so messages that were due may come twice. */
static void expect_all_back(rig *r, const char *name, const int64_t *failed_at, int64_t delay, int count,
                            int64_t died_at)
{
    int seen[64] = {0};
    for (int back = 0; back < count;) {
        int is_taken = rig_try_take(r, RESENT_MS);
        if (!is_taken)
            broker_show_queues();
        ck_assert_msg(is_taken, "%s: %d of %d messages came", name, back, count);
        int id = atoi(bh_message_body(r->message).data);
        expect_origin(r, r->exchange, "work.a");
        expect_attempt(r, 2);
        ck_assert_msg(now_ms() - failed_at[id] + 1 >= delay, "%s: %d came back too early", name, id);
        ck_assert_msg(seen[id] == 0 || (seen[id] == 1 && failed_at[id] + delay <= died_at), "%s: %d came back %d times",
                      name, id, seen[id] + 1);
        back += !seen[id]++;
        rig_succeed(r);
    }
}

/* Classic queues do not confirm dead letters. Dead letters that they send before the broker has
 * started their target are lost. So the messages of classic queues are not due, and wait on. */
START_TEST(messages_wait_through_the_death_of_the_broker)
{
    enum { COUNT = 20, DELAY = 1500, CLASSIC_DELAY = 3600000, MOST_RIGS = 8 };
    rig *rigs[MOST_RIGS];
    const char *names[MOST_RIGS];
    int64_t failed_at[MOST_RIGS][COUNT];
    int count = 0;
    for (int i = 0; i < setup_count; i++) {
        int is_unconfirmed = setups[i].strategy == BH_STRATEGY_REJECT && setups[i].type == BH_QUEUE_CLASSIC;
        if (!setup_can_be_served(&setups[i]) || is_unconfirmed || setups[i].strategy == BH_STRATEGY_DELAYED_EXCHANGE)
            continue;
        rigs[count] = setup_rig(i);
        names[count] = setups[i].name;
        int64_t delay = setups[i].type == BH_QUEUE_CLASSIC ? CLASSIC_DELAY : DELAY;
        policy_set_max_ms(rigs[count]->policy, delay);
        policy_set_initial_ms(rigs[count]->policy, delay);
        rig_start(rigs[count++]);
    }
    broker_ctl("save");
    for (int i = 0; i < count; i++)
        for (int j = 0; j < COUNT; j++) {
            char body[16];
            snprintf(body, sizeof body, "%d", j);
            rig_publish(rigs[i], "work.a", body);
        }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < COUNT; j++) {
            rig_take(rigs[i], NULL);
            failed_at[i][atoi(bh_message_body(rigs[i]->message).data)] = now_ms();
            rig_fail(rigs[i], "507");
        }
    for (int i = 0; i < count; i++)
        rig_await_read(rigs[i]);
    for (int i = 0; i < count; i++)
        if (rigs[i]->type == BH_QUEUE_CLASSIC)
            broker_await_depth(rigs[i]->broker, waiting_for(rigs[i], CLASSIC_DELAY), COUNT);
    broker_ctl("kill");
    int64_t died_at = now_ms();
    for (int i = 0; i < count; i++)
        expect_event(rigs[i], BH_EVENT_DISCONNECTED, BH_ERR_CONNECTION, "");
    broker_ctl("start");
    for (int i = 0; i < count; i++) {
        broker_reopen(rigs[i]->broker);
        rig_await(rigs[i], BH_EVENT_CONNECTED);
        if (rigs[i]->type == BH_QUEUE_CLASSIC)
            broker_await_depth(rigs[i]->broker, waiting_for(rigs[i], CLASSIC_DELAY), COUNT);
        else
            expect_all_back(rigs[i], names[i], failed_at[i], DELAY, COUNT, died_at);
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
        TCase *each = add_setup_case(suite, i);
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
            tcase_add_loop_test(long_case(add_case(suite, setups[i].name)),
                                messages_of_a_deleted_work_queue_end_in_unroutable_and_hold_nobody_up, i, i + 1);
    int first = setup_first();
    TCase *networks = long_case(add_case(suite, "networks"));
    tcase_add_loop_test(networks, a_copy_that_is_not_confirmed_in_time_leaves_the_original, first, first + 1);
    tcase_add_loop_test(networks, a_connection_lost_before_the_confirm_loses_nothing, first, first + 1);
    if (broker_can_be_controlled()) {
        TCase *deaths = long_case(add_case(suite, "deaths"));
        tcase_set_timeout(deaths, DEATH_LIMIT_S);
        tcase_add_test(deaths, messages_wait_through_the_death_of_the_broker);
    }
    return suite;
}
