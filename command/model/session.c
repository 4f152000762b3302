/* Session: the bytes of a connection, cut into frames, and frames into methods. */
#include "model/channel.h"
#include "model/closing.h"
#include "model/login.h"
#include "model/methods.h"
#include "model/output.h"
#include "model/publishing.h"
#include "model/session.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    FRAME_METHOD = 1,
    FRAME_HEADER = 2,
    FRAME_BODY = 3,
    FRAME_HEARTBEAT = 8,
    FRAME_END = 0xCE,
    FRAME_START = 7,
    SNIPPET = 16,     /* octets of a frame in an error */
    HEADER_BYTES = 8, /* of the protocol header */
    FRAME_MAX = 131072
};

model_link *model_connect(model *self)
{
    model_link *link = self->is_stopped ? NULL : calloc(1, sizeof *link);
    if (!link)
        return NULL;
    *link = (model_link){.broker = self, .next = self->links, .number = ++self->link_count};
    link->frame_max = FRAME_MAX;
    if (self->links)
        self->links->previous = link;
    self->links = link;
    return link;
}

void model_disconnect(model_link *link)
{
    model *broker = link->broker;
    link->stage = MODEL_CLOSED;
    model_end_link(link);
    *(link->previous ? &link->previous->next : &broker->links) = link->next;
    if (link->next)
        link->next->previous = link->previous;
    bh__buffer_free(&link->in);
    bh__buffer_free(&link->out);
    free(link->name);
    free(link);
    model_run(broker);
}

int model_reads(const model_link *link)
{
    return !(link->broker->has_alarm && link->is_publisher && link->stage == MODEL_RUNNING);
}

bh_bytes model_output(const model_link *link)
{
    bh_bytes bytes = {link->out.data ? link->out.data + link->out.begin : "", bh__buffer_size(&link->out)};
    return bytes;
}

void model_sent(model_link *link, size_t size)
{
    size_t there = bh__buffer_size(&link->out);
    link->out.begin += size < there ? size : there;
    if (bh__buffer_size(&link->out) == 0)
        bh__buffer_clear(&link->out);
}

int model_is_closing(const model_link *link)
{
    return link->is_broken || link->stage == MODEL_CLOSED;
}

