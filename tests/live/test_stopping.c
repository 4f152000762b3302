#include "suites.h"
#include "trouble.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 10, AHEAD = 5 };

/* A worker that is connected, with `AHEAD` of `COUNT` messages sent ahead to it. */
static rig *busy_rig(void)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    rig_set(r, prefetch, AHEAD);
    rig_start(r);
    broker_publish_numbers(r->broker, r->queue, COUNT);
    broker_await_depth(r->broker, r->queue, COUNT - AHEAD);
    return r;
}

static bh_message *take(rig *r)
{
    bh_message *taken = NULL;
    expect_ok(r->worker, bh_worker_take(r->worker, &taken, LIMIT_MS));
    return taken;
}

static void expect_no_more(rig *r)
{
    bh_message *none = NULL;
    expect_status(r->worker, bh_worker_take(r->worker, &none, 0), BH_ERR_STATE);
}

START_TEST(draining_lets_what_was_taken_be_settled_and_gives_the_rest_back)
{
    rig *r = busy_rig();
    bh_message *first = take(r), *second = take(r);
    expect_ok(r->worker, bh_worker_stop(r->worker, HOUR_MS));
    expect_no_more(r);
    broker_await_depth(r->broker, r->queue, COUNT - 2);
    expect_no_event(r, BH_EVENT_DRAINED);
    expect_ok(r->worker, settle_as(r->worker, first, BH_OUTCOME_OK, "", 0));
    expect_ok(r->worker, settle_as(r->worker, second, BH_OUTCOME_FAILED, "507", 0));
    rig_await(r, BH_EVENT_RETRIED);
    expect_event(r, BH_EVENT_DRAINED, BH_OK, "");
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 0);
    expect_no_more(r);
    broker_await_depth(r->broker, r->queue, COUNT - 2);
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), 1);
    expect_no_event(r, BH_EVENT_DISCONNECTED);
    expect_no_event(r, BH_EVENT_UNAVAILABLE);
    bh_message_free(first);
    bh_message_free(second);
    rig_free(r);
}
END_TEST

START_TEST(a_limit_that_runs_out_is_told_and_gives_back_what_was_taken)
{
    enum { LIMIT = 2000 };
    rig *r = busy_rig();
    bh_message *first = take(r), *second = take(r), *third = take(r);
    int64_t start = now_ms();
    expect_ok(r->worker, bh_worker_stop(r->worker, LIMIT));
    expect_ok(r->worker, settle_as(r->worker, first, BH_OUTCOME_OK, "", 0));
    expect_event(r, BH_EVENT_DRAINED, BH_ERR_TIMEOUT, "");
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 2);
    expect_waited(start, LIMIT);
    expect_status(r->worker, settle_as(r->worker, second, BH_OUTCOME_OK, "", 0), BH_ERR_STATE);
    expect_status(r->worker, settle_as(r->worker, third, BH_OUTCOME_FAILED, "", 0), BH_ERR_STATE);
    broker_await_depth(r->broker, r->queue, COUNT - 1);
    ck_assert_int_eq(broker_depth(r->broker, rig_rung(r, WAITING_MS)), 0);
    bh_message_free(first);
    bh_message_free(second);
    bh_message_free(third);
    rig_free(r);
}
END_TEST

START_TEST(a_limit_of_zero_stops_at_once_and_what_was_settled_is_settled)
{
    rig *r = busy_rig();
    bh_message *first = take(r), *second = take(r);
    expect_ok(r->worker, settle_as(r->worker, first, BH_OUTCOME_OK, "", 0));
    expect_ok(r->worker, bh_worker_stop(r->worker, 0));
    rig_await(r, BH_EVENT_DRAINED);
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 1);
    broker_await_depth(r->broker, r->queue, COUNT - 1);
    bh_message_free(first);
    bh_message_free(second);
    rig_free(r);
}
END_TEST

START_TEST(a_second_stop_sets_the_limit_anew)
{
    rig *r = busy_rig();
    bh_message *taken = take(r);
    expect_status(r->worker, bh_worker_stop(r->worker, -1), BH_ERR_ARGUMENT);
    expect_status(r->worker, bh_worker_stop(r->worker, HOUR_MS + 1), BH_ERR_ARGUMENT);
    expect_ok(r->worker, bh_worker_stop(r->worker, HOUR_MS));
    expect_no_more(r);
    broker_await_depth(r->broker, r->queue, COUNT - 1);
    expect_no_event(r, BH_EVENT_DRAINED);
    expect_ok(r->worker, bh_worker_stop(r->worker, 0));
    expect_event(r, BH_EVENT_DRAINED, BH_ERR_TIMEOUT, "");
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 1);
    expect_ok(r->worker, bh_worker_stop(r->worker, 0));
    broker_await_depth(r->broker, r->queue, COUNT);
    expect_no_event(r, BH_EVENT_DRAINED);
    bh_message_free(taken);
    rig_free(r);
}
END_TEST

