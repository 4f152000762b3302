#include "policy_internal.h"
#include "topology_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* RabbitMQ 4's default delivery limit of 20 drops a message that was looked at, or whose consumer crashed, 21 times. A
 * negative limit, 4's word for none, is refused by 3.x. */
#define DELIVERY_LIMIT 1000000000

/* Above it the x-delayed-message plugin routes at once. */
#define LONGEST_X_DELAY_MS INT64_C(4294967295)

#define PARKED_SUFFIX ".parked"

enum { LONGEST_NAMESPACE = 200 };

typedef struct argument {
    bh__text name;
    bh_type type;
    bh__text string;
    int64_t number;
} argument;

typedef struct arguments {
    bh__store store;
    argument *items;
    size_t count;
    size_t capacity;
} arguments;

typedef struct declaration {
    bh_declaration kind;
    bh__text name;
    bh__text type;
    bh__text source;
    bh__text routing_key;
    int64_t wait_ms;
    int is_on_demand;
    size_t first_argument;
    size_t argument_count;
} declaration;

struct bh_topology {
    /* settings */
    bh__store settings;
    bh__text queue;
    bh__text name_space; /* empty: the default of the queue type */
    bh_strategy strategy;
    bh_queue_type queue_type;
    bh_series series;
    int stripes;
    int declares_work_queue;
    bh_queue_type work_queue_type;
    arguments work_queue;
    bh_policy **further; /* policies beside the one that is given to build */
    int is_relays;       /* of all work queues of a relay, which begins with <ns>.rejected */
    /* the work queue that a relay's plans lead to at the moment; the store is empty: none */
    bh__store lead;
    bh__text lead_queue;
    bh__text lead_key;
    bh__text lead_parked;
    size_t further_count;
    size_t further_capacity;
    /* what was built */
    int is_built;
    bh_policy *policy; /* as it was when it was given to build */
    bh__store store;
    declaration *declarations;
    size_t count;
    size_t capacity;
    argument *arguments;
    size_t argument_count;
    size_t argument_capacity;
    bh__rungs rungs;
    bh__text return_key;
    bh__text parked_queue;
    bh__text unroutable_queue;
    bh__text return_exchange;
    bh__text wait_exchange;
    int64_t worst_lateness_ms;
    int64_t fixed_ms;      /* reject, native: the delay that the work queue's arguments say, */
    int64_t fixed_most_ms; /* and the longest that it grows to */
    bh__store definitions; /* JSON, without the zero byte behind it in its size */
    int no_memory;
    char error[1024];
};

/* --------------------------------------------------------------------------------------------------- settings */

static bh_status fail(bh_topology *self, bh_status status, const char *sentence)
{
    snprintf(self->error, sizeof self->error, "%s", sentence);
    return status;
}

static bh_status check_name(bh_bytes name, size_t longest)
{
    if (!name.data)
        return BH_ERR_ARGUMENT;
    if (name.size == 0 || name.size > longest || bh__begins(name, "amq.") || !bh__is_utf8(name) ||
        memchr(name.data, '\0', name.size))
        return BH_ERR_NAME;
    return BH_OK;
}

bh_status bh_topology_new(bh_topology **out, bh_bytes queue)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    bh_status status = check_name(queue, BH_TOPOLOGY_LONGEST_NAME);
    if (status != BH_OK)
        return status;
    bh_topology *self = calloc(1, sizeof *self);
    if (!self || !bh__store_add(&self->settings, &self->queue, queue)) {
        free(self);
        return BH_ERR_NO_MEMORY;
    }
    self->series = BH_SERIES_R10;
    self->stripes = 1;
    *out = self;
    return BH_OK;
}

bh_status bh__topology_new_relays(bh_topology **out)
{
    bh_status status = bh_topology_new(out, bh_str("relay")); /* a name that building replaces */
    if (status == BH_OK)
        (*out)->is_relays = 1;
    return status;
}

void bh_topology_free(bh_topology *self)
{
    if (!self)
        return;
    bh__store_free(&self->settings);
    bh__store_free(&self->work_queue.store);
    free(self->work_queue.items);
    for (size_t i = 0; i < self->further_count; i++)
        bh_policy_free(self->further[i]);
    free(self->further);
    bh__store_free(&self->lead);
    bh_policy_free(self->policy);
    bh__store_free(&self->store);
    free(self->declarations);
    free(self->arguments);
    bh__store_free(&self->definitions);
    free(self);
}

/* Copies the policies of `from`, of which `self` has none yet. False: no memory. */
static int copy_policies(bh_topology *self, const bh_topology *from)
{
    self->further_capacity = from->further_count;
    self->further = bh__duplicate(from->further, from->further_count * sizeof(bh_policy *));
    if (!self->further)
        return 0;
    for (; self->further_count < from->further_count; self->further_count++)
        if (bh__policy_copy(&self->further[self->further_count], from->further[self->further_count]) != BH_OK)
            return 0;
    return !from->policy || bh__policy_copy(&self->policy, from->policy) == BH_OK;
}

