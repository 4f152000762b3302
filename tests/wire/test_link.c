#include "pair.h"
#include "properties.h"
#include "suites.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

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

static void expect_broken(const char *part)
{
    bh__frame frame;
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 0);
    ck_assert(bh__link_is_broken(&wire.link));
    ck_assert_int_eq(wire.link.problem.status, BH_ERR_CONNECTION);
    const char *text = bh__report_text(&wire.link.problem).data;
    ck_assert_msg(strstr(text, part) != NULL, "%s", text);
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 0);
}

/* -------------------------------------------------------------------------------------- framing */

START_TEST(frames_come_out_whole_and_in_order)
{
    bh__frame frame;
    add_frame(&sent, AMQP_FRAME_BODY, 1, bh_str("first"));
    add_frame(&sent, AMQP_FRAME_HEARTBEAT, 0, bh_str(""));
    add_frame(&sent, AMQP_FRAME_BODY, 65535, bh_str("second"));
    pair_send(&wire, sent.data, sent.end);
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 1);
    ck_assert_int_eq(frame.type, AMQP_FRAME_BODY);
    ck_assert_int_eq(frame.channel, 1);
    ck_assert(bh__same(frame.payload, bh_str("first")));
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 1);
    ck_assert_int_eq(frame.type, AMQP_FRAME_HEARTBEAT);
    ck_assert_uint_eq(frame.payload.size, 0);
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 1);
    ck_assert_int_eq(frame.channel, 65535);
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 0);
    ck_assert(!bh__link_is_broken(&wire.link));
}
END_TEST

START_TEST(a_frame_that_comes_byte_for_byte_is_there_with_its_last)
{
    bh__frame frame;
    add_frame(&sent, AMQP_FRAME_BODY, 7, bh_str("slow"));
    for (size_t i = 0; i < sent.end; i++) {
        ck_assert_int_eq(bh__link_next(&wire.link, &frame), 0);
        pair_send(&wire, sent.data + i, 1);
    }
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 1);
    ck_assert(bh__same(frame.payload, bh_str("slow")));
}
END_TEST

START_TEST(megabytes_of_frames_come_through)
{
    enum { FRAMES = 300 };
    bh__frame frame;
    size_t size = BH__FRAME_MAX - 8;
    char *payload = malloc(size);
    ck_assert_ptr_nonnull(payload);
    int next = 0;
    for (int i = 0; i < FRAMES; i++) {
        memset(payload, i, size);
        bh__buffer_clear(&sent);
        add_frame(&sent, AMQP_FRAME_BODY, 1, (bh_bytes){payload, size});
        pair_send(&wire, sent.data, sent.end);
        if (i % 3 == 0)
            continue; /* some lie in the buffer for a while */
        while (bh__link_next(&wire.link, &frame)) {
            ck_assert_uint_eq(frame.payload.size, size);
            ck_assert_int_eq(frame.payload.data[size - 1], (char)next);
            next++;
        }
    }
    ck_assert_int_eq(next, FRAMES);
    free(payload);
}
END_TEST

START_TEST(what_is_no_amqp_is_told_with_what_to_check)
{
    static const char *const strangers[] = {"HTTP/1.1 400 Bad Request\r\n", "AMQP\0\0\x9\1", "\x15\3\3\0\2\2\x16 alert",
                                            "\0\0\0\0\0\0\0\0"};
    pair_send(&wire, strangers[_i], 8);
    expect_broken("does not use AMQP 0-9-1; check the port, and whether it needs TLS");
    ck_assert_int_eq(wire.link.is_open, 0);
}
END_TEST

START_TEST(a_frame_that_is_larger_than_agreed_ends_the_connection_at_its_start)
{
    pair_send(&wire, "\3\0\1\0\1\xFF\xF9", 7);
    pair_send(&wire, "x", 1);
    expect_broken("131072 were agreed on");
}
END_TEST

