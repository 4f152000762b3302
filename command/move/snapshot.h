/*
 * Snapshot: all messages that are ready in a queue, one after the other. They are held
 * unacknowledged until the end, then given back in one go: all of them, in their order. Messages
 * that arrive meanwhile are not looked at.
 *
 *     snapshot shot;
 *     snapshot_begin(&shot, broker, "orders.parked");
 *     while ((message = snapshot_next(&shot)) != NULL) ...             then bh_message_free
 *     code = snapshot_end(&shot);
 *
 * How the order stays, on quorum queues: a returned message goes behind messages that were returned
 * earlier and not taken again. So a snapshot holds all messages, also if it gives only the first
 * ones.
 *
 * A consumer that can hold all messages takes them at once. If this process is killed from then on,
 * all come back in order. One consumer holds 65,535 at most (the protocol's limit of a prefetch).
 * So there are several consumers for more messages, begun in one go. The broker gives back by the
 * order of their beginning, before 4.0 by the order of their tags.
 *
 * The connection may close before the broker has begun the last consumer (150,000 messages on
 * 4.3.6: within the first second). Then the messages of the first consumers come back behind the
 * rest. If the process is killed, a guard keeps the connection open until a message of the last
 * consumer has come. 2,000,000 messages can be looked at. With basic.get each message would be a
 * consumer of its own, and the broker does not sort those.
 *
 * Acknowledgements that are on the wire when the channel ends can be lost (seen on 3.10.8: 177 of
 * 10,000). RabbitMQ processes them later than the end. So the first held message is given back
 * alone, behind the acknowledgements. When the queue has it, they have taken effect.
 *
 * Giving back counts as a delivery on quorum queues before RabbitMQ 4.3 (x-delivery-count). The
 * queues that Backhop parks in have no limit that a user can reach. From 4.3 on basic.nack gives
 * back without counting; a process that is killed counts once.
 */
#ifndef BACKHOP_COMMAND_SNAPSHOT_H
#define BACKHOP_COMMAND_SNAPSHOT_H

#include "common/connection.h"
#include "move/guard.h"

#include "worker/wire/assembler.h"

enum { SNAPSHOT_MOST_CONSUMERS = 31, SNAPSHOT_PREFETCH = 65535 };

typedef struct snapshot {
    connection *broker;
    const char *queue;
    int64_t ready;  /* messages that the queue had when it began */
    int64_t total;  /* messages of the snapshot, `ready` or fewer */
    int64_t taken;  /* that came from the broker */
    int64_t given;  /* that snapshot_next gave */
    int64_t held;   /* not acknowledged */
    char *is_acked; /* by delivery tag, which begins at 1 */
    size_t room;    /* of that */
    size_t consumers;
    guard stand_by;       /* until the last consumer has begun */
    int is_asked, is_dry; /* a request for the depth is open; the last answer was an empty queue */
    bh__assembler assembler;
    bh__message_list arrived;
    int64_t most;  /* the number of messages to give, the oldest; 0: all. Set it after snapshot_begin */
    int is_ending; /* messages that still arrive are not kept */
    int expires;   /* set after snapshot_begin: returned messages may leave the queue at once; do not wait for them */
    bh_status status; /* why it ended early */
} snapshot;

/* Begins one. EX_OK, or complains and returns the exit code. */
int snapshot_begin(snapshot *self, connection *broker, const char *queue);
/* Returns the next message, which the caller frees; NULL at the end, or if interrupted or failed
 * (status). */
bh_message *snapshot_next(snapshot *self);
/* After the last message: stops deliveries, so that acknowledging does not bring messages that
 * arrived meanwhile. */
bh_status snapshot_close(snapshot *self);
/* Takes a message off the queue for good. */
void snapshot_ack(snapshot *self, uint64_t tag);
/* Gives the broker time to process the acknowledgements so far. Some of them may still be open
 * after it. */
bh_status snapshot_await_acks(const snapshot *self);
/* Gets a frame of CHANNEL_CONSUME, if the caller itself reads the connection's frames. */
void snapshot_on_frame(void *data, const bh__frame *frame, const amqp_method_t *method);
/* Gives back the held messages, and waits until the queue has them: the broker does that bit by
 * bit. EX_OK; or complains and returns the exit code; EXIT_INTERRUPTED if interrupted. */
int snapshot_end(snapshot *self);

#endif
