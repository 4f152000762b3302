/* backhop doctor: what is there, what differs, what will hurt. */
#include "command.h"
#include "declare.h"
#include "depths.h"
#include "output.h"

#include "wire/assembler.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { PROBE_MORE_MS = 10000, LONGEST_PROBE_MS = 10000 };

typedef struct doctor {
    broker_options broker;
    topology_options topology;
    policy_options policy;
    int64_t patience_ms; /* rungs up to this are tried */
    int json;
    connection *connection;
    int findings;
    int serious;
    bh__assembler probe;
    int is_back;
} doctor;

/* One finding: what it is, what it means, what to do. */
static void find(doctor *self, int is_serious, const char *what, const char *meaning, const char *advice)
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

/* ------------------------------------------------------------------------------------------------------------ broker */

static int is_between(const connection *broker, int major, int minor, int below_patch)
{
    int is_major = 0, is_minor = 0, is_patch = 0;
    int read = sscanf(broker->link.version, "%d.%d.%d", &is_major, &is_minor, &is_patch); /* NOLINT(cert-err34-c) */
    return read == 3 && is_major == major && is_minor == minor && is_patch < below_patch;
}

static void examine_broker(doctor *self)
{
    const connection *broker = self->connection;
    char what[256];
    snprintf(what, sizeof what, "The broker is %s %s.", broker->link.product, broker->link.version);
    if (strcmp(broker->link.product, "RabbitMQ") != 0)
        find(self, 1, what, "Retries were tested on RabbitMQ alone.", "try the topology on it before you rely on it");
    else if (!connection_is_at_least(broker, 3, 10))
        find(self, 1, what, "Its quorum queues know no time to live, so that there is no ladder of them.",
             "upgrade, or take queue type classic");
    else if (is_between(broker, 4, 3, 3))
        find(self, 0, what, "Below 4.3.3 dead letters of quorum queues can stay behind when a leader changes.",
             "upgrade to 4.3.3 or newer");
    else if (is_between(broker, 3, 13, 3))
        find(self, 0, what, "3.13.0 to 3.13.2 can drop messages that go round by dead letters.",
             "upgrade to 3.13.7 or newer");
    else if (!self->json)
        printf("%sok%s %s\n", paint(GREEN), paint(PLAIN), what);
}

/* ------------------------------------------------------------------------------------------------------------ queues */

static void examine_topology(doctor *self, bh_topology *topology)
{
    bh__report report = {.status = BH_OK};
    bh_status status = declare_topology(self->connection, topology, BH_MODE_VERIFY, &report);
    const char *queue = bh_topology_queue(topology).data;
    char what[400], advice[400];
    snprintf(what, sizeof what, "The topology of \"%s\" is not as it has to be.", queue);
    snprintf(advice, sizeof advice, "'backhop topology declare %s' makes what is missing", queue);
    if (status != BH_OK && status != BH_ERR_CONNECTION)
        find(self, 1, what, bh__report_text(&report).data, status == BH_ERR_MISSING ? advice : "");
    else if (status == BH_OK && !self->json)
        printf("%sok%s The topology of \"%s\" is there.\n", paint(GREEN), paint(PLAIN), queue);
    bh__report_free(&report);
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
    if (declare_found_limit(self->connection, declare_compare(self->connection, topology, queue)))
        find(self, 1, what,
             "RabbitMQ 4 drops a message, or dead-letters it, that was given back more than 20 times, as by consumers "
             "that crash or restart.",
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
            find(self, 1, what, "Nobody consumes from this work queue.", "start a consumer");
        else if (each->kind == DEPTH_UNROUTABLE && each->ready > 0)
            find(self, 1, what, "Their work queue was gone when they came back.",
                 "declare the work queue; then a worker's replay sends home what is its own there");
        else if (each->kind == DEPTH_PARKED && each->ready > 0)
            find(self, 0, what, "They had their last attempt.", "'backhop parked list' tells why");
    }
}

/* ------------------------------------------------------------------------------------------------------------- probes */

