#include "suites.h"

#include "worker/wire/uri.h"

#include <stdlib.h>
#include <string.h>

static void expect(const char *text, int tls, const char *user, const char *password, const char *host, int port,
                   const char *vhost, int heartbeat_s)
{
    bh__uri uri = {.text = NULL};
    bh__report report = {.status = BH_OK};
    bh_status status = bh__uri_parse(&uri, bh_str(text), &report);
    ck_assert_msg(status == BH_OK, "%s: %s", text, bh__report_text(&report).data);
    ck_assert_int_eq(uri.tls, tls);
    ck_assert_str_eq(uri.user, user);
    ck_assert_str_eq(uri.password, password);
    ck_assert_str_eq(uri.host, host);
    ck_assert_int_eq(uri.port, port);
    ck_assert_str_eq(uri.vhost, vhost);
    ck_assert_int_eq(uri.heartbeat_s, heartbeat_s);
    bh__uri_free(&uri);
    bh__report_free(&report);
}

static void expect_refused(bh_bytes text, const char *part)
{
    bh__uri uri = {.text = NULL};
    bh__report report = {.status = BH_OK};
    ck_assert_int_eq(bh__uri_parse(&uri, bh_str("amqp://before@host"), &report), BH_OK);
    ck_assert_int_eq(bh__uri_parse(&uri, text, &report), BH_ERR_URI);
    ck_assert_ptr_null(uri.text); /* nothing of either is left */
    const char *sentence = bh__report_text(&report).data;
    ck_assert_msg(strstr(sentence, part) != NULL, "%s: %s", text.data, sentence);
    ck_assert_ptr_null(strstr(sentence, "s3cret"));
    bh__uri_free(&uri);
    bh__report_free(&report);
}

START_TEST(what_a_uri_leaves_out_has_the_usual_values)
{
    expect("amqp://", 0, "guest", "guest", "localhost", 5672, "/", 60);
    expect("amqp:///", 0, "guest", "guest", "localhost", 5672, "/", 60);
    expect("amqps://host", 1, "guest", "guest", "host", 5671, "/", 60);
    expect("amqp://user@host", 0, "user", "guest", "host", 5672, "/", 60);
    expect("amqp://user:@host", 0, "user", "", "host", 5672, "/", 60);
    expect("amqp://@host", 0, "", "guest", "host", 5672, "/", 60);
    expect("amqp://host?heartbeat=0", 0, "guest", "guest", "host", 5672, "/", 0);
}
END_TEST

START_TEST(a_uri_is_taken_apart)
{
    expect("amqps://user:word@example.org:1/orders?heartbeat=65535", 1, "user", "word", "example.org", 1, "orders",
           65535);
    expect("AMQPS://a:b@c:65535/d", 1, "a", "b", "c", 65535, "d", 60);
    expect("amqp://a:b:c@host/v", 0, "a", "b:c", "host", 5672, "v", 60);
    expect("amqp://a:b@c@host/v", 0, "a", "b@c", "host", 5672, "v", 60);
    expect("amqp://[::1]:5673/v", 0, "guest", "guest", "::1", 5673, "v", 60);
    expect("amqp://u:p@[fe80::1%25eth0]", 0, "u", "p", "fe80::1%eth0", 5672, "/", 60);
}
END_TEST

START_TEST(every_part_may_be_percent_escaped)
{
    expect("amqp://u%40x:%2f%3F%23%25@h%6Fst/%2f", 0, "u@x", "/?#%", "host", 5672, "/", 60);
    expect("amqp://h/%c3%A9", 0, "guest", "guest", "h", 5672, "\xc3\xa9", 60);
}
END_TEST

