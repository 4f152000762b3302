#include "delivery_internal.h"
#include "history_internal.h"

#include <stdlib.h>

enum { LONGEST_SHORT_STRING = 255 };

#define BELOW_2_53 ((INT64_C(1) << 53) - 1)

typedef struct death {
    bh__text queue;
    bh__text reason;
    bh__text exchange;
    bh__text original_expiration;
    int64_t times;
    int64_t first_time_s;
    size_t first_key;
    size_t key_count;
} death;

typedef struct names {
    bh__store store;
    bh__text *items;
    size_t count;
    size_t capacity;
} names;

struct bh_history {
    /* what the application names; kept from read to read */
    bh__store settings;
    bh__text legacy_counter;
    names wait_queues;
    /* what was read */
    int is_read;
    bh__store store;
    death *deaths;
    size_t death_count;
    size_t death_capacity;
    bh__text *keys;
    size_t key_count;
    size_t key_capacity;
    int64_t attempts;
    bh_source source;
    int64_t first_failure_ms;
    int64_t last_delay_ms;
    int64_t delivery_count;
    int64_t acquired_count;
    bh__text last_error;
    bh__text id;
    bh__text exchange;
    bh__text routing_key;
    bh__text parked;
    bh__text first_death[3];
    bh__text last_death[3];
    bh__text problems[BH_HISTORY_MOST_PROBLEMS];
    size_t problem_count;
    int no_memory;
};

bh_status bh_history_new(bh_history **out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = calloc(1, sizeof **out);
    return *out ? BH_OK : BH_ERR_NO_MEMORY;
}

void bh_history_free(bh_history *self)
{
    if (!self)
        return;
    bh__store_free(&self->settings);
    bh__store_free(&self->wait_queues.store);
    free(self->wait_queues.items);
    bh__store_free(&self->store);
    free(self->deaths);
    free(self->keys);
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
    names *queues = &self->wait_queues;
    void *items = queues->items;
    if (!bh__reserve(&items, &queues->capacity, sizeof *queues->items, queues->count + 1))
        return BH_ERR_NO_MEMORY;
    queues->items = items;
    if (!bh__store_add(&queues->store, &queues->items[queues->count], queue))
        return BH_ERR_NO_MEMORY;
    queues->count++;
    return BH_OK;
}

static int is_wait_queue(const bh_history *self, bh_bytes queue)
{
    const names *queues = &self->wait_queues;
    for (size_t i = 0; i < queues->count; i++)
        if (bh__same(bh__store_get(&queues->store, queues->items[i]), queue))
            return 1;
    return 0;
}

static bh_bytes get(const bh_history *self, bh__text text)
{
    return self ? bh__store_get(&self->store, text) : bh_str("");
}

static void save(bh_history *self, bh__text *out, bh_bytes text)
{
    if (!bh__store_add(&self->store, out, text))
        self->no_memory = 1;
}

static void add_problem(bh_history *self, bh_bytes header, const char *what)
{
    if (self->problem_count == BH_HISTORY_MOST_PROBLEMS)
        return;
    if (bh__store_join(&self->store, &self->problems[self->problem_count], header, bh_str(": "), bh_str(what)))
        self->problem_count++;
    else
        self->no_memory = 1;
}

/* The header's number, where it is an integer from 0 to `most`; else -1, and a problem unless the header is absent. */
static int64_t read_number(bh_history *self, const bh_delivery *delivery, const char *name, int64_t most)
{
    const bh__node *node = bh__delivery_header(delivery, bh_str(name));
    if (!node)
        return -1;
    if (!bh__is_integer(node->type))
        add_problem(self, bh_str(name), "not an integer, ignored");
    else if (node->number < 0)
        add_problem(self, bh_str(name), "negative, ignored");
    else if (node->number > most)
        add_problem(self, bh_str(name), "absurdly high, ignored");
    else
        return node->number;
    return -1;
}

