#include "../reading.h"
#include "suites.h"
#include "trouble.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOW_MS = 315 }; /* a rung of the grid */

static rig *started_rig(void)
{
    rig *r = setup_rig(setup_first());
    rig_start(r);
    return r;
}

/* ------------------------------------------------------------------------------ take and settle */

START_TEST(calls_at_the_wrong_time_are_refused_and_change_nothing)
{
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    bh_message *taken = NULL;
    bh_event *event = NULL;
    expect_status(r->worker, bh_worker_take(r->worker, &taken, 0), BH_ERR_STATE);
    expect_status(r->worker, bh_worker_take_event(r->worker, &event), BH_ERR_TIMEOUT);
    expect_status(r->worker, bh_worker_replay(r->worker, 1), BH_ERR_STATE);
    expect_status(r->worker, bh_worker_add_uri(r->worker, bh_str("amqp://guest:secret#@localhost/")), BH_ERR_URI);
    ck_assert(!holds(bh_worker_error(r->worker), "secret"));
    expect_status(r->worker, bh_worker_start(r->worker), BH_ERR_STATE); /* no URI */
    rig_start(r);
    expect_status(r->worker, bh_worker_start(r->worker), BH_ERR_STATE);
    expect_status(r->worker, bh_worker_add_uri(r->worker, bh_str(broker_url())), BH_ERR_STATE);
    expect_status(r->worker, bh_worker_set(r->worker, &r->settings), BH_ERR_STATE);
    expect_status(r->worker, settle_as(r->worker, NULL, BH_OUTCOME_OK, "", 0), BH_ERR_ARGUMENT);
    expect_status(r->worker, bh_worker_take(r->worker, NULL, 0), BH_ERR_ARGUMENT);
    rig_publish_and_take(r);
    expect_status(r->worker, settle_as(r->worker, r->message, (bh_outcome)77, "", 0), BH_ERR_ARGUMENT);
    rig_succeed(r);
    expect_status(r->worker, settle_as(r->worker, r->message, BH_OUTCOME_OK, "", 0), BH_ERR_STATE);
    expect_status(r->worker, settle_as(r->worker, r->message, BH_OUTCOME_FAILED, "", 0), BH_ERR_STATE);
    expect_bytes(bh_message_body(r->message), "first");
    rig_stop_worker(r);
    expect_bytes(bh_message_body(r->message), "first"); /* it outlives the worker */
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);
    rig_free(r);
}
END_TEST

START_TEST(a_throttled_message_waits_without_an_attempt)
{
    rig *r = setup_rig(setup_first());
    ck_assert_int_eq(policy_set_max_deferrals(r->policy, 2), BH_OK);
    rig_prepare(r);
    rig_make_worker(r);
    const bh_event_kind kinds[] = {BH_EVENT_FAILED, BH_EVENT_THROTTLED, BH_EVENT_DEFERRED};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        rig_set(r, emits[kinds[i]], 1);
    rig_start(r);
    rig_publish_and_take(r);
    for (int64_t deferrals = 1; deferrals <= 2; deferrals++) {
        rig_settle(r, BH_OUTCOME_THROTTLED, "429", 0);
        rig_await(r, BH_EVENT_THROTTLED);
        ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_ATTEMPTS), 0);
        expect_bytes(bh_event_string(r->event, BH_FIELD_ERROR), "429");
        rig_await(r, BH_EVENT_DEFERRED);
        ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_DELAY), RIG_DELAY_MS);
        ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_DEFERRALS), deferrals);
        rig_take(r, "first");
        expect_attempt(r, 1);
        ck_assert_int_eq(past_of(r->history).deferrals, deferrals);
        expect_bytes(past_of(r->history).last_error, "429");
    }
    rig_settle(r, BH_OUTCOME_THROTTLED, "429", 0); /* once too often */
    rig_await(r, BH_EVENT_FAILED);
    rig_await(r, BH_EVENT_RETRIED);
    expect_no_event(r, BH_EVENT_DEFERRED);
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(a_throttled_message_waits_with_a_policy_of_one_attempt)
{
    rig *r = setup_rig(setup_first());
    ck_assert_int_eq(policy_set_max_attempts(r->policy, 1), BH_OK);
    ck_assert_int_eq(policy_set_max_retry_after_ms(r->policy, 1000), BH_OK);
    rig_prepare(r);
    rig_make_worker(r);
    rig_set(r, emits[BH_EVENT_DEFERRED], 1);
    rig_start(r);
    rig_publish_and_take(r);
    rig_settle(r, BH_OUTCOME_THROTTLED, "429", 0);
    rig_await(r, BH_EVENT_DEFERRED);
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_DELAY), BH_TOPOLOGY_LOWEST_RUNG_MS); /* there is no rung below */
    rig_take(r, "first");
    rig_settle(r, BH_OUTCOME_THROTTLED, "429", 150);
    rig_await(r, BH_EVENT_DEFERRED);
    ck_assert_int_ge(bh_event_int(r->event, BH_FIELD_DELAY), 150);
    rig_take(r, "first");
    expect_attempt(r, 1);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

