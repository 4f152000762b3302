#include "pair.h"
#include "suites.h"

#include "worker/wire/login.h"

static pair wire;
static bh__buffer sent;

static void set_up(void)
{
    sent = (bh__buffer){.data = NULL};
    pair_open(&wire);
}

static void tear_down(void)
{
    pair_close(&wire);
    bh__buffer_free(&sent);
}

/* Logs in as user:CANARY at a broker that offers these mechanisms. Returns how many bytes the
 * broker receives. */
static size_t introduce(const char *mechanisms, int has_certificate, int tls, int has_user, char *bytes, size_t room)
{
    bh__frame frame;
    amqp_method_t method;
    const bh__uri uri = {.tls = tls, .has_user = has_user, .user = "user", .password = "CANARY", .vhost = "/"};
    amqp_connection_start_t start = {
        .version_minor = 9, .mechanisms = amqp_cstring_bytes(mechanisms), .locales = amqp_cstring_bytes("en_US")};
    wire.link.awaited = AMQP_CONNECTION_START_METHOD;
    add_method(&sent, 0, AMQP_CONNECTION_START_METHOD, &start);
    pair_send(&wire, sent.data, sent.end);
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 1);
    ck_assert_int_eq(bh__link_decode(&wire.link, &frame, &method), 1);
    bh__login_introduce(&wire.link, &uri, has_certificate, "name");
    return pair_receive(&wire, bytes, room);
}

static int has(const char *bytes, size_t size, const char *part)
{
    for (size_t i = 0; i + strlen(part) <= size; i++)
        if (memcmp(bytes + i, part, strlen(part)) == 0)
            return 1;
    return 0;
}

START_TEST(X6_a_password_is_sent_only_if_the_broker_offers_PLAIN)
{
    static const char *const without[] = {"EXTERNAL", "", "PLAINTEXT", "XPLAIN PLAI", "plain", "AMQPLAIN\x1B[2J"};
    char bytes[1024];
    ck_assert_uint_eq(introduce(without[_i], 0, 0, 1, bytes, sizeof bytes), 0);
    ck_assert_int_eq(wire.link.problem.status, BH_ERR_ACCESS);
    const char *text = bh__report_text(&wire.link.problem).data;
    ck_assert_msg(strstr(text, "needs PLAIN") && !strchr(text, '\x1B'), "%s", text);
}
END_TEST

START_TEST(X6_PLAIN_may_stand_anywhere_in_the_list)
{
    static const char *const with[] = {"PLAIN", "AMQPLAIN PLAIN", "PLAIN AMQPLAIN", "EXTERNAL PLAIN AMQPLAIN"};
    char bytes[1024];
    size_t size = introduce(with[_i], 0, 0, 1, bytes, sizeof bytes);
    ck_assert(has(bytes, size, "CANARY"));
    ck_assert(!bh__link_is_broken(&wire.link));
}
END_TEST

START_TEST(X14_a_certificate_and_no_user_log_in_by_EXTERNAL_without_a_password)
{
    char bytes[1024];
    size_t size = introduce("PLAIN EXTERNAL", 1, 1, 0, bytes, sizeof bytes);
    ck_assert(has(bytes, size,
                  "\x08"
                  "EXTERNAL"));
    ck_assert(!has(bytes, size, "CANARY"));
    ck_assert(!bh__link_is_broken(&wire.link));
}
END_TEST

START_TEST(X14_a_user_in_the_URI_logs_in_by_PLAIN_also_with_a_certificate)
{
    char bytes[1024];
    size_t size = introduce("PLAIN EXTERNAL", 1, 1, 1, bytes, sizeof bytes);
    ck_assert(has(bytes, size, "CANARY"));
}
END_TEST

START_TEST(X14_EXTERNAL_that_the_broker_does_not_offer_is_refused_with_what_to_do)
{
    char bytes[1024];
    ck_assert_uint_eq(introduce("PLAIN AMQPLAIN", 1, 1, 0, bytes, sizeof bytes), 0);
    const char *text = bh__report_text(&wire.link.problem).data;
    ck_assert_msg(strstr(text, "rabbitmq_auth_mechanism_ssl") != NULL, "%s", text);
}
END_TEST

/* ---------------------------------------------------------------------------- nested properties */

/* Appends server-properties of so many tables or arrays in each other, as a connection.start. */
static void add_nested(int levels, char type)
{
    bh__buffer inner = {.data = NULL}, outer = {.data = NULL}, arguments = {.data = NULL};
    for (int i = 0; i < levels; i++) {
        bh__buffer_clear(&outer);
        ck_assert(bh__buffer_reserve(&outer, bh__buffer_size(&inner) + 16));
        if (i == levels - 1 || type == 'F') /* a field of a table has a name */
            bh__put_counted(&outer, bh_str("x"), 1);
        bh__put_number(&outer, (uint64_t)type, 1);
        bh__put_counted(&outer, (bh_bytes){inner.data, inner.end}, 4);
        bh__buffer swapped = inner;
        inner = outer;
        outer = swapped;
    }
    ck_assert(bh__buffer_reserve(&arguments, bh__buffer_size(&inner) + 32));
    bh__put_bytes(&arguments, (bh_bytes){"\0\x0A\0\x0A\0\x09", 6});
    bh__put_counted(&arguments, (bh_bytes){inner.data, inner.end}, 4);
    bh__put_counted(&arguments, bh_str("PLAIN"), 4);
    bh__put_counted(&arguments, bh_str("en_US"), 4);
    add_frame(&sent, AMQP_FRAME_METHOD, 0, (bh_bytes){arguments.data, arguments.end});
    bh__buffer_free(&inner);
    bh__buffer_free(&outer);
    bh__buffer_free(&arguments);
}

