/* A worker whose process is killed in each state of its breaker: no message is lost. */
#include "suites.h"
#include "trouble.h"

#include <backhop/breaker.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AT_HAND = 8, PAUSE_MS = 200 };

/* The state of a breaker, with the messages in hand. */
typedef enum ending {
    CLOSED,  /* a message that its handler has */
    OPEN,    /* held messages; one message failed */
    PROBING, /* a message that probes; one message failed */
    RAMPING, /* a message that its handler has, after one that failed and one that succeeded */
    ENDINGS
} ending;

static bh_breaker *make_breaker_for(ending state)
{
    return quick_breaker(1, state == OPEN ? 600000 : PAUSE_MS);
}

/* Waits for a message, and for events meanwhile. */
static bh_message *take_one(bh_worker *worker)
{
    bh_message *taken = NULL;
    bh_event *event;
    while (bh_worker_take(worker, &taken, 100) != BH_OK)
        while (bh_worker_take_event(worker, &event) == BH_OK)
            bh_event_free(event);
    return taken;
}

static void settle_one(bh_worker *worker, bh_outcome outcome)
{
    bh_message *taken = take_one(worker);
    expect_ok(worker, bh_worker_settle(worker, taken, &(bh_settlement){.outcome = outcome}));
    bh_message_free(taken);
}

static void await_state(bh_breaker *breaker, bh_breaker_state state)
{
    bh_breaker_view view = {.state = BH_BREAKER_DISABLED};
    for (int64_t end = now_ms() + LIMIT_MS; view.state != state && now_ms() < end; pause_ms(1))
        bh_breaker_read(breaker, bh_str(""), now_ms(), &view);
    ck_assert_int_eq(view.state, state);
}

/* Leads a worker and its breaker to a state. Returns the message in hand; NULL if there is none. */
static bh_message *lead_to(ending state, bh_worker *worker, bh_breaker *breaker)
{
    if (state != CLOSED) {
        settle_one(worker, BH_OUTCOME_FAILED);
        await_state(breaker, BH_BREAKER_OPEN);
    }
    if (state == OPEN)
        return NULL;
    if (state == RAMPING) {
        settle_one(worker, BH_OUTCOME_OK);
        await_state(breaker, BH_BREAKER_CLOSED);
    }
    bh_message *taken = take_one(worker);
    if (state == PROBING)
        await_state(breaker, BH_BREAKER_HALF_OPEN);
    return taken;
}

/* Handles the other messages. succeeded, failed: how many attempts did so before. */
static void expect_all_handled(rig *r, int succeeded, int failed)
{
    tally handled = {.count = AT_HAND};
    int retries = 0;
    while (rig_try_take(r, tally_distinct(&handled) < AT_HAND - succeeded ? LIMIT_MS : 500)) {
        tally_add(&handled, bh_message_body(r->message));
        retries += (int)bh_worker_attempt(r->worker, r->message) - 1;
        rig_succeed(r);
    }
    ck_assert_int_ge(tally_distinct(&handled), AT_HAND - succeeded);
    ck_assert_int_eq(tally_duplicates(&handled), 0);
    ck_assert_int_le(retries, failed);
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);
}

/* The process that is killed: reports when its breaker is in the state, and then waits. It leaves
 * the rig's connection to the process that forked it. */
_Noreturn static void consume_until_killed(rig *r, ending state, int report)
{
    bh_breaker *breaker = make_breaker_for(state);
    rig_make_worker(r);
    rig_set(r, mode, BH_MODE_NONE);
    rig_set(r, breaker, breaker);
    rig_connect(r);
    lead_to(state, r->worker, breaker);
    rig_await_read(r);
    if (write(report, "x", 1) == 1)
        pause();
    _exit(EXIT_FAILURE);
}

START_TEST(a_process_that_is_killed_in_each_state_loses_nothing)
{
    ending state = (ending)_i;
    rig *r = setup_rig(setup_first());
    rig_start(r);
    rig_stop_worker(r);
    broker_publish_numbers(r->broker, r->queue, AT_HAND);
    int ends[2], status;
    char reported;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t process = fork();
    ck_assert_int_ge(process, 0);
    if (process == 0)
        consume_until_killed(r, state, ends[1]);
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], &reported, 1), 1);
    close(ends[0]);
    ck_assert_int_eq(kill(process, SIGKILL), 0);
    ck_assert_int_eq(waitpid(process, &status, 0), process);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    rig_make_worker(r);
    rig_connect(r);
    expect_all_handled(r, state == RAMPING, state != CLOSED);
    rig_free(r);
}
END_TEST

Suite *suite_breaker_ends(void)
{
    Suite *suite = suite_create("breaker_ends");
    tcase_add_loop_test(add_case(suite, "killed"), a_process_that_is_killed_in_each_state_loses_nothing, 0, ENDINGS);
    return suite;
}