/* A policy for one class of errors: another delay than the rig's, and an attempt more. */
static bh_policy *slow_policy(void)
{
    bh_policy *slow;
    ck_assert_int_eq(bh_policy_new(&slow), BH_OK);
    policy_set_kind(slow, BH_KIND_FIXED);
    policy_set_initial_ms(slow, SLOW_MS);
    policy_set_jitter(slow, BH_JITTER_NONE, 0);
    policy_set_max_attempts(slow, 4);
    return slow;
}

/* `may` is expected if the attempt fails. One that fails for good is always parked, one that
 * succeeds or is dropped never. */
static void expect_may_park(const rig *r, const bh_policy *policy, int64_t retry_after_ms, int may)
{
    const struct {
        bh_outcome outcome;
        int may;
    } expected[] = {{BH_OUTCOME_FAILED, may}, {BH_OUTCOME_PERMANENT, 1}, {BH_OUTCOME_OK, 0}, {BH_OUTCOME_DROPPED, 0}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        bh_settlement settlement = {.outcome = expected[i].outcome, .policy = policy, .retry_after_ms = retry_after_ms};
        ck_assert_int_eq(bh_worker_may_park(r->worker, r->message, &settlement), expected[i].may);
    }
}

START_TEST(a_message_is_settled_by_a_policy_of_the_topologys)
{
    rig *r = setup_rig(setup_first());
    bh_policy *slow = slow_policy();
    ck_assert_int_eq(bh_topology_add_policy(r->topology, slow), BH_OK);
    rig_start(r);
    rig_publish_and_take(r);
    expect_may_park(r, NULL, 0, 0);
    ck_assert_int_eq(bh_worker_may_park(r->worker, NULL, &(bh_settlement){.outcome = BH_OUTCOME_PERMANENT}), 0);
    policy_set_initial_ms(slow, 7 * SLOW_MS); /* has no rung there */
    expect_status(r->worker, settle_by(r->worker, r->message, slow, BH_OUTCOME_FAILED, "slow down"),
                  BH_ERR_FOREIGN_POLICY);
    expect_status(r->worker, bh_worker_settle(r->worker, r->message, NULL), BH_ERR_ARGUMENT);
    policy_set_initial_ms(slow, SLOW_MS);
    expect_ok(r->worker, settle_by(r->worker, r->message, slow, BH_OUTCOME_FAILED, "slow down"));
    bh_policy_free(slow); /* the worker has a copy */
    rig_await_settled(r);
    expect_retried(r, SLOW_MS);

    rig_take(r, "first");
    rig_fail(r, "507"); /* by the worker's own again, and one count for both */
    expect_retried(r, RIG_DELAY_MS);
    rig_take(r, "first");
    expect_attempt(r, 3);
    slow = slow_policy();
    expect_may_park(r, NULL, 0, 1);
    expect_may_park(r, slow, 0, 0);
    policy_set_max_age_ms(slow, 3600000);
    expect_may_park(r, slow, 60000, 0);
    expect_may_park(r, slow, 3000000, 1); /* the request takes it beyond its age */
    expect_may_park(r, slow, INT64_MAX, 1);
    policy_set_max_age_ms(slow, 1);
    expect_may_park(r, slow, 0, 1);
    policy_set_max_age_ms(slow, 0);
    expect_ok(r->worker, settle_by(r->worker, r->message, slow, BH_OUTCOME_FAILED, "slow down"));
    rig_await_settled(r);
    expect_retried(r, SLOW_MS); /* the worker's own would park it */
    rig_take(r, "first");
    expect_ok(r->worker, settle_by(r->worker, r->message, slow, BH_OUTCOME_FAILED, "slow down"));
    rig_await_settled(r);
    expect_parked(r, "exhausted");
    bh_policy_free(slow);
    rig_free(r);
}
END_TEST

