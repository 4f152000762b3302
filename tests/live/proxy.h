/*
 * Proxy: a network between a worker and the broker that the test can spoil. It listens on a port of
 * its own and passes bytes on, in a thread.
 */
#ifndef BACKHOP_LIVE_PROXY_H
#define BACKHOP_LIVE_PROXY_H

typedef struct proxy proxy;

/* Listens on `address` (of the loopback) for the broker at broker_host(), `port`. */
proxy *proxy_open(const char *address, int port);
int proxy_port(const proxy *self);
/* A worker's connections, which it names: the one that it consumes by and the one that it publishes
 * by. */
enum { PROXY_NONE = 0, PROXY_CONSUMER = 1, PROXY_PUBLISHER = 2, PROXY_ALL = 3 };
/* Keeps the broker's bytes to these connections in the proxy. PROXY_ALL holds connections of other
 * clients too. */
void proxy_hold_broker(proxy *self, int connections);
/* The first does so for all, from the first request on that names this (a text that outlives the
 * proxy). The second waits until an answer is held. */
void proxy_hold_answer_to(proxy *self, const char *name);
void proxy_await_answer(proxy *self);
/* Lets so many bytes more go from this connection to the broker, and then ends it. */
void proxy_cut_to_broker(proxy *self, int connection, int bytes);
/* Ends from now on each connection whose client sends this text, as a proxy between does that
 * cannot stand it. The text outlives the proxy; NULL: none. The second returns how often it did. */
void proxy_cut_on(proxy *self, const char *marker);
int proxy_cut_count(const proxy *self);
/* Ends the connections that there are, as a network does: by a reset. */
void proxy_cut(proxy *self);
void proxy_close(proxy *self);

#endif
