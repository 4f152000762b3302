/* Health: the state that events lead to. */
#include "events/internal.h"

#include <backhop/adapter/duration.h>
#include <backhop/adapter/event.h>
#include <stdio.h>

bh_bytes bh_health_name(int state)
{
    static const char *const names[] = {
        [BH_HEALTH_STARTING] = "starting", [BH_HEALTH_READY] = "ready",     [BH_HEALTH_RECONNECTING] = "reconnecting",
        [BH_HEALTH_PAUSED] = "paused",     [BH_HEALTH_STOPPED] = "stopped",
    };
    return bh_str(state >= 0 && state < BH_HEALTH_LAST ? names[state] : "");
}

int bh__health_concerns(bh_event_kind kind)
{
    switch (kind) {
    case BH_EVENT_CONNECTED:
    case BH_EVENT_DISCONNECTED:
    case BH_EVENT_CANCELLED:
    case BH_EVENT_BLOCKED:
    case BH_EVENT_UNBLOCKED:
    case BH_EVENT_UNAVAILABLE:
    case BH_EVENT_DRAINED:
    case BH_EVENT_BREAKER_OPENED:
    case BH_EVENT_BREAKER_HALF_OPEN:
    case BH_EVENT_BREAKER_CLOSED:
        return 1;
    default:
        return 0;
    }
}

/* Returns the state without a consumer. */
static bh_health_state lost(const bh_health *self)
{
    return self->was_ready ? BH_HEALTH_RECONNECTING : BH_HEALTH_STARTING;
}

void bh_health_observe(bh_health *self, const bh_event *event)
{
    if (!self || !event || !bh__health_concerns(event->kind))
        return;
    if (event->kind == BH_EVENT_UNAVAILABLE && !bh_event_has(event, BH_FIELD_CONNECTION))
        return; /* it is about one message or one queue */
    if (self->state != BH_HEALTH_PAUSED)
        self->beneath = self->state;
    switch (event->kind) {
    case BH_EVENT_CONNECTED:
        self->beneath = BH_HEALTH_READY;
        self->was_ready = 1;
        break;
    case BH_EVENT_BLOCKED:
    case BH_EVENT_UNBLOCKED:
        self->is_blocked = event->kind == BH_EVENT_BLOCKED;
        break;
    case BH_EVENT_BREAKER_OPENED:
    case BH_EVENT_BREAKER_HALF_OPEN:
    case BH_EVENT_BREAKER_CLOSED:
        self->is_held = event->kind != BH_EVENT_BREAKER_CLOSED;
        break;
    case BH_EVENT_DRAINED:
        self->beneath = BH_HEALTH_STOPPED;
        self->is_blocked = self->is_held = self->was_ready = 0;
        break;
    case BH_EVENT_DISCONNECTED:
        /* A lost connection is not blocked. A worker publishes on another connection than it
         * consumes on. */
        self->is_blocked = self->is_blocked && bh__same(bh_event_string(event, BH_FIELD_CONNECTION), bh_str("consume"));
        self->beneath = lost(self);
        break;
    default:
        self->beneath = lost(self);
        break;
    }
    int is_paused = self->is_blocked || (self->is_held && self->beneath == BH_HEALTH_READY);
    self->state = is_paused ? BH_HEALTH_PAUSED : self->beneath;
    bh_bytes text = bh__cut(bh_event_text(event), BH_HEALTH_REASON_BYTES - 1);
    memcpy(self->reason, text.data, text.size);
    self->reason[text.size] = '\0';
}

bh_bytes bh_health_wait_error(const bh_health *self, int is_worker, int64_t limit_ms, char room[BH_HEALTH_WAIT_ROOM])
{
    char limit[BH_DURATION_ROOM];
    const char *who = is_worker ? "worker" : "consumer";
    if (!self)
        return bh_str("");
    const char *colon = *self->reason ? ": " : "";
    if (limit_ms < 0)
        snprintf(room, BH_HEALTH_WAIT_ROOM, "the %s has stopped and cannot become ready; %s again%s%s", who,
                 is_worker ? "run it" : "consume", colon, self->reason);
    else
        snprintf(room, BH_HEALTH_WAIT_ROOM, "the %s is not ready after %s; its state is %s%s%s", who,
                 bh_duration_text(limit_ms, limit).data, bh_health_name((int)self->state).data, colon, self->reason);
    return bh_str(room);
}
