/*
 * Ledger: every message in hand by one state, and what has to be done next, so that none is lost and few come twice.
 *
 * In goes what happened: a delivery arrived, it was settled, the broker confirmed or nacked copies, a channel or the
 * connection ended, the time is now t. Out comes one step after the other:
 *
 *     bh_ledger_open_channel(ledger, &channel);            deliveries come on it, acknowledgements go
 *     bh_ledger_open_publisher(ledger, &publisher);        a channel with confirms: copies go on it
 *     bh_ledger_arrive(ledger, channel, delivery_tag, &entry);
 *     bh_ledger_settle(ledger, entry, BH_ACTION_RETRY, 0, id, exchange, routing_key);
 *     while (bh_ledger_next(ledger, now_ms, 1) != BH_STEP_REST)
 *         carry out bh_ledger_step(ledger) with what the getters tell;
 *     ask again when something happened, or at bh_ledger_due_ms(ledger)
 *
 * The rules, for everybody who publishes copies:
 *
 *   - An original is acknowledged after its copy was confirmed, never before, and never on another channel.
 *   - Acknowledgements go together where that is right (bh_ledger_set_acks).
 *   - A copy that ends the channel or the connection is found by sending the suspects alone; then it is left: its
 *     original stays unacknowledged for a while, the others go on.
 *   - After a copy that was not confirmed in time one copy goes out as a probe, and the rest waits until the broker
 *     confirms something: a broker that is cut off gets one duplicate for each timeout at most, not all of them. First
 *     the oldest copy goes out again, then, where there is one, a copy that was not sent yet, and so on in turn.
 *   - A copy whose rung is not declared yet holds up no other.
 *   - What was nacked or returned goes out again after a delay of the back-off policy.
 *   - What is in flight is bounded (bh_ledger_set_most_sent), and so is what is left (bh_ledger_set_left).
 *
 * Times are ms of a clock that never goes back, 0 to 2^53 - 1. An object is used by one thread at a time.
 */
#ifndef BACKHOP_LEDGER_H
#define BACKHOP_LEDGER_H

#include <backhop/event.h>
#include <backhop/plan.h>
#include <backhop/policy.h>

BH_BEGIN_DECLS

#define BH_LEDGER_RANDOM_BYTES 8
#define BH_LEDGER_MOST_CHANNELS 65535 /* open at once, as on one connection */
#define BH_LEDGER_MOST_PUBLISHERS 8
#define BH_LEDGER_MOST_SENT 65536   /* for bh_ledger_set_most_sent */
#define BH_LEDGER_NEVER INT64_C(-1) /* of bh_ledger_due_ms: no time changes anything */

/* The state of a message. The last three are ends: they are counted (bh_ledger_count), and the entry is none then. */
typedef enum bh_state {
    BH_STATE_NONE,         /* no message in hand: it ended, or its channel did */
    BH_STATE_ARRIVED,      /* the broker delivered it */
    BH_STATE_TAKEN,        /* a handler has it */
    BH_STATE_SETTLED,      /* needs no copy: to be acknowledged, rejected or given back */
    BH_STATE_DUE,          /* its copy is to be sent */
    BH_STATE_SENT,         /* its copy was sent, and the broker has not confirmed it */
    BH_STATE_WAITING,      /* its copy was not taken, and is due again later */
    BH_STATE_CONFIRMED,    /* its copy is safe: to be acknowledged */
    BH_STATE_LEFT,         /* no broker takes its copy as it is: unacknowledged for a while */
    BH_STATE_ACKNOWLEDGED, /* the broker has forgotten it */
    BH_STATE_REJECTED,     /* the broker dead-letters it (reject), or delivers it again later (native) */
    BH_STATE_GIVEN_BACK,   /* the broker delivers it again */
    BH_STATE_LAST
} bh_state;

