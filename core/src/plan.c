#include "delivery_internal.h"
#include "history_internal.h"
#include "plan_internal.h"
#include "topology_internal.h"
#include "traceparent.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    MOST_HEADERS = 18,
    CONTENT_HEADER_START = 12, /* class, weight and body size, before the property flags */
    FRAME_OVERHEAD = 8,        /* a frame's own header and end */
    LONGEST_SHORT_STRING = 255
};

/* Where a message was first published. */
typedef struct origin {
    bh_bytes exchange, routing_key;
} origin;

/* What a plan is made from. */
typedef struct input {
    const bh_delivery *delivery;
    const bh_history *history;
    const bh_policy *policy;
    const bh_topology *topology;
    bh_bytes error;
    int64_t now_ms;
    bh_bytes random;
    bh__shelf shelf;      /* where to park */
    bh_bytes traceparent; /* "": none */
    const origin *origin; /* NULL: as the history tells; the copy's routing key is the delivery's then */
} input;

/* A header that the copy gets. */
typedef struct header {
    bh_bytes name;
    bh_type type;
    bh__text string;
    int64_t number;
} header;

struct bh_plan {
    int64_t frame_max;
    char traceparent[BH__TRACEPARENT_BYTES + 1]; /* of the attempt that the next decision is about; "": none */
    bh_action action;
    int64_t attempts;
    int64_t first_failure_ms; /* -1: unknown */
    int64_t crashes;          /* that bh_plan_guard counted */
    int64_t delay_ms;
    int is_retry_after_met;
    int is_on_demand;
    const char *reason;
    bh__store store;
    bh__text exchange;
    bh__text routing_key;
    bh__text expiration;
    header headers[MOST_HEADERS];
    size_t header_count;
    int no_memory;
    bh__buffer copied; /* the properties that were written last */
};

bh_status bh_plan_new(bh_plan **out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return BH_ERR_NO_MEMORY;
    (*out)->frame_max = BH_PLAN_DEFAULT_FRAME_MAX;
    (*out)->reason = "";
    return BH_OK;
}

void bh_plan_free(bh_plan *self)
{
    if (!self)
        return;
    bh__store_free(&self->store);
    bh__buffer_free(&self->copied);
    free(self);
}

bh_status bh_plan_set_frame_max(bh_plan *self, int64_t frame_max)
{
    if (!self || frame_max < 0)
        return BH_ERR_ARGUMENT;
    self->frame_max = frame_max;
    return BH_OK;
}

bh_status bh_plan_set_traceparent(bh_plan *self, bh_bytes traceparent)
{
    if (!self || !traceparent.data || (traceparent.size && !bh__is_traceparent(traceparent)))
        return BH_ERR_ARGUMENT;
    if (traceparent.size)
        memcpy(self->traceparent, traceparent.data, traceparent.size);
    self->traceparent[traceparent.size] = '\0';
    return BH_OK;
}

static void clear(bh_plan *self)
{
    bh_plan empty = {
        .frame_max = self->frame_max,
        .is_retry_after_met = 1,
        .reason = "",
        .store = {self->store.data, 0, self->store.capacity},
        .copied = self->copied,
    };
    *self = empty;
}

/* ------------------------------------------------------------------------------------------------------ headers */

/* What no copy keeps: the broker's and the routing headers, and Backhop's own, which are set anew. */
static const bh_bytes never_kept[] = {
    BH__LITERAL("x-death"),
    BH__LITERAL("x-delivery-count"),
    BH__LITERAL("x-acquired-count"),
    BH__LITERAL("x-delay"),
    BH__LITERAL("CC"),
    BH__LITERAL("BCC"),
    BH__LITERAL("backhop-queue"),
    BH__LITERAL("backhop-attempts"),
    BH__LITERAL("backhop-first-failure"),
    BH__LITERAL("backhop-delay"),
    BH__LITERAL("backhop-due"),
    BH__LITERAL("backhop-id"),
    BH__LITERAL("backhop-exchange"),
    BH__LITERAL("backhop-routing-key"),
    BH__LITERAL("backhop-error"),
    BH__LITERAL("backhop-parked"),
    BH__LITERAL("backhop-crashes"),
    BH__LITERAL("backhop-replays"),
    BH__LITERAL("backhop-traceparent"),
};

/* The index of the header that is set by this name; header_count where there is none. */
static size_t find_header(const bh_plan *self, bh_bytes name)
{
    size_t i = 0;
    while (i < self->header_count && !bh__same(self->headers[i].name, name))
        i++;
    return i;
}

static int has_header(const bh_plan *self, bh_bytes name)
{
    return find_header(self, name) < self->header_count;
}

