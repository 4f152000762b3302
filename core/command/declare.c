#include "declare.h"

#include "memory.h"
#include "output.h"

#include <stdio.h>

enum { MOST_ARGUMENTS = 64 };

static bh_status declare_queue(connection *broker, const bh_declaring *step, amqp_table_t arguments, const char *what)
{
    amqp_queue_declare_t queue = {.queue = bh__to_amqp(bh_declaring_name(step)),
                                  .passive = bh_declaring_passive(step),
                                  .durable = 1,
                                  .arguments = arguments};
    return connection_call(broker, CHANNEL_CALL, AMQP_QUEUE_DECLARE_METHOD, &queue, AMQP_QUEUE_DECLARE_OK_METHOD, 0,
                           what);
}

static bh_status declare_exchange(connection *broker, const bh_declaring *step, amqp_table_t arguments,
                                  const char *what)
{
    amqp_exchange_declare_t exchange = {.exchange = bh__to_amqp(bh_declaring_name(step)),
                                        .type = bh__to_amqp(bh_declaring_type(step)),
                                        .passive = bh_declaring_passive(step),
                                        .durable = 1,
                                        .arguments = arguments};
    return connection_call(broker, CHANNEL_CALL, AMQP_EXCHANGE_DECLARE_METHOD, &exchange,
                           AMQP_EXCHANGE_DECLARE_OK_METHOD, 0, what);
}

static bh_status declare_binding(connection *broker, const bh_declaring *step, amqp_table_t arguments, const char *what)
{
    amqp_bytes_t name = bh__to_amqp(bh_declaring_name(step)), source = bh__to_amqp(bh_declaring_source(step)),
                 key = bh__to_amqp(bh_declaring_routing_key(step));
    amqp_exchange_bind_t exchange = {.destination = name, .source = source, .routing_key = key, .arguments = arguments};
    amqp_queue_bind_t queue = {.queue = name, .exchange = source, .routing_key = key, .arguments = arguments};
    return bh__same(bh_declaring_type(step), bh_str("exchange"))
               ? connection_call(broker, CHANNEL_CALL, AMQP_EXCHANGE_BIND_METHOD, &exchange,
                                 AMQP_EXCHANGE_BIND_OK_METHOD, 0, what)
               : connection_call(broker, CHANNEL_CALL, AMQP_QUEUE_BIND_METHOD, &queue, AMQP_QUEUE_BIND_OK_METHOD, 0,
                                 what);
}

static bh_status take_step(connection *broker, const bh_declaring *step)
{
    amqp_table_entry_t entries[MOST_ARGUMENTS];
    size_t count = bh_declaring_argument_count(step);
    char what[600];
    count = count < MOST_ARGUMENTS ? count : MOST_ARGUMENTS;
    for (size_t i = 0; i < count; i++) {
        entries[i] = (amqp_table_entry_t){.key = bh__to_amqp(bh_declaring_argument_name(step, i)),
                                          .value = {.kind = AMQP_FIELD_KIND_I64}};
        entries[i].value.value.i64 = bh_declaring_argument_int(step, i);
        if (bh_declaring_argument_type(step, i) == BH_TYPE_STRING) {
            entries[i].value.kind = AMQP_FIELD_KIND_UTF8;
            entries[i].value.value.bytes = bh__to_amqp(bh_declaring_argument_string(step, i));
        }
    }
    amqp_table_t arguments = {(int)count, entries};
    snprintf(what, sizeof what, "declaring \"%s\"", bh_declaring_name(step).data);
    switch (bh_declaring_what(step)) {
    case BH_DECLARE_EXCHANGE:
        return declare_exchange(broker, step, arguments, what);
    case BH_DECLARE_QUEUE:
        return declare_queue(broker, step, arguments, what);
    case BH_DECLARE_BINDING:
        break;
    }
    return declare_binding(broker, step, arguments, what);
}

static bh_status take_steps(connection *broker, bh_declaring *steps)
{
    bh_status opened = connection_open_channel(broker, CHANNEL_CALL);
    while (opened == BH_OK && bh_declaring_next(steps)) {
        bh_status status = take_step(broker, steps);
        if (status == BH_OK)
            continue;
        if (!broker->code)
            return status;
        bh_declaring_refuse(steps, broker->code, bh_str(broker->text));
        if (bh__link_is_broken(&broker->link))
            return bh_declaring_status(steps) == BH_ERR_BROKER ? BH_OK : status;
        opened = connection_open_channel(broker, CHANNEL_CALL);
    }
    return opened == BH_OK ? connection_close_channel(broker, CHANNEL_CALL) : opened;
}

bh_status declare_topology(connection *broker, bh_topology *topology, bh_mode mode, bh__report *report)
{
    bh_declaring *steps = NULL;
    bh_status status = bh_topology_check_broker(topology, bh_str(broker->link.product), bh_str(broker->link.version));
    if (status != BH_OK)
        return bh__report_set(report, status, "%s", bh_topology_error(topology).data);
    if (bh_declaring_new(&steps, topology, BH_DIALECT_C) != BH_OK || bh_declaring_begin(steps, mode, 0) != BH_OK)
        must(NULL);
    status = take_steps(broker, steps);
    if (status == BH_OK)
        status = bh__report_set(report, bh_declaring_status(steps), "%s", bh_declaring_error(steps).data);
    else
        bh__report_set(report, status, "%s", bh__report_text(&broker->problem).data);
    bh_declaring_free(steps);
    return status;
}
