/* Subscription: the vectors of sequences; calls without an object; histories in any order. */
#include "suites.h"
#include "vectors.h"

#include <backhop/adapter/event.h>
#include <backhop/adapter/ledger.h>
#include <backhop/adapter/subscription.h>
#include <stdio.h>
#include <string.h>

static vectors all;

static const vector_name losses[] = {
    {"consumer", BH_LOSS_CONSUMER},
    {"channel", BH_LOSS_CHANNEL},
    {"connection", BH_LOSS_CONNECTION},
    {NULL, 0},
};

typedef struct {
    vector *v;
    bh_subscription *subscription;
    const json_t *row;
    int64_t now_ms;
} sequence;

static void call(sequence *self, const json_t *call)
{
    bh_subscription *subscription = self->subscription;
    const char *verb = json_string_value(json_array_get(call, 0));
    const json_t *first = json_array_get(call, 1);
    if (strcmp(verb, "declared") == 0)
        bh_subscription_declared(subscription);
    else if (strcmp(verb, "subscribed") == 0)
        bh_subscription_subscribed(subscription);
    else if (strcmp(verb, "lost") == 0)
        bh_subscription_lost(subscription, (bh_loss)vector_name_value(self->v, "do", first, losses), self->now_ms);
    else if (strcmp(verb, "failed") == 0)
        bh_subscription_failed(subscription, vector_status(self->v, first), self->now_ms);
    else if (strcmp(verb, "settled") == 0)
        bh_subscription_settled(subscription);
    else if (strcmp(verb, "stop") == 0)
        bh_subscription_stop(subscription);
    else
        vector_fail(self->v, "do", "%s is not known", verb);
}

/* Returns the step in the notation of the vectors. */
static json_t *notation_of(const bh_subscription_step *step)
{
    const char *status = bh_status_name(step->status).data;
    switch (step->kind) {
    case BH_SUBSCRIPTION_EMIT:
        return json_pack("[sssI]", "emit", bh_event_name(step->event).data, status, (json_int_t)step->delay_ms);
    case BH_SUBSCRIPTION_DECLARE:
        return json_pack("[s]", "declare");
    case BH_SUBSCRIPTION_CONSUME:
        return json_pack("[s]", "consume");
    case BH_SUBSCRIPTION_GIVE_UP:
        return json_pack("[ss]", "give_up", status);
    case BH_SUBSCRIPTION_REST:
        break;
    }
    ck_abort_msg("kind %d", (int)step->kind);
    return NULL;
}

static void compare_steps(sequence *self, size_t at)
{
    const json_t *expected = json_object_get(self->row, "steps"), *due = json_object_get(self->row, "due_ms");
    int may_subscribe = !json_is_false(json_object_get(self->row, "may_subscribe"));
    bh_subscription_step step;
    if (!expected)
        return;
    json_t *steps = json_array();
    for (;;) {
        bh_subscription_next(self->subscription, may_subscribe, self->now_ms, &step);
        if (step.kind == BH_SUBSCRIPTION_REST)
            break;
        json_array_append_new(steps, notation_of(&step));
        ck_assert_uint_lt(json_array_size(steps), 10);
    }
    if (!json_equal(steps, expected))
        vector_fail(self->v, "steps", "row %zu: %s", at, json_dumps(steps, 0));
    self->v->checks++;
    json_decref(steps);
    if (due)
        same_int(self->v, "due_ms", json_is_null(due) ? BH_SUBSCRIPTION_NEVER : vector_int(self->v, "due_ms", due),
                 step.due_ms);
}

static void play_row(sequence *self, size_t at)
{
    vector_keys(self->v, "history", self->row, "at_ms do may_subscribe steps due_ms is_consuming");
    if (json_object_get(self->row, "at_ms"))
        self->now_ms = vector_int(self->v, "at_ms", json_object_get(self->row, "at_ms"));
    if (json_object_get(self->row, "do"))
        call(self, json_object_get(self->row, "do"));
    compare_steps(self, at);
    expect_flag(self->v, self->row, "is_consuming", bh_subscription_is_consuming(self->subscription));
}

START_TEST(a_vector)
{
    vector *v = &all.cases[_i];
    vector_begin(v, "policy random", "history");
    sequence self = {.v = v};
    bh_policy *policy;
    const char *field;
    bh_bytes random = vector_get(v, "random") ? vector_bytes(v, "random", vector_get(v, "random"))
                                              : (bh_bytes){"\0\0\0\0\0\0\0", BH_SUBSCRIPTION_RANDOM_BYTES};
    const json_t *history = json_object_get(v->expect, "history");
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    if (!vector_get(v, "policy")) {
        ck_assert_int_eq(policy_set_kind(policy, BH_KIND_LINEAR), BH_OK);
        ck_assert_int_eq(policy_set_initial_ms(policy, 100), BH_OK);
        ck_assert_int_eq(policy_set_jitter(policy, BH_JITTER_NONE, 0), BH_OK);
    } else if (vector_fill_policy(v, vector_get(v, "policy"), policy, &field)) {
        vector_fail(v, field, "was refused");
    }
    ck_assert_int_eq(bh_subscription_new(&self.subscription, policy, random), BH_OK);
    bh_policy_free(policy);
    for (size_t i = 0; i < json_array_size(history); i++) {
        self.row = json_array_get(history, i);
        play_row(&self, i);
    }
    bh_subscription_free(self.subscription);
    vector_end(v);
}
END_TEST