int bh_plan_keeps_header(const bh_plan *self, bh_bytes name)
{
    if (!self || !name.data)
        return 0;
    for (size_t i = 0; i < sizeof never_kept / sizeof never_kept[0]; i++)
        if (bh__same(never_kept[i], name))
            return 0;
    return !bh__begins(name, "x-first-death-") && !bh__begins(name, "x-last-death-") && !has_header(self, name);
}

static void set_header(bh_plan *self, const char *name, bh_type type, bh_bytes string, int64_t number)
{
    header *added = &self->headers[self->header_count];
    added->name = bh_str(name);
    added->type = type;
    added->number = number;
    if (bh__store_add(&self->store, &added->string, string))
        self->header_count++;
    else
        self->no_memory = 1;
}

static void set_string(bh_plan *self, const char *name, bh_bytes value)
{
    set_header(self, name, BH_TYPE_STRING, value, 0);
}

static void set_int(bh_plan *self, const char *name, int64_t value)
{
    set_header(self, name, BH_TYPE_INT64, bh_str(""), value);
}

static void remove_header_at(bh_plan *self, size_t at)
{
    self->header_count--;
    memmove(&self->headers[at], &self->headers[at + 1], (self->header_count - at) * sizeof self->headers[0]);
}

/* Saves once, at the first failure, a property that the copy cannot have. */
static void save_property(bh_plan *self, const input *in, const char *name, bh_property property)
{
    if (bh_delivery_has_property(in->delivery, property) && !bh__delivery_header(in->delivery, bh_str(name)))
        set_string(self, name, bh_delivery_property(in->delivery, property));
}

static void set_queue(bh_plan *self, const input *in)
{
    if (in->shelf != BH__SHELF_STRAY)
        set_string(self, "backhop-queue", bh_topology_queue(in->topology));
}

/* The history's id, else the random bits' hexadecimal digits. */
static void set_id(bh_plan *self, const input *in)
{
    static const char hex[] = "0123456789abcdef";
    bh_bytes id = bh_history_id(in->history);
    char digits[33];
    if (id.size == 0) {
        for (size_t i = 0; i < 16; i++) {
            unsigned char byte = (unsigned char)in->random.data[16 + i];
            digits[2 * i] = hex[byte >> 4];
            digits[2 * i + 1] = hex[byte & 15];
        }
        digits[32] = '\0';
        id = bh_str(digits);
    }
    set_string(self, "backhop-id", id);
}

static void set_origin(bh_plan *self, const input *in)
{
    const origin as_read = {bh_history_exchange(in->history), bh_history_routing_key(in->history)};
    const origin *first = in->origin ? in->origin : &as_read;
    set_string(self, "backhop-exchange", first->exchange);
    set_string(self, "backhop-routing-key", first->routing_key);
}

/* What is counted beside attempts, where there is any. */
static void set_counts(bh_plan *self, const input *in)
{
    int is_replayed = self->action == BH_ACTION_REPLAY && !bh__history_is_back(in->history);
    int64_t replays = bh_history_replays(in->history) + is_replayed;
    if (self->crashes > 0)
        set_int(self, "backhop-crashes", self->crashes);
    if (replays > 0)
        set_int(self, "backhop-replays", replays < BH_HISTORY_MOST_ATTEMPTS ? replays : BH_HISTORY_MOST_ATTEMPTS);
}

/* The span of the last attempt that failed. */
static void set_traceparent(bh_plan *self, const input *in)
{
    if (in->traceparent.size > 0)
        set_string(self, "backhop-traceparent", in->traceparent);
}

/* The headers of a retry's or a parked copy. */
static void set_headers(bh_plan *self, const input *in)
{
    set_queue(self, in);
    set_int(self, "backhop-attempts", self->attempts);
    set_counts(self, in);
    if (self->first_failure_ms >= 0)
        set_int(self, "backhop-first-failure", self->first_failure_ms);
    if (self->action == BH_ACTION_RETRY) {
        set_int(self, "backhop-delay", self->delay_ms);
        set_int(self, "backhop-due", in->now_ms + self->delay_ms);
    }
    set_id(self, in);
    set_origin(self, in);
    if (in->error.size > 0)
        set_string(self, "backhop-error", bh__cut(in->error, BH_HISTORY_MOST_ERROR_BYTES));
    set_traceparent(self, in);
    save_property(self, in, "backhop-expiration", BH_PROPERTY_EXPIRATION);
    save_property(self, in, "backhop-user-id", BH_PROPERTY_USER_ID);
    if (bh__delivery_header(in->delivery, bh_str("CC")) && !bh__delivery_header(in->delivery, bh_str("backhop-cc")))
        set_header(self, "backhop-cc", BH_TYPE_VOID, bh_str("CC"), 0);
    if (self->action == BH_ACTION_PARK)
        set_string(self, "backhop-parked", bh_str(self->reason));
}

/* The key by which <ns>.return finds the work queue. RabbitMQ takes BCC off a message and routes by it all the same. */
static void set_return_key(bh_plan *self, const input *in)
{
    set_header(self, "BCC", BH_TYPE_ARRAY, bh__topology_return_key(in->topology), 0);
}

