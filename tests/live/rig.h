/*
 * Rig: what most tests need. A work queue bound to an exchange, and a worker that retries it, all
 * with names of their own.
 *
 *     rig *r = rig_new(BH_STRATEGY_LADDER, BH_QUEUE_QUORUM);     a fixed delay of RIG_DELAY_MS, no jitter, 3 attempts
 *     policy_set_max_attempts(r->policy, 5);                  what the test wants else
 *     rig_start(r);                                              connects, declares, binds
 *     rig_take(r, "first");
 *     rig_fail(r, "507");                                        settles, and waits until it is carried out
 *     rig_await(r, BH_EVENT_DISCONNECTED);                       what the worker has to tell, then in r->event
 *     ...
 *     rig_free(r);                                               and what it made is removed when the process ends
 */
#ifndef BACKHOP_LIVE_RIG_H
#define BACKHOP_LIVE_RIG_H

#include "../topologies.h"
#include "broker.h"

#include <backhop/worker.h>
#include <check.h>

#define RIG_DELAY_MS 50

typedef struct rig {
    broker *broker;
    char ns[256];       /* the ladder's namespace, and the prefix of every name here */
    char queue[256];    /* the work queue */
    char parked[300];   /* the parked queue */
    char exchange[264]; /* a topic exchange for the tests' messages; "work.#" is bound to the work queue */
    bh_strategy strategy;
    bh_queue_type type;
    bh_policy *policy;
    bh_topology *topology;
    bh_worker *worker;
    bh_worker_settings settings; /* the worker's; rig_set changes one */
    bh_policy *back_off;         /* of these settings; NULL: the default */
    bh_message *message;         /* what rig_take took last; the next rig_take frees it */
    bh_delivery *delivery;       /* the same, read */
    bh_history *history;
    bh_event *event;   /* the event that was awaited last; waiting for the next frees it */
    bh_event **events; /* events that were not awaited yet, the oldest first */
    size_t event_count;
} rig;

rig *rig_new(bh_strategy strategy, bh_queue_type type);
/* Makes a rig for another work queue in the namespace of the first one. */
rig *rig_new_beside(const rig *first, const char *name);
/* Names of the test's own. */
void rig_rename(rig *self, const char *ns, const char *queue);
/* The work queue is the user's: the topology does not make it. */
void rig_leave_work_queue(rig *self);
/* The steps of rig_start. The first builds the topology. The second makes a worker, which the test
 * may give other settings. The third starts it, and waits until it is connected. */
void rig_prepare(rig *self);
void rig_make_worker(rig *self);
void rig_connect(rig *self);
/* Gives the worker this setting. A pointer has to stay valid until the last of these calls. */
#define rig_set(self, field, value) ((self)->settings.field = (value), rig_apply(self))
void rig_apply(rig *self);
void rig_set_timeouts(rig *self, int64_t connect_ms, int64_t confirm_ms);
/* Gives the worker's histories an earlier counter and wait queue. NULL: none. */
void rig_set_history(rig *self, const char *legacy_counter, const char *wait_queue);
/* That a worker with this setting is refused, and keeps the ones before. */
#define rig_expect_refused(self, field, value, status)                                                                 \
    do {                                                                                                               \
        bh_worker_settings refused = (self)->settings;                                                                 \
        refused.field = (value);                                                                                       \
        expect_status((self)->worker, bh_worker_set((self)->worker, &refused), status);                                \
    } while (0)
/* Connects by this URL. */
void rig_connect_by(rig *self, const char *url);
/* Takes all of these steps that the test did not take itself; and binds the work queue. */
void rig_start(rig *self);
/* Frees the worker, so that its unsettled messages go back, and frees its events. */
void rig_stop_worker(rig *self);
/* Stops the worker, sees that nothing is ready in the work queue, and frees the rig. */
void rig_free_with_nothing_ready(rig *self);
/* Another worker instead of this one, in this mode. */
void rig_restart(rig *self, bh_mode mode);
void rig_free(rig *self);

/* Names of this rig: "<ns>.<suffix>", "<ns>.wait.<ms>". Valid until the eighth call after. */
const char *rig_name(const rig *self, const char *suffix);
const char *rig_rung(const rig *self, int64_t ms);
/* A queue of the namespace, bound to the rig's exchange by the key. */
const char *rig_sibling(rig *self, const char *suffix, const char *key);

/*
 * Waits until the broker has read the worker's acknowledgements of all settled messages from the
 * socket. The worker replays its empty parked queue: the broker answers on the consume connection,
 * after it has read what came there before.
 *
 * RabbitMQ hands acknowledgements to their channel's process. On a busy machine it can still lose
 * them if the connection is cut at once. A test that must not lose any has a worker and a queue for
 * each cut.
 */
void rig_await_read(rig *self);
/* Waits until bh_worker_state returns this state. Returns its reason, which is valid until the next
 * call. */
const char *rig_await_health(rig *self, bh_health_state state);

