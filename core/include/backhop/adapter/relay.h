/*
 * Relay: retries for consumers in any language that can only reject messages.
 *
 *     bh_relay *relay;
 *     bh_relay_new(&relay);
 *     bh_relay_add_queue(relay, bh_str("email"), policy);
 *     bh_relay_add_queue(relay, bh_str("webhook.*"), NULL);
 *     if (bh_relay_build(relay) != BH_OK) puts(bh_relay_error(relay).data);
 *     puts(bh_relay_policy_line(relay, BH_QUEUE_QUORUM, bh_str("/")).data);
 *     bh_worker_new_relay(&worker, relay);
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
 */
#ifndef BACKHOP_RELAY_H
#define BACKHOP_RELAY_H

#include <backhop/adapter/plan.h>

BH_BEGIN_DECLS

#define BH_RELAY_MOST_QUEUES 1000 /* names and patterns */

/* Why the broker dead-lettered a message, as x-death names it. */
typedef enum bh_death_reason {
    BH_DEATH_REJECTED,       /* "rejected": basic.nack or basic.reject with requeue=false */
    BH_DEATH_EXPIRED,        /* "expired": a TTL of the message or the queue */
    BH_DEATH_MAXLEN,         /* "maxlen": the queue was full */
    BH_DEATH_DELIVERY_LIMIT, /* "delivery_limit": a quorum queue reached its limit of deliveries */
    BH_DEATH_OTHER           /* another word, of a later broker */
} bh_death_reason;

/* A message that arrived in <ns>.rejected. The strings are valid until the next call on the
 * relay. */
typedef struct bh_dead_letter {
    bh_bytes queue;         /* the work queue that it died in; "" if the relay does not serve it */
    int is_served;          /* 1 if the relay serves that queue */
    bh_death_reason reason; /* BH_DEATH_OTHER if there is no record */
    bh_bytes word;          /* the broker's word for the reason; "" if there is no record */
    bh_bytes text;          /* a sentence, also the header backhop-error of the copy */
} bh_dead_letter;

typedef struct bh_relay bh_relay;
typedef struct bh_worker bh_worker;

/*
 * Makes a relay in *out; free it with bh_relay_free.
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT if `out` is NULL.
 */
BH_API bh_status bh_relay_new(bh_relay **out);
/* Frees the relay; NULL is allowed. */
BH_API void bh_relay_free(bh_relay *self);

/*
 * Set the wait queues that all work queues of the relay share. See the functions of the same names
 * in topology.h, also for their errors. The queue type applies to the wait, parked, rejected and
 * unroutable queues; a work queue may have any type.
 */
BH_API bh_status bh_relay_set_queue_type(bh_relay *self, bh_queue_type type);
BH_API bh_status bh_relay_set_namespace(bh_relay *self, bh_bytes name);
BH_API bh_status bh_relay_set_stripes(bh_relay *self, int count);
/*
 * Sets what the relay does with a dead letter of this reason.
 *
 * BH_OUTCOME_FAILED: it counts as a failed attempt and is retried. This is the default of
 * BH_DEATH_REJECTED.
 * BH_OUTCOME_PERMANENT: it is parked at once. This is the default of the other reasons.
 * BH_OUTCOME_DROPPED: it is acknowledged.
 * Errors: BH_ERR_ARGUMENT for another outcome, and for BH_DEATH_OTHER, which is always parked.
 */
BH_API bh_status bh_relay_set_outcome(bh_relay *self, bh_death_reason reason, bh_outcome outcome);
/*
 * Adds a work queue by its name, or several by a pattern. A "*" in a pattern stands for any bytes,
 * or none.
 *
 * A name takes precedence over patterns, and an earlier pattern over a later one. A pattern matches
 * no queue whose name ends in ".parked", and none of the relay's own queues.
 * policy: copied; NULL: a policy of defaults.
 * Errors: BH_ERR_NAME as bh_topology_new; BH_ERR_POLICY if the policy is not valid; BH_ERR_ARGUMENT
 * if the name was added already, or BH_RELAY_MOST_QUEUES were; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_relay_add_queue(bh_relay *self, bh_bytes name, const bh_policy *policy);
/*
 * Prepares the relay to read and decide. Call it after all settings.
 * Errors:
 *   BH_ERR_STATE: no queue was added.
 *   BH_ERR_STRATEGY: the policies need more rungs than there can be.
 *   BH_ERR_NAME: a queue is one of the relay's own.
 *   BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_relay_build(bh_relay *self);
/* Returns why the last call failed, and what to do. */
BH_API bh_bytes bh_relay_error(const bh_relay *self);
/*
 * Returns the shell command that gives the work queues of this type their dead letter exchange.
 *
 * An administrator runs it once, and again when the names or patterns change. The policy for quorum
 * queues adds at-least-once dead-lettering, which needs overflow=reject-publish. It has the higher
 * priority, because RabbitMQ refuses it for classic queues. A queue has one policy: the settings of
 * another policy must be added to this one. An argument with control characters has their numbers,
 * in the quotes $'...' of bash, ksh and zsh. Returns "" before bh_relay_build, and if there is no
 * memory.
 */
BH_API bh_bytes bh_relay_policy_line(bh_relay *self, bh_queue_type type, bh_bytes vhost);

/*
 * Reads a message that arrived in <ns>.rejected: the work queue that it died in, and the reason.
 *
 * Also restores in `delivery` what the broker changed when it dead-lettered the message, if x-death
 * has it: exchange, routing key and expiration. Then reads the history.
 * out: zeroed if the call fails.
 * Errors: BH_ERR_STATE if the relay is not built, or a table of the delivery is open;
 * BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_relay_read(bh_relay *self, bh_delivery *delivery, bh_history *history, bh_dead_letter *out);
/*
 * Decides on the message that bh_relay_read read last, with its delivery and history.
 *
 * is_there: 1 if the work queue, its parked queue and its return binding exist. If not, the copy
 * goes to <ns>.unroutable, with the header backhop-queue of its work queue. A message of no served
 * queue goes there too, without that header. In addition to the reasons of plan.h, the plan's
 * reason can be "expired", "maxlen", "delivery_limit" or "unroutable".
 * Errors: as bh_plan_make; BH_ERR_STATE also if no message was read.
 */
BH_API bh_status bh_relay_plan(bh_relay *self, bh_plan *plan, const bh_delivery *delivery, const bh_history *history,
                               int is_there, int64_t now_ms, bh_bytes random);

/*
 * Makes a worker in *out that runs the relay, which is copied; free it with bh_worker_free
 * (worker.h).
 *
 * The worker consumes <ns>.rejected and decides on each dead letter itself: bh_worker_take and
 * bh_worker_settle are not used. The handler of bh_worker_run may be NULL. Its prefetch is 1000.
 * bh_worker_replay returns BH_ERR_STATE.
 *
 * It declares the queues that all work queues share. Per work queue it declares the parked queue
 * and the return binding. For queues that the relay names, it does so when it connects; for others,
 * when their first dead letter arrives. It repeats this every 30 s, because a queue that is deleted
 * and declared again loses its return binding. It never declares a work queue. If one is missing,
 * it emits BH_EVENT_UNAVAILABLE, and the queue's dead letters go to <ns>.unroutable. Several relays
 * may run side by side.
 * Errors: BH_ERR_STATE if the relay is not built; others as bh_worker_new.
 */
BH_API bh_status bh_worker_new_relay(bh_worker **out, const bh_relay *relay);

BH_END_DECLS

#endif
