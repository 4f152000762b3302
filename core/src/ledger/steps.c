/* Which step comes next, and when the next one becomes due. */
#include "ledger/entries.h"
#include "ledger/orphans.h"
#include "ledger/publishes.h"
#include "ledger/setup.h"

#define LATEST_MS ((INT64_C(1) << 53) - 1) /* the last time: never */

static bh_step_kind next_event(bh_ledger *self, bh_step *out)
{
    uint32_t index = self->events.first;
    const bh__ledger_entry *of = &self->entries[index];
    out->entry = bh__ledger_entry_at(self, index);
    out->event = (bh_event_kind)of->event;
    out->status = (bh_status)of->event_status;
    out->delay_ms = of->state == BH_STATE_WAITING && !of->is_lost ? of->wait_ms : 0;
    bh__ledger_drop_event(self, index);
    if (of->is_lost)
        bh__ledger_end_entry(self, index, BH_STATE_GIVEN_BACK);
    return BH_STEP_EMIT;
}

/* Emits that the setup failed. */
static bh_step_kind next_failure(bh_ledger *self, bh_step *out)
{
    if (self->setup.failure == BH_OK)
        return BH_STEP_REST;
    out->event = BH_EVENT_UNAVAILABLE;
    out->status = self->setup.failure;
    out->delay_ms = self->setup.delay_ms;
    out->count = bh_ledger_copies(self);
    self->setup.failure = BH_OK;
    return BH_STEP_EMIT;
}

static bh_step_kind next_dismissed(bh_ledger *self, bh_step *out)
{
    uint32_t index = self->groups[BH__GROUP_DISMISSED].first;
    const bh__ledger_entry *of = &self->entries[index];
    bh_action action = (bh_action)of->action;
    out->entry = bh__ledger_entry_at(self, index);
    out->channel = self->channels[of->channel].number;
    out->tag = of->tag;
    bh__ledger_end_entry(self, index, action == BH_ACTION_NONE ? BH_STATE_GIVEN_BACK : BH_STATE_REJECTED);
    return action == BH_ACTION_REJECT ? BH_STEP_NACK : action == BH_ACTION_RETURN ? BH_STEP_REJECT : BH_STEP_GIVE_BACK;
}

static int is_done(const bh_ledger *self, uint32_t index)
{
    return index != BH__NO_INDEX && self->entries[index].group == BH__GROUP_DONE;
}

static bh_step_kind step_ack(bh_step *out, const bh__ledger_channel *on, int64_t tag, int multiple)
{
    out->channel = on->number;
    out->tag = tag;
    out->multiple = multiple;
    return BH_STEP_ACK;
}

/* Acknowledges, by one step, all messages up to the first that is not done. */
static bh_step_kind ack_together(bh_ledger *self, bh_step *out, bh__ledger_channel *on)
{
    int64_t tag = 0;
    int count = 0;
    for (; is_done(self, on->order.first); count++) {
        tag = self->entries[on->order.first].tag;
        bh__ledger_end_entry(self, on->order.first, BH_STATE_ACKNOWLEDGED);
    }
    return step_ack(out, on, tag, count > 1);
}

static bh_step_kind ack_one(bh_ledger *self, bh_step *out, bh__ledger_channel *on)
{
    int64_t tag = self->entries[on->done.first].tag;
    bh__ledger_end_entry(self, on->done.first, BH_STATE_ACKNOWLEDGED);
    return step_ack(out, on, tag, 0);
}

/*
 * Returns 1 if messages done after the oldest one are acknowledged without it. Reasons: no confirm
 * is near, because the copy of the oldest one is not sent; they waited long; there are many.
 */
static int goes_past_oldest(const bh_ledger *self, const bh__ledger_channel *on, int64_t now_ms)
{
    return on->is_flushing || self->entries[on->order.first].state != BH_STATE_SENT || now_ms >= on->gap_ms ||
           on->done.count >= self->most_acks;
}

static bh_step_kind next_ack(bh_ledger *self, bh_step *out, int64_t now_ms)
{
    for (uint32_t at = self->with_done.first; at != BH__NO_INDEX; at = self->channels[at].links.next) {
        bh__ledger_channel *on = &self->channels[at];
        if (!self->most_acks || !on->is_complete)
            return ack_one(self, out, on);
        if (is_done(self, on->order.first))
            return ack_together(self, out, on);
        if (on->gap_ms == BH_LEDGER_NEVER)
            on->gap_ms = now_ms + self->ack_gap_ms;
        if (goes_past_oldest(self, on, now_ms)) {
            on->gap_ms = now_ms; /* so that all of its done messages are acknowledged, each by its own step */
            return ack_one(self, out, on);
        }
    }
    return BH_STEP_REST;
}

/* Returns a publisher that can send the next copy, or NULL. */
static bh__ledger_publisher *next_publisher(bh_ledger *self)
{
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++) {
        bh__ledger_publisher *on = &self->publishers[self->turn++ % BH_LEDGER_MOST_PUBLISHERS];
        if (on->number && on->sent.count < on->most)
            return on;
    }
    return NULL;
}