START_TEST(a_worker_can_be_started_again_once_it_has_drained)
{
    rig *r = busy_rig();
    for (int round = 0; round < 3; round++) {
        rig_take(r, NULL);
        rig_succeed(r);
        expect_ok(r->worker, bh_worker_stop(r->worker, LIMIT_MS));
        expect_event(r, BH_EVENT_DRAINED, BH_OK, "");
        broker_await_depth(r->broker, r->queue, COUNT - 1 - round);
        expect_ok(r->worker, bh_worker_start(r->worker));
        rig_await(r, BH_EVENT_CONNECTED);
    }
    bh_message *earlier = take(r);
    expect_ok(r->worker, bh_worker_stop(r->worker, 0));
    rig_await(r, BH_EVENT_DRAINED);
    expect_ok(r->worker, bh_worker_start(r->worker));
    rig_await(r, BH_EVENT_CONNECTED);
    expect_ok(r->worker, settle_as(r->worker, earlier, BH_OUTCOME_OK, "", 0));
    rig_await(r, BH_EVENT_STALE);
    bh_message_free(earlier);
    tally seen = {.count = COUNT};
    for (int i = 3; i < COUNT; i++) {
        rig_take(r, NULL);
        tally_add(&seen, bh_message_body(r->message));
        rig_succeed(r);
    }
    ck_assert_int_eq(tally_distinct(&seen), COUNT - 3);
    ck_assert_int_eq(tally_duplicates(&seen), 0);
    rig_expect_silence(r, 100);
    rig_free(r);
}
END_TEST

START_TEST(a_stop_before_the_start_is_not_lost)
{
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    expect_ok(r->worker, bh_worker_stop(r->worker, 0));
    expect_no_event(r, BH_EVENT_DRAINED);
    start_by(r, broker_url());
    expect_event(r, BH_EVENT_DRAINED, BH_OK, "");
    expect_no_event(r, BH_EVENT_CONNECTED);
    expect_ok(r->worker, bh_worker_start(r->worker));
    rig_await(r, BH_EVENT_CONNECTED);
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(a_worker_that_cannot_connect_stops_before_its_limit)
{
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    rig_set_timeouts(r, HOUR_MS, HOUR_MS);
    proxy *network = proxy_open("127.0.0.1", broker_port(0));
    char url[4096];
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(network));
    proxy_hold_broker(network, PROXY_ALL);
    for (int i = 0; i < 2; i++) { /* while it waits for an answer; while it waits for the next attempt */
        if (i == 0)
            start_by(r, url);
        else
            expect_ok(r->worker, bh_worker_start(r->worker));
        if (i == 1)
            rig_await(r, BH_EVENT_UNAVAILABLE);
        expect_ok(r->worker, bh_worker_stop(r->worker, HOUR_MS));
        expect_event(r, BH_EVENT_DRAINED, BH_OK, "");
        if (i == 0)
            proxy_close(network);
    }
    rig_free(r);
}
END_TEST

START_TEST(a_worker_that_has_lost_its_connection_stops_before_its_limit)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    proxy *network = start_by_proxy(r, "");
    rig_publish_and_take(r);
    proxy_close(network);
    rig_await(r, BH_EVENT_DISCONNECTED);
    rig_await(r, BH_EVENT_UNAVAILABLE);
    expect_ok(r->worker, bh_worker_stop(r->worker, HOUR_MS));
    rig_await(r, BH_EVENT_DRAINED);
    broker_await_depth(r->broker, r->queue, 1);
    rig_free(r);
}
END_TEST

START_TEST(a_copy_whose_connection_is_lost_while_draining_goes_over_the_next)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    proxy *network = start_by_proxy(r, "");
    rig_publish_and_take(r);
    expect_ok(r->worker, bh_worker_stop(r->worker, LIMIT_MS));
    proxy_cut_to_broker(network, PROXY_PUBLISHER, 1);
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    rig_await(r, BH_EVENT_DISCONNECTED);
    rig_await(r, BH_EVENT_RETRIED);
    expect_event(r, BH_EVENT_DRAINED, BH_OK, "");
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), 1);
    rig_free(r);
    proxy_close(network);
}
END_TEST

/* ---------------------------------------------------------------------------------------- forks */

/* Checks the child's results of each call. Returns 0 if all are as they should be, else which one
 * is not. */
