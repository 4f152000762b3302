#include <backhop/declaring.h>

#include "declared_internal.h"
#include "report.h"
#include "topology_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define SHOWN(bytes) (int)(bytes).size, (bytes).data

enum { ACCESS_REFUSED = 403, NOT_FOUND = 404, RESOURCE_LOCKED = 405, PRECONDITION_FAILED = 406 };

/* What a step is for: to see whether something of that name exists; to compare it with what exists; to make it where it
 * is missing. */
typedef enum purpose { TO_FIND, TO_COMPARE, TO_MAKE } purpose;

struct bh_declaring {
    bh_topology *topology;
    bh_declared *declared; /* NULL: none */
    bh_dialect dialect;
    int makes_rungs;
    bh_mode mode;
    int64_t rung_ms;
    size_t at; /* the declaration of the step; their count: the work queue, which is the user's own */
    purpose to;
    int is_asked; /* the step is out, and was not refused so far */
    int has_ended;
    /* what verifying found */
    bh__report different; /* their status is BH_OK where nothing is */
    bh__report missing;
    int64_t missing_rungs; /* on demand */
    int64_t last_rung_ms;  /* of these */
    int may_declare;
    bh__report result;
};

/* How a language's user writes what an error advises. */
static const struct {
    const char *create, *verify, *definitions, *work_queue, *request, *no_request;
} dialects[] = {
    [BH_DIALECT_C] = {"the mode create", "the mode verify or none", "the topology's definitions",
                      "work_queue (quorum or classic)", "request for a delay", "a greatest request of 0"},
    [BH_DIALECT_PYTHON] = {"mode=\"create\"", "mode=\"verify\"", "topology.definitions()", "work_queue=\"quorum\"",
                           "RetryAfter", "max_retry_after=0"},
    [BH_DIALECT_RUBY] = {"mode: :create", "mode: :verify", "topology.definitions", "work_queue: :quorum", "RetryAfter",
                         "max_retry_after: 0"},
    [BH_DIALECT_NODE] = {"mode: 'create'", "mode: 'verify'", "topology.definitions()", "workQueue: 'quorum'",
                         "RetryAfter", "maxRetryAfter: 0"},
};

/* -------------------------------------------------------------------------------------------------------- new and free */

bh_status bh_declaring_new(bh_declaring **out, const bh_topology *topology, bh_dialect dialect)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!topology || (int)dialect < BH_DIALECT_C || dialect > BH_DIALECT_NODE)
        return BH_ERR_ARGUMENT;
    if (!bh__topology_is_built(topology))
        return BH_ERR_STATE;
    bh_declaring *self = calloc(1, sizeof *self);
    if (!self)
        return BH_ERR_NO_MEMORY;
    bh_status status = bh__topology_copy(&self->topology, topology);
    if (status != BH_OK) {
        bh_declaring_free(self);
        return status;
    }
    self->dialect = dialect;
    self->has_ended = 1;
    *out = self;
    return BH_OK;
}

void bh_declaring_free(bh_declaring *self)
{
    if (!self)
        return;
    bh__report_free(&self->different);
    bh__report_free(&self->missing);
    bh__report_free(&self->result);
    bh_topology_free(self->topology);
    bh_declared_free(self->declared);
    free(self);
}

int bh_mode_makes_rungs(bh_mode mode)
{
    return mode == BH_MODE_CREATE;
}

bh_status bh_declaring_set_makes_rungs(bh_declaring *self, int on)
{
    if (!self || (on != 0 && on != 1))
        return BH_ERR_ARGUMENT;
    self->makes_rungs = on;
    return BH_OK;
}

bh_status bh_declaring_set_declared(bh_declaring *self, bh_declared *declared)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    bh_declared *before = self->declared;
    self->declared = declared ? bh__declared_share(declared) : NULL;
    bh_declared_free(before);
    return BH_OK;
}

/* -------------------------------------------------------------------------------------------------------------- steps */

static int is_work_queue(const bh_declaring *self, size_t index)
{
    return bh_topology_declaration(self->topology, index) == BH_DECLARE_QUEUE &&
           bh__same(bh_topology_name(self->topology, index), bh_topology_queue(self->topology));
}

