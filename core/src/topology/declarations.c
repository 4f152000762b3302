/* Declarations: the list that the strategies make, and its getters. */
#include "topology/declarations.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * RabbitMQ 4 drops a message after 21 deliveries by default, for instance if an operator looks at
 * parked messages. RabbitMQ 3 refuses a negative limit, which RabbitMQ 4 reads as no limit.
 */
#define DELIVERY_LIMIT 1000000000

bh__text bh__make_text(bh_topology *self, bh_bytes first, bh_bytes second, bh_bytes third)
{
    bh__text text = {0};
    if (!bh__store_join(&self->store, &text, first, second, third))
        self->no_memory = 1;
    return text;
}

bh__text bh__save_text(bh_topology *self, const char *text)
{
    return bh__make_text(self, bh_str(text), bh_str(""), bh_str(""));
}

bh__text bh__name_after_queue(bh_topology *self, const char *suffix)
{
    return bh__make_text(self, bh__topology_queue(self), bh_str(suffix), bh_str(""));
}

bh__text bh__name_in_namespace(bh_topology *self, const char *suffix)
{
    return bh__make_text(self, bh__topology_namespace(self), bh_str(suffix), bh_str(""));
}

static bh__draft *last_draft(bh_topology *self)
{
    return &self->declarations[self->count - 1];
}

int bh__add_declaration(bh_topology *self, bh_declaration_kind kind, bh__text name, const char *type)
{
    void *declarations = self->declarations;
    if (!bh__reserve(&declarations, &self->capacity, sizeof *self->declarations, self->count + 1)) {
        self->no_memory = 1;
        return 0;
    }
    self->declarations = declarations;
    bh__draft added = {
        .kind = kind, .name = name, .type = bh__save_text(self, type), .first_argument = self->argument_count};
    self->declarations[self->count++] = added;
    return 1;
}

void bh__declare_exchange(bh_topology *self, bh__text name, const char *type)
{
    bh__add_declaration(self, BH_DECLARE_EXCHANGE, name, type);
}

void bh__declare_binding(bh_topology *self, bh__text source, bh__text destination, const char *type,
                         bh__text routing_key)
{
    if (bh__add_declaration(self, BH_DECLARE_BINDING, destination, type)) {
        last_draft(self)->source = source;
        last_draft(self)->routing_key = routing_key;
    }
}

static void add_argument(bh_topology *self, bh__draft_argument added)
{
    void *items = self->arguments;
    if (!bh__reserve(&items, &self->argument_capacity, sizeof *self->arguments, self->argument_count + 1)) {
        self->no_memory = 1;
        return;
    }
    self->arguments = items;
    self->arguments[self->argument_count++] = added;
    last_draft(self)->argument_count++;
}

void bh__add_text_argument(bh_topology *self, const char *name, bh__text value)
{
    bh__draft_argument added = {.name = bh__save_text(self, name), .type = BH_TYPE_STRING, .string = value};
    add_argument(self, added);
}

void bh__add_string_argument(bh_topology *self, const char *name, const char *value)
{
    bh__add_text_argument(self, name, bh__save_text(self, value));
}

void bh__add_int_argument(bh_topology *self, const char *name, int64_t value)
{
    bh__draft_argument added = {.name = bh__save_text(self, name), .type = BH_TYPE_INT64, .number = value};
    add_argument(self, added);
}

void bh__declare_plain_queue(bh_topology *self, bh__text name)
{
    int is_quorum = self->queue_type == BH_QUEUE_QUORUM;
    if (!bh__add_declaration(self, BH_DECLARE_QUEUE, name, is_quorum ? "quorum" : "classic"))
        return;
    bh__add_string_argument(self, "x-queue-type", is_quorum ? "quorum" : "classic");
    if (is_quorum)
        bh__add_int_argument(self, "x-delivery-limit", DELIVERY_LIMIT);
}

