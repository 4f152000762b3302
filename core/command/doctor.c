/* backhop doctor: what is there, what differs, what will hurt. */
#include "doctor.h"

#include "command.h"
#include "declare.h"
#include "output.h"
#include "parked.h"

#include "wire/assembler.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { PROBE_MORE_MS = 10000, LONGEST_PROBE_MS = 10000 };

/* A probe that is on its way. */
typedef struct probing {
    bh__assembler assembler;
    int is_back;
} probing;

void doctor_find(doctor *self, int is_serious, const char *what, const char *meaning, const char *advice)
{
    self->findings++;
    self->serious += is_serious;
    if (self->json) {
        print_json(must(json_pack("{s:s, s:o, s:o, s:o}", "severity", is_serious ? "problem" : "note", "finding",
                                  json_text(bh_str(what)), "meaning", json_text(bh_str(meaning)), "advice",
                                  json_text(bh_str(advice)))));
        return;
    }
    printf("%s%s%s %s\n", paint(is_serious ? RED : YELLOW), is_serious ? "problem" : "note", paint(PLAIN), what);
    if (*meaning)
        printf("  %s\n", meaning);
    if (*advice)
        printf("  What to do: %s\n", advice);
}

void doctor_find_missing(doctor *self, const bh_topology *topology, const char *what, const char *meaning)
{
    char advice[400];
    snprintf(advice, sizeof advice, "'backhop topology declare %s' makes what is missing",
             bh_topology_queue(topology).data);
    doctor_find(self, 1, what, meaning, advice);
}

void doctor_praise(const doctor *self, const char *what)
{
    if (!self->json)
        printf("%sok%s %s\n", paint(GREEN), paint(PLAIN), what);
}

/* ------------------------------------------------------------------------------------------------------------ broker */

/* Known faults: of versions from the first up to, but not with, the second. The last one that fits. */
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
     "Dead letters of its quorum queues, which bring messages back from waits, can stop until the queue's leader "
     "starts anew; "
     "that was mended from 3.10.20 to 4.3.3, bit by bit.",
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

/* ------------------------------------------------------------------------------------------------------------ queues */

static void examine_topology(doctor *self, bh_topology *topology)
{
    bh__report report = {.status = BH_OK};
    bh_status status = declare_verify(self->connection, topology, &report);
    const char *queue = bh_topology_queue(topology).data;
    char what[400];
    snprintf(what, sizeof what, "The topology of \"%s\" is not as it has to be.", queue);
    if (status == BH_ERR_MISSING)
        doctor_find_missing(self, topology, what, bh__report_text(&report).data);
    else if (status != BH_OK && status != BH_ERR_CONNECTION)
        doctor_find(self, 1, what, bh__report_text(&report).data, "");
    snprintf(what, sizeof what, "The topology of \"%s\" is there.", queue);
    if (status == BH_OK)
        doctor_praise(self, what);
    bh__report_free(&report);
}

/* Whether a queue that is there counts deliveries, by the arguments that it was declared with. */
static int has_limit(const doctor *self, const bh_topology *topology, const char *queue)
{
    return declare_found_limit(self->connection, declare_compare(self->connection, topology, queue));
}

/* Whether the work queue drops what is given back too often. */
static void examine_limit(doctor *self, const char *queue)
{
    static const topology_options quorum = {.work_queue_type = "quorum"};
    static const policy_options usual = {.file = NULL};
    char what[400];
    bh_policy *policy = setup_policy(&usual);
    bh_topology *topology = setup_topology(&quorum, queue, policy);
    snprintf(what, sizeof what, "Work queue \"%s\" has a delivery limit of its own or RabbitMQ's.", queue);
    if (has_limit(self, topology, queue) && !doctor_sees_limit_raised(self, queue))
        doctor_find(self, 1, what,
                    "RabbitMQ 4 drops a message, or dead-letters it, that was given back more than 20 times, as by "
                    "consumers that crash or restart.",
                    "declare it with x-delivery-limit 1000000000, or set delivery-limit by a policy");
    bh_topology_free(topology);
    bh_policy_free(policy);
}

static void examine_depths(doctor *self, const depths *seen)
{
    for (size_t i = 0; i < seen->count; i++) {
        const depth *each = &seen->items[i];
        char what[400];
        snprintf(what, sizeof what, "\"%s\" has %lld messages.", each->name, (long long)each->ready);
        if (each->kind == DEPTH_WORK && each->ready > 0 && each->consumers == 0)
            doctor_find(self, 1, what, "Nobody consumes from this work queue.", "start a consumer");
        else if (each->kind == DEPTH_UNROUTABLE && each->ready > 0)
            doctor_find(self, 1, what, "Their work queue was gone when they came back.",
                        "declare the work queue; then a worker's replay sends home what is its own there");
        else if (each->kind == DEPTH_PARKED && each->ready > 0)
            doctor_find(self, 0, what, "They had their last attempt.", "'backhop parked list' tells why");
    }
}

