/* Traffic: what `backhop doctor` says of bindings, federation and relays that touch Backhop's messages. */
#ifndef BACKHOP_COMMAND_TRAFFIC_H
#define BACKHOP_COMMAND_TRAFFIC_H

#include "observe/findings.h"

/* Examines the exchanges of a work queue's topology, as far as they exist, by the management API. Returns EX_OK, or complains
 * and returns the exit code. */
int traffic_examine(doctor *self, const bh_topology *topology);

#endif
