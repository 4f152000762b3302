/*
 * Faults of brokers, networks and people. Each test checks the event, the recovery without help,
 * and the count of the messages. No message is lost, and none comes twice that was not in flight.
 */
#include "../reading.h"
#include "suites.h"
#include "trouble.h"

#include <backhop/adapter/history.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rig *started_rig(void)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    rig_start(r);
    return r;
}

/* ----------------------------------------------------------------- connections that are cut off */

/* Each has a worker and a queue of its own: an acknowledgement of an earlier one could be lost by
 * the next cut. */
static const struct {
    bh_outcome outcome;
    bh_event_kind event;
    int is_early; /* settled before the message comes again, or after */
} settles[] = {{BH_OUTCOME_OK, BH_EVENT_LAST, 0},
               {BH_OUTCOME_FAILED, BH_EVENT_RETRIED, 1},
               {BH_OUTCOME_PERMANENT, BH_EVENT_PARKED, 0},
               {BH_OUTCOME_DROPPED, BH_EVENT_DROPPED, 1}};

START_TEST(F2_a_settle_for_an_earlier_connection_takes_effect_when_the_message_comes_again)
{
    bh_outcome outcome = settles[_i].outcome;
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_MESSAGE_ID_FLAG,
                                          .message_id = amqp_cstring_bytes("order 7")};
    rig *r = rig_in_a_hurry(rig_that_waits());
    proxy *network = start_by_proxy(r, "");
    broker_publish(r->broker, "", r->queue, &properties, bh_str("first"));
    rig_take(r, "first");
    expect_attempt(r, 1);
    proxy_cut(network);
    expect_event(r, BH_EVENT_DISCONNECTED, BH_ERR_CONNECTION, "");
    if (settles[_i].is_early)
        rig_settle(r, outcome, "507", 0);
    rig_await(r, BH_EVENT_CONNECTED);
    if (!settles[_i].is_early) {
        bh_message *first = r->message;
        r->message = NULL;
        broker_await_consumers(r->broker, r->queue, 1); /* "first" is requeued, and comes before "next" */
        broker_publish_text(r->broker, "", r->queue, "next");
        rig_take(r, "next");
        rig_succeed(r);
        bh_message_free(r->message);
        r->message = first;
        rig_settle(r, outcome, "507", 0);
    }
    if (settles[_i].event != BH_EVENT_LAST) {
        rig_await(r, settles[_i].event);
        expect_bytes(bh_event_string(r->event, BH_FIELD_ID), "order 7");
    }
    rig_expect_silence(r, 200);
    expect_no_event(r, BH_EVENT_STALE);
    rig_stop_worker(r);
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), outcome == BH_OUTCOME_FAILED);
    broker_await_depth(r->broker, r->parked, outcome == BH_OUTCOME_PERMANENT);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    rig_free(r);
    proxy_close(network);
}
END_TEST

/* ------------------------------------------------------------------------- many threads at once */

enum { CROWD = 1000, CROWD_AHEAD = 100, HANDS = 64, THREADS = 4 };

/* Messages in hand, which the threads take, and settle in no order. */
typedef struct crowd {
    rig *rig;
    pthread_mutex_t mutex;
    bh_message *hands[HANDS];
    int count;
    tally settled;
    int is_over;
} crowd;

static unsigned next_random(unsigned *state)
{
    return *state = *state * 1664525U + 1013904223U;
}

/* One step of a thread: takes what fits the hands, and settles one of them, those with an odd
 * number as failed. */
static void settle_one(crowd *self, unsigned *state)
{
    bh_message *taken = NULL;
    pthread_mutex_lock(&self->mutex);
    while (self->count < HANDS && bh_worker_take(self->rig->worker, &taken, 0) == BH_OK)
        self->hands[self->count++] = taken;
    taken = NULL;
    if (self->count > 0) {
        int i = (int)(next_random(state) >> 8) % self->count;
        taken = self->hands[i];
        self->hands[i] = self->hands[--self->count];
        tally_add(&self->settled, bh_message_body(taken));
    }
    pthread_mutex_unlock(&self->mutex);
    if (!taken) {
        rig_wait_readable(self->rig, 10);
        return;
    }
    int number = atoi(bh_message_body(taken).data);
    bh_outcome outcome = number % 2 ? BH_OUTCOME_FAILED : BH_OUTCOME_OK;
    ck_assert_int_eq(settle_as(self->rig->worker, taken, outcome, "507", 0), BH_OK);
    bh_message_free(taken);
}

static void *work(void *data)
{
    crowd *self = data;
    unsigned state = (unsigned)(uintptr_t)&state;
    for (;;) {
        pthread_mutex_lock(&self->mutex);
        int is_over = self->is_over && self->count == 0;
        pthread_mutex_unlock(&self->mutex);
        if (is_over)
            return NULL;
        settle_one(self, &state);
    }
}

