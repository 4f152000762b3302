/*
 * Plan: the decision for one delivery, as data. It has the action, and for a copy its destination,
 * headers and properties.
 *
 *     bh_plan_guard(plan, delivery, history, policy, topology, now_ms, random);
 *     bh_plan_read(plan, &planned);
 *     if (planned.action == BH_ACTION_NONE) ...   call the handler. If it fails:
 *     bh_plan_make(plan, delivery, history, policy, topology, BH_OUTCOME_FAILED, bh_str("507 queue is full"), 0,
 *                  now_ms, random);
 *
 * Execute a plan in this order. Never acknowledge the original before the broker confirms the copy:
 *
 *   BH_ACTION_ACK, BH_ACTION_DROP                      basic.ack
 *   BH_ACTION_REJECT                                   basic.nack(requeue=false)
 *   BH_ACTION_RETURN                                   basic.reject(requeue=true)
 *   BH_ACTION_RETRY, BH_ACTION_DEFER,
 *   BH_ACTION_PARK, BH_ACTION_REPLAY                   basic.publish of the copy, its confirm, basic.ack of the original
 *
 * The copy has the original's body, delivery-mode 2, and the expiration of bh_copy. It keeps the
 * properties of bh_plan_keeps_property and the headers of bh_plan_keeps_header, with their types
 * and bytes. The headers of bh_plan_header are added. bh_plan_copy_properties writes all of them.
 */
#ifndef BACKHOP_PLAN_H
#define BACKHOP_PLAN_H

#include <backhop/adapter/history.h>
#include <backhop/policy.h>

BH_BEGIN_DECLS

#define BH_PLAN_RANDOM_BYTES 32
#define BH_PLAN_DEFAULT_FRAME_MAX 131072

typedef enum bh_action {
    BH_ACTION_NONE, /* nothing is decided; after bh_plan_guard: call the handler */
    BH_ACTION_ACK,
    BH_ACTION_RETRY,
    BH_ACTION_REJECT,
    BH_ACTION_RETURN,
    BH_ACTION_PARK,
    BH_ACTION_DROP,
    BH_ACTION_REPLAY,
    BH_ACTION_DEFER /* as BH_ACTION_RETRY, but no attempt */
} bh_action;

/*
 * The destination of a copy. The texts are valid until the plan changes. If the plan publishes no
 * copy, the texts are "" and the numbers 0.
 */
typedef struct bh_copy {
    bh_bytes id; /* of the header backhop-id: event_id of bh_past, else a random id */
    bh_bytes exchange;
    bh_bytes routing_key;
    bh_bytes expiration; /* the property, in decimal digits; "" for none */
    int64_t rung_ms;     /* the rung to declare before the publish, for bh_ledger_settle; 0 if none */
    int mandatory;       /* 0 only for the delayed exchange, which returns mandatory messages that it delays */
    int on_demand;       /* 1 if the topology's declarations with this rung_ms must be made before the publish */
} bh_copy;

/*
 * A header that the plan adds to the copy. The texts are valid until the plan changes.
 *
 * BH_TYPE_STRING and BH_TYPE_INT64 have a value. BH_TYPE_ARRAY is an array of one string.
 * BH_TYPE_VOID takes type and value from the original's header `source`; no plan adds a void value.
 */
typedef struct bh_header {
    bh_bytes name;
    bh_type type;
    bh_bytes string;
    int64_t integer;
    bh_bytes source;
} bh_header;

/* The decision of a plan. The text is valid until the plan is made again. */
typedef struct bh_planned {
    bh_action action;
    int64_t attempts;  /* failed attempts, this attempt included if it failed; at most BH_HISTORY_MOST_ATTEMPTS */
    int64_t deferrals; /* waits that were no attempts, this one included; at most BH_HISTORY_MOST_ATTEMPTS */
    int64_t delay_ms;  /* how long the message waits; 0 if it does not wait */
    /* 0 if the delay is shorter than retry_after_ms: with reject and native, or beyond
     * max_retry_after_ms; else 1 */
    int retry_after_met;
    /*
     * Why the message is parked: "exhausted", "permanent", "too-old", "oversized" or "poison". ""
     * for other actions.
     *
     * "oversized": the headers exceed the delivery's limits, or leave no room in the frame for a
     * retry's headers. "poison": bh_plan_guard parked it.
     */
    bh_bytes reason;
    size_t header_count; /* headers that the plan adds, for bh_plan_header */
} bh_planned;

