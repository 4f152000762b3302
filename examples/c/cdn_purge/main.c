/*
 * Purges pages of a newspaper from its CDN. Each event of an article becomes a call of the CDN's purge API, and the API
 * answers "507 queue is full" during its peak. A refused purge waits in RabbitMQ and comes back, later each time, until
 * the API takes it or the attempts are used up. Another queue gets the same events and must not notice any of it.
 *
 *     AMQP_URL=amqp://guest:guest@localhost/ cdn-purge
 *
 * This file is the consumer, and all there is to see of Backhop. A second consumer gets the same events and has a circuit
 * breaker (spared.c). Beside them are the stand-in for the API (api.c), and the publisher and the rest of the company
 * (company.c). The record of the run is record.c's, and its drawing screen.c's. Everything that the demo declares in
 * the broker begins with "backhop-demo" and is deleted at the end.
 */
#define _DEFAULT_SOURCE

#include "api.h"
#include "company.h"
#include "record.h"
#include "screen.h"
#include "spared.h"

#include <backhop/adapter.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API_CALL_MS 10
#define CONNECT_MS 20000
#define QUIET_MS 1500     /* so long the demo waits for surprises when all messages are settled */
#define DEADLINE_MS 80000 /* then it stops and counts the messages that still wait */
#define ALARM_S 110       /* and then it ends, whatever hangs */

struct consumer {
    bh_policy *policy;
    bh_topology *topology;
    bh_worker *worker;
    bh_delivery *delivery; /* of the message in hand, as is the history */
    bh_history *history;
    char broker[64]; /* product and version */
    struct purge_api api;
    struct record *record;
};

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static void give_up(int number)
{
    static const char text[] =
        "\033[?25h\ncdn-purge: not done after almost two minutes, giving up\n"; /* shows the cursor */
    (void)number;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(3);
    _exit(2);
}

/* Sets how long to wait, how often and how randomly. The numbers are small, so that the demo is short. */
static bh_status choose_policy(bh_policy *policy)
{
    bh_status status = bh_policy_set_initial_ms(policy, 800);
    if (status == BH_OK)
        status = bh_policy_set_factor(policy, 1.8);
    if (status == BH_OK)
        status = bh_policy_set_max_ms(policy, 6000);
    if (status == BH_OK)
        status = bh_policy_set_jitter(policy, BH_JITTER_SPREAD, 0.25);
    if (status == BH_OK)
        status = bh_policy_set_max_attempts(policy, 8);
    if (status == BH_OK)
        status = bh_policy_set_max_retry_after_ms(policy, 8000);
    return status;
}

/* Where messages wait: the ladder, its default. The work queue is declared too, as an ordinary quorum queue. */
static bh_status choose_topology(bh_topology *topology, bh_policy *policy)
{
    bh_status status = bh_topology_set_namespace(topology, bh_str(NAMESPACE));
    if (status == BH_OK)
        status = bh_topology_set_work_queue_type(topology, BH_QUEUE_QUORUM);
    return status == BH_OK ? bh_topology_build(topology, policy) : status;
}

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "cdn-purge: %s: %s\n", what, why);
    return 0;
}

static int consumer_open(struct consumer *self)
{
    bh_status status = bh_policy_new(&self->policy);
    if (status == BH_OK)
        status = bh_topology_new(&self->topology, bh_str(CDN_PURGE));
    if (status == BH_OK)
        status = bh_delivery_new(&self->delivery);
    if (status == BH_OK)
        status = bh_history_new(&self->history);
    if (status != BH_OK)
        return fail("cannot start", bh_status_text(status).data);
    if (choose_policy(self->policy) != BH_OK)
        return fail("the policy", bh_policy_error(self->policy).data);
    if (choose_topology(self->topology, self->policy) != BH_OK)
        return fail("the topology", bh_topology_error(self->topology).data);
    status = bh_worker_new(&self->worker, self->policy, self->topology);
    return status == BH_OK || fail("the worker", bh_status_text(status).data);
}

static void consumer_close(struct consumer *self)
{
    bh_worker_free(self->worker);
    bh_delivery_free(self->delivery);
    bh_history_free(self->history);
    bh_topology_free(self->topology);
    bh_policy_free(self->policy);
}

