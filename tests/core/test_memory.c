/*
 * Memory: whatever allocation fails, the call says so and has changed nothing; and a decision after
 * the first ones allocates nothing. An executable of its own, because its allocations are counted
 * and made to fail.
 */
#include "events/internal.h"
#include "history/internal.h"
#include "plan/internal.h"
#include "policy/internal.h"
#include "relay/internal.h"
#include "topology/internal.h"
#include "../topologies.h"
#include "allocations.h"
#include "../reading.h"

#include <backhop/adapter/event.h>
#include <backhop/adapter.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const strategies[] = {"ladder", "message-ttl", "reject", "delayed-exchange", "native"};
static const char random_bytes[BH_PLAN_RANDOM_BYTES + 1] = "................................";

typedef struct {
    bh_policy *policy;
    bh_topology *topology;
    bh_delivery *delivery;
    bh_history *history;
    bh_plan *plan;
    int told;      /* calls that returned BH_ERR_NO_MEMORY */
    int different; /* calls that returned anything else than they should */
    const char *call;
} decision;

#define NOTHING ((decision){.call = ""})

/*
 * The status of a call. If it is BH_ERR_NO_MEMORY, the call is made once more, on the same objects.
 * Since "nothing was changed", the second call does the work.
 */
#define TRY(self, expected, call_)                                                                                     \
    do {                                                                                                               \
        int status_ = (int)(call_);                                                                                    \
        if (status_ == BH_ERR_NO_MEMORY) {                                                                             \
            (self)->told++;                                                                                            \
            status_ = (int)(call_);                                                                                    \
        }                                                                                                              \
        if (status_ != (expected) && !(self)->different++)                                                             \
            (self)->call = #call_;                                                                                     \
    } while (0)

/*
 * Calls `play` again and again. Each time another allocation fails, until none does. `drop` frees
 * what `play` made.
 * is_told: each failure is the status of a call.
 */
static void fail_each(void (*play)(decision *), void (*drop)(decision *), int is_told)
{
    for (long failing = 0, failed = 1; failed; failing++) {
        long live = allocations_live(); /* some of them are Check's */
        decision self = NOTHING;
        allocations_start(failing);
        play(&self);
        failed = allocations_failed();
        allocations_start(-1);
        drop(&self);
        long leaked = allocations_live() - live;
        ck_assert_msg(self.different == 0, "allocation %ld: another result than expected: %s", failing, self.call);
        ck_assert_msg(!is_told || self.told == failed, "allocation %ld failed and %d calls told so", failing,
                      self.told);
        ck_assert_msg(leaked == 0, "allocation %ld: %ld blocks leak", failing, leaked);
    }
}

static bh_bytes random_argument(void)
{
    bh_bytes bytes = {random_bytes, BH_PLAN_RANDOM_BYTES};
    return bytes;
}

/* A policy that the strategy can serve. */
static void make_policy(decision *self, bh_strategy strategy)
{
    TRY(self, BH_OK, bh_policy_new(&self->policy));
    if (strategy == BH_STRATEGY_REJECT || strategy == BH_STRATEGY_NATIVE) {
        TRY(self, BH_OK, policy_set_kind(self->policy, BH_KIND_FIXED));
        TRY(self, BH_OK, policy_set_jitter(self->policy, BH_JITTER_NONE, 0));
    } else {
        TRY(self, BH_OK, policy_set_kind(self->policy, BH_KIND_STEPS));
        for (int64_t step = 1; step <= 40; step++)
            TRY(self, BH_OK, policy_add_step_ms(self->policy, step * 1000));
    }
    TRY(self, BH_OK, policy_set_max_crashes(self->policy, 3));
    TRY(self, BH_ERR_POLICY, policy_set_initial_ms(self->policy, -1));
    TRY(self, BH_OK, bh_policy_check(self->policy));
}

static void make_topology(decision *self, bh_strategy strategy)
{
    TRY(self, BH_OK, bh_topology_new(&self->topology, bh_str("cdn-purge")));
    TRY(self, BH_OK, topology_set_strategy(self->topology, strategy));
    TRY(self, BH_OK, topology_set_name_space(self->topology, bh_str("a-namespace")));
    bh_queue_type type = strategy == BH_STRATEGY_DELAYED_EXCHANGE ? BH_QUEUE_CLASSIC : BH_QUEUE_QUORUM;
    TRY(self, BH_OK, topology_declare_work_queue(self->topology, type));
    for (int64_t argument = 0; argument < 20; argument++) {
        char name[32];
        snprintf(name, sizeof name, "x-argument-%d", (int)argument);
        TRY(self, BH_OK, add_int_argument(self->topology, bh_str(name), argument));
        snprintf(name, sizeof name, "x-text-%d", (int)argument);
        TRY(self, BH_OK, add_string_argument(self->topology, bh_str(name), bh_str("text")));
    }
    if (strategy != BH_STRATEGY_REJECT && strategy != BH_STRATEGY_NATIVE) /* which have one delay */
        TRY(self, BH_OK, bh_topology_add_policy(self->topology, self->policy));
    TRY(self, BH_OK, bh_topology_build(self->topology, self->policy));
    TRY(self, BH_ERR_BROKER, bh_topology_check_broker(self->topology, bh_str("Another"), bh_str("4.0.5")));
    TRY(self, BH_OK, bh_topology_export(self->topology, bh_str("/")));
}

