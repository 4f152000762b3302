/*
 * Ledger: the vectors of sequences; random histories beside a model of the broker; calls that are
 * refused. BACKHOP_LEDGER_SEED replays the history of one seed; BACKHOP_LEDGER_HISTORIES is how
 * many are played (10,000).
 */
#include "ledger_model.h"
#include "suites.h"
#include "vectors.h"

#include "ledger/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define HISTORIES 10000
#define HAPPENINGS 120

/* --- Random histories
 * ------------------------------------------------------------------------------------------- */

static void play(uint64_t seed)
{
    char name[64];
    snprintf(name, sizeof name, "BACKHOP_LEDGER_SEED=%" PRIu64, seed);
    uint64_t state = seed * UINT64_C(0xd1342543de82ef95);
    ledger_model_play(draw_by_seed, &state, HAPPENINGS, name);
}

START_TEST(random_histories_keep_what_must_always_hold)
{
    const char *seed = getenv("BACKHOP_LEDGER_SEED"), *histories = getenv("BACKHOP_LEDGER_HISTORIES");
    if (seed) {
        play(strtoull(seed, NULL, 10));
        return;
    }
    uint64_t count = histories ? strtoull(histories, NULL, 10) : HISTORIES;
    for (uint64_t each = 1; each <= count; each++)
        play(each);
}
END_TEST

/* --- Channels
 * --------------------------------------------------------------------------------------------------- */

static bh_step step; /* the last one */

/* Gets the next step of a ledger that may publish. */
static bh_step_kind next_kind(bh_ledger *ledger, int64_t now_ms)
{
    ck_assert_int_eq(bh_ledger_next(ledger, now_ms, 1, &step), step.kind != BH_STEP_REST);
    return step.kind;
}

static bh_ledger *new_ledger(void)
{
    bh_ledger *ledger;
    bh_policy *policy;
    char random[BH_LEDGER_RANDOM_BYTES] = {0};
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    policy_set_kind(policy, BH_KIND_FIXED);
    policy_set_initial_ms(policy, 90500);
    policy_set_jitter(policy, BH_JITTER_NONE, 0);
    ck_assert_int_eq(bh_ledger_new(&ledger, policy, (bh_bytes){random, sizeof random}), BH_OK);
    bh_policy_free(policy);
    return ledger;
}

START_TEST(as_many_channels_are_open_at_once_as_a_connection_has)
{
    static int64_t channels[BH_LEDGER_MOST_CHANNELS];
    bh_ledger *ledger = new_ledger();
    int64_t entry, other;
    for (size_t i = 0; i < BH_LEDGER_MOST_CHANNELS; i++) {
        ck_assert_int_eq(bh_ledger_open_channel(ledger, &channels[i]), BH_OK);
        ck_assert_int_eq(bh_ledger_arrive(ledger, channels[i], 7, &entry), BH_OK);
        ck_assert_int_eq(bh_ledger_acknowledge(ledger, entry), BH_OK);
    }
    ck_assert_int_eq(bh_ledger_open_channel(ledger, &other), BH_ERR_STATE);
    ck_assert_int_eq(bh_ledger_close_channel(ledger, channels[40000]), 1);
    ck_assert_int_eq(bh_ledger_open_channel(ledger, &other), BH_OK);
    for (size_t i = 0; i < BH_LEDGER_MOST_CHANNELS; i++) {
        ck_assert_int_ne(channels[i], other);
        if (i == 40000)
            continue;
        ck_assert_int_eq(next_kind(ledger, 0), BH_STEP_ACK); /* in the order of settling */
        ck_assert_int_eq(step.channel, channels[i]);
    }
    ck_assert_int_eq(next_kind(ledger, 0), BH_STEP_REST);
    bh_ledger_free(ledger);
}
END_TEST

/* --- Words
 * ------------------------------------------------------------------------------------------------------ */

#define KEY "order.created"

