#include "relay_internal.h"

#include "delivery_internal.h"
#include "plan_internal.h"
#include "policy_internal.h"
#include "topology_internal.h"

#include <stdlib.h>

enum { LONGEST_SHOWN = 255 };

static bh_bytes get(const bh_relay *self, bh__text text)
{
    return bh__store_get(&self->read, text);
}

/* ------------------------------------------------------------------------------------------------------- new and free */

static bh_relay *make(void)
{
    bh_relay *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    for (int i = 0; i <= BH_DEATH_OTHER; i++)
        self->outcomes[i] = BH_OUTCOME_PERMANENT;
    self->outcomes[BH_DEATH_REJECTED] = BH_OUTCOME_FAILED;
    return self;
}

bh_status bh_relay_new(bh_relay **out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = make();
    if (!*out || bh__topology_new_relays(&(*out)->topology) == BH_OK)
        return *out ? BH_OK : BH_ERR_NO_MEMORY;
    bh_relay_free(*out);
    *out = NULL;
    return BH_ERR_NO_MEMORY;
}

void bh_relay_free(bh_relay *self)
{
    if (!self)
        return;
    for (size_t i = 0; i < self->served_count; i++)
        bh_policy_free(self->served[i].policy);
    free(self->served);
    bh__store_free(&self->names);
    bh__store_free(&self->read);
    bh__report_free(&self->words);
    bh__store_free(&self->policy_line);
    bh__report_free(&self->problem);
    bh_topology_free(self->topology);
    free(self);
}

/* Appends a name or pattern; the policy becomes the relay's where it goes well. */
static bh_status append(bh_relay *self, bh_bytes name, bh_policy *policy)
{
    void *served = self->served;
    if (!bh__reserve(&served, &self->served_capacity, sizeof *self->served, self->served_count + 1))
        return BH_ERR_NO_MEMORY;
    self->served = served;
    bh__served *added = &self->served[self->served_count];
    *added = (bh__served){.is_pattern = memchr(name.data, '*', name.size) != NULL, .policy = policy};
    if (!bh__store_add(&self->names, &added->name, name))
        return BH_ERR_NO_MEMORY;
    self->served_count++;
    return BH_OK;
}

static bh_status append_copy(bh_relay *self, bh_bytes name, const bh_policy *policy)
{
    bh_policy *copy;
    bh_status status = policy ? bh__policy_copy(&copy, policy) : bh_policy_new(&copy);
    if (status == BH_OK)
        status = append(self, name, copy);
    if (status != BH_OK)
        bh_policy_free(copy);
    return status;
}