/* Fails by the slow policy, which the handler gives. The second attempt has the worker's, as its
 * settlement is refused. */
static bh_outcome fail_by_turns(bh_worker *worker, bh_message *taken, void *data)
{
    bh_policy *slow = slow_policy();
    int is_second = bh_worker_attempt(worker, taken) == 2;
    bh_settlement settlement = {.outcome = BH_OUTCOME_FAILED, .error = bh_str("slow down"), .policy = slow};
    if (is_second)
        settlement.traceparent = bh_str("no span");
    ck_assert_int_eq(bh_worker_settle(worker, taken, &settlement), is_second ? BH_ERR_ARGUMENT : BH_OK);
    if (!is_second)
        ck_assert_int_eq(bh_worker_settle(worker, taken, &settlement), BH_ERR_STATE);
    bh_policy_free(slow);
    (void)data;
    return is_second ? BH_OUTCOME_FAILED : BH_OUTCOME_OK; /* OK is ignored: the message is settled */
}

/* Keeps the delays of retries, and stops with the parking. */
static void keep_delay(bh_worker *worker, const bh_event *event, void *data)
{
    int64_t *delays = data;
    if (bh_event_what(event) == BH_EVENT_RETRIED)
        delays[bh_event_int(event, BH_FIELD_ATTEMPTS)] = bh_event_int(event, BH_FIELD_DELAY);
    else if (bh_event_what(event) == BH_EVENT_PARKED)
        bh_worker_stop(worker, LIMIT_MS);
}

START_TEST(a_handler_that_is_run_names_the_policy)
{
    rig *r = setup_rig(setup_first());
    int64_t delays[8] = {0};
    bh_policy *slow = slow_policy();
    ck_assert_int_eq(bh_topology_add_policy(r->topology, slow), BH_OK);
    bh_policy_free(slow);
    rig_start(r);
    rig_publish(r, "work.a", "first");
    ck_assert_int_eq(bh_worker_run(r->worker, fail_by_turns, keep_delay, delays), BH_OK);
    ck_assert_int_eq(delays[1], SLOW_MS);
    ck_assert_int_eq(delays[2], RIG_DELAY_MS);
    ck_assert_int_eq(delays[3], SLOW_MS);
    ck_assert_int_eq(delays[4], 0);
    rig_free(r);
}
END_TEST

START_TEST(a_message_of_another_worker_is_refused)
{
    rig *r = started_rig(), *other = rig_new_beside(r, "other");
    rig_start(other);
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    expect_status(other->worker, settle_as(other->worker, r->message, BH_OUTCOME_OK, "", 0), BH_ERR_ARGUMENT);
    rig_succeed(r);
    rig_free(other);
    rig_free(r);
}
END_TEST

