/*
 * bench-relay: how late what consumers reject comes back through a relay, and how much memory the
 * relay has at most.
 *
 *     bench-relay RATE SECONDS quorum|classic     so many messages a second, each rejected once, in a work queue of this type
 *
 * The relay is this process, so that the result's memory is its own. A child publishes, rejects,
 * and acknowledges the messages that came back. The result's seconds are the time of publishing.
 */
#include "bench.h"

#include "worker/interface/relay.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ACKS_AT_ONCE = 100 };

/* The counters that both processes see. */
typedef struct traffic {
    int rate;
    int messages;
    double publishing_ms;
    bench_sample samples[];
} traffic;

static bh__relay *make_relay(void)
{
    bh__relay *relay;
    bench_need(bh__relay_new(&relay));
    bench_need(bh__relay_set_namespace(relay, bh_str(BENCH_NAMESPACE)));
    bench_need(bh__relay_add_queue(relay, bh_str(BENCH_QUEUE), NULL));
    bench_need(bh__relay_build(relay));
    return relay;
}

/* The work queue, as its owner declares it. */
static void declare_work(amqp_connection_state_t connection, const char *type)
{
    amqp_table_entry_t arguments[] = {
        bench_string("x-queue-type", bh_str(type)),
        bench_string("x-dead-letter-exchange", bh_str(BENCH_NAMESPACE ".rejected")),
        bench_string("x-dead-letter-strategy", bh_str("at-least-once")),
        bench_string("x-overflow", bh_str("reject-publish")),
    };
    int count = strcmp(type, "quorum") == 0 ? 4 : 2;
    amqp_queue_delete(connection, BENCH_CHANNEL, amqp_cstring_bytes(BENCH_QUEUE), 0, 0);
    bench_need_reply(amqp_get_rpc_reply(connection), "deleting the work queue");
    amqp_queue_declare(connection, BENCH_CHANNEL, amqp_cstring_bytes(BENCH_QUEUE), 0, 1, 0, 0,
                       (amqp_table_t){count, arguments});
    bench_need_reply(amqp_get_rpc_reply(connection), "declaring the work queue");
}

static void *publish_all(void *data)
{
    traffic *self = data;
    bench_window confirms = {.low = 0};
    amqp_connection_state_t connection = bench_connect();
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
    amqp_confirm_select(connection, BENCH_CHANNEL);
    bench_need_reply(amqp_get_rpc_reply(connection), "asking for confirms");
    double start = bench_now_ms();
    for (int i = 0; i < self->messages; i++) {
        char body[BENCH_BODY + 1];
        snprintf(body, sizeof body, "%-*d", BENCH_BODY, i);
        bench_pause_ms(start + 1e3 * i / self->rate - bench_now_ms());
        while ((uint64_t)i - confirms.low >= BENCH_PREFETCH)
            bench_read_confirm(connection, &confirms);
        bench_need_sent(amqp_basic_publish(connection, BENCH_CHANNEL, amqp_empty_bytes, amqp_cstring_bytes(BENCH_QUEUE),
                                           0, 0, &properties, amqp_cstring_bytes(body)),
                        "publishing");
    }
    while (confirms.low < (uint64_t)self->messages)
        bench_read_confirm(connection, &confirms);
    self->publishing_ms = bench_now_ms() - start;
    bench_disconnect(connection);
    return NULL;
}

/* Returns the delay of a copy; -1: it is no copy. */
static double delay_of(const amqp_envelope_t *envelope)
{
    static const char name[] = "backhop-delay";
    const amqp_table_t *headers = &envelope->message.properties.headers;
    for (int i = 0; i < headers->num_entries; i++)
        if (headers->entries[i].key.len == strlen(name) &&
            memcmp(headers->entries[i].key.bytes, name, strlen(name)) == 0)
            return (double)headers->entries[i].value.value.i64;
    return -1;
}

/* Rejects a message that comes for the first time, and acknowledges one that came back. */
static void consume_all(traffic *self)
{
    amqp_connection_state_t connection = bench_consuming();
    for (int back = 0; back < self->messages;) {
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(connection);
        bench_need_reply(amqp_consume_message(connection, &envelope, NULL, 0), "consuming");
        bench_sample *sample = bench_sample_of(self->samples, self->messages, envelope.message.body.bytes);
        double delay_ms = delay_of(&envelope);
        if (delay_ms < 0) {
            sample->failed_ms = bench_now_ms();
            bench_need_sent(amqp_basic_reject(connection, BENCH_CHANNEL, envelope.delivery_tag, 0), "rejecting");
        } else {
            back += !sample->is_back;
            bench_sample_back(sample, delay_ms);
            bench_need_sent(amqp_basic_ack(connection, BENCH_CHANNEL, envelope.delivery_tag, 0), "acknowledging");
        }
        amqp_destroy_envelope(&envelope);
    }
    bench_disconnect(connection);
}

