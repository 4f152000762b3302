/*
 * The history as an object: its settings, the read, and the getters of its results.
 */
#include "delivery/internal.h"
#include "history/data.h"
#include "topology/internal.h"

#include <stdlib.h>

bh_status bh_history_new(bh_history **out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = calloc(1, sizeof **out);
    return *out ? BH_OK : BH_ERR_NO_MEMORY;
}

static void free_settings(bh_history *self)
{
    bh__store_free(&self->settings);
    bh__store_free(&self->wait_queues.store);
    free(self->wait_queues.items);
}

void bh_history_free(bh_history *self)
{
    if (!self)
        return;
    free_settings(self);
    bh__store_free(&self->store);
    free(self->deaths);
    free(self->keys);
    free(self->key_bytes);
    bh__report_free(&self->story);
    free(self);
}

bh_status bh_history_set_legacy_counter(bh_history *self, bh_bytes header)
{
    if (!self || !header.data)
        return BH_ERR_ARGUMENT;
    bh__store fresh = {0};
    bh__text name;
    if (!bh__store_add(&fresh, &name, header))
        return BH_ERR_NO_MEMORY;
    bh__store_free(&self->settings);
    self->settings = fresh;
    self->legacy_counter = name;
    return BH_OK;
}

bh_status bh_history_add_wait_queue(bh_history *self, bh_bytes queue)
{
    if (!self || !queue.data || queue.size == 0)
        return BH_ERR_ARGUMENT;
    bh__queue_names *queues = &self->wait_queues;
    void *items = queues->items;
    if (!bh__reserve(&items, &queues->capacity, sizeof *queues->items, queues->count + 1))
        return BH_ERR_NO_MEMORY;
    queues->items = items;
    if (!bh__store_add(&queues->store, &queues->items[queues->count], queue))
        return BH_ERR_NO_MEMORY;
    queues->count++;
    return BH_OK;
}

bh_status bh__history_copy_settings(bh_history *to, const bh_history *from)
{
    const bh__queue_names *queues = &from->wait_queues;
    bh_history copy = {
        .legacy_counter = from->legacy_counter,
        .wait_queues = {.items = bh__duplicate(queues->items, queues->count * sizeof *queues->items),
                        .count = queues->count,
                        .capacity = queues->count},
    };
    if (!copy.wait_queues.items || !bh__store_copy(&copy.settings, &from->settings) ||
        !bh__store_copy(&copy.wait_queues.store, &queues->store)) {
        free_settings(&copy);
        return BH_ERR_NO_MEMORY;
    }
    free_settings(to);
    to->settings = copy.settings;
    to->legacy_counter = copy.legacy_counter;
    to->wait_queues = copy.wait_queues;
    return BH_OK;
}

/*
 * Returns the exchange of the first publish, for a message that has no backhop-exchange.
 *
 * With strategy reject no copy leaves the work queue. Then the broker's record of its rejections
 * has the exchange.
 */
static bh__text first_exchange(const bh_history *self, const bh_delivery *delivery, const bh_topology *topology)
{
    if (topology && bh__topology_strategy(topology) == BH_STRATEGY_REJECT)
        for (size_t i = 0; i < self->death_count; i++)
            if (bh__history_is_rejected_work(self, &self->deaths[i], topology))
                return self->deaths[i].exchange;
    return bh__delivery_exchange_text(delivery);
}

/*
 * Returns 1 if the message was parked and is no longer in the parked queue.
 *
 * Copies reach the parked queue by the default exchange. A message that was moved or published from
 * there has another exchange or routing key. If both are empty, the queue is unknown: an operator
 * copied the headers from a screen.
 */
static int came_back(const bh_history *self, const bh_delivery *delivery, const bh_topology *topology)
{
    bh_bytes exchange = bh__delivery_exchange(delivery);
    bh_bytes key = bh__delivery_routing_key(delivery);
    if (!topology || self->parked.size == 0 || (exchange.size == 0 && key.size == 0))
        return 0;
    return exchange.size > 0 || !bh__same(key, bh__topology_parked_queue(topology));
}

/* Resets the history as bh_plan_replay would. Keeps what the broker alone counts, because it
 * counted that later. */
static void begin_anew(bh_history *self)
{
    self->replays += self->replays < BH_HISTORY_MOST_ATTEMPTS;
    self->attempts = self->broker_attempts;
    self->source = BH_SOURCE_BACKHOP;
    self->first_failure_ms = -1;
    self->last_delay_ms = self->due_ms = -1;
    self->deferrals = 0;
    self->last_error = BH__NO_TEXT;
    self->crashes -= self->counted_crashes;
    self->counted_crashes = 0;
}

/* Makes the routing keys ready for bh_death. The store does not move before the next read. */
static void build_keys(bh_history *self)
{
    void *items = self->key_bytes;
    if (!bh__reserve(&items, &self->key_bytes_capacity, sizeof *self->key_bytes, self->key_count))
        self->no_memory = 1;
    self->key_bytes = items;
    for (size_t i = 0; i < self->key_count && !self->no_memory; i++)
        self->key_bytes[i] = bh__history_text(self, self->keys[i]);
}

