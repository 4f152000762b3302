/*
 * Purges pages of a newspaper from its CDN. Each event of an article becomes a call of the CDN's
 * purge API, and the API answers "507 queue is full" during its peak. RabbitMQ keeps a refused
 * purge for a while and delivers it again, later each time. It ends when the API takes the purge
 * or the attempts are used up.
 *
 *     AMQP_URL=amqp://guest:guest@localhost/ cdn-purge
 *
 * Two consumers get the same events, each on a queue and with a purge API of its own. The first has
 * only Backhop's back-off, the second has a circuit breaker too. The third queue, search-index,
 * must not notice the retries. Every name in the broker begins with "backhop-demo" and is deleted
 * at the end.
 *
 * The file has three parts: consumers, which use Backhop; the rest of the newspaper, which uses
 * only librabbitmq; the picture of the run.
 */
#define _DEFAULT_SOURCE

#include "worker/librabbitmq.h" /* finds the headers of each version of librabbitmq */
#include <backhop/adapter.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEMO "backhop-demo"
#define ARTICLES DEMO ".articles"
#define SEARCH_INDEX DEMO ".search-index"

enum {
    EVENTS = 28,
    PUBLISH_EVERY_MS = 300,
    PEAK_BEGINS_MS = 3000,
    PEAK_ENDS_MS = 14000,
    CONNECT_MS = 20000,
    SAMPLE_MS = 200, /* between two looks into the wait queues */
    QUIET_MS = 1500, /* the run ends if all events are settled and nothing comes for this time */
    MOST_MS = 80000, /* or after this time: events that are not settled then are lost */
    ALARM_S = 110,   /* SIGALRM ends the program if a call hangs */
    MOST_ATTEMPTS = 16,
    MOST_WAITS = 32,
    MOST_SAMPLES = MOST_MS / SAMPLE_MS + 8,
    COLUMNS = 76 /* of the timeline */
};

/* A stand-in for a CDN's purge API. It works off a queue of four purges, slowly in its peak. */
struct purge_api {
    double queued; /* purges in the queue at at_ms */
    int64_t at_ms;
    int calls;
    int refused;
};

struct purge_answer {
    int code;
    const char *text;
    int64_t retry_after_ms; /* 0: the answer has no Retry-After */
};

struct event {
    char id[8];
    char path[24];
    char routing_key[16];
    int published;
};

struct attempt {
    int64_t at_ms;
    int64_t delay_ms; /* until the retry */
    bh_action action;
};

/* The attempts of one consumer at one event. */
struct attempts {
    int count;
    struct attempt at[MOST_ATTEMPTS];
    int purged; /* above 1 is a duplicate, as with parked */
    int parked; /* how often it is in the parked queue */
};

struct consumer {
    const char *queue;
    bh_policy *policy;
    bh_topology *topology;
    bh_breaker *breaker; /* NULL: it has none */
    bh_worker *worker;
    bh_delivery *delivery; /* of the message in hand, as is the history */
    bh_history *history;
    struct purge_api api;
    struct attempts of[EVENTS];
    int changed; /* attempts at which the message was not as published */
};

struct wait_queue {
    char name[48];
    int64_t ms;
    int depth[MOST_SAMPLES];
    int peak;
};

static struct event events[EVENTS];
static int64_t start_ms;
static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static int64_t elapsed_ms(void)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 - start_ms;
}

/* Prints an error. Returns 0, which means "failed". */
static int fail(const char *what, bh_bytes why)
{
    fprintf(stderr, "cdn-purge: %s: %.*s\n", what, (int)why.size, why.data);
    return 0;
}

/* Returns the index of the event with this id, or -1. */
static int find_event(bh_bytes id)
{
    for (int i = 0; i < EVENTS; i++)
        if (strlen(events[i].id) == id.size && memcmp(events[i].id, id.data, id.size) == 0)
            return i;
    return -1;
}

static struct purge_answer purge(struct purge_api *api, const char *path)
{
    int64_t now_ms = elapsed_ms();
    double per_s = now_ms >= PEAK_BEGINS_MS && now_ms < PEAK_ENDS_MS ? 0.45 : 4.5;
    double left = api->queued - per_s * (double)(now_ms - api->at_ms) / 1000;
    double purges = strchr(path, '*') ? 1000 : 1; /* many pages, more than the queue ever holds */

