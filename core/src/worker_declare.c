#define _DEFAULT_SOURCE

#include "worker_declare.h"

#include "memory.h"
#include "worker_codec.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHANNEL = 2, LONGEST_REPLY_TEXT = 255 };

/* What the broker answered to a declaration, beside the status. */
typedef struct answer {
    int code;                          /* reply code; 0: it did not object */
    char text[LONGEST_REPLY_TEXT + 1]; /* reply text */
} answer;

typedef struct session {
    bh__connection *connection;
    const bh_topology *topology;
    int is_open; /* the channel */
    bh__report *report;
} session;

static const char *kind_of(const session *self, size_t index)
{
    return bh_topology_declaration(self->topology, index) == BH_DECLARE_EXCHANGE ? "exchange" : "queue";
}

static bh_status open_channel(session *self)
{
    if (self->is_open)
        return BH_OK;
    amqp_channel_open(self->connection->state, CHANNEL);
    bh_status status = bh__connection_reply(self->connection, CHANNEL, amqp_get_rpc_reply(self->connection->state),
                                            "opening a channel", NULL, self->report);
    self->is_open = status == BH_OK;
    return status;
}

static void close_channel(session *self)
{
    if (self->is_open && bh__connection_is_open(self->connection)) {
        amqp_rpc_reply_t reply = amqp_channel_close(self->connection->state, CHANNEL, AMQP_REPLY_SUCCESS);
        if (reply.reply_type != AMQP_RESPONSE_NORMAL)
            self->connection->is_broken = 1;
    }
    self->is_open = 0;
}

/* Reads the answer to the last method of the channel. */
static bh_status answered(session *self, const char *what, answer *out)
{
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(self->connection->state);
    out->text[0] = '\0';
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION) {
        amqp_bytes_t text = reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD
                                ? ((amqp_channel_close_t *)reply.reply.decoded)->reply_text
                                : ((amqp_connection_close_t *)reply.reply.decoded)->reply_text;
        snprintf(out->text, sizeof out->text, "%.*s", (int)text.len, text.len ? (const char *)text.bytes : "");
    }
    bh_status status = bh__connection_reply(self->connection, CHANNEL, reply, what, &out->code, self->report);
    if (status != BH_OK)
        self->is_open = 0;
    amqp_maybe_release_buffers_on_channel(self->connection->state, CHANNEL);
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

static bh_status check_queue(session *self, bh_bytes name, answer *out)
{
    bh_status status = open_channel(self);
    if (status != BH_OK)
        return status;
    amqp_queue_declare(self->connection->state, CHANNEL, bh__to_amqp(name), 1, 1, 0, 0, amqp_empty_table);
    return answered(self, "looking for a queue", out);
}

static bh_status declare(session *self, size_t index, int passive, answer *out)
{
    amqp_table_entry_t *entries = NULL;
    amqp_table_t arguments = amqp_empty_table;
    *out = (answer){.code = 0};
    bh_status status = open_channel(self);
    if (status == BH_OK)
        status = arguments_of(self, index, &entries, &arguments);
    if (status != BH_OK)
        return status;
    const bh_topology *topology = self->topology;
    amqp_connection_state_t state = self->connection->state;
    amqp_bytes_t name = bh__to_amqp(bh_topology_name(topology, index));
    amqp_bytes_t source = bh__to_amqp(bh_topology_source(topology, index));
    amqp_bytes_t routing_key = bh__to_amqp(bh_topology_routing_key(topology, index));
    bh_bytes type = bh_topology_type(topology, index);
    switch (bh_topology_declaration(topology, index)) {
    case BH_DECLARE_EXCHANGE:
        amqp_exchange_declare(state, CHANNEL, name, bh__to_amqp(type), passive, 1, 0, 0, arguments);
        break;
    case BH_DECLARE_QUEUE:
        amqp_queue_declare(state, CHANNEL, name, passive, 1, 0, 0, arguments);
        break;
    case BH_DECLARE_BINDING:
        if (bh__same(type, bh_str("exchange")))
            amqp_exchange_bind(state, CHANNEL, name, source, routing_key, arguments);
        else
            amqp_queue_bind(state, CHANNEL, name, source, routing_key, arguments);
        break;
    }
    char what[600];
    snprintf(what, sizeof what, "%s \"%.*s\"", passive ? "looking for" : "declaring", (int)name.len,
             (const char *)name.bytes);
    status = answered(self, what, out);
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
                   is_of_work_queue(self, name) ? "name for the work queue"
                                                : "namespace with bh_topology_set_namespace");
}

/* What a declaration that failed means to the user. */
static bh_status explain(session *self, size_t index, bh_status status, answer *got)
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
                       "the work queue \"%.*s\" does not exist: declare it first, or have it declared with "
                       "bh_topology_set_work_queue_type",
                       (int)queue.size, queue.data);
    } else if (status == BH_ERR_ACCESS) {
        bh__report_add(self->report,
                       "; grant the permission, or import the topology's definitions (bh_topology_export) and "
                       "use BH_MODE_VERIFY or BH_MODE_NONE");
    }
    return status;
}

static bh_status create(session *self, size_t index)
{
    answer got;
    bh_status status = declare(self, index, 0, &got);
    return status == BH_OK ? BH_OK : explain(self, index, status, &got);
}

bh_status bh__declare_create(bh__connection *connection, const bh_topology *topology, bh__report *report)
{
    session self = {.connection = connection, .topology = topology, .report = report};
    bh_status status = BH_OK;
    for (size_t i = 0; status == BH_OK && i < bh_topology_count(topology); i++)
        if (!bh_topology_on_demand(topology, i))
            status = create(&self, i);
    close_channel(&self);
    return status;
}

bh_status bh__declare_rung(bh__connection *connection, const bh_topology *topology, int64_t wait_ms, bh__report *report)
{
    session self = {.connection = connection, .topology = topology, .report = report};
    bh_status status = BH_OK;
    for (size_t i = 0; status == BH_OK && i < bh_topology_count(topology); i++)
        if (bh_topology_wait_ms(topology, i) == wait_ms)
            status = create(&self, i);
    close_channel(&self);
    return status;
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
    answer got;
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
    if (found->missing_on_demand > 0)
        bh__report_add(&found->missing,
                       "%s%zu rungs that a handler's request for a delay can need (max_retry_after_ms 0 needs none)",
                       found->missing.size ? ", " : "", found->missing_on_demand);
    if (has_work_queue)
        return BH_OK;
    answer got;
    bh_status status = check_queue(self, queue, &got);
    if (status != BH_ERR_MISSING)
        return status;
    add_missing(found, "the work queue", queue);
    return BH_OK;
}

bh_status bh__declare_verify(bh__connection *connection, const bh_topology *topology, bh__report *report)
{
    session self = {.connection = connection, .topology = topology, .report = report};
    findings found = {.different = {.size = 0}};
    bh_status status = verify_all(&self, &found);
    close_channel(&self);
    if (status == BH_OK && (found.different.size || found.missing.size)) {
        status = bh__report_set(report, found.different.size ? BH_ERR_CLASH : BH_ERR_MISSING, "%s",
                                found.different.size ? found.different.text : "");
        if (found.missing.size)
            bh__report_add(report, "missing: %s; ", found.missing.text);
        bh__report_add(report,
                       "declare with BH_MODE_CREATE, or import the topology's definitions (bh_topology_export)");
    }
    bh__report_free(&found.different);
    bh__report_free(&found.missing);
    return status;
}
