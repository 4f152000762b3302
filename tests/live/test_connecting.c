#include "suites.h"
#include "trouble.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rig *unconnected_rig(void)
{
    return rig_in_a_hurry(setup_rig(setup_first()));
}

/* The worker can do its work. */
static void expect_at_work(rig *r)
{
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    rig_fail(r, "507");
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_succeed(r);
}

/* Expects another worker at work, by the broker's own URL, after a worker that could not
 * connect. */
static void expect_another_at_work(rig *r)
{
    rig_restart(r, BH_MODE_CREATE);
    expect_at_work(r);
}

static void make_url(char *url, size_t size, const char *options)
{
    broker_make_url(url, size, NULL, NULL, NULL, 0);
    snprintf(url + strlen(url), size - strlen(url), "%s", options);
}

START_TEST(a_worker_connects_and_says_so)
{
    rig *r = unconnected_rig();
    expect_no_event(r, BH_EVENT_CONNECTED);
    start_by(r, broker_url());
    expect_event(r, BH_EVENT_CONNECTED, BH_OK, "");
    expect_at_work(r);
    expect_no_event(r, BH_EVENT_CONNECTED);
    expect_no_event(r, BH_EVENT_UNAVAILABLE);
    rig_free(r);
}
END_TEST

START_TEST(a_url_without_heartbeats_and_one_with_many_work)
{
    static const char *const options[] = {"?heartbeat=0", "?heartbeat=3", "?heartbeat=65535"};
    rig *r = unconnected_rig();
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        char url[4096];
        make_url(url, sizeof url, options[i]);
        rig_stop_worker(r);
        rig_make_worker(r);
        rig_connect_by(r, url);
        expect_at_work(r);
    }
    rig_free(r);
}
END_TEST

START_TEST(heartbeats_keep_a_connection_while_a_handler_works)
{
    enum { LONG_MS = 8000 }; /* RabbitMQ closes after six seconds without a heartbeat */
    rig *r = unconnected_rig();
    char url[4096];
    make_url(url, sizeof url, "?heartbeat=3");
    rig_connect_by(r, url);
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    rig_expect_silence(r, LONG_MS);
    rig_fail(r, "507");
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_succeed(r);
    expect_at_work(r);
    expect_no_event(r, BH_EVENT_DISCONNECTED);
    expect_no_event(r, BH_EVENT_STALE);
    rig_free(r);
}
END_TEST

/* ------------------------------------------------------------------------------------- refusals */

START_TEST(a_wrong_password_is_refused_and_not_told)
{
    char url[4096];
    rig *r = unconnected_rig();
    broker_make_url(url, sizeof url, NULL, "very%2Fsecret%20word", NULL, 0);
    start_by(r, url);
    for (int i = 0; i < 2; i++) { /* the worker goes on trying */
        expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_ACCESS, "password");
        ck_assert(!holds(bh_event_text(r->event), "secret"));
        ck_assert(!holds(bh_worker_error(r->worker), "secret"));
    }
    expect_no_event(r, BH_EVENT_CONNECTED);
    rig_expect_silence(r, 0);
    expect_another_at_work(r);
    rig_free(r);
}
END_TEST

static void remove_escaped(void)
{
    broker_delete_vhost("live/a%b:c@d");
    broker_delete_user("live@:/?#[]%");
}

START_TEST(user_password_and_vhost_may_need_escapes)
{
    char url[4096];
    rig *r = unconnected_rig();
    broker_add_vhost("live/a%b:c@d");
    broker_add_user("live@:/?#[]%", "p@:/?#[]%", "live/a%b:c@d", ".*");
    snprintf(
        url, sizeof url,
        "amqp://live%%40%%3A%%2f%%3F%%23%%5B%%5D%%25:p%%40%%3A%%2f%%3F%%23%%5B%%5D%%25@%s:%d/live%%2Fa%%25b:c%%40d",
        broker_host(), broker_port(0));
    rig_connect_by(r, url);
    rig_stop_worker(r);
    ck_assert(!broker_has_queue(r->broker, r->queue));
    rig_free(r);
}
END_TEST

START_TEST(W8_credentials_that_change_are_for_the_next_login)
{
    char url[4096];
    rig *r = unconnected_rig();
    broker_add_vhost("live/a%b:c@d");
    broker_add_user("live@:/?#[]%", "p@:/?#[]%", "live/a%b:c@d", ".*");
    snprintf(url, sizeof url, "amqp://old:secret@%s:%d/live%%2Fa%%25b:c%%40d", broker_host(), broker_port(0));
    expect_status(r->worker, bh_worker_set_credentials(r->worker, bh_str("live@:/?#[]%"), bh_str("old")), BH_OK);
    start_by(r, url);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_ACCESS, "user live@:/?#[]%");
    ck_assert_int_eq(bh_worker_set_credentials(r->worker, bh_str("live@:/?#[]%"), bh_str("p@:/?#[]%")), BH_OK);
    expect_event(r, BH_EVENT_CONNECTED, BH_OK, "as live@:/?#[]%");
    ck_assert_int_eq(bh_worker_set_credentials(r->worker, bh_str(""), bh_str("x")), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_worker_set_credentials(r->worker, bh_str("x"), (bh_bytes){"a\0b", 3}), BH_ERR_ARGUMENT);
    rig_free(r);
}
END_TEST

