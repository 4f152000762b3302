/*
 * Relay: retries for consumers in any language that can only reject messages.
 *
 *     bh__relay *relay;
 *     bh__relay_new(&relay);
 *     bh__relay_add_queue(relay, bh_str("email"), policy);
 *     bh__relay_add_queue(relay, bh_str("webhook.*"), NULL);
 *     if (bh__relay_build(relay) != BH_OK) puts(bh__relay_error(relay).data);
 *     puts(bh__relay_policy_line(relay, BH_QUEUE_QUORUM, bh_str("/")).data);
 *     bh__worker_new_relay(&worker, relay);
 *
 * The consumer calls basic.nack or basic.reject with requeue=false. A RabbitMQ policy gives its
 * work queue the dead letter exchange <ns>.rejected. An administrator sets that policy once, with
 * the printed command.
 *
 * The relay reads dead letters from the queue <ns>.rejected. The broker's own record, x-death[0],
 * names the work queue. The relay publishes a copy through the ladder, which returns to that work
 * queue alone. After the last attempt, the copy goes to <queue>.parked.
 *
 * Attempts are counted in the header backhop-attempts, which each copy carries; each dead letter
 * adds one. The relay never uses the counts of x-death, because brokers before 4.0 continue a count
 * that a client published.
 *
 * Headers are untrusted. If x-death[0] names no queue that the relay serves, the message goes to
 * <ns>.unroutable. No header can send a message to another queue. Records of the namespace's own
 * wait queues are skipped, because RabbitMQ 3.13.0 to 3.13.2 can put them first.
 *
 * Internal: `backhop relay` and its benchmark alone run a relay.
 */
#ifndef BACKHOP_RELAY_RELAY_H
#define BACKHOP_RELAY_RELAY_H

#include <backhop/adapter/plan.h>

#define BH__RELAY_MOST_QUEUES 1000 /* names and patterns */

/* Why the broker dead-lettered a message, as x-death names it. */
typedef enum bh__death_reason {
    BH__DEATH_REJECTED,       /* "rejected": basic.nack or basic.reject with requeue=false */
    BH__DEATH_EXPIRED,        /* "expired": a TTL of the message or the queue */
    BH__DEATH_MAXLEN,         /* "maxlen": the queue was full */
    BH__DEATH_DELIVERY_LIMIT, /* "delivery_limit": a quorum queue reached its limit of deliveries */
    BH__DEATH_OTHER           /* another word, of a later broker */
} bh__death_reason;

/* A message that arrived in <ns>.rejected. The strings are valid until the next call on the
 * relay. */
typedef struct bh__dead_letter {
    bh_bytes queue;          /* the work queue that it died in; "" if the relay does not serve it */
    int is_served;           /* 1 if the relay serves that queue */
    bh__death_reason reason; /* BH__DEATH_OTHER if there is no record */
    bh_bytes word;           /* the broker's word for the reason; "" if there is no record */
    bh_bytes text;           /* a sentence, also the header backhop-error of the copy */
} bh__dead_letter;

typedef struct bh__relay bh__relay;

/*
 * Makes a relay in *out; free it with bh__relay_free.
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT if `out` is NULL.
 */
bh_status bh__relay_new(bh__relay **out);
/* Frees the relay; NULL is allowed. */
void bh__relay_free(bh__relay *self);

/*
 * Set the wait queues that all work queues of the relay share. See the functions of the same names
 * in topology.h, also for their errors. The queue type applies to the wait, parked, rejected and
 * unroutable queues; a work queue may have any type.
 */
bh_status bh__relay_set_queue_type(bh__relay *self, bh_queue_type type);
bh_status bh__relay_set_namespace(bh__relay *self, bh_bytes name);
bh_status bh__relay_set_stripes(bh__relay *self, int count);
/*
 * Sets what the relay does with a dead letter of this reason.
 *
 * BH_OUTCOME_FAILED: it counts as a failed attempt and is retried. This is the default of
 * BH__DEATH_REJECTED.
 * BH_OUTCOME_PERMANENT: it is parked at once. This is the default of the other reasons.
 * BH_OUTCOME_DROPPED: it is acknowledged.
 * Errors: BH_ERR_ARGUMENT for another outcome, and for BH__DEATH_OTHER, which is always parked.
 */
bh_status bh__relay_set_outcome(bh__relay *self, bh__death_reason reason, bh_outcome outcome);
/*
 * Adds a work queue by its name, or several by a pattern. A "*" in a pattern stands for any bytes,
 * or none.
 *
 * A name takes precedence over patterns, and an earlier pattern over a later one. A pattern matches
 * no queue whose name ends in ".parked", and none of the relay's own queues.
 * policy: copied; NULL: a policy of defaults.
 * Errors: BH_ERR_NAME as bh_topology_new; BH_ERR_POLICY if the policy is not valid; BH_ERR_ARGUMENT
 * if the name was added already, or BH__RELAY_MOST_QUEUES were; BH_ERR_NO_MEMORY.
 */
bh_status bh__relay_add_queue(bh__relay *self, bh_bytes name, const bh_policy *policy);
/*
 * Prepares the relay to read and decide. Call it after all settings.
 * Errors:
 *   BH_ERR_STATE: no queue was added.
 *   BH_ERR_STRATEGY: the policies need more rungs than there can be.
 *   BH_ERR_NAME: a queue is one of the relay's own.
 *   BH_ERR_NO_MEMORY.
 */
bh_status bh__relay_build(bh__relay *self);
/* Returns why the last call failed, and what to do. */
bh_bytes bh__relay_error(const bh__relay *self);
/*
 * Returns the shell command that gives the work queues of this type their dead letter exchange.
 *
 * An administrator runs it once, and again when the names or patterns change. The policy for quorum
 * queues adds at-least-once dead-lettering, which needs overflow=reject-publish. It has the higher
 * priority, because RabbitMQ refuses it for classic queues. A queue has one policy: the settings of
 * another policy must be added to this one. An argument with control characters has their numbers,
 * in the quotes $'...' of bash, ksh and zsh. Returns "" before bh__relay_build, and if there is no
 * memory.
 */
bh_bytes bh__relay_policy_line(bh__relay *self, bh_queue_type type, bh_bytes vhost);

/*
 * Reads a message that arrived in <ns>.rejected: the work queue that it died in, and the reason.
 *
 * Also restores in `delivery` what the broker changed when it dead-lettered the message, if x-death
 * has it: exchange, routing key and expiration. Then reads the history.
 * out: zeroed if the call fails.
 * Errors: BH_ERR_STATE if the relay is not built, or a table of the delivery is open;
 * BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
bh_status bh__relay_read(bh__relay *self, bh_delivery *delivery, bh_history *history, bh__dead_letter *out);
/*
 * Decides on the message that bh__relay_read read last, with its delivery and history.
 *
 * is_there: 1 if the work queue, its parked queue and its return binding exist. If not, the copy
 * goes to <ns>.unroutable, with the header backhop-queue of its work queue. A message of no served
 * queue goes there too, without that header. In addition to the reasons of plan.h, the plan's
 * reason can be "expired", "maxlen", "delivery_limit" or "unroutable".
 * Errors: as bh_plan_make; BH_ERR_STATE also if no message was read.
 */
bh_status bh__relay_plan(bh__relay *self, bh_plan *plan, const bh_delivery *delivery, const bh_history *history,
                         int is_there, int64_t now_ms, bh_bytes random);

#endif
