#include "setups.h"
#include "suites.h"
#include "worker/interface/relay.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A relay beside the rig's broker and names; the rig's worker runs it. Work queues are the
 * user's. */
typedef struct relaying {
    rig *rig;
    bh__relay *relay;
    char web[300];    /* a second work queue, which a pattern matches */
    char parked[320]; /* of it */
} relaying;

static relaying set_up(void)
{
    relaying self = {.rig = rig_new(BH_STRATEGY_LADDER, BH_QUEUE_QUORUM)};
    rig *r = self.rig;
    rig_leave_work_queue(r);
    snprintf(self.web, sizeof self.web, "%s.web.acme", r->ns);
    snprintf(self.parked, sizeof self.parked, "%s.parked", self.web);
    ck_assert_int_eq(bh__relay_new(&self.relay), BH_OK);
    ck_assert_int_eq(bh__relay_set_namespace(self.relay, bh_str(r->ns)), BH_OK);
    rig_prepare(r);
    broker_remove_later(rig_name(r, "rejected"));
    broker_remove_later(self.parked);
    return self;
}

static void add_queues(relaying *self)
{
    char pattern[300];
    snprintf(pattern, sizeof pattern, "%s.web.*", self->rig->ns);
    ck_assert_int_eq(bh__relay_add_queue(self->relay, bh_str(self->rig->queue), self->rig->policy), BH_OK);
    ck_assert_int_eq(bh__relay_add_queue(self->relay, bh_str(pattern), self->rig->policy), BH_OK);
    ck_assert_int_eq(bh__relay_build(self->relay), BH_OK);
}

static void make_worker(relaying *self)
{
    ck_assert_int_eq(bh__worker_new_relay(&self->rig->worker, self->relay), BH_OK);
    bh_worker_defaults(&self->rig->settings);
    self->rig->settings.prefetch = BH__RELAY_PREFETCH;
    rig_set(self->rig, emits[BH_EVENT_RETRIED], 1);
}

static void start(relaying *self)
{
    add_queues(self);
    make_worker(self);
    rig_connect(self->rig);
}

static void tear_down(relaying *self)
{
    rig_free(self->rig);
    bh__relay_free(self->relay);
}

/* A work queue as a user has it, with the arguments that lead its dead letters to the relay, and
 * one more. */
static void declare_work(const relaying *self, const char *queue, const char *type, amqp_table_entry_t more)
{
    amqp_table_entry_t arguments[5] = {entry_string("x-queue-type", type),
                                       entry_string("x-dead-letter-exchange", rig_name(self->rig, "rejected"))};
    int count = 2;
    if (strcmp(type, "quorum") == 0 && !holds(bh_str(more.key.bytes), "x-max-length")) {
        arguments[count++] = entry_string("x-dead-letter-strategy", "at-least-once");
        arguments[count++] = entry_string("x-overflow", "reject-publish");
    }
    if (more.key.len)
        arguments[count++] = more;
    broker_declare_queue(self->rig->broker, queue, arguments, count);
}

static amqp_table_entry_t no_more(void)
{
    return entry_string("", "");
}

/* All that consumers here do. */
static void reject_next(const relaying *self, const char *queue, message *out)
{
    broker_get(self->rig->broker, queue, out);
    broker_reject(self->rig->broker, out, 0);
}

static void administer(const relaying *self, bh_queue_type type)
{
    char command[2000];
    snprintf(command, sizeof command, "\"$BACKHOP_BROKER_CTL\" %s >/dev/null",
             bh__relay_policy_line(self->relay, type, bh_str("/")).data);
    ck_assert_msg(system(command) == 0, "%s", command); /* NOLINT(cert-env33-c): as an administrator types it */
}

static void expect_parked_here(const relaying *self, const char *parked, const char *body, const char *key,
                               const char *reason, int64_t attempts)
{
    message got;
    broker_get(self->rig->broker, parked, &got);
    expect_bytes(got.body, body);
    expect_bytes(message_string(&got, "backhop-parked"), reason);
    expect_bytes(message_string(&got, "backhop-routing-key"), key);
    expect_bytes(message_string(&got, "backhop-exchange"), self->rig->exchange);
    ck_assert_int_eq(message_int(&got, "backhop-attempts"), attempts);
    broker_ack(self->rig->broker, &got);
    message_free(&got);
}

