/* Users: passwords and permissions. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_USERS_H
#define BACKHOP_COMMAND_MODEL_USERS_H

#include "model/broker.h"

typedef enum model_access { MODEL_CONFIGURE, MODEL_WRITE, MODEL_READ, MODEL_ACCESS_COUNT } model_access;

/* Adds a user or changes its password and tags. Returns 0 if memory runs out. */
int model_users_set(model *self, const char *name, const char *password, const char *tags);
/* Sets the patterns of a user in a vhost. BH_ERR_MISSING: no such user; BH_ERR_ARGUMENT: a
 * malformed pattern. */
bh_status model_users_permit(model *self, const char *vhost, const char *name,
                             const char *const patterns[MODEL_ACCESS_COUNT]);
/* Deletes a user, who has no connections any more. */
void model_users_delete(model *self, model_user *user);
model_user *model_users_find(const model *self, bh_bytes name);
/* Removes the permissions in a vhost that goes. */
void model_users_forget(model *self, const char *vhost);
void model_users_free(model *self);

int model_user_has_tag(const model_user *self, const char *tag);
/* Returns 1 if the user has permissions in the vhost. */
int model_user_may_enter(const model_user *self, bh_bytes vhost);
/* Returns 1 if the user has any permission on it; else refuses the method as if it needed to
 * configure. */
int model_user_may_look(model_channel *channel, const char *kind, bh_bytes name);
/* Returns 1 if the channel's user may; else refuses the method. kind: "queue", "exchange". */
int model_user_may(model_channel *channel, model_access access, const char *kind, bh_bytes name);

#endif
