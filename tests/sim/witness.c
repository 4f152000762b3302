#include "witness.h"

#include "base/buffer.h"
#include "base/memory.h"
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
    MOST_DELAY_US = 1000000
};

/* A delivery that is not settled, or a publish that is not confirmed. */
typedef struct item {
    uint64_t tag;
    account *of;     /* NULL: not a message of this history */
    uint64_t target; /* of a publish: a hash of exchange and routing key */
    int is_returned;
    int64_t offset; /* of a settlement: its end */
    int is_ack;
    int calls;  /* for it before this delivery */
    int copies; /* of it before this delivery */
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
    channel channels[MOST_CHANNELS];
    items settled;
} connection;

static struct {
    int is_watching;
    int may_reject;
    int may_drop;
    int may_give_back;
    int is_publisher;
    int is_splitting;
    int most_channels;
    account *accounts[MOST_ACCOUNTS];
    size_t count;
    connection *seen[MOST_SEEN];
} it;

/* ------------------------------------------------------------------------------------- accounts */

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
    char *end;
    unsigned long index = *prefix == 'm' ? strtoul(prefix + 1, &end, 10) : it.count;
    return index < it.count && *end == ' ' ? it.accounts[index] : NULL;
}

static account *find_by_prefix(bh_bytes body)
{
    char prefix[PREFIX] = "";
    memcpy(prefix, body.data, body.size < PREFIX - 1 ? body.size : PREFIX - 1);
    return named(prefix);
}

account *witness_find(bh_bytes body)
{
    account *found = find_by_prefix(body);
    if (found && (found->body.size != body.size || memcmp(found->body.data, body.data, body.size) != 0))
        fail("the body of message %u has changed", found->index);
    return found;
}

int witness_doubles(const account *message)
{
    int unheard = message->stored - message->confirmed; /* copies whose confirm did not arrive */
    return message->returned + message->given_back + message->doubled + message->published_again +
           (unheard > 0 ? unheard : 0);
}

void witness_may_drop(void)
{
    it.may_drop = 1;
}

void witness_split(int is_splitting)
{
    it.is_splitting = is_splitting;
}

void witness_may_give_back(void)
{
    it.may_give_back = 1;
}

void witness_publisher(int is_publishing)
{
    it.is_publisher = is_publishing;
}

static int has_suffix(bh_bytes name, const char *suffix)
{
    size_t size = strlen(suffix);
    return name.size >= size && memcmp(name.data + name.size - size, suffix, size) == 0;
}

void witness_watch(void *data, model_fate fate, bh_bytes queue, bh_bytes body)
{
    (void)data;
    account *of = it.is_watching ? find_by_prefix(body) : NULL;
    if (!of)
        return;
    switch (fate) {
    case MODEL_FATE_PUBLISHED:
        of->stored += !it.is_publisher;
        of->due_us = it.is_publisher ? 0 : of->next_due_us;
        of->next_due_us = 0;
        break;
    case MODEL_FATE_ADDED: {
        of->lives++;
        int is_parked = has_suffix(queue, ".parked"), is_unroutable = has_suffix(queue, ".unroutable");
        of->begins_anew |= is_parked;
        of->is_unroutable |= is_unroutable;
        if (is_parked || is_unroutable)
            of->due_us = 0;
        break;
    }
    case MODEL_FATE_REMOVED:
        of->lives--;
        break;
    case MODEL_FATE_RETURNED:
        trace("  m%u is in %.*s again", of->index, (int)queue.size, queue.data);
        of->returned++;
        of->is_split |= it.is_splitting;
        of->due_us = 0; /* not the copy comes, but its original */
        break;
    case MODEL_FATE_DELETED:
        trace("  m%u is deleted with %.*s", of->index, (int)queue.size, queue.data);
        of->may_be_lost = of->is_split = 1;
        break;
    case MODEL_FATE_DROPPED:
        if (!it.may_drop)
            fail("the broker drops the dead letter of message %u", of->index);
        of->may_be_lost = 1;
        break;
    case MODEL_FATE_DOUBLED:
        trace("  m%u is dead-lettered again from %.*s", of->index, (int)queue.size, queue.data);
        of->doubled++;
        break;
    }
}

/* ---------------------------------------------------------------------------------------- items */

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

