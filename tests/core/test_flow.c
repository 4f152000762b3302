#include "../topologies.h"
#include "breaker/internal.h"
/* Flow: what a consumer does while its breaker is open. And breakers by key. */
#include "suites.h"

#include <backhop/adapter/flow.h>
#include <stdio.h>
#include <string.h>

enum { PAUSE_MS = 100000, PROBE_MS = 60000 };

typedef struct consumer {
    bh_breaker *breaker;
    bh_flow *flow;
    int64_t now_ms;
    bh_flow_step step;
} consumer;

static bh_breaker *make_breaker(void)
{
    bh_breaker_settings settings;
    bh_breaker *breaker;
    bh_policy *pauses;
    ck_assert_int_eq(bh_policy_new(&pauses), BH_OK);
    policy_set_kind(pauses, BH_KIND_FIXED);
    policy_set_initial_ms(pauses, PAUSE_MS);
    policy_set_jitter(pauses, BH_JITTER_NONE, 0);
    bh_breaker_defaults(&settings);
    settings.name = bh_str("api");
    settings.row_failures = 1;
    settings.probe_successes = 1;
    settings.ramp_calls = 1;
    settings.pauses = pauses;
    ck_assert_int_eq(bh_breaker_new(&breaker, &settings, bh_str("12345678")), BH_OK);
    bh_policy_free(pauses);
    return breaker;
}

static bh_flow *make_flow(bh_breaker *breaker, bh_strategy strategy)
{
    bh_policy *policy;
    bh_topology *topology;
    bh_flow *flow;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    if (strategy == BH_STRATEGY_NATIVE)
        policy_set_kind(policy, BH_KIND_LINEAR);
    if (strategy == BH_STRATEGY_REJECT)
        policy_set_kind(policy, BH_KIND_FIXED);
    policy_set_jitter(policy, BH_JITTER_NONE, 0);
    ck_assert_int_eq(bh_topology_new(&topology, bh_str("orders")), BH_OK);
    ck_assert_int_eq(bh_flow_new(&flow, breaker, topology), BH_ERR_STATE);
    ck_assert_int_eq(topology_set_strategy(topology, strategy), BH_OK);
    ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
    ck_assert_int_eq(bh_flow_new(&flow, breaker, topology), BH_OK);
    bh_topology_free(topology);
    bh_policy_free(policy);
    return flow;
}

static consumer begin(bh_strategy strategy)
{
    consumer self = {.breaker = make_breaker(), .now_ms = 1000};
    self.flow = make_flow(self.breaker, strategy);
    return self;
}

static void end(consumer *self)
{
    bh_flow_free(self->flow);
    bh_breaker_free(self->breaker);
}

static bh_flow_kind next(consumer *self, int64_t held)
{
    bh_flow_next(self->flow, held, self->now_ms, &self->step);
    return self->step.kind;
}

static void expect_event(consumer *self, int64_t held, bh_event_kind kind)
{
    ck_assert_int_eq(next(self, held), BH_FLOW_EMIT);
    ck_assert_int_eq(self->step.event, kind);
}

/* Makes a call, and records it. */
static void call_once(consumer *self, bh_call_kind kind)
{
    bh_permit permit;
    bh_call call = {.kind = kind, .error_class = bh_str("TimeoutError")};
    bh_breaker_permit(self->breaker, bh_str(""), self->now_ms, &permit);
    ck_assert_int_gt(permit.generation, 0);
    ck_assert_int_eq(bh_breaker_record(self->breaker, bh_str(""), &permit, &call, self->now_ms), 1);
}

START_TEST(a_closed_breaker_lets_each_message_through)
{
    consumer self = begin(BH_STRATEGY_LADDER);
    ck_assert_int_eq(next(&self, 0), BH_FLOW_REST);
    ck_assert_int_eq(self.step.is_limiting, 0);
    ck_assert_int_eq(next(&self, 3), BH_FLOW_CALL);
    ck_assert_int_eq(bh_flow_is_cancelled(self.flow), 0);
    end(&self);
}
END_TEST

static int is_permitted(consumer *self)
{
    bh_permit permit;
    bh_flow_permit(self->flow, self->now_ms, &permit);
    if (permit.generation == 0)
        return 0;
    bh_call call = {.kind = BH_CALL_SUCCESS};
    ck_assert_int_eq(bh_breaker_record(self->breaker, bh_str(""), &permit, &call, self->now_ms), 1);
    return 1;
}

