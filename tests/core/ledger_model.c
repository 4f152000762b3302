#include "ledger_model.h"
#include "../policies.h"
#include "model.h"

#include "ledger/internal.h"

#include <backhop/adapter/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_MESSAGES = 64,
    MOST_PUBLISHES = 1024,
    MOST_CHANNELS = 64,
    MOST_RUNGS = 3,
    TIMEOUT_MS = 1000,
    ABANDON_MS = 5000,
    ORPHAN_MS = 2000,
    MOST_DELAY_MS = 300, /* of the back-off */
    ROUNDS_TO_THE_END = 400
};

/* The states of a message in the model: it does not draw the delays of the back-off. */
typedef enum { ARRIVED, TAKEN, SETTLED, TO_BE_SENT, SENT, CONFIRMED, ABANDONED, ENDED } stage;

typedef struct {
    int64_t entry, tag, rung_ms, abandoned_ms;
    int channel; /* its index */
    stage at;
    bh_action action; /* NONE: to be given back, or postponed before it was settled */
    int is_dismissed;
    int is_safe; /* the broker confirmed a copy of it that it did not return */
    enum { NO, MAYBE, YES } is_suspect;
    int losses;
    uint64_t fingerprint; /* two messages have one */
    int is_orphan;        /* its channel closed, and the ledger binds the next delivery of it */
    int64_t orphaned_ms;
    int is_lost;  /* its channel closed: it ends with its next event */
    int is_stale; /* that event says so: NO, MAYBE, YES */
    int order;    /* of its delivery, or since it is an orphan */
} message;

typedef struct {
    int64_t number, last_tag;
    int is_open, is_missing_one;
    int64_t missing_tag; /* the last delivery that was not entered */
} channel;

typedef struct {
    int64_t publisher, tag, sent_ms;
    int message;
    int is_answered, is_returned, is_replaced; /* by a probe: the ledger may have forgotten it */
    int is_named;                              /* by an id, an exchange and a routing key: the message was settled */
} publish;

typedef struct {
    int64_t number, next_tag;
} publisher;

typedef struct {
    const char *name;
    ledger_draw *draw;
    void *source;
    bh_ledger *ledger;
    bh_step step; /* the last one */
    int happening;
    int64_t now_ms;
    int64_t most_sent, most_acks, most_abandoned, most_orphans;
    int64_t asked_ms; /* of the last bh_ledger_next */
    int order;        /* the last one */

    message messages[MOST_MESSAGES];
    int message_count;
    channel channels[MOST_CHANNELS];
    int channel_count;
    publisher publishers[BH_LEDGER_MOST_PUBLISHERS];
    publish publishes[MOST_PUBLISHES];
    int publish_count;
    enum { UNKNOWN, ASKED, THERE } rungs[MOST_RUNGS];
    struct {
        enum { IDLE, OPENING, DECLARING } awaits;
        int restores, is_forgotten;
        bh_status failure;                    /* to be emitted */
        int64_t failed_ms, due_ms, latest_ms; /* the next attempt is due between the last two */
    } setup;
    int64_t ends[BH_STATE_LAST];

    int is_blocked, may_publish;
    int64_t unblocked_ms;
    int is_doubtful;
    int64_t probe_ms;     /* when the last one went out; below 0: it was taken back, or its publisher ended */
    int64_t duplicate_ms; /* when a copy that was in flight went out again; below 0: not since a publisher ended */
    int64_t due_ms;       /* after the last rest, if nothing happened since; below 0: unknown */
} model;

static unsigned draw(model *self, unsigned below)
{
    return self->draw(self->source, below);
}

static int64_t rung_ms(int rung)
{
    return 1000 * (rung + 1);
}

/* Two messages have one id. */
static int id_number(int at)
{
    return at / 2;
}

static bh_bytes id_of(int at, char text[16])
{
    snprintf(text, 16, "%d", id_number(at));
    return bh_str(text);
}

static int publishes_copy(const message *of)
{
    return of->action == BH_ACTION_RETRY || of->action == BH_ACTION_PARK || of->action == BH_ACTION_REPLAY;
}

/* --- invariants
 * -------------------------------------------------------------------------------------------------- */

static int is_at(stage at, bh_state state)
{
    static const bh_state states[] = {
        [ARRIVED] = BH_STATE_ARRIVED, [TAKEN] = BH_STATE_TAKEN,         [SETTLED] = BH_STATE_SETTLED,
        [SENT] = BH_STATE_SENT,       [CONFIRMED] = BH_STATE_CONFIRMED, [ABANDONED] = BH_STATE_ABANDONED,
        [ENDED] = BH_STATE_NONE,
    };
    return at == TO_BE_SENT ? state == BH_STATE_DUE || state == BH_STATE_WAITING : state == states[at];
}

static int count_lost(const model *self)
{
    int count = 0;
    for (int i = 0; i < self->message_count; i++)
        count += self->messages[i].is_lost;
    return count;
}

static void check_counts(model *self)
{
    int64_t counts[BH_STATE_LAST] = {0};
    for (int i = 0; i < self->message_count; i++) {
        const message *of = &self->messages[i];
        bh_state state = bh_ledger_state(self->ledger, of->entry);
        CHECK(bh__ledger_is_orphan(self->ledger, of->entry) == (of->is_orphan || of->is_lost));
        CHECK(!of->is_lost || state != BH_STATE_NONE);
        if (of->is_lost || (of->at == ABANDONED && state == BH_STATE_SETTLED))
            continue;
        CHECK(is_at(of->at, state));
        counts[state] += !of->is_orphan;
    }
    for (int state = BH_STATE_ARRIVED; state <= BH_STATE_ABANDONED; state++)
        CHECK(bh_ledger_count(self->ledger, (bh_state)state) == counts[state]);
    for (int state = BH_STATE_ACKNOWLEDGED; state < BH_STATE_LAST; state++)
        CHECK(bh_ledger_count(self->ledger, (bh_state)state) == self->ends[state]);
    int64_t copies = counts[BH_STATE_DUE] + counts[BH_STATE_SENT] + counts[BH_STATE_WAITING] + count_lost(self);
    CHECK(bh_ledger_copies(self->ledger) == copies);
    CHECK(bh__ledger_unsettled(self->ledger) == counts[BH_STATE_ARRIVED] + counts[BH_STATE_TAKEN] + copies);
    CHECK(bh__ledger_is_full(self->ledger) == (counts[BH_STATE_ABANDONED] > self->most_abandoned));
}

