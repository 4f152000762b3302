/* Names: what a topology calls its queues and exchanges. The lowest of its files. */
#include "topology/data.h"

#include <stdio.h>

bh_status bh__topology_fail(bh_topology *self, bh_status status, const char *sentence)
{
    snprintf(self->error, sizeof self->error, "%s", sentence);
    return status;
}

bh_bytes bh__topology_text(const bh_topology *self, bh__text text)
{
    return self ? bh__store_get(&self->store, text) : bh_str("");
}

bh_bytes bh__default_namespace(const bh_topology *self)
{
    return bh_str(self->queue_type == BH_QUEUE_QUORUM ? "backhop" : "backhop.classic");
}

bh_bytes bh__topology_namespace(const bh_topology *self)
{
    bh_bytes name = bh__store_get(&self->settings, self->name_space);
    return name.size ? name : bh__default_namespace(self);
}

bh_bytes bh__topology_own_queue(const bh_topology *self)
{
    return bh__store_get(&self->settings, self->queue);
}

bh_bytes bh__topology_queue(const bh_topology *self)
{
    if (self && self->selected.size)
        return bh__store_get(&self->selected, self->selected_queue);
    return self ? bh__topology_own_queue(self) : bh_str("");
}

bh_bytes bh__topology_parked_queue(const bh_topology *self)
{
    if (self && self->selected.size)
        return bh__store_get(&self->selected, self->selected_parked);
    return bh__topology_text(self, self ? self->parked_queue : (bh__text){0, 0});
}

bh_bytes bh__topology_unroutable_queue(const bh_topology *self)
{
    return bh__topology_text(self, self ? self->unroutable_queue : (bh__text){0, 0});
}

int bh__topology_copies(const bh_topology *self)
{
    return self->strategy != BH_STRATEGY_REJECT && self->strategy != BH_STRATEGY_NATIVE;
}

bh_bytes bh__topology_return_key(const bh_topology *self)
{
    if (self->selected.size)
        return bh__store_get(&self->selected, self->selected_key);
    return bh__topology_text(self, self->return_key);
}

bh_bytes bh__topology_return_exchange(const bh_topology *self)
{
    return bh__topology_text(self, self->return_exchange);
}

bh_bytes bh__topology_wait_exchange(const bh_topology *self)
{
    return bh__topology_text(self, self->wait_exchange);
}