/* What to do next, and the getters that tell with what. */
typedef enum bh_step {
    BH_STEP_REST,      /* nothing, until something happens or bh_ledger_due_ms */
    BH_STEP_TELL,      /* an event: event, entry, status, delay_ms, count */
    BH_STEP_ACK,       /* basic.ack: channel, tag, multiple */
    BH_STEP_NACK,      /* basic.nack(requeue=false): channel, tag, entry */
    BH_STEP_REJECT,    /* basic.reject(requeue=true): channel, tag, entry */
    BH_STEP_GIVE_BACK, /* basic.nack(requeue=true): channel, tag, entry */
    BH_STEP_DECLARE,   /* the rung of this delay, then bh_ledger_rung: delay_ms */
    BH_STEP_PUBLISH    /* the copy, as the publisher's tag-th publish: entry, publisher, tag */
} bh_step;

/* How a publisher, or the connection of all of them, ended. */
typedef enum bh_ending {
    BH_ENDING_ORDERLY,   /* by ourselves, or for a reason that is no copy's, as a broker that is stopped */
    BH_ENDING_WORDLESS,  /* the socket was closed or reset, a heartbeat was missed */
    BH_ENDING_COMPLAINT, /* the broker ended it with an error: a copy in flight may be the reason */
    BH_ENDING_MISSING    /* of a publisher alone: 404 or 403, the exchange is not there or not allowed */
} bh_ending;

/* How the broker ended it, by the reply code of its channel.close or connection.close: 0 where it sent none, as by
 * ourselves. A broker that is stopped sends 320. That a connection was cut without a word no reply code tells. */
BH_API bh_ending bh_ending_of(int reply_code);

typedef struct bh_ledger bh_ledger;

/*
 * A new ledger in *out; free it with bh_ledger_free. `back_off` gives the delays between attempts to publish a copy (its
 * limits on attempts and age are ignored); it is copied. `random`: BH_LEDGER_RANDOM_BYTES random bytes, for the jitter of
 * that. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_ledger_new(bh_ledger **out, const bh_policy *back_off, bh_bytes random);
/* Frees the ledger; NULL is allowed. */
BH_API void bh_ledger_free(bh_ledger *self);

/* Settings, at any time. BH_ERR_ARGUMENT for a value out of its range.
 *
 * How long a copy may stay unconfirmed: 1 to 3 600 000 ms; default 30 000. */
BH_API bh_status bh_ledger_set_confirm_timeout_ms(bh_ledger *self, int64_t timeout_ms);
/* Copies in flight on one publisher: 1 to BH_LEDGER_MOST_SENT; default 512. For publishers that are opened later. Where
 * that many are, a probe takes the place of the publish before it, whose answer is ignored then. */
BH_API bh_status bh_ledger_set_most_sent(bh_ledger *self, int64_t most);
/*
 * Acknowledges messages together: all up to the first one that is not done with one basic.ack. Where the copy of that
 * one is sent, what is done behind it waits until it is `most` messages or `gap_ms` have gone by, as the confirm may be
 * about to come; behind any other it is acknowledged at once, one by one. `most`: 0 (default: each one alone) to
 * BH_LEDGER_MOST_SENT; gap_ms: 0 to 3 600 000. On a channel that misses a delivery, or had one out of the order of their
 * tags, which begin at 1, each one is acknowledged alone too.
 */
BH_API bh_status bh_ledger_set_acks(bh_ledger *self, int64_t most, int64_t gap_ms);
/* What is left is given back after `for_ms` (1 to 3 600 000; default 600 000), so that no consumer timeout is met; and
 * bh_ledger_is_full tells when it is more than `most` (0 to 1 000 000; default 1 000). */
BH_API bh_status bh_ledger_set_left(bh_ledger *self, int64_t most, int64_t for_ms);

/* --- what happened: the consuming side ------------------------------------------------------------------------- */

/* A channel was opened on which deliveries come; *out is its number, which no other channel of this ledger ever has.
 * BH_ERR_STATE (BH_LEDGER_MOST_CHANNELS are open), BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT. */
