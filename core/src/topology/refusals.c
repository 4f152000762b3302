/* Refusals: what the broker's refusals mean, and what the user can do. */
#include "topology/declaring.h"

#include "topology/difference.h"

#include <stdio.h>

#define SHOWN(bytes) (int)(bytes).size, (bytes).data

/* The user's options, as each language writes them. */
static const struct {
    const char *create, *verify, *definitions, *work_queue, *request, *no_request;
} dialects[] = {
    [BH_DIALECT_C] = {"declare with the mode create", "the mode verify or none", "the topology's definitions",
                      "work_queue (quorum or classic)", "request for a delay", "a greatest request of 0"},
    [BH_DIALECT_PYTHON] = {"declare with mode=\"create\"", "mode=\"verify\"", "topology.definitions()",
                           "work_queue=\"quorum\"", "RetryAfter", "max_retry_after=0"},
    [BH_DIALECT_RUBY] = {"declare with mode: :create", "mode: :verify", "topology.definitions", "work_queue: :quorum",
                         "RetryAfter", "max_retry_after: 0"},
    [BH_DIALECT_NODE] = {"declare with mode: 'create'", "mode: 'verify'", "topology.definitions()",
                         "workQueue: 'quorum'", "RetryAfter", "maxRetryAfter: 0"},
    [BH_DIALECT_COMMAND] = {"run 'backhop topology declare'", "'backhop topology verify'",
                            "the output of 'backhop topology export'", "--work-queue quorum", "RetryAfter",
                            "--max-retry-after 0"},
    [BH_DIALECT_RELAY] = {"start 'backhop relay'", "'backhop relay --check'", NULL, "its application", "relay",
                          "other settings"},
};

/* Returns the alternate exchange that the topology declares; "" for none. */
static bh_bytes alternate_of(const bh_declaring *self)
{
    for (size_t i = 0; i < self->step.argument_count; i++)
        if (bh__same(self->step.arguments[i].name, bh_str("alternate-exchange")))
            return self->step.arguments[i].string;
    return bh_str("");
}

/* Returns 1 if the exchange has this alternate, or if the broker's text is cut before it. */
static int has_its_alternate(const bh_declaring *self, const bh__difference *found)
{
    bh_bytes wanted = alternate_of(self);
    if (found->current.size == 0)
        return 1;
    if (wanted.size == 0)
        return bh__is_current(found, "none", wanted, "");
    return bh__is_current(found, "'", wanted, "'") ||
           bh__is_current(found, "the value '", wanted, "' of type 'longstr'");
}

/* Returns 1 if the name belongs to the work queue, 0 if it belongs to the namespace. */
static int is_of_work_queue(const bh_declaring *self, bh_bytes name)
{
    static const char *const suffixes[] = {"", ".parked", ".wait", ".retry", ".return"};
    bh_bytes queue = bh__topology_queue(self->topology);
    if (name.size < queue.size || !bh__same((bh_bytes){name.data, queue.size}, queue))
        return 0;
    bh_bytes suffix = {name.data + queue.size, name.size - queue.size};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        if (bh__same(suffix, bh_str(suffixes[i])))
            return 1;
    return 0;
}

static const char *kind_of(const bh_declaring *self)
{
    return self->step.kind == BH_DECLARE_EXCHANGE ? "exchange" : "queue";
}

static void add_clash(const bh_declaring *self, bh__report *list, const bh__difference *found, bh_bytes needed,
                      bh_bytes text)
{
    bh_bytes name = self->step.name, current = bh__bare_value(found->current);
    bh__report_add(list, "%s \"%.*s\" ", kind_of(self), SHOWN(name));
    if (current.size == 0)
        bh__report_add(list, "exists with other arguments (%.*s)", SHOWN(text));
    else
        bh__report_add(list, "exists with %.*s = %.*s, and %.*s is needed", SHOWN(found->argument), SHOWN(current),
                       SHOWN(needed));
    bh__report_add(list, " (once it is empty and unused, delete it and declare again, or choose another %s)",
                   is_of_work_queue(self, name) ? "name for the work queue" : "namespace");
}

