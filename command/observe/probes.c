#include "observe/probes.h"

#include "common/output.h"

#include "worker/wire/assembler.h"
#include "topology/internal.h"

#include <backhop/adapter/delivery.h>
#include <stdlib.h>
#include <string.h>

enum { PROBE_MORE_MS = 10000 };

/* Probes that are on their way. The body of each names its wait queue. */
typedef struct probes {
    bh__assembler assembler;
    const depths *seen;
    char *is_missing; /* by the index in `seen` */
    size_t missing;
    int64_t longest_ms; /* of their delays */
} probes;

static void note_return(probes *self, bh_bytes body)
{
    for (size_t i = 0; i < self->seen->count; i++)
        if (self->is_missing[i] && bh__same(body, bh_str(self->seen->items[i].name))) {
            self->is_missing[i] = 0;
            self->missing--;
        }
}

static void on_probe_frame(void *data, const bh__frame *frame, const amqp_method_t *method)
{
    probes *self = data;
    bh_message *message = NULL;
    if (frame->channel != CHANNEL_CONSUME)
        return;
    if (method && method->id == AMQP_BASIC_DELIVER_METHOD)
        bh__assembler_begin(&self->assembler, 1, 0, amqp_empty_bytes, amqp_empty_bytes);
    else if (!method && bh__assembler_add(&self->assembler, frame, &message) == BH_OK && message)
        note_return(self, bh_message_body(message));
    bh_message_free(message);
}

/* A queue of this connection's own, bound to the return exchange as a work queue is. Its name. */
static bh_status make_probe_queue(doctor *self, const char *exchange, char name[256], char key[300])
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

static int is_probed(const doctor *self, const depth *queue)
{
    return queue->kind == DEPTH_WAITING && !queue->is_found && queue->ready >= 0 && queue->wait_ms <= self->patience_ms;
}

static void publish_all(doctor *self, probes *sent, const char *key)
{
    bh__buffer properties = {.data = NULL};
    put_probe_properties(&properties, key);
    for (size_t i = 0; i < sent->seen->count; i++) {
        const depth *each = &sent->seen->items[i];
        amqp_basic_publish_t publish = {.exchange = amqp_cstring_bytes(each->name)};
        if (!is_probed(self, each))
            continue;
        bh__link_publish(&self->connection->link, CHANNEL_CONSUME, &publish,
                         (bh_bytes){properties.data, bh__buffer_size(&properties)}, bh_str(each->name));
        sent->is_missing[i] = 1;
        sent->missing++;
        if (each->wait_ms > sent->longest_ms)
            sent->longest_ms = each->wait_ms;
    }
    bh__buffer_free(&properties);
}

static void report_probe(doctor *self, const depth *queue, int is_missing)
{
    char what[400], wait[TIME_TEXT];
    show_duration(wait, queue->wait_ms);
    if (!is_missing) {
        snprintf(what, sizeof what, "A probe came back by wait queue \"%s\".", queue->name);
        doctor_praise(self, what);
        return;
    }
    snprintf(what, sizeof what, "A probe on wait queue \"%s\" did not come back 10 s after its %s.", queue->name, wait);
    doctor_find(
        self, 1, what,
        "The wait queue is stuck, or its dead letters do not go to the return exchange: its retries do not come back.",
        "verify the topology; after a crash of the broker wait three minutes; else restart the leader of this "
        "queue");
}

static void report_all(doctor *self, const probes *sent)
{
    if (sent->missing && self->connection->link.is_blocked) {
        doctor_find(self, 1, "The broker has a memory or disk alarm: it takes no publishes.",
                    "No retry can be published until the alarm ends. The probes were not sent on.",
                    "free memory or disk on the broker; 'rabbitmq-diagnostics alarms' names the node");
        return;
    }
    for (size_t i = 0; i < sent->seen->count; i++)
        if (is_probed(self, &sent->seen->items[i]))
            report_probe(self, &sent->seen->items[i], sent->is_missing[i]);
}

static void probe_all(doctor *self, probes *sent, const char *key)
{
    bh_status status = BH_OK;
    publish_all(self, sent, key);
    int64_t until_ms = bh__monotonic_ms() + sent->longest_ms + PROBE_MORE_MS;
    while (status == BH_OK && sent->missing && bh__monotonic_ms() < until_ms && !is_interrupted() &&
           !self->connection->link.is_blocked)
        status = connection_pump(self->connection, until_ms);
    if (status == BH_OK && !is_interrupted())
        report_all(self, sent);
}

