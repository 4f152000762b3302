#include "client.h"

#include "network.h"
#include "schedule.h"
#include "witness.h"
#include "worker/wire/assembler.h"
#include "worker/wire/login.h"

#include <stdlib.h>

struct client {
    model *broker;
    model_link *end;
    bh__link link;
    bh__uri uri;
    int is_open;
    bh__assembler assembler;
    bh_message *got;
    uint64_t published;
    uint64_t confirmed;
    int is_refused; /* a nack or a return came since the last publish */
};

enum { CHANNEL = 1, HEARTBEAT_OFF = 0 };

/* Moves bytes between both ends until nothing moves. */
static void exchange_bytes(client *self)
{
    for (;;) {
        bh__buffer *out = &self->link.out;
        size_t written = model_reads(self->end) ? bh__buffer_size(out) : 0;
        if (written) {
            model_advance(self->broker, schedule_now_ms());
            network_touch();
            witness_publisher(1);
            model_receive(self->end, out->data + out->begin, written);
            witness_publisher(0);
            bh__buffer_clear(out);
        }
        bh_bytes output = model_output(self->end);
        if (output.size) {
            ENSURE(bh__buffer_reserve(&self->link.in, output.size));
            bh__put_bytes(&self->link.in, output);
            model_sent(self->end, output.size);
        }
        if (!written && !output.size)
            return;
    }
}

static void lose(client *self)
{
    if (self->end) {
        model_disconnect(self->end);
        network_touch();
    }
    self->end = NULL;
    bh__link_close(&self->link);
    bh__assembler_clear(&self->assembler);
}

static void on_method(client *self, const amqp_method_t *method)
{
    switch (method->id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = method->decoded;
        self->confirmed = ack->delivery_tag;
        break;
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = method->decoded;
        self->confirmed = nack->delivery_tag;
        self->is_refused = 1;
        break;
    }
    case AMQP_BASIC_RETURN_METHOD:
        self->is_refused = 1;
        bh__assembler_begin(&self->assembler, 0, 0, amqp_empty_bytes, amqp_empty_bytes);
        break;
    case AMQP_BASIC_GET_OK_METHOD: {
        const amqp_basic_get_ok_t *ok = method->decoded;
        bh__assembler_begin(&self->assembler, ok->delivery_tag, ok->redelivered, ok->exchange, ok->routing_key);
        break;
    }
    default:
        break;
    }
}

/* Reads what came. Returns 0 if the connection or the channel is lost. */
static int pump(client *self)
{
    if (!self->end)
        return 0;
    exchange_bytes(self);
    bh__frame frame;
    while (bh__link_next(&self->link, &frame)) {
        amqp_method_t method = {0, NULL};
        if (frame.type == AMQP_FRAME_METHOD && bh__link_decode(&self->link, &frame, &method)) {
            if (method.id == AMQP_CHANNEL_CLOSE_METHOD || method.id == AMQP_CONNECTION_CLOSE_METHOD) {
                lose(self);
                return 0;
            }
            on_method(self, &method);
        } else if (frame.type == AMQP_FRAME_HEADER || frame.type == AMQP_FRAME_BODY) {
            bh_message *whole;
            ENSURE(bh__assembler_add(&self->assembler, &frame, &whole) == BH_OK);
            if (whole) {
                bh_message_free(self->got);
                self->got = whole;
            }
        }
    }
    if (!bh__link_is_broken(&self->link) && !model_is_closing(self->end))
        return 1;
    lose(self);
    return 0;
}

static int call(client *self, amqp_channel_t channel, amqp_method_number_t method, void *arguments,
                amqp_method_number_t reply, amqp_method_number_t other)
{
    if (!self->end)
        return 0;
    self->link.reply = (amqp_method_t){0, NULL};
    self->link.reply_channel = channel;
    self->link.awaited = reply;
    self->link.awaited_too = other;
    if (method)
        bh__link_send(&self->link, channel, method, arguments);
    if (pump(self) && self->link.reply.id)
        return 1;
    if (self->end)
        lose(self);
    return 0;
}

static int connect_client(client *self)
{
    amqp_connection_open_t open = {.virtual_host = amqp_cstring_bytes("/")};
    amqp_channel_open_t open_channel = {.out_of_band = amqp_empty_bytes};
    amqp_confirm_select_t select = {.nowait = 0};
    self->end = model_connect(self->broker);
    network_touch();
    if (!self->end)
        return 0;
    self->published = self->confirmed = 0;
    bh__link_greet(&self->link);
    if (!call(self, 0, 0, NULL, AMQP_CONNECTION_START_METHOD, 0))
        return 0;
    bh__login_introduce(&self->link, &self->uri, 0, "sim client");
    if (!call(self, 0, 0, NULL, AMQP_CONNECTION_TUNE_METHOD, 0))
        return 0;
    self->uri.heartbeat_s = HEARTBEAT_OFF;
    bh__login_tune(&self->link, &self->uri, CHANNEL);
    return call(self, 0, AMQP_CONNECTION_OPEN_METHOD, &open, AMQP_CONNECTION_OPEN_OK_METHOD, 0) &&
           call(self, CHANNEL, AMQP_CHANNEL_OPEN_METHOD, &open_channel, AMQP_CHANNEL_OPEN_OK_METHOD, 0) &&
           call(self, CHANNEL, AMQP_CONFIRM_SELECT_METHOD, &select, AMQP_CONFIRM_SELECT_OK_METHOD, 0);
}

