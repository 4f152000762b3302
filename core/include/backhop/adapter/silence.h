/*
 * Silence: when a broker that does not answer counts as unavailable.
 *
 * Without heartbeats, a client does not notice a network that drops all packets. A consumer looks
 * for its return exchange once a minute (bh_declaring_look). If no look was answered for the
 * timeout, its connection is silent.
 *
 *     bh_silence_begin(silence, now_ms);                       when a look begins
 *     kind = bh_silence_check(silence, is_blocked, now_ms);    at due_ms of bh_silence_read, while the connection is open
 *     kind = bh_silence_end(silence, status);                  when the look ends
 *     begin the next look pause_ms later
 *     bh_silence_lost(silence);                                when the connection is lost
 *
 * If `kind` is not BH_EVENT_LAST, emit an event of this kind: BH_EVENT_UNAVAILABLE when the
 * connection becomes silent, BH_EVENT_CONNECTED when the broker answers again. The event has the
 * connection "consume" and the text bh_silence_view; BH_EVENT_UNAVAILABLE also has the status
 * BH_ERR_TIMEOUT. BH_EVENT_CONNECTED concerns only the consumers that still consume.
 *
 * Times are in ms of a clock that never goes back. Use an object in one thread at a time.
 */
#ifndef BACKHOP_SILENCE_H
#define BACKHOP_SILENCE_H

#include <backhop/event.h>

BH_BEGIN_DECLS

#define BH_SILENCE_NEVER INT64_C(-1) /* due_ms: no look waits for its answer */

/* The state of the looks. */
typedef struct bh_silence_view {
    int64_t due_ms; /* when to call bh_silence_check next, or BH_SILENCE_NEVER */
    /*
     * How long after the end of a look the next one begins, in ms: BH_LOOK_MS; without an answer
     * the timeout, if that is shorter.
     */
    int64_t pause_ms;
    int is_silent; /* 1 from BH_EVENT_UNAVAILABLE until the broker answers or the connection is lost */
    bh_bytes text; /* of the last event, or ""; valid until the next call on the object */
} bh_silence_view;

typedef struct bh_silence bh_silence;

/*
 * Creates an object in *out. Free it with bh_silence_free.
 *
 * timeout_ms: how long an answer may take, 1 to 3,600,000: the confirm timeout.
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_silence_new(bh_silence **out, int64_t timeout_ms);
/* Frees it. NULL is allowed. */
BH_API void bh_silence_free(bh_silence *self);
/* Records that a look begins. If the look before was not answered, the timeout goes on. */
BH_API void bh_silence_begin(bh_silence *self, int64_t now_ms);
/*
 * Returns BH_EVENT_UNAVAILABLE once if the timeout has passed, else BH_EVENT_LAST.
 *
 * A handler can hold the event loop, and an answer that arrives meanwhile is read later. So of the
 * time between two calls only a part counts: half of the timeout, at most a second.
 *
 * is_blocked: 1 while the broker blocks the connection: it answers nothing then. The timeout starts
 * again.
 */
BH_API bh_event_kind bh_silence_check(bh_silence *self, int is_blocked, int64_t now_ms);
/*
 * Records that the look ended. Returns BH_EVENT_CONNECTED if the connection was silent and the
 * broker has answered, else BH_EVENT_LAST.
 *
 * status: of the look. BH_ERR_CONNECTION and BH_ERR_TIMEOUT: the client gave up without an answer.
 */
BH_API bh_event_kind bh_silence_end(bh_silence *self, bh_status status);
/* Records that the connection is lost: no answer is expected any more. */
BH_API void bh_silence_lost(bh_silence *self);
/* Reads the state: see bh_silence_view. */
BH_API void bh_silence_read(const bh_silence *self, bh_silence_view *out);

BH_END_DECLS

#endif
