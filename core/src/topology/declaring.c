/* Declaring: the steps that create or verify a topology on a broker. */
#include "topology/declaring.h"

#include "topology/declared.h"
#include "topology/difference.h"

#include <stdlib.h>

/* Makes room for the arguments of any declaration and the blocking argument. */
static int reserve_arguments(bh_declaring *self)
{
    size_t most = 0;
    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(self->topology, i, &each) == BH_OK; i++)
        most = each.argument_count > most ? each.argument_count : most;
    self->arguments = malloc((most + 1) * sizeof *self->arguments);
    return self->arguments != NULL;
}

bh_status bh_declaring_new(bh_declaring **out, const bh_topology *topology, bh_dialect dialect)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!topology || (int)dialect < BH_DIALECT_C || dialect > BH_DIALECT_RELAY)
        return BH_ERR_ARGUMENT;
    if (!bh__topology_is_built(topology))
        return BH_ERR_STATE;
    bh_declaring *self = calloc(1, sizeof *self);
    if (!self)
        return BH_ERR_NO_MEMORY;
    bh_status status = bh__topology_copy(&self->topology, topology);
    if (status == BH_OK && !reserve_arguments(self))
        status = BH_ERR_NO_MEMORY;
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
    free(self->arguments);
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

static int has_work_queue(const bh_declaring *self)
{
    bh_bytes queue = bh__topology_queue(self->topology);
    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(self->topology, i, &each) == BH_OK; i++)
        if (each.kind == BH_DECLARE_QUEUE && bh__same(each.name, queue))
            return 1;
    return 0;
}

/*
 * Returns 1 if the declaration belongs to the work queue: "<queue>" or "<queue>.*". Others belong
 * to the namespace.
 */
static int is_own(const bh_declaring *self, const bh_declaration *it)
{
    bh_bytes queue = bh__topology_queue(self->topology), name = it->name;
    return name.size >= queue.size && memcmp(name.data, queue.data, queue.size) == 0 &&
           (name.size == queue.size || name.data[queue.size] == '.');
}

static int is_declared(const bh_declaring *self, const bh_declaration *it)
{
    return self->declared && !is_own(self, it) && bh__declared_has(self->declared, it);
}

static void note_accepted(const bh_declaring *self)
{
    if (self->declared && self->purpose == BH__TO_CREATE && !is_own(self, &self->step))
        bh__declared_add(self->declared, &self->step);
}

/* Returns the entry of `declared` that stands for all declarations of the work queue. */
static bh_declaration whole(const bh_declaring *self)
{
    return (bh_declaration){.kind = BH_DECLARE_NONE, .name = bh__topology_queue(self->topology)};
}

/* Returns 1 if this is the work queue's binding to the return exchange. */
static int is_return_binding(const bh_declaring *self, const bh_declaration *it)
{
    return it->kind == BH_DECLARE_BINDING && bh__same(it->source, bh__topology_return_exchange(self->topology)) &&
           bh__same(it->name, bh__topology_queue(self->topology));
}

static int is_checked(const bh_declaring *self, const bh_declaration *it)
{
    if (self->look == BH__LOOK_BIND)
        return is_return_binding(self, it);
    return it->kind == BH_DECLARE_EXCHANGE && bh__same(it->name, bh__topology_return_exchange(self->topology));
}

static int has_step(const bh_declaring *self, const bh_declaration *it)
{
    if (self->look == BH__LOOK_FIND || self->look == BH__LOOK_BIND)
        return is_checked(self, it);
    if (self->mode == BH_MODE_VERIFY)
        return it->kind != BH_DECLARE_BINDING;
    int is_needed = self->rung_ms ? it->rung_ms == self->rung_ms : !it->on_demand;
    return is_needed && !is_declared(self, it);
}

/*
 * Returns the purpose of the first step of a declaration.
 *
 * A look that declares a deleted exchange again first removes the work queue's binding. On RabbitMQ
 * 4.3, a bind at the same time as the deletion can leave a binding that routes nothing, also after
 * a further bind. On 4.3.6 it was left by 79 of 600 such races, on 4.0.5 by none.
 */
static bh__purpose first_purpose(const bh_declaring *self, const bh_declaration *it)
{
    if (self->look ? self->look == BH__LOOK_FIND : self->mode == BH_MODE_VERIFY)
        return BH__TO_FIND;
    return self->look == BH__LOOK_MEND && is_return_binding(self, it) ? BH__TO_UNBIND : BH__TO_CREATE;
}

static void go_to(bh_declaring *self, size_t index)
{
    size_t count = bh__topology_count(self->topology);
    for (self->at = index; self->at < count; self->at++) {
        bh_topology_declaration(self->topology, self->at, &self->step);
        self->purpose = first_purpose(self, &self->step);
        if (has_step(self, &self->step))
            return;
    }
    if (self->at == count && !self->look && self->mode == BH_MODE_VERIFY && !has_work_queue(self)) {
        self->purpose = BH__TO_FIND;
        self->step = (bh_declaration){.kind = BH_DECLARE_QUEUE,
                                      .name = bh__topology_queue(self->topology),
                                      .type = bh_str(""),
                                      .source = bh_str(""),
                                      .routing_key = bh_str("")};
    } else {
        self->at = count + 1;
    }
}

static bh_status begin(bh_declaring *self, bh_mode mode, bh__look look, int64_t rung_ms)
{
    if (!self || (int)mode < BH_MODE_CREATE || mode > BH_MODE_NONE || rung_ms < 0)
        return BH_ERR_ARGUMENT;
    self->mode = mode;
    self->look = look;
    self->rung_ms = rung_ms;
    self->is_pending = self->has_begun_again = 0;
    self->has_ended = mode == BH_MODE_NONE;
    bh__report_clear(&self->different);
    bh__report_clear(&self->missing);
    bh__report_clear(&self->result);
    self->missing_rungs = self->last_rung_ms = 0;
    self->may_declare = 1;
    return BH_OK;
}

