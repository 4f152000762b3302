/*
 * Scenarios: histories with a name. Each plays a fault that a worker once met on a real broker. Its
 * assertions come on top of the rules for every history (history.h).
 */
#include "history.h"
#include "schedule.h"
#include "suites.h"

#include <stdio.h>

/* ------------------------------------------------------------------------------------- handlers */

/* Which attempts of a message fail, and what a call takes. */
typedef struct handler {
    int64_t failures;
    int64_t ms;
    int64_t retry_after_ms;
} handler;

static handler always_fail = {.failures = 1000, .ms = 5}, always_succeed = {.ms = 5},
               fail_first = {.failures = 1, .ms = 5}, fail_first_after_4_s = {.failures = 1, .ms = 4000},
               fail_after_4_s = {.failures = 1000, .ms = 4000}, after_4_s = {.ms = 4000},
               succeed_after_20_s = {.ms = 20000}, succeed_after_90_s = {.ms = 90000},
               ask_for_5_minutes = {.failures = 1, .retry_after_ms = 300000};

static call_script follow(void *data, const account *message, int64_t attempt)
{
    const handler *self = data;
    (void)message;
    return (call_script){.outcome = attempt <= self->failures ? BH_OUTCOME_FAILED : BH_OUTCOME_OK,
                         .duration_ms = self->ms,
                         .retry_after_ms = self->retry_after_ms};
}

static call_script answer(int fails, int64_t ms)
{
    return (call_script){.outcome = fails ? BH_OUTCOME_FAILED : BH_OUTCOME_OK, .duration_ms = ms};
}

static call_script fail_two_calls(void *data, const account *message, int64_t attempt)
{
    (void)data, (void)attempt;
    return answer(message->calls <= 2, 5);
}

/* The downstream is down from 5 s to 65 s. */
static call_script fail_in_outage(void *data, const account *message, int64_t attempt)
{
    (void)data, (void)message, (void)attempt;
    return answer(schedule_now_ms() > 5000 && schedule_now_ms() < 65000, 20);
}

static call_script outlive_first(void *data, const account *message, int64_t attempt)
{
    (void)data, (void)attempt;
    return answer(0, message->index == 0 ? 90000 : 5);
}

static call_script fail_message_0(void *data, const account *message, int64_t attempt)
{
    (void)data;
    return answer(message->index == 0 && attempt == 1, 5);
}

static call_script fail_key_a(void *data, const account *message, int64_t attempt)
{
    (void)data, (void)attempt;
    return answer(message->index % 3 == 0 && schedule_now_ms() < 60000, 5);
}

/* ------------------------------------------------------------------------------------ histories */

static const char *const versions[] = {"3.10", "4.0", "4.3"};
enum { VERSIONS = sizeof versions / sizeof versions[0] };

/* One worker on RabbitMQ 4.3; 1 s, 2 s, ... between the attempts. A message is published each
 * `publish_ms`. */
static history usual(const char *name, unsigned messages, int64_t publish_ms, handler *called)
{
    return (history){.name = name,
                     .version = "4.3",
                     .strategy = BH_STRATEGY_LADDER,
                     .type = BH_QUEUE_QUORUM,
                     .kind = BH_KIND_EXPONENTIAL,
                     .initial_ms = 1000,
                     .factor = 2,
                     .max_ms = 3600000,
                     .max_attempts = 5,
                     .workers = 1,
                     .prefetch = 10,
                     .heartbeat_s = 10,
                     .confirm_ms = 5000,
                     .messages = messages,
                     .publish_ms = publish_ms,
                     .body_bytes = 50,
                     .decide = follow,
                     .data = called};
}

/* A breaker that opens after so many failures in a row. */
static const bh_breaker_settings *breaker_after(int64_t row_failures)
{
    static bh_breaker_settings settings;
    bh_breaker_defaults(&settings);
    settings.row_failures = row_failures;
    return &settings;
}

static outcome play(history *self)
{
    tape choices = {NULL, 0};
    outcome out;
    history_play(self, &choices, &out);
    return out;
}

static void add_fault(history *self, fault added)
{
    ck_assert_uint_lt(self->fault_count, MOST_FAULTS);
    self->faults[self->fault_count++] = added;
}

/* Both connections of the worker are silent in both directions. */
static void add_silence(history *self, int64_t at_ms, int64_t for_ms)
{
    for (unsigned which = 0; which < 2; which++)
        add_fault(self, (fault){.kind = FAULT_SILENCE, .at_ms = at_ms, .for_ms = for_ms, .which = which, .way = 2});
}

/* ------------------------------------------------------------------------------------- policies */

START_TEST(eight_attempts_up_to_an_hour_end_in_the_parked_queue)
{
    history it = usual("eight attempts up to an hour", 1, 100, &always_fail);
    it.initial_ms = 60000;
    it.max_attempts = 8;
    outcome out = play(&it);
    ck_assert_int_eq(out.calls, 8);
    ck_assert_int_eq(out.parked, 1);
    ck_assert_int_ge(out.end_ms, (1 + 2 + 4 + 8 + 16 + 32 + 60) * 60000);
}
END_TEST

