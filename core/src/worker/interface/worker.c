#include "interface/internal.h"

#include "engine/decision.h"
#include "engine/pacing.h"

#include "history_internal.h"
#include "metrics_internal.h"
#include "plan_internal.h"
#include "policy_internal.h"
#include "relay_internal.h"
#include "topology_internal.h"
#include "traceparent.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    PREFETCH = 100,
    RELAY_PREFETCH = 1000,
    CONNECT_TIMEOUT_MS = 10000,
    CONFIRM_TIMEOUT_MS = 30000,
    LONGEST_TIMEOUT_MS = 3600000,
    LONGEST_WAIT_MS = 3600000,
    BACK_OFF_INITIAL_MS = 100,
    BACK_OFF_MAX_MS = 10000,
    STACK_BYTES = 8388608 /* librabbitmq decodes tables by recursion: a frame of them nested takes up to 3 MiB */
};

/* ---------------------------------------------------------------------------------------------------- new and free */

static bh_status make_back_off(bh_policy **out)
{
    bh_status status = bh_policy_new(out);
    if (status == BH_OK)
        status = bh_policy_set_initial_ms(*out, BACK_OFF_INITIAL_MS);
    if (status == BH_OK)
        status = bh_policy_set_max_ms(*out, BACK_OFF_MAX_MS);
    if (status == BH_OK)
        status = bh_policy_set_jitter(*out, BH_JITTER_EQUAL, 0);
    return status;
}

static bh_status make(bh_worker *self, const bh_policy *policy, const bh_topology *topology)
{
    bh__settings *settings = &self->settings;
    settings->mode = BH_MODE_CREATE;
    settings->prefetch = PREFETCH;
    settings->connect_timeout_ms = CONNECT_TIMEOUT_MS;
    settings->confirm_timeout_ms = CONFIRM_TIMEOUT_MS;
    for (int kind = 0; kind < BH_EVENT_LAST; kind++)
        settings->told |= bh_event_is_of_each(kind) ? 0 : 1U << kind;
    self->fail_fast = -1;
    bh_status status = bh__mailbox_init(&self->mailbox) ? BH_OK : BH_ERR_NO_MEMORY;
    bh_status made = bh__runner_init(&self->runner, self, settings, &self->mailbox);
    if (status == BH_OK)
        status = made;
    if (status == BH_OK)
        status = bh__policy_copy(&settings->policy, policy);
    if (status == BH_OK)
        status = bh__topology_copy(&settings->topology, topology);
    if (status == BH_OK)
        status = make_back_off(&settings->back_off);
    if (status == BH_OK)
        status = bh_history_new(&settings->reading);
    return status;
}

bh_status bh_worker_new(bh_worker **out, const bh_policy *policy, const bh_topology *topology)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!policy || !topology)
        return BH_ERR_ARGUMENT;
    if (!bh__topology_is_built(topology))
        return BH_ERR_STATE;
    if (!bh__topology_serves(topology, policy))
        return BH_ERR_FOREIGN_POLICY;
    bh_worker *self = calloc(1, sizeof *self);
    if (!self)
        return BH_ERR_NO_MEMORY;
    bh_status status = make(self, policy, topology);
    if (status != BH_OK) {
        bh_worker_free(self);
        return status;
    }
    *out = self;
    return BH_OK;
}

bh_status bh_worker_new_relay(bh_worker **out, const bh_relay *relay)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!relay)
        return BH_ERR_ARGUMENT;
    if (!relay->is_built)
        return BH_ERR_STATE;
    bh_status status = bh_worker_new(out, relay->served[0].policy, relay->topology);
    if (status != BH_OK)
        return status;
    (*out)->settings.prefetch = RELAY_PREFETCH;
    status = bh__relay_copy(&(*out)->settings.relay, relay);
    if (status == BH_OK)
        return BH_OK;
    bh_worker_free(*out);
    *out = NULL;
    return status;
}

static void join(bh_worker *self)
{
    if (self->mailbox.has_thread)
        pthread_join(self->mailbox.thread, NULL);
    self->mailbox.has_thread = 0;
}

