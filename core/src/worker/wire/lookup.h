/* Lookup: the addresses of a host. A name service may never answer, and getaddrinfo cannot be given up: it is called in
 * a thread of its own, which outlives whoever lost patience with it. Internal. */
#ifndef BACKHOP_WORKER_WIRE_LOOKUP_H
#define BACKHOP_WORKER_WIRE_LOOKUP_H

#include "wire/uri.h"

#include <netdb.h>

typedef struct bh__lookup bh__lookup;

/* Begins one. *fd, which the caller closes, becomes readable when it is done. NULL: no memory, descriptor or thread. */
bh__lookup *bh__lookup_begin(int *fd, const bh__uri *uri);
int bh__lookup_is_done(const bh__lookup *self);
/* Ends it, done or not; *out is NULL or to be freed with freeaddrinfo. Returns getaddrinfo's error; EAI_AGAIN where it
 * was not done. */
int bh__lookup_end(bh__lookup *self, struct addrinfo **out);

#endif
