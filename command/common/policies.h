/* Policies: a queue's settings by the vhost's policies, from the management API, before the queue
 * reports them. */
#ifndef BACKHOP_COMMAND_POLICIES_H
#define BACKHOP_COMMAND_POLICIES_H

#include "common/management.h"

typedef struct policies {
    json_t *users;     /* lists as the API returns them; NULL: none */
    json_t *operators; /* of operator policies */
} policies;

/* Reads the policies and operator policies of the vhost: EX_OK, or complains and returns the exit
 * code. */
int policies_read(policies *self, management *api);
void policies_free(policies *self);
/*
 * Replaces policy, operator_policy and effective_policy_definition of a queue as the API returned
 * it.
 *
 * A quorum queue reports them every five seconds only. They stay as reported if a pattern that
 * decides is more than a POSIX extended regular expression with lookaheads at its beginning.
 */
void policies_apply(const policies *self, json_t *queue);

#endif
