/* The texts of events. */
#include "events/internal.h"

static bh_bytes unavailable_text(bh_bytes connection)
{
    if (bh__same(connection, bh_str("publish")))
        return bh_str("there is no channel to publish on: copies wait, and their originals are unacknowledged");
    return bh_str(bh__same(connection, bh_str("consume")) ? "the queue cannot be consumed: it is tried again" : "");
}

static bh_bytes replayed_text(bh_status status)
{
    switch (status) {
    case BH_ERR_CONTENT:
        return bh_str("a message can be neither read nor copied: it stays parked");
    case BH_ERR_CONNECTION:
        return bh_str("the connection was lost: the remaining messages stay parked");
    case BH_ERR_PUBLISH:
        return bh_str("no copy can be published: the remaining messages stay parked");
    default:
        return bh_str("");
    }
}

static bh_bytes stale_text(bh_status status)
{
    switch (status) {
    case BH_ERR_STATE:
        return bh_str("its handler ended after the worker had stopped: the broker delivers it again; give handlers "
                      "more time to drain");
    case BH_ERR_CANCELLED:
        return bh_str("its handler was aborted by a stop: it goes back to its queue, and this was no attempt");
    default:
        return bh_str("it was not settled before its channel or connection ended: the broker delivers it again");
    }
}

static bh_bytes cancelled_text(bh_status status)
{
    switch (status) {
    case BH_ERR_CANCELLED:
        return bh_str("the broker cancelled the consumer: its queue was deleted or is not available, or a message was "
                      "held longer than the consumer timeout; it consumes again");
    case BH_ERR_STATE:
        return bh_str("a handler ended the program: the consumer stops");
    default:
        return bh_str("the consumer has ended: it consumes again");
    }
}

bh_bytes bh__event_standard_text(const bh_event *self)
{
    switch (self->kind) {
    case BH_EVENT_REPLAYED:
        return replayed_text((bh_status)bh_event_int(self, BH_FIELD_STATUS));
    case BH_EVENT_REFUSED:
        return bh_str("it can be neither read nor copied: it stays unacknowledged for a while, and then comes again");
    case BH_EVENT_STALE:
        return stale_text((bh_status)bh_event_int(self, BH_FIELD_STATUS));
    case BH_EVENT_DISCONNECTED:
        return bh_str(bh_event_has(self, BH_FIELD_DURATION)
                          ? "a handler blocked the event loop for longer than the heartbeat, so the connection was "
                            "lost: the broker redelivers all unacknowledged messages; move long computations to a "
                            "thread or a process"
                          : "the connection was lost: the broker redelivers all unacknowledged messages");
    case BH_EVENT_UNAVAILABLE:
        return unavailable_text(bh_event_string(self, BH_FIELD_CONNECTION));
    case BH_EVENT_BLOCKED:
        return bh_str("the broker takes no publishes: memory or disk run low");
    case BH_EVENT_UNBLOCKED:
        return bh_str("the broker takes publishes again");
    case BH_EVENT_CANCELLED:
        return cancelled_text((bh_status)bh_event_int(self, BH_FIELD_STATUS));
    case BH_EVENT_BUSY:
        return bh_str("all handlers were busy for longer than their time limit, and no other message was handled; find "
                      "the call that blocks them");
    case BH_EVENT_EARLY:
        return bh_str(
            "retries came back before their time: a policy of RabbitMQ shortens the TTL of wait queues, or the "
            "clocks of hosts differ; run backhop doctor --management");
    case BH_EVENT_MISSED:
        return bh_str("events were not taken in time, and are gone");
    case BH_EVENT_DRAINED:
        return bh_str(
            bh_event_int(self, BH_FIELD_STATUS) == BH_ERR_TIMEOUT
                ? "messages were not settled, or their copies not confirmed, before the limit: they go back to "
                  "the queue"
                : "");
    default:
        return bh_str("");
    }
}

bh_bytes bh__event_own_text(const bh_event *self)
{
    return bh_event_has(self, BH_FIELD_TEXT) ? bh_event_string(self, BH_FIELD_TEXT) : bh__event_standard_text(self);
}

bh_bytes bh_event_text(const bh_event *self)
{
    const bh_field others[] = {BH_FIELD_REASON, BH_FIELD_ERROR};
    if (!self)
        return bh_str("");
    bh_bytes text = bh__event_own_text(self);
    for (size_t i = 0; text.size == 0 && i < sizeof others / sizeof others[0]; i++)
        text = bh_event_string(self, others[i]);
    return text;
}
