#include "worker_internal.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct session {
    bh_worker *worker;
    const bh_topology *topology;
    int is_open; /* the channel */
    bh__report *report;
} session;

static const char *kind_of(const session *self, size_t index)
{
    return bh_topology_declaration(self->topology, index) == BH_DECLARE_EXCHANGE ? "exchange" : "queue";
}

/* A call on the channel for declarations, which is opened where it is not; on the consume link, as the broker answers
 * nothing on a connection whose publishes it blocks. */
static bh_status call(session *self, amqp_method_number_t method, void *arguments, amqp_method_number_t reply,
                      const char *what, bh__answer *out)
{
    bh__link *link = &self->worker->consume.link;
    bh_status status = BH_OK;
    if (!self->is_open)
        status = bh__worker_open_channel(self->worker, link, BH__CHANNEL_DECLARE, out);
    if (status == BH_OK)
        status = bh__worker_call(self->worker, link, BH__CHANNEL_DECLARE, method, arguments, reply, 0, what, out);
    self->is_open = status == BH_OK;
    return status;
}

static bh_status close_channel(session *self, bh_status status)
{
    bh__answer answer;
    amqp_channel_close_t close = {.reply_code = AMQP_REPLY_SUCCESS, .reply_text = amqp_empty_bytes};
    if (self->is_open && status == BH_OK)
        return bh__worker_close_channel(self->worker, &self->worker->consume.link, BH__CHANNEL_DECLARE, &answer);
    if (self->is_open)
        bh__link_send(&self->worker->consume.link, BH__CHANNEL_DECLARE, AMQP_CHANNEL_CLOSE_METHOD, &close);
    return status;
}

/* The arguments of a declaration; *entries must be freed. */
static bh_status arguments_of(const session *self, size_t index, amqp_table_entry_t **entries, amqp_table_t *out)
{
    size_t count = bh_topology_argument_count(self->topology, index);
    *entries = calloc(count ? count : 1, sizeof **entries);
    if (!*entries)
        return bh__report_set(self->report, BH_ERR_NO_MEMORY, "no memory for a declaration");
    for (size_t i = 0; i < count; i++) {
        amqp_table_entry_t *entry = &(*entries)[i];
        entry->key = bh__to_amqp(bh_topology_argument_name(self->topology, index, i));
        if (bh_topology_argument_type(self->topology, index, i) == BH_TYPE_INT64) {
            entry->value.kind = AMQP_FIELD_KIND_I64;
            entry->value.value.i64 = bh_topology_argument_int(self->topology, index, i);
        } else {
            entry->value.kind = AMQP_FIELD_KIND_UTF8;
            entry->value.value.bytes = bh__to_amqp(bh_topology_argument_string(self->topology, index, i));
        }
    }
    *out = (amqp_table_t){(int)count, *entries};
    return BH_OK;
}

static bh_status declare_queue(session *self, bh_bytes name, int passive, amqp_table_t arguments, const char *what,
                               bh__answer *out)
{
    amqp_queue_declare_t queue = {.queue = bh__to_amqp(name), .passive = passive, .durable = 1, .arguments = arguments};
    return call(self, AMQP_QUEUE_DECLARE_METHOD, &queue, AMQP_QUEUE_DECLARE_OK_METHOD, what, out);
}

static bh_status declare_exchange(session *self, bh_bytes name, bh_bytes type, int passive, amqp_table_t arguments,
                                  const char *what, bh__answer *out)
{
    amqp_exchange_declare_t exchange = {.exchange = bh__to_amqp(name),
                                        .type = bh__to_amqp(type),
                                        .passive = passive,
                                        .durable = 1,
                                        .arguments = arguments};
    return call(self, AMQP_EXCHANGE_DECLARE_METHOD, &exchange, AMQP_EXCHANGE_DECLARE_OK_METHOD, what, out);
}

static bh_status declare_binding(session *self, size_t index, amqp_table_t arguments, const char *what, bh__answer *out)
{
    amqp_bytes_t name = bh__to_amqp(bh_topology_name(self->topology, index));
    amqp_bytes_t source = bh__to_amqp(bh_topology_source(self->topology, index));
    amqp_bytes_t routing_key = bh__to_amqp(bh_topology_routing_key(self->topology, index));
    amqp_exchange_bind_t to_exchange = {
        .destination = name, .source = source, .routing_key = routing_key, .arguments = arguments};
    amqp_queue_bind_t to_queue = {
        .queue = name, .exchange = source, .routing_key = routing_key, .arguments = arguments};
    return bh__same(bh_topology_type(self->topology, index), bh_str("exchange"))
               ? call(self, AMQP_EXCHANGE_BIND_METHOD, &to_exchange, AMQP_EXCHANGE_BIND_OK_METHOD, what, out)
               : call(self, AMQP_QUEUE_BIND_METHOD, &to_queue, AMQP_QUEUE_BIND_OK_METHOD, what, out);
}