static const bh__node *find_string(bh_history *self, const bh_delivery *delivery, const char *name)
{
    const bh__node *node = bh__delivery_header(delivery, bh_str(name));
    if (node && node->type != BH_TYPE_STRING) {
        add_problem(self, bh_str(name), "not a string, ignored");
        return NULL;
    }
    return node;
}

/* Saves the header's string, where it is one of at most 255 bytes. False where it is absent or was ignored. */
static int read_string(bh_history *self, bh__text *out, const bh_delivery *delivery, const char *name)
{
    const bh__node *node = find_string(self, delivery, name);
    if (node && node->string.size > LONGEST_SHORT_STRING) {
        add_problem(self, bh_str(name), "too long, ignored");
        return 0;
    }
    if (node)
        save(self, out, bh__delivery_text(delivery, node->string));
    return node != NULL;
}

/* The legacy counter: an integer, or, as people wrote it too, a string of decimal digits. */
static int64_t read_legacy_counter(bh_history *self, const bh_delivery *delivery)
{
    bh_bytes name = bh__store_get(&self->settings, self->legacy_counter);
    const bh__node *node = name.size ? bh__delivery_header(delivery, name) : NULL;
    if (!node)
        return -1;
    int64_t count = -1;
    if (bh__is_integer(node->type)) {
        count = node->number;
    } else if (node->type == BH_TYPE_STRING && node->string.size > 0 && node->string.size <= 10) {
        bh_bytes digits = bh__delivery_text(delivery, node->string);
        count = 0;
        for (size_t i = 0; i < digits.size && count >= 0; i++)
            count = digits.data[i] >= '0' && digits.data[i] <= '9' ? count * 10 + (digits.data[i] - '0') : -1;
    }
    if (count >= 0 && count <= BH_HISTORY_MOST_ATTEMPTS)
        return count;
    add_problem(self, name, "not a count of failures, ignored");
    return -1;
}

/* A field of an x-death record, where it is there and a string. */
static void read_death_string(bh_history *self, bh__text *out, const bh_delivery *delivery, size_t index,
                              const char *name)
{
    const bh__node *record = bh__delivery_node(delivery, index);
    const bh__node *field = bh__delivery_find(delivery, index + 1, record->end, bh_str(name));
    if (field && field->type == BH_TYPE_STRING)
        save(self, out, bh__delivery_text(delivery, field->string));
    else if (field)
        add_problem(self, bh_str("x-death"), "a record's field is not a string, ignored");
}

static int64_t read_death_times(bh_history *self, const bh_delivery *delivery, size_t index)
{
    const bh__node *record = bh__delivery_node(delivery, index);
    const bh__node *field = bh__delivery_find(delivery, index + 1, record->end, bh_str("count"));
    if (!field) /* brokers before 3.5.2 wrote none: each death was a record */
        return 1;
    if (bh__is_integer(field->type) && field->number >= 0 && field->number <= BH_HISTORY_MOST_ATTEMPTS)
        return field->number;
    add_problem(self, bh_str("x-death"), "a record's count cannot be trusted, taken as 0");
    return 0;
}

static int64_t read_death_time(bh_history *self, const bh_delivery *delivery, size_t index)
{
    const bh__node *record = bh__delivery_node(delivery, index);
    const bh__node *field = bh__delivery_find(delivery, index + 1, record->end, bh_str("time"));
    if (!field)
        return -1;
    if ((field->type == BH_TYPE_TIMESTAMP || bh__is_integer(field->type)) && field->number >= 0 &&
        field->number <= BELOW_2_53 / 1000)
        return field->number;
    add_problem(self, bh_str("x-death"), "a record's time cannot be trusted, ignored");
    return -1;
}

