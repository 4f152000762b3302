/*
 * Rig: what most tests need. A work queue bound to an exchange, and a worker that retries it, all with names of their
 * own.
 *
 *     rig *r = rig_new(BH_STRATEGY_LADDER, BH_QUEUE_QUORUM);     a fixed delay of RIG_DELAY_MS, no jitter, 3 attempts
 *     bh_policy_set_max_attempts(r->policy, 5);                  what the test wants else
 *     rig_start(r);                                              declares, binds, connects
 *     ...
 *     rig_free(r);                                               and what it made is removed when the process ends
 */
#ifndef BACKHOP_LIVE_RIG_H
#define BACKHOP_LIVE_RIG_H

#include "broker.h"

#include <backhop/worker.h>
#include <check.h>

#define RIG_DELAY_MS 50

typedef struct rig {
    broker *broker;
    char ns[256];       /* the ladder's namespace, and the prefix of every name here */
    char queue[256];    /* the work queue */
    char parked[300];   /* where its messages are parked */
    char exchange[264]; /* topic: where the tests publish; "work.#" is bound to the work queue */
    bh_strategy strategy;
    bh_queue_type type;
    bh_policy *policy;
    bh_topology *topology;
    bh_worker *worker;
    bh_delivery *delivery; /* what rig_take took last */
} rig;

rig *rig_new(bh_strategy strategy, bh_queue_type type);
/* The same for another work queue in the namespace of the first one. */
rig *rig_new_beside(const rig *first, const char *name);
/* Names of the test's own. */
void rig_rename(rig *self, const char *ns, const char *queue);
/* The work queue is the user's: the topology does not make it. */
void rig_leave_work_queue(rig *self);
/* As rig_start, in steps: builds and makes the work queue; opens a worker; connects it. */
void rig_prepare(rig *self);
void rig_make_worker(rig *self);
void rig_connect(rig *self);
void rig_start(rig *self);
/* Frees the worker, so that what it has taken goes back. */
void rig_stop_worker(rig *self);
void rig_free(rig *self);

/* Names of this rig: "<ns>.<suffix>", "<ns>.wait.<ms>". Valid until the eighth call after. */
const char *rig_name(const rig *self, const char *suffix);
const char *rig_rung(const rig *self, int64_t ms);
/* A queue of the namespace, bound to the rig's exchange by the key. */
const char *rig_sibling(rig *self, const char *suffix, const char *key);

/* The next message, within LIMIT_MS; its body must be this one, where it is given. */
void rig_take(rig *self, const char *body);
/* Fails the test where something arrives within this time. */
void rig_expect_silence(rig *self, int64_t ms);
void rig_fail(rig *self, const char *error);
void rig_succeed(rig *self);
/* Publishes a text to the rig's exchange. */
void rig_publish(rig *self, const char *routing_key, const char *body);

/* That a text, as bytes or as a C string, is this one. */
#define expect_bytes(got, want) expect_text_at((got), (want), __FILE__, __LINE__)
/* That the call on the worker returns this status. */
#define expect_status(worker, call, want) expect_status_at((worker), (call), (want), #call, __FILE__, __LINE__)
#define expect_ok(worker, call) expect_status(worker, call, BH_OK)
/* That the worker's last error, or another text, holds this. */
#define expect_error(worker, part) expect_part_at(bh_worker_error(worker), (part), __FILE__, __LINE__)

void expect_text_at(bh_bytes got, const char *want, const char *file, int line);
void expect_status_at(const bh_worker *worker, bh_status got, bh_status want, const char *call, const char *file,
                      int line);
void expect_part_at(bh_bytes text, const char *part, const char *file, int line);
int holds(bh_bytes text, const char *part);

/* That it is `delay` ms since `start`, not less, and not much more. */
void expect_waited(int64_t start, int64_t delay);

/* One message of Backhop's: the headers that a copy of it has. */
void expect_history(const message *copy, const rig *r, int64_t attempts, const char *error);
/* Whether one of the broker's or Backhop's own headers. */
int is_added_header(bh_bytes name);
/* That the copy has each header of the original, byte for byte, and no other but those that are added. */
void expect_same_headers(const message *copy, const message *original);
/* That the copy has the original's properties byte for byte, but these. */
void expect_same_properties(const message *copy, const message *original);

#endif
