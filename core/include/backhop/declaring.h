/*
 * Declaring: how a topology is made or verified on a broker, step by step, and what the broker's refusals mean.
 *
 *     bh_declaring *declaring;
 *     bh_declaring_new(&declaring, topology, BH_DIALECT_C);
 *     bh_declaring_begin(declaring, BH_MODE_CREATE, 0);
 *     while (bh_declaring_next(declaring)) {
 *         declare what the getters tell;
 *         where the broker closed the channel instead, with a code and a text: bh_declaring_refuse(declaring, code, text),
 *         and the next step needs a new channel
 *     }
 *     if (bh_declaring_status(declaring) != BH_OK) puts(bh_declaring_error(declaring).data);
 */
#ifndef BACKHOP_DECLARING_H
#define BACKHOP_DECLARING_H

#include <backhop/topology.h>

BH_BEGIN_DECLS

/* How to treat the broker's topology. */
typedef enum bh_mode {
    BH_MODE_CREATE, /* make what is missing */
    BH_MODE_VERIFY, /* change nothing; what is missing or different is an error */
    BH_MODE_NONE    /* ask nothing: it is all there */
} bh_mode;

/* 1 where whoever declares by this mode makes a rung on demand as a message needs it: in BH_MODE_CREATE alone. For
 * bh_declaring_set_makes_rungs, and for the rung of bh_ledger_settle, which is 0 otherwise. */
BH_API int bh_mode_makes_rungs(bh_mode mode);

/* The language in which errors name what a user can do: mode="create", mode: :create, ... */
typedef enum bh_dialect { BH_DIALECT_C, BH_DIALECT_PYTHON, BH_DIALECT_RUBY, BH_DIALECT_NODE } bh_dialect;

typedef struct bh_declaring bh_declaring;

/*
 * What is known to be there, of all that was declared on one connection: so that the second work queue of a namespace
 * costs its own declarations alone, and not those of the namespace's waits again. One for each connection of a client:
 *
 *     bh_declared *declared;
 *     bh_declared_new(&declared);
 *     bh_declaring_set_declared(declaring, declared);      for each work queue
 *     bh_declared_forget(declared);                        where something may have been lost
 *
 * That is when the connection was lost, a copy was returned, the broker closed a channel with 404 or 403, or cancelled
 * a consumer.
 */
typedef struct bh_declared bh_declared;

/* A new one in *out, which knows of nothing; free it with bh_declared_free. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT. */
BH_API bh_status bh_declared_new(bh_declared **out);
/* Frees it, once no declaring has it any more; NULL is allowed. */
BH_API void bh_declared_free(bh_declared *self);
/* Nothing is known any more. */
BH_API void bh_declared_forget(bh_declared *self);

/* A new one in *out for a topology, which is copied; free it with bh_declaring_free. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT,
 * BH_ERR_STATE (the topology is not built). */
BH_API bh_status bh_declaring_new(bh_declaring **out, const bh_topology *topology, bh_dialect dialect);
/* Frees it; NULL is allowed. */
BH_API void bh_declaring_free(bh_declaring *self);

/* Whether whoever verifies makes a rung on demand later, where a message needs it: it may be missing then, unless it turns
 * out that the user has no permission to declare. 0 (default: each rung on demand has to be there) or 1. BH_ERR_ARGUMENT. */