START_TEST(each_strategy_retries_and_parks_on_each_version)
{
    static const struct {
        bh_strategy strategy;
        bh_queue_type type;
        bh_kind kind;
        int least; /* index of the version that it needs */
    } set_ups[] = {{BH_STRATEGY_LADDER, BH_QUEUE_QUORUM, BH_KIND_EXPONENTIAL, 0},
                   {BH_STRATEGY_LADDER, BH_QUEUE_CLASSIC, BH_KIND_EXPONENTIAL, 0},
                   {BH_STRATEGY_MESSAGE_TTL, BH_QUEUE_QUORUM, BH_KIND_FIXED, 0},
                   {BH_STRATEGY_REJECT, BH_QUEUE_QUORUM, BH_KIND_FIXED, 0},
                   {BH_STRATEGY_REJECT, BH_QUEUE_CLASSIC, BH_KIND_FIXED, 0},
                   {BH_STRATEGY_NATIVE, BH_QUEUE_QUORUM, BH_KIND_FIXED, 2}};
    for (size_t i = 0; i < sizeof set_ups / sizeof set_ups[0]; i++)
        for (int version = set_ups[i].least; version < VERSIONS; version++) {
            char name[64];
            snprintf(name, sizeof name, "set-up %zu on %s", i, versions[version]);
            history it = usual(name, 3, 100, &always_fail);
            it.version = versions[version];
            it.strategy = set_ups[i].strategy;
            it.type = set_ups[i].type;
            it.kind = set_ups[i].kind;
            it.max_attempts = 3;
            outcome out = play(&it);
            ck_assert_msg(out.calls == 9 && out.parked == 3, "%s: %d calls, %d parked", name, out.calls, out.parked);
        }
}
END_TEST

START_TEST(parked_messages_are_replayed)
{
    history it = usual("replay", 5, 100, NULL);
    it.max_attempts = 2;
    it.decide = fail_two_calls;
    add_fault(&it, (fault){.kind = FAULT_REPLAY, .at_ms = 20000, .for_ms = 60000});
    outcome out = play(&it);
    ck_assert_int_eq(out.oks, 5);
    ck_assert_int_eq(out.parked, 0);
    ck_assert_int_eq(out.calls, 15);
    ck_assert_int_eq(out.events[BH_EVENT_REPLAYED], 1);
}
END_TEST

START_TEST(parked_messages_are_replayed_after_a_restart)
{
    history it = usual("replay after a restart", 5, 100, NULL);
    it.max_attempts = 2;
    it.decide = fail_two_calls;
    add_fault(&it, (fault){.kind = FAULT_KILL, .at_ms = 20000, .for_ms = 5000});
    add_fault(&it, (fault){.kind = FAULT_REPLAY, .at_ms = 60000, .for_ms = 60000});
    outcome out = play(&it);
    ck_assert_int_eq(out.oks, 5);
    ck_assert_int_eq(out.parked, 0);
}
END_TEST

/* The look at the return exchange, once a minute, waits for the end of the replay. */
START_TEST(a_replay_of_some_minutes_does_not_spin)
{
    history it = usual("long replay", 30, 100, NULL);
    it.max_attempts = 2;
    it.heartbeat_s = 60;
    it.confirm_ms = 30000;
    it.decide = fail_two_calls;
    add_fault(&it, (fault){.kind = FAULT_SLOW, .at_ms = 15000, .for_ms = 300000, .amount = 1500});
    add_fault(&it, (fault){.kind = FAULT_REPLAY, .at_ms = 20000, .for_ms = 300000});
    outcome out = play(&it);
    ck_assert_int_eq(out.oks, 30);
    ck_assert_int_eq(out.events[BH_EVENT_REPLAYED], 1);
}
END_TEST

/* -------------------------------------------------------------------------------------- breaker */

START_TEST(a_breaker_opens_probes_and_closes_in_an_outage_of_60_s)
{
    history it = usual("breaker", 100, 300, NULL);
    it.breaker = breaker_after(5);
    it.decide = fail_in_outage;
    it.takers = 2;
    outcome out = play(&it);
    ck_assert_int_eq(out.oks, 100);
    ck_assert_int_eq(out.parked, 0);
    ck_assert_int_ge(out.events[BH_EVENT_BREAKER_OPENED], 1);
    ck_assert_int_ge(out.events[BH_EVENT_BREAKER_HALF_OPEN], 1);
    ck_assert_int_ge(out.events[BH_EVENT_BREAKER_CLOSED], 1);
    ck_assert_int_ge(out.events[BH_EVENT_DEFERRED], 1); /* after 30 s the consumer lets go */
    ck_assert_int_lt(out.events[BH_EVENT_FAILED], 20);
}
END_TEST

