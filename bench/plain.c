/*
 * bench-plain: the contender that Backhop is measured against: a loop on librabbitmq alone, written
 * with care.
 *
 *     bench-plain consume|retry|lateness MESSAGES
 *
 * One connection. An acknowledgement covers ACKS_AT_ONCE messages, publishes do not wait for each
 * other's confirms, and a message is acknowledged once its copy is confirmed. The copy has the same
 * headers as Backhop's. It goes to the same wait queue; for `lateness` it goes into the one wait
 * queue that there is, with its delay as its expiration.
 */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CONSUMING = BENCH_CHANNEL, PUBLISHING, ACKS_AT_ONCE = 100, OWN_HEADERS = 9, MOST_HEADERS = 64 };

static struct {
    bench_task task;
    int messages;
    amqp_connection_state_t connection;
    bh_policy *policy;
    amqp_bytes_t wait_exchange;
    bench_sample *samples;
    bench_window deliveries;     /* that can be acknowledged */
    bench_window confirms;       /* of publishes */
    uint64_t tags[BENCH_WINDOW]; /* of a publish's original */
    uint64_t published;
    uint64_t acked;
    double start, used; /* at the first message */
} self;

static int64_t epoch_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static int begins_with(amqp_bytes_t name, const char *start)
{
    return name.len >= strlen(start) && memcmp(name.bytes, start, strlen(start)) == 0;
}

/* Returns 1 if the copy must not have this header of the original: it gets its own, or the broker
 * wrote it. */
static int is_replaced(amqp_bytes_t name)
{
    return begins_with(name, "backhop-") || begins_with(name, "x-") || begins_with(name, "CC");
}

static int64_t attempts_of(const amqp_table_t *headers)
{
    for (int i = 0; i < headers->num_entries; i++)
        if (begins_with(headers->entries[i].key, "backhop-attempts"))
            return headers->entries[i].value.value.i64;
    return 0;
}

static void publish_copy(const amqp_envelope_t *envelope, int64_t attempts, int64_t delay_ms)
{
    static amqp_field_value_t home = {.kind = AMQP_FIELD_KIND_UTF8};
    home.value.bytes = amqp_cstring_bytes("backhop:" BENCH_QUEUE);
    amqp_basic_properties_t properties = envelope->message.properties;
    amqp_table_entry_t headers[MOST_HEADERS];
    int count = 0;
    for (int i = 0; i < properties.headers.num_entries && count < MOST_HEADERS - OWN_HEADERS; i++)
        if (!is_replaced(properties.headers.entries[i].key))
            headers[count++] = properties.headers.entries[i];
    headers[count++] = bench_string("backhop-queue", bh_str(BENCH_QUEUE));
    headers[count++] = bench_int("backhop-attempts", attempts);
    headers[count++] = bench_int("backhop-first-failure", epoch_ms());
    headers[count++] = bench_int("backhop-delay", delay_ms);
    headers[count++] = bench_string("backhop-id", bh__from_amqp(properties.message_id));
    headers[count++] = bench_string("backhop-exchange", bh__from_amqp(envelope->exchange));
    headers[count++] = bench_string("backhop-routing-key", bh__from_amqp(envelope->routing_key));
    headers[count++] = bench_string("backhop-error", bh_str(BENCH_ERROR));
    headers[count] = (amqp_table_entry_t){.key = amqp_cstring_bytes("BCC"), .value.kind = AMQP_FIELD_KIND_ARRAY};
    headers[count++].value.value.array = (amqp_array_t){1, &home};

    char expiration[24];
    snprintf(expiration, sizeof expiration, "%" PRId64, delay_ms);
    if (self.task == BENCH_LATENESS) {
        properties._flags |= AMQP_BASIC_EXPIRATION_FLAG;
        properties.expiration = amqp_cstring_bytes(expiration);
    }
    properties._flags |= AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG;
    properties.headers = (amqp_table_t){count, headers};
    properties.delivery_mode = 2;
    self.tags[++self.published % BENCH_WINDOW] = envelope->delivery_tag;
    bench_need_sent(amqp_basic_publish(self.connection, PUBLISHING, self.wait_exchange, envelope->routing_key, 1, 0,
                                       &properties, envelope->message.body),
                    "publishing");
}