/* A delivery of five x-death records, a header of each type, and enough besides to make its memory
 * grow. */
static void fill(decision *self)
{
    bh_delivery *d = self->delivery;
    bh_delivery_clear(d);
    TRY(self, BH_OK, bh_delivery_set_address(d, bh_str("cdn"), bh_str("purge.images")));
    for (int property = 0; property < BH_PROPERTY_LAST; property++) {
        int is_number = property == BH_PROPERTY_DELIVERY_MODE || property == BH_PROPERTY_PRIORITY ||
                        property == BH_PROPERTY_TIMESTAMP;
        if (property == BH_PROPERTY_HEADERS)
            continue;
        if (is_number) {
            TRY(self, BH_OK, bh_delivery_set_number(d, (bh_property)property, 1));
        } else {
            TRY(self, BH_OK, bh_delivery_set_property(d, (bh_property)property, bh_str("a property")));
        }
    }
    TRY(self, BH_OK,
        bh_delivery_push(d, &(bh_value){.type = BH_TYPE_BOOLEAN, .name = bh_str("boolean"), .integer = 1}));
    TRY(self, BH_OK, bh_delivery_push(d, &(bh_value){.type = BH_TYPE_DOUBLE, .name = bh_str("double"), .number = 0.5}));
    TRY(self, BH_OK,
        bh_delivery_push(d,
                         &(bh_value){.type = BH_TYPE_DECIMAL, .name = bh_str("decimal"), .integer = 314, .places = 2}));
    TRY(self, BH_OK, bh_delivery_push(d, &(bh_value){.type = BH_TYPE_VOID, .name = bh_str("void")}));
    TRY(self, BH_OK, push_int(d, "x-delivery-count", 3));
    TRY(self, BH_OK, push_text(d, "CC", "a stray one"));
    TRY(self, BH_OK, push_text(d, "backhop-id", "an id"));
    TRY(self, BH_OK, push_text(d, "backhop-error", "it failed"));
    TRY(self, BH_OK, push_text(d, "backhop-attempts", "a problem"));
    TRY(self, BH_OK, push_open(d, BH_TYPE_ARRAY, "x-death"));
    for (int record = 0; record < 5; record++) {
        TRY(self, BH_OK, push_open(d, BH_TYPE_TABLE, ""));
        TRY(self, BH_OK, push_int(d, "count", 1));
        TRY(self, BH_OK, push_text(d, "reason", "expired"));
        TRY(self, BH_OK, push_text(d, "queue", "a wait queue"));
        TRY(self, BH_OK,
            bh_delivery_push(
                d, &(bh_value){.type = BH_TYPE_TIMESTAMP, .name = bh_str("time"), .integer = 1700000000 + record}));
        TRY(self, BH_OK, push_open(d, BH_TYPE_ARRAY, "routing-keys"));
        TRY(self, BH_OK, push_text(d, "", "purge.images"));
        TRY(self, BH_OK, bh_delivery_end(d));
        TRY(self, BH_OK, bh_delivery_end(d));
    }
    TRY(self, BH_OK, bh_delivery_end(d));
    for (int header = 0; header < 100; header++) {
        char name[32];
        snprintf(name, sizeof name, "header-%d", header);
        TRY(self, BH_OK, push_text(d, name, "a value of some length"));
    }
}

static void make_plan(decision *self, bh_outcome outcome, const char *error)
{
    TRY(self, BH_OK, bh_history_read(self->history, self->delivery, self->topology));
    TRY(self, BH_OK,
        bh_plan_make(self->plan, self->delivery, self->history, self->policy, self->topology, outcome, bh_str(error),
                     5000, INT64_C(1700000100000), random_argument()));
}

static void make_all(decision *self, bh_strategy strategy)
{
    make_policy(self, strategy);
    make_topology(self, strategy);
    TRY(self, BH_OK, bh_delivery_new(&self->delivery));
    TRY(self, BH_OK, bh_history_new(&self->history));
    TRY(self, BH_OK, bh_plan_new(&self->plan));
    TRY(self, BH_OK, bh_history_set_legacy_counter(self->history, bh_str("x-retry-count")));
    TRY(self, BH_OK, bh_history_add_wait_queue(self->history, bh_str("a wait queue")));
    fill(self);
}

static void free_all(decision *self)
{
    bh_plan_free(self->plan);
    bh_history_free(self->history);
    bh_delivery_free(self->delivery);
    bh_topology_free(self->topology);
    bh_policy_free(self->policy);
}

