#include "delivery_internal.h"
#include "history_internal.h"
#include "traceparent.h"

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

typedef struct queue_names {
    bh__store store;
    bh__text *items;
    size_t count;
    size_t capacity;
} queue_names;

struct bh_history {
    /* what the application names; kept from read to read */
    bh__store settings;
    bh__text legacy_counter;
    queue_names wait_queues;
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
    int64_t broker_attempts; /* of them, those that the broker alone counted */
    bh_source source;
    int64_t first_failure_ms;
    int64_t last_delay_ms;
    int64_t due_ms;
    int64_t delivery_count;
    int64_t acquired_count;
    int64_t crashes;
    int64_t counted_crashes; /* of them, before the last wait */
    int64_t replays;
    int is_back; /* it was parked, and came back by other hands */
    bh__text last_error;
    bh__text traceparent;
    bh__text id;
    bh__text exchange;
    bh__text routing_key;
    bh__text parked;
    bh__text first_death[3];
    bh__text last_death[3];
    bh__text problems[BH_HISTORY_MOST_PROBLEMS];
    size_t problem_count;
    int no_memory;
    bh__report story; /* bh_history_explanation */
};

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
    queue_names *queues = &self->wait_queues;
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
    const queue_names *queues = &from->wait_queues;
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

static int is_wait_queue(const bh_history *self, bh_bytes queue)
{
    const queue_names *queues = &self->wait_queues;
    for (size_t i = 0; i < queues->count; i++)
        if (bh__same(bh__store_get(&queues->store, queues->items[i]), queue))
            return 1;
    return 0;
}