/* A ledger one of whose copies is sent, and its publisher. */
static bh_ledger *ledger_with_copy(bh_action action, int64_t *publisher, int64_t *entry)
{
    int64_t channel;
    bh_ledger *ledger = new_ledger();
    ck_assert_int_eq(bh_ledger_open_channel(ledger, &channel), BH_OK);
    ck_assert_int_eq(bh_ledger_open_publisher(ledger, publisher), BH_OK);
    ck_assert_int_eq(bh_ledger_arrive(ledger, channel, 1, entry), BH_OK);
    ck_assert_int_eq(bh_ledger_settle(ledger, *entry, action, 0, bh_str("id"), bh_str("events"), bh_str(KEY)), BH_OK);
    ck_assert_int_eq(next_kind(ledger, 0), BH_STEP_PUBLISH);
    return ledger;
}

/* That the next step emits this. */
static void expect_words(bh_ledger *ledger, int64_t at_ms, const char *reason, const char *forgotten, const char *words)
{
    ck_assert_int_eq(next_kind(ledger, at_ms), BH_STEP_EMIT);
    ck_assert_str_eq(bh_ledger_text(ledger, bh_str("events"), bh_str(KEY), bh_str(reason), bh_str(forgotten)).data,
                     words);
}

START_TEST(what_a_copy_met_is_told_with_what_comes_next)
{
    int64_t publisher, entry;
    bh_ledger *ledger = ledger_with_copy(BH_ACTION_RETRY, &publisher, &entry);
    bh_ledger_confirm(ledger, publisher, 1, 0, 0, 0);
    expect_words(ledger, 0, "", "declare()",
                 "the broker nacked the copy for exchange \"events\", routing key \"order.created\": a queue there is "
                 "full (reject-publish) or not available; its original stays unacknowledged, and it is published again "
                 "in 1 min 31 s");
    bh_ledger_free(ledger);

    ledger = ledger_with_copy(BH_ACTION_RETRY, &publisher, &entry);
    for (int64_t tag = 1; tag <= 3; tag++) {
        static const char *const words[] = {
            "the broker returned the copy (312 NO_ROUTE): no queue takes routing key \"order.created\" of exchange "
            "\"events\"; its original stays unacknowledged, and it is published again in 1 min 31 s",
            "the broker returned the copy: no queue takes routing key \"order.created\" of exchange \"events\"; was "
            "declare() forgotten?; its original stays unacknowledged, and it is published again in 1 min 31 s",
            "the broker returned the copy (312 NO_ROUTE): no queue takes routing key \"order.created\" of exchange "
            "\"events\"; was retrier.declare forgotten?; its original stays unacknowledged, and it is published again "
            "in 1 min 31 s"};
        static const char *const reasons[] = {"312 NO_ROUTE", "", "312 NO_ROUTE"}, *const forgotten[] = {
                                                                                       "", "declare()",
                                                                                       "retrier.declare"};
        bh_ledger_return(ledger, publisher, bh_str("id"), bh_str("events"), bh_str(KEY));
        bh_ledger_confirm(ledger, publisher, tag, 0, 1, 0);
        expect_words(ledger, 0, reasons[tag - 1], forgotten[tag - 1], words[tag - 1]);
        ck_assert_int_eq(next_kind(ledger, 10000000), BH_STEP_PUBLISH);
    }
    bh_ledger_free(ledger);
}
END_TEST

