/* Context: the state that the parts of the engine share. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_CONTEXT_H
#define BACKHOP_WORKER_ENGINE_CONTEXT_H

#include "worker/engine/mailbox.h"
#include "worker/engine/work_queues.h"
#include "worker/engine/settings.h"
#include "worker/wire/clock.h"
#include "worker/wire/link.h"
#include "worker/wire/message.h"

#include "base/siphash.h"
#include "flow/back_off.h"

#include <backhop/adapter/flow.h>
#include <backhop/adapter/ledger.h>

/* One of the worker's connections, and when to try it again. */
typedef struct bh__connection {
    bh__link link;
    const char *role;   /* "consume" or "publish" */
    const bh__uri *uri; /* of this connection, or of the last one; NULL: none yet */
    int64_t opened_ms;  /* monotonic */
    int has_worked;     /* a message was settled on it, or a confirm arrived */
    bh__back_off back_off;
} bh__connection;

/* How far the worker is set up. */
typedef struct bh__setup {
    int is_declared; /* the topology is declared or verified, according to the mode */
    int is_ready;    /* it is connected and consumes; BH_EVENT_CONNECTED was emitted */
    bh__back_off back_off;
} bh__setup;

/* Objects that every decision reuses. */
typedef struct bh__work {
    bh_delivery *delivery;
    bh_history *history;
    bh_plan *plan;
    bh__buffer properties; /* of the copy */
} bh__work;

/* Messages in hand, by the index of their ledger entry. Each item is a reference. NULL: the
 * ledger needs only the delivery tag. */
typedef struct bh__messages_in_hand {
    bh_message **items;
    size_t capacity;
} bh__messages_in_hand;

/* Messages that the guard decided on (bh__guard) and whose copies are not confirmed. */
typedef struct bh__guarded {
    int64_t count;
    int64_t since_ms; /* monotonic: when the count left 0 */
} bh__guarded;

/* Retries that came back before their time, since the last event about them. */
typedef struct bh__early {
    int64_t count;
    int64_t most_ms;  /* of the earliest */
    int64_t next_ms;  /* monotonic: no event before */
    int64_t ahead_ms; /* how far the clock was ahead of the monotonic one, before it was set back */
    int64_t until_ms; /* monotonic: until when that holds */
} bh__early;

/* Random bytes, drawn in blocks. */
typedef struct bh__random_pool {
    char bytes[BH_PLAN_RANDOM_BYTES * 8];
    size_t used;
} bh__random_pool;

typedef struct bh__context {
    const bh_worker *worker;
    const bh__settings *settings;
    bh__mailbox *mailbox;
    bh_ledger *ledger; /* of this run */
    bh__messages_in_hand in_hand;
    bh__connection consume;
    bh__connection publish;
    bh__work_queues work_queues; /* of a relay */
    bh__setup setup;
    bh__work work;
    bh__guarded guard;
    bh__early early;
    bh__random_pool random;
    bh__siphash_key key;     /* of the fingerprints of messages, in this run */
    int64_t alive_ms;        /* monotonic: the last sign that the broker has its cluster */
    int64_t abandoned_count; /* messages that were abandoned in this run */
    int64_t skipped_count;   /* messages that a replay skipped: unacknowledged until its channel is closed */
} bh__context;

/* Makes the objects that decisions need. BH_ERR_NO_MEMORY. */
bh_status bh__context_init(bh__context *self, const bh_worker *worker, const bh__settings *settings,
                           bh__mailbox *mailbox);
void bh__context_free(bh__context *self);
/* Makes an empty ledger for a run. BH_ERR_NO_MEMORY; BH_ERR_STATE if there are no random bytes. */
bh_status bh__context_begin(bh__context *self);

/* Returns 1 if the broker is RabbitMQ 4.3 or newer. */
int bh__is_at_least_4_3(const bh__context *self);

/* Counts a failure. Returns the delay of the next attempt, in ms. */
int64_t bh__note_failure(bh__context *self, bh__back_off *state);
/* Returns `size` random bytes; NULL: the system has none. */
const char *bh__draw(bh__context *self, size_t size);

/* The fields of an event. Fields that are not set are left out. */
typedef struct bh__event_data {
    bh_event_kind kind;
    bh_status status;
    bh_bytes text;  /* data NULL: the text of the kind */
    bh_bytes cause; /* appended to the text of the kind */
    bh_bytes queue; /* empty: the worker's queue */
    bh_bytes id;
    bh_bytes reason;
    bh_bytes error;
    int64_t attempts;
    int64_t deferrals;
    int64_t delay_ms;
    int64_t count;
    int64_t duration_us;
    const bh__connection *connection;
    const bh_message *message; /* its subject; NULL: none */
    const bh_history *history; /* of that message; NULL: not read */
    const bh_flow *flow;       /* whose step this is; NULL: none */
} bh__event_data;

/* Returns 1 if events of this kind are emitted or counted. */
int bh__is_observed(const bh__context *self, bh_event_kind kind);
/* Counts and emits an event, from any thread. If there is no memory, the event counts as missed. */
void bh__emit(const bh__context *self, bh__event_data data);
/* Like bh__emit, and ends the worker's life. */
void bh__emit_last(const bh__context *self, bh__event_data data);

/* Keeps a message by its new ledger entry, and takes over the caller's reference. Returns 0 if
 * there is no memory. */
int bh__add_in_hand(bh__context *self, bh_message *message);
/* Returns the message of an entry; NULL: the ledger needs only its tag, or the entry ended. */
bh_message *bh__find_in_hand(const bh__context *self, int64_t entry);
/* Frees the reference: the message needs no copy any more. */
void bh__release(bh__context *self, int64_t entry);
/* Closes a channel in the ledger and frees its messages, but for orphans. Returns the number of
 * messages that the broker delivers again. */
int64_t bh__release_channel(bh__context *self, int64_t channel);

#endif