START_TEST(taking_from_an_empty_queue_waits_as_long_as_told)
{
    rig *r = started_rig();
    rig_expect_silence(r, 0);
    int64_t start = now_ms();
    rig_expect_silence(r, 300);
    expect_waited(start, 300);
    rig_publish_and_take(r);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(no_more_than_the_prefetch_is_out)
{
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    rig_expect_refused(r, prefetch, -1, BH_ERR_ARGUMENT);
    rig_expect_refused(r, prefetch, 65536, BH_ERR_ARGUMENT);
    expect_bytes(bh_worker_error(r->worker), "prefetch is 65536: give a whole number from 0 to 65535");
    rig_set(r, prefetch, 2);
    rig_start(r);
    for (int i = 0; i < 5; i++)
        rig_publish(r, "work.a", "first");
    broker_await_depth(r->broker, r->queue, 3);
    bh_message *second = NULL;
    rig_take(r, "first");
    expect_ok(r->worker, bh_worker_take(r->worker, &second, LIMIT_MS));
    rig_expect_silence(r, 200);
    broker_await_depth(r->broker, r->queue, 3);
    rig_succeed(r);
    rig_take(r, "first");
    broker_await_depth(r->broker, r->queue, 2);
    rig_expect_silence(r, 0);
    expect_ok(r->worker, settle_as(r->worker, second, BH_OUTCOME_OK, "", 0));
    bh_message_free(second);
    broker_await_depth(r->broker, r->queue, 1);
    rig_free(r);
}
END_TEST

START_TEST(what_a_worker_did_not_settle_goes_back_to_the_queue)
{
    rig *r = started_rig();
    rig_publish(r, "work.a", "first");
    rig_publish(r, "work.a", "second");
    rig_take(r, "first");
    ck_assert(!bh_message_redelivered(r->message));
    rig_stop_worker(r);
    broker_await_depth(r->broker, r->queue, 2);
    rig_restart(r, BH_MODE_CREATE);
    for (int i = 0; i < 2; i++) {
        rig_take(r, NULL);
        ck_assert(bh_message_redelivered(r->message));
        expect_attempt(r, 1);
        rig_succeed(r);
    }
    rig_free(r);
}
END_TEST

START_TEST(freeing_a_worker_is_no_failed_attempt)
{
    enum { TIMES = 3 };
    rig *r = setup_rig(_i);
    policy_set_max_attempts(r->policy, 2);
    rig_start(r);
    for (int i = 0; i < 2; i++)
        rig_publish(r, "work.a", "first");
    for (int i = 0; i < TIMES; i++) { /* it has taken one, and the other was sent ahead */
        rig_take(r, "first");
        expect_attempt(r, 1);
        rig_restart(r, BH_MODE_CREATE);
    }
    rig_take(r, "first");
    expect_attempt(r, 1);
    rig_succeed(r);
    rig_take(r, "first");
    expect_attempt(r, 1);
    rig_fail(r, "507");
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(the_deletion_of_the_work_queue_cancels_the_consumer)
{
    rig *r = setup_rig(setup_first());
    rig_leave_work_queue(r);
    broker_declare_quorum(r->broker, r->queue);
    rig_start(rig_in_a_hurry(r));
    rig_publish_and_take(r);
    broker_delete_queue(r->broker, r->queue);
    expect_event(r, BH_EVENT_CANCELLED, BH_ERR_CANCELLED, r->queue);
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 0); /* nothing of it comes again */
    for (int i = 0; i < 2; i++)
        expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, r->queue);
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);

    broker_declare_quorum(r->broker, r->queue);
    rig_await_settled(r); /* messages in hand are not lost with their queue */
    rig_take(r, "first"); /* and retries find it again: the worker has bound it anew */
    expect_attempt(r, 2);
    rig_succeed(r);
    broker_publish_text(r->broker, "", r->queue, "second");
    rig_take(r, "second");
    rig_succeed(r);
    expect_no_event(r, BH_EVENT_DISCONNECTED);
    rig_free(r);
}
END_TEST

/* ------------------------------------------------------------------------------- the descriptor */

static int is_readable(const rig *r)
{
    return rig_wait_readable(r, 0);
}

static void expect_readable(const rig *r)
{
    ck_assert(rig_wait_readable(r, LIMIT_MS));
}

static void take_one_event(rig *r, bh_event_kind kind)
{
    bh_event *event = NULL;
    expect_ok(r->worker, bh_worker_take_event(r->worker, &event));
    ck_assert_int_eq(bh_event_what(event), kind);
    bh_event_free(event);
}

START_TEST(the_descriptor_is_readable_exactly_while_there_is_something_to_take)
{
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    bh_event *event = NULL;
    int fd = bh_worker_fd(r->worker);
    ck_assert_int_ge(fd, 0);
    ck_assert(!is_readable(r));
    start_by(r, broker_url());
    expect_readable(r);
    take_one_event(r, BH_EVENT_CONNECTED);
    ck_assert(!is_readable(r));
    expect_status(r->worker, bh_worker_take_event(r->worker, &event), BH_ERR_TIMEOUT);

    broker_publish_text(r->broker, "", r->queue, "first");
    broker_publish_text(r->broker, "", r->queue, "second");
    expect_readable(r);
    rig_take(r, "first");
    expect_readable(r); /* the second may be on its way */
    bh_message *second = NULL;
    expect_ok(r->worker, bh_worker_take(r->worker, &second, LIMIT_MS));
    ck_assert(!is_readable(r));
    rig_expect_silence(r, 0);
    ck_assert(!is_readable(r));
    expect_ok(r->worker, settle_as(r->worker, second, BH_OUTCOME_OK, "", 0));
    bh_message_free(second);
    ck_assert(!is_readable(r));
    rig_settle(r, BH_OUTCOME_PERMANENT, "no", 0);
    expect_readable(r);
    take_one_event(r, BH_EVENT_PARKED);
    ck_assert(!is_readable(r));
    ck_assert_int_eq(bh_worker_fd(r->worker), fd);

    expect_ok(r->worker, bh_worker_stop(r->worker, 0));
    expect_readable(r);
    take_one_event(r, BH_EVENT_DRAINED);
    ck_assert(!is_readable(r));
    expect_ok(r->worker, bh_worker_start(r->worker));
    expect_readable(r);
    take_one_event(r, BH_EVENT_CONNECTED);
    ck_assert_int_eq(bh_worker_fd(r->worker), fd);
    rig_free(r);
}
END_TEST

