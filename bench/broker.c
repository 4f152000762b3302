/*
 * bench-broker: sets the broker up before a contender runs, and cleans up after it.
 *
 *     bench-broker versions               of the broker, librabbitmq and Backhop
 *     bench-broker declare SETUP          exchanges and queues; setups: rates, ladder, one-queue
 *     bench-broker publish COUNT [RATE]   messages to the work queue, each confirmed; RATE: so many a second
 *     bench-broker depths SETUP           how many messages each queue has, once none has a consumer
 *     bench-broker delete SETUP           exchanges and queues, with what is in them
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { LIMIT_MS = 30000, POLL_MS = 10 };

static amqp_connection_state_t connection;
static bh_topology *topology;

static void print_versions(void)
{
    const amqp_table_t *properties = amqp_get_server_properties(connection);
    amqp_bytes_t version = amqp_empty_bytes;
    for (int i = 0; i < properties->num_entries; i++)
        if (properties->entries[i].key.len == 7 && memcmp(properties->entries[i].key.bytes, "version", 7) == 0)
            version = properties->entries[i].value.value.bytes;
    printf("{\"RabbitMQ\": \"%.*s\", \"librabbitmq\": \"%s\", \"backhop\": \"%s\"}\n", (int)version.len,
           (const char *)version.bytes, amqp_version(), bh_version());
}

/* --------------------------------------------------------------------------------------- setups */

static void choose(const char *name)
{
    static const char *names[] = {"rates", "ladder", "one-queue"};
    bh_policy *policy;
    for (int setup = BENCH_RATES; !topology && setup <= BENCH_ONE_QUEUE; setup++)
        if (strcmp(name, names[setup]) == 0)
            bench_make((bench_setup)setup, &policy, &topology);
    if (!topology)
        bench_fail("there is no setup '%s'; setups: rates, ladder, one-queue", name);
    bh_policy_free(policy);
}

/* Unacknowledged messages of a consumer are back in their queue once the queue has no consumers. */
static uint32_t depth(bh_bytes queue)
{
    double limit = bench_now_ms() + LIMIT_MS;
    for (;; bench_pause_ms(POLL_MS)) {
        const amqp_queue_declare_ok_t *ok =
            amqp_queue_declare(connection, BENCH_CHANNEL, bh__to_amqp(queue), 1, 1, 0, 0, amqp_empty_table);
        bench_need_reply(amqp_get_rpc_reply(connection), "looking at a queue");
        uint32_t messages = ok->message_count, consumers = ok->consumer_count;
        amqp_maybe_release_buffers(connection);
        if (consumers == 0)
            return messages;
        if (bench_now_ms() > limit)
            bench_fail("%s still has a consumer", queue.data);
    }
}

static void print_depths(void)
{
    const char *separator = "{";
    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(topology, i, &each) == BH_OK; i++) {
        if (each.kind != BH_DECLARE_QUEUE)
            continue;
        printf("%s\"%s\": %u", separator, each.name.data, depth(each.name));
        separator = ", ";
    }
    puts("}");
}

/* ------------------------------------------------------------------------------------- messages */

static void publish_one(int number)
{
    char body[BENCH_BODY + 1], id[16];
    snprintf(body, sizeof body, "%-*d", BENCH_BODY, number);
    snprintf(id, sizeof id, "%d", number);
    amqp_table_entry_t attempts = bench_int("backhop-attempts", number % BENCH_ATTEMPTS);
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG |
                  AMQP_BASIC_MESSAGE_ID_FLAG,
        .content_type = amqp_cstring_bytes("text/plain"),
        .headers = {1, &attempts},
        .delivery_mode = 2,
        .message_id = amqp_cstring_bytes(id),
    };
    bench_need_sent(amqp_basic_publish(connection, BENCH_CHANNEL, amqp_empty_bytes, amqp_cstring_bytes(BENCH_QUEUE), 1,
                                       0, &properties, amqp_cstring_bytes(body)),
                    "publishing");
}

/* `rate`: so many a second; 0: as many as can be. */
static void publish(int count, int rate)
{
    bench_window confirms = {.low = 0};
    amqp_confirm_select(connection, BENCH_CHANNEL);
    bench_need_reply(amqp_get_rpc_reply(connection), "asking for confirms");
    double start = bench_now_ms();
    for (int i = 0; i < count; i++) {
        if (rate)
            bench_pause_ms(start + 1e3 * i / rate - bench_now_ms());
        publish_one(i);
        while ((uint64_t)i - confirms.low >= BENCH_PREFETCH)
            bench_read_confirm(connection, &confirms);
    }
    while (confirms.low < (uint64_t)count)
        bench_read_confirm(connection, &confirms);
}

int main(int count, char **words)
{
    const char *command = count > 1 ? words[1] : "", *object = count > 2 ? words[2] : "";
    connection = bench_connect();
    if (strcmp(command, "versions") == 0) {
        print_versions();
    } else if (strcmp(command, "publish") == 0) {
        publish(bench_count_of(object), count > 3 ? bench_count_of(words[3]) : 0);
    } else {
        choose(object);
        if (strcmp(command, "declare") == 0)
            bench_declare(connection, topology);
        else if (strcmp(command, "depths") == 0)
            print_depths();
        else if (strcmp(command, "delete") == 0)
            bench_delete(connection, topology);
        else
            bench_fail("there is no command '%s'; commands: versions, declare, publish, depths, delete", command);
    }
    bh_topology_free(topology);
    bench_disconnect(connection);
    return EXIT_SUCCESS;
}
