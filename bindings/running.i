/* The nouns that run: ledger, event, metrics, worker. */

/* --- ledger ----------------------------------------------------------------------------------- */

typedef enum bh_state {
    BH_STATE_NONE,
    BH_STATE_ARRIVED,
    BH_STATE_TAKEN,
    BH_STATE_SETTLED,
    BH_STATE_DUE,
    BH_STATE_SENT,
    BH_STATE_WAITING,
    BH_STATE_CONFIRMED,
    BH_STATE_ABANDONED,
    BH_STATE_ACKNOWLEDGED,
    BH_STATE_REJECTED,
    BH_STATE_GIVEN_BACK,
    BH_STATE_LAST
} bh_state;

typedef enum bh_step_kind {
    BH_STEP_REST,
    BH_STEP_EMIT,
    BH_STEP_ACK,
    BH_STEP_NACK,
    BH_STEP_REJECT,
    BH_STEP_GIVE_BACK,
    BH_STEP_OPEN,
    BH_STEP_DECLARE,
    BH_STEP_PUBLISH
} bh_step_kind;

typedef enum bh_ending {
    BH_ENDING_ORDERLY,
    BH_ENDING_CUT,
    BH_ENDING_ERROR,
    BH_ENDING_MISSING
} bh_ending;

bh_ending bh_ending_of(int reply_code);

%record(bh_step, 10, BH_PUT(kind) BH_PUT(entry) BH_PUT(channel) BH_PUT(publisher) BH_PUT(tag) BH_PUT(multiple)
    BH_PUT(event) BH_PUT(status) BH_PUT(delay_ms) BH_PUT(count))

%object(Ledger, bh_ledger)
%extend bh_ledger {
    bh_status set_confirm_timeout_ms(int64_t timeout_ms);
    void set_restores(int on);

    bh_status open_channel(int64_t *number);
    int64_t close_channel(int64_t channel);
    int64_t lose_channel(int64_t channel);
    bh_status arrive(int64_t channel, int64_t delivery_tag, int64_t *number);
    bh_status acknowledge(int64_t entry);
    bh_status settle(int64_t entry, bh_action action, int64_t rung_ms, bh_bytes id, bh_bytes exchange,
                     bh_bytes routing_key);
    bh_status give_back(int64_t entry);
    bh_status abandon(int64_t entry, int64_t now_ms);

    bh_status open_publisher(int64_t *number);
    void publisher_failed(bh_status status, int64_t now_ms);
    int close_publisher(int64_t publisher, bh_ending ending, int64_t now_ms);
    void disconnect(bh_ending ending, int64_t now_ms);
    void confirm(int64_t publisher, int64_t tag, int multiple, int is_ack, int64_t now_ms);
    void block(int is_blocked, int64_t now_ms);
    void rung(int64_t rung_ms, bh_status status, int64_t now_ms);
    void forget_rungs();

    void next(int64_t now_ms, int may_publish, bh_step *out);
    bh_bytes text(bh_bytes exchange, bh_bytes routing_key, bh_bytes reason, bh_bytes undeclared);
    int64_t due_ms();

    bh_state state(int64_t entry);
    int64_t count(bh_state state);
    int64_t copies();
}
bh_status bh_back_off_new(bh_policy **out);
bh_status bh_ledger_new(bh_ledger **out, const bh_policy *back_off, bh_bytes random);
/* No method: return is a keyword of C++. */
void bh_ledger_return(bh_ledger *self, int64_t publisher, bh_bytes id, bh_bytes exchange, bh_bytes routing_key);

/* --- event ------------------------------------------------------------------------------------ */

typedef enum bh_level { BH_LEVEL_DEBUG, BH_LEVEL_INFO, BH_LEVEL_WARNING, BH_LEVEL_ERROR } bh_level;

typedef enum bh_event_kind {
    BH_EVENT_DELIVERED,
    BH_EVENT_SUCCEEDED,
    BH_EVENT_FAILED,
    BH_EVENT_RETRIED,
    BH_EVENT_PARKED,
    BH_EVENT_THROTTLED,
    BH_EVENT_DEFERRED,
    BH_EVENT_DROPPED,
    BH_EVENT_REPLAYED,
    BH_EVENT_RETURNED,
    BH_EVENT_NACKED,
    BH_EVENT_UNCONFIRMED,
    BH_EVENT_REFUSED,
    BH_EVENT_STALE,
    BH_EVENT_CONNECTED,
    BH_EVENT_UNAVAILABLE,
    BH_EVENT_DISCONNECTED,
    BH_EVENT_BLOCKED,
    BH_EVENT_UNBLOCKED,
    BH_EVENT_CANCELLED,
    BH_EVENT_BUSY,
    BH_EVENT_BREAKER_OPENED,
    BH_EVENT_BREAKER_HALF_OPEN,
    BH_EVENT_BREAKER_CLOSED,
    BH_EVENT_EARLY,
    BH_EVENT_MISSED,
    BH_EVENT_DRAINED,
    BH_EVENT_LAST
} bh_event_kind;