static int crowd_distinct(crowd *self)
{
    pthread_mutex_lock(&self->mutex);
    int distinct = tally_distinct(&self->settled);
    pthread_mutex_unlock(&self->mutex);
    return distinct;
}

static void await_distinct(crowd *self, int count)
{
    int64_t limit = now_ms() + LIMIT_MS;
    while (crowd_distinct(self) < count) {
        ck_assert_msg(now_ms() < limit, "%d of %d came", crowd_distinct(self), count);
        pause_ms(1);
    }
}

START_TEST(messages_settled_in_no_order_by_many_threads_end_once_but_those_in_flight_at_a_cut)
{
    static crowd all;
    pthread_t threads[THREADS];
    char last[16];
    rig *r = all.rig = rig_in_a_hurry(rig_that_waits());
    rig_set(r, prefetch, CROWD_AHEAD);
    proxy *network = start_by_proxy(r, "");
    all.settled.count = CROWD + 1; /* the last one is published when all others have come */
    ck_assert_int_eq(pthread_mutex_init(&all.mutex, NULL), 0);
    broker_publish_numbers(r->broker, r->queue, CROWD);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &all), 0);
    await_distinct(&all, CROWD / 3);
    proxy_cut(network);
    rig_await(r, BH_EVENT_DISCONNECTED);
    rig_await(r, BH_EVENT_CONNECTED);
    await_distinct(&all, CROWD);
    broker_await_consumers(r->broker, r->queue, 1); /* what comes again is requeued, before the last one */
    snprintf(last, sizeof last, "%d", CROWD);
    broker_publish_text(r->broker, "", r->queue, last);
    await_distinct(&all, CROWD + 1);
    pthread_mutex_lock(&all.mutex);
    all.is_over = 1;
    pthread_mutex_unlock(&all.mutex);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    expect_ok(r->worker, bh_worker_stop(r->worker, LIMIT_MS));
    expect_event(r, BH_EVENT_DRAINED, BH_OK, "");
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);

    tally retried = {.count = CROWD};
    tally_drain(&retried, r, rig_rung(r, WAITING_MS));
    for (int i = 0; i < CROWD; i++)
        ck_assert_msg(i % 2 ? retried.seen[i] >= 1 : retried.seen[i] == 0, "%d was retried %d times", i,
                      retried.seen[i]);
    int copies = tally_duplicates(&retried), calls = tally_duplicates(&all.settled);
    ck_assert_msg(copies <= CROWD_AHEAD && calls <= CROWD_AHEAD, "%d copies too many, handled %d times too often",
                  copies, calls);
    rig_free(r);
    proxy_close(network);
}
END_TEST

/* ---------------------------------------------------------------------- repaired by an operator */

static void remove_user(void)
{
    broker_delete_user("live.changed");
}

START_TEST(a_password_that_is_put_right_lets_the_worker_in)
{
    char url[4096];
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    broker_add_user("live.changed", "before", "/", ".*");
    broker_make_url(url, sizeof url, "live.changed", "after", NULL, 0);
    start_by(r, url);
    for (int i = 0; i < 2; i++) {
        expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_ACCESS, "password");
        ck_assert_int_gt(bh_event_int(r->event, BH_FIELD_DELAY), 0);
    }
    expect_no_event(r, BH_EVENT_CONNECTED);
    broker_set_password("live.changed", "after");
    rig_await(r, BH_EVENT_CONNECTED);
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    rig_succeed(r);
    rig_free(r);
}
END_TEST

#define LATE_VHOST "live/late"

static void remove_vhost(void)
{
    broker_delete_vhost(LATE_VHOST);
}