START_TEST(a_message_is_permitted_at_once_only_if_no_step_is_due)
{
    consumer self = begin(BH_STRATEGY_LADDER);
    ck_assert_int_eq(is_permitted(&self), 1);
    ck_assert_int_eq(bh_flow_is_due(self.flow, 0, self.now_ms), 0);
    ck_assert_int_eq(bh_flow_is_due(self.flow, 1, self.now_ms), 1);
    call_once(&self, BH_CALL_FAILURE);
    ck_assert_int_eq(bh_flow_is_due(self.flow, 0, self.now_ms), 1); /* the event */
    ck_assert_int_eq(bh_flow_is_due(self.flow, 0, self.now_ms), 1);
    ck_assert_int_eq(is_permitted(&self), 0);
    expect_event(&self, 0, BH_EVENT_BREAKER_OPENED);
    ck_assert_int_eq(bh_flow_is_due(self.flow, 0, self.now_ms), 0);
    ck_assert_int_eq(is_permitted(&self), 0);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_REST);
    self.now_ms += BH_FLOW_HOLD_MS;
    ck_assert_int_eq(bh_flow_is_due(self.flow, 1, self.now_ms), 1);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_CANCEL);
    self.now_ms = 1000 + PAUSE_MS;
    ck_assert_int_eq(is_permitted(&self), 0); /* a probe begins with an event */
    ck_assert_int_eq(next(&self, 0), BH_FLOW_CONSUME);
    ck_assert_int_eq(is_permitted(&self), 0);
    call_once(&self, BH_CALL_SUCCESS);
    ck_assert_int_eq(is_permitted(&self), 0);
    expect_event(&self, 0, BH_EVENT_BREAKER_CLOSED);
    ck_assert_int_eq(is_permitted(&self), 1);
    bh_breaker_disable(self.breaker, bh_str(""), self.now_ms);
    expect_event(&self, 0, BH_EVENT_BREAKER_CLOSED);
    bh_permit permit;
    bh_flow_permit(self.flow, self.now_ms, &permit);
    ck_assert_int_gt(permit.generation, 0);
    end(&self);
}
END_TEST

START_TEST(messages_are_held_then_deferred_then_one_probes)
{
    consumer self = begin(BH_STRATEGY_LADDER);
    call_once(&self, BH_CALL_FAILURE);
    expect_event(&self, 2, BH_EVENT_BREAKER_OPENED);
    ck_assert_int_eq(next(&self, 2), BH_FLOW_REST);
    ck_assert_int_eq(self.step.due_ms, self.now_ms + BH_FLOW_LOOK_MS);
    ck_assert_int_eq(self.step.is_limiting, 1);
    self.now_ms += BH_FLOW_HOLD_MS - 1;
    ck_assert_int_eq(next(&self, 2), BH_FLOW_REST);
    self.now_ms++;
    ck_assert_int_eq(next(&self, 2), BH_FLOW_CANCEL);
    ck_assert_int_eq(bh_flow_is_cancelled(self.flow), 1);
    for (int64_t held = 2; held > 0; held--) {
        ck_assert_int_eq(next(&self, held), BH_FLOW_DEFER);
        ck_assert_int_eq(self.step.delay_ms, PAUSE_MS - BH_FLOW_HOLD_MS);
    }
    ck_assert_int_eq(next(&self, 0), BH_FLOW_REST);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_DEFER); /* it was on its way when the consumer was cancelled */
    self.now_ms = 1000 + PAUSE_MS;
    ck_assert_int_eq(next(&self, 0), BH_FLOW_CONSUME);
    ck_assert_int_eq(bh_flow_is_cancelled(self.flow), 0);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_CALL);
    call_once(&self, BH_CALL_SUCCESS);
    expect_event(&self, 1, BH_EVENT_BREAKER_CLOSED);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_CALL);
    end(&self);
}
END_TEST

START_TEST(a_probe_that_takes_long_does_not_hold_messages_for_ever)
{
    consumer self = begin(BH_STRATEGY_LADDER);
    bh_permit probe;
    call_once(&self, BH_CALL_FAILURE);
    expect_event(&self, 0, BH_EVENT_BREAKER_OPENED);
    self.now_ms += PAUSE_MS;
    bh_breaker_permit(self.breaker, bh_str(""), self.now_ms, &probe);
    expect_event(&self, 5, BH_EVENT_BREAKER_HALF_OPEN);
    ck_assert_int_eq(next(&self, 5), BH_FLOW_REST);
    self.now_ms += BH_FLOW_HOLD_MS;
    ck_assert_int_eq(next(&self, 5), BH_FLOW_CANCEL);
    ck_assert_int_eq(next(&self, 5), BH_FLOW_DEFER);
    ck_assert_int_eq(self.step.delay_ms, PROBE_MS - BH_FLOW_HOLD_MS);
    self.now_ms += PROBE_MS - BH_FLOW_HOLD_MS; /* its handler never ends */
    expect_event(&self, 0, BH_EVENT_BREAKER_OPENED);
    self.now_ms += PAUSE_MS;
    ck_assert_int_eq(next(&self, 0), BH_FLOW_CONSUME);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_CALL);
    end(&self);
}
END_TEST

