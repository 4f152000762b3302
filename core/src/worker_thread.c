#include "worker_internal.h"

/* ------------------------------------------------------------------------------------------------------------ tools */

static int is_stopping(const bh_worker *self)
{
    return atomic_load(&self->shared.stop_ms) != BH__NEVER;
}

int bh__worker_is_interrupted(const bh_worker *self)
{
    switch (self->stage) {
    case BH__WORKING:
        return is_stopping(self);
    case BH__DRAINING:
        return bh__monotonic_ms() >= atomic_load(&self->shared.stop_ms);
    case BH__LEAVING:
        break;
    }
    return 0;
}

const char *bh__worker_draw(bh_worker *self, size_t size)
{
    if (sizeof self->random - self->random_used < size) {
        if (!bh__random(self->random, sizeof self->random))
            return NULL;
        self->random_used = 0;
    }
    const char *drawn = self->random + self->random_used;
    self->random_used += size;
    return drawn;
}

int64_t bh__worker_back_off(bh_worker *self, bh__back_off *state)
{
    const char *drawn = bh__worker_draw(self, 8);
    state->failures++;
    state->wait_ms =
        bh_policy_delay_ms(self->back_off, state->failures, state->wait_ms, drawn ? bh__random_number(drawn) : 0.5);
    state->due_ms = bh__monotonic_ms() + state->wait_ms;
    return state->wait_ms;
}

static bh_event *make_event(bh_event_kind kind, bh_status status, bh_bytes text, bh_bytes id, int64_t delay_ms,
                            int64_t count)
{
    bh_event *event = bh__event_new(kind, status, text, id);
    if (event) {
        event->delay_ms = delay_ms;
        event->count = count;
    }
    return event;
}

void bh__worker_tell(bh_worker *self, bh_event_kind kind, bh_status status, bh_bytes text, bh_bytes id,
                     int64_t attempts, int64_t delay_ms, int64_t count)
{
    bh_event *event = make_event(kind, status, text, id, delay_ms, count);
    if (event)
        event->attempts = attempts;
    bh__shared_tell(&self->shared, event, BH__RUNNING);
}

/* ------------------------------------------------------------------------------------------------------ connections */

/* Cleans up after a connection that was lost, and says so. */
static void bury(bh_worker *self, bh__connection *connection)
{
    bh__link *link = &connection->link;
    if (link->phase == BH__CLOSED || !bh__link_is_broken(link))
        return;
    int is_consume = connection == &self->consume;
    int64_t count = is_consume ? bh__worker_end_consumer(self) : 0;
    if (is_consume)
        self->has_replay_channel = 0;
    else
        bh__worker_end_publisher(self);
    self->is_ready = 0;
    self->is_declared = 0;
    connection->next_uri++; /* this one failed */
    bh__worker_tell(self, BH_EVENT_DISCONNECTED, link->problem.status, bh__report_text(&link->problem), bh_str(""), 0,
                    bh__worker_back_off(self, &connection->back_off), count);
    bh__link_close(link);
}

static void fail(bh_worker *self, bh_status status, int64_t wait_ms)
{
    if (!bh__worker_is_interrupted(self))
        bh__worker_tell(self, BH_EVENT_FAILED, status, bh__report_text(&self->problem), bh_str(""), 0, wait_ms, 0);
}

static void connect_if_due(bh_worker *self, bh__connection *connection)
{
    if (connection->link.phase != BH__CLOSED || bh__monotonic_ms() < connection->back_off.due_ms)
        return;
    bh_status status = bh__worker_connect(self, connection);
    if (status != BH_OK)
        fail(self, status, bh__worker_back_off(self, &connection->back_off));
}

static int are_open(const bh_worker *self)
{
    return self->consume.link.is_open && self->publish.link.is_open;
}

/* ---------------------------------------------------------------------------------------------------------- set-up */

/* What a cancel meant is asked of the consume connection alone. */
static int may_set_up(const bh_worker *self)
{
    return self->consume.link.is_open && (self->publish.link.is_open || self->consumer.is_doubtful);
}

static bh_status declare(bh_worker *self)
{
    self->publisher.rung_count = 0;
    bh_status status = bh__worker_declare(self);
    self->is_declared = status == BH_OK;
    return status;
}

/* The next thing that is missing. */
static bh_status set_up(bh_worker *self)
{
    if (self->consumer.is_doubtful)
        return bh__worker_resolve_cancel(self);
    if (!bh__publisher_is_open(&self->publisher))
        return bh__worker_open_publisher(self);
    if (!self->is_declared)
        return declare(self);
    return bh__worker_consume(self);
}

static int is_set_up(const bh_worker *self)
{
    int is_consuming = self->consumer.is_consuming || self->prefetch == 0 || self->stage != BH__WORKING;
    return bh__publisher_is_open(&self->publisher) && self->is_declared && !self->consumer.is_doubtful && is_consuming;
}

static void tell_connected(bh_worker *self)
{
    const bh__uri *uri = self->consume.uri;
    const bh__link *link = &self->consume.link;
    bh__report words = {.size = 0};
    bh__report_set(&words, BH_OK, "%s %s at %s:%d, vhost %s, as %s", link->product, link->version, uri->host, uri->port,
                   uri->vhost, uri->user);
    self->is_ready = 1;
    self->consume.back_off.failures = self->publish.back_off.failures = 0;
    bh__worker_tell(self, BH_EVENT_CONNECTED, BH_OK, bh__report_text(&words), bh_str(""), 0, 0, 0);
    bh__report_free(&words);
}

