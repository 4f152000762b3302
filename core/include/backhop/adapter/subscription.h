/*
 * Subscription: when a consumer declares, consumes, waits or gives up.
 *
 * Report each event of the consumer: bh_subscription_declared, _subscribed, _lost, _failed,
 * _settled, _stop. Then, and at step.due_ms, and when may_subscribe changes, execute the steps:
 *
 *     bh_subscription_step step;
 *     for (;;) {
 *         bh_subscription_next(subscription, may_subscribe, now_ms, &step);
 *         if (step.kind == BH_SUBSCRIPTION_REST) break;
 *         execute the step, by step.kind
 *     }
 *
 * A new subscription declares at once. If its first attempt fails, it gives up. After it has
 * consumed once, it tries again without end, after a back-off.
 *
 * The back-off grows with each loss and each failure. It starts again only after a message was
 * settled (bh_subscription_settled). If it started again with each consumer, a queue whose
 * consumers are cancelled at once would be declared and consumed ten times a second. The C worker
 * has the same rule.
 *
 * A consumer that its breaker cancelled (BH_FLOW_CANCEL) is not lost: report nothing. At
 * BH_FLOW_CONSUME consume on the same channel if bh_subscription_is_consuming returns 1. Otherwise
 * set may_subscribe to 1, and execute the steps.
 *
 * Times are in ms of a clock that never goes back. Use an object in one thread at a time.
 */
#ifndef BACKHOP_SUBSCRIPTION_H
#define BACKHOP_SUBSCRIPTION_H

#include <backhop/adapter/event.h>
#include <backhop/policy.h>

BH_BEGIN_DECLS

#define BH_SUBSCRIPTION_RANDOM_BYTES 8
#define BH_SUBSCRIPTION_NEVER INT64_C(-1) /* due_ms: no step becomes due by time alone */

/* The kind of a step, and the fields of bh_subscription_step that it uses. */
typedef enum bh_subscription_kind {
    BH_SUBSCRIPTION_REST,    /* no step is due: due_ms */
    BH_SUBSCRIPTION_EMIT,    /* emit an event of the consumer: event, status, delay_ms */
    BH_SUBSCRIPTION_DECLARE, /* leave the channel before, and declare the topology; then _declared or _failed */
    BH_SUBSCRIPTION_CONSUME, /* open a channel, basic.qos, basic.consume; then _subscribed, _failed or _lost */
    BH_SUBSCRIPTION_GIVE_UP  /* the first attempt failed: raise its error. No step follows: status */
} bh_subscription_kind;

typedef struct bh_subscription_step {
    bh_subscription_kind kind;
    bh_event_kind event; /* BH_EVENT_CONNECTED, BH_EVENT_CANCELLED or BH_EVENT_UNAVAILABLE; BH_EVENT_LAST: none */
    bh_status status;    /* why the consumer was lost, or why the attempt failed */
    int64_t delay_ms;    /* of the event: the back-off */
    int64_t due_ms; /* of BH_SUBSCRIPTION_REST: when to call bh_subscription_next again, or BH_SUBSCRIPTION_NEVER */
} bh_subscription_step;

/* The losses that end a consumer. */
typedef enum bh_loss {
    BH_LOSS_CONSUMER,  /* basic.cancel of the broker */
    BH_LOSS_CHANNEL,   /* channel.close, or the application closed the channel */
    BH_LOSS_CONNECTION /* BH_EVENT_DISCONNECTED reports it: there is no event of the consumer */
} bh_loss;

typedef struct bh_subscription bh_subscription;

/*
 * Creates a subscription in *out. Free it with bh_subscription_free.
 *
 * back_off: the delays; it is copied. bh_back_off_new makes the default.
 * random: BH_SUBSCRIPTION_RANDOM_BYTES random bytes, which keep the delays of consumers apart.
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_subscription_new(bh_subscription **out, const bh_policy *back_off, bh_bytes random);
/* Frees the subscription. NULL is allowed. */
BH_API void bh_subscription_free(bh_subscription *self);
/*
 * Writes the next step to *out.
 *
 * may_subscribe: 0 while the connection is closed or the client recovers it, and while the breaker
 * has cancelled the consumer (bh_flow_is_cancelled). The subscription then rests, and this counts
 * as no failure.
 */
BH_API void bh_subscription_next(bh_subscription *self, int may_subscribe, int64_t now_ms, bh_subscription_step *out);
/* Records that the topology is declared, after BH_SUBSCRIPTION_DECLARE. */
BH_API void bh_subscription_declared(bh_subscription *self);
/* Records that it consumes: basic.consume-ok arrived, or the client has consumed again by
 * itself. */
BH_API void bh_subscription_subscribed(bh_subscription *self);
/*
 * Records that the consumer has ended, or the channel or the connection of an attempt to consume.
 * No effect while it waits for its next attempt: a channel can be closed after its consumer was
 * cancelled.
 */
BH_API void bh_subscription_lost(bh_subscription *self, bh_loss loss, int64_t now_ms);
/*
 * Records that an attempt to declare or to consume failed. No effect while it waits for its next
 * attempt: the failure may have been reported as a loss.
 *
 * status: for the step that emits the failure, or gives up.
 */
BH_API void bh_subscription_failed(bh_subscription *self, bh_status status, int64_t now_ms);
/* Records that a message of the consumer was settled: acknowledged, rejected or copied. The
 * back-off starts again. */
BH_API void bh_subscription_settled(bh_subscription *self);
/* Records that the application cancelled the consumer, or that its connection cannot come back. No
 * step follows. */
BH_API void bh_subscription_stop(bh_subscription *self);
/* Returns 1 from bh_subscription_subscribed until the consumer is lost or stopped. */
BH_API int bh_subscription_is_consuming(const bh_subscription *self);

BH_END_DECLS

#endif
