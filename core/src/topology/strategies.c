/* Strategies: the declarations of each strategy. */
#include "topology/declarations.h"

#include <stdio.h>

void bh__topology_make_names(bh_topology *self)
{
    if (self->is_relays) {
        bh__text rejected = bh__name_in_namespace(self, ".rejected");
        if (!bh__store_add(&self->settings, &self->queue, bh__topology_text(self, rejected)))
            self->no_memory = 1;
        return;
    }
    self->return_key = bh__make_text(self, bh_str(BH__KEY_PREFIX), bh__topology_queue(self), bh_str(""));
    self->parked_queue = bh__name_after_queue(self, BH__PARKED_SUFFIX);
}

/*
 * Declares the return exchange. Its alternate exchange collects messages whose work queue is
 * missing.
 */
static void return_exchange(bh_topology *self, bh__text name, const char *type)
{
    bh__text unroutable = self->unroutable_queue = bh__name_in_namespace(self, ".unroutable");
    bh__declare_exchange(self, unroutable, "fanout");
    bh__declare_plain_queue(self, unroutable);
    bh__declare_binding(self, unroutable, unroutable, "queue", bh__save_text(self, ""));
    self->return_exchange = name;
    if (bh__add_declaration(self, BH_DECLARE_EXCHANGE, name, type))
        bh__add_text_argument(self, "alternate-exchange", unroutable);
}

/*
 * Declares <ns>.return and the return binding. RabbitMQ routes a dead letter by the key in its BCC
 * header.
 */
static bh_status build_return(bh_topology *self)
{
    return_exchange(self, bh__name_in_namespace(self, ".return"), "direct");
    bh__declare_plain_queue(self, self->parked_queue);
    if (self->declares_work_queue && bh__begin_work_queue(self)) {
        bh_status status = bh__end_work_queue(self);
        if (status != BH_OK)
            return status;
    }
    bh__declare_binding(self, self->return_exchange, bh__name_after_queue(self, ""), "queue", self->return_key);
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
        bh__text name = bh__make_text(self, bh__topology_text(self, self->wait_exchange), number, bh_str(suffix));
        bh__declare_exchange(self, name, "fanout");
        bh__declare_wait_queue(self, name, ms, self->return_exchange);
    }
    for (size_t i = first; i < self->count; i++) {
        self->declarations[i].rung_ms = ms;
        self->declarations[i].is_on_demand = is_on_demand;
    }
}

/* Reads a number of at most `digits` digits, and returns the place behind it. NULL: there is none,
 * or it begins with 0. */
static const char *read_number(const char *at, int digits, int64_t *out)
{
    if (*at < '1' || *at > '9')
        return NULL;
    for (*out = 0; digits > 0 && *at >= '0' && *at <= '9'; digits--)
        *out = *out * 10 + (*at++ - '0');
    return at;
}

int64_t bh__rung_of_name(const char *end)
{
    enum { DELAY_DIGITS = 10, STRIPE_DIGITS = 2 }; /* RabbitMQ's longest TTL has 10 */
    int64_t delay_ms = 0, stripe = 2;
    const char *at = read_number(end, DELAY_DIGITS, &delay_ms);
    if (at && *at == '.')
        at = read_number(at + 1, STRIPE_DIGITS, &stripe);
    return at && *at == '\0' && stripe > 1 ? delay_ms : 0;
}

/*
 * Refuses a work queue with x-overflow reject-publish on shared rungs: if it is full, it blocks
 * them for all.
 */