START_TEST(why_a_channel_ended_is_told_with_what_may_be_forgotten)
{
    static const struct {
        const char *reason, *forgotten, *words;
    } cases[] = {
        {"404 NOT_FOUND - no exchange 'events' in vhost '/'", "declare()",
         "404 NOT_FOUND - no exchange 'events' in vhost '/'; was declare() forgotten?; its original stays"},
        {"404 NOT_FOUND - no exchange 'events' in vhost '/'", "",
         "404 NOT_FOUND - no exchange 'events' in vhost '/'; its original stays"},
        {"403 ACCESS_REFUSED", "declare()", "403 ACCESS_REFUSED; its original stays"},
        {"", "declare()", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t publisher, entry;
        bh_ledger *ledger = ledger_with_copy(BH_ACTION_PARK, &publisher, &entry);
        bh_ledger_close_publisher(ledger, publisher, BH_ENDING_MISSING, 0);
        ck_assert_int_eq(next_kind(ledger, 0), BH_STEP_EMIT);
        bh_bytes words =
            bh_ledger_text(ledger, bh_str("events"), bh_str(KEY), bh_str(cases[i].reason), bh_str(cases[i].forgotten));
        const char *begin = cases[i].words[0] ? cases[i].words : bh_status_text(BH_ERR_MISSING).data;
        ck_assert_msg(strncmp(words.data, begin, strlen(begin)) == 0, "%s", words.data);
        bh_ledger_free(ledger);
    }
}
END_TEST

START_TEST(what_no_broker_takes_is_told_with_how_long_it_is_left)
{
    int64_t publisher, entry;
    bh_ledger *ledger = ledger_with_copy(BH_ACTION_RETRY, &publisher, &entry);
    bh_ledger_close_publisher(ledger, publisher, BH_ENDING_ERROR, 0);
    expect_words(ledger, 0, "406 PRECONDITION_FAILED", "declare()",
                 "the broker closes the channel over the copy: 406 PRECONDITION_FAILED; its original stays "
                 "unacknowledged for 10 min, and then comes again");
    bh_ledger_free(ledger);

    ledger = ledger_with_copy(BH_ACTION_REPLAY, &publisher, &entry);
    bh_ledger_close_publisher(ledger, publisher, BH_ENDING_ERROR, 0);
    expect_words(ledger, 0, "406", "",
                 "the broker closes the channel over the copy: 406; the message stays in its queue");
    bh_ledger_free(ledger);

    ledger = ledger_with_copy(BH_ACTION_RETRY, &publisher, &entry);
    for (int i = 0; i < 4; i++) {
        bh_ledger_disconnect(ledger, BH_ENDING_CUT, 10000000 * i);
        ck_assert_int_eq(bh_ledger_open_publisher(ledger, &publisher), BH_OK);
        if (i < 3)
            ck_assert_int_eq(next_kind(ledger, 10000000 * i + 9000000), BH_STEP_PUBLISH);
    }
    expect_words(ledger, 30000000, "reset by peer", "",
                 "each time the copy was sent alone, the connection was lost: reset by peer; its original stays "
                 "unacknowledged for 10 min, and then comes again");
    bh_ledger_free(ledger);
}
END_TEST

START_TEST(what_was_not_confirmed_is_told_together)
{
    int64_t publisher, entry, other;
    bh_ledger *ledger = ledger_with_copy(BH_ACTION_RETRY, &publisher, &entry);
    bh_ledger_set_confirm_timeout_ms(ledger, 1500);
    expect_words(
        ledger, 1500, "", "declare()",
        "1 copy was not confirmed within 1.5 s: one goes out again, and the rest once the broker confirms one");
    ck_assert_int_eq(bh_ledger_open_channel(ledger, &other), BH_OK);
    ck_assert_int_eq(next_kind(ledger, 1500), BH_STEP_PUBLISH);
    ck_assert_str_eq(bh_ledger_text(ledger, bh_str(""), bh_str(""), bh_str(""), bh_str("")).data, "");
    bh_ledger_confirm(ledger, publisher, 2, 0, 1, 1500);
    ck_assert_int_eq(next_kind(ledger, 1500), BH_STEP_EMIT);
    ck_assert_int_eq(step.event, BH_EVENT_RETRIED);
    ck_assert_str_eq(bh_ledger_text(ledger, bh_str(""), bh_str(""), bh_str(""), bh_str("")).data, "");
    bh_ledger_free(ledger);
}
END_TEST

START_TEST(the_default_back_off_doubles_up_to_ten_seconds_and_half_of_it_is_random)
{
    static const struct {
        int64_t failures, lowest_ms, highest_ms;
    } cases[] = {{1, 50, 100}, {2, 100, 200}, {3, 200, 400}, {8, 5000, 10000}, {100, 5000, 10000}};
    bh_policy *back_off;
    ck_assert_int_eq(bh_back_off_new(NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_back_off_new(&back_off), BH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(bh_policy_delay_ms(back_off, cases[i].failures, 0, 0), cases[i].lowest_ms);
        ck_assert_int_eq(bh_policy_delay_ms(back_off, cases[i].failures, 0, 0.999999), cases[i].highest_ms);
    }
    bh_policy_free(back_off);
}
END_TEST

START_TEST(a_reply_code_tells_how_a_publisher_ended)
{
    static const struct {
        int code;
        bh_ending ending;
    } cases[] = {
        {0, BH_ENDING_ORDERLY},   {320, BH_ENDING_ORDERLY}, {403, BH_ENDING_MISSING},
        {404, BH_ENDING_MISSING}, {405, BH_ENDING_ERROR},   {406, BH_ENDING_ERROR},
        {501, BH_ENDING_ERROR},   {541, BH_ENDING_ERROR},   {-1, BH_ENDING_ERROR},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_msg(bh_ending_of(cases[i].code) == cases[i].ending, "%d", cases[i].code);
}
END_TEST

START_TEST(a_connection_that_is_closed_over_a_missing_exchange_is_a_complaint_about_the_copy)
{
    int64_t publisher, entry;
    bh_ledger *ledger = ledger_with_copy(BH_ACTION_RETRY, &publisher, &entry);
    for (int i = 0; i < 2; i++) {
        bh_ledger_disconnect(ledger, BH_ENDING_MISSING, 10000000 * i);
        ck_assert_int_eq(bh_ledger_open_publisher(ledger, &publisher), BH_OK);
        if (i < 1)
            ck_assert_int_eq(next_kind(ledger, 10000000 * i + 9000000), BH_STEP_PUBLISH);
    }
    ck_assert_int_eq(bh_ledger_state(ledger, entry), BH_STATE_ABANDONED);
    bh_ledger_free(ledger);
}
END_TEST

/* --- Vectors
 * ---------------------------------------------------------------------------------------------------- */

static vectors all, of_worker;

static const vector_name actions[] = {
    {"none", BH_ACTION_NONE},     {"ack", BH_ACTION_ACK},       {"retry", BH_ACTION_RETRY},
    {"reject", BH_ACTION_REJECT}, {"return", BH_ACTION_RETURN}, {"park", BH_ACTION_PARK},
    {"drop", BH_ACTION_DROP},     {"replay", BH_ACTION_REPLAY}, {NULL, 0},
};

static const vector_name endings[] = {
    {"orderly", BH_ENDING_ORDERLY},
    {"cut", BH_ENDING_CUT},
    {"error", BH_ENDING_ERROR},
    {"missing", BH_ENDING_MISSING},
    {NULL, 0},
};

static const vector_name states[] = {
    {"none", BH_STATE_NONE},
    {"arrived", BH_STATE_ARRIVED},
    {"taken", BH_STATE_TAKEN},
    {"settled", BH_STATE_SETTLED},
    {"due", BH_STATE_DUE},
    {"sent", BH_STATE_SENT},
    {"waiting", BH_STATE_WAITING},
    {"confirmed", BH_STATE_CONFIRMED},
    {"abandoned", BH_STATE_ABANDONED},
    {"acknowledged", BH_STATE_ACKNOWLEDGED},
    {"rejected", BH_STATE_REJECTED},
    {"given-back", BH_STATE_GIVEN_BACK},
    {NULL, 0},
};

static const char *const steps[] = {"rest", "emit", "ack", "nack", "reject", "give_back", "open", "declare", "publish"};

typedef struct {
    vector *v;
    bh_ledger *ledger;
    json_t *numbers; /* by the case's names */
    const json_t *row;
    int64_t now_ms;
} sequence;

/* The n-th argument of what the row does; NULL: it has none. */
static const json_t *argument(const sequence *self, size_t n)
{
    return json_array_get(json_object_get(self->row, "do"), n);
}

static int64_t int_argument(const sequence *self, size_t n)
{
    return vector_int(self->v, "do", argument(self, n));
}

static bh_bytes text_argument(const sequence *self, size_t n, const char *otherwise)
{
    return argument(self, n) ? vector_bytes(self->v, "do", argument(self, n)) : bh_str(otherwise);
}

/* A number, or the name of one. */
static int64_t number_argument(const sequence *self, size_t n)
{
    const json_t *name = argument(self, n);
    if (json_is_integer(name))
        return json_integer_value(name);
    const json_t *number = json_object_get(self->numbers, json_string_value(name));
    if (!number)
        vector_fail(self->v, "do", "nothing has the name %s", json_string_value(name));
    return json_integer_value(number);
}

static bh_status keep_number(sequence *self, size_t n, bh_status status, int64_t number)
{
    if (status == BH_OK)
        json_object_set_new(self->numbers, json_string_value(argument(self, n)), json_integer(number));
    else if (number != 0)
        vector_fail(self->v, "do", "a refused call gave a number");
    return status;
}

static const char *name_of(const sequence *self, int64_t number)
{
    const char *name;
    json_t *each;
    json_object_foreach(self->numbers, name, each) if (json_integer_value(each) == number) return name;
    return "";
}

static int is_verb(const sequence *self, const char *verb)
{
    return strcmp(json_string_value(argument(self, 0)), verb) == 0;
}

static int flag_argument(const sequence *self, size_t n)
{
    return json_is_true(argument(self, n));
}

/* Reports of the consuming side, and the settings. -1: it is something else. */
static int consume(sequence *self, bh_status *status)
{
    bh_ledger *ledger = self->ledger;
    int64_t number = 0;
    if (is_verb(self, "open_channel")) {
        *status = bh_ledger_open_channel(ledger, &number);
        keep_number(self, 1, *status, number);
    } else if (is_verb(self, "close_channel")) {
        same_int(self->v, "close_channel", int_argument(self, 2),
                 bh_ledger_close_channel(ledger, number_argument(self, 1)));
    } else if (is_verb(self, "lose_channel")) {
        same_int(self->v, "lose_channel", int_argument(self, 2),
                 bh_ledger_lose_channel(ledger, number_argument(self, 1)));
    } else if (is_verb(self, "arrive")) {
        *status = bh_ledger_arrive(ledger, number_argument(self, 1), int_argument(self, 2), &number);
        keep_number(self, 3, *status, number);
    } else if (is_verb(self, "take")) {
        *status = bh__ledger_take(ledger, number_argument(self, 1));
    } else if (is_verb(self, "acknowledge")) {
        *status = bh_ledger_acknowledge(ledger, number_argument(self, 1));
    } else if (is_verb(self, "settle")) {
        bh_action action = (bh_action)vector_name_value(self->v, "do", argument(self, 2), actions);
        *status = bh_ledger_settle(ledger, number_argument(self, 1), action, int_argument(self, 3),
                                   text_argument(self, 4, "id"), bh_str("events"), bh_str("order.created"));
    } else if (is_verb(self, "give_back")) {
        *status = bh_ledger_give_back(ledger, number_argument(self, 1));
    } else if (is_verb(self, "abandon")) {
        *status = bh_ledger_abandon(ledger, number_argument(self, 1), self->now_ms);
    } else if (is_verb(self, "postpone")) {
        *status = bh__ledger_postpone(ledger, number_argument(self, 1), self->now_ms);
    } else if (is_verb(self, "flush")) {
        bh__ledger_flush(ledger);
    } else if (is_verb(self, "set_confirm_timeout_ms")) {
        *status = bh_ledger_set_confirm_timeout_ms(ledger, int_argument(self, 1));
    } else if (is_verb(self, "set_most_sent")) {
        *status = bh__ledger_set_most_sent(ledger, int_argument(self, 1));
    } else if (is_verb(self, "set_acks")) {
        *status = bh__ledger_set_acks(ledger, int_argument(self, 1), int_argument(self, 2));
    } else if (is_verb(self, "set_restores")) {
        bh_ledger_set_restores(ledger, flag_argument(self, 1));
    } else if (is_verb(self, "set_abandoned")) {
        *status = bh__ledger_set_abandoned(ledger, int_argument(self, 1), int_argument(self, 2));
    } else {
        return 0;
    }
    return 1;
}

static void publish(sequence *self, bh_status *status)
{
    bh_ledger *ledger = self->ledger;
    if (is_verb(self, "open_publisher")) {
        int64_t number;
        *status = bh_ledger_open_publisher(ledger, &number);
        keep_number(self, 1, *status, number);
    } else if (is_verb(self, "publisher_failed")) {
        bh_ledger_publisher_failed(ledger, vector_status(self->v, argument(self, 1)), self->now_ms);
    } else if (is_verb(self, "close_publisher")) {
        bh_ending ending = (bh_ending)vector_name_value(self->v, "do", argument(self, 2), endings);
        ck_assert_int_eq(bh_ledger_close_publisher(ledger, number_argument(self, 1), ending, self->now_ms),
                         flag_argument(self, 3));
    } else if (is_verb(self, "disconnect")) {
        bh_ledger_disconnect(ledger, (bh_ending)vector_name_value(self->v, "do", argument(self, 1), endings),
                             self->now_ms);
    } else if (is_verb(self, "confirm")) {
        bh_ledger_confirm(ledger, number_argument(self, 1), int_argument(self, 2), flag_argument(self, 3),
                          !json_is_false(argument(self, 4)), self->now_ms);
    } else if (is_verb(self, "return")) {
        bh_ledger_return(ledger, number_argument(self, 1), text_argument(self, 2, "id"), bh_str("events"),
                         text_argument(self, 3, "order.created"));
    } else if (is_verb(self, "block")) {
        bh_ledger_block(ledger, flag_argument(self, 1), self->now_ms);
    } else if (is_verb(self, "rung")) {
        bh_ledger_rung(ledger, int_argument(self, 1), vector_status(self->v, argument(self, 2)), self->now_ms);
    } else if (is_verb(self, "forget_rungs")) {
        bh_ledger_forget_rungs(ledger);
    } else {
        vector_fail(self->v, "do", "%s is not known", json_string_value(argument(self, 0)));
    }
}

/* Returns the last step in the notation of the vectors. */
static json_t *show_step(const sequence *self)
{
    const char *entry = name_of(self, step.entry);
    const char *channel = name_of(self, step.channel);
    const char *kind = steps[step.kind];
    json_int_t tag = step.tag;
    switch (step.kind) {
    case BH_STEP_REST:
    case BH_STEP_OPEN:
        break;
    case BH_STEP_EMIT:
        return json_pack("[s, s, s, s, I, I]", kind, bh_event_name((int)step.event).data, entry,
                         bh_status_name(step.status).data, (json_int_t)step.delay_ms, (json_int_t)step.count);
    case BH_STEP_ACK:
        return json_pack("[s, s, I, b]", kind, channel, tag, step.multiple);
    case BH_STEP_NACK:
    case BH_STEP_REJECT:
    case BH_STEP_GIVE_BACK:
        return json_pack("[s, s, I, s]", kind, channel, tag, entry);
    case BH_STEP_DECLARE:
        return json_pack("[s, I]", kind, (json_int_t)step.delay_ms);
    case BH_STEP_PUBLISH:
        return json_pack("[s, s, s, I]", kind, entry, name_of(self, step.publisher), tag);
    }
    return json_pack("[s]", kind);
}

/* Every step until rest; if the row has `step`, that one. */
static void compare_steps(sequence *self, size_t at)
{
    const json_t *one = json_object_get(self->row, "step"), *expected = json_object_get(self->row, "steps");
    if (!one && !expected)
        return;
    int may_publish = !json_is_false(json_object_get(self->row, "may_publish"));
    json_t *got = json_array();
    while (json_array_size(got) < 200 && bh_ledger_next(self->ledger, self->now_ms, may_publish, &step)) {
        json_array_append_new(got, show_step(self));
        if (one)
            break;
    }
    json_t *wanted = one ? json_pack("[O]", one) : json_incref((json_t *)expected);
    self->v->checks++;
    if (!json_equal(got, wanted)) {
        char *text = json_dumps(got, 0);
        vector_fail(self->v, "steps", "row %zu, at %" PRId64 " ms: %s", at, self->now_ms, text);
    }
    json_decref(wanted);
    json_decref(got);
}

static void compare_states(const sequence *self, size_t at)
{
    const char *name;
    json_t *each;
    json_object_foreach(json_object_get(self->row, "states"), name, each)
    {
        const json_t *number = json_object_get(self->numbers, name);
        bh_state got = bh_ledger_state(self->ledger, json_integer_value(number));
        self->v->checks++;
        if (!number || (int)got != vector_name_value(self->v, "states", each, states))
            vector_fail(self->v, "states", "row %zu: %s is %s", at, name, states[got].name);
    }
    json_object_foreach(json_object_get(self->row, "counts"), name, each)
    {
        json_t *key = json_string(name);
        same_int(self->v, name, vector_int(self->v, "counts", each),
                 bh_ledger_count(self->ledger, (bh_state)vector_name_value(self->v, "counts", key, states)));
        json_decref(key);
    }
}

static void play_row(sequence *self, size_t at)
{
    vector_keys(self->v, "history", self->row,
                "at_ms do status may_publish step steps due_ms states counts unsettled copies is_full");
    if (json_object_get(self->row, "at_ms"))
        self->now_ms = vector_int(self->v, "at_ms", json_object_get(self->row, "at_ms"));
    if (json_object_get(self->row, "do")) {
        const json_t *expected = json_object_get(self->row, "status");
        bh_status status = BH_OK;
        if (!consume(self, &status))
            publish(self, &status);
        if (status != (expected ? vector_status(self->v, expected) : BH_OK))
            vector_fail(self->v, "status", "row %zu: %s", at, bh_status_name(status).data);
    }
    compare_steps(self, at);
    compare_states(self, at);
    const json_t *due = json_object_get(self->row, "due_ms");
    if (due)
        same_int(self->v, "due_ms", json_is_null(due) ? BH_LEDGER_NEVER : vector_int(self->v, "due_ms", due),
                 bh_ledger_due_ms(self->ledger));
    expect_int(self->v, self->row, "unsettled", bh__ledger_unsettled(self->ledger));
    expect_int(self->v, self->row, "copies", bh_ledger_copies(self->ledger));
    expect_flag(self->v, self->row, "is_full", bh__ledger_is_full(self->ledger));
}

static void play_case(vector *v)
{
    vector_begin(v, "policy random", "history");
    sequence self = {.v = v};
    bh_policy *policy;
    const char *field;
    char random[BH_LEDGER_RANDOM_BYTES] = {0};
    bh_bytes given = vector_get(v, "random") ? vector_bytes(v, "random", vector_get(v, "random"))
                                             : (bh_bytes){random, sizeof random};
    const json_t *history = json_object_get(v->expect, "history");
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    if (!vector_get(v, "policy")) {
        ck_assert_int_eq(policy_set_kind(policy, BH_KIND_FIXED), BH_OK);
        ck_assert_int_eq(policy_set_initial_ms(policy, 100), BH_OK);
        ck_assert_int_eq(policy_set_jitter(policy, BH_JITTER_NONE, 0), BH_OK);
    } else if (vector_fill_policy(v, vector_get(v, "policy"), policy, &field)) {
        vector_fail(v, field, "was refused");
    }
    ck_assert_int_eq(bh_ledger_new(&self.ledger, policy, given), BH_OK);
    self.numbers = json_object();
    for (size_t i = 0; i < json_array_size(history); i++) {
        self.row = json_array_get(history, i);
        play_row(&self, i);
    }
    json_decref(self.numbers);
    bh_ledger_free(self.ledger);
    bh_policy_free(policy);
    vector_end(v);
}

START_TEST(a_vector)
{
    play_case(&all.cases[_i]);
}
END_TEST

START_TEST(a_vector_of_the_worker)
{
    play_case(&of_worker.cases[_i]);
}
END_TEST

Suite *suite_ledger(void)
{
    all = vectors_load("ledger");
    of_worker = vectors_load("ledger/worker");
    Suite *suite = suite_create("ledger");
    vectors_add(suite, &all, a_vector);
    vectors_add(suite, &of_worker, a_vector_of_the_worker);
    TCase *histories = tcase_create("histories");
    tcase_set_timeout(histories, 120);
    tcase_add_test(histories, the_default_back_off_doubles_up_to_ten_seconds_and_half_of_it_is_random);
    tcase_add_test(histories, as_many_channels_are_open_at_once_as_a_connection_has);
    tcase_add_test(histories, random_histories_keep_what_must_always_hold);
    suite_add_tcase(suite, histories);
    TCase *words = tcase_create("words");
    tcase_add_test(words, what_a_copy_met_is_told_with_what_comes_next);
    tcase_add_test(words, why_a_channel_ended_is_told_with_what_may_be_forgotten);
    tcase_add_test(words, what_no_broker_takes_is_told_with_how_long_it_is_left);
    tcase_add_test(words, what_was_not_confirmed_is_told_together);
    tcase_add_test(words, a_reply_code_tells_how_a_publisher_ended);
    tcase_add_test(words, a_connection_that_is_closed_over_a_missing_exchange_is_a_complaint_about_the_copy);
    suite_add_tcase(suite, words);
    return suite;
}
