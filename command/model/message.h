/*
 * Message: what a client published, or its dead letter: exchange, routing keys, properties, body,
 * and what RabbitMQ notes about it. All queues that it is in share it, so it never changes.
 * Internal.
 */
#ifndef BACKHOP_COMMAND_MODEL_MESSAGE_H
#define BACKHOP_COMMAND_MODEL_MESSAGE_H

#include "model/properties.h"
#include "model/versions.h"

typedef struct model_body {
    int references;
    size_t size;
    char *data;
} model_body;

/* Returns a body with one reference, which owns `data`; NULL if memory runs out, then `data` stays
 * the caller's. */
model_body *model_body_new(char *data, size_t size);
void model_body_release(model_body *self);

typedef enum model_reason { MODEL_REJECTED, MODEL_EXPIRED, MODEL_MAXLEN, MODEL_DELIVERY_LIMIT } model_reason;

/* Returns RabbitMQ's word: "rejected", "expired", "maxlen", "delivery_limit". */
const char *model_reason_name(model_reason reason);

/* Since 3.13: why and how often a message left a queue, with its exchange and keys at the first
 * time. */
typedef struct model_death {
    bh__text queue;
    model_reason reason;
    bh__text exchange;
    size_t first_key; /* of the message's texts */
    size_t key_count;
    int64_t count;
    int64_t time_s;
    int64_t ttl_ms; /* the message's own; -1: none */
} model_death;

typedef struct model_message {
    int references;
    bh__store store;
    bh__text exchange;
    bh__text *texts; /* the routing key, keys of CC, keys of BCC; then the keys of the deaths */
    size_t text_count;
    size_t text_capacity;
    size_t key_count;
    size_t visible_count; /* of the keys: BCC left out */
    size_t first_hidden;  /* of the texts: the keys of BCC, also after a queue gave the message another key */
    size_t hidden_count;
    bh__text properties; /* flags and list, as on the wire */
    model_body *body;
    int is_persistent;
    int priority;        /* -1: none */
    int64_t ttl_ms;      /* of the property expiration; -1: none */
    model_death *deaths; /* the most recent first */
    size_t death_count;
    size_t death_capacity;
    model_reason first_reason; /* if there are deaths */
    bh__text first_queue;
    bh__text first_exchange;
    bh__text last_exchange;
    int64_t failed; /* deliveries, counted by a quorum queue before; -1: none */
} model_message;

/* The counts that a delivery from a quorum queue shows; -1: none. */
typedef struct model_counts {
    int64_t delivery;
    int64_t acquired;
} model_counts;

/*
 * Makes a message of what a client published, with one reference. Holds the body. A header CC or
 * BCC that is no array is
 * MODEL_BAD_ROUTES: *field has it, and borrows from the properties.
 */
typedef enum model_making { MODEL_MADE, MODEL_NO_MEMORY, MODEL_MALFORMED, MODEL_BAD_ROUTES } model_making;
model_making model_message_new(model_message **out, bh_bytes exchange, bh_bytes routing_key, bh_bytes properties,
                               model_body *body, const char **header, const char **type);
model_message *model_message_hold(model_message *self);
void model_message_release(model_message *self);

/* For deaths.c: a message without texts, which holds the body; NULL if memory runs out. */
model_message *model_message_blank(model_body *body);
/* Appends a text; 0 if memory runs out. */
int model_message_add_text(model_message *self, bh_bytes text);

bh_bytes model_message_text(const model_message *self, bh__text text);
bh_bytes model_message_key(const model_message *self, size_t i);
bh_bytes model_message_properties(const model_message *self);
/* Returns the bytes that limits count: the body's. */
size_t model_message_size(const model_message *self);
/* Returns the headers, without their length; *is_there is 0 if there are none. */
bh_bytes model_message_headers(const model_message *self, int *is_there);

/* Appends flags and list for a client. Returns 0 if memory runs out. */
int model_message_write(bh__buffer *out, const model_message *self, const model_version *version, model_counts counts);

#endif
