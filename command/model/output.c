/* Output: methods by librabbitmq's codec, and content in frames of the negotiated size. */
#include "model/output.h"

enum {
    FRAME_METHOD = 1,
    FRAME_HEADER = 2,
    FRAME_BODY = 3,
    FRAME_HEARTBEAT = 8,
    FRAME_END = 0xCE,
    FRAME_EXTRA = 8, /* octets around a payload */
    CLASS_BASIC = 60,
    MOST_METHOD = 8192 /* octets of a method that the broker sends: short strings, or the server's properties */
};

static void put_frame_head(bh__buffer *out, int type, int channel, size_t size)
{
    bh__put_number(out, (uint64_t)type, 1);
    bh__put_number(out, (uint64_t)channel, 2);
    bh__put_number(out, size, 4);
}

/* Notes that something is written; returns 0 if nothing may be. */
static int begins(model_link *link)
{
    link->has_sent = 1;
    return !link->is_broken && link->stage != MODEL_CLOSED;
}

void model_send_bytes(model_link *link, bh_bytes bytes)
{
    if (!begins(link))
        return;
    if (!bh__buffer_reserve(&link->out, bytes.size))
        link->is_broken = 1;
    else
        bh__put_bytes(&link->out, bytes);
}

void model_send(model_link *link, int channel, amqp_method_number_t method, void *arguments)
{
    if (!begins(link))
        return;
    if (!bh__buffer_reserve(&link->out, MOST_METHOD + FRAME_EXTRA + 4)) {
        link->is_broken = 1;
        return;
    }
    bh__buffer *out = &link->out;
    size_t start = out->end;
    put_frame_head(out, FRAME_METHOD, channel, 0);
    bh__put_number(out, method, 4);
    amqp_bytes_t room = {MOST_METHOD, out->data + out->end};
    int size = amqp_encode_method(method, arguments, room);
    if (size < 0) {
        out->end = start;
        link->is_broken = 1;
        return;
    }
    out->end = start + 3;
    bh__put_number(out, (size_t)size + 4, 4);
    out->end += 4 + (size_t)size;
    bh__put_number(out, FRAME_END, 1);
}

void model_send_heartbeat(model_link *link)
{
    static const char frame[] = {FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, (char)FRAME_END};
    model_send_bytes(link, (bh_bytes){frame, sizeof frame});
}

/* Writes the header in one frame, however large: RabbitMQ does not split it either. */
static int put_header(model_link *link, int channel, const model_message *message, model_counts counts)
{
    bh__buffer *out = &link->out;
    if (!bh__buffer_reserve(out, 64))
        return 0;
    size_t start = out->end - out->begin;
    put_frame_head(out, FRAME_HEADER, channel, 0);
    bh__put_number(out, CLASS_BASIC, 2);
    bh__put_number(out, 0, 2);
    bh__put_number(out, message->body->size, 8);
    if (!model_message_write(out, message, link->broker->version, counts) || !bh__buffer_reserve(out, 64))
        return 0;
    size_t size = out->end - out->begin - start - 7, end = out->end;
    out->end = out->begin + start + 3;
    bh__put_number(out, size, 4);
    out->end = end;
    bh__put_number(out, FRAME_END, 1);
    return 1;
}

static int put_body(model_link *link, int channel, bh_bytes body)
{
    size_t most = link->frame_max ? link->frame_max - FRAME_EXTRA : body.size;
    while (body.size > 0) {
        bh_bytes part = {body.data, body.size < most ? body.size : most};
        if (!bh__buffer_reserve(&link->out, part.size + FRAME_EXTRA))
            return 0;
        put_frame_head(&link->out, FRAME_BODY, channel, part.size);
        bh__put_bytes(&link->out, part);
        bh__put_number(&link->out, FRAME_END, 1);
        body.data += part.size;
        body.size -= part.size;
    }
    return 1;
}

void model_send_content(model_link *link, int channel, amqp_method_number_t method, void *arguments,
                        const model_message *message, model_counts counts)
{
    model_send(link, channel, method, arguments);
    if (!begins(link))
        return;
    if (!put_header(link, channel, message, counts) ||
        !put_body(link, channel, (bh_bytes){message->body->data, message->body->size}))
        link->is_broken = 1;
}
