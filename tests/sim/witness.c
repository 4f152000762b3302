#include "witness.h"

#include "base/buffer.h"
#include "schedule.h"
#include "worker/librabbitmq.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_CHANNELS = 32,
    FRAME_START = 7,
    FRAME_OVERHEAD = 8,
    PREFIX = 16,
    HEADER_START = 12,
    MOST_SEEN = 8192,
    MOST_DELAY_US = 1000000,
    LATENCY_US = 3000000 /* of the network: the broker counts from the delivery */
};

/* A delivery that is not settled, or a publish that is not confirmed. */
typedef struct item {
    uint64_t tag;
    account *of; /* NULL: not a message of this history */
    int is_returned;
    int64_t offset; /* of a settlement: its end */
    int is_ack;
} item;

typedef struct items {
    item *first;
    size_t count;
    size_t capacity;
} items;

typedef struct content {
    int method; /* which began it; 0: none */
    uint64_t tag;
    char names[2][256];
    uint64_t size;
    uint64_t got;
    account *of; /* NULL: not a message of this history */
} content;

typedef struct channel {
    int is_open;
    int is_confirming;
    uint64_t published;
    items delivered;
    items sent;
    content contents[2]; /* by way */
} channel;

typedef struct connection {
    bh__buffer in[2];
    int64_t offset; /* of the bytes up that were read */
    int has_header;
    int is_lost; /* the broker's end is gone: what comes is delivered again */
    channel channels[MOST_CHANNELS];
    items settled;
} connection;

static struct {
    int is_watching;
    int may_reject;
    int64_t timeout_us;
    account *accounts[MOST_ACCOUNTS];
    size_t count;
    connection *seen[MOST_SEEN];
} it;

/* ---------------------------------------------------------------------------------------------------------- accounts */

account *witness_add(bh_bytes body)
{
    ENSURE(it.count < MOST_ACCOUNTS);
    account *added = calloc(1, sizeof *added);
    char *kept = malloc(body.size + 1);
    ENSURE(added && kept);
    memcpy(kept, body.data, body.size);
    kept[body.size] = '\0';
    added->index = (unsigned)it.count;
    added->body = (bh_bytes){kept, body.size};
    return it.accounts[it.count++] = added;
}

size_t witness_count(void)
{
    return it.count;
}

account *witness_at(size_t index)
{
    return it.accounts[index];
}

/* Returns the account that a body's first bytes name. */
static account *named(const char *prefix)
{
    unsigned index;
    return sscanf(prefix, "m%u ", &index) == 1 && index < it.count ? it.accounts[index] : NULL;
}

account *witness_find(bh_bytes body)
{
    char prefix[PREFIX] = "";
    memcpy(prefix, body.data, body.size < PREFIX - 1 ? body.size : PREFIX - 1);
    account *found = named(prefix);
    if (found && (found->body.size != body.size || memcmp(found->body.data, body.data, body.size) != 0))
        fail("the body of message %u has changed", found->index);
    return found;
}

void witness_disturb_all(void)
{
    for (size_t i = 0; i < it.count; i++)
        it.accounts[i]->disturbed++;
}

/* ------------------------------------------------------------------------------------------------------------- items */

static void add_item(items *self, item added)
{
    void *first = self->first;
    ENSURE(bh__reserve(&first, &self->capacity, sizeof *self->first, self->count + 1));
    self->first = first;
    self->first[self->count++] = added;
}

static void remove_item(items *self, size_t i)
{
    memmove(&self->first[i], &self->first[i + 1], (self->count - i - 1) * sizeof *self->first);
    self->count--;
}

static void disturb(items *self)
{
    for (size_t i = 0; i < self->count; i++)
        if (self->first[i].of)
            self->first[i].of->disturbed++;
}

static void end_channel(channel *self)
{
    disturb(&self->delivered);
    disturb(&self->sent);
    free(self->delivered.first);
    free(self->sent.first);
    *self = (channel){.is_open = 0};
}

/* ------------------------------------------------------------------------------------------------------------ worker */

typedef enum settling { ACKED, REJECTED, GIVEN_BACK } settling;