START_TEST(messages_that_a_breaker_holds_outlive_their_queue)
{
    history it = usual("queue deleted while a breaker is open", 30, 300, NULL);
    it.breaker = breaker_after(3);
    it.prefetch = 20;
    it.decide = fail_in_outage;
    add_fault(&it, (fault){.kind = FAULT_DELETE_QUEUE, .at_ms = 12000});
    outcome out = play(&it);
    ck_assert_int_ge(out.events[BH_EVENT_BREAKER_OPENED], 1);
    ck_assert_int_eq(out.oks, 30); /* the worker had all in hand */
}
END_TEST

START_TEST(a_breaker_that_is_open_stays_so_over_stops_and_lost_connections)
{
    history it = usual("stops and cuts while a breaker is open", 30, 300, NULL);
    it.breaker = breaker_after(3);
    it.decide = fail_in_outage;
    add_fault(&it, (fault){.kind = FAULT_RESTART, .at_ms = 9000, .for_ms = 1000});
    add_fault(&it, (fault){.kind = FAULT_RESET, .at_ms = 15000});
    add_fault(&it, (fault){.kind = FAULT_RESTART, .at_ms = 25000, .for_ms = 1000, .amount = 5000});
    outcome out = play(&it);
    ck_assert_int_eq(out.parked, 0);
    ck_assert_int_ge(out.events[BH_EVENT_BREAKER_OPENED], 1);
    ck_assert_int_lt(out.events[BH_EVENT_FAILED], 20);
}
END_TEST

/* The downstream is down from 5 s to 65 s: the breaker is closed, open, half-open, and closed for
 * fewer calls. */
START_TEST(a_broker_that_is_killed_in_any_state_of_a_breaker_loses_nothing)
{
    for (int64_t at_ms = 1000; at_ms < 75000; at_ms += 2000) {
        char name[64];
        snprintf(name, sizeof name, "broker killed after %d ms, with a breaker", (int)at_ms);
        history it = usual(name, 30, 300, NULL);
        it.breaker = breaker_after(3);
        it.decide = fail_in_outage;
        add_fault(&it, (fault){.kind = FAULT_KILL, .at_ms = at_ms, .for_ms = 2000});
        outcome out = play(&it);
        ck_assert_msg(out.oks >= 30 && out.parked == 0, "%s: %d successes, %d parked", name, out.oks, out.parked);
    }
}
END_TEST

START_TEST(a_breaker_of_a_key_stops_no_other_key)
{
    history it = usual("breakers by key", 60, 500, NULL);
    it.breaker = breaker_after(3);
    it.has_keys = 1;
    it.max_attempts = 8;
    it.decide = fail_key_a;
    outcome out = play(&it);
    ck_assert_int_eq(out.oks, 60);
    ck_assert_int_eq(out.parked, 0);
    ck_assert_int_lt(out.calls, 60 + 20);
    ck_assert_int_ge(out.events[BH_EVENT_DEFERRED], 5);
}
END_TEST

/* ---------------------------------------------------------------------------------------- relay */

START_TEST(a_relay_retries_and_parks_what_a_consumer_rejects)
{
    history it = usual("relay", 6, 100, &always_fail);
    it.has_relay = 1;
    it.max_attempts = 3;
    outcome out = play(&it);
    ck_assert_int_eq(out.calls, 18);
    ck_assert_int_eq(out.parked, 6);
}
END_TEST

START_TEST(a_relay_that_is_stopped_and_killed_loses_nothing)
{
    history it = usual("relay with faults", 30, 1000, &fail_first);
    it.has_relay = 1;
    it.workers = 2;
    for (int i = 0; i < 4; i++) {
        add_fault(&it, (fault){.kind = FAULT_KILL, .at_ms = 2000 + 7000 * i, .for_ms = 1000});
        add_fault(&it,
                  (fault){.kind = FAULT_RESTART, .at_ms = 5000 + 7000 * i, .for_ms = 2000, .which = (unsigned)i % 2});
    }
    add_fault(&it, (fault){.kind = FAULT_RESTART, .at_ms = 26000, .for_ms = 2000}); /* now no relay runs */
    outcome out = play(&it);
    ck_assert_int_ge(out.oks, 30);
}
END_TEST

/* -------------------------------------------------------------------------------------- cluster */

START_TEST(a_leader_that_moves_doubles_at_most_what_was_in_hand)
{
    for (int i = 0; i < VERSIONS; i++) {
        history it = usual("leader", 20, 200, &fail_first_after_4_s);
        it.version = versions[i];
        it.takers = 3;
        for (int j = 0; j < 5; j++)
            add_fault(&it, (fault){.kind = FAULT_LEADER, .at_ms = 1500 + 2000 * j});
        outcome out = play(&it);
        ck_assert_int_ge(out.oks, 20);
    }
}
END_TEST

