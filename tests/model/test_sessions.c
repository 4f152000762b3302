#include "rig.h"
#include "suites.h"

#include <string.h>

static amqp_bytes_t text_of(const char *text)
{
    return bh__to_amqp(bh_str(text));
}

static void start(rig *r, const char *response, size_t size)
{
    amqp_connection_start_ok_t start = {
        .mechanism = text_of("PLAIN"), .response = bh__to_amqp((bh_bytes){response, size}), .locale = text_of("en_US")};
    rig_write(r, "AMQP\0\0\x09\x01", 8);
    rig_expect(r, AMQP_CONNECTION_START_METHOD);
    rig_send(r, 0, AMQP_CONNECTION_START_OK_METHOD, &start);
}

START_TEST(heartbeats_follow_the_callers_clock)
{
    rig *r = rig_raw("4.3");
    amqp_connection_tune_ok_t tune = {.channel_max = 2047, .frame_max = 131072, .heartbeat = 10};
    start(r, "\0guest\0guest", 12);
    rig_expect(r, AMQP_CONNECTION_TUNE_METHOD);
    rig_send(r, 0, AMQP_CONNECTION_TUNE_OK_METHOD, &tune);
    model_beat(r->broker, 1000000);
    ck_assert_int_eq(model_next_beat_ms(r->broker), 1005000);
    rig_advance(r, 3600000); /* the model's clock has no part in it */
    ck_assert(!model_is_closing(r->link));
    model_beat(r->broker, 1005000);
    ck_assert_uint_eq(model_output(r->link).size, 8);
    model_beat(r->broker, 1019999);
    ck_assert(!model_is_closing(r->link));
    rig_write(r, "\x08\0\0\0\0\0\0\xCE", 8);
    model_beat(r->broker, 1020001);
    ck_assert(!model_is_closing(r->link));
    model_beat(r->broker, 1040001);
    ck_assert(model_is_closing(r->link));
    rig_free(r);
}
END_TEST

/* RabbitMQ pauses its monitor while it does not read. */
START_TEST(silence_of_a_blocked_publisher_does_not_count)
{
    rig *r = rig_raw("4.3");
    amqp_connection_tune_ok_t tune = {.channel_max = 2047, .frame_max = 131072, .heartbeat = 10};
    amqp_connection_open_t open = {.virtual_host = text_of("/"), .capabilities = amqp_empty_bytes};
    start(r, "\0guest\0guest", 12);
    rig_expect(r, AMQP_CONNECTION_TUNE_METHOD);
    rig_send(r, 0, AMQP_CONNECTION_TUNE_OK_METHOD, &tune);
    rig_send(r, 0, AMQP_CONNECTION_OPEN_METHOD, &open);
    rig_expect(r, AMQP_CONNECTION_OPEN_OK_METHOD);
    rig_open_channel(r, 1);
    rig_control(r, "alarm on");
    rig_publish_raw(r, "", "q", "m", NULL, 0);
    ck_assert(!model_reads(r->link));
    model_beat(r->broker, 1000000);
    model_beat(r->broker, 1100000);
    ck_assert(!model_is_closing(r->link));
    rig_control(r, "alarm off");
    model_beat(r->broker, 1119999);
    ck_assert(!model_is_closing(r->link));
    model_beat(r->broker, 1140000);
    ck_assert(model_is_closing(r->link));
    rig_free(r);
}
END_TEST

/* Bytes in pieces of any size are as one write. */
START_TEST(frames_may_come_octet_by_octet)
{
    rig *r = rig_raw("4.3");
    for (const char *at = "AMQP\0\0\x09\x01", *end = at + 8; at < end; at++)
        rig_write(r, at, 1);
    rig_expect(r, AMQP_CONNECTION_START_METHOD);
    rig_free(r);
}
END_TEST

Suite *suite_sessions(void)
{
    Suite *suite = suite_create("sessions");
    TCase *tests = tcase_create("sessions");
    tcase_add_test(tests, heartbeats_follow_the_callers_clock);
    tcase_add_test(tests, silence_of_a_blocked_publisher_does_not_count);
    tcase_add_test(tests, frames_may_come_octet_by_octet);
    suite_add_tcase(suite, tests);
    return suite;
}
