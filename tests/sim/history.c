#include "history.h"
#include "../topologies.h"

#include "../wire/properties.h"
#include "client.h"
#include "network.h"
#include "schedule.h"
#include "worker/interface/relay.h"
#include "worker/wire/schedule.h"

#include <backhop/adapter/delivery.h>
#include <backhop/adapter/history.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXCHANGE "events"

static const char *const queue_names[MOST_QUEUES] = {"orders", "bills"};
static const char *const queue_keys[MOST_QUEUES] = {"order.created", "bill.created"};
static const char *const queue_patterns[MOST_QUEUES] = {"order.#", "bill.#"};

enum {
    DRAIN_MS = 3600000,
    HOLD_MS = 120000, /* workers hold messages of a deleted queue for no longer, while a breaker is open */
    LOOK_MS = 5000,
    MEMORY_LOOKS = 12, /* measuring memory is slow */
    STOP_MS = 20000,
    GOODBYES_MS = 4100, /* beyond the limit of a stop: 2 s for each connection */
    STACK_BYTES = 262144,
    MOST_ACTS = 2 * MOST_FAULTS,
    MOST_MEMORY = 64 * 1048576,
    MOST_WAITS = 100,   /* of a message: a throttled call is a failure then */
    MOST_LEFT = 262144, /* freed chunks that malloc keeps for a thread count as used */
    LIST_ROOM = 65536,
    READY_MS = 600000
};

/* The begin or the end of a fault. */
typedef struct act {
    int64_t at_ms;
    const fault *fault;
    int is_end;
} act;

typedef struct player {
    bh_worker *worker;
    int queue; /* that it consumes from */
    pthread_t run;
    pthread_t takers[4];
    int is_paused;      /* it restarts */
    int64_t stop_by_ms; /* the last stop is over then; 0: there was none */
} player;

static struct {
    const history *of;
    outcome *out;
    model *broker;
    client *client;
    bh_policy *policy;
    bh_topology *topologies[MOST_QUEUES];
    bh__relay *relay;
    bh_breaker *breaker;
    bh_breaker *breakers;
    player players[MOST_WORKERS];
    int is_over;
    int is_calm; /* all faults have ended: handlers succeed */
    int calm_successes;
    int may_be_early;
    int has_replays;
    size_t bytes_before;
    char list[LIST_ROOM];
} it;

static int queue_count(void)
{
    return it.of->queues ? it.of->queues : 1;
}

/* ------------------------------------------------------------------------------------- messages */

/* The properties that a message is published with. */
static void add_properties(bh__buffer *out, unsigned index)
{
    enum { TYPE = 1 << 15, HEADERS = 1 << 13, MODE = 1 << 12, PRIORITY = 1 << 11, CORRELATION = 1 << 10, ID = 1 << 7 };
    bh__buffer fields = {.data = NULL};
    char text[32];
    add_number(out, TYPE | HEADERS | MODE | CORRELATION | (it.of->has_no_ids ? 0 : ID), 2);
    add_counted(out, 1, bh_str("application/json"));
    add_text(&fields, "tenant", "acme");
    add_field(&fields, "n", BH_TYPE_INT32, "\0\0\0\7", 4);
    add_counted(out, 4, bytes_of(&fields));
    add_number(out, 2, 1);
    snprintf(text, sizeof text, "c%u", index);
    add_counted(out, 1, bh_str(text));
    snprintf(text, sizeof text, "id-%u", index);
    if (!it.of->has_no_ids)
        add_counted(out, 1, bh_str(text));
    bh__buffer_free(&fields);
}

