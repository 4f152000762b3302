/*
 * Topology: the exchanges, queues and bindings that a strategy needs, as a list of declarations.
 *
 *     bh_topology *topology;
 *     bh_declaration each;
 *
 *     bh_topology_settings settings;
 *     bh_topology_defaults(&settings);    the strategy ladder, of quorum queues
 *     settings.declares_work_queue = 1;
 *     bh_topology_new(&topology, bh_str("cdn-purge"));
 *     bh_topology_set(topology, &settings);
 *     if (bh_topology_build(topology, policy) != BH_OK) puts(bh_topology_error(topology).data);
 *
 *     for (size_t i = 0; bh_topology_declaration(topology, i, &each) == BH_OK; i++)
 *         declare `each`
 */
#ifndef BACKHOP_TOPOLOGY_H
#define BACKHOP_TOPOLOGY_H

#include <backhop/policy.h>

BH_BEGIN_DECLS

#define BH_TOPOLOGY_MOST_RUNGS 128 /* of all policies, without the rungs on demand */
#define BH_TOPOLOGY_LOWEST_RUNG_MS 100
#define BH_TOPOLOGY_MOST_STRIPES 64
/* bytes of a work queue's name: "backhop:<name>" is a routing key */
#define BH_TOPOLOGY_LONGEST_NAME 247

/*
 * The place of a message during its delay. Do not use reject for messages with an expiration: an
 * expired message never comes back.
 */
typedef enum bh_strategy {
    BH_STRATEGY_LADDER, /* one shared wait queue per rung, with a queue TTL */
    /* one wait queue per work queue, with per-message TTL: the first message blocks all */
    BH_STRATEGY_MESSAGE_TTL,
    BH_STRATEGY_REJECT, /* nack, dead letter exchange, queue TTL: one fixed delay, no copies */
    /* plugin x-delayed-message: RabbitMQ up to 4.2; no quorum work queues */
    BH_STRATEGY_DELAYED_EXCHANGE,
    /* a quorum queue's delayed retry: RabbitMQ from 4.3; kinds linear and fixed */
    BH_STRATEGY_NATIVE
} bh_strategy;

typedef enum bh_queue_type { BH_QUEUE_QUORUM, BH_QUEUE_CLASSIC } bh_queue_type;

/* The ladder's rungs per decade: the Renard series of ISO 3. */
typedef enum bh_series { BH_SERIES_R5 = 5, BH_SERIES_R10 = 10, BH_SERIES_R20 = 20, BH_SERIES_R40 = 40 } bh_series;

/* How to declare a topology on the broker. */
typedef enum bh_mode {
    BH_MODE_CREATE, /* create missing exchanges, queues and bindings */
    BH_MODE_VERIFY, /* change nothing; a missing or different exchange or queue is an error */
    BH_MODE_NONE    /* declare and check nothing */
} bh_mode;

typedef enum bh_declaration_kind {
    BH_DECLARE_NONE, /* no declaration: index out of range, or the end of the steps */
    BH_DECLARE_EXCHANGE,
    BH_DECLARE_QUEUE,
    BH_DECLARE_BINDING
} bh_declaration_kind;

typedef struct bh_argument {
    bh_bytes name;
    bh_type type;    /* BH_TYPE_STRING or BH_TYPE_INT64 */
    bh_bytes string; /* the value, if the type is BH_TYPE_STRING */
    int64_t integer; /* the value, if the type is BH_TYPE_INT64 */
} bh_argument;

/* An exchange or queue is durable, and neither auto-deleted, exclusive nor internal. */
typedef struct bh_declaration {
    bh_declaration_kind kind;
    bh_bytes name; /* of the exchange or queue; of a binding's destination */
    /*
     * exchange: "fanout", "direct", "x-delayed-message"; queue: "quorum", "classic"; binding:
     * "queue" or "exchange", the kind of its destination
     */
    bh_bytes type;
    bh_bytes source;      /* of a binding: its exchange */
    bh_bytes routing_key; /* of a binding */
    int64_t rung_ms;      /* the rung of the declaration; 0: none */
    /* 1: only a handler's request for a delay needs this rung; create it with the first request */
    int on_demand;
    int passive; /* 1: only check that the name exists; for steps of bh_declaring_next */
    int unbind;  /* 1: remove the binding; for steps of bh_declaring_next */
    const bh_argument *arguments;
    size_t argument_count;
} bh_declaration;

