/*
 * Breaker: spares a downstream that is down. It decides which messages a handler may get now.
 *
 *     bh_breaker_settings settings;
 *     bh_breaker_defaults(&settings);
 *     bh_breaker_new(&breaker, &settings, random);
 *     bh_breaker_permit(breaker, bh_str(""), now_ms, &permit);
 *     if (permit.generation == 0) hold the message, and try again at permit.until_ms
 *     else call the handler, and then bh_breaker_record(breaker, bh_str(""), &permit, &call, now_ms)
 *
 * The states have resilience4j's names:
 *
 *   - Closed: every permit is granted. The breaker opens if enough calls of the window failed, if
 *     enough calls failed in a row, or if enough calls were slow.
 *   - Open: no permit is granted until the pause ends. The policy `pauses` returns its length. A
 *     Retry-After makes it longer.
 *   - Half-open: one call at a time is a probe. Enough successes in a row close the breaker. A
 *     failed, slow, throttled or lost probe opens it again.
 *   - Closed, with a ramp: after its probes the breaker permits 1 call at a time, then 2, 4, ... up
 *     to ramp_calls. Failures halve this limit.
 *
 * The rules for outcomes:
 *
 *   - Each change of the state begins a generation. A call of an earlier generation changes nothing.
 *   - A call counts once. The breaker ignores it if it is recorded again, or if 8 * ramp_calls
 *     younger permits were granted since.
 *   - Failures in a row: when the first call of a row fails, others are in flight. If they fail too,
 *     they do not lengthen the row. So 50 calls on one connection that is reset count as one.
 *   - You need not record every permit. A lost probe counts as failed after probe_timeout_ms. In the
 *     ramp, lost calls give their places back after that time.
 *
 * With the setting by_key, each key has a state of its own: for instance each customer's host, or
 * each tenant. A message whose key is open waits without an attempt, and the messages of other keys
 * flow:
 *
 *     bh_breaker_permit(breaker, key, now_ms, &permit);
 *     if (permit.generation == 0) settle it by BH_OUTCOME_DEFERRED
 *     else call the handler, and then bh_breaker_record(breaker, key, &permit, &call, now_ms)
 *
 * The delay of a deferred message is permit.until_ms - now_ms.
 *
 * A key is untrusted: only its hash is kept. At most BH_BREAKER_MOST_KEYS keys have a state: a
 * further key replaces the one that was used least recently. Without by_key, each key must be
 * empty.
 *
 * Sources: gobreaker (generations), resilience4j (states, slow calls), Polly (share and least
 * calls), Semian (successes that close). tests/vectors/breaker has their cases and the differences.
 *
 * One breaker can serve several consumers, workers and threads: all that call the same downstream.
 * Any thread may call any function. bh_worker_settings gives it to a worker.
 *
 * Times are in ms of one clock, 0 to 2^53 - 1. If the clock goes back, the breaker continues from
 * there. A worker uses CLOCK_MONOTONIC. Without by_key, no call but bh_breaker_new allocates.
 */
#ifndef BACKHOP_BREAKER_H
#define BACKHOP_BREAKER_H

#include <backhop/policy.h>

BH_BEGIN_DECLS

#define BH_BREAKER_RANDOM_BYTES 8
#define BH_BREAKER_BUCKETS 6         /* the parts of the window; the oldest one ends as a whole */
#define BH_BREAKER_MOST_CALLS 65536  /* for ramp_calls */
#define BH_BREAKER_NEVER INT64_C(-1) /* until_ms: nothing changes by time alone */
#define BH_BREAKER_MOST_NAME 64      /* bytes */
#define BH_BREAKER_MOST_KEYS 10000
#define BH_BREAKER_REASON_BYTES 320

typedef enum bh_breaker_state {
    BH_BREAKER_CLOSED,
    BH_BREAKER_OPEN,
    BH_BREAKER_HALF_OPEN,
    BH_BREAKER_DISABLED /* every permit is granted, and no call counts */
} bh_breaker_state;

