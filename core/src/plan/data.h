/* The plan's data, and the functions that its files share. Only core/src/plan includes this. */
#ifndef BACKHOP_PLAN_DATA_H
#define BACKHOP_PLAN_DATA_H

#include "plan/internal.h"
#include "base/traceparent.h"

enum { BH__PLAN_MOST_HEADERS = 19 };

/* Exchange and routing key of the first publish of a message. */
typedef struct bh__plan_origin {
    bh_bytes exchange, routing_key;
} bh__plan_origin;

/* The arguments of a decision. */
typedef struct bh__plan_input {
    const bh_delivery *delivery;
    const bh_history *history;
    const bh_policy *policy;
    const bh_topology *topology;
    bh_bytes error;
    int64_t now_ms;
    bh_bytes random;
    bh__park_place place;
    bh_bytes traceparent;          /* "": none */
    const bh__plan_origin *origin; /* NULL: take the history's; the copy's routing key is the delivery's then */
} bh__plan_input;

/* A header that the plan sets. */
typedef struct bh__plan_header {
    bh_bytes name;
    bh_type type;
    bh__text string;
    int64_t number;
} bh__plan_header;

struct bh_plan {
    int64_t frame_max;
    char traceparent[BH__TRACEPARENT_BYTES + 1]; /* of the attempt that the next decision is about; "": none */
    bh_action action;
    int64_t attempts;
    int64_t deferrals;
    int is_deferred;          /* 1: a copy that waits is a deferral */
    int64_t first_failure_ms; /* -1: unknown */
    int64_t crashes;          /* counted by bh_plan_guard */
    int64_t delay_ms;
    int is_retry_after_met;
    int is_on_demand;
    const char *reason;
    bh__store store;
    bh__text exchange;
    bh__text routing_key;
    bh__text expiration;
    bh__plan_header headers[BH__PLAN_MOST_HEADERS];
    size_t header_count;
    int no_memory;
    bh__buffer copied; /* the properties that bh_plan_copy_properties wrote last */
};

/* --------------------------------------------------------------------------------------- plan.c */

/* Returns 1 if the plan's copy waits: a retry or a deferral. */
static inline int bh__plan_waits(const bh_plan *self)
{
    return self->action == BH_ACTION_RETRY || self->action == BH_ACTION_DEFER;
}
/* Empties the plan. Keeps its settings and its memory. */
void bh__plan_clear(bh_plan *self);

/* ------------------------------------------------------------------------------------ headers.c */

/* Returns the index of the header that the plan sets by this name; header_count if it sets none. */
size_t bh__plan_find_header(const bh_plan *self, bh_bytes name);
void bh__plan_remove_header(bh_plan *self, size_t at);
void bh__plan_set_int(bh_plan *self, const char *name, int64_t value);
/* Sets BCC, whose key <ns>.return binds to the work queue. RabbitMQ routes by BCC and removes
 * it. */
void bh__plan_set_return_key(bh_plan *self, const bh__plan_input *in);
/* Sets the headers of a copy that is retried or parked. */
void bh__plan_set_headers(bh_plan *self, const bh__plan_input *in);
/* Sets the headers that a parked message needs at least, most important first. */
void bh__plan_set_least_headers(bh_plan *self, const bh__plan_input *in);
/* Sets the headers of a replayed copy. goes_on: 1 if it keeps the times and the error of its last
 * failure. */
void bh__plan_set_replay_headers(bh_plan *self, const bh__plan_input *in, int goes_on);

/* ---------------------------------------------------------------------------------------- fit.c */

/* Returns 1 if the properties and headers that the copy keeps fit the frame. */
int bh__plan_keeps_fit(const bh_plan *self, const bh_delivery *delivery);
/* Removes headers that a copy can do without, and shortens the error's text, until all fit. Returns
 * 0 if they do not. */
int bh__plan_make_fit(bh_plan *self, const bh__plan_input *in);
/* Removes every header that has no room behind the headers before it. */
void bh__plan_remove_unfit(bh_plan *self, const bh__plan_input *in);

/* -------------------------------------------------------------------------------------- delay.c */

/* Returns the delay that a handler requests, limited by the policy's max_retry_after_ms. */
int64_t bh__plan_granted_ms(const bh_policy *policy, int64_t retry_after_ms);
/* Chooses the delay of the next attempt. */
void bh__plan_choose_delay(bh_plan *self, const bh__plan_input *in, int64_t failures, int64_t retry_after_ms);
/*
 * Chooses the delay after a crash, with full jitter: up to the policy's longest delay after `wait`
 * failures.
 *
 * Sets the delay to 0 if no rung is possible. If the policies of a ladder have at most one rung
 * below that limit, chooses from the whole grid of rungs. On one rung, messages that were lost
 * together would come back together.
 */
void bh__plan_choose_crash_delay(bh_plan *self, const bh__plan_input *in, int64_t wait);
/*
 * Chooses the delay of a message that waits while a breaker is open. On a ladder, it is the longest
 * rung up to the pause, or the shortest one above.
 */
void bh__plan_choose_pause(bh_plan *self, const bh__plan_input *in, int64_t pause_ms);
/* Returns 1 if the message will be older than max_age_ms after this delay. */
int bh__plan_is_too_old(const bh_policy *policy, int64_t first_failure_ms, int64_t now_ms, int64_t delay_ms);

/* -------------------------------------------------------------------------------------- route.c */

/* Sets the copy's exchange and routing key. */
void bh__plan_address(bh_plan *self, bh_bytes exchange, bh_bytes routing_key);
/* Returns the message's own routing key, or "" if <ns>.return routes by it: no publisher's key
 * chooses a queue. */
bh_bytes bh__plan_harmless_key(bh_bytes routing_key);
/* Parks the message. `reason` is a string constant. */
bh_status bh__plan_park_copy(bh_plan *self, const bh__plan_input *in, const char *reason);
/* Publishes the copy to its wait queue. Parks it with the reason `no_room` if its headers do not
 * fit. */
bh_status bh__plan_retry_copy(bh_plan *self, const bh__plan_input *in, const char *no_room);

/* ------------------------------------------------------------------------------------- decide.c */

/* Checks the arguments that all decisions have, and empties the plan. */
bh_status bh__plan_begin(bh_plan *self, const bh__plan_input *in);
/* Like bh__plan_begin, and checks now_ms and the policy. The plan then has the attempts of the
 * history. */
bh_status bh__plan_begin_decision(bh_plan *self, const bh__plan_input *in);
/* Returns the status of the decision, or BH_ERR_NO_MEMORY. Empties the plan if that is an error. */
bh_status bh__plan_end(bh_plan *self, bh_status status);
/* Returns the plan's attempts plus one, at most BH_HISTORY_MOST_ATTEMPTS. */
int64_t bh__plan_failed_once_more(const bh_plan *self);
/* Retries or parks a message whose attempt failed. */
bh_status bh__plan_decide_failure(bh_plan *self, const bh__plan_input *in, int64_t retry_after_ms);

#endif