static void read_death_keys(bh_history *self, death *out, const bh_delivery *delivery, size_t index)
{
    const bh__node *record = bh__delivery_node(delivery, index);
    const bh__node *keys = bh__delivery_find(delivery, index + 1, record->end, bh_str("routing-keys"));
    out->first_key = self->key_count;
    if (!keys)
        return;
    if (keys->type != BH_TYPE_ARRAY) {
        add_problem(self, bh_str("x-death"), "a record's routing-keys are not an array, ignored");
        return;
    }
    for (const bh__node *key = keys + 1; key < bh__delivery_node(delivery, 0) + keys->end;
         key = bh__delivery_node(delivery, 0) + key->end) {
        if (key->type != BH_TYPE_STRING)
            continue;
        void *grown = self->keys;
        if (!bh__reserve(&grown, &self->key_capacity, sizeof *self->keys, self->key_count + 1)) {
            self->no_memory = 1;
            return;
        }
        self->keys = grown;
        save(self, &self->keys[self->key_count], bh__delivery_text(delivery, key->string));
        self->key_count++;
        out->key_count++;
    }
}

static void read_deaths(bh_history *self, const bh_delivery *delivery)
{
    const bh__node *header = bh__delivery_header(delivery, bh_str("x-death"));
    if (!header)
        return;
    if (header->type != BH_TYPE_ARRAY) {
        add_problem(self, bh_str("x-death"), "not an array, ignored");
        return;
    }
    size_t start = (size_t)(header - bh__delivery_node(delivery, 0));
    for (size_t i = start + 1; i < header->end; i = bh__delivery_node(delivery, i)->end) {
        if (bh__delivery_node(delivery, i)->type != BH_TYPE_TABLE) {
            add_problem(self, bh_str("x-death"), "a record is not a table, ignored");
            continue;
        }
        void *deaths = self->deaths;
        if (!bh__reserve(&deaths, &self->death_capacity, sizeof *self->deaths, self->death_count + 1)) {
            self->no_memory = 1;
            return;
        }
        self->deaths = deaths;
        death record = {0};
        read_death_string(self, &record.queue, delivery, i, "queue");
        read_death_string(self, &record.reason, delivery, i, "reason");
        read_death_string(self, &record.exchange, delivery, i, "exchange");
        read_death_string(self, &record.original_expiration, delivery, i, "original-expiration");
        record.times = read_death_times(self, delivery, i);
        record.first_time_s = read_death_time(self, delivery, i);
        read_death_keys(self, &record, delivery, i);
        self->deaths[self->death_count++] = record;
    }
}

/* x-death records that count as failures: those of named wait queues, or the work queue's own under strategy reject. */
typedef int is_failure(const bh_history *self, const death *record, const bh_topology *topology);

static int is_expired_wait(const bh_history *self, const death *record, const bh_topology *topology)
{
    (void)topology;
    return bh__same(get(self, record->reason), bh_str("expired")) && is_wait_queue(self, get(self, record->queue));
}

static int is_rejected_work(const bh_history *self, const death *record, const bh_topology *topology)
{
    return bh__same(get(self, record->reason), bh_str("rejected")) &&
           bh__same(get(self, record->queue), bh_topology_queue(topology));
}

/* The sum of the counts of such records, or -1 where there is none; the earliest first time lowers *first_s. */
static int64_t sum_deaths(const bh_history *self, is_failure *is_counted, const bh_topology *topology, int64_t *first_s)
{
    int64_t sum = -1;
    for (size_t i = 0; i < self->death_count; i++) {
        const death *record = &self->deaths[i];
        if (!is_counted(self, record, topology))
            continue;
        sum = (sum < 0 ? 0 : sum) + record->times;
        if (record->first_time_s >= 0 && (*first_s < 0 || record->first_time_s < *first_s))
            *first_s = record->first_time_s;
    }
    return sum < BH_HISTORY_MOST_ATTEMPTS ? sum : BH_HISTORY_MOST_ATTEMPTS;
}

