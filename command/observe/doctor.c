/* backhop doctor: finds problems of the broker, topology and queues. */
#include "observe/probes.h"
#include "observe/survey.h"
#include "observe/traffic.h"

#include "common/command.h"
#include "setup/declare.h"
#include "common/output.h"
#include "parked/parked.h"
#include "topology/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { PATIENCE_MS = 10000 };

/* --------------------------------------------------------------------------------------- broker */

/* Known faults: of versions from the first up to, but not with, the second. The last one that
 * fits. */
static const struct {
    int from[3], to[3];
    int is_serious;
    const char *meaning, *advice;
} faults[] = {
    {{0, 0, 0},
     {3, 10, 0},
     1,
     "Its quorum queues know no time to live, so that there is no ladder of them.",
     "upgrade, or take queue type classic"},
    {{3, 10, 0},
     {4, 2, 7},
     0,
     "Dead letters of its quorum queues, which bring messages back from wait queues, can stop until the queue's leader "
     "starts anew; RabbitMQ repaired that step by step, from 3.10.20 to 4.3.3.",
     "upgrade to 4.2.7, or 4.3.3, or newer"},
    {{3, 13, 0},
     {3, 13, 3},
     1,
     "3.13.0 to 3.13.2 can drop messages that go round by dead letters.",
     "upgrade to 3.13.7 or newer"},
    {{4, 3, 0},
     {4, 3, 3},
     0,
     "Below 4.3.3 dead letters of quorum queues can stay behind when a leader changes.",
     "upgrade to 4.3.3 or newer"},
};

static int is_below(const int one[3], const int other[3])
{
    for (int i = 0; i < 3; i++)
        if (one[i] != other[i])
            return one[i] < other[i];
    return 0;
}

static void examine_broker(doctor *self)
{
    const connection *broker = self->connection;
    int version[3] = {0, 0, 0};
    size_t fault = sizeof faults / sizeof faults[0];
    char what[256];
    snprintf(what, sizeof what, "The broker is %s %s.", broker->link.product, broker->link.version);
    if (strcmp(broker->link.product, "RabbitMQ") != 0) {
        doctor_find(self, 1, what, "Retries were tested on RabbitMQ alone.",
                    "try the topology on it before you rely on it");
        return;
    }
    sscanf(broker->link.version, "%d.%d.%d", &version[0], &version[1], &version[2]); /* NOLINT(cert-err34-c) */
    while (fault > 0 && (is_below(version, faults[fault - 1].from) || !is_below(version, faults[fault - 1].to)))
        fault--;
    if (fault > 0)
        doctor_find(self, faults[fault - 1].is_serious, what, faults[fault - 1].meaning, faults[fault - 1].advice);
    else
        doctor_praise(self, what);
}

/* --------------------------------------------------------------------------------------- queues */

/* Returns 1 if the namespace has a wait queue, or may have one: only the management API lists all
 * wait queues. */
static int may_have_wait_queues(const doctor *self, const depths *seen)
{
    for (size_t i = 0; i < seen->count; i++)
        if (seen->items[i].kind == DEPTH_WAITING && seen->items[i].ready >= 0)
            return 1;
    return !self->management;
}

static void note_other_policy(doctor *self, const char *queue)
{
    char what[400];
    snprintf(what, sizeof what, "\"%s\" lacks wait queues of the default policy.", queue);
    doctor_find(self, 0, what,
                "Without --policy, the default policy is checked. The consumer may use another policy, which has other "
                "wait queues.",
                "pass the consumer's policy: --policy FILE");
}

static void find_refused(doctor *self, const char *queue, const char *meaning)
{
    char what[400];
    snprintf(what, sizeof what, "The topology of \"%s\" cannot be checked: access is refused.", queue);
    doctor_find(self, 1, what, meaning,
                "grant this user the permission to read the queues and exchanges of the topology, or repeat this as "
                "another user");
}

