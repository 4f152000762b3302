/* Settings: what a worker was told before it started. Nobody changes them while its thread runs. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_SETTINGS_H
#define BACKHOP_WORKER_ENGINE_SETTINGS_H

#include "wire/uri.h"

#include <backhop/relay.h>
#include <backhop/worker.h>

typedef struct bh__settings {
    bh_relay *relay; /* decides on each message; NULL: callers do. Of the thread alone */
    bh_policy *policy;
    bh_topology *topology;
    bh_policy *back_off;
    bh_history *reading; /* legacy counter and wait queues, for every history */
    bh__uri *uris;
    size_t uri_count;
    size_t uri_capacity;
    char *ca_file; /* NULL: the system's */
    int64_t mode;  /* a bh_mode */
    int64_t prefetch;
    uint32_t told; /* a bit for each kind of event */
    int64_t fails_fast;
    int64_t connect_timeout_ms;
    int64_t confirm_timeout_ms;
} bh__settings;

#endif
