#include "procedures/runner.h"

#include "topology_internal.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct session {
    bh__runner *runner;
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
static bh_status call_to_declare(session *self, amqp_method_number_t method, void *arguments,
                                 amqp_method_number_t reply, const char *what, bh__answer *out)
{
    bh__link *link = &self->runner->engine.context.consume.link;
    bh_status status = BH_OK;
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

/* What a declaration is sent for: to see whether something of that name exists; to compare it with what exists; to make
 * it where it is missing. */
typedef enum purpose { TO_FIND, TO_COMPARE, TO_MAKE } purpose;

/*
 * What keeps a declaration that is to compare from making anything, also where the queue or exchange is deleted just
 * before it arrives: an argument that the broker looks at only where it would have to make it, and then refuses (406).
 * For a queue that is one that its type does not know: of what exists the broker compares only those that the type
 * knows. For an exchange it is an alternate-exchange that is no string. That is compared too, always differs, and the
 * broker then tells the present one. Seen on RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
 */
static const char *blocking_argument(const session *self, size_t index)
{
    if (bh_topology_declaration(self->topology, index) == BH_DECLARE_EXCHANGE)
        return "alternate-exchange";
    int is_quorum = bh__same(bh_topology_type(self->topology, index), bh_str("quorum"));
    return is_quorum ? "x-max-priority" : "x-delivery-limit";
}

/* The arguments of a declaration; *entries must be freed. */
static bh_status arguments_of(const session *self, size_t index, purpose to, amqp_table_entry_t **entries,
                              amqp_table_t *out)
{
    size_t count = bh_topology_argument_count(self->topology, index);
    *out = (amqp_table_t){0, NULL};
    *entries = calloc(count + 1, sizeof **entries);
    if (!*entries)
        return bh__report_set(self->report, BH_ERR_NO_MEMORY, "no memory for a declaration");
    out->entries = *entries;
    bh_bytes blocking = bh_str(to == TO_COMPARE ? blocking_argument(self, index) : "");
    if (to == TO_COMPARE) {
        amqp_table_entry_t *entry = &out->entries[out->num_entries++];
        entry->key = bh__to_amqp(blocking);
        entry->value.kind = AMQP_FIELD_KIND_I64;
        entry->value.value.i64 = 1;
    }
    for (size_t i = 0; i < count; i++) {
        bh_bytes name = bh_topology_argument_name(self->topology, index, i);
        if (to == TO_COMPARE && bh__same(name, blocking))
            continue;
        amqp_table_entry_t *entry = &out->entries[out->num_entries++];
        entry->key = bh__to_amqp(name);
        if (bh_topology_argument_type(self->topology, index, i) == BH_TYPE_INT64) {
            entry->value.kind = AMQP_FIELD_KIND_I64;
            entry->value.value.i64 = bh_topology_argument_int(self->topology, index, i);
        } else {
            entry->value.kind = AMQP_FIELD_KIND_UTF8;
            entry->value.value.bytes = bh__to_amqp(bh_topology_argument_string(self->topology, index, i));
        }
    }
    return BH_OK;
}

static bh_status declare_queue(session *self, bh_bytes name, int passive, amqp_table_t arguments, const char *what,
                               bh__answer *out)
{
    amqp_queue_declare_t queue = {.queue = bh__to_amqp(name), .passive = passive, .durable = 1, .arguments = arguments};
    return call_to_declare(self, AMQP_QUEUE_DECLARE_METHOD, &queue, AMQP_QUEUE_DECLARE_OK_METHOD, what, out);
}

static bh_status declare_exchange(session *self, bh_bytes name, bh_bytes type, int passive, amqp_table_t arguments,
                                  const char *what, bh__answer *out)
{
    amqp_exchange_declare_t exchange = {.exchange = bh__to_amqp(name),
                                        .type = bh__to_amqp(type),
                                        .passive = passive,
                                        .durable = 1,
                                        .arguments = arguments};
    return call_to_declare(self, AMQP_EXCHANGE_DECLARE_METHOD, &exchange, AMQP_EXCHANGE_DECLARE_OK_METHOD, what, out);
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
               ? call_to_declare(self, AMQP_EXCHANGE_BIND_METHOD, &to_exchange, AMQP_EXCHANGE_BIND_OK_METHOD, what, out)
               : call_to_declare(self, AMQP_QUEUE_BIND_METHOD, &to_queue, AMQP_QUEUE_BIND_OK_METHOD, what, out);
}

static bh_status send_declaration(session *self, size_t index, purpose to, bh__answer *out)
{
    static const char *const words[] = {"looking for", "comparing", "declaring"};
    amqp_table_entry_t *entries = NULL;
    amqp_table_t arguments = amqp_empty_table;
    bh_bytes name = bh_topology_name(self->topology, index);
    int passive = to == TO_FIND;
    char what[600];
    snprintf(what, sizeof what, "%s \"%.*s\"", words[to], (int)name.size, name.data);
    *out = (bh__answer){.code = 0};
    bh_status status = arguments_of(self, index, to, &entries, &arguments);
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

/* -------------------------------------------------------------------------------------------------- differences */

/*
 * How an exchange or queue differs, from the broker's words: "PRECONDITION_FAILED - inequivalent arg 'A' for queue 'Q'
 * in vhost 'V': received R but current is C". It writes a value as 'V', as "the value 'V' of type 'T'", or as none. It
 * cuts its words to 255 bytes, so that long names can leave no room for the values.
 */
typedef struct difference {
    bh_bytes argument; /* "": the words are others */
    bh_bytes received; /* "": cut off, as the next one */
    bh_bytes current;
    int is_cut; /* its end is missing */
} difference;

enum { LONGEST_WORDS = 255 };

static bh_bytes between(const char *begin, const char *end)
{
    return (bh_bytes){begin, (size_t)(end - begin)};
}

static difference read_difference(const char *text)
{
    static const char before_argument[] = "inequivalent arg '", before_received[] = ": received ",
                      before_current[] = " but current is ", cut[] = "...";
    size_t size = strlen(text);
    difference found = {.argument = bh_str(""), .received = bh_str(""), .current = bh_str("")};
    found.is_cut = size >= LONGEST_WORDS && strcmp(text + size - strlen(cut), cut) == 0;
    const char *end = text + size - (found.is_cut ? strlen(cut) : 0);
    const char *argument = strstr(text, before_argument);
    const char *argument_end = argument ? strchr(argument + strlen(before_argument), '\'') : NULL;
    if (!argument_end)
        return found;
    found.argument = between(argument + strlen(before_argument), argument_end);
    const char *received = NULL; /* the last one: a name may hold anything */
    for (const char *at = argument_end; (at = strstr(at, before_received)); at++)
        received = at + strlen(before_received);
    const char *current = received ? strstr(received, before_current) : NULL;
    if (current && current + strlen(before_current) <= end) {
        found.received = between(received, current);
        found.current = between(current + strlen(before_current), end);
    }
    return found;
}

/* The value in the broker's words for it. */
static bh_bytes bare_value(bh_bytes words)
{
    const char *end = words.data + words.size;
    const char *quote = words.size ? memchr(words.data, '\'', words.size) : NULL;
    const char *second = quote ? memchr(quote + 1, '\'', (size_t)(end - quote - 1)) : NULL;
    return second ? between(quote + 1, second) : words;
}

static void add_difference(bh__report *list, const difference *found, bh_bytes needed, const char *text)
{
    bh_bytes current = bare_value(found->current);
    if (found->current.size == 0)
        bh__report_add(list, "exists with other arguments (%s)", text);
    else
        bh__report_add(list, "exists with %.*s = %.*s, and %.*s is needed", (int)found->argument.size,
                       found->argument.data, (int)current.size, current.data, (int)needed.size, needed.data);
}

/* Whether these, which may be cut, are the broker's words for a string. */
static int says(const difference *found, const char *before, bh_bytes value, const char *behind)
{
    char words[512];
    int size = snprintf(words, sizeof words, "%s%.*s%s", before, (int)value.size, value.data, behind);
    bh_bytes all = {words, size < (int)sizeof words ? (size_t)size : sizeof words - 1};
    if (found->is_cut && found->current.size < all.size)
        all.size = found->current.size;
    return bh__same(found->current, all);
}

/* The exchange's alternate exchange, as the topology has it; "" for none. */
static bh_bytes alternate_of(const session *self, size_t index)
{
    for (size_t i = 0; i < bh_topology_argument_count(self->topology, index); i++)
        if (bh__same(bh_topology_argument_name(self->topology, index, i), bh_str("alternate-exchange")))
            return bh_topology_argument_string(self->topology, index, i);
    return bh_str("");
}

/* Whether the exchange has the alternate that the topology wants, as far as the broker's words go. */
static int has_its_alternate(const session *self, size_t index, const difference *found)
{
    bh_bytes wanted = alternate_of(self, index);
    if (wanted.size == 0)
        return says(found, "none", wanted, "");
    return says(found, "'", wanted, "'") || says(found, "the value '", wanted, "' of type 'longstr'");
}

static int is_of_work_queue(const session *self, bh_bytes name)
{
    bh_bytes queue = bh_topology_queue(self->topology);
    return bh__begins(name, queue.data) && (name.size == queue.size || name.data[queue.size] == '.');
}

static void add_clash(const session *self, bh__report *list, size_t index, const difference *found, bh_bytes needed,
                      const char *text)
{
    bh_bytes name = bh_topology_name(self->topology, index);
    bh__report_add(list, "%s \"%.*s\" ", kind_of(self, index), (int)name.size, name.data);
    add_difference(list, found, needed, text);
    bh__report_add(list, " (once it is empty and unused, delete it and declare again, or choose another %s)",
                   is_of_work_queue(self, name) ? "name for the work queue" : "namespace");
}

/* What a declaration that failed means to the user. */
static bh_status explain_refusal(session *self, size_t index, bh_status status, bh__answer *got)
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
        difference found = read_difference(got->text);
        add_clash(self, self->report, index, &found, bare_value(found.received), got->text);
    } else if (status == BH_ERR_MISSING && is_binding && bh__same(name, queue)) {
        bh__report_set(self->report, status,
                       "the work queue \"%.*s\" does not exist: declare it first, or give its type as work_queue "
                       "(quorum or classic), and it is declared too",
                       (int)queue.size, queue.data);
    } else if (status == BH_ERR_ACCESS) {
        bh__report_add(self->report,
                       "; grant the permission, or import the topology's definitions and use the mode verify or "
                       "none");
    }
    return status;
}

