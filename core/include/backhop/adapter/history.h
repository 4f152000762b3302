/*
 * History: the past of a message, read from its headers.
 *
 * Failed attempts are counted from the first of these sources that a message has:
 *
 *   1. backhop-attempts, Backhop's own header.
 *   2. The legacy counter, a header that the application names with bh_history_set_legacy_counter.
 *   3. The "expired" counts of x-death, summed over the queues that the application names with bh_history_add_wait_queue.
 *
 * With two strategies the broker alone moves messages. The history then adds the broker's count:
 * for reject, the "rejected" count of the work queue's x-death record; for native,
 * x-delivery-count. RabbitMQ also increments x-delivery-count if a consumer is lost. No other
 * x-death record counts, because a client may have published it.
 *
 * Headers are untrusted input. A header of a wrong type, or with a negative or absurd number, is
 * ignored and reported by bh_history_problem.
 *
 * A message may leave the parked queue by other means than bh_plan_replay: a shovel, the management
 * page, a script. With a topology, the history detects that by exchange and routing key, and begins
 * again as after bh_plan_replay.
 */
#ifndef BACKHOP_HISTORY_H
#define BACKHOP_HISTORY_H

#include <backhop/adapter/delivery.h>
#include <backhop/topology.h>

BH_BEGIN_DECLS

#define BH_HISTORY_MOST_ATTEMPTS INT64_C(1000000000) /* a higher count is ignored */
#define BH_HISTORY_MOST_PROBLEMS 32                  /* more problems are dropped */
#define BH_HISTORY_ID_RANDOM_BYTES 16                /* for bh_history_assign_id */
#define BH_DEATH_FIRST ((size_t)-2)                  /* for bh_history_death: the headers x-first-death-* */
#define BH_DEATH_LAST ((size_t)-3)                   /* and x-last-death-* */
#define BH_HISTORY_MOST_ERROR_BYTES 1024             /* of an error's text; the rest is cut between UTF-8 characters */

/* The source of the count of attempts. */
typedef enum bh_source {
    BH_SOURCE_NONE,
    BH_SOURCE_BACKHOP,
    BH_SOURCE_LEGACY,
    BH_SOURCE_X_DEATH,
    BH_SOURCE_DELIVERY_COUNT
} bh_source;

/*
 * A record of x-death: RabbitMQ keeps one for each queue and reason. Texts of missing fields are
 * "". The texts are valid until the history is read again.
 */
typedef struct bh_death {
    bh_bytes queue;
    bh_bytes reason; /* "rejected", "expired", "maxlen" or "delivery_limit" */
    bh_bytes exchange;
    bh_bytes original_expiration; /* the expiration that the broker removed, in decimal digits */
    int64_t count;                /* 1 if the field is missing */
    int64_t first_time_s;         /* the first death, in seconds since the epoch; -1 if it is missing */
    const bh_bytes *routing_keys;
    size_t routing_key_count;
} bh_death;

/*
 * The past of a message, in numbers and short texts. The texts are valid until the history is read
 * again; a missing text is "".
 *
 * About `crashes`. Only quorum queues count lost deliveries. The number is x-delivery-count,
 * without the deliveries that the strategy itself adds to it, plus the crashes that bh_plan_guard
 * counted before the last wait (backhop-crashes). After a failed attempt, the copy begins at 0.
 *
 *   reject  without the "rejected" count of the work queue's x-death record. RabbitMQ 4.0 to 4.2 increment
 *           x-delivery-count for each basic.nack(requeue=false); on other versions the result may be too low.
 *   native  0, because basic.reject(requeue=true) and a crash increment the same count: both are attempts.
 *
 * x-acquired-count is not used. RabbitMQ 4.3 increments it also for returns that are no failures:
 * basic.nack, consumer timeouts, a worker that stops normally. Before 4.3, x-delivery-count
 * includes every requeue, also of messages that a consumer only prefetched.
 */
