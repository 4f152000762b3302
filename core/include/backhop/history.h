/*
 * History: what the headers tell of a message's past.
 *
 * Failed attempts are counted from the first of these that is there:
 *   1. backhop-attempts, Backhop's own header;
 *   2. a legacy counter header, where the application names one (bh_history_set_legacy_counter);
 *   3. the x-death records of wait queues of a hand-made set-up, where the application names them
 *      (bh_history_add_wait_queue): the sum of their "expired" counts.
 * Strategies in which the broker alone moves messages add what it has counted since: reject the "rejected" count of the
 * work queue's x-death record, native x-delivery-count, which grows with every delivery that was not settled, also when
 * its consumer died. No other x-death record counts: a client may have republished it.
 *
 * A header that cannot be trusted (a wrong type, a negative or absurd number) is ignored and named in the problems.
 */
#ifndef BACKHOP_HISTORY_H
#define BACKHOP_HISTORY_H

#include <backhop/delivery.h>
#include <backhop/topology.h>

BH_BEGIN_DECLS

#define BH_HISTORY_MOST_ATTEMPTS INT64_C(1000000000) /* a higher count is absurd, and ignored */
#define BH_HISTORY_MOST_PROBLEMS 32                  /* further ones are dropped */
#define BH_HISTORY_MOST_ERROR_BYTES 1024             /* of an error's text; the rest is cut at a UTF-8 border */

typedef enum bh_source {
    BH_SOURCE_NONE,
    BH_SOURCE_BACKHOP,
    BH_SOURCE_LEGACY,
    BH_SOURCE_X_DEATH,
    BH_SOURCE_DELIVERY_COUNT
} bh_source;

typedef struct bh_history bh_history;

/* A new history in *out; free it with bh_history_free. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT. */
BH_API bh_status bh_history_new(bh_history **out);
/* Frees the history; NULL is allowed. */
BH_API void bh_history_free(bh_history *self);

/* A header in which an earlier retry code of the application counted failures; "" for none. BH_ERR_NO_MEMORY. */
BH_API bh_status bh_history_set_legacy_counter(bh_history *self, bh_bytes header);
/* A wait queue of an earlier, hand-made set-up: each expiry there was a failure. BH_ERR_NO_MEMORY. */
BH_API bh_status bh_history_add_wait_queue(bh_history *self, bh_bytes queue);

/*
 * Reads the delivery's past and replaces what was read before. `topology` tells the strategy and the work queue; NULL:
 * no strategy counts. BH_ERR_NO_MEMORY, BH_ERR_STATE (a table of the delivery is open), BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_history_read(bh_history *self, const bh_delivery *delivery, const bh_topology *topology);

/*
 * A message that was parked, and arrives by another way than the one into the parked queue, was moved back by hand (a
 * shovel, the management page, a script): its history begins anew, as if bh_plan_replay had sent it. That needs the
 * topology; of headers alone the history is what they say.
 */
/* Failed attempts so far, and where the count comes from: the first of 1 to 3, else what the broker alone counted. */
BH_API int64_t bh_history_attempts(const bh_history *self);
BH_API bh_source bh_history_attempts_source(const bh_history *self);
/* The first failure, in ms since the epoch; -1 where it is unknown. From a broker's x-death it is whole seconds. */
BH_API int64_t bh_history_first_failure_ms(const bh_history *self);
/* The last delay, in ms; -1 where it is unknown. */
BH_API int64_t bh_history_last_delay_ms(const bh_history *self);
/* How much later than due a retry is there (backhop-due), in ms; 0 where it is early, by clocks that differ. -1 where it
 * is unknown: a first attempt, one that was redelivered and so may have come in time before, a due time that is three
 * years off. now_ms: since the epoch. */
BH_API int64_t bh_history_lateness_ms(const bh_history *self, int redelivered, int64_t now_ms);
/* The span of the last attempt that failed, as bh_plan_set_traceparent took it; "" where there is none, or no valid one. */
BH_API bh_bytes bh_history_traceparent(const bh_history *self);
/* The last error's text; "" where there is none. */
BH_API bh_bytes bh_history_last_error(const bh_history *self);
/*
 * The id that all further attempts share: backhop-id, else the message-id property; "" where there is neither, which is
 * a first attempt of a message that was published without message-id. Its first copy gets an id (bh_plan_id), made of
 * random bytes: so two copies of one original, as a lost connection can leave them, have two ids, and only a message-id
 * makes them one.
 */