/* Notes an attempt: what becomes of it follows. */
static void note_attempt(struct record *record, struct message *message, struct attempt attempt, int as_published)
{
    pthread_mutex_lock(&record->lock);
    if (message->attempts < MOST_ATTEMPTS)
        message->attempt[message->attempts] = attempt;
    message->attempts++;
    record->delivered++;
    record->changed += !as_published;
    pthread_mutex_unlock(&record->lock);
}

/* Notes what became of a message's last attempt. */
static void note_action(struct record *record, struct message *message, bh_action action, int64_t delay_ms)
{
    pthread_mutex_lock(&record->lock);
    if (message->attempts > 0 && message->attempts <= MOST_ATTEMPTS) {
        struct attempt *last = &message->attempt[message->attempts - 1];
        last->action = action;
        last->delay_ms = delay_ms;
        last->settled_ms = elapsed_ms(record);
    }
    message->succeeded += action == BH_ACTION_ACK;
    record->retried += action == BH_ACTION_RETRY;
    for (size_t i = 0; i < record->waits && action == BH_ACTION_RETRY; i++)
        if (record->wait[i].ms == delay_ms)
            record->wait[i].declared = 1; /* those on demand were declared just now */
    pthread_mutex_unlock(&record->lock);
}

/* Notes what happened to the worker, and what became of the messages that failed. */
static void note_event(struct consumer *self, const bh_event *event)
{
    bh_bytes text = bh_event_text(event), id = bh_event_string(event, BH_FIELD_ID);
    struct message *message = find_message(self->record, id.data, id.size);

    switch (bh_event_what(event)) {
    case BH_EVENT_CONNECTED: /* "RabbitMQ 4.0.5 at localhost:5672, ..." */
        snprintf(self->broker, sizeof self->broker, "%.*s", (int)strcspn(text.data, " ") + 1, text.data);
        snprintf(self->broker + strlen(self->broker), sizeof self->broker - strlen(self->broker), "%.*s",
                 (int)strcspn(text.data + strlen(self->broker), " "), text.data + strlen(self->broker));
        break;
    case BH_EVENT_RETRIED:
        if (message)
            note_action(self->record, message, BH_ACTION_RETRY, bh_event_int(event, BH_FIELD_DELAY));
        break;
    case BH_EVENT_PARKED:
        if (message)
            note_action(self->record, message, BH_ACTION_PARK, 0);
        break;
    case BH_EVENT_DRAINED:
        break;
    default:
        fail(bh_event_name(bh_event_what(event)).data, text.data);
    }
}

static void consumer_hear(struct consumer *self)
{
    bh_event *event;
    while (bh_worker_take_event(self->worker, &event) == BH_OK) {
        note_event(self, event);
        bh_event_free(event);
    }
}

/* Waits until there is a message or an event to take. */
static void consumer_wait(const struct consumer *self, int timeout_ms)
{
    struct pollfd readable = {.fd = bh_worker_fd(self->worker), .events = POLLIN};
    poll(&readable, 1, timeout_ms);
}

static int consumer_connect(struct consumer *self, const char *url)
{
    if (bh_worker_set_event(self->worker, BH_EVENT_RETRIED, 1) != BH_OK ||
        bh_worker_add_uri(self->worker, bh_str(url)) != BH_OK || bh_worker_start(self->worker) != BH_OK)
        return fail("the worker", bh_worker_error(self->worker).data);
    for (int64_t end_ms = monotonic_ms() + CONNECT_MS; !*self->broker && !interrupted && monotonic_ms() < end_ms;) {
        consumer_wait(self, 100);
        consumer_hear(self);
    }
    return *self->broker != '\0';
}

/* Returns 1 if the message is as it was published: body, routing key, properties. Backhop's headers come on top. */
static int is_as_published(const struct consumer *self, const bh_message *taken, const struct message *message)
{
    return strcmp(bh_message_body(taken).data, message->path) == 0 &&
           strcmp(bh_delivery_routing_key(self->delivery).data, message->routing_key) == 0 &&
           strcmp(bh_history_exchange(self->history).data, ARTICLES) == 0 &&
           strcmp(bh_delivery_property(self->delivery, BH_PROPERTY_CONTENT_TYPE).data, "text/plain") == 0;
}