START_TEST(a_size_of_four_gigabytes_is_not_waited_for)
{
    pair_send(&wire, "\1\0\1\xFF\xFF\xFF\xFFx", 8);
    expect_broken("were agreed on");
}
END_TEST

START_TEST(a_content_header_may_be_a_megabyte_larger_and_no_more)
{
    static char payload[BH__FRAME_MAX + 1048576 - 8 + 1];
    bh__frame frame;
    add_frame(&sent, AMQP_FRAME_HEADER, 1, (bh_bytes){payload, sizeof payload - 1});
    pair_send(&wire, sent.data, sent.end);
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 1);
    ck_assert_uint_eq(frame.payload.size, sizeof payload - 1);
    bh__buffer_clear(&sent);
    add_frame(&sent, AMQP_FRAME_HEADER, 1, (bh_bytes){payload, sizeof payload});
    pair_send(&wire, sent.data, sent.end);
    expect_broken("were agreed on");
}
END_TEST

START_TEST(a_frame_with_another_end_ends_the_connection)
{
    pair_send(&wire, "\3\0\1\0\0\0\1x\xCD", 9);
    expect_broken("has a wrong end");
}
END_TEST

START_TEST(frames_that_came_before_the_other_side_closed_are_read)
{
    bh__frame frame;
    add_frame(&sent, AMQP_FRAME_BODY, 1, bh_str("last"));
    ck_assert_int_eq(write(wire.broker, sent.data, sent.end), (ssize_t)sent.end);
    close(wire.broker);
    wire.broker = -1;
    bh__link_read(&wire.link, 0);
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 1);
    ck_assert(bh__same(frame.payload, bh_str("last")));
    ck_assert(!bh__link_is_broken(&wire.link));
    bh__link_read(&wire.link, 0);
    expect_broken("the other side closed it");
}
END_TEST

START_TEST(the_first_problem_is_the_one_that_is_told)
{
    bh__link_fail(&wire.link, BH_ERR_TLS, "first %d", 1);
    bh__link_fail(&wire.link, BH_ERR_CONNECTION, "second");
    ck_assert_int_eq(wire.link.problem.status, BH_ERR_TLS);
    ck_assert_str_eq(bh__report_text(&wire.link.problem).data, "first 1");
    bh__link_greet(&wire.link); /* nothing is written any more */
    ck_assert_uint_eq(bh__buffer_size(&wire.link.out), 0);
}
END_TEST

START_TEST(a_link_that_is_closed_is_as_new)
{
    pair_send(&wire, "\3\0\1\0", 4);
    bh__link_greet(&wire.link);
    wire.link.frame_max = 4096;
    bh__link_fail(&wire.link, BH_ERR_CONNECTION, "lost");
    bh__link_close(&wire.link);
    ck_assert(!bh__link_is_broken(&wire.link));
    ck_assert_int_eq(wire.link.phase, BH__CLOSED);
    ck_assert_int_eq(wire.link.socket.fd, -1);
    ck_assert_uint_eq(wire.link.frame_max, BH__FRAME_MAX);
    ck_assert_uint_eq(bh__buffer_size(&wire.link.in) + bh__buffer_size(&wire.link.out), 0);
    ck_assert_int_eq(bh__link_events(&wire.link), 0);
}
END_TEST

/* -------------------------------------------------------------------------------------- methods */

static int next_method(amqp_method_t *method)
{
    bh__frame frame;
    ck_assert_int_eq(bh__link_next(&wire.link, &frame), 1);
    ck_assert_int_eq(frame.type, AMQP_FRAME_METHOD);
    return bh__link_decode(&wire.link, &frame, method);
}

