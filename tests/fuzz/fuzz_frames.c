/*
 * Fuzzing: bytes are what a broker sends, from the fourth on; those before choose the settings and
 * how the stream falls into pieces. The link and the assembler must give the same result, whatever
 * the pieces are. Each whole message is published by another link and read by a third, and must
 * come out as it went in.
 */
#include "../wire/properties.h"
#include "fuzz.h"

#include "worker/wire/assembler.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHOICES = 3, MOST_BYTES = 32768, MOST_PIECES = 128, NOW_MS = 0 };

/* A body of gigabytes is announced easily: such an allocation fails, as it does where memory is
 * short. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=256";
}

/* Two ends of a stream. */
static void open_stream(int ends[2])
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(fcntl(ends[i], F_SETFL, O_NONBLOCK) == 0);
}

/* Links are used again, as their buffers cost more than the rest of a run. */
static bh__link reading, publishing, republished;

static void open_link(bh__link *link, int fd, size_t frame_max)
{
    if (!link->pool.pagesize)
        bh__link_init(link);
    link->phase = BH__TALKING;
    link->is_open = 1;
    link->frame_max = frame_max;
    link->socket.fd = fd;
}

static void add_record(bh__buffer *log, char kind, uint64_t number, bh_bytes bytes)
{
    add_bytes(log, &kind, 1);
    add_number(log, number, 8);
    add_counted(log, 4, bytes);
}

static void add_name(bh__buffer *log, char kind, amqp_bytes_t name)
{
    add_record(log, kind, 0, bh__from_amqp(name));
}

/* A method that announces content begins a message, as the consumer, the publisher and the replay
 * do it. */
static void begin_message(bh__assembler *assembler, const amqp_method_t *method)
{
    if (method->id == AMQP_BASIC_DELIVER_METHOD) {
        const amqp_basic_deliver_t *deliver = method->decoded;
        bh__assembler_begin(assembler, deliver->delivery_tag, deliver->redelivered, deliver->exchange,
                            deliver->routing_key);
    } else if (method->id == AMQP_BASIC_RETURN_METHOD) {
        const amqp_basic_return_t *returned = method->decoded;
        bh__assembler_begin(assembler, 0, 0, returned->exchange, returned->routing_key);
    } else if (method->id == AMQP_BASIC_PUBLISH_METHOD) {
        const amqp_basic_publish_t *publish = method->decoded;
        bh__assembler_begin(assembler, 0, 0, publish->exchange, publish->routing_key);
    }
}

/* Publishes the message and reads it again. */
static void check_publish(const bh_message *message)
{
    bh__link *out = &publishing, *in = &republished;
    bh__frame frame;
    bh__assembler assembler = {.is_begun = 0};
    bh_message *again = NULL;
    int ends[2];
    open_stream(ends);
    open_link(out, ends[0], BH__LEAST_FRAME_MAX);
    open_link(in, ends[1], BH__LEAST_FRAME_MAX);
    if (message->properties.size <= bh__link_header_room(out)) {
        amqp_basic_publish_t publish = {.exchange = bh__to_amqp(message->exchange),
                                        .routing_key = bh__to_amqp(message->routing_key)};
        bh__link_publish(out, 9, &publish, message->properties, message->body);
        while (!again) {
            bh__link_flush(out, NOW_MS);
            bh__link_read(in, NOW_MS);
            CHECK(!bh__link_is_broken(out) && !bh__link_is_broken(in));
            while (bh__link_next(in, &frame)) {
                amqp_method_t method;
                CHECK(frame.channel == 9);
                if (frame.type == AMQP_FRAME_METHOD) {
                    CHECK(bh__link_decode(in, &frame, &method) && method.id == AMQP_BASIC_PUBLISH_METHOD);
                    begin_message(&assembler, &method);
                } else {
                    CHECK(!again && bh__assembler_add(&assembler, &frame, &again) == BH_OK);
                }
            }
            CHECK(!bh__link_is_broken(in));
        }
        CHECK(bh__same(again->exchange, message->exchange) && bh__same(again->routing_key, message->routing_key));
        CHECK(bh__same(again->properties, message->properties) && bh__same(again->body, message->body));
        CHECK(bh__buffer_size(&in->in) == 0);
    }
    bh__assembler_clear(&assembler);
    bh_message_free(again);
    bh__link_close(out);
    bh__link_close(in);
}