/* Looks into a parked queue, as 'backhop parked list' does, for what Backhop did not park there. EX_OK, or the exit code. */
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
            strays += parked_read(&on, message) == BH_OK &&
                      (bh_history_parked(on.history).size == 0 || !bh_topology_owns(on.topology, on.delivery));
        code = snapshot_end(&shot);
    }
    if (strays > 0) {
        snprintf(what, sizeof what, "%s in \"%s\" %s not parked there by Backhop.", count_messages(text, strays),
                 on.queue, strays == 1 ? "was" : "were");
        doctor_find(
            self, 0, what,
            "Somebody moved or published them by hand. A replay sends them to this work queue, whichever they came "
            "from.",
            "'backhop parked list' groups them by what they tell; leave out those that are not meant by --where");
    }
    parked_end(&on);
    return code;
}

/* ------------------------------------------------------------------------------------------------------------- probes */

static void on_probe_frame(void *data, const bh__frame *frame, const amqp_method_t *method)
{
    probing *self = data;
    bh_message *message = NULL;
    if (frame->channel != CHANNEL_CONSUME)
        return;
    if (method && method->id == AMQP_BASIC_DELIVER_METHOD)
        bh__assembler_begin(&self->assembler, 1, 0, amqp_empty_bytes, amqp_empty_bytes);
    else if (!method && bh__assembler_add(&self->assembler, frame, &message) == BH_OK && message)
        self->is_back = 1;
    bh_message_free(message);
}

/* A queue of this connection's own, bound to the return exchange as a work queue is. Its name. */
static bh_status make_throw_away(doctor *self, const char *exchange, char name[256], char key[300])
{
    amqp_queue_declare_t declare = {.exclusive = 1, .auto_delete = 1};
    bh_status status = connection_open_channel(self->connection, CHANNEL_CONSUME);
    if (status == BH_OK)
        status = connection_call(self->connection, CHANNEL_CONSUME, AMQP_QUEUE_DECLARE_METHOD, &declare,
                                 AMQP_QUEUE_DECLARE_OK_METHOD, 0, "declaring a throw-away queue");
    if (status != BH_OK)
        return status;
    const amqp_queue_declare_ok_t *ok = self->connection->link.reply.decoded;
    snprintf(name, 256, "%.*s", (int)ok->queue.len, (const char *)ok->queue.bytes);
    snprintf(key, 300, "backhop:%s", name);
    amqp_queue_bind_t bind = {.queue = amqp_cstring_bytes(name),
                              .exchange = amqp_cstring_bytes(exchange),
                              .routing_key = amqp_cstring_bytes(key)};
    status = connection_call(self->connection, CHANNEL_CONSUME, AMQP_QUEUE_BIND_METHOD, &bind,
                             AMQP_QUEUE_BIND_OK_METHOD, 0, "binding a throw-away queue");
    amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(name), .no_ack = 1, .exclusive = 1};
    return status == BH_OK ? connection_call(self->connection, CHANNEL_CONSUME, AMQP_BASIC_CONSUME_METHOD, &consume,
                                             AMQP_BASIC_CONSUME_OK_METHOD, 0, "consuming from a throw-away queue")
                           : status;
}

/* Properties with a header BCC of one key, as copies have it. */
static void put_probe_properties(bh__buffer *out, const char *key)
{
    size_t size = strlen(key);
    if (!bh__buffer_reserve(out, size + 64))
        must(NULL);
    bh__put_number(out, 1u << (15 - BH_PROPERTY_HEADERS), 2);
    bh__put_number(out, 4 + 1 + 4 + 1 + 4 + size, 4);
    bh__put_number(out, 3, 1);
    bh__put_bytes(out, bh_str("BCC"));
    bh__put_number(out, BH_TYPE_ARRAY, 1);
    bh__put_number(out, 1 + 4 + size, 4);
    bh__put_number(out, BH_TYPE_STRING, 1);
    bh__put_number(out, size, 4);
    bh__put_bytes(out, bh_str(key));
}

/* Sends a probe by a rung, and waits for it. */
static void try_rung(doctor *self, probing *probe, const char *rung, int64_t wait_ms, const char *key)
{
    char what[400], wait[TIME_TEXT];
    bh__buffer properties = {.data = NULL};
    amqp_basic_publish_t publish = {.exchange = amqp_cstring_bytes(rung)};
    int64_t until_ms = bh__monotonic_ms() + wait_ms + PROBE_MORE_MS;
    bh_status status = BH_OK;
    probe->is_back = 0;
    put_probe_properties(&properties, key);
    bh__link_publish(&self->connection->link, CHANNEL_CONSUME, &publish,
                     (bh_bytes){properties.data, bh__buffer_size(&properties)}, bh_str("backhop doctor"));
    bh__buffer_free(&properties);
    while (status == BH_OK && !probe->is_back && bh__monotonic_ms() < until_ms && !is_interrupted())
        status = connection_pump(self->connection, until_ms);
    if (status != BH_OK || is_interrupted())
        return;
    show_duration(wait, wait_ms);
    snprintf(what, sizeof what, "A probe came back by wait queue \"%s\".", rung);
    if (probe->is_back)
        doctor_praise(self, what);
    snprintf(what, sizeof what, "A probe on wait queue \"%s\" did not come back 10 s after its %s.", rung, wait);
    if (!probe->is_back)
        doctor_find(
            self, 1, what,
            "The wait queue is stuck, or does not lead to the return exchange: retries by it do not come back now.",
            "verify the topology; after a crash of the broker wait three minutes; else restart the leader of this "
            "queue");
}