START_TEST(a_method_is_decoded)
{
    amqp_method_t method;
    amqp_basic_deliver_t deliver = {.consumer_tag = amqp_cstring_bytes("tag"),
                                    .delivery_tag = UINT64_C(1) << 60,
                                    .redelivered = 1,
                                    .exchange = amqp_cstring_bytes("exchange"),
                                    .routing_key = amqp_cstring_bytes("key")};
    add_method(&sent, 3, AMQP_BASIC_DELIVER_METHOD, &deliver);
    pair_send(&wire, sent.data, sent.end);
    ck_assert_int_eq(next_method(&method), 1);
    ck_assert_uint_eq(method.id, AMQP_BASIC_DELIVER_METHOD);
    const amqp_basic_deliver_t *got = method.decoded;
    ck_assert_uint_eq(got->delivery_tag, UINT64_C(1) << 60);
    ck_assert(bh__same(bh__from_amqp(got->routing_key), bh_str("key")));
    ck_assert_uint_eq(wire.link.reply.id, 0);
}
END_TEST

START_TEST(the_reply_that_is_awaited_is_kept_and_no_other)
{
    amqp_method_t method;
    amqp_channel_close_t close = {.reply_code = 404, .reply_text = amqp_cstring_bytes("NOT_FOUND")};
    amqp_basic_ack_t ack = {.delivery_tag = 1};
    amqp_queue_declare_ok_t declared = {.queue = amqp_cstring_bytes("work"), .message_count = 7};
    wire.link.reply_channel = 2;
    wire.link.awaited = AMQP_QUEUE_DECLARE_OK_METHOD;
    add_method(&sent, 1, AMQP_CHANNEL_CLOSE_METHOD, &close); /* of another channel */
    add_method(&sent, 2, AMQP_BASIC_ACK_METHOD, &ack);       /* another method */
    add_method(&sent, 2, AMQP_QUEUE_DECLARE_OK_METHOD, &declared);
    add_method(&sent, 2, AMQP_BASIC_ACK_METHOD, &ack);
    pair_send(&wire, sent.data, sent.end);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(next_method(&method), 1);
        ck_assert_uint_eq(wire.link.reply.id, 0);
    }
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(next_method(&method), 1);
    ck_assert_uint_eq(wire.link.reply.id, AMQP_QUEUE_DECLARE_OK_METHOD);
    const amqp_queue_declare_ok_t *kept = wire.link.reply.decoded; /* the ack after it did not touch it */
    ck_assert_uint_eq(kept->message_count, 7);
    ck_assert(bh__same(bh__from_amqp(kept->queue), bh_str("work")));
}
END_TEST

START_TEST(a_close_of_the_channel_is_a_reply_too)
{
    amqp_method_t method;
    amqp_channel_close_t close = {.reply_code = 406, .reply_text = amqp_cstring_bytes("PRECONDITION_FAILED")};
    wire.link.reply_channel = 2;
    wire.link.awaited = AMQP_QUEUE_DECLARE_OK_METHOD;
    add_method(&sent, 2, AMQP_CHANNEL_CLOSE_METHOD, &close);
    pair_send(&wire, sent.data, sent.end);
    ck_assert_int_eq(next_method(&method), 1);
    ck_assert_uint_eq(wire.link.reply.id, AMQP_CHANNEL_CLOSE_METHOD);
    ck_assert_uint_eq(wire.link.awaited, 0);
}
END_TEST

START_TEST(a_method_that_cannot_be_read_ends_the_connection)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *part;
    } cases[] = {
        {"", 0, "no method"},
        {"\0\x3C\0", 3, "no method"},
        {"\0\x3C\0\x3C", 4, "(60.60)"},                     /* basic.deliver without arguments */
        {"\0\x3C\0\x3C\xFFx", 6, "(60.60)"},                /* a tag longer than the frame */
        {"\xFF\xFF\xFF\xFF", 4, "(65535.65535)"},           /* there is no such method */
        {"\0\xA\0\xA\0\x9\xFF\xFF\xFF\xFF", 10, "(10.10)"}, /* server-properties of four gigabytes */
    };
    amqp_method_t method;
    add_frame(&sent, AMQP_FRAME_METHOD, 1, (bh_bytes){cases[_i].bytes, cases[_i].size});
    pair_send(&wire, sent.data, sent.end);
    ck_assert_int_eq(next_method(&method), 0);
    expect_broken(cases[_i].part);
}
END_TEST

