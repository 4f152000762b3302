/*
 * What Python, Ruby and Node see of the core: one table of declarations, in the order of the pipeline. The headers in
 * core/include/backhop/ are its manual.
 *
 * A line in an %extend block without a body calls the C function of the block's name and its own: Policy.set_kind is
 * bh_policy_set_kind. bh_<noun>_new gives the status and the object; the object frees itself. Not here: bh_worker_run,
 * which blocks and calls back. Enumerators have the values that the C compiler knows.
 */
%module backhop

%{
#include <backhop.h>
%}

%include <stdint.i>
%include "bytes.i"

%nodefaultctor;
%nodefaultdtor;

/* --- version, status --------------------------------------------------------------------------------------------- */

const char *bh_version(void);

typedef int bh_status;

bh_bytes bh_status_name(int status);
bh_bytes bh_status_text(int status);

/* --- delivery ---------------------------------------------------------------------------------------------------- */

typedef enum bh_property {
    BH_PROPERTY_CONTENT_TYPE,
    BH_PROPERTY_CONTENT_ENCODING,
    BH_PROPERTY_HEADERS,
    BH_PROPERTY_DELIVERY_MODE,
    BH_PROPERTY_PRIORITY,
    BH_PROPERTY_CORRELATION_ID,
    BH_PROPERTY_REPLY_TO,
    BH_PROPERTY_EXPIRATION,
    BH_PROPERTY_MESSAGE_ID,
    BH_PROPERTY_TIMESTAMP,
    BH_PROPERTY_TYPE,
    BH_PROPERTY_USER_ID,
    BH_PROPERTY_APP_ID,
    BH_PROPERTY_CLUSTER_ID,
    BH_PROPERTY_LAST
} bh_property;

typedef enum bh_type {
    BH_TYPE_BOOLEAN,
    BH_TYPE_INT8,
    BH_TYPE_UINT8,
    BH_TYPE_INT16,
    BH_TYPE_UINT16,
    BH_TYPE_INT32,
    BH_TYPE_UINT32,
    BH_TYPE_INT64,
    BH_TYPE_UINT64,
    BH_TYPE_FLOAT,
    BH_TYPE_DOUBLE,
    BH_TYPE_DECIMAL,
    BH_TYPE_STRING,
    BH_TYPE_BYTES,
    BH_TYPE_TIMESTAMP,
    BH_TYPE_VOID,
    BH_TYPE_ARRAY,
    BH_TYPE_TABLE
} bh_type;

%object(Delivery, bh_delivery)
%extend bh_delivery {
    void clear();
    bh_status set_exchange(bh_bytes exchange);
    bh_status set_routing_key(bh_bytes routing_key);
    bh_status set_property(bh_property property, bh_bytes value);
    bh_status set_number(bh_property property, int64_t value);
    bh_status push_int(bh_bytes name, bh_type type, int64_t value);
    bh_status push_float(bh_bytes name, bh_type type, double value);
    bh_status push_string(bh_bytes name, bh_type type, bh_bytes value);
    bh_status push_decimal(bh_bytes name, int places, int64_t value);
    bh_status push_void(bh_bytes name);
    bh_status begin_table(bh_bytes name);
    bh_status begin_array(bh_bytes name);
    bh_status end();

    bh_bytes exchange();
    bh_bytes routing_key();
    int has_property(bh_property property);
    bh_bytes property(bh_property property);
    int64_t number(bh_property property);
    int header_type(bh_bytes name);
    bh_bytes header_string(bh_bytes name);
    int64_t header_int(bh_bytes name);
    size_t value_count();
    int value_type(size_t index);
    bh_bytes value_name(size_t index);
    size_t value_end(size_t index);
    bh_bytes value_string(size_t index);
    int64_t value_int(size_t index);
    double value_float(size_t index);
    int value_places(size_t index);
    int is_truncated();
    int64_t header_bytes();
}
bh_status bh_delivery_new(bh_delivery **out);

/* --- history ----------------------------------------------------------------------------------------------------- */

typedef enum bh_source {
    BH_SOURCE_NONE,
    BH_SOURCE_BACKHOP,
    BH_SOURCE_LEGACY,
    BH_SOURCE_X_DEATH,
    BH_SOURCE_DELIVERY_COUNT
} bh_source;

