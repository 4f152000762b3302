#include "ledger_entries.h"
#include "ledger_publishes.h"

#define LATEST_MS ((INT64_C(1) << 53) - 1) /* of all times: none is later */

static bh_step next_news(bh_ledger *self)
{
    uint32_t slot = self->news.first;
    const bh__ledger_entry *of = &self->entries[slot];
    self->step.entry = bh__ledger_entry_number(self, slot);
    self->step.event = (bh_event_kind)of->news;
    self->step.status = (bh_status)of->news_status;
    self->step.delay_ms = of->state == BH_STATE_WAITING ? of->wait_ms : 0;
    bh__ledger_forget_news(self, slot);
    return BH_STEP_TELL;
}

static bh_step next_dismissed(bh_ledger *self)
{
    uint32_t slot = self->places[BH__PLACE_OUT].first;
    const bh__ledger_entry *of = &self->entries[slot];
    bh_action action = (bh_action)of->action;
    self->step.entry = bh__ledger_entry_number(self, slot);
    self->step.channel = self->channels[of->channel].number;
    self->step.tag = of->tag;
    bh__ledger_end_entry(self, slot, action == BH_ACTION_NONE ? BH_STATE_GIVEN_BACK : BH_STATE_REJECTED);
    return action == BH_ACTION_REJECT ? BH_STEP_NACK : action == BH_ACTION_RETURN ? BH_STEP_REJECT : BH_STEP_GIVE_BACK;
}

static int is_done(const bh_ledger *self, uint32_t slot)
{
    return slot != BH__NO_SLOT && self->entries[slot].place == BH__PLACE_DONE;
}

static bh_step step_ack(bh_ledger *self, const bh__ledger_channel *on, int64_t tag, int multiple)
{
    self->step.channel = on->number;
    self->step.tag = tag;
    self->step.multiple = multiple;
    return BH_STEP_ACK;
}

/* Acknowledges all messages up to the first that is not done with one step. */
static bh_step ack_together(bh_ledger *self, bh__ledger_channel *on)
{
    int64_t tag = 0;
    int count = 0;
    for (; is_done(self, on->order.first); count++) {
        tag = self->entries[on->order.first].tag;
        bh__ledger_end_entry(self, on->order.first, BH_STATE_ACKNOWLEDGED);
    }
    return step_ack(self, on, tag, count > 1);
}

static bh_step ack_one(bh_ledger *self, bh__ledger_channel *on)
{
    int64_t tag = self->entries[on->done.first].tag;
    bh__ledger_end_entry(self, on->done.first, BH_STATE_ACKNOWLEDGED);
    return step_ack(self, on, tag, 0);
}

/* Whether what is done behind the oldest message is acknowledged without it: the copy of the oldest one is not sent, so
 * that no confirm is about to come, or what is done has waited long, or is much. */
static int goes_past_oldest(const bh_ledger *self, const bh__ledger_channel *on, int64_t now_ms)
{
    return on->is_flushing || self->entries[on->order.first].state != BH_STATE_SENT || now_ms >= on->gap_ms ||
           on->done.count >= self->most_acks;
}

static bh_step next_ack(bh_ledger *self, int64_t now_ms)
{
    for (uint32_t at = self->with_done.first; at != BH__NO_SLOT; at = self->channels[at].links.behind) {
        bh__ledger_channel *on = &self->channels[at];
        if (!self->most_acks || !on->is_whole)
            return ack_one(self, on);
        if (is_done(self, on->order.first))
            return ack_together(self, on);
        if (on->gap_ms == BH_LEDGER_NEVER)
            on->gap_ms = now_ms + self->ack_gap_ms;
        if (goes_past_oldest(self, on, now_ms)) {
            on->gap_ms = now_ms; /* all that is done behind the oldest message goes, each with a step of its own */
            return ack_one(self, on);
        }
    }
    return BH_STEP_REST;
}

/* The publisher that the next copy can go on; NULL: none. */
static bh__ledger_publisher *next_publisher(bh_ledger *self)
{
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++) {
        bh__ledger_publisher *on = &self->publishers[self->turn++ % BH_LEDGER_MOST_PUBLISHERS];
        if (on->number && on->sent.count < on->most)
            return on;
    }
    return NULL;
}