START_TEST(reject_and_native_hold_and_never_defer)
{
    static const bh_strategy strategies[] = {BH_STRATEGY_REJECT, BH_STRATEGY_NATIVE};
    consumer self = begin(strategies[_i]);
    ck_assert_int_eq(bh_breaker_open(self.breaker, bh_str(""), BH_BREAKER_NEVER, self.now_ms), BH_OK);
    expect_event(&self, 1, BH_EVENT_BREAKER_OPENED);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_REST);
    self.now_ms += 10 * BH_FLOW_HOLD_MS;
    ck_assert_int_eq(next(&self, 1), BH_FLOW_REST);
    end(&self);
}
END_TEST

START_TEST(without_an_end_a_deferral_is_a_minute_and_near_the_end_a_second)
{
    consumer self = begin(BH_STRATEGY_LADDER);
    ck_assert_int_eq(bh_breaker_open(self.breaker, bh_str(""), BH_BREAKER_NEVER, self.now_ms), BH_OK);
    expect_event(&self, 1, BH_EVENT_BREAKER_OPENED);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_REST);
    self.now_ms += BH_FLOW_HOLD_MS;
    ck_assert_int_eq(next(&self, 1), BH_FLOW_CANCEL);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_DEFER);
    ck_assert_int_eq(self.step.delay_ms, 60000);
    ck_assert_int_eq(bh_breaker_open(self.breaker, bh_str(""), self.now_ms + 10, self.now_ms), BH_OK);
    expect_event(&self, 1, BH_EVENT_BREAKER_OPENED);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_DEFER);
    ck_assert_int_eq(self.step.delay_ms, 1000);
    bh_breaker_close(self.breaker, bh_str(""), self.now_ms);
    expect_event(&self, 1, BH_EVENT_BREAKER_CLOSED);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_CONSUME);
    end(&self);
}
END_TEST

START_TEST(an_idle_consumer_looks_each_second_and_sees_a_change_by_hand)
{
    consumer self = begin(BH_STRATEGY_LADDER);
    ck_assert_int_eq(next(&self, 0), BH_FLOW_REST);
    ck_assert_int_eq(self.step.due_ms, self.now_ms + BH_FLOW_IDLE_LOOK_MS);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_CALL); /* without a free handler */
    ck_assert_int_eq(self.step.due_ms, self.now_ms + BH_FLOW_IDLE_LOOK_MS);
    ck_assert_int_eq(bh_breaker_open(self.breaker, bh_str(""), BH_BREAKER_NEVER, self.now_ms), BH_OK);
    self.now_ms = self.step.due_ms;
    expect_event(&self, 0, BH_EVENT_BREAKER_OPENED);
    ck_assert_int_eq(next(&self, 0), BH_FLOW_REST);
    ck_assert_int_eq(self.step.is_limiting, 1);
    bh_breaker_close(self.breaker, bh_str(""), self.now_ms);
    expect_event(&self, 0, BH_EVENT_BREAKER_CLOSED);
    bh_breaker_disable(self.breaker, bh_str(""), self.now_ms);
    expect_event(&self, 0, BH_EVENT_BREAKER_CLOSED);
    ck_assert_int_eq(next(&self, 0), BH_FLOW_REST);
    ck_assert_int_eq(self.step.due_ms, self.now_ms + BH_FLOW_IDLE_LOOK_MS);
    end(&self);
}
END_TEST

START_TEST(a_clock_that_goes_back_begins_to_hold_anew)
{
    consumer self = begin(BH_STRATEGY_LADDER);
    ck_assert_int_eq(bh_breaker_open(self.breaker, bh_str(""), BH_BREAKER_NEVER, self.now_ms), BH_OK);
    expect_event(&self, 1, BH_EVENT_BREAKER_OPENED);
    ck_assert_int_eq(next(&self, 1), BH_FLOW_REST);
    self.now_ms = 0;
    ck_assert_int_eq(next(&self, 1), BH_FLOW_REST);
    self.now_ms = BH_FLOW_HOLD_MS;
    ck_assert_int_eq(next(&self, 1), BH_FLOW_CANCEL);
    end(&self);
}
END_TEST