static int count_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

START_TEST(f13_a_worker_that_ended_has_no_descriptors)
{
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    int before = count_descriptors();
    bh_worker_close_fd(r->worker);
    ck_assert_int_eq(count_descriptors(), before);
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            start_by(r, broker_url());
        else
            expect_ok(r->worker, bh_worker_start(r->worker));
        rig_await(r, BH_EVENT_CONNECTED);
        bh_worker_close_fd(r->worker); /* it runs */
        ck_assert_int_gt(count_descriptors(), before + 2);
        expect_ok(r->worker, bh_worker_stop(r->worker, 0));
        rig_await(r, BH_EVENT_DRAINED);
        bh_worker_close_fd(r->worker);
        for (int64_t end_ms = now_ms() + LIMIT_MS; count_descriptors() > before && now_ms() < end_ms;)
            pause_ms(1); /* the thread closes its pipe after its last event */
        ck_assert_int_eq(count_descriptors(), before);
        expect_ok(r->worker, bh_worker_stop(r->worker, 0)); /* nothing to wake */
    }
    rig_free(r);
}
END_TEST

START_TEST(events_that_nobody_takes_are_bounded_and_those_missed_are_counted)
{
    enum { COUNT = 1500, MOST = 1024, AHEAD = 100 };
    rig *r = rig_that_waits();
    rig_prepare(r);
    rig_make_worker(r);
    rig_set(r, prefetch, AHEAD);
    rig_start(r);
    rig_forget_events(r);
    broker_publish_numbers(r->broker, r->queue, COUNT + AHEAD);
    for (int i = 0; i < COUNT; i++) {
        bh_message *taken = NULL;
        expect_ok(r->worker, bh_worker_take(r->worker, &taken, LIMIT_MS));
        expect_ok(r->worker, settle_as(r->worker, taken, BH_OUTCOME_FAILED, "507", 0));
        bh_message_free(taken);
    }
    bh_message *held[AHEAD]; /* as many as may be out: the others are acknowledged, with their events before that */
    for (int i = 0; i < AHEAD; i++)
        expect_ok(r->worker, bh_worker_take(r->worker, &held[i], LIMIT_MS));
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), COUNT);
    ck_assert_int_le(rig_count_events(r, BH_EVENT_RETRIED), MOST);
    int64_t missed = 0;
    for (int left = rig_count_events(r, BH_EVENT_MISSED); left > 0; left--) {
        rig_await(r, BH_EVENT_MISSED);
        missed += bh_event_int(r->event, BH_FIELD_COUNT);
    }
    ck_assert_int_ge(missed, COUNT - MOST);
    ck_assert_int_eq(missed + rig_count_events(r, BH_EVENT_RETRIED), COUNT);
    for (int i = 0; i < AHEAD; i++)
        bh_message_free(held[i]);
    rig_free(r);
}
END_TEST

/* ------------------------------------------------------------------------------------------ run */

typedef struct called {
    int count;
    int stop_after;
    int64_t last_attempt;
    int events[BH_EVENT_LAST];
    bh_event_kind last_event;
    bh_status last_status;
} called;

static void listen_to_all(bh_worker *worker, const bh_event *event, void *data)
{
    called *seen = data;
    bh_event_kind kind = bh_event_what(event);
    (void)worker;
    seen->events[kind]++;
    seen->last_event = kind;
    if (kind == BH_EVENT_CANCELLED)
        seen->last_status = (bh_status)bh_event_int(event, BH_FIELD_STATUS);
}

static void count_call(called *seen, bh_worker *worker, bh_message *taken)
{
    seen->last_attempt = bh_worker_attempt(worker, taken);
    if (++seen->count == seen->stop_after)
        bh_worker_stop(worker, LIMIT_MS);
}