/* What the thread was changing when the process forked cannot be walked here: the child's end frees it. */
static void close_in_child(const bh_worker *self)
{
    const bh__context *context = &self->runner.engine.context;
    const int descriptors[] = {context->consume.link.socket.fd, context->publish.link.socket.fd,
                               self->mailbox.signal[0],         self->mailbox.signal[1],
                               self->mailbox.wake[0],           self->mailbox.wake[1]};
    for (size_t i = 0; i < sizeof descriptors / sizeof descriptors[0]; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
}

static void free_settings(bh__settings *self)
{
    for (size_t i = 0; i < self->uri_count; i++)
        bh__uri_free(&self->uris[i]);
    free(self->uris);
    free(self->ca_file);
    bh_relay_free(self->relay);
    bh_policy_free(self->policy);
    bh_topology_free(self->topology);
    bh_policy_free(self->back_off);
    bh_history_free(self->reading);
}

void bh_worker_free(bh_worker *self)
{
    if (!self)
        return;
    if (bh__mailbox_is_forked(&self->mailbox)) {
        close_in_child(self);
        return;
    }
    if (self->mailbox.has_thread) {
        bh_worker_stop(self, 0);
        join(self);
    }
    bh__runner_free(&self->runner);
    bh__mailbox_free(&self->mailbox);
    free_settings(&self->settings);
    bh__report_free(&self->report);
    free(self);
}

/* --------------------------------------------------------------------------------------------------------- settings */

static bh_status refuse_call(bh_worker *self, bh_status status, const char *sentence)
{
    return bh__report_set(&self->report, status, "%s", sentence);
}

/* BH_OK where a setting may change. */
static bh_status may_set(bh_worker *self)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    if (bh__mailbox_is_forked(&self->mailbox))
        return refuse_call(self, BH_ERR_FORKED, "the process forked: make a new worker in the child");
    if (atomic_load(&self->mailbox.life) == BH__RUNNING)
        return refuse_call(self, BH_ERR_STATE, "the worker runs: set this before bh_worker_start");
    return BH_OK;
}

bh_status bh_worker_add_uri(bh_worker *self, bh_bytes uri)
{
    bh_status status = may_set(self);
    if (status != BH_OK)
        return status;
    if (!uri.data)
        return refuse_call(self, BH_ERR_ARGUMENT, "the URI is missing");
    void *uris = self->settings.uris;
    if (!bh__reserve(&uris, &self->settings.uri_capacity, sizeof *self->settings.uris, self->settings.uri_count + 1))
        return refuse_call(self, BH_ERR_NO_MEMORY, "no memory for the URI");
    self->settings.uris = uris;
    self->settings.uris[self->settings.uri_count] = (bh__uri){.text = NULL};
    status = bh__uri_parse(&self->settings.uris[self->settings.uri_count], uri, &self->report);
    self->settings.uri_count += status == BH_OK;
    return status;
}

bh_status bh_worker_set_ca_file(bh_worker *self, bh_bytes path)
{
    bh_status status = may_set(self);
    if (status != BH_OK)
        return status;
    if (!path.data || memchr(path.data, '\0', path.size))
        return refuse_call(self, BH_ERR_ARGUMENT, "the path of the CA file is missing, or has a zero byte");
    char *copy = NULL;
    if (path.size) {
        copy = malloc(path.size + 1);
        if (!copy)
            return refuse_call(self, BH_ERR_NO_MEMORY, "no memory for a path");
        memcpy(copy, path.data, path.size);
        copy[path.size] = '\0';
    }
    free(self->settings.ca_file);
    self->settings.ca_file = copy;
    return BH_OK;
}

/* The number in *setting, where it may change and lies in this range. */
static bh_status set_number(bh_worker *self, int64_t *setting, int64_t value, int64_t lowest, int64_t highest)
{
    bh_status status = may_set(self);
    if (status != BH_OK)
        return status;
    if (value < lowest || value > highest)
        return bh__report_set(&self->report, BH_ERR_ARGUMENT, "%lld is not from %lld to %lld", (long long)value,
                              (long long)lowest, (long long)highest);
    *setting = value;
    return BH_OK;
}

bh_status bh_worker_set_mode(bh_worker *self, bh_mode mode)
{
    return self ? set_number(self, &self->settings.mode, (int64_t)mode, BH_MODE_CREATE, BH_MODE_NONE) : BH_ERR_ARGUMENT;
}

bh_status bh_worker_set_prefetch(bh_worker *self, int count)
{
    return self ? set_number(self, &self->settings.prefetch, count, 0, UINT16_MAX) : BH_ERR_ARGUMENT;
}