static void end_channel(channel *self)
{
    free(self->delivered.first);
    free(self->sent.first);
    *self = (channel){.is_open = 0};
}

/* --------------------------------------------------------------------------------------- worker */

typedef enum settling { ACKED, REJECTED, GIVEN_BACK } settling;

static void settle_one(connection *self, const item *settled, settling how)
{
    account *of = settled->of;
    if (!of)
        return;
    trace("  m%u, tag %llu: %s", of->index, (unsigned long long)settled->tag,
          how == ACKED      ? "acknowledged"
          : how == REJECTED ? "rejected"
                            : "given back");
    if (how == REJECTED && !it.may_reject)
        fail("message %u is rejected, and lost", of->index);
    if (how == GIVEN_BACK && (of->in_hand || of->copies > settled->copies ||
                              (of->calls > settled->calls && (!it.may_reject || it.may_give_back)))) {
        int may_seem_too_long = of->may_be_lost && it.is_splitting; /* see SHORTEST_TIMEOUT_MS in consume.c */
        if (!it.may_give_back && !may_seem_too_long && !witness_doubles(of))
            fail("message %u is given back, but a handler was called for it, or its copy published", of->index);
        of->given_back++;
        of->due_us = 0;
    }
    add_item(&self->settled, (item){.of = of, .offset = self->offset, .is_ack = how == ACKED});
    if (of->ok_us && !of->may_be_lost && !witness_doubles(of) && schedule_now_us() - of->ok_us > MOST_DELAY_US)
        fail("message %u is settled %.3f ms after its success", of->index,
             (double)(schedule_now_us() - of->ok_us) / 1000);
    of->ok_us = 0;
    if (how != ACKED)
        return;
    of->acks++;
    if (of->acks > of->confirmed + of->oks)
        fail("message %u is acknowledged %d times, after %d confirmed copies and %d successes", of->index, of->acks,
             of->confirmed, of->oks);
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

/* --------------------------------------------------------------------------------------- frames */

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

static uint64_t target_of(const content *self)
{
    return bh__hash_on(bh__hash_on(BH__HASH_OF_NOTHING, bh_str(self->names[0])), bh_str(self->names[1]));
}

static void end_content(channel *at, content *ended)
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
        add_item(&at->sent, (item){.tag = ended->tag, .of = of, .target = target_of(ended)});
    } else if (ended->method == AMQP_BASIC_RETURN_METHOD) {
        for (size_t i = at->sent.count; i-- > 0;) /* a return comes before its confirm: the newest copy is meant */
            if (at->sent.first[i].of == of && at->sent.first[i].target == target_of(ended) &&
                !at->sent.first[i].is_returned) {
                at->sent.first[i].is_returned = 1;
                break;
            }
    } else {
        if (of) /* a decision on its earlier delivery may not hold */
            of->next_due_us = 0;
        add_item(&at->delivered,
                 (item){.tag = ended->tag, .of = of, .calls = of ? of->calls : 0, .copies = of ? of->copies : 0});
    }
    ended->method = 0;
}

static void count_channels(const connection *self)
{
    int count = 0;
    for (int i = 0; i < MOST_CHANNELS; i++)
        count += self->channels[i].is_open;
    it.most_channels = count > it.most_channels ? count : it.most_channels;
}

int witness_most_channels(void)
{
    return it.most_channels;
}

static void on_up_method(connection *self, channel *at, amqp_method_number_t method, bh_bytes arguments)
{
    switch (method) {
    case AMQP_CHANNEL_OPEN_METHOD:
        end_channel(at);
        at->is_open = 1;
        count_channels(self);
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
        end_content(at, current);
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

void witness_close(int closed, int64_t arrived)
{
    connection *self = it.seen[closed];
    if (!self)
        return;
    trace("the worker leaves connection %d", closed);
    for (size_t i = 0; i < self->settled.count; i++) {
        const item *each = &self->settled.first[i];
        if (each->offset > arrived)
            each->of->acks -= each->is_ack;
    }
    free_connection(self);
    it.seen[closed] = NULL;
}

void witness_begin(int may_reject)
{
    it.is_watching = 1;
    it.may_reject = may_reject;
    it.is_splitting = it.may_drop = it.may_give_back = it.is_publisher = it.most_channels = 0;
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