/* Writes the decision as text; at least the parts that differ between decisions. */
static void describe(const decision *self, char *out, size_t size)
{
    const bh_plan *plan = self->plan;
    int used =
        snprintf(out, size, "action %d, delay %lld, attempts %lld, exchange %s, key %s, problems %d, size %lld",
                 (int)planned_of(plan).action, (long long)planned_of(plan).delay_ms,
                 (long long)planned_of(plan).attempts, copy_of(plan).exchange.data, copy_of(plan).routing_key.data,
                 (int)problem_count(self->history), (long long)bh_delivery_header_bytes(self->delivery));
    for (size_t i = 0; i < planned_of(plan).header_count && (size_t)used < size; i++)
        used += snprintf(out + used, size - (size_t)used, "; %s %c %s %lld", plan_header(plan, i).name.data,
                         (int)plan_header(plan, i).type, plan_header(plan, i).string.data,
                         (long long)plan_header(plan, i).integer);
    if ((size_t)used < size)
        snprintf(out + used, size - (size_t)used, "\n%s", bh_topology_definitions(self->topology).data);
}

#define DESCRIPTION 65536

/* Makes a whole decision. The allocation of this number fails. */
static void decide(decision *self, bh_strategy strategy, long failing)
{
    *self = NOTHING;
    allocations_start(failing);
    make_all(self, strategy);
    make_plan(self, BH_OUTCOME_PERMANENT, "it will never work");
    TRY(self, BH_OK, bh_plan_replay(self->plan, self->delivery, self->history, self->topology, random_argument()));
    TRY(self, BH_OK,
        bh_plan_guard(self->plan, self->delivery, self->history, self->policy, self->topology, INT64_C(1700000100000),
                      random_argument()));
    if (strategy != BH_STRATEGY_REJECT && strategy != BH_STRATEGY_NATIVE)
        TRY(self, BH_OK,
            bh__plan_adopt(self->plan, self->delivery, self->history, self->policy, self->topology,
                           INT64_C(1700000100000), random_argument()));
    make_plan(self, BH_OUTCOME_FAILED, "507 queue is full");
}

START_TEST(test_each_allocation_of_a_decision_may_fail_once)
{
    static char expected[DESCRIPTION], found[DESCRIPTION];
    bh_strategy strategy = (bh_strategy)_i;
    decision self;
    decide(&self, strategy, -1);
    ck_assert_msg(self.different == 0, "%s: another status than expected: %s", strategies[_i], self.call);
    describe(&self, expected, sizeof expected);
    free_all(&self);

    for (long failing = 0, failed = 1; failed; failing++) {
        long live = allocations_live(); /* some of them are Check's */
        decide(&self, strategy, failing);
        failed = allocations_failed();
        allocations_start(-1);
        describe(&self, found, sizeof found);
        free_all(&self);
        long leaked = allocations_live() - live;
        ck_assert_msg(self.different == 0, "%s, allocation %ld: another status than expected: %s", strategies[_i],
                      failing, self.call);
        ck_assert_msg(self.told == failed, "%s, allocation %ld failed and %d calls told so", strategies[_i], failing,
                      self.told);
        ck_assert_msg(leaked == 0, "%s, allocation %ld: %ld blocks leak", strategies[_i], failing, leaked);
        ck_assert_str_eq(found, expected);
    }
}
END_TEST

START_TEST(test_a_decision_allocates_nothing_after_the_first_ones)
{
    static const bh_outcome outcomes[] = {BH_OUTCOME_FAILED, BH_OUTCOME_PERMANENT, BH_OUTCOME_OK, BH_OUTCOME_DROPPED,
                                          BH_OUTCOME_THROTTLED};
    decision self;
    decide(&self, (bh_strategy)_i, -1);
    for (int round = 0; round < 100; round++) {
        if (round == 2)
            allocations_start(-1); /* the first round for each outcome, and one more */
        for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++) {
            fill(&self);
            make_plan(&self, outcomes[i], "507 queue is full");
        }
        TRY(&self, BH_OK, bh_plan_replay(self.plan, self.delivery, self.history, self.topology, random_argument()));
    }
    long count = allocations_count();
    ck_assert_int_eq(self.different, 0);
    ck_assert_msg(count == 0, "%s: %ld allocations in 98 rounds", strategies[_i], count);
    free_all(&self);
}
END_TEST

/* --------------------------------------------------------------------------------------- copies */

/* A delivery, a history and a plan of its own, for a copy of the others. */
static void make_own(decision *self)
{
    *self = NOTHING;
    TRY(self, BH_OK, bh_delivery_new(&self->delivery));
    TRY(self, BH_OK, bh_history_new(&self->history));
    TRY(self, BH_OK, bh_plan_new(&self->plan));
    TRY(self, BH_OK, bh_history_set_legacy_counter(self->history, bh_str("another")));
    TRY(self, BH_OK, bh_history_add_wait_queue(self->history, bh_str("another")));
    fill(self);
}

static void copy_to(decision *self, const decision *from)
{
    TRY(self, BH_OK, bh__policy_copy(&self->policy, from->policy));
    TRY(self, BH_OK, bh__topology_copy(&self->topology, from->topology));
    TRY(self, BH_OK, bh__history_copy_settings(self->history, from->history));
}

