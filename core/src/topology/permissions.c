/* Permissions: the least that a consumer of a work queue needs on the broker. */
#include "topology/data.h"

#include <backhop/adapter/declaring.h>

/* Appends a name as an alternative of a regular expression (PCRE). */
static void add_escaped(bh__report *out, bh_bytes name)
{
    for (size_t i = 0; i < name.size; i++)
        bh__report_add(out, strchr("\\^$.|?+()[]{}*#", name.data[i]) ? "\\%c" : "%c", name.data[i]);
}

enum { MOST_NAMES = 32 }; /* beyond these a name may stand twice */

/* A regular expression, and the names in it. They point into the topology. */
typedef struct pattern {
    bh__report *out;
    bh_bytes names[MOST_NAMES];
    size_t count;
} pattern;

static void begin(bh__report *out)
{
    bh__report_add(out, out->size ? "|" : "^(");
}

/* Appends a name, unless it is there. */
static void add_name(pattern *self, bh_bytes name)
{
    for (size_t i = 0; i < self->count; i++)
        if (bh__same(self->names[i], name))
            return;
    if (self->count < MOST_NAMES)
        self->names[self->count++] = name;
    begin(self->out);
    add_escaped(self->out, name);
}

/* Appends all rungs at once: their names differ in digits. */
static void add_rungs(pattern *to, const bh_topology *self)
{
    begin(to->out);
    add_escaped(to->out, bh__topology_text(self, self->wait_exchange));
    bh__report_add(to->out, "[0-9.]+");
}

/* RabbitMQ checks write on an alternate exchange and on a dead letter exchange, and read on the
 * exchange or queue. */
static void add_arguments(pattern *to, const bh_declaration *it, bh__permission permission, int is_rung)
{
    for (size_t i = 0; i < it->argument_count; i++) {
        const bh_argument *each = &it->arguments[i];
        if (!bh__same(each->name, bh_str("alternate-exchange")) &&
            !bh__same(each->name, bh_str("x-dead-letter-exchange")))
            continue;
        if (permission == BH__PERMISSION_WRITE)
            add_name(to, each->string);
        else if (!is_rung)
            add_name(to, it->name);
    }
}

static void add_declaration(pattern *to, const bh_declaration *it, bh__permission permission, int is_rung)
{
    if (it->kind != BH_DECLARE_BINDING && permission != BH__PERMISSION_CONFIGURE)
        add_arguments(to, it, permission, is_rung);
    if (is_rung)
        return;
    if (it->kind != BH_DECLARE_BINDING && permission == BH__PERMISSION_CONFIGURE)
        add_name(to, it->name);
    else if (it->kind == BH_DECLARE_BINDING && permission != BH__PERMISSION_CONFIGURE)
        add_name(to, permission == BH__PERMISSION_WRITE ? it->name : it->source);
}

static void add_declarations(pattern *to, const bh_topology *self, bh__permission permission)
{
    int is_ladder = self->strategy == BH_STRATEGY_LADDER;
    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(self, i, &each) == BH_OK; i++)
        add_declaration(to, &each, permission, is_ladder && each.rung_ms > 0);
    if (is_ladder && permission != BH__PERMISSION_WRITE) /* a consumer declares and binds rungs */
        add_rungs(to, self);
}

/* From 4.3 on RabbitMQ requires any permission for a passive declaration. Write alone lets no
 * message be read or deleted. */
static void add_verified(pattern *to, const bh_topology *self)
{
    bh_declaration each;
    for (size_t i = 0; bh_topology_declaration(self, i, &each) == BH_OK; i++)
        if (each.kind != BH_DECLARE_BINDING && !(self->strategy == BH_STRATEGY_LADDER && each.rung_ms > 0) &&
            !bh__same(each.name, bh__topology_queue(self)))
            add_name(to, each.name);
}

/* Copies go to the wait exchanges; parked messages to the default exchange. */
static void add_publishing(pattern *to, const bh_topology *self)
{
    add_name(to, bh_str("amq.default"));
    if (self->strategy == BH_STRATEGY_LADDER)
        add_rungs(to, self);
    else if (self->strategy == BH_STRATEGY_MESSAGE_TTL || self->strategy == BH_STRATEGY_DELAYED_EXCHANGE)
        add_name(to, bh__topology_text(self, self->wait_exchange));
}

bh_bytes bh__topology_permission(bh_topology *self, bh_mode mode, bh__permission permission)
{
    if (!self || !self->is_built || (int)mode < BH_MODE_CREATE || mode > BH_MODE_NONE ||
        (int)permission < BH__PERMISSION_CONFIGURE || permission > BH__PERMISSION_READ)
        return bh_str("");
    bh__report *out = &self->permission;
    bh__report_clear(out);
    pattern made = {.out = out};
    if (mode == BH_MODE_CREATE)
        add_declarations(&made, self, permission);
    else if (mode == BH_MODE_VERIFY && permission == BH__PERMISSION_WRITE)
        add_verified(&made, self);
    if (permission == BH__PERMISSION_READ)
        add_name(&made, bh__topology_queue(self));
    else if (permission == BH__PERMISSION_WRITE)
        add_publishing(&made, self);
    bh__report_add(out, out->size ? ")$" : "^$");
    return (bh_bytes){out->text ? out->text : "", out->size};
}