bh_status bh__topology_copy(bh_topology **out, const bh_topology *from)
{
    *out = NULL;
    bh_topology *copy = bh__duplicate(from, sizeof *from);
    if (!copy)
        return BH_ERR_NO_MEMORY;
    copy->further = NULL;
    copy->further_count = 0;
    copy->policy = NULL;
    copy->settings = copy->work_queue.store = copy->store = copy->definitions = copy->lead = (bh__store){NULL, 0, 0};
    copy->work_queue.items =
        bh__duplicate(from->work_queue.items, from->work_queue.count * sizeof *from->work_queue.items);
    copy->work_queue.capacity = from->work_queue.count;
    copy->declarations = bh__duplicate(from->declarations, from->count * sizeof *from->declarations);
    copy->capacity = from->count;
    copy->arguments = bh__duplicate(from->arguments, from->argument_count * sizeof *from->arguments);
    copy->argument_capacity = from->argument_count;
    bh__store definitions = from->definitions;
    definitions.size += definitions.size > 0; /* the zero byte behind it */
    if (!copy->work_queue.items || !copy->declarations || !copy->arguments ||
        !bh__store_copy(&copy->settings, &from->settings) ||
        !bh__store_copy(&copy->work_queue.store, &from->work_queue.store) ||
        !bh__store_copy(&copy->store, &from->store) || !bh__store_copy(&copy->definitions, &definitions) ||
        !copy_policies(copy, from)) {
        bh_topology_free(copy);
        return BH_ERR_NO_MEMORY;
    }
    copy->definitions.size = from->definitions.size;
    *out = copy;
    return BH_OK;
}

bh_status bh_topology_set_strategy(bh_topology *self, bh_strategy strategy)
{
    if (!self || (int)strategy < BH_STRATEGY_LADDER || (int)strategy > BH_STRATEGY_NATIVE)
        return BH_ERR_ARGUMENT;
    self->strategy = strategy;
    self->is_built = 0;
    return BH_OK;
}

static int is_queue_type(bh_queue_type type)
{
    return type == BH_QUEUE_QUORUM || type == BH_QUEUE_CLASSIC;
}

bh_status bh_topology_set_queue_type(bh_topology *self, bh_queue_type type)
{
    if (!self || !is_queue_type(type))
        return BH_ERR_ARGUMENT;
    self->queue_type = type;
    self->is_built = 0;
    return BH_OK;
}

bh_status bh_topology_set_namespace(bh_topology *self, bh_bytes name)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    bh_status status = check_name(name, LONGEST_NAMESPACE);
    if (status != BH_OK)
        return status == BH_ERR_NAME
                   ? fail(self, status,
                          "the namespace is empty, longer than 200 bytes, begins with amq., or is not "
                          "UTF-8: give another")
                   : status;
    bh__text text;
    if (!bh__store_add(&self->settings, &text, name))
        return BH_ERR_NO_MEMORY;
    self->name_space = text;
    self->is_built = 0;
    return BH_OK;
}

bh_status bh_topology_set_series(bh_topology *self, bh_series series)
{
    if (!self ||
        (series != BH_SERIES_R5 && series != BH_SERIES_R10 && series != BH_SERIES_R20 && series != BH_SERIES_R40))
        return BH_ERR_ARGUMENT;
    self->series = series;
    self->is_built = 0;
    return BH_OK;
}

bh_status bh_topology_set_stripes(bh_topology *self, int count)
{
    if (!self || count < 1 || count > BH_TOPOLOGY_MOST_STRIPES)
        return BH_ERR_ARGUMENT;
    self->stripes = count;
    self->is_built = 0;
    return BH_OK;
}

bh_status bh_topology_add_policy(bh_topology *self, bh_policy *policy)
{
    if (!self || !policy)
        return BH_ERR_ARGUMENT;
    bh_status status = bh_policy_check(policy);
    if (status != BH_OK)
        return fail(self, status, bh_policy_error(policy).data);
    void *further = self->further;
    if (!bh__reserve(&further, &self->further_capacity, sizeof(bh_policy *), self->further_count + 1))
        return BH_ERR_NO_MEMORY;
    self->further = further;
    status = bh__policy_copy(&self->further[self->further_count], policy);
    if (status != BH_OK)
        return status;
    self->further_count++;
    self->is_built = 0;
    return BH_OK;
}

bh_status bh_topology_set_work_queue_type(bh_topology *self, bh_queue_type type)
{
    if (!self || !is_queue_type(type))
        return BH_ERR_ARGUMENT;
    self->declares_work_queue = 1;
    self->work_queue_type = type;
    self->is_built = 0;
    return BH_OK;
}

static bh_status add_work_queue_argument(bh_topology *self, bh_bytes name, bh_type type, bh_bytes string,
                                         int64_t number)
{
    if (!self || !name.data || name.size == 0 || name.size > 255 || !string.data || !bh__is_utf8(name) ||
        !bh__is_utf8(string))
        return BH_ERR_ARGUMENT;
    arguments *list = &self->work_queue;
    void *items = list->items;
    if (!bh__reserve(&items, &list->capacity, sizeof *list->items, list->count + 1))
        return BH_ERR_NO_MEMORY;
    list->items = items;
    argument added = {.type = type, .number = number};
    if (!bh__store_add(&list->store, &added.name, name) || !bh__store_add(&list->store, &added.string, string))
        return BH_ERR_NO_MEMORY;
    list->items[list->count++] = added;
    self->is_built = 0;
    return BH_OK;
}

bh_status bh_topology_add_work_queue_string(bh_topology *self, bh_bytes name, bh_bytes value)
{
    return add_work_queue_argument(self, name, BH_TYPE_STRING, value, 0);
}

bh_status bh_topology_add_work_queue_int(bh_topology *self, bh_bytes name, int64_t value)
{
    return add_work_queue_argument(self, name, BH_TYPE_INT64, bh_str(""), value);
}