/* Changes each setting that was copied, so that the next decision is another one. */
static void change(decision *self)
{
    if (settings_of(self->policy).kind == BH_KIND_STEPS)
        TRY(self, BH_OK, policy_add_step_ms(self->policy, 50000));
    TRY(self, BH_OK, policy_set_initial_ms(self->policy, 7));
    TRY(self, BH_OK, policy_set_max_attempts(self->policy, 1));
    TRY(self, BH_OK, topology_set_name_space(self->topology, bh_str("another")));
    TRY(self, BH_OK, add_int_argument(self->topology, bh_str("x-another"), 1));
    TRY(self, BH_OK, bh_topology_build(self->topology, self->policy));
    TRY(self, BH_OK, bh_topology_export(self->topology, bh_str("another")));
    TRY(self, BH_OK, bh_history_add_wait_queue(self->history, bh_str("another")));
    TRY(self, BH_OK, bh_history_set_legacy_counter(self->history, bh_str("another")));
}

START_TEST(test_each_allocation_of_a_copy_may_fail_once)
{
    decision from;
    decide(&from, (bh_strategy)_i, -1);
    for (long failing = 0, failed = 1; failed; failing++) {
        long live = allocations_live();
        bh_policy *policy = from.policy;
        bh_topology *topology = from.topology;
        decision to;
        make_own(&to);
        allocations_start(failing);
        bh_status policy_status = bh__policy_copy(&policy, from.policy);
        bh_status topology_status = bh__topology_copy(&topology, from.topology);
        bh_status history_status = bh__history_copy_settings(to.history, from.history);
        failed = allocations_failed();
        allocations_start(-1);
        bh_status read_status = bh_history_read(to.history, to.delivery, NULL);
        int64_t attempts = past_of(to.history).attempts;
        int policy_is_made = policy != NULL, topology_is_made = topology != NULL;
        bh_policy_free(policy);
        bh_topology_free(topology);
        free_all(&to);
        long leaked = allocations_live() - live;
        int told = (policy_status == BH_ERR_NO_MEMORY) + (topology_status == BH_ERR_NO_MEMORY) +
                   (history_status == BH_ERR_NO_MEMORY);
        ck_assert_msg(told == failed, "%s, allocation %ld failed and %d calls told so", strategies[_i], failing, told);
        ck_assert_int_eq(policy_is_made, policy_status == BH_OK);
        ck_assert_int_eq(topology_is_made, topology_status == BH_OK);
        ck_assert_int_eq(read_status, BH_OK);
        ck_assert_int_eq(attempts, history_status == BH_OK ? 5 : 0);
        ck_assert_msg(leaked == 0, "%s, allocation %ld: %ld blocks leak", strategies[_i], failing, leaked);
    }
    free_all(&from);
}
END_TEST

START_TEST(test_a_copy_does_not_change_with_the_original)
{
    static char expected[DESCRIPTION], found[DESCRIPTION];
    decision from, copy;
    decide(&from, (bh_strategy)_i, -1);
    describe(&from, expected, sizeof expected);
    make_own(&copy);
    copy_to(&copy, &from);

    change(&from);
    make_plan(&from, BH_OUTCOME_FAILED, "507 queue is full");
    describe(&from, found, sizeof found);
    ck_assert_str_ne(found, expected);
    make_plan(&copy, BH_OUTCOME_FAILED, "507 queue is full");
    describe(&copy, found, sizeof found);
    ck_assert_str_eq(found, expected);

    ck_assert_msg(from.different == 0, "%s: another status than expected: %s", strategies[_i], from.call);
    free_all(&from);
    make_plan(&copy, BH_OUTCOME_FAILED, "507 queue is full");
    TRY(&copy, BH_OK, bh_topology_export(copy.topology, bh_str("/")));
    describe(&copy, found, sizeof found);
    ck_assert_str_eq(found, expected);

    change(&copy);
    make_plan(&copy, BH_OUTCOME_FAILED, "507 queue is full");
    describe(&copy, found, sizeof found);
    ck_assert_str_ne(found, expected);
    ck_assert_msg(copy.different == 0, "%s: another status than expected: %s", strategies[_i], copy.call);
    free_all(&copy);
}
END_TEST

START_TEST(test_a_topology_that_is_not_built_is_copied_as_such)
{
    decision from = NOTHING, copy = NOTHING;
    TRY(&from, BH_OK, bh_policy_new(&from.policy));
    TRY(&from, BH_OK, bh_topology_new(&from.topology, bh_str("cdn-purge")));
    TRY(&copy, BH_OK, bh__policy_copy(&copy.policy, from.policy));
    TRY(&copy, BH_OK, bh__topology_copy(&copy.topology, from.topology));
    free_all(&from);
    ck_assert_int_eq(bh__topology_is_built(copy.topology), 0);
    TRY(&copy, BH_OK, bh_topology_build(copy.topology, copy.policy));
    ck_assert_str_eq(view_of(copy.topology).parked_queue.data, "cdn-purge.parked");
    ck_assert_int_eq(from.different + copy.different, 0);
    free_all(&copy);
}
END_TEST

