/* Ledger: what the worker uses beside the public interface. Internal. */
#ifndef BACKHOP_LEDGER_INTERNAL_H
#define BACKHOP_LEDGER_INTERNAL_H

#include <backhop/adapter/ledger.h>

/* An entry's public number has two parts: generation and index. It is below 2^53. */
enum { BH__LEDGER_INDEX_BITS = 24, BH__LEDGER_GENERATION_BITS = 29 };

/* Returns the index of an entry, below 2^24. No other message in hand has it: use it for tables. */
static inline size_t bh__ledger_index(int64_t entry)
{
    return (size_t)(entry & ((1 << BH__LEDGER_INDEX_BITS) - 1));
}

/*
 * Replaces the back-off policy by a copy of this one.
 *
 * Errors: BH_ERR_NO_MEMORY.
 */
bh_status bh__ledger_set_back_off(bh_ledger *self, const bh_policy *back_off);
/*
 * Sets the bounds of abandoned messages.
 *
 * most: for bh__ledger_is_full; 0 to 1,000,000. Default: 1,000.
 * for_ms: when an abandoned message is given back, before a consumer timeout closes its channel;
 * 1 to 3,600,000. Default: 600,000.
 * Errors: BH_ERR_ARGUMENT if a value is out of range.
 */
bh_status bh__ledger_set_abandoned(bh_ledger *self, int64_t most, int64_t for_ms);
/* Returns 1 if too many messages are abandoned to consume more. */
int bh__ledger_is_full(const bh_ledger *self);
/*
 * Lets a closed channel leave orphans: messages that a handler has, that are settled, or whose copy
 * is in flight. The broker delivers them again; bh__ledger_arrive_again binds that delivery.
 *
 * The oldest orphans go first. An orphan ends as bh_ledger_close_channel says if it is not bound.
 *
 * most: 0 (default: no orphans) or above.
 * for_ms: when an orphan ends, by the clock of bh_ledger_next.
 */
void bh__ledger_set_orphans(bh_ledger *self, size_t most, int64_t for_ms);
/*
 * Like bh_ledger_arrive, for a message whose fingerprint is known. If the broker delivers an orphan
 * again, *out is the entry that it had, in its state: no handler may be called for it. The ledger
 * acknowledges a settled message, and publishes a copy that was not sent yet.
 *
 * message: equal for deliveries of one message, and different for messages that differ. 0: not
 * known; then it is never an orphan.
 * is_bound: set to 1 if it was an orphan, else to 0.
 */
bh_status bh__ledger_arrive_again(bh_ledger *self, int64_t number, int64_t delivery_tag, uint64_t message,
                                  int is_redelivered, int64_t *out, int *is_bound);
/* Returns 1 if the channel of the entry closed, and no delivery of its message came since. */
int bh__ledger_is_orphan(const bh_ledger *self, int64_t entry);
/* Ends an orphan. It is not bound any more. */
void bh__ledger_drop_orphan(bh_ledger *self, int64_t entry);
/* How many copies can be in flight on a publisher, and how many messages an ack acknowledges, at
 * most. */
#define BH__LEDGER_MOST_SENT 65536

/*
 * Sets how many copies may be in flight on one publisher. Applies to publishers that you open
 * later.
 *
 * If that many are in flight, a probe replaces an earlier publish of its copy. The answer to that
 * publish is ignored.
 *
 * most: 1 to BH__LEDGER_MOST_SENT. Default: 512.
 * Errors: BH_ERR_ARGUMENT if it is out of range.
 */
bh_status bh__ledger_set_most_sent(bh_ledger *self, int64_t most);
/*
 * Sets how many messages one basic.ack may acknowledge: all up to the first message that is not
 * done.
 *
 * If the copy of that first message is in flight, messages done after it wait for its confirm. They
 * stop waiting when `most` messages are done or `gap_ms` has passed. If its copy is not in flight,
 * they are acknowledged at once, one by one.
 *
 * A channel acknowledges each message alone if a delivery is missing or if its tags are not in
 * order from 1 on. Then bh_ledger_arrive refuses a tag that is not above the last one.
 *
 * most: 0 (default: each message alone) to BH__LEDGER_MOST_SENT.
 * gap_ms: 0 to 3,600,000.
 * Errors: BH_ERR_ARGUMENT if a value is out of range.
 */
bh_status bh__ledger_set_acks(bh_ledger *self, int64_t most, int64_t gap_ms);
/* Records that a handler has the message. */
bh_status bh__ledger_take(bh_ledger *self, int64_t entry);
/*
 * Postpones BH_STEP_PUBLISH by a back-off delay, for example after a failed allocation. Settle the
 * message then.
 */
bh_status bh__ledger_postpone(bh_ledger *self, int64_t entry, int64_t now_ms);
/*
 * Returns how many messages a handler has or wait for their copy: arrived, taken, due, sent,
 * waiting.
 */
int64_t bh__ledger_unsettled(const bh_ledger *self);
/* Acknowledges all that is done at once, until the next delivery of each channel. */
void bh__ledger_flush(bh_ledger *self);

#endif
