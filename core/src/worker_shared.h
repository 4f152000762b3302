/* Shared: what passes between callers and the worker's thread. Internal. */
#ifndef BACKHOP_WORKER_SHARED_H
#define BACKHOP_WORKER_SHARED_H

#include "event_internal.h"
#include "worker_message.h"

#include <pthread.h>

#define BH__NEVER INT64_MAX /* no stop was asked for */
#define BH__MOST_EVENTS 1024

typedef enum bh__life {
    BH__IDLE, /* never started */
    BH__RUNNING,
    BH__DRAINED
} bh__life;

/* How much of a nudge the thread needs. */
typedef enum bh__sleep {
    BH__AWAKE,
    BH__NAPPING, /* it looks again within a millisecond */
    BH__ASLEEP
} bh__sleep;

typedef struct bh__shared {
    pthread_mutex_t mutex;
    pthread_mutex_t taking; /* locked before the mutex: callers disturb the thread once for many messages */
    pthread_mutex_t reading;
    pthread_cond_t arrived; /* a message, or the end; monotonic */
    int has_locks;
    pthread_t thread;
    int has_thread;
    unsigned forks;                /* of this process, when the worker was made */
    int signal[2];                 /* a pipe, readable while there is something to take */
    int wake[2];                   /* a pipe, for the thread */
    atomic_int life;               /* a bh__life */
    atomic_llong stop_ms;          /* monotonic: when draining has to end; BH__NEVER */
    atomic_int sleep;              /* a bh__sleep */
    size_t many;                   /* settled messages that are worth waking a napping thread */
    _Atomic(bh_message *) settled; /* the last one; each leads to the one before */
    atomic_size_t settled_count;
    atomic_size_t event_count;
    /* under `taking` */
    bh__queue at_hand; /* to be taken next */
    /* under the mutex */
    bh__queue ready; /* behind those */
    int has_at_hand;
    bh_event *first_event;
    bh_event *last_event;
    int64_t missed_count;
    int64_t replay_most; /* asked for; -1: none */
    int is_replaying;
    int is_watched; /* somebody asked for the descriptor */
    int is_signalled;
    /* under `reading`, for bh_worker_attempt */
    bh_delivery *delivery;
    bh_history *history;
} bh__shared;

/* False: no memory, or no descriptors. */
int bh__shared_init(bh__shared *self);
void bh__shared_free(bh__shared *self);
/* Whether this process is a fork of the one that made the worker. */
int bh__shared_is_forked(const bh__shared *self);
/* Wakes the thread; may be called from a signal handler. */
void bh__shared_wake(bh__shared *self);

/* Whether messages can be taken: it runs, and was not told to stop. */
static inline int bh__shared_gives(const bh__shared *self)
{
    return atomic_load(&self->life) == BH__RUNNING && atomic_load(&self->stop_ms) == BH__NEVER;
}

/* For callers. */
bh_message *bh__shared_take(bh__shared *self);
/* Waits for a message, for an event too where asked, or for the end; at most so long. */
void bh__shared_wait(bh__shared *self, int64_t timeout_ms, int for_events);
/* The descriptor, which is kept up from now on. */
int bh__shared_watch(bh__shared *self);
/* False: one is under way. */
int bh__shared_ask_replay(bh__shared *self, int64_t most);
bh_event *bh__shared_take_event(bh__shared *self);
void bh__shared_settle(bh__shared *self, bh_message *message);

/* For the thread. Adds messages to be taken, each with a reference for who takes it; takes back those nobody took. */
void bh__shared_offer(bh__shared *self, bh__queue *messages);
void bh__shared_withdraw(bh__shared *self, bh__queue *out);
/* The replay that was asked for, which is under way from now on; -1: none. And its end. */
int64_t bh__shared_begin_replay(bh__shared *self);
void bh__shared_end_replay(bh__shared *self);
/* All that was settled since; each message comes with a reference. */
void bh__shared_collect(bh__shared *self, bh__queue *out);
/* Adds an event; NULL counts one as missed. `life` is set in the same moment, or BH__RUNNING. */
void bh__shared_tell(bh__shared *self, bh_event *event, bh__life life);
/* Before a poll: how fast it will look again. False: so much was settled meanwhile that it must not wait. */
int bh__shared_lie_down(bh__shared *self, bh__sleep sleep);
/* After it. */
void bh__shared_get_up(bh__shared *self, int was_woken);

#endif