/* Failed attempts as a history without a topology reads them from a header. */
static int64_t attempts_of(decision *self, const char *header)
{
    bh_delivery_clear(self->delivery);
    TRY(self, BH_OK, push_int(self->delivery, header, 3));
    TRY(self, BH_OK, bh_history_read(self->history, self->delivery, NULL));
    return past_of(self->history).attempts;
}

START_TEST(test_copied_settings_replace_those_before)
{
    decision to;
    bh_history *from = NULL;
    make_own(&to);
    ck_assert_int_eq(bh_history_new(&from), BH_OK);
    ck_assert_int_eq(bh_history_set_legacy_counter(from, bh_str("x-retry-count")), BH_OK);
    ck_assert_int_eq(attempts_of(&to, "another"), 3);
    ck_assert_int_eq(bh__history_copy_settings(to.history, from), BH_OK);
    ck_assert_int_eq(bh_history_set_legacy_counter(from, bh_str("")), BH_OK);
    ck_assert_int_eq(attempts_of(&to, "another"), 0);
    ck_assert_int_eq(attempts_of(&to, "x-retry-count"), 3);
    ck_assert_int_eq(bh__history_copy_settings(to.history, from), BH_OK);
    bh_history_free(from);
    ck_assert_int_eq(attempts_of(&to, "x-retry-count"), 0);
    ck_assert_int_eq(to.different, 0);
    free_all(&to);
}
END_TEST

/* ------------------------------------------------------------------------------------ declaring */

/* Everything is missing or different, and the texts are long. */
static bh_status run_declaring(bh_declaring *declaring)
{
    bh_declaration step;
    bh_declaring_begin(declaring, BH_MODE_VERIFY, 0);
    for (int steps = 0; bh_declaring_next(declaring, &step); steps++)
        if (!step.passive || steps % 3 == 0)
            bh_declaring_refuse(declaring, step.passive ? 404 : 405, bh_str("RESOURCE_LOCKED"));
    return bh_declaring_status(declaring);
}

static void create(bh_declaring *declaring)
{
    bh_declaration step;
    bh_declaring_begin(declaring, BH_MODE_CREATE, 0);
    while (bh_declaring_next(declaring, &step))
        ;
}

static bh_declaring *declaring;
static bh_declared *declared;

static void play_declaring(decision *self)
{
    TRY(self, BH_OK, bh_policy_new(&self->policy));
    TRY(self, BH_OK, bh_topology_new(&self->topology, bh_str("orders")));
    TRY(self, BH_OK, bh_topology_build(self->topology, self->policy));
    TRY(self, BH_OK, bh_declared_new(&declared));
    TRY(self, BH_OK, bh_declaring_new(&declaring, self->topology, BH_DIALECT_C));
    TRY(self, BH_OK, bh_declaring_set_declared(declaring, declared));
    create(declaring); /* without memory it is not remembered */
    create(declaring);
    self->different += run_declaring(declaring) != BH_ERR_CLASH; /* without memory in fewer words */
}

static void drop_declaring(decision *self)
{
    bh_declared_free(declared);
    bh_declaring_free(declaring);
    free_all(self);
}

START_TEST(test_each_allocation_of_declaring_may_fail_once)
{
    fail_each(play_declaring, drop_declaring, 0);
}
END_TEST

/* --------------------------------------------------------------------------------------- ledger */

#define LEDGER_MESSAGES 100

/* Messages that arrive, are retried over rungs of their own and confirmed, the last one on a
 * channel that closes before. The steps are counted, which allocate nothing. */
static int run_ledger(decision *self, bh_ledger *ledger)
{
    int64_t channel, lost, publisher, entries[LEDGER_MESSAGES + 1];
    bh_step step;
    int steps = 0;
    TRY(self, BH_OK, bh_ledger_open_channel(ledger, &channel));
    TRY(self, BH_OK, bh_ledger_open_channel(ledger, &lost));
    TRY(self, BH_OK, bh_ledger_open_publisher(ledger, &publisher));
    bh_ledger_set_restores(ledger, 1);
    bh_ledger_forget_rungs(ledger);
    for (int i = 0; i <= LEDGER_MESSAGES; i++) {
        TRY(self, BH_OK, bh_ledger_arrive(ledger, i < LEDGER_MESSAGES ? channel : lost, i + 1, &entries[i]));
        TRY(self, BH_OK,
            bh_ledger_settle(ledger, entries[i], BH_ACTION_RETRY, 1000 * (i % 20 + 1), bh_str("id"), bh_str("exchange"),
                             bh_str("key")));
    }
    long before = allocations_count();
    for (int round = 0; round < 3; round++) {
        for (; bh_ledger_next(ledger, round, 1, &step); steps++)
            if (step.kind == BH_STEP_DECLARE)
                bh_ledger_rung(ledger, step.delay_ms, BH_OK, round);
        bh_ledger_lose_channel(ledger, lost);
        bh_ledger_confirm(ledger, publisher, 0, 1, 1, round);
    }
    self->different += allocations_count() != before;
    return steps;
}

