/* Event: what a worker met, and what it did about it. */
#ifndef BACKHOP_EVENT_H
#define BACKHOP_EVENT_H

#include <backhop/status.h>
#include <stdint.h>

BH_BEGIN_DECLS

/* X(name, "word", meaning): every event there is. What each has beside its text stands in brackets. */
#define BH_EVENT_LIST(X)                                                                                               \
    X(BH_EVENT_CONNECTED, "connected", "both connections are open, the topology is there")                             \
    X(BH_EVENT_FAILED, "failed",                                                                                       \
      "connecting, declaring, consuming or settling failed for now [status, delay to the next attempt]")               \
    X(BH_EVENT_DISCONNECTED, "disconnected", "a connection was lost [status, delay; count of messages to come again]") \
    X(BH_EVENT_BLOCKED, "blocked",                                                                                     \
      "the broker takes no publishes: memory or disk run low [count of copies that wait]")                             \
    X(BH_EVENT_UNBLOCKED, "unblocked", "the broker takes publishes again [count]; a lost connection ends it too")      \
    X(BH_EVENT_CANCELLED, "cancelled", "the broker ended the consumer; it consumes again [status, count]")             \
    X(BH_EVENT_RETURNED, "returned", "no queue took the copy; it is published again [status, id, delay]")              \
    X(BH_EVENT_NACKED, "nacked", "a queue was full or gone; the copy is published again [status, id, delay]")          \
    X(BH_EVENT_UNCONFIRMED, "unconfirmed",                                                                             \
      "no confirm came in time; one copy is published again, the others when one is confirmed [status, count]")        \
    X(BH_EVENT_REFUSED, "refused",                                                                                     \
      "no broker would take the copy as it is; the original is left unacked for a while [status, id]")                 \
    X(BH_EVENT_RETRIED, "retried", "a retry was taken, where asked for [id, attempts, delay]")                         \
    X(BH_EVENT_PARKED, "parked", "a message was parked; the text is the reason [id, attempts]")                        \
    X(BH_EVENT_STALE, "stale", "a message was settled that the broker delivers again [id]")                            \
    X(BH_EVENT_REPLAYED, "replayed", "a replay ended [status, count of messages that went]")                           \
    X(BH_EVENT_MISSED, "missed", "events were not taken in time, and are gone [count]")                                \
    X(BH_EVENT_DRAINED, "drained", "the worker has stopped [status; count of messages not settled in time]")

#define BH_EVENT_ENUM(name, word, meaning) name,
typedef enum bh_event_kind { BH_EVENT_LIST(BH_EVENT_ENUM) BH_EVENT_LAST } bh_event_kind;
#undef BH_EVENT_ENUM

typedef struct bh_event bh_event;

/* The word for a kind, as "disconnected"; "" for a number that is none. */
BH_API bh_bytes bh_event_name(int kind);

/* Frees what bh_worker_take_event gave; NULL is allowed. */
BH_API void bh_event_free(bh_event *self);
/* What happened; BH_EVENT_LAST for NULL. */
BH_API bh_event_kind bh_event_what(const bh_event *self);
/* The reason as a status, BH_OK where there is none; and in words, with what to do. Never holds a password. */
BH_API bh_status bh_event_status(const bh_event *self);
BH_API bh_bytes bh_event_text(const bh_event *self);
/* The message's id, as bh_history_id, or backhop-id of its copy. "" for none: a first attempt without message-id. */
BH_API bh_bytes bh_event_id(const bh_event *self);
/* Of an event about one of the worker's two connections: "consume" or "publish", and its "host:port". "" for none. */
BH_API bh_bytes bh_event_connection(const bh_event *self);
BH_API bh_bytes bh_event_host(const bh_event *self);
/* Failed attempts of the message so far. */
BH_API int64_t bh_event_attempts(const bh_event *self);
/* In ms: until the next attempt; of a retry, how long the message waits. */
BH_API int64_t bh_event_delay_ms(const bh_event *self);
/* How many messages it is about. */
BH_API int64_t bh_event_count(const bh_event *self);

BH_END_DECLS

#endif