START_TEST(confirms_that_are_lost_for_a_minute_double_at_most_what_was_in_hand)
{
    history it = usual("confirms lost", 20, 300, &fail_first);
    add_fault(&it, (fault){.kind = FAULT_UNCONFIRMED, .at_ms = 2000, .for_ms = 60000});
    outcome out = play(&it);
    ck_assert_int_ge(out.oks, 20);
    ck_assert_int_ge(out.events[BH_EVENT_UNCONFIRMED], 1);
}
END_TEST

START_TEST(a_node_that_is_alone_for_100_s_doubles_few)
{
    unsigned char bytes[64];
    tape chosen = {bytes, sizeof bytes};
    tape_fill(bytes, sizeof bytes, 1);
    history it = usual("minority", 50, 50, &fail_first);
    it.prefetch = 50;
    it.initial_ms = 5000;
    it.model_choices = &chosen;
    add_fault(&it, (fault){.kind = FAULT_MINORITY, .at_ms = 1500, .for_ms = 100000});
    outcome out = play(&it);
    ck_assert_int_ge(out.oks, 50);
    ck_assert_int_le(out.oks, 80);
}
END_TEST

/* --------------------------------------------------------------------------------------- broker */

START_TEST(a_handler_that_outlives_the_consumer_timeout_stops_no_other_message)
{
    for (int i = 0; i < VERSIONS; i++) {
        history it = usual("consumer timeout, others flow", 40, 3000, NULL);
        it.version = versions[i];
        it.consumer_timeout_ms = 60000;
        it.takers = 1;
        it.prefetch = 2;
        it.decide = outlive_first;
        outcome out = play(&it);
        ck_assert_msg(out.calls == 40, "%s: %d calls", versions[i], out.calls);
        ck_assert_int_lt(out.end_ms, 135000);
        ck_assert_int_le(out.most_channels, 4);
    }
}
END_TEST

START_TEST(a_queue_that_is_deleted_again_and_again_leaves_no_channel)
{
    for (int i = 0; i < VERSIONS; i++) {
        history it = usual("channels", 1, 100, &always_succeed);
        it.version = versions[i];
        for (int j = 0; j < 10; j++)
            add_fault(&it, (fault){.kind = FAULT_DELETE_QUEUE, .at_ms = 2000 + 10000 * j});
        outcome out = play(&it);
        ck_assert_int_ge(out.events[BH_EVENT_CANCELLED], 9);
        ck_assert_int_le(out.most_channels, 4);
    }
}
END_TEST

/* No message is settled in between, so the back-off grows. */
START_TEST(a_queue_that_is_deleted_each_second_is_consumed_less_and_less_often)
{
    for (int i = 0; i < VERSIONS; i++) {
        history it = usual("queue deleted each second", 1, 100, &always_succeed);
        it.version = versions[i];
        for (int j = 0; j < 14; j++)
            add_fault(&it, (fault){.kind = FAULT_DELETE_QUEUE, .at_ms = 2000 + 1000 * j});
        outcome out = play(&it);
        ck_assert_int_ge(out.events[BH_EVENT_CANCELLED], 4);
        ck_assert_int_le(out.events[BH_EVENT_CANCELLED], 9);
    }
}
END_TEST

START_TEST(retries_that_fall_due_while_queue_and_worker_are_away_come_back)
{
    history it = usual("queue and worker away", 10, 100, &fail_first);
    it.initial_ms = 5000;
    add_fault(&it, (fault){.kind = FAULT_RESTART, .at_ms = 3000, .for_ms = 60000, .amount = 1000});
    add_fault(&it, (fault){.kind = FAULT_DELETE_QUEUE, .at_ms = 4500});
    add_fault(&it, (fault){.kind = FAULT_JUMP, .at_ms = 200000}); /* by 0: two looks later */
    outcome out = play(&it);
    ck_assert_int_eq(out.oks, 10);
    ck_assert_int_eq(out.unroutable, 0);
    ck_assert_int_ge(out.events[BH_EVENT_REPLAYED], 1);
}
END_TEST

START_TEST(retries_of_a_queue_that_was_away_have_no_more_attempts_than_others)
{
    history it = usual("poison, and queue and worker away", 10, 100, &always_fail);
    it.initial_ms = 5000;
    add_fault(&it, (fault){.kind = FAULT_RESTART, .at_ms = 9000, .for_ms = 60000, .amount = 1000});
    add_fault(&it, (fault){.kind = FAULT_DELETE_QUEUE, .at_ms = 10500});
    add_fault(&it, (fault){.kind = FAULT_JUMP, .at_ms = 200000}); /* by 0: two looks later */
    outcome out = play(&it);
    ck_assert_int_ge(out.events[BH_EVENT_REPLAYED], 1);
    ck_assert_int_eq(out.parked, 10);
    ck_assert_int_eq(out.calls, 50);
}
END_TEST

