/*
 * bench-outage: an outage of a downstream under a backlog, with a circuit breaker or without. HANDLERS threads handle at
 * once. The calls of the downstream take 100 ms. It is up for two seconds, down for SECONDS, and up again.
 *
 *     bench-outage breaker|none MESSAGES SECONDS
 *
 * Publishes the messages first. Prints the calls during the outage, the parked messages and the calls with a wrong number
 * of attempts. The last figure is the time from the recovery until no message was left.
 */
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HANDLERS = 50, CALL_MS = 100, UP_MS = 2000, TAKE_MS = 100, LIMIT_MS = 900000 };

typedef struct outage {
    bh_worker *worker;
    double start, down_ms;
    int messages;
    atomic_int calls_while_down, done, wrong, parked, is_over;
    atomic_int *failures; /* by message */
} outage;

static int is_down(const outage *self)
{
    double at = bench_now_ms() - self->start;
    return at >= UP_MS && at < UP_MS + self->down_ms;
}

static void call_once(outage *self, bh_message *message)
{
    int number = atoi(bh_message_body(message).data), failed = is_down(self);
    if (bh_worker_attempt(self->worker, message) != atomic_load(&self->failures[number]) + 1)
        atomic_fetch_add(&self->wrong, 1);
    if (failed) {
        atomic_fetch_add(&self->calls_while_down, 1);
        atomic_fetch_add(&self->failures[number], 1);
    }
    bench_pause_ms(CALL_MS);
    bh_worker_settle(self->worker, message,
                     &(bh_settlement){.outcome = failed ? BH_OUTCOME_FAILED : BH_OUTCOME_OK,
                                      .error = bh_str(failed ? BENCH_ERROR : "")});
    atomic_fetch_add(&self->done, !failed);
}

static void *handle(void *data)
{
    outage *self = data;
    bh_message *message;
    while (!atomic_load(&self->is_over)) {
        if (bh_worker_take(self->worker, &message, TAKE_MS) != BH_OK)
            continue;
        call_once(self, message);
        bh_message_free(message);
    }
    return NULL;
}

static void hear(outage *self)
{
    for (bh_event *event; bh_worker_take_event(self->worker, &event) == BH_OK; bh_event_free(event)) {
        if (bh_event_what(event) == BH_EVENT_PARKED)
            atomic_fetch_add(&self->parked, 1);
        else
            fprintf(stderr, "%6.1f s %s\n", (bench_now_ms() - self->start) / 1000, bh_event_line(event).data);
    }
}

/* Publishes the numbers from 0 on, and waits until the broker has them. */
static void publish_numbers(amqp_connection_state_t connection, int count)
{
    bench_window confirms = {.low = 0};
    amqp_confirm_select(connection, BENCH_CHANNEL);
    bench_need_reply(amqp_get_rpc_reply(connection), "confirm.select");
    for (int i = 0; i < count; i++) {
        char body[16];
        snprintf(body, sizeof body, "%d", i);
        bench_need_sent(amqp_basic_publish(connection, BENCH_CHANNEL, amqp_empty_bytes, amqp_cstring_bytes(BENCH_QUEUE),
                                           1, 0, NULL, amqp_cstring_bytes(body)),
                        "publishing");
        while ((uint64_t)i + 1 - confirms.low >= BENCH_WINDOW / 2)
            bench_read_confirm(connection, &confirms);
    }
    while (confirms.low < (uint64_t)count)
        bench_read_confirm(connection, &confirms);
}

static void play(outage *self)
{
    pthread_t threads[HANDLERS];
    self->start = bench_now_ms();
    for (int i = 0; i < HANDLERS; i++)
        if (pthread_create(&threads[i], NULL, handle, self) != 0)
            bench_fail("no thread");
    while (atomic_load(&self->done) + atomic_load(&self->parked) < self->messages &&
           bench_now_ms() - self->start < LIMIT_MS) {
        hear(self);
        bench_pause_ms(TAKE_MS);
    }
    atomic_store(&self->is_over, 1);
    for (int i = 0; i < HANDLERS; i++)
        pthread_join(threads[i], NULL);
}

int main(int count, char **words)
{
    if (count != 4)
        bench_fail("usage: bench-outage breaker|none MESSAGES SECONDS");
    outage self = {.messages = bench_count_of(words[2]), .down_ms = 1000.0 * bench_count_of(words[3])};
    self.failures = calloc((size_t)self.messages, sizeof *self.failures);
    bh_breaker *breaker = strcmp(words[1], "breaker") == 0 ? bench_breaker() : NULL;
    bh_policy *policy;
    bh_topology *topology;
    bench_need(bh_policy_new(&policy));
    bench_need(bh_topology_new(&topology, bh_str(BENCH_QUEUE)));
    bench_need(bh_topology_set_namespace(topology, bh_str(BENCH_NAMESPACE)));
    bench_need(bh_topology_set_work_queue_type(topology, BH_QUEUE_QUORUM));
    bench_need(bh_topology_build(topology, policy));
    amqp_connection_state_t connection = bench_connect();
    bench_delete(connection, topology);
    bench_declare(connection, topology);
    publish_numbers(connection, self.messages);
    bench_need(bh_worker_new(&self.worker, policy, topology));
    bench_need(bh_worker_add_uri(self.worker, bh_str(bench_url())));
    bench_need(bh_worker_set_breaker(self.worker, breaker));
    bench_need(bh_worker_start(self.worker));
    play(&self);
    printf("{\"messages\": %d, \"done\": %d, \"parked\": %d, \"calls_while_down\": %d, \"wrong_attempts\": %d, "
           "\"recovery_ms\": %.0f}\n",
           self.messages, atomic_load(&self.done), atomic_load(&self.parked), atomic_load(&self.calls_while_down),
           atomic_load(&self.wrong), bench_now_ms() - self.start - UP_MS - self.down_ms);
    bh_worker_free(self.worker);
    bench_delete(connection, topology);
    bench_disconnect(connection);
    bh_breaker_free(breaker);
    bh_topology_free(topology);
    bh_policy_free(policy);
    free(self.failures);
    return EXIT_SUCCESS;
}
