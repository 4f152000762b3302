/* Headers and routing keys are untrusted. With any content, messages come back to their queue and
 * to no other. */
#include "setups.h"
#include "../reading.h"
#include "suites.h"

#include <backhop/adapter/history.h>
#include <stdio.h>
#include <string.h>

enum { DELAY = 20 };

static rig *rig_with_short_delay(int i)
{
    rig *r = setup_rig(i);
    policy_set_initial_ms(r->policy, DELAY);
    return r;
}

/* A queue that <ns>.return would feed, if anyone but the worker chose the key; the key is written
 * to `key`. */
static const char *make_victim(rig *r, char key[256])
{
    const char *victim = rig_name(r, "victim");
    snprintf(key, 256, "backhop:%s", victim);
    broker_declare_classic(r->broker, victim);
    if (broker_has_exchange(r->broker, rig_name(r, "return")))
        broker_bind(r->broker, victim, rig_name(r, "return"), key);
    return victim;
}

START_TEST(a_routing_key_with_the_prefix_of_return_keys_chooses_no_queue)
{
    rig *r = rig_with_short_delay(_i);
    rig_start(r);
    char key[256];
    const char *victim = make_victim(r, key);
    broker_bind(r->broker, r->queue, r->exchange, key);
    rig_publish(r, key, "first");
    for (int attempt = 1; attempt <= 3; attempt++) {
        rig_take(r, "first");
        expect_attempt(r, attempt);
        expect_bytes(past_of(r->history).routing_key, key);
        rig_fail(r, "507");
    }
    message parked;
    broker_get(r->broker, r->parked, &parked);
    expect_bytes(message_string(&parked, "backhop-routing-key"), key);
    message_free(&parked);
    ck_assert_int_eq(broker_depth(r->broker, victim), 0);
    rig_free(r);
}
END_TEST

/* Retries a message with these headers: the first attempt is the first, the second the second, and
 * then it is parked as ours. */
static void go_round_with(rig *r, amqp_table_entry_t *headers, int count, const char *what)
{
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {count, headers}};
    broker_publish(r->broker, r->exchange, "work.a", &properties, bh_str("first"));
    for (int attempt = 1; attempt <= 2; attempt++) {
        ck_assert_msg(rig_try_take(r, LIMIT_MS), "%s: it does not come", what);
        int64_t got = bh_worker_attempt(r->worker, r->message);
        ck_assert_msg(got == attempt, "%s: attempt %d is taken for %lld", what, attempt, (long long)got);
        if (attempt == 1)
            rig_fail(r, "507");
        else
            rig_park(r, "507");
    }
    message parked;
    broker_get(r->broker, r->parked, &parked);
    expect_history(&parked, r, 2, "507");
    ck_assert_uint_eq(message_header(&parked, "x-death").size, 0);
    expect_bytes(message_string(&parked, "backhop-parked"), "permanent");
    broker_ack(r->broker, &parked);
    message_free(&parked);
}

static void go_round_with_one(rig *r, amqp_table_entry_t header)
{
    char what[256];
    snprintf(what, sizeof what, "%.*s of type %c", (int)header.key.len, (const char *)header.key.bytes,
             header.value.kind);
    go_round_with(r, &header, 1, what);
}

