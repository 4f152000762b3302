/* Worker: one that runs a relay. Internal. */
#ifndef BACKHOP_WORKER_INTERFACE_RELAY_H
#define BACKHOP_WORKER_INTERFACE_RELAY_H

#include "relay/relay.h"
#include <backhop/worker.h>

#define BH__RELAY_PREFETCH 1000

/*
 * Makes a worker in *out that runs the relay, which is copied; free it with bh_worker_free.
 *
 * The worker consumes <ns>.rejected and decides on each dead letter itself: bh_worker_take and
 * bh_worker_settle are not used. The handler of bh_worker_run may be NULL. Its prefetch is
 * BH__RELAY_PREFETCH until bh_worker_set.
 * bh_worker_replay returns BH_ERR_STATE.
 *
 * It declares the queues that all work queues share. Per work queue it declares the parked queue
 * and the return binding. For queues that the relay names, it does so when it connects; for others,
 * when their first dead letter arrives. It repeats this every 30 s, because a queue that is deleted
 * and declared again loses its return binding. It never declares a work queue. If one is missing,
 * it emits BH_EVENT_UNAVAILABLE, and the queue's dead letters go to <ns>.unroutable. Several relays
 * may run side by side.
 * Errors: BH_ERR_STATE if the relay is not built; others as bh_worker_new.
 */
bh_status bh__worker_new_relay(bh_worker **out, const bh__relay *relay);

#endif