/* Returns since when a publish waits for its answer. A blocked broker gives none. */
static int64_t waits_since_ms(const bh_ledger *self, const bh__ledger_publish *sent)
{
    return sent->sent_ms < self->unblocked_ms ? self->unblocked_ms : sent->sent_ms;
}

static int is_late(const bh_ledger *self, const bh__ledger_publish *sent, int64_t now_ms)
{
    return waits_since_ms(self, sent) + self->confirm_timeout_ms <= now_ms;
}

/* Returns 1 if the copy of `one` is the better probe: late, never or long ago a probe, sent
 * early. */
static int is_better_probe(const bh_ledger *self, const bh__ledger_publish *one, const bh__ledger_publish *other,
                           int64_t now_ms)
{
    const int one_late = is_late(self, one, now_ms), other_late = is_late(self, other, now_ms);
    const int64_t one_probe = self->entries[bh__ledger_sent_index(self, one)].probe;
    const int64_t other_probe = self->entries[bh__ledger_sent_index(self, other)].probe;
    if (one_late != other_late)
        return one_late;
    return one_probe != other_probe ? one_probe < other_probe : one->sent_ms < other->sent_ms;
}

/*
 * Finds the publish in flight whose copy is the next probe: *at in the pool of the returned
 * publisher, or NULL. Each probe is another message: a duplicate of one message per timeout would
 * use up its attempts.
 */
static bh__ledger_publisher *find_probe(bh_ledger *self, uint32_t *at, int64_t now_ms)
{
    bh__ledger_publisher *found = NULL;
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++) {
        bh__ledger_publisher *on = &self->publishers[i];
        for (uint32_t each = on->number ? on->sent.first : BH__NO_INDEX; each != BH__NO_INDEX;
             each = on->pool[each].links[BH__OF_ALL].next) {
            uint32_t index = bh__ledger_sent_index(self, &on->pool[each]);
            if (index == BH__NO_INDEX || self->entries[index].is_lost ||
                (found && !is_better_probe(self, &on->pool[each], &found->pool[*at], now_ms)))
                continue;
            found = on;
            *at = each;
        }
    }
    return found;
}

static bh_step_kind send_copy(bh_ledger *self, bh_step *out, bh__ledger_publisher *on, uint32_t index, int64_t now_ms)
{
    bh__ledger_entry *sent = &self->entries[index];
    bh__ledger_apply(self, index, BH__SEND);
    if (self->is_doubtful) {
        self->is_probing = 1;
        self->probes++;
        sent->probe = ++self->last_probe;
        self->doubted_ms = now_ms; /* the probe has a timeout of its own */
    }
    bh__ledger_add_publish(on, (bh__ledger_publish){.tag = on->next_tag,
                                                    .entry = bh__ledger_entry_at(self, index),
                                                    .fingerprint = sent->fingerprint,
                                                    .sent_ms = now_ms});
    out->entry = bh__ledger_entry_at(self, index);
    out->publisher = on->number;
    out->tag = on->next_tag++;
    return BH_STEP_PUBLISH;
}

/*
 * In doubt, sends one copy at a time as a probe. Probes alternate between a copy in flight and a
 * copy that was not sent yet. The broker may answer the latter even if it never answers the former.
 * If no publisher has room, the copy in flight replaces its earlier publish, whose answer is
 * ignored.
 */
static bh_step_kind next_probe(bh_ledger *self, bh_step *out, int64_t now_ms)
{
    if (self->is_probing)
        return BH_STEP_REST;
    uint32_t at = BH__NO_INDEX, due = self->groups[BH__GROUP_DUE].first;
    bh__ledger_publisher *sent = find_probe(self, &at, now_ms), *on = next_publisher(self);
    int may_be_new = due != BH__NO_INDEX && !self->entries[due].is_suspect && self->suspects_sent == 0;
    if (!sent && (due == BH__NO_INDEX || (self->lost.count > 0 && !may_be_new)))
        return BH_STEP_REST; /* a suspect is sent alone: lost copies are in flight */
    if (!sent || (on && may_be_new && self->probes % 2 == 1))
        return on ? send_copy(self, out, on, due, now_ms) : BH_STEP_REST;
    uint32_t index = bh__ledger_sent_index(self, &sent->pool[at]);
    if (!on) {
        bh__ledger_drop_publish(sent, at);
        on = sent;
    }
    return send_copy(self, out, on, index, now_ms);
}

static bh_step_kind next_publish(bh_ledger *self, bh_step *out, int64_t now_ms)
{
    if (bh__ledger_needs_setup(self))
        return bh__ledger_next_setup(self, now_ms);
    int64_t rung_ms = bh__ledger_hold_due(self);
    if (rung_ms) {
        out->delay_ms = rung_ms;
        return BH_STEP_DECLARE;
    }
    if (self->is_blocked)
        return BH_STEP_REST;
    if (self->is_doubtful)
        return next_probe(self, out, now_ms);
    uint32_t index = self->groups[BH__GROUP_DUE].first;
    if (index == BH__NO_INDEX || self->suspects_sent > 0 ||
        (self->entries[index].is_suspect && bh__ledger_count_sent(self) > 0))
        return BH_STEP_REST;
    bh__ledger_publisher *on = next_publisher(self);
    return on ? send_copy(self, out, on, index, now_ms) : BH_STEP_REST;
}

