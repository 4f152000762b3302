/* Groups: parked messages that failed alike, counted in bounded memory. Pure. */
#ifndef BACKHOP_COMMAND_GROUPS_H
#define BACKHOP_COMMAND_GROUPS_H

#include "parked/selection.h"

enum { GROUPS_MOST = 1000 }; /* further kinds of errors count as one */

typedef struct group {
    char queue[256];
    char reason[32];
    char class[KIND_BYTES + 1];
    char kind[KIND_BYTES + 1];
    char id[256]; /* of one of them; "" if it has none */
    int64_t count;
    int64_t first_ms; /* of their first failures, ms since the epoch; -1: not known */
    int64_t last_ms;
    int64_t least_attempts;
    int64_t most_attempts;
} group;

typedef struct groups {
    group *items;
    size_t count;
} groups;

/* Writes why a message was parked, as groups compare it. */
void group_reason(char out[32], const bh_history *history);
/* Counts a message of a queue; 0: no memory. */
int groups_add(groups *self, const char *queue, const bh_history *history);
/* The largest first. */
void groups_sort(groups *self);
void groups_free(groups *self);

#endif
