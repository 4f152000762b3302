/* Users: a list; permissions are patterns. */
#include "model/users.h"

#include "model/closing.h"

#include <regex.h>
#include <stdlib.h>

typedef struct model_permission {
    struct model_permission *next;
    char *vhost;
    int is_compiled[MODEL_ACCESS_COUNT];
    int is_none[MODEL_ACCESS_COUNT]; /* an empty pattern permits nothing */
    int is_all[MODEL_ACCESS_COUNT];  /* ".*", which needs no matching */
    regex_t patterns[MODEL_ACCESS_COUNT];
} model_permission;

static char *copy(const char *text)
{
    return bh__duplicate(text, strlen(text) + 1);
}

model_user *model_users_find(const model *self, bh_bytes name)
{
    for (model_user *user = self->users; user; user = user->next)
        if (bh__same(bh_str(user->name), name))
            return user;
    return NULL;
}

int model_users_set(model *self, const char *name, const char *password, const char *tags)
{
    char *own_password = copy(password), *own_tags = copy(tags), *own_name = copy(name);
    model_user *user = model_users_find(self, bh_str(name)), *added = user ? NULL : calloc(1, sizeof *added);
    if (!own_password || !own_tags || !own_name || (!user && !added)) {
        free(own_password);
        free(own_tags);
        free(own_name);
        free(added);
        return 0;
    }
    if (added) {
        user = added;
        added->next = self->users;
        self->users = added;
    }
    free(user->name);
    free(user->password);
    free(user->tags);
    user->name = own_name;
    user->password = own_password;
    user->tags = own_tags;
    return 1;
}

static void free_permission(model_permission *self)
{
    for (int i = 0; i < MODEL_ACCESS_COUNT; i++)
        if (self->is_compiled[i])
            regfree(&self->patterns[i]);
    free(self->vhost);
    free(self);
}

/* Takes the permission for a vhost from a user's list; NULL if there is none. */
static model_permission *take_permission(model_user *user, const char *vhost)
{
    for (model_permission **at = &user->permissions; *at; at = &(*at)->next)
        if (strcmp((*at)->vhost, vhost) == 0) {
            model_permission *taken = *at;
            *at = taken->next;
            return taken;
        }
    return NULL;
}

bh_status model_users_permit(model *self, const char *vhost, const char *name,
                             const char *const patterns[MODEL_ACCESS_COUNT])
{
    model_user *user = model_users_find(self, bh_str(name));
    if (!user)
        return BH_ERR_MISSING;
    model_permission *added = calloc(1, sizeof *added);
    if (!added)
        return BH_ERR_NO_MEMORY;
    added->vhost = copy(vhost);
    bh_status status = added->vhost ? BH_OK : BH_ERR_NO_MEMORY;
    for (int i = 0; i < MODEL_ACCESS_COUNT && status == BH_OK; i++) {
        added->is_none[i] = !*patterns[i];
        added->is_all[i] = strcmp(patterns[i], ".*") == 0;
        added->is_compiled[i] = regcomp(&added->patterns[i], patterns[i], REG_EXTENDED | REG_NOSUB) == 0;
        if (!added->is_compiled[i])
            status = BH_ERR_ARGUMENT;
    }
    if (status != BH_OK) {
        free_permission(added);
        return status;
    }
    model_permission *known = take_permission(user, vhost);
    if (known)
        free_permission(known);
    added->next = user->permissions;
    user->permissions = added;
    return BH_OK;
}

void model_users_forget(model *self, const char *vhost)
{
    for (model_user *user = self->users; user; user = user->next) {
        model_permission *known = take_permission(user, vhost);
        if (known)
            free_permission(known);
    }
}

static void free_user(model_user *user)
{
    model_permission *permission;
    while ((permission = user->permissions) != NULL) {
        user->permissions = permission->next;
        free_permission(permission);
    }
    free(user->name);
    free(user->password);
    free(user->tags);
    free(user);
}

void model_users_delete(model *self, model_user *user)
{
    for (model_user **at = &self->users; *at; at = &(*at)->next)
        if (*at == user) {
            *at = user->next;
            free_user(user);
            return;
        }
}

void model_users_free(model *self)
{
    model_user *user;
    while ((user = self->users) != NULL) {
        self->users = user->next;
        free_user(user);
    }
}

int model_user_has_tag(const model_user *self, const char *tag)
{
    size_t size = strlen(tag);
    for (const char *at = self->tags; (at = strstr(at, tag)) != NULL; at += size)
        if ((at == self->tags || at[-1] == ' ') && (!at[size] || at[size] == ' '))
            return 1;
    return 0;
}

static const model_permission *find_permission(const model_user *self, bh_bytes vhost)
{
    for (const model_permission *each = self->permissions; each; each = each->next)
        if (bh__same(bh_str(each->vhost), vhost))
            return each;
    return NULL;
}

int model_user_may_enter(const model_user *self, bh_bytes vhost)
{
    return find_permission(self, vhost) != NULL;
}

/* Returns 1 if the channel's user may. The default exchange has a name for permissions. */
static int may(const model_channel *channel, model_access access, const char *kind, bh_bytes name, char text[256])
{
    const model_link *link = channel->link;
    const model_permission *permission = find_permission(link->user, link->vhost->name);
    strcpy(text, "amq.default");
    if (name.size > 0 || *kind == 'q') {
        size_t size = name.size < 256 ? name.size : 255;
        memcpy(text, name.data, size);
        text[size] = '\0';
    }
    if (!permission || permission->is_none[access])
        return 0;
    return permission->is_all[access] || regexec(&permission->patterns[access], text, 0, NULL, 0) == 0;
}

int model_user_may(model_channel *channel, model_access access, const char *kind, bh_bytes name)
{
    static const char *const words[] = {"configure ", "write ", "read "};
    char text[256];
    const model_link *link = channel->link;
    if (may(channel, access, kind, name, text))
        return 1;
    model_refuse(channel, 403, "%saccess to %s '%s' in vhost '%s' refused for user '%s'",
                 link->broker->version->names_access ? words[access] : "", kind, text, link->vhost->text,
                 link->user->name);
    return 0;
}

int model_user_may_look(model_channel *channel, const char *kind, bh_bytes name)
{
    char text[256];
    return may(channel, MODEL_READ, kind, name, text) || may(channel, MODEL_WRITE, kind, name, text) ||
           model_user_may(channel, MODEL_CONFIGURE, kind, name);
}