static bh_bytes get(const bh_history *self, bh__text text)
{
    return self ? bh__store_get(&self->store, text) : bh_str("");
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

/* The headers that are read. */
typedef enum known {
    ATTEMPTS,
    FIRST_FAILURE,
    DELAY,
    DUE,
    ERROR,
    ID,
    EXCHANGE,
    ROUTING_KEY,
    PARKED,
    CRASHES,
    REPLAYS,
    TRACEPARENT,
    X_DEATH,
    DELIVERY_COUNT,
    ACQUIRED_COUNT,
    FIRST_DEATH, /* queue, reason, exchange */
    LAST_DEATH = FIRST_DEATH + 3,
    KNOWN = LAST_DEATH + 3
} known;

static const bh_bytes known_names[KNOWN] = {
    [ATTEMPTS] = BH__LITERAL("backhop-attempts"),
    [FIRST_FAILURE] = BH__LITERAL("backhop-first-failure"),
    [DELAY] = BH__LITERAL("backhop-delay"),
    [DUE] = BH__LITERAL("backhop-due"),
    [ERROR] = BH__LITERAL("backhop-error"),
    [ID] = BH__LITERAL("backhop-id"),
    [EXCHANGE] = BH__LITERAL("backhop-exchange"),
    [ROUTING_KEY] = BH__LITERAL("backhop-routing-key"),
    [PARKED] = BH__LITERAL("backhop-parked"),
    [CRASHES] = BH__LITERAL("backhop-crashes"),
    [REPLAYS] = BH__LITERAL("backhop-replays"),
    [TRACEPARENT] = BH__LITERAL("backhop-traceparent"),
    [X_DEATH] = BH__LITERAL("x-death"),
    [DELIVERY_COUNT] = BH__LITERAL("x-delivery-count"),
    [ACQUIRED_COUNT] = BH__LITERAL("x-acquired-count"),
    [FIRST_DEATH] = BH__LITERAL("x-first-death-queue"),
    [FIRST_DEATH + 1] = BH__LITERAL("x-first-death-reason"),
    [FIRST_DEATH + 2] = BH__LITERAL("x-first-death-exchange"),
    [LAST_DEATH] = BH__LITERAL("x-last-death-queue"),
    [LAST_DEATH + 1] = BH__LITERAL("x-last-death-reason"),
    [LAST_DEATH + 2] = BH__LITERAL("x-last-death-exchange"),
};

/* What is being read: the tree and its known headers, each the first of its name, NULL where there is none. */
typedef struct headers {
    bh__tree tree;
    const bh__node *found[KNOWN];
} headers;

/* Index of the name in a list of names; `count` where it is not there. */
static size_t find_name(const bh_bytes *names, size_t count, bh_bytes name)
{
    size_t i = 0;
    while (i < count && !bh__same(names[i], name))
        i++;
    return i;
}

static void find_headers(headers *self)
{
    const bh__tree *tree = &self->tree;
    for (size_t i = 0; i < tree->count; i = tree->nodes[i].end) {
        size_t at = find_name(known_names, KNOWN, bh__store_get(tree->store, tree->nodes[i].name));
        if (at < KNOWN && !self->found[at])
            self->found[at] = &tree->nodes[i];
    }
}

/* The header's number, where it is an integer from 0 to `most`; else -1, and a problem unless the header is absent. */
static int64_t read_number(bh_history *self, const headers *in, known header, int64_t most)
{
    const bh__node *node = in->found[header];
    if (!node)
        return -1;
    if (!bh__is_integer(node->type))
        add_problem(self, known_names[header], "not an integer, ignored");
    else if (node->number < 0)
        add_problem(self, known_names[header], "negative, ignored");
    else if (node->number > most)
        add_problem(self, known_names[header], "absurdly high, ignored");
    else
        return node->number;
    return -1;
}

/* The header's string, where it is one of at most `most` bytes; `other` where it is absent or was ignored. */
static bh__text read_string(bh_history *self, const headers *in, known header, size_t most, bh__text other)
{
    const bh__node *node = in->found[header];
    if (!node)
        return other;
    if (node->type != BH_TYPE_STRING)
        add_problem(self, known_names[header], "not a string, ignored");
    else if (node->string.size > most)
        add_problem(self, known_names[header], "too long, ignored");
    else
        return node->string;
    return other;
}

static const bh__text no_text;

static bh__text read_short_string(bh_history *self, const headers *in, known header)
{
    return read_string(self, in, header, LONGEST_SHORT_STRING, no_text);
}

/* The error's text, which is cut and so is no longer where the delivery has it. */
static bh__text read_error(bh_history *self, const headers *in)
{
    bh__text text = read_string(self, in, ERROR, SIZE_MAX, no_text);
    if (text.size <= BH_HISTORY_MOST_ERROR_BYTES)
        return text;
    bh_bytes cut = bh__cut(bh__store_get(in->tree.store, text), BH_HISTORY_MOST_ERROR_BYTES);
    if (!bh__store_add(&self->store, &text, cut))
        self->no_memory = 1;
    return text;
}

static bh__text read_traceparent(bh_history *self, const headers *in)
{
    bh__text text = read_string(self, in, TRACEPARENT, SIZE_MAX, no_text);
    if (!text.size || bh__is_traceparent(bh__store_get(in->tree.store, text)))
        return text;
    add_problem(self, known_names[TRACEPARENT], "no traceparent of W3C, ignored");
    return no_text;
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
        bh_bytes digits = bh__store_get(bh__delivery_tree(delivery).store, node->string);
        count = 0;
        for (size_t i = 0; i < digits.size && count >= 0; i++)
            count = digits.data[i] >= '0' && digits.data[i] <= '9' ? count * 10 + (digits.data[i] - '0') : -1;
    }
    if (count >= 0 && count <= BH_HISTORY_MOST_ATTEMPTS)
        return count;
    add_problem(self, name, "not a count of failures, ignored");
    return -1;
}

static void add_death_problem(bh_history *self, const char *what)
{
    add_problem(self, known_names[X_DEATH], what);
}

/* Room for one item more in an array; false: no memory. */
static int reserve_one(bh_history *self, void **items, size_t *capacity, size_t size, size_t count)
{
    if (bh__reserve(items, capacity, size, count + 1))
        return 1;
    self->no_memory = 1;
    return 0;
}