/* The settings of a topology. */
typedef struct bh_topology_settings {
    bh_strategy strategy;     /* where messages wait; default: ladder */
    bh_queue_type queue_type; /* of the wait, parked and unroutable queues; default: quorum */
    /*
     * The first part of the shared names: 1 to 200 bytes, valid as a queue's name; copied. Data
     * NULL is the default: "backhop"; for classic queues "backhop.classic".
     */
    bh_bytes name_space;
    bh_series series; /* the grid of the ladder; default: R10 */
    /*
     * The number of wait queues of each rung: 1 (default) to BH_TOPOLOGY_MOST_STRIPES. A plan
     * chooses one of them at random, so that the throughput of a rung is the sum of its wait
     * queues.
     *
     * The names are "<namespace>.wait.<ms>", then "<namespace>.wait.<ms>.2" and so on. A higher
     * number leaves existing wait queues unchanged. After a lower number, unused wait queues remain
     * and still empty themselves.
     */
    int64_t stripes;
    /*
     * 1: adds the work queue to the declarations: durable, of work_queue_type, with the strategy's
     * arguments and yours (bh_topology_add_work_queue_argument). 0, the default: you declare the
     * work queue yourself before you declare the topology.
     *
     * A quorum queue gets x-delivery-limit 1000000000, because RabbitMQ 4 drops a message after 21
     * deliveries by default. Set this argument for your own quorum queues too. The strategies
     * reject and native always declare the work queue, because its arguments configure them.
     */
    int declares_work_queue;
    bh_queue_type work_queue_type; /* default: quorum */
} bh_topology_settings;

/*
 * The parts of a topology. The strings and rungs are valid until the next call that changes it.
 */
typedef struct bh_topology_view {
    bh_bytes queue;        /* the work queue */
    bh_bytes parked_queue; /* "<queue>.parked", of messages after their last attempt */
    /*
     * "<namespace>.unroutable", of messages whose work queue was missing when they came back. All
     * work queues of a namespace share it. Strategy native has none: "".
     */
    bh_bytes unroutable_queue;
    /*
     * The highest lateness of strategy message-ttl, in ms: the highest delay of the policies less
     * the lowest. A message is late if a message with a longer delay is ahead of it. Requested
     * delays come on top. 0 for other strategies.
     */
    int64_t worst_lateness_ms;
    const int64_t *rungs_ms; /* the rungs of the ladder that the policies need, ascending */
    size_t rung_count;
    size_t declaration_count; /* for bh_topology_declaration */
    /*
     * 1: a message can wait without an attempt. 0: strategies reject and native, whose delays are
     * the broker's.
     */
    int defers;
    bh_topology_settings settings; /* to change some of them */
} bh_topology_view;

typedef struct bh_delivery bh_delivery;
typedef struct bh_topology bh_topology;

/*
 * Creates a topology for a work queue in *out. Free it with bh_topology_free.
 *
 * Errors: BH_ERR_NAME if the name is empty, longer than BH_TOPOLOGY_LONGEST_NAME, begins with
 *         "amq.", is not UTF-8 or contains a zero byte.
 *         BH_ERR_ARGUMENT if `out` or the name is NULL.
 *         BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_topology_new(bh_topology **out, bh_bytes queue);
/* Frees the topology. NULL is allowed. */
BH_API void bh_topology_free(bh_topology *self);