    api->calls++;
    api->queued = left > 0 ? left : 0;
    api->at_ms = now_ms;
    if (strncmp(path, "/old/", 5) == 0)
        return (struct purge_answer){404, "404 no such site", 0};
    if (api->queued + purges > 4) {
        int has_hint = ++api->refused % 9 == 0;
        return (struct purge_answer){507, "507 queue is full", has_hint ? 6000 : 0};
    }
    api->queued += purges;
    return (struct purge_answer){202, "202 accepted", 0};
}

/* Sets how often to retry, after which delays. They are short, so that the demo is short. */
static int choose_policy(bh_policy *policy)
{
    bh_policy_settings settings;

    bh_policy_defaults(&settings);
    settings.initial_ms = 800;
    settings.factor = 1.8;
    settings.max_ms = 6000;
    settings.ratio = 0.25;
    settings.max_attempts = 8;
    settings.max_retry_after_ms = 8000;
    return bh_policy_set(policy, &settings) == BH_OK;
}

/* Messages wait in the ladder, the default. The work queue is declared too, as a quorum queue. */
static int choose_topology(bh_topology *topology, const char *queue, bh_policy *policy)
{
    bh_topology_settings settings;
    bh_topology_defaults(&settings);
    settings.name_space = bh_str(queue);
    settings.declares_work_queue = 1;
    return bh_topology_set(topology, &settings) == BH_OK && bh_topology_build(topology, policy) == BH_OK;
}

/* Opens after three failures in a row. Then one event at a time probes the API, and others wait. */
static int choose_breaker(bh_breaker **out)
{
    bh_breaker_settings settings;
    bh_policy_settings delays;
    bh_policy *pauses = NULL;

    bh_breaker_defaults(&settings);
    bh_policy_defaults(&delays);
    delays.initial_ms = 1000;
    delays.max_ms = 2000;
    if (bh_policy_new(&pauses) != BH_OK || bh_policy_set(pauses, &delays) != BH_OK)
        return 0;
    settings.name = bh_str("purge API");
    settings.row_failures = 3;
    settings.pauses = pauses;
    /* A program needs random bytes here. */
    bh_status status = bh_breaker_new(out, &settings, bh_str("cdnpurge"));
    bh_policy_free(pauses);
    return status == BH_OK;
}

static int consumer_open(struct consumer *self, const char *queue, int has_breaker)
{
    self->queue = queue;
    if (bh_policy_new(&self->policy) != BH_OK || bh_topology_new(&self->topology, bh_str(queue)) != BH_OK ||
        bh_delivery_new(&self->delivery) != BH_OK || bh_history_new(&self->history) != BH_OK ||
        (has_breaker && !choose_breaker(&self->breaker)))
        return fail(queue, bh_str("cannot start"));
    if (!choose_policy(self->policy))
        return fail("the policy", bh_policy_error(self->policy));
    if (!choose_topology(self->topology, queue, self->policy))
        return fail("the topology", bh_topology_error(self->topology));
    bh_status status = bh_worker_new(&self->worker, self->policy, self->topology);
    if (status != BH_OK)
        return fail("the worker", bh_status_text(status));
    bh_worker_settings settings;
    bh_worker_defaults(&settings);
    settings.breaker = self->breaker;
    settings.emits[BH_EVENT_RETRIED] = 1;
    return bh_worker_set(self->worker, &settings) == BH_OK || fail("the worker", bh_worker_error(self->worker));
}

static void consumer_close(struct consumer *self)
{
    bh_worker_free(self->worker);
    bh_breaker_free(self->breaker);
    bh_delivery_free(self->delivery);
    bh_history_free(self->history);
    bh_topology_free(self->topology);
    bh_policy_free(self->policy);
}

/* Notes the end of an event's last attempt. */
static void note_action(struct attempts *of, bh_action action, int64_t delay_ms)
{
    struct attempt *last = &of->at[of->count > 0 ? of->count - 1 : 0];
    last->action = action;
    last->delay_ms = delay_ms;
    of->purged += action == BH_ACTION_ACK;
}

