/*
 * Mover: sends copies of what a snapshot holds to where plans say, and takes each original off its
 * queue once its copy was confirmed. The pure core keeps the books (bh_ledger). If this process is
 * killed, no message is lost. At most MOVER_MOST_SENT messages come twice, and messages whose
 * acknowledgement the broker had not processed.
 *
 *     mover_open(&it, broker);                                 the channel that publishes
 *     it.take = take;                                          for each message: mover_begin_plan, plan it, mover_keep; or bh_message_free
 *     code = mover_play(&it, "orders.retry");                  a round, of a snapshot; and so on with the next
 *     mover_close(&it);
 */
#ifndef BACKHOP_COMMAND_MOVER_H
#define BACKHOP_COMMAND_MOVER_H

#include "move/snapshot.h"

#include <backhop/adapter/ledger.h>
#include <backhop/adapter/plan.h>

enum {
    MOVER_MOST_SENT = 512,           /* copies that are not confirmed */
    MOVER_MOST_KEPT_BYTES = 67108864 /* of copies that wait to be sent */
};

typedef struct moving moving;

typedef struct mover {
    connection *broker;
    snapshot shot; /* of this round */
    bh_ledger *ledger;
    int64_t channel, publisher;
    moving *copies; /* in the order of publishing */
    size_t count, capacity, kept_bytes;
    size_t remaining; /* copies that are not done */
    size_t oldest;    /* copies before this are done */
    bh__assembler returned;
    char return_text[300];
    bh__buffer scratch;
    int64_t unconfirmed; /* copies in flight at the end of the last round; -1: there was none */
    int64_t done;        /* originals whose copies were confirmed, of all rounds */
    /* Set the following after mover_open. Functions get `data` as first argument; each may be NULL,
     * except `take`. */
    void (*take)(void *data,
                 bh_message *message); /* a message of the queue: to be kept; or freed, then it is given back */
    void (*looked)(void *data);        /* it was the last one */
    void (*working)(void *data, int64_t now_ms);    /* while copies go, again and again */
    int64_t (*next_ms)(void *data, int64_t now_ms); /* when one more copy may go: up to now_ms, now */
    void (*went)(void *data, int64_t now_ms);       /* a copy went */
    void (*confirmed)(void *data, uint64_t mark);   /* a copy with this mark was confirmed */
    void *data;
    int expires;      /* messages leave the queue by their time to live meanwhile */
    int is_held_back; /* no more copies go; copies in flight are waited for */
    const char *end;  /* why no more copies go, for people; NULL: they do */
    int end_code;     /* the exit code for `end` */
} mover;

/* Opens the channel. EX_OK, or complains and returns the exit code. */
int mover_open(mover *self, connection *broker);
void mover_close(mover *self);
/*
 * Reads all messages of a queue, publishes copies of the kept ones until all are confirmed, and
 * gives back the rest in one go. Ends earlier if `end` or `is_held_back` is set, or if interrupted.
 * Returns EX_OK; or complains and returns the exit code.
 */
int mover_play(mover *self, const char *queue);
/* Sets a plan's frame limit, from the connection, and gives random bytes to decide by.
 * BH_ERR_STATE: there are none. */
bh_status mover_begin_plan(const mover *self, bh_plan *plan, char random[BH_PLAN_RANDOM_BYTES]);
/* Returns 1 if the memory limit has room for one more copy. */
int mover_has_room(const mover *self);
/* Checks that a copy of the message can be sent, as planned. BH_ERR_FRAME, BH_ERR_CONTENT. */
bh_status mover_try(mover *self, const bh_message *message, const bh_plan *plan);
/* Does so too, then keeps the copy, and takes over the message unless it returns an error. `mark`
 * is for `confirmed`. */
bh_status mover_keep(mover *self, bh_message *message, const bh_plan *plan, uint64_t mark);
#endif