static bh_status declare(session *self, size_t index, int passive, bh__answer *out)
{
    amqp_table_entry_t *entries = NULL;
    amqp_table_t arguments = amqp_empty_table;
    bh_bytes name = bh_topology_name(self->topology, index);
    char what[600];
    snprintf(what, sizeof what, "%s \"%.*s\"", passive ? "looking for" : "declaring", (int)name.size, name.data);
    *out = (bh__answer){.code = 0};
    bh_status status = arguments_of(self, index, &entries, &arguments);
    if (status != BH_OK)
        return status;
    switch (bh_topology_declaration(self->topology, index)) {
    case BH_DECLARE_EXCHANGE:
        status = declare_exchange(self, name, bh_topology_type(self->topology, index), passive, arguments, what, out);
        break;
    case BH_DECLARE_QUEUE:
        status = declare_queue(self, name, passive, arguments, what, out);
        break;
    case BH_DECLARE_BINDING:
        status = declare_binding(self, index, arguments, what, out);
        break;
    }
    free(entries);
    return status;
}

/* RabbitMQ writes a value as 'V', as the value 'V' of type 'T', or as none. */
static bh_bytes bare(char *value)
{
    char *quote = strchr(value, '\'');
    char *end = quote ? strchr(quote + 1, '\'') : NULL;
    if (!end)
        return bh_str(value);
    *end = '\0';
    return bh_str(quote + 1);
}

/* Appends how an exchange or queue differs, from "... inequivalent arg 'A' for queue 'Q' in vhost 'V': received R but
 * current is C". The broker cuts it to 255 bytes, so that a long name can leave no room for the values. */
static void add_difference(bh__report *list, char *text)
{
    static const char before_name[] = "inequivalent arg '", before_wanted[] = ": received ",
                      before_current[] = " but current is ";
    char *name = strstr(text, before_name);
    char *name_end = name ? strchr(name + strlen(before_name), '\'') : NULL;
    char *wanted = NULL, *current = NULL;
    for (char *at = name_end; at && (at = strstr(at, before_wanted)); at++)
        wanted = at;
    current = wanted ? strstr(wanted, before_current) : NULL;
    if (!current) {
        bh__report_add(list, "exists with other arguments (%s)", text);
        return;
    }
    name += strlen(before_name);
    *name_end = *current = '\0';
    bh_bytes is = bare(current + strlen(before_current));
    bh_bytes needed = bare(wanted + strlen(before_wanted));
    bh__report_add(list, "exists with %s = %s, and %s is needed", name, is.data, needed.data);
}

static int is_of_work_queue(const session *self, bh_bytes name)
{
    bh_bytes queue = bh_topology_queue(self->topology);
    return bh__begins(name, queue.data) && (name.size == queue.size || name.data[queue.size] == '.');
}

static void add_clash(const session *self, bh__report *list, size_t index, char *text)
{
    bh_bytes name = bh_topology_name(self->topology, index);
    bh__report_add(list, "%s \"%.*s\" ", kind_of(self, index), (int)name.size, name.data);
    add_difference(list, text);
    bh__report_add(list, " (once it is empty and unused, delete it and declare again, or choose another %s)",
                   is_of_work_queue(self, name) ? "name for the work queue" : "namespace");
}

/* What a declaration that failed means to the user. */
static bh_status explain(session *self, size_t index, bh_status status, bh__answer *got)
{
    bh_bytes queue = bh_topology_queue(self->topology);
    bh_bytes name = bh_topology_name(self->topology, index);
    int is_binding = bh_topology_declaration(self->topology, index) == BH_DECLARE_BINDING;
    if (strstr(got->text, "exchange type") &&
        bh__same(bh_topology_type(self->topology, index), bh_str("x-delayed-message")))
        return bh__report_set(self->report, BH_ERR_BROKER,
                              "the broker does not know the exchange type x-delayed-message: enable the plugin "
                              "rabbitmq_delayed_message_exchange, or use the strategy ladder, which needs none");
    if (status == BH_ERR_CLASH && !is_binding) {
        bh__report_set(self->report, status, "%s", "");
        add_clash(self, self->report, index, got->text);
    } else if (status == BH_ERR_MISSING && is_binding && bh__same(name, queue)) {
        bh__report_set(self->report, status,
                       "the work queue \"%.*s\" does not exist: declare it first, or have it declared by "
                       "giving the type of the work queue",
                       (int)queue.size, queue.data);
    } else if (status == BH_ERR_ACCESS) {
        bh__report_add(self->report,
                       "; grant the permission, or import the topology's definitions and use the mode verify or "
                       "none");
    }
    return status;
}

static bh_status create(session *self, size_t index)
{
    bh__answer got;
    bh_status status = declare(self, index, 0, &got);
    return status == BH_OK ? BH_OK : explain(self, index, status, &got);
}

static session session_of(bh_worker *worker)
{
    return (session){.worker = worker, .topology = worker->topology, .report = &worker->problem};
}

