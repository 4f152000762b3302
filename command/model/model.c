/* Model: a broker with the vhost "/" and the user guest. */
#include "model/broker.h"

#include "model/closing.h"
#include "model/letters.h"
#include "model/users.h"
#include "model/vhosts.h"

#include <stdio.h>
#include <stdlib.h>

enum { CONSUMER_TIMEOUT_MS = 1800000, RESEND_MS = 180000, POOL_BYTES = 4096 };

bh_status model_new(model **out, const model_settings *settings)
{
    static const char *const all[MODEL_ACCESS_COUNT] = {".*", ".*", ".*"};
    const model_version *version = model_version_find(settings->version);
    model *self = version ? calloc(1, sizeof *self) : NULL;
    if (!version)
        return BH_ERR_ARGUMENT;
    if (!self)
        return BH_ERR_NO_MEMORY;
    self->version = version;
    self->settings = *settings;
    snprintf(self->cluster, sizeof self->cluster, "rabbit@model");
    self->max_message_bytes = self->version->max_message_bytes;
    if (!self->settings.consumer_timeout_ms)
        self->settings.consumer_timeout_ms = CONSUMER_TIMEOUT_MS;
    if (!self->settings.resend_ms)
        self->settings.resend_ms = RESEND_MS;
    init_amqp_pool(&self->pool, POOL_BYTES);
    if (!model_vhosts_add(self, bh_str("/")) || !model_users_set(self, "guest", "guest", "administrator") ||
        model_users_permit(self, "/", "guest", all) != BH_OK) {
        model_free(self);
        return BH_ERR_NO_MEMORY;
    }
    *out = self;
    return BH_OK;
}

void model_free(model *self)
{
    if (!self)
        return;
    while (self->links)
        model_disconnect(self->links);
    model_letters_free(self);
    while (self->vhosts.count > 0)
        model_vhosts_delete(self->vhosts.items[0].object);
    model_names_free(&self->vhosts);
    model_users_free(self);
    empty_amqp_pool(&self->pool);
    free(self);
}

int64_t model_now_ms(const model *self)
{
    return self->now_ms;
}
