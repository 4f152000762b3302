/*
 * Ledger: the table of messages in hand. It decides which step comes next, so that no message is
 * lost and few arrive twice.
 *
 * You report what happened: a delivery, its settlement, a confirm, a closed channel, the time. The
 * ledger returns steps:
 *
 *     bh_step step;
 *     bh_ledger_open_channel(ledger, &channel);        for deliveries and their acknowledgements
 *     bh_ledger_open_publisher(ledger, &publisher);    a channel with confirms, for copies
 *     bh_ledger_arrive(ledger, channel, delivery_tag, &entry);
 *     bh_ledger_settle(ledger, entry, BH_ACTION_RETRY, 0, id, exchange, routing_key);
 *     while (bh_ledger_next(ledger, now_ms, 1, &step))
 *         execute the step, by step.kind
 *     call bh_ledger_next again after the next report, or at bh_ledger_due_ms(ledger)
 *
 * The rules:
 *
 *   - An original is acknowledged after the broker confirmed its copy, and on its own channel only.
 *   - If a channel or the connection closes over a copy, the suspects are sent one by one. The
 *     culprit is abandoned: its original stays unacknowledged for a while, and the others go on.
 *   - If a confirm is late, one copy is sent as a probe and the others wait for any confirm. A
 *     broker that lost its cluster so gets one duplicate per timeout. Probes are a copy in flight
 *     and a copy that was not sent yet, in turn; of the copies in flight each time another one.
 *   - A copy that waits for its rung delays no other copy.
 *   - A nacked or returned copy is sent again after a delay of the back-off policy.
 *   - At most 512 copies are in flight on one publisher. A probe beyond them replaces an earlier publish
 *     of its copy, whose answer is ignored.
 *   - If copies are due and no publisher is open, the ledger returns BH_STEP_OPEN. If the attempt
 *     fails, the next one comes after a delay of the back-off policy.
 *   - If a copy was returned or an exchange is missing, the topology is declared again before the
 *     next publish (bh_ledger_set_restores).
 *
 * Times are in ms of a clock that never goes back, 0 to 2^53 - 1. Use an object in one thread at a
 * time.
 */
#ifndef BACKHOP_LEDGER_H
#define BACKHOP_LEDGER_H

#include <backhop/event.h>
#include <backhop/adapter/plan.h>
#include <backhop/policy.h>

BH_BEGIN_DECLS

#define BH_LEDGER_RANDOM_BYTES 8
#define BH_LEDGER_MOST_CHANNELS 65535 /* open at once */
#define BH_LEDGER_MOST_PUBLISHERS 8   /* open at once */
#define BH_LEDGER_NEVER INT64_C(-1)   /* from bh_ledger_due_ms: no step becomes due by time alone */

/* The state of an entry. The last three are final: they are only counted (bh_ledger_count). */
typedef enum bh_state {
    BH_STATE_NONE,         /* the message ended, or its channel closed */
    BH_STATE_ARRIVED,      /* the broker delivered it */
    BH_STATE_TAKEN,        /* a handler has it */
    BH_STATE_SETTLED,      /* needs no copy: it will be acknowledged, rejected or given back */
    BH_STATE_DUE,          /* its copy can be sent */
    BH_STATE_SENT,         /* its copy is in flight */
    BH_STATE_WAITING,      /* its copy was nacked, returned or postponed, and becomes due later */
    BH_STATE_CONFIRMED,    /* its copy is confirmed: the original will be acknowledged */
    BH_STATE_ABANDONED,    /* its copy cannot be published: unacknowledged for a while */
    BH_STATE_ACKNOWLEDGED, /* the broker has deleted it */
    BH_STATE_REJECTED,     /* the broker dead-letters it, or delivers it again later (native) */
    BH_STATE_GIVEN_BACK,   /* the broker delivers it again */
    BH_STATE_LAST
} bh_state;

