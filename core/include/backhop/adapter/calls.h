/*
 * Calls: which delivery needs no call of its handler, because an earlier delivery of its message
 * had one.
 *
 * A consumer timeout or a lost connection closes the channel of a delivery while its handler runs,
 * or before its acknowledgement arrived. The broker then delivers the message again. A second call
 * would be a duplicate, and a second copy a second line of retries. The C worker has the same rule.
 *
 *     channel = bh_calls_open_channel(calls);                  // a channel begins to consume
 *     bh_calls_arrive(calls, channel, history, queue, body, redelivered, now_ms, &arrival);
 *     bh_calls_end(calls, arrival.call, action, now_ms);       // its message is settled, or its copy is confirmed
 *     bh_calls_lose_channel(calls, channel, prefetch, now_ms); // it is closed, or its consumer was cancelled
 *
 * Hold a delivery of BH_ARRIVAL_WAIT. When the call arrival.call has ended, call bh_calls_arrive
 * for it again.
 *
 * Only a delivery with the redelivered flag can be of an earlier message. Another message may have
 * the same id: then its queue, exchange, routing key, attempt or body differ, or its first delivery
 * has no such flag.
 *
 * A message without an id is always called. If the channel of a call was not lost, the broker has
 * its acknowledgement, and the call holds for no other delivery.
 *
 * Use one object for a process, because a message can come back by another connection. Use it in
 * one thread at a time. Times are in ms of a clock that never goes back.
 */
#ifndef BACKHOP_CALLS_H
#define BACKHOP_CALLS_H

#include <backhop/adapter/history.h>
#include <backhop/adapter/plan.h>

BH_BEGIN_DECLS

#define BH_CALLS_RANDOM_BYTES 16
#define BH_CALLS_MOST 4096                /* calls that run, and calls that have ended: so many of each are kept */
#define BH_CALLS_KEPT_MS INT64_C(7200000) /* so long a call is kept. Consumer timeouts are 30 minutes by default */
#define BH_CALLS_PREFETCHES 2             /* acknowledgements of so many prefetches can be lost with a channel */
#define BH_CALLS_CLOSED (-1)              /* in place of a prefetch: the broker has all acknowledgements */

/* The kind of an arrival, and the fields of bh_arrival that it uses. */
typedef enum bh_arrival_kind {
    BH_ARRIVAL_CALL, /* call the handler: call */
    BH_ARRIVAL_WAIT, /* an earlier call of the message runs: call */
    BH_ARRIVAL_ACK   /* an earlier call of the message ended well: action */
} bh_arrival_kind;

typedef struct bh_arrival {
    bh_arrival_kind kind;
    int64_t call;     /* for bh_calls_end; 0: the call is not kept */
    bh_action action; /* how the earlier call ended: BH_ACTION_ACK and others, as in bh_calls_end */
} bh_arrival;

typedef struct bh_calls bh_calls;

/*
 * Creates an empty object in *out. Free it with bh_calls_free.
 *
 * random: BH_CALLS_RANDOM_BYTES random bytes, so that no publisher can make two messages look
 * alike.
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_calls_new(bh_calls **out, bh_bytes random);
/* Frees it. NULL is allowed. */
BH_API void bh_calls_free(bh_calls *self);
/* Returns the number of a new channel, above 0; 0 if `self` is NULL. */
BH_API int64_t bh_calls_open_channel(bh_calls *self);
/*
 * Writes what to do with a delivery to *out. After BH_ARRIVAL_ACK the earlier call is of this
 * channel: if that is lost too, it holds for the next delivery.
 *
 * history: of the delivery.
 * queue: the work queue.
 * redelivered: the flag of the delivery.
 */
BH_API void bh_calls_arrive(bh_calls *self, int64_t channel, const bh_history *history, bh_bytes queue, bh_bytes body,
                            int redelivered, int64_t now_ms, bh_arrival *out);
/*
 * Records that a call has ended and its message is settled. For a copy, call it once the copy is
 * confirmed: until then other deliveries of the message wait.
 *
 * call: of BH_ARRIVAL_CALL; 0 is allowed.
 * action: how the message was settled. If its channel is lost, how it would have been settled.
 * After BH_ACTION_ACK, _DROP, _RETRY, _DEFER and _PARK the next delivery needs an acknowledgement
 * alone. After other actions the next delivery is called: BH_ACTION_NONE is for a message that was
 * given back.
 */
BH_API void bh_calls_end(bh_calls *self, int64_t call, bh_action action, int64_t now_ms);
/*
 * Records that acknowledgements of a channel may be lost, and that the broker delivers its messages
 * again. The calls of the channel that run can still end.
 *
 * Call it if the channel or its connection is closed. Call it also if the broker has cancelled the
 * consumer: from RabbitMQ 4.3 on, a consumer timeout does that.
 *
 * The broker may not have the last BH_CALLS_PREFETCHES * prefetch acknowledgements. It has all
 * before, as it sends no more messages than the prefetch; the next consumer of a channel has a
 * prefetch of its own.
 *
 * prefetch: of the channel's consumers. 0: none, or unknown; then all acknowledgements may be lost,
 * BH_CALLS_MOST at most. BH_CALLS_CLOSED: the broker has confirmed that the channel is closed.
 */
BH_API void bh_calls_lose_channel(bh_calls *self, int64_t channel, int64_t prefetch, int64_t now_ms);

BH_END_DECLS

#endif
