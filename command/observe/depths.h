/* Depths: how many messages are ready in the queues of a namespace, by passive declarations:
 * nothing is taken or changed. */
#ifndef BACKHOP_COMMAND_DEPTHS_H
#define BACKHOP_COMMAND_DEPTHS_H

#include "common/connection.h"
#include "common/management.h"
#include "observe/overdue.h"
#include "setup/setup.h"

/* Listed in the order of the output. */
typedef enum depth_kind { DEPTH_WORK, DEPTH_PARKED, DEPTH_UNROUTABLE, DEPTH_WAITING } depth_kind;

enum { DEPTH_PAST = 40 };

typedef struct depth {
    depth_kind kind;
    int is_found; /* 1: a wait queue that no rung of the policy has, found by the management API */
    char name[256];
    char work_queue[256]; /* its own name, or the queue that its messages are parked from; "" if it serves many */
    int64_t wait_ms;      /* of a wait queue */
    int64_t ready;        /* -1: the queue is not there, or may not be looked at */
    int64_t consumers;    /* -1 the same */
    int is_refused;       /* 1: the user may not look at the queue, and ready is -1 */
    int64_t late;         /* overdue messages of a wait queue */
    overdue watch;
    int64_t looked_ms;        /* monotonic: when it was looked for last */
    int64_t past[DEPTH_PAST]; /* earlier depths that `backhop top` keeps, the latest last; -1: not known */
} depth;

typedef struct depths {
    depth *items;
    size_t count;
    char exchange[256];    /* that a work queue is bound to, or could be */
    char wait_prefix[256]; /* the beginning of the names of wait queues; "": the strategy has no shared wait queues */
    int64_t listed_ms;     /* monotonic: when the wait queues were listed last */
} depths;

/* The queues of these work queues: each itself, its parked queue, and once the wait queues and the
 * unroutable queue. */
void depths_plan(depths *self, const topology_options *topology, const policy_options *policy, char **queues,
                 int count);
void depths_free(depths *self);
/*
 * Adds the wait queues of the namespace that exist, of any policy, by the management API. Lists
 * them once a minute at most. If the API does not answer, it complains and adds none.
 *
 * api: NULL adds none.
 */
void depths_find(depths *self, management *api);
/* Returns the beginning of the names of wait queues if these are to be listed now; else "". */
const char *depths_wanted(const depths *self);
/* Adds the wait queues among the names that the management API listed. */
void depths_add_waiting(depths *self, const queue_names *found);
/* Reads all queues; missing queues once a minute. BH_ERR_CONNECTION and its kin:
 * broker->problem. */
bh_status depths_read(depths *self, connection *broker);
/* Returns 1 for a wait queue that does not exist yet: a worker declares it on demand. */
int depth_is_not_made(const depth *self);
enum { REFUSED_TEXT = 128 };
/* Writes how many queues the user may not look at, and the permission that the user needs. Returns
 * 0 if there are none. */
int depths_show_refused(const depths *self, char out[REFUSED_TEXT]);
/*
 * Returns when the first message of a wait queue comes back at the latest, in ms since the epoch.
 * It has been there at least since the depth fell last.
 *
 * now_ms: the time of the last look.
 */
int64_t depth_due_by_ms(const depth *self, int64_t now_ms);
const char *depth_word(depth_kind kind);

#endif
