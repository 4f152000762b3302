/* Plan, as the relay makes it, events see it and its copy is written. Internal. */
#ifndef BACKHOP_PLAN_INTERNAL_H
#define BACKHOP_PLAN_INTERNAL_H

#include "base/buffer.h"

#include <backhop/adapter/plan.h>

/* The queue that a message is parked in. */
typedef enum bh__park_place {
    BH__PARK_OWN,        /* the work queue's parked queue */
    BH__PARK_UNROUTABLE, /* <ns>.unroutable, if the work queue's parked queue may be missing */
    BH__PARK_STRAY       /* <ns>.unroutable, for a message of no work queue; counts no attempt */
} bh__park_place;

/*
 * Parks a message with a reason, which is a string constant.
 *
 * Other arguments and errors as bh_plan_make.
 */
bh_status bh__plan_park(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                        const bh_topology *topology, bh__park_place place, const char *reason, bh_bytes error,
                        int64_t now_ms, bh_bytes random);
/* Returns 1 if the plan publishes a copy. */
int bh__plan_publishes(const bh_plan *self);
/* Returns the action of bh_planned. */
bh_action bh__plan_action(const bh_plan *self);
/* Returns the error's text, or the id, of the copy; "" if it has none. */
bh_bytes bh__plan_error(const bh_plan *self);
bh_bytes bh__plan_id(const bh_plan *self);

enum { BH__SAVED_PARTS = 3 };

/* A part of a message that its copy cannot have, and the header that saves the part. */
typedef struct bh__saved_part {
    const char *header;
    bh_property property; /* BH_PROPERTY_HEADERS: the header CC */
} bh__saved_part;

/* Writes the parts to save to *out, and returns their number. If a header saves a part already, it
 * is not among them. */
size_t bh__plan_saved_parts(const bh_delivery *delivery, bh__saved_part out[BH__SAVED_PARTS]);

/*
 * Writes a header that the plan sets: name, type and value. The caller reserves the room.
 *
 * Returns 0 for a header of BH_TYPE_VOID. Only its name is written then; the caller appends the
 * type and value of the header's source.
 */
int bh__plan_put_header(const bh_header *header, bh__buffer *out);
/* Returns the bytes of the copy's properties on the wire, with flags. The delivery is the one of
 * the decision. */
size_t bh__plan_copy_bytes(const bh_plan *self, const bh_delivery *delivery);
/* Returns an empty buffer. The plan frees it. */
bh__buffer *bh__plan_buffer(bh_plan *self);

/* Returns 1 if the given outcome may park the message at `now_ms`, in ms since the epoch:
 * bh_worker_may_park. */
int bh__plan_may_park(const bh_history *history, const bh_policy *policy, const bh_topology *topology, bh_outcome given,
                      int64_t retry_after_ms, int64_t now_ms);

/*
 * Decides about a message in a wait queue of a set-up that was made by hand.
 *
 * The message waits again, in the topology, as long as the policy has it after as many failures. If
 * no attempt remains, it is parked with the reason "exhausted". Its header gives the failures
 * (backhop-attempts, the legacy counter), at least one. If x-death is the source, or if there is
 * none, one failure is added: the failure that it waits for.
 *
 * The work queue's x-death record gives the copy's exchange and routing key; without it, the
 * delivery does. A delivery by the default exchange has the wait queue's name as its key. The key
 * is then the name of the work queue.
 *
 * Arguments and errors: as bh_plan_make; BH_ERR_STRATEGY for reject and native, which have no wait
 * queues.
 */
bh_status bh__plan_adopt(bh_plan *self, const bh_delivery *delivery, const bh_history *history, const bh_policy *policy,
                         const bh_topology *topology, int64_t now_ms, bh_bytes random);

#endif