START_TEST(a_broker_that_says_nothing_is_given_up)
{
    enum { TIMEOUT = 500 };
    char url[4096];
    rig *r = unconnected_rig();
    proxy *network = proxy_open("127.0.0.1", broker_port(0));
    proxy_hold_broker(network, PROXY_ALL);
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(network));
    rig_set_timeouts(r, TIMEOUT, 30000);
    int64_t start = now_ms();
    start_by(r, url);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_CONNECTION, "");
    expect_waited(start, TIMEOUT);
    proxy_hold_broker(network, PROXY_NONE);
    rig_await(r, BH_EVENT_CONNECTED);
    expect_at_work(r);
    rig_free(r);
    proxy_close(network);
}
END_TEST

START_TEST(a_name_service_that_does_not_answer_is_given_up)
{
    enum { TIMEOUT = 500 };
    char url[4096];
    rig *r = unconnected_rig();
    broker_make_url(url, sizeof url, NULL, NULL, UNANSWERED_HOST, 0);
    rig_set_timeouts(r, TIMEOUT, 30000);
    expect_ok(r->worker, bh_worker_add_uri(r->worker, bh_str(url)));
    int64_t start = now_ms();
    start_by(r, broker_url());
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_CONNECTION,
                 "name service did not return the address of " UNANSWERED_HOST);
    expect_waited(start, TIMEOUT);
    rig_await(r, BH_EVENT_CONNECTED);
    expect_at_work(r);
    rig_free(r);
}
END_TEST

/* ------------------------------------------------------------------------------------------ TLS */

START_TEST(tls_is_verified_with_the_ca)
{
    rig *r = unconnected_rig();
    rig_set(r, ca_file, bh_str(broker_ca_file()));
    rig_connect_by(r, broker_tls_url());
    expect_at_work(r);
    rig_free(r);
}
END_TEST

START_TEST(tls_without_the_ca_is_refused)
{
    rig *r = unconnected_rig();
    start_by(r, broker_tls_url());
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_TLS, "the file of the CA");
    rig_stop_worker(r);
    rig_make_worker(r);
    rig_set(r, ca_file, bh_str(broker_ca_file()));
    rig_connect_by(r, broker_tls_url());
    rig_free(r);
}
END_TEST

START_TEST(a_certificate_for_another_host_is_refused)
{
    char url[4096];
    rig *r = unconnected_rig();
    proxy *network = proxy_open("127.0.0.2", broker_port(1)); /* the certificate is for localhost and 127.0.0.1 */
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.2", proxy_port(network));
    char tls_url[4200];
    snprintf(tls_url, sizeof tls_url, "amqps%s", url + strlen("amqp"));
    rig_set(r, ca_file, bh_str(broker_ca_file()));
    start_by(r, tls_url);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_TLS, "127.0.0.2");
    rig_free(r);
    proxy_close(network);
}
END_TEST

START_TEST(tls_and_plain_ports_are_told_apart)
{
    char url[4096], tls_url[4200];
    rig *r = unconnected_rig();
    rig_set(r, ca_file, bh_str(broker_ca_file()));
    broker_make_url(url, sizeof url, NULL, NULL, "localhost", 0);
    snprintf(tls_url, sizeof tls_url, "amqps%s", url + strlen("amqp"));
    start_by(r, tls_url);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_TLS, "");
    rig_stop_worker(r);
    rig_make_worker(r);
    broker_make_url(url, sizeof url, NULL, NULL, "localhost", broker_port(1));
    start_by(r, url);
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_CONNECTION, "amqps");
    rig_free(r);
}
END_TEST

Suite *suite_connecting(void)
{
    Suite *suite = suite_create("connecting");
    TCase *connecting = add_case(suite, "plain");
    tcase_add_test(connecting, a_worker_connects_and_says_so);
    tcase_add_test(connecting, a_url_without_heartbeats_and_one_with_many_work);
    tcase_add_test(connecting, a_wrong_password_is_refused_and_not_told);
    tcase_add_test(connecting, a_broker_that_says_nothing_is_given_up);
    tcase_add_test(connecting, a_name_service_that_does_not_answer_is_given_up);
    tcase_add_test(long_case(add_case(suite, "heartbeats")), heartbeats_keep_a_connection_while_a_handler_works);
    if (broker_can_be_controlled())
        add_test_with_end(suite, "escapes", user_password_and_vhost_may_need_escapes, remove_escaped);
    add_test_with_end(suite, "credentials", W8_credentials_that_change_are_for_the_next_login, remove_escaped);
    if (broker_tls_url()[0]) {
        TCase *tls = add_case(suite, "TLS");
        tcase_add_test(tls, tls_is_verified_with_the_ca);
        tcase_add_test(tls, tls_without_the_ca_is_refused);
        tcase_add_test(tls, a_certificate_for_another_host_is_refused);
        tcase_add_test(tls, tls_and_plain_ports_are_told_apart);
    }
    return suite;
}
