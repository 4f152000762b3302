/*
 * Event, for adapters: making events and counting them.
 *
 *     bh_event *event;
 *     bh_event_new(&event, BH_EVENT_FAILED);
 *     bh_event_set_string(event, BH_FIELD_QUEUE, bh_str("orders"));
 *     bh_event_set_history(event, history, 0, now_ms);
 *     bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("TimeoutError"));
 *     puts(bh_event_line(event).data);    failed: message "17" of "orders",
 * attempt 3: TimeoutError
 *
 * Use the same kinds and fields as the worker. Then logs, metrics and listeners
 * work for both.
 */
#ifndef BACKHOP_ADAPTER_EVENT_H
#define BACKHOP_ADAPTER_EVENT_H

#include <backhop/adapter/history.h>
#include <backhop/adapter/plan.h>
#include <backhop/event.h>
#include <backhop/metrics.h>

BH_BEGIN_DECLS

/* Returns the event to emit after a handler ended with this outcome, or
 * BH_EVENT_LAST. */
BH_API bh_event_kind bh_event_of(bh_outcome outcome);
/* Returns the event to emit after the copy of this action is confirmed: parked,
 * replayed, else retried. */
BH_API bh_event_kind bh_event_of_copy(bh_action action);
/* The bytes that the text of bh_overrun_text needs. */
#define BH_OVERRUN_ROOM 96
/*
 * Applies the time limit of a handler to its outcome.
 *
 * Returns "" if the outcome counts. Otherwise returns the text of the error, and the outcome
 * becomes BH_OUTCOME_FAILED: "the handler ran for longer than its limit of 30 s". This applies to
 * BH_OUTCOME_OK and BH_OUTCOME_DROPPED. If you aborted the handler at its limit, pass
 * BH_OUTCOME_OK.
 *
 * duration_ms: of the handler. limit_ms: 0 or less for no limit.
 * room: the result points into it.
 */
BH_API bh_bytes bh_overrun_text(bh_outcome outcome, int64_t duration_ms, int64_t limit_ms, char room[BH_OVERRUN_ROOM]);
/*
 * Returns 1 for events that each message has: delivered, succeeded, failed,
 * retried, dropped. A worker emits these only if you enable them
 * (emits of bh_worker_settings).
 */
BH_API int bh_event_is_of_each(int kind);

/*
 * Creates an event without fields in *out. Free it with bh_event_free.
 *
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_event_new(bh_event **out, bh_event_kind kind);
/*
 * Removes all fields and sets the kind. One object can serve for many events.
 *
 * Errors: BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_event_begin(bh_event *self, bh_event_kind kind);

/*
 * Sets a string field or an integer field.
 *
 * Errors: BH_ERR_ARGUMENT if the field has the other type; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_event_set_string(bh_event *self, bh_field field, bh_bytes value);
BH_API bh_status bh_event_set_int(bh_event *self, bh_field field, int64_t value);
/*
 * Sets id, attempt and attempts of a message. Also sets its lateness for
 * BH_EVENT_DELIVERED, and its recovery for BH_EVENT_SUCCEEDED.
 *
 * redelivered: the flag of the delivery.
 * now_ms: since the epoch.
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_event_set_history(bh_event *self, const bh_history *history, int redelivered, int64_t now_ms);
/*
 * Sets id, attempts, delay, reason and error of a plan.
 *
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_event_set_plan(bh_event *self, const bh_plan *plan);
/*
 * Sets the text to the standard text of the kind, followed by a cause in
 * parentheses. Set status and connection first: the standard text depends on
 * them.
 *
 * cause: the text of a client, the broker or an error. An empty cause changes
 * nothing. Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_event_set_cause(bh_event *self, bh_bytes cause);

/*
 * Applies an event to a health. Events that say nothing about the consumer change nothing.
 *
 *   connected                             ready
 *   disconnected, cancelled, unavailable  reconnecting; starting if it was not ready yet
 *   blocked, unblocked                    paused, and back; the loss of the blocked connection ends it too
 *   breaker_opened, breaker_half_open     paused, if it is ready beside that
 *   breaker_closed                        back
 *   drained                               stopped
 *
 * An adapter emits BH_EVENT_CONNECTED after the broker confirmed its consumer.
 */
BH_API void bh_health_observe(bh_health *self, const bh_event *event);
/* The bytes that the text of bh_health_wait_error needs. */
#define BH_HEALTH_WAIT_ROOM (BH_HEALTH_REASON_BYTES + 128)
/*
 * Returns the text of the error of a wait for BH_HEALTH_READY:
 *
 *   the worker is not ready after 5 s; its state is reconnecting: connection refused
 *
 * is_worker: 1 for a worker, 0 for an adapter's consumer.
 * limit_ms: the limit that has passed; below 0: the worker or the consumer has stopped.
 * room: the result points into it.
 */
BH_API bh_bytes bh_health_wait_error(const bh_health *self, int is_worker, int64_t limit_ms,
                                     char room[BH_HEALTH_WAIT_ROOM]);

/*
 * Counts a handled message. Equivalent to observing BH_EVENT_DELIVERED and then
 * `kind`, without building the events.
 *
 * kind: BH_EVENT_SUCCEEDED, _FAILED or _DROPPED (bh_event_of).
 * redelivered: the flag of the delivery.
 * now_ms: when the handler ended, since the epoch.
 * error_class: for example "TimeoutError"; "" if there is none.
 * duration_us: of the handler. Below 0 if unknown: then the lateness is not
 * counted. Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY. The message then is not
 * counted.
 */
BH_API bh_status bh_metrics_count_message(bh_metrics *self, bh_event_kind kind, bh_bytes queue,
                                          const bh_history *history, int redelivered, int64_t now_ms,
                                          bh_bytes error_class, int64_t duration_us);
/*
 * Counts a confirmed copy. Equivalent to observing `kind`, without building the
 * event.
 *
 * kind: BH_EVENT_RETRIED, BH_EVENT_DEFERRED or BH_EVENT_PARKED (bh_event_of_copy).
 * attempts, delay_ms, reason: of the plan.
 * duration_us: from the publish to the confirm. Below 0 if unknown.
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY. The copy then is not counted.
 */
BH_API bh_status bh_metrics_count_copy(bh_metrics *self, bh_event_kind kind, bh_bytes queue, int64_t attempts,
                                       int64_t delay_ms, bh_bytes reason, bh_bytes error_class, int64_t duration_us);

BH_END_DECLS

#endif