static void examine_way_home(doctor *self, const bh_topology *topology, const depths *seen)
{
    char name[256], key[300];
    probing probe = {.is_back = 0};
    const char *exchange = NULL;
    for (size_t i = 0; i < bh_topology_count(topology); i++)
        if (bh_topology_declaration(topology, i) == BH_DECLARE_BINDING &&
            strcmp(bh_topology_name(topology, i).data, bh_topology_queue(topology).data) == 0)
            exchange = bh_topology_source(topology, i).data;
    if (bh_topology_strategy(topology) != BH_STRATEGY_LADDER || !exchange)
        return;
    self->connection->on_frame = on_probe_frame;
    self->connection->data = &probe;
    bh_status status = make_throw_away(self, exchange, name, key);
    if (status == BH_ERR_ACCESS)
        doctor_find(self, 0, "The way home was not tried: this user may not declare a queue or bind it.", "",
                    "ask with a user who may");
    int is_tried = 0;
    for (size_t i = 0; status == BH_OK && i < seen->count && !bh__link_is_broken(&self->connection->link); i++) {
        const depth *each = &seen->items[i];
        int is_meant = each->kind == DEPTH_WAITING && each->ready >= 0 && each->wait_ms <= self->patience_ms;
        if (is_meant && (!is_tried || each->ready > 0)) {
            try_rung(self, &probe, each->name, each->wait_ms, key);
            is_tried = 1;
        }
    }
    if (status == BH_OK)
        connection_close_channel(self->connection, CHANNEL_CONSUME);
    self->connection->on_frame = NULL;
    bh__assembler_clear(&probe.assembler);
}

/* -------------------------------------------------------------------------------------------------------------- main */

/* How much of a parked queue is looked into: as much as comes back in order whatever happens. */
static int is_short(const depth *queue)
{
    return queue->ready > 0 && queue->ready <= SNAPSHOT_PREFETCH;
}

/* The queues of a work queue that are its own. */
static int examine_own(doctor *self, const bh_topology *topology, const depths *seen)
{
    const char *queue = bh_topology_queue(topology).data, *shelf = bh_topology_parked_queue(topology).data;
    int code = EX_OK;
    for (size_t i = 0; i < seen->count && code == EX_OK; i++) {
        const depth *each = &seen->items[i];
        if (each->ready >= 0 && each->kind == DEPTH_WORK && strcmp(each->name, queue) == 0)
            examine_limit(self, queue);
        else if (each->kind == DEPTH_PARKED && strcmp(each->name, shelf) == 0 && is_short(each) &&
                 !has_limit(self, topology, shelf))
            code = examine_parked(self, shelf);
    }
    return code;
}

static int examine_work_queue(doctor *self, const char *queue, const depths *seen, int is_first)
{
    bh_policy *policy = setup_policy(&self->policy);
    bh_topology *topology = setup_topology(&self->topology, queue, policy);
    examine_topology(self, topology);
    int code = examine_own(self, topology, seen);
    if (code == EX_OK && self->management)
        code = doctor_see_topology(self, topology, seen);
    if (code == EX_OK && is_first)
        examine_way_home(self, topology, seen);
    bh_topology_free(topology);
    bh_policy_free(policy);
    return code;
}

static int examine(doctor *self, const queue_names *queues)
{
    depths seen;
    depths_plan(&seen, &self->topology, &self->policy, queues->items, queues->count);
    examine_broker(self);
    bh_status status = depths_read(&seen, self->connection);
    int code = status == BH_OK && self->management ? doctor_see_cluster(self, &seen) : EX_OK;
    for (int i = 0; code == EX_OK && status == BH_OK && i < queues->count && !is_interrupted(); i++) {
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
    doctor self = {.patience_ms = LONGEST_PROBE_MS};
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
        "Looks for what will hurt: the broker's version, a topology that differs, delivery limits, queues that nobody\n"
        "consumes, parked messages that were moved by hand, and wait queues that do not bring messages back: a probe\n"
        "goes through them into a throw-away queue. With --management also arguments, bindings, policies, nodes and\n"
        "shovels, which AMQP cannot see. Ends with 69 where it finds a problem.\n");
    queue_names queues;
    int code = management_name_queues(&queues, self.management_url, &self.broker, count - at, arguments + at);
    if (code != EX_OK)
        return code;
    catch_interrupts();
    self.examined = must(json_object());
    if (self.management_url)
        code = management_open(&self.management, self.management_url, &self.broker);
    if (code == EX_OK)
        code = connection_open(&self.connection, &self.broker, "doctor");
    if (code == EX_OK)
        code = examine(&self, &queues);
    connection_close(self.connection);
    management_close(self.management);
    json_decref(self.examined);
    queue_names_free(&queues);
    return output_end(code);
}
