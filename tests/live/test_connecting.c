#include "proxy.h"
#include "setups.h"
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A CA that signed nobody. */
static const char stranger_ca[] = "-----BEGIN CERTIFICATE-----\n"
                                  "MIIBmzCCAUGgAwIBAgIUKGBuKYKwAbVVXbHCywmA4ZY8ReIwCgYIKoZIzj0EAwIw\n"
                                  "IjEgMB4GA1UEAwwXQSBDQSB0aGF0IHNpZ25lZCBub2JvZHkwIBcNMjYxMTIwMTcw\n"
                                  "MTE5WhgPMjEyNjEwMjcxNzAxMTlaMCIxIDAeBgNVBAMMF0EgQ0EgdGhhdCBzaWdu\n"
                                  "ZWQgbm9ib2R5MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEoSeAgQDx4OoWXUer\n"
                                  "hIEF0NGJngu7C2lpccdL4T4vU76kjt/2swriTo4Ed8qdEJ6IVq676vvQm3D/x3f1\n"
                                  "xuKehqNTMFEwHQYDVR0OBBYEFN3Y4dlzV4eMTSBbqSr3A0tnr9ceMB8GA1UdIwQY\n"
                                  "MBaAFN3Y4dlzV4eMTSBbqSr3A0tnr9ceMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZI\n"
                                  "zj0EAwIDSAAwRQIhAOUaZUQx08c6epabGjh2ZRcqjkkRIiPVu6UijRGih0JMAiBa\n"
                                  "6Fuuk2alB1kCda+gG4YhkAE5IQto9u8lQjdn7CmQZg==\n"
                                  "-----END CERTIFICATE-----\n";

static rig *unconnected_rig(void)
{
    rig *r = setup_rig(setup_first());
    rig_prepare(r);
    rig_make_worker(r);
    return r;
}

static bh_status try_to_connect(rig *r, const char *url)
{
    return bh_worker_connect(r->worker, bh_str(url));
}

/* The worker can do its work. */
static void expect_at_work(rig *r)
{
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    rig_fail(r, "507");
    rig_take(r, "first");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 2);
    rig_succeed(r);
}

START_TEST(a_worker_knows_the_broker_that_it_is_connected_to)
{
    rig *r = unconnected_rig();
    expect_bytes(bh_worker_broker_product(r->worker), "");
    expect_bytes(bh_worker_broker_version(r->worker), "");
    rig_connect(r);
    expect_bytes(bh_worker_broker_product(r->worker), "RabbitMQ");
    expect_bytes(bh_worker_broker_version(r->worker), broker_version());
    expect_at_work(r);
    rig_free(r);
}
END_TEST

START_TEST(connecting_again_replaces_the_connections_before)
{
    rig *r = unconnected_rig();
    rig_connect(r);
    expect_at_work(r);
    broker_publish_text(r->broker, "", r->queue, "second");
    rig_take(r, "second");
    rig_connect(r); /* the message goes back */
    expect_status(r->worker, bh_worker_settle(r->worker, BH_OUTCOME_OK, bh_str(""), 0), BH_ERR_STATE);
    rig_take(r, "second");
    ck_assert(bh_worker_redelivered(r->worker));
    rig_succeed(r);
    expect_at_work(r);
    rig_free(r);
}
END_TEST

START_TEST(a_url_without_heartbeats_and_one_with_many_work)
{
    static const char *const queries[] = {"?heartbeat=0", "?heartbeat=1", "?heartbeat=65535"};
    rig *r = unconnected_rig();
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        char url[4096];
        broker_make_url(url, sizeof url, NULL, NULL, NULL, 0);
        snprintf(url + strlen(url), sizeof url - strlen(url), "%s", queries[i]);
        expect_ok(r->worker, try_to_connect(r, url));
        expect_at_work(r);
    }
    rig_free(r);
}
END_TEST

START_TEST(heartbeats_keep_a_connection_that_waits)
{
    enum {
        IDLE_MS = 3500
    }; /* RabbitMQ closes after two seconds without a heartbeat, which it looks at once a second */
    rig *r = unconnected_rig();
    char url[4096];
    broker_make_url(url, sizeof url, NULL, NULL, NULL, 0);
    snprintf(url + strlen(url), sizeof url - strlen(url), "?heartbeat=1");
    expect_ok(r->worker, try_to_connect(r, url));
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    rig_expect_silence(r, IDLE_MS);
    expect_at_work(r);
    rig_free(r);
}
END_TEST

/* -------------------------------------------------------------------------------------------------- what is refused */