static void retry(const amqp_envelope_t *envelope, bench_sample *sample)
{
    int64_t attempts = attempts_of(&envelope->message.properties.headers) + 1;
    int64_t delay_ms = bh_policy_delay_ms(self.policy, attempts, 0, rand() / (RAND_MAX + 1.0));
    if (sample) {
        sample->failed_ms = bench_now_ms();
        sample->delay_ms = (double)delay_ms;
    }
    publish_copy(envelope, attempts, delay_ms);
}

static void handle(const amqp_envelope_t *envelope)
{
    bench_sample *sample = NULL;
    if (self.task == BENCH_LATENESS)
        sample = bench_sample_of(self.samples, self.messages, envelope->message.body.bytes);
    if (self.task == BENCH_CONSUME || (sample && sample->failed_ms > 0)) {
        if (sample)
            bench_sample_back(sample, sample->delay_ms);
        bench_window_done(&self.deliveries, envelope->delivery_tag);
    } else {
        retry(envelope, sample);
    }
}

/* A delivery, else 0: then a confirm is next. */
static int take(amqp_envelope_t *envelope)
{
    amqp_maybe_release_buffers(self.connection);
    amqp_rpc_reply_t reply = amqp_consume_message(self.connection, envelope, NULL, 0);
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION && reply.library_error == AMQP_STATUS_UNEXPECTED_STATE)
        return 0;
    bench_need_reply(reply, "consuming");
    return 1;
}

static void hear_confirm(void)
{
    uint64_t before = self.confirms.low;
    bench_read_confirm(self.connection, &self.confirms);
    for (uint64_t number = before + 1; number <= self.confirms.low; number++)
        bench_window_done(&self.deliveries, self.tags[number % BENCH_WINDOW]);
}

static void acknowledge(int is_end)
{
    if (self.deliveries.low - self.acked < (is_end ? 1 : ACKS_AT_ONCE))
        return;
    self.acked = self.deliveries.low;
    bench_need_sent(amqp_basic_ack(self.connection, CONSUMING, self.acked, 1), "acknowledging");
}

static void consume(void)
{
    amqp_channel_open(self.connection, PUBLISHING);
    bench_need_reply(amqp_get_rpc_reply(self.connection), "opening a channel");
    amqp_confirm_select(self.connection, PUBLISHING);
    bench_need_reply(amqp_get_rpc_reply(self.connection), "asking for confirms");
    amqp_basic_qos(self.connection, CONSUMING, 0, BENCH_PREFETCH, 0);
    bench_need_reply(amqp_get_rpc_reply(self.connection), "setting the prefetch");
    amqp_basic_consume(self.connection, CONSUMING, amqp_cstring_bytes(BENCH_QUEUE), amqp_empty_bytes, 0, 0, 0,
                       amqp_empty_table);
    bench_need_reply(amqp_get_rpc_reply(self.connection), "consuming");
}

static void run(uint64_t deliveries)
{
    while (self.deliveries.low < deliveries) {
        amqp_envelope_t envelope;
        if (take(&envelope)) {
            if (self.start == 0) {
                self.start = bench_now_ms();
                self.used = bench_used_ms();
            }
            handle(&envelope);
            amqp_destroy_envelope(&envelope);
        } else {
            hear_confirm();
        }
        acknowledge(self.deliveries.low == deliveries);
    }
}

int main(int count, char **words)
{
    if (count != 3)
        bench_fail("usage: bench-plain consume|retry|lateness MESSAGES");
    bh_topology *topology;
    self.task = bench_task_of(words[1]);
    self.messages = bench_count_of(words[2]);
    int is_lateness = self.task == BENCH_LATENESS;
    bench_make(is_lateness ? BENCH_ONE_QUEUE : BENCH_RATES, &self.policy, &topology);
    char wait_exchange[256] = BENCH_QUEUE ".wait";
    bh_topology_view made;
    bh_topology_read(topology, &made);
    if (!is_lateness)
        snprintf(wait_exchange, sizeof wait_exchange, BENCH_NAMESPACE ".wait.%" PRId64, made.rungs_ms[0]);
    self.wait_exchange = amqp_cstring_bytes(wait_exchange);
    self.samples = is_lateness ? bench_samples(self.messages) : NULL;

    self.connection = bench_connect();
    consume();
    run((uint64_t)self.messages * (is_lateness ? 2 : 1));
    bench_disconnect(self.connection);
    bench_print(self.messages, bench_now_ms() - self.start, bench_used_ms() - self.used, self.samples);

    free(self.samples);
    bh_topology_free(topology);
    bh_policy_free(self.policy);
    return EXIT_SUCCESS;
}
