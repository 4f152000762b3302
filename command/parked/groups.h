/* Groups: parked messages that failed alike, counted in bounded memory. Pure. */
#ifndef BACKHOP_COMMAND_GROUPS_H
#define BACKHOP_COMMAND_GROUPS_H

#include "parked/selection.h"

/*
 * Further kinds of errors of a queue count as one. The limit is of each queue, so that no queue
 * hides others. After GROUPS_MOST groups each further queue has GROUPS_LEAST.
 */
enum { GROUPS_OF_QUEUE = 200, GROUPS_LEAST = 5, GROUPS_MOST = 8000, GROUPS_BUCKETS = 60 };

typedef struct group {
    char queue[256];
    int is_rest; /* the kinds of errors beyond the limit: kind and reason are words for them */
    char reason[32];
    char class[KIND_BYTES + 1];
    char kind[KIND_BYTES + 1];
    char id[256]; /* of one of them; "" if it has none */
    int64_t count;
    int64_t first_ms; /* of their first failures, ms since the epoch; -1: not known */
    int64_t last_ms;
    int64_t least_attempts;
    int64_t most_attempts;
    int64_t total;                      /* of the groups of all queues with this error and reason, after groups_join */
    uint32_t over_time[GROUPS_BUCKETS]; /* when they were parked */
} group;

typedef struct groups {
    group *items;
    size_t count;
    size_t begin;               /* of the groups of the queue that was counted last, until they are sorted */
    int64_t from_ms, bucket_ms; /* of `over_time`: its begin, since the epoch, and a bucket's length; 0: not counted */
} groups;

/* Writes why a message was parked, as groups compare it. */
void group_reason(char out[32], const bh_history *history);
/* Counts a message of a queue, which was parked at about `parked_ms`. The messages of a queue
 * follow each other, and none is counted after groups_sort or groups_join. Returns 0 if there is no
 * memory. */
int groups_add(groups *self, const char *queue, const bh_history *history, int64_t parked_ms);
/* Returns how many queues have more kinds of errors than groups. */
int64_t groups_cut(const groups *self);
/* Copies the groups, for an order of their own. Returns 0 if there is no memory. */
int groups_copy(groups *out, const groups *self);
/* The largest first. */
void groups_sort(groups *self);
/* The largest error of all queues first; the groups of one error and reason follow each other, the
 * largest first. */
void groups_join(groups *self);
/* Returns the place after the last group that has the error and reason of the one at `begin`. */
size_t groups_end_of_error(const groups *self, size_t begin);
void groups_free(groups *self);

#endif