bh_status bh_worker_set_connect_timeout_ms(bh_worker *self, int64_t timeout_ms)
{
    return self ? set_number(self, &self->settings.connect_timeout_ms, timeout_ms, 1, LONGEST_TIMEOUT_MS)
                : BH_ERR_ARGUMENT;
}

bh_status bh_worker_set_confirm_timeout_ms(bh_worker *self, int64_t timeout_ms)
{
    return self ? set_number(self, &self->settings.confirm_timeout_ms, timeout_ms, 1, LONGEST_TIMEOUT_MS)
                : BH_ERR_ARGUMENT;
}

bh_status bh_worker_set_fail_fast(bh_worker *self, int on)
{
    return self ? set_number(self, &self->fail_fast, on, 0, 1) : BH_ERR_ARGUMENT;
}

bh_status bh_worker_set_event(bh_worker *self, bh_event_kind kind, int on)
{
    int64_t bit = on;
    if (!self || (int)kind < 0 || kind >= BH_EVENT_LAST)
        return BH_ERR_ARGUMENT;
    bh_status status = set_number(self, &bit, on, 0, 1);
    if (status == BH_OK)
        self->settings.told = (self->settings.told & ~(1U << kind)) | (uint32_t)bit << kind;
    return status;
}

bh_status bh_worker_set_metrics(bh_worker *self, const bh_metrics *metrics)
{
    bh_metrics *copy = NULL;
    bh_status status = may_set(self);
    if (status == BH_OK && metrics)
        status = bh__metrics_copy(&copy, metrics);
    if (status != BH_OK)
        return status;
    bh_metrics **counted = &self->mailbox.metrics, *unused = copy;
    pthread_mutex_lock(&self->mailbox.counting); /* as another thread may read them */
    int are_alike = !copy || !*counted || bh__metrics_tell_the_same(*counted, copy);
    if (are_alike) {
        unused = *counted;
        *counted = copy;
    }
    pthread_mutex_unlock(&self->mailbox.counting);
    bh_metrics_free(unused);
    return are_alike ? BH_OK
                     : refuse_call(self, BH_ERR_ARGUMENT,
                                   "the metrics have different error types, and a worker counts once for all of "
                                   "them: give each the same error types");
}

bh_status bh_worker_set_back_off(bh_worker *self, const bh_policy *policy)
{
    bh_policy *copy;
    bh_status status = may_set(self);
    if (status == BH_OK && !policy)
        status = refuse_call(self, BH_ERR_ARGUMENT, "the policy is missing");
    if (status == BH_OK)
        status = bh__policy_copy(&copy, policy);
    if (status != BH_OK)
        return status;
    bh_policy_free(self->settings.back_off);
    self->settings.back_off = copy;
    return BH_OK;
}

bh_status bh_worker_set_legacy_counter(bh_worker *self, bh_bytes header)
{
    bh_status status = may_set(self);
    if (status == BH_OK && bh_history_set_legacy_counter(self->settings.reading, header) != BH_OK)
        status = refuse_call(self, BH_ERR_NO_MEMORY, "no memory for a header's name");
    return status;
}

bh_status bh_worker_add_wait_queue(bh_worker *self, bh_bytes queue)
{
    bh_status status = may_set(self);
    if (status == BH_OK && bh_history_add_wait_queue(self->settings.reading, queue) != BH_OK)
        status = refuse_call(self, BH_ERR_NO_MEMORY, "no memory for a queue's name");
    return status;
}

/* -------------------------------------------------------------------------------------------------- start and stop */

/* Signals are for the application's threads. */
static int start_thread(bh_worker *self)
{
    sigset_t all, kept;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return 0;
    sigfillset(&all);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &kept);
    self->mailbox.has_thread =
        pthread_create(&self->mailbox.thread, &attributes, bh__runner_thread, &self->runner) == 0;
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    pthread_attr_destroy(&attributes);
    return self->mailbox.has_thread;
}