void bh__declare_wait_queue(bh_topology *self, bh__text name, int64_t ttl_ms, bh__text dead_letter_exchange)
{
    int is_quorum = self->queue_type == BH_QUEUE_QUORUM;
    if (bh__add_declaration(self, BH_DECLARE_QUEUE, name, is_quorum ? "quorum" : "classic")) {
        bh__add_string_argument(self, "x-queue-type", is_quorum ? "quorum" : "classic");
        if (ttl_ms)
            bh__add_int_argument(self, "x-message-ttl", ttl_ms);
        bh__add_text_argument(self, "x-dead-letter-exchange", dead_letter_exchange);
        if (is_quorum) {
            bh__add_string_argument(self, "x-dead-letter-strategy", "at-least-once");
            bh__add_string_argument(self, "x-overflow", "reject-publish");
            bh__add_string_argument(self, "x-queue-leader-locator", "balanced");
        }
    }
    bh__declare_binding(self, name, name, "queue", bh__save_text(self, ""));
}

int bh__has_own_argument(const bh_topology *self, const char *name)
{
    const bh__draft_arguments *own = &self->work_queue;
    for (size_t i = 0; i < own->count; i++)
        if (bh__same(bh__store_get(&own->store, own->items[i].name), bh_str(name)))
            return 1;
    return 0;
}

int bh__begin_work_queue(bh_topology *self)
{
    const char *type = self->work_queue_type == BH_QUEUE_QUORUM ? "quorum" : "classic";
    if (!bh__add_declaration(self, BH_DECLARE_QUEUE, bh__name_after_queue(self, ""), type))
        return 0;
    bh__add_string_argument(self, "x-queue-type", type);
    return 1;
}

bh_status bh__end_work_queue(bh_topology *self)
{
    const bh__draft_arguments *own = &self->work_queue;
    int is_quorum = self->strategy == BH_STRATEGY_NATIVE || self->work_queue_type == BH_QUEUE_QUORUM;
    if (is_quorum && (!bh__topology_copies(self) || !bh__has_own_argument(self, "x-delivery-limit")))
        bh__add_int_argument(self, "x-delivery-limit", DELIVERY_LIMIT);
    size_t of_strategy = last_draft(self)->argument_count;
    for (size_t i = 0; i < own->count; i++) {
        bh_bytes name = bh__store_get(&own->store, own->items[i].name);
        const bh__draft *queue = last_draft(self);
        for (size_t j = 0; j < queue->argument_count; j++) {
            if (!bh__same(name, bh__topology_text(self, self->arguments[queue->first_argument + j].name)))
                continue;
            snprintf(self->error, sizeof self->error, "the work queue's argument %s is %s", name.data,
                     j < of_strategy ? "set by the strategy itself: leave it out, or take strategy ladder"
                                     : "given twice: leave one out");
            return BH_ERR_STRATEGY;
        }
        bh__draft_argument added = own->items[i];
        added.name = bh__make_text(self, name, bh_str(""), bh_str(""));
        added.string = bh__make_text(self, bh__store_get(&own->store, added.string), bh_str(""), bh_str(""));
        add_argument(self, added);
    }
    return BH_OK;
}

int bh__topology_seal_arguments(bh_topology *self)
{
    free(self->sealed);
    self->sealed = malloc((self->argument_count + 1) * sizeof *self->sealed);
    for (size_t i = 0; self->sealed && i < self->argument_count; i++) {
        const bh__draft_argument *draft = &self->arguments[i];
        self->sealed[i] = (bh_argument){
            .name = bh__topology_text(self, draft->name),
            .type = draft->type,
            .string = bh__topology_text(self, draft->string),
            .integer = draft->number,
        };
    }
    return self->sealed != NULL;
}

size_t bh__topology_count(const bh_topology *self)
{
    return self ? self->count : 0;
}

bh_status bh_topology_declaration(const bh_topology *self, size_t index, bh_declaration *out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = (bh_declaration){.kind = BH_DECLARE_NONE};
    if (index >= bh__topology_count(self))
        return BH_ERR_ARGUMENT;
    const bh__draft *draft = &self->declarations[index];
    *out = (bh_declaration){
        .kind = draft->kind,
        .name = bh__topology_text(self, draft->name),
        .type = bh__topology_text(self, draft->type),
        .source = bh__topology_text(self, draft->source),
        .routing_key = bh__topology_text(self, draft->routing_key),
        .rung_ms = draft->rung_ms,
        .on_demand = draft->is_on_demand,
        .arguments = &self->sealed[draft->first_argument],
        .argument_count = draft->argument_count,
    };
    return BH_OK;
}
