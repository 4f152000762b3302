#include "worker/interface/internal.h"

#include "history/internal.h"
#include "worker/engine/decision.h"

enum { LONGEST_WAIT_MS = 3600000 };

int bh_worker_fd(bh_worker *self)
{
    return self && !bh__mailbox_is_forked(&self->mailbox) ? bh__mailbox_watch(&self->mailbox) : -1;
}

void bh_worker_close_fd(bh_worker *self)
{
    if (self && !bh__mailbox_is_forked(&self->mailbox))
        bh__mailbox_unwatch(&self->mailbox);
}

/* Records when a message was taken, and emits BH_EVENT_DELIVERED, if these are observed. */
static void note_taken(bh_worker *self, bh_message *message)
{
    const bh__context *context = self->runner.context;
    bh__mailbox *mailbox = &self->mailbox;
    if (self->settings.handler_timeout_ms || bh__is_observed(context, BH_EVENT_SUCCEEDED) ||
        bh__is_observed(context, BH_EVENT_FAILED) || bh__is_observed(context, BH_EVENT_DROPPED))
        message->taken_us = bh__monotonic_us();
    if (!bh__is_observed(context, BH_EVENT_DELIVERED))
        return;
    pthread_mutex_lock(&mailbox->reading);
    if (bh__read_message(&self->settings, message, mailbox->delivery, mailbox->history) == BH_OK)
        bh__emit(context,
                 (bh__event_data){.kind = BH_EVENT_DELIVERED, .message = message, .history = mailbox->history});
    pthread_mutex_unlock(&mailbox->reading);
}

bh_status bh_worker_take(bh_worker *self, bh_message **out, int64_t timeout_ms)
{
    if (!self || !out || timeout_ms < 0)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (bh__mailbox_is_forked(&self->mailbox))
        return BH_ERR_FORKED;
    int64_t longest_ms = timeout_ms < LONGEST_WAIT_MS ? timeout_ms : LONGEST_WAIT_MS;
    int64_t deadline_ms = timeout_ms ? bh__monotonic_ms() + longest_ms : 0;
    for (;;) {
        if (!bh__mailbox_is_delivering(&self->mailbox))
            return BH_ERR_STATE;
        *out = bh__mailbox_take(&self->mailbox);
        if (*out) {
            note_taken(self, *out);
            return BH_OK;
        }
        int64_t remaining_ms = timeout_ms ? deadline_ms - bh__monotonic_ms() : 0;
        if (remaining_ms <= 0)
            return BH_ERR_TIMEOUT;
        bh__mailbox_wait(&self->mailbox, remaining_ms, 0);
    }
}

bh_status bh_worker_take_event(bh_worker *self, bh_event **out)
{
    if (!self || !out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (bh__mailbox_is_forked(&self->mailbox))
        return BH_ERR_FORKED;
    *out = bh__mailbox_take_event(&self->mailbox);
    return *out ? BH_OK : BH_ERR_TIMEOUT;
}

bh_status bh_worker_read(bh_worker *self, const bh_message *message, bh_delivery *delivery, bh_history *history)
{
    bh_status status = bh__worker_check(self, message);
    if (status == BH_OK && !delivery)
        status = BH_ERR_ARGUMENT;
    if (status == BH_OK && history)
        status = bh__history_copy_settings(history, self->settings.reading);
    return status == BH_OK ? bh__read_message(&self->settings, message, delivery, history) : status;
}

int64_t bh_worker_attempt(bh_worker *self, const bh_message *message)
{
    if (bh__worker_check(self, message) != BH_OK)
        return 0;
    bh__mailbox *mailbox = &self->mailbox;
    pthread_mutex_lock(&mailbox->reading);
    bh_status status = bh__read_message(&self->settings, message, mailbox->delivery, mailbox->history);
    int64_t attempt = status == BH_OK ? bh__history_attempts(mailbox->history) + 1 : 0;
    pthread_mutex_unlock(&mailbox->reading);
    return attempt;
}