static void expect_told_parked(const relaying *self, const char *reason, const char *queue, const char *error)
{
    rig *r = self->rig;
    rig_await(r, BH_EVENT_PARKED);
    expect_bytes(bh_event_string(r->event, BH_FIELD_REASON), reason);
    expect_bytes(bh_event_string(r->event, BH_FIELD_QUEUE), queue);
    expect_part(bh_event_string(r->event, BH_FIELD_ERROR), error);
}

/* --------------------------------------------------------------------------------------- rounds */

START_TEST(by_the_policies_that_it_prints_rejections_come_back_to_the_queue_that_failed_alone)
{
    static const char *const types[] = {"quorum", "classic"};
    relaying self = set_up();
    rig *r = self.rig;
    start(&self);
    const char *queues[] = {r->queue, self.web};
    const char *parked[] = {r->parked, self.parked};
    administer(&self, BH_QUEUE_QUORUM);
    administer(&self, BH_QUEUE_CLASSIC);
    /* By their owner, who knows nothing of a relay; now, as a policy takes a while to reach a queue
     * that is there. */
    for (int i = 0; i < 2; i++) {
        amqp_table_entry_t arguments[] = {entry_string("x-queue-type", types[i])};
        broker_declare_queue(r->broker, queues[i], arguments, 1);
        broker_bind(r->broker, queues[i], r->exchange, "order.*");
    }
    const char *sibling = rig_sibling(r, "sibling", "order.*");
    broker_publish_text(r->broker, r->exchange, "order.created", "first");
    broker_await_depth(r->broker, sibling, 1);
    for (int attempt = 1; attempt <= 3; attempt++)
        for (int i = 0; i < 2; i++) {
            message got;
            reject_next(&self, queues[i], &got);
            expect_bytes(got.body, "first");
            ck_assert_str_eq(got.routing_key, "order.created");
            if (attempt > 1)
                ck_assert_int_eq(message_int(&got, "backhop-attempts"), attempt - 1);
            message_free(&got);
            rig_await(r, attempt < 3 ? BH_EVENT_RETRIED : BH_EVENT_PARKED);
            ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_ATTEMPTS), attempt);
        }
    for (int i = 0; i < 2; i++)
        expect_parked_here(&self, parked[i], "first", "order.created", "exhausted", 3);
    broker_await_depth(r->broker, sibling, 1);
    tear_down(&self);
}
END_TEST

START_TEST(what_expired_or_was_delivered_too_often_is_parked_with_the_broker_s_word)
{
    relaying self = set_up();
    rig *r = self.rig;
    message got;
    declare_work(&self, r->queue, "quorum", entry_int("x-delivery-limit", 1));
    broker_bind(r->broker, r->queue, r->exchange, "limit");
    start(&self);
    declare_work(&self, self.web, "classic", entry_int("x-message-ttl", 1));
    broker_bind(r->broker, self.web, r->exchange, "ttl");
    broker_publish_text(r->broker, r->exchange, "ttl", "late");
    expect_told_parked(&self, "expired", self.web, "expired in its work queue");
    expect_parked_here(&self, self.parked, "late", "ttl", "expired", 1);
    broker_publish_text(r->broker, r->exchange, "limit", "often");
    for (int i = 0; i < 2; i++) {
        broker_get(r->broker, r->queue, &got);
        broker_reject(r->broker, &got, 1);
        message_free(&got);
    }
    expect_told_parked(&self, "delivery_limit", r->queue, "never settled");
    expect_parked_here(&self, r->parked, "often", "limit", "delivery_limit", 1);
    tear_down(&self);
}
END_TEST

START_TEST(what_a_full_queue_pushes_out_is_tried_again_where_that_is_set)
{
    relaying self = set_up();
    rig *r = self.rig;
    bh__relay_set_outcome(self.relay, BH__DEATH_MAXLEN, BH_OUTCOME_FAILED);
    declare_work(&self, r->queue, "classic", entry_int("x-max-length", 1));
    broker_bind(r->broker, r->queue, r->exchange, "work");
    start(&self);
    broker_publish_text(r->broker, r->exchange, "work", "one");
    broker_publish_text(r->broker, r->exchange, "work", "two");
    rig_await(r, BH_EVENT_RETRIED);
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_ATTEMPTS), 1);
    rig_await(r, BH_EVENT_RETRIED); /* the other one, which it pushed out when it came back */
    tear_down(&self);
}
END_TEST