static void take_events(struct consumer *self)
{
    bh_event *event;
    for (; bh_worker_take_event(self->worker, &event) == BH_OK; bh_event_free(event)) {
        bh_event_kind what = bh_event_what(event);
        int i = find_event(bh_event_string(event, BH_FIELD_ID));
        if (what == BH_EVENT_RETRIED && i >= 0)
            note_action(&self->of[i], BH_ACTION_RETRY, bh_event_int(event, BH_FIELD_DELAY));
        else if (what == BH_EVENT_PARKED && i >= 0)
            note_action(&self->of[i], BH_ACTION_PARK, 0);
        else if (bh_event_level(event) >= BH_LEVEL_WARNING && what != BH_EVENT_BREAKER_OPENED)
            fail(self->queue, bh_event_line(event));
    }
}

/* Returns 1 when the queues are declared and the worker consumes. */
static int consumer_start(struct consumer *self, const char *url)
{
    bh_health health;
    if (bh_worker_add_uri(self->worker, bh_str(url)) != BH_OK || bh_worker_start(self->worker) != BH_OK)
        return fail("the worker", bh_worker_error(self->worker));
    for (int64_t end_ms = elapsed_ms() + CONNECT_MS; !interrupted && elapsed_ms() < end_ms; poll(NULL, 0, 20)) {
        take_events(self);
        bh_worker_state(self->worker, &health);
        if (health.state == BH_HEALTH_READY)
            return 1;
    }
    return interrupted ? 0 : fail(self->queue, bh_str("the worker is not ready after 20 s"));
}

/* Compares a delivery with the published event. Backhop only adds headers. */
static int is_as_published(const struct consumer *self, const bh_message *taken, const struct event *event)
{
    bh_delivery_view seen;
    bh_past past;
    bh_delivery_read(self->delivery, &seen);
    bh_history_past(self->history, &past);
    return strcmp(bh_message_body(taken).data, event->path) == 0 &&
           strcmp(seen.routing_key.data, event->routing_key) == 0 && strcmp(past.exchange.data, ARTICLES) == 0 &&
           strcmp(bh_delivery_property(self->delivery, BH_PROPERTY_CONTENT_TYPE).data, "text/plain") == 0;
}

/* Notes that an attempt begins. Returns the attempts at its event, or NULL if it is none. */
static struct attempts *note_attempt(struct consumer *self, bh_message *taken)
{
    int i = -1;
    if (bh_worker_read(self->worker, taken, self->delivery, self->history) == BH_OK)
        i = find_event(bh_delivery_property(self->delivery, BH_PROPERTY_MESSAGE_ID));
    if (i < 0)
        return NULL;
    struct attempts *of = &self->of[i];
    of->count += of->count < MOST_ATTEMPTS;
    of->at[of->count - 1] = (struct attempt){.at_ms = elapsed_ms()};
    self->changed += !is_as_published(self, taken, &events[i]);
    return of;
}

/* The handler: calls the API, and gives Backhop the outcome. */
static bh_status handle(struct consumer *self, bh_message *taken)
{
    struct attempts *of = note_attempt(self, taken);
    if (!of) /* a message that the demo did not publish */
        return bh_worker_settle(self->worker, taken, &(bh_settlement){.outcome = BH_OUTCOME_DROPPED});

    const char *path = bh_message_body(taken).data;
    struct purge_answer answer = purge(&self->api, path);
    bh_settlement settlement = {.outcome = BH_OUTCOME_OK, .error = bh_str(answer.text)};
    if (answer.code == 507) {
        settlement.outcome = BH_OUTCOME_FAILED; /* later, perhaps */
        settlement.retry_after_ms = answer.retry_after_ms;
        settlement.is_own_fault = strchr(path, '*') != NULL; /* too many pages: not the API's fault */
    } else if (answer.code != 202) {
        settlement.outcome = BH_OUTCOME_PERMANENT; /* never */
    } else {
        note_action(of, BH_ACTION_ACK, 0);
    }
    return bh_worker_settle(self->worker, taken, &settlement);
}

/* Handles the messages that are there. A program that only consumes calls bh_worker_run instead. */
static int consume(struct consumer *self)
{
    bh_message *taken;
    bh_status status = BH_OK;
    while (status == BH_OK && (status = bh_worker_take(self->worker, &taken, 0)) == BH_OK) {
        status = handle(self, taken);
        bh_message_free(taken);
    }
    take_events(self);
    return status == BH_ERR_TIMEOUT || fail(self->queue, bh_status_text(status));
}

