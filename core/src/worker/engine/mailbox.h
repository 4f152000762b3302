/* Mailbox: what passes between callers and the worker's thread. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_MAILBOX_H
#define BACKHOP_WORKER_ENGINE_MAILBOX_H

#include "event_internal.h"
#include "wire/message.h"

#include <pthread.h>

#define BH__NEVER INT64_MAX /* no stop was asked for */

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

typedef struct bh__mailbox {
    pthread_mutex_t mutex;
    pthread_mutex_t taking; /* locked before the mutex: callers disturb the thread once for many messages */
    pthread_mutex_t reading;
    pthread_mutex_t counting;
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
    _Atomic(bh_message *) settled; /* the last one; each leads to the one before. A mark: closed */
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
    /* under `counting`; NULL: none are counted, which changes only while the worker does not run */
    bh_metrics *metrics;
    atomic_llong unconfirmed_count; /* copies */
} bh__mailbox;

/* False: no memory, or no descriptors. */
int bh__mailbox_init(bh__mailbox *self);
void bh__mailbox_free(bh__mailbox *self);
/* Whether this process is a fork of the one that made the worker. */
int bh__mailbox_is_forked(const bh__mailbox *self);
/* Wakes the thread; may be called from a signal handler. */
void bh__mailbox_wake(bh__mailbox *self);

/* Whether messages can be taken: it runs, and was not told to stop. */
static inline int bh__mailbox_gives(const bh__mailbox *self)
{
    return atomic_load(&self->life) == BH__RUNNING && atomic_load(&self->stop_ms) == BH__NEVER;
}

/* For callers. */
bh_message *bh__mailbox_take(bh__mailbox *self);
/* Waits for a message, for an event too where asked, or for the end; at most so long. */
void bh__mailbox_wait(bh__mailbox *self, int64_t timeout_ms, int for_events);
/* The descriptor, which is kept up from now on. */
int bh__mailbox_watch(bh__mailbox *self);
/* False: one is under way. */
int bh__mailbox_ask_replay(bh__mailbox *self, int64_t most);
bh_event *bh__mailbox_take_event(bh__mailbox *self);
/* Hands over a settled message with a reference. False: the thread takes no more (bh__mailbox_close). */
int bh__mailbox_settle(bh__mailbox *self, bh_message *message);

/* For the thread. Adds messages to be taken, each with a reference for who takes it; takes back those nobody took. */
void bh__mailbox_offer(bh__mailbox *self, bh__queue *messages);
void bh__mailbox_withdraw(bh__mailbox *self, bh__queue *out);
/* The replay that was asked for, which is under way from now on; -1: none. And its end. */
int64_t bh__mailbox_begin_replay(bh__mailbox *self);
void bh__mailbox_end_replay(bh__mailbox *self);
/* All that was settled since; each message comes with a reference. The second takes nothing more after that: whoever
 * settles then is told so. */
void bh__mailbox_collect(bh__mailbox *self, bh__queue *out);
void bh__mailbox_close(bh__mailbox *self, bh__queue *out);
/* Before the thread starts: what is settled is taken from now on. */
void bh__mailbox_open(bh__mailbox *self);
/* Adds an event; NULL counts one as missed. The last one ends the worker's life in the same moment. In any thread. */
void bh__mailbox_tell(bh__mailbox *self, bh_event *event, int is_last);
/* Counts an event, where metrics are counted. In any thread. */
void bh__mailbox_count(bh__mailbox *self, const bh_event *event);
/* Before a poll: how fast it will look again. False: so much was settled meanwhile that it must not wait. */
int bh__mailbox_lie_down(bh__mailbox *self, bh__sleep sleep);
/* After it. */
void bh__mailbox_get_up(bh__mailbox *self, int was_woken);

#endif