START_TEST(a_rung_that_cannot_be_declared_stops_no_other_message)
{
    history it = usual("a rung without rights", 20, 1000, &ask_for_5_minutes);
    add_fault(
        &it,
        (fault){.kind = FAULT_ORDER,
                .at_ms = 10,
                .order = "permissions / guest '^(orders.*|backhop[.](unroutable|return|wait([.][^3].*)?))$' .* .*"});
    add_fault(&it, (fault){.kind = FAULT_ORDER, .at_ms = 60000, .order = "permissions / guest .* .* .*"});
    outcome out = play(&it);
    ck_assert_int_eq(out.oks, 20);
    ck_assert_int_eq(out.calls, 40);
}
END_TEST

START_TEST(a_deleted_work_queue_is_declared_again)
{
    history it = usual("queue deleted", 10, 3000, &always_succeed);
    add_fault(&it, (fault){.kind = FAULT_DELETE_QUEUE, .at_ms = 10000});
    outcome out = play(&it);
    ck_assert_int_ge(out.events[BH_EVENT_CANCELLED], 1);
    ck_assert_int_eq(out.oks, 10);
}
END_TEST

/* RabbitMQ 4.3 cancels a consumer if its queue is deleted, and if it holds a message too long. Each
 * worker has to find the cause, also if the other one declares the queue again. */
START_TEST(messages_in_hand_outlive_their_queue_although_another_worker_declares_it)
{
    history it = usual("queue deleted under two workers", 8, 100, &fail_first_after_4_s);
    it.workers = 2;
    it.takers = 3;
    it.initial_ms = 4000;
    add_fault(&it, (fault){.kind = FAULT_DELETE_QUEUE, .at_ms = 3000});
    outcome out = play(&it);
    ck_assert_int_ge(out.events[BH_EVENT_CANCELLED], 2);
    ck_assert_int_eq(out.oks, 8);
    ck_assert_int_eq(out.calls, 16);
}
END_TEST

/* Both workers have waited before, one longer than the other: a look at the queue must not wait so
 * long. */
START_TEST(messages_in_hand_outlive_their_queue_after_other_failures)
{
    for (int i = 0; i < 10; i++) {
        char name[64];
        snprintf(name, sizeof name, "queue deleted after %d ms without rights", 1000 + 200 * i);
        history it = usual(name, 8, 500, &succeed_after_20_s);
        it.workers = 2;
        it.takers = 3;
        add_fault(&it, (fault){.kind = FAULT_NO_RIGHTS, .at_ms = 10, .for_ms = 1000 + 200 * i});
        add_fault(&it, (fault){.kind = FAULT_DELETE_QUEUE, .at_ms = 12000});
        outcome out = play(&it);
        ck_assert_msg(out.oks >= 8, "%s: %d successes", name, out.oks);
    }
}
END_TEST

START_TEST(retries_of_a_work_queue_that_was_away_come_back)
{
    history it = usual("queue deleted while retries wait", 5, 100, &fail_first);
    it.initial_ms = 20000;
    add_fault(&it, (fault){.kind = FAULT_DELETE_QUEUE, .at_ms = 10000});
    outcome out = play(&it);
    ck_assert_int_eq(out.oks, 5);
    ck_assert_int_eq(out.unroutable, 0);
}
END_TEST

START_TEST(a_deleted_return_exchange_is_declared_again)
{
    history it = usual("return exchange deleted", 10, 2000, &fail_first);
    it.initial_ms = 5000;
    add_fault(&it, (fault){.kind = FAULT_DELETE_RETURN, .at_ms = 8000});
    outcome out = play(&it);
    ck_assert_int_ge(out.events[BH_EVENT_UNAVAILABLE], 1);
    ck_assert_int_eq(out.oks, 10);
}
END_TEST

START_TEST(a_silent_broker_is_left_after_two_heartbeats)
{
    history it = usual("silence", 20, 2000, &fail_first);
    add_silence(&it, 5000, 100000);
    outcome out = play(&it);
    ck_assert_int_ge(out.events[BH_EVENT_DISCONNECTED], 1);
    ck_assert_int_ge(out.oks, 20);
    ck_assert_int_lt(out.end_ms, 120000);
}
END_TEST

/* Cuts a connection of a worker after so many bytes, in each direction. */
static void play_cuts(unsigned body_bytes, int64_t least, int64_t step, int64_t most)
{
    for (unsigned at = 0; at < 4; at++)
        for (int64_t bytes = least; bytes <= most; bytes += step) {
            char name[64];
            snprintf(name, sizeof name, "connection %u is cut after %d bytes %s", at / 2, (int)bytes,
                     at % 2 ? "down" : "up");
            history it = usual(name, 10, 20, &fail_first);
            it.body_bytes = body_bytes;
            add_fault(&it, (fault){.kind = FAULT_CUT, .at_ms = 100, .which = at / 2, .way = at % 2, .amount = bytes});
            outcome out = play(&it);
            ck_assert_msg(out.oks >= 10, "%s: %d successes", name, out.oks);
        }
}