static void examine_topology(doctor *self, bh_topology *topology, const depths *seen)
{
    bh__report report = {.status = BH_OK};
    bh_status status = declare_verify(self->connection, topology, &report);
    int is_guessed = status == BH_ERR_MISSING && !self->policy.file && may_have_wait_queues(self, seen);
    if (is_guessed)
        status = declare_verify_fixed(self->connection, topology, &report);
    const char *queue = bh__topology_queue(topology).data;
    char what[400];
    snprintf(what, sizeof what, "The topology of \"%s\" is not as it has to be.", queue);
    if (status == BH_ERR_MISSING)
        doctor_find_missing(self, topology, what, bh__report_text(&report).data);
    else if (status == BH_ERR_ACCESS)
        find_refused(self, queue, bh__report_text(&report).data);
    else if (status != BH_OK && status != BH_ERR_CONNECTION)
        doctor_find(self, 1, what, bh__report_text(&report).data, "");
    snprintf(what, sizeof what, "The topology of \"%s\" is there.", queue);
    if (status == BH_OK && is_guessed)
        note_other_policy(self, queue);
    else if (status == BH_OK)
        doctor_praise(self, what);
    bh__report_free(&report);
}

/* Returns 1 if a queue's arguments let it count deliveries; *limit as of declare_found_limit. */
static int has_limit(const doctor *self, const bh_topology *topology, const char *queue, int64_t *limit)
{
    return declare_found_limit(self->connection, declare_compare(self->connection, topology, queue), limit);
}

/* Reports a limit of the queue's own. One above RabbitMQ's own is a note. */
static void find_own_limit(doctor *self, const char *queue, int64_t limit)
{
    char what[400];
    snprintf(what, sizeof what, "Work queue \"%s\" has a delivery limit of its own, %lld.", queue, (long long)limit);
    doctor_find(self, limit <= USUAL_LIMIT, what,
                "RabbitMQ drops a message, or dead-letters it, that was given back more often, as by consumers that "
                "crash or restart.",
                "check that the limit is meant; a queue without one has x-delivery-limit 1000000000, or -1");
}

static void find_usual_limit(doctor *self, const char *queue)
{
    char what[400], meaning[400];
    snprintf(what, sizeof what, "Work queue \"%s\" has RabbitMQ's delivery limit.", queue);
    snprintf(meaning, sizeof meaning,
             "RabbitMQ 4 drops a message, or dead-letters it, that was given back more than %d times, as by consumers "
             "that crash or restart.%s",
             USUAL_LIMIT,
             self->management ? "" : " AMQP does not show a policy that sets another limit; --management does.");
    doctor_find(self, 1, what, meaning,
                "declare it with x-delivery-limit 1000000000, or set delivery-limit by a policy");
}

/* Reports a work queue that drops messages which are given back too often. */
static void examine_limit(doctor *self, const char *queue)
{
    static const topology_options quorum = {.work_queue_type = "quorum"};
    static const policy_options usual = {.file = NULL};
    int64_t limit;
    bh_policy *policy = setup_policy(&usual);
    bh_topology *topology = setup_topology(&quorum, queue, policy);
    int is_limited = has_limit(self, topology, queue, &limit);
    if (is_limited && limit > 0)
        find_own_limit(self, queue, limit);
    else if (is_limited && !survey_has_limit(self, queue))
        find_usual_limit(self, queue);
    bh_topology_free(topology);
    bh_policy_free(policy);
}

static void find_foreign_consumer(doctor *self, const depth *queue)
{
    char what[400];
    snprintf(what, sizeof what, "%lld %s from wait queue \"%s\".", (long long)queue->consumers,
             queue->consumers == 1 ? "consumer takes messages" : "consumers take messages", queue->name);
    doctor_find(self, 1, what, "Retries that it takes do not come back to their work queues.",
                "stop that consumer; 'rabbitmqctl list_consumers queue_name channel_pid' names it");
}

