/* Clients: the sockets of a model's clients. */
#ifndef BACKHOP_COMMAND_MODEL_CLIENTS_H
#define BACKHOP_COMMAND_MODEL_CLIENTS_H

#include "model/model.h"

#include <poll.h>

typedef struct client {
    int fd;
    model_link *link; /* NULL: the broker closed the connection; the client's last bytes are read and dropped */
    int64_t end_ms;   /* wall clock: when the socket is closed, as its connection is; 0: not yet */
} client;

typedef struct clients {
    client *items;
    size_t count, capacity;
    size_t most;       /* others wait until one leaves */
    int64_t accept_ms; /* wall clock: no client is accepted before, as there was no file descriptor left */
} clients;

void clients_close(clients *self);
/* Accepts the clients that wait at the socket. A stopped broker closes their connections at
 * once. */
void clients_accept(clients *self, int listener, model *broker, int64_t wall_ms);
/* Writes what to poll for to `out`, which has room for `count` items. */
void clients_fill(const clients *self, struct pollfd *out);
/* Reads from the clients that are ready. polled: the items of clients_fill. Returns 1 if bytes
 * came. */
int clients_read(clients *self, const struct pollfd *polled, size_t count);
/* Sends what the model wrote, and ends connections. Returns 1 if bytes went out. */
int clients_write(clients *self, int64_t wall_ms);
/* Returns 1 if a client is connected and no client has to read bytes first. */
int clients_are_served(const clients *self);
/* Returns when clients_write closes a socket, by the wall clock; INT64_MAX: none. */
int64_t clients_next_ms(const clients *self);

#endif
