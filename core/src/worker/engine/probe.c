#include "worker/engine/probe.h"

#include "worker/engine/pacing.h"
#include "ledger/internal.h"
#include "topology/internal.h"

void bh__probe_end(bh__probe *self)
{
    self->is_open = 0;
    self->sent_ms = 0;
}

/* Returns 1 if a probe makes sense. Messages in hand show by themselves if the broker works, and
 * would be redelivered if the connections were given up. Brokers before 4.3 pause a node that
 * lost its cluster, and the other nodes may not answer for a minute. */
static int can_probe(const bh__probe *self, const bh__context *context)
{
    return context->setup.is_ready && bh__is_at_least_4_3(context) && !self->is_refused &&
           context->settings->mode != BH_MODE_NONE && bh__ledger_unsettled(context->ledger) == 0;
}

int64_t bh__probe_due_ms(const bh__probe *self, const bh__context *context)
{
    if (!can_probe(self, context))
        return INT64_MAX;
    if (!self->sent_ms)
        return context->alive_ms + BH__SILENCE_MS;
    return (self->sent_ms < context->alive_ms ? context->alive_ms : self->sent_ms) + BH__PROBE_MS;
}

static void ask(bh__probe *self, bh__context *context, int64_t now_ms)
{
    const bh_topology *topology = context->settings->topology;
    bh__link *link = &context->consume.link;
    bh_bytes exchange = bh__topology_return_exchange(topology); /* the default exchange has no bindings */
    amqp_channel_open_t open = {.out_of_band = amqp_empty_bytes};
    amqp_queue_unbind_t unbind = {.queue = bh__to_amqp(bh__topology_queue(topology)),
                                  .exchange = bh__to_amqp(exchange.size ? exchange : bh_str("amq.direct")),
                                  .routing_key = amqp_cstring_bytes("backhop-probe")};
    if (!self->is_open)
        bh__link_send(link, BH__CHANNEL_PROBE, AMQP_CHANNEL_OPEN_METHOD, &open);
    bh__link_send(link, BH__CHANNEL_PROBE, AMQP_QUEUE_UNBIND_METHOD, &unbind);
    self->is_open = 1;
    self->sent_ms = now_ms;
}

void bh__probe_check(bh__probe *self, bh__context *context)
{
    static const char text[] = "the broker did not answer within %d ms; this node may have lost its cluster";
    int64_t now_ms = bh__monotonic_ms();
    if (now_ms < bh__probe_due_ms(self, context))
        return;
    if (!self->sent_ms) {
        ask(self, context, now_ms);
        return;
    }
    bh__link_fail(&context->consume.link, BH_ERR_CONNECTION, text, BH__PROBE_MS);
    bh__link_fail(&context->publish.link, BH_ERR_CONNECTION, text, BH__PROBE_MS);
}

void bh__probe_on_frame(bh__probe *self, bh__context *context, const amqp_method_t *method)
{
    if (!method || (method->id != AMQP_QUEUE_UNBIND_OK_METHOD && method->id != AMQP_CHANNEL_CLOSE_METHOD))
        return;
    self->sent_ms = 0;
    context->alive_ms = bh__monotonic_ms();
    if (method->id == AMQP_CHANNEL_CLOSE_METHOD) {
        bh__report reason = {.size = 0};
        bh__link_answer_channel_close(&context->consume.link, BH__CHANNEL_PROBE, method->decoded, "probing", &reason);
        bh__report_free(&reason);
        self->is_open = 0;
        self->is_refused = 1;
    }
}
