/*
 * Witness: reads what workers and the broker send each other, at the workers' end, and keeps an account of each message.
 * It fails the history at once if a worker does one of these:
 *     acknowledges an original whose copy is not confirmed
 *     settles a tag that is not in hand
 *     changes a body
 *     rejects a message that would then be lost
 *
 * A message's body begins with "m<index> ".
 */
#ifndef BACKHOP_TESTS_SIM_WITNESS_H
#define BACKHOP_TESTS_SIM_WITNESS_H

#include <backhop/bytes.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_ACCOUNTS = 256 };

typedef enum witness_way { WITNESS_UP, WITNESS_DOWN } witness_way;

typedef struct account {
    unsigned index;
    bh_bytes body;    /* owned */
    int is_published; /* the broker confirmed it to its publisher */
    int is_direct;    /* published to the work queue by the default exchange */
    int may_be_lost;  /* an operator deleted a queue that may have had it */
    /* at the handlers */
    int calls;
    int in_hand;    /* calls that are not settled */
    int failures;   /* calls that were settled as failed, and would be retried */
    int waits;      /* calls that were settled as throttled, deferred or released */
    int oks;        /* calls that succeeded or dropped the message */
    int64_t ok_us;  /* of the last success; 0: its acknowledgement went out, or there was none */
    int permanents; /* calls that parked it */
    int64_t due_us; /* no call before this time; 0: none */
    int64_t last_attempt;
    /* on the wire */
    int64_t held_us; /* since when it is in hand; 0: it is not */
    int acks;        /* that the broker has, or will have */
    int confirmed;   /* copies that are confirmed and were not returned */
    int copies;      /* copies that were published */
    int disturbed; /* connections, channels and consumers that ended while it was in hand, or its copy not confirmed */
    /* at the end */
    int parked;
    int waiting;
    int unroutable;
} account;

/*
 * Begins the accounts.
 *
 * may_reject: 1 if the broker dead-letters in place of copies, as with the strategies reject and native.
 * timeout_ms: the broker's consumer timeout; 0: none.
 */
void witness_begin(int may_reject, int64_t timeout_ms);
/* Frees all, and has nothing to say about what comes. */
void witness_end(void);

account *witness_add(bh_bytes body);
size_t witness_count(void);
account *witness_at(size_t index);
/* Returns the account of a body; NULL: there is none. */
account *witness_find(bh_bytes body);
/* Counts a disturbance of all messages that have not ended: the broker died. */
void witness_disturb_all(void);
/* Counts a disturbance of all that is in hand. is_end: the broker closes all connections, and what still comes by them is
 * delivered again. */
void witness_disturb_in_hand(int is_end);

/* For network.c. */
void witness_open(int connection);
void witness_see(int connection, witness_way way, const char *data, size_t size);
/* The broker's end of the connection is gone: messages in hand are delivered again. */
void witness_lose(int connection);
/* The worker closed the connection, whose broker got so many bytes. */
void witness_close(int connection, int64_t arrived);

#endif