BH_API bh_status bh_ledger_open_channel(bh_ledger *self, int64_t *out);
/* The channel ended: the broker delivers again what was not acknowledged on it. How many messages that is. Copies of
 * theirs that are not sent yet are not sent; a number that is no open channel's is ignored. */
BH_API int64_t bh_ledger_close_channel(bh_ledger *self, int64_t channel);
/* A delivery came; *out is its entry, which no other message ever has. BH_ERR_STATE (the channel is not open),
 * BH_ERR_ARGUMENT (a tag below 1; one that is not above the last, where acknowledgements go together),
 * BH_ERR_NO_MEMORY. */
BH_API bh_status bh_ledger_arrive(bh_ledger *self, int64_t channel, int64_t delivery_tag, int64_t *out);
/* A handler has it. This and the following: BH_ERR_STATE where the entry's state does not allow it, as that of one that
 * is settled; where its channel is gone too (bh_ledger_state is BH_STATE_NONE): the broker delivers it again. While
 * BH_STEP_PUBLISH is the last step, the following take its publish back, and its tag comes again: it was not written. */
BH_API bh_status bh_ledger_take(bh_ledger *self, int64_t entry);
/* It needs nothing more: to be acknowledged. */
BH_API bh_status bh_ledger_acknowledge(bh_ledger *self, int64_t entry);
/*
 * It was settled with this action of a plan (not BH_ACTION_NONE). For one that publishes a copy: `rung_ms` is the plan's
 * bh_plan_rung_ms, id, exchange and routing key are the copy's, by which a basic.return will name it. BH_ERR_ARGUMENT,
 * BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_ledger_settle(bh_ledger *self, int64_t entry, bh_action action, int64_t rung_ms, bh_bytes id,
                                  bh_bytes exchange, bh_bytes routing_key);
/* It is to be given back to its queue: it was not taken, or not settled. */
BH_API bh_status bh_ledger_give_back(bh_ledger *self, int64_t entry);
/* No copy of it can be made, or none will ever be taken: it is left. */
BH_API bh_status bh_ledger_leave(bh_ledger *self, int64_t entry, int64_t now_ms);
/* Its copy could not be made now, as for want of memory: BH_STEP_PUBLISH comes after a back-off. Settle it then. */
BH_API bh_status bh_ledger_postpone(bh_ledger *self, int64_t entry, int64_t now_ms);
/* Acknowledgements need not wait for each other any more, until the next delivery: the end is near. */
BH_API void bh_ledger_flush(bh_ledger *self);

/* --- what happened: the publishing side ------------------------------------------------------------------------- */

/* A channel with confirms was opened; *out is its number. BH_ERR_STATE (BH_LEDGER_MOST_PUBLISHERS are open),
 * BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT. */
BH_API bh_status bh_ledger_open_publisher(bh_ledger *self, int64_t *out);
/* It ended alone: 1 where that is to be told, as BH_EVENT_UNAVAILABLE, and 0 where it was orderly; or all of them with
 * their connection, where BH_ENDING_MISSING is as BH_ENDING_COMPLAINT. What was not confirmed is sent again. An unknown
 * number is ignored: 0. */
BH_API int bh_ledger_close_publisher(bh_ledger *self, int64_t publisher, bh_ending ending, int64_t now_ms);
BH_API void bh_ledger_disconnect(bh_ledger *self, bh_ending ending, int64_t now_ms);
/* basic.ack or basic.nack of the publisher's tag-th publish; multiple: of all up to it (0: of all). A tag that no publish
 * had is ignored. */
BH_API void bh_ledger_confirm(bh_ledger *self, int64_t publisher, int64_t tag, int multiple, int is_ack,
                              int64_t now_ms);
/* basic.return of a copy, before its confirm. It names no tag: each copy in flight that it can be is sent again; where it
 * can be none, as a client may change names, every one of the publisher's. */