/*
 * Returns when the oldest publish has waited the confirm timeout and the last doubt or probe is as
 * long ago, or LATEST_MS.
 */
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

/*
 * Returns how many confirms of this publisher are late. Drops late publishes whose entry waits for
 * no answer.
 */
static int64_t count_late(bh_ledger *self, bh__ledger_publisher *on, int64_t now_ms)
{
    int64_t count = 0;
    for (uint32_t at = on->sent.first, next; at != BH__NO_INDEX; at = next) {
        next = on->pool[at].links[BH__OF_ALL].next;
        if (!is_late(self, &on->pool[at], now_ms))
            break;
        if (bh__ledger_sent_index(self, &on->pool[at]) == BH__NO_INDEX)
            bh__ledger_drop_publish(on, at);
        else
            count++;
    }
    return count;
}

/*
 * Reports late confirms. Doubt begins, or goes on with the next probe. If all late publishes were
 * dropped and nothing is in flight, no probe is in flight either.
 */
static bh_step_kind next_unconfirmed(bh_ledger *self, bh_step *out, int64_t now_ms)
{
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++)
        if (self->publishers[i].number)
            out->count += count_late(self, &self->publishers[i], now_ms);
    if (out->count > 0 || bh__ledger_count_sent(self) == 0)
        self->is_probing = 0;
    if (out->count == 0)
        return BH_STEP_REST;
    self->is_doubtful = 1;
    self->doubted_ms = now_ms;
    out->event = BH_EVENT_UNCONFIRMED;
    out->status = BH_ERR_PUBLISH;
    return BH_STEP_EMIT;
}

/* Returns when the oldest abandoned message is given back, or LATEST_MS. */
static int64_t abandoned_deadline_ms(const bh_ledger *self)
{
    uint32_t index = self->groups[BH__GROUP_ABANDONED].first;
    return index == BH__NO_INDEX ? LATEST_MS : self->entries[index].due_ms + self->abandon_ms;
}

/* Applies the changes that come by time: waiting copies become due, abandoned messages are given
 * back. */
static void pass_time(bh_ledger *self, int64_t now_ms)
{
    self->now_ms = now_ms;
    bh__ledger_drop_old_orphans(self);
    bh__ledger_drop_old_lost(self);
    while (self->heap_count && self->entries[self->heap[0]].due_ms <= now_ms)
        bh__ledger_apply(self, self->heap[0], BH__FALL_DUE);
    while (self->groups[BH__GROUP_ABANDONED].first != BH__NO_INDEX && abandoned_deadline_ms(self) <= now_ms)
        bh__ledger_dismiss_entry(self, self->groups[BH__GROUP_ABANDONED].first, BH_ACTION_NONE);
}

/* Keeps the fields of the step that bh_ledger_text and bh__ledger_undo_publish need. */
static void keep_step(bh_ledger *self, const bh_step *step)
{
    self->step.kind = step->kind;
    self->step.entry = step->entry;
    self->step.publisher = step->publisher;
    self->step.tag = step->tag;
    self->step.event = step->event;
    self->step.status = step->status;
    self->step.delay_ms = step->delay_ms;
    self->step.count = step->count;
}

int bh_ledger_next(bh_ledger *self, int64_t now_ms, int may_publish, bh_step *out)
{
    if (!self || !out)
        return 0;
    memset(out, 0, sizeof *out);
    out->event = BH_EVENT_LAST;
    pass_time(self, now_ms);
    bh_step_kind kind = self->events.count                        ? next_event(self, out)
                        : self->groups[BH__GROUP_DISMISSED].count ? next_dismissed(self, out)
                                                                  : next_ack(self, out, now_ms);
    if (kind == BH_STEP_REST)
        kind = next_failure(self, out);
    if (kind == BH_STEP_REST && now_ms >= confirm_deadline_ms(self))
        kind = next_unconfirmed(self, out, now_ms);
    if (kind == BH_STEP_REST && may_publish)
        kind = next_publish(self, out, now_ms);
    out->kind = kind;
    keep_step(self, out);
    return kind != BH_STEP_REST;
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
    due_ms = earlier_ms(due_ms, abandoned_deadline_ms(self));
    due_ms = earlier_ms(due_ms, bh__ledger_setup_due_ms(self));
    due_ms = earlier_ms(due_ms, bh__ledger_lost_due_ms(self));
    for (uint32_t at = self->with_done.first; at != BH__NO_INDEX; at = self->channels[at].links.next)
        if (self->channels[at].gap_ms != BH_LEDGER_NEVER)
            due_ms = earlier_ms(due_ms, self->channels[at].gap_ms);
    return due_ms == LATEST_MS ? BH_LEDGER_NEVER : due_ms;
}