/* ------------------------------------------------------------------------------------------------ declarations */

static bh_bytes get(const bh_topology *self, bh__text text)
{
    return self ? bh__store_get(&self->store, text) : bh_str("");
}

bh_bytes bh__topology_home(const bh_topology *self)
{
    return bh__store_get(&self->settings, self->queue);
}

bh_bytes bh_topology_queue(const bh_topology *self)
{
    if (self && self->lead.size)
        return bh__store_get(&self->lead, self->lead_queue);
    return self ? bh__topology_home(self) : bh_str("");
}

bh_status bh__topology_check_queue_name(bh_bytes name)
{
    return check_name(name, BH_TOPOLOGY_LONGEST_NAME);
}

void bh__topology_lead_home(bh_topology *self)
{
    self->lead.size = 0;
}

int bh__topology_lead_to(bh_topology *self, bh_bytes queue)
{
    self->lead.size = 0;
    int is_led = bh__store_join(&self->lead, &self->lead_queue, queue, bh_str(""), bh_str("")) &&
                 bh__store_join(&self->lead, &self->lead_key, bh_str(BH__KEY_PREFIX), queue, bh_str("")) &&
                 bh__store_join(&self->lead, &self->lead_parked, queue, bh_str(PARKED_SUFFIX), bh_str(""));
    if (!is_led)
        self->lead.size = 0;
    return is_led;
}

static bh__text join(bh_topology *self, bh_bytes first, bh_bytes second, bh_bytes third)
{
    bh__text text = {0};
    if (!bh__store_join(&self->store, &text, first, second, third))
        self->no_memory = 1;
    return text;
}

static bh__text save(bh_topology *self, const char *text)
{
    return join(self, bh_str(text), bh_str(""), bh_str(""));
}

static bh__text work_queue_and(bh_topology *self, const char *suffix)
{
    return join(self, bh_topology_queue(self), bh_str(suffix), bh_str(""));
}

static bh_bytes default_namespace(const bh_topology *self)
{
    return bh_str(self->queue_type == BH_QUEUE_QUORUM ? "backhop" : "backhop.classic");
}

static bh__text namespace_and(bh_topology *self, const char *suffix)
{
    return join(self, bh__topology_namespace(self), bh_str(suffix), bh_str(""));
}

/* The declaration being made; what follows adds to it. */
static declaration *last(bh_topology *self)
{
    return &self->declarations[self->count - 1];
}

static int declare(bh_topology *self, bh_declaration kind, bh__text name, const char *type)
{
    void *declarations = self->declarations;
    if (!bh__reserve(&declarations, &self->capacity, sizeof *self->declarations, self->count + 1)) {
        self->no_memory = 1;
        return 0;
    }
    self->declarations = declarations;
    declaration added = {.kind = kind, .name = name, .type = save(self, type), .first_argument = self->argument_count};
    self->declarations[self->count++] = added;
    return 1;
}

static void exchange(bh_topology *self, bh__text name, const char *type)
{
    declare(self, BH_DECLARE_EXCHANGE, name, type);
}

static void bind(bh_topology *self, bh__text source, bh__text destination, const char *type, bh__text routing_key)
{
    if (declare(self, BH_DECLARE_BINDING, destination, type)) {
        last(self)->source = source;
        last(self)->routing_key = routing_key;
    }
}

static void add_argument(bh_topology *self, argument added)
{
    void *items = self->arguments;
    if (!bh__reserve(&items, &self->argument_capacity, sizeof *self->arguments, self->argument_count + 1)) {
        self->no_memory = 1;
        return;
    }
    self->arguments = items;
    self->arguments[self->argument_count++] = added;
    last(self)->argument_count++;
}

static void add_text(bh_topology *self, const char *name, bh__text value)
{
    argument added = {.name = save(self, name), .type = BH_TYPE_STRING, .string = value};
    add_argument(self, added);
}

static void add_string(bh_topology *self, const char *name, const char *value)
{
    add_text(self, name, save(self, value));
}

static void add_int(bh_topology *self, const char *name, int64_t value)
{
    argument added = {.name = save(self, name), .type = BH_TYPE_INT64, .number = value};
    add_argument(self, added);
}

/* A queue in which people look at messages and put them back. */
static void shelf_queue(bh_topology *self, bh__text name)
{
    int is_quorum = self->queue_type == BH_QUEUE_QUORUM;
    if (!declare(self, BH_DECLARE_QUEUE, name, is_quorum ? "quorum" : "classic"))
        return;
    add_string(self, "x-queue-type", is_quorum ? "quorum" : "classic");
    if (is_quorum)
        add_int(self, "x-delivery-limit", DELIVERY_LIMIT);
}

/* A fanout exchange and the queue of its name behind it, in which messages wait; ttl_ms 0: for as long as each says. */
static void wait_queue(bh_topology *self, bh__text name, int64_t ttl_ms, bh__text dead_letter_exchange)
{
    int is_quorum = self->queue_type == BH_QUEUE_QUORUM;
    if (declare(self, BH_DECLARE_QUEUE, name, is_quorum ? "quorum" : "classic")) {
        add_string(self, "x-queue-type", is_quorum ? "quorum" : "classic");
        if (ttl_ms)
            add_int(self, "x-message-ttl", ttl_ms);
        add_text(self, "x-dead-letter-exchange", dead_letter_exchange);
        if (is_quorum) {
            add_string(self, "x-dead-letter-strategy", "at-least-once");
            add_string(self, "x-overflow", "reject-publish");
            add_string(self, "x-queue-leader-locator", "balanced");
        }
    }
    bind(self, name, name, "queue", save(self, ""));
}

