/* Topology: building and getters. */
#include "topology/data.h"

#include "delivery/internal.h"
#include "policy/internal.h"

#include <backhop/adapter/delivery.h>

static void clear(bh_topology *self)
{
    self->is_built = 0;
    self->selected.size = 0;
    self->store.size = 0;
    self->definitions.size = 0;
    self->count = 0;
    self->argument_count = 0;
    bh__rungs_clear(&self->rungs);
    self->worst_lateness_ms = 0;
    self->fixed_ms = self->fixed_most_ms = 0;
    self->no_memory = 0;
    self->error[0] = '\0';
    self->return_key = self->parked_queue = self->unroutable_queue = self->return_exchange = self->wait_exchange =
        (bh__text){0, 0};
}

bh_status bh_topology_build(bh_topology *self, bh_policy *policy)
{
    if (!self || !policy)
        return BH_ERR_ARGUMENT;
    clear(self);
    bh_status status = bh_policy_check(policy);
    if (status != BH_OK)
        return bh__topology_fail(self, status, bh_policy_error(policy).data);
    bh_policy *copy;
    if (bh__policy_copy(&copy, policy) != BH_OK)
        return BH_ERR_NO_MEMORY;
    bh_policy_free(self->policy);
    self->policy = copy;
    bh__topology_make_names(self);
    if (self->work_queue.count > 0 && !self->declares_work_queue && bh__topology_copies(self))
        return bh__topology_fail(
            self, BH_ERR_STRATEGY,
            "arguments are given for a work queue that this strategy does not declare: set the work queue's type "
            "too, or leave them out");
    if (self->stripes > 1 && self->strategy != BH_STRATEGY_LADDER)
        return bh__topology_fail(
            self, BH_ERR_STRATEGY,
            "stripes are for the rungs of strategy ladder, and this strategy has none: leave them out, or take "
            "strategy ladder");
    status = bh__topology_find_demand(self);
    if (status == BH_OK)
        status = bh__topology_declare_all(self);
    if (self->no_memory || !bh__topology_seal_arguments(self))
        status = BH_ERR_NO_MEMORY;
    if (status != BH_OK) {
        self->count = 0;
        bh__rungs_clear(&self->rungs);
    }
    self->is_built = status == BH_OK;
    return status;
}

bh_status bh__topology_new_part(bh_topology **out, const bh_topology *relays, bh_bytes queue, bh_policy *policy)
{
    bh_topology_settings settings = bh__topology_settings(relays);
    settings.name_space = bh__topology_namespace(relays);
    bh_status status = bh_topology_new(out, queue);
    if (status == BH_OK)
        status = bh_topology_set(*out, &settings);
    if (status == BH_OK)
        status = bh_topology_build(*out, policy);
    if (status != BH_OK) {
        bh_topology_free(*out);
        *out = NULL;
    }
    return status;
}

void bh__topology_select_own(bh_topology *self)
{
    self->selected.size = 0;
}

int bh__topology_select_queue(bh_topology *self, bh_bytes queue)
{
    self->selected.size = 0;
    int is_led = bh__store_join(&self->selected, &self->selected_queue, queue, bh_str(""), bh_str("")) &&
                 bh__store_join(&self->selected, &self->selected_key, bh_str(BH__KEY_PREFIX), queue, bh_str("")) &&
                 bh__store_join(&self->selected, &self->selected_parked, queue, bh_str(BH__PARKED_SUFFIX), bh_str(""));
    if (!is_led)
        self->selected.size = 0;
    return is_led;
}

bh_bytes bh_topology_error(const bh_topology *self)
{
    return bh_str(self ? self->error : "");
}

bh_strategy bh__topology_strategy(const bh_topology *self)
{
    return self ? self->strategy : BH_STRATEGY_LADDER;
}

/* Returns 1 if an exchange routes retries: nothing but a federation of it brings its messages from
 * another broker. */
static int routes_retries(const bh_topology *self, bh_bytes exchange)
{
    bh_bytes wait = bh__topology_wait_exchange(self), unroutable = bh__topology_unroutable_queue(self),
             back = bh__topology_return_exchange(self);
    int is_prefix = self->strategy == BH_STRATEGY_LADDER; /* each rung has an exchange */
    return (is_prefix && wait.size > 0 && bh__begins(exchange, wait.data)) ||
           (wait.size > 0 && bh__same(exchange, wait)) || (unroutable.size > 0 && bh__same(exchange, unroutable)) ||
           (back.size > 0 && bh__same(exchange, back));
}

/* Returns 1 if federation brought the message from such an exchange. RabbitMQ names each of its
 * exchanges in x-received-from, an array of tables. */
static int is_federated(const bh_topology *self, const bh_delivery *delivery)
{
    bh_value header, each;
    size_t count = bh__delivery_value_count(delivery);
    for (size_t i = 0; i < count; i = header.end) {
        bh_delivery_value(delivery, i, &header);
        if (!bh__same(header.name, bh_str("x-received-from")))
            continue;
        for (size_t j = i + 1; j < header.end; j++) {
            bh_delivery_value(delivery, j, &each);
            if (bh__same(each.name, bh_str("exchange")) && each.type == BH_TYPE_STRING &&
                routes_retries(self, each.string))
                return 1;
        }
    }
    return 0;
}

int bh_topology_owns(const bh_topology *self, const bh_delivery *delivery)
{
    bh_value header;
    bh_delivery_header(delivery, bh_str("backhop-queue"), &header);
    return self && delivery && bh__same(header.string, bh__topology_queue(self)) && !is_federated(self, delivery);
}

int bh__topology_stripes(const bh_topology *self)
{
    return self->stripes;
}

int bh__topology_is_built(const bh_topology *self)
{
    return self->is_built;
}

int bh__topology_defers(const bh_topology *self)
{
    return self && bh__topology_copies(self);
}

void bh_topology_read(const bh_topology *self, bh_topology_view *out)
{
    if (!out)
        return;
    *out = (bh_topology_view){
        .queue = bh__topology_queue(self),
        .parked_queue = bh__topology_parked_queue(self),
        .unroutable_queue = bh__topology_unroutable_queue(self),
        .worst_lateness_ms = self ? self->worst_lateness_ms : 0,
        .rungs_ms = self ? self->rungs.policy_ms : NULL,
        .rung_count = self ? self->rungs.count : 0,
        .declaration_count = bh__topology_count(self),
        .defers = bh__topology_defers(self),
        .settings = bh__topology_settings(self),
    };
}

const bh__rungs *bh__topology_rungs(const bh_topology *self)
{
    return &self->rungs;
}