/* The kind of a step, and the fields of bh_step that it uses. */
typedef enum bh_step_kind {
    BH_STEP_REST,      /* no step is due */
    BH_STEP_EMIT,      /* emit an event: event, entry, status, delay_ms, count */
    BH_STEP_ACK,       /* basic.ack: channel, tag, multiple */
    BH_STEP_NACK,      /* basic.nack with requeue=false: channel, tag, entry */
    BH_STEP_REJECT,    /* basic.reject with requeue=true: channel, tag, entry */
    BH_STEP_GIVE_BACK, /* basic.nack with requeue=true: channel, tag, entry */
    BH_STEP_OPEN,      /* open a channel with confirms: bh_ledger_open_publisher or _publisher_failed */
    BH_STEP_DECLARE,   /* declare the rung of delay_ms (0: the topology), then call bh_ledger_rung */
    BH_STEP_PUBLISH    /* publish the copy: entry, publisher, tag */
} bh_step_kind;

/*
 * One step. Fields that its kind does not use are 0, BH_OK and BH_EVENT_LAST.
 *
 * Events of BH_STEP_EMIT:
 *
 *   - BH_EVENT_RETRIED, _PARKED, _REPLAYED: the copy is confirmed. RETRIED also if the broker
 *     retries the message itself.
 *   - BH_EVENT_NACKED, _RETURNED: the copy is sent again after delay_ms.
 *   - BH_EVENT_REFUSED: the message is abandoned.
 *   - BH_EVENT_STALE: the channel of its delivery closed (bh_ledger_lose_channel), and its copy is
 *     not confirmed. The entry ended.
 *   - BH_EVENT_UNCONFIRMED: `count` confirms are late. It has no entry.
 *   - BH_EVENT_UNAVAILABLE: BH_STEP_OPEN, or BH_STEP_DECLARE of the topology, failed with `status`.
 *     `count` copies wait, and the next attempt comes after delay_ms. It has no entry.
 */
typedef struct bh_step {
    bh_step_kind kind;
    int64_t entry;
    int64_t channel;
    int64_t publisher;
    int64_t tag; /* of the delivery; of BH_STEP_PUBLISH, the publisher's sequence number */
    int multiple;
    bh_event_kind event;
    bh_status status;
    int64_t delay_ms;
    int64_t count;
} bh_step;

/* How a publisher, or the connection of all publishers, ended. */
typedef enum bh_ending {
    BH_ENDING_ORDERLY, /* you closed it, or the broker did, for example to shut down */
    BH_ENDING_CUT,     /* without a close method: socket closed or reset, heartbeat missed */
    BH_ENDING_ERROR,   /* the broker closed it with an error: a copy in flight may be the cause */
    BH_ENDING_MISSING  /* of a publisher: 404 or 403, no exchange or no access */
} bh_ending;

/*
 * Returns the ending for the reply code of a channel.close or connection.close.
 *
 * reply_code: 0 if the broker sent no close method. The result then is BH_ENDING_ORDERLY; use
 * BH_ENDING_CUT yourself if the connection was cut.
 */
BH_API bh_ending bh_ending_of(int reply_code);

/*
 * Creates the default back-off in *out: the delays between publishes of a copy, or between attempts
 * to open what a copy needs. Free it with bh_policy_free.
 *
 * It starts at 100 ms and doubles up to 10 s. Half of each delay is random (BH_JITTER_EQUAL).
 *
 * Errors: BH_ERR_ARGUMENT if `out` is NULL; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_back_off_new(bh_policy **out);

typedef struct bh_ledger bh_ledger;

/*
 * Creates a ledger in *out. Free it with bh_ledger_free.
 *
 * back_off: the delays between publishes of one copy; copied. Its limits on attempts and age are
 * ignored.
 * random: BH_LEDGER_RANDOM_BYTES random bytes, for the jitter of these delays.
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_ledger_new(bh_ledger **out, const bh_policy *back_off, bh_bytes random);
/* Frees the ledger. NULL is allowed. */
BH_API void bh_ledger_free(bh_ledger *self);

/*
 * Sets how long a confirm may take.
 *
 * timeout_ms: 1 to 3,600,000. Default: 30,000.
 * Errors: BH_ERR_ARGUMENT if it is out of range.
 */
BH_API bh_status bh_ledger_set_confirm_timeout_ms(bh_ledger *self, int64_t timeout_ms);
/*
 * Sets whether you can declare the topology again, because you declared it before.
 *
 * If it is on, the topology is declared again before the next publish, by BH_STEP_DECLARE with
 * delay_ms 0. This happens after bh_ledger_forget_rungs, bh_ledger_return and BH_ENDING_MISSING.
 * Without it, these forget the rungs only.
 *
 * on: 0 (default) or 1.
 */