/* The outcome of a call, for the breaker. */
typedef enum bh_call_kind {
    BH_CALL_SUCCESS,
    BH_CALL_FAILURE,  /* the downstream's fault */
    BH_CALL_IGNORED,  /* the message's own fault, or no call was made: counts as nothing */
    BH_CALL_THROTTLED /* the downstream is busy: "not now" */
} bh_call_kind;

/* The settings of a breaker. Call bh_breaker_defaults first, and change what you need. */
typedef struct bh_breaker_settings {
    bh_bytes name;            /* for events, metrics and logs: UTF-8, at most 64 bytes; copied. Default: "" */
    int64_t window_ms;        /* 6 to 86,400,000; default: 60,000 */
    int64_t least_calls;      /* calls in the window before a share counts: 1 to 10^9; default: 20 */
    int64_t failure_percent;  /* share of failures that opens it: 1 to 100; default: 50 */
    int64_t row_failures;     /* failures in a row that open it: 0 (off) to 10^9; default: 10 */
    int64_t slow_ms;          /* calls that take longer are slow: 0 (off) to 86,400,000; default: 0 */
    int64_t slow_percent;     /* share of slow calls that opens it: 1 to 100; default: 100 */
    int64_t probe_successes;  /* successes in a row that close it: 1 to 1,000; default: 3 */
    int64_t probe_timeout_ms; /* a call that takes longer is lost: 1 to 86,400,000; default: 60,000 */
    int64_t ramp_calls;       /* calls at once that end the ramp: 1 to 65,536; default: 1,024; by_key: at most 64 */
    int64_t throttled_opens;  /* 1: a throttled call opens it, as whole_queue does; default: 0 */
    int64_t by_key;           /* 1: each key has a state of its own; default: 0 */
    /*
     * The pauses; copied. NULL: 10 s, doubled up to 5 min, spread 0.2. max_retry_after_ms of the
     * policy, by default 1 h, limits what a Retry-After adds. Other limits are ignored.
     */
    const bh_policy *pauses;
} bh_breaker_settings;

/* The permit to make one call. */
typedef struct bh_permit {
    int64_t generation; /* 0: not granted */
    int64_t number;     /* 1, 2, ... over all generations */
    /* if not granted: when to try again. A recorded call or another state may grant one earlier. */
    int64_t until_ms;
} bh_permit;

/* The end of a call. Zeroed fields are empty. */
typedef struct bh_call {
    bh_call_kind kind;
    int64_t duration_ms; /* for slow_ms */
    /*
     * of a failed or throttled call: the next pause is not shorter; 0 or less: none. A success in
     * between cancels it.
     */
    int64_t retry_after_ms;
    int whole_queue;      /* 1: a throttled call opens the breaker for retry_after_ms or longer */
    bh_bytes error_class; /* for the reason: "TimeoutError"; untrusted, cut after 64 bytes */
} bh_call;

/* The state of a breaker, its counts and its reason. */
typedef struct bh_breaker_view {
    bh_breaker_state state;
    int64_t generation; /* rises with each change of the state */
    int64_t until_ms;   /* open: end of the pause; half-open: limit of the probe; else BH_BREAKER_NEVER */
    int64_t limit;      /* calls at once; 0: no limit */
    int64_t pauses;     /* openings since the breaker was closed for a whole window */
    int64_t calls;      /* in the window: successes and failures */
    int64_t failures;
    int64_t slow;
    int grants;    /* 1: a permit would be granted now */
    bh_bytes name; /* of the settings */
    /* of the state, in words: "14 of 20 failed in 60 s: TimeoutError"; ends with a zero byte */
    char reason[BH_BREAKER_REASON_BYTES];
} bh_breaker_view;

typedef struct bh_breaker bh_breaker;

