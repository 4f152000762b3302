/* Findings: one run of `backhop doctor`, and how it prints findings. */
#ifndef BACKHOP_COMMAND_FINDINGS_H
#define BACKHOP_COMMAND_FINDINGS_H

#include "observe/depths.h"
#include "common/policies.h"
#include "setup/setup.h"

typedef struct doctor {
    broker_options broker;
    topology_options topology;
    policy_options policy;
    const char *management_url; /* NULL: not offered */
    int64_t patience_ms;        /* rungs up to this are tried */
    int json;
    connection *connection;
    management *management; /* NULL: not offered */
    policies policies;
    int64_t nodes;    /* of the cluster; 0: not known */
    json_t *examined; /* names of the queues and exchanges examined already */
    int findings;
    int serious;
} doctor;

/* Returns 1 the first time that it gets this name of a kind. */
int doctor_is_new(doctor *self, const char *kind, const char *name);
/* Prints and counts one finding: its statement, its meaning, the advice. The last two may be "". */
void doctor_find(doctor *self, int is_serious, const char *what, const char *meaning, const char *advice);
/* Prints a serious finding: a part of the topology is missing, and declaring the topology makes
 * it. */
void doctor_find_missing(doctor *self, const bh_topology *topology, const char *what, const char *meaning);
/* Prints that something is as it should be; not in JSON. */
void doctor_praise(const doctor *self, const char *what);

#endif
