/*
 * Listing: lists queues by the management API in a thread of its own, so that a silent API delays
 * no scrape and no screen.
 *
 *     listing_open(&it, management);
 *     while (...)
 *         if (listing_ask(it, 1, "backhop.wait.", &found))
 *             ... found.work, found.waiting; listed_free(&found);
 *     listing_close(it);
 */
#ifndef BACKHOP_COMMAND_LISTING_H
#define BACKHOP_COMMAND_LISTING_H

#include "common/management.h"

typedef struct listing listing;

/* The answer of the API. */
typedef struct listed {
    queue_names work;    /* all work queues that have a parked queue */
    queue_names waiting; /* names that contain the prefix */
    int has_work;        /* 0: it was not wanted, or the API has not answered */
    int has_waiting;     /* 0: it was not wanted */
} listed;

/* Starts the thread. Only the thread uses `api` until listing_close. Complains and returns 0 if it
 * cannot. */
int listing_open(listing **out, management *api);
/* Ends the thread and its request, within a second; `api` answers no more. NULL is allowed. */
void listing_close(listing *self);
/*
 * Lists queues, and waits for the API for up to 2 s. Returns 1 with the answer in *out, which
 * listed_free frees.
 *
 * If the API has not answered by then, this call and the next ones return 0 at once, until the
 * answer is there. That call returns the answer, also if more is wanted by then.
 *
 * wants_work: whether work queues are wanted. prefix: of names of wait queues; "" wants none
 */
int listing_ask(listing *self, int wants_work, const char *prefix, listed *out);
void listed_free(listed *self);

#endif