typedef enum bh_field {
    BH_FIELD_QUEUE,
    BH_FIELD_ID,
    BH_FIELD_ATTEMPT,
    BH_FIELD_ATTEMPTS,
    BH_FIELD_DEFERRALS,
    BH_FIELD_DELAY,
    BH_FIELD_LATENESS,
    BH_FIELD_REASON,
    BH_FIELD_BREAKER,
    BH_FIELD_ERROR_CLASS,
    BH_FIELD_ERROR,
    BH_FIELD_STATUS,
    BH_FIELD_TEXT,
    BH_FIELD_CONNECTION,
    BH_FIELD_HOST,
    BH_FIELD_COUNT,
    BH_FIELD_DURATION,
    BH_FIELD_RECOVERY,
    BH_FIELD_LAST
} bh_field;

%object(Event, bh_event)
%extend bh_event {
    bh_status begin(bh_event_kind kind);
    bh_status set_string(bh_field field, bh_bytes value);
    bh_status set_int(bh_field field, int64_t value);
    bh_status set_history(const bh_history *history, int redelivered, int64_t now_ms);
    bh_status set_plan(const bh_plan *plan);
    bh_status set_cause(bh_bytes cause);

    bh_event_kind what();
    int64_t message();
    int has(bh_field field);
    bh_bytes string(bh_field field);
    bh_bytes text();
    bh_level level();
    bh_bytes line();
}
bh_status bh_event_new(bh_event **out, bh_event_kind kind);
int64_t bh_event_int(const bh_event *self, bh_field field); /* no method: int is a keyword of C++ */
bh_bytes bh_event_name(int kind);
bh_bytes bh_event_field(int field);
int bh_event_field_is_string(int field);
bh_event_kind bh_event_of(bh_outcome outcome);
bh_event_kind bh_event_of_copy(bh_action action);
int bh_event_is_of_each(int kind);
%typemap(in, numinputs=0) char *overrun_room (char room[BH_OVERRUN_ROOM]) "$1 = room;"
bh_bytes bh_overrun_text(bh_outcome outcome, int64_t duration_ms, int64_t limit_ms, char *overrun_room);

typedef enum bh_health_state {
    BH_HEALTH_STARTING,
    BH_HEALTH_READY,
    BH_HEALTH_RECONNECTING,
    BH_HEALTH_PAUSED,
    BH_HEALTH_STOPPED,
    BH_HEALTH_LAST
} bh_health_state;
bh_bytes bh_health_name(int state);

/* In C a struct that its owner zeroes. */
%{
static bh_status bh_health_new(bh_health **out)
{
    *out = (bh_health *)calloc(1, sizeof(bh_health)); /* in Node the wrapper is C++ */
    return *out ? BH_OK : BH_ERR_NO_MEMORY;
}

static void bh_health_free(bh_health *self)
{
    free(self);
}
%}
%typemap(in, numinputs=0) char *wait_room (char room[BH_HEALTH_WAIT_ROOM]) "$1 = room;"
%object(Health, bh_health)
%rename(state) bh_health::current; /* bh_health_state is a type in C */
%extend bh_health {
    void observe(const bh_event *event);
    bh_health_state current() {
        return $self->state;
    }
    bh_bytes reason() {
        return bh_str($self->reason);
    }
    bh_bytes wait_error(int is_worker, int64_t limit_ms, char *wait_room);
}
bh_status bh_health_new(bh_health **out);

%object(Log, bh_log)
%extend bh_log {
    bh_bytes line(const bh_event *event, int64_t now_ms);
    bh_bytes omitted_line(const bh_event *event, int64_t now_ms);
    bh_bytes listener_line(const bh_event *event, bh_bytes error, int64_t now_ms);
}
bh_status bh_log_new(bh_log **out);

/* --- flow ------------------------------------------------------------------------------------- */

typedef enum bh_flow_kind {
    BH_FLOW_REST,
    BH_FLOW_CALL,
    BH_FLOW_DEFER,
    BH_FLOW_CANCEL,
    BH_FLOW_CONSUME,
    BH_FLOW_EMIT
} bh_flow_kind;

%record(bh_flow_step, 5, BH_PUT(kind) BH_PUT(event) BH_PUT(delay_ms) BH_PUT(due_ms) BH_PUT(is_limiting))

%object(Flow, bh_flow)
%extend bh_flow {
    void next(int64_t held, int64_t now_ms, bh_flow_step *out);
    void permit(int64_t now_ms, bh_permit *out);
    int is_due(int64_t held, int64_t now_ms);
    int is_cancelled();
    bh_status describe(bh_event *event);
}
bh_status bh_flow_new(bh_flow **out, bh_breaker *breaker, const bh_topology *topology);

