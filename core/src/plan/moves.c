/*
 * Decides about messages that an operator moves: out of the parked queue, or out of a hand-made
 * wait queue.
 */
#include "delivery/internal.h"
#include "history/internal.h"
#include "plan/data.h"
#include "topology/internal.h"

/*
 * Returns 1 if the message is a retry that came back to no queue. It was not parked, and the
 * alternate exchange of the return exchange brought it to the unroutable queue. RabbitMQ keeps the
 * exchange's name then.
 */
static int is_stranded(const bh__plan_input *in)
{
    bh_bytes exchange = bh__topology_return_exchange(in->topology);
    return exchange.size > 0 && bh__same(bh__delivery_exchange(in->delivery), exchange) &&
           bh__history_past(in->history).parked.size == 0;
}

/* Takes over the counts of the history. x-delivery-count is left out: it counts reads of the
 * unroutable queue. */
static void continue_history(bh_plan *self, const bh_history *history)
{
    self->attempts = bh__history_attempts(history);
    self->deferrals = bh__history_past(history).deferrals;
    self->crashes = bh__history_counted_crashes(history);
}

bh_status bh_plan_replay(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                         const bh_topology *topology, bh_bytes random)
{
    bh__plan_input in = {
        delivery, history, NULL, topology, bh_str(""), 0, random, BH__PARK_OWN, bh__history_past(history).traceparent,
        NULL};
    bh_status status = bh__plan_begin(self, &in);
    if (status != BH_OK)
        return status;
    self->action = BH_ACTION_REPLAY;
    int goes_on = is_stranded(&in);
    if (goes_on)
        continue_history(self, history);
    bh__plan_set_replay_headers(self, &in, goes_on);
    bh_strategy strategy = bh__topology_strategy(topology);
    if (strategy == BH_STRATEGY_NATIVE) {
        bh__plan_address(self, bh_str(""), bh__topology_queue(topology));
    } else {
        bh__plan_address(self, bh__topology_return_exchange(topology),
                         bh__plan_harmless_key(bh__history_routing_key(history)));
        if (strategy != BH_STRATEGY_REJECT)
            bh__plan_set_return_key(self, &in);
    }
    return bh__plan_end(self, bh__plan_make_fit(self, &in) ? BH_OK : BH_ERR_FRAME);
}

/*
 * Finds the first exchange and routing key of a message in a hand-made wait queue.
 *
 * In this order: the headers of Backhop; the broker's x-death record of the work queue; the
 * exchange and routing key of the delivery. If the message came by the default exchange, the
 * routing key is the name of the wait queue. The result is then the name of the work queue.
 */
static bh__plan_origin find_origin(const bh__plan_input *in)
{
    const bh_history *history = in->history;
    bh_bytes queue = bh__topology_queue(in->topology);
    if (bh__delivery_header(in->delivery, bh_str("backhop-routing-key")))
        return (bh__plan_origin){bh__history_exchange(history), bh__history_routing_key(history)};
    bh_death death;
    for (size_t i = 0; bh_history_death(history, i, &death) == BH_OK; i++) {
        if (bh__same(death.queue, queue) && death.routing_key_count > 0 &&
            death.exchange.size <= BH__SHORT_STRING_BYTES && death.routing_keys[0].size <= BH__SHORT_STRING_BYTES)
            return (bh__plan_origin){death.exchange, death.routing_keys[0]};
    }
    bh_bytes exchange = bh__delivery_exchange(in->delivery);
    return (bh__plan_origin){exchange, exchange.size > 0 ? bh__delivery_routing_key(in->delivery) : queue};
}

bh_status bh__plan_adopt(bh_plan *self, const bh_delivery *delivery, const bh_history *history, const bh_policy *policy,
                         const bh_topology *topology, int64_t now_ms, bh_bytes random)
{
    const bh_past past = bh__history_past(history);
    bh__plan_input in = {.delivery = delivery,
                         .history = history,
                         .policy = policy,
                         .topology = topology,
                         .error = past.last_error.size > 0 ? past.last_error
                                                           : bh_str("not known: it failed before Backhop took it over"),
                         .now_ms = now_ms,
                         .random = random,
                         .place = BH__PARK_OWN,
                         .traceparent = past.traceparent};
    bh_status status = bh__plan_begin_decision(self, &in);
    if (status != BH_OK)
        return status;
    if (!bh__topology_copies(topology))
        return bh__plan_end(self, BH_ERR_STRATEGY);
    int is_counted = (past.source == BH_SOURCE_BACKHOP || past.source == BH_SOURCE_LEGACY) && self->attempts > 0;
    if (!is_counted)
        self->attempts = bh__plan_failed_once_more(self);
    bh__plan_origin first = find_origin(&in);
    in.origin = &first;
    return bh__plan_end(self, bh__plan_decide_failure(self, &in, 0));
}