typedef struct bh_plan bh_plan;

/*
 * Creates a plan in *out. Free it with bh_plan_free.
 *
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT if out is NULL.
 */
BH_API bh_status bh_plan_new(bh_plan **out);
/* Frees the plan. NULL is allowed. */
BH_API void bh_plan_free(bh_plan *self);
/*
 * Sets the frame_max of the connection that publishes, in bytes; 0 for no limit. Default:
 * BH_PLAN_DEFAULT_FRAME_MAX. A copy leaves room in the frame for headers that brokers add: x-death,
 * the counts of quorum queues.
 *
 * Errors: BH_ERR_ARGUMENT if frame_max is negative.
 */
BH_API bh_status bh_plan_set_frame_max(bh_plan *self, int64_t frame_max);

/*
 * Sets the span of the attempt for the next bh_plan_make, as W3C's traceparent: "00-<32 hex
 * digits>-<16>-<2>".
 *
 * The copy carries it in backhop-traceparent. The span of the next attempt can link to it
 * (traceparent of bh_past).
 *
 * traceparent: "" for none, the default.
 * Errors: BH_ERR_ARGUMENT if it has another form.
 */
BH_API bh_status bh_plan_set_traceparent(bh_plan *self, bh_bytes traceparent);

/*
 * Returns the outcome that counts. BH_OUTCOME_THROTTLED is BH_OUTCOME_FAILED if the message was
 * deferred max_deferrals times, and with the strategies reject and native, which cannot defer a
 * message. Other outcomes stay as they are.
 *
 * A strategy that cannot defer a message cannot serve BH_OUTCOME_DEFERRED either: see defers of
 * bh_topology_view.
 *
 * bh_plan_make decides by the same rule. Call this first, for the event of the handler's end
 * (bh_event_of).
 */
BH_API bh_outcome bh_plan_outcome(const bh_history *history, const bh_policy *policy, const bh_topology *topology,
                                  bh_outcome outcome);
/*
 * Decides after the handler. Replaces the plan. The history must be read from this delivery with
 * this topology.
 *
 *   error           why the handler failed; BH_HISTORY_MOST_ERROR_BYTES of it are kept
 *   retry_after_ms  the shortest delay that the handler requests, in ms; 0 or less for none. For BH_OUTCOME_DEFERRED:
 *                   how long the breaker is open; the message waits about as long. The limits of attempts, deferrals,
 *                   age and requested delays do not hold, and the copy keeps the error of the last failure
 *   now_ms          ms since the epoch, 0 to 2^53 - 1
 *   random          BH_PLAN_RANDOM_BYTES random bytes: 8 for the jitter, 8 for the choice of a rung, 16 for an id. Of the
 *                   first two, big-endian, the upper 53 bits are used; their lower 11 bits choose the stripe
 *
 * Errors: BH_ERR_ARGUMENT, also for BH_OUTCOME_RELEASED: call bh_ledger_give_back, and emit
 * BH_EVENT_STALE with the status BH_ERR_CANCELLED. BH_ERR_STATE if the topology is not built, the
 * history not read, or a table or array of the delivery open. BH_ERR_FOREIGN_POLICY if the topology
 * was built without this policy and lacks one of its rungs. BH_ERR_STRATEGY for BH_OUTCOME_DEFERRED
 * with the strategies reject and native. BH_ERR_NO_MEMORY BH_ERR_FRAME if the message's own headers
 * alone exceed frame_max.
 */
BH_API bh_status bh_plan_make(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                              const bh_policy *policy, const bh_topology *topology, bh_outcome outcome, bh_bytes error,
                              int64_t retry_after_ms, int64_t now_ms, bh_bytes random);
