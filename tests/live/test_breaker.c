/* A worker and its circuit breaker: what a downstream gets that is down, and what becomes of the
 * messages. */
#include "../reading.h"
#include "suites.h"
#include "trouble.h"

#include <backhop/breaker.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HANDLERS = 4, MESSAGES = 200, ROW = 5, PAUSE_MS = 200, MOST_TRIES = 40 };

/* A rig whose worker has the breaker, and is started. */
static rig *rig_with(bh_breaker *breaker, int at)
{
    rig *r = setup_rig(at);
    ck_assert_int_eq(policy_set_max_attempts(r->policy, MOST_TRIES), BH_OK);
    rig_prepare(r);
    rig_make_worker(r);
    rig_set(r, breaker, breaker);
    rig_start(r);
    return r;
}

static void open_until_closed(bh_breaker *breaker)
{
    ck_assert_int_eq(bh_breaker_open(breaker, bh_str(""), BH_BREAKER_NEVER, now_ms()), BH_OK);
}

/* Each probe that failed began two generations: half-open, and open again. */
static int count_probes(bh_breaker *breaker)
{
    bh_breaker_view view;
    bh_breaker_read(breaker, bh_str(""), now_ms(), &view);
    return (int)(view.generation / 2);
}

/* ------------------------------------------------------------------------------- the downstream */

/* A downstream that handlers call, with their counts. */
typedef struct downstream {
    bh_worker *worker;
    atomic_int is_down;
    atomic_int is_over;
    atomic_int calls;     /* while it was down */
    atomic_int succeeded; /* messages */
    atomic_int wrong;     /* attempts that are not the number of the message's own failures, plus one */
    atomic_int failures[MESSAGES];
} downstream;

static void call_once(downstream *self, bh_message *taken)
{
    int number = atoi(bh_message_body(taken).data);
    int is_down = atomic_load(&self->is_down);
    if (bh_worker_attempt(self->worker, taken) != atomic_load(&self->failures[number]) + 1)
        atomic_fetch_add(&self->wrong, 1);
    atomic_fetch_add(is_down ? &self->calls : &self->succeeded, 1);
    atomic_fetch_add(&self->failures[number], is_down);
    pause_ms(2);
    bh_worker_settle(self->worker, taken,
                     &(bh_settlement){.outcome = is_down ? BH_OUTCOME_FAILED : BH_OUTCOME_OK,
                                      .error = bh_str(is_down ? "507" : ""),
                                      .error_class = bh_str(is_down ? "QueueFull" : "")});
}

static void *handle(void *data)
{
    downstream *self = data;
    bh_message *taken;
    while (!atomic_load(&self->is_over)) {
        if (bh_worker_take(self->worker, &taken, 100) != BH_OK)
            continue;
        call_once(self, taken);
        bh_message_free(taken);
    }
    return NULL;
}

static void start_handlers(downstream *self, pthread_t threads[HANDLERS])
{
    for (int i = 0; i < HANDLERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, handle, self), 0);
}

static void end_handlers(downstream *self, pthread_t threads[HANDLERS])
{
    atomic_store(&self->is_over, 1);
    for (int i = 0; i < HANDLERS; i++)
        pthread_join(threads[i], NULL);
}

static void await_count(const atomic_int *counted, int count)
{
    for (int64_t end = now_ms() + LIMIT_MS; atomic_load(counted) < count && now_ms() < end;)
        pause_ms(10);
    ck_assert_int_eq(atomic_load(counted), count);
}

START_TEST(only_probes_reach_a_downstream_that_is_down)
{
    downstream api = {.is_down = 1};
    pthread_t threads[HANDLERS];
    bh_breaker *breaker = quick_breaker(ROW, PAUSE_MS);
    rig *r = rig_with(breaker, _i);
    api.worker = r->worker;
    broker_publish_numbers(r->broker, r->queue, MESSAGES);
    start_handlers(&api, threads);
    enum { PROBES = 5 };
    for (int i = 0; i < PROBES; i++) {
        rig_await(r, BH_EVENT_BREAKER_OPENED);
        expect_bytes(bh_event_string(r->event, BH_FIELD_BREAKER), "purge API");
        expect_bytes(bh_event_text(r->event), i ? "a probe failed: QueueFull" : "5 failed in a row: QueueFull");
        ck_assert_int_gt(bh_event_int(r->event, BH_FIELD_DELAY), 0);
        rig_await(r, BH_EVENT_BREAKER_HALF_OPEN);
    }
    int calls = atomic_load(&api.calls); /* before the probes are counted: a slow machine has more of them */
    ck_assert_int_le(calls, ROW + 2 * HANDLERS + count_probes(breaker));
    atomic_store(&api.is_down, 0);
    rig_await(r, BH_EVENT_BREAKER_CLOSED);
    await_count(&api.succeeded, MESSAGES);
    end_handlers(&api, threads);
    ck_assert_int_eq(atomic_load(&api.wrong), 0);
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    rig_free(r);
    bh_breaker_free(breaker);
}
END_TEST

