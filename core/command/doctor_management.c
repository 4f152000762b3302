/* backhop doctor, by the management API: what AMQP cannot see. */
#include "doctor.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { TEXT = 700 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void show_value(char out[TEXT], const json_t *value)
{
    if (json_is_string(value))
        snprintf(out, TEXT, "\"%s\"", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(out, TEXT, "%lld", (long long)json_integer_value(value));
    else
        snprintf(out, TEXT, "%s", value && !json_is_null(value) ? "another value" : "nothing");
}

/* Whether this did not come up yet; it counts as having done so then. */
static int is_new(doctor *self, const char *kind, const char *name)
{
    char key[5 * TEXT];
    snprintf(key, sizeof key, "%s %s", kind, name);
    if (json_object_get(self->examined, key))
        return 0;
    json_object_set_new(self->examined, key, json_true());
    return 1;
}

/* ------------------------------------------------------------------------------------------------------------- cluster */

static const char *version_of(const json_t *node)
{
    size_t i;
    const json_t *application;
    json_array_foreach(json_object_get(node, "applications"), i, application)
    {
        if (strcmp(text_of(application, "name"), "rabbit") == 0)
            return text_of(application, "version");
    }
    return "";
}

static void examine_nodes(doctor *self, const json_t *nodes)
{
    size_t i;
    const json_t *node;
    const char *first = "", *first_node = "";
    char what[TEXT];
    json_array_foreach(nodes, i, node)
    {
        const char *name = text_of(node, "name"), *version = version_of(node);
        if (json_is_false(json_object_get(node, "running"))) {
            snprintf(what, sizeof what, "Node %s is down.", name);
            doctor_find(
                self, 1, what,
                "Quorum queues go on while most of their members run; where one more node goes, retries may wait.",
                "start it");
        }
        if (*version && *first && strcmp(first, version) != 0) {
            snprintf(what, sizeof what, "Node %s is RabbitMQ %s, and node %s is %s.", first_node, first, name, version);
            doctor_find(self, 0, what, "Versions are mixed during an upgrade alone.", "finish the upgrade");
        }
        if (*version && !*first) {
            first = version;
            first_node = name;
        }
    }
}

static int is_seen(const depths *seen, const char *name)
{
    for (size_t i = 0; i < seen->count; i++)
        if (seen->items[i].ready >= 0 && strcmp(seen->items[i].name, name) == 0)
            return 1;
    return 0;
}

static void examine_shovels(doctor *self, const json_t *shovels, const depths *seen)
{
    size_t i;
    const json_t *shovel;
    char what[TEXT];
    json_array_foreach(shovels, i, shovel)
    {
        const json_t *value = json_object_get(shovel, "value");
        const char *from = text_of(value, "src-queue"), *to = text_of(value, "dest-queue");
        if (!is_seen(seen, from) && !is_seen(seen, to))
            continue;
        snprintf(what, sizeof what, "Shovel \"%s\" moves messages from queue \"%s\" to \"%s\".",
                 text_of(shovel, "name"), from, to);
        doctor_find(
            self, 1, what,
            "A shovel loses the routing key, takes messages off wait queues before their time, and does not notice "
            "where they cannot go.",
            "delete it; 'backhop parked replay' sends parked messages home");
    }
}

int doctor_see_cluster(doctor *self, const depths *seen)
{
    json_t *nodes = NULL, *shovels = NULL;
    int code = management_get(self->management, &nodes, "nodes");
    if (code == EX_OK)
        code = management_get(self->management, &shovels, "parameters/shovel/%v");
    if (code == EX_OK) {
        examine_nodes(self, nodes);
        examine_shovels(self, shovels, seen);
    }
    json_decref(nodes);
    json_decref(shovels);
    return code;
}

/* ----------------------------------------------------------------------------------------------------------- arguments */

static void compare_argument(doctor *self, const bh_topology *topology, size_t index, size_t argument,
                             const json_t *found)
{
    const char *kind = bh_topology_declaration(topology, index) == BH_DECLARE_QUEUE ? "Queue" : "Exchange";
    const char *name = bh_topology_name(topology, index).data;
    const char *key = bh_topology_argument_name(topology, index, argument).data;
    const json_t *is = json_object_get(found, key);
    json_t *wanted = bh_topology_argument_type(topology, index, argument) == BH_TYPE_STRING
                         ? json_text(bh_topology_argument_string(topology, index, argument))
                         : json_integer((json_int_t)bh_topology_argument_int(topology, index, argument));
    char what[3 * TEXT], has[TEXT], wants[TEXT];
    if (!json_equal(is, wanted) && strcmp(key, "x-queue-leader-locator") != 0) {
        show_value(has, is);
        show_value(wants, wanted);
        snprintf(what, sizeof what, "%s \"%s\" has %s %s, and needs %s.", kind, name, key, has, wants);
        doctor_find(
            self, 1, what, "It was declared by other hands, or for other settings: retries by it go astray or wait.",
            "see whether namespace, queue type and strategy are those of the application; else delete it while it is "
            "empty, and declare the topology");
    }
    json_decref(wanted);
}

/* What arguments of their own, and policies, do to queues of a kind; those that do no harm are not here. */
static const struct {
    depth_kind kind;
    const char *key;   /* of a policy; of an argument "x-" is before it */
    const char *value; /* NULL: any */
    const char *meaning;
} harms[] = {
    {DEPTH_WORK, "overflow", "reject-publish",
     "While the work queue is full, it refuses the retries that come back: they stay in their wait queues, and hold up "
     "others."},
    {DEPTH_WORK, "overflow", "reject-publish-dlx",
     "While the work queue is full, it refuses the retries that come back, and dead-letters a copy of each attempt to "
     "return."},
    {DEPTH_WORK, "expires", NULL, "The queue is deleted, with its messages, where nobody consumes for that long."},
    {DEPTH_WAITING, "expires", NULL,
     "The wait queue is deleted, with the messages that wait in it, as nobody ever consumes from it."},
    {DEPTH_WAITING, "message-ttl", NULL,
     "Messages come back earlier than the policy of the application says, where this time is shorter."},
    {DEPTH_WAITING, "max-length", NULL,
     "Where the wait queue is full, no more can wait in it: their originals stay unacknowledged."},
    {DEPTH_WAITING, "max-length-bytes", NULL,
     "Where the wait queue is full, no more can wait in it: their originals stay unacknowledged."},
    {DEPTH_PARKED, "expires", NULL, "The parked queue is deleted, with its messages, as nobody consumes from it."},
    {DEPTH_PARKED, "message-ttl", NULL, "Parked messages are gone after that time."},
    {DEPTH_PARKED, "max-length", NULL,
     "Where the parked queue is full, the oldest messages are dropped, or no more are taken."},
    {DEPTH_PARKED, "max-length-bytes", NULL,
     "Where the parked queue is full, the oldest messages are dropped, or no more are taken."},
    {DEPTH_PARKED, "delivery-limit", NULL,
     "Looks count as deliveries, and RabbitMQ drops what was looked at that often."},
    {DEPTH_UNROUTABLE, "expires", NULL, "The queue is deleted, with its messages, as nobody consumes from it."},
    {DEPTH_UNROUTABLE, "message-ttl", NULL, "Messages whose work queue was gone are lost after that time."},
    {DEPTH_UNROUTABLE, "max-length", NULL,
     "Where the queue is full, messages whose work queue was gone are lost, or hold up others."},
};

static int is_harm(size_t at, depth_kind kind, const json_t *value)
{
    return harms[at].kind == kind && value && !json_is_null(value) &&
           (!harms[at].value || (json_is_string(value) && strcmp(json_string_value(value), harms[at].value) == 0));
}

static int declares_argument(const bh_topology *topology, size_t index, const char *key)
{
    for (size_t i = 0; i < bh_topology_argument_count(topology, index); i++)
        if (strcmp(bh_topology_argument_name(topology, index, i).data, key) == 0)
            return 1;
    return 0;
}

/* Arguments that the topology does not give the queue; index: of its declaration, or the count, where it has none. */
static void examine_arguments(doctor *self, const depth *queue, const bh_topology *topology, size_t index,
                              const json_t *found)
{
    char what[3 * TEXT], key[64], has[TEXT];
    for (size_t i = 0; i < sizeof harms / sizeof harms[0]; i++) {
        snprintf(key, sizeof key, "x-%s", harms[i].key);
        const json_t *value = json_object_get(json_object_get(found, "arguments"), key);
        if (!is_harm(i, queue->kind, value) || declares_argument(topology, index, key))
            continue;
        show_value(has, value);
        snprintf(what, sizeof what, "Queue \"%s\" was declared with %s %s.", queue->name, key, has);
        doctor_find(self, 1, what, harms[i].meaning, "declare it anew without that, while it is empty");
    }
}

static void name_policies(char out[TEXT], const json_t *found)
{
    const char *policy = text_of(found, "policy"), *by_operator = text_of(found, "operator_policy");
    if (*policy && *by_operator)
        snprintf(out, TEXT, "Policy \"%s\" or operator policy \"%s\"", policy, by_operator);
    else
        snprintf(out, TEXT, "%s \"%s\"", *policy ? "Policy" : "Operator policy", *policy ? policy : by_operator);
}

/* A policy that many wait queues have is one finding. */
static void examine_policies(doctor *self, const depth *queue, const json_t *found)
{
    const json_t *effective = json_object_get(found, "effective_policy_definition");
    char what[4 * TEXT], names[TEXT], has[TEXT], where[TEXT];
    int is_wait = queue->kind == DEPTH_WAITING;
    name_policies(names, found);
    for (size_t i = 0; i < sizeof harms / sizeof harms[0]; i++) {
        const json_t *value = json_object_get(effective, harms[i].key);
        if (!is_harm(i, queue->kind, value))
            continue;
        show_value(has, value);
        snprintf(where, sizeof where, is_wait ? "wait queues, as \"%s\"" : "queue \"%s\"", queue->name);
        snprintf(what, sizeof what, "%s sets %s %s on ", names, harms[i].key, has);
        if (is_wait && !is_new(self, "policy", what))
            continue;
        snprintf(what, sizeof what, "%s sets %s %s on %s.", names, harms[i].key, has, where);
        doctor_find(self, 1, what, harms[i].meaning,
                    "give the policy a pattern that leaves them out, or them one of a higher priority without it; an "
                    "operator policy holds beside any other");
    }
}

/* What a quorum queue's leader told last: messages that are over their time, and that no work queue has confirmed. */
static void examine_dead_letters(doctor *self, const depth *queue, const json_t *found)
{
    enum { USUAL = 64 }; /* on their way at once: RabbitMQ has 32 */
    json_int_t stuck = json_integer_value(json_object_get(found, "messages_dlx"));
    char what[TEXT];
    if (queue->kind != DEPTH_WAITING || stuck <= USUAL)
        return;
    snprintf(what, sizeof what, "%lld messages of wait queue \"%s\" are over their time, and were not taken back.",
             (long long)stuck, queue->name);
    doctor_find(
        self, 1, what, "A work queue refuses them, or the wait queue is stuck.",
        "see whether a work queue is full (overflow reject-publish) or without a quorum; else restart the leader of "
        "this queue");
}

int doctor_sees_limit_raised(doctor *self, const char *queue)
{
    enum { REACHED = 1000000 };
    json_t *found = NULL;
    if (!self->management || management_get(self->management, &found, "queues/%v/%s", queue) != EX_OK)
        return 0;
    const json_t *limit = json_object_get(json_object_get(found, "effective_policy_definition"), "delivery-limit");
    int is_raised = json_is_integer(limit) && (json_integer_value(limit) < 0 || json_integer_value(limit) >= REACHED);
    json_decref(found);
    return is_raised;
}

/* -------------------------------------------------------------------------------------------------------------- topology */

static size_t find_declaration(const bh_topology *topology, const char *queue)
{
    size_t i = 0;
    while (i < bh_topology_count(topology) && (bh_topology_declaration(topology, i) != BH_DECLARE_QUEUE ||
                                               strcmp(bh_topology_name(topology, i).data, queue) != 0))
        i++;
    return i;
}

static int examine_queue(doctor *self, const bh_topology *topology, const depth *queue)
{
    json_t *found = NULL;
    size_t index = find_declaration(topology, queue->name);
    char what[TEXT];
    int code = management_get(self->management, &found, "queues/%v/%s", queue->name);
    if (code != EX_OK || !found)
        return code;
    for (size_t i = 0; i < bh_topology_argument_count(topology, index); i++)
        compare_argument(self, topology, index, i, json_object_get(found, "arguments"));
    if (json_is_false(json_object_get(found, "durable"))) {
        snprintf(what, sizeof what, "Queue \"%s\" is not durable.", queue->name);
        doctor_find(self, 1, what, "It is gone when its node restarts, and what comes back to it then is unroutable.",
                    "declare it as durable");
    }
    examine_arguments(self, queue, topology, index, found);
    examine_policies(self, queue, found);
    examine_dead_letters(self, queue, found);
    json_decref(found);
    return EX_OK;
}

static int examine_exchange(doctor *self, const bh_topology *topology, size_t index)
{
    json_t *found = NULL;
    const char *name = bh_topology_name(topology, index).data, *type = bh_topology_type(topology, index).data;
    char what[TEXT];
    int code = management_get(self->management, &found, "exchanges/%v/%s", name);
    if (code != EX_OK || !found)
        return code;
    for (size_t i = 0; i < bh_topology_argument_count(topology, index); i++)
        compare_argument(self, topology, index, i, json_object_get(found, "arguments"));
    if (strcmp(text_of(found, "type"), type) != 0) {
        snprintf(what, sizeof what, "Exchange \"%s\" is of type %s, and has to be of type %s.", name,
                 text_of(found, "type"), type);
        doctor_find(self, 1, what, "It was declared by other hands.", "delete it, and declare the topology");
    }
    json_decref(found);
    return EX_OK;
}

static int examine_binding(doctor *self, const bh_topology *topology, size_t index)
{
    json_t *found = NULL;
    size_t i;
    const json_t *binding;
    const char *to = bh_topology_name(topology, index).data, *from = bh_topology_source(topology, index).data,
               *key = bh_topology_routing_key(topology, index).data;
    int is_there = 0, is_to_queue = strcmp(bh_topology_type(topology, index).data, "queue") == 0;
    char what[3 * TEXT];
    int code = management_get(self->management, &found, is_to_queue ? "bindings/%v/e/%s/q/%s" : "bindings/%v/e/%s/e/%s",
                              from, to);
    if (code != EX_OK)
        return code;
    json_array_foreach(found, i, binding)
    {
        is_there |= strcmp(text_of(binding, "routing_key"), key) == 0;
    }
    json_decref(found);
    if (is_there)
        return EX_OK;
    snprintf(what, sizeof what, "%s \"%s\" is not bound to exchange \"%s\" with routing key \"%s\".",
             is_to_queue ? "Queue" : "Exchange", to, from, key);
    doctor_find_missing(self, topology, what,
                        strcmp(to, bh_topology_queue(topology).data) == 0
                            ? "Its retries do not come home: they wait, and then are unroutable."
                            : "What should come by it is returned, or lost.");
    return EX_OK;
}

static int is_of(const bh_topology *topology, const depth *queue)
{
    return find_declaration(topology, queue->name) < bh_topology_count(topology) ||
           strcmp(bh_topology_queue(topology).data, queue->name) == 0;
}

int doctor_see_topology(doctor *self, const bh_topology *topology, const depths *seen)
{
    int code = EX_OK;
    for (size_t i = 0; code == EX_OK && i < seen->count && !is_interrupted(); i++)
        if (seen->items[i].ready >= 0 && is_of(topology, &seen->items[i]) && is_new(self, "queue", seen->items[i].name))
            code = examine_queue(self, topology, &seen->items[i]);
    for (size_t i = 0; code == EX_OK && i < bh_topology_count(topology) && !is_interrupted(); i++) {
        const char *name = bh_topology_name(topology, i).data;
        bh_declaration what = bh_topology_declaration(topology, i);
        if (what == BH_DECLARE_EXCHANGE && !bh_topology_on_demand(topology, i) && is_new(self, "exchange", name))
            code = examine_exchange(self, topology, i);
        else if (what == BH_DECLARE_BINDING && is_seen(seen, name) && is_new(self, "binding", name))
            code = examine_binding(self, topology, i);
    }
    return code;
}
