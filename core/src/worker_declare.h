/* Declare: makes or checks a topology's exchanges, queues and bindings. Internal. */
#ifndef BACKHOP_WORKER_DECLARE_H
#define BACKHOP_WORKER_DECLARE_H

#include "worker_connection.h"

#include <backhop/topology.h>

/*
 * Each on a channel of its own, so that an error of the broker ends nothing else. BH_ERR_CLASH, BH_ERR_MISSING,
 * BH_ERR_ACCESS, BH_ERR_BROKER, BH_ERR_CHANNEL, BH_ERR_CONNECTION, BH_ERR_NO_MEMORY.
 */

/* Makes all that is not on demand. */
bh_status bh__declare_create(bh__connection *connection, const bh_topology *topology, bh__report *report);
/* Makes the rung of this delay. */
bh_status bh__declare_rung(bh__connection *connection, const bh_topology *topology, int64_t wait_ms,
                           bh__report *report);
/* Makes nothing, and reports all that is missing or different. */
bh_status bh__declare_verify(bh__connection *connection, const bh_topology *topology, bh__report *report);

#endif