START_TEST(what_is_dropped_by_setting_is_told_and_counted)
{
    relaying self = set_up();
    rig *r = self.rig;
    bh_metrics *metrics;
    message got;
    ck_assert_int_eq(bh_metrics_new(&metrics), BH_OK);
    bh__relay_set_outcome(self.relay, BH__DEATH_REJECTED, BH_OUTCOME_DROPPED);
    declare_work(&self, r->queue, "quorum", no_more());
    add_queues(&self);
    make_worker(&self);
    rig_set(r, emits[BH_EVENT_DROPPED], 1);
    expect_ok(r->worker, bh_worker_set_metrics(r->worker, metrics));
    rig_connect(r);
    broker_publish_text(r->broker, "", r->queue, "one");
    reject_next(&self, r->queue, &got);
    message_free(&got);
    rig_await(r, BH_EVENT_DROPPED);
    expect_bytes(bh_event_string(r->event, BH_FIELD_QUEUE), r->queue);
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_ATTEMPT), 1);
    expect_ok(r->worker, bh_worker_read_metrics(r->worker, metrics));
    expect_part(bh_metrics_text(metrics), "outcome=\"dropped\"} 1\n");
    bh_metrics_free(metrics);
    tear_down(&self);
}
END_TEST

/* ---------------------------------------------------------------------------- untrusted headers */

static void publish_with_death(const relaying *self, const char *queue, const char *body)
{
    amqp_table_entry_t fields[] = {entry_int("count", 1), entry_string("reason", "rejected"),
                                   entry_string("queue", queue), entry_string("exchange", "")};
    amqp_field_value_t record = entry_table("", fields, 4).value;
    amqp_table_entry_t headers[] = {entry_array("x-death", &record, 1), entry_string("x-last-death-queue", queue)};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {2, headers}};
    broker_publish(self->rig->broker, rig_name(self->rig, "rejected"), "k", &properties, bh_str(body));
}

static void expect_unroutable(const relaying *self, const char *body, const char *error, const char *queue)
{
    message got;
    broker_get(self->rig->broker, rig_name(self->rig, "unroutable"), &got);
    expect_bytes(got.body, body);
    expect_part(message_string(&got, "backhop-error"), error);
    if (queue)
        expect_bytes(message_string(&got, "backhop-queue"), queue);
    else
        ck_assert_uint_eq(message_header(&got, "backhop-queue").size, 0);
    broker_ack(self->rig->broker, &got);
    message_free(&got);
}

START_TEST(what_a_stranger_publishes_leads_to_no_queue_that_is_not_served)
{
    relaying self = set_up();
    rig *r = self.rig;
    char missing[320];
    broker_declare_quorum(r->broker, r->queue);
    const char *other = rig_sibling(r, "other", "nothing");
    start(&self);
    broker_publish_text(r->broker, rig_name(r, "rejected"), "k", "by hand");
    expect_told_parked(&self, "unroutable", rig_name(r, "rejected"), "no x-death");
    expect_unroutable(&self, "by hand", "no x-death", NULL);
    publish_with_death(&self, other, "to another");
    rig_await(r, BH_EVENT_PARKED);
    expect_unroutable(&self, "to another", "does not serve", NULL);
    snprintf(missing, sizeof missing, "%s.web.nobody", r->ns);
    publish_with_death(&self, missing, "to none");
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, missing);
    rig_await(r, BH_EVENT_PARKED);
    expect_unroutable(&self, "to none", "rejected", missing);
    snprintf(missing, sizeof missing, "%s.web.nobody.parked", r->ns);
    ck_assert(!broker_has_queue(r->broker, missing));
    ck_assert_int_eq(broker_depth(r->broker, other), 0);
    tear_down(&self);
}
END_TEST

