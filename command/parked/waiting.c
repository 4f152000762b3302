#include "parked/waiting.h"

#include "common/output.h"

#include <stdlib.h>

enum {
    LOOK_MS = 1000,
    SHARE = 10, /* of the time, for looks */
    MOST_ATTEMPTS = 1000,
    PROBED_MS = 10000, /* the default of doctor's --patience */
    FEWEST_PROBED = 3
};

/* Counts the messages of the queues: -1 if they cannot be counted. Queues that cannot be looked at
 * are removed. */
static int64_t count_all(waiting *self)
{
    int64_t total = 0;
    size_t kept = 0;
    bh_status status = self->count > 0 ? connection_open_channel(self->broker, CHANNEL_CALL) : BH_OK;
    for (size_t i = 0; i < self->count; i++) {
        int64_t ready = 0;
        if (status == BH_OK)
            status = connection_read_depth(self->broker, CHANNEL_CALL, self->queues[i].name, &ready, NULL);
        int is_gone = status == BH_ERR_MISSING || status == BH_ERR_ACCESS;
        if (is_gone) {
            free(self->queues[i].name);
            status = connection_open_channel(self->broker, CHANNEL_CALL);
            continue;
        }
        total += self->queues[i].ready = ready;
        self->queues[kept++] = self->queues[i];
    }
    self->count = kept;
    if (status == BH_OK && kept > 0)
        status = connection_close_channel(self->broker, CHANNEL_CALL);
    return status == BH_OK ? total : -1;
}

/* Returns how long a message that fails each attempt is retried at most; -1 if the policy has no
 * limit. */
static int64_t retried_ms(const bh_topology *topology, const bh_policy *policy)
{
    bh_limits limits;
    bh_preview row;
    int64_t total_ms = 0;
    bh_policy_limits(policy, &limits);
    int is_limited = limits.max_attempts > 0 && limits.max_attempts <= MOST_ATTEMPTS;
    for (int64_t i = 1; is_limited && i < limits.max_attempts; i++) {
        bh_topology_preview(topology, policy, i, &row);
        total_ms += row.highest_ms;
    }
    if (limits.max_age_ms > 0 && (!is_limited || limits.max_age_ms < total_ms))
        return limits.max_age_ms;
    return is_limited ? total_ms : -1;
}

static int compare_delays(const void *a, const void *b)
{
    const waiting_queue *one = a, *other = b;
    return (one->ms > other->ms) - (one->ms < other->ms);
}

void waiting_begin(waiting *self, connection *broker, const bh_topology *topology, const bh_policy *policy)
{
    bh_declaration each;
    *self = (waiting){.broker = broker, .parked_ms = retried_ms(topology, policy)};
    for (size_t i = 0; bh_topology_declaration(topology, i, &each) == BH_OK; i++) {
        if (each.kind != BH_DECLARE_QUEUE || each.rung_ms <= 0)
            continue;
        self->queues = must(realloc(self->queues, (self->count + 1) * sizeof *self->queues));
        self->queues[self->count++] = (waiting_queue){.name = copy_text(each.name), .ms = each.rung_ms};
    }
    if (self->count > 0)
        qsort(self->queues, self->count, sizeof *self->queues, compare_delays);
    waiting_start(self);
}

void waiting_free(waiting *self)
{
    for (size_t i = 0; i < self->count; i++)
        free(self->queues[i].name);
    free(self->queues);
    *self = (waiting){.queues = NULL};
}

void waiting_start(waiting *self)
{
    int64_t found = count_all(self);
    if (found > self->before)
        self->before = found;
    for (size_t i = 0; i < self->count; i++)
        if (self->queues[i].ready > self->queues[i].before)
            self->queues[i].before = self->queues[i].ready;
}

/* Returns how many of the messages are probes of doctor. It sends one to each queue with a delay up
 * to PROBED_MS, at once, so they stay in the longer ones for longer. Replayed messages come to the
 * shorter ones first. */
static int64_t count_probes(const waiting *self)
{
    int64_t probes = 0;
    for (size_t i = self->count; i-- > 0;) {
        const waiting_queue *each = &self->queues[i];
        if (each->ms > PROBED_MS)
            continue;
        if (each->ready <= each->before)
            break;
        probes++;
    }
    return probes >= FEWEST_PROBED ? probes : 0;
}

void waiting_look(waiting *self, int64_t now_ms, int must_look)
{
    if (self->count == 0 || (!must_look && now_ms < self->next_ms))
        return;
    int64_t found = count_all(self) - count_probes(self), end_ms = bh__monotonic_ms(), last = self->more;
    self->more = found > self->before ? found - self->before : 0;
    self->lasting = last < self->more ? last : self->more;
    self->next_ms = end_ms + (end_ms - now_ms) * SHARE;
    if (self->next_ms < now_ms + LOOK_MS)
        self->next_ms = now_ms + LOOK_MS;
}
