/* Topology: the functions that higher floors need. Internal. */
#ifndef BACKHOP_TOPOLOGY_INTERNAL_H
#define BACKHOP_TOPOLOGY_INTERNAL_H

#include "base/memory.h"
#include "topology/rungs.h"

#include <backhop/topology.h>

#define BH__KEY_PREFIX "backhop:" /* of the routing key of a return binding */
/* The x-delayed-message plugin routes messages with a longer delay at once. */
#define BH__LONGEST_X_DELAY_MS INT64_C(4294967295)

/*
 * Copies all settings and declarations to *out. Free the copy with bh_topology_free.
 *
 * Errors: BH_ERR_NO_MEMORY; *out is NULL then.
 */
bh_status bh__topology_copy(bh_topology **out, const bh_topology *from);

/*
 * Creates a topology in *out for all work queues of a relay. Its own queue is <ns>.rejected, which
 * gets the dead letters of the work queues. It declares the wait queues and nothing of a work
 * queue. Its strategy must be ladder.
 *
 * Errors: BH_ERR_NO_MEMORY.
 */
bh_status bh__topology_new_relays(bh_topology **out);
/*
 * Selects a work queue of a relay. Plans then send copies to this queue: bh__topology_queue,
 * bh__topology_parked_queue and the return key change, the declarations do not. bh_topology_build
 * ends the selection. Returns 0 and selects none if memory runs out.
 */
int bh__topology_select_queue(bh_topology *self, bh_bytes queue);
/* Ends the selection. */
void bh__topology_select_own(bh_topology *self);
/* Returns the settings, to change some of them. */
bh_topology_settings bh__topology_settings(const bh_topology *self);
/* Return what bh_topology_view has of these names. */
bh_bytes bh__topology_queue(const bh_topology *self);
bh_bytes bh__topology_parked_queue(const bh_topology *self);
bh_bytes bh__topology_unroutable_queue(const bh_topology *self);
bh_strategy bh__topology_strategy(const bh_topology *self);
int bh__topology_defers(const bh_topology *self);
size_t bh__topology_count(const bh_topology *self);
/* Returns the topology's own queue, without regard to the selection. */
bh_bytes bh__topology_own_queue(const bh_topology *self);
/*
 * Creates a topology in *out for one work queue of a relay and its policy. Errors:
 * bh_topology_build.
 */
bh_status bh__topology_new_part(bh_topology **out, const bh_topology *relays, bh_bytes queue, bh_policy *policy);

/* Returns 1 if an added policy has the same delays, attempts and ages. */
int bh__topology_has_policy(const bh_topology *self, const bh_policy *policy);
/* Checks the name of a work queue. Errors: BH_ERR_NAME, BH_ERR_ARGUMENT. */
bh_status bh__topology_check_queue_name(bh_bytes name);
/* Returns the first part of the shared names. */
bh_bytes bh__topology_namespace(const bh_topology *self);
int bh__topology_is_built(const bh_topology *self);
/*
 * Returns 1 if a built topology has all rungs of a policy. Fast if the policy was built or added.
 */
int bh__topology_serves(const bh_topology *self, const bh_policy *policy);
/* Returns 1 if the strategy publishes copies; 0 if the broker moves the message itself. */
int bh__topology_copies(const bh_topology *self);
/* Returns a broker's version as major * 10000 + minor: 40000 for "4.0.5". -1 if it is malformed. */
int bh__broker_version(bh_bytes version);
/* Returns mean_ms of bh_topology_preview, without the cost of its sum. */
int64_t bh__topology_mean_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt);
/* Returns "backhop:<work queue>", the routing key of the return binding. */
bh_bytes bh__topology_return_key(const bh_topology *self);
/* Returns the exchange that routes copies to the work queue; "" for the default exchange. */
bh_bytes bh__topology_return_exchange(const bh_topology *self);
/* Returns the exchange of the wait queue. Ladder: its first part, before the rung. */
bh_bytes bh__topology_wait_exchange(const bh_topology *self);
/*
 * Returns the delay of a rung in ms, by the end of its wait queue's name: "<ms>" or
 * "<ms>.<stripe>". Returns 0 for any other text.
 */
int64_t bh__rung_of_name(const char *end);
const bh__rungs *bh__topology_rungs(const bh_topology *self);
/* Returns the number of wait queues of each rung; 1 for strategies without rungs. */
int bh__topology_stripes(const bh_topology *self);
/* Appends a UTF-8 text to `out` as a JSON string. Returns 0 if memory runs out. */
int bh__add_json_string(bh__store *out, bh_bytes text);

typedef enum bh__permission { BH__PERMISSION_CONFIGURE, BH__PERMISSION_WRITE, BH__PERMISSION_READ } bh__permission;

/*
 * Returns a regular expression for rabbitmqctl set_permissions: the least that a consumer of the
 * work queue needs. It depends on the strategy and the mode. "^$" permits nothing.
 *
 * All strategies publish to the parked queue by the default exchange, amq.default. A replay also
 * needs to read the parked queue and to write to the return exchange.
 *
 * The text is valid until the next call; "" if the topology is not built, an argument is out of
 * range, or memory runs out.
 */
bh_bytes bh__topology_permission(bh_topology *self, bh_mode mode, bh__permission permission);

#endif