BH_API bh_status bh_declaring_set_makes_rungs(bh_declaring *self, int on);
/*
 * Leaves out, of BH_MODE_CREATE, what is known to be there in the same form; and has remembered what the broker takes, up
 * to 10 000 declarations. The work queue's own part (what has its name, or one that goes on with a dot) is declared each
 * time; and where a work queue was declared before, declaring it again forgets first, so that nothing that is missing by
 * then is left out. It is shared: either may be freed first; both are used by one thread at a time. NULL: none, as at first.
 * BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_declaring_set_declared(bh_declaring *self, bh_declared *declared);
/*
 * Begins, anew where it had begun before. BH_MODE_CREATE: all that is not on demand, or, where `rung_ms` is not 0, the rung
 * of this delay alone. A rung on demand is taken to be there where the user may not declare it: an administrator may have
 * imported it. BH_MODE_VERIFY: all but bindings, which AMQP cannot look at; it makes nothing, whatever happens on the
 * broker meanwhile (RabbitMQ 3.8 makes a classic queue again that is deleted just then). BH_MODE_NONE: nothing. BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_declaring_begin(bh_declaring *self, bh_mode mode, int64_t rung_ms);
/* Goes on: 1 where there is a step to carry out, 0 at the end. The step before was taken by the broker, where
 * bh_declaring_refuse was not called. */
BH_API int bh_declaring_next(bh_declaring *self);
/* The broker closed the channel, or the connection, at the step: its reply code (404) and text. */
BH_API void bh_declaring_refuse(bh_declaring *self, int code, bh_bytes text);
/* The broker closed the channel at basic.consume of the work queue, once all was declared: what that means is told as at the
 * end. BH_ERR_MISSING, BH_ERR_ACCESS, or BH_ERR_CHANNEL. */
BH_API void bh_declaring_refuse_consumer(bh_declaring *self, int code, bh_bytes text);
/* It closed the channel at basic.get of a queue whose messages are replayed, likewise. */
BH_API void bh_declaring_refuse_replay(bh_declaring *self, bh_bytes queue, int code, bh_bytes text);
/*
 * What is wrong with how a client's user consumes the work queue, likewise. `with_acks` is how he consumes it with
 * acknowledgements, as he writes it ("auto_ack=False").
 *
 * The broker closed a channel on which deliveries are settled: BH_ERR_CHANNEL where one was settled twice or needs no
 * acknowledgement; BH_OK, as there is nothing to say, where it is for another reason.
 */
BH_API void bh_declaring_refuse_settling(bh_declaring *self, int code, bh_bytes text, bh_bytes with_acks);
/* A consumer gets its messages without acknowledgements (no-ack): BH_ERR_ARGUMENT. */
BH_API void bh_declaring_refuse_no_ack(bh_declaring *self, bh_bytes with_acks);
/* A delivery came from this queue: BH_ERR_ARGUMENT where that is not the work queue. */
BH_API void bh_declaring_check_queue(bh_declaring *self, bh_bytes queue);

/*
 * The step: what to declare, durable, and neither auto-deleted nor exclusive nor internal; passive: only to look whether
 * it is there. As the getters of topology.h; but the arguments are those to send, and none where it is passive.
 */
BH_API bh_declaration bh_declaring_what(const bh_declaring *self);
BH_API int bh_declaring_passive(const bh_declaring *self);
BH_API bh_bytes bh_declaring_name(const bh_declaring *self);
BH_API bh_bytes bh_declaring_type(const bh_declaring *self);
BH_API bh_bytes bh_declaring_source(const bh_declaring *self);
BH_API bh_bytes bh_declaring_routing_key(const bh_declaring *self);
BH_API size_t bh_declaring_argument_count(const bh_declaring *self);
BH_API bh_bytes bh_declaring_argument_name(const bh_declaring *self, size_t argument);
BH_API bh_type bh_declaring_argument_type(const bh_declaring *self, size_t argument);
BH_API bh_bytes bh_declaring_argument_string(const bh_declaring *self, size_t argument);
BH_API int64_t bh_declaring_argument_int(const bh_declaring *self, size_t argument);

/* At the end: how it went. BH_ERR_CLASH, BH_ERR_MISSING, BH_ERR_ACCESS, BH_ERR_BROKER (it lacks an exchange type),
 * BH_ERR_CHANNEL (another refusal); and what to do, "" for BH_OK. Verifying tells all that is missing or different. */
BH_API bh_status bh_declaring_status(const bh_declaring *self);
BH_API bh_bytes bh_declaring_error(const bh_declaring *self);

BH_END_DECLS

#endif