bh_status bh__relay_copy(bh_relay **out, const bh_relay *from)
{
    *out = make();
    if (!*out)
        return BH_ERR_NO_MEMORY;
    bh_relay *copy = *out;
    bh_status status = bh__topology_copy(&copy->topology, from->topology);
    for (size_t i = 0; status == BH_OK && i < from->served_count; i++)
        status = append_copy(copy, bh__relay_name_of(from, &from->served[i]), from->served[i].policy);
    memcpy(copy->outcomes, from->outcomes, sizeof copy->outcomes);
    copy->is_built = from->is_built;
    if (status == BH_OK)
        return BH_OK;
    bh_relay_free(copy);
    *out = NULL;
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- settings */

/* After a setting of the topology, which has the sentence of its failure. */
static bh_status set(bh_relay *self, bh_status status)
{
    bh_bytes error = bh_topology_error(self->topology);
    self->is_built = self->is_read = 0;
    return bh__report_set(&self->problem, status, "%s", status == BH_OK || !error.size ? "" : error.data);
}

bh_status bh_relay_set_queue_type(bh_relay *self, bh_queue_type type)
{
    return self ? set(self, bh_topology_set_queue_type(self->topology, type)) : BH_ERR_ARGUMENT;
}

bh_status bh_relay_set_namespace(bh_relay *self, bh_bytes name)
{
    return self ? set(self, bh_topology_set_namespace(self->topology, name)) : BH_ERR_ARGUMENT;
}

bh_status bh_relay_set_series(bh_relay *self, bh_series series)
{
    return self ? set(self, bh_topology_set_series(self->topology, series)) : BH_ERR_ARGUMENT;
}

bh_status bh_relay_set_stripes(bh_relay *self, int count)
{
    return self ? set(self, bh_topology_set_stripes(self->topology, count)) : BH_ERR_ARGUMENT;
}

bh_status bh_relay_set_outcome(bh_relay *self, bh_death death, bh_outcome outcome)
{
    if (!self || (int)death < BH_DEATH_REJECTED || (int)death >= BH_DEATH_OTHER ||
        (outcome != BH_OUTCOME_FAILED && outcome != BH_OUTCOME_PERMANENT && outcome != BH_OUTCOME_DROPPED))
        return BH_ERR_ARGUMENT;
    self->outcomes[death] = outcome;
    return BH_OK;
}

static int is_there(const bh_relay *self, bh_bytes name)
{
    for (size_t i = 0; i < self->served_count; i++)
        if (bh__same(bh__relay_name_of(self, &self->served[i]), name))
            return 1;
    return 0;
}

static bh_status check_policy(bh_relay *self, bh_bytes name, const bh_policy *policy)
{
    bh_policy *copy;
    bh_status status = policy ? bh__policy_copy(&copy, policy) : BH_OK;
    if (status != BH_OK || !policy)
        return status;
    status = bh_policy_check(copy);
    if (status != BH_OK)
        bh__report_set(&self->problem, status, "the policy of \"%.*s\": %s", (int)name.size, name.data,
                       bh_policy_error(copy).data);
    bh_policy_free(copy);
    return status;
}

bh_status bh_relay_add_queue(bh_relay *self, bh_bytes name, const bh_policy *policy)
{
    if (!self || !name.data)
        return BH_ERR_ARGUMENT;
    bh__report_clear(&self->problem);
    bh_status status = bh__topology_check_queue_name(name); /* a pattern too: it matches no longer names */
    int shown = name.size < LONGEST_SHOWN ? (int)name.size : LONGEST_SHOWN;
    if (status == BH_ERR_NAME)
        return bh__report_set(&self->problem, status,
                              "\"%.*s\" can be no work queue: its name is empty, longer than 247 bytes, not UTF-8, or "
                              "begins with amq.: give another",
                              shown, name.data);
    if (status != BH_OK)
        return status;
    if (is_there(self, name))
        return bh__report_set(&self->problem, BH_ERR_ARGUMENT, "\"%.*s\" is given twice: leave one out", shown,
                              name.data);
    if (self->served_count == BH_RELAY_MOST_QUEUES)
        return bh__report_set(&self->problem, BH_ERR_ARGUMENT,
                              "a relay has at most %d names and patterns: take a pattern for several queues",
                              BH_RELAY_MOST_QUEUES);
    status = check_policy(self, name, policy);
    if (status == BH_OK)
        status = append_copy(self, name, policy);
    if (status == BH_OK)
        self->is_built = self->is_read = 0;
    return status;
}

/* ----------------------------------------------------------------------------------------------------- names, patterns */

bh_bytes bh__relay_name_of(const bh_relay *self, const bh__served *served)
{
    return bh__store_get(&self->names, served->name);
}

/* Whether the pattern matches: each "*" takes as little as possible, and the last one more where the rest does not fit. */
static int matches(bh_bytes pattern, bh_bytes text)
{
    size_t p = 0, t = 0;
    size_t star = pattern.size, taken = 0; /* the last star, and up to where it takes the text */
    while (t < text.size) {
        if (p < pattern.size && pattern.data[p] == '*') {
            star = p++;
            taken = t;
        } else if (p < pattern.size && pattern.data[p] == text.data[t]) {
            p++;
            t++;
        } else if (star < pattern.size) {
            p = star + 1;
            t = ++taken;
        } else {
            return 0;
        }
    }
    while (p < pattern.size && pattern.data[p] == '*')
        p++;
    return p == pattern.size;
}

static int ends_in(bh_bytes text, const char *suffix)
{
    size_t size = strlen(suffix);
    return text.size >= size && memcmp(text.data + text.size - size, suffix, size) == 0;
}

/* What is behind "<ns>." in a name; "" where that is not its beginning. */
static bh_bytes behind_namespace(const bh_relay *self, bh_bytes name)
{
    bh_bytes space = bh__topology_namespace(self->topology);
    if (name.size <= space.size + 1 || memcmp(name.data, space.data, space.size) != 0 || name.data[space.size] != '.')
        return bh_str("");
    return (bh_bytes){name.data + space.size + 1, name.size - space.size - 1};
}

static int is_wait_queue(const bh_relay *self, bh_bytes name)
{
    return bh__begins(behind_namespace(self, name), "wait.");
}

/* Queues that the relay itself declares for all. */
static int is_own(const bh_relay *self, bh_bytes name)
{
    bh_bytes rest = behind_namespace(self, name);
    return bh__same(rest, bh_str("rejected")) || bh__same(rest, bh_str("unroutable")) || is_wait_queue(self, name);
}

int bh__relay_may_meet_own(const bh_relay *self, const bh__served *served)
{
    bh_bytes pattern = bh__relay_name_of(self, served);
    bh_bytes space = bh__topology_namespace(self->topology);
    size_t same = 0;
    while (same < pattern.size && same < space.size && pattern.data[same] == space.data[same])
        same++;
    return same == space.size || same == pattern.size || pattern.data[same] == '*';
}

const bh__served *bh__relay_find(const bh_relay *self, bh_bytes queue)
{
    int is_for_patterns = !ends_in(queue, ".parked") && !is_own(self, queue);
    const bh__served *by_pattern = NULL;
    if (bh__topology_check_queue_name(queue) != BH_OK)
        return NULL;
    for (size_t i = 0; i < self->served_count; i++) {
        const bh__served *served = &self->served[i];
        bh_bytes name = bh__relay_name_of(self, served);
        if (!served->is_pattern && bh__same(name, queue))
            return served;
        if (served->is_pattern && is_for_patterns && !by_pattern && matches(name, queue))
            by_pattern = served;
    }
    return by_pattern;
}

/* -------------------------------------------------------------------------------------------------------------- build */

static bh_status build_topology(bh_relay *self)
{
    bh_status status = BH_OK;
    for (size_t i = 1; status == BH_OK && i < self->served_count; i++)
        status = bh__topology_has_policy(self->topology, self->served[i].policy)
                     ? BH_OK
                     : bh_topology_add_policy(self->topology, self->served[i].policy);
    return status == BH_OK ? bh_topology_build(self->topology, self->served[0].policy) : status;
}

bh_status bh_relay_build(bh_relay *self)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    self->is_built = self->is_read = 0;
    if (self->served_count == 0)
        return bh__report_set(&self->problem, BH_ERR_STATE, "the relay serves no queue: add one, or a pattern");
    for (size_t i = 0; i < self->served_count; i++) {
        bh_bytes name = bh__relay_name_of(self, &self->served[i]);
        if (!self->served[i].is_pattern && is_own(self, name))
            return bh__report_set(&self->problem, BH_ERR_NAME,
                                  "\"%s\" is a queue of the relay itself: leave it out, or give another namespace",
                                  name.data);
    }
    bh_status status = build_topology(self);
    self->is_built = status == BH_OK;
    return bh__report_set(&self->problem, status, "%s", status == BH_OK ? "" : bh_topology_error(self->topology).data);
}