static bh_status status_of(int code)
{
    switch (code) {
    case ACCESS_REFUSED:
        return BH_ERR_ACCESS;
    case NOT_FOUND:
        return BH_ERR_MISSING;
    case RESOURCE_LOCKED:
    case PRECONDITION_FAILED:
        return BH_ERR_CLASH;
    default:
        return BH_ERR_CHANNEL;
    }
}

void bh__declaring_fail(bh_declaring *self, int code, bh_bytes text)
{
    static const char *const verbs[] = {[BH__TO_FIND] = "looking for",
                                        [BH__TO_COMPARE] = "comparing",
                                        [BH__TO_UNBIND] = "declaring",
                                        [BH__TO_CREATE] = "declaring"};
    bh_bytes name = self->step.name;
    bh__report_set(&self->result, status_of(code), "%s \"%.*s\" failed: the broker closed the channel (%d %.*s)",
                   verbs[self->purpose], SHOWN(name), code, SHOWN(text));
    self->has_ended = 1;
}

/* Returns 1 if the broker refuses a further exchange or queue (W5): its max-queues,
 * cluster_queue_limit or cluster_exchange_limit is reached. The end of a text with a long name is
 * missing. */
static int is_limit(int code, bh_bytes text)
{
    return code == PRECONDITION_FAILED && !bh__find(text, "inequivalent arg '") &&
           (bh__find(text, "cannot declare queue '") || bh__find(text, "cannot declare exchange '"));
}

int bh__declaring_lacks_exchange(const bh_declaring *self, int code, bh_bytes text)
{
    return code == NOT_FOUND && self->step.kind == BH_DECLARE_BINDING && bh__find(text, "no exchange");
}

void bh__declaring_not_created(bh_declaring *self, int code, bh_bytes text)
{
    bh__report *result = &self->result;
    bh_bytes name = self->step.name, queue = bh__topology_queue(self->topology);
    int is_binding = self->step.kind == BH_DECLARE_BINDING;
    self->has_ended = 1;
    if (code == ACCESS_REFUSED && self->step.on_demand)
        return;
    bh__declaring_fail(self, code, text);
    if (bh__same(self->step.type, bh_str("x-delayed-message")) && bh__find(text, "exchange type")) {
        bh__report_set(result, BH_ERR_BROKER,
                       "the broker does not know the exchange type x-delayed-message: enable the plugin "
                       "rabbitmq_delayed_message_exchange, or use the strategy ladder, which needs none");
    } else if (is_limit(code, text)) {
        result->status = BH_ERR_CHANNEL; /* a limit can be raised meanwhile */
        bh__report_add(result,
                       "; raise that limit, delete queues that nothing uses, or use a policy with fewer wait queues");
    } else if (result->status == BH_ERR_CLASH && !is_binding) {
        bh__difference found = bh__read_difference(text);
        bh__report_set(result, BH_ERR_CLASH, "%s", "");
        add_clash(self, result, &found, bh__bare_value(found.received), text);
    } else if (code == NOT_FOUND && is_binding && bh__same(name, queue) &&
               !bh__declaring_lacks_exchange(self, code, text)) {
        bh__report_set(result, BH_ERR_MISSING,
                       "the work queue \"%.*s\" does not exist: declare it first, or have it declared too, by %s",
                       SHOWN(queue), dialects[self->dialect].work_queue);
    } else if (code == ACCESS_REFUSED) {
        bh__report_add(result, "; grant the permission");
        if (dialects[self->dialect].definitions)
            bh__report_add(result, ", or import %s and use %s", dialects[self->dialect].definitions,
                           dialects[self->dialect].verify);
    }
}

/* Adds what makes the missing parts: a declaration, if it can, or an import. */
static void add_remedy(bh_declaring *self, int can_declare)
{
    const char *definitions = dialects[self->dialect].definitions;
    if (can_declare || !definitions)
        bh__report_add(&self->result, "%s", dialects[self->dialect].create);
    if (definitions)
        bh__report_add(&self->result, "%simport %s", can_declare ? ", or " : "", definitions);
}

static void add_missing(bh_declaring *self, const char *kind)
{
    bh_bytes name = self->step.name;
    self->missing.status = BH_ERR_MISSING;
    bh__report_add(&self->missing, "%s%s \"%.*s\"", self->missing.size ? ", " : "", kind, SHOWN(name));
}

