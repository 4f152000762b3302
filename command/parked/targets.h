/* Targets: the queues that a replay sends messages to. */
#ifndef BACKHOP_COMMAND_PARKED_TARGETS_H
#define BACKHOP_COMMAND_PARKED_TARGETS_H

#include "parked/parked.h"

enum { TARGETS_MOST = 1000, TARGETS_TEXT = 300 };

typedef struct target {
    bh_topology *topology; /* NULL: no work queue with a parked queue */
    bh_policy *policy;
    char name[256];
} target;

typedef struct targets {
    const parked *from;
    target *items; /* one; or one for each work queue of the unroutable queue */
    size_t count;
    int is_open;             /* work queues are added as their messages come */
    int64_t ready;           /* of a single target without consumers, at first; -1: not compared */
    int64_t done, looked_ms; /* as of the last look at it */
    int64_t gone;            /* that it has fewer than were replayed to it */
    char text[TARGETS_TEXT];
} targets;

/*
 * Opens the targets of a parked queue: `to`, or its work queue. For the unroutable queue without
 * `to`: the work queue that the header backhop-queue of each message names. That header is
 * untrusted: only a queue that has a parked queue is a target. EX_OK, or complains and returns the
 * exit code.
 */
int targets_open(targets *self, const parked *from, const char *to);
void targets_close(targets *self);
/* Returns the topology that plans the copy of a message; NULL if its work queue does not exist, or
 * if federation brought the message (bh_topology_owns). */
const bh_topology *targets_find(targets *self, const bh_delivery *delivery);
/* The single target's name, or "their work queues"; text has quotation marks around a name. */
const char *targets_name(const targets *self);
const char *targets_text(const targets *self);
/* Returns 1 if a single target without consumers has fewer messages than were replayed to it a
 * second ago. */
int targets_drop_messages(targets *self, int64_t done, int64_t now_ms);
/* Returns 1 if it has fewer after `done` messages, and waits some seconds for the broker's
 * count. */
int targets_dropped_messages(targets *self, int64_t done);

#endif
