/* Declare: executes the steps of the pure core's declaring on a connection. */
#ifndef BACKHOP_COMMAND_DECLARE_H
#define BACKHOP_COMMAND_DECLARE_H

#include "common/connection.h"
#include "setup/setup.h"

#include <backhop/adapter/declaring.h>

/* Makes a topology; how it went, in words, is in the report. A connection that the broker closed
 * over it is of no more use. */
bh_status declare_topology(connection *broker, bh_topology *topology, bh__report *report);
/* Verifies the topology and declares nothing. The report lists missing and different parts, but no
 * rungs on demand. */
bh_status declare_verify(connection *broker, bh_topology *topology, bh__report *report);
/* Verifies the parts that every policy needs: all but the rungs. Otherwise like declare_verify. */
bh_status declare_verify_fixed(connection *broker, bh_topology *topology, bh__report *report);
/* Declares a queue of the topology, which is there, as Backhop does: the broker compares its
 * arguments. BH_ERR_CLASH: others, and they stay; BH_ERR_ACCESS, BH_ERR_CONNECTION, ... */
bh_status declare_compare(connection *broker, const bh_topology *topology, const char *queue);
/*
 * Returns 1 if declare_compare found a queue that counts deliveries, and drops or dead-letters a
 * message with too many.
 *
 * *limit: the queue's own limit; 0 if it has none, or if it is not known. Without one RabbitMQ 4
 * takes 20, or the limit of a policy, which AMQP does not show.
 */
int declare_found_limit(const connection *broker, bh_status status, int64_t *limit);

enum { USUAL_LIMIT = 20 /* of RabbitMQ 4 */, UNREACHED_LIMIT = 1000000 /* deliveries that no message has */ };

#endif