static int has_work_queue(const bh_declaring *self)
{
    for (size_t i = 0; i < bh_topology_count(self->topology); i++)
        if (is_work_queue(self, i))
            return 1;
    return 0;
}

/* Whether a declaration is the work queue's own: of its name, or of one that goes on with a dot; else it is the
 * namespace's. */
static int is_own(const bh_declaring *self, size_t index)
{
    bh_bytes queue = bh_topology_queue(self->topology), name = bh_topology_name(self->topology, index);
    return name.size >= queue.size && memcmp(name.data, queue.data, queue.size) == 0 &&
           (name.size == queue.size || name.data[queue.size] == '.');
}

static int is_known(const bh_declaring *self, size_t index)
{
    return self->declared && self->mode == BH_MODE_CREATE && !is_own(self, index) &&
           bh__declared_has(self->declared, self->topology, index);
}

/* The broker took the step: what it asked for is there. */
static void note_taken(const bh_declaring *self)
{
    if (self->declared && self->to == TO_MAKE && !is_own(self, self->at))
        bh__declared_add(self->declared, self->topology, self->at);
}

/* Whether there is a step at an index. */
static int is_meant(const bh_declaring *self, size_t index)
{
    const bh_topology *topology = self->topology;
    if (index >= bh_topology_count(topology))
        return index == bh_topology_count(topology) && self->mode == BH_MODE_VERIFY && !has_work_queue(self);
    if (self->mode == BH_MODE_VERIFY)
        return bh_topology_declaration(topology, index) != BH_DECLARE_BINDING;
    int is_asked_for =
        self->rung_ms ? bh_topology_wait_ms(topology, index) == self->rung_ms : !bh_topology_on_demand(topology, index);
    return is_asked_for && !is_known(self, index);
}

/* Goes to the first step from an index on. */
static void go_to(bh_declaring *self, size_t index)
{
    while (index <= bh_topology_count(self->topology) && !is_meant(self, index))
        index++;
    self->at = index;
    self->to = self->mode == BH_MODE_VERIFY ? TO_FIND : TO_MAKE;
}

bh_status bh_declaring_begin(bh_declaring *self, bh_mode mode, int64_t rung_ms)
{
    if (!self || (int)mode < BH_MODE_CREATE || mode > BH_MODE_NONE || rung_ms < 0)
        return BH_ERR_ARGUMENT;
    self->mode = mode;
    self->rung_ms = rung_ms;
    self->is_asked = 0;
    self->has_ended = mode == BH_MODE_NONE;
    bh__report_clear(&self->different);
    bh__report_clear(&self->missing);
    bh__report_clear(&self->result);
    self->missing_rungs = self->last_rung_ms = 0;
    self->may_declare = 1;
    if (self->declared && mode == BH_MODE_CREATE && rung_ms == 0 &&
        bh__declared_has(self->declared, self->topology, bh_topology_count(self->topology)))
        bh_declared_forget(self->declared); /* who asks again wants to have it looked at again */
    go_to(self, 0);
    return BH_OK;
}

static void end(bh_declaring *self);

int bh_declaring_next(bh_declaring *self)
{
    if (!self || self->has_ended)
        return 0;
    if (self->is_asked && self->to == TO_FIND && self->at < bh_topology_count(self->topology))
        self->to = TO_COMPARE;
    else if (self->is_asked) {
        note_taken(self);
        go_to(self, self->at + 1);
    }
    self->is_asked = self->at <= bh_topology_count(self->topology);
    if (!self->is_asked) {
        if (self->declared && self->mode == BH_MODE_CREATE && self->rung_ms == 0)
            bh__declared_add(self->declared, self->topology, bh_topology_count(self->topology));
        end(self);
    }
    return self->is_asked;
}

/* ----------------------------------------------------------------------------------------------------------- the step */

bh_declaration bh_declaring_what(const bh_declaring *self)
{
    return self && self->at < bh_topology_count(self->topology) ? bh_topology_declaration(self->topology, self->at)
                                                                : BH_DECLARE_QUEUE;
}

int bh_declaring_passive(const bh_declaring *self)
{
    return self && self->to == TO_FIND;
}

