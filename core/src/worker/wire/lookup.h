/* Lookup: the addresses of a host. getaddrinfo can block forever and cannot be cancelled, so it
 * runs in a thread of its own. If the caller gives up, the thread frees the lookup. Internal. */
#ifndef BACKHOP_WORKER_WIRE_LOOKUP_H
#define BACKHOP_WORKER_WIRE_LOOKUP_H

#include "worker/wire/uri.h"

#include <netdb.h>

typedef struct bh__lookup bh__lookup;

/* Begins a lookup. *fd becomes readable when it is done; the caller closes it. NULL: no memory,
 * descriptor or thread. */
bh__lookup *bh__lookup_begin(int *fd, const bh__uri *uri);
int bh__lookup_is_done(bh__lookup *self);
/* Ends a lookup, done or not. *out: NULL, or to be freed with freeaddrinfo. Returns
 * getaddrinfo's error; EAI_AGAIN if it was not done. */
int bh__lookup_end(bh__lookup *self, struct addrinfo **out);

#endif