START_TEST(a_vhost_that_is_added_later_is_found)
{
    char url[4096];
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    broker_make_url(url, sizeof url, NULL, NULL, NULL, 0);
    snprintf(strrchr(url, '/'), 32, "/live%%2Flate");
    start_by(r, url);
    for (int i = 0; i < 2; i++)
        expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_ACCESS, LATE_VHOST);
    broker_add_vhost(LATE_VHOST);
    rig_await(r, BH_EVENT_CONNECTED);
    broker *inside = broker_open_url(url);
    broker_publish_text(inside, "", r->queue, "first");
    broker_close(inside);
    rig_take(r, "first");
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(of_a_list_of_hosts_one_that_answers_is_enough)
{
    static const char *const dead[] = {"127.0.0.1:1", "no-such-host.invalid", "192.0.2.1"};
    /* it refuses; it has no address; it says nothing */
    enum { DEAD = sizeof dead / sizeof dead[0] };
    int told[DEAD] = {0};
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    rig_set_timeouts(r, 500, 30000);
    for (int i = 0; i < DEAD; i++) {
        char url[256];
        snprintf(url, sizeof url, "amqp://guest:guest@%s/", dead[i]);
        expect_ok(r->worker, bh_worker_add_uri(r->worker, bh_str(url)));
    }
    rig_start(r);
    for (int left = rig_count_events(r, BH_EVENT_UNAVAILABLE); left > 0; left--) {
        expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_CONNECTION, "");
        for (int i = 0; i < DEAD; i++)
            told[i] += holds(bh_event_text(r->event), dead[i]);
    }
    for (int i = 0; i < DEAD; i++)
        ck_assert_msg(told[i] > 0, "%s was not tried", dead[i]);
    rig_publish_and_take(r);
    rig_fail(r, "507"); /* so it can publish too */
    rig_take(r, "first");
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(a_worker_goes_on_to_the_next_host_when_one_goes_down)
{
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    proxy *network = proxy_open("127.0.0.1", broker_port(0));
    char url[4096];
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(network));
    expect_ok(r->worker, bh_worker_add_uri(r->worker, bh_str(url)));
    rig_start(r);
    rig_publish_and_take(r);
    proxy_close(network);
    rig_await(r, BH_EVENT_DISCONNECTED);
    rig_await(r, BH_EVENT_CONNECTED);
    rig_fail(r, "507");
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

/* A node that lost its cluster keeps its connections, and does not answer. The first set-up is made
 * by the worker, of the others one is verified. */
START_TEST(a_worker_with_nothing_in_hand_leaves_a_broker_that_does_not_answer)
{
    char url[4096], host[64];
    rig *r = setup_rig(_i);
    rig_start(r);
    rig_stop_worker(r);
    proxy *network = proxy_open("127.0.0.1", broker_port(0));
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(network));
    snprintf(host, sizeof host, "127.0.0.1:%d", proxy_port(network));
    rig_in_a_hurry(r);
    rig_set(r, mode, _i == setup_first() ? BH_MODE_CREATE : BH_MODE_VERIFY);
    expect_ok(r->worker, bh_worker_add_uri(r->worker, bh_str(url)));
    rig_connect(r);
    expect_bytes(bh_event_string(r->event, BH_FIELD_HOST), host);
    proxy_hold_broker(network, PROXY_ALL);
    for (int both = 0; both < 2; both++)
        expect_event(r, BH_EVENT_DISCONNECTED, BH_ERR_CONNECTION, "may have lost its cluster");
    rig_await(r, BH_EVENT_CONNECTED);
    ck_assert(!holds(bh_event_string(r->event, BH_FIELD_HOST), host));
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    rig_succeed(r);
    rig_stop_worker(r);
    proxy_close(network);
    rig_free(r);
}
END_TEST

START_TEST(a_name_service_that_does_not_answer_holds_up_neither_the_other_connection_nor_a_stop)
{
    enum { LIMIT = 2000 };
    rig *r = rig_in_a_hurry(rig_that_waits());
    proxy *network = proxy_open("127.0.0.1", broker_port(0));
    char url[4096];
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(network));
    rig_set_timeouts(r, 2 * LIMIT_MS, 30000);
    rig_connect_by(r, url);
    broker_bind(r->broker, r->queue, r->exchange, "work.#");
    rig_publish_and_take(r);
    silence_name_service();
    proxy_cut_to_broker(network, PROXY_PUBLISHER, 1);
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0); /* its copy now waits for the connection that waits for an address */
    rig_await(r, BH_EVENT_DISCONNECTED);
    rig_publish(r, "work.a", "second");
    rig_take(r, "second");
    await_unanswered_question(); /* so that the stop interrupts an attempt to connect, and its end another one */
    expect_ok(r->worker, bh_worker_stop(r->worker, LIMIT));
    rig_succeed(r);
    expect_event(r, BH_EVENT_DRAINED, BH_ERR_TIMEOUT, ""); /* within LIMIT_MS, half of the time to connect */
    broker_await_depth(r->broker, r->queue, 1);
    expect_no_event(r, BH_EVENT_UNAVAILABLE);
    rig_free(r);
    proxy_close(network);
}
END_TEST

/* ----------------------------------------------------------------------------- copies that fail */

START_TEST(a_wait_exchange_that_was_deleted_closes_the_channel_which_is_told_and_the_message_is_retried_once)
{
    rig *r = started_rig();
    rig_publish_and_take(r);
    broker_delete_exchange(r->broker, rig_rung(r, WAITING_MS));
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_CHANNEL, "there is no channel to publish on");
    expect_part(bh_event_text(r->event), "404 NOT_FOUND");
    expect_bytes(bh_event_string(r->event, BH_FIELD_CONNECTION), "publish");
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 1);
    ck_assert_int_eq(bh_event_level(r->event), BH_LEVEL_WARNING);
    rig_await_settled(r);
    expect_retried(r, WAITING_MS);
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), 1);
    rig_free_with_nothing_ready(r);
}
END_TEST