static bh__text death_string(bh_history *self, const bh__node *field)
{
    if (field->type == BH_TYPE_STRING)
        return field->string;
    add_death_problem(self, "a record's field is not a string, ignored");
    return no_text;
}

static int64_t death_times(bh_history *self, const bh__node *field)
{
    if (bh__is_integer(field->type) && field->number >= 0 && field->number <= BH_HISTORY_MOST_ATTEMPTS)
        return field->number;
    add_death_problem(self, "a record's count cannot be trusted, taken as 0");
    return 0;
}

static int64_t death_time(bh_history *self, const bh__node *field)
{
    if ((field->type == BH_TYPE_TIMESTAMP || bh__is_integer(field->type)) && field->number >= 0 &&
        field->number <= BELOW_2_53 / 1000)
        return field->number;
    add_death_problem(self, "a record's time cannot be trusted, ignored");
    return -1;
}

static void read_death_keys(bh_history *self, death *record, const bh__tree *tree, size_t index)
{
    const bh__node *keys = &tree->nodes[index];
    if (keys->type != BH_TYPE_ARRAY) {
        add_death_problem(self, "a record's routing-keys are not an array, ignored");
        return;
    }
    for (size_t i = index + 1; i < keys->end; i = tree->nodes[i].end) {
        const bh__node *key = &tree->nodes[i];
        void *items = self->keys;
        if (key->type != BH_TYPE_STRING) {
            add_death_problem(self, "a record's routing key is not a string, ignored");
            continue;
        }
        if (!reserve_one(self, &items, &self->key_capacity, sizeof *self->keys, self->key_count))
            return;
        self->keys = items;
        self->keys[self->key_count++] = key->string;
        record->key_count++;
    }
}

static death read_death(bh_history *self, const bh__tree *tree, size_t index)
{
    enum { COUNT, REASON, QUEUE, TIME, FROM_EXCHANGE, KEYS, EXPIRATION, FIELDS };
    static const bh_bytes names[FIELDS] = {
        [COUNT] = BH__LITERAL("count"),
        [REASON] = BH__LITERAL("reason"),
        [QUEUE] = BH__LITERAL("queue"),
        [TIME] = BH__LITERAL("time"),
        [FROM_EXCHANGE] = BH__LITERAL("exchange"),
        [KEYS] = BH__LITERAL("routing-keys"),
        [EXPIRATION] = BH__LITERAL("original-expiration"),
    };
    /* Brokers before 3.5.2 wrote no count: each death was a record. */
    death record = {.times = 1, .first_time_s = -1, .first_key = self->key_count};
    int is_read[FIELDS + 1] = {0};
    size_t end = tree->nodes[index].end;
    for (size_t i = index + 1; i < end; i = tree->nodes[i].end) {
        const bh__node *field = &tree->nodes[i];
        size_t which = find_name(names, FIELDS, bh__store_get(tree->store, field->name));
        if (is_read[which]++)
            continue;
        if (which == COUNT)
            record.times = death_times(self, field);
        else if (which == REASON)
            record.reason = death_string(self, field);
        else if (which == QUEUE)
            record.queue = death_string(self, field);
        else if (which == TIME)
            record.first_time_s = death_time(self, field);
        else if (which == FROM_EXCHANGE)
            record.exchange = death_string(self, field);
        else if (which == KEYS)
            read_death_keys(self, &record, tree, i);
        else if (which == EXPIRATION)
            record.original_expiration = death_string(self, field);
    }
    return record;
}

