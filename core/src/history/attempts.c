/*
 * Counts attempts and crashes from the headers and the broker's records.
 * <backhop/adapter/history.h> has the rules.
 */
#include "delivery/internal.h"
#include "history/data.h"
#include "topology/internal.h"

/* Returns 1 if an x-death record counts failed attempts. */
typedef int is_failure(const bh_history *self, const bh__record *record, const bh_topology *topology);

/* Returns 1 if the record is of a wait queue that the application named. */
static int is_expired_wait(const bh_history *self, const bh__record *record, const bh_topology *topology)
{
    (void)topology;
    return bh__same(bh__history_text(self, record->reason), bh_str("expired")) &&
           bh__history_is_wait_queue(self, bh__history_text(self, record->queue));
}

int bh__history_is_rejected_work(const bh_history *self, const bh__record *record, const bh_topology *topology)
{
    return bh__same(bh__history_text(self, record->reason), bh_str("rejected")) &&
           bh__same(bh__history_text(self, record->queue), bh__topology_queue(topology));
}

/* Returns the sum of the counted records, or -1 if there is none. Lowers *first_s to their earliest
 * first time. */
static int64_t sum_deaths(const bh_history *self, is_failure *is_counted, const bh_topology *topology, int64_t *first_s)
{
    int64_t sum = -1;
    for (size_t i = 0; i < self->death_count; i++) {
        const bh__record *record = &self->deaths[i];
        if (!is_counted(self, record, topology))
            continue;
        sum = (sum < 0 ? 0 : sum) + record->times;
        if (record->first_time_s >= 0 && (*first_s < 0 || record->first_time_s < *first_s))
            *first_s = record->first_time_s;
    }
    return sum < BH_HISTORY_MOST_ATTEMPTS ? sum : BH_HISTORY_MOST_ATTEMPTS;
}

void bh__history_count(bh_history *self, const bh__headers *in, const bh_delivery *delivery,
                       const bh_topology *topology)
{
    int64_t first_s = -1;
    int64_t legacy = bh__headers_legacy_counter(self, delivery);
    int64_t waits = sum_deaths(self, is_expired_wait, topology, &first_s);
    int64_t own = bh__headers_number(self, in, BH__HEADER_ATTEMPTS, BH_HISTORY_MOST_ATTEMPTS);
    self->source = own >= 0      ? BH_SOURCE_BACKHOP
                   : legacy >= 0 ? BH_SOURCE_LEGACY
                   : waits >= 0  ? BH_SOURCE_X_DEATH
                                 : BH_SOURCE_NONE;
    if (self->source == BH_SOURCE_BACKHOP || self->source == BH_SOURCE_LEGACY)
        first_s = -1;
    int64_t base = own >= 0 ? own : legacy >= 0 ? legacy : waits >= 0 ? waits : 0;

    /* Added, because the message may have come from another strategy with a count that this one
     * does not write. */
    int64_t more = 0;
    bh_source source = BH_SOURCE_NONE;
    int64_t counted = bh__headers_number(self, in, BH__HEADER_CRASHES, BH_HISTORY_MOST_ATTEMPTS);
    self->crashes = self->delivery_count;
    if (topology && bh__topology_strategy(topology) == BH_STRATEGY_REJECT) {
        int64_t rejected = sum_deaths(self, bh__history_is_rejected_work, topology, &first_s);
        more = rejected > 0 ? rejected : 0;
        source = rejected >= 0 ? BH_SOURCE_X_DEATH : BH_SOURCE_NONE;
        self->crashes = self->delivery_count > more ? self->delivery_count - more : 0;
    } else if (topology && bh__topology_strategy(topology) == BH_STRATEGY_NATIVE) {
        more = self->delivery_count;
        source = more > 0 ? BH_SOURCE_DELIVERY_COUNT : BH_SOURCE_NONE;
        self->crashes = 0;
    } else if (counted > 0) {
        self->counted_crashes = counted;
        self->crashes = counted + self->delivery_count;
    }
    self->broker_attempts = more;
    self->attempts = base + more < BH_HISTORY_MOST_ATTEMPTS ? base + more : BH_HISTORY_MOST_ATTEMPTS;
    if (self->source == BH_SOURCE_NONE)
        self->source = source;

    self->first_failure_ms = bh__headers_number(self, in, BH__HEADER_FIRST_FAILURE, BH__BELOW_2_53);
    if (self->first_failure_ms < 0 && first_s >= 0)
        self->first_failure_ms = first_s * 1000;
}