static void find_unroutable(doctor *self, const depth *queue, const char *what)
{
    char advice[ARGUMENT_TEXT + 80], name[ARGUMENT_TEXT];
    snprintf(advice, sizeof advice, "declare the work queues, then 'backhop parked replay %s' returns them",
             show_argument(name, queue->name));
    doctor_find(self, 1, what, "Their work queue was gone when they came back.", advice);
}

static void find_parked(doctor *self, const depth *queue, const char *what)
{
    char advice[ARGUMENT_TEXT + 40], name[ARGUMENT_TEXT];
    snprintf(advice, sizeof advice, "'backhop parked list %s' shows why", show_argument(name, queue->work_queue));
    doctor_find(self, 0, what, "They had their last attempt.", advice);
}

static void examine_depths(doctor *self, const depths *seen)
{
    for (size_t i = 0; i < seen->count; i++) {
        const depth *each = &seen->items[i];
        char what[400];
        snprintf(what, sizeof what, "\"%s\" has %lld messages.", each->name, (long long)each->ready);
        if (each->kind == DEPTH_WAITING && each->consumers > 0)
            find_foreign_consumer(self, each);
        else if (each->kind == DEPTH_WORK && each->ready > 0 && each->consumers == 0)
            doctor_find(self, 1, what, "This work queue has no consumer.", "start a consumer");
        else if (each->kind == DEPTH_UNROUTABLE && each->ready > 0)
            find_unroutable(self, each, what);
        else if (each->kind == DEPTH_PARKED && each->ready > 0)
            find_parked(self, each, what);
    }
}

/* Returns 1 if Backhop parked the message that was read last in this queue. */
static int is_parked_by_backhop(const parked *on)
{
    bh_past past;
    bh_history_past(on->history, &past);
    return past.parked.size > 0 && bh_topology_owns(on->topology, on->delivery);
}

/* Looks into a parked queue, as 'backhop parked list' does, for what Backhop did not park there.
 * EX_OK, or the exit code. */
static int examine_parked(doctor *self, const char *queue)
{
    parked_options options = {.broker = self->broker, .topology = self->topology};
    parked on;
    snapshot shot;
    int64_t strays = 0;
    char what[400], text[64];
    parked_begin(&on, &options, self->connection);
    int code = parked_go_to(&on, queue);
    if (code == EX_OK && (code = snapshot_begin(&shot, on.broker, on.queue)) == EX_OK) {
        for (bh_message *message; (message = snapshot_next(&shot)) != NULL; bh_message_free(message))
            strays += parked_read(&on, message) == BH_OK && !is_parked_by_backhop(&on);
        code = snapshot_end(&shot);
    }
    if (strays > 0) {
        snprintf(what, sizeof what, "%s in \"%s\" %s not parked there by Backhop.", count_messages(text, strays),
                 on.queue, strays == 1 ? "was" : "were");
        doctor_find(
            self, 0, what,
            "Somebody moved or published them by hand. A replay sends them to this work queue, whichever they came "
            "from.",
            "'backhop parked list' groups them; exclude them with --where if you replay the others");
    }
    parked_end(&on);
    return code;
}

/* ----------------------------------------------------------------------------------------- main */

/* How much of a parked queue is looked into: as much as comes back in order whatever happens. */
static int is_short(const depth *queue)
{
    return queue->ready > 0 && queue->ready <= SNAPSHOT_PREFETCH;
}

/* The queues of a work queue that are its own. */
static int examine_own(doctor *self, const bh_topology *topology, const depths *seen)
{
    const char *queue = bh__topology_queue(topology).data, *parked_queue = bh__topology_parked_queue(topology).data;
    int64_t limit;
    int code = EX_OK;
    for (size_t i = 0; i < seen->count && code == EX_OK; i++) {
        const depth *each = &seen->items[i];
        if (each->ready >= 0 && each->kind == DEPTH_WORK && strcmp(each->name, queue) == 0)
            examine_limit(self, queue);
        else if (each->kind == DEPTH_PARKED && strcmp(each->name, parked_queue) == 0 && is_short(each) &&
                 !has_limit(self, topology, parked_queue, &limit))
            code = examine_parked(self, parked_queue);
    }
    return code;
}

