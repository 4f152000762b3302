/* Vhosts: with the exchanges that each has, and what of them survives a restart. */
#include "model/vhosts.h"

#include "model/closing.h"
#include "model/exchange.h"
#include "model/policies.h"
#include "model/queue.h"
#include "model/users.h"

#include <stdlib.h>

static int add_exchanges(model_vhost *self)
{
    static const char *const own[][2] = {{"", "direct"},
                                         {"amq.direct", "direct"},
                                         {"amq.fanout", "fanout"},
                                         {"amq.topic", "topic"},
                                         {"amq.headers", "headers"},
                                         {"amq.match", "headers"},
                                         {"amq.rabbitmq.trace", "topic"}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        model_exchange *added =
            model_exchange_add(self, bh_str(own[i][0]), model_exchange_type(bh_str(own[i][1])), bh_str(""));
        if (!added)
            return 0;
        added->is_durable = 1;
        added->is_internal = i == 6;
    }
    return 1;
}

static void free_vhost(model_vhost *self)
{
    while (self->queues.count > 0) {
        model_queue *queue = self->queues.items[self->queues.count - 1].object;
        model_end_queue(queue);
    }
    for (size_t i = 0; i < self->exchanges.count; i++)
        model_exchange_free(self->exchanges.items[i].object);
    model_names_free(&self->exchanges);
    model_names_free(&self->queues);
    model_policies_free(self);
    free(self->text);
    free(self);
}

model_vhost *model_vhosts_add(model *self, bh_bytes name)
{
    model_vhost *added = calloc(1, sizeof *added);
    if (!added)
        return NULL;
    added->broker = self;
    added->text = model_name_copy(name);
    added->name = (bh_bytes){added->text, name.size};
    if (!added->text || !add_exchanges(added) || !model_names_add(&self->vhosts, added->name, added)) {
        free_vhost(added);
        return NULL;
    }
    return added;
}

void model_vhosts_delete(model_vhost *self)
{
    model *broker = self->broker;
    for (model_link *link = broker->links; link; link = link->next)
        if (link->vhost == self) {
            link->method = 0;
            model_link_refuse(link, 320, "broker forced connection closure with reason 'vhost is down'");
            link->vhost = NULL;
        }
    model_users_forget(broker, self->text);
    model_names_remove(&broker->vhosts, self->name);
    free_vhost(self);
}

/* A classic queue loses its transient messages. */
static void restart_queue(model_queue *queue)
{
    for (size_t i = 0; i < queue->level_count && !queue->is_quorum; i++) {
        model_entry *next;
        for (model_entry *entry = queue->levels[i].first; entry; entry = next) {
            next = entry->next;
            if (entry->message->is_persistent)
                continue;
            model_queue_take(queue, entry);
            model_entry_free(entry);
        }
    }
    queue->used_ms = queue->vhost->broker->now_ms;
    model_queue_touch(queue);
}

static void restart_vhost(model_vhost *vhost)
{
    for (size_t i = vhost->queues.count; i-- > 0;) {
        model_queue *queue = vhost->queues.items[i].object;
        if (queue->is_durable)
            restart_queue(queue);
        else
            model_end_queue(queue);
    }
    for (size_t i = 0; i < vhost->exchanges.count;) {
        model_exchange *exchange = vhost->exchanges.items[i].object;
        if (exchange->is_durable) {
            i++;
            continue;
        }
        model_exchange_delete(exchange);
        i = 0; /* others may have gone with it */
    }
}

void model_vhosts_restart(model *self)
{
    for (size_t i = 0; i < self->vhosts.count; i++)
        restart_vhost(self->vhosts.items[i].object);
}
