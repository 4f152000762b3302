/*
 * Reads x-death: RabbitMQ's records of why a message left a queue, one for each queue and reason.
 */
#include "delivery/internal.h"
#include "history/data.h"

static void add_death_problem(bh_history *self, const char *what)
{
    bh__history_add_problem(self, bh__header_names[BH__HEADER_X_DEATH], what);
}

/* Makes room for one more item. Returns 0 if there is no memory. */
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
    return BH__NO_TEXT;
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
        field->number <= BH__BELOW_2_53 / 1000)
        return field->number;
    add_death_problem(self, "a record's time cannot be trusted, ignored");
    return -1;
}

static void read_death_keys(bh_history *self, bh__record *record, const bh__tree *tree, size_t index)
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

static bh__record read_death(bh_history *self, const bh__tree *tree, size_t index)
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
    bh__record record = {.times = 1, .first_time_s = -1, .first_key = self->key_count};
    int is_read[FIELDS + 1] = {0};
    size_t end = tree->nodes[index].end;
    for (size_t i = index + 1; i < end; i = tree->nodes[i].end) {
        const bh__node *field = &tree->nodes[i];
        size_t which = bh__find_name(names, FIELDS, bh__store_get(tree->store, field->name));
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

void bh__headers_deaths(bh_history *self, const bh__headers *in)
{
    const bh__node *header = in->found[BH__HEADER_X_DEATH];
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