/*
 * Decides before the handler. BH_ACTION_NONE allows it.
 *
 * Another action is for a message that was in hand when max_crashes consumers were lost (crashes of
 * bh_past). The crash may have been the fault of a message beside it:
 *
 *   strategies that copy  BH_ACTION_RETRY with full jitter, up to the policy's longest delay after as many failures as
 *                         the message had waits. Each crash makes the wait longer, so that messages that were lost
 *                         together come back at different times. After BH_POLICY_CRASH_RETRIES waits, and if a wait is
 *                         not possible, BH_ACTION_PARK with the reason "poison". The waits are no attempts; max_attempts
 *                         and max_age do not end them.
 *   reject                BH_ACTION_PARK with the reason "poison".
 *   native                BH_ACTION_PARK with the reason "poison", if all attempts are used up. A crash is an attempt
 *                         here, and the last attempt crashed: a failure would have parked the message.
 *
 * Before RabbitMQ 4.3, a consumer that stops normally counts as lost. The copy's error is the
 * number of crashes.
 *
 * Arguments and errors: as bh_plan_make.
 */
BH_API bh_status bh_plan_guard(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                               const bh_policy *policy, const bh_topology *topology, int64_t now_ms, bh_bytes random);
/*
 * Decides to move a parked message back to its work queue, and to no other queue. Clears its
 * history; keeps its id and its first exchange and routing key. Increments backhop-replays. Saves
 * expiration, user-id and CC, as every copy does.
 *
 * A retry that came back to no queue was not parked: it has no backhop-parked, and the delivery's
 * exchange is the return exchange. It keeps its history, so it has only the attempts that remain.
 *
 * Arguments and errors: as bh_plan_make.
 */
BH_API bh_status bh_plan_replay(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                                const bh_topology *topology, bh_bytes random);

/* Reads what the plan decided into *out: see bh_planned. If `self` is NULL, as of a plan without a
 * decision. */
BH_API void bh_plan_read(const bh_plan *self, bh_planned *out);

/*
 * Reads the destination of the copy into *out.
 *
 * Errors: BH_ERR_STATE if the plan publishes no copy; BH_ERR_ARGUMENT. *out is then empty.
 */
BH_API bh_status bh_plan_copy(const bh_plan *self, bh_copy *out);
/* Returns 1 if the copy keeps this property of the original. delivery-mode is always 2. */
BH_API int bh_plan_keeps_property(const bh_plan *self, bh_property property);
/* Returns 1 if the copy keeps the original's header of this name. */
BH_API int bh_plan_keeps_header(const bh_plan *self, bh_bytes name);
/*
 * Reads a header that the plan adds into *out.
 *
 * Errors: BH_ERR_ARGUMENT if index is not below header_count of bh_planned; *out is then empty.
 */
BH_API bh_status bh_plan_header(const bh_plan *self, size_t index, bh_header *out);

/* Types of headers that a client hides, because it reads them as one type. The copy then has the
 * type that fits. */
typedef enum bh_hidden {
    BH_HIDDEN_WIDTHS = 1, /* writes an int64 of the delivery as the smallest signed type that holds it */
    BH_HIDDEN_BYTES = 2   /* writes a string of the delivery that is not UTF-8 as bytes */
} bh_hidden;

/*
 * Returns all properties and headers of the copy as they are on the wire: the part of the content
 * header after the body's size. The bytes are valid until the next call, or until the plan is
 * freed.
 *
 *   delivery  the delivery that was decided on
 *   hidden    bits of bh_hidden: the types that the client hides
 *
 * Returns "" if no copy is published or if headers are missing (is_truncated of bh_delivery_view).
 * Returns "" if the priority is not 0 to 255, and if there is no memory. Write the copy by the
 * functions above then.
 */
BH_API bh_bytes bh_plan_copy_properties(bh_plan *self, const bh_delivery *delivery, int hidden);

BH_END_DECLS

#endif
