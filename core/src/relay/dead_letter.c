#include "relay/internal.h"

#include "delivery/internal.h"
#include "plan/internal.h"
#include "topology/internal.h"

enum { LONGEST_SHOWN = 255 };

static bh_bytes read_text(const bh__relay *self, bh__text text)
{
    return bh__store_get(&self->read, text);
}

/* ----------------------------------------------------------------------------------------- read */

static bh__death_reason reason_of(bh_bytes word)
{
    static const bh_bytes words[BH__DEATH_OTHER] = {
        [BH__DEATH_REJECTED] = BH__LITERAL("rejected"),
        [BH__DEATH_EXPIRED] = BH__LITERAL("expired"),
        [BH__DEATH_MAXLEN] = BH__LITERAL("maxlen"),
        [BH__DEATH_DELIVERY_LIMIT] = BH__LITERAL("delivery_limit"),
    };
    int i = 0;
    while (i < BH__DEATH_OTHER && !bh__same(words[i], word))
        i++;
    return (bh__death_reason)i;
}

/* Adds the first bytes of an untrusted text. Here "?" also stands for line feeds: the text goes
 * into a header. */
static void add_quoted(bh__report *out, bh_bytes text)
{
    bh_bytes shown = bh__cut(text, LONGEST_SHOWN);
    bh__report_add(out, "\"");
    for (size_t i = 0, size = 0; i < shown.size; i += size ? size : 1) {
        size = bh__character_size((bh_bytes){shown.data + i, shown.size - i});
        int is_shown = size && !bh__is_control(shown.data + i, size);
        bh__report_add(out, "%.*s", is_shown ? (int)size : 1, is_shown ? shown.data + i : "?");
    }
    bh__report_add(out, "\"");
}

static void explain_served(bh__relay *self)
{
    static const char *const sentences[BH__DEATH_OTHER] = {
        [BH__DEATH_REJECTED] = "rejected by its consumer",
        [BH__DEATH_EXPIRED] = "expired in its work queue, before a consumer had it",
        [BH__DEATH_MAXLEN] = "pushed out of its work queue, which was full",
        [BH__DEATH_DELIVERY_LIMIT] = "delivered as often as its work queue allows, and never settled",
    };
    if (self->reason < BH__DEATH_OTHER) {
        bh__report_add(&self->text, "%s", sentences[self->reason]);
        return;
    }
    bh__report_add(&self->text, "dead-lettered for a reason that this version does not know: ");
    add_quoted(&self->text, read_text(self, self->word));
}

static void explain_stray(bh__relay *self, int has_record, const bh_delivery *delivery)
{
    bh__report *out = &self->text;
    if (has_record) {
        bh__report_add(out, "dead-lettered (");
        add_quoted(out, read_text(self, self->word));
        bh__report_add(out, ") from queue ");
        add_quoted(out, read_text(self, self->queue));
        bh__report_add(out, ", which the relay does not serve: add the queue to the relay, or end its policy");
    } else if (bh__delivery_is_truncated(delivery)) {
        bh__report_add(out, "its headers go beyond the limits, and x-death is not among the headers that were read");
    } else {
        bh__report_add(out,
                       "it has no x-death that names its queue: it was published to %s, and not dead-lettered there",
                       bh__topology_own_queue(self->topology).data);
    }
}

/* Finds the broker's record: the first record that is not of a wait queue. Returns 0 if there is
 * none. */
static int find_record(const bh__relay *self, const bh_history *history, bh_death *record)
{
    for (size_t i = 0; bh_history_death(history, i, record) == BH_OK; i++)
        if (!bh__relay_is_wait_queue(self, record->queue))
            return 1;
    return 0;
}

/* Restores the fields that the broker changed. If count > 1, the record describes an earlier
 * death. */
static bh_status put_back(const bh_death *record, bh_delivery *delivery)
{
    bh_bytes expiration = record->original_expiration, exchange = record->exchange,
             routing_key = bh__delivery_routing_key(delivery);
    if (record->count != 1)
        return BH_OK;
    if (exchange.size > LONGEST_SHOWN)
        exchange = bh__delivery_exchange(delivery);
    if (record->routing_key_count > 0 && record->routing_keys[0].size <= LONGEST_SHOWN)
        routing_key = record->routing_keys[0];
    bh_status status = bh_delivery_set_address(delivery, exchange, routing_key);
    if (status == BH_OK && expiration.size > 0 && expiration.size <= LONGEST_SHOWN)
        status = bh_delivery_set_property(delivery, BH_PROPERTY_EXPIRATION, expiration);
    return status;
}