static void end(model *self, message *of, bh_state how)
{
    of->at = ENDED;
    self->ends[how]++;
    CHECK(bh_ledger_state(self->ledger, of->entry) == BH_STATE_NONE);
}

static message *find_entry(model *self, int64_t entry)
{
    for (int i = 0; i < self->message_count; i++)
        if (self->messages[i].entry == entry)
            return &self->messages[i];
    return NULL;
}

static channel *find_channel(model *self, int64_t number)
{
    for (int i = 0; i < self->channel_count; i++)
        if (self->channels[i].number == number && self->channels[i].is_open)
            return &self->channels[i];
    return NULL;
}

static publisher *find_publisher(model *self, int64_t number)
{
    for (int i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++)
        if (self->publishers[i].number == number)
            return &self->publishers[i];
    return NULL;
}

static int is_late(const model *self, const publish *sent)
{
    return sent->sent_ms + TIMEOUT_MS <= self->now_ms;
}

static void check_ack(model *self)
{
    int64_t tag = self->step.tag;
    int is_multiple = self->step.multiple, count = 0;
    const channel *on = find_channel(self, self->step.channel);
    CHECK(on != NULL);
    CHECK(!is_multiple || !on->is_missing_one || tag < on->missing_tag);
    for (int i = 0; i < self->message_count; i++) {
        message *of = &self->messages[i];
        if (of->at == ENDED || of->is_orphan || of->is_lost || &self->channels[of->channel] != on ||
            (is_multiple ? of->tag > tag : of->tag != tag))
            continue;
        CHECK(of->at == CONFIRMED ? of->is_safe : of->at == SETTLED && !of->is_dismissed);
        end(self, of, BH_STATE_ACKNOWLEDGED);
        count++;
    }
    CHECK(is_multiple ? count > 1 : count == 1);
    CHECK(!is_multiple || self->most_acks > 0);
}

static void check_dismissal(model *self, bh_step_kind step)
{
    message *of = find_entry(self, self->step.entry);
    CHECK(of && of->at != ENDED && !of->is_orphan && !of->is_lost);
    CHECK(of->tag == self->step.tag);
    CHECK(&self->channels[of->channel] == find_channel(self, self->step.channel));
    if (of->at == ABANDONED) {
        CHECK(step == BH_STEP_GIVE_BACK);
        CHECK(self->now_ms >= of->abandoned_ms + ABANDON_MS);
    } else {
        CHECK(of->at == SETTLED && of->is_dismissed);
        CHECK(step == (of->action == BH_ACTION_REJECT   ? BH_STEP_NACK
                       : of->action == BH_ACTION_RETURN ? BH_STEP_REJECT
                                                        : BH_STEP_GIVE_BACK));
    }
    end(self, of, step == BH_STEP_GIVE_BACK ? BH_STATE_GIVEN_BACK : BH_STATE_REJECTED);
}

/* The last event of a message whose channel is lost. */
static void check_end_of_lost(model *self, message *of)
{
    bh_event_kind event = self->step.event;
    CHECK(self->step.delay_ms == 0);
    if (event == BH_EVENT_STALE) {
        int64_t since_ms = of->orphaned_ms < self->unblocked_ms ? self->unblocked_ms : of->orphaned_ms;
        CHECK(!of->is_safe && self->step.status == BH_ERR_CHANNEL);
        CHECK(of->is_stale != NO || (!self->is_blocked && self->now_ms >= since_ms + TIMEOUT_MS));
    } else {
        CHECK(of->is_safe && event == (bh_event_kind)bh_event_of_copy(of->action));
    }
    of->is_lost = 0;
    of->at = ENDED; /* it was counted when its channel closed */
    CHECK(bh_ledger_state(self->ledger, of->entry) == BH_STATE_NONE);
}

static void check_failure(model *self)
{
    CHECK(self->setup.failure != BH_OK && self->step.status == self->setup.failure);
    CHECK(self->step.entry == 0 && self->step.count == bh_ledger_copies(self->ledger));
    CHECK(self->step.delay_ms >= 0 && self->step.delay_ms <= MOST_DELAY_MS);
    self->setup.failure = BH_OK;
    self->setup.due_ms = self->setup.latest_ms = self->setup.failed_ms + self->step.delay_ms;
}

