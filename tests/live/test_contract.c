/* The cases of tests/contract/cases.json that a handler in C can have, by bh_worker_run and by take
 * and settle. */
#include "suites.h"
#include "trouble.h"

#include <stdio.h>
#include <string.h>

enum { TIMEOUT_MS = 200, LONG_MS = 60000 };

static void emit_everything(rig *r)
{
    for (int kind = 0; kind < BH_EVENT_LAST; kind++)
        r->settings.emits[kind] = 1;
    rig_apply(r);
}

/* A rig whose worker emits every event. timeout_ms: of its handlers; 0: none. */
static rig *contract_rig(int64_t timeout_ms, int prefetch)
{
    rig *r = setup_rig(setup_first());
    rig_prepare(r);
    rig_make_worker(r);
    emit_everything(r);
    rig_set(r, handler_timeout_ms, timeout_ms);
    rig_set(r, prefetch, prefetch);
    rig_start(r);
    return r;
}

/* The worker handles another message. */
static void expect_it_goes_on(rig *r)
{
    rig_publish(r, "work.1", "another");
    do
        rig_take(r, NULL);
    while (bh_message_body(r->message).size != strlen("another"));
    rig_succeed(r);
    rig_await_health(r, BH_HEALTH_READY);
}

static const struct contract_case {
    const char *id;
    bh_outcome outcome;
    int64_t max_attempts;
    int64_t retry_after_ms;
    bh_event_kind events[3];
    size_t event_count;
} cases[] = {
    {"returns", BH_OUTCOME_OK, 3, 0, {BH_EVENT_DELIVERED, BH_EVENT_SUCCEEDED}, 2},
    {"error", BH_OUTCOME_FAILED, 3, 0, {BH_EVENT_DELIVERED, BH_EVENT_FAILED, BH_EVENT_RETRIED}, 3},
    {"error-last", BH_OUTCOME_FAILED, 1, 0, {BH_EVENT_DELIVERED, BH_EVENT_FAILED, BH_EVENT_PARKED}, 3},
    {"park", BH_OUTCOME_PERMANENT, 3, 0, {BH_EVENT_DELIVERED, BH_EVENT_FAILED, BH_EVENT_PARKED}, 3},
    {"drop", BH_OUTCOME_DROPPED, 3, 0, {BH_EVENT_DELIVERED, BH_EVENT_DROPPED}, 2},
    {"retry-after", BH_OUTCOME_FAILED, 3, LONG_MS, {BH_EVENT_DELIVERED, BH_EVENT_FAILED, BH_EVENT_RETRIED}, 3},
    {"throttled", BH_OUTCOME_THROTTLED, 3, LONG_MS, {BH_EVENT_DELIVERED, BH_EVENT_THROTTLED, BH_EVENT_DEFERRED}, 3},
};

enum { CASES = sizeof cases / sizeof cases[0] };

/* The rig's events of the case, in its order, and all with one id. */
static void expect_case(rig *r, const struct contract_case *of)
{
    char id[64] = "";
    for (size_t i = 0; i < of->event_count; i++) {
        rig_await(r, of->events[i]);
        bh_bytes got = bh_event_string(r->event, BH_FIELD_ID);
        if (i == 0)
            snprintf(id, sizeof id, "%s", got.data);
        ck_assert_msg(got.size == 32 && strcmp(got.data, id) == 0, "%s: %s has the id \"%s\", and not \"%s\"", of->id,
                      bh_event_name((int)of->events[i]).data, got.data, id); /* T5 */
    }
    if (of->retry_after_ms)
        ck_assert_int_ge(bh_event_int(r->event, BH_FIELD_DELAY), of->retry_after_ms);
}

START_TEST(a_case_by_take_and_settle)
{
    const struct contract_case *of = &cases[_i];
    rig *r = setup_rig(setup_first());
    policy_set_max_attempts(r->policy, of->max_attempts);
    policy_set_max_retry_after_ms(r->policy, LONG_MS);
    rig_prepare(r);
    rig_make_worker(r);
    emit_everything(r);
    rig_start(r);
    rig_publish(r, "work.a", "first"); /* without an id */
    rig_take(r, "first");
    rig_settle(r, of->outcome, "boom", of->retry_after_ms);
    expect_case(r, of);
    expect_it_goes_on(r);
    rig_free(r);
}
END_TEST

typedef struct run {
    rig *rig;
    bh_outcome outcome;
    int64_t retry_after_ms;
    bh_event_kind events[8];
    size_t event_count;
    int calls;
} run;

