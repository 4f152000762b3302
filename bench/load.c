/*
 * bench-load: how late copies come back when there are many of them. It publishes copies where
 * Backhop's plans send them, and consumes what comes back; nothing is handled, so that the wait
 * queues are the limit.
 *
 *     bench-load offered RATE SECONDS STRIPES     so many a second, after 1 to 4 failures of the default policy
 *     bench-load due COUNT STRIPES                onto one rung, as fast as the broker takes them
 *     bench-load neighbour COUNT shared|own       a probe each 20 ms, while a neighbour's work queue gets as many retries on the
 *                                                 probes' rung, in the same namespace or in one of its own
 *
 * Each declares its exchanges and queues, and deletes them in the end. The result's seconds are the
 * time of publishing.
 */
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    RUNG_MS = 20000,
    PROBE_RUNG_MS = 1000,
    PROBES = 500,
    PROBE_EVERY_MS = 20,
    MOST_FAILURES = 4,
    ACKS_AT_ONCE = 100
};

/* A work queue with its waits, and a connection on which its copies are published. */
typedef struct load_source {
    amqp_connection_state_t connection;
    bh_policy *policy;
    bh_topology *topology;
    bh_delivery *delivery;
    bh_history *history;
    bh_plan *plan;
    bench_window confirms;
    uint64_t published;
} load_source;

/* Fixed delays of `rung_ms`; 0: the default policy. */
static load_source open_source(const char *name_space, const char *queue, int64_t rung_ms, int stripes)
{
    load_source self = {.published = 0};
    bh_policy_settings settings;
    bh_policy_defaults(&settings);
    if (rung_ms) {
        settings.kind = BH_KIND_FIXED;
        settings.initial_ms = rung_ms;
        settings.jitter = BH_JITTER_NONE;
    }
    settings.max_retry_after_ms = 0;
    bench_need(bh_policy_new(&self.policy));
    bench_need(bh_policy_set(self.policy, &settings));
    bench_need(bh_topology_new(&self.topology, bh_str(queue)));
    bh_topology_settings of;
    bh_topology_defaults(&of);
    of.name_space = bh_str(name_space);
    of.stripes = stripes;
    of.declares_work_queue = 1;
    bench_need(bh_topology_set(self.topology, &of));
    bench_need(bh_topology_build(self.topology, self.policy));
    bench_need(bh_delivery_new(&self.delivery));
    bench_need(bh_history_new(&self.history));
    bench_need(bh_plan_new(&self.plan));
    self.connection = bench_connect();
    bench_delete(self.connection, self.topology); /* queues of a run that was killed */
    bench_declare(self.connection, self.topology);
    amqp_confirm_select(self.connection, BENCH_CHANNEL);
    bench_need_reply(amqp_get_rpc_reply(self.connection), "asking for confirms");
    return self;
}

static void close_source(load_source *self)
{
    bench_delete(self->connection, self->topology);
    bench_disconnect(self->connection);
    bh_plan_free(self->plan);
    bh_history_free(self->history);
    bh_delivery_free(self->delivery);
    bh_topology_free(self->topology);
    bh_policy_free(self->policy);
}

static void make_plan(load_source *self, int64_t failures)
{
    char random_bytes[BH_PLAN_RANDOM_BYTES];
    for (size_t i = 0; i < sizeof random_bytes; i++)
        random_bytes[i] = (char)(rand() >> 8);
    bh_topology_view made;
    bh_topology_read(self->topology, &made);
    bh_delivery_clear(self->delivery);
    bench_need(bh_delivery_push(
        self->delivery, &(bh_value){.type = BH_TYPE_INT64, .name = bh_str("backhop-attempts"), .integer = failures}));
    bench_need(bh_delivery_push(
        self->delivery, &(bh_value){.type = BH_TYPE_STRING, .name = bh_str("backhop-queue"), .string = made.queue}));
    bench_need(bh_history_read(self->history, self->delivery, self->topology));
    bench_need(bh_plan_make(self->plan, self->delivery, self->history, self->policy, self->topology, BH_OUTCOME_FAILED,
                            bh_str(BENCH_ERROR), 0, 1700000000000, (bh_bytes){random_bytes, sizeof random_bytes}));
}

/* Publishes the copy of the plan, with the headers that it sets. */
static void publish(load_source *self, int number, bench_sample *sample)
{
    enum { MOST_HEADERS = 32 };
    amqp_table_entry_t headers[MOST_HEADERS];
    amqp_field_value_t element = {.kind = AMQP_FIELD_KIND_UTF8};
    bh_planned planned;
    bh_plan_read(self->plan, &planned);
    size_t count = planned.header_count;
    if (count > MOST_HEADERS)
        bench_fail("a plan sets %zu headers", count);
    for (size_t i = 0; i < count; i++) {
        bh_header header;
        bh_plan_header(self->plan, i, &header);
        if (header.type == BH_TYPE_INT64) {
            headers[i] = bench_int(header.name.data, header.integer);
            continue;
        }
        headers[i] = bench_string(header.name.data, header.string);
        if (header.type == BH_TYPE_ARRAY) {
            element.value.bytes = headers[i].value.value.bytes;
            headers[i].value.kind = AMQP_FIELD_KIND_ARRAY;
            headers[i].value.value.array = (amqp_array_t){1, &element};
        }
    }
    char body[BENCH_BODY + 1];
    snprintf(body, sizeof body, "%-*d", BENCH_BODY, number);
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG,
        .headers = {(int)count, headers},
        .delivery_mode = 2,
    };
    while (self->published - self->confirms.low >= BENCH_PREFETCH)
        bench_read_confirm(self->connection, &self->confirms);
    if (sample) {
        sample->failed_ms = bench_now_ms();
        sample->delay_ms = (double)planned.delay_ms;
    }
    self->published++;
    bh_copy copy;
    bh_plan_copy(self->plan, &copy);
    bench_need_sent(amqp_basic_publish(self->connection, BENCH_CHANNEL, bh__to_amqp(copy.exchange),
                                       bh__to_amqp(copy.routing_key), 1, 0, &properties, amqp_cstring_bytes(body)),
                    "publishing");
}

