/* Decision: what is to become of a message that was settled, as the plan has it; and the copy, where one is published.
 * Internal. */
#ifndef BACKHOP_WORKER_ENGINE_DECISION_H
#define BACKHOP_WORKER_ENGINE_DECISION_H

#include "engine/context.h"

/* Of a message, which frees it. What the plan said, as long as an event may tell it or the copy may have to be sent. */
typedef struct bh__copy {
    bh_action action;
    int mandatory;
    int64_t attempts;
    int64_t delay_ms;
    bh_bytes exchange;
    bh_bytes routing_key;
    bh_bytes properties; /* as on the wire; none where nothing is published */
    bh_bytes id;
    bh_bytes reason; /* of parking */
    bh_bytes queue;  /* of a dead letter: the one that it died in, where the relay serves it */
    bh_bytes error;  /* in words, where it is to be told */
    int64_t sent_us; /* monotonic; 0: nobody asks, or it was not */
    char data[];
} bh__copy;

/* Reads delivery and history of a message. BH_ERR_NO_MEMORY, BH_ERR_CONTENT (malformed). */
bh_status bh__read(const bh__settings *settings, const bh_message *message, bh_delivery *delivery, bh_history *history);
/* The id that a message has; "" where it has none or cannot be read. Valid until the next decision. */
bh_bytes bh__id_of(bh__context *self, const bh_message *message);

/*
 * Decides on a message by its outcome, and enters in the ledger what is to be done. Where that is not possible now (no
 * memory, no random bytes), it is tried again after a back-off; where it never will be (malformed properties, headers
 * that fit no frame), the message is left. Both are told. A message that the broker has again is stale: told too.
 */
void bh__settle(bh__context *self, bh_message *message);
/* Decides on a dead letter, as the relay does, whose message needs nothing more then. 0: its work queue is to be looked for
 * first (places). */
int bh__relay(bh__context *self, bh_message *message);
/* Asks, before a handler sees the message, whether one may. Whether it was decided on instead. */
int bh__guard(bh__context *self, bh_message *message);
/* Decides to send a parked message back. As bh_plan_replay; BH_ERR_CONTENT (malformed). */
bh_status bh__decide_replay(bh__context *self, bh_message *message);
/* The message is left unacknowledged for a while; tells why. */
void bh__refuse(bh__context *self, bh_message *message, bh_status status, bh_bytes text);

#endif
