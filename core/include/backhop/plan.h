/*
 * Plan: the decision as data. What to do with a delivery, where a copy goes, which headers and properties it carries.
 *
 *     bh_plan_guard(plan, delivery, history, policy, topology, now_ms, random);
 *     if (bh_plan_action(plan) == BH_ACTION_NONE) ...   call the handler; it failed:
 *     bh_plan_make(plan, delivery, history, policy, topology, BH_OUTCOME_FAILED, bh_str("507 queue is full"), 0,
 *                  now_ms, random);
 *
 * Whoever carries it out does these, in this order, and never acknowledges what was not confirmed:
 *
 *   BH_ACTION_ACK, BH_ACTION_DROP   basic.ack
 *   BH_ACTION_REJECT                basic.nack(requeue=false)
 *   BH_ACTION_RETURN                basic.reject(requeue=true)
 *   BH_ACTION_RETRY, BH_ACTION_PARK basic.publish of a copy, wait for its confirm, then basic.ack of the original
 *
 * The copy is the original's body, its properties but those the plan drops, delivery-mode 2, the expiration that the
 * plan sets, its headers but those the plan drops, each with the type and bytes it had, and the headers that the plan
 * sets.
 */
#ifndef BACKHOP_PLAN_H
#define BACKHOP_PLAN_H

#include <backhop/history.h>

BH_BEGIN_DECLS

#define BH_PLAN_RANDOM_BYTES 32
#define BH_PLAN_DEFAULT_FRAME_MAX 131072

/* What the handler did. */
typedef enum bh_outcome {
    BH_OUTCOME_OK,
    BH_OUTCOME_FAILED,    /* try again, while attempts are left */
    BH_OUTCOME_PERMANENT, /* no attempt can succeed: park it now */
    BH_OUTCOME_DROPPED    /* nobody needs it any more */
} bh_outcome;

typedef enum bh_action {
    BH_ACTION_NONE, /* nothing was decided yet; after bh_plan_guard: hand it to the handler */
    BH_ACTION_ACK,
    BH_ACTION_RETRY,
    BH_ACTION_REJECT,
    BH_ACTION_RETURN,
    BH_ACTION_PARK,
    BH_ACTION_DROP,
    BH_ACTION_REPLAY /* as retry and park: publish, confirm, ack */
} bh_action;

typedef struct bh_plan bh_plan;

/* A new plan in *out; free it with bh_plan_free. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT. */
BH_API bh_status bh_plan_new(bh_plan **out);
/* Frees the plan; NULL is allowed. */
BH_API void bh_plan_free(bh_plan *self);
/* The frame_max that the publishing connection negotiated, in bytes; 0: no limit. Default BH_PLAN_DEFAULT_FRAME_MAX. A
 * copy leaves room in it for what brokers add on the way back: x-death and its kin, the counts of quorum queues. */
BH_API bh_status bh_plan_set_frame_max(bh_plan *self, int64_t frame_max);

/* The span of the attempt that the next bh_plan_make is about, as W3C's traceparent ("00-<32 hex digits>-<16>-<2>"): its
 * copy carries it as backhop-traceparent, so that the next attempt's span can link to it (bh_history_traceparent). ""
 * (default): none. BH_ERR_ARGUMENT: another form. */
BH_API bh_status bh_plan_set_traceparent(bh_plan *self, bh_bytes traceparent);

/*
 * Decides, and replaces the plan before. The history must have been read from this delivery with this topology.
 *
 *   error           why the handler failed; at most BH_HISTORY_MOST_ERROR_BYTES of it are kept
 *   retry_after_ms  the delay that the handler asks for at least, in ms; 0, or less: none
 *   now_ms          ms since the epoch: 0 to 2^53 - 1
 *   random          BH_PLAN_RANDOM_BYTES random bytes: big-endian, the first 8 for the jitter, the next 8 for the
 *                   choice of a rung (of both, the upper 53 bits; the lower 11 bits of both choose the stripe), the
 *                   last 16 for the message's id
 *
 * BH_ERR_ARGUMENT, BH_ERR_STATE (the topology is not built, the history not read, a table of the delivery open),
 * BH_ERR_FOREIGN_POLICY (the topology was built for other policies, and has not all waits of this one),
 * BH_ERR_NO_MEMORY, BH_ERR_FRAME (not even the message's own headers fit frame_max).
 */
BH_API bh_status bh_plan_make(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                              const bh_policy *policy, const bh_topology *topology, bh_outcome outcome, bh_bytes error,
                              int64_t retry_after_ms, int64_t now_ms, bh_bytes random);
/*
 * Decides, before a handler sees the message, whether one may: BH_ACTION_NONE; or what becomes of a message whose
 * consumers were lost, max_crashes times (bh_history_crashes), while it, or a message beside it, was in hand:
 *
 *   strategies that copy  BH_ACTION_RETRY: a copy waits, with full jitter, up to the longest delay that the policy has
 *                         after as many failures as this has been waits; each crash after it is a longer wait. So those
 *                         that were lost together come back apart. After BH_POLICY_CRASH_WAITS waits, or where a wait is
 *                         not possible, BH_ACTION_PARK with the reason "poison". These waits are no attempts of the
 *                         handler, and max_attempts and max_age do not end them.
 *   reject                BH_ACTION_PARK, "poison", at once
 *   native                a crash is an attempt, and the broker waits: BH_ACTION_PARK, "poison", where it delivers again
 *                         what has all attempts used up; the last one crashed, or it would have been parked
 *
 * A consumer that left in good order counts as lost before RabbitMQ 4.3. Arguments and errors as bh_plan_make; the copy's
 * error says how often the consumer was lost.
 */
