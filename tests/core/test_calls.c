/* Calls: the vectors of sequences; the bounds; random histories beside a model; calls that are
 * refused. */
#include "calls_model.h"
#include "suites.h"
#include "vectors.h"

#include <backhop/adapter/calls.h>
#include <stdio.h>
#include <string.h>

static vectors all;

static const vector_name actions[] = {
    {"none", BH_ACTION_NONE},   {"ack", BH_ACTION_ACK},
    {"retry", BH_ACTION_RETRY}, {"reject", BH_ACTION_REJECT},
    {"park", BH_ACTION_PARK},   {"return", BH_ACTION_RETURN},
    {"drop", BH_ACTION_DROP},   {"replay", BH_ACTION_REPLAY},
    {"defer", BH_ACTION_DEFER}, {NULL, 0},
};

typedef struct {
    vector *v;
    bh_calls *calls;
    json_t *numbers; /* of channels and calls, by name */
    const json_t *row;
    int64_t now_ms;
} sequence;

static int64_t number_of(const sequence *self, const char *name)
{
    const json_t *number = json_object_get(self->numbers, name);
    if (!number)
        vector_fail(self->v, "do", "nothing has the name %s", name);
    return json_integer_value(number);
}

static const char *name_of(const sequence *self, int64_t number)
{
    const char *name;
    json_t *each;
    json_object_foreach(self->numbers, name, each)
    {
        if (json_integer_value(each) == number && strncmp(name, "channel", 7) != 0)
            return name;
    }
    return "?";
}

/* Returns what to do with the delivery in the notation of the vectors. */
static json_t *notation_of(const sequence *self, const bh_arrival *arrival)
{
    switch (arrival->kind) {
    case BH_ARRIVAL_CALL:
        return json_pack("[ss]", "call", arrival->call ? "kept" : "not kept");
    case BH_ARRIVAL_WAIT:
        return json_pack("[ss]", "wait", name_of(self, arrival->call));
    case BH_ARRIVAL_ACK:
        break;
    }
    const vector_name *action = actions;
    while (action->value != (int)arrival->action)
        action++;
    return json_pack("[ss]", "ack", action->name);
}

/* Arrives: a channel, a message of the case, the redelivered flag, and the name of the call. */
static void arrive(sequence *self, const json_t *call)
{
    vector *v = self->v;
    const json_t *message = json_object_get(vector_get(v, "messages"), json_string_value(json_array_get(call, 2)));
    const json_t *queue = json_object_get(message, "queue"), *body = json_object_get(message, "body");
    bh_delivery *delivery;
    bh_history *history;
    bh_arrival arrival;
    vector_keys(v, "messages", message, "delivery queue body");
    ck_assert_int_eq(bh_delivery_new(&delivery), BH_OK);
    ck_assert_int_eq(bh_history_new(&history), BH_OK);
    ck_assert_int_eq(vector_fill_delivery(v, json_object_get(message, "delivery"), delivery), BH_OK);
    ck_assert_int_eq(bh_history_read(history, delivery, NULL), BH_OK);
    bh_calls_arrive(self->calls, number_of(self, json_string_value(json_array_get(call, 1))), history,
                    queue ? vector_bytes(v, "queue", queue) : bh_str("orders"),
                    body ? vector_bytes(v, "body", body) : bh_str("body"), json_is_true(json_array_get(call, 3)),
                    self->now_ms, &arrival);
    bh_history_free(history);
    bh_delivery_free(delivery);
    json_t *got = notation_of(self, &arrival);
    const json_t *expected = json_object_get(self->row, "arrival");
    if (!json_equal(got, expected))
        vector_fail(v, "arrival", "at %lld ms: %s", (long long)self->now_ms, json_dumps(got, 0));
    v->checks++;
    json_decref(got);
    if (arrival.kind == BH_ARRIVAL_CALL)
        json_object_set_new(self->numbers, json_string_value(json_array_get(call, 4)), json_integer(arrival.call));
}

