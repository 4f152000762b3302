/*
 * Event: what happened to a message, or to a connection. A worker tells events; whoever uses the pure core over another
 * client makes them, with the same kinds and fields, so that logs, metrics and listeners need to know one form alone:
 *
 *     bh_event *event;
 *     bh_event_new(&event, BH_EVENT_FAILED);
 *     bh_event_set_string(event, BH_FIELD_QUEUE, bh_str("orders"));
 *     bh_event_set_history(event, history, 0, now_ms);
 *     bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("TimeoutError"));
 *     puts(bh_event_line(event).data);    failed: message "17" of "orders", attempt 3: TimeoutError
 */
#ifndef BACKHOP_EVENT_H
#define BACKHOP_EVENT_H

#include <backhop/plan.h>

BH_BEGIN_DECLS

/* How loudly an event is logged. */
typedef enum bh_level {
    BH_LEVEL_DEBUG,   /* each message that goes its way */
    BH_LEVEL_INFO,    /* what mends itself, and what was asked for */
    BH_LEVEL_WARNING, /* what a person should know of */
    BH_LEVEL_ERROR    /* nothing goes on until a person acts */
} bh_level;

/* X(name, "word", level, "meaning [fields]"): every event there is. Each that is a work queue's has its name too. */
#define BH_EVENT_LIST(X)                                                                                               \
    X(BH_EVENT_DELIVERED, "delivered", DEBUG, "a handler gets a message [id, attempt, attempts, lateness_ms]")         \
    X(BH_EVENT_SUCCEEDED, "succeeded", DEBUG,                                                                          \
      "its handler succeeded [id, attempt, attempts, duration_us, recovery_ms]")                                       \
    X(BH_EVENT_FAILED, "failed", DEBUG, "an attempt failed [id, attempt, attempts, error_class, error, duration_us]")  \
    X(BH_EVENT_RETRIED, "retried", INFO,                                                                               \
      "it comes again: its copy is confirmed [id, attempts, delay_ms, error_class, error, duration_us]")               \
    X(BH_EVENT_PARKED, "parked", WARNING,                                                                              \
      "it is parked: its copy is confirmed [id, attempts, reason, error_class, error, duration_us]")                   \
    X(BH_EVENT_DROPPED, "dropped", INFO,                                                                               \
      "nobody needs it: its handler says so, or a relay's settings [id, attempt, attempts, duration_us]")              \
    X(BH_EVENT_REPLAYED, "replayed", INFO, "parked messages went back to the work queue [count; status, text]")        \
    X(BH_EVENT_RETURNED, "returned", WARNING,                                                                          \
      "no queue took the copy; it is published again [id, attempts, delay_ms, status, text]")                          \
    X(BH_EVENT_NACKED, "nacked", WARNING,                                                                              \
      "a queue was full or gone; the copy is published again [id, attempts, delay_ms, status, text]")                  \
    X(BH_EVENT_UNCONFIRMED, "unconfirmed", WARNING,                                                                    \
      "no confirm came in time; one copy is published again, the others when one is confirmed [count, status, text]")  \
    X(BH_EVENT_REFUSED, "refused", ERROR,                                                                              \
      "no broker takes the copy as it is; the original stays unacknowledged for a while [id, attempts, status, text]") \
    X(BH_EVENT_STALE, "stale", INFO, "it was settled, and the broker delivers it again all the same [id, attempts]")   \
    X(BH_EVENT_CONNECTED, "connected", INFO, "the connections are open, the topology is there [text]")                 \
    X(BH_EVENT_UNAVAILABLE, "unavailable", WARNING,                                                                    \
      "it cannot connect, declare, consume or publish; error: a person has to act [status, text, delay_ms; count]")    \
    X(BH_EVENT_DISCONNECTED, "disconnected", WARNING,                                                                  \
      "a connection was lost [status, text, delay_ms; count of messages that come again]")                             \
    X(BH_EVENT_BLOCKED, "blocked", WARNING,                                                                            \
      "the broker takes no publishes: memory or disk run low [text; count of copies that wait]")                       \
    X(BH_EVENT_UNBLOCKED, "unblocked", INFO, "it takes publishes again; a lost connection ends it too [count]")        \
    X(BH_EVENT_CANCELLED, "cancelled", WARNING, "the broker ended the consumer; it consumes again [status, text]")     \
    X(BH_EVENT_MISSED, "missed", WARNING, "events were not taken in time, and are gone [count]")                       \
    X(BH_EVENT_DRAINED, "drained", INFO,                                                                               \
      "it has stopped [status, text; count of messages that were not settled in time]")

