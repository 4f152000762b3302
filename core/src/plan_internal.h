/* Plan, as the relay makes it, events see it and its copy is written. Internal. */
#ifndef BACKHOP_PLAN_INTERNAL_H
#define BACKHOP_PLAN_INTERNAL_H

#include "buffer.h"

#include <backhop/plan.h>

/* Where a message is put that nobody tries again. */
typedef enum bh__shelf {
    BH__SHELF_PARKED,     /* the work queue's parked queue */
    BH__SHELF_UNROUTABLE, /* <ns>.unroutable, as the work queue's own, whose parked queue may not be there */
    BH__SHELF_STRAY       /* the same, as no queue's own, and it counts as no attempt */
} bh__shelf;

/* Decides to put a message away: BH_ACTION_PARK with this reason, a string constant. Other arguments and errors as
 * bh_plan_make. */
bh_status bh__plan_shelve(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                          const bh_topology *topology, bh__shelf shelf, const char *reason, bh_bytes error,
                          int64_t now_ms, bh_bytes random);
/* The error's text that the copy carries; "" where there is none. */
bh_bytes bh__plan_error(const bh_plan *self);

/* Writes a header that the plan sets, name, type and value, where there is room; false where it is of BH_TYPE_VOID: then its
 * name alone, and the value that it stands for, with its type, goes behind it. */
int bh__plan_put_header(const bh_plan *self, size_t index, bh__buffer *out);
/* Bytes that its copy's properties take on the wire, flags included; of its own delivery. */
size_t bh__plan_copy_bytes(const bh_plan *self, const bh_delivery *delivery);
/* An empty buffer that the plan frees. */
bh__buffer *bh__plan_buffer(bh_plan *self);

/* As bh_worker_may_park, at a time. */
int bh__plan_may_park(const bh_history *history, const bh_policy *policy, bh_outcome outcome, int64_t retry_after_ms,
                      int64_t now_ms);

#endif