START_TEST(what_is_no_uri_is_refused_and_never_repeated)
{
    static const struct {
        const char *text;
        const char *part;
    } cases[] = {
        {"", "begins neither"},
        {"a", "begins neither"},
        {"amqp:/s3cret", "begins neither"},
        {"http://s3cret", "begins neither"},
        {"amqp://u:s3cret#x@host", "'#'"},
        {"amqp://u:s3cret/x@host", "%2F"},
        {"amqp://u:s3cret?x@host", "port"},
        {"amqp://u:100%s3cret@host", "two hexadecimal digits"},
        {"amqp://u:s3cret%@host", "two hexadecimal digits"},
        {"amqp://u:s3cret%4@host", "two hexadecimal digits"},
        {"amqp://u:s3cret%00@host", "other than 00"},
        {"amqp://u:p@host/v%0", "two hexadecimal digits"},
        {"amqp://host:", "port"},
        {"amqp://host:0", "port"},
        {"amqp://host:65536", "port"},
        {"amqp://host:99999999999999999999", "port"},
        {"amqp://host:-1", "port"},
        {"amqp://host:5672s3cret", "port"},
        {"amqp://::1", "IPv6"},
        {"amqp://[::1", "no ']'"},
        {"amqp://[::1]x", "after the ']'"},
        {"amqp://host/a/b", "%2F"},
        {"amqp://host/a@b", "%40"},
        {"amqp://host?", "heartbeat"},
        {"amqp://host?s3cret", "heartbeat"},
        {"amqp://host?heartbeat=", "seconds"},
        {"amqp://host?heartbeat=65536", "seconds"},
        {"amqp://host?heartbeat=1s3cret", "seconds"},
        {"amqp://host?heartbeat=1&x=1", "only heartbeat"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused(bh_str(cases[i].text), cases[i].part);
    expect_refused((bh_bytes){"amqp://ho\0st", 12}, "zero byte");
    expect_refused(bh_str("amqp://localhost/\n"), "line break at its end"); /* W10 */
    expect_refused((bh_bytes){NULL, 0}, "begins neither");
}
END_TEST

START_TEST(a_vhost_has_255_bytes_at_most_once_it_is_decoded)
{
    char text[1024] = "amqp://host/";
    for (int i = 0; i < 255; i++)
        strcat(text, "%61");
    bh__uri uri = {.text = NULL};
    bh__report report = {.status = BH_OK};
    ck_assert_int_eq(bh__uri_parse(&uri, bh_str(text), &report), BH_OK);
    ck_assert_uint_eq(strlen(uri.vhost), 255);
    strcat(text, "a");
    ck_assert_int_eq(bh__uri_parse(&uri, bh_str(text), &report), BH_ERR_URI);
    ck_assert_ptr_nonnull(strstr(bh__report_text(&report).data, "255 bytes"));
    bh__uri_free(&uri);
    bh__report_free(&report);
}
END_TEST

START_TEST(bytes_behind_the_end_are_not_read)
{
    const char text[] = "amqp://host:5672/vhost?heartbeat=100@x";
    for (size_t size = 0; size < sizeof text; size++) {
        char *exact = malloc(size ? size : 1); /* so that a sanitizer sees a byte too many */
        ck_assert_ptr_nonnull(exact);
        memcpy(exact, text, size);
        bh__uri uri = {.text = NULL};
        bh__report report = {.status = BH_OK};
        bh_status status = bh__uri_parse(&uri, (bh_bytes){exact, size}, &report);
        ck_assert(status == BH_OK || status == BH_ERR_URI);
        bh__uri_free(&uri);
        bh__report_free(&report);
        free(exact);
    }
}
END_TEST

Suite *suite_uri(void)
{
    Suite *suite = suite_create("uri");
    TCase *all = tcase_create("uri");
    tcase_add_test(all, what_a_uri_leaves_out_has_the_usual_values);
    tcase_add_test(all, a_uri_is_taken_apart);
    tcase_add_test(all, every_part_may_be_percent_escaped);
    tcase_add_test(all, what_is_no_uri_is_refused_and_never_repeated);
    tcase_add_test(all, a_vhost_has_255_bytes_at_most_once_it_is_decoded);
    tcase_add_test(all, bytes_behind_the_end_are_not_read);
    suite_add_tcase(suite, all);
    return suite;
}