%object(History, bh_history)
%extend bh_history {
    bh_status set_legacy_counter(bh_bytes header);
    bh_status add_wait_queue(bh_bytes queue);
    bh_status read(const bh_delivery *delivery, const bh_topology *topology);

    int64_t attempts();
    bh_source attempts_source();
    int64_t first_failure_ms();
    int64_t last_delay_ms();
    int64_t lateness_ms(int redelivered, int64_t now_ms);
    bh_bytes traceparent();
    bh_bytes last_error();
    bh_bytes id();
    int has_id();
    bh_bytes exchange();
    bh_bytes routing_key();
    bh_bytes parked();
    int64_t replays();
    int64_t delivery_count();
    int64_t acquired_count();
    int64_t crashes();

    size_t death_count();
    bh_bytes death_queue(size_t index);
    bh_bytes death_reason(size_t index);
    bh_bytes death_exchange(size_t index);
    bh_bytes death_original_expiration(size_t index);
    int64_t death_times(size_t index);
    int64_t death_first_time_s(size_t index);
    size_t death_routing_key_count(size_t index);
    bh_bytes death_routing_key(size_t index, size_t key);

    bh_bytes first_death_queue();
    bh_bytes first_death_reason();
    bh_bytes first_death_exchange();
    bh_bytes last_death_queue();
    bh_bytes last_death_reason();
    bh_bytes last_death_exchange();

    size_t problem_count();
    bh_bytes problem(size_t index);
    bh_bytes explanation();
}
bh_status bh_history_new(bh_history **out);

/* --- policy ------------------------------------------------------------------------------------------------------ */

typedef enum bh_kind { BH_KIND_EXPONENTIAL, BH_KIND_LINEAR, BH_KIND_FIXED, BH_KIND_STEPS } bh_kind;

typedef enum bh_jitter {
    BH_JITTER_NONE,
    BH_JITTER_SPREAD,
    BH_JITTER_EQUAL,
    BH_JITTER_FULL,
    BH_JITTER_DECORRELATED
} bh_jitter;

%object(Policy, bh_policy)
%extend bh_policy {
    bh_status set_kind(bh_kind kind);
    bh_status set_initial_ms(int64_t initial_ms);
    bh_status set_factor(double factor);
    bh_status set_max_ms(int64_t max_ms);
    bh_status add_step_ms(int64_t step_ms);
    bh_status set_jitter(bh_jitter jitter, double ratio);
    bh_status set_max_attempts(int64_t max_attempts);
    bh_status set_max_age_ms(int64_t max_age_ms);
    bh_status set_max_retry_after_ms(int64_t max_retry_after_ms);
    bh_status set_max_crashes(int64_t max_crashes);

    bh_status check();
    bh_bytes error();

    bh_kind kind();
    bh_jitter jitter();
    int64_t max_attempts();
    int is_last(int64_t attempt);
    int64_t max_ms();
    int64_t max_age_ms();
    int64_t max_retry_after_ms();
    int64_t max_crashes();

    int64_t delay_ms(int64_t attempt, int64_t previous_ms, double u);

    int64_t lowest_ms(int64_t attempt);
    int64_t mean_ms(int64_t attempt);
    int64_t highest_ms(int64_t attempt);
    int64_t total_ms(int64_t attempt);
}
bh_status bh_policy_new(bh_policy **out);

/* --- plan -------------------------------------------------------------------------------------------------------- */

typedef enum bh_outcome { BH_OUTCOME_OK, BH_OUTCOME_FAILED, BH_OUTCOME_PERMANENT, BH_OUTCOME_DROPPED } bh_outcome;

typedef enum bh_action {
    BH_ACTION_NONE,
    BH_ACTION_ACK,
    BH_ACTION_RETRY,
    BH_ACTION_REJECT,
    BH_ACTION_RETURN,
    BH_ACTION_PARK,
    BH_ACTION_DROP,
    BH_ACTION_REPLAY
} bh_action;

