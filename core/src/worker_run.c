#include "worker_internal.h"

enum { LONG_MS = 3600000 };

bh_status bh_worker_take(bh_worker *self, bh_message **out, int64_t timeout_ms)
{
    if (!self || !out || timeout_ms < 0)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (bh__shared_is_forked(&self->shared))
        return BH_ERR_FORKED;
    int64_t longest_ms = timeout_ms < LONG_MS ? timeout_ms : LONG_MS;
    int64_t deadline_ms = timeout_ms ? bh__monotonic_ms() + longest_ms : 0;
    for (;;) {
        if (!bh__shared_gives(&self->shared))
            return BH_ERR_STATE;
        *out = bh__shared_take(&self->shared);
        if (*out)
            return BH_OK;
        int64_t left_ms = timeout_ms ? deadline_ms - bh__monotonic_ms() : 0;
        if (left_ms <= 0)
            return BH_ERR_TIMEOUT;
        bh__shared_wait(&self->shared, left_ms, 0);
    }
}

static void tell_all(bh_worker *self, bh_listener listener, void *data)
{
    bh_event *event;
    while (bh_worker_take_event(self, &event) == BH_OK) {
        if (listener)
            listener(self, event, data);
        bh_event_free(event);
    }
}

static void handle(bh_worker *self, bh_message *message, bh_handler handler, void *data)
{
    bh_outcome outcome = handler(self, message, data);
    bh__worker_settle(self, message, outcome);
    bh_message_free(message);
}

bh_status bh_worker_run(bh_worker *self, bh_handler handler, bh_listener listener, void *data)
{
    if (!self || !handler)
        return BH_ERR_ARGUMENT;
    bh_status status = atomic_load(&self->shared.life) == BH__RUNNING ? BH_OK : bh_worker_start(self);
    while (status == BH_OK && atomic_load(&self->shared.life) == BH__RUNNING) {
        bh_message *message;
        tell_all(self, listener, data);
        status = bh_worker_take(self, &message, 0);
        if (status == BH_OK) {
            handle(self, message, handler, data);
        } else if (status != BH_ERR_FORKED) { /* nothing now, or nothing any more */
            bh__shared_wait(&self->shared, LONG_MS, 1);
            status = BH_OK;
        }
    }
    tell_all(self, listener, data);
    return status;
}
