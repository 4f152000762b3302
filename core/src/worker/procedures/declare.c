#include "procedures/runner.h"

#include <stdio.h>
#include <stdlib.h>

/* What is declared on: a channel for this alone. */
typedef struct session {
    bh__runner *runner;
    int is_open;
} session;

/* A call on the channel for declarations, which is opened where it is not; on the consume link, as the broker answers
 * nothing on a connection whose publishes it blocks. */
static bh_status call_to_declare(session *self, amqp_method_number_t method, void *arguments,
                                 amqp_method_number_t reply, const char *what, bh__answer *out)
{
    bh__link *link = &self->runner->engine.context.consume.link;
    bh_status status = BH_OK;
    *out = (bh__answer){.code = 0};
    if (!self->is_open)
        status = bh__call_open_channel(self->runner, link, BH__CHANNEL_DECLARE, out);
    if (status == BH_OK)
        status = bh__call(self->runner, link, BH__CHANNEL_DECLARE, method, arguments, reply, 0, what, out);
    self->is_open = status == BH_OK;
    return status;
}

static bh_status close_declare_channel(session *self, bh_status status)
{
    bh__answer answer;
    amqp_channel_close_t close = {.reply_code = AMQP_REPLY_SUCCESS, .reply_text = amqp_empty_bytes};
    if (self->is_open && status == BH_OK)
        return bh__call_close_channel(self->runner, &self->runner->engine.context.consume.link, BH__CHANNEL_DECLARE,
                                      &answer);
    if (self->is_open)
        bh__link_send(&self->runner->engine.context.consume.link, BH__CHANNEL_DECLARE, AMQP_CHANNEL_CLOSE_METHOD,
                      &close);
    return status;
}

/* The arguments of the step; the entries must be freed. NULL: no memory. */
static amqp_table_entry_t *arguments_of(const bh_declaring *step, amqp_table_t *out)
{
    size_t count = bh_declaring_argument_count(step);
    amqp_table_entry_t *entries = calloc(count + 1, sizeof *entries);
    *out = (amqp_table_t){entries ? (int)count : 0, entries};
    for (size_t i = 0; entries && i < count; i++) {
        entries[i].key = bh__to_amqp(bh_declaring_argument_name(step, i));
        if (bh_declaring_argument_type(step, i) == BH_TYPE_INT64) {
            entries[i].value.kind = AMQP_FIELD_KIND_I64;
            entries[i].value.value.i64 = bh_declaring_argument_int(step, i);
        } else {
            entries[i].value.kind = AMQP_FIELD_KIND_UTF8;
            entries[i].value.value.bytes = bh__to_amqp(bh_declaring_argument_string(step, i));
        }
    }
    return entries;
}

static bh_status declare_queue(session *self, bh_bytes name, int passive, amqp_table_t arguments, const char *what,
                               bh__answer *out)
{
    amqp_queue_declare_t queue = {.queue = bh__to_amqp(name), .passive = passive, .durable = 1, .arguments = arguments};
    return call_to_declare(self, AMQP_QUEUE_DECLARE_METHOD, &queue, AMQP_QUEUE_DECLARE_OK_METHOD, what, out);
}

static bh_status declare_exchange(session *self, const bh_declaring *step, amqp_table_t arguments, const char *what,
                                  bh__answer *out)
{
    amqp_exchange_declare_t exchange = {.exchange = bh__to_amqp(bh_declaring_name(step)),
                                        .type = bh__to_amqp(bh_declaring_type(step)),
                                        .passive = bh_declaring_passive(step),
                                        .durable = 1,
                                        .arguments = arguments};
    return call_to_declare(self, AMQP_EXCHANGE_DECLARE_METHOD, &exchange, AMQP_EXCHANGE_DECLARE_OK_METHOD, what, out);
}

static bh_status declare_binding(session *self, const bh_declaring *step, amqp_table_t arguments, const char *what,
                                 bh__answer *out)
{
    amqp_bytes_t name = bh__to_amqp(bh_declaring_name(step));
    amqp_bytes_t source = bh__to_amqp(bh_declaring_source(step));
    amqp_bytes_t routing_key = bh__to_amqp(bh_declaring_routing_key(step));
    amqp_exchange_bind_t to_exchange = {
        .destination = name, .source = source, .routing_key = routing_key, .arguments = arguments};
    amqp_queue_bind_t to_queue = {
        .queue = name, .exchange = source, .routing_key = routing_key, .arguments = arguments};
    return bh__same(bh_declaring_type(step), bh_str("exchange"))
               ? call_to_declare(self, AMQP_EXCHANGE_BIND_METHOD, &to_exchange, AMQP_EXCHANGE_BIND_OK_METHOD, what, out)
               : call_to_declare(self, AMQP_QUEUE_BIND_METHOD, &to_queue, AMQP_QUEUE_BIND_OK_METHOD, what, out);
}

static bh_status take_step(session *self, const bh_declaring *step, bh__answer *out)
{
    amqp_table_t arguments;
    amqp_table_entry_t *entries = arguments_of(step, &arguments);
    bh_bytes name = bh_declaring_name(step);
    bh_status status = BH_ERR_NO_MEMORY;
    char what[600];
    if (!entries)
        return bh__report_set(&self->runner->problem, status, "no memory for a declaration");
    snprintf(what, sizeof what, "declaring \"%.*s\"", (int)name.size, name.data);
    switch (bh_declaring_what(step)) {
    case BH_DECLARE_EXCHANGE:
        status = declare_exchange(self, step, arguments, what, out);
        break;
    case BH_DECLARE_QUEUE:
        status = declare_queue(self, name, bh_declaring_passive(step), arguments, what, out);
        break;
    case BH_DECLARE_BINDING:
        status = declare_binding(self, step, arguments, what, out);
        break;
    }
    free(entries);
    return status;
}

/* Carries out all steps. A connection that the broker closed over one, as over a type of exchange that it does not know,
 * is a refusal too. */
static bh_status take_steps(session *self)
{
    bh_declaring *steps = self->runner->declaring;
    const bh__link *link = &self->runner->engine.context.consume.link;
    while (bh_declaring_next(steps)) {
        bh__answer got = {.code = 0};
        bh_status status = take_step(self, steps, &got);
        int code = got.code ? got.code : link->close_code;
        if (status == BH_OK)
            continue;
        if (!code)
            return status;
        bh_declaring_refuse(steps, code, bh_str(got.text));
        if (!got.code && bh_declaring_status(steps) != BH_ERR_BROKER)
            return status;
    }
    bh_bytes error = bh_declaring_error(steps);
    return bh__report_set(&self->runner->problem, bh_declaring_status(steps), "%.*s", (int)error.size, error.data);
}

static bh_status declare(bh__runner *self, bh_mode mode, int64_t rung_ms)
{
    session made = {.runner = self};
    bh_status status = bh_declaring_begin(self->declaring, mode, rung_ms);
    if (status == BH_OK)
        status = take_steps(&made);
    return close_declare_channel(&made, status);
}

bh_status bh__declare(bh__runner *self)
{
    return declare(self, (bh_mode)self->engine.context.settings->mode, 0);
}

bh_status bh__declare_rung(bh__runner *self, int64_t wait_ms)
{
    return declare(self, BH_MODE_CREATE, wait_ms);
}

bh_status bh__find_queue(bh__runner *self)
{
    bh__answer got;
    session made = {.runner = self};
    bh_status status = declare_queue(&made, bh_topology_queue(self->engine.context.settings->topology), 1,
                                     amqp_empty_table, "looking for the work queue", &got);
    return close_declare_channel(&made, status);
}
