/*
 * Purges pages of a news site from its CDN: each event of an article becomes a call of the CDN's purge API, and the API
 * answers "507 queue is full" during its peak. What it refuses waits in RabbitMQ and comes back, later each time, until
 * the API takes it or the attempts are used up. Another queue gets the same events and must not notice any of it.
 *
 *     AMQP_URL=amqp://guest:guest@localhost/ cdn-purge
 *
 * This file is the consumer, and all there is to see of Backhop. Beside it: the stand-in for the API (api.c), the
 * publisher and the rest of the company (company.c), what happened (record.c) and how it is drawn (screen.c). All that
 * it declares in the broker begins with "backhop-demo" and is deleted at the end.
 */
#define _DEFAULT_SOURCE

#include "api.h"
#include "company.h"
#include "record.h"
#include "screen.h"

#include <backhop.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API_CALL_MS 10
#define QUIET_MS 1500     /* so long the demo waits for surprises when all messages are settled */
#define DEADLINE_MS 80000 /* then it stops and counts what is still waiting */
#define ALARM_S 110       /* and then it ends, whatever hangs */

struct consumer {
    bh_policy *policy;
    bh_topology *topology;
    bh_worker *worker;
    bh_delivery *delivery;
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

/* How long to wait, how often, how random. Small numbers, as nobody wants to watch for an hour. */
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
    bh_worker_free(self->worker); /* first: it borrows the others */
    bh_delivery_free(self->delivery);
    bh_topology_free(self->topology);
    bh_policy_free(self->policy);
}

static int consumer_connect(struct consumer *self, const char *url)
{
    if (bh_worker_connect(self->worker, bh_str(url)) == BH_OK &&
        bh_worker_declare(self->worker, BH_MODE_CREATE) == BH_OK)
        return 1;
    return fail("the worker", bh_worker_error(self->worker).data);
}

/* Whether the message is what was published: body, routing key, properties. Backhop's headers come on top. */
static int is_as_published(const struct consumer *self, const struct message *message)
{
    return strcmp(bh_worker_body(self->worker).data, message->path) == 0 &&
           strcmp(bh_delivery_routing_key(self->delivery).data, message->routing_key) == 0 &&
           strcmp(bh_worker_exchange(self->worker).data, ARTICLES) == 0 &&
           strcmp(bh_delivery_property(self->delivery, BH_PROPERTY_CONTENT_TYPE).data, "text/plain") == 0;
}

/* Notes what became of an attempt. */
static void note(struct record *record, struct message *message, struct attempt attempt, int as_published)
{
    pthread_mutex_lock(&record->lock);
    if (message->attempts < MOST_ATTEMPTS)
        message->attempt[message->attempts] = attempt;
    message->attempts++;
    message->succeeded += attempt.action == BH_ACTION_ACK;
    record->delivered++;
    record->retried += attempt.action == BH_ACTION_RETRY;
    record->changed += !as_published;
    for (size_t i = 0; i < record->waits && attempt.action == BH_ACTION_RETRY; i++)
        if (record->wait[i].ms == attempt.delay_ms)
            record->wait[i].declared = 1; /* those on demand were declared just now */
    pthread_mutex_unlock(&record->lock);
}

/* Handles the current message: calls the API, tells Backhop how it went, and sees what Backhop made of it. */
static bh_status consumer_handle(struct consumer *self)
{
    struct attempt attempt = {.at_ms = elapsed_ms(self->record)};
    bh_outcome outcome = BH_OUTCOME_OK;

    bh_status status = bh_worker_delivery(self->worker, self->delivery);
    if (status != BH_OK)
        return status;
    bh_bytes id = bh_delivery_property(self->delivery, BH_PROPERTY_MESSAGE_ID);
    struct message *message = find_message(self->record, id.data, id.size);
    if (!message) /* a stranger's */
        return bh_worker_settle(self->worker, BH_OUTCOME_DROPPED, bh_str(""), 0);
    int as_published = is_as_published(self, message);

    sleep_ms(API_CALL_MS);
    struct purge_answer answer = purge(&self->api, elapsed_ms(self->record), bh_worker_body(self->worker).data);
    if (answer.code == 507)
        outcome = BH_OUTCOME_FAILED; /* later, perhaps */
    else if (answer.code != 202)
        outcome = BH_OUTCOME_PERMANENT; /* never */

    /* A copy that the broker did not confirm leaves the message current, so nothing is lost: settle it again. */
    for (;;) {
        status = bh_worker_settle(self->worker, outcome, bh_str(answer.text), answer.retry_after_ms);
        if (status != BH_ERR_PUBLISH || interrupted)
            break;
        sleep_ms(200);
    }
    if (status != BH_OK)
        return status;

    attempt.action = bh_worker_last_action(self->worker);
    attempt.delay_ms = bh_worker_last_delay_ms(self->worker);
    attempt.settled_ms = elapsed_ms(self->record);
    note(self->record, message, attempt, as_published);
    return BH_OK;
}