static void check_event(model *self)
{
    bh_event_kind event = self->step.event;
    if (event == BH_EVENT_UNCONFIRMED) {
        int64_t late = 0;
        for (int i = 0; i < self->publish_count; i++)
            late += !self->publishes[i].is_answered && is_late(self, &self->publishes[i]);
        CHECK(self->step.entry == 0);
        CHECK(self->step.count >= 1 && self->step.count <= late);
        CHECK(!self->is_blocked);
        self->is_doubtful = 1;
        return;
    }
    if (event == BH_EVENT_UNAVAILABLE) {
        check_failure(self);
        return;
    }
    message *of = find_entry(self, self->step.entry);
    CHECK(of && of->at != ENDED);
    if (of->is_lost) {
        check_end_of_lost(self, of);
        return;
    }
    switch (event) {
    case BH_EVENT_RETRIED:
        CHECK(of->is_safe || of->action == BH_ACTION_REJECT || of->action == BH_ACTION_RETURN);
        break;
    case BH_EVENT_PARKED:
        CHECK(of->is_safe && of->action == BH_ACTION_PARK);
        break;
    case BH_EVENT_REPLAYED:
        CHECK(of->is_safe && of->action == BH_ACTION_REPLAY);
        break;
    case BH_EVENT_REFUSED:
        CHECK(of->at == ABANDONED || (of->at == SETTLED && of->is_dismissed));
        break;
    case BH_EVENT_NACKED:
    case BH_EVENT_RETURNED:
        CHECK(of->at == TO_BE_SENT);
        break;
    default:
        CHECK(event == BH_EVENT_UNCONFIRMED); /* no other is emitted */
    }
}

static int has_publisher(const model *self)
{
    for (int i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++)
        if (self->publishers[i].number)
            return 1;
    return 0;
}

/* The ledger takes the next step of the setup. */
static void check_setup(model *self, int is_open)
{
    CHECK(self->may_publish && !self->is_blocked);
    CHECK(self->setup.awaits == IDLE && self->now_ms >= self->setup.due_ms);
    CHECK(has_publisher(self) != is_open);
    CHECK(is_open || self->setup.is_forgotten);
    self->setup.awaits = is_open ? OPENING : DECLARING;
    self->setup.is_forgotten &= is_open;
}

static void check_publish(model *self)
{
    message *of = find_entry(self, self->step.entry);
    publisher *on = find_publisher(self, self->step.publisher);
    CHECK(of && on && (of->is_orphan ? of->at == SENT : self->channels[of->channel].is_open));
    CHECK(self->may_publish && !self->is_blocked && !of->is_lost);
    CHECK(of->at == SENT || (self->setup.awaits == IDLE && !self->setup.is_forgotten));
    CHECK(of->at == TO_BE_SENT || (of->at == SENT && self->is_doubtful));
    CHECK(!of->is_safe);
    CHECK(self->step.tag == on->next_tag);
    if (publishes_copy(of) && of->rung_ms)
        CHECK(self->rungs[of->rung_ms / 1000 - 1] == THERE || of->at == SENT);
    if (self->is_doubtful) {
        CHECK(self->probe_ms < 0 || self->now_ms - self->probe_ms >= TIMEOUT_MS);
        self->probe_ms = self->now_ms;
    }
    if (of->at == SENT) {
        CHECK(self->duplicate_ms < 0 || self->now_ms - self->duplicate_ms >= TIMEOUT_MS);
        self->duplicate_ms = self->now_ms;
    }
    int64_t in_flight = 0;
    for (int i = 0; i < self->publish_count; i++) {
        const publish *other = &self->publishes[i];
        in_flight +=
            other->publisher == on->number && !other->is_answered && !other->is_replaced && !is_late(self, other);
    }
    CHECK(in_flight < self->most_sent || of->at == SENT); /* a probe takes the place of the publish before it */
    for (int i = 0; i < self->publish_count; i++)
        self->publishes[i].is_replaced |= of->at == SENT && self->publishes[i].message == of - self->messages;
    for (int i = 0; i < self->message_count; i++) {
        const message *other = &self->messages[i];
        if (other != of && other->at == SENT)
            CHECK(of->is_suspect != YES && other->is_suspect != YES);
    }
    of->at = SENT;
    on->next_tag++;
    CHECK(self->publish_count < MOST_PUBLISHES);
    self->publishes[self->publish_count++] = (publish){.publisher = on->number,
                                                       .tag = on->next_tag - 1,
                                                       .sent_ms = self->now_ms,
                                                       .message = (int)(of - self->messages),
                                                       .is_named = publishes_copy(of)};
}

static void check_declare(model *self)
{
    int64_t asked_ms = self->step.delay_ms;
    if (asked_ms == 0) {
        check_setup(self, 0);
        return;
    }
    CHECK(self->setup.awaits == IDLE && !self->setup.is_forgotten);
    CHECK(asked_ms >= rung_ms(0) && asked_ms <= rung_ms(MOST_RUNGS - 1) && asked_ms % 1000 == 0);
    CHECK(self->rungs[asked_ms / 1000 - 1] == UNKNOWN);
    self->rungs[asked_ms / 1000 - 1] = ASKED;
}

/* --- what happens
 * ----------------------------------------------------------------------------------------------- */

/* As the caller would settle it: with an action, or none: it is given back. */
static void settle(model *self, message *of, bh_action action)
{
    char text[16];
    int is_allowed = of->at == ARRIVED || of->at == TAKEN;
    int64_t rung = (int64_t)draw(self, MOST_RUNGS + 1) * 1000;
    bh_status status = bh_ledger_settle(self->ledger, of->entry, action, rung, id_of((int)(of - self->messages), text),
                                        bh_str("exchange"), bh_str("key"));
    CHECK(status == (is_allowed ? BH_OK : BH_ERR_STATE));
    if (!is_allowed)
        return;
    of->action = action;
    of->rung_ms = rung;
    of->at = publishes_copy(of) ? TO_BE_SENT : SETTLED;
    of->is_dismissed = action == BH_ACTION_REJECT || action == BH_ACTION_RETURN;
}

static void take_back(model *self, const message *of)
{
    publish *last = &self->publishes[--self->publish_count];
    CHECK(last->message == of - self->messages);
    find_publisher(self, last->publisher)->next_tag--;
    self->probe_ms = -1;
    self->duplicate_ms = -1;
}

