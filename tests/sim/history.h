/*
 * History: workers of one or two work queues, their handlers, a publisher, and faults, from the
 * first connect to the end. It fails (abort) if something does not hold that must hold in every
 * history:
 *
 *     Each message ends at least once as handled, parked, waiting or unroutable.
 *     It ends twice, or is in two hands, only as often as a fault can double it. The faults: its channel ended while it
 *     was in hand; the confirm of its copy was lost; its publisher or the broker's dead-lettering sent it again.
 *     Without a fault nothing is doubled.
 *     It comes to its own work queue. No call comes early. Attempts are failures plus one.
 *     It is parked after its last attempt, not before.
 *     An original is acknowledged after its copy's confirm. No tag is settled twice (witness.h).
 *     A message that a handler had is given back only by a worker that stops, or that gives its copy up.
 *     A worker stops within the limit that it got, 2 s for each of its connections, and the time of the last handler.
 *     Body, routing key and properties do not change.
 *     Without a fault, a success is acknowledged within a second.
 *     The broker drops no dead letter, except after a deletion.
 *     A breaker closes after its probes succeeded.
 *     Memory is bounded. No round repeats without time (schedule.h).
 *     An hour after the last fault nothing waits any more.
 */
#ifndef BACKHOP_TESTS_SIM_HISTORY_H
#define BACKHOP_TESTS_SIM_HISTORY_H

#include "tape.h"
#include "witness.h"

#include <backhop/breaker.h>
#include <backhop/event.h>
#include <backhop/topology.h>

enum { MOST_FAULTS = 64, MOST_WORKERS = 4, MOST_QUEUES = 2 };

/* The script of one call of a handler. */
typedef struct call_script {
    bh_outcome outcome;
    int64_t duration_ms;
    int64_t retry_after_ms;
    int is_own_fault;
    int whole_queue;
} call_script;

typedef enum fault_kind {
    FAULT_STOP,          /* the broker stops, and starts after `for_ms` */
    FAULT_KILL,          /* the same, without a word */
    FAULT_CUT,           /* connection `which` is cut after `amount` bytes in direction `way` */
    FAULT_SILENCE,       /* connection `which`: nothing passes in direction `way` (2: both) */
    FAULT_CLOSE,         /* the broker closes all connections */
    FAULT_RESET,         /* the broker cuts all connections */
    FAULT_ALARM,         /* memory */
    FAULT_DELETE_QUEUE,  /* the work queue */
    FAULT_DELETE_RETURN, /* the exchange that brings retries back */
    FAULT_DELETE_PARKED, /* the parked queue */
    FAULT_DELETE_WAIT,   /* all wait queues */
    FAULT_FULL,          /* a policy limits wait queues to one message: they refuse more */
    FAULT_SHORT_TTL,     /* a policy shortens the TTL of wait queues */
    FAULT_NO_RIGHTS,     /* the user may do nothing, and the broker closes channels */
    FAULT_JUMP,          /* the wall clock jumps by `amount` ms */
    FAULT_UNREACHABLE,   /* connecting gets no answer */
    FAULT_UNKNOWN,       /* the name service does not know the broker */
    FAULT_SLOW,          /* latency of `amount` ms, in fragments */
    FAULT_RESTART,       /* worker `which` stops and starts again */
    FAULT_LEADER,        /* the work queue has a new leader: unacknowledged messages are ready again */
    FAULT_UNCONFIRMED,   /* the broker stores messages, and their confirms are lost */
    FAULT_MINORITY,      /* the node is alone */
    FAULT_ORDER,         /* the model executes `order` */
    FAULT_REPLAY,        /* not a fault: parked messages are replayed */
    FAULT_LAST
} fault_kind;

typedef struct fault {
    fault_kind kind;
    int64_t at_ms;
    int64_t for_ms;
    unsigned which;
    unsigned way;
    int64_t amount;
    const char *order;
} fault;

typedef struct history {
    const char *name;
    const char *version; /* of RabbitMQ */
    bh_strategy strategy;
    bh_queue_type type;
    bh_kind kind;
    int64_t initial_ms;
    double factor;
    int64_t max_ms;
    int64_t max_attempts;
    int64_t max_crashes; /* 0: the default */
    int workers;
    int takers; /* threads of each worker, beside bh_worker_run */
    int prefetch;
    int heartbeat_s;
    int64_t confirm_ms;
    int64_t handler_timeout_ms;
    int64_t consumer_timeout_ms;        /* of the broker; 0: 30 minutes */
    const bh_breaker_settings *breaker; /* NULL: none */
    int has_keys;                       /* there is a breaker for each of three keys */
    int queues;                         /* work queues; 0: 1. Worker i consumes from queue i modulo queues */
    int has_relay;                      /* a client rejects messages, and the workers are relays */
    bh_jitter jitter;
    int64_t max_age_ms; /* 0: none */
    unsigned messages;
    int64_t publish_ms; /* between two messages */
    unsigned body_bytes;
    int has_no_ids; /* messages have no message-id */
    int is_prompt;  /* each message is handled within a second after it was published, whatever waits */
    call_script (*decide)(void *data, const account *message, int64_t attempt);
    void *data;
    int ends_well; /* after the last fault handlers succeed */
    fault faults[MOST_FAULTS];
    size_t fault_count;
    tape *model_choices; /* late confirms and the like; NULL: none */
} history;

typedef struct outcome {
    int events[BH_EVENT_LAST];
    int calls;
    int oks;
    int parked;
    int unroutable;
    int64_t end_ms; /* when nothing waited any more */
    uint64_t hash;  /* of the trace */
    uint64_t switches;
    size_t most_bytes; /* of memory */
    int most_channels; /* of a connection, at one time */
} outcome;

/* Plays it. choices: of the schedule and the network. */
void history_play(const history *self, tape *choices, outcome *out);
/* Plays what a tape says: everything is drawn. */
void history_play_tape(const unsigned char *data, size_t size, const char *name, outcome *out);

#endif