bh_bytes bh_relay_error(const bh_relay *self)
{
    return self ? bh__report_text(&self->problem) : bh_str("");
}

bh_bytes bh_relay_rejected_queue(const bh_relay *self)
{
    return self && self->is_built ? bh__topology_home(self->topology) : bh_str("");
}

bh_bytes bh_relay_unroutable_queue(const bh_relay *self)
{
    return self && self->is_built ? bh_topology_unroutable_queue(self->topology) : bh_str("");
}

size_t bh_relay_queue_count(const bh_relay *self)
{
    return self ? self->served_count : 0;
}

bh_bytes bh_relay_queue_name(const bh_relay *self, size_t index)
{
    return self && index < self->served_count ? bh__relay_name_of(self, &self->served[index]) : bh_str("");
}

int bh_relay_queue_is_pattern(const bh_relay *self, size_t index)
{
    return self && index < self->served_count && self->served[index].is_pattern;
}

bh_status bh__relay_topology_of(bh_topology **out, const bh_relay *self, bh_bytes queue)
{
    const bh__served *served = bh__relay_find(self, queue);
    *out = NULL;
    return served ? bh__topology_new_part(out, self->topology, queue, served->policy) : BH_ERR_ARGUMENT;
}

/* ---------------------------------------------------------------------------------------------------------------- read */