void bh__declaring_note_missing(bh_declaring *self)
{
    int64_t rung_ms = self->step.rung_ms;
    if (bh__declaring_is_users_queue(self)) {
        add_missing(self, "the work queue");
    } else if (!self->step.on_demand) {
        add_missing(self, kind_of(self));
    } else if (rung_ms != self->last_rung_ms) { /* the declarations of a rung follow each other */
        self->missing_rungs++;
        self->last_rung_ms = rung_ms;
    }
}

static void note_difference(bh_declaring *self, int code, bh_bytes text)
{
    bh__difference found = bh__read_difference(text);
    bh_bytes needed = bh__bare_value(found.received), blocking = bh__blocking_argument(&self->step);
    if (code == PRECONDITION_FAILED && found.argument.size == 0) {
        bh__declaring_note_missing(self); /* deleted after the first step */
        return;
    }
    if (bh__same(found.argument, bh_str("alternate-exchange"))) {
        if (has_its_alternate(self, &found))
            return;
        needed = alternate_of(self).size ? alternate_of(self) : bh_str("none");
    } else if (bh__same(found.argument, blocking)) {
        /* The current type supports the blocking argument, so it is the other type. */
        needed = self->step.type;
        found.argument = bh_str("x-queue-type");
        found.current = bh_str(bh__same(needed, bh_str("quorum")) ? "classic" : "quorum");
    }
    self->different.status = BH_ERR_CLASH;
    add_clash(self, &self->different, &found, needed, text);
    bh__report_add(&self->different, "; ");
}

void bh__declaring_not_compared(bh_declaring *self, int code, bh_bytes text)
{
    if (status_of(code) == BH_ERR_CLASH)
        note_difference(self, code, text);
    else if (code == ACCESS_REFUSED)
        self->may_declare = 0;
    else
        bh__declaring_fail(self, code, text);
}

void bh__declaring_report_look(bh_declaring *self)
{
    bh_bytes exchange = bh__topology_return_exchange(self->topology);
    bh_status status = self->result.status;
    bh__report refusal = self->result;
    self->result = (bh__report){.size = 0};
    bh__report_set(&self->result, status == BH_OK ? BH_ERR_MISSING : status,
                   "the exchange \"%.*s\" is missing, so that no retry comes back; ", SHOWN(exchange));
    if (self->mode != BH_MODE_CREATE)
        add_remedy(self, 1);
    else if (status == BH_OK)
        bh__report_add(&self->result, "it is declared again");
    else
        bh__report_add(&self->result, "%.*s", SHOWN(bh__report_text(&refusal)));
    bh__report_free(&refusal);
}

/* Ends with the reason why basic.consume or basic.get failed. */
static bh_status refuse_reading(bh_declaring *self, bh_bytes queue, const char *which, const char *what, int code,
                                bh_bytes text)
{
    bh_status status = status_of(code) == BH_ERR_CLASH ? BH_ERR_CHANNEL : status_of(code);
    self->has_ended = 1;
    return bh__report_set(&self->result, status,
                          "the %s \"%.*s\" cannot be %s: the broker closed the channel (%d %.*s)", which, SHOWN(queue),
                          what, code, SHOWN(text));
}

/* Returns 1 if a queue refused BH_CONSUME_ARGUMENT because it is a stream. RabbitMQ's text ends
 * with the type, and is cut after 255 bytes. */
static int is_stream(int code, bh_bytes text)
{
    return code == PRECONDITION_FAILED && bh__find(text, "invalid arg '" BH_CONSUME_ARGUMENT "'") &&
           (bh__find(text, "of queue type rabbit_stream_queue") || !bh__find(text, " of queue type "));
}

static void explain_consumer(bh_declaring *self, int code, bh_bytes text)
{
    bh_bytes queue = bh__topology_queue(self->topology);
    if (is_stream(code, text)) {
        self->has_ended = 1;
        bh__report_set(&self->result, BH_ERR_CLASH,
                       "the work queue \"%.*s\" is a stream: it would deliver each retry to all its readers, and skip "
                       "messages while a consumer reconnects; use a quorum queue, and have a reader of the stream "
                       "publish to it",
                       SHOWN(queue));
        return;
    }
    if (refuse_reading(self, queue, "work queue", "consumed", code, text) == BH_ERR_MISSING)
        bh__report_add(&self->result, "; declare it first, or have it declared too, by %s",
                       dialects[self->dialect].work_queue);
}

