/*
 * Policy: the rules for delays and limits. Times are whole milliseconds.
 *
 *     bh_policy *policy;
 *     bh_policy_settings settings;
 *     bh_policy_defaults(&settings);   exponential: 1 s, times 2, up to 5 min, spread 0.2, 10 attempts
 *     settings.initial_ms = 10000;
 *     settings.factor = 3;
 *     settings.max_ms = 3600000;
 *     bh_policy_new(&policy);
 *     if (bh_policy_set(policy, &settings) != BH_OK || bh_policy_check(policy) != BH_OK)
 *         puts(bh_policy_error(policy).data);
 */
#ifndef BACKHOP_POLICY_H
#define BACKHOP_POLICY_H

#include <backhop/status.h>
#include <stdint.h>

BH_BEGIN_DECLS

/* the longest delay, step, cap and age: three years */
#define BH_POLICY_LONGEST_MS INT64_C(100000000000)
#define BH_POLICY_MOST_STEPS 1000
/* max_ms and max_attempts: the default of the kind; see bh_limits. Exact as a double. */
#define BH_POLICY_OF_KIND INT64_C(-9007199254740990)
#define BH_POLICY_MOST_ATTEMPTS INT64_C(1000000000)
/*
 * The number of retries that a message gets after max_crashes crashes, if no crash falls between
 * two of them. Then bh_plan_guard parks it. The default max_crashes of 5 allows 20 crashes, as many
 * as RabbitMQ 4's delivery limit. With the default policy, these retries take less than two minutes
 * for one message in 10^10.
 */
#define BH_POLICY_CRASH_RETRIES 16

/* The decision of the handler. */
typedef enum bh_outcome {
    BH_OUTCOME_OK,
    BH_OUTCOME_FAILED,    /* retry, while attempts remain */
    BH_OUTCOME_PERMANENT, /* no attempt can succeed: park the message now */
    BH_OUTCOME_DROPPED,   /* the message is not needed any more */
    BH_OUTCOME_RELEASED,  /* a stop aborted the handler: no attempt; the message goes back to its queue */
    BH_OUTCOME_THROTTLED, /* the downstream is busy: the message waits, and this is no attempt */
    BH_OUTCOME_DEFERRED   /* no handler got it, as a breaker is open: it waits, without any limit */
} bh_outcome;

typedef enum bh_kind { BH_KIND_EXPONENTIAL, BH_KIND_LINEAR, BH_KIND_FIXED, BH_KIND_STEPS } bh_kind;

/* The random part of a delay d. u is the random number, r the ratio. */
typedef enum bh_jitter {
    BH_JITTER_NONE,
    /* d * (1 - r + 2ru); d is first lowered to max / (1 + r), so that the cap has its spread */
    BH_JITTER_SPREAD,
    BH_JITTER_EQUAL,       /* d / 2 + u * d / 2 */
    BH_JITTER_FULL,        /* u * d */
    BH_JITTER_DECORRELATED /* min(max, initial + u * (3 * previous - initial)) */
} bh_jitter;

/* The fields of a policy. Times are ms. A time without a comment is 1 to BH_POLICY_LONGEST_MS. */
typedef struct bh_policy_settings {
    bh_kind kind;       /* the formula of the delays; default: exponential */
    int64_t initial_ms; /* the delay after the first failure; default: 1000 */
    double factor;      /* of kind exponential: finite, at least 1; default: 2 */
    int64_t max_ms;     /* the highest delay, jitter included; default: BH_POLICY_OF_KIND */
    /* of kind steps: the delays in order, at most BH_POLICY_MOST_STEPS; bh_policy_set copies
     * them */
    const int64_t *steps_ms;
    size_t step_count;
    bh_jitter jitter; /* default: spread */
    double ratio;     /* of jitter spread: 0 (no jitter) to 1; default: 0.2 */
    /* the first included, at most BH_POLICY_MOST_ATTEMPTS; 0: no limit; default:
     * BH_POLICY_OF_KIND */
    int64_t max_attempts;
    /*
     * The highest age since the first failure, by the clocks of the consumers' hosts. If a retry
     * would start later, the message is parked. 0, the default: no limit. If a clock jumps ahead by
     * more than this age, the messages that retry at that time are parked.
     */
    int64_t max_age_ms;
    /* the highest delay that a handler can request; 0: ignores requests; default: 86400000 */
    int64_t max_retry_after_ms;
    /*
     * The number of crashes (crashes of bh_past) after which bh_plan_guard delays a message before
     * the next attempt. Strategy reject parks the message instead. Strategy native counts crashes
     * as attempts and ignores this limit. At most BH_POLICY_MOST_ATTEMPTS; 0: no limit; default: 5.
     */
    int64_t max_crashes;
    /*
     * How often a message can be deferred (BH_OUTCOME_THROTTLED). Each later throttled outcome is a
     * failed attempt, so that every message comes to an end. At most BH_POLICY_MOST_ATTEMPTS; 0: no
     * limit; default: 100.
     */
    int64_t max_deferrals;
    /*
     * 1 if the user of the program gave initial_ms, or factor. bh_policy_set then refuses the field
     * if the kind does not use it. Kind steps has no initial delay. Only kind exponential has a
     * factor.
     * Default: 0. bh_policy_read returns 0.
     */
    int gives_initial;
    int gives_factor;
} bh_policy_settings;