static bh_status create_declared(session *self, size_t index)
{
    bh__answer got;
    bh_status status = send_declaration(self, index, TO_MAKE, &got);
    return status == BH_OK ? BH_OK : explain_refusal(self, index, status, &got);
}

static session session_of(bh__runner *runner)
{
    return (session){
        .runner = runner, .topology = runner->engine.context.settings->topology, .report = &runner->problem};
}

/* All that is not on demand. */
static bh_status create_all(session *self)
{
    for (size_t i = 0; i < bh_topology_count(self->topology); i++) {
        bh_status status = bh_topology_on_demand(self->topology, i) ? BH_OK : create_declared(self, i);
        if (status != BH_OK)
            return status;
    }
    return BH_OK;
}

bh_status bh__declare_rung(bh__runner *self, int64_t wait_ms)
{
    session made = session_of(self);
    bh_status status = BH_OK;
    for (size_t i = 0; status == BH_OK && i < bh_topology_count(made.topology); i++)
        if (bh_topology_wait_ms(made.topology, i) == wait_ms)
            status = create_declared(&made, i);
    return close_declare_channel(&made, status);
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

static void add_absent(const session *self, size_t index, findings *found)
{
    if (bh_topology_on_demand(self->topology, index))
        found->missing_on_demand += bh_topology_declaration(self->topology, index) == BH_DECLARE_QUEUE;
    else
        add_missing(found, kind_of(self, index), bh_topology_name(self->topology, index));
}

/* Compares what exists with the topology, and makes nothing. Without the permission to declare, that it exists is all
 * that can be known. */
static bh_status compare_declared(session *self, size_t index, findings *found)
{
    bh__answer got;
    bh_status status = send_declaration(self, index, TO_COMPARE, &got);
    if (status != BH_ERR_CLASH)
        return status == BH_ERR_ACCESS ? BH_OK : status;
    difference differs = read_difference(got.text);
    if (got.code == AMQP_PRECONDITION_FAILED && differs.argument.size == 0) {
        add_absent(self, index, found); /* the broker would have had to make it: it was deleted since it was found */
        return BH_OK;
    }
    bh_bytes needed = bare_value(differs.received);
    if (bh__same(differs.argument, bh_str("alternate-exchange"))) {
        if (differs.current.size == 0 || has_its_alternate(self, index, &differs))
            return BH_OK;
        needed = alternate_of(self, index).size ? alternate_of(self, index) : bh_str("none");
    } else if (bh__same(differs.argument, bh_str(blocking_argument(self, index)))) {
        /* The queue's type knows the argument, so that it is the other one; the broker names what it compared first. */
        needed = bh_topology_type(self->topology, index);
        differs.argument = bh_str("x-queue-type");
        differs.current = bh_str(bh__same(needed, bh_str("quorum")) ? "classic" : "quorum");
    }
    add_clash(self, &found->different, index, &differs, needed, got.text);
    bh__report_add(&found->different, "; ");
    return BH_OK;
}

/* Looks first: one that is missing is refused by a passive declaration with less noise in the broker's log. */
static bh_status verify_declared(session *self, size_t index, findings *found)
{
    bh__answer got;
    bh_status status = send_declaration(self, index, TO_FIND, &got);
    if (status == BH_OK)
        return compare_declared(self, index, found);
    if (status != BH_ERR_MISSING)
        return status;
    add_absent(self, index, found);
    return BH_OK;
}

static bh_status verify_all(session *self, findings *found)
{
    const bh_topology *topology = self->topology;
    bh_bytes queue = bh_topology_queue(topology);
    int has_work_queue = 0;
    for (size_t i = 0; i < bh_topology_count(topology); i++) {
        bh_declaration declaration = bh_topology_declaration(topology, i);
        has_work_queue |= declaration == BH_DECLARE_QUEUE && bh__same(bh_topology_name(topology, i), queue);
        bh_status status = declaration == BH_DECLARE_BINDING ? BH_OK : verify_declared(self, i, found);
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

bh_status bh__find_queue(bh__runner *self)
{
    bh__answer got;
    session made = session_of(self);
    bh_status status =
        declare_queue(&made, bh_topology_queue(made.topology), 1, amqp_empty_table, "looking for the work queue", &got);
    return close_declare_channel(&made, status);
}

bh_status bh__declare(bh__runner *self)
{
    session made = session_of(self);
    switch (self->engine.context.settings->mode) {
    case BH_MODE_CREATE:
        return close_declare_channel(&made, create_all(&made));
    case BH_MODE_VERIFY:
        return close_declare_channel(&made, verify_and_report(&made));
    case BH_MODE_NONE:
        break;
    }
    return BH_OK;
}