static bh_outcome handle(bh_worker *worker, bh_message *taken, void *data)
{
    run *self = data;
    if (self->calls++ == 0) {
        bh_settlement settlement = {
            .outcome = self->outcome, .error = bh_str("boom"), .retry_after_ms = self->retry_after_ms};
        ck_assert_int_eq(bh_worker_settle(worker, taken, &settlement), BH_OK);
        rig_publish(self->rig, "work.1", "another"); /* the worker goes on */
        return self->outcome;
    }
    bh_worker_stop(worker, LONG_MS);
    return BH_OUTCOME_OK;
}

/* Keeps the events of the first message. */
static void keep_event(bh_worker *worker, const bh_event *event, void *data)
{
    run *self = data;
    (void)worker;
    if (bh_event_message(event) && self->calls < 2 && self->event_count < 8)
        self->events[self->event_count++] = bh_event_what(event);
}

START_TEST(a_case_by_run)
{
    const struct contract_case *of = &cases[_i];
    rig *r = setup_rig(setup_first());
    run self = {.rig = r, .outcome = of->outcome, .retry_after_ms = of->retry_after_ms};
    policy_set_max_attempts(r->policy, of->max_attempts);
    policy_set_max_retry_after_ms(r->policy, LONG_MS);
    policy_set_initial_ms(r->policy, LONG_MS); /* its retry does not come before the other message */
    rig_prepare(r);
    rig_make_worker(r);
    emit_everything(r);
    rig_start(r);
    rig_publish(r, "work.1", "first");
    expect_ok(r->worker, bh_worker_run(r->worker, handle, keep_event, &self));
    ck_assert_int_eq(self.calls, 2);
    ck_assert_uint_ge(self.event_count, 1);
    for (size_t i = 0, at = 0; i < self.event_count && at < of->event_count; i++)
        ck_assert_int_eq(self.events[i], of->events[at++]);
    rig_await_health(r, BH_HEALTH_STOPPED);
    rig_free(r);
}
END_TEST

START_TEST(stop_aborts_goes_back_without_an_attempt)
{
    rig *r = contract_rig(0, 10);
    rig_publish_and_take(r);
    expect_ok(r->worker, bh_worker_stop(r->worker, LONG_MS));
    rig_settle(r, BH_OUTCOME_RELEASED, "", 0);
    expect_event(r, BH_EVENT_STALE, BH_ERR_CANCELLED, "aborted by a stop");
    ck_assert_int_eq(bh_event_level(r->event), BH_LEVEL_INFO);
    expect_event(r, BH_EVENT_DRAINED, BH_OK, "");
    expect_no_event(r, BH_EVENT_FAILED);
    rig_await_health(r, BH_HEALTH_STOPPED);
    rig_restart(r, BH_MODE_CREATE);
    rig_take(r, "first");
    expect_attempt(r, 1);
    rig_succeed(r);
    rig_free_with_nothing_ready(r);
}
END_TEST

START_TEST(released_without_a_stop_is_a_failure_with_a_delay)
{
    rig *r = contract_rig(0, 10);
    rig_publish_and_take(r);
    rig_settle(r, BH_OUTCOME_RELEASED, "", 0);
    rig_await_settled(r);
    expect_retried(r, RIG_DELAY_MS);
    expect_part(bh_event_string(r->event, BH_FIELD_ERROR), "the worker was not stopped");
    rig_free(r);
}
END_TEST

START_TEST(too_long_is_a_failure_though_it_succeeded)
{
    rig *r = contract_rig(TIMEOUT_MS, 10);
    rig_publish_and_take(r);
    rig_await(r, BH_EVENT_DELIVERED);
    expect_no_event(r, BH_EVENT_FAILED);
    rig_expect_silence(r, TIMEOUT_MS + 1); /* the handler takes so long */
    rig_settle(r, BH_OUTCOME_OK, "", 0);
    rig_await(r, BH_EVENT_FAILED);
    expect_bytes(bh_event_string(r->event, BH_FIELD_ERROR_CLASS), "TimeoutError");
    expect_bytes(bh_event_string(r->event, BH_FIELD_ERROR), "the handler ran for longer than its limit of 0.2 s");
    rig_await(r, BH_EVENT_RETRIED);
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_succeed(r);
    rig_await(r, BH_EVENT_SUCCEEDED);
    expect_it_goes_on(r);
    rig_free(r);
}
END_TEST

START_TEST(busy_is_reported_once_while_messages_wait)
{
    rig *r = contract_rig(TIMEOUT_MS, 10);
    rig_publish_and_take(r);
    rig_publish(r, "work.1", "waits");
    rig_await(r, BH_EVENT_BUSY);
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 1);
    ck_assert_int_ge(bh_event_int(r->event, BH_FIELD_DURATION), TIMEOUT_MS * 1000);
    rig_fail(r, "boom");
    rig_take(r, "waits");
    rig_succeed(r);
    rig_await(r, BH_EVENT_SUCCEEDED);
    expect_no_event(r, BH_EVENT_BUSY);
    rig_free(r);
}
END_TEST