%object(Plan, bh_plan)
%extend bh_plan {
    bh_status set_frame_max(int64_t frame_max);
    bh_status set_traceparent(bh_bytes traceparent);
    bh_status make(const bh_delivery *delivery, const bh_history *history, const bh_policy *policy,
                   const bh_topology *topology, bh_outcome outcome, bh_bytes error, int64_t retry_after_ms,
                   int64_t now_ms, bh_bytes random);
    bh_status guard(const bh_delivery *delivery, const bh_history *history, const bh_policy *policy,
                    const bh_topology *topology, int64_t now_ms, bh_bytes random);
    bh_status replay(const bh_delivery *delivery, const bh_history *history, const bh_topology *topology,
                     bh_bytes random);
    bh_status adopt(const bh_delivery *delivery, const bh_history *history, const bh_policy *policy,
                    const bh_topology *topology, int64_t now_ms, bh_bytes random);

    bh_action action();
    int publishes();
    int64_t attempts();
    int64_t delay_ms();
    int64_t rung_ms();
    int retry_after_met();
    bh_bytes reason();
    bh_bytes id();

    bh_bytes exchange();
    bh_bytes routing_key();
    int mandatory();
    int on_demand();

    int keeps_property(bh_property property);
    bh_bytes expiration();

    int keeps_header(bh_bytes name);
    size_t header_count();
    bh_bytes header_name(size_t index);
    bh_type header_type(size_t index);
    bh_bytes header_string(size_t index);
    int64_t header_int(size_t index);
    bh_bytes header_source(size_t index);
    binary copy_properties(const bh_delivery *delivery, int smallest_integers);
}
bh_status bh_plan_new(bh_plan **out);

/* --- topology ---------------------------------------------------------------------------------------------------- */

typedef enum bh_strategy {
    BH_STRATEGY_LADDER,
    BH_STRATEGY_MESSAGE_TTL,
    BH_STRATEGY_REJECT,
    BH_STRATEGY_DELAYED_EXCHANGE,
    BH_STRATEGY_NATIVE
} bh_strategy;

typedef enum bh_queue_type { BH_QUEUE_QUORUM, BH_QUEUE_CLASSIC } bh_queue_type;

typedef enum bh_series { BH_SERIES_R5, BH_SERIES_R10, BH_SERIES_R20, BH_SERIES_R40 } bh_series;

typedef enum bh_declaration { BH_DECLARE_EXCHANGE, BH_DECLARE_QUEUE, BH_DECLARE_BINDING } bh_declaration;

%object(Topology, bh_topology)
%extend bh_topology {
    bh_status set_strategy(bh_strategy strategy);
    bh_status set_queue_type(bh_queue_type type);
    bh_status set_namespace(bh_bytes name);
    bh_status set_series(bh_series series);
    bh_status set_stripes(int count);
    bh_status set_work_queue_type(bh_queue_type type);
    bh_status add_work_queue_string(bh_bytes argument, bh_bytes value);
    bh_status add_work_queue_int(bh_bytes argument, int64_t value);

    bh_status add_policy(bh_policy *policy);
    bh_status build(bh_policy *policy);
    bh_status check_policy(const bh_policy *policy);
    bh_status check_broker(bh_bytes product, bh_bytes version);
    bh_bytes error();

    bh_bytes queue();
    bh_strategy strategy();
    bh_bytes parked_queue();
    bh_bytes unroutable_queue();
    int owns(const bh_delivery *delivery);
    int64_t worst_lateness_ms();

    int64_t lowest_ms(const bh_policy *policy, int64_t attempt);
    int64_t mean_ms(const bh_policy *policy, int64_t attempt);
    int64_t highest_ms(const bh_policy *policy, int64_t attempt);
    int64_t total_ms(const bh_policy *policy, int64_t attempt);
    size_t spread(const bh_policy *policy, int64_t attempt);
    double share(const bh_policy *policy, int64_t attempt, size_t index);

    size_t rung_count();
    int64_t rung_ms(size_t index);

    size_t count();
    bh_declaration declaration(size_t index);
    bh_bytes name(size_t index);
    bh_bytes type(size_t index);
    bh_bytes source(size_t index);
    bh_bytes routing_key(size_t index);
    int64_t wait_ms(size_t index);
    int on_demand(size_t index);
    size_t argument_count(size_t index);
    bh_bytes argument_name(size_t index, size_t argument);
    bh_type argument_type(size_t index, size_t argument);
    bh_bytes argument_string(size_t index, size_t argument);
    int64_t argument_int(size_t index, size_t argument);

    bh_bytes definitions();
}
bh_status bh_topology_new(bh_topology **out, bh_bytes queue);
bh_status bh_topology_export(bh_topology *self, bh_bytes vhost); /* no method: export is a keyword of C++ */

