/*
 * Declaring: the steps that create or verify a topology on a broker, and what the broker's refusals
 * mean.
 *
 *     bh_declaring *declaring;
 *     bh_declaration step;
 *
 *     bh_declaring_new(&declaring, topology, BH_DIALECT_C);
 *     bh_declaring_begin(declaring, BH_MODE_CREATE, 0);
 *     while (bh_declaring_next(declaring, &step)) {
 *         declare `step`;
 *         if the broker closed the channel with a code and a text:
 *             bh_declaring_refuse(declaring, code, text);   the next step needs a new channel
 *     }
 *     if (bh_declaring_status(declaring) != BH_OK) puts(bh_declaring_error(declaring).data);
 */
#ifndef BACKHOP_DECLARING_H
#define BACKHOP_DECLARING_H

#include <backhop/topology.h>

BH_BEGIN_DECLS

/*
 * Returns 1 if this mode creates rungs on demand: BH_MODE_CREATE. Use it for
 * bh_declaring_set_makes_rungs and for the rung of bh_ledger_settle.
 */
BH_API int bh_mode_makes_rungs(bh_mode mode);

/*
 * The language of the options that errors name: mode="create", mode: :create, ...
 *
 * COMMAND stands for the sub-commands of `backhop`, RELAY for `backhop relay`.
 */
typedef enum bh_dialect {
    BH_DIALECT_C,
    BH_DIALECT_PYTHON,
    BH_DIALECT_RUBY,
    BH_DIALECT_NODE,
    BH_DIALECT_COMMAND,
    BH_DIALECT_RELAY
} bh_dialect;

typedef struct bh_declaring bh_declaring;

/*
 * The declarations that the broker accepted on one connection. The second work queue of a namespace
 * then skips the shared wait queues. Use one for each connection:
 *
 *     bh_declared *declared;
 *     bh_declared_new(&declared);
 *     bh_declaring_set_declared(declaring, declared);      for each work queue
 *     bh_declared_clear(declared);                         if a declaration may be lost
 *
 * A declaration may be lost if the connection was lost, a copy was returned, or a consumer was
 * cancelled. It may also be lost if the broker closed a channel with 404 or 403.
 */
typedef struct bh_declared bh_declared;

/*
 * Creates an empty bh_declared in *out. Free it with bh_declared_free.
 *
 * Errors: BH_ERR_ARGUMENT if `out` is NULL.
 *         BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_declared_new(bh_declared **out);
/* Frees it, as soon as no bh_declaring uses it any more. NULL is allowed. */
BH_API void bh_declared_free(bh_declared *self);
/* Removes all declarations from it. */
BH_API void bh_declared_clear(bh_declared *self);

/*
 * Creates a bh_declaring in *out, with a copy of the topology. Free it with bh_declaring_free.
 *
 * Errors: BH_ERR_ARGUMENT if `out` or the topology is NULL, or the dialect is out of range.
 *         BH_ERR_STATE if the topology is not built.
 *         BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_declaring_new(bh_declaring **out, const bh_topology *topology, bh_dialect dialect);
/* Frees it. NULL is allowed. */
BH_API void bh_declaring_free(bh_declaring *self);

/*
 * Sets whether BH_MODE_VERIFY accepts missing rungs on demand, because you create them when a
 * message needs one. If the user has no permission to declare, a missing rung stays an error.
 *
 * on: 0 (default) or 1.
 * Errors: BH_ERR_ARGUMENT if `on` is neither.
 */
BH_API bh_status bh_declaring_set_makes_rungs(bh_declaring *self, int on);
/*
 * Sets the declarations that BH_MODE_CREATE skips. Each declaration that the broker accepts is
 * added, up to 10,000.
 *
 * The work queue's own declarations ("<queue>", "<queue>.*") are never skipped. If a work queue is
 * declared a second time, `declared` is cleared first, so that nothing missing is skipped.
 *
 * declared: shared by all its users, from one thread at a time; free the two in any order. NULL
 * (default): none.
 * Errors: BH_ERR_ARGUMENT if `self` is NULL.
 */
BH_API bh_status bh_declaring_set_declared(bh_declaring *self, bh_declared *declared);
/*
 * Begins, or begins again.
 *
 * BH_MODE_CREATE declares everything that is not on demand. If rung_ms is not 0, it declares only
 * this rung. If the user has no permission to declare a rung on demand, the rung counts as created,
 * because an administrator may have imported it.
 *
 * BH_MODE_VERIFY checks everything but bindings, which AMQP cannot check. It creates nothing, even
 * if a queue is deleted at the same time. Exception: RabbitMQ 3.8 creates a classic queue again
 * that is deleted just then.
 *
 * BH_MODE_NONE has no steps.
 *
 * Errors: BH_ERR_ARGUMENT if the mode is out of range or rung_ms is negative.
 */
