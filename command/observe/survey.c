/* backhop doctor, by the management API: what AMQP cannot see. */
#include "observe/survey.h"
#include "observe/traffic.h"
#include "common/output.h"
#include "parked/parked.h"
#include "setup/declare.h"
#include "topology/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { TEXT = 700 };

static void show_value(char out[TEXT], const json_t *value)
{
    if (json_is_string(value))
        snprintf(out, TEXT, "\"%s\"", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(out, TEXT, "%lld", (long long)json_integer_value(value));
    else
        snprintf(out, TEXT, "%s", value && !json_is_null(value) ? "another value" : "nothing");
}

/* -------------------------------------------------------------------------------------- cluster */

static const char *version_of(const json_t *node)
{
    size_t i;
    const json_t *application;
    json_array_foreach(json_object_get(node, "applications"), i, application)
    {
        if (strcmp(json_text_of(application, "name"), "rabbit") == 0)
            return json_text_of(application, "version");
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
        const char *name = json_text_of(node, "name"), *version = version_of(node);
        if (json_is_false(json_object_get(node, "running"))) {
            snprintf(what, sizeof what, "Node %s is down.", name);
            doctor_find(self, 1, what,
                        "Quorum queues work while most of their members run. If one more node stops, retries may wait.",
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
        const char *from = json_text_of(value, "src-queue"), *to = json_text_of(value, "dest-queue");
        if (!is_seen(seen, from) && !is_seen(seen, to))
            continue;
        snprintf(what, sizeof what, "Shovel \"%s\" moves messages from queue \"%s\" to \"%s\".",
                 json_text_of(shovel, "name"), from, to);
        doctor_find(
            self, 1, what,
            "A shovel loses the routing key, takes messages off wait queues before their time, and loses unroutable "
            "messages.",
            "delete it; 'backhop parked replay' returns parked messages to their work queue");
    }
}

/* Returns the vhost's limit of queues; -1: none. */
static json_int_t queue_limit(const json_t *limits)
{
    size_t i;
    const json_t *each;
    json_array_foreach(limits, i, each)
    {
        const json_t *limit = json_object_get(json_object_get(each, "value"), "max-queues");
        if (json_is_integer(limit))
            return json_integer_value(limit);
    }
    return -1;
}

/* Reports a limit of the vhost that refuses wait queues which are declared on demand. */
static int examine_queue_limit(doctor *self, const depths *seen)
{
    json_t *limits = NULL, *page = NULL;
    char what[TEXT];
    json_int_t missing = 0;
    int code = management_get(self->management, &limits, "vhost-limits/%v");
    json_int_t limit = queue_limit(limits);
    json_decref(limits);
    for (size_t i = 0; i < seen->count; i++)
        missing += depth_is_not_made(&seen->items[i]);
    if (code != EX_OK || limit < 0 || missing == 0)
        return code;
    code = management_get(self->management, &page, "queues/%v?page=1&page_size=1&columns=name");
    json_int_t count = json_integer_value(json_object_get(page, "total_count"));
    json_decref(page);
    if (code != EX_OK || limit - count >= missing)
        return code;
    snprintf(what, sizeof what,
             "The vhost has %lld queues of at most %lld (max-queues); %lld wait queues are not made yet.",
             (long long)count, (long long)limit, (long long)missing);
    doctor_find(self, count >= limit, what,
                "RabbitMQ refuses a wait queue above the limit: a message that needs this delay stays unacknowledged.",
                "raise the limit: rabbitmqctl set_vhost_limits");
    return EX_OK;
}

/* Reports a wait queue that no rung of the checked policy has, if its messages stay in it. */
static int examine_other_wait(doctor *self, const depths *seen, const depth *queue)
{
    json_t *found = NULL;
    char what[2 * TEXT], ttl[TEXT], exchange[TEXT], meaning[4 * TEXT], count[64];
    int code = management_get(self->management, &found, "queues/%v/%s", queue->name);
    const json_t *arguments = json_object_get(found, "arguments");
    const json_t *is_ttl = json_object_get(arguments, "x-message-ttl"),
                 *is_exchange = json_object_get(arguments, "x-dead-letter-exchange");
    int returns = json_is_integer(is_ttl) && json_integer_value(is_ttl) <= queue->wait_ms &&
                  json_is_string(is_exchange) && strcmp(json_string_value(is_exchange), seen->exchange) == 0;
    if (found && !returns) {
        show_value(ttl, is_ttl);
        show_value(exchange, is_exchange);
        snprintf(what, sizeof what, "Wait queue \"%s\" keeps %s.", queue->name, count_messages(count, queue->ready));
        snprintf(meaning, sizeof meaning,
                 "It has x-message-ttl %s and x-dead-letter-exchange %s, and needs %lld and \"%s\". No rung of the "
                 "checked policy has this queue.",
                 ttl, exchange, (long long)queue->wait_ms, seen->exchange);
        doctor_find(self, 1, what, meaning,
                    "publish its messages to the work queue that their header backhop-queue names, and delete it");
    }
    json_decref(found);
    return code;
}

int survey_cluster(doctor *self, const depths *seen)
{
    json_t *nodes = NULL, *shovels = NULL;
    int code = management_get(self->management, &nodes, "nodes");
    if (code == EX_OK)
        code = management_get(self->management, &shovels, "parameters/shovel/%v");
    if (code == EX_OK)
        code = policies_read(&self->policies, self->management);
    if (code == EX_OK) {
        self->nodes = (int64_t)json_array_size(nodes);
        examine_nodes(self, nodes);
        examine_shovels(self, shovels, seen);
        code = examine_queue_limit(self, seen);
    }
    for (size_t i = 0; code == EX_OK && i < seen->count; i++)
        if (seen->items[i].is_found && seen->items[i].ready > 0)
            code = examine_other_wait(self, seen, &seen->items[i]);
    json_decref(nodes);
    json_decref(shovels);
    return code;
}

/* ------------------------------------------------------------------------------------ arguments */

static void compare_argument(doctor *self, const bh_declaration *it, const bh_argument *argument, const json_t *found)
{
    const char *kind = it->kind == BH_DECLARE_QUEUE ? "Queue" : "Exchange";
    const char *name = it->name.data;
    const char *key = argument->name.data;
    const json_t *is = json_object_get(found, key);
    json_t *wanted =
        argument->type == BH_TYPE_STRING ? json_text(argument->string) : json_integer((json_int_t)argument->integer);
    char what[3 * TEXT], has[TEXT], wants[TEXT];
    if (!json_equal(is, wanted) && strcmp(key, "x-queue-leader-locator") != 0) {
        show_value(has, is);
        show_value(wants, wanted);
        snprintf(what, sizeof what, "%s \"%s\" has %s %s, and needs %s.", kind, name, key, has, wants);
        doctor_find(
            self, 1, what,
            "It was declared by another program, or for other settings: retries may go elsewhere or wait for ever.",
            "check that namespace, queue type and strategy are the application's; else delete it while it is empty, "
            "and declare the topology");
    }
    json_decref(wanted);
}

/* The harm that arguments and policies do to queues of a kind. Harmless ones are not listed. */
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
    {DEPTH_WORK, "max-length", NULL, "If the work queue is full, RabbitMQ drops its oldest messages."},
    {DEPTH_WORK, "max-length-bytes", NULL, "If the work queue is full, RabbitMQ drops its oldest messages."},
    {DEPTH_WORK, "message-ttl", NULL, "RabbitMQ drops messages that stay in the work queue for longer than that."},
    {DEPTH_WORK, "delivery-limit", NULL, "RabbitMQ drops a message, or dead-letters it, after so many deliveries."},
    {DEPTH_WORK, "expires", NULL,
     "RabbitMQ deletes the queue, with its messages, if it has no consumer for that long."},
    {DEPTH_WAITING, "expires", NULL,
     "RabbitMQ deletes the wait queue with its messages, as wait queues have no consumers."},
    {DEPTH_WAITING, "message-ttl", NULL,
     "If this time is shorter, messages come back earlier than the application's policy says."},
    {DEPTH_WAITING, "overflow", NULL,
     "RabbitMQ then dead-letters at most once: retries that fall due while a node stops are lost."},
    {DEPTH_WAITING, "max-length", NULL,
     "If the wait queue is full, further messages cannot wait in it: their originals stay unacknowledged."},
    {DEPTH_WAITING, "max-length-bytes", NULL,
     "If the wait queue is full, further messages cannot wait in it: their originals stay unacknowledged."},
    {DEPTH_PARKED, "expires", NULL, "RabbitMQ deletes the parked queue with its messages, as it has no consumers."},
    {DEPTH_PARKED, "message-ttl", NULL, "Parked messages are gone after that time."},
    {DEPTH_PARKED, "max-length", NULL,
     "If the parked queue is full, RabbitMQ drops its oldest messages or refuses new ones."},
    {DEPTH_PARKED, "max-length-bytes", NULL,
     "If the parked queue is full, RabbitMQ drops its oldest messages or refuses new ones."},
    {DEPTH_PARKED, "delivery-limit", NULL,
     "Looks count as deliveries, and RabbitMQ drops messages after so many looks."},
    {DEPTH_UNROUTABLE, "expires", NULL, "RabbitMQ deletes the queue with its messages, as it has no consumers."},
    {DEPTH_UNROUTABLE, "message-ttl", NULL, "Messages whose work queue was gone are lost after that time."},
    {DEPTH_UNROUTABLE, "max-length", NULL,
     "If the queue is full, messages whose work queue was gone are lost, or hold up others."},
};

/* Returns the value that a policy or an argument sets for a queue; NULL: neither does. */
static const json_t *setting_of(const json_t *found, const char *key)
{
    char argument[64];
    const json_t *value = json_object_get(json_object_get(found, "effective_policy_definition"), key);
    snprintf(argument, sizeof argument, "x-%s", key);
    return value ? value : json_object_get(json_object_get(found, "arguments"), argument);
}

static int is_limited(const json_t *found)
{
    return setting_of(found, "max-length") || setting_of(found, "max-length-bytes");
}

static int drops_nothing(const json_t *found)
{
    const char *overflow = json_string_value(setting_of(found, "overflow"));
    return setting_of(found, "dead-letter-exchange") || (overflow && strncmp(overflow, "reject", 6) == 0);
}

static int is_unreachable(const json_t *limit)
{
    return json_is_integer(limit) && (json_integer_value(limit) < 0 || json_integer_value(limit) >= UNREACHED_LIMIT);
}

/* Returns 1 if a wait queue dead-letters at least once with this overflow, or is not declared to.
 * RabbitMQ takes overflow from the policy, and the strategy from the argument. */
static int keeps_strategy(const json_t *found, const json_t *overflow)
{
    const json_t *strategy = json_object_get(json_object_get(found, "arguments"), "x-dead-letter-strategy");
    const char *text = json_string_value(overflow);
    return !json_is_string(strategy) || strcmp(json_string_value(strategy), "at-least-once") != 0 ||
           (text && strcmp(text, "reject-publish") == 0);
}

/* Returns 1 if other settings take the harm away, as a length limit that RabbitMQ refuses publishes
 * at. */
static int is_averted(size_t at, const json_t *found, const json_t *value)
{
    if (harms[at].kind == DEPTH_WAITING && strcmp(harms[at].key, "overflow") == 0)
        return keeps_strategy(found, value);
    if (harms[at].kind != DEPTH_WORK)
        return 0;
    if (strcmp(harms[at].key, "overflow") == 0)
        return !is_limited(found);
    if (strncmp(harms[at].key, "max-length", 10) == 0)
        return drops_nothing(found);
    if (strcmp(harms[at].key, "message-ttl") == 0)
        return setting_of(found, "dead-letter-exchange") != NULL;
    return strcmp(harms[at].key, "delivery-limit") == 0 && is_unreachable(value);
}

static int is_harm(size_t at, depth_kind kind, const json_t *found, const json_t *value)
{
    return harms[at].kind == kind && value && !json_is_null(value) && !is_averted(at, found, value) &&
           (!harms[at].value || (json_is_string(value) && strcmp(json_string_value(value), harms[at].value) == 0));
}

/* Returns 1 for a delivery limit above RabbitMQ's own: somebody chose it for a queue whose messages
 * are given back often. */
static int is_high_limit(size_t at, const json_t *value)
{
    return harms[at].kind == DEPTH_WORK && strcmp(harms[at].key, "delivery-limit") == 0 &&
           json_integer_value(value) > USUAL_LIMIT;
}

static int declares_argument(const bh_declaration *it, const char *key)
{
    for (size_t i = 0; i < it->argument_count; i++)
        if (strcmp(it->arguments[i].name.data, key) == 0)
            return 1;
    return 0;
}

/* Reports harmful arguments of a queue that its declaration does not have. `it` is zero if there is
 * no declaration. */
static void examine_arguments(doctor *self, const depth *queue, const bh_declaration *it, const json_t *found)
{
    char what[3 * TEXT], key[64], has[TEXT];
    for (size_t i = 0; i < sizeof harms / sizeof harms[0]; i++) {
        snprintf(key, sizeof key, "x-%s", harms[i].key);
        const json_t *value = json_object_get(json_object_get(found, "arguments"), key);
        int is_examined = queue->kind == DEPTH_WORK && strcmp(harms[i].key, "delivery-limit") == 0; /* examine_limit */
        if (is_examined || !is_harm(i, queue->kind, found, value) || declares_argument(it, key))
            continue;
        show_value(has, value);
        snprintf(what, sizeof what, "Queue \"%s\" was declared with %s %s.", queue->name, key, has);
        doctor_find(self, 1, what, harms[i].meaning, "declare it anew without that, while it is empty");
    }
}

static void name_policies(char out[TEXT], const json_t *found)
{
    const char *policy = json_text_of(found, "policy"), *by_operator = json_text_of(found, "operator_policy");
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
        if (!is_harm(i, queue->kind, found, value))
            continue;
        show_value(has, value);
        snprintf(where, sizeof where, is_wait ? "wait queues, as \"%s\"" : "queue \"%s\"", queue->name);
        snprintf(what, sizeof what, "%s sets %s %s on ", names, harms[i].key, has);
        if (is_wait && !doctor_is_new(self, "policy", what))
            continue;
        snprintf(what, sizeof what, "%s sets %s %s on %s.", names, harms[i].key, has, where);
        doctor_find(self, !is_high_limit(i, value), what, harms[i].meaning,
                    "give the policy a pattern that leaves them out, or them one of a higher priority without it; an "
                    "operator policy holds beside any other");
    }
}

/* Reports quorum queues with too few members, and classic queues that a policy mirrors. Wait queues
 * are one finding. */
static void examine_copies(doctor *self, const depth *queue, const json_t *found)
{
    enum { USUAL = 3 }; /* members that RabbitMQ declares */
    int64_t members = (int64_t)json_array_size(json_object_get(found, "members")),
            wanted = self->nodes < USUAL ? self->nodes : USUAL;
    const char *kind = queue->kind == DEPTH_WAITING ? "wait queue" : queue->name;
    char what[2 * TEXT];
    if (strcmp(json_text_of(found, "type"), "quorum") == 0 && members < wanted &&
        doctor_is_new(self, "members", kind)) {
        snprintf(what, sizeof what, "Queue \"%s\" has %lld of %lld members that this cluster of %lld nodes can have.",
                 queue->name, (long long)members, (long long)wanted, (long long)self->nodes);
        doctor_find(self, 1, what,
                    "If a node stops, the queue may be down: retries by it wait, and their originals stay "
                    "unacknowledged.",
                    "'rabbitmq-queues grow NODE all' adds members");
    }
    if (json_object_get(json_object_get(found, "effective_policy_definition"), "ha-mode") &&
        doctor_is_new(self, "mirrors", kind)) {
        snprintf(what, sizeof what, "Policy \"%s\" mirrors classic queue \"%s\".", json_text_of(found, "policy"),
                 queue->name);
        doctor_find(self, 0, what, "Mirrored queues can lose confirmed messages, and RabbitMQ 4 does not have them.",
                    "migrate to quorum queues: --queue-type quorum in another namespace");
    }
}

/* Reports messages past their TTL that no work queue has confirmed, from the leader's last
 * statistics. */
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

int survey_has_limit(doctor *self, const char *queue)
{
    json_t *found = NULL;
    if (!self->management || management_get(self->management, &found, "queues/%v/%s", queue) != EX_OK || !found)
        return 0;
    policies_apply(&self->policies, found);
    int has_limit =
        json_is_integer(json_object_get(json_object_get(found, "effective_policy_definition"), "delivery-limit"));
    json_decref(found);
    return has_limit;
}

/* ------------------------------------------------------------------------------------- topology */

/* Reads the declaration of a queue. Returns 0 and a zero *out if the topology does not declare the
 * queue. */
static int find_declaration(const bh_topology *topology, const char *queue, bh_declaration *out)
{
    for (size_t i = 0; bh_topology_declaration(topology, i, out) == BH_OK; i++)
        if (out->kind == BH_DECLARE_QUEUE && strcmp(out->name.data, queue) == 0)
            return 1;
    return 0;
}

/* Reports a work queue whose rejected messages go to an exchange of the topology. Strategy reject
 * needs this. */
static void examine_dead_letter_exchange(doctor *self, const bh_topology *topology, const json_t *found)
{
    char what[TEXT];
    const char *to = json_string_value(setting_of(found, "dead-letter-exchange"));
    bh_declaration it;
    for (size_t i = 0; to && bh_topology_declaration(topology, i, &it) == BH_OK; i++) {
        if (it.kind != BH_DECLARE_EXCHANGE || strcmp(it.name.data, to) != 0)
            continue;
        snprintf(what, sizeof what, "Work queue \"%s\" dead-letters to exchange \"%s\".",
                 bh__topology_queue(topology).data, to);
        doctor_find(self, 1, what,
                    "A message that a consumer rejects comes back at once, without an attempt, or is unroutable.",
                    "remove its dead letter exchange; 'backhop relay' retries for consumers that can only reject");
        return;
    }
}

/* Reports a work queue that is a stream, or that the broker deletes with its last consumer. */
static void examine_kind(doctor *self, const depth *queue, const json_t *found)
{
    char what[TEXT];
    if (strcmp(json_text_of(found, "type"), "stream") == 0) {
        snprintf(what, sizeof what, "Work queue \"%s\" is a stream.", queue->name);
        doctor_find(self, 1, what,
                    "It delivers each retry to all its readers, and skips messages while a consumer reconnects.",
                    "use a quorum queue, and have a reader of the stream publish to it");
    }
    if (json_is_true(json_object_get(found, "auto_delete"))) {
        snprintf(what, sizeof what, "Work queue \"%s\" is deleted with its last consumer (auto-delete).", queue->name);
        doctor_find(self, 1, what, "Its messages are then lost, and its retries are unroutable.",
                    "declare it without auto-delete");
    }
}

/* Returns 1 if the topology has quorum queues that dead-letter: its wait queues. */
static int has_quorum_waits(const bh_topology *topology)
{
    bh_declaration it;
    for (size_t i = 0; bh_topology_declaration(topology, i, &it) == BH_OK; i++) {
        int is_quorum = 0, is_wait = 0;
        for (size_t j = 0; it.kind == BH_DECLARE_QUEUE && j < it.argument_count; j++) {
            const bh_argument *each = &it.arguments[j];
            is_quorum |= strcmp(each->name.data, "x-queue-type") == 0 && strcmp(each->string.data, "quorum") == 0;
            is_wait |= strcmp(each->name.data, "x-dead-letter-exchange") == 0;
        }
        if (is_quorum && is_wait && strcmp(it.name.data, bh__topology_queue(topology).data) != 0)
            return 1;
    }
    return 0;
}

/*
 * Notes a work queue whose urgent retries delay others (W4). RabbitMQ 4.0 to 4.2 gives a quorum
 * queue two levels, and looks at the urgent one first. A quorum work queue needs no argument for
 * priorities, so only a classic one shows them.
 */
static void examine_priorities(doctor *self, const bh_topology *topology, const json_t *found)
{
    enum { NORMAL = 4 };
    char what[TEXT];
    const json_t *most = json_object_get(json_object_get(found, "arguments"), "x-max-priority");
    if (!connection_is_at_least(self->connection, 4, 0) || connection_is_at_least(self->connection, 4, 3) ||
        json_integer_value(most) <= NORMAL || !has_quorum_waits(topology))
        return;
    snprintf(what, sizeof what, "Work queue \"%s\" has x-max-priority %lld.", bh__topology_queue(topology).data,
             (long long)json_integer_value(most));
    doctor_find(self, 0, what,
                "On RabbitMQ 4.0 to 4.2, retries with a priority above 4 delay all other retries of their wait queue.",
                "give the queue a namespace of its own, take queue type classic, or upgrade to 4.3");
}

static int examine_queue(doctor *self, const bh_topology *topology, const depth *queue)
{
    json_t *found = NULL;
    bh_declaration declared, *it = &declared;
    find_declaration(topology, queue->name, it);
    char what[TEXT];
    int code = management_get(self->management, &found, "queues/%v/%s", queue->name);
    if (code != EX_OK || !found)
        return code;
    policies_apply(&self->policies, found);
    for (size_t i = 0; i < it->argument_count; i++)
        compare_argument(self, it, &it->arguments[i], json_object_get(found, "arguments"));
    if (json_is_false(json_object_get(found, "durable"))) {
        snprintf(what, sizeof what, "Queue \"%s\" is not durable.", queue->name);
        doctor_find(self, 1, what, "It is gone when its node restarts, and its retries are unroutable then.",
                    "declare it as durable");
    }
    if (queue->kind == DEPTH_WORK)
        examine_kind(self, queue, found);
    if (queue->kind == DEPTH_WORK)
        examine_priorities(self, topology, found);
    if (queue->kind == DEPTH_WORK && bh__topology_strategy(topology) != BH_STRATEGY_REJECT)
        examine_dead_letter_exchange(self, topology, found);
    examine_arguments(self, queue, it, found);
    examine_policies(self, queue, found);
    examine_copies(self, queue, found);
    examine_dead_letters(self, queue, found);
    json_decref(found);
    return EX_OK;
}

static int examine_exchange(doctor *self, const bh_declaration *it)
{
    json_t *found = NULL;
    const char *name = it->name.data, *type = it->type.data;
    char what[TEXT];
    int code = management_get(self->management, &found, "exchanges/%v/%s", name);
    if (code != EX_OK || !found)
        return code;
    for (size_t i = 0; i < it->argument_count; i++)
        compare_argument(self, it, &it->arguments[i], json_object_get(found, "arguments"));
    if (strcmp(json_text_of(found, "type"), type) != 0) {
        snprintf(what, sizeof what, "Exchange \"%s\" is of type %s, and has to be of type %s.", name,
                 json_text_of(found, "type"), type);
        doctor_find(self, 1, what, "It was declared by other hands.", "delete it, and declare the topology");
    }
    traffic_examine_exchange(self, name, found);
    json_decref(found);
    return EX_OK;
}

static int examine_binding(doctor *self, const bh_topology *topology, const bh_declaration *it)
{
    json_t *found = NULL;
    size_t i;
    const json_t *binding;
    const char *to = it->name.data, *from = it->source.data, *key = it->routing_key.data;
    int is_there = 0, is_to_queue = strcmp(it->type.data, "queue") == 0;
    char what[3 * TEXT];
    int code = management_get(self->management, &found, is_to_queue ? "bindings/%v/e/%s/q/%s" : "bindings/%v/e/%s/e/%s",
                              from, to);
    if (code != EX_OK)
        return code;
    json_array_foreach(found, i, binding)
    {
        is_there |= strcmp(json_text_of(binding, "routing_key"), key) == 0;
    }
    json_decref(found);
    if (is_there)
        return EX_OK;
    snprintf(what, sizeof what, "%s \"%s\" is not bound to exchange \"%s\" with routing key \"%s\".",
             is_to_queue ? "Queue" : "Exchange", to, from, key);
    doctor_find_missing(self, topology, what,
                        strcmp(to, bh__topology_queue(topology).data) == 0
                            ? "Its return binding is missing: retries wait, and then are unroutable."
                            : "Messages that need this binding are returned, or lost.");
    return EX_OK;
}

static int is_of(const bh_topology *topology, const depth *queue)
{
    bh_declaration it;
    return find_declaration(topology, queue->name, &it) || strcmp(bh__topology_queue(topology).data, queue->name) == 0;
}

int survey_topology(doctor *self, const bh_topology *topology, const depths *seen)
{
    int code = EX_OK;
    for (size_t i = 0; code == EX_OK && i < seen->count && !is_interrupted(); i++)
        if (seen->items[i].ready >= 0 && is_of(topology, &seen->items[i]) &&
            doctor_is_new(self, "queue", seen->items[i].name))
            code = examine_queue(self, topology, &seen->items[i]);
    bh_declaration each;
    for (size_t i = 0; code == EX_OK && bh_topology_declaration(topology, i, &each) == BH_OK && !is_interrupted();
         i++) {
        const char *name = each.name.data;
        if (each.kind == BH_DECLARE_EXCHANGE && !each.on_demand && doctor_is_new(self, "exchange", name))
            code = examine_exchange(self, &each);
        else if (each.kind == BH_DECLARE_BINDING && is_seen(seen, name) && doctor_is_new(self, "binding", name))
            code = examine_binding(self, topology, &each);
    }
    return code;
}