static void settle_one(connection *self, const item *settled, settling how)
{
    account *of = settled->of;
    if (!of)
        return;
    of->held_us = 0;
    trace("  m%u, tag %llu: %s", of->index, (unsigned long long)settled->tag,
          how == ACKED      ? "acknowledged"
          : how == REJECTED ? "rejected"
                            : "given back");
    if (how == REJECTED && !it.may_reject)
        fail("message %u is rejected, and lost", of->index);
    add_item(&self->settled, (item){.of = of, .offset = self->offset, .is_ack = how == ACKED});
    if (of->ok_us && !of->disturbed && schedule_now_us() - of->ok_us > MOST_DELAY_US)
        fail("message %u is settled %.3f ms after its success", of->index,
             (double)(schedule_now_us() - of->ok_us) / 1000);
    of->ok_us = 0;
    if (how != ACKED)
        return;
    of->acks++;
    if (!of->oks && of->acks > of->confirmed)
        fail("message %u is acknowledged %d times, and %d copies are confirmed", of->index, of->acks, of->confirmed);
}

static void settle(connection *self, channel *at, uint64_t tag, int is_multiple, settling how)
{
    size_t count = 0;
    for (size_t i = 0; i < at->delivered.count;) {
        item each = at->delivered.first[i];
        if (each.tag != tag && !(is_multiple && (tag == 0 || each.tag < tag))) {
            i++;
            continue;
        }
        remove_item(&at->delivered, i);
        settle_one(self, &each, how);
        count++;
    }
    if (count == 0 && tag) /* RabbitMQ allows "all" of none */
        fail("tag %llu is settled, and it is not in hand", (unsigned long long)tag);
}

static void confirm(channel *at, uint64_t tag, int is_multiple, int is_ack)
{
    for (size_t i = 0; i < at->sent.count;) {
        item each = at->sent.first[i];
        if (each.tag != tag && !(is_multiple && (tag == 0 || each.tag < tag))) {
            i++;
            continue;
        }
        remove_item(&at->sent, i);
        if (!each.of)
            continue;
        trace("  copy of m%u %s", each.of->index, !is_ack ? "nacked" : each.is_returned ? "returned" : "confirmed");
        each.of->confirmed += is_ack && !each.is_returned;
    }
}

/* ------------------------------------------------------------------------------------------------------------ frames */

static bh_bytes short_string(bh_bytes *from)
{
    size_t size = from->size ? (unsigned char)from->data[0] : 0;
    ENSURE(from->size > size);
    bh_bytes text = {from->data + 1, size};
    *from = (bh_bytes){from->data + 1 + size, from->size - 1 - size};
    return text;
}

static uint64_t number(bh_bytes *from, size_t size)
{
    ENSURE(from->size >= size);
    uint64_t value = bh__get_number(from->data, size);
    *from = (bh_bytes){from->data + size, from->size - size};
    return value;
}

static void begin_content(channel *at, witness_way way, int method, uint64_t tag, bh_bytes *names)
{
    content *begun = &at->contents[way];
    *begun = (content){.method = method, .tag = tag};
    for (int i = 0; i < 2; i++) {
        bh_bytes name = short_string(names);
        memcpy(begun->names[i], name.data, name.size);
    }
}

static void end_content(connection *self, channel *at, content *ended)
{
    account *of = ended->of;
    if (of && ended->size != of->body.size)
        fail("the body of message %u has changed", of->index);
    const char *verb = ended->method == AMQP_BASIC_PUBLISH_METHOD  ? "is published"
                       : ended->method == AMQP_BASIC_RETURN_METHOD ? "is returned"
                                                                   : "is delivered";
    trace("m%d %s, tag %llu, %s %s", of ? (int)of->index : -1, verb, (unsigned long long)ended->tag, ended->names[0],
          ended->names[1]);
    if (ended->method == AMQP_BASIC_PUBLISH_METHOD) {
        if (of)
            of->copies++;
        add_item(&at->sent, (item){.tag = ended->tag, .of = of});
    } else if (ended->method == AMQP_BASIC_RETURN_METHOD) {
        for (size_t i = 0; i < at->sent.count; i++) /* a return comes before its confirm, in the order of publishes */
            if (at->sent.first[i].of == of && !at->sent.first[i].is_returned) {
                at->sent.first[i].is_returned = 1;
                break;
            }
    } else {
        if (of && of->held_us && it.timeout_us && schedule_now_us() - of->held_us >= it.timeout_us - LATENCY_US)
            of->disturbed++;
        if (of) {
            of->held_us = schedule_now_us();
            of->disturbed += self->is_lost;
        }
        add_item(&at->delivered, (item){.tag = ended->tag, .of = of});
    }
    ended->method = 0;
}