START_TEST(busy_is_reported_if_the_prefetch_is_with_handlers)
{
    rig *r = contract_rig(TIMEOUT_MS, 1);
    rig_publish_and_take(r);
    rig_await(r, BH_EVENT_BUSY);
    rig_fail(r, "boom");
    rig_free(r);
}
END_TEST

START_TEST(never_ends_leaves_the_other_slots_free)
{
    rig *r = contract_rig(0, 2);
    rig_publish_and_take(r);
    expect_it_goes_on(r);
    expect_no_event(r, BH_EVENT_BUSY);
    rig_free(r);
}
END_TEST

START_TEST(fails_in_drain_is_an_attempt)
{
    rig *r = contract_rig(0, 10);
    rig_publish_and_take(r);
    expect_ok(r->worker, bh_worker_stop(r->worker, LONG_MS));
    rig_settle(r, BH_OUTCOME_FAILED, "boom", 0);
    rig_await(r, BH_EVENT_RETRIED);
    expect_event(r, BH_EVENT_DRAINED, BH_OK, "");
    rig_free(r);
}
END_TEST

START_TEST(stop_too_late_comes_again)
{
    rig *r = contract_rig(0, 10);
    rig_publish_and_take(r);
    expect_ok(r->worker, bh_worker_stop(r->worker, 0));
    expect_event(r, BH_EVENT_DRAINED, BH_ERR_TIMEOUT, "before the limit");
    expect_status(r->worker, settle_as(r->worker, r->message, BH_OUTCOME_OK, "", 0), BH_ERR_STATE);
    rig_restart(r, BH_MODE_CREATE);
    rig_take(r, "first");
    expect_attempt(r, 1);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(a_worker_has_a_state_before_and_after_its_run)
{
    bh_health health;
    rig *r = setup_rig(setup_first());
    rig_prepare(r);
    rig_make_worker(r);
    rig_await_health(r, BH_HEALTH_STOPPED);
    for (int kind = 0; kind < BH_EVENT_LAST; kind++)
        r->settings.emits[kind] = kind == BH_EVENT_CONNECTED; /* others are off */
    rig_apply(r);
    rig_start(r);
    expect_part(bh_str(rig_await_health(r, BH_HEALTH_READY)), "RabbitMQ");
    bh_worker_state(NULL, &health);
    ck_assert_int_eq(health.state, BH_HEALTH_STOPPED);
    bh_worker_state(r->worker, NULL);
    rig_free(r);
}
END_TEST

START_TEST(X10_a_refused_name_is_an_argument_error)
{
    rig *r = setup_rig(setup_first());
    rig_prepare(r);
    rig_make_worker(r);
    rig_expect_refused(r, ca_file, ((bh_bytes){NULL, 0}), BH_ERR_ARGUMENT);
    expect_part(bh_worker_error(r->worker), "ca_file is missing");
    rig_expect_refused(r, key, bh_str("key.pem"), BH_ERR_ARGUMENT);
    expect_part(bh_worker_error(r->worker), "give the certificate too");
    rig_expect_refused(r, handler_timeout_ms, -1, BH_ERR_ARGUMENT);
    rig_expect_refused(r, handler_timeout_ms, 86400001, BH_ERR_ARGUMENT);
    rig_free(r);
}
END_TEST

Suite *suite_contract(void)
{
    Suite *suite = suite_create("contract");
    TCase *outcomes = add_case(suite, "outcomes");
    tcase_add_loop_test(outcomes, a_case_by_take_and_settle, 0, CASES);
    tcase_add_loop_test(outcomes, a_case_by_run, 0, CASES);
    TCase *ends = add_case(suite, "ends");
    tcase_add_test(ends, stop_aborts_goes_back_without_an_attempt);
    tcase_add_test(ends, released_without_a_stop_is_a_failure_with_a_delay);
    tcase_add_test(ends, too_long_is_a_failure_though_it_succeeded);
    tcase_add_test(ends, busy_is_reported_once_while_messages_wait);
    tcase_add_test(ends, busy_is_reported_if_the_prefetch_is_with_handlers);
    tcase_add_test(ends, never_ends_leaves_the_other_slots_free);
    tcase_add_test(ends, fails_in_drain_is_an_attempt);
    tcase_add_test(ends, stop_too_late_comes_again);
    tcase_add_test(ends, a_worker_has_a_state_before_and_after_its_run);
    tcase_add_test(ends, X10_a_refused_name_is_an_argument_error);
    return suite;
}