static bh_ledger *ledger;

static void play_ledger(decision *self)
{
    TRY(self, BH_OK, bh_policy_new(&self->policy));
    TRY(self, BH_OK, bh_ledger_new(&ledger, self->policy, (bh_bytes){random_bytes, BH_LEDGER_RANDOM_BYTES}));
    int steps = run_ledger(self, ledger);
    self->different += steps != 21 + 3 * LEDGER_MESSAGES + 2; /* declare; publish, emit, acknowledge */
    self->different += bh_ledger_count(ledger, BH_STATE_ACKNOWLEDGED) != LEDGER_MESSAGES;
}

static void drop_ledger(decision *self)
{
    bh_ledger_free(ledger);
    free_all(self);
}

START_TEST(test_each_allocation_of_a_ledger_may_fail_once)
{
    fail_each(play_ledger, drop_ledger, 1);
}
END_TEST

START_TEST(test_a_ledger_allocates_nothing_where_no_more_is_in_hand_than_before)
{
    decision self = NOTHING;
    play_ledger(&self);
    bh_ledger_disconnect(ledger, BH_ENDING_ORDERLY, 10);
    allocations_start(-1);
    run_ledger(&self, ledger);
    long count = allocations_count();
    drop_ledger(&self);
    ck_assert_int_eq(self.different, 0);
    ck_assert_int_eq(count, 0);
}
END_TEST

static bh_breaker *breaker;
static bh_breaker *breakers;

static void play_breakers(decision *self)
{
    bh_breaker_settings settings;
    bh_permit permit = {0, 0, 0};
    bh_breaker_defaults(&settings);
    TRY(self, BH_OK, bh_breaker_new(&breaker, &settings, (bh_bytes){random_bytes, BH_BREAKER_RANDOM_BYTES}));
    settings.by_key = 1;
    TRY(self, BH_OK, bh_breaker_new(&breakers, &settings, (bh_bytes){random_bytes, BH_BREAKER_RANDOM_BYTES}));
    TRY(self, BH_OK, bh_breaker_permit(breakers, bh_str("a.example"), 0, &permit));
    self->different += permit.generation == 0;
}

static void drop_breakers(decision *self)
{
    bh_breaker_free(breakers);
    bh_breaker_free(breaker);
    free_all(self);
}

START_TEST(test_each_allocation_of_breakers_may_fail_once)
{
    fail_each(play_breakers, drop_breakers, 1);
}
END_TEST

static bh_subscription *subscription;

static void play_subscription(decision *self)
{
    bh_subscription_step step = {.kind = BH_SUBSCRIPTION_REST};
    TRY(self, BH_OK, bh_back_off_new(&self->policy));
    TRY(self, BH_OK,
        bh_subscription_new(&subscription, self->policy, (bh_bytes){random_bytes, BH_SUBSCRIPTION_RANDOM_BYTES}));
    bh_subscription_next(subscription, 1, 0, &step);
    self->different += step.kind != BH_SUBSCRIPTION_DECLARE;
}

static void drop_subscription(decision *self)
{
    bh_subscription_free(subscription);
    subscription = NULL;
    free_all(self);
}

START_TEST(test_each_allocation_of_a_subscription_may_fail_once)
{
    fail_each(play_subscription, drop_subscription, 1);
}
END_TEST

static bh_silence *silence;

static void play_silence(decision *self)
{
    TRY(self, BH_OK, bh_silence_new(&silence, 1));
    bh_silence_begin(silence, 0);
    self->different += bh_silence_check(silence, 0, 1) != BH_EVENT_UNAVAILABLE;
}

static void drop_silence(decision *self)
{
    bh_silence_free(silence);
    silence = NULL;
    free_all(self);
}

START_TEST(test_each_allocation_of_a_silence_may_fail_once)
{
    fail_each(play_silence, drop_silence, 1);
}
END_TEST

static bh_calls *calls;

static void play_calls(decision *self)
{
    TRY(self, BH_OK, bh_calls_new(&calls, (bh_bytes){random_bytes, BH_CALLS_RANDOM_BYTES}));
}

static void drop_calls(decision *self)
{
    bh_calls_free(calls);
    calls = NULL;
    free_all(self);
}

START_TEST(test_each_allocation_of_calls_may_fail_once)
{
    fail_each(play_calls, drop_calls, 1);
}
END_TEST

static void use_breaker(int64_t now_ms)
{
    bh_permit permits[40];
    for (int64_t i = 0; i < 40; i++)
        bh_breaker_permit(breaker, bh_str(""), now_ms + i * 3000, &permits[i]);
    for (int64_t i = 0; i < 40; i++) {
        bh_call call = {.kind = i % 3 ? BH_CALL_FAILURE : BH_CALL_SUCCESS, .error_class = bh_str("TimeoutError")};
        bh_breaker_record(breaker, bh_str(""), &permits[i], &call, now_ms + 120000);
    }
}