static void on_up_method(connection *self, channel *at, amqp_method_number_t method, bh_bytes arguments)
{
    switch (method) {
    case AMQP_CHANNEL_OPEN_METHOD:
        end_channel(at);
        at->is_open = 1;
        break;
    case AMQP_CHANNEL_CLOSE_METHOD:
        trace("channel.close by the worker");
        break;
    case AMQP_CONFIRM_SELECT_METHOD:
        at->is_confirming = 1;
        break;
    case AMQP_BASIC_PUBLISH_METHOD:
        number(&arguments, 2);
        begin_content(at, WITNESS_UP, (int)method, at->is_confirming ? ++at->published : 0, &arguments);
        break;
    case AMQP_BASIC_ACK_METHOD: {
        uint64_t tag = number(&arguments, 8);
        settle(self, at, tag, number(&arguments, 1) & 1, ACKED);
        break;
    }
    case AMQP_BASIC_NACK_METHOD: {
        uint64_t tag = number(&arguments, 8);
        uint64_t bits = number(&arguments, 1);
        settle(self, at, tag, bits & 1, bits & 2 ? GIVEN_BACK : REJECTED);
        break;
    }
    case AMQP_BASIC_REJECT_METHOD: {
        uint64_t tag = number(&arguments, 8);
        settle(self, at, tag, 0, number(&arguments, 1) & 1 ? GIVEN_BACK : REJECTED);
        break;
    }
    default:
        break;
    }
}

static void on_down_method(channel *at, amqp_method_number_t method, bh_bytes arguments)
{
    switch (method) {
    case AMQP_CHANNEL_CLOSE_METHOD: {
        uint64_t code = number(&arguments, 2);
        bh_bytes text = short_string(&arguments);
        trace("channel.close by the broker: %llu %.*s", (unsigned long long)code, (int)text.size, text.data);
        end_channel(at);
        break;
    }
    case AMQP_CHANNEL_CLOSE_OK_METHOD:
        end_channel(at);
        break;
    case AMQP_BASIC_CANCEL_METHOD:
        trace("basic.cancel by the broker");
        disturb(&at->delivered);
        break;
    case AMQP_BASIC_DELIVER_METHOD: {
        short_string(&arguments);
        uint64_t tag = number(&arguments, 8);
        number(&arguments, 1);
        begin_content(at, WITNESS_DOWN, (int)method, tag, &arguments);
        break;
    }
    case AMQP_BASIC_GET_OK_METHOD: {
        uint64_t tag = number(&arguments, 8);
        number(&arguments, 1);
        begin_content(at, WITNESS_DOWN, (int)method, tag, &arguments);
        break;
    }
    case AMQP_BASIC_RETURN_METHOD:
        number(&arguments, 2);
        short_string(&arguments);
        begin_content(at, WITNESS_DOWN, (int)method, 0, &arguments);
        break;
    case AMQP_BASIC_ACK_METHOD:
    case AMQP_BASIC_NACK_METHOD: {
        uint64_t tag = number(&arguments, 8);
        confirm(at, tag, number(&arguments, 1) & 1, method == AMQP_BASIC_ACK_METHOD);
        break;
    }
    default:
        break;
    }
}

/* Adds a frame's part of a body. A frame is larger than a prefix, so the first one has it. */
static void add_body(content *self, bh_bytes part)
{
    char prefix[PREFIX] = "";
    if (self->got == 0) {
        memcpy(prefix, part.data, part.size < PREFIX - 1 ? part.size : PREFIX - 1);
        self->of = named(prefix);
    }
    const account *of = self->of;
    if (of && (self->got + part.size > of->body.size || memcmp(of->body.data + self->got, part.data, part.size) != 0))
        fail("the body of message %u has changed", of->index);
    self->got += part.size;
}