static void read_attempts(bh_history *self, const bh_delivery *delivery, const bh_topology *topology)
{
    int64_t first_s = -1;
    int64_t legacy = read_legacy_counter(self, delivery);
    int64_t waits = sum_deaths(self, is_expired_wait, topology, &first_s);
    int64_t own = read_number(self, delivery, "backhop-attempts", BH_HISTORY_MOST_ATTEMPTS);
    self->source = own >= 0      ? BH_SOURCE_BACKHOP
                   : legacy >= 0 ? BH_SOURCE_LEGACY
                   : waits >= 0  ? BH_SOURCE_X_DEATH
                                 : BH_SOURCE_NONE;
    if (self->source == BH_SOURCE_BACKHOP || self->source == BH_SOURCE_LEGACY)
        first_s = -1;
    int64_t base = own >= 0 ? own : legacy >= 0 ? legacy : waits >= 0 ? waits : 0;

    /* Added, because the message may have come from another strategy with a count that this one does not write. */
    int64_t more = 0;
    bh_source source = BH_SOURCE_NONE;
    if (topology && bh_topology_strategy(topology) == BH_STRATEGY_REJECT) {
        int64_t rejected = sum_deaths(self, is_rejected_work, topology, &first_s);
        more = rejected > 0 ? rejected : 0;
        source = rejected >= 0 ? BH_SOURCE_X_DEATH : BH_SOURCE_NONE;
    } else if (topology && bh_topology_strategy(topology) == BH_STRATEGY_NATIVE) {
        more = self->delivery_count;
        source = more > 0 ? BH_SOURCE_DELIVERY_COUNT : BH_SOURCE_NONE;
    }
    self->attempts = base + more < BH_HISTORY_MOST_ATTEMPTS ? base + more : BH_HISTORY_MOST_ATTEMPTS;
    if (self->source == BH_SOURCE_NONE)
        self->source = source;

    self->first_failure_ms = read_number(self, delivery, "backhop-first-failure", BELOW_2_53);
    if (self->first_failure_ms < 0 && first_s >= 0)
        self->first_failure_ms = first_s * 1000;
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
    };
    *self = empty;

    if (bh_delivery_is_truncated(delivery))
        add_problem(self, bh_str("headers"), "deeper, more or longer than the limits, in part ignored");
    int64_t count = read_number(self, delivery, "x-delivery-count", BH_HISTORY_MOST_ATTEMPTS);
    self->delivery_count = count > 0 ? count : 0;
    count = read_number(self, delivery, "x-acquired-count", BH_HISTORY_MOST_ATTEMPTS);
    self->acquired_count = count > 0 ? count : 0;
    read_deaths(self, delivery);
    read_attempts(self, delivery, topology);
    self->last_delay_ms = read_number(self, delivery, "backhop-delay", BH_POLICY_LONGEST_MS);
    const bh__node *error = find_string(self, delivery, "backhop-error");
    if (error)
        save(self, &self->last_error, bh__cut(bh__delivery_text(delivery, error->string), BH_HISTORY_MOST_ERROR_BYTES));
    if (!read_string(self, &self->id, delivery, "backhop-id"))
        save(self, &self->id, bh_delivery_property(delivery, BH_PROPERTY_MESSAGE_ID));
    if (!read_string(self, &self->exchange, delivery, "backhop-exchange"))
        save(self, &self->exchange, bh_delivery_exchange(delivery));
    if (!read_string(self, &self->routing_key, delivery, "backhop-routing-key"))
        save(self, &self->routing_key, bh_delivery_routing_key(delivery));
    read_string(self, &self->parked, delivery, "backhop-parked");
    static const char *const first_death[] = {"x-first-death-queue", "x-first-death-reason", "x-first-death-exchange"};
    static const char *const last_death[] = {"x-last-death-queue", "x-last-death-reason", "x-last-death-exchange"};
    for (size_t i = 0; i < 3; i++) {
        read_string(self, &self->first_death[i], delivery, first_death[i]);
        read_string(self, &self->last_death[i], delivery, last_death[i]);
    }
    self->is_read = !self->no_memory;
    return self->is_read ? BH_OK : BH_ERR_NO_MEMORY;
}

int bh__history_is_read(const bh_history *self)
{
    return self->is_read;
}

