/*
 * Waiting: whether messages that a replay sent back wait for a retry.
 *
 * A message that fails again is parked only after its last attempt. Before that it is in a wait
 * queue, whose messages must not be read. All work queues of a namespace share the wait queues, so
 * their growth is an estimate.
 */
#ifndef BACKHOP_COMMAND_PARKED_WAITING_H
#define BACKHOP_COMMAND_PARKED_WAITING_H

#include "common/connection.h"

#include <backhop/topology.h>

typedef struct waiting_queue {
    char *name; /* owned */
    int64_t ms; /* its delay */
    int64_t before, ready;
} waiting_queue;

typedef struct waiting {
    connection *broker;
    waiting_queue *queues; /* that exist, by delay */
    size_t count;
    int64_t before;    /* messages in them before the replay */
    int64_t more;      /* messages above `before`, as of the last look; 0: none, or not known */
    int64_t lasting;   /* the smaller `more` of the last two looks: one look can count probes of doctor */
    int64_t next_ms;   /* monotonic: no look before */
    int64_t parked_ms; /* how long a message that fails each attempt is retried; -1: the policy has no limit */
} waiting;

/* Finds the wait queues of a topology, and counts their messages. Errors leave none to look at. */
void waiting_begin(waiting *self, connection *broker, const bh_topology *topology, const bh_policy *policy);
void waiting_free(waiting *self);
/* Looks right before the first copy. The larger of two counts is `before`: messages of others come
 * and go. */
void waiting_start(waiting *self);
/* Looks if the last look is long enough ago; must_look: at once. */
void waiting_look(waiting *self, int64_t now_ms, int must_look);
/* Returns how many of `done` replayed messages wait, as an estimate. */
static inline int64_t waiting_again(const waiting *self, int64_t done)
{
    return self->more < done ? self->more : done;
}
/*
 * Returns how many replayed messages have to wait or be parked to stop a replay. That is
 * `stop_after`, or a tenth of `done`, because single failures are no sign. It is half of `before`
 * at least, because other messages come and go.
 */
static inline int64_t waiting_limit(int64_t stop_after, int64_t done, int64_t before)
{
    int64_t limit = done / 10 > before / 2 ? done / 10 : before / 2;
    return limit > stop_after ? limit : stop_after;
}

#endif