/* -------------------------------------------------------------------------------------- holding */

START_TEST(a_held_message_cannot_be_taken_and_the_descriptor_is_quiet)
{
    bh_breaker *breaker = quick_breaker(ROW, PAUSE_MS);
    rig *r = rig_with(breaker, setup_first());
    bh_message *taken;
    open_until_closed(breaker);
    rig_publish(r, "work.a", "first");
    rig_await(r, BH_EVENT_BREAKER_OPENED);
    ck_assert_str_eq(rig_await_health(r, BH_HEALTH_PAUSED), "opened by hand");
    expect_status(r->worker, bh_worker_take(r->worker, &taken, 300), BH_ERR_TIMEOUT);
    rig_forget_events(r);
    ck_assert_int_eq(rig_wait_readable(r, 300), 0);
    bh_breaker_close(breaker, bh_str(""), now_ms());
    ck_assert_int_eq(rig_wait_readable(r, LIMIT_MS), 1);
    rig_take(r, "first");
    expect_attempt(r, 1);
    ck_assert_int_eq(past_of(r->history).deferrals, 0);
    rig_succeed(r);
    rig_await(r, BH_EVENT_BREAKER_CLOSED);
    rig_await_health(r, BH_HEALTH_READY);
    rig_free(r);
    bh_breaker_free(breaker);
}
END_TEST

START_TEST(a_breaker_serves_two_workers)
{
    bh_breaker *breaker = quick_breaker(1, 60000);
    rig *one = rig_with(breaker, setup_first()), *other = rig_with(breaker, setup_first());
    rig_publish(one, "work.a", "first");
    rig_take(one, "first");
    rig_fail(one, "507");
    rig_publish(other, "work.a", "second");
    rig_await(other, BH_EVENT_BREAKER_OPENED);
    rig_expect_silence(other, 300);
    bh_breaker_close(breaker, bh_str(""), now_ms());
    rig_take(other, "second");
    rig_succeed(other);
    rig_take(one, "first");
    expect_attempt(one, 2);
    rig_succeed(one);
    rig_free(one);
    rig_free(other);
    bh_breaker_free(breaker);
}
END_TEST

/* If the worker did not look at its breaker, only its look at the queue would wake it: after 60
 * s. */
START_TEST(an_idle_worker_emits_a_change_by_hand)
{
    bh_breaker *breaker = quick_breaker(ROW, PAUSE_MS);
    rig *r = rig_with(breaker, setup_first());
    open_until_closed(breaker);
    rig_await(r, BH_EVENT_BREAKER_OPENED);
    bh_breaker_close(breaker, bh_str(""), now_ms());
    rig_await(r, BH_EVENT_BREAKER_CLOSED);
    bh_breaker_disable(breaker, bh_str(""), now_ms());
    rig_await(r, BH_EVENT_BREAKER_CLOSED);
    expect_part(bh_event_text(r->event), "disabled");
    rig_free(r);
    bh_breaker_free(breaker);
}
END_TEST

START_TEST(a_throttled_message_opens_it_for_the_whole_queue)
{
    bh_breaker *breaker = quick_breaker(ROW, PAUSE_MS);
    rig *r = rig_with(breaker, setup_first());
    rig_publish_and_take(r);
    expect_ok(r->worker, bh_worker_settle(r->worker, r->message,
                                          &(bh_settlement){.outcome = BH_OUTCOME_THROTTLED,
                                                           .error = bh_str("429"),
                                                           .retry_after_ms = 1500,
                                                           .whole_queue = 1}));
    rig_await(r, BH_EVENT_BREAKER_OPENED);
    expect_bytes(bh_event_text(r->event), "throttled for 1.5 s");
    rig_publish(r, "work.b", "second");
    rig_expect_silence(r, 500);
    rig_take(r, NULL); /* the probe */
    expect_attempt(r, 1);
    rig_succeed(r);
    rig_take(r, NULL);
    expect_attempt(r, 1);
    rig_succeed(r);
    rig_free(r);
    bh_breaker_free(breaker);
}
END_TEST

START_TEST(a_failure_of_the_message_itself_opens_nothing)
{
    bh_breaker *breaker = quick_breaker(1, 60000);
    rig *r = rig_with(breaker, setup_first());
    rig_publish_and_take(r);
    expect_ok(r->worker, bh_worker_settle(r->worker, r->message,
                                          &(bh_settlement){.outcome = BH_OUTCOME_FAILED, .is_own_fault = 1}));
    rig_await(r, BH_EVENT_RETRIED);
    rig_take(r, "first");
    rig_park(r, "malformed");
    rig_publish(r, "work.b", "second");
    rig_take(r, "second");
    rig_succeed(r);
    expect_no_event(r, BH_EVENT_BREAKER_OPENED);
    rig_free(r);
    bh_breaker_free(breaker);
}
END_TEST