/* -------------------------------------------------------------------------------------------------------- frame */

/* Bytes of a header that is set, on the wire. */
static int64_t header_bytes(const bh_plan *self, const header *added, const bh_delivery *delivery)
{
    size_t bytes = 1 + added->name.size + 1;
    if (added->type == BH_TYPE_INT64)
        bytes += 8;
    else if (added->type == BH_TYPE_ARRAY)
        bytes += 4 + 1 + 4 + added->string.size;
    else if (added->type == BH_TYPE_STRING)
        bytes += 4 + added->string.size;
    else { /* as another header of the original */
        const bh__node *source = bh__delivery_header(delivery, bh__store_get(&self->store, added->string));
        bytes += source ? source->bytes - (1 + source->name.size + 1) : 0;
    }
    return (int64_t)bytes;
}

static int64_t headers_bytes(const bh_plan *self, const bh_delivery *delivery)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < self->header_count; i++)
        bytes += header_bytes(self, &self->headers[i], delivery);
    return bytes;
}

/* Bytes that a broker adds to a copy on its way to the next consumer, in the same frame. Dead letters get x-death with
 * one record, x-first-death-* and x-last-death-*: 349 bytes, the queue's and the exchange's name three times each, and
 * the routing key. Quorum queues add x-delivery-count and x-acquired-count: 52 bytes. The rest is for brokers to
 * come. */
static int64_t broker_bytes(const bh_plan *self, const input *in)
{
    bh_strategy strategy = bh_topology_strategy(in->topology);
    int is_dead_lettered = self->action == BH_ACTION_RETRY && strategy != BH_STRATEGY_DELAYED_EXCHANGE;
    return is_dead_lettered ? (int64_t)(512 + 6 * self->exchange.size + self->routing_key.size) : 64;
}

/* Bytes of what the copy keeps. */
static size_t kept_bytes(const bh_plan *self, const bh_delivery *delivery)
{
    size_t kept = 2 + 1 + 4 + bh__delivery_headers_bytes(delivery); /* flags, delivery-mode, length of the table */
    if (self->expiration.size > 0)
        kept += 1 + self->expiration.size;
    for (int property = 0; property < BH_PROPERTY_LAST; property++)
        if (bh_plan_keeps_property(self, (bh_property)property))
            kept += bh__delivery_property_bytes(delivery, (bh_property)property);
    bh__tree tree = bh__delivery_tree(delivery);
    for (size_t i = 0; i < tree.count; i = tree.nodes[i].end)
        if (!bh_plan_keeps_header(self, bh__store_get(tree.store, tree.nodes[i].name)))
            kept -= tree.nodes[i].bytes;
    return kept;
}

/* Bytes that are left in the frame beside what the copy keeps; negative where not even that fits. */
static int64_t room_bytes(const bh_plan *self, const bh_delivery *delivery)
{
    if (self->frame_max == 0)
        return INT64_MAX;
    return self->frame_max - FRAME_OVERHEAD - CONTENT_HEADER_START - (int64_t)kept_bytes(self, delivery);
}

size_t bh__plan_copy_bytes(const bh_plan *self, const bh_delivery *delivery)
{
    return kept_bytes(self, delivery) + (size_t)headers_bytes(self, delivery);
}

/* Shortens the error's text by at least `over` bytes; false where nothing of it would be left. */
static int shorten_error(bh_plan *self, int64_t over)
{
    size_t at = find_header(self, bh_str("backhop-error"));
    bh_bytes text = at < self->header_count ? bh__store_get(&self->store, self->headers[at].string) : bh_str("");
    bh_bytes cut = text.size > (size_t)over ? bh__cut(text, text.size - (size_t)over) : bh_str("");
    if (cut.size == 0)
        return 0;
    if (!bh__store_add(&self->store, &self->headers[at].string, cut))
        self->no_memory = 1;
    return 1;
}

/* Leaves out what a copy can do without, and shortens the error's text, until it fits. */
static int make_fit(bh_plan *self, const input *in)
{
    static const char *const spare[] = {"backhop-traceparent", "backhop-due",     "backhop-error", "backhop-replays",
                                        "backhop-expiration",  "backhop-user-id", "backhop-cc"};
    int64_t room = room_bytes(self, in->delivery) - broker_bytes(self, in);
    int64_t over = headers_bytes(self, in->delivery) - room;
    for (size_t i = 0; i < sizeof spare / sizeof spare[0] && over > 0; i++) {
        size_t at = find_header(self, bh_str(spare[i]));
        if (at == self->header_count)
            continue;
        if (bh__same(bh_str(spare[i]), bh_str("backhop-error")) && shorten_error(self, over))
            return 1;
        over -= header_bytes(self, &self->headers[at], in->delivery);
        remove_header_at(self, at);
    }
    return over <= 0;
}

