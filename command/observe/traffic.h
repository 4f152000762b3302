/* Traffic: what `backhop doctor` says of bindings, federation and relays that touch Backhop's
 * messages. */
#ifndef BACKHOP_COMMAND_TRAFFIC_H
#define BACKHOP_COMMAND_TRAFFIC_H

#include "observe/findings.h"

/* Examines the policy of an exchange, as the management API returned it. */
void traffic_examine_exchange(doctor *self, const char *exchange, const json_t *found);
/* Examines the bindings of the exchanges of a work queue's topology, as far as they exist, and the
 * relay's queue. Returns EX_OK, or complains and returns the exit code. */
int traffic_examine(doctor *self, const bh_topology *topology);

#endif
