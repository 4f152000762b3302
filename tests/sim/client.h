/*
 * Client: publishes messages to the model and reads the messages in its queues, beside the workers.
 * It needs no network: each call gets its answer at once, or the client is lost and connects again.
 */
#ifndef BACKHOP_TESTS_SIM_CLIENT_H
#define BACKHOP_TESTS_SIM_CLIENT_H

#include "model/model.h"

#include <backhop/bytes.h>

typedef struct client client;

client *client_new(model *broker);
void client_free(client *self);

/* Declare and bind durable things. Return 0 if that failed. */
int client_declare_exchange(client *self, const char *name, const char *type);
int client_declare_queue(client *self, const char *name, const char *type);
int client_bind(client *self, const char *queue, const char *exchange, const char *key);
/*
 * Publishes a persistent message, and waits until it is confirmed.
 * properties: flags and list, as on the wire.
 * Returns 1 if it was confirmed and not returned. Returns 0 also if the answer was lost.
 */
int client_publish(client *self, const char *exchange, const char *key, bh_bytes properties, bh_bytes body);

/* A message that client_get read; valid until the next call. */
typedef struct client_message {
    bh_bytes exchange;
    bh_bytes routing_key;
    bh_bytes properties;
    bh_bytes body;
    int is_redelivered;
} client_message;

/* Takes the first message of a queue. Returns 0 if there is none. */
int client_get(client *self, const char *queue, client_message *out);
/* Takes a message that is to be settled. Returns -1 if the queue is missing or the broker is
 * away. */
int client_take(client *self, const char *queue, client_message *out);
/* Acknowledges what client_take returned last, or rejects it. Returns 0 if the connection was lost
 * since. */
int client_settle(client *self, int is_ack);

#endif
