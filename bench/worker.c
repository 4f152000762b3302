/*
 * bench-worker: the contender that is Backhop's worker, in a program that has nothing else.
 *
 *     bench-worker [metrics|breaker] consume|retry|lateness MESSAGES
 *
 * metrics: it counts them. breaker: it has a circuit breaker, which stays closed.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { DRAIN_MS = 60000 };

typedef struct bench_run {
    bench_task task;
    int messages;
    int done;           /* handled for the last time */
    double start, used; /* at the first message */
    bench_sample *samples;
    bh_metrics *metrics; /* NULL: none are counted */
    bh_breaker *breaker; /* NULL: none */
    bh_delivery *delivery;
    bh_history *history;
} bench_run;

static bh_outcome fail(bh_worker *worker, bh_message *message)
{
    bh_settlement failed = {.outcome = BH_OUTCOME_FAILED, .error = bh_str(BENCH_ERROR), .is_own_fault = 1};
    bench_need(bh_worker_settle(worker, message, &failed));
    return failed.outcome;
}

static void finish_one(bench_run *self, bh_worker *worker)
{
    if (++self->done == self->messages)
        bench_need(bh_worker_stop(worker, DRAIN_MS));
}

static bh_outcome consume(bh_worker *worker, bh_message *message, void *data)
{
    bench_run *self = data;
    (void)message;
    if (self->done == 0) {
        self->start = bench_now_ms();
        self->used = bench_used_ms();
    }
    finish_one(self, worker);
    return BH_OUTCOME_OK;
}

static bh_outcome retry(bh_worker *worker, bh_message *message, void *data)
{
    consume(worker, message, data);
    return fail(worker, message);
}

static bh_outcome come_back(bh_worker *worker, bh_message *message, void *data)
{
    bench_run *self = data;
    bench_sample *sample = bench_sample_of(self->samples, self->messages, bh_message_body(message).data);
    if (sample->failed_ms > 0) {
        bench_need(bh_worker_read(worker, message, self->delivery, self->history));
        bh_past past;
        bh_history_past(self->history, &past);
        bench_sample_back(sample, (double)past.last_delay_ms);
        finish_one(self, worker);
        return BH_OUTCOME_OK;
    }
    sample->failed_ms = bench_now_ms();
    return fail(worker, message);
}

/* Nothing but connecting and draining is meant to happen here. */
static void hear(bh_worker *worker, const bh_event *event, void *data)
{
    (void)worker;
    (void)data;
    bh_event_kind kind = bh_event_what(event);
    if (kind != BH_EVENT_CONNECTED && kind != BH_EVENT_DRAINED)
        bench_fail("%s: %s", bh_event_name((int)kind).data, bh_event_text(event).data);
    bench_need((bh_status)bh_event_int(event, BH_FIELD_STATUS));
}

static void run(bench_run *self)
{
    static const bh_handler handlers[] = {consume, retry, come_back};
    bh_policy *policy;
    bh_topology *topology;
    bh_worker *worker;
    bench_make(self->task == BENCH_LATENESS ? BENCH_LADDER : BENCH_RATES, &policy, &topology);
    bench_need(bh_worker_new(&worker, policy, topology));
    bench_need(bh_worker_add_uri(worker, bh_str(bench_url())));
    bh_worker_settings settings;
    bh_worker_defaults(&settings);
    settings.prefetch = BENCH_PREFETCH;
    settings.breaker = self->breaker;
    bench_need(bh_worker_set(worker, &settings));
    bench_need(bh_worker_set_metrics(worker, self->metrics));
    if (bh_worker_run(worker, handlers[self->task], hear, self) != BH_OK)
        bench_fail("%s", bh_worker_error(worker).data);
    bench_print(self->messages, bench_now_ms() - self->start, bench_used_ms() - self->used, self->samples);
    bh_worker_free(worker);
    bh_topology_free(topology);
    bh_policy_free(policy);
}

int main(int count, char **words)
{
    int counts_metrics = count == 4 && strcmp(words[1], "metrics") == 0;
    int has_breaker = count == 4 && strcmp(words[1], "breaker") == 0;
    if (count != 3 + counts_metrics + has_breaker)
        bench_fail("usage: bench-worker [metrics|breaker] consume|retry|lateness MESSAGES");
    words += count - 3;
    bench_run self = {.task = bench_task_of(words[1]), .messages = bench_count_of(words[2])};
    if (counts_metrics)
        bench_need(bh_metrics_new(&self.metrics));
    self.breaker = has_breaker ? bench_breaker() : NULL;
    bench_need(bh_delivery_new(&self.delivery));
    bench_need(bh_history_new(&self.history));
    self.samples = self.task == BENCH_LATENESS ? bench_samples(self.messages) : NULL;
    run(&self);
    free(self.samples);
    bh_metrics_free(self.metrics);
    bh_breaker_free(self.breaker);
    bh_history_free(self.history);
    bh_delivery_free(self.delivery);
    return EXIT_SUCCESS;
}
