/* The nouns that decide: delivery, history, policy, plan, replay, topology, declaring. */

/* --- delivery --------------------------------------------------------------------------------- */

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

%record(bh_value, 7, BH_PUT(type) BH_PUT(name) BH_PUT(string) BH_PUT(integer) BH_PUT(number) BH_PUT(places) BH_PUT(end))

%{
static bh_value bh_value_of(bh_type type, bh_bytes name)
{
    bh_value value;
    memset(&value, 0, sizeof value);
    value.type = type;
    value.name = name;
    return value;
}

static bh_delivery_view bh_delivery_seen(const bh_delivery *delivery)
{
    bh_delivery_view view;
    bh_delivery_read(delivery, &view);
    return view;
}

static bh_past bh_history_seen(const bh_history *history)
{
    bh_past past;
    bh_history_past(history, &past);
    return past;
}
%}

%object(Delivery, bh_delivery)
%extend bh_delivery {
    void clear();
    bh_status set_address(bh_bytes exchange, bh_bytes routing_key);
    bh_status set_property(bh_property property, bh_bytes value);
    bh_status set_number(bh_property property, int64_t value);
    /* bh_delivery_push, by the fields that a type has. */
    bh_status push_int(bh_bytes name, bh_type type, int64_t integer) {
        bh_value value = bh_value_of(type, name);
        value.integer = integer;
        return bh_delivery_push($self, &value);
    }
    bh_status push_float(bh_bytes name, bh_type type, double number) {
        bh_value value = bh_value_of(type, name);
        value.number = number;
        return bh_delivery_push($self, &value);
    }
    bh_status push_string(bh_bytes name, bh_type type, bh_bytes string) {
        bh_value value = bh_value_of(type, name);
        value.string = string;
        return bh_delivery_push($self, &value);
    }
    bh_status push_decimal(bh_bytes name, int places, int64_t integer) {
        bh_value value = bh_value_of(BH_TYPE_DECIMAL, name);
        value.places = places;
        value.integer = integer;
        return bh_delivery_push($self, &value);
    }
    bh_status push_void(bh_bytes name) {
        bh_value value = bh_value_of(BH_TYPE_VOID, name);
        return bh_delivery_push($self, &value);
    }
    bh_status begin_table(bh_bytes name) {
        bh_value value = bh_value_of(BH_TYPE_TABLE, name);
        return bh_delivery_push($self, &value);
    }
    bh_status begin_array(bh_bytes name) {
        bh_value value = bh_value_of(BH_TYPE_ARRAY, name);
        return bh_delivery_push($self, &value);
    }
    bh_status end();

    /* The fields of bh_delivery_view, one by one: a tuple of all costs more. */
    bh_bytes exchange() { return bh_delivery_seen($self).exchange; }
    bh_bytes routing_key() { return bh_delivery_seen($self).routing_key; }
    size_t value_count() { return bh_delivery_seen($self).value_count; }
    int is_truncated() { return bh_delivery_seen($self).is_truncated; }
    int has_property(bh_property property);
    bh_bytes property(bh_property property);
    int64_t number(bh_property property);
    void header(bh_bytes name, bh_value *out);
    void value(size_t index, bh_value *out);
    int64_t header_bytes();
}
bh_status bh_delivery_new(bh_delivery **out);

/* --- history ---------------------------------------------------------------------------------- */

typedef enum bh_source {
    BH_SOURCE_NONE,
    BH_SOURCE_BACKHOP,
    BH_SOURCE_LEGACY,
    BH_SOURCE_X_DEATH,
    BH_SOURCE_DELIVERY_COUNT
} bh_source;

%record(bh_death, 7, BH_PUT(queue) BH_PUT(reason) BH_PUT(exchange) BH_PUT(original_expiration) BH_PUT(count)
        BH_PUT(first_time_s) BH_PUT_EACH(routing_key_count, bh_put(it->routing_keys[i])))

%record(bh_past, 13, BH_PUT(attempts) BH_PUT(source) BH_PUT(first_failure_ms) BH_PUT(last_delay_ms)
        BH_PUT(deferrals) BH_PUT(replays)
        BH_PUT(crashes) BH_PUT(delivery_count) BH_PUT(acquired_count) BH_PUT(death_count) BH_PUT(last_error)
        BH_PUT(parked) BH_PUT(traceparent))

