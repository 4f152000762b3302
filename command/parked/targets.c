#include "parked/targets.h"
#include "topology/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { COMPARE_MS = 1000, LONGEST_LAG_MS = 5000 };

/* Declares the return binding of the work queue. Declaring an existing binding changes nothing. */
static bh_status bind_return(connection *broker, const bh_topology *topology)
{
    bh_status status = connection_open_channel(broker, CHANNEL_CALL);
    bh_declaration each;
    for (size_t i = 0; status == BH_OK && bh_topology_declaration(topology, i, &each) == BH_OK; i++) {
        if (each.kind != BH_DECLARE_BINDING || !bh__same(each.name, bh__topology_queue(topology)) ||
            !bh__same(each.type, bh_str("queue")))
            continue;
        amqp_queue_bind_t bind = {.queue = bh__to_amqp(each.name),
                                  .exchange = bh__to_amqp(each.source),
                                  .routing_key = bh__to_amqp(each.routing_key)};
        status = connection_call(broker, CHANNEL_CALL, AMQP_QUEUE_BIND_METHOD, &bind, AMQP_QUEUE_BIND_OK_METHOD, 0,
                                 "binding the work queue to its return exchange");
    }
    return status == BH_OK ? connection_close_channel(broker, CHANNEL_CALL) : status;
}

/* Checks that the single target exists, and records its depth. */
static int check_single(targets *self, int has_return)
{
    connection *broker = self->from->broker;
    const char *queue = self->items[0].name;
    char argument[ARGUMENT_TEXT];
    int64_t ready, consumers;
    bh_status status = connection_look(broker, queue, &ready, &consumers);
    if (status == BH_ERR_MISSING) {
        complain("there is no queue \"%s\" to replay to; declare it, or name another by --to", queue);
        return EX_UNAVAILABLE;
    }
    if (status == BH_OK && consumers == 0)
        self->ready = ready;
    if (status == BH_OK && has_return)
        status = bind_return(broker, self->items[0].topology);
    if (status == BH_ERR_MISSING) {
        complain("the return exchange is missing (%s): run 'backhop topology declare %s', or replay with --to %s",
                 broker->text, show_argument(argument, queue), argument);
        return EX_UNAVAILABLE;
    }
    return status == BH_OK || status == BH_ERR_ACCESS ? EX_OK : connection_complain(broker);
}

static target *add(targets *self, bh_bytes name)
{
    self->items = must(realloc(self->items, (self->count + 1) * sizeof *self->items));
    target *made = &self->items[self->count++];
    *made = (target){.topology = NULL};
    snprintf(made->name, sizeof made->name, "%.*s", (int)name.size, name.data);
    return made;
}

int targets_open(targets *self, const parked *from, const char *to)
{
    /* Strategy native publishes to a queue by the default exchange, and makes it the message's work
     * queue. */
    static const topology_options straight = {.strategy = "native"};
    static const policy_options fixed = {.kind = "fixed", .jitter = "none"};
    *self = (targets){.from = from, .ready = -1};
    self->is_open = from->is_shared && !to;
    if (to && strcmp(to, from->queue) == 0)
        options_refuse("--to: the messages are in \"%s\" already", to);
    snprintf(self->text, sizeof self->text, "their work queues");
    if (self->is_open)
        return EX_OK;
    target *made = add(self, bh_str(to ? to : from->work_queue));
    snprintf(self->text, sizeof self->text, "\"%s\"", made->name);
    made->policy = to ? setup_policy(&fixed) : NULL;
    made->topology = to ? setup_topology(&straight, to, made->policy) : from->topology;
    return check_single(self, !to);
}

void targets_close(targets *self)
{
    for (size_t i = 0; i < self->count; i++)
        if (self->items[i].policy) {
            bh_topology_free(self->items[i].topology);
            bh_policy_free(self->items[i].policy);
        }
    free(self->items);
    *self = (targets){.from = NULL};
}

/*
 * Builds the topology of a work queue that a header names, and declares its return binding. The
 * header is untrusted: a queue without a parked queue is no work queue, and is never bound.
 */
static void build(const targets *self, target *made)
{
    bh_topology *probe = NULL;
    connection *broker = self->from->broker;
    int64_t ready;
    bh_status status = bh_topology_new(&probe, bh_str(made->name));
    bh_topology_free(probe);
    if (status != BH_OK || connection_look(broker, made->name, &ready, NULL) != BH_OK)
        return;
    bh_policy *policy = parked_policy(&self->from->settings);
    bh_topology *topology = setup_topology(&self->from->settings, made->name, policy);
    if (connection_look(broker, bh__topology_parked_queue(topology).data, &ready, NULL) == BH_OK &&
        bind_return(broker, topology) == BH_OK) {
        made->policy = policy;
        made->topology = topology;
        return;
    }
    bh_topology_free(topology);
    bh_policy_free(policy);
}

const bh_topology *targets_find(targets *self, const bh_delivery *delivery)
{
    bh_value header;
    if (!self->is_open)
        return self->items[0].topology;
    if (bh_delivery_header(delivery, bh_str("backhop-queue"), &header) != BH_OK || header.type != BH_TYPE_STRING ||
        header.string.size > BH_TOPOLOGY_LONGEST_NAME || memchr(header.string.data, '\0', header.string.size))
        return NULL;
    const target *found = NULL;
    for (size_t i = 0; !found && i < self->count; i++)
        if (bh__same(header.string, bh_str(self->items[i].name)))
            found = &self->items[i];
    if (!found && self->count == TARGETS_MOST)
        return NULL;
    if (!found) {
        target *made = add(self, header.string);
        build(self, made);
        found = made;
    }
    return bh_topology_owns(found->topology, delivery) ? found->topology : NULL;
}

const char *targets_name(const targets *self)
{
    return self->is_open ? "their work queues" : self->items[0].name;
}

const char *targets_text(const targets *self)
{
    return self->text;
}

/* Returns 1 if the target has no consumers and fewer messages than at first and `done` more. */
static int has_fewer(targets *self, int64_t done)
{
    int64_t ready, consumers;
    if (connection_look(self->from->broker, self->items[0].name, &ready, &consumers) != BH_OK)
        return 0;
    if (consumers > 0)
        self->ready = -1; /* consumers take messages */
    int64_t gone = self->ready + done - ready;
    self->gone = self->ready >= 0 && gone > 0 ? gone : 0;
    return self->gone > 0;
}

int targets_drop_messages(targets *self, int64_t done, int64_t now_ms)
{
    if (self->ready < 0 || now_ms - self->looked_ms < COMPARE_MS)
        return 0;
    int is_less = self->looked_ms && has_fewer(self, self->done);
    self->looked_ms = now_ms;
    self->done = done;
    return is_less;
}

int targets_dropped_messages(targets *self, int64_t done)
{
    int64_t until_ms = bh__monotonic_ms() + LONGEST_LAG_MS;
    if (self->ready < 0 || done == 0)
        return 0;
    while (has_fewer(self, done) && !bh__link_is_broken(&self->from->broker->link) && !is_interrupted()) {
        if (bh__monotonic_ms() >= until_ms)
            return 1;
        connection_pump(self->from->broker, bh__monotonic_ms() + COMPARE_MS / 10);
    }
    return 0;
}
