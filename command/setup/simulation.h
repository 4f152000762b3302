/*
 * Simulation: a failing downstream, and a policy's retries, as a sequence of events. Pure: the same
 * seed has the same outcome on every machine. The pure core decides each delay, with the random
 * bytes that it would get from the system.
 */
#ifndef BACKHOP_COMMAND_SIMULATION_H
#define BACKHOP_COMMAND_SIMULATION_H

#include <backhop/adapter/plan.h>
#include <backhop/breaker.h>

typedef struct scenario {
    double rate;          /* new messages a second */
    double capacity;      /* calls a second that the downstream answers while it is up */
    int64_t down_from_ms; /* it fails each call from here */
    int64_t down_to_ms;   /* to here */
    int64_t until_ms;     /* new messages come until here */
    int64_t end_ms;       /* and the simulation ends here, if messages remain */
    double failure_rate;  /* 0 to 1: calls that fail while it is up */
    int64_t now_ms;       /* of the first event, ms since the epoch */
    uint64_t seed;
    int has_breaker; /* a circuit breaker with the default settings; held messages stay queued */
    int at_once;     /* retries at once, without a wait: what one would have without back-off */
} scenario;

/* The counts of one bucket of time. */
typedef struct bucket {
    double calls;   /* a second, at the downstream */
    int64_t queued; /* ready in the work queue at its end */
    int64_t waiting;
    int64_t parked; /* so far */
} bucket;

enum { SIMULATION_MOST_BUCKETS = 200, SIMULATION_MOST_CALLS = 5000000 };

typedef struct simulation {
    bucket buckets[SIMULATION_MOST_BUCKETS];
    size_t count;
    int64_t bucket_ms;
    int64_t calls;
    int64_t failed_calls;
    int64_t messages;
    int64_t done;
    int64_t parked;
    int64_t remaining;  /* neither done nor parked at the end */
    int64_t drained_ms; /* when nothing waited or was queued any more, after the outage; -1: never */
    double most_calls;  /* a second, in the fullest bucket */
    int64_t most_queued;
    int64_t most_waiting;
    int was_cut; /* it ended at SIMULATION_MOST_CALLS */
} simulation;

/* Sets until_ms and end_ms if they are 0: twice down_to_ms, and one hour after down_to_ms. */
void simulation_set_ends(scenario *self);
/* Plays it. BH_ERR_NO_MEMORY; what bh_plan_make returns. */
bh_status simulation_run(simulation *out, const scenario *of, const bh_policy *policy, const bh_topology *topology);

#endif