static int misbehaves_in_child(rig *r)
{
    bh_message *taken = NULL;
    bh_event *event = NULL;
    const bh_status got[] = {
        bh_worker_take(r->worker, &taken, 0),
        bh_worker_take(r->worker, &taken, 60000),
        bh_worker_take_event(r->worker, &event),
        settle_as(r->worker, r->message, BH_OUTCOME_OK, "", 0),
        bh_worker_read(r->worker, r->message, r->delivery, r->history),
        bh_worker_replay(r->worker, 1),
        bh_worker_start(r->worker),
        bh_worker_set(r->worker, &r->settings),
        bh_worker_add_uri(r->worker, bh_str(broker_url())),
        bh_worker_stop(r->worker, 0),
    };
    for (int i = 0; i < (int)(sizeof got / sizeof got[0]); i++)
        if (got[i] != BH_ERR_FORKED)
            return i + 1;
    if (bh_worker_attempt(r->worker, r->message) != 0)
        return 50;
    bh_worker_free(r->worker);
    bh_message_free(r->message);
    return 0;
}

static int status_of_child(pid_t child)
{
    int status = -1;
    ck_assert_int_ne(child, -1);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

START_TEST(a_child_can_only_free_the_worker_and_leaves_the_parents_alone)
{
    rig *r = busy_rig();
    rig_take(r, "0");
    pid_t child = fork();
    if (child == 0)
        _exit(misbehaves_in_child(r));
    ck_assert_int_eq(status_of_child(child), 0);
    rig_fail(r, "507");
    for (int i = 1; i < COUNT; i++) {
        rig_take(r, NULL);
        ck_assert(!bh_message_redelivered(r->message));
        rig_succeed(r);
    }
    rig_expect_silence(r, 100);
    expect_no_event(r, BH_EVENT_DISCONNECTED);
    expect_no_event(r, BH_EVENT_STALE);
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), 1);
    rig_free(r);
}
END_TEST

/* Frees the parent's worker, and settles one message by a worker of its own. */
static int work_in_child(rig *r)
{
    bh_worker_free(r->worker);
    bh_message *taken = NULL;
    if (bh_worker_new(&r->worker, r->policy, r->topology) != BH_OK)
        return 1;
    if (bh_worker_add_uri(r->worker, bh_str(broker_url())) != BH_OK || bh_worker_start(r->worker) != BH_OK)
        return 2;
    if (bh_worker_take(r->worker, &taken, LIMIT_MS) != BH_OK)
        return 3;
    if (settle_as(r->worker, taken, BH_OUTCOME_OK, "", 0) != BH_OK)
        return 4;
    bh_message_free(taken);
    bh_worker_free(r->worker);
    return 0;
}

START_TEST(a_child_can_have_a_worker_of_its_own)
{
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    rig_set(r, prefetch, 1);
    rig_start(r);
    rig_publish_and_take(r);
    rig_publish(r, "work.a", "second");
    pid_t child = fork();
    if (child == 0)
        _exit(work_in_child(r));
    ck_assert_int_eq(status_of_child(child), 0);
    rig_succeed(r);
    rig_expect_silence(r, 100);
    expect_no_event(r, BH_EVENT_DISCONNECTED);
    rig_free_with_nothing_ready(r);
}
END_TEST

START_TEST(a_worker_made_before_a_fork_works_on_in_the_parent_that_forks_often)
{
    rig *r = rig_in_a_hurry(setup_rig(setup_first()));
    rig_start(r);
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        ck_assert_int_eq(status_of_child(child), 0);
        rig_publish(r, "work.a", "first");
        rig_take(r, "first");
        rig_succeed(r);
    }
    rig_free(r);
}
END_TEST

Suite *suite_stopping(void)
{
    Suite *suite = suite_create("stopping");
    TCase *draining = add_case(suite, "draining");
    tcase_add_test(draining, draining_lets_what_was_taken_be_settled_and_gives_the_rest_back);
    tcase_add_test(draining, a_limit_of_zero_stops_at_once_and_what_was_settled_is_settled);
    tcase_add_test(draining, a_second_stop_sets_the_limit_anew);
    tcase_add_test(draining, a_worker_can_be_started_again_once_it_has_drained);
    tcase_add_test(draining, a_stop_before_the_start_is_not_lost);
    tcase_add_test(draining, a_worker_that_cannot_connect_stops_before_its_limit);
    tcase_add_test(draining, a_worker_that_has_lost_its_connection_stops_before_its_limit);
    tcase_add_test(draining, a_copy_whose_connection_is_lost_while_draining_goes_over_the_next);
    tcase_add_test(long_case(add_case(suite, "a limit that runs out")),
                   a_limit_that_runs_out_is_told_and_gives_back_what_was_taken);
    TCase *forks = add_case(suite, "forks");
    tcase_add_test(forks, a_child_can_only_free_the_worker_and_leaves_the_parents_alone);
    tcase_add_test(forks, a_worker_made_before_a_fork_works_on_in_the_parent_that_forks_often);
    TCase *threads = add_case(suite, "threads in a child");
    tcase_set_tags(threads, "no-tsan"); /* which does not support them: CK_EXCLUDE_TAGS=no-tsan */
    tcase_add_test(threads, a_child_can_have_a_worker_of_its_own);
    return suite;
}
