/*
 * The rest of the company, on a connection of its own. It publishes the events, and reads the other queue that is bound
 * to them. It counts the messages that wait in the broker, and clears everything away at the end. None of this uses
 * Backhop.
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

/* A function that can fail returns 0 then, with the reason in `error`. */
int company_connect(struct company *self, const char *url);
/* Lets one demo at a time run on a broker: an exclusive queue is refused to others and goes with this connection. */
int company_lock(struct company *self);
/* Deletes all that the demo declares. Deleting a missing queue is no error, so this also clears up after a run that was
 * killed. */
int company_clear(struct company *self, const bh_topology *topology);
/* The topic exchange of the events, and the three queues that get each of them. The work queues are there already. */
int company_declare(struct company *self);

/* The thread publishes, reads search-index and counts waiting messages. The connection is its own until it has
 * ended. */
int company_start(struct company *self);
void company_end_thread(struct company *self);

/*
 * Looks once more into every queue, after all consumers have stopped. A message on its way from one queue to another is
 * in neither for a moment. If a message seems to be missing, look again before you call it lost.
 */
int company_look(struct company *self, const char *parked_queue);

void company_close(struct company *self);

#endif