/* --- subscription ----------------------------------------------------------------------------- */

typedef enum bh_subscription_kind {
    BH_SUBSCRIPTION_REST,
    BH_SUBSCRIPTION_EMIT,
    BH_SUBSCRIPTION_DECLARE,
    BH_SUBSCRIPTION_CONSUME,
    BH_SUBSCRIPTION_GIVE_UP
} bh_subscription_kind;

typedef enum bh_loss { BH_LOSS_CONSUMER, BH_LOSS_CHANNEL, BH_LOSS_CONNECTION } bh_loss;

%record(bh_subscription_step, 5, BH_PUT(kind) BH_PUT(event) BH_PUT(status) BH_PUT(delay_ms) BH_PUT(due_ms))

%object(Subscription, bh_subscription)
%extend bh_subscription {
    void next(int may_subscribe, int64_t now_ms, bh_subscription_step *out);
    void declared();
    void subscribed();
    void lost(bh_loss loss, int64_t now_ms);
    void failed(bh_status status, int64_t now_ms);
    void settled();
    void stop();
    int is_consuming();
}
bh_status bh_subscription_new(bh_subscription **out, const bh_policy *back_off, bh_bytes random);

/* --- silence ---------------------------------------------------------------------------------- */

%{
static bh_silence_view bh_silence_seen(const bh_silence *silence)
{
    bh_silence_view view;
    bh_silence_read(silence, &view);
    return view;
}
%}
%object(Silence, bh_silence)
%extend bh_silence {
    void begin(int64_t now_ms);
    bh_event_kind check(int is_blocked, int64_t now_ms);
    bh_event_kind end(bh_status status);
    void lost();
    /* The fields of bh_silence_view, one by one: a tuple of all costs more. */
    int64_t due_ms() { return bh_silence_seen($self).due_ms; }
    int64_t pause_ms() { return bh_silence_seen($self).pause_ms; }
    int is_silent() { return bh_silence_seen($self).is_silent; }
    bh_bytes text() { return bh_silence_seen($self).text; }
}
bh_status bh_silence_new(bh_silence **out, int64_t timeout_ms);

/* --- calls ------------------------------------------------------------------------------------ */

typedef enum bh_arrival_kind { BH_ARRIVAL_CALL, BH_ARRIVAL_WAIT, BH_ARRIVAL_ACK } bh_arrival_kind;

%record(bh_arrival, 3, BH_PUT(kind) BH_PUT(call) BH_PUT(action))

%constant int BH_CALLS_PREFETCHES = BH_CALLS_PREFETCHES;
%constant int BH_CALLS_CLOSED = BH_CALLS_CLOSED;

%object(Calls, bh_calls)
%extend bh_calls {
    int64_t open_channel();
    void arrive(int64_t channel, const bh_history *history, bh_bytes queue, bh_bytes body, int redelivered,
                int64_t now_ms, bh_arrival *out);
    void end(int64_t call, bh_action action, int64_t now_ms);
    void lose_channel(int64_t channel, int64_t prefetch, int64_t now_ms);
}
bh_status bh_calls_new(bh_calls **out, bh_bytes random);

/* --- metrics ---------------------------------------------------------------------------------- */

typedef enum bh_instrument { BH_INSTRUMENT_COUNTER, BH_INSTRUMENT_GAUGE, BH_INSTRUMENT_HISTOGRAM } bh_instrument;

typedef enum bh_metric {
    BH_METRIC_PROCESS_DURATION,
    BH_METRIC_RETRIES,
    BH_METRIC_DEFERRED,
    BH_METRIC_PARKED,
    BH_METRIC_REPLAYED,
    BH_METRIC_RETRY_LATENESS,
    BH_METRIC_RETRY_DELAY,
    BH_METRIC_ATTEMPTS,
    BH_METRIC_RECOVERY_TIME,
    BH_METRIC_COPY_DURATION,
    BH_METRIC_BREAKER_STATE,
    BH_METRIC_COPIES_UNCONFIRMED,
    BH_METRIC_CONSUMERS_READY,
    BH_METRIC_LAST
} bh_metric;

%constant int BH_METRICS_MOST_ERROR_TYPES = BH_METRICS_MOST_ERROR_TYPES;

%record(bh_metric_info, 8, BH_PUT(name) BH_PUT(otel_name) BH_PUT(unit) BH_PUT(help) BH_PUT(instrument)
    BH_PUT_EACH(label_count, bh_put(it->labels[i])) BH_PUT_EACH(label_count, bh_put(it->otel_labels[i]))
    BH_PUT_EACH(bucket_count, bh_put(it->buckets[i])))
void bh_metric_describe(int metric, bh_metric_info *out);