typedef struct bh_past {
    int64_t attempts; /* failed attempts */
    bh_source source; /* of attempts: the first of 1 to 3 above; else the broker's count, if that is the only one */
    /* of the first failed attempt or deferral */
    int64_t first_failure_ms; /* since the epoch; in whole seconds if x-death is the source; -1 if unknown */
    int64_t last_delay_ms;    /* -1 if unknown */
    int64_t deferrals;        /* waits that were no attempts: throttled, or while a breaker was open */
    int64_t replays;          /* how often the message left the parked queue, by bh_plan_replay or by other means */
    int64_t crashes;          /* deliveries that ended without being settled: see above */
    int64_t delivery_count;   /* x-delivery-count of a quorum queue; 0 if missing */
    int64_t acquired_count;   /* x-acquired-count of a quorum queue (RabbitMQ 4.3); 0 if missing */
    size_t death_count;       /* records of x-death, for bh_history_death */
    bh_bytes last_error;      /* text of the last error */
    bh_bytes parked;          /* why the message was parked: the reason of bh_planned; "" if it was not */
    bh_bytes traceparent;     /* of the last attempt that failed, as bh_plan_set_traceparent set it */
    /*
     * The id that all attempts share: backhop-id, else the message-id property.
     *
     * "" for a first attempt without message-id. The first copy of such a message gets the assigned
     * id (bh_history_assign_id), else a random id (bh_copy). If a lost connection leaves two copies
     * of one original, the copies have two ids. Only a message-id gives them the same id.
     */
    bh_bytes id;
    bh_bytes event_id; /* for events and logs: the id, else the assigned id, else "" */
    /*
     * The address of the first publish. Backhop saved it in headers; without these it is the
     * delivery's own. Only show them. Do not route by them, because a header is untrusted.
     */
    bh_bytes exchange;
    bh_bytes routing_key;
} bh_past;

typedef struct bh_history bh_history;

/*
 * Creates a history in *out. Free it with bh_history_free.
 *
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT if out is NULL.
 */
BH_API bh_status bh_history_new(bh_history **out);
/* Frees the history. NULL is allowed. */
BH_API void bh_history_free(bh_history *self);

/*
 * Sets the header that counted failures before the application used Backhop. "" for none, the
 * default.
 *
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_history_set_legacy_counter(bh_history *self, bh_bytes header);
/*
 * Adds a wait queue of a set-up that the application made by hand. Each expiry in that queue counts
 * as a failure.
 *
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT if the name is empty.
 */
BH_API bh_status bh_history_add_wait_queue(bh_history *self, bh_bytes queue);

/*
 * Reads the past of a delivery. Replaces the result of the last read.
 *
 * topology: gives the strategy and the work queue. If it is NULL, no strategy counts, and the
 * history does not detect a message that left the parked queue.
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT; BH_ERR_STATE if a table or array of the delivery is
 * open.
 */
BH_API bh_status bh_history_read(bh_history *self, const bh_delivery *delivery, const bh_topology *topology);

/* Reads the facts of the last read into *out: see bh_past. If `self` is NULL, as of a message
 * without a past. */
BH_API void bh_history_past(const bh_history *self, bh_past *out);
/*
 * Returns how long after its due time (backhop-due) the retry arrived, in ms. Returns 0 if it
 * arrived early, which happens if clocks differ.
 *
 * Returns -1 for a first attempt, and if the due time is more than three years away. Returns -1 for
 * a redelivery, because the message may have arrived in time before.
 *
 * now_ms: since the epoch.
 */
BH_API int64_t bh_history_lateness_ms(const bh_history *self, int redelivered, int64_t now_ms);
/*
 * Assigns an id to a message that has none, for its events and its first copy. Call it once per
 * delivery, after bh_history_read. Does nothing if the message has an id.
 *
 * random: BH_HISTORY_ID_RANDOM_BYTES random bytes.
 * Errors: BH_ERR_ARGUMENT; BH_ERR_STATE if the history is not read.
 */
BH_API bh_status bh_history_assign_id(bh_history *self, bh_bytes random);
/*
 * Reads a record of x-death into *out. The most recent record has index 0.
 *
 * BH_DEATH_FIRST and BH_DEATH_LAST read x-first-death-* and x-last-death-*: queue, reason and
 * exchange, "" for a missing header. RabbitMQ writes x-last-death-* since 3.13.
 *
 * Errors: BH_ERR_ARGUMENT if index is neither of these, and not below death_count of bh_past; *out
 * is then empty.
 */
BH_API bh_status bh_history_death(const bh_history *self, size_t index, bh_death *out);

/* Returns a sentence about a header that was ignored. It begins with the header's name. "" after
 * the last problem. */
BH_API bh_bytes bh_history_problem(const bh_history *self, size_t index);

/*
 * Returns a text that explains the message's past to an operator, in lines: failures, errors,
 * delays, dead-lettering, ignored headers. It is UTF-8, with times in UTC, and shows other bytes as
 * "?".
 *
 * Returns "" if nothing was read. The text is valid until the next call with this history. If there
 * is no memory, it ends early.
 */
BH_API bh_bytes bh_history_explanation(bh_history *self);

BH_END_DECLS

#endif