bh_bytes bh_declaring_name(const bh_declaring *self)
{
    if (!self)
        return bh_str("");
    return self->at == bh_topology_count(self->topology) ? bh_topology_queue(self->topology)
                                                         : bh_topology_name(self->topology, self->at);
}

bh_bytes bh_declaring_type(const bh_declaring *self)
{
    return bh_topology_type(self ? self->topology : NULL, self ? self->at : 0);
}

bh_bytes bh_declaring_source(const bh_declaring *self)
{
    return bh_topology_source(self ? self->topology : NULL, self ? self->at : 0);
}

bh_bytes bh_declaring_routing_key(const bh_declaring *self)
{
    return bh_topology_routing_key(self ? self->topology : NULL, self ? self->at : 0);
}

/*
 * What keeps a declaration that is to compare from making anything, also where the queue or exchange is deleted just
 * before it arrives: an argument that the broker looks at only where it would have to make it, and then refuses (406).
 * For a queue that is one that its type does not know: of what exists the broker compares only those that the type
 * knows. For an exchange it is an alternate-exchange that is no string. That is compared too, always differs, and the
 * broker then tells the present one. Seen on RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
 */
static bh_bytes blocking_argument(const bh_declaring *self)
{
    if (bh_declaring_what(self) == BH_DECLARE_EXCHANGE)
        return bh_str("alternate-exchange");
    return bh_str(bh__same(bh_declaring_type(self), bh_str("quorum")) ? "x-max-priority" : "x-delivery-limit");
}

/* The index in the topology of the step's argument; (size_t)-1: it is the one that blocks, and comes first. */
static size_t argument_at(const bh_declaring *self, size_t argument)
{
    if (self->to != TO_COMPARE)
        return argument;
    if (argument == 0)
        return (size_t)-1;
    bh_bytes blocking = blocking_argument(self);
    size_t index = argument - 1;
    for (size_t i = 0; i <= index && i < bh_topology_argument_count(self->topology, self->at); i++)
        if (bh__same(bh_topology_argument_name(self->topology, self->at, i), blocking))
            index++;
    return index;
}

size_t bh_declaring_argument_count(const bh_declaring *self)
{
    if (!self || self->to == TO_FIND)
        return 0;
    size_t count = bh_topology_argument_count(self->topology, self->at);
    if (self->to == TO_MAKE)
        return count;
    size_t others = 0;
    for (size_t i = 0; i < count; i++)
        if (!bh__same(bh_topology_argument_name(self->topology, self->at, i), blocking_argument(self)))
            others++;
    return others + 1;
}

bh_bytes bh_declaring_argument_name(const bh_declaring *self, size_t argument)
{
    if (argument >= bh_declaring_argument_count(self))
        return bh_str("");
    size_t index = argument_at(self, argument);
    return index == (size_t)-1 ? blocking_argument(self) : bh_topology_argument_name(self->topology, self->at, index);
}

bh_type bh_declaring_argument_type(const bh_declaring *self, size_t argument)
{
    if (argument >= bh_declaring_argument_count(self))
        return BH_TYPE_BOOLEAN;
    size_t index = argument_at(self, argument);
    return index == (size_t)-1 ? BH_TYPE_INT64 : bh_topology_argument_type(self->topology, self->at, index);
}

bh_bytes bh_declaring_argument_string(const bh_declaring *self, size_t argument)
{
    if (argument >= bh_declaring_argument_count(self))
        return bh_str("");
    return bh_topology_argument_string(self->topology, self->at, argument_at(self, argument));
}

int64_t bh_declaring_argument_int(const bh_declaring *self, size_t argument)
{
    if (argument >= bh_declaring_argument_count(self))
        return 0;
    size_t index = argument_at(self, argument);
    return index == (size_t)-1 ? 1 : bh_topology_argument_int(self->topology, self->at, index);
}

/* -------------------------------------------------------------------------------------------------------- differences */

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

