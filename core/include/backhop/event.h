/*
 * Event: a report about a message or a connection. You read its fields, log its line or count it
 * (metrics.h).
 *
 *     bh_event *event;
 *     while (bh_worker_take_event(worker, &event) == BH_OK) {
 *         puts(bh_event_line(event).data);    failed: message "17" of "orders", attempt 3: TimeoutError
 *         bh_event_free(event);
 *     }
 *
 * Adapters make events of the same kinds and fields: see adapter/event.h.
 */
#ifndef BACKHOP_EVENT_H
#define BACKHOP_EVENT_H

#include <backhop/status.h>
#include <stdint.h>

BH_BEGIN_DECLS

/* The log level of an event. */
typedef enum bh_level {
    BH_LEVEL_DEBUG,   /* normal processing of a message */
    BH_LEVEL_INFO,    /* recovers by itself, or was requested */
    BH_LEVEL_WARNING, /* an operator should notice it */
    BH_LEVEL_ERROR    /* needs an operator */
} bh_level;

/*
 * All events: X(name, "word", level, "meaning [fields]"). Events of a work queue also have its
 * name.
 */
#define BH_EVENT_LIST(X)                                                                                               \
    X(BH_EVENT_DELIVERED, "delivered", DEBUG, "a handler receives a message [id, attempt, attempts, lateness_ms]")     \
    X(BH_EVENT_SUCCEEDED, "succeeded", DEBUG,                                                                          \
      "the handler succeeded [id, attempt, attempts, duration_us, recovery_ms]")                                       \
    X(BH_EVENT_FAILED, "failed", DEBUG, "an attempt failed [id, attempt, attempts, error_class, error, duration_us]")  \
    X(BH_EVENT_RETRIED, "retried", INFO,                                                                               \
      "the message will be retried: its copy is confirmed [id, attempts, delay_ms, error_class, error, duration_us]")  \
    X(BH_EVENT_PARKED, "parked", WARNING,                                                                              \
      "the message is parked: its copy is confirmed [id, attempts, reason, error_class, error, duration_us]")          \
    X(BH_EVENT_THROTTLED, "throttled", DEBUG,                                                                          \
      "the handler deferred the message: no attempt [id, attempt, attempts, error_class, error, duration_us]")         \
    X(BH_EVENT_DEFERRED, "deferred", INFO,                                                                             \
      "a copy waits; it was no attempt [id, attempts, deferrals, delay_ms, error_class, error, duration_us]")          \
    X(BH_EVENT_DROPPED, "dropped", INFO,                                                                               \
      "the handler, or a relay's settings, dropped the message [id, attempt, attempts, duration_us]")                  \
    X(BH_EVENT_REPLAYED, "replayed", INFO,                                                                             \
      "messages went back to the work queue; warning: they came to no queue, or some stay [count; status, text]")      \
    X(BH_EVENT_RETURNED, "returned", WARNING,                                                                          \
      "the broker returned the copy; it is published again [id, attempts, delay_ms, status, text]")                    \
    X(BH_EVENT_NACKED, "nacked", WARNING,                                                                              \
      "a queue was full or missing; the copy is published again [id, attempts, delay_ms, status, text]")               \
    X(BH_EVENT_UNCONFIRMED, "unconfirmed", WARNING,                                                                    \
      "confirms are late; one copy is published again, the others after a confirm [count, status, text]")              \
    X(BH_EVENT_REFUSED, "refused", ERROR,                                                                              \
      "the copy cannot be published; the original stays unacknowledged for a while [id, attempts, status, text]")      \
    X(BH_EVENT_STALE, "stale", INFO, "settled too late, or aborted by a stop: the broker delivers it again [id]")      \
    X(BH_EVENT_CONNECTED, "connected", INFO, "the connections are open, the topology is declared [text]")              \
    X(BH_EVENT_UNAVAILABLE, "unavailable", WARNING,                                                                    \
      "cannot connect, declare, consume or publish; level error: needs an operator [status, text, delay_ms; count]")   \
    X(BH_EVENT_DISCONNECTED, "disconnected", WARNING,                                                                  \
      "a connection was lost [status, text, delay_ms; count of messages; id, duration_us of a handler at fault]")      \
    X(BH_EVENT_BLOCKED, "blocked", WARNING,                                                                            \
      "the broker accepts no publishes: memory or disk run low [text; count of waiting copies]")                       \
    X(BH_EVENT_UNBLOCKED, "unblocked", INFO, "the broker accepts publishes again, or the connection was lost [count]") \
    X(BH_EVENT_CANCELLED, "cancelled", WARNING, "the broker cancelled the consumer; it consumes again [status, text]") \
    X(BH_EVENT_BUSY, "busy", WARNING,                                                                                  \
      "all handlers were busy for longer than their time limit [count of handlers, duration_us]")                      \
    X(BH_EVENT_BREAKER_OPENED, "breaker_opened", WARNING,                                                              \
      "the downstream is down: messages are held, or wait without an attempt [breaker, text, delay_ms of the pause]")  \
    X(BH_EVENT_BREAKER_HALF_OPEN, "breaker_half_open", INFO, "the pause is over: one message probes [breaker, text]")  \
    X(BH_EVENT_BREAKER_CLOSED, "breaker_closed", INFO, "the downstream works: messages are handled [breaker, text]")   \
    X(BH_EVENT_EARLY, "early", WARNING,                                                                                \
      "retries came back more than a second before their time, in this minute [count, duration_us of the earliest]")   \
    X(BH_EVENT_MISSED, "missed", WARNING, "events were dropped because they were not read in time [count]")            \
    X(BH_EVENT_DRAINED, "drained", INFO,                                                                               \
      "the worker stopped [status, text; count of messages that were not settled in time]")