BH_API bh_status bh_declaring_begin(bh_declaring *self, bh_mode mode, int64_t rung_ms);
/* How often a consumer calls bh_declaring_look, in ms. */
#define BH_LOOK_MS 60000
/*
 * Begins a look at the return exchange, which no retry comes back without. Its steps find the
 * exchange.
 *
 * BH_MODE_CREATE first binds the work queue again, because AMQP cannot check a binding. An exchange
 * that was deleted and declared again has lost its bindings. If the exchange is missing,
 * BH_MODE_CREATE declares the whole topology. One step then removes the work queue's binding before
 * it is made: RabbitMQ 4.3 (also 4.3.6) can keep a binding that routes nothing.
 *
 * BH_MODE_VERIFY only looks. BH_MODE_NONE has no steps, and no strategy without a return exchange.
 *
 * If bh_declaring_status is not BH_OK at the end, emit BH_EVENT_UNAVAILABLE with the status and
 * with bh_declaring_error as its text, without a connection. If the user may not look or bind, the
 * status is BH_OK.
 *
 * Errors: BH_ERR_ARGUMENT if the mode is out of range.
 */
BH_API bh_status bh_declaring_look(bh_declaring *self, bh_mode mode);
/*
 * Reads the next step. The broker accepted the step before, unless you called bh_declaring_refuse.
 *
 * Returns 1 and the step in *out; 0 at the end, and a zero *out. The step is valid until the next
 * call.
 */
BH_API int bh_declaring_next(bh_declaring *self, bh_declaration *out);
/*
 * Reports that the broker closed the channel or the connection at the step, with this reply code
 * and text. If a binding's exchange is missing, the steps begin again, once: the exchange was
 * deleted after its declaration.
 */
BH_API void bh_declaring_refuse(bh_declaring *self, int code, bh_bytes text);

/*
 * The argument that a consumer of a work queue gives to basic.consume, with the integer 0.
 *
 * 0 is RabbitMQ's default for it, so it changes nothing for classic and quorum queues. A stream
 * refuses it before it delivers a message (seen on RabbitMQ 3.10.8, 4.0.5 and 4.3.6). A stream
 * would keep each retry for all its readers, and skip messages while a consumer reconnects. A
 * header of a delivery, as x-stream-offset, would not do: a publisher can forge it.
 */
#define BH_CONSUME_ARGUMENT "x-priority"
/* Requests that the broker, or Backhop, refuses after the topology is declared. */
typedef enum bh_refusal {
    /*
     * The broker closed the channel at basic.consume of the work queue. The status is
     * BH_ERR_MISSING, BH_ERR_ACCESS or BH_ERR_CHANNEL; BH_ERR_CLASH if the work queue is a stream
     * and the consumer gave BH_CONSUME_ARGUMENT.
     */
    BH_REFUSAL_CONSUMER,
    /* The broker closed the channel at basic.get of the queue `of`, to replay. The status as
     * above. */
    BH_REFUSAL_REPLAY,
    /*
     * The broker closed a channel on which deliveries are settled. BH_ERR_CHANNEL if a delivery was
     * settled twice or needs no acknowledgement, otherwise BH_OK. of: as BH_REFUSAL_NO_ACK.
     */
    BH_REFUSAL_SETTLING,
    /*
     * A consumer without acknowledgements (no-ack). BH_ERR_ARGUMENT. of: how the user consumes with
     * acknowledgements, in the user's words: "auto_ack=False".
     */
    BH_REFUSAL_NO_ACK,
    /* A delivery of the queue `of`. BH_ERR_ARGUMENT if it is not the work queue, otherwise
     * BH_OK. */
    BH_REFUSAL_QUEUE
} bh_refusal;

/*
 * Explains an error of the broker or of the user after declaring. Sets bh_declaring_status and
 * bh_declaring_error.
 *
 * code, text: the reply code and text of the broker; 0 and "" for BH_REFUSAL_NO_ACK and
 * BH_REFUSAL_QUEUE.
 * of: see bh_refusal; "" for BH_REFUSAL_CONSUMER.
 */
BH_API void bh_declaring_explain(bh_declaring *self, bh_refusal refusal, int code, bh_bytes text, bh_bytes of);

/*
 * Returns the result.
 *
 * BH_ERR_CLASH: an exchange or queue has other arguments.
 * BH_ERR_MISSING: an exchange, queue or rung is missing.
 * BH_ERR_ACCESS: the user has no permission.
 * BH_ERR_BROKER: the broker does not have the exchange type.
 * BH_ERR_CHANNEL: another refusal.
 */
BH_API bh_status bh_declaring_status(const bh_declaring *self);
/*
 * Returns the reason and what to do; "" if the status is BH_OK. BH_MODE_VERIFY lists everything
 * missing or different.
 */
BH_API bh_bytes bh_declaring_error(const bh_declaring *self);

BH_END_DECLS

#endif