static difference read_difference(bh_bytes text)
{
    static const char before_argument[] = "inequivalent arg '", before_received[] = ": received ",
                      before_current[] = " but current is ", cut[] = "...";
    difference found = {.argument = bh_str(""), .received = bh_str(""), .current = bh_str("")};
    const char *end = text.data + text.size;
    found.is_cut = text.size >= LONGEST_WORDS && bh__same(between(end - strlen(cut), end), bh_str(cut));
    const char *argument = bh__find(text, before_argument);
    const char *begin = argument ? argument + strlen(before_argument) : end;
    const char *argument_end = bh__find(between(begin, end), "'");
    if (!argument_end)
        return found;
    found.argument = between(begin, argument_end);
    const char *received = NULL; /* the last one: a name may hold anything */
    for (const char *at = argument_end; (at = bh__find(between(at, end), before_received));)
        received = at += strlen(before_received);
    end -= found.is_cut ? strlen(cut) : 0;
    const char *current = received && received <= end ? bh__find(between(received, end), before_current) : NULL;
    if (current) {
        found.received = between(received, current);
        found.current = between(current + strlen(before_current), end);
    }
    return found;
}

/* The value in the broker's words for it. */
static bh_bytes bare_value(bh_bytes words)
{
    const char *end = words.data + words.size;
    const char *quote = bh__find(words, "'");
    const char *second = quote ? bh__find(between(quote + 1, end), "'") : NULL;
    return second ? between(quote + 1, second) : words;
}

/* Whether these, which may be cut, are the broker's words for a string. */
static int says(const difference *found, const char *before, bh_bytes value, const char *behind)
{
    char words[512];
    int size = snprintf(words, sizeof words, "%s%.*s%s", before, SHOWN(value), behind);
    bh_bytes all = {words, size < (int)sizeof words ? (size_t)size : sizeof words - 1};
    if (found->is_cut && found->current.size < all.size)
        all.size = found->current.size;
    return bh__same(found->current, all);
}

/* The step's alternate exchange, as the topology has it; "" for none. */
static bh_bytes alternate_of(const bh_declaring *self)
{
    for (size_t i = 0; i < bh_topology_argument_count(self->topology, self->at); i++)
        if (bh__same(bh_topology_argument_name(self->topology, self->at, i), bh_str("alternate-exchange")))
            return bh_topology_argument_string(self->topology, self->at, i);
    return bh_str("");
}

/* Whether the exchange has the alternate that the topology wants, as far as the broker's words go. */
static int has_its_alternate(const bh_declaring *self, const difference *found)
{
    bh_bytes wanted = alternate_of(self);
    if (found->current.size == 0)
        return 1;
    if (wanted.size == 0)
        return says(found, "none", wanted, "");
    return says(found, "'", wanted, "'") || says(found, "the value '", wanted, "' of type 'longstr'");
}

/* Whether the name is of the work queue's own, and not of the namespace. */
static int is_of_work_queue(const bh_declaring *self, bh_bytes name)
{
    static const char *const suffixes[] = {"", ".parked", ".wait", ".retry", ".return"};
    bh_bytes queue = bh_topology_queue(self->topology);
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
    return bh_declaring_what(self) == BH_DECLARE_EXCHANGE ? "exchange" : "queue";
}

static void add_clash(const bh_declaring *self, bh__report *list, const difference *found, bh_bytes needed,
                      bh_bytes text)
{
    bh_bytes name = bh_declaring_name(self), current = bare_value(found->current);
    bh__report_add(list, "%s \"%.*s\" ", kind_of(self), SHOWN(name));
    if (current.size == 0)
        bh__report_add(list, "exists with other arguments (%.*s)", SHOWN(text));
    else
        bh__report_add(list, "exists with %.*s = %.*s, and %.*s is needed", SHOWN(found->argument), SHOWN(current),
                       SHOWN(needed));
    bh__report_add(list, " (once it is empty and unused, delete it and declare again, or choose another %s)",
                   is_of_work_queue(self, name) ? "name for the work queue" : "namespace");
}

/* ----------------------------------------------------------------------------------------------------------- refusals */

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

static void fail(bh_declaring *self, int code, bh_bytes text)
{
    static const char *const words[] = {[TO_FIND] = "looking for", [TO_COMPARE] = "comparing", [TO_MAKE] = "declaring"};
    bh_bytes name = bh_declaring_name(self);
    bh__report_set(&self->result, status_of(code), "%s \"%.*s\" failed: the broker closed the channel (%d %.*s)",
                   words[self->to], SHOWN(name), code, SHOWN(text));
    self->has_ended = 1;
}

