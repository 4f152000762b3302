#include "interface/internal.h"

enum { LONG_MS = 3600000 };

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
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): a relay has no handler, and hands out no message */
    bh_outcome outcome = handler(self, message, data);
    bh__worker_settle(self, message, outcome);
    bh_message_free(message);
}

/* Until the thread has drained. */
static bh_status handle_all(bh_worker *self, bh_handler handler, bh_listener listener, void *data)
{
    bh_status status = BH_OK;
    while (status == BH_OK && atomic_load(&self->mailbox.life) == BH__RUNNING) {
        bh_message *message;
        tell_all(self, listener, data);
        status = bh_worker_take(self, &message, 0);
        if (status == BH_OK) {
            handle(self, message, handler, data);
        } else if (status != BH_ERR_FORKED) { /* nothing now, or nothing any more */
            bh__mailbox_wait(&self->mailbox, LONG_MS, 1);
            status = BH_OK;
        }
    }
    tell_all(self, listener, data);
    return status;
}

bh_status bh_worker_run(bh_worker *self, bh_handler handler, bh_listener listener, void *data)
{
    if (!self || (!handler && !self->settings.relay))
        return BH_ERR_ARGUMENT;
    bh_status status = atomic_load(&self->mailbox.life) == BH__RUNNING ? BH_OK : bh__worker_start_to_run(self);
    if (status == BH_OK)
        status = handle_all(self, handler, listener, data);
    return status == BH_OK ? bh__worker_end(self) : status;
}