/* All that is not on demand. */
static bh_status create_all(session *self)
{
    for (size_t i = 0; i < bh_topology_count(self->topology); i++) {
        bh_status status = bh_topology_on_demand(self->topology, i) ? BH_OK : create(self, i);
        if (status != BH_OK)
            return status;
    }
    return BH_OK;
}

bh_status bh__worker_declare_rung(bh_worker *self, int64_t wait_ms)
{
    session made = session_of(self);
    bh_status status = BH_OK;
    for (size_t i = 0; status == BH_OK && i < bh_topology_count(self->topology); i++)
        if (bh_topology_wait_ms(self->topology, i) == wait_ms)
            status = create(&made, i);
    return close_channel(&made, status);
}

/* What verifying found. */
typedef struct findings {
    bh__report different;
    bh__report missing;
    size_t missing_on_demand; /* rungs */
} findings;

static void add_missing(findings *found, const char *kind, bh_bytes name)
{
    bh__report_add(&found->missing, "%s%s \"%.*s\"", found->missing.size ? ", " : "", kind, (int)name.size, name.data);
}

/* Declaring what exists changes nothing, and compares its arguments. Without the permission to declare, that it
 * exists is all that can be known. */
static bh_status verify(session *self, size_t index, findings *found)
{
    bh__answer got;
    bh_status status = declare(self, index, 1, &got);
    if (status == BH_ERR_MISSING && bh_topology_on_demand(self->topology, index)) {
        found->missing_on_demand += bh_topology_declaration(self->topology, index) == BH_DECLARE_QUEUE;
        return BH_OK;
    }
    if (status == BH_ERR_MISSING) {
        add_missing(found, kind_of(self, index), bh_topology_name(self->topology, index));
        return BH_OK;
    }
    if (status != BH_OK)
        return status;
    status = declare(self, index, 0, &got);
    if (status == BH_ERR_CLASH) {
        add_clash(self, &found->different, index, got.text);
        bh__report_add(&found->different, "; ");
        return BH_OK;
    }
    return status == BH_ERR_ACCESS ? BH_OK : status;
}

static bh_status verify_all(session *self, findings *found)
{
    const bh_topology *topology = self->topology;
    bh_bytes queue = bh_topology_queue(topology);
    int has_work_queue = 0;
    for (size_t i = 0; i < bh_topology_count(topology); i++) {
        bh_declaration declaration = bh_topology_declaration(topology, i);
        has_work_queue |= declaration == BH_DECLARE_QUEUE && bh__same(bh_topology_name(topology, i), queue);
        bh_status status = declaration == BH_DECLARE_BINDING ? BH_OK : verify(self, i, found);
        if (status != BH_OK)
            return status;
    }
    if (has_work_queue)
        return BH_OK;
    bh__answer got;
    bh_status status = declare_queue(self, queue, 1, amqp_empty_table, "looking for the work queue", &got);
    if (status != BH_ERR_MISSING)
        return status;
    add_missing(found, "the work queue", queue);
    return BH_OK;
}

static bh_status report_findings(const session *self, const findings *found)
{
    int creates = found->different.size || found->missing.size; /* rungs on demand are not made beforehand */
    if (!creates && found->missing_on_demand == 0)
        return BH_OK;
    bh_status status = bh__report_set(self->report, found->different.size ? BH_ERR_CLASH : BH_ERR_MISSING, "%s",
                                      found->different.size ? found->different.text : "");
    if (found->missing.size)
        bh__report_add(self->report, "missing: %s; ", found->missing.text);
    if (found->missing_on_demand > 0)
        bh__report_add(self->report,
                       "missing: %zu rungs that a handler's request for a delay can need (a greatest request of 0 "
                       "needs none); ",
                       found->missing_on_demand);
    bh__report_add(self->report, "%simport the topology's definitions",
                   creates ? "declare with the mode create, or " : "");
    return status;
}

/* Makes nothing, and reports all that is missing or different. */
static bh_status verify_and_report(session *self)
{
    findings found = {.different = {.size = 0}};
    bh_status status = verify_all(self, &found);
    if (status == BH_OK)
        status = report_findings(self, &found);
    bh__report_free(&found.different);
    bh__report_free(&found.missing);
    return status;
}

bh_status bh__worker_find_queue(bh_worker *self)
{
    bh__answer got;
    session made = session_of(self);
    bh_status status = declare_queue(&made, bh_topology_queue(self->topology), 1, amqp_empty_table,
                                     "looking for the work queue", &got);
    return close_channel(&made, status);
}

bh_status bh__worker_declare(bh_worker *self)
{
    session made = session_of(self);
    switch (self->mode) {
    case BH_MODE_CREATE:
        return close_channel(&made, create_all(&made));
    case BH_MODE_VERIFY:
        return close_channel(&made, verify_and_report(&made));
    case BH_MODE_NONE:
        break;
    }
    return BH_OK;
}
