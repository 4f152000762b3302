/* Overdue: messages that a wait queue holds for longer than its TTL, as far as its depth shows.
 * Pure. */
#ifndef BACKHOP_COMMAND_OVERDUE_H
#define BACKHOP_COMMAND_OVERDUE_H

#include <stdint.h>

enum { OVERDUE_GRACE_MS = 60000 };

/* All fields 0: nothing was read yet. Times are monotonic, in ms. */
typedef struct overdue {
    int64_t last;                  /* the depth that was read last */
    int64_t since_ms, count;       /* from then on the depth never fell; the depth then */
    int64_t older_ms, older_count; /* an earlier such time and depth */
    int is_begun;
} overdue;

/*
 * Records a depth (-1: not known) and returns how many messages are overdue. A message is overdue
 * if it was there a TTL and OVERDUE_GRACE_MS ago, and the depth has not fallen at any reading
 * since. A queue that works falls within its TTL, unless arrivals outnumber departures at each
 * reading.
 */
int64_t overdue_record(overdue *self, int64_t depth, int64_t ttl_ms, int64_t now_ms);

#endif
