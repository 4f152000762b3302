/*
 * The rest of the company, on a connection of its own: it publishes the events, reads the other queue that is bound to
 * them, counts what waits in the broker, and clears everything away at the end. None of this uses Backhop.
 */
#ifndef CDN_PURGE_COMPANY_H
#define CDN_PURGE_COMPANY_H

#include "record.h"

#include <stdatomic.h>

struct company {
    struct amqp_connection_state_t_ *connection; /* librabbitmq's, which company.c alone sees */
    int connected;
    struct record *record;
    pthread_t thread;
    atomic_int stop;
    atomic_int failed;
    char error[256]; /* read it when the thread has ended */
};

/* What can fail gives 0 then, and `error` tells why. */
int company_connect(struct company *self, const char *url);
/* Lets one demo at a time run on a broker: an exclusive queue is refused to others and goes with this connection. */
int company_lock(struct company *self);
/* Deletes all that the demo declares. To delete what is not there is no error: so it serves the next run too, where one
 * was killed. */
int company_clear(struct company *self, const bh_topology *topology);
/* The topic exchange of the events, and the three queues that get each of them. The work queues are there already. */
int company_declare(struct company *self);

/* The thread publishes, reads search-index and counts what waits. The connection is its own until it has ended. */
int company_start(struct company *self);
void company_end_thread(struct company *self);

/*
 * Looks once more into every queue, now that nobody works. A message on its way from one queue to another is in neither
 * for a moment: where one seems to be missing, look again before it is called lost.
 */
int company_look(struct company *self, const char *parked_queue);

void company_close(struct company *self);

#endif
