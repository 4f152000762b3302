#include "setups.h"
#include "suites.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static rig *started_rig(void)
{
    rig *r = setup_rig(setup_first());
    rig_start(r);
    return r;
}

/* -------------------------------------------------------------------------------------------------- take and settle */

START_TEST(calls_at_the_wrong_time_are_refused_and_change_nothing)
{
    rig *r = setup_rig(setup_first());
    rig_prepare(r);
    rig_make_worker(r);
    expect_status(r->worker, bh_worker_take(r->worker, 0), BH_ERR_STATE);
    expect_status(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE), BH_ERR_STATE);
    rig_connect(r);
    expect_status(r->worker, bh_worker_settle(r->worker, BH_OUTCOME_OK, bh_str(""), 0), BH_ERR_STATE);
    expect_status(r->worker, bh_worker_delivery(r->worker, r->delivery), BH_ERR_STATE);
    expect_bytes(bh_worker_body(r->worker), "");
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    expect_status(r->worker, bh_worker_take(r->worker, 0), BH_ERR_STATE);
    expect_bytes(bh_worker_body(r->worker), "first");
    rig_succeed(r);
    expect_status(r->worker, bh_worker_settle(r->worker, BH_OUTCOME_OK, bh_str(""), 0), BH_ERR_STATE);
    expect_bytes(bh_worker_body(r->worker), "");
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
    rig_publish(r, "work.a", "first");
    rig_take(r, "first");
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(a_worker_takes_no_more_than_its_prefetch)
{
    rig *r = started_rig();
    expect_ok(r->worker, bh_worker_set_prefetch(r->worker, 2));
    for (int i = 0; i < 5; i++)
        rig_publish(r, "work.a", "first");
    rig_take(r, "first");
    broker_await_depth(r->broker, r->queue, 3);
    rig_succeed(r);
    broker_await_depth(r->broker, r->queue, 2);
    ck_assert_int_eq(bh_worker_set_prefetch(r->worker, 0), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_worker_set_prefetch(r->worker, 65536), BH_ERR_ARGUMENT);
    rig_free(r);
}
END_TEST

START_TEST(what_a_worker_did_not_settle_goes_back_to_the_queue)
{
    rig *r = started_rig();
    rig_publish(r, "work.a", "first");
    rig_publish(r, "work.a", "second");
    rig_take(r, "first");
    ck_assert(!bh_worker_redelivered(r->worker));
    rig_stop_worker(r);
    broker_await_depth(r->broker, r->queue, 2);
    rig_make_worker(r);
    rig_connect(r);
    rig_take(r, NULL);
    ck_assert(bh_worker_redelivered(r->worker));
    ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
    rig_succeed(r);
    rig_take(r, NULL);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(freeing_a_worker_is_no_failed_attempt)
{
    enum { TIMES = 3 };
    rig *r = setup_rig(_i);
    bh_policy_set_max_attempts(r->policy, 2);
    rig_start(r);
    rig_publish(r, "work.a", "first");
    for (int i = 0; i < TIMES; i++) {
        rig_take(r, "first");
        ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
        rig_stop_worker(r);
        rig_make_worker(r);
        rig_connect(r);
    }
    rig_take(r, "first");
    rig_fail(r, "507");
    rig_take(r, "first");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 2);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(the_deletion_of_the_work_queue_cancels_the_consumer)
{
    rig *r = setup_rig(setup_first());
    rig_leave_work_queue(r);
    broker_declare_quorum(r->broker, r->queue);
    rig_start(r);
    rig_publish(r, "work.a", "first");
    rig_take(r, "first");
    broker_delete_queue(r->broker, r->queue);
    rig_succeed(r);
    expect_status(r->worker, bh_worker_take(r->worker, LIMIT_MS), BH_ERR_CANCELLED);
    expect_error(r->worker, r->queue);
    expect_status(r->worker, bh_worker_take(r->worker, LIMIT_MS), BH_ERR_MISSING);
    expect_error(r->worker, r->queue);

    broker_declare_quorum(r->broker, r->queue);
    broker_publish_text(r->broker, "", r->queue, "second");
    rig_take(r, "second");
    rig_fail(r, "507"); /* and its retries find it again: the worker has bound it anew */
    rig_take(r, "second");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 2);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------------- run */

typedef struct called {
    int count;
    int stop_after;
    int64_t last_attempt;
} called;

static bh_outcome fail_twice(bh_worker *worker, void *data)
{
    called *seen = data;
    seen->count++;
    seen->last_attempt = bh_worker_attempt(worker);
    if (seen->count == seen->stop_after)
        bh_worker_stop(worker);
    if (seen->last_attempt > 2)
        return BH_OUTCOME_OK;
    bh_worker_fail(worker, bh_str("507 queue is full"), 0);
    return BH_OUTCOME_FAILED;
}

START_TEST(run_handles_messages_until_the_handler_stops_it)
{
    rig *r = started_rig();
    rig_publish(r, "work.a", "first");
    rig_publish(r, "work.b", "second");
    called seen = {.stop_after = 6};
    expect_ok(r->worker, bh_worker_run(r->worker, fail_twice, &seen));
    ck_assert_int_eq(seen.count, 6);
    ck_assert_int_eq(seen.last_attempt, 3);
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);
    rig_free(r);
}
END_TEST