/* Handles a message: calls the API, and gives Backhop the outcome. */
static bh_status consumer_handle(struct consumer *self, bh_message *taken)
{
    struct attempt attempt = {.at_ms = elapsed_ms(self->record)};

    bh_status status = bh_worker_read(self->worker, taken, self->delivery, self->history);
    if (status != BH_OK)
        return status;
    bh_bytes id = bh_delivery_property(self->delivery, BH_PROPERTY_MESSAGE_ID);
    struct message *message = find_message(self->record, id.data, id.size);
    if (!message) /* not one of the demo's */
        return bh_worker_settle(self->worker, taken, &(bh_settlement){.outcome = BH_OUTCOME_DROPPED});

    sleep_ms(API_CALL_MS);
    struct purge_answer answer = purge(&self->api, elapsed_ms(self->record), bh_message_body(taken).data);
    note_attempt(self->record, message, attempt, is_as_published(self, taken, message));
    bh_outcome outcome = BH_OUTCOME_OK;
    if (answer.code == 507)
        outcome = BH_OUTCOME_FAILED; /* later, perhaps */
    else if (answer.code != 202)
        outcome = BH_OUTCOME_PERMANENT; /* never */
    else
        note_action(self->record, message, BH_ACTION_ACK, 0);
    return bh_worker_settle(
        self->worker, taken,
        &(bh_settlement){.outcome = outcome, .error = bh_str(answer.text), .retry_after_ms = answer.retry_after_ms});
}

/*
 * Consumes until every message is settled and nothing more comes. A program with nothing else to do can call
 * bh_worker_run instead. This loop also draws the screen and watches the clock.
 */
static int consume(struct consumer *self, struct company *company, struct screen *screen)
{
    int64_t busy_ms = 0;

    while (!interrupted && !company->failed && elapsed_ms(self->record) < DEADLINE_MS) {
        bh_message *taken;
        bh_status status = bh_worker_take(self->worker, &taken, 0);
        if (status == BH_OK) {
            status = consumer_handle(self, taken);
            bh_message_free(taken);
        } else if (status == BH_ERR_TIMEOUT) {
            consumer_wait(self, 50);
            status = BH_OK;
        }
        if (status != BH_OK && !interrupted)
            return fail("the worker", bh_status_text(status).data);
        consumer_hear(self);
        screen_update(screen);

        for (size_t i = 0; i < MESSAGES; i++)
            if (!is_settled(&self->record->message[i]))
                busy_ms = elapsed_ms(self->record);
        if (elapsed_ms(self->record) > busy_ms + QUIET_MS)
            break;
    }
    return 1;
}

/* The events of a day, and the wait queues that the topology may use. */
static void record_open(struct record *record, const bh_topology *topology)
{
    pthread_mutex_init(&record->lock, NULL);
    for (size_t i = 0; i < MESSAGES; i++) {
        struct message *message = &record->message[i];
        snprintf(message->id, sizeof message->id, "%02d", (int)i + 1);
        snprintf(message->path, sizeof message->path, "/news/%d", 2014 + (int)i);
        message->routing_key = i % 3 == 2 ? "article.deleted" : "article.updated";
    }
    snprintf(record->message[4].path, sizeof record->message[4].path, "/news/*");     /* more than the API ever takes */
    snprintf(record->message[17].path, sizeof record->message[17].path, "/old/2031"); /* it knows no such site */

    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(topology, i, &each) == BH_OK && record->waits < MOST_WAITS; i++) {
        struct wait_queue *wait = &record->wait[record->waits];
        if (each.kind != BH_DECLARE_QUEUE || each.rung_ms == 0)
            continue;
        snprintf(wait->name, sizeof wait->name, "%s", each.name.data);
        wait->ms = each.rung_ms;
        wait->declared = !each.on_demand;
        record->waits++;
    }
}