/* -------------------------------------------------------------------------------------- writing */

START_TEST(the_greeting_is_the_protocol_header)
{
    char bytes[16];
    bh__link_greet(&wire.link);
    ck_assert_int_eq(bh__link_events(&wire.link), POLLIN | POLLOUT);
    ck_assert_uint_eq(pair_receive(&wire, bytes, sizeof bytes), 8);
    ck_assert_mem_eq(bytes, "AMQP\0\0\x9\1", 8);
    ck_assert_int_eq(bh__link_events(&wire.link), POLLIN);
}
END_TEST

static void expect_published(size_t body_size, size_t frame_max)
{
    static char bytes[1 << 20];
    pair other;
    bh__frame frame;
    amqp_method_t method;
    char *body = malloc(body_size + 1);
    ck_assert_ptr_nonnull(body);
    for (size_t i = 0; i < body_size; i++)
        body[i] = (char)(i * 31);
    amqp_basic_publish_t publish = {
        .exchange = amqp_cstring_bytes("x"), .routing_key = amqp_cstring_bytes("key"), .mandatory = 1};
    wire.link.frame_max = frame_max;
    bh__link_publish(&wire.link, 5, &publish, (bh_bytes){"\x80\0\4text", 7}, (bh_bytes){body, body_size});
    size_t size = pair_receive(&wire, bytes, sizeof bytes);
    pair_open(&other);
    other.link.frame_max = frame_max; /* so that a larger frame would be refused */
    pair_send(&other, bytes, size);
    ck_assert_int_eq(bh__link_next(&other.link, &frame), 1);
    ck_assert_int_eq(bh__link_decode(&other.link, &frame, &method), 1);
    ck_assert_uint_eq(method.id, AMQP_BASIC_PUBLISH_METHOD);
    ck_assert_int_eq(((const amqp_basic_publish_t *)method.decoded)->mandatory, 1);
    ck_assert_int_eq(bh__link_next(&other.link, &frame), 1);
    ck_assert_int_eq(frame.type, AMQP_FRAME_HEADER);
    ck_assert_int_eq(frame.channel, 5);
    ck_assert_uint_eq(bh__get_number(frame.payload.data, 2), AMQP_BASIC_CLASS);
    ck_assert_uint_eq(bh__get_number(frame.payload.data + 4, 8), body_size);
    ck_assert_mem_eq(frame.payload.data + 12, "\x80\0\4text", 7);
    size_t seen = 0;
    while (bh__link_next(&other.link, &frame)) {
        ck_assert_int_eq(frame.type, AMQP_FRAME_BODY);
        ck_assert_uint_gt(frame.payload.size, 0);
        ck_assert_uint_le(seen + frame.payload.size, body_size);
        ck_assert_mem_eq(frame.payload.data, body + seen, frame.payload.size);
        seen += frame.payload.size;
    }
    ck_assert_uint_eq(seen, body_size);
    ck_assert(!bh__link_is_broken(&other.link));
    ck_assert_uint_eq(bh__buffer_size(&other.link.in), 0);
    pair_close(&other);
    free(body);
}

START_TEST(a_publish_is_cut_into_frames_of_the_size_agreed_on)
{
    static const size_t sizes[] = {0, 1, 4087, 4088, 4089, 2 * 4088, 2 * 4088 + 1, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        expect_published(sizes[i], BH__LEAST_FRAME_MAX);
    expect_published(500000, BH__FRAME_MAX);
}
END_TEST

START_TEST(the_room_for_properties_is_what_a_frame_holds)
{
    wire.link.frame_max = 4096;
    ck_assert_uint_eq(bh__link_header_room(&wire.link), 4096 - 8 - 12);
}
END_TEST

START_TEST(a_method_larger_than_most_fits_and_one_larger_than_a_frame_is_told)
{
    static char text[BH__FRAME_MAX], bytes[2 * BH__FRAME_MAX];
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes("x"),
                                .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = {100000, text}}};
    amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes("q"), .arguments = {1, &entry}};
    bh__link_send(&wire.link, 1, AMQP_QUEUE_DECLARE_METHOD, &declare);
    ck_assert(!bh__link_is_broken(&wire.link));
    ck_assert_uint_gt(pair_receive(&wire, bytes, sizeof bytes), 100000);
    entry.value.value.bytes.len = sizeof text;
    bh__link_send(&wire.link, 1, AMQP_QUEUE_DECLARE_METHOD, &declare);
    ck_assert_int_eq(wire.link.problem.status, BH_ERR_FRAME);
}
END_TEST

