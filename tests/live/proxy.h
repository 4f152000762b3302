/*
 * Proxy: a network between a worker and the broker that the test can spoil. It listens on a port of its own and passes
 * bytes on, in a thread.
 */
#ifndef BACKHOP_LIVE_PROXY_H
#define BACKHOP_LIVE_PROXY_H

typedef struct proxy proxy;

/* Listens on `address` (of the loopback) for the broker at broker_host(), `port`. */
proxy *proxy_open(const char *address, int port);
int proxy_port(const proxy *self);
/* On which connections what the broker says stays in the proxy: bit 0 is the first one, which a worker consumes by, bit
 * 1 the second one, by which it publishes. */
enum { PROXY_NONE = 0, PROXY_CONSUMER = 1, PROXY_PUBLISHER = 2, PROXY_ALL = 0xFFFF };
void proxy_hold_broker(proxy *self, int connections);
/* Ends the connections that there are, as a network does: by a reset. */
void proxy_cut(proxy *self);
void proxy_close(proxy *self);

#endif