/* The channel of these deliveries closed, and copies may still be confirmed. */
static void lose_channel(model *self, channel *lost)
{
    int64_t count = 0, told = bh_ledger_lose_channel(self->ledger, lost->number);
    for (int i = 0; i < self->message_count; i++) {
        message *of = &self->messages[i];
        if (&self->channels[of->channel] != lost || of->at == ENDED || of->is_orphan || of->is_lost)
            continue;
        count++;
        self->ends[BH_STATE_GIVEN_BACK]++;
        of->is_lost = bh_ledger_state(self->ledger, of->entry) != BH_STATE_NONE;
        CHECK(of->is_lost || (of->at != TO_BE_SENT && of->at != SENT));
        CHECK(!of->is_lost || (of->at != ARRIVED && of->at != TAKEN));
        of->is_stale = (of->at == SENT ? of->action == BH_ACTION_REPLAY : of->at != CONFIRMED) ? YES : NO;
        of->orphaned_ms = self->asked_ms;
        of->at = of->is_lost ? of->at : ENDED;
    }
    CHECK(told == count);
    lost->is_open = 0;
}

/* A reaction of the caller instead of writing a copy. */
static void not_written(model *self)
{
    message *of = find_entry(self, self->step.entry);
    CHECK(of != NULL);
    take_back(self, of);
    switch (draw(self, of->is_orphan ? 4 : 5)) {
    case 4:
        lose_channel(self, &self->channels[of->channel]);
        CHECK(bh_ledger_abandon(self->ledger, of->entry, self->now_ms) == BH_ERR_STATE);
        of->is_stale = YES;
        of->at = TO_BE_SENT;
        break;
    case 0:
        CHECK(bh_ledger_abandon(self->ledger, of->entry, self->now_ms) == BH_OK);
        of->at = ABANDONED;
        of->abandoned_ms = self->now_ms;
        break;
    case 1:
        of->at = TAKEN;
        settle(self, of, (bh_action)(1 + draw(self, BH_ACTION_REPLAY)));
        break;
    default:
        CHECK(bh__ledger_postpone(self->ledger, of->entry, self->now_ms) == BH_OK);
        of->at = TO_BE_SENT;
    }
    CHECK(bh_ledger_acknowledge(self->ledger, of->entry) ==
          (of->at == ARRIVED || of->at == TAKEN ? BH_OK : BH_ERR_STATE));
}

static message *oldest_orphan(model *self, uint64_t fingerprint)
{
    message *oldest = NULL;
    for (int i = 0; i < self->message_count; i++) {
        message *of = &self->messages[i];
        if (of->is_orphan && (!fingerprint || of->fingerprint == fingerprint) && (!oldest || of->order < oldest->order))
            oldest = of;
    }
    return oldest;
}

static int count_orphans(const model *self)
{
    int count = 0;
    for (int i = 0; i < self->message_count; i++)
        count += self->messages[i].is_orphan;
    return count;
}

static void drop_orphan(model *self, message *of)
{
    of->at = ENDED; /* it was counted when its channel closed */
    of->is_orphan = 0;
    CHECK(bh_ledger_state(self->ledger, of->entry) == BH_STATE_NONE);
}

static void drop_old_orphans(model *self)
{
    for (message *oldest; (oldest = oldest_orphan(self, 0)) && (count_orphans(self) > self->most_orphans ||
                                                                self->asked_ms >= oldest->orphaned_ms + ORPHAN_MS);)
        drop_orphan(self, oldest);
}

/* No step is due: who waits, waits for an answer or for a time. */
static void check_rest(model *self)
{
    int is_held = 0;
    CHECK(self->setup.failure == BH_OK);
    for (int rung = 0; rung < MOST_RUNGS; rung++)
        is_held |= self->rungs[rung] == ASKED;
    for (int i = 0; i < self->message_count; i++) {
        const message *of = &self->messages[i];
        CHECK(!of->is_lost || (of->at == SENT && of->is_stale != YES));
        if (!of->is_orphan && !is_held && bh_ledger_state(self->ledger, of->entry) == BH_STATE_DUE &&
            self->may_publish && !self->is_blocked && !has_publisher(self))
            CHECK(self->setup.awaits != IDLE || self->now_ms < self->setup.latest_ms);
    }
}

static void ask(model *self, int may_publish)
{
    int most_steps = 8 * self->message_count + 64;
    int is_idle = self->due_ms >= 0 && (self->may_publish || !may_publish) && self->now_ms < self->due_ms;
    self->may_publish = may_publish;
    while (bh_ledger_next(self->ledger, self->now_ms, may_publish, &self->step)) {
        self->asked_ms = self->now_ms;
        drop_old_orphans(self);
        bh_step_kind step = self->step.kind;
        CHECK(!is_idle);
        CHECK(most_steps-- > 0);
        CHECK(step != BH_STEP_REST);
        if (step == BH_STEP_ACK)
            check_ack(self);
        else if (step == BH_STEP_NACK || step == BH_STEP_REJECT || step == BH_STEP_GIVE_BACK)
            check_dismissal(self, step);
        else if (step == BH_STEP_EMIT)
            check_event(self);
        else if (step == BH_STEP_OPEN)
            check_setup(self, 1);
        else if (step == BH_STEP_DECLARE)
            check_declare(self);
        else
            check_publish(self);
        if (step == BH_STEP_PUBLISH && draw(self, 16) == 15 && most_steps > self->message_count)
            not_written(self);
    }
    self->asked_ms = self->now_ms;
    drop_old_orphans(self);
    check_rest(self);
    int64_t due_ms = bh_ledger_due_ms(self->ledger);
    CHECK(due_ms == BH_LEDGER_NEVER || due_ms > self->now_ms);
    self->due_ms = due_ms == BH_LEDGER_NEVER ? INT64_MAX : due_ms;
}