/* ---------------------------------------------------------------------------------- permissions */

/*
 * Returns 1 unless the broker refuses this user to write to an exchange, without a message: unbinds
 * a binding that does not exist. RabbitMQ checks the permission to write to the destination first,
 * and names it in a refusal. CHANNEL_CALL is open, and stays so.
 */
static int may_publish(doctor *self, const char *exchange, bh_status *status)
{
    char refused[300];
    amqp_exchange_unbind_t unbind = {.destination = amqp_cstring_bytes(exchange),
                                     .source = amqp_cstring_bytes("amq.direct"),
                                     .routing_key = amqp_cstring_bytes("backhop-probe")};
    connection *broker = self->connection;
    bh_status given = connection_call(broker, CHANNEL_CALL, AMQP_EXCHANGE_UNBIND_METHOD, &unbind,
                                      AMQP_EXCHANGE_UNBIND_OK_METHOD, 0, "checking permissions");
    snprintf(refused, sizeof refused, "access to exchange '%s'", *exchange ? exchange : "amq.default");
    int is_refused = given == BH_ERR_ACCESS && strstr(broker->text, refused);
    if (given != BH_OK)
        *status = bh__link_is_broken(&broker->link) ? given : connection_open_channel(broker, CHANNEL_CALL);
    return !is_refused;
}

/* Returns the first exchange of a rung that this user may not write to; NULL if there is none. */
static const char *find_refused(doctor *self, const bh_topology *topology, bh_status *status)
{
    bh_declaration each;
    for (size_t i = 0; *status == BH_OK && bh_topology_declaration(topology, i, &each) == BH_OK; i++)
        if (each.kind == BH_DECLARE_EXCHANGE && each.rung_ms > 0 && !each.on_demand &&
            !may_publish(self, each.name.data, status))
            return each.name.data;
    return NULL;
}

/* Reports a user that may park messages, which the default exchange routes, but may not let them
 * wait. Another user may be one that only looks. Returns 1 if it may publish no probe. */
static int examine_permissions(doctor *self, const bh_topology *topology)
{
    char what[400], advice[ARGUMENT_TEXT + 160], name[ARGUMENT_TEXT];
    bh_status status = connection_open_channel(self->connection, CHANNEL_CALL);
    const char *refused = status == BH_OK ? find_refused(self, topology, &status) : NULL;
    if (refused && status == BH_OK && may_publish(self, "", &status)) {
        snprintf(what, sizeof what, "This user may not publish to exchange \"%s\".", refused);
        snprintf(advice, sizeof advice, "grant the permissions that 'backhop topology permissions %s' prints",
                 show_argument(name, bh__topology_queue(topology).data));
        doctor_find(self, 1, what, "A consumer with this user cannot retry: its messages stay unacknowledged.", advice);
    }
    if (status == BH_OK)
        connection_close_channel(self->connection, CHANNEL_CALL);
    return refused != NULL;
}

static const char *return_exchange(const bh_topology *topology)
{
    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(topology, i, &each) == BH_OK; i++)
        if (each.kind == BH_DECLARE_BINDING && strcmp(each.name.data, bh__topology_queue(topology).data) == 0)
            return each.source.data;
    return NULL;
}

void send_probes(doctor *self, const bh_topology *topology, const depths *seen)
{
    char name[256], key[300];
    const char *exchange = return_exchange(topology);
    if (bh__topology_strategy(topology) != BH_STRATEGY_LADDER || !exchange)
        return;
    probes sent = {.seen = seen, .is_missing = must(calloc(seen->count + 1, 1))};
    self->connection->on_frame = on_probe_frame;
    self->connection->data = &sent;
    bh_status status = make_probe_queue(self, exchange, name, key);
    if (status == BH_ERR_ACCESS)
        doctor_find(self, 0, "No probe was sent: this user may not declare a queue or bind it.", "",
                    "repeat this as a user with these permissions");
    int is_refused = (status == BH_OK || status == BH_ERR_ACCESS) && examine_permissions(self, topology);
    if (status == BH_OK && !is_refused)
        probe_all(self, &sent, key);
    /* A broker with an alarm reads nothing more from a connection that published. */
    if (status == BH_OK && !bh__link_is_broken(&self->connection->link) && !self->connection->link.is_blocked)
        connection_close_channel(self->connection, CHANNEL_CONSUME);
    self->connection->on_frame = NULL;
    bh__assembler_clear(&sent.assembler);
    free(sent.is_missing);
}