static bh_outcome fail_twice(bh_worker *worker, bh_message *taken, void *data)
{
    called *seen = data;
    count_call(seen, worker, taken);
    if (seen->last_attempt > 2)
        return BH_OUTCOME_OK;
    settle_as(worker, taken, BH_OUTCOME_FAILED, "507 queue is full", 0);
    return BH_OUTCOME_FAILED;
}

static rig *rig_to_run(void)
{
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    expect_ok(r->worker, bh_worker_add_uri(r->worker, bh_str(broker_url())));
    return r;
}

/* The topology, before the worker itself makes it. */
static void make_topology(const rig *r)
{
    rig *owner = rig_new_beside(r, "work");
    rig_start(owner);
    rig_free(owner);
}

START_TEST(run_handles_messages_until_the_handler_stops_it)
{
    rig *r = rig_to_run();
    make_topology(r);
    rig_publish(r, "work.a", "first");
    rig_publish(r, "work.b", "second");
    called seen = {.stop_after = 6};
    expect_ok(r->worker, bh_worker_run(r->worker, fail_twice, listen_to_all, &seen));
    ck_assert_int_eq(seen.count, 6);
    ck_assert_int_eq(seen.last_attempt, 3);
    ck_assert_int_eq(seen.events[BH_EVENT_CONNECTED], 1);
    ck_assert_int_eq(seen.events[BH_EVENT_RETRIED], 4);
    ck_assert_int_eq(seen.events[BH_EVENT_DRAINED], 1);
    ck_assert_int_eq(seen.last_event, BH_EVENT_DRAINED);
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);
    rig_free(r);
}
END_TEST

START_TEST(run_needs_no_listener_and_goes_on_with_a_worker_that_was_started)
{
    rig *r = started_rig();
    rig_publish(r, "work.a", "first");
    called seen = {.stop_after = 3};
    expect_status(r->worker, bh_worker_run(r->worker, NULL, NULL, NULL), BH_ERR_ARGUMENT);
    expect_ok(r->worker, bh_worker_run(r->worker, fail_twice, NULL, &seen));
    ck_assert_int_eq(seen.last_attempt, 3);
    rig_free(r);
}
END_TEST

static bh_outcome return_no_outcome(bh_worker *worker, bh_message *taken, void *data)
{
    count_call(data, worker, taken);
    return (bh_outcome)42;
}

START_TEST(run_takes_a_value_that_is_no_outcome_for_a_failure)
{
    rig *r = rig_to_run();
    make_topology(r);
    rig_publish(r, "work.a", "first");
    called seen = {.stop_after = 3};
    expect_ok(r->worker, bh_worker_run(r->worker, return_no_outcome, listen_to_all, &seen));
    ck_assert_int_eq(seen.events[BH_EVENT_PARKED], 1);
    message parked;
    broker_get(r->broker, r->parked, &parked);
    expect_history(&parked, r, 3, "the handler returned a value that is no bh_outcome");
    message_free(&parked);
    rig_free(r);
}
END_TEST

static void *stop_soon(void *worker)
{
    pause_ms(200); /* so that it waits; a stop that comes earlier ends it too */
    bh_worker_stop(worker, LIMIT_MS);
    return NULL;
}

static bh_outcome never(bh_worker *worker, bh_message *taken, void *data)
{
    (void)worker;
    (void)taken;
    (void)data;
    ck_abort_msg("there is no message");
}

START_TEST(run_is_stopped_by_another_thread_while_it_waits)
{
    rig *r = started_rig();
    pthread_t thread;
    int64_t start = now_ms();
    ck_assert_int_eq(pthread_create(&thread, NULL, stop_soon, r->worker), 0);
    expect_ok(r->worker, bh_worker_run(r->worker, never, NULL, NULL));
    pthread_join(thread, NULL);
    expect_waited(start, 200);
    rig_free(r);
}
END_TEST

static bh_worker *to_stop;

static void stop_at_signal(int number)
{
    (void)number;
    bh_worker_stop(to_stop, LIMIT_MS);
}

START_TEST(run_is_stopped_by_a_signal_handler_while_it_waits)
{
    rig *r = started_rig();
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = stop_at_signal;
    to_stop = r->worker;
    ck_assert_int_eq(sigaction(SIGALRM, &action, &before), 0);
    int64_t start = now_ms();
    alarm(1);
    expect_ok(r->worker, bh_worker_run(r->worker, never, NULL, NULL));
    expect_waited(start, 900); /* alarms count whole ticks of another clock */
    sigaction(SIGALRM, &before, NULL);
    rig_free(r);
}
END_TEST