/* ----------------------------------------------------------------------------- stops and faults */

START_TEST(a_stop_while_it_is_open_loses_nothing)
{
    enum { COUNT = 10 };
    bh_breaker *breaker = quick_breaker(ROW, PAUSE_MS);
    rig *r = rig_with(breaker, setup_first());
    open_until_closed(breaker);
    broker_publish_numbers(r->broker, r->queue, COUNT);
    rig_await(r, BH_EVENT_BREAKER_OPENED);
    rig_stop_worker(r);
    broker_await_depth(r->broker, r->queue, COUNT);
    bh_breaker_close(breaker, bh_str(""), now_ms());
    rig_make_worker(r);
    rig_set(r, breaker, breaker);
    rig_connect(r);
    for (int i = 0; i < COUNT; i++) {
        rig_take(r, NULL);
        expect_attempt(r, 1);
        rig_succeed(r);
    }
    rig_free(r);
    bh_breaker_free(breaker);
}
END_TEST

START_TEST(a_lost_connection_while_it_is_open_loses_nothing)
{
    bh_breaker *breaker = quick_breaker(ROW, PAUSE_MS);
    rig *r = setup_rig(setup_first());
    rig_prepare(r);
    rig_make_worker(r);
    rig_set(r, breaker, breaker);
    proxy *through = start_by_proxy(r, "");
    open_until_closed(breaker);
    rig_publish(r, "work.a", "first");
    rig_await(r, BH_EVENT_BREAKER_OPENED);
    proxy_cut(through);
    rig_await(r, BH_EVENT_DISCONNECTED);
    rig_await(r, BH_EVENT_CONNECTED);
    rig_expect_silence(r, 300);
    bh_breaker_close(breaker, bh_str(""), now_ms());
    rig_take(r, "first");
    expect_attempt(r, 1);
    rig_succeed(r);
    rig_free(r);
    proxy_close(through);
    bh_breaker_free(breaker);
}
END_TEST

/* Opens it for longer than messages are held, and publishes. The consumer is cancelled, and the
 * messages wait. */
START_TEST(messages_that_are_held_too_long_wait_without_an_attempt)
{
    enum { COUNT = 20, PAUSE = 33000 };
    bh_breaker *breaker = quick_breaker(ROW, PAUSE_MS);
    rig *r = setup_rig(_i);
    rig_prepare(r);
    rig_make_worker(r);
    rig_set(r, breaker, breaker);
    rig_set(r, emits[BH_EVENT_DEFERRED], 1);
    rig_start(r);
    int64_t start = now_ms();
    ck_assert_int_eq(bh_breaker_open(breaker, bh_str(""), start + PAUSE, start), BH_OK);
    broker_publish_numbers(r->broker, r->queue, COUNT);
    rig_await(r, BH_EVENT_BREAKER_OPENED);
    rig_expect_silence(r, 29000);
    for (int i = 0; i < COUNT; i++) {
        rig_await(r, BH_EVENT_DEFERRED);
        ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_DEFERRALS), 1);
        ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_ATTEMPTS), 0);
        ck_assert_int_le(bh_event_int(r->event, BH_FIELD_DELAY), PAUSE);
    }
    for (int i = 0; i < COUNT; i++) {
        rig_take(r, NULL);
        expect_attempt(r, 1);
        ck_assert_int_eq(past_of(r->history).deferrals, 1);
        rig_succeed(r);
    }
    ck_assert_int_ge(now_ms() - start, PAUSE);
    rig_free(r);
    bh_breaker_free(breaker);
}
END_TEST

Suite *suite_breaker(void)
{
    Suite *suite = suite_create("breaker");
    const setup_test by_setup[] = {{only_probes_reach_a_downstream_that_is_down, 0}};
    setup_add_tests(suite, by_setup, sizeof by_setup / sizeof by_setup[0]);
    TCase *holding = add_case(suite, "holding");
    tcase_add_test(holding, a_held_message_cannot_be_taken_and_the_descriptor_is_quiet);
    tcase_add_test(holding, a_breaker_serves_two_workers);
    tcase_add_test(holding, a_throttled_message_opens_it_for_the_whole_queue);
    tcase_add_test(holding, a_failure_of_the_message_itself_opens_nothing);
    tcase_add_test(holding, a_stop_while_it_is_open_loses_nothing);
    tcase_add_test(holding, a_lost_connection_while_it_is_open_loses_nothing);
    tcase_add_test(long_case(add_case(suite, "an idle worker")), an_idle_worker_emits_a_change_by_hand);
    tcase_add_loop_test(longest_case(add_case(suite, "held too long")),
                        messages_that_are_held_too_long_wait_without_an_attempt, setup_first(), setup_first() + 1);
    return suite;
}