static void await_confirms(load_source *self)
{
    while (self->confirms.low < self->published)
        bench_read_confirm(self->connection, &self->confirms);
}

/* ------------------------------------------------------------------------------------ consuming */

typedef struct load_return {
    pthread_t thread;
    int messages; /* that are to come back */
    bench_sample *samples;
} load_return;

static void *take_back(void *data)
{
    load_return *self = data;
    amqp_connection_state_t connection = bench_consuming();
    for (int taken = 1; taken <= self->messages; taken++) {
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(connection);
        bench_need_reply(amqp_consume_message(connection, &envelope, NULL, 0), "consuming");
        bench_sample *sample = bench_sample_of(self->samples, self->messages, envelope.message.body.bytes);
        bench_sample_back(sample, sample->delay_ms);
        if (taken % ACKS_AT_ONCE == 0 || taken == self->messages)
            bench_need_sent(amqp_basic_ack(connection, BENCH_CHANNEL, envelope.delivery_tag, 1), "acknowledging");
        amqp_destroy_envelope(&envelope);
    }
    bench_disconnect(connection);
    return NULL;
}

static void begin_return(load_return *self, int messages)
{
    self->messages = messages;
    self->samples = bench_samples(messages);
    if (pthread_create(&self->thread, NULL, take_back, self))
        bench_fail("no thread");
}

/* `ms`: of publishing. */
static void end_return(load_return *self, double ms)
{
    pthread_join(self->thread, NULL);
    bench_print(self->messages, ms, bench_used_ms(), self->samples);
    free(self->samples);
}

/* ---------------------------------------------------------------------------------------- loads */

static void offered(int rate, int seconds, int stripes)
{
    load_source source = open_source(BENCH_NAMESPACE, BENCH_QUEUE, 0, stripes);
    load_return returned;
    begin_return(&returned, rate * seconds);
    double start = bench_now_ms();
    for (int i = 0; i < returned.messages; i++) {
        bench_pause_ms(start + 1e3 * i / rate - bench_now_ms());
        make_plan(&source, i % MOST_FAILURES);
        publish(&source, i, &returned.samples[i]);
    }
    await_confirms(&source);
    end_return(&returned, bench_now_ms() - start);
    close_source(&source);
}

static void due(int count, int stripes)
{
    load_source source = open_source(BENCH_NAMESPACE, BENCH_QUEUE, RUNG_MS, stripes);
    load_return returned;
    begin_return(&returned, count);
    double start = bench_now_ms();
    for (int i = 0; i < count; i++) {
        make_plan(&source, 0);
        publish(&source, i, &returned.samples[i]);
    }
    await_confirms(&source);
    end_return(&returned, bench_now_ms() - start);
    close_source(&source);
}

typedef struct load_burst {
    load_source source;
    int count;
} load_burst;

static void *make_burst(void *data)
{
    load_burst *self = data;
    for (int i = 0; i < self->count; i++) {
        make_plan(&self->source, 0);
        publish(&self->source, i, NULL);
    }
    await_confirms(&self->source);
    return NULL;
}

static void neighbour(int count, int is_own)
{
    load_source source = open_source(BENCH_NAMESPACE, BENCH_QUEUE, PROBE_RUNG_MS, 1);
    load_burst burst = {.source = open_source(is_own ? BENCH_NAMESPACE ".own" : BENCH_NAMESPACE,
                                              BENCH_QUEUE ".neighbour", PROBE_RUNG_MS, 1),
                        .count = count};
    bench_declare(source.connection,
                  source.topology); /* the neighbour's beginning deleted them in the shared namespace */
    load_return returned;
    begin_return(&returned, PROBES);
    pthread_t thread;
    if (pthread_create(&thread, NULL, make_burst, &burst))
        bench_fail("no thread");
    double start = bench_now_ms();
    for (int i = 0; i < PROBES; i++) {
        bench_pause_ms(start + PROBE_EVERY_MS * i - bench_now_ms());
        make_plan(&source, 0);
        publish(&source, i, &returned.samples[i]);
    }
    await_confirms(&source);
    double ms = bench_now_ms() - start;
    pthread_join(thread, NULL);
    end_return(&returned, ms);
    close_source(&burst.source);
    close_source(&source);
}

int main(int count, char **words)
{
    const char *load = count > 1 ? words[1] : "";
    if (count == 5 && strcmp(load, "offered") == 0)
        offered(bench_count_of(words[2]), bench_count_of(words[3]), bench_count_of(words[4]));
    else if (count == 4 && strcmp(load, "due") == 0)
        due(bench_count_of(words[2]), bench_count_of(words[3]));
    else if (count == 4 && strcmp(load, "neighbour") == 0)
        neighbour(bench_count_of(words[2]), strcmp(words[3], "own") == 0);
    else
        bench_fail("usage: bench-load offered RATE SECONDS STRIPES | due COUNT STRIPES | neighbour COUNT shared|own");
    return EXIT_SUCCESS;
}