/* Returns 1 if the client is connected, after it tried. */
static int is_ready(client *self)
{
    return pump(self) || connect_client(self);
}

client *client_new(model *broker)
{
    client *self = calloc(1, sizeof *self);
    bh__report report = {.size = 0};
    ENSURE(self && bh__uri_parse(&self->uri, bh_str("amqp://guest:guest@model/?heartbeat=0"), &report) == BH_OK);
    self->broker = broker;
    bh__link_init(&self->link);
    return self;
}

void client_free(client *self)
{
    lose(self);
    bh__link_free(&self->link);
    bh__uri_free(&self->uri);
    bh_message_free(self->got);
    free(self);
}

int client_declare_exchange(client *self, const char *name, const char *type)
{
    amqp_exchange_declare_t declare = {
        .exchange = amqp_cstring_bytes(name), .type = amqp_cstring_bytes(type), .durable = 1};
    return is_ready(self) &&
           call(self, CHANNEL, AMQP_EXCHANGE_DECLARE_METHOD, &declare, AMQP_EXCHANGE_DECLARE_OK_METHOD, 0);
}

int client_bind(client *self, const char *queue, const char *exchange, const char *key)
{
    amqp_queue_bind_t bind = {.queue = amqp_cstring_bytes(queue),
                              .exchange = amqp_cstring_bytes(exchange),
                              .routing_key = amqp_cstring_bytes(key)};
    return is_ready(self) && call(self, CHANNEL, AMQP_QUEUE_BIND_METHOD, &bind, AMQP_QUEUE_BIND_OK_METHOD, 0);
}

int client_declare_queue(client *self, const char *name, const char *type)
{
    amqp_table_entry_t argument = {.key = amqp_cstring_bytes("x-queue-type"),
                                   .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes(type)}};
    amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes(name), .durable = 1, .arguments = {1, &argument}};
    return is_ready(self) && call(self, CHANNEL, AMQP_QUEUE_DECLARE_METHOD, &declare, AMQP_QUEUE_DECLARE_OK_METHOD, 0);
}

int client_publish(client *self, const char *exchange, const char *key, bh_bytes properties, bh_bytes body)
{
    amqp_basic_publish_t publish = {
        .exchange = amqp_cstring_bytes(exchange), .routing_key = amqp_cstring_bytes(key), .mandatory = 1};
    if (!is_ready(self))
        return 0;
    self->is_refused = 0;
    bh__link_publish(&self->link, CHANNEL, &publish, properties, body);
    uint64_t tag = ++self->published;
    for (int i = 0; i < 1000 && pump(self) && self->confirmed < tag; i++)
        schedule_sleep_us(10000);
    return self->end && self->confirmed >= tag && !self->is_refused;
}

/* Returns 1 if there is a message, 0 if there is none, -1 if the broker gave no answer. */
static int get_message(client *self, const char *queue, int no_ack, client_message *out)
{
    amqp_basic_get_t get = {.queue = amqp_cstring_bytes(queue), .no_ack = no_ack};
    bh_message_free(self->got);
    self->got = NULL;
    if (!is_ready(self) ||
        !call(self, CHANNEL, AMQP_BASIC_GET_METHOD, &get, AMQP_BASIC_GET_OK_METHOD, AMQP_BASIC_GET_EMPTY_METHOD))
        return -1;
    if (!self->got)
        return 0;
    *out = (client_message){self->got->exchange, self->got->routing_key, self->got->properties, self->got->body,
                            self->got->redelivered};
    return 1;
}

int client_get(client *self, const char *queue, client_message *out)
{
    return get_message(self, queue, 1, out) == 1;
}

int client_take(client *self, const char *queue, client_message *out)
{
    return get_message(self, queue, 0, out);
}

int client_settle(client *self, int is_ack)
{
    amqp_basic_ack_t ack = {.delivery_tag = self->got->delivery_tag};
    amqp_basic_reject_t reject = {.delivery_tag = self->got->delivery_tag, .requeue = 0};
    if (!pump(self))
        return 0;
    if (is_ack)
        bh__link_send(&self->link, CHANNEL, AMQP_BASIC_ACK_METHOD, &ack);
    else
        bh__link_send(&self->link, CHANNEL, AMQP_BASIC_REJECT_METHOD, &reject);
    return pump(self);
}