/* ------------------------------------------------------------------------------------------------------ actions */

static void to(bh_plan *self, bh_bytes exchange, bh_bytes routing_key)
{
    if (!bh__store_add(&self->store, &self->exchange, exchange) ||
        !bh__store_add(&self->store, &self->routing_key, routing_key))
        self->no_memory = 1;
}

/* A message's own routing key, unless it is one that <ns>.return would route by: nobody else's key chooses a queue. */
static bh_bytes harmless(bh_bytes routing_key)
{
    return bh__begins(routing_key, BH__KEY_PREFIX) ? bh_str("") : routing_key;
}

/* Only what a parked message cannot be understood without, as far as there is room. */
static void set_least_headers(bh_plan *self, const input *in)
{
    set_string(self, "backhop-parked", bh_str(self->reason));
    set_int(self, "backhop-attempts", self->attempts);
    if (self->first_failure_ms >= 0)
        set_int(self, "backhop-first-failure", self->first_failure_ms);
    set_id(self, in);
    set_queue(self, in);
    set_origin(self, in);
    int64_t room = room_bytes(self, in->delivery) - broker_bytes(self, in);
    for (size_t i = 0; i < self->header_count;) {
        int64_t bytes = header_bytes(self, &self->headers[i], in->delivery);
        if (bytes > room) {
            remove_header_at(self, i);
            continue;
        }
        room -= bytes;
        i++;
    }
}

static bh_status park(bh_plan *self, const input *in, const char *reason)
{
    self->action = BH_ACTION_PARK;
    self->reason = reason;
    self->delay_ms = 0;
    self->is_on_demand = 0;
    self->expiration = (bh__text){0, 0};
    if (in->shelf == BH__SHELF_PARKED)
        to(self, bh_str(""), bh_topology_parked_queue(in->topology));
    else
        to(self, bh_topology_unroutable_queue(in->topology), harmless(bh_delivery_routing_key(in->delivery)));
    self->header_count = 0;
    if (room_bytes(self, in->delivery) < 0)
        return BH_ERR_FRAME;
    set_headers(self, in);
    if (!make_fit(self, in)) {
        self->header_count = 0;
        set_least_headers(self, in);
    }
    return BH_OK;
}

/* The rung for a delay between two of them: chosen so that the mean stays the delay. None above `most_ms`: the topology
 * may have rungs for policies of longer delays. */
static int64_t choose_between(int64_t below, int64_t above, int64_t delay_ms, int64_t most_ms, double random)
{
    if (delay_ms <= below || above <= below || above > most_ms)
        return below;
    if (delay_ms >= above)
        return above;
    return random < (double)(delay_ms - below) / (double)(above - below) ? above : below;
}

static int64_t choose_rung(const bh__rungs *rungs, int64_t delay_ms, int64_t most_ms, double random)
{
    return choose_between(bh__rungs_below_ms(rungs, delay_ms), bh__rungs_above_ms(rungs, delay_ms), delay_ms, most_ms,
                          random);
}

/* The delay that a handler asks for, as far as the policy grants it. */
static int64_t granted_ms(const bh_policy *policy, int64_t retry_after_ms)
{
    int64_t cap_ms = bh_policy_max_retry_after_ms(policy);
    return retry_after_ms < cap_ms ? retry_after_ms : cap_ms;
}

static void choose_delay(bh_plan *self, const input *in, int64_t retry_after_ms)
{
    const bh__rungs *rungs = bh__topology_rungs(in->topology);
    int64_t floor_ms = granted_ms(in->policy, retry_after_ms);
    int64_t delay_ms = bh_policy_delay_ms(in->policy, self->attempts, bh_history_last_delay_ms(in->history),
                                          bh__random_number(in->random.data));
    switch (bh_topology_strategy(in->topology)) {
    case BH_STRATEGY_LADDER:
        self->delay_ms =
            choose_rung(rungs, delay_ms, bh_policy_max_ms(in->policy), bh__random_number(in->random.data + 8));
        if (self->delay_ms < floor_ms)
            self->delay_ms = bh__rungs_floor_ms(rungs, delay_ms > floor_ms ? delay_ms : floor_ms);
        if (self->delay_ms == 0) /* the policy's delay is above every rung */
            self->delay_ms = bh__rungs_floor_ms(rungs, floor_ms);
        self->is_on_demand = !bh__rungs_has(rungs, self->delay_ms);
        break;
    case BH_STRATEGY_MESSAGE_TTL:
    case BH_STRATEGY_DELAYED_EXCHANGE:
        self->delay_ms = delay_ms > floor_ms ? delay_ms : floor_ms;
        break;
    case BH_STRATEGY_REJECT:
    case BH_STRATEGY_NATIVE:
        self->delay_ms = delay_ms;
        break;
    }
    self->is_retry_after_met = retry_after_ms <= self->delay_ms;
}