BH_API bh_bytes bh_history_id(const bh_history *self);
/* 1 where the message has an id; 0 where bh_history_id is "". */
BH_API int bh_history_has_id(const bh_history *self);
/* Where the message was first published: as saved by Backhop, else as delivered. Show it; do not route by it. */
BH_API bh_bytes bh_history_exchange(const bh_history *self);
BH_API bh_bytes bh_history_routing_key(const bh_history *self);
/* Why the message was parked: "exhausted", "permanent", "too-old", "oversized", "poison"; "" where it was not. */
BH_API bh_bytes bh_history_parked(const bh_history *self);
/* How often the message was sent back from the parked queue, by bh_plan_replay or by other hands. */
BH_API int64_t bh_history_replays(const bh_history *self);
/* What a quorum queue counted: x-delivery-count and (4.3) x-acquired-count; 0 where absent. */
BH_API int64_t bh_history_delivery_count(const bh_history *self);
BH_API int64_t bh_history_acquired_count(const bh_history *self);
/*
 * Deliveries of this message that ended without being settled, as far as the broker tells: x-delivery-count, which
 * quorum queues alone count, less what the strategy itself makes it count, and what bh_plan_guard counted before its
 * last wait (backhop-crashes). A copy that a handler's failure makes begins at 0 again.
 *   reject  less the "rejected" count of the work queue's x-death record: RabbitMQ 4.0 to 4.2 count each
 *           basic.nack(requeue=false) and carry the count along; other versions do not, so there it may be too low
 *   native  0: basic.reject(requeue=true) counts as a crash does, so both are attempts
 * x-acquired-count is not used: on 4.3 it also counts returns that are no failures, as basic.nack, consumer timeouts
 * and a worker that stops in good order. Before 4.3 x-delivery-count counts every requeue, also of messages that a
 * consumer had only prefetched and gave back in good order.
 */
BH_API int64_t bh_history_crashes(const bh_history *self);

/* x-death, most recent first: one record for each queue and reason. Strings of a missing field are "". */
BH_API size_t bh_history_death_count(const bh_history *self);
BH_API bh_bytes bh_history_death_queue(const bh_history *self, size_t index);
BH_API bh_bytes bh_history_death_reason(const bh_history *self, size_t index);
BH_API bh_bytes bh_history_death_exchange(const bh_history *self, size_t index);
BH_API bh_bytes bh_history_death_original_expiration(const bh_history *self, size_t index);
/* How often; 1 where the field is missing. */
BH_API int64_t bh_history_death_times(const bh_history *self, size_t index);
/* The first time, in seconds since the epoch; -1 where the field is missing. */
BH_API int64_t bh_history_death_first_time_s(const bh_history *self, size_t index);
BH_API size_t bh_history_death_routing_key_count(const bh_history *self, size_t index);
BH_API bh_bytes bh_history_death_routing_key(const bh_history *self, size_t index, size_t key);

/* x-first-death-* and (3.13 on) x-last-death-*; "" where absent. */
BH_API bh_bytes bh_history_first_death_queue(const bh_history *self);
BH_API bh_bytes bh_history_first_death_reason(const bh_history *self);
BH_API bh_bytes bh_history_first_death_exchange(const bh_history *self);
BH_API bh_bytes bh_history_last_death_queue(const bh_history *self);
BH_API bh_bytes bh_history_last_death_reason(const bh_history *self);
BH_API bh_bytes bh_history_last_death_exchange(const bh_history *self);

/* Headers that were ignored: each a sentence that begins with the header's name. */
BH_API size_t bh_history_problem_count(const bh_history *self);
BH_API bh_bytes bh_history_problem(const bh_history *self, size_t index);

/*
 * The message's story for people, in lines: how often it failed, why, what became of it, what the broker did, which headers were
 * ignored. UTF-8, times in UTC; what in a header is no text is shown as "?". Valid until the next call on the history; without memory
 * it ends early, and "" is that of NULL and of a history that was not read.
 */
BH_API bh_bytes bh_history_explanation(bh_history *self);

BH_END_DECLS

#endif