static void set_up_if_due(bh_worker *self)
{
    while (may_set_up(self) && !is_set_up(self) && bh__monotonic_ms() >= self->setup.due_ms &&
           !bh__worker_is_interrupted(self)) {
        bh_status status = set_up(self);
        if (status == BH_OK ||
            (status == BH_ERR_CONNECTION && !may_set_up(self))) /* a lost connection is told as such */
            continue;
        fail(self, status, bh__worker_back_off(self, &self->setup));
    }
    if (are_open(self) && is_set_up(self) && !self->is_ready && self->stage == BH__WORKING)
        tell_connected(self);
}

static void declare_wanted_rung(bh_worker *self)
{
    int64_t rung_ms = self->publisher.wanted_rung_ms;
    if (rung_ms == 0 || !are_open(self) || !self->is_declared)
        return;
    bh_status status = bh__worker_declare_rung(self, rung_ms);
    if (status == BH_OK)
        bh__worker_note_rung(self, rung_ms);
    else if (are_open(self))
        bh__worker_miss_rung(self, rung_ms, status, bh__report_text(&self->problem));
}

static void replay_if_asked(bh_worker *self)
{
    if (!self->is_ready)
        return;
    int64_t most = bh__shared_begin_replay(&self->shared);
    if (most >= 0)
        bh__worker_replay(self, most);
}

static int64_t next_due_ms(const bh_worker *self)
{
    int64_t due_ms = INT64_MAX;
    if (bh__link_is_broken(&self->consume.link) || bh__link_is_broken(&self->publish.link))
        return 0; /* to be buried */
    if (self->consume.link.phase == BH__CLOSED)
        due_ms = self->consume.back_off.due_ms;
    if (self->publish.link.phase == BH__CLOSED && self->publish.back_off.due_ms < due_ms)
        due_ms = self->publish.back_off.due_ms;
    if (may_set_up(self) && !is_set_up(self) && self->setup.due_ms < due_ms)
        due_ms = self->setup.due_ms;
    return due_ms;
}

static void look_after(bh_worker *self)
{
    bury(self, &self->consume);
    bury(self, &self->publish);
    connect_if_due(self, &self->publish);
    set_up_if_due(self);
    declare_wanted_rung(self);
}

void bh__worker_keep_going(bh_worker *self, int64_t until_ms)
{
    look_after(self);
    int64_t due_ms = next_due_ms(self);
    bh__worker_pump(self, due_ms < until_ms ? due_ms : until_ms);
}

static void work(bh_worker *self)
{
    self->stage = BH__WORKING;
    while (!is_stopping(self)) {
        connect_if_due(self, &self->consume);
        look_after(self);
        replay_if_asked(self);
        bh__worker_pump(self, next_due_ms(self));
    }
}

/* -------------------------------------------------------------------------------------------------------- draining */

/* Whether callers have something to settle still, or copies are on their way, and it can still count. */
static int is_busy(const bh_worker *self)
{
    return self->consume.link.is_open && self->consumer.is_open && bh__worker_count_unacknowledged(self) > 0;
}

/* Nothing more is taken; what was is settled until the limit. How many messages were not. */
static int64_t drain(bh_worker *self)
{
    self->stage = BH__LEAVING;
    bh__shared_withdraw(&self->shared,
                        &self->consumer.arrived); /* and given back after the cancel: else it comes again */
    if (self->consume.link.is_open)
        bh__worker_cancel(self); /* whatever the limit: what comes unseen would count as a failure */
    self->stage = BH__DRAINING;
    bh__worker_give_back_ready(self);
    bh__worker_settle_all(self);
    while (is_busy(self) && !bh__worker_is_interrupted(self)) {
        bh__worker_give_back_ready(self); /* a delivery that was under way */
        bh__worker_keep_going(self, INT64_MAX);
    }
    bh__worker_settle_all(self);
    bh__worker_flush_acks(self);
    return self->consumer.is_open ? bh__worker_count_unacknowledged(self) : 0;
}

static void leave(bh_worker *self)
{
    self->stage = BH__LEAVING;
    bh__worker_give_back_all(self);
    bh__worker_disconnect(self, &self->consume);
    bh__worker_end_consumer(self);
    bh__worker_drop_copies(self);
    bh__worker_disconnect(self, &self->publish);
    bh__assembler_clear(&self->replayed);
    if (bh__shared_begin_replay(&self->shared) >= 0) {
        bh__shared_end_replay(&self->shared);
        bh__worker_tell(self, BH_EVENT_REPLAYED, BH_ERR_STATE, bh_str("the worker stopped before the replay began"),
                        bh_str(""), 0, 0, 0);
    }
    bh__worker_settle_all(self); /* what was settled too late */
    self->has_replay_channel = self->is_declared = 0;
    self->consume.back_off = self->publish.back_off = self->setup = (bh__back_off){.failures = 0};
}

void *bh__worker_thread(void *worker)
{
    bh_worker *self = worker;
    work(self);
    int64_t count = drain(self);
    leave(self);
    bh_status status = count ? BH_ERR_TIMEOUT : BH_OK;
    bh_bytes text =
        count ? bh_str("messages were not settled, or their copies not confirmed, before the limit: they go back "
                       "to the queue")
              : bh_str("what was taken is settled, or the broker has it again");
    bh__shared_tell(&self->shared, make_event(BH_EVENT_DRAINED, status, text, bh_str(""), 0, count), BH__DRAINED);
    return NULL;
}