static void read_deaths(bh_history *self, const headers *in)
{
    const bh__node *header = in->found[X_DEATH];
    if (!header)
        return;
    if (header->type != BH_TYPE_ARRAY) {
        add_death_problem(self, "not an array, ignored");
        return;
    }
    const bh__tree *tree = &in->tree;
    size_t start = (size_t)(header - tree->nodes);
    for (size_t i = start + 1; i < header->end; i = tree->nodes[i].end) {
        void *items = self->deaths;
        if (tree->nodes[i].type != BH_TYPE_TABLE) {
            add_death_problem(self, "a record is not a table, ignored");
            continue;
        }
        if (!reserve_one(self, &items, &self->death_capacity, sizeof *self->deaths, self->death_count))
            return;
        self->deaths = items;
        self->deaths[self->death_count++] = read_death(self, tree, i);
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

static void read_attempts(bh_history *self, const headers *in, const bh_delivery *delivery, const bh_topology *topology)
{
    int64_t first_s = -1;
    int64_t legacy = read_legacy_counter(self, delivery);
    int64_t waits = sum_deaths(self, is_expired_wait, topology, &first_s);
    int64_t own = read_number(self, in, ATTEMPTS, BH_HISTORY_MOST_ATTEMPTS);
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
    int64_t counted = read_number(self, in, CRASHES, BH_HISTORY_MOST_ATTEMPTS);
    self->crashes = self->delivery_count;
    if (topology && bh_topology_strategy(topology) == BH_STRATEGY_REJECT) {
        int64_t rejected = sum_deaths(self, is_rejected_work, topology, &first_s);
        more = rejected > 0 ? rejected : 0;
        source = rejected >= 0 ? BH_SOURCE_X_DEATH : BH_SOURCE_NONE;
        self->crashes = self->delivery_count > more ? self->delivery_count - more : 0;
    } else if (topology && bh_topology_strategy(topology) == BH_STRATEGY_NATIVE) {
        more = self->delivery_count;
        source = more > 0 ? BH_SOURCE_DELIVERY_COUNT : BH_SOURCE_NONE;
        self->crashes = 0;
    } else if (counted > 0) {
        self->counted_crashes = counted;
        self->crashes = counted + self->delivery_count;
    }
    self->broker_attempts = more;
    self->attempts = base + more < BH_HISTORY_MOST_ATTEMPTS ? base + more : BH_HISTORY_MOST_ATTEMPTS;
    if (self->source == BH_SOURCE_NONE)
        self->source = source;

    self->first_failure_ms = read_number(self, in, FIRST_FAILURE, BELOW_2_53);
    if (self->first_failure_ms < 0 && first_s >= 0)
        self->first_failure_ms = first_s * 1000;
}

/* Where the message was first published, if no copy says so. Under strategy reject the work queue was left by no copy:
 * there the broker's record of its rejections tells. */
static bh__text first_exchange(const bh_history *self, const bh_delivery *delivery, const bh_topology *topology)
{
    if (topology && bh_topology_strategy(topology) == BH_STRATEGY_REJECT)
        for (size_t i = 0; i < self->death_count; i++)
            if (is_rejected_work(self, &self->deaths[i], topology))
                return self->deaths[i].exchange;
    return bh__delivery_exchange_text(delivery);
}

/* 1 where the message was parked and is no longer in the parked queue: copies get there by the default exchange, so that
 * one that was moved or published from there arrives by another exchange or key. Headers without either, as people read
 * them off a screen, tell of no queue. */
static int came_back(const bh_history *self, const bh_delivery *delivery, const bh_topology *topology)
{
    bh_bytes exchange = bh_delivery_exchange(delivery);
    bh_bytes key = bh_delivery_routing_key(delivery);
    if (!topology || self->parked.size == 0 || (exchange.size == 0 && key.size == 0))
        return 0;
    return exchange.size > 0 || !bh__same(key, bh_topology_parked_queue(topology));
}

/* As bh_plan_replay would have sent it. What the broker alone counts, it counted since. */
static void begin_anew(bh_history *self)
{
    self->replays += self->replays < BH_HISTORY_MOST_ATTEMPTS;
    self->attempts = self->broker_attempts;
    self->source = BH_SOURCE_BACKHOP;
    self->first_failure_ms = -1;
    self->last_delay_ms = self->due_ms = -1;
    self->last_error = no_text;
    self->crashes -= self->counted_crashes;
    self->counted_crashes = 0;
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
        .story = self->story,
    };
    *self = empty;

    headers in = {.tree = bh__delivery_tree(delivery)};
    if (!bh__store_copy(&self->store, in.tree.store))
        return BH_ERR_NO_MEMORY;
    if (bh_delivery_is_truncated(delivery))
        add_problem(self, bh_str("headers"), "deeper, more or longer than the limits, in part ignored");
    find_headers(&in);
    int64_t count = read_number(self, &in, DELIVERY_COUNT, BH_HISTORY_MOST_ATTEMPTS);
    self->delivery_count = count > 0 ? count : 0;
    count = read_number(self, &in, ACQUIRED_COUNT, BH_HISTORY_MOST_ATTEMPTS);
    self->acquired_count = count > 0 ? count : 0;
    read_deaths(self, &in);
    read_attempts(self, &in, delivery, topology);
    self->last_delay_ms = read_number(self, &in, DELAY, BH_POLICY_LONGEST_MS);
    self->due_ms = read_number(self, &in, DUE, BELOW_2_53);
    self->last_error = read_error(self, &in);
    self->traceparent = read_traceparent(self, &in);
    self->id = read_short_string(self, &in, ID);
    if (self->id.size == 0)
        self->id = bh__delivery_property_text(delivery, BH_PROPERTY_MESSAGE_ID);
    self->exchange = read_string(self, &in, EXCHANGE, LONGEST_SHORT_STRING, first_exchange(self, delivery, topology));
    self->routing_key =
        read_string(self, &in, ROUTING_KEY, LONGEST_SHORT_STRING, bh__delivery_routing_key_text(delivery));
    self->parked = read_short_string(self, &in, PARKED);
    count = read_number(self, &in, REPLAYS, BH_HISTORY_MOST_ATTEMPTS);
    self->replays = count > 0 ? count : 0;
    self->is_back = came_back(self, delivery, topology);
    if (self->is_back)
        begin_anew(self);
    for (known i = 0; i < 3; i++) {
        self->first_death[i] = read_short_string(self, &in, FIRST_DEATH + i);
        self->last_death[i] = read_short_string(self, &in, LAST_DEATH + i);
    }
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

int64_t bh_history_lateness_ms(const bh_history *self, int redelivered, int64_t now_ms)
{
    if (!self || redelivered || self->due_ms < 0 || self->attempts == 0 || now_ms < 0 || now_ms > BELOW_2_53)
        return -1;
    int64_t late_ms = now_ms - self->due_ms;
    if (late_ms > BH_POLICY_LONGEST_MS || late_ms < -BH_POLICY_LONGEST_MS)
        return -1;
    return late_ms > 0 ? late_ms : 0;
}

int64_t bh__history_recovery_ms(const bh_history *self, int64_t now_ms)
{
    int64_t first_ms = bh_history_first_failure_ms(self);
    if (bh_history_attempts(self) == 0 || first_ms < 0 || first_ms > now_ms)
        return -1;
    return now_ms - first_ms <= BH_POLICY_LONGEST_MS ? now_ms - first_ms : -1;
}

bh_bytes bh_history_traceparent(const bh_history *self)
{
    return self ? get(self, self->traceparent) : bh_str("");
}

bh_bytes bh_history_last_error(const bh_history *self)
{
    return self ? get(self, self->last_error) : bh_str("");
}

bh_bytes bh_history_id(const bh_history *self)
{
    return self ? get(self, self->id) : bh_str("");
}

int bh_history_has_id(const bh_history *self)
{
    return bh_history_id(self).size > 0;
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

int bh__history_is_back(const bh_history *self)
{
    return self->is_back;
}

int64_t bh__history_counted_crashes(const bh_history *self)
{
    return self->counted_crashes;
}

int64_t bh_history_replays(const bh_history *self)
{
    return self ? self->replays : 0;
}

int64_t bh_history_crashes(const bh_history *self)
{
    return self ? self->crashes : 0;
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