/* The oldest publish whose answer a message waits for: its publisher, and *at in that one's pool; NULL: there is none. */
static bh__ledger_publisher *oldest_sent(bh_ledger *self, uint32_t *at)
{
    bh__ledger_publisher *oldest = NULL;
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++) {
        bh__ledger_publisher *on = &self->publishers[i];
        uint32_t each = on->number ? on->sent.first : BH__NO_SLOT;
        while (each != BH__NO_SLOT && bh__ledger_sent_slot(self, &on->pool[each]) == BH__NO_SLOT)
            each = on->pool[each].links[BH__OF_ALL].behind;
        if (each == BH__NO_SLOT || (oldest && oldest->pool[*at].sent_ms <= on->pool[each].sent_ms))
            continue;
        oldest = on;
        *at = each;
    }
    return oldest;
}

static bh_step send_copy(bh_ledger *self, bh__ledger_publisher *on, uint32_t slot, int64_t now_ms)
{
    const bh__ledger_entry *sent = &self->entries[slot];
    bh__ledger_happens(self, slot, BH__IS_WRITTEN);
    if (self->is_doubtful) {
        self->is_probing = 1;
        self->probes++;
        self->doubted_ms = now_ms; /* a probe too has its time to be confirmed */
    }
    bh__ledger_add_publish(on, (bh__ledger_publish){.tag = on->next_tag,
                                                    .entry = bh__ledger_entry_number(self, slot),
                                                    .print = sent->print,
                                                    .sent_ms = now_ms});
    self->step.entry = bh__ledger_entry_number(self, slot);
    self->step.publisher = on->number;
    self->step.tag = on->next_tag++;
    return BH_STEP_PUBLISH;
}

/* In doubt, one copy at a time goes out, as a probe: the oldest that was sent, once more; each second time one that was not
 * sent yet, where there is one, as the broker may answer that one though it never answers the oldest. Where no publisher
 * has room, the oldest copy takes the place of its earlier publish, whose answer is ignored then. */
static bh_step next_probe(bh_ledger *self, int64_t now_ms)
{
    if (self->is_probing)
        return BH_STEP_REST;
    uint32_t at = BH__NO_SLOT, due = self->places[BH__PLACE_DUE].first;
    bh__ledger_publisher *oldest = oldest_sent(self, &at), *on = next_publisher(self);
    int may_be_new = due != BH__NO_SLOT && !self->entries[due].is_suspect && self->suspects_sent == 0;
    if (!oldest && due == BH__NO_SLOT)
        return BH_STEP_REST;
    if (!oldest || (on && may_be_new && self->probes % 2 == 1))
        return on ? send_copy(self, on, due, now_ms) : BH_STEP_REST;
    uint32_t slot = bh__ledger_sent_slot(self, &oldest->pool[at]);
    if (!on) {
        bh__ledger_forget_publish(oldest, at);
        on = oldest;
    }
    return send_copy(self, on, slot, now_ms);
}

static bh_step next_publish(bh_ledger *self, int64_t now_ms)
{
    int64_t rung_ms = bh__ledger_hold_due(self);
    if (rung_ms) {
        self->step.delay_ms = rung_ms;
        return BH_STEP_DECLARE;
    }
    if (self->is_blocked)
        return BH_STEP_REST;
    if (self->is_doubtful)
        return next_probe(self, now_ms);
    uint32_t slot = self->places[BH__PLACE_DUE].first;
    if (slot == BH__NO_SLOT || self->suspects_sent > 0 ||
        (self->entries[slot].is_suspect && bh__ledger_count_sent(self) > 0))
        return BH_STEP_REST;
    bh__ledger_publisher *on = next_publisher(self);
    return on ? send_copy(self, on, slot, now_ms) : BH_STEP_REST;
}

/* Since when a publish waits for its answer: while the broker is blocked it gives none. */
static int64_t waits_since_ms(const bh_ledger *self, const bh__ledger_publish *sent)
{
    return sent->sent_ms < self->unblocked_ms ? self->unblocked_ms : sent->sent_ms;
}

/* When the oldest publish has waited the confirm timeout for its answer, and the last doubt or probe is as long ago;
 * LATEST_MS: never. */
