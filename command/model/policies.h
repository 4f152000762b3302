/* Policies: patterns of names with settings, and the settings that a queue has by its arguments and
 * policies. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_POLICIES_H
#define BACKHOP_COMMAND_MODEL_POLICIES_H

#include "model/broker.h"

/* Sets the queue's settings anew. */
void model_policies_apply_to_queue(model_queue *queue);
void model_policies_apply_to_exchange(model_exchange *exchange);

/* The words of the command `policy`. */
typedef struct model_policy_command {
    const char *name;
    const char *pattern;
    const char *apply_to; /* "queues", "exchanges", "all" */
    int priority;
    int is_operator;
    const char *definition; /* a JSON object of strings, numbers and booleans */
} model_policy_command;

/* Sets or replaces a policy, and applies it. BH_ERR_ARGUMENT if the pattern or the definition is
 * malformed; BH_ERR_NO_MEMORY. */
bh_status model_policies_set(model_vhost *vhost, const model_policy_command *command);
/* Deletes a policy of either kind. BH_ERR_MISSING. */
bh_status model_policies_delete(model_vhost *vhost, const char *name);
void model_policies_free(model_vhost *vhost);

#endif
