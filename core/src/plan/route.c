/*
 * Completes a plan that publishes a copy: its destination, its headers, and whether it fits the
 * frame.
 */
#include "delivery/internal.h"
#include "plan/data.h"
#include "topology/internal.h"

#include <stdio.h>

void bh__plan_address(bh_plan *self, bh_bytes exchange, bh_bytes routing_key)
{
    if (!bh__store_add(&self->store, &self->exchange, exchange) ||
        !bh__store_add(&self->store, &self->routing_key, routing_key))
        self->no_memory = 1;
}

bh_bytes bh__plan_harmless_key(bh_bytes routing_key)
{
    return bh__begins(routing_key, BH__KEY_PREFIX) ? bh_str("") : routing_key;
}

bh_status bh__plan_park_copy(bh_plan *self, const bh__plan_input *in, const char *reason)
{
    self->action = BH_ACTION_PARK;
    self->reason = reason;
    self->delay_ms = 0;
    self->is_on_demand = 0;
    self->expiration = (bh__text){0, 0};
    if (in->place == BH__PARK_OWN)
        bh__plan_address(self, bh_str(""), bh__topology_parked_queue(in->topology));
    else
        bh__plan_address(self, bh__topology_unroutable_queue(in->topology),
                         bh__plan_harmless_key(bh__delivery_routing_key(in->delivery)));
    self->header_count = 0;
    if (!bh__plan_keeps_fit(self, in->delivery))
        return BH_ERR_FRAME;
    bh__plan_set_headers(self, in);
    if (!bh__plan_make_fit(self, in)) {
        self->header_count = 0;
        bh__plan_set_least_headers(self, in);
        bh__plan_remove_unfit(self, in);
    }
    return BH_OK;
}

bh_status bh__plan_retry_copy(bh_plan *self, const bh__plan_input *in, const char *no_room)
{
    char digits[BH__DIGITS];
    bh_bytes delay = bh__decimal(digits, self->delay_ms);
    bh_bytes wait = bh__topology_wait_exchange(in->topology);
    bh_strategy strategy = bh__topology_strategy(in->topology);
    self->action = self->is_deferred ? BH_ACTION_DEFER : BH_ACTION_RETRY;
    bh__plan_address(
        self, wait,
        bh__plan_harmless_key(in->origin ? in->origin->routing_key : bh__delivery_routing_key(in->delivery)));
    if (strategy == BH_STRATEGY_LADDER) {
        char stripe[16] = "";
        int chosen = bh__random_choice(in->random.data, bh__topology_stripes(in->topology));
        if (chosen > 0)
            snprintf(stripe, sizeof stripe, ".%d", chosen + 1);
        if (!bh__store_join(&self->store, &self->exchange, wait, delay, bh_str(stripe)))
            self->no_memory = 1;
    }
    if (strategy == BH_STRATEGY_MESSAGE_TTL && !bh__store_add(&self->store, &self->expiration, delay))
        self->no_memory = 1;
    bh__plan_set_headers(self, in);
    if (strategy == BH_STRATEGY_DELAYED_EXCHANGE)
        bh__plan_set_int(self, "x-delay", self->delay_ms);
    bh__plan_set_return_key(self, in);
    return bh__plan_make_fit(self, in) ? BH_OK : bh__plan_park_copy(self, in, no_room);
}
