/*
 * Benchmark: the cost of the ledger for each message, with few and with many of them in hand, on
 * each of its ways. The figures are medians. If a cost rises with the number of messages in hand,
 * the second column shows it.
 */
#include "ledger/internal.h"

#include <backhop/adapter.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 7
#define FEW 1000
#define MANY 65535

static void need(int holds)
{
    if (holds)
        return;
    fprintf(stderr, "the ledger did not do what is measured\n");
    exit(1);
}

typedef struct {
    bh_ledger *ledger;
    int64_t channel, publisher, tag, *entries;
} hands;

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void arrive(hands *self, int count)
{
    for (int i = 0; i < count; i++)
        need(bh_ledger_arrive(self->ledger, self->channel, ++self->tag, &self->entries[i]) == BH_OK);
}

static int64_t step(hands *self, int64_t now_ms)
{
    bh_step next;
    int64_t steps = 0;
    while (bh_ledger_next(self->ledger, now_ms, 1, &next))
        steps++;
    return steps;
}

static void settle(hands *self, int count)
{
    char id[24];
    for (int i = 0; i < count; i++) {
        snprintf(id, sizeof id, "%d", i);
        need(bh_ledger_settle(self->ledger, self->entries[i], BH_ACTION_RETRY, 0, bh_str(id),
                              bh_str("backhop.wait.1000"), bh_str("order.created")) == BH_OK);
    }
    need(step(self, 0) == count);
}

static int64_t last_publish; /* of the publisher */

static void acknowledge(hands *self, int count)
{
    arrive(self, count);
    for (int i = 0; i < count; i++) {
        need(bh_ledger_acknowledge(self->ledger, self->entries[i]) == BH_OK);
        step(self, 0);
    }
}

static void acknowledge_backwards(hands *self, int count)
{
    arrive(self, count);
    for (int i = count; i-- > 0;) {
        need(bh_ledger_acknowledge(self->ledger, self->entries[i]) == BH_OK);
        step(self, 0);
    }
}

static void retry(hands *self, int count)
{
    arrive(self, count);
    settle(self, count);
    bh_ledger_confirm(self->ledger, self->publisher, 0, 1, 1, 0);
    last_publish += count;
    step(self, 0);
}

static void retry_one_confirm_each(hands *self, int count)
{
    arrive(self, count);
    settle(self, count);
    for (int64_t tag = last_publish + count; tag > last_publish; tag--) { /* the last one first */
        bh_ledger_confirm(self->ledger, self->publisher, tag, 0, 1, 0);
        step(self, 0);
    }
    last_publish += count;
}

static void return_each(hands *self, int count)
{
    char id[24];
    arrive(self, count);
    settle(self, count);
    for (int i = count; i-- > 0;) {
        snprintf(id, sizeof id, "%d", i);
        bh_ledger_return(self->ledger, self->publisher, bh_str(id), bh_str("backhop.wait.1000"),
                         bh_str("order.created"));
    }
    bh_ledger_confirm(self->ledger, self->publisher, 0, 1, 1, 0);
    last_publish += count;
    need(bh_ledger_count(self->ledger, BH_STATE_WAITING) == count);
    step(self, 0);
    step(self, 1000000); /* out they go again */
    bh_ledger_confirm(self->ledger, self->publisher, 0, 1, 1, 0);
    last_publish += count;
    step(self, 0);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure(void (*way)(hands *, int), int count, int64_t most_acks)
{
    double times[ROUNDS];
    hands self = {.entries = malloc((size_t)count * sizeof *self.entries)};
    bh_policy *policy;
    need(self.entries && bh_policy_new(&policy) == BH_OK);
    need(bh_ledger_new(&self.ledger, policy, (bh_bytes){"a seed..", BH_LEDGER_RANDOM_BYTES}) == BH_OK);
    need(bh__ledger_set_most_sent(self.ledger, BH__LEDGER_MOST_SENT) == BH_OK);
    need(bh__ledger_set_acks(self.ledger, most_acks, 100) == BH_OK);
    need(bh_ledger_open_channel(self.ledger, &self.channel) == BH_OK);
    need(bh_ledger_open_publisher(self.ledger, &self.publisher) == BH_OK);
    last_publish = 0;
    way(&self, count); /* warm from here on */
    for (int round = 0; round < ROUNDS; round++) {
        double start = now_ns();
        way(&self, count);
        times[round] = (now_ns() - start) / count;
        need(bh__ledger_unsettled(self.ledger) == 0);
    }
    need(bh_ledger_count(self.ledger, BH_STATE_ACKNOWLEDGED) == (int64_t)count * (ROUNDS + 1));
    bh_ledger_free(self.ledger);
    bh_policy_free(policy);
    free(self.entries);
    qsort(times, ROUNDS, sizeof *times, by_value);
    return times[ROUNDS / 2];
}

static void show(const char *name, void (*way)(hands *, int), int64_t most_acks)
{
    printf("%-46s %9.0f %9.0f\n", name, measure(way, FEW, most_acks), measure(way, MANY, most_acks));
}

int main(void)
{
    printf("\nthe ledger, ns for each message; median of %d rounds\n\n", ROUNDS);
    printf("%-46s %9d %9d\n", "in hand", FEW, MANY);
    show("arrive, acknowledge, step", acknowledge, 0);
    show("the same, acknowledged together", acknowledge, 100);
    show("the same, the last one first", acknowledge_backwards, 100);
    show("arrive, settle, publish, confirm, acknowledge", retry, 0);
    show("the same, acknowledged together", retry, 100);
    show("the same, confirmed one by one, the last first", retry_one_confirm_each, 100);
    show("every copy returned once", return_each, 100);
    return 0;
}