/* --- declaring --------------------------------------------------------------------------------------------------- */

typedef enum bh_mode { BH_MODE_CREATE, BH_MODE_VERIFY, BH_MODE_NONE } bh_mode;

int bh_mode_makes_rungs(bh_mode mode);

typedef enum bh_dialect { BH_DIALECT_C, BH_DIALECT_PYTHON, BH_DIALECT_RUBY, BH_DIALECT_NODE } bh_dialect;

%object(Declared, bh_declared)
%extend bh_declared {
    void forget();
}
bh_status bh_declared_new(bh_declared **out);

%object(Declaring, bh_declaring)
%extend bh_declaring {
    bh_status set_makes_rungs(int on);
    bh_status set_declared(bh_declared *declared);
    bh_status begin(bh_mode mode, int64_t rung_ms);
    int next();
    void refuse(int code, bh_bytes text);
    void refuse_consumer(int code, bh_bytes text);
    void refuse_replay(bh_bytes queue, int code, bh_bytes text);
    void refuse_settling(int code, bh_bytes text, bh_bytes with_acks);
    void refuse_no_ack(bh_bytes with_acks);
    void check_queue(bh_bytes queue);

    bh_declaration what();
    int passive();
    bh_bytes name();
    bh_bytes type();
    bh_bytes source();
    bh_bytes routing_key();
    size_t argument_count();
    bh_bytes argument_name(size_t argument);
    bh_type argument_type(size_t argument);
    bh_bytes argument_string(size_t argument);
    int64_t argument_int(size_t argument);

    bh_status status();
    bh_bytes error();
}
bh_status bh_declaring_new(bh_declaring **out, const bh_topology *topology, bh_dialect dialect);

/* --- relay ------------------------------------------------------------------------------------------------------- */

typedef enum bh_death {
    BH_DEATH_REJECTED,
    BH_DEATH_EXPIRED,
    BH_DEATH_MAXLEN,
    BH_DEATH_DELIVERY_LIMIT,
    BH_DEATH_OTHER
} bh_death;

%object(Relay, bh_relay)
%extend bh_relay {
    bh_status set_queue_type(bh_queue_type type);
    bh_status set_namespace(bh_bytes name);
    bh_status set_series(bh_series series);
    bh_status set_stripes(int count);
    bh_status set_outcome(bh_death death, bh_outcome outcome);
    bh_status add_queue(bh_bytes name, const bh_policy *policy);
    bh_status build();
    bh_bytes error();

    bh_bytes rejected_queue();
    bh_bytes unroutable_queue();
    size_t queue_count();
    bh_bytes queue_name(size_t index);
    int queue_is_pattern(size_t index);
    bh_bytes policy_line(bh_queue_type type, bh_bytes vhost);

    bh_status read(bh_delivery *delivery, bh_history *history);
    bh_bytes queue();
    int is_served();
    bh_death death();
    bh_bytes death_word();
    bh_bytes words();
    bh_status plan(bh_plan *plan, const bh_delivery *delivery, const bh_history *history, int is_there, int64_t now_ms,
                   bh_bytes random);
}
bh_status bh_relay_new(bh_relay **out);

/* --- ledger ------------------------------------------------------------------------------------------------------ */

typedef enum bh_state {
    BH_STATE_NONE,
    BH_STATE_ARRIVED,
    BH_STATE_TAKEN,
    BH_STATE_SETTLED,
    BH_STATE_DUE,
    BH_STATE_SENT,
    BH_STATE_WAITING,
    BH_STATE_CONFIRMED,
    BH_STATE_LEFT,
    BH_STATE_ACKNOWLEDGED,
    BH_STATE_REJECTED,
    BH_STATE_GIVEN_BACK,
    BH_STATE_LAST
} bh_state;

typedef enum bh_step {
    BH_STEP_REST,
    BH_STEP_TELL,
    BH_STEP_ACK,
    BH_STEP_NACK,
    BH_STEP_REJECT,
    BH_STEP_GIVE_BACK,
    BH_STEP_DECLARE,
    BH_STEP_PUBLISH
} bh_step;

typedef enum bh_ending {
    BH_ENDING_ORDERLY,
    BH_ENDING_WORDLESS,
    BH_ENDING_COMPLAINT,
    BH_ENDING_MISSING
} bh_ending;