BH_API void bh_ledger_set_restores(bh_ledger *self, int on);

/* --- reports of the consuming side ------------------------------------------------------------ */

/*
 * Adds a channel for deliveries. *out is its number, which this ledger never uses again.
 *
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY; BH_ERR_STATE if BH_LEDGER_MOST_CHANNELS are open.
 */
BH_API bh_status bh_ledger_open_channel(bh_ledger *self, int64_t *out);
/*
 * Removes a closed channel and its entries. The broker delivers these messages again; copies in
 * wait are not sent.
 *
 * Returns the number of these messages, or 0 if no channel has this number.
 */
BH_API int64_t bh_ledger_close_channel(bh_ledger *self, int64_t channel);
/*
 * Like bh_ledger_close_channel, if a publisher can still confirm the copies of its messages.
 *
 * Each message with a copy ends with an event, and no other step comes for it:
 *
 *   - Copy in flight: the event of its confirm, for example BH_EVENT_RETRIED. If the copy is nacked
 *     or returned, its publisher ends or the confirm timeout passes: BH_EVENT_STALE.
 *   - Copy confirmed: the event of its confirm, if it was not emitted yet.
 *   - Others, and all replays: BH_EVENT_STALE.
 */
BH_API int64_t bh_ledger_lose_channel(bh_ledger *self, int64_t channel);
/*
 * Adds a delivery. *out is its entry, which this ledger never uses again.
 *
 * delivery_tag: 1 or above.
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY; BH_ERR_STATE if the channel is not open.
 */
BH_API bh_status bh_ledger_arrive(bh_ledger *self, int64_t channel, int64_t delivery_tag, int64_t *out);

/*
 * Errors of the following functions: BH_ERR_ARGUMENT; BH_ERR_STATE if the state of the entry does
 * not allow the call. If its channel closed, the state is BH_STATE_NONE.
 *
 * If the last step was BH_STEP_PUBLISH of this entry, they undo it: you have not written the copy.
 * The next publish then gets the same tag.
 */

/* Settles a message that needs no copy. It will be acknowledged. */
BH_API bh_status bh_ledger_acknowledge(bh_ledger *self, int64_t entry);
/*
 * Settles a message with the action of a plan, which is not BH_ACTION_NONE.
 *
 * rung_ms: of the bh_copy; 0 if the copy needs no rung.
 * id, exchange, routing_key: of the bh_copy. A basic.return is matched by them.
 * Errors: also BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_ledger_settle(bh_ledger *self, int64_t entry, bh_action action, int64_t rung_ms, bh_bytes id,
                                  bh_bytes exchange, bh_bytes routing_key);
/* Gives the message back to its queue. Use it for messages that no handler took or settled. */
BH_API bh_status bh_ledger_give_back(bh_ledger *self, int64_t entry);
/* Abandons the message: no copy can be made or published. It is given back after ten minutes. */
BH_API bh_status bh_ledger_abandon(bh_ledger *self, int64_t entry, int64_t now_ms);

/* --- reports of the publishing side ----------------------------------------------------------- */

/*
 * Adds a channel with confirms. *out is its number. Answers BH_STEP_OPEN, and is allowed without
 * it.
 *
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY; BH_ERR_STATE if BH_LEDGER_MOST_PUBLISHERS are open.
 */
BH_API bh_status bh_ledger_open_publisher(bh_ledger *self, int64_t *out);
/*
 * Records that BH_STEP_OPEN failed. BH_EVENT_UNAVAILABLE follows, and after its delay BH_STEP_OPEN.
 *
 * The delays grow until the broker answers a publish. A publisher is not enough: the broker can
 * close it at once, again and again. Without a BH_STEP_OPEN that awaits its answer, the call is
 * ignored.
 *
 * status: not BH_OK.
 */
BH_API void bh_ledger_publisher_failed(bh_ledger *self, bh_status status, int64_t now_ms);
/*
 * Removes one publisher that ended while its connection stays open. Its copies in flight become due
 * again.
 *
 * Returns 1 if you must emit BH_EVENT_UNAVAILABLE. Returns 0 if the ending is orderly or no
 * publisher has this number.
 */