%object(History, bh_history)
%extend bh_history {
    bh_status set_legacy_counter(bh_bytes header);
    bh_status add_wait_queue(bh_bytes queue);
    bh_status read(const bh_delivery *delivery, const bh_topology *topology);

    /* Fields of bh_past, one by one: a tuple of all costs more. */
    int64_t attempts() { return bh_history_seen($self).attempts; }
    bh_bytes id() { return bh_history_seen($self).id; }
    bh_bytes event_id() { return bh_history_seen($self).event_id; }
    bh_bytes exchange() { return bh_history_seen($self).exchange; }
    bh_bytes routing_key() { return bh_history_seen($self).routing_key; }
    int64_t lateness_ms(int redelivered, int64_t now_ms);
    bh_status assign_id(bh_bytes random);
    void past(bh_past *out);

    void death(size_t index, bh_death *out);
    void first_death(bh_death *out) { bh_history_death($self, BH_DEATH_FIRST, out); }
    void last_death(bh_death *out) { bh_history_death($self, BH_DEATH_LAST, out); }

    bh_bytes problem(size_t index);
    bh_bytes explanation();
}
bh_status bh_history_new(bh_history **out);

/* --- policy ----------------------------------------------------------------------------------- */

typedef enum bh_kind { BH_KIND_EXPONENTIAL, BH_KIND_LINEAR, BH_KIND_FIXED, BH_KIND_STEPS } bh_kind;

typedef enum bh_jitter {
    BH_JITTER_NONE,
    BH_JITTER_SPREAD,
    BH_JITTER_EQUAL,
    BH_JITTER_FULL,
    BH_JITTER_DECORRELATED
} bh_jitter;

%record(bh_limits, 6, BH_PUT(max_attempts) BH_PUT(max_ms) BH_PUT(max_age_ms)
        BH_PUT(max_retry_after_ms) BH_PUT(max_crashes) BH_PUT(max_deferrals))
%record(bh_preview, 5, BH_PUT(lowest_ms) BH_PUT(mean_ms) BH_PUT(highest_ms) BH_PUT(total_ms)
        BH_PUT(spread))

/* The fields whose defaults a language does not have. */
%record(bh_policy_settings, 7, BH_PUT(kind) BH_PUT(initial_ms) BH_PUT(factor) BH_PUT(max_ms) BH_PUT(jitter)
        BH_PUT(ratio) BH_PUT(max_attempts))

%rename(set) bh_policy::set_fields; /* by the fields of its struct */
%object(Policy, bh_policy)
%extend bh_policy {
    /* The fields of bh_policy_settings are one argument each. `steps_ms` has int64s of the host. */
    bh_status set_fields(bh_kind kind, int gives_initial, int64_t initial_ms, int gives_factor, double factor,
                         int64_t max_ms, bh_bytes steps_ms, bh_jitter jitter, double ratio, int64_t max_attempts,
                         int64_t max_age_ms, int64_t max_retry_after_ms, int64_t max_crashes, int64_t max_deferrals) {
        int64_t steps[BH_POLICY_MOST_STEPS + 1]; /* the core refuses one too many */
        size_t size = steps_ms.size < sizeof steps ? steps_ms.size : sizeof steps;
        bh_policy_settings settings;
        bh_policy_defaults(&settings);
        settings.kind = kind;
        settings.gives_initial = gives_initial;
        settings.initial_ms = initial_ms;
        settings.gives_factor = gives_factor;
        settings.factor = factor;
        settings.max_ms = max_ms;
        if (size)
            memcpy(steps, steps_ms.data, size);
        settings.steps_ms = steps;
        settings.step_count = size / sizeof *steps;
        settings.jitter = jitter;
        settings.ratio = ratio;
        settings.max_attempts = max_attempts;
        settings.max_age_ms = max_age_ms;
        settings.max_retry_after_ms = max_retry_after_ms;
        settings.max_crashes = max_crashes;
        settings.max_deferrals = max_deferrals;
        return bh_policy_set($self, &settings);
    }
    bh_status check();
    bh_bytes error();
    void read(bh_policy_settings *out);

    void limits(bh_limits *out);

    int64_t delay_ms(int64_t attempt, int64_t previous_ms, double u);
    void preview(int64_t attempt, bh_preview *out);
}
bh_status bh_policy_new(bh_policy **out);
void bh_policy_defaults(bh_policy_settings *out);
int64_t bh_retry_after_ms(bh_bytes value, int64_t now_ms);