START_TEST(urls_that_cannot_be_understood_are_refused_without_repeating_them)
{
    static const char *const urls[] = {
        "",
        "localhost",
        "http://guest:verysecret@localhost/",
        "amqp:/guest:verysecret@localhost/",
        "amqp://guest:verysecret@localhost:port/",
        "amqp://guest:verysecret@localhost:0/",
        "amqp://guest:verysecret@localhost:65536/",
        "amqp://guest:verysecret@[::1/",
        "amqp://guest:verysecret@[::1]x/",
        "amqp://guest:verysecret%@localhost/",
        "amqp://guest:verysecret%4@localhost/",
        "amqp://guest:verysecret%zz@localhost/",
        "amqp://guest:verysecret%00@localhost/",
        "amqp://guest:very/secret@localhost/",
        "amqp://guest:verysecret@localhost/a/b",
        "amqp://guest:verysecret@localhost/?heartbeat=often",
        "amqp://guest:verysecret@localhost/?heartbeat=-1",
        "amqp://guest:verysecret@localhost/?heartbeat=65536",
        "amqp://guest:verysecret@localhost/?verify=none",
        "amqp://guest:verysecret@localhost/#fragment",
    };
    rig *r = unconnected_rig();
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        bh_status status = try_to_connect(r, urls[i]);
        ck_assert_msg(status == BH_ERR_URI, "%s: %s", urls[i], bh_status_name(status).data);
        bh_bytes error = bh_worker_error(r->worker);
        ck_assert_msg(error.size > 0 && !holds(error, "secret"), "%s: %s", urls[i], error.data);
    }
    static const char with_zero[] = "amqp://guest\0guest@localhost/";
    ck_assert_int_eq(bh_worker_connect(r->worker, (bh_bytes){with_zero, sizeof with_zero - 1}), BH_ERR_URI);
    expect_status(r->worker, bh_worker_take(r->worker, 0), BH_ERR_STATE);
    rig_free(r);
}
END_TEST

START_TEST(a_vhost_longer_than_255_bytes_is_refused)
{
    char url[600] = "amqp://localhost/";
    size_t size = strlen(url);
    memset(url + size, 'v', 256);
    rig *r = unconnected_rig();
    expect_status(r->worker, try_to_connect(r, url), BH_ERR_URI);
    rig_free(r);
}
END_TEST

START_TEST(a_wrong_password_is_refused_and_not_told)
{
    char url[4096];
    rig *r = unconnected_rig();
    broker_make_url(url, sizeof url, NULL, "very%2Fsecret%20word", NULL, 0);
    expect_status(r->worker, try_to_connect(r, url), BH_ERR_ACCESS);
    ck_assert(!holds(bh_worker_error(r->worker), "secret"));
    expect_error(r->worker, "password");
    expect_status(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE), BH_ERR_STATE);
    rig_connect(r);
    expect_at_work(r);
    rig_free(r);
}
END_TEST

START_TEST(a_vhost_that_does_not_exist_is_refused)
{
    char url[4096];
    rig *r = unconnected_rig();
    broker_make_url(url, sizeof url, NULL, NULL, NULL, 0);
    snprintf(strrchr(url, '/'), 32, "/no%%20such%%2Fvhost");
    expect_status(r->worker, try_to_connect(r, url), BH_ERR_ACCESS);
    expect_error(r->worker, "no such/vhost");
    rig_free(r);
}
END_TEST

START_TEST(user_password_and_vhost_may_need_escapes)
{
    char url[4096];
    rig *r = unconnected_rig();
    broker_ctl("rabbitmqctl add_vhost live/a%b:c@d");
    broker_ctl("rabbitmqctl add_user live@:/?#[]% p@:/?#[]%");
    broker_ctl("rabbitmqctl set_permissions -p live/a%b:c@d live@:/?#[]% .* .* .*");
    snprintf(
        url, sizeof url,
        "amqp://live%%40%%3A%%2f%%3F%%23%%5B%%5D%%25:p%%40%%3A%%2f%%3F%%23%%5B%%5D%%25@%s:%d/live%%2Fa%%25b:c%%40d",
        broker_host(), broker_port(0));
    bh_status status = try_to_connect(r, url);
    expect_status(r->worker, status, BH_OK);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    rig_stop_worker(r);
    broker_ctl("rabbitmqctl delete_vhost live/a%b:c@d");
    broker_ctl("rabbitmqctl delete_user live@:/?#[]%");
    ck_assert(!broker_has_queue(r->broker, r->queue));
    rig_free(r);
}
END_TEST

START_TEST(a_port_where_nobody_listens_is_refused)
{
    char url[4096];
    rig *r = unconnected_rig();
    proxy *closed = proxy_open("127.0.0.1", broker_port(0));
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(closed));
    proxy_close(closed);
    expect_status(r->worker, try_to_connect(r, url), BH_ERR_CONNECTION);
    expect_error(r->worker, "127.0.0.1");
    rig_free(r);
}
END_TEST