START_TEST(a_connection_that_is_cut_anywhere_doubles_at_most_what_was_in_hand)
{
    play_cuts(50, 0, 20, 400);               /* within an acknowledgement, a confirm, a copy */
    play_cuts(140000, 20000, 40000, 180000); /* within a body, which takes two frames */
}
END_TEST

START_TEST(a_handler_that_outlives_its_connection_is_called_once)
{
    for (int i = 0; i < VERSIONS; i++) {
        history it = usual("connections lost while handlers work", 8, 100, &fail_first_after_4_s);
        it.version = versions[i];
        it.takers = 3;
        for (int j = 0; j < 3; j++)
            add_fault(&it, (fault){.kind = j % 2 ? FAULT_CLOSE : FAULT_RESET, .at_ms = 1500 + 1000 * j});
        outcome out = play(&it);
        ck_assert_int_ge(out.events[BH_EVENT_DISCONNECTED], 2);
        ck_assert_int_eq(out.calls, 16);
    }
}
END_TEST

START_TEST(copies_wait_for_the_end_of_an_alarm)
{
    history it = usual("alarm", 20, 500, &fail_first);
    add_fault(&it, (fault){.kind = FAULT_ALARM, .at_ms = 3000, .for_ms = 40000});
    outcome out = play(&it);
    ck_assert_int_ge(out.oks, 20);
    ck_assert_int_ge(out.events[BH_EVENT_BLOCKED], 1);
    ck_assert_int_ge(out.events[BH_EVENT_UNBLOCKED], 1);
}
END_TEST

/* Its copy is not confirmed. */
START_TEST(a_worker_stops_in_time_whatever_the_broker_does)
{
    static const fault_kind kinds[] = {FAULT_ALARM, FAULT_UNCONFIRMED, FAULT_SILENCE, FAULT_UNREACHABLE, FAULT_UNKNOWN};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int64_t limit_ms = 0; limit_ms <= 5000; limit_ms += 2500) {
            history it = usual("stop", 1, 100, &fail_first_after_4_s);
            for (unsigned which = 0; which < (kinds[i] == FAULT_SILENCE ? 2 : 1); which++)
                add_fault(&it, (fault){.kind = kinds[i], .at_ms = 500, .for_ms = 100000, .which = which, .way = 2});
            add_fault(&it, (fault){.kind = FAULT_RESTART, .at_ms = 5000, .for_ms = 30000, .amount = limit_ms});
            outcome out = play(&it);
            ck_assert_int_ge(out.oks, 1);
            ck_assert_int_ge(out.events[BH_EVENT_DRAINED], 1);
        }
}
END_TEST

START_TEST(a_broker_that_is_silent_for_5_s_takes_no_time_from_who_settles)
{
    history it = usual("silence while a worker stops", 1, 100, &after_4_s);
    add_silence(&it, 500, 5000);
    add_fault(&it, (fault){.kind = FAULT_RESTART, .at_ms = 600, .for_ms = 40000, .amount = 30000});
    outcome out = play(&it);
    ck_assert_int_eq(out.calls, 1);
}
END_TEST

START_TEST(two_workers_share_a_queue_and_one_serves_it_while_the_other_is_away)
{
    history it = usual("two workers", 60, 100, &fail_first);
    it.workers = 2;
    it.is_prompt = 1;
    for (unsigned which = 0; which < 2; which++)
        add_fault(&it, (fault){.kind = FAULT_RESTART, .at_ms = 1500 + 2500 * which, .for_ms = 1500, .which = which});
    outcome out = play(&it);
    ck_assert_int_eq(out.calls, 120);
}
END_TEST

START_TEST(a_worker_that_stops_while_a_guards_copy_is_unconfirmed_does_not_spin)
{
    history it = usual("stop with a guard's copy", 4, 10, &fail_after_4_s);
    it.strategy = BH_STRATEGY_NATIVE;
    it.kind = BH_KIND_FIXED;
    it.max_attempts = 2;
    it.ends_well = 1;
    add_fault(&it, (fault){.kind = FAULT_RESET, .at_ms = 6000}); /* the second attempt of the first message ends so */
    add_fault(&it, (fault){.kind = FAULT_UNCONFIRMED, .at_ms = 6001, .for_ms = 20000});
    add_fault(&it, (fault){.kind = FAULT_RESTART, .at_ms = 8500, .for_ms = 5000, .amount = 1000});
    outcome out = play(&it);
    ck_assert_int_ge(out.parked, 1);
}
END_TEST

