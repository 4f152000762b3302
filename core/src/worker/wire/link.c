#include "worker/wire/link.h"

#include "worker/wire/clock.h"
#include "worker/wire/content.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    FRAME_START = 7, /* type, channel, size */
    FRAME_END = 0xCE,
    FRAME_OVERHEAD = FRAME_START + 1,
    METHOD_ID = 4,
    HEADER_START = 12,     /* of a content header: class, weight, body size */
    MOST_EXCESS = 1048576, /* RabbitMQ adds headers to a message, and does not look at frame_max then */
    READ_BYTES = 131072,
    MOST_READS = 4,
    METHOD_BYTES = 4096, /* most methods are smaller */
    POOL_BYTES = 4096,
    KEPT_OUT_BYTES = 1048576
};

void bh__link_init(bh__link *self)
{
    memset(self, 0, sizeof *self);
    self->socket.fd = -1;
    self->frame_max = BH__FRAME_MAX;
    init_amqp_pool(&self->pool, POOL_BYTES);
    init_amqp_pool(&self->reply_pool, POOL_BYTES);
}

void bh__link_close(bh__link *self)
{
    bh__link empty = {.in = self->in,
                      .out = self->out,
                      .pool = self->pool,
                      .reply_pool = self->reply_pool,
                      .problem = self->problem,
                      .frame_max = BH__FRAME_MAX,
                      .socket = {.fd = -1}};
    bh__socket_close(&self->socket);
    bh__report_clear(&empty.problem);
    bh__buffer_clear(&empty.in);
    bh__buffer_clear(&empty.out);
    *self = empty;
}

void bh__link_free(bh__link *self)
{
    bh__socket_close(&self->socket);
    bh__buffer_free(&self->in);
    bh__buffer_free(&self->out);
    empty_amqp_pool(&self->pool);
    empty_amqp_pool(&self->reply_pool);
    bh__report_free(&self->problem);
}

void bh__link_fail(bh__link *self, bh_status status, const char *format, ...)
{
    if (bh__link_is_broken(self))
        return;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    bh__report_set(&self->problem, status, "%s", text);
    self->is_open = self->has_more = 0;
}

static void fail_socket(bh__link *self)
{
    int error = errno;
    self->is_cut = !bh__link_is_broken(self);
    bh__link_fail(self, BH_ERR_CONNECTION, "the connection was lost (%s)",
                  error ? strerror(error) : "the other side closed it");
}

static void fail_memory(bh__link *self)
{
    bh__link_fail(self, BH_ERR_NO_MEMORY, "no memory for the connection");
}

short bh__link_events(const bh__link *self)
{
    switch (self->phase) {
    case BH__CLOSED:
        return 0;
    case BH__RESOLVING:
        return POLLIN;
    case BH__CONNECTING:
        return POLLOUT;
    case BH__SECURING:
        return (short)(self->socket.tls_wants ? self->socket.tls_wants : POLLIN);
    case BH__TALKING:
        break;
    }
    int is_writing = self->socket.tls_wants == POLLOUT || (bh__buffer_size(&self->out) && !self->socket.tls_wants);
    return (short)(is_writing ? POLLIN | POLLOUT : POLLIN);
}

void bh__link_read(bh__link *self, int64_t now_ms)
{
    self->has_more = 0;
    for (int i = 0; i < MOST_READS; i++) {
        if (!bh__buffer_reserve(&self->in, READ_BYTES)) {
            fail_memory(self);
            return;
        }
        size_t room = self->in.capacity - self->in.end;
        ssize_t count = bh__socket_read(&self->socket, self->in.data + self->in.end, room);
        if (count < 0 && i > 0)
            break; /* first what came before; the next read fails again */
        if (count < 0)
            fail_socket(self);
        if (count <= 0)
            return;
        self->in.end += (size_t)count;
        self->received_ms = now_ms;
        if ((size_t)count < room && !self->socket.tls)
            return; /* a short read: there was no more, and poll reports the next bytes */
        if (bh__buffer_size(&self->in) >= READ_BYTES)
            break;
    }
    self->has_more = 1;
}

