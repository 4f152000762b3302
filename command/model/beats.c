/* Beats: heartbeats, by the caller's clock. The model's own may skip, and a client's does not. */
#include "model/closing.h"
#include "model/output.h"

static int has_beats(const model_link *link)
{
    return link->heartbeat_s > 0 && link->stage < MODEL_CLOSED && !link->is_broken;
}

/* RabbitMQ sends one after half the time, and gives up after twice the time. It does not read from
 * a connection that an alarm blocks, so it does not give that one up. */
static int64_t silent_ms(const model_link *link)
{
    return !model_reads(link) ? INT64_MAX : model_later(link->received_ms, 2000 * (int64_t)link->heartbeat_s);
}

static int64_t due_ms(const model_link *link)
{
    return model_later(link->sent_ms, 500 * (int64_t)link->heartbeat_s);
}

int64_t model_next_beat_ms(const model *self)
{
    int64_t next_ms = INT64_MAX;
    for (const model_link *link = self->links; link; link = link->next) {
        if (!has_beats(link))
            continue;
        if (!link->has_beat)
            return self->wall_ms; /* at once, to learn the time */
        next_ms = model_earlier(next_ms, model_earlier(silent_ms(link), due_ms(link)));
    }
    return next_ms;
}

static void beat(model_link *link, int64_t wall_ms)
{
    if (link->has_received || !link->has_beat || !model_reads(link))
        link->received_ms = wall_ms;
    if (link->has_sent || !link->has_beat)
        link->sent_ms = wall_ms;
    link->has_beat = 1;
    link->has_received = link->has_sent = 0;
    if (silent_ms(link) <= wall_ms) {
        link->is_broken = 1;
        model_end_link(link);
    } else if (due_ms(link) <= wall_ms) {
        model_send_heartbeat(link);
        link->sent_ms = wall_ms;
        link->has_sent = 0;
    }
}

void model_beat(model *self, int64_t wall_ms)
{
    self->wall_ms = wall_ms;
    for (model_link *link = self->links; link; link = link->next)
        if (has_beats(link))
            beat(link, wall_ms);
    model_run(self);
}