static bh_outcome always_fail(bh_worker *worker, void *data)
{
    if (++*(int *)data == 3)
        bh_worker_stop(worker);
    bh_worker_fail(worker, bh_str("507 queue is full"), 0);
    return BH_OUTCOME_FAILED;
}

START_TEST(run_parks_with_the_error_that_the_handler_told)
{
    rig *r = started_rig();
    rig_publish(r, "work.a", "first");
    int calls = 0;
    expect_ok(r->worker, bh_worker_run(r->worker, always_fail, &calls));
    message parked;
    broker_get(r->broker, r->parked, &parked);
    expect_history(&parked, r, 3, "507 queue is full");
    message_free(&parked);
    rig_free(r);
}
END_TEST

static bh_outcome ask_for_a_delay(bh_worker *worker, void *data)
{
    int64_t *times = data;
    int64_t attempt = bh_worker_attempt(worker);
    times[attempt] = now_ms();
    if (attempt == 2)
        bh_worker_stop(worker);
    else
        bh_worker_fail(worker, bh_str("429"), 300);
    return attempt == 2 ? BH_OUTCOME_OK : BH_OUTCOME_FAILED;
}

START_TEST(run_waits_as_long_as_the_handler_asks)
{
    rig *r = setup_rig(setup_first());
    bh_policy_set_max_retry_after_ms(r->policy, 400);
    rig_start(r);
    rig_publish(r, "work.a", "first");
    int64_t times[3] = {0, 0, 0};
    expect_ok(r->worker, bh_worker_run(r->worker, ask_for_a_delay, times));
    ck_assert_int_ge(times[2] - times[1] + 1, 315);
    ck_assert_int_le(times[2] - times[1], 315 + LATENESS_MS);
    rig_free(r);
}
END_TEST

static void *stop_soon(void *worker)
{
    pause_ms(200);
    bh_worker_stop(worker);
    return NULL;
}

static bh_outcome never(bh_worker *worker, void *data)
{
    (void)worker;
    (void)data;
    ck_abort_msg("there is no message");
}

START_TEST(run_is_stopped_by_another_thread_while_it_waits)
{
    rig *r = started_rig();
    pthread_t thread;
    int64_t start = now_ms();
    ck_assert_int_eq(pthread_create(&thread, NULL, stop_soon, r->worker), 0);
    expect_ok(r->worker, bh_worker_run(r->worker, never, NULL));
    pthread_join(thread, NULL);
    expect_waited(start, 200);
    rig_free(r);
}
END_TEST

static bh_worker *to_stop;

static void stop_at_signal(int number)
{
    (void)number;
    bh_worker_stop(to_stop);
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
    expect_ok(r->worker, bh_worker_run(r->worker, never, NULL));
    expect_waited(start, 900); /* alarms count whole ticks of another clock */
    sigaction(SIGALRM, &before, NULL);
    rig_free(r);
}
END_TEST

static bh_outcome succeed_and_stop(bh_worker *worker, void *data)
{
    ++*(int *)data;
    bh_worker_stop(worker);
    return BH_OUTCOME_OK;
}

START_TEST(run_ends_after_the_message_in_hand_and_can_be_called_again)
{
    rig *r = started_rig();
    for (int i = 0; i < 3; i++)
        rig_publish(r, "work.a", "first");
    int calls = 0;
    for (int i = 1; i <= 3; i++) {
        expect_ok(r->worker, bh_worker_run(r->worker, succeed_and_stop, &calls));
        ck_assert_int_eq(calls, i);
    }
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    rig_free(r);
}
END_TEST

static void *repair_soon(void *data)
{
    const rig *r = data;
    broker *other = broker_open();
    pause_ms(400);
    broker_bind(other, rig_rung(r, RIG_DELAY_MS), rig_rung(r, RIG_DELAY_MS), "");
    broker_close(other);
    return NULL;
}

