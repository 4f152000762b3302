/* Doctor: what its parts share. */
#ifndef BACKHOP_COMMAND_DOCTOR_H
#define BACKHOP_COMMAND_DOCTOR_H

#include "depths.h"
#include "management.h"
#include "setup.h"

typedef struct doctor {
    broker_options broker;
    topology_options topology;
    policy_options policy;
    const char *management_url; /* NULL: not offered */
    int64_t patience_ms;        /* rungs up to this are tried */
    int json;
    connection *connection;
    management *management; /* NULL: not offered */
    json_t *examined;       /* names of what came up already */
    int findings;
    int serious;
} doctor;

/* One finding: what it is, what it means, what to do; the last two may be "". */
void doctor_find(doctor *self, int is_serious, const char *what, const char *meaning, const char *advice);
/* A serious one: something of a topology is missing, which declaring it makes. */
void doctor_find_missing(doctor *self, const bh_topology *topology, const char *what, const char *meaning);
/* Something that is as it has to be: told to people alone. */
void doctor_praise(const doctor *self, const char *what);

/* By the management API: the nodes, and those who move messages. EX_OK, or complains and returns the exit code. */
int doctor_see_cluster(doctor *self, const depths *seen);
/* By the same, where it is offered: whether a policy gives a queue a delivery limit that nobody reaches. */
int doctor_sees_limit_raised(doctor *self, const char *queue);
/* By the same: arguments, bindings and policies of a work queue's topology, as far as it is there. The same codes. */
int doctor_see_topology(doctor *self, const bh_topology *topology, const depths *seen);

#endif