static void on_probe_frame(void *data, const bh__frame *frame, const amqp_method_t *method)
{
    doctor *self = data;
    bh_message *message = NULL;
    if (frame->channel != CHANNEL_CONSUME)
        return;
    if (method && method->id == AMQP_BASIC_DELIVER_METHOD)
        bh__assembler_begin(&self->probe, 1, 0, amqp_empty_bytes, amqp_empty_bytes);
    else if (!method && bh__assembler_add(&self->probe, frame, &message) == BH_OK && message)
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
static void try_rung(doctor *self, const char *rung, int64_t wait_ms, const char *key)
{
    char what[400], wait[TIME_TEXT];
    bh__buffer properties = {.data = NULL};
    amqp_basic_publish_t publish = {.exchange = amqp_cstring_bytes(rung)};
    int64_t until_ms = bh__monotonic_ms() + wait_ms + PROBE_MORE_MS;
    bh_status status = BH_OK;
    self->is_back = 0;
    put_probe_properties(&properties, key);
    bh__link_publish(&self->connection->link, CHANNEL_CONSUME, &publish,
                     (bh_bytes){properties.data, bh__buffer_size(&properties)}, bh_str("backhop doctor"));
    bh__buffer_free(&properties);
    while (status == BH_OK && !self->is_back && bh__monotonic_ms() < until_ms && !is_interrupted())
        status = connection_pump(self->connection, until_ms);
    if (status != BH_OK || is_interrupted())
        return;
    show_duration(wait, wait_ms);
    if (self->is_back && !self->json)
        printf("%sok%s A probe came back by wait queue \"%s\".\n", paint(GREEN), paint(PLAIN), rung);
    snprintf(what, sizeof what, "A probe on wait queue \"%s\" did not come back 10 s after its %s.", rung, wait);
    if (!self->is_back)
        find(self, 1, what,
             "The wait queue is stuck, or does not lead to the return exchange: retries by it do not come back now.",
             "verify the topology; after a crash of the broker wait three minutes; else restart the leader of this "
             "queue");
}

static void examine_way_home(doctor *self, const bh_topology *topology, const depths *seen)
{
    char name[256], key[300];
    const char *exchange = NULL;
    for (size_t i = 0; i < bh_topology_count(topology); i++)
        if (bh_topology_declaration(topology, i) == BH_DECLARE_BINDING &&
            strcmp(bh_topology_name(topology, i).data, bh_topology_queue(topology).data) == 0)
            exchange = bh_topology_source(topology, i).data;
    if (bh_topology_strategy(topology) != BH_STRATEGY_LADDER || !exchange)
        return;
    self->connection->on_frame = on_probe_frame;
    self->connection->data = self;
    bh_status status = make_throw_away(self, exchange, name, key);
    if (status == BH_ERR_ACCESS)
        find(self, 0, "The way home was not tried: this user may not declare a queue or bind it.", "",
             "ask with a user who may");
    int is_tried = 0;
    for (size_t i = 0; status == BH_OK && i < seen->count && !bh__link_is_broken(&self->connection->link); i++) {
        const depth *each = &seen->items[i];
        int is_meant = each->kind == DEPTH_WAITING && each->ready >= 0 && each->wait_ms <= self->patience_ms;
        if (is_meant && (!is_tried || each->ready > 0)) {
            try_rung(self, each->name, each->wait_ms, key);
            is_tried = 1;
        }
    }
    if (status == BH_OK)
        connection_close_channel(self->connection, CHANNEL_CONSUME);
    self->connection->on_frame = NULL;
    bh__assembler_clear(&self->probe);
}

/* -------------------------------------------------------------------------------------------------------------- main */

static int examine(doctor *self, char **queues, int count)
{
    depths seen;
    depths_plan(&seen, &self->topology, &self->policy, queues, count);
    examine_broker(self);
    bh_status status = depths_read(&seen, self->connection);
    for (int i = 0; status == BH_OK && i < count && !is_interrupted(); i++) {
        bh_policy *policy = setup_policy(&self->policy);
        bh_topology *topology = setup_topology(&self->topology, queues[i], policy);
        examine_topology(self, topology);
        for (size_t j = 0; j < seen.count; j++)
            if (seen.items[j].kind == DEPTH_WORK && seen.items[j].ready >= 0 &&
                strcmp(seen.items[j].name, queues[i]) == 0)
                examine_limit(self, queues[i]);
        if (i == 0)
            examine_way_home(self, topology, &seen);
        bh_topology_free(topology);
        bh_policy_free(policy);
        if (bh__link_is_broken(&self->connection->link))
            status = BH_ERR_CONNECTION;
    }
    examine_depths(self, &seen);
    depths_free(&seen);
    if (status != BH_OK)
        return connection_complain(self->connection);
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
        BROKER_OPTIONS(&self.broker),
        JSON_OPTION(&self.json),
    };
    int at = options_read(
        count, arguments, rules, sizeof rules / sizeof rules[0], "QUEUE...",
        "Looks for what will hurt: the broker's version, a topology that differs, delivery limits, queues that nobody\n"
        "consumes, and wait queues that do not bring messages back: a probe goes through them into a throw-away\n"
        "queue. Ends with 69 where it finds a problem. Policies of the broker cannot be seen by AMQP.\n");
    if (at >= count)
        options_refuse("which work queue?");
    catch_interrupts();
    int code = connection_open(&self.connection, &self.broker, "doctor");
    if (code == EX_OK)
        code = examine(&self, arguments + at, count - at);
    connection_close(self.connection);
    return output_end(code);
}