START_TEST(a_record_that_a_client_republished_counts_nothing)
{
    relaying self = set_up();
    rig *r = self.rig;
    message got;
    declare_work(&self, r->queue, "quorum", no_more());
    start(&self);
    amqp_table_entry_t fields[] = {entry_int("count", 40), entry_string("reason", "rejected"),
                                   entry_string("queue", r->queue), entry_string("exchange", ""),
                                   entry_number("time", AMQP_FIELD_KIND_TIMESTAMP, 1700000000)};
    amqp_field_value_t key = entry_string("", "old.key").value;
    amqp_table_entry_t all[] = {fields[0], fields[1], fields[2],
                                fields[3], fields[4], entry_array("routing-keys", &key, 1)};
    amqp_field_value_t record = entry_table("", all, 6).value;
    amqp_table_entry_t headers[] = {entry_array("x-death", &record, 1)};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, headers}};
    broker_publish(r->broker, "", r->queue, &properties, bh_str("carried along"));
    reject_next(&self, r->queue, &got);
    message_free(&got);
    rig_await(r, BH_EVENT_RETRIED);
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_ATTEMPTS), 1);
    broker_get(r->broker, r->queue, &got);
    ck_assert_str_eq(got.routing_key, r->queue);
    broker_ack(r->broker, &got);
    message_free(&got);
    tear_down(&self);
}
END_TEST

/* ------------------------------------------------------------------------------- lost and found */

START_TEST(what_is_rejected_of_a_queue_that_was_deleted_is_put_aside_and_of_one_made_anew_comes_back)
{
    relaying self = set_up();
    rig *r = self.rig;
    message got;
    declare_work(&self, r->queue, "quorum", no_more());
    policy_set_initial_ms(r->policy, 500);
    start(&self);
    broker_bind(r->broker, r->queue, r->exchange, "work");
    broker_publish_text(r->broker, r->exchange, "work", "one");
    reject_next(&self, r->queue, &got);
    message_free(&got);
    rig_await(r, BH_EVENT_RETRIED);
    broker_delete_queue(r->broker, r->queue); /* while the copy waits */
    expect_unroutable(&self, "one", "rejected", r->queue);
    declare_work(&self, r->queue, "quorum", no_more());
    int depth;
    do { /* the relay checks it at a rejection, unless it just did; earlier messages go to unroutable */
        broker_publish_text(r->broker, "", r->queue, "two");
        reject_next(&self, r->queue, &got);
        message_free(&got);
        rig_await_end(r);
        while ((depth = broker_depth(r->broker, r->queue)) + broker_depth(r->broker, rig_name(r, "unroutable")) == 0)
            pause_ms(5);
        broker_purge(r->broker, rig_name(r, "unroutable"));
    } while (depth == 0);
    broker_get(r->broker, r->queue, &got);
    expect_bytes(got.body, "two");
    broker_ack(r->broker, &got);
    message_free(&got);
    tear_down(&self);
}
END_TEST

enum { ALL = 60, RESENT_LIMIT_S = 600 }; /* more than RESENT_MS, again after each kill */

static void publish_all(const relaying *self)
{
    broker_publish_numbers(self->rig->broker, self->rig->queue, ALL);
}

/* Rejects all that comes until all numbers are parked, each at least once; how many copies were
 * parked beside. */
static int reject_until_all_are_parked(const relaying *self, void (*meanwhile)(const relaying *, int rejected))
{
    rig *r = self->rig;
    int seen[ALL] = {0};
    int missing = ALL, doubled = 0, rejected = 0;
    int64_t deadline = now_ms() + RESENT_MS;
    while (missing > 0) {
        message got;
        ck_assert_msg(now_ms() < deadline, "%d of %d are not parked", missing, ALL);
        if (broker_try_get(r->broker, r->queue, &got)) {
            broker_reject(r->broker, &got, 0);
            message_free(&got);
            rejected++;
            if (meanwhile)
                meanwhile(self, rejected);
            deadline = now_ms() + RESENT_MS;
            continue;
        }
        if (!broker_has_queue(r->broker, r->parked) || !broker_try_get(r->broker, r->parked, &got)) {
            pause_ms(5);
            continue;
        }
        long number = 0;
        for (size_t i = 0; i < got.body.size; i++)
            number = number * 10 + (got.body.data[i] - '0');
        ck_assert(number >= 0 && number < ALL);
        expect_bytes(message_string(&got, "backhop-parked"), "exhausted");
        missing -= seen[number] == 0;
        doubled += seen[number]++ > 0;
        broker_ack(r->broker, &got);
        message_free(&got);
        deadline = now_ms() + RESENT_MS;
    }
    return doubled;
}