/* Whether the user gives this argument for the work queue. */
static int has_own_argument(const bh_topology *self, const char *name)
{
    const arguments *own = &self->work_queue;
    for (size_t i = 0; i < own->count; i++)
        if (bh__same(bh__store_get(&own->store, own->items[i].name), bh_str(name)))
            return 1;
    return 0;
}

/* Begins the work queue's declaration; false where there is no memory. */
static int work_queue(bh_topology *self)
{
    const char *type = self->work_queue_type == BH_QUEUE_QUORUM ? "quorum" : "classic";
    if (!declare(self, BH_DECLARE_QUEUE, work_queue_and(self, ""), type))
        return 0;
    add_string(self, "x-queue-type", type);
    return 1;
}

/* Ends it with the user's own arguments, none of which may be one of the strategy's. */
static bh_status work_queue_end(bh_topology *self)
{
    const arguments *own = &self->work_queue;
    int is_quorum = self->strategy == BH_STRATEGY_NATIVE || self->work_queue_type == BH_QUEUE_QUORUM;
    if (is_quorum && (!bh__topology_copies(self) || !has_own_argument(self, "x-delivery-limit")))
        add_int(self, "x-delivery-limit", DELIVERY_LIMIT);
    for (size_t i = 0; i < own->count; i++) {
        bh_bytes name = bh__store_get(&own->store, own->items[i].name);
        const declaration *queue = last(self);
        for (size_t j = 0; j < queue->argument_count; j++) {
            if (!bh__same(name, get(self, self->arguments[queue->first_argument + j].name)))
                continue;
            snprintf(
                self->error, sizeof self->error,
                "the work queue's argument %s is set by the strategy itself: leave it out, or take strategy ladder",
                name.data);
            return BH_ERR_STRATEGY;
        }
        argument added = own->items[i];
        added.name = join(self, name, bh_str(""), bh_str(""));
        added.string = join(self, bh__store_get(&own->store, added.string), bh_str(""), bh_str(""));
        add_argument(self, added);
    }
    return BH_OK;
}

/* --------------------------------------------------------------------------------------------------- strategies */

static int is_exact(const bh_policy *policy)
{
    return bh_policy_jitter(policy) == BH_JITTER_NONE;
}

/* What a policy asks of strategies that have no wait queue for each delay. */
typedef struct demand {
    bh__rungs rungs;  /* ladder */
    int64_t fixed_ms; /* reject, native: the first delay and the longest */
    int64_t fixed_most_ms;
} demand;

static const char *demand_of_reject(demand *self, const bh_policy *policy)
{
    bh__delays(policy, &self->fixed_ms, &self->fixed_most_ms);
    if (!is_exact(policy) || self->fixed_ms != self->fixed_most_ms)
        return "strategy reject has one fixed delay, and this policy has others: take strategy ladder, or a policy of "
               "kind fixed without jitter";
    return NULL;
}

static const char *demand_of_native(demand *self, const bh_policy *policy)
{
    bh_kind kind = bh_policy_kind(policy);
    if (!is_exact(policy) || (kind != BH_KIND_LINEAR && kind != BH_KIND_FIXED))
        return "strategy native has delays that grow by a constant, without jitter: take strategy ladder, or a policy "
               "of kind linear or fixed without jitter";
    if (bh_policy_max_age_ms(policy) > 0)
        return "strategy native does not know when a message first failed, so it has no max_age: leave it out, or "
               "take strategy ladder";
    self->fixed_ms = bh_policy_lowest_ms(policy, 1);
    self->fixed_most_ms = kind == BH_KIND_FIXED ? self->fixed_ms : bh_policy_max_ms(policy);
    return NULL;
}

static const char *demand_of_delayed_exchange(const bh_policy *policy)
{
    int64_t lowest_ms;
    int64_t highest_ms;
    bh__delays(policy, &lowest_ms, &highest_ms);
    if (highest_ms > LONGEST_X_DELAY_MS)
        return "strategy delayed-exchange cannot delay by more than 4294967295 ms: lower max_ms, or take strategy "
               "ladder";
    if (bh_policy_max_retry_after_ms(policy) > LONGEST_X_DELAY_MS)
        return "strategy delayed-exchange cannot delay by more than 4294967295 ms: lower max_retry_after_ms, or take "
               "strategy ladder";
    return NULL;
}

/* Adds what a policy asks of the strategy; NULL, or the sentence why the strategy cannot serve it. */
static const char *add_demand(demand *self, const bh_topology *topology, const bh_policy *policy)
{
    switch (topology->strategy) {
    case BH_STRATEGY_LADDER:
        return bh__rungs_add(&self->rungs, policy, topology->series);
    case BH_STRATEGY_MESSAGE_TTL:
        return NULL;
    case BH_STRATEGY_REJECT:
        return demand_of_reject(self, policy);
    case BH_STRATEGY_DELAYED_EXCHANGE:
        return demand_of_delayed_exchange(policy);
    case BH_STRATEGY_NATIVE:
        return demand_of_native(self, policy);
    }
    return NULL;
}

