/* Untrusted bytes: nothing that a client writes crashes the model or keeps it busy. Under the
 * sanitizers this shows more. */
#include "rig.h"
#include "suites.h"

#include <stdlib.h>
#include <string.h>

enum { HISTORIES = 300, STEPS = 120, MOST_BYTES = 64 };

/* xorshift64: the histories are the same on each machine. */
static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static bh_bytes random_bytes(uint64_t *state, char bytes[MOST_BYTES])
{
    size_t size = draw(state) % MOST_BYTES;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(draw(state) % 4 ? draw(state) % 8 : draw(state));
    return (bh_bytes){bytes, size};
}

static amqp_bytes_t random_name(uint64_t *state)
{
    static const char *const names[] = {"", "a", "b", "c", "amq.direct", "amq.fanout", "amq.topic", "none"};
    return bh__to_amqp(bh_str(names[draw(state) % 8]));
}

static void send_declare(rig *r, int channel, uint64_t *state)
{
    static const char *const keys[] = {"x-message-ttl",          "x-max-length",
                                       "x-dead-letter-exchange", "x-queue-type",
                                       "x-delivery-limit",       "x-overflow",
                                       "x-max-priority",         "x-expires",
                                       "x-dead-letter-strategy", "x-dead-letter-routing-key"};
    static const char *const texts[] = {"",          "a", "b", "quorum", "classic", "reject-publish", "at-least-once",
                                        "amq.fanout"};
    amqp_table_entry_t entries[6];
    int count = (int)(draw(state) % 6);
    for (int i = 0; i < count; i++) {
        size_t key = draw(state) % 10;
        entries[i] = (amqp_table_entry_t){.key = bh__to_amqp(bh_str(keys[key]))};
        int is_text = key == 2 || key == 3 || key == 5 || key > 7;
        entries[i].value.kind = is_text ? AMQP_FIELD_KIND_UTF8 : AMQP_FIELD_KIND_I64;
        if (is_text)
            entries[i].value.value.bytes = bh__to_amqp(bh_str(texts[draw(state) % 8]));
        else
            entries[i].value.value.i64 = (int64_t)(draw(state) % 4);
    }
    amqp_queue_declare_t declare = {.queue = random_name(state),
                                    .passive = draw(state) % 8 == 0,
                                    .durable = draw(state) % 4 != 0,
                                    .auto_delete = draw(state) % 8 == 0,
                                    .arguments = {count, entries}};
    rig_send(r, channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
}

static void send_settlement(rig *r, int channel, uint64_t *state)
{
    amqp_basic_ack_t ack = {.delivery_tag = draw(state) % 5, .multiple = draw(state) % 2};
    amqp_basic_nack_t nack = {.delivery_tag = draw(state) % 5, .multiple = draw(state) % 2, .requeue = draw(state) % 2};
    amqp_basic_reject_t reject = {.delivery_tag = draw(state) % 5, .requeue = draw(state) % 2};
    switch (draw(state) % 3) {
    case 0:
        rig_send(r, channel, AMQP_BASIC_ACK_METHOD, &ack);
        break;
    case 1:
        rig_send(r, channel, AMQP_BASIC_NACK_METHOD, &nack);
        break;
    default:
        rig_send(r, channel, AMQP_BASIC_REJECT_METHOD, &reject);
    }
}

static void send_topology(rig *r, int channel, uint64_t *state)
{
    amqp_queue_bind_t bind = {
        .queue = random_name(state), .exchange = random_name(state), .routing_key = random_name(state)};
    amqp_queue_delete_t delete = {.queue = random_name(state)};
    amqp_queue_purge_t purge = {.queue = random_name(state)};
    amqp_exchange_declare_t declare = {.exchange = random_name(state),
                                       .type = bh__to_amqp(bh_str(draw(state) % 2 ? "fanout" : "topic")),
                                       .auto_delete = draw(state) % 2};
    amqp_exchange_bind_t to_exchange = {.source = random_name(state), .destination = random_name(state)};
    amqp_exchange_delete_t delete_exchange = {.exchange = random_name(state)};
    switch (draw(state) % 6) {
    case 0:
        rig_send(r, channel, AMQP_QUEUE_BIND_METHOD, &bind);
        break;
    case 1:
        rig_send(r, channel, AMQP_QUEUE_DELETE_METHOD, &delete);
        break;
    case 2:
        rig_send(r, channel, AMQP_QUEUE_PURGE_METHOD, &purge);
        break;
    case 3:
        rig_send(r, channel, AMQP_EXCHANGE_DECLARE_METHOD, &declare);
        break;
    case 4:
        rig_send(r, channel, AMQP_EXCHANGE_BIND_METHOD, &to_exchange);
        break;
    default:
        rig_send(r, channel, AMQP_EXCHANGE_DELETE_METHOD, &delete_exchange);
    }
}

static void send_consuming(rig *r, int channel, uint64_t *state)
{
    amqp_basic_consume_t consume = {.queue = random_name(state), .no_ack = draw(state) % 4 == 0};
    amqp_basic_get_t get = {.queue = random_name(state), .no_ack = draw(state) % 2};
    amqp_basic_cancel_t cancel = {.consumer_tag = random_name(state)};
    amqp_basic_qos_t qos = {.prefetch_count = (uint16_t)(draw(state) % 3), .global = draw(state) % 4 == 0};
    amqp_basic_recover_t recover = {.requeue = 1};
    amqp_channel_open_t open = {.out_of_band = amqp_empty_bytes};
    amqp_channel_close_t close = {.reply_text = amqp_empty_bytes};
    amqp_channel_close_ok_t closed = {0};
    amqp_tx_select_t select = {0};
    amqp_tx_commit_t commit = {0};
    consume.consumer_tag = random_name(state);
    switch (draw(state) % 10) {
    case 8:
        rig_send(r, channel, AMQP_TX_SELECT_METHOD, &select);
        break;
    case 9:
        rig_send(r, channel, AMQP_TX_COMMIT_METHOD, &commit);
        break;
    case 0:
        rig_send(r, channel, AMQP_BASIC_CONSUME_METHOD, &consume);
        break;
    case 1:
        rig_send(r, channel, AMQP_BASIC_CANCEL_METHOD, &cancel);
        break;
    case 2:
        rig_send(r, channel, AMQP_BASIC_QOS_METHOD, &qos);
        break;
    case 3:
        rig_send(r, channel, AMQP_BASIC_RECOVER_METHOD, &recover);
        break;
    case 4:
        rig_send(r, channel, AMQP_CHANNEL_CLOSE_METHOD, &close);
        break;
    case 5:
        rig_send(r, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &closed);
        break;
    case 6:
        rig_send(r, channel, AMQP_CHANNEL_OPEN_METHOD, &open);
        break;
    default:
        rig_send(r, channel, AMQP_BASIC_GET_METHOD, &get);
    }
}

static void publish(rig *r, uint64_t *state)
{
    static const char *const keys[] = {"a", "b", "c", ""};
    static const char *const exchanges[] = {"", "amq.fanout", "amq.topic", "a"};
    char bytes[MOST_BYTES];
    bh__buffer list = {.data = NULL};
    bh_bytes junk = random_bytes(state, bytes);
    ck_assert(bh__buffer_reserve(&list, junk.size + 2));
    bh__put_number(&list, draw(state) % 16 ? 0 : draw(state), 2);
    if (draw(state) % 16 == 0)
        bh__put_bytes(&list, junk);
    rig_publish_raw(r, exchanges[draw(state) % 4], keys[draw(state) % 4], draw(state) % 2 ? "m" : "", &list,
                    draw(state) % 2);
    bh__buffer_free(&list);
}

static void step(rig *r, uint64_t *state)
{
    char bytes[MOST_BYTES];
    int channel = 1 + (int)(draw(state) % 2);
    switch (draw(state) % 12) {
    case 0:
    case 1:
    case 2:
        publish(r, state);
        break;
    case 3:
    case 4:
        send_declare(r, channel, state);
        break;
    case 5:
        send_topology(r, channel, state);
        break;
    case 6:
    case 7:
        send_consuming(r, channel, state);
        break;
    case 8:
    case 9:
        send_settlement(r, channel, state);
        break;
    case 10:
        rig_advance(r, (int64_t)(draw(state) % 5));
        break;
    default:
        if (draw(state) % 8 == 0)
            rig_write_frame(r, (int)(draw(state) % 10), channel, random_bytes(state, bytes));
        else if (draw(state) % 32 == 0)
            rig_advance(r, 4000000);
        else if (draw(state) % 64 == 0)
            rig_write(r, bytes, random_bytes(state, bytes).size);
    }
    model_sent(r->link, draw(state) % 4 ? model_output(r->link).size : draw(state) % 100);
}

static void play(uint64_t seed)
{
    static const char *const versions[] = {"3.10", "4.0", "4.3"};
    uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    unsigned char tape[MOST_BYTES];
    for (size_t i = 0; i < sizeof tape; i++)
        tape[i] = (unsigned char)draw(&state);
    rig *r = rig_with_tape(versions[seed % 3], tape, sizeof tape);
    rig_open_channel(r, 2);
    for (int i = 0; i < STEPS; i++) {
        step(r, &state);
        if (!model_is_closing(r->link))
            continue;
        model_sent(r->link, model_output(r->link).size);
        model_disconnect(r->link);
        r->link = model_connect(r->broker);
        ck_assert_ptr_nonnull(r->link);
        rig_login(r, (int)(draw(&state) % 2));
        rig_open_channel(r, 2);
    }
    rig_free(r);
}

START_TEST(random_histories_end)
{
    const char *wanted = getenv("BACKHOP_MODEL_HISTORIES");
    uint64_t count = wanted ? strtoull(wanted, NULL, 10) : HISTORIES;
    for (uint64_t seed = 0; seed < count; seed++)
        play(seed);
}
END_TEST

START_TEST(random_bytes_end_a_connection)
{
    for (uint64_t seed = 1; seed < 2000; seed++) {
        char bytes[MOST_BYTES];
        uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
        rig *r = rig_raw("4.3");
        if (seed % 2)
            rig_write(r, "AMQP\0\0\x09\x01", 8);
        for (int i = 0; i < 20; i++)
            rig_write(r, bytes, random_bytes(&state, bytes).size);
        rig_free(r);
    }
}
END_TEST

START_TEST(a_table_in_a_table_in_a_table_is_refused)
{
    enum { DEPTH = 5000 };
    rig *r = rig_new("4.3");
    bh__buffer out = {.data = NULL};
    ck_assert(bh__buffer_reserve(&out, 16 + 10 * DEPTH));
    bh__put_number(&out, AMQP_QUEUE_DECLARE_METHOD, 4);
    bh__put_number(&out, 0, 2);
    bh__put_counted(&out, bh_str("q"), 1);
    bh__put_number(&out, 2, 1);
    for (size_t i = 0; i < DEPTH; i++) {
        bh__put_number(&out, 7 * (DEPTH - i), 4);
        bh__put_counted(&out, bh_str("a"), 1);
        bh__put_number(&out, 'F', 1);
    }
    bh__put_number(&out, 0, 4);
    rig_write_frame(r, 1, 1, (bh_bytes){out.data, out.end});
    rig_expect_close(r, 502, "SYNTAX_ERROR - malformed arguments of method {50,10}");
    bh__buffer_free(&out);
    rig_free(r);
}
END_TEST

/* All queues get a message from each other, at once: a million hops end it. */
START_TEST(a_topology_that_multiplies_messages_ends)
{
    static const rig_entry arguments[] = {{"x-message-ttl", NULL, 0}, {"x-dead-letter-exchange", "amq.fanout", 0}};
    rig *r = rig_new("4.3");
    for (char name[] = "a"; *name <= 'l'; ++*name) {
        rig_declare(r, name, "classic", arguments, 2);
        amqp_queue_bind_t bind = {.queue = bh__to_amqp(bh_str(name)), .exchange = bh__to_amqp(bh_str("amq.fanout"))};
        rig_send(r, 1, AMQP_QUEUE_BIND_METHOD, &bind);
        rig_expect(r, AMQP_QUEUE_BIND_OK_METHOD);
    }
    rig_publish_raw(r, "amq.fanout", "", "m", NULL, 0);
    rig_expect(r, AMQP_BASIC_ACK_METHOD);
    rig_free(r);
}
END_TEST

Suite *suite_hostile(void)
{
    Suite *suite = suite_create("hostile");
    TCase *tests = tcase_create("hostile");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, random_histories_end);
    tcase_add_test(tests, random_bytes_end_a_connection);
    tcase_add_test(tests, a_table_in_a_table_in_a_table_is_refused);
    tcase_add_test(tests, a_topology_that_multiplies_messages_ends);
    suite_add_tcase(suite, tests);
    return suite;
}