START_TEST(missing_and_foreign_arguments_change_nothing)
{
    bh_subscription *subscription;
    bh_subscription_step step;
    bh_policy *policy;
    ck_assert_int_eq(bh_back_off_new(&policy), BH_OK);
    ck_assert_int_eq(bh_subscription_new(NULL, policy, bh_str("12345678")), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_subscription_new(&subscription, NULL, bh_str("12345678")), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_subscription_new(&subscription, policy, bh_str("1234567")), BH_ERR_ARGUMENT);
    ck_assert_ptr_null(subscription);
    bh_subscription_next(NULL, 1, 0, &step);
    ck_assert_int_eq(step.kind, BH_SUBSCRIPTION_REST);
    ck_assert_int_eq(step.due_ms, BH_SUBSCRIPTION_NEVER);
    bh_subscription_declared(NULL);
    bh_subscription_subscribed(NULL);
    bh_subscription_lost(NULL, BH_LOSS_CHANNEL, 0);
    bh_subscription_failed(NULL, BH_ERR_ACCESS, 0);
    bh_subscription_settled(NULL);
    bh_subscription_stop(NULL);
    ck_assert_int_eq(bh_subscription_is_consuming(NULL), 0);
    bh_subscription_free(NULL);

    ck_assert_int_eq(bh_subscription_new(&subscription, policy, bh_str("12345678")), BH_OK);
    bh_subscription_next(subscription, 1, 0, NULL);
    bh_subscription_subscribed(subscription);
    bh_subscription_lost(subscription, (bh_loss)99, INT64_MAX); /* the clock cannot go on */
    bh_subscription_next(subscription, 1, INT64_MAX, &step);
    ck_assert_int_eq(step.kind, BH_SUBSCRIPTION_EMIT);
    bh_subscription_next(subscription, 1, INT64_MAX, &step);
    ck_assert_int_eq(step.kind, BH_SUBSCRIPTION_DECLARE);
    bh_subscription_free(subscription);
    bh_policy_free(policy);
}
END_TEST

/* Without a settled message, each declaration after the first is at least as late as the policy's
 * delay. */
START_TEST(any_history_spares_the_broker)
{
    enum { DELAY_MS = 100, HAPPENINGS = 2000 };
    uint64_t state = (uint64_t)_i;
    bh_subscription *subscription;
    bh_subscription_step step;
    bh_policy *policy;
    int64_t now_ms = 0, declared_ms = -1, lost_ms = -1;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    policy_set_initial_ms(policy, DELAY_MS);
    policy_set_max_ms(policy, 10 * DELAY_MS);
    policy_set_jitter(policy, BH_JITTER_DECORRELATED, 0);
    ck_assert_int_eq(bh_subscription_new(&subscription, policy, bh_str("12345678")), BH_OK);
    bh_subscription_subscribed(subscription);
    for (int i = 0; i < HAPPENINGS; i++) {
        now_ms += draw_by_seed(&state, 3) ? 0 : draw_by_seed(&state, DELAY_MS);
        int was_consuming = bh_subscription_is_consuming(subscription);
        switch (draw_by_seed(&state, 6)) {
        case 0:
            bh_subscription_lost(subscription, (bh_loss)draw_by_seed(&state, 3), now_ms);
            break;
        case 1:
            bh_subscription_failed(subscription, BH_ERR_ACCESS, now_ms);
            break;
        case 2:
            bh_subscription_settled(subscription);
            break;
        case 3:
            bh_subscription_subscribed(subscription);
            break;
        default:
            bh_subscription_declared(subscription);
        }
        if (was_consuming && !bh_subscription_is_consuming(subscription))
            lost_ms = now_ms;
        for (int steps = 0;; steps++) {
            ck_assert_int_lt(steps, 4);
            bh_subscription_next(subscription, (int)draw_by_seed(&state, 4), now_ms, &step);
            if (step.kind == BH_SUBSCRIPTION_REST)
                break;
            ck_assert_int_ne(step.kind, BH_SUBSCRIPTION_GIVE_UP);
            ck_assert_int_eq(step.kind == BH_SUBSCRIPTION_EMIT, step.event != BH_EVENT_LAST);
            if (step.kind != BH_SUBSCRIPTION_DECLARE)
                continue;
            ck_assert_int_eq(bh_subscription_is_consuming(subscription), 0);
            ck_assert_msg(declared_ms < 0 || now_ms >= declared_ms + DELAY_MS, "declared again after %lld ms",
                          (long long)(now_ms - declared_ms));
            ck_assert_int_ge(now_ms, lost_ms + DELAY_MS);
            declared_ms = now_ms;
        }
        ck_assert(step.due_ms == BH_SUBSCRIPTION_NEVER || step.due_ms > now_ms);
    }
    bh_subscription_stop(subscription);
    bh_subscription_next(subscription, 1, now_ms + 100000, &step);
    ck_assert_int_eq(step.kind, BH_SUBSCRIPTION_REST);
    bh_subscription_free(subscription);
    bh_policy_free(policy);
}
END_TEST

Suite *suite_subscription(void)
{
    all = vectors_load("subscription");
    Suite *suite = suite_create("subscription");
    vectors_add(suite, &all, a_vector);
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, missing_and_foreign_arguments_change_nothing);
    tcase_add_loop_test(calls, any_history_spares_the_broker, 0, 50);
    suite_add_tcase(suite, calls);
    return suite;
}