/* Fills the settings with their defaults. Does nothing if `out` is NULL. */
BH_API void bh_topology_defaults(bh_topology_settings *out);
/*
 * Sets all settings, for the next bh_topology_build. If this fails, the settings stay as they were.
 *
 * Errors: BH_ERR_ARGUMENT if an argument is NULL or a field is out of range; BH_ERR_NAME if the
 * namespace is
 *         not valid; see bh_topology_error. BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_topology_set(bh_topology *self, const bh_topology_settings *settings);
/*
 * Adds an argument to the declaration of the work queue. Name and string are UTF-8; the name has 1
 * to 255 bytes.
 *
 * bh_topology_build fails if the strategy sets the same argument. It also fails for x-overflow
 * reject-publish with the ladder in the default namespace. Such a work queue would block the shared
 * wait queues when it is full.
 *
 * Errors: BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_topology_add_work_queue_argument(bh_topology *self, const bh_argument *argument);

/*
 * Adds a copy of a policy, beside the policy of bh_topology_build: for instance one for each error
 * class.
 *
 * Errors: BH_ERR_POLICY if the policy is not valid; see bh_topology_error.
 *         BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_topology_add_policy(bh_topology *self, bh_policy *policy);
/*
 * Makes the declarations for a policy and for all added policies. After an error there are no
 * declarations.
 *
 * Errors: BH_ERR_POLICY if the policy is not valid; see bh_policy_error.
 *         BH_ERR_STRATEGY if the strategy cannot serve a policy or a setting. With reject and
 *         native, all policies need the same delays.
 *         BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_topology_build(bh_topology *self, bh_policy *policy);
/*
 * Checks that the topology has all rungs of a policy, so that plans can use the policy.
 *
 * Errors: BH_ERR_FOREIGN_POLICY if a rung is missing.
 *         BH_ERR_STATE if the topology is not built.
 */
BH_API bh_status bh_topology_check_policy(const bh_topology *self, const bh_policy *policy);
/*
 * Checks that a broker can serve the strategy. `product` and `version` are its server properties:
 * "RabbitMQ", "4.0.5".
 *
 * Errors: BH_ERR_BROKER if it cannot; bh_topology_error names a strategy that works.
 *         BH_ERR_STATE if the topology is not built.
 */
BH_API bh_status bh_topology_check_broker(bh_topology *self, bh_bytes product, bh_bytes version);
/* Returns why the last call failed, and what to do. */
BH_API bh_bytes bh_topology_error(const bh_topology *self);

/*
 * Reads what the topology is made of: see bh_topology_view. A topology that is not built has no
 * declarations, rungs, parked and unroutable queue. If `self` is NULL, all are empty.
 */
BH_API void bh_topology_read(const bh_topology *self, bh_topology_view *out);
/*
 * Returns 1 if the header backhop-queue of the message names this work queue. Use it to replay
 * unroutable messages.
 *
 * Returns 0 if federation brought the message from an exchange of Backhop at another broker. It is
 * a copy of a retry there, and the other broker's work queue gets the retry too.
 */
BH_API int bh_topology_owns(const bh_topology *self, const bh_delivery *delivery);
/*
 * Reads the delay of a policy after the `attempt`-th failure (1, 2, ...), on the rungs of the
 * topology. Strategies without rungs give the delays of bh_policy_preview. All fields are 0 if the
 * topology is not built or lacks a rung of the policy.
 */
BH_API void bh_topology_preview(const bh_topology *self, const bh_policy *policy, int64_t attempt, bh_preview *out);
/*
 * Returns the share of messages, 0 to 1, that wait on the rung of this index after the `attempt`-th
 * failure. With decorrelated jitter, it is the share after a mean previous delay. 0 if
 * bh_topology_preview reads 0.
 */
BH_API double bh_topology_share(const bh_topology *self, const bh_policy *policy, int64_t attempt, size_t index);
/*
 * Reads a declaration. Declare them in the order of their index.
 *
 * Errors: BH_ERR_ARGUMENT if the index is out of range; *out is zero then.
 */
BH_API bh_status bh_topology_declaration(const bh_topology *self, size_t index, bh_declaration *out);

/*
 * Writes all declarations as RabbitMQ definitions (JSON), for an administrator to import into
 * `vhost`. bh_topology_definitions returns them.
 *
 * Errors: BH_ERR_STATE if the topology is not built.
 *         BH_ERR_NAME if the vhost is not UTF-8.
 *         BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_topology_export(bh_topology *self, bh_bytes vhost);
BH_API bh_bytes bh_topology_definitions(const bh_topology *self);

BH_END_DECLS

#endif
