/*
 * Broker: the objects of the model, as one graph. A vhost owns exchanges and queues; a link owns
 * channels; a channel owns consumers and holds unacknowledged messages of queues. The other files
 * have the verbs. Internal.
 */
#ifndef BACKHOP_COMMAND_MODEL_BROKER_H
#define BACKHOP_COMMAND_MODEL_BROKER_H

#include "model/message.h"
#include "model/model.h"
#include "model/names.h"

#include "base/report.h"
#include "worker/librabbitmq.h"

typedef struct model_vhost model_vhost;
typedef struct model_exchange model_exchange;
typedef struct model_queue model_queue;
typedef struct model_entry model_entry;
typedef struct model_consumer model_consumer;
typedef struct model_channel model_channel;
typedef struct model_policy model_policy;
typedef struct model_user model_user;
typedef struct model_letter model_letter;

/* A message in a queue: ready, delayed, unacknowledged, or waiting for its dead letter's
 * confirm. */
struct model_entry {
    model_entry *next; /* in the list that it is in */
    model_entry *previous;
    model_queue *queue; /* NULL: deleted while the message was unacknowledged */
    model_message *message;
    uint64_t position;  /* of its arrival in the queue */
    uint64_t event;     /* that it arrived with */
    int64_t expires_ms; /* INT64_MAX: never */
    int64_t ready_ms;   /* of a delayed one */
    int64_t acquired;   /* of a quorum queue: returns; -1: none */
    int64_t failed;     /* of a quorum queue: failed deliveries; -1: none */
    int level;          /* of priority */
    int is_redelivered;
    int is_immediate;         /* TTL 0 in a classic queue: it expires if no consumer takes it now */
    int is_fresh;             /* it has just arrived */
    int is_got;               /* by basic.get, from a quorum queue */
    model_channel *holder;    /* of an unacknowledged one */
    model_consumer *consumer; /* NULL: basic.get, or the consumer is gone */
    uint64_t tag;
    int64_t delivered_ms;
    model_letter *letter; /* the dead letter in flight, of the strategy at-least-once */
    model_reason reason;  /* why it is to be dead-lettered */
};

typedef struct model_list {
    model_entry *first;
    model_entry *last;
    size_t count;
} model_list;

typedef enum model_overflow { MODEL_DROP_HEAD, MODEL_REJECT_PUBLISH, MODEL_REJECT_PUBLISH_DLX } model_overflow;
typedef enum model_retrying {
    MODEL_RETRY_AT_ONCE,
    MODEL_RETRY_ALL,
    MODEL_RETRY_FAILED,
    MODEL_RETRY_RETURNED
} model_retrying;

/* The settings of a queue, by its arguments and policies. Texts borrow from them. -1: none. */
typedef struct model_queue_settings {
    int64_t ttl_ms;
    int64_t expires_ms;
    int64_t max_length;
    int64_t max_bytes;
    model_overflow overflow;
    int has_exchange; /* for dead letters */
    bh_bytes exchange;
    int has_key;
    bh_bytes key;
    int is_at_least_once;
    int64_t delivery_limit; /* INT64_MAX: none */
    int64_t consumer_timeout_ms;
    int is_single_active;
    model_retrying retrying;
    int64_t retry_min_ms;
    int64_t retry_max_ms;
} model_queue_settings;

struct model_queue {
    char *text; /* the name */
    bh_bytes name;
    model_vhost *vhost;
    int is_quorum;
    int is_durable;
    int is_auto_delete;
    int is_exclusive;
    model_link *owner; /* of an exclusive one */
    char *argument_bytes;
    bh_bytes arguments;
    model_queue_settings settings;
    model_list *levels; /* ready, by priority, the lowest first */
    size_t level_count;
    unsigned turns;      /* of the higher level of two */
    int has_new_head;    /* of a classic queue with priorities: it has to look for expired messages */
    int64_t looks_ms;    /* of such a queue: when it looks without a new head */
    model_list returns;  /* of a quorum queue: ready before the others */
    model_list delayed;  /* by ready_ms */
    model_list unacked;  /* in the order of delivery */
    model_list discards; /* to be dead-lettered at least once */
    size_t ready_count;
    size_t ready_bytes;
    uint64_t next_position;
    model_consumer **consumers; /* the next to get a message first */
    size_t consumer_count;
    size_t consumer_capacity;
    model_consumer *active; /* the single active one */
    size_t got_count;       /* messages of basic.get that a quorum queue's clients hold */
    int has_own_timeouts;   /* a consumer has a timeout of its own */
    int is_blocked;         /* a full quorum queue that rejects publishes */
    int64_t used_ms;        /* for x-expires */
    int is_dirty;
    model_queue *next_dirty;
    unsigned route; /* the number of the routing that found it */
};

struct model_consumer {
    char *text; /* the tag */
    bh_bytes tag;
    model_channel *channel;
    model_queue *queue;
    int has_no_ack;
    int is_exclusive;
    int64_t priority;
    size_t prefetch; /* 0: no limit */
    size_t held;
    int64_t timeout_ms; /* -1: the queue's */
    size_t timed_out;   /* messages of it that timed out and were not settled since: it gets nothing */
    int64_t told_ms;    /* when its client got basic.cancel for such messages: once for all of one time */
};

typedef struct model_binding {
    model_queue *queue; /* else */
    model_exchange *exchange;
    char *bytes; /* of the key and the arguments */
    bh_bytes key;
    bh_bytes arguments;
} model_binding;

