/*
 * Relay: retries for consumers that can do nothing but reject (basic.nack or basic.reject with requeue=false), in any
 * language. A policy of RabbitMQ gives their work queues the dead letter exchange <ns>.rejected; the relay takes what
 * arrives there for a failed attempt of the queue that rejected it, as the broker's own x-death[0] names it, and sends a
 * copy round a wait of the ladder, back to that queue alone; after the last attempt into <queue>.parked.
 *
 *     bh_relay *relay;
 *     bh_relay_new(&relay);
 *     bh_relay_add_queue(relay, bh_str("email"), policy);
 *     bh_relay_add_queue(relay, bh_str("webhook.*"), NULL);
 *     if (bh_relay_build(relay) != BH_OK) puts(bh_relay_error(relay).data);
 *     puts(bh_relay_policy_line(relay, BH_QUEUE_QUORUM, bh_str("/")).data);    what the administrator runs once
 *     bh_worker_new_relay(&worker, relay);                                     worker.h: runs it
 *
 * Attempts are counted in backhop-attempts, which each copy carries, and each dead letter is one more: never from the
 * counts of x-death, which brokers before 4.0 continue from what a client published. A message whose x-death[0] names no
 * queue that the relay serves, which a stranger may have written, goes to <ns>.unroutable: nothing in a header leads to any
 * other queue. Records of the namespace's own wait queues are passed over, as RabbitMQ 3.13.0 to 3.13.2 can put them first.
 */
#ifndef BACKHOP_RELAY_H
#define BACKHOP_RELAY_H

#include <backhop/plan.h>

BH_BEGIN_DECLS

#define BH_RELAY_MOST_QUEUES 1000 /* names and patterns */

/* Why the broker dead-lettered a message: the word of x-death. */
typedef enum bh_death {
    BH_DEATH_REJECTED,       /* "rejected": basic.nack or basic.reject with requeue=false */
    BH_DEATH_EXPIRED,        /* "expired": a time to live of the message or the queue */
    BH_DEATH_MAXLEN,         /* "maxlen": pushed out of a full queue */
    BH_DEATH_DELIVERY_LIMIT, /* "delivery_limit": a quorum queue delivered it that often, and nobody settled it */
    BH_DEATH_OTHER           /* a word that brokers to come may have */
} bh_death;

typedef struct bh_relay bh_relay;

/* A new relay in *out; free it with bh_relay_free. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT. */
BH_API bh_status bh_relay_new(bh_relay **out);
/* Frees the relay; NULL is allowed. */
BH_API void bh_relay_free(bh_relay *self);

/* As the functions of the same names in topology.h, for the waits that all queues of the relay share. The queue type is
 * that of the wait, parked, rejected and unroutable queues; a work queue may have any. Errors as there. */
BH_API bh_status bh_relay_set_queue_type(bh_relay *self, bh_queue_type type);
BH_API bh_status bh_relay_set_namespace(bh_relay *self, bh_bytes name);
BH_API bh_status bh_relay_set_series(bh_relay *self, bh_series series);
BH_API bh_status bh_relay_set_stripes(bh_relay *self, int count);
/*
 * What a dead letter of this kind is: BH_OUTCOME_FAILED, a failed attempt, which is tried again; BH_OUTCOME_PERMANENT, to be
 * parked at once, with the broker's word as the reason; BH_OUTCOME_DROPPED, to be acknowledged and gone. Default: rejected
 * is a failed attempt, all others are parked. BH_ERR_ARGUMENT (also for BH_DEATH_OTHER, which is parked, and for BH_OUTCOME_OK).
 */