static bh_status check_overflow(bh_topology *self)
{
    const bh__draft_arguments *own = &self->work_queue;
    bh_bytes standard = bh__default_namespace(self);
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

/* Declares <ns>.rejected, which gets the dead letters of a relay's work queues. */
static void build_rejected(bh_topology *self)
{
    bh__text rejected = bh__name_after_queue(self, "");
    return_exchange(self, bh__name_in_namespace(self, ".return"), "direct");
    bh__declare_exchange(self, rejected, "fanout");
    bh__declare_plain_queue(self, rejected);
    bh__declare_binding(self, rejected, rejected, "queue", bh__save_text(self, ""));
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
    self->wait_exchange = bh__name_in_namespace(self, ".wait.");
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
    self->wait_exchange = bh__name_after_queue(self, ".wait");
    bh__declare_exchange(self, self->wait_exchange, "fanout");
    bh__declare_wait_queue(self, self->wait_exchange, 0, self->return_exchange);
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
    /*
     * These arguments dead-letter messages without a reject. RabbitMQ drops such a message when the
     * cycle of dead letters closes. A full quorum queue refuses publishes here instead.
     */
    static const char *const unrejected[] = {"x-message-ttl", "x-max-length", "x-max-length-bytes"};
    size_t count = self->work_queue_type == BH_QUEUE_QUORUM ? 1 : 3;
    for (size_t i = 0; i < count; i++) {
        if (!bh__has_own_argument(self, unrejected[i]))
            continue;
        snprintf(
            self->error, sizeof self->error,
            "strategy reject cannot have %s on the work queue, whose messages would be dead-lettered without being "
            "rejected and never come back: leave it out, or take strategy ladder",
            unrejected[i]);
        return BH_ERR_STRATEGY;
    }
    return_exchange(self, bh__name_after_queue(self, ".return"), "fanout");
    bh__declare_plain_queue(self, self->parked_queue);
    self->wait_exchange = bh__name_after_queue(self, ".retry");
    bh__declare_exchange(self, self->wait_exchange, "fanout");
    if (bh__begin_work_queue(self)) {
        bh__add_text_argument(self, "x-dead-letter-exchange", self->wait_exchange);
        if (self->work_queue_type == BH_QUEUE_QUORUM) {
            bh__add_string_argument(self, "x-dead-letter-strategy", "at-least-once");
            bh__add_string_argument(self, "x-overflow", "reject-publish");
        }
        bh_status status = bh__end_work_queue(self);
        if (status != BH_OK)
            return status;
    }
    bh__declare_binding(self, self->return_exchange, bh__name_after_queue(self, ""), "queue", bh__save_text(self, ""));
    bh__declare_wait_queue(self, self->wait_exchange, self->fixed_ms, self->return_exchange);
    return BH_OK;
}

static bh_status build_delayed_exchange(bh_topology *self)
{
    if (self->declares_work_queue && self->work_queue_type == BH_QUEUE_QUORUM)
        return bh__topology_fail(
            self, BH_ERR_STRATEGY,
            "with a quorum work queue, strategy delayed-exchange loses messages that fall due while the broker "
            "restarts: the queue has no leader yet when the plugin sends; make it classic, or take strategy ladder");
    bh_status status = build_return(self);
    if (status != BH_OK)
        return status;
    self->wait_exchange = bh__name_in_namespace(self, ".delayed");
    /*
     * No alternate-exchange: a delayed message counts as unroutable, and the alternate would get
     * it.
     */
    if (bh__add_declaration(self, BH_DECLARE_EXCHANGE, self->wait_exchange, "x-delayed-message"))
        bh__add_string_argument(self, "x-delayed-type", "fanout");
    bh__declare_binding(self, self->wait_exchange, self->return_exchange, "exchange", bh__save_text(self, ""));
    return BH_OK;
}

static bh_status build_native(bh_topology *self)
{
    if (self->declares_work_queue && self->work_queue_type != BH_QUEUE_QUORUM)
        return bh__topology_fail(self, BH_ERR_STRATEGY,
                                 "strategy native needs a quorum work queue: make it one, or take strategy ladder");
    bh__declare_plain_queue(self, self->parked_queue);
    if (!bh__begin_work_queue(self))
        return BH_OK;
    bh__add_string_argument(self, "x-delayed-retry-type", "failed");
    bh__add_int_argument(self, "x-delayed-retry-min", self->fixed_ms);
    bh__add_int_argument(self, "x-delayed-retry-max", self->fixed_most_ms);
    return bh__end_work_queue(self);
}

bh_status bh__topology_declare_all(bh_topology *self)
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