START_TEST(run_tries_a_publish_that_fails_again)
{
    rig *r = started_rig();
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_NONE));
    rig_publish(r, "work.a", "first");
    broker_unbind(r->broker, rig_rung(r, RIG_DELAY_MS), rig_rung(r, RIG_DELAY_MS), "");
    pthread_t thread;
    called seen = {.stop_after = 3};
    ck_assert_int_eq(pthread_create(&thread, NULL, repair_soon, r), 0);
    expect_ok(r->worker, bh_worker_run(r->worker, fail_twice, &seen));
    pthread_join(thread, NULL);
    ck_assert_int_eq(seen.count, 3); /* the handler is not called again for a publish that failed */
    ck_assert_int_eq(seen.last_attempt, 3);
    rig_free(r);
}
END_TEST

static void *delete_soon(void *data)
{
    const rig *r = data;
    broker *other = broker_open();
    pause_ms(200);
    broker_delete_queue(other, r->queue);
    broker_close(other);
    return NULL;
}

typedef struct refused {
    int large, small;
} refused;

/* Fails the message that leaves no room for a retry's headers; acknowledges the others. */
static bh_outcome fail_large(bh_worker *worker, void *data)
{
    refused *seen = data;
    if (bh_worker_body(worker).data[0] == 'l') {
        seen->large++;
        bh_worker_fail(worker, bh_str("507"), 0);
        return BH_OUTCOME_FAILED;
    }
    if (++seen->small == 2)
        bh_worker_stop(worker);
    return BH_OUTCOME_OK;
}

START_TEST(run_leaves_behind_a_message_that_no_broker_takes_and_tells_in_the_end)
{
    static const char
        filler[131072 - 8 - 12 - 18]; /* with flags, length and the name "filler", all that a frame holds */
    rig *r = started_rig();
    expect_ok(r->worker, bh_worker_set_prefetch(r->worker, 2));
    amqp_table_entry_t header = entry_bytes("filler", AMQP_FIELD_KIND_BYTES, (bh_bytes){filler, sizeof filler});
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &header}};
    rig_publish(r, "work.a", "small");
    broker_publish(r->broker, r->exchange, "work.a", &properties, bh_str("large"));
    rig_publish(r, "work.a", "small");
    refused seen = {0, 0};
    expect_status(r->worker, bh_worker_run(r->worker, fail_large, &seen), BH_ERR_FRAME);
    ck_assert_int_eq(seen.large, 1);
    ck_assert_int_eq(seen.small, 2);
    rig_stop_worker(r);
    broker_await_depth(r->broker, r->queue, 1);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);
    rig_free(r);
}
END_TEST

START_TEST(run_ends_with_the_error_that_it_cannot_mend)
{
    rig *r = started_rig();
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, delete_soon, r), 0);
    expect_status(r->worker, bh_worker_run(r->worker, never, NULL), BH_ERR_CANCELLED);
    pthread_join(thread, NULL);
    rig_free(r);
}
END_TEST

Suite *suite_running(void)
{
    Suite *suite = suite_create("running");
    TCase *taking = add_case(suite, "take and settle");
    tcase_add_test(taking, calls_at_the_wrong_time_are_refused_and_change_nothing);
    tcase_add_test(taking, taking_from_an_empty_queue_waits_as_long_as_told);
    tcase_add_test(taking, a_worker_takes_no_more_than_its_prefetch);
    tcase_add_test(taking, what_a_worker_did_not_settle_goes_back_to_the_queue);
    tcase_add_test(taking, the_deletion_of_the_work_queue_cancels_the_consumer);
    for (int i = 0; i < setup_count; i++)
        if (setup_can_be_served(&setups[i]))
            tcase_add_loop_test(add_case(suite, setups[i].name), freeing_a_worker_is_no_failed_attempt, i, i + 1);
    TCase *running = add_case(suite, "run");
    tcase_add_test(running, run_handles_messages_until_the_handler_stops_it);
    tcase_add_test(running, run_parks_with_the_error_that_the_handler_told);
    tcase_add_test(running, run_waits_as_long_as_the_handler_asks);
    tcase_add_test(running, run_is_stopped_by_another_thread_while_it_waits);
    tcase_add_test(running, run_is_stopped_by_a_signal_handler_while_it_waits);
    tcase_add_test(running, run_ends_after_the_message_in_hand_and_can_be_called_again);
    tcase_add_test(running, run_tries_a_publish_that_fails_again);
    tcase_add_test(running, run_leaves_behind_a_message_that_no_broker_takes_and_tells_in_the_end);
    tcase_add_test(running, run_ends_with_the_error_that_it_cannot_mend);
    return suite;
}
