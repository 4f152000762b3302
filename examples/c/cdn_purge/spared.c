#define _DEFAULT_SOURCE

#include "spared.h"

#include <string.h>

enum {
    CONNECT_MS = 20000,
    TAKE_MS = 50,
    CALL_MS = 10,
    OPENING_FAILURES = 3,
    FIRST_PAUSE_MS = 1000,
    LONGEST_PAUSE_MS = 2000
};

/* Small numbers, as the demo's peak takes seconds and not hours. */
static bh_status make_breaker(bh_breaker **out)
{
    bh_breaker_settings settings;
    bh_policy *pauses;
    bh_status status = bh_policy_new(&pauses);
    if (status != BH_OK)
        return status;
    bh_policy_set_initial_ms(pauses, FIRST_PAUSE_MS);
    bh_policy_set_max_ms(pauses, LONGEST_PAUSE_MS);
    bh_breaker_defaults(&settings);
    settings.name = bh_str("purge API");
    settings.row_failures = OPENING_FAILURES;
    settings.pauses = pauses;
    status = bh_breaker_new(out, &settings, bh_str("cdnpurge")); /* a program draws random bytes here */
    bh_policy_free(pauses);
    return status;
}

bh_status spared_open(struct spared *self, struct record *record, bh_policy *policy)
{
    self->record = record;
    bh_status status = bh_topology_new(&self->topology, bh_str(SPARED_QUEUE));
    if (status == BH_OK)
        status = bh_topology_set_namespace(self->topology, bh_str(SPARED));
    if (status == BH_OK)
        status = bh_topology_set_work_queue_type(self->topology, BH_QUEUE_QUORUM);
    if (status == BH_OK)
        status = bh_topology_build(self->topology, policy);
    if (status == BH_OK)
        status = make_breaker(&self->breaker);
    if (status == BH_OK)
        status = bh_worker_new(&self->worker, policy, self->topology);
    return status == BH_OK ? bh_worker_set_breaker(self->worker, self->breaker) : status;
}

/* Calls the API for an event. */
static bh_outcome call_api(struct spared *self, const char *path, struct purge_answer *answer)
{
    sleep_ms(CALL_MS);
    *answer = purge(&self->api, elapsed_ms(self->record), path);
    atomic_fetch_add(&self->calls, 1);
    if (answer->code == 202)
        return BH_OUTCOME_OK;
    if (answer->code != 507)
        return BH_OUTCOME_PERMANENT;
    atomic_fetch_add(&self->refused, 1);
    return BH_OUTCOME_FAILED;
}

static void handle(struct spared *self, bh_message *taken)
{
    struct purge_answer answer;
    bh_bytes path = bh_message_body(taken);
    /* More pages than the API ever takes: that is the event's own fault, and says nothing about the API. */
    int is_own_fault = memchr(path.data, '*', path.size) != NULL;
    bh_outcome outcome = call_api(self, path.data, &answer);
    bh_status status = bh_worker_settle(self->worker, taken,
                                        &(bh_settlement){.outcome = outcome,
                                                         .error = bh_str(answer.text),
                                                         .retry_after_ms = answer.retry_after_ms,
                                                         .is_own_fault = is_own_fault});
    if (status == BH_OK && outcome == BH_OUTCOME_OK)
        atomic_fetch_add(&self->settled, 1);
}

static void hear(struct spared *self)
{
    bh_event *event;
    while (bh_worker_take_event(self->worker, &event) == BH_OK) {
        if (bh_event_what(event) == BH_EVENT_PARKED)
            atomic_fetch_add(&self->settled, 1);
        bh_event_free(event);
    }
}

static void *work(void *data)
{
    struct spared *self = data;
    bh_message *taken;
    while (!atomic_load(&self->stop)) {
        if (bh_worker_take(self->worker, &taken, TAKE_MS) == BH_OK) {
            handle(self, taken);
            bh_message_free(taken);
        }
        hear(self);
    }
    return NULL;
}

/* Waits until its queues are declared and it consumes. */
static bh_status await_ready(struct spared *self)
{
    bh_health health;
    for (int64_t end_ms = monotonic_ms() + CONNECT_MS; monotonic_ms() < end_ms; sleep_ms(TAKE_MS)) {
        bh_worker_state(self->worker, &health);
        if (health.state == BH_HEALTH_READY)
            return BH_OK;
    }
    return BH_ERR_CONNECTION;
}

bh_status spared_start(struct spared *self, const char *url)
{
    bh_status status = bh_worker_add_uri(self->worker, bh_str(url));
    if (status == BH_OK)
        status = bh_worker_start(self->worker);
    if (status == BH_OK)
        status = await_ready(self);
    self->has_thread = status == BH_OK && pthread_create(&self->thread, NULL, work, self) == 0;
    return status == BH_OK && !self->has_thread ? BH_ERR_NO_MEMORY : status;
}

void spared_finish(struct spared *self, int64_t until_ms)
{
    while (self->has_thread && atomic_load(&self->settled) < MESSAGES && elapsed_ms(self->record) < until_ms)
        sleep_ms(TAKE_MS);
    atomic_store(&self->stop, 1);
    if (self->has_thread)
        pthread_join(self->thread, NULL);
    self->has_thread = 0;
    bh_worker_free(self->worker);
    self->worker = NULL;
}

void spared_close(struct spared *self)
{
    spared_finish(self, 0);
    bh_breaker_free(self->breaker);
    bh_topology_free(self->topology);
}