struct model_exchange {
    char *text;
    bh_bytes name;
    model_vhost *vhost;
    const char *type;
    int is_durable;
    int is_auto_delete;
    int is_internal;
    char *argument_bytes;
    bh_bytes arguments;
    bh_bytes alternate; /* "": none. Borrows from the arguments or a policy */
    model_binding *bindings;
    size_t binding_count;
    size_t binding_capacity;
    size_t incoming; /* bindings to it */
    unsigned route;
    int is_doomed; /* it goes with its last binding; on a list while a deletion runs */
    model_exchange *next_doomed;
};

struct model_vhost {
    char *text;
    bh_bytes name;
    model *broker;
    model_names exchanges;
    model_names queues;
    model_policy *policies;
    size_t policy_count;
    size_t policy_capacity;
};

/* A delivery that is not settled. */
typedef struct model_held {
    uint64_t tag;
    model_entry *entry; /* NULL: settled */
} model_held;

/* A published sequence number that is not confirmed. */
typedef struct model_unconfirmed {
    uint64_t number;
    int64_t due_ms;
    int is_nack;
} model_unconfirmed;

struct model_channel {
    int number;
    model_link *link;
    int is_closing; /* channel.close was sent: all is ignored but its answer */
    size_t prefetch;
    size_t shared_prefetch; /* 0: none */
    size_t consumed;        /* unacknowledged, basic.get apart */
    uint64_t next_tag;
    model_held *held;
    size_t held_begin;
    size_t held_end;
    size_t held_capacity;
    model_consumer **consumers;
    size_t consumer_count;
    size_t consumer_capacity;
    int is_confirming;
    int is_transactional;
    struct model_pending *pending; /* of the transaction, the oldest first */
    struct model_pending *last_pending;
    uint64_t next_number;
    model_unconfirmed *unconfirmed;
    size_t unconfirmed_count;
    size_t unconfirmed_capacity;
    char *last_queue; /* declared: "" as a queue's name means it */
    /* The publish whose content arrives. */
    int is_publishing; /* 1: the header is next; 2: the body */
    int is_mandatory;
    int is_immediate;
    bh__store publish; /* exchange, routing key, properties */
    bh__text exchange;
    bh__text routing_key;
    bh__text properties;
    char *body;
    size_t body_room;
    uint64_t body_size; /* as its header says */
    uint64_t body_used;
};

/* The states of a connection, in their order. */
typedef enum model_stage {
    MODEL_AT_HEADER,
    MODEL_AT_START,
    MODEL_AT_TUNE,
    MODEL_AT_OPEN,
    MODEL_RUNNING,
    MODEL_CLOSING, /* connection.close was sent */
    MODEL_CLOSED   /* only output is left */
} model_stage;

struct model_link {
    model *broker;
    model_link *next;
    model_link *previous;
    uint64_t number;
    model_stage stage;
    int is_broken;   /* cut without a word: memory ran out, or an operator did it */
    uint32_t method; /* that is executed: class and method; 0: none */
    bh__buffer in;
    bh__buffer out;
    size_t frame_max; /* 0: no limit */
    int channel_max;
    int heartbeat_s;
    /* Heartbeats, by the caller's clock: begun; whether there was input and output since; the last
     * of both. */
    int has_beat;
    int has_received;
    int has_sent;
    int64_t received_ms;
    int64_t sent_ms;
    int64_t close_by_ms; /* CLOSING ends then */
    model_user *user;
    model_vhost *vhost;
    char *name; /* client-provided; NULL: none */
    int has_cancel_notify;
    int has_failure_close;
    int has_blocked;
    int is_publisher;         /* has published: an alarm stops reading from it */
    int is_blocked;           /* was sent connection.blocked */
    model_channel **channels; /* by number */
    size_t channel_capacity;
};

struct model_user {
    model_user *next;
    char *name;
    char *password;
    char *tags; /* separated by spaces */
    struct model_permission *permissions;
};

struct model {
    const model_version *version;
    model_settings settings;
    char cluster[128];         /* the cluster's name */
    int64_t max_message_bytes; /* larger messages are refused */
    size_t tape_used;
    int64_t now_ms;
    int64_t wall_ms; /* of the last model_beat */
    int is_stopped;
    int has_alarm;
    int is_minority;    /* alone: quorum queues do nothing */
    int hides_confirms; /* no confirm arrives */
    int is_settling;
    model_names vhosts;
    model_user *users;
    model_link *links;
    uint64_t link_count; /* of all times */
    uint64_t name_count; /* of generated names */
    unsigned routes;
    model_queue *first_dirty;
    model_queue *last_dirty;
    model_letter *first_letter;
    model_letter *last_letter;
    uint64_t event; /* the number of runs */
    int hops;       /* of this run: dead letters that became dead letters at once */
    size_t unacked_count;
    size_t unconfirmed_count;
    amqp_pool_t pool; /* of the method in hand */
};

/* Calls the watch of a test, if there is one. queue: NULL is "". */
void model_note(const model *self, model_fate fate, const model_queue *queue, const model_message *message);
/* Takes a choice below `count` from the tape; 0 after its end. */
unsigned model_choose(model *self, unsigned count);
/* Returns the seconds since the epoch. */
int64_t model_epoch_s(const model *self);
/* Adds a sum to a time: INT64_MAX if it is too large. */
int64_t model_later(int64_t now_ms, int64_t span_ms);
/* Makes the queue run before control returns to the caller. */
void model_queue_touch(model_queue *self);
/* Runs the dirty queues and pending dead letters until nothing is left to do. */
void model_run(model *self);
/* Returns a time of the broker's: INT64_MAX is never. */
static inline int64_t model_earlier(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

#endif