bh_status bh_history_read(bh_history *self, const bh_delivery *delivery, const bh_topology *topology)
{
    if (!self || !delivery)
        return BH_ERR_ARGUMENT;
    self->is_read = 0;
    if (bh__delivery_is_open(delivery))
        return BH_ERR_STATE;
    bh_history empty = {
        .settings = self->settings,
        .legacy_counter = self->legacy_counter,
        .wait_queues = self->wait_queues,
        .store = {self->store.data, 0, self->store.capacity},
        .deaths = self->deaths,
        .death_capacity = self->death_capacity,
        .keys = self->keys,
        .key_capacity = self->key_capacity,
        .key_bytes = self->key_bytes,
        .key_bytes_capacity = self->key_bytes_capacity,
        .story = self->story,
    };
    *self = empty;

    bh__headers in = {.tree = bh__delivery_tree(delivery)};
    if (!bh__store_copy(&self->store, in.tree.store))
        return BH_ERR_NO_MEMORY;
    if (bh__delivery_is_truncated(delivery))
        bh__history_add_problem(self, bh_str("headers"), "deeper, more or longer than the limits, in part ignored");
    bh__headers_find(&in);
    int64_t count = bh__headers_number(self, &in, BH__HEADER_DELIVERY_COUNT, BH_HISTORY_MOST_ATTEMPTS);
    self->delivery_count = count > 0 ? count : 0;
    count = bh__headers_number(self, &in, BH__HEADER_ACQUIRED_COUNT, BH_HISTORY_MOST_ATTEMPTS);
    self->acquired_count = count > 0 ? count : 0;
    bh__headers_deaths(self, &in);
    bh__history_count(self, &in, delivery, topology);
    self->last_delay_ms = bh__headers_number(self, &in, BH__HEADER_DELAY, BH_POLICY_LONGEST_MS);
    self->due_ms = bh__headers_number(self, &in, BH__HEADER_DUE, BH__BELOW_2_53);
    self->last_error = bh__headers_error(self, &in);
    self->traceparent = bh__headers_traceparent(self, &in);
    self->id = bh__headers_short_string(self, &in, BH__HEADER_ID);
    if (self->id.size == 0)
        self->id = bh__delivery_property_text(delivery, BH_PROPERTY_MESSAGE_ID);
    self->exchange = bh__headers_string(self, &in, BH__HEADER_EXCHANGE, BH__SHORT_STRING_BYTES,
                                        first_exchange(self, delivery, topology));
    self->routing_key = bh__headers_string(self, &in, BH__HEADER_ROUTING_KEY, BH__SHORT_STRING_BYTES,
                                           bh__delivery_routing_key_text(delivery));
    self->parked = bh__headers_short_string(self, &in, BH__HEADER_PARKED);
    count = bh__headers_number(self, &in, BH__HEADER_REPLAYS, BH_HISTORY_MOST_ATTEMPTS);
    self->replays = count > 0 ? count : 0;
    count = bh__headers_number(self, &in, BH__HEADER_DEFERRALS, BH_HISTORY_MOST_ATTEMPTS);
    self->deferrals = count > 0 ? count : 0;
    self->is_back = came_back(self, delivery, topology);
    if (self->is_back)
        begin_anew(self);
    for (int i = 0; i < 3; i++) {
        self->first_death[i] = bh__headers_short_string(self, &in, BH__HEADER_FIRST_DEATH + i);
        self->last_death[i] = bh__headers_short_string(self, &in, BH__HEADER_LAST_DEATH + i);
    }
    build_keys(self);
    self->is_read = !self->no_memory;
    return self->is_read ? BH_OK : BH_ERR_NO_MEMORY;
}

bh__report *bh__history_story(bh_history *self)
{
    return &self->story;
}

int bh__history_is_read(const bh_history *self)
{
    return self->is_read;
}

int64_t bh__history_attempts(const bh_history *self)
{
    return self ? self->attempts : 0;
}

void bh_history_past(const bh_history *self, bh_past *out)
{
    static const bh_past none = {.first_failure_ms = -1,
                                 .last_delay_ms = -1,
                                 .last_error = BH__LITERAL(""),
                                 .parked = BH__LITERAL(""),
                                 .traceparent = BH__LITERAL(""),
                                 .id = BH__LITERAL(""),
                                 .event_id = BH__LITERAL(""),
                                 .exchange = BH__LITERAL(""),
                                 .routing_key = BH__LITERAL("")};

    if (!out)
        return;
    *out = none;
    if (!self)
        return;
    *out = (bh_past){
        .attempts = self->attempts,
        .source = self->source,
        .first_failure_ms = self->first_failure_ms,
        .last_delay_ms = self->last_delay_ms,
        .deferrals = self->deferrals,
        .replays = self->replays,
        .crashes = self->crashes,
        .delivery_count = self->delivery_count,
        .acquired_count = self->acquired_count,
        .death_count = self->is_read ? self->death_count : 0,
        .last_error = bh__history_text(self, self->last_error),
        .parked = bh__history_text(self, self->parked),
        .traceparent = bh__history_text(self, self->traceparent),
        .id = bh__history_id(self),
        .event_id = bh__history_event_id(self),
        .exchange = bh__history_exchange(self),
        .routing_key = bh__history_routing_key(self),
    };
}