static int is_added(bh_bytes name)
{
    static const char *const prefixes[] = {
        "backhop-", "x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count", "x-opt-",
        "CC",       "BCC"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (name.size >= strlen(prefixes[i]) && memcmp(name.data, prefixes[i], strlen(prefixes[i])) == 0)
            return 1;
    return 0;
}

static int same(bh_bytes a, bh_bytes b)
{
    return a.size == b.size && (!a.data) == (!b.data) && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/* Checks that a message has the properties and headers that it was published with, and others only
 * of Backhop and RabbitMQ. */
static void check_properties(const account *message, bh_bytes properties)
{
    static property_list got, want;
    bh__buffer published = {.data = NULL};
    add_properties(&published, message->index);
    if (!property_list_read(&got, properties) || !property_list_read(&want, bytes_of(&published)))
        fail("the properties of message %u are malformed", message->index);
    for (int i = 0; i < BH_PROPERTY_LAST; i++)
        if (i != BH_PROPERTY_HEADERS && i != BH_PROPERTY_MESSAGE_ID && !same(got.values[i], want.values[i]))
            fail("property %d of message %u has changed", i, message->index);
    size_t own = 0;
    for (size_t i = 0; i < got.header_count; i++) {
        if (is_added(got.headers[i].name))
            continue;
        int is_found = 0;
        for (size_t j = 0; j < want.header_count; j++)
            is_found |=
                same(got.headers[i].name, want.headers[j].name) && same(got.headers[i].value, want.headers[j].value);
        if (!is_found)
            fail("header %.*s of message %u is new or changed", (int)got.headers[i].name.size, got.headers[i].name.data,
                 message->index);
        own++;
    }
    if (own != want.header_count)
        fail("message %u has lost a header", message->index);
    bh__buffer_free(&published);
}

static void publish(unsigned index)
{
    static const char filler[] = "0123456789abcdef";
    bh__buffer body = {.data = NULL}, properties = {.data = NULL};
    char prefix[32];
    snprintf(prefix, sizeof prefix, "m%u ", index);
    add_bytes(&body, prefix, strlen(prefix));
    while (bh__buffer_size(&body) < it.of->body_bytes)
        add_bytes(&body, filler, sizeof filler - 1);
    add_properties(&properties, index);
    account *message = witness_add(bytes_of(&body));
    int queue = (int)(index / 2) % queue_count();
    message->is_direct = index % 2;
    message->queue = queue;
    message->published_us = schedule_now_us();
    trace("publish m%u", index);
    for (int tries = 0; !message->is_published; tries++) {
        if (tries > 1000)
            fail("message %u cannot be published", index);
        if (tries) {
            message->published_again++; /* it may have been stored before */
            schedule_sleep_us(1000000);
        }
        message->is_published =
            message->is_direct
                ? client_publish(it.client, "", queue_names[queue], bytes_of(&properties), bytes_of(&body))
                : client_declare_exchange(it.client, EXCHANGE, "topic") &&
                      client_bind(it.client, queue_names[queue], EXCHANGE, queue_patterns[queue]) &&
                      client_publish(it.client, EXCHANGE, queue_keys[queue], bytes_of(&properties), bytes_of(&body));
    }
    bh__buffer_free(&body);
    bh__buffer_free(&properties);
}

/* ------------------------------------------------------------------------------------- handlers */

/* Returns the longest delay after this attempt. */
static int64_t policy_delay_ms(int64_t attempt)
{
    double delay = (double)it.of->initial_ms;
    for (int64_t i = 1; i < attempt && it.of->kind == BH_KIND_EXPONENTIAL; i++)
        delay *= it.of->factor;
    if (it.of->kind == BH_KIND_LINEAR)
        delay = (double)(it.of->initial_ms * attempt);
    return delay < (double)it.of->max_ms ? (int64_t)delay : it.of->max_ms;
}

/* Returns the shortest delay after this attempt. */
static int64_t least_delay_ms(int64_t attempt)
{
    return it.of->jitter == BH_JITTER_NONE ? policy_delay_ms(attempt) : 0; /* the rungs of a jitter are few */
}

/* Returns 1 if attempts count deliveries: without copies only the broker counts. */
static int counts_deliveries(void)
{
    return it.of->strategy == BH_STRATEGY_REJECT || it.of->strategy == BH_STRATEGY_NATIVE;
}

static void check_attempt(account *message, int64_t attempt, int queue)
{
    int doubles = witness_doubles(message);
    int is_parked = message->begins_anew || (message->is_unroutable && it.of->has_relay); /* relays park there too */
    if (is_parked && attempt == 1) {                                                      /* replayed */
        message->failures_before += message->failures;
        message->failures = message->waits = 0;
    }
    message->begins_anew = message->is_unroutable = 0;
    int64_t expected = 1 + message->failures;
    int64_t most = expected + (doubles ? message->failures_before : 0) + (counts_deliveries() ? message->returned : 0);
    if (message->queue != queue)
        fail("message %u of %s comes to %s", message->index, queue_names[message->queue], queue_names[queue]);
    if (attempt < 1 || attempt > most || (!doubles && attempt != expected))
        fail("attempt %lld of message %u, after %d failures", (long long)attempt, message->index, message->failures);
    if (message->in_hand && !doubles)
        fail("two handlers have message %u, and it was not doubled", message->index);
    if (message->due_us > schedule_now_us() && message->lives == 1 && !message->is_split && !it.may_be_early)
        fail("message %u comes %.3f ms early", message->index, (double)(message->due_us - schedule_now_us()) / 1000);
    if (message->oks && !doubles)
        fail("message %u comes again after its success", message->index);
    if (it.of->is_prompt && message->calls == 0 && schedule_now_us() > message->published_us + 1000000)
        fail("message %u is handled %.3f s after it was published", message->index,
             (double)(schedule_now_us() - message->published_us) / 1000000);
}

static void check_origin(const account *message, bh_delivery *delivery, bh_history *past)
{
    const char *key = message->is_direct ? queue_names[message->queue] : queue_keys[message->queue],
               *exchange = message->is_direct ? "" : EXCHANGE;
    bh_past first;
    bh_delivery_view seen;
    bh_history_past(past, &first);
    bh_delivery_read(delivery, &seen);
    if (strcmp(first.routing_key.data, key) != 0 || strcmp(first.exchange.data, exchange) != 0)
        fail("message %u was published to \"%s\" \"%s\" by its history", message->index, first.exchange.data,
             first.routing_key.data);
    if (it.of->strategy != BH_STRATEGY_REJECT && it.of->strategy != BH_STRATEGY_MESSAGE_TTL && !it.has_replays &&
        strcmp(seen.routing_key.data, key) != 0)
        fail("message %u comes with routing key \"%s\"", message->index, seen.routing_key.data);
}

/* Counts successes in a row while the breaker is not closed. */
static void count_calm_success(void)
{
    bh_breaker_view view;
    if (!it.breaker)
        return;
    bh_breaker_read(it.breaker, bh_str(""), schedule_now_ms(), &view);
    it.calm_successes = view.state == BH_BREAKER_CLOSED ? 0 : it.calm_successes + 1;
}

static call_script decide(account *message, int64_t attempt)
{
    if (it.is_calm) {
        count_calm_success();
        return (call_script){.outcome = BH_OUTCOME_OK};
    }
    return it.of->decide(it.of->data, message, attempt);
}

static void note_settled(account *message, const call_script *script, int64_t attempt)
{
    int64_t delay_ms = 0;
    int is_retried = 1; /* else it is parked, and a replay can bring it at once */
    int may_wait = it.of->strategy != BH_STRATEGY_REJECT && it.of->strategy != BH_STRATEGY_NATIVE;
    bh_outcome ended = script->outcome;
    if (ended == BH_OUTCOME_THROTTLED && may_wait && message->waits >= MOST_WAITS)
        ended = BH_OUTCOME_FAILED;
    switch (ended) {
    case BH_OUTCOME_OK:
    case BH_OUTCOME_DROPPED:
        message->oks++;
        message->ok_us = schedule_now_us();
        it.out->oks++;
        break;
    case BH_OUTCOME_PERMANENT:
        message->permanents++;
        break;
    case BH_OUTCOME_FAILED:
    case BH_OUTCOME_RELEASED:
        message->failures++;
        is_retried = attempt < it.of->max_attempts;
        delay_ms = least_delay_ms(attempt);
        break;
    case BH_OUTCOME_THROTTLED:
    case BH_OUTCOME_DEFERRED:
        message->waits += may_wait;
        message->failures += !may_wait; /* without copies a wait is an attempt */
        break;
    }
    if (script->retry_after_ms > delay_ms && may_wait)
        delay_ms = script->retry_after_ms;
    /* RabbitMQ counts whole milliseconds. */
    int64_t due_us = delay_ms && is_retried ? schedule_now_us() + (delay_ms - 1) * 1000 : 0;
    message->next_due_us = may_wait && !message->is_overlapped ? due_us : 0;
    message->due_us = may_wait || witness_doubles(message) ? 0 : due_us;
}

static bh_bytes key_of(const account *message)
{
    static const char *const keys[] = {"a", "b", "c"};
    return bh_str(keys[message->index % 3]);
}

/* Returns 1 if the breaker of the message's key grants a call. */
static int get_permit(const account *message, bh_permit *out)
{
    ENSURE(bh_breaker_permit(it.breakers, key_of(message), schedule_now_ms(), out) == BH_OK);
    return out->generation != 0;
}

static void record_call(const account *message, const bh_permit *permit, const call_script *script)
{
    bh_call call = {.kind = bh_call_kind_of(script->outcome, !script->is_own_fault),
                    .duration_ms = script->duration_ms,
                    .retry_after_ms = script->retry_after_ms,
                    .whole_queue = script->whole_queue};
    bh_breaker_record(it.breakers, key_of(message), permit, &call, schedule_now_ms());
}

/* Lets a message wait until the breaker of its key may grant a call. */
static void defer(bh_worker *worker, bh_message *taken, account *message, int64_t attempt, int64_t wait_ms)
{
    bh_settlement settlement = {.outcome = BH_OUTCOME_DEFERRED, .retry_after_ms = wait_ms > 0 ? wait_ms : 1};
    call_script script = {.outcome = BH_OUTCOME_DEFERRED};
    bh_status status = bh_worker_settle(worker, taken, &settlement);
    trace("m%u: attempt %lld is deferred for %lld ms: %s", message->index, (long long)attempt, (long long)wait_ms,
          bh_status_name(status).data);
    if (status == BH_OK)
        note_settled(message, &script, attempt);
    else if (status != BH_ERR_STATE)
        fail("a message cannot be deferred: %s", bh_status_name(status).data);
}

static void handle(bh_worker *worker, bh_message *taken, int queue)
{
    bh_delivery *delivery;
    bh_history *past;
    ENSURE(bh_delivery_new(&delivery) == BH_OK && bh_history_new(&past) == BH_OK);
    account *message = witness_find(bh_message_body(taken));
    ENSURE(message);
    int64_t attempt = bh_worker_attempt(worker, taken);
    trace("m%u: attempt %lld begins", message->index, (long long)attempt);
    check_attempt(message, attempt, queue);
    ENSURE(bh_worker_read(worker, taken, delivery, past) == BH_OK);
    check_origin(message, delivery, past);
    bh_permit permit;
    if (it.breakers && !get_permit(message, &permit)) {
        defer(worker, taken, message, attempt, permit.until_ms - schedule_now_ms());
        bh_history_free(past);
        bh_delivery_free(delivery);
        return;
    }
    message->calls++;
    message->is_overlapped |= message->in_hand > 0;
    message->in_hand++;
    it.out->calls++;
    int returned = message->returned;
    call_script script = decide(message, attempt);
    if (script.duration_ms)
        schedule_sleep_us(script.duration_ms * 1000);
    message->in_hand--;
    if (it.breakers)
        record_call(message, &permit, &script);
    bh_settlement settlement = {.outcome = script.outcome,
                                .error = bh_str("507 queue is full"),
                                .error_class = bh_str("StorageError"),
                                .retry_after_ms = script.retry_after_ms,
                                .is_own_fault = script.is_own_fault,
                                .whole_queue = script.whole_queue};
    if (it.of->handler_timeout_ms && script.duration_ms > it.of->handler_timeout_ms &&
        (script.outcome == BH_OUTCOME_OK || script.outcome == BH_OUTCOME_DROPPED))
        script.outcome = BH_OUTCOME_FAILED;
    bh_status status = bh_worker_settle(worker, taken, &settlement);
    trace("m%u: attempt %lld ends with %d: %s", message->index, (long long)attempt, (int)script.outcome,
          bh_status_name(status).data);
    if (status == BH_OK)
        note_settled(message, &script, attempt);
    if (message->returned != returned) /* the copy of another delivery may come first */
        message->next_due_us = 0;
    if (status != BH_OK && status != BH_ERR_STATE)
        fail("a message cannot be settled: %s", bh_status_name(status).data);
    message->is_overlapped &= message->in_hand > 0;
    bh_history_free(past);
    bh_delivery_free(delivery);
}

/* Stops a worker. Its run ends in time, or with the handler that runs then. */
static void stop(player *self, int64_t limit_ms)
{
    self->stop_by_ms = schedule_now_ms() + limit_ms + GOODBYES_MS;
    ENSURE(bh_worker_stop(self->worker, limit_ms) == BH_OK);
}

static bh_outcome on_message(bh_worker *worker, bh_message *taken, void *data)
{
    player *self = data;
    handle(worker, taken, self->queue);
    if (self->stop_by_ms && self->stop_by_ms < schedule_now_ms() + GOODBYES_MS)
        self->stop_by_ms = schedule_now_ms() + GOODBYES_MS;
    return BH_OUTCOME_OK; /* ignored: it is settled */
}

static void on_event(bh_worker *worker, const bh_event *event, void *data)
{
    (void)worker, (void)data;
    it.out->events[bh_event_what(event)]++;
    if (bh_event_what(event) == BH_EVENT_REFUSED)
        witness_may_give_back();
    trace("event %s", bh_event_line(event).data);
}

static void *run(void *data)
{
    player *self = data;
    while (!it.is_over) {
        bh_status status = bh_worker_run(self->worker, it.relay ? NULL : on_message, on_event, self);
        if (status != BH_OK)
            fail("the worker ends: %s", bh_worker_error(self->worker).data);
        if (self->stop_by_ms && self->stop_by_ms < schedule_now_ms())
            fail("the worker stops %lld ms too late", (long long)(schedule_now_ms() - self->stop_by_ms));
        self->stop_by_ms = 0;
        while (self->is_paused && !it.is_over)
            schedule_sleep_us(10000);
    }
    return NULL;
}

static void *take(void *data)
{
    player *self = data;
    while (!it.is_over) {
        bh_message *taken;
        bh_status status = bh_worker_take(self->worker, &taken, 60000);
        if (status == BH_OK) {
            handle(self->worker, taken, self->queue);
            bh_message_free(taken);
        } else if (status == BH_ERR_STATE) {
            schedule_sleep_us(50000);
        }
    }
    return NULL;
}

/* Returns the attempt of a message that a relay sent back, from its header. */
static int64_t attempt_of(bh_bytes properties)
{
    static property_list list;
    if (!property_list_read(&list, properties))
        fail("the properties of a message are malformed");
    for (size_t i = 0; i < list.header_count; i++)
        if (same(list.headers[i].name, bh_str("backhop-attempts")) && list.headers[i].value.size == 9)
            return 1 + (int64_t)bh__get_number(list.headers[i].value.data + 1, 8);
    return 1;
}

/* A consumer in another language, which can only acknowledge and reject. */
static void consume_one(client *own, const client_message *got)
{
    account *message = witness_find(got->body);
    ENSURE(message);
    int64_t attempt = attempt_of(got->properties);
    trace("m%u: attempt %lld begins", message->index, (long long)attempt);
    check_attempt(message, attempt, 0);
    check_properties(message, got->properties);
    message->calls++;
    message->is_overlapped |= message->in_hand > 0;
    message->in_hand++;
    it.out->calls++;
    call_script script = decide(message, attempt);
    if (script.outcome != BH_OUTCOME_OK && script.outcome != BH_OUTCOME_DROPPED)
        script.outcome = BH_OUTCOME_FAILED;
    script.retry_after_ms = 0;
    if (script.duration_ms)
        schedule_sleep_us(script.duration_ms * 1000);
    message->in_hand--;
    int is_ok = script.outcome != BH_OUTCOME_FAILED;
    int oks = message->oks, failures = message->failures, returned = message->returned;
    note_settled(message, &script, attempt); /* first: the relay may act at once */
    int is_settled = client_settle(own, is_ok);
    trace("m%u: attempt %lld ends with %d: %s", message->index, (long long)attempt, is_ok,
          is_settled ? "settled" : "lost");
    if (!is_settled) { /* it may have arrived */
        message->published_again += message->returned == returned;
        message->oks = oks;
        message->failures = failures;
        message->due_us = message->next_due_us = 0;
    }
    message->ok_us = 0;
    message->is_overlapped &= message->in_hand > 0;
}

static void *reject_all(void *data)
{
    client *own = client_new(it.broker);
    (void)data;
    while (!it.is_over) {
        client_message got;
        int is_there = client_take(own, queue_names[0], &got);
        if (is_there < 0)
            client_declare_queue(own, queue_names[0], "quorum");
        if (is_there == 1)
            consume_one(own, &got);
        else
            schedule_sleep_us(200000);
    }
    client_free(own);
    return NULL;
}

/* -------------------------------------------------------------------------------------- workers */

static void make_policy(void)
{
    const history *of = it.of;
    ENSURE(bh_policy_new(&it.policy) == BH_OK);
    policy_set_kind(it.policy, of->kind);
    policy_set_initial_ms(it.policy, of->initial_ms);
    if (of->kind == BH_KIND_EXPONENTIAL)
        policy_set_factor(it.policy, of->factor);
    policy_set_max_ms(it.policy, of->max_ms);
    policy_set_max_attempts(it.policy, of->max_attempts);
    policy_set_jitter(it.policy, of->jitter, of->jitter == BH_JITTER_SPREAD ? 0.3 : 0);
    if (of->max_age_ms)
        policy_set_max_age_ms(it.policy, of->max_age_ms);
    if (of->max_crashes)
        policy_set_max_crashes(it.policy, of->max_crashes);
}

static void make_topology(int queue)
{
    const history *of = it.of;
    ENSURE(bh_topology_new(&it.topologies[queue], bh_str(queue_names[queue])) == BH_OK);
    bh_topology *made = it.topologies[queue];
    topology_set_strategy(made, of->strategy);
    topology_set_queue_type(made, of->type);
    topology_declare_work_queue(made, of->type);
    if (bh_topology_build(made, it.policy) != BH_OK)
        fail("the topology: %s", bh_topology_error(made).data);
}

/* The work queue of a relay is its consumer's, and an operator gave it the dead letter exchange. */
static void make_relay(void)
{
    ENSURE(bh__relay_new(&it.relay) == BH_OK);
    bh__relay_set_queue_type(it.relay, BH_QUEUE_QUORUM);
    ENSURE(bh__relay_add_queue(it.relay, bh_str(queue_names[0]), it.policy) == BH_OK);
    if (bh__relay_build(it.relay) != BH_OK)
        fail("the relay: %s", bh__relay_error(it.relay).data);
    network_control(NULL, 0,
                    "policy / rejected ^orders$ queues 1 '{\"dead-letter-exchange\": \"backhop.rejected\", "
                    "\"dead-letter-strategy\": \"at-least-once\", \"overflow\": \"reject-publish\"}'");
    ENSURE(client_declare_queue(it.client, queue_names[0], "quorum"));
}

static void start_worker(player *self)
{
    const history *of = it.of;
    char uri[64];
    snprintf(uri, sizeof uri, "amqp://guest:guest@model/?heartbeat=%d", of->heartbeat_s);
    self->queue = (int)(self - it.players) % queue_count();
    ENSURE((it.relay ? bh__worker_new_relay(&self->worker, it.relay)
                     : bh_worker_new(&self->worker, it.policy, it.topologies[self->queue])) == BH_OK);
    bh_worker_settings settings;
    bh_worker_defaults(&settings);
    settings.prefetch = it.relay ? BH__RELAY_PREFETCH : of->prefetch;
    settings.confirm_timeout_ms = of->confirm_ms;
    settings.handler_timeout_ms = of->handler_timeout_ms;
    settings.fail_fast = 0;
    settings.breaker = it.breaker;
    for (int kind = 0; kind < BH_EVENT_LAST; kind++)
        settings.emits[kind] = 1;
    ENSURE(bh_worker_set(self->worker, &settings) == BH_OK);
    ENSURE(bh_worker_add_uri(self->worker, bh_str(uri)) == BH_OK);
    ENSURE(bh__thread_start(&self->run, STACK_BYTES, run, self));
    for (int i = 0; i < of->takers && !it.relay; i++)
        ENSURE(bh__thread_start(&self->takers[i], STACK_BYTES, take, self));
}

static void stop_worker(player *self)
{
    stop(self, STOP_MS);
    bh__thread_join(self->run);
    for (int i = 0; i < it.of->takers && !it.relay; i++)
        bh__thread_join(self->takers[i]);
    bh_worker_free(self->worker);
}

static int is_ready(const player *self)
{
    bh_health health;
    bh_worker_state(self->worker, &health);
    return health.state == BH_HEALTH_READY;
}

static void await_ready(void)
{
    for (int i = 0; i < it.of->workers; i++)
        for (int64_t begun_ms = schedule_now_ms(); !is_ready(&it.players[i]); schedule_sleep_us(50000))
            if (schedule_now_ms() > begun_ms + READY_MS)
                fail("worker %d is not ready after %d s", i, READY_MS / 1000);
}

/* --------------------------------------------------------------------------------------- queues */

static int has_suffix(const char *name, const char *suffix)
{
    size_t size = strlen(name), end = strlen(suffix);
    return size >= end && strcmp(name + size - end, suffix) == 0;
}

/* Calls `visit` for each queue. Returns how many messages are in queues that have to drain. */
static int64_t visit_queues(void (*visit)(const char *name))
{
    int64_t pending = 0;
    network_control(it.list, sizeof it.list, "list queues");
    char *rest = it.list, *line;
    while ((line = strsep(&rest, "\n"))) {
        char name[256], type[32];
        long long ready, unacked, consumers, held;
        if (!*line)
            continue;
        if (sscanf(line, "%255s %31s %lld %lld %lld %lld", name, type, &ready, &unacked, &consumers, &held) != 6)
            fail("the model lists a queue as %s", line);
        if (!has_suffix(name, ".parked") && !has_suffix(name, ".unroutable"))
            pending += ready + unacked + held;
        if (visit)
            visit(name);
    }
    return pending;
}

/* --------------------------------------------------------------------------------------- faults */

static void network_try_with(const char *command, const char *name)
{
    char line[300];
    snprintf(line, sizeof line, "%s / %s", command, name);
    network_try(line);
}

static void delete_wait_queue(const char *name)
{
    if (strstr(name, ".wait"))
        network_try_with("delete queue", name);
}

static const char *queue_of(const fault *self)
{
    return queue_names[self->which % (unsigned)queue_count()];
}

/* Returns 1 if a message can be returned, and a worker learns late or never that its delivery is
 * over. */
static int is_splitting(void)
{
    for (size_t i = 0; i < it.of->fault_count; i++)
        if (it.of->faults[i].kind == FAULT_SILENCE || it.of->faults[i].kind == FAULT_SLOW)
            return 1;
    return it.of->consumer_timeout_ms != 0;
}

static void begin_fault(const fault *self)
{
    int64_t end_us = schedule_now_us() + self->for_ms * 1000;
    char name[64];
    trace("fault %d begins", (int)self->kind);
    switch (self->kind) {
    case FAULT_STOP:
    case FAULT_KILL:
        network_control(NULL, 0, self->kind == FAULT_STOP ? "stop" : "kill");
        break;
    case FAULT_CUT:
        network_cut_after(self->which, self->way & 1 ? NETWORK_DOWN : NETWORK_UP, self->amount);
        break;
    case FAULT_SILENCE:
        if (self->way != NETWORK_DOWN)
            network_silence(self->which, NETWORK_UP, end_us);
        if (self->way != NETWORK_UP)
            network_silence(self->which, NETWORK_DOWN, end_us);
        break;
    case FAULT_CLOSE:
        network_control(NULL, 0, "close all");
        break;
    case FAULT_RESET:
        network_control(NULL, 0, "cut all");
        break;
    case FAULT_ALARM:
        network_control(NULL, 0, "alarm on");
        break;
    case FAULT_DELETE_QUEUE:
        witness_may_drop();
        network_try_with("delete queue", queue_of(self));
        break;
    case FAULT_DELETE_PARKED:
        witness_may_drop();
        snprintf(name, sizeof name, "%s.parked", queue_of(self));
        network_try_with("delete queue", name);
        break;
    case FAULT_DELETE_WAIT:
        witness_may_drop();
        visit_queues(delete_wait_queue);
        break;
    case FAULT_FULL:
        network_control(NULL, 0,
                        "policy / full [.]wait queues 9 '{\"max-length\": 1, \"overflow\": \"reject-publish\"}'");
        break;
    case FAULT_DELETE_RETURN:
        if (it.of->type == BH_QUEUE_CLASSIC) /* dead-letters at most once: to no exchange it loses the message */
            witness_may_drop();
        network_try("delete exchange / backhop.return");
        break;
    case FAULT_SHORT_TTL:
        it.may_be_early = 1;
        network_control(NULL, 0, "policy / short ^backhop[.]wait queues 9 '{\"message-ttl\": 100}'");
        break;
    case FAULT_NO_RIGHTS:
        network_control(NULL, 0, "permissions / guest ^$ ^$ ^$");
        network_control(NULL, 0, "close all");
        break;
    case FAULT_JUMP:
        schedule_jump_ms(self->amount);
        break;
    case FAULT_UNREACHABLE:
        network_weather_now.is_unreachable = 1;
        network_control(NULL, 0, "cut all");
        break;
    case FAULT_UNKNOWN:
        network_weather_now.is_unknown = 1;
        network_control(NULL, 0, "cut all");
        break;
    case FAULT_SLOW:
        network_weather_now.latency_us = self->amount * 1000;
        network_weather_now.jitter_us = (unsigned)(self->amount * 500) % 65536;
        network_weather_now.fragment_bytes = 600;
        network_weather_now.most_queued = 8192;
        break;
    case FAULT_RESTART: {
        player *chosen = &it.players[self->which % (unsigned)it.of->workers];
        chosen->is_paused = 1;
        witness_may_give_back();
        stop(chosen, self->amount);
        break;
    }
    case FAULT_LEADER:
        witness_split(1);
        network_try_with("leader", queue_of(self));
        witness_split(is_splitting());
        break;
    case FAULT_UNCONFIRMED:
        network_control(NULL, 0, "confirms off");
        break;
    case FAULT_MINORITY:
        network_control(NULL, 0, "minority on");
        break;
    case FAULT_ORDER:
        network_control(NULL, 0, "%s", self->order);
        break;
    case FAULT_REPLAY:
        it.has_replays = 1;
        bh_worker_replay(it.players[self->which % (unsigned)it.of->workers].worker, self->amount ? self->amount : 1000);
        break;
    case FAULT_LAST:
        break;
    }
}

static void end_fault(const fault *self)
{
    trace("fault %d ends", (int)self->kind);
    switch (self->kind) {
    case FAULT_STOP:
    case FAULT_KILL:
        network_try("start");
        break;
    case FAULT_SILENCE:
    case FAULT_UNREACHABLE:
    case FAULT_UNKNOWN:
        network_heal();
        break;
    case FAULT_ALARM:
        network_control(NULL, 0, "alarm off");
        break;
    case FAULT_SHORT_TTL:
        network_try("policy delete / short");
        break;
    case FAULT_FULL:
        network_try("policy delete / full");
        break;
    case FAULT_NO_RIGHTS:
        network_control(NULL, 0, "permissions / guest .* .* .*");
        break;
    case FAULT_SLOW:
        network_weather_now.latency_us = 100;
        network_weather_now.jitter_us = network_weather_now.fragment_bytes = 0;
        network_weather_now.most_queued = 0;
        break;
    case FAULT_UNCONFIRMED:
        network_control(NULL, 0, "confirms on");
        break;
    case FAULT_MINORITY:
        network_control(NULL, 0, "minority off");
        break;
    case FAULT_RESTART:
        it.players[self->which % (unsigned)it.of->workers].is_paused = 0;
        break;
    default:
        break;
    }
}

/* ------------------------------------------------------------------------------------------ end */

static void look_at_memory(void)
{
    size_t used = mallinfo2().uordblks, others = it.bytes_before + network_memory();
    size_t bytes = used > others ? used - others : 0; /* a sanitizer's allocator counts nothing here */
    if (bytes > it.out->most_bytes)
        it.out->most_bytes = bytes;
    if (bytes > MOST_MEMORY)
        fail("%zu bytes of memory", bytes);
}

static int64_t count_in_hand(void)
{
    int64_t count = 0;
    for (size_t i = 0; i < witness_count(); i++)
        count += witness_at(i)->in_hand;
    for (int i = 0; i < it.of->workers; i++)
        count += bh_worker_copies(it.players[i].worker);
    return count;
}

/* Returns how many messages are nowhere in the broker, and have not ended. A worker can still hold
 * them. */
static int64_t count_held(void)
{
    int64_t count = 0;
    for (size_t i = 0; i < witness_count(); i++) {
        const account *each = witness_at(i);
        count += each->is_published && each->lives == 0 && each->oks == 0;
    }
    return count;
}

static void await_drained(void)
{
    int64_t limit_ms = schedule_now_ms() + DRAIN_MS;
    for (int64_t attempt = 1; attempt < it.of->max_attempts && !it.is_calm; attempt++)
        limit_ms += policy_delay_ms(attempt);
    network_heal();
    int64_t least_ms = schedule_now_ms() + HOLD_MS;
    for (int looks = 0; visit_queues(NULL) + count_in_hand() + (schedule_now_ms() < least_ms ? count_held() : 0) > 0;
         looks++) {
        if (looks % MEMORY_LOOKS == 0)
            look_at_memory();
        if (schedule_now_ms() > limit_ms) {
            network_control(it.list, sizeof it.list, "list queues");
            fail("messages still wait an hour after the last fault:\n%s", it.list);
        }
        schedule_sleep_us(LOOK_MS * 1000);
    }
    it.out->end_ms = schedule_now_ms();
}

static void empty_queue(const char *name)
{
    client_message got;
    while (client_get(it.client, name, &got)) {
        account *message = witness_find(got.body);
        if (!message)
            fail("a strange message is in %s", name);
        check_properties(message, got.properties);
        if (has_suffix(name, ".parked"))
            message->parked++;
        else if (has_suffix(name, ".unroutable"))
            message->unroutable++;
        else
            message->waiting++;
        trace("m%u is in %s", message->index, name);
    }
}

/* Returns 1 if something happened that can double a message. */
static int has_faults(void)
{
    for (size_t i = 0; i < it.of->fault_count; i++)
        if (it.of->faults[i].kind != FAULT_REPLAY && it.of->faults[i].kind != FAULT_JUMP)
            return 1;
    return it.of->consumer_timeout_ms || it.of->model_choices;
}

/* A breaker whose probes succeed closes. */
static void check_breaker(void)
{
    bh_breaker_view view;
    if (!it.breaker || it.calm_successes <= it.of->breaker->probe_successes)
        return;
    bh_breaker_read(it.breaker, bh_str(""), schedule_now_ms(), &view);
    if (view.state != BH_BREAKER_CLOSED)
        fail("the breaker is not closed after %d successes: %s", it.calm_successes, view.reason);
}

static void check_ends(void)
{
    for (size_t i = 0; i < witness_count(); i++) {
        const account *each = witness_at(i);
        int ends = each->oks + each->parked + each->waiting + each->unroutable, doubles = witness_doubles(each);
        it.out->parked += each->parked;
        it.out->unroutable += each->unroutable;
        if (ends == 0 && each->is_published && !each->may_be_lost)
            fail("message %u is lost: %d calls, %d failures, %d copies", each->index, each->calls, each->failures,
                 each->copies);
        if (ends > 1 + doubles)
            fail("message %u ended %d times (%d handled, %d parked, %d waiting), and may have been doubled %d times",
                 each->index, ends, each->oks, each->parked, each->waiting, doubles);
        if (each->parked && !each->permanents && !doubles && !it.of->max_age_ms && !it.of->max_crashes &&
            !each->may_be_lost && each->failures + each->failures_before < it.of->max_attempts)
            fail("message %u is parked after %d of %lld attempts", each->index, each->failures + each->failures_before,
                 (long long)it.of->max_attempts);
        if (doubles && !has_faults())
            fail("message %u is doubled without a fault", each->index);
    }
}

/* ----------------------------------------------------------------------------------------- play */

static int by_time(const void *a, const void *b)
{
    const act *one = a, *other = b;
    if (one->at_ms != other->at_ms)
        return one->at_ms < other->at_ms ? -1 : 1;
    return one->fault == other->fault ? one->is_end - other->is_end : one->fault < other->fault ? -1 : 1;
}

static void sleep_until_ms(int64_t ms)
{
    if (ms > schedule_now_ms())
        schedule_sleep_us((ms - schedule_now_ms()) * 1000);
}

static void *publish_all(void *data)
{
    int64_t begun_ms = schedule_now_ms();
    (void)data;
    for (unsigned i = 0; i < it.of->messages; i++) {
        sleep_until_ms(begun_ms + (int64_t)i * it.of->publish_ms);
        publish(i);
    }
    return NULL;
}

static void act_all(void)
{
    static act acts[MOST_ACTS];
    size_t count = 0;
    for (size_t i = 0; i < it.of->fault_count; i++) {
        const fault *each = &it.of->faults[i];
        acts[count++] = (act){.at_ms = each->at_ms, .fault = each};
        acts[count++] = (act){.at_ms = each->at_ms + each->for_ms, .fault = each, .is_end = 1};
    }
    qsort(acts, count, sizeof acts[0], by_time);
    int64_t begun_ms = schedule_now_ms();
    for (size_t i = 0; i < count; i++) {
        sleep_until_ms(begun_ms + acts[i].at_ms);
        look_at_memory();
        if (acts[i].is_end)
            end_fault(acts[i].fault);
        else
            begin_fault(acts[i].fault);
    }
}

static void set_up(void)
{
    const history *of = it.of;
    tape *choices = of->model_choices;
    ENSURE(model_new(&it.broker, &(model_settings){.version = of->version,
                                                   .epoch_ms = SCHEDULE_EPOCH_MS,
                                                   .tape = choices ? choices->data : NULL,
                                                   .tape_size = choices ? choices->size : 0,
                                                   .consumer_timeout_ms = of->consumer_timeout_ms,
                                                   .watch = witness_watch}) == BH_OK);
    network_begin(it.broker);
    witness_begin(counts_deliveries());
    if (of->consumer_timeout_ms) /* if one was held too long, a worker gives back the others too */
        witness_may_give_back();
    witness_split(is_splitting());
    it.client = client_new(it.broker);
    if (of->breaker) {
        bh_breaker_settings settings = *of->breaker;
        settings.by_key = of->has_keys;
        ENSURE(bh_breaker_new(of->has_keys ? &it.breakers : &it.breaker, &settings,
                              (bh_bytes){"12345678", BH_BREAKER_RANDOM_BYTES}) == BH_OK);
    }
    make_policy();
    for (int i = 0; i < queue_count() && !of->has_relay; i++)
        make_topology(i);
    if (of->has_relay)
        make_relay();
}

static void tear_down(void)
{
    client_free(it.client);
    network_end();
    witness_end();
    model_free(it.broker);
    bh_breaker_free(it.breaker);
    bh_breaker_free(it.breakers);
    bh__relay_free(it.relay);
    for (int i = 0; i < MOST_QUEUES; i++)
        bh_topology_free(it.topologies[i]);
    bh_policy_free(it.policy);
}

/* Checks that all is freed. Counts from the end of the first history on, because the system keeps
 * some caches. So a leak of some bytes a history shows after many. */
static void check_left(const char *name)
{
    static size_t first;
    size_t used = mallinfo2().uordblks;
    if (first && used > first + MOST_LEFT) {
        printf("%s, at 0 ms: %zu bytes are not freed since the first history\n", name, used - first);
        fflush(stdout); /* the history alone does not fail, so the runner cannot play it again for its trace */
        abort();
    }
    first = first ? first : used;
}

void history_play(const history *self, tape *choices, outcome *out)
{
    memset(&it, 0, sizeof it);
    *out = (outcome){.calls = 0};
    it.of = self;
    it.out = out;
    it.bytes_before = mallinfo2().uordblks;
    schedule_begin(self->name, choices);
    trace("RabbitMQ %s, strategy %d, type %d, kind %d, %lld ms, %lld attempts, %d workers of %d + 1 threads, prefetch "
          "%d, "
          "%u messages of %u bytes, breaker %d, consumer timeout %lld ms",
          self->version, (int)self->strategy, (int)self->type, (int)self->kind, (long long)self->initial_ms,
          (long long)self->max_attempts, self->workers, self->takers, self->prefetch, self->messages, self->body_bytes,
          self->breaker != NULL, (long long)self->consumer_timeout_ms);
    set_up();
    for (int i = 0; i < self->workers; i++)
        start_worker(&it.players[i]);
    await_ready();
    pthread_t publisher, rejecter;
    if (it.relay)
        ENSURE(bh__thread_start(&rejecter, STACK_BYTES, reject_all, NULL));
    ENSURE(bh__thread_start(&publisher, STACK_BYTES, publish_all, NULL));
    act_all();
    bh__thread_join(publisher);
    it.is_calm = self->ends_well;
    await_drained();
    it.is_over = 1;
    witness_may_give_back();
    if (it.relay)
        bh__thread_join(rejecter);
    for (int i = 0; i < self->workers; i++)
        stop_worker(&it.players[i]);
    visit_queues(empty_queue);
    check_breaker();
    check_ends();
    out->most_channels = witness_most_channels();
    tear_down();
    out->switches = schedule_switches();
    out->hash = schedule_end();
    check_left(self->name);
}

/* ---------------------------------------------------------------------------------------- tapes */

/* Draws what a call does. */
static call_script draw_call(void *data, const account *message, int64_t attempt)
{
    static const int64_t durations[] = {0, 0, 1, 3, 40, 900, 7000, 70000};
    tape *choices = data;
    (void)message, (void)attempt;
    call_script script = {.outcome = BH_OUTCOME_OK, .duration_ms = durations[tape_draw(choices, 8)]};
    unsigned drawn = tape_draw(choices, 16);
    if (drawn >= 6)
        script.outcome = BH_OUTCOME_FAILED;
    if (drawn == 12)
        script.retry_after_ms = (int64_t)tape_draw(choices, 60000);
    if (drawn == 13)
        script.outcome = BH_OUTCOME_PERMANENT;
    if (drawn == 14) {
        script.outcome = BH_OUTCOME_THROTTLED;
        script.whole_queue = tape_hits(choices, 2);
    }
    if (drawn == 15)
        script.outcome = BH_OUTCOME_DROPPED;
    script.is_own_fault = drawn == 11;
    return script;
}

static int may_defer(bh_strategy strategy)
{
    return strategy == BH_STRATEGY_LADDER || strategy == BH_STRATEGY_MESSAGE_TTL;
}

static void draw_set_up(history *self, tape *choices)
{
    static const char *const versions[] = {"4.3", "4.0", "3.10"};
    self->version = versions[tape_draw(choices, 3)];
    self->type = tape_hits(choices, 4) ? BH_QUEUE_CLASSIC : BH_QUEUE_QUORUM;
    unsigned strategy = tape_draw(choices, 8);
    self->strategy = strategy == 7   ? BH_STRATEGY_REJECT
                     : strategy == 6 ? BH_STRATEGY_MESSAGE_TTL
                     : strategy == 5 && strcmp(self->version, "4.3") == 0 && self->type == BH_QUEUE_QUORUM
                         ? BH_STRATEGY_NATIVE
                         : BH_STRATEGY_LADDER;
    self->kind =
        self->strategy == BH_STRATEGY_LADDER && tape_draw(choices, 3) < 2 ? BH_KIND_EXPONENTIAL : BH_KIND_FIXED;
    self->initial_ms = 100 + (int64_t)tape_draw(choices, 4000);
    self->factor = 2;
    self->max_ms = 300000;
    self->max_attempts = 1 + (int64_t)tape_draw(choices, 6);
    self->max_crashes = tape_hits(choices, 8) ? 1 : 0;
    static const bh_jitter jitters[] = {BH_JITTER_NONE,  BH_JITTER_NONE, BH_JITTER_NONE,
                                        BH_JITTER_EQUAL, BH_JITTER_FULL, BH_JITTER_SPREAD};
    unsigned jitter = tape_draw(choices, 6);
    if (self->strategy == BH_STRATEGY_LADDER && self->kind == BH_KIND_EXPONENTIAL)
        self->jitter = jitters[jitter];
    self->max_age_ms = tape_hits(choices, 8) && self->strategy == BH_STRATEGY_LADDER ? 20000 : 0;
    self->queues = 1 + tape_hits(choices, 4);
    self->workers = self->queues * (1 + tape_hits(choices, 4));
    self->has_keys = tape_hits(choices, 2) && may_defer(self->strategy);
    self->has_relay = tape_hits(choices, 12);
    if (self->has_relay) {
        self->strategy = BH_STRATEGY_LADDER;
        self->type = BH_QUEUE_QUORUM;
        self->kind = BH_KIND_EXPONENTIAL;
        self->queues = 1;
    }
    self->takers = (int)tape_draw(choices, 3);
    static const int prefetches[] = {10, 1, 2, 5, 100, 1000};
    self->prefetch = prefetches[tape_draw(choices, 6)];
    self->heartbeat_s = tape_hits(choices, 4) ? 60 : 5;
    self->confirm_ms = tape_hits(choices, 2) ? 30000 : 5000;
    self->handler_timeout_ms = tape_hits(choices, 8) ? 5000 : 0;
    self->consumer_timeout_ms = tape_hits(choices, 8) ? 60000 : 0;
    self->messages = 1 + tape_draw(choices, 12);
    self->publish_ms = tape_draw(choices, 3) * 200;
    static const unsigned sizes[] = {100, 20, 5000};
    self->body_bytes = tape_hits(choices, 32) ? 140000 : sizes[tape_draw(choices, 3)]; /* a large one costs time */
    self->has_no_ids = tape_hits(choices, 4);
}

static void draw_faults(history *self, tape *choices)
{
    self->fault_count = tape_draw(choices, 5);
    for (size_t i = 0; i < self->fault_count; i++) {
        static const int64_t spans[] = {100, 1000, 3000, 12000, 40000, 90000};
        fault *each = &self->faults[i];
        do
            each->kind = (fault_kind)tape_draw(choices, FAULT_LAST);
        while (each->kind == FAULT_ORDER);
        each->at_ms = (int64_t)tape_draw(choices, 256) * (tape_hits(choices, 2) ? 8 : 40);
        each->for_ms = spans[tape_draw(choices, 6)];
        each->which = tape_draw(choices, 4);
        each->way = tape_draw(choices, 3);
        each->amount = each->kind == FAULT_CUT       ? (int64_t)tape_draw(choices, 2000)
                       : each->kind == FAULT_JUMP    ? (int64_t)tape_draw(choices, 7200) * 1000 - 3600000
                       : each->kind == FAULT_SLOW    ? 1 + (int64_t)tape_draw(choices, 200)
                       : each->kind == FAULT_RESTART ? (int64_t)tape_draw(choices, 3000)
                                                     : 0;
    }
}

void history_play_tape(const unsigned char *data, size_t size, const char *name, outcome *out)
{
    /* Three tapes: what happens, which thread and how fast, what the model chooses. A byte more in
     * one moves no other. */
    tape what = {data, size / 2}, how = {data + size / 2, size - size / 2 - size / 8},
         model_choices = {data + size - size / 8, size / 8};
    history drawn = {.name = name, .decide = draw_call, .data = &what, .ends_well = 1};
    bh_breaker_settings breaker;
    bh_breaker_defaults(&breaker);
    breaker.row_failures = 4;
    draw_set_up(&drawn, &what);
    if (tape_hits(&what, 4) && !drawn.has_relay)
        drawn.breaker = &breaker;
    draw_faults(&drawn, &what);
    if (tape_hits(&what, 2))
        drawn.model_choices = &model_choices;
    history_play(&drawn, &how, out);
}