/* A relay in a process of its own. */
static pid_t run_relay(const relaying *self)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child > 0)
        return child;
    bh_worker *worker;
    int ok = bh__worker_new_relay(&worker, self->relay) == BH_OK &&
             bh_worker_add_uri(worker, bh_str(broker_url())) == BH_OK &&
             bh_worker_run(worker, NULL, NULL, NULL) == BH_OK;
    _exit(ok ? 0 : 1);
}

static pid_t killed, beside;

static void kill_a_relay(const relaying *self, int rejected)
{
    int status;
    if (rejected % ALL != ALL / 2)
        return;
    ck_assert_int_eq(kill(killed, SIGKILL), 0);
    ck_assert_int_eq(waitpid(killed, &status, 0), killed);
    ck_assert(WIFSIGNALED(status));
    killed = run_relay(self);
}

START_TEST(several_relays_side_by_side_lose_nothing_where_one_is_killed_again_and_again)
{
    relaying self = set_up();
    rig *r = self.rig;
    declare_work(&self, r->queue, "quorum", no_more());
    start(&self);
    rig_stop_worker(r); /* it made the queues: after half a minute the broker sends unroutable dead letters again */
    killed = run_relay(&self);
    beside = run_relay(&self);
    publish_all(&self);
    reject_until_all_are_parked(&self, kill_a_relay);
    pid_t both[] = {killed, beside};
    for (int i = 0; i < 2; i++) {
        int status;
        kill(both[i], SIGKILL);
        waitpid(both[i], &status, 0);
    }
    tear_down(&self);
}
END_TEST

static void kill_the_broker(const relaying *self, int rejected)
{
    if (rejected != ALL + ALL / 2)
        return;
    broker_ctl("kill");
    broker_ctl("start");
    broker_reopen(self->rig->broker);
}

START_TEST(a_broker_that_is_killed_loses_nothing_of_a_quorum_queue)
{
    relaying self = set_up();
    rig *r = self.rig;
    declare_work(&self, r->queue, "quorum", no_more());
    start(&self);
    broker_ctl("save");
    publish_all(&self);
    reject_until_all_are_parked(&self, kill_the_broker);
    tear_down(&self);
}
END_TEST

/* While it is cut off one half is rejected; nothing is read from a queue that may be led by that
 * node. */
static void cut_off_the_relay_s_node(const relaying *self, int rejected)
{
    if (rejected == ALL / 2)
        broker_ctl("partition 3 1,2");
    if (rejected != ALL)
        return;
    rig_await(self->rig, BH_EVENT_DISCONNECTED);
    rig_await(self->rig, BH_EVENT_CONNECTED);
    ck_assert(!holds(bh_str(broker_node_url(3)), bh_event_string(self->rig->event, BH_FIELD_HOST).data));
    broker_ctl("heal");
}

/* The relay is connected to the third node, which something happens to, and consumers to one that
 * stays. */
static void relay_on_a_cluster(void (*meanwhile)(const relaying *, int rejected))
{
    static const int nodes[] = {3, 1, 2};
    relaying self = set_up();
    rig *r = self.rig;
    declare_work(&self, r->queue, "quorum", no_more());
    add_queues(&self);
    make_worker(&self);
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        expect_ok(r->worker, bh_worker_add_uri(r->worker, bh_str(broker_node_url(nodes[i]))));
    expect_ok(r->worker, bh_worker_start(r->worker));
    rig_await(r, BH_EVENT_CONNECTED);
    expect_part(bh_str(broker_node_url(3)), bh_event_string(r->event, BH_FIELD_HOST).data);
    publish_all(&self);
    reject_until_all_are_parked(&self, meanwhile);
    rig_stop_worker(r);
    tear_down(&self);
}

START_TEST(a_relay_whose_node_lost_its_cluster_goes_on_by_another_and_loses_nothing)
{
    relay_on_a_cluster(cut_off_the_relay_s_node);
}
END_TEST

const TTest *test_of_a_relay_on_a_cluster(void)
{
    return a_relay_whose_node_lost_its_cluster_goes_on_by_another_and_loses_nothing;
}