/* What all policies of the topology ask for, in its rungs and its fixed delay. */
static bh_status demand_all(bh_topology *self)
{
    demand all;
    bh__rungs_clear(&all.rungs);
    all.fixed_ms = all.fixed_most_ms = 0;
    const char *why_not = add_demand(&all, self, self->policy);
    self->fixed_ms = all.fixed_ms;
    self->fixed_most_ms = all.fixed_most_ms;
    for (size_t i = 0; !why_not && i < self->further_count; i++) {
        why_not = add_demand(&all, self, self->further[i]);
        if (!why_not && (all.fixed_ms != self->fixed_ms || all.fixed_most_ms != self->fixed_most_ms))
            why_not = "this strategy has the same delays for all messages, and the policies differ: give policies of "
                      "the same delays, or take strategy ladder";
    }
    if (self->strategy == BH_STRATEGY_LADDER)
        bh__rungs_add_crash_waits(&all.rungs, self->policy, self->series);
    self->rungs = all.rungs;
    return why_not ? fail(self, BH_ERR_STRATEGY, why_not) : BH_OK;
}

int bh__topology_serves(const bh_topology *self, const bh_policy *policy)
{
    if (bh__policy_same(self->policy, policy))
        return 1;
    for (size_t i = 0; i < self->further_count; i++)
        if (bh__policy_same(self->further[i], policy))
            return 1;
    demand asked;
    bh__rungs_clear(&asked.rungs);
    asked.fixed_ms = asked.fixed_most_ms = 0;
    return !add_demand(&asked, self, policy) && bh__rungs_include(&self->rungs, &asked.rungs) &&
           asked.fixed_ms == self->fixed_ms && asked.fixed_most_ms == self->fixed_most_ms;
}

bh_status bh_topology_check_policy(const bh_topology *self, const bh_policy *policy)
{
    if (!self || !policy)
        return BH_ERR_ARGUMENT;
    if (!self->is_built)
        return BH_ERR_STATE;
    return bh__topology_serves(self, policy) ? BH_OK : BH_ERR_FOREIGN_POLICY;
}

int bh__topology_has_policy(const bh_topology *self, const bh_policy *policy)
{
    size_t i = 0;
    while (i < self->further_count && !bh__policy_same(self->further[i], policy))
        i++;
    return i < self->further_count;
}

/* Names that the next functions share; the parked queue of all strategies. */
static void make_names(bh_topology *self)
{
    if (self->is_relays) {
        bh__text rejected = namespace_and(self, ".rejected");
        if (!bh__store_add(&self->settings, &self->queue, get(self, rejected)))
            self->no_memory = 1;
        return;
    }
    self->return_key = join(self, bh_str(BH__KEY_PREFIX), bh_topology_queue(self), bh_str(""));
    self->parked_queue = work_queue_and(self, PARKED_SUFFIX);
}

/* The exchange through which messages come back; those whose work queue is gone end in <ns>.unroutable. */
static void return_exchange(bh_topology *self, bh__text name, const char *type)
{
    bh__text unroutable = self->unroutable_queue = namespace_and(self, ".unroutable");
    exchange(self, unroutable, "fanout");
    shelf_queue(self, unroutable);
    bind(self, unroutable, unroutable, "queue", save(self, ""));
    self->return_exchange = name;
    if (declare(self, BH_DECLARE_EXCHANGE, name, type))
        add_text(self, "alternate-exchange", unroutable);
}

/* The way back of copies: <ns>.return leads each to its work queue, by the key in its BCC. */
static bh_status build_return(bh_topology *self)
{
    return_exchange(self, namespace_and(self, ".return"), "direct");
    shelf_queue(self, self->parked_queue);
    if (self->declares_work_queue && work_queue(self)) {
        bh_status status = work_queue_end(self);
        if (status != BH_OK)
            return status;
    }
    bind(self, self->return_exchange, work_queue_and(self, ""), "queue", self->return_key);
    return BH_OK;
}

static void build_rung(bh_topology *self, int64_t ms, int is_on_demand)
{
    char digits[BH__DIGITS];
    bh_bytes number = bh__decimal(digits, ms);
    size_t first = self->count;
    for (int stripe = 1; stripe <= self->stripes; stripe++) {
        char suffix[16] = "";
        if (stripe > 1)
            snprintf(suffix, sizeof suffix, ".%d", stripe);
        bh__text name = join(self, get(self, self->wait_exchange), number, bh_str(suffix));
        exchange(self, name, "fanout");
        wait_queue(self, name, ms, self->return_exchange);
    }
    for (size_t i = first; i < self->count; i++) {
        self->declarations[i].wait_ms = ms;
        self->declarations[i].is_on_demand = is_on_demand;
    }
}

/* A full work queue that refuses publishes stops the rungs that lead to it: they may be nobody else's. */
static bh_status check_overflow(bh_topology *self)
{
    const arguments *own = &self->work_queue;
    bh_bytes standard = default_namespace(self);
    if (self->name_space.size > 0 && !bh__same(bh__store_get(&self->settings, self->name_space), standard))
        return BH_OK;
    for (size_t i = 0; i < own->count; i++) {
        bh_bytes value = bh__store_get(&own->store, own->items[i].string);
        if (!bh__same(bh__store_get(&own->store, own->items[i].name), bh_str("x-overflow")) ||
            !bh__begins(value, "reject-publish"))
            continue;
        snprintf(self->error, sizeof self->error,
                 "a work queue with x-overflow %s stops the wait queues that lead to it while it is full, and in "
                 "namespace %s they are everybody's: give a namespace of its own, leave x-overflow out, or take "
                 "strategy message-ttl",
                 value.data, standard.data);
        return BH_ERR_STRATEGY;
    }
    return BH_OK;
}