#define BH_EVENT_ENUM(name, word, level, meaning) name,
typedef enum bh_event_kind { BH_EVENT_LIST(BH_EVENT_ENUM) BH_EVENT_LAST } bh_event_kind;
#undef BH_EVENT_ENUM

/* X(name, "word", type, "meaning"): the fields, strings and whole numbers. */
#define BH_FIELD_LIST(X)                                                                                               \
    X(BH_FIELD_QUEUE, "queue", STRING, "the work queue")                                                               \
    X(BH_FIELD_ID, "id", STRING, "the message's id, the same for all its attempts; empty for a first attempt without") \
    X(BH_FIELD_ATTEMPT, "attempt", INT, "which attempt it is about, 1 for the first")                                  \
    X(BH_FIELD_ATTEMPTS, "attempts", INT, "failed attempts so far")                                                    \
    X(BH_FIELD_DELAY, "delay_ms", INT, "until it comes, or is tried, again")                                           \
    X(BH_FIELD_LATENESS, "lateness_ms", INT, "how much later than due a retry came back")                              \
    X(BH_FIELD_REASON, "reason", STRING, "why it is parked: as bh_plan_reason")                                        \
    X(BH_FIELD_ERROR_CLASS, "error_class", STRING, "the class of the handler's error")                                 \
    X(BH_FIELD_ERROR, "error", STRING, "the handler's error, in words")                                                \
    X(BH_FIELD_STATUS, "status", INT, "why, as a bh_status")                                                           \
    X(BH_FIELD_TEXT, "text", STRING, "why, in words, with what to do; never a password")                               \
    X(BH_FIELD_CONNECTION, "connection", STRING,                                                                       \
      "\"consume\" or \"publish\": of a worker, one of its two connections")                                           \
    X(BH_FIELD_HOST, "host", STRING, "that connection's \"host:port\"")                                                \
    X(BH_FIELD_COUNT, "count", INT, "how many messages it is about")                                                   \
    X(BH_FIELD_DURATION, "duration_us", INT, "of the handler; of a copy, from its publish to its confirm")             \
    X(BH_FIELD_RECOVERY, "recovery_ms", INT, "from the first failure to the success")

#define BH_FIELD_ENUM(name, word, type, meaning) name,
typedef enum bh_field { BH_FIELD_LIST(BH_FIELD_ENUM) BH_FIELD_LAST } bh_field;
#undef BH_FIELD_ENUM

typedef struct bh_event bh_event;

/* The word for a kind, as "disconnected", and for a field, as "delay_ms"; "" for a number that is none. */
BH_API bh_bytes bh_event_name(int kind);
BH_API bh_bytes bh_event_field(int field);
/* 1 where a field is a string; 0 where it is a whole number. */
BH_API int bh_event_field_is_string(int field);
/* What is told of a message once its handler has ended so; BH_EVENT_LAST for a number that is no outcome. */
BH_API bh_event_kind bh_event_of(bh_outcome outcome);
/* What is told of a message once its copy is safe, or it was given back to come again: parked, replayed, else retried. */
BH_API bh_event_kind bh_event_of_copy(bh_action action);
/* 1 for what happens to every message: delivered, succeeded, failed, retried, dropped. A worker tells these only as asked. */
BH_API int bh_event_is_of_each(int kind);

/* A new event in *out, without any field; free it with bh_event_free. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT. */
BH_API bh_status bh_event_new(bh_event **out, bh_event_kind kind);
/* Frees what bh_event_new or bh_worker_take_event gave; NULL is allowed. */
BH_API void bh_event_free(bh_event *self);
/* Makes it another event, without any field: so one object serves for many. BH_ERR_ARGUMENT. */
BH_API bh_status bh_event_begin(bh_event *self, bh_event_kind kind);