static bh_death death_of(bh_bytes word)
{
    static const bh_bytes words[BH_DEATH_OTHER] = {
        [BH_DEATH_REJECTED] = BH__LITERAL("rejected"),
        [BH_DEATH_EXPIRED] = BH__LITERAL("expired"),
        [BH_DEATH_MAXLEN] = BH__LITERAL("maxlen"),
        [BH_DEATH_DELIVERY_LIMIT] = BH__LITERAL("delivery_limit"),
    };
    int i = 0;
    while (i < BH_DEATH_OTHER && !bh__same(words[i], word))
        i++;
    return (bh_death)i;
}

/* A stranger's text: its first bytes, and "?" for what is not printable ASCII or UTF-8. */
static void add_quoted(bh__report *words, bh_bytes text)
{
    bh_bytes shown = bh__cut(text, LONGEST_SHOWN);
    int is_text = bh__is_utf8(shown);
    bh__report_add(words, "\"");
    for (size_t i = 0; i < shown.size; i++) {
        unsigned char byte = (unsigned char)shown.data[i];
        bh__report_add(words, "%c", byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !is_text) ? '?' : (char)byte);
    }
    bh__report_add(words, "\"");
}

static void word_served(bh_relay *self)
{
    static const char *const sentences[BH_DEATH_OTHER] = {
        [BH_DEATH_REJECTED] = "rejected by its consumer",
        [BH_DEATH_EXPIRED] = "expired in its work queue, before a consumer had it",
        [BH_DEATH_MAXLEN] = "pushed out of its work queue, which was full",
        [BH_DEATH_DELIVERY_LIMIT] = "delivered as often as its work queue allows, and never settled",
    };
    if (self->death < BH_DEATH_OTHER) {
        bh__report_add(&self->words, "%s", sentences[self->death]);
        return;
    }
    bh__report_add(&self->words, "dead-lettered for a reason that this version does not know: ");
    add_quoted(&self->words, get(self, self->word));
}

static void word_stray(bh_relay *self, int has_record, const bh_delivery *delivery)
{
    bh__report *words = &self->words;
    if (has_record) {
        bh__report_add(words, "dead-lettered (");
        add_quoted(words, get(self, self->word));
        bh__report_add(words, ") from queue ");
        add_quoted(words, get(self, self->queue));
        bh__report_add(words, ", which the relay does not serve: add the queue to the relay, or end its policy");
    } else if (bh_delivery_is_truncated(delivery)) {
        bh__report_add(words, "its headers go beyond the limits, and x-death is not among what was read of them");
    } else {
        bh__report_add(words,
                       "no x-death tells which queue it is of: it was published to %s, and not dead-lettered there",
                       bh_relay_rejected_queue(self).data);
    }
}

/* The broker's record: the first one, but for those of the waits. The count of the history: there is none. */
static size_t find_record(const bh_relay *self, const bh_history *history)
{
    size_t i = 0;
    while (i < bh_history_death_count(history) && is_wait_queue(self, bh_history_death_queue(history, i)))
        i++;
    return i;
}

/* Puts back what the broker changed. A record that is not of this death alone has what was so at an earlier one. */
static bh_status put_back(const bh_history *history, size_t record, bh_delivery *delivery)
{
    bh_bytes expiration = bh_history_death_original_expiration(history, record);
    if (bh_history_death_times(history, record) != 1)
        return BH_OK;
    bh_bytes exchange = bh_history_death_exchange(history, record);
    bh_bytes key = bh_history_death_routing_key(history, record, 0);
    bh_status status = exchange.size <= LONGEST_SHOWN ? bh_delivery_set_exchange(delivery, exchange) : BH_OK;
    if (status == BH_OK && bh_history_death_routing_key_count(history, record) > 0 && key.size <= LONGEST_SHOWN)
        status = bh_delivery_set_routing_key(delivery, key);
    if (status == BH_OK && expiration.size > 0 && expiration.size <= LONGEST_SHOWN)
        status = bh_delivery_set_property(delivery, BH_PROPERTY_EXPIRATION, expiration);
    return status;
}

