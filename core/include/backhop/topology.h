/*
 * Topology: the exchanges, queues and bindings that a strategy needs, as a list of declarations.
 *
 *     bh_topology *topology;
 *     bh_topology_new(&topology, bh_str("cdn-purge"));
 *     bh_topology_set_strategy(topology, BH_STRATEGY_LADDER);
 *     if (bh_topology_build(topology, policy) != BH_OK) puts(bh_topology_error(topology).data);
 *     for (size_t i = 0; i < bh_topology_count(topology); i++) ...   in this order they can be declared
 */
#ifndef BACKHOP_TOPOLOGY_H
#define BACKHOP_TOPOLOGY_H

#include <backhop/delivery.h>
#include <backhop/policy.h>

BH_BEGIN_DECLS

#define BH_TOPOLOGY_MOST_RUNGS 128 /* of all policies; floor rungs, made on demand, come on top */
#define BH_TOPOLOGY_LOWEST_RUNG_MS 100
#define BH_TOPOLOGY_MOST_STRIPES 64
#define BH_TOPOLOGY_LONGEST_NAME 247 /* bytes of a work queue's name: "backhop:" and the name are one routing key */

/* Where a message waits. reject is not for messages with an expiration: once it is over, they never come back. */
typedef enum bh_strategy {
    BH_STRATEGY_LADDER,           /* one shared wait queue per rung, queue TTL */
    BH_STRATEGY_MESSAGE_TTL,      /* one wait queue per work queue, per-message TTL: blocked at its head */
    BH_STRATEGY_REJECT,           /* the broker alone: nack, dead letter exchange, queue TTL, back; one fixed delay */
    BH_STRATEGY_DELAYED_EXCHANGE, /* the x-delayed-message plugin, RabbitMQ 4.2 and older; not to quorum work queues */
    BH_STRATEGY_NATIVE            /* a quorum queue's delayed retry, RabbitMQ 4.3 and newer; linear or fixed */
} bh_strategy;

typedef enum bh_queue_type { BH_QUEUE_QUORUM, BH_QUEUE_CLASSIC } bh_queue_type;

/* ISO 3's Renard series: rungs per decade of the ladder. */
typedef enum bh_series { BH_SERIES_R5 = 5, BH_SERIES_R10 = 10, BH_SERIES_R20 = 20, BH_SERIES_R40 = 40 } bh_series;

typedef enum bh_declaration { BH_DECLARE_EXCHANGE, BH_DECLARE_QUEUE, BH_DECLARE_BINDING } bh_declaration;

typedef struct bh_topology bh_topology;

/* A topology for a work queue in *out; free it with bh_topology_free. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT, BH_ERR_NAME
 * (empty, longer than BH_TOPOLOGY_LONGEST_NAME, beginning with "amq.", not UTF-8, or with a zero byte in it). */
BH_API bh_status bh_topology_new(bh_topology **out, bh_bytes queue);
/* Frees the topology; NULL is allowed. */
BH_API void bh_topology_free(bh_topology *self);

/* Settings; each takes effect at the next bh_topology_build. BH_ERR_ARGUMENT for a value that is none of the names. */
BH_API bh_status bh_topology_set_strategy(bh_topology *self, bh_strategy strategy); /* default: ladder */
/* Type of the wait, parked and unroutable queues; default: quorum. */
BH_API bh_status bh_topology_set_queue_type(bh_topology *self, bh_queue_type type);
/* First part of the shared names; default "backhop", "backhop.classic" for classic queues. At most 200 bytes. */
BH_API bh_status bh_topology_set_namespace(bh_topology *self, bh_bytes name);
/* Grid of the ladder; default R10. */
BH_API bh_status bh_topology_set_series(bh_topology *self, bh_series series);
/*
 * How many wait queues each rung of the ladder has, 1 (the default) to BH_TOPOLOGY_MOST_STRIPES: a plan takes one at
 * random, so that a rung moves as many messages at once as all of them together. The first is "<ns>.wait.<ms>", the
 * k-th "<ns>.wait.<ms>.<k>": more stripes later leave those that are there as they are. Fewer leave some behind, which
 * still empty themselves. BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_topology_set_stripes(bh_topology *self, int count);
/*
 * Makes the work queue itself part of the topology: durable, of this type, with the arguments that the strategy needs
 * and those added here. A quorum queue gets x-delivery-limit 1000000000, because RabbitMQ 4 drops a message that was
 * delivered 21 times; a work queue of your own should have it too. Without it the work queue has to be there already,
 * and is never declared; reject and native, which live in the work queue's own arguments, declare it always (default:
 * quorum). The arguments' names and strings are UTF-8 (BH_ERR_ARGUMENT); one that the strategy sets itself makes
 * bh_topology_build fail, and so does x-overflow reject-publish on the ladder's shared default namespace, where a full
 * work queue would hold up everybody.
 */
BH_API bh_status bh_topology_set_work_queue_type(bh_topology *self, bh_queue_type type);
BH_API bh_status bh_topology_add_work_queue_string(bh_topology *self, bh_bytes argument, bh_bytes value);
BH_API bh_status bh_topology_add_work_queue_int(bh_topology *self, bh_bytes argument, int64_t value);

/*
 * A further policy that the topology shall serve, beside the one that is given to bh_topology_build: one for each class
 * of error, for instance. It is copied. A plan takes any of them (bh_plan_make); a policy whose waits the topology has
 * not got is refused there. BH_ERR_POLICY (bh_topology_error tells more), BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_topology_add_policy(bh_topology *self, bh_policy *policy);
/*
 * Makes the declarations for a policy, and for those that were added. BH_ERR_POLICY (bh_policy_error tells more),
 * BH_ERR_STRATEGY (the strategy cannot serve one of them; reject and native have the same delays for all),
 * BH_ERR_NO_MEMORY. After a failure there are no declarations.
 */
