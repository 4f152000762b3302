/* The history, for plan, events, relay and worker. Internal. */
#ifndef BACKHOP_HISTORY_INTERNAL_H
#define BACKHOP_HISTORY_INTERNAL_H

#include "base/report.h"
#include "base/siphash.h"

#include <backhop/adapter/history.h>

/*
 * Copies the legacy counter and wait queues of `from` to `to`, and frees the ones that `to` had.
 *
 * Errors: BH_ERR_NO_MEMORY; `to` is then unchanged.
 */
bh_status bh__history_copy_settings(bh_history *to, const bh_history *from);
/* Return what bh_past has of these names. */
int64_t bh__history_attempts(const bh_history *self);
bh_bytes bh__history_id(const bh_history *self);
bh_bytes bh__history_event_id(const bh_history *self);
bh_bytes bh__history_exchange(const bh_history *self);
bh_bytes bh__history_routing_key(const bh_history *self);
/* Returns the result of bh_history_past. */
bh_past bh__history_past(const bh_history *self);
/* Returns 1 if the last bh_history_read returned BH_OK. */
int bh__history_is_read(const bh_history *self);
/* Returns 1 if a parked message left the parked queue without bh_plan_replay. The replays of
 * bh_past include it. */
int bh__history_is_back(const bh_history *self);
/* Returns the part of the crashes of bh_past that bh_plan_guard counted before the last wait. */
int64_t bh__history_counted_crashes(const bh_history *self);
/* Returns when the last retry or deferral was due, in ms since the epoch; -1 if that is unknown. */
int64_t bh__history_due_ms(const bh_history *self);

/*
 * Returns the time since the first failure, in ms; -1 if the message never failed, or if the time
 * is unknown.
 *
 * now_ms: since the epoch.
 */
int64_t bh__history_recovery_ms(const bh_history *self, int64_t now_ms);

enum { BH__HISTORY_ID_ROOM = 2 * BH_HISTORY_ID_RANDOM_BYTES + 1 };

/* Writes the hexadecimal digits of random bytes, and a zero byte. */
void bh__history_write_id(const char *random, char out[BH__HISTORY_ID_ROOM]);

/*
 * Returns a number that is equal for deliveries of one message. It differs if the queue, id,
 * exchange, routing key, attempt, replay or body differs. Returns 0 if the message has no id.
 * Strategy native counts lost deliveries as
 * attempts: the next delivery then has another count, and is the same message.
 */
uint64_t bh__history_fingerprint(const bh_history *self, bh__siphash_key key, bh_bytes queue, bh_bytes body);

/* Returns the buffer of bh_history_explanation. */
bh__report *bh__history_story(bh_history *self);

#endif