/* Sets a field. BH_ERR_ARGUMENT (none of that type), BH_ERR_NO_MEMORY. */
BH_API bh_status bh_event_set_string(bh_event *self, bh_field field, bh_bytes value);
BH_API bh_status bh_event_set_int(bh_event *self, bh_field field, int64_t value);
/* Sets id, attempt and attempts of a message that was read, its lateness where it is delivered, and its recovery where
 * it succeeded. `redelivered`: of the delivery; now_ms: since the epoch. BH_ERR_ARGUMENT, BH_ERR_NO_MEMORY. */
BH_API bh_status bh_event_set_history(bh_event *self, const bh_history *history, int redelivered, int64_t now_ms);
/* Sets id, attempts, delay, reason and error of what was decided. BH_ERR_ARGUMENT, BH_ERR_NO_MEMORY. */
BH_API bh_status bh_event_set_plan(bh_event *self, const bh_plan *plan);
/* Sets the text to what the kind means each time, as bh_event_text, with a cause in the words of a client, the broker or an
 * error behind it; an empty cause sets nothing. After status and connection. BH_ERR_ARGUMENT, BH_ERR_NO_MEMORY. */
BH_API bh_status bh_event_set_cause(bh_event *self, bh_bytes cause);

/* What happened; BH_EVENT_LAST for NULL. */
BH_API bh_event_kind bh_event_what(const bh_event *self);
/* Of a worker's event about a message that was taken: its number, as bh_message_number tells it; 0: there is none, or it is
 * not known any more. So a program finds what it knows of the message, as its error. */
BH_API int64_t bh_event_message(const bh_event *self);
/* 1 where a field was set; its value, "" and 0 where it was not. */
BH_API int bh_event_has(const bh_event *self, bh_field field);
BH_API bh_bytes bh_event_string(const bh_event *self, bh_field field);
BH_API int64_t bh_event_int(const bh_event *self, bh_field field);
/* Why, in words, with what to do; never a password. It is the text that was set; else the sentence that the kind means each
 * time, where it has one: refused, disconnected, blocked, unblocked, missed; unavailable by its connection; cancelled, drained,
 * stale and replayed by their status; else why it is parked; else the handler's error; else "". */
BH_API bh_bytes bh_event_text(const bh_event *self);

/* How loudly it is logged: its kind's level, but a warning where what ends well most times did not, and an error where it
 * does not mend itself: a refused password or permission, a missing work queue, a clash, a certificate. */
BH_API bh_level bh_event_level(const bh_event *self);
/* The event for people, in one line of UTF-8; what controls a terminal is shown as "?". Valid until the event changes. */
BH_API bh_bytes bh_event_line(const bh_event *self);

/*
 * Log: which lines are to be written, so that 300 messages that are parked in a second are not 300 lines. Of each kind
 * and queue ten in a second, but for the level debug, where all are; the tenth says that others are left out, and the
 * next one after them how many these were. One for all that is logged together; the bound on its memory can make some
 * queues share their ten.
 */
typedef struct bh_log bh_log;

/* A new one in *out; free it with bh_log_free. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT. */
BH_API bh_status bh_log_new(bh_log **out);
/* Frees it; NULL is allowed. */
BH_API void bh_log_free(bh_log *self);
/* The line to write for an event that is to be logged, as bh_event_line; "": it is left out. now_ms: of any clock.
 * The line is the event's: valid until that changes. */
BH_API bh_bytes bh_log_line(bh_log *self, const bh_event *event, int64_t now_ms);
/* The line to write where a listener that was told of an event failed; `error`: what it failed with, in words. Of each queue
 * ten such lines are written in a second. "": this one is left out. Valid until the event changes. */
BH_API bh_bytes bh_log_listener_line(bh_log *self, const bh_event *event, bh_bytes error, int64_t now_ms);

BH_END_DECLS

#endif
