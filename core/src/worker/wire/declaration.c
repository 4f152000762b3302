#include "wire/declaration.h"

#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

/* The arguments of the step; false: no memory. */
static int make_table(bh__declaration *self, const bh_declaring *step, amqp_table_t *out)
{
    size_t count = bh_declaring_argument_count(step);
    self->entries = calloc(count + 1, sizeof *self->entries);
    if (!self->entries)
        return 0;
    for (size_t i = 0; i < count; i++) {
        amqp_table_entry_t *entry = &self->entries[i];
        entry->key = bh__to_amqp(bh_declaring_argument_name(step, i));
        if (bh_declaring_argument_type(step, i) == BH_TYPE_INT64) {
            entry->value.kind = AMQP_FIELD_KIND_I64;
            entry->value.value.i64 = bh_declaring_argument_int(step, i);
        } else {
            entry->value.kind = AMQP_FIELD_KIND_UTF8;
            entry->value.value.bytes = bh__to_amqp(bh_declaring_argument_string(step, i));
        }
    }
    *out = (amqp_table_t){(int)count, self->entries};
    return 1;
}

static void make_exchange(bh__declaration *self, const bh_declaring *step, amqp_table_t table)
{
    self->method = AMQP_EXCHANGE_DECLARE_METHOD;
    self->reply = AMQP_EXCHANGE_DECLARE_OK_METHOD;
    self->arguments.exchange = (amqp_exchange_declare_t){.exchange = bh__to_amqp(bh_declaring_name(step)),
                                                         .type = bh__to_amqp(bh_declaring_type(step)),
                                                         .passive = bh_declaring_passive(step),
                                                         .durable = 1,
                                                         .arguments = table};
}

static void make_queue(bh__declaration *self, const bh_declaring *step, amqp_table_t table)
{
    self->method = AMQP_QUEUE_DECLARE_METHOD;
    self->reply = AMQP_QUEUE_DECLARE_OK_METHOD;
    self->arguments.queue = (amqp_queue_declare_t){.queue = bh__to_amqp(bh_declaring_name(step)),
                                                   .passive = bh_declaring_passive(step),
                                                   .durable = 1,
                                                   .arguments = table};
}

static void make_binding(bh__declaration *self, const bh_declaring *step, amqp_table_t table)
{
    amqp_bytes_t name = bh__to_amqp(bh_declaring_name(step)), source = bh__to_amqp(bh_declaring_source(step)),
                 key = bh__to_amqp(bh_declaring_routing_key(step));
    if (bh__same(bh_declaring_type(step), bh_str("exchange"))) {
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

int bh__declaration_init(bh__declaration *self, const bh_declaring *step)
{
    amqp_table_t table;
    bh_bytes name = bh_declaring_name(step);
    if (!make_table(self, step, &table))
        return 0;
    snprintf(self->what, sizeof self->what, "declaring \"%.*s\"", (int)name.size, name.data);
    switch (bh_declaring_what(step)) {
    case BH_DECLARE_EXCHANGE:
        make_exchange(self, step, table);
        break;
    case BH_DECLARE_QUEUE:
        make_queue(self, step, table);
        break;
    case BH_DECLARE_BINDING:
        make_binding(self, step, table);
        break;
    }
    return 1;
}

void bh__declaration_free(bh__declaration *self)
{
    free(self->entries);
}