BH_API bh_status bh_relay_set_outcome(bh_relay *self, bh_death death, bh_outcome outcome);
/*
 * A work queue that the relay serves, by its name; or a pattern, where a "*" in it stands for any bytes, or none. A name
 * goes before any pattern, and of patterns the first that matches. A pattern matches no queue whose name ends in ".parked", and
 * none of the relay's own. The policy is copied; NULL: one with every default. BH_ERR_NAME (as bh_topology_new; one of
 * the relay's own), BH_ERR_POLICY, BH_ERR_ARGUMENT (it is there already, or BH_RELAY_MOST_QUEUES are), BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_relay_add_queue(bh_relay *self, bh_bytes name, const bh_policy *policy);
/* Makes ready to decide, after all settings. BH_ERR_STATE (no queue was added), BH_ERR_STRATEGY (the policies need more waits
 * than there can be), BH_ERR_NAME (a queue is one of the relay's own), BH_ERR_NO_MEMORY. */
BH_API bh_status bh_relay_build(bh_relay *self);
/* Why the last call failed, and what to do. */
BH_API bh_bytes bh_relay_error(const bh_relay *self);

/* Where the dead letters arrive, "<namespace>.rejected": the name of the exchange, and of the queue behind it; "" before
 * bh_relay_build. */
BH_API bh_bytes bh_relay_rejected_queue(const bh_relay *self);
/* "<namespace>.unroutable", as bh_topology_unroutable_queue. */
BH_API bh_bytes bh_relay_unroutable_queue(const bh_relay *self);
/* The names and patterns, in the order in which they were added. */
BH_API size_t bh_relay_queue_count(const bh_relay *self);
BH_API bh_bytes bh_relay_queue_name(const bh_relay *self, size_t index);
BH_API int bh_relay_queue_is_pattern(const bh_relay *self, size_t index);

/*
 * The shell command with which an administrator gives the work queues of this type, of the names and patterns of the relay,
 * their dead letter exchange: once, and again when they change. Quorum queues dead-letter at-least-once, which needs overflow
 * reject-publish; the policy for them goes before that for classic ones, which RabbitMQ does not give it to. A queue has one
 * policy: what others gave it has to be added to this one. "" before bh_relay_build, and without memory.
 */
BH_API bh_bytes bh_relay_policy_line(bh_relay *self, bh_queue_type type, bh_bytes vhost);

/*
 * Reads a message that arrived in <ns>.rejected: which work queue it died in, and why. It also puts into the delivery what the
 * broker changed when it dead-lettered the message, as far as x-death tells (exchange, routing key, expiration), and reads
 * the history of that. BH_ERR_STATE (not built; a table of the delivery is open), BH_ERR_ARGUMENT, BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_relay_read(bh_relay *self, bh_delivery *delivery, bh_history *history);
/* The work queue of the message that was read last; "" where it is none that the relay serves. */
BH_API bh_bytes bh_relay_queue(const bh_relay *self);
/* 1 where it is one that the relay serves. */
BH_API int bh_relay_is_served(const bh_relay *self);
/* Why it died, and the broker's word for it; BH_DEATH_OTHER and "" where nothing tells. */
BH_API bh_death bh_relay_death(const bh_relay *self);
BH_API bh_bytes bh_relay_death_word(const bh_relay *self);
/* What is to be told of it in words; also the copy's backhop-error. */
BH_API bh_bytes bh_relay_words(const bh_relay *self);
/*
 * Decides on the message that was read last, of this delivery and history. `is_there`: whether the work queue, its parked queue
 * and its way back are; where not, the copy goes to <ns>.unroutable, by its header backhop-queue still that queue's own. A
 * message of no queue that is served goes there too, without that header. Reasons of the plan's, beside those of plan.h: "expired",
 * "maxlen" and "delivery_limit", for what is parked at once, and "unroutable". Other arguments and errors as bh_plan_make;
 * BH_ERR_STATE also where nothing was read.
 */
BH_API bh_status bh_relay_plan(bh_relay *self, bh_plan *plan, const bh_delivery *delivery, const bh_history *history,
                               int is_there, int64_t now_ms, bh_bytes random);

BH_END_DECLS

#endif
