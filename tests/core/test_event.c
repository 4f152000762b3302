#include "../reading.h"
#include "suites.h"
#include "vectors.h"

#include <backhop/adapter/event.h>
#include <backhop/adapter.h>

static vectors all;

static const vector_name outcomes[] = {
    {"ok", BH_OUTCOME_OK},
    {"failed", BH_OUTCOME_FAILED},
    {"permanent", BH_OUTCOME_PERMANENT},
    {"dropped", BH_OUTCOME_DROPPED},
    {"throttled", BH_OUTCOME_THROTTLED},
    {"deferred", BH_OUTCOME_DEFERRED},
    {NULL, 0},
};

static const vector_name events[] = {
#define EVENT(name, word, level, meaning) {word, name},
    BH_EVENT_LIST(EVENT)
#undef EVENT
        {NULL, 0},
};

static void fill(vector *v, bh_event *event)
{
    static const bh_field strings[] = {BH_FIELD_TEXT, BH_FIELD_REASON, BH_FIELD_ERROR, BH_FIELD_CONNECTION};
    const json_t *fields = vector_get(v, "fields");
    if (fields)
        vector_keys(v, "fields", fields, "text reason error connection status");
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
        const json_t *value = json_object_get(fields, bh_event_field((int)strings[i]).data);
        if (value)
            ck_assert_int_eq(bh_event_set_string(event, strings[i], vector_bytes(v, "fields", value)), BH_OK);
    }
    const json_t *status = json_object_get(fields, "status");
    if (status)
        bh_event_set_int(event, BH_FIELD_STATUS, vector_status(v, status));
    if (vector_get(v, "cause"))
        ck_assert_int_eq(bh_event_set_cause(event, vector_bytes(v, "cause", vector_get(v, "cause"))), BH_OK);
}

START_TEST(a_vector)
{
    vector *v = &all.cases[_i];
    vector_begin(v, "outcome event fields cause", "event of_each text");
    if (vector_get(v, "outcome")) {
        int outcome = vector_name_value(v, "outcome", vector_get(v, "outcome"), outcomes);
        expect_name(v, v->expect, "event", events, (int)bh_event_of((bh_outcome)outcome));
    } else {
        bh_event *event;
        int kind = vector_name_value(v, "event", vector_get(v, "event"), events);
        ck_assert_int_eq(bh_event_new(&event, (bh_event_kind)kind), BH_OK);
        fill(v, event);
        expect_flag(v, v->expect, "of_each", bh_event_is_of_each(kind));
        expect_bytes(v, v->expect, "text", bh_event_text(event));
        bh_event_begin(event, (bh_event_kind)kind); /* nothing stays behind */
        fill(v, event);
        expect_bytes(v, v->expect, "text", bh_event_text(event));
        bh_event_free(event);
    }
    vector_end(v);
}
END_TEST

START_TEST(every_kind_and_field_has_a_word_of_its_own)
{
    for (int kind = 0; kind < BH_EVENT_LAST; kind++) {
        ck_assert_msg(bh_event_name(kind).size > 0, "kind %d has no word", kind);
        ck_assert_uint_eq(bh_event_name(kind).size, strlen(bh_event_name(kind).data));
        for (int other = 0; other < kind; other++)
            ck_assert_str_ne(bh_event_name(kind).data, bh_event_name(other).data);
    }
    for (int field = 0; field < BH_FIELD_LAST; field++) {
        ck_assert_msg(bh_event_field(field).size > 0, "field %d has no word", field);
        for (int other = 0; other < field; other++)
            ck_assert_str_ne(bh_event_field(field).data, bh_event_field(other).data);
    }
}
END_TEST

START_TEST(kinds_and_fields_have_the_words_of_the_lists)
{
    enum { STRING = 1, INT = 0 };
#define SAME_WORD(name, word, level, meaning) ck_assert_str_eq(bh_event_name(name).data, word);
    BH_EVENT_LIST(SAME_WORD)
#undef SAME_WORD
#define SAME_FIELD(name, word, type, meaning)                                                                          \
    ck_assert_str_eq(bh_event_field(name).data, word);                                                                 \
    ck_assert_int_eq(bh_event_field_is_string(name), type);
    BH_FIELD_LIST(SAME_FIELD)
#undef SAME_FIELD
}
END_TEST