static void on_frame(connection *self, witness_way way, int type, unsigned channel_number, bh_bytes payload)
{
    ENSURE(channel_number < MOST_CHANNELS);
    channel *at = &self->channels[channel_number];
    content *current = &at->contents[way];
    if (type == AMQP_FRAME_METHOD) {
        amqp_method_number_t method = (amqp_method_number_t)number(&payload, 4);
        if (channel_number == 0 && method == AMQP_CONNECTION_CLOSE_METHOD)
            trace("connection.close by the %s", way == WITNESS_UP ? "worker" : "broker");
        if (way == WITNESS_UP)
            on_up_method(self, at, method, payload);
        else
            on_down_method(at, method, payload);
        return;
    }
    if (type == AMQP_FRAME_HEADER && current->method) {
        current->size = bh__get_number(payload.data + 4, 8);
    } else if (type == AMQP_FRAME_BODY && current->method) {
        add_body(current, payload);
    } else {
        return;
    }
    if (current->got == current->size)
        end_content(self, at, current);
}

void witness_open(int opened)
{
    ENSURE(opened < MOST_SEEN);
    it.seen[opened] = calloc(1, sizeof *it.seen[opened]);
    ENSURE(it.seen[opened]);
}

void witness_see(int of, witness_way way, const char *data, size_t size)
{
    connection *self = it.seen[of];
    if (!self || !it.is_watching)
        return;
    bh__buffer *in = &self->in[way];
    ENSURE(bh__buffer_reserve(in, size));
    bh__put_bytes(in, (bh_bytes){data, size});
    if (way == WITNESS_UP && !self->has_header) {
        if (bh__buffer_size(in) < 8)
            return;
        in->begin += 8;
        self->offset = 8;
        self->has_header = 1;
    }
    while (bh__buffer_size(in) >= FRAME_OVERHEAD) {
        const char *at = in->data + in->begin;
        size_t payload = (size_t)bh__get_number(at + 3, 4);
        if (bh__buffer_size(in) < payload + FRAME_OVERHEAD)
            break;
        if (way == WITNESS_UP)
            self->offset += (int64_t)(payload + FRAME_OVERHEAD);
        on_frame(self, way, at[0], (unsigned)bh__get_number(at + 1, 2), (bh_bytes){at + FRAME_START, payload});
        in->begin += payload + FRAME_OVERHEAD;
    }
    if (bh__buffer_size(in) == 0)
        bh__buffer_clear(in);
}

static void free_connection(connection *self)
{
    for (int i = 0; i < MOST_CHANNELS; i++) {
        free(self->channels[i].delivered.first);
        free(self->channels[i].sent.first);
    }
    bh__buffer_free(&self->in[0]);
    bh__buffer_free(&self->in[1]);
    free(self->settled.first);
    free(self);
}

static void disturb_connection(connection *self)
{
    for (int i = 0; i < MOST_CHANNELS; i++) {
        disturb(&self->channels[i].delivered);
        disturb(&self->channels[i].sent);
    }
}

void witness_lose(int lost)
{
    connection *self = it.seen[lost];
    if (!self)
        return;
    self->is_lost = 1;
    disturb_connection(self);
}

void witness_disturb_in_hand(int is_end)
{
    for (int i = 0; i < MOST_SEEN; i++)
        if (it.seen[i]) {
            it.seen[i]->is_lost |= is_end;
            disturb_connection(it.seen[i]);
        }
}

void witness_close(int closed, int64_t arrived)
{
    connection *self = it.seen[closed];
    if (!self)
        return;
    trace("the worker leaves connection %d", closed);
    for (size_t i = 0; i < self->settled.count; i++) {
        const item *each = &self->settled.first[i];
        if (each->offset > arrived) {
            each->of->acks -= each->is_ack;
            each->of->disturbed++;
        }
    }
    disturb_connection(self);
    free_connection(self);
    it.seen[closed] = NULL;
}

void witness_begin(int may_reject, int64_t timeout_ms)
{
    it.timeout_us = timeout_ms * 1000;
    it.is_watching = 1;
    it.may_reject = may_reject;
}

void witness_end(void)
{
    for (size_t i = 0; i < MOST_SEEN; i++)
        if (it.seen[i]) {
            free_connection(it.seen[i]);
            it.seen[i] = NULL;
        }
    for (size_t i = 0; i < it.count; i++) {
        free((char *)(uintptr_t)it.accounts[i]->body.data);
        free(it.accounts[i]);
    }
    it.count = 0;
    it.is_watching = 0;
}
