/*
 * Soak: 50,000 messages are retried while the broker is killed and started ten times. Each fails
 * once or twice and then succeeds. None may be lost, and no more may come twice than were in flight
 * at the kills. It needs a private broker, by BACKHOP_BROKER_CTL.
 */
#include "trouble.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MESSAGES = 50000,
    KILLS = 10,
    AHEAD = 500,
    RUNGS = 2,
    HOP = 32, /* that a quorum queue dead-letters at a time: dead_letter_worker_consumer_prefetch */
    MOST_IN_FLIGHT = KILLS * (AHEAD + RUNGS * HOP), /* not acknowledged, or on the way from a rung to the work queue */
    LIMIT_S = 3000,
    /* Without a message. After a crash a wait queue sends its unconfirmed messages again after 180
     * s. Messages that it sent just after its timer began come at the next turn, after 360 s. HOP
     * of them hold up all others meanwhile. */
    PATIENCE_MS = 480000,
    SILENCE_MS = 2000, /* then no more is in flight */
};

static struct {
    atomic_int done; /* messages that have succeeded */
    int successes[MESSAGES];
    int calls;
    int disconnections;
    char last_event[256];
} soak;

/* Kills the broker each time that another eleventh is done. */
static void *kill_often(void *data)
{
    (void)data;
    for (int i = 1; i <= KILLS; i++) {
        while (soak.done < i * (MESSAGES / (KILLS + 1)))
            pause_ms(1);
        broker_ctl("kill");
        broker_ctl("start");
    }
    return NULL;
}

/* Those with an odd number fail twice, the others once. */
static void handle(bh_worker *worker, bh_message *taken)
{
    int number = atoi(bh_message_body(taken).data);
    int64_t attempt = bh_worker_attempt(worker, taken);
    ck_assert(number >= 0 && number < MESSAGES);
    bh_outcome outcome = attempt <= 1 + number % 2 ? BH_OUTCOME_FAILED : BH_OUTCOME_OK;
    soak.calls++;
    if (outcome == BH_OUTCOME_OK && soak.successes[number]++ == 0)
        soak.done++;
    expect_ok(worker, settle_as(worker, taken, outcome, "507 queue is full", 0));
}

static void note_events(bh_worker *worker)
{
    bh_event *event;
    while (bh_worker_take_event(worker, &event) == BH_OK) {
        bh_event_kind kind = bh_event_what(event);
        ck_assert_msg(kind != BH_EVENT_PARKED && kind != BH_EVENT_REFUSED && kind != BH_EVENT_MISSED, "%s: %s",
                      bh_event_name(kind).data, bh_event_text(event).data);
        soak.disconnections += kind == BH_EVENT_DISCONNECTED;
        snprintf(soak.last_event, sizeof soak.last_event, "%s", bh_event_line(event).data);
        bh_event_free(event);
    }
}

/* Handles the next message. Returns 0 if none came within this time. */
static int handle_next(bh_worker *worker, int64_t ms)
{
    bh_message *taken = NULL;
    int came = bh_worker_take(worker, &taken, ms) == BH_OK;
    if (came)
        handle(worker, taken);
    bh_message_free(taken);
    note_events(worker);
    return came;
}

/* Fails with what the worker and the broker have of the messages that do not come. */
static void fail_without_messages(rig *r)
{
    broker_reopen(r->broker);
    ck_abort_msg("%d of %d messages succeeded, and no more come; %lld copies are unconfirmed; ready are %d in the work "
                 "queue, %d and %d in the wait queues; last event: %s",
                 soak.done, MESSAGES, (long long)bh_worker_copies(r->worker), broker_depth(r->broker, r->queue),
                 broker_depth(r->broker, rig_rung(r, 100)), broker_depth(r->broker, rig_rung(r, 200)), soak.last_event);
}

static void handle_all(rig *r)
{
    int64_t limit = now_ms() + PATIENCE_MS;
    while (soak.done < MESSAGES) {
        if (handle_next(r->worker, 100))
            limit = now_ms() + PATIENCE_MS;
        if (now_ms() >= limit)
            fail_without_messages(r);
    }
}

/* Messages that are ready, anywhere. */
static int count_left(rig *r)
{
    return broker_depth(r->broker, r->queue) + broker_depth(r->broker, rig_rung(r, 100)) +
           broker_depth(r->broker, rig_rung(r, 200));
}

static rig *start(void)
{
    rig *r = rig_new(BH_STRATEGY_LADDER, BH_QUEUE_QUORUM);
    policy_set_kind(r->policy, BH_KIND_EXPONENTIAL);
    policy_set_initial_ms(r->policy, 100);
    policy_set_max_crashes(r->policy, 0); /* kills are no fault of the messages in hand */
    rig_in_a_hurry(r);
    rig_set(r, prefetch, AHEAD);
    rig_set(r, emits[BH_EVENT_RETRIED], 0);
    rig_start(r);
    broker_ctl("save"); /* RabbitMQ forgets a queue that is not on its saved list when it is killed */
    broker_publish_numbers(r->broker, r->queue, MESSAGES);
    return r;
}

static int count_duplicates(void)
{
    int duplicates = 0;
    for (int i = 0; i < MESSAGES; i++)
        duplicates += soak.successes[i] - 1;
    return duplicates;
}

START_TEST(messages_go_round_while_the_broker_is_killed_ten_times)
{
    pthread_t killer;
    int64_t begun = now_ms();
    rig *r = start();
    ck_assert_int_eq(pthread_create(&killer, NULL, kill_often, NULL), 0);
    handle_all(r);
    pthread_join(killer, NULL);
    broker_reopen(r->broker);
    while (handle_next(r->worker, SILENCE_MS) || count_left(r) > 0)
        continue;
    expect_ok(r->worker, bh_worker_stop(r->worker, LIMIT_MS));
    expect_event(r, BH_EVENT_DRAINED, BH_OK, "");
    ck_assert_int_eq(count_left(r), 0);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);
    ck_assert_int_ge(soak.disconnections, KILLS);
    int duplicates = count_duplicates();
    printf(
        "%d messages handled %d times in %lld s, %d kills: %d duplicates; up to %d could be in flight at the kills\n",
        MESSAGES, soak.calls, (long long)(now_ms() - begun) / 1000, KILLS, duplicates, MOST_IN_FLIGHT);
    fflush(stdout);
    ck_assert_int_le(duplicates, MOST_IN_FLIGHT);
    rig_free(r);
}
END_TEST

int main(void)
{
    if (!broker_probe() || !broker_can_be_controlled()) {
        fprintf(stderr, "it needs a broker that can be killed: tests/broker/broker run 4.3 -- soak\n");
        return EXIT_FAILURE;
    }
    Suite *suite = suite_create("soak");
    TCase *kills = tcase_create("kills");
    tcase_set_timeout(kills, LIMIT_S);
    tcase_add_test(kills, messages_go_round_while_the_broker_is_killed_ten_times);
    suite_add_tcase(suite, kills);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