/* Where a relay gets what its work queues dead-letter; each of them has its own parked queue and way back. */
static void build_rejected(bh_topology *self)
{
    bh__text rejected = work_queue_and(self, "");
    return_exchange(self, namespace_and(self, ".return"), "direct");
    exchange(self, rejected, "fanout");
    shelf_queue(self, rejected);
    bind(self, rejected, rejected, "queue", save(self, ""));
}

static bh_status build_ladder(bh_topology *self)
{
    bh_status status = check_overflow(self);
    if (status == BH_OK && self->is_relays)
        build_rejected(self);
    else if (status == BH_OK)
        status = build_return(self);
    if (status != BH_OK)
        return status;
    self->wait_exchange = namespace_and(self, ".wait.");
    for (size_t i = 0; i < self->rungs.count; i++)
        build_rung(self, self->rungs.policy_ms[i], 0);
    for (size_t i = 0; i < self->rungs.demand_count; i++)
        build_rung(self, self->rungs.demand_ms[i], 1);
    return BH_OK;
}

static bh_status build_message_ttl(bh_topology *self)
{
    bh_status status = build_return(self);
    if (status != BH_OK)
        return status;
    self->wait_exchange = work_queue_and(self, ".wait");
    exchange(self, self->wait_exchange, "fanout");
    wait_queue(self, self->wait_exchange, 0, self->return_exchange);
    int64_t lowest_ms;
    int64_t highest_ms;
    bh__delays(self->policy, &lowest_ms, &highest_ms);
    for (size_t i = 0; i < self->further_count; i++) {
        int64_t lowest;
        int64_t highest;
        bh__delays(self->further[i], &lowest, &highest);
        lowest_ms = lowest < lowest_ms ? lowest : lowest_ms;
        highest_ms = highest > highest_ms ? highest : highest_ms;
    }
    self->worst_lateness_ms = highest_ms - lowest_ms;
    return BH_OK;
}

static bh_status build_reject(bh_topology *self)
{
    /* What dead-letters a message that nobody rejected begins a cycle that the broker breaks: it would never come back.
     * A quorum queue that is full rejects publishes here, and dead-letters nothing. */
    static const char *const unrejected[] = {"x-message-ttl", "x-max-length", "x-max-length-bytes"};
    size_t count = self->work_queue_type == BH_QUEUE_QUORUM ? 1 : 3;
    for (size_t i = 0; i < count; i++) {
        if (!has_own_argument(self, unrejected[i]))
            continue;
        snprintf(
            self->error, sizeof self->error,
            "strategy reject cannot have %s on the work queue, whose messages would be dead-lettered without being "
            "rejected and never come back: leave it out, or take strategy ladder",
            unrejected[i]);
        return BH_ERR_STRATEGY;
    }
    return_exchange(self, work_queue_and(self, ".return"), "fanout");
    shelf_queue(self, self->parked_queue);
    self->wait_exchange = work_queue_and(self, ".retry");
    exchange(self, self->wait_exchange, "fanout");
    if (work_queue(self)) {
        add_text(self, "x-dead-letter-exchange", self->wait_exchange);
        if (self->work_queue_type == BH_QUEUE_QUORUM) {
            add_string(self, "x-dead-letter-strategy", "at-least-once");
            add_string(self, "x-overflow", "reject-publish");
        }
        bh_status status = work_queue_end(self);
        if (status != BH_OK)
            return status;
    }
    bind(self, self->return_exchange, work_queue_and(self, ""), "queue", save(self, ""));
    wait_queue(self, self->wait_exchange, self->fixed_ms, self->return_exchange);
    return BH_OK;
}

static bh_status build_delayed_exchange(bh_topology *self)
{
    if (self->declares_work_queue && self->work_queue_type == BH_QUEUE_QUORUM)
        return fail(
            self, BH_ERR_STRATEGY,
            "strategy delayed-exchange loses what falls due while the broker restarts where the work queue is a "
            "quorum queue, which has no leader yet when the plugin sends: make it classic, or take strategy "
            "ladder");
    bh_status status = build_return(self);
    if (status != BH_OK)
        return status;
    self->wait_exchange = namespace_and(self, ".delayed");
    /* No alternate-exchange: while it delays, the plugin routes to nothing, and the alternate would take every
     * message. */
    if (declare(self, BH_DECLARE_EXCHANGE, self->wait_exchange, "x-delayed-message"))
        add_string(self, "x-delayed-type", "fanout");
    bind(self, self->wait_exchange, self->return_exchange, "exchange", save(self, ""));
    return BH_OK;
}

static bh_status build_native(bh_topology *self)
{
    if (self->declares_work_queue && self->work_queue_type != BH_QUEUE_QUORUM)
        return fail(self, BH_ERR_STRATEGY,
                    "strategy native needs a quorum work queue: make it one, or take strategy ladder");
    shelf_queue(self, self->parked_queue);
    if (!work_queue(self))
        return BH_OK;
    add_string(self, "x-delayed-retry-type", "failed");
    add_int(self, "x-delayed-retry-min", self->fixed_ms);
    add_int(self, "x-delayed-retry-max", self->fixed_most_ms);
    return work_queue_end(self);
}

static void clear(bh_topology *self)
{
    self->is_built = 0;
    self->lead.size = 0;
    self->store.size = 0;
    self->definitions.size = 0;
    self->count = 0;
    self->argument_count = 0;
    bh__rungs_clear(&self->rungs);
    self->worst_lateness_ms = 0;
    self->fixed_ms = self->fixed_most_ms = 0;
    self->no_memory = 0;
    self->error[0] = '\0';
    self->return_key = self->parked_queue = self->unroutable_queue = self->return_exchange = self->wait_exchange =
        (bh__text){0, 0};
}

