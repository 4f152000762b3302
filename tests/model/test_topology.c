#include "rig.h"
#include "suites.h"

#include <string.h>

static amqp_bytes_t text_of(const char *text)
{
    return bh__to_amqp(bh_str(text));
}

static void declare_exchange(rig *r, const char *name, const char *type)
{
    amqp_exchange_declare_t declare = {.exchange = text_of(name), .type = text_of(type), .durable = 1};
    rig_send(r, 1, AMQP_EXCHANGE_DECLARE_METHOD, &declare);
    rig_expect(r, AMQP_EXCHANGE_DECLARE_OK_METHOD);
}

static void bind(rig *r, const char *queue, const char *exchange, const char *key)
{
    amqp_queue_bind_t bound = {.queue = text_of(queue), .exchange = text_of(exchange), .routing_key = text_of(key)};
    rig_send(r, 1, AMQP_QUEUE_BIND_METHOD, &bound);
    rig_expect(r, AMQP_QUEUE_BIND_OK_METHOD);
}

START_TEST(a_topic_exchange_routes_by_words)
{
    static const struct {
        const char *pattern, *key;
        int is_match;
    } rows[] = {{"a.b", "a.b", 1},   {"a.*", "a.b", 1},     {"a.*", "a", 0},         {"a.*", "a.b.c", 0},
                {"#", "", 1},        {"#", "a.b", 1},       {"a.#", "a", 1},         {"#.c", "a.b.c", 1},
                {"#.b.#", "a.b", 1}, {"#.b.#", "a.c", 0},   {"*.#.*", "a", 0},       {"*.#.*", "a.b", 1},
                {"", "", 1},         {"*", "", 0},          {"a..b", "a..b", 1},     {"a.*.b", "a..b", 1},
                {"#.#", "", 1},      {"a.#.b.#", "a.b", 1}, {"a.#.b.#.c", "a.b", 0}, {"a.#.b", "a.b.c.b", 1}};
    rig *r = rig_new("4.0");
    declare_exchange(r, "topic", "topic");
    size_t expected = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rig_declare(r, "q", "classic", NULL, 0);
        bind(r, "q", "topic", rows[i].pattern);
        rig_publish(r, "topic", rows[i].key, "m", NULL);
        expected = (size_t)rows[i].is_match;
        ck_assert_msg(rig_depth(r, "q") == expected, "%s and %s", rows[i].pattern, rows[i].key);
        rig_control(r, "delete queue / q");
    }
    rig_free(r);
}
END_TEST

START_TEST(what_is_not_modelled_is_refused_with_a_reason)
{
    amqp_basic_consume_t consume = {.queue = text_of("amq.rabbitmq.reply-to"), .no_ack = 1};
    rig *r = rig_new("4.3");
    rig_send_declare(r, "q", "stream", NULL, 0);
    rig_expect_close(r, 540, "NOT_IMPLEMENTED - queues of type stream are not in this model of RabbitMQ");
    rig_free(r);
    r = rig_new("4.3");
    rig_send(r, 1, AMQP_BASIC_CONSUME_METHOD, &consume);
    rig_expect_close(r, 540, "NOT_IMPLEMENTED - direct reply-to is not in this model of RabbitMQ");
    rig_free(r);
}
END_TEST

START_TEST(an_exchange_passes_messages_to_another_and_a_circle_ends)
{
    rig *r = rig_new("4.3");
    declare_exchange(r, "one", "fanout");
    declare_exchange(r, "two", "fanout");
    rig_declare(r, "q", "classic", NULL, 0);
    bind(r, "q", "two", "");
    amqp_exchange_bind_t there = {.source = text_of("one"), .destination = text_of("two")};
    amqp_exchange_bind_t back = {.source = text_of("two"), .destination = text_of("one")};
    rig_send(r, 1, AMQP_EXCHANGE_BIND_METHOD, &there);
    rig_expect(r, AMQP_EXCHANGE_BIND_OK_METHOD);
    rig_send(r, 1, AMQP_EXCHANGE_BIND_METHOD, &back);
    rig_expect(r, AMQP_EXCHANGE_BIND_OK_METHOD);
    rig_publish(r, "one", "", "m", NULL);
    ck_assert_uint_eq(rig_depth(r, "q"), 1);
    rig_free(r);
}
END_TEST

Suite *suite_topology(void)
{
    Suite *suite = suite_create("topology");
    TCase *tests = tcase_create("topology");
    tcase_add_test(tests, a_topic_exchange_routes_by_words);
    tcase_add_test(tests, what_is_not_modelled_is_refused_with_a_reason);
    tcase_add_test(tests, an_exchange_passes_messages_to_another_and_a_circle_ends);
    suite_add_tcase(suite, tests);
    return suite;
}
