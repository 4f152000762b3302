/*
 * Flow: what a consumer does while its breaker is not closed. It holds its messages, and after a
 * while it stops to consume.
 *
 * Keep deliveries that no handler has in a list, the oldest first: these messages are held. Call
 * bh_flow_next after a delivery, after the end of a handler, and at step.due_ms:
 *
 *     bh_flow_step step;
 *     for (;;) {
 *         bh_flow_next(flow, held, now_ms, &step);
 *         if (step.kind == BH_FLOW_REST) break;
 *         execute the step, by step.kind
 *     }
 *
 * The breaker can change without a message: by hand (bh_breaker_open, bh_breaker_close,
 * bh_breaker_disable), or by another of its consumers. So start a timer for step.due_ms also while
 * no message is held, from the time when the consumer consumes. Events then come within a second.
 *
 * For BH_FLOW_CALL, get a permit (bh_breaker_permit), and give the oldest held message to a
 * handler. When the handler ends, record it (bh_breaker_record). Without a free handler, end the
 * loop instead, as for BH_FLOW_REST.
 *
 * The messages of an open breaker:
 *
 *   - They are held, and stay unacknowledged.
 *   - If the breaker is still open or half-open after BH_FLOW_HOLD_MS, the consumer is cancelled.
 *     Each held message waits without an attempt (BH_OUTCOME_DEFERRED) about as long as the breaker
 *     is open. So no consumer timeout of 60 s or more closes the channel.
 *   - The consumer consumes again when the pause of the breaker is over.
 *
 * With the strategies reject and native no message can wait without an attempt: it is held until
 * the breaker closes. The pauses then must be shorter than the broker's consumer timeout.
 *
 * Times are in ms of the breaker's clock. Use an object in one thread at a time.
 */
#ifndef BACKHOP_FLOW_H
#define BACKHOP_FLOW_H

#include <backhop/adapter/event.h>
#include <backhop/breaker.h>
#include <backhop/topology.h>

BH_BEGIN_DECLS

#define BH_FLOW_HOLD_MS 30000
#define BH_FLOW_LOOK_MS 100       /* how soon another state is seen while messages wait for the breaker */
#define BH_FLOW_IDLE_LOOK_MS 1000 /* the same, while no message waits for the breaker */

/* The kind of a step, and the fields of bh_flow_step that it uses. */
typedef enum bh_flow_kind {
    BH_FLOW_REST,    /* no step is due: due_ms */
    BH_FLOW_CALL,    /* a handler may get the oldest held message */
    BH_FLOW_DEFER,   /* settle the oldest held message by BH_OUTCOME_DEFERRED: delay_ms */
    BH_FLOW_CANCEL,  /* basic.cancel */
    BH_FLOW_CONSUME, /* basic.consume */
    BH_FLOW_EMIT     /* emit an event: event; see bh_flow_describe */
} bh_flow_kind;

typedef struct bh_flow_step {
    bh_flow_kind kind;
    bh_event_kind event; /* BH_EVENT_LAST: none */
    int64_t delay_ms;    /* of BH_FLOW_DEFER: for bh_plan_make, as retry_after_ms */
    int64_t due_ms;      /* of BH_FLOW_REST and BH_FLOW_CALL: when to call bh_flow_next again */
    int is_limiting;     /* of BH_FLOW_REST: 1 if held messages, or the next one, wait for the breaker */
} bh_flow_step;

typedef struct bh_flow bh_flow;

/*
 * Creates the flow of one consumer in *out. Free it with bh_flow_free.
 *
 * breaker: without by_key; kept until the flow is freed. It may have other flows.
 * topology: of the consumer; must be built.
 * Errors: BH_ERR_ARGUMENT; BH_ERR_STATE if the topology is not built; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_flow_new(bh_flow **out, bh_breaker *breaker, const bh_topology *topology);
/* Frees the flow. NULL is allowed. */
BH_API void bh_flow_free(bh_flow *self);
/*
 * Writes the next step to *out.
 *
 * held: the number of held messages.
 */
BH_API void bh_flow_next(bh_flow *self, int64_t held, int64_t now_ms, bh_flow_step *out);
/*
 * Requests the permit of a message that arrived, while no other message is held and a handler is
 * free.
 *
 * It is granted only if the breaker is closed or disabled, and no step is due. Then call the
 * handler. Otherwise hold the message, and call bh_flow_next.
 */
BH_API void bh_flow_permit(bh_flow *self, int64_t now_ms, bh_permit *out);
/* Returns 1 if bh_flow_next has a step now. After the end of a handler you need bh_flow_next only
 * then. */
BH_API int bh_flow_is_due(const bh_flow *self, int64_t held, int64_t now_ms);
/*
 * Returns 1 from BH_FLOW_CANCEL to BH_FLOW_CONSUME. If the channel or the connection is lost in
 * between, do not consume on the next one: BH_FLOW_CONSUME comes.
 */
BH_API int bh_flow_is_cancelled(const bh_flow *self);
/*
 * Sets the fields of the event of the last BH_FLOW_EMIT: the name of the breaker, the reason, and
 * for BH_EVENT_BREAKER_OPENED the length of the pause.
 *
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_flow_describe(const bh_flow *self, bh_event *event);

BH_END_DECLS

#endif
