#include "calls_model.h"
#include "model.h"

#include <backhop/adapter/calls.h>
#include <stdio.h>

enum { MESSAGES = 6, CHANNELS = 4, MOST_CALLS = 512 };

typedef enum phase { RUNNING, ENDED, LOST, GONE } phase;

typedef struct {
    int message;
    int64_t number; /* of a call that runs */
    int64_t channel;
    int64_t since_ms;
    int is_lost; /* its channel, while it runs */
    phase state;
    bh_action action;
} one_call;

typedef struct {
    const char *name;
    int happening;
    calls_draw *draw;
    void *source;
    bh_calls *calls;
    bh_delivery *delivery;
    bh_history *history;
    int64_t now_ms;
    int64_t channels[CHANNELS];
    one_call all[MOST_CALLS]; /* ordered by their begin, or by their end if they ended */
    int count;
} model;

static int is_fresh(const model *self, const one_call *call)
{
    return self->now_ms - call->since_ms < BH_CALLS_KEPT_MS;
}

/* Adds a call as the last one. Forgets the gone ones if there is no room. */
static one_call *add(model *self, one_call call)
{
    int count = 0;
    for (int i = 0; self->count == MOST_CALLS && i < MOST_CALLS; i++)
        if (self->all[i].state != GONE)
            self->all[count++] = self->all[i];
    if (self->count == MOST_CALLS)
        self->count = count;
    CHECK(self->count < MOST_CALLS);
    self->all[self->count] = call;
    return &self->all[self->count++];
}

/* Returns the call of the message in this phase that changed first and still holds; NULL: none. */
static one_call *find(model *self, int message, phase in)
{
    one_call *found = NULL;
    for (int i = 0; i < self->count; i++) {
        one_call *call = &self->all[i];
        if (call->message == message && call->state == in && is_fresh(self, call) &&
            (!found || call->since_ms < found->since_ms))
            found = call;
    }
    return found;
}

/* Message 0 has no id. */
static void read_message(model *self, int message)
{
    char id[2] = {(char)('a' + message), '\0'};
    bh_delivery_clear(self->delivery);
    if (message)
        CHECK(bh_delivery_set_property(self->delivery, BH_PROPERTY_MESSAGE_ID, bh_str(id)) == BH_OK);
    CHECK(bh_history_read(self->history, self->delivery, NULL) == BH_OK);
}

static void arrive(model *self)
{
    int message = (int)self->draw(self->source, MESSAGES), is_redelivered = self->draw(self->source, 4) != 0;
    int64_t channel = self->channels[self->draw(self->source, CHANNELS)];
    bh_arrival arrival;
    read_message(self, message);
    bh_calls_arrive(self->calls, channel, self->history, bh_str("orders"), bh_str("body"), is_redelivered, self->now_ms,
                    &arrival);
    one_call *lost = message && is_redelivered ? find(self, message, LOST) : NULL;
    one_call *running = message && is_redelivered && !lost ? find(self, message, RUNNING) : NULL;
    if (lost) {
        CHECK(arrival.kind == BH_ARRIVAL_ACK);
        CHECK(arrival.call == 0 && arrival.action != BH_ACTION_NONE);
        lost->state = GONE;
        add(self, (one_call){message, 0, channel, self->now_ms, 0, ENDED, arrival.action});
    } else if (running) {
        CHECK(arrival.kind == BH_ARRIVAL_WAIT);
        int is_known = 0;
        for (int i = 0; i < self->count; i++)
            is_known |=
                self->all[i].state == RUNNING && self->all[i].number == arrival.call && self->all[i].message == message;
        CHECK(is_known);
    } else {
        CHECK(arrival.kind == BH_ARRIVAL_CALL);
        CHECK((arrival.call > 0) == (message != 0));
        if (message)
            add(self, (one_call){message, arrival.call, channel, self->now_ms, 0, RUNNING, BH_ACTION_NONE});
    }
}

