/* Probes: messages that go through wait queues into a throw-away queue, to see whether retries come
 * back. */
#ifndef BACKHOP_COMMAND_PROBES_H
#define BACKHOP_COMMAND_PROBES_H

#include "observe/findings.h"

/*
 * Sends one probe through each wait queue with a delay of at most self->patience_ms, all at once.
 * Reports each probe that is not back 10 s after its delay. Strategies other than the ladder have
 * no such wait queues.
 */
void send_probes(doctor *self, const bh_topology *topology, const depths *seen);

#endif