BH_API bh_status bh_topology_build(bh_topology *self, bh_policy *policy);
/* Whether the topology has all waits of a policy, so that plans can be made by it. BH_ERR_FOREIGN_POLICY, BH_ERR_STATE (not
 * built), BH_ERR_ARGUMENT. */
BH_API bh_status bh_topology_check_policy(const bh_topology *self, const bh_policy *policy);
/*
 * Whether a broker can serve the strategy, by `product` and `version` of its server-properties ("RabbitMQ", "4.0.5").
 * BH_ERR_BROKER, BH_ERR_STATE (not built).
 */
BH_API bh_status bh_topology_check_broker(bh_topology *self, bh_bytes product, bh_bytes version);
/* Why the last call failed, and what to do: the reason and the nearest strategy that works. */
BH_API bh_bytes bh_topology_error(const bh_topology *self);

BH_API bh_bytes bh_topology_queue(const bh_topology *self);
BH_API bh_strategy bh_topology_strategy(const bh_topology *self);
/* "<queue>.parked", where messages go after their last attempt. */
BH_API bh_bytes bh_topology_parked_queue(const bh_topology *self);
/* "<namespace>.unroutable", where messages go whose work queue was gone when they were to come back, of all that share the
 * namespace; "" for strategy native, which has none. */
BH_API bh_bytes bh_topology_unroutable_queue(const bh_topology *self);
/* 1 where a message is one of this work queue's, by the header that Backhop set (backhop-queue): of those in the unroutable
 * queue the one to send home, by bh_plan_replay. */
BH_API int bh_topology_owns(const bh_topology *self, const bh_delivery *delivery);
/*
 * message-ttl: how late a message can come back at worst, in ms, because one with a longer delay is before it: the
 * policy's highest delay less its lowest. A delay that a handler asks for comes on top. Other strategies: 0.
 */
BH_API int64_t bh_topology_worst_lateness_ms(const bh_topology *self);

/*
 * Preview: what the waits of the topology make of one of its policies: the lowest, mean and highest delay after the
 * `attempt`-th failure, and the sum of the means up to it, in ms. The ladder waits on its rungs; other strategies wait as
 * bh_policy_lowest_ms and its kin say. `spread` is the number of rungs over which messages that fail together are spread
 * (0: the strategy has none), and `share` the share of them that waits on the rung of this index, 0 to 1. With
 * decorrelated jitter, mean and share are those that follow a mean previous delay. 0 where the topology is not built, or
 * has not the policy's waits.
 */
BH_API int64_t bh_topology_lowest_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt);
BH_API int64_t bh_topology_mean_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt);
BH_API int64_t bh_topology_highest_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt);
BH_API int64_t bh_topology_total_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt);
BH_API size_t bh_topology_spread(const bh_topology *self, const bh_policy *policy, int64_t attempt);
BH_API double bh_topology_share(const bh_topology *self, const bh_policy *policy, int64_t attempt, size_t index);

/* The ladder's rungs that its policies use, in ms, ascending. */
BH_API size_t bh_topology_rung_count(const bh_topology *self);
BH_API int64_t bh_topology_rung_ms(const bh_topology *self, size_t index);

/*
 * The declarations, in an order in which they can be made. All are durable, none is auto-deleted, exclusive or
 * internal. An index out of range gives an empty one.
 */
BH_API size_t bh_topology_count(const bh_topology *self);
BH_API bh_declaration bh_topology_declaration(const bh_topology *self, size_t index);
/* Name of the exchange or queue; of a binding, its destination. */
BH_API bh_bytes bh_topology_name(const bh_topology *self, size_t index);
/* Exchange: "fanout", "direct", "x-delayed-message". Queue: "quorum", "classic". Binding: "queue" or "exchange", what
 * its destination is. */
BH_API bh_bytes bh_topology_type(const bh_topology *self, size_t index);
/* Binding: the exchange that it begins at, and its routing key. */
BH_API bh_bytes bh_topology_source(const bh_topology *self, size_t index);
BH_API bh_bytes bh_topology_routing_key(const bh_topology *self, size_t index);
/* The rung that this belongs to, in ms; 0 for none. */
BH_API int64_t bh_topology_wait_ms(const bh_topology *self, size_t index);
/*
 * 1 for a rung above or between the policies', that only a handler's request for a delay can need. Declaring leaves it
 * out until a plan asks for it (bh_plan_on_demand); verifying and exporting mean the whole list.
 */
BH_API int bh_topology_on_demand(const bh_topology *self, size_t index);
/* Arguments: name, type (BH_TYPE_STRING or BH_TYPE_INT64) and value. */
BH_API size_t bh_topology_argument_count(const bh_topology *self, size_t index);
BH_API bh_bytes bh_topology_argument_name(const bh_topology *self, size_t index, size_t argument);
BH_API bh_type bh_topology_argument_type(const bh_topology *self, size_t index, size_t argument);
BH_API bh_bytes bh_topology_argument_string(const bh_topology *self, size_t index, size_t argument);
BH_API int64_t bh_topology_argument_int(const bh_topology *self, size_t index, size_t argument);

/*
 * Writes the whole list as RabbitMQ definitions (JSON: exchanges, queues, bindings of `vhost`), for an administrator to
 * import; bh_topology_definitions gives it. BH_ERR_STATE (not built), BH_ERR_NO_MEMORY, BH_ERR_NAME (vhost not UTF-8).
 */
BH_API bh_status bh_topology_export(bh_topology *self, bh_bytes vhost);
BH_API bh_bytes bh_topology_definitions(const bh_topology *self);

BH_END_DECLS

#endif