/* --- plan ------------------------------------------------------------------------------------- */


typedef enum bh_hidden { BH_HIDDEN_WIDTHS = 1, BH_HIDDEN_BYTES = 2 } bh_hidden;

typedef enum bh_action {
    BH_ACTION_NONE,
    BH_ACTION_ACK,
    BH_ACTION_RETRY,
    BH_ACTION_REJECT,
    BH_ACTION_RETURN,
    BH_ACTION_PARK,
    BH_ACTION_DROP,
    BH_ACTION_REPLAY,
    BH_ACTION_DEFER
} bh_action;

%record(bh_planned, 7, BH_PUT(action) BH_PUT(attempts) BH_PUT(deferrals) BH_PUT(delay_ms) BH_PUT(retry_after_met)
        BH_PUT(reason) BH_PUT(header_count))
%record(bh_copy, 7, BH_PUT(id) BH_PUT(exchange) BH_PUT(routing_key) BH_PUT(expiration) BH_PUT(rung_ms) BH_PUT(mandatory)
        BH_PUT(on_demand))
%record(bh_header, 5, BH_PUT(name) BH_PUT(type) BH_PUT(string) BH_PUT(integer) BH_PUT(source))

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

    bh_action action() { /* by itself, as each message is settled by it */
        bh_planned planned;
        bh_plan_read($self, &planned);
        return planned.action;
    }
    void read(bh_planned *out);

    void copy(bh_copy *out);

    int keeps_property(bh_property property);
    int keeps_header(bh_bytes name);
    void header(size_t index, bh_header *out);
    binary copy_properties(const bh_delivery *delivery, int hidden);
}
bh_status bh_plan_new(bh_plan **out);
bh_outcome bh_plan_outcome(const bh_history *history, const bh_policy *policy, const bh_topology *topology,
                           bh_outcome outcome);

/* --- replay ----------------------------------------------------------------------------------- */

int64_t bh_replay_limit(int64_t behind, int is_shared);
int bh_replay_goes_on(bh_status status, int is_queue);
int bh_replay_after_look(bh_mode mode, bh_status looked);
int64_t bh_replay_pause_ms(int64_t foreign);
bh_bytes bh_replay_unroutable_text(bh_mode mode);
%constant int BH_REPLAY_MOST_SHARED = BH_REPLAY_MOST_SHARED;

/* --- topology --------------------------------------------------------------------------------- */

typedef enum bh_strategy {
    BH_STRATEGY_LADDER,
    BH_STRATEGY_MESSAGE_TTL,
    BH_STRATEGY_REJECT,
    BH_STRATEGY_DELAYED_EXCHANGE,
    BH_STRATEGY_NATIVE
} bh_strategy;

typedef enum bh_queue_type { BH_QUEUE_QUORUM, BH_QUEUE_CLASSIC } bh_queue_type;

typedef enum bh_series { BH_SERIES_R5, BH_SERIES_R10, BH_SERIES_R20, BH_SERIES_R40 } bh_series;

typedef enum bh_mode { BH_MODE_CREATE, BH_MODE_VERIFY, BH_MODE_NONE } bh_mode;

typedef enum bh_declaration_kind {
    BH_DECLARE_NONE,
    BH_DECLARE_EXCHANGE,
    BH_DECLARE_QUEUE,
    BH_DECLARE_BINDING
} bh_declaration_kind;

%record(bh_topology_view, 8, BH_PUT(queue) BH_PUT(parked_queue) BH_PUT(unroutable_queue) BH_PUT(worst_lateness_ms)
        BH_PUT_EACH(rung_count, bh_put(it->rungs_ms[i])) BH_PUT(declaration_count) BH_PUT(defers)
        BH_PUT(settings.strategy))