#define BH_EVENT_ENUM(name, word, level, meaning) name,
typedef enum bh_event_kind { BH_EVENT_LIST(BH_EVENT_ENUM) BH_EVENT_LAST } bh_event_kind;
#undef BH_EVENT_ENUM

/* All fields: X(name, "word", type, "meaning"). A field is a string or an integer. */
#define BH_FIELD_LIST(X)                                                                                               \
    X(BH_FIELD_QUEUE, "queue", STRING, "the work queue")                                                               \
    X(BH_FIELD_ID, "id", STRING, "id of the message, for all its attempts: from the publisher, or assigned")           \
    X(BH_FIELD_ATTEMPT, "attempt", INT, "number of the attempt, from 1")                                               \
    X(BH_FIELD_ATTEMPTS, "attempts", INT, "failed attempts so far")                                                    \
    X(BH_FIELD_DEFERRALS, "deferrals", INT, "waits so far that were no attempts")                                      \
    X(BH_FIELD_DELAY, "delay_ms", INT, "time until the next attempt")                                                  \
    X(BH_FIELD_LATENESS, "lateness_ms", INT, "arrival of a retry minus its due time")                                  \
    X(BH_FIELD_REASON, "reason", STRING, "why the message is parked")                                                  \
    X(BH_FIELD_BREAKER, "breaker", STRING, "name of the circuit breaker")                                              \
    X(BH_FIELD_ERROR_CLASS, "error_class", STRING, "class of the handler's error")                                     \
    X(BH_FIELD_ERROR, "error", STRING, "text of the handler's error")                                                  \
    X(BH_FIELD_STATUS, "status", INT, "cause, as a bh_status")                                                         \
    X(BH_FIELD_TEXT, "text", STRING, "cause and remedy; never a password")                                             \
    X(BH_FIELD_CONNECTION, "connection", STRING, "\"consume\" or \"publish\": one of the two connections")             \
    X(BH_FIELD_HOST, "host", STRING, "\"host:port\" of that connection")                                               \
    X(BH_FIELD_COUNT, "count", INT, "number of messages")                                                              \
    X(BH_FIELD_DURATION, "duration_us", INT, "of the handler; for a copy, from publish to confirm")                    \
    X(BH_FIELD_RECOVERY, "recovery_ms", INT, "time from the first failure to the success")

#define BH_FIELD_ENUM(name, word, type, meaning) name,
typedef enum bh_field { BH_FIELD_LIST(BH_FIELD_ENUM) BH_FIELD_LAST } bh_field;
#undef BH_FIELD_ENUM

typedef struct bh_event bh_event;

/*
 * Returns the word of a kind ("disconnected") or of a field ("delay_ms"), or "" if there is none.
 */
BH_API bh_bytes bh_event_name(int kind);
BH_API bh_bytes bh_event_field(int field);
/* Returns 1 if a field is a string, 0 if it is an integer. */
BH_API int bh_event_field_is_string(int field);

/* Frees an event. NULL is allowed. */
BH_API void bh_event_free(bh_event *self);