START_TEST(test_a_breaker_allocates_nothing_after_it_was_made)
{
    decision self = NOTHING;
    bh_breaker_view view;
    play_breakers(&self);
    allocations_start(-1);
    int64_t generation = 0;
    for (int64_t now_ms = 0; now_ms < 1000000; now_ms += 130000) {
        use_breaker(now_ms);
        bh_breaker_read(breaker, bh_str(""), now_ms, &view);
        generation = view.generation;
    }
    long count = allocations_count();
    drop_breakers(&self);
    ck_assert_int_eq(self.different, 0);
    ck_assert_int_gt(generation, 3); /* it opened and probed */
    ck_assert_int_eq(count, 0);
}
END_TEST

/* A relay, and a copy of it as the worker's; its decisions on a dead letter of its queue and on a
 * stray one. */
static bh__relay *relay, *relay_copy;

static void fill_dead_letter(decision *self, const char *queue)
{
    bh_delivery_clear(self->delivery);
    TRY(self, BH_OK, bh_delivery_set_address(self->delivery, bh_str("backhop.rejected"), bh_str("order.created")));
    TRY(self, BH_OK, push_open(self->delivery, BH_TYPE_ARRAY, "x-death"));
    TRY(self, BH_OK, push_open(self->delivery, BH_TYPE_TABLE, ""));
    TRY(self, BH_OK, push_text(self->delivery, "queue", queue));
    TRY(self, BH_OK, push_text(self->delivery, "reason", "rejected"));
    TRY(self, BH_OK, bh_delivery_end(self->delivery));
    TRY(self, BH_OK, bh_delivery_end(self->delivery));
}

static void relay_one(decision *self, const char *queue)
{
    bh__dead_letter letter;
    fill_dead_letter(self, queue);
    TRY(self, BH_OK, bh__relay_read(relay_copy, self->delivery, self->history, &letter));
    TRY(self, BH_OK,
        bh__relay_plan(relay_copy, self->plan, self->delivery, self->history, 1, INT64_C(1700000100000),
                       random_argument()));
    if (!bh__same(letter.queue, bh_str(strcmp(queue, "stray") == 0 ? "" : queue)))
        self->different++;
}

static void play_relay(decision *self)
{
    TRY(self, BH_OK, bh_delivery_new(&self->delivery));
    TRY(self, BH_OK, bh_history_new(&self->history));
    TRY(self, BH_OK, bh_plan_new(&self->plan));
    TRY(self, BH_OK, bh__relay_new(&relay));
    TRY(self, BH_OK, bh__relay_set_namespace(relay, bh_str("mine")));
    TRY(self, BH_OK, bh__relay_add_queue(relay, bh_str("email"), NULL));
    TRY(self, BH_OK, bh__relay_add_queue(relay, bh_str("webhook.*"), NULL));
    TRY(self, BH_OK, bh__relay_build(relay));
    bh_bytes line = bh__relay_policy_line(relay, BH_QUEUE_QUORUM, bh_str("it's"));
    if (line.size != 0 && line.data[line.size - 1] != '\'')
        self->different++; /* part of a command */
    TRY(self, BH_OK, bh__relay_copy(&relay_copy, relay));
    relay_one(self, "email");
    relay_one(self, "stray");
    relay_one(self, "webhook.acme");
}

static void drop_relay(decision *self)
{
    bh__relay_free(relay);
    bh__relay_free(relay_copy);
    free_all(self);
}

START_TEST(test_each_allocation_of_a_relay_may_fail_once)
{
    fail_each(play_relay, drop_relay, 0);
}
END_TEST

START_TEST(test_a_relay_allocates_nothing_after_the_first_decisions)
{
    static const char *const queues[] = {"email", "stray", "webhook.acme"};
    decision self = NOTHING;
    play_relay(&self);
    allocations_start(-1);
    for (int round = 0; round < 100; round++)
        for (size_t i = 0; i < 3; i++)
            relay_one(&self, queues[i]);
    long count = allocations_count();
    ck_assert_int_eq(self.different, 0);
    ck_assert_msg(count == 0, "%ld allocations in 100 rounds", count);
    drop_relay(&self);
}
END_TEST

START_TEST(test_an_event_without_memory_is_none)
{
    long live = allocations_live();
    allocations_start(0);
    bh_event *event;
    bh_status status = bh_event_new(&event, BH_EVENT_PARKED);
    long leaked = allocations_live() - live;
    ck_assert_int_eq(status, BH_ERR_NO_MEMORY);
    ck_assert_ptr_null(event);
    ck_assert_int_eq(leaked, 0);
}
END_TEST

static void fill_event(decision *self, bh_event *event, bh_event_kind kind)
{
    TRY(self, BH_OK, bh_event_begin(event, kind));
    TRY(self, BH_OK, bh_event_set_string(event, BH_FIELD_QUEUE, bh_str("orders")));
    TRY(self, BH_OK, bh_event_set_string(event, BH_FIELD_REASON, bh_str("exhausted")));
    TRY(self, BH_OK, bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("TimeoutError")));
    TRY(self, BH_OK, bh_event_set_int(event, BH_FIELD_DURATION, 1500));
    TRY(self, BH_OK, bh_event_set_int(event, BH_FIELD_DELAY, 1500));
    TRY(self, BH_OK, bh_event_set_int(event, BH_FIELD_ATTEMPTS, 3));
}