static bh_outcome succeed(bh_worker *worker, bh_message *taken, void *data)
{
    count_call(data, worker, taken);
    return BH_OUTCOME_OK;
}

START_TEST(run_ends_after_the_message_in_hand_and_can_be_called_again)
{
    rig *r = started_rig();
    for (int i = 0; i < 3; i++)
        rig_publish(r, "work.a", "first");
    called seen = {.count = 0};
    for (int i = 1; i <= 3; i++) {
        seen.stop_after = i;
        expect_ok(r->worker, bh_worker_run(r->worker, succeed, NULL, &seen));
        ck_assert_int_eq(seen.count, i);
    }
    rig_free_with_nothing_ready(r);
}
END_TEST

/* Another client deletes the work queue, waits until it is there again, and publishes. */
static void *delete_soon(void *data)
{
    const rig *r = data;
    broker *other = broker_open();
    broker_await_consumers(other, r->queue, 1);
    broker_delete_queue(other, r->queue);
    amqp_basic_properties_t properties = {._flags = 0};
    while (broker_try_publish(other, "", r->queue, &properties, bh_str("first")) != 0)
        pause_ms(5); /* returned; or nacked, while the broker is still making it */
    broker_close(other);
    return NULL;
}

START_TEST(run_goes_on_when_its_work_queue_was_deleted)
{
    rig *r = started_rig();
    pthread_t thread;
    called seen = {.stop_after = 3};
    ck_assert_int_eq(pthread_create(&thread, NULL, delete_soon, r), 0);
    expect_ok(r->worker, bh_worker_run(r->worker, fail_twice, listen_to_all, &seen));
    pthread_join(thread, NULL);
    ck_assert_int_eq(seen.count, 3);
    ck_assert_int_eq(seen.events[BH_EVENT_CANCELLED], 1);
    ck_assert_int_eq(seen.last_status, BH_ERR_CANCELLED);
    rig_free(r);
}
END_TEST

Suite *suite_running(void)
{
    Suite *suite = suite_create("running");
    TCase *taking = add_case(suite, "take and settle");
    tcase_add_test(taking, calls_at_the_wrong_time_are_refused_and_change_nothing);
    tcase_add_test(taking, a_message_is_settled_by_a_policy_of_the_topologys);
    tcase_add_test(taking, a_throttled_message_waits_without_an_attempt);
    tcase_add_test(taking, a_throttled_message_waits_with_a_policy_of_one_attempt);
    tcase_add_test(taking, a_handler_that_is_run_names_the_policy);
    tcase_add_test(taking, a_message_of_another_worker_is_refused);
    tcase_add_test(taking, taking_from_an_empty_queue_waits_as_long_as_told);
    tcase_add_test(taking, no_more_than_the_prefetch_is_out);
    tcase_add_test(taking, what_a_worker_did_not_settle_goes_back_to_the_queue);
    tcase_add_test(taking, the_deletion_of_the_work_queue_cancels_the_consumer);
    tcase_add_test(taking, the_descriptor_is_readable_exactly_while_there_is_something_to_take);
    tcase_add_test(taking, f13_a_worker_that_ended_has_no_descriptors);
    tcase_add_test(taking, events_that_nobody_takes_are_bounded_and_those_missed_are_counted);
    for (int i = 0; i < setup_count; i++)
        if (setup_can_be_served(&setups[i]))
            tcase_add_loop_test(add_setup_case(suite, i), freeing_a_worker_is_no_failed_attempt, i, i + 1);
    TCase *running = add_case(suite, "run");
    tcase_add_test(running, run_handles_messages_until_the_handler_stops_it);
    tcase_add_test(running, run_needs_no_listener_and_goes_on_with_a_worker_that_was_started);
    tcase_add_test(running, run_takes_a_value_that_is_no_outcome_for_a_failure);
    tcase_add_test(running, run_is_stopped_by_another_thread_while_it_waits);
    tcase_add_test(running, run_is_stopped_by_a_signal_handler_while_it_waits);
    tcase_add_test(running, run_ends_after_the_message_in_hand_and_can_be_called_again);
    tcase_add_test(running, run_goes_on_when_its_work_queue_was_deleted);
    return suite;
}
