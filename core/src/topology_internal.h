/* Topology, as the plan sees it: where copies go; and its export. Internal. */
#ifndef BACKHOP_TOPOLOGY_INTERNAL_H
#define BACKHOP_TOPOLOGY_INTERNAL_H

#include "memory.h"
#include "topology_rungs.h"

#include <backhop/topology.h>

#define BH__KEY_PREFIX "backhop:" /* of the routing key that leads back to one work queue */

/* A copy of all that was set and built, which shares nothing with the original, in *out; NULL there: BH_ERR_NO_MEMORY.
 * Free it with bh_topology_free. */
bh_status bh__topology_copy(bh_topology **out, const bh_topology *from);
int bh__topology_is_built(const bh_topology *self);
/* 1 where the topology, which is built, has all waits that the policy needs: it was built for the policy, or for others
 * whose waits are the same or more. Cheap for a policy that it was built for. */
int bh__topology_serves(const bh_topology *self, const bh_policy *policy);
/* 1 where a retry is a copy; 0 where the broker alone moves the message, by the work queue's own arguments. */
int bh__topology_copies(const bh_topology *self);
/* A broker's version "4.0.5" as 40000 (major * 10000 + minor); -1 where it does not begin with two numbers. */
int bh__broker_version(bh_bytes version);
/* "backhop:<work queue>" */
bh_bytes bh__topology_return_key(const bh_topology *self);
/* The exchange that brings a copy back at once; "" for the default exchange. */
bh_bytes bh__topology_return_exchange(const bh_topology *self);
/* The exchange behind which messages wait; of the ladder the beginning of its name, to which the rung is added. */
bh_bytes bh__topology_wait_exchange(const bh_topology *self);
const bh__rungs *bh__topology_rungs(const bh_topology *self);
/* How many wait queues each rung has; 1 for strategies without rungs. */
int bh__topology_stripes(const bh_topology *self);
/* Writes the declarations as RabbitMQ definitions (JSON). False: no memory. */
int bh__topology_write_definitions(const bh_topology *self, bh__store *out, bh_bytes vhost);

#endif