/* Returns 1 if the last attempt at each event purged or parked it. */
static int is_done(const struct consumer *self)
{
    for (int i = 0; i < EVENTS; i++) {
        const struct attempts *of = &self->of[i];
        bh_action last = of->count > 0 ? of->at[of->count - 1].action : BH_ACTION_NONE;
        if (last != BH_ACTION_ACK && last != BH_ACTION_PARK)
            return 0;
    }
    return 1;
}

/* The other programs of the newspaper: one connection, with one channel in confirm mode. */

struct site {
    amqp_connection_state_t broker;
    struct wait_queue wait[MOST_WAITS];
    int waits;
    int samples;
    int indexed;    /* messages in search-index */
    int duplicates; /* how many of them are not the first copy of an event, or have Backhop's headers */
    int seen[EVENTS];
};

static const amqp_channel_t channel = 1;

/* Returns 1 if a call succeeded. Prints the reason if not. */
static int check(amqp_rpc_reply_t reply, const char *what)
{
    bh_bytes why = bh_str("the broker closed the connection");

    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return 1;
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
        why = bh_str(amqp_error_string2(reply.library_error));
    else if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD)
        why = bh__from_amqp(((const amqp_channel_close_t *)reply.reply.decoded)->reply_text);
    else if (reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD)
        why = bh__from_amqp(((const amqp_connection_close_t *)reply.reply.decoded)->reply_text);
    return fail(what, why);
}

static int did(const struct site *self, const char *what)
{
    return check(amqp_get_rpc_reply(self->broker), what);
}

static int site_connect(struct site *self, const char *url)
{
    struct timeval patience = {10, 0};
    struct amqp_connection_info to;
    char copy[1024];
    const char *own_cas = getenv("SSL_CERT_FILE"), *cas = own_cas ? own_cas : "/etc/ssl/certs/ca-certificates.crt";

    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(url, "?"), url);
    self->broker = amqp_new_connection();
    if (!self->broker || amqp_parse_url(copy, &to) != AMQP_STATUS_OK)
        return fail("AMQP_URL", bh_str("must be amqp[s]://user:password@host:port/vhost"));
    amqp_socket_t *socket = to.ssl ? amqp_ssl_socket_new(self->broker) : amqp_tcp_socket_new(self->broker);
    if (!socket || (to.ssl && amqp_ssl_socket_set_cacert(socket, cas) != AMQP_STATUS_OK) ||
        amqp_socket_open_noblock(socket, to.host, to.port, &patience) != AMQP_STATUS_OK)
        return fail("cannot connect to AMQP_URL", bh_str(to.host));
    amqp_set_rpc_timeout(self->broker, &patience);
    if (!check(amqp_login(self->broker, *to.vhost ? to.vhost : "/", 0, AMQP_DEFAULT_FRAME_SIZE, 0,
                          AMQP_SASL_METHOD_PLAIN, to.user, to.password),
               "cannot log in"))
        return 0;
    amqp_channel_open(self->broker, channel);
    amqp_confirm_select(self->broker, channel);
    if (!did(self, "cannot open a channel"))
        return 0;
    /* RabbitMQ refuses an exclusive queue to other connections, so one demo runs at a time. */
    amqp_queue_declare(self->broker, channel, amqp_cstring_bytes(DEMO ".running"), 0, 0, 1, 1, amqp_empty_table);
    return did(self, "another demo runs on this broker");
}

/* Deletes what the demo declares. RabbitMQ answers "ok" if a queue or an exchange is missing. */
static int site_clear(struct site *self, const bh_topology *topology)
{
    bh_declaration each;

    amqp_exchange_delete(self->broker, channel, amqp_cstring_bytes(ARTICLES), 0);
    amqp_queue_delete(self->broker, channel, amqp_cstring_bytes(SEARCH_INDEX), 0, 0);
    bh_topology_view made;
    bh_topology_read(topology, &made);
    for (size_t i = made.declaration_count; i-- > 0;) {
        bh_topology_declaration(topology, i, &each);
        if (each.kind == BH_DECLARE_QUEUE)
            amqp_queue_delete(self->broker, channel, bh__to_amqp(each.name), 0, 0);
        else if (each.kind == BH_DECLARE_EXCHANGE)
            amqp_exchange_delete(self->broker, channel, bh__to_amqp(each.name), 0);
        if (!did(self, "cannot delete what the demo declared"))
            return 0;
    }
    return 1;
}