static bh_status build_strategy(bh_topology *self)
{
    switch (self->strategy) {
    case BH_STRATEGY_LADDER:
        return build_ladder(self);
    case BH_STRATEGY_MESSAGE_TTL:
        return build_message_ttl(self);
    case BH_STRATEGY_REJECT:
        return build_reject(self);
    case BH_STRATEGY_DELAYED_EXCHANGE:
        return build_delayed_exchange(self);
    case BH_STRATEGY_NATIVE:
        return build_native(self);
    }
    return BH_ERR_ARGUMENT;
}

bh_status bh_topology_build(bh_topology *self, bh_policy *policy)
{
    if (!self || !policy)
        return BH_ERR_ARGUMENT;
    clear(self);
    bh_status status = bh_policy_check(policy);
    if (status != BH_OK)
        return fail(self, status, bh_policy_error(policy).data);
    bh_policy *copy;
    if (bh__policy_copy(&copy, policy) != BH_OK)
        return BH_ERR_NO_MEMORY;
    bh_policy_free(self->policy);
    self->policy = copy;
    make_names(self);
    if (self->work_queue.count > 0 && !self->declares_work_queue && bh__topology_copies(self))
        return fail(
            self, BH_ERR_STRATEGY,
            "arguments are given for a work queue that this strategy does not declare: set the work queue's type "
            "too, or leave them out");
    if (self->stripes > 1 && self->strategy != BH_STRATEGY_LADDER)
        return fail(self, BH_ERR_STRATEGY,
                    "stripes are for the rungs of strategy ladder, and this strategy has none: leave them out, or take "
                    "strategy ladder");
    status = demand_all(self);
    if (status == BH_OK)
        status = build_strategy(self);
    if (self->no_memory)
        status = BH_ERR_NO_MEMORY;
    if (status != BH_OK) {
        self->count = 0;
        bh__rungs_clear(&self->rungs);
    }
    self->is_built = status == BH_OK;
    return status;
}

