/* Exchange: declaring, deleting, binding. route.c routes. */
#include "model/exchange.h"

#include "model/policies.h"

#include <stdlib.h>

const char *model_exchange_type(bh_bytes name)
{
    static const char *const types[] = {"direct", "fanout", "topic", "headers"};
    for (size_t i = 0; i < 4; i++)
        if (bh__same(name, bh_str(types[i])))
            return types[i];
    return NULL;
}

model_exchange *model_exchange_find(const model_vhost *vhost, bh_bytes name)
{
    return model_names_find(&vhost->exchanges, name);
}

model_exchange *model_exchange_add(model_vhost *vhost, bh_bytes name, const char *type, bh_bytes arguments)
{
    model_exchange *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->text = model_name_copy(name);
    self->argument_bytes = bh__duplicate(arguments.data, arguments.size);
    self->name = (bh_bytes){self->text, name.size};
    self->arguments = (bh_bytes){self->argument_bytes, arguments.size};
    self->type = type;
    self->vhost = vhost;
    if (!self->text || !self->argument_bytes || !model_names_add(&vhost->exchanges, self->name, self)) {
        model_exchange_free(self);
        return NULL;
    }
    model_policies_apply_to_exchange(self);
    return self;
}

void model_exchange_free(model_exchange *self)
{
    if (!self)
        return;
    for (size_t i = 0; i < self->binding_count; i++)
        free(self->bindings[i].bytes);
    free(self->bindings);
    free(self->text);
    free(self->argument_bytes);
    free(self);
}

static int is_binding(const model_binding *binding, const model_queue *queue, const model_exchange *exchange,
                      bh_bytes key, bh_bytes arguments)
{
    return binding->queue == queue && binding->exchange == exchange && bh__same(binding->key, key) &&
           bh__same(binding->arguments, arguments);
}

int model_exchange_bind(model_exchange *self, model_queue *queue, model_exchange *exchange, bh_bytes key,
                        bh_bytes arguments)
{
    for (size_t i = 0; i < self->binding_count; i++)
        if (is_binding(&self->bindings[i], queue, exchange, key, arguments))
            return 1;
    void *bindings = self->bindings;
    int is_there = bh__reserve(&bindings, &self->binding_capacity, sizeof *self->bindings, self->binding_count + 1);
    self->bindings = bindings;
    char *bytes = malloc(key.size + arguments.size + 2);
    if (!is_there || !bytes) {
        free(bytes);
        return 0;
    }
    model_binding *added = &self->bindings[self->binding_count++];
    *added = (model_binding){.queue = queue, .exchange = exchange, .bytes = bytes};
    added->key = bh__keep(&bytes, key);
    added->arguments = bh__keep(&bytes, arguments);
    if (exchange)
        exchange->incoming++;
    return 1;
}

static void remove_binding(model_exchange *self, size_t i)
{
    model_binding *gone = &self->bindings[i];
    if (gone->exchange)
        gone->exchange->incoming--;
    free(gone->bytes);
    memmove(gone, gone + 1, (--self->binding_count - i) * sizeof *gone);
}

void model_exchange_unbind(model_exchange *self, model_queue *queue, model_exchange *exchange, bh_bytes key,
                           bh_bytes arguments)
{
    for (size_t i = 0; i < self->binding_count; i++)
        if (is_binding(&self->bindings[i], queue, exchange, key, arguments)) {
            remove_binding(self, i);
            if (self->is_auto_delete && self->binding_count == 0)
                model_exchange_delete(self);
            return;
        }
}

/* Removes the bindings to a queue or an exchange from all exchanges of the vhost. Puts auto-delete
 * exchanges that lost their last binding on the list of the doomed. */
static void forget(model_vhost *vhost, const model_queue *queue, const model_exchange *exchange,
                   model_exchange **doomed)
{
    for (size_t i = 0; i < vhost->exchanges.count; i++) {
        model_exchange *source = vhost->exchanges.items[i].object;
        size_t before = source->binding_count;
        for (size_t j = before; j-- > 0;)
            if (source->bindings[j].queue == queue && source->bindings[j].exchange == exchange)
                remove_binding(source, j);
        if (source->is_auto_delete && before > 0 && source->binding_count == 0 && !source->is_doomed) {
            source->is_doomed = 1;
            source->next_doomed = *doomed;
            *doomed = source;
        }
    }
}

static void delete_all(model_exchange *doomed)
{
    while (doomed) {
        model_exchange *self = doomed;
        doomed = self->next_doomed;
        while (self->binding_count > 0)
            remove_binding(self, self->binding_count - 1);
        model_names_remove(&self->vhost->exchanges, self->name);
        forget(self->vhost, NULL, self, &doomed);
        model_exchange_free(self);
    }
}

void model_exchange_delete(model_exchange *self)
{
    self->is_doomed = 1;
    self->next_doomed = NULL;
    delete_all(self);
}

void model_exchange_forget_queue(model_queue *queue)
{
    model_exchange *doomed = NULL;
    forget(queue->vhost, queue, NULL, &doomed);
    delete_all(doomed);
}