void bh__link_flush(bh__link *self, int64_t now_ms)
{
    while (bh__buffer_size(&self->out) > 0 && !bh__link_is_broken(self)) {
        ssize_t count = bh__socket_write(&self->socket, self->out.data + self->out.begin, bh__buffer_size(&self->out));
        if (count < 0)
            fail_socket(self);
        if (count <= 0)
            return;
        self->out.begin += (size_t)count;
        self->sent_ms = now_ms;
    }
    bh__buffer_clear(&self->out);
    if (self->out.capacity > KEPT_OUT_BYTES)
        bh__buffer_free(&self->out);
}

int bh__link_next(bh__link *self, bh__frame *frame)
{
    size_t size = bh__buffer_size(&self->in);
    if (size < FRAME_OVERHEAD || bh__link_is_broken(self))
        return 0;
    const char *at = self->in.data + self->in.begin;
    size_t payload = (size_t)bh__get_number(at + 3, 4);
    frame->type = (unsigned char)at[0];
    if (frame->type != AMQP_FRAME_METHOD && frame->type != AMQP_FRAME_HEADER && frame->type != AMQP_FRAME_BODY &&
        frame->type != AMQP_FRAME_HEARTBEAT) {
        bh__link_fail(self, BH_ERR_CONNECTION,
                      "the other side does not use AMQP 0-9-1; check the port, and whether it needs TLS (amqps://)");
        return 0;
    }
    size_t most = self->frame_max + (frame->type == AMQP_FRAME_HEADER ? MOST_EXCESS : 0);
    if (payload > most - FRAME_OVERHEAD) {
        bh__link_fail(self, BH_ERR_CONNECTION, "a frame of %zu bytes came, and %zu were agreed on", payload,
                      self->frame_max);
        return 0;
    }
    if (size < payload + FRAME_OVERHEAD)
        return 0;
    if ((unsigned char)at[FRAME_START + payload] != FRAME_END) {
        bh__link_fail(self, BH_ERR_CONNECTION, "a frame has a wrong end");
        return 0;
    }
    frame->channel = (amqp_channel_t)bh__get_number(at + 1, 2);
    frame->payload = (bh_bytes){at + FRAME_START, payload};
    self->in.begin += payload + FRAME_OVERHEAD;
    return 1;
}

/* Returns 1 if librabbitmq may decode these arguments. It decodes tables by recursion, as deep as
 * they nest, and only connection.start of a broker's methods has one. */
static int is_decodable(amqp_method_number_t method, bh_bytes arguments)
{
    enum { VERSION_BYTES = 2, LENGTH_BYTES = 4, TABLE_START = VERSION_BYTES + LENGTH_BYTES };
    switch (method) {
    case AMQP_CONNECTION_START_METHOD: {
        if (arguments.size < TABLE_START)
            return 0;
        size_t size = (size_t)bh__get_number(arguments.data + VERSION_BYTES, LENGTH_BYTES);
        return size <= arguments.size - TABLE_START &&
               bh__content_is_shallow((bh_bytes){arguments.data + TABLE_START, size});
    }
    case AMQP_CONNECTION_START_OK_METHOD:
    case AMQP_EXCHANGE_DECLARE_METHOD:
    case AMQP_EXCHANGE_BIND_METHOD:
    case AMQP_EXCHANGE_UNBIND_METHOD:
    case AMQP_QUEUE_DECLARE_METHOD:
    case AMQP_QUEUE_BIND_METHOD:
    case AMQP_QUEUE_UNBIND_METHOD:
    case AMQP_BASIC_CONSUME_METHOD:
        return 0;
    default:
        return 1;
    }
}