static void on_not_made(bh_declaring *self, int code, bh_bytes text)
{
    bh__report *result = &self->result;
    bh_bytes name = bh_declaring_name(self), queue = bh_topology_queue(self->topology);
    int is_binding = bh_declaring_what(self) == BH_DECLARE_BINDING;
    self->has_ended = 1;
    if (code == ACCESS_REFUSED && bh_topology_on_demand(self->topology, self->at))
        return;
    fail(self, code, text);
    if (bh__same(bh_declaring_type(self), bh_str("x-delayed-message")) && bh__find(text, "exchange type")) {
        bh__report_set(result, BH_ERR_BROKER,
                       "the broker does not know the exchange type x-delayed-message: enable the plugin "
                       "rabbitmq_delayed_message_exchange, or use the strategy ladder, which needs none");
    } else if (result->status == BH_ERR_CLASH && !is_binding) {
        difference found = read_difference(text);
        bh__report_set(result, BH_ERR_CLASH, "%s", "");
        add_clash(self, result, &found, bare_value(found.received), text);
    } else if (code == NOT_FOUND && is_binding && bh__same(name, queue)) {
        bh__report_set(result, BH_ERR_MISSING,
                       "the work queue \"%.*s\" does not exist: declare it first, or have it declared too, by %s",
                       SHOWN(queue), dialects[self->dialect].work_queue);
    } else if (code == ACCESS_REFUSED) {
        bh__report_add(result, "; grant the permission, or import %s and use %s", dialects[self->dialect].definitions,
                       dialects[self->dialect].verify);
    }
}

static void add_missing(bh_declaring *self, const char *kind)
{
    bh_bytes name = bh_declaring_name(self);
    self->missing.status = BH_ERR_MISSING;
    bh__report_add(&self->missing, "%s%s \"%.*s\"", self->missing.size ? ", " : "", kind, SHOWN(name));
}

static void note_absent(bh_declaring *self)
{
    int64_t rung_ms = bh_topology_wait_ms(self->topology, self->at);
    if (self->at == bh_topology_count(self->topology)) {
        add_missing(self, "the work queue");
    } else if (!bh_topology_on_demand(self->topology, self->at)) {
        add_missing(self, kind_of(self));
    } else if (rung_ms != self->last_rung_ms) { /* the declarations of a rung stand together */
        self->missing_rungs++;
        self->last_rung_ms = rung_ms;
    }
}

static void note_difference(bh_declaring *self, int code, bh_bytes text)
{
    difference found = read_difference(text);
    bh_bytes needed = bare_value(found.received), blocking = blocking_argument(self);
    if (code == PRECONDITION_FAILED && found.argument.size == 0) {
        note_absent(self); /* the broker would have had to make it: it was deleted since it was found */
        return;
    }
    if (bh__same(found.argument, bh_str("alternate-exchange"))) {
        if (has_its_alternate(self, &found))
            return;
        needed = alternate_of(self).size ? alternate_of(self) : bh_str("none");
    } else if (bh__same(found.argument, blocking)) {
        /* The queue's type knows the argument, so that it is the other one; the broker names what it compared first. */
        needed = bh_declaring_type(self);
        found.argument = bh_str("x-queue-type");
        found.current = bh_str(bh__same(needed, bh_str("quorum")) ? "classic" : "quorum");
    }
    self->different.status = BH_ERR_CLASH;
    add_clash(self, &self->different, &found, needed, text);
    bh__report_add(&self->different, "; ");
}

/* Without the permission to declare, that it exists is all that can be known. */
static void on_not_compared(bh_declaring *self, int code, bh_bytes text)
{
    if (status_of(code) == BH_ERR_CLASH)
        note_difference(self, code, text);
    else if (code == ACCESS_REFUSED)
        self->may_declare = 0;
    else
        fail(self, code, text);
}