static void open_channel(model *self)
{
    int64_t number;
    if (self->channel_count == MOST_CHANNELS)
        return;
    CHECK(bh_ledger_open_channel(self->ledger, &number) == BH_OK);
    CHECK(number > 0 && !find_channel(self, number));
    self->channels[self->channel_count++] = (channel){.number = number, .is_open = 1};
}

/* Returns 1 if the ledger keeps the message as an orphan. */
static int is_worth_keeping(const model *self, const message *of)
{
    if (!self->most_orphans || !of->fingerprint || of->at == ARRIVED || of->at == ABANDONED)
        return 0;
    return !of->is_dismissed || of->action != BH_ACTION_NONE;
}

static void close_channel(model *self, channel *closed)
{
    message *kept[MOST_MESSAGES];
    int kept_count = 0;
    int64_t count = 0;
    int64_t told = bh_ledger_close_channel(self->ledger, closed->number);
    for (int i = 0; i < self->message_count; i++) {
        message *of = &self->messages[i];
        if (&self->channels[of->channel] != closed || of->at == ENDED || of->is_orphan || of->is_lost)
            continue;
        count++;
        if (is_worth_keeping(self, of)) {
            kept[kept_count++] = of;
            self->ends[BH_STATE_GIVEN_BACK]++;
        } else {
            end(self, of, BH_STATE_GIVEN_BACK);
        }
    }
    for (int i = 1; i < kept_count; i++) /* in the order of their deliveries */
        for (int j = i; j > 0 && kept[j]->order < kept[j - 1]->order; j--) {
            message *later = kept[j - 1];
            kept[j - 1] = kept[j];
            kept[j] = later;
        }
    for (int i = 0; i < kept_count; i++) {
        kept[i]->is_orphan = 1;
        kept[i]->orphaned_ms = self->asked_ms;
        kept[i]->order = ++self->order;
    }
    drop_old_orphans(self);
    CHECK(told == count);
    closed->is_open = 0;
}

/* The broker delivers the message again. It is bound to the oldest orphan that equals it, in
 * whatever state that is. */
static void arrive_on(model *self, int at, uint64_t fingerprint, int is_redelivered)
{
    channel *on = &self->channels[at];
    int64_t tag = ++on->last_tag;
    if (on->is_open && draw(self, 32) == 31) { /* one that is not entered */
        on->is_missing_one = 1;
        on->missing_tag = tag;
        tag = ++on->last_tag;
    }
    int64_t entry;
    CHECK(bh_ledger_arrive(self->ledger, on->number, 0, &entry) == (on->is_open ? BH_ERR_ARGUMENT : BH_ERR_STATE));
    int is_bound = 2;
    message *orphan = is_redelivered && fingerprint ? oldest_orphan(self, fingerprint) : NULL;
    bh_status status =
        bh__ledger_arrive_again(self->ledger, on->number, tag, fingerprint, is_redelivered, &entry, &is_bound);
    CHECK(status == (on->is_open ? BH_OK : BH_ERR_STATE));
    CHECK(is_bound == (status == BH_OK && orphan));
    if (status != BH_OK)
        return;
    if (orphan) {
        CHECK(orphan->entry == entry && orphan->at != ARRIVED);
        orphan->is_orphan = 0;
        orphan->tag = tag;
        orphan->channel = at;
        orphan->order = ++self->order;
        return;
    }
    CHECK(!find_entry(self, entry));
    self->messages[self->message_count++] = (message){
        .entry = entry, .tag = tag, .channel = at, .at = ARRIVED, .fingerprint = fingerprint, .order = ++self->order};
}

static void arrive(model *self)
{
    if (self->channel_count == 0 || self->message_count == MOST_MESSAGES)
        return;
    int at = self->channel_count - 1 - (int)draw(self, self->channel_count < 3 ? (unsigned)self->channel_count : 3);
    const message *orphan = draw(self, 2) ? oldest_orphan(self, 0) : NULL;
    uint64_t other = draw(self, 8) ? (uint64_t)draw(self, 16) + 1 : 0;
    arrive_on(self, at, orphan ? orphan->fingerprint : other, draw(self, 4) != 0);
}

static void open_publisher(model *self)
{
    int64_t number;
    publisher *free_one = find_publisher(self, 0);
    bh_status status = bh_ledger_open_publisher(self->ledger, &number);
    CHECK(status == (free_one ? BH_OK : BH_ERR_STATE));
    if (!free_one)
        return;
    *free_one = (publisher){.number = number, .next_tag = 1};
    self->setup.awaits = self->setup.awaits == OPENING ? IDLE : self->setup.awaits;
}

/* Publishes of a message on a publisher that were not answered; 0: on all. */
static int count_unanswered(const model *self, const message *of, int64_t number)
{
    int count = 0;
    for (int i = 0; i < self->publish_count; i++)
        count += self->publishes[i].message == of - self->messages && !self->publishes[i].is_answered &&
                 (number == 0 || self->publishes[i].publisher == number);
    return count;
}

