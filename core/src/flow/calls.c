/* Calls: a table of calls that run, and two rings of calls that have ended. */
#include "history/internal.h"

#include <backhop/adapter/calls.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_BITS = 12 }; /* of the number of a call that runs, for its index */

_Static_assert(BH_CALLS_MOST == 1 << INDEX_BITS, "each call that runs has an index");

typedef struct call {
    uint64_t message; /* the fingerprint; 0: none */
    int64_t number;   /* of a call that runs */
    int64_t channel;
    int64_t since_ms; /* it arrived, or its channel was lost */
    int is_lost;      /* its channel */
    bh_action action; /* of a call that has ended */
} call;

/* The last calls; a new one replaces the oldest. */
typedef struct ring {
    size_t count;
    size_t next;
    call items[BH_CALLS_MOST];
} ring;

struct bh_calls {
    bh__siphash_key key;
    int64_t last_channel;
    int64_t last_number;
    size_t running_count;
    size_t free_count;
    unsigned short free[BH_CALLS_MOST]; /* indexes of `running` that were used before, and are free */
    call running[BH_CALLS_MOST];
    ring ended; /* their channels were not lost: they hold for no delivery */
    ring lost;  /* their channels were lost after they ended, or before */
};

bh_status bh_calls_new(bh_calls **out, bh_bytes random)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!random.data || random.size != BH_CALLS_RANDOM_BYTES)
        return BH_ERR_ARGUMENT;
    bh_calls *self = calloc(1, sizeof *self);
    if (!self)
        return BH_ERR_NO_MEMORY;
    memcpy(&self->key.first, random.data, sizeof(uint64_t));
    memcpy(&self->key.second, random.data + sizeof(uint64_t), sizeof(uint64_t));
    *out = self;
    return BH_OK;
}

void bh_calls_free(bh_calls *self)
{
    free(self);
}

int64_t bh_calls_open_channel(bh_calls *self)
{
    return self ? ++self->last_channel : 0;
}

static int is_fresh(const call *of, int64_t now_ms)
{
    return now_ms < of->since_ms || (uint64_t)now_ms - (uint64_t)of->since_ms < BH_CALLS_KEPT_MS;
}

/* ------------------------------------------------------------------------------- calls that run */

static void drop_running(bh_calls *self, call *dropped)
{
    dropped->message = 0;
    self->free[self->free_count++] = (unsigned short)(dropped - self->running);
}

/* Frees the calls that never ended, if the table is full. */
static void drop_stale(bh_calls *self, int64_t now_ms)
{
    for (size_t i = 0; i < self->running_count; i++)
        if (self->running[i].message && !is_fresh(&self->running[i], now_ms))
            drop_running(self, &self->running[i]);
}

/* Returns the number of a new call; 0: too many run. */
static int64_t begin_call(bh_calls *self, uint64_t message, int64_t channel, int64_t now_ms)
{
    if (!self->free_count && self->running_count == BH_CALLS_MOST)
        drop_stale(self, now_ms);
    if (!self->free_count && self->running_count == BH_CALLS_MOST)
        return 0;
    size_t index = self->free_count ? self->free[--self->free_count] : self->running_count++;
    int64_t number = ++self->last_number << INDEX_BITS | (int64_t)index;
    self->running[index] = (call){message, number, channel, now_ms, 0, BH_ACTION_NONE};
    return number;
}

static call *find_running(bh_calls *self, uint64_t message, int64_t now_ms)
{
    for (size_t i = 0; i < self->running_count; i++)
        if (self->running[i].message == message && is_fresh(&self->running[i], now_ms))
            return &self->running[i];
    return NULL;
}

/* ------------------------------------------------------------------------ calls that have ended */

static void drop(ring *from, call *dropped)
{
    from->count -= dropped->message != 0;
    dropped->message = 0;
}

static void push(ring *to, call added)
{
    drop(to, &to->items[to->next]);
    to->items[to->next] = added;
    to->count++;
    to->next = (to->next + 1) % BH_CALLS_MOST;
}

/* Removes the oldest call that ended for this message, of a lost channel. Returns its action;
 * BH_ACTION_NONE: none. */
