/*
 * A second consumer, with a circuit breaker. It has its own queue of the events and its own purge API. While the API is
 * full, one event at a time probes it, and the others wait without an attempt.
 */
#ifndef CDN_PURGE_SPARED_H
#define CDN_PURGE_SPARED_H

#include "api.h"
#include "record.h"

#include <stdatomic.h>

#define SPARED NAMESPACE ".spared"
#define SPARED_QUEUE SPARED ".cdn-purge"

struct spared {
    struct record *record; /* for its clock and its events */
    bh_topology *topology;
    bh_breaker *breaker;
    bh_worker *worker;
    struct purge_api api;
    pthread_t thread;
    int has_thread;
    atomic_int stop;
    /* written by the thread */
    atomic_int calls;
    atomic_int refused;
    atomic_int settled; /* events that succeeded or are parked */
};

/* Makes topology, breaker and worker. Returns BH_OK, or the reason. */
bh_status spared_open(struct spared *self, struct record *record, bh_policy *policy);
/* Connects, and handles the events in a thread. The record's clock runs already. */
bh_status spared_start(struct spared *self, const char *url);
/* Waits until all events are settled, until a time of the record's clock. */
void spared_finish(struct spared *self, int64_t until_ms);
void spared_close(struct spared *self);

#endif