START_TEST(a_policy_that_shortens_wait_queues_is_reported)
{
    history it = usual("short TTL", 10, 500, &fail_first);
    it.initial_ms = 10000;
    add_fault(&it, (fault){.kind = FAULT_SHORT_TTL, .at_ms = 100, .for_ms = 90000});
    outcome out = play(&it);
    ck_assert_int_eq(out.oks, 10);
    ck_assert_int_ge(out.events[BH_EVENT_EARLY], 1);
}
END_TEST

START_TEST(a_handler_that_outlives_the_consumer_timeout_is_called_once)
{
    for (int i = 0; i < VERSIONS; i++) {
        history it = usual("consumer timeout", 3, 100, &succeed_after_90_s);
        it.version = versions[i];
        it.consumer_timeout_ms = 60000;
        it.takers = 2;
        outcome out = play(&it);
        ck_assert_msg(out.calls == 3, "%s: %d calls", versions[i], out.calls);
        ck_assert_int_eq(out.events[BH_EVENT_DISCONNECTED], 0); /* heartbeats go on */
    }
}
END_TEST

/* F4-4 */
START_TEST(a_clock_that_jumps_changes_no_delay)
{
    for (int hours = -2; hours <= 24; hours += 13) {
        history it = usual("clock", 5, 1000, &always_fail);
        add_fault(&it, (fault){.kind = FAULT_JUMP, .at_ms = 3000, .amount = hours * 3600000});
        outcome out = play(&it);
        ck_assert_int_eq(out.calls, 25);
        ck_assert_int_eq(out.parked, 5);
        ck_assert_int_eq(out.events[BH_EVENT_EARLY], 0); /* no policy shortens a wait queue */
    }
}
END_TEST

START_TEST(copies_for_full_wait_queues_are_published_again)
{
    history it = usual("full wait queues", 10, 200, &fail_first);
    it.is_prompt = 1;
    add_fault(&it, (fault){.kind = FAULT_FULL, .for_ms = 20000});
    outcome out = play(&it);
    ck_assert_int_eq(out.oks, 10);
    ck_assert_int_eq(out.calls, 20);
    ck_assert_int_ge(out.events[BH_EVENT_NACKED], 1);
}
END_TEST

/* The messages behind it show that others are acknowledged: only then the prefetch has room. */
START_TEST(a_confirm_that_does_not_come_holds_up_no_other_acknowledgement)
{
    for (int prefetch = 2; prefetch <= 4; prefetch++) {
        history it = usual("one confirm is lost", 30, 500, NULL);
        it.prefetch = prefetch;
        it.is_prompt = 1;
        it.decide = fail_message_0;
        add_fault(&it, (fault){.kind = FAULT_UNCONFIRMED, .for_ms = 20000});
        outcome out = play(&it);
        ck_assert_int_ge(out.oks, 30);
        ck_assert_int_ge(out.events[BH_EVENT_UNCONFIRMED], 1);
    }
}
END_TEST

START_TEST(a_deleted_parked_queue_is_declared_again)
{
    history it = usual("parked queue deleted", 10, 1000, &always_fail);
    it.max_attempts = 1;
    add_fault(&it, (fault){.kind = FAULT_DELETE_PARKED, .at_ms = 4500});
    outcome out = play(&it);
    ck_assert_int_eq(out.calls, 10);
    ck_assert_int_eq(out.parked, 5);
    ck_assert_int_ge(out.events[BH_EVENT_RETURNED], 1);
}
END_TEST

START_TEST(deleted_wait_queues_are_declared_again)
{
    history it = usual("wait queues deleted", 10, 1000, &fail_first);
    add_fault(&it, (fault){.kind = FAULT_DELETE_WAIT, .at_ms = 4200});
    outcome out = play(&it);
    ck_assert_int_ge(out.oks, 9);
}
END_TEST

START_TEST(a_user_without_rights_gets_them_back)
{
    history it = usual("no rights", 10, 300, &fail_first);
    add_fault(&it, (fault){.kind = FAULT_NO_RIGHTS, .at_ms = 4000, .for_ms = 12000});
    outcome out = play(&it);
    ck_assert_int_ge(out.oks, 10);
}
END_TEST

START_TEST(a_broker_that_is_killed_again_and_again_loses_nothing)
{
    history it = usual("kills", 40, 500, &fail_first);
    it.takers = 2;
    for (int i = 0; i < 6; i++)
        add_fault(&it, (fault){.kind = i % 2 ? FAULT_STOP : FAULT_KILL, .at_ms = 1000 + 6000 * i, .for_ms = 2000});
    outcome out = play(&it);
    ck_assert_int_ge(out.oks, 40);
}
END_TEST

START_TEST(a_message_whose_worker_dies_each_time_is_parked)
{
    history it = usual("poison", 1, 100, &fail_after_4_s);
    it.version = "4.0";
    it.kind = BH_KIND_FIXED;
    it.max_crashes = 1;
    for (int i = 0; i < 30; i++)
        add_fault(&it, (fault){.kind = FAULT_RESTART, .at_ms = 1000 + 8000 * i, .for_ms = 4000});
    outcome out = play(&it);
    ck_assert_int_eq(out.parked, 1);
    ck_assert_int_lt(out.calls, 30);
}
END_TEST