static int examine_work_queue(doctor *self, const char *queue, const depths *seen, int is_first)
{
    bh_policy *policy = setup_policy(&self->policy);
    bh_topology *topology = setup_topology(&self->topology, queue, policy);
    examine_topology(self, topology, seen);
    int code = examine_own(self, topology, seen);
    if (code == EX_OK && self->management)
        code = survey_topology(self, topology, seen);
    if (code == EX_OK && self->management)
        code = traffic_examine(self, topology);
    if (code == EX_OK && is_first)
        send_probes(self, topology, seen);
    bh_topology_free(topology);
    bh_policy_free(policy);
    return code;
}

static int examine(doctor *self, const queue_names *queues)
{
    depths seen;
    depths_plan(&seen, &self->topology, &self->policy, queues->items, queues->count);
    depths_find(&seen, self->management);
    examine_broker(self);
    bh_status status = depths_read(&seen, self->connection);
    int code = status == BH_OK && self->management ? survey_cluster(self, &seen) : EX_OK;
    for (int i = 0; code == EX_OK && status == BH_OK && i < queues->count && !is_interrupted(); i++) {
        if (self->connection->link.is_blocked)
            break; /* no further call is answered */
        code = examine_work_queue(self, queues->items[i], &seen, i == 0);
        if (bh__link_is_broken(&self->connection->link))
            status = BH_ERR_CONNECTION;
    }
    examine_depths(self, &seen);
    depths_free(&seen);
    if (status != BH_OK)
        return connection_complain(self->connection);
    if (code != EX_OK)
        return code;
    if (is_interrupted())
        return EXIT_INTERRUPTED;
    if (!self->json)
        printf("%d problems, %d notes\n", self->serious, self->findings - self->serious);
    return self->serious ? EX_UNAVAILABLE : EX_OK;
}

int doctor_main(int count, char **arguments)
{
    doctor self = {.patience_ms = PATIENCE_MS};
    const option_rule rules[] = {
        {"patience", 0, OPTION_DURATION, "TIME", "try wait queues of delays up to this [10s]", &self.patience_ms},
        {"policy", 'p', OPTION_TEXT, "FILE", "JSON of the work queue's policy", &self.policy.file},
        TOPOLOGY_OPTIONS(&self.topology),
        MANAGEMENT_OPTION(&self.management_url),
        BROKER_OPTIONS(&self.broker),
        JSON_OPTION(&self.json),
    };
    int at = options_read(
        count, arguments, rules, sizeof rules / sizeof rules[0], "[QUEUE...]",
        "Looks for problems: the broker's version, a topology that differs, delivery limits, queues "
        "without consumers, parked messages that were moved by hand, and wait queues that do not bring messages back: "
        "a probe goes through them into a throw-away queue. With --management also arguments, bindings, policies, "
        "nodes and shovels, which AMQP cannot read. Ends with 69 if it finds a problem.\n");
    queue_names queues;
    self.management_url = management_url(self.management_url);
    int code = management_name_queues(&queues, self.management_url, &self.broker, count - at, arguments + at);
    if (code != EX_OK)
        return code;
    catch_interrupts();
    setvbuf(stdout, NULL, _IOLBF, 0); /* each finding at once: the next step can take long */
    self.examined = must(json_object());
    if (self.management_url)
        code = management_open(&self.management, self.management_url, &self.broker);
    if (code == EX_OK)
        code = connection_open(&self.connection, &self.broker, "doctor");
    if (code == EX_OK)
        code = examine(&self, &queues);
    connection_close(self.connection);
    policies_free(&self.policies);
    management_close(self.management);
    json_decref(self.examined);
    queue_names_free(&queues);
    return output_end(code);
}