%record(bh_sample, 4, BH_PUT(metric) BH_PUT(value) BH_PUT(labels[0]) BH_PUT(labels[1]))

%object(Metrics, bh_metrics)
%extend bh_metrics {
    bh_status add_error_type(bh_bytes error_class);
    bh_status observe(const bh_event *event);
    bh_status count_message(bh_event_kind kind, bh_bytes queue, const bh_history *history, int redelivered,
                            int64_t now_ms, bh_bytes error_class, int64_t duration_us);
    bh_status count_copy(bh_event_kind kind, bh_bytes queue, int64_t attempts, int64_t delay_ms, bh_bytes reason,
                         bh_bytes error_class, int64_t duration_us);
    bh_status set(bh_metric metric, int64_t value);
    bh_status add_consumer(bh_bytes queue, int is_ready);
    bh_status add(const bh_metrics *others);
    size_t sample_count();
    void sample(size_t index, bh_sample *out);
    bh_bytes text();
}
bh_status bh_metrics_new(bh_metrics **out);

/* --- worker ----------------------------------------------------------------------------------- */

%object(Message, bh_message)
%extend bh_message {
    binary body();
    int redelivered();
    int64_t number();
}

%constant int BH_WORKER_MOST_EVENTS = BH_WORKER_MOST_EVENTS;

%object(Worker, bh_worker)
%rename(set) bh_worker::set_fields; /* by the fields of its struct */
%rename(settle) bh_worker::settle_with;
%rename(may_park) bh_worker::may_park_with;
%extend bh_worker {
    bh_status add_uri(bh_bytes uri);
    bh_status set_credentials(bh_bytes user, bh_bytes password);
    /* The fields of bh_worker_settings are one argument each. emits_retries: of the events retried and deferred. */
    bh_status set_fields(bh_mode mode, int64_t prefetch, int64_t connect_timeout_ms, int64_t confirm_timeout_ms,
                         int64_t handler_timeout_ms, const bh_policy *back_off, const bh_history *history,
                         bh_bytes ca_file, bh_bytes cert, bh_bytes key, bh_breaker *breaker, int fail_fast,
                         int emits_retries) {
        bh_worker_settings settings;
        bh_worker_defaults(&settings);
        settings.mode = mode;
        settings.prefetch = prefetch;
        settings.connect_timeout_ms = connect_timeout_ms;
        settings.confirm_timeout_ms = confirm_timeout_ms;
        settings.handler_timeout_ms = handler_timeout_ms;
        settings.back_off = back_off;
        settings.history = history;
        settings.ca_file = ca_file;
        settings.cert = cert;
        settings.key = key;
        settings.breaker = breaker;
        settings.fail_fast = fail_fast;
        settings.emits[BH_EVENT_RETRIED] = settings.emits[BH_EVENT_DEFERRED] = emits_retries;
        return bh_worker_set($self, &settings);
    }
    bh_status set_metrics(const bh_metrics *metrics);
    bh_status start();
    int fd();
    void close_fd();
    bh_status take(bh_message **out, int64_t no_wait);
    /* bh_worker_settle, with the fields of bh_settlement in their order. A malformed traceparent is
     * left out: a tracer must not keep a message from being settled. */
    bh_status settle_with(bh_message *message, bh_outcome outcome, bh_bytes error, bh_bytes error_class,
                          int64_t retry_after_ms, const bh_policy *policy, bh_bytes traceparent, int is_own_fault,
                          int whole_queue) {
        bh_settlement settlement = {outcome,     error,        error_class, retry_after_ms, policy,
                                    traceparent, is_own_fault, whole_queue};
        bh_status status = bh_worker_settle($self, message, &settlement);
        if (status != BH_ERR_ARGUMENT || traceparent.size == 0)
            return status;
        settlement.traceparent.size = 0;
        return bh_worker_settle($self, message, &settlement);
    }
    bh_status read_metrics(bh_metrics *out);
    void state(bh_health *health);
    int64_t copies();
    bh_status take_event(bh_event **out);
    bh_status replay(int64_t most);
    bh_status stop(int64_t limit_ms);

    int64_t attempt(const bh_message *message);
    int may_park_with(const bh_message *message, bh_outcome outcome, int64_t retry_after_ms, const bh_policy *policy) {
        bh_bytes none = {"", 0};
        bh_settlement settlement = {outcome, none, none, retry_after_ms, policy, none, 0, 0};
        return bh_worker_may_park($self, message, &settlement);
    }
    bh_status read(const bh_message *message, bh_delivery *delivery, bh_history *history);

    bh_bytes error();
}
bh_status bh_worker_new(bh_worker **out, const bh_policy *policy, const bh_topology *topology);

%record(bh_librabbitmq, 2, BH_PUT(compiled) BH_PUT(loaded))
void bh_worker_librabbitmq(bh_librabbitmq *out);