bh_status bh_declaring_begin(bh_declaring *self, bh_mode mode, int64_t rung_ms)
{
    bh_status status = begin(self, mode, BH__LOOK_NONE, rung_ms);
    if (status != BH_OK)
        return status;
    bh_declaration all = whole(self);
    if (self->declared && mode == BH_MODE_CREATE && rung_ms == 0 && bh__declared_has(self->declared, &all))
        bh_declared_clear(self->declared); /* the second time, nothing is skipped */
    go_to(self, 0);
    return BH_OK;
}

bh_status bh_declaring_look(bh_declaring *self, bh_mode mode)
{
    bh_status status = begin(self, mode, mode == BH_MODE_CREATE ? BH__LOOK_BIND : BH__LOOK_FIND, 0);
    if (status == BH_OK)
        go_to(self, 0);
    return status;
}

static void find_exchange(bh_declaring *self)
{
    self->look = BH__LOOK_FIND;
    go_to(self, 0);
}

/* Reads the arguments of a comparing step: the blocking argument, then the others. */
static void read_compared(bh_declaring *self, bh_declaration *out)
{
    bh_bytes blocking = bh__blocking_argument(&self->step);
    size_t count = 0;
    self->arguments[count++] =
        (bh_argument){.name = blocking, .type = BH_TYPE_INT64, .string = bh_str(""), .integer = 1};
    for (size_t i = 0; i < self->step.argument_count; i++)
        if (!bh__same(self->step.arguments[i].name, blocking))
            self->arguments[count++] = self->step.arguments[i];
    out->arguments = self->arguments;
    out->argument_count = count;
}

static void read_step(bh_declaring *self, bh_declaration *out)
{
    *out = self->step;
    if (self->purpose == BH__TO_COMPARE)
        read_compared(self, out);
    if (self->purpose == BH__TO_FIND) {
        out->passive = 1;
        out->argument_count = 0;
    }
    out->unbind = self->purpose == BH__TO_UNBIND;
}

static void end(bh_declaring *self)
{
    bh_declaration all = whole(self);
    if (self->look) {
        self->has_ended = 1;
        if (self->look == BH__LOOK_MEND)
            bh__declaring_report_look(self);
        return;
    }
    if (self->declared && self->mode == BH_MODE_CREATE && self->rung_ms == 0)
        bh__declared_add(self->declared, &all);
    bh__declaring_report(self);
}

int bh_declaring_next(bh_declaring *self, bh_declaration *out)
{
    if (!out)
        return 0;
    *out = (bh_declaration){.kind = BH_DECLARE_NONE};
    if (!self || self->has_ended)
        return 0;
    if (self->is_pending && self->look == BH__LOOK_BIND) {
        find_exchange(self);
    } else if (self->is_pending && !self->look && self->purpose == BH__TO_FIND && !bh__declaring_is_users_queue(self)) {
        self->purpose = BH__TO_COMPARE;
    } else if (self->is_pending && self->purpose == BH__TO_UNBIND) {
        self->purpose = BH__TO_CREATE;
    } else if (self->is_pending) {
        note_accepted(self);
        go_to(self, self->at + 1);
    }
    self->is_pending = self->at <= bh__topology_count(self->topology);
    if (self->is_pending)
        read_step(self, out);
    else
        end(self);
    return self->is_pending;
}

/*
 * Declares all from the beginning, once, if a binding's exchange was deleted after it was declared.
 * It may have been declared long before, for another work queue on the same connection. RabbitMQ
 * may also confirm the declaration of an exchange that is still being deleted. Seen on RabbitMQ
 * 3.10.8, 4.0.5 and 4.3.6.
 */
static int begins_again(bh_declaring *self, int code, bh_bytes text)
{
    if (self->has_begun_again || !bh__declaring_lacks_exchange(self, code, text))
        return 0;
    self->has_begun_again = 1;
    bh_declared_clear(self->declared);
    go_to(self, 0);
    return 1;
}

/* Declares the whole topology if the return exchange is missing. Otherwise the look ends: the user
 * may not look. */
static void on_not_found(bh_declaring *self, int code)
{
    self->has_ended = 1;
    if (code != NOT_FOUND)
        return;
    self->look = BH__LOOK_MEND;
    bh_declared_clear(self->declared);
    if (self->mode == BH_MODE_CREATE) {
        self->has_ended = 0;
        go_to(self, 0);
    } else {
        bh__declaring_report_look(self);
    }
}

void bh_declaring_refuse(bh_declaring *self, int code, bh_bytes text)
{
    if (!self || !self->is_pending || !text.data)
        return;
    self->is_pending = 0;
    if (self->look == BH__LOOK_BIND) { /* the exchange or the work queue is missing, or the user may not bind */
        find_exchange(self);
        return;
    }
    if (self->look == BH__LOOK_FIND) {
        on_not_found(self, code);
        return;
    }
    if (self->purpose == BH__TO_CREATE || self->purpose == BH__TO_UNBIND) {
        if (begins_again(self, code, text))
            return;
        bh__declaring_not_created(self, code, text);
        if (self->look)
            bh__declaring_report_look(self);
    } else if (self->purpose == BH__TO_COMPARE)
        bh__declaring_not_compared(self, code, text);
    else if (code == NOT_FOUND)
        bh__declaring_note_missing(self);
    else
        bh__declaring_fail(self, code, text);
    go_to(self, self->at + 1);
}