static void end(model *self)
{
    static const bh_action actions[] = {BH_ACTION_ACK,  BH_ACTION_DROP, BH_ACTION_RETRY,  BH_ACTION_DEFER,
                                        BH_ACTION_PARK, BH_ACTION_NONE, BH_ACTION_REJECT, BH_ACTION_RETURN};
    unsigned drawn = self->draw(self->source, 8);
    if (!self->count)
        return;
    one_call *call = &self->all[self->draw(self->source, (unsigned)self->count)];
    bh_calls_end(self->calls, call->number, actions[drawn], self->now_ms); /* perhaps a second time */
    if (call->state != RUNNING)
        return;
    one_call ended = *call;
    call->state = GONE;
    if (drawn >= 5)
        return;
    ended.state = ended.is_lost ? LOST : ENDED;
    ended.action = actions[drawn];
    ended.since_ms = self->now_ms;
    ended.number = 0;
    add(self, ended);
}

static void lose(model *self)
{
    unsigned which = self->draw(self->source, CHANNELS);
    int64_t prefetch = (int64_t)self->draw(self->source, 4) - 1;
    int64_t most = prefetch < 0 ? 0 : prefetch ? 2 * prefetch : BH_CALLS_MOST;
    bh_calls_lose_channel(self->calls, self->channels[which], prefetch, self->now_ms);
    for (int i = self->count - 1; i >= 0; i--) {
        one_call *call = &self->all[i];
        if (call->channel != self->channels[which])
            continue;
        if (call->state == RUNNING && !call->is_lost) {
            call->is_lost = 1;
            call->since_ms = self->now_ms;
        } else if (call->state == ENDED) {
            call->state = most-- > 0 ? LOST : GONE;
            call->since_ms = self->now_ms;
        }
    }
    if (self->draw(self->source, 2))
        self->channels[which] = bh_calls_open_channel(self->calls);
}

/* Ends calls that ran too long, so that the model stays small. */
static void end_old(model *self)
{
    int running = 0;
    for (int i = self->count - 1; i >= 0; i--) {
        one_call *call = &self->all[i];
        running += call->state != GONE;
        if (call->state == GONE || running < MOST_CALLS / 4)
            continue;
        if (call->state == RUNNING) {
            bh_calls_end(self->calls, call->number, BH_ACTION_NONE, self->now_ms);
            call->state = GONE;
        }
    }
    if (running < MOST_CALLS / 2)
        return;
    for (int i = 0; i < CHANNELS; i++) { /* acknowledgements that the broker has */
        bh_calls_lose_channel(self->calls, self->channels[i], BH_CALLS_CLOSED, self->now_ms);
        for (int j = 0; j < self->count; j++)
            if (self->all[j].channel == self->channels[i]) {
                self->all[j].is_lost |= self->all[j].state == RUNNING;
                self->all[j].since_ms = self->all[j].state == RUNNING ? self->now_ms : self->all[j].since_ms;
                self->all[j].state = self->all[j].state == ENDED ? GONE : self->all[j].state;
            }
    }
}

void calls_model_play(calls_draw *draw, void *source, int happenings, const char *name)
{
    model all = {.name = name, .draw = draw, .source = source};
    model *self = &all;
    CHECK(bh_calls_new(&self->calls, (bh_bytes){"0123456789abcdef", BH_CALLS_RANDOM_BYTES}) == BH_OK);
    CHECK(bh_delivery_new(&self->delivery) == BH_OK && bh_history_new(&self->history) == BH_OK);
    for (int i = 0; i < CHANNELS; i++)
        self->channels[i] = bh_calls_open_channel(self->calls);
    for (self->happening = 0; self->happening < happenings; self->happening++) {
        unsigned what = draw(source, 20);
        if (what < 8)
            arrive(self);
        else if (what < 16)
            end(self);
        else if (what < 19)
            lose(self);
        else
            self->now_ms += draw(source, 3) ? 1 : BH_CALLS_KEPT_MS / 2;
        if (self->count > MOST_CALLS / 2)
            end_old(self);
    }
    bh_history_free(self->history);
    bh_delivery_free(self->delivery);
    bh_calls_free(self->calls);
}
