#include "worker/interface/internal.h"

#include "history/internal.h"
#include "worker/engine/pacing.h"
#include "worker/wire/schedule.h"

enum {
    LONG_MS = 3600000,
    STACK_BYTES = 8388608 /* librabbitmq decodes tables by recursion: a frame of nested tables takes up to 3 MiB */
};

/* ------------------------------------------------------------------------------- start and stop */

static int start_thread(bh_worker *self)
{
    self->mailbox.has_thread = bh__thread_start(&self->mailbox.thread, STACK_BYTES, bh__runner_thread, &self->runner);
    return self->mailbox.has_thread;
}

void bh__worker_join(bh_worker *self)
{
    if (self->mailbox.has_thread)
        bh__thread_join(self->mailbox.thread);
    self->mailbox.has_thread = 0;
}

static bh_status start(bh_worker *self, int fails_fast)
{
    bh_status status = bh__worker_may_set(self);
    if (status != BH_OK)
        return status;
    if (self->settings.uri_count == 0)
        return bh__worker_refuse(self, BH_ERR_STATE, "there is no broker to connect to: add a URI first");
    bh__worker_join(self); /* of the last run */
    self->settings.fails_fast = self->fail_fast < 0 ? fails_fast : self->fail_fast;
    status = bh__history_copy_settings(self->runner.context->work.history, self->settings.reading);
    if (status == BH_OK)
        status = bh__history_copy_settings(self->mailbox.history, self->settings.reading);
    if (status == BH_OK)
        status = bh__runner_begin(&self->runner);
    if (status != BH_OK)
        return bh__worker_refuse(
            self, status, status == BH_ERR_STATE ? "the system gives no random bytes" : "no memory for the worker");
    if (atomic_load(&self->mailbox.life) ==
        BH__DRAINED) /* a stop of the last run is over; a stop before the first run counts */
        atomic_store(&self->mailbox.stop_ms, BH__NEVER);
    self->mailbox.breaker = self->settings.breaker;
    self->mailbox.handler_timeout_ms = self->settings.relay ? 0 : self->settings.handler_timeout_ms;
    self->mailbox.wake_count =
        self->settings.prefetch < BH__MANY_OF_PREFETCH ? 1 : (size_t)self->settings.prefetch / BH__MANY_OF_PREFETCH;
    if (!bh__mailbox_open(&self->mailbox))
        return bh__worker_refuse(self, BH_ERR_NO_MEMORY, "the system gives no descriptors");
    atomic_store(&self->mailbox.life, BH__RUNNING);
    if (start_thread(self))
        return BH_OK;
    bh__mailbox_end(&self->mailbox);
    self->mailbox.health.state = BH_HEALTH_STOPPED;
    atomic_store(&self->mailbox.life, BH__IDLE);
    return bh__worker_refuse(self, BH_ERR_NO_MEMORY, "the system gives no thread");
}

bh_status bh_worker_start(bh_worker *self)
{
    return start(self, 0);
}

bh_status bh_worker_stop(bh_worker *self, int64_t limit_ms)
{
    if (!self || limit_ms < 0 || limit_ms > BH__LONGEST_TIMEOUT_MS)
        return BH_ERR_ARGUMENT;
    if (bh__mailbox_is_forked(&self->mailbox))
        return BH_ERR_FORKED;
    if (atomic_load(&self->mailbox.life) != BH__DRAINED) {
        atomic_store(&self->mailbox.stop_ms, bh__monotonic_ms() + limit_ms);
        bh__mailbox_wake(&self->mailbox);
    }
    return BH_OK;
}

bh_status bh_worker_replay(bh_worker *self, int64_t most)
{
    if (!self || most < 0)
        return BH_ERR_ARGUMENT;
    if (bh__mailbox_is_forked(&self->mailbox))
        return BH_ERR_FORKED;
    if (self->settings.relay || atomic_load(&self->mailbox.life) != BH__RUNNING ||
        !bh__mailbox_request_replay(&self->mailbox, most))
        return BH_ERR_STATE;
    bh__mailbox_wake(&self->mailbox);
    return BH_OK;
}

/* ------------------------------------------------------------------------------------------ run */

static void deliver_events(bh_worker *self, bh_listener listener, void *data)
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
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): a relay has no handler, and hands out no
     * message */
    bh_settlement settlement = {.outcome = handler(self, message, data)};
    bh_status status = bh__worker_check_settlement(self, &settlement);
    if (status != BH_OK) {
        settlement.error =
            bh_str(status == BH_ERR_STRATEGY ? "the handler returned BH_OUTCOME_DEFERRED, and the strategy "
                                               "has no queue where the message could wait"
                                             : "the handler returned a value that is no bh_outcome");
        settlement.outcome = BH_OUTCOME_FAILED;
    }
    bh__worker_settle(self, message, &settlement); /* BH_ERR_STATE if the handler settled it */
    bh_message_free(message);
}

/* Handles messages and events until the thread has drained. */
static bh_status handle_all(bh_worker *self, bh_handler handler, bh_listener listener, void *data)
{
    bh_status status = BH_OK;
    while (status == BH_OK && atomic_load(&self->mailbox.life) == BH__RUNNING) {
        bh_message *message;
        deliver_events(self, listener, data);
        status = bh_worker_take(self, &message, 0);
        if (status == BH_OK) {
            handle(self, message, handler, data);
        } else if (status != BH_ERR_FORKED) { /* no message yet, or no more */
            bh__mailbox_wait(&self->mailbox, LONG_MS, 1);
            status = BH_OK;
        }
    }
    deliver_events(self, listener, data);
    return status;
}

/* Waits for the end of the thread, which has drained. Returns BH_OK, or why the run failed. */
static bh_status finish(bh_worker *self)
{
    bh__worker_join(self);
    bh__mailbox_unwatch(&self->mailbox);
    if (!self->runner.has_given_up)
        return BH_OK;
    const bh__report *problem = &self->runner.problem;
    return bh__report_set(&self->report, problem->status, "%s", bh__report_text(problem).data);
}

bh_status bh_worker_run(bh_worker *self, bh_handler handler, bh_listener listener, void *data)
{
    if (!self || (!handler && !self->settings.relay))
        return BH_ERR_ARGUMENT;
    bh_status status = atomic_load(&self->mailbox.life) == BH__RUNNING ? BH_OK : start(self, 1);
    if (status == BH_OK)
        status = handle_all(self, handler, listener, data);
    return status == BH_OK ? finish(self) : status;
}