START_TEST(forged_backhop_headers_choose_no_queue_and_break_nothing)
{
    static char long_text[2000];
    memset(long_text, 'l', sizeof long_text - 1);
    rig *r = rig_with_short_delay(_i);
    rig_start(r);
    char key[256];
    const char *victim = make_victim(r, key);
    amqp_table_entry_t entry = entry_int("count", 7);
    amqp_field_value_t value = entry_int("", 7).value;

    go_round_with_one(r, entry_int("backhop-attempts", -1));
    go_round_with_one(r, entry_int("backhop-attempts", INT64_MAX));
    go_round_with_one(r, entry_string("backhop-attempts", "7"));
    go_round_with_one(r, entry_table("backhop-attempts", &entry, 1));
    go_round_with_one(r, entry_string("backhop-queue", victim));
    go_round_with_one(r, entry_int("backhop-queue", 1));
    go_round_with_one(r, entry_string("backhop-first-failure", "yesterday"));
    go_round_with_one(r, entry_int("backhop-first-failure", INT64_MIN));
    go_round_with_one(r, entry_int("backhop-delay", INT64_MAX));
    go_round_with_one(r, entry_string("backhop-delay", "1"));
    go_round_with_one(r, entry_string("backhop-id", long_text));
    go_round_with_one(r, entry_array("backhop-id", &value, 1));
    go_round_with_one(r, entry_string("backhop-exchange", long_text));
    go_round_with_one(r, entry_table("backhop-exchange", &entry, 1));
    go_round_with_one(r, entry_string("backhop-routing-key", key));
    go_round_with_one(r, entry_number("backhop-routing-key", AMQP_FIELD_KIND_VOID, 0));
    go_round_with_one(r, entry_array("backhop-error", &value, 1));
    go_round_with_one(r, entry_string("backhop-error", long_text));
    go_round_with_one(r, entry_string("backhop-parked", "permanent"));
    go_round_with_one(r, entry_int("backhop-cc", 1));
    go_round_with_one(r, entry_int("backhop-expiration", -1));
    go_round_with_one(r, entry_string("x-delay", "60000"));
    ck_assert_int_eq(broker_depth(r->broker, victim), 0);
    rig_free(r);
}
END_TEST

/* Only if the worker publishes copies: else the broker itself reads the x-death that it is given,
 * and 3.10 breaks. */
START_TEST(a_forged_x_death_counts_nothing_and_breaks_nothing)
{
    rig *r = rig_with_short_delay(_i);
    rig_start(r);
    amqp_table_entry_t record[] = {entry_string("queue", r->queue), entry_string("reason", "rejected"),
                                   entry_int("count", 7)};
    amqp_table_entry_t no_count[] = {entry_string("queue", rig_rung(r, DELAY)), entry_string("reason", "expired"),
                                     entry_string("count", "many")};
    amqp_field_value_t records[] = {entry_table("", record, 3).value, entry_table("", no_count, 3).value,
                                    entry_string("", "no table").value, entry_array("", NULL, 0).value};
    go_round_with_one(r, entry_array("x-death", records, 4));
    go_round_with_one(r, entry_table("x-death", record, 3));
    go_round_with_one(r, entry_string("x-death", "often"));
    go_round_with_one(r, entry_int("x-death", -1));
    go_round_with_one(r, entry_int("x-first-death-queue", 1));
    rig_free(r);
}
END_TEST

START_TEST(a_message_with_every_forgery_at_once_comes_back)
{
    static amqp_table_entry_t headers[256];
    static char names[256][16];
    rig *r = rig_with_short_delay(_i);
    rig_start(r);
    int count = 0;
    headers[count++] = entry_string("backhop-attempts", "");
    headers[count++] = entry_string("backhop-first-failure", "");
    headers[count++] = entry_int("backhop-id", 0);
    headers[count++] = entry_int("backhop-exchange", 0);
    headers[count++] = entry_int("backhop-routing-key", 0);
    headers[count++] = entry_int("backhop-error", 0);
    headers[count++] = entry_int("backhop-parked", 0);
    headers[count++] = entry_string("", "a header without a name");
    while (count < 256) {
        snprintf(names[count], sizeof names[count], "h%d", count);
        headers[count] = entry_number(names[count], AMQP_FIELD_KIND_BOOLEAN, count % 2);
        count++;
    }
    go_round_with(r, headers, count, "all at once");
    rig_free(r);
}
END_TEST

Suite *suite_strangers(void)
{
    Suite *suite = suite_create("strangers");
    for (int i = 0; i < setup_count; i++) {
        if (!setup_can_be_served(&setups[i]))
            continue;
        TCase *each = add_setup_case(suite, i);
        tcase_add_loop_test(each, a_routing_key_with_the_prefix_of_return_keys_chooses_no_queue, i, i + 1);
        if (i == setup_first() || !setups[i].publishes)
            tcase_add_loop_test(each, forged_backhop_headers_choose_no_queue_and_break_nothing, i, i + 1);
        if (setups[i].publishes)
            tcase_add_loop_test(each, a_forged_x_death_counts_nothing_and_breaks_nothing, i, i + 1);
        tcase_add_loop_test(each, a_message_with_every_forgery_at_once_comes_back, i, i + 1);
    }
    return suite;
}