START_TEST(a_slow_network_in_fragments_changes_nothing)
{
    history it = usual("slow network", 5, 100, &fail_first);
    it.body_bytes = 140000;
    it.heartbeat_s = 60;
    it.confirm_ms = 30000;
    add_fault(&it, (fault){.kind = FAULT_SLOW, .for_ms = 60000, .amount = 20});
    outcome out = play(&it);
    ck_assert_int_eq(out.oks, 5);
    ck_assert_int_eq(out.calls, 10);
    ck_assert_int_eq(out.events[BH_EVENT_DISCONNECTED], 0);
}
END_TEST

START_TEST(a_broker_that_cannot_be_reached_is_tried_without_end)
{
    history it = usual("unreachable", 5, 100, &fail_first);
    add_fault(&it, (fault){.kind = FAULT_UNREACHABLE, .at_ms = 2000, .for_ms = 60000});
    add_fault(&it, (fault){.kind = FAULT_UNKNOWN, .at_ms = 100000, .for_ms = 60000});
    outcome out = play(&it);
    ck_assert_int_ge(out.oks, 5);
    ck_assert_int_ge(out.events[BH_EVENT_UNAVAILABLE], 1);
}
END_TEST

Suite *suite_scenarios(void)
{
    const TTest *const all[] = {
        eight_attempts_up_to_an_hour_end_in_the_parked_queue,
        each_strategy_retries_and_parks_on_each_version,
        parked_messages_are_replayed,
        parked_messages_are_replayed_after_a_restart,
        a_replay_of_some_minutes_does_not_spin,
        a_breaker_opens_probes_and_closes_in_an_outage_of_60_s,
        messages_that_a_breaker_holds_outlive_their_queue,
        a_breaker_that_is_open_stays_so_over_stops_and_lost_connections,
        a_broker_that_is_killed_in_any_state_of_a_breaker_loses_nothing,
        a_breaker_of_a_key_stops_no_other_key,
        a_relay_retries_and_parks_what_a_consumer_rejects,
        a_relay_that_is_stopped_and_killed_loses_nothing,
        a_leader_that_moves_doubles_at_most_what_was_in_hand,
        confirms_that_are_lost_for_a_minute_double_at_most_what_was_in_hand,
        a_node_that_is_alone_for_100_s_doubles_few,
        a_handler_that_outlives_the_consumer_timeout_stops_no_other_message,
        a_queue_that_is_deleted_again_and_again_leaves_no_channel,
        a_queue_that_is_deleted_each_second_is_consumed_less_and_less_often,
        retries_that_fall_due_while_queue_and_worker_are_away_come_back,
        retries_of_a_queue_that_was_away_have_no_more_attempts_than_others,
        a_rung_that_cannot_be_declared_stops_no_other_message,
        a_deleted_work_queue_is_declared_again,
        messages_in_hand_outlive_their_queue_although_another_worker_declares_it,
        messages_in_hand_outlive_their_queue_after_other_failures,
        retries_of_a_work_queue_that_was_away_come_back,
        a_deleted_return_exchange_is_declared_again,
        a_silent_broker_is_left_after_two_heartbeats,
        a_connection_that_is_cut_anywhere_doubles_at_most_what_was_in_hand,
        a_handler_that_outlives_its_connection_is_called_once,
        copies_wait_for_the_end_of_an_alarm,
        a_worker_stops_in_time_whatever_the_broker_does,
        a_broker_that_is_silent_for_5_s_takes_no_time_from_who_settles,
        two_workers_share_a_queue_and_one_serves_it_while_the_other_is_away,
        a_worker_that_stops_while_a_guards_copy_is_unconfirmed_does_not_spin,
        a_policy_that_shortens_wait_queues_is_reported,
        a_handler_that_outlives_the_consumer_timeout_is_called_once,
        a_clock_that_jumps_changes_no_delay,
        copies_for_full_wait_queues_are_published_again,
        a_confirm_that_does_not_come_holds_up_no_other_acknowledgement,
        a_deleted_parked_queue_is_declared_again,
        deleted_wait_queues_are_declared_again,
        a_user_without_rights_gets_them_back,
        a_broker_that_is_killed_again_and_again_loses_nothing,
        a_message_whose_worker_dies_each_time_is_parked,
        a_slow_network_in_fragments_changes_nothing,
        a_broker_that_cannot_be_reached_is_tried_without_end,
    };
    Suite *suite = suite_create("scenarios");
    TCase *tests = tcase_create("scenarios");
    tcase_set_timeout(tests, 60);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tcase_add_test(tests, all[i]);
    suite_add_tcase(suite, tests);
    return suite;
}