/*
 * Consumes until every message is settled and nothing more comes. bh_worker_run does as much for a program with nothing
 * else to do; this loop also draws the screen and watches the clock.
 */
static int consume(struct consumer *self, struct company *company, struct screen *screen)
{
    int64_t busy_ms = 0;

    while (!interrupted && !company->failed && elapsed_ms(self->record) < DEADLINE_MS) {
        bh_status status = bh_worker_take(self->worker, 50);
        if (status == BH_OK)
            status = consumer_handle(self);
        if (status != BH_OK && status != BH_ERR_TIMEOUT && !interrupted)
            return fail("the worker", bh_worker_error(self->worker).data);
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

    for (size_t i = 0; i < bh_topology_count(topology) && record->waits < MOST_WAITS; i++) {
        struct wait_queue *wait = &record->wait[record->waits];
        if (bh_topology_declaration(topology, i) != BH_DECLARE_QUEUE || bh_topology_wait_ms(topology, i) == 0)
            continue;
        snprintf(wait->name, sizeof wait->name, "%s", bh_topology_name(topology, i).data);
        wait->ms = bh_topology_wait_ms(topology, i);
        wait->declared = !bh_topology_on_demand(topology, i);
        record->waits++;
    }
}

static void introduce(const struct consumer *self)
{
    int64_t attempts = bh_policy_max_attempts(self->policy);

    printf("\n %d events of a news site go to a purge API that is full from %d s to %d s.\n", MESSAGES,
           PEAK_BEGINS_MS / 1000, PEAK_ENDS_MS / 1000);
    printf(" Backhop %s on %s %s waits", bh_version(), bh_worker_broker_product(self->worker).data,
           bh_worker_broker_version(self->worker).data);
    for (int64_t n = 1; n < attempts; n++)
        printf("%s %.1f", n > 1 ? "," : "", (double)bh_policy_mean_ms(self->policy, n) / 1000);
    printf(" s\n after failures 1 to %d, give or take a quarter, and parks after failure %d.\n\n", (int)attempts - 1,
           (int)attempts);
    fflush(stdout);
}

/* The whole run: 0 as it must be, 1 not so, 2 it could not be done. */
static int run(struct consumer *consumer, struct company *company, struct screen *screen, const char *url)
{
    int status = 2;

    if (!consumer_open(consumer))
        return 2;
    record_open(consumer->record, consumer->topology);
    if (!company_connect(company, url) || !company_lock(company) || !company_clear(company, consumer->topology)) {
        fail("the broker", company->error);
        return 2;
    }
    if (consumer_connect(consumer, url)) {
        introduce(consumer);
        consumer->record->start_ms = monotonic_ms();
        if (company_declare(company) && company_start(company)) {
            int consumed = consume(consumer, company, screen);
            int64_t end_ms = elapsed_ms(consumer->record);
            company_end_thread(company);
            bh_worker_free(consumer->worker); /* what it took and did not settle is in the work queue again */
            consumer->worker = NULL;
            if (company_look(company, bh_topology_parked_queue(consumer->topology).data) && consumed)
                status = screen_finish(screen, end_ms) ? 0 : 1;
        }
    }
    if (!company->failed)
        company_clear(company, consumer->topology);
    if (company->failed)
        fail("the broker", company->error);
    return status;
}

int main(void)
{
    static struct record record;
    struct consumer consumer = {.record = &record};
    struct company company = {.record = &record};
    struct screen screen = {0};
    const char *url = getenv("AMQP_URL");

    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    signal(SIGALRM, give_up);
    alarm(ALARM_S);
    screen_open(&screen, &record);
    int status = run(&consumer, &company, &screen, url && *url ? url : "amqp://guest:guest@localhost/");
    screen_close(&screen);
    company_close(&company);
    consumer_close(&consumer);
    return interrupted ? 130 : status;
}
