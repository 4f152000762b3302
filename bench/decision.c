/*
 * Benchmark: how long a decision takes, and how often it allocates. The message has ten headers
 * and, in one of them, five x-death records; the strategy is the ladder. Each figure is the median
 * of many batches. Times are processor time, so other programs on the machine matter little.
 */
#include <allocations.h>
#include <backhop/adapter/event.h>
#include <backhop/adapter.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCHES 31
#define ROUNDS 20000

typedef struct {
    bh_policy *policy;
    bh_topology *topology;
    bh_delivery *delivery;
    bh_history *history;
    bh_plan *plan;
    bh_metrics *metrics;
    bh_breaker *breaker;
    int64_t now_ms;
} objects;

static void need(bh_status status)
{
    if (status == BH_OK)
        return;
    fprintf(stderr, "%s\n", bh_status_text(status).data);
    exit(1);
}

static void push_text(bh_delivery *delivery, const char *name, const char *text)
{
    need(bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_STRING, .name = bh_str(name), .string = bh_str(text)}));
}

static void push_int(bh_delivery *delivery, const char *name, int64_t value)
{
    need(bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_INT64, .name = bh_str(name), .integer = value}));
}

static void push_death(bh_delivery *delivery, const char *queue)
{
    need(bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_TABLE, .name = bh_str("")}));
    push_int(delivery, "count", 1);
    push_text(delivery, "exchange", "cdn");
    push_text(delivery, "queue", queue);
    push_text(delivery, "reason", "expired");
    need(bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_ARRAY, .name = bh_str("routing-keys")}));
    push_text(delivery, "", "purge.images");
    need(bh_delivery_end(delivery));
    need(bh_delivery_push(delivery,
                          &(bh_value){.type = BH_TYPE_TIMESTAMP, .name = bh_str("time"), .integer = 1700000000}));
    need(bh_delivery_end(delivery));
}

static void push(objects *self)
{
    bh_delivery *delivery = self->delivery;
    bh_delivery_clear(delivery);
    need(bh_delivery_set_address(delivery, bh_str("backhop.return"), bh_str("purge.images")));
    need(bh_delivery_set_property(delivery, BH_PROPERTY_CONTENT_TYPE, bh_str("application/json")));
    need(bh_delivery_set_number(delivery, BH_PROPERTY_DELIVERY_MODE, 2));
    need(bh_delivery_set_property(delivery, BH_PROPERTY_MESSAGE_ID, bh_str("7d444840-9dc0-11d1-b245-5ffdce74fad2")));
    push_text(delivery, "backhop-queue", "cdn-purge");
    push_int(delivery, "backhop-attempts", 3);
    push_int(delivery, "backhop-first-failure", INT64_C(1700000000000));
    push_int(delivery, "backhop-delay", 4000);
    push_text(delivery, "backhop-id", "7d444840-9dc0-11d1-b245-5ffdce74fad2");
    push_text(delivery, "backhop-exchange", "cdn");
    push_text(delivery, "backhop-routing-key", "purge.images");
    push_text(delivery, "backhop-error", "507 queue is full");
    push_text(delivery, "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    need(bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_ARRAY, .name = bh_str("x-death")}));
    push_death(delivery, "backhop.wait.8000");
    push_death(delivery, "backhop.wait.4000");
    push_death(delivery, "backhop.wait.2000");
    push_death(delivery, "backhop.wait.1000");
    push_death(delivery, "another-queue");
    need(bh_delivery_end(delivery));
}

static void read_history(objects *self)
{
    need(bh_history_read(self->history, self->delivery, self->topology));
}

static void make_plan(objects *self)
{
    static const char random_bytes[] = "a different one each time, really";
    bh_bytes random_argument = {random_bytes, BH_PLAN_RANDOM_BYTES};
    need(bh_plan_make(self->plan, self->delivery, self->history, self->policy, self->topology, BH_OUTCOME_FAILED,
                      bh_str("507 queue is full"), 0, INT64_C(1700000060000), random_argument));
}

static void decide(objects *self)
{
    read_history(self);
    make_plan(self);
}

static void push_and_decide(objects *self)
{
    push(self);
    decide(self);
}

/* A message that fails, and its copy, as they are counted. */
static void count(objects *self)
{
    bh_bytes queue = bh_str("cdn-purge"), error_class = bh_str("TimeoutError");
    need(bh_metrics_count_message(self->metrics, BH_EVENT_FAILED, queue, self->history, 0, INT64_C(1700000060000),
                                  error_class, 20000));
    need(bh_metrics_count_copy(self->metrics, BH_EVENT_RETRIED, queue, 4, 8000, bh_str(""), error_class, 900));
}

/* A closed breaker: the permit of a call, and its record. Each call takes 1 ms. */
static void permit_and_record(objects *self)
{
    bh_permit permit;
    bh_call call = {.kind = BH_CALL_SUCCESS, .duration_ms = 1};
    bh_breaker_permit(self->breaker, bh_str(""), self->now_ms, &permit);
    bh_breaker_record(self->breaker, bh_str(""), &permit, &call, ++self->now_ms);
}

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, void (*step)(objects *), objects *self)
{
    double times[BATCHES];
    allocations_start(-1);
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now_ns();
        for (int round = 0; round < ROUNDS; round++)
            step(self);
        times[batch] = (now_ns() - start) / ROUNDS;
    }
    double allocations = (double)allocations_count() / ((double)BATCHES * ROUNDS);
    qsort(times, BATCHES, sizeof *times, by_value);
    printf("%-20s %8.0f %14.2f\n", name, times[BATCHES / 2], allocations);
}

int main(void)
{
    objects self;
    need(bh_policy_new(&self.policy));
    need(bh_topology_new(&self.topology, bh_str("cdn-purge")));
    need(bh_topology_build(self.topology, self.policy));
    need(bh_delivery_new(&self.delivery));
    need(bh_history_new(&self.history));
    need(bh_plan_new(&self.plan));
    need(bh_metrics_new(&self.metrics));
    bh_breaker_settings settings;
    bh_breaker_defaults(&settings);
    need(bh_breaker_new(&self.breaker, &settings, (bh_bytes){"12345678", BH_BREAKER_RANDOM_BYTES}));
    self.now_ms = 0;
    push_and_decide(&self);
    count(&self);
    push_and_decide(&self); /* warm from here on */

    printf("ten headers, five x-death records; processor time, median of %d batches of %d\n\n", BATCHES, ROUNDS);
    printf("%-20s %8s %14s\n", "", "ns", "allocations");
    measure("push the delivery", push, &self);
    measure("read the history", read_history, &self);
    measure("make the plan", make_plan, &self);
    measure("history and plan", decide, &self);
    measure("all of it", push_and_decide, &self);
    measure("count it", count, &self);
    measure("permit and record", permit_and_record, &self);

    bh_breaker_free(self.breaker);
    bh_metrics_free(self.metrics);
    bh_plan_free(self.plan);
    bh_history_free(self.history);
    bh_delivery_free(self.delivery);
    bh_topology_free(self.topology);
    bh_policy_free(self.policy);
    return 0;
}
