/* Processes that die, or leave in good order, with messages in hand: what becomes of the
 * messages. */
#include "consumer.h"
#include "setups.h"
#include "suites.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILLER "50" /* in the middle of its neighbours */

enum {
    COUNT = 101,
    PREFETCH = 100,
    INITIAL_MS = 200,
    MAX_MS = 1500,
    RESTARTS = 20,
    LOOP_MS = 30000,
    LOOP_DEATHS = 6, /* one more than the crashes after which a message waits */
    DEFAULT_INITIAL_MS = 1000,
    DEFAULT_MAX_MS = 300000
};

/* The messages that processes printed, and their number. */
typedef struct tally {
    int is_told[COUNT];
    int count;
    int doubled; /* printed again */
} tally;

/* A process that consumes, and the line that it is writing. */
typedef struct consumer {
    pid_t process;
    int output;
    char line[64];
    size_t size;
} consumer;

/* A rig for such processes: its queue has the numbers from 0 to COUNT - 1. */
static rig *rig_of_consumers(int64_t initial_ms, int64_t max_ms)
{
    rig *r = rig_new(BH_STRATEGY_LADDER, BH_QUEUE_QUORUM);
    bh_policy_free(r->policy);
    r->policy = consumer_policy(initial_ms, max_ms);
    rig_start(r);
    rig_stop_worker(r);
    broker_publish_numbers(r->broker, r->queue, COUNT);
    return r;
}

static consumer start_consumer(const rig *r, int64_t initial_ms, int64_t max_ms, const char *killer)
{
    consumer started = {.size = 0};
    int ends[2];
    char initial[24];
    char max[24];
    snprintf(initial, sizeof initial, "%lld", (long long)initial_ms);
    snprintf(max, sizeof max, "%lld", (long long)max_ms);
    ck_assert_int_eq(pipe(ends), 0);
    started.process = fork();
    if (started.process == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "test-live", "consume", broker_url(), r->ns, r->queue, initial, max, "100", killer,
              (char *)NULL);
        _exit(127);
    }
    ck_assert_int_gt(started.process, 0);
    close(ends[1]);
    started.output = ends[0];
    return started;
}

/* Reads its output within this time. Returns false if it has closed its output, as it does when it
 * ends. */
static int listen_to(consumer *self, tally *heard, int ms)
{
    char read_now[4096];
    struct pollfd ready = {.fd = self->output, .events = POLLIN};
    if (poll(&ready, 1, ms) <= 0)
        return 1;
    ssize_t size = read(self->output, read_now, sizeof read_now);
    ck_assert_int_ge(size, 0);
    for (ssize_t i = 0; i < size; i++) {
        if (read_now[i] != '\n') {
            ck_assert_uint_lt(self->size, sizeof self->line - 1);
            self->line[self->size++] = read_now[i];
            continue;
        }
        self->line[self->size] = '\0';
        self->size = 0;
        int number = atoi(self->line);
        ck_assert_int_ge(number, 0);
        ck_assert_int_lt(number, COUNT);
        heard->count += !heard->is_told[number];
        heard->is_told[number] = 1;
    }
    return size > 0;
}

/* How the process ended: its exit code, or the signal's number and 128. */
static int end_of(consumer *self, tally *heard)
{
    int status = -1;
    int64_t limit = now_ms() + LIMIT_MS;
    while (listen_to(self, heard, 100))
        ck_assert_msg(now_ms() < limit, "the process has not ended");
    close(self->output);
    ck_assert_int_eq(waitpid(self->process, &status, 0), self->process);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Finds which messages a queue has, and keeps them until the connection ends. */
static void find_all(const rig *r, const char *queue, tally *there)
{
    message found;
    while (broker_try_get(r->broker, queue, &found)) {
        char digits[16] = "";
        ck_assert_uint_lt(found.body.size, sizeof digits);
        memcpy(digits, found.body.data, found.body.size);
        int number = atoi(digits);
        there->count += !there->is_told[number];
        there->doubled += there->is_told[number];
        there->is_told[number] = 1;
        message_free(&found);
    }
}

/* Waits until the process has printed so many messages. */
static void await_told(consumer *self, tally *heard, int count)
{
    int64_t limit = now_ms() + LIMIT_MS;
    while (heard->count < count) {
        ck_assert_msg(now_ms() < limit, "%d of %d messages", heard->count, count);
        ck_assert_msg(listen_to(self, heard, 100), "the process ended after %d of %d messages", heard->count, count);
    }
}

static void stop_in_order(consumer *self, tally *heard)
{
    kill(self->process, SIGTERM);
    ck_assert_int_eq(end_of(self, heard), EXIT_SUCCESS);
}

START_TEST(twenty_orderly_restarts_with_all_prefetched_park_nothing)
{
    rig *r = rig_of_consumers(INITIAL_MS, MAX_MS);
    for (int i = 0; i < RESTARTS; i++) {
        tally in_hand = {.count = 0};
        consumer holds = start_consumer(r, INITIAL_MS, MAX_MS, "");
        await_told(&holds, &in_hand, PREFETCH);
        stop_in_order(&holds, &in_hand);
    }
    tally handled = {.count = 0};
    consumer handles = start_consumer(r, INITIAL_MS, MAX_MS, "none");
    await_told(&handles, &handled, COUNT);
    stop_in_order(&handles, &handled);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);
    rig_free(r);
}
END_TEST