/* Methods of channel 0. */
static void do_connection(model_link *link, const amqp_method_t *method, bh_bytes table)
{
    amqp_connection_close_ok_t ok = {0};
    if (method->id == AMQP_CONNECTION_CLOSE_METHOD) {
        model_end_link(link);
        model_send(link, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
        link->stage = MODEL_CLOSED;
    } else if (link->stage == MODEL_CLOSING) {
        if (method->id == AMQP_CONNECTION_CLOSE_OK_METHOD)
            link->stage = MODEL_CLOSED;
    } else if (link->stage < MODEL_RUNNING) {
        model_login_do(link, method, table);
    } else {
        model_link_refuse(link, 503, "unimplemented method");
    }
}

/* A channel that the broker closed: only the client's answer counts. */
static void do_closing_channel(model_channel *channel, amqp_method_number_t method)
{
    model_link *link = channel->link;
    amqp_channel_close_ok_t ok = {0};
    if (method != AMQP_CHANNEL_CLOSE_METHOD && method != AMQP_CHANNEL_CLOSE_OK_METHOD)
        return;
    int number = channel->number;
    model_channel_forget(channel);
    if (method == AMQP_CHANNEL_CLOSE_METHOD)
        model_send(link, number, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
}

static void open_channel(model_link *link, int number)
{
    int count = 0;
    for (size_t i = 0; i < link->channel_capacity; i++)
        count += link->channels[i] != NULL;
    if (count < link->channel_max) {
        model_channel_open(link, number);
        return;
    }
    link->method = 0;
    model_link_refuse(link, 530, "number of channels opened (%d) has reached the negotiated channel_max (%d)", count,
                      link->channel_max);
}

static void do_channel(model_link *link, int number, const amqp_method_t *method, bh_bytes table)
{
    model_channel *channel = model_channel_find(link, number);
    if (link->stage != MODEL_RUNNING) {
        model_link_refuse(link, 503, "channel methods are not expected before connection.open");
    } else if (channel && channel->is_closing) {
        do_closing_channel(channel, method->id);
    } else if (!channel && method->id == AMQP_CHANNEL_OPEN_METHOD) {
        open_channel(link, number);
    } else if (!channel && method->id == AMQP_CHANNEL_CLOSE_OK_METHOD) {
        return; /* to a close that crossed the client's own */
    } else if (!channel) {
        model_link_refuse(link, 504, "expected 'channel.open'");
    } else if (channel->is_publishing) {
        model_publishing_interrupt(channel);
    } else {
        model_channel_do(channel, method, table);
    }
}

static void do_method(model_link *link, int number, bh_bytes payload)
{
    bh_bytes table;
    amqp_method_t method = {.id = payload.size < 4 ? 0 : (uint32_t)bh__get_number(payload.data, 4)};
    if (link->stage == MODEL_CLOSING && number != 0)
        return;
    link->method = method.id;
    if (!model_method_is_known(method.id)) { /* RabbitMQ's reader crashes */
        link->is_broken = 1;
        model_end_link(link);
        return;
    }
    bh_bytes arguments = {payload.data + 4, payload.size - 4};
    recycle_amqp_pool(&link->broker->pool);
    if (!model_method_table(method.id, arguments, &table) ||
        amqp_decode_method(method.id, &link->broker->pool, bh__to_amqp(arguments), &method.decoded) < 0) {
        model_link_refuse(link, 502, "malformed arguments of method {%u,%u}", (unsigned)(method.id >> 16),
                          (unsigned)(method.id & 0xFFFF));
        return;
    }
    if (number == 0)
        do_connection(link, &method, table);
    else
        do_channel(link, number, &method, table);
}

static void do_content(model_link *link, int number, int type, bh_bytes payload)
{
    model_channel *channel = model_channel_find(link, number);
    if (link->stage == MODEL_CLOSING || (channel && channel->is_closing))
        return;
    link->method = AMQP_BASIC_PUBLISH_METHOD;
    if (!channel || link->stage != MODEL_RUNNING)
        model_link_refuse(link, 504, "expected 'channel.open'");
    else if (type == FRAME_HEADER)
        model_publishing_header(channel, payload);
    else
        model_publishing_body(channel, payload);
}

/* An alarm stops reading from a publisher, after its publish. */
static void block(model_link *link)
{
    amqp_connection_blocked_t blocked = {.reason = bh__to_amqp(bh_str("low on memory"))};
    if (model_reads(link) || link->is_blocked)
        return;
    link->is_blocked = 1;
    if (link->has_blocked)
        model_send(link, 0, AMQP_CONNECTION_BLOCKED_METHOD, &blocked);
}

/* Writes octets as Erlang does: <<"text">> if all can be printed, else <<1,2>>. */
static void show_octets(char text[128], bh_bytes octets)
{
    int is_text = octets.size > 0;
    size_t at = 2;
    for (size_t i = 0; i < octets.size; i++)
        is_text = is_text && octets.data[i] >= ' ' && octets.data[i] <= '~';
    memcpy(text, "<<", 3);
    if (is_text)
        at += (size_t)snprintf(text + at, 128 - at, "\"%.*s\"", (int)octets.size, octets.data);
    for (size_t i = 0; i < octets.size && !is_text; i++)
        at += (size_t)snprintf(text + at, 128 - at, i ? ",%d" : "%d", (unsigned char)octets.data[i]);
    memcpy(text + at, ">>", 3);
}

static void refuse_frame(model_link *link, int type, bh_bytes payload, size_t size, const char *why)
{
    char octets[128];
    int is_all = size <= SNIPPET;
    link->method = 0;
    payload.size = payload.size < SNIPPET ? payload.size : SNIPPET;
    show_octets(octets, payload);
    model_link_refuse(link, 501, "type %d, %s octets = %s: %s", type, is_all ? "all" : "first 16", octets, why);
}

static void do_frame(model_link *link, int type, int number, bh_bytes payload)
{
    switch (type) {
    case FRAME_METHOD:
        do_method(link, number, payload);
        break;
    case FRAME_HEADER:
    case FRAME_BODY:
        do_content(link, number, type, payload);
        break;
    case FRAME_HEARTBEAT:
        break;
    default:
        link->method = 0;
        refuse_frame(link, type, payload, payload.size, "unknown_frame");
    }
    model_run(link->broker);
    block(link);
}

/* Takes one frame from the input. Returns 0 if it is not complete. */
static int take_frame(model_link *link)
{
    bh__buffer *in = &link->in;
    const char *data = in->data + in->begin;
    size_t there = bh__buffer_size(in);
    if (there < FRAME_START)
        return 0;
    size_t size = bh__get_number(data + 3, 4);
    int type = (unsigned char)data[0], number = (int)bh__get_number(data + 1, 2);
    link->method = 0;
    if (size > link->frame_max - 8) {
        char text[80];
        if (there < FRAME_START + SNIPPET)
            return 0;
        snprintf(text, sizeof text, "{frame_too_large,%zu,%zu}", size, link->frame_max - 8);
        refuse_frame(link, type, (bh_bytes){data + FRAME_START, SNIPPET}, size, text);
        link->in.begin = link->in.end; /* the next frame cannot be found */
        return 0;
    }
    if (there < FRAME_START + size + 1)
        return 0;
    if ((unsigned char)data[FRAME_START + size] != FRAME_END) {
        char text[80];
        snprintf(text, sizeof text, "{invalid_frame_end_marker,%d}", (unsigned char)data[FRAME_START + size]);
        refuse_frame(link, type, (bh_bytes){data + FRAME_START, size}, size, text);
        link->in.begin = link->in.end;
        return 0;
    }
    in->begin += FRAME_START + size + 1;
    do_frame(link, type, number, (bh_bytes){data + FRAME_START, size});
    return 1;
}

static int take_header(model_link *link)
{
    bh__buffer *in = &link->in;
    if (bh__buffer_size(in) < HEADER_BYTES)
        return 0;
    in->begin += HEADER_BYTES;
    model_login_header(link, (bh_bytes){in->data + in->begin - HEADER_BYTES, HEADER_BYTES});
    return 1;
}

void model_session_read(model_link *link)
{
    while (!model_is_closing(link) && model_reads(link) &&
           (link->stage == MODEL_AT_HEADER ? take_header(link) : take_frame(link)))
        ;
    if (bh__buffer_size(&link->in) == 0 || model_is_closing(link))
        bh__buffer_clear(&link->in);
}

void model_receive(model_link *link, const char *data, size_t size)
{
    link->has_received = 1;
    if (model_is_closing(link) || size == 0)
        return;
    if (!bh__buffer_reserve(&link->in, size)) {
        link->is_broken = 1;
        return;
    }
    bh__put_bytes(&link->in, (bh_bytes){data, size});
    model_session_read(link);
}

void model_session_alarm(model *self, int is_on)
{
    amqp_connection_unblocked_t unblocked = {0};
    self->has_alarm = is_on;
    for (model_link *link = self->links; link; link = link->next) {
        block(link);
        if (is_on || !link->is_blocked)
            continue;
        link->is_blocked = 0;
        if (link->has_blocked)
            model_send(link, 0, AMQP_CONNECTION_UNBLOCKED_METHOD, &unblocked);
        model_session_read(link);
    }
}