static int decode_nested(int levels, char type)
{
    bh__frame frame;
    amqp_method_t method;
    add_nested(levels, type);
    pair_send(&wire, sent.data, sent.end);
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 1);
    return bh__link_decode(&wire.link, &frame, &method);
}

START_TEST(X8_properties_of_some_levels_are_read)
{
    ck_assert_int_eq(decode_nested(16, _i ? 'A' : 'F'), 1);
}
END_TEST

START_TEST(X8_deeply_nested_properties_are_refused_before_they_are_decoded)
{
    ck_assert_int_eq(decode_nested(17, _i ? 'A' : 'F'), 0);
    ck_assert_int_eq(wire.link.problem.status, BH_ERR_CONNECTION);
}
END_TEST

START_TEST(X8_a_whole_frame_of_nested_properties_is_refused)
{
    ck_assert_int_eq(decode_nested(_i ? 26000 : 18000, _i ? 'A' : 'F'), 0);
}
END_TEST

START_TEST(X8_methods_that_no_broker_sends_are_not_decoded)
{
    amqp_method_t method;
    bh__frame frame;
    amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes("work")};
    add_method(&sent, 1, AMQP_QUEUE_DECLARE_METHOD, &declare);
    pair_send(&wire, sent.data, sent.end);
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 1);
    ck_assert_int_eq(bh__link_decode(&wire.link, &frame, &method), 0);
    ck_assert_int_eq(wire.link.problem.status, BH_ERR_CONNECTION);
}
END_TEST

/* W5: the texts of RabbitMQ 3.10 and 4.3 */
START_TEST(a_limit_of_connections_is_no_refusal_of_a_user)
{
    static const struct {
        int code;
        const char *text;
        bh_status status;
        const char *advice;
    } closes[] = {
        {530, "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (0) is reached",
         BH_ERR_CONNECTION, "end other connections or raise the limit"},
        {530, "NOT_ALLOWED - connection refused for user 'guest': user connection limit (2) is reached",
         BH_ERR_CONNECTION, "end other connections or raise the limit"},
        {530, "NOT_ALLOWED - access to vhost '/' refused for user 'guest': vhost '/' is down", BH_ERR_CONNECTION,
         "start the vhost"},
        {530, "NOT_ALLOWED - vhost nosuch not found", BH_ERR_ACCESS, "check user, password, vhost"},
        {403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN", BH_ERR_ACCESS,
         "check user, password, vhost"},
    };
    const bh__uri uri = {.host = "host", .port = 5672, .vhost = "/"};
    bh__report problem = {.status = BH_OK};
    bh__report_set(&problem, BH_ERR_CONNECTION, "the broker closed the connection (%d %s)", closes[_i].code,
                   closes[_i].text);
    wire.link.close_code = (uint16_t)closes[_i].code;
    ck_assert_int_eq(bh__login_explain(&wire.link, &uri, &problem), closes[_i].status);
    const char *text = bh__report_text(&problem).data;
    ck_assert_msg(strstr(text, closes[_i].text) && strstr(text, closes[_i].advice), "%s", text);
    bh__report_free(&problem);
}
END_TEST

Suite *suite_login(void)
{
    Suite *suite = suite_create("login");
    TCase *all = tcase_create("login");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_loop_test(all, X6_a_password_is_sent_only_if_the_broker_offers_PLAIN, 0, 6);
    tcase_add_loop_test(all, X6_PLAIN_may_stand_anywhere_in_the_list, 0, 4);
    tcase_add_test(all, X14_a_certificate_and_no_user_log_in_by_EXTERNAL_without_a_password);
    tcase_add_test(all, X14_a_user_in_the_URI_logs_in_by_PLAIN_also_with_a_certificate);
    tcase_add_test(all, X14_EXTERNAL_that_the_broker_does_not_offer_is_refused_with_what_to_do);
    tcase_add_loop_test(all, X8_properties_of_some_levels_are_read, 0, 2);
    tcase_add_loop_test(all, X8_deeply_nested_properties_are_refused_before_they_are_decoded, 0, 2);
    tcase_add_loop_test(all, X8_a_whole_frame_of_nested_properties_is_refused, 0, 2);
    tcase_add_test(all, X8_methods_that_no_broker_sends_are_not_decoded);
    tcase_add_loop_test(all, a_limit_of_connections_is_no_refusal_of_a_user, 0, 5);
    suite_add_tcase(suite, all);
    return suite;
}