int bh__link_decode(bh__link *self, const bh__frame *frame, amqp_method_t *out)
{
    if (frame->payload.size < METHOD_ID) {
        bh__link_fail(self, BH_ERR_CONNECTION, "a method came that is no method");
        return 0;
    }
    out->id = (amqp_method_number_t)bh__get_number(frame->payload.data, METHOD_ID);
    int is_reply = self->awaited && frame->channel == self->reply_channel &&
                   (out->id == self->awaited || out->id == self->awaited_too || out->id == AMQP_CHANNEL_CLOSE_METHOD);
    amqp_pool_t *pool = is_reply ? &self->reply_pool : &self->pool;
    recycle_amqp_pool(pool);
    bh_bytes arguments = {frame->payload.data + METHOD_ID, frame->payload.size - METHOD_ID};
    if (!is_decodable(out->id, arguments) ||
        amqp_decode_method(out->id, pool, bh__to_amqp(arguments), &out->decoded) != AMQP_STATUS_OK) {
        bh__link_fail(self, BH_ERR_CONNECTION, "a method came that cannot be read (%u.%u)", out->id >> 16,
                      out->id & 0xFFFFu);
        return 0;
    }
    if (is_reply) {
        self->reply = *out;
        self->awaited = self->awaited_too = 0;
    }
    return 1;
}

/* -------------------------------------------------------------------------------------- writing */

static void put_start(bh__link *self, int type, amqp_channel_t channel, size_t payload)
{
    bh__put_number(&self->out, (uint64_t)type, 1);
    bh__put_number(&self->out, channel, 2);
    bh__put_number(&self->out, payload, 4);
}

static void put_end(bh__link *self)
{
    bh__put_number(&self->out, FRAME_END, 1);
}

static int reserve_out(bh__link *self, size_t size)
{
    if (bh__link_is_broken(self))
        return 0;
    if (bh__buffer_reserve(&self->out, size))
        return 1;
    fail_memory(self);
    return 0;
}

void bh__link_greet(bh__link *self)
{
    static const char header[] = {'A', 'M', 'Q', 'P', 0, 0, 9, 1};
    if (reserve_out(self, sizeof header))
        bh__put_bytes(&self->out, (bh_bytes){header, sizeof header});
}

/* Writes a method's frame, in `room` bytes. Returns its size; 0 if they are too few. */
static size_t put_method(bh__link *self, amqp_channel_t channel, amqp_method_number_t method, void *arguments,
                         size_t room)
{
    if (!reserve_out(self, room))
        return 0;
    bh_bytes space = {self->out.data + self->out.end + FRAME_START + METHOD_ID, room - FRAME_OVERHEAD - METHOD_ID};
    int size = amqp_encode_method(method, arguments, bh__to_amqp(space));
    if (size < 0)
        return 0;
    put_start(self, AMQP_FRAME_METHOD, channel, (size_t)size + METHOD_ID);
    bh__put_number(&self->out, method, METHOD_ID);
    self->out.end += (size_t)size;
    put_end(self);
    return (size_t)size + METHOD_ID + FRAME_OVERHEAD;
}

void bh__link_send(bh__link *self, amqp_channel_t channel, amqp_method_number_t method, void *arguments)
{
    if (put_method(self, channel, method, arguments, METHOD_BYTES) == 0 && !bh__link_is_broken(self) &&
        put_method(self, channel, method, arguments, self->frame_max) == 0)
        bh__link_fail(self, BH_ERR_FRAME, "a method's arguments do not fit a frame of %zu bytes", self->frame_max);
}

size_t bh__link_header_room(const bh__link *self)
{
    return self->frame_max - FRAME_OVERHEAD - HEADER_START;
}