/* Declares the exchange of the events, and binds the three queues to it. */
static int site_declare(struct site *self, const struct consumer *consumers)
{
    const char *queues[] = {consumers[0].queue, consumers[1].queue, SEARCH_INDEX};
    amqp_bytes_t exchange = amqp_cstring_bytes(ARTICLES);

    amqp_exchange_declare(self->broker, channel, exchange, amqp_cstring_bytes("topic"), 0, 1, 0, 0, amqp_empty_table);
    amqp_queue_declare(self->broker, channel, amqp_cstring_bytes(SEARCH_INDEX), 0, 1, 0, 0, amqp_empty_table);
    for (int i = 0; i < 3 && did(self, "cannot declare " ARTICLES); i++)
        amqp_queue_bind(self->broker, channel, amqp_cstring_bytes(queues[i]), exchange, amqp_cstring_bytes("article.*"),
                        amqp_empty_table);
    return did(self, "cannot bind the queues to " ARTICLES);
}

/* Publishes an event and waits for its confirm. */
static int site_publish(struct site *self, struct event *event)
{
    struct timeval patience = {10, 0};
    amqp_frame_t frame;
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG,
        .message_id = amqp_cstring_bytes(event->id),
        .content_type = amqp_cstring_bytes("text/plain"),
        .delivery_mode = AMQP_DELIVERY_PERSISTENT,
    };

    int status =
        amqp_basic_publish(self->broker, channel, amqp_cstring_bytes(ARTICLES), amqp_cstring_bytes(event->routing_key),
                           0, 0, &properties, amqp_cstring_bytes(event->path));
    if (status == AMQP_STATUS_OK)
        status = amqp_simple_wait_frame_noblock(self->broker, &frame, &patience);
    event->published = status == AMQP_STATUS_OK && frame.frame_type == AMQP_FRAME_METHOD &&
                       frame.payload.method.id == AMQP_BASIC_ACK_METHOD;
    return event->published || fail("cannot publish", bh_str("the broker did not confirm an event"));
}

/* Takes the next message of a queue. Returns 1, 0 (the queue is empty) or -1 (failed). */
static int site_get(struct site *self, const char *queue, amqp_message_t *out)
{
    amqp_rpc_reply_t reply = amqp_basic_get(self->broker, channel, amqp_cstring_bytes(queue), 1);
    if (reply.reply_type == AMQP_RESPONSE_NORMAL && reply.reply.id == AMQP_BASIC_GET_EMPTY_METHOD)
        return 0;
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        reply = amqp_read_message(self->broker, channel, out, 0);
    return check(reply, "cannot read a queue") ? 1 : -1;
}

/* Returns the first header whose name begins with `name`, or NULL. */
static const amqp_field_value_t *header(const amqp_message_t *message, const char *name)
{
    const amqp_table_t *headers = &message->properties.headers;
    for (int i = 0; message->properties._flags & AMQP_BASIC_HEADERS_FLAG && i < headers->num_entries; i++)
        if (headers->entries[i].key.len >= strlen(name) &&
            memcmp(headers->entries[i].key.bytes, name, strlen(name)) == 0)
            return &headers->entries[i].value;
    return NULL;
}

/* Reads search-index: each event may be there once, and without Backhop's headers. */
static int site_read_index(struct site *self)
{
    amqp_message_t message;
    int got;

    for (; (got = site_get(self, SEARCH_INDEX, &message)) == 1; amqp_destroy_message(&message)) {
        int i = find_event(bh__from_amqp(message.properties.message_id));
        self->indexed++;
        self->duplicates += i < 0 || self->seen[i]++ > 0 || header(&message, "backhop-");
    }
    return got == 0;
}