/* The limits in force: the values that were set, or the defaults. */
typedef struct bh_limits {
    int64_t max_attempts;       /* default: 10; kind steps: the number of steps + 1; 0: no limit */
    int64_t max_ms;             /* default: 300000; kind steps: BH_POLICY_LONGEST_MS */
    int64_t max_age_ms;         /* default: 0, no limit */
    int64_t max_retry_after_ms; /* default: 86400000 */
    int64_t max_crashes;        /* default: 5; 0: no limit */
    int64_t max_deferrals;      /* default: 100; 0: no limit */
} bh_limits;

/* The delay after one failure, in ms, and the rungs on which messages wait that fail together. */
typedef struct bh_preview {
    int64_t lowest_ms;
    int64_t mean_ms;
    int64_t highest_ms;
    int64_t total_ms; /* the sum of the mean delays up to this failure */
    /* the number of rungs; 0: the strategy has no rungs, or no topology was given */
    size_t spread;
} bh_preview;

typedef struct bh_policy bh_policy;

/*
 * Creates a policy with all defaults in *out. Free it with bh_policy_free.
 *
 * Errors: BH_ERR_ARGUMENT if `out` is NULL.
 *         BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_policy_new(bh_policy **out);
/* Frees the policy. NULL is allowed. */
BH_API void bh_policy_free(bh_policy *self);

/* Writes the defaults to *out. */
BH_API void bh_policy_defaults(bh_policy_settings *out);
/*
 * Sets all fields. If this fails, it leaves the policy unchanged.
 *
 * Errors: BH_ERR_ARGUMENT if an argument is NULL.
 *         BH_ERR_POLICY if a value is out of range; see bh_policy_error.
 *         BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_policy_set(bh_policy *self, const bh_policy_settings *settings);
/*
 * Reads the fields, to change some of them. The steps stay valid until the next bh_policy_set.
 * Spread with ratio 0 is BH_JITTER_NONE. Writes the defaults if `self` is NULL.
 */
BH_API void bh_policy_read(const bh_policy *self, bh_policy_settings *out);

/*
 * Checks that the fields of the policy fit together.
 *
 * Errors: BH_ERR_POLICY; see bh_policy_error. Kind steps needs steps, and no decorrelated jitter.
 *         Other kinds must have no steps. The initial delay and the steps must not be above the highest
 *         delay.
 */
BH_API bh_status bh_policy_check(bh_policy *self);
/* Returns the reason of the last BH_ERR_POLICY: the field, its value, and what to do. */
BH_API bh_bytes bh_policy_error(const bh_policy *self);

/* Reads the limits in force. All are 0 if `self` is NULL. */
BH_API void bh_policy_limits(const bh_policy *self, bh_limits *out);

/*
 * Returns the delay after the `attempt`-th failure (1, 2, ...), in ms: at least 1. After the last
 * step, kind steps repeats the last step.
 *
 * previous_ms: the delay before this one, for decorrelated jitter. A delay below the initial delay
 * counts as initial.
 * u: the random number, 0 to below 1. A number out of range counts as the nearest in range, NaN as
 * 0.
 */
BH_API int64_t bh_policy_delay_ms(const bh_policy *self, int64_t attempt, int64_t previous_ms, double u);

/*
 * Reads the value of HTTP's header Retry-After: whole seconds ("120"), or a date in one of HTTP's
 * three formats. Returns the delay in ms: 0 to BH_POLICY_LONGEST_MS.
 *
 * Returns 0, no delay, for an empty or malformed value, a fraction of seconds, and a date that is
 * over. White space around the value is ignored.
 *
 * now_ms: since the epoch.
 */
BH_API int64_t bh_retry_after_ms(bh_bytes value, int64_t now_ms);

/*
 * Reads the delay after the `attempt`-th failure (1, 2, ...) by the formula alone. The rungs of a
 * topology change the delays; see bh_topology_preview.
 *
 * With decorrelated jitter, the mean is the mean after a mean previous delay. It is exact until the
 * highest delay is reached, and a little high afterwards. The sum counts all attempts after the
 * millionth as the millionth.
 */
BH_API void bh_policy_preview(const bh_policy *self, int64_t attempt, bh_preview *out);

BH_END_DECLS

#endif