/* Keeps the strings of the record: the next read of the history frees them. Returns 0 if there
 * is no memory. */
static int keep_record(bh__relay *self, const bh_death *record)
{
    return bh__store_add(&self->read, &self->queue, record->queue) &&
           bh__store_add(&self->read, &self->word, record->reason);
}

static bh_status read_served(bh__relay *self, bh_delivery *delivery, bh_history *history, const bh_death *record)
{
    bh_status status = put_back(record, delivery);
    if (status == BH_OK && !bh__topology_select_queue(self->topology, read_text(self, self->queue)))
        status = BH_ERR_NO_MEMORY;
    return status == BH_OK ? bh_history_read(history, delivery, self->topology) : status;
}

bh_bytes bh__relay_queue(const bh__relay *self)
{
    return self && self->is_read && self->match ? read_text(self, self->queue) : bh_str("");
}

static bh_status read_record(bh__relay *self, bh_delivery *delivery, bh_history *history)
{
    bh_status status = bh_history_read(history, delivery, NULL);
    if (status != BH_OK)
        return status;
    bh_death record;
    int has_record = find_record(self, history, &record);
    if (has_record && !keep_record(self, &record))
        return BH_ERR_NO_MEMORY;
    if (has_record)
        self->match = bh__relay_find(self, read_text(self, self->queue));
    self->reason = reason_of(read_text(self, self->word));
    if (self->match)
        status = read_served(self, delivery, history, &record);
    if (self->match)
        explain_served(self);
    else
        explain_stray(self, has_record, delivery);
    return status;
}

/* Forgets the message that was read last. */
static void forget(bh__relay *self)
{
    bh__topology_select_own(self->topology);
    self->is_read = 0;
    self->read.size = 0;
    self->queue = self->word = (bh__text){0, 0};
    self->match = NULL;
    self->reason = BH__DEATH_OTHER;
    bh__report_clear(&self->text);
}

bh_status bh__relay_read(bh__relay *self, bh_delivery *delivery, bh_history *history, bh__dead_letter *out)
{
    if (out)
        *out =
            (bh__dead_letter){.queue = bh_str(""), .reason = BH__DEATH_OTHER, .word = bh_str(""), .text = bh_str("")};
    if (!self || !delivery || !history || !out)
        return BH_ERR_ARGUMENT;
    self->is_read = 0;
    if (!self->is_built)
        return BH_ERR_STATE;
    forget(self);
    bh_status status = read_record(self, delivery, history);
    if (status != BH_OK)
        return status;
    self->is_read = 1;
    *out = (bh__dead_letter){.queue = bh__relay_queue(self),
                             .is_served = self->match != NULL,
                             .reason = self->reason,
                             .word = read_text(self, self->word),
                             .text = bh__report_text(&self->text)};
    return BH_OK;
}

/* ----------------------------------------------------------------------------------------- plan */

static const char *parked_reason(bh__death_reason reason)
{
    static const char *const reasons[] = {
        [BH__DEATH_REJECTED] = "permanent", [BH__DEATH_EXPIRED] = "expired",
        [BH__DEATH_MAXLEN] = "maxlen",      [BH__DEATH_DELIVERY_LIMIT] = "delivery_limit",
        [BH__DEATH_OTHER] = "permanent",
    };
    return reasons[reason];
}

bh_status bh__relay_plan(bh__relay *self, bh_plan *plan, const bh_delivery *delivery, const bh_history *history,
                         int can_return, int64_t now_ms, bh_bytes random)
{
    if (!self || !plan || !delivery || !history)
        return BH_ERR_ARGUMENT;
    if (!self->is_read)
        return BH_ERR_STATE;
    bh_bytes text = bh__report_text(&self->text);
    bh_outcome outcome = self->outcomes[self->reason];
    if (!self->match)
        return bh__plan_park(plan, delivery, history, self->topology, BH__PARK_STRAY, "unroutable", text, now_ms,
                             random);
    if (outcome == BH_OUTCOME_PERMANENT || (outcome == BH_OUTCOME_FAILED && !can_return))
        return bh__plan_park(plan, delivery, history, self->topology, can_return ? BH__PARK_OWN : BH__PARK_UNROUTABLE,
                             can_return ? parked_reason(self->reason) : "unroutable", text, now_ms, random);
    return bh_plan_make(plan, delivery, history, self->match->policy, self->topology, outcome, text, 0, now_ms, random);
}
