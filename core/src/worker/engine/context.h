/* Context: what the parts of the engine share: the ledger and the messages in hand, who is told, random bytes. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_CONTEXT_H
#define BACKHOP_WORKER_ENGINE_CONTEXT_H

#include "engine/mailbox.h"
#include "engine/places.h"
#include "engine/settings.h"
#include "wire/clock.h"
#include "wire/link.h"
#include "wire/message.h"

#include <backhop/ledger.h>

/* When something that failed is to be tried again. Zero bytes: now. */
typedef struct bh__back_off {
    int64_t failures; /* one after the other */
    int64_t wait_ms;  /* the last one */
    int64_t due_ms;   /* monotonic */
} bh__back_off;

/* One of the worker's connections, and when to try it again. */
typedef struct bh__connection {
    bh__link link;
    const char *role;   /* "consume" or "publish" */
    const bh__uri *uri; /* that it is connected to, or was last; NULL: none yet */
    int64_t opened_ms;  /* monotonic */
    int has_worked;     /* a delivery or a confirm came over it */
    bh__back_off back_off;
} bh__connection;

typedef struct bh__context {
    const bh_worker *worker;
    const bh__settings *settings;
    bh__mailbox *mailbox;
    bh_ledger *ledger; /* of this run */
    bh_message *
        *messages; /* in hand, by the place of their entry; each a reference. NULL: the ledger needs its tag alone */
    size_t message_capacity;
    bh__connection consume;
    bh__connection publish;
    bh__places places;     /* of a relay */
    bh_delivery *delivery; /* of the message that is being decided on, as are history and plan */
    bh_history *history;
    bh_plan *plan;
    bh__buffer scratch;                    /* the copy's properties are written here first */
    int64_t guarded_count;                 /* messages that the guard decided on, and whose copies are not confirmed */
    int64_t guarded_ms;                    /* monotonic: since when there are any */
    int64_t heard_ms;                      /* monotonic: of the last thing that tells that the broker has its cluster */
    int64_t left_count;                    /* messages that were ever left in this run */
    int is_declared;                       /* the topology, as the mode says */
    int is_ready;                          /* connected, declared, consuming: told */
    bh__back_off setup;                    /* of declaring and consuming */
    char random[BH_PLAN_RANDOM_BYTES * 8]; /* drawn, and not used from random_used on */
    size_t random_used;
} bh__context;

/* BH_ERR_NO_MEMORY. */
bh_status bh__context_init(bh__context *self, const bh_worker *worker, const bh__settings *settings,
                           bh__mailbox *mailbox);
void bh__context_free(bh__context *self);
/* Before a run: a ledger without messages, by the settings. BH_ERR_NO_MEMORY, BH_ERR_STATE (no random bytes). */
bh_status bh__context_begin(bh__context *self);

/* Whether the broker is RabbitMQ 4.3 or newer. */
int bh__is_at_least_4_3(const bh__context *self);

/* Notes a failure, and how long to wait for the next attempt: the ms are returned. */
int64_t bh__note_failure(bh__context *self, bh__back_off *state);
/* `size` random bytes; NULL: the system has none. */
const char *bh__draw(bh__context *self, size_t size);

/* What an event tells; what is not set is none. */
typedef struct bh__news {
    bh_event_kind kind;
    bh_status status;
    bh_bytes text;  /* data NULL: none */
    bh_bytes cause; /* behind what the kind means each time */
    bh_bytes queue; /* none: the one that the worker consumes */
    bh_bytes id;
    bh_bytes reason;
    bh_bytes error;
    int64_t attempts;
    int64_t delay_ms;
    int64_t count;
    int64_t duration_us;
    const bh__connection *connection;
    const bh_message *message; /* that it is about, for its number and its error; NULL: none */
    const bh_history *history; /* of that, just read; NULL: it was not */
} bh__news;

/* Whether anybody wants to know of this kind: else nothing has to be found out for it. */
int bh__wants(const bh__context *self, bh_event_kind kind);
/* Counts an event and tells it, where that is wanted, in any thread; where there is no memory for it, it counts as missed. */
void bh__tell(const bh__context *self, bh__news news);
/* The same, and ends the worker's life with it. */
void bh__tell_last(const bh__context *self, bh__news news);

/* Takes a message in hand whose entry is new: the reference is the context's. False: no memory. */
int bh__hold(bh__context *self, bh_message *message);
/* The message of an entry; NULL: the ledger needs no more than its tag, or it has ended. */
bh_message *bh__held(const bh__context *self, int64_t entry);
/* Frees the reference: no copy is to be made of it any more. */
void bh__release(bh__context *self, int64_t entry);
/* Ends a channel in the ledger, and frees the references to what came on it. How many messages the broker has again. */
int64_t bh__release_channel(bh__context *self, int64_t channel);

#endif
