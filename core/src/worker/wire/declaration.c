#include "worker/wire/declaration.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

/* Makes the table of the step's arguments. Returns 0 if memory runs out. */
static int make_table(bh__declaration *self, const bh_declaration *step, amqp_table_t *out)
{
    size_t count = step->argument_count;
    self->entries = calloc(count + 1, sizeof *self->entries);
    if (!self->entries)
        return 0;
    for (size_t i = 0; i < count; i++) {
        amqp_table_entry_t *entry = &self->entries[i];
        entry->key = bh__to_amqp(step->arguments[i].name);
        if (step->arguments[i].type == BH_TYPE_INT64) {
            entry->value.kind = AMQP_FIELD_KIND_I64;
            entry->value.value.i64 = step->arguments[i].integer;
        } else {
            entry->value.kind = AMQP_FIELD_KIND_UTF8;
            entry->value.value.bytes = bh__to_amqp(step->arguments[i].string);
        }
    }
    *out = (amqp_table_t){(int)count, self->entries};
    return 1;
}

static void make_exchange(bh__declaration *self, const bh_declaration *step, amqp_table_t table)
{
    self->method = AMQP_EXCHANGE_DECLARE_METHOD;
    self->reply = AMQP_EXCHANGE_DECLARE_OK_METHOD;
    self->arguments.exchange = (amqp_exchange_declare_t){.exchange = bh__to_amqp(step->name),
                                                         .type = bh__to_amqp(step->type),
                                                         .passive = step->passive,
                                                         .durable = 1,
                                                         .arguments = table};
}

static void make_queue(bh__declaration *self, const bh_declaration *step, amqp_table_t table)
{
    self->method = AMQP_QUEUE_DECLARE_METHOD;
    self->reply = AMQP_QUEUE_DECLARE_OK_METHOD;
    self->arguments.queue = (amqp_queue_declare_t){
        .queue = bh__to_amqp(step->name), .passive = step->passive, .durable = 1, .arguments = table};
}

static void make_unbinding(bh__declaration *self, const bh_declaration *step, amqp_table_t table)
{
    self->method = AMQP_QUEUE_UNBIND_METHOD;
    self->reply = AMQP_QUEUE_UNBIND_OK_METHOD;
    self->arguments.queue_unbinding = (amqp_queue_unbind_t){.queue = bh__to_amqp(step->name),
                                                            .exchange = bh__to_amqp(step->source),
                                                            .routing_key = bh__to_amqp(step->routing_key),
                                                            .arguments = table};
}

static void make_binding(bh__declaration *self, const bh_declaration *step, amqp_table_t table)
{
    amqp_bytes_t name = bh__to_amqp(step->name), source = bh__to_amqp(step->source),
                 key = bh__to_amqp(step->routing_key);
    if (bh__same(step->type, bh_str("exchange"))) {
        self->method = AMQP_EXCHANGE_BIND_METHOD;
        self->reply = AMQP_EXCHANGE_BIND_OK_METHOD;
        self->arguments.exchange_binding =
            (amqp_exchange_bind_t){.destination = name, .source = source, .routing_key = key, .arguments = table};
    } else {
        self->method = AMQP_QUEUE_BIND_METHOD;
        self->reply = AMQP_QUEUE_BIND_OK_METHOD;
        self->arguments.queue_binding =
            (amqp_queue_bind_t){.queue = name, .exchange = source, .routing_key = key, .arguments = table};
    }
}

int bh__declaration_init(bh__declaration *self, const bh_declaration *step)
{
    amqp_table_t table;
    bh_bytes name = step->name;
    if (!make_table(self, step, &table))
        return 0;
    snprintf(self->what, sizeof self->what, "declaring \"%.*s\"", (int)name.size, name.data);
    switch (step->kind) {
    case BH_DECLARE_NONE:
        break;
    case BH_DECLARE_EXCHANGE:
        make_exchange(self, step, table);
        break;
    case BH_DECLARE_QUEUE:
        make_queue(self, step, table);
        break;
    case BH_DECLARE_BINDING:
        if (step->unbind)
            make_unbinding(self, step, table);
        else
            make_binding(self, step, table);
        break;
    }
    return 1;
}

void bh__declaration_free(bh__declaration *self)
{
    free(self->entries);
}