/* Publishes the copy to where it waits; parks it with the reason where the headers leave no room for it. */
static bh_status publish_retry(bh_plan *self, const input *in, const char *no_room)
{
    char digits[BH__DIGITS];
    bh_bytes delay = bh__decimal(digits, self->delay_ms);
    bh_bytes wait = bh__topology_wait_exchange(in->topology);
    bh_strategy strategy = bh_topology_strategy(in->topology);
    self->action = BH_ACTION_RETRY;
    to(self, wait, harmless(in->origin ? in->origin->routing_key : bh_delivery_routing_key(in->delivery)));
    if (strategy == BH_STRATEGY_LADDER) {
        char stripe[16] = "";
        int chosen = bh__random_choice(in->random.data, bh__topology_stripes(in->topology));
        if (chosen > 0)
            snprintf(stripe, sizeof stripe, ".%d", chosen + 1);
        if (!bh__store_join(&self->store, &self->exchange, wait, delay, bh_str(stripe)))
            self->no_memory = 1;
    }
    if (strategy == BH_STRATEGY_MESSAGE_TTL && !bh__store_add(&self->store, &self->expiration, delay))
        self->no_memory = 1;
    set_headers(self, in);
    if (strategy == BH_STRATEGY_DELAYED_EXCHANGE)
        set_int(self, "x-delay", self->delay_ms);
    set_return_key(self, in);
    return make_fit(self, in) ? BH_OK : park(self, in, no_room);
}

/* Whether a message is older than its policy allows once it has waited. */
static int is_too_old(const bh_policy *policy, int64_t first_failure_ms, int64_t now_ms, int64_t delay_ms)
{
    int64_t max_age_ms = bh_policy_max_age_ms(policy);
    return max_age_ms > 0 && now_ms - first_failure_ms + delay_ms > max_age_ms;
}

static bh_status decide_failure(bh_plan *self, const input *in, int64_t retry_after_ms)
{
    if (bh_policy_is_last(in->policy, self->attempts))
        return park(self, in, "exhausted");
    if (bh__delivery_lost_headers(in->delivery)) /* the count of attempts may be among them */
        return park(self, in, "oversized");
    choose_delay(self, in, retry_after_ms > 0 ? retry_after_ms : 0);
    if (is_too_old(in->policy, self->first_failure_ms, in->now_ms, self->delay_ms))
        return park(self, in, "too-old");
    if (bh__topology_copies(in->topology))
        return publish_retry(self, in, "oversized");
    self->action = bh_topology_strategy(in->topology) == BH_STRATEGY_REJECT ? BH_ACTION_REJECT : BH_ACTION_RETURN;
    return BH_OK;
}

/* The moment of the first failure, which is now where the history has none, or one that is not over. */
static int64_t first_failure_ms(const bh_history *history, int64_t now_ms)
{
    int64_t first_ms = bh_history_first_failure_ms(history);
    return first_ms >= 0 && first_ms < now_ms ? first_ms : now_ms;
}

int bh__plan_may_park(const bh_history *history, const bh_policy *policy, bh_outcome outcome, int64_t retry_after_ms,
                      int64_t now_ms)
{
    if (outcome != BH_OUTCOME_FAILED)
        return outcome == BH_OUTCOME_PERMANENT;
    if (bh_policy_is_last(policy, bh_history_attempts(history) + 1))
        return 1;
    if (bh_policy_max_age_ms(policy) <= 0)
        return 0;
    int64_t asked_ms = granted_ms(policy, retry_after_ms), lowest_ms, highest_ms;
    bh__delays(policy, &lowest_ms, &highest_ms);
    int64_t delay_ms = asked_ms > highest_ms ? asked_ms : highest_ms;
    /* A delay is rounded up to a rung that is less than twice as long. */
    return is_too_old(policy, first_failure_ms(history, now_ms), now_ms, 2 * delay_ms);
}

/* What both ways to make a plan check; empties the plan. */
static bh_status begin(bh_plan *self, const input *in)
{
    if (!self || !in->delivery || !in->history || !in->topology || !in->random.data ||
        in->random.size != BH_PLAN_RANDOM_BYTES || !in->error.data)
        return BH_ERR_ARGUMENT;
    clear(self);
    return bh__delivery_is_open(in->delivery) || !bh__history_is_read(in->history) ||
                   !bh__topology_is_built(in->topology)
               ? BH_ERR_STATE
               : BH_OK;
}

/* A plan that went wrong decides nothing. */
static bh_status end(bh_plan *self, bh_status status)
{
    if (self->no_memory)
        status = BH_ERR_NO_MEMORY;
    if (status != BH_OK)
        clear(self);
    return status;
}