/* ---------------------------------------------------------------------------- poisoned messages */

/* While the worker is away, processes take the message and die, so often. */
static void crash(rig *r, int times)
{
    for (int i = 0; i < times; i++) {
        broker *other = broker_open();
        message taken;
        broker_get(other, r->queue, &taken);
        expect_bytes(taken.body, "first");
        message_free(&taken);
        broker_cut(other);
    }
    rig_restart(r, BH_MODE_CREATE);
}

enum { CRASHES_THAT_WAIT = 3, CRASH_DELAY_MS = 2000 /* enough to stop a worker before the message is back */ };

/* Its message is in the work queue, and its worker is away. 0: the default. */
static rig *rig_that_crashes(int max_crashes)
{
    rig *r = setup_rig(setup_first());
    ck_assert_int_eq(policy_set_initial_ms(r->policy, CRASH_DELAY_MS), BH_OK);
    if (max_crashes)
        ck_assert_int_eq(policy_set_max_crashes(r->policy, max_crashes), BH_OK);
    rig_start(r);
    rig_stop_worker(r);
    rig_publish(r, "work.a", "first");
    return r;
}

START_TEST(by_default_the_fifth_crash_is_a_wait_and_no_attempt)
{
    rig *r = rig_that_crashes(0);
    crash(r, 5);
    expect_event(r, BH_EVENT_RETRIED, BH_OK, "");
    rig_take(r, "first");
    expect_attempt(r, 1);
    ck_assert_int_eq(past_of(r->history).crashes, 5);
    rig_fail(r, "507");
    rig_take(r, "first");
    expect_attempt(r, 2);
    ck_assert_int_eq(past_of(r->history).crashes, 0);
    expect_no_event(r, BH_EVENT_PARKED);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(leaving_in_good_order_is_no_crash)
{
    enum { TIMES = 6 };
    rig *r = rig_that_waits();
    rig_start(r);
    rig_publish(r, "work.a", "first");
    for (int i = 0; i < TIMES; i++) {
        rig_take(r, "first");
        expect_ok(r->worker, bh_worker_stop(r->worker, 0));
        rig_await(r, BH_EVENT_DRAINED);
        rig_restart(r, BH_MODE_CREATE);
    }
    rig_take(r, "first");
    expect_attempt(r, 1);
    ck_assert_int_eq(past_of(r->history).crashes, 0);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

Suite *suite_faults(void)
{
    Suite *suite = suite_create("faults");
    TCase *cuts = add_case(suite, "cuts");
    tcase_add_loop_test(cuts, F2_a_settle_for_an_earlier_connection_takes_effect_when_the_message_comes_again, 0,
                        (int)(sizeof settles / sizeof settles[0]));
    tcase_add_test(long_case(add_case(suite, "many threads")),
                   messages_settled_in_no_order_by_many_threads_end_once_but_those_in_flight_at_a_cut);
    TCase *hosts = add_case(suite, "hosts");
    tcase_add_test(hosts, of_a_list_of_hosts_one_that_answers_is_enough);
    tcase_add_test(hosts, a_worker_goes_on_to_the_next_host_when_one_goes_down);
    tcase_add_test(long_case(add_case(suite, "a name service")),
                   a_name_service_that_does_not_answer_holds_up_neither_the_other_connection_nor_a_stop);
    for (int i = 0; i < setup_count; i++) /* one that has no exchange of its own among them */
        if (broker_is_at_least(4, 3) && (i == setup_first() || setups[i].strategy == BH_STRATEGY_NATIVE))
            tcase_add_loop_test(hosts, a_worker_with_nothing_in_hand_leaves_a_broker_that_does_not_answer, i, i + 1);
    tcase_add_test(add_case(suite, "copies"),
                   a_wait_exchange_that_was_deleted_closes_the_channel_which_is_told_and_the_message_is_retried_once);
    if (setups[setup_first()].type == BH_QUEUE_QUORUM) {
        tcase_add_test(long_case(add_case(suite, "poison that waits")),
                       by_default_the_fifth_crash_is_a_wait_and_no_attempt);
        if (broker_is_at_least(4, 3)) /* those before count every return */
            tcase_add_test(add_case(suite, "poison"), leaving_in_good_order_is_no_crash);
    }
    if (!broker_can_be_controlled())
        return suite;
    add_test_with_end(suite, "a password", a_password_that_is_put_right_lets_the_worker_in, remove_user);
    add_test_with_end(suite, "a vhost", a_vhost_that_is_added_later_is_found, remove_vhost);
    return suite;
}