void bh__link_publish(bh__link *self, amqp_channel_t channel, const amqp_basic_publish_t *publish, bh_bytes properties,
                      bh_bytes body)
{
    amqp_basic_publish_t method = *publish;
    size_t most = self->frame_max - FRAME_OVERHEAD;
    size_t frames = body.size / most + 1;
    if (!reserve_out(self, METHOD_BYTES + FRAME_OVERHEAD + HEADER_START + properties.size + body.size +
                               frames * FRAME_OVERHEAD))
        return;
    bh__link_send(self, channel, AMQP_BASIC_PUBLISH_METHOD, &method);
    put_start(self, AMQP_FRAME_HEADER, channel, HEADER_START + properties.size);
    bh__put_number(&self->out, AMQP_BASIC_CLASS, 2);
    bh__put_number(&self->out, 0, 2);
    bh__put_number(&self->out, body.size, 8);
    bh__put_bytes(&self->out, properties);
    put_end(self);
    for (size_t sent = 0; sent < body.size;) {
        bh_bytes fragment = {body.data + sent, body.size - sent < most ? body.size - sent : most};
        put_start(self, AMQP_FRAME_BODY, channel, fragment.size);
        bh__put_bytes(&self->out, fragment);
        put_end(self);
        sent += fragment.size;
    }
}

bh_status bh__link_answer_channel_close(bh__link *self, amqp_channel_t channel, const amqp_channel_close_t *close,
                                        const char *what, bh__report *report)
{
    static const struct {
        int code;
        bh_status status;
    } codes[] = {{AMQP_ACCESS_REFUSED, BH_ERR_ACCESS},
                 {AMQP_NOT_FOUND, BH_ERR_MISSING},
                 {AMQP_RESOURCE_LOCKED, BH_ERR_CLASH},
                 {AMQP_PRECONDITION_FAILED, BH_ERR_CLASH}};
    bh_status status = BH_ERR_CHANNEL;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].code == close->reply_code)
            status = codes[i].status;
    bh_bytes text = bh__from_amqp(close->reply_text);
    amqp_channel_close_ok_t ok = {0};
    bh__report_set(report, status, "%s failed: the broker closed the channel (%d %.*s)", what, close->reply_code,
                   (int)text.size, text.data);
    bh__link_send(self, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
    return status;
}

void bh__link_answer_close(bh__link *self, const amqp_connection_close_t *close)
{
    amqp_connection_close_ok_t ok = {0};
    bh_bytes text = bh__from_amqp(close->reply_text);
    bh__link_send(self, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
    bh__link_flush(self, bh__monotonic_ms());
    self->close_code = close->reply_code;
    snprintf(self->close_text, sizeof self->close_text, "%.*s", (int)text.size, text.data);
    bh__link_fail(self, BH_ERR_CONNECTION, "the broker closed the connection (%d %.*s)", close->reply_code,
                  (int)text.size, text.data);
}

/* ----------------------------------------------------------------------------------- heartbeats */

void bh__link_beat(bh__link *self, int64_t now_ms)
{
    if (!self->is_open || self->heartbeat_ms == 0)
        return;
    if (now_ms - self->received_ms >= 2 * self->heartbeat_ms)
        bh__link_fail(self, BH_ERR_CONNECTION, "the connection was lost (no heartbeat for %lld ms)",
                      (long long)(now_ms - self->received_ms));
    if (now_ms - self->sent_ms >= self->heartbeat_ms / 2 && bh__buffer_size(&self->out) == 0 &&
        reserve_out(self, FRAME_OVERHEAD)) {
        put_start(self, AMQP_FRAME_HEARTBEAT, 0, 0);
        put_end(self);
    }
}

int64_t bh__link_next_beat_ms(const bh__link *self)
{
    if (!self->is_open || self->heartbeat_ms == 0)
        return INT64_MAX;
    int64_t dead_ms = self->received_ms + 2 * self->heartbeat_ms;
    int64_t due_ms = bh__buffer_size(&self->out) ? INT64_MAX : self->sent_ms + self->heartbeat_ms / 2;
    return dead_ms < due_ms ? dead_ms : due_ms;
}