%record(bh_argument, 4, BH_PUT(name) BH_PUT(type) BH_PUT(string) BH_PUT(integer))
%fragment("bh_record_bh_argument"); /* for bh_declaration: no function has it as its result */
%record(bh_declaration, 10, BH_PUT(kind) BH_PUT(name) BH_PUT(type) BH_PUT(source) BH_PUT(routing_key)
        BH_PUT(rung_ms) BH_PUT(on_demand) BH_PUT(passive) BH_PUT(unbind)
        BH_PUT_EACH(argument_count, bh_record(bh_argument, &it->arguments[i])))

%rename(set) bh_topology::set_fields; /* by the fields of its struct */
%object(Topology, bh_topology)
%extend bh_topology {
    /* The fields of bh_topology_settings are one argument each. */
    bh_status set_fields(bh_strategy strategy, bh_queue_type queue_type, int has_namespace, bh_bytes name_space,
                         bh_series series, int64_t stripes, int declares_work_queue, bh_queue_type work_queue_type) {
        bh_topology_settings settings;
        bh_topology_defaults(&settings);
        settings.strategy = strategy;
        settings.queue_type = queue_type;
        if (has_namespace)
            settings.name_space = name_space;
        settings.series = series;
        settings.stripes = stripes;
        settings.declares_work_queue = declares_work_queue;
        settings.work_queue_type = work_queue_type;
        return bh_topology_set($self, &settings);
    }
    /* bh_topology_add_work_queue_argument, by the type. */
    bh_status add_work_queue_string(bh_bytes name, bh_bytes string) {
        bh_argument argument = {name, BH_TYPE_STRING, string, 0};
        return bh_topology_add_work_queue_argument($self, &argument);
    }
    bh_status add_work_queue_int(bh_bytes name, int64_t integer) {
        bh_argument argument = {name, BH_TYPE_INT64, bh_str(""), integer};
        return bh_topology_add_work_queue_argument($self, &argument);
    }

    bh_status add_policy(bh_policy *policy);
    bh_status build(bh_policy *policy);
    bh_status check_policy(const bh_policy *policy);
    bh_status check_broker(bh_bytes product, bh_bytes version);
    bh_bytes error();

    void read(bh_topology_view *out);
    int owns(const bh_delivery *delivery);

    void preview(const bh_policy *policy, int64_t attempt, bh_preview *out);
    double share(const bh_policy *policy, int64_t attempt, size_t index);

    bh_status declaration(size_t index, bh_declaration *out);

    bh_bytes definitions();
}
bh_status bh_topology_new(bh_topology **out, bh_bytes queue);
bh_status bh_topology_export(bh_topology *self, bh_bytes vhost); /* no method: export is a keyword of C++ */

/* --- declaring -------------------------------------------------------------------------------- */

int bh_mode_makes_rungs(bh_mode mode);

%constant int BH_LOOK_MS = BH_LOOK_MS;

typedef enum bh_refusal {
    BH_REFUSAL_CONSUMER,
    BH_REFUSAL_REPLAY,
    BH_REFUSAL_SETTLING,
    BH_REFUSAL_NO_ACK,
    BH_REFUSAL_QUEUE
} bh_refusal;
typedef enum bh_dialect { BH_DIALECT_C, BH_DIALECT_PYTHON, BH_DIALECT_RUBY, BH_DIALECT_NODE } bh_dialect;

%object(Declared, bh_declared)
%extend bh_declared {
    void clear();
}
bh_status bh_declared_new(bh_declared **out);

%object(Declaring, bh_declaring)
%extend bh_declaring {
    bh_status set_makes_rungs(int on);
    bh_status set_declared(bh_declared *declared);
    bh_status begin(bh_mode mode, int64_t rung_ms);
    bh_status look(bh_mode mode);
    int next(bh_declaration *out);
    void refuse(int code, bh_bytes text);
    void explain(bh_refusal refusal, int code, bh_bytes text, bh_bytes of);

    bh_status status();
    bh_bytes error();
}
bh_status bh_declaring_new(bh_declaring **out, const bh_topology *topology, bh_dialect dialect);