bh_status bh__topology_new_part(bh_topology **out, const bh_topology *relays, bh_bytes queue, bh_policy *policy)
{
    bh_status status = bh_topology_new(out, queue);
    if (status == BH_OK)
        status = bh_topology_set_namespace(*out, bh__topology_namespace(relays));
    if (status == BH_OK) {
        (*out)->queue_type = relays->queue_type;
        (*out)->series = relays->series;
        (*out)->stripes = relays->stripes;
        status = bh_topology_build(*out, policy);
    }
    if (status != BH_OK) {
        bh_topology_free(*out);
        *out = NULL;
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------------ broker */

/* Reads digits from *at on. False where there is none, or the number is no version's. */
static int read_version_number(bh_bytes version, size_t *at, int *number)
{
    size_t first = *at;
    *number = 0;
    while (*at < version.size && version.data[*at] >= '0' && version.data[*at] <= '9' && *number < 10000)
        *number = *number * 10 + (version.data[(*at)++] - '0');
    return *at > first && *number < 10000;
}

int bh__broker_version(bh_bytes version)
{
    int major;
    int minor;
    size_t at = 0;
    if (!read_version_number(version, &at, &major) || at == version.size || version.data[at++] != '.' ||
        !read_version_number(version, &at, &minor))
        return -1;
    return major * 10000 + minor;
}

bh_status bh_topology_check_broker(bh_topology *self, bh_bytes product, bh_bytes version)
{
    if (!self || !product.data || !version.data)
        return BH_ERR_ARGUMENT;
    if (!self->is_built)
        return BH_ERR_STATE;
    self->error[0] = '\0';
    if (!bh__same(product, bh_str("RabbitMQ")))
        return fail(self, BH_ERR_BROKER,
                    "the broker is not RabbitMQ, whose queues and dead letters all strategies need");
    int number = bh__broker_version(version);
    if (number < 0)
        return fail(self, BH_ERR_BROKER, "the broker's version does not begin with two numbers, as 4.0 does");
    if (number < 3 * 10000 + 8)
        return fail(self, BH_ERR_BROKER, "RabbitMQ is older than 3.8: upgrade it");
    if (self->strategy == BH_STRATEGY_NATIVE && number < 4 * 10000 + 3)
        return fail(
            self, BH_ERR_BROKER,
            "strategy native needs RabbitMQ 4.3 or newer, older ones ignore its arguments: take strategy ladder");
    if (self->strategy == BH_STRATEGY_DELAYED_EXCHANGE && number > 4 * 10000 + 2)
        return fail(
            self, BH_ERR_BROKER,
            "strategy delayed-exchange needs a plugin that runs on RabbitMQ 4.2 and older: take strategy ladder");
    int needs_ttl = self->queue_type == BH_QUEUE_QUORUM && self->strategy != BH_STRATEGY_DELAYED_EXCHANGE;
    int needs_at_least_once = self->strategy == BH_STRATEGY_REJECT && self->work_queue_type == BH_QUEUE_QUORUM;
    if ((needs_ttl || needs_at_least_once) && number < 3 * 10000 + 10)
        return fail(self, BH_ERR_BROKER,
                    "quorum queues have no message TTL and no safe dead letters before RabbitMQ 3.10: take queue type "
                    "classic with this strategy");
    return BH_OK;
}

bh_status bh_topology_export(bh_topology *self, bh_bytes vhost)
{
    if (!self || !vhost.data)
        return BH_ERR_ARGUMENT;
    if (!self->is_built)
        return BH_ERR_STATE;
    if (!bh__is_utf8(vhost))
        return fail(self, BH_ERR_NAME, "the vhost's name is not UTF-8: give it in UTF-8");
    self->definitions.size = 0;
    if (bh__topology_write_definitions(self, &self->definitions, vhost))
        return BH_OK;
    self->definitions.size = 0;
    return BH_ERR_NO_MEMORY;
}

bh_bytes bh_topology_definitions(const bh_topology *self)
{
    bh_bytes json = {self && self->definitions.size ? self->definitions.data : "", self ? self->definitions.size : 0};
    return json;
}

bh_bytes bh_topology_error(const bh_topology *self)
{
    return bh_str(self ? self->error : "");
}

/* ----------------------------------------------------------------------------------------------------- getters */

bh_strategy bh_topology_strategy(const bh_topology *self)
{
    return self ? self->strategy : BH_STRATEGY_LADDER;
}

bh_bytes bh_topology_parked_queue(const bh_topology *self)
{
    if (self && self->lead.size)
        return bh__store_get(&self->lead, self->lead_parked);
    return get(self, self ? self->parked_queue : (bh__text){0, 0});
}

bh_bytes bh_topology_unroutable_queue(const bh_topology *self)
{
    return get(self, self ? self->unroutable_queue : (bh__text){0, 0});
}

int bh_topology_owns(const bh_topology *self, const bh_delivery *delivery)
{
    return self && delivery &&
           bh__same(bh_delivery_header_string(delivery, bh_str("backhop-queue")), bh_topology_queue(self));
}

int64_t bh_topology_worst_lateness_ms(const bh_topology *self)
{
    return self ? self->worst_lateness_ms : 0;
}

size_t bh_topology_rung_count(const bh_topology *self)
{
    return self ? self->rungs.count : 0;
}

int64_t bh_topology_rung_ms(const bh_topology *self, size_t index)
{
    return self && index < self->rungs.count ? self->rungs.policy_ms[index] : 0;
}

size_t bh_topology_count(const bh_topology *self)
{
    return self ? self->count : 0;
}

static const declaration *declaration_at(const bh_topology *self, size_t index)
{
    static const declaration none;
    return self && index < self->count ? &self->declarations[index] : &none;
}

bh_declaration bh_topology_declaration(const bh_topology *self, size_t index)
{
    return declaration_at(self, index)->kind;
}

bh_bytes bh_topology_name(const bh_topology *self, size_t index)
{
    return get(self, declaration_at(self, index)->name);
}

bh_bytes bh_topology_type(const bh_topology *self, size_t index)
{
    return get(self, declaration_at(self, index)->type);
}

bh_bytes bh_topology_source(const bh_topology *self, size_t index)
{
    return get(self, declaration_at(self, index)->source);
}

bh_bytes bh_topology_routing_key(const bh_topology *self, size_t index)
{
    return get(self, declaration_at(self, index)->routing_key);
}

int64_t bh_topology_wait_ms(const bh_topology *self, size_t index)
{
    return declaration_at(self, index)->wait_ms;
}

int bh_topology_on_demand(const bh_topology *self, size_t index)
{
    return declaration_at(self, index)->is_on_demand;
}

size_t bh_topology_argument_count(const bh_topology *self, size_t index)
{
    return declaration_at(self, index)->argument_count;
}

static const argument *argument_at(const bh_topology *self, size_t index, size_t number)
{
    static const argument none;
    const declaration *of = declaration_at(self, index);
    return number < of->argument_count ? &self->arguments[of->first_argument + number] : &none;
}

bh_bytes bh_topology_argument_name(const bh_topology *self, size_t index, size_t number)
{
    return get(self, argument_at(self, index, number)->name);
}

bh_type bh_topology_argument_type(const bh_topology *self, size_t index, size_t number)
{
    return argument_at(self, index, number)->type;
}

bh_bytes bh_topology_argument_string(const bh_topology *self, size_t index, size_t number)
{
    return get(self, argument_at(self, index, number)->string);
}

int64_t bh_topology_argument_int(const bh_topology *self, size_t index, size_t number)
{
    return argument_at(self, index, number)->number;
}

int bh__topology_stripes(const bh_topology *self)
{
    return self->stripes;
}

int bh__topology_is_built(const bh_topology *self)
{
    return self->is_built;
}

int bh__topology_copies(const bh_topology *self)
{
    return self->strategy != BH_STRATEGY_REJECT && self->strategy != BH_STRATEGY_NATIVE;
}

bh_bytes bh__topology_namespace(const bh_topology *self)
{
    bh_bytes name = bh__store_get(&self->settings, self->name_space);
    return name.size ? name : default_namespace(self);
}

bh_bytes bh__topology_return_key(const bh_topology *self)
{
    if (self->lead.size)
        return bh__store_get(&self->lead, self->lead_key);
    return get(self, self->return_key);
}

bh_bytes bh__topology_return_exchange(const bh_topology *self)
{
    return get(self, self->return_exchange);
}

bh_bytes bh__topology_wait_exchange(const bh_topology *self)
{
    return get(self, self->wait_exchange);
}

const bh__rungs *bh__topology_rungs(const bh_topology *self)
{
    return &self->rungs;
}