/* The same, at a time: so far the plan has the failures of the history. */
static bh_status begin_now(bh_plan *self, const input *in)
{
    if (in->now_ms < 0 || in->now_ms >= INT64_C(1) << 53)
        return BH_ERR_ARGUMENT;
    bh_status status = begin(self, in);
    if (status != BH_OK)
        return status;
    self->attempts = bh_history_attempts(in->history);
    self->first_failure_ms = first_failure_ms(in->history, in->now_ms);
    return BH_OK;
}

/* The same, by a policy. */
static bh_status begin_decision(bh_plan *self, const input *in)
{
    bh_status status = in->policy ? begin_now(self, in) : BH_ERR_ARGUMENT;
    return status == BH_OK && !bh__topology_serves(in->topology, in->policy) ? BH_ERR_FOREIGN_POLICY : status;
}

static int64_t failed_once_more(const bh_plan *self)
{
    return self->attempts < BH_HISTORY_MOST_ATTEMPTS ? self->attempts + 1 : BH_HISTORY_MOST_ATTEMPTS;
}

bh_status bh_plan_make(bh_plan *self, const bh_delivery *delivery, const bh_history *history, const bh_policy *policy,
                       const bh_topology *topology, bh_outcome outcome, bh_bytes error, int64_t retry_after_ms,
                       int64_t now_ms, bh_bytes random)
{
    char traceparent[BH__TRACEPARENT_BYTES + 1] = "";
    if (self)
        memcpy(traceparent, self->traceparent, sizeof traceparent); /* as a decision empties the plan */
    input in = {delivery, history, policy, topology, error, now_ms, random, BH__SHELF_PARKED, bh_str(traceparent),
                NULL};
    bh_status status = begin_decision(self, &in);
    if (status != BH_OK)
        return status;
    int64_t failed = failed_once_more(self);
    switch (outcome) {
    case BH_OUTCOME_OK:
        self->action = BH_ACTION_ACK;
        return BH_OK;
    case BH_OUTCOME_DROPPED:
        self->action = BH_ACTION_DROP;
        return BH_OK;
    case BH_OUTCOME_FAILED:
        self->attempts = failed;
        return end(self, decide_failure(self, &in, retry_after_ms));
    case BH_OUTCOME_PERMANENT:
        self->attempts = failed;
        return end(self, park(self, &in, "permanent"));
    }
    return end(self, BH_ERR_ARGUMENT);
}

bh_status bh__plan_shelve(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                          const bh_topology *topology, bh__shelf shelf, const char *reason, bh_bytes error,
                          int64_t now_ms, bh_bytes random)
{
    input in = {delivery, history, NULL, topology, error, now_ms, random, shelf, bh_str(""), NULL};
    bh_status status = begin_now(self, &in);
    if (status != BH_OK)
        return status;
    if (shelf != BH__SHELF_STRAY)
        self->attempts = failed_once_more(self);
    return end(self, park(self, &in, reason));
}

/* What is known of a message whose deliveries ended without being settled. */
static void tell_crashes(char *out, size_t size, int64_t crashes)
{
    char times[32] = "";
    if (crashes > 1) /* 0: they cannot be told from attempts */
        snprintf(times, sizeof times, " %lld times", (long long)crashes);
    snprintf(out, size, "its consumer was lost, or gave it back,%s while it, or a message beside it, was in hand",
             times);
}

/* Full jitter: any wait up to the longest that the policy has after as many failures; 0 where there is none. A ladder
 * whose policies have only one such rung takes the grid's: on one rung messages that were lost together would come back
 * together. */
static void choose_crash_wait(bh_plan *self, const input *in, int64_t wait)
{
    int64_t most_ms = bh_policy_highest_ms(in->policy, wait);
    int64_t delay_ms = (int64_t)(bh__random_number(in->random.data) * (double)most_ms + 0.5);
    const bh__rungs *rungs = bh__topology_rungs(in->topology);
    double random = bh__random_number(in->random.data + 8);
    if (bh_topology_strategy(in->topology) != BH_STRATEGY_LADDER) {
        self->delay_ms = delay_ms > 1 ? delay_ms : 1;
    } else if (bh__rungs_up_to(rungs, most_ms) > 1) {
        self->delay_ms = choose_rung(rungs, delay_ms, most_ms, random);
    } else {
        int64_t below = bh__rungs_any_below_ms(rungs, delay_ms);
        int64_t above = bh__rungs_any_above_ms(rungs, delay_ms);
        self->delay_ms = below == 0 ? above : choose_between(below, above, delay_ms, most_ms, random);
        self->is_on_demand = self->delay_ms > 0 && !bh__rungs_has(rungs, self->delay_ms);
    }
}

/* A message that was in hand when its consumer was lost, as often as the policy allows: it waits, each time longer, so
 * that those which were lost together come back apart, and the one that is to blame is alone with it in the end. The
 * handler's attempts do not count these waits: whether it ever saw the message is unknown. */