static void explain_replay(bh_declaring *self, bh_bytes queue, int code, bh_bytes text)
{
    if (refuse_reading(self, queue, "queue", "replayed", code, text) == BH_ERR_MISSING) {
        bh__report_add(&self->result, "; ");
        add_remedy(self, 1);
    }
}

static void explain_settling(bh_declaring *self, int code, bh_bytes text, bh_bytes with_acks)
{
    self->has_ended = 1;
    bh__report_clear(&self->result);
    if (code == PRECONDITION_FAILED && bh__find(text, "unknown delivery tag"))
        bh__report_set(
            &self->result, BH_ERR_CHANNEL,
            "the broker closed the channel (%d %.*s), as a delivery was acknowledged or rejected twice, or needs "
            "no acknowledgement: consume with %.*s, and leave acknowledging to Backhop alone",
            code, SHOWN(text), SHOWN(with_acks));
}

static void explain_no_ack(bh_declaring *self, bh_bytes with_acks)
{
    bh_bytes queue = bh__topology_queue(self->topology);
    self->has_ended = 1;
    bh__report_set(&self->result, BH_ERR_ARGUMENT,
                   "the consumer of \"%.*s\" gets its messages without acknowledgements, and the broker forgets each "
                   "as it sends it: messages in hand when the process ends are lost; consume with %.*s",
                   SHOWN(queue), SHOWN(with_acks));
}

static void explain_queue(bh_declaring *self, bh_bytes queue)
{
    bh_bytes own = bh__topology_queue(self->topology);
    self->has_ended = 1;
    bh__report_clear(&self->result);
    if (!bh__same(queue, own))
        bh__report_set(&self->result, BH_ERR_ARGUMENT,
                       "the message came from the queue \"%.*s\", and the retrier is for the queue \"%.*s\", where its "
                       "copies would go: make a retrier for each queue",
                       SHOWN(queue), SHOWN(own));
}

void bh_declaring_explain(bh_declaring *self, bh_refusal refusal, int code, bh_bytes text, bh_bytes of)
{
    if (!self || !text.data || !of.data)
        return;
    switch (refusal) {
    case BH_REFUSAL_CONSUMER:
        explain_consumer(self, code, text);
        break;
    case BH_REFUSAL_REPLAY:
        explain_replay(self, of, code, text);
        break;
    case BH_REFUSAL_SETTLING:
        explain_settling(self, code, text, of);
        break;
    case BH_REFUSAL_NO_ACK:
        explain_no_ack(self, of);
        break;
    case BH_REFUSAL_QUEUE:
        explain_queue(self, of);
        break;
    }
}

void bh__declaring_report(bh_declaring *self)
{
    int needs_rungs = self->missing_rungs > 0 && !(self->makes_rungs && self->may_declare);
    int differs = self->different.status != BH_OK, misses = self->missing.status != BH_OK;
    self->has_ended = 1;
    if (!differs && !misses && !needs_rungs)
        return;
    bh__report_set(&self->result, differs ? BH_ERR_CLASH : BH_ERR_MISSING, "%.*s", (int)self->different.size,
                   self->different.text ? self->different.text : "");
    if (misses || needs_rungs)
        bh__report_add(&self->result, "missing: %.*s", (int)self->missing.size,
                       self->missing.text ? self->missing.text : "");
    if (needs_rungs)
        bh__report_add(&self->result, "%s%lld rung%s that a handler's %s can need (%s needs none)", misses ? ", " : "",
                       (long long)self->missing_rungs, self->missing_rungs == 1 ? "" : "s",
                       dialects[self->dialect].request, dialects[self->dialect].no_request);
    if (misses || needs_rungs)
        bh__report_add(&self->result, "; ");
    add_remedy(self, differs || misses); /* BH_MODE_CREATE does not create rungs on demand */
}

bh_status bh_declaring_status(const bh_declaring *self)
{
    return self ? self->result.status : BH_ERR_ARGUMENT;
}

bh_bytes bh_declaring_error(const bh_declaring *self)
{
    return self ? bh__report_text(&self->result) : bh_str("");
}