bh_ending bh_ending_of(int reply_code);

%object(Ledger, bh_ledger)
%extend bh_ledger {
    bh_status set_confirm_timeout_ms(int64_t timeout_ms);
    bh_status set_most_sent(int64_t most);
    bh_status set_acks(int64_t most, int64_t gap_ms);
    bh_status set_left(int64_t most, int64_t for_ms);

    bh_status open_channel(int64_t *number);
    int64_t close_channel(int64_t channel);
    bh_status arrive(int64_t channel, int64_t delivery_tag, int64_t *number);
    bh_status take(int64_t entry);
    bh_status acknowledge(int64_t entry);
    bh_status settle(int64_t entry, bh_action action, int64_t rung_ms, bh_bytes id, bh_bytes exchange,
                     bh_bytes routing_key);
    bh_status give_back(int64_t entry);
    bh_status leave(int64_t entry, int64_t now_ms);
    bh_status postpone(int64_t entry, int64_t now_ms);
    void flush();

    bh_status open_publisher(int64_t *number);
    int close_publisher(int64_t publisher, bh_ending ending, int64_t now_ms);
    void disconnect(bh_ending ending, int64_t now_ms);
    void confirm(int64_t publisher, int64_t tag, int multiple, int is_ack, int64_t now_ms);
    void block(int is_blocked, int64_t now_ms);
    void rung(int64_t rung_ms, bh_status status, int64_t now_ms);
    void forget_rungs();

    bh_step next(int64_t now_ms, int may_publish);
    bh_step step();
    int64_t step_entry();
    int64_t step_channel();
    int64_t step_publisher();
    int64_t step_tag();
    int step_multiple();
    int step_event();
    bh_status step_status();
    int64_t step_delay_ms();
    int64_t step_count();
    bh_bytes words(bh_bytes exchange, bh_bytes routing_key, bh_bytes reason, bh_bytes forgotten);
    int64_t due_ms();

    bh_state state(int64_t entry);
    int64_t count(bh_state state);
    int64_t unsettled();
    int64_t copies();
    int is_full();
}
bh_status bh_ledger_new(bh_ledger **out, const bh_policy *back_off, bh_bytes random);
/* No method: return is a keyword of C++. */
void bh_ledger_return(bh_ledger *self, int64_t publisher, bh_bytes id, bh_bytes exchange, bh_bytes routing_key);

/* --- event ------------------------------------------------------------------------------------------------------- */

typedef enum bh_level { BH_LEVEL_DEBUG, BH_LEVEL_INFO, BH_LEVEL_WARNING, BH_LEVEL_ERROR } bh_level;

typedef enum bh_event_kind {
    BH_EVENT_DELIVERED,
    BH_EVENT_SUCCEEDED,
    BH_EVENT_FAILED,
    BH_EVENT_RETRIED,
    BH_EVENT_PARKED,
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
    BH_EVENT_MISSED,
    BH_EVENT_DRAINED,
    BH_EVENT_LAST
} bh_event_kind;