static void take_in(bh__link *link, bh__assembler *assembler, const bh__frame *frame, bh__buffer *log)
{
    amqp_method_t method;
    bh_message *message = NULL;
    add_record(log, 'f', (uint64_t)frame->type << 16 | frame->channel, frame->payload);
    if (frame->type == AMQP_FRAME_METHOD) {
        int is_decoded = bh__link_decode(link, frame, &method);
        CHECK(is_decoded == !bh__link_is_broken(link));
        add_record(log, 'd', (uint64_t)is_decoded, bh_str(""));
        if (!is_decoded)
            return;
        begin_message(assembler, &method);
        if (link->reply.id == AMQP_QUEUE_DECLARE_OK_METHOD)
            add_name(log, 'q', ((const amqp_queue_declare_ok_t *)link->reply.decoded)->queue);
        if (link->reply.id == AMQP_CHANNEL_CLOSE_METHOD)
            add_name(log, 'c', ((const amqp_channel_close_t *)link->reply.decoded)->reply_text);
        return;
    }
    bh_status status = bh__assembler_add(assembler, frame, &message);
    CHECK(status == BH_OK || status == BH_ERR_CONNECTION || status == BH_ERR_NO_MEMORY);
    add_record(log, 'a', (uint64_t)(-(int)status), bh_str(""));
    if (!message)
        return;
    CHECK(status == BH_OK && message->body.data[message->body.size] == '\0');
    add_record(log, 'x', message->delivery_tag, message->exchange);
    add_record(log, 'r', (uint64_t)message->redelivered, message->routing_key);
    add_record(log, 'p', 0, message->properties);
    add_record(log, 'b', 0, message->body);
    check_publish(message);
    bh_message_free(message);
}

/* Sends the stream in pieces of up to `most` bytes, and logs all that comes out. */
static void run(const uint8_t *choices, bh_bytes stream, size_t most, bh__buffer *log)
{
    bh__link *link = &reading;
    bh__frame frame;
    bh__assembler assembler = {.is_begun = 0};
    uint32_t state = (uint32_t)choices[1] << 8 | choices[2] | 1;
    int ends[2];
    open_stream(ends);
    open_link(link, ends[0], choices[0] & 1 ? BH__LEAST_FRAME_MAX : BH__FRAME_MAX);
    link->reply_channel = choices[0] >> 1 & 3;
    link->awaited = choices[0] & 8 ? AMQP_QUEUE_DECLARE_OK_METHOD : 0;
    for (size_t sent = 0; sent < stream.size && !bh__link_is_broken(link);) {
        state = state * 1664525 + 1013904223;
        size_t piece = most > 1 ? (state >> 16) % most + 1 : 1;
        if (piece > stream.size - sent)
            piece = stream.size - sent;
        ssize_t written = write(ends[1], stream.data + sent, piece);
        CHECK(written > 0);
        sent += (size_t)written;
        do
            bh__link_read(link, NOW_MS);
        while (link->has_more);
        while (bh__link_next(link, &frame))
            take_in(link, &assembler, &frame, log);
    }
    add_record(log, 'e', (uint64_t)(-(int)link->problem.status), bh__report_text(&link->problem));
    CHECK(bh__link_is_broken(link) == !link->is_open);
    bh__assembler_clear(&assembler);
    bh__link_close(link);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bh__buffer whole, pieces;
    if (size < CHOICES || size > MOST_BYTES)
        return 0;
    bh_bytes stream = {(const char *)data + CHOICES, size - CHOICES};
    bh__buffer_clear(&whole);
    bh__buffer_clear(&pieces);
    run(data, stream, UINT16_MAX, &whole);
    size_t most = data[1] % 4 ? 4u * data[1] : 1, least = stream.size / MOST_PIECES + 1;
    run(data, stream, most > least ? most : least, &pieces);
    CHECK(bh__same(bytes_of(&whole), bytes_of(&pieces)));
    return 0;
}