START_TEST(a_host_that_has_no_address_is_refused)
{
    char url[4096];
    rig *r = unconnected_rig();
    broker_make_url(url, sizeof url, NULL, NULL, "no-such-host.invalid", 0);
    expect_status(r->worker, try_to_connect(r, url), BH_ERR_CONNECTION);
    expect_error(r->worker, "no-such-host.invalid");
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
    expect_ok(r->worker, bh_worker_set_connect_timeout_ms(r->worker, TIMEOUT));
    int64_t start = now_ms();
    expect_status(r->worker, try_to_connect(r, url), BH_ERR_CONNECTION);
    expect_waited(start, TIMEOUT);
    proxy_close(network);
    rig_free(r);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------------- TLS */

START_TEST(tls_is_verified_with_the_ca)
{
    rig *r = unconnected_rig();
    expect_ok(r->worker, bh_worker_set_ca_file(r->worker, bh_str(broker_ca_file())));
    expect_ok(r->worker, try_to_connect(r, broker_tls_url()));
    expect_bytes(bh_worker_broker_version(r->worker), broker_version());
    expect_at_work(r);
    rig_free(r);
}
END_TEST

START_TEST(tls_without_the_ca_is_refused)
{
    rig *r = unconnected_rig();
    expect_status(r->worker, try_to_connect(r, broker_tls_url()), BH_ERR_TLS);
    expect_error(r->worker, "bh_worker_set_ca_file");
    expect_ok(r->worker, bh_worker_set_ca_file(r->worker, bh_str(broker_ca_file())));
    expect_ok(r->worker, try_to_connect(r, broker_tls_url()));
    rig_free(r);
}
END_TEST

START_TEST(tls_with_another_ca_is_refused)
{
    char path[] = "/tmp/live-ca-XXXXXX";
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(write(file, stranger_ca, sizeof stranger_ca - 1), sizeof stranger_ca - 1);
    close(file);
    rig *r = unconnected_rig();
    expect_ok(r->worker, bh_worker_set_ca_file(r->worker, bh_str(path)));
    bh_status status = try_to_connect(r, broker_tls_url());
    unlink(path);
    expect_status(r->worker, status, BH_ERR_TLS);
    rig_free(r);
}
END_TEST

START_TEST(a_ca_file_that_is_none_is_refused)
{
    rig *r = unconnected_rig();
    expect_ok(r->worker, bh_worker_set_ca_file(r->worker, bh_str("/nonexistent/ca.pem")));
    expect_status(r->worker, try_to_connect(r, broker_tls_url()), BH_ERR_TLS);
    expect_error(r->worker, "/nonexistent/ca.pem");
    expect_ok(r->worker, bh_worker_set_ca_file(r->worker, bh_str("/dev/null")));
    expect_status(r->worker, try_to_connect(r, broker_tls_url()), BH_ERR_TLS);
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
    expect_ok(r->worker, bh_worker_set_ca_file(r->worker, bh_str(broker_ca_file())));
    expect_status(r->worker, try_to_connect(r, tls_url), BH_ERR_TLS);
    expect_error(r->worker, "127.0.0.2");
    rig_free(r);
    proxy_close(network);
}
END_TEST

START_TEST(tls_and_plain_ports_are_told_apart)
{
    char url[4096], tls_url[4200];
    rig *r = unconnected_rig();
    expect_ok(r->worker, bh_worker_set_ca_file(r->worker, bh_str(broker_ca_file())));
    broker_make_url(url, sizeof url, NULL, NULL, "localhost", 0);
    snprintf(tls_url, sizeof tls_url, "amqps%s", url + strlen("amqp"));
    expect_status(r->worker, try_to_connect(r, tls_url), BH_ERR_TLS);
    broker_make_url(url, sizeof url, NULL, NULL, "localhost", broker_port(1));
    expect_status(r->worker, try_to_connect(r, url), BH_ERR_CONNECTION);
    expect_error(r->worker, "amqps");
    rig_free(r);
}
END_TEST

Suite *suite_connecting(void)
{
    Suite *suite = suite_create("connecting");
    TCase *connecting = add_case(suite, "plain");
    tcase_add_test(connecting, a_worker_knows_the_broker_that_it_is_connected_to);
    tcase_add_test(connecting, connecting_again_replaces_the_connections_before);
    tcase_add_test(connecting, a_url_without_heartbeats_and_one_with_many_work);
    tcase_add_test(connecting, heartbeats_keep_a_connection_that_waits);
    tcase_add_test(connecting, urls_that_cannot_be_understood_are_refused_without_repeating_them);
    tcase_add_test(connecting, a_vhost_longer_than_255_bytes_is_refused);
    tcase_add_test(connecting, a_wrong_password_is_refused_and_not_told);
    tcase_add_test(connecting, a_vhost_that_does_not_exist_is_refused);
    tcase_add_test(connecting, a_port_where_nobody_listens_is_refused);
    tcase_add_test(connecting, a_host_that_has_no_address_is_refused);
    tcase_add_test(connecting, a_broker_that_says_nothing_is_given_up);
    if (broker_can_be_controlled())
        tcase_add_test(connecting, user_password_and_vhost_may_need_escapes);
    if (broker_tls_url()[0]) {
        TCase *tls = add_case(suite, "TLS");
        tcase_add_test(tls, tls_is_verified_with_the_ca);
        tcase_add_test(tls, tls_without_the_ca_is_refused);
        tcase_add_test(tls, tls_with_another_ca_is_refused);
        tcase_add_test(tls, a_ca_file_that_is_none_is_refused);
        tcase_add_test(tls, a_certificate_for_another_host_is_refused);
        tcase_add_test(tls, tls_and_plain_ports_are_told_apart);
    }
    return suite;
}