static bh_status start(bh_worker *self, int fails_fast)
{
    bh_status status = may_set(self);
    if (status != BH_OK)
        return status;
    if (self->settings.uri_count == 0)
        return refuse_call(self, BH_ERR_STATE, "there is no broker to connect to: add a URI first");
    join(self); /* the last run's */
    self->settings.fails_fast = self->fail_fast < 0 ? fails_fast : self->fail_fast;
    status = bh__history_copy_settings(self->runner.engine.context.history, self->settings.reading);
    if (status == BH_OK)
        status = bh__history_copy_settings(self->mailbox.history, self->settings.reading);
    if (status == BH_OK)
        status = bh__runner_begin(&self->runner);
    if (status != BH_OK)
        return refuse_call(self, status,
                           status == BH_ERR_STATE ? "the system gives no random bytes" : "no memory for the worker");
    if (atomic_load(&self->mailbox.life) == BH__DRAINED) /* a stop of the last run; one before the first counts */
        atomic_store(&self->mailbox.stop_ms, BH__NEVER);
    self->mailbox.many =
        self->settings.prefetch < BH__MANY_OF_PREFETCH ? 1 : (size_t)self->settings.prefetch / BH__MANY_OF_PREFETCH;
    bh__mailbox_open(&self->mailbox);
    atomic_store(&self->mailbox.life, BH__RUNNING);
    if (start_thread(self))
        return BH_OK;
    atomic_store(&self->mailbox.life, BH__IDLE);
    return refuse_call(self, BH_ERR_NO_MEMORY, "the system gives no thread");
}

bh_status bh_worker_start(bh_worker *self)
{
    return start(self, 0);
}

bh_status bh__worker_start_to_run(bh_worker *self)
{
    return start(self, 1);
}

bh_status bh__worker_end(bh_worker *self)
{
    join(self);
    if (!self->runner.has_given_up)
        return BH_OK;
    const bh__report *problem = &self->runner.problem;
    return bh__report_set(&self->report, problem->status, "%s", bh__report_text(problem).data);
}

bh_status bh_worker_stop(bh_worker *self, int64_t limit_ms)
{
    if (!self || limit_ms < 0 || limit_ms > LONGEST_TIMEOUT_MS)
        return BH_ERR_ARGUMENT;
    if (bh__mailbox_is_forked(&self->mailbox))
        return BH_ERR_FORKED;
    if (atomic_load(&self->mailbox.life) != BH__DRAINED) {
        atomic_store(&self->mailbox.stop_ms, bh__monotonic_ms() + limit_ms);
        bh__mailbox_wake(&self->mailbox);
    }
    return BH_OK;
}

/* --------------------------------------------------------------------------------------------- messages and events */

int bh_worker_fd(bh_worker *self)
{
    return self && !bh__mailbox_is_forked(&self->mailbox) ? bh__mailbox_watch(&self->mailbox) : -1;
}

