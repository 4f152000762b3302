/*
 * Replay: the limits of moving parked messages back to their work queue, and the errors after which
 * it goes on.
 *
 * A replay reads the parked queue and then the unroutable queue with basic.get, and publishes a
 * copy of each message (bh_plan_replay). It acknowledges a message after the broker confirms its
 * copy. The replay ends with the messages that were in the queue at its start. Otherwise it would
 * never end if a message fails and is parked again during the replay.
 */
#ifndef BACKHOP_REPLAY_H
#define BACKHOP_REPLAY_H

#include <backhop/adapter/declaring.h>
#include <backhop/status.h>

#include <stdint.h>

BH_BEGIN_DECLS

/* The number of messages that a replay reads from a queue of several work queues. It holds them
 * until it ends. */
#define BH_REPLAY_MOST_SHARED 10000

/*
 * Returns the number of messages that a replay reads from one queue.
 *
 * behind     messages behind the first one: message_count of the first basic.get-ok. The message_count of a passive
 *            queue.declare can be 0 for a quorum queue of a busy broker.
 * is_shared  1 if other work queues have messages in the queue too (the unroutable queue), else 0
 */
BH_API int64_t bh_replay_limit(int64_t behind, int is_shared);

/*
 * Returns 1 if a replay goes on after an error, and 0 if the replay ends.
 *
 * status    of the error
 * is_queue  0: one message failed. The replay goes on with the next one if the message itself was refused: it stays parked.
 *           1: the unroutable queue cannot be read. The replay leaves it out if it does not exist, or if the user may not
 *           read it
 */
BH_API int bh_replay_goes_on(bh_status status, int is_queue);

/*
 * Returns 1 if a consumer now reads the unroutable queue, because retries of its work queue come
 * back again.
 *
 * mode    of the consumer
 * looked  the status of its look at the return exchange (bh_declaring_look)
 */
BH_API int bh_replay_after_look(bh_mode mode, bh_status looked);

/*
 * Returns how long a consumer waits before it reads the unroutable queue again, in ms: 30 s, up to
 * an hour. It reads at the first look (BH_LOOK_MS) after this pause.
 *
 * foreign  messages of other work queues that it read and left there. The broker sends them again each time, so the
 *          pause grows with their number
 */
BH_API int64_t bh_replay_pause_ms(int64_t foreign);

/*
 * Returns the text of the event `replayed` after a consumer replayed messages of the unroutable
 * queue.
 *
 * mode  the mode of the look before. Without BH_MODE_CREATE the text advises to declare the topology, as a look does not
 *       bind the work queue then
 */
BH_API bh_bytes bh_replay_unroutable_text(bh_mode mode);

BH_END_DECLS

#endif