static bh_status decide_crashed(bh_plan *self, const input *in)
{
    int64_t max_crashes = bh_policy_max_crashes(in->policy);
    int64_t counted = bh__history_counted_crashes(in->history) + 1;
    self->crashes = counted > max_crashes ? counted : max_crashes;
    int64_t wait = self->crashes - max_crashes + 1;
    if (wait > BH_POLICY_CRASH_WAITS || bh__delivery_lost_headers(in->delivery)) /* its crashes may be among them */
        return park(self, in, "poison");
    choose_crash_wait(self, in, wait);
    return self->delay_ms > 0 ? publish_retry(self, in, "poison") : park(self, in, "poison");
}

static bh_status decide_guarded(bh_plan *self, const input *in)
{
    bh_strategy strategy = bh_topology_strategy(in->topology);
    int64_t max_crashes = bh_policy_max_crashes(in->policy);
    int64_t crashes = bh_history_crashes(in->history);
    if (strategy == BH_STRATEGY_NATIVE) { /* attempts of another strategy alone are no crash */
        int is_used_up = bh_policy_is_last(in->policy, bh_history_attempts(in->history));
        return is_used_up && bh_history_delivery_count(in->history) > 0 ? park(self, in, "poison") : BH_OK;
    }
    if (max_crashes == 0 || crashes < max_crashes || crashes == bh__history_counted_crashes(in->history))
        return BH_OK;
    return strategy == BH_STRATEGY_REJECT ? park(self, in, "poison") : decide_crashed(self, in);
}

bh_status bh_plan_guard(bh_plan *self, const bh_delivery *delivery, const bh_history *history, const bh_policy *policy,
                        const bh_topology *topology, int64_t now_ms, bh_bytes random)
{
    char error[160];
    tell_crashes(error, sizeof error, bh_history_crashes(history));
    input in = {delivery, history,          policy,
                topology, bh_str(error),    now_ms,
                random,   BH__SHELF_PARKED, bh_history_traceparent(history),
                NULL};
    bh_status status = begin_decision(self, &in);
    if (status != BH_OK)
        return status;
    if (bh_history_first_failure_ms(history) < 0) /* a crash is none */
        self->first_failure_ms = -1;
    return end(self, decide_guarded(self, &in));
}

bh_status bh_plan_replay(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                         const bh_topology *topology, bh_bytes random)
{
    input in = {
        delivery, history, NULL, topology, bh_str(""), 0, random, BH__SHELF_PARKED, bh_history_traceparent(history),
        NULL};
    bh_status status = begin(self, &in);
    if (status != BH_OK)
        return status;
    self->action = BH_ACTION_REPLAY;
    set_queue(self, &in);
    set_int(self, "backhop-attempts", 0); /* goes before a legacy counter, which the copy keeps */
    set_counts(self, &in);
    set_id(self, &in);
    set_origin(self, &in);
    set_traceparent(self, &in);
    bh_strategy strategy = bh_topology_strategy(topology);
    if (strategy == BH_STRATEGY_NATIVE) {
        to(self, bh_str(""), bh_topology_queue(topology));
    } else {
        to(self, bh__topology_return_exchange(topology), harmless(bh_history_routing_key(history)));
        if (strategy != BH_STRATEGY_REJECT)
            set_return_key(self, &in);
    }
    return end(self, make_fit(self, &in) ? BH_OK : BH_ERR_FRAME);
}

/* Where a message was first published that is in a hand-made wait queue: as the broker recorded when it left the work queue; else as it
 * came, unless it came by the wait queue's own name, which tells nothing, and then to the work queue by its name. */
static origin find_origin(const input *in)
{
    const bh_history *history = in->history;
    bh_bytes queue = bh_topology_queue(in->topology);
    if (bh__delivery_header(in->delivery, bh_str("backhop-routing-key")))
        return (origin){bh_history_exchange(history), bh_history_routing_key(history)};
    for (size_t i = 0; i < bh_history_death_count(history); i++) {
        origin found = {bh_history_death_exchange(history, i), bh_history_death_routing_key(history, i, 0)};
        if (bh__same(bh_history_death_queue(history, i), queue) && bh_history_death_routing_key_count(history, i) > 0 &&
            found.exchange.size <= LONGEST_SHORT_STRING && found.routing_key.size <= LONGEST_SHORT_STRING)
            return found;
    }
    bh_bytes exchange = bh_delivery_exchange(in->delivery);
    return (origin){exchange, exchange.size > 0 ? bh_delivery_routing_key(in->delivery) : queue};
}

