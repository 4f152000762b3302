/*
 * Successes: messages that a handler handled, but whose acknowledgement could not reach the broker.
 *
 * A consumer timeout or a lost connection closes the channel of a delivery while its handler runs. The broker delivers
 * the message again, and a second call would be a duplicate. Keep the success when you find the channel closed, and look
 * for it when a message arrives:
 *
 *     bh_successes_keep(successes, history, queue, body, now_ms);          the handler succeeded, its channel is closed
 *     if (bh_successes_take(successes, history, queue, body, redelivered, now_ms))
 *         acknowledge the message, without a call of its handler
 *
 * A message without an id has no successes. Use one object for a process, because a message can come back by another
 * connection. Use it in one thread at a time.
 */
#ifndef BACKHOP_SUCCESSES_H
#define BACKHOP_SUCCESSES_H

#include <backhop/adapter/history.h>

BH_BEGIN_DECLS

#define BH_SUCCESSES_RANDOM_BYTES 16

typedef struct bh_successes bh_successes;

/*
 * Creates an empty object in *out. Free it with bh_successes_free.
 *
 * random: BH_SUCCESSES_RANDOM_BYTES random bytes, so that no publisher can make two messages look alike.
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_successes_new(bh_successes **out, bh_bytes random);
/* Frees it. NULL is allowed. */
BH_API void bh_successes_free(bh_successes *self);

/*
 * Keeps a success: the last 4,096 of them, for two hours. Does nothing if the message has no id (bh_history_id).
 *
 * queue: the work queue.
 * now_ms: ms of a clock that never goes back.
 */
BH_API void bh_successes_keep(bh_successes *self, const bh_history *history, bh_bytes queue, bh_bytes body,
                              int64_t now_ms);
/*
 * Returns 1 and removes the success if one was kept for this message: the same queue, id, attempt, replays, and body.
 * Returns 0 if there is none.
 *
 * redelivered: the flag of the delivery. Without it the result is 0.
 */
BH_API int bh_successes_take(bh_successes *self, const bh_history *history, bh_bytes queue, bh_bytes body,
                             int redelivered, int64_t now_ms);

BH_END_DECLS

#endif