/* Empties a parked queue, as an operator does, and prints why each message is there. */
static int site_read_parked(struct site *self, struct consumer *consumer)
{
    bh_topology_view made;
    bh_topology_read(consumer->topology, &made);
    amqp_message_t message;
    int got;

    printf("\n parked in %s\n", made.parked_queue.data);
    for (; (got = site_get(self, made.parked_queue.data, &message)) == 1; amqp_destroy_message(&message)) {
        int i = find_event(bh__from_amqp(message.properties.message_id));
        const amqp_field_value_t *reason = header(&message, "backhop-parked"),
                                 *error = header(&message, "backhop-error"),
                                 *attempts = header(&message, "backhop-attempts");
        if (i < 0 || !reason || !error || !attempts)
            continue;
        consumer->of[i].parked++;
        printf(" %s %s %-9s  %.*s after attempt %d: %.*s\n", events[i].id, events[i].routing_key, events[i].path,
               (int)reason->value.bytes.len, (const char *)reason->value.bytes.bytes, (int)attempts->value.i64,
               (int)error->value.bytes.len, (const char *)error->value.bytes.bytes);
    }
    return got == 0;
}

/* Reads the names of a consumer's wait queues from its topology. */
static void site_find_waits(struct site *self, const struct consumer *consumer)
{
    bh_declaration each;

    for (size_t d = 0; bh_topology_declaration(consumer->topology, d, &each) == BH_OK && self->waits < MOST_WAITS;
         d++) {
        if (each.kind != BH_DECLARE_QUEUE || each.rung_ms == 0)
            continue;
        struct wait_queue *wait = &self->wait[self->waits++];
        snprintf(wait->name, sizeof wait->name, "%s", each.name.data);
        wait->ms = each.rung_ms;
    }
}

/* Returns 1 if a consumer has retried an event with this delay. */
static int is_used(const struct consumer *consumer, int64_t delay_ms)
{
    for (int i = 0; i < EVENTS; i++)
        for (int a = 0; a < consumer->of[i].count; a++)
            if (consumer->of[i].at[a].delay_ms == delay_ms)
                return 1;
    return 0;
}

/* Counts the messages in the wait queues that are in use. Others may not exist yet. */
static int site_sample(struct site *self, const struct consumer *consumer)
{
    for (int w = 0; w < self->waits; w++) {
        struct wait_queue *wait = &self->wait[w];
        if (!is_used(consumer, wait->ms))
            continue;
        amqp_queue_declare_ok_t *found =
            amqp_queue_declare(self->broker, channel, amqp_cstring_bytes(wait->name), 1, 0, 0, 0, amqp_empty_table);
        if (!found)
            return did(self, "cannot count the messages of a wait queue");
        int depth = (int)found->message_count;
        wait->depth[self->samples] = depth;
        wait->peak = depth > wait->peak ? depth : wait->peak;
    }
    self->samples++;
    return 1;
}

/* The picture of the run. */

static char letter(const struct attempt *attempt)
{
    return attempt->action == BH_ACTION_RETRY ? 'x' : attempt->action == BH_ACTION_PARK ? 'P' : 'v';
}

static void introduce(const struct consumer *self)
{
    bh_limits limits;
    bh_preview row;

    bh_policy_limits(self->policy, &limits);
    printf("\n A newspaper publishes %d events. The purge API of its CDN is full from %d s to %d s.\n", EVENTS,
           PEAK_BEGINS_MS / 1000, PEAK_ENDS_MS / 1000);
    printf(" Backhop %s retries after", bh_version());
    for (int64_t n = 1; n < limits.max_attempts; n++) {
        bh_policy_preview(self->policy, n, &row);
        printf(" %.1f", (double)row.mean_ms / 1000);
    }
    printf(" s, give or take a quarter,\n and parks an event after attempt %d.\n\n", (int)limits.max_attempts);
    printf(" x refused, with the delay of the retry   v purged   P parked\n\n");
    fflush(stdout);
}

/* Prints the attempts of one second. */
static void put_second(const struct consumer *self, int64_t second)
{
    int used = 0;

    for (int i = 0; i < EVENTS; i++)
        for (int a = 0; a < self->of[i].count; a++) {
            const struct attempt *attempt = &self->of[i].at[a];
            if (attempt->at_ms / 1000 != second)
                continue;
            if (used == 0 || used > COLUMNS)
                used = printf(used ? "\n      " : " %2d s ", (int)second);
            used += printf("  %c %s", letter(attempt), events[i].id);
            if (attempt->action == BH_ACTION_RETRY)
                used += printf(" %gs", (double)attempt->delay_ms / 1000);
        }
    if (used > 0)
        putchar('\n');
    fflush(stdout);
}