/* Checks the state of a message that was sent, after its publisher (0: all of them) ended. */
static void check_after_end(model *self, int64_t number, bh_ending ending)
{
    int is_about_copy = number ? ending == BH_ENDING_ERROR || ending == BH_ENDING_MISSING : ending != BH_ENDING_ORDERLY;
    int unsent[MOST_MESSAGES], unsent_count = 0;
    for (int i = 0; i < self->message_count; i++) {
        message *of = &self->messages[i];
        if (of->at != SENT || !count_unanswered(self, of, number))
            continue;
        if (bh_ledger_state(self->ledger, of->entry) == BH_STATE_SENT)
            CHECK(count_unanswered(self, of, number) < count_unanswered(self, of, 0));
        else
            unsent[unsent_count++] = i;
    }
    for (int i = 0; i < unsent_count; i++) {
        message *of = &self->messages[unsent[i]];
        bh_state state = bh_ledger_state(self->ledger, of->entry);
        if (state == BH_STATE_ABANDONED) {
            CHECK(!of->is_lost && is_about_copy && unsent_count == 1);
            CHECK(number ? ending == BH_ENDING_ERROR : of->is_suspect != NO);
            CHECK(number || ending == BH_ENDING_ERROR || ending == BH_ENDING_MISSING || of->losses >= 2);
            of->at = ABANDONED;
            of->abandoned_ms = self->now_ms;
            continue;
        }
        CHECK(state == BH_STATE_DUE || state == BH_STATE_WAITING);
        CHECK(state == BH_STATE_DUE || (is_about_copy && unsent_count == 1));
        of->at = TO_BE_SENT;
        of->is_stale = of->is_lost ? YES : NO;
        if (!is_about_copy)
            continue;
        of->losses += !number && of->is_suspect != NO;
        if (unsent_count > 1 || !number)
            of->is_suspect = YES;
        else if (of->is_suspect == NO)
            of->is_suspect = MAYBE;
    }
    for (int i = 0; i < self->publish_count; i++)
        if (number == 0 || self->publishes[i].publisher == number)
            self->publishes[i].is_answered = 1;
    self->probe_ms = -1;
    self->duplicate_ms = -1;
}

/* A part of the topology may be missing. */
static void forget_rungs(model *self)
{
    memset(self->rungs, 0, sizeof self->rungs);
    self->setup.is_forgotten |= self->setup.restores;
}

static void close_publisher(model *self, publisher *closed)
{
    bh_ending ending = (bh_ending)draw(self, 4);
    bh_ledger_close_publisher(self->ledger, closed->number, ending, self->now_ms);
    check_after_end(self, closed->number, ending);
    if (ending == BH_ENDING_MISSING)
        forget_rungs(self);
    *closed = (publisher){0};
}

static void disconnect(model *self)
{
    bh_ending ending = (bh_ending)draw(self, 3);
    bh_ledger_disconnect(self->ledger, ending, self->now_ms);
    check_after_end(self, 0, ending);
    memset(self->publishers, 0, sizeof self->publishers);
    self->unblocked_ms = self->is_blocked ? self->now_ms : self->unblocked_ms;
    self->is_blocked = 0;
    self->setup.is_forgotten |= self->setup.awaits == DECLARING;
    self->setup.awaits = IDLE;
    if (self->setup.failure != BH_OK) { /* no event, so the delay is not known */
        self->setup.failure = BH_OK;
        self->setup.due_ms = self->setup.failed_ms;
        self->setup.latest_ms = self->setup.failed_ms + MOST_DELAY_MS;
    }
}

/* The ledger has the answer of a publish; of one that is late it may know nothing any more. */
static void check_answer(model *self, publish *answered, int is_ack)
{
    message *of = &self->messages[answered->message];
    int may_be_forgotten = is_late(self, answered) || answered->is_replaced;
    bh_state state = bh_ledger_state(self->ledger, of->entry);
    answered->is_answered = 1;
    if (of->at != SENT && of->at != TO_BE_SENT)
        return;
    if (of->at == SENT && of->is_suspect != NO)
        of->is_suspect = may_be_forgotten ? MAYBE : NO;
    if (of->at == SENT && !may_be_forgotten)
        of->losses = 0;
    if (is_ack && !answered->is_returned) {
        CHECK(state == BH_STATE_CONFIRMED || may_be_forgotten);
        of->is_safe = state == BH_STATE_CONFIRMED;
        of->at = of->is_safe ? CONFIRMED : of->at;
    } else if (of->is_lost) {
        if (of->is_stale != YES)
            of->is_stale = may_be_forgotten ? MAYBE : YES;
    } else if (of->at == SENT) {
        CHECK(state != BH_STATE_SENT || may_be_forgotten);
        of->at = state == BH_STATE_SENT ? SENT : TO_BE_SENT;
    }
}

static void confirm(model *self, const publisher *on, int64_t tag, int is_multiple, int is_ack)
{
    bh_ledger_confirm(self->ledger, on->number, tag, is_multiple, is_ack, self->now_ms);
    if (tag < !is_multiple || tag >= on->next_tag)
        return;
    self->is_doubtful = 0;
    for (int i = 0; i < self->publish_count; i++) {
        publish *answered = &self->publishes[i];
        if (answered->publisher == on->number && !answered->is_answered &&
            (is_multiple ? tag == 0 || answered->tag <= tag : answered->tag == tag))
            check_answer(self, answered, is_ack);
    }
}

/* Plays basic.return of a publish: every other one of that id may be it. It is not played if the
 * ledger may have forgotten the publish. To the ledger it would then be one that fits none, after
 * which all go out again. */
static void bring_back(model *self, publish *returned)
{
    char text[16];
    if (!returned->is_named || returned->is_replaced || is_late(self, returned))
        return;
    bh_ledger_return(self->ledger, returned->publisher, id_of(returned->message, text), bh_str("exchange"),
                     bh_str("key"));
    forget_rungs(self);
    for (int i = 0; i < self->publish_count; i++) {
        publish *other = &self->publishes[i];
        if (other->publisher == returned->publisher && !other->is_answered && other->is_named &&
            id_number(other->message) == id_number(returned->message))
            other->is_returned = 1;
    }
}

static void answer_rung(model *self, int rung, int is_there)
{
    bh_ledger_rung(self->ledger, rung_ms(rung), is_there ? BH_OK : BH_ERR_MISSING, self->now_ms);
    if (is_there)
        self->rungs[rung] = THERE;
    else
        self->rungs[rung] = UNKNOWN;
}

