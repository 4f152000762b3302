/* The noun that spares a downstream that is down: breaker. */

/* --- breaker ---------------------------------------------------------------------------------- */

typedef enum bh_outcome {
    BH_OUTCOME_OK,
    BH_OUTCOME_FAILED,
    BH_OUTCOME_PERMANENT,
    BH_OUTCOME_DROPPED,
    BH_OUTCOME_RELEASED,
    BH_OUTCOME_THROTTLED,
    BH_OUTCOME_DEFERRED
} bh_outcome;

typedef enum bh_breaker_state {
    BH_BREAKER_CLOSED,
    BH_BREAKER_OPEN,
    BH_BREAKER_HALF_OPEN,
    BH_BREAKER_DISABLED
} bh_breaker_state;

typedef enum bh_call_kind { BH_CALL_SUCCESS, BH_CALL_FAILURE, BH_CALL_IGNORED, BH_CALL_THROTTLED } bh_call_kind;

%record(bh_breaker_settings, 10, BH_PUT(window_ms) BH_PUT(least_calls) BH_PUT(failure_percent) BH_PUT(row_failures)
        BH_PUT(slow_ms) BH_PUT(slow_percent) BH_PUT(probe_successes) BH_PUT(probe_timeout_ms) BH_PUT(ramp_calls)
        BH_PUT(throttled_opens))
%record(bh_permit, 3, BH_PUT(generation) BH_PUT(number) BH_PUT(until_ms))
%record(bh_breaker_view, 10,
        BH_PUT(state) BH_PUT(generation) BH_PUT(until_ms) BH_PUT(limit) BH_PUT(pauses) BH_PUT(calls)
        BH_PUT(failures) BH_PUT(slow) BH_PUT(grants) BH_PUT_TEXT(reason))

/* The settings are one argument each, in the order of bh_breaker_settings. `pauses` may be
 * nothing. */
%{
static bh_breaker_settings bh_breaker_given(bh_bytes name, int64_t window_ms, int64_t least_calls,
                                            int64_t failure_percent, int64_t row_failures, int64_t slow_ms,
                                            int64_t slow_percent, int64_t probe_successes, int64_t probe_timeout_ms,
                                            int64_t ramp_calls, int64_t throttled_opens)
{
    bh_breaker_settings settings;
    bh_breaker_defaults(&settings);
    settings.name = name;
    settings.window_ms = window_ms;
    settings.least_calls = least_calls;
    settings.failure_percent = failure_percent;
    settings.row_failures = row_failures;
    settings.slow_ms = slow_ms;
    settings.slow_percent = slow_percent;
    settings.probe_successes = probe_successes;
    settings.probe_timeout_ms = probe_timeout_ms;
    settings.ramp_calls = ramp_calls;
    settings.throttled_opens = throttled_opens;
    return settings;
}

static bh_status bh_breaker_make(bh_breaker **out, bh_bytes name, int64_t window_ms, int64_t least_calls,
                                 int64_t failure_percent, int64_t row_failures, int64_t slow_ms, int64_t slow_percent,
                                 int64_t probe_successes, int64_t probe_timeout_ms, int64_t ramp_calls,
                                 int64_t throttled_opens, int64_t by_key, const bh_policy *pauses, bh_bytes random)
{
    bh_breaker_settings settings =
        bh_breaker_given(name, window_ms, least_calls, failure_percent, row_failures, slow_ms, slow_percent,
                         probe_successes, probe_timeout_ms, ramp_calls, throttled_opens);
    settings.by_key = by_key;
    settings.pauses = pauses;
    return bh_breaker_new(out, &settings, random);
}

/* In Node the wrapper is C++, which has no compound literals. */
static bh_permit bh_permit_given(int64_t generation, int64_t number)
{
    bh_permit permit;
    memset(&permit, 0, sizeof permit);
    permit.generation = generation;
    permit.number = number;
    return permit;
}

static bh_call bh_call_given(bh_call_kind kind, int64_t duration_ms, int64_t retry_after_ms, int whole_queue,
                             bh_bytes error_class)
{
    bh_call call;
    memset(&call, 0, sizeof call);
    call.kind = kind;
    call.duration_ms = duration_ms;
    call.retry_after_ms = retry_after_ms;
    call.whole_queue = whole_queue;
    call.error_class = error_class;
    return call;
}

static bh_bytes bh_breaker_refuse(bh_bytes name, int64_t window_ms, int64_t least_calls, int64_t failure_percent,
                                  int64_t row_failures, int64_t slow_ms, int64_t slow_percent, int64_t probe_successes,
                                  int64_t probe_timeout_ms, int64_t ramp_calls, int64_t throttled_opens)
{
    bh_breaker_settings settings =
        bh_breaker_given(name, window_ms, least_calls, failure_percent, row_failures, slow_ms, slow_percent,
                         probe_successes, probe_timeout_ms, ramp_calls, throttled_opens);
    return bh_breaker_settings_error(&settings);
}
%}

%rename(record) bh_breaker::end_call; /* by the fields of its structs */
%object(Breaker, bh_breaker)
%extend bh_breaker {
    bh_bytes name() { /* without a key */
        bh_breaker_view view;
        bh_bytes none = {"", 0};
        bh_breaker_read($self, none, 0, &view);
        return view.name;
    }
    bh_status permit(bh_bytes key, int64_t now_ms, bh_permit *out);
    int end_call(bh_bytes key, int64_t generation, int64_t number, bh_call_kind kind, int64_t duration_ms,
                 int64_t retry_after_ms, int whole_queue, bh_bytes error_class, int64_t now_ms) {
        bh_permit permit = bh_permit_given(generation, number);
        bh_call call = bh_call_given(kind, duration_ms, retry_after_ms, whole_queue, error_class);
        return bh_breaker_record($self, key, &permit, &call, now_ms);
    }
    bh_status open(bh_bytes key, int64_t until_ms, int64_t now_ms);
    void close(bh_bytes key, int64_t now_ms);
    bh_status disable(bh_bytes key, int64_t now_ms);
    void read(bh_bytes key, int64_t now_ms, bh_breaker_view *out);
}
bh_call_kind bh_call_kind_of(bh_outcome outcome, int is_downstreams);
void bh_breaker_defaults(bh_breaker_settings *out);
%rename(bh_breaker_settings_error) bh_breaker_refuse;
bh_bytes bh_breaker_refuse(bh_bytes name, int64_t window_ms, int64_t least_calls, int64_t failure_percent,
                           int64_t row_failures, int64_t slow_ms, int64_t slow_percent, int64_t probe_successes,
                           int64_t probe_timeout_ms, int64_t ramp_calls, int64_t throttled_opens);
%rename(bh_breaker_new) bh_breaker_make;
bh_status bh_breaker_make(bh_breaker **out, bh_bytes name, int64_t window_ms, int64_t least_calls,
                          int64_t failure_percent, int64_t row_failures, int64_t slow_ms, int64_t slow_percent,
                          int64_t probe_successes, int64_t probe_timeout_ms, int64_t ramp_calls,
                          int64_t throttled_opens, int64_t by_key, const bh_policy *pauses, bh_bytes random);
