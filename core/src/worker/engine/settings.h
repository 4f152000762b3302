/* Settings: the worker's settings. They do not change while the thread runs. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_SETTINGS_H
#define BACKHOP_WORKER_ENGINE_SETTINGS_H

#include "relay/relay.h"
#include "worker/wire/socket.h"

#include <backhop/worker.h>

typedef struct bh__settings {
    bh__relay *relay; /* decides on each message; NULL: callers do. Only the thread uses it */
    bh_policy *policy;
    bh_topology *topology;
    bh_policy *back_off;
    bh_breaker *breaker; /* a reference; NULL: none */
    bh_history *reading; /* legacy counter and wait queues, for each history */
    bh__uri *uris;
    size_t uri_count;
    size_t uri_capacity;
    char *ca_file, *cert, *key; /* owned; NULL: none (bh__tls_files) */
    int64_t mode;               /* a bh_mode */
    int64_t prefetch;
    uint32_t emitted; /* a bit per kind of event */
    int64_t fails_fast;
    int64_t connect_timeout_ms;
    int64_t confirm_timeout_ms;
    int64_t handler_timeout_ms; /* 0: none */
} bh__settings;

#endif