START_TEST(what_the_socket_does_not_take_waits)
{
    static char body[4 << 20], bytes[5 << 20];
    amqp_basic_publish_t publish = {.routing_key = amqp_cstring_bytes("key")};
    bh__link_publish(&wire.link, 1, &publish, (bh_bytes){"\0\0", 2}, (bh_bytes){body, sizeof body});
    bh__link_flush(&wire.link, 5);
    ck_assert_uint_gt(bh__buffer_size(&wire.link.out), 0);
    ck_assert_int_eq(bh__link_events(&wire.link), POLLIN | POLLOUT);
    ck_assert_int_eq(wire.link.sent_ms, 5);
    ck_assert_uint_gt(pair_receive(&wire, bytes, sizeof bytes), sizeof body);
    ck_assert_uint_eq(bh__buffer_size(&wire.link.out), 0);
    ck_assert_uint_eq(wire.link.out.capacity, 0); /* so much is not kept */
}
END_TEST

START_TEST(a_write_to_a_peer_that_is_gone_is_a_lost_connection)
{
    close(wire.broker);
    wire.broker = -1;
    bh__link_greet(&wire.link);
    bh__link_flush(&wire.link, 0);
    ck_assert_int_eq(wire.link.problem.status, BH_ERR_CONNECTION);
}
END_TEST

/* ----------------------------------------------------------------------------------- heartbeats */

START_TEST(a_heartbeat_is_sent_after_half_the_time_and_only_where_nothing_was)
{
    char bytes[16];
    wire.link.heartbeat_ms = 1000;
    wire.link.sent_ms = wire.link.received_ms = 100;
    ck_assert_int_eq(bh__link_next_beat_ms(&wire.link), 600);
    bh__link_beat(&wire.link, 599);
    ck_assert_uint_eq(bh__buffer_size(&wire.link.out), 0);
    bh__link_beat(&wire.link, 600);
    bh__link_beat(&wire.link, 601);
    ck_assert_int_eq(bh__link_next_beat_ms(&wire.link), 2100); /* a written frame is a sign of life */
    ck_assert_uint_eq(pair_receive(&wire, bytes, sizeof bytes), 8);
    ck_assert_mem_eq(bytes, "\x8\0\0\0\0\0\0\xCE", 8);
}
END_TEST

START_TEST(a_peer_that_is_silent_for_two_heartbeats_is_lost)
{
    wire.link.heartbeat_ms = 1000;
    wire.link.sent_ms = wire.link.received_ms = 100;
    bh__link_beat(&wire.link, 2099);
    ck_assert(!bh__link_is_broken(&wire.link));
    bh__link_beat(&wire.link, 2100);
    expect_broken("no heartbeat for 2000 ms");
}
END_TEST

START_TEST(without_heartbeats_silence_is_nothing)
{
    bh__link_beat(&wire.link, INT64_MAX);
    ck_assert(!bh__link_is_broken(&wire.link));
    ck_assert_int_eq(bh__link_next_beat_ms(&wire.link), INT64_MAX);
    wire.link.heartbeat_ms = 1000;
    wire.link.is_open = 0;
    bh__link_beat(&wire.link, INT64_MAX);
    ck_assert(!bh__link_is_broken(&wire.link));
    ck_assert_int_eq(bh__link_next_beat_ms(&wire.link), INT64_MAX);
}
END_TEST