START_TEST(a_number_that_is_no_kind_has_no_word)
{
    const int numbers[] = {-1, BH_EVENT_LAST, BH_FIELD_LAST + 10, 2147483647, -2147483647 - 1};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        ck_assert_str_eq(bh_event_name(numbers[i]).data, "");
        ck_assert_uint_eq(bh_event_name(numbers[i]).size, 0);
        ck_assert_str_eq(bh_event_field(numbers[i]).data, "");
        ck_assert_int_eq(bh_event_field_is_string(numbers[i]), 0);
    }
}
END_TEST

START_TEST(no_event_tells_nothing)
{
    bh_event *event;
    bh_log *log;
    ck_assert_int_eq(bh_event_new(NULL, BH_EVENT_FAILED), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_event_new(&event, BH_EVENT_LAST), BH_ERR_ARGUMENT);
    ck_assert_ptr_null(event);
    ck_assert_int_eq(bh_event_begin(NULL, BH_EVENT_FAILED), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_event_set_int(NULL, BH_FIELD_COUNT, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_event_set_string(NULL, BH_FIELD_ID, bh_str("")), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_event_what(NULL), BH_EVENT_LAST);
    ck_assert_int_eq(bh_event_has(NULL, BH_FIELD_ID), 0);
    ck_assert_str_eq(bh_event_string(NULL, BH_FIELD_TEXT).data, "");
    ck_assert_str_eq(bh_event_text(NULL).data, "");
    ck_assert_int_eq(bh_event_set_cause(NULL, bh_str("x")), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_event_of((bh_outcome)77), BH_EVENT_LAST);
    ck_assert_int_eq(bh_event_of_copy(BH_ACTION_RETRY), BH_EVENT_RETRIED);
    ck_assert_int_eq(bh_event_of_copy(BH_ACTION_RETURN), BH_EVENT_RETRIED);
    ck_assert_int_eq(bh_event_of_copy(BH_ACTION_PARK), BH_EVENT_PARKED);
    ck_assert_int_eq(bh_event_of_copy(BH_ACTION_REPLAY), BH_EVENT_REPLAYED);
    ck_assert_int_eq(bh_event_is_of_each(BH_EVENT_LAST), 0);
    ck_assert_int_eq(bh_event_int(NULL, BH_FIELD_STATUS), BH_OK);
    ck_assert_str_eq(bh_event_line(NULL).data, "");
    ck_assert_int_eq(bh_event_level(NULL), BH_LEVEL_DEBUG);
    bh_event_free(NULL);
    ck_assert_int_eq(bh_log_new(NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_log_new(&log), BH_OK);
    ck_assert_str_eq(bh_log_line(log, NULL, 0).data, "");
    ck_assert_str_eq(bh_log_line(NULL, NULL, 0).data, "");
    ck_assert_str_eq(bh_log_listener_line(log, NULL, bh_str("x"), 0).data, "");
    ck_assert_str_eq(bh_log_listener_line(NULL, NULL, bh_str("x"), 0).data, "");
    bh_log_free(log);
    bh_log_free(NULL);
}
END_TEST

START_TEST(an_event_tells_what_was_put_into_it_and_keeps_copies)
{
    bh_event *event;
    char text[] = "a\0b";
    ck_assert_int_eq(bh_event_new(&event, BH_EVENT_RETRIED), BH_OK);
    for (int field = 0; field < BH_FIELD_LAST; field++) {
        int is_string = bh_event_field_is_string(field);
        ck_assert_int_eq(bh_event_has(event, (bh_field)field), 0);
        ck_assert_int_eq(bh_event_set_string(event, (bh_field)field, (bh_bytes){text, 3}),
                         is_string ? BH_OK : BH_ERR_ARGUMENT);
        ck_assert_int_eq(bh_event_set_int(event, (bh_field)field, field + 1), is_string ? BH_ERR_ARGUMENT : BH_OK);
    }
    memset(text, '?', sizeof text);
    for (int field = 0; field < BH_FIELD_LAST; field++) {
        int is_string = bh_event_field_is_string(field);
        ck_assert_int_eq(bh_event_has(event, (bh_field)field), 1);
        ck_assert_int_eq(bh_event_int(event, (bh_field)field), is_string ? 0 : field + 1);
        ck_assert_uint_eq(bh_event_string(event, (bh_field)field).size, is_string ? 3 : 0);
        ck_assert_mem_eq(bh_event_string(event, (bh_field)field).data, is_string ? "a\0b" : "", is_string ? 4 : 1);
    }
    ck_assert_int_eq(bh_event_set_int(event, BH_FIELD_LAST, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_event_set_string(event, BH_FIELD_ID, (bh_bytes){NULL, 0}), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_event_begin(event, BH_EVENT_LAST), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_event_begin(event, BH_EVENT_PARKED), BH_OK);
    ck_assert_int_eq(bh_event_what(event), BH_EVENT_PARKED);
    ck_assert_str_eq(bh_event_string(event, BH_FIELD_ID).data, "");
    ck_assert_int_eq(bh_event_has(event, BH_FIELD_COUNT), 0);
    bh_event_free(event);
}
END_TEST

/* ----------------------------------------------------------------------------- history and plan */

#define NOW_MS INT64_C(1700000000000)

typedef struct {
    bh_policy *policy;
    bh_topology *topology;
    bh_delivery *delivery;
    bh_history *history;
    bh_plan *plan;
} nouns;

/* A message that failed twice, first 90 s ago, and that was due 250 ms ago. */
static nouns make_nouns(void)
{
    nouns self;
    ck_assert_int_eq(bh_policy_new(&self.policy), BH_OK);
    ck_assert_int_eq(bh_topology_new(&self.topology, bh_str("orders")), BH_OK);
    ck_assert_int_eq(bh_topology_build(self.topology, self.policy), BH_OK);
    ck_assert_int_eq(bh_delivery_new(&self.delivery), BH_OK);
    ck_assert_int_eq(bh_history_new(&self.history), BH_OK);
    ck_assert_int_eq(bh_plan_new(&self.plan), BH_OK);
    push_int(self.delivery, "backhop-attempts", 2);
    push_int(self.delivery, "backhop-first-failure", NOW_MS - 90000);
    push_int(self.delivery, "backhop-due", NOW_MS - 250);
    push_text(self.delivery, "backhop-id", "o-17");
    ck_assert_int_eq(bh_history_read(self.history, self.delivery, self.topology), BH_OK);
    return self;
}

static void free_nouns(nouns *self)
{
    bh_plan_free(self->plan);
    bh_history_free(self->history);
    bh_delivery_free(self->delivery);
    bh_topology_free(self->topology);
    bh_policy_free(self->policy);
}

static void expect_line(bh_event *event, const char *line)
{
    ck_assert_str_eq(bh_event_line(event).data, line);
    ck_assert_uint_eq(bh_event_line(event).size, strlen(line));
}

START_TEST(a_history_and_a_plan_fill_their_fields)
{
    nouns of = make_nouns();
    bh_event *event;
    ck_assert_int_eq(bh_event_new(&event, BH_EVENT_DELIVERED), BH_OK);
    ck_assert_int_eq(bh_event_set_history(event, NULL, 0, NOW_MS), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_event_set_history(event, of.history, 0, NOW_MS), BH_OK);
    ck_assert_str_eq(bh_event_string(event, BH_FIELD_ID).data, "o-17");
    ck_assert_int_eq(bh_event_int(event, BH_FIELD_ATTEMPT), 3);
    ck_assert_int_eq(bh_event_int(event, BH_FIELD_ATTEMPTS), 2);
    ck_assert_int_eq(bh_event_int(event, BH_FIELD_LATENESS), 250);
    expect_line(event, "delivered: message \"o-17\", attempt 3, 0.25 s late");

    bh_event_begin(event, BH_EVENT_DELIVERED);
    bh_event_set_history(event, of.history, 1, NOW_MS);
    ck_assert_int_eq(bh_event_has(event, BH_FIELD_LATENESS), 0);

    bh_event_begin(event, BH_EVENT_SUCCEEDED);
    bh_event_set_history(event, of.history, 0, NOW_MS);
    bh_event_set_int(event, BH_FIELD_DURATION, 1500);
    ck_assert_int_eq(bh_event_int(event, BH_FIELD_RECOVERY), 90000);
    expect_line(event, "succeeded: message \"o-17\", attempt 3, in 0.0015 s, 1 min 30 s after its first failure");

    bh_event_begin(event, BH_EVENT_FAILED);
    bh_event_set_history(event, of.history, 0, NOW_MS);
    ck_assert_int_eq(bh_event_int(event, BH_FIELD_ATTEMPTS), 3);

    char random_bytes[BH_PLAN_RANDOM_BYTES] = {0};
    ck_assert_int_eq(bh_plan_make(of.plan, of.delivery, of.history, of.policy, of.topology, BH_OUTCOME_FAILED,
                                  bh_str("OSError: 507"), 0, NOW_MS, (bh_bytes){random_bytes, sizeof random_bytes}),
                     BH_OK);
    bh_event_begin(event, BH_EVENT_RETRIED);
    bh_event_set_string(event, BH_FIELD_QUEUE, bh_str("orders"));
    bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("OSError"));
    ck_assert_int_eq(bh_event_set_plan(event, NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_event_set_plan(event, of.plan), BH_OK);
    ck_assert_int_eq(bh_event_int(event, BH_FIELD_DELAY), planned_of(of.plan).delay_ms);
    expect_line(event, "retried: message \"o-17\" of \"orders\", failed 3 times, again in 4 s: OSError: 507");

    ck_assert_int_eq(bh_plan_make(of.plan, of.delivery, of.history, of.policy, of.topology, BH_OUTCOME_THROTTLED,
                                  bh_str("429"), 4000, NOW_MS, (bh_bytes){random_bytes, sizeof random_bytes}),
                     BH_OK);
    bh_event_begin(event, BH_EVENT_DEFERRED);
    bh_event_set_string(event, BH_FIELD_QUEUE, bh_str("orders"));
    bh_event_set_plan(event, of.plan);
    expect_line(event, "deferred: message \"o-17\" of \"orders\", failed 2 times, deferred once, again in 4 s: 429");

    ck_assert_int_eq(bh_plan_make(of.plan, of.delivery, of.history, of.policy, of.topology, BH_OUTCOME_PERMANENT,
                                  bh_str("507"), 0, NOW_MS, (bh_bytes){random_bytes, sizeof random_bytes}),
                     BH_OK);
    bh_event_begin(event, BH_EVENT_PARKED);
    bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("OSError"));
    bh_event_set_plan(event, of.plan);
    ck_assert_int_eq(bh_event_has(event, BH_FIELD_DELAY), 0);
    expect_line(event, "parked: message \"o-17\", failed 3 times, permanent: OSError: 507");
    bh_event_free(event);
    free_nouns(&of);
}
END_TEST

START_TEST(what_a_stranger_says_of_when_it_is_due_is_bounded)
{
    static const int64_t dues[] = {0, -1, INT64_MAX, (INT64_C(1) << 53) - 1, NOW_MS + BH_POLICY_LONGEST_MS + 1};
    nouns of = make_nouns();
    for (size_t i = 0; i < sizeof dues / sizeof dues[0]; i++) {
        bh_delivery_clear(of.delivery);
        push_int(of.delivery, "backhop-attempts", 2);
        push_int(of.delivery, "backhop-due", dues[i]);
        ck_assert_int_eq(bh_history_read(of.history, of.delivery, of.topology), BH_OK);
        ck_assert_int_eq(bh_history_lateness_ms(of.history, 0, NOW_MS), -1);
        ck_assert_int_eq(bh_history_lateness_ms(of.history, 0, INT64_MIN), -1);
        ck_assert_int_eq(bh_history_lateness_ms(of.history, 0, INT64_MAX), -1);
    }
    bh_delivery_clear(of.delivery);
    push_int(of.delivery, "backhop-attempts", 2);
    push_int(of.delivery, "backhop-due", NOW_MS + 40);
    ck_assert_int_eq(bh_history_read(of.history, of.delivery, of.topology), BH_OK);
    ck_assert_int_eq(bh_history_lateness_ms(of.history, 0, NOW_MS), 0); /* clocks differ */
    bh_delivery_clear(of.delivery);
    push_int(of.delivery, "backhop-due", NOW_MS - 40);
    ck_assert_int_eq(bh_history_read(of.history, of.delivery, of.topology), BH_OK);
    ck_assert_int_eq(bh_history_lateness_ms(of.history, 0, NOW_MS), -1); /* it never failed */
    ck_assert_int_eq(bh_history_lateness_ms(NULL, 0, NOW_MS), -1);
    free_nouns(&of);
}
END_TEST

/* ----------------------------------------------------------------------------- lines and levels */

START_TEST(a_line_tells_of_a_connection_and_of_nothing_but_its_text)
{
    bh_event *event;
    ck_assert_int_eq(bh_event_new(&event, BH_EVENT_CONNECTED), BH_OK);
    expect_line(event, "connected");
    bh_event_set_string(event, BH_FIELD_TEXT, bh_str("RabbitMQ 4.3.6"));
    expect_line(event, "connected: RabbitMQ 4.3.6");
    bh_event_begin(event, BH_EVENT_DISCONNECTED);
    bh_event_set_string(event, BH_FIELD_QUEUE, bh_str("orders"));
    bh_event_set_string(event, BH_FIELD_CONNECTION, bh_str("consume"));
    bh_event_set_string(event, BH_FIELD_HOST, bh_str("localhost:5672"));
    bh_event_set_string(event, BH_FIELD_TEXT, bh_str("the socket was closed"));
    bh_event_set_int(event, BH_FIELD_DELAY, 1200);
    bh_event_set_int(event, BH_FIELD_COUNT, 3);
    expect_line(event,
                "disconnected: queue \"orders\", consume connection to localhost:5672, again in 1.2 s, 3 messages: "
                "the socket was closed");
    bh_event_begin(event, BH_EVENT_MISSED);
    bh_event_set_int(event, BH_FIELD_COUNT, 1);
    expect_line(event, "missed: 1 event: events were not taken in time, and are gone");
    bh_event_begin(event, BH_EVENT_REFUSED);
    bh_event_set_string(event, BH_FIELD_ID, bh_str("o-17"));
    bh_event_set_string(event, BH_FIELD_ERROR, bh_str("KeyError"));
    expect_line(event,
                "refused: message \"o-17\": KeyError: it can be neither read nor copied: it stays unacknowledged for "
                "a while, and then comes again");
    bh_event_begin(event, BH_EVENT_UNAVAILABLE);
    bh_event_set_int(event, BH_FIELD_DELAY, 1000);
    expect_line(event, "unavailable: again in 1 s");
    bh_event_set_string(event, BH_FIELD_CONNECTION, bh_str("publish"));
    ck_assert_ptr_nonnull(strstr(bh_event_line(event).data, "there is no channel to publish on"));
    ck_assert_int_eq(bh_event_has(event, BH_FIELD_TEXT), 0);
    bh_event_set_string(event, BH_FIELD_TEXT, bh_str("504"));
    expect_line(event, "unavailable: publish connection, again in 1 s: 504");
    bh_event_begin(event, BH_EVENT_DELIVERED);
    bh_event_set_string(event, BH_FIELD_QUEUE, bh_str("orders"));
    expect_line(event, "delivered: a message of \"orders\"");
    bh_event_begin(event, BH_EVENT_NACKED);
    bh_event_set_string(event, BH_FIELD_ID, bh_str("o-17"));
    bh_event_set_int(event, BH_FIELD_ATTEMPTS, 1);
    bh_event_set_int(event, BH_FIELD_DELAY, 1200);
    bh_event_set_string(event, BH_FIELD_TEXT, bh_str("it is published again in 1.2 s"));
    expect_line(event, "nacked: message \"o-17\", failed once: it is published again in 1.2 s");
    bh_event_free(event);
}
END_TEST

START_TEST(what_strangers_write_stays_one_harmless_line)
{
    bh_event *event;
    char id[300], error[4000];
    memset(id, 'i', sizeof id);
    memset(error, 'e', sizeof error);
    ck_assert_int_eq(bh_event_new(&event, BH_EVENT_FAILED), BH_OK);
    bh_event_set_string(event, BH_FIELD_ID, bh_str("\x1b[31m\r\nparked: x\xff"));
    bh_event_set_string(event, BH_FIELD_ERROR, bh_str("first\nsecond\ttab\x07"));
    expect_line(event, "failed: message \"?[31m? parked: x?\": first second tab?");
    bh_event_begin(event, BH_EVENT_FAILED);
    bh_event_set_string(event, BH_FIELD_ID, (bh_bytes){id, sizeof id});
    bh_event_set_string(event, BH_FIELD_ERROR, (bh_bytes){error, sizeof error});
    ck_assert_uint_eq(bh_event_line(event).size, strlen("failed: message \"\": ") + 128 + 1024);
    bh_event_free(event);
}
END_TEST

START_TEST(an_event_is_as_loud_as_what_a_person_has_to_do)
{
    bh_event *event;
    ck_assert_int_eq(bh_event_new(&event, BH_EVENT_DELIVERED), BH_OK);
    static const struct {
        bh_event_kind kind;
        bh_status status;
        bh_level level;
    } cases[] = {
        {BH_EVENT_DELIVERED, BH_OK, BH_LEVEL_DEBUG},
        {BH_EVENT_FAILED, BH_OK, BH_LEVEL_DEBUG},
        {BH_EVENT_RETRIED, BH_OK, BH_LEVEL_INFO},
        {BH_EVENT_PARKED, BH_OK, BH_LEVEL_WARNING},
        {BH_EVENT_REFUSED, BH_ERR_CHANNEL, BH_LEVEL_ERROR},
        {BH_EVENT_UNAVAILABLE, BH_ERR_CONNECTION, BH_LEVEL_WARNING},
        {BH_EVENT_UNAVAILABLE, BH_ERR_ACCESS, BH_LEVEL_ERROR},
        {BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, BH_LEVEL_ERROR},
        {BH_EVENT_DRAINED, BH_OK, BH_LEVEL_INFO},
        {BH_EVENT_DRAINED, BH_ERR_TIMEOUT, BH_LEVEL_WARNING},
        {BH_EVENT_DRAINED, BH_ERR_CLASH, BH_LEVEL_ERROR},
        {BH_EVENT_REPLAYED, BH_OK, BH_LEVEL_INFO},
        {BH_EVENT_REPLAYED, BH_ERR_CONNECTION, BH_LEVEL_WARNING},
        {BH_EVENT_REPLAYED, BH_ERR_ACCESS, BH_LEVEL_ERROR},
        {BH_EVENT_RETURNED, BH_ERR_PUBLISH, BH_LEVEL_WARNING},
        {BH_EVENT_RETURNED, BH_ERR_MISSING, BH_LEVEL_WARNING},
        {BH_EVENT_RETURNED, BH_ERR_ACCESS, BH_LEVEL_ERROR},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bh_event_begin(event, cases[i].kind);
        bh_event_set_int(event, BH_FIELD_STATUS, cases[i].status);
        ck_assert_msg(bh_event_level(event) == cases[i].level, "%zu", i);
    }
    bh_event_begin(event, BH_EVENT_REPLAYED);
    bh_event_set_string(event, BH_FIELD_TEXT, bh_replay_unroutable_text(BH_MODE_CREATE));
    ck_assert_int_eq(bh_event_level(event), BH_LEVEL_WARNING);
    bh_event_free(event);
}
END_TEST

static int written(bh_log *log, bh_event *event, const char *queue, int64_t now_ms)
{
    bh_event_set_string(event, BH_FIELD_QUEUE, bh_str(queue));
    return bh_log_line(log, event, now_ms).size > 0;
}

START_TEST(a_flood_is_ten_lines_a_second_of_each_kind_and_queue)
{
    bh_event *parked, *retried, *failed;
    bh_log *log;
    int lines = 0, others = 0, debug = 0;
    ck_assert_int_eq(bh_log_new(&log), BH_OK);
    ck_assert_int_eq(bh_event_new(&parked, BH_EVENT_PARKED), BH_OK);
    ck_assert_int_eq(bh_event_new(&retried, BH_EVENT_RETRIED), BH_OK);
    ck_assert_int_eq(bh_event_new(&failed, BH_EVENT_FAILED), BH_OK);
    for (int i = 0; i < 300; i++) {
        lines += written(log, parked, "orders", 5000 + i);
        others += i < 5 && written(log, parked, "mails", 5000 + i) && written(log, retried, "orders", 5000 + i);
        debug += written(log, failed, "orders", 5000 + i);
    }
    ck_assert_int_eq(lines, 10);
    ck_assert_int_eq(others, 5);
    ck_assert_int_eq(debug, 300);
    bh_event_begin(parked, BH_EVENT_PARKED);
    bh_event_set_string(parked, BH_FIELD_QUEUE, bh_str("orders"));
    ck_assert_str_eq(bh_log_line(log, parked, 6000).data,
                     "parked: a message of \"orders\" (290 more like it were left out before)");
    for (int i = 0; i < 8; i++)
        ck_assert_str_eq(bh_log_line(log, parked, 6000 + i).data, "parked: a message of \"orders\"");
    ck_assert_str_eq(bh_log_line(log, parked, 6999).data,
                     "parked: a message of \"orders\" (further ones of this second are left out)");
    ck_assert_str_eq(bh_log_line(log, parked, 6999).data, "");
    ck_assert_str_eq(bh_log_omitted_line(log, parked, 6999).data, ""); /* T10: its second is not over */
    ck_assert_str_eq(bh_log_omitted_line(log, parked, 7000).data, "parked: 1 more lines of \"orders\" were left out");
    ck_assert_str_eq(bh_log_omitted_line(log, parked, 7000).data, "");
    ck_assert_str_eq(bh_log_omitted_line(NULL, parked, 7000).data, "");
    ck_assert_uint_gt(bh_log_line(log, parked, 100).size, 0); /* the clock was set back */
    bh_event_free(parked);
    bh_event_free(retried);
    bh_event_free(failed);
    bh_log_free(log);
}
END_TEST

START_TEST(a_listener_that_fails_each_time_is_ten_lines_a_second_of_each_queue)
{
    bh_event *failed, *parked;
    bh_log *log;
    const bh_bytes error = bh_str("KeyError: no\x1bsuch hook");
    ck_assert_int_eq(bh_log_new(&log), BH_OK);
    ck_assert_int_eq(bh_event_new(&failed, BH_EVENT_FAILED), BH_OK);
    ck_assert_int_eq(bh_event_new(&parked, BH_EVENT_PARKED), BH_OK);
    ck_assert_str_eq(bh_log_listener_line(log, failed, bh_str("no"), 0).data, "a listener failed at failed: no");
    bh_event_set_string(failed, BH_FIELD_QUEUE, bh_str("orders"));
    bh_event_set_string(parked, BH_FIELD_QUEUE, bh_str("orders"));
    ck_assert_str_eq(bh_log_listener_line(log, failed, error, 5000).data,
                     "a listener failed at failed of \"orders\": KeyError: no?such hook");
    int lines = 1, own = 0;
    for (int i = 1; i < 300; i++) {
        lines += bh_log_listener_line(log, i % 2 ? failed : parked, error, 5000 + i).size > 0;
        own += bh_log_line(log, parked, 5000 + i).size > 0;
    }
    ck_assert_int_eq(lines, 10);
    ck_assert_int_eq(own, 10); /* which are counted for themselves */
    ck_assert_str_eq(bh_log_listener_line(log, parked, bh_str("no"), 6000).data,
                     "a listener failed at parked of \"orders\": no (290 more like it were left out before)");
    bh_event_free(parked);
    bh_event_free(failed);
    bh_log_free(log);
}
END_TEST

Suite *suite_event(void)
{
    Suite *suite = suite_create("event");
    all = vectors_load("event");
    vectors_add(suite, &all, a_vector);
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, every_kind_and_field_has_a_word_of_its_own);
    tcase_add_test(calls, kinds_and_fields_have_the_words_of_the_lists);
    tcase_add_test(calls, a_number_that_is_no_kind_has_no_word);
    tcase_add_test(calls, no_event_tells_nothing);
    tcase_add_test(calls, an_event_tells_what_was_put_into_it_and_keeps_copies);
    tcase_add_test(calls, a_history_and_a_plan_fill_their_fields);
    tcase_add_test(calls, what_a_stranger_says_of_when_it_is_due_is_bounded);
    tcase_add_test(calls, a_line_tells_of_a_connection_and_of_nothing_but_its_text);
    tcase_add_test(calls, what_strangers_write_stays_one_harmless_line);
    tcase_add_test(calls, an_event_is_as_loud_as_what_a_person_has_to_do);
    tcase_add_test(calls, a_flood_is_ten_lines_a_second_of_each_kind_and_queue);
    tcase_add_test(calls, a_listener_that_fails_each_time_is_ten_lines_a_second_of_each_queue);
    suite_add_tcase(suite, calls);
    return suite;
}