typedef enum bh_field {
    BH_FIELD_QUEUE,
    BH_FIELD_ID,
    BH_FIELD_ATTEMPT,
    BH_FIELD_ATTEMPTS,
    BH_FIELD_DELAY,
    BH_FIELD_LATENESS,
    BH_FIELD_REASON,
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

%object(Log, bh_log)
%extend bh_log {
    bh_bytes line(const bh_event *event, int64_t now_ms);
    bh_bytes listener_line(const bh_event *event, bh_bytes error, int64_t now_ms);
}
bh_status bh_log_new(bh_log **out);

/* --- metrics ----------------------------------------------------------------------------------------------------- */

typedef enum bh_instrument { BH_INSTRUMENT_COUNTER, BH_INSTRUMENT_GAUGE, BH_INSTRUMENT_HISTOGRAM } bh_instrument;

typedef enum bh_metric {
    BH_METRIC_PROCESS_DURATION,
    BH_METRIC_RETRIES,
    BH_METRIC_PARKED,
    BH_METRIC_REPLAYED,
    BH_METRIC_RETRY_LATENESS,
    BH_METRIC_RETRY_DELAY,
    BH_METRIC_ATTEMPTS,
    BH_METRIC_RECOVERY_TIME,
    BH_METRIC_COPY_DURATION,
    BH_METRIC_COPIES_UNCONFIRMED,
    BH_METRIC_LAST
} bh_metric;

%constant int BH_METRICS_MOST_ERROR_TYPES = BH_METRICS_MOST_ERROR_TYPES;

bh_bytes bh_metric_name(int metric);
bh_bytes bh_metric_otel_name(int metric);
bh_bytes bh_metric_unit(int metric);
bh_bytes bh_metric_help(int metric);
bh_instrument bh_metric_instrument(int metric);
size_t bh_metric_label_count(int metric);
bh_bytes bh_metric_label(int metric, size_t index);
bh_bytes bh_metric_otel_label(int metric, size_t index);
size_t bh_metric_bucket_count(int metric);
double bh_metric_bucket(int metric, size_t index);

%object(Metrics, bh_metrics)
%extend bh_metrics {
    bh_status add_error_type(bh_bytes error_class);
    bh_status observe(const bh_event *event);
    bh_status count_message(bh_event_kind kind, bh_bytes queue, const bh_history *history, int redelivered, int64_t now_ms,
                            bh_bytes error_class, int64_t duration_us);
    bh_status count_copy(bh_event_kind kind, bh_bytes queue, int64_t attempts, int64_t delay_ms, bh_bytes reason,
                         bh_bytes error_class, int64_t duration_us);
    bh_status set(bh_metric metric, int64_t value);
    bh_status add(const bh_metrics *others);
    size_t sample_count();
    int sample_metric(size_t index);
    double sample_value(size_t index);
    bh_bytes sample_label(size_t index, size_t label);
    bh_bytes text();
}
bh_status bh_metrics_new(bh_metrics **out);

/* --- worker ------------------------------------------------------------------------------------------------------ */

%object(Message, bh_message)
%extend bh_message {
    binary body();
    int redelivered();
    int64_t number();
}

%constant int BH_WORKER_MOST_EVENTS = BH_WORKER_MOST_EVENTS;

%object(Worker, bh_worker)
%extend bh_worker {
    bh_status add_uri(bh_bytes uri);
    bh_status set_ca_file(bh_bytes path);
    bh_status set_mode(bh_mode mode);
    bh_status set_prefetch(int count);
    bh_status set_connect_timeout_ms(int64_t timeout_ms);
    bh_status set_confirm_timeout_ms(int64_t timeout_ms);
    bh_status set_back_off(const bh_policy *policy);
    bh_status set_legacy_counter(bh_bytes header);
    bh_status add_wait_queue(bh_bytes queue);
    bh_status set_event(bh_event_kind kind, int on);
    bh_status set_metrics(const bh_metrics *metrics);
    bh_status set_fail_fast(int on);

    bh_status start();
    int fd();
    bh_status take(bh_message **out, int64_t no_wait);
    bh_status settle(bh_message *message, bh_outcome outcome, bh_bytes error, int64_t retry_after_ms);
    bh_status settle_by(bh_message *message, const bh_policy *policy, bh_outcome outcome, bh_bytes error,
                        int64_t retry_after_ms);
    bh_status fail(bh_message *message, bh_bytes error, int64_t retry_after_ms);
    bh_status fail_by(bh_message *message, const bh_policy *policy, bh_bytes error, int64_t retry_after_ms);
    bh_status set_error_class(bh_message *message, bh_bytes error_class);
    bh_status set_traceparent(bh_message *message, bh_bytes traceparent);
    bh_status read_metrics(bh_metrics *out);
    int64_t copies();
    bh_status take_event(bh_event **out);
    bh_status replay(int64_t most);
    bh_status stop(int64_t limit_ms);

    int64_t attempt(const bh_message *message);
    int may_park(const bh_message *message, const bh_policy *policy, bh_outcome outcome, int64_t retry_after_ms);
    bh_status read(const bh_message *message, bh_delivery *delivery, bh_history *history);

    bh_bytes error();
}
bh_status bh_worker_new(bh_worker **out, const bh_policy *policy, const bh_topology *topology);
bh_status bh_worker_new_relay(bh_worker **out, const bh_relay *relay);

bh_bytes bh_worker_librabbitmq_compiled(void);
bh_bytes bh_worker_librabbitmq_loaded(void);

#ifdef SWIGPYTHON
%include "python.i"
#endif