BH_API int bh_ledger_close_publisher(bh_ledger *self, int64_t publisher, bh_ending ending, int64_t now_ms);
/*
 * Removes all publishers after their connection ended. BH_ENDING_MISSING counts as BH_ENDING_ERROR.
 * BH_STEP_OPEN, and BH_STEP_DECLARE of the topology, need no answer any more.
 */
BH_API void bh_ledger_disconnect(bh_ledger *self, bh_ending ending, int64_t now_ms);
/*
 * Records a basic.ack (is_ack: 1) or basic.nack (0) of a publish.
 *
 * tag: the publisher's sequence number; 0 with `multiple`: all of its publishes. An unknown tag is
 * ignored.
 * multiple: 1 if the answer includes all earlier publishes.
 */
BH_API void bh_ledger_confirm(bh_ledger *self, int64_t publisher, int64_t tag, int multiple, int is_ack,
                              int64_t now_ms);
/*
 * Records a basic.return, which comes before its confirm.
 *
 * A return has no tag: every copy in flight with this id, exchange and routing key counts as
 * returned. If none matches, because a client changed the names, all copies of the publisher count
 * as returned.
 */
BH_API void bh_ledger_return(bh_ledger *self, int64_t publisher, bh_bytes id, bh_bytes exchange, bh_bytes routing_key);
/*
 * Records connection.blocked (1) or connection.unblocked (0). While blocked, no copy is sent and no
 * confirm is late.
 */
BH_API void bh_ledger_block(bh_ledger *self, int is_blocked, int64_t now_ms);
/*
 * Records the result of BH_STEP_DECLARE. If the status is not BH_OK, the copies that need this rung
 * wait.
 *
 * rung_ms: 0 for the topology. If it failed, BH_EVENT_UNAVAILABLE follows, and all copies wait as
 * after bh_ledger_publisher_failed. If you declare the topology for another reason, record that
 * too.
 */
BH_API void bh_ledger_rung(bh_ledger *self, int64_t rung_ms, bh_status status, int64_t now_ms);
/*
 * Marks all rungs as not declared, for example after the connection was lost. If
 * bh_ledger_set_restores is on, also the topology.
 */
BH_API void bh_ledger_forget_rungs(bh_ledger *self);

/* --- steps ------------------------------------------------------------------------------------ */

/*
 * Writes the next step to *out. The ledger counts it as executed from here on. Allocates nothing.
 *
 * Returns 1, or 0 if no step is due (BH_STEP_REST).
 *
 * may_publish: 0 holds copies back, for example while a socket accepts no more bytes.
 */
BH_API int bh_ledger_next(bh_ledger *self, int64_t now_ms, int may_publish, bh_step *out);
/*
 * Returns a sentence for the last step if it emits NACKED, RETURNED, REFUSED or UNCONFIRMED, else
 * "".
 *
 * The sentence has the cause and what happens next. It is valid until the next call on the ledger.
 *
 * exchange, routing_key: of the copy.
 * reason: the broker's text, or why a rung could not be declared; "" if unknown.
 * undeclared: the call that declares the topology, for example "declare()", if your user has not
 * made it; else "".
 */
BH_API bh_bytes bh_ledger_text(bh_ledger *self, bh_bytes exchange, bh_bytes routing_key, bh_bytes reason,
                               bh_bytes undeclared);
/*
 * Returns when the next step becomes due by time alone, or BH_LEDGER_NEVER. Call it after
 * bh_ledger_next returned 0.
 */
BH_API int64_t bh_ledger_due_ms(const bh_ledger *self);

/* --- messages in hand ------------------------------------------------------------------------- */

/* Returns the state of an entry. */
BH_API bh_state bh_ledger_state(const bh_ledger *self, int64_t entry);
/* Returns how many messages are in a state, or how many ended in a final state. */
BH_API int64_t bh_ledger_count(const bh_ledger *self, bh_state state);
/*
 * Returns how many copies are not confirmed: due, sent, waiting. Messages of bh_ledger_lose_channel
 * count until their last event.
 */
BH_API int64_t bh_ledger_copies(const bh_ledger *self);

BH_END_DECLS

#endif