/* Prints a row of the timeline: a label, and one character for each stretch of time. */
static void put_row(const char *label, const char *cells)
{
    int count = COLUMNS;
    while (count > 0 && cells[count - 1] == ' ')
        count--;
    printf(" %-19s%.*s\n", label, count, cells);
}

/* Prints what became of each event, and how many messages were in each wait queue. */
static void put_timeline(const struct consumer *self, const struct site *site)
{
    int64_t column_ms = elapsed_ms() / COLUMNS + 1;
    char cells[COLUMNS + 16], label[48];

    memset(cells, ' ', sizeof cells);
    for (int s = 0; s * 1000 < COLUMNS * column_ms; s += 5)
        memcpy(cells + s * 1000 / column_ms, label, (size_t)snprintf(label, sizeof label, "%d s", s));
    printf("\n %-19s%.*s\n", "", COLUMNS, cells);
    memset(cells, ' ', sizeof cells);
    memset(cells + PEAK_BEGINS_MS / column_ms, '-', (size_t)((PEAK_ENDS_MS - PEAK_BEGINS_MS) / column_ms));
    memcpy(cells + (PEAK_BEGINS_MS + PEAK_ENDS_MS) / 2 / column_ms - 3, " peak ", 6);
    put_row("the purge API", cells);
    for (int i = 0; i < EVENTS; i++) {
        const struct attempts *of = &self->of[i];
        memset(cells, ' ', sizeof cells);
        for (int a = 0; a < of->count; a++) {
            int64_t from = of->at[a].at_ms / column_ms;
            int64_t until = a + 1 < of->count ? of->at[a + 1].at_ms / column_ms : from;
            memset(cells + from, '.', (size_t)(until - from + 1));
            cells[from] = letter(&of->at[a]);
        }
        snprintf(label, sizeof label, "%.7s %.15s", events[i].id, events[i].routing_key);
        put_row(label, cells);
    }
    printf("\n messages in each wait queue: the most, and over time\n");
    for (int w = 0; w < site->waits; w++) {
        const struct wait_queue *wait = &site->wait[w];
        memset(cells, ' ', sizeof cells);
        for (int s = 0; s < site->samples; s++) {
            char *cell = &cells[s * SAMPLE_MS / column_ms];
            if (wait->depth[s] > 0 && *cell < '0' + wait->depth[s])
                *cell = (char)('0' + (wait->depth[s] < 9 ? wait->depth[s] : 9));
        }
        snprintf(label, sizeof label, "%5g s  %3d", (double)wait->ms / 1000, wait->peak);
        if (wait->peak > 0)
            put_row(label, cells);
    }
}

/* Prints one row of two counts. Returns 1 if both are as they must be; -1 allows each number. */
static int put_counts(const char *name, int plain, int spared, int must_be, const char *what)
{
    printf(" %-14s %8d %14d   %s\n", name, plain, spared, what);
    return must_be < 0 || (plain == must_be && spared == must_be);
}

/* Prints the counts of the run. Returns 1 if no event is lost, doubled, changed or seen by
 * others. */
static int put_totals(const struct consumer *consumers, const struct site *site)
{
    int published = 0, purged[2] = {0}, parked[2] = {0}, lost[2] = {0}, twice[2] = {0};

    for (int i = 0; i < EVENTS; i++) {
        published += events[i].published;
        for (int c = 0; c < 2; c++) {
            const struct attempts *of = &consumers[c].of[i];
            purged[c] += of->purged > 0;
            parked[c] += of->parked > 0;
            lost[c] += events[i].published && of->purged + of->parked == 0;
            twice[c] += of->purged + of->parked > 1;
        }
    }
    const struct purge_api *plain = &consumers[0].api, *spared = &consumers[1].api;
    printf("\n %-14s %8s %14s\n", "in all", "back-off", "with a breaker");
    put_counts("calls", plain->calls, spared->calls, -1, "of the purge API");
    put_counts("refused", plain->refused, spared->refused, -1, "calls that the API answered with 507");
    put_counts("purged", purged[0], purged[1], -1, "events");
    put_counts("parked", parked[0], parked[1], -1, "events");
    int good = put_counts("lost", lost[0], lost[1], 0, "events that are neither purged nor parked");
    good &= put_counts("doubled", twice[0], twice[1], 0, "events purged or parked more than once");
    good &= put_counts("changed", consumers[0].changed, consumers[1].changed, 0,
                       "attempts with another body, routing key or property");
    printf("\n search-index received %d messages of %d events; %d of them were retries\n", site->indexed, published,
           site->duplicates);
    return good && site->duplicates == 0 && site->indexed == published;
}

