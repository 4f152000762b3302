/*
 * Mover: sends copies of what a snapshot holds to where plans say, and takes each original off its queue once its copy was confirmed. The pure
 * core keeps the books (bh_ledger). Where this process is killed, none is lost; at most MOVER_MOST_SENT messages come twice, and those whose acknowledgement
 * the broker had not worked on.
 *
 *     mover_open(&it, broker);                                 the channel that publishes
 *     snapshot_begin(&shot, broker, "orders.retry");
 *     mover_begin(&it, &shot);
 *     while ((message = snapshot_next(&shot)) != NULL)
 *         mover_begin_plan; plan it; mover_keep(&it, message, plan)              or bh_message_free: it is held, and given back in the end
 *     snapshot_close(&shot);
 *     while (status == BH_OK && it.left > 0) status = mover_work(&it, until_ms);
 *     mover_end(&it);
 *     snapshot_end(&shot);                                     and so on with the next snapshot
 *     mover_close(&it);
 */
#ifndef BACKHOP_COMMAND_MOVER_H
#define BACKHOP_COMMAND_MOVER_H

#include "snapshot.h"

#include <backhop/ledger.h>
#include <backhop/plan.h>

enum {
    MOVER_MOST_SENT = 512,           /* copies that are not confirmed */
    MOVER_MOST_KEPT_BYTES = 67108864 /* of copies that wait to be sent */
};

typedef struct moving moving;

typedef struct mover {
    connection *broker;
    snapshot *shot;
    bh_ledger *ledger;
    int64_t channel, publisher;
    moving *copies; /* in the order in which they go */
    size_t count, capacity, kept_bytes;
    size_t left;   /* copies that are not done */
    size_t oldest; /* copies before this are done */
    bh__assembler returned;
    char return_text[300];
    bh__buffer scratch;
    int64_t done; /* originals whose copies were confirmed, of all rounds */
    int (*may_go)(
        void *data,
        int64_t now_ms); /* whether one more copy may go now; NULL: it may. Set by whoever uses it, as what follows */
    void (*confirmed)(void *data, uint64_t mark); /* a copy with this mark was confirmed; NULL: nobody wants to know */
    void (*went)(void *data, int64_t now_ms);     /* a copy went; NULL: nobody wants to know */
    void *data;
    int is_held_back; /* no more copies go; those on their way are waited for */
    const char *end;  /* why no more copies go, for people; NULL: they do */
} mover;

/* Opens the channel. EX_OK, or complains and returns the exit code. */
int mover_open(mover *self, connection *broker);
void mover_close(mover *self);
void mover_begin(mover *self, snapshot *shot);
/* Gives a plan what it needs of the connection, the limit of a frame, and random bytes to decide by. BH_ERR_STATE: there are none. */
bh_status mover_begin_plan(const mover *self, bh_plan *plan, char random[BH_PLAN_RANDOM_BYTES]);
/* Whether one more copy fits the memory that may be used. */
int mover_has_room(const mover *self);
/* Whether a copy of the message can be sent, as planned. BH_ERR_FRAME, BH_ERR_CONTENT. */
bh_status mover_try(mover *self, const bh_message *message, const bh_plan *plan);
/* The same, and keeps the copy, and the message, which is the mover's own then; not where it returns an error. `mark` is for `confirmed`. */
bh_status mover_keep(mover *self, bh_message *message, const bh_plan *plan, uint64_t mark);
/* Sends what may go, and waits for answers, until then at most (monotonic). BH_ERR_CONNECTION; `end` tells what else went wrong. */
bh_status mover_work(mover *self, int64_t until_ms);
/* Whether nothing is on its way any more, so that a round that is to end can. */
int mover_is_quiet(const mover *self);
/* Forgets what was not sent: it is still held. */
void mover_end(mover *self);

#endif