START_TEST(each_phase_waits_for_its_own_event)
{
    static const struct {
        bh__phase phase;
        short tls_wants;
        short events;
    } cases[] = {{BH__CLOSED, 0, 0},
                 {BH__RESOLVING, 0, POLLIN},
                 {BH__CONNECTING, 0, POLLOUT},
                 {BH__SECURING, 0, POLLIN},
                 {BH__SECURING, POLLOUT, POLLOUT},
                 {BH__TALKING, 0, POLLIN},
                 {BH__TALKING, POLLIN, POLLIN},
                 {BH__TALKING, POLLOUT, POLLIN | POLLOUT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        wire.link.phase = cases[i].phase;
        wire.link.socket.tls_wants = cases[i].tls_wants;
        ck_assert_int_eq(bh__link_events(&wire.link), cases[i].events);
    }
}
END_TEST

Suite *suite_link(void)
{
    Suite *suite = suite_create("link");
    TCase *framing = tcase_create("framing");
    tcase_add_checked_fixture(framing, set_up, tear_down);
    tcase_add_test(framing, frames_come_out_whole_and_in_order);
    tcase_add_test(framing, a_frame_that_comes_byte_for_byte_is_there_with_its_last);
    tcase_add_test(framing, megabytes_of_frames_come_through);
    tcase_add_loop_test(framing, what_is_no_amqp_is_told_with_what_to_check, 0, 4);
    tcase_add_test(framing, a_frame_that_is_larger_than_agreed_ends_the_connection_at_its_start);
    tcase_add_test(framing, a_size_of_four_gigabytes_is_not_waited_for);
    tcase_add_test(framing, a_content_header_may_be_a_megabyte_larger_and_no_more);
    tcase_add_test(framing, a_frame_with_another_end_ends_the_connection);
    tcase_add_test(framing, frames_that_came_before_the_other_side_closed_are_read);
    tcase_add_test(framing, the_first_problem_is_the_one_that_is_told);
    tcase_add_test(framing, a_link_that_is_closed_is_as_new);
    suite_add_tcase(suite, framing);
    TCase *methods = tcase_create("methods");
    tcase_add_checked_fixture(methods, set_up, tear_down);
    tcase_add_test(methods, a_method_is_decoded);
    tcase_add_test(methods, the_reply_that_is_awaited_is_kept_and_no_other);
    tcase_add_test(methods, a_close_of_the_channel_is_a_reply_too);
    tcase_add_loop_test(methods, a_method_that_cannot_be_read_ends_the_connection, 0, 6);
    suite_add_tcase(suite, methods);
    TCase *writing = tcase_create("writing");
    tcase_add_checked_fixture(writing, set_up, tear_down);
    tcase_add_test(writing, the_greeting_is_the_protocol_header);
    tcase_add_test(writing, a_publish_is_cut_into_frames_of_the_size_agreed_on);
    tcase_add_test(writing, the_room_for_properties_is_what_a_frame_holds);
    tcase_add_test(writing, a_method_larger_than_most_fits_and_one_larger_than_a_frame_is_told);
    tcase_add_test(writing, what_the_socket_does_not_take_waits);
    tcase_add_test(writing, a_write_to_a_peer_that_is_gone_is_a_lost_connection);
    suite_add_tcase(suite, writing);
    TCase *heartbeats = tcase_create("heartbeats");
    tcase_add_checked_fixture(heartbeats, set_up, tear_down);
    tcase_add_test(heartbeats, a_heartbeat_is_sent_after_half_the_time_and_only_where_nothing_was);
    tcase_add_test(heartbeats, a_peer_that_is_silent_for_two_heartbeats_is_lost);
    tcase_add_test(heartbeats, without_heartbeats_silence_is_nothing);
    tcase_add_test(heartbeats, each_phase_waits_for_its_own_event);
    suite_add_tcase(suite, heartbeats);
    return suite;
}
