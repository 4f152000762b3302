/* Mailbox: what callers' threads and the worker's thread hand each other. Callers take messages
 * and events, and hand over settled messages and requests. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_MAILBOX_H
#define BACKHOP_WORKER_ENGINE_MAILBOX_H

#include "events/internal.h"
#include "worker/wire/message.h"

#include <pthread.h>

#define BH__NEVER INT64_MAX /* no stop is requested */

typedef enum bh__life {
    BH__IDLE, /* never started */
    BH__RUNNING,
    BH__DRAINED
} bh__life;

/* How the thread can be woken. */
typedef enum bh__sleep {
    BH__AWAKE,
    BH__NAPPING, /* it looks by itself within a millisecond */
    BH__ASLEEP
} bh__sleep;

typedef struct bh__mailbox {
    pthread_mutex_t mutex;
    pthread_mutex_t taking; /* locked before the mutex, so that callers lock the mutex once per batch */
    pthread_mutex_t reading;
    pthread_mutex_t counting;
    pthread_cond_t arrived; /* a message, an event or the end; uses the monotonic clock */
    int has_locks;
    pthread_t thread;
    int has_thread;
    unsigned forks;                /* the process's count of forks when the worker was made */
    int wake[2];                   /* a pipe that wakes the thread, open while it runs; else -1 */
    atomic_int wake_end;           /* wake[1] while it may be written; else -1 */
    atomic_int wakers;             /* calls that may be writing to it */
    atomic_int life;               /* a bh__life */
    atomic_llong stop_ms;          /* monotonic: the end of draining; BH__NEVER: no stop */
    atomic_int sleep;              /* a bh__sleep */
    int64_t handler_timeout_ms;    /* of the settings; does not change while the thread runs */
    atomic_llong progress_ms;      /* monotonic: when a message was last taken, or was offered to idle callers */
    size_t wake_count;             /* settled messages that wake a napping thread */
    _Atomic(bh_message *) settled; /* the last settled message, linked to the earlier ones; or a mark: closed */
    atomic_size_t settled_count;
    atomic_size_t event_count;
    bh_breaker *breaker; /* permits each take; NULL: none. Does not change while the thread runs */
    /* under `taking` */
    bh__message_list at_hand; /* taken first */
    /* under the mutex */
    bh__message_list ready; /* taken after `at_hand` */
    int has_at_hand;
    int is_held; /* the breaker granted no permit: nothing can be taken until bh__mailbox_resume */
    bh_event *first_event;
    bh_event *last_event;
    int64_t missed_count;
    int64_t replay_most; /* -1: no replay is requested */
    int is_replaying;
    char *credentials; /* user and password, with a zero byte after each; NULL: the URIs have them */
    size_t credentials_size;
    bh_health health;
    int signal[2];  /* a pipe, readable while a message or an event can be taken; -1: closed */
    int is_watched; /* a caller has the descriptor */
    int is_signalled;
    /* under `reading`: for callers that read a message */
    bh_delivery *delivery;
    bh_history *history;
    /* under `counting`; NULL: no metrics. Set only while the worker does not run */
    bh_metrics *metrics;
    atomic_llong unconfirmed_count; /* copies that are not confirmed */
} bh__mailbox;

/* Makes the locks. Returns 0 if there is no memory. */
int bh__mailbox_init(bh__mailbox *self);
void bh__mailbox_free(bh__mailbox *self);
/* Returns 1 if this process is a fork of the process that made the worker. */
int bh__mailbox_is_forked(const bh__mailbox *self);
/* Wakes the thread, if it runs; may be called from a signal handler. */
void bh__mailbox_wake(bh__mailbox *self);

/* Returns 1 if messages can be taken: the worker runs and was not stopped. */
static inline int bh__mailbox_is_delivering(const bh__mailbox *self)
{
    return atomic_load(&self->life) == BH__RUNNING && atomic_load(&self->stop_ms) == BH__NEVER;
}

/* For callers. */

/* Takes the next message; NULL: none, or the breaker grants no permit. */
bh_message *bh__mailbox_take(bh__mailbox *self);
/* Records the end of a message's call, if it has a permit. */
void bh__mailbox_record(const bh__mailbox *self, const bh_message *message, bh_call call);
/* Waits for a message or the end; also for an event if `for_events`. */
void bh__mailbox_wait(bh__mailbox *self, int64_t timeout_ms, int for_events);
/* Returns the descriptor and keeps its state right from now on; -1: the system gives none. */
int bh__mailbox_watch(bh__mailbox *self);
/* Closes the descriptor, unless the worker runs. */
void bh__mailbox_unwatch(bh__mailbox *self);
/* Requests a replay. Returns 0 if one is requested or runs. */
int bh__mailbox_request_replay(bh__mailbox *self, int64_t most);
/* Sets user and password for later logins. Returns 0 if there is no memory. */
int bh__mailbox_set_credentials(bh__mailbox *self, bh_bytes user, bh_bytes password);
/* Takes the next event; NULL: none. */
bh_event *bh__mailbox_take_event(bh__mailbox *self);
/* Hands over a settled message with a reference. Returns 0 if the mailbox is closed. */
int bh__mailbox_settle(bh__mailbox *self, bh_message *message);

/* For the thread. */

/* Copies what bh__mailbox_set_credentials set. *out: user and password, with a zero byte after
 * each. Free it. NULL if nothing was set. Returns 0 if there is no memory. */
int bh__mailbox_copy_credentials(bh__mailbox *self, char **out);
/* Adds messages to be taken, each with a reference for its taker. */
void bh__mailbox_offer(bh__mailbox *self, bh__message_list *messages);
/* Takes back the messages that no caller took. */
void bh__mailbox_withdraw(bh__mailbox *self, bh__message_list *out);
/* Lets callers take again: the breaker may grant a permit. */
void bh__mailbox_resume(bh__mailbox *self);
/* Begins the requested replay and returns its limit; -1: none is requested. */
int64_t bh__mailbox_begin_replay(bh__mailbox *self);
/* Ends the replay, so that the next can be requested. */
void bh__mailbox_end_replay(bh__mailbox *self);
/* Moves all settled messages to `out`, each with a reference. */
void bh__mailbox_collect(bh__mailbox *self, bh__message_list *out);
/* Like bh__mailbox_collect, and closes the mailbox: later settlements are refused. */
void bh__mailbox_close(bh__mailbox *self, bh__message_list *out);
/* Opens the mailbox for settled messages, and its pipes, before the thread starts. Returns 0 if the
 * system gives no descriptors. */
int bh__mailbox_open(bh__mailbox *self);
/* Closes the pipe that wakes the thread, at its end. */
void bh__mailbox_end(bh__mailbox *self);
/* Applies an event to the health, from any thread. */
void bh__mailbox_observe(bh__mailbox *self, const bh_event *event);
/* Returns the number of messages that wait to be taken. */
size_t bh__mailbox_waiting(bh__mailbox *self);
/* Adds an event, from any thread; NULL counts a missed one. The last event ends the worker's
 * life. */
void bh__mailbox_push_event(bh__mailbox *self, bh_event *event, int is_last);
/* Counts an event in the metrics, if there are any. From any thread. */
void bh__mailbox_count(bh__mailbox *self, const bh_event *event);
/* Announces a poll. Returns 0 if settled messages are waiting, so that the thread must not
 * block. */
int bh__mailbox_begin_wait(bh__mailbox *self, bh__sleep sleep);
/* Ends the announcement after the poll. */
void bh__mailbox_end_wait(bh__mailbox *self, int was_woken);

#endif