/* Answers the step of the setup, or reports an answer of no step. */
static void answer_setup(model *self, int is_there)
{
    static const bh_status failures[] = {BH_ERR_CHANNEL, BH_ERR_ACCESS};
    bh_status failure = failures[draw(self, 2)];
    int awaits = self->setup.awaits;
    if (awaits == OPENING && is_there)
        open_publisher(self);
    else if (awaits == OPENING)
        bh_ledger_publisher_failed(self->ledger, failure, self->now_ms);
    else
        bh_ledger_rung(self->ledger, 0, is_there ? BH_OK : failure, self->now_ms);
    self->setup.awaits = IDLE;
    if (awaits == IDLE) {
        self->setup.is_forgotten &= !is_there;
    } else if (!is_there) {
        self->setup.is_forgotten |= awaits == DECLARING;
        self->setup.failure = failure;
        self->setup.failed_ms = self->now_ms;
    }
}

static publish *draw_publish(model *self)
{
    publish *open[MOST_PUBLISHES];
    unsigned count = 0;
    for (int i = 0; i < self->publish_count; i++)
        if (!self->publishes[i].is_answered)
            open[count++] = &self->publishes[i];
    return count ? open[draw(self, count)] : NULL;
}

static publisher *draw_publisher(model *self)
{
    publisher *one = &self->publishers[draw(self, 3)];
    return one->number ? one : NULL;
}

static void change_message(model *self, message *of)
{
    if (of->is_lost) {
        CHECK(bh_ledger_abandon(self->ledger, of->entry, self->now_ms) == BH_ERR_STATE);
        CHECK(bh_ledger_give_back(self->ledger, of->entry) == BH_ERR_STATE);
        return;
    }
    switch (draw(self, 8)) {
    case 0:
        CHECK(bh__ledger_take(self->ledger, of->entry) == (of->at == ARRIVED ? BH_OK : BH_ERR_STATE));
        of->at = of->at == ARRIVED ? TAKEN : of->at;
        break;
    case 1:
        CHECK(bh_ledger_acknowledge(self->ledger, of->entry) ==
              (of->at == ARRIVED || of->at == TAKEN ? BH_OK : BH_ERR_STATE));
        of->at = of->at == ARRIVED || of->at == TAKEN ? SETTLED : of->at;
        break;
    case 2: {
        int is_allowed = of->at == ARRIVED || of->at == TAKEN || of->at == ABANDONED;
        CHECK(bh_ledger_give_back(self->ledger, of->entry) == (is_allowed ? BH_OK : BH_ERR_STATE));
        of->is_dismissed |= is_allowed;
        of->action = is_allowed ? BH_ACTION_NONE : of->action;
        of->at = is_allowed ? SETTLED : of->at;
        break;
    }
    case 3: {
        int is_allowed = of->at == ARRIVED || of->at == TAKEN || of->at == TO_BE_SENT;
        CHECK(bh_ledger_abandon(self->ledger, of->entry, self->now_ms) == (is_allowed ? BH_OK : BH_ERR_STATE));
        of->abandoned_ms = is_allowed ? self->now_ms : of->abandoned_ms;
        of->at = is_allowed ? ABANDONED : of->at;
        break;
    }
    case 4: {
        bh_state state = bh_ledger_state(self->ledger, of->entry);
        int is_allowed = of->at == ARRIVED || of->at == TAKEN || state == BH_STATE_DUE;
        CHECK(bh__ledger_postpone(self->ledger, of->entry, self->now_ms) == (is_allowed ? BH_OK : BH_ERR_STATE));
        of->at = is_allowed ? TO_BE_SENT : of->at;
        break;
    }
    default:
        settle(self, of, (bh_action)(1 + draw(self, BH_ACTION_REPLAY)));
    }
}

static void happen(model *self)
{
    publisher *on = draw_publisher(self);
    publish *sent;
    switch (draw(self, 28)) {
    case 0:
        open_channel(self);
        break;
    case 1:
        if (self->channel_count && draw(self, 4) == 0)
            close_channel(self, &self->channels[draw(self, (unsigned)self->channel_count)]);
        break;
    case 2:
        open_publisher(self);
        break;
    case 3:
        if (on && draw(self, 2) == 0)
            close_publisher(self, on);
        break;
    case 4:
        if (draw(self, 2) == 0)
            disconnect(self);
        break;
    case 5:
        if (self->is_blocked)
            self->unblocked_ms = self->now_ms;
        self->is_blocked = !self->is_blocked && draw(self, 2);
        bh_ledger_block(self->ledger, self->is_blocked, self->now_ms);
        break;
    case 6:
        bh__ledger_flush(self->ledger);
        break;
    case 7:
        bh_ledger_forget_rungs(self->ledger);
        forget_rungs(self);
        break;
    case 8:
    case 9:
        for (int rung = 0; rung < MOST_RUNGS; rung++)
            if (self->rungs[rung] == ASKED && draw(self, 2))
                answer_rung(self, rung, draw(self, 4) != 0);
        break;
    case 10:
        if ((sent = draw_publish(self)) != NULL)
            bring_back(self, sent);
        break;
    case 11:
    case 12:
        if (on)
            confirm(self, on, (int64_t)draw(self, (unsigned)on->next_tag + 1), 1, draw(self, 4) != 0);
        break;
    case 13:
    case 14:
        if ((sent = draw_publish(self)) != NULL)
            confirm(self, find_publisher(self, sent->publisher), sent->tag, 0, draw(self, 4) != 0);
        break;
    case 15:
    case 16:
    case 17:
        arrive(self);
        return;
    case 18:
        if (self->channel_count && draw(self, 2) == 0)
            lose_channel(self, &self->channels[draw(self, (unsigned)self->channel_count)]);
        break;
    case 19:
    case 20:
        answer_setup(self, (int)draw(self, 2));
        break;
    default:
        if (self->message_count)
            change_message(self, &self->messages[draw(self, (unsigned)self->message_count)]);
    }
}