/* Notes when a message was taken, and tells so, where anybody wants to know. */
static void note_taken(bh_worker *self, bh_message *message)
{
    const bh__context *context = &self->runner.engine.context;
    bh__mailbox *mailbox = &self->mailbox;
    if (bh__wants(context, BH_EVENT_SUCCEEDED) || bh__wants(context, BH_EVENT_FAILED) ||
        bh__wants(context, BH_EVENT_DROPPED))
        message->taken_us = bh__monotonic_us();
    if (!bh__wants(context, BH_EVENT_DELIVERED))
        return;
    pthread_mutex_lock(&mailbox->reading);
    if (bh__read(&self->settings, message, mailbox->delivery, mailbox->history) == BH_OK)
        bh__tell(context, (bh__news){.kind = BH_EVENT_DELIVERED, .message = message, .history = mailbox->history});
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
        if (!bh__mailbox_gives(&self->mailbox))
            return BH_ERR_STATE;
        *out = bh__mailbox_take(&self->mailbox);
        if (*out) {
            note_taken(self, *out);
            return BH_OK;
        }
        int64_t left_ms = timeout_ms ? deadline_ms - bh__monotonic_ms() : 0;
        if (left_ms <= 0)
            return BH_ERR_TIMEOUT;
        bh__mailbox_wait(&self->mailbox, left_ms, 0);
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

/* BH_OK where the message is this worker's, and can be settled here. */
static bh_status may_settle(const bh_worker *self, const bh_message *message)
{
    if (!self || !message || message->worker != self)
        return BH_ERR_ARGUMENT;
    if (bh__mailbox_is_forked(&self->mailbox))
        return BH_ERR_FORKED;
    return BH_OK;
}

/* Makes the message this caller's to write to; false where it is settled, or another caller writes. */
static int claim(bh_message *message)
{
    int open = BH__OPEN;
    return atomic_compare_exchange_strong(&message->settling, &open, BH__BEING_SETTLED);
}

/* Of a message that this caller claimed; policy NULL: the worker's. */
static bh_status note_failure(bh_message *message, const bh_policy *policy, bh_bytes error, int64_t retry_after_ms)
{
    bh_policy *copy = NULL;
    bh_status status = policy ? bh__policy_copy(&copy, policy) : BH_OK;
    if (status == BH_OK)
        status = bh__message_set_error(message, error);
    if (status != BH_OK) {
        bh_policy_free(copy);
        return status;
    }
    bh_policy_free(message->policy);
    message->policy = copy;
    message->retry_after_ms = retry_after_ms;
    return BH_OK;
}

/* Whether what a caller says of a failure can be used. */
static bh_status check_failure(const bh_worker *self, const bh_policy *policy, bh_bytes error)
{
    if (error.size && !error.data)
        return BH_ERR_ARGUMENT;
    return policy && !bh__topology_serves(self->settings.topology, policy) ? BH_ERR_FOREIGN_POLICY : BH_OK;
}

bh_status bh_worker_fail_by(bh_worker *self, bh_message *message, const bh_policy *policy, bh_bytes error,
                            int64_t retry_after_ms)
{
    bh_status status = may_settle(self, message);
    if (status == BH_OK)
        status = check_failure(self, policy, error);
    if (status != BH_OK)
        return status;
    if (!claim(message))
        return BH_ERR_STATE;
    status = note_failure(message, policy, error, retry_after_ms);
    atomic_store(&message->settling, BH__OPEN);
    return status;
}

bh_status bh_worker_fail(bh_worker *self, bh_message *message, bh_bytes error, int64_t retry_after_ms)
{
    return bh_worker_fail_by(self, message, NULL, error, retry_after_ms);
}

/* Hands a claimed message to the thread. BH_ERR_STATE where it takes no more: the broker delivers the message again. */
static bh_status hand_over(bh_worker *self, bh_message *message, bh_outcome outcome)
{
    message->outcome = outcome;
    if (message->taken_us)
        message->taken_us = bh__monotonic_us() - message->taken_us;
    bh__message_keep(message);
    atomic_store(&message->settling, BH__SETTLED);
    if (bh__mailbox_settle(&self->mailbox, message))
        return BH_OK;
    bh_message_free(message);
    return BH_ERR_STATE;
}

bh_status bh__worker_settle(bh_worker *self, bh_message *message, bh_outcome outcome)
{
    if (atomic_load(&self->mailbox.life) != BH__RUNNING || !claim(message))
        return BH_ERR_STATE;
    return hand_over(self, message, outcome);
}

bh_status bh_worker_settle_by(bh_worker *self, bh_message *message, const bh_policy *policy, bh_outcome outcome,
                              bh_bytes error, int64_t retry_after_ms)
{
    bh_status status = may_settle(self, message);
    if (status == BH_OK && outcome != BH_OUTCOME_OK && outcome != BH_OUTCOME_FAILED &&
        outcome != BH_OUTCOME_PERMANENT && outcome != BH_OUTCOME_DROPPED)
        status = BH_ERR_ARGUMENT;
    if (status == BH_OK)
        status = check_failure(self, policy, error);
    if (status != BH_OK)
        return status;
    if (atomic_load(&self->mailbox.life) != BH__RUNNING || !claim(message))
        return BH_ERR_STATE;
    status = note_failure(message, policy, error, retry_after_ms);
    if (status == BH_OK)
        return hand_over(self, message, outcome);
    atomic_store(&message->settling, BH__OPEN);
    return status;
}

bh_status bh_worker_settle(bh_worker *self, bh_message *message, bh_outcome outcome, bh_bytes error,
                           int64_t retry_after_ms)
{
    return bh_worker_settle_by(self, message, NULL, outcome, error, retry_after_ms);
}

bh_status bh_worker_set_error_class(bh_worker *self, bh_message *message, bh_bytes error_class)
{
    bh_status status = may_settle(self, message);
    if (status == BH_OK && !error_class.data)
        status = BH_ERR_ARGUMENT;
    if (status != BH_OK)
        return status;
    char *copy = malloc(error_class.size + 1);
    if (!copy)
        return BH_ERR_NO_MEMORY;
    if (!claim(message)) {
        free(copy);
        return BH_ERR_STATE;
    }
    bh__keep(&(char *){copy}, error_class);
    free(message->error_class);
    message->error_class = copy;
    atomic_store(&message->settling, BH__OPEN);
    return BH_OK;
}

bh_status bh_worker_set_traceparent(bh_worker *self, bh_message *message, bh_bytes traceparent)
{
    bh_status status = may_settle(self, message);
    if (status == BH_OK && (!traceparent.data || (traceparent.size && !bh__is_traceparent(traceparent))))
        status = BH_ERR_ARGUMENT;
    if (status != BH_OK)
        return status;
    if (!claim(message))
        return BH_ERR_STATE;
    bh__keep(&(char *){message->traceparent}, traceparent);
    atomic_store(&message->settling, BH__OPEN);
    return BH_OK;
}

bh_status bh_worker_read_metrics(bh_worker *self, bh_metrics *out)
{
    if (!self || !out)
        return BH_ERR_ARGUMENT;
    bh__mailbox *mailbox = &self->mailbox;
    if (bh__mailbox_is_forked(mailbox))
        return BH_ERR_FORKED;
    pthread_mutex_lock(&mailbox->counting);
    bh_status status = BH_ERR_STATE;
    if (mailbox->metrics)
        status =
            bh_metrics_set(mailbox->metrics, BH_METRIC_COPIES_UNCONFIRMED, atomic_load(&mailbox->unconfirmed_count));
    if (status == BH_OK)
        status = bh_metrics_add(out, mailbox->metrics);
    pthread_mutex_unlock(&mailbox->counting);
    return status;
}

int64_t bh_worker_copies(const bh_worker *self)
{
    return self && !bh__mailbox_is_forked(&self->mailbox) ? atomic_load(&self->mailbox.unconfirmed_count) : 0;
}

bh_status bh_worker_replay(bh_worker *self, int64_t most)
{
    if (!self || most < 0)
        return BH_ERR_ARGUMENT;
    if (bh__mailbox_is_forked(&self->mailbox))
        return BH_ERR_FORKED;
    if (self->settings.relay || atomic_load(&self->mailbox.life) != BH__RUNNING ||
        !bh__mailbox_ask_replay(&self->mailbox, most))
        return BH_ERR_STATE;
    bh__mailbox_wake(&self->mailbox);
    return BH_OK;
}

bh_status bh_worker_read(bh_worker *self, const bh_message *message, bh_delivery *delivery, bh_history *history)
{
    bh_status status = may_settle(self, message);
    if (status == BH_OK && !delivery)
        status = BH_ERR_ARGUMENT;
    if (status == BH_OK && history)
        status = bh__history_copy_settings(history, self->settings.reading);
    return status == BH_OK ? bh__read(&self->settings, message, delivery, history) : status;
}

int64_t bh_worker_attempt(bh_worker *self, const bh_message *message)
{
    if (may_settle(self, message) != BH_OK)
        return 0;
    bh__mailbox *mailbox = &self->mailbox;
    pthread_mutex_lock(&mailbox->reading);
    bh_status status = bh__read(&self->settings, message, mailbox->delivery, mailbox->history);
    int64_t attempt = status == BH_OK ? bh_history_attempts(mailbox->history) + 1 : 0;
    pthread_mutex_unlock(&mailbox->reading);
    return attempt;
}

int bh_worker_may_park(bh_worker *self, const bh_message *message, const bh_policy *policy, bh_outcome outcome,
                       int64_t retry_after_ms)
{
    if (may_settle(self, message) != BH_OK)
        return 0;
    if (!policy)
        policy = self->settings.policy;
    bh__mailbox *mailbox = &self->mailbox;
    pthread_mutex_lock(&mailbox->reading);
    int may = bh__read(&self->settings, message, mailbox->delivery, mailbox->history) == BH_OK &&
              bh__plan_may_park(mailbox->history, policy, outcome, retry_after_ms, bh__epoch_ms());
    pthread_mutex_unlock(&mailbox->reading);
    return may;
}

bh_bytes bh_worker_error(const bh_worker *self)
{
    return self ? bh__report_text(&self->report) : bh_str("");
}

bh_bytes bh_worker_librabbitmq_compiled(void)
{
    return bh_str(AMQP_VERSION_STRING);
}

bh_bytes bh_worker_librabbitmq_loaded(void)
{
    return bh_str(amqp_version());
}