BH_API void bh_ledger_return(bh_ledger *self, int64_t publisher, bh_bytes id, bh_bytes exchange, bh_bytes routing_key);
/* The broker takes no publishes (connection.blocked), or takes them again: meanwhile nothing is sent or overdue. */
BH_API void bh_ledger_block(bh_ledger *self, int is_blocked, int64_t now_ms);
/* The rung that BH_STEP_DECLARE named is there (BH_OK); or could not be made, and what needs it waits. */
BH_API void bh_ledger_rung(bh_ledger *self, int64_t rung_ms, bh_status status, int64_t now_ms);
/* No rung is known to be there any more, as after a connection or a queue was lost. */
BH_API void bh_ledger_forget_rungs(bh_ledger *self);

/* --- what to do --------------------------------------------------------------------------------------------------- */

/* The next step, which counts as done: what is to be sent is sent from here on. `may_publish` 0 keeps copies back, as
 * while a socket takes no more. It allocates nothing. */
BH_API bh_step bh_ledger_next(bh_ledger *self, int64_t now_ms, int may_publish);
/* Of the last step: what it is, and with what. 0, BH_OK and BH_EVENT_LAST where it has no such thing. */
BH_API bh_step bh_ledger_step(const bh_ledger *self);
BH_API int64_t bh_ledger_step_entry(const bh_ledger *self);
BH_API int64_t bh_ledger_step_channel(const bh_ledger *self);
BH_API int64_t bh_ledger_step_publisher(const bh_ledger *self);
BH_API int64_t bh_ledger_step_tag(const bh_ledger *self);
BH_API int bh_ledger_step_multiple(const bh_ledger *self);
/* BH_EVENT_RETRIED, _PARKED, _REPLAYED: the copy is safe; RETRIED also where the plan has the broker itself retry it (reject,
 * native). _NACKED, _RETURNED: it goes out again after delay_ms. _REFUSED:
 * the message is left. _UNCONFIRMED: `count` copies were not confirmed in time, no entry. */
BH_API bh_event_kind bh_ledger_step_event(const bh_ledger *self);
BH_API bh_status bh_ledger_step_status(const bh_ledger *self);
BH_API int64_t bh_ledger_step_delay_ms(const bh_ledger *self);
BH_API int64_t bh_ledger_step_count(const bh_ledger *self);
/*
 * Of the last step, where that is BH_STEP_TELL of _NACKED, _RETURNED, _REFUSED or _UNCONFIRMED: what happened and what comes
 * next, as a sentence for people; else "". Valid until the next call on the ledger. `exchange` and `routing_key` are the
 * copy's; `reason` is what the broker said, or why a rung could not be declared ("" where nothing is known), `forgotten` the call that
 * declares the topology where it was never made, as the user writes it ("declare()"), else "".
 */
BH_API bh_bytes bh_ledger_words(bh_ledger *self, bh_bytes exchange, bh_bytes routing_key, bh_bytes reason,
                                bh_bytes forgotten);
/* When to ask again though nothing happened, after bh_ledger_next gave BH_STEP_REST; BH_LEDGER_NEVER: no need. */
BH_API int64_t bh_ledger_due_ms(const bh_ledger *self);

/* --- what is in hand --------------------------------------------------------------------------------------------- */

BH_API bh_state bh_ledger_state(const bh_ledger *self, int64_t entry);
/* How many messages are in a state; of an end: how many ended so. */
BH_API int64_t bh_ledger_count(const bh_ledger *self, bh_state state);
/* Messages in hand that are neither left nor done: with a handler, or on their way. */
BH_API int64_t bh_ledger_unsettled(const bh_ledger *self);
/* Copies that are not confirmed: due, sent or waiting. */
BH_API int64_t bh_ledger_copies(const bh_ledger *self);
/* Whether so much is left that nothing more should be consumed. */
BH_API int bh_ledger_is_full(const bh_ledger *self);

BH_END_DECLS

#endif