static void play_row(sequence *self)
{
    vector *v = self->v;
    vector_keys(v, "history", self->row, "at_ms do arrival");
    if (json_object_get(self->row, "at_ms"))
        self->now_ms = vector_int(v, "at_ms", json_object_get(self->row, "at_ms"));
    const json_t *call = json_object_get(self->row, "do");
    const char *verb = json_string_value(json_array_get(call, 0)), *name = json_string_value(json_array_get(call, 1));
    if (strcmp(verb, "arrive") == 0)
        arrive(self, call);
    else if (strcmp(verb, "open_channel") == 0)
        json_object_set_new(self->numbers, name, json_integer(bh_calls_open_channel(self->calls)));
    else if (strcmp(verb, "end") == 0)
        bh_calls_end(self->calls, number_of(self, name),
                     (bh_action)vector_name_value(v, "do", json_array_get(call, 2), actions), self->now_ms);
    else if (strcmp(verb, "lose_channel") == 0)
        bh_calls_lose_channel(self->calls, number_of(self, name), vector_int(v, "do", json_array_get(call, 2)),
                              self->now_ms);
    else
        vector_fail(v, "do", "%s is not known", verb);
}

START_TEST(a_vector)
{
    vector *v = &all.cases[_i];
    vector_begin(v, "messages", "history");
    sequence self = {.v = v, .numbers = json_object()};
    const json_t *history = json_object_get(v->expect, "history");
    ck_assert_int_eq(bh_calls_new(&self.calls, (bh_bytes){"0123456789abcdef", BH_CALLS_RANDOM_BYTES}), BH_OK);
    for (size_t i = 0; i < json_array_size(history); i++) {
        self.row = json_array_get(history, i);
        play_row(&self);
    }
    json_decref(self.numbers);
    bh_calls_free(self.calls);
    vector_end(v);
}
END_TEST

/* --------------------------------------------------------------------------------------- bounds */

static bh_calls *calls;
static bh_delivery *delivery;
static bh_history *history;

static void set_up(void)
{
    ck_assert_int_eq(bh_calls_new(&calls, (bh_bytes){"0123456789abcdef", BH_CALLS_RANDOM_BYTES}), BH_OK);
    ck_assert_int_eq(bh_delivery_new(&delivery), BH_OK);
    ck_assert_int_eq(bh_history_new(&history), BH_OK);
}

static void tear_down(void)
{
    bh_calls_free(calls);
    bh_delivery_free(delivery);
    bh_history_free(history);
}

static bh_arrival arrive_as(int number, int64_t channel, int redelivered, int64_t now_ms)
{
    char id[16];
    bh_arrival arrival;
    snprintf(id, sizeof id, "%d", number);
    ck_assert_int_eq(bh_delivery_set_property(delivery, BH_PROPERTY_MESSAGE_ID, bh_str(id)), BH_OK);
    ck_assert_int_eq(bh_history_read(history, delivery, NULL), BH_OK);
    bh_calls_arrive(calls, channel, history, bh_str("orders"), bh_str("body"), redelivered, now_ms, &arrival);
    return arrival;
}

START_TEST(the_oldest_of_too_many_lost_calls_are_forgotten)
{
    int64_t channel = bh_calls_open_channel(calls);
    for (int i = 0; i < BH_CALLS_MOST + 2; i++) {
        int64_t call = arrive_as(i, channel, 0, 0).call;
        bh_calls_lose_channel(calls, channel, BH_CALLS_CLOSED, 0);
        bh_calls_end(calls, call, BH_ACTION_ACK, 0);
    }
    ck_assert_int_eq(arrive_as(0, channel, 1, 0).kind, BH_ARRIVAL_CALL);
    ck_assert_int_eq(arrive_as(1, channel, 1, 0).kind, BH_ARRIVAL_CALL);
    for (int i = BH_CALLS_MOST + 1; i >= 2; i--)
        ck_assert_int_eq(arrive_as(i, channel, 1, 0).kind, BH_ARRIVAL_ACK);
}
END_TEST

START_TEST(calls_that_end_in_order_do_not_push_lost_ones_out)
{
    int64_t lost = bh_calls_open_channel(calls), channel = bh_calls_open_channel(calls);
    bh_calls_end(calls, arrive_as(-1, lost, 0, 0).call, BH_ACTION_ACK, 0);
    bh_calls_lose_channel(calls, lost, 1, 0);
    for (int i = 0; i < 2 * BH_CALLS_MOST; i++)
        bh_calls_end(calls, arrive_as(i, channel, 0, 0).call, BH_ACTION_ACK, 0);
    ck_assert_int_eq(arrive_as(-1, channel, 1, 0).kind, BH_ARRIVAL_ACK);
}
END_TEST