static bh_event *event;
static bh_metrics *metrics, *sum;
static bh_log *event_log;

static void play_events(decision *self)
{
    TRY(self, BH_OK, bh_event_new(&event, BH_EVENT_RETRIED));
    TRY(self, BH_OK, bh_metrics_new(&metrics));
    TRY(self, BH_OK, bh_metrics_new(&sum));
    TRY(self, BH_OK, bh_log_new(&event_log));
    TRY(self, BH_OK, bh_metrics_add_error_type(metrics, bh_str("TimeoutError")));
    TRY(self, BH_OK, bh_metrics_set(metrics, BH_METRIC_COPIES_UNCONFIRMED, 7));
    TRY(self, BH_OK, bh_metrics_add_consumer(metrics, bh_str("orders"), 1));
    for (int kind = BH_EVENT_RETRIED; kind <= BH_EVENT_PARKED; kind++) {
        fill_event(self, event, (bh_event_kind)kind);
        TRY(self, BH_OK, bh_metrics_observe(metrics, event));
        bh_log_line(event_log, event, 0); /* without memory in fewer words */
    }
    bh_metrics_text(metrics);
}

static void drop_events(decision *self)
{
    static const char *const parts[] = {"backhop_retries_total{queue=\"orders\",error_type=\"TimeoutError\"} 1\n",
                                        "backhop_copy_duration_seconds_count 2\n"};
    TRY(self, BH_OK, bh_metrics_add(sum, metrics)); /* each event was counted once */
    for (size_t i = 0; i < 2; i++)
        self->different += strstr(bh_metrics_text(sum).data, parts[i]) == NULL;
    bh_log_free(event_log);
    bh_metrics_free(sum);
    bh_metrics_free(metrics);
    bh_event_free(event);
}

START_TEST(test_each_allocation_of_events_and_metrics_may_fail_once)
{
    fail_each(play_events, drop_events, 0);
}
END_TEST

START_TEST(test_an_event_that_is_counted_and_logged_allocates_nothing_after_the_first_ones)
{
    decision self = NOTHING;
    long count = 0;
    TRY(&self, BH_OK, bh_event_new(&event, BH_EVENT_RETRIED));
    TRY(&self, BH_OK, bh_metrics_new(&metrics));
    for (int round = 0; round < 4; round++) {
        if (round == 2)
            allocations_start(-1);
        fill_event(&self, event, BH_EVENT_RETRIED);
        TRY(&self, BH_OK, bh_metrics_observe(metrics, event));
        bh_event_line(event);
        count = allocations_count();
    }
    bh_metrics_free(metrics);
    bh_event_free(event);
    ck_assert_int_eq(self.different, 0);
    ck_assert_int_eq(count, 0);
}
END_TEST

static Suite *suite_memory(void)
{
    Suite *suite = suite_create("memory");
    TCase *tests = tcase_create("memory");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, test_each_allocation_of_a_decision_may_fail_once, 0, BH_STRATEGY_NATIVE + 1);
    tcase_add_loop_test(tests, test_a_decision_allocates_nothing_after_the_first_ones, 0, BH_STRATEGY_NATIVE + 1);
    tcase_add_loop_test(tests, test_each_allocation_of_a_copy_may_fail_once, 0, BH_STRATEGY_NATIVE + 1);
    tcase_add_loop_test(tests, test_a_copy_does_not_change_with_the_original, 0, BH_STRATEGY_NATIVE + 1);
    tcase_add_test(tests, test_a_topology_that_is_not_built_is_copied_as_such);
    tcase_add_test(tests, test_copied_settings_replace_those_before);
    tcase_add_test(tests, test_an_event_without_memory_is_none);
    tcase_add_test(tests, test_each_allocation_of_events_and_metrics_may_fail_once);
    tcase_add_test(tests, test_an_event_that_is_counted_and_logged_allocates_nothing_after_the_first_ones);
    tcase_add_test(tests, test_each_allocation_of_a_relay_may_fail_once);
    tcase_add_test(tests, test_a_relay_allocates_nothing_after_the_first_decisions);
    tcase_add_test(tests, test_each_allocation_of_declaring_may_fail_once);
    tcase_add_test(tests, test_each_allocation_of_breakers_may_fail_once);
    tcase_add_test(tests, test_a_breaker_allocates_nothing_after_it_was_made);
    tcase_add_test(tests, test_each_allocation_of_a_subscription_may_fail_once);
    tcase_add_test(tests, test_each_allocation_of_a_silence_may_fail_once);
    tcase_add_test(tests, test_each_allocation_of_calls_may_fail_once);
    tcase_add_test(tests, test_each_allocation_of_a_ledger_may_fail_once);
    tcase_add_test(tests, test_a_ledger_allocates_nothing_where_no_more_is_in_hand_than_before);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(suite_memory());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