static bh_action take_lost(bh_calls *self, uint64_t message, int64_t now_ms)
{
    ring *lost = &self->lost;
    for (size_t i = 0; lost->count && i < BH_CALLS_MOST; i++) {
        call *found = &lost->items[(lost->next + i) % BH_CALLS_MOST];
        if (found->message != message)
            continue;
        drop(lost, found);
        if (is_fresh(found, now_ms))
            return found->action;
    }
    return BH_ACTION_NONE;
}

/* --------------------------------------------------------------------------------------- events */

/* Binds the earlier call of a message to this delivery. Returns 0 if it has none. */
static int bind_earlier(bh_calls *self, uint64_t message, int64_t channel, int64_t now_ms, bh_arrival *out)
{
    bh_action action = take_lost(self, message, now_ms);
    if (action != BH_ACTION_NONE) {
        push(&self->ended, (call){message, 0, channel, now_ms, 0, action});
        *out = (bh_arrival){BH_ARRIVAL_ACK, 0, action};
        return 1;
    }
    const call *running = find_running(self, message, now_ms);
    if (running)
        *out = (bh_arrival){BH_ARRIVAL_WAIT, running->number, BH_ACTION_NONE};
    return running != NULL;
}

void bh_calls_arrive(bh_calls *self, int64_t channel, const bh_history *history, bh_bytes queue, bh_bytes body,
                     int redelivered, int64_t now_ms, bh_arrival *out)
{
    if (!out)
        return;
    *out = (bh_arrival){BH_ARRIVAL_CALL, 0, BH_ACTION_NONE};
    if (!self || !history || !queue.data || !body.data)
        return;
    uint64_t message = bh__history_fingerprint(history, self->key, queue, body);
    if (message && !(redelivered && bind_earlier(self, message, channel, now_ms, out)))
        out->call = begin_call(self, message, channel, now_ms);
}

/* Returns 1 if the next delivery of the message needs an acknowledgement alone. */
static int holds(bh_action action)
{
    switch (action) {
    case BH_ACTION_ACK:
    case BH_ACTION_DROP:
    case BH_ACTION_RETRY:
    case BH_ACTION_DEFER:
    case BH_ACTION_PARK:
        return 1;
    case BH_ACTION_NONE:
    case BH_ACTION_REJECT:
    case BH_ACTION_RETURN:
    case BH_ACTION_REPLAY:
        break;
    }
    return 0;
}

void bh_calls_end(bh_calls *self, int64_t number, bh_action action, int64_t now_ms)
{
    if (!self || number <= 0)
        return;
    call *ended = &self->running[number & (BH_CALLS_MOST - 1)];
    if (!ended->message || ended->number != number)
        return;
    if (holds(action))
        push(ended->is_lost ? &self->lost : &self->ended,
             (call){ended->message, 0, ended->channel, now_ms, ended->is_lost, action});
    drop_running(self, ended);
}

/* Moves the last `most` calls of a channel to the lost ones, and drops the others: the broker knows
 * their end. */
static void lose_ended(bh_calls *self, int64_t channel, int64_t most, int64_t now_ms)
{
    size_t newest = self->ended.next + BH_CALLS_MOST;
    int64_t kept = 0;
    for (size_t i = 1; i <= BH_CALLS_MOST; i++) {
        call *ended = &self->ended.items[(newest - i) % BH_CALLS_MOST];
        if (!ended->message || ended->channel != channel)
            continue;
        if (kept++ < most)
            push(&self->lost, (call){ended->message, 0, channel, now_ms, 1, ended->action});
        drop(&self->ended, ended);
    }
}

/* Returns how many of a channel's last acknowledgements the broker may not have. */
static int64_t most_lost(int64_t prefetch)
{
    if (prefetch < 0)
        return 0;
    return prefetch == 0 || prefetch > BH_CALLS_MOST / BH_CALLS_PREFETCHES ? BH_CALLS_MOST
                                                                           : BH_CALLS_PREFETCHES * prefetch;
}

void bh_calls_lose_channel(bh_calls *self, int64_t channel, int64_t prefetch, int64_t now_ms)
{
    if (!self)
        return;
    for (size_t i = 0; i < self->running_count; i++) {
        call *running = &self->running[i];
        if (!running->message || running->channel != channel || running->is_lost)
            continue;
        running->is_lost = 1;
        running->since_ms = now_ms;
    }
    lose_ended(self, channel, most_lost(prefetch), now_ms);
}