BH_API bh_status bh_plan_guard(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                               const bh_policy *policy, const bh_topology *topology, int64_t now_ms, bh_bytes random);
/*
 * Decides to send a parked message back to its work queue, and to no other, as if it had never failed: history cleared,
 * id, original exchange and routing key kept; backhop-replays counts it. Errors as bh_plan_make.
 */
BH_API bh_status bh_plan_replay(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                                const bh_topology *topology, bh_bytes random);

/*
 * Decides on a message that was found in a wait queue of an earlier, hand-made set-up: it waits on in the topology, as long as
 * the policy has it after as many failures, anew, and goes to the work queue then; where no attempt is left it is parked as
 * exhausted. Its failures are those that its header has counted (backhop-attempts, the legacy counter), at least one. Where
 * x-death counts, or nothing, it is one more: the failure that it waits for, as its wait is not over. What tells its
 * exchange and routing key is the broker's record of the work queue in x-death; else how it came, but not where it came by
 * the wait queue's name (the default exchange): then it is the work queue's name, which such set-ups send it back by. Arguments
 * and errors as bh_plan_make; BH_ERR_STRATEGY: reject and native keep no message in a queue of its own.
 */
BH_API bh_status bh_plan_adopt(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                               const bh_policy *policy, const bh_topology *topology, int64_t now_ms, bh_bytes random);

BH_API bh_action bh_plan_action(const bh_plan *self);
/* 1 where a copy is published: retry, park, replay. */
BH_API int bh_plan_publishes(const bh_plan *self);
/* Failed attempts, this one included where it failed; at most BH_HISTORY_MOST_ATTEMPTS. */
BH_API int64_t bh_plan_attempts(const bh_plan *self);
/* How long the message will wait, in ms; 0 where it does not. */
BH_API int64_t bh_plan_delay_ms(const bh_plan *self);
/* 0 where the delay is shorter than the handler asked for: strategies reject and native, or beyond max_retry_after. */
BH_API int bh_plan_retry_after_met(const bh_plan *self);
/* Park: "exhausted", "permanent", "too-old", "oversized" (the headers go beyond the delivery's limits, or there is no
 * room in the frame for a retry's), or "poison" (bh_plan_guard); else "". */
BH_API bh_bytes bh_plan_reason(const bh_plan *self);

/* The id that the copy carries (backhop-id): the history's, else one made of the random bytes. "" where none is
 * published. */
BH_API bh_bytes bh_plan_id(const bh_plan *self);

/* Where the copy goes. */
BH_API bh_bytes bh_plan_exchange(const bh_plan *self);
BH_API bh_bytes bh_plan_routing_key(const bh_plan *self);
/* 1 where the publish is mandatory: always, but for the delayed exchange, which returns what it keeps. */
BH_API int bh_plan_mandatory(const bh_plan *self);
/* 1 where the topology's declarations with bh_topology_wait_ms == bh_plan_delay_ms must be made before the publish. */
BH_API int bh_plan_on_demand(const bh_plan *self);
/* The delay of the rung that must be declared before the publish, in ms: bh_plan_delay_ms where bh_plan_on_demand, else
 * 0. For bh_ledger_settle. */
BH_API int64_t bh_plan_rung_ms(const bh_plan *self);

/* 1 where the copy keeps a property of the original as it is. delivery-mode is always 2, headers are below. */
BH_API int bh_plan_keeps_property(const bh_plan *self, bh_property property);
/* The copy's expiration, as its decimal digits; "" for none. */
BH_API bh_bytes bh_plan_expiration(const bh_plan *self);

/* 1 where the copy keeps the original's header of this name. */
BH_API int bh_plan_keeps_header(const bh_plan *self, bh_bytes name);
/* Headers that the copy gets besides. */
BH_API size_t bh_plan_header_count(const bh_plan *self);
BH_API bh_bytes bh_plan_header_name(const bh_plan *self, size_t index);
/* BH_TYPE_STRING; BH_TYPE_INT64; BH_TYPE_ARRAY: of one string; BH_TYPE_VOID: as the original's header
 * bh_plan_header_source has it, type and value. No plan sets a header to void itself. */
BH_API bh_type bh_plan_header_type(const bh_plan *self, size_t index);
BH_API bh_bytes bh_plan_header_string(const bh_plan *self, size_t index);
BH_API int64_t bh_plan_header_int(const bh_plan *self, size_t index);
BH_API bh_bytes bh_plan_header_source(const bh_plan *self, size_t index);

/*
 * All of the copy's properties as they are on the wire, behind the body's size in a content header: flags, properties,
 * headers. They stay until the plan is asked for them again, or freed. The delivery is the one that was decided on.
 *
 *   smallest_integers  1: an int64 of the delivery is written as the smallest signed type that holds it, as clients do that
 *                      read all integers alike; 0: as an int64
 *
 * "" where no copy is published, where the delivery has not all of its headers (bh_delivery_is_truncated) or a priority
 * that is no byte, or where there is no memory: then the copy is written of what the functions above tell.
 */
BH_API bh_bytes bh_plan_copy_properties(bh_plan *self, const bh_delivery *delivery, int smallest_integers);

BH_END_DECLS

#endif
