/*
 * Witness: reads what workers and the broker send each other, at the workers' end, and keeps an
 * account of each message. It fails the history at once if a worker does one of these:
 *     acknowledges an original whose copy is not confirmed
 *     settles a tag that is not in hand
 *     changes a body
 *     rejects a message that would then be lost
 *
 * The model reports what happens to a message at the broker. So a message is doubled only as often
 * as it was in hand when its channel ended, or as its confirm was lost.
 *
 * A message's body begins with "m<index> ".
 */
#ifndef BACKHOP_TESTS_SIM_WITNESS_H
#define BACKHOP_TESTS_SIM_WITNESS_H

#include "model/model.h"

#include <backhop/bytes.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_ACCOUNTS = 256 };

typedef enum witness_way { WITNESS_UP, WITNESS_DOWN } witness_way;

typedef struct account {
    unsigned index;
    int queue;        /* of the history: its work queue */
    bh_bytes body;    /* owned */
    int is_published; /* the broker confirmed it to its publisher */
    int64_t published_us;
    int is_direct; /* published to the work queue by the default exchange */
    /* at the handlers */
    int calls;
    int in_hand;         /* calls that are not settled */
    int is_overlapped;   /* two calls had it at one time: which one settles its copy is not known */
    int failures;        /* calls that were settled as failed, and would be retried */
    int failures_before; /* before it began anew */
    int waits;           /* calls that were settled as throttled, deferred or released */
    int oks;             /* calls that succeeded or dropped the message */
    int64_t ok_us;       /* of the last success; 0: its acknowledgement went out, or there was none */
    int permanents;      /* calls that parked it */
    int64_t next_due_us; /* of the copy that is still to be published; 0: none */
    int64_t due_us;      /* no call before this time; 0: none */
    int given_back;      /* by a worker, although a handler had it, or its failure was not recorded */
    int64_t last_attempt;
    /* on the wire */
    int acks;      /* that the broker has, or will have */
    int confirmed; /* copies that are confirmed and were not returned */
    int copies;    /* copies that were published */
    /* at the broker */
    int lives;           /* in queues, or in hand */
    int begins_anew;     /* since its last call it came to a parked queue */
    int is_unroutable;   /* since its last call it came to the unroutable queue */
    int stored;          /* copies of workers that it stored */
    int returned;        /* it was in hand, its client settled nothing, and it is ready again */
    int is_split;        /* it was returned, or deleted, but its channel lives: a worker can still call its handler */
    int doubled;         /* dead letters that it sends again though they have arrived */
    int published_again; /* by its publisher, which got no answer */
    int may_be_lost;     /* a queue was deleted that had it, or a dead letter dropped after such a deletion */
    /* at the end */
    int parked;
    int waiting;
    int unroutable;
} account;

/* Returns how often a message may have been doubled. */
int witness_doubles(const account *message);

/*
 * Begins the accounts.
 *
 * may_reject: 1 if the broker dead-letters in place of copies, as with the strategies reject and
 * native.
 */
void witness_begin(int may_reject);
/* For the model's settings: notes what happens at the broker. */
void witness_watch(void *data, model_fate fate, bh_bytes queue, bh_bytes body);
/* From now on the broker may drop dead letters: a queue or exchange is gone. */
void witness_may_drop(void);
/* Messages are returned from now on, or not, although their channels live. */
void witness_split(int is_splitting);
/* From now on workers may give back what handlers have: one stops before it has drained, or has
 * abandoned a copy. */
void witness_may_give_back(void);
/* The publisher of the history publishes from now on, or not. */
void witness_publisher(int is_publishing);
/* Frees all, and has nothing to say about what comes. */
void witness_end(void);

account *witness_add(bh_bytes body);
size_t witness_count(void);
account *witness_at(size_t index);
/* Returns the account of a body; NULL: there is none. */
account *witness_find(bh_bytes body);

/* Returns the most channels that a worker had open on a connection. */
int witness_most_channels(void);

/* For network.c. */
void witness_open(int connection);
void witness_see(int connection, witness_way way, const char *data, size_t size);
/* The worker closed the connection, whose broker got so many bytes. */
void witness_close(int connection, int64_t arrived);

#endif