/* Publishes, consumes and samples until all events are settled. Returns 0 if something failed. */
static int play(struct consumer *consumers, struct site *site)
{
    int64_t busy_ms = 0, next_second = 1;
    int published = 0, ok = 1;

    while (ok && !interrupted && elapsed_ms() < MOST_MS && elapsed_ms() < busy_ms + QUIET_MS) {
        struct pollfd fds[] = {{bh_worker_fd(consumers[0].worker), POLLIN, 0},
                               {bh_worker_fd(consumers[1].worker), POLLIN, 0}};
        poll(fds, 2, 20);
        ok = consume(&consumers[0]) && consume(&consumers[1]);
        if (ok && published < EVENTS && elapsed_ms() >= published * PUBLISH_EVERY_MS)
            ok = site_publish(site, &events[published++]);
        if (ok && elapsed_ms() >= (int64_t)site->samples * SAMPLE_MS)
            ok = site_sample(site, &consumers[0]) && site_read_index(site);
        if (elapsed_ms() > next_second * 1000 + SAMPLE_MS) /* the actions of its attempts are known */
            put_second(&consumers[0], next_second++ - 1);
        if (!is_done(&consumers[0]) || !is_done(&consumers[1]))
            busy_ms = elapsed_ms();
    }
    return ok && !interrupted;
}

/* Returns the exit status: 0, 1 if a count is not as it must be, 2 if the run was not possible. */
static int run(struct consumer *consumers, struct site *site, const char *url)
{
    int status = 2;

    if (!consumer_open(&consumers[0], DEMO ".cdn-purge", 0) || !consumer_open(&consumers[1], DEMO ".spared", 1) ||
        !site_connect(site, url) || !site_clear(site, consumers[0].topology) ||
        !site_clear(site, consumers[1].topology))
        return 2;
    site_find_waits(site, &consumers[0]);
    if (consumer_start(&consumers[0], url) && consumer_start(&consumers[1], url) && site_declare(site, consumers)) {
        introduce(&consumers[0]);
        start_ms += elapsed_ms();
        if (play(consumers, site)) {
            put_timeline(&consumers[0], site);
            if (site_read_index(site) && site_read_parked(site, &consumers[0]) && site_read_parked(site, &consumers[1]))
                status = put_totals(consumers, site) ? 0 : 1;
        }
    }
    for (int c = 0; c < 2; c++) { /* a worker that runs would declare its queues again */
        bh_worker_free(consumers[c].worker);
        consumers[c].worker = NULL;
        site_clear(site, consumers[c].topology);
    }
    return interrupted ? 130 : status;
}

int main(void)
{
    static struct consumer consumers[2];
    static struct site site;
    const char *url = getenv("AMQP_URL");

    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    alarm(ALARM_S);
    start_ms = elapsed_ms();
    for (int i = 0; i < EVENTS; i++) {
        snprintf(events[i].id, sizeof events[i].id, "%02d", i + 1);
        snprintf(events[i].path, sizeof events[i].path, "/news/%d", 2014 + i);
        strcpy(events[i].routing_key, i % 3 == 2 ? "article.deleted" : "article.updated");
    }
    snprintf(events[4].path, sizeof events[4].path, "/news/*");     /* more pages than the API ever takes */
    snprintf(events[17].path, sizeof events[17].path, "/old/2031"); /* a site that the API does not have */
    int status = run(consumers, &site, url && *url ? url : "amqp://guest:guest@localhost/");
    if (site.broker)
        amqp_destroy_connection(site.broker);
    consumer_close(&consumers[0]);
    consumer_close(&consumers[1]);
    return status;
}