START_TEST(a_message_that_kills_its_process_ends_parked_alone_and_every_other_is_handled)
{
    enum { MOST_DEATHS = 60 };
    tally handled = {.count = 0};
    int deaths = 0;
    int is_over = 0;
    rig *r = rig_of_consumers(INITIAL_MS, MAX_MS);
    while (!is_over) {
        consumer dies = start_consumer(r, INITIAL_MS, MAX_MS, KILLER);
        int64_t limit = now_ms() + LIMIT_MS;
        while (!is_over && listen_to(&dies, &handled, 100)) {
            ck_assert_msg(now_ms() < limit, "%d handled, %d deaths, and no more happens", handled.count, deaths);
            is_over = handled.count == COUNT - 1 && broker_depth(r->broker, r->parked) > 0;
        }
        if (is_over)
            kill(dies.process, SIGTERM);
        ck_assert_int_eq(end_of(&dies, &handled), is_over ? EXIT_SUCCESS : 128 + SIGKILL);
        deaths += !is_over;
        ck_assert_msg(deaths < MOST_DEATHS, "%d deaths, %d handled", deaths, handled.count);
    }
    ck_assert(!handled.is_told[atoi(KILLER)]);
    broker_await_depth(r->broker, r->parked, 1);
    message parked;
    broker_get(r->broker, r->parked, &parked);
    expect_bytes(parked.body, KILLER);
    expect_bytes(message_string(&parked, "backhop-parked"), "poison");
    ck_assert_int_eq(message_int(&parked, "backhop-attempts"), 0);
    ck_assert_int_eq(message_int(&parked, "backhop-crashes"), 21);
    expect_part(message_string(&parked, "backhop-error"), "its consumer was lost, or gave it back, 21 times");
    message_free(&parked);
    rig_free(r);
}
END_TEST

/* It loops for LOOP_MS, and longer on a machine on which fewer processes die in that time. */
START_TEST(a_deploy_that_crash_loops_parks_nothing)
{
    int deaths = 0;
    rig *r = rig_of_consumers(DEFAULT_INITIAL_MS, DEFAULT_MAX_MS);
    int64_t end = now_ms() + LOOP_MS;
    while (now_ms() < end || deaths < LOOP_DEATHS) {
        tally none = {.count = 0};
        consumer dies = start_consumer(r, DEFAULT_INITIAL_MS, DEFAULT_MAX_MS, "*");
        int is_alive = 1;
        while (is_alive && (now_ms() < end || deaths < LOOP_DEATHS))
            is_alive = listen_to(&dies, &none, 100);
        if (is_alive) /* most of the time no message is there to die of */
            kill(dies.process, SIGKILL);
        ck_assert_int_eq(end_of(&dies, &none), 128 + SIGKILL);
        deaths += !is_alive;
    }
    tally there = {.count = 0};
    int64_t limit = now_ms() + LIMIT_MS;
    while (there.count < COUNT) {
        ck_assert_msg(now_ms() < limit, "%d of %d messages are there", there.count, COUNT);
        find_all(r, r->queue, &there);
        for (size_t i = 0; i < rung_count(r->topology); i++)
            find_all(r, rig_rung(r, rung_ms(r->topology, i)), &there);
        pause_ms(100);
    }
    printf("a crash loop: %d deaths, %d duplicates\n", deaths, there.doubled);
    fflush(stdout);
    ck_assert_int_le(there.doubled, deaths + 1); /* the last process may have been killed in the middle */
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);
    rig_free(r);
}
END_TEST

Suite *suite_crashes(void)
{
    Suite *suite = suite_create("crashes");
    if (!broker_is_at_least(3, 10)) /* quorum queues, on which a rung can stand */
        return suite;
    tcase_add_test(long_case(add_case(suite, "restarts")), twenty_orderly_restarts_with_all_prefetched_park_nothing);
    tcase_add_test(long_case(add_case(suite, "a killer")),
                   a_message_that_kills_its_process_ends_parked_alone_and_every_other_is_handled);
    tcase_add_test(longest_case(add_case(suite, "a crash loop")), a_deploy_that_crash_loops_parks_nothing);
    return suite;
}