bh_past bh__history_past(const bh_history *self)
{
    bh_past past;
    bh_history_past(self, &past);
    return past;
}

/* Returns 1 if a copy of the message has waited before this delivery. */
static int has_waited(const bh_history *self)
{
    return self && (self->attempts > 0 || self->deferrals > 0);
}

int64_t bh_history_lateness_ms(const bh_history *self, int redelivered, int64_t now_ms)
{
    if (!has_waited(self) || redelivered || self->due_ms < 0 || now_ms < 0 || now_ms > BH__BELOW_2_53)
        return -1;
    int64_t late_ms = now_ms - self->due_ms;
    if (late_ms > BH_POLICY_LONGEST_MS || late_ms < -BH_POLICY_LONGEST_MS)
        return -1;
    return late_ms > 0 ? late_ms : 0;
}

int64_t bh__history_recovery_ms(const bh_history *self, int64_t now_ms)
{
    int64_t first_ms = self ? self->first_failure_ms : -1;
    if (!has_waited(self) || first_ms < 0 || first_ms > now_ms)
        return -1;
    return now_ms - first_ms <= BH_POLICY_LONGEST_MS ? now_ms - first_ms : -1;
}

bh_bytes bh__history_id(const bh_history *self)
{
    return self ? bh__history_text(self, self->id) : bh_str("");
}

bh_status bh_history_assign_id(bh_history *self, bh_bytes random)
{
    if (!self || !random.data || random.size != BH_HISTORY_ID_RANDOM_BYTES)
        return BH_ERR_ARGUMENT;
    if (!self->is_read)
        return BH_ERR_STATE;
    if (self->id.size == 0)
        bh__history_write_id(random.data, self->assigned_id);
    return BH_OK;
}

bh_bytes bh__history_event_id(const bh_history *self)
{
    bh_bytes id = bh__history_id(self);
    return self && id.size == 0 ? bh_str(self->assigned_id) : id;
}

void bh__history_write_id(const char *random, char out[BH__HISTORY_ID_ROOM])
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < BH_HISTORY_ID_RANDOM_BYTES; i++) {
        unsigned char byte = (unsigned char)random[i];
        out[2 * i] = hex[byte >> 4];
        out[2 * i + 1] = hex[byte & 15];
    }
    out[BH__HISTORY_ID_ROOM - 1] = '\0';
}

bh_bytes bh__history_exchange(const bh_history *self)
{
    return self ? bh__history_text(self, self->exchange) : bh_str("");
}

bh_bytes bh__history_routing_key(const bh_history *self)
{
    return self ? bh__history_text(self, self->routing_key) : bh_str("");
}

int bh__history_is_back(const bh_history *self)
{
    return self->is_back;
}

int64_t bh__history_counted_crashes(const bh_history *self)
{
    return self->counted_crashes;
}

int64_t bh__history_due_ms(const bh_history *self)
{
    return self->due_ms;
}

static const bh_death no_death = {
    .queue = BH__LITERAL(""),
    .reason = BH__LITERAL(""),
    .exchange = BH__LITERAL(""),
    .original_expiration = BH__LITERAL(""),
    .first_time_s = -1,
};

static bh_status fill_place(const bh_history *self, const bh__text place[3], bh_death *out)
{
    *out = no_death;
    out->queue = bh__history_text(self, place[0]);
    out->reason = bh__history_text(self, place[1]);
    out->exchange = bh__history_text(self, place[2]);
    return BH_OK;
}

bh_status bh_history_death(const bh_history *self, size_t index, bh_death *out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = no_death;
    if (self && (index == BH_DEATH_FIRST || index == BH_DEATH_LAST))
        return fill_place(self, index == BH_DEATH_FIRST ? self->first_death : self->last_death, out);
    if (!self || !self->is_read || index >= self->death_count)
        return BH_ERR_ARGUMENT;
    const bh__record *record = &self->deaths[index];
    *out = (bh_death){
        .queue = bh__history_text(self, record->queue),
        .reason = bh__history_text(self, record->reason),
        .exchange = bh__history_text(self, record->exchange),
        .original_expiration = bh__history_text(self, record->original_expiration),
        .count = record->times,
        .first_time_s = record->first_time_s,
        .routing_keys = record->key_count > 0 ? self->key_bytes + record->first_key : NULL,
        .routing_key_count = record->key_count,
    };
    return BH_OK;
}

bh_bytes bh_history_problem(const bh_history *self, size_t index)
{
    return self && index < self->problem_count ? bh__history_text(self, self->problems[index]) : bh_str("");
}