START_TEST(too_many_calls_are_made_and_not_kept)
{
    int64_t channel = bh_calls_open_channel(calls), first = 0;
    for (int i = 0; i < BH_CALLS_MOST; i++) {
        bh_arrival arrival = arrive_as(i, channel, 0, 0);
        ck_assert_int_gt(arrival.call, 0);
        first = first ? first : arrival.call;
    }
    bh_arrival arrival = arrive_as(BH_CALLS_MOST, channel, 0, BH_CALLS_KEPT_MS - 1);
    ck_assert_int_eq(arrival.kind, BH_ARRIVAL_CALL);
    ck_assert_int_eq(arrival.call, 0);
    bh_calls_end(calls, arrival.call, BH_ACTION_ACK, 0);
    bh_calls_end(calls, first, BH_ACTION_ACK, 0);
    ck_assert_int_gt(arrive_as(BH_CALLS_MOST, channel, 0, 0).call, 0);
    ck_assert_int_eq(arrive_as(-1, channel, 0, 0).call, 0);
    ck_assert_int_gt(arrive_as(-1, channel, 0, BH_CALLS_KEPT_MS).call, 0); /* in place of calls that never ended */
}
END_TEST

START_TEST(missing_and_foreign_arguments_change_nothing)
{
    bh_calls *none;
    bh_arrival arrival;
    int64_t channel = bh_calls_open_channel(calls);
    ck_assert_int_eq(bh_calls_new(NULL, bh_str("0123456789abcdef")), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_calls_new(&none, bh_str("too short")), BH_ERR_ARGUMENT);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(bh_calls_open_channel(NULL), 0);
    int64_t call = arrive_as(1, channel, 0, 0).call;
    bh_calls_arrive(NULL, channel, history, bh_str("orders"), bh_str("body"), 1, 0, &arrival);
    ck_assert_int_eq(arrival.kind, BH_ARRIVAL_CALL);
    ck_assert_int_eq(arrival.call, 0);
    bh_calls_arrive(calls, channel, NULL, bh_str("orders"), bh_str("body"), 1, 0, &arrival);
    ck_assert_int_eq(arrival.call, 0);
    bh_calls_arrive(calls, channel, history, bh_str("orders"), bh_str("body"), 1, 0, NULL);
    bh_calls_end(NULL, call, BH_ACTION_ACK, 0);
    bh_calls_end(calls, call + 1, BH_ACTION_ACK, 0);
    bh_calls_end(calls, INT64_MAX, BH_ACTION_ACK, 0);
    bh_calls_end(calls, -1, BH_ACTION_ACK, 0);
    bh_calls_lose_channel(NULL, channel, 1, 0);
    bh_calls_lose_channel(calls, channel + 1, INT64_MAX, 0);
    ck_assert_int_eq(arrive_as(1, channel, 1, INT64_MIN).kind, BH_ARRIVAL_WAIT);
    bh_calls_lose_channel(calls, channel, INT64_MIN, INT64_MIN);
    ck_assert_int_eq(arrive_as(1, channel, 1, INT64_MAX).kind, BH_ARRIVAL_CALL);
    bh_calls_end(calls, call, (bh_action)99, 0);
    bh_calls_free(NULL);
}
END_TEST

START_TEST(any_history_calls_no_message_twice)
{
    uint64_t state = (uint64_t)_i;
    char name[32];
    snprintf(name, sizeof name, "seed %d", _i);
    calls_model_play(draw_by_seed, &state, 2000, name);
}
END_TEST

Suite *suite_calls(void)
{
    all = vectors_load("calls");
    Suite *suite = suite_create("calls");
    vectors_add(suite, &all, a_vector);
    TCase *bounds = tcase_create("bounds");
    tcase_add_checked_fixture(bounds, set_up, tear_down);
    tcase_add_test(bounds, the_oldest_of_too_many_lost_calls_are_forgotten);
    tcase_add_test(bounds, calls_that_end_in_order_do_not_push_lost_ones_out);
    tcase_add_test(bounds, too_many_calls_are_made_and_not_kept);
    tcase_add_test(bounds, missing_and_foreign_arguments_change_nothing);
    suite_add_tcase(suite, bounds);
    TCase *histories = tcase_create("histories");
    tcase_add_loop_test(histories, any_history_calls_no_message_twice, 0, 50);
    suite_add_tcase(suite, histories);
    return suite;
}