static int64_t confirm_deadline_ms(const bh_ledger *self)
{
    int64_t since_ms = LATEST_MS;
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS && !self->is_blocked; i++) {
        const bh__ledger_publisher *on = &self->publishers[i];
        if (on->number && on->sent.count && waits_since_ms(self, &on->pool[on->sent.first]) < since_ms)
            since_ms = waits_since_ms(self, &on->pool[on->sent.first]);
    }
    if (since_ms == LATEST_MS)
        return LATEST_MS;
    return (since_ms < self->doubted_ms ? self->doubted_ms : since_ms) + self->confirm_timeout_ms;
}

/* How many copies on this publisher were not confirmed in time. Forgets a publish that is as late, but whose answer no
 * message waits for. */
static int64_t count_late(bh_ledger *self, bh__ledger_publisher *on, int64_t now_ms)
{
    int64_t count = 0;
    for (uint32_t at = on->sent.first, behind; at != BH__NO_SLOT; at = behind) {
        behind = on->pool[at].links[BH__OF_ALL].behind;
        if (waits_since_ms(self, &on->pool[at]) + self->confirm_timeout_ms > now_ms)
            break;
        if (bh__ledger_sent_slot(self, &on->pool[at]) == BH__NO_SLOT)
            bh__ledger_forget_publish(on, at);
        else
            count++;
    }
    return count;
}

/* Copies were not confirmed in time: doubt begins, or goes on with the next probe. Where all that was late is forgotten and
 * nothing is in flight, no probe is either. */
static bh_step next_unconfirmed(bh_ledger *self, int64_t now_ms)
{
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++)
        if (self->publishers[i].number)
            self->step.count += count_late(self, &self->publishers[i], now_ms);
    if (self->step.count > 0 || bh__ledger_count_sent(self) == 0)
        self->is_probing = 0;
    if (self->step.count == 0)
        return BH_STEP_REST;
    self->is_doubtful = 1;
    self->doubted_ms = now_ms;
    self->step.event = BH_EVENT_UNCONFIRMED;
    self->step.status = BH_ERR_PUBLISH;
    return BH_STEP_TELL;
}

/* When the first of what is left is given back; LATEST_MS: nothing is left. */
static int64_t left_deadline_ms(const bh_ledger *self)
{
    uint32_t slot = self->places[BH__PLACE_LEFT].first;
    return slot == BH__NO_SLOT ? LATEST_MS : self->entries[slot].due_ms + self->left_ms;
}

/* What time alone changes: what waits falls due, what is left is given back. */
static void pass_time(bh_ledger *self, int64_t now_ms)
{
    while (self->heap_count && self->entries[self->heap[0]].due_ms <= now_ms)
        bh__ledger_happens(self, self->heap[0], BH__FALLS_DUE);
    while (self->places[BH__PLACE_LEFT].first != BH__NO_SLOT && left_deadline_ms(self) <= now_ms)
        bh__ledger_dismiss_entry(self, self->places[BH__PLACE_LEFT].first, BH_ACTION_NONE);
}

bh_step bh_ledger_next(bh_ledger *self, int64_t now_ms, int may_publish)
{
    if (!self)
        return BH_STEP_REST;
    memset(&self->step, 0, sizeof self->step);
    self->step.event = BH_EVENT_LAST;
    pass_time(self, now_ms);
    bh_step kind = self->news.count                    ? next_news(self)
                   : self->places[BH__PLACE_OUT].count ? next_dismissed(self)
                                                       : next_ack(self, now_ms);
    if (kind == BH_STEP_REST && now_ms >= confirm_deadline_ms(self))
        kind = next_unconfirmed(self, now_ms);
    if (kind == BH_STEP_REST && may_publish)
        kind = next_publish(self, now_ms);
    return self->step.kind = kind;
}

static int64_t earlier_ms(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t bh_ledger_due_ms(const bh_ledger *self)
{
    if (!self)
        return BH_LEDGER_NEVER;
    int64_t due_ms = confirm_deadline_ms(self);
    if (self->heap_count)
        due_ms = earlier_ms(due_ms, self->entries[self->heap[0]].due_ms);
    due_ms = earlier_ms(due_ms, left_deadline_ms(self));
    for (uint32_t at = self->with_done.first; at != BH__NO_SLOT; at = self->channels[at].links.behind)
        if (self->channels[at].gap_ms != BH_LEDGER_NEVER)
            due_ms = earlier_ms(due_ms, self->channels[at].gap_ms);
    return due_ms == LATEST_MS ? BH_LEDGER_NEVER : due_ms;
}