/* Takes the next message, within RESENT_MS. If `body` is given, the message must have it. */
void rig_take(rig *self, const char *body);
/* Takes the next message, if one comes within this time; else returns 0. */
int rig_try_take(rig *self, int64_t ms);
/* Fails the test if something arrives within this time. */
void rig_expect_silence(rig *self, int64_t ms);
/* Settles the taken message, and does not wait. */
void rig_settle(rig *self, bh_outcome outcome, const char *error, int64_t retry_after_ms);
/* Waits until a settled message is retried, parked or stale, and returns which. */
bh_event_kind rig_await_end(rig *self);
/* Waits until the taken and settled message is retried or parked; r->event has which, and its
 * count. */
void rig_await_settled(rig *self);
/* These do both: one for a message that failed, one for a message that cannot succeed. */
void rig_fail(rig *self, const char *error);
void rig_park(rig *self, const char *error);
/* Settles and does not wait: there is no event for it. */
void rig_succeed(rig *self);
/* Publishes a text to the rig's exchange. */
void rig_publish(rig *self, const char *routing_key, const char *body);
/* Publishes "first" for the work queue, with this message-id, and takes it. */
void rig_publish_and_take(rig *self);

/*
 * The oldest event of this kind that was not awaited yet, within LIMIT_MS, in r->event. Events of
 * other kinds stay for later calls. If none comes, the test fails and shows the events that came.
 */
void rig_await(rig *self, bh_event_kind kind);
/* How many of this kind have come and were not awaited. */
int rig_count_events(rig *self, bh_event_kind kind);
/* Frees all events, so that the next awaited one is new. */
void rig_forget_events(rig *self);
/* Waits until the worker's descriptor is readable; returns 0 if it was not in this time. */
int rig_wait_readable(const rig *self, int64_t ms);

/* That a text, as bytes or as a C string, is this one. */
#define expect_bytes(got, want) expect_text_at((got), (want), __FILE__, __LINE__)
/* That the call on the worker returns this status. */
#define expect_status(worker, call, want) expect_status_at((worker), (call), (want), #call, __FILE__, __LINE__)
#define expect_ok(worker, call) expect_status(worker, call, BH_OK)
/* That a text holds this. */
#define expect_part(text, part) expect_part_at((text), (part), __FILE__, __LINE__)
/* That an event of this kind comes, with this status and in its text this part. It is then
 * r->event. */
#define expect_event(r, kind, status, part) expect_event_at((r), (kind), (status), (part), __FILE__, __LINE__)
/* That no event of this kind has come that was not awaited. */
#define expect_no_event(r, kind) expect_no_event_at((r), (kind), __FILE__, __LINE__)
/* That the message settled last was retried with this delay, or parked for this reason: r->event is
 * about it. */
#define expect_retried(r, delay_ms) expect_retried_at((r), (delay_ms), __FILE__, __LINE__)
#define expect_parked(r, reason) expect_parked_at((r), (reason), __FILE__, __LINE__)
/* That the taken message is this attempt; that it was first published there. */
#define expect_attempt(r, attempt) expect_attempt_at((r), (attempt), __FILE__, __LINE__)
#define expect_origin(r, exchange, routing_key) expect_origin_at((r), (exchange), (routing_key), __FILE__, __LINE__)

void expect_text_at(bh_bytes got, const char *want, const char *file, int line);
void expect_status_at(const bh_worker *worker, bh_status got, bh_status want, const char *call, const char *file,
                      int line);
void expect_part_at(bh_bytes text, const char *part, const char *file, int line);
void expect_event_at(rig *r, bh_event_kind kind, bh_status status, const char *part, const char *file, int line);
void expect_no_event_at(rig *r, bh_event_kind kind, const char *file, int line);
void expect_retried_at(const rig *r, int64_t delay_ms, const char *file, int line);
void expect_parked_at(const rig *r, const char *reason, const char *file, int line);
void expect_attempt_at(const rig *r, int64_t attempt, const char *file, int line);
void expect_origin_at(const rig *r, const char *exchange, const char *routing_key, const char *file, int line);
int holds(bh_bytes text, const char *part);

/* That it is `delay` ms since `start` or later. A busy machine may be late without limit. */
void expect_waited(int64_t start, int64_t delay);

/* One message of Backhop's: the headers that a copy of it has. */
void expect_history(const message *copy, const rig *r, int64_t attempts, const char *error);
/* Returns 1 if it is one of the broker's or Backhop's own headers. */
int is_added_header(bh_bytes name);
/* That the copy has each header of the original, byte for byte, and no other except added ones. */
void expect_same_headers(const message *copy, const message *original);
/* That the copy has the original's properties byte for byte, but these. */
void expect_same_properties(const message *copy, const message *original);

/* Settles a message, with what most tests give. */
static inline bh_status settle_as(bh_worker *worker, bh_message *taken, bh_outcome outcome, const char *error,
                                  int64_t retry_after_ms)
{
    return bh_worker_settle(
        worker, taken, &(bh_settlement){.outcome = outcome, .error = bh_str(error), .retry_after_ms = retry_after_ms});
}

/* Settles a message by another policy than the worker's. */
static inline bh_status settle_by(bh_worker *worker, bh_message *taken, const bh_policy *policy, bh_outcome outcome,
                                  const char *error)
{
    return bh_worker_settle(worker, taken,
                            &(bh_settlement){.outcome = outcome, .error = bh_str(error), .policy = policy});
}

#endif