/* Fills the settings with their defaults. Does nothing if `out` is NULL. */
BH_API void bh_breaker_defaults(bh_breaker_settings *out);
/*
 * Returns the first setting that is out of range, its range and what to do. Returns "" if there is
 * none.
 */
BH_API bh_bytes bh_breaker_settings_error(const bh_breaker_settings *settings);
/*
 * Creates a closed breaker in *out. Free it with bh_breaker_free.
 *
 * random: BH_BREAKER_RANDOM_BYTES random bytes, for the jitter of the pauses.
 * Errors: BH_ERR_ARGUMENT if an argument is missing or a setting is out of range; see
 *         bh_breaker_settings_error.
 *         BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_breaker_new(bh_breaker **out, const bh_breaker_settings *settings, bh_bytes random);
/* Frees the breaker, after the workers and flows that it was given to. NULL is allowed. */
BH_API void bh_breaker_free(bh_breaker *self);

/*
 * Returns the kind of call for a handler's outcome:
 *
 *   - BH_OUTCOME_OK: a success.
 *   - BH_OUTCOME_FAILED: a failure; ignored if it is not the downstream's.
 *   - BH_OUTCOME_THROTTLED: throttled.
 *   - Others: ignored.
 *
 * is_downstreams: 0 if the error is known to be the message's own fault.
 */
BH_API bh_call_kind bh_call_kind_of(bh_outcome outcome, int is_downstreams);
/*
 * Requests the permit to make one call now. permit.generation is 0 if it is not granted.
 *
 * If you get a permit and make no call, record it as BH_CALL_IGNORED. At the end of a pause, this
 * function changes the state to half-open.
 *
 * If a key gets no permit, its message waits until until_ms. That is the end of the pause, or a
 * minute from now if the pause has no end. While another message of the key probes, it is a second
 * from now.
 *
 * key: empty without by_key.
 * Errors: BH_ERR_ARGUMENT. BH_ERR_NO_MEMORY, with by_key. The permit is then not granted.
 */
BH_API bh_status bh_breaker_permit(bh_breaker *self, bh_bytes key, int64_t now_ms, bh_permit *out);
/*
 * Records the end of the call of a permit.
 *
 * Returns 1 if the call counted. Returns 0 for:
 *
 *   - a call of an earlier generation,
 *   - a permit that was recorded before, or was never granted,
 *   - a key that was replaced since,
 *   - a kind that does not exist.
 */
BH_API int bh_breaker_record(bh_breaker *self, bh_bytes key, const bh_permit *permit, const bh_call *call,
                             int64_t now_ms);

/*
 * Opens the breaker by hand. Later calls and records do not shorten this.
 *
 * until_ms: the end of the pause; probes follow. BH_BREAKER_NEVER: until bh_breaker_close.
 * Errors: BH_ERR_ARGUMENT if until_ms is out of range. BH_ERR_NO_MEMORY, with by_key.
 */
BH_API bh_status bh_breaker_open(bh_breaker *self, bh_bytes key, int64_t until_ms, int64_t now_ms);
/* Closes the breaker by hand. After open and half-open the ramp follows. */
BH_API void bh_breaker_close(bh_breaker *self, bh_bytes key, int64_t now_ms);
/*
 * Disables the breaker until bh_breaker_close or bh_breaker_open.
 *
 * Errors: BH_ERR_ARGUMENT. BH_ERR_NO_MEMORY, with by_key.
 */
BH_API bh_status bh_breaker_disable(bh_breaker *self, bh_bytes key, int64_t now_ms);

/*
 * Reads the state. Changes nothing: a pause that is over stays open until the next permit. A key
 * without a state is closed.
 *
 * To emit an event for each change, compare `generation` after each call. One call changes the
 * state once at most.
 */
BH_API void bh_breaker_read(bh_breaker *self, bh_bytes key, int64_t now_ms, bh_breaker_view *out);

BH_END_DECLS

#endif