START_TEST(its_events_name_the_breaker_and_the_reason)
{
    consumer self = begin(BH_STRATEGY_LADDER);
    bh_event *event;
    call_once(&self, BH_CALL_FAILURE);
    expect_event(&self, 1, BH_EVENT_BREAKER_OPENED);
    ck_assert_int_eq(bh_event_new(&event, self.step.event), BH_OK);
    bh_event_set_string(event, BH_FIELD_QUEUE, bh_str("orders"));
    ck_assert_int_eq(bh_flow_describe(self.flow, event), BH_OK);
    ck_assert_str_eq(bh_event_line(event).data,
                     "breaker_opened: queue \"orders\", breaker \"api\", probes in 1 min 40 s: 1 call failed: "
                     "TimeoutError");
    ck_assert_int_eq(bh_event_int(event, BH_FIELD_DELAY), PAUSE_MS);
    ck_assert_int_eq(bh_flow_describe(NULL, event), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_flow_describe(self.flow, NULL), BH_ERR_ARGUMENT);
    bh_event_free(event);
    end(&self);
}
END_TEST

START_TEST(missing_arguments_are_refused)
{
    bh_breaker *breaker = make_breaker();
    bh_flow *flow;
    bh_flow_step step;
    ck_assert_int_eq(bh_flow_new(NULL, breaker, NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_flow_new(&flow, breaker, NULL), BH_ERR_ARGUMENT);
    bh_flow_next(NULL, 1, 0, &step);
    ck_assert_int_eq(step.kind, BH_FLOW_REST);
    bh_flow_next(NULL, 1, 0, NULL);
    ck_assert_int_eq(bh_flow_is_cancelled(NULL), 0);
    bh_permit permit = {.generation = 1};
    bh_flow_permit(NULL, 0, &permit);
    ck_assert_int_eq(permit.generation, 0);
    bh_flow_permit(NULL, 0, NULL);
    ck_assert_int_eq(bh_flow_is_due(NULL, 1, 0), 0);
    bh_flow_free(NULL);
    bh_breaker_free(breaker);
}
END_TEST

/* --------------------------------------------------------------------------------------- by key */

static bh_breaker *make_breakers(void)
{
    bh_breaker_settings settings;
    bh_breaker *breakers;
    bh_breaker_defaults(&settings);
    settings.row_failures = 1;
    settings.by_key = 1;
    ck_assert_int_eq(bh_breaker_new(&breakers, &settings, bh_str("12345678")), BH_OK);
    return breakers;
}

static bh_permit permit_of(bh_breaker *breakers, const char *key)
{
    bh_permit permit;
    ck_assert_int_eq(bh_breaker_permit(breakers, bh_str(key), 0, &permit), BH_OK);
    return permit;
}

static int fail_call(bh_breaker *breakers, const char *key, const bh_permit *permit)
{
    return bh_breaker_record(breakers, bh_str(key), permit, &(bh_call){.kind = BH_CALL_FAILURE}, 0);
}

static bh_breaker_state state_of(bh_breaker *breakers, const char *key)
{
    bh_breaker_view view;
    bh_breaker_read(breakers, bh_str(key), 0, &view);
    return view.state;
}

START_TEST(each_key_has_a_breaker_of_its_own)
{
    bh_breaker *breakers = make_breakers();
    bh_permit permit = permit_of(breakers, "a.example");
    ck_assert_int_eq(fail_call(breakers, "b.example", &permit), 0); /* another key's permit */
    ck_assert_int_eq(fail_call(breakers, "a.example", &permit), 1);
    permit = permit_of(breakers, "a.example");
    ck_assert_int_eq(permit.generation, 0);
    ck_assert_int_gt(permit.until_ms, 0);
    ck_assert_int_gt(permit_of(breakers, "b.example").generation, 0);
    ck_assert_int_eq(state_of(breakers, "a.example"), BH_BREAKER_OPEN);
    ck_assert_int_eq(state_of(breakers, "never seen"), BH_BREAKER_CLOSED);
    ck_assert_uint_eq(bh__breaker_key_count(breakers), 2);
    bh_breaker_close(breakers, bh_str("a.example"), 0);
    ck_assert_int_gt(permit_of(breakers, "a.example").generation, 0);
    ck_assert_int_eq(bh_breaker_open(breakers, bh_str("c.example"), BH_BREAKER_NEVER, 0), BH_OK);
    ck_assert_int_eq(permit_of(breakers, "c.example").until_ms, 60000);
    bh_breaker_free(breakers);
}
END_TEST

START_TEST(the_key_that_was_used_least_recently_goes_first)
{
    bh_breaker *breakers = make_breakers();
    char key[32];
    bh_permit first = permit_of(breakers, "first"), second = permit_of(breakers, "second");
    ck_assert_int_eq(fail_call(breakers, "second", &second), 1);
    ck_assert_int_eq(fail_call(breakers, "first", &first), 1); /* now "second" is the oldest */
    for (int i = 2; i < BH_BREAKER_MOST_KEYS; i++) {
        snprintf(key, sizeof key, "key %d", i);
        permit_of(breakers, key);
    }
    ck_assert_uint_eq(bh__breaker_key_count(breakers), BH_BREAKER_MOST_KEYS);
    permit_of(breakers, "one more");
    ck_assert_uint_eq(bh__breaker_key_count(breakers), BH_BREAKER_MOST_KEYS);
    ck_assert_int_eq(state_of(breakers, "second"), BH_BREAKER_CLOSED); /* it is gone */
    ck_assert_int_eq(state_of(breakers, "first"), BH_BREAKER_OPEN);
    bh_permit again = permit_of(breakers, "second");
    ck_assert_int_ne(again.generation, second.generation);
    ck_assert_int_eq(fail_call(breakers, "second", &second), 0); /* of the breaker that is gone */
    for (int i = 0; i < 3 * BH_BREAKER_MOST_KEYS; i++) {
        snprintf(key, sizeof key, "later %d", i * 7919 % (2 * BH_BREAKER_MOST_KEYS));
        permit_of(breakers, key);
    }
    ck_assert_uint_eq(bh__breaker_key_count(breakers), BH_BREAKER_MOST_KEYS);
    bh_breaker_free(breakers);
}
END_TEST

START_TEST(a_message_does_not_wait_until_a_probe_of_its_key_is_lost)
{
    bh_breaker *breakers = make_breakers();
    bh_permit permit;
    ck_assert_int_eq(bh_breaker_open(breakers, bh_str("a.example"), 5000, 0), BH_OK);
    ck_assert_int_eq(permit_of(breakers, "a.example").until_ms, 5000);
    ck_assert_int_eq(bh_breaker_permit(breakers, bh_str("a.example"), 5000, &permit), BH_OK);
    ck_assert_int_gt(permit.generation, 0); /* the probe */
    ck_assert_int_eq(bh_breaker_permit(breakers, bh_str("a.example"), 5000, &permit), BH_OK);
    ck_assert_int_eq(permit.generation, 0);
    ck_assert_int_eq(permit.until_ms, 6000);
    bh_breaker_free(breakers);
}
END_TEST

START_TEST(a_breaker_lives_as_long_as_its_flows)
{
    bh_breaker *breaker = make_breaker();
    bh_flow *flow = make_flow(breaker, BH_STRATEGY_LADDER);
    bh_flow_step step;
    bh_breaker_free(breaker);
    bh_flow_next(flow, 1, 0, &step);
    ck_assert_int_eq(step.kind, BH_FLOW_CALL);
    bh_flow_free(flow);
}
END_TEST

START_TEST(missing_arguments_change_no_key)
{
    bh_breaker *breakers = make_breakers();
    bh_breaker_settings settings;
    bh_breaker_view view;
    bh_permit permit;
    bh_breaker_defaults(&settings);
    ck_assert_int_eq(bh_breaker_new(NULL, &settings, bh_str("12345678")), BH_ERR_ARGUMENT);
    bh_breaker *none;
    ck_assert_int_eq(bh_breaker_new(&none, &settings, bh_str("1234")), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_breaker_permit(NULL, bh_str("a"), 0, &permit), BH_ERR_ARGUMENT);
    ck_assert_int_eq(permit.generation, 0);
    ck_assert_int_eq(bh_breaker_permit(breakers, (bh_bytes){NULL, 3}, 0, &permit), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_breaker_permit(breakers, bh_str("a"), 0, NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_breaker_open(breakers, bh_str("a"), -2, 0), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_breaker_open(NULL, bh_str("a"), 0, 0), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_breaker_disable(breakers, (bh_bytes){NULL, 3}, 0), BH_ERR_ARGUMENT);
    bh_breaker_close(NULL, bh_str("a"), 0);
    bh_breaker_read(NULL, bh_str("a"), 0, &view);
    ck_assert_int_eq(view.state, BH_BREAKER_CLOSED);
    ck_assert_uint_eq(bh__breaker_key_count(NULL), 0);
    bh_breaker_free(NULL);
    bh_breaker_free(breakers);
}
END_TEST

START_TEST(without_by_key_a_key_is_refused)
{
    bh_breaker *breaker = make_breaker();
    bh_permit permit;
    ck_assert_int_eq(bh_breaker_permit(breaker, bh_str("a"), 0, &permit), BH_ERR_ARGUMENT);
    ck_assert_int_eq(permit.generation, 0);
    ck_assert_int_eq(bh_breaker_open(breaker, bh_str("a"), 5000, 0), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_breaker_disable(breaker, bh_str("a"), 0), BH_ERR_ARGUMENT);
    bh_breaker_permit(breaker, bh_str(""), 0, &permit);
    ck_assert_int_eq(fail_call(breaker, "a", &permit), 0);
    ck_assert_int_eq(fail_call(breaker, "", &permit), 1);
    bh_breaker_free(breaker);
}
END_TEST

START_TEST(one_key_is_disabled_and_the_empty_key_is_a_key_too)
{
    bh_breaker *breakers = make_breakers();
    ck_assert_int_eq(bh_breaker_disable(breakers, bh_str("a"), 0), BH_OK);
    ck_assert_int_eq(bh_breaker_open(breakers, bh_str(""), BH_BREAKER_NEVER, 0), BH_OK);
    ck_assert_int_eq(state_of(breakers, "a"), BH_BREAKER_DISABLED);
    ck_assert_int_eq(state_of(breakers, "b"), BH_BREAKER_CLOSED);
    ck_assert_int_eq(permit_of(breakers, "").until_ms, 60000);
    bh_breaker_free(breakers);
}
END_TEST

START_TEST(a_consumer_cannot_hold_the_messages_of_one_key)
{
    bh_breaker *breakers = make_breakers();
    bh_flow *flow;
    bh_topology *topology = NULL;
    bh_policy *policy = NULL;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    ck_assert_int_eq(bh_topology_new(&topology, bh_str("orders")), BH_OK);
    ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
    ck_assert_int_eq(bh_flow_new(&flow, breakers, topology), BH_ERR_ARGUMENT);
    bh_topology_free(topology);
    bh_policy_free(policy);
    bh_breaker_free(breakers);
}
END_TEST

Suite *suite_flow(void)
{
    Suite *suite = suite_create("flow");
    TCase *flow = tcase_create("flow");
    tcase_add_test(flow, a_closed_breaker_lets_each_message_through);
    tcase_add_test(flow, a_message_is_permitted_at_once_only_if_no_step_is_due);
    tcase_add_test(flow, messages_are_held_then_deferred_then_one_probes);
    tcase_add_test(flow, a_probe_that_takes_long_does_not_hold_messages_for_ever);
    tcase_add_loop_test(flow, reject_and_native_hold_and_never_defer, 0, 2);
    tcase_add_test(flow, without_an_end_a_deferral_is_a_minute_and_near_the_end_a_second);
    tcase_add_test(flow, an_idle_consumer_looks_each_second_and_sees_a_change_by_hand);
    tcase_add_test(flow, a_clock_that_goes_back_begins_to_hold_anew);
    tcase_add_test(flow, its_events_name_the_breaker_and_the_reason);
    tcase_add_test(flow, a_breaker_lives_as_long_as_its_flows);
    tcase_add_test(flow, missing_arguments_are_refused);
    suite_add_tcase(suite, flow);
    TCase *keys = tcase_create("by key");
    tcase_add_test(keys, each_key_has_a_breaker_of_its_own);
    tcase_add_test(keys, the_key_that_was_used_least_recently_goes_first);
    tcase_add_test(keys, a_message_does_not_wait_until_a_probe_of_its_key_is_lost);
    tcase_add_test(keys, missing_arguments_change_no_key);
    tcase_add_test(keys, without_by_key_a_key_is_refused);
    tcase_add_test(keys, one_key_is_disabled_and_the_empty_key_is_a_key_too);
    tcase_add_test(keys, a_consumer_cannot_hold_the_messages_of_one_key);
    suite_add_tcase(suite, keys);
    return suite;
}
