/* Survey: the checks of `backhop doctor` that need the management API. */
#ifndef BACKHOP_COMMAND_SURVEY_H
#define BACKHOP_COMMAND_SURVEY_H

#include "observe/findings.h"

/*
 * Each returns EX_OK, or complains and returns the exit code.
 *
 * Examines the nodes and the shovels.
 */
int survey_cluster(doctor *self, const depths *seen);
/* Examines the arguments, bindings and policies of a work queue's topology, as far as it exists. */
int survey_topology(doctor *self, const bh_topology *topology, const depths *seen);
/* Returns 1 if a policy gives the queue a delivery limit, which survey_topology examines; 0 if the
 * API is not offered. */
int survey_has_limit(doctor *self, const char *queue);

#endif