/* It stays away until the relay has gone on: two of three are enough. */
static void kill_the_relay_s_node(const relaying *self, int rejected)
{
    if (rejected != ALL / 2)
        return;
    broker_ctl("3 kill");
    rig_await(self->rig, BH_EVENT_DISCONNECTED);
    rig_await(self->rig, BH_EVENT_CONNECTED);
    ck_assert(!holds(bh_str(broker_node_url(3)), bh_event_string(self->rig->event, BH_FIELD_HOST).data));
    broker_reopen(self->rig->broker); /* it may have used a queue whose leader was there */
}

START_TEST(a_relay_whose_node_is_killed_goes_on_by_another_and_loses_nothing)
{
    relay_on_a_cluster(kill_the_relay_s_node);
}
END_TEST

const TTest *test_of_a_relay_whose_node_is_killed(void)
{
    return a_relay_whose_node_is_killed_goes_on_by_another_and_loses_nothing;
}

/* ------------------------------------------------------------------------------------ verifying */

static void start_to_verify(relaying *self)
{
    make_worker(self);
    bh_worker *worker = self->rig->worker;
    bh_worker_settings settings;
    bh_worker_defaults(&settings);
    settings.mode = BH_MODE_VERIFY;
    settings.prefetch = 0;
    expect_ok(worker, bh_worker_set(worker, &settings));
    expect_ok(worker, bh_worker_add_uri(worker, bh_str(broker_url())));
    expect_ok(worker, bh_worker_start(worker));
}

START_TEST(verifying_tells_all_that_is_missing_and_makes_nothing)
{
    relaying self = set_up();
    rig *r = self.rig;
    add_queues(&self);
    start_to_verify(&self);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, rig_name(r, "rejected"));
    rig_stop_worker(r);
    ck_assert(!broker_has_queue(r->broker, rig_name(r, "rejected")));
    ck_assert(!broker_has_exchange(r->broker, rig_name(r, "rejected")));
    make_worker(&self);
    rig_connect(r);
    rig_stop_worker(r);
    start_to_verify(&self);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_MISSING, r->queue);
    broker_declare_quorum(r->broker, r->queue);
    rig_await(r, BH_EVENT_UNAVAILABLE); /* its parked queue is missing still */
    broker_declare_quorum(r->broker, r->parked);
    tear_down(&self);
}
END_TEST

Suite *suite_relay(void)
{
    Suite *suite = suite_create("relay");
    if (!broker_is_at_least(3, 10)) /* whose quorum queues have no TTL, and no dead letters at-least-once */
        return suite;
    TCase *rounds = add_case(suite, "rounds");
    if (broker_can_be_controlled())
        tcase_add_test(long_case(add_case(suite, "policies")),
                       by_the_policies_that_it_prints_rejections_come_back_to_the_queue_that_failed_alone);
    tcase_add_test(rounds, what_expired_or_was_delivered_too_often_is_parked_with_the_broker_s_word);
    tcase_add_test(rounds, what_a_full_queue_pushes_out_is_tried_again_where_that_is_set);
    tcase_add_test(rounds, what_is_dropped_by_setting_is_told_and_counted);
    TCase *strangers = add_case(suite, "strangers");
    tcase_add_test(strangers, what_a_stranger_publishes_leads_to_no_queue_that_is_not_served);
    tcase_add_test(strangers, a_record_that_a_client_republished_counts_nothing);
    TCase *losses = add_case(suite, "lost and found"), *slow = long_case(add_case(suite, "lost and found later"));
    tcase_set_timeout(losses, RESENT_LIMIT_S);
    tcase_set_timeout(slow, RESENT_LIMIT_S);
    tcase_add_test(slow, what_is_rejected_of_a_queue_that_was_deleted_is_put_aside_and_of_one_made_anew_comes_back);
    tcase_add_test(losses, several_relays_side_by_side_lose_nothing_where_one_is_killed_again_and_again);
    if (broker_can_be_controlled())
        tcase_add_test(slow, a_broker_that_is_killed_loses_nothing_of_a_quorum_queue);
    tcase_add_test(add_case(suite, "verifying"), verifying_tells_all_that_is_missing_and_makes_nothing);
    return suite;
}