static void pass_time(model *self)
{
    static const int64_t times_ms[] = {1, 3, 10, 100, 500, TIMEOUT_MS, ABANDON_MS};
    if (draw(self, 2) == 0 && self->due_ms >= 0 && self->due_ms != INT64_MAX)
        self->now_ms = self->due_ms - (int64_t)draw(self, 2);
    else
        self->now_ms += times_ms[draw(self, 7)];
}

/* --- from beginning to end
 * -------------------------------------------------------------------------------------- */

static void set_up(model *self)
{
    static const int64_t most_sent[] = {1, 2, 3, 8, 100}, most_acks[] = {0, 1, 2, 3, 100}, gaps_ms[] = {0, 1, 7, 60},
                         most_abandoned[] = {0, 1, 3}, most_orphans[] = {0, 1, 3, 100};
    bh_policy *policy;
    bh_bytes random = {"a seed..", BH_LEDGER_RANDOM_BYTES};
    CHECK(bh_policy_new(&policy) == BH_OK);
    CHECK(policy_set_initial_ms(policy, 10) == BH_OK);
    CHECK(policy_set_max_ms(policy, MOST_DELAY_MS) == BH_OK);
    CHECK(policy_set_jitter(policy, (bh_jitter)draw(self, 5), 0.2) == BH_OK);
    CHECK(bh_ledger_new(&self->ledger, policy, random) == BH_OK);
    bh_policy_free(policy);
    self->most_sent = most_sent[draw(self, 5)];
    self->most_acks = most_acks[draw(self, 5)];
    self->most_abandoned = most_abandoned[draw(self, 3)];
    self->most_orphans = most_orphans[draw(self, 4)];
    self->due_ms = self->duplicate_ms = self->probe_ms = -1;
    CHECK(bh_ledger_set_confirm_timeout_ms(self->ledger, TIMEOUT_MS) == BH_OK);
    CHECK(bh__ledger_set_most_sent(self->ledger, self->most_sent) == BH_OK);
    CHECK(bh__ledger_set_acks(self->ledger, self->most_acks, gaps_ms[draw(self, 4)]) == BH_OK);
    CHECK(bh__ledger_set_abandoned(self->ledger, self->most_abandoned, ABANDON_MS) == BH_OK);
    bh__ledger_set_orphans(self->ledger, (size_t)self->most_orphans, ORPHAN_MS);
    self->setup.restores = (int)draw(self, 2);
    bh_ledger_set_restores(self->ledger, self->setup.restores);
    open_channel(self);
    open_publisher(self);
}

/* The broker answers everything, the caller settles everything: every message ends. */
static int count_in_hand(const model *self)
{
    int count = 0;
    for (int i = 0; i < self->message_count; i++)
        count += self->messages[i].at != ENDED;
    return count;
}

static void deliver_orphans_again(model *self)
{
    if (!count_orphans(self))
        return;
    open_channel(self);
    int at = self->channel_count - 1;
    for (const message *orphan; self->channels[at].is_open && (orphan = oldest_orphan(self, 0));)
        arrive_on(self, at, orphan->fingerprint, 1);
    for (message *orphan; (orphan = oldest_orphan(self, 0));) { /* there was no channel any more */
        bh__ledger_drop_orphan(self->ledger, orphan->entry);
        drop_orphan(self, orphan);
    }
}

static void confirm_all(model *self)
{
    for (int i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++)
        if (self->publishers[i].number)
            confirm(self, &self->publishers[i], 0, 1, 1);
    self->due_ms = -1;
    ask(self, 1);
    check_counts(self);
}

static void bring_to_the_end(model *self)
{
    deliver_orphans_again(self);
    for (int i = 0; i < self->message_count; i++)
        if (self->messages[i].at == ARRIVED || self->messages[i].at == TAKEN)
            settle(self, &self->messages[i], BH_ACTION_RETRY);
    bh_ledger_block(self->ledger, 0, self->now_ms);
    self->is_blocked = 0;
    if (!find_publisher(self, 0) || self->publishers[0].number == 0)
        open_publisher(self);
    bh__ledger_flush(self->ledger);
    self->due_ms = -1;
    for (int round = 0; count_in_hand(self) > 0; round++) {
        CHECK(round < ROUNDS_TO_THE_END);
        ask(self, 1);
        check_counts(self);
        int64_t due_ms = self->due_ms;
        for (int rung = 0; rung < MOST_RUNGS; rung++)
            if (self->rungs[rung] == ASKED)
                answer_rung(self, rung, 1);
        if (self->setup.awaits != IDLE)
            answer_setup(self, 1);
        confirm_all(self);
        if (due_ms != INT64_MAX && due_ms > self->now_ms)
            self->now_ms = due_ms;
    }
    confirm_all(self); /* copies in flight of replays that ended */
    CHECK(self->due_ms == INT64_MAX);
    CHECK(bh__ledger_unsettled(self->ledger) == 0);
}

void ledger_model_play(ledger_draw *draw_, void *source, int happenings, const char *name)
{
    model *self = calloc(1, sizeof *self);
    if (!self)
        abort();
    self->name = name;
    self->draw = draw_;
    self->source = source;
    set_up(self);
    for (; self->happening < happenings && self->publish_count < MOST_PUBLISHES / 2; self->happening++) {
        if (draw(self, 4) == 0) {
            pass_time(self);
        } else {
            happen(self);
            self->due_ms = -1;
        }
        check_counts(self);
        if (draw(self, 2) == 0)
            continue;
        ask(self, draw(self, 8) != 0);
        check_counts(self);
    }
    bring_to_the_end(self);
    bh_ledger_free(self->ledger);
    free(self);
}