/* Keeps what the record says, which reading the history again ends. False: no memory. */
static int keep_record(bh_relay *self, const bh_history *history, size_t record)
{
    bh_bytes word = bh_history_death_reason(history, record);
    return bh__store_add(&self->read, &self->queue, bh_history_death_queue(history, record)) &&
           bh__store_add(&self->read, &self->word, word);
}

static bh_status read_served(bh_relay *self, bh_delivery *delivery, bh_history *history, size_t record)
{
    bh_status status = put_back(history, record, delivery);
    if (status == BH_OK && !bh__topology_lead_to(self->topology, get(self, self->queue)))
        status = BH_ERR_NO_MEMORY;
    return status == BH_OK ? bh_history_read(history, delivery, self->topology) : status;
}

bh_status bh_relay_read(bh_relay *self, bh_delivery *delivery, bh_history *history)
{
    if (!self || !delivery || !history)
        return BH_ERR_ARGUMENT;
    self->is_read = 0;
    if (!self->is_built)
        return BH_ERR_STATE;
    bh__topology_lead_home(self->topology);
    self->read.size = 0;
    self->queue = self->word = (bh__text){0, 0};
    self->by = NULL;
    self->death = BH_DEATH_OTHER;
    bh__report_clear(&self->words);
    bh_status status = bh_history_read(history, delivery, NULL);
    if (status != BH_OK)
        return status;
    size_t record = find_record(self, history);
    int has_record = record < bh_history_death_count(history);
    if (has_record && !keep_record(self, history, record))
        return BH_ERR_NO_MEMORY;
    if (has_record)
        self->by = bh__relay_find(self, get(self, self->queue));
    self->death = death_of(get(self, self->word));
    if (self->by)
        status = read_served(self, delivery, history, record);
    if (self->by)
        word_served(self);
    else
        word_stray(self, has_record, delivery);
    self->is_read = status == BH_OK;
    return status;
}

bh_bytes bh_relay_queue(const bh_relay *self)
{
    return bh_relay_is_served(self) ? get(self, self->queue) : bh_str("");
}

int bh_relay_is_served(const bh_relay *self)
{
    return self && self->is_read && self->by;
}

bh_death bh_relay_death(const bh_relay *self)
{
    return self && self->is_read ? self->death : BH_DEATH_OTHER;
}

bh_bytes bh_relay_death_word(const bh_relay *self)
{
    return self && self->is_read ? get(self, self->word) : bh_str("");
}

bh_bytes bh_relay_words(const bh_relay *self)
{
    return self && self->is_read ? bh__report_text(&self->words) : bh_str("");
}

/* ---------------------------------------------------------------------------------------------------------------- plan */

static const char *parked_reason(bh_death death)
{
    static const char *const reasons[] = {
        [BH_DEATH_REJECTED] = "permanent", [BH_DEATH_EXPIRED] = "expired",
        [BH_DEATH_MAXLEN] = "maxlen",      [BH_DEATH_DELIVERY_LIMIT] = "delivery_limit",
        [BH_DEATH_OTHER] = "permanent",
    };
    return reasons[death];
}

bh_status bh_relay_plan(bh_relay *self, bh_plan *plan, const bh_delivery *delivery, const bh_history *history,
                        int is_there_now, int64_t now_ms, bh_bytes random)
{
    if (!self || !plan || !delivery || !history)
        return BH_ERR_ARGUMENT;
    if (!self->is_read)
        return BH_ERR_STATE;
    bh_bytes words = bh_relay_words(self);
    bh_outcome outcome = self->outcomes[self->death];
    if (!self->by)
        return bh__plan_shelve(plan, delivery, history, self->topology, BH__SHELF_STRAY, "unroutable", words, now_ms,
                               random);
    if (outcome == BH_OUTCOME_PERMANENT || (outcome == BH_OUTCOME_FAILED && !is_there_now))
        return bh__plan_shelve(plan, delivery, history, self->topology,
                               is_there_now ? BH__SHELF_PARKED : BH__SHELF_UNROUTABLE,
                               is_there_now ? parked_reason(self->death) : "unroutable", words, now_ms, random);
    return bh_plan_make(plan, delivery, history, self->by->policy, self->topology, outcome, words, 0, now_ms, random);
}