static void introduce(const struct consumer *self)
{
    bh_limits limits;
    bh_policy_limits(self->policy, &limits);
    int64_t attempts = limits.max_attempts;

    printf("\n %d events of a news site go to a purge API that is full from %d s to %d s.\n", MESSAGES,
           PEAK_BEGINS_MS / 1000, PEAK_ENDS_MS / 1000);
    printf(" Backhop %s on %s waits", bh_version(), self->broker);
    for (int64_t n = 1; n < attempts; n++) {
        bh_preview row;
        bh_policy_preview(self->policy, n, &row);
        printf("%s %.1f", n > 1 ? "," : "", (double)row.mean_ms / 1000);
    }
    printf(" s\n after failures 1 to %d, give or take a quarter, and parks after failure %d.\n\n", (int)attempts - 1,
           (int)attempts);
    fflush(stdout);
}

static int clear(struct company *company, const struct consumer *consumer, const struct spared *spared)
{
    return company_clear(company, consumer->topology) && company_clear(company, spared->topology);
}

static int spared_connect(struct spared *spared, const char *url)
{
    bh_status status = spared_start(spared, url);
    return status == BH_OK || fail("the worker with a breaker", bh_status_text(status).data);
}

/* Shows the calls that each consumer made; 1 if the second has settled all events, too. */
static int compare(const struct consumer *consumer, struct spared *spared)
{
    int settled = atomic_load(&spared->settled);
    printf("\n the same peak without and with a circuit breaker, on two queues\n");
    printf(" back-off alone  %4d  calls, of which the API refused %d\n", consumer->record->delivered,
           consumer->api.refused);
    printf(" and a breaker   %4d  calls, of which the API refused %d\n", atomic_load(&spared->calls),
           atomic_load(&spared->refused));
    if (settled != MESSAGES)
        printf(" %d of %d events were settled with a breaker\n", settled, MESSAGES);
    fflush(stdout);
    return settled == MESSAGES;
}

/* The whole run: 0 as it must be, 1 not so, 2 it could not be done. */
static int run(struct consumer *consumer, struct spared *spared, struct company *company, struct screen *screen,
               const char *url)
{
    int status = 2;

    if (!consumer_open(consumer))
        return 2;
    record_open(consumer->record, consumer->topology);
    bh_status opened = spared_open(spared, consumer->record, consumer->policy);
    if (opened != BH_OK)
        return fail("the consumer with a breaker", bh_status_text(opened).data) + 2;
    if (!company_connect(company, url) || !company_lock(company) || !clear(company, consumer, spared)) {
        fail("the broker", company->error);
        return 2;
    }
    consumer->record->start_ms = monotonic_ms();
    if (consumer_connect(consumer, url) && spared_connect(spared, url)) {
        introduce(consumer);
        consumer->record->start_ms = monotonic_ms();
        if (company_declare(company) && company_start(company)) {
            int consumed = consume(consumer, company, screen);
            int64_t end_ms = elapsed_ms(consumer->record);
            company_end_thread(company);
            spared_finish(spared, DEADLINE_MS);
            bh_worker_free(consumer->worker); /* unsettled messages are in the work queue again */
            consumer->worker = NULL;
            if (company_look(company, bh_topology_parked_queue(consumer->topology).data) && consumed)
                status = screen_finish(screen, end_ms) && compare(consumer, spared) ? 0 : 1;
        }
    }
    spared_finish(spared, 0);
    if (!company->failed)
        clear(company, consumer, spared);
    if (company->failed)
        fail("the broker", company->error);
    return status;
}

int main(void)
{
    static struct record record;
    struct consumer consumer = {.record = &record};
    struct spared spared = {.record = &record};
    struct company company = {.record = &record};
    struct screen screen = {0};
    const char *url = getenv("AMQP_URL");

    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    signal(SIGALRM, give_up);
    alarm(ALARM_S);
    screen_open(&screen, &record);
    int status = run(&consumer, &spared, &company, &screen, url && *url ? url : "amqp://guest:guest@localhost/");
    screen_close(&screen);
    company_close(&company);
    spared_close(&spared);
    consumer_close(&consumer);
    return interrupted ? 130 : status;
}
