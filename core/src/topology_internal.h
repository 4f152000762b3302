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
/* A topology in *out for all work queues of a relay: its own queue is <ns>.rejected, where their dead letters arrive; it has
 * the waits, and of each work queue nothing. Strategy ladder alone. BH_ERR_NO_MEMORY. */
bh_status bh__topology_new_relays(bh_topology **out);
/* Makes a built topology lead to another work queue: its queue, return key and parked queue are that one's, the declarations
 * stay. Building ends it. False: no memory, and it leads to none. */
int bh__topology_lead_to(bh_topology *self, bh_bytes queue);
/* Its own queue, wherever it leads; and makes it lead there again. */
bh_bytes bh__topology_home(const bh_topology *self);
void bh__topology_lead_home(bh_topology *self);
/* A topology in *out for one work queue of such a relay, in the same namespace, with the waits of its policy. As
 * bh_topology_build. */
bh_status bh__topology_new_part(bh_topology **out, const bh_topology *relays, bh_bytes queue, bh_policy *policy);
/* Whether a policy of the same delays, attempts and ages was added. */
int bh__topology_has_policy(const bh_topology *self, const bh_policy *policy);
/* BH_ERR_NAME where no work queue may have this name. */
bh_status bh__topology_check_queue_name(bh_bytes name);
/* The first part of the shared names. */
bh_bytes bh__topology_namespace(const bh_topology *self);
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
/* Adds a text in UTF-8 to the one that `out` is, as JSON's string; the zero byte behind it is not counted. False: no memory. */
int bh__add_json_string(bh__store *out, bh_bytes text);
/* Writes the declarations as RabbitMQ definitions (JSON). False: no memory. */
int bh__topology_write_definitions(const bh_topology *self, bh__store *out, bh_bytes vhost);

#endif
