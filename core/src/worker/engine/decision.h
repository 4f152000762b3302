/* Decision: records the outcome of a message in the ledger, with the copy to publish. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_DECISION_H
#define BACKHOP_WORKER_ENGINE_DECISION_H

#include "worker/engine/context.h"

/* The copy of a message, owned by the message: the parts of the plan that an event or a publish
 * needs. */
typedef struct bh__copy {
    bh_action action;
    int mandatory;
    int64_t attempts;
    int64_t deferrals;
    int64_t delay_ms;
    bh_bytes exchange;
    bh_bytes routing_key;
    bh_bytes properties; /* as on the wire; empty: nothing is published */
    bh_bytes id;
    bh_bytes reason; /* why the message is parked */
    bh_bytes queue;  /* of a dead letter: its work queue; "" if it is not served */
    bh_bytes error;  /* text of the error, for events; "" if no event needs it */
    int64_t sent_us; /* monotonic: when it was published; 0: not published, or not measured */
    char data[];
} bh__copy;

/* Reads the delivery and history of a message. BH_ERR_NO_MEMORY; BH_ERR_CONTENT if it is
 * malformed. */
bh_status bh__read_message(const bh__settings *settings, const bh_message *message, bh_delivery *delivery,
                           bh_history *history);
/* Returns the message's id; "" if it has none or is malformed. Valid until the next decision. */
bh_bytes bh__id_of(bh__context *self, const bh_message *message);

/*
 * Decides on a settled message and records the plan in the ledger.
 * If there is no memory or there are no random bytes, the decision is repeated after a back-off,
 * and BH_EVENT_UNAVAILABLE is emitted. If the properties are malformed, or the headers fit no
 * frame, the message is abandoned and BH_EVENT_REFUSED is emitted. If the broker delivers the
 * message again, BH_EVENT_STALE is emitted.
 */
void bh__decide(bh__context *self, bh_message *message);
/* Decides on a dead letter by the relay. Returns 0 if its work queue must be checked first. */
int bh__settle_dead_letter(bh__context *self, bh_message *message);
/* Decides, before a handler gets the message, if the message crashed consumers too often
 * (bh_plan_guard). Returns 1 if it was decided on, so that no handler gets it. */
int bh__guard(bh__context *self, bh_message *message);
/* Records the replay of a parked message. Errors as bh_plan_replay; BH_ERR_CONTENT if it is
 * malformed. */
bh_status bh__decide_replay(bh__context *self, bh_message *message);
/* Abandons the message and emits BH_EVENT_REFUSED with the reason. */
void bh__abandon(bh__context *self, bh_message *message, bh_status status, bh_bytes text);

#endif
