#include "worker/interface/internal.h"

#include "base/traceparent.h"
#include "plan/internal.h"
#include "policy/internal.h"
#include "topology/internal.h"
#include "worker/engine/decision.h"

#include <backhop/adapter/event.h>
#include <stdlib.h>

/* Reserves the message for this caller. Returns 0 if it is settled, or another caller settles it
 * now. */
static int claim(bh_message *message)
{
    int open = BH__OPEN;
    return atomic_compare_exchange_strong(&message->settling, &open, BH__BEING_SETTLED);
}

static int is_outcome(bh_outcome outcome)
{
    return outcome == BH_OUTCOME_OK || outcome == BH_OUTCOME_FAILED || outcome == BH_OUTCOME_PERMANENT ||
           outcome == BH_OUTCOME_DROPPED || outcome == BH_OUTCOME_RELEASED || outcome == BH_OUTCOME_THROTTLED ||
           outcome == BH_OUTCOME_DEFERRED;
}

static int is_text(bh_bytes bytes)
{
    return bytes.data || !bytes.size;
}

bh_status bh__worker_check_settlement(const bh_worker *self, const bh_settlement *settlement)
{
    bh_bytes traceparent = settlement->traceparent;
    if (!is_outcome(settlement->outcome) || !is_text(settlement->error) || !is_text(settlement->error_class) ||
        !is_text(traceparent) || (traceparent.size && !bh__is_traceparent(traceparent)))
        return BH_ERR_ARGUMENT;
    if (settlement->outcome == BH_OUTCOME_DEFERRED && !bh__topology_defers(self->settings.topology))
        return BH_ERR_STRATEGY;
    return settlement->policy && !bh__topology_serves(self->settings.topology, settlement->policy)
               ? BH_ERR_FOREIGN_POLICY
               : BH_OK;
}

/* Copies the settlement into a message that this caller claimed. */
static bh_status record_settlement(bh_message *message, const bh_settlement *settlement)
{
    bh_policy *policy = NULL;
    bh_status status = settlement->policy ? bh__policy_copy(&policy, settlement->policy) : BH_OK;
    if (status == BH_OK)
        status = bh__message_set_error(message, settlement->error);
    if (status == BH_OK)
        status = bh__message_set_error_class(message, settlement->error_class);
    if (status != BH_OK) {
        bh_policy_free(policy);
        return status;
    }
    message->policy = policy;
    message->outcome = settlement->outcome;
    message->retry_after_ms = settlement->retry_after_ms;
    bh__keep(&(char *){message->traceparent}, settlement->traceparent);
    return BH_OK;
}

/* Hands a claimed message to the thread. BH_ERR_STATE if the thread takes no more messages. */
static bh_status hand_over(bh_worker *self, bh_message *message)
{
    if (message->taken_us)
        message->taken_us = bh__monotonic_us() - message->taken_us;
    bh__message_keep(message);
    atomic_store(&message->settling, BH__SETTLED);
    if (bh__mailbox_settle(&self->mailbox, message))
        return BH_OK;
    bh_message_free(message);
    return BH_ERR_STATE;
}

/* Turns a success after the time limit, and a release without a stop, into a failure. */
static void apply_limits(const bh_worker *self, const bh_message *message, bh_settlement *settlement, char *room)
{
    int64_t duration_ms = message->taken_us ? (bh__monotonic_us() - message->taken_us) / 1000 : 0;
    bh_bytes text = bh_overrun_text(settlement->outcome, duration_ms, self->settings.handler_timeout_ms, room);
    if (text.size) {
        settlement->outcome = BH_OUTCOME_FAILED;
        settlement->error = text;
        settlement->error_class = bh_str("TimeoutError");
    } else if (settlement->outcome == BH_OUTCOME_RELEASED && atomic_load(&self->mailbox.stop_ms) == BH__NEVER) {
        settlement->outcome = BH_OUTCOME_FAILED;
        if (!settlement->error.size)
            settlement->error = bh_str("the handler was aborted, and the worker was not stopped");
    }
}

static void record_call(const bh_worker *self, const bh_message *message, const bh_settlement *settlement)
{
    bh__mailbox_record(&self->mailbox, message,
                       (bh_call){.kind = bh_call_kind_of(settlement->outcome, !settlement->is_own_fault),
                                 .retry_after_ms = settlement->retry_after_ms,
                                 .whole_queue = settlement->whole_queue,
                                 .error_class = settlement->error_class});
}

bh_status bh__worker_settle(bh_worker *self, bh_message *message, const bh_settlement *settlement)
{
    if (atomic_load(&self->mailbox.life) != BH__RUNNING || !claim(message))
        return BH_ERR_STATE;
    bh_settlement kept = *settlement;
    char room[BH_OVERRUN_ROOM];
    apply_limits(self, message, &kept, room);
    bh_status status = record_settlement(message, &kept);
    if (status == BH_OK) {
        record_call(self, message, &kept);
        return hand_over(self, message);
    }
    atomic_store(&message->settling, BH__OPEN);
    return status;
}

bh_status bh_worker_settle(bh_worker *self, bh_message *message, const bh_settlement *settlement)
{
    bh_status status = settlement ? bh__worker_check(self, message) : BH_ERR_ARGUMENT;
    if (status == BH_OK)
        status = bh__worker_check_settlement(self, settlement);
    return status == BH_OK ? bh__worker_settle(self, message, settlement) : status;
}

int bh_worker_may_park(bh_worker *self, const bh_message *message, const bh_settlement *settlement)
{
    if (!settlement || bh__worker_check(self, message) != BH_OK)
        return 0;
    const bh_policy *policy = settlement->policy ? settlement->policy : self->settings.policy;
    bh__mailbox *mailbox = &self->mailbox;
    pthread_mutex_lock(&mailbox->reading);
    int may = bh__read_message(&self->settings, message, mailbox->delivery, mailbox->history) == BH_OK &&
              bh__plan_may_park(mailbox->history, policy, self->settings.topology, settlement->outcome,
                                settlement->retry_after_ms, bh__epoch_ms());
    pthread_mutex_unlock(&mailbox->reading);
    return may;
}
