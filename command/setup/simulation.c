#include "setup/simulation.h"

#include "topology/internal.h"

#include <math.h>
#include <stdlib.h>

/* A message: its headers, as far as a decision needs them. */
typedef struct mail {
    int64_t due_ms;
    int64_t attempts;
    int64_t first_failure_ms; /* -1: none */
    int64_t delay_ms;
} mail;

/* Those that wait, the next one first: a binary heap. */
typedef struct heap {
    mail *items;
    size_t count;
    size_t capacity;
} heap;

/* Those that are ready, first in, first out: a ring. */
typedef struct line {
    mail *items;
    size_t first;
    size_t count;
    size_t capacity;
} line;

typedef struct world {
    simulation *out;
    const scenario *of;
    const bh_policy *policy;
    const bh_topology *topology;
    heap waiting;
    line ready;
    bh_delivery *delivery;
    bh_history *history;
    bh_plan *plan;
    bh_breaker *breaker; /* NULL: none */
    uint64_t random;
    int64_t now_ms;
    double free_ms; /* when the downstream can take the next call */
} world;

/* --------------------------------------------------------------------------------------- random */

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(world *self)
{
    uint64_t z = self->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static double draw_unit(world *self)
{
    return (double)(draw(self) >> 11) / 9007199254740992.0;
}

/* -------------------------------------------------------------------------------- heap and line */

static int heap_push(heap *self, mail item)
{
    if (self->count == self->capacity) {
        size_t capacity = self->capacity ? 2 * self->capacity : 1024;
        mail *items = realloc(self->items, capacity * sizeof *items);
        if (!items)
            return 0;
        self->items = items;
        self->capacity = capacity;
    }
    size_t at = self->count++;
    for (; at > 0 && self->items[(at - 1) / 2].due_ms > item.due_ms; at = (at - 1) / 2)
        self->items[at] = self->items[(at - 1) / 2];
    self->items[at] = item;
    return 1;
}

static mail heap_pop(heap *self)
{
    mail first = self->items[0], last = self->items[--self->count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < self->count; at = child) {
        if (child + 1 < self->count && self->items[child + 1].due_ms < self->items[child].due_ms)
            child++;
        if (self->items[child].due_ms >= last.due_ms)
            break;
        self->items[at] = self->items[child];
    }
    self->items[at] = last;
    return first;
}

static int line_push(line *self, mail item)
{
    if (self->count == self->capacity) {
        size_t capacity = self->capacity ? 2 * self->capacity : 1024;
        mail *items = malloc(capacity * sizeof *items);
        if (!items)
            return 0;
        for (size_t i = 0; i < self->count; i++)
            items[i] = self->items[(self->first + i) % self->capacity];
        free(self->items);
        *self = (line){items, 0, self->count, capacity};
    }
    self->items[(self->first + self->count++) % self->capacity] = item;
    return 1;
}

static mail line_pop(line *self)
{
    mail first = self->items[self->first];
    self->first = (self->first + 1) % self->capacity;
    self->count--;
    return first;
}

/* ------------------------------------------------------------------------------------ decisions */

/* Lets the pure core decide about a message that failed now. */
static bh_status decide(world *self, const mail *failed)
{
    char random[BH_PLAN_RANDOM_BYTES];
    int64_t epoch_ms = self->of->now_ms + self->now_ms;
    for (size_t i = 0; i < sizeof random; i += 8) {
        uint64_t bits = draw(self);
        for (size_t j = 0; j < 8; j++)
            random[i + j] = (char)(bits >> 8 * j);
    }
    bh_delivery_clear(self->delivery);
    bh_status status = BH_OK;
    if (failed->attempts > 0) {
        status = bh_delivery_push(
            self->delivery,
            &(bh_value){.type = BH_TYPE_INT64, .name = bh_str("backhop-attempts"), .integer = failed->attempts});
        if (status == BH_OK)
            status =
                bh_delivery_push(self->delivery, &(bh_value){.type = BH_TYPE_INT64,
                                                             .name = bh_str("backhop-first-failure"),
                                                             .integer = self->of->now_ms + failed->first_failure_ms});
        if (status == BH_OK)
            status = bh_delivery_push(
                self->delivery,
                &(bh_value){.type = BH_TYPE_INT64, .name = bh_str("backhop-delay"), .integer = failed->delay_ms});
    }
    if (status == BH_OK)
        status = bh_history_read(self->history, self->delivery, self->topology);
    return status == BH_OK
               ? bh_plan_make(self->plan, self->delivery, self->history, self->policy, self->topology,
                              BH_OUTCOME_FAILED, bh_str("down"), 0, epoch_ms, (bh_bytes){random, sizeof random})
               : status;
}

static bh_status fail(world *self, mail failed)
{
    bh_status status = decide(self, &failed);
    if (status != BH_OK)
        return status;
    self->out->failed_calls++;
    bh_planned plan;
    bh_plan_read(self->plan, &plan);
    if (plan.action == BH_ACTION_PARK) {
        self->out->parked++;
        return BH_OK;
    }
    failed.attempts++;
    failed.first_failure_ms = failed.first_failure_ms < 0 ? self->now_ms : failed.first_failure_ms;
    int64_t delay_ms = plan.delay_ms;
    if (delay_ms == 0) /* reject, native: the broker waits, as the preview has it */
        delay_ms = bh__topology_mean_ms(self->topology, self->policy, failed.attempts);
    failed.delay_ms = delay_ms;
    failed.due_ms = self->now_ms + delay_ms;
    if (self->of->at_once)
        return line_push(&self->ready, failed) ? BH_OK : BH_ERR_NO_MEMORY;
    return heap_push(&self->waiting, failed) ? BH_OK : BH_ERR_NO_MEMORY;
}

/* ----------------------------------------------------------------------------------------- time */

static bucket *bucket_at(world *self)
{
    size_t index = (size_t)(self->now_ms / self->out->bucket_ms);
    if (index >= SIMULATION_MOST_BUCKETS)
        index = SIMULATION_MOST_BUCKETS - 1;
    while (self->out->count <= index) {
        bucket *next = &self->out->buckets[self->out->count++];
        *next = (bucket){
            .queued = (int64_t)self->ready.count, .waiting = (int64_t)self->waiting.count, .parked = self->out->parked};
    }
    return &self->out->buckets[index];
}

/* Requests the permit for a call. If there is none, the downstream gets the next call later. */
static int get_permit(world *self, bh_permit *permit)
{
    if (!self->breaker)
        return 1;
    bh_breaker_permit(self->breaker, bh_str(""), self->now_ms, permit);
    if (!permit->generation)
        self->free_ms = (double)permit->until_ms;
    return permit->generation != 0;
}

static void record(world *self, const bh_permit *permit, bh_call_kind kind)
{
    if (self->breaker)
        bh_breaker_record(self->breaker, bh_str(""), permit, &(bh_call){.kind = kind}, self->now_ms);
}

static bh_status call(world *self)
{
    bh_permit permit;
    if (!get_permit(self, &permit))
        return BH_OK;
    mail next = line_pop(&self->ready);
    int is_down = self->now_ms >= self->of->down_from_ms && self->now_ms < self->of->down_to_ms;
    self->out->calls++;
    bucket_at(self)->calls++;
    self->free_ms =
        (self->free_ms > (double)self->now_ms ? self->free_ms : (double)self->now_ms) + 1000 / self->of->capacity;
    if (!is_down && draw_unit(self) >= self->of->failure_rate) {
        self->out->done++;
        record(self, &permit, BH_CALL_SUCCESS);
        return BH_OK;
    }
    record(self, &permit, BH_CALL_FAILURE);
    return fail(self, next);
}

/* Notes how it stands; whether all is over. */
static int note(world *self, int has_new)
{
    bucket *now = bucket_at(self);
    now->queued = (int64_t)self->ready.count;
    now->waiting = (int64_t)self->waiting.count;
    now->parked = self->out->parked;
    self->out->most_queued = now->queued > self->out->most_queued ? now->queued : self->out->most_queued;
    self->out->most_waiting = now->waiting > self->out->most_waiting ? now->waiting : self->out->most_waiting;
    int is_empty = self->ready.count <= 1 && self->waiting.count == 0;
    if (self->now_ms >= self->of->down_to_ms && is_empty && self->out->drained_ms < 0)
        self->out->drained_ms = self->now_ms;
    if (!is_empty && self->now_ms >= self->of->down_to_ms && self->of->failure_rate <= 0)
        self->out->drained_ms = -1;
    self->out->was_cut |= self->out->calls >= SIMULATION_MOST_CALLS;
    return self->out->was_cut || (!has_new && self->ready.count == 0 && self->waiting.count == 0);
}

/* From event to event: the next new message, the next one that has waited, the next call. */
static bh_status play(world *self)
{
    double gap_ms = 1000 / self->of->rate, new_ms = 0;
    bh_status status = BH_OK;
    for (;;) {
        int has_new = new_ms < (double)self->of->until_ms;
        double next_ms = has_new ? new_ms : HUGE_VAL;
        if (self->waiting.count && (double)self->waiting.items[0].due_ms < next_ms)
            next_ms = (double)self->waiting.items[0].due_ms;
        if (self->ready.count && self->free_ms < next_ms)
            next_ms = self->free_ms;
        if (next_ms > (double)self->of->end_ms)
            return BH_OK;
        if ((int64_t)next_ms > self->now_ms)
            self->now_ms = (int64_t)next_ms;
        int is_there = 1;
        if (has_new && new_ms <= (double)self->now_ms) {
            is_there = line_push(&self->ready, (mail){.first_failure_ms = -1});
            self->out->messages++;
            new_ms += gap_ms;
        } else if (self->waiting.count && self->waiting.items[0].due_ms <= self->now_ms) {
            is_there = line_push(&self->ready, heap_pop(&self->waiting));
        } else if (self->ready.count) {
            status = call(self);
        }
        if (status != BH_OK || !is_there)
            return status == BH_OK ? BH_ERR_NO_MEMORY : status;
        if (note(self, new_ms < (double)self->of->until_ms))
            return BH_OK;
    }
}

static void sum_up(world *self)
{
    simulation *out = self->out;
    out->remaining = (int64_t)self->ready.count + (int64_t)self->waiting.count;
    for (size_t i = 0; i < out->count; i++) {
        out->buckets[i].calls = out->buckets[i].calls * 1000 / (double)out->bucket_ms;
        out->most_calls = out->buckets[i].calls > out->most_calls ? out->buckets[i].calls : out->most_calls;
    }
}

static bh_status make_breaker(world *self)
{
    char random[BH_BREAKER_RANDOM_BYTES];
    bh_breaker_settings settings;
    uint64_t bits = draw(self);
    for (size_t i = 0; i < sizeof random; i++)
        random[i] = (char)(bits >> 8 * i);
    bh_breaker_defaults(&settings);
    return bh_breaker_new(&self->breaker, &settings, (bh_bytes){random, sizeof random});
}

void simulation_set_ends(scenario *self)
{
    self->until_ms = self->until_ms ? self->until_ms : 2 * self->down_to_ms;
    self->end_ms = self->end_ms ? self->end_ms : self->down_to_ms + 3600000;
}

bh_status simulation_run(simulation *out, const scenario *of, const bh_policy *policy, const bh_topology *topology)
{
    world self = {.out = out, .of = of, .policy = policy, .topology = topology, .random = of->seed};
    *out = (simulation){.drained_ms = -1, .bucket_ms = of->end_ms / SIMULATION_MOST_BUCKETS + 1};
    bh_status status = bh_delivery_new(&self.delivery);
    if (status == BH_OK)
        status = bh_history_new(&self.history);
    if (status == BH_OK)
        status = bh_plan_new(&self.plan);
    if (status == BH_OK && of->has_breaker)
        status = make_breaker(&self);
    if (status == BH_OK)
        status = play(&self);
    sum_up(&self);
    bh_breaker_free(self.breaker);
    bh_delivery_free(self.delivery);
    bh_history_free(self.history);
    bh_plan_free(self.plan);
    free(self.waiting.items);
    free(self.ready.items);
    return status;
}