_Noreturn static void make_traffic(traffic *self)
{
    pthread_t publisher;
    if (pthread_create(&publisher, NULL, publish_all, self))
        bench_fail("no thread");
    consume_all(self);
    pthread_join(publisher, NULL);
    exit(EXIT_SUCCESS);
}

static void listen_to(bh_worker *worker, const bh_event *event, void *data)
{
    (void)worker;
    (void)data;
    if (bh_event_what(event) != BH_EVENT_CONNECTED && bh_event_what(event) != BH_EVENT_DRAINED)
        fprintf(stderr, "%s\n", bh_event_name(bh_event_what(event)).data);
}

static void *await_end(void *data)
{
    int status = 1;
    wait(&status);
    bench_need(bh_worker_stop(data, 1000));
    return status == 0 ? data : NULL;
}

static void relay_traffic(traffic *self)
{
    bh__relay *relay = make_relay();
    bh_worker *worker;
    pthread_t waiting;
    void *ok = NULL;
    bench_need(bh__worker_new_relay(&worker, relay));
    bench_need(bh_worker_add_uri(worker, bh_str(bench_url())));
    if (pthread_create(&waiting, NULL, await_end, worker))
        bench_fail("no thread");
    bench_need(bh_worker_run(worker, NULL, listen_to, NULL));
    pthread_join(waiting, &ok);
    if (!ok)
        bench_fail("the traffic ended before its time");
    bench_print(self->messages, self->publishing_ms, bench_used_ms(), self->samples);
    bh_worker_free(worker);
    bh__relay_free(relay);
}

/* Deletes the queues and exchanges of a run. */
static void clean_up(void)
{
    static const char *const names[] = {BENCH_QUEUE, BENCH_QUEUE ".parked", BENCH_NAMESPACE ".rejected"};
    amqp_connection_state_t connection = bench_connect();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        amqp_queue_delete(connection, BENCH_CHANNEL, amqp_cstring_bytes(names[i]), 0, 0);
        bench_need_reply(amqp_get_rpc_reply(connection), "deleting a queue");
    }
    amqp_exchange_delete(connection, BENCH_CHANNEL, amqp_cstring_bytes(BENCH_NAMESPACE ".rejected"), 0);
    bench_need_reply(amqp_get_rpc_reply(connection), "deleting the exchange");
    bh_policy *policy;
    bh_topology *topology;
    bench_need(bh_policy_new(&policy));
    bench_need(bh_topology_new(&topology, bh_str(BENCH_QUEUE)));
    bh_topology_settings settings;
    bh_topology_defaults(&settings);
    settings.name_space = bh_str(BENCH_NAMESPACE);
    bench_need(bh_topology_set(topology, &settings));
    bench_need(bh_topology_build(topology, policy));
    bench_delete(connection, topology);
    bh_topology_free(topology);
    bh_policy_free(policy);
    bench_disconnect(connection);
}

int main(int count, char **words)
{
    if (count != 4 || (strcmp(words[3], "quorum") != 0 && strcmp(words[3], "classic") != 0))
        bench_fail("usage: bench-relay RATE SECONDS quorum|classic");
    int rate = bench_count_of(words[1]), messages = rate * bench_count_of(words[2]);
    size_t size = sizeof(traffic) + (size_t)messages * sizeof(bench_sample);
    FILE *file = tmpfile();
    if (!file || ftruncate(fileno(file), (off_t)size))
        bench_fail("no memory");
    traffic *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    if (shared == MAP_FAILED)
        bench_fail("no memory");
    shared->rate = rate;
    shared->messages = messages;
    amqp_connection_state_t connection = bench_connect();
    declare_work(connection, words[3]);
    bench_disconnect(connection);
    bh__relay *relay = make_relay(); /* declares the queues for the first rejections */
    bh_worker *worker;
    bh_event *event = NULL;
    bench_need(bh__worker_new_relay(&worker, relay));
    bench_need(bh_worker_add_uri(worker, bh_str(bench_url())));
    bench_need(bh_worker_start(worker));
    while (!event || bh_event_what(event) != BH_EVENT_CONNECTED) {
        bh_event_free(event);
        event = NULL;
        bench_pause_ms(1);
        bh_worker_take_event(worker, &event);
    }
    bh_event_free(event);
    bh_worker_free(worker);
    bh__relay_free(relay);
    if (fork() == 0)
        make_traffic(shared);
    relay_traffic(shared);
    clean_up();
    return EXIT_SUCCESS;
}