void bh_declaring_refuse(bh_declaring *self, int code, bh_bytes text)
{
    if (!self || !self->is_asked || !text.data)
        return;
    self->is_asked = 0;
    if (self->to == TO_MAKE)
        on_not_made(self, code, text);
    else if (self->to == TO_COMPARE)
        on_not_compared(self, code, text);
    else if (code == NOT_FOUND)
        note_absent(self);
    else
        fail(self, code, text);
    go_to(self, self->at + 1);
}

/* Ends with what it means that the broker closed the channel at basic.consume or basic.get. */
static bh_status refuse_reading(bh_declaring *self, bh_bytes queue, const char *which, const char *what, int code,
                                bh_bytes text)
{
    bh_status status = status_of(code) == BH_ERR_CLASH ? BH_ERR_CHANNEL : status_of(code);
    self->has_ended = 1;
    return bh__report_set(&self->result, status,
                          "the %s \"%.*s\" cannot be %s: the broker closed the channel (%d %.*s)", which, SHOWN(queue),
                          what, code, SHOWN(text));
}

void bh_declaring_refuse_consumer(bh_declaring *self, int code, bh_bytes text)
{
    if (!self || !text.data)
        return;
    bh_bytes queue = bh_topology_queue(self->topology);
    if (refuse_reading(self, queue, "work queue", "consumed", code, text) == BH_ERR_MISSING)
        bh__report_add(&self->result, "; declare it first, or have it declared too, by %s",
                       dialects[self->dialect].work_queue);
}

void bh_declaring_refuse_replay(bh_declaring *self, bh_bytes queue, int code, bh_bytes text)
{
    if (!self || !queue.data || !text.data)
        return;
    if (refuse_reading(self, queue, "queue", "replayed", code, text) == BH_ERR_MISSING)
        bh__report_add(&self->result, "; declare with %s, or import %s", dialects[self->dialect].create,
                       dialects[self->dialect].definitions);
}

void bh_declaring_refuse_settling(bh_declaring *self, int code, bh_bytes text, bh_bytes with_acks)
{
    if (!self || !text.data || !with_acks.data)
        return;
    self->has_ended = 1;
    bh__report_clear(&self->result);
    if (code == PRECONDITION_FAILED && bh__find(text, "unknown delivery tag"))
        bh__report_set(
            &self->result, BH_ERR_CHANNEL,
            "the broker closed the channel (%d %.*s), as a delivery was acknowledged or rejected twice, or needs "
            "no acknowledgement: consume with %.*s, and leave acknowledging to Backhop alone",
            code, SHOWN(text), SHOWN(with_acks));
}

void bh_declaring_refuse_no_ack(bh_declaring *self, bh_bytes with_acks)
{
    if (!self || !with_acks.data)
        return;
    bh_bytes queue = bh_topology_queue(self->topology);
    self->has_ended = 1;
    bh__report_set(
        &self->result, BH_ERR_ARGUMENT,
        "the consumer of \"%.*s\" gets its messages without acknowledgements, and the broker forgets each as "
        "it sends it: what is in hand when the process ends is lost; consume with %.*s",
        SHOWN(queue), SHOWN(with_acks));
}

void bh_declaring_check_queue(bh_declaring *self, bh_bytes queue)
{
    if (!self || !queue.data)
        return;
    bh_bytes own = bh_topology_queue(self->topology);
    self->has_ended = 1;
    bh__report_clear(&self->result);
    if (!bh__same(queue, own))
        bh__report_set(&self->result, BH_ERR_ARGUMENT,
                       "the message came from the queue \"%.*s\", and the retrier is for the queue \"%.*s\", where its "
                       "copies would go: make a retrier for each queue",
                       SHOWN(queue), SHOWN(own));
}

/* ---------------------------------------------------------------------------------------------------------------- end */

static void end(bh_declaring *self)
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
    if (differs || misses) /* rungs on demand are not made beforehand */
        bh__report_add(&self->result, "declare with %s, or ", dialects[self->dialect].create);
    bh__report_add(&self->result, "import %s", dialects[self->dialect].definitions);
}

bh_status bh_declaring_status(const bh_declaring *self)
{
    return self ? self->result.status : BH_ERR_ARGUMENT;
}

bh_bytes bh_declaring_error(const bh_declaring *self)
{
    return self ? bh__report_text(&self->result) : bh_str("");
}