int64_t bh_history_attempts(const bh_history *self)
{
    return self ? self->attempts : 0;
}

bh_source bh_history_attempts_source(const bh_history *self)
{
    return self ? self->source : BH_SOURCE_NONE;
}

int64_t bh_history_first_failure_ms(const bh_history *self)
{
    return self ? self->first_failure_ms : -1;
}

int64_t bh_history_last_delay_ms(const bh_history *self)
{
    return self ? self->last_delay_ms : -1;
}

bh_bytes bh_history_last_error(const bh_history *self)
{
    return self ? get(self, self->last_error) : bh_str("");
}

bh_bytes bh_history_id(const bh_history *self)
{
    return self ? get(self, self->id) : bh_str("");
}

bh_bytes bh_history_exchange(const bh_history *self)
{
    return self ? get(self, self->exchange) : bh_str("");
}

bh_bytes bh_history_routing_key(const bh_history *self)
{
    return self ? get(self, self->routing_key) : bh_str("");
}

bh_bytes bh_history_parked(const bh_history *self)
{
    return self ? get(self, self->parked) : bh_str("");
}

int64_t bh_history_delivery_count(const bh_history *self)
{
    return self ? self->delivery_count : 0;
}

int64_t bh_history_acquired_count(const bh_history *self)
{
    return self ? self->acquired_count : 0;
}

size_t bh_history_death_count(const bh_history *self)
{
    return self ? self->death_count : 0;
}

static const death *death_at(const bh_history *self, size_t index)
{
    static const death none = {.first_time_s = -1};
    return self && index < self->death_count ? &self->deaths[index] : &none;
}

bh_bytes bh_history_death_queue(const bh_history *self, size_t index)
{
    return get(self, death_at(self, index)->queue);
}

bh_bytes bh_history_death_reason(const bh_history *self, size_t index)
{
    return get(self, death_at(self, index)->reason);
}

bh_bytes bh_history_death_exchange(const bh_history *self, size_t index)
{
    return get(self, death_at(self, index)->exchange);
}

bh_bytes bh_history_death_original_expiration(const bh_history *self, size_t index)
{
    return get(self, death_at(self, index)->original_expiration);
}

int64_t bh_history_death_times(const bh_history *self, size_t index)
{
    return death_at(self, index)->times;
}

int64_t bh_history_death_first_time_s(const bh_history *self, size_t index)
{
    return death_at(self, index)->first_time_s;
}

size_t bh_history_death_routing_key_count(const bh_history *self, size_t index)
{
    return death_at(self, index)->key_count;
}

bh_bytes bh_history_death_routing_key(const bh_history *self, size_t index, size_t key)
{
    const death *record = death_at(self, index);
    return key < record->key_count ? get(self, self->keys[record->first_key + key]) : bh_str("");
}

bh_bytes bh_history_first_death_queue(const bh_history *self)
{
    return self ? get(self, self->first_death[0]) : bh_str("");
}

bh_bytes bh_history_first_death_reason(const bh_history *self)
{
    return self ? get(self, self->first_death[1]) : bh_str("");
}

bh_bytes bh_history_first_death_exchange(const bh_history *self)
{
    return self ? get(self, self->first_death[2]) : bh_str("");
}

bh_bytes bh_history_last_death_queue(const bh_history *self)
{
    return self ? get(self, self->last_death[0]) : bh_str("");
}

bh_bytes bh_history_last_death_reason(const bh_history *self)
{
    return self ? get(self, self->last_death[1]) : bh_str("");
}

bh_bytes bh_history_last_death_exchange(const bh_history *self)
{
    return self ? get(self, self->last_death[2]) : bh_str("");
}

size_t bh_history_problem_count(const bh_history *self)
{
    return self ? self->problem_count : 0;
}

bh_bytes bh_history_problem(const bh_history *self, size_t index)
{
    return self && index < self->problem_count ? get(self, self->problems[index]) : bh_str("");
}