bh_status bh_plan_adopt(bh_plan *self, const bh_delivery *delivery, const bh_history *history, const bh_policy *policy,
                        const bh_topology *topology, int64_t now_ms, bh_bytes random)
{
    bh_bytes error = bh_history_last_error(history);
    input in = {.delivery = delivery,
                .history = history,
                .policy = policy,
                .topology = topology,
                .error = error.size > 0 ? error : bh_str("not known: it failed before Backhop took it over"),
                .now_ms = now_ms,
                .random = random,
                .shelf = BH__SHELF_PARKED,
                .traceparent = bh_history_traceparent(history)};
    bh_status status = begin_decision(self, &in);
    if (status != BH_OK)
        return status;
    if (!bh__topology_copies(topology))
        return end(self, BH_ERR_STRATEGY);
    bh_source source = bh_history_attempts_source(history);
    int is_counted = (source == BH_SOURCE_BACKHOP || source == BH_SOURCE_LEGACY) && self->attempts > 0;
    if (!is_counted)
        self->attempts = failed_once_more(self);
    origin first = find_origin(&in);
    in.origin = &first;
    return end(self, decide_failure(self, &in, 0));
}

/* ------------------------------------------------------------------------------------------------------ getters */

bh_action bh_plan_action(const bh_plan *self)
{
    return self ? self->action : BH_ACTION_NONE;
}

int bh_plan_publishes(const bh_plan *self)
{
    bh_action action = bh_plan_action(self);
    return action == BH_ACTION_RETRY || action == BH_ACTION_PARK || action == BH_ACTION_REPLAY;
}

int64_t bh_plan_attempts(const bh_plan *self)
{
    return self ? self->attempts : 0;
}

int64_t bh_plan_delay_ms(const bh_plan *self)
{
    return self ? self->delay_ms : 0;
}

int bh_plan_retry_after_met(const bh_plan *self)
{
    return self ? self->is_retry_after_met : 1;
}

bh_bytes bh_plan_reason(const bh_plan *self)
{
    return bh_str(self ? self->reason : "");
}

static bh_bytes get(const bh_plan *self, bh__text text)
{
    return bh__store_get(&self->store, text);
}

bh_bytes bh_plan_exchange(const bh_plan *self)
{
    return self ? get(self, self->exchange) : bh_str("");
}

static bh_bytes get_header(const bh_plan *self, const char *name)
{
    size_t at = self ? find_header(self, bh_str(name)) : 0;
    return self && at < self->header_count ? get(self, self->headers[at].string) : bh_str("");
}

bh_bytes bh_plan_id(const bh_plan *self)
{
    return get_header(self, "backhop-id");
}

bh_bytes bh__plan_error(const bh_plan *self)
{
    return get_header(self, "backhop-error");
}

bh_bytes bh_plan_routing_key(const bh_plan *self)
{
    return self ? get(self, self->routing_key) : bh_str("");
}

int bh_plan_mandatory(const bh_plan *self)
{
    /* The x-delayed-message exchange routes to nothing while it delays. */
    return bh_plan_publishes(self) && !has_header(self, bh_str("x-delay"));
}

int bh_plan_on_demand(const bh_plan *self)
{
    return self ? self->is_on_demand : 0;
}

int64_t bh_plan_rung_ms(const bh_plan *self)
{
    return bh_plan_on_demand(self) ? bh_plan_delay_ms(self) : 0;
}

int bh_plan_keeps_property(const bh_plan *self, bh_property property)
{
    return self && (int)property >= 0 && property < BH_PROPERTY_LAST && property != BH_PROPERTY_HEADERS &&
           property != BH_PROPERTY_DELIVERY_MODE && property != BH_PROPERTY_EXPIRATION &&
           property != BH_PROPERTY_USER_ID;
}

bh_bytes bh_plan_expiration(const bh_plan *self)
{
    return self ? get(self, self->expiration) : bh_str("");
}

size_t bh_plan_header_count(const bh_plan *self)
{
    return self ? self->header_count : 0;
}

static const header *header_at(const bh_plan *self, size_t index)
{
    static const header none = {.name = {"", 0}, .type = BH_TYPE_VOID};
    return self && index < self->header_count ? &self->headers[index] : &none;
}

bh_bytes bh_plan_header_name(const bh_plan *self, size_t index)
{
    return header_at(self, index)->name;
}

bh_type bh_plan_header_type(const bh_plan *self, size_t index)
{
    return header_at(self, index)->type;
}

bh_bytes bh_plan_header_string(const bh_plan *self, size_t index)
{
    const header *found = header_at(self, index);
    return self && found->type != BH_TYPE_VOID ? get(self, found->string) : bh_str("");
}

int64_t bh_plan_header_int(const bh_plan *self, size_t index)
{
    return header_at(self, index)->number;
}

bh_bytes bh_plan_header_source(const bh_plan *self, size_t index)
{
    const header *found = header_at(self, index);
    return self && found->type == BH_TYPE_VOID ? get(self, found->string) : bh_str("");
}

bh__buffer *bh__plan_buffer(bh_plan *self)
{
    bh__buffer_clear(&self->copied);
    return &self->copied;
}