/* Returns the kind of an event, or BH_EVENT_LAST for NULL. */
BH_API bh_event_kind bh_event_what(const bh_event *self);
/*
 * Returns the number of the worker's message (bh_message_number), or 0 if there is none.
 *
 * Use it to find what your program keeps about a message, for example its exception.
 */
BH_API int64_t bh_event_message(const bh_event *self);
/* Returns 1 if a field is set. */
BH_API int bh_event_has(const bh_event *self, bh_field field);
/*
 * Returns the value of a field, or "" or 0 if it is not set. Strings are valid until the event
 * changes.
 */
BH_API bh_bytes bh_event_string(const bh_event *self, bh_field field);
BH_API int64_t bh_event_int(const bh_event *self, bh_field field);
/*
 * Returns the cause and the remedy as text, or "". It never contains a password.
 *
 * If no text was set, these replace it, in this order: the standard text of the kind, the reason
 * for parking, the handler's error.
 */
BH_API bh_bytes bh_event_text(const bh_event *self);

/*
 * Returns the log level of the kind, or a higher level if the status is a failure.
 *
 * BH_LEVEL_ERROR needs an operator: refused password or permission, missing work queue, clash of
 * declarations, wrong certificate.
 */
BH_API bh_level bh_event_level(const bh_event *self);
/*
 * Returns the event as one line of UTF-8, valid until the event changes. Control characters are
 * replaced by "?".
 */
BH_API bh_bytes bh_event_line(const bh_event *self);

/* The state of a worker, or of an adapter's consumer. */
typedef enum bh_health_state {
    BH_HEALTH_STARTING,     /* not ready for the first time yet */
    BH_HEALTH_READY,        /* it consumes */
    BH_HEALTH_RECONNECTING, /* it was ready, and tries to consume again */
    BH_HEALTH_PAUSED,       /* the broker blocks its connection, or its breaker is open: see the reason */
    BH_HEALTH_STOPPED,      /* it has drained, or was not started */
    BH_HEALTH_LAST
} bh_health_state;

#define BH_HEALTH_REASON_BYTES 1024

/*
 * Health: the state that a series of events leads to. A zeroed health is starting.
 *
 * Zero it, and give it each event (bh_health_observe). bh_worker_state reads the health of a
 * worker.
 */
typedef struct bh_health {
    bh_health_state state;
    char reason[BH_HEALTH_REASON_BYTES]; /* the text of the event that led to the state: UTF-8, cut if too long */
    bh_health_state beneath;             /* the state to return to after BH_HEALTH_PAUSED */
    int was_ready;                       /* since it was started */
    int is_blocked;                      /* the broker blocks its connection */
    int is_held;                         /* its breaker is open or half-open */
} bh_health;

/* Returns the word of a state ("reconnecting"), or "" if there is none. */
BH_API bh_bytes bh_health_name(int state);

/*
 * Log: bounds the number of lines. It writes ten lines per second for each kind and queue, and all
 * lines of level debug. The tenth line reports that further lines are omitted; the next line after
 * them reports how many.
 *
 * Use one log for all events. Its memory is bounded, so some queues may share their ten lines.
 */
typedef struct bh_log bh_log;

/*
 * Creates a log in *out. Free it with bh_log_free.
 *
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_log_new(bh_log **out);
/* Frees the log. NULL is allowed. */
BH_API void bh_log_free(bh_log *self);
/*
 * Returns the line to write for an event, or "" if it is omitted. Valid until the event changes.
 *
 * now_ms: of any clock.
 */
BH_API bh_bytes bh_log_line(bh_log *self, const bh_event *event, int64_t now_ms);
/*
 * Returns the line that reports how many lines of an event's kind and queue were omitted, or "".
 * Call it once a second or more after bh_log_line returned "" for the event: otherwise nothing
 * reports the last omitted lines of a burst. Valid until the event changes.
 *
 * now_ms: as for bh_log_line.
 */
BH_API bh_bytes bh_log_omitted_line(bh_log *self, const bh_event *event, int64_t now_ms);
/*
 * Returns the line to write after a listener failed at an event, or "" if it is omitted. Valid
 * until the event changes. There are ten such lines per second for each queue.
 *
 * error: the listener's error, as text.
 */
BH_API bh_bytes bh_log_listener_line(bh_log *self, const bh_event *event, bh_bytes error, int64_t now_ms);

BH_END_DECLS

#endif
