/* Topology, as the plan sees it: where copies go; and its export. Internal. */
#ifndef BACKHOP_TOPOLOGY_INTERNAL_H
#define BACKHOP_TOPOLOGY_INTERNAL_H

#include "memory.h"

#include <backhop/topology.h>

#define BH__KEY_PREFIX "backhop:" /* of the routing key that leads back to one work queue */

int bh__topology_is_built(const bh_topology *self);
/* "backhop:<work queue>" */
bh_bytes bh__topology_return_key(const bh_topology *self);
/* The exchange that brings a copy back at once; "" for the default exchange. */
bh_bytes bh__topology_return_exchange(const bh_topology *self);
/* The exchange behind which messages wait; of the ladder the beginning of its name, to which the rung is added. */
bh_bytes bh__topology_wait_exchange(const bh_topology *self);
/* The nearest of the policy's rungs on either side of a delay in ms; the other one where there is none on a side. */
int64_t bh__topology_rung_below_ms(const bh_topology *self, int64_t delay_ms);
int64_t bh__topology_rung_above_ms(const bh_topology *self, int64_t delay_ms);
/* The lowest rung, the policy's or one made on demand, that is not below the delay. */
int64_t bh__topology_floor_rung_ms(const bh_topology *self, int64_t delay_ms);
int bh__topology_is_policy_rung(const bh_topology *self, int64_t rung_ms);

/* Writes the declarations as RabbitMQ definitions (JSON). False: no memory. */
int bh__topology_write_definitions(const bh_topology *self, bh__store *out, bh_bytes vhost);

#endif
